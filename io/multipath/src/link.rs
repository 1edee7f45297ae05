//! The socket of a link.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
};

use sallyport_multipath::PathSettings;
use socket2::{Domain, Protocol, Socket, Type};

/// Bytes that the kernel keeps for a socket in each direction. The kernel may give less.
const SOCKET_BUFFER_BYTES: usize = 4 * 1024 * 1024;
/// The headers of IP and UDP inside an MTU, in bytes.
const IPV4_HEADERS_BYTES: u16 = 20 + 8;
const IPV6_HEADERS_BYTES: u16 = 40 + 8;
/// The MTU of Ethernet, in bytes.
const ETHERNET_MTU_BYTES: u16 = 1_500;

/// How packets leave by one link of this machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LinkSource {
    /// The network device (`SO_BINDTODEVICE`).
    pub device: Option<String>,
    /// The source address.
    pub address: Option<IpAddr>,
}

/// One link of the connector.
#[derive(Debug)]
pub struct Link {
    /// The name in reports and metrics.
    pub name: String,
    /// A UDP socket whose packets leave by the link.
    pub socket: UdpSocket,
    /// The edge's address, as the link reaches it.
    pub remote: SocketAddr,
    /// How the path is used.
    pub settings: PathSettings,
}

impl Link {
    /// A link with a new socket.
    ///
    /// # Errors
    /// The device or the address is not of this machine; the text names the link.
    pub fn open(name: &str, source: &LinkSource, remote: SocketAddr) -> io::Result<Self> {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("the link {name} cannot be used: {error}"));
        let socket = bind(source, remote).map_err(named)?;
        let headers = if remote.is_ipv4() { IPV4_HEADERS_BYTES } else { IPV6_HEADERS_BYTES };
        let settings = PathSettings { max_payload_bytes: ETHERNET_MTU_BYTES - headers, ..PathSettings::default() };
        Ok(Self { name: name.to_owned(), socket, remote, settings })
    }
}

fn bind(source: &LinkSource, remote: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(remote), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    let _ = socket.set_recv_buffer_size(SOCKET_BUFFER_BYTES);
    let _ = socket.set_send_buffer_size(SOCKET_BUFFER_BYTES);
    if let Some(device) = &source.device {
        socket.bind_device(Some(device.as_bytes()))?;
    }
    let any: IpAddr = if remote.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    socket.bind(&SocketAddr::new(source.address.unwrap_or(any), 0).into())?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_is_not_of_this_machine_is_named_in_the_error() {
        let remote = "127.0.0.1:7000".parse().unwrap();
        let source = LinkSource { device: Some("no-such-link".into()), address: None };
        let error = Link::open("cable", &source, remote).unwrap_err();
        assert!(error.to_string().starts_with("the link cable cannot be used: "), "{error}");
        let source = LinkSource { device: None, address: Some("192.0.2.1".parse().unwrap()) };
        assert_eq!(Link::open("cable", &source, remote).unwrap_err().kind(), io::ErrorKind::AddrNotAvailable);
    }

    #[test]
    fn a_link_sends_from_its_address() {
        let source = LinkSource { device: Some("lo".into()), address: Some("127.0.0.3".parse().unwrap()) };
        let link = Link::open("loopback", &source, "127.0.0.1:7000".parse().unwrap()).unwrap();
        assert_eq!(link.socket.local_addr().unwrap().ip(), source.address.unwrap());
        assert_eq!(link.settings.max_payload_bytes, 1_472);
    }
}
