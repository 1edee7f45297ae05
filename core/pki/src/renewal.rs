//! Decides when a certificate is replaced.

use time::OffsetDateTime;

/// The action for a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewal {
    /// Valid; replace it at this time.
    NotYet {
        /// Time at which two thirds of its validity have passed.
        at: OffsetDateTime,
    },
    /// Still valid, but two thirds of its validity have passed: replace it.
    Due,
    /// Not valid at this time (expired, or the clock is before its start): do not use it.
    Invalid,
}

/// Decides by the wall clock, which may jump in both directions. Each call depends only on `now`: after the clock is
/// set back, a certificate may be valid again, or `Invalid` before its start.
#[must_use]
pub fn renewal(not_before: OffsetDateTime, not_after: OffsetDateTime, now: OffsetDateTime) -> Renewal {
    let at = not_before + (not_after - not_before) * 2 / 3;
    if now < not_before || now >= not_after {
        Renewal::Invalid
    } else if now >= at {
        Renewal::Due
    } else {
        Renewal::NotYet { at }
    }
}

#[cfg(test)]
mod tests {
    use time::{Duration, macros::datetime};

    use super::*;

    const BEGIN: OffsetDateTime = datetime!(2026-01-01 00:00 UTC);
    const END: OffsetDateTime = datetime!(2026-01-31 00:00 UTC);

    #[test]
    fn a_certificate_is_replaced_at_two_thirds_of_its_life() {
        let at = datetime!(2026-01-21 00:00 UTC);
        assert_eq!(renewal(BEGIN, END, BEGIN), Renewal::NotYet { at });
        assert_eq!(renewal(BEGIN, END, at - Duration::SECOND), Renewal::NotYet { at });
        assert_eq!(renewal(BEGIN, END, at), Renewal::Due);
        assert_eq!(renewal(BEGIN, END, END - Duration::SECOND), Renewal::Due);
        assert_eq!(renewal(BEGIN, END, END), Renewal::Invalid);
    }

    #[test]
    fn a_clock_that_jumps_is_taken_as_it_is() {
        assert_eq!(renewal(BEGIN, END, END + Duration::days(3_650)), Renewal::Invalid);
        assert_eq!(renewal(BEGIN, END, BEGIN - Duration::SECOND), Renewal::Invalid);
        assert_eq!(renewal(BEGIN, END, OffsetDateTime::UNIX_EPOCH), Renewal::Invalid);
        assert!(matches!(renewal(BEGIN, END, BEGIN + Duration::DAY), Renewal::NotYet { .. }));
    }

    #[test]
    fn a_life_of_no_length_or_less_is_never_used() {
        assert_eq!(renewal(BEGIN, BEGIN, BEGIN), Renewal::Invalid);
        assert_eq!(renewal(END, BEGIN, datetime!(2026-01-15 00:00 UTC)), Renewal::Invalid);
    }
}
