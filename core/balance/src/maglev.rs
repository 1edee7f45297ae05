//! The same origin for the same client: consistent hashing after "Maglev: A Fast and Reliable Software Network Load
//! Balancer" (NSDI 2016, section 3.4), with weights as in Envoy.
//!
//! Every origin has its own order in which it would like the slots of the table; in turns, more turns for more weight,
//! each takes the next slot it likes that is free. So the slots are shared out almost evenly, and when an origin comes
//! or goes, nearly all others keep theirs. A client's hash names a slot.
//!
//! Orders and hashes are keyed with a secret, so nobody can choose an address that lands on a certain origin.

use crate::{HashKey, OriginId, Weight, hash::Purpose};

/// How many slots a small table has: a prime, and 8 KiB, since most sockets have a few origins and there are many
/// sockets.
pub const SMALL_TABLE_SLOTS: usize = 4_093;
/// How many slots a large table has, the size of the paper's smaller one: a prime, and 128 KiB.
pub const LARGE_TABLE_SLOTS: usize = 65_537;
/// How many slots there are at least for the origin of the least weight: the paper's rule for a spread within one
/// percent. Pools that would have fewer get a large table.
pub const MIN_SLOTS_PER_ORIGIN: usize = 100;
/// How many origins a table has at most; more than a socket can have tunnels.
pub const MAX_ORIGINS: usize = 1_024;

/// How many slots further on a usable origin is looked for before all origins are gone through in turn.
const MAX_STEPS: usize = 256;

/// A table of origins, made anew when one comes, goes or changes its weight; not when one is only unusable for a while.
#[derive(Debug, Clone)]
pub struct Maglev {
    origins: Box<[OriginId]>,
    /// Indexes of `origins`.
    slots: Box<[u16]>,
}

/// Why there is no table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a table is made for at most {MAX_ORIGINS} origins, not for {count}")]
pub struct TooManyOrigins {
    /// How many were given.
    pub count: usize,
}

/// How an origin likes the slots: from `offset` on, every `skip`th.
struct Preference {
    next: usize,
    skip: usize,
    weight: u64,
    target: u64,
}

impl Maglev {
    /// The table for these origins. Their order does not matter; whoever is there twice counts once, with the first
    /// weight, and who has weight 0 gets no slot. The size follows from the weights: it is [`SMALL_TABLE_SLOTS`] until
    /// an origin would have fewer than [`MIN_SLOTS_PER_ORIGIN`]. When the size changes, most clients change origin.
    ///
    /// # Errors
    /// When there are more than [`MAX_ORIGINS`].
    pub fn new(key: &HashKey, origins: &[(OriginId, Weight)]) -> Result<Self, TooManyOrigins> {
        if origins.len() > MAX_ORIGINS {
            return Err(TooManyOrigins { count: origins.len() });
        }
        let mut origins: Vec<_> = origins.to_vec();
        origins.sort_by_key(|(id, _)| *id);
        origins.dedup_by_key(|(id, _)| *id);
        origins.retain(|(_, weight)| *weight != Weight::ZERO);
        let slots = fill(key, &origins, slots_for(&origins));
        Ok(Self { origins: origins.into_iter().map(|(id, _)| id).collect(), slots })
    }

    /// The origin of the client with this hash ([`HashKey::client`]); None when the table is empty. Allocates nothing.
    #[must_use]
    pub fn lookup(&self, hash: u64) -> Option<&OriginId> {
        self.origins.get(usize::from(*self.slots.get(self.slot(hash)?)?))
    }

    /// The origin of the client with this hash, or when that is not usable, another one: the same for this client as
    /// long as the same ones are usable, and different ones for the clients of one origin, so that those of an origin
    /// that fails are shared out among the others. None when none is usable. Allocates nothing.
    #[must_use]
    pub fn lookup_usable(&self, hash: u64, usable: impl Fn(&OriginId) -> bool) -> Option<&OriginId> {
        let start = self.slot(hash)?;
        let onward = self.slots[start..].iter().chain(&self.slots[..start]).take(MAX_STEPS);
        let mut unusable = None;
        for index in onward {
            let origin = self.origins.get(usize::from(*index))?;
            if unusable == Some(index) {
                continue;
            }
            if usable(origin) {
                return Some(origin);
            }
            unusable = Some(index);
        }
        // Few of many are usable.
        let first = start % self.origins.len();
        self.origins[first..].iter().chain(&self.origins[..first]).find(|origin| usable(origin))
    }

    /// Whether there is no origin in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.origins.is_empty()
    }

    /// How many slots it has: 0 when it is empty.
    #[must_use]
    pub fn slot_count(&self) -> usize {
        self.slots.len()
    }

    fn slot(&self, hash: u64) -> Option<usize> {
        let count = u64::try_from(self.slots.len()).ok()?;
        usize::try_from(hash.checked_rem(count)?).ok()
    }
}

fn slots_for(origins: &[(OriginId, Weight)]) -> usize {
    let weights = || origins.iter().map(|(_, weight)| usize::from(weight.get()));
    let (Some(least), total) = (weights().min(), weights().sum::<usize>()) else { return 0 };
    if SMALL_TABLE_SLOTS * least >= MIN_SLOTS_PER_ORIGIN * total { SMALL_TABLE_SLOTS } else { LARGE_TABLE_SLOTS }
}

fn fill(key: &HashKey, origins: &[(OriginId, Weight)], count: usize) -> Box<[u16]> {
    const FREE: u16 = u16::MAX;
    let mut slots = vec![FREE; count].into_boxed_slice();
    let greatest = origins.iter().map(|(_, weight)| u64::from(weight.get())).max().unwrap_or(0);
    let within = |hash: u64, count: usize| usize::try_from(hash % count.max(1) as u64).unwrap_or(0);
    let mut preferences: Vec<_> = origins
        .iter()
        .map(|(id, weight)| Preference {
            next: within(key.hash(Purpose::Offset, id), count),
            skip: within(key.hash(Purpose::Skip, id), count.saturating_sub(1)) + 1,
            weight: u64::from(weight.get()),
            target: 0,
        })
        .collect();
    let mut taken = 0;
    // Every round the origin of the greatest weight takes a slot, so there are no more rounds than slots.
    for round in 1..=count as u64 {
        for (index, preference) in (0u16..).zip(&mut preferences) {
            // Lighter origins take part in as many rounds as their weight is of the greatest.
            if round * preference.weight < preference.target {
                continue;
            }
            preference.target += greatest;
            // The count is a prime, so every slot comes up before one comes up again.
            while slots[preference.next] != FREE {
                preference.next = (preference.next + preference.skip) % count;
            }
            slots[preference.next] = index;
            taken += 1;
            if taken == count {
                return slots;
            }
        }
    }
    slots
}
