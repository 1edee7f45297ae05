//! When a certificate is ordered, from which CA and by which challenge. Pure: time and random numbers are arguments.

mod challenge;
mod failure;
pub use challenge::{ChallengeKind, challenge_kinds};
pub use failure::{Failure, LONG_RATE_LIMIT_SECONDS, MAX_RATE_LIMIT_SECONDS};
