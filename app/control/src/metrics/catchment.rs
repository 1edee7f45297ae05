//! The metrics of the catchment.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};
use sallyport_catchment::Source;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SourceLabels {
    source: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

/// The metrics.
#[derive(Debug, Clone, Default)]
pub(crate) struct CatchmentMetrics {
    rows: Family<SourceLabels, Counter>,
    measurements: Family<OutcomeLabels, Counter>,
    forged: Counter,
    frozen: Gauge,
}

impl CatchmentMetrics {
    /// Counts rows that were written.
    pub(crate) fn wrote(&self, source: Source, rows: usize) {
        if rows > 0 {
            let rows = u64::try_from(rows).unwrap_or(u64::MAX);
            self.rows.get_or_create(&SourceLabels { source: source.as_str() }).inc_by(rows);
        }
    }

    /// Counts a measurement that has ended.
    pub(crate) fn measured(&self, outcome: &'static str, forged: u64) {
        self.measurements.get_or_create(&OutcomeLabels { outcome }).inc();
        self.forged.inc_by(forged);
    }

    /// Sets whether steering is frozen.
    pub(crate) fn set_frozen(&self, is_frozen: bool) {
        self.frozen.set(i64::from(is_frozen));
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        let help = "Rows of the catchment that were written, by source";
        registry.register("sallyport_catchment_rows", help, self.rows.clone());
        let help = "Measurements of the catchment that have ended, by outcome";
        registry.register("sallyport_catchment_measurements", help, self.measurements.clone());
        let help = "Forged replies that edges counted during measurements";
        registry.register("sallyport_catchment_forged_replies", help, self.forged.clone());
        let help = "Whether steering does not follow the catchment now";
        registry.register("sallyport_catchment_frozen", help, self.frozen.clone());
    }
}
