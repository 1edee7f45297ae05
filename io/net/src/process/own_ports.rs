//! The ports of sockets, and how they pass to the next process.

use std::{
    collections::HashMap,
    fs, io,
    net::{self, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::MetadataExt as _,
    },
    sync::Arc,
};

use parking_lot::{Mutex, MutexGuard};
use socket2::{SockRef, Type};
use tokio::net::TcpListener;

use crate::{tcp::adopt_listener, udp::UdpPort};

/// The most ports that pass to the next process. The next process opens further ones anew.
pub const MAX_PASSED_PORTS: usize = 4_096;

/// The kind of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum PortKind {
    Tcp,
    Udp,
}

type PortKey = (PortKind, SocketAddr);

/// The open ports of sockets, besides the shared ones. Clones share them.
///
/// Opening a port registers a copy of its socket for the next process, and closing it drops the copy.
#[derive(Debug, Clone, Default)]
pub struct OwnPorts {
    shared: Arc<Mutex<OpenPorts>>,
    /// Udp that the kernel had dropped at each UDP port at the last look, by the socket's inode.
    drops: Arc<Mutex<HashMap<u64, u64>>>,
}

#[derive(Debug, Default)]
struct OpenPorts {
    /// Copies of the open sockets.
    open: HashMap<PortKey, OwnedFd>,
    /// Sockets of the former process that were not taken yet.
    inherited: HashMap<PortKey, OwnedFd>,
}

impl OwnPorts {
    /// Takes the sockets of the former process.
    pub(crate) fn inherit(sockets: impl IntoIterator<Item = OwnedFd>) -> Self {
        let inherited = sockets.into_iter().filter_map(|socket| Some((key(&socket).ok()?, socket)));
        let shared = OpenPorts { inherited: inherited.collect(), ..OpenPorts::default() };
        Self { shared: Arc::new(Mutex::new(shared)), ..Self::default() }
    }

    fn lock(&self) -> MutexGuard<'_, OpenPorts> {
        self.shared.lock()
    }

    /// Takes the former process's TCP port, with its waiting connections. Call it inside of a tokio runtime.
    #[must_use]
    pub fn take_listener(&self, address: SocketAddr) -> Option<TcpListener> {
        let socket = self.lock().inherited.remove(&(PortKind::Tcp, address))?;
        adopt_listener(net::TcpListener::from(socket)).ok()
    }

    /// Takes the former process's UDP port, with its waiting datagrams. Call it inside of a tokio runtime.
    #[must_use]
    pub fn take_udp(&self, address: SocketAddr) -> Option<UdpPort> {
        let socket = self.lock().inherited.remove(&(PortKind::Udp, address))?;
        UdpPort::adopt(net::UdpSocket::from(socket)).ok()
    }

    /// Whether a UDP port is open at this address, or at all addresses with its port.
    #[must_use]
    pub fn has_udp(&self, at: SocketAddr) -> bool {
        let everywhere = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
        let shared = self.lock();
        let is_open = |ip| shared.open.contains_key(&(PortKind::Udp, SocketAddr::new(ip, at.port())));
        is_open(at.ip()) || everywhere.into_iter().any(is_open)
    }

    /// Udp that the kernel has dropped at the open UDP ports since the last call, mostly for lack of room; 0
    /// during another call. Reads files, which takes milliseconds with thousands of UDP sockets: call it on a blocking
    /// thread.
    #[must_use]
    pub fn new_kernel_drops(&self) -> u64 {
        let Some(mut before) = self.drops.try_lock() else { return 0 };
        let shared = self.lock();
        let of_udp = shared.open.iter().filter(|((carries, _), _)| *carries == PortKind::Udp);
        let inodes: Vec<u64> = of_udp.filter_map(|(_, socket)| inode(socket).ok()).collect();
        drop(shared);
        if inodes.is_empty() {
            return 0;
        }
        let mut now = HashMap::new();
        for file in ["/proc/net/udp", "/proc/net/udp6"] {
            let lines = fs::read_to_string(file).unwrap_or_default();
            now.extend(lines.lines().filter_map(drops_in).filter(|(inode, _)| inodes.contains(inode)));
        }
        let more = now.iter().map(|(inode, drops)| drops.saturating_sub(before.get(inode).copied().unwrap_or(0)));
        let more = more.sum();
        *before = now;
        more
    }

    /// Closes the former process's sockets that were not taken.
    pub fn forget_inherited(&self) {
        let forgotten = std::mem::take(&mut self.lock().inherited);
        drop(forgotten);
    }

    /// Registers an open port, which passes to the next process until [`OpenPort`] is dropped. A port that cannot be
    /// copied, for lack of files, does not pass on.
    #[must_use]
    pub fn opened(&self, socket: &impl AsFd) -> OpenPort {
        let copy = socket.as_fd().try_clone_to_owned().and_then(|copy| Ok((key(&copy)?, copy)));
        let key = match copy {
            Ok((key, copy)) => {
                self.lock().open.insert(key, copy);
                Some(key)
            }
            Err(error) => {
                tracing::debug!(%error, "a port will not be handed over");
                None
            }
        };
        OpenPort { ports: self.clone(), key }
    }

    /// Copies of all open sockets, up to the limit.
    pub(crate) fn copies(&self) -> io::Result<Vec<OwnedFd>> {
        self.lock().open.values().take(MAX_PASSED_PORTS).map(|socket| socket.as_fd().try_clone_to_owned()).collect()
    }
}

