//! Anycast: prefixes that edges announce by BGP, the routers that they speak with, and orders about edges.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use crate::{Secret, SilentEdge};

/// A prefix that edges announce.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AnycastPrefix {
    /// Its id.
    pub id: Uuid,
    /// The prefix.
    #[schema(example = "198.51.100.0/24")]
    pub prefix: String,
    /// The addresses in it at which edges serve while they announce it.
    #[schema(value_type = Vec<String>, example = json!(["198.51.100.1"]))]
    pub addresses: Vec<IpAddr>,
    /// The regions that announce it; empty: all.
    #[serde(default)]
    pub regions: Vec<String>,
    /// Communities of each announcement.
    #[serde(default)]
    pub communities: Vec<String>,
    /// How many regions announce it at least: those withdraw it for no cause that they share with others.
    pub min_sites: u16,
    /// When it was made.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// What is odd about it at present.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Has edges announce a prefix. `POST /v1/anycast/prefixes`
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateAnycastPrefix {
    /// The prefix: within one that the operator allows, without bits after its length.
    #[schema(max_length = 64, example = "198.51.100.0/24")]
    pub prefix: String,
    /// The addresses in it at which edges serve; the first host of the prefix when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 16, example = json!(["198.51.100.1"]))]
    pub addresses: Option<Vec<String>>,
    /// The regions that announce it; all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 64, example = json!(["eu"]))]
    pub regions: Option<Vec<String>>,
    /// Communities of each announcement, such as `64500:1` or `64500:1:2`; none when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 32)]
    pub communities: Option<Vec<String>>,
    /// How many regions announce it at least; 1 when absent. With 0, the last one may withdraw too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 1000, default = 1)]
    pub min_sites: Option<u16>,
}

/// How BFD watches a router.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AnycastBfd {
    /// How often packets are sent and expected, in milliseconds.
    #[schema(minimum = 10, maximum = 10000, example = 100)]
    pub interval_ms: u32,
    /// After how many missing packets the router is down.
    #[schema(minimum = 2, maximum = 50, example = 3)]
    pub multiplier: u8,
}

/// A router with which edges speak BGP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AnycastPeer {
    /// Its id.
    pub id: Uuid,
    /// Its name.
    #[schema(example = "transit-a")]
    pub name: String,
    /// Which edges speak with it: `everywhere`, `region:NAME` or `edge:NAME`.
    #[schema(example = "region:eu")]
    pub place: String,
    /// Its address.
    #[schema(value_type = String, example = "192.0.2.1")]
    pub address: IpAddr,
    /// Its autonomous system.
    #[schema(example = 64500)]
    pub remote_as: u32,
    /// The autonomous system of the edges.
    #[schema(example = 64501)]
    pub local_as: u32,
    /// What it is to the installation: `provider`, `peer`, `route-server` or `customer` (RFC 9234).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "provider")]
    pub role: Option<String>,
    /// Whether the session has a password (TCP MD5, RFC 2385). The password itself is never shown.
    pub has_password: bool,
    /// How many hops away it is. One hop is guarded by GTSM (RFC 5082).
    pub hops: u8,
    /// How BFD watches it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bfd: Option<AnycastBfd>,
    /// The most routes that it may send before its session ends.
    pub max_prefixes: u32,
    /// Communities of announcements to it.
    #[serde(default)]
    pub communities: Vec<String>,
    /// Communities of deprioritised announcements to it, beside GRACEFUL_SHUTDOWN.
    #[serde(default)]
    pub drain_communities: Vec<String>,
    /// How often the own number is prepended.
    pub prepend: u8,
    /// Whether it sends the routes to no other network.
    pub no_export: bool,
    /// When it was made.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// What is odd about it at present.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Has edges speak BGP with a router. `POST /v1/anycast/peers`
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateAnycastPeer {
    /// The name: a small letter, then small letters, digits and `-`; at most 32.
    #[schema(max_length = 32, example = "transit-a")]
    pub name: String,
    /// Which edges speak with it: `everywhere`, `region:NAME` or `edge:NAME`; everywhere when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "region:eu")]
    pub place: Option<String>,
    /// Its address.
    #[schema(max_length = 64, example = "192.0.2.1")]
    pub address: String,
    /// Its autonomous system.
    #[schema(example = 64500)]
    pub remote_as: u32,
    /// The autonomous system of the edges.
    #[schema(example = 64501)]
    pub local_as: u32,
    /// What it is: `provider`, `peer`, `route-server` or `customer`; `none` has no role; `provider` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "provider")]
    pub role: Option<String>,
    /// The password of the session (TCP MD5, RFC 2385).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<Secret>,
    /// How many hops away it is; 1 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 254)]
    pub hops: Option<u8>,
    /// How BFD watches it; it does not when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bfd: Option<AnycastBfd>,
    /// The most routes that it may send before its session ends; 1000 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 10_000_000)]
    pub max_prefixes: Option<u32>,
    /// Communities of announcements to it; none when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 32)]
    pub communities: Option<Vec<String>>,
    /// Communities of deprioritised announcements to it, beside GRACEFUL_SHUTDOWN; none when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 32)]
    pub drain_communities: Option<Vec<String>>,
    /// How often the own number is prepended; not at all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 10)]
    pub prepend: Option<u8>,
    /// Whether it sends the routes to no other network.
    #[serde(default)]
    #[schema(required = false)]
    pub no_export: bool,
}

/// What edges do with their announcements on order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AnycastOrderKind {
    /// Routers prefer other routes; the edges still announce, as the last resort.
    Maintain,
    /// Routers prefer other routes; once flows have moved or ended, the edges withdraw, and remove their addresses.
    Drain,
}

