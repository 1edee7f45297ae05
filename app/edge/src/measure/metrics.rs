//! The metrics of measured ways.

use std::sync::Arc;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric},
    metrics::{MetricType, counter::Counter, family::Family, gauge::ConstGauge},
    registry::{Registry, Unit},
};
use sallyport_bus::{WayKind, WayMethod};

use super::{Measurements, probe::ProbeOutcome, table::WayKey};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ProbeLabels {
    kind: &'static str,
    by: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EdgeLabels {
    edge: String,
    by: &'static str,
}

fn kind_name(kind: WayKind) -> &'static str {
    match kind {
        WayKind::Edge => "edge",
        WayKind::Origin => "origin",
        WayKind::Host => "host",
    }
}

fn method_name(by: WayMethod) -> &'static str {
    match by {
        WayMethod::Icmp => "icmp",
        WayMethod::Tcp => "tcp",
        WayMethod::Link => "link",
    }
}

/// The counters.
#[derive(Debug, Default)]
pub(super) struct MeasureMetrics {
    probes: Family<ProbeLabels, Counter>,
}

impl MeasureMetrics {
    /// Counts a probe.
    pub(super) fn probed(&self, key: &WayKey, outcome: &ProbeOutcome) {
        let outcome = match outcome {
            Ok(_) => "answered",
            Err(unmeasured) if unmeasured.is_lost => "lost",
            Err(_) => "not-sent",
        };
        let labels = ProbeLabels { kind: kind_name(key.kind), by: method_name(key.by), outcome };
        self.probes.get_or_create(&labels).inc();
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        let help = "Probes of ways, by the kind of the target, the method and the outcome";
        registry.register("sallyport_edge_way_probes", help, self.probes.clone());
    }
}

/// The shortest round trips to other edges, read when a scrape comes.
pub(super) struct MinimumGauges(pub(super) Arc<Measurements>);

impl std::fmt::Debug for MinimumGauges {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MinimumGauges(..)")
    }
}

impl Collector for MinimumGauges {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let (name, help) = ("sallyport_edge_way_minimum", "The shortest round trip to another edge in five minutes");
        let mut family = encoder.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Gauge)?;
        for way in self.0.edge_floors() {
            let Some(us) = way.floor_us else { continue };
            let labels = EdgeLabels { edge: way.to, by: method_name(way.by) };
            ConstGauge::new(us as f64 / 1e6).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
