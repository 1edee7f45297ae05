//! The server: limits, lifetime and end of connections.

use std::{
    collections::HashMap,
    future::Future,
    io::ErrorKind,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use sallyport_ssh_proto::{Config, Error, Server};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    sync::watch,
    time::{Instant, sleep, sleep_until, timeout},
};
use tracing::debug;

use crate::{
    Connection, SshConfig, SshGate, SshStats,
    connection::{Ending, Inner},
    handler::Handler,
    link::Link,
    session::{Session, SessionError},
    stats::{count, uncount},
    transport::Transport,
};

/// Time that a client has to close the connection after its shell has ended.
const LEAVE_TIME: Duration = Duration::from_secs(1);
/// Time that a client has to close its connection after a disconnect message.
const DISCONNECT_TIME: Duration = Duration::from_secs(2);
/// Interval of checking for connections without a forward.
const IDLE_CHECK: Duration = Duration::from_secs(5);

/// The SSH server. Clones are the same server.
#[derive(Clone)]
pub struct SshServer {
    shared: Arc<ServerState>,
}

pub(crate) struct ServerState {
    pub(crate) config: SshConfig,
    pub(crate) gate: Arc<dyn SshGate>,
    protocol: Arc<Config>,
    stats: Arc<SshStats>,
    next_id: AtomicU64,
    places: Mutex<ConnectionCounts>,
    shutdown: watch::Sender<Option<Shutdown>>,
    open: watch::Sender<usize>,
}

#[derive(Debug, Clone)]
struct Shutdown {
    message: String,
    until: Instant,
}

#[derive(Debug, Default)]
struct ConnectionCounts {
    all: usize,
    unauthenticated: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionEnd {
    /// Refused by a limit, or by the gate.
    Refused,
    /// No login: timeout, no accepted key, or no SSH client.
    NotLoggedIn,
    /// The client closed the connection.
    Left,
    /// The client was lost: unresponsive, not reading, or violating the protocol.
    Lost,
    /// The server closed the connection.
    Ended,
}

impl SshServer {
    /// A server with this configuration. It does not listen; pass connections to it.
    pub fn new(config: SshConfig, gate: Arc<dyn SshGate>) -> Self {
        let shared = ServerState {
            protocol: Arc::new(config.to_protocol()),
            config,
            gate,
            stats: Arc::default(),
            next_id: AtomicU64::new(1),
            places: Mutex::default(),
            shutdown: watch::Sender::new(None),
            open: watch::Sender::new(0),
        };
        Self { shared: Arc::new(shared) }
    }

    /// The metrics of the server.
    pub fn stats(&self) -> &Arc<SshStats> {
        &self.shared.stats
    }

    /// Serves one connection until its end. `stream` should have `TCP_NODELAY`.
    pub async fn serve_connection<S>(&self, stream: S, peer: SocketAddr) -> ConnectionEnd
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        self.serve_in_place(stream, peer, std::future::pending()).await
    }

    /// Like [`Self::serve_connection`], for a connection that occupies a shared slot until its login. `pushed_out`
    /// resolves when another connection needs the slot, which ends this one; it is dropped at the login.
    pub async fn serve_in_place<S>(
        &self,
        mut stream: S,
        peer: SocketAddr,
        pushed_out: impl Future<Output = ()> + Send + 'static,
    ) -> ConnectionEnd
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let shared = &self.shared;
        let Some(place) = shared.place(peer.ip()).filter(|_| shared.gate.admits(peer)) else {
            count(&shared.stats.connections_refused);
            // RFC 4253 section 4.2 allows lines before the version; OpenSSH shows this one.
            let _ = timeout(LEAVE_TIME, stream.write_all(b"no more connections are accepted now: try again later\r\n"))
                .await;
            return ConnectionEnd::Refused;
        };
        count(&shared.stats.connections);
        let link = Arc::new(Link::new(Server::new(shared.protocol.clone(), cookie, std::time::Instant::now())));
        let id = shared.next_id.fetch_add(1, Ordering::Relaxed);
        let limit = shared.config.max_streams_per_connection;
        let connection = Arc::new(Inner::new(id, peer, limit, shared.stats.clone(), link.clone()));
        // Also runs if the caller drops this future.
        let mut over = Over { shared: shared.clone(), connection: connection.clone(), place };
        let transport = Transport::new(stream, shared.config.write_stall(), link.sign_of_life.clone());
        let session = Session::new(transport, link, Handler::new(shared.clone(), connection.clone()));
        let end = shared.run(session, &mut over, Box::pin(pushed_out)).await;
        debug!(connection = id, ?end, "ssh connection over");
        end
    }

    /// Stops the server: refuses connections, forwards and streams, shows `message` in every shell, and closes each
    /// connection when its streams have ended, or after `grace`. Returns when all are closed.
    pub async fn shutdown(&self, message: &str, grace: Duration) {
        let until = Instant::now() + grace;
        self.shared.shutdown.send_replace(Some(Shutdown { message: message.to_owned(), until }));
        let mut open = self.shared.open.subscribe();
        // Never fails, because `self` holds the sender.
        let _ = open.wait_for(|open| *open == 0).await;
    }
}

