//! Many certificates that are due at once.

use std::time::{Duration, Instant};

use sallyport_acme_schedule::{Failure, Pacer, PacerConfig, PacerWait, Step};
use time::OffsetDateTime;

use crate::world::{PRIMARY, World};

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
fn an_idle_hour_saves_nothing_up() {
    let (mut pacer, mut now) = (Pacer::new(CONFIG), Instant::now());
    pacer.start(now).unwrap();
    pacer.end();
    now += Duration::from_secs(3_600);
    for _ in 0..10 {
        pacer.start(now).unwrap();
        pacer.end();
    }
    assert_eq!(pacer.start(now), Err(PacerWait::Until(now + Duration::from_secs(1))));
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

/// A thousand names without certificates, a clock in steps of twenty seconds, and one CA.
struct Installation {
    worlds: Vec<World>,
    pacer: Pacer,
    began: Instant,
    clock: OffsetDateTime,
    elapsed: Duration,
    starts: Vec<Duration>,
}

impl Installation {
    fn new() -> Self {
        let mut worlds: Vec<World> = (0..1_000).map(|_| World::new()).collect();
        for (number, world) in worlds.iter_mut().enumerate() {
            world.directories.fallback = None;
            world.random = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
        let clock = worlds[0].now;
        let pacer = Pacer::new(CONFIG);
        Self { worlds, pacer, began: Instant::now(), clock, elapsed: Duration::ZERO, starts: Vec::new() }
    }

    fn run(&mut self, length: Duration, is_ca_up: bool) {
        let end = self.elapsed + length;
        while self.elapsed < end {
            for world in &mut self.worlds {
                world.now = self.clock + self.elapsed;
                let Step::Order { directory, .. } = world.step() else { continue };
                if self.pacer.start(self.began + self.elapsed).is_err() {
                    continue;
                }
                self.starts.push(self.elapsed);
                if is_ca_up {
                    world.issue(PRIMARY, time::Duration::days(90));
                } else {
                    world.schedule.fail(&world.directories, directory, Failure::Unreachable, world.now, world.random);
                }
                self.pacer.end();
            }
            self.elapsed += Duration::from_secs(20);
        }
    }

    fn issued(&self) -> usize {
        self.worlds.iter().filter(|world| world.schedule.issued.is_some()).count()
    }

    fn most_in_a_minute(&self) -> usize {
        let minute = Duration::from_secs(60);
        let within =
            |first: usize| self.starts[first..].iter().take_while(|at| **at < self.starts[first] + minute).count();
        (0..self.starts.len()).map(within).max().unwrap_or(0)
    }
}

#[test]
fn a_ca_that_is_away_for_a_day_meets_no_storm() {
    let mut installation = Installation::new();
    installation.run(Duration::from_secs(86_400), false);
    assert!(installation.starts.len() < 1_000 * 16, "{} orders in a day", installation.starts.len());
    let before = installation.starts.len();
    // Everything is there within the longest time between two attempts, and each name is ordered once.
    installation.run(Duration::from_secs(6 * 3_600), true);
    assert_eq!(installation.issued(), 1_000);
    assert_eq!(installation.starts.len(), before + 1_000);
    assert!(installation.most_in_a_minute() <= 70, "{} orders in a minute", installation.most_in_a_minute());
}
