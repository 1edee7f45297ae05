//! One session of the connector: its control connection, its legs, and the streams on both.

use std::{
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
use sallyport_model::{RegionName, TunnelId};
use sallyport_shards::spawn_near;
use sallyport_wire::{
    Attach, Backoff, Edges, Event, Hello, Join, Open, Refusal, Session, Side, Welcome, datagram::DEFAULT_MAX_FLOWS,
    message::feature,
};
use tokio::{
    io::AsyncWriteExt,
    sync::{Semaphore, mpsc},
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

/// How many legs are dialed at a time.
const MAX_HANDSHAKES: usize = 32;
/// How long legs that the edge asks for wait before they are dialed. The edge asks in the midst of a burst that found too few, whose
/// streams are under way on the control connection; handshakes would take the processor from them. The openings of 64 are through by
/// then, on a path of any length; those of 256 take longer (docs/adr/0001-legs-and-a-control-connection.md).
const LEG_PAUSE: Duration = Duration::from_millis(20);
/// How long dialing a leg may take.
const LEG_DIAL_TIME: Duration = Duration::from_secs(15);

/// How often it is looked whether an edge that goes away has closed its flows.
const FLOWS_LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// A datagram leg that worked for so long is replaced soon when it is lost; the waits grow when they keep failing.
const LASTING: Duration = Duration::from_secs(10);

/// What a session tells the connector.
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

/// One session.
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
    /// With another edge: nothing is attached, and what is needed is opened at once.
    is_between_edges: bool,
    join: OnceLock<Join>,
    has_first_legs: AtomicBool,
    /// Legs that the edge has asked for, and that wait for the end of a pause.
    wanted_legs: AtomicUsize,
    /// A datagram leg is wanted, and a task keeps one.
    keeps_datagrams: AtomicBool,
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

    /// A session with another edge, which has called this one.
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
            join: OnceLock::new(),
            has_first_legs: AtomicBool::new(false),
            wanted_legs: AtomicUsize::new(0),
            keeps_datagrams: AtomicBool::new(false),
            flows: Mutex::default(),
            news,
        })
    }

    /// Drives the control connection until the session is over.
    pub(super) async fn run(self: Arc<Self>, carrier: BoxedCarrier) {
        let mut presence = Presence { session: &self, is_clean: false };
        let end = drive(carrier, self.mux.clone(), |event| self.on_event(event)).await;
        presence.is_clean = end.is_clean;
        drop(presence);
        let _ = self.news.send((self.number, SessionEvent::Ended { why: end.why })).await;
    }

    pub(super) fn attach(&self, tunnel: &TunnelCredential, home: Option<&RegionName>) {
        self.mux.attach(Attach {
            tunnel: tunnel.tunnel,
            credential: tunnel.credential.clone(),
            request_log: tunnel.request_log,
            home: home.cloned(),
            origin: tunnel.origin.clone(),
        });
    }

    fn on_event(self: &Arc<Self>, event: Event) {
        match event {
            Event::Welcome(welcome) => {
                let _ = self.join.set(Join { session: welcome.session, leg_secret: welcome.leg_secret });
                if self.is_between_edges {
                    self.open_all();
                }
                let (rtt, transport) = (self.started.elapsed(), self.transport);
                self.tell(SessionEvent::Welcomed { rtt, transport, welcome: Box::new(welcome) });
            }
            Event::Edges(edges) => self.tell(SessionEvent::Edges(edges)),
            Event::Attached { tunnel, url, datagrams } => {
                if datagrams {
                    self.open_datagrams();
                }
                self.open_first_legs();
                self.tell(SessionEvent::Attached { tunnel, url });
            }
            Event::NotAttached { tunnel, refusal } => self.tell(SessionEvent::NotAttached { tunnel, refusal }),
            Event::Detached { tunnel, code, message } => self.tell(SessionEvent::Detached { tunnel, code, message }),
            Event::LegsWanted(count) => self.want_legs(usize::from(count)),
            Event::GoAway { message, .. } => self.tell(SessionEvent::GoAway { message }),
            Event::Refused(refusal) => self.tell(SessionEvent::Refused(refusal)),
            Event::RequestLog(record) => self.shared.tell_logged(super::ConnectorEvent::Request(record)),
            Event::FlowLog(record) => self.shared.tell_logged(super::ConnectorEvent::Flow(record)),
            Event::HealthLog(record) => self.shared.tell_logged(super::ConnectorEvent::Health(record)),
            Event::StreamOpen(id, open) => {
                let held = StreamCount::new(&self.streams, None);
                let stream = IncomingStream::new(TunnelStream::multiplexed(self.mux.accept(id, held)));
                tokio::spawn(self.shared.origin.serve(open, stream));
            }
            _ => {}
        }
    }

    fn tell(&self, news: SessionEvent) {
        if self.news.try_send((self.number, news)).is_err() {
            self.mux.close("the edge sends more than can be taken in");
        }
    }

    /// Opens what a session needs that has no tunnels of its own.
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

    /// Opens so many legs after a pause, with all that are asked for until then.
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

    /// Opens so many legs, as far as there may be more.
    fn open_legs(self: &Arc<Self>, count: usize) {
        for _ in 0..count {
            let Some(ticket) = self.legs.admit(self.shared.config.max_legs) else { break };
            self.shared.config.shards.spawn(self.clone().open_leg(ticket));
        }
    }

    /// Opens a leg, and serves the first stream that comes on it.
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

    /// Has a datagram leg opened, and another one whenever it is lost, until the session is over.
    fn keep_datagrams(self: &Arc<Self>, handler: Arc<dyn FlowHandler>) {
        if self.keeps_datagrams.swap(true, Ordering::AcqRel) {
            return;
        }
        let session = self.clone();
        // Flows of datagrams are served where there is room for many, and not beside the session.
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

    /// Opens a datagram leg and serves it until it ends; says why it did.
    async fn serve_datagrams(&self, handler: &Arc<dyn FlowHandler>) -> String {
        let Some(join) = self.join.get() else { return "the session is not up".to_owned() };
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
            Ok(Err(error)) => return format!("it could not be opened: {error}"),
            Err(_) => return "it could not be opened in time".to_owned(),
        };
        let leg = FlowLeg::new(Side::Connector, DEFAULT_MAX_FLOWS);
        *self.flows.lock() = Some(leg.clone());
        // The end of the session either finds the leg there, or is found here.
        if self.mux.is_over() {
            leg.end();
        }
        drive_flows(io, leg, Some(handler.clone())).await
    }

    /// Waits until the edge has closed its flows, which go on elsewhere, but no longer than so long.
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

    /// Serves the next stream. Streams idle for long: what waits for them has a box of its own, gone when one came.
    async fn serve_next(self: Arc<Self>, next: Pin<Box<impl Future<Output = Option<(Leg, Open)>>>>) {
        let Some((leg, open)) = next.await else { return };
        let shards = self.shared.config.shards.clone();
        let serving = shards.by_weight(self.start(leg, open));
        drop(shards);
        serving.await;
    }

    fn start(self: Arc<Self>, leg: Leg, open: Open) -> BoxFuture<'static, ()> {
        let held = StreamCount::new(&self.streams, None);
        let origin = self.shared.origin.clone();
        let stream = LegStream::accept(leg, self, held);
        origin.serve(open, IncomingStream::new(TunnelStream::on_leg(stream)))
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
            debug!(%error, "a leg is gone");
            None
        }
    }
}

/// Ends everything of the session with its driver, whatever ends that.
struct Presence<'a> {
    session: &'a ConnectorSession,
    /// The edge ended it in good order, and closes its idle legs itself.
    is_clean: bool,
}

impl Drop for Presence<'_> {
    fn drop(&mut self) {
        self.session.mux.end("its session is over");
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
