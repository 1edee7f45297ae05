//! [`TunnelHandle`]: opens streams and flows on an attached tunnel, and sends request records to its connector.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use sallyport_model::{
    FlowRecord, HealthRecord, LinkReport, OriginAddr, RegionName, RequestRecord, SocketId, TunnelId,
};
use sallyport_wire::{DatagramStats, FlowOpen, FlowOpenError, LogBudget, LogShare, Open};

use super::EdgeSession;
use crate::{
    Establishment, FlowHandle, FlowSink, SessionId, TunnelStream,
    count::{Counter, StreamCount},
    leg_stream::LegStream,
    mux::MuxStream,
    watch::Watch,
};

/// Reason why a stream cannot be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The tunnel was detached, or the session ended or is going away.
    #[error("the tunnel accepts no new streams")]
    NotUsable,
    /// No leg is idle, and the control connection accepts no further stream.
    #[error("the tunnel has no room for another stream: {0}")]
    NoRoom(sallyport_wire::OpenError),
}

/// Reason why a flow cannot be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OpenFlowError {
    /// The tunnel was detached, the session ended or is going away, or the tunnel carries no datagrams.
    #[error("the tunnel accepts no flows")]
    NotUsable,
    /// The connector's datagram connection is not established yet, or is being replaced. Try again with the next
    /// datagram.
    #[error("the tunnel's datagram connection is not established yet")]
    NotReady,
    /// The session has reached its limit of flows.
    #[error("the tunnel has reached its limit of flows")]
    TooManyFlows,
}

/// An attached tunnel: opens streams to its origin. A handle can outlive the attachment; opening then fails.
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
    /// Whether the connector spreads streams over several endpoints.
    pub(super) spread: bool,
    pub(super) session: Arc<EdgeSession>,
    /// For a tunnel attached at another edge: shared with the link to that edge.
    pub(super) usable: Arc<AtomicBool>,
    /// Set if the connector asked for request records.
    pub(super) request_log: Option<RequestLog>,
    pub(super) streams: Arc<Counter>,
    pub(super) all_streams: Arc<Counter>,
}

/// The budget of request records of a tunnel.
pub(super) enum RequestLog {
    /// Two budgets apply. All tunnels of a session share one, because one program shows their lines. All tunnels of a
    /// socket share another, because one owner reads those lines.
    Shared { share: Mutex<LogShare>, of_socket: Arc<Mutex<LogBudget>> },
    /// The tunnel's own budget, at the end of a link: the edge that holds the tunnel applies the connector's budgets.
    Own(Mutex<LogBudget>),
}

impl TunnelHandle {
    /// The tunnel's id.
    #[must_use]
    pub fn tunnel(&self) -> TunnelId {
        self.inner.tunnel
    }

    /// The socket that the tunnel serves.
    #[must_use]
    pub fn socket(&self) -> SocketId {
        self.inner.socket
    }

