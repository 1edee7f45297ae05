//! Domains of organisations.

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;
use uuid::Uuid;

/// Adds a domain to the organisation. `POST /v1/domains`
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateDomain {
    /// The name, such as `app.example.com`, or `*.example.com` for all names directly below `example.com`.
    #[schema(max_length = 255, example = "app.example.com")]
    pub name: String,
}

/// Whether a domain is the organisation's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DomainState {
    /// The record that proves it has not been found yet.
    Pending,
    /// The record was found.
    Verified,
    /// The record was found, and is gone. The domain is served for three more days.
    Missing,
}

/// A record that the owner of a domain sets at the name service of the domain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DomainRecord {
    /// The name of the record.
    #[schema(example = "_sallyport.app.example.com")]
    pub name: String,
    /// The type of the record: `TXT`, `CNAME`, `A` or `AAAA`.
    #[serde(rename = "type")]
    #[schema(example = "TXT")]
    pub record_type: String,
    /// The content of the record.
    pub value: String,
    /// What the record is for: `ownership`, `address` or `certificate`.
    #[schema(example = "ownership")]
    pub purpose: String,
    /// What a lookup has found; absent before the first lookup, and while the name service does not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<bool>,
    /// What is wrong with the record, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A domain of an organisation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Domain {
    /// Its id.
    pub id: Uuid,
    /// The name in lower case; names of other scripts are in their ASCII form.
    #[schema(example = "app.example.com")]
    pub name: String,
    /// Whether it is the organisation's.
    pub state: DomainState,
    /// The records to set.
    pub records: Vec<DomainRecord>,
    /// The DNS name of the socket that the domain leads to; `null` for none.
    #[serde(default)]
    pub socket: Option<String>,
    /// Reason why the last lookup failed, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The name servers that were asked.
    #[schema(example = "the system's name service")]
    pub asked: String,
    /// The certificate of the domain; `null` when it has none.
    #[serde(default)]
    pub certificate: Option<crate::Certificate>,
    /// When the record was last looked up.
    #[serde(with = "time::serde::rfc3339::option", default)]
    pub checked_at: Option<OffsetDateTime>,
    /// Since when the domain is verified.
    #[serde(with = "time::serde::rfc3339::option", default)]
    pub verified_at: Option<OffsetDateTime>,
    /// When it was added.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
}
