//! Keys of stock ssh clients.

use sallyport_model::DisplayName;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;
use uuid::Uuid;

/// Adds a key to the account. `POST /v1/ssh-keys`
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateSshKey {
    /// The name of the key; the key's comment when absent.
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
    /// The name that the owner gave.
    pub name: String,
    /// The key: type, base64, comment.
    pub public_key: String,
    /// `SHA256:` and the hash of the key, as ssh shows it.
    #[schema(example = "SHA256:yaXlPtPt8I46yrNpP9E9x0oU9cFXvBbQp3gDTEoKCBY")]
    pub fingerprint: String,
    /// A note for the owner, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// When it was added.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
}

/// Signs a public key for one tunnel. `POST /v1/sockets/{id}/tunnels/{tunnel_id}/ssh-certificate`
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateSshCertificate {
    /// The public key as in a `.pub` file, of a kind that an account's keys may have. The key need not belong to the
    /// account.
    #[schema(
        max_length = 16384,
        example = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ ann@laptop"
    )]
    pub public_key: String,
}

/// A certificate with which a stock ssh client logs in to serve one tunnel, and nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SshCertificate {
    /// The certificate as in a `-cert.pub` file, for `ssh -o CertificateFile`.
    pub certificate: String,
    /// The user name for ssh; the certificate is good for no other one.
    #[schema(example = "5f2b8f0e9d7c4c2f8f9e0a1b2c3d4e5f")]
    pub user: String,
    /// The port that the ssh client forwards; the server grants no other one.
    #[schema(example = 31873)]
    pub forward_port: u16,
    /// The end of the certificate's validity. An open ssh session goes on after that.
    #[serde(with = "time::serde::rfc3339")]
    pub valid_until: OffsetDateTime,
}
