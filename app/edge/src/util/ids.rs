//! Random bytes, and the ids of requests.

use std::sync::atomic::{AtomicU64, Ordering};

use sallyport_http::RequestId;

/// Random bytes of the operating system.
///
/// # Panics
/// The operating system gives none.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
    bytes
}

/// Makes request ids: unique in a process, random across processes. Ids are not secret, so a counter is mixed instead
/// of a system call for each.
#[derive(Debug)]
pub(crate) struct RequestIds {
    keys: [u64; 2],
    count: AtomicU64,
}

impl RequestIds {
    /// Ids that start from these random bytes.
    pub(crate) fn new(random: [u8; 32]) -> Self {
        let mut keys = [0; 2];
        for (key, bytes) in keys.iter_mut().zip(random.as_chunks().0) {
            *key = u64::from_be_bytes(*bytes);
        }
        Self { keys, count: AtomicU64::new(0) }
    }

    /// The next id.
    pub(crate) fn next(&self) -> RequestId {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        let halves = self.keys.map(|key| mix(key.wrapping_add(count.wrapping_mul(0x9e37_79b9_7f4a_7c15))));
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&halves[0].to_be_bytes());
        bytes[8..].copy_from_slice(&halves[1].to_be_bytes());
        RequestId::from_random(bytes)
    }
}

/// The finalizer of SplitMix64, a bijection: different inputs stay different.
fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_differ_within_and_between_processes() {
        let (one, two) = (RequestIds::new([1; 32]), RequestIds::new([2; 32]));
        let ids: std::collections::HashSet<_> =
            (0..10_000).flat_map(|_| [one.next(), two.next()]).map(|id| id.to_string()).collect();
        assert_eq!(ids.len(), 20_000);
    }
}
