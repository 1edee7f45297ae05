//! Organisations, who belongs to them, and who is invited.

use sallyport_model::{AccountId, DisplayName, Email, InvitationId, Role};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;

use crate::{Secret, schema};

/// An organisation that the account belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Organisation {
    /// Its id: that of the account that it was made with.
    #[schema(value_type = uuid::Uuid)]
    pub id: AccountId,
    /// What it is called; as its account, unless it was given a name. Several may be called the same.
    pub name: String,
    /// What the account is there.
    #[schema(schema_with = schema::role)]
    pub role: Role,
    /// Whether it is the account's own.
    pub own: bool,
}

/// Another name for an organisation. `PATCH /v1/organisation`
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpdateOrganisation {
    /// What it is called from now on: one line of 1 to 100 characters.
    #[schema(value_type = String, min_length = 1, max_length = 100, example = "Example Ltd")]
    pub name: DisplayName,
}

/// Somebody who belongs to an organisation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Member {
    /// The id of the account.
    #[schema(value_type = uuid::Uuid)]
    pub id: AccountId,
    /// What the account is called.
    pub name: String,
    /// Its e-mail address.
    #[schema(value_type = String)]
    pub email: Email,
    /// What it is in the organisation.
    #[schema(schema_with = schema::role)]
    pub role: Role,
    /// Whether the organisation was made with it: it stays an owner.
    pub founder: bool,
    /// Since when it belongs to the organisation.
    #[serde(with = "time::serde::rfc3339")]
    pub since: OffsetDateTime,
}

/// Another role for a member. `PATCH /v1/members/{id}`
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpdateMember {
    /// What the member is from now on.
    #[schema(schema_with = schema::role)]
    pub role: Role,
}

/// An invitation to be sent. `POST /v1/invitations`
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateInvitation {
    /// Whom: the e-mail address of an account that there is, or may be soon.
    #[schema(value_type = String, example = "ann@example.com")]
    pub email: Email,
    /// As what.
    #[schema(schema_with = schema::role)]
    pub role: Role,
}

/// An invitation, as the organisation sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Invitation {
    /// Its id.
    #[schema(value_type = uuid::Uuid)]
    pub id: InvitationId,
    /// Whom.
    #[schema(value_type = String)]
    pub email: Email,
    /// As what.
    #[schema(schema_with = schema::role)]
    pub role: Role,
    /// The account that invites.
    #[schema(value_type = uuid::Uuid)]
    pub invited_by: AccountId,
    /// When it was sent.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// When it ends.
    #[serde(with = "time::serde::rfc3339")]
    pub expires_at: OffsetDateTime,
}

/// An invitation that was just made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreatedInvitation {
    /// What it is.
    #[serde(flatten)]
    pub details: Invitation,
    /// Who has it and the e-mail address can accept, or make an account with it. Shown this once: the one who is invited needs it.
    pub code: Secret,
    /// Whether the server's mail hook has taken a message with it.
    #[serde(default)]
    pub sent: bool,
    /// Why it has not, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// An invitation, as the one who is invited sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReceivedInvitation {
    /// Its id.
    #[schema(value_type = uuid::Uuid)]
    pub id: InvitationId,
    /// Into which organisation.
    #[schema(value_type = uuid::Uuid)]
    pub organisation: AccountId,
    /// What that calls itself.
    pub organisation_name: String,
    /// As what.
    #[schema(schema_with = schema::role)]
    pub role: Role,
    /// When it was sent.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// When it ends.
    #[serde(with = "time::serde::rfc3339")]
    pub expires_at: OffsetDateTime,
}

/// An invitation is accepted. `POST /v1/account/invitations/accept`
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AcceptInvitation {
    /// The code that came from who has invited.
    pub code: Secret,
}
