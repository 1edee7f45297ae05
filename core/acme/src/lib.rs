//! When a certificate is ordered, from which CA and by which challenge. Pure: time and random numbers are arguments.
//!
//! - A [`Schedule`] is what is stored of one certificate. Its methods record what happened, and [`Schedule::next_step`]
//!   decides what to do now: wait, ask for renewal information, or order.
//! - [`Directories`] are the CAs: the first, a second for when the first fails, and a staging directory for tries.
//! - [`challenge_kinds`] orders the ways to prove a name.
//! - A [`Pacer`] bounds the orders of an installation, however many certificates are due.
//!
//! Times are those of the wall clock, which may jump both ways. A step depends on the stored times and `now` alone, so
//! look again at least every minute rather than sleep until the time of a step.

mod attempts;
mod challenge;
mod directory;
mod failure;
mod pacer;
mod renewal_info;
mod schedule;
mod span;
mod step;

pub use attempts::{Attempts, MAX_SPACING, MIN_SPACING, PATIENCE, SPACING_AFTER_PATIENCE};
pub use challenge::{ChallengeKind, challenge_kinds};
pub use directory::{Authority, Directories, Directory, staging_url};
pub use failure::{DEFAULT_RATE_LIMIT_SECONDS, Failure, LONG_RATE_LIMIT_SECONDS, MAX_RATE_LIMIT_SECONDS};
pub use pacer::{Pacer, PacerConfig, PacerWait};
pub use renewal_info::{MAX_ASK_AGAIN, MIN_ASK_AGAIN, RenewalAnswer, RenewalInfo, RenewalWindow};
pub use schedule::{Issued, Schedule};
pub use span::Span;
pub use step::{OrderReason, Step, WaitReason};
