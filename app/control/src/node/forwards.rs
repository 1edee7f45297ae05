//! Forwards of ssh clients that edges hold.

use axum::{extract::State, response::Response};
use http::StatusCode;
use sallyport_api::{Acknowledgement, BootstrapRequest, ForwardRequest, ForwardTarget};
use sallyport_model::AccountId;

use super::join::EdgeCaller;
use crate::{
    problem::ApiError,
    request::extract::{Input, json},
    state::{
        App, Control,
        forwards::{ForwardRefusal, SshClient, SshTarget},
    },
};

fn refused(refusal: ForwardRefusal) -> ApiError {
    ApiError::new(StatusCode::CONFLICT, "forward-refused", refusal.message)
}

fn target(forward: ForwardTarget) -> SshTarget {
    let ForwardTarget { socket, tunnel, temporary, url, port } = forward;
    SshTarget { socket, tunnel, temporary, url, port }
}

/// The target of a forward. Control makes what the forward needs, for as long as the edge holds it.
pub(super) async fn open(
    State(app): State<App>,
    EdgeCaller(edge): EdgeCaller,
    input: Input<ForwardRequest>,
) -> Result<Response, ApiError> {
    let ForwardRequest { account, key, only, client, address, port } = input.value;
    let control = Control { app };
    let only = only.map(|only| only.parse().map_err(|error| ApiError::field("only", error))).transpose()?;
    let account: AccountId = match account {
        Some(account) => account,
        None => control.guest_account().await.map_err(refused)?,
    };
    let client = SshClient { account, key, only, address: client, holder: Some(*edge.id.as_bytes()) };
    let meant = control.ssh_forward_target(&client, &address, port).await.map_err(refused)?;
    let SshTarget { socket, tunnel, temporary, url, port } = meant;
    Ok(json(StatusCode::OK, &ForwardTarget { socket, tunnel, temporary, url, port }))
}

/// Ends a forward.
pub(super) async fn end(
    State(app): State<App>,
    EdgeCaller(_): EdgeCaller,
    input: Input<ForwardTarget>,
) -> Result<Response, ApiError> {
    Control { app }.ssh_forward_ended(&target(input.value)).await;
    Ok(json(StatusCode::OK, &Acknowledgement {}))
}

/// Ends all forwards that the edge had before its restart.
pub(super) async fn begin(
    State(app): State<App>,
    EdgeCaller(edge): EdgeCaller,
    _: Input<BootstrapRequest>,
) -> Result<Response, ApiError> {
    app.sweep_of_edge(edge.id).await?;
    Ok(json(StatusCode::OK, &Acknowledgement {}))
}
