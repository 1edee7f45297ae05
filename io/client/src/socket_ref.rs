//! References to sockets and tunnels.

use std::{fmt, str::FromStr};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use sallyport_model::{DisplayName, SocketId, SocketName, TunnelId};

/// All characters that could change a path, dots included: a segment of dots alone would mean another folder.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'~');

/// A socket by its id, its public name, or its display name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SocketRef {
    /// Its id.
    Id(SocketId),
    /// The first label of its DNS name.
    Name(SocketName),
    /// A display name, a DNS name, or an abbreviated id, which the API resolves.
    Called(DisplayName),
    /// Whichever socket a tunnel has that is named beside it.
    Any,
}

/// The text is no reference to a socket.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a socket: expected its name, its public name such as wandering-shape-7752, or its id")]
pub struct SocketRefError(pub String);

impl SocketRef {
    /// The socket as one segment of a path.
    pub(crate) fn segment(&self) -> String {
        segment(&self.to_string()).to_string()
    }
}

/// The text as one segment of a path.
fn segment(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, SEGMENT)
}

impl FromStr for SocketRef {
    type Err = SocketRefError;

    /// Parses an id or its abbreviation, a name, a DNS name, or the socket's URL.
    fn from_str(text: &str) -> Result<Self, SocketRefError> {
        let text = text.trim();
        if let Ok(id) = text.parse() {
            return Ok(Self::Id(id));
        }
        let wrong = || SocketRefError(text.chars().take(100).collect());
        let Some((scheme, rest)) = text.split_once("://") else {
            return text.parse().map(Self::Called).map_err(|_| wrong());
        };
        if !["https", "tcp", "tls", "udp"].contains(&&*scheme.to_ascii_lowercase()) || rest.contains("://") {
            return Err(wrong());
        }
        let host = rest.split(['/', ':']).next().unwrap_or_default().to_ascii_lowercase();
        let label = host.split('.').next().unwrap_or_default();
        label.parse().map(Self::Name).map_err(|_| wrong())
    }
}

impl fmt::Display for SocketRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => id.fmt(f),
            Self::Name(name) => name.fmt(f),
            Self::Called(name) => name.fmt(f),
            Self::Any => f.write_str("-"),
        }
    }
}

impl From<SocketId> for SocketRef {
    fn from(id: SocketId) -> Self {
        Self::Id(id)
    }
}

/// A tunnel by its id or its abbreviation, or by its display name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TunnelRef {
    /// Its id.
    Id(TunnelId),
    /// A display name or an abbreviated id, which the API resolves.
    Called(DisplayName),
}

/// The text is no reference to a tunnel.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a tunnel: expected its name or its id")]
pub struct TunnelRefError(pub String);

impl TunnelRef {
    /// The tunnel as one segment of a path.
    pub(crate) fn segment(&self) -> String {
        segment(&self.to_string()).to_string()
    }
}

impl FromStr for TunnelRef {
    type Err = TunnelRefError;

    fn from_str(text: &str) -> Result<Self, TunnelRefError> {
        if let Ok(id) = text.trim().parse() {
            return Ok(Self::Id(id));
        }
        text.parse().map(Self::Called).map_err(|_| TunnelRefError(text.chars().take(100).collect()))
    }
}

impl fmt::Display for TunnelRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => id.fmt(f),
            Self::Called(name) => name.fmt(f),
        }
    }
}

impl From<TunnelId> for TunnelRef {
    fn from(id: TunnelId) -> Self {
        Self::Id(id)
    }
}

impl From<DisplayName> for TunnelRef {
    fn from(name: DisplayName) -> Self {
        Self::Called(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_name_dns_name_and_url_all_name_a_socket() {
        let id = "0b7e3c1a-5f0e-4c57-9f63-6a1f0f9e2d11";
        assert_eq!(id.parse::<SocketRef>().unwrap().to_string(), id);
        for text in [
            "wandering-shape-7752",
            "https://wandering-shape-7752.localhost:8443/x?y",
            "HTTPS://Wandering-Shape-7752.localhost:8443",
            "tcp://wandering-shape-7752.localhost:20000",
            "tls://wandering-shape-7752.localhost:8443",
            "udp://wandering-shape-7752.localhost:20001",
            " wandering-shape-7752\n",
        ] {
            assert_eq!(text.parse::<SocketRef>().unwrap().to_string(), "wandering-shape-7752", "{text}");
        }
        for text in ["my test service", "localhost:8000", "Größe", "Wandering-Shape-7752.localhost", "0b7e3c1a"] {
            assert_eq!(text.parse::<SocketRef>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn nothing_that_could_change_a_path_gets_through() {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_~%".contains(c);
        for text in ["/", "..", "../x", "a b", "a%2f", "äö", "a_b", "?x", "#", "a;b"] {
            let segment = text.parse::<SocketRef>().unwrap().segment();
            assert!(!segment.is_empty() && segment.chars().all(is_plain), "{text}: {segment}");
            let segment = text.parse::<TunnelRef>().unwrap().segment();
            assert!(!segment.is_empty() && segment.chars().all(is_plain), "{text}: {segment}");
        }
        for bad in ["", " ", "a\nb", "http://a", "ftp://a", "tcp://https://a", "https://"] {
            let error = bad.parse::<SocketRef>().unwrap_err();
            assert!(error.to_string().contains("is not a socket"), "{error}");
        }
        assert!("a\u{202e}b".parse::<TunnelRef>().unwrap_err().to_string().contains("is not a tunnel"));
    }
}
