//! The connector's end: keeps a session with the edge, and hands streams to the origin.
//!
//! [`run_connector`] is one loop over what can happen: a dial succeeded or failed, a session has news, the wait for
//! the next attempt is over, it is time to stop. Sessions are tasks of their own, so that a session which is going
//! away finishes its streams while the next one is set up.

mod session;

use std::{collections::HashSet, future::Future, io, pin::pin, sync::Arc, time::Duration};

use sallyport_model::{FlowRecord, RequestRecord, TunnelId};
use sallyport_shards::Shards;
use sallyport_wire::{Backoff, Open, Refusal, SessionConfig, session::MAX_TUNNELS_PER_SESSION};
use tokio::{
    runtime::Handle,
    sync::{mpsc, oneshot},
    task::JoinSet,
    time::Instant,
};
use tracing::debug;

use self::session::{ConnectorSession, News};
use crate::{BoxFuture, BoxedCarrier, FlowHandler, IncomingStream};

/// How much a session may have to tell that was not taken in yet: all its tunnels may be attached at once.
const MAX_QUEUED_NEWS: usize = 2 * MAX_TUNNELS_PER_SESSION;
/// How long dialing the control connection may take.
const DIAL_TIME: Duration = Duration::from_secs(30);
/// After how long a tunnel that was refused for now is attached again.
const REATTACH_AFTER: Duration = Duration::from_secs(5);
/// For how long at least a stream may still come after the edge was told that no more are wanted.
const MIN_LINGER: Duration = Duration::from_millis(250);
/// How long an edge that goes away may take to close its flows, once the tunnels are attached elsewhere. Flows have no
/// end of their own; the edge closes them when their clients' datagrams go elsewhere.
const FLOWS_MOVE_TIME: Duration = Duration::from_secs(5);
/// How long sessions may take to close once their streams are done.
const CLOSE_TIME: Duration = Duration::from_secs(2);

/// The transport that goes without saying.
pub(crate) const DEFAULT_TRANSPORT: &str = "tcp";

/// A tunnel to hold.
#[derive(Clone)]
pub struct TunnelCredential {
    /// The tunnel.
    pub tunnel: TunnelId,
    /// What proves that it is ours.
    pub credential: String,
    /// Whether to be told of every request.
    pub request_log: bool,
}

impl std::fmt::Debug for TunnelCredential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TunnelCredential").field("tunnel", &self.tunnel).finish_non_exhaustive()
    }
}

/// What a connector that runs is told of its tunnels; see [`run_changing_connector`].
#[derive(Debug, Clone)]
pub enum TunnelChange {
    /// Hold this one too, or with this credential from the next attachment on.
    Hold(TunnelCredential),
    /// Take this one back; its streams that run go on.
    LetGo(TunnelId),
}

/// How a connector behaves.
#[derive(Debug, Clone)]
pub struct ConnectorConfig {
    /// Name and version of the program, as the edge shows it.
    pub agent: String,
    /// Random bytes that stand for this run.
    pub connector_id: [u8; 16],
    /// How many legs there may be; 0: all streams are multiplexed on the control connection.
    pub max_legs: usize,
    /// How many are opened right after the first tunnel is attached.
    pub ready_legs: usize,
    /// How sessions behave until the edge says how.
    pub session: SessionConfig,
    /// The tunnels to hold.
    pub tunnels: Vec<TunnelCredential>,
    /// How long streams may run on after it was asked to stop.
    pub drain: Duration,
    /// Where legs are served, and the streams on them.
    pub shards: Shards,
}

impl ConnectorConfig {
    /// The defaults for these tunnels.
    #[must_use]
    pub fn new(agent: &str, connector_id: [u8; 16], tunnels: Vec<TunnelCredential>) -> Self {
        Self {
            agent: agent.to_owned(),
            connector_id,
            max_legs: 512,
            ready_legs: sallyport_wire::demand::DEFAULT_READY_LEGS,
            session: SessionConfig::default(),
            tunnels,
            drain: Duration::from_secs(30),
            shards: Shards::default(),
        }
    }
}

