//! The metrics of announcements.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};
use sallyport_anycast::model::Announcement;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FailureLabels {
    of: &'static str,
}

const STATES: [Announcement; 3] = [Announcement::Announced, Announcement::Deprioritised, Announcement::Withdrawn];

/// The metrics.
#[derive(Debug, Default)]
pub(super) struct AnycastMetrics {
    prefixes: Family<StateLabels, Gauge>,
    changes: Family<StateLabels, Counter>,
    failures: Family<FailureLabels, Counter>,
    refused: Counter,
    is_bird_up: Gauge,
    flow_edges: Gauge,
}

impl AnycastMetrics {
    /// Sets how many prefixes are in each state.
    pub(super) fn set_states(&self, states: impl Iterator<Item = Announcement>) {
        let mut counts = [0; STATES.len()];
        for state in states {
            counts[STATES.iter().position(|one| *one == state).unwrap_or_default()] += 1;
        }
        for (state, count) in STATES.into_iter().zip(counts) {
            self.prefixes.get_or_create(&StateLabels { state: state.as_str() }).set(count);
        }
    }

    pub(super) fn changed(&self, state: Announcement) {
        self.changes.get_or_create(&StateLabels { state: state.as_str() }).inc();
    }

    /// Sets how many edges share the flows of the site; 0: nothing is shared.
    pub(super) fn set_flow_edges(&self, edges: u64) {
        self.flow_edges.set(i64::try_from(edges).unwrap_or(i64::MAX));
    }

    /// Counts a failure: of `bird`, `address`, `permit` or `flows`.
    pub(super) fn failed(&self, of: &'static str) {
        self.failures.get_or_create(&FailureLabels { of }).inc();
    }

    pub(super) fn refused(&self) {
        self.refused.inc();
    }

    pub(super) fn set_bird(&self, is_up: bool) {
        self.is_bird_up.set(i64::from(is_up));
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        let name = |name: &str| format!("sallyport_edge_anycast_{name}");
        registry.register(name("prefixes"), "Prefixes of this edge, by how they stand", self.prefixes.clone());
        registry.register(name("changes"), "Changes of announcements, by the new state", self.changes.clone());
        registry.register(
            name("failures"),
            "Failed steps, by what failed: bird, address, permit or flows",
            self.failures.clone(),
        );
        registry.register(
            name("permit_refusals"),
            "Withdrawals that were refused, because too few would announce",
            self.refused.clone(),
        );
        registry.register(
            name("flow_edges"),
            "Edges that share the flows of this site by rules of the kernel; 0 when nothing is shared",
            self.flow_edges.clone(),
        );
        registry.register(name("bird_up"), "Whether BIRD answers", self.is_bird_up.clone());
    }
}
