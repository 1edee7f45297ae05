//! Egress: addresses that edges share by slices of ports.

use http::Method;
use sallyport_api::{CreateEgressAddress, CreateEgressSlice, EgressAddress, EgressSlice, MoveEgressSlice};

use crate::{ApiClient, ClientError, client::query_value};

impl ApiClient {
    /// The addresses that edges share.
    ///
    /// # Errors
    /// The API refuses.
    pub async fn egress_addresses(&self) -> Result<Vec<EgressAddress>, ClientError> {
        self.list("/v1/egress/addresses").await
    }

    /// Adds an address that edges share.
    ///
    /// # Errors
    /// The API refuses.
    pub async fn create_egress_address(&self, address: &CreateEgressAddress) -> Result<EgressAddress, ClientError> {
        self.send(Method::POST, "/v1/egress/addresses", address).await
    }

    /// Removes an address of which no edge has a slice.
    ///
    /// # Errors
    /// There is no such address, or an edge has a slice of it.
    pub async fn delete_egress_address(&self, address: &str) -> Result<(), ClientError> {
        self.delete(&format!("/v1/egress/addresses/{}", query_value(address))).await
    }

    /// The slices that edges have.
    ///
    /// # Errors
    /// The API refuses.
    pub async fn egress_slices(&self) -> Result<Vec<EgressSlice>, ClientError> {
        self.list("/v1/egress/slices").await
    }

    /// Gives an edge a slice.
    ///
    /// # Errors
    /// The API refuses.
    pub async fn create_egress_slice(&self, slice: &CreateEgressSlice) -> Result<EgressSlice, ClientError> {
        self.send(Method::POST, "/v1/egress/slices", slice).await
    }

    /// Moves a slice to another edge.
    ///
    /// # Errors
    /// The API refuses.
    pub async fn move_egress_slice(&self, id: &str, change: &MoveEgressSlice) -> Result<EgressSlice, ClientError> {
        self.send(Method::POST, &format!("/v1/egress/slices/{}/move", query_value(id)), change).await
    }

    /// Takes a slice from its edge, which is free once the flows of the edge have ended.
    ///
    /// # Errors
    /// The API refuses.
    pub async fn delete_egress_slice(
        &self,
        id: &str,
        within_seconds: Option<u32>,
        is_off: bool,
    ) -> Result<(), ClientError> {
        let within = within_seconds.map(|seconds| format!("&within_seconds={seconds}")).unwrap_or_default();
        self.delete(&format!("/v1/egress/slices/{}?is_off={is_off}{within}", query_value(id))).await
    }

    /// The geofeed of the egress addresses (RFC 8805).
    ///
    /// # Errors
    /// The API does not answer.
    pub async fn geofeed(&self) -> Result<String, ClientError> {
        self.text("/geofeed.csv").await
    }
}