/// Opens connections to the edge: TLS with [`sallyport_wire::ALPN`].
pub trait Dial: Send + Sync + 'static {
    /// A new connection for a leg, and for control unless that has its own way.
    fn dial(&self) -> BoxFuture<'static, io::Result<BoxedCarrier>>;

    /// A new connection for control, which should keep little unsent data in the kernel
    /// ([`crate::CONTROL_NOTSENT_BYTES`]).
    fn dial_control(&self) -> BoxFuture<'static, io::Result<BoxedCarrier>> {
        self.dial()
    }

    /// A new connection for the datagrams of the session that there is: like one for control.
    fn dial_datagrams(&self) -> BoxFuture<'static, io::Result<BoxedCarrier>> {
        self.dial_control()
    }

    /// What the last connection for control went over, as a word.
    fn transport(&self) -> &'static str {
        DEFAULT_TRANSPORT
    }

    /// A session was lost so long after its connection stood: the edge has neither refused nor ended it. Says what is
    /// done about that, as the end of a sentence, if anything is.
    fn lost(&self, _after: Duration) -> Option<String> {
        None
    }
}

/// Serves the streams that come through the tunnels.
pub trait OriginHandler: Send + Sync + 'static {
    /// Serves one stream; it runs in a task of its own.
    fn serve(&self, open: Open, stream: IncomingStream) -> BoxFuture<'static, ()>;

    /// Who serves flows of datagrams; none: the edge is told that there are none, and refuses tunnels that need them.
    fn flows(&self) -> Option<Arc<dyn FlowHandler>> {
        None
    }
}

/// What a connector has to tell.
#[derive(Debug, Clone, PartialEq)]
pub enum ConnectorEvent {
    /// It dials the edge.
    Connecting,
    /// The edge answered.
    Connected {
        /// From our first word to the answer.
        rtt: Duration,
        /// What carries the tunnels: see [`Dial::transport`].
        transport: &'static str,
    },
    /// A tunnel is up.
    Attached {
        /// The tunnel.
        tunnel: TunnelId,
        /// Where clients reach it.
        url: String,
    },
    /// A tunnel was refused.
    NotAttached {
        /// The tunnel.
        tunnel: TunnelId,
        /// Why, and whether it will be tried again.
        refusal: Refusal,
    },
    /// The edge took a tunnel away.
    Detached {
        /// The tunnel.
        tunnel: TunnelId,
        /// Why, as a word: "replaced", "deleted" ...
        code: String,
        /// Why, as a sentence.
        message: String,
    },
    /// The edge stops; the next session is set up while running streams finish.
    GoingAway {
        /// Why.
        message: String,
    },
    /// Nothing takes what comes through the tunnels: datagrams that were sent on are refused.
    OriginMissing {
        /// Whose service it is.
        tunnel: TunnelId,
        /// What is not there, as a sentence without an end.
        reason: String,
    },
    /// There is no session any more, or none came about.
    Disconnected {
        /// Why.
        reason: String,
    },
    /// It will dial again.
    Retrying {
        /// After how long.
        after: Duration,
    },
    /// The edge served a request.
    Request(RequestRecord),
    /// A TCP or TLS connection or a UDP flow ended at the edge.
    Flow(FlowRecord),
}

/// Why a connector ended by itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectorError {
    /// The last of its tunnels was refused for good.
    #[error("the edge refused the tunnel: {0}")]
    Refused(Refusal),
    /// The edge refused the session for good.
    #[error("the edge refused the connection: {0}")]
    SessionRefused(Refusal),
    /// The last of its tunnels was taken away.
    #[error("the edge ended the tunnel: {message} ({code})")]
    Detached {
        /// Why, as a word: "replaced", "deleted" ...
        code: String,
        /// Why, as a sentence.
        message: String,
    },
}

/// What all sessions of a connector share.
struct Shared {
    config: ConnectorConfig,
    dial: Arc<dyn Dial>,
    origin: Arc<dyn OriginHandler>,
    events: mpsc::Sender<ConnectorEvent>,
    /// Where what is no stream runs.
    runtime: Handle,
}

/// Holds the tunnels until `shutdown` completes: then it takes its tunnels back, waits until their streams are done (at
/// most `config.drain`), and returns. Reconnects for ever. Needs a tokio runtime.
///
/// `events` should be read and have room for some dozens: what does not fit is left out, requests first.
///
/// # Errors
/// No tunnel is left that could be held: see [`ConnectorError`].
pub async fn run_connector(
    config: ConnectorConfig,
    dial: Arc<dyn Dial>,
    origin: Arc<dyn OriginHandler>,
    events: mpsc::Sender<ConnectorEvent>,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), ConnectorError> {
    run_changing_connector(config, dial, origin, events, mpsc::channel(1).1, shutdown).await
}

