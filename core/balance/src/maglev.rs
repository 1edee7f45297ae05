//! Maglev consistent hashing with weights: keeps a client with the same origin.
//!
//! After "Maglev: A Fast and Reliable Software Network Load Balancer" (NSDI 2016, section 3.4), with weights as in
//! Envoy.
//!
//! Every origin has its own permutation of the table's slots. In turns, each origin takes the next free slot of its
//! permutation; heavier origins have more turns. So the slots are shared almost evenly, and when an origin comes or
//! goes, nearly all other slots keep their origin. A client's hash selects a slot.
//!
//! Permutations and hashes are keyed with a secret, so that no client can choose an address that selects a certain
//! origin.

use crate::{HashKey, OriginId, Weight, hash::Purpose};

/// Slots of a small table: a prime, and 8 KiB, because there are many sockets and most have few origins.
pub const SMALL_TABLE_SLOTS: usize = 4_093;
/// Slots of a large table, the size of the paper's smaller one: a prime, and 128 KiB.
pub const LARGE_TABLE_SLOTS: usize = 65_537;
/// Least number of slots for the origin with the least weight: the paper's rule for a spread within one percent. Pools
/// that would have fewer get a large table.
pub const MIN_SLOTS_PER_ORIGIN: usize = 100;
/// The most origins of a table; more than the tunnels of a socket.
pub const MAX_ORIGINS: usize = 1_024;

/// Slots that are searched for a usable origin before all origins are searched in turn.
const MAX_STEPS: usize = 256;

/// A table of origins, rebuilt when an origin comes, goes or changes its weight, but not when one is unusable for a
/// while.
#[derive(Debug, Clone)]
pub struct Maglev {
    origins: Box<[OriginId]>,
    /// Indexes into `origins`.
    slots: Box<[u16]>,
}

/// Too many origins for a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a table has at most {MAX_ORIGINS} origins, not {count}")]
pub struct TooManyOrigins {
    /// The number of given origins.
    pub count: usize,
}

/// The permutation of an origin: from `offset` on, every `skip`th slot.
struct Preference {
    next: usize,
    skip: usize,
    weight: u64,
    target: u64,
}

impl Maglev {
    /// Builds the table for these origins, in any order. A duplicate counts once, with the first weight; an origin of
    /// weight 0 gets no slot. The size follows from the weights: [`SMALL_TABLE_SLOTS`], unless an origin would have
    /// fewer than [`MIN_SLOTS_PER_ORIGIN`]. When the size changes, most clients change their origin.
    ///
    /// # Errors
    /// There are more than [`MAX_ORIGINS`].
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

    /// The origin of the client with this hash ([`HashKey::client`]); `None` if the table is empty. Allocates nothing.
    #[must_use]
    pub fn lookup(&self, hash: u64) -> Option<&OriginId> {
        self.origins.get(usize::from(*self.slots.get(self.slot(hash)?)?))
    }

    /// The origin of the client with this hash, or another one if that is not usable. The replacement is the same for a
    /// client as long as the same origins are usable, and differs between the clients of one origin, so that the
    /// clients of a failed origin are spread over the others. `None` if no origin is usable. Allocates nothing.
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
        // Only few of many origins are usable.
        let first = start % self.origins.len();
        self.origins[first..].iter().chain(&self.origins[..first]).find(|origin| usable(origin))
    }

    /// The origin of each slot, in the order of the slots.
    pub fn owners(&self) -> impl Iterator<Item = &OriginId> {
        self.slots.iter().filter_map(|index| self.origins.get(usize::from(*index)))
    }

    /// Whether the table has no origin.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.origins.is_empty()
    }

    /// Number of slots: 0 if the table is empty.
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
    // The heaviest origin takes a slot in every round, so there are no more rounds than slots.
    for round in 1..=count as u64 {
        for (index, preference) in (0u16..).zip(&mut preferences) {
            // A lighter origin takes part in a share of the rounds: its weight divided by the greatest.
            if round * preference.weight < preference.target {
                continue;
            }
            preference.target += greatest;
            // The count is a prime, so every slot comes up before one repeats.
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
