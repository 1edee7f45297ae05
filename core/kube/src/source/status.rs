//! What the status of objects has.

use super::Protocol;

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

/// `status.loadBalancer.ingress`.
pub type LoadBalancerStatus = Vec<LoadBalancerIngress>;

/// A public name in the status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadBalancerIngress {
    /// The name.
    pub hostname: String,
    /// The ports of the object that it serves.
    pub ports: Vec<PortStatus>,
}

/// A port in the status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortStatus {
    /// The port of the Service.
    pub port: u16,
    /// Its protocol.
    pub protocol: Protocol,
    /// Why it is not served, in one word.
    pub error: Option<String>,
}
