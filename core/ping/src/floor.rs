//! The least of the recent values, such as the round trip of a way without queues.

use std::time::Duration;

/// Number of parts of the window.
const PARTS: usize = 5;

/// The minimum over a window that moves in five steps. Times are measured from any fixed moment.
///
/// A plan counts distances by this minimum. The queues that load makes on the way never change the cost of the way.
#[derive(Debug, Clone, Copy)]
pub struct WindowedMin {
    part: Duration,
    /// The number of the newest part, counted from the start.
    newest: u64,
    least: [Option<u64>; PARTS],
}

impl WindowedMin {
    /// An empty window of this length.
    #[must_use]
    pub fn new(window: Duration) -> Self {
        let part = (window / PARTS as u32).max(Duration::from_millis(1));
        Self { part, newest: 0, least: [None; PARTS] }
    }

    /// Takes a value. A value of an earlier time than the newest one counts as of now.
    pub fn record(&mut self, value: u64, at: Duration) {
        self.advance(at);
        let place = self.place(self.newest);
        let least = &mut self.least[place];
        *least = Some(least.map_or(value, |least| least.min(value)));
    }

    /// The least value of the window that ends at this time.
    #[must_use]
    pub fn get(&self, at: Duration) -> Option<u64> {
        let now = self.part_of(at).max(self.newest);
        let age = |place: usize| {
            let behind = (self.place(self.newest) + PARTS - place) % PARTS;
            now - self.newest + behind as u64
        };
        let parts = self.least.iter().enumerate().filter(|(place, _)| age(*place) < PARTS as u64);
        parts.filter_map(|(_, least)| *least).min()
    }

    fn advance(&mut self, at: Duration) {
        let part = self.part_of(at);
        let steps = part.saturating_sub(self.newest).min(PARTS as u64);
        for step in 1..=steps {
            let place = self.place(part - steps + step);
            self.least[place] = None;
        }
        self.newest = self.newest.max(part);
    }

    fn part_of(&self, at: Duration) -> u64 {
        u64::try_from(at.as_nanos() / self.part.as_nanos().max(1)).unwrap_or(u64::MAX)
    }

    fn place(&self, part: u64) -> usize {
        usize::try_from(part % PARTS as u64).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_value_is_forgotten_after_the_window() {
        let second = Duration::from_secs;
        let mut window = WindowedMin::new(second(50));
        assert_eq!(window.get(second(0)), None);
        window.record(30, second(1));
        window.record(90, second(2));
        window.record(70, second(25));
        assert_eq!(window.get(second(25)), Some(30));
        assert_eq!(window.get(second(49)), Some(30));
        assert_eq!(window.get(second(51)), Some(70));
        assert_eq!(window.get(second(200)), None);
        window.record(80, second(200));
        assert_eq!(window.get(second(200)), Some(80));
        // A clock that goes back changes nothing.
        window.record(75, second(3));
        assert_eq!((window.get(second(200)), window.get(second(3))), (Some(75), Some(75)));
    }
}
