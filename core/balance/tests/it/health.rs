//! Tests of active health checks.

use std::time::{Duration, Instant};

use proptest::{collection::vec, prelude::*};
use sallyport_balance::health::{
    CheckFailure, Health, HealthCheck, HealthConfig, HealthEvent, HealthState, HealthTimeout,
};

use crate::{Clock, millis, secs};

const MIDDLE: u64 = 1 << 63;

fn config() -> HealthConfig {
    HealthConfig { check: HealthCheck::Tcp, ..HealthConfig::default() }
}

/// An origin and a clock that stands at its next check.
struct Checked {
    state: HealthState,
    clock: Clock,
}

impl Checked {
    fn new(config: HealthConfig) -> Self {
        let clock = Clock::new();
        Self { state: HealthState::new(config, clock.0, 0), clock }
    }

    /// Advances to the next check, which ends with this result after `took`.
    fn check(&mut self, outcome: Result<(), CheckFailure>, took: Duration) -> Option<HealthEvent> {
        let due = self.state.next_check().unwrap();
        assert_eq!(self.state.poll_timeout(), Some((due, HealthTimeout::CheckDue)));
        self.clock.0 = due.max(self.clock.0);
        let check = self.state.check_started(self.clock.0).unwrap();
        let now = self.clock.advance(took);
        match outcome {
            Ok(()) => self.state.check_passed(check, now, MIDDLE),
            Err(why) => self.state.check_failed(check, why, now, MIDDLE),
        }
    }
}

#[test]
fn the_first_check_decides_and_then_it_takes_several() {
    let mut origin = Checked::new(config());
    assert!(origin.state.is_usable(), "usable before it was checked");
    assert_eq!(origin.state.health(), Health::Unknown);
    let status = CheckFailure::Status(500);
    assert_eq!(origin.check(Err(status), millis(5)), Some(HealthEvent::Down { why: status, failures: 1 }));
    assert!(!origin.state.is_usable());
    assert_eq!(origin.check(Ok(()), millis(5)), None);
    assert_eq!(origin.check(Err(status), millis(5)), None);
    assert_eq!(origin.check(Ok(()), millis(5)), None, "not two in a row");
    assert_eq!(origin.check(Ok(()), millis(5)), Some(HealthEvent::Up));
    assert!(origin.state.is_usable());
    for _ in 0..2 {
        assert_eq!(origin.check(Err(CheckFailure::Connect), millis(5)), None);
    }
    assert_eq!(origin.check(Ok(()), millis(5)), None);
    for _ in 0..2 {
        assert_eq!(origin.check(Err(CheckFailure::Connect), millis(5)), None);
        assert!(origin.state.is_usable());
    }
    let down = HealthEvent::Down { why: CheckFailure::Connect, failures: 3 };
    assert_eq!(origin.check(Err(CheckFailure::Connect), millis(5)), Some(down));
    assert_eq!(origin.check(Err(CheckFailure::Connect), millis(5)), None, "reported once");
    assert_eq!(origin.state.last_failure(), Some(CheckFailure::Connect));

    let mut well = Checked::new(config());
    assert_eq!(well.check(Ok(()), millis(5)), Some(HealthEvent::Up));
    assert_eq!(well.check(Err(status), millis(5)), None, "one bad check is not three");
    assert!(well.state.is_usable());
}

#[test]
fn what_hangs_has_failed_when_its_time_is_up() {
    let mut origin = Checked::new(config());
    let check = origin.state.check_started(origin.clock.0).unwrap();
    let deadline = origin.clock.0 + origin.state.config().timeout;
    assert_eq!(origin.state.poll_timeout(), Some((deadline, HealthTimeout::CheckOverdue)));
    assert_eq!(origin.state.next_check(), None, "one at a time");
    assert_eq!(origin.state.check_started(origin.clock.0), None);
    assert_eq!(origin.state.handle_timeout(deadline - millis(1), 0), None);
    let down = Some(HealthEvent::Down { why: CheckFailure::TimedOut, failures: 1 });
    assert_eq!(origin.state.handle_timeout(deadline, 0), down);
    assert_eq!(origin.state.handle_timeout(deadline, 0), None);
    let next = origin.state.next_check().unwrap();
    assert_eq!(origin.state.check_passed(check, deadline, 0), None, "it comes too late");
    assert_eq!(origin.state.next_check(), Some(next), "and changes nothing");
    assert_eq!(origin.state.health(), Health::Down);

    let later = origin.state.check_started(next).unwrap();
    assert_eq!(origin.state.check_passed(check, next, 0), None, "not taken for the one under way");
    assert_eq!(origin.state.check_passed(later, next + millis(1), 0), None);
}

