//! The drain of an edge that keeps running, for an upgrade or for work on its machine.
//!
//! From the order on, `/readyz` reports "not ready", and the edge's card sends connectors elsewhere. Each response
//! closes its connection. The edge still serves new clients. At the end of the drain, the edge cuts off what still
//! runs, as at a shutdown.

use std::sync::atomic::Ordering;

use sallyport_net::Shutdown;
use tokio::time::Instant;

use super::Edge;

use crate::lifecycle::phase::{MAX_LINGER, Phase};

impl Edge {
    /// Follows drain orders until the shutdown.
    pub(crate) async fn follow_drain_order(&self, shutdown: &Shutdown) {
        let mut orders = self.state.config.drain_until.clone();
        let mut until = *orders.borrow_and_update();
        self.begin_or_end(until);
        loop {
            tokio::select! {
                () = shutdown.wait() => return,
                Ok(()) = orders.changed() => {
                    until = *orders.borrow_and_update();
                    self.begin_or_end(until);
                }
                () = over(until) => {
                    until = None;
                    self.cut_what_runs().await;
                }
            }
        }
    }

    fn begin_or_end(&self, until: Option<Instant>) {
        let was_draining = self.state.drain_ordered.swap(until.is_some(), Ordering::Relaxed);
        match (was_draining, until) {
            (false, Some(until)) => {
                let within = until.saturating_duration_since(Instant::now());
                tracing::info!(
                    ?within,
                    running = self.state.running.count(),
                    "this edge drains: clients and connectors are sent elsewhere"
                );
                self.state.phase.turn(Phase::Lingering);
            }
            (true, None) => tracing::info!("this edge serves again"),
            _ => {}
        }
    }

    async fn cut_what_runs(&self) {
        let running = self.state.running.count();
        self.state.phase.turn(Phase::Closing);
        let _ = tokio::time::timeout(MAX_LINGER, self.state.running.none_left()).await;
        self.state.phase.turned(Phase::Cut);
        tracing::info!(running, "the drain has ended: running work was cut off, and this edge is empty");
    }
}

async fn over(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until).await,
        None => std::future::pending().await,
    }
}
