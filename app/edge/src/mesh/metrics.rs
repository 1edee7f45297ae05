//! What is counted of the mesh, for Prometheus.

use std::sync::Arc;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric},
    metrics::{MetricType, counter::Counter, family::Family, gauge::ConstGauge},
    registry::{Registry, Unit},
};
use sallyport_net::Carried;

use super::Mesh;

/// How many edges' round trips are shown; more would fill the page.
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

/// What is counted as it happens; clones count the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct MeshMetrics {
    relayed: Family<RelayLabel, Counter>,
    failures: Family<ReasonLabel, Counter>,
    bytes: Counter,
}

impl MeshMetrics {
    /// A stream, or a flow of datagrams, was opened to another edge (`out`) or for one (`in`).
    pub(super) fn relayed(&self, direction: &'static str, kind: &'static str) {
        self.relayed.get_or_create(&RelayLabel { direction, kind }).inc();
    }

    /// Something did not go, for this reason.
    pub(crate) fn failed(&self, reason: &'static str) {
        self.failures.get_or_create(&ReasonLabel { reason }).inc();
    }

    /// A stream of another edge has ended that carried so much.
    pub(super) fn carried(&self, carried: Carried) {
        self.bytes.inc_by(carried.forth + carried.back);
    }

    /// Makes all of it known to the registry.
    pub(super) fn register(&self, mesh: &Arc<Mesh>, registry: &mut Registry) {
        let sub = registry.sub_registry_with_prefix("sallyport_mesh");
        let help = "Streams and flows of datagrams that were relayed, to other edges (out) and for them (in)";
        sub.register("relayed", help, self.relayed.clone());
        sub.register("failures", "What did not go between edges, by reason", self.failures.clone());
        let help = "Bytes carried for other edges, in both directions, of streams that have ended";
        sub.register_with_unit("relayed", help, Unit::Bytes, self.bytes.clone());
        registry.register_collector(Box::new(Gauges(mesh.clone())));
    }
}

/// What is looked at when it is asked for.
#[derive(Debug)]
struct Gauges(Arc<Mesh>);

impl Collector for Gauges {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let peers = self.0.peers();
        let made = peers.iter().filter(|peer| peer.has_link()).count();
        let help = "Links between edges that stand: made by this one (out) and by others (in)";
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
