//! Thousands of random schedules in which requests are sent over ways that are cut, stopped and slow, to origins that die before,
//! while and after they have got something. `DELIVERY_SEED=N` runs one schedule again, `DELIVERY_SCHEDULES=N` so many instead of
//! [`SCHEDULES`].

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

use sallyport_balance::{Attempts, Delivery, MAX_ATTEMPTS, Next, Received};

const SCHEDULES: u64 = 5_000;
/// In a schedule.
const REQUESTS: u64 = 20;
/// What an edge waits for an origin to take the connection, and for its answer. All times in milliseconds.
const CONNECT_TIME: u64 = 1_000;
const RESPONSE_TIME: u64 = 3_000;
/// Something that never happens.
const NEVER: u64 = u64::MAX;

/// SplitMix64: the schedule is all in its seed.
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

/// What is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A request that is all head, and may be repeated or not.
    Request { may_repeat: bool },
    /// One with a body, which leaves when the origin has taken the connection.
    Upload { may_repeat: bool },
    /// A connection whose client speaks first: its words travel with the opening.
    Flow,
}

/// The way to an origin for the time of one attempt: hops that something may be wrong with.
struct Path {
    delays: Vec<u64>,
    /// From when on this hop passes nothing on, for ever.
    cut: (usize, u64),
    /// When this hop is stopped; what comes then passes at the end of it.
    stopped: (usize, u64, u64),
}

impl Path {
    fn random(dice: &mut Dice, is_bad: bool) -> Self {
        // Edge, connector, origin; or with another edge between.
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

    /// When it arrives at the connector what leaves the edge now.
    fn forth(&self, at: u64) -> Option<u64> {
        (0..self.delays.len() - 1).try_fold(at, |at, hop| self.pass(hop, at))
    }

    /// When it arrives at the edge what leaves the connector now.
    fn back(&self, at: u64) -> Option<u64> {
        (0..self.delays.len() - 1).rev().try_fold(at, |at, hop| self.pass(hop, at))
    }

    /// From the connector to the origin or from there.
    fn last(&self, at: u64) -> Option<u64> {
        self.pass(self.delays.len() - 1, at)
    }
}

/// What came of an attempt: as the edge sees it, and what the origin did.
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
        // That is seen before anything is given to it.
        return Outcome { seen: failed(Received::Nothing), is_executed: false };
    }
    let arrived = path.forth(0).and_then(|at| path.last(at)).filter(|_| !has_ended);
    let answered = arrived.filter(|_| dice.percent(70)).and_then(|at| path.last(at)).and_then(|at| path.back(at));
    let is_answered = answered.is_some_and(|at| at < RESPONSE_TIME);
    let seen = if is_answered { Seen::Answered } else { failed(Received::Unknown) };
    Outcome { seen, is_executed: arrived.is_some() }
}

/// An attempt over a new connection, as edges make them.
fn over_new(dice: &mut Dice, path: &Path, kind: Kind, delivery: Delivery) -> Outcome {
    let goes_ahead = kind == Kind::Flow || delivery.may_go_ahead();
    let (dial, is_taken) = (dice.below(900), dice.percent(70));
    let dialed = path.forth(0).and_then(|at| path.last(at + dial)).and_then(|at| path.last(at));
    let said = dialed.and_then(|at| path.back(at + dice.below(2))).unwrap_or(NEVER);
    // Whoever dies is noticed by the end of its connections, or not at all.
    let lost = if path.cut.1 != NEVER && dice.percent(60) { path.cut.1 + dice.below(200) } else { NEVER };
    let known = said.min(lost).min(CONNECT_TIME);

    let sent = if goes_ahead { 0 } else { said };
    let is_sent = goes_ahead || (said == known && is_taken);
    let body = if matches!(kind, Kind::Upload { .. }) { said } else { 0 };
    let is_body_sent = !matches!(kind, Kind::Upload { .. }) || (said == known && is_taken);

    // What was given up is forgotten by the connector when it hears of that, and it may hear of it late.
    let gives_up = if said == known { NEVER } else { path.forth(known).unwrap_or(NEVER) };
    let arrived = (is_sent && is_body_sent && is_taken)
        .then(|| path.forth(sent.max(body)))
        .flatten()
        .zip(dialed)
        .map(|(at, dialed)| at.max(dialed))
        .filter(|at| *at < gives_up)
        .and_then(|at| path.last(at));
    let is_executed = arrived.is_some_and(|_| dice.percent(85));

    let failed = |received, is_whole| Seen::Failed { received, was_idle: false, is_whole };
    let seen = if known != said {
        failed(Received::unsaid(goes_ahead), true)
    } else if !is_taken {
        failed(Received::Nothing, true)
    } else {
        let answered = arrived.filter(|_| is_executed && dice.percent(80));
        let answered = answered.and_then(|at| path.last(at)).and_then(|at| path.back(at));
        match answered {
            Some(at) if at - said < RESPONSE_TIME => Seen::Answered,
            _ => failed(Received::Some, !matches!(kind, Kind::Upload { .. })),
        }
    };
    Outcome { seen, is_executed }
}

/// What happened in a schedule.
#[derive(Debug, Default)]
struct Tally {
    answered: u64,
    /// Of what may not be repeated: answered at the second attempt or later.
    moved: u64,
    /// Of what may not be repeated: done more than once.
    doubled: u64,
    /// Of what may be repeated: done more than once.
    repeated: u64,
}

/// One request, from its first attempt to its end. `is_careless`: its edge takes everything to be repeatable.
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
                assert!(!is_certain, "what has reached nobody is tried elsewhere");
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
        // Otherwise nothing has gone wrong that could have been made worse.
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
