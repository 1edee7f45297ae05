//! How people name a socket.

use std::{fmt, str::FromStr};

use sallyport_model::{SocketId, SocketName};

/// A socket by its id or by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SocketRef {
    /// Its id.
    Id(SocketId),
    /// The first label of its DNS name.
    Name(SocketName),
}

/// The text names no socket.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} names no socket: expected its id, or its name such as wandering-shape-7752")]
pub struct SocketRefError(pub String);

impl FromStr for SocketRef {
    type Err = SocketRefError;

    /// Reads an id, a name, a full DNS name, or the socket's URL.
    fn from_str(text: &str) -> Result<Self, SocketRefError> {
        let text = text.trim();
        if let Ok(id) = text.parse() {
            return Ok(Self::Id(id));
        }
        let lower = text.to_ascii_lowercase();
        let rest = match lower.split_once("://") {
            Some(("https" | "tcp" | "tls" | "udp", rest)) if !rest.contains("://") => rest,
            Some(_) => "",
            None => &lower,
        };
        let host = rest.split(['/', ':']).next().unwrap_or_default();
        let label = host.split('.').next().unwrap_or_default();
        label.parse().map(Self::Name).map_err(|_| SocketRefError(text.chars().take(100).collect()))
    }
}

impl fmt::Display for SocketRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => id.fmt(f),
            Self::Name(name) => name.fmt(f),
        }
    }
}

impl From<SocketId> for SocketRef {
    fn from(id: SocketId) -> Self {
        Self::Id(id)
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
            "Wandering-Shape-7752.localhost",
            "https://wandering-shape-7752.localhost:8443/x?y",
            "tcp://wandering-shape-7752.localhost:20000",
            "tls://wandering-shape-7752.localhost:8443",
            "udp://wandering-shape-7752.localhost:20001",
            " wandering-shape-7752\n",
        ] {
            assert_eq!(text.parse::<SocketRef>().unwrap().to_string(), "wandering-shape-7752", "{text}");
        }
    }

    #[test]
    fn nothing_that_could_change_a_path_gets_through() {
        for bad in ["", "/", "../x", "a b", "a%2f", "http://a", "ftp://a", "tcp://https://a", "äö", "a_b", "?x"] {
            let error = bad.parse::<SocketRef>().unwrap_err();
            assert!(error.to_string().contains("names no socket"), "{error}");
        }
    }
}
