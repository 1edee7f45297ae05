//! Signatures that were made before.

use std::{collections::HashMap, fmt, hash::Hasher as _};

use siphasher::sip128::{Hasher128 as _, SipHasher13};

use super::key::SIGNATURE_BYTES;

/// The most signatures that a cache keeps, unless it is told otherwise.
pub const DEFAULT_CACHED_SIGNATURES: usize = 32_768;

/// Signatures by what they sign. Two halves: when the young one is full, the old one is dropped, and what is still
/// asked for has moved to the young one. So a flood of new names does not displace what is asked for all the time.
pub struct SignatureCache {
    key: [u8; 16],
    young: HashMap<(u128, u16), [u8; SIGNATURE_BYTES]>,
    old: HashMap<(u128, u16), [u8; SIGNATURE_BYTES]>,
    half: usize,
    made: u64,
}

impl SignatureCache {
    /// A cache for this many signatures. The key is 16 secret random bytes: with them nobody finds two contents with
    /// one hash.
    #[must_use]
    pub fn new(max_signatures: usize, key: [u8; 16]) -> Self {
        Self { key, young: HashMap::new(), old: HashMap::new(), half: (max_signatures / 2).max(1), made: 0 }
    }

    /// Number of signatures that were made, because the cache did not have them.
    #[must_use]
    pub fn made(&self) -> u64 {
        self.made
    }

    /// Number of signatures that it keeps now.
    #[must_use]
    pub fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    /// Whether it keeps none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn hash(&self, content: &[u8]) -> u128 {
        let mut hasher = SipHasher13::new_with_key(&self.key);
        hasher.write(content);
        u128::from_le_bytes(hasher.finish128().as_bytes())
    }

    pub(super) fn get(&mut self, id: (u128, u16)) -> Option<[u8; SIGNATURE_BYTES]> {
        if let Some(found) = self.young.get(&id) {
            return Some(*found);
        }
        let found = self.old.remove(&id)?;
        self.insert(id, found);
        Some(found)
    }

    /// Adds a signature that was made.
    pub(super) fn record(&mut self, id: (u128, u16), signature: [u8; SIGNATURE_BYTES]) {
        self.made += 1;
        self.insert(id, signature);
    }

    fn insert(&mut self, id: (u128, u16), signature: [u8; SIGNATURE_BYTES]) {
        if self.young.len() >= self.half {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(id, signature);
    }
}

impl fmt::Debug for SignatureCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SignatureCache").field("len", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_is_bounded_and_keeps_what_is_asked_for() {
        let mut cache = SignatureCache::new(100, [1; 16]);
        cache.record((0, 0), [7; 64]);
        for n in 1..10_000 {
            cache.record((n, 0), [0; 64]);
            assert_eq!(cache.get((0, 0)), Some([7; 64]), "after {n}");
            assert!(cache.len() <= 101);
        }
        assert_eq!(cache.get((1, 0)), None);
    }
}
