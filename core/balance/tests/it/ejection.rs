//! Tests of passive ejection.

use proptest::{collection::vec, prelude::*};
use sallyport_balance::ejection::{EjectionConfig, EjectionConfigError, EjectionState, Failure, PoolCount};

use crate::{Clock, secs};

const FOUR: PoolCount = PoolCount { origins: 4, ejected: 0 };

fn config() -> EjectionConfig {
    EjectionConfig { gateway_failures: true, ..EjectionConfig::default() }
}

/// Fails until the origin is ejected; returns the time.
fn eject(state: &mut EjectionState, config: &EjectionConfig, clock: &Clock) -> std::time::Duration {
    for _ in 1..config.consecutive_failures {
        assert_eq!(state.record_failure(config, Failure::Connect, FOUR, clock.0), None);
    }
    let ejected = state.record_failure(config, Failure::Connect, FOUR, clock.0).unwrap();
    assert_eq!(ejected.failures, config.consecutive_failures);
    assert!(state.is_ejected(clock.0) && state.returns_at() == Some(ejected.until));
    ejected.until - clock.0
}

#[test]
fn five_in_a_row_eject_and_a_success_starts_over() {
    let (mut state, config, mut clock) = (EjectionState::new(), config(), Clock::new());
    for _ in 0..4 {
        assert_eq!(state.record_failure(&config, Failure::Gateway, FOUR, clock.0), None);
    }
    state.succeeded();
    assert_eq!(eject(&mut state, &config, &clock), secs(30));
    assert_eq!(state.record_failure(&config, Failure::Connect, FOUR, clock.0), None, "it began before");
    clock.advance(secs(30));
    assert!(!state.is_ejected(clock.0), "it is back by itself");
}

#[test]
fn each_time_is_twice_as_long_up_to_the_longest() {
    let (mut state, config, mut clock) = (EjectionState::new(), config(), Clock::new());
    for expected in [30, 60, 120, 240, 300, 300] {
        let length = eject(&mut state, &config, &clock);
        assert_eq!(length, secs(expected));
        clock.advance(length);
    }
    // Five of six doublings are left after one quiet period; none after many.
    clock.advance(secs(5 * 30));
    assert_eq!(eject(&mut state, &config, &clock), secs(60));
    clock.advance(secs(60 + 30 * 100));
    assert_eq!(eject(&mut state, &config, &clock), secs(30));
}

#[test]
fn answers_count_only_when_asked_for() {
    let config = EjectionConfig { consecutive_failures: 2, ..EjectionConfig::default() };
    let (mut state, clock) = (EjectionState::new(), Clock::new());
    for _ in 0..10 {
        assert_eq!(state.record_failure(&config, Failure::Gateway, FOUR, clock.0), None);
    }
    assert_eq!(state.record_failure(&config, Failure::Connect, FOUR, clock.0), None);
    assert_eq!(state.record_failure(&config, Failure::Gateway, FOUR, clock.0), None, "an answer: the origin is there");
    assert_eq!(state.record_failure(&config, Failure::Connect, FOUR, clock.0), None);
    assert!(state.record_failure(&config, Failure::Connect, FOUR, clock.0).is_some());
}

#[test]
fn half_of_the_origins_stay_and_the_last_one_does() {
    let clock = Clock::new();
    let ejects = |percent: u8, origins: usize, ejected: usize| {
        let config = EjectionConfig { consecutive_failures: 1, max_ejected_percent: percent, ..config() };
        EjectionState::new()
            .record_failure(&config, Failure::Connect, PoolCount { origins, ejected }, clock.0)
            .is_some()
    };
    assert!(!ejects(50, 1, 0), "the only one");
    assert!(ejects(50, 2, 0) && !ejects(50, 2, 1));
    assert!(ejects(50, 3, 0) && !ejects(50, 3, 1), "half of three is one");
    assert!(ejects(50, 4, 1) && !ejects(50, 4, 2));
    assert!(ejects(100, 4, 2) && !ejects(100, 4, 3) && !ejects(100, 1, 0));
    assert!(!ejects(0, 100, 0) && !ejects(50, 0, 0));
}

