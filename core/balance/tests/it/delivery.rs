//! Thousands of random schedules: requests over paths that are cut, stopped and slow, to origins that die before,
//! during and after receiving something. `DELIVERY_SEED=N` repeats one schedule, `DELIVERY_SCHEDULES=N` sets their
//! number instead of [`SCHEDULES`].

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

use sallyport_balance::{Attempts, Delivery, MAX_ATTEMPTS, Next, Received};

const SCHEDULES: u64 = 5_000;
/// Number of requests in a schedule.
const REQUESTS: u64 = 20;
/// Time that an edge waits for the origin's connection, and for the response. All times in milliseconds.
const CONNECT_TIME: u64 = 1_000;
const RESPONSE_TIME: u64 = 3_000;
/// A time that never comes.
const NEVER: u64 = u64::MAX;

/// SplitMix64: the seed determines the schedule.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }
}

/// The kind of request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A request without a body, repeatable or not.
    Request { may_repeat: bool },
    /// A request with a body, which is sent once the origin has accepted the connection.
    Upload { may_repeat: bool },
    /// A connection whose client sends first: its bytes travel with the opening.
    Flow,
}

/// The path to an origin during one attempt: hops that may be faulty.
struct Path {
    delays: Vec<u64>,
    /// Time from which on this hop forwards nothing.
    cut: (usize, u64),
    /// Interval in which this hop is stopped; bytes pass at its end.
    stopped: (usize, u64, u64),
}

impl Path {
    fn random(dice: &mut Dice, is_bad: bool) -> Self {
        // Edge, connector, origin; or with another edge in between.
        let hops = 2 + usize::from(dice.percent(50));
        let delays = (0..hops).map(|_| 1 + dice.below(120)).collect();
        let hop = |dice: &mut Dice| usize::try_from(dice.below(hops as u64)).unwrap();
        let cut = (hop(dice), if is_bad && dice.percent(50) { dice.below(1_500) } else { NEVER });
        let begin = if is_bad && dice.percent(50) { dice.below(1_200) } else { NEVER };
        let stopped = (hop(dice), begin, begin.saturating_add(dice.below(2_500)));
        Self { delays, cut, stopped }
    }

    fn pass(&self, hop: usize, mut at: u64) -> Option<u64> {
        at += self.delays[hop];
        if hop == self.stopped.0 && at >= self.stopped.1 {
            at = at.max(self.stopped.2);
        }
        (hop != self.cut.0 || at < self.cut.1).then_some(at)
    }

    /// When bytes sent now by the edge arrive at the connector.
    fn forth(&self, at: u64) -> Option<u64> {
        (0..self.delays.len() - 1).try_fold(at, |at, hop| self.pass(hop, at))
    }

    /// When bytes sent now by the connector arrive at the edge.
    fn back(&self, at: u64) -> Option<u64> {
        (0..self.delays.len() - 1).rev().try_fold(at, |at, hop| self.pass(hop, at))
    }

    /// From the connector to the origin or back.
    fn last(&self, at: u64) -> Option<u64> {
        self.pass(self.delays.len() - 1, at)
    }
}

/// The result of an attempt: as seen by the edge, and what the origin did.
struct Outcome {
    seen: Seen,
    is_executed: bool,
}

enum Seen {
    Answered,
    Failed { received: Received, was_idle: bool, is_whole: bool },
}

/// An attempt over a connection that has been used before.
fn over_idle(dice: &mut Dice, path: &Path) -> Outcome {
    let failed = |received| Seen::Failed { received, was_idle: true, is_whole: true };
    let has_ended = dice.percent(30);
    if has_ended && dice.percent(50) {
        // The end is noticed before anything is sent.
        return Outcome { seen: failed(Received::Nothing), is_executed: false };
    }
    let arrived = path.forth(0).and_then(|at| path.last(at)).filter(|_| !has_ended);
    let answered = arrived.filter(|_| dice.percent(70)).and_then(|at| path.last(at)).and_then(|at| path.back(at));
    let is_answered = answered.is_some_and(|at| at < RESPONSE_TIME);
    let seen = if is_answered { Seen::Answered } else { failed(Received::Unknown) };
    Outcome { seen, is_executed: arrived.is_some() }
}

