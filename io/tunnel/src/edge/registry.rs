//! The registry of sessions and attached tunnels, and the steps when either comes or goes.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use parking_lot::{Mutex, MutexGuard};
use sallyport_model::{SocketId, TunnelId};
use sallyport_wire::{
    Attach, Event, Hello, LogBudget, Neighbours, Refusal, Session, SessionConfig, Violation, message::feature,
};
use tracing::{debug, info};

use super::{
    Admission, Associations, EdgeSession, EdgeTunnelsConfig, Networks,
    attach_budget::AttachBudget,
    handle::{HandleInner, RequestLog, TunnelHandle},
    link::LinkState,
    link_bytes::LinkBytes,
    request_load::RequestLoad,
};
use crate::{
    SessionId,
    count::Counter,
    driver::SessionEnd,
    flows::DatagramLegs,
    mux::{Mux, now},
    pool::LegPool,
    share::FairShare,
    unattached::Unattached,
};

/// Message of the refusal when there are [`EdgeTunnelsConfig::max_sessions`].
const FULL: &str = "this edge has reached its limit of sessions";

/// Message of the refusal when a tunnel carries datagrams and the connector does not support them.
const NO_DATAGRAMS: &str = "this tunnel carries datagrams, which the connector does not support: update the connector";

/// Message of the refusal when a session exceeds its [`AttachBudget`].
const TOO_OFTEN: &str = "the session attaches tunnels too often: attach each once";

/// Number of kept log budgets of sockets from which on unused ones are removed.
const MIN_LOG_BUDGETS: usize = 64;

/// State shared by all sessions of an edge.
pub(super) struct EdgeContext {
    pub(super) config: EdgeTunnelsConfig,
    pub(super) admission: Arc<dyn Admission>,
    pub(super) registry: Mutex<Registry>,
    /// Budget of log lines about refused sessions.
    pub(super) refusals: Mutex<LogBudget>,
    pub(super) streams: Arc<Counter>,
    pub(super) datagram_legs: Arc<DatagramLegs>,
    pub(super) link_bytes: LinkBytes,
    /// Lets machines join networks, if the edge does.
    pub(super) networks: OnceLock<Arc<dyn Networks>>,
    /// Makes associations of paths, if the edge does.
    pub(super) associations: OnceLock<Arc<dyn Associations>>,
}

/// The sessions and the attached tunnels.
#[derive(Default)]
pub(super) struct Registry {
    pub(super) sessions: HashMap<SessionId, Arc<EdgeSession>>,
    pub(super) unattached: Unattached,
    pub(super) tunnels: HashMap<TunnelId, TunnelHandle>,
    /// The budgets of request records, shared by all connectors of a socket.
    log_budgets: HashMap<SocketId, Weak<Mutex<LogBudget>>>,
    /// Set once the edge is going away: the message for new sessions.
    pub(super) going_away: Option<String>,
}

impl Registry {
    /// Whether no further session may attach a tunnel. Sessions without an attachment do not count.
    pub(super) fn is_full(&self, config: &EdgeTunnelsConfig) -> bool {
        self.sessions.len() - self.unattached.len() >= config.max_sessions
    }

    /// The budget that all tunnels of this socket share.
    fn log_budget(&mut self, socket: SocketId) -> Arc<Mutex<LogBudget>> {
        if let Some(budget) = self.log_budgets.get(&socket).and_then(Weak::upgrade) {
            return budget;
        }
        // Unused budgets are removed when there are many more budgets than tunnels.
        if self.log_budgets.len() >= MIN_LOG_BUDGETS.max(2 * self.tunnels.len()) {
            self.log_budgets.retain(|_, budget| budget.strong_count() > 0);
        }
        let budget = Arc::new(Mutex::new(LogBudget::new(Instant::now())));
        self.log_budgets.insert(socket, Arc::downgrade(&budget));
        budget
    }
}

/// The peer of a session.
pub(super) enum SessionPeer<'a> {
    /// A connector, and the edges that are announced to the connector.
    Connector(&'a Neighbours),
    /// Another edge, and the parameters of the session.
    Edge(LinkState, SessionConfig),
}

/// Why a session could not be created.
#[derive(Debug, thiserror::Error)]
pub(super) enum SessionError {
    #[error("the system gives no random numbers")]
    Random,
    #[error(transparent)]
    Hello(Violation),
}

/// The session's entry in the registry, removed when dropped.
pub(super) struct Presence<'a> {
    pub(super) shared: &'a EdgeContext,
    pub(super) session: &'a Arc<EdgeSession>,
    pub(super) end: SessionEnd,
}

