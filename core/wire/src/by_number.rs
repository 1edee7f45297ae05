//! Hash maps keyed by stream numbers.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

/// A map keyed by a number that the two ends of one session count up. Every frame needs a lookup, so the hash is fast
/// and not collision-resistant: a peer that chooses bad numbers slows down only its own session.
pub type ByNumber<K, V> = HashMap<K, V, BuildHasherDefault<NumberHasher>>;

/// Spreads small consecutive numbers.
#[derive(Debug, Clone, Copy, Default)]
pub struct NumberHasher(u64);

/// 2^64 divided by the golden ratio, and odd.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(u32::from(*byte));
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(SPREAD);
    }
}

#[cfg(test)]
mod tests {
    use std::hash::Hash as _;

    use super::*;

    #[test]
    fn numbers_in_a_row_are_spread_at_both_ends_of_the_hash() {
        let hash = |number: u32| {
            let mut hasher = NumberHasher::default();
            number.hash(&mut hasher);
            hasher.finish()
        };
        let low: std::collections::HashSet<u64> = (1..=1_024).map(|number| hash(number) & 1_023).collect();
        let high: std::collections::HashSet<u64> = (1..=1_024).map(|number| hash(number) >> 57).collect();
        assert_eq!((low.len(), high.len()), (1_024, 128));
    }
}