    /// The session that the tunnel is attached to.
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.inner.session.id
    }

    /// The remote address of the connector.
    #[must_use]
    pub fn connector_addr(&self) -> SocketAddr {
        self.inner.session.peer
    }

    /// Name and version of the connector's program, as declared by the connector.
    #[must_use]
    pub fn agent(&self) -> &str {
        &self.inner.session.agent
    }

    /// The address at which the connector dials the origin, as declared by the connector.
    #[must_use]
    pub fn origin(&self) -> Option<&OriginAddr> {
        self.inner.origin.as_ref()
    }

    /// Whether the connector spreads streams over several endpoints: each request should get a stream of its own. False
    /// for a tunnel at another edge, which reports it to the fleet.
    #[must_use]
    pub fn spreads_streams(&self) -> bool {
        self.inner.spread
    }

    /// The name of the connector's machine, as declared by the connector.
    #[must_use]
    pub fn host(&self) -> Option<&str> {
        self.inner.session.host.as_deref()
    }

    /// The links of the connector, as it reported them last; empty for an older connector.
    #[must_use]
    pub fn links(&self) -> Arc<[LinkReport]> {
        self.inner.session.links.lock().clone()
    }

    /// The origin's region, as declared by the connector.
    #[must_use]
    pub fn home(&self) -> Option<&RegionName> {
        self.inner.home.as_ref()
    }

    /// Whether new streams can be opened: the tunnel is attached, its session is established, and neither end is going
    /// away.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.inner.usable.load(Ordering::Acquire)
    }

    /// Whether the connector was probed because a stream waits for its answer, and has been silent for a second.
    /// Another tunnel should be preferred if there is one.
    #[must_use]
    pub fn is_unresponsive(&self) -> bool {
        self.inner.session.mux.is_unresponsive()
    }

    /// Number of running streams of this tunnel.
    #[must_use]
    pub fn active_streams(&self) -> usize {
        self.inner.streams.get()
    }

    /// The round-trip time to the connector, once measured.
    #[must_use]
    pub fn smoothed_rtt(&self) -> Option<Duration> {
        self.inner.session.mux.smoothed_rtt()
    }

    /// Whether a stream opened now gets a leg.
    #[must_use]
    pub fn has_idle_leg(&self) -> bool {
        self.inner.session.pool.idle_count() > 0
    }

    /// Opens a stream to the origin without waiting. The first bytes that are written at once travel together with the
    /// opening.
    ///
    /// # Errors
    /// The tunnel accepts no (further) streams.
    pub fn open(&self, open: Open) -> Result<TunnelStream, OpenError> {
        self.open_as(open, Establishment::default())
    }

    /// Like [`Self::open`], with an [`Establishment`] that a task already waits for.
    ///
    /// # Errors
    /// As [`Self::open`]; `establishment` stays unset then.
    pub fn open_as(&self, mut open: Open, establishment: Establishment) -> Result<TunnelStream, OpenError> {
        if !self.is_usable() {
            return Err(OpenError::NotUsable);
        }
        let session = &self.inner.session;
        if !session.has_open_fields {
            open.destination = None;
        }
        // A client that has used up its share of legs gets the control connection, within its share there.
        let (leg, ask) = if self.has_leg_for(open.client) { session.pool.take() } else { (None, 0) };
        if ask > 0 {
            session.mux.ask_for_legs(ask);
        }
        let stream = match leg {
            Some(leg) => {
                let count = self.stream_count().with(session.leg_shares.hold(open.client));
                TunnelStream::on_leg(LegStream::open(leg, session.pool.clone(), open, count, establishment))
            }
            None => TunnelStream::multiplexed(self.multiplex(open, establishment)?),
        };
        Ok(stream.watched(Watch::opening(session.mux.clone())))
    }

    /// Counts a request as running until [`Self::request_ended`].
    pub fn request_began(&self) {
        self.inner.session.requests.began();
    }

    /// Counts a running request as ended.
    pub fn request_ended(&self) {
        self.inner.session.requests.ended();
    }

    /// Whether a request with a short response should share the control connection because many others are running.
    /// Their frames then travel in a few TLS records, each of which costs a system call on both sides; legs cost two
    /// for each request. If all requests come from another shard, the connection moves there.
    #[must_use]
    pub fn prefers_shared(&self) -> bool {
        let session = &self.inner.session;
        session.requests.is_crowded(Instant::now()) && session.mux.has_room_for_shared()
    }

    /// Opens a stream on the control connection without waiting.
    ///
    /// # Errors
    /// The tunnel accepts no (further) such streams.
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

    /// Whether this client has room in its share of the session's legs.
    #[must_use]
    pub fn has_leg_for(&self, client: SocketAddr) -> bool {
        self.inner.session.leg_shares.has_room(client)
    }

    fn multiplex(&self, open: Open, establishment: Establishment) -> Result<MuxStream, OpenError> {
        let session = &self.inner.session;
        if !session.stream_shares.has_room(open.client) {
            return Err(OpenError::NoRoom(sallyport_wire::OpenError::TooManyStreams));
        }
        let stream_count = self.stream_count().with(session.stream_shares.hold(open.client));
        session.mux.open(open, stream_count, establishment).map_err(why_not_multiplexed)
    }

    fn stream_count(&self) -> StreamCount {
        StreamCount::new(&self.inner.streams, Some(&self.inner.all_streams))
    }

    /// Whether the tunnel carries datagrams.
    #[must_use]
    pub fn carries_datagrams(&self) -> bool {
        self.inner.datagrams
    }

    /// Whether flows can be opened now: the connector's datagram connection is established.
    #[must_use]
    pub fn can_open_flow(&self) -> bool {
        self.inner.datagrams && self.is_usable() && self.inner.session.flows().is_some()
    }

    /// Opens a flow to the origin without waiting; received datagrams go to `sink`.
    ///
    /// # Errors
    /// The tunnel accepts no (further) flows, or none yet.
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
                // The connector opens another connection, on which flow ids start anew.
                leg.end();
                OpenFlowError::NotReady
            }
        })
    }

    /// Number of flows of the session, including those of other tunnels.
    #[must_use]
    pub fn flow_count(&self) -> usize {
        self.datagram_stats().flows
    }

    /// Counters of the session's current datagram connection at this end; zeros if there is none.
    #[must_use]
    pub fn datagram_stats(&self) -> DatagramStats {
        self.inner.session.flows().map(|leg| leg.stats()).unwrap_or_default()
    }

    /// Whether the connector is to get one more record of a request or flow. Returns the number of records dropped
    /// since the last one; `None` if the connector did not ask for records, or the budget is exhausted.
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

    /// Sends the record of a request to the connector, if there is room. Call after [`Self::request_log_turn`].
    pub fn send_request_log(&self, record: &RequestRecord) {
        self.inner.session.mux.send_request_log(record);
    }

    /// Sends the record of an ended flow to the connector, if the connector supports flows and there is room. Call
    /// after [`Self::request_log_turn`].
    pub fn send_flow_log(&self, record: &FlowRecord) {
        self.inner.session.mux.send_flow_log(record);
    }

    /// Sends the health of this tunnel's origin to the connector, if the connector asked for a live log and there is
    /// room.
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