#[test]
fn a_failing_origin_beyond_the_bound_is_ejected_once_the_bound_allows_it() {
    let (mut state, config, clock) = (EjectionState::new(), config(), Clock::new());
    let full = PoolCount { origins: 4, ejected: 2 };
    for _ in 0..9 {
        assert_eq!(state.record_failure(&config, Failure::Connect, full, clock.0), None);
    }
    let ejected = state.record_failure(&config, Failure::Connect, FOUR, clock.0).unwrap();
    assert_eq!(ejected.failures, 10);
}

#[test]
fn a_good_check_brings_it_back() {
    let (mut state, config, clock) = (EjectionState::new(), config(), Clock::new());
    assert!(!state.check_passed(clock.0));
    eject(&mut state, &config, &clock);
    assert!(state.check_passed(clock.0) && !state.is_ejected(clock.0) && !state.check_passed(clock.0));
    assert_eq!(eject(&mut state, &config, &clock), secs(60), "but it is remembered");
}

#[test]
fn bounds_are_kept() {
    assert_eq!(EjectionConfig::default().validate(), Ok(()));
    let error = |config: EjectionConfig| config.validate().unwrap_err();
    assert_eq!(error(EjectionConfig { consecutive_failures: 0, ..config() }), EjectionConfigError::Failures(0));
    assert_eq!(error(EjectionConfig { max_ejected_percent: 101, ..config() }), EjectionConfigError::Percent(101));
    assert_eq!(error(EjectionConfig { base_ejection: secs(0), ..config() }), EjectionConfigError::Times);
    assert_eq!(error(EjectionConfig { max_ejection: secs(29), ..config() }), EjectionConfigError::Times);
    assert_eq!(error(EjectionConfig { max_ejection: secs(3_601), ..config() }), EjectionConfigError::Times);
}

proptest! {
    /// In any case no more than the allowed share is ejected, never the last origin, and never for longer than
    /// configured.
    #[test]
    fn enough_stay(
        origins in 1usize..8,
        percent in 0u8..=100,
        events in vec((any::<prop::sample::Index>(), any::<bool>(), 0u64..20), 1..200),
    ) {
        let config = EjectionConfig { consecutive_failures: 2, max_ejected_percent: percent, ..config() };
        let mut clock = Clock::new();
        let mut pool = vec![EjectionState::new(); origins];
        for (index, fails, pause) in events {
            let now = clock.advance(secs(pause));
            let ejected = pool.iter().filter(|origin| origin.is_ejected(now)).count();
            let origin = &mut pool[index.index(origins)];
            if fails {
                if let Some(ejected) = origin.record_failure(&config, Failure::Connect, PoolCount { origins, ejected }, now) {
                    prop_assert!(ejected.until - now <= config.max_ejection);
                    prop_assert!(ejected.until - now >= config.base_ejection);
                }
            } else {
                origin.succeeded();
            }
            let ejected = pool.iter().filter(|origin| origin.is_ejected(now)).count();
            prop_assert!(ejected < origins && ejected * 100 <= origins * usize::from(percent));
        }
    }
}

#[test]
fn one_that_is_silent_is_ejected_at_once_and_never_when_it_is_the_last() {
    let (mut state, config, clock) = (EjectionState::new(), config(), Clock::new());
    let alone = PoolCount { origins: 1, ejected: 0 };
    assert_eq!(state.record_failure(&config, Failure::Silent, alone, clock.0), None);
    let ejected =
        state.record_failure(&config, Failure::Silent, PoolCount { origins: 2, ejected: 0 }, clock.0).unwrap();
    assert_eq!(ejected.until - clock.0, config.base_ejection);
}
