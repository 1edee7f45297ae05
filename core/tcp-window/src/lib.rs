//! What the windows of a TCP connection say: samples come in, a drawing and one sentence on what limits it go out.
//!
//! [`Sample`] is one reading of a socket. [`judge`] compares readings, and [`draw`] makes one self-contained SVG of
//! them. [`Target`] says whose sockets are meant.

mod chart;
mod judgement;
mod sample;
mod target;

pub use chart::{Drawn, draw};
pub use judgement::{Judgement, Limit, judge};
pub use sample::{NetworkCounts, Sample};
pub use target::{Target, TargetError};
