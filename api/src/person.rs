//! Persons with passwords at this installation.

use sallyport_model::{PersonEmail, PersonId};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;

use crate::{Secret, socket::present};

/// Adds a person to the account's provider of kind `local`. `POST /v1/persons`
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreatePerson {
    /// The e-mail address, with which the person logs in. The case of letters does not matter.
    #[schema(value_type = String, max_length = 254, example = "ann@example.com")]
    pub email: PersonEmail,
    /// The person's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 256)]
    pub name: Option<String>,
    /// The person's groups, which policies may name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 200)]
    pub groups: Vec<String>,
}

/// Changes a person; absent fields stay as they are. `PATCH /v1/persons/{id}`
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpdatePerson {
    /// The new name; `null`: none.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[schema(value_type = Option<String>)]
    pub name: Option<Option<String>>,
    /// The new groups, all of them. The person logs in again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<Vec<String>>,
    /// Whether the person may not log in. Disabling a person ends the person's logins and connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled: Option<bool>,
}

/// Gives a person a new link, and ends the present password. `POST /v1/persons/{id}/reset`
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResetPerson {
    /// Whether one-time codes end too, for persons without the device and without recovery codes.
    #[serde(default)]
    pub totp: bool,
}

/// Whether a person may log in.
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
    /// The person's id. Policies and origins use the address instead.
    #[schema(value_type = String, format = Uuid)]
    pub id: PersonId,
    /// The e-mail address, in lower case.
    #[schema(value_type = String)]
    pub email: PersonEmail,
    /// The names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The person's groups.
    pub groups: Vec<String>,
    /// Whether the person may log in.
    pub state: PersonState,
    /// When the person proved to own the address.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "time::serde::rfc3339::option")]
    pub verified_at: Option<OffsetDateTime>,
    /// Whether a login needs a one-time code beside the password.
    pub totp: bool,
    /// How many recovery codes are left.
    pub recovery_codes: u32,
    /// The end of a lock after too many wrong attempts. Until then only clients that logged in as this person before
    /// may log in.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "time::serde::rfc3339::option")]
    pub locked_until: Option<OffsetDateTime>,
    /// When the person last logged in.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "time::serde::rfc3339::option")]
    pub last_login_at: Option<OffsetDateTime>,
    /// When the person was added.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
}

/// A person with a link to set a password, and how the link reaches the person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InvitedPerson {
    /// The person.
    pub person: LocalPerson,
    /// Whether the provider's hook took the link.
    pub sent: bool,
    /// Why the hook did not take the link, where there is a hook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The link, where the hook did not take it. Shown once, and good once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<Secret>,
    /// When the link ends.
    #[serde(with = "time::serde::rfc3339")]
    pub expires_at: OffsetDateTime,
}
