//! Which UDP socket the kernel would give a datagram, by netlink (sock_diag(7)).

use std::{io, net::SocketAddr, os::fd::OwnedFd, time::Duration};

use netlink_packet_core::{NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_sock_diag::{
    SockDiagMessage,
    constants::{AF_INET, AF_INET6, IPPROTO_UDP},
    inet::{ExtensionFlags, InetRequest, SocketId, StateFlags},
};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, connect,
    netlink::{SOCK_DIAG, SocketAddrNetlink},
    recv, send, socket_with,
    sockopt::{Timeout, set_socket_timeout},
};

use crate::ConnectError;

/// How long the kernel may take. The kernel answers within the call that asks.
const PATIENCE: Duration = Duration::from_secs(5);
/// The bytes of one read.
const READ_BYTES: usize = 8_192;
/// Any socket, whichever its cookie (INET_DIAG_NOCOOKIE).
const ANY_COOKIE: [u8; 8] = [0xff; 8];

/// A socket for look-ups.
pub(crate) struct Lookup {
    socket: OwnedFd,
    buffer: Box<[u8]>,
}

/// The socket that a datagram would reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Holder {
    /// The kernel's number of the socket (SO_COOKIE).
    pub(crate) cookie: u64,
    /// Whether it is connected. If so, its four-tuple is the one that was looked up.
    pub(crate) is_connected: bool,
}

impl Lookup {
    /// Opens the socket.
    pub(crate) fn open() -> Result<Self, ConnectError> {
        let open = || -> rustix::io::Result<OwnedFd> {
            let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, Some(SOCK_DIAG))?;
            set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
            connect(&socket, &SocketAddrNetlink::new(0, 0))?;
            Ok(socket)
        };
        let socket = open().map_err(|error| ConnectError::NoSocketLookup(error.to_string()))?;
        Ok(Self { socket, buffer: vec![0; READ_BYTES].into_boxed_slice() })
    }

    /// The socket that would get a datagram from `peer` to `local`.
    pub(crate) fn holder(&mut self, local: SocketAddr, peer: SocketAddr) -> Result<Option<Holder>, ConnectError> {
        self.ask(local, peer).map_err(|error| ConnectError::NoSocketLookup(error.to_string()))
    }

    fn ask(&mut self, local: SocketAddr, peer: SocketAddr) -> io::Result<Option<Holder>> {
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST;
        let request = SockDiagMessage::InetRequest(request(local, peer));
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(request));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        send(&self.socket, &bytes, SendFlags::empty())?;
        let (count, _) = recv(&self.socket, &mut *self.buffer, RecvFlags::empty())?;
        let answer = NetlinkMessage::<SockDiagMessage>::deserialize(&self.buffer[..count]).map_err(io::Error::other)?;
        match answer.payload {
            NetlinkPayload::InnerMessage(SockDiagMessage::InetResponse(found)) => {
                let id = &found.header.socket_id;
                Ok(Some(Holder { cookie: cookie(id.cookie), is_connected: id.destination_port != 0 }))
            }
            NetlinkPayload::Error(error) if error.raw_code() == -nix::libc::ENOENT => Ok(None),
            NetlinkPayload::Error(error) => Err(error.to_io()),
            other => Err(io::Error::other(format!("unexpected answer {other:?}"))),
        }
    }
}

/// A look-up of one UDP socket. The kernel takes the source as that of a datagram: here it is the peer.
fn request(local: SocketAddr, peer: SocketAddr) -> InetRequest {
    let scope = |address: SocketAddr| if let SocketAddr::V6(six) = address { six.scope_id() } else { 0 };
    InetRequest {
        family: if local.is_ipv4() { AF_INET } else { AF_INET6 },
        protocol: IPPROTO_UDP,
        extensions: ExtensionFlags::empty(),
        states: StateFlags::all(),
        socket_id: SocketId {
            source_port: peer.port(),
            destination_port: local.port(),
            source_address: peer.ip(),
            destination_address: local.ip(),
            interface_id: scope(local).max(scope(peer)),
            cookie: ANY_COOKIE,
        },
    }
}

/// The cookie of two words, the lower one first.
fn cookie(bytes: [u8; 8]) -> u64 {
    let [a, b, c, d, e, f, g, h] = bytes;
    u64::from(u32::from_ne_bytes([e, f, g, h])) << 32 | u64::from(u32::from_ne_bytes([a, b, c, d]))
}
