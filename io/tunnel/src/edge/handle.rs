//! An attached tunnel in use: opens streams, tells its connector of requests.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use sallyport_model::{FlowRecord, HealthRecord, OriginAddr, RegionName, RequestRecord, SocketId, TunnelId};
use sallyport_wire::{DatagramStats, FlowOpen, FlowOpenError, LogBudget, LogShare, Open};

use super::EdgeSession;
use crate::{
    Establishment, FlowHandle, FlowSink, SessionId, TunnelStream,
    count::{Counter, StreamCount},
    leg_stream::LegStream,
    mux::MuxStream,
    watch::Watch,
};

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

/// Why a flow cannot be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OpenFlowError {
    /// The tunnel left its session, the session is over or going away, or its clients send no datagrams.
    #[error("the tunnel takes no flows")]
    NotUsable,
    /// The connector's datagram connection is not there yet, or is being replaced: try again with the next datagram.
    #[error("the tunnel's connection for datagrams is not up yet")]
    NotReady,
    /// The session has as many flows as it may.
    #[error("the tunnel has as many flows as it may")]
    TooManyFlows,
}

/// One attached tunnel: opens streams to its origin. It can outlive its attachment and is of no use then.
#[derive(Clone)]
pub struct TunnelHandle {
    pub(super) inner: Arc<HandleInner>,
}

pub(super) struct HandleInner {
    pub(super) tunnel: TunnelId,
    pub(super) socket: SocketId,
    pub(super) datagrams: bool,
    pub(super) home: Option<RegionName>,
    pub(super) origin: Option<OriginAddr>,
    pub(super) session: Arc<EdgeSession>,
    /// Of a tunnel that is attached elsewhere: that of its link.
    pub(super) usable: Arc<AtomicBool>,
    /// For connectors that want to be told of requests.
    pub(super) request_log: Option<RequestLog>,
    pub(super) streams: Arc<Counter>,
    pub(super) all_streams: Arc<Counter>,
}

/// How often the connector is told of a tunnel's requests.
pub(super) enum RequestLog {
    /// All tunnels of its session share the session's budget, since one program shows their lines; and all of its socket share
    /// this one, since however many programs hold them, one owner reads what they show.
    Shared { share: Mutex<LogShare>, of_socket: Arc<Mutex<LogBudget>> },
    /// The tunnel has its own, at the end of a link: how often its connector is told, the edge decides that holds it.
    Own(Mutex<LogBudget>),
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

    /// The address at which its connector dials the origin, as it says.
    #[must_use]
    pub fn origin(&self) -> Option<&OriginAddr> {
        self.inner.origin.as_ref()
    }

    /// The name of the machine that the connector runs on, as it says.
    #[must_use]
    pub fn host(&self) -> Option<&str> {
        self.inner.session.host.as_deref()
    }

    /// The region that its origin is in, as far as its connector says.
    #[must_use]
    pub fn home(&self) -> Option<&RegionName> {
        self.inner.home.as_ref()
    }

