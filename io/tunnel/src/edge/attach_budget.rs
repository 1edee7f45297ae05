//! Rate limit of ATTACH in one session.
//!
//! A session needs one ATTACH for each tunnel. More of them would cost log lines and searches among the routes for as
//! long as a connector likes.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use sallyport_model::TunnelId;
use sallyport_wire::session::MAX_TUNNELS_PER_SESSION;

/// Burst of attachments that are repetitions or fail.
pub(super) const MAX_ATTACH_BURST: u32 = 16;
/// Time after which one more is allowed.
pub(super) const ATTACH_PERIOD: Duration = Duration::from_secs(1);

/// The budget of one session. The first attachment of a tunnel is free.
#[derive(Debug)]
pub(super) struct AttachBudget {
    /// When the budget is full again.
    full_at: Instant,
    /// The tunnels attached so far; at most [`MAX_TUNNELS_PER_SESSION`].
    seen: HashSet<TunnelId>,
}

impl AttachBudget {
    /// A full budget.
    pub(super) fn new(now: Instant) -> Self {
        Self { full_at: now, seen: HashSet::new() }
    }

    /// Counts an attachment; false if the budget is exhausted.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        let next = self.full_at.max(now) + ATTACH_PERIOD;
        let is_within = next <= now + ATTACH_PERIOD * MAX_ATTACH_BURST;
        if is_within {
            self.full_at = next;
        }
        is_within
    }

    /// Reports that the attachment counted last succeeded: it is free if the tunnel is attached for the first time.
    pub(super) fn attached(&mut self, tunnel: TunnelId, now: Instant) {
        if self.seen.len() < MAX_TUNNELS_PER_SESSION && self.seen.insert(tunnel) {
            self.full_at = self.full_at.checked_sub(ATTACH_PERIOD).unwrap_or(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_tunnels_are_free_and_repetitions_are_few() {
        let start = Instant::now();
        let mut budget = AttachBudget::new(start);
        let tunnel = |number: u16| {
            let mut id = [0; 16];
            id[..2].copy_from_slice(&number.to_be_bytes());
            TunnelId::from_random(id)
        };
        for number in 0..256 {
            assert!(budget.take(start), "{number}");
            budget.attached(tunnel(number), start);
        }
        for _ in 0..MAX_ATTACH_BURST {
            assert!(budget.take(start));
            budget.attached(tunnel(7), start);
        }
        assert!(!budget.take(start));
        let later = start + ATTACH_PERIOD;
        assert!(budget.take(later) && !budget.take(later), "one a second");
        let much_later = start + Duration::from_secs(3_600);
        for _ in 0..MAX_ATTACH_BURST {
            assert!(budget.take(much_later));
        }
        assert!(!budget.take(much_later), "it holds no more than its burst");
    }
}
