//! What holds whatever a CA, a clock and a network do.

use std::collections::VecDeque;

use proptest::prelude::*;
use sallyport_acme_schedule::{ChallengeKind, Failure, RenewalAnswer, RenewalWindow, Step};
use time::{Duration, OffsetDateTime};

use crate::world::{FALLBACK, PRIMARY, World};

/// The most orders of one name in an hour.
///
/// Six failures fit into an hour, and a try at staging precedes each but the first. A refusal to replace and a short
/// rate limit are followed at once, and each certificate that is due again at once begins anew, with longer waits.
const MAX_ORDERS_IN_AN_HOUR: usize = 24;

#[derive(Debug, Clone)]
enum Outcome {
    Issued { lifetime: Duration, starts: Duration },
    Failed(Failure),
}

fn failure() -> impl Strategy<Value = Failure> {
    let seconds = prop_oneof![Just(None), (0_u64..200_000).prop_map(Some), any::<u64>().prop_map(Some)];
    let kind = prop_oneof![Just(None), Just(Some(ChallengeKind::Http01)), Just(Some(ChallengeKind::Dns01))];
    prop_oneof![
        seconds.clone().prop_map(|retry_after_seconds| Failure::RateLimited { retry_after_seconds }),
        seconds.prop_map(|retry_after_seconds| Failure::Server { retry_after_seconds }),
        kind.prop_map(|challenge| Failure::Authorization { challenge }),
        Just(Failure::Caa),
        Just(Failure::AlreadyReplaced),
        Just(Failure::Rejected),
        Just(Failure::Unreachable),
        Just(Failure::TimedOut),
        Just(Failure::Malformed),
        Just(Failure::Local),
    ]
}

fn outcome() -> impl Strategy<Value = Outcome> {
    let issued = (3_600_i64..8_000_000, -40_000_000_i64..40_000_000).prop_map(|(lifetime, starts)| Outcome::Issued {
        lifetime: Duration::seconds(lifetime),
        starts: Duration::seconds(starts),
    });
    prop_oneof![6 => failure().prop_map(Outcome::Failed), 1 => issued]
}

fn answer() -> impl Strategy<Value = RenewalAnswer> {
    let second = -8_000_000_i64..8_000_000;
    let window = (second.clone(), second, any::<i32>()).prop_map(|(start, end, after)| RenewalAnswer::Window {
        window: RenewalWindow {
            start: crate::world::START + Duration::seconds(start),
            end: crate::world::START + Duration::seconds(end),
        },
        explanation_url: None,
        ask_again_after: Duration::seconds(after.into()),
    });
    prop_oneof![3 => window, 1 => Just(RenewalAnswer::Unsupported), 1 => Just(RenewalAnswer::Failed)]
}

/// Runs the schedule until the outcomes are used up, and counts the orders of each hour.
fn run(world: &mut World, outcomes: Vec<Outcome>, answers: Vec<RenewalAnswer>, randoms: &[u64]) -> usize {
    let mut answers = answers.into_iter().cycle();
    let mut randoms = randoms.iter().copied().cycle();
    let (mut recent, mut most) = (VecDeque::<OffsetDateTime>::new(), 0);
    let mut outcomes = outcomes.into_iter();
    let mut questions_at_once = 0;
    loop {
        let random = randoms.next().unwrap();
        match world.step() {
            Step::Wait { until, .. } => {
                assert!(until > world.now, "a wait that is over");
                world.now = until;
                questions_at_once = 0;
            }
            Step::AskRenewalInfo { .. } => {
                questions_at_once += 1;
                assert!(questions_at_once < 3, "the CA is asked again and again");
                world.schedule.inform(answers.next().unwrap(), world.now, random);
            }
            Step::Order { directory, .. } => {
                while recent.front().is_some_and(|at| world.now - *at >= Duration::HOUR) {
                    recent.pop_front();
                }
                recent.push_back(world.now);
                most = most.max(recent.len());
                questions_at_once = 0;
                let Some(outcome) = outcomes.next() else { return most };
                match outcome {
                    Outcome::Failed(failure) => {
                        world.schedule.fail(&world.directories, directory, failure, world.now, random);
                    }
                    Outcome::Issued { .. } if directory == sallyport_acme_schedule::Directory::Staging => {
                        world.schedule.pass_staging();
                    }
                    Outcome::Issued { lifetime, starts } => {
                        let url = [PRIMARY, FALLBACK][usize::from(random % 2 == 0)];
                        world.issue(url, lifetime);
                        if let Some(issued) = &mut world.schedule.issued {
                            issued.not_before += starts;
                            issued.not_after += starts;
                        }
                    }
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn no_name_is_ordered_often_whatever_happens(
        outcomes in prop::collection::vec(outcome(), 1..120),
        answers in prop::collection::vec(answer(), 1..20),
        randoms in prop::collection::vec(any::<u64>(), 1..20),
        has_fallback: bool,
        has_staging: bool,
    ) {
        let mut world = World::new();
        if !has_fallback { world.directories.fallback = None; }
        if !has_staging { world.directories.staging_url = None; }
        let most = run(&mut world, outcomes, answers, &randoms);
        prop_assert!(most <= MAX_ORDERS_IN_AN_HOUR, "{most} orders in an hour");
    }

    #[test]
    fn a_jump_of_the_clock_causes_one_order_at_most(
        failures in prop::collection::vec(failure(), 1..20),
        jump in -400_000_i64..400_000,
        randoms in prop::collection::vec(any::<u64>(), 1..20),
    ) {
        let mut world = World::new();
        let outcomes = failures.into_iter().map(Outcome::Failed).collect();
        run(&mut world, outcomes, vec![RenewalAnswer::Failed], &randoms);
        // The order that is due fails, and then the clock jumps.
        world.schedule.fail(&world.directories, world.order().0, Failure::Unreachable, world.now, 0);
        world.now += Duration::seconds(jump);
        if matches!(world.step(), Step::Order { .. }) {
            world.fail(Failure::Unreachable);
        }
        let is_waiting = matches!(world.step(), Step::Wait { .. });
        prop_assert!(is_waiting, "{:?}", world.step());
    }

    #[test]
    fn a_rate_limit_is_never_undercut(seconds in 0_u64..3_000_000, earlier in prop::collection::vec(failure(), 0..6)) {
        let mut world = World::new();
        world.directories.fallback = None;
        let outcomes = earlier.into_iter().map(Outcome::Failed).collect();
        run(&mut world, outcomes, vec![RenewalAnswer::Failed], &[7]);
        world.schedule.pass_staging();
        if let Step::Order { directory, .. } = world.step() {
            let failure = Failure::RateLimited { retry_after_seconds: Some(seconds) };
            world.schedule.fail(&world.directories, directory, failure, world.now, 0);
            let bound = Duration::seconds(i64::try_from(seconds.min(30 * 86_400)).unwrap());
            match world.step() {
                Step::Wait { until, .. } => prop_assert!(until - world.now >= bound),
                _ => prop_assert_eq!(seconds, 0),
            }
        }
    }
}
