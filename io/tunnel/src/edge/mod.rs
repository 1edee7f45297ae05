//! The edge's end of all tunnels: accepts carriers from connectors, keeps sessions and legs, opens streams.
//!
//! May use `flows`, `packets` and every file of this crate but the rooms `connector` and `carrier`.

mod associate;
mod attach_budget;
mod first_frame;
mod handle;
mod link;
mod link_bytes;
mod networks;
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
use sallyport_model::{LinkReport, LinkStatus, SocketId, TunnelId};
use sallyport_wire::{
    Carrier as CarrierKind, DatagramStats, FlowEnd, Hello, Join, LogBudget, Neighbours, Refusal, SessionConfig, Side,
    Violation, datagram::DEFAULT_MAX_FLOWS,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::watch,
};
use tracing::debug;

pub use self::{
    associate::Associations,
    handle::{OpenError, OpenFlowError, TunnelHandle},
    link::{EdgeLink, LinkError},
    networks::{JoinedMachine, Networks},
};
use self::{
    associate::send_association,
    attach_budget::AttachBudget,
    first_frame::{FirstFrame, FirstFrameError, is_same_secret, read_first_frame, send_refusal},
    link::LinkState,
    registry::{EdgeContext, Presence, SessionError, SessionPeer},
    request_load::RequestLoad,
};
use crate::{
    SessionId,
    driver::{SessionEnd, drive},
    flows::{FlowLeg, driver::drive_flows},
    leg::Leg,
    migration::follow_requests,
    mux::Mux,
    pool::LegPool,
    share::FairShare,
};

/// Time in which a new carrier must have sent its first frame.
const FIRST_FRAME_TIME: Duration = Duration::from_secs(10);
/// Time that the answer to a refused carrier has to leave.
const REFUSAL_TIME: Duration = Duration::from_secs(2);
/// Interval of the maintenance of idle legs.
const TEND_PERIOD: Duration = Duration::from_secs(5);

/// Bound on unsent data of a control connection in the kernel (`TCP_NOTSENT_LOWAT`), in bytes. The value keeps a fast
/// path busy and lets urgent frames overtake queued payload.
pub const CONTROL_NOTSENT_BYTES: u32 = 32_768;

/// Message of the refusal of a leg with a wrong session id or secret.
const NO_SESSION: &str = "the leg belongs to no session of this edge";

/// Bounds and timing of the edge's tunnels.
#[derive(Debug, Clone)]
pub struct EdgeTunnelsConfig {
    /// Parameters of sessions, sent to the connectors.
    pub session: SessionConfig,
    /// Number of idle legs kept ready in each session.
    pub ready_legs: usize,
    /// Bound on sessions with an attached tunnel. Sessions without one have bounds of their own for each address.
    pub max_sessions: usize,
    /// Bound on legs of one session.
    pub max_legs_per_session: usize,
    /// Name of this edge and the other edges. Connectors get them, and all changes.
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

/// The result of admitting a tunnel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admitted {
    /// The socket that the tunnel serves.
    pub socket: SocketId,
    /// Public URL of the socket.
    pub url: String,
    /// Whether the socket's clients send datagrams. Connectors without support for datagrams are refused.
    pub datagrams: bool,
}

/// Decides about attachments and observes them. The calls come one at a time under a lock: they must be quick and must
/// not call [`EdgeTunnels`]. A [`TunnelHandle`] may be used.
pub trait Admission: Send + Sync + 'static {
    /// Decides whether the tunnel may attach with this credential.
    ///
    /// # Errors
    /// The refusal that is sent to the connector.
    fn admit(&self, tunnel: TunnelId, credential: &str, peer: SocketAddr) -> Result<Admitted, Refusal>;

    /// Reports that the tunnel can be used. If the tunnel moves from another session, this call precedes `detached` of
    /// that session.
    fn attached(&self, tunnel: TunnelHandle);

    /// Reports that the tunnel accepts no new streams on this session; called once for each `attached`.
    fn detached(&self, tunnel: TunnelId, session: SessionId, reason: &str);
}

