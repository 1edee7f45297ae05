//! What an edge needs to know of a socket to serve it, and what it tells back.

use serde::{Deserialize, Serialize};

use crate::{
    AccountId, AttachedPolicy, DirectOriginId, DirectOriginRoute, HealthFailure, OriginAddr, OriginProtocol, OriginRef,
    PathRoute, RegionName, SocketId, SocketName, SocketSettings, SocketType, TunnelId,
};

/// SHA-256 of a tunnel's credential. Credentials are 256 random bits, so a plain hash is enough.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CredentialHash(pub [u8; 32]);

impl std::fmt::Debug for CredentialHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CredentialHash(..)")
    }
}

/// A user name and a password that a client must give (RFC 7617).
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BasicAuth {
    /// The user name; it contains no colon.
    pub username: String,
    /// The password as an argon2id PHC string.
    pub password_hash: String,
}

impl std::fmt::Debug for BasicAuth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BasicAuth").field("username", &self.username).finish_non_exhaustive()
    }
}

/// A socket as edges know it: enough to serve it while control is away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketRoute {
    /// The socket.
    pub id: SocketId,
    /// Whose it is.
    pub account: AccountId,
    /// Its DNS label under the domain.
    pub name: SocketName,
    /// What it speaks.
    pub socket_type: SocketType,
    /// Which HTTP version the origin is spoken to with.
    pub origin_protocol: OriginProtocol,
    /// Who may come in, when not everybody.
    pub basic_auth: Option<BasicAuth>,
    /// Its own port, for types that have one.
    pub port: Option<u16>,
    /// What else its owner has set.
    pub settings: SocketSettings,
    /// The policies that concern it, in the order of their names.
    #[serde(default)]
    pub policies: Vec<AttachedPolicy>,
    /// The certificate in DER of the authority of its organisation, for those who identify themselves by a certificate.
    #[serde(default)]
    pub client_authority: Option<Vec<u8>>,
    /// The tunnels that may attach.
    pub tunnels: Vec<TunnelRoute>,
    /// The origins that edges dial themselves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub origins: Vec<DirectOriginRoute>,
}

impl SocketRoute {
    /// Where clients reach the socket, under this domain and by the port that all sockets share.
    #[must_use]
    pub fn url(&self, domain: &str, shared_port: u16) -> String {
        socket_url(self.socket_type, &self.name, self.port, domain, shared_port)
    }

    /// The tunnel of this id, when the socket has it.
    #[must_use]
    pub fn tunnel(&self, id: TunnelId) -> Option<&TunnelRoute> {
        self.tunnels.iter().find(|tunnel| tunnel.id == id)
    }

    /// The weight of an origin, when the socket has it.
    #[must_use]
    pub fn weight(&self, origin: OriginRef) -> Option<u16> {
        match origin {
            OriginRef::Tunnel(id) => self.tunnel(id).map(|tunnel| tunnel.weight),
            OriginRef::Direct(id) => self.origin(id).map(|origin| origin.weight),
        }
    }

    /// Every origin with the paths that it serves.
    pub fn paths(&self) -> impl Iterator<Item = (OriginRef, &PathRoute)> {
        let tunnels = self.tunnels.iter().map(|tunnel| (OriginRef::from(tunnel.id), &tunnel.path));
        tunnels.chain(self.origins.iter().map(|origin| (OriginRef::from(origin.id), &origin.path)))
    }

    /// The direct origin of this id, when the socket has it.
    #[must_use]
    pub fn origin(&self, id: DirectOriginId) -> Option<&DirectOriginRoute> {
        self.origins.iter().find(|origin| origin.id == id)
    }
}

/// Where clients reach a socket of this type and name: by the shared port where a name is enough, else by its own.
#[must_use]
pub fn socket_url(
    socket_type: SocketType,
    name: &SocketName,
    own_port: Option<u16>,
    domain: &str,
    shared_port: u16,
) -> String {
    let (scheme, port) = match socket_type {
        SocketType::Http | SocketType::Https => ("https", (shared_port != 443).then_some(shared_port)),
        SocketType::Tls => ("tls", Some(shared_port)),
        SocketType::Tcp | SocketType::Udp => (socket_type.as_str(), own_port),
    };
    let port = port.map(|port| format!(":{port}")).unwrap_or_default();
    format!("{scheme}://{name}.{domain}{port}")
}

