//! Host names: what `Host` and `:authority` may contain, and the socket's label in a name.

use std::{borrow::Cow, net::Ipv6Addr};

/// The longest host name without its trailing dot (RFC 1035 section 2.3.4), in bytes.
pub const MAX_HOST_BYTES: usize = 253;
/// The longest label of a host name (RFC 1035 section 2.3.4), in bytes.
pub const MAX_LABEL_BYTES: usize = 63;

/// Why a text is no host with an optional port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// The text is empty.
    #[error("the host is empty")]
    Empty,
    /// The host has a user name: `user@host`.
    #[error("the host has a user name in it")]
    UserInfo,
    /// The host has a character or a form that names and addresses do not have.
    #[error("the host is no name and no address")]
    Name,
    /// The name or one of its labels is too long.
    #[error("the host is longer than {MAX_HOST_BYTES} bytes, or a label of it longer than {MAX_LABEL_BYTES}")]
    Length,
    /// The text behind the colon is no port.
    #[error("the port is no number from 0 to 65535")]
    Port,
}

/// A host and an optional port, as in `Host`, `:authority` and absolute targets (RFC 9110 section 7.2).
///
/// Names may have letters, digits, `-`, `_` and dots. IPv4 addresses and bracketed IPv6 addresses are accepted too. The
/// percent-encoding and the sub-delimiters of RFC 3986 are refused, because no reachable host has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Authority<'a> {
    host: &'a str,
    port: Option<u16>,
}

impl<'a> Authority<'a> {
    /// Parses `host` or `host:port`.
    ///
    /// # Errors
    /// The first rule that the text breaks.
    pub fn parse(text: &'a [u8]) -> Result<Self, HostError> {
        let text = std::str::from_utf8(text).map_err(|_| HostError::Name)?;
        // No valid host or port contains `@`.
        Self::read(text).map_err(|error| if text.contains('@') { HostError::UserInfo } else { error })
    }

    fn read(text: &'a str) -> Result<Self, HostError> {
        if text.is_empty() {
            return Err(HostError::Empty);
        }
        if text.starts_with('[') {
            let end = text.find(']').ok_or(HostError::Name)?;
            let (host, rest) = text.split_at(end + 1);
            host[1..end].parse::<Ipv6Addr>().map_err(|_| HostError::Name)?;
            let port = match rest.strip_prefix(':') {
                Some(port) => Some(parse_port(port)?),
                None if rest.is_empty() => None,
                None => return Err(HostError::Name),
            };
            return Ok(Self { host, port });
        }
        let (host, port) = match text.bytes().position(|b| b == b':') {
            Some(colon) => (&text[..colon], Some(parse_port(&text[colon + 1..])?)),
            None => (text, None),
        };
        let host = host.strip_suffix('.').unwrap_or(host);
        check_name(host)?;
        Ok(Self { host, port })
    }

    /// The name or address as written, without a trailing dot. IPv6 addresses keep their brackets.
    #[must_use]
    pub fn host(&self) -> &'a str {
        self.host
    }

    /// The port, if one is written.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// Whether both name the same host and port. A missing port equals both default ports of HTTP, 80 and 443.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let is_default = |port: Option<u16>| port.is_none_or(|port| port == 80 || port == 443);
        let ports_agree = self.port == other.port
            || (self.port.is_none() && is_default(other.port))
            || (other.port.is_none() && is_default(self.port));
        ports_agree && self.host.eq_ignore_ascii_case(other.host)
    }
}

fn parse_port(text: &str) -> Result<u16, HostError> {
    if text.is_empty() || text.len() > 5 || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(HostError::Port);
    }
    text.parse().map_err(|_| HostError::Port)
}

fn check_name(name: &str) -> Result<(), HostError> {
    if name.is_empty() {
        return Err(HostError::Empty);
    }
    if name.len() > MAX_HOST_BYTES {
        return Err(HostError::Length);
    }
    let mut label_bytes = 0;
    for byte in name.bytes() {
        match NAME_BYTES[usize::from(byte)] {
            NameByte::Label => label_bytes += 1,
            NameByte::Dot => {
                check_label(label_bytes)?;
                label_bytes = 0;
            }
            NameByte::Invalid => return Err(HostError::Name),
        }
    }
    check_label(label_bytes)
}

fn check_label(bytes: usize) -> Result<(), HostError> {
    match bytes {
        0 => Err(HostError::Name),
        1..=MAX_LABEL_BYTES => Ok(()),
        _ => Err(HostError::Length),
    }
}

/// What a byte of a name is.
#[derive(Debug, Clone, Copy)]
enum NameByte {
    Label,
    Dot,
    Invalid,
}

