//! The edge's end of all tunnels: takes carriers from connectors, keeps sessions and legs, opens streams.

mod attach_budget;
mod first_frame;
mod handle;
mod link;
mod registry;
mod request_load;

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::{Mutex, MutexGuard};
use sallyport_model::{SocketId, TunnelId};
use sallyport_wire::{
    Carrier as CarrierKind, DatagramStats, FlowEnd, Hello, Join, LogBudget, Neighbours, Refusal, SessionConfig, Side,
    Violation, datagram::DEFAULT_MAX_FLOWS,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::watch,
};
use tracing::debug;

use self::{
    attach_budget::AttachBudget,
    first_frame::{FirstFrame, FirstFrameError, is_same_secret, read_first_frame, send_refusal},
    link::LinkState,
    registry::{EdgeContext, Presence, SessionError, SessionPeer},
    request_load::RequestLoad,
};
pub use self::{
    handle::{OpenError, OpenFlowError, TunnelHandle},
    link::{EdgeLink, LinkError},
};
use crate::{
    SessionId,
    driver::{SessionEnd, drive},
    flows::{FlowLeg, driver::drive_flows},
    leg::Leg,
    mux::Mux,
    pool::LegPool,
    roam::roam,
    share::FairShare,
};

/// By when a new carrier must have said what it is.
const FIRST_FRAME_TIME: Duration = Duration::from_secs(10);
/// How long the answer to a carrier that is refused may take to leave.
const REFUSAL_TIME: Duration = Duration::from_secs(2);
/// How often idle legs are looked at.
const TEND_PERIOD: Duration = Duration::from_secs(5);

/// How much unsent data the kernel should hold of a control connection (TCP_NOTSENT_LOWAT): enough to keep a fast path
/// busy, little enough that frames which are urgent do not queue for long behind it.
pub const CONTROL_NOTSENT_BYTES: u32 = 32_768;

/// What a leg is told that shows the id or the secret of no session.
const NO_SESSION: &str = "the leg belongs to no session of this edge";

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
    /// What the edge is called and which others serve: connectors are told, and told of changes.
    pub neighbours: watch::Receiver<Arc<Neighbours>>,
}

impl Default for EdgeTunnelsConfig {
    fn default() -> Self {
        Self {
            session: SessionConfig::default(),
            ready_legs: sallyport_wire::demand::DEFAULT_READY_LEGS,
            max_sessions: 10_000,
            max_legs_per_session: 4_096,
            neighbours: watch::Sender::default().subscribe(),
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
    /// Its clients send datagrams. Connectors that carry none are refused.
    pub datagrams: bool,
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
    /// Flows of datagrams.
    pub flows: usize,
    /// What was counted at this end of all datagram connections, those that are gone among them. Only grows, its flows
    /// excepted.
    pub datagrams: DatagramStats,
}

/// All tunnels of this edge.
#[derive(Clone)]
pub struct EdgeTunnels {
    shared: Arc<EdgeContext>,
}

/// One connector's session at the edge.
struct EdgeSession {
    id: SessionId,
    leg_secret: [u8; 32],
    peer: SocketAddr,
    agent: String,
    /// The name of the machine that the connector runs on, as it says.
    host: Option<String>,
    /// The connector reads what follows the server name in OPEN.
    has_open_fields: bool,
    mux: Arc<Mux>,
    pool: Arc<LegPool>,
    /// What each client has of the streams on the control connection, and of the legs.
    stream_shares: FairShare,
    leg_shares: FairShare,
    attach_budget: Mutex<AttachBudget>,
    /// How often its connector is told of requests.
    log_budget: Mutex<LogBudget>,
    /// Something was refused, and that was told of.
    was_refused: AtomicBool,
    /// Something is attached, so legs may join.
    takes_legs: AtomicBool,
    /// The connector carries datagrams.
    has_datagrams: bool,
    /// A tunnel whose clients send datagrams is attached, so a datagram leg may join.
    takes_datagrams: AtomicBool,
    /// The requests of its tunnels that are under way.
    requests: RequestLoad,
    /// The datagram leg, when there is one.
    flows: Mutex<Option<Arc<FlowLeg>>>,
    /// It is a session with another edge.
    link: Option<LinkState>,
}

impl EdgeSession {
    fn lock_attach_budget(&self) -> MutexGuard<'_, AttachBudget> {
        self.attach_budget.lock()
    }

    fn lock_log_budget(&self) -> MutexGuard<'_, LogBudget> {
        self.log_budget.lock()
    }

    fn lock_flows(&self) -> MutexGuard<'_, Option<Arc<FlowLeg>>> {
        self.flows.lock()
    }

    /// The datagram leg, when there is one that works.
    fn flows(&self) -> Option<Arc<FlowLeg>> {
        self.lock_flows().clone().filter(|leg| !leg.is_over())
    }

    fn end_flows_of(&self, tunnel: TunnelId) {
        let leg = self.lock_flows().clone();
        if let Some(leg) = leg {
            leg.end_tunnel(tunnel, FlowEnd::Detached);
        }
    }
}