/// Current counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TunnelStats {
    /// Established sessions.
    pub sessions: usize,
    /// Attached tunnels.
    pub tunnels: usize,
    /// Idle legs.
    pub legs_idle: usize,
    /// Busy legs.
    pub legs_busy: usize,
    /// Streams multiplexed on control connections.
    pub mux_streams: usize,
    /// Flows of datagrams.
    pub flows: usize,
    /// Links of connectors by their status, in the order of [`LinkStatus::ALL`].
    pub links: [usize; LinkStatus::ALL.len()],
    /// Bytes that connectors report to have sent and received by their links. They only grow.
    pub link_bytes: (u64, u64),
    /// Counters of all datagram connections at this end, including ended ones. They only grow, except the number of
    /// flows.
    pub datagrams: DatagramStats,
}

/// All tunnels of this edge: accepts carriers from connectors, and opens streams.
#[derive(Clone)]
pub struct EdgeTunnels {
    shared: Arc<EdgeContext>,
}

/// The session of one connector, or of another edge.
struct EdgeSession {
    id: SessionId,
    leg_secret: [u8; 32],
    peer: SocketAddr,
    agent: String,
    /// The name of the connector's machine, as declared by the connector.
    host: Option<String>,
    /// Whether the connector understands the fields after the server name in OPEN.
    has_open_fields: bool,
    mux: Arc<Mux>,
    pool: Arc<LegPool>,
    /// The clients' shares of streams on the control connection, and of legs.
    stream_shares: FairShare,
    leg_shares: FairShare,
    attach_budget: Mutex<AttachBudget>,
    /// Budget of request records for the connector.
    log_budget: Mutex<LogBudget>,
    /// Whether a refused attachment was logged.
    was_refused: AtomicBool,
    /// Whether a tunnel is attached, so that legs may join.
    takes_legs: AtomicBool,
    /// Whether the connector supports datagrams.
    has_datagrams: bool,
    /// Whether a tunnel that carries datagrams is attached, so that a datagram leg may join.
    takes_datagrams: AtomicBool,
    /// The running requests of the session's tunnels.
    requests: RequestLoad,
    /// The datagram leg, if there is one.
    flows: Mutex<Option<Arc<FlowLeg>>>,
    /// The links of the connector, as it reported them last.
    links: Mutex<Arc<[LinkReport]>>,
    /// Set in a session with another edge.
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

    /// The datagram leg, if there is a working one.
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
    /// Creates a registry without tunnels; `admission` decides about attachments.
    #[must_use]
    pub fn new(config: EdgeTunnelsConfig, admission: Arc<dyn Admission>) -> Self {
        let registry = Mutex::default();
        let refusals = Mutex::new(LogBudget::new(Instant::now()));
        let (streams, datagram_legs, associations, networks, link_bytes) = Default::default();
        let context = EdgeContext {
            config,
            admission,
            registry,
            refusals,
            streams,
            datagram_legs,
            associations,
            networks,
            link_bytes,
        };
        Self { shared: Arc::new(context) }
    }

