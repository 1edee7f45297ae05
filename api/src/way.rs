//! The ways that edges measure.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::SilentEdge;

/// The kind of a way's target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WayKind {
    /// A host that the edge was told.
    Host,
    /// Another edge.
    Edge,
    /// An origin: a direct one, or the connector of a tunnel.
    Origin,
}

/// How a way is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WayMethod {
    /// By ICMP echo requests.
    Icmp,
    /// By TCP connects; a refusal is an answer.
    Tcp,
    /// By a link between edges or a tunnel that is open.
    Link,
}

/// A way that an edge measures. Times are in milliseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Way {
    /// The name of the edge that measures; `edge` on one machine.
    #[schema(example = "eu-1")]
    pub from: String,
    /// The name of an edge, the address of a direct origin, SOCKET/TUNNEL of a tunnel, or the host that the edge was
    /// told.
    #[schema(example = "us-1")]
    pub to: String,
    /// The kind of the target.
    pub kind: WayKind,
    /// How the way is measured.
    pub by: WayMethod,
    /// The address that answered last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "192.0.2.1:443")]
    pub address: Option<String>,
    /// How many probes the edge has sent.
    pub sent: u64,
    /// How many of them had no answer.
    pub lost: u64,
    /// How many probes `recent_lost`, `min_ms`, `median_ms` and `max_ms` are of: the last 60 at most.
    pub recent: u64,
    /// How many of the recent probes had no answer.
    pub recent_lost: u64,
    /// The last round trip.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_ms: Option<f64>,
    /// The shortest recent round trip.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_ms: Option<f64>,
    /// The median of the recent round trips.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub median_ms: Option<f64>,
    /// The longest recent round trip.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_ms: Option<f64>,
    /// The shortest round trip of the last five minutes, by which steering counts the cost of a direct origin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor_ms: Option<f64>,
    /// Why the last probe had no answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// What an edge cannot measure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WayNote {
    /// The name of the edge; `edge` on one machine.
    #[schema(example = "eu-1")]
    pub edge: String,
    /// The reason.
    pub why: String,
}

/// The ways that edges measure. `GET /v1/edges/ways`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WayPage {
    /// The ways, by edge; told hosts come first, then edges, then origins.
    pub items: Vec<Way>,
    /// What edges cannot measure, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<WayNote>,
    /// The edges that have more ways than fit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cut: Vec<String>,
    /// The edges whose ways are missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub silent: Vec<SilentEdge>,
}

/// Which edges are asked.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EdgeQuery {
    /// The name or the id of one edge; `edge` on one machine. All edges when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(example = "eu-1")]
    pub edge: Option<String>,
}

/// Has edges measure the way to a host. `POST /v1/edges/ways`
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MeasureWay {
    /// The host by name or address, for echo requests; `HOST:PORT` or `[ADDRESS]:PORT` for TCP connects. Edges resolve
    /// names themselves.
    #[schema(example = "example.com:443")]
    pub to: String,
    /// The name or the id of the edge that measures; all edges when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "eu-1")]
    pub edge: Option<String>,
}
