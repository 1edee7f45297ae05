//! Sockets and tunnels, as control stores them.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{AccountId, SocketId, SocketName, TunnelId};

/// The longest display name, in characters.
pub const MAX_DISPLAY_NAME_CHARS: usize = 100;
/// The most tunnels of one socket.
pub const MAX_TUNNELS_PER_SOCKET: usize = 256;

/// The public protocol of a socket, and the protocol of its origins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SocketType {
    /// Public HTTPS, plain HTTP to the origin.
    Http,
    /// Public HTTPS, HTTPS to the origin.
    Https,
    /// TCP on a port of its own.
    Tcp,
    /// TLS, by name on the shared port and on a port of its own.
    Tls,
    /// UDP on a port of its own.
    Udp,
}

impl SocketType {
    /// Every type.
    pub const ALL: [Self; 5] = [Self::Http, Self::Https, Self::Tcp, Self::Tls, Self::Udp];

    /// Whether the shared port routes by the request's host.
    #[must_use]
    pub fn is_http(self) -> bool {
        matches!(self, Self::Http | Self::Https)
    }

    /// Whether a socket of this type has a port of its own.
    #[must_use]
    pub fn has_port(self) -> bool {
        !self.is_http()
    }

    /// The type as text.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
            Self::Tcp => "tcp",
            Self::Tls => "tls",
            Self::Udp => "udp",
        }
    }
}

impl fmt::Display for SocketType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text is not a socket type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a socket type: use http, https, tcp, tls or udp")]
pub struct UnknownSocketType(pub String);

impl FromStr for SocketType {
    type Err = UnknownSocketType;
    fn from_str(text: &str) -> Result<Self, UnknownSocketType> {
        match text {
            "http" => Ok(Self::Http),
            "https" => Ok(Self::Https),
            "tcp" => Ok(Self::Tcp),
            "tls" => Ok(Self::Tls),
            "udp" => Ok(Self::Udp),
            other => Err(UnknownSocketType(other.chars().take(64).collect())),
        }
    }
}

/// The HTTP version between edge and origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OriginProtocol {
    /// HTTP/2 for gRPC requests, HTTP/1.1 for all others.
    #[default]
    Auto,
    /// HTTP/1.1 always.
    Http1,
    /// HTTP/2 always: with prior knowledge (h2c) for `http` sockets, by ALPN for `https` sockets.
    Http2,
}

impl OriginProtocol {
    /// The protocol as text.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Http1 => "http1",
            Self::Http2 => "http2",
        }
    }
}

impl fmt::Display for OriginProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text is not an origin protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an origin protocol: use auto, http1 or http2")]
pub struct UnknownOriginProtocol(pub String);

impl FromStr for OriginProtocol {
    type Err = UnknownOriginProtocol;
    fn from_str(text: &str) -> Result<Self, UnknownOriginProtocol> {
        match text {
            "auto" => Ok(Self::Auto),
            "http1" => Ok(Self::Http1),
            "http2" | "h2c" => Ok(Self::Http2),
            other => Err(UnknownOriginProtocol(other.chars().take(64).collect())),
        }
    }
}

/// The display name of a socket: any single line of text, for people only.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DisplayName(String);

/// The text is not a display name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "a name is one line of 1 to {MAX_DISPLAY_NAME_CHARS} characters, without control characters, invisible characters \
     or characters that change the direction of text"
)]
pub struct DisplayNameError;

/// Whether the character could make a name look like another one: control characters, bidirectional marks (Unicode
/// Standard Annex 9), and invisible characters. The joiners that some scripts and emoji need are allowed.
#[must_use]
pub fn misleads(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{feff}')
        || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{fff9}'..='\u{fffb}')
        || matches!(c, '\u{e0000}'..='\u{e007f}')
}

impl DisplayName {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The comparison key: equal for names that differ only in case or in the number of spaces.
    #[must_use]
    pub fn key(&self) -> String {
        self.0.split_whitespace().map(str::to_lowercase).collect::<Vec<_>>().join(" ")
    }

    /// The name with a number appended: `blog (2)`. A long name is cut.
    #[must_use]
    pub fn numbered(&self, number: u32) -> Self {
        let number = format!(" ({number})");
        let kept: String = self.0.chars().take(MAX_DISPLAY_NAME_CHARS - number.len()).collect();
        Self(format!("{}{number}", kept.trim_end()))
    }

    /// A stored name from a version with laxer rules: characters that are no longer allowed become U+FFFD.
    ///
    /// # Errors
    /// The text was never a valid name.
    pub fn from_stored(text: &str) -> Result<Self, DisplayNameError> {
        text.chars().map(|c| if misleads(c) { char::REPLACEMENT_CHARACTER } else { c }).collect::<String>().parse()
    }
}

