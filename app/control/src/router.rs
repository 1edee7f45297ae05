//! The routers of control: for clients, for browsers, and for edges.

use axum::{Router, body::Body};
use http::Request;
use tower_service::Service as _;

#[cfg(doc)]
use crate::request::via::NodePeer;
use crate::{
    api, desk, device, login, mysocket,
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

    /// Answers `https://desk.<domain>/...`: the dashboard, and the API for its page. Requests carry the client's address
    /// as those to [`Control::router`] do.
    pub fn desk_router(&self) -> Router {
        if self.app.config.has_desk { desk::router(&self.app, self.router()) } else { desk::closed(&self.app) }
    }

    /// Answers clients, by the host of the request: [`Control::login_router`], [`Control::desk_router`], and for every
    /// other host [`Control::router`].
    pub fn public_router(&self) -> Router {
        let (api, login, desk) = (self.router(), self.login_router(), self.desk_router());
        let domain = &self.app.config.domain;
        let (login_host, desk_host) = (format!("login.{domain}"), format!("desk.{domain}"));
        Router::new().fallback(move |request: Request<Body>| {
            let router = if relay::is_for(&request, &login_host) {
                &login
            } else if relay::is_for(&request, &desk_host) {
                &desk
            } else {
                &api
            };
            let mut router = router.clone();
            async move {
                let Ok(answer) = router.call(request).await;
                answer
            }
        })
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

    /// Answers clients of edges as [`Control::public_router`] does, and nothing else. Requests carry a [`NodePeer`] of a
    /// known edge as an extension, and name their client in a header.
    pub fn clients_router(&self) -> Router {
        let (app, public) = (self.app.clone(), self.public_router());
        Router::new().fallback(move |request: Request<Body>| {
            let (app, mut public) = (app.clone(), public.clone());
            async move {
                let (path, request_id) = (request.uri().path().to_owned(), middleware::request_id(request.headers()));
                match relay::accept(&app, request).await {
                    Ok(request) => {
                        let Ok(answer) = public.call(request).await;
                        answer
                    }
                    Err(error) => error.render(&path, &request_id),
                }
            }
        })
    }
}
