//! Direct origins: addresses that edges dial themselves, in addition to the tunnels of a socket.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{Capacity, DirectOriginId, OriginAddr, PathRoute, RegionName, SocketId, TunnelId};

/// The most direct origins of one socket.
pub const MAX_DIRECT_ORIGINS_PER_SOCKET: usize = 64;
/// The longest server name of an origin's certificate, in bytes.
const MAX_SERVER_NAME_BYTES: usize = 253;
/// The largest CA certificates in PEM of one direct origin, in bytes as in JSON: all edges hold them in memory, and
/// those of one socket must fit in one entry of the bus.
pub const MAX_ORIGIN_CA_BYTES: usize = 8 * 1024;

/// How edges verify the certificate of an origin with TLS (`https` sockets). Without settings: by the host name and the
/// CAs of the edge's machine.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OriginTlsSettings {
    /// The name for SNI and for the verification of the certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_name: Option<String>,
    /// CA certificates in PEM that replace the CAs of the edge's machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<String>,
    /// The SHA-256 of the only accepted certificate, `sha256:` and 64 hex digits; its content is ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pin: Option<String>,
}

/// Reason why TLS settings are invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OriginTlsSettingsError {
    /// The server name is malformed.
    #[error("{0:?} is no name that a certificate can have")]
    ServerName(String),
    /// The CA certificates are too long or missing.
    #[error("the authority is 1 to {MAX_ORIGIN_CA_BYTES} bytes of certificates in PEM, in ASCII")]
    Ca,
    /// The pin is malformed.
    #[error("a pin is sha256: and 64 hex digits, the SHA-256 of the certificate in DER")]
    Pin,
    /// Both a pin and CA certificates are set.
    #[error("a pin is believed whatever authority has signed the certificate: leave one of both out")]
    PinAndCa,
}

impl OriginTlsSettings {
    /// Whether nothing is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Checks the settings. The content of the PEM is not checked.
    ///
    /// # Errors
    /// The first problem.
    pub fn check(&self) -> Result<(), OriginTlsSettingsError> {
        if let Some(name) = &self.server_name {
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b':');
            if name.is_empty() || name.len() > MAX_SERVER_NAME_BYTES || !name.bytes().all(is_name) {
                return Err(OriginTlsSettingsError::ServerName(name.chars().take(64).collect()));
            }
        }
        if let Some(ca) = &self.ca {
            let is_escaped = |byte: &u8| matches!(byte, b'\n' | b'\r' | b'\t' | b'"' | b'\\');
            let is_text = ca.bytes().all(|byte| is_escaped(&byte) || matches!(byte, b' '..=b'~'));
            let bytes = ca.len() + ca.bytes().filter(is_escaped).count();
            if !is_text || bytes > MAX_ORIGIN_CA_BYTES || !ca.contains("-----BEGIN CERTIFICATE-----") {
                return Err(OriginTlsSettingsError::Ca);
            }
        }
        if let Some(pin) = &self.pin {
            let hex = pin.strip_prefix("sha256:").ok_or(OriginTlsSettingsError::Pin)?;
            if hex.len() != 64 || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                return Err(OriginTlsSettingsError::Pin);
            }
        }
        if self.pin.is_some() && self.ca.is_some() {
            return Err(OriginTlsSettingsError::PinAndCa);
        }
        Ok(())
    }
}

/// A direct origin: an address that edges dial themselves, for one socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectOrigin {
    /// Its id.
    pub id: DirectOriginId,
    /// The socket it belongs to.
    pub socket: SocketId,
    /// Its address.
    pub address: OriginAddr,
    /// Its region; `None`: that of each edge that dials it.
    pub region: Option<RegionName>,
    /// Its weight relative to the socket's other origins; 0 gets no new flows.
    pub weight: u16,
    /// How its certificate is verified, if it speaks TLS.
    pub tls: OriginTlsSettings,
    /// The paths of the socket that it serves.
    pub path: PathRoute,
    /// What it can carry.
    pub capacity: Capacity,
    /// Time of creation, in seconds since 1970 (UTC).
    pub created_at: i64,
}

/// A direct origin as edges know it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectOriginRoute {
    /// The origin.
    pub id: DirectOriginId,
    /// Its address.
    pub address: OriginAddr,
    /// Its region; `None`: that of each edge that dials it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<RegionName>,
    /// Its weight relative to the socket's other origins; 0 gets no new flows.
    pub weight: u16,
    /// How its certificate is verified, if it speaks TLS.
    #[serde(default, skip_serializing_if = "OriginTlsSettings::is_empty")]
    pub tls: OriginTlsSettings,
    /// The paths of the socket that it serves.
    #[serde(default, skip_serializing_if = "PathRoute::is_plain")]
    pub path: PathRoute,
    /// What it can carry.
    #[serde(default, skip_serializing_if = "Capacity::is_empty")]
    pub capacity: Capacity,
}

