//! The metrics of a replica.

use std::sync::atomic::AtomicI64;

use prometheus_client::{
    encoding::text::encode,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Outcome {
    /// As asked.
    Ok,
    /// Refused: the request must change.
    Refused,
    /// Failed: the same request is tried again.
    Failed,
}

impl Outcome {
    fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }
}

/// What a write of the leader changed at the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Change {
    /// A socket was created.
    CreateSocket,
    /// A socket was changed.
    UpdateSocket,
    /// A socket was deleted.
    DeleteSocket,
    /// A tunnel was created or got a new credential.
    CreateTunnel,
    /// A tunnel was deleted.
    DeleteTunnel,
    /// A list was read.
    List,
}

impl Change {
    fn as_str(self) -> &'static str {
        match self {
            Self::CreateSocket => "create_socket",
            Self::UpdateSocket => "update_socket",
            Self::DeleteSocket => "delete_socket",
            Self::CreateTunnel => "create_tunnel",
            Self::DeleteTunnel => "delete_tunnel",
            Self::List => "list",
        }
    }
}

/// A write to the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ClusterWrite {
    /// The status of an object.
    Status,
    /// A finalizer.
    Finalizer,
    /// An Event.
    Event,
}

impl ClusterWrite {
    fn as_str(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Finalizer => "finalizer",
            Self::Event => "event",
        }
    }
}

/// The labels of a counter: what was done, and how it ended.
type Labels = [(&'static str, &'static str); 2];

/// The metrics.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    pub(crate) leader: Gauge<i64, AtomicI64>,
    pub(crate) exposures: Gauge<i64, AtomicI64>,
    pub(crate) refusals: Gauge<i64, AtomicI64>,
    pub(crate) tunnels: Gauge<i64, AtomicI64>,
    pub(crate) tunnels_up: Gauge<i64, AtomicI64>,
    pub(crate) endpoints: Gauge<i64, AtomicI64>,
    pub(crate) api_usable: Gauge<i64, AtomicI64>,
    calls: Family<Labels, Counter>,
    writes: Family<Labels, Counter>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("sallyport_kube");
        let mut gauge = |name: &str, help: &str| {
            let gauge = Gauge::<i64, AtomicI64>::default();
            registry.register(name, help, gauge.clone());
            gauge
        };
        let leader = gauge("leader", "Whether this replica leads");
        let exposures = gauge("exposures", "Ports that the cluster exposes");
        let refusals = gauge("refusals", "Things that the cluster asks for and that are refused");
        let tunnels = gauge("tunnels", "Tunnels that this replica holds or wants to hold");
        let tunnels_up = gauge("tunnels_up", "Tunnels of this replica that an edge has attached");
        let endpoints = gauge("endpoints", "Addresses of pods behind the tunnels");
        let api_usable = gauge("api_usable", "Whether the API of Sallyport answers and takes the token");
        let (calls, writes) = (Family::<Labels, Counter>::default(), Family::<Labels, Counter>::default());
        registry.register("api_calls", "Calls of the API of Sallyport", calls.clone());
        registry.register(
            "cluster_writes",
            "Writes to the API server of the cluster, without the lease",
            writes.clone(),
        );
        Self { registry, leader, exposures, refusals, tunnels, tunnels_up, endpoints, api_usable, calls, writes }
    }
}

impl Metrics {
    /// Counts a call of the API.
    pub(crate) fn called(&self, call: Change, outcome: Outcome) {
        self.calls.get_or_create(&[("call", call.as_str()), ("outcome", outcome.as_str())]).inc();
    }

    /// Counts a write to the cluster.
    pub(crate) fn wrote(&self, write: ClusterWrite, outcome: Outcome) {
        self.writes.get_or_create(&[("write", write.as_str()), ("outcome", outcome.as_str())]).inc();
    }

    /// All metrics in the format of Prometheus.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        // Writing into a text cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}
