//! Catalogs: a zone that lists zones, so that secondaries add and remove them by themselves (RFC 9432).

use sha2::{Digest as _, Sha256};

use crate::{
    data::{MAX_ZONES, Soa, Zone, ZoneError},
    name::{Name, NameError},
    record::{Record, RecordType},
};

/// The version of the format.
const VERSION: &[u8] = b"\x012";
/// How long records of a catalog may be kept, in seconds. Nobody asks for them but secondaries.
const TTL_SECONDS: u32 = 3_600;

/// Why zones make no catalog.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CatalogError {
    /// Too many.
    #[error("a catalog has at most {MAX_ZONES} zones")]
    TooMany,
    /// The name of the catalog is too long.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The zone cannot be built.
    #[error(transparent)]
    Zone(#[from] ZoneError),
}

/// The catalog with this name, of these zones.
///
/// # Errors
/// There are too many zones, or the name is too long.
pub fn catalog_zone(apex: Name, serial: u32, members: &[Name]) -> Result<Zone, CatalogError> {
    if members.len() > MAX_ZONES {
        return Err(CatalogError::TooMany);
    }
    let invalid = Name::from_text("invalid")?;
    let soa = Soa {
        primary: invalid.clone(),
        mailbox: invalid.clone(),
        serial,
        refresh: 3_600,
        retry: 600,
        expire: 2_147_483_646,
        minimum: 0,
    };
    let zones = apex.child("zones")?;
    // Nobody resolves names of a catalog: its name server is no name (RFC 9432 section 4).
    let mut records = vec![
        soa.record(apex.clone(), 0),
        Record::plain(apex.clone(), TTL_SECONDS, RecordType::NS, invalid.as_wire().to_vec()),
        Record::plain(apex.child("version")?, TTL_SECONDS, RecordType::TXT, VERSION.to_vec()),
    ];
    for member in members {
        let digest = Sha256::digest(member.as_wire());
        let label: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        let owner = zones.child(&label)?;
        records.push(Record::plain(owner, TTL_SECONDS, RecordType::PTR, member.as_wire().to_vec()));
    }
    Ok(Zone::build(apex, records, None)?)
}
