//! The connector's end: keeps sessions with edges, and hands their streams to an [`OriginHandler`].
//!
//! May use `flows` and every file of this crate but the rooms `edge` and `carrier`.
//!
//! [`run_connector`] runs a `Supervisor`, one loop over attempts, events of sessions, timers and the shutdown.
//! [`sallyport_wire::edge_selector`] decides with which edges to have sessions. Each session is a task, so that a
//! session which is going away finishes its streams while the next one is set up.

mod link;
mod session;
mod supervisor;

use std::{future::Future, io, sync::Arc, time::Duration};

use sallyport_model::{
    EdgeName, FlowRecord, HealthRecord, LinkReport, OriginAddr, RegionName, RequestRecord, TunnelId,
};
use sallyport_shards::Shards;
use sallyport_wire::{EdgePlace, Open, Refusal, SessionConfig, edge_selector::DEFAULT_REDUNDANCY};
use tokio::sync::mpsc;

pub use self::link::answer_link;
use self::supervisor::Supervisor;
use crate::{BoxFuture, BoxedCarrier, FlowHandler, IncomingStream};

/// The time between two looks at the links, by default.
const LINK_REPORT_INTERVAL: Duration = Duration::from_secs(5);
/// The transport that the agent string does not mention.
pub(crate) const DEFAULT_TRANSPORT: &str = "tcp";

/// A tunnel to attach, with its credential.
#[derive(Clone)]
pub struct TunnelCredential {
    /// The tunnel.
    pub tunnel: TunnelId,
    /// The secret that authorises the attachment.
    pub credential: String,
    /// Whether the edge reports every request.
    pub request_log: bool,
    /// The origin's address, as shown by the edges; `None` hides the address.
    pub origin: Option<OriginAddr>,
    /// Whether the service spreads streams over several endpoints. Edges then open a stream for each request.
    pub spreads: bool,
}

impl std::fmt::Debug for TunnelCredential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TunnelCredential").field("tunnel", &self.tunnel).finish_non_exhaustive()
    }
}

/// A change of the tunnels of a running connector; see [`run_changing_connector`].
#[derive(Debug, Clone)]
pub enum TunnelChange {
    /// Attach this tunnel, or use this credential from its next attachment on.
    Hold(TunnelCredential),
    /// Detach this tunnel; its running streams continue.
    LetGo(TunnelId),
}

/// Configuration of a connector.
#[derive(Debug, Clone)]
pub struct ConnectorConfig {
    /// Name and version of the program, shown by the edge.
    pub agent: String,
    /// The name of the machine, which the edge's owner of the tunnel is shown.
    pub host: Option<String>,
    /// Random bytes that identify this run.
    pub connector_id: [u8; 16],
    /// The most legs of a session; 0 multiplexes all streams on the control connection.
    pub max_legs: usize,
    /// Number of legs opened right after the first tunnel is attached.
    pub ready_legs: usize,
    /// Session parameters until the edge sends its own.
    pub session: SessionConfig,
    /// The tunnels to attach.
    pub tunnels: Vec<TunnelCredential>,
    /// Number of edges to attach to, from 1 to [`sallyport_wire::edge_selector::MAX_REDUNDANCY`].
    pub redundancy: usize,
    /// Region of the origins; `None` takes the region of the first edge that answers.
    pub home: Option<RegionName>,
    /// Edges known from the configuration, before any edge has answered.
    pub edges: Vec<EdgePlace>,
    /// Time that streams may run on after the shutdown was requested.
    pub drain: Duration,
    /// The time between two looks at the links. The edge learns of changes.
    pub link_report_interval: Duration,
    /// Shards that serve the legs and their streams.
    pub shards: Shards,
}

impl ConnectorConfig {
    /// The default configuration with these tunnels.
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
            link_report_interval: LINK_REPORT_INTERVAL,
            shards: Shards::default(),
        }
    }
}

/// Opens connections to an edge: TLS with [`sallyport_wire::ALPN`], or another carrier.
pub trait Dial: Send + Sync + 'static {
    /// Opens a connection for a leg, and for control unless [`Dial::dial_control`] is overridden.
    fn dial(&self) -> BoxFuture<'static, io::Result<BoxedCarrier>>;

    /// Opens a connection for control. The kernel should hold little unsent data of the connection
    /// ([`crate::CONTROL_NOTSENT_BYTES`]).
    fn dial_control(&self) -> BoxFuture<'static, io::Result<BoxedCarrier>> {
        self.dial()
    }

    /// Opens a connection for datagrams of the current session; by default like one for control.
    fn dial_datagrams(&self) -> BoxFuture<'static, io::Result<BoxedCarrier>> {
        self.dial_control()
    }

    /// The dialer of another edge; `None` if that edge cannot be dialed.
    fn other(&self, _edge: &EdgePlace) -> Option<Arc<dyn Dial>> {
        None
    }

    /// Transport of the last control connection, as a word.
    fn transport(&self) -> &'static str {
        DEFAULT_TRANSPORT
    }

    /// The links that carry the connections to the edge, as they are now; none if they are not known.
    fn links(&self) -> BoxFuture<'static, Vec<LinkReport>> {
        Box::pin(std::future::ready(Vec::new()))
    }

    /// Handles the loss of a session `after` its connection was established, when the edge neither refused nor ended
    /// the session. Returns what is done about the loss as the end of a sentence, if anything.
    fn lost(&self, _after: Duration) -> Option<String> {
        None
    }
}

