//! Stateful rules: a policy, the flows that it knows, and which rule decides. Uses the parser and prefixes.

mod nft;
mod policy;
mod set;
mod tracker;

pub use nft::{POLICY_TABLE, policy_removal, policy_rules};
pub use policy::{Action, AddressMatch, Decision, Facts, MAX_MATCHES, MAX_RULES, Mismatch, Policy, PolicyError, Rule};
pub use set::{AddressSet, MAX_SET_PREFIXES};
pub use tracker::{FlowState, MAX_FLOWS, Timeouts, Tracker, TrackerFull};

use std::time::Duration;

use crate::parse::Packet;

/// A policy with the flows that it knows.
#[derive(Debug, Clone)]
pub struct Filter {
    /// The rules.
    pub policy: Policy,
    /// The flows.
    pub tracker: Tracker,
}

impl Filter {
    /// What the policy says of a packet, without a change of the known flows. `None` without an IP packet. A later
    /// fragment follows the first one, which the policy has judged.
    #[must_use]
    pub fn test(&self, packet: &Packet, ways: (Option<u32>, Option<u32>), now: Duration) -> Option<(Facts, Decision)> {
        let flow = self::tracker::flow_of(packet)?;
        let facts = Facts {
            flow,
            has_ports: self::tracker::has_ports(packet),
            state: self.tracker.state(packet, now),
            incoming: ways.0,
            outgoing: ways.1,
        };
        if self.tracker.has_first_of(packet, now) {
            return Some((facts, Decision { action: Action::Accept, rule: None }));
        }
        Some((facts, self.policy.decide(&facts)))
    }

    /// What the policy says of a packet. An accepted packet makes its flow known. `None` without an IP packet.
    ///
    /// # Errors
    /// The policy accepts the packet, and too many flows are known.
    pub fn check(
        &mut self,
        packet: &Packet,
        ways: (Option<u32>, Option<u32>),
        now: Duration,
    ) -> Result<Option<Decision>, TrackerFull> {
        let Some((facts, decision)) = self.test(packet, ways, now) else { return Ok(None) };
        if decision.action == Action::Accept && facts.state != FlowState::Invalid {
            self.tracker.track(packet, now)?;
        }
        if decision.action == Action::Accept {
            self.tracker.remember(packet, now);
        }
        Ok(Some(decision))
    }
}
