//! The facts that a client needs before a login.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What this installation is. `GET /v1/info`, without authentication.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Info {
    /// The version of the program, such as `0.1.0`.
    pub version: String,
    /// The domain under which sockets get their names, such as `localhost`.
    pub domain: String,
    /// The host that connectors dial.
    pub tunnel_host: String,
    /// The TCP port that connectors dial.
    pub tunnel_port: u16,
    /// The UDP port that connectors dial over QUIC; absent when the edge takes none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tunnel_quic_port: Option<u16>,
    /// `sha256:` and the hexadecimal SHA-256 of the root certificate; absent when the installation does not use its own
    /// certificate authority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_fingerprint: Option<String>,
    /// The root certificate in PEM. Compare its fingerprint with one from another source before trusting it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_pem: Option<String>,
    /// Whether names have certificates of public authorities, so that clients need not know the root certificate.
    #[serde(default)]
    pub has_public_names: bool,
}
