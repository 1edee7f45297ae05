use std::collections::BTreeMap;

use super::*;
use crate::health::{FALL, RISE};

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn prefix(found: Announcement) -> PrefixHealth {
    let found = Found { announcement: found, has_address: found != Announcement::Withdrawn };
    PrefixHealth::new("198.51.100.0/24".parse().unwrap(), Timing::default(), found)
}

/// Local checks that are good, from this moment on.
fn serve(health: &mut PrefixHealth, now: Duration) {
    for _ in 0..RISE {
        health.handle_check(Cause::Listener, true, now);
        health.handle_check(Cause::Request, true, now);
    }
}

fn fail(health: &mut PrefixHealth, cause: Cause, now: Duration) {
    (0..FALL).for_each(|_| health.handle_check(cause, false, now));
}

/// Does all steps that are due at a moment.
fn steps(health: &mut PrefixHealth, now: Duration) -> Vec<Step> {
    let mut seen = Vec::new();
    while let Some(step) = health.poll_step(now) {
        health.handle_done(step, now);
        seen.push(step);
    }
    seen
}

#[test]
fn an_address_is_there_before_the_announcement_and_goes_after_the_withdrawal() {
    let mut health = prefix(Announcement::Withdrawn);
    assert_eq!(steps(&mut health, seconds(0)), [], "nothing is known yet");
    (1..RISE).for_each(|_| health.handle_check(Cause::Listener, true, seconds(1)));
    health.handle_check(Cause::Request, true, seconds(1));
    assert_eq!(steps(&mut health, seconds(1)), []);
    serve(&mut health, seconds(2));
    assert_eq!(steps(&mut health, seconds(2)), [Step::AddAddress, Step::Announce]);
    fail(&mut health, Cause::Listener, seconds(60));
    assert_eq!(health.wanted(seconds(60)).reason, "the listener of the edge is dead");
    assert_eq!(health.poll_step(seconds(60)), Some(Step::Withdraw));
    assert_eq!(health.poll_step(seconds(61)), None, "the withdrawal is not verified");
    health.handle_failed(Step::Withdraw, seconds(62));
    assert!(health.has_address() && health.poll_step(seconds(62)).is_none());
    assert_eq!(health.deadline(seconds(62)), Some(seconds(63)));
    assert_eq!(health.poll_step(seconds(63)), Some(Step::Withdraw));
    health.handle_done(Step::Withdraw, seconds(63));
    assert_eq!(steps(&mut health, seconds(63)), [Step::RemoveAddress]);
}

#[test]
fn two_failures_are_no_failure_and_four_successes_no_recovery() {
    let mut health = prefix(Announcement::Announced);
    serve(&mut health, seconds(0));
    for at in 0..30 {
        // Two of three are bad, never three in a row.
        health.handle_check(Cause::Request, at % 3 == 0, seconds(at));
        assert_eq!(steps(&mut health, seconds(at)), [], "{at}");
    }
    fail(&mut health, Cause::Request, seconds(40));
    assert_eq!(steps(&mut health, seconds(40)), [Step::Withdraw, Step::RemoveAddress]);
    for at in 100..200 {
        health.handle_check(Cause::Request, at % 5 != 0, seconds(at));
        assert_eq!(steps(&mut health, seconds(at)), [], "{at}");
    }
    serve(&mut health, seconds(200));
    assert_eq!(steps(&mut health, seconds(200)), [Step::AddAddress, Step::Announce]);
}

#[test]
fn a_hundred_flaps_in_ten_minutes_are_at_most_four_updates() {
    // Several rhythms: checks every 0.5 s, and the edge is well for a part of each six seconds.
    for good_of_twelve in [5, 6, 7, 9] {
        let mut health = prefix(Announcement::Announced);
        serve(&mut health, Duration::ZERO);
        let (mut updates, mut flaps) = (0, 0);
        for tick in 0..1200u64 {
            let now = Duration::from_millis(500 * tick);
            let is_good = tick % 12 < good_of_twelve;
            health.handle_check(Cause::Request, is_good, now);
            flaps += u32::from(tick % 12 == good_of_twelve);
            updates += steps(&mut health, now)
                .iter()
                .filter(|step| **step != Step::AddAddress && **step != Step::RemoveAddress)
                .count();
        }
        assert_eq!(flaps, 100);
        assert!((1..=4).contains(&updates), "{good_of_twelve}: {updates}");
        // It comes back once the edge is well for long enough.
        let later = seconds(600 + 601);
        serve(&mut health, later);
        assert_eq!(steps(&mut health, later), [Step::AddAddress, Step::Announce]);
    }
}

