//! Organisations, their members and their invitations.

use sallyport_model::{AccountId, DisplayName, Email, InvitationId, Role};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;

use crate::{Secret, schema};

/// An organisation that the account belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Organisation {
    /// The id of the organisation: the id of the account that it was made with.
    #[schema(value_type = uuid::Uuid)]
    pub id: AccountId,
    /// The name of the organisation: the account's name, unless a member gave another one. Names need not be unique.
    pub name: String,
    /// The role of the account in the organisation.
    #[schema(schema_with = schema::role)]
    pub role: Role,
    /// Whether the organisation is the account's own.
    pub own: bool,
}

/// Gives an organisation another name. `PATCH /v1/organisation`
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpdateOrganisation {
    /// The new name: one line of 1 to 100 characters.
    #[schema(value_type = String, min_length = 1, max_length = 100, example = "Example Ltd")]
    pub name: DisplayName,
}

/// An account that belongs to an organisation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Member {
    /// The id of the account.
    #[schema(value_type = uuid::Uuid)]
    pub id: AccountId,
    /// The name of the account.
    pub name: String,
    /// The e-mail address of the account.
    #[schema(value_type = String)]
    pub email: Email,
    /// The role of the account.
    #[schema(schema_with = schema::role)]
    pub role: Role,
    /// Whether the organisation was made with this account, which stays an owner.
    pub founder: bool,
    /// When the account joined the organisation.
    #[serde(with = "time::serde::rfc3339")]
    pub since: OffsetDateTime,
}

/// Gives a member another role. `PATCH /v1/members/{id}`
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpdateMember {
    /// What the member is from now on.
    #[schema(schema_with = schema::role)]
    pub role: Role,
}

/// Sends an invitation. `POST /v1/invitations`
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateInvitation {
    /// The e-mail address to invite, with or without an account.
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
    /// The invited e-mail address.
    #[schema(value_type = String)]
    pub email: Email,
    /// As what.
    #[schema(schema_with = schema::role)]
    pub role: Role,
    /// The account that invites.
    #[schema(value_type = uuid::Uuid)]
    pub invited_by: AccountId,
    /// When the invitation was sent.
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
    /// The code. A person with the code and the e-mail address can accept the invitation, or make an account with it.
    /// Shown once.
    pub code: Secret,
    /// Whether the server's mail hook took a message with the code.
    #[serde(default)]
    pub sent: bool,
    /// Why it has not, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// An invitation, as the invited account sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReceivedInvitation {
    /// Its id.
    #[schema(value_type = uuid::Uuid)]
    pub id: InvitationId,
    /// The organisation that invites.
    #[schema(value_type = uuid::Uuid)]
    pub organisation: AccountId,
    /// The name of that organisation.
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

/// Accepts an invitation. `POST /v1/account/invitations/accept`
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AcceptInvitation {
    /// The code of the invitation.
    pub code: Secret,
}
