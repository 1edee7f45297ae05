//! Counters of a socket, over all edges.

use std::collections::BTreeMap;

use sallyport_model::{DirectOriginId, EdgeName, RegionName, SocketId, TunnelId};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;

use crate::SilentEdge;

/// Durations in milliseconds, exact to a fifth, and never outside the shortest and the longest.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Quantiles {
    /// The median.
    #[schema(example = 4.2)]
    pub p50_ms: f64,
    /// The 99th percentile.
    #[schema(example = 61.0)]
    pub p99_ms: f64,
}

/// The counters of a socket. `GET /v1/sockets/{id}/stats`
///
/// Each edge counts for itself from its start, and loses the counters at its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SocketStats {
    /// The socket.
    #[schema(value_type = uuid::Uuid)]
    pub socket: SocketId,
    /// The label of its DNS name.
    #[schema(example = "calm-bay-1000")]
    pub socket_name: String,
    /// The type of the socket.
    #[schema(example = "http")]
    pub transport: String,
    /// All edges together.
    #[serde(flatten)]
    pub total: Counts,
    /// Each edge that counted something, by name.
    pub edges: Vec<EdgeCounts>,
    /// What the edges of each region counted together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub regions: Vec<RegionCounts>,
    /// What each origin took, the busiest first, at most 100 of them; removed origins included.
    pub origins: Vec<OriginCounts>,
    /// Edges that did not respond, so that their counts are missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub silent: Vec<SilentEdge>,
}

/// What was counted.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
pub struct Counts {
    /// The beginning of the count; of several edges, that of the first.
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub since: Option<OffsetDateTime>,
    /// HTTP requests by class of status: `2xx`, `4xx` ...
    pub requests: BTreeMap<String, u64>,
    /// Connections and flows of datagrams that ended, by verdict.
    pub flows: BTreeMap<String, u64>,
    /// HTTP requests that an edge answered with an error of its own, by reason.
    pub refusals: BTreeMap<String, u64>,
    /// Bytes from clients.
    pub bytes_in: u64,
    /// Bytes to clients.
    pub bytes_out: u64,
    /// How many requests and flows run now.
    pub live: u64,
    /// How many requests and flows ended in a second, on average over what was observed of the last minute.
    #[schema(example = 12.5)]
    pub per_second: f64,
    /// The number of requests and flows that ended in the last minute.
    #[serde(default)]
    #[schema(example = 750)]
    pub last_minute: u64,
    /// The seconds of the last minute that the edges observed: fewer than 60 when the edges have just begun.
    #[serde(default)]
    #[schema(example = 60)]
    pub last_minute_seconds: u64,
    /// How long requests and flows took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<Quantiles>,
    /// The time to the first byte of the service's responses, of HTTP requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_byte: Option<Quantiles>,
}

/// What one edge counted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EdgeCounts {
    /// The edge; absent on one machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "eu-1")]
    pub edge: Option<EdgeName>,
    /// The region of the edge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "eu")]
    pub region: Option<RegionName>,
    /// What the edge counted.
    #[serde(flatten)]
    pub counts: Counts,
}

/// What the edges of a region counted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RegionCounts {
    /// The region.
    #[schema(value_type = String, example = "eu")]
    pub region: RegionName,
    /// What the edges of the region counted.
    #[serde(flatten)]
    pub counts: Counts,
}

/// What an origin took from clients of all edges.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OriginCounts {
    /// The tunnel in front of the origin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<uuid::Uuid>)]
    pub tunnel: Option<TunnelId>,
    /// The direct origin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<uuid::Uuid>)]
    pub direct_origin: Option<DirectOriginId>,
    /// The edges that hold the tunnel of the origin now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub edges: Vec<EdgeName>,
    /// The number of requests and flows.
    pub uses: u64,
    /// Bytes from clients.
    pub bytes_in: u64,
    /// Bytes to clients.
    pub bytes_out: u64,
}
