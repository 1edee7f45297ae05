//! What edges answer: flows, counts and how they are, as they travel.

use std::{collections::BTreeMap, net::SocketAddr, sync::atomic::Ordering, time::UNIX_EPOCH};

use sallyport_model::{DirectOriginId, SocketId, SocketName, SocketType, SpanBounds, SpanCounts, TunnelId};
use serde::{Deserialize, Serialize};

use crate::LiveFlow;

/// Flows that run at one edge.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FlowList {
    /// In the order of their ids.
    pub flows: Vec<FlowSeen>,
    /// Whether there are more behind the last one.
    pub has_more: bool,
}

/// A flow that runs, as it travels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowSeen {
    /// Its id.
    pub id: String,
    /// The socket.
    pub socket: SocketId,
    /// The label of its name.
    pub socket_name: SocketName,
    /// The type of the socket.
    pub transport: SocketType,
    /// The tunnel that took it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tunnel: Option<TunnelId>,
    /// Which of the origins that edges dial themselves took it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direct_origin: Option<DirectOriginId>,
    /// Who it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// Where it comes from.
    pub client: SocketAddr,
    /// When it began, in milliseconds since 1970 (UTC), by the edge's clock.
    pub began_ms: i64,
    /// How many bytes went either way so far.
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

/// What one edge has counted of a socket.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SocketUse {
    /// Since when, in milliseconds since 1970 (UTC), by the edge's clock.
    pub since_ms: i64,
    /// Requests by class of status.
    #[serde(default)]
    pub requests: BTreeMap<String, u64>,
    /// Connections and flows of datagrams that ended, by how.
    #[serde(default)]
    pub flows: BTreeMap<String, u64>,
    /// Requests that the edge answered with an error, by reason.
    #[serde(default)]
    pub refusals: BTreeMap<String, u64>,
    /// Bytes from clients.
    pub bytes_in: u64,
    /// Bytes to clients.
    pub bytes_out: u64,
    /// How many requests and flows run now.
    pub live: u64,
    /// How many ended in the last minute.
    pub last_minute: u64,
    /// How many seconds of it there were.
    pub minute_seconds: u64,
    /// How long requests and flows took.
    #[serde(default)]
    pub durations: SpanCounts,
    /// The shortest and the longest of them; nothing from an edge that does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_bounds: Option<SpanBounds>,
    /// How long the first byte of answers took.
    #[serde(default)]
    pub first_bytes: SpanCounts,
    /// The shortest and the longest of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_byte_bounds: Option<SpanBounds>,
    /// What each origin took.
    #[serde(default)]
    pub origins: Vec<OriginUse>,
}

/// What an origin took at one edge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OriginUse {
    /// The tunnel that it is behind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tunnel: Option<TunnelId>,
    /// Which of those that edges dial themselves it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direct_origin: Option<DirectOriginId>,
    /// How many requests and flows.
    pub uses: u64,
    /// Bytes from clients.
    pub bytes_in: u64,
    /// Bytes to clients.
    pub bytes_out: u64,
}

/// Flows and requests that ended lately at one edge.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct EndedList {
    /// In the order in which they ended.
    pub entries: Vec<EndedFlow>,
}

/// A flow or request that has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedFlow {
    /// Its place among all that ended at its edge; later ones have greater numbers, those of later lives of the edge too.
    pub number: u64,
    /// Its id.
    pub id: String,
    /// The socket.
    pub socket: SocketId,
    /// The label of its name.
    pub socket_name: SocketName,
    /// The type of the socket.
    pub transport: SocketType,
    /// The tunnel that took it, or was asked last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tunnel: Option<TunnelId>,
    /// Which of the origins that edges dial themselves took it, or was asked last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direct_origin: Option<DirectOriginId>,
    /// Who it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// The rule that decided whether they may come in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Where it came from.
    pub client: SocketAddr,
    /// When it ended, in milliseconds since 1970 (UTC), by the edge's clock.
    pub ended_ms: i64,
    /// How long it took, in microseconds.
    pub duration_us: u64,
    /// How long the first byte of its answer took, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_byte_us: Option<u64>,
    /// Bytes from the client.
    pub bytes_in: u64,
    /// Bytes to the client.
    pub bytes_out: u64,
    /// How it ended, or why it was refused.
    pub verdict: String,
    /// What there is of a request besides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<EndedHttp>,
    /// How many before this one were left out.
    #[serde(default)]
    pub omitted_before: u32,
}

/// What there is of an HTTP request besides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedHttp {
    /// The method.
    pub method: String,
    /// The path, without the query.
    pub path: String,
    /// The status of the answer.
    pub status: u16,
}

/// How the tunnel of a socket is, at an edge that holds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldTunnel {
    /// The tunnel.
    pub tunnel: TunnelId,
    /// Whether its origin is well by its health checks, where there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_well: Option<bool>,
    /// The round trip to its connector in microseconds, once it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_us: Option<u64>,
    /// How many requests and flows it carries now.
    pub live: u64,
}

/// How an edge is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct EdgeFigures {
    /// How many sockets it serves.
    pub sockets: u64,
    /// How many connections, flows of datagrams and WebSockets run.
    pub flows: u64,
    /// How many connections of clients are open.
    pub connections: u64,
    /// The memory of its process in bytes, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// The processor time that its process has used since it began, in milliseconds, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_ms: Option<u64>,
}
