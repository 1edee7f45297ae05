//! Tests of limits and queues.

use std::{collections::VecDeque, time::Duration};

use proptest::{collection::vec, prelude::*};
use sallyport_balance::limits::{
    MAX_AT_ONCE, MAX_BURST, MAX_PER_SECOND, MAX_WAIT, MAX_WAITING, Outcome, Queue, QueueConfig, QueueConfigError,
    RateLimit, Ticket, TokenBucket,
};

use crate::{Clock, millis, secs};

fn bucket(per_second: u64, burst: u64, clock: &Clock) -> TokenBucket {
    TokenBucket::new(RateLimit::new(per_second, burst).unwrap(), clock.0)
}

#[test]
fn a_burst_passes_and_then_the_rate() {
    let mut clock = Clock::new();
    let mut bucket = bucket(10, 5, &clock);
    for _ in 0..5 {
        assert_eq!(bucket.take(1, clock.0), Ok(()));
    }
    assert_eq!(bucket.take(1, clock.0), Err(millis(100)));
    assert_eq!(bucket.take(2, clock.0), Err(millis(200)));
    assert_eq!(bucket.take(1, clock.advance(millis(99))), Err(millis(1)));
    assert_eq!(bucket.take(1, clock.advance(millis(1))), Ok(()), "what was refused cost nothing");
    assert_eq!(bucket.take(1, clock.0), Err(millis(100)));
    clock.advance(secs(1_000));
    for _ in 0..5 {
        assert_eq!(bucket.take(1, clock.0), Ok(()));
    }
    assert!(bucket.take(1, clock.0).is_err(), "a long pause gives one burst");
}

#[test]
fn more_than_the_burst_passes_when_it_is_full_and_is_paid_for() {
    let mut clock = Clock::new();
    let mut bucket = bucket(1_000, 100, &clock);
    assert_eq!(bucket.take(16_384, clock.0), Ok(()));
    assert_eq!(bucket.take(1, clock.0), Err(millis(16_285)));
    assert_eq!(bucket.take(16_384, clock.advance(millis(16_283))), Err(millis(101)));
    assert_eq!(bucket.take(1, clock.advance(millis(2))), Ok(()));
}

#[test]
fn bytes_that_were_read_are_charged() {
    let mut clock = Clock::new();
    let mut bucket = bucket(1_000, 100, &clock);
    assert_eq!(bucket.charge(100, clock.0), Duration::ZERO);
    assert_eq!(bucket.charge(50, clock.0), millis(50));
    assert_eq!(bucket.charge(10, clock.0), millis(60));
    assert_eq!(bucket.charge(0, clock.advance(millis(60))), Duration::ZERO);
}

#[test]
fn great_and_small_rates_are_exact() {
    let mut clock = Clock::new();
    let mut fast = bucket(MAX_PER_SECOND, 1, &clock);
    assert_eq!(fast.take(1, clock.0), Ok(()));
    assert_eq!(fast.take(1, clock.0), Err(Duration::from_nanos(1)), "less than a nanosecond is one");
    assert_eq!(fast.take(u64::MAX, clock.advance(secs(1_000_000_000))), Ok(()));
    assert!(fast.take(1, clock.0).unwrap_err() > secs(18_000_000));
    let mut slow = bucket(1, MAX_BURST, &clock);
    assert_eq!(slow.take(MAX_BURST, clock.0), Ok(()));
    assert_eq!(slow.take(1, clock.0), Err(secs(1)));
    let earlier = clock.0 - secs(5);
    assert_eq!(slow.take(1, earlier), Err(secs(1)), "a clock that goes back is no credit");
    for (per_second, burst) in [(0, 1), (1, 0), (MAX_PER_SECOND + 1, 1), (1, MAX_BURST + 1)] {
        assert!(RateLimit::new(per_second, burst).is_err());
    }
}