#[test]
fn irregular_flaps_are_damped_too() {
    for seed in 1..=60u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut flaps: Vec<u64> = (0..100)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state % 6000
            })
            .collect();
        flaps.sort_unstable();
        let mut health = prefix(Announcement::Announced);
        serve(&mut health, Duration::ZERO);
        let mut updates = 0;
        // A check each 100 ms, of which three in a row fail at each flap.
        for tick in 0..6000u64 {
            let now = Duration::from_millis(100 * tick);
            let is_good = !flaps.iter().any(|flap| (*flap..*flap + 3).contains(&tick));
            health.handle_check(Cause::Request, is_good, now);
            updates +=
                steps(&mut health, now).iter().filter(|step| matches!(step, Step::Announce | Step::Withdraw)).count();
        }
        assert!((1..=4).contains(&updates), "seed {seed}: {updates}");
    }
}

#[test]
fn changes_are_ten_seconds_apart_except_for_the_end() {
    let mut health = prefix(Announcement::Withdrawn);
    serve(&mut health, seconds(0));
    assert_eq!(steps(&mut health, seconds(0)), [Step::AddAddress, Step::Announce]);
    health.handle_order(Some(OrderKind::Maintain));
    assert_eq!(steps(&mut health, seconds(9)), []);
    assert_eq!(health.deadline(seconds(9)), Some(seconds(10)));
    assert_eq!(steps(&mut health, seconds(10)), [Step::Deprioritise]);
    health.handle_order(None);
    assert_eq!(steps(&mut health, seconds(19)), []);
    assert_eq!(steps(&mut health, seconds(20)), [Step::Announce]);
    health.handle_stop();
    assert_eq!(steps(&mut health, seconds(21)), [Step::Withdraw, Step::RemoveAddress]);
    assert!(health.is_stopped() && !health.is_counted());
}

#[test]
fn a_drain_waits_for_flows_or_its_bound_and_then_for_the_permit() {
    for (flows, asked_at) in [(0, 10), (7, 300)] {
        let mut health = prefix(Announcement::Announced);
        serve(&mut health, seconds(0));
        health.handle_order(Some(OrderKind::Drain));
        assert_eq!(steps(&mut health, seconds(0)), [Step::Deprioritise]);
        assert_eq!(steps(&mut health, seconds(0)), []);
        health.handle_flows(flows);
        let asks: Vec<u64> = (0..400).filter(|at| health.permit_ask(seconds(*at)).is_some()).collect();
        assert_eq!(asks.first(), Some(&asked_at));
        assert!(health.is_counted());
        health.handle_permit(PermitAsk::Drain, Err("one site is left".to_owned()), seconds(400));
        assert_eq!(steps(&mut health, seconds(400)), []);
        assert!(health.wanted(seconds(400)).reason.contains("last resort: one site is left"));
        assert_eq!((health.permit_ask(seconds(409)), health.permit_ask(seconds(410))), (None, Some(PermitAsk::Drain)));
        health.handle_permit(PermitAsk::Drain, Ok(()), seconds(410));
        assert!(!health.is_counted());
        assert_eq!(steps(&mut health, seconds(410)), [Step::Withdraw, Step::RemoveAddress]);
        assert_eq!(steps(&mut health, seconds(9000)), [], "the order holds");
        health.handle_order(None);
        assert_eq!(steps(&mut health, seconds(9000)), [Step::AddAddress, Step::Announce]);
    }
}

#[test]
fn a_shared_cause_withdraws_nothing_without_a_permit() {
    for cause in Cause::ALL.into_iter().filter(|cause| !cause.is_local()) {
        let mut health = prefix(Announcement::Announced);
        serve(&mut health, seconds(0));
        fail(&mut health, cause, seconds(1));
        assert_eq!(steps(&mut health, seconds(100_000)), [], "{cause}");
        let ask = PermitAsk::Shared(cause);
        assert_eq!(health.permit_ask(seconds(100_000)), Some(ask));
        health.handle_permit(ask, Err("no other site announces it".to_owned()), seconds(100_000));
        assert_eq!(steps(&mut health, seconds(200_000)), [], "{cause}");
        assert!(health.wanted(seconds(200_000)).reason.ends_with("still announces: no other site announces it"));
        health.handle_permit(ask, Ok(()), seconds(200_000));
        assert_eq!(steps(&mut health, seconds(200_000)), [Step::Deprioritise]);
        assert_eq!(steps(&mut health, seconds(200_000)), []);
        health.handle_flows(0);
        assert_eq!(steps(&mut health, seconds(200_010)), [Step::Withdraw, Step::RemoveAddress]);
        (0..RISE).for_each(|_| health.handle_check(cause, true, seconds(200_020)));
        assert_eq!(steps(&mut health, seconds(200_020)), [Step::AddAddress, Step::Announce]);
    }
    // A permit for one cause is none for another.
    let mut health = prefix(Announcement::Announced);
    serve(&mut health, seconds(0));
    fail(&mut health, Cause::Bus, seconds(1));
    health.handle_permit(PermitAsk::Shared(Cause::Bus), Ok(()), seconds(1));
    (0..RISE).for_each(|_| health.handle_check(Cause::Bus, true, seconds(2)));
    fail(&mut health, Cause::Control, seconds(3));
    assert_eq!(health.wanted(seconds(3)).reason, "control is away, and no permit is here yet");
    assert_eq!(steps(&mut health, seconds(100)), []);
}