/// As [`run_connector`], with tunnels that change while it runs: a session has no more than
/// [`MAX_TUNNELS_PER_SESSION`] at a time.
///
/// # Errors
/// As [`run_connector`]; letting go of the last tunnel is no error.
pub async fn run_changing_connector(
    config: ConnectorConfig,
    dial: Arc<dyn Dial>,
    origin: Arc<dyn OriginHandler>,
    events: mpsc::Sender<ConnectorEvent>,
    mut changes: mpsc::Receiver<TunnelChange>,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), ConnectorError> {
    let (news_in, mut news) = mpsc::channel(MAX_QUEUED_NEWS);
    let mut supervisor = Supervisor {
        tunnels: config.tunnels.clone(),
        shared: Arc::new(Shared { config, dial, origin, events, runtime: Handle::current() }),
        tasks: JoinSet::new(),
        news_in,
        current: None,
        retiring: Vec::new(),
        dialing: None,
        dial_at: Some(Instant::now()),
        attach_at: None,
        backoff: Backoff::default(),
        next_number: 0,
    };
    let mut shutdown = pin!(shutdown);
    loop {
        let outcome = tokio::select! {
            () = &mut shutdown => Err(Ok(())),
            Some((number, message)) = news.recv() => supervisor.on_news(number, message).map_err(Err),
            Some(change) = changes.recv() => {
                supervisor.on_change(change);
                Ok(())
            }
            dialed = optional(&mut supervisor.dialing) => {
                supervisor.dialing = None;
                supervisor.on_dialed(dialed);
                Ok(())
            }
            () = at(supervisor.dial_at) => {
                supervisor.start_dialing();
                Ok(())
            }
            () = at(supervisor.attach_at) => {
                supervisor.attach_again();
                Ok(())
            }
        };
        if let Err(end) = outcome {
            supervisor.stop(news).await;
            return end;
        }
    }
}

/// A session and what is known of it.
struct Live {
    session: Arc<ConnectorSession>,
    /// The edge took the session: from here on tunnels are attached.
    is_welcomed: bool,
    attached: HashSet<TunnelId>,
    was_attached: bool,
    /// It ends when its streams are done.
    is_released: bool,
    refusal: Option<Refusal>,
    since: Instant,
}

/// A control connection that stands: its task waits for the session that it is to drive.
type Dialed = oneshot::Sender<Arc<ConnectorSession>>;

/// Dials a control connection, and drives the session that it is for: all in one scheduler, and the streams on it too.
async fn dial_and_drive(dial: Arc<dyn Dial>, mut tell: oneshot::Sender<io::Result<Dialed>>) {
    let dialed = tokio::select! {
        dialed = tokio::time::timeout(DIAL_TIME, dial.dial_control()) => dialed,
        () = tell.closed() => return,
    };
    let late = |_| Err(io::Error::new(io::ErrorKind::TimedOut, "the edge did not answer in time"));
    // Where nobody waits for it any more, the connection is dropped.
    match dialed.unwrap_or_else(late) {
        Err(error) => drop(tell.send(Err(error))),
        Ok(carrier) => {
            let (dialed, session) = oneshot::channel::<Arc<ConnectorSession>>();
            if tell.send(Ok(dialed)).is_ok()
                && let Ok(session) = session.await
            {
                session.run(carrier).await;
            }
        }
    }
}

struct Supervisor {
    shared: Arc<Shared>,
    /// The tunnels that are still wanted.
    tunnels: Vec<TunnelCredential>,
    tasks: JoinSet<()>,
    news_in: mpsc::Sender<(u64, News)>,
    current: Option<Live>,
    /// Sessions that are going away, until their streams are done.
    retiring: Vec<Live>,
    dialing: Option<BoxFuture<'static, io::Result<Dialed>>>,
    dial_at: Option<Instant>,
    attach_at: Option<Instant>,
    backoff: Backoff,
    next_number: u64,
}

