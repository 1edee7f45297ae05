//! Whether a stream's user waits for the other side, and when that is long enough to ask whether it is there at all.

use std::time::Duration;

/// How long something is waited for before the other side is asked for the first time: so long at least, twice as long at
/// most.
const FIRST_LOOK: Duration = Duration::from_millis(500);
/// How often the time until the next look is doubled. What is waited for beyond that is for the session's own keepalive.
const MAX_DOUBLINGS: u32 = 4;

/// What of a stream is waited for. It knows no time: whoever holds it sets an alarm by [`Awaited::look_after`], and leaves it
/// set from one wait to the next, so that a wait that is short costs nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Awaited {
    state: State,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum State {
    /// Nothing is waited for.
    #[default]
    Nothing,
    /// Something is, and that may have begun after the alarm was set.
    New,
    /// It was waited for already when the alarm was set, for the time of a look doubled so often.
    Watched(u32),
    /// For so long that it is not looked at any more.
    Long,
}

impl Awaited {
    /// The answer to an opening is waited for.
    #[must_use]
    pub fn opening() -> Self {
        Self { state: State::New }
    }

    /// Something was sent: what comes next is waited for.
    pub fn sent(&mut self) {
        if self.state == State::Nothing {
            self.state = State::New;
        }
    }

    /// Something came. Returns whether an alarm that is set is too late for the next wait: let it go.
    pub fn came(&mut self) -> bool {
        matches!(std::mem::take(&mut self.state), State::Watched(1..))
    }

    /// Whether the wait is to be looked at.
    #[must_use]
    pub fn is_watched(&self) -> bool {
        matches!(self.state, State::New | State::Watched(_))
    }

    /// No alarm was set, and one is from now on: after how long. None when there is nothing to look at.
    pub fn look_after(&mut self) -> Option<Duration> {
        let doublings = match self.state {
            State::New => 0,
            State::Watched(doublings) => doublings,
            State::Nothing | State::Long => return None,
        };
        self.state = State::Watched(doublings);
        Some(FIRST_LOOK * (1 << doublings))
    }

    /// The alarm went off. Returns whether the other side is to be asked whether it is there. The next alarm is set by
    /// [`Self::look_after`].
    pub fn looked(&mut self) -> bool {
        let State::Watched(doublings) = self.state else { return false };
        self.state = if doublings < MAX_DOUBLINGS { State::Watched(doublings + 1) } else { State::Long };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When it is asked, in milliseconds, of a wait that begins at 0, with an alarm that was set for then.
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
    fn who_is_waited_for_is_asked_within_a_second_and_then_ever_less_often() {
        assert_eq!(asks(Awaited::opening(), None), [500, 1_500, 3_500, 7_500, 15_500]);
        let mut awaited = Awaited::default();
        assert_eq!(asks(awaited, None), Vec::<u64>::new());
        awaited.sent();
        // An alarm of the wait before this one goes off: this one has begun since, so it is not asked yet.
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
