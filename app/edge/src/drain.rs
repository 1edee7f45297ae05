//! The end of an edge, phase by phase.

use tokio::sync::watch;

/// Where the edge is between start and end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// It serves.
    Serving,
    /// It takes no new connections; each answer on those that stand says that it is the last.
    Lingering,
    /// Connectors are sent away, and idle connections are closed.
    Draining,
    /// Whatever still runs is cut off.
    Cut,
}

/// What a drain came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrainReport {
    /// How many connections and WebSockets ended by themselves.
    pub finished: usize,
    /// How many were cut off because the time was over.
    pub cut: usize,
}

/// Resolves when the edge is in this phase or a later one.
pub(crate) async fn reached(phase: &mut watch::Receiver<Phase>, wanted: Phase) {
    if phase.wait_for(|phase| *phase >= wanted).await.is_err() {
        // The edge is gone altogether; nobody is left to tell.
        std::future::pending::<()>().await;
    }
}

/// Resolves when whatever still runs is to be cut off.
pub(crate) async fn cut(phase: &mut watch::Receiver<Phase>) {
    reached(phase, Phase::Cut).await;
}
