//! `/v1/ssh-keys`.

use axum::{
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use http::StatusCode;
use sallyport_api::{CreateSshKey, Page, PageQuery, SshKey};
use sallyport_model::{SHA1_REFUSED, Scope};
use uuid::Uuid;

use super::params::IdempotencyHeader;
use crate::{
    clock::date,
    problem::ApiError,
    request::{
        caller::Caller,
        extract::{Input, PageOf, json},
        once::Made,
    },
    state::App,
};

fn to_api(key: sallyport_store::SshKey) -> SshKey {
    let is_rsa = key.public_key.starts_with("ssh-rsa ");
    SshKey {
        note: is_rsa.then(|| SHA1_REFUSED.to_owned()),
        id: Uuid::from_bytes(key.id),
        name: key.name,
        public_key: key.public_key,
        fingerprint: key.fingerprint,
        created_at: date(key.created_at),
    }
}

/// The account's ssh keys, oldest first
#[utoipa::path(
    get, path = "/v1/ssh-keys", tag = "ssh keys", operation_id = "list_ssh_keys", params(PageQuery),
    responses(
        (status = 200, description = "One page.", body = Page<SshKey>),
    )
)]
pub(crate) async fn list(State(app): State<App>, caller: Caller, page: PageOf) -> Result<Response, ApiError> {
    caller.require(Scope::AccountRead)?;
    caller.require_own()?;
    let rows = app.store.ssh_keys(caller.who.id, page.after, page.rows()).await?;
    Ok(json(StatusCode::OK, &page.page(rows, to_api)))
}

/// Add an ssh key
///
/// From then on, ssh clients with the key log in as the account and serve its sockets, without any other software.
#[utoipa::path(
    post, path = "/v1/ssh-keys", tag = "ssh keys", operation_id = "create_ssh_key",
    params(IdempotencyHeader),
    request_body = CreateSshKey,
    responses(
        (status = 201, description = "The key. The edge of `up` knows the key already; edges on other machines do a \
             moment later.", body = SshKey),
        (status = 409, description = "`ssh-key-taken` or `limit-reached`"),
    )
)]
pub(crate) async fn create(
    State(app): State<App>,
    caller: Caller,
    input: Input<CreateSshKey>,
) -> Result<Response, ApiError> {
    caller.require(Scope::AccountWrite)?;
    caller.require_own()?;
    let CreateSshKey { name, public_key } = input.value;
    let make = async {
        let key = app.add_ssh_key(caller.who.id, &public_key, name).await?;
        Ok(Made { location: Some(format!("/v1/ssh-keys/{}", Uuid::from_bytes(key.id))), body: to_api(key) })
    };
    app.once(caller.who.id, input.keyed.as_ref(), None, make).await
}

/// Remove an ssh key
#[utoipa::path(
    delete, path = "/v1/ssh-keys/{id}", tag = "ssh keys", operation_id = "delete_ssh_key",
    params(("id" = Uuid, Path, description = "The key's id.")),
    responses(
        (status = 204, description = "The key is no longer good."),
    )
)]
pub(crate) async fn delete(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    caller.require(Scope::AccountWrite)?;
    caller.require_own()?;
    let id = id.parse().map_err(|_| ApiError::not_found("ssh key"))?;
    app.remove_ssh_key(caller.who.id, id).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
