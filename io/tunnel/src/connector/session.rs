//! One session of the connector: its control connection, its legs, and the streams on both.

use std::{
    convert::Infallible,
    future::Future,
    io,
    pin::Pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use sallyport_model::{EdgeName, LinkReport, RegionName, TunnelId};
use sallyport_shards::spawn_near;
use sallyport_wire::{
    Attach, Backoff, Edges, Event, Hello, Join, Open, Refusal, Session, Side, Welcome, datagram::DEFAULT_MAX_FLOWS,
    message::feature,
};
use tokio::{
    io::AsyncWriteExt,
    sync::{Notify, Semaphore, mpsc},
    time::Instant,
};
use tracing::debug;

use super::{DEFAULT_TRANSPORT, Dial, TunnelCredential, random, supervisor::ConnectorContext};
use crate::{
    BoxFuture, BoxedCarrier, FlowHandler, IncomingStream, TunnelStream,
    count::{Counter, StreamCount},
    driver::drive,
    flows::{FlowLeg, driver::drive_flows},
    leg::Leg,
    leg_stream::{LegHome, LegStream},
    life::{LegRegistry, LegTicket},
    mux::{Mux, now},
};

/// The most legs that are dialed at a time.
const MAX_HANDSHAKES: usize = 32;
/// Delay before legs that the edge asks for are dialed. The edge asks during a burst of streams that found too few
/// legs; those streams run on the control connection, and handshakes would compete with the streams for CPU. A burst of
/// 64 openings is over by then on any path; one of 256 takes longer (docs/adr/0001-legs-and-a-control-connection.md).
const LEG_PAUSE: Duration = Duration::from_millis(20);
/// Timeout of dialing a leg.
const LEG_DIAL_TIME: Duration = Duration::from_secs(15);

/// Interval at which the session checks whether an edge that is going away has closed its flows.
const FLOWS_LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// A datagram leg that lived this long is replaced soon when lost. Otherwise the delays grow.
const LASTING: Duration = Duration::from_secs(10);

/// An event of a session for the supervisor.
pub(super) enum SessionEvent {
    NotDialed(io::Error),
    Dialed(Arc<ConnectorSession>),
    Welcomed { rtt: Duration, transport: &'static str, welcome: Box<Welcome> },
    Edges(Edges),
    Attached { tunnel: TunnelId, url: String },
    NotAttached { tunnel: TunnelId, refusal: Refusal },
    Detached { tunnel: TunnelId, code: String, message: String },
    GoAway { message: String },
    Refused(Refusal),
    Ended { why: String },
}

/// One session of the connector.
pub(super) struct ConnectorSession {
    pub(super) number: u64,
    pub(super) mux: Arc<Mux>,
    pub(super) streams: Arc<Counter>,
    shared: Arc<ConnectorContext>,
    dial: Arc<dyn Dial>,
    legs: Arc<LegRegistry>,
    handshakes: Semaphore,
    started: Instant,
    transport: &'static str,
    /// A session between two edges: nothing is attached, and legs are opened at once.
    is_between_edges: bool,
    /// The name of the edge, once it has told one.
    edge: OnceLock<EdgeName>,
    join: OnceLock<Join>,
    has_first_legs: AtomicBool,
    /// Number of legs that the edge asked for and that wait for [`LEG_PAUSE`].
    wanted_legs: AtomicUsize,
    /// Whether a task keeps a datagram leg open.
    keeps_datagrams: AtomicBool,
    /// Told once the edge wants reports of links.
    link_reports_wanted: Notify,
    flows: Mutex<Option<Arc<FlowLeg>>>,
    news: mpsc::Sender<(u64, SessionEvent)>,
}

impl ConnectorSession {
    pub(super) fn new(
        number: u64,
        shared: Arc<ConnectorContext>,
        dial: Arc<dyn Dial>,
        news: mpsc::Sender<(u64, SessionEvent)>,
    ) -> Arc<Self> {
        Self::with(number, shared, dial, news, false)
    }

    /// The session with another edge that has called this one.
    pub(super) fn between_edges(
        shared: Arc<ConnectorContext>,
        dial: Arc<dyn Dial>,
        news: mpsc::Sender<(u64, SessionEvent)>,
    ) -> Arc<Self> {
        Self::with(0, shared, dial, news, true)
    }

    fn with(
        number: u64,
        shared: Arc<ConnectorContext>,
        dial: Arc<dyn Dial>,
        news: mpsc::Sender<(u64, SessionEvent)>,
        is_between_edges: bool,
    ) -> Arc<Self> {
        let config = &shared.config;
        let transport = dial.transport();
        let agent = match transport {
            DEFAULT_TRANSPORT => config.agent.clone(),
            other => format!("{} over {other}", config.agent),
        };
        let datagrams = shared.origin.flows().map(|_| feature::DATAGRAMS);
        let hello = Hello {
            versions: vec![sallyport_wire::VERSION],
            agent,
            connector: config.connector_id,
            max_legs: u16::try_from(config.max_legs).unwrap_or(u16::MAX),
            features: [feature::OPEN_FIELDS, feature::FLOW_LOG, feature::HEALTH_LOG, feature::EDGES]
                .into_iter()
                .chain(datagrams)
                .map(str::to_owned)
                .collect(),
            host: config.host.clone(),
        };
        let session = Session::connector(hello, config.session.clone(), now());
        let session = if is_between_edges { session.between_edges() } else { session };
        Arc::new(Self {
            number,
            mux: Mux::new(session),
            streams: Arc::default(),
            shared,
            dial,
            legs: Arc::default(),
            handshakes: Semaphore::new(MAX_HANDSHAKES),
            started: Instant::now(),
            transport,
            is_between_edges,
            edge: OnceLock::new(),
            join: OnceLock::new(),
            has_first_legs: AtomicBool::new(false),
            wanted_legs: AtomicUsize::new(0),
            keeps_datagrams: AtomicBool::new(false),
            link_reports_wanted: Notify::new(),
            flows: Mutex::default(),
            news,
        })
    }

    /// Drives the control connection until the session is over.
    pub(super) async fn run(self: Arc<Self>, carrier: BoxedCarrier) {
        let mut presence = Presence { session: &self, is_clean: false };
        let end = tokio::select! {
            end = drive(carrier, self.mux.clone(), |event| self.on_event(event)) => end,
            never = self.report_links() => match never {},
        };
        presence.is_clean = end.is_clean;
        drop(presence);
        let _ = self.news.send((self.number, SessionEvent::Ended { why: end.why })).await;
    }

    /// Reports the links whenever something has changed, once the edge wants reports. Never returns.
    async fn report_links(&self) -> Infallible {
        self.link_reports_wanted.notified().await;
        let mut known: Vec<LinkReport> = Vec::new();
        loop {
            let links = self.dial.links().await;
            let is_same = |(now, former): (&LinkReport, &LinkReport)| !now.is_news_after(former);
            if links.len() != known.len() || !links.iter().zip(&known).all(is_same) {
                self.mux.report_links(links.clone());
                known = links;
            }
            tokio::time::sleep(self.shared.config.link_report_interval).await;
        }
    }

    pub(super) fn attach(&self, tunnel: &TunnelCredential, home: Option<&RegionName>) {
        self.mux.attach(Attach {
            tunnel: tunnel.tunnel,
            credential: tunnel.credential.clone(),
            request_log: tunnel.request_log,
            home: home.cloned(),
            origin: tunnel.origin.clone(),
            spread: tunnel.spreads,
        });
    }

    fn on_event(self: &Arc<Self>, event: Event) {
        match event {
            Event::Welcome(welcome) => {
                let _ = self.join.set(Join { session: welcome.session, leg_secret: welcome.leg_secret });
                if let Some(edge) = &welcome.edge {
                    let _ = self.edge.set(edge.clone());
                }
                if self.is_between_edges {
                    self.open_all();
                } else if welcome.link_reports {
                    self.link_reports_wanted.notify_one();
                }
                let (rtt, transport) = (self.started.elapsed(), self.transport);
                self.emit(SessionEvent::Welcomed { rtt, transport, welcome: Box::new(welcome) });
            }
            Event::Edges(edges) => self.emit(SessionEvent::Edges(edges)),
            Event::Attached { tunnel, url, datagrams } => {
                if datagrams {
                    self.open_datagrams();
                }
                self.open_first_legs();
                self.emit(SessionEvent::Attached { tunnel, url });
            }
            Event::NotAttached { tunnel, refusal } => self.emit(SessionEvent::NotAttached { tunnel, refusal }),
            Event::Detached { tunnel, code, message } => self.emit(SessionEvent::Detached { tunnel, code, message }),
            Event::LegsWanted(count) => self.want_legs(usize::from(count)),
            Event::GoAway { message, .. } => self.emit(SessionEvent::GoAway { message }),
            Event::Refused(refusal) => self.emit(SessionEvent::Refused(refusal)),
            Event::RequestLog(record) => self.shared.emit_logged(super::ConnectorEvent::Request(record)),
            Event::FlowLog(record) => self.shared.emit_logged(super::ConnectorEvent::Flow(record)),
            Event::HealthLog(record) => self.shared.emit_logged(super::ConnectorEvent::Health(record)),
            Event::StreamOpen(id, open) => {
                let count = StreamCount::new(&self.streams, None);
                let stream = IncomingStream::new(TunnelStream::multiplexed(self.mux.accept(id, count)));
                tokio::spawn(self.shared.origin.serve_from(self.edge.get(), open, stream));
            }
            _ => {}
        }
    }

    fn emit(&self, news: SessionEvent) {
        if self.news.try_send((self.number, news)).is_err() {
            self.mux.close("the edge sends faster than its messages can be processed");
        }
    }

    /// Opens the legs of a session without tunnels of its own.
    fn open_all(self: &Arc<Self>) {
        self.open_datagrams();
        self.open_first_legs();
    }

    fn open_datagrams(self: &Arc<Self>) {
        if let Some(handler) = self.shared.origin.flows() {
            self.keep_datagrams(handler);
        }
    }

    fn open_first_legs(self: &Arc<Self>) {
        if !self.has_first_legs.swap(true, Ordering::AcqRel) {
            self.open_legs(self.shared.config.ready_legs);
        }
    }

    /// Opens `count` legs after a pause, together with the legs requested in the meantime.
    fn want_legs(self: &Arc<Self>, count: usize) {
        if count == 0 || self.wanted_legs.fetch_add(count, Ordering::AcqRel) > 0 {
            return;
        }
        let session = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(LEG_PAUSE).await;
            let count = session.wanted_legs.swap(0, Ordering::AcqRel);
            session.open_legs(count);
        });
    }

    /// Opens `count` legs, up to the maximum.
    fn open_legs(self: &Arc<Self>, count: usize) {
        for _ in 0..count {
            let Some(ticket) = self.legs.admit(self.shared.config.max_legs) else { break };
            self.shared.config.shards.spawn(self.clone().open_leg(ticket));
        }
    }

    /// Opens a leg and serves the first stream on the leg.
    async fn open_leg(self: Arc<Self>, ticket: LegTicket) {
        let session = self.clone();
        let next = async move { next_open(session.dial_leg(ticket).await?).await };
        self.serve_next(Box::pin(next)).await;
    }

    async fn dial_leg(&self, ticket: LegTicket) -> Option<Leg> {
        let (Some(join), Ok(_permit)) = (self.join.get(), self.handshakes.acquire().await) else { return None };
        if ticket.life.is_over() {
            return None;
        }
        let failed = |error: io::Error| debug!(%error, "a leg could not be opened");
        let io = match tokio::time::timeout(LEG_DIAL_TIME, self.dial.dial()).await {
            Ok(dialed) => dialed.map_err(failed).ok()?,
            Err(_) => {
                debug!("a leg could not be opened in time");
                return None;
            }
        };
        let mut leg = Leg::new(io, Side::Connector, ticket);
        let mut frame = Vec::new();
        join.encode(&mut frame);
        leg.send_raw(&frame);
        std::future::poll_fn(|cx| leg.poll_flush(cx)).await.map_err(failed).ok()?;
        Some(leg)
    }

    /// Keeps a datagram leg open until the session ends: a lost leg is replaced.
    fn keep_datagrams(self: &Arc<Self>, handler: Arc<dyn FlowHandler>) {
        if self.keeps_datagrams.swap(true, Ordering::AcqRel) {
            return;
        }
        let session = self.clone();
        // Flows of datagrams run in the shared runtime, not in the session's shard.
        self.shared.runtime.spawn(async move {
            let mut backoff = Backoff::default();
            while !session.mux.is_over() {
                let started = Instant::now();
                let why = session.serve_datagrams(&handler).await;
                debug!(why, "the datagram connection is gone");
                if started.elapsed() > LASTING {
                    backoff.reset();
                }
                if !session.mux.is_over() {
                    tokio::time::sleep(backoff.next(random())).await;
                }
            }
        });
    }

    /// Opens a datagram leg and serves flows on the leg. Returns why the leg ended.
    async fn serve_datagrams(&self, handler: &Arc<dyn FlowHandler>) -> String {
        let Some(join) = self.join.get() else { return "the session is not established".to_owned() };
        let mut frame = Vec::new();
        join.encode_datagrams(&mut frame);
        let opening = async {
            let mut io = self.dial.dial_datagrams().await?;
            io.write_all(&frame).await?;
            io.flush().await?;
            io::Result::Ok(io)
        };
        let io = match tokio::time::timeout(LEG_DIAL_TIME, opening).await {
            Ok(Ok(io)) => io,
            Ok(Err(error)) => return format!("the connection could not be opened: {error}"),
            Err(_) => return "the connection could not be opened in time".to_owned(),
        };
        let leg = FlowLeg::new(Side::Connector, DEFAULT_MAX_FLOWS);
        *self.flows.lock() = Some(leg.clone());
        // Either the end of the session finds the leg in its slot, or this check finds the end.
        if self.mux.is_over() {
            leg.end();
        }
        drive_flows(io, leg, Some(handler.clone())).await
    }

    /// Waits up to `at_most` until the edge has closed its flows, which continue on another session.
    pub(super) async fn flows_over(&self, at_most: Duration) {
        let count = || {
            let flows = self.flows.lock();
            flows.as_ref().filter(|leg| !leg.is_over()).map_or(0, |leg| leg.stats().flows)
        };
        let over = async {
            while count() > 0 {
                tokio::time::sleep(FLOWS_LOOK_INTERVAL).await;
            }
        };
        let _ = tokio::time::timeout(at_most, over).await;
    }

    /// Serves the next stream. Streams idle for long, so the waiting future has a box of its own, freed when a stream
    /// comes.
    async fn serve_next(self: Arc<Self>, next: Pin<Box<impl Future<Output = Option<(Leg, Open)>>>>) {
        let Some((leg, open)) = next.await else { return };
        let shards = self.shared.config.shards.clone();
        let serving = shards.by_weight(self.start(leg, open));
        drop(shards);
        serving.await;
    }

    fn start(self: Arc<Self>, leg: Leg, open: Open) -> BoxFuture<'static, ()> {
        let count = StreamCount::new(&self.streams, None);
        let origin = self.shared.origin.clone();
        let session = self.clone();
        let stream = LegStream::accept(leg, self, count);
        origin.serve_from(session.edge.get(), open, IncomingStream::new(TunnelStream::on_leg(stream)))
    }
}

impl LegHome for ConnectorSession {
    fn take_back(self: Arc<Self>, leg: Leg) {
        if !self.legs.is_over() && tokio::runtime::Handle::try_current().is_ok() {
            spawn_near(self.serve_next(Box::pin(next_open(leg))));
        }
    }
}

/// Waits for the next stream on an idle leg.
async fn next_open(mut leg: Leg) -> Option<(Leg, Open)> {
    match leg.next_open().await {
        Ok(open) => Some((leg, open)),
        Err(error) => {
            debug!(%error, "a leg ended");
            None
        }
    }
}

/// Guard of the driver: ends the legs and streams of the session when dropped.
struct Presence<'a> {
    session: &'a ConnectorSession,
    /// Whether the edge ended the session in order, and closes its idle legs itself.
    is_clean: bool,
}

impl Drop for Presence<'_> {
    fn drop(&mut self) {
        self.session.mux.end("the session is over");
        let flows = self.session.flows.lock().take();
        if let Some(flows) = flows {
            flows.end();
        }
        if self.is_clean {
            self.session.legs.retire();
        } else {
            self.session.legs.end_all();
        }
    }
}
