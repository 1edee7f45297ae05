//! Tracks whether a stream's user waits for the peer, and when the peer should be probed.

use std::time::Duration;

/// Time that a user waits before the peer is probed for the first time: at least this long, at most twice as long.
const FIRST_LOOK: Duration = Duration::from_millis(500);
/// The most doublings of the time until the next probe. Longer waits are left to the session's keepalive.
const MAX_DOUBLINGS: u32 = 4;

/// The wait of a stream. It reads no clock: the owner sets a timer by [`Awaited::look_after`], and keeps the timer set
/// from one wait to the next, so that a short wait costs nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Awaited {
    state: State,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum State {
    /// No wait.
    #[default]
    Nothing,
    /// A wait, which may have begun after the timer was set.
    New,
    /// A wait that had begun when the timer was set, with this number of doublings.
    Watched(u32),
    /// A wait of such length that it is no longer watched.
    Long,
}

impl Awaited {
    /// A wait for the answer to an opening.
    #[must_use]
    pub fn opening() -> Self {
        Self { state: State::New }
    }

    /// Records that something was sent, and starts a wait.
    pub fn sent(&mut self) {
        if self.state == State::Nothing {
            self.state = State::New;
        }
    }

    /// Records input. Returns whether a set timer is too late for the next wait and should be dropped.
    pub fn came(&mut self) -> bool {
        matches!(std::mem::take(&mut self.state), State::Watched(1..))
    }

    /// Whether the wait needs a timer.
    #[must_use]
    pub fn is_watched(&self) -> bool {
        matches!(self.state, State::New | State::Watched(_))
    }

    /// The time for a new timer; `None` if none is needed. Call when no timer is set.
    pub fn look_after(&mut self) -> Option<Duration> {
        let doublings = match self.state {
            State::New => 0,
            State::Watched(doublings) => doublings,
            State::Nothing | State::Long => return None,
        };
        self.state = State::Watched(doublings);
        Some(FIRST_LOOK * (1 << doublings))
    }

    /// Handles the timer. Returns whether to probe the peer. [`Self::look_after`] has the next timer.
    pub fn looked(&mut self) -> bool {
        let State::Watched(doublings) = self.state else { return false };
        self.state = if doublings < MAX_DOUBLINGS { State::Watched(doublings + 1) } else { State::Long };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times of probes, in milliseconds, for a wait that begins at 0, with a timer set for `alarm`.
    fn asks(mut awaited: Awaited, alarm: Option<u64>) -> Vec<u64> {
        let mut asked = Vec::new();
        let mut at = alarm.unwrap_or(0);
        if alarm.is_some() && awaited.looked() {
            asked.push(at);
        }
        while let Some(after) = awaited.look_after() {
            at += u64::try_from(after.as_millis()).unwrap();
            if awaited.looked() {
                asked.push(at);
            }
        }
        asked
    }

    #[test]
    fn an_awaited_peer_is_probed_within_a_second_and_then_ever_less_often() {
        assert_eq!(asks(Awaited::opening(), None), [500, 1_500, 3_500, 7_500, 15_500]);
        let mut awaited = Awaited::default();
        assert_eq!(asks(awaited, None), Vec::<u64>::new());
        awaited.sent();
        // The timer of an earlier wait fires: the current wait has begun since, so there is no probe yet.
        assert_eq!(asks(awaited, Some(400))[..2], [900, 1_900]);
    }

    #[test]
    fn what_comes_ends_the_wait_and_alarms_that_are_far_off() {
        let mut awaited = Awaited::opening();
        assert_eq!(awaited.look_after(), Some(FIRST_LOOK));
        assert!(!awaited.came(), "the alarm serves the next wait");
        assert!(!awaited.is_watched() && !awaited.looked());
        awaited.sent();
        awaited.look_after();
        assert!(awaited.looked());
        awaited.sent();
        assert_eq!(awaited.look_after(), Some(FIRST_LOOK * 2), "more of the same changes nothing");
        assert!(awaited.came());
        assert_eq!(awaited, Awaited::default());
    }
}