#[test]
fn a_slow_answer_is_none() {
    let mut origin = Checked::new(config());
    let down = Some(HealthEvent::Down { why: CheckFailure::TimedOut, failures: 1 });
    assert_eq!(origin.check(Ok(()), secs(2)), down, "the timeout was not handled, and the answer came too late");
}

#[test]
fn no_checks_no_opinion() {
    let now = Instant::now();
    let mut state = HealthState::new(HealthConfig::default(), now, 7);
    assert!(state.is_usable() && state.next_check().is_none() && state.poll_timeout().is_none());
    assert_eq!(state.check_started(now), None);
    assert_eq!(state.handle_timeout(now + secs(100), 0), None);
}

#[test]
fn failures_are_sentences() {
    assert_eq!(CheckFailure::Status(503).to_string(), "the response has status 503");
    assert_eq!(CheckFailure::TimedOut.to_string(), "no answer in time");
}

proptest! {
    /// Checks have the interval with a tenth of jitter, however long they take; never two at once.
    #[test]
    fn checks_keep_their_interval(
        first in any::<u64>(),
        checks in vec((any::<u64>(), 0u64..6_000, any::<bool>()), 1..30),
        interval in 1_000u64..60_000,
    ) {
        let config = HealthConfig { interval: millis(interval), timeout: millis(interval.min(2_000)), ..config() };
        prop_assert_eq!(config.validate(), Ok(()));
        let start = Instant::now();
        let mut state = HealthState::new(config.clone(), start, first);
        let mut due = state.next_check().unwrap();
        prop_assert!(due >= start && due < start + secs(1));
        for (random, took, passes) in checks {
            let check = state.check_started(due).unwrap();
            let ended = due + millis(took);
            if ended >= due + config.timeout {
                state.handle_timeout(due + config.timeout, random);
                prop_assert_eq!(state.last_failure(), Some(CheckFailure::TimedOut));
            } else if passes {
                state.check_passed(check, ended, random);
            } else {
                state.check_failed(check, CheckFailure::Connect, ended, random);
            }
            let next = state.next_check().unwrap();
            prop_assert!(next >= (due + config.interval * 9 / 10).min(due + config.timeout));
            prop_assert!(next <= due + config.interval * 11 / 10 + millis(1));
            due = next;
        }
    }

    /// After the first check, the health changes exactly after as many consecutive checks as the threshold.
    #[test]
    fn opinions_change_at_their_thresholds(
        outcomes in vec(any::<bool>(), 1..60), rise in 1u32..=10, fall in 1u32..=10
    ) {
        let config = HealthConfig { healthy_threshold: rise, unhealthy_threshold: fall, ..config() };
        let mut origin = Checked::new(config);
        let (mut is_up, mut against) = (outcomes[0], 0);
        for (at, passes) in outcomes.into_iter().enumerate() {
            let event = origin.check(if passes { Ok(()) } else { Err(CheckFailure::Connect) }, millis(1));
            against = if passes == is_up { 0 } else { against + 1 };
            let changes = against == if is_up { fall } else { rise };
            if changes {
                (is_up, against) = (!is_up, 0);
            }
            prop_assert_eq!(event.is_some(), changes || at == 0);
            prop_assert_eq!(origin.state.is_usable(), is_up);
            prop_assert_eq!(event.is_none_or(|event| event == HealthEvent::Up), event.is_none() || is_up);
        }
    }
}
