//! The edge's end of all tunnels: takes carriers from connectors, keeps sessions and legs, opens streams.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use sallyport_model::{RequestRecord, SocketId, TunnelId};
use sallyport_wire::{
    Attach, Carrier as CarrierKind, Event, FrameHeader, Hello, Join, LogBudget, Open, Refusal, Session, SessionConfig,
    Side, Violation, frame::HEADER_BYTES,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tracing::{debug, info};

use crate::{
    SessionId, TunnelStream,
    count::{Counter, Held},
    driver::{Ended, drive},
    leg::Leg,
    leg_stream::LegStream,
    mux::{Mux, now},
    pool::LegPool,
    unattached::Unattached,
};

/// By when a new carrier must have said what it is.
const FIRST_FRAME_TIME: Duration = Duration::from_secs(10);
/// How long the answer to a carrier that is refused may take to leave.
const REFUSAL_TIME: Duration = Duration::from_secs(2);
/// How often idle legs are looked at.
const TEND_PERIOD: Duration = Duration::from_secs(5);
/// What connectors are told when there are [`EdgeTunnelsConfig::max_sessions`].
const FULL: &str = "this edge has as many sessions as it takes";

/// How much unsent data the kernel should hold of a control connection (TCP_NOTSENT_LOWAT): enough to keep a fast path
/// busy, little enough that frames which are urgent do not queue for long behind it.
pub const CONTROL_NOTSENT_BYTES: u32 = 32_768;

/// Bounds and timing of the edge's tunnels.
#[derive(Debug, Clone)]
pub struct EdgeTunnelsConfig {
    /// How sessions behave; connectors are told.
    pub session: SessionConfig,
    /// How many legs of each session are kept ready.
    pub ready_legs: usize,
    /// How many sessions may have something attached. Those that have not are few, and bounded for each address.
    pub max_sessions: usize,
    /// How many legs one session may have.
    pub max_legs_per_session: usize,
}

impl Default for EdgeTunnelsConfig {
    fn default() -> Self {
        Self {
            session: SessionConfig::default(),
            ready_legs: sallyport_wire::demand::DEFAULT_READY_LEGS,
            max_sessions: 10_000,
            max_legs_per_session: 4_096,
        }
    }
}

/// What a tunnel got when it was admitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admitted {
    /// The socket it serves.
    pub socket: SocketId,
    /// Where clients reach it.
    pub url: String,
}

/// Who may attach, and who wants to know. The calls come one at a time, under a lock: they must be quick, and must
/// not call [`EdgeTunnels`] (a [`TunnelHandle`] may be used).
pub trait Admission: Send + Sync + 'static {
    /// Whether the tunnel may attach with this credential.
    ///
    /// # Errors
    /// What the connector is told.
    fn admit(&self, tunnel: TunnelId, credential: &str, peer: SocketAddr) -> Result<Admitted, Refusal>;

    /// The tunnel can be used now. When it takes over from another session, this comes before `detached` of that one.
    fn attached(&self, tunnel: TunnelHandle);

    /// The tunnel takes no new streams on this session any more; once for each `attached`.
    fn detached(&self, tunnel: TunnelId, session: SessionId, reason: &str);
}

/// Counts of what there is now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TunnelStats {
    /// Sessions that are up.
    pub sessions: usize,
    /// Tunnels that are attached.
    pub tunnels: usize,
    /// Legs that wait for a stream.
    pub legs_idle: usize,
    /// Legs that carry one.
    pub legs_busy: usize,
    /// Streams multiplexed on control connections.
    pub mux_streams: usize,
}

/// Why a stream cannot be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The tunnel left its session, or the session is over or going away.
    #[error("the tunnel takes no new streams")]
    NotUsable,
    /// There is no idle leg, and the control connection takes no further stream.
    #[error("the tunnel has no room for another stream: {0}")]
    NoRoom(sallyport_wire::OpenError),
}

/// All tunnels of this edge.
#[derive(Clone)]
pub struct EdgeTunnels {
    shared: Arc<Shared>,
}

struct Shared {
    config: EdgeTunnelsConfig,
    admission: Arc<dyn Admission>,
    registry: Mutex<Registry>,
    streams: Arc<Counter>,
}

#[derive(Default)]
struct Registry {
    sessions: HashMap<SessionId, Arc<EdgeSession>>,
    unattached: Unattached,
    tunnels: HashMap<TunnelId, TunnelHandle>,
    /// Set once the edge is going away: what new sessions are told.
    going_away: Option<String>,
}