/// An order that holds until it is taken back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AnycastOrder {
    /// Its id.
    pub id: Uuid,
    /// For which edges: `everywhere`, `region:NAME` or `edge:NAME`.
    #[schema(example = "edge:eu-1")]
    pub place: String,
    /// What they do.
    pub kind: AnycastOrderKind,
    /// When it was given.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// What is odd about it at present.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Gives an order, in place of the former one for the same edges. `POST /v1/anycast/orders`
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateAnycastOrder {
    /// For which edges: `everywhere`, `region:NAME` or `edge:NAME`.
    #[schema(example = "edge:eu-1")]
    pub place: String,
    /// What they do.
    pub kind: AnycastOrderKind,
}

/// How a prefix stands at an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AnycastState {
    /// The edge announces it.
    Announced,
    /// The edge announces it, and asks routers to prefer others.
    Deprioritised,
    /// The edge does not announce it.
    Withdrawn,
}

impl AnycastState {
    /// The state as it is written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Announced => "announced",
            Self::Deprioritised => "deprioritised",
            Self::Withdrawn => "withdrawn",
        }
    }
}

/// A prefix at an edge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AnycastEdgePrefix {
    /// The prefix.
    #[schema(example = "198.51.100.0/24")]
    pub prefix: String,
    /// How it stands.
    pub state: AnycastState,
    /// Why, in a few words.
    pub why: String,
    /// Since when, by the clock of the edge.
    #[serde(with = "time::serde::rfc3339")]
    pub since: OffsetDateTime,
    /// Its addresses that the edge has.
    #[schema(value_type = Vec<String>)]
    pub addresses: Vec<IpAddr>,
    /// The names of the routers to which BIRD has sent it.
    pub sent_to: Vec<String>,
}

/// A router at an edge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AnycastEdgePeer {
    /// Its name.
    pub name: String,
    /// Whether its session is established.
    pub is_up: bool,
    /// The state of the session in the words of BIRD.
    #[schema(example = "Established")]
    pub state: String,
}

/// The anycast of one edge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AnycastEdge {
    /// The name of the edge; `edge` on one machine.
    #[schema(example = "eu-1")]
    pub edge: String,
    /// Its region, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// The version of BIRD, once it has answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "2.0.12")]
    pub bird: Option<String>,
    /// The prefixes of this edge.
    pub prefixes: Vec<AnycastEdgePrefix>,
    /// The routers of this edge.
    pub peers: Vec<AnycastEdgePeer>,
    /// What does not work, and what this version of BIRD lacks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

/// The anycast of all edges. `GET /v1/anycast/status`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AnycastStatus {
    /// The edges that have answered, by name.
    pub edges: Vec<AnycastEdge>,
    /// The orders that hold.
    pub orders: Vec<AnycastOrder>,
    /// What is missing before anything is announced.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The edges that have not answered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub silent: Vec<SilentEdge>,
}

/// What an edge would change at its BIRD.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AnycastEdgePreview {
    /// The name of the edge; `edge` on one machine.
    #[schema(example = "eu-1")]
    pub edge: String,
    /// The file that the edge writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "/etc/bird/sallyport.conf")]
    pub file: Option<String>,
    /// The lines that go and come, without passwords; empty: nothing changes.
    #[serde(default)]
    pub diff: String,
    /// The file as it would be, without passwords.
    #[serde(default)]
    pub next: String,
    /// Why the edge cannot tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// What edges would change. `GET /v1/anycast/preview`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AnycastPreview {
    /// The edges that have answered, by name.
    pub edges: Vec<AnycastEdgePreview>,
    /// The edges that have not answered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub silent: Vec<SilentEdge>,
}

/// A route to an own prefix that a router has sent to an edge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AnycastRoute {
    /// The name of the edge; `edge` on one machine.
    #[schema(example = "eu-1")]
    pub edge: String,
    /// The region of the edge, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// The name of the router.
    #[schema(example = "transit-a")]
    pub peer: String,
    /// The prefix.
    #[schema(example = "198.51.100.0/24")]
    pub prefix: String,
    /// The autonomous systems that the route passes, the nearest first.
    #[schema(example = json!([64500, 64501]))]
    pub path: Vec<u32>,
    /// Its communities.
    #[serde(default)]
    pub communities: Vec<String>,
}

/// A session of a site with a router.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AnycastSession {
    /// The region; on one machine, `edge`.
    #[schema(example = "eu")]
    pub site: String,
    /// The name of the router.
    #[schema(example = "transit-a")]
    pub peer: String,
    /// Its autonomous system.
    pub remote_as: u32,
    /// The autonomous system of the edges.
    pub local_as: u32,
    /// What it is to the installation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "provider")]
    pub role: Option<String>,
    /// Whether it sends the routes to no other network.
    #[serde(default)]
    pub no_export: bool,
}

/// The routes by which others see the prefixes of the installation. `GET /v1/anycast/explain`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AnycastRoutes {
    /// The routes, by prefix, edge and router.
    pub routes: Vec<AnycastRoute>,
    /// The regions of edges that could have announced them: a large community of each announcement names one.
    pub sites: Vec<String>,
    /// The sessions of edges with routers, by site.
    #[serde(default)]
    pub sessions: Vec<AnycastSession>,
    /// The edges that have more routes than fit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cut: Vec<String>,
    /// The edges that have not answered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub silent: Vec<SilentEdge>,
}

/// Which routes.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AnycastRouteQuery {
    /// To this prefix; to all prefixes when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(example = "198.51.100.0/24")]
    pub prefix: Option<String>,
}
