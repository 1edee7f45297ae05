//! The choice of a path for a datagram: where it arrives first. Uses no other room.

use std::time::{Duration, Instant};

/// A path that may carry datagrams, seen at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate<P> {
    pub(crate) path: P,
    /// Paths of a greater tier carry nothing while there is one of a smaller tier.
    pub(crate) tier: u8,
    /// Whether pace and window allow a packet now.
    pub(crate) is_ready: bool,
    /// When they will, if not now.
    pub(crate) free_at: Instant,
    /// From here to the peer.
    pub(crate) delay: Duration,
    /// Bytes a second.
    pub(crate) rate: f64,
}

/// A path to send by, and what to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Choice<P> {
    pub(crate) path: P,
    /// How many bytes of the queue to leave to faster paths: what comes after them arrives by this path as early.
    pub(crate) skip_bytes: u64,
}

impl<P: Copy + Eq> Candidate<P> {
    /// When a packet that the path takes next arrives.
    fn arrival(&self, now: Instant) -> Instant {
        let start = if self.is_ready { now } else { self.free_at.max(now) };
        start + self.delay
    }
}

/// The path for a datagram of a queue that has `queue_bytes`; `None` if to wait for a faster path is better.
///
/// A slow path leaves the head of the queue to the faster ones, and takes a datagram from so far back that it arrives
/// when the datagrams before it do. So the receiver has little to put in order, and a short queue never waits for a
/// slow path.
pub(crate) fn choose<P: Copy + Eq>(candidates: &[Candidate<P>], queue_bytes: u64, now: Instant) -> Option<Choice<P>> {
    let tier = candidates.iter().map(|candidate| candidate.tier).min()?;
    let of_tier = || candidates.iter().filter(|candidate| candidate.tier == tier);
    let ready = of_tier().filter(|candidate| candidate.is_ready);
    let best = ready.min_by_key(|candidate| candidate.arrival(now))?;
    let arrival = best.arrival(now);
    let faster = of_tier().filter(|candidate| candidate.path != best.path);
    let skip: f64 =
        faster.map(|other| arrival.saturating_duration_since(other.arrival(now)).as_secs_f64() * other.rate).sum();
    let skip_bytes = skip as u64;
    (skip_bytes < queue_bytes).then_some(Choice { path: best.path, skip_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(name: char, is_ready: bool, delay_ms: u64, now: Instant) -> Candidate<char> {
        let delay = Duration::from_millis(delay_ms);
        Candidate { path: name, tier: 0, is_ready, free_at: now, delay, rate: 1_000_000.0 }
    }

    #[test]
    fn the_first_to_arrive_carries_the_head() {
        let now = Instant::now();
        let paths = [path('s', true, 40, now), path('f', true, 5, now)];
        assert_eq!(choose(&paths, 1, now), Some(Choice { path: 'f', skip_bytes: 0 }));
    }

    #[test]
    fn a_slow_path_takes_what_would_arrive_as_late_by_the_fast_one() {
        let now = Instant::now();
        let paths = [path('s', true, 40, now), path('f', false, 5, now)];
        // 35 ms at a million bytes a second.
        assert_eq!(choose(&paths, 35_000, now), None);
        assert_eq!(choose(&paths, 35_001, now), Some(Choice { path: 's', skip_bytes: 35_000 }));
    }

    #[test]
    fn standby_and_metered_paths_come_last() {
        let now = Instant::now();
        let standby = Candidate { tier: 1, ..path('b', true, 1, now) };
        let metered = Candidate { tier: 2, ..path('m', true, 1, now) };
        assert_eq!(choose(&[standby, metered, path('a', false, 50, now)], 1 << 20, now), None);
        assert_eq!(choose(&[metered, standby], 1, now).map(|choice| choice.path), Some('b'));
        assert_eq!(choose(&[metered], 1, now).map(|choice| choice.path), Some('m'));
    }
}
