//! The state machine of a prefix at an edge.

use std::{fmt, time::Duration};

use ipnet::IpNet;

use super::{
    checks::{Cause, Check, Verdict},
    damping::{Damping, MIN_BETWEEN_CHANGES},
};
use crate::model::{Announcement, OrderKind};

/// After how long a step that failed is tried again, at first and at most.
const RETRY: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];
/// After how long a refused permit is asked for again.
const ASK_AGAIN: Duration = Duration::from_secs(10);

/// What the adapter does next. It says afterwards whether that worked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// The service addresses are added to the interface.
    AddAddress,
    /// The prefix is announced, and the export is verified.
    Announce,
    /// The prefix is announced as the last resort, and the export is verified.
    Deprioritise,
    /// The prefix is withdrawn, and that it is no longer exported is verified.
    Withdraw,
    /// The service addresses are removed.
    RemoveAddress,
}

/// What the edge found when it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// How the prefix is announced.
    pub announcement: Announcement,
    /// Whether the service addresses are there.
    pub has_address: bool,
}

/// How long a drain takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// How long flows have for going elsewhere, at least: neighbours need it for another route.
    pub drain_at_least: Duration,
    /// After how long the prefix is withdrawn although flows go on.
    pub drain_at_most: Duration,
    /// How long the addresses stay after the withdrawal: other edges of the site may still send flows here.
    pub keep_address: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            drain_at_least: Duration::from_secs(10),
            drain_at_most: Duration::from_secs(300),
            keep_address: Duration::ZERO,
        }
    }
}

/// What is wanted of a prefix, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The state.
    pub state: Announcement,
    /// Why, in a sentence without a full stop.
    pub reason: String,
}

/// A permit that is wanted before a withdrawal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PermitAsk {
    /// An operator's order.
    Drain,
    /// A cause that may be that of all edges.
    Shared(Cause),
}

impl fmt::Display for PermitAsk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Drain => f.write_str("an operator drains the edge"),
            Self::Shared(cause) => cause.fmt(f),
        }
    }
}

#[derive(Debug, Clone)]
enum Permit {
    Granted,
    Refused(String, Duration),
}

/// A prefix at an edge. Time is what has passed since any moment; it never goes back.
#[derive(Debug)]
pub struct PrefixHealth {
    net: IpNet,
    timing: Timing,
    checks: [Check; Cause::ALL.len()],
    damping: Damping,
    order: Option<OrderKind>,
    permit: Option<(PermitAsk, Permit)>,
    /// Since when the edge deprioritises for a withdrawal.
    draining_since: Option<Duration>,
    open_flows: Option<u64>,
    is_stopping: bool,
    announcement: Announcement,
    has_address: bool,
    in_flight: Option<Step>,
    last_change: Option<Duration>,
    failures: u32,
    retry_at: Duration,
}

impl PrefixHealth {
    /// Begins with what was found.
    #[must_use]
    pub fn new(net: IpNet, timing: Timing, found: Found) -> Self {
        Self {
            net,
            timing,
            checks: Default::default(),
            damping: Damping::default(),
            order: None,
            permit: None,
            draining_since: None,
            open_flows: None,
            is_stopping: false,
            announcement: found.announcement,
            has_address: found.has_address,
            in_flight: None,
            last_change: None,
            failures: 0,
            retry_at: Duration::ZERO,
        }
    }

    /// The prefix.
    #[must_use]
    pub fn net(&self) -> IpNet {
        self.net
    }

    /// How the prefix is announced, as far as it was verified.
    #[must_use]
    pub fn announcement(&self) -> Announcement {
        self.announcement
    }

    /// Whether the service addresses are there.
    #[must_use]
    pub fn has_address(&self) -> bool {
        self.has_address
    }

    /// Takes the result of a check.
    pub fn handle_check(&mut self, cause: Cause, is_good: bool, now: Duration) {
        if self.checks[cause as usize].handle(is_good) {
            // A shared cause withdraws only by permit, and is then damped too.
            self.damping.flap(now);
        }
    }

    /// Takes the order that holds for the edge.
    pub fn handle_order(&mut self, order: Option<OrderKind>) {
        self.order = order;
    }

    /// Takes the answer to [`Self::permit_ask`]: a refusal has a sentence.
    pub fn handle_permit(&mut self, ask: PermitAsk, answer: Result<(), String>, now: Duration) {
        let permit = match answer {
            Ok(()) => Permit::Granted,
            Err(sentence) => Permit::Refused(sentence, now),
        };
        self.permit = Some((ask, permit));
    }

    /// Takes how many flows are open.
    pub fn handle_flows(&mut self, open: u64) {
        self.open_flows = Some(open);
    }

