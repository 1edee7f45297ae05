//! Opening UDP ports.

use std::{
    io,
    net::{self, SocketAddr},
    num::NonZeroUsize,
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
    open(address, false).map(net::UdpSocket::from).map_err(|source| why_not_open(source, address, option))
}

/// Opens several sockets of one UDP port, among which the kernel shares clients out (SO_REUSEPORT). No other program
/// can have the port. Errors name `option`.
///
/// # Errors
/// One sentence that names the port and what to do.
pub fn listen_udp_group(
    address: SocketAddr,
    sockets: NonZeroUsize,
    option: &'static str,
) -> Result<Vec<net::UdpSocket>, ListenError> {
    let open_all = || -> io::Result<Vec<net::UdpSocket>> {
        // The first one fails if another program has the port.
        let first = open(address, false)?;
        if sockets.get() == 1 {
            return Ok(vec![first.into()]);
        }
        first.set_reuse_port(true)?;
        let first = net::UdpSocket::from(first);
        let address = first.local_addr()?;
        let mut group = vec![first];
        for _ in 1..sockets.get() {
            group.push(open(address, true)?.into());
        }
        Ok(group)
    };
    open_all().map_err(|source| why_not_open(source, address, option))
}

fn open(address: SocketAddr, is_shared: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    // The kernel gives less where net.core.rmem_max and wmem_max are lower.
    let _ = socket.set_recv_buffer_size(UDP_BUFFER_BYTES);
    let _ = socket.set_send_buffer_size(UDP_BUFFER_BYTES);
    socket.set_nonblocking(true)?;
    socket.set_reuse_port(is_shared)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_shares_one_port_that_nobody_else_can_open() {
        let any = "127.0.0.1:0".parse().unwrap();
        for sockets in [1, 3] {
            let group = listen_udp_group(any, NonZeroUsize::new(sockets).unwrap(), "--x").unwrap();
            assert_eq!(group.len(), sockets);
            let address = group[0].local_addr().unwrap();
            assert!(group.iter().all(|socket| socket.local_addr().unwrap() == address));
            let error = listen_udp_group(address, NonZeroUsize::new(2).unwrap(), "--x").unwrap_err();
            assert!(matches!(error, ListenError::Taken { .. }), "{error}");
        }
    }
}
