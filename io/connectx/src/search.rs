//! The order in which ports are tried. Pure: the caller makes the sockets and the pauses.

use std::time::Duration;

use crate::PortRange;

/// The most ports that one search tries. Twice a slice of 2,048 ports.
pub(crate) const MAX_TRIED_PORTS: u32 = 4_096;
/// The most ports that are tried again, because another process may have held them for a moment only.
const MAX_BUSY_PORTS: usize = 256;
/// How often those are tried again.
const MAX_ROUNDS: u32 = 10;
/// The longest pause before a round. The first is 1 ms, and each is twice as long as the one before.
const MAX_PAUSE: Duration = Duration::from_millis(32);

/// Primes above 65,536, which have no divisor in common with the number of ports of any range. Steps of different
/// length keep searches apart that meet at one port.
const STRIDES: [u32; 8] = [65_537, 70_001, 75_011, 80_021, 85_009, 90_001, 95_003, 100_003];

/// The ports of one search.
#[derive(Debug)]
pub(crate) struct Search {
    ports: PortRange,
    reserved: Vec<PortRange>,
    /// The offset of the first port, less than the number of ports.
    start: u32,
    /// The distance from one port to the next, less than the number of ports.
    stride: u32,
    /// How many ports of the range have been passed.
    passed: u32,
    /// Ports that another socket held, and that are tried again.
    busy: Vec<u16>,
    /// Ports of the current round.
    again: Vec<u16>,
    round: u32,
}

/// What the caller does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Tries this port.
    Try(u16),
    /// Waits.
    Pause(Duration),
    /// Gives up.
    Exhausted,
}

impl Search {
    /// A search of these ports without the reserved ones, from a random port on.
    pub(crate) fn new(ports: PortRange, reserved: Vec<PortRange>, random: u32) -> Self {
        let (start, stride) = (random % ports.count(), STRIDES[random as usize / 65_536 % STRIDES.len()]);
        Self {
            ports,
            reserved,
            start,
            stride: stride % ports.count(),
            passed: 0,
            busy: Vec::new(),
            again: Vec::new(),
            round: 0,
        }
    }

    /// The next step.
    pub(crate) fn next(&mut self) -> Step {
        while self.passed < self.ports.count().min(MAX_TRIED_PORTS) {
            let offset = (self.start + self.passed * self.stride) % self.ports.count();
            self.passed += 1;
            // An offset within the range of 16 bits.
            let port = self.ports.low() + offset as u16;
            if !self.reserved.iter().any(|range| range.has_port(port)) {
                return Step::Try(port);
            }
        }
        if let Some(port) = self.again.pop() {
            return Step::Try(port);
        }
        if self.busy.is_empty() || self.round == MAX_ROUNDS {
            return Step::Exhausted;
        }
        self.again = std::mem::take(&mut self.busy);
        let pause = Duration::from_millis(1 << self.round).min(MAX_PAUSE);
        self.round += 1;
        Step::Pause(pause)
    }

    /// Another socket holds the port, maybe for a moment only.
    pub(crate) fn was_busy(&mut self, port: u16) {
        if self.busy.len() < MAX_BUSY_PORTS {
            self.busy.push(port);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn range(low: u16, high: u16) -> PortRange {
        PortRange::new(low, high).unwrap()
    }

    fn tried(search: &mut Search) -> Vec<u16> {
        std::iter::from_fn(|| if let Step::Try(port) = search.next() { Some(port) } else { None }).collect()
    }

    #[test]
    fn each_port_is_tried_once_from_a_random_one_on() {
        let mut search = Search::new(range(10, 14), Vec::new(), 8);
        assert_eq!(tried(&mut search), [13, 10, 12, 14, 11], "65,537 is two more than a multiple of five");
        assert_eq!(search.next(), Step::Exhausted);
        for count in [1, 2, 100, 2_047, 2_048, 4_095, 4_096] {
            for random in (0..STRIDES.len() as u32).map(|stride| stride * 65_536 + 5) {
                let ports = tried(&mut Search::new(range(1, count), Vec::new(), random));
                assert!(ports.len() == usize::from(count) && BTreeSet::from_iter(ports).len() == usize::from(count));
            }
        }
    }

    #[test]
    fn reserved_ports_are_left_out() {
        let mut search = Search::new(range(10, 14), vec![range(11, 12), range(14, 20)], 0);
        assert_eq!(tried(&mut search), [10, 13]);
    }

    #[test]
    fn busy_ports_are_tried_again_after_pauses_and_then_given_up() {
        let mut search = Search::new(range(1, 65_535), Vec::new(), u32::MAX);
        let (mut tries, mut pauses) = (BTreeSet::new(), Duration::ZERO);
        let mut count = 0;
        loop {
            match search.next() {
                Step::Try(port) => {
                    count += 1;
                    tries.insert(port);
                    search.was_busy(port);
                }
                Step::Pause(pause) => pauses += pause,
                Step::Exhausted => break,
            }
        }
        assert_eq!(tries.len(), MAX_TRIED_PORTS as usize);
        assert_eq!(count, MAX_TRIED_PORTS as usize + MAX_BUSY_PORTS * MAX_ROUNDS as usize);
        assert_eq!(pauses, Duration::from_millis(1 + 2 + 4 + 8 + 16 + 5 * 32));
    }

    #[test]
    fn a_port_that_becomes_free_is_found() {
        let mut search = Search::new(range(7, 7), Vec::new(), 3);
        assert_eq!(search.next(), Step::Try(7));
        search.was_busy(7);
        assert!(matches!(search.next(), Step::Pause(_)));
        assert_eq!(search.next(), Step::Try(7));
        assert_eq!(search.next(), Step::Exhausted);
    }
}
