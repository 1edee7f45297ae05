//! UDP: the kernel lets two sockets have one four-tuple, and gives all datagrams to the newer one.
//!
//! SO_REUSEADDR is the lock against it. Sockets share a port only while each of them has the option:
//!
//! 1. A socket with the option binds to address and port.
//! 2. The socket drops the option. From now on no other socket can bind there.
//! 3. sock_diag(7) says which socket a datagram from the destination would reach. Is it this one, nobody has the
//!    four-tuple. Of several sockets that came past step 1 together, the kernel names the same one to all.
//! 4. The socket connects, and takes the option again: now others can bind there.

use std::{
    io,
    net::{self, IpAddr, SocketAddr},
    thread,
    time::Duration,
};

use socket2::{Domain, Protocol as Kind, Socket, Type};

#[cfg(target_os = "linux")]
use crate::search::{Search, Step};
use crate::{Connect, ConnectError, PortRange, Protocol, Source, options, ports};

/// After how many ports a search lets other tasks run.
#[cfg(target_os = "linux")]
const TRIES_AT_ONCE: u32 = 64;

/// Whether the kernel has found a port.
enum First {
    Connected(net::UdpSocket),
    /// No port is free of other sockets: ports of others are searched.
    Search {
        local: IpAddr,
        ports: PortRange,
    },
}

impl Connect {
    /// Connects. May sleep for a fraction of a second while other processes hold the last ports.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub fn udp(&self) -> Result<net::UdpSocket, ConnectError> {
        let (local, ports) = match self.udp_by_kernel()? {
            First::Connected(socket) => return Ok(socket),
            First::Search { local, ports } => (local, ports),
        };
        let mut sharing = Sharing::new(self, local, ports)?;
        loop {
            match sharing.step()? {
                Progress::Connected(socket) => return Ok(socket),
                Progress::Pause(pause) => thread::sleep(pause),
                Progress::Goes => {}
            }
        }
    }

    /// Like [`Connect::udp`], without blocking. The socket does not block either, as `UdpSocket::from_std` of tokio
    /// wants it.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub async fn udp_async(&self) -> Result<net::UdpSocket, ConnectError> {
        let socket = match self.udp_by_kernel()? {
            First::Connected(socket) => socket,
            First::Search { local, ports } => self.udp_shared(local, ports).await?,
        };
        socket.set_nonblocking(true)?;
        Ok(socket)
    }

    async fn udp_shared(&self, local: IpAddr, ports: PortRange) -> Result<net::UdpSocket, ConnectError> {
        let mut sharing = Sharing::new(self, local, ports)?;
        loop {
            match sharing.step()? {
                Progress::Connected(socket) => return Ok(socket),
                Progress::Pause(pause) => tokio::time::sleep(pause).await,
                Progress::Goes => tokio::task::yield_now().await,
            }
        }
    }

    /// Lets the kernel choose a port that no other socket has. That needs no lock.
    fn udp_by_kernel(&self) -> Result<First, ConnectError> {
        self.check()?;
        if let Source::AddressAndPort(local) = self.source {
            let ports = PortRange::of(local.port())
                .ok_or_else(|| ConnectError::InvalidRequest("the source has port 0".to_owned()))?;
            return Ok(First::Search { local: local.ip(), ports });
        }
        let socket = udp_socket(self.destination)?;
        if let Some(ports) = self.ports {
            ports.check()?;
            options::set_ports(&socket, ports)?;
        }
        if let Source::Address(ip) = self.source {
            match options::bind(&socket, self.local(ip, 0)) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => return self.search(ip),
                Err(error) => return Err(error),
            }
        }
        match socket.connect(&self.destination.into()) {
            Ok(()) => {}
            // A socket without an address has found no port (EAGAIN).
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && self.source == Source::Any => {
                return self.search(source_for(self.destination)?);
            }
            Err(error) => return Err(self.not_reached(error)),
        }
        if !self.is_exclusive {
            socket.set_reuse_address(true)?;
        }
        Ok(First::Connected(socket.into()))
    }

    fn search(&self, local: IpAddr) -> Result<First, ConnectError> {
        let ports = self.ports.map_or_else(PortRange::of_namespace, Ok)?;
        Ok(First::Search { local, ports })
    }

    fn not_reached(&self, error: io::Error) -> ConnectError {
        match error.kind() {
            io::ErrorKind::AddrNotAvailable => ConnectError::NoRoute(self.destination),
            _ => error.into(),
        }
    }
}

fn udp_socket(to: SocketAddr) -> io::Result<Socket> {
    Socket::new(Domain::for_address(to), Type::DGRAM, Some(Kind::UDP))
}

/// The address from which this machine reaches the destination.
///
/// The socket shares a port for a moment, because none is free of others. It takes no datagram from a connected one,
/// since it connects to port 0, from which none come.
pub(crate) fn source_for(destination: SocketAddr) -> Result<IpAddr, ConnectError> {
    let mut there = destination;
    there.set_port(0);
    let socket = udp_socket(there)?;
    socket.set_reuse_address(true)?;
    socket.connect(&there.into()).map_err(|error| match error.kind() {
        io::ErrorKind::AddrNotAvailable => ConnectError::NoRoute(destination),
        _ => error.into(),
    })?;
    let local = socket.local_addr()?.as_socket().ok_or(ConnectError::NoRoute(destination))?;
    Ok(local.ip())
}