/// A tunnel as edges know it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunnelRoute {
    /// The tunnel.
    pub id: TunnelId,
    /// The hash of the credential that its connector must show.
    pub credential: CredentialHash,
    /// Its share of the socket's flows beside the other tunnels; 0 takes no new ones.
    pub weight: u16,
    /// The port that a stock ssh client of the account asks to have forwarded to mean this tunnel.
    pub forward_port: u16,
    /// Which paths of the socket it serves.
    #[serde(default, skip_serializing_if = "PathRoute::is_plain")]
    pub path: PathRoute,
}

/// One TCP or TLS connection, or UDP flow, that an edge carried, as its access log and the connector's live log show it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlowRecord {
    /// When it began, in milliseconds since 1970 (UTC).
    pub at_ms: i64,
    /// Its id.
    pub flow_id: String,
    /// `tcp`, `tls` or `udp`.
    pub transport: SocketType,
    /// How it ended: `ok`, or why it was refused or cut.
    pub verdict: String,
    /// Bytes from the client.
    pub bytes_in: u64,
    /// Bytes to the client.
    pub bytes_out: u64,
    /// From its begin to its end, in microseconds.
    pub duration_us: u64,
    /// The client's address.
    pub client: std::net::SocketAddr,
    /// The tunnel that it took, for connectors that hold several; older edges do not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tunnel: Option<TunnelId>,
    /// How many records before this one were left out, because nobody could have read them; 0 in the access log.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub omitted_before: u32,
    /// Who it was, where the socket asks: an e-mail address, or `service:` and the name of a machine's token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// What decided that it may come in, or may not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
}

/// A tunnel that an edge holds now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunnelPresence {
    /// The tunnel.
    pub tunnel: TunnelId,
    /// The socket it serves.
    pub socket: SocketId,
    /// The address that its connector came from.
    pub connector_addr: std::net::SocketAddr,
    /// Name and version of the connector's program, as it says.
    pub agent: String,
    /// Since when, in seconds since 1970 (UTC).
    pub since: i64,
    /// The region that its origin is in, as far as its connector says: that of the edge to which it came first, unless it
    /// was told another. `None`: that of the edge that holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home: Option<RegionName>,
    /// The address at which its connector dials the origin, as that says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<OriginAddr>,
    /// The name of the machine that its connector runs on, as that says; older connectors and ssh clients do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// How the edge that holds it finds its origin; older edges do not say it.
    #[serde(default, skip_serializing_if = "OriginHealth::is_well")]
    pub health: OriginHealth,
    /// Why, where it is not well; older edges do not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<HealthFailure>,
}

/// How an edge finds the origin behind a tunnel that it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OriginHealth {
    /// Well, or not checked.
    #[default]
    Well,
    /// It took no connection several times in a row, or not in time: it is left out for a while where another one will do.
    LeftOut,
    /// Not well by its health checks: it gets nothing.
    Unwell,
}

impl OriginHealth {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
    fn is_well(&self) -> bool {
        *self == Self::Well
    }
}

/// One request that an edge served, as its access log and the connector's live log show it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RequestRecord {
    /// When the request came, in milliseconds since 1970 (UTC).
    pub at_ms: i64,
    /// Its id, as in the `X-Request-Id` header.
    pub request_id: String,
    /// The method.
    pub method: String,
    /// Path and query, cut to [`RequestRecord::MAX_TARGET_BYTES`].
    pub target: String,
    /// HTTP/1.0, HTTP/1.1 or HTTP/2.0.
    pub version: String,
    /// The status that the client got.
    pub status: u16,
    /// Body bytes from the client.
    pub bytes_in: u64,
    /// Body bytes to the client.
    pub bytes_out: u64,
    /// From the request's head to the end of its response, in microseconds.
    pub duration_us: u64,
    /// The client's address.
    pub client: std::net::SocketAddr,
    /// The tunnel that it took, for connectors that hold several; older edges do not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tunnel: Option<TunnelId>,
    /// How many requests before this one were left out, because nobody could have read them; 0 in the access log.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub omitted_before: u32,
    /// Who it was, where the socket asks: an e-mail address, or `service:` and the name of a machine's token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// What decided that it may come in, or may not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Why the edge refused it, in a word such as `denied` or `limited`; its `target` has no query then. Of requests that
    /// went to an origin: why nothing came of them, such as `origin-refused`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl RequestRecord {
    /// The longest target that a record keeps, in bytes.
    pub const MAX_TARGET_BYTES: usize = 1_024;
    /// Why a request failed whose origin speaks TLS, behind a socket that does not.
    pub const ORIGIN_SPEAKS_TLS: &str = "origin-speaks-tls";
}
