//! `/v1/organisations` and `/v1/organisation`.

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use http::StatusCode;
use sallyport_api::{Organisation, Page, UpdateOrganisation};
use sallyport_model::{AccountId, Role, Scope};
use sallyport_store::{MemberChangeOutcome, Membership};

use crate::{
    audit,
    problem::ApiError,
    request::{
        caller::Caller,
        extract::{Input, json},
    },
    state::App,
};

fn to_api(membership: Membership, account: AccountId) -> Organisation {
    let Membership { organisation, name, role } = membership;
    Organisation { id: organisation, name, role, own: organisation == account }
}

/// List the organisations of the account, its own first
///
/// The response is one page. An API token sees only its own organisation.
#[utoipa::path(
    get, path = "/v1/organisations", tag = "organisations", operation_id = "list_organisations",
    responses(
        (status = 200, description = "All organisations of the account.", body = Page<Organisation>),
    )
)]
pub(crate) async fn list(State(app): State<App>, caller: Caller) -> Result<Response, ApiError> {
    caller.require(Scope::AccountRead)?;
    let account = caller.who.id;
    let all = app.store.memberships(account).await?.into_iter();
    let seen = all.filter(|one| !caller.is_bound || one.organisation == caller.organisation);
    Ok(json(StatusCode::OK, &Page { items: seen.map(|one| to_api(one, account)).collect(), next: None }))
}

/// Show the organisation of the request
#[utoipa::path(
    get, path = "/v1/organisation", tag = "organisations", operation_id = "get_organisation",
    responses(
        (status = 200, description = "The organisation.", body = Organisation),
    )
)]
pub(crate) async fn get(State(app): State<App>, caller: Caller) -> Result<Response, ApiError> {
    caller.require(Scope::OrganisationRead)?;
    answer(&app, &caller).await
}

/// Give the organisation another name
#[utoipa::path(
    patch, path = "/v1/organisation", tag = "organisations", operation_id = "update_organisation",
    request_body = UpdateOrganisation,
    responses(
        (status = 200, description = "The organisation after the change.", body = Organisation),
    )
)]
pub(crate) async fn update(
    State(app): State<App>,
    caller: Caller,
    input: Input<UpdateOrganisation>,
) -> Result<Response, ApiError> {
    caller.require(Scope::OrganisationWrite)?;
    app.store.rename_organisation(caller.organisation, &input.value.name).await?;
    audit::set_target(caller.organisation);
    answer(&app, &caller).await
}

/// Leave the organisation
///
/// The account leaves at once, and its API tokens for the organisation end. What the account made there stays. An
/// account cannot leave the organisation that was made with it.
#[utoipa::path(
    post, path = "/v1/organisation/leave", tag = "organisations", operation_id = "leave_organisation",
    responses(
        (status = 204, description = "The account is no longer a member."),
        (status = 409, description = "`founder`"),
    )
)]
pub(crate) async fn leave(State(app): State<App>, caller: Caller) -> Result<Response, ApiError> {
    caller.require(Scope::AccountWrite)?;
    audit::set_target(&caller.who.email);
    // Every member may leave, whatever the role.
    match app.store.remove_member(caller.organisation, caller.who.id, Role::Owner).await? {
        MemberChangeOutcome::Done => {
            tracing::info!(organisation = %caller.organisation, account = %caller.who.id, "a member left");
            Ok(StatusCode::NO_CONTENT.into_response())
        }
        MemberChangeOutcome::Founder => {
            let detail = "this organisation was made with your account and ends with it: it cannot be left";
            Err(ApiError::new(StatusCode::CONFLICT, "founder", detail))
        }
        MemberChangeOutcome::NotFound | MemberChangeOutcome::NotAllowed => Err(ApiError::not_found("organisation")),
    }
}

async fn answer(app: &App, caller: &Caller) -> Result<Response, ApiError> {
    let account = caller.who.id;
    let membership = app.store.membership(caller.organisation, account).await?;
    let membership = membership.ok_or_else(|| ApiError::not_found("organisation"))?;
    Ok(json(StatusCode::OK, &to_api(membership, account)))
}
