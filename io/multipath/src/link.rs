//! The socket of a link.

use std::{
    io,
    net::{SocketAddr, UdpSocket},
};

use sallyport_links_model::Link;
use sallyport_multipath::PathSettings;
use socket2::{Domain, Protocol, Socket, Type};

/// Bytes that the kernel keeps for a socket in each direction. The kernel may give less.
const SOCKET_BUFFER_BYTES: usize = 4 * 1024 * 1024;
/// The headers of IP and UDP inside an MTU, in bytes.
const IPV4_HEADERS_BYTES: u32 = 20 + 8;
const IPV6_HEADERS_BYTES: u32 = 40 + 8;
/// The longest payload of UDP, in bytes.
const MAX_PAYLOAD_BYTES: u16 = 65_507;

/// A link of the connector, with a UDP socket whose packets leave by the link.
#[derive(Debug)]
pub struct LinkSocket {
    /// The name in reports and metrics.
    pub(crate) name: String,
    pub(crate) socket: UdpSocket,
    /// The edge's address, as the link reaches it.
    pub(crate) remote: SocketAddr,
    /// How the path is used.
    pub settings: PathSettings,
}

impl LinkSocket {
    /// A new socket, bound to the link. The settings are those of the link, with the whole weight.
    ///
    /// # Errors
    /// The device or the address is gone, or the link has no address of the edge's family. The text names the link.
    pub fn open(link: &Link, remote: SocketAddr) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(remote), Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_nonblocking(true)?;
        let _ = socket.set_recv_buffer_size(SOCKET_BUFFER_BYTES);
        let _ = socket.set_send_buffer_size(SOCKET_BUFFER_BYTES);
        sallyport_links::bind(&socket, link, remote)?;
        let settings = PathSettings {
            is_standby: link.properties.is_standby,
            is_metered: link.properties.is_metered,
            max_payload_bytes: max_payload_bytes(link.mtu_bytes, remote),
            ..PathSettings::default()
        };
        Ok(Self { name: link.name.clone(), socket: socket.into(), remote, settings })
    }
}

/// The greatest UDP payload that a link with this MTU carries.
fn max_payload_bytes(mtu_bytes: u32, remote: SocketAddr) -> u16 {
    let headers = if remote.is_ipv4() { IPV4_HEADERS_BYTES } else { IPV6_HEADERS_BYTES };
    u16::try_from(mtu_bytes.saturating_sub(headers)).unwrap_or(u16::MAX).min(MAX_PAYLOAD_BYTES)
}

#[cfg(test)]
mod tests {
    use sallyport_links_model::Properties;

    use super::*;

    fn link(device: &str, address: &str) -> Link {
        Link {
            name: "cable".into(),
            index: 1,
            device: device.into(),
            addresses: vec![address.parse().unwrap()],
            mtu_bytes: 1_500,
            properties: Properties { is_metered: true, ..Properties::default() },
        }
    }

    #[test]
    fn a_link_that_is_not_of_this_machine_is_named_in_the_error() {
        let remote = "127.0.0.1:7000".parse().unwrap();
        let error = LinkSocket::open(&link("no-such-link", "127.0.0.1"), remote).unwrap_err();
        assert!(error.to_string().starts_with("the link cable cannot be used to reach 127.0.0.1:7000: "), "{error}");
        let error = LinkSocket::open(&link("lo", "192.0.2.1"), remote).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrNotAvailable);
    }

    #[test]
    fn a_link_sends_from_its_address_in_its_way() {
        let opened = LinkSocket::open(&link("lo", "127.0.0.3"), "127.0.0.1:7000".parse().unwrap()).unwrap();
        assert_eq!(opened.socket.local_addr().unwrap().ip().to_string(), "127.0.0.3");
        assert_eq!(opened.settings.max_payload_bytes, 1_472);
        assert!(opened.settings.is_metered && !opened.settings.is_standby);
    }

    #[test]
    fn the_greatest_payload_follows_the_mtu_and_the_family() {
        let (four, six) = ("127.0.0.1:1".parse().unwrap(), "[::1]:1".parse().unwrap());
        assert_eq!((max_payload_bytes(9_001, four), max_payload_bytes(1_500, six)), (8_973, 1_452));
        assert_eq!((max_payload_bytes(65_536, four), max_payload_bytes(0, four)), (65_507, 0));
    }
}
