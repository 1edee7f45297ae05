//! Edges, and how they join.

use std::{
    net::{IpAddr, SocketAddr},
    str::FromStr,
};

use sallyport_model::{AccountId, CredentialHash, EdgeId, EdgeName, Email, RegionName, SocketId, TunnelId};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;

use crate::Secret;

/// Whether an edge is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EdgeState {
    /// The edge renews its lease.
    Up,
    /// The edge is there, and drains or has drained.
    Draining,
    /// The edge has joined, and is not there now.
    Down,
    /// The bus is away, so that the state of the edge is unknown.
    Unknown,
}

/// An edge that has joined.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Edge {
    /// The id of the edge.
    #[schema(value_type = uuid::Uuid)]
    pub id: EdgeId,
    /// The name of the edge.
    #[schema(value_type = String, example = "eu-1")]
    pub name: EdgeName,
    /// The region of the edge.
    #[schema(value_type = String, example = "eu")]
    pub region: RegionName,
    /// Whether the edge is there.
    pub state: EdgeState,
    /// The addresses at which clients and connectors reach the edge.
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    pub addresses: Vec<SocketAddr>,
    /// The UDP port at which the edge offers HTTP/3 to clients; absent while UDP does not answer there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 443)]
    pub http3_port: Option<u16>,
    /// The version of the edge's program; absent when the edge is down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The number of tunnels that the edge holds.
    #[serde(default)]
    pub tunnels: usize,
    /// The number of sockets that the edge serves. This field and those up to `cpu_ms` are absent when the edge did not
    /// respond within a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sockets: Option<u64>,
    /// The number of connections, flows of datagrams and WebSockets that run at the edge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flows: Option<u64>,
    /// The number of open connections of clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<u64>,
    /// The memory of the edge's process, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// The processor time of the edge's process since its start, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_ms: Option<u64>,
    /// The round trip from this control to the edge over the bus, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 0.8)]
    pub round_trip_ms: Option<f64>,
    /// The time of the edge's last message to this control.
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub heard_at: Option<OffsetDateTime>,
    /// When the edge started; absent when the edge is down.
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub since: Option<OffsetDateTime>,
    /// The end of the time that running flows have; present while the edge drains.
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub drain_until: Option<OffsetDateTime>,
    /// When the edge joined.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
}

/// Drains an edge. `POST /v1/edges/{id}/drain`
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DrainEdge {
    /// The time that running requests and connections have, in seconds: 300 when absent, 86,400 at most.
    #[schema(maximum = 86400)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within_seconds: Option<u32>,
    /// Whether to drain the edge even where no other edge serves, or where that is unknown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
}

/// A token with which one edge may join. `POST /v1/edge-tokens`
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateEdgeToken {
    /// The name of the edge; the edge may name itself when absent.
    #[schema(value_type = Option<String>, example = "eu-1")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<EdgeName>,
    /// The region of the edge; the edge must name its region when absent.
    #[schema(value_type = Option<String>, example = "eu")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<RegionName>,
    /// The lifetime of the token in minutes: 60 when absent, 10,080 at most.
    #[schema(minimum = 1, maximum = 10080)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minutes: Option<u32>,
}

/// A token with which one edge may join.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreatedEdgeToken {
    /// The token for `sallyport edge --join`. Shown once, and good once.
    pub token: Secret,
    /// The name that the edge will have, if the token fixes one.
    #[schema(value_type = Option<String>)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<EdgeName>,
    /// The region that the edge will be in, if the token fixes one.
    #[schema(value_type = Option<String>)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<RegionName>,
    /// When the token ends.
    #[serde(with = "time::serde::rfc3339")]
    pub expires_at: OffsetDateTime,
}

/// The state of a join token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EdgeTokenState {
    /// An edge may join with the token.
    Waiting,
    /// An edge joined with the token.
    Used,
    /// The token ended before an edge joined with it.
    Ended,
}

