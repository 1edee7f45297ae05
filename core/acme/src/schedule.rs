//! What is stored of one certificate, and what happens to it.

use serde::{Deserialize, Serialize};
use time::{Duration, OffsetDateTime};

use crate::{
    Attempts, ChallengeKind, Directories, Directory, Failure, RenewalAnswer, RenewalInfo, Span, attempts::spacing,
    challenge_kinds,
};

/// A certificate with a shorter life than this is replaced at half of it, as RFC 9773 has no advice and a failure needs
/// time to be mended.
const SHORT_LIFE: Duration = Duration::days(10);

/// A certificate that a CA issued.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Issued {
    /// The certificate is valid from this time on.
    #[serde(with = "time::serde::rfc3339")]
    pub not_before: OffsetDateTime,
    /// The certificate is valid up to this time.
    #[serde(with = "time::serde::rfc3339")]
    pub not_after: OffsetDateTime,
    /// The directory that issued it.
    pub directory_url: String,
    /// The account that ordered it.
    pub account_url: String,
}

/// What is stored of one certificate.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Schedule {
    /// The names, in the form `a.example` or `*.a.example`.
    pub names: Vec<String>,
    /// The latest certificate.
    pub issued: Option<Issued>,
    /// The clock when it was issued.
    #[serde(with = "time::serde::rfc3339::option")]
    pub issued_at: Option<OffsetDateTime>,
    /// Certificates in a row that were replaced within a quarter of their life.
    pub hasty_renewals: u32,
    /// What its CA says about its renewal.
    pub renewal_info: RenewalInfo,
    /// The attempts since it was issued.
    pub attempts: Attempts,
    /// The latest failure in the words of the CA; empty if none is known.
    #[serde(default)]
    pub failure_text: String,
    /// Whether a person asked for a new one.
    pub is_requested: bool,
}

impl Issued {
    pub(crate) fn lifetime(&self) -> Duration {
        (self.not_after - self.not_before).max(Duration::ZERO)
    }

    /// The time of the renewal where the CA has no advice: two thirds of the life, or half of a short one.
    pub(crate) fn renew_at(&self) -> OffsetDateTime {
        let lifetime = self.lifetime();
        self.not_before.saturating_add(if lifetime < SHORT_LIFE { lifetime / 2 } else { lifetime * 2 / 3 })
    }

    /// The time by which it is renewed whatever the CA advises: nine tenths of its life.
    pub(crate) fn renew_by(&self) -> OffsetDateTime {
        self.not_after.saturating_sub(self.lifetime() / 10)
    }
}

impl Schedule {
    /// A certificate that has to be ordered.
    #[must_use]
    pub fn new(names: Vec<String>) -> Self {
        Self { names, ..Self::default() }
    }

    /// Records a new certificate.
    pub fn issue(&mut self, issued: Issued, now: OffsetDateTime, random: u64) {
        let age = self.issued_at.map(|at| now - at);
        let is_hasty = match (&self.issued, age) {
            (Some(previous), Some(age)) => !age.is_negative() && age < previous.lifetime() / 4,
            _ => false,
        };
        self.hasty_renewals = if is_hasty { self.hasty_renewals.saturating_add(1) } else { 0 };
        self.issued = Some(issued);
        self.issued_at = Some(now);
        self.renewal_info = RenewalInfo::default();
        self.attempts = Attempts::default();
        self.is_requested = false;
        // The first early renewal is free. A CA that wants one after the other, or a wrong clock, makes no storm.
        if self.hasty_renewals > 0 {
            self.attempts.wait = Some(Span::new(now, spacing(self.hasty_renewals, random)));
        }
    }

    /// Records a failed attempt.
    pub fn fail(
        &mut self,
        directories: &Directories,
        directory: Directory,
        failure: Failure,
        now: OffsetDateTime,
        random: u64,
    ) {
        let length = self.attempts.spacing(self.hasty_renewals, now, random);
        self.attempts.fail(directories, directory, failure, Span::new(now, length));
    }

    /// Records that a try at the staging directory succeeded.
    pub fn pass_staging(&mut self) {
        self.attempts.pass_staging();
    }

    /// Records an answer about the renewal.
    pub fn inform(&mut self, answer: RenewalAnswer, now: OffsetDateTime, random: u64) {
        self.renewal_info.record(answer, now, random);
    }

    /// A person asks for a new certificate: it is ordered without the wait after a failure. A wait that a CA asked for
    /// stays.
    pub fn request(&mut self) {
        self.is_requested = true;
        self.attempts.wait = None;
    }

    /// The kinds of challenges for the next attempt, best first.
    #[must_use]
    pub fn challenge_kinds(&self, available: &[ChallengeKind]) -> Vec<ChallengeKind> {
        challenge_kinds(&self.names, available, &self.attempts.failed_kinds)
    }
}
