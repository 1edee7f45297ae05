//! `/v1/invitations`, which organisations send, and `/v1/account/invitations`, which accounts get.

use axum::{
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use http::StatusCode;
use sallyport_api::{
    AcceptInvitation, CreateInvitation, CreatedInvitation, Invitation, MAX_PAGE_ITEMS, Organisation, Page, PageQuery,
    ReceivedInvitation, Secret,
};
use sallyport_model::{InvitationId, Scope};
use sallyport_store::{InviteOutcome, OpenInvitation, WithdrawOutcome};

use super::members::may_not_give;
use super::params::{IdempotencyHeader, InvitationPath};
use crate::{
    audit,
    clock::date,
    mail::{Delivery, Message},
    metrics::AccountChange,
    problem::ApiError,
    request::{
        caller::Caller,
        extract::{Input, PageOf, json},
        once::{Made, ShownSecret},
    },
    security::{client::Client, random},
    state::App,
};

/// What codes of invitations begin with.
const CODE_PREFIX: &str = "spi_";
/// How long an invitation is good.
const INVITATION_SECONDS: i64 = 7 * 86_400;

fn to_api(invitation: sallyport_store::Invitation) -> Invitation {
    let sallyport_store::Invitation { id, email, role, invited_by, created_at, expires_at, .. } = invitation;
    Invitation { id, email, role, invited_by, created_at: date(created_at), expires_at: date(expires_at) }
}

fn received(invited: OpenInvitation) -> ReceivedInvitation {
    let OpenInvitation { invitation, organisation_name } = invited;
    ReceivedInvitation {
        id: invitation.id,
        organisation: invitation.organisation,
        organisation_name,
        role: invitation.role,
        created_at: date(invitation.created_at),
        expires_at: date(invitation.expires_at),
    }
}

/// List the open invitations of the organisation, oldest first
#[utoipa::path(
    get, path = "/v1/invitations", tag = "organisations", operation_id = "list_invitations", params(PageQuery),
    responses(
        (status = 200, description = "One page.", body = Page<Invitation>),
    )
)]
pub(crate) async fn list(State(app): State<App>, caller: Caller, page: PageOf) -> Result<Response, ApiError> {
    caller.require(Scope::OrganisationRead)?;
    let now = app.clock.now().unix_seconds;
    let rows = app.store.invitations(caller.organisation, now, page.after, page.rows()).await?;
    Ok(json(StatusCode::OK, &page.page(rows, to_api)))
}

/// Invite an e-mail address into the organisation
///
/// The response is the same whether or not the address has an account. The response has a code, valid for 7 days. With
/// the code, an account of the address accepts the invitation, or the address gets an account, also where sign-up is
/// closed. A mail hook of the server sends the code too. An invitation replaces a former one for the same address.
#[utoipa::path(
    post, path = "/v1/invitations", tag = "organisations", operation_id = "create_invitation",
    params(IdempotencyHeader),
    request_body = CreateInvitation,
    responses(
        (status = 201, description = "The invitation, with its code.", body = CreatedInvitation),
        (status = 403, description = "`missing-role`: only owners invite owners, or replace the invitation of an \
             owner."),
        (status = 409, description = "`already-member`, `limit-reached` or `secret-already-shown`"),
    )
)]
pub(crate) async fn create(
    State(app): State<App>,
    client: Client,
    caller: Caller,
    input: Input<CreateInvitation>,
) -> Result<Response, ApiError> {
    caller.require(Scope::OrganisationWrite)?;
    let (keyed, CreateInvitation { email, role }) = (input.keyed, input.value);
    if !caller.role.may_give(role) {
        return Err(may_not_give(caller.role));
    }
    let make = async {
        let now = app.clock.now();
        app.limits.invite(caller.organisation, now.monotonic)?;
        let (code, hash) = random::secret(CODE_PREFIX)?;
        let new = sallyport_store::Invitation {
            id: InvitationId::from_random(random::bytes()?),
            organisation: caller.organisation,
            email,
            role,
            invited_by: caller.who.id,
            created_at: now.unix_seconds,
            expires_at: now.unix_seconds + INVITATION_SECONDS,
        };
        audit::set_target(format_args!("{} as {role}", new.email));
        match app.store.invite(&new, hash).await? {
            InviteOutcome::Done => {
                let location = Some(format!("/v1/invitations/{}", new.id));
                tracing::info!(organisation = %new.organisation, invitation = %new.id, %role, "an address was invited");
                let sent = app.send_invitation(client, &new, &code).await?;
                let is_sent = sent == Delivery::Delivered;
                let problem = if let Delivery::Failed(problem) = sent { Some(problem) } else { None };
                let created = CreatedInvitation { details: to_api(new), code, sent: is_sent, problem };
                Ok(Made { location, body: created })
            }
            InviteOutcome::IsMember => {
                let detail = "an account with this address belongs to the organisation already";
                Err(ApiError::new(StatusCode::CONFLICT, "already-member", detail))
            }
            InviteOutcome::NotAllowed => Err(may_not_give(caller.role)),
        }
    };
    let secret = ShownSecret { what: "invitation", way_out: "invite the address again with another key" };
    app.once(caller.organisation, keyed.as_ref(), Some(secret), make).await
}

