//! jemalloc as the allocator of the program, and the return of unused memory to the system.

use tikv_jemalloc_ctl::{background_thread, max_background_threads};
use tikv_jemallocator::Jemalloc;

/// jemalloc, because it returns memory after a flood: docs/adr/0058-shares-of-clients.md.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// One thread is enough, and each thread costs memory itself.
const PURGING_THREADS: usize = 1;

/// Starts the thread that returns memory which was unused for ten seconds.
///
/// Without that thread, memory returns only at the next allocation of the same thread, and idle threads do not
/// allocate. Short commands need no such thread.
///
/// # Errors
/// The allocator refuses, or the system cannot start the thread.
pub(crate) fn give_back_unused() -> Result<(), tikv_jemalloc_ctl::Error> {
    max_background_threads::write(PURGING_THREADS)?;
    background_thread::write(true)
}
