//! The metrics of slices.

use std::net::IpAddr;

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};
use sallyport_ports::{Match, NoSlice, SliceKey, UseState};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SliceLabels {
    address: String,
    slice: u8,
}

impl SliceLabels {
    fn of((address, slice): SliceKey) -> Self {
        Self { address: IpAddr::to_string(&address), slice: slice.number() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WhyLabels {
    why: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

/// The metrics. Slices are at most those of the installation, which bounds the labels.
#[derive(Debug, Default)]
pub(super) struct EgressMetrics {
    slices: Family<StateLabels, Gauge>,
    flows: Family<SliceLabels, Gauge>,
    dials: Family<SliceLabels, Counter>,
    matches: Family<WhyLabels, Counter>,
    refusals: Family<ReasonLabels, Counter>,
    own: Counter,
    lookups: Counter,
}

impl EgressMetrics {
    /// Sets how many slices the edge has in each state.
    pub(super) fn set_states(&self, states: &[UseState]) {
        for (state, name) in [(UseState::Open, "open"), (UseState::Waiting, "waiting"), (UseState::Closed, "closed")] {
            let count = states.iter().filter(|one| **one == state).count();
            self.slices.get_or_create(&StateLabels { state: name }).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    pub(super) fn set_flows(&self, key: SliceKey, flows: usize) {
        self.flows.get_or_create(&SliceLabels::of(key)).set(i64::try_from(flows).unwrap_or(i64::MAX));
    }

    pub(super) fn dialed(&self, key: SliceKey, why: Match) {
        self.dials.get_or_create(&SliceLabels::of(key)).inc();
        self.matches.get_or_create(&WhyLabels { why: why.as_str() }).inc();
    }

    pub(super) fn refused(&self, reason: NoSlice) {
        self.refusals.get_or_create(&ReasonLabels { reason: reason.as_str() }).inc();
    }

    pub(super) fn used_own(&self) {
        self.own.inc();
    }

    pub(super) fn looked_up(&self) {
        self.lookups.inc();
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        let egress = registry.sub_registry_with_prefix("sallyport_edge_egress");
        egress.register("slices", "Slices of egress addresses that the edge has, by what it does", self.slices.clone());
        egress.register("flows", "Open connections and flows to direct origins from a slice", self.flows.clone());
        egress.register("dials", "Connections and flows that were opened from a slice", self.dials.clone());
        egress.register("matches", "Those dials, by why the address was chosen", self.matches.clone());
        let help = "Connections that were not opened, because no slice could be used, by reason";
        egress.register("refusals", help, self.refusals.clone());
        let help = "Connections from the machine's own address, because no slice could be used";
        egress.register("own_address_dials", help, self.own.clone());
        let help = "Names of direct origins that the name service was asked for from a slice";
        egress.register("lookups", help, self.lookups.clone());
    }
}
