//! Exact nearest neighbours of 144-byte hashes within a threshold. Pure: files come in as readers.
//!
//! A [`Hash`](type@Hash) is a point in 144 dimensions, such as a perceptual hash of an image. [`search`](search())
//! finds the nearest row for each query of a batch, or tells that none is within the [`Threshold`]. A [`Filter`] first finds the
//! pairs that may be near by [`PREFIX_BYTES`] of their bytes, and never misses one. The search then computes the
//! distances of these pairs. So each filter gives the same result, and only its time differs. [`Scalar`] is a filter
//! for every processor. `io/vector` has those for vector and tile instructions, and [`quads`] is their layout.
//! [`nearest`] compares everything, as a reference.

mod file;
mod hash;
pub mod quads;
mod scalar;
mod search;

pub use file::{FORMAT_VERSION, FileError, MAX_ROWS, read, write};
pub use hash::{HASH_BYTES, Hash, HashError, Threshold, ThresholdError, distance, parse};
pub use scalar::Scalar;
pub use search::{BLOCK_ROWS, Filter, GROUP_QUERIES, MAX_BATCH_QUERIES, Match, PREFIX_BYTES, Pair, nearest, search};
