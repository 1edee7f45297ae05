//! The figures of the QUIC port.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric},
    metrics::{
        MetricType,
        counter::{ConstCounter, Counter},
        family::Family,
        gauge::ConstGauge,
    },
};
use sallyport_quic::QuicCounts;

use crate::{lifecycle::counts::Connections, metrics::ReasonLabel};

/// The figures of the QUIC port, read when a scrape comes.
#[derive(Debug, Default)]
pub(crate) struct QuicMetrics {
    /// What the port has routed; unset without a port.
    counts: OnceLock<Arc<QuicCounts>>,
    http3_connections: AtomicUsize,
    is_http3_offered: AtomicUsize,
    /// The open associations of paths; unset without a port.
    associations: OnceLock<Arc<Connections>>,
    associations_refused: Family<ReasonLabel, Counter>,
}

/// An open HTTP/3 connection, counted until dropped.
#[derive(Debug)]
pub(crate) struct Http3Connected(Arc<QuicMetrics>);

impl Drop for Http3Connected {
    fn drop(&mut self) {
        self.0.http3_connections.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WayLabel {
    way: &'static str,
}

impl QuicMetrics {
    /// Sets the counts of the port.
    pub(crate) fn set_counts(&self, counts: Arc<QuicCounts>) {
        // An edge has one port.
        let _ = self.counts.set(counts);
    }

    /// Counts one more HTTP/3 connection.
    pub(crate) fn connected(self: &Arc<Self>) -> Http3Connected {
        self.http3_connections.fetch_add(1, Ordering::Relaxed);
        Http3Connected(self.clone())
    }

    /// Sets the open associations of paths.
    pub(crate) fn set_associations(&self, open: Arc<Connections>) {
        let _ = self.associations.set(open);
    }

    /// Counts an association of paths that was refused, or given up before its first connection.
    pub(crate) fn association_refused(&self, reason: &'static str) {
        self.associations_refused.get_or_create(&ReasonLabel { reason }).inc();
    }

    /// Records whether clients are offered HTTP/3.
    pub(crate) fn set_offered(&self, is_offered: bool) {
        self.is_http3_offered.store(usize::from(is_offered), Ordering::Relaxed);
    }
}

/// The collector of the figures.
#[derive(Debug)]
pub(crate) struct QuicCollector(pub(crate) Arc<QuicMetrics>);

impl Collector for QuicCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let (connections, offered) = (&self.0.http3_connections, &self.0.is_http3_offered);
        let associations = self.0.associations.get().map_or(0, |open| open.open());
        let gauges = [
            ("sallyport_edge_http3_connections_open", "Open HTTP/3 connections", connections.load(Ordering::Relaxed)),
            ("sallyport_edge_http3_offered", "Whether clients are offered HTTP/3", offered.load(Ordering::Relaxed)),
            ("sallyport_edge_multipath_open", "Connectors over several links at once", associations),
        ];
        for (name, help, value) in gauges {
            let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        let none = QuicCounts::default();
        let counts = self.0.counts.get().map_or(&none, |counts| counts);
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let counters = [
            ("sallyport_edge_quic_retries", "QUIC clients that had to prove their address", read(&counts.retries)),
            ("sallyport_edge_quic_datagrams_dropped", "QUIC datagrams dropped on their way", read(&counts.dropped)),
        ];
        for (name, help, value) in counters {
            let counter = ConstCounter::new(value);
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
        }
        let (name, help) =
            ("sallyport_edge_multipath_refused", "Connectors over several links that were refused or given up");
        let refused = &self.0.associations_refused;
        refused.encode(encoder.encode_descriptor(name, help, None, refused.metric_type())?)?;
        let (name, help) =
            ("sallyport_edge_quic_datagrams_routed", "QUIC datagrams passed to where their connection is");
        let mut routed = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (way, value) in [
            ("socket", read(&counts.to_other_sockets)),
            ("former-process", read(&counts.to_former_processes)),
            ("from-successor", read(&counts.from_successor)),
        ] {
            ConstCounter::new(value).encode(routed.encode_family(&WayLabel { way })?)?;
        }
        Ok(())
    }
}
