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
    /// It renews its lease.
    Up,
    /// It is there, and is being emptied or empty.
    Draining,
    /// It has joined, and is not there now.
    Down,
    /// What is known of it is not of the present: the bus is away.
    Unknown,
}

/// An edge that has joined.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Edge {
    /// Its id.
    #[schema(value_type = uuid::Uuid)]
    pub id: EdgeId,
    /// Its name.
    #[schema(value_type = String, example = "eu-1")]
    pub name: EdgeName,
    /// The region that it is in.
    #[schema(value_type = String, example = "eu")]
    pub region: RegionName,
    /// Whether it is there.
    pub state: EdgeState,
    /// Where clients and connectors reach it.
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    pub addresses: Vec<SocketAddr>,
    /// The version of its program; absent when it is not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// How many tunnels it holds.
    #[serde(default)]
    pub tunnels: usize,
    /// How many sockets it serves; absent when it did not say so within a second, as what follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sockets: Option<u64>,
    /// How many connections, flows of datagrams and WebSockets run there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flows: Option<u64>,
    /// How many connections of clients are open there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<u64>,
    /// The memory of its process, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// The processor time that its process has used since it began, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_ms: Option<u64>,
    /// How long a question took from this control to it and back over the bus, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 0.8)]
    pub round_trip_ms: Option<f64>,
    /// When this control last heard of it.
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub heard_at: Option<OffsetDateTime>,
    /// Since when it runs; absent when it is not there.
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub since: Option<OffsetDateTime>,
    /// It is to be emptied: until when what runs there may go on.
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub drain_until: Option<OffsetDateTime>,
    /// When it joined.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
}

/// How an edge is emptied. `POST /v1/edges/{id}/drain`
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DrainEdge {
    /// How long requests and connections that run may go on, in seconds: 300 when absent, 86,400 at most.
    #[schema(maximum = 86400)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within_seconds: Option<u32>,
    /// Do so even where no other edge serves, or where that is not known.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
}

/// A token with which one edge may join. `POST /v1/edge-tokens`
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateEdgeToken {
    /// What the edge will be called; it may say so itself when absent.
    #[schema(value_type = Option<String>, example = "eu-1")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<EdgeName>,
    /// The region that it will be in; it must say so itself when absent.
    #[schema(value_type = Option<String>, example = "eu")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<RegionName>,
    /// In how many minutes it ends: 60 when absent, 10,080 at most.
    #[schema(minimum = 1, maximum = 10080)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minutes: Option<u32>,
}

/// A token with which one edge may join.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreatedEdgeToken {
    /// For `sallyport edge --join`. Shown this once, and good once.
    pub token: Secret,
    /// What the edge will be called, if that is said.
    #[schema(value_type = Option<String>)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<EdgeName>,
    /// The region that it will be in, if that is said.
    #[schema(value_type = Option<String>)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<RegionName>,
    /// When it ends.
    #[serde(with = "time::serde::rfc3339")]
    pub expires_at: OffsetDateTime,
}

/// What became of a join token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EdgeTokenState {
    /// An edge may join with it.
    Waiting,
    /// An edge has joined with it.
    Used,
    /// Its time was over before any did.
    Ended,
}

/// A token with which one edge may join, or has joined, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EdgeToken {
    /// Its id: 16 hexadecimal digits.
    #[schema(example = "0f1e2d3c4b5a6978")]
    pub id: String,
    /// What became of it.
    pub state: EdgeTokenState,
    /// What the edge will be called, if that is said.
    #[schema(value_type = Option<String>)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<EdgeName>,
    /// The region that the edge will be in, if that is said.
    #[schema(value_type = Option<String>)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<RegionName>,
    /// The name that the edge had which has joined with it; another one may have it since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_by: Option<String>,
    /// The id of that edge, as far as it is known.
    #[schema(value_type = Option<String>)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_by_id: Option<EdgeId>,
    /// Whether that edge was removed since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_by_removed: Option<bool>,
    /// When it was made.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// When it ends.
    #[serde(with = "time::serde::rfc3339")]
    pub expires_at: OffsetDateTime,
}

/// The next owner of the installation. `PUT /v1/installation/owner`
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HandOver {
    /// The e-mail address of an account.
    #[schema(value_type = String, format = Email)]
    pub email: Email,
}

/// What `sallyport edge --join` is given: `SECRET@HOST:PORT#FINGERPRINT`, with several places by commas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinToken {
    /// Good once.
    pub secret: Secret,
    /// Where controls are: `HOST:PORT`.
    pub controls: Vec<String>,
    /// SHA-256 of the root that they show, `sha256:` and 64 hexadecimal digits.
    pub fingerprint: String,
}

