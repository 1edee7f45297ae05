//! Options of sockets, each with its purpose.

use std::{io, net::SocketAddr};

use socket2::Socket;

use crate::{ConnectError, PortRange};

#[cfg(target_os = "linux")]
mod linux {
    use nix::{libc, sys::socket::sockopt::SetStruct};

    /// IP_LOCAL_PORT_RANGE of `include/uapi/linux/in.h`, since Linux 6.3.
    const IP_LOCAL_PORT_RANGE: libc::c_int = 51;

    /// The ports that the kernel may choose for this socket.
    #[derive(Debug, Clone, Copy)]
    pub(super) struct LocalPortRange;

    nix::setsockopt_impl!(LocalPortRange, libc::IPPROTO_IP, IP_LOCAL_PORT_RANGE, u32, SetStruct<u32>);
}

/// Limits the ports that the kernel chooses for this socket, of either family (IP_LOCAL_PORT_RANGE).
#[cfg(target_os = "linux")]
pub(crate) fn set_ports(socket: &Socket, ports: PortRange) -> Result<(), ConnectError> {
    match nix::sys::socket::setsockopt(socket, linux::LocalPortRange, &ports.as_option()) {
        Ok(()) => Ok(()),
        Err(nix::errno::Errno::ENOPROTOOPT) => Err(ConnectError::NoPortRanges(ports)),
        Err(error) => Err(io::Error::from(error).into()),
    }
}

/// Limits the ports that the kernel chooses for this socket: not on this system.
#[cfg(not(target_os = "linux"))]
pub(crate) fn set_ports(_: &Socket, ports: PortRange) -> Result<(), ConnectError> {
    Err(ConnectError::NoPortRanges(ports))
}

/// Leaves the choice of the port to connect(2), which knows the destination (IP_BIND_ADDRESS_NO_PORT).
///
/// Otherwise bind(2) takes a port that no other socket of the address has, whatever its destination.
#[cfg(target_os = "linux")]
pub(crate) fn choose_port_at_connect(socket: &Socket) -> io::Result<()> {
    Ok(nix::sys::socket::setsockopt(socket, nix::sys::socket::sockopt::IpBindAddressNoPort, &true)?)
}

/// Leaves the choice of the port to connect(2): not on this system.
#[cfg(not(target_os = "linux"))]
pub(crate) fn choose_port_at_connect(_: &Socket) -> io::Result<()> {
    Ok(())
}

/// Makes a bound socket of the address. The address is missing on this machine if the kernel says so.
pub(crate) fn bind(socket: &Socket, address: SocketAddr) -> Result<(), ConnectError> {
    socket.bind(&address.into()).map_err(|error| match error.kind() {
        io::ErrorKind::AddrNotAvailable => ConnectError::NoSuchSource(address.ip()),
        _ => error.into(),
    })
}
