//! Answers of edges, as sent over the bus: running flows, counters, ended flows, tunnels and the state of the process.

use std::{collections::BTreeMap, net::SocketAddr, sync::atomic::Ordering, time::UNIX_EPOCH};

use sallyport_model::{DirectOriginId, LinkReport, SocketId, SocketName, SocketType, SpanBounds, SpanCounts, TunnelId};
use serde::{Deserialize, Serialize};

use crate::LiveFlow;

/// Running flows of one edge.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FlowList {
    /// Sorted by id.
    pub flows: Vec<FlowSeen>,
    /// Whether there are more flows after the last one.
    pub has_more: bool,
}

/// A running flow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowSeen {
    /// Its id.
    pub id: String,
    /// The socket.
    pub socket: SocketId,
    /// The DNS label of the socket.
    pub socket_name: SocketName,
    /// The type of the socket.
    pub transport: SocketType,
    /// The tunnel that serves the flow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tunnel: Option<TunnelId>,
    /// The direct origin that serves the flow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direct_origin: Option<DirectOriginId>,
    /// The identity of the client, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// The client's address.
    pub client: SocketAddr,
    /// Start in milliseconds since 1970 (UTC), by the edge's clock.
    pub began_ms: i64,
    /// Bytes in both directions so far.
    pub bytes: u64,
}

impl From<&LiveFlow> for FlowSeen {
    fn from(flow: &LiveFlow) -> Self {
        let way = flow.way();
        let began = flow.began.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            id: flow.id.clone(),
            socket: flow.socket,
            socket_name: flow.socket_name.clone(),
            transport: flow.transport,
            tunnel: way.tunnel,
            direct_origin: way.direct_origin,
            identity: way.identity,
            client: flow.client,
            began_ms: i64::try_from(began.as_millis()).unwrap_or(i64::MAX),
            bytes: flow.bytes.load(Ordering::Relaxed),
        }
    }
}

/// The counters of one socket at one edge.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SocketUse {
    /// Start of counting in milliseconds since 1970 (UTC), by the edge's clock.
    pub since_ms: i64,
    /// Requests by status class.
    #[serde(default)]
    pub requests: BTreeMap<String, u64>,
    /// Ended connections and flows of datagrams, by verdict.
    #[serde(default)]
    pub flows: BTreeMap<String, u64>,
    /// Requests that the edge answered with an error, by reason.
    #[serde(default)]
    pub refusals: BTreeMap<String, u64>,
    /// Bytes from clients.
    pub bytes_in: u64,
    /// Bytes to clients.
    pub bytes_out: u64,
    /// Running requests and flows.
    pub live: u64,
    /// Requests and flows that ended in the last minute.
    pub last_minute: u64,
    /// Seconds that `last_minute` covers; less than 60 after a start.
    pub minute_seconds: u64,
    /// Durations of requests and flows.
    #[serde(default)]
    pub durations: SpanCounts,
    /// The shortest and the longest duration; `None` from an edge that does not report bounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_bounds: Option<SpanBounds>,
    /// Times to the first byte of responses.
    #[serde(default)]
    pub first_bytes: SpanCounts,
    /// The shortest and the longest time to the first byte.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_byte_bounds: Option<SpanBounds>,
    /// Counters by origin.
    #[serde(default)]
    pub origins: Vec<OriginUse>,
}

/// The counters of one origin at one edge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OriginUse {
    /// The tunnel of the origin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tunnel: Option<TunnelId>,
    /// The direct origin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direct_origin: Option<DirectOriginId>,
    /// Number of requests and flows.
    pub uses: u64,
    /// Bytes from clients.
    pub bytes_in: u64,
    /// Bytes to clients.
    pub bytes_out: u64,
}

/// Recently ended flows and requests of one edge.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct EndedList {
    /// In the order in which they ended.
    pub entries: Vec<EndedFlow>,
}

