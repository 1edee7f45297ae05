//! Many certificates that are due at once.

use std::time::{Duration, Instant};

use sallyport_acme_schedule::{Pacer, PacerConfig, PacerWait};

const CONFIG: PacerConfig = PacerConfig { max_running: 10, max_starts_per_minute: 60 };

#[test]
fn orders_run_ten_at_once() {
    let (mut pacer, now) = (Pacer::new(CONFIG), Instant::now());
    for _ in 0..10 {
        assert_eq!(pacer.start(now), Ok(()));
    }
    assert_eq!(pacer.start(now), Err(PacerWait::Full));
    pacer.end();
    assert_eq!(pacer.start(now), Err(PacerWait::Until(now + Duration::from_secs(1))));
    assert_eq!(pacer.start(now + Duration::from_secs(1)), Ok(()));
    assert_eq!(pacer.running(), 10);
}

#[test]
fn a_thousand_orders_start_one_a_second() {
    let (mut pacer, begin) = (Pacer::new(CONFIG), Instant::now());
    let mut now = begin;
    let mut starts = Vec::new();
    while starts.len() < 1_000 {
        match pacer.start(now) {
            Ok(()) => {
                starts.push(now);
                pacer.end();
            }
            Err(PacerWait::Until(later)) => {
                assert!(later > now);
                now = later;
            }
            Err(PacerWait::Full) => unreachable!(),
        }
    }
    assert_eq!((now - begin).as_secs(), 990);
    let most = starts
        .iter()
        .map(|at| starts.iter().filter(|other| (*at..*at + Duration::from_secs(60)).contains(*other)).count());
    assert!(most.max().unwrap() <= 70);
}

#[test]
fn many_due_orders_are_held_back() {
    let pacer = Pacer::new(CONFIG);
    assert_eq!(pacer.hold_back(10, u64::MAX), Duration::ZERO);
    assert_eq!(pacer.hold_back(1_000, 0), Duration::ZERO);
    assert_eq!(pacer.hold_back(1_000, 1 << 63), Duration::from_secs(500));
    assert!(pacer.hold_back(1_000, u64::MAX) < Duration::from_secs(1_000));
    assert!(pacer.hold_back(usize::MAX, u64::MAX) > Duration::from_secs(1_000));
    let least = Pacer::new(PacerConfig { max_running: 0, max_starts_per_minute: 0 });
    assert_eq!(least.hold_back(2, 1 << 63), Duration::from_secs(60));
}
