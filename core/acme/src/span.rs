//! Waits by a wall clock that may jump.

use serde::{Deserialize, Serialize};
use time::{Duration, OffsetDateTime};

/// A wait from one time to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// The clock when the wait began.
    #[serde(with = "time::serde::rfc3339")]
    pub since: OffsetDateTime,
    /// The clock when it ends.
    #[serde(with = "time::serde::rfc3339")]
    pub until: OffsetDateTime,
}

impl Span {
    pub(crate) fn new(since: OffsetDateTime, length: Duration) -> Self {
        Self { since, until: since.saturating_add(length) }
    }

    /// The end of the wait if it is in the future.
    ///
    /// A clock that was turned back by more than the length of the wait was wrong when the wait began, and so its end
    /// is wrong: the wait is over. A smaller jump makes the wait up to twice as long.
    pub(crate) fn end_after(self, now: OffsetDateTime) -> Option<OffsetDateTime> {
        let length = self.until - self.since;
        let is_turned_back = now < self.since.saturating_sub(length);
        (now < self.until && !is_turned_back).then_some(self.until)
    }
}

/// A part of the length: none for the random number 0, nearly all for the greatest.
pub(crate) fn share(length: Duration, random: u64) -> Duration {
    let nanoseconds = length.whole_nanoseconds().max(0).unsigned_abs();
    // The length of centuries fits into 63 bits of nanoseconds; a longer one is cut.
    let nanoseconds = nanoseconds.min(u128::from(u64::MAX >> 1));
    let part = (nanoseconds * u128::from(random)) >> 64;
    Duration::nanoseconds(i64::try_from(part).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    const SINCE: OffsetDateTime = datetime!(2026-01-10 00:00 UTC);

    #[test]
    fn a_wait_ends_once_and_survives_a_clock_that_jumps() {
        let span = Span::new(SINCE, Duration::HOUR);
        assert_eq!(span.end_after(SINCE), Some(SINCE + Duration::HOUR));
        assert_eq!(span.end_after(SINCE + Duration::HOUR), None);
        assert_eq!(span.end_after(SINCE + Duration::DAY), None);
        assert_eq!(span.end_after(SINCE - Duration::MINUTE), Some(SINCE + Duration::HOUR));
        assert_eq!(span.end_after(SINCE - Duration::DAY), None);
        assert_eq!(Span::new(SINCE, Duration::ZERO).end_after(SINCE), None);
    }

    #[test]
    fn a_share_is_uniform() {
        assert_eq!(share(Duration::HOUR, 0), Duration::ZERO);
        assert_eq!(share(Duration::HOUR, 1 << 63), Duration::minutes(30));
        assert!(share(Duration::HOUR, u64::MAX) < Duration::HOUR);
        assert_eq!(share(-Duration::HOUR, u64::MAX), Duration::ZERO);
        assert!(share(Duration::MAX, u64::MAX) > Duration::days(36_500));
    }
}