/// An attempt over a new connection.
fn over_new(dice: &mut Dice, path: &Path, kind: Kind, delivery: Delivery) -> Outcome {
    let goes_ahead = kind == Kind::Flow || delivery.may_go_ahead();
    let (dial, is_taken) = (dice.below(900), dice.percent(70));
    let dialed = path.forth(0).and_then(|at| path.last(at + dial)).and_then(|at| path.last(at));
    let reported = dialed.and_then(|at| path.back(at + dice.below(2))).unwrap_or(NEVER);
    // A death is noticed by the end of connections, or not at all.
    let lost = if path.cut.1 != NEVER && dice.percent(60) { path.cut.1 + dice.below(200) } else { NEVER };
    let known = reported.min(lost).min(CONNECT_TIME);

    let sent = if goes_ahead { 0 } else { reported };
    let is_sent = goes_ahead || (reported == known && is_taken);
    let body = if matches!(kind, Kind::Upload { .. }) { reported } else { 0 };
    let is_body_sent = !matches!(kind, Kind::Upload { .. }) || (reported == known && is_taken);

    // The connector drops a reset stream when it learns of the reset, possibly late.
    let gives_up = if reported == known { NEVER } else { path.forth(known).unwrap_or(NEVER) };
    let arrived = (is_sent && is_body_sent && is_taken)
        .then(|| path.forth(sent.max(body)))
        .flatten()
        .zip(dialed)
        .map(|(at, dialed)| at.max(dialed))
        .filter(|at| *at < gives_up)
        .and_then(|at| path.last(at));
    let is_executed = arrived.is_some_and(|_| dice.percent(85));

    let failed = |received, is_whole| Seen::Failed { received, was_idle: false, is_whole };
    let seen = if known != reported {
        failed(Received::from_sent(goes_ahead), true)
    } else if !is_taken {
        failed(Received::Nothing, true)
    } else {
        let answered = arrived.filter(|_| is_executed && dice.percent(80));
        let answered = answered.and_then(|at| path.last(at)).and_then(|at| path.back(at));
        match answered {
            Some(at) if at - reported < RESPONSE_TIME => Seen::Answered,
            _ => failed(Received::Some, !matches!(kind, Kind::Upload { .. })),
        }
    };
    Outcome { seen, is_executed }
}

/// Counters of a schedule.
#[derive(Debug, Default)]
struct Tally {
    answered: u64,
    /// Non-repeatable requests answered at the second attempt or later.
    moved: u64,
    /// Non-repeatable requests executed more than once.
    doubled: u64,
    /// Repeatable requests executed more than once.
    repeated: u64,
}

/// One request, from its first attempt to its end. `is_careless`: its edge treats everything as repeatable.
fn serve(dice: &mut Dice, kind: Kind, is_careless: bool, tally: &mut Tally) {
    let may_repeat = matches!(kind, Kind::Request { may_repeat: true } | Kind::Upload { may_repeat: true });
    let origins = 1 + dice.below(6);
    let well = dice.below(origins);
    let mut delivery = Delivery::new(may_repeat || is_careless);
    let (mut attempts, mut again) = (Attempts::new(), None);
    let mut executed: BTreeMap<u64, u64> = BTreeMap::new();
    let is_answered = loop {
        let left: Vec<u64> = (0..origins).filter(|origin| attempts.may_try(origin)).collect();
        let origin = match again.take() {
            Some(origin) => origin,
            None if left.is_empty() => break false,
            None => left[usize::try_from(dice.below(left.len() as u64)).unwrap()],
        };
        attempts.record(origin);
        let path = Path::random(dice, origin != well);
        let is_idle = kind != Kind::Flow && !delivery.wants_new_connection() && dice.percent(30);
        let outcome = if is_idle { over_idle(dice, &path) } else { over_new(dice, &path, kind, delivery) };
        *executed.entry(origin).or_default() += u64::from(outcome.is_executed);
        let Seen::Failed { received, was_idle, is_whole } = outcome.seen else {
            assert!(outcome.is_executed, "nothing is answered that was not done");
            break true;
        };
        match delivery.handle_end(received, is_whole, was_idle) {
            Next::SameOrigin => again = Some(origin),
            Next::OtherOrigin => {}
            Next::Nothing => {
                let is_certain = received == Received::Nothing && is_whole;
                assert!(!is_certain, "a request that reached no origin is tried elsewhere");
                break false;
            }
        }
    };
    assert!(attempts.count() <= MAX_ATTEMPTS);
    let times: u64 = executed.values().sum();
    tally.answered += u64::from(is_answered);
    if may_repeat {
        tally.repeated += u64::from(times > 1);
    } else {
        tally.moved += u64::from(is_answered && attempts.count() > 1);
        tally.doubled += u64::from(times > 1);
        assert!(is_careless || times <= 1, "{kind:?} was done {times} times: {executed:?}");
    }
}

fn schedule(seed: u64, is_careless: bool, tally: &mut Tally) {
    let mut dice = Dice(seed);
    for _ in 0..REQUESTS {
        let may_repeat = dice.percent(40);
        let kind = match dice.below(3) {
            0 => Kind::Request { may_repeat },
            1 => Kind::Upload { may_repeat },
            _ => Kind::Flow,
        };
        serve(&mut dice, kind, is_careless, tally);
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a whole number"))
}

#[test]
fn nothing_is_done_twice_that_may_not_be_repeated() {
    let one = number("DELIVERY_SEED");
    let count = number("DELIVERY_SCHEDULES").unwrap_or(SCHEDULES);
    let mut tally = Tally::default();
    for seed in one.map_or(0..count, |seed| seed..seed + 1) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| schedule(seed, false, &mut tally))) {
            eprintln!("the schedule of DELIVERY_SEED={seed} failed");
            resume_unwind(panic);
        }
    }
    if one.is_none() && count >= SCHEDULES {
        // Otherwise there was no failure that the edge could have made worse.
        assert!(
            tally.answered > count * REQUESTS / 3 && tally.moved > count && tally.repeated > count / 10,
            "{tally:?}"
        );
    }
}

#[test]
fn an_edge_that_repeats_everything_is_caught_by_these_schedules() {
    let mut tally = Tally::default();
    (0..200).for_each(|seed| schedule(seed, true, &mut tally));
    assert!(tally.doubled > 20, "{tally:?}");
}