/// An ended flow or request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedFlow {
    /// Sequence number at the edge. Later entries have greater numbers, also after a restart of the edge.
    pub number: u64,
    /// Its id.
    pub id: String,
    /// The socket.
    pub socket: SocketId,
    /// The DNS label of the socket.
    pub socket_name: SocketName,
    /// The type of the socket.
    pub transport: SocketType,
    /// The tunnel that served the flow, or was tried last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tunnel: Option<TunnelId>,
    /// The direct origin that served the flow, or was tried last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direct_origin: Option<DirectOriginId>,
    /// The identity of the client, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// The access rule that decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The client's address.
    pub client: SocketAddr,
    /// End in milliseconds since 1970 (UTC), by the edge's clock.
    pub ended_ms: i64,
    /// Duration in microseconds.
    pub duration_us: u64,
    /// Time to the first byte of the response, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_byte_us: Option<u64>,
    /// Bytes from the client.
    pub bytes_in: u64,
    /// Bytes to the client.
    pub bytes_out: u64,
    /// The verdict: how the flow ended, or why it was refused.
    pub verdict: String,
    /// Fields of an HTTP request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<EndedHttp>,
    /// Number of entries left out before this one.
    #[serde(default)]
    pub omitted_before: u32,
}

/// Fields of an ended HTTP request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedHttp {
    /// The method.
    pub method: String,
    /// The path, without the query.
    pub path: String,
    /// The status of the response.
    pub status: u16,
}

/// The state of a socket's tunnel at an edge that holds the tunnel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunnelFigures {
    /// The tunnel.
    pub tunnel: TunnelId,
    /// The result of the origin's health checks, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_well: Option<bool>,
    /// Round-trip time to the connector in microseconds, once measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_us: Option<u64>,
    /// Running requests and flows.
    pub live: u64,
    /// The links of the connector, as it reports them; absent from older edges and connectors.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<LinkReport>,
}

/// Figures of an edge process.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct EdgeFigures {
    /// Number of served sockets.
    pub sockets: u64,
    /// Running connections, flows of datagrams and WebSockets.
    pub flows: u64,
    /// Open client connections.
    pub connections: u64,
    /// Memory of the process in bytes, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// CPU time of the process since its start in milliseconds, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_ms: Option<u64>,
}

/// The ways that one edge measures.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct WayList {
    /// First those that the edge was told, then those to edges, then those to origins.
    pub ways: Vec<WayFigures>,
    /// What the edge cannot measure, and why.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Whether there are more ways after the last one.
    #[serde(default)]
    pub has_more: bool,
}

/// The figures of one way. Times are in microseconds.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct WayFigures {
    /// The name of an edge, the address of a direct origin, SOCKET/ID of a tunnel, or the host that the edge was told.
    pub to: String,
    /// The kind of the target.
    pub kind: WayKind,
    /// How the way is measured.
    pub by: WayMethod,
    /// The address that was measured last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Number of probes since the edge measures this way.
    pub sent: u64,
    /// Number of probes without an answer.
    pub lost: u64,
    /// Number of the recent probes, of which the following figures are.
    pub recent: u64,
    /// Number of the recent probes without an answer.
    pub recent_lost: u64,
    /// The last round trip.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_us: Option<u64>,
    /// The shortest recent round trip.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_us: Option<u64>,
    /// The median of the recent round trips.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub median_us: Option<u64>,
    /// The longest recent round trip.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_us: Option<u64>,
    /// The shortest round trip of the last five minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor_us: Option<u64>,
    /// Why the last probe had no answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// The kind of a way's target. The order is that of lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WayKind {
    /// A host that the edge was told.
    #[default]
    Host,
    /// Another edge.
    Edge,
    /// An origin.
    Origin,
}

/// How a way is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WayMethod {
    /// By ICMP echo.
    #[default]
    Icmp,
    /// By TCP connects.
    Tcp,
    /// By a link or a tunnel that is open.
    Link,
}

/// How the clients of an edge are put together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClientsBy {
    /// By network: 24 bits of IPv4 addresses, 48 bits of IPv6 addresses.
    #[default]
    Prefix,
    /// By autonomous system.
    System,
}

/// Where the clients of one edge come from.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ClientList {
    /// Those with the most connections first.
    pub clients: Vec<ClientFigures>,
    /// Whether there are more after the last one.
    #[serde(default)]
    pub has_more: bool,
}

/// The clients of one network or autonomous system.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ClientFigures {
    /// The network; `None` for a system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// The number of the autonomous system, if the edge knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<u32>,
    /// The country, if the edge knows it, and if all networks of a system are in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub country: Option<String>,
    /// Number of networks.
    pub networks: u64,
    /// Number of ended connections.
    pub connections: u64,
    /// The shortest round trip of the last ten minutes, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_us: Option<u64>,
    /// The end of the last connection, in milliseconds since 1970 (UTC), by the edge's clock.
    pub seen_ms: i64,
}
