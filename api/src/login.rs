//! Logins and logouts of accounts.

use sallyport_model::Email;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;

use crate::Secret;

/// Logs in to an account. `POST /v1/login`
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Login {
    /// The address of the account.
    #[schema(value_type = String, format = Email, example = "ann@example.com")]
    pub email: Email,
    /// The password of the account.
    pub password: Secret,
    /// A code of the authenticator, or a recovery code, where the account has codes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 40)]
    pub code: Option<Secret>,
}

/// A session: a short-lived access token and a refresh token that gets the next one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Session {
    /// The access token, for `Authorization: Bearer ...`; good for 15 minutes.
    pub access_token: Secret,
    /// When the access token ends.
    #[serde(with = "time::serde::rfc3339")]
    pub expires_at: OffsetDateTime,
    /// The refresh token, good once. A second use ends every session of the same login.
    pub refresh_token: Secret,
    /// When the refresh token ends.
    #[serde(with = "time::serde::rfc3339")]
    pub refresh_expires_at: OffsetDateTime,
}

/// Asks for the next session. `POST /v1/login/refresh`
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Refresh {
    /// The refresh token of the current session.
    pub refresh_token: Secret,
}

/// Ends every session of the same login. `POST /v1/logout`
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Logout {
    /// The refresh token of the session.
    pub refresh_token: Secret,
}
