//! Histograms of durations: counts in buckets, which can be added across edges and give percentiles of the sum.
//!
//! A bucket is a quarter of an octave of microseconds, so that a percentile is exact within a fifth.

use serde::{Deserialize, Serialize};

/// Number of buckets.
pub const SPAN_BUCKETS: usize = 102;
/// Exponent of two of the upper bound of the first bucket, in microseconds.
const FIRST_OCTAVE: u32 = 6;

/// The bucket of a duration in microseconds. Durations above 35 minutes are in the last one.
#[must_use]
pub fn span_bucket(us: u64) -> usize {
    let Some(octave) = us.checked_ilog2().and_then(|octave| octave.checked_sub(FIRST_OCTAVE)) else { return 0 };
    let quarter = (us >> (octave + FIRST_OCTAVE - 2)) & 3;
    (1 + octave as usize * 4 + quarter as usize).min(SPAN_BUCKETS - 1)
}

/// The lower bound of a bucket, in microseconds.
fn beginning_us(bucket: usize) -> u64 {
    match bucket.min(SPAN_BUCKETS - 1).checked_sub(1) {
        None => 0,
        Some(from_first) => ((4 + from_first % 4) as u64) << (from_first / 4 + FIRST_OCTAVE as usize - 2),
    }
}

/// Counts by bucket; empty buckets are left out.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SpanCounts(Vec<(u8, u64)>);

impl SpanCounts {
    /// From the counts of all buckets, in order.
    #[must_use]
    pub fn of(counts: impl IntoIterator<Item = u64>) -> Self {
        let numbered = (0_u8..).zip(counts).take(SPAN_BUCKETS);
        Self(numbered.filter(|(_, count)| *count > 0).collect())
    }

    /// Adds another histogram.
    pub fn add(&mut self, other: &Self) {
        let mut all = [0_u64; SPAN_BUCKETS];
        for (bucket, count) in self.0.iter().chain(&other.0) {
            // A received histogram may have invalid bucket numbers.
            let bucket = usize::from(*bucket).min(SPAN_BUCKETS - 1);
            all[bucket] = all[bucket].saturating_add(*count);
        }
        *self = Self::of(all);
    }

    /// The total count.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }

    /// A quantile in microseconds, given per mille; `None` for an empty histogram. Within a bucket the durations count
    /// as evenly distributed.
    #[must_use]
    pub fn quantile_us(&self, per_mille: u64) -> Option<u64> {
        let wanted = self.total().checked_mul(per_mille.min(1_000))?.div_ceil(1_000).max(1);
        let mut before = 0_u64;
        for (bucket, count) in &self.0 {
            if before.saturating_add(*count) >= wanted {
                let bucket = usize::from(*bucket);
                let (from, to) = (beginning_us(bucket), beginning_us(bucket + 1));
                let share = u128::from(to.saturating_sub(from)) * u128::from(wanted - before) / u128::from(*count);
                return Some(from.saturating_add(u64::try_from(share).unwrap_or(u64::MAX)));
            }
            before = before.saturating_add(*count);
        }
        None
    }
}

/// The shortest and the longest duration, in microseconds, as bounds for percentiles of few values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpanBounds {
    /// The shortest.
    pub least_us: u64,
    /// The longest.
    pub most_us: u64,
}

impl SpanBounds {
    /// The bounds of both together.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self { least_us: self.least_us.min(other.least_us), most_us: self.most_us.max(other.most_us) }
    }

    /// The duration, clamped to the bounds.
    #[must_use]
    pub fn clamp(self, us: u64) -> u64 {
        us.max(self.least_us).min(self.most_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_in_the_bucket_that_begins_before_it_and_ends_behind_it() {
        for us in (0..5_000).chain((12..40).flat_map(|octave| [(1_u64 << octave) - 1, 1 << octave, 3 << octave])) {
            let bucket = span_bucket(us);
            assert!(beginning_us(bucket) <= us, "{us} in {bucket}");
            assert!(bucket == SPAN_BUCKETS - 1 || us < beginning_us(bucket + 1), "{us} in {bucket}");
        }
        assert_eq!(
            (span_bucket(0), span_bucket(63), span_bucket(64), span_bucket(u64::MAX)),
            (0, 0, 1, SPAN_BUCKETS - 1)
        );
        for bucket in 1..SPAN_BUCKETS - 1 {
            assert!(beginning_us(bucket + 1) - beginning_us(bucket) <= beginning_us(bucket) / 4 + 1, "{bucket}");
        }
    }

    #[test]
    fn few_times_have_the_percentiles_that_they_have() {
        let quantile = |times: &[u64], per_mille| {
            let mut counts = [0; SPAN_BUCKETS];
            times.iter().for_each(|us| counts[span_bucket(*us)] += 1);
            let bounds = times.iter().map(|us| SpanBounds { least_us: *us, most_us: *us }).reduce(SpanBounds::with);
            bounds.unwrap().clamp(SpanCounts::of(counts).quantile_us(per_mille).unwrap())
        };
        let minute = 60_000_000;
        for per_mille in [1, 500, 990] {
            assert_eq!(quantile(&[minute], per_mille), minute, "one time is every percentile");
            assert_eq!(quantile(&[minute; 3], per_mille), minute);
        }
        assert_eq!(quantile(&[1_000, 2_000, minute], 990), minute, "none is longer than the longest");
        assert!((1_500..=2_500).contains(&quantile(&[1_000, 2_000, minute], 500)));
        // Invalid received bounds do no harm.
        assert_eq!(SpanBounds { least_us: 9, most_us: 3 }.clamp(5), 3);
    }

    #[test]
    fn percentiles_of_a_sum_are_those_of_all_times() {
        let counted = |times: &mut dyn Iterator<Item = u64>| {
            let mut counts = [0; SPAN_BUCKETS];
            times.for_each(|us| counts[span_bucket(us)] += 1);
            SpanCounts::of(counts)
        };
        let mut sum = counted(&mut (1..=9_000).map(|us| us * 10));
        sum.add(&counted(&mut (9_001..=10_000).map(|us| us * 10)));
        assert_eq!(sum.total(), 10_000);
        for (per_mille, exact) in [(500, 50_000), (990, 99_000), (1, 100), (1_000, 100_000)] {
            let quantile = sum.quantile_us(per_mille).unwrap();
            assert!(quantile.abs_diff(exact) * 5 <= exact, "{per_mille}: {quantile} for {exact}");
        }
        assert_eq!(SpanCounts::default().quantile_us(500), None);
        let travelled: SpanCounts = serde_json::from_str(&serde_json::to_string(&sum).unwrap()).unwrap();
        assert_eq!(travelled, sum);
        // Invalid received counts do no harm.
        let mut strange: SpanCounts = serde_json::from_str("[[255,18446744073709551615],[255,9]]").unwrap();
        strange.add(&sum);
        assert!(strange.total() > 0 && strange.quantile_us(999).is_none());
    }
}