/// A token with which one edge may join, or has joined, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EdgeToken {
    /// The id of the token: 16 hexadecimal digits.
    #[schema(example = "0f1e2d3c4b5a6978")]
    pub id: String,
    /// The state of the token.
    pub state: EdgeTokenState,
    /// The name that the edge will have, if the token fixes one.
    #[schema(value_type = Option<String>)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<EdgeName>,
    /// The region that the edge will be in, if the token fixes one.
    #[schema(value_type = Option<String>)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<RegionName>,
    /// The name of the edge that joined with the token, at that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_by: Option<String>,
    /// The id of that edge, where it is known.
    #[schema(value_type = Option<String>)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_by_id: Option<EdgeId>,
    /// Whether that edge was removed later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_by_removed: Option<bool>,
    /// When the token was made.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// When the token ends.
    #[serde(with = "time::serde::rfc3339")]
    pub expires_at: OffsetDateTime,
}

/// Makes another account the owner of the installation. `PUT /v1/installation/owner`
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HandOver {
    /// The e-mail address of that account.
    #[schema(value_type = String, format = Email)]
    pub email: Email,
}

/// The text that `sallyport edge --join` takes: `SECRET@HOST:PORT#FINGERPRINT`, with commas between several addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinToken {
    /// The secret, good once.
    pub secret: Secret,
    /// The addresses of controls: `HOST:PORT`.
    pub controls: Vec<String>,
    /// The SHA-256 of the controls' root certificate: `sha256:` and 64 hexadecimal digits.
    pub fingerprint: String,
}

/// The error for a text that is no join token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this is no join token: expected SECRET@HOST:PORT#FINGERPRINT, as `sallyport edge token create` prints it")]
pub struct JoinTokenError;

/// What secrets of join tokens begin with.
pub const JOIN_SECRET_PREFIX: &str = "spe_";
/// The longest join token, in bytes.
const MAX_JOIN_TOKEN_BYTES: usize = 2_048;

impl JoinToken {
    /// As it is shown.
    #[must_use]
    pub fn to_secret(&self) -> Secret {
        let fingerprint = self.fingerprint.trim_start_matches("sha256:");
        Secret::from(format!("{}@{}#{fingerprint}", self.secret.expose(), self.controls.join(",")))
    }
}

impl FromStr for JoinToken {
    type Err = JoinTokenError;
    fn from_str(text: &str) -> Result<Self, JoinTokenError> {
        let text = text.trim();
        let (secret, rest) = text.split_once('@').ok_or(JoinTokenError)?;
        let (controls, digits) = rest.split_once('#').ok_or(JoinTokenError)?;
        let is_place = |place: &str| {
            place
                .rsplit_once(':')
                .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|p| p > 0))
        };
        let is_good = text.len() <= MAX_JOIN_TOKEN_BYTES
            && secret.strip_prefix(JOIN_SECRET_PREFIX).is_some_and(|secret| secret.len() == 43)
            && controls.split(',').all(is_place)
            && digits.len() == 64
            && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_good.then_some(()).ok_or(JoinTokenError)?;
        Ok(Self {
            secret: Secret::from(secret),
            controls: controls.split(',').map(str::to_owned).collect(),
            fingerprint: format!("sha256:{}", digits.to_ascii_lowercase()),
        })
    }
}

/// The request of an edge that joins. Edges send it to `/node/v1/join`; it is no part of the public API.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JoinEdge {
    /// The secret of the join token.
    pub secret: Secret,
    /// The name that the edge asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<EdgeName>,
    /// The region of the edge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<RegionName>,
    /// A certificate request (PKCS #10) of the edge's key, in PEM.
    pub request: String,
}

/// The request of an edge for new certificates.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RenewEdge {
    /// A certificate request (PKCS #10) of the edge's key, in PEM.
    pub request: String,
}

/// The certificates of an edge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EdgeCertificates {
    /// The certificate for other machines of the installation, with its root, in PEM.
    pub node: String,
    /// The certificate for clients, with its root, in PEM.
    pub server: String,
    /// The earlier end of validity of the two, in seconds since 1970.
    pub not_after: i64,
}