impl std::fmt::Debug for SshServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SshServer").field("config", &self.shared.config).finish_non_exhaustive()
    }
}

impl ServerState {
    async fn run<S>(&self, mut session: Session<S>, over: &mut Over, pushed_out: PushedOut) -> ConnectionEnd
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let mut pushed_out = Some(pushed_out);
        let connection = &over.connection;
        let login_until = Instant::now() + self.config.auth_time;
        let mut shutdown = self.shutdown.subscribe();
        let mut idle_since = Instant::now();
        loop {
            if connection.is_logged_in() {
                over.place.logged_in();
                pushed_out = None;
            }
            if let Some(ending) = connection.ending() {
                let until = Instant::now() + ending.grace;
                return self.drain(&mut session, connection, ending, until).await;
            }
            let asked = shutdown.borrow_and_update().clone();
            if let Some(asked) = asked {
                let Shutdown { message, until } = asked;
                let grace = until.saturating_duration_since(Instant::now());
                let ending = Ending { message, status: 1, grace };
                return self.drain(&mut session, connection, ending, until).await;
            }
            tokio::select! {
                result = &mut session => return self.over(connection, result),
                () = connection.changed.notified() => {}
                _ = shutdown.changed() => {}
                () = needed(&mut pushed_out), if !over.place.is_logged_in => {
                    if !connection.is_logged_in() {
                        return self.was_pushed_out();
                    }
                }
                () = sleep_until(login_until), if !over.place.is_logged_in => {
                    if !connection.is_logged_in() {
                        count(&self.stats.logins_timed_out);
                        return ConnectionEnd::NotLoggedIn;
                    }
                }
                () = sleep(IDLE_CHECK.min(self.config.idle)), if over.place.is_logged_in => {
                    if connection.forward_count() > 0 || *connection.streams.borrow() > 0 {
                        idle_since = Instant::now();
                    } else if idle_since.elapsed() >= self.config.idle {
                        connection.ask_to_end(
                            "ended: there was no forward; use ssh -R 80:localhost:8000, for example",
                            1,
                            Duration::ZERO,
                        );
                    }
                }
            }
        }
    }

    fn was_pushed_out(&self) -> ConnectionEnd {
        count(&self.stats.logins_pushed_out);
        ConnectionEnd::NotLoggedIn
    }

    /// Lets streams finish first.
    async fn drain<S>(
        &self,
        session: &mut Session<S>,
        connection: &Arc<Inner>,
        ending: Ending,
        until: Instant,
    ) -> ConnectionEnd
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        connection.close();
        connection.console().line(&ending.message);
        let mut streams = connection.streams.subscribe();
        if *streams.borrow_and_update() > 0 && until > Instant::now() {
            tokio::select! {
                result = &mut *session => return self.over(connection, result),
                _ = streams.wait_for(|streams| *streams == 0) => {}
                () = sleep_until(until) => {}
            }
        }
        // Source of the shell's exit status.
        connection.ask_to_end(&ending.message, ending.status, Duration::ZERO);
        end(session, connection, ending).await
    }

    fn over(&self, connection: &Inner, result: Result<(), SessionError>) -> ConnectionEnd {
        match result {
            Err(error) if !connection.is_logged_in() => {
                debug!(%error, "no ssh login");
                ConnectionEnd::NotLoggedIn
            }
            Ok(()) if !connection.is_logged_in() => ConnectionEnd::NotLoggedIn,
            // A killed client sends no message, but its system closes the connection.
            Ok(()) | Err(SessionError::Ended | SessionError::Protocol(Error::Left { .. })) => ConnectionEnd::Left,
            Err(SessionError::Io(error)) if error.kind() == ErrorKind::UnexpectedEof => ConnectionEnd::Left,
            Err(error) => {
                debug!(%error, "ssh connection lost");
                count(&self.stats.clients_lost);
                ConnectionEnd::Lost
            }
        }
    }

    fn place(self: &Arc<Self>, address: IpAddr) -> Option<Place> {
        let address = network(address);
        if self.shutdown.borrow().is_some() {
            return None;
        }
        let mut places = self.lock_places();
        let from_address = places.by_address.get(&address).copied().unwrap_or(0);
        if places.all >= self.config.max_connections
            || places.unauthenticated >= self.config.max_unauthenticated
            || from_address >= self.config.max_connections_per_address
        {
            return None;
        }
        places.all += 1;
        places.unauthenticated += 1;
        places.by_address.insert(address, from_address + 1);
        drop(places);
        count(&self.stats.connections_open);
        count(&self.stats.logins_pending);
        self.open.send_modify(|open| *open += 1);
        Some(Place { shared: self.clone(), address, is_logged_in: false })
    }

    fn lock_places(&self) -> MutexGuard<'_, ConnectionCounts> {
        self.places.lock()
    }
}