    /// The process stops: the prefix is withdrawn without delay.
    pub fn handle_stop(&mut self) {
        self.is_stopping = true;
    }

    /// The last step worked.
    pub fn handle_done(&mut self, step: Step, now: Duration) {
        if self.in_flight != Some(step) {
            return;
        }
        (self.in_flight, self.failures, self.retry_at) = (None, 0, now);
        let state = match step {
            Step::AddAddress => return self.has_address = true,
            Step::RemoveAddress => return self.has_address = false,
            Step::Announce => Announcement::Announced,
            Step::Deprioritise => Announcement::Deprioritised,
            Step::Withdraw => Announcement::Withdrawn,
        };
        self.announcement = state;
        self.last_change = Some(now);
    }

    /// The last step did not work: the former state holds, and the step is tried again later.
    pub fn handle_failed(&mut self, step: Step, now: Duration) {
        if self.in_flight != Some(step) {
            return;
        }
        self.in_flight = None;
        let delay = RETRY[0].saturating_mul(1 << self.failures.min(6)).min(RETRY[1]);
        (self.failures, self.retry_at) = (self.failures.saturating_add(1), now + delay);
    }

    /// What was seen of the prefix outside, such as after a restart of BIRD.
    pub fn handle_found(&mut self, found: Found) {
        if self.in_flight.is_none() {
            (self.announcement, self.has_address) = (found.announcement, found.has_address);
        }
    }

    /// What is wanted now, and why.
    #[must_use]
    pub fn wanted(&self, now: Duration) -> Wanted {
        let wanted = |state, reason: &str| Wanted { state, reason: reason.to_owned() };
        if self.is_stopping {
            return wanted(Announcement::Withdrawn, "the edge stops");
        }
        if let Some(cause) = self.bad(true) {
            return wanted(Announcement::Withdrawn, cause.as_str());
        }
        let ask = self.withdrawal();
        if let Some(ask) = ask {
            return self.wanted_by(ask, now);
        }
        if Cause::ALL.iter().any(|cause| cause.is_local() && self.verdict(*cause) == Verdict::Unknown) {
            return wanted(self.announcement, "the edge does not yet know whether it serves");
        }
        // What is withdrawn stays so for a while. What is announced, although a shared cause failed, stays too.
        if now < self.damping.until() && self.announcement == Announcement::Withdrawn {
            let left = (self.damping.until() - now).as_secs() + 1;
            let reason = format!("the edge failed a short while ago, and announces again after {left} s");
            return Wanted { state: Announcement::Withdrawn, reason };
        }
        match self.order {
            Some(OrderKind::Maintain) => wanted(Announcement::Deprioritised, "an operator maintains the edge"),
            _ => wanted(Announcement::Announced, "the edge serves"),
        }
    }

    /// What is wanted for a withdrawal that needs a permit.
    fn wanted_by(&self, ask: PermitAsk, now: Duration) -> Wanted {
        let wanted = |state, reason: String| Wanted { state, reason };
        let permit = self.permit.as_ref().filter(|(given, _)| *given == ask).map(|(_, permit)| permit);
        if self.announcement == Announcement::Withdrawn {
            return wanted(Announcement::Withdrawn, ask.to_string());
        }
        match (ask, permit) {
            (PermitAsk::Shared(_), None) => wanted(self.calm(), format!("{ask}, and no permit is here yet")),
            (PermitAsk::Shared(_), Some(Permit::Refused(sentence, _))) => {
                wanted(self.calm(), format!("{ask}, and the edge still announces: {sentence}"))
            }
            (PermitAsk::Drain, Some(Permit::Refused(sentence, _))) => {
                wanted(Announcement::Deprioritised, format!("{ask}, and it is the last resort: {sentence}"))
            }
            (PermitAsk::Drain, None) => wanted(Announcement::Deprioritised, ask.to_string()),
            (_, Some(Permit::Granted)) if self.is_drained(now) => wanted(Announcement::Withdrawn, ask.to_string()),
            (_, Some(Permit::Granted)) => {
                wanted(Announcement::Deprioritised, format!("{ask}, and flows have time for going elsewhere"))
            }
        }
    }

    /// What would be wanted without the shared cause.
    fn calm(&self) -> Announcement {
        match self.order {
            Some(OrderKind::Maintain | OrderKind::Drain) => Announcement::Deprioritised,
            None => Announcement::Announced,
        }
    }

    fn is_drained(&self, now: Duration) -> bool {
        let Some(since) = self.draining_since else { return false };
        let passed = now.saturating_sub(since);
        passed >= self.timing.drain_at_most || (passed >= self.timing.drain_at_least && self.open_flows == Some(0))
    }