impl EdgeTunnels {
    /// No tunnels yet; those that come are judged by `admission`.
    #[must_use]
    pub fn new(config: EdgeTunnelsConfig, admission: Arc<dyn Admission>) -> Self {
        let registry = Mutex::default();
        let refusals = Mutex::new(LogBudget::new(Instant::now()));
        let (streams, datagram_legs) = Default::default();
        Self { shared: Arc::new(EdgeContext { config, admission, registry, refusals, streams, datagram_legs }) }
    }

    /// Takes a connection with our ALPN from a connector. Returns when it was handed over (a leg) or is over (a control
    /// connection), so give it a task of its own.
    pub async fn serve_carrier<S>(&self, io: S, peer: SocketAddr)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        self.serve_carrier_with(io, peer, |_, _| Ok(())).await;
    }

    /// As [`Self::serve_carrier`], and calls `tune` as soon as it is known what the connection is: a control
    /// connection should keep little unsent data in the kernel ([`CONTROL_NOTSENT_BYTES`]). What `tune` gives is kept for
    /// as long as the connection lives, which for a leg is longer than this call; or it says why the connection is refused.
    pub async fn serve_carrier_with<S, K>(
        &self,
        mut io: S,
        peer: SocketAddr,
        tune: impl FnOnce(&S, CarrierKind) -> Result<K, Refusal> + Send,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        K: Send + 'static,
    {
        let first = match tokio::time::timeout(FIRST_FRAME_TIME, read_first_frame(&mut io)).await {
            Ok(Ok(first)) => first,
            Ok(Err(FirstFrameError::Hello(violation))) => return refuse_hello(io, peer, &violation).await,
            Ok(Err(error)) => return debug!(%peer, %error, "closed a tunnel connection with a wrong start"),
            Err(_) => return debug!(%peer, "closed a tunnel connection that did not say in time what it is"),
        };
        let kept = match tune(&io, first.kind()) {
            Ok(kept) => kept,
            Err(refusal) => return refuse(io, peer, &refusal).await,
        };
        match first {
            FirstFrame::Control { hello, frame } => {
                let _kept = kept;
                self.serve_session(io, peer, &hello, &frame).await;
            }
            FirstFrame::Datagrams(join) => {
                let _kept = kept;
                match self.join_datagrams(&join) {
                    Ok((session, leg)) => {
                        let _counted = self.shared.datagram_legs.enter(&leg);
                        let why = drive_flows(io, leg, None).await;
                        debug!(session = %session.id, why, "a datagram connection is gone");
                    }
                    Err(refusal) => refuse(io, peer, &refusal).await,
                }
            }
            FirstFrame::Leg(join) => {
                if let Err((io, refusal)) = self.join(io, &join, kept) {
                    refuse(io, peer, &refusal).await;
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
            drop(registry);
            handle.inner.session.end_flows_of(tunnel);
        }
    }

    /// Tells all connectors that this edge stops, and takes no new sessions. Streams that run go on.
    pub fn go_away(&self, message: &str) {
        let mut registry = self.shared.lock();
        registry.going_away = Some(message.to_owned());
        for session in registry.sessions.values() {
            session.mux.go_away("shutting-down", message);
            session.leave_link();
        }
        for (_, handle) in registry.tunnels.drain() {
            self.shared.end_attachment(&handle, "shutting-down");
        }
    }

    /// The tunnel, when it is attached here.
    #[must_use]
    pub fn attached(&self, tunnel: TunnelId) -> Option<TunnelHandle> {
        self.shared.lock().tunnels.get(&tunnel).cloned()
    }

    /// Waits until no stream is left. Cancel safe.
    pub async fn drained(&self) {
        self.shared.streams.zero().await;
    }

    /// What there is now.
    #[must_use]
    pub fn stats(&self) -> TunnelStats {
        let registry = self.shared.lock();
        let mut stats = TunnelStats { tunnels: registry.tunnels.len(), ..TunnelStats::default() };
        for session in registry.sessions.values().filter(|session| session.link.is_none()) {
            stats.sessions += 1;
            let idle = session.pool.idle_count();
            stats.legs_idle += idle;
            stats.legs_busy += session.pool.registry.len().saturating_sub(idle);
            stats.mux_streams += session.mux.stream_count();
            stats.flows += session.flows().map_or(0, |leg| leg.stats().flows);
        }
        drop(registry);
        stats.datagrams = self.shared.datagram_legs.stats();
        stats
    }

    /// Adds the carrier to the legs of its session, or gives it back with the reason why not.
    fn join<S, K>(&self, io: S, join: &Join, kept: K) -> Result<(), (S, Refusal)>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        K: Send + 'static,
    {
        let session = self.shared.lock().sessions.get(&SessionId(join.session)).cloned();
        let Some(session) = session.filter(|session| is_same_secret(&session.leg_secret, &join.leg_secret)) else {
            return Err((io, Refusal::new("protocol", NO_SESSION, false)));
        };
        if !session.takes_legs.load(Ordering::Acquire) {
            return Err((io, Refusal::new("nothing-attached", "attach a tunnel before opening legs", false)));
        }
        match session.pool.registry.admit(session.pool.max_legs()) {
            Some(ticket) => {
                ticket.keep(kept);
                session.pool.joined(Leg::new(Box::new(io), Side::Edge, ticket));
                Ok(())
            }
            None => Err((io, Refusal::new("busy", "the session has as many legs as it may", true))),
        }
    }

    /// Gives the session a fresh datagram leg, in place of the one it may have, or says why not.
    fn join_datagrams(&self, join: &Join) -> Result<(Arc<EdgeSession>, Arc<FlowLeg>), Refusal> {
        let registry = self.shared.lock();
        let session = registry.sessions.get(&SessionId(join.session));
        let Some(session) = session.filter(|session| is_same_secret(&session.leg_secret, &join.leg_secret)) else {
            return Err(Refusal::new("protocol", NO_SESSION, false));
        };
        if !session.takes_datagrams.load(Ordering::Acquire) {
            let message = "attach a tunnel that carries datagrams before opening a connection for them";
            return Err(Refusal::new("nothing-attached", message, false));
        }
        let leg = FlowLeg::new(Side::Edge, DEFAULT_MAX_FLOWS);
        // Under the registry's lock, so that the end of the session comes after it and ends this leg too.
        let former = session.lock_flows().replace(leg.clone());
        let session = session.clone();
        drop(registry);
        if let Some(former) = former {
            former.end();
        }
        Ok((session, leg))
    }

    async fn serve_session<S>(&self, io: S, peer: SocketAddr, hello: &Hello, frame: &[u8])
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut neighbours = self.shared.config.neighbours.clone();
        let known = neighbours.borrow_and_update().clone();
        let session = match self.shared.new_session(peer, hello, frame, SessionPeer::Connector(&known)) {
            Ok(session) => session,
            Err(SessionError::Random) => return debug!(%peer, "closed a tunnel connection: {}", SessionError::Random),
            Err(SessionError::Hello(violation)) => return refuse_hello(io, peer, &violation).await,
        };
        if let Some(refusal) = self.shared.add_session(&session) {
            debug!(%peer, %refusal, "refused a session");
            session.mux.refuse(refusal);
        }
        // Anybody can come: it is worth a line once something is attached.
        debug!(session = %session.id, agent = %session.agent, "a session began");
        self.drive_session(io, &session, Some(neighbours)).await;
    }

    /// Drives a session to its end, and says what that was.
    async fn drive_session<S>(
        &self,
        io: S,
        session: &Arc<EdgeSession>,
        neighbours: Option<watch::Receiver<Arc<Neighbours>>>,
    ) -> String
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut presence = Presence { shared: &self.shared, session, end: SessionEnd::aborted("the edge stops") };
        let (shared, of) = (self.shared.clone(), session.clone());
        let on_event = move |event| shared.on_event(&of, event);
        let driving = roam(Box::pin(drive(io, session.mux.clone(), on_event)), session.mux.clone());
        let tending = async {
            loop {
                tokio::time::sleep(TEND_PERIOD).await;
                match session.pool.tend() {
                    0 => {}
                    count => session.mux.ask_for_legs(count),
                }
            }
        };
        let of = session.clone();
        let telling = async {
            if let Some(mut neighbours) = neighbours {
                while neighbours.changed().await.is_ok() {
                    let known = neighbours.borrow_and_update().clone();
                    of.mux.tell_edges(&known);
                }
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            end = driving => presence.end = end.unwrap_or_else(|| SessionEnd::aborted("the edge stops")),
            () = tending => {}
            () = telling => {}
        }
        presence.end.why.clone()
    }
}

/// Tells a connector why its leg, or its connection for datagrams, is not taken.
async fn refuse(io: impl AsyncWrite + Unpin, peer: SocketAddr, refusal: &Refusal) {
    debug!(%peer, %refusal, "refused a connection of a tunnel");
    let _ = tokio::time::timeout(REFUSAL_TIME, send_refusal(io, refusal)).await;
}

/// Tells a connector that its HELLO is wrong. What does not even begin as one gets no answer.
async fn refuse_hello(io: impl AsyncWrite + Unpin, peer: SocketAddr, violation: &Violation) {
    debug!(%peer, %violation, "refused a tunnel connection with a wrong start");
    let refusal = Refusal::new("protocol", &violation.to_string(), false);
    let _ = tokio::time::timeout(REFUSAL_TIME, send_refusal(io, &refusal)).await;
}
