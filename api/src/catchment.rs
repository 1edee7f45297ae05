//! Where the clients of edges come from.

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::{IntoParams, ToSchema};

use crate::SilentEdge;

/// How clients are put together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ClientsBy {
    /// By network: 24 bits of IPv4 addresses, 48 bits of IPv6 addresses.
    #[default]
    Prefix,
    /// By autonomous system.
    As,
}

/// The clients of one network or autonomous system, at one edge.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ClientGroup {
    /// The network; absent for an autonomous system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "192.0.2.0/24")]
    pub prefix: Option<String>,
    /// The number of the autonomous system; absent if the edge has no database of systems, or does not find it there.
    #[serde(default, rename = "as", skip_serializing_if = "Option::is_none")]
    #[schema(example = 64500)]
    pub system: Option<u32>,
    /// The country; absent if the edge has no database of countries, or does not find it there. A system has one if all
    /// its networks are in one country.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "CH")]
    pub country: Option<String>,
    /// The name of the edge; `edge` on one machine.
    #[schema(example = "eu-1")]
    pub edge: String,
    /// How many networks there are.
    pub networks: u64,
    /// How many connections have ended.
    pub connections: u64,
    /// The shortest round trip of the last ten minutes, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_ms: Option<f64>,
    /// When the last connection ended, by the edge's clock.
    #[serde(with = "time::serde::rfc3339")]
    pub last_seen: OffsetDateTime,
}

/// Where clients come from. `GET /v1/edges/clients`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ClientPage {
    /// Those with the most connections first.
    pub items: Vec<ClientGroup>,
    /// The edges that have more than they listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cut: Vec<String>,
    /// The edges whose clients are missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub silent: Vec<SilentEdge>,
}

/// Which clients are listed.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ClientQuery {
    /// The name or the id of one edge; `edge` on one machine. All edges when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(example = "eu-1")]
    pub edge: Option<String>,
    /// How clients are put together: `prefix` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(inline)]
    pub by: Option<ClientsBy>,
    /// The most items of each edge: 100 when absent, 1,000 at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
}