    /// Serves a connection from a connector (TLS with [`sallyport_wire::ALPN`] or another carrier). Returns when the
    /// connection was handed over (a leg) or ended (a control connection); run it in a task of its own.
    pub async fn serve_carrier<S>(&self, io: S, peer: SocketAddr)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        self.serve_carrier_with(io, peer, |_, _| Ok(())).await;
    }

    /// Like [`Self::serve_carrier`], and calls `tune` once the purpose of the connection is known: a control connection
    /// should keep little unsent data in the kernel ([`CONTROL_NOTSENT_BYTES`]). The value that `tune` returns lives as
    /// long as the connection, which for a leg is longer than this call. An error of `tune` refuses the connection.
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
            Ok(Err(error)) => return debug!(%peer, %error, "closed a tunnel connection with an invalid first frame"),
            Err(_) => return debug!(%peer, "closed a tunnel connection without a first frame in time"),
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
                        debug!(session = %session.id, why, "a datagram connection ended");
                    }
                    Err(refusal) => refuse(io, peer, &refusal).await,
                }
            }
            FirstFrame::Leg(join) => {
                if let Err((io, refusal)) = self.join(io, &join, kept) {
                    refuse(io, peer, &refusal).await;
                }
            }
            FirstFrame::Association(question) => match self.associate(&question, peer) {
                Ok(associated) => {
                    let _kept = kept;
                    let _ = tokio::time::timeout(REFUSAL_TIME, send_association(io, &associated)).await;
                }
                Err(refusal) => refuse(io, peer, &refusal).await,
            },
            FirstFrame::Network(question) => match self.join_network(&question, peer) {
                Ok(machine) => {
                    let _kept = kept;
                    self.carry_packets(io, peer, machine).await;
                }
                Err(refusal) => refuse(io, peer, &refusal).await,
            },
        }
    }

    /// Detaches a deleted or changed tunnel. The connector gets the code and the message, and no new streams of the
    /// tunnel.
    pub fn detach(&self, tunnel: TunnelId, code: &str, message: &str) {
        let mut registry = self.shared.lock();
        if let Some(handle) = registry.tunnels.remove(&tunnel) {
            handle.inner.session.mux.detach(tunnel, code, message);
            self.shared.end_attachment(&handle, code);
            drop(registry);
            handle.inner.session.end_flows_of(tunnel);
        }
    }

    /// Announces to all connectors that this edge stops, and accepts no new sessions. Running streams continue.
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

    /// The handle of a tunnel, if the tunnel is attached here.
    #[must_use]
    pub fn attached(&self, tunnel: TunnelId) -> Option<TunnelHandle> {
        self.shared.lock().tunnels.get(&tunnel).cloned()
    }

    /// Waits until no stream is running. Cancel safe.
    pub async fn drained(&self) {
        self.shared.streams.zero().await;
    }

    /// Waits until every frame queued for connectors has left, such as those of [`EdgeTunnels::go_away`]. Cancel safe.
    pub async fn flushed(&self) {
        let sessions: Vec<_> = self.shared.lock().sessions.values().map(|session| session.mux.clone()).collect();
        for mux in sessions {
            mux.flushed().await;
        }
    }

    /// Current counts.
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
            for link in session.links.lock().iter() {
                let status = LinkStatus::ALL.iter().position(|status| *status == link.status);
                status.into_iter().for_each(|status| stats.links[status] += 1);
            }
        }
        drop(registry);
        stats.link_bytes = self.shared.link_bytes.read();
        stats.datagrams = self.shared.datagram_legs.stats();
        stats
    }

    /// Adds the carrier to the legs of its session, or returns the carrier with the refusal.
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
            None => Err((io, Refusal::new("busy", "the session has reached its limit of legs", true))),
        }
    }

    /// Returns the session a new datagram leg in place of an existing one, or returns the refusal.
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
        // Under the registry's lock, so that a later end of the session also ends this leg.
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
        // Sessions are open to anybody; a log line at info level needs an attachment.
        debug!(session = %session.id, agent = %session.agent, "a session began");
        self.drive_session(io, &session, Some(neighbours)).await;
    }

    /// Drives a session to its end, and returns how the session ended.
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
        let driving = follow_requests(Box::pin(drive(io, session.mux.clone(), on_event)), session.mux.clone());
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
                    of.mux.announce_edges(&known);
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

/// Sends a connector the refusal of a leg or a datagram connection.
async fn refuse(io: impl AsyncWrite + Unpin, peer: SocketAddr, refusal: &Refusal) {
    debug!(%peer, %refusal, "refused a connection of a tunnel");
    let _ = tokio::time::timeout(REFUSAL_TIME, send_refusal(io, refusal)).await;
}

/// Sends a connector the error in its HELLO. A connection that does not even start with a HELLO frame gets no answer.
async fn refuse_hello(io: impl AsyncWrite + Unpin, peer: SocketAddr, violation: &Violation) {
    debug!(%peer, %violation, "refused a tunnel connection with an invalid HELLO");
    let refusal = Refusal::new("protocol", &violation.to_string(), false);
    let _ = tokio::time::timeout(REFUSAL_TIME, send_refusal(io, &refusal)).await;
}
