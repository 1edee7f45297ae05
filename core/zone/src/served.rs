//! A zone as control publishes it, made into one that answers.

use std::sync::Arc;

use sallyport_model::{ServedZone, ZoneKey, ZoneKeyAlgorithm, ZoneKeyRole, ZoneRecord};

use crate::{
    data::{Soa, Zone, ZoneError},
    dnssec::{Algorithm, KeyRole, KeyTimes, SigningKey, ZoneKeys},
    name::{Name, NameError},
    record::{Record, RecordType, parse_record},
};

/// How long others may keep the SOA, NS and DNSKEY records of an apex, in seconds.
pub const APEX_TTL_SECONDS: u32 = 3_600;
/// How long others may keep that a name does not exist, in seconds.
const NEGATIVE_TTL_SECONDS: u32 = 60;
/// When secondaries look again, when they try again after a failure, and when they give up, in
/// seconds. They give up before the last signatures end.
const SECONDARY_TIMES: (u32, u32, u32) = (3_600, 600, 604_800);

/// Reason why a published zone cannot be answered for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServedZoneError {
    /// A name is malformed.
    #[error("{0}")]
    Name(#[from] NameError),
    /// The records make no zone.
    #[error("{0}")]
    Zone(#[from] ZoneError),
    /// A key cannot be opened, or does not sign.
    #[error("a key of the zone {0} cannot be used")]
    Key(String),
}

/// The zone with its keys. `open` gives the secret of a sealed key.
///
/// # Errors
/// One sentence about the first fault.
pub fn served_zone(
    served: &ServedZone,
    open: impl Fn(&str) -> Option<[u8; 32]>,
    now: u64,
) -> Result<Zone, ServedZoneError> {
    let apex = Name::from_text(&served.apex)?;
    let mut records = Vec::with_capacity(served.records.len() + served.name_servers.len() + 1);
    let servers = served.name_servers.iter().map(|name| Name::from_text(name)).collect::<Result<Vec<_>, _>>()?;
    let (refresh, retry, expire) = SECONDARY_TIMES;
    let soa = Soa {
        primary: servers.first().cloned().unwrap_or_else(|| apex.clone()),
        mailbox: apex.child("hostmaster")?,
        serial: served.serial,
        refresh,
        retry,
        expire,
        minimum: NEGATIVE_TTL_SECONDS,
    };
    records.push(soa.record(apex.clone(), APEX_TTL_SECONDS));
    for server in &servers {
        records.push(Record::plain(apex.clone(), APEX_TTL_SECONDS, RecordType::NS, server.as_wire().to_vec()));
    }
    for record in &served.records {
        let owner = Name::from_text(&record.name)?;
        let parsed = parse_record(&owner, record.ttl, &record.record_type, &record.value, &apex);
        records.push(parsed.map_err(ZoneError::from)?);
    }
    let unusable = || ServedZoneError::Key(served.apex.clone());
    let keys = served.keys.iter().map(|key| signing_key(key, &open)).collect::<Option<Vec<_>>>();
    let keys = keys.ok_or_else(unusable)?;
    let keys = match keys.is_empty() {
        true => None,
        false => Some(Arc::new(ZoneKeys::new(apex.clone(), keys, APEX_TTL_SECONDS, now).map_err(|_| unusable())?)),
    };
    Ok(Zone::build(apex, records, keys)?)
}

/// The nearest name above `apex` that is a zone.
pub fn parent_zone(apex: &str, is_zone: impl Fn(&str) -> bool) -> Option<&str> {
    let mut rest = apex;
    while let Some((_, above)) = rest.split_once('.') {
        if is_zone(above) {
            return Some(above);
        }
        rest = above;
    }
    None
}

/// The records by which a zone delegates one below it that the same server answers for: its name servers, and the DS
/// records of its keys. None if the owner of the zone has records at that name: those count.
///
/// Without a delegation, the zone would deny the name below it to clients that validate.
#[must_use]
pub fn delegation(parent: &ServedZone, child: &ServedZone, ds: &[String]) -> Vec<ZoneRecord> {
    if parent.records.iter().any(|record| record.name == child.apex) {
        return Vec::new();
    }
    let record = |record_type: &str, value: String| ZoneRecord {
        name: child.apex.clone(),
        record_type: record_type.to_owned(),
        ttl: APEX_TTL_SECONDS,
        value,
    };
    let servers = child.name_servers.iter().map(|name| record("NS", format!("{name}.")));
    servers.chain(ds.iter().map(|ds| record("DS", ds.clone()))).collect()
}

fn signing_key(key: &ZoneKey, open: &impl Fn(&str) -> Option<[u8; 32]>) -> Option<SigningKey> {
    let algorithm = match key.algorithm {
        ZoneKeyAlgorithm::EcdsaP256 => Algorithm::EcdsaP256Sha256,
        ZoneKeyAlgorithm::Ed25519 => Algorithm::Ed25519,
    };
    let role = match key.role {
        ZoneKeyRole::Combined => KeyRole::Combined,
        ZoneKeyRole::KeySigning => KeyRole::KeySigning,
        ZoneKeyRole::ZoneSigning => KeyRole::ZoneSigning,
    };
    SigningKey::from_secret(algorithm, &open(&key.sealed_secret)?, role, key_times(key)).ok()
}

/// The times of a key.
#[must_use]
pub fn key_times(key: &ZoneKey) -> KeyTimes {
    KeyTimes {
        published: key.published,
        active: key.active,
        retired: key.retired,
        removed: key.removed,
        ds_from: key.ds_from,
        ds_until: key.ds_until,
    }
}

#[cfg(test)]
mod tests {
    use sallyport_model::{ZoneId, ZoneRecord};

    use super::*;

    fn zone() -> ServedZone {
        let record = |name: &str, record_type: &str, value: &str| ZoneRecord {
            name: name.into(),
            record_type: record_type.into(),
            ttl: 60,
            value: value.into(),
        };
        ServedZone {
            id: ZoneId::from_random([1; 16]),
            apex: "example.com".into(),
            serial: 7,
            name_servers: vec!["ns1.t.example".into(), "ns2.t.example".into()],
            records: vec![record("example.com", "EDGES", "all"), record("www.example.com", "TXT", "\"hello\"")],
            keys: vec![ZoneKey {
                algorithm: ZoneKeyAlgorithm::EcdsaP256,
                role: ZoneKeyRole::Combined,
                sealed_secret: "sealed".into(),
                published: 1,
                active: 1,
                retired: None,
                removed: None,
                ds_from: Some(1),
                ds_until: None,
            }],
        }
    }

    #[test]
    fn a_published_zone_answers_and_is_signed() {
        let made = served_zone(&zone(), |text| (text == "sealed").then_some([7; 32]), 1_800_000_000).unwrap();
        assert_eq!((made.serial(), made.apex().to_string().as_str()), (7, "example.com."));
        assert_eq!(made.keys().unwrap().ds_texts(1_800_000_000).len(), 1);
    }

    #[test]
    fn a_zone_delegates_those_below_it() {
        let open = |_: &str| Some([7; 32]);
        let (parent, mut child) = (zone(), zone());
        child.apex = "a.b.example.com".into();
        child.records.clear();
        let is_zone = |name: &str| name == "example.com" || name == "com";
        assert_eq!(parent_zone(&child.apex, is_zone), Some("example.com"));
        assert_eq!(parent_zone("example.com", |name| name == "example.com"), None);
        let ds = served_zone(&child, open, 1_800_000_000).unwrap().keys().unwrap().ds_values(1_800_000_000);
        let records = delegation(&parent, &child, &ds);
        let types: Vec<_> = records.iter().map(|record| record.record_type.as_str()).collect();
        assert_eq!(types, ["NS", "NS", "DS"]);
        let mut with = parent.clone();
        with.records.extend(records);
        assert_eq!(served_zone(&with, open, 1_800_000_000).map(drop), Ok(()));
        assert!(delegation(&with, &child, &ds).is_empty(), "records of the owner count");
    }

    #[test]
    fn what_makes_no_zone_is_refused_with_a_sentence() {
        let refused = |change: &dyn Fn(&mut ServedZone)| {
            let mut changed = zone();
            change(&mut changed);
            served_zone(&changed, |_| Some([7; 32]), 1_800_000_000).unwrap_err().to_string()
        };
        assert!(refused(&|zone| zone.records[1].name = "www.example.org".into()).contains("not within the zone"));
        assert!(refused(&|zone| zone.records[1].record_type = "A".into()).contains("www.example.com"));
        assert!(refused(&|zone| zone.name_servers.clear()).contains("no NS record"));
        let closed = served_zone(&zone(), |_| None, 1_800_000_000).unwrap_err().to_string();
        assert!(closed.contains("cannot be used"), "{closed}");
    }
}
