//! API tokens: for programs that cannot type a password.

use sallyport_model::{AccountId, DisplayName, ScopeSet, TokenId};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;

use crate::{Secret, schema};

/// A new API token. `POST /v1/tokens`
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateToken {
    /// The purpose of the token: one line of 1 to 100 characters.
    #[schema(value_type = String, min_length = 1, max_length = 100, example = "build server")]
    pub name: DisplayName,
    /// What it may do: at least one scope, and none that its maker does not have.
    #[schema(schema_with = schema::scopes)]
    pub scopes: ScopeSet,
    /// When it ends; it does not end when absent.
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<OffsetDateTime>,
}

/// An API token, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Token {
    /// Its id.
    #[schema(value_type = uuid::Uuid)]
    pub id: TokenId,
    /// The id of the organisation that the token is good for.
    #[schema(value_type = uuid::Uuid)]
    pub organisation: AccountId,
    /// The purpose of the token.
    #[schema(value_type = String)]
    pub name: DisplayName,
    /// What it may do.
    #[schema(schema_with = schema::scopes)]
    pub scopes: ScopeSet,
    /// When it was made.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// When it ends; absent when it does not.
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<OffsetDateTime>,
}

/// An API token that was just made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreatedToken {
    /// What it is.
    #[serde(flatten)]
    pub details: Token,
    /// The token, for `Authorization: Bearer ...`. Shown once.
    pub token: Secret,
}