/// The class of each byte, as a table because every request has a host.
const NAME_BYTES: [NameByte; 256] = {
    let mut all = [NameByte::Invalid; 256];
    let mut byte = 0;
    while byte < 128_u8 {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') {
            all[byte as usize] = NameByte::Label;
        }
        byte += 1;
    }
    all[b'.' as usize] = NameByte::Dot;
    all
};

/// The single label before the domain, in lower case: `wandering-shape-7752` of `Wandering-Shape-7752.localhost` under
/// `localhost`. `None` for the domain itself, for deeper names, and for other names.
///
/// `host` has no port and no trailing dot, as returned by [`Authority::host`]. `domain` is lower case.
#[must_use]
pub fn label_under<'a>(host: &'a str, domain: &str) -> Option<Cow<'a, str>> {
    let label_bytes = host.len().checked_sub(domain.len() + 1)?;
    let (label, rest) = host.split_at_checked(label_bytes)?;
    let parent = rest.strip_prefix('.')?;
    if label.is_empty() || label.contains('.') || !parent.eq_ignore_ascii_case(domain) {
        return None;
    }
    Some(if label.bytes().any(|b| b.is_ascii_uppercase()) {
        Cow::Owned(label.to_ascii_lowercase())
    } else {
        Cow::Borrowed(label)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<(&str, Option<u16>), HostError> {
        Authority::parse(text.as_bytes()).map(|a| (a.host(), a.port()))
    }

    #[test]
    fn names_addresses_and_ports_are_parsed() {
        assert_eq!(parse("example.com"), Ok(("example.com", None)));
        assert_eq!(parse("Example.COM.:8443"), Ok(("Example.COM", Some(8443))));
        assert_eq!(parse("127.0.0.1:80"), Ok(("127.0.0.1", Some(80))));
        assert_eq!(parse("[::1]:443"), Ok(("[::1]", Some(443))));
        assert_eq!(parse("[2001:db8::1]"), Ok(("[2001:db8::1]", None)));
        assert_eq!(parse("a_b.localhost"), Ok(("a_b.localhost", None)));
    }

    #[test]
    fn invalid_hosts_are_refused_with_their_reason() {
        let long = format!("{}.a", "x".repeat(64));
        let longer = ["x".repeat(60), "y".repeat(60), "z".repeat(60), "w".repeat(60), "v".repeat(60)].join(".");
        for (text, error) in [
            ("", HostError::Empty),
            (".", HostError::Empty),
            (":80", HostError::Empty),
            ("user@example.com", HostError::UserInfo),
            ("user:pw@example.com:80", HostError::UserInfo),
            ("a..b", HostError::Name),
            ("a.b..", HostError::Name),
            (".a", HostError::Name),
            ("a b", HostError::Name),
            ("a/b", HostError::Name),
            ("a,b", HostError::Name),
            ("a%41", HostError::Name),
            ("a\u{e9}", HostError::Name),
            ("a?b", HostError::Name),
            ("a#b", HostError::Name),
            ("a\\b", HostError::Name),
            ("[::1", HostError::Name),
            ("[::1]x", HostError::Name),
            ("[nonsense]", HostError::Name),
            ("[]", HostError::Name),
            ("[::1]:", HostError::Port),
            ("a:", HostError::Port),
            ("a:65536", HostError::Port),
            ("a:+80", HostError::Port),
            ("a:080000", HostError::Port),
            ("a:80:80", HostError::Port),
            (long.as_str(), HostError::Length),
            (longer.as_str(), HostError::Length),
        ] {
            assert_eq!(parse(text), Err(error), "{text:?}");
        }
        assert_eq!(Authority::parse(b"\xff"), Err(HostError::Name));
    }

    #[test]
    fn equal_authorities_are_recognised() {
        let same = |a: &str, b: &str| {
            Authority::parse(a.as_bytes()).unwrap().is_same(&Authority::parse(b.as_bytes()).unwrap())
        };
        assert!(same("a.example", "A.Example."));
        assert!(same("a.example:443", "a.example"));
        assert!(same("a.example", "a.example:80"));
        assert!(!same("a.example:80", "a.example:443"));
        assert!(!same("a.example:8443", "a.example"));
        assert!(!same("a.example", "b.example"));
    }

    #[test]
    fn one_label_under_the_domain_names_a_socket() {
        assert_eq!(label_under("calm-sea-1234.localhost", "localhost").as_deref(), Some("calm-sea-1234"));
        assert_eq!(label_under("Calm-Sea-1234.LocalHost", "localhost").as_deref(), Some("calm-sea-1234"));
        assert_eq!(label_under("a.edge.example.com", "edge.example.com").as_deref(), Some("a"));
        for other in ["localhost", ".localhost", "a.b.localhost", "alocalhost", "a.localhos", "", "a.example.com"] {
            assert_eq!(label_under(other, "localhost"), None, "{other:?}");
        }
        assert_eq!(label_under("é.localhost", "ocalhost"), None);
    }
}
