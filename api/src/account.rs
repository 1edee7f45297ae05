//! Accounts.

use sallyport_model::{AccountId, DisplayName, Email};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::Secret;

/// A new account. `POST /v1/accounts`
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateAccount {
    /// The name of the account: one line of 1 to 100 characters.
    #[schema(value_type = String, min_length = 1, max_length = 100, example = "Ann")]
    pub name: DisplayName,
    /// The address that the owner logs in with.
    #[schema(value_type = String, format = Email, max_length = 254, example = "ann@example.com")]
    pub email: Email,
    /// At least 10 characters, at most 1,024 bytes, and no well-known one.
    #[schema(min_length = 10, max_length = 1024)]
    pub password: Secret,
    /// A public key with which stock ssh clients log in; the owner can add more later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 16384)]
    pub ssh_key: Option<String>,
    /// The code of an invitation of this address. The account then belongs to that organisation too, and closed sign-up
    /// does not refuse it. The invitation is used up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 64)]
    pub invitation: Option<Secret>,
    /// The setup token, which the first account of a server needs that others can reach. The server writes the token to
    /// its data directory and to its log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 64)]
    pub setup_token: Option<Secret>,
}

/// An account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Account {
    /// The id of the account.
    #[schema(value_type = uuid::Uuid)]
    pub id: AccountId,
    /// The name that the owner gives the account.
    pub name: String,
    /// The address that the owner logs in with.
    #[schema(value_type = String, format = Email)]
    pub email: Email,
    /// The name that stock ssh clients log in with.
    #[serde(default)]
    #[schema(example = "5f2b8f0e9d7c4c2f8f9e0a1b2c3d4e5f")]
    pub ssh_user: String,
    /// Whether a login needs a code of an authenticator beside the password.
    #[serde(default)]
    pub totp: bool,
    /// How many recovery codes are left.
    #[serde(default)]
    pub recovery_codes: u32,
    /// When the account was made.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
}

/// Changes the password. The other sessions end. `POST /v1/account/password`
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangePassword {
    /// The password of now.
    #[schema(max_length = 1024)]
    pub current_password: Secret,
    /// The new password: at least 10 characters, at most 1,024 bytes, and no well-known one.
    #[schema(min_length = 10, max_length = 1024)]
    pub new_password: Secret,
}

/// Sends a message with a reset code to the owner of an account. `POST /v1/accounts/forgot`
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ForgotPassword {
    /// The address of the account, whether there is one or not.
    #[schema(value_type = String, format = Email, max_length = 254, example = "ann@example.com")]
    pub email: Email,
}

/// Removes an account's password, and makes a code for another one. `POST /v1/accounts/reset`
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResetAccount {
    /// The address of the account.
    #[schema(value_type = String, format = Email, max_length = 254, example = "ann@example.com")]
    pub email: Email,
    /// Whether one-time codes end too, for owners without the device and without recovery codes.
    #[serde(default)]
    pub totp: bool,
}

/// The result of resetting an account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AccountReset {
    /// The address of the account.
    #[schema(value_type = String, format = Email)]
    pub email: Email,
    /// Whether the server's mail hook took the link.
    pub sent: bool,
    /// Why the hook did not take the link, where there is a hook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The page where the owner sets the password, unless the hook took the link. Shown once, and good once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<Secret>,
    /// The code that `POST /v1/accounts/password` takes, for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<Secret>,
    /// When link and code end.
    #[serde(with = "time::serde::rfc3339")]
    pub expires_at: OffsetDateTime,
}

/// Sets a password with the code of a reset. All sessions end. `POST /v1/accounts/password`
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetPassword {
    /// The code.
    #[schema(max_length = 64)]
    pub code: Secret,
    /// The new password: at least 10 characters, at most 1,024 bytes, and no well-known one.
    #[schema(min_length = 10, max_length = 1024)]
    pub new_password: Secret,
}

/// Begins the use of one-time codes. `POST /v1/account/totp`
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BeginTotp {
    /// The present password.
    #[schema(max_length = 1024)]
    pub current_password: Secret,
}

/// The secret for an authenticator (RFC 6238: SHA-1, six digits, thirty seconds). The account has not changed yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BegunTotp {
    /// The secret in base32 (RFC 4648 section 6).
    pub secret: Secret,
    /// The secret and its label as a URI, for a QR code.
    pub uri: Secret,
    /// The text that `POST /v1/account/totp/confirm` takes.
    pub enrolment: Secret,
    /// When the enrolment ends.
    #[serde(with = "time::serde::rfc3339")]
    pub expires_at: OffsetDateTime,
}

/// Confirms that the authenticator works. `POST /v1/account/totp/confirm`
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ConfirmTotp {
    /// The text that `POST /v1/account/totp` gave.
    #[schema(max_length = 1024)]
    pub enrolment: Secret,
    /// The code that the authenticator shows.
    #[schema(max_length = 40)]
    pub code: Secret,
}

/// Recovery codes, each good once in the place of a code of the authenticator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RecoveryCodes {
    /// All codes; former ones are no longer good. Shown once.
    pub recovery_codes: Vec<Secret>,
}

/// The password and a code, for what changes codes. `POST /v1/account/totp/disable` and `POST /v1/account/totp/codes`
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProveTotp {
    /// The password of now.
    #[schema(max_length = 1024)]
    pub current_password: Secret,
    /// A code of the authenticator, or a recovery code.
    #[schema(max_length = 40)]
    pub code: Secret,
}

/// A session of an account, which began with a login.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AccountSession {
    /// Its id.
    pub id: Uuid,
    /// Whether this session sent the request.
    pub current: bool,
    /// When the session began.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// When a client began or last renewed the session: within 15 minutes of its last use.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "time::serde::rfc3339::option")]
    pub last_used_at: Option<OffsetDateTime>,
    /// When the session ends unless a client renews it.
    #[serde(with = "time::serde::rfc3339")]
    pub expires_at: OffsetDateTime,
    /// The address of the client that began or last renewed the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The program, by its `User-Agent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
}

/// The number of sessions that ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EndedAccountSessions {
    /// The number of sessions.
    pub ended: u32,
}
