//! Direct origins of sockets.

use http::Method;
use sallyport_api::{CreateDirectOrigin, DirectOrigin, UpdateDirectOrigin};
use sallyport_model::DirectOriginId;

use crate::{ApiClient, ClientError, SocketRef};

impl ApiClient {
    /// All direct origins of a socket.
    ///
    /// # Errors
    /// The account has no such socket.
    pub async fn direct_origins(&self, socket: &SocketRef) -> Result<Vec<DirectOrigin>, ClientError> {
        self.list(&format!("/v1/sockets/{}/origins", socket.segment())).await
    }

    /// Creates a direct origin.
    ///
    /// # Errors
    /// The account has no such socket, edges may not dial the address, or the socket has the origin already.
    pub async fn create_direct_origin(
        &self,
        socket: &SocketRef,
        origin: &CreateDirectOrigin,
    ) -> Result<DirectOrigin, ClientError> {
        self.send(Method::POST, &format!("/v1/sockets/{}/origins", socket.segment()), origin).await
    }

    /// Changes a direct origin.
    ///
    /// # Errors
    /// The account has no such socket or origin, or a value is invalid.
    pub async fn update_direct_origin(
        &self,
        socket: &SocketRef,
        origin: DirectOriginId,
        update: &UpdateDirectOrigin,
    ) -> Result<DirectOrigin, ClientError> {
        self.send(Method::PATCH, &format!("/v1/sockets/{}/origins/{origin}", socket.segment()), update).await
    }

    /// Deletes a direct origin.
    ///
    /// # Errors
    /// The account has no such socket or origin.
    pub async fn delete_direct_origin(&self, socket: &SocketRef, origin: DirectOriginId) -> Result<(), ClientError> {
        self.delete(&format!("/v1/sockets/{}/origins/{origin}", socket.segment())).await
    }
}
