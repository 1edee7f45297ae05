//! The gauges of `/metrics`: figures of all rooms, read at the time of a scrape.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
};
use sallyport_model::LinkStatus;
use sallyport_shards::Shards;
use sallyport_tunnel::EdgeTunnels;

use crate::{
    body::upload_meter::UploadBudget,
    lifecycle::{
        counts::{Connections, Handshakes},
        flow_count::FlowCounts,
    },
    metrics::ReasonLabel,
};

/// The gauges, read when a scrape comes.
#[derive(Debug)]
pub(crate) struct Gauges {
    pub(crate) tunnels: TunnelsInDebug,
    pub(crate) connections: Arc<Connections>,
    pub(crate) handshakes: Arc<Handshakes>,
    pub(crate) udp_flows: Arc<FlowCounts>,
    pub(crate) uploads: Arc<UploadBudget>,
    pub(crate) drain_ordered: Arc<AtomicBool>,
    pub(crate) shards: Shards,
}

/// The tunnels, with an implementation of `Debug`.
pub(crate) struct TunnelsInDebug(pub(crate) EdgeTunnels);

impl std::fmt::Debug for TunnelsInDebug {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EdgeTunnels")
    }
}

impl Collector for Gauges {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let stats = self.tunnels.0.stats();
        let gauges = [
            ("sallyport_edge_tunnels_up", "Attached tunnels", stats.tunnels),
            ("sallyport_edge_sessions", "Connectors' sessions", stats.sessions),
            ("sallyport_edge_legs_idle", "Legs without a stream", stats.legs_idle),
            ("sallyport_edge_legs_busy", "Legs with a stream", stats.legs_busy),
            ("sallyport_edge_streams_multiplexed", "Streams on control connections", stats.mux_streams),
            ("sallyport_edge_connections_open", "Open TLS connections", self.connections.open()),
            (
                "sallyport_edge_connections_bulk",
                "Connections with bulk transfers, in threads for them",
                self.shards.carrying_bulk(),
            ),
            ("sallyport_edge_udp_flows", "Flows of UDP sockets", self.udp_flows.all()),
            ("sallyport_edge_handshakes_pending", "TLS handshakes that have not finished", self.handshakes.len()),
            (
                "sallyport_edge_uploads_held_bytes",
                "Uploads over HTTP/2 that no origin has taken yet",
                self.uploads.held(),
            ),
            (
                "sallyport_edge_draining",
                "Whether this edge is ordered to drain",
                usize::from(self.drain_ordered.load(Ordering::Relaxed)),
            ),
        ];
        for (name, help, value) in gauges {
            let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        let (name, help) = ("sallyport_edge_tunnel_links", "Links of connectors, by what the connectors report");
        let mut links = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (status, count) in LinkStatus::ALL.iter().zip(stats.links) {
            let gauge = ConstGauge::new(i64::try_from(count).unwrap_or(i64::MAX));
            gauge.encode(links.encode_family(&[("status", status.as_str())])?)?;
        }
        let (name, help) = ("sallyport_edge_tunnel_link_bytes", "Bytes that connectors report to have moved by links");
        let mut bytes = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (direction, count) in [("sent", stats.link_bytes.0), ("received", stats.link_bytes.1)] {
            ConstCounter::new(count).encode(bytes.encode_family(&[("direction", direction)])?)?;
        }
        let datagrams = stats.datagrams;
        let counters = [
            ("sallyport_edge_tunnel_datagrams_sent", "Datagrams sent to connectors", datagrams.sent),
            ("sallyport_edge_tunnel_datagrams_received", "Datagrams received from connectors", datagrams.received),
        ];
        for (name, help, value) in counters {
            let counter = ConstCounter::new(value);
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
        }
        let (name, help) = ("sallyport_edge_tunnel_datagrams_dropped", "Datagrams dropped on their way to connectors");
        let mut dropped = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (reason, value) in [("full", datagrams.dropped_full), ("late", datagrams.dropped_old)] {
            ConstCounter::new(value).encode(dropped.encode_family(&ReasonLabel { reason })?)?;
        }
        Ok(())
    }
}
