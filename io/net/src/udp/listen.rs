//! Opening UDP ports.

use std::{
    io,
    net::{self, SocketAddr},
};

use socket2::{Domain, Protocol, Socket, Type};

use crate::tcp::{ListenError, why_not_open};

/// The kernel's buffers of a UDP port, in bytes: room for bursts while the process is busy.
const UDP_BUFFER_BYTES: usize = 4 * 1_024 * 1_024;

/// Opens one UDP port. Errors name `option`, which sets the address.
///
/// # Errors
/// One sentence that names the port and what to do.
pub fn listen_udp(address: SocketAddr, option: &'static str) -> Result<net::UdpSocket, ListenError> {
    let open = || -> io::Result<net::UdpSocket> {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        if address.is_ipv6() {
            socket.set_only_v6(false)?;
        }
        // The kernel gives less where net.core.rmem_max and wmem_max are lower.
        let _ = socket.set_recv_buffer_size(UDP_BUFFER_BYTES);
        let _ = socket.set_send_buffer_size(UDP_BUFFER_BYTES);
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        Ok(socket.into())
    };
    open().map_err(|source| why_not_open(source, address, option))
}
