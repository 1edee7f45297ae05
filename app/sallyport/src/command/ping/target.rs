//! The host of a `ping`, as a person writes it.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
};

use sallyport_ping::TargetError;

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
    let wanted: sallyport_ping::Target =
        text.parse().map_err(|error: TargetError| Failure::usage(output::safe(&error.to_string())))?;
    let (host, port) = (wanted.host(), wanted.port());
    let found = sallyport_net::resolve(host, port.unwrap_or_default()).await;
    let found = found.map_err(|error| Failure::new(Kind::Unreachable, output::safe(&error.to_string())))?;
    let Some(address) = found.into_iter().find(|address| families.has(address.ip())) else {
        let family = if families.v4 { "IPv4" } else { "IPv6" };
        return Err(Failure::new(Kind::Unreachable, format!("{} has no {family} address", output::safe(host))));
    };
    Ok(if port.is_some() { Target::Connect(address) } else { Target::Echo(address.ip().to_canonical()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_text_that_is_no_host_is_refused() {
        let both = Families { v4: true, v6: true };
        for bad in ["", ":80", "a:0", "a:b:c", "[a]:80", "a b", "http://a", "224.0.0.1"] {
            assert_eq!(resolve(bad, both).await.unwrap_err().kind, Kind::Usage, "{bad}");
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