/// Serves the streams of the tunnels.
pub trait OriginHandler: Send + Sync + 'static {
    /// Serves one stream. Runs in a task of its own.
    fn serve(&self, open: Open, stream: IncomingStream) -> BoxFuture<'static, ()>;

    /// Serves one stream of the edge with this name, `None` if it has told none.
    fn serve_from(&self, _edge: Option<&EdgeName>, open: Open, stream: IncomingStream) -> BoxFuture<'static, ()> {
        self.serve(open, stream)
    }

    /// The handler of flows of datagrams. `None`: the connector declares no support, and the edge refuses tunnels that
    /// need flows.
    fn flows(&self) -> Option<Arc<dyn FlowHandler>> {
        None
    }
}

/// An event of a connector. A field `edge` is `None` if the edge is the only one, or not known yet.
#[derive(Debug, Clone, PartialEq)]
pub enum ConnectorEvent {
    /// An edge is being dialed.
    Connecting {
        /// The edge.
        edge: Option<EdgeName>,
    },
    /// The edge answered.
    Connected {
        /// The edge.
        edge: Option<EdgeName>,
        /// The edge's region.
        region: Option<RegionName>,
        /// Time from the first message to the answer.
        rtt: Duration,
        /// Transport of the session: see [`Dial::transport`].
        transport: &'static str,
    },
    /// A tunnel is attached.
    Attached {
        /// The tunnel.
        tunnel: TunnelId,
        /// Public URL of the tunnel.
        url: String,
        /// The edge that attached the tunnel.
        edge: Option<EdgeName>,
    },
    /// A tunnel was refused.
    NotAttached {
        /// The tunnel.
        tunnel: TunnelId,
        /// The reason, and whether the connector tries again.
        refusal: Refusal,
    },
    /// The edge detached a tunnel.
    Detached {
        /// The tunnel.
        tunnel: TunnelId,
        /// The reason as a word: "replaced", "deleted" ...
        code: String,
        /// The reason as a sentence.
        message: String,
    },
    /// The edge is stopping; running streams finish while the next session is set up.
    GoingAway {
        /// The edge.
        edge: Option<EdgeName>,
        /// The reason.
        message: String,
    },
    /// The session is given up because other edges hold the tunnels.
    Left {
        /// The edge.
        edge: Option<EdgeName>,
    },
    /// The origin does not accept datagrams: it refused forwarded ones.
    OriginMissing {
        /// The tunnel of the origin.
        tunnel: TunnelId,
        /// The reason, as a sentence without a full stop.
        reason: String,
    },
    /// The session with an edge ended, or could not be set up.
    Disconnected {
        /// The edge.
        edge: Option<EdgeName>,
        /// The reason.
        reason: String,
        /// Number of other edges that hold the tunnels.
        held_by: usize,
    },
    /// No edge holds the tunnels; an edge will be dialed.
    Retrying {
        /// Time until the attempt.
        after: Duration,
    },
    /// A health check changed the state of a service at an edge.
    Health(HealthRecord),
    /// An edge served or refused a request.
    Request(RequestRecord),
    /// A TCP or TLS connection or a UDP flow ended at the edge.
    Flow(FlowRecord),
}

/// Why a connector stopped by itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectorError {
    /// The edge refused the last tunnel for good.
    #[error("the edge refused the tunnel: {0}")]
    Refused(Refusal),
    /// The edge refused the session for good.
    #[error("the edge refused the connection: {0}")]
    SessionRefused(Refusal),
    /// The edge detached the last tunnel.
    #[error("the edge ended the tunnel: {message} ({code})")]
    Detached {
        /// The reason as a word: "replaced", "deleted" ...
        code: String,
        /// The reason as a sentence.
        message: String,
    },
}

/// Holds the tunnels until `shutdown` completes, and reconnects without end. On shutdown the tunnels are detached, and
/// running streams have `config.drain` to finish. Needs a tokio runtime.
///
/// The caller should read `events` and give the channel room for some dozens. Events that find no room are dropped,
/// requests first.
///
/// # Errors
/// No tunnel is left to hold: see [`ConnectorError`].
pub async fn run_connector(
    config: ConnectorConfig,
    dial: Arc<dyn Dial>,
    origin: Arc<dyn OriginHandler>,
    events: mpsc::Sender<ConnectorEvent>,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), ConnectorError> {
    run_changing_connector(config, dial, origin, events, mpsc::channel(1).1, shutdown).await
}

/// Like [`run_connector`], with tunnels that change at run time. A session has at most
/// [`sallyport_wire::session::MAX_TUNNELS_PER_SESSION`] tunnels at a time.
///
/// # Errors
/// As [`run_connector`]; detaching the last tunnel is no error.
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
