//! Who leads: the rules of the lease, by one clock alone.
//!
//! The times in a lease are those of the machine that wrote them. They are not compared with the own clock: a replica
//! measures, by its own monotonic clock, how long a lease has stayed the same. A lease is no fence: a leader that was
//! stopped for long may still have a request on its way, so every write is one that may happen twice.

use std::time::Duration;

/// The longest duration that a lease of another program is believed.
const LONGEST_LEASE: Duration = Duration::from_mins(2);

/// A lease as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct LeaseRecord {
    /// `spec.holderIdentity`; empty: nobody.
    pub(crate) holder: String,
    /// `spec.leaseDurationSeconds`.
    pub(crate) duration_seconds: u64,
    /// `spec.renewTime`, as text: only whether it changes counts.
    pub(crate) renew_time: String,
    /// `spec.leaseTransitions`.
    pub(crate) transitions: i64,
    /// `metadata.resourceVersion`, with which a write must be made.
    pub(crate) resource_version: String,
}

/// What to do about the lease now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LeaseStep {
    /// Create it, with this replica as the holder.
    Create,
    /// Write this replica into it, with the resource version that was read.
    Take {
        /// `spec.leaseTransitions` to write.
        transitions: i64,
    },
    /// Write a new renewal time into it, with the resource version that was read.
    Renew,
    /// Look again after this time.
    Wait(Duration),
}

/// What one replica knows about the lease.
#[derive(Debug, Clone)]
pub(crate) struct Election {
    identity: String,
    renew_every: Duration,
    renew_deadline: Duration,
    seen: Option<(LeaseRecord, Duration)>,
    renewed: Option<Duration>,
}

impl Election {
    /// A replica with this identity, which no other one has. Its lease holds for `duration`, of which it leads for
    /// seven tenths without a renewal, and it is renewed every `renew_every`.
    pub(crate) fn new(identity: impl Into<String>, duration: Duration, renew_every: Duration) -> Self {
        let renew_deadline = duration.mul_f64(0.7);
        Self { identity: identity.into(), renew_every, renew_deadline, seen: None, renewed: None }
    }

    /// What to do after a look at the lease at `now`; `None`: there is no lease.
    pub(crate) fn look(&mut self, record: Option<LeaseRecord>, now: Duration) -> LeaseStep {
        let Some(record) = record else {
            self.seen = None;
            return LeaseStep::Create;
        };
        let since = match &self.seen {
            Some((seen, since)) if *seen == record => *since,
            _ => now,
        };
        self.seen = Some((record.clone(), since));
        if record.holder == self.identity {
            let is_due = self.renewed.is_none_or(|renewed| now.saturating_sub(renewed) >= self.renew_every);
            return if is_due { LeaseStep::Renew } else { LeaseStep::Wait(self.renew_every) };
        }
        self.renewed = None;
        let duration = Duration::from_secs(record.duration_seconds).clamp(Duration::from_secs(1), LONGEST_LEASE);
        let rest = since.saturating_add(duration).saturating_sub(now);
        if record.holder.is_empty() || rest.is_zero() {
            return LeaseStep::Take { transitions: record.transitions.saturating_add(1) };
        }
        LeaseStep::Wait(rest.min(self.renew_every))
    }

    /// The write was accepted; `began` is when it began, since it may have been on its way for long.
    pub(crate) fn written(&mut self, began: Duration) {
        self.renewed = Some(began);
    }

    /// Another replica wrote first (409). Its record is read next.
    pub(crate) fn lost(&mut self) {
        self.renewed = None;
        self.seen = None;
    }

    /// The lease was given back.
    pub(crate) fn released(&mut self) {
        self.renewed = None;
    }

    /// Until when this replica leads without a further renewal; `None` if it does not lead.
    pub(crate) fn leads_until(&self) -> Option<Duration> {
        self.renewed.map(|renewed| renewed.saturating_add(self.renew_deadline))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    fn election(identity: &str) -> Election {
        Election::new(identity, seconds(10), seconds(2))
    }

    fn lease(version: &str, holder: &str) -> LeaseRecord {
        LeaseRecord {
            holder: holder.into(),
            duration_seconds: 10,
            resource_version: version.into(),
            ..LeaseRecord::default()
        }
    }

    #[test]
    fn a_lease_is_taken_when_nothing_has_changed_for_its_duration() {
        let mut b = election("b");
        assert_eq!(b.look(None, seconds(0)), LeaseStep::Create);
        assert_eq!(b.look(Some(lease("1", "a")), seconds(1)), LeaseStep::Wait(seconds(2)));
        assert_eq!(b.look(Some(lease("1", "a")), seconds(10)), LeaseStep::Wait(seconds(1)));
        assert_eq!(b.look(Some(lease("2", "a")), seconds(11)), LeaseStep::Wait(seconds(2)), "it was renewed");
        assert_eq!(b.look(Some(lease("2", "a")), seconds(20)), LeaseStep::Wait(seconds(1)));
        assert_eq!(b.look(Some(lease("2", "a")), seconds(21)), LeaseStep::Take { transitions: 1 });
    }

    #[test]
    fn a_clock_that_is_apart_changes_nothing() {
        let mut b = election("b");
        for (at, renew_time) in [(0, "1970-01-01T00:00:00Z"), (5, "2199-01-01T00:00:00Z"), (10, "1999-01-01T00:00:00Z")]
        {
            let lease = LeaseRecord { renew_time: renew_time.into(), ..lease(renew_time, "a") };
            assert!(matches!(b.look(Some(lease), seconds(at)), LeaseStep::Wait(_)), "{renew_time}");
        }
    }

    #[test]
    fn a_released_lease_is_taken_at_once() {
        assert_eq!(election("b").look(Some(lease("9", "")), seconds(0)), LeaseStep::Take { transitions: 1 });
    }

    #[test]
    fn a_leader_stops_before_another_one_may_begin() {
        let mut a = election("a");
        assert_eq!(a.leads_until(), None);
        assert_eq!(a.look(Some(lease("1", "a")), seconds(0)), LeaseStep::Renew, "of an earlier run");
        assert_eq!(a.leads_until(), None, "not before the renewal is accepted");
        a.written(seconds(0));
        assert_eq!(a.leads_until(), Some(seconds(7)));
        assert_eq!(a.look(Some(lease("2", "a")), seconds(1)), LeaseStep::Wait(seconds(2)), "not due yet");
        assert_eq!(a.look(Some(lease("2", "a")), seconds(2)), LeaseStep::Renew);
        a.lost();
        assert_eq!(a.leads_until(), None, "another replica wrote first");
        a.written(seconds(3));
        assert!(matches!(a.look(Some(lease("5", "b")), seconds(4)), LeaseStep::Wait(_)));
        assert_eq!(a.leads_until(), None, "another replica took the lease");
    }

    #[test]
    fn a_holder_cannot_promise_for_ever() {
        let mut b = election("b");
        let endless = LeaseRecord { duration_seconds: u64::MAX, ..lease("1", "a") };
        assert!(matches!(b.look(Some(endless.clone()), seconds(0)), LeaseStep::Wait(_)));
        assert!(matches!(b.look(Some(endless), seconds(120)), LeaseStep::Take { .. }));
    }
}
