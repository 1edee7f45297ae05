//! `/v1/login-sessions`.

use axum::{
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use http::StatusCode;
use sallyport_api::{EndLoginSessions, EndedLoginSessions, LoginSession, Page, PageQuery};
use sallyport_model::{LoginSessionId, Scope};

use crate::{
    clock::date,
    problem::ApiError,
    request::{
        caller::Caller,
        extract::{Input, PageOf, json},
    },
    state::App,
};

fn to_api(session: sallyport_model::LoginSession) -> LoginSession {
    let person = session.person;
    LoginSession {
        id: session.id,
        email: person.email,
        name: person.name,
        groups: person.groups,
        provider: person.provider,
        authenticated_at: date(session.authenticated_at),
        expires_at: date(session.expires_at),
    }
}

/// List the logins of persons at the organisation's sockets, oldest first
#[utoipa::path(
    get, path = "/v1/login-sessions", tag = "login sessions", operation_id = "list_login_sessions", params(PageQuery),
    responses(
        (status = 200, description = "One page.", body = Page<LoginSession>),
    )
)]
pub(crate) async fn list(State(app): State<App>, caller: Caller, page: PageOf) -> Result<Response, ApiError> {
    caller.require(Scope::IdentityRead)?;
    let now = app.clock.now().unix_seconds;
    let rows = app.store.person_sessions(caller.organisation, now, page.after, page.rows()).await?;
    Ok(json(StatusCode::OK, &page.page(rows, to_api)))
}

/// End logins: of an e-mail address, of a provider, or all
///
/// Logins end at once: the next request needs a new login, and open connections are cut.
#[utoipa::path(
    post, path = "/v1/login-sessions/end", tag = "login sessions", operation_id = "end_login_sessions",
    request_body = EndLoginSessions,
    responses(
        (status = 200, description = "The number of sessions that ended.", body = EndedLoginSessions),
    )
)]
pub(crate) async fn end(
    State(app): State<App>,
    caller: Caller,
    input: Input<EndLoginSessions>,
) -> Result<Response, ApiError> {
    caller.require(Scope::IdentityWrite)?;
    let EndLoginSessions { email, provider, all } = input.value;
    if all == (email.is_some() || provider.is_some()) {
        return Err(ApiError::field("", "name the logins to end: give email, provider or both, or else all"));
    }
    let ended = app.end_login_sessions(caller.organisation, email.as_ref(), provider.as_ref()).await?;
    tracing::info!(organisation = %caller.organisation, ended, "logins of persons ended");
    Ok(json(StatusCode::OK, &EndedLoginSessions { ended: u32::try_from(ended).unwrap_or(u32::MAX) }))
}

/// End one login
#[utoipa::path(
    delete, path = "/v1/login-sessions/{id}", tag = "login sessions", operation_id = "delete_login_session",
    params(("id" = uuid::Uuid, Path, description = "The login's id.")),
    responses(
        (status = 204, description = "The login has ended."),
    )
)]
pub(crate) async fn delete(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    caller.require(Scope::IdentityWrite)?;
    let missing = || ApiError::not_found("login session");
    let id: LoginSessionId = id.parse().map_err(|_| missing())?;
    let organisation = caller.organisation;
    let ended = app.store.end_person_sessions(organisation, Some(id), None, None).await?;
    if ended.is_empty() {
        return Err(missing());
    }
    app.identities.end_these(&ended);
    tracing::info!(account = %organisation, session = %id, "a person's login ended");
    Ok(StatusCode::NO_CONTENT.into_response())
}
