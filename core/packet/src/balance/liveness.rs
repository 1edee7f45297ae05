//! Whether an edge answers the balancer itself, with damping for one that comes and goes.

use std::time::{Duration, Instant};

/// Failed probes in a row after which an edge is down.
const FAILURES: u32 = 2;
/// Answered probes in a row after which an edge that was down is up.
const ANSWERS: u32 = 2;
/// The most answered probes in a row that an edge needs that comes and goes.
const MAX_ANSWERS: u32 = 64;
/// How long an edge must stay up until it is no longer one that comes and goes.
const STEADY: Duration = Duration::from_secs(60);

/// What the probes of an edge say. An edge is up until its probes fail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Liveness {
    is_up: bool,
    /// Probes in a row that say the opposite.
    against: u32,
    /// Answered probes that bring the edge up again.
    needed: u32,
    /// When the edge came up last.
    up_since: Option<Instant>,
}

impl Default for Liveness {
    fn default() -> Self {
        Self { is_up: true, against: 0, needed: ANSWERS, up_since: None }
    }
}

impl Liveness {
    /// Whether the edge is up.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.is_up
    }

    /// Takes the outcome of a probe. Returns whether the edge went up or down.
    pub fn handle_probe(&mut self, is_answered: bool, now: Instant) -> bool {
        if is_answered == self.is_up {
            self.against = 0;
            if self.is_up && self.up_since.is_some_and(|since| now.duration_since(since) >= STEADY) {
                (self.needed, self.up_since) = (ANSWERS, None);
            }
            return false;
        }
        self.against += 1;
        let limit = if self.is_up { FAILURES } else { self.needed };
        if self.against < limit {
            return false;
        }
        (self.is_up, self.against) = (is_answered, 0);
        if self.is_up {
            self.up_since = Some(now);
        } else if self.up_since.take().is_some() {
            // It came up a short while ago.
            self.needed = (self.needed * 2).min(MAX_ANSWERS);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Probes until the edge changes; the number of probes.
    fn until_change(liveness: &mut Liveness, is_answered: bool, now: &mut Instant) -> u32 {
        for count in 1..1_000 {
            *now += SECOND;
            if liveness.handle_probe(is_answered, *now) {
                return count;
            }
        }
        panic!("it never changes");
    }

    #[test]
    fn one_lost_probe_changes_nothing_and_two_do() {
        let (mut edge, now) = (Liveness::default(), Instant::now());
        assert!(edge.is_up());
        assert!(!edge.handle_probe(false, now) && !edge.handle_probe(true, now) && !edge.handle_probe(false, now));
        assert!(edge.is_up());
        assert!(edge.handle_probe(false, now) && !edge.is_up());
        assert!(!edge.handle_probe(true, now) && !edge.handle_probe(false, now) && !edge.handle_probe(true, now));
        assert!(!edge.is_up());
        assert!(edge.handle_probe(true, now) && edge.is_up());
    }

    #[test]
    fn an_edge_that_flaps_stays_away_longer_each_time_until_it_was_steady() {
        let (mut edge, mut now) = (Liveness::default(), Instant::now());
        let mut waits = Vec::new();
        for _ in 0..8 {
            assert_eq!(until_change(&mut edge, false, &mut now), FAILURES, "down is never damped");
            waits.push(until_change(&mut edge, true, &mut now));
        }
        assert_eq!(waits, [2, 4, 8, 16, 32, 64, 64, 64]);
        for _ in 0..61 {
            now += SECOND;
            edge.handle_probe(true, now);
        }
        until_change(&mut edge, false, &mut now);
        assert_eq!(until_change(&mut edge, true, &mut now), ANSWERS);
    }
}
