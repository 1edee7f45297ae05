//! Bounds on datagram flows, for each account and for the edge.

use std::{
    collections::HashMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

use parking_lot::Mutex;
use sallyport_model::AccountId;

/// How many flows all UDP ports of an edge have together.
pub(crate) const MAX_FLOWS: usize = 65_536;
/// How many flows the ports of one account have, so that other accounts do not run short.
pub(crate) const MAX_FLOWS_PER_ACCOUNT: usize = MAX_FLOWS / 2;

/// The counts of an edge.
#[derive(Debug, Default)]
pub(crate) struct FlowCounts {
    all: Arc<AtomicUsize>,
    by_account: Mutex<HashMap<AccountId, Weak<AtomicUsize>>>,
}

impl FlowCounts {
    /// The count for one port of this account.
    pub(crate) fn of(&self, account: AccountId) -> FlowCount {
        let mut by_account = self.by_account.lock();
        by_account.retain(|_, count| count.strong_count() > 0);
        let of_account = by_account.get(&account).and_then(Weak::upgrade).unwrap_or_default();
        by_account.insert(account, Arc::downgrade(&of_account));
        FlowCount { all: self.all.clone(), of_account }
    }

    /// How many flows there are.
    pub(crate) fn all(&self) -> usize {
        self.all.load(Ordering::Relaxed)
    }
}

/// The count for one port.
#[derive(Debug, Clone, Default)]
pub(crate) struct FlowCount {
    all: Arc<AtomicUsize>,
    of_account: Arc<AtomicUsize>,
}

impl FlowCount {
    /// Counts one more flow.
    pub(crate) fn begun(&self) {
        self.all.fetch_add(1, Ordering::Relaxed);
        self.of_account.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts this many flows fewer.
    pub(crate) fn ended(&self, flows: usize) {
        self.all.fetch_sub(flows, Ordering::Relaxed);
        self.of_account.fetch_sub(flows, Ordering::Relaxed);
    }

    /// Whether the bound of the account or of the edge is reached.
    pub(crate) fn is_full(&self) -> bool {
        self.all.load(Ordering::Relaxed) >= MAX_FLOWS
            || self.of_account.load(Ordering::Relaxed) >= MAX_FLOWS_PER_ACCOUNT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_that_has_its_share_leaves_room_for_others() {
        let counts = FlowCounts::default();
        let account = |id: u8| AccountId::from_random([id; 16]);
        let (greedy, same, modest) = (counts.of(account(1)), counts.of(account(1)), counts.of(account(2)));
        (0..MAX_FLOWS_PER_ACCOUNT - 1).for_each(|_| greedy.begun());
        assert!(!greedy.is_full() && !same.is_full());
        same.begun();
        assert!(greedy.is_full() && same.is_full() && !modest.is_full(), "all ports of an account count together");
        (0..MAX_FLOWS_PER_ACCOUNT).for_each(|_| modest.begun());
        assert!(counts.of(account(3)).is_full(), "there are no more in all");
        greedy.ended(MAX_FLOWS_PER_ACCOUNT - 1);
        assert!(!greedy.is_full() && modest.is_full());
        drop((greedy, same));
        assert_eq!(
            (counts.of(account(1)).of_account.load(Ordering::Relaxed), counts.all()),
            (0, MAX_FLOWS_PER_ACCOUNT + 1)
        );
    }
}
