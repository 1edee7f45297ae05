//! `/healthz` and `/readyz` of an edge.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering::Relaxed},
};

use sallyport_bus::{ConfigProgress, Fleet, Nats};
use sallyport_edge::Edge;
use tokio::sync::watch;

use super::join;
use crate::daemon::{AuditStream, BusMetrics, bus_health};

/// The sources of an edge's health.
pub(super) struct Health {
    pub(super) nats: Nats,
    pub(super) fleet: Fleet,
    pub(super) config: ConfigProgress,
    pub(super) audit: AuditStream,
    /// The end of the machine certificate, in seconds since 1970.
    pub(super) certified_until: Arc<AtomicI64>,
    /// Whether the edge was removed from the installation.
    pub(super) removed: watch::Receiver<bool>,
}

impl Health {
    /// Publishes the health through the edge.
    pub(super) fn publish(self, edge: &Edge) {
        let config = self.config.clone();
        edge.set_health_notes(Arc::new(move || self.notes()));
        edge.ask_readiness(
            "this edge knows no configuration yet",
            Arc::new(move || {
                let is_known = config.is_present() || config.entries() > 0;
                let reason = "neither the bus nor the snapshot has given it any";
                Box::pin(async move { if is_known { Ok(()) } else { Err(reason.to_owned()) } })
            }),
        );
    }

    /// The metrics of what connects the edge with the others.
    pub(super) fn bus_metrics(&self) -> BusMetrics {
        let (nats, fleet, followed) = (self.nats.clone(), self.fleet.clone(), Some(self.config.clone()));
        BusMetrics { nats, fleet, followed, published: None }
    }

    /// The faults, one a line.
    fn notes(&self) -> String {
        // A bus server that is cut off from the others still answers, but its data may be outdated.
        let is_present = self.config.is_present() && self.fleet.stale_since().is_none();
        let stale = if is_present { "" } else { "configuration: not of the present\n" };
        let is_certified = join::now() < self.certified_until.load(Relaxed);
        let ended = if is_certified { "" } else { "certificates: ended\n" };
        let gone = if *self.removed.borrow() { "edge: removed\n" } else { "" };
        format!("{gone}{ended}{stale}{}{}", bus_health(&self.nats, &self.fleet), self.audit.health())
    }
}
