//! Sockets and logins as edges have them: read from the store, and published to the edges.

use std::sync::Arc;

use sallyport_model::{AccountId, LoginSession, LoginSessionId, SocketId, SocketName, SocketRoute};

use super::App;
use crate::problem::ApiError;

/// How often reading a socket for the edges is tried.
const MAX_PUBLISH_TRIES: u32 = 3;

impl App {
    /// The login if it is valid, read from the store because another control may have begun or ended it.
    pub(crate) async fn session(&self, id: LoginSessionId) -> Result<Option<Arc<LoginSession>>, ApiError> {
        Ok(self.store.person_session(id, self.clock.now().unix_seconds).await?.map(Arc::new))
    }

    /// The socket as edges serve it, from the store.
    pub(crate) async fn route(&self, id: SocketId) -> Result<Option<Arc<SocketRoute>>, ApiError> {
        Ok(self.store.route(id).await?.map(|route| Arc::new(self.config.served(route))))
    }

    /// The socket with this name, as [`App::route`] gives it.
    pub(crate) async fn route_by_name(&self, name: &SocketName) -> Result<Option<Arc<SocketRoute>>, ApiError> {
        match self.store.socket_id_by_name(name).await? {
            Some(id) => self.route(id).await,
            None => Ok(None),
        }
    }

    /// Publishes the socket's present state in the store to edges.
    pub(crate) async fn publish(&self, id: SocketId) -> Result<(), ApiError> {
        let _turn = self.publishing.lock().await;
        let mut tries = 1;
        let route = loop {
            match self.store.route(id).await {
                Ok(route) => break route,
                Err(error) if tries == MAX_PUBLISH_TRIES => return Err(error.into()),
                Err(error) => tracing::warn!(socket = %id, %error, "cannot read a socket back, trying again"),
            }
            tries += 1;
        };
        match route {
            Some(route) => self.put(route),
            None => self.remove(id),
        }
        Ok(())
    }

    /// Publishes the organisation's sockets to edges, where they differ from what edges have.
    pub(crate) async fn publish_organisation(&self, organisation: AccountId) -> Result<(), ApiError> {
        let _turn = self.publishing.lock().await;
        for route in self.store.routes_of(organisation).await? {
            let route = self.config.served(route);
            if self.routes.get(route.id).is_none_or(|known| *known != route) {
                self.put(route);
            } else if self.store.is_shared() {
                // Another control may have published an older state meanwhile.
                self.routes.notify_again(route.id);
            }
        }
        Ok(())
    }

    /// Removes these sockets from the edges.
    pub(crate) async fn unpublish(&self, gone: &[SocketId]) {
        let _turn = self.publishing.lock().await;
        gone.iter().for_each(|id| self.remove(*id));
    }

    /// Publishes the socket and counts it; only while `publishing` is held.
    pub(crate) fn put(&self, route: SocketRoute) {
        if self.routes.get(route.id).is_none() {
            self.metrics.sockets.inc();
        }
        self.routes.put(self.config.served(route));
    }

    /// Removes the socket from the edges and from the count; only while `publishing` is held.
    pub(crate) fn remove(&self, id: SocketId) {
        if self.routes.get(id).is_some() {
            self.metrics.sockets.dec();
        }
        self.routes.remove(id);
    }
}
