//! The plan of a generator: flows, ranges, sizes and rates; and what a receiver has counted. All without a clock.

mod frame;
mod latency;
mod pacer;
mod range;
mod rate;
mod recording;
mod search;
mod sizes;
mod traffic;

pub use frame::{STAMP_BYTES, Stamp, write_frame};
pub use latency::{BUCKETS, Latency, bucket_of};
pub use pacer::{Due, End, Pacer};
pub use range::{AddressRange, PortRange};
pub use rate::{Pace, Rate};
pub use recording::Recording;
pub use search::{Found, Search, Trial};
pub use sizes::{IMIX, MAX_SIZES, Sizes};
pub use traffic::{MAX_FRAME, Traffic, TrafficError, Transport};

/// What Ethernet adds to a frame: the check sequence, which the card computes. Sizes of RFC 2544 include it.
pub const CHECK_SEQUENCE: u16 = 4;
/// What the wire adds to a frame besides: preamble and gap.
pub const PREAMBLE_AND_GAP: u16 = 20;
