//! Metrics of the bus and of the edges.

use std::{fmt, time::Instant};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
    registry::Registry,
};
use sallyport_bus::{ConfigProgress, EdgeState, Fleet, Nats, PublishStats};

/// The metrics of the bus on this machine.
#[derive(Debug)]
pub(crate) struct BusMetrics {
    pub(crate) nats: Nats,
    pub(crate) fleet: Fleet,
    /// Set on an edge.
    pub(crate) followed: Option<ConfigProgress>,
    /// Set on a control.
    pub(crate) published: Option<PublishStats>,
}

impl BusMetrics {
    pub(crate) fn register(self, registry: &mut Registry) {
        registry.register_collector(Box::new(self));
    }
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

impl Collector for BusMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut gauge = |name: &str, help: &str, value: i64| {
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)
        };
        gauge("sallyport_bus_connected", "Whether there is a connection to the bus", self.nats.link().is_up.into())?;
        let edges = i64::try_from(self.fleet.edges().len()).unwrap_or(i64::MAX);
        gauge("sallyport_directory_edges", "Edges that are there", edges)?;
        let draining = self.fleet.edges().iter().filter(|seen| seen.card.state == EdgeState::Draining).count();
        let draining = i64::try_from(draining).unwrap_or(i64::MAX);
        gauge("sallyport_directory_edges_draining", "Edges that are draining", draining)?;
        let tunnels = i64::try_from(self.fleet.tunnels()).unwrap_or(i64::MAX);
        gauge("sallyport_directory_tunnels", "Tunnels at all edges", tunnels)?;
        let stale = self.fleet.stale_since().map_or(0, |since| Instant::now().duration_since(since).as_secs());
        gauge(
            "sallyport_directory_stale_seconds",
            "Seconds without messages of edges; 0 while all messages arrive",
            signed(stale),
        )?;
        if let Some(followed) = &self.followed {
            gauge(
                "sallyport_config_entries",
                "Entries of the configuration that are known",
                signed(followed.entries()),
            )?;
            let is_present = followed.is_present() && self.fleet.stale_since().is_none();
            gauge(
                "sallyport_config_present",
                "Whether the whole configuration of control is known",
                is_present.into(),
            )?;
        }
        if let Some(published) = &self.published {
            let help = "Entries too large for the bus, whose sockets edges do not know";
            gauge("sallyport_config_too_large", help, published.too_large().cast_signed())?;
        }
        let mut counter = |name: &str, help: &str, value: u64| {
            let counter = ConstCounter::new(value);
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)
        };
        if let Some(followed) = &self.followed {
            counter("sallyport_config_refused", "Entries that were not understood", followed.refused())?;
            counter(
                "sallyport_config_snapshot_failures",
                "Failed writes of the snapshot",
                followed.snapshot_failures(),
            )?;
        }
        if let Some(published) = &self.published {
            counter("sallyport_config_written", "Entries published to edges", published.written())?;
            counter("sallyport_config_mended", "Entries that edges had missed", published.mended())?;
            counter("sallyport_config_failed", "Entries that could not be written at once", published.failed())?;
        }
        Ok(())
    }
}