impl Drop for Presence<'_> {
    fn drop(&mut self) {
        if self.session.link.is_some() {
            debug!(session = %self.session.id, why = self.end.why, "a link to an edge ended");
        } else if self.session.takes_legs.load(Ordering::Acquire) {
            info!(session = %self.session.id, why = self.end.why, "a connector disconnected");
        } else {
            debug!(session = %self.session.id, why = self.end.why, "a session without an attachment ended");
        }
        self.session.mux.end(&self.end.why);
        self.shared.remove_session(self.session, &self.end);
    }
}

impl EdgeContext {
    pub(super) fn lock(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock()
    }

    /// Creates the session for this HELLO.
    pub(super) fn new_session(
        &self,
        peer: SocketAddr,
        hello: &Hello,
        frame: &[u8],
        with: SessionPeer<'_>,
    ) -> Result<Arc<EdgeSession>, SessionError> {
        let config = &self.config;
        let (mut id, mut leg_secret) = ([0; 16], [0; 32]);
        getrandom::fill(&mut id).and_then(|()| getrandom::fill(&mut leg_secret)).map_err(|_| SessionError::Random)?;
        let (link, mut session) = match with {
            SessionPeer::Edge(link, session) => {
                (Some(link), Session::edge(session, id, leg_secret, now()).between_edges())
            }
            SessionPeer::Connector(neighbours) => {
                let mut session = Session::edge(config.session.clone(), id, leg_secret, now());
                session.announce_edges(neighbours);
                (None, session)
            }
        };
        session.handle_input(frame, now()).map_err(SessionError::Hello)?;
        let max_legs = usize::from(hello.max_legs).min(config.max_legs_per_session);
        let max_streams = session.max_streams() as usize;
        let is_link = link.is_some();
        let session = Arc::new(EdgeSession {
            id: SessionId(id),
            leg_secret,
            peer,
            agent: hello.agent.clone(),
            host: hello.host.clone(),
            has_open_fields: hello.has(feature::OPEN_FIELDS),
            mux: Mux::new(session),
            stream_shares: FairShare::new(max_streams),
            leg_shares: FairShare::new(max_legs),
            pool: Arc::new(LegPool::new(config.ready_legs.min(max_legs), max_legs)),
            attach_budget: Mutex::new(AttachBudget::new(Instant::now())),
            log_budget: Mutex::new(LogBudget::new(Instant::now())),
            was_refused: AtomicBool::new(false),
            takes_legs: AtomicBool::new(is_link),
            has_datagrams: hello.has(feature::DATAGRAMS),
            takes_datagrams: AtomicBool::new(is_link),
            requests: RequestLoad::new(Instant::now()),
            flows: Mutex::default(),
            links: Mutex::default(),
            link,
        });
        if is_link {
            // The other edge opens its first legs when it receives WELCOME.
            session.pool.expect_first_legs();
        }
        Ok(session)
    }

    /// Registers the session, or returns the refusal.
    pub(super) fn add_session(&self, session: &Arc<EdgeSession>) -> Option<Refusal> {
        let mut registry = self.lock();
        if let Some(message) = &registry.going_away {
            return Some(Refusal::new("shutting-down", message, true));
        }
        if session.link.is_some() {
            registry.sessions.insert(session.id, session.clone());
            return None;
        }
        if registry.is_full(&self.config) {
            return Some(Refusal::new("busy", FULL, true));
        }
        registry.sessions.insert(session.id, session.clone());
        let oldest = registry.unattached.enter(session.peer.ip(), session.id);
        if let Some(oldest) = oldest.and_then(|id| registry.sessions.remove(&id)) {
            debug!(session = %oldest.id, "closed a session without an attachment in favour of a newer one");
            oldest.mux.refuse(Refusal::new("busy", "too many sessions of this address have no tunnel attached", true));
        }
        None
    }

    fn remove_session(&self, session: &Arc<EdgeSession>, end: &SessionEnd) {
        session.leave_link();
        let mut registry = self.lock();
        registry.sessions.remove(&session.id);
        registry.unattached.leave(session.peer.ip(), session.id);
        let gone: Vec<_> = registry.tunnels.extract_if(|_, handle| handle.session() == session.id).collect();
        for (_, handle) in gone {
            self.end_attachment(&handle, &end.why);
        }
        let flows = session.lock_flows().take();
        drop(registry);
        if let Some(flows) = flows {
            flows.end();
        }
        session.pool.close(end.is_clean);
    }

    /// Ends an attachment. Called with the registry locked and the handle removed from the registry.
    pub(super) fn end_attachment(&self, handle: &TunnelHandle, reason: &str) {
        handle.inner.usable.store(false, Ordering::Release);
        info!(tunnel = %handle.tunnel(), session = %handle.session(), reason, "a tunnel was detached");
        self.admission.detached(handle.tunnel(), handle.session(), reason);
    }

