//! When a socket is tried again after a failure.

use std::{collections::BTreeMap, time::Duration};

use crate::ExposureKey;

/// The pause after the first failure; each further one doubles it.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause after failures that time may heal.
const LONGEST_PAUSE: Duration = Duration::from_mins(1);
/// The pause after a refusal, which only a change heals: of the object, the quota or the account.
const REFUSED_PAUSE: Duration = Duration::from_mins(5);
/// The longest pause that the API can ask for.
const LONGEST_ASKED: Duration = Duration::from_mins(10);
/// The most keys with a pause; beyond that, the one that ends first is forgotten.
const MAX_PAUSES: usize = 20_000;

/// Why the API did not do what was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// 409, `name-taken`: another socket of the account has the name.
    NameTaken,
    /// 409, `domain-taken`, `label-taken` or `port-taken`: another socket has it.
    Taken,
    /// 409: another one is at work on the same.
    Conflict,
    /// 412: the socket has changed since it was listed. A listing is to follow.
    Changed,
    /// 429, with the time of `Retry-After`: all keys wait.
    TooMany {
        /// `Retry-After`.
        retry_after: Option<Duration>,
    },
    /// The quota of the account is reached.
    Quota,
    /// 401 or 403: the token is wrong. All keys wait.
    Unauthorized,
    /// Another 4xx: the same request would fail again.
    Refused,
    /// 5xx, or no answer.
    Server,
}

impl Failure {
    /// The failure for a status of the API, 0 without an answer; `code` is the code of its problem.
    #[must_use]
    pub fn of(status: u16, code: &str, retry_after: Option<Duration>) -> Self {
        match status {
            401 => Self::Unauthorized,
            403 if !(code.contains("quota") || code == "limit-reached") => Self::Unauthorized,
            400..=499 if status != 429 && (code.contains("quota") || code == "limit-reached") => Self::Quota,
            409 if code == "name-taken" => Self::NameTaken,
            409 if code.ends_with("-taken") => Self::Taken,
            409 => Self::Conflict,
            412 => Self::Changed,
            429 => Self::TooMany { retry_after },
            400..=499 => Self::Refused,
            _ => Self::Server,
        }
    }

    /// The word for Events and conditions.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::NameTaken => "NameTaken",
            Self::Taken => "Taken",
            Self::Conflict => "Conflict",
            Self::Changed => "Changed",
            Self::TooMany { .. } => "RateLimited",
            Self::Quota => "QuotaReached",
            Self::Unauthorized => "Unauthorized",
            Self::Refused => "Refused",
            Self::Server => "ApiUnavailable",
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn remedy(self) -> &'static str {
        match self {
            Self::NameTaken => "rename or delete the other socket, or set sallyport.dev/name",
            Self::Taken => "choose another one in the annotation, or free it: `sallyport socket ls` shows who has it",
            Self::Conflict | Self::Changed | Self::TooMany { .. } | Self::Server => "nothing: it is tried again",
            Self::Quota => "delete sockets that nobody needs, or ask for a higher quota",
            Self::Unauthorized => "put a valid token with the scope for sockets into the Secret",
            Self::Refused => "change what the message names",
        }
    }

    fn is_of_account(self) -> bool {
        matches!(self, Self::TooMany { .. } | Self::Unauthorized)
    }
}

#[derive(Debug, Clone, Copy)]
struct Pause {
    failures: u32,
    until: Duration,
}

/// The pauses after failures. One key that fails holds up no other, except where the API refuses the whole account.
#[derive(Debug, Clone, Default)]
pub struct Backoff {
    pauses: BTreeMap<ExposureKey, Pause>,
    all: Option<Pause>,
}

impl Backoff {
    /// Remembers a failure. `random` spreads the pauses of several programs.
    pub fn failed(&mut self, key: &ExposureKey, failure: Failure, now: Duration, random: u64) {
        let failures = match failure.is_of_account() {
            true => self.all.map_or(1, |pause| pause.failures.saturating_add(1)),
            false => self.pauses.get(key).map_or(1, |pause| pause.failures.saturating_add(1)),
        };
        let doubled = FIRST_PAUSE.saturating_mul(1 << (failures - 1).min(10)).min(LONGEST_PAUSE);
        let pause = match failure {
            Failure::TooMany { retry_after: Some(asked) } => asked.clamp(FIRST_PAUSE, LONGEST_ASKED),
            Failure::Quota | Failure::Refused | Failure::Taken => REFUSED_PAUSE,
            // The next plan has the new version or the second name; only what fails all the time waits longer.
            Failure::Changed | Failure::NameTaken if failures == 1 => Duration::ZERO,
            _ => doubled,
        };
        let spread = pause.mul_f64(0.2 * (random % 1_000) as f64 / 1_000.0);
        let pause = Pause { failures, until: now.saturating_add(pause).saturating_add(spread) };
        if failure.is_of_account() {
            self.all = Some(pause);
            return;
        }
        if self.pauses.len() >= MAX_PAUSES
            && !self.pauses.contains_key(key)
            && let Some(first) = self.pauses.iter().min_by_key(|(_, pause)| pause.until).map(|(key, _)| key.clone())
        {
            self.pauses.remove(&first);
        }
        self.pauses.insert(key.clone(), pause);
    }

    /// Forgets the failures of a key: it succeeded.
    pub fn succeeded(&mut self, key: &ExposureKey) {
        self.pauses.remove(key);
        self.all = None;
    }

    /// Forgets the failures of a key, because its object has changed.
    pub fn forget(&mut self, key: &ExposureKey) {
        self.pauses.remove(key);
    }

    /// Ends the pause of the account, because the token has changed.
    pub fn token_changed(&mut self) {
        self.all = None;
    }

    /// Whether the key may be tried now.
    #[must_use]
    pub fn is_due(&self, key: &ExposureKey, now: Duration) -> bool {
        let is_over = |pause: &Pause| pause.until <= now;
        self.all.as_ref().is_none_or(is_over) && self.pauses.get(key).is_none_or(is_over)
    }

    /// When the next pause ends, if one runs.
    #[must_use]
    pub fn next(&self, now: Duration) -> Option<Duration> {
        let ends = self.pauses.values().chain(&self.all).map(|pause| pause.until);
        ends.filter(|until| *until > now).min()
    }
}
