//! When a CA suggests to replace a certificate (RFC 9773).

use serde::{Deserialize, Serialize};
use time::{Duration, OffsetDateTime};

use crate::{Span, attempts::spacing, span::share};

/// The shortest time between two questions.
pub const MIN_ASK_AGAIN: Duration = Duration::MINUTE;
/// The longest time between two questions.
pub const MAX_ASK_AGAIN: Duration = Duration::DAY;

/// A window of time, as a CA gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenewalWindow {
    /// The window begins.
    #[serde(with = "time::serde::rfc3339")]
    pub start: OffsetDateTime,
    /// The window ends.
    #[serde(with = "time::serde::rfc3339")]
    pub end: OffsetDateTime,
}

/// The answer of a CA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RenewalAnswer {
    /// A window.
    Window {
        /// The window, unchecked.
        window: RenewalWindow,
        /// A page with the reason for this window.
        explanation_url: Option<String>,
        /// When to ask again, from now, unchecked.
        ask_again_after: Duration,
    },
    /// The CA has no renewal information.
    Unsupported,
    /// There was no answer that can be used.
    Failed,
}

/// What is stored of a CA's answers about one certificate.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RenewalInfo {
    /// The latest window.
    pub window: Option<RenewalWindow>,
    /// A page with the reason for this window.
    pub explanation_url: Option<String>,
    /// The time within the window that was drawn.
    #[serde(with = "time::serde::rfc3339::option")]
    pub renew_at: Option<OffsetDateTime>,
    /// The wait until the next question. None before the first.
    pub ask_again: Option<Span>,
    /// Questions without an answer since the latest answer.
    pub failures: u32,
}

impl RenewalInfo {
    pub(crate) fn record(&mut self, answer: RenewalAnswer, now: OffsetDateTime, random: u64) {
        let ask_again = match answer {
            //= RFC 9773 section 4.2
            // A `RenewalInfo` object in which the end timestamp equals or precedes the start timestamp is invalid.
            // [...] clients MUST treat one as though they failed to receive any response from the server.
            RenewalAnswer::Window { window, explanation_url, ask_again_after } if window.start < window.end => {
                // The drawn time stays as long as the window does: drawing anew each time would favour early times.
                if self.window != Some(window) || self.renew_at.is_none() {
                    self.renew_at = Some(window.start.saturating_add(share(window.end - window.start, random)));
                }
                (self.window, self.explanation_url, self.failures) = (Some(window), explanation_url, 0);
                ask_again_after.clamp(MIN_ASK_AGAIN, MAX_ASK_AGAIN)
            }
            RenewalAnswer::Unsupported => {
                *self = Self::default();
                MAX_ASK_AGAIN
            }
            RenewalAnswer::Window { .. } | RenewalAnswer::Failed => {
                self.failures = self.failures.saturating_add(1);
                spacing(self.failures, random)
            }
        };
        self.ask_again = Some(Span::new(now, ask_again));
    }

    /// The time of the next question; `None` if it is due.
    pub(crate) fn asks_again_at(&self, now: OffsetDateTime) -> Option<OffsetDateTime> {
        self.ask_again?.end_after(now)
    }
}
