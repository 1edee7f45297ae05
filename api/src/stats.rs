//! What was counted of a socket, over all edges.

use std::collections::BTreeMap;

use sallyport_model::{DirectOriginId, EdgeName, RegionName, SocketId, TunnelId};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;

use crate::SilentEdge;

/// How long something took, in milliseconds. Told to within a fifth, and never shorter than the shortest or longer than the
/// longest.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Quantiles {
    /// Half of them took no longer.
    #[schema(example = 4.2)]
    pub p50_ms: f64,
    /// Ninety-nine of a hundred took no longer.
    #[schema(example = 61.0)]
    pub p99_ms: f64,
}

/// What was counted of a socket. `GET /v1/sockets/{id}/stats`
///
/// Each edge counts by itself, since it began, and forgets with its end.
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
    /// What each origin took, the busiest first, at most 100 of them; those that are gone included.
    pub origins: Vec<OriginCounts>,
    /// Edges that did not answer: what they counted is not in here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub silent: Vec<SilentEdge>,
}

/// What was counted.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
pub struct Counts {
    /// Since when; of several edges, since the first of them.
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub since: Option<OffsetDateTime>,
    /// HTTP requests by class of status: `2xx`, `4xx` ...
    pub requests: BTreeMap<String, u64>,
    /// Connections and flows of datagrams that ended, by how.
    pub flows: BTreeMap<String, u64>,
    /// HTTP requests that an edge answered with an error in the place of the service, by reason.
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
    /// How many ended in it.
    #[serde(default)]
    #[schema(example = 750)]
    pub last_minute: u64,
    /// How many seconds of the last minute were observed: fewer when the edges have just begun.
    #[serde(default)]
    #[schema(example = 60)]
    pub last_minute_seconds: u64,
    /// How long requests and flows took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<Quantiles>,
    /// How long the first byte of the service's answers took, of HTTP requests.
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
    /// The region that it is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "eu")]
    pub region: Option<RegionName>,
    /// What it counted.
    #[serde(flatten)]
    pub counts: Counts,
}

/// What the edges of a region counted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RegionCounts {
    /// The region.
    #[schema(value_type = String, example = "eu")]
    pub region: RegionName,
    /// What they counted together.
    #[serde(flatten)]
    pub counts: Counts,
}

/// What an origin took of clients of all edges.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OriginCounts {
    /// The tunnel that it is behind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<uuid::Uuid>)]
    pub tunnel: Option<TunnelId>,
    /// Which direct origin it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<uuid::Uuid>)]
    pub direct_origin: Option<DirectOriginId>,
    /// The edges that hold its tunnel now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub edges: Vec<EdgeName>,
    /// How many requests and flows.
    pub uses: u64,
    /// Bytes from clients.
    pub bytes_in: u64,
    /// Bytes to clients.
    pub bytes_out: u64,
}