impl FromStr for DisplayName {
    type Err = DisplayNameError;
    fn from_str(text: &str) -> Result<Self, DisplayNameError> {
        let text = text.trim();
        if text.is_empty() || text.chars().count() > MAX_DISPLAY_NAME_CHARS || text.chars().any(misleads) {
            return Err(DisplayNameError);
        }
        Ok(Self(text.to_owned()))
    }
}

impl TryFrom<String> for DisplayName {
    type Error = DisplayNameError;
    fn try_from(text: String) -> Result<Self, DisplayNameError> {
        text.parse()
    }
}

impl From<DisplayName> for String {
    fn from(name: DisplayName) -> String {
        name.0
    }
}

impl fmt::Display for DisplayName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A public endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Socket {
    /// Its id.
    pub id: SocketId,
    /// Its account.
    pub account: AccountId,
    /// Its DNS label under the domain; generated, and never reused, not even after the socket was deleted.
    pub name: SocketName,
    /// Its display name.
    pub display_name: DisplayName,
    /// Its type.
    pub socket_type: SocketType,
    /// The HTTP version between edge and origin.
    pub origin_protocol: OriginProtocol,
    /// Basic authentication, if required.
    pub basic_auth: Option<crate::BasicAuth>,
    /// Its own port, for types that have one; permanent.
    pub port: Option<u16>,
    /// The owner's other settings.
    pub settings: crate::SocketSettings,
    /// The owner's labels.
    pub labels: crate::Labels,
    /// Time of creation, in seconds since 1970 (UTC).
    pub created_at: i64,
}

/// A tunnel of a socket, connected or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tunnel {
    /// Its id.
    pub id: TunnelId,
    /// Its socket.
    pub socket: SocketId,
    /// Its display name, if any.
    pub name: Option<DisplayName>,
    /// SHA-256 of the connector's credential.
    pub credential: crate::CredentialHash,
    /// Its weight relative to the socket's other tunnels; 0 gets no new flows.
    pub weight: u16,
    /// The port that an ssh client forwards to select this tunnel; unique among the tunnels of an account.
    pub forward_port: u16,
    /// The paths of the socket that it serves.
    pub path: crate::PathRoute,
    /// What its origin can carry.
    pub capacity: crate::Capacity,
    /// The owner's labels.
    pub labels: crate::Labels,
    /// Time of creation, in seconds since 1970 (UTC).
    pub created_at: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_written_the_same_in_json_and_text() {
        for kind in SocketType::ALL {
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("\"{kind}\""));
            assert_eq!(kind.to_string().parse::<SocketType>(), Ok(kind));
        }
        for protocol in [OriginProtocol::Auto, OriginProtocol::Http1, OriginProtocol::Http2] {
            assert_eq!(serde_json::to_string(&protocol).unwrap(), format!("\"{protocol}\""));
            assert_eq!(protocol.to_string().parse::<OriginProtocol>(), Ok(protocol));
        }
        assert!("gopher".parse::<SocketType>().unwrap_err().to_string().contains("use http, https, tcp"));
    }

    #[test]
    fn a_display_name_is_one_line() {
        assert_eq!(" my test service ".parse::<DisplayName>().unwrap().as_str(), "my test service");
        for bad in ["", "   ", "a\nb", "a\u{7}b"] {
            assert_eq!(bad.parse::<DisplayName>(), Err(DisplayNameError), "{bad:?}");
        }
        for bad in ["a\u{202e}b", "\u{2066}a", "a\u{200b}b", "a\u{feff}b", "soft\u{ad}ly"] {
            assert_eq!(bad.parse::<DisplayName>(), Err(DisplayNameError), "{bad:?}");
        }
        for good in ["Größe 👩\u{200d}💻", "می\u{200c}خواهم", "שלום"] {
            assert_eq!(good.parse::<DisplayName>().unwrap().as_str(), good);
        }
        assert_eq!(DisplayName::from_stored("a\u{202e}b").unwrap().as_str(), "a\u{fffd}b");
        assert_eq!(DisplayName::from_stored(" "), Err(DisplayNameError));
        assert!("x".repeat(101).parse::<DisplayName>().is_err());
    }

    #[test]
    fn names_that_people_take_for_the_same_are_the_same() {
        let key = |text: &str| text.parse::<DisplayName>().unwrap().key();
        assert_eq!(key("My  Test Service "), key("my test\u{3000}service"));
        assert_eq!(key("GRÖSSE"), key("grösse"));
        assert_ne!(key("my-test"), key("my test"));
        let name = |text: &str| text.parse::<DisplayName>().unwrap();
        assert_eq!(name("blog").numbered(2).as_str(), "blog (2)");
        let long = name(&"ü".repeat(MAX_DISPLAY_NAME_CHARS)).numbered(12);
        assert_eq!(long.as_str().chars().count(), MAX_DISPLAY_NAME_CHARS);
        assert!(long.as_str().ends_with("ü (12)") && long.as_str().parse::<DisplayName>().is_ok());
    }
}
