//! Tunnels.

use std::net::SocketAddr;

use sallyport_model::{Capacity, DisplayName, EdgeName, Labels, PathPrefix, RegionName, SocketId, TunnelId};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;

use crate::{HealthFailure, Secret, TunnelLink, schema, socket::present};

/// A new tunnel. `POST /v1/sockets/{id}/tunnels`; the body may be absent.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateTunnel {
    /// The name of the tunnel: one line of 1 to 100 characters. No other tunnel of the organisation has the name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, min_length = 1, max_length = 100, example = "web-1")]
    pub name: Option<DisplayName>,
    /// The tunnel's share of the socket's flows beside the other tunnels, 100 when absent; 0 takes no new ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1000)]
    pub weight: Option<u16>,
    /// The paths of the socket that the tunnel serves: this one and everything beneath it; `/`, every path, when absent
    /// (`http` and `https` sockets). Of several prefixes that fit, the longest takes the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, max_length = 256, example = "/api")]
    pub path: Option<PathPrefix>,
    /// The replacement of `path` in requests to the origin: `/` removes the prefix. The path stays as it is when
    /// absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, max_length = 256, example = "/")]
    pub rewrite_path: Option<PathPrefix>,
    /// What the origin can carry: the most requests per second and at once; when absent, any amount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = schema::named_or_null::capacity, required = false)]
    pub capacity: Option<Capacity>,
    /// Labels to find it again by: at most 32 keys with values.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    #[schema(value_type = std::collections::BTreeMap<String, String>, required = false, example = json!({"env": "prod"}))]
    pub labels: Labels,
}

/// Changes to a tunnel; absent fields stay as they are. `PATCH /v1/sockets/{id}/tunnels/{tunnel_id}`
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpdateTunnel {
    /// The name that the owner gives the tunnel; `null`: none.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<String>, min_length = 1, max_length = 100)]
    pub name: Option<Option<DisplayName>>,
    /// Its share of the socket's flows beside the other tunnels; 0 takes no new ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1000)]
    pub weight: Option<u16>,
    /// The paths of the socket that it serves; `null`: every path.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<String>, max_length = 256, example = "/api")]
    pub path: Option<Option<PathPrefix>>,
    /// The replacement of `path` in requests to the origin; `null`: the path stays as it is.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<String>, max_length = 256, example = "/")]
    pub rewrite_path: Option<Option<PathPrefix>>,
    /// What the origin can carry; the settings change together. `null`: any amount.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(schema_with = schema::named_or_null::capacity, required = false)]
    pub capacity: Option<Option<Capacity>>,
    /// The labels, all of them; `null`: none.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<std::collections::BTreeMap<String, String>>, example = json!({"env": "prod"}))]
    pub labels: Option<Option<Labels>>,
}

impl UpdateTunnel {
    /// Whether nothing is to change.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let Self { name, weight, path, rewrite_path, capacity, labels } = self;
        let are_absent = [path.is_none(), rewrite_path.is_none(), capacity.is_none(), labels.is_none()];
        name.is_none() && weight.is_none() && are_absent.into_iter().all(|is_absent| is_absent)
    }
}

/// Whether a tunnel's connector is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum TunnelStatus {
    /// A connector holds the tunnel.
    Up,
    /// No connector holds the tunnel.
    Down,
}