/// Resolves when another connection needs the slot.
type PushedOut = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Resolves when the slot is needed; never without a slot.
async fn needed(place: &mut Option<PushedOut>) {
    match place {
        Some(pushed_out) => {
            pushed_out.await;
            *place = None;
        }
        None => std::future::pending().await,
    }
}

/// Cleanup at the end of a connection.
struct Over {
    shared: Arc<ServerState>,
    connection: Arc<Inner>,
    /// Released after the gate was notified of the end.
    place: Place,
}

impl Drop for Over {
    fn drop(&mut self) {
        if self.connection.over() {
            self.shared.gate.closed(&Connection::new(self.connection.clone()));
        }
    }
}

/// Lets a client with a shell leave by itself after the reason was shown, then disconnects it with the reason.
async fn end<S>(session: &mut Session<S>, connection: &Inner, ending: Ending) -> ConnectionEnd
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let console = connection.console();
    let has_shell = console.is_shown();
    console.end();
    if has_shell && timeout(LEAVE_TIME, &mut *session).await.is_ok() {
        return ConnectionEnd::Ended;
    }
    connection.link().with(|protocol| protocol.disconnect(&ending.message));
    // Remaining output is dropped by the caller.
    let _ = timeout(DISCONNECT_TIME, session).await;
    ConnectionEnd::Ended
}

/// Random bytes for the cookies of key exchanges; AWS-LC draws the keys' randomness itself.
///
/// Panics without randomness, which ends this connection alone: a known cookie would weaken the key exchange.
fn cookie(bytes: &mut [u8]) {
    getrandom::fill(bytes).expect("the kernel has random numbers");
}

/// The address for the purpose of limits: a /64 counts as one client.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6((v6.to_bits() & !u128::from(u64::MAX)).into()),
        v4 => v4,
    }
}

/// The counted slot of one connection.
struct Place {
    shared: Arc<ServerState>,
    address: IpAddr,
    is_logged_in: bool,
}

impl Place {
    fn logged_in(&mut self) {
        if !std::mem::replace(&mut self.is_logged_in, true) {
            self.shared.lock_places().unauthenticated -= 1;
            uncount(&self.shared.stats.logins_pending);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut places = self.shared.lock_places();
        places.all -= 1;
        places.unauthenticated -= usize::from(!self.is_logged_in);
        if let Some(from_address) = places.by_address.get_mut(&self.address) {
            *from_address -= 1;
            if *from_address == 0 {
                places.by_address.remove(&self.address);
            }
        }
        drop(places);
        uncount(&self.shared.stats.connections_open);
        if !self.is_logged_in {
            uncount(&self.shared.stats.logins_pending);
        }
        self.shared.open.send_modify(|open| *open -= 1);
    }
}
