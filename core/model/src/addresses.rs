//! Types for the two ends of a connection, so that their addresses are never mixed up.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    str::FromStr,
};

use serde::{Deserialize, Serialize};

/// The local end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Local<T>(pub T);

/// The remote end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Remote<T>(pub T);

/// The address of a client that connects to an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ClientAddr(pub SocketAddr);

/// The address on which an edge accepted a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ServerAddr(pub SocketAddr);

/// The longest name of a host, in bytes (RFC 1035 section 2.3.4, without the root's dot).
const MAX_HOST_BYTES: usize = 253;

/// The address of an origin, as a connector or an edge dials it: a host name or an address, and a port.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OriginAddr {
    /// Host name or IP address, without brackets.
    pub host: String,
    /// TCP port; UDP port for datagrams.
    pub port: u16,
}

/// The text is not an origin's address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no address of an origin: {why}")]
pub struct OriginAddrError {
    /// The text, cut to 64 characters.
    pub text: String,
    /// The problem, and the expected form.
    pub why: &'static str,
}

impl OriginAddr {
    /// The IP address, if the host is one.
    #[must_use]
    pub fn ip(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }
}

impl FromStr for OriginAddr {
    type Err = OriginAddrError;

    /// Parses `HOST:PORT`, `ADDRESS:PORT` or `[ADDRESS]:PORT`; each address has one normal form.
    fn from_str(text: &str) -> Result<Self, OriginAddrError> {
        let wrong = |why| OriginAddrError { text: text.chars().take(64).collect(), why };
        let expected = "expected HOST:PORT, such as 10.0.0.7:8080, app.internal:443 or [fd00::7]:8080";
        let (host, port) = text.rsplit_once(':').ok_or_else(|| wrong(expected))?;
        let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        let port = port.parse::<u16>().ok().filter(|port| is_number && *port > 0);
        let port = port.ok_or_else(|| wrong("the port must be a number from 1 to 65535"))?;
        let bracketed = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        if let Some(address) = bracketed {
            let six = address.parse::<std::net::Ipv6Addr>();
            let six = six.map_err(|_| wrong("the brackets must contain an IPv6 address without a zone"))?;
            // An IPv4-mapped address is that IPv4 address.
            return Ok(Self { host: IpAddr::V6(six).to_canonical().to_string(), port });
        }
        if let Ok(four) = host.parse::<std::net::Ipv4Addr>() {
            return Ok(Self { host: four.to_string(), port });
        }
        if host.contains(':') {
            return Err(wrong("an IPv6 address needs brackets, as in [fd00::7]:8080"));
        }
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        let is_label = |label: &str| {
            (1..=63).contains(&label.len())
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
        };
        if host.len() > MAX_HOST_BYTES || !host.split('.').all(is_label) {
            return Err(wrong(expected));
        }
        // Some programs take 127.1, 0x7f000001 and 2130706433 for addresses.
        let last = host.rsplit('.').next().unwrap_or_default();
        if last.bytes().all(|byte| byte.is_ascii_digit()) || last.starts_with("0x") {
            return Err(wrong("a name must not end in a number: write an IPv4 address as four numbers from 0 to 255"));
        }
        Ok(Self { host, port })
    }
}

impl fmt::Display for OriginAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl<T: fmt::Display> fmt::Display for Local<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T: fmt::Display> fmt::Display for Remote<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for ClientAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for ServerAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Whether the address is private, link-local, or of this machine itself.
#[must_use]
pub fn is_private(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(four) => {
            let is_shared = four.octets()[0] == 100 && four.octets()[1] & 0xc0 == 64;
            four.is_private() || four.is_loopback() || four.is_link_local() || four.is_unspecified() || is_shared
        }
        IpAddr::V6(six) => {
            six.is_loopback() || six.is_unspecified() || six.is_unique_local() || six.is_unicast_link_local()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_an_origin_has_one_spelling() {
        for (text, spelt) in [
            ("10.0.0.7:80", "10.0.0.7:80"),
            ("App.Internal.:443", "app.internal:443"),
            ("localhost:1", "localhost:1"),
            ("my_app-1.svc:8080", "my_app-1.svc:8080"),
            ("2048-app:8080", "2048-app:8080"),
            ("[FD00::0007]:80", "[fd00::7]:80"),
            ("[::ffff:169.254.169.254]:80", "169.254.169.254:80"),
        ] {
            let address: OriginAddr = text.parse().unwrap();
            assert_eq!(address.to_string(), spelt);
            assert_eq!(spelt.parse::<OriginAddr>(), Ok(address));
        }
        for (text, says) in [
            ("", "expected HOST:PORT"),
            ("app", "expected HOST:PORT"),
            (":80", "expected HOST:PORT"),
            ("a..b:80", "expected HOST:PORT"),
            ("-a:80", "expected HOST:PORT"),
            ("http://app:80", "brackets"),
            ("a b:80", "expected HOST:PORT"),
            ("app:", "1 to 65535"),
            ("app:0", "1 to 65535"),
            ("app:+80", "1 to 65535"),
            ("app:65536", "1 to 65535"),
            ("fd00::7:80", "brackets"),
            ("[app]:80", "IPv6"),
            ("[fe80::1%eth0]:80", "without a zone"),
            ("127.1:80", "four numbers"),
            ("2130706433:80", "four numbers"),
            ("0x7f000001:80", "four numbers"),
            ("10.0.0.256:80", "four numbers"),
            ("010.0.0.1:80", "four numbers"),
        ] {
            let error = text.parse::<OriginAddr>().unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
        assert!(format!("{}:80", "a".repeat(64)).parse::<OriginAddr>().is_err());
    }

    #[test]
    fn an_ipv6_origin_is_bracketed() {
        assert_eq!(OriginAddr { host: "::1".into(), port: 80 }.to_string(), "[::1]:80");
        assert_eq!(OriginAddr { host: "localhost".into(), port: 80 }.to_string(), "localhost:80");
    }
}