/// A tunnel: one origin's place at a socket, whether its connector is there or not.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Tunnel {
    /// Its id.
    #[schema(value_type = uuid::Uuid)]
    pub id: TunnelId,
    /// The socket it belongs to.
    #[schema(value_type = uuid::Uuid)]
    pub socket_id: SocketId,
    /// The name that the owner gives the tunnel, or `null`.
    #[serde(default)]
    #[schema(value_type = Option<String>, example = "web-1")]
    pub name: Option<DisplayName>,
    /// The tunnel's share of the socket's flows beside the other tunnels; 0 takes no new ones.
    #[serde(default = "default_weight")]
    pub weight: u16,
    /// The paths of the socket that it serves: this one and everything beneath it.
    #[serde(default)]
    #[schema(value_type = String, example = "/api")]
    pub path: PathPrefix,
    /// The replacement of `path` in requests to the origin; absent: the path stays as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "/")]
    pub rewrite_path: Option<PathPrefix>,
    /// What the origin can carry; absent: any amount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = schema::named_or_null::capacity, required = false)]
    pub capacity: Option<Capacity>,
    /// The labels that the owner gives it.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    #[schema(value_type = std::collections::BTreeMap<String, String>, required = false, example = json!({"env": "prod"}))]
    pub labels: Labels,
    /// The port that selects this tunnel for a stock ssh client: `ssh -R FORWARD_PORT:host:port`.
    #[serde(default)]
    pub forward_port: u16,
    /// When it was made.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// Whether the tunnel's connector is there.
    pub status: TunnelStatus,
    /// The address of the connector, when the tunnel is up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "192.0.2.7:51820")]
    pub connector_addr: Option<SocketAddr>,
    /// The host name of the connector's machine, when the tunnel is up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "web-1.example.com")]
    pub host: Option<String>,
    /// The name and version of the connector, when the tunnel is up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// When the tunnel came up.
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub since: Option<OffsetDateTime>,
    /// Whether the service behind the tunnel passes the socket's health check; absent before the first check.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub healthy: Option<bool>,
    /// Why the service gets no requests, and since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<HealthFailure>,
    /// The edge that holds the tunnel, where there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "eu-1")]
    pub edge: Option<EdgeName>,
    /// The region of that edge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "eu")]
    pub region: Option<RegionName>,
    /// Every edge that holds the tunnel, where there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holders: Vec<TunnelHolder>,
    /// The round trip between edge and connector in milliseconds, the shortest one of several edges. Absent before the
    /// first measurement, and for stock ssh clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 12.4)]
    pub round_trip_ms: Option<f64>,
    /// The number of requests and flows that the tunnel carries now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub live: Option<u64>,
    /// The links that carry the tunnel, as its connector reports them; absent for stock ssh clients.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<TunnelLink>,
}

/// An edge that holds a tunnel. Fields without a response of the edge within a second are absent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TunnelHolder {
    /// The edge.
    #[schema(value_type = String, example = "eu-1")]
    pub edge: EdgeName,
    /// The region of the edge.
    #[schema(value_type = String, example = "eu")]
    pub region: RegionName,
    /// Whether the service behind the tunnel passes this edge's health checks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub healthy: Option<bool>,
    /// Why the service gets no requests from this edge, and since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<HealthFailure>,
    /// The round trip between this edge and the connector, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trip_ms: Option<f64>,
    /// The number of requests and flows that the tunnel carries at this edge now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub live: Option<u64>,
}

fn default_weight() -> u16 {
    sallyport_model::DEFAULT_WEIGHT
}

/// The address that a connector dials.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConnectTo {
    /// Host name.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// The UDP port for connectors over QUIC; absent when the edge takes none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quic_port: Option<u16>,
    /// Edges that the connector may dial when the first one does not respond, at most eight; empty on one machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub edges: Vec<ConnectEdge>,
    /// The root in PEM that signs the certificates of edges for connectors, where other clients see those of a public
    /// authority; absent where the connector knows the root already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_pem: Option<String>,
}

/// An edge that accepts connectors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConnectEdge {
    /// The name of the edge.
    #[schema(value_type = String, example = "eu-1")]
    pub name: EdgeName,
    /// The region of the edge.
    #[schema(value_type = String, example = "eu")]
    pub region: RegionName,
    /// The addresses of the edge.
    #[schema(value_type = Vec<String>)]
    pub addresses: Vec<SocketAddr>,
}

/// A tunnel that was just made, or given a new credential.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CreatedTunnel {
    /// What it is.
    #[serde(flatten)]
    pub details: Tunnel,
    /// The credential with which the connector holds the tunnel. Shown once.
    pub credential: Secret,
    /// The address that the connector dials.
    pub connect: ConnectTo,
}