impl Shared {
    /// Tells of a request or a flow while there is room enough for what matters more.
    fn tell_logged(&self, event: ConnectorEvent) {
        if self.events.capacity() > self.events.max_capacity() / 4 {
            let _ = self.events.try_send(event);
        }
    }
}

impl Supervisor {
    /// Never waits: whoever does not listen must not keep the connector from stopping.
    fn tell(&self, event: ConnectorEvent) {
        if self.shared.events.try_send(event).is_err() {
            debug!("an event was left out: nobody takes them");
        }
    }

    fn start_dialing(&mut self) {
        self.dial_at = None;
        self.tell(ConnectorEvent::Connecting);
        self.collect_finished();
        let (tell, told) = oneshot::channel();
        let dialing = dial_and_drive(self.shared.dial.clone(), tell);
        self.shared.config.shards.spawn_among(&mut self.tasks, dialing);
        let ended = |_| Err(io::Error::other("the task that dialed the edge ended early"));
        self.dialing = Some(Box::pin(async move { told.await.unwrap_or_else(ended) }));
    }

    /// Finished tasks are collected so that they do not pile up over years.
    fn collect_finished(&mut self) {
        while self.tasks.try_join_next().is_some() {}
    }

    fn on_dialed(&mut self, dialed: io::Result<Dialed>) {
        match dialed {
            Ok(dialed) => {
                self.next_number += 1;
                let session = ConnectorSession::new(self.next_number, self.shared.clone(), self.news_in.clone());
                if dialed.send(session.clone()).is_err() {
                    return self.retry("the task that dialed the edge ended early".to_owned());
                }
                self.current = Some(Live {
                    session,
                    is_welcomed: false,
                    attached: HashSet::new(),
                    was_attached: false,
                    is_released: false,
                    refusal: None,
                    since: Instant::now(),
                });
            }
            Err(error) => self.retry(error.to_string()),
        }
    }

    fn retry(&mut self, reason: String) {
        let after = self.backoff.next(random());
        self.dial_at = Some(Instant::now() + after);
        self.attach_at = None;
        self.tell(ConnectorEvent::Disconnected { reason });
        self.tell(ConnectorEvent::Retrying { after });
    }

    fn attach_again(&mut self) {
        self.attach_at = None;
        if let Some(live) = &self.current {
            for tunnel in self.tunnels.iter().filter(|tunnel| !live.attached.contains(&tunnel.tunnel)) {
                live.session.attach(tunnel);
            }
        }
    }

    fn on_change(&mut self, change: TunnelChange) {
        let live = self.current.as_mut().filter(|live| live.is_welcomed);
        match change {
            TunnelChange::Hold(tunnel) => {
                let id = tunnel.tunnel;
                if let Some(live) = live.filter(|live| !live.attached.contains(&id)) {
                    live.session.attach(&tunnel);
                }
                match self.tunnels.iter_mut().find(|known| known.tunnel == id) {
                    Some(known) => *known = tunnel,
                    None => self.tunnels.push(tunnel),
                }
            }
            TunnelChange::LetGo(tunnel) => {
                self.tunnels.retain(|known| known.tunnel != tunnel);
                if let Some(live) = live {
                    live.attached.remove(&tunnel);
                    live.session.mux.detach(tunnel, "shutting-down", "the connector serves it no more");
                }
            }
        }
    }

