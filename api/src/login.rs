//! Logging in and out.

use sallyport_model::Email;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;

use crate::Secret;

/// Who logs in. `POST /v1/login`
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Login {
    /// The address of the account.
    #[schema(value_type = String, format = Email, example = "ann@example.com")]
    pub email: Email,
    /// Its password.
    pub password: Secret,
    /// A code of its authenticator, or a recovery code, where it asks for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 40)]
    pub code: Option<Secret>,
}

/// A session: a short-lived access token and a refresh token that gets the next one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Session {
    /// Goes into `Authorization: Bearer ...`; lives 15 minutes.
    pub access_token: Secret,
    /// When the access token ends.
    #[serde(with = "time::serde::rfc3339")]
    pub expires_at: OffsetDateTime,
    /// Gets the next session once. Using it a second time ends every session that came from the same login.
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

/// Ends every session that came from the same login. `POST /v1/logout`
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Logout {
    /// The refresh token of the session.
    pub refresh_token: Secret,
}
