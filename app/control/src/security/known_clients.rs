//! Clients that have logged in before, in a bounded set.

use std::{
    collections::{HashSet, VecDeque},
    hash::Hash,
    net::IpAddr,
};

/// How many pairs of an e-mail address and a client are remembered.
const MAX_KNOWN_PAIRS: usize = 16_384;
/// Pairs of a key and a client that have logged in, in the order of their first login.
#[derive(Debug)]
pub(crate) struct KnownClients<K> {
    pairs: HashSet<(K, IpAddr)>,
    order: VecDeque<(K, IpAddr)>,
}

impl<K> Default for KnownClients<K> {
    fn default() -> Self {
        Self { pairs: HashSet::new(), order: VecDeque::new() }
    }
}

impl<K: Hash + Eq + Clone> KnownClients<K> {
    pub(crate) fn contains(&self, pair: &(K, IpAddr)) -> bool {
        self.pairs.contains(pair)
    }

    pub(crate) fn remember(&mut self, pair: (K, IpAddr)) {
        if !self.pairs.insert(pair.clone()) {
            return;
        }
        self.order.push_back(pair);
        if self.order.len() > MAX_KNOWN_PAIRS
            && let Some(oldest) = self.order.pop_front()
        {
            self.pairs.remove(&oldest);
        }
    }
}
