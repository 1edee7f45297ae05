//! What is counted of origins, for Prometheus.

use std::sync::Arc;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric},
    metrics::{MetricType, counter::Counter, family::Family, gauge::ConstGauge},
    registry::Registry,
};

use crate::origins::pool::Sockets;

/// How many sockets' origins are shown; more would fill the page.
const MAX_LABELLED_SOCKETS: usize = 1_000;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ToLabel {
    to: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SocketLabel {
    socket: String,
}

/// What is counted as it happens.
#[derive(Debug, Clone, Default)]
pub(crate) struct OriginMetrics {
    ejections: Counter,
    changes: Family<ToLabel, Counter>,
}

impl OriginMetrics {
    /// An origin is left out for a while.
    pub(crate) fn ejected(&self) {
        self.ejections.inc();
    }

    /// An origin's checks say something new of it.
    pub(crate) fn changed(&self, is_down: bool) {
        self.changes.get_or_create(&ToLabel { to: if is_down { "down" } else { "up" } }).inc();
    }

    /// Makes all of it known to the registry, with how many origins of each socket are well.
    pub(crate) fn register(&self, sockets: &Arc<Sockets>, registry: &mut Registry) {
        let edge = registry.sub_registry_with_prefix("sallyport_edge");
        let help =
            "Origins left out for a while, because they took no connection several times in a row, or not in time";
        edge.register("origin_ejections", help, self.ejections.clone());
        edge.register("origin_health_changes", "Changes of what health checks say of origins", self.changes.clone());
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
