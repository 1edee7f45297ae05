//! The metrics of the planner of steering.

use std::{sync::atomic::AtomicU64, time::Duration};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};
use sallyport_steer::plan::{PlanView, ReportRefused};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SocketLabels {
    socket: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OriginLabels {
    socket: String,
    origin: String,
}

/// The metrics.
#[derive(Debug, Clone)]
pub(crate) struct SteeringMetrics {
    reports: Counter,
    refused: Family<ReasonLabels, Counter>,
    assignments: Counter,
    leads: Gauge,
    seconds: Histogram,
    gap: Gauge,
    granted: Gauge<f64, AtomicU64>,
    demand: Family<SocketLabels, Gauge<f64, AtomicU64>>,
    shed: Family<SocketLabels, Gauge<f64, AtomicU64>>,
    planned: Family<OriginLabels, Gauge<f64, AtomicU64>>,
    capacity: Family<OriginLabels, Gauge<f64, AtomicU64>>,
}

impl Default for SteeringMetrics {
    fn default() -> Self {
        Self {
            reports: Counter::default(),
            refused: Family::default(),
            assignments: Counter::default(),
            leads: Gauge::default(),
            seconds: Histogram::new(exponential_buckets(0.000_1, 4.0, 8)),
            gap: Gauge::default(),
            granted: Gauge::default(),
            demand: Family::default(),
            shed: Family::default(),
            planned: Family::default(),
            capacity: Family::default(),
        }
    }
}

impl SteeringMetrics {
    /// Counts a report of an edge, and why it was refused.
    pub(crate) fn reported(&self, refused: Option<ReportRefused>) {
        self.reports.inc();
        let reason = match refused {
            None => return,
            Some(ReportRefused::Old) => "old",
            Some(ReportRefused::NoBase) => "no-base",
            Some(ReportRefused::UnknownEdge) => "unknown-edge",
        };
        self.refused.get_or_create(&ReasonLabels { reason }).inc();
    }

    /// Counts a report without a right code.
    pub(crate) fn forged(&self) {
        self.refused.get_or_create(&ReasonLabels { reason: "forged" }).inc();
    }

    /// Counts a plan.
    pub(crate) fn planned(&self, took: Duration, gap_ppm: u64, leads: bool, assignments: usize) {
        self.seconds.observe(took.as_secs_f64());
        self.gap.set(i64::try_from(gap_ppm).unwrap_or(i64::MAX));
        self.leads.set(i64::from(leads));
        self.assignments.inc_by(assignments as u64);
    }

    /// Sets the plans of sockets, and the greatest part of a capacity that is granted, in thousandths.
    pub(crate) fn set_plans<'a>(&self, plans: impl Iterator<Item = (String, &'a PlanView)>, granted_per_mille: u64) {
        self.granted.set(rps(granted_per_mille));
        self.demand.clear();
        self.shed.clear();
        self.planned.clear();
        self.capacity.clear();
        for (socket, plan) in plans {
            let of_socket = SocketLabels { socket: socket.clone() };
            self.demand.get_or_create(&of_socket).set(rps(plan.edges.iter().map(|edge| edge.demand).sum()));
            self.shed.get_or_create(&of_socket).set(rps(plan.edges.iter().map(|edge| edge.shed).sum()));
            for origin in &plan.origins {
                let labels = OriginLabels { socket: socket.clone(), origin: origin.origin.to_string() };
                self.planned.get_or_create(&labels).set(rps(origin.planned));
                if let Some(capacity) = origin.capacity {
                    self.capacity.get_or_create(&labels).set(rps(capacity));
                }
            }
        }
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        let name = |name: &str| format!("sallyport_steering_{name}");
        registry.register(name("reports"), "Reports of edges about demand and load", self.reports.clone());
        registry.register(name("refused_reports"), "Reports that changed nothing, by reason", self.refused.clone());
        registry.register(name("assignments"), "Assignments of quotas to edges", self.assignments.clone());
        registry.register(name("leads"), "1 while this control assigns quotas", self.leads.clone());
        registry.register(name("plan_seconds"), "Time to make a plan", self.seconds.clone());
        registry.register(
            name("plan_gap_ppm"),
            "Distance of the last plan from an optimum, in millionths of its cost",
            self.gap.clone(),
        );
        registry.register(
            name("granted_ratio"),
            "The greatest part of a capacity that edges may use together",
            self.granted.clone(),
        );
        registry.register(name("demand_rps"), "Requests per second that come for a socket", self.demand.clone());
        registry.register(name("shed_rps"), "Requests per second that are refused", self.shed.clone());
        registry.register(name("planned_rps"), "Requests per second planned for an origin", self.planned.clone());
        registry.register(name("capacity_rps"), "Requests per second that an origin can carry", self.capacity.clone());
    }
}

/// Thousandths as a number.
#[expect(clippy::cast_precision_loss, reason = "rates are far below 2^52")]
fn rps(amount: u64) -> f64 {
    amount as f64 / 1_000.0
}
