//! Anycast: prefixes that edges announce by BGP, routers, and orders.

use http::Method;
use sallyport_api::{
    AnycastOrder, AnycastPeer, AnycastPrefix, AnycastPreview, AnycastRoutes, AnycastStatus, CreateAnycastOrder,
    CreateAnycastPeer, CreateAnycastPrefix,
};
use uuid::Uuid;

use crate::{ApiClient, ClientError, client::query_value};

impl ApiClient {
    /// The prefixes that edges announce.
    ///
    /// # Errors
    /// The API refuses.
    pub async fn anycast_prefixes(&self) -> Result<Vec<AnycastPrefix>, ClientError> {
        self.list("/v1/anycast/prefixes").await
    }

    /// Has edges announce a prefix.
    ///
    /// # Errors
    /// The API refuses.
    pub async fn create_anycast_prefix(&self, prefix: &CreateAnycastPrefix) -> Result<AnycastPrefix, ClientError> {
        self.send(Method::POST, "/v1/anycast/prefixes", prefix).await
    }

    /// Has edges no longer announce a prefix.
    ///
    /// # Errors
    /// There is no such prefix.
    pub async fn delete_anycast_prefix(&self, id: Uuid) -> Result<(), ClientError> {
        self.delete(&format!("/v1/anycast/prefixes/{id}")).await
    }

    /// The routers with which edges speak BGP.
    ///
    /// # Errors
    /// The API refuses.
    pub async fn anycast_peers(&self) -> Result<Vec<AnycastPeer>, ClientError> {
        self.list("/v1/anycast/peers").await
    }

    /// Has edges speak BGP with a router.
    ///
    /// # Errors
    /// The API refuses.
    pub async fn create_anycast_peer(&self, peer: &CreateAnycastPeer) -> Result<AnycastPeer, ClientError> {
        self.send(Method::POST, "/v1/anycast/peers", peer).await
    }

    /// Ends the sessions of edges with a router.
    ///
    /// # Errors
    /// There is no such router.
    pub async fn delete_anycast_peer(&self, id: Uuid) -> Result<(), ClientError> {
        self.delete(&format!("/v1/anycast/peers/{id}")).await
    }

    /// The orders that hold.
    ///
    /// # Errors
    /// The API refuses.
    pub async fn anycast_orders(&self) -> Result<Vec<AnycastOrder>, ClientError> {
        self.list("/v1/anycast/orders").await
    }

    /// Gives an order.
    ///
    /// # Errors
    /// The API refuses.
    pub async fn create_anycast_order(&self, order: &CreateAnycastOrder) -> Result<AnycastOrder, ClientError> {
        self.send(Method::POST, "/v1/anycast/orders", order).await
    }

    /// Takes an order back.
    ///
    /// # Errors
    /// There is no such order.
    pub async fn delete_anycast_order(&self, id: Uuid) -> Result<(), ClientError> {
        self.delete(&format!("/v1/anycast/orders/{id}")).await
    }

    /// How prefixes stand at edges.
    ///
    /// # Errors
    /// The API refuses.
    pub async fn anycast_status(&self) -> Result<AnycastStatus, ClientError> {
        self.get("/v1/anycast/status").await
    }

    /// What edges would change at their BIRD.
    ///
    /// # Errors
    /// The API refuses.
    pub async fn preview_anycast(&self) -> Result<AnycastPreview, ClientError> {
        self.get("/v1/anycast/preview").await
    }

    /// By which routes others see the prefixes, or one of them.
    ///
    /// # Errors
    /// The API refuses, or there is no such prefix.
    pub async fn anycast_routes(&self, prefix: Option<&str>) -> Result<AnycastRoutes, ClientError> {
        let query = prefix.map(|prefix| format!("?prefix={}", query_value(prefix))).unwrap_or_default();
        self.get(&format!("/v1/anycast/explain{query}")).await
    }
}
