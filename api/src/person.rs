//! Persons whose passwords this installation keeps.

use sallyport_model::{PersonEmail, PersonId};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;

use crate::{Secret, socket::present};

/// A person to be added to the account's provider of kind `local`. `POST /v1/persons`
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreatePerson {
    /// The e-mail address: what they log in with. Letters count the same in capitals.
    #[schema(value_type = String, max_length = 254, example = "ann@example.com")]
    pub email: PersonEmail,
    /// What they are called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 256)]
    pub name: Option<String>,
    /// Their groups, which policies may name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 200)]
    pub groups: Vec<String>,
}

/// What is to change in a person; what is absent stays. `PATCH /v1/persons/{id}`
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpdatePerson {
    /// Another name; `null`: none.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<String>)]
    pub name: Option<Option<String>>,
    /// Other groups, all at once. The person logs in again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<Vec<String>>,
    /// Whether they may not log in; who is logged in is logged out, and cut off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled: Option<bool>,
}

/// A person gets a new link, and the password of now is worth nothing any more. `POST /v1/persons/{id}/reset`
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResetPerson {
    /// Whether the one-time codes end too: for who has lost the device, and the recovery codes.
    #[serde(default)]
    pub totp: bool,
}

/// How a person stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum PersonState {
    /// There is no password yet: the link was not used.
    Invited,
    /// They may log in.
    Active,
    /// They may not log in.
    Disabled,
}

/// A person of the account's provider of kind `local`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LocalPerson {
    /// Their id; what policies and origins go by is the address.
    #[schema(value_type = String, format = Uuid)]
    pub id: PersonId,
    /// The e-mail address, in lower case.
    #[schema(value_type = String)]
    pub email: PersonEmail,
    /// What they are called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Their groups.
    pub groups: Vec<String>,
    /// Whether they may log in.
    pub state: PersonState,
    /// When the address was proved to be theirs.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "time::serde::rfc3339::option")]
    pub verified_at: Option<OffsetDateTime>,
    /// Whether one-time codes are asked for beside the password.
    pub totp: bool,
    /// How many recovery codes are left.
    pub recovery_codes: u32,
    /// Until when nobody new is believed to be this person, since too many tried.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "time::serde::rfc3339::option")]
    pub locked_until: Option<OffsetDateTime>,
    /// When they last logged in.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "time::serde::rfc3339::option")]
    pub last_login_at: Option<OffsetDateTime>,
    /// When they were added.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
}

/// A person with a link to set a password, and how it goes to them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InvitedPerson {
    /// Who it is.
    pub person: LocalPerson,
    /// Whether the provider's hook has taken the link, to send it to them.
    pub sent: bool,
    /// Why it has not, where there is a hook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The link, where it was not sent: it is shown once, and good once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<Secret>,
    /// When the link ends.
    #[serde(with = "time::serde::rfc3339")]
    pub expires_at: OffsetDateTime,
}
