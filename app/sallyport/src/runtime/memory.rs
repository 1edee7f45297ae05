//! The allocator of the program, and when memory that is no longer used goes back to the system.

use tikv_jemalloc_ctl::{background_thread, max_background_threads};
use tikv_jemallocator::Jemalloc;

/// jemalloc, since it gives back what a flood took: docs/adr/0058-shares-of-clients.md.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// One thread is enough to give memory back, and each thread costs memory itself.
const PURGING_THREADS: usize = 1;

/// Starts the thread that gives memory back which nothing has used for ten seconds.
///
/// Without that thread memory goes back only when the same thread allocates again, and idle threads do not. Commands
/// that end soon need no such thread.
///
/// # Errors
/// The allocator refuses, or the system has no thread to spare.
pub(crate) fn give_back_unused() -> Result<(), tikv_jemalloc_ctl::Error> {
    max_background_threads::write(PURGING_THREADS)?;
    background_thread::write(true)
}
