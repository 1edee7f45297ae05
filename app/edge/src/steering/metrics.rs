//! The metrics of an edge's part in steering.

use std::{sync::atomic::AtomicU64, time::Duration};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};
use sallyport_steer::{quota::Refused, report::QuotaAssignment};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RefusedLabels {
    reason: &'static str,
}

/// The metrics.
#[derive(Debug, Default)]
pub(super) struct SteeringMetrics {
    reports: Counter,
    assignments: Counter,
    refused: Family<RefusedLabels, Counter>,
    term: Gauge,
    quotas: Gauge,
    age: Gauge<f64, AtomicU64>,
    cut_off: Gauge,
}

impl SteeringMetrics {
    pub(super) fn reported(&self) {
        self.reports.inc();
    }

    pub(super) fn assigned(&self, assignment: &QuotaAssignment) {
        self.assignments.inc();
        self.term.set(i64::try_from(assignment.term).unwrap_or(i64::MAX));
        self.quotas.set(i64::try_from(assignment.quotas.len()).unwrap_or(i64::MAX));
        self.cut_off.set(0);
    }

    pub(super) fn refused(&self, why: Refused) {
        let reason = match why {
            Refused::Misaddressed => "misaddressed",
            Refused::FormerLeader => "former-leader",
            Refused::Old => "old",
            Refused::Unasked => "unasked",
        };
        self.refused.get_or_create(&RefusedLabels { reason }).inc();
    }

    /// Sets how old the quotas are.
    pub(super) fn set_age(&self, age: Option<Duration>) {
        self.age.set(age.map_or(0.0, |age| age.as_secs_f64()));
    }

    /// Sets whether the quotas still apply.
    pub(super) fn set_valid(&self, is_valid: bool) {
        self.cut_off.set(i64::from(!is_valid));
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        let name = |name: &str| format!("sallyport_edge_steering_{name}");
        registry.register(name("reports"), "Reports of demand and load", self.reports.clone());
        registry.register(name("assignments"), "Assignments of quotas that were taken over", self.assignments.clone());
        registry.register(name("refused_assignments"), "Assignments that were not taken over", self.refused.clone());
        registry.register(name("term"), "The term of the last leader", self.term.clone());
        registry.register(name("quotas"), "Quotas of the last assignment", self.quotas.clone());
        registry.register(
            name("age_seconds"),
            "Time since the report that the last assignment answers",
            self.age.clone(),
        );
        registry.register(
            name("cut_off"),
            "1 while the quotas are given up: neither a leader nor a majority of the edges is reached",
            self.cut_off.clone(),
        );
    }
}
