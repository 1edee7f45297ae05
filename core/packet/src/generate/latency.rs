//! Latencies in buckets: 32 for each power of two, so that no value is off by more than 3.2 %.

use std::time::Duration;

/// Bits of a value below its highest that tell the bucket.
const PART_BITS: u32 = 5;
/// The highest power of two: 137 s.
const MAX_POWER: u32 = 36;
/// The number of buckets.
pub const BUCKETS: usize = ((MAX_POWER - PART_BITS + 2) << PART_BITS) as usize;

/// How many latencies fell into each bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Latency {
    buckets: Vec<u64>,
    longest: u64,
    sum: u64,
}

/// The bucket of a number of nanoseconds. `bucket_of` of packet/bpf/generate.bpf.c is the same.
#[must_use]
pub fn bucket_of(value: u64) -> usize {
    if value < 1 << PART_BITS {
        return value as usize;
    }
    let power = value.ilog2();
    if power > MAX_POWER {
        return BUCKETS - 1;
    }
    let part = (value >> (power - PART_BITS)) & ((1 << PART_BITS) - 1);
    ((power - PART_BITS + 1) << PART_BITS) as usize + part as usize
}

/// The highest number of nanoseconds of a bucket.
fn highest_of(bucket: usize) -> u64 {
    let (power, part) = (bucket as u32 >> PART_BITS, bucket as u64 & ((1 << PART_BITS) - 1));
    if power == 0 {
        return part;
    }
    ((((1 << PART_BITS) + part + 1) << (power - 1)) - 1).max(1)
}

impl Default for Latency {
    fn default() -> Self {
        Self { buckets: vec![0; BUCKETS], longest: 0, sum: 0 }
    }
}

impl Latency {
    /// Adds what a processor has counted.
    pub fn add(&mut self, buckets: impl IntoIterator<Item = u64>, longest: u64, sum: u64) {
        for (own, other) in self.buckets.iter_mut().zip(buckets) {
            *own += other;
        }
        self.longest = self.longest.max(longest);
        self.sum += sum;
    }

    /// The number of latencies.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The latency that this share of all does not exceed; `None` without any.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let wanted = (self.count() as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        let bucket = self.buckets.iter().position(|count| {
            seen += count;
            seen >= wanted
        })?;
        Some(Duration::from_nanos(highest_of(bucket).min(self.longest)))
    }

    /// The longest; `None` without any.
    #[must_use]
    pub fn longest(&self) -> Option<Duration> {
        (self.count() > 0).then(|| Duration::from_nanos(self.longest))
    }

    /// The mean; `None` without any.
    #[must_use]
    pub fn mean(&self) -> Option<Duration> {
        self.sum.checked_div(self.count()).map(Duration::from_nanos)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_bucket_is_at_most_a_thirtieth_wide(value in 0_u64..1 << 37) {
            let highest = highest_of(bucket_of(value));
            prop_assert!(highest >= value, "{highest} is below {value}");
            prop_assert!(highest - value <= value / 31, "{highest} is far from {value}");
            prop_assert_eq!(bucket_of(highest), bucket_of(value));
            prop_assert_eq!(bucket_of(highest + 1).min(BUCKETS - 1), (bucket_of(value) + 1).min(BUCKETS - 1));
        }
    }

    #[test]
    fn quantiles_are_of_all_processors() {
        let mut latency = Latency::default();
        assert_eq!((latency.quantile(0.5), latency.longest(), latency.mean()), (None, None, None));
        for (value, count) in [(1_000, 98), (50_000, 1), (2_000_000, 1)] {
            let mut buckets = vec![0; BUCKETS];
            buckets[bucket_of(value)] = count;
            latency.add(buckets, value, value * count);
        }
        let at = |share| latency.quantile(share).unwrap().as_nanos();
        assert!((1_000..1_040).contains(&at(0.5)) && (50_000..51_700).contains(&at(0.99)), "{} {}", at(0.5), at(0.99));
        assert_eq!((at(1.0), latency.mean()), (2_000_000, Some(Duration::from_nanos(21_480))));
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }
}
