//! The Prometheus metrics of the mesh.

use std::sync::Arc;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric},
    metrics::{MetricType, counter::Counter, family::Family, gauge::ConstGauge},
    registry::{Registry, Unit},
};
use sallyport_net::RelayCounts;

use super::Mesh;

/// For how many edges the round trip is shown, which bounds the size of the page.
const MAX_LABELLED_EDGES: usize = 1_000;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RelayLabel {
    direction: &'static str,
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DirectionLabel {
    direction: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EdgeLabel {
    edge: String,
}

/// The counters; clones count together.
#[derive(Debug, Clone, Default)]
pub(crate) struct MeshMetrics {
    relayed: Family<RelayLabel, Counter>,
    failures: Family<ReasonLabel, Counter>,
    bytes: Counter,
}

impl MeshMetrics {
    /// Counts a stream or datagram flow that was opened to another edge (`out`) or for one (`in`).
    pub(super) fn relayed(&self, direction: &'static str, kind: &'static str) {
        self.relayed.get_or_create(&RelayLabel { direction, kind }).inc();
    }

    /// Counts a failure between edges under this reason.
    pub(crate) fn failed(&self, reason: &'static str) {
        self.failures.get_or_create(&ReasonLabel { reason }).inc();
    }

    /// Counts the bytes of a relayed stream that ended.
    pub(super) fn carried(&self, carried: RelayCounts) {
        self.bytes.inc_by(carried.forth + carried.back);
    }

    /// Registers all metrics of the mesh.
    pub(super) fn register(&self, mesh: &Arc<Mesh>, registry: &mut Registry) {
        let sub = registry.sub_registry_with_prefix("sallyport_mesh");
        let help = "Streams and flows of datagrams that were relayed, to other edges (out) and for them (in)";
        sub.register("relayed", help, self.relayed.clone());
        sub.register("failures", "Failures between edges, by reason", self.failures.clone());
        let help = "Bytes carried for other edges, in both directions, of streams that have ended";
        sub.register_with_unit("relayed", help, Unit::Bytes, self.bytes.clone());
        registry.register_collector(Box::new(Gauges(mesh.clone())));
    }
}

/// The gauges, read when a scrape comes.
#[derive(Debug)]
struct Gauges(Arc<Mesh>);

impl Collector for Gauges {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let peers = self.0.peers();
        let made = peers.iter().filter(|peer| peer.has_link()).count();
        let help = "Open links between edges: made by this one (out) and by others (in)";
        let mut links = encoder.encode_descriptor("sallyport_mesh_links", help, None, MetricType::Gauge)?;
        for (direction, count) in [("out", made), ("in", self.0.inbound.count())] {
            let gauge = ConstGauge::new(i64::try_from(count).unwrap_or(i64::MAX));
            gauge.encode(links.encode_family(&DirectionLabel { direction })?)?;
        }
        let (name, help) = ("sallyport_mesh_round_trip", "The round trip to another edge, as it was last measured");
        let mut rtts = encoder.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Gauge)?;
        for peer in peers.iter().take(MAX_LABELLED_EDGES) {
            if let Some(round_trip) = peer.round_trip() {
                let label = EdgeLabel { edge: peer.name().to_string() };
                ConstGauge::new(round_trip.as_secs_f64()).encode(rtts.encode_family(&label)?)?;
            }
        }
        Ok(())
    }
}