impl App {
    /// Sends an invitation, if there is a hook.
    async fn send_invitation(
        &self,
        client: Client,
        invitation: &sallyport_store::Invitation,
        code: &Secret,
    ) -> Result<Delivery, ApiError> {
        if self.mail.is_none() {
            return Ok(Delivery::NoHook);
        }
        let (email, now) = (&invitation.email, self.clock.now().monotonic);
        // The inviting account chooses the address, so messages to each address are limited.
        if self.limits.take_message_request(client, now).is_err()
            || !self.limits.message_to_account(email.as_str(), now)
        {
            let problem = "too many messages were requested: give the code to the person yourself";
            return Ok(Delivery::Failed(problem.to_owned()));
        }
        let membership = self.store.membership(invitation.organisation, invitation.invited_by).await?;
        let name = membership.map(|membership| membership.name).unwrap_or_default();
        let command = format!(
            "sallyport account create --api {} --name \"YOUR NAME\" --email {email} --invitation {}",
            self.api_url(),
            code.expose()
        );
        let message = Message {
            kind: "account-invitation",
            email,
            name: None,
            link: None,
            code: code.expose(),
            command: &command,
            expires_at: invitation.expires_at,
            organisation: invitation.organisation,
            organisation_name: &name,
        };
        self.send_mail(message).await
    }
}

/// Withdraw an invitation
#[utoipa::path(
    delete, path = "/v1/invitations/{id}", tag = "organisations", operation_id = "delete_invitation",
    params(InvitationPath),
    responses(
        (status = 204, description = "The code is no longer good."),
        (status = 403, description = "`missing-role`: only owners withdraw invitations of owners."),
    )
)]
pub(crate) async fn delete(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    caller.require(Scope::OrganisationWrite)?;
    let id = id.parse().map_err(|_| ApiError::not_found("invitation"))?;
    let gone = match app.store.withdraw_invitation(caller.organisation, id, caller.role).await? {
        WithdrawOutcome::Done(gone) => gone,
        WithdrawOutcome::NotFound => return Err(ApiError::not_found("invitation")),
        WithdrawOutcome::NotAllowed => return Err(may_not_give(caller.role)),
    };
    audit::set_target(&gone.email);
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// List the invitations of the account, those that end first before the others
///
/// The response is one page, of 100 at most.
#[utoipa::path(
    get, path = "/v1/account/invitations", tag = "organisations", operation_id = "list_received_invitations",
    responses(
        (status = 200, description = "All invitations.", body = Page<ReceivedInvitation>),
    )
)]
pub(crate) async fn list_received(State(app): State<App>, caller: Caller) -> Result<Response, ApiError> {
    caller.require(Scope::AccountRead)?;
    caller.require_own()?;
    let now = app.clock.now().unix_seconds;
    let invited = app.store.invitations_of(&caller.who.email, now, MAX_PAGE_ITEMS).await?;
    Ok(json(StatusCode::OK, &Page { items: invited.into_iter().map(received).collect(), next: None }))
}

/// Accept an invitation
///
/// The request shows the code, for the account of the invited address.
#[utoipa::path(
    post, path = "/v1/account/invitations/accept", tag = "organisations", operation_id = "accept_invitation",
    request_body = AcceptInvitation,
    responses(
        (status = 200, description = "The organisation that the account joined.", body = Organisation),
        (status = 404, description = "`not-found`: no open invitation has this code and this address."),
        (status = 409, description = "`limit-reached`"),
    )
)]
pub(crate) async fn accept(
    State(app): State<App>,
    caller: Caller,
    input: Input<AcceptInvitation>,
) -> Result<Response, ApiError> {
    caller.require(Scope::AccountWrite)?;
    caller.require_own()?;
    let (account, now) = (&caller.who, app.clock.now());
    app.limits.try_code(account.id, now.monotonic)?;
    let hash = random::hash(input.value.code.expose());
    let accepted = app.store.accept_invitation(account, hash, now.unix_seconds).await?;
    let accepted = accepted.ok_or_else(|| {
        let detail = "no open invitation of your address has this code: check it, or ask for another one";
        ApiError::new(StatusCode::NOT_FOUND, "not-found", detail)
    })?;
    audit::set_target(format_args!("{} as {}", account.email, accepted.role));
    audit::add_organisation(accepted.organisation);
    app.metrics.account_change(AccountChange::Invitation);
    tracing::info!(organisation = %accepted.organisation, account = %account.id, "an invitation was accepted");
    let membership = app.store.membership(accepted.organisation, account.id).await?;
    let membership = membership.ok_or_else(|| ApiError::not_found("organisation"))?;
    let organisation =
        Organisation { id: membership.organisation, name: membership.name, role: membership.role, own: false };
    Ok(json(StatusCode::OK, &organisation))
}

/// Decline an invitation
#[utoipa::path(
    delete, path = "/v1/account/invitations/{id}", tag = "organisations", operation_id = "decline_invitation",
    params(InvitationPath),
    responses(
        (status = 204, description = "The code is no longer good."),
    )
)]
pub(crate) async fn decline(
    State(app): State<App>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Response, ApiError> {
    caller.require(Scope::AccountWrite)?;
    caller.require_own()?;
    let missing = || ApiError::not_found("invitation");
    let id = id.parse().map_err(|_| missing())?;
    app.store.decline_invitation(&caller.who.email, id).await?.ok_or_else(missing)?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
