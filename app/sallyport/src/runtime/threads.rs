//! The threads that serve connections.

use std::{num::NonZeroU16, thread};

use anyhow::Context as _;
use sallyport_shards::Shards;

/// One thread for each processor that this process may use.
///
/// # Errors
/// The system cannot start the threads.
pub(crate) fn shards() -> anyhow::Result<Shards> {
    let count = thread::available_parallelism().ok().and_then(|count| NonZeroU16::try_from(count).ok());
    let count = count.unwrap_or(NonZeroU16::MIN);
    Shards::start(count).with_context(|| format!("cannot start {count} threads to serve connections with"))
}
