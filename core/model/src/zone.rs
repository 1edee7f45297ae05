//! Zones that the name server answers for.

use serde::{Deserialize, Serialize};

use crate::ZoneId;

/// The group of all edges, whose addresses a record of type `EDGES` stands for.
pub const ALL_EDGES: &str = "all";

/// A record of a zone, as text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZoneRecord {
    /// Its full name, without a final dot.
    pub name: String,
    /// Its type, such as `TXT`; `ALIAS` stands for the addresses of another name, and `EDGES` for those of edges.
    pub record_type: String,
    /// How long others may keep it, in seconds.
    pub ttl: u32,
    /// Its content, as in a master file.
    pub value: String,
}

/// How a key of a zone signs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ZoneKeyAlgorithm {
    /// ECDSA with P-256 and SHA-256 (RFC 6605).
    #[serde(rename = "ecdsa-p256")]
    EcdsaP256,
    /// Ed25519 (RFC 8080).
    #[serde(rename = "ed25519")]
    Ed25519,
}

impl ZoneKeyAlgorithm {
    /// The algorithm as text.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::EcdsaP256 => "ecdsa-p256",
            Self::Ed25519 => "ed25519",
        }
    }
}

impl std::str::FromStr for ZoneKeyAlgorithm {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "ecdsa-p256" => Ok(Self::EcdsaP256),
            "ed25519" => Ok(Self::Ed25519),
            other => Err(format!("{other:?} is no algorithm of zone keys: use ecdsa-p256 or ed25519")),
        }
    }
}

/// What a key of a zone signs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ZoneKeyRole {
    /// Everything (CSK).
    #[default]
    Combined,
    /// The keys of the zone (KSK).
    KeySigning,
    /// The records of the zone (ZSK).
    ZoneSigning,
}

impl ZoneKeyRole {
    /// The role as text.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Combined => "csk",
            Self::KeySigning => "ksk",
            Self::ZoneSigning => "zsk",
        }
    }
}

/// A key that signs a zone, with the times of its use in seconds since 1970 (RFC 7583).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZoneKey {
    /// How it signs.
    pub algorithm: ZoneKeyAlgorithm,
    /// What it signs.
    #[serde(default)]
    pub role: ZoneKeyRole,
    /// Its secret, sealed with the key that edges share.
    pub sealed_secret: String,
    /// From then on it is in the DNSKEY set.
    pub published: u64,
    /// From then on it signs.
    pub active: u64,
    /// From then on it does not sign.
    pub retired: Option<u64>,
    /// From then on it is not in the DNSKEY set.
    pub removed: Option<u64>,
    /// From then on the parent should have its DS record.
    pub ds_from: Option<u64>,
    /// From then on the parent should not have its DS record.
    pub ds_until: Option<u64>,
}

/// A zone as edges answer for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServedZone {
    /// The zone.
    pub id: ZoneId,
    /// Its name, in lower case without a final dot.
    pub apex: String,
    /// The serial number; it grows with each change.
    pub serial: u32,
    /// The names of its name servers.
    pub name_servers: Vec<String>,
    /// Its records, without SOA and NS records of the apex.
    pub records: Vec<ZoneRecord>,
    /// The keys that sign it.
    pub keys: Vec<ZoneKey>,
}
