//! Addresses and ports to listen on, from options.

use std::{
    net::{IpAddr, SocketAddr},
    ops::RangeInclusive,
};

use clap::Args;

use super::port;

/// The default port of clients, the API and tunnels.
pub(crate) const DEFAULT_PORT: u16 = 8443;

/// Options of the UDP port for HTTP/3 and for connectors over QUIC.
#[derive(Debug, Clone, Args)]
pub(crate) struct QuicArgs {
    /// The UDP port for clients over HTTP/3 and connectors over QUIC: ADDR:PORT, :PORT or none [default: the address
    /// and port of --listen when UDP is free there]
    #[arg(
        long, value_name = "ADDR:PORT", env = "SALLYPORT_LISTEN_QUIC", num_args = 0..=1,
        default_missing_value = "same"
    )]
    #[arg(value_parser = quic_address)]
    pub(crate) listen_quic: Option<QuicAddress>,
    /// Offer no HTTP/3 to clients. Without --listen-quic, the UDP port stays closed
    #[arg(long, env = "SALLYPORT_NO_HTTP3")]
    pub(crate) no_http3: bool,
    /// Take requests in the first datagram of HTTP/3 clients that return (0-RTT): GET and HEAD without a body, marked
    /// with `Early-Data: 1` for services
    #[arg(long, env = "SALLYPORT_HTTP3_EARLY_DATA", conflicts_with = "no_http3")]
    pub(crate) http3_early_data: bool,
    /// The UDP port that clients and connectors reach, when a port mapping changes it [default: the port of
    /// --listen-quic]
    #[arg(long, value_name = "PORT", env = "SALLYPORT_PUBLIC_QUIC_PORT")]
    #[arg(value_parser = port::parse, allow_negative_numbers = true)]
    pub(crate) public_quic_port: Option<u16>,
}

/// An address to listen on; without an IP address, the domain's default applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ListenAddress {
    pub(crate) ip: Option<IpAddr>,
    pub(crate) port: u16,
}

/// Where plain HTTP is redirected, if anywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RedirectAddress {
    Nowhere,
    At(ListenAddress),
}

/// The UDP port for QUIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QuicAddress {
    Closed,
    Same,
    At(ListenAddress),
}

impl ListenAddress {
    pub(crate) fn with_default(self, ip: IpAddr) -> SocketAddr {
        SocketAddr::new(self.ip.unwrap_or(ip), self.port)
    }
}

/// A range of ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PortRange(pub(crate) RangeInclusive<u16>);

/// Parses a range of at least one port, none of which needs privileges.
pub(crate) fn port_range(text: &str) -> Result<PortRange, String> {
    text.split_once('-')
        .and_then(|(from, to)| Some((from.trim().parse().ok()?, to.trim().parse().ok()?)))
        .filter(|(from, to)| (1_024..=*to).contains(from))
        .map(|(from, to)| PortRange(from..=to))
        .ok_or_else(|| "expected a range of ports from 1024 up, such as 20000-20999".to_owned())
}

pub(crate) fn listen_address(text: &str) -> Result<ListenAddress, String> {
    let wrong = || "expected ADDR:PORT or :PORT, such as 127.0.0.1:8443 or [::]:443".to_owned();
    if let Some(port) = text.strip_prefix(':') {
        return Ok(ListenAddress { ip: None, port: port.parse().map_err(|_| wrong())? });
    }
    let address: SocketAddr = text.parse().map_err(|_| wrong())?;
    Ok(ListenAddress { ip: Some(address.ip()), port: address.port() })
}

fn quic_address(text: &str) -> Result<QuicAddress, String> {
    match text {
        "same" => Ok(QuicAddress::Same),
        "none" => Ok(QuicAddress::Closed),
        address => listen_address(address).map(QuicAddress::At),
    }
}

pub(crate) fn redirect_address(text: &str) -> Result<RedirectAddress, String> {
    if text == "none" {
        return Ok(RedirectAddress::Nowhere);
    }
    listen_address(text).map(RedirectAddress::At).map_err(|error| format!("{error}, or none"))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn an_address_may_leave_out_its_ip() {
        assert_eq!(listen_address(":443").unwrap(), ListenAddress { ip: None, port: 443 });
        let six = listen_address("[::1]:8443").unwrap();
        assert_eq!(six.with_default(Ipv4Addr::LOCALHOST.into()), "[::1]:8443".parse().unwrap());
        for bad in ["", "8443", "localhost:8443", ":70000", "127.0.0.1", "::1:8443"] {
            assert!(listen_address(bad).unwrap_err().contains("ADDR:PORT"), "{bad}");
        }
        assert_eq!(redirect_address("none").unwrap(), RedirectAddress::Nowhere);
        assert!(redirect_address("nowhere").unwrap_err().ends_with("or none"));
    }

    #[test]
    fn a_range_of_ports_has_one_and_no_privileged_one() {
        assert_eq!(port_range("20000-20000").unwrap().0, 20_000..=20_000);
        for bad in ["", "20000", "80-90", "3000-2000", "1-2-3", "1024-70000"] {
            assert!(port_range(bad).unwrap_err().contains("20000-20999"), "{bad}");
        }
    }
}