#[test]
fn some_wait_for_the_rate_and_the_rest_is_refused() {
    let clock = Clock::new();
    let mut bucket = bucket(10, 1, &clock);
    assert_eq!(bucket.reserve(1, clock.0, secs(5), 3), Outcome::Admit);
    for waiting in 1..=3 {
        let until = clock.0 + millis(100 * waiting);
        assert_eq!(bucket.reserve(1, clock.0, secs(5), 3), Outcome::Wait(until), "in the order of asking");
    }
    assert_eq!(bucket.reserve(1, clock.0, secs(5), 3), Outcome::Refuse { retry_after: millis(400) }, "too many");
    assert_eq!(bucket.reserve(1, clock.0, millis(399), 9), Outcome::Refuse { retry_after: millis(400) }, "too long");
    assert_eq!(bucket.reserve(1, clock.0, millis(400), 9), Outcome::Wait(clock.0 + millis(400)));
    assert_eq!(bucket.take(1, clock.0), Err(millis(500)), "no later request overtakes");
    let mut slow = self::bucket(1, 1, &clock);
    assert_eq!(slow.charge(70, clock.0), secs(69));
    assert_eq!(slow.reserve(1, clock.0, secs(1_000), 1_000), Outcome::Refuse { retry_after: secs(70) }, "{MAX_WAIT:?}");
}

fn queue(max_at_once: usize, max_waiting: usize) -> Queue {
    let config = QueueConfig { max_at_once, max_waiting, max_wait: secs(5) };
    assert_eq!(config.validate(), Ok(()));
    Queue::new(config)
}

fn waits(queue: &mut Queue, clock: &Clock) -> Ticket {
    match queue.arrive(clock.0) {
        Outcome::Wait(ticket) => ticket,
        other => panic!("{other:?}"),
    }
}

#[test]
fn places_then_the_queue_then_no() {
    let (mut queue, mut clock) = (queue(2, 2), Clock::new());
    assert_eq!(queue.arrive(clock.0), Outcome::Admit);
    assert_eq!(queue.arrive(clock.0), Outcome::Admit);
    let first = waits(&mut queue, &clock);
    assert_eq!(first.until, clock.0 + secs(5));
    clock.advance(secs(1));
    let second = waits(&mut queue, &clock);
    assert_eq!(queue.arrive(clock.0), Outcome::Refuse { retry_after: secs(5) });
    assert_eq!((queue.at_once(), queue.waiting()), (2, 2));

    assert_eq!(queue.leave(clock.0), Some(first));
    assert_eq!((queue.at_once(), queue.waiting()), (2, 1));
    assert!(!queue.give_up(first), "it has its place");
    assert!(queue.give_up(second) && !queue.give_up(second));
    assert_eq!(queue.leave(clock.0), None);
    assert_eq!(queue.arrive(clock.0), Outcome::Admit);
}

#[test]
fn a_request_that_waited_too_long_is_refused() {
    let (mut queue, mut clock) = (queue(1, 5), Clock::new());
    assert_eq!(queue.arrive(clock.0), Outcome::Admit);
    let first = waits(&mut queue, &clock);
    clock.advance(secs(2));
    let second = waits(&mut queue, &clock);
    assert_eq!(queue.poll_timeout(), Some(first.until));
    assert_eq!(queue.handle_timeout(clock.0), None);
    clock.0 = first.until;
    assert_eq!(queue.leave(clock.0), Some(second), "the first one's time is up");
    assert_eq!(queue.leave(clock.0), None);
    assert_eq!(queue.arrive(clock.0), Outcome::Admit, "no other request waits");
    assert_eq!(queue.handle_timeout(clock.0), Some(first));
    assert_eq!(queue.handle_timeout(clock.0), None);
    assert_eq!((queue.poll_timeout(), queue.waiting()), (None, 0));
}

#[test]
fn a_plain_limit_refuses() {
    let (mut queue, clock) = (Queue::new(QueueConfig::refusing(1)), Clock::new());
    assert_eq!(queue.arrive(clock.0), Outcome::Admit);
    assert_eq!(queue.arrive(clock.0), Outcome::Refuse { retry_after: secs(1) });
    assert_eq!(queue.leave(clock.0), None);
    assert_eq!(queue.arrive(clock.0), Outcome::Admit);
}

