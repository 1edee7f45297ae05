//! Direct origins: addresses that edges dial themselves, beside the tunnels of a socket.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{DirectOriginId, OriginAddr, PathRoute, RegionName, SocketId, TunnelId};

/// How many direct origins one socket may have.
pub const MAX_DIRECT_ORIGINS_PER_SOCKET: usize = 64;
/// The longest name that an origin's certificate is to have, in bytes.
const MAX_SERVER_NAME_BYTES: usize = 253;
/// The largest roots in PEM that one direct origin is verified by, in bytes as JSON has them: all edges hold them in memory, and
/// those of one socket fit together into one entry of the bus.
pub const MAX_ORIGIN_CA_BYTES: usize = 8 * 1024;

/// How an origin that speaks TLS (those of `https` sockets) proves to edges who it is. With nothing set, by a certificate
/// for its host, of an authority that the edge's machine knows.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OriginTlsSettings {
    /// The name that its certificate must have, and that it is asked for by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_name: Option<String>,
    /// The certificates in PEM of the authorities that are believed, instead of those of the edge's machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<String>,
    /// The SHA-256 of the very certificate that it must show, `sha256:` and 64 hex digits, whatever stands in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pin: Option<String>,
}

/// Why an origin could not be verified like this.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OriginTlsSettingsError {
    /// A name that no certificate has.
    #[error("{0:?} is no name that a certificate can have")]
    ServerName(String),
    /// Roots that are too long, or none.
    #[error("the authority is 1 to {MAX_ORIGIN_CA_BYTES} bytes of certificates in PEM, in ASCII")]
    Ca,
    /// No fingerprint.
    #[error("a pin is sha256: and 64 hex digits, the SHA-256 of the certificate in DER")]
    Pin,
    /// Two ways at once.
    #[error("a pin is believed whatever authority has signed the certificate: leave one of both out")]
    PinAndCa,
}

impl OriginTlsSettings {
    /// Whether nothing is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether an origin can be verified like this. What is in the PEM is not looked at here.
    ///
    /// # Errors
    /// The first thing that is wrong.
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
    /// Where it is.
    pub address: OriginAddr,
    /// In which region it counts; `None`: in that of each edge that dials it.
    pub region: Option<RegionName>,
    /// Its share of the socket's flows beside the other origins; 0 takes no new ones.
    pub weight: u16,
    /// How it proves who it is, where it speaks TLS.
    pub tls: OriginTlsSettings,
    /// Which paths of the socket it serves.
    pub path: PathRoute,
    /// When it was made, in seconds since 1970 (UTC).
    pub created_at: i64,
}

/// A direct origin as edges know it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectOriginRoute {
    /// The origin.
    pub id: DirectOriginId,
    /// Where it is.
    pub address: OriginAddr,
    /// In which region it counts; `None`: in that of each edge that dials it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<RegionName>,
    /// Its share of the socket's flows beside the other origins; 0 takes no new ones.
    pub weight: u16,
    /// How it proves who it is, where it speaks TLS.
    #[serde(default, skip_serializing_if = "OriginTlsSettings::is_empty")]
    pub tls: OriginTlsSettings,
    /// Which paths of the socket it serves.
    #[serde(default, skip_serializing_if = "PathRoute::is_plain")]
    pub path: PathRoute,
}

impl From<DirectOrigin> for DirectOriginRoute {
    fn from(origin: DirectOrigin) -> Self {
        let DirectOrigin { id, address, region, weight, tls, path, .. } = origin;
        Self { id, address, region, weight, tls, path }
    }
}

/// An origin of a socket, by what it is reached through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OriginRef {
    /// The one behind this tunnel.
    Tunnel(TunnelId),
    /// One that edges dial themselves.
    Direct(DirectOriginId),
}

impl OriginRef {
    /// The tunnel that it is behind.
    #[must_use]
    pub fn tunnel(self) -> Option<TunnelId> {
        match self {
            Self::Tunnel(id) => Some(id),
            Self::Direct(_) => None,
        }
    }

    /// Which of those that edges dial themselves it is.
    #[must_use]
    pub fn direct(self) -> Option<DirectOriginId> {
        match self {
            Self::Tunnel(_) => None,
            Self::Direct(id) => Some(id),
        }
    }

    /// The bytes of its id, of which no other origin has the same.
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

/// The text is no origin.
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
    fn an_origin_is_told_apart_by_what_it_is_reached_through() {
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
