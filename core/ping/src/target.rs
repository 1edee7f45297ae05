//! The host to measure, as a person writes it.

use std::{fmt, net::IpAddr, str::FromStr};

/// The longest host, in bytes: that of a name without its final dot (RFC 1035 section 2.3.4).
pub const MAX_HOST_BYTES: usize = 253;

/// A host by name or address, with a port if TCP connects are to be measured.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    host: String,
    port: Option<u16>,
}

/// Reason why a text is no [`Target`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// There is no text.
    #[error("the host is empty: expected HOST, HOST:PORT or [ADDRESS]:PORT")]
    Empty,
    /// The host is longer than [`MAX_HOST_BYTES`].
    #[error("a host has at most {MAX_HOST_BYTES} characters, not {0}")]
    TooLong(usize),
    /// The text has another form, or a port that does not exist.
    #[error("expected HOST, HOST:PORT or [ADDRESS]:PORT with a port from 1 to 65535, not {0:?}")]
    Malformed(String),
    /// The address is not of one host: a multicast, broadcast or unspecified address.
    #[error("{0} is not the address of one host")]
    NotOneHost(IpAddr),
}

impl Target {
    /// The host: a name, or an address without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port; `None` if the host is measured by echo requests.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// The address, if the host is one.
    #[must_use]
    pub fn address(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        if text.is_empty() {
            return Err(TargetError::Empty);
        }
        let (host, port) = split(text)?;
        if let Ok(address) = host.parse::<IpAddr>()
            && !is_one_host(address)
        {
            return Err(TargetError::NotOneHost(address));
        }
        Ok(Self { host: host.to_owned(), port })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            None => f.write_str(&self.host),
            Some(port) if self.host.contains(':') => write!(f, "[{}]:{port}", self.host),
            Some(port) => write!(f, "{}:{port}", self.host),
        }
    }
}

/// The host and the port of `HOST`, `HOST:PORT`, `ADDRESS`, `[ADDRESS]` or `[ADDRESS]:PORT`.
fn split(text: &str) -> Result<(&str, Option<u16>), TargetError> {
    // Room for brackets and a port.
    if text.len() > MAX_HOST_BYTES + 8 {
        return Err(TargetError::TooLong(text.chars().count()));
    }
    let wrong = || TargetError::Malformed(text.to_owned());
    let (host, port) = if text.parse::<IpAddr>().is_ok() {
        (text, None)
    } else if let Some((address, rest)) = text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        address.parse::<IpAddr>().map_err(|_| wrong())?;
        match rest.strip_prefix(':') {
            None if rest.is_empty() => (address, None),
            Some(port) => (address, Some(port)),
            None => return Err(wrong()),
        }
    } else {
        text.rsplit_once(':').map_or((text, None), |(host, port)| (host, Some(port)))
    };
    let is_foreign = |c: char| c.is_whitespace() || c.is_control() || ":[]/%@?#".contains(c);
    let is_host = host.parse::<IpAddr>().is_ok() || !host.contains(is_foreign);
    if host.is_empty() || !is_host {
        return Err(wrong());
    }
    if host.len() > MAX_HOST_BYTES {
        return Err(TargetError::TooLong(host.chars().count()));
    }
    let is_number = |port: &&str| port.bytes().all(|byte| byte.is_ascii_digit());
    let number = |port: &str| Some(port).filter(is_number)?.parse().ok().filter(|port| *port != 0);
    let port = port.map(|port| number(port).ok_or_else(wrong)).transpose()?;
    Ok((host, port))
}

/// Whether an address can be of one host: it is no multicast, broadcast or unspecified address.
#[must_use]
pub fn is_one_host(address: IpAddr) -> bool {
    let address = address.to_canonical();
    let is_broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    !(address.is_multicast() || address.is_unspecified() || is_broadcast)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_split_from_ports() {
        for (text, host, port) in [
            ("a.example", "a.example", None),
            ("a.example:443", "a.example", Some(443)),
            ("192.0.2.1", "192.0.2.1", None),
            ("192.0.2.1:80", "192.0.2.1", Some(80)),
            ("2001:db8::1", "2001:db8::1", None),
            ("[2001:db8::1]:80", "2001:db8::1", Some(80)),
        ] {
            let target: Target = text.parse().unwrap();
            assert_eq!((target.host(), target.port(), target.to_string().as_str()), (host, port, text));
        }
        let bare: Target = "[2001:db8::1]".parse().unwrap();
        assert_eq!((bare.host(), bare.port(), bare.address()), ("2001:db8::1", None, "2001:db8::1".parse().ok()));
    }

    #[test]
    fn bad_input_gets_a_reason() {
        for bad in [
            ":80",
            "a:",
            "a:x",
            "a:0",
            "a:65536",
            "a:+80",
            "a:b:c",
            "[a]:80",
            "[::1",
            "[::1]80",
            "a b",
            "http://a",
            "a/b",
            "a\nb",
            "u@a",
            "fe80::1%eth0",
        ] {
            assert_eq!(bad.parse::<Target>(), Err(TargetError::Malformed(bad.to_owned())), "{bad:?}");
        }
        assert_eq!("".parse::<Target>(), Err(TargetError::Empty));
        let longest = "a".repeat(MAX_HOST_BYTES);
        assert!(format!("{longest}:65535").parse::<Target>().is_ok());
        for long in [format!("{longest}a"), format!("{longest}a:443"), "ä".repeat(200)] {
            assert!(matches!(long.parse::<Target>(), Err(TargetError::TooLong(_))), "{long}");
        }
        for many in ["224.0.0.1", "ff02::1", "0.0.0.0", "[::]:80", "255.255.255.255:80", "::ffff:224.0.0.1"] {
            assert!(matches!(many.parse::<Target>(), Err(TargetError::NotOneHost(_))), "{many}");
        }
    }
}