#[test]
fn bounds_may_change() {
    let (mut queue, clock) = (queue(1, 5), Clock::new());
    assert_eq!(queue.arrive(clock.0), Outcome::Admit);
    let waiting: Vec<_> = (0..3).map(|_| waits(&mut queue, &clock)).collect();
    queue.set_config(QueueConfig { max_at_once: 3, max_waiting: 0, max_wait: secs(5) });
    assert_eq!(queue.admit_next(clock.0), Some(waiting[0]));
    assert_eq!(queue.admit_next(clock.0), Some(waiting[1]));
    assert_eq!(queue.admit_next(clock.0), None, "all places are taken");
    queue.set_config(QueueConfig { max_at_once: 1, max_waiting: 0, max_wait: secs(5) });
    assert_eq!((queue.leave(clock.0), queue.leave(clock.0)), (None, None), "there were too many");
    assert_eq!(queue.leave(clock.0), Some(waiting[2]));

    let error = |max_at_once, max_waiting, max_wait| QueueConfig { max_at_once, max_waiting, max_wait }.validate();
    assert_eq!(error(0, 0, secs(0)), Err(QueueConfigError::AtOnce));
    assert_eq!(error(MAX_AT_ONCE + 1, 0, secs(0)), Err(QueueConfigError::AtOnce));
    assert_eq!(error(1, MAX_WAITING + 1, secs(0)), Err(QueueConfigError::Waiting));
    assert_eq!(error(1, 1, MAX_WAIT + millis(1)), Err(QueueConfigError::Wait));
}

proptest! {
    /// In any period no more passes than the rate and one burst, and a request that retries at the given time passes.
    #[test]
    fn the_rate_is_kept(
        per_second in 1u64..10_000,
        burst in 1u64..1_000,
        asks in vec((1u64..50, 0u64..200), 1..100),
    ) {
        let mut clock = Clock::new();
        let start = clock.0;
        let mut bucket = bucket(per_second, burst, &clock);
        let mut passed = 0u128;
        for (n, pause) in asks {
            let n = n.min(burst);
            let now = clock.advance(millis(pause));
            let now = match bucket.take(n, now) {
                Ok(()) => now,
                Err(wait) => {
                    prop_assert!(bucket.clone().take(n, now + wait - Duration::from_nanos(1)).is_err());
                    let now = clock.advance(wait);
                    prop_assert_eq!(bucket.take(n, now), Ok(()));
                    now
                }
            };
            passed += u128::from(n);
            let may = u128::from(burst) * 1_000_000_000 + (now - start).as_nanos() * u128::from(per_second);
            prop_assert!(passed * 1_000_000_000 <= may);
        }
    }

    /// The limit is never exceeded, no request is lost, none overtakes, and no place is free while a request waits.
    #[test]
    fn places_are_kept(events in vec((0u8..4, any::<prop::sample::Index>(), 0u64..3_000), 1..200)) {
        let (mut queue, mut clock) = (queue(3, 4), Clock::new());
        let (mut at_once, mut waiting) = (0usize, VecDeque::new());
        for (event, index, pause) in events {
            let now = clock.advance(millis(pause));
            while let Some(ticket) = queue.handle_timeout(now) {
                prop_assert!(ticket.until <= now);
                prop_assert_eq!(waiting.pop_front(), Some(ticket));
            }
            match event {
                0 | 1 => match queue.arrive(now) {
                    Outcome::Admit => {
                        prop_assert!(waiting.is_empty());
                        at_once += 1;
                    }
                    Outcome::Wait(ticket) => waiting.push_back(ticket),
                    Outcome::Refuse { .. } => prop_assert_eq!((at_once, waiting.len()), (3, 4)),
                },
                2 if at_once > 0 => {
                    let next = queue.leave(now);
                    prop_assert_eq!(next, waiting.pop_front());
                    at_once -= usize::from(next.is_none());
                }
                3 if !waiting.is_empty() => {
                    let ticket = waiting.remove(index.index(waiting.len())).unwrap();
                    prop_assert!(queue.give_up(ticket));
                }
                _ => {}
            }
            prop_assert!(at_once <= 3 && (waiting.is_empty() || at_once == 3));
            prop_assert_eq!((queue.at_once(), queue.waiting()), (at_once, waiting.len()));
        }
    }
}
