//! The Prometheus metrics of stock ssh clients.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
};
use sallyport_ssh::SshStats;

/// The counters of the ssh server, read when a scrape comes.
#[derive(Debug)]
pub(crate) struct SshMetrics(pub(crate) Arc<SshStats>);

impl Collector for SshMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let stats = &self.0;
        for (name, help, value) in counters(stats) {
            let counter = ConstCounter::new(value.load(Ordering::Relaxed));
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
        }
        for (name, help, value) in gauges(stats) {
            let gauge = ConstGauge::new(i64::try_from(value.load(Ordering::Relaxed)).unwrap_or(i64::MAX));
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        Ok(())
    }
}

type Row<'a> = (&'static str, &'static str, &'a AtomicU64);

fn counters(stats: &SshStats) -> [Row<'_>; 15] {
    [
        ("sallyport_edge_ssh_connections", "Connections of ssh clients that were accepted", &stats.connections),
        (
            "sallyport_edge_ssh_connections_refused",
            "Connections of ssh clients that were refused because all places were taken",
            &stats.connections_refused,
        ),
        ("sallyport_edge_ssh_logins", "Logins of ssh clients", &stats.logins),
        ("sallyport_edge_ssh_logins_refused", "Keys of ssh clients that were refused", &stats.logins_refused),
        (
            "sallyport_edge_ssh_sha1_refused",
            "Ssh clients that wanted to sign with RSA and SHA-1, which is refused",
            &stats.sha1_refused,
        ),
        ("sallyport_edge_ssh_logins_timed_out", "Ssh clients that did not log in in time", &stats.logins_timed_out),
        (
            "sallyport_edge_ssh_logins_pushed_out",
            "Ssh clients that were dropped before their login, for newer ones",
            &stats.logins_pushed_out,
        ),
        ("sallyport_edge_ssh_forwards", "Forwards that were granted to ssh clients", &stats.forwards),
        ("sallyport_edge_ssh_forwards_refused", "Forwards that were refused", &stats.forwards_refused),
        ("sallyport_edge_ssh_streams", "Streams that were opened through ssh clients", &stats.streams),
        (
            "sallyport_edge_ssh_streams_refused",
            "Streams whose ssh client did not reach its origin",
            &stats.streams_refused,
        ),
        (
            "sallyport_edge_ssh_streams_failed",
            "Streams through ssh clients that failed for another reason",
            &stats.streams_failed,
        ),
        ("sallyport_edge_ssh_clients_lost", "Ssh clients that stopped answering", &stats.clients_lost),
        ("sallyport_edge_ssh_sent_bytes", "Bytes sent to origins behind ssh clients", &stats.bytes_to_clients),
        (
            "sallyport_edge_ssh_received_bytes",
            "Bytes received from origins behind ssh clients",
            &stats.bytes_from_clients,
        ),
    ]
}

fn gauges(stats: &SshStats) -> [Row<'_>; 4] {
    [
        ("sallyport_edge_ssh_connections_open", "Connections of ssh clients that are open", &stats.connections_open),
        ("sallyport_edge_ssh_logins_pending", "Ssh clients that have not logged in", &stats.logins_pending),
        ("sallyport_edge_ssh_forwards_open", "Forwards of ssh clients that are in use", &stats.forwards_open),
        ("sallyport_edge_ssh_streams_open", "Streams through ssh clients that are open", &stats.streams_open),
    ]
}
