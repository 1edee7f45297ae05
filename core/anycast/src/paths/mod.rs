//! Paths: which way other networks take to a prefix, and why.
//!
//! Networks choose by local preference first: routes of customers, then those of peers, then those of providers. Only
//! among equals does the length of the path count (RFC 4271, section 9.1.2; the order of preferences is Gao and
//! Rexford's). What an observer hears shows what others chose. Silence shows nothing.

mod advice;
mod decisions;
mod explanation;
mod leaks;
mod names;
mod relations;
mod sites;

pub use decisions::{Alternative, Decision, Rule};
pub use explanation::{Candidate, Evidence, Explanation, MAX_HEARD, Question, Viewpoint, explain};
pub use leaks::{Leak, LeakKind, leaks};
pub use names::{AsNames, MAX_NAMES, NamesError};
pub use relations::{Known, MAX_RELATIONS, Relation, Relations, RelationsError, Source};
pub use sites::{Heard, Session, SiteFound};