    fn verdict(&self, cause: Cause) -> Verdict {
        self.checks[cause as usize].verdict()
    }

    /// The first cause that is bad.
    fn bad(&self, is_local: bool) -> Option<Cause> {
        Cause::ALL.into_iter().find(|cause| cause.is_local() == is_local && self.verdict(*cause) == Verdict::Bad)
    }

    /// For what a withdrawal by permit is wanted.
    fn withdrawal(&self) -> Option<PermitAsk> {
        if self.order == Some(OrderKind::Drain) {
            return Some(PermitAsk::Drain);
        }
        self.bad(false).map(PermitAsk::Shared)
    }

    /// The permit to ask for now. A drain asks only when its flows are gone: until then the edge counts for the floor.
    #[must_use]
    pub fn permit_ask(&self, now: Duration) -> Option<PermitAsk> {
        if self.is_stopping || self.bad(true).is_some() || self.announcement == Announcement::Withdrawn {
            return None;
        }
        let ask = self.withdrawal()?;
        if ask == PermitAsk::Drain && !self.is_drained(now) {
            return None;
        }
        match &self.permit {
            Some((given, Permit::Granted)) if *given == ask => None,
            Some((given, Permit::Refused(_, at))) if *given == ask && now < *at + ASK_AGAIN => None,
            _ => Some(ask),
        }
    }

    /// Whether the permits document is to name this edge: it announces, and has no permit to stop. The adapter adds the
    /// edge after the announcement was verified, and takes it out before the withdrawal.
    #[must_use]
    pub fn is_counted(&self) -> bool {
        let is_permitted = matches!(self.permit, Some((_, Permit::Granted)));
        self.announcement != Announcement::Withdrawn && !is_permitted && !self.is_stopping && self.bad(true).is_none()
    }

    /// The next step, if one is due. The next comes after [`Self::handle_done`] or [`Self::handle_failed`].
    pub fn poll_step(&mut self, now: Duration) -> Option<Step> {
        self.settle(now);
        if self.in_flight.is_some() || now < self.retry_at {
            return None;
        }
        let step = self.step(now)?;
        let is_change = !matches!(step, Step::AddAddress | Step::RemoveAddress);
        if is_change && !self.is_stopping && self.last_change.is_some_and(|last| now < last + MIN_BETWEEN_CHANGES) {
            return None;
        }
        self.in_flight = Some(step);
        Some(step)
    }

    /// Forgets a permit whose reason is gone, and notes when a drain began.
    fn settle(&mut self, now: Duration) {
        let ask = self.withdrawal();
        if self.permit.as_ref().is_some_and(|(given, _)| Some(*given) != ask) {
            self.permit = None;
        }
        let is_draining = ask.is_some() && self.announcement == Announcement::Deprioritised;
        self.draining_since = if is_draining { self.draining_since.or(Some(now)) } else { None };
    }

    fn step(&self, now: Duration) -> Option<Step> {
        let wanted = self.wanted(now).state;
        match (wanted, self.announcement) {
            (Announcement::Withdrawn, Announcement::Withdrawn) => {
                let is_due = self.last_change.is_none_or(|last| now >= last + self.timing.keep_address);
                (self.has_address && is_due).then_some(Step::RemoveAddress)
            }
            (Announcement::Withdrawn, _) => Some(Step::Withdraw),
            _ if !self.has_address => Some(Step::AddAddress),
            (Announcement::Announced, Announcement::Announced)
            | (Announcement::Deprioritised, Announcement::Deprioritised) => None,
            (Announcement::Announced, _) => Some(Step::Announce),
            (Announcement::Deprioritised, _) => Some(Step::Deprioritise),
        }
    }

    /// When to poll again at the latest, if nothing comes in.
    #[must_use]
    pub fn deadline(&self, now: Duration) -> Option<Duration> {
        let refused_at = match &self.permit {
            Some((_, Permit::Refused(_, at))) => Some(*at + ASK_AGAIN),
            _ => None,
        };
        let drain = self.draining_since.into_iter();
        let drains = drain.flat_map(|since| [since + self.timing.drain_at_least, since + self.timing.drain_at_most]);
        let change = self.last_change.map(|last| last + MIN_BETWEEN_CHANGES);
        let kept = self.last_change.filter(|_| self.has_address).map(|last| last + self.timing.keep_address);
        let times = [Some(self.retry_at), Some(self.damping.until()), refused_at, change, kept];
        times.into_iter().flatten().chain(drains).filter(|at| *at > now).min()
    }

    /// Whether the process may end: nothing is announced, and no address is left.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.is_stopping && self.announcement == Announcement::Withdrawn && !self.has_address
    }
}

#[cfg(test)]
#[path = "prefix_tests.rs"]
mod tests;
