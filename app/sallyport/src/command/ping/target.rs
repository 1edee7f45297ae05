//! The host of a `ping`, as a person writes it.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
};

use crate::{
    failure::{Failure, Kind},
    output,
};

/// What is probed, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    /// An address, by echo requests.
    Echo(IpAddr),
    /// A port, by TCP connects.
    Connect(SocketAddr),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Echo(address) => address.fmt(f),
            Self::Connect(address) => address.fmt(f),
        }
    }
}

/// The families that may be used.
#[derive(Debug, Clone, Copy)]
pub(super) struct Families {
    pub(super) v4: bool,
    pub(super) v6: bool,
}

impl Families {
    fn has(self, address: IpAddr) -> bool {
        if address.is_ipv4() { self.v4 } else { self.v6 }
    }
}

/// The first address of the host that has one of these families.
///
/// # Errors
/// The text is no host, or the host has no such address.
pub(super) async fn resolve(text: &str, families: Families) -> Result<Target, Failure> {
    let (host, port) = split(text)?;
    let found = sallyport_net::resolve(host, port.unwrap_or_default()).await;
    let found = found.map_err(|error| Failure::new(Kind::Unreachable, output::safe(&error.to_string())))?;
    let Some(address) = found.into_iter().find(|address| families.has(address.ip())) else {
        let family = if families.v4 { "IPv4" } else { "IPv6" };
        return Err(Failure::new(Kind::Unreachable, format!("{} has no {family} address", output::safe(host))));
    };
    Ok(if port.is_some() { Target::Connect(address) } else { Target::Echo(address.ip().to_canonical()) })
}

/// The host and the port of HOST, HOST:PORT, ADDRESS, [ADDRESS] or [ADDRESS]:PORT.
fn split(text: &str) -> Result<(&str, Option<u16>), Failure> {
    let wrong = || {
        let text = output::safe(text);
        Failure::usage(format!("expected HOST, HOST:PORT or [ADDRESS]:PORT with a port from 1 to 65535, not {text:?}"))
    };
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
    let is_name = host.parse::<IpAddr>().is_ok() || !host.contains([':', '[', ']', '/', '%']);
    if host.is_empty() || !is_name || host.contains(char::is_whitespace) {
        return Err(wrong());
    }
    let port = port.map(|port| port.parse().ok().filter(|port| *port != 0).ok_or_else(wrong)).transpose()?;
    Ok((host, port))
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
            ("[2001:db8::1]", "2001:db8::1", None),
            ("[2001:db8::1]:80", "2001:db8::1", Some(80)),
        ] {
            assert_eq!(split(text).unwrap(), (host, port), "{text}");
        }
        for bad in
            ["", ":80", "a:", "a:x", "a:0", "a:65536", "a:b:c", "[a]:80", "[::1", "[::1]80", "a b", "http://a", "a/b"]
        {
            assert_eq!(split(bad).unwrap_err().kind, Kind::Usage, "{bad}");
        }
    }

    #[tokio::test]
    async fn the_family_can_be_chosen() {
        let both = Families { v4: true, v6: true };
        let (v4, v6) = (Families { v6: false, ..both }, Families { v4: false, ..both });
        assert_eq!(resolve("localhost", both).await, Ok(Target::Echo([127, 0, 0, 1].into())));
        assert_eq!(resolve("localhost", v4).await, Ok(Target::Echo([127, 0, 0, 1].into())));
        assert_eq!(resolve("localhost:80", v6).await, Ok(Target::Connect("[::1]:80".parse().unwrap())));
        let error = resolve("127.0.0.1", v6).await.unwrap_err();
        assert_eq!((error.kind, error.message.as_str()), (Kind::Unreachable, "127.0.0.1 has no IPv6 address"));
    }
}
