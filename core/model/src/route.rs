//! The data that edges need to serve a socket, and the records that they report.

use serde::{Deserialize, Serialize};

use crate::{
    AccountId, AttachedPolicy, Capacity, DirectOriginId, DirectOriginRoute, DomainName, HealthFailure, OriginAddr,
    OriginProtocol, OriginRef, PathRoute, RegionName, SocketId, SocketName, SocketSettings, SocketType, TunnelId,
};

/// SHA-256 of a tunnel's credential. Credentials are 256 random bits, so a plain hash is enough.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CredentialHash(pub [u8; 32]);

impl std::fmt::Debug for CredentialHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CredentialHash(..)")
    }
}

/// User name and password for basic authentication (RFC 7617).
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

/// A socket as edges know it: sufficient to serve it while control is unavailable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketRoute {
    /// The socket.
    pub id: SocketId,
    /// Its account.
    pub account: AccountId,
    /// Its DNS label under the domain.
    pub name: SocketName,
    /// The verified domains of its organisation that lead to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub domains: Vec<DomainName>,
    /// Its type.
    pub socket_type: SocketType,
    /// The HTTP version between edge and origin.
    pub origin_protocol: OriginProtocol,
    /// Basic authentication, if required.
    pub basic_auth: Option<BasicAuth>,
    /// Its own port, for types that have one.
    pub port: Option<u16>,
    /// The owner's other settings.
    pub settings: SocketSettings,
    /// Its policies, sorted by name.
    #[serde(default)]
    pub policies: Vec<AttachedPolicy>,
    /// The CA certificate of its organisation in DER, for clients with certificates.
    #[serde(default)]
    pub client_authority: Option<Vec<u8>>,
    /// Its tunnels.
    pub tunnels: Vec<TunnelRoute>,
    /// Its direct origins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub origins: Vec<DirectOriginRoute>,
}

impl SocketRoute {
    /// The public URL of the socket under this domain, with the shared port.
    #[must_use]
    pub fn url(&self, domain: &str, shared_port: u16) -> String {
        socket_url(self.socket_type, &self.name, self.port, domain, shared_port)
    }

    /// The tunnel with this id, if the socket has it.
    #[must_use]
    pub fn tunnel(&self, id: TunnelId) -> Option<&TunnelRoute> {
        self.tunnels.iter().find(|tunnel| tunnel.id == id)
    }

    /// The weight of an origin, if the socket has it.
    #[must_use]
    pub fn weight(&self, origin: OriginRef) -> Option<u16> {
        match origin {
            OriginRef::Tunnel(id) => self.tunnel(id).map(|tunnel| tunnel.weight),
            OriginRef::Direct(id) => self.origin(id).map(|origin| origin.weight),
        }
    }

    /// Every origin with what it can carry.
    pub fn capacities(&self) -> impl Iterator<Item = (OriginRef, &Capacity)> {
        let tunnels = self.tunnels.iter().map(|tunnel| (OriginRef::from(tunnel.id), &tunnel.capacity));
        tunnels.chain(self.origins.iter().map(|origin| (OriginRef::from(origin.id), &origin.capacity)))
    }

    /// Whether an origin or a region has a limit.
    #[must_use]
    pub fn has_capacities(&self) -> bool {
        self.capacities().any(|(_, capacity)| !capacity.is_empty())
            || self.settings.regions.values().any(|group| !group.capacity.is_empty())
    }

    /// Every origin with its paths.
    pub fn paths(&self) -> impl Iterator<Item = (OriginRef, &PathRoute)> {
        let tunnels = self.tunnels.iter().map(|tunnel| (OriginRef::from(tunnel.id), &tunnel.path));
        tunnels.chain(self.origins.iter().map(|origin| (OriginRef::from(origin.id), &origin.path)))
    }

    /// The direct origin with this id, if the socket has it.
    #[must_use]
    pub fn origin(&self, id: DirectOriginId) -> Option<&DirectOriginRoute> {
        self.origins.iter().find(|origin| origin.id == id)
    }
}

