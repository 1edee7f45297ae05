//! Loads of edges on their way to control, and quotas on their way back.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use sallyport_model::EdgeId;
use sallyport_steer::report::{LoadReport, QuotaAssignment};
use tokio::sync::broadcast;

/// How many messages a slow receiver may lag behind. A later message replaces an earlier one.
const MAX_QUEUED: usize = 4_096;
/// To how many other edges a report is given when this edge hears no leader.
const MAX_PASSED: u32 = 3;
/// After how long without quotas an edge counts as one that hears no leader.
const UNHEARD_AFTER: Duration = Duration::from_secs(3);
/// The shortest time between two reports of one edge that are sent on.
const RELAY_PERIOD: Duration = Duration::from_millis(500);
/// How many reports of other edges may wait to be sent.
const MAX_RELAYED: usize = 64;

/// A report with its code, as it travels on the bus.
pub(crate) type SealedReport = Arc<[u8]>;

/// What an edge does with reports beside sending its own.
#[derive(Debug, Default)]
struct Contact {
    /// The last report of this edge, and how many others may still get it.
    sealed: Option<(SealedReport, u32)>,
    /// When a leader was last heard.
    heard_at: Option<Instant>,
    /// When a report of each other edge was last sent on.
    relayed_at: HashMap<EdgeId, Instant>,
}

impl Contact {
    fn hears_leader(&self) -> bool {
        self.heard_at.is_some_and(|at| at.elapsed() < UNHEARD_AFTER)
    }

    /// Whether a report of this edge may be sent on now: not too many, since nobody here can verify them.
    fn may_relay(&mut self, edge: EdgeId) -> bool {
        self.relayed_at.retain(|_, at| at.elapsed() < RELAY_PERIOD);
        self.hears_leader() && self.relayed_at.insert(edge, Instant::now()).is_none()
    }
}

/// Carries messages between edges and controls of one process. Between machines, `carry_steering_of_edge` and
/// `carry_steering_of_control` connect it with the bus.
///
/// An edge that the bus does not reach gives its reports to other edges ([`Steering::report_to_pass`]), which send them
/// on ([`Steering::relay`]). So a leader knows what such an edge has.
#[derive(Debug, Clone)]
pub struct Steering {
    loads: broadcast::Sender<Arc<LoadReport>>,
    quotas: broadcast::Sender<Arc<QuotaAssignment>>,
    relayed: broadcast::Sender<(EdgeId, SealedReport)>,
    contact: Arc<Mutex<Contact>>,
}

impl Default for Steering {
    fn default() -> Self {
        Self {
            loads: broadcast::Sender::new(MAX_QUEUED),
            quotas: broadcast::Sender::new(MAX_QUEUED),
            relayed: broadcast::Sender::new(MAX_RELAYED),
            contact: Arc::default(),
        }
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

    /// Sends a report of another edge on, as it came. Nothing happens while this edge hears no leader itself.
    pub fn relay(&self, edge: EdgeId, sealed: Vec<u8>) {
        if !sealed.is_empty() && self.contact.lock().may_relay(edge) {
            let _ = self.relayed.send((edge, sealed.into()));
        }
    }

    /// The last report of this edge, for another one that may send it on. `None` while this edge hears a leader, and when
    /// enough edges have this report.
    #[must_use]
    pub fn report_to_pass(&self) -> Option<SealedReport> {
        let mut contact = self.contact.lock();
        if contact.hears_leader() {
            return None;
        }
        let (sealed, left) = contact.sealed.as_mut().filter(|(_, left)| *left > 0)?;
        *left -= 1;
        Some(sealed.clone())
    }

    /// The reports of other edges that are to be sent on.
    pub(crate) fn subscribe_relayed(&self) -> broadcast::Receiver<(EdgeId, SealedReport)> {
        self.relayed.subscribe()
    }

    pub(crate) fn set_sealed(&self, sealed: &[u8]) {
        self.contact.lock().sealed = Some((sealed.into(), MAX_PASSED));
    }

    pub(crate) fn record_leader_heard(&self) {
        self.contact.lock().heard_at = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edge_without_a_leader_passes_its_report_on_and_one_with_a_leader_sends_it() {
        let (lost, well) = (Steering::default(), Steering::default());
        let edge = EdgeId::from_random([1; 16]);
        let mut relayed = well.subscribe_relayed();
        assert!(lost.report_to_pass().is_none(), "there is no report yet");
        lost.set_sealed(b"report");
        well.relay(edge, b"report".to_vec());
        assert!(relayed.try_recv().is_err(), "this edge hears no leader");
        well.record_leader_heard();
        well.set_sealed(b"own");
        assert!(well.report_to_pass().is_none(), "its own report needs no other edge");
        for number in 0..MAX_PASSED {
            let report = lost.report_to_pass().unwrap();
            well.relay(EdgeId::from_random([number as u8; 16]), report.to_vec());
            assert_eq!(relayed.try_recv().unwrap().1.as_ref(), b"report");
        }
        well.relay(EdgeId::from_random([0; 16]), b"again".to_vec());
        assert!(relayed.try_recv().is_err(), "one edge does not have others send without end");
        assert!(lost.report_to_pass().is_none(), "enough edges have it");
        lost.set_sealed(b"next");
        assert!(lost.report_to_pass().is_some());
        well.relay(edge, Vec::new());
        assert!(relayed.try_recv().is_err(), "there is nothing to send on");
    }
}
