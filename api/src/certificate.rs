//! Certificates for names.

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::Secret;

/// Imports a certificate. `POST /v1/certificates`
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ImportCertificate {
    /// The chain in PEM, the certificate itself first.
    #[schema(max_length = 65536)]
    pub chain: String,
    /// Its private key in PEM, without a passphrase.
    #[schema(max_length = 16384)]
    pub key: Secret,
}

/// The state of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CertificateState {
    /// The first order is still to be made or to end.
    Waiting,
    /// It is valid.
    Valid,
    /// It is valid, and its renewal has failed.
    Failing,
    /// Its validity is over.
    Expired,
}

/// A certificate for names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Certificate {
    /// Its id.
    pub id: Uuid,
    /// Its names.
    #[schema(example = json!(["app.example.com"]))]
    pub names: Vec<String>,
    /// Its state.
    pub state: CertificateState,
    /// Where it comes from: `acme` or `imported`.
    #[schema(example = "acme")]
    pub source: String,
    /// Whether it is for names of the installation, and of no organisation.
    pub is_of_installation: bool,
    /// The authority that signed it, as the certificate names it; `null` before it is issued.
    #[serde(default)]
    pub issuer: Option<String>,
    /// SHA-256 of the certificate, in hexadecimal; `null` before it is issued.
    #[serde(default)]
    pub fingerprint: Option<String>,
    /// When its validity begins.
    #[serde(with = "time::serde::rfc3339::option", default)]
    pub not_before: Option<OffsetDateTime>,
    /// When its validity ends.
    #[serde(with = "time::serde::rfc3339::option", default)]
    pub not_after: Option<OffsetDateTime>,
    /// When the next order or the next look at its renewal is due; `null` for imported ones.
    #[serde(with = "time::serde::rfc3339::option", default)]
    pub next_at: Option<OffsetDateTime>,
    /// Reason why the last order failed, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// When it was first wanted.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
}