/// One connector's session at the edge.
struct EdgeSession {
    id: SessionId,
    leg_secret: [u8; 32],
    peer: SocketAddr,
    agent: String,
    mux: Arc<Mux>,
    pool: Arc<LegPool>,
    /// Something is attached, so legs may join.
    takes_legs: AtomicBool,
}

/// One attached tunnel: opens streams to its origin. It can outlive its attachment and is of no use then.
#[derive(Clone)]
pub struct TunnelHandle {
    inner: Arc<HandleInner>,
}

struct HandleInner {
    tunnel: TunnelId,
    socket: SocketId,
    session: Arc<EdgeSession>,
    usable: AtomicBool,
    /// For connectors that want to be told of requests.
    request_log: Option<Mutex<LogBudget>>,
    streams: Arc<Counter>,
    all_streams: Arc<Counter>,
}

impl Registry {
    /// Whether no further session may attach something. Those that anybody can make do not count.
    fn is_full(&self, config: &EdgeTunnelsConfig) -> bool {
        self.sessions.len() - self.unattached.len() >= config.max_sessions
    }
}

impl EdgeTunnels {
    /// No tunnels yet; those that come are judged by `admission`.
    #[must_use]
    pub fn new(config: EdgeTunnelsConfig, admission: Arc<dyn Admission>) -> Self {
        let registry = Mutex::default();
        Self { shared: Arc::new(Shared { config, admission, registry, streams: Arc::default() }) }
    }