/// The parts of the installation's configuration that an edge keeps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EdgeBootstrap {
    /// The domain under which sockets get their names.
    pub domain: String,
    /// The name of the installation on pages for visitors, when it differs from the domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site_name: Option<String>,
    /// The icon on these pages: a PNG or SVG picture in base64url.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site_icon: Option<String>,
    /// Whether names of sockets have certificates of public authorities only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_public_names: bool,
    /// The root that clients trust, in PEM.
    pub ca: String,
    /// The root of the installation's machines, in PEM.
    pub node_ca: String,
    /// The addresses of controls: `HOST:PORT`.
    pub controls: Vec<String>,
    /// The addresses of the bus, such as `nats://10.0.0.1:4222`.
    pub bus: Vec<String>,
    /// NATS user name of edges.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bus_user: Option<String>,
    /// The password of this user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bus_password: Option<Secret>,
    /// NATS token of edges.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bus_token: Option<Secret>,
    /// The certificate authority of the bus, in PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bus_ca: Option<String>,
    /// The keys with which the edge takes stock ssh clients; absent where it takes none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssh: Option<EdgeSsh>,
    /// The key that seals cookies and other texts of browsers, in base64url.
    pub seal_key: Secret,
    /// The key that signs assertions of identity for origins, in base64url.
    pub assertion_key: Secret,
    /// The key that signs affinity cookies, in base64url.
    pub affinity_key: Secret,
    /// The key of this edge alone, for messages about steering, in base64url; absent from older controls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steering_key: Option<Secret>,
}

/// The response to [`JoinEdge`], and to [`RenewEdge`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinedEdge {
    /// The id of the edge.
    pub id: EdgeId,
    /// The name of the edge.
    pub name: EdgeName,
    /// The region of the edge.
    pub region: RegionName,
    /// The certificates of the edge.
    pub certificates: EdgeCertificates,
    /// The configuration that the edge keeps.
    #[serde(rename = "world")]
    pub bootstrap: EdgeBootstrap,
    /// The time at control, in seconds since 1970.
    pub now: i64,
}

/// The keys with which an edge takes stock ssh clients.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EdgeSsh {
    /// The private host keys in OpenSSH's format, the preferred one first.
    pub host_keys: Vec<Secret>,
    /// The public key, as in a `.pub` file, of the authority that signs ssh keys for one tunnel each.
    pub authority: String,
}

/// An edge's question about a forward that an ssh client asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForwardRequest {
    /// The account of the ssh client; absent for a client without an account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<AccountId>,
    /// The fingerprint of the key that the client has proven to hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The key id of the client's certificate, which names the one tunnel that the client may serve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<String>,
    /// The address of the ssh client.
    pub client: IpAddr,
    /// The address to forward (RFC 4254 section 7.1).
    pub address: String,
    /// The port to forward.
    pub port: u32,
}

/// The socket and tunnel of a forward.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForwardTarget {
    /// The socket.
    pub socket: SocketId,
    /// The tunnel that the client holds.
    pub tunnel: TunnelId,
    /// Whether control made the tunnel, and maybe the socket, for this forward.
    pub temporary: bool,
    /// The address at which clients reach the socket.
    pub url: String,
    /// The socket's own port, when it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

/// The empty response to an edge.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acknowledgement {}

/// An edge's question about a tunnel that a connector brings and that the edge does not know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunnelCheckRequest {
    /// The tunnel.
    pub tunnel: TunnelId,
    /// The hash of the credential that the connector shows.
    pub credential: CredentialHash,
}

/// The response to [`TunnelCheckRequest`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "status")]
pub enum TunnelCheck {
    /// The tunnel is there, and has this credential.
    Known,
    /// There is no such tunnel.
    Unknown,
    /// The tunnel has another credential.
    BadCredential,
}

/// An edge's question for its present configuration.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct BootstrapRequest {}

/// The response to [`BootstrapRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootstrapResponse {
    /// The configuration of the edge.
    #[serde(rename = "world")]
    pub bootstrap: EdgeBootstrap,
    /// The time at control, in seconds since 1970.
    pub now: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_join_token_is_read_as_shown_and_damage_is_reported() {
        let token = JoinToken {
            secret: Secret::from(format!("spe_{}", "x".repeat(43))),
            controls: vec!["control.example.com:8444".to_owned(), "[2001:db8::1]:8444".to_owned()],
            fingerprint: format!("sha256:{}", "ab".repeat(32)),
        };
        let shown = token.to_secret();
        assert_eq!(shown.expose().parse::<JoinToken>(), Ok(token.clone()));
        assert!(!format!("{token:?}").contains("xxx"));
        let cut = &shown.expose()[..shown.expose().len() - 1];
        for bad in
            ["", "spe_x@h:1#ab", cut, &shown.expose().replace(":8444", ""), &shown.expose().replace("spe_", "spt_")]
        {
            assert_eq!(bad.parse::<JoinToken>(), Err(JoinTokenError), "{bad}");
        }
    }
}
