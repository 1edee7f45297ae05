//! The routers of control: for clients, for browsers, and for edges.

use axum::{Router, body::Body};
use http::Request;
use tower_service::Service as _;

#[cfg(doc)]
use crate::request::via::NodePeer;
use crate::{
    api, device, login, mysocket,
    node::{self, relay},
    request::middleware,
    state::Control,
};

impl Control {
    /// Answers `/v1/...`, `/openapi.json` and the paths of the original clients. Requests carry the client's address as
    /// an extension of type [`sallyport_model::ClientAddr`].
    pub fn router(&self) -> Router {
        api::routes()
            .merge(device::routes())
            .merge(mysocket::routes())
            .fallback(middleware::no_such_path)
            .layer(axum::middleware::from_fn_with_state(self.app.clone(), middleware::finish))
            .with_state(self.app.clone())
    }

    /// Answers `https://login.<domain>/...`, where people log in with a browser. Requests carry the client's address as
    /// those to [`Control::router`] do.
    pub fn login_router(&self) -> Router {
        login::router(&self.app, device::pages())
    }

    /// Answers edges. Requests carry a [`NodePeer`] as an extension.
    ///
    /// Edges of former versions pass requests of their clients on here, too, and name the client in a header. Such a
    /// request goes to [`Control::clients_router`], whatever its path.
    pub fn node_router(&self) -> Router {
        let clients = self.clients_router();
        let own = node::routes()
            .layer(axum::middleware::from_fn_with_state(self.app.clone(), middleware::finish))
            .with_state(self.app.clone());
        let own = own.fallback_service(clients.clone());
        Router::new().fallback(move |request: Request<Body>| {
            let mut router = if request.headers().contains_key(relay::CLIENT) { clients.clone() } else { own.clone() };
            async move { router.call(request).await }
        })
    }

    /// Answers clients of edges as [`Control::router`] and [`Control::login_router`] do, and nothing else. Requests
    /// carry a [`NodePeer`] of a known edge as an extension, and name their client in a header.
    pub fn clients_router(&self) -> Router {
        let (api, login) = (self.router(), self.login_router());
        let login_host = format!("login.{}", self.app.config.domain);
        let app = self.app.clone();
        Router::new().fallback(move |request: Request<Body>| {
            let (app, login_host) = (app.clone(), login_host.clone());
            let (api, login) = (api.clone(), login.clone());
            async move {
                let (path, request_id) = (request.uri().path().to_owned(), middleware::request_id(request.headers()));
                match relay::accept(&app, request).await {
                    Ok(request) => {
                        let mut router = if relay::is_for(&request, &login_host) { login } else { api };
                        let Ok(answer) = router.call(request).await;
                        answer
                    }
                    Err(error) => error.render(&path, &request_id),
                }
            }
        })
    }
}
