//! Connects sockets so that local ports are shared by destinations, and no four-tuple is used twice.
//!
//! A connection is known by four numbers, its *four-tuple*: local address and port, remote address and port. One local
//! port can so serve a connection to each destination. connect(2) alone does that for TCP. bind(2) before connect(2)
//! takes a port for one socket alone, and a UDP socket always does. Then a machine has some 28,000 connections to *all*
//! destinations together, and not to each. SO_REUSEADDR removes that limit, and with it the protection: two UDP sockets
//! can then have one four-tuple, and the newer one silently gets the datagrams of the older one (*overshadowing*).
//!
//! [`Connect`] shares ports and never overshadows. There are three cases, and a slice of ports may be given in the
//! first two:
//!
//! | case | TCP | UDP |
//! | --- | --- | --- |
//! | [`Connect::to`] a destination | connect(2) alone: no further system call | connect(2), then SO_REUSEADDR; the search while no port is free of sockets |
//! | [`Connect::from_address`] | IP_BIND_ADDRESS_NO_PORT, bind(2), connect(2) | the search |
//! | [`Connect::from_port`] | SO_REUSEADDR, bind(2), connect(2) | the search, of one port |
//! | [`Connect::within`] a slice | IP_LOCAL_PORT_RANGE besides | the search, of these ports |
//!
//! *The search* looks up a port by sock_diag(7), binds to it, and uses SO_REUSEADDR as a lock between bind(2) and
//! connect(2). The look-up needs no privilege. A search tries at most 4,096 ports, and then ports that others held for
//! a moment; it ends within about a second. Exhaustion is [`ConnectError::NoPortLeft`].
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use sallyport_connectx::{Connect, PortRange};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let destination = "192.0.2.1:443".parse()?;
//! let stream = Connect::to(destination).tcp(Duration::from_secs(5))?;
//! let slice: PortRange = "40960-43007".parse()?;
//! let socket = Connect::to(destination).from_address("198.51.100.7".parse()?).within(slice).udp()?;
//! # drop((stream, socket));
//! # Ok(())
//! # }
//! ```
//!
//! # What it does not do
//! - A program that does not use this crate can overshadow a UDP socket that shares its port, if that program sets
//!   SO_REUSEADDR. Where other users of the machine are not trusted, use [`Connect::exclusive`].
//! - A UDP port of a socket without SO_REUSEADDR is not shared. A TCP port that bind(2) has chosen is not shared with
//!   ports that connect(2) chooses: use the second and the third case on different ports.
//! - Between bind(2) and connect(2) of a search, strangers can send datagrams to the port. They are dropped.
//! - On systems other than Linux there is no slice and no search.

#[cfg(target_os = "linux")]
mod diag;
mod error;
mod options;
mod ports;
#[cfg(any(target_os = "linux", test))]
mod search;
mod tcp;
mod udp;

use std::net::{IpAddr, SocketAddr, SocketAddrV6};

pub use error::{ConnectError, Protocol};
pub use ports::{InvalidPortRange, PortRange};

/// Where a connection goes, and from where it may leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connect {
    destination: SocketAddr,
    source: Source,
    ports: Option<PortRange>,
    is_exclusive: bool,
}

/// The local end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// As the kernel chooses.
    Any,
    /// This address, and a port that the kernel or the search chooses.
    Address(IpAddr),
    /// This address and port.
    AddressAndPort(SocketAddr),
}

impl Connect {
    /// A connection to this destination. An IPv4 address in the form of IPv6 (`::ffff:192.0.2.1`) counts as IPv4.
    #[must_use]
    pub fn to(destination: SocketAddr) -> Self {
        Self { destination: canonical(destination), source: Source::Any, ports: None, is_exclusive: false }
    }

    /// From this address of the machine.
    #[must_use]
    pub fn from_address(self, source: IpAddr) -> Self {
        Self { source: Source::Address(source.to_canonical()), ..self }
    }

    /// From this address and port: the whole four-tuple is given.
    #[must_use]
    pub fn from_port(self, source: SocketAddr) -> Self {
        Self { source: Source::AddressAndPort(canonical(source)), ..self }
    }

    /// From a port of this slice, which must be inside of `net.ipv4.ip_local_port_range`.
    #[must_use]
    pub fn within(self, ports: PortRange) -> Self {
        Self { ports: Some(ports), ..self }
    }

    /// Keeps the port of a UDP socket for itself, so that no other program can get its datagrams.
    ///
    /// The socket can still get a port that others share already. TCP needs no such protection.
    #[must_use]
    pub fn exclusive(self) -> Self {
        Self { is_exclusive: true, ..self }
    }

    /// The destination.
    #[must_use]
    pub fn destination(&self) -> SocketAddr {
        self.destination
    }

    /// The slice of ports, if there is one.
    #[must_use]
    pub fn ports(&self) -> Option<PortRange> {
        self.ports
    }

