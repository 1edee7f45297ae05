//! Starts and stops the server.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

use parking_lot::Mutex;
use sallyport_zone::{Settings, State, StateConfig, View, Zones, limit::SharedRateLimiter};
use tokio::sync::watch;

use crate::{
    bind::MAX_UDP_SOCKETS,
    counters::Counters,
    current::{Copy, Current, Snapshot},
    tcp::{self, TcpLimits},
    udp,
};

/// States that TCP connections share.
const TCP_STATES: usize = 4;

/// How a server is bounded.
#[derive(Debug, Clone, Default)]
pub struct ServerConfig {
    /// For each thread: signatures, and rates of answers over UDP. The rate of a network is shared out among threads.
    pub state: StateConfig,
    /// TCP connections.
    pub tcp: TcpLimits,
}

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// There is no socket.
    #[error("a name server needs a UDP socket")]
    NoSocket,
    /// There are too many.
    #[error("a name server has at most {MAX_UDP_SOCKETS} UDP sockets")]
    TooManySockets,
    /// The system refuses.
    #[error("the name server cannot use its socket: {0}")]
    Socket(#[from] io::Error),
    /// No randomness.
    #[error("the system has no randomness: {0}")]
    Random(String),
}

/// A running name server. It stops when it is dropped.
#[derive(Debug)]
pub struct Server {
    current: Arc<Current>,
    counters: Arc<Counters>,
    is_stopping: Arc<AtomicBool>,
    stop: watch::Sender<bool>,
    threads: Vec<JoinHandle<()>>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
    address: SocketAddr,
    /// The sockets once more, for a successor.
    udp: Vec<UdpSocket>,
    tcp: Vec<TcpListener>,
    /// Held while a view is copied and changed.
    view_change: Mutex<()>,
}

/// A port from which nobody sends.
const UNUSED_PORT: u16 = 1;

impl Server {
    /// Starts a thread for each UDP socket, and a task for each TCP listener. Call it inside of a tokio runtime.
    ///
    /// # Errors
    /// There is no UDP socket, or a socket cannot be used.
    pub fn start(
        config: &ServerConfig,
        zones: Arc<Zones>,
        settings: Arc<Settings>,
        udp: Vec<UdpSocket>,
        tcp: Vec<TcpListener>,
    ) -> Result<Self, StartError> {
        Self::start_with(config, zones, View::default(), settings, udp, tcp)
    }

