//! Where clients land: the round trips of real clients by network, the table of what is known of each network, and what
//! follows from it. Pure: time is an argument.
//!
//! Networks are prefixes of 24 bits in IPv4 and of 48 bits in IPv6, so that no entry tells of one person. The number of
//! prefixes is bounded: a new one takes the place of the one that was not seen for the longest.
//!
//! [`Catchment`] is the table of one edge. [`Landings`] is the one table of the installation: its [`Row`]s come from
//! clients, pings, name servers and probes. [`SteeringTable`], [`losses`], [`suggest`](suggest()), [`FreezeGuard`] and
//! [`map`] follow from it.

mod freeze;
mod groups;
mod imports;
mod loss;
pub mod map;
mod passive;
mod prefix;
mod rows;
mod steering;
mod suggest;
mod system;
mod table;

pub use freeze::{FreezeGuard, FreezeReason, Gathering};
pub use groups::{GroupBy, LandingGroup, groups};
pub use imports::{
    AtlasError, AtlasResult, ChaosAnswer, ChaosError, MAX_ATLAS_BYTES, MAX_ATLAS_RESULTS, MAX_CHAOS_BYTES,
    MAX_SITE_RULES, SiteNames, SiteRule, SiteRuleError, atlas_results, chaos_answer, chaos_question,
};
pub use loss::{Loss, losses};
pub use passive::{MAX_COUNTED, Seen, Tally};
pub use prefix::{Prefix, PrefixError};
pub use rows::{HALF_LIFE_SECONDS, Landing, Landings, MAX_ROWS, Row, Source, SourceError};
pub use steering::{SteeringRules, SteeringTable};
pub use suggest::{Group, Suggestion, suggest};
pub use system::{ClientSystem, by_system};
pub use table::{Catchment, ClientNetwork, MAX_CLIENT_ROUND_TRIP, MAX_PREFIXES, ROUND_TRIP_WINDOW};