    pub(super) fn on_event(&self, session: &Arc<EdgeSession>, event: Event) {
        match event {
            // Events that arrived together with the request that ended the session are ignored.
            Event::AttachRequested(attach) if !session.mux.is_over() => self.attach(session, &attach),
            Event::Links(links) => {
                let mut known = session.links.lock();
                self.link_bytes.record(&known, &links);
                *known = links.into();
            }
            Event::Detached { tunnel, code, .. } => {
                let mut registry = self.lock();
                if registry.tunnels.get(&tunnel).is_some_and(|handle| handle.session() == session.id)
                    && let Some(handle) = registry.tunnels.remove(&tunnel)
                {
                    self.end_attachment(&handle, &code);
                    drop(registry);
                    session.end_flows_of(tunnel);
                }
            }
            Event::GoAway { code, .. } => {
                session.leave_link();
                let mut registry = self.lock();
                let gone: Vec<_> = registry.tunnels.extract_if(|_, handle| handle.session() == session.id).collect();
                for (_, handle) in gone {
                    self.end_attachment(&handle, &code);
                }
            }
            _ => {}
        }
    }

    /// Logs a refused attachment: one info line for each session, and a budget for all sessions, because anybody can
    /// provoke refusals.
    fn log_refused(&self, session: &EdgeSession, tunnel: TunnelId, refusal: &Refusal) {
        let is_first = !session.was_refused.swap(true, Ordering::Relaxed);
        let budget = || self.refusals.lock().take(Instant::now());
        let left_out = if is_first { budget() } else { None };
        let (session, code) = (session.id, refusal.code.as_str());
        match left_out {
            Some(0) => info!(%tunnel, %session, code, "a tunnel was not attached"),
            Some(left_out) => info!(%tunnel, %session, code, left_out, "a tunnel was not attached, nor were others"),
            None => debug!(%tunnel, %session, code, "a tunnel was not attached"),
        }
    }

    /// Deciding and attaching are one step under the lock, so that a deletion comes either before or after both.
    fn attach(&self, session: &Arc<EdgeSession>, attach: &Attach) {
        let tunnel = attach.tunnel;
        if !session.lock_attach_budget().take(Instant::now()) {
            debug!(session = %session.id, "a session exceeds its budget of attachments");
            return session.mux.refuse(Refusal::new("protocol", TOO_OFTEN, true));
        }
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
        let admitted = admitted.and_then(|admitted| match admitted.datagrams && !session.has_datagrams {
            true => Err(Refusal::new("no-datagrams", NO_DATAGRAMS, false)),
            false => Ok(admitted),
        });
        let admitted = match admitted {
            Ok(admitted) => admitted,
            Err(refusal) => {
                self.log_refused(session, tunnel, &refusal);
                return session.mux.refuse_attach(tunnel, refusal);
            }
        };
        session.lock_attach_budget().attached(tunnel, Instant::now());
        registry.unattached.leave(session.peer.ip(), session.id);
        if !session.takes_legs.swap(true, Ordering::AcqRel) {
            info!(session = %session.id, agent = %session.agent, "a connector connected");
            session.pool.expect_first_legs();
        }
        if admitted.datagrams {
            session.takes_datagrams.store(true, Ordering::Release);
        }
        session.mux.accept_attach(tunnel, admitted.url, admitted.datagrams);
        let request_log = attach
            .request_log
            .then(|| RequestLog::Shared { share: Mutex::default(), of_socket: registry.log_budget(admitted.socket) });
        let handle = TunnelHandle {
            inner: Arc::new(HandleInner {
                tunnel,
                socket: admitted.socket,
                datagrams: admitted.datagrams,
                home: attach.home.clone(),
                origin: attach.origin.clone(),
                spread: attach.spread,
                session: session.clone(),
                usable: Arc::new(AtomicBool::new(true)),
                request_log,
                streams: Arc::default(),
                all_streams: self.streams.clone(),
            }),
        };
        let former = registry.tunnels.insert(tunnel, handle.clone());
        if former.as_ref().is_none_or(|former| former.session() != session.id) {
            info!(%tunnel, session = %session.id, "a tunnel was attached");
        }
        match former {
            // A repeated attachment in the same session: the former handle stays valid.
            Some(former) if former.session() == session.id => {
                debug!(%tunnel, session = %session.id, "an attached tunnel was attached again in its session");
                registry.tunnels.insert(tunnel, former);
            }
            Some(former) => {
                self.admission.attached(handle);
                former.inner.session.mux.detach(tunnel, "replaced", "another connector took over this tunnel");
                self.end_attachment(&former, "replaced");
                drop(registry);
                former.inner.session.end_flows_of(tunnel);
            }
            None => self.admission.attached(handle),
        }
    }
}
