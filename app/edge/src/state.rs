//! What every room above `origins` works with: configuration, routes, sockets, counts, and the phase that this edge is in.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use sallyport_bus::{Directory, Routes};
use sallyport_http::page::Site;

use crate::{
    config::EdgeConfig,
    lifecycle::{counts::Running, phase::Phases},
    metrics::Metrics,
    origins::pool::{PoolContext, Sockets},
    util::ids::{self, RequestIds},
};

/// The state of an edge that requests, flows and datagrams share.
pub(crate) struct EdgeState {
    /// What is set of the edge.
    pub(crate) config: EdgeConfig,
    /// The sockets that there are.
    pub(crate) routes: Routes,
    /// Which tunnels are where.
    pub(crate) directory: Directory,
    /// The origins of each socket.
    pub(crate) sockets: Arc<Sockets>,
    /// What is counted.
    pub(crate) metrics: Metrics,
    /// The ids of requests and flows.
    pub(crate) ids: RequestIds,
    /// What runs, for a shutdown that waits for it.
    pub(crate) running: Running,
    /// In which phase connections are.
    pub(crate) phase: Phases,
    /// The edge shuts down.
    pub(crate) draining: AtomicBool,
    /// The edge is to be emptied, or is empty; who comes is served.
    pub(crate) drain_ordered: Arc<AtomicBool>,
}

impl EdgeState {
    /// The state of an edge that has just begun.
    pub(crate) fn new(config: EdgeConfig, routes: Routes, directory: Directory) -> Arc<Self> {
        let sockets = Arc::new(Sockets::new(PoolContext::new(&config, routes.clone(), directory.clone())));
        Arc::new(Self {
            routes,
            directory,
            sockets,
            metrics: Metrics::new(),
            ids: RequestIds::new(ids::random()),
            running: Running::default(),
            phase: Phases::new(),
            draining: AtomicBool::new(false),
            drain_ordered: Arc::default(),
            config,
        })
    }

    /// Whose pages visitors see now.
    pub(crate) fn site(&self) -> Arc<Site> {
        self.config.site.borrow().clone()
    }

    /// Whether clients had better go elsewhere with their next request.
    pub(crate) fn sends_away(&self) -> bool {
        self.draining.load(Ordering::Relaxed) || self.drain_ordered.load(Ordering::Relaxed)
    }
}
