//! Balancers of sites: virtual addresses that the edges of a site share.

use std::{collections::BTreeMap, net::IpAddr};

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;
use uuid::Uuid;

/// How balancers send packets on to edges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum BalancerEncapsulation {
    /// A second IP header.
    Ipip,
    /// IP and UDP, by which the packet names a second edge too.
    Gue,
}

/// Sets the balancer of a site. `PUT /v1/balancers/{site}`
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetBalancer {
    /// The virtual addresses, at most 16.
    #[schema(example = json!(["198.51.100.1", "2001:db8::1"]))]
    pub addresses: Vec<String>,
    /// The addresses of the machines that balance, at most 32. Edges take encapsulated packets from them.
    #[schema(example = json!(["192.0.2.5"]))]
    pub balancers: Vec<String>,
    /// How packets get to edges; as before when absent, and `gue` at first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encapsulation: Option<BalancerEncapsulation>,
    /// The shares of edges by their names, 0 to 1000; as before when absent. An edge without one has the share
    /// 100. A share of 0 gets no new flows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = json!({"eu-1": 200}))]
    pub weights: Option<BTreeMap<String, u16>>,
}

/// The transport of a balanced service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum BalancedProtocol {
    /// TCP.
    Tcp,
    /// UDP, and QUIC over it.
    Udp,
}

/// Ports of all virtual addresses that go to the edges.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BalancedService {
    /// The transport.
    pub protocol: BalancedProtocol,
    /// The first port.
    pub first_port: u16,
    /// The last port.
    pub last_port: u16,
    /// Whether packets of QUIC come there, whose connection ids name edges.
    #[serde(default)]
    pub quic: bool,
}

/// Whether an edge behind a balancer gets flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum BalancedEdgeState {
    /// It gets new flows.
    Serving,
    /// It keeps its flows, and gets no new ones.
    Draining,
    /// It is gone: other edges get its flows.
    Down,
}

/// An edge behind a balancer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BalancedEdge {
    /// Its id.
    pub id: Uuid,
    /// Its name.
    #[schema(example = "eu-1")]
    pub name: String,
    /// The address to which balancers send; absent where the edge has not said one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "192.0.2.11")]
    pub address: Option<IpAddr>,
    /// A port at which it serves TCP, where a balancer can see whether the edge is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe_port: Option<u16>,
    /// Its server number, which is in connection ids of QUIC.
    pub server: u16,
    /// Its share.
    pub weight: u16,
    /// Whether it gets flows.
    pub state: BalancedEdgeState,
    /// Why it gets none although it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// The balancer of a site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Balancer {
    /// The site, which is a region.
    #[schema(example = "eu")]
    pub site: String,
    /// The virtual addresses.
    #[schema(value_type = Vec<String>, example = json!(["198.51.100.1"]))]
    pub addresses: Vec<IpAddr>,
    /// The addresses of the machines that balance.
    #[schema(value_type = Vec<String>, example = json!(["192.0.2.5"]))]
    pub balancers: Vec<IpAddr>,
    /// How packets get to edges.
    pub encapsulation: BalancerEncapsulation,
    /// The shares that were set.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub weights: BTreeMap<String, u16>,
    /// The ports that go to edges: those of the edges themselves, and those of sockets.
    pub services: Vec<BalancedService>,
    /// The edges of the site that are behind the balancer, by name.
    pub edges: Vec<BalancedEdge>,
    /// Whether control does not hear of edges now: their states are the last that it knew.
    #[serde(default)]
    pub is_stale: bool,
    /// When the site got its balancer.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// What is missing, or has no effect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}