/// The public URL of a socket of this type and name: on the shared port if the name is sufficient, otherwise on its own
/// port.
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
    /// The hash of the connector's credential.
    pub credential: CredentialHash,
    /// Its weight relative to the socket's other tunnels; 0 gets no new flows.
    pub weight: u16,
    /// The port that an ssh client of the account forwards to select this tunnel.
    pub forward_port: u16,
    /// The paths of the socket that it serves.
    #[serde(default, skip_serializing_if = "PathRoute::is_plain")]
    pub path: PathRoute,
    /// What its origin can carry.
    #[serde(default, skip_serializing_if = "Capacity::is_empty")]
    pub capacity: Capacity,
}

/// A TCP or TLS connection, or UDP flow, of an edge, as shown in its access log and the connector's live log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlowRecord {
    /// Start, in milliseconds since 1970 (UTC).
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
    /// Duration, in microseconds.
    pub duration_us: u64,
    /// The client's address.
    pub client: std::net::SocketAddr,
    /// Its tunnel, for connectors with several; absent from older edges.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tunnel: Option<TunnelId>,
    /// Number of records dropped before this one because of the rate limit; 0 in the access log.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub omitted_before: u32,
    /// The client's identity, if the socket requires one: an e-mail address, or `service:` and the name of a service
    /// token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// The rule that decided about access.
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
    /// The remote address of its connector.
    pub connector_addr: std::net::SocketAddr,
    /// Name and version of the connector's program, as declared by the connector.
    pub agent: String,
    /// Start, in seconds since 1970 (UTC).
    pub since: i64,
    /// The origin's region, as declared by the connector: configured, or that of the first edge it reached. `None`:
    /// that of the edge that holds the tunnel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home: Option<RegionName>,
    /// The address at which the connector dials the origin, as declared by the connector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<OriginAddr>,
    /// The name of the connector's machine, as declared by the connector; absent from older connectors and ssh clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Whether the connector spreads streams over several endpoints, so that edges open a stream for each request.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub spread: bool,
    /// The origin's health at the edge that holds the tunnel; absent from older edges.
    #[serde(default, skip_serializing_if = "OriginHealth::is_well")]
    pub health: OriginHealth,
    /// The reason, if unhealthy; absent from older edges.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<HealthFailure>,
}

/// The health of a tunnel's origin, as seen by the edge that holds the tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OriginHealth {
    /// Healthy, or not checked.
    #[default]
    Well,
    /// Ejected after several failed or timed-out connections in a row: it gets flows only if no other origin is usable.
    LeftOut,
    /// Unhealthy by its health checks: it gets no flows.
    Unwell,
}

impl OriginHealth {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
    fn is_well(&self) -> bool {
        *self == Self::Well
    }
}

/// A request that an edge served, as shown in its access log and the connector's live log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RequestRecord {
    /// Time of arrival, in milliseconds since 1970 (UTC).
    pub at_ms: i64,
    /// Its id, as in the `X-Request-Id` header.
    pub request_id: String,
    /// The method.
    pub method: String,
    /// Path and query, cut to [`RequestRecord::MAX_TARGET_BYTES`].
    pub target: String,
    /// HTTP/1.0, HTTP/1.1 or HTTP/2.0.
    pub version: String,
    /// The status of the response.
    pub status: u16,
    /// Body bytes from the client.
    pub bytes_in: u64,
    /// Body bytes to the client.
    pub bytes_out: u64,
    /// Time from the request's head to the end of its response, in microseconds.
    pub duration_us: u64,
    /// The client's address.
    pub client: std::net::SocketAddr,
    /// Its tunnel, for connectors with several; absent from older edges.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tunnel: Option<TunnelId>,
    /// Number of records dropped before this one because of the rate limit; 0 in the access log.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub omitted_before: u32,
    /// The client's identity, if the socket requires one: an e-mail address, or `service:` and the name of a service
    /// token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// The rule that decided about access.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The reason of a refusal, such as `denied` or `limited`; `target` has no query then. For a request that was sent
    /// to an origin: the reason of its failure, such as `origin-refused`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl RequestRecord {
    /// The longest target of a record, in bytes.
    pub const MAX_TARGET_BYTES: usize = 1_024;
    /// Reason of a failure: the origin speaks TLS, but the socket's type is for origins without TLS.
    pub const ORIGIN_SPEAKS_TLS: &str = "origin-speaks-tls";
}
