//! `/node/v1`: requests of edges. Edges join, renew certificates, and ask about tunnels and forwards.
//!
//! May use: `service`, `request`, and what those may use.

mod forwards;
mod join;
pub(crate) mod relay;

use axum::{Router, routing::post};

use crate::{
    config::EdgesConfig,
    state::{App, Control},
};

impl Control {
    /// Takes edges from now on. Only the first call counts.
    pub fn take_edges(&self, config: EdgesConfig) {
        let _ = self.app.edges.set(config);
        self.app.peers.changed.notify_one();
    }
}

/// The paths of edges.
pub(crate) fn routes() -> Router<App> {
    Router::new()
        .route("/node/v1/join", post(join::join))
        .route("/node/v1/renew", post(join::renew))
        .route("/node/v1/world", post(join::show_bootstrap))
        .route("/node/v1/tunnel", post(join::check_tunnel))
        .route("/node/v1/ssh/begin", post(forwards::begin))
        .route("/node/v1/ssh/forward", post(forwards::open))
        .route("/node/v1/ssh/ended", post(forwards::end))
}