    /// Whether connect(2) alone does everything for TCP: neither source nor ports are given.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.source == Source::Any && self.ports.is_none()
    }

    /// Refuses what contradicts itself.
    fn check(&self) -> Result<(), ConnectError> {
        let refuse = |text: String| Err(ConnectError::InvalidRequest(text));
        let destination = self.destination;
        if destination.port() == 0 {
            return refuse(format!("{destination} is no destination: it has port 0"));
        }
        let ip = match self.source {
            Source::Any => return Ok(()),
            Source::Address(ip) => ip,
            Source::AddressAndPort(local) if local.port() == 0 => {
                return refuse(format!("{local} is no source: it has port 0"));
            }
            Source::AddressAndPort(local) => match self.ports {
                Some(ports) if !ports.has_port(local.port()) => {
                    return refuse(format!("the port of {local} is not one of {ports}"));
                }
                _ => local.ip(),
            },
        };
        if ip.is_unspecified() {
            return refuse(format!("{ip} is no source address: leave it out, and the kernel chooses one"));
        }
        if ip.is_ipv4() != destination.is_ipv4() {
            return refuse(format!("{ip} cannot reach {destination}: one is IPv4, the other IPv6"));
        }
        Ok(())
    }

    /// The local address for bind(2). An address of one link needs the link of the destination.
    fn local(&self, ip: IpAddr, port: u16) -> SocketAddr {
        match (ip, self.source, self.destination) {
            (IpAddr::V6(_), Source::AddressAndPort(SocketAddr::V6(local)), _) if local.scope_id() != 0 => local.into(),
            (IpAddr::V6(ip), _, SocketAddr::V6(to)) if ip.is_unicast_link_local() => {
                SocketAddrV6::new(ip, port, 0, to.scope_id()).into()
            }
            _ => SocketAddr::new(ip, port),
        }
    }

    fn no_port_left(&self, protocol: Protocol, ports: PortRange) -> ConnectError {
        ConnectError::NoPortLeft { protocol, ports, destination: self.destination }
    }

    /// The error of bind(2) to a given port.
    fn held(&self, protocol: Protocol, error: ConnectError) -> ConnectError {
        match (self.source, error.kind()) {
            (Source::AddressAndPort(source_address), std::io::ErrorKind::AddrInUse) => {
                ConnectError::PortHeld { protocol, source_address }
            }
            _ => error,
        }
    }
}

/// The IPv4 address of a mapped address.
fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(four) => SocketAddr::new(four.into(), address.port()),
        IpAddr::V6(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn requests_that_contradict_themselves_are_refused_with_the_reason() {
        let to = |text: &str| Connect::to(text.parse().unwrap());
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let port = |text: &str| text.parse::<SocketAddr>().unwrap();
        let slice = PortRange::new(40_000, 40_099).unwrap();
        let cases = [
            (to("127.0.0.1:0"), "127.0.0.1:0 is no destination: it has port 0"),
            (to("127.0.0.1:9").from_address(address("::1")), "::1 cannot reach 127.0.0.1:9"),
            (to("[::1]:9").from_port(port("127.0.0.1:40000")), "127.0.0.1 cannot reach [::1]:9"),
            (to("127.0.0.1:9").from_address(address("0.0.0.0")), "0.0.0.0 is no source address"),
            (to("127.0.0.1:9").from_port(port("127.0.0.1:0")), "127.0.0.1:0 is no source: it has port 0"),
            (
                to("127.0.0.1:9").from_port(port("127.0.0.1:40100")).within(slice),
                "the port of 127.0.0.1:40100 is not one of 40000-40099",
            ),
        ];
        for (request, expected) in cases {
            for error in [request.tcp(Duration::from_secs(1)).unwrap_err(), request.udp().unwrap_err()] {
                assert!(matches!(error, ConnectError::InvalidRequest(_)), "{error}");
                assert!(error.to_string().starts_with(expected), "{error}");
            }
        }
    }

    #[test]
    fn a_mapped_address_is_ipv4() {
        let request =
            Connect::to("[::ffff:127.0.0.1]:9".parse().unwrap()).from_address("::ffff:127.0.0.2".parse().unwrap());
        assert_eq!(request.destination().to_string(), "127.0.0.1:9");
        assert_eq!(request.udp().unwrap().local_addr().unwrap().ip().to_string(), "127.0.0.2");
    }

    #[test]
    fn exhaustion_alone_has_the_kind_of_an_address_that_is_not_available() {
        let request = Connect::to("192.0.2.1:443".parse().unwrap());
        let error = request.no_port_left(Protocol::Udp, PortRange::new(40_000, 40_099).unwrap());
        assert_eq!(error.to_string(), "no local port of 40000-40099 is left for UDP to 192.0.2.1:443: all are in use");
        assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::AddrNotAvailable);
        let request = Connect::to("127.0.0.1:9".parse().unwrap()).from_address("192.0.2.99".parse().unwrap());
        let error = request.udp().unwrap_err();
        assert_ne!(error.kind(), std::io::ErrorKind::AddrNotAvailable);
        assert_eq!(error.to_string(), "this machine has no address 192.0.2.99");
    }
}
