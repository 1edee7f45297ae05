//! Plans of steering: which edge sends how much to which origin of a socket.

use std::collections::BTreeMap;

use sallyport_model::{EdgeName, RegionName, SocketId};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;

/// The plan of a socket. `GET /v1/sockets/{id}/plan`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SocketPlan {
    /// The socket.
    #[schema(value_type = uuid::Uuid)]
    pub socket_id: SocketId,
    /// Whether this is only what a plan would be, with other numbers.
    pub is_preview: bool,
    /// The plan in words.
    pub words: Vec<String>,
    /// The origins with what they can carry and get.
    pub origins: Vec<PlannedOrigin>,
    /// The edges with what comes in there, and where they send it.
    pub edges: Vec<PlannedEdge>,
    /// The last hour, a sample every five seconds, oldest first; only if asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<PlanSample>,
}

/// An origin in a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PlannedOrigin {
    /// The id of the tunnel, or `direct:` and the id of the direct origin.
    #[schema(example = "0b7e3c1a-5f0e-4c57-9f63-6a1f0f9e2d11")]
    pub origin: String,
    /// The name of the tunnel or of its machine, or the address of the direct origin.
    #[schema(example = "web-1")]
    pub name: String,
    /// The region of the origin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "eu")]
    pub region: Option<RegionName>,
    /// The most requests per second; absent: any number, or not learned yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 200.0)]
    pub max_rps: Option<f64>,
    /// Whether this number is learned.
    pub is_learned: bool,
    /// The most requests at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_connections: Option<u32>,
    /// The name of the capacity that the origin shares with others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<String>,
    /// The planned requests per second.
    pub planned_rps: f64,
    /// The requests per second that it gets.
    pub rps: f64,
    /// The requests that run.
    pub open: u32,
    /// The mean time to an answer, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<f64>,
}

/// An edge in a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PlannedEdge {
    /// The edge.
    #[schema(value_type = String, example = "ams-1")]
    pub edge: EdgeName,
    /// The region of the edge.
    #[schema(value_type = String, example = "eu")]
    pub region: RegionName,
    /// Whether control hears the edge.
    pub is_heard: bool,
    /// The requests per second that come in.
    pub rps: f64,
    /// The requests per second that are refused, because no origin has room.
    pub refused_rps: f64,
    /// Where the requests go.
    pub shares: Vec<PlannedShare>,
}

/// What an edge sends to one origin.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PlannedShare {
    /// The origin.
    pub origin: String,
    /// The planned requests per second.
    pub planned_rps: f64,
    /// The requests per second that it sends.
    pub rps: f64,
    /// The most requests per second that it may send now; absent: any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_rps: Option<f64>,
    /// The shortest recent round trip, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trip_ms: Option<f64>,
}

/// The plan at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PlanSample {
    /// The moment.
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
    /// The requests per second that came in.
    pub rps: f64,
    /// The requests per second that were refused.
    pub refused_rps: f64,
    /// The origins.
    pub origins: Vec<PlanSampleOrigin>,
}

/// An origin at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PlanSampleOrigin {
    /// The origin.
    pub origin: String,
    /// The most requests per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_rps: Option<f64>,
    /// The planned requests per second.
    pub planned_rps: f64,
    /// The requests per second that it got.
    pub rps: f64,
    /// The mean time to an answer, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ms: Option<f64>,
}

/// Other numbers for a plan that is only looked at. `POST /v1/sockets/{id}/plan`
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PreviewPlan {
    /// The requests per second that come in at edges, by their names; for other edges the measured ones.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = std::collections::BTreeMap<String, f64>)]
    pub demand: BTreeMap<EdgeName, f64>,
    /// The most requests per second of origins, by their ids as in the plan; `null`: any number.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = std::collections::BTreeMap<String, Option<f64>>)]
    pub max_rps: BTreeMap<String, Option<f64>>,
}
