//! The state that all rooms above `origins` share.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use sallyport_bus::{Directory, Routes};
use sallyport_http::{host::label_under, page::Site};
use sallyport_model::SocketRoute;

use crate::{
    client::round_trips::ClientRoundTrips,
    config::EdgeConfig,
    lifecycle::{counts::Running, phase::Phases},
    metrics::Metrics,
    origins::pool::{PoolContext, Sockets},
    util::ids::{self, RequestIds},
};

/// Configuration, routes, origins, counts and phases of an edge.
pub(crate) struct EdgeState {
    /// The configuration.
    pub(crate) config: EdgeConfig,
    /// The sockets.
    pub(crate) routes: Routes,
    /// Which edges hold which tunnels.
    pub(crate) directory: Directory,
    /// The origins of each socket.
    pub(crate) sockets: Arc<Sockets>,
    /// The metrics.
    pub(crate) metrics: Metrics,
    /// The round trips of clients.
    pub(crate) clients: Arc<ClientRoundTrips>,
    /// Makes the ids of requests and flows.
    pub(crate) ids: RequestIds,
    /// Running work, for which a shutdown waits.
    pub(crate) running: Running,
    /// The phases of connections.
    pub(crate) phase: Phases,
    /// Whether the edge is shutting down.
    pub(crate) is_shutting_down: AtomicBool,
    /// Whether a drain is ordered. New clients are served all the same.
    pub(crate) drain_ordered: Arc<AtomicBool>,
}

impl EdgeState {
    /// The state of an edge that has just started.
    pub(crate) fn new(config: EdgeConfig, routes: Routes, directory: Directory) -> Arc<Self> {
        let sockets = Arc::new(Sockets::new(PoolContext::new(&config, routes.clone(), directory.clone())));
        Arc::new(Self {
            routes,
            directory,
            sockets,
            metrics: Metrics::new(),
            clients: ClientRoundTrips::new(config.trusted_proxies.clone()),
            ids: RequestIds::new(ids::random()),
            running: Running::default(),
            phase: Phases::new(),
            is_shutting_down: AtomicBool::new(false),
            drain_ordered: Arc::default(),
            config,
        })
    }

    /// The route to a host: to a socket's name under the domain, or to a domain of an organisation. `host` has no final
    /// dot.
    pub(crate) fn route_of_host(&self, host: &str) -> Option<Arc<SocketRoute>> {
        if let Some(label) = label_under(host, &self.config.domain) {
            return self.routes.by_name(&label);
        }
        if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return self.routes.by_domain(&host.to_ascii_lowercase());
        }
        self.routes.by_domain(host)
    }

    /// Name and look of the pages for visitors.
    pub(crate) fn site(&self) -> Arc<Site> {
        self.config.site.borrow().clone()
    }

    /// Whether a response should close its connection, so that the client's next request goes to another edge.
    pub(crate) fn sends_away(&self) -> bool {
        self.is_shutting_down.load(Ordering::Relaxed) || self.drain_ordered.load(Ordering::Relaxed)
    }
}
