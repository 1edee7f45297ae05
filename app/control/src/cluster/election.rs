//! Which control leads. Pure: time is an argument.
//!
//! The leader counts beats in the store, and stops to lead when it could not for [`LEASE`]. Another control takes over
//! when it has seen the same beat for longer than that. So two controls lead at once only if one of them was paused.

use std::time::Duration;

use sallyport_store::{HolderId, StoredLeader};

/// How often a leader counts a beat, and others look at it.
pub(crate) const BEAT_PERIOD: Duration = Duration::from_secs(1);
/// How long a leader leads after its last beat.
const LEASE: Duration = Duration::from_secs(4);
/// The shortest time between two raises of a term.
const RAISE_PERIOD: Duration = Duration::from_secs(60);
/// How long the same beat has to be seen before another control takes over.
const TAKE_OVER_AFTER: Duration = Duration::from_secs(6);

/// The election of one task, as one control sees it. Times are measured from any fixed moment.
#[derive(Debug)]
pub(crate) struct Election {
    own: HolderId,
    /// Whether other controls may share the store.
    is_shared: bool,
    seen: Option<(Option<StoredLeader>, Duration)>,
    /// The own term, and when the last beat began that succeeded.
    leads: Option<(i64, Duration)>,
    raised_at: Option<Duration>,
}

impl Election {
    pub(crate) fn new(own: HolderId, is_shared: bool) -> Self {
        Self { own, is_shared, seen: None, leads: None, raised_at: None }
    }

    /// The term, while this control leads.
    pub(crate) fn term(&self, now: Duration) -> Option<i64> {
        self.leads.filter(|(_, at)| now.saturating_sub(*at) < LEASE).map(|(term, _)| term)
    }

    /// The term of which a beat is to be counted, if this control may still lead.
    pub(crate) fn beats(&mut self, now: Duration) -> Option<i64> {
        if self.term(now).is_none() {
            self.leads = None;
        }
        self.leads.map(|(term, _)| term)
    }

    /// Takes the result of a beat that began at this time.
    pub(crate) fn handle_beat(&mut self, is_leader: bool, began: Duration) {
        self.leads = self.leads.filter(|_| is_leader).map(|(term, _)| (term, began));
        self.seen = None;
    }

    /// Takes the stored leader. Returns whether this control is to take over.
    pub(crate) fn handle_leader(&mut self, stored: Option<StoredLeader>, now: Duration) -> bool {
        let since = self.seen.as_ref().filter(|(seen, _)| *seen == stored).map_or(now, |(_, since)| *since);
        self.seen = Some((stored, since));
        let Some(leader) = stored else { return true };
        !self.is_shared || leader.holder == self.own || now.saturating_sub(since) >= TAKE_OVER_AFTER
    }

    /// Whether the term may be raised now. Edges that claim ever later terms cannot keep a leader busy with that.
    pub(crate) fn may_raise(&mut self, now: Duration) -> bool {
        let may_raise = self.raised_at.is_none_or(|at| now.saturating_sub(at) >= RAISE_PERIOD);
        if may_raise {
            self.raised_at = Some(now);
        }
        may_raise
    }

    /// This control leads, since a write that began at this time.
    pub(crate) fn handle_lead(&mut self, term: i64, began: Duration) {
        (self.leads, self.seen) = (Some((term, began)), None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn leader(holder: u8, term: i64, beat: i64) -> Option<StoredLeader> {
        Some(StoredLeader { holder: [holder; 16], term, beat })
    }

    #[test]
    fn a_leader_that_stops_is_followed_by_another_and_never_before_its_end() {
        let mut election = Election::new([1; 16], true);
        assert!(!election.handle_leader(leader(2, 5, 1), s(0)));
        assert!(!election.handle_leader(leader(2, 5, 2), s(4)));
        assert!(!election.handle_leader(leader(2, 5, 2), s(9)));
        assert!(election.handle_leader(leader(2, 5, 2), s(10)));
        election.handle_lead(6, s(10));
        assert_eq!((election.term(s(13)), election.term(s(14))), (Some(6), None));
        assert_eq!(election.beats(s(11)), Some(6));
        election.handle_beat(true, s(11));
        assert_eq!(election.term(s(14)), Some(6));
        election.handle_beat(false, s(12));
        assert_eq!(election.term(s(12)), None, "another one has taken over");
        election.handle_lead(8, s(20));
        assert_eq!((election.beats(s(24)), election.term(s(21))), (None, None), "the store was away for too long");
        assert_eq!([30, 31, 90].map(|at| election.may_raise(s(at))), [true, false, true]);
    }

    #[test]
    fn a_lone_control_and_one_that_comes_back_lead_at_once() {
        assert!(Election::new([1; 16], true).handle_leader(None, s(0)));
        assert!(Election::new([1; 16], true).handle_leader(leader(1, 3, 7), s(0)));
        assert!(Election::new([1; 16], false).handle_leader(leader(2, 3, 7), s(0)));
    }
}
