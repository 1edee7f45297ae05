//! Health: whether an edge announces a prefix, and the steps there.

mod checks;
mod damping;
mod prefix;

pub use checks::{Cause, FALL, RISE};
pub use damping::{FIRST_HOLD_DOWN, MAX_HOLD_DOWN, MIN_BETWEEN_CHANGES};
pub use prefix::{Found, PermitAsk, PrefixHealth, Step, Timing, Wanted};