impl From<DirectOrigin> for DirectOriginRoute {
    fn from(origin: DirectOrigin) -> Self {
        let DirectOrigin { id, address, region, weight, tls, path, capacity, .. } = origin;
        Self { id, address, region, weight, tls, path, capacity }
    }
}

/// Reference to an origin of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OriginRef {
    /// The origin behind this tunnel.
    Tunnel(TunnelId),
    /// A direct origin.
    Direct(DirectOriginId),
}

impl OriginRef {
    /// The tunnel, if it is behind one.
    #[must_use]
    pub fn tunnel(self) -> Option<TunnelId> {
        match self {
            Self::Tunnel(id) => Some(id),
            Self::Direct(_) => None,
        }
    }

    /// The direct origin, if it is one.
    #[must_use]
    pub fn direct(self) -> Option<DirectOriginId> {
        match self {
            Self::Tunnel(_) => None,
            Self::Direct(id) => Some(id),
        }
    }

    /// The bytes of its id, unique among all origins.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 16] {
        match self {
            Self::Tunnel(id) => id.as_bytes(),
            Self::Direct(id) => id.as_bytes(),
        }
    }
}

impl From<TunnelId> for OriginRef {
    fn from(id: TunnelId) -> Self {
        Self::Tunnel(id)
    }
}

impl From<DirectOriginId> for OriginRef {
    fn from(id: DirectOriginId) -> Self {
        Self::Direct(id)
    }
}

impl fmt::Display for OriginRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tunnel(id) => id.fmt(f),
            Self::Direct(id) => write!(f, "direct:{id}"),
        }
    }
}

/// The text is not a reference to an origin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected the id of a tunnel, or direct: and the id of a direct origin")]
pub struct OriginRefError;

impl FromStr for OriginRef {
    type Err = OriginRefError;

    fn from_str(text: &str) -> Result<Self, OriginRefError> {
        match text.strip_prefix("direct:") {
            Some(id) => id.parse().map(Self::Direct).map_err(|_| OriginRefError),
            None => text.parse().map(Self::Tunnel).map_err(|_| OriginRefError),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_reference_keeps_its_kind_as_text() {
        let (tunnel, direct) = (TunnelId::from_random([1; 16]), DirectOriginId::from_random([1; 16]));
        for origin in [OriginRef::from(tunnel), OriginRef::from(direct)] {
            assert_eq!(origin.to_string().parse(), Ok(origin));
        }
        assert_eq!(OriginRef::from(direct).to_string(), format!("direct:{direct}"));
        assert_eq!((OriginRef::from(direct).tunnel(), OriginRef::from(tunnel).tunnel()), (None, Some(tunnel)));
        assert!("direct:x".parse::<OriginRef>().is_err() && "x".parse::<OriginRef>().is_err());
    }

    #[test]
    fn how_an_origin_proves_who_it_is_has_a_form() {
        let pem = "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n".to_owned();
        let pin = Some(format!("sha256:{}", "0f".repeat(32)));
        let plain = OriginTlsSettings::default;
        for good in [
            plain(),
            OriginTlsSettings { server_name: Some("app.internal".into()), ca: Some(pem.clone()), pin: None },
            OriginTlsSettings { pin: pin.clone(), ..plain() },
        ] {
            assert_eq!(good.check(), Ok(()));
        }
        let refused = |tls: OriginTlsSettings| tls.check().unwrap_err().to_string();
        assert!(refused(OriginTlsSettings { server_name: Some("a b".into()), ..plain() }).contains("no name"));
        assert!(refused(OriginTlsSettings { ca: Some("x".into()), ..plain() }).contains("PEM"));
        assert!(refused(OriginTlsSettings { ca: Some(pem.repeat(1_000)), ..plain() }).contains("8192 bytes"));
        assert!(refused(OriginTlsSettings { ca: Some(format!("{pem}\u{1}")), ..plain() }).contains("ASCII"));
        assert!(refused(OriginTlsSettings { pin: Some("sha256:00".into()), ..plain() }).contains("64 hex"));
        assert!(refused(OriginTlsSettings { ca: Some(pem), pin, server_name: None }).contains("leave one"));
    }
}
