//! Keys of stock ssh clients.

use sallyport_model::DisplayName;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;
use uuid::Uuid;

/// A key to be added to the account. `POST /v1/ssh-keys`
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateSshKey {
    /// What its owner calls it; the key's comment when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, min_length = 1, max_length = 100, example = "laptop")]
    pub name: Option<DisplayName>,
    /// The public key as in a `.pub` file: Ed25519, ECDSA (P-256, P-384) or RSA of at least 2,048 bits.
    #[schema(
        max_length = 16384,
        example = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ ann@laptop"
    )]
    pub public_key: String,
}

/// A public key with which stock ssh clients log in as the account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SshKey {
    /// Its id.
    pub id: Uuid,
    /// What its owner calls it.
    pub name: String,
    /// The key: type, base64, comment.
    pub public_key: String,
    /// `SHA256:` and the hash of the key, as ssh shows it.
    #[schema(example = "SHA256:yaXlPtPt8I46yrNpP9E9x0oU9cFXvBbQp3gDTEoKCBY")]
    pub fingerprint: String,
    /// When it was added.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
}
