//! `/v1/members`.

use axum::{
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use http::StatusCode;
use sallyport_api::{Member, Page, PageQuery, UpdateMember};
use sallyport_model::{AccountId, Role, Scope};
use sallyport_store::MemberChangeOutcome;

use super::params::MemberPath;
use crate::{
    audit,
    clock::date,
    problem::ApiError,
    request::{
        caller::Caller,
        extract::{Input, PageOf, json},
    },
    state::App,
};

fn to_api(member: sallyport_store::Member, organisation: AccountId) -> Member {
    let sallyport_store::Member { account, role, since } = member;
    Member {
        id: account.id,
        founder: account.id == organisation,
        name: account.name,
        email: account.email,
        role,
        since: date(since),
    }
}

/// The members of the organisation: its founder, then the others, oldest first
#[utoipa::path(
    get, path = "/v1/members", tag = "organisations", operation_id = "list_members", params(PageQuery),
    responses(
        (status = 200, description = "One page.", body = Page<Member>),
    )
)]
pub(crate) async fn list(State(app): State<App>, caller: Caller, page: PageOf) -> Result<Response, ApiError> {
    caller.require(Scope::OrganisationRead)?;
    let rows = app.store.members(caller.organisation, page.after, page.rows()).await?;
    Ok(json(StatusCode::OK, &page.page(rows, |member| to_api(member, caller.organisation))))
}

/// Give a member another role
///
/// The role changes at once, for the member's API tokens too. Invitations that the member sent end. Only owners make
/// owners or take the role away, and the founder stays an owner.
#[utoipa::path(
    patch, path = "/v1/members/{id}", tag = "organisations", operation_id = "update_member",
    params(MemberPath), request_body = UpdateMember,
    responses(
        (status = 200, description = "The member after the change.", body = Member),
        (status = 403, description = "`missing-role`"),
        (status = 409, description = "`founder`"),
    )
)]
pub(crate) async fn update(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
    input: Input<UpdateMember>,
) -> Result<Response, ApiError> {
    caller.require(Scope::OrganisationWrite)?;
    let (organisation, role) = (caller.organisation, input.value.role);
    let member = find(&app, organisation, &id).await?;
    audit::set_target(format_args!("{} as {role}", member.account.email));
    done(app.store.change_role(organisation, member.account.id, role, caller.role).await?, caller.role)?;
    tracing::info!(%organisation, account = %member.account.id, %role, "a member has another role");
    Ok(json(StatusCode::OK, &to_api(sallyport_store::Member { role, ..member }, organisation)))
}

/// Remove a member
///
/// The member's API tokens for the organisation end at once, and so do the invitations that the member sent. What the
/// member made stays.
#[utoipa::path(
    delete, path = "/v1/members/{id}", tag = "organisations", operation_id = "delete_member",
    params(MemberPath),
    responses(
        (status = 204, description = "The account is no longer a member."),
        (status = 403, description = "`missing-role`"),
        (status = 409, description = "`founder`"),
    )
)]
pub(crate) async fn delete(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    caller.require(Scope::OrganisationWrite)?;
    let organisation = caller.organisation;
    let member = find(&app, organisation, &id).await?;
    audit::set_target(&member.account.email);
    done(app.store.remove_member(organisation, member.account.id, caller.role).await?, caller.role)?;
    tracing::info!(%organisation, account = %member.account.id, "a member was removed");
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn find(app: &App, organisation: AccountId, id_or_email: &str) -> Result<sallyport_store::Member, ApiError> {
    let missing = || ApiError::not_found("member");
    let found = match id_or_email.parse() {
        Ok(id) => app.store.member(organisation, id).await?,
        Err(_) => {
            let email = id_or_email.parse().map_err(|_| missing())?;
            app.store.member_with_address(organisation, &email).await?
        }
    };
    found.ok_or_else(missing)
}

fn done(change: MemberChangeOutcome, by: Role) -> Result<(), ApiError> {
    match change {
        MemberChangeOutcome::Done => Ok(()),
        MemberChangeOutcome::NotFound => Err(ApiError::not_found("member")),
        MemberChangeOutcome::Founder => {
            let detail = "the organisation was made with this account: it stays an owner";
            Err(ApiError::new(StatusCode::CONFLICT, "founder", detail))
        }
        MemberChangeOutcome::NotAllowed => Err(may_not_give(by)),
    }
}

/// The refusal of a role that the caller may not give or take away.
pub(crate) fn may_not_give(by: Role) -> ApiError {
    let detail = format!("only owners may give or take the role of owner, and you are {by} of this organisation");
    ApiError::new(StatusCode::FORBIDDEN, "missing-role", detail)
}