/// The text is no join token.
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

/// What an edge says to join. It travels to the place where edges come, and is no part of the public API.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JoinEdge {
    /// The secret of its token.
    pub secret: Secret,
    /// What it wants to be called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<EdgeName>,
    /// The region that it is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<RegionName>,
    /// A request for certificates of its key (PKCS #10), in PEM.
    pub request: String,
}

/// What an edge that has certificates says to get new ones.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RenewEdge {
    /// A request for certificates of its key (PKCS #10), in PEM.
    pub request: String,
}

/// The certificates of an edge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EdgeCertificates {
    /// By which other machines know it, with its root, in PEM.
    pub node: String,
    /// By which clients know it, with its root, in PEM.
    pub server: String,
    /// When the first of them ends, in seconds since 1970.
    pub not_after: i64,
}

/// What an edge needs to know of its installation, and keeps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EdgeBootstrap {
    /// The domain under which sockets get their names.
    pub domain: String,
    /// What the installation is called on pages that visitors see, when by another name than its domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site_name: Option<String>,
    /// Its mark on these pages: a PNG or SVG picture in base64url.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site_icon: Option<String>,
    /// The root that clients trust, in PEM.
    pub ca: String,
    /// The root of the installation's machines, in PEM.
    pub node_ca: String,
    /// Where edges reach controls: `HOST:PORT`.
    pub controls: Vec<String>,
    /// The machines of the bus, such as `nats://10.0.0.1:4222`.
    pub bus: Vec<String>,
    /// By which user the bus knows edges.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bus_user: Option<String>,
    /// The password of this user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bus_password: Option<Secret>,
    /// By which token the bus knows edges.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bus_token: Option<Secret>,
    /// The authority of the bus's certificates, in PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bus_ca: Option<String>,
    /// What edges need to take stock ssh clients, where they may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssh: Option<EdgeSsh>,
    /// Key of what browsers carry, in base64url.
    pub seal_key: Secret,
    /// Key of what origins are told of who comes, in base64url.
    pub assertion_key: Secret,
    /// Key of where clients that stay with an origin go, in base64url.
    pub affinity_key: Secret,
}

/// The answer to [`JoinEdge`], and to [`RenewEdge`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinedEdge {
    /// Its id.
    pub id: EdgeId,
    /// Its name.
    pub name: EdgeName,
    /// Its region.
    pub region: RegionName,
    /// Its certificates.
    pub certificates: EdgeCertificates,
    /// What it needs to know.
    #[serde(rename = "world")]
    pub bootstrap: EdgeBootstrap,
    /// What time it is for control, in seconds since 1970.
    pub now: i64,
}

/// What an edge needs to take stock ssh clients.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EdgeSsh {
    /// The keys that prove to ssh clients that this is the server they know, in OpenSSH's format, the preferred one first.
    pub host_keys: Vec<Secret>,
    /// Whose certificates let in, each for one tunnel: a public key as in a `.pub` file.
    pub authority: String,
}

/// What an edge asks about a forward that an ssh client wants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForwardRequest {
    /// The account that it has logged in to; absent: a guest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<AccountId>,
    /// The fingerprint of the key that it has proven to hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The one tunnel that it may serve, when it has logged in with a certificate for it: the certificate's key id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<String>,
    /// Where the client is.
    pub client: IpAddr,
    /// The address that it asks for.
    pub address: String,
    /// The port that it asks for.
    pub port: u32,
}

/// What a forward of an ssh client leads to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForwardTarget {
    /// The socket.
    pub socket: SocketId,
    /// The tunnel that the client holds.
    pub tunnel: TunnelId,
    /// Whether the tunnel, and maybe the socket, were made for this forward.
    pub temporary: bool,
    /// Where clients reach the socket.
    pub url: String,
    /// The socket's own port, when it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

/// What an edge is told of what it has asked or said.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acknowledgement {}

/// What an edge asks about a tunnel that a connector brings and that it does not know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunnelCheckRequest {
    /// The tunnel.
    pub tunnel: TunnelId,
    /// The hash of the credential that the connector shows.
    pub credential: CredentialHash,
}

/// The answer to [`TunnelCheckRequest`].
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

/// What an edge says to learn what it needs to know now.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct BootstrapRequest {}

/// The answer to [`BootstrapRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootstrapResponse {
    /// What it needs to know.
    #[serde(rename = "world")]
    pub bootstrap: EdgeBootstrap,
    /// What time it is for control, in seconds since 1970.
    pub now: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_join_token_is_read_as_it_is_shown_and_damage_is_told() {
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
