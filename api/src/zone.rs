//! Zones of the name server.

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;
use uuid::Uuid;

/// Makes a zone. `POST /v1/zones`
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateZone {
    /// The name: a verified domain of the organisation.
    #[schema(max_length = 255, example = "example.com")]
    pub name: String,
    /// Whether the zone is signed (DNSSEC); `true` when absent.
    #[serde(default = "yes")]
    #[schema(required = false)]
    pub signed: bool,
    /// How its keys sign: `ecdsa-p256` or `ed25519`; `ecdsa-p256` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "ed25519")]
    pub algorithm: Option<String>,
    /// Whether one key signs the keys (KSK) and another one the records (ZSK). One key signs everything when absent
    /// (CSK).
    #[serde(default)]
    #[schema(required = false)]
    pub split_keys: bool,
}

fn yes() -> bool {
    true
}

/// A zone that the name server answers for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Zone {
    /// Its id.
    pub id: Uuid,
    /// The name.
    #[schema(example = "example.com")]
    pub name: String,
    /// Whether it is the zone of the installation, and of no organisation.
    pub is_of_installation: bool,
    /// The name servers to name at the parent, as NS records.
    #[schema(example = json!(["ns1.tunnels.example.com", "ns2.tunnels.example.com"]))]
    pub name_servers: Vec<String>,
    /// The DS records to set at the parent; none for a zone that is not signed.
    pub ds: Vec<String>,
    /// The keys that are in use or will be.
    #[serde(default)]
    pub keys: Vec<ZoneKey>,
    /// The number of records that were added.
    pub records: u32,
    /// The serial number.
    pub serial: u32,
    /// When it was made.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
}

/// A key that signs a zone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ZoneKey {
    /// Its number in signatures (key tag).
    pub tag: u16,
    /// What it signs: `csk` (everything), `ksk` (the keys) or `zsk` (the records).
    #[schema(example = "csk")]
    pub role: String,
    /// How it signs.
    #[schema(example = "ecdsa-p256")]
    pub algorithm: String,
    /// Whether it signs now.
    pub is_active: bool,
}

/// Adds a record to a zone. `POST /v1/zones/{name}/records`
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateZoneRecord {
    /// The name: `@` for the zone itself, a name below it such as `www`, or a full name that ends with a dot.
    #[schema(max_length = 255, example = "www")]
    pub name: String,
    /// The type, such as `A`, `TXT` or `MX`. `ALIAS` stands for the addresses of another name, also at the zone itself;
    /// `EDGES` stands for the addresses of the edges.
    #[serde(rename = "type")]
    #[schema(example = "TXT")]
    pub record_type: String,
    /// How long others may keep the record, in seconds; 300 when absent.
    #[serde(default = "default_ttl")]
    #[schema(required = false, minimum = 0, maximum = 2147483647)]
    pub ttl: u32,
    /// The content, as in a master file.
    #[schema(example = "\"some text\"")]
    pub value: String,
}

fn default_ttl() -> u32 {
    300
}

/// A record of a zone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ZoneRecord {
    /// Its id; `null` for a record that the server makes.
    #[serde(default)]
    pub id: Option<Uuid>,
    /// Its full name.
    pub name: String,
    /// Its type.
    #[serde(rename = "type")]
    pub record_type: String,
    /// How long others may keep it, in seconds.
    pub ttl: u32,
    /// Its content.
    pub value: String,
}
