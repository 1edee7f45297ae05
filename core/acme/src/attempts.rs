//! The attempts since the latest certificate: how they failed, and when and where the next one goes.

use serde::{Deserialize, Serialize};
use time::{Duration, OffsetDateTime};

use crate::{ChallengeKind, Directories, Directory, Failure, Span, span::share};

/// The shortest time between two attempts that failed.
pub const MIN_SPACING: Duration = Duration::MINUTE;
/// The longest time between two attempts, while they are urgent.
pub const MAX_SPACING: Duration = Duration::hours(6);
/// Attempts are urgent for this long after the first failure.
pub const PATIENCE: Duration = Duration::days(30);
/// The time between two attempts that are no longer urgent.
pub const SPACING_AFTER_PATIENCE: Duration = Duration::DAY;
/// Consecutive faults of a CA after which the other CA is tried.
const FAULTS_BEFORE_OTHER_CA: u32 = 2;

/// What is stored of the attempts since the latest certificate.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Attempts {
    /// The failures since the latest certificate.
    pub failures: u32,
    /// The clock at the first of them.
    #[serde(with = "time::serde::rfc3339::option")]
    pub first_failed_at: Option<OffsetDateTime>,
    /// The latest of them.
    pub latest_failure: Option<Failure>,
    /// The wait until the next attempt.
    pub wait: Option<Span>,
    /// The wait that the primary CA asks for.
    pub limit_of_primary: Option<Span>,
    /// The wait that the second CA asks for.
    pub limit_of_fallback: Option<Span>,
    /// Consecutive faults of the CA that is tried now.
    pub faults_of_ca: u32,
    /// Whether the second CA is tried now.
    pub is_on_fallback: bool,
    /// Whether a try at the staging directory has to succeed first.
    pub needs_staging: bool,
    /// Whether a CA refused to replace the certificate: the next order names none.
    pub is_replacing_refused: bool,
    /// The kinds of challenges that failed, oldest first.
    pub failed_kinds: Vec<ChallengeKind>,
}

impl Attempts {
    /// The directory of the next attempt.
    pub(crate) fn directory(&self, directories: &Directories) -> Directory {
        if self.needs_staging && directories.staging_url.is_some() {
            Directory::Staging
        } else if self.is_on_fallback && directories.fallback.is_some() {
            Directory::Fallback
        } else {
            Directory::Primary
        }
    }

    /// The time of the next attempt at this directory, and whether the CA asked for the wait. `None` if it is due.
    pub(crate) fn waits_until(&self, directory: Directory, now: OffsetDateTime) -> Option<(OffsetDateTime, bool)> {
        let limit = match directory {
            Directory::Primary => self.limit_of_primary,
            Directory::Fallback => self.limit_of_fallback,
            Directory::Staging => None,
        };
        let wait = self.wait.and_then(|wait| wait.end_after(now)).map(|until| (until, false));
        let limit = limit.and_then(|limit| limit.end_after(now)).map(|until| (until, true));
        wait.max(limit)
    }

    /// The wait after another failure. Renewals that come too often make it longer.
    pub(crate) fn spacing(&self, hasty_renewals: u32, now: OffsetDateTime, random: u64) -> Duration {
        if self.first_failed_at.is_some_and(|first| now - first >= PATIENCE) {
            return SPACING_AFTER_PATIENCE + share(Duration::HOUR, random);
        }
        spacing(self.failures.saturating_add(hasty_renewals).saturating_add(1), random)
    }

    /// Records a failure, after which the next attempt has this wait.
    pub(crate) fn fail(&mut self, directories: &Directories, directory: Directory, failure: Failure, wait: Span) {
        if failure == Failure::AlreadyReplaced && !self.is_replacing_refused {
            // Not a failure: the order is made again at once, and names no certificate.
            self.is_replacing_refused = true;
            return;
        }
        self.failures = self.failures.saturating_add(1);
        self.first_failed_at.get_or_insert(wait.since);
        self.latest_failure = Some(failure);
        if let Failure::Authorization { challenge: Some(kind) } = failure {
            self.failed_kinds.retain(|failed| *failed != kind);
            self.failed_kinds.push(kind);
        }
        self.wait = Some(wait);
        self.obey(directory, failure, wait.since);
        match directory {
            // A staging directory that is out of order shows nothing.
            Directory::Staging => self.needs_staging = failure.is_shown_by_staging(),
            Directory::Primary | Directory::Fallback => {
                self.needs_staging |= failure.is_shown_by_staging();
                self.blame(directories, directory, failure);
            }
        }
    }

    /// Keeps the wait that a CA asks for.
    fn obey(&mut self, directory: Directory, failure: Failure, now: OffsetDateTime) {
        let Some(length) = failure.wait() else { return };
        let limit = Some(Span::new(now, length));
        match directory {
            Directory::Primary => self.limit_of_primary = limit,
            Directory::Fallback => self.limit_of_fallback = limit,
            // Without a try, production goes on at its own pace.
            Directory::Staging => return,
        }
        // The first rate limit is obeyed to the second. A CA that names ever short ones is asked ever less often.
        if matches!(failure, Failure::RateLimited { .. }) && self.failures == 1 {
            self.wait = None;
        }
    }

    /// Counts the faults of a CA, and turns to the other one. A refusal counts at the second CA alone: the first one is
    /// the one that people have chosen.
    fn blame(&mut self, directories: &Directories, directory: Directory, failure: Failure) {
        let counts = failure.is_fault_of_ca() || directory == Directory::Fallback;
        self.faults_of_ca = if counts { self.faults_of_ca.saturating_add(1) } else { 0 };
        if self.faults_of_ca >= FAULTS_BEFORE_OTHER_CA && directories.fallback.is_some() {
            self.is_on_fallback = !self.is_on_fallback;
            self.faults_of_ca = 0;
        }
    }

    /// A try at the staging directory succeeded: production is next, at once, since the wait is over.
    pub(crate) fn pass_staging(&mut self) {
        self.needs_staging = false;
    }
}

/// The time after this many failures: doubled each time, with jitter.
pub(crate) fn spacing(failures: u32, random: u64) -> Duration {
    // A fifth of the longest time is left for the jitter.
    let longest = MAX_SPACING * 4 / 5;
    let doublings = failures.saturating_sub(1).min(16);
    let length = (MIN_SPACING * (1_i32 << doublings)).min(longest);
    length + share(length / 4, random)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_spaced_from_a_minute_to_six_hours() {
        let minutes: Vec<i64> = (1..=12).map(|failures| spacing(failures, 0).whole_minutes()).collect();
        assert_eq!(minutes, [1, 2, 4, 8, 16, 32, 64, 128, 256, 288, 288, 288]);
        assert_eq!(spacing(1, u64::MAX).whole_seconds(), 74);
        assert!(spacing(u32::MAX, u64::MAX) <= MAX_SPACING);
        assert_eq!(spacing(0, 0), MIN_SPACING);
    }
}
