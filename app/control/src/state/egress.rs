//! The leases of slices in memory, with the times that no store has.

use std::time::Instant;

use sallyport_ports::{LeaseTimes, Leases};
use tokio::sync::{Mutex, MutexGuard};

/// The leases of slices. One change at a time.
pub(crate) struct EgressLeases(Mutex<Leases>);

impl EgressLeases {
    /// No leases yet. The store has them.
    pub(crate) fn new(times: LeaseTimes) -> Self {
        Self(Mutex::new(Leases::restore(Vec::new(), times, Instant::now())))
    }

    /// The leases, for one change.
    pub(crate) async fn lock(&self) -> MutexGuard<'_, Leases> {
        self.0.lock().await
    }
}
