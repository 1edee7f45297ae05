//! Announces prefixes by BIRD while the edge serves: checks itself, adds service addresses, and asks for permits.
//!
//! May use `state`, `util`.

mod agent;
mod checks;
mod flows;
mod metrics;
mod report;

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use sallyport_anycast::{
    bird::RpkiServer,
    health::{Cause, Timing},
    model::AllowList,
};
use sallyport_api::{AnycastEdge, AnycastEdgePreview, AnycastRoute};
use sallyport_bus::{AnycastAnswer, AnycastAsk, AnycastPermits, AnycastRouteList, ServedAnycast};
use sallyport_identity::Sealer;
use sallyport_model::{EdgeName, RegionName};
use sallyport_net::Shutdown;
use tokio::{sync::watch, time::Instant};

pub use self::flows::{FlowSettings, SiteEdges};
use self::{agent::Agent, metrics::AnycastMetrics};
use crate::state::EdgeState;

/// The names of the edges that are there now.
pub type LiveEdges = Arc<dyn Fn() -> BTreeSet<EdgeName> + Send + Sync>;
/// What other machines do for this edge, and whether they do it now.
pub type SharedChecks = Arc<dyn Fn() -> Vec<(Cause, bool)> + Send + Sync>;

/// How an edge announces prefixes.
#[derive(Clone)]
pub struct AnycastSettings {
    /// The name of the edge.
    pub edge: EdgeName,
    /// Its region.
    pub region: Option<RegionName>,
    /// The number by which neighbours tell it from others.
    pub router_id: Ipv4Addr,
    /// The control socket of BIRD.
    pub bird: PathBuf,
    /// The file that the edge writes, and that BIRD includes.
    pub file: PathBuf,
    /// The prefixes that may be announced.
    pub allow: AllowList,
    /// The interface that gets the service addresses.
    pub interface: String,
    /// The servers of RPKI.
    pub rpki: Vec<RpkiServer>,
    /// What is to be announced.
    pub served: ServedAnycast,
    /// Opens the passwords of sessions.
    pub sealer: Arc<Sealer>,
    /// The permits for withdrawals.
    pub permits: AnycastPermits,
    /// The edges that are there.
    pub live: LiveEdges,
    /// What other machines do.
    pub shared: SharedChecks,
    /// The file with the addresses that the edge has added.
    pub kept: PathBuf,
    /// How long a drain takes.
    pub timing: Timing,
    /// How the edge shares flows with other edges of its site; `None`: it does not.
    pub flows: Option<FlowSettings>,
}

impl std::fmt::Debug for AnycastSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AnycastSettings").field("bird", &self.bird).field("file", &self.file).finish_non_exhaustive()
    }
}

/// What the edge knows of its announcements, for others.
#[derive(Debug, Default)]
struct Board {
    status: Option<AnycastEdge>,
    preview: Option<AnycastEdgePreview>,
    routes: Vec<AnycastRoute>,
    /// Lines for `/healthz`, which is public.
    notes: Vec<&'static str>,
}

/// The announcements of an edge.
pub(crate) struct Anycast {
    settings: AnycastSettings,
    state: Arc<EdgeState>,
    board: Arc<Mutex<Board>>,
    metrics: Arc<AnycastMetrics>,
    /// Until when what is announced is to be withdrawn; `None`: the edge goes on.
    ends: watch::Sender<Option<Instant>>,
    /// Whether nothing is announced any more.
    ended: watch::Sender<bool>,
    /// The service addresses of what is announced.
    served: watch::Sender<Vec<IpAddr>>,
}

impl Anycast {
    pub(crate) fn new(state: &Arc<EdgeState>, settings: AnycastSettings) -> Arc<Self> {
        Arc::new(Self {
            settings,
            state: state.clone(),
            board: Arc::default(),
            metrics: Arc::default(),
            ends: watch::Sender::new(None),
            ended: watch::Sender::new(false),
            served: watch::Sender::new(Vec::new()),
        })
    }

    /// Announces until the shutdown. A process that is replaced leaves everything as it is.
    pub(crate) async fn run(&self, listens: SocketAddr, shutdown: &Shutdown) {
        let mut agent = Agent::new(self, listens);
        let share_flows = async {
            match &self.settings.flows {
                Some(flows) => flows::follow(flows, self.served.subscribe(), &self.metrics).await,
                None => std::future::pending().await,
            }
        };
        let has_withdrawn = tokio::select! {
            () = agent.run() => true,
            () = share_flows => false,
            () = shutdown.wait() => false,
        };
        if has_withdrawn && self.settings.flows.is_some() {
            flows::remove().await;
        }
        self.ended.send_replace(true);
    }

    /// Withdraws everything within this time: neighbours prefer other edges first, as long as work runs.
    pub(crate) async fn withdraw(&self, within: Duration) {
        let mut ended = self.ended.subscribe();
        self.ends.send_replace(Some(Instant::now() + within));
        if tokio::time::timeout(within, ended.wait_for(|ended| *ended)).await.is_err() {
            tracing::warn!("announcements could not be withdrawn in time");
        }
    }

    /// The service addresses of what is announced now.
    pub(crate) fn served(&self) -> watch::Receiver<Vec<IpAddr>> {
        self.served.subscribe()
    }

    /// Answers a question of control.
    pub(crate) fn answer(&self, ask: &AnycastAsk) -> AnycastAnswer {
        let board = self.board.lock();
        match ask {
            AnycastAsk::Status => match &board.status {
                Some(status) => AnycastAnswer::Status(Box::new(status.clone())),
                None => AnycastAnswer::Off,
            },
            AnycastAsk::Preview => match &board.preview {
                Some(preview) => AnycastAnswer::Preview(Box::new(preview.clone())),
                None => AnycastAnswer::Off,
            },
            AnycastAsk::Routes => {
                AnycastAnswer::Routes(AnycastRouteList { routes: board.routes.clone(), has_more: false })
            }
        }
    }

    /// Lines of `/healthz`.
    pub(crate) fn notes(&self) -> String {
        self.board.lock().notes.iter().map(|note| format!("anycast: {note}\n")).collect()
    }

    pub(crate) fn register_metrics(&self, registry: &mut Registry) {
        self.metrics.register(registry);
    }
}
