//! The connector's end: keeps sessions with edges, and hands streams to the origin.
//!
//! [`run_connector`] runs a `Supervisor`, one loop over what can happen: an attempt succeeded or failed, a session has news, a
//! wait is over, it is time to stop. At which edges there are to be sessions is for [`sallyport_wire::edge_selector`] to say. Sessions
//! are tasks of their own, so that one which is going away finishes its streams while the next one is set up.

mod link;
mod session;
mod supervisor;

use std::{future::Future, io, sync::Arc, time::Duration};

use sallyport_model::{EdgeName, FlowRecord, HealthRecord, OriginAddr, RegionName, RequestRecord, TunnelId};
use sallyport_shards::Shards;
use sallyport_wire::{EdgePlace, Open, Refusal, SessionConfig, edge_selector::DEFAULT_REDUNDANCY};
use tokio::sync::mpsc;

pub use self::link::answer_link;
use self::supervisor::Supervisor;
use crate::{BoxFuture, BoxedCarrier, FlowHandler, IncomingStream};

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
    /// The address at which its origin is dialed, where edges are to know it.
    pub origin: Option<OriginAddr>,
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
    /// The name of the machine, which the edge's owner of the tunnel is shown.
    pub host: Option<String>,
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
    /// At how many edges, from 1 to [`sallyport_wire::edge_selector::MAX_REDUNDANCY`], where there are so many.
    pub redundancy: usize,
    /// The region that the origins are in; `None`: that of the edge to which the connector comes first.
    pub home: Option<RegionName>,
    /// Edges that are known before any has answered.
    pub edges: Vec<EdgePlace>,
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
            host: None,
            connector_id,
            max_legs: 512,
            ready_legs: sallyport_wire::demand::DEFAULT_READY_LEGS,
            session: SessionConfig::default(),
            tunnels,
            redundancy: DEFAULT_REDUNDANCY,
            home: None,
            edges: Vec::new(),
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

    /// The same way to another edge, for a session with that one; `None`: there is none.
    fn other(&self, _edge: &EdgePlace) -> Option<Arc<dyn Dial>> {
        None
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

/// What a connector has to tell. Where an event names an `edge`, that is absent when the edge is alone, or not known yet.
#[derive(Debug, Clone, PartialEq)]
pub enum ConnectorEvent {
    /// It dials an edge.
    Connecting {
        /// Which one.
        edge: Option<EdgeName>,
    },
    /// The edge answered.
    Connected {
        /// Which one.
        edge: Option<EdgeName>,
        /// The region that it is in.
        region: Option<RegionName>,
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
        /// By which edge.
        edge: Option<EdgeName>,
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
        /// Which one.
        edge: Option<EdgeName>,
        /// Why.
        message: String,
    },
    /// The edge is left for others that hold the tunnels.
    Left {
        /// Which one.
        edge: Option<EdgeName>,
    },
    /// Nothing takes what comes through the tunnels: datagrams that were sent on are refused.
    OriginMissing {
        /// Whose service it is.
        tunnel: TunnelId,
        /// What is not there, as a sentence without an end.
        reason: String,
    },
    /// The session with an edge is over, or none came about.
    Disconnected {
        /// Which one.
        edge: Option<EdgeName>,
        /// Why.
        reason: String,
        /// By how many other edges the tunnels are held.
        held_by: usize,
    },
    /// No edge holds the tunnels, and none is dialed now: one will be.
    Retrying {
        /// After how long.
        after: Duration,
    },
    /// An edge finds a service so from now on.
    Health(HealthRecord),
    /// The edge served a request, or refused it.
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
/// [`sallyport_wire::session::MAX_TUNNELS_PER_SESSION`] at a time.
///
/// # Errors
/// As [`run_connector`]; letting go of the last tunnel is no error.
pub async fn run_changing_connector(
    config: ConnectorConfig,
    dial: Arc<dyn Dial>,
    origin: Arc<dyn OriginHandler>,
    events: mpsc::Sender<ConnectorEvent>,
    changes: mpsc::Receiver<TunnelChange>,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), ConnectorError> {
    Supervisor::new(config, dial, origin, events).run(changes, shutdown).await
}

fn random() -> u64 {
    // Without random numbers there is no jitter; the waits still grow.
    getrandom::u64().unwrap_or(0)
}