/// What a part of a search has brought.
enum Progress {
    Connected(net::UdpSocket),
    /// Others hold the ports that are left.
    Pause(Duration),
    /// There are more ports.
    Goes,
}

/// A search of a port that others have, towards other destinations.
#[cfg(target_os = "linux")]
struct Sharing<'a> {
    request: &'a Connect,
    local: IpAddr,
    ports: PortRange,
    search: Search,
    lookup: crate::diag::Lookup,
    /// Whether a socket with this very four-tuple was met.
    is_taken: bool,
}

/// The outcome for one port.
#[cfg(target_os = "linux")]
enum Tried {
    Connected(net::UdpSocket),
    /// A socket has the four-tuple.
    Taken,
    /// A socket has the port, maybe for a moment only.
    Busy,
}

#[cfg(target_os = "linux")]
impl<'a> Sharing<'a> {
    fn new(request: &'a Connect, local: IpAddr, ports: PortRange) -> Result<Self, ConnectError> {
        let random = getrandom::u32().map_err(|error| io::Error::other(error.to_string()))?;
        // The port of a caller is the caller's choice.
        let is_chosen = matches!(request.source, Source::AddressAndPort(_));
        let reserved = if is_chosen { Vec::new() } else { ports::reserved()? };
        let search = Search::new(ports, reserved, random);
        Ok(Self { request, local, ports, search, lookup: crate::diag::Lookup::open()?, is_taken: false })
    }

    /// Tries some ports.
    fn step(&mut self) -> Result<Progress, ConnectError> {
        for _ in 0..TRIES_AT_ONCE {
            let port = match self.search.next() {
                Step::Try(port) => port,
                Step::Pause(pause) => return Ok(Progress::Pause(pause)),
                Step::Exhausted => return Err(self.exhausted()),
            };
            match self.try_port(port)? {
                Tried::Connected(socket) => return Ok(Progress::Connected(socket)),
                Tried::Taken => self.is_taken = true,
                Tried::Busy => self.search.was_busy(port),
            }
        }
        Ok(Progress::Goes)
    }

    fn try_port(&mut self, port: u16) -> Result<Tried, ConnectError> {
        let local = self.request.local(self.local, port);
        let destination = self.request.destination;
        // Most ports that are in use are found here, without a socket.
        match self.lookup.holder(local, destination)? {
            Some(holder) if holder.is_connected => return Ok(Tried::Taken),
            Some(_) => return Ok(Tried::Busy),
            None => {}
        }
        let socket = udp_socket(destination)?;
        socket.set_reuse_address(true)?;
        match options::bind(&socket, local) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Ok(Tried::Busy),
            Err(error) => return Err(error),
        }
        // The lock: no other socket can bind to this port any more.
        socket.set_reuse_address(false)?;
        let own = rustix::net::sockopt::socket_cookie(&socket).map_err(io::Error::from)?;
        match self.lookup.holder(local, destination)? {
            Some(holder) if holder.cookie == own => {}
            Some(holder) if holder.is_connected => return Ok(Tried::Taken),
            Some(_) => return Ok(Tried::Busy),
            None => return Err(ConnectError::NoSocketLookup("it does not find a bound socket".to_owned())),
        }
        socket.connect(&destination.into()).map_err(|error| self.request.not_reached(error))?;
        drop_strangers(&socket);
        if !self.request.is_exclusive {
            socket.set_reuse_address(true)?;
        }
        Ok(Tried::Connected(socket.into()))
    }

    fn exhausted(&self) -> ConnectError {
        let Source::AddressAndPort(source_address) = self.request.source else {
            return self.request.no_port_left(Protocol::Udp, self.ports);
        };
        if !self.is_taken {
            return ConnectError::PortHeld { protocol: Protocol::Udp, source_address };
        }
        ConnectError::FourTupleTaken { protocol: Protocol::Udp, source_address, destination: self.request.destination }
    }
}

/// Drops what others have sent between bind(2) and connect(2). Afterwards only the destination can send.
#[cfg(target_os = "linux")]
fn drop_strangers(socket: &Socket) {
    use rustix::{
        io::Errno,
        net::{RecvFlags, recv},
    };
    /// More than the kernel's buffer holds by default.
    const MAX_DATAGRAMS: usize = 4_096;
    for _ in 0..MAX_DATAGRAMS {
        if recv(socket, &mut [0_u8; 1], RecvFlags::DONTWAIT) == Err(Errno::AGAIN) {
            return;
        }
    }
}

/// A search of a port that others have: not on this system.
#[cfg(not(target_os = "linux"))]
struct Sharing;

#[cfg(not(target_os = "linux"))]
impl Sharing {
    fn new(_: &Connect, _: IpAddr, _: PortRange) -> Result<Self, ConnectError> {
        drop(ports::reserved());
        Err(ConnectError::NoSocketLookup("it is part of Linux".to_owned()))
    }

    fn step(&mut self) -> Result<Progress, ConnectError> {
        Err(ConnectError::NoSocketLookup("it is part of Linux".to_owned()))
    }
}
