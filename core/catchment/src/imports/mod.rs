//! Results that others measured, and which site an answer names.

mod atlas;
mod chaos;
mod sites;

pub use atlas::{AtlasError, AtlasResult, MAX_ATLAS_BYTES, MAX_ATLAS_RESULTS, atlas_results};
pub use chaos::{ChaosAnswer, ChaosError, MAX_CHAOS_BYTES, chaos_answer, chaos_question};
pub use sites::{MAX_SITE_RULES, SiteNames, SiteRule, SiteRuleError};
