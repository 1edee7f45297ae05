use std::time::Duration;

use sallyport_model::{EdgeId, OriginRef, TunnelId};

use super::*;
use crate::{
    TERM,
    report::{QuotaAssignment, STEER_SCHEMA},
};

fn origin(id: u8) -> OriginRef {
    TunnelId::from_random([id; 16]).into()
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn rate(rate: Amount) -> Quota {
    Quota { rate: Some(rate), connections: None }
}

/// A socket with these plans and rates per second.
fn socket(quotas: &[(u64, u64)]) -> (SocketQuotas, Vec<OriginRef>) {
    let origins: Vec<_> = (0..quotas.len()).map(|id| origin(u8::try_from(id).unwrap())).collect();
    let mut socket = SocketQuotas::default();
    let limited: Vec<_> = origins.iter().map(|origin| (*origin, Some(Quota::NOTHING))).collect();
    socket.set_origins(&limited, Duration::ZERO);
    let assigned: Vec<_> =
        origins.iter().zip(quotas).map(|(origin, (plan, all))| (*origin, plan * 1_000, rate(all * 1_000))).collect();
    socket.assign(&assigned, Applies::Fully, Duration::ZERO);
    (socket, origins)
}

/// How many of evenly coming requests each origin gets at once, in a time; the last count is of those that wait or are
/// refused.
fn spread(socket: &mut SocketQuotas, origins: &[OriginRef], rps: u64, seconds: u64) -> Vec<u64> {
    let mut counts = vec![0; origins.len() + 1];
    for number in 0..rps * seconds {
        let now = Duration::from_micros(1_000_000 * number / rps);
        match socket.take(origins, Turn::New, now, now) {
            Taken::Now(at) => counts[at] += 1,
            _ => counts[origins.len()] += 1,
        }
    }
    counts
}

#[test]
fn requests_follow_the_plan_and_then_the_nearest_rest() {
    let (mut quotas, origins) = socket(&[(90, 100), (10, 50)]);
    let counts = spread(&mut quotas, &origins, 100, 10);
    assert!(counts[0].abs_diff(900) <= 20 && counts[1].abs_diff(100) <= 20, "{counts:?}");
    // Twice as many come: first the rest of the nearest one, then that of the other one.
    let (mut quotas, origins) = socket(&[(90, 150), (10, 100)]);
    let counts = spread(&mut quotas, &origins, 140, 10);
    assert!(counts[0].abs_diff(1_300) <= 40 && counts[1].abs_diff(100) <= 40, "{counts:?}");
    let counts = spread(&mut socket(&[(90, 150), (10, 100)]).0, &origins, 400, 10);
    assert!(counts[0] <= 1_510 && counts[1] <= 1_010 && counts[2] >= 1_400, "never more than the quotas: {counts:?}");
}

#[test]
fn a_request_waits_for_a_unit_within_a_bound() {
    let (mut quotas, origins) = socket(&[(2, 2)]);
    let mut waits = Vec::new();
    for _ in 0..6 {
        waits.push(quotas.take(&origins, Turn::New, Duration::ZERO, ms(5_000)));
    }
    assert_eq!(waits[0], Taken::Now(0));
    assert_eq!(waits[1], Taken::Wait(0, ms(500) - TOLERANCE));
    assert_eq!(waits[2], Taken::Wait(0, ms(1_000) - TOLERANCE));
    assert_eq!(waits[3..], [Taken::Shed; 3]);
    let now = ms(480);
    assert_eq!(quotas.take(&origins, Turn::New, now, now), Taken::Shed, "nobody overtakes");
    quotas.leave_queue(origins[0]);
    assert_eq!(quotas.take(&origins, Turn::Waited, now, now), Taken::Now(0));
    // The quota is gone before the turn of the other one.
    quotas.assign(&[], Applies::Fully, now);
    quotas.leave_queue(origins[0]);
    assert_eq!(quotas.take(&origins, Turn::Waited, ms(980), ms(1_100)), Taken::Shed);
}

#[test]
fn connections_are_bounded_and_end() {
    let (mut quotas, origins) = socket(&[(1_000, 1_000)]);
    quotas.assign(&[(origins[0], 0, Quota { rate: None, connections: Some(2) })], Applies::Fully, Duration::ZERO);
    for _ in 0..2 {
        assert_eq!(quotas.take(&origins, Turn::New, ms(1), ms(1)), Taken::Now(0));
        quotas.record_sent(origins[0]);
    }
    assert_eq!(quotas.take(&origins, Turn::New, ms(1), ms(1)), Taken::Busy);
    quotas.record_answer(origins[0], ms(7), true);
    quotas.record_end(origins[0]);
    assert_eq!(quotas.take(&origins, Turn::New, ms(1), ms(1)), Taken::Now(0));
    let (_, _, count) = quotas.limited().next().unwrap();
    assert_eq!((count.sent, count.done, count.failed, count.latency_us, count.open), (2, 1, 1, 7_000, 1));
}

#[test]
fn without_an_assignment_a_limited_origin_gets_nothing_and_an_unlimited_one_all() {
    let mut quotas = SocketQuotas::default();
    quotas.set_origins(&[(origin(1), Some(Quota::NOTHING)), (origin(2), None)], Duration::ZERO);
    assert_eq!(quotas.take(&[origin(1)], Turn::New, ms(0), ms(0)), Taken::Unassigned);
    assert_eq!(quotas.take(&[origin(1), origin(2)], Turn::New, ms(0), ms(0)), Taken::Now(1));
    assert_eq!(
        quotas.take(&[origin(9)], Turn::New, ms(0), ms(0)),
        Taken::Now(0),
        "an origin that is not known has no limit"
    );
    assert_eq!(quotas.take(&[], Turn::New, ms(0), ms(0)), Taken::Shed);
    quotas.assign(&[], Applies::Fully, ms(0));
    let ask = |quotas: &mut SocketQuotas| quotas.take(&[origin(1)], Turn::New, ms(0), ms(0));
    assert_eq!(ask(&mut quotas), Taken::Unassigned, "the first quota is still to come");
    assert!(!quotas.assign(&[(origin(1), 0, rate(5_000))], Applies::Fully, ms(0)), "more than nothing");
    assert!(quotas.assign(&[], Applies::Fully, ms(0)), "an assignment that does not name the origin is one of nothing");
    assert_eq!(ask(&mut quotas), Taken::Shed);
    // The limit is gone.
    quotas.set_origins(&[(origin(1), None)], ms(0));
    assert_eq!(quotas.take(&[origin(1)], Turn::New, ms(0), ms(0)), Taken::Now(0));
    assert!(!quotas.is_limited());
}

fn assignment(term: u64, number: u64, answers: u64) -> QuotaAssignment {
    QuotaAssignment {
        schema: STEER_SCHEMA,
        edge: EdgeId::from_random([1; 16]),
        epoch: 5,
        term,
        number,
        answers,
        base: 0,
        edges: 0,
        suspects: Vec::new(),
        quotas: Vec::new(),
    }
}

#[test]
fn an_assignment_counts_from_the_report_that_it_answers() {
    let mut follower = AssignmentFollower::new(EdgeId::from_random([1; 16]), 5);
    assert!(!follower.is_valid(ms(0)));
    assert_eq!(follower.begin_report(ms(1_000)).number, 1);
    assert_eq!(follower.handle_assignment(&assignment(3, 1, 9)), Err(Refused::Unasked));
    assert_eq!(follower.handle_assignment(&assignment(3, 1, 1)), Ok(Applies::Shrinking));
    assert_eq!(follower.handle_assignment(&assignment(3, 1, 1)), Err(Refused::Old));
    assert_eq!(follower.handle_assignment(&assignment(2, 7, 1)), Err(Refused::FormerLeader));
    let other = QuotaAssignment { epoch: 4, ..assignment(4, 1, 1) };
    assert_eq!(follower.handle_assignment(&other), Err(Refused::Misaddressed));
    assert!(follower.is_valid(ms(1_000) + TERM - ms(1)) && !follower.is_valid(ms(1_000) + TERM));
    let report = follower.begin_report(ms(2_000));
    assert_eq!((report.term, report.assignment, report.at_us), (3, 1, 2_000_000));
    assert_eq!(follower.handle_assignment(&assignment(3, 2, 2)), Ok(Applies::Fully));
    assert_eq!(follower.handle_assignment(&assignment(4, 1, 2)), Ok(Applies::Shrinking), "a later leader");
}

#[test]
fn an_edge_that_starts_again_continues_with_its_quotas() {
    let mut follower = AssignmentFollower::new(EdgeId::from_random([1; 16]), 6);
    follower.restore(ms(4_000), 3);
    assert!(follower.is_valid(ms(3_999)) && !follower.is_valid(ms(4_000)));
    assert!(!follower.poll_check(ms(2_000)) && follower.poll_check(ms(3_000)));
    follower.handle_reach(ms(3_000), 1, 2);
    assert!(follower.is_valid(ms(3_000) + TERM - ms(1)) && !follower.is_valid(ms(3_000) + TERM));
}

#[test]
fn an_edge_without_a_leader_keeps_its_quotas_as_long_as_it_reaches_a_majority() {
    let mut follower = AssignmentFollower::new(EdgeId::from_random([1; 16]), 5);
    follower.begin_report(ms(0));
    assert!(!follower.poll_check(ms(60_000)), "without an assignment there is nothing to keep");
    follower.handle_assignment(&assignment(1, 1, 1)).unwrap();
    assert!(!follower.poll_check(ms(2_000)) && follower.poll_check(ms(3_000)) && !follower.poll_check(ms(5_000)));
    let late = TERM + ms(2_000);
    for (reached, others, keeps) in
        [(0, 0, true), (0, 1, false), (1, 1, true), (1, 2, true), (1, 3, false), (2, 3, true)]
    {
        let mut follower = follower.clone();
        follower.handle_reach(ms(3_000), reached, others);
        assert_eq!(follower.is_valid(late), keeps, "{reached} of {others}");
        assert!(!follower.is_valid(late + TERM));
    }
}
