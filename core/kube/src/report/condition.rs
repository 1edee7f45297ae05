//! Conditions of objects.

use crate::{Exposures, report::Served};

/// The condition of a Service: it has its public names.
pub const CONDITION_EXPOSED: &str = "sallyport.dev/Exposed";

/// The most characters of a message.
pub const MAX_MESSAGE_CHARS: usize = 1_024;

/// Whether a condition holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// It is not known yet.
    Unknown,
}

impl ConditionStatus {
    /// The status as Kubernetes writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// A condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// Its type.
    pub condition_type: String,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// Why, in one word.
    pub reason: String,
    /// Why, for people.
    pub message: String,
    /// The generation that it is about.
    pub observed_generation: Option<i64>,
    /// When its status changed last, in seconds since 1970.
    pub last_transition: i64,
}

impl Condition {
    /// The condition to write, if it differs from the present one. The time stays unless the status changes.
    #[must_use]
    pub fn after(mut self, present: Option<&Self>) -> Option<Self> {
        if let Some(present) = present.filter(|present| present.status == self.status) {
            self.last_transition = present.last_transition;
        }
        self.message = cut(&self.message);
        (present != Some(&self)).then_some(self)
    }
}

/// The text, cut to the most characters of a message.
pub(crate) fn cut(text: &str) -> String {
    if text.chars().count() <= MAX_MESSAGE_CHARS {
        return text.to_owned();
    }
    let kept: String = text.chars().take(MAX_MESSAGE_CHARS - 3).collect();
    format!("{kept}...")
}

/// The condition [`CONDITION_EXPOSED`] of an object: `served` has what its sockets have come to, `now` is in seconds
/// since 1970.
#[must_use]
pub fn exposed(exposures: &Exposures, served: &[Served], generation: Option<i64>, now: i64) -> Condition {
    let condition = |status, reason: &str, message: String| Condition {
        condition_type: CONDITION_EXPOSED.to_owned(),
        status,
        reason: reason.to_owned(),
        message: cut(&message),
        observed_generation: generation,
        last_transition: now,
    };
    if let Some(refusal) = exposures.refusals.first() {
        let more = match exposures.refusals.len() - 1 {
            0 => String::new(),
            more => format!(" ({more} more: see its Events)"),
        };
        return condition(ConditionStatus::False, refusal.reason, format!("{}{more}", refusal.sentence()));
    }
    if let Some((port, error)) = served.iter().find_map(|one| one.error.as_ref().map(|error| (&one.port, error))) {
        return condition(ConditionStatus::False, &error.0, format!("{port}: {}", error.1));
    }
    if exposures.desired.is_empty() {
        return condition(ConditionStatus::False, "NotRequested", "no annotation and no class asks for it".to_owned());
    }
    let is_made = |port: &str| served.iter().any(|one| one.port == port && one.hostname.is_some());
    if let Some(missing) = exposures.desired.iter().find(|one| !is_made(&one.key.port)) {
        let message = format!("the socket of {} is being made", missing.key.port);
        return condition(ConditionStatus::Unknown, "Pending", message);
    }
    if let Some(idle) = served.iter().find(|one| !one.is_up) {
        let message = format!("no tunnel of {} is up yet", idle.port);
        return condition(ConditionStatus::Unknown, "Connecting", message);
    }
    let urls: Vec<_> = served.iter().filter_map(|one| one.url.clone()).collect();
    condition(ConditionStatus::True, "Exposed", urls.join(", "))
}
