//! Opens the ports.

use std::{
    io,
    net::{SocketAddr, TcpListener, UdpSocket},
};

use socket2::{Domain, Protocol, Socket, Type};

/// The most UDP sockets of one address.
pub const MAX_UDP_SOCKETS: usize = 64;
/// The kernel's buffers of a UDP socket, in bytes: room for bursts. They are smaller where `net.core.rmem_max` is.
const BUFFER_BYTES: usize = 4 * 1024 * 1024;
/// Connections that wait to be accepted.
const TCP_BACKLOG: i32 = 1_024;

/// Opens one address for both transports: this many UDP sockets, among which the kernel shares clients out, and a TCP
/// listener. Port 0 is the same free port for both. A process that takes over shares the port with its predecessor.
///
/// # Errors
/// The port is taken, or the user may not open it.
pub fn bind(address: SocketAddr, udp_sockets: usize, is_takeover: bool) -> io::Result<(Vec<UdpSocket>, TcpListener)> {
    let tcp = bind_tcp(address, is_takeover)?;
    let address = SocketAddr::new(address.ip(), tcp.local_addr()?.port());
    Ok((bind_udp(address, udp_sockets, is_takeover)?, tcp))
}

/// Opens UDP sockets that share one address, for a process that takes over also with its predecessor.
///
/// # Errors
/// The port is taken, or the user may not open it.
pub fn bind_udp(address: SocketAddr, sockets: usize, is_takeover: bool) -> io::Result<Vec<UdpSocket>> {
    let sockets = sockets.clamp(1, MAX_UDP_SOCKETS);
    let (mut opened, mut address) = (Vec::with_capacity(sockets), address);
    // Another program must not share the port: the first socket opens it alone.
    if !is_takeover {
        drop(open(address, Type::DGRAM, Protocol::UDP, false)?);
    }
    for _ in 0..sockets {
        let socket: UdpSocket = open(address, Type::DGRAM, Protocol::UDP, true)?.into();
        address = socket.local_addr()?;
        opened.push(socket);
    }
    Ok(opened)
}

/// Opens a TCP listener, for a process that takes over beside that of its predecessor.
///
/// # Errors
/// The port is taken, or the user may not open it.
pub fn bind_tcp(address: SocketAddr, is_takeover: bool) -> io::Result<TcpListener> {
    if !is_takeover && address.port() != 0 {
        drop(open(address, Type::STREAM, Protocol::TCP, false)?);
    }
    let socket = open(address, Type::STREAM, Protocol::TCP, true)?;
    socket.listen(TCP_BACKLOG)?;
    Ok(socket.into())
}

fn open(address: SocketAddr, kind: Type, protocol: Protocol, is_shared: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), kind, Some(protocol))?;
    if address.is_ipv6() {
        // `[::]` is all addresses, of both families.
        socket.set_only_v6(false)?;
    }
    socket.set_reuse_port(is_shared)?;
    if protocol == Protocol::TCP {
        socket.set_reuse_address(true)?;
    } else {
        drop(socket.set_recv_buffer_size(BUFFER_BYTES));
        drop(socket.set_send_buffer_size(BUFFER_BYTES));
    }
    socket.bind(&address.into())?;
    Ok(socket)
}
