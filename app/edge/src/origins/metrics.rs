//! The Prometheus metrics of origins.

use std::sync::Arc;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric},
    metrics::{MetricType, counter::Counter, family::Family, gauge::ConstGauge},
    registry::Registry,
};

use crate::origins::pool::Sockets;

/// For how many sockets the origins are shown, which bounds the size of the page.
const MAX_LABELLED_SOCKETS: usize = 1_000;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ToLabel {
    to: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SocketLabel {
    socket: String,
}

/// The counters.
#[derive(Debug, Clone, Default)]
pub(crate) struct OriginMetrics {
    ejections: Counter,
    changes: Family<ToLabel, Counter>,
}

impl OriginMetrics {
    /// Counts an ejection.
    pub(crate) fn ejected(&self) {
        self.ejections.inc();
    }

    /// Counts a change of an origin's checks.
    pub(crate) fn changed(&self, is_down: bool) {
        self.changes.get_or_create(&ToLabel { to: if is_down { "down" } else { "up" } }).inc();
    }

    /// Registers the metrics, with the number of healthy origins of each socket.
    pub(crate) fn register(&self, sockets: &Arc<Sockets>, registry: &mut Registry) {
        let edge = registry.sub_registry_with_prefix("sallyport_edge");
        let help = "Origins ejected for a while, because several connections in a row failed or timed out";
        edge.register("origin_ejections", help, self.ejections.clone());
        edge.register("origin_health_changes", "Changes of origins' health by health checks", self.changes.clone());
        registry.register_collector(Box::new(HealthyOrigins(sockets.clone())));
    }
}

#[derive(Debug)]
struct HealthyOrigins(Arc<Sockets>);

impl Collector for HealthyOrigins {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let help = "Origins that new flows may go to, by socket";
        let mut family = encoder.encode_descriptor("sallyport_edge_origins_healthy", help, None, MetricType::Gauge)?;
        for pool in self.0.all().into_iter().take(MAX_LABELLED_SOCKETS) {
            let Some(socket) = pool.name() else { continue };
            let gauge = ConstGauge::new(i64::try_from(pool.healthy()).unwrap_or(i64::MAX));
            gauge.encode(family.encode_family(&SocketLabel { socket })?)?;
        }
        Ok(())
    }
}
