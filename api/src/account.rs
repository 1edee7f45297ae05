//! Accounts.

use sallyport_model::{AccountId, DisplayName, Email};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;

use crate::Secret;

/// A new account. `POST /v1/accounts`
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateAccount {
    /// What the owner calls it: one line of 1 to 100 characters.
    #[schema(value_type = String, min_length = 1, max_length = 100, example = "Ann")]
    pub name: DisplayName,
    /// The address that the owner logs in with.
    #[schema(value_type = String, format = Email, max_length = 254, example = "ann@example.com")]
    pub email: Email,
    /// At least 10 characters, at most 1,024 bytes, and no well-known one.
    #[schema(min_length = 10, max_length = 1024)]
    pub password: Secret,
    /// A public key with which stock ssh clients log in; more can be added later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 16384)]
    pub ssh_key: Option<String>,
}

/// An account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Account {
    /// Its id.
    #[schema(value_type = uuid::Uuid)]
    pub id: AccountId,
    /// What the owner calls it.
    pub name: String,
    /// The address that the owner logs in with.
    #[schema(value_type = String, format = Email)]
    pub email: Email,
    /// The name that stock ssh clients log in with.
    #[serde(default)]
    #[schema(example = "5f2b8f0e9d7c4c2f8f9e0a1b2c3d4e5f")]
    pub ssh_user: String,
    /// When it was made.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
}
