//! The ports that sockets have for themselves, as they pass from a process to the one that replaces it.

use std::{
    collections::HashMap,
    io,
    net::{self, SocketAddr},
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use socket2::{SockRef, Type};
use tokio::net::TcpListener;

use crate::{UdpPort, listening};

/// How many ports are passed on; further ones are opened anew by the next process.
pub const MAX_PASSED_PORTS: usize = 4_096;

/// What a port carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Carries {
    Connections,
    Datagrams,
}

type Key = (Carries, SocketAddr);

/// The open ports of sockets, beside the two that everybody shares. Clones share them.
///
/// Whoever opens a port says so here, and closes it here: a copy of the port's socket is kept for the next process.
#[derive(Debug, Clone, Default)]
pub struct OwnPorts {
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Copies of what is open here.
    open: HashMap<Key, OwnedFd>,
    /// What the former process had open, until it is asked for.
    inherited: HashMap<Key, OwnedFd>,
}

impl OwnPorts {
    /// What a former process handed over.
    pub(crate) fn inherit(sockets: impl IntoIterator<Item = OwnedFd>) -> Self {
        let inherited = sockets.into_iter().filter_map(|socket| Some((key(&socket).ok()?, socket)));
        Self { shared: Arc::new(Mutex::new(Shared { open: HashMap::new(), inherited: inherited.collect() })) }
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The TCP port that the former process had open, with the connections that wait in it. To be called inside of a
    /// tokio runtime.
    #[must_use]
    pub fn take_listener(&self, address: SocketAddr) -> Option<TcpListener> {
        let socket = self.lock().inherited.remove(&(Carries::Connections, address))?;
        listening::adopt(net::TcpListener::from(socket)).ok()
    }

    /// The UDP port that the former process had open, with the datagrams that wait in it. To be called inside of a
    /// tokio runtime.
    #[must_use]
    pub fn take_udp(&self, address: SocketAddr) -> Option<UdpPort> {
        let socket = self.lock().inherited.remove(&(Carries::Datagrams, address))?;
        UdpPort::adopt(net::UdpSocket::from(socket)).ok()
    }

    /// Closes what the former process had open and nobody asked for.
    pub fn forget_inherited(&self) {
        let forgotten = std::mem::take(&mut self.lock().inherited);
        drop(forgotten);
    }

    /// This port is open here now, and is handed over to the next process until [`Opened`] is dropped. A port that
    /// cannot be copied, for lack of files, is not handed over.
    #[must_use]
    pub fn opened(&self, socket: &impl AsFd) -> Opened {
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
        Opened { ports: self.clone(), key }
    }

    /// Copies of all that is open now, as many as are passed on.
    pub(crate) fn copies(&self) -> io::Result<Vec<OwnedFd>> {
        self.lock().open.values().take(MAX_PASSED_PORTS).map(|socket| socket.as_fd().try_clone_to_owned()).collect()
    }
}

/// A port that is open. Dropping it ends its being handed over; the copy is closed.
#[derive(Debug)]
pub struct Opened {
    ports: OwnPorts,
    key: Option<Key>,
}

impl Drop for Opened {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            let copy = self.ports.lock().open.remove(&key);
            drop(copy);
        }
    }
}

fn key(socket: &OwnedFd) -> io::Result<Key> {
    let socket = SockRef::from(socket);
    let carries = match socket.r#type()? {
        Type::STREAM => Carries::Connections,
        Type::DGRAM => Carries::Datagrams,
        _ => return Err(io::Error::other("it is no TCP or UDP socket")),
    };
    let address = socket.local_addr()?.as_socket().ok_or_else(|| io::Error::other("it has no IP address"))?;
    Ok((carries, address))
}
