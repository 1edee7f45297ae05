//! Sockets that leave by one link.

use std::{
    io,
    net::{IpAddr, SocketAddr, SocketAddrV6},
};

use sallyport_links_model::Link;
use socket2::Socket;

/// What holds a socket to its link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// The device: the kernel uses no other.
    Device,
    /// The source address alone. The routes of the machine choose the device, and rules by source may name it.
    SourceAddress,
}

/// Binds a new socket to a link, before it connects to `destination`. The kernel chooses the local port.
///
/// The device binds where the kernel allows that. Elsewhere the source address has to do.
///
/// # Errors
/// The device or the address is gone, or the link has no address of the destination's family. The text names the link.
pub fn bind(socket: &Socket, link: &Link, destination: SocketAddr) -> io::Result<Bound> {
    let named = |error: io::Error| {
        io::Error::new(error.kind(), format!("the link {} cannot be used to reach {destination}: {error}", link.name))
    };
    let Some(source) = link.source_for(destination.ip()) else {
        let family = if destination.ip().to_canonical().is_ipv4() { "IPv4" } else { "IPv6" };
        let text = format!("the link {} has no {family} address to reach {destination}", link.name);
        return Err(io::Error::new(io::ErrorKind::AddrNotAvailable, text));
    };
    let bound = match socket.bind_device(Some(link.device.as_bytes())) {
        Ok(()) => Bound::Device,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Bound::SourceAddress,
        Err(error) => return Err(named(error)),
    };
    socket.bind(&local(source, link.index, destination).into()).map_err(named)?;
    Ok(bound)
}

/// The local address in the form of the destination's family.
fn local(source: IpAddr, index: u32, destination: SocketAddr) -> SocketAddr {
    match (source, destination) {
        (IpAddr::V4(four), SocketAddr::V6(_)) => SocketAddr::new(four.to_ipv6_mapped().into(), 0),
        (IpAddr::V6(six), _) if six.is_unicast_link_local() => SocketAddrV6::new(six, 0, 0, index).into(),
        _ => SocketAddr::new(source, 0),
    }
}
