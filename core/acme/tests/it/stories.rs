//! What becomes of one certificate.

use sallyport_acme_schedule::{
    ChallengeKind::{Dns01, Http01, TlsAlpn01},
    Directories, Directory, Failure, OrderReason, RenewalAnswer, Schedule, Step, WaitReason,
};
use time::Duration;

use crate::world::{FALLBACK, PRIMARY, START, World, authority};

const AUTHORIZATION: Failure = Failure::Authorization { challenge: Some(TlsAlpn01) };

fn reason(world: &World) -> OrderReason {
    match world.step() {
        Step::Order { reason, .. } => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_missing_certificate_is_ordered_at_once() {
    let world = World::new();
    assert_eq!(world.order(), (Directory::Primary, false));
    assert_eq!(reason(&world), OrderReason::Missing);
}

#[test]
fn without_advice_the_life_of_a_certificate_decides() {
    for (days, due) in [(90, Duration::days(60)), (45, Duration::days(30)), (10, Duration::hours(160))] {
        let mut world = World::with_certificate(Duration::days(days));
        while !matches!(world.step(), Step::Order { .. }) {
            match world.step() {
                Step::Wait { until, .. } => world.now = until,
                Step::AskRenewalInfo { directory } => {
                    assert_eq!(directory, Directory::Primary);
                    world.schedule.inform(RenewalAnswer::Unsupported, world.now, 0);
                }
                Step::Order { .. } => {}
            }
        }
        assert_eq!(world.now - START, due, "{days} days");
        assert_eq!(world.order(), (Directory::Primary, true));
        assert_eq!(reason(&world), OrderReason::Lifetime);
    }
    let mut short = World::with_certificate(Duration::days(6));
    short.now = START + Duration::days(3);
    short.schedule.inform(RenewalAnswer::Unsupported, short.now, 0);
    assert_eq!(reason(&short), OrderReason::Lifetime);
    short.now -= Duration::SECOND;
    assert!(matches!(short.step(), Step::Wait { .. }));
}

#[test]
fn the_ca_is_asked_first_and_its_window_obeyed() {
    let mut world = World::new();
    world.issue(PRIMARY, Duration::days(90));
    assert_eq!(world.step(), Step::AskRenewalInfo { directory: Directory::Primary });
    world.random = 1 << 63;
    world.suggest(Duration::days(10), Duration::days(12));
    let renew_at = START + Duration::days(11);
    assert_eq!(world.wait(), (Duration::hours(6), WaitReason::Good { renew_at, is_suggested: true }));
    // The same window later gives no new draw.
    world.now += Duration::hours(6);
    assert_eq!(world.step(), Step::AskRenewalInfo { directory: Directory::Primary });
    world.random = 0;
    world.suggest(Duration::days(10) - Duration::hours(6), Duration::days(12) - Duration::hours(6));
    assert_eq!(world.schedule.renewal_info.renew_at, Some(renew_at));
    world.now = renew_at;
    assert_eq!(world.order(), (Directory::Primary, true));
    assert_eq!(reason(&world), OrderReason::Suggested);
}

#[test]
fn a_window_in_the_past_means_now_and_a_negative_one_nothing() {
    let mut world = World::with_certificate(Duration::days(90));
    world.suggest(-Duration::DAY, -Duration::HOUR);
    assert_eq!(reason(&world), OrderReason::Suggested);
    for (from, to) in [(Duration::days(2), Duration::DAY), (Duration::DAY, Duration::DAY)] {
        let mut world = World::with_certificate(Duration::days(90));
        world.suggest(from, to);
        assert_eq!(world.schedule.renewal_info.renew_at, None);
        let renew_at = START + Duration::days(60);
        assert_eq!(world.wait(), (Duration::MINUTE, WaitReason::Good { renew_at, is_suggested: false }));
    }
}

#[test]
fn advice_never_lets_a_certificate_expire() {
    let mut world = World::with_certificate(Duration::days(90));
    world.suggest(Duration::days(100), Duration::days(200));
    let renew_at = START + Duration::days(81);
    assert!(matches!(world.wait().1, WaitReason::Good { renew_at: at, is_suggested: false } if at == renew_at));
    world.now = renew_at;
    world.schedule.inform(RenewalAnswer::Failed, world.now, 0);
    assert_eq!(reason(&world), OrderReason::Lifetime);
}

#[test]
fn the_time_of_the_next_question_has_bounds() {
    for (asked, expected) in [
        (Duration::ZERO, Duration::MINUTE),
        (-Duration::DAY, Duration::MINUTE),
        (Duration::hours(6), Duration::hours(6)),
        (Duration::days(365), Duration::DAY),
    ] {
        let mut world = World::with_certificate(Duration::days(90));
        let window = sallyport_acme_schedule::RenewalWindow {
            start: START + Duration::days(30),
            end: START + Duration::days(31),
        };
        let answer = RenewalAnswer::Window { window, explanation_url: None, ask_again_after: asked };
        world.schedule.inform(answer, world.now, 0);
        assert_eq!(world.wait().0, expected);
    }
    let mut world = World::with_certificate(Duration::days(90));
    let mut waits = Vec::new();
    for _ in 0..12 {
        world.schedule.inform(RenewalAnswer::Failed, world.now, 0);
        waits.push(world.sleep().whole_minutes());
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 288, 288, 288]);
}

#[test]
fn after_a_failed_authorization_staging_comes_before_production() {
    let mut world = World::new();
    world.fail(AUTHORIZATION);
    assert_eq!(world.wait().1, WaitReason::Failed { failure: AUTHORIZATION, failures: 1 });
    assert_eq!(world.sleep(), Duration::MINUTE);
    assert_eq!(world.order().0, Directory::Staging);
    world.fail(AUTHORIZATION);
    assert_eq!(world.sleep(), Duration::minutes(2));
    assert_eq!(world.order().0, Directory::Staging);
    world.schedule.pass_staging();
    assert_eq!(world.order().0, Directory::Primary);
    world.fail(AUTHORIZATION);
    assert_eq!(world.sleep(), Duration::minutes(4));
    assert_eq!(world.order().0, Directory::Staging);
    world.schedule.pass_staging();
    world.issue(PRIMARY, Duration::days(90));
    assert_eq!(world.schedule.attempts, sallyport_acme_schedule::Attempts::default());
}

#[test]
fn without_a_staging_directory_production_is_tried_again() {
    let mut world = World::new();
    world.directories = Directories::new(authority(FALLBACK), None);
    world.fail(Failure::Caa);
    world.sleep();
    assert_eq!(world.order().0, Directory::Primary);
}

#[test]
fn a_staging_directory_that_is_down_holds_nothing_up() {
    let mut world = World::new();
    world.fail(AUTHORIZATION);
    world.sleep();
    world.fail(Failure::Unreachable);
    world.sleep();
    assert_eq!(world.order().0, Directory::Primary);
}

#[test]
fn the_second_ca_is_tried_after_two_faults_of_the_first() {
    for fault in [
        Failure::Unreachable,
        Failure::TimedOut,
        Failure::Malformed,
        Failure::Server { retry_after_seconds: None },
        Failure::RateLimited { retry_after_seconds: Some(3_601) },
    ] {
        let mut world = World::new();
        world.fail(fault);
        world.sleep();
        assert_eq!(world.order().0, Directory::Primary, "{fault:?}");
        world.fail(fault);
        assert_eq!(world.sleep(), Duration::minutes(2), "{fault:?}");
        assert_eq!(world.order().0, Directory::Fallback, "{fault:?}");
        // The second CA fails as well: the first has its turn again.
        world.fail(fault);
        world.sleep();
        world.fail(fault);
        world.sleep();
        assert_eq!(world.order().0, Directory::Primary, "{fault:?}");
    }
    for other in [AUTHORIZATION, Failure::Caa, Failure::Local, Failure::RateLimited { retry_after_seconds: Some(9) }] {
        let mut world = World::new();
        for _ in 0..9 {
            world.fail(other);
            world.sleep();
            assert_ne!(world.order().0, Directory::Fallback, "{other:?}");
            world.schedule.pass_staging();
        }
    }
    let mut alone = World::new();
    alone.directories.fallback = None;
    for _ in 0..5 {
        alone.fail(Failure::Unreachable);
        alone.sleep();
        assert_eq!(alone.order().0, Directory::Primary);
    }
}

#[test]
fn a_second_ca_that_refuses_gives_the_turn_back() {
    let mut world = World::new();
    for (failure, next) in [
        (Failure::Unreachable, Directory::Primary),
        (Failure::Unreachable, Directory::Fallback),
        (Failure::Rejected, Directory::Fallback),
        (Failure::Rejected, Directory::Primary),
    ] {
        world.fail(failure);
        world.schedule.pass_staging();
        world.sleep();
        assert_eq!(world.order().0, next);
    }
}

#[test]
fn faults_count_in_a_row() {
    let mut world = World::new();
    world.fail(Failure::Unreachable);
    world.sleep();
    world.fail(AUTHORIZATION);
    world.sleep();
    world.schedule.pass_staging();
    world.fail(Failure::Unreachable);
    world.sleep();
    assert_eq!(world.order().0, Directory::Primary);
}

#[test]
fn a_certificate_of_the_second_ca_is_good_and_renewed_by_the_first() {
    let mut world = World::new();
    world.issue(FALLBACK, Duration::days(90));
    assert_eq!(world.step(), Step::AskRenewalInfo { directory: Directory::Fallback });
    world.suggest(-Duration::HOUR, -Duration::MINUTE);
    assert_eq!(world.order(), (Directory::Primary, false));
}

#[test]
fn a_rate_limit_is_obeyed_to_the_second() {
    for seconds in [1, 59, 3_600, 86_400] {
        let mut world = World::new();
        world.random = u64::MAX;
        world.fail(Failure::RateLimited { retry_after_seconds: Some(seconds) });
        let expected = Duration::seconds(i64::try_from(seconds).unwrap());
        assert_eq!(world.wait(), (expected, WaitReason::AskedToWait));
        world.now += expected - Duration::SECOND;
        assert!(matches!(world.step(), Step::Wait { .. }));
        world.now += Duration::SECOND;
        assert_eq!(world.order().0, Directory::Primary);
    }
    let mut unbelievable = World::new();
    unbelievable.fail(Failure::RateLimited { retry_after_seconds: Some(u64::MAX) });
    assert_eq!(unbelievable.sleep(), Duration::days(30));
    let mut unnamed = World::new();
    unnamed.fail(Failure::RateLimited { retry_after_seconds: None });
    assert_eq!(unnamed.sleep(), Duration::HOUR);
    // A CA that names ever short waits is asked ever less often.
    let mut short = World::new();
    let waits: Vec<i64> = (0..4)
        .map(|_| {
            short.fail(Failure::RateLimited { retry_after_seconds: Some(1) });
            short.sleep().whole_seconds()
        })
        .collect();
    assert_eq!(waits, [1, 120, 240, 480]);
}

#[test]
fn a_person_who_asks_waits_for_no_failure_but_for_a_rate_limit() {
    let mut world = World::new();
    world.fail(Failure::Unreachable);
    world.schedule.request();
    assert_eq!(world.order().0, Directory::Primary);
    world.fail(Failure::RateLimited { retry_after_seconds: Some(600) });
    world.schedule.request();
    assert_eq!(world.wait(), (Duration::minutes(10), WaitReason::AskedToWait));
    let mut good = World::with_certificate(Duration::days(90));
    good.schedule.request();
    assert_eq!(reason(&good), OrderReason::Requested);
    good.issue(PRIMARY, Duration::days(90));
    assert_eq!(good.step(), Step::AskRenewalInfo { directory: Directory::Primary });
}

#[test]
fn a_certificate_that_is_already_replaced_is_ordered_at_once_without_naming_it() {
    let mut world = World::with_certificate(Duration::days(90));
    world.suggest(-Duration::HOUR, -Duration::MINUTE);
    assert_eq!(world.order(), (Directory::Primary, true));
    world.fail(Failure::AlreadyReplaced);
    assert_eq!(world.order(), (Directory::Primary, false));
    // A CA that repeats it is not believed.
    world.fail(Failure::AlreadyReplaced);
    assert_eq!(world.sleep(), Duration::MINUTE);
}

#[test]
fn another_directory_or_account_means_another_certificate() {
    let mut world = World::with_certificate(Duration::days(90));
    world.directories = Directories::new(authority("https://new.example/directory"), None);
    assert_eq!(reason(&world), OrderReason::OtherDirectory);
    assert_eq!(world.order(), (Directory::Primary, false));
    let mut world = World::with_certificate(Duration::days(90));
    world.directories.primary.account_url = Some("https://ca.example/account/2".to_owned());
    assert_eq!(reason(&world), OrderReason::OtherAccount);
    assert_eq!(world.order(), (Directory::Primary, false));
    // An account that is still to be created is not another one.
    world.directories.primary.account_url = None;
    assert!(matches!(world.step(), Step::Wait { .. }));
}

#[test]
fn a_clock_that_is_behind_orders_nothing() {
    let mut world = World::with_certificate(Duration::days(90));
    world.now -= Duration::DAY;
    assert_eq!(world.wait(), (Duration::DAY, WaitReason::NotYetValid));
    world.now = time::OffsetDateTime::UNIX_EPOCH;
    assert_eq!(world.wait().1, WaitReason::NotYetValid);
}

#[test]
fn a_clock_that_is_ahead_by_years_makes_no_storm() {
    let mut world = World::with_certificate(Duration::days(90));
    let ahead = Duration::days(3_650);
    let mut orders = 0;
    let end = START + ahead + Duration::DAY;
    world.now = START + ahead;
    while world.now < end {
        match world.step() {
            Step::Order { .. } => {
                orders += 1;
                // The CA's own clock is right, and so is the certificate.
                let issued = sallyport_acme_schedule::Issued {
                    not_before: world.now - ahead,
                    not_after: world.now - ahead + Duration::days(90),
                    directory_url: PRIMARY.to_owned(),
                    account_url: crate::world::ACCOUNT.to_owned(),
                };
                world.schedule.issue(issued, world.now, 0);
            }
            Step::Wait { until, .. } => world.now = until,
            Step::AskRenewalInfo { .. } => world.schedule.inform(RenewalAnswer::Failed, world.now, 0),
        }
    }
    assert!(orders < 16, "{orders} orders in a day");
}

#[test]
fn a_first_early_renewal_is_immediate_and_further_ones_are_spaced() {
    let mut world = World::with_certificate(Duration::days(90));
    let mut waits = Vec::new();
    for _ in 0..4 {
        world.suggest(-Duration::HOUR, -Duration::MINUTE);
        if let Step::Wait { until, reason } = world.step() {
            assert_eq!(reason, WaitReason::RenewedTooOften);
            waits.push((until - world.now).whole_minutes());
            world.now = until;
        } else {
            waits.push(0);
        }
        world.issue(PRIMARY, Duration::days(90));
    }
    assert_eq!(waits, [0, 1, 2, 4]);
    // A short life is no haste.
    let mut short = World::with_certificate(Duration::minutes(1));
    for _ in 0..5 {
        short.now += Duration::seconds(30);
        assert_eq!(reason(&short), OrderReason::Lifetime);
        short.issue(PRIMARY, Duration::minutes(1));
        short.schedule.inform(RenewalAnswer::Unsupported, short.now, 0);
    }
}

#[test]
fn after_thirty_days_one_try_a_day() {
    let mut world = World::new();
    while world.now - START < Duration::days(30) {
        world.fail(Failure::Unreachable);
        assert!(world.sleep() <= Duration::hours(6));
    }
    world.fail(Failure::Unreachable);
    assert_eq!(world.sleep(), Duration::DAY);
}

#[test]
fn challenges_that_failed_are_tried_last() {
    let mut world = World::new();
    let all = [Dns01, Http01, TlsAlpn01];
    assert_eq!(world.schedule.challenge_kinds(&all), [TlsAlpn01, Http01, Dns01]);
    world.fail(AUTHORIZATION);
    assert_eq!(world.schedule.challenge_kinds(&all), [Http01, Dns01, TlsAlpn01]);
    assert_eq!(world.schedule.challenge_kinds(&[TlsAlpn01]), [TlsAlpn01]);
}

#[test]
fn what_is_stored_comes_back_as_it_was() {
    let mut world = World::with_certificate(Duration::days(90));
    world.suggest(-Duration::HOUR, Duration::HOUR);
    world.fail(AUTHORIZATION);
    world.fail_at_staging();
    let text = serde_json::to_string(&world.schedule).unwrap();
    assert_eq!(serde_json::from_str::<Schedule>(&text).unwrap(), world.schedule);
    let empty = serde_json::to_string(&Schedule::default()).unwrap();
    assert_eq!(serde_json::from_str::<Schedule>(&empty).unwrap(), Schedule::default());
}

impl World {
    fn fail_at_staging(&mut self) {
        self.sleep();
        self.fail(Failure::RateLimited { retry_after_seconds: Some(7) });
    }
}
