//! The machine at the other end of a connection, and the edge by which a request came.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use http::request::Parts;
use sallyport_model::{ClientAddr, EdgeId};

use crate::state::App;

/// Who is at the other end of a connection between machines. Requests to [`Control::node_router`] carry it as an
/// extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodePeer {
    /// The edge whose certificate was shown, and verified, in the handshake.
    pub edge: Option<EdgeId>,
    /// Where the connection comes from.
    pub address: ClientAddr,
}

/// The edge by which a request came, where it came by one.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Via(Option<EdgeId>);

impl Via {
    /// The port at which that edge is reached, when it says so.
    pub(crate) fn port(self, app: &App) -> Option<u16> {
        let seen = app.fleet.edge(self.0?)?;
        seen.card.addresses.first().map(std::net::SocketAddr::port)
    }
}

impl FromRequestParts<App> for Via {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _app: &App) -> Result<Self, Infallible> {
        Ok(Self(parts.extensions.get::<NodePeer>().and_then(|peer| peer.edge)))
    }
}
