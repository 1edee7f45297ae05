//! Shares of a session's legs, and of its control connection's streams, for each client.
//!
//! One client can open thousands of streams and read none of them. The shares leave room for other clients:
//! [`sallyport_wire::Shares`].

use std::{net::SocketAddr, sync::Arc};

use parking_lot::Mutex;
use sallyport_wire::{Client, Shares};

/// Below this number nothing is shared out: first come, first served.
const MIN_SHARED: usize = 16;

/// A number of items shared out among clients. Clones share the counts.
#[derive(Clone)]
pub(crate) struct FairShare {
    max: usize,
    shares: Arc<Mutex<Shares>>,
}

/// Guard of one item, counted for a client until dropped.
pub(crate) struct ShareGuard {
    of: FairShare,
    /// `None` while the item is idle.
    client: Option<Client>,
}

impl FairShare {
    pub(crate) fn new(max: usize) -> Self {
        Self { max, shares: Arc::default() }
    }

    /// Whether this client may have one more item.
    pub(crate) fn has_room(&self, client: SocketAddr) -> bool {
        let shares = self.shares.lock();
        self.max < MIN_SHARED || shares.room(client.into(), self.max as u64) > 0
    }

    /// Counts one item for this client, even beyond the client's share.
    pub(crate) fn hold(&self, client: SocketAddr) -> ShareGuard {
        let mut guard = ShareGuard { of: self.clone(), client: None };
        guard.set_client(Some(client));
        guard
    }
}

impl ShareGuard {
    /// Sets the client that the item counts for; `None` for no client.
    pub(crate) fn set_client(&mut self, client: Option<SocketAddr>) {
        let client = client.map(Client::from);
        if client == self.client {
            return;
        }
        let mut shares = self.of.shares.lock();
        if let Some(former) = std::mem::replace(&mut self.client, client) {
            shares.give_back(former, 1);
        }
        if let Some(client) = client {
            shares.take(client, 1);
        }
    }
}

impl Drop for ShareGuard {
    fn drop(&mut self) {
        self.set_client(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_leg_has_no_owner_and_a_reused_leg_has_its_new_one() {
        let shared = FairShare::new(64);
        let (one, two) = ("192.0.2.1:1".parse().unwrap(), "192.0.2.2:1".parse().unwrap());
        let mut guards = Vec::new();
        while shared.has_room(one) {
            guards.push(shared.hold(one));
        }
        assert_eq!(guards.len(), 48);
        assert!(shared.has_room(two), "another one has room");
        guards[0].set_client(None);
        assert!(shared.has_room(one));
        guards[0].set_client(Some(two));
        guards[1].set_client(Some(two));
        assert!(shared.has_room(one));
        drop(guards);
        assert_eq!(shared.shares.lock().total(), 0);
    }

    #[test]
    fn a_few_are_not_shared_out() {
        let shared = FairShare::new(MIN_SHARED - 1);
        let one = "192.0.2.1:1".parse().unwrap();
        let guards: Vec<_> = (0..MIN_SHARED).map(|_| shared.hold(one)).collect();
        assert!(shared.has_room(one));
        drop(guards);
    }
}