    /// Like [`Server::start`], with a view from the first answer on.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn start_with(
        config: &ServerConfig,
        zones: Arc<Zones>,
        view: View,
        settings: Arc<Settings>,
        udp: Vec<UdpSocket>,
        tcp: Vec<TcpListener>,
    ) -> Result<Self, StartError> {
        if udp.len() > MAX_UDP_SOCKETS {
            return Err(StartError::TooManySockets);
        }
        let address = udp.first().ok_or(StartError::NoSocket)?.local_addr()?;
        let snapshot = Snapshot { zones, view: Arc::new(view), settings };
        let (stop, _) = watch::channel(false);
        let mut server = Self {
            current: Arc::new(Current::new(snapshot)),
            counters: Arc::default(),
            is_stopping: Arc::default(),
            stop,
            threads: Vec::new(),
            tasks: Vec::new(),
            address,
            udp: Vec::new(),
            tcp: Vec::new(),
            view_change: Mutex::default(),
        };
        let mut state_config = config.state.clone();
        let limiter = Arc::new(SharedRateLimiter::new(state_config.rate.clone(), random_key()?));
        for (index, socket) in udp.into_iter().enumerate() {
            let state = State::sharing(state_config.clone(), random_key()?, limiter.clone());
            server.udp.push(socket.try_clone()?);
            let (copy, counters) = (Copy::new(server.current.clone()), server.counters.clone());
            let worker = udp::Worker::new(socket, copy, state, counters, server.is_stopping.clone())?;
            let thread = thread::Builder::new().name(format!("dns-{index}")).spawn(move || worker.run())?;
            server.threads.push(thread);
        }
        let mut states = Vec::new();
        // No sender of TCP is forged.
        state_config.rate.answers_per_second = 0;
        for _ in 0..TCP_STATES {
            states.push(Mutex::new(State::new(state_config.clone(), random_key()?)));
        }
        let shared =
            Arc::new(tcp::Shared::new(server.current.clone(), server.counters.clone(), states, config.tcp.clone()));
        for listener in tcp {
            listener.set_nonblocking(true)?;
            server.tcp.push(listener.try_clone()?);
            let listener = tokio::net::TcpListener::from_std(listener)?;
            server.tasks.push(tokio::spawn(tcp::accept(listener, shared.clone(), server.stop.subscribe())));
        }
        Ok(server)
    }

    /// The address of the first UDP socket.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The sockets for a successor, which may be another process. Both answer until this server stops, and no query is
    /// lost.
    ///
    /// # Errors
    /// Too many files are open.
    pub fn sockets(&self) -> io::Result<(Vec<UdpSocket>, Vec<TcpListener>)> {
        let udp: io::Result<_> = self.udp.iter().map(UdpSocket::try_clone).collect();
        let tcp: io::Result<_> = self.tcp.iter().map(TcpListener::try_clone).collect();
        Ok((udp?, tcp?))
    }

    /// Serves these zones from the next query on.
    pub fn set_zones(&self, zones: Arc<Zones>) {
        self.current.change(|snapshot| snapshot.zones = zones);
    }

    /// Serves this view from the next query on.
    pub fn set_view(&self, view: Arc<View>) {
        self.current.change(|snapshot| snapshot.view = view);
    }

    /// Serves by these settings from the next query on.
    pub fn set_settings(&self, settings: Arc<Settings>) {
        self.current.change(|snapshot| snapshot.settings = settings);
    }

    /// Serves a changed copy of the view from the next query on. Of several changes at one time none is lost.
    pub fn change_view(&self, change: impl FnOnce(&mut View)) {
        let _one = self.view_change.lock();
        let mut view = View::clone(&self.view());
        change(&mut view);
        self.set_view(Arc::new(view));
    }

    /// The view that is served now.
    #[must_use]
    pub fn view(&self) -> Arc<View> {
        self.current.snapshot().view
    }

    /// The zones that are served now.
    #[must_use]
    pub fn zones(&self) -> Arc<Zones> {
        self.current.snapshot().zones
    }

    /// What the server has done.
    #[must_use]
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// Leaves queries over UDP to the other sockets on the port, which a successor has opened. Call it before
    /// [`Server::stop`], and not when the successor has the sockets of this server.
    ///
    /// A connected socket takes datagrams of its peer alone, so that the kernel chooses among the others.
    pub fn withdraw(&self) {
        for socket in &self.udp {
            let Ok(own) = socket.local_addr() else { continue };
            let peer = match own.ip() {
                ip if !ip.is_unspecified() => ip,
                IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            };
            // Where it fails, questions on the way are lost, and clients ask again.
            let _ = socket.connect((peer, UNUSED_PORT));
        }
    }

    /// Stops: queries that have come are answered, connections are closed after their current answer.
    pub async fn stop(mut self) {
        self.mark_stopping();
        for task in std::mem::take(&mut self.tasks) {
            // A task ends only by itself.
            let _ = task.await;
        }
        let threads = std::mem::take(&mut self.threads);
        // Threads wait for their sockets for a moment.
        let _ = tokio::task::spawn_blocking(move || threads.into_iter().for_each(|thread| drop(thread.join()))).await;
    }

    fn mark_stopping(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        self.stop.send_replace(true);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.mark_stopping();
    }
}

fn random_key() -> Result<[u8; 16], StartError> {
    let mut key = [0; 16];
    getrandom::fill(&mut key).map_err(|source| StartError::Random(source.to_string()))?;
    Ok(key)
}
