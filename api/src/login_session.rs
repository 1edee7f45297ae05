//! Logins of persons at sockets.

use sallyport_model::{LoginSessionId, PersonEmail, ProviderName};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;

/// A person's login. It is valid at the sockets of the account that admit the person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LoginSession {
    /// Its id.
    #[schema(value_type = String, format = Uuid)]
    pub id: LoginSessionId,
    /// The verified e-mail address.
    #[schema(value_type = String, format = Email)]
    pub email: PersonEmail,
    /// The person's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The person's groups, as the provider gives them.
    pub groups: Vec<String>,
    /// The identity provider that authenticated the person.
    #[schema(value_type = String)]
    pub provider: ProviderName,
    /// When the provider authenticated the person.
    #[serde(with = "time::serde::rfc3339")]
    pub authenticated_at: OffsetDateTime,
    /// The latest end of the login; sockets may ask for a new login earlier.
    #[serde(with = "time::serde::rfc3339")]
    pub expires_at: OffsetDateTime,
}

/// Ends logins. One of the fields must be given; with both, the logins of the address at the provider. `POST
/// /v1/login-sessions/end`
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EndLoginSessions {
    /// The e-mail address whose logins end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = Email)]
    pub email: Option<PersonEmail>,
    /// The provider whose logins end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub provider: Option<ProviderName>,
    /// Whether all logins of the account end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all: bool,
}

/// How many logins ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EndedLoginSessions {
    /// How many.
    pub ended: u32,
}