    /// An error means that there is nothing left to do.
    fn on_news(&mut self, number: u64, news: News) -> Result<(), ConnectorError> {
        self.collect_finished();
        if self.current.as_ref().is_none_or(|live| live.session.number != number) {
            if matches!(news, News::Ended { .. }) {
                self.retiring.retain(|live| live.session.number != number);
            }
            return Ok(());
        }
        let Some(live) = &mut self.current else { return Ok(()) };
        match news {
            News::Welcomed { rtt, transport } => {
                live.is_welcomed = true;
                self.tunnels.iter().for_each(|tunnel| live.session.attach(tunnel));
                self.tell(ConnectorEvent::Connected { rtt, transport });
            }
            News::Attached { tunnel, url } => {
                live.attached.insert(tunnel);
                live.was_attached = true;
                self.backoff.reset();
                self.release_retiring();
                self.tell(ConnectorEvent::Attached { tunnel, url });
            }
            News::NotAttached { tunnel, refusal } => {
                self.tell(ConnectorEvent::NotAttached { tunnel, refusal: refusal.clone() });
                if refusal.retry {
                    self.attach_at = Some(Instant::now() + REATTACH_AFTER);
                } else {
                    self.give_up(tunnel, ConnectorError::Refused(refusal))?;
                }
            }
            News::Detached { tunnel, code, message } => {
                live.attached.remove(&tunnel);
                let event = ConnectorEvent::Detached { tunnel, code: code.clone(), message: message.clone() };
                self.tell(event);
                self.give_up(tunnel, ConnectorError::Detached { code, message })?;
            }
            News::GoAway { message } => self.on_go_away(message),
            News::Refused(refusal) => live.refusal = Some(refusal),
            News::Ended { why } => {
                let refusal = live.refusal.take();
                let was_lost = refusal.is_none();
                let lived = live.since.elapsed();
                self.current = None;
                if let Some(refusal) = refusal.filter(|refusal| !refusal.retry && refusal.code != "nothing-attached") {
                    return Err(ConnectorError::SessionRefused(refusal));
                }
                self.retry(match was_lost.then(|| self.shared.dial.lost(lived)).flatten() {
                    Some(done) => format!("{why}; {done}"),
                    None => why,
                });
            }
        }
        Ok(())
    }

    /// The tunnel is lost for good; so is the connector when it was the last one.
    fn give_up(&mut self, tunnel: TunnelId, error: ConnectorError) -> Result<(), ConnectorError> {
        self.tunnels.retain(|wanted| wanted.tunnel != tunnel);
        if self.tunnels.is_empty() { Err(error) } else { Ok(()) }
    }

    fn on_go_away(&mut self, message: String) {
        let Some(live) = self.current.take() else { return };
        self.attach_at = None;
        // The edge that just said so may still be listening: only a session that worked is worth a try at once.
        let after = if live.was_attached { Duration::ZERO } else { self.backoff.next(random()) };
        self.retiring.push(live);
        self.dial_at = Some(Instant::now() + after);
        self.tell(ConnectorEvent::GoingAway { message });
    }

    /// The tunnels are attached elsewhere: sessions that are going away end with their last stream.
    fn release_retiring(&mut self) {
        for live in self.retiring.iter_mut().filter(|live| !live.is_released) {
            live.is_released = true;
            let session = live.session.clone();
            self.tasks.spawn(async move {
                tokio::time::sleep(linger(&session)).await;
                session.streams.zero().await;
                session.flows_over(FLOWS_MOVE_TIME).await;
                session.mux.close("it went away and its streams are done");
            });
        }
    }

    /// Takes the tunnels back, lets their streams finish, and closes.
    async fn stop(mut self, mut news: mpsc::Receiver<(u64, News)>) {
        self.dialing = None;
        let lives: Vec<_> = self.current.take().into_iter().chain(self.retiring.drain(..)).collect();
        for live in &lives {
            for tunnel in &live.attached {
                live.session.mux.detach(*tunnel, "shutting-down", "the connector stops");
            }
        }
        let drained = async {
            for live in lives.iter().filter(|live| live.was_attached) {
                tokio::time::sleep(linger(&live.session)).await;
            }
            for live in &lives {
                live.session.streams.zero().await;
            }
        };
        let ignored = async { while news.recv().await.is_some() {} };
        let closed = async {
            if tokio::time::timeout(self.shared.config.drain, drained).await.is_err() {
                debug!("streams were still running when the time to stop was over");
            }
            for live in &lives {
                live.session.mux.close("the connector stops");
            }
            let ended = async { while self.tasks.join_next().await.is_some() {} };
            let _ = tokio::time::timeout(CLOSE_TIME, ended).await;
        };
        tokio::select! {
            () = closed => {}
            () = ignored => {}
        }
    }
}

/// How long a stream that the edge opened before it heard of the end may take to arrive.
fn linger(session: &ConnectorSession) -> Duration {
    session.mux.smoothed_rtt().map_or(MIN_LINGER, |rtt| (rtt * 4).max(MIN_LINGER))
}

fn random() -> u64 {
    // Without random numbers there is no jitter; the waits still grow.
    getrandom::u64().unwrap_or(0)
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

async fn optional<T>(future: &mut Option<BoxFuture<'static, T>>) -> T {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}
