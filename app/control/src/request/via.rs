//! The machine at the other end of a connection, and the edge by which a request came.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use http::request::Parts;
use sallyport_model::{ClientAddr, EdgeId};

use crate::state::App;

/// The other end of a connection between machines. Requests to [`crate::Control::node_router`] carry it as an
/// extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodePeer {
    /// The edge of the verified client certificate; `None` without a certificate.
    pub edge: Option<EdgeId>,
    /// The address of the other end.
    pub address: ClientAddr,
}

/// The edge by which a request came; `None` for a direct request.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Via(Option<EdgeId>);

impl Via {
    /// The port at which clients reach that edge, when its address is known.
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