    /// Takes a connection with our ALPN from a connector. Returns when it was handed over (a leg) or is over (a control
    /// connection), so give it a task of its own.
    pub async fn serve_carrier<S>(&self, io: S, peer: SocketAddr)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        self.serve_carrier_with(io, peer, |_, _| ()).await;
    }

    /// As [`Self::serve_carrier`], and calls `tune` as soon as it is known what the connection is: a control
    /// connection should keep little unsent data in the kernel ([`CONTROL_NOTSENT_BYTES`]).
    pub async fn serve_carrier_with<S>(&self, mut io: S, peer: SocketAddr, tune: impl FnOnce(&S, CarrierKind) + Send)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let first = match tokio::time::timeout(FIRST_FRAME_TIME, read_first_frame(&mut io)).await {
            Ok(Ok(first)) => first,
            Ok(Err(error)) => return debug!(%peer, %error, "closed a tunnel connection with a wrong start"),
            Err(_) => return debug!(%peer, "closed a tunnel connection that did not say in time what it is"),
        };
        match first {
            First::Control { hello, frame } => {
                tune(&io, CarrierKind::Control);
                self.serve_session(io, peer, &hello, &frame).await;
            }
            First::Leg(join) => {
                tune(&io, CarrierKind::Leg);
                if let Err((io, refusal)) = self.join(io, &join) {
                    debug!(%peer, %refusal, "refused a leg");
                    let _ = tokio::time::timeout(REFUSAL_TIME, send_refusal(io, &refusal)).await;
                }
            }
        }
    }

    /// The tunnel was deleted or changed: its connector is told, and gets no new streams for it.
    pub fn detach(&self, tunnel: TunnelId, code: &str, message: &str) {
        let mut registry = self.shared.lock();
        if let Some(handle) = registry.tunnels.remove(&tunnel) {
            handle.inner.session.mux.detach(tunnel, code, message);
            self.shared.end_attachment(&handle, code);
        }
    }

    /// Tells all connectors that this edge stops, and takes no new sessions. Streams that run go on.
    pub fn go_away(&self, message: &str) {
        let mut registry = self.shared.lock();
        registry.going_away = Some(message.to_owned());
        for session in registry.sessions.values() {
            session.mux.go_away("shutting-down", message);
        }
        for (_, handle) in registry.tunnels.drain() {
            self.shared.end_attachment(&handle, "shutting-down");
        }
    }

    /// Waits until no stream is left. Cancel safe.
    pub async fn drained(&self) {
        self.shared.streams.zero().await;
    }

    /// What there is now.
    #[must_use]
    pub fn stats(&self) -> TunnelStats {
        let registry = self.shared.lock();
        let mut stats = TunnelStats {
            sessions: registry.sessions.len(),
            tunnels: registry.tunnels.len(),
            ..TunnelStats::default()
        };
        for session in registry.sessions.values() {
            let idle = session.pool.idle_count();
            stats.legs_idle += idle;
            stats.legs_busy += session.pool.registry.len().saturating_sub(idle);
            stats.mux_streams += session.mux.stream_count();
        }
        stats
    }

    /// Adds the carrier to the legs of its session, or gives it back with the reason why not.
    fn join<S>(&self, io: S, join: &Join) -> Result<(), (S, Refusal)>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let unknown = || Refusal::new("protocol", "the leg belongs to no session of this edge", false);
        let session = self.shared.lock().sessions.get(&SessionId(join.session)).cloned();
        let Some(session) = session.filter(|session| is_same_secret(&session.leg_secret, &join.leg_secret)) else {
            return Err((io, unknown()));
        };
        if !session.takes_legs.load(Ordering::Acquire) {
            return Err((io, Refusal::new("nothing-attached", "attach a tunnel before opening legs", false)));
        }
        match session.pool.registry.admit(session.pool.max_legs()) {
            Some(ticket) => {
                session.pool.joined(Leg::new(Box::new(io), Side::Edge, ticket));
                Ok(())
            }
            None => Err((io, Refusal::new("busy", "the session has as many legs as it may", true))),
        }
    }

    async fn serve_session<S>(&self, io: S, peer: SocketAddr, hello: &Hello, frame: &[u8])
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let config = &self.shared.config;
        let (mut id, mut leg_secret) = ([0; 16], [0; 32]);
        if getrandom::fill(&mut id).and_then(|()| getrandom::fill(&mut leg_secret)).is_err() {
            return debug!(%peer, "closed a tunnel connection: the system gives no random numbers");
        }
        let mut session = Session::edge(config.session.clone(), id, leg_secret, now());
        if let Err(error) = session.handle_input(frame, now()) {
            return debug!(%peer, %error, "closed a tunnel connection with a wrong start");
        }
        let max_legs = usize::from(hello.max_legs).min(config.max_legs_per_session);
        let session = Arc::new(EdgeSession {
            id: SessionId(id),
            leg_secret,
            peer,
            agent: hello.agent.clone(),
            mux: Mux::new(session),
            pool: Arc::new(LegPool::new(config.ready_legs.min(max_legs), max_legs)),
            takes_legs: AtomicBool::new(false),
        });
        if let Some(refusal) = self.shared.add_session(&session) {
            debug!(%peer, %refusal, "refused a session");
            session.mux.refuse(refusal);
        }
        info!(session = %session.id, agent = %session.agent, "a connector came");
        let mut presence = Presence { shared: &self.shared, session: &session, end: Ended::aborted("the edge stops") };
        let on_event = |event| self.shared.on_event(&session, event);
        let tending = async {
            loop {
                tokio::time::sleep(TEND_PERIOD).await;
                match session.pool.tend() {
                    0 => {}
                    count => session.mux.ask_for_legs(count),
                }
            }
        };
        tokio::select! {
            end = drive(io, session.mux.clone(), on_event) => presence.end = end,
            () = tending => {}
        }
    }
}

/// The session's place in the registry, for as long as its driver runs; whatever ends that.
struct Presence<'a> {
    shared: &'a Shared,
    session: &'a Arc<EdgeSession>,
    end: Ended,
}

