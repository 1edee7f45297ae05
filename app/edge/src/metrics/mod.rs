//! The counters of the edge, for Prometheus and for `socket stats`.
//!
//! May use `lifecycle`.

pub(crate) mod exposition;
pub(crate) mod quic;
pub(crate) mod recent;
pub(crate) mod socket_counts;
pub(crate) mod verdict;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Instant,
};

use parking_lot::Mutex;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::{Registry, Unit},
};
use sallyport_http2::Fault;

use crate::metrics::{
    recent::{Ended, EndedShared},
    socket_counts::SocketCounts,
};

/// How many sockets have labels of their own; all others count as `other`.
const MAX_LABELLED_SOCKETS: usize = 1_000;
/// The upper bounds of the duration histogram, in seconds.
const DURATION_BOUNDS_S: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];
/// The labels for status classes 1 to 5.
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SocketLabel {
    socket: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatusLabel {
    socket: String,
    status: &'static str,
}

/// The label of counters by reason.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ReasonLabel {
    /// The reason.
    pub(crate) reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodeLabel {
    code: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FlowLabel {
    transport: &'static str,
    verdict: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CarrierLabel {
    transport: &'static str,
    kind: &'static str,
}

/// All counters; clones count together.
#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    shared: Arc<Counters>,
}

#[derive(Debug)]
struct Counters {
    requests: Family<StatusLabel, Counter>,
    seconds: Family<SocketLabel, Histogram, fn() -> Histogram>,
    bytes_in: Family<SocketLabel, Counter>,
    bytes_out: Family<SocketLabel, Counter>,
    refusals: Family<ReasonLabel, Counter>,
    handshakes_failed: Family<ReasonLabel, Counter>,
    http2_connections_failed: Family<CodeLabel, Counter>,
    http2_streams_reset: Family<CodeLabel, Counter>,
    http3_connections_failed: Family<CodeLabel, Counter>,
    http3_requests_reset: Family<CodeLabel, Counter>,
    identity: Family<OutcomeLabel, Counter>,
    tunnels_asked: Family<OutcomeLabel, Counter>,
    flows: Family<FlowLabel, Counter>,
    carriers: Family<CarrierLabel, Counter>,
    retries: Counter,
    datagrams_in: Counter,
    datagrams_out: Counter,
    datagrams_dropped: Family<ReasonLabel, Counter>,
    /// The state that the rings of recent flows share.
    ended: Arc<EndedShared>,
    /// When counting began.
    began: Instant,
    /// The sockets with labels of their own, and how many [`SocketMetrics`] each has.
    labelled: Mutex<HashMap<String, usize>>,
}

/// The metrics of one socket, looked up once. The drop of the last one frees the socket's labels.
#[derive(Debug)]
pub(crate) struct SocketMetrics {
    /// The socket's name in labels, if the socket has its own.
    own: Option<(Metrics, String)>,
    /// The counters on the page of metrics.
    exported: SocketCounters,
    /// The socket's own counters, if its labels are shared with others.
    alone: Option<SocketCounters>,
    /// Counters for `socket stats` alone.
    pub(crate) counts: SocketCounts,
    /// The requests and flows that ended lately.
    pub(crate) ended: Ended,
}

/// The counters of a socket in the metrics.
#[derive(Debug)]
struct SocketCounters {
    requests: [Counter; 5],
    seconds: Histogram,
    bytes_in: Counter,
    bytes_out: Counter,
}

impl Metrics {
    /// Counters at zero.
    pub(crate) fn new() -> Self {
        let shared = Counters {
            requests: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(DURATION_BOUNDS_S)),
            bytes_in: Family::default(),
            bytes_out: Family::default(),
            refusals: Family::default(),
            handshakes_failed: Family::default(),
            http2_connections_failed: Family::default(),
            http2_streams_reset: Family::default(),
            http3_connections_failed: Family::default(),
            http3_requests_reset: Family::default(),
            identity: Family::default(),
            tunnels_asked: Family::default(),
            flows: Family::default(),
            carriers: Family::default(),
            retries: Counter::default(),
            datagrams_in: Counter::default(),
            datagrams_out: Counter::default(),
            datagrams_dropped: Family::default(),
            ended: EndedShared::new(),
            began: Instant::now(),
            labelled: Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// The metrics of the socket with this name; those of `other` if too many sockets have their own.
    pub(crate) fn of_socket(&self, name: &str) -> Arc<SocketMetrics> {
        let mut labelled = self.shared.labelled.lock();
        if !labelled.contains_key(name) && labelled.len() >= MAX_LABELLED_SOCKETS {
            return self.of_label("other", None);
        }
        *labelled.entry(name.to_owned()).or_default() += 1;
        self.of_label(name, Some((self.clone(), name.to_owned())))
    }

    /// The metrics of requests without a socket: the API, unknown names.
    pub(crate) fn of_no_socket(&self) -> Arc<SocketMetrics> {
        self.of_label("none", None)
    }

    fn of_label(&self, socket: &str, own: Option<(Self, String)>) -> Arc<SocketMetrics> {
        let label = SocketLabel { socket: socket.to_owned() };
        let exported = SocketCounters {
            requests: CLASSES.map(|status| {
                self.shared.requests.get_or_create(&StatusLabel { socket: socket.to_owned(), status }).clone()
            }),
            seconds: self.shared.seconds.get_or_create(&label).clone(),
            bytes_in: self.shared.bytes_in.get_or_create(&label).clone(),
            bytes_out: self.shared.bytes_out.get_or_create(&label).clone(),
        };
        let alone = own.is_none().then(SocketCounters::new);
        let now = Instant::now();
        let (counts, ended) = (SocketCounts::new(now, self.shared.began), Ended::new(self.shared.ended.clone(), now));
        Arc::new(SocketMetrics { own, exported, alone, counts, ended })
    }

    /// Drops one [`SocketMetrics`] of this socket.
    fn give_back(&self, name: &str) {
        let mut labelled = self.shared.labelled.lock();
        let Some(count) = labelled.get_mut(name) else { return };
        *count -= 1;
        if *count > 0 {
            return;
        }
        labelled.remove(name);
        let label = SocketLabel { socket: name.to_owned() };
        for status in CLASSES {
            self.shared.requests.remove(&StatusLabel { socket: name.to_owned(), status });
        }
        self.shared.seconds.remove(&label);
        self.shared.bytes_in.remove(&label);
        self.shared.bytes_out.remove(&label);
    }

    /// Counts an error response of the edge, for this reason.
    pub(crate) fn refused(&self, reason: &'static str) {
        self.shared.refusals.get_or_create(&ReasonLabel { reason }).inc();
    }

    /// Counts a handshake that failed for this reason.
    pub(crate) fn handshake_failed(&self, reason: &'static str) {
        self.shared.handshakes_failed.get_or_create(&ReasonLabel { reason }).inc();
    }

    /// Counts violations of HTTP/2 or of its bounds by a client.
    pub(crate) fn http2_fault(&self, fault: Fault, times: u32) {
        let (counted, code) = match fault {
            Fault::Connection(code) => (&self.shared.http2_connections_failed, code),
            Fault::Stream(code) => (&self.shared.http2_streams_reset, code),
        };
        counted.get_or_create(&CodeLabel { code: code.name().unwrap_or("other") }).inc_by(times.into());
    }

    /// Counts a violation of HTTP/3 or of its bounds by a client.
    pub(crate) fn http3_fault(&self, fault: sallyport_http3::Fault) {
        let (counted, code) = match fault {
            sallyport_http3::Fault::Connection(code) => (&self.shared.http3_connections_failed, code),
            sallyport_http3::Fault::Stream(code) => (&self.shared.http3_requests_reset, code),
        };
        counted.get_or_create(&CodeLabel { code: code.name().unwrap_or("other") }).inc();
    }

    /// Counts an admission decision at a socket with an identity or policies.
    pub(crate) fn identity(&self, outcome: &'static str) {
        self.shared.identity.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    /// Counts control's answer about a tunnel that this edge did not know.
    pub(crate) fn tunnel_asked(&self, outcome: &'static str) {
        self.shared.tunnels_asked.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    /// Counts a connector's connection of this kind over this transport.
    pub(crate) fn carrier_came(&self, transport: &'static str, kind: &'static str) {
        self.shared.carriers.get_or_create(&CarrierLabel { transport, kind }).inc();
    }

    /// Counts a TCP or TLS connection, or a UDP flow, with this verdict.
    pub(crate) fn flow_ended(&self, transport: &'static str, verdict: &'static str) {
        self.shared.flows.get_or_create(&FlowLabel { transport, verdict }).inc();
    }

    /// Counts a request or flow that is tried on another origin.
    pub(crate) fn retried(&self) {
        self.shared.retries.inc();
    }

    /// Counts datagrams from clients of UDP sockets.
    pub(crate) fn datagrams_in(&self, count: usize) {
        self.shared.datagrams_in.inc_by(count as u64);
    }

    /// Counts datagrams to clients of UDP sockets.
    pub(crate) fn datagrams_out(&self, count: usize) {
        self.shared.datagrams_out.inc_by(count as u64);
    }

    /// Counts datagrams that were dropped here, for this reason.
    pub(crate) fn datagrams_dropped(&self, reason: &'static str, count: usize) {
        self.shared.datagrams_dropped.get_or_create(&ReasonLabel { reason }).inc_by(count as u64);
    }

    /// Registers all metrics.
    pub(crate) fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("sallyport_edge");
        registry.register("requests", "Requests answered, by socket and class of status", self.shared.requests.clone());
        registry.register_with_unit(
            "request_duration",
            "From a request's header section to the end of its response",
            Unit::Seconds,
            self.shared.seconds.clone(),
        );
        registry.register_with_unit(
            "received",
            "Bytes of request bodies from clients",
            Unit::Bytes,
            self.shared.bytes_in.clone(),
        );
        registry.register_with_unit(
            "sent",
            "Bytes of response bodies to clients",
            Unit::Bytes,
            self.shared.bytes_out.clone(),
        );
        registry.register(
            "refusals",
            "Requests that the edge answered with an error, by reason",
            self.shared.refusals.clone(),
        );
        registry.register(
            "handshakes_failed",
            "TLS handshakes that failed, by reason",
            self.shared.handshakes_failed.clone(),
        );
        registry.register(
            "http2_connections_failed",
            "HTTP/2 connections that the edge ended because of the client's frames, by error code",
            self.shared.http2_connections_failed.clone(),
        );
        registry.register(
            "http2_streams_reset",
            "Requests over HTTP/2 that the edge reset because of the client's frames, by error code",
            self.shared.http2_streams_reset.clone(),
        );
        registry.register(
            "http3_connections_failed",
            "HTTP/3 connections that the edge ended because of the client's frames, by error code",
            self.shared.http3_connections_failed.clone(),
        );
        registry.register(
            "http3_requests_reset",
            "Requests over HTTP/3 that the edge reset because of the client's frames, by error code",
            self.shared.http3_requests_reset.clone(),
        );
        registry.register(
            "identity",
            "Decisions about clients of sockets with an identity or policies, by outcome",
            self.shared.identity.clone(),
        );
        registry.register(
            "tunnels_asked",
            "Tunnels of connectors that this edge did not know, by control's answer",
            self.shared.tunnels_asked.clone(),
        );
        registry.register(
            "flows",
            "TCP and TLS connections and UDP flows that ended, by outcome",
            self.shared.flows.clone(),
        );
        registry.register("carriers", "Connections of connectors, by transport and kind", self.shared.carriers.clone());
        registry.register(
            "datagrams_received",
            "Datagrams from clients of UDP sockets",
            self.shared.datagrams_in.clone(),
        );
        registry.register("datagrams_sent", "Datagrams to clients of UDP sockets", self.shared.datagrams_out.clone());
        registry.register(
            "datagrams_dropped",
            "Datagrams of UDP sockets that were dropped at the edge, by reason",
            self.shared.datagrams_dropped.clone(),
        );
        registry.register("retries", "Attempts that were repeated on another origin", self.shared.retries.clone());
    }
}

impl SocketCounters {
    /// The metrics of one socket without labels.
    fn new() -> Self {
        let (bytes_in, bytes_out) = (Counter::default(), Counter::default());
        Self {
            requests: CLASSES.map(|_| Counter::default()),
            seconds: Histogram::new(DURATION_BOUNDS_S),
            bytes_in,
            bytes_out,
        }
    }

    fn count(&self, status: u16, seconds: f64) {
        if let Some(counter) = self.requests.get(usize::from(status / 100).wrapping_sub(1)) {
            counter.inc();
        }
        self.seconds.observe(seconds);
    }

    fn carried(&self, bytes_in: u64, bytes_out: u64) {
        self.bytes_in.inc_by(bytes_in);
        self.bytes_out.inc_by(bytes_out);
    }
}

impl SocketMetrics {
    /// Counts a request at its end.
    pub(crate) fn count(&self, status: u16, seconds: f64, bytes_in: u64, bytes_out: u64) {
        self.exported.count(status, seconds);
        if let Some(alone) = &self.alone {
            alone.count(status, seconds);
        }
        self.carried(bytes_in, bytes_out);
    }

    /// Counts bytes from and to clients.
    pub(crate) fn carried(&self, bytes_in: u64, bytes_out: u64) {
        self.exported.carried(bytes_in, bytes_out);
        if let Some(alone) = &self.alone {
            alone.carried(bytes_in, bytes_out);
        }
    }

    /// The socket's own requests by class of status, and the bytes from and to its clients.
    pub(crate) fn read(&self) -> (BTreeMap<String, u64>, (u64, u64)) {
        let counters = self.alone.as_ref().unwrap_or(&self.exported);
        let requests = CLASSES.iter().zip(&counters.requests).map(|(class, count)| ((*class).to_owned(), count.get()));
        let requests = requests.filter(|(_, count)| *count > 0).collect();
        (requests, (counters.bytes_in.get(), counters.bytes_out.get()))
    }
}

impl Drop for SocketMetrics {
    fn drop(&mut self) {
        if let Some((metrics, name)) = self.own.take() {
            metrics.give_back(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_past_the_bound_share_one_label() {
        let metrics = Metrics::new();
        let sockets: Vec<_> =
            (0..MAX_LABELLED_SOCKETS + 5).map(|number| metrics.of_socket(&format!("calm-bay-{number}"))).collect();
        sockets.iter().for_each(|socket| socket.count(200, 0.002, 1, 2));
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        assert!(text.contains("sallyport_edge_requests_total{socket=\"calm-bay-0\",status=\"2xx\"} 1"), "{text}");
        assert!(text.contains("sallyport_edge_requests_total{socket=\"other\",status=\"2xx\"} 5"));
        assert!(text.contains("sallyport_edge_sent_bytes_total{socket=\"other\"} 10"));
        assert!(text.contains("sallyport_edge_request_duration_seconds_bucket{le=\"0.0025\",socket=\"other\"} 5"));
        assert!(!text.contains("calm-bay-1001\""));
    }

    #[test]
    fn a_socket_that_is_gone_gives_its_labels_back() {
        let metrics = Metrics::new();
        for number in 0..MAX_LABELLED_SOCKETS + 5 {
            metrics.of_socket(&format!("calm-bay-{number}")).count(200, 0.002, 1, 2);
        }
        let (first, again) = (metrics.of_socket("late-bay"), metrics.of_socket("late-bay"));
        drop(first);
        again.count(200, 0.002, 1, 2);
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        assert!(text.contains("sallyport_edge_requests_total{socket=\"late-bay\",status=\"2xx\"} 1"), "{text}");
        assert!(!text.contains("calm-bay") && !text.contains("socket=\"other\""), "{text}");
    }
}
