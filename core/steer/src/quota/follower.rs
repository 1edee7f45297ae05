//! Which assignments an edge follows, and until when.
//!
//! An assignment is valid for [`TERM`] after the report that it answers was sent, by the edge's own clock. So a delay on
//! the way never makes it valid for longer. While the leader is away, the edge keeps its quotas as long as it reaches a
//! majority of the edges: no leader takes a quota from an edge that a majority still reaches. An edge that reaches
//! neither a leader nor a majority is cut off, and gives its quotas up.

use std::{collections::VecDeque, time::Duration};

use sallyport_model::EdgeId;

use crate::{
    TERM,
    report::{LoadReport, QuotaAssignment},
};

/// After how long without an assignment an edge checks which other edges it reaches.
const CHECK_AFTER: Duration = Duration::from_secs(3);
/// How often it does.
const CHECK_PERIOD: Duration = Duration::from_secs(3);
/// How many reports are remembered, to know when they were sent.
const MAX_REMEMBERED: usize = 32;

/// Reason why an assignment is not followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It is for another edge, or another run of this one.
    #[error("the assignment is for another edge or another run of this one")]
    Misaddressed,
    /// A later leader has taken over.
    #[error("the assignment is of a former leader")]
    FormerLeader,
    /// It is older than the one that applies.
    #[error("the assignment is older than the known one")]
    Old,
    /// It answers a report that this edge has not sent, or sent too long ago.
    #[error("the assignment answers no recent report")]
    Unasked,
}

/// How an assignment applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applies {
    /// As it is.
    Fully,
    /// Only where it gives less than the edge has. The leader is new, and does not know yet what the edge has got from
    /// a former one.
    Shrinking,
}

/// Follows the assignments to one edge. Times are measured from the start of the edge's epoch.
#[derive(Debug, Clone)]
pub struct AssignmentFollower {
    edge: EdgeId,
    epoch: u64,
    /// The last reports: number, time, and the term that they named.
    sent: VecDeque<(u64, Duration, u64)>,
    number: u64,
    term: u64,
    assignment: u64,
    /// The number of the last whole report that the leader has.
    known_base: u64,
    /// How many edges the leader counted.
    edges: u32,
    /// When the report was sent that the last assignment answers.
    answered_at: Option<Duration>,
    /// When the last check began that found a majority.
    majority_at: Option<Duration>,
    checked_at: Option<Duration>,
    /// When the quotas of the former run of the edge end.
    restored_until: Option<Duration>,
}

impl AssignmentFollower {
    /// No assignment yet.
    #[must_use]
    pub fn new(edge: EdgeId, epoch: u64) -> Self {
        Self {
            edge,
            epoch,
            sent: VecDeque::new(),
            number: 0,
            term: 0,
            assignment: 0,
            known_base: 0,
            edges: 0,
            answered_at: None,
            majority_at: None,
            checked_at: None,
            restored_until: None,
        }
    }

    /// An empty report, which counts as sent now.
    pub fn begin_report(&mut self, now: Duration) -> LoadReport {
        self.number += 1;
        if self.sent.len() >= MAX_REMEMBERED {
            self.sent.pop_front();
        }
        self.sent.push_back((self.number, now, self.term));
        LoadReport {
            schema: crate::report::STEER_SCHEMA,
            edge: self.edge,
            epoch: self.epoch,
            number: self.number,
            at_us: u64::try_from(now.as_micros()).unwrap_or(u64::MAX),
            term: self.term,
            assignment: self.assignment,
            base: 0,
            unreachable: Vec::new(),
            classes: Vec::new(),
            origins: Vec::new(),
            is_urgent: false,
            is_last: false,
        }
    }

    /// Takes an assignment, whose quotas then apply in this way.
    ///
    /// # Errors
    /// The assignment does not apply.
    pub fn handle_assignment(&mut self, assignment: &QuotaAssignment) -> Result<Applies, Refused> {
        if assignment.edge != self.edge || assignment.epoch != self.epoch {
            return Err(Refused::Misaddressed);
        }
        if assignment.term < self.term {
            return Err(Refused::FormerLeader);
        }
        if assignment.term == self.term && assignment.number <= self.assignment {
            return Err(Refused::Old);
        }
        let sent = self.sent.iter().find(|(number, ..)| *number == assignment.answers);
        let (_, sent_at, named) = sent.ok_or(Refused::Unasked)?;
        let applies = if *named == assignment.term { Applies::Fully } else { Applies::Shrinking };
        (self.term, self.assignment) = (assignment.term, assignment.number);
        (self.known_base, self.edges) = (assignment.base, assignment.edges);
        self.answered_at = Some(self.answered_at.map_or(*sent_at, |at| at.max(*sent_at)));
        Ok(applies)
    }

    /// Continues with the quotas of the former run of the edge, which end at this time. `edges`: how many edges the
    /// leader counted then.
    pub fn restore(&mut self, until: Duration, edges: u32) {
        (self.restored_until, self.edges) = (Some(until), edges);
    }

    /// How many edges the leader counted.
    #[must_use]
    pub fn edges(&self) -> u32 {
        self.edges
    }

    /// Takes the result of a check that began at this time: how many of the other edges were reached. Quotas that had
    /// ended by then stay ended.
    pub fn handle_reach(&mut self, began: Duration, reached: usize, others: usize) {
        // An edge that has just started may not know the others yet.
        let counted = usize::try_from(self.edges).unwrap_or(usize::MAX).saturating_sub(1);
        let others = others.max(counted);
        // The edge counts itself.
        if self.is_valid(began) && reached + 1 > others.div_ceil(2) {
            self.majority_at = Some(self.majority_at.map_or(began, |at| at.max(began)));
        }
    }

    /// Whether to check now which other edges are reached.
    pub fn poll_check(&mut self, now: Duration) -> bool {
        let Some(answered_at) = self.answered_at.or(self.restored_until.map(|_| Duration::ZERO)) else { return false };
        let is_due = now.saturating_sub(answered_at) >= CHECK_AFTER
            && self.checked_at.is_none_or(|at| now.saturating_sub(at) >= CHECK_PERIOD);
        if is_due {
            self.checked_at = Some(now);
        }
        is_due
    }

    /// When the quotas end; `None` without an assignment.
    #[must_use]
    pub fn valid_until(&self) -> Option<Duration> {
        let answered = self.answered_at.map(|at| at + TERM);
        let first = answered.into_iter().chain(self.restored_until).max()?;
        Some(self.majority_at.map_or(first, |at| first.max(at + TERM)))
    }

    /// Whether the quotas still apply.
    #[must_use]
    pub fn is_valid(&self, now: Duration) -> bool {
        self.valid_until().is_some_and(|until| now < until)
    }

    /// The number of the last whole report that the leader has; `None` while no leader is heard, and when it has none.
    #[must_use]
    pub fn known_base(&self, now: Duration) -> Option<u64> {
        let is_heard = self.answered_at.is_some_and(|at| now.saturating_sub(at) < CHECK_AFTER);
        Some(self.known_base).filter(|base| is_heard && *base > 0)
    }

    /// How long ago the report was sent that the last assignment answers; since the start, if the quotas are of the former
    /// run. `None` without an assignment.
    #[must_use]
    pub fn age(&self, now: Duration) -> Option<Duration> {
        let since = self.answered_at.or(self.restored_until.map(|_| Duration::ZERO));
        since.map(|at| now.saturating_sub(at))
    }
}