impl Drop for Presence<'_> {
    fn drop(&mut self) {
        info!(session = %self.session.id, why = self.end.why, "a connector is gone");
        self.session.mux.end(&self.end.why);
        self.shared.remove_session(self.session, &self.end);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the session, unless there is a reason not to.
    fn add_session(&self, session: &Arc<EdgeSession>) -> Option<Refusal> {
        let mut registry = self.lock();
        if let Some(message) = &registry.going_away {
            return Some(Refusal::new("shutting-down", message, true));
        }
        if registry.is_full(&self.config) {
            return Some(Refusal::new("busy", FULL, true));
        }
        registry.sessions.insert(session.id, session.clone());
        let oldest = registry.unattached.enter(session.peer.ip(), session.id);
        if let Some(oldest) = oldest.and_then(|id| registry.sessions.remove(&id)) {
            debug!(session = %oldest.id, "a session that attached nothing made room for a newer one");
            oldest.mux.refuse(Refusal::new("busy", "too many sessions of this address attach nothing", true));
        }
        None
    }

    fn remove_session(&self, session: &Arc<EdgeSession>, end: &Ended) {
        let mut registry = self.lock();
        registry.sessions.remove(&session.id);
        registry.unattached.leave(session.peer.ip(), session.id);
        let gone: Vec<_> = registry.tunnels.extract_if(|_, handle| handle.session() == session.id).collect();
        for (_, handle) in gone {
            self.end_attachment(&handle, &end.why);
        }
        drop(registry);
        session.pool.close(end.is_clean);
    }

    /// Called with the registry locked and the handle taken out of it.
    fn end_attachment(&self, handle: &TunnelHandle, reason: &str) {
        handle.inner.usable.store(false, Ordering::Release);
        info!(tunnel = %handle.tunnel(), session = %handle.session(), reason, "a tunnel is detached");
        self.admission.detached(handle.tunnel(), handle.session(), reason);
    }

    fn on_event(&self, session: &Arc<EdgeSession>, event: Event) {
        match event {
            // What came together with the request that ended the session is not judged any more.
            Event::AttachRequested(attach) if !session.mux.is_over() => self.attach(session, &attach),
            Event::Detached { tunnel, code, .. } => {
                let mut registry = self.lock();
                if registry.tunnels.get(&tunnel).is_some_and(|handle| handle.session() == session.id)
                    && let Some(handle) = registry.tunnels.remove(&tunnel)
                {
                    self.end_attachment(&handle, &code);
                }
            }
            Event::GoAway { code, .. } => {
                let mut registry = self.lock();
                let gone: Vec<_> = registry.tunnels.extract_if(|_, handle| handle.session() == session.id).collect();
                for (_, handle) in gone {
                    self.end_attachment(&handle, &code);
                }
            }
            _ => {}
        }
    }

    /// Judging and attaching are one step under the lock, so that a deletion comes either before or after both.
    fn attach(&self, session: &Arc<EdgeSession>, attach: &Attach) {
        let tunnel = attach.tunnel;
        let mut registry = self.lock();
        let admitted = match &registry.going_away {
            Some(message) => Err(Refusal::new("shutting-down", message, true)),
            None if !registry.sessions.contains_key(&session.id) => {
                Err(Refusal::new("busy", "this session was refused", true))
            }
            None if registry.unattached.contains(session.peer.ip(), session.id) && registry.is_full(&self.config) => {
                Err(Refusal::new("busy", FULL, true))
            }
            None => self.admission.admit(tunnel, &attach.credential, session.peer),
        };
        let admitted = match admitted {
            Ok(admitted) => admitted,
            Err(refusal) => {
                info!(%tunnel, session = %session.id, code = refusal.code, "a tunnel was not attached");
                return session.mux.refuse_attach(tunnel, refusal);
            }
        };
        registry.unattached.leave(session.peer.ip(), session.id);
        if !session.takes_legs.swap(true, Ordering::AcqRel) {
            session.pool.expect_first_legs();
        }
        session.mux.accept_attach(tunnel, admitted.url);
        let handle = TunnelHandle {
            inner: Arc::new(HandleInner {
                tunnel,
                socket: admitted.socket,
                session: session.clone(),
                usable: AtomicBool::new(true),
                request_log: attach.request_log.then(|| Mutex::new(LogBudget::new(Instant::now()))),
                streams: Arc::default(),
                all_streams: self.streams.clone(),
            }),
        };
        let former = registry.tunnels.insert(tunnel, handle.clone());
        info!(%tunnel, session = %session.id, "a tunnel is attached");
        match former {
            // The same once more: whoever knows the former handle goes on with it.
            Some(former) if former.session() == session.id => {
                registry.tunnels.insert(tunnel, former);
            }
            Some(former) => {
                self.admission.attached(handle);
                former.inner.session.mux.detach(tunnel, "replaced", "another connector took over this tunnel");
                self.end_attachment(&former, "replaced");
            }
            None => self.admission.attached(handle),
        }
    }
}

impl TunnelHandle {
    /// The tunnel.
    #[must_use]
    pub fn tunnel(&self) -> TunnelId {
        self.inner.tunnel
    }

    /// The socket it serves.
    #[must_use]
    pub fn socket(&self) -> SocketId {
        self.inner.socket
    }

