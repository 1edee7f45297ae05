//! The Prometheus metrics of networks.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::{Registry, Unit},
};
use sallyport_network::relay::DropReason;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

/// Why a packet was dropped.
#[derive(Debug, Clone, Copy)]
pub(super) enum Dropped {
    /// As [`DropReason`] says; this is its place.
    Judged(usize),
    /// The other machine has no carrier here.
    Away,
    /// Too much waits for the other machine.
    QueueFull,
}

/// The counters.
#[derive(Debug)]
pub(super) struct NetworkMetrics {
    /// The machines with a carrier here.
    pub(super) machines: Gauge,
    packets: Counter,
    bytes: Counter,
    dropped_by_reason: Family<ReasonLabel, Counter>,
    /// Those of the family: in the order of [`DropReason::WORDS`], then away and a full queue.
    dropped: Vec<Counter>,
}

impl Default for NetworkMetrics {
    fn default() -> Self {
        let dropped_by_reason = Family::<ReasonLabel, Counter>::default();
        let words = DropReason::WORDS.into_iter().chain(["away", "queue-full"]);
        let dropped = words.map(|reason| dropped_by_reason.get_or_create_owned(&ReasonLabel { reason })).collect();
        let (machines, packets, bytes) = Default::default();
        Self { machines, packets, bytes, dropped_by_reason, dropped }
    }
}

impl NetworkMetrics {
    /// Counts a packet that was passed on.
    pub(super) fn forwarded(&self, bytes: usize) {
        self.packets.inc();
        self.bytes.inc_by(bytes as u64);
    }

    /// Counts a packet that was dropped.
    pub(super) fn dropped(&self, reason: Dropped) {
        let place = match reason {
            Dropped::Judged(place) => place,
            Dropped::Away => DropReason::WORDS.len(),
            Dropped::QueueFull => DropReason::WORDS.len() + 1,
        };
        self.dropped[place].inc();
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        let machines = "Machines of networks with a carrier at this edge";
        registry.register("sallyport_edge_network_machines", machines, self.machines.clone());
        let packets = "Packets of networks that were passed on; a train of segments counts once";
        registry.register("sallyport_edge_network_packets", packets, self.packets.clone());
        let bytes = "Bytes of the packets that were passed on, without what carries them";
        registry.register_with_unit("sallyport_edge_network", bytes, Unit::Bytes, self.bytes.clone());
        let dropped = "Packets of networks that were dropped, by reason";
        registry.register("sallyport_edge_network_dropped_packets", dropped, self.dropped_by_reason.clone());
    }
}