#[test]
fn a_local_cause_needs_no_permit_even_while_draining() {
    let mut health = prefix(Announcement::Announced);
    serve(&mut health, seconds(0));
    health.handle_order(Some(OrderKind::Drain));
    assert_eq!(steps(&mut health, seconds(0)), [Step::Deprioritise]);
    fail(&mut health, Cause::Listener, seconds(20));
    assert_eq!(health.permit_ask(seconds(20)), None);
    assert_eq!(steps(&mut health, seconds(20)), [Step::Withdraw, Step::RemoveAddress]);
}

#[test]
fn steps_that_fail_are_tried_again_ever_less_often() {
    let mut health = prefix(Announcement::Announced);
    serve(&mut health, seconds(0));
    fail(&mut health, Cause::Listener, seconds(0));
    let tries: Vec<u64> = (0..300)
        .filter(|at| health.poll_step(seconds(*at)).inspect(|step| health.handle_failed(*step, seconds(*at))).is_some())
        .collect();
    assert_eq!(tries, [0, 1, 3, 7, 15, 31, 63, 123, 183, 243]);
    // An answer to a step that nobody took changes nothing.
    health.handle_done(Step::RemoveAddress, seconds(300));
    assert!(health.has_address());
}

mod random {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone)]
    enum Event {
        Check(usize, bool, u8),
        Order(u8),
        Permit(bool),
        Flows(u64),
        Fails,
        Stop,
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            8 => (0..Cause::ALL.len(), any::<bool>(), 1u8..6).prop_map(|(cause, good, times)| Event::Check(cause, good, times)),
            2 => (0u8..3).prop_map(Event::Order),
            2 => any::<bool>().prop_map(Event::Permit),
            2 => (0u64..3).prop_map(Event::Flows),
            1 => Just(Event::Fails),
            1 => Just(Event::Stop),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

        /// Whatever happens: an address is there while the prefix is announced, changes keep their distance, and only
        /// a local cause, the end, or a permit withdraws.
        #[test]
        fn what_always_holds(events in proptest::collection::vec((event(), 0u64..120), 1..120)) {
            let mut health = prefix(Announcement::Withdrawn);
            let (mut now, mut last_change, mut is_stopping, mut fails) = (seconds(0), None::<Duration>, false, false);
            let mut in_row: BTreeMap<Cause, u32> = BTreeMap::new();
            for (event, pause) in events {
                now += seconds(pause);
                match event {
                    Event::Check(cause, good, times) => for _ in 0..times {
                        let cause = Cause::ALL[cause];
                        health.handle_check(cause, good, now);
                        let row = in_row.entry(cause).or_default();
                        *row = if good { 0 } else { *row + 1 };
                    },
                    Event::Order(kind) => health.handle_order([None, Some(OrderKind::Maintain), Some(OrderKind::Drain)][usize::from(kind)]),
                    Event::Permit(granted) => if let Some(ask) = health.permit_ask(now) {
                        health.handle_permit(ask, granted.then_some(()).ok_or_else(|| "no".to_owned()), now);
                    },
                    Event::Flows(open) => health.handle_flows(open),
                    Event::Fails => fails = true,
                    Event::Stop => { health.handle_stop(); is_stopping = true; }
                }
                for _ in 0..8 {
                    let is_permitted = matches!(health.permit, Some((_, Permit::Granted)));
                    let Some(step) = health.poll_step(now) else { break };
                    let is_local_bad = Cause::ALL.iter().any(|cause| cause.is_local() && health.verdict(*cause) == Verdict::Bad);
                    if step == Step::Withdraw {
                        prop_assert!(is_stopping || is_local_bad || is_permitted);
                    }
                    if matches!(step, Step::Announce | Step::Deprioritise) {
                        prop_assert!(health.has_address());
                    }
                    if step == Step::RemoveAddress {
                        prop_assert_eq!(health.announcement(), Announcement::Withdrawn);
                    }
                    if std::mem::take(&mut fails) {
                        health.handle_failed(step, now);
                        continue;
                    }
                    if !matches!(step, Step::AddAddress | Step::RemoveAddress) {
                        prop_assert!(is_stopping || last_change.is_none_or(|last| now >= last + MIN_BETWEEN_CHANGES));
                        last_change = Some(now);
                    }
                    health.handle_done(step, now);
                }
                if let Some(at) = health.deadline(now) {
                    prop_assert!(at > now);
                }
            }
        }
    }
}
