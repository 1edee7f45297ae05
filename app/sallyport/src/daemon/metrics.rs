//! The metrics that a server publishes.

use std::sync::Arc;

use prometheus_client::registry::Registry;
use sallyport_audit::AuditLog;
use sallyport_control::Control;
use sallyport_dns::Counters;
use sallyport_edge::Edge;

use super::{AuditStream, BusMetrics, dns_metrics::DnsMetrics};
use crate::runtime::process_metrics::ProcessMetrics;

/// The parts of a server that have metrics.
pub(crate) struct Metrics<'a> {
    /// Publishes the metrics.
    pub(crate) edge: &'a Arc<Edge>,
    pub(crate) control: Option<&'a Control>,
    pub(crate) audit: &'a AuditLog,
    pub(crate) stream: Option<&'a AuditStream>,
    pub(crate) process: ProcessMetrics,
    pub(crate) bus: Option<BusMetrics>,
    /// Of the name server, where it runs.
    pub(crate) dns: Option<Arc<Counters>>,
}

impl Metrics<'_> {
    /// Registers the metrics of all parts, and publishes them through the edge.
    pub(crate) fn publish(self) {
        let mut registry = Registry::default();
        self.edge.register_metrics(&mut registry);
        if let Some(control) = self.control {
            control.register_metrics(&mut registry);
        }
        self.audit.register_metrics(&mut registry);
        if let Some(stream) = self.stream {
            stream.register(&mut registry);
        }
        self.process.register(&mut registry);
        if let Some(bus) = self.bus {
            bus.register(&mut registry);
        }
        if let Some(counters) = self.dns {
            registry.register_collector(Box::new(DnsMetrics(counters)));
        }
        self.edge.publish_metrics(registry);
    }
}
