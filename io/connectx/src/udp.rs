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
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use socket2::{Domain, Protocol as Kind, Socket, Type};

#[cfg(target_os = "linux")]
use crate::search::{Search, Step};
use crate::{Connect, ConnectError, PortRange, Protocol, Source, options, ports};

/// After how many ports a search lets other tasks run.
#[cfg(target_os = "linux")]
const TRIES_AT_ONCE: u32 = 64;

/// How long after a shortage the kernel is not asked for a port without sockets.
///
/// The kernel takes a millisecond to find out that there is none; a search takes some microseconds for a port.
const SHORTAGE_TIME: Duration = Duration::from_secs(1);

/// When the kernel last had no port without sockets.
static SHORTAGE: Shortage = Shortage(Mutex::new(None));

struct Shortage(Mutex<Option<Instant>>);

impl Shortage {
    fn is_recent(&self) -> bool {
        self.last().is_some_and(|at| at.elapsed() < SHORTAGE_TIME)
    }

    fn began(&self) {
        *self.last() = Some(Instant::now());
    }

    fn last(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How the socket is made.
enum First {
    /// The kernel has found a port without sockets.
    Connected(net::UdpSocket),
    /// Ports are searched, those of others included.
    Search { local: IpAddr, ports: PortRange },
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

    /// Lets the kernel choose a port that no other socket has, which needs no lock; otherwise says where to search.
    fn udp_by_kernel(&self) -> Result<First, ConnectError> {
        self.check()?;
        if let Some(ports) = self.ports {
            ports.check()?;
        }
        let local = match self.source {
            Source::AddressAndPort(local) => {
                let invalid = |_| ConnectError::InvalidRequest(format!("{local} is no source"));
                let ports = PortRange::new(local.port(), local.port()).map_err(invalid)?;
                return Ok(First::Search { local: local.ip(), ports });
            }
            Source::Address(ip) => ip,
            Source::Any => {
                if self.ports.is_none()
                    && let Some(socket) = self.udp_plain()?
                {
                    return Ok(First::Connected(socket));
                }
                source_for(self.destination)?
            }
        };
        let ports = self.ports.map_or_else(PortRange::of_namespace, Ok)?;
        Ok(First::Search { local, ports })
    }

    /// Connects from a port that no other socket has; `None` if there is none.
    fn udp_plain(&self) -> Result<Option<net::UdpSocket>, ConnectError> {
        if SHORTAGE.is_recent() {
            return Ok(None);
        }
        let socket = udp_socket(self.destination)?;
        match socket.connect(&self.destination.into()) {
            Ok(()) => {}
            // The kernel has found no port (EAGAIN).
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                SHORTAGE.began();
                return Ok(None);
            }
            Err(error) => return Err(self.not_reached(error)),
        }
        if !self.is_exclusive {
            socket.set_reuse_address(true)?;
        }
        Ok(Some(socket.into()))
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
#[derive(Debug)]
enum Tried {
    /// This socket has the port, and the lock.
    Locked(Socket),
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
            match self.lock(port)? {
                Tried::Locked(socket) => return Ok(Progress::Connected(self.connect(socket)?)),
                Tried::Taken => self.is_taken = true,
                Tried::Busy => self.search.was_busy(port),
            }
        }
        Ok(Progress::Goes)
    }

    /// Binds a socket to the port, so that no other can have the four-tuple until it connects.
    fn lock(&mut self, port: u16) -> Result<Tried, ConnectError> {
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
        Ok(Tried::Locked(socket))
    }

    /// Connects the socket, and ends the lock.
    fn connect(&self, socket: Socket) -> Result<net::UdpSocket, ConnectError> {
        let to = self.request.destination;
        socket.connect(&to.into()).map_err(|error| self.request.not_reached(error))?;
        drop_strangers(&socket);
        if !self.request.is_exclusive {
            socket.set_reuse_address(true)?;
        }
        Ok(socket.into())
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

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    fn bound(at: SocketAddr) -> io::Result<Socket> {
        let socket = udp_socket(at)?;
        socket.set_reuse_address(true)?;
        socket.bind(&at.into())?;
        Ok(socket)
    }

    #[test]
    fn nobody_can_bind_to_the_port_between_the_look_up_and_the_connect() {
        // A port that was free a moment ago, of an address that no other test has.
        let at = net::UdpSocket::bind("127.0.77.1:0").unwrap().local_addr().unwrap();
        let ports = PortRange::new(at.port(), at.port()).unwrap();
        let one = Connect::to("127.0.77.2:9".parse().unwrap()).from_port(at);
        let other = Connect::to("127.0.77.3:9".parse().unwrap()).from_port(at);
        let mut locking = Sharing::new(&one, at.ip(), ports).unwrap();
        let Tried::Locked(locked) = locking.lock(at.port()).unwrap() else { panic!("the port is in use") };
        assert_eq!(bound(at).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        let mut sharing = Sharing::new(&other, at.ip(), ports).unwrap();
        assert!(matches!(sharing.lock(at.port()), Ok(Tried::Busy)));

        let _connected = locking.connect(locked).unwrap();
        assert!(matches!(locking.lock(at.port()), Ok(Tried::Taken)));
        let Tried::Locked(locked) = sharing.lock(at.port()).unwrap() else { panic!("the port is not shared") };
        drop(sharing.connect(locked).unwrap());
    }

    #[test]
    fn of_sockets_that_are_bound_together_the_kernel_names_one_to_all() {
        let at = net::UdpSocket::bind("127.0.77.4:0").unwrap().local_addr().unwrap();
        let to: SocketAddr = "127.0.77.5:9".parse().unwrap();
        let sockets: Vec<_> = (0..4).map(|_| bound(at).unwrap()).collect();
        sockets.iter().for_each(|socket| socket.set_reuse_address(false).unwrap());
        let mut lookup = crate::diag::Lookup::open().unwrap();
        let named = lookup.holder(at, to).unwrap().unwrap();
        let cookies: Vec<_> = sockets.iter().map(|one| rustix::net::sockopt::socket_cookie(one).unwrap()).collect();
        assert!(cookies.contains(&named.cookie) && !named.is_connected);
        sockets[0].connect(&"127.0.77.6:9".parse::<SocketAddr>().unwrap().into()).unwrap();
        assert_eq!(lookup.holder(at, to).unwrap(), Some(named), "one that connects elsewhere changes nothing");
        assert_eq!(lookup.holder(at, "127.0.77.6:9".parse().unwrap()).unwrap().unwrap().cookie, cookies[0]);
    }

    #[test]
    fn what_strangers_sent_before_the_connect_is_dropped() {
        let at = net::UdpSocket::bind("127.0.77.7:0").unwrap().local_addr().unwrap();
        let stranger = net::UdpSocket::bind("127.0.77.8:0").unwrap();
        let service = net::UdpSocket::bind("127.0.77.9:0").unwrap();
        let request = Connect::to(service.local_addr().unwrap()).from_port(at);
        let mut sharing = Sharing::new(&request, at.ip(), PortRange::new(at.port(), at.port()).unwrap()).unwrap();
        let Tried::Locked(locked) = sharing.lock(at.port()).unwrap() else { panic!("the port is in use") };
        for text in ["one", "two"] {
            stranger.send_to(text.as_bytes(), at).unwrap();
        }
        let socket = sharing.connect(locked).unwrap();
        service.send_to(b"answer", at).unwrap();
        let mut bytes = [0; 16];
        assert_eq!(socket.recv(&mut bytes).unwrap(), 6);
        assert_eq!(&bytes[..6], b"answer");
    }
}
