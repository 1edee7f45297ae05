//! Conditions of objects.

use super::Served;
use crate::{
    Exposures,
    source::{Condition, ConditionStatus, cut},
};

/// The condition of a Service: it has its public names.
pub const CONDITION_EXPOSED: &str = "sallyport.dev/Exposed";

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
