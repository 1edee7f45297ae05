//! `/v1/persons`.

use axum::{
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use http::StatusCode;
use sallyport_api::{
    CreatePerson, InvitedPerson, LocalPerson, Page, PageQuery, PersonState, ResetPerson, UpdatePerson,
};
use sallyport_model::{AccountId, PersonEmail, PersonId, Role, Scope};

use super::params::{IdempotencyHeader, PersonPath};
use crate::{
    clock::date,
    problem::ApiError,
    request::{
        caller::Caller,
        extract::{Input, OptionalInput, PageOf, json},
        once::{Made, ShownSecret},
    },
    service::CreatedLink,
    state::App,
};

fn to_api(app: &App, person: sallyport_store::LocalPerson) -> LocalPerson {
    let now = app.clock.now();
    let locked_for = app.attempts.locked_for(person.organisation, person.email.as_str(), now.monotonic);
    let state = match (person.disabled, person.may_log_in()) {
        (true, _) => PersonState::Disabled,
        (false, true) => PersonState::Active,
        (false, false) => PersonState::Invited,
    };
    LocalPerson {
        id: person.id,
        email: person.email,
        name: person.name,
        groups: person.groups,
        state,
        verified_at: person.verified_at.map(date),
        totp: person.has_totp,
        recovery_codes: person.recovery_codes,
        locked_until: locked_for.map(|wait| date(now.unix_seconds.saturating_add_unsigned(wait.as_secs() + 1))),
        last_login_at: person.last_login_at.map(date),
        created_at: date(person.created_at),
    }
}

fn invited(app: &App, person: sallyport_store::LocalPerson, made: CreatedLink) -> InvitedPerson {
    InvitedPerson {
        person: to_api(app, person),
        sent: made.sent,
        problem: made.problem,
        link: (!made.sent).then_some(made.link),
        expires_at: date(made.expires_at),
    }
}

/// List the persons of the account's provider of kind `local`, oldest first
///
/// Only admins and owners may do so.
#[utoipa::path(
    get, path = "/v1/persons", tag = "persons", operation_id = "list_persons", params(PageQuery),
    responses(
        (status = 200, description = "One page.", body = Page<LocalPerson>),
    )
)]
pub(crate) async fn list(State(app): State<App>, caller: Caller, page: PageOf) -> Result<Response, ApiError> {
    caller.require(Scope::IdentityRead)?;
    caller.require_role(Role::Admin)?;
    let rows = app.store.persons(caller.organisation, page.after, page.rows()).await?;
    Ok(json(StatusCode::OK, &page.page(rows, |person| to_api(&app, person))))
}

/// Add a person
///
/// The person gets a link to set a password, by the hook of the provider of kind `local`. Without a hook, or when the
/// hook does not accept the link, the response has the link, once.
#[utoipa::path(
    post, path = "/v1/persons", tag = "persons", operation_id = "create_person",
    params(IdempotencyHeader),
    request_body = CreatePerson,
    responses(
        (status = 201, description = "The person, and how the link reaches the person.", body = InvitedPerson),
        (status = 409, description = "`person-taken`, `no-local-provider`, `limit-reached` or `secret-already-shown`"),
    )
)]
pub(crate) async fn create(
    State(app): State<App>,
    caller: Caller,
    input: Input<CreatePerson>,
) -> Result<Response, ApiError> {
    caller.require(Scope::IdentityWrite)?;
    let make = async {
        let (person, made) = app.create_person(caller.organisation, input.value).await?;
        Ok(Made { location: Some(format!("/v1/persons/{}", person.id)), body: invited(&app, person, made) })
    };
    let secret = ShownSecret { what: "person", way_out: "ask for a new link by the person's reset" };
    app.once(caller.organisation, input.keyed.as_ref(), Some(secret), make).await
}

/// Show a person
///
/// Only admins and owners may do so.
#[utoipa::path(
    get, path = "/v1/persons/{id}", tag = "persons", operation_id = "get_person",
    params(PersonPath),
    responses(
        (status = 200, description = "The person.", body = LocalPerson),
    )
)]
pub(crate) async fn get(State(app): State<App>, caller: Caller, Path(id): Path<String>) -> Result<Response, ApiError> {
    caller.require(Scope::IdentityRead)?;
    caller.require_role(Role::Admin)?;
    let person = find(&app, caller.organisation, &id).await?;
    Ok(json(StatusCode::OK, &to_api(&app, person)))
}

/// Change a person
///
/// Disabling a person ends the person's logins and cuts the connections. A person with other groups or another name
/// logs in again.
#[utoipa::path(
    patch, path = "/v1/persons/{id}", tag = "persons", operation_id = "update_person",
    params(PersonPath), request_body = UpdatePerson,
    responses(
        (status = 200, description = "The person.", body = LocalPerson),
    )
)]
pub(crate) async fn update(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    input: Input<UpdatePerson>,
) -> Result<Response, ApiError> {
    caller.require(Scope::IdentityWrite)?;
    let person = find(&app, caller.organisation, &id).await?;
    let person = app.update_person(person, input.value).await?;
    Ok(json(StatusCode::OK, &to_api(&app, person)))
}

/// Delete a person
///
/// The person's logins end, and the person's connections are cut.
#[utoipa::path(
    delete, path = "/v1/persons/{id}", tag = "persons", operation_id = "delete_person",
    params(PersonPath),
    responses(
        (status = 204, description = "The person is deleted."),
    )
)]
pub(crate) async fn delete(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    caller.require(Scope::IdentityWrite)?;
    let person = find(&app, caller.organisation, &id).await?;
    app.delete_person(&person).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Remove a person's password, and give the person a link to set another one
///
/// The person's logins end, and the person's connections are cut.
#[utoipa::path(
    post, path = "/v1/persons/{id}/reset", tag = "persons", operation_id = "reset_person",
    params(PersonPath), request_body = ResetPerson,
    responses(
        (status = 200, description = "The person, and how the link reaches the person.", body = InvitedPerson),
        (status = 409, description = "`person-disabled`"),
    )
)]
pub(crate) async fn reset(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    input: OptionalInput<ResetPerson>,
) -> Result<Response, ApiError> {
    caller.require(Scope::IdentityWrite)?;
    let person = find(&app, caller.organisation, &id).await?;
    let (person, made) = app.reset_person(&person, input.value).await?;
    Ok(json(StatusCode::OK, &invited(&app, person, made)))
}

async fn find(app: &App, organisation: AccountId, id: &str) -> Result<sallyport_store::LocalPerson, ApiError> {
    let found = if let Ok(id) = id.parse::<PersonId>() {
        app.store.person(organisation, id).await?
    } else if let Ok(email) = id.parse::<PersonEmail>() {
        app.store.person_by_email(organisation, &email).await?
    } else {
        None
    };
    found.map(|(person, _)| person).ok_or_else(|| ApiError::not_found("person"))
}