/// The registration of an open port. Dropping it closes the copy.
#[derive(Debug)]
pub struct OpenPort {
    ports: OwnPorts,
    key: Option<PortKey>,
}

impl OpenPort {
    /// All open ports.
    #[must_use]
    pub fn ports(&self) -> &OwnPorts {
        &self.ports
    }
}

impl Drop for OpenPort {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            let copy = self.ports.lock().open.remove(&key);
            drop(copy);
        }
    }
}

fn inode(socket: &OwnedFd) -> io::Result<u64> {
    Ok(fs::File::from(socket.try_clone()?).metadata()?.ino())
}

/// The inode and the dropped datagrams in a line of `/proc/net/udp`.
fn drops_in(line: &str) -> Option<(u64, u64)> {
    let mut fields = line.split_ascii_whitespace().skip(9);
    let inode = fields.next()?.parse().ok()?;
    Some((inode, fields.nth(2)?.parse().ok()?))
}

fn key(socket: &OwnedFd) -> io::Result<PortKey> {
    let socket = SockRef::from(socket);
    let carries = match socket.r#type()? {
        Type::STREAM => PortKind::Tcp,
        Type::DGRAM => PortKind::Udp,
        _ => return Err(io::Error::other("the socket is neither TCP nor UDP")),
    };
    let address = socket.local_addr()?.as_socket().ok_or_else(|| io::Error::other("the socket has no IP address"))?;
    Ok((carries, address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn open_udp_ports_are_known_at_their_address_for_as_long_as_they_are_open() {
        let ports = OwnPorts::default();
        let one = UdpPort::bind("127.0.0.1:0".parse().unwrap(), "--x").unwrap();
        let all = UdpPort::bind("0.0.0.0:0".parse().unwrap(), "--x").unwrap();
        let at = |ip: &str, port: &UdpPort| SocketAddr::new(ip.parse().unwrap(), port.address().port());
        let (opened, other) = (ports.opened(&one), ports.opened(&all));
        assert!(opened.ports().has_udp(one.address()) && !ports.has_udp(at("127.0.0.2", &one)));
        assert!(ports.has_udp(at("127.0.0.2", &all)) && ports.has_udp(at("192.0.2.1", &all)));
        assert_eq!(ports.new_kernel_drops(), 0);
        let sender = net::UdpSocket::bind("127.0.0.1:0").unwrap();
        // More than the largest buffer that the kernel gives.
        (0..1_000).for_each(|_| drop(sender.send_to(&[0; 60_000], one.address())));
        let asked = ports.drops.lock();
        assert_eq!(ports.new_kernel_drops(), 0, "another call is running");
        drop(asked);
        let drops = ports.new_kernel_drops();
        assert!((500..1_000).contains(&drops), "{drops}");
        assert_eq!(ports.new_kernel_drops(), 0, "each is reported once");
        drop((opened, other));
        assert!(!ports.has_udp(one.address()) && !ports.has_udp(all.address()));
    }
}
