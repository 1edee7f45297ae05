//! The sockets of a port.

use std::{
    io,
    net::{SocketAddr, UdpSocket},
    os::fd::{AsFd as _, OwnedFd},
    sync::{Arc, atomic::AtomicBool},
};

use parking_lot::Mutex;
use quinn::{AsyncUdpSocket, Runtime as _, TokioRuntime};
use tokio::task::JoinHandle;

use crate::{
    connection_id::ServerNumber,
    handover::{self, HandoverError},
    listener::QuicListener,
    router::{QuicCounts, Router},
    secret::QuicSecret,
    sharing::Sharing,
    socket::RoutedSocket,
};

/// The most sockets of a port.
pub const MAX_SOCKETS: usize = 64;

/// An open UDP port for QUIC. Clones share it.
#[derive(Debug, Clone)]
pub struct QuicPort(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    address: SocketAddr,
    router: Arc<Router>,
    /// Copies of the sockets, for the next process.
    copies: Vec<OwnedFd>,
    /// The sockets, until they are taken.
    sockets: Mutex<Vec<UdpSocket>>,
    /// Receives what the process that took over passes on.
    receiving: Mutex<Option<JoinHandle<()>>>,
}

/// One socket of a port. Its connections are served where [`QuicSocket::listen`] is called.
#[derive(Debug)]
pub struct QuicSocket {
    socket: UdpSocket,
    number: u8,
    router: Arc<Router>,
}

impl QuicPort {
    /// The port of these sockets, which share one address: one for each shard. `secret` outlives the process, so that
    /// clients of a process that crashed learn of its end at once.
    ///
    /// # Errors
    /// There are no sockets or too many, or the system does not permit to copy them.
    pub fn new(sockets: Vec<UdpSocket>, secret: QuicSecret) -> io::Result<Self> {
        Self::new_as(sockets, secret, None)
    }

    /// As [`QuicPort::new`]; with a number, connection IDs name the server to a balancer.
    ///
    /// # Errors
    /// As [`QuicPort::new`].
    pub fn new_as(sockets: Vec<UdpSocket>, secret: QuicSecret, server: Option<ServerNumber>) -> io::Result<Self> {
        let router = Router::new(secret, 0, sockets.len(), Vec::new(), server)?;
        Self::of(sockets, router)
    }

    /// The port that a former process gave by [`QuicPort::pass`].
    ///
    /// # Errors
    /// The former process passed on something else.
    pub fn inherit(files: Vec<OwnedFd>) -> Result<Self, HandoverError> {
        Self::inherit_as(files, None)
    }

    /// As [`QuicPort::inherit`]; with a number, connection IDs name the server to a balancer.
    ///
    /// # Errors
    /// As [`QuicPort::inherit`].
    pub fn inherit_as(files: Vec<OwnedFd>, server: Option<ServerNumber>) -> Result<Self, HandoverError> {
        let inherited = handover::inherit(files)?;
        let (secret, generation) = (inherited.secret, inherited.generation);
        let router = Router::new(secret, generation, inherited.sockets.len(), inherited.former, server)?;
        Ok(Self::of(inherited.sockets, router)?)
    }

    fn of(sockets: Vec<UdpSocket>, router: Arc<Router>) -> io::Result<Self> {
        if sockets.len() > MAX_SOCKETS {
            return Err(io::Error::other(format!("a port has at most {MAX_SOCKETS} sockets")));
        }
        let first = sockets.first().ok_or_else(|| io::Error::other("a port has at least one socket"))?;
        let address = first.local_addr()?;
        let copies = sockets.iter().map(|socket| socket.as_fd().try_clone_to_owned()).collect::<io::Result<_>>()?;
        let (sockets, receiving) = (Mutex::new(sockets), Mutex::default());
        Ok(Self(Arc::new(Shared { address, router, copies, sockets, receiving })))
    }

    /// The address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// What was routed between sockets and processes.
    #[must_use]
    pub fn counts(&self) -> Arc<QuicCounts> {
        self.0.router.counts.clone()
    }

    /// Lets another protocol have its datagrams of this port. The first one stays. It sends by [`QuicPort::sender`].
    pub fn share_with(&self, sharing: Arc<dyn Sharing>) {
        self.0.router.set_sharing(sharing);
    }

    /// A socket that sends from the port, and must not be read. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// The process has too many open files.
    pub fn sender(&self) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        let first = self.0.copies.first().ok_or_else(|| io::Error::other("a port has at least one socket"))?;
        TokioRuntime.wrap_udp_socket(first.try_clone()?.into())
    }

    /// Takes the sockets, once.
    #[must_use]
    pub fn take_sockets(&self) -> Vec<QuicSocket> {
        let sockets = std::mem::take(&mut *self.0.sockets.lock());
        let router = &self.0.router;
        (0..).zip(sockets).map(|(number, socket)| QuicSocket { socket, number, router: router.clone() }).collect()
    }

    /// Stops reading the sockets, and returns what the next process needs for [`QuicPort::inherit`]. This process keeps
    /// its connections: it writes to the sockets, and receives from the next process. If no process has the port any
    /// more, this one reads again. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// The process has too many open files. It reads on then.
    pub fn pass(&self) -> io::Result<Vec<OwnedFd>> {
        self.0.router.set_replaced(true);
        match handover::pass(&self.0.router, &self.0.copies) {
            Ok((files, own)) => {
                let router = self.0.router.clone();
                let receiving = tokio::spawn(async move {
                    if let Err(error) = handover::receive(own, router.clone()).await {
                        tracing::debug!(%error, "nobody has the QUIC port: its connections here go on");
                        router.set_replaced(false);
                    }
                });
                if let Some(before) = self.0.receiving.lock().replace(receiving) {
                    before.abort();
                }
                Ok(files)
            }
            Err(error) => {
                self.keep();
                Err(error)
            }
        }
    }

    /// Reads the sockets again, because the next process did not take them.
    pub fn keep(&self) {
        if let Some(receiving) = self.0.receiving.lock().take() {
            receiving.abort();
        }
        self.0.router.set_replaced(false);
    }

    /// Whether another process has taken the port over.
    #[must_use]
    pub fn is_replaced(&self) -> bool {
        self.0.router.is_replaced()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(receiving) = self.receiving.get_mut().take() {
            receiving.abort();
        }
    }
}

impl QuicSocket {
    /// The socket's number.
    #[must_use]
    pub fn number(&self) -> usize {
        self.number.into()
    }

    /// Serves the socket in the caller's tokio runtime, with this TLS configuration and its protocols (ALPN).
    /// Connections of `early_protocol` may have early data, if the TLS configuration permits it. `congestion` is bbr,
    /// cubic or reno; any other value means cubic.
    ///
    /// # Errors
    /// The socket or the TLS settings cannot be used.
    pub fn listen(
        self,
        tls: &Arc<rustls::ServerConfig>,
        early_protocol: Option<&[u8]>,
        congestion: Option<&str>,
    ) -> io::Result<QuicListener> {
        let Self { socket, number, router } = self;
        let inner = TokioRuntime.wrap_udp_socket(socket)?;
        let socket = RoutedSocket { inner, number, router, was_routed: AtomicBool::new(false) };
        QuicListener::new(socket, tls, early_protocol, congestion)
    }
}
