//! The dump of sockets over netlink.

use std::{io, net::SocketAddr, os::fd::OwnedFd, time::Duration};

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_sock_diag::{
    SockDiagMessage,
    constants::{AF_INET, AF_INET6, IPPROTO_TCP},
    inet::{ExtensionFlags, InetRequest, InetResponse, SocketId, StateFlags, nlas::Nla},
};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, connect,
    netlink::{SOCK_DIAG, SocketAddrNetlink},
    recv, send, socket_with,
    sockopt::{Timeout, set_socket_timeout},
};
use sallyport_tcp_window::Sample;

use crate::{Reading, SockDiagError, info};

/// How long the kernel may take. The kernel answers within the call that asks.
const PATIENCE: Duration = Duration::from_secs(5);
/// The bytes of one read: as much as the kernel puts into one answer.
const READ_BYTES: usize = 32_768;

/// A netlink socket that lists TCP sockets.
#[derive(Debug)]
pub struct Reader {
    socket: OwnedFd,
    buffer: Box<[u8]>,
}

impl Reader {
    /// Opens the netlink socket.
    ///
    /// # Errors
    /// The kernel has no sock_diag.
    pub fn open() -> Result<Self, SockDiagError> {
        let open = || -> rustix::io::Result<OwnedFd> {
            let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, Some(SOCK_DIAG))?;
            set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
            connect(&socket, &SocketAddrNetlink::new(0, 0))?;
            Ok(socket)
        };
        let socket = open().map_err(|error| SockDiagError::NoList(error.into()))?;
        Ok(Self { socket, buffer: vec![0; READ_BYTES].into_boxed_slice() })
    }

    /// The connected TCP sockets of this network namespace, IPv4 and IPv6.
    ///
    /// # Errors
    /// The kernel refuses, or answers nothing that can be read.
    pub fn connections(&mut self) -> Result<Vec<Reading>, SockDiagError> {
        let mut found = Vec::new();
        for family in [AF_INET, AF_INET6] {
            self.dump(family, &mut found).map_err(SockDiagError::NoList)?;
        }
        Ok(found)
    }

    fn dump(&mut self, family: u8, found: &mut Vec<Reading>) -> io::Result<()> {
        send(&self.socket, &request(family), SendFlags::empty())?;
        loop {
            let (count, _) = recv(&self.socket, &mut *self.buffer, RecvFlags::empty())?;
            let mut rest = &self.buffer[..count];
            while !rest.is_empty() {
                let message = NetlinkMessage::<SockDiagMessage>::deserialize(rest).map_err(io::Error::other)?;
                match message.payload {
                    NetlinkPayload::InnerMessage(SockDiagMessage::InetResponse(response)) => {
                        found.push(reading(&response));
                    }
                    NetlinkPayload::Done(_) => return Ok(()),
                    NetlinkPayload::Error(error) => return Err(error.to_io()),
                    other => return Err(io::Error::other(format!("unexpected answer {other:?}"))),
                }
                // Messages begin at multiples of four bytes.
                let length = (message.header.length as usize).next_multiple_of(4);
                rest = rest.get(length..).unwrap_or_default();
            }
        }
    }
}

/// The bytes that ask for all connected sockets of a family.
fn request(family: u8) -> Vec<u8> {
    let states = StateFlags::ESTABLISHED
        | StateFlags::FIN_WAIT1
        | StateFlags::FIN_WAIT2
        | StateFlags::CLOSE_WAIT
        | StateFlags::LAST_ACK
        | StateFlags::CLOSING;
    let socket_id = if family == AF_INET { SocketId::new_v4() } else { SocketId::new_v6() };
    let request = InetRequest {
        family,
        protocol: IPPROTO_TCP,
        extensions: ExtensionFlags::INFO | ExtensionFlags::SKMEMINFO,
        states,
        socket_id,
    };
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    let mut message = NetlinkMessage::new(header, NetlinkPayload::from(SockDiagMessage::InetRequest(request)));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

fn reading(response: &InetResponse) -> Reading {
    let header = &response.header;
    let id = &header.socket_id;
    let mut sample =
        Sample { receive_queue_bytes: header.recv_queue, send_queue_bytes: header.send_queue, ..Sample::default() };
    for attribute in &response.nlas {
        match attribute {
            Nla::TcpInfo(bytes) => info::read(bytes, &mut sample),
            Nla::MemInfo(memory) => {
                sample.receive_buffer_bytes = memory.receive_queue_max;
                sample.receive_memory_bytes = memory.receive_queue;
                sample.send_buffer_bytes = memory.send_queue_max;
                sample.dropped_segments = memory.drops;
            }
            _ => {}
        }
    }
    Reading {
        cookie: u64::from_ne_bytes(id.cookie),
        inode: header.inode,
        local: canonical(SocketAddr::new(id.source_address, id.source_port)),
        remote: canonical(SocketAddr::new(id.destination_address, id.destination_port)),
        sample,
    }
}

/// The IPv4 address of a mapped address.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::{TcpListener, TcpStream},
    };

    use super::*;
    use crate::{network_counts, socket_inodes};

    #[test]
    fn both_ends_of_a_connection_are_read_with_what_waits() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(&[7; 1_000]).unwrap();
        // The bytes are in the queue of the receiver once they can be seen there.
        assert_eq!(server.peek(&mut [0; 1_000]).unwrap(), 1_000);
        let mut reader = Reader::open().unwrap();
        let here = |readings: Vec<Reading>, local: SocketAddr| {
            readings.into_iter().find(|reading| reading.local == local && reading.sample.receive_buffer_bytes > 0)
        };
        let (near, far) = (client.local_addr().unwrap(), server.peer_addr().unwrap());
        assert_eq!(near, far);
        let received = here(reader.connections().unwrap(), server.local_addr().unwrap()).unwrap();
        assert_eq!((received.remote, received.sample.receive_queue_bytes), (near, 1_000));
        assert_eq!(received.sample.received_bytes, 1_000);
        assert!(received.sample.receive_memory_bytes >= 1_000, "{received:?}");
        assert!(received.sample.receive_window_bytes.is_none_or(|window| window > 0), "{received:?}");
        assert!(socket_inodes(std::process::id()).unwrap().contains(&received.inode));
        server.read_exact(&mut [0; 1_000]).unwrap();
        let emptied = here(reader.connections().unwrap(), server.local_addr().unwrap()).unwrap();
        assert_eq!((emptied.cookie, emptied.sample.receive_queue_bytes), (received.cookie, 0));
        let _ = network_counts();
    }

    #[test]
    fn a_process_that_is_not_there_is_named() {
        let error = socket_inodes(u32::MAX).unwrap_err().to_string();
        assert_eq!(error, "there is no process 4294967295");
    }
}
