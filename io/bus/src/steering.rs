//! Loads of edges on their way to control, and quotas on their way back.

use std::sync::Arc;

use sallyport_steer::report::{LoadReport, QuotaAssignment};
use tokio::sync::broadcast;

/// How many messages a slow receiver may lag behind. A later message replaces an earlier one.
const MAX_QUEUED: usize = 4_096;

/// Carries messages between edges and controls of one process. Between machines, `carry_steering_of_edge` and
/// `carry_steering_of_control` connect it with the bus.
#[derive(Debug, Clone)]
pub struct Steering {
    loads: broadcast::Sender<Arc<LoadReport>>,
    quotas: broadcast::Sender<Arc<QuotaAssignment>>,
}

impl Default for Steering {
    fn default() -> Self {
        Self { loads: broadcast::Sender::new(MAX_QUEUED), quotas: broadcast::Sender::new(MAX_QUEUED) }
    }
}

impl Steering {
    /// Sends a report to control.
    pub fn report(&self, report: LoadReport) {
        // There may be no receiver.
        let _ = self.loads.send(Arc::new(report));
    }

    /// Sends quotas to their edge.
    pub fn assign(&self, assignment: QuotaAssignment) {
        let _ = self.quotas.send(Arc::new(assignment));
    }

    /// The reports from now on.
    #[must_use]
    pub fn subscribe_loads(&self) -> broadcast::Receiver<Arc<LoadReport>> {
        self.loads.subscribe()
    }

    /// The assignments from now on.
    #[must_use]
    pub fn subscribe_quotas(&self) -> broadcast::Receiver<Arc<QuotaAssignment>> {
        self.quotas.subscribe()
    }
}
