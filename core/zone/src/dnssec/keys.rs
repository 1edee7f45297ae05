//! The keys of a zone, and which of them are in use at a time.

use super::key::{KeyRole, SigningKey};
use crate::{
    name::Name,
    record::{RecordSet, RecordType},
};

/// The most keys of a zone: two of each role in a rollover, and room.
pub const MAX_KEYS: usize = 8;

/// Why keys do not serve a zone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ZoneKeysError {
    /// Too many.
    #[error("{0} has more than {MAX_KEYS} keys")]
    TooMany(Name),
    /// The zone would be without a signature of its keys or of its records.
    #[error("{0} has no active key that signs {1} at {2} seconds since 1970")]
    Uncovered(Name, &'static str, u64),
    /// Two keys cannot be told apart by validators.
    #[error("two keys of {0} have the tag {1} and the same algorithm: draw one of them again")]
    SameTag(Name, u16),
}

/// The keys of a zone with their times.
#[derive(Debug)]
pub struct ZoneKeys {
    apex: Name,
    keys: Vec<SigningKey>,
    /// What is in use from a time on, in order.
    phases: Vec<(u64, KeyPhase)>,
}

/// What is in use between two changes.
#[derive(Debug, Clone)]
pub(crate) struct KeyPhase {
    pub(crate) dnskey: Option<RecordSet>,
    pub(crate) cds: Option<RecordSet>,
    pub(crate) cdnskey: Option<RecordSet>,
    /// Places of the keys that sign the keys, and of those that sign the rest.
    key_signers: Vec<usize>,
    zone_signers: Vec<usize>,
}

impl ZoneKeys {
    /// The keys of the zone with this apex. The sets of keys have the TTL.
    ///
    /// # Errors
    /// There are too many, two have one tag, or at some time from `now` on no key signs.
    pub fn new(apex: Name, keys: Vec<SigningKey>, ttl: u32, now: u64) -> Result<Self, ZoneKeysError> {
        if keys.len() > MAX_KEYS {
            return Err(ZoneKeysError::TooMany(apex));
        }
        let id = |key: &SigningKey| (key.tag(), key.algorithm_number());
        for (index, key) in keys.iter().enumerate() {
            if keys[..index].iter().any(|other| id(other) == id(key)) {
                return Err(ZoneKeysError::SameTag(apex, key.tag()));
            }
        }
        let mut changes: Vec<u64> = keys.iter().flat_map(|key| key.times().changes()).chain([0]).collect();
        changes.sort_unstable();
        changes.dedup();
        let phases: Vec<_> = changes.iter().map(|at| (*at, KeyPhase::at(&keys, &apex, ttl, *at))).collect();
        for (index, (from, phase)) in phases.iter().enumerate() {
            // A phase that is over does not matter.
            if changes.get(index + 1).is_some_and(|end| *end <= now) {
                continue;
            }
            for (signers, what) in [(&phase.key_signers, "its keys"), (&phase.zone_signers, "its records")] {
                if signers.is_empty() {
                    return Err(ZoneKeysError::Uncovered(apex, what, (*from).max(now)));
                }
            }
        }
        Ok(Self { apex, keys, phases })
    }

    /// The keys.
    #[must_use]
    pub fn keys(&self) -> &[SigningKey] {
        &self.keys
    }

    /// The DS records that the parent should have at this time, in presentation form.
    #[must_use]
    pub fn ds_texts(&self, now: u64) -> Vec<String> {
        self.ds_values(now).iter().map(|value| format!("{} IN DS {value}", self.apex)).collect()
    }

    /// The data of these records.
    #[must_use]
    pub fn ds_values(&self, now: u64) -> Vec<String> {
        let wanted = self.keys.iter().filter(|key| key.role() != KeyRole::ZoneSigning && key.times().has_ds(now));
        wanted.map(|key| key.ds_value(&self.apex)).collect()
    }

    pub(crate) fn apex(&self) -> &Name {
        &self.apex
    }

    pub(crate) fn phase(&self, now: u64) -> &KeyPhase {
        let after = self.phases.partition_point(|(from, _)| *from <= now);
        // The first phase begins at 0.
        &self.phases[after.saturating_sub(1)].1
    }

    /// The keys that sign a set of this type.
    pub(crate) fn signers(&self, rtype: RecordType, now: u64) -> impl Iterator<Item = &SigningKey> {
        let phase = self.phase(now);
        //= RFC 7344 section 4.1
        //# MUST be signed with a key that is represented in both the current DNSKEY and DS RRsets
        let is_of_keys = matches!(rtype, RecordType::DNSKEY | RecordType::CDS | RecordType::CDNSKEY);
        let places = if is_of_keys { &phase.key_signers } else { &phase.zone_signers };
        places.iter().filter_map(|place| self.keys.get(*place))
    }
}

impl KeyPhase {
    fn at(keys: &[SigningKey], apex: &Name, ttl: u32, now: u64) -> Self {
        let entry_points: Vec<&SigningKey> =
            keys.iter().filter(|key| key.role() != KeyRole::ZoneSigning && key.times().has_ds(now)).collect();
        let set = |rtype, data: Vec<Vec<u8>>| RecordSet::new(rtype, ttl, data, None).ok();
        let published = keys.iter().filter(|key| key.times().is_published(now));
        let signers = |not: KeyRole| {
            let active = keys.iter().enumerate().filter(|(_, key)| key.times().is_active(now) && key.role() != not);
            active.map(|(place, _)| place).collect()
        };
        Self {
            dnskey: set(RecordType::DNSKEY, published.map(|key| key.dnskey_data().to_vec()).collect()),
            cds: set(RecordType::CDS, entry_points.iter().map(|key| key.ds_data(apex)).collect()),
            cdnskey: set(RecordType::CDNSKEY, entry_points.iter().map(|key| key.dnskey_data().to_vec()).collect()),
            key_signers: signers(KeyRole::ZoneSigning),
            zone_signers: signers(KeyRole::KeySigning),
        }
    }

    /// The set of this type at the apex, if it is one of those that keys make.
    pub(crate) fn set(&self, rtype: RecordType) -> Option<&RecordSet> {
        match rtype {
            RecordType::DNSKEY => self.dnskey.as_ref(),
            RecordType::CDS => self.cds.as_ref(),
            RecordType::CDNSKEY => self.cdnskey.as_ref(),
            _ => None,
        }
    }
}
