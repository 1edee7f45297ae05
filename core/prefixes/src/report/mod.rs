//! What sources hold, counted and compared. Uses `set` and `read`.

mod difference;
mod holdings;
mod price;

pub use difference::{Difference, FamilyDifference, MAX_LISTED_PREFIXES};
pub use holdings::{FamilyReport, LengthCount, Named, Overlap, Part, Report, SourceReport};
pub use price::{Price, PriceError};

use crate::set::{Address, Ranges};

/// The size of a set in the unit of its family: IPv4 in addresses, IPv6 in networks of 64 bits, rounded up.
fn units<A: Address>(ranges: &Ranges<A>) -> u64 {
    let size = if A::BITS == 32 { ranges.size() } else { ranges.size().div_ceil(1 << 64) };
    u64::try_from(size).unwrap_or(u64::MAX)
}
