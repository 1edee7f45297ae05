//! When keys change places, so that no validator ever finds a signature without its key (RFC 7583).

use super::key::KeyTimes;

/// Time for a change to reach every server, in seconds.
const PROPAGATION_SECONDS: u64 = 600;

/// The times of a former key and of its successor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlannedRollover {
    /// Those of the former key.
    pub former: KeyTimes,
    /// Those of its successor.
    pub successor: KeyTimes,
}

/// A new ZSK: its key is published before it signs (RFC 7583 section 3.2.1). `longest_ttl` is that of the zone's
/// records.
#[must_use]
pub fn plan_zsk_rollover(former: KeyTimes, now: u64, dnskey_ttl: u32, longest_ttl: u32) -> PlannedRollover {
    let active = now + u64::from(dnskey_ttl) + PROPAGATION_SECONDS;
    let removed = active + u64::from(longest_ttl) + PROPAGATION_SECONDS;
    let successor = KeyTimes { published: now, active, retired: None, removed: None, ds_from: None, ds_until: None };
    PlannedRollover { former: KeyTimes { retired: Some(active), removed: Some(removed), ..former }, successor }
}

/// A new KSK: its DS record is at the parent before its key signs (RFC 7583 section 3.3.2). `ds_seen` is when all
/// servers of the parent had the new DS record; `None`: not yet.
#[must_use]
pub fn plan_ksk_rollover(
    former: KeyTimes,
    now: u64,
    ds_seen: Option<u64>,
    parent_ds_ttl: u32,
    dnskey_ttl: u32,
) -> PlannedRollover {
    // Not before the parent has it: far in the future.
    let far = u64::from(u32::MAX);
    let change = ds_seen.map_or(far, |seen| seen.max(now) + u64::from(parent_ds_ttl) + PROPAGATION_SECONDS);
    let ds_until = ds_seen.map(|_| change + u64::from(dnskey_ttl) + PROPAGATION_SECONDS);
    let successor = KeyTimes {
        published: change,
        active: change,
        retired: None,
        removed: None,
        ds_from: Some(now),
        ds_until: None,
    };
    let end = ds_seen.map(|_| change);
    PlannedRollover { former: KeyTimes { retired: end, removed: end, ds_until, ..former }, successor }
}

/// A new CSK: both keys sign everything until the parent has the new DS record (RFC 6781 section 4.1.3).
#[must_use]
pub fn plan_csk_rollover(
    former: KeyTimes,
    now: u64,
    ds_seen: Option<u64>,
    parent_ds_ttl: u32,
    longest_ttl: u32,
) -> PlannedRollover {
    let swap = now + u64::from(longest_ttl) + PROPAGATION_SECONDS;
    let end = ds_seen.map(|seen| seen.max(swap) + u64::from(parent_ds_ttl) + PROPAGATION_SECONDS);
    let successor = KeyTimes { ds_from: Some(swap), ..KeyTimes::from(now) };
    PlannedRollover { former: KeyTimes { retired: end, removed: end, ds_until: Some(swap), ..former }, successor }
}
