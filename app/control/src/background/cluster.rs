//! Heartbeats among the controls over one store, attempts that others counted, and sweeps of what gone holders left.

use std::{collections::HashSet, sync::Weak};

use sallyport_model::{EdgeId, TunnelId};
use sallyport_store::{HolderId, StoreError};

use crate::{
    cluster::{attempt_gossip::CountedAttempt, peers::BEAT_EVERY},
    problem::ApiError,
    state::{App, AppParts, forwards::SweptForwards},
};

impl App {
    /// Counts an attempt that another control has counted.
    pub(crate) fn record_remote(&self, word: &[u8]) {
        // A message that cannot be parsed is of another version.
        if let Ok(counted) = serde_json::from_slice::<CountedAttempt>(word) {
            let now = self.clock.now().monotonic;
            self.limits.record_remote(&counted, now);
            self.attempts.record_remote(&counted, now);
            self.device_limits.record_remote(&counted, now);
        }
    }

    /// Writes the heartbeat of this control, and reads those of the others. Returns whether a control is gone.
    pub(crate) async fn beat(&self) -> Result<bool, StoreError> {
        let addresses = self.edges.get().map(|edges| edges.bootstrap.controls.join(",")).unwrap_or_default();
        let stored = self.store.beat(self.config.id, &addresses, env!("CARGO_PKG_VERSION")).await?;
        let gone = self.peers.known().observe(stored, self.clock.now().monotonic);
        for (id, beat) in &gone {
            self.store.forget_control(*id, *beat).await?;
        }
        Ok(!gone.is_empty())
    }

    /// Removes the temporary sockets and tunnels of holders that are gone. The caller publishes the change.
    pub(crate) async fn sweep(&self) -> Result<SweptForwards, StoreError> {
        self.sweep_but(None).await
    }

    /// Removes the temporary sockets and tunnels that this edge held before its restart.
    pub(crate) async fn sweep_of_edge(&self, edge: EdgeId) -> Result<(), ApiError> {
        let swept = self.sweep_but(Some(*edge.as_bytes())).await?;
        self.publish_sweep(swept).await
    }

    async fn sweep_but(&self, gone: Option<HolderId>) -> Result<SweptForwards, StoreError> {
        if self.store.is_shared() {
            // A control that has just started writes its first heartbeat here, so that its sockets are not removed.
            self.beat().await?;
        }
        let edges = self.store.edges().await?;
        let edges: HashSet<HolderId> = edges.iter().map(|edge| *edge.id.as_bytes()).collect();
        let (now, is_stale) = (self.clock.now().monotonic, self.fleet.stale_since().is_some());
        let lives = |holder: HolderId, thing: [u8; 16]| {
            if Some(holder) == gone {
                return false;
            }
            if edges.contains(&holder) {
                let is_seen = is_stale || self.directory.get(TunnelId::from_bytes(thing)).is_some();
                return !self.temporary_forwards.is_lost(thing, is_seen, now);
            }
            self.store.is_shared() && self.peers.known().may_live(holder)
        };
        self.temporary_forwards.sweep(&self.store, lives).await
    }

    /// Like [`App::sweep`], and publishes the change.
    pub(crate) async fn sweep_and_publish(&self) -> Result<(), ApiError> {
        let swept = self.sweep().await?;
        self.publish_sweep(swept).await
    }

    async fn publish_sweep(&self, swept: SweptForwards) -> Result<(), ApiError> {
        let SweptForwards { gone, changed } = swept;
        if !gone.is_empty() || !changed.is_empty() {
            tracing::info!(
                sockets = gone.len(),
                tunnels = changed.len(),
                "temporary sockets and tunnels of gone ssh clients are removed"
            );
        }
        self.unpublish(&gone).await;
        for socket in changed {
            self.publish(socket).await?;
        }
        Ok(())
    }
}

/// Writes heartbeats for as long as this control lives.
pub(crate) async fn beat(app: Weak<AppParts>) {
    let mut is_failing = false;
    while let Some(app) = app.upgrade().map(App) {
        let done = match app.beat().await {
            Ok(true) => app.sweep_and_publish().await.map_err(|error| error.sentence().to_owned()),
            done => done.map(|_| ()).map_err(|error| error.to_string()),
        };
        match done {
            Ok(()) => is_failing = false,
            Err(error) if !is_failing => {
                is_failing = true;
                tracing::warn!(error, "the heartbeat of this control could not be written: trying again");
            }
            Err(_) => {}
        }
        drop(tokio::time::timeout(BEAT_EVERY, app.peers.changed.notified()).await);
    }
}
