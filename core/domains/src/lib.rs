//! Domains of organisations: which names may be added, how an organisation proves that a name is its own, and which
//! authorities may sign for a name.
//!
//! Nothing here makes lookups: the answers of the name service and the time are arguments.

mod caa;
mod name;
mod ownership;

pub use caa::{CaaRecord, CaaVerdict, caa_verdict};
pub use name::{DomainError, parse_domain, registrable};
pub use ownership::{
    CHECK_EVERY_SECONDS, Finding, GRACE_SECONDS, MAX_PROOF_NAMES, Ownership, PENDING_CHECK_SECONDS, RECORD_LABEL,
    proof, proof_names,
};