    /// The session that it is attached to.
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.inner.session.id
    }

    /// Where its connector came from.
    #[must_use]
    pub fn connector_addr(&self) -> SocketAddr {
        self.inner.session.peer
    }

    /// Name and version of the connector's program, as it says.
    #[must_use]
    pub fn agent(&self) -> &str {
        &self.inner.session.agent
    }

    /// Whether new streams can be opened: it is attached, its session is up, and neither end is going away.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.inner.usable.load(Ordering::Acquire)
    }

    /// How many streams of this tunnel run.
    #[must_use]
    pub fn active_streams(&self) -> usize {
        self.inner.streams.get()
    }

    /// The round trip to the connector, once it was measured.
    #[must_use]
    pub fn smoothed_rtt(&self) -> Option<Duration> {
        self.inner.session.mux.smoothed_rtt()
    }

    /// Whether a stream opened now would get a leg for itself.
    #[must_use]
    pub fn has_idle_leg(&self) -> bool {
        self.inner.session.pool.idle_count() > 0
    }

    /// Opens a stream to the origin. Nothing is waited for: write at once, and the first bytes travel with the opening.
    ///
    /// # Errors
    /// The tunnel takes no (more) streams.
    pub fn open(&self, open: Open) -> Result<TunnelStream, OpenError> {
        if !self.is_usable() {
            return Err(OpenError::NotUsable);
        }
        let session = &self.inner.session;
        let held = Held::new(&self.inner.streams, Some(&self.inner.all_streams));
        let (leg, ask) = session.pool.take();
        if ask > 0 {
            session.mux.ask_for_legs(ask);
        }
        match leg {
            Some(leg) => Ok(TunnelStream::on_leg(LegStream::open(leg, session.pool.clone(), open, held))),
            None => session.mux.open(open, held).map(TunnelStream::multiplexed).map_err(|error| match error {
                sallyport_wire::OpenError::TooManyStreams | sallyport_wire::OpenError::Exhausted => {
                    OpenError::NoRoom(error)
                }
                _ => OpenError::NotUsable,
            }),
        }
    }

    /// Whether the connector is to be told of one more request that was served, and if so, how many before it were left
    /// out: it asked for them, and they do not come faster than anybody can read.
    #[must_use]
    pub fn request_log_turn(&self) -> Option<u32> {
        if !self.is_usable() {
            return None;
        }
        let budget = self.inner.request_log.as_ref()?;
        budget.lock().unwrap_or_else(PoisonError::into_inner).take(Instant::now())
    }

    /// Tells the connector of a request that was served, if there is room. To be called after
    /// [`Self::request_log_turn`].
    pub fn send_request_log(&self, record: &RequestRecord) {
        self.inner.session.mux.send_request_log(record);
    }
}

impl std::fmt::Debug for TunnelHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TunnelHandle")
            .field("tunnel", &self.tunnel())
            .field("session", &self.session())
            .field("is_usable", &self.is_usable())
            .finish_non_exhaustive()
    }
}

/// What a new carrier says it is.
enum First {
    Control { hello: Hello, frame: Vec<u8> },
    Leg(Join),
}

/// Why a new carrier is closed.
#[derive(Debug, thiserror::Error)]
enum FirstError {
    #[error(transparent)]
    Violation(#[from] Violation),
    #[error("it ended: {0}")]
    Ended(#[from] std::io::Error),
}

async fn read_first_frame(io: &mut (impl AsyncRead + Unpin)) -> Result<First, FirstError> {
    let mut header = [0; HEADER_BYTES];
    io.read_exact(&mut header).await?;
    let (decoded, kind) = FrameHeader::decode_first(header)?;
    let mut frame = header.to_vec();
    frame.resize(HEADER_BYTES + decoded.len as usize, 0);
    io.read_exact(&mut frame[HEADER_BYTES..]).await?;
    let payload = &frame[HEADER_BYTES..];
    Ok(match kind {
        CarrierKind::Control => First::Control { hello: Hello::decode(payload)?, frame },
        CarrierKind::Leg => First::Leg(Join::decode(payload)?),
    })
}

async fn send_refusal(mut io: impl AsyncWrite + Unpin, refusal: &Refusal) -> std::io::Result<()> {
    let mut frame = Vec::new();
    refusal.encode(&mut frame);
    io.write_all(&frame).await?;
    io.shutdown().await
}

/// Compares without telling by its time how much was right.
fn is_same_secret(one: &[u8; 32], other: &[u8; 32]) -> bool {
    std::hint::black_box(one.iter().zip(other).fold(0, |differing, (a, b)| differing | (a ^ b))) == 0
}
