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
    /// The code of an invitation of this address, which is used up: the account belongs to that organisation too, and is made
    /// where sign-up is closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 64)]
    pub invitation: Option<Secret>,
    /// The setup token of a server that others can reach, which its first account needs. The server keeps it in its data
    /// directory, and says it in its log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 64)]
    pub setup_token: Option<Secret>,
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
    /// Whether a code of an authenticator is asked for beside the password.
    #[serde(default)]
    pub totp: bool,
    /// How many recovery codes are left.
    #[serde(default)]
    pub recovery_codes: u32,
    /// When it was made.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
}

/// Another password. The other sessions end. `POST /v1/account/password`
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangePassword {
    /// The password of now.
    #[schema(max_length = 1024)]
    pub current_password: Secret,
    /// The next one: at least 10 characters, at most 1,024 bytes, and no well-known one.
    #[schema(min_length = 10, max_length = 1024)]
    pub new_password: Secret,
}

/// Somebody has forgotten a password. `POST /v1/accounts/forgot`
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ForgotPassword {
    /// The address of the account, whether there is one or not.
    #[schema(value_type = String, format = Email, max_length = 254, example = "ann@example.com")]
    pub email: Email,
}

/// An account loses its password, and gets a code for another one. `POST /v1/accounts/reset`
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResetAccount {
    /// The address of the account.
    #[schema(value_type = String, format = Email, max_length = 254, example = "ann@example.com")]
    pub email: Email,
    /// Whether its one-time codes end too: for who has lost the device, and the recovery codes.
    #[serde(default)]
    pub totp: bool,
}

/// What became of an account's reset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AccountReset {
    /// The address of the account.
    #[schema(value_type = String, format = Email)]
    pub email: Email,
    /// Whether the server's mail hook has taken the link, to send it there.
    pub sent: bool,
    /// Why it has not, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The page where the password is set, unless it was sent: shown once, and good once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<Secret>,
    /// The same for programs: what `POST /v1/accounts/password` takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<Secret>,
    /// When both end.
    #[serde(with = "time::serde::rfc3339")]
    pub expires_at: OffsetDateTime,
}

/// A password by the code of a reset. All sessions end. `POST /v1/accounts/password`
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetPassword {
    /// The code.
    #[schema(max_length = 64)]
    pub code: Secret,
    /// The next password: at least 10 characters, at most 1,024 bytes, and no well-known one.
    #[schema(min_length = 10, max_length = 1024)]
    pub new_password: Secret,
}

/// Codes are to be asked for. `POST /v1/account/totp`
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BeginTotp {
    /// The password of now.
    #[schema(max_length = 1024)]
    pub current_password: Secret,
}

/// What an authenticator is told (RFC 6238: SHA-1, six digits, thirty seconds). Nothing has changed yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BegunTotp {
    /// The secret in base32 (RFC 4648 section 6).
    pub secret: Secret,
    /// The same with what it is for, to be shown as a QR code.
    pub uri: Secret,
    /// What `POST /v1/account/totp/confirm` takes.
    pub enrolment: Secret,
    /// Until when.
    #[serde(with = "time::serde::rfc3339")]
    pub expires_at: OffsetDateTime,
}

/// The authenticator works. `POST /v1/account/totp/confirm`
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ConfirmTotp {
    /// What `POST /v1/account/totp` gave.
    #[schema(max_length = 1024)]
    pub enrolment: Secret,
    /// The code that the authenticator shows.
    #[schema(max_length = 40)]
    pub code: Secret,
}

/// Codes that are good once each in the place of the authenticator's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RecoveryCodes {
    /// All of them; former ones are good for nothing. Shown this once.
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
    /// Whether it is the one that asks.
    pub current: bool,
    /// When it began.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// When it was last begun or renewed: within 15 minutes of its last use.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "time::serde::rfc3339::option")]
    pub last_used_at: Option<OffsetDateTime>,
    /// When it ends unless it is renewed.
    #[serde(with = "time::serde::rfc3339")]
    pub expires_at: OffsetDateTime,
    /// The address from which it was last begun or renewed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The program, as it calls itself (`User-Agent`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
}

/// How many sessions ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EndedAccountSessions {
    /// How many.
    pub ended: u32,
}
