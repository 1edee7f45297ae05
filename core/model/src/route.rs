//! What an edge needs to know of a socket to serve it, and what it tells back.

use serde::{Deserialize, Serialize};

use crate::{AccountId, OriginProtocol, SocketId, SocketName, SocketType, TunnelId};

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
    /// The tunnels that may attach, with the hash of the credential each must show.
    pub tunnels: Vec<(TunnelId, CredentialHash)>,
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
    /// How many requests before this one were left out, because nobody could have read them; 0 in the access log.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub omitted_before: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl RequestRecord {
    /// The longest target that a record keeps, in bytes.
    pub const MAX_TARGET_BYTES: usize = 1_024;
}
