//! The decision: what to do about a certificate now.

use std::fmt;

use time::OffsetDateTime;

use crate::{Directories, Directory, Failure, Issued, Schedule};

/// What to do about a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Nothing before this time, which is in the future.
    Wait {
        /// The time.
        until: OffsetDateTime,
        /// The reason.
        reason: WaitReason,
    },
    /// Ask the CA when to renew, then call [`Schedule::inform`].
    AskRenewalInfo {
        /// The CA that issued the certificate.
        directory: Directory,
    },
    /// Order, then call [`Schedule::issue`], [`Schedule::pass_staging`] or [`Schedule::fail`].
    Order {
        /// The CA.
        directory: Directory,
        /// Whether the order names the latest certificate as the one that it replaces (RFC 9773, section 5).
        replaces: bool,
        /// The reason.
        reason: OrderReason,
    },
}

/// Why nothing is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitReason {
    /// The certificate is good.
    Good {
        /// When it is renewed.
        renew_at: OffsetDateTime,
        /// Whether its CA suggested the time.
        is_suggested: bool,
    },
    /// The certificate is not valid yet by this clock.
    NotYetValid,
    /// The latest attempt failed.
    Failed {
        /// How it failed.
        failure: Failure,
        /// The failures in a row.
        failures: u32,
    },
    /// The CA asked to wait.
    AskedToWait,
    /// The certificate was renewed a moment ago, and is due again.
    RenewedTooOften,
}

/// Why a certificate is ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrderReason {
    /// There is none.
    Missing,
    /// The latest one is of a CA that is not configured any more. It serves until the new one is there.
    OtherDirectory,
    /// Another account ordered the latest one. It serves until the new one is there.
    OtherAccount,
    /// The latest one has expired by this clock.
    Expired,
    /// Its CA suggests it.
    Suggested,
    /// Enough of its life has passed.
    Lifetime,
    /// A person asked for it.
    Requested,
}

impl fmt::Display for WaitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Good { is_suggested: true, .. } => f.write_str("it is renewed when its CA suggests"),
            Self::Good { is_suggested: false, .. } => f.write_str("it is renewed after a part of its life"),
            Self::NotYetValid => f.write_str("it is not valid yet: the clock of this machine may be wrong"),
            Self::Failed { failure, failures } => write!(f, "{failure}; failures in a row: {failures}"),
            Self::AskedToWait => f.write_str("the CA asked to wait"),
            Self::RenewedTooOften => {
                f.write_str("it was renewed a moment ago and is due again: the clock of this machine may be wrong")
            }
        }
    }
}

impl fmt::Display for OrderReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "there is no certificate",
            Self::OtherDirectory => "the certificate is of another CA",
            Self::OtherAccount => "the certificate is of another account",
            Self::Expired => "the certificate has expired",
            Self::Suggested => "the CA suggests to renew the certificate",
            Self::Lifetime => "enough of the life of the certificate has passed",
            Self::Requested => "a new certificate was asked for",
        })
    }
}

/// When the certificate is renewed, and whether its CA suggested the time.
fn renewal(schedule: &Schedule, issued: &Issued) -> (OffsetDateTime, bool) {
    match schedule.renewal_info.renew_at {
        //= RFC 9773 section 4.2
        // If the selected time is in the past, attempt renewal immediately.
        Some(at) if at <= issued.renew_by() => (at, true),
        // A certificate must not expire because of its CA's advice.
        Some(_) => (issued.renew_by(), false),
        None => (issued.renew_at(), false),
    }
}

impl Schedule {
    /// Decides what to do now.
    #[must_use]
    pub fn next_step(&self, directories: &Directories, now: OffsetDateTime) -> Step {
        let issuer = self.issued.as_ref().and_then(|issued| directories.find(&issued.directory_url));
        let reason = match (&self.issued, issuer) {
            (None, _) => OrderReason::Missing,
            (Some(_), None) => OrderReason::OtherDirectory,
            (Some(issued), Some((_, issuer)))
                if issuer.account_url.as_ref().is_some_and(|account| *account != issued.account_url) =>
            {
                OrderReason::OtherAccount
            }
            (Some(issued), Some((directory, _))) => match self.renewal_step(issued, directory, now) {
                Ok(reason) => reason,
                Err(step) => return step,
            },
        };
        self.order(directories, reason, now)
    }

    /// Why the certificate of a configured CA is replaced now, or the step if it is not.
    fn renewal_step(&self, issued: &Issued, directory: Directory, now: OffsetDateTime) -> Result<OrderReason, Step> {
        if self.is_requested {
            return Ok(OrderReason::Requested);
        }
        if now < issued.not_before {
            // By a clock that is behind, every certificate looks like this: a new one would, too.
            return Err(Step::Wait { until: issued.not_before, reason: WaitReason::NotYetValid });
        }
        if now >= issued.not_after {
            return Ok(OrderReason::Expired);
        }
        let (renew_at, is_suggested) = renewal(self, issued);
        if is_suggested && renew_at <= now {
            return Ok(OrderReason::Suggested);
        }
        // Before the certificate is replaced for its age, its CA may know better.
        let Some(ask_at) = self.renewal_info.asks_again_at(now) else { return Err(Step::AskRenewalInfo { directory }) };
        if renew_at <= now {
            return Ok(OrderReason::Lifetime);
        }
        Err(Step::Wait { until: renew_at.min(ask_at), reason: WaitReason::Good { renew_at, is_suggested } })
    }

    /// The order, unless its time has not come.
    fn order(&self, directories: &Directories, reason: OrderReason, now: OffsetDateTime) -> Step {
        let attempts = &self.attempts;
        let directory = attempts.directory(directories);
        if let Some((until, is_asked)) = attempts.waits_until(directory, now) {
            let reason = match attempts.latest_failure {
                _ if is_asked => WaitReason::AskedToWait,
                Some(failure) => WaitReason::Failed { failure, failures: attempts.failures },
                None => WaitReason::RenewedTooOften,
            };
            return Step::Wait { until, reason };
        }
        let is_of_ours = !matches!(reason, OrderReason::OtherDirectory | OrderReason::OtherAccount);
        let issuer = self.issued.as_ref().and_then(|issued| directories.find(&issued.directory_url));
        let is_same_ca = issuer.is_some_and(|(issuer, _)| issuer == directory);
        let replaces = is_of_ours && is_same_ca && !attempts.is_replacing_refused;
        Step::Order { directory, replaces, reason }
    }
}
