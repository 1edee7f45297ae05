//! Who leads: the rules of the lease, by one clock alone.
//!
//! The times in a lease are those of the machine that wrote them. They are not compared with the own clock: a replica
//! measures, by its own monotonic clock, how long a lease has stayed the same. A lease is no fence: a leader that was
//! stopped for long may still have a request on its way, so every write is one that may happen twice.

use std::time::Duration;

/// How long a lease holds after its last renewal; `spec.leaseDurationSeconds`.
pub const LEASE_DURATION: Duration = Duration::from_secs(10);
/// How long a leader goes on without a renewal.
pub const RENEW_DEADLINE: Duration = Duration::from_secs(7);
/// The time between two renewals, and between two looks of the others.
pub const RENEW_EVERY: Duration = Duration::from_secs(2);

/// The longest duration that a lease of another program is believed.
const LONGEST_LEASE: Duration = Duration::from_mins(2);

/// A lease as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LeaseRecord {
    /// `spec.holderIdentity`; empty: nobody.
    pub holder: String,
    /// `spec.leaseDurationSeconds`.
    pub duration_seconds: u64,
    /// `spec.renewTime`, as text: only whether it changes counts.
    pub renew_time: String,
    /// `spec.leaseTransitions`.
    pub transitions: i64,
    /// `metadata.resourceVersion`, with which a write must be made.
    pub resource_version: String,
}

/// What to do about the lease now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseStep {
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
pub struct Election {
    identity: String,
    seen: Option<(LeaseRecord, Duration)>,
    renewed: Option<Duration>,
}

impl Election {
    /// A replica with this identity, which no other one has.
    #[must_use]
    pub fn new(identity: impl Into<String>) -> Self {
        Self { identity: identity.into(), seen: None, renewed: None }
    }

    /// What to do after a look at the lease at `now`; `None`: there is no lease.
    pub fn look(&mut self, record: Option<LeaseRecord>, now: Duration) -> LeaseStep {
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
            let is_due = self.renewed.is_none_or(|renewed| now.saturating_sub(renewed) >= RENEW_EVERY);
            return if is_due { LeaseStep::Renew } else { LeaseStep::Wait(RENEW_EVERY) };
        }
        self.renewed = None;
        let duration = Duration::from_secs(record.duration_seconds).clamp(Duration::from_secs(1), LONGEST_LEASE);
        let rest = since.saturating_add(duration).saturating_sub(now);
        if record.holder.is_empty() || rest.is_zero() {
            return LeaseStep::Take { transitions: record.transitions.saturating_add(1) };
        }
        LeaseStep::Wait(rest.min(RENEW_EVERY))
    }

    /// The write was accepted; `began` is when it began, since it may have been on its way for long.
    pub fn written(&mut self, began: Duration) {
        self.renewed = Some(began);
    }

    /// Another replica wrote first (409). Its record is read next.
    pub fn lost(&mut self) {
        self.renewed = None;
        self.seen = None;
    }

    /// Whether this replica leads. Without renewals it stops before another one may begin.
    #[must_use]
    pub fn is_leader(&self, now: Duration) -> bool {
        self.renewed.is_some_and(|renewed| now.saturating_sub(renewed) < RENEW_DEADLINE)
    }
}