    /// Whether new streams can be opened: it is attached, its session is up, and neither end is going away.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.inner.usable.load(Ordering::Acquire)
    }

    /// Whether its connector, asked because somebody waited for it in vain, has said nothing for a second: another tunnel
    /// does better, where there is one.
    #[must_use]
    pub fn is_doubtful(&self) -> bool {
        self.inner.session.mux.is_doubtful()
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
        self.open_as(open, Establishment::default())
    }

    /// As [`Self::open`], where somebody waits already for the answer to the opening.
    ///
    /// # Errors
    /// As [`Self::open`]; the answer is not set then.
    pub fn open_as(&self, mut open: Open, establishment: Establishment) -> Result<TunnelStream, OpenError> {
        if !self.is_usable() {
            return Err(OpenError::NotUsable);
        }
        let session = &self.inner.session;
        if !session.has_open_fields {
            open.destination = None;
        }
        // One that has its share of legs shares the control connection, where it has a share as well.
        let (leg, ask) = if self.has_leg_for(open.client) { session.pool.take() } else { (None, 0) };
        if ask > 0 {
            session.mux.ask_for_legs(ask);
        }
        let stream = match leg {
            Some(leg) => {
                let held = self.held().with(session.leg_shares.hold(open.client));
                TunnelStream::on_leg(LegStream::open(leg, session.pool.clone(), open, held, establishment))
            }
            None => TunnelStream::multiplexed(self.multiplex(open, establishment)?),
        };
        Ok(stream.watched(Watch::opening(session.mux.clone())))
    }

    /// A request of the tunnel is under way, until [`Self::request_ended`].
    pub fn request_began(&self) {
        self.inner.session.requests.began();
    }

    /// A request that was under way is not any more.
    pub fn request_ended(&self) {
        self.inner.session.requests.ended();
    }

    /// Whether a request with a short answer had better share the control connection: many others are under way. What they
    /// all say then travels in a few records, of which each costs a system call on both sides, where legs cost two for each
    /// request. Where all of them come from another shard, the connection moves there.
    #[must_use]
    pub fn shares_well(&self) -> bool {
        let session = &self.inner.session;
        session.requests.is_crowded(Instant::now()) && session.mux.has_room_for_shared()
    }

    /// Opens a stream that shares the control connection with others. Nothing is waited for.
    ///
    /// # Errors
    /// The tunnel takes no (more) such streams.
    pub fn open_shared(&self, mut open: Open) -> Result<TunnelStream, OpenError> {
        if !self.is_usable() {
            return Err(OpenError::NotUsable);
        }
        let session = &self.inner.session;
        if !session.has_open_fields {
            open.destination = None;
        }
        let opened = self.multiplex(open, Establishment::default())?;
        Ok(TunnelStream::multiplexed(opened).watched(Watch::opening(session.mux.clone())))
    }

    /// Whether this client has not got its share of the session's legs.
    #[must_use]
    pub fn has_leg_for(&self, client: SocketAddr) -> bool {
        self.inner.session.leg_shares.has_room(client)
    }

    fn multiplex(&self, open: Open, establishment: Establishment) -> Result<MuxStream, OpenError> {
        let session = &self.inner.session;
        if !session.stream_shares.has_room(open.client) {
            return Err(OpenError::NoRoom(sallyport_wire::OpenError::TooManyStreams));
        }
        let held = self.held().with(session.stream_shares.hold(open.client));
        session.mux.open(open, held, establishment).map_err(why_not_multiplexed)
    }

    fn held(&self) -> StreamCount {
        StreamCount::new(&self.inner.streams, Some(&self.inner.all_streams))
    }

    /// Whether its clients send datagrams.
    #[must_use]
    pub fn carries_datagrams(&self) -> bool {
        self.inner.datagrams
    }

    /// Whether flows can be opened now: the connector's datagram connection is up.
    #[must_use]
    pub fn can_open_flow(&self) -> bool {
        self.inner.datagrams && self.is_usable() && self.inner.session.flows().is_some()
    }

    /// Opens a flow to the origin: what comes back goes to `sink`. Nothing is waited for.
    ///
    /// # Errors
    /// The tunnel takes no (more) flows, or not yet.
    pub fn open_flow(&self, open: FlowOpen, sink: Arc<dyn FlowSink>) -> Result<FlowHandle, OpenFlowError> {
        if !self.inner.datagrams || !self.is_usable() {
            return Err(OpenFlowError::NotUsable);
        }
        let leg = self.inner.session.flows().ok_or(OpenFlowError::NotReady)?;
        let open = FlowOpen { tunnel: self.inner.tunnel, ..open };
        leg.open(&open, sink).map_err(|error| match error {
            FlowOpenError::TooMany => OpenFlowError::TooManyFlows,
            FlowOpenError::NotEdge => OpenFlowError::NotUsable,
            FlowOpenError::Exhausted => {
                // The connector opens another connection, whose ids begin anew.
                leg.end();
                OpenFlowError::NotReady
            }
        })
    }

    /// How many flows its session has, those of other tunnels among them.
    #[must_use]
    pub fn flow_count(&self) -> usize {
        self.datagram_stats().flows
    }

    /// What this end counted on the present datagram connection of its session; zeros when there is none.
    #[must_use]
    pub fn datagram_stats(&self) -> DatagramStats {
        self.inner.session.flows().map(|leg| leg.stats()).unwrap_or_default()
    }

    /// Whether the connector is to be told of one more request or flow, and if so, how many before it were left
    /// out: it asked for them, and they do not come faster than anybody can read.
    #[must_use]
    pub fn request_log_turn(&self) -> Option<u32> {
        if !self.is_usable() {
            return None;
        }
        let now = Instant::now();
        match self.inner.request_log.as_ref()? {
            RequestLog::Shared { share, of_socket } => {
                let mut share = share.lock();
                let mut of_session = self.inner.session.lock_log_budget();
                let mut of_socket = of_socket.lock();
                share.take([&mut of_session, &mut of_socket], now)
            }
            RequestLog::Own(budget) => budget.lock().take(now),
        }
    }

    /// Tells the connector of a request that was served, if there is room. To be called after
    /// [`Self::request_log_turn`].
    pub fn send_request_log(&self, record: &RequestRecord) {
        self.inner.session.mux.send_request_log(record);
    }

    /// Tells the connector of a flow that ended, if it takes flows and there is room. To be called after
    /// [`Self::request_log_turn`].
    pub fn send_flow_log(&self, record: &FlowRecord) {
        self.inner.session.mux.send_flow_log(record);
    }

    /// Tells the connector how the origin of this tunnel is found, if it asked for a live log and there is room.
    pub fn send_health_log(&self, record: &HealthRecord) {
        if self.is_usable() && self.inner.request_log.is_some() {
            self.inner.session.mux.send_health_log(record);
        }
    }
}

fn why_not_multiplexed(error: sallyport_wire::OpenError) -> OpenError {
    match error {
        sallyport_wire::OpenError::TooManyStreams | sallyport_wire::OpenError::Exhausted => OpenError::NoRoom(error),
        _ => OpenError::NotUsable,
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
