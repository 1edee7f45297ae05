//! Whether steering may follow the catchment.

use std::time::Instant;

use parking_lot::Mutex;
use sallyport_catchment::{FreezeGuard, FreezeReason, Gathering};

/// The guard of the catchment.
#[derive(Debug)]
pub(crate) struct CatchmentState {
    started: Instant,
    guard: Mutex<FreezeGuard>,
}

impl Default for CatchmentState {
    fn default() -> Self {
        Self { started: Instant::now(), guard: Mutex::default() }
    }
}

impl CatchmentState {
    /// Takes what a gathering of the counts of edges has changed. Returns why steering is frozen then.
    pub(crate) fn handle_gathering(&self, gathering: Gathering) -> Option<FreezeReason> {
        let now = self.started.elapsed();
        let mut guard = self.guard.lock();
        guard.handle_gathering(gathering, now);
        guard.reason(now)
    }

    /// Why steering does not follow the catchment now.
    pub(crate) fn frozen(&self) -> Option<FreezeReason> {
        self.guard.lock().reason(self.started.elapsed())
    }
}
