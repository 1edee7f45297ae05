//! The flows of one UDP port, and the bounds that hold when datagrams come from everywhere.
//!
//! Anybody can write any address on a datagram. A flow is *proven* when its client sent something after it had been
//! answered: whoever only pretends to have an address does not see answers. Flows that are not proven make room for new
//! ones, the oldest first; those that are proven never do. So a flood from invented addresses takes a bounded amount of
//! memory, and pushes out nothing but itself and flows as young as itself.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use sallyport_balance::limits::{RateLimit, TokenBucket};

use crate::limits::party;

/// How many flows all UDP ports of an edge have together.
pub(crate) const MAX_FLOWS: usize = 65_536;
/// How many flows one port has.
pub(crate) const MAX_FLOWS_PER_PORT: usize = 16_384;
/// How many flows a port has for each tunnel that is up: a little less than a connector takes of one.
pub(crate) const MAX_FLOWS_PER_TUNNEL: usize = 4_000;
/// How many flows a port may have even when all others have taken what there is.
pub(crate) const RESERVED_FLOWS_PER_PORT: usize = 256;
/// How many flows of a port one address may have; in IPv6, one network of 64 bits.
pub(crate) const MAX_FLOWS_PER_PARTY: usize = 1_024;
/// How many bytes a second flows that are not proven may send to one address, beyond three times what they got.
const UNPROVEN_BYTES_PER_SECOND: u64 = 262_144;

/// What makes a flow: whom it is from, and which address of ours they speak to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) client: SocketAddr,
    pub(crate) local: IpAddr,
}

/// What the flows of one address share: what those that are not proven may still send there.
#[derive(Debug)]
pub(crate) struct Party {
    unproven: Option<Mutex<TokenBucket>>,
}

impl Party {
    fn new(now: Instant) -> Arc<Self> {
        let limit = RateLimit::new(UNPROVEN_BYTES_PER_SECOND, UNPROVEN_BYTES_PER_SECOND).ok();
        Arc::new(Self { unproven: limit.map(|limit| Mutex::new(TokenBucket::new(limit, now))) })
    }

    /// Whether so many bytes more may be sent there by flows that are not proven.
    pub(crate) fn allows(&self, bytes: u64, now: Instant) -> bool {
        let Some(bucket) = &self.unproven else { return false };
        bucket.lock().unwrap_or_else(PoisonError::into_inner).take(bytes, now).is_ok()
    }
}

/// The flows of one port.
#[derive(Debug)]
pub(crate) struct Table<T> {
    flows: HashMap<Key, Entry<T>>,
    /// Those that are not proven, in the order of their arrival.
    unproven: BTreeMap<u64, Key>,
    parties: HashMap<IpAddr, OfParty>,
    next: u64,
    /// How many flows there are on all ports.
    everywhere: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct Entry<T> {
    number: u64,
    flow: T,
}

#[derive(Debug)]
struct OfParty {
    flows: usize,
    unproven: BTreeSet<u64>,
    party: Arc<Party>,
}

/// There is no room, and nothing that would make way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Full;

impl<T> Table<T> {
    /// No flow yet. The count is of all ports together.
    pub(crate) fn new(everywhere: Arc<AtomicUsize>) -> Self {
        let (flows, unproven, parties) = (HashMap::new(), BTreeMap::new(), HashMap::new());
        Self { flows, unproven, parties, next: 0, everywhere }
    }

    /// How many flows there are.
    pub(crate) fn len(&self) -> usize {
        self.flows.len()
    }

    /// The flow.
    pub(crate) fn get_mut(&mut self, key: &Key) -> Option<&mut T> {
        self.flows.get_mut(key).map(|entry| &mut entry.flow)
    }

    /// The client of this flow is where it says it is: it does not make room for others any more.
    pub(crate) fn prove(&mut self, key: &Key) {
        let Some(entry) = self.flows.get(key) else { return };
        self.unproven.remove(&entry.number);
        if let Some(of_party) = self.parties.get_mut(&party(key.client.ip())) {
            of_party.unproven.remove(&entry.number);
        }
    }

    /// Sees to it that there is room for one more flow of this address, where so many tunnels are up; gives the flow that
    /// made way, if one had to.
    ///
    /// # Errors
    /// When there is none: the flow is not to be begun.
    pub(crate) fn make_room(&mut self, client: IpAddr, tunnels: usize) -> Result<Option<T>, Full> {
        let max = MAX_FLOWS_PER_PORT.min(MAX_FLOWS_PER_TUNNEL.saturating_mul(tunnels.max(1)));
        let of_party = self.parties.get(&party(client));
        let oldest = if of_party.is_some_and(|of_party| of_party.flows >= MAX_FLOWS_PER_PARTY) {
            of_party.and_then(|of_party| of_party.unproven.first().copied())
        } else if self.len() >= max
            || (self.len() >= RESERVED_FLOWS_PER_PORT && self.everywhere.load(Ordering::Relaxed) >= MAX_FLOWS)
        {
            self.unproven.first_key_value().map(|(number, _)| *number)
        } else {
            return Ok(None);
        };
        let key = oldest.and_then(|number| self.unproven.get(&number).copied()).ok_or(Full)?;
        Ok(self.remove(&key))
    }

    /// The oldest flow that is not proven, taken out to make way.
    pub(crate) fn evict(&mut self) -> Option<T> {
        let key = self.unproven.first_key_value().map(|(_, key)| *key)?;
        self.remove(&key)
    }

    /// What flows from this address share.
    pub(crate) fn party(&self, client: IpAddr, now: Instant) -> Arc<Party> {
        let known = self.parties.get(&party(client));
        known.map_or_else(|| Party::new(now), |of_party| of_party.party.clone())
    }

    /// Puts a new flow in, with what [`Table::party`] gave. There is none with this key.
    pub(crate) fn insert(&mut self, key: Key, party_of: Arc<Party>, flow: T) {
        let number = self.next;
        self.next += 1;
        if self.flows.insert(key, Entry { number, flow }).is_some() {
            return;
        }
        self.everywhere.fetch_add(1, Ordering::Relaxed);
        self.unproven.insert(number, key);
        let of_party = self.parties.entry(party(key.client.ip())).or_insert_with(|| OfParty {
            flows: 0,
            unproven: BTreeSet::new(),
            party: party_of,
        });
        of_party.flows += 1;
        of_party.unproven.insert(number);
    }

    /// Takes the flow out.
    pub(crate) fn remove(&mut self, key: &Key) -> Option<T> {
        let entry = self.flows.remove(key)?;
        self.everywhere.fetch_sub(1, Ordering::Relaxed);
        self.unproven.remove(&entry.number);
        let of = party(key.client.ip());
        if let Some(of_party) = self.parties.get_mut(&of) {
            of_party.unproven.remove(&entry.number);
            of_party.flows -= 1;
            if of_party.flows == 0 {
                self.parties.remove(&of);
            }
        }
        Some(entry.flow)
    }

    /// Every flow, in no order.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&Key, &mut T)> {
        self.flows.iter_mut().map(|(key, entry)| (key, &mut entry.flow))
    }

    /// Takes out every flow of which this is true.
    pub(crate) fn take_if(&mut self, mut is_over: impl FnMut(&mut T) -> bool) -> Vec<T> {
        let over: Vec<Key> = self.iter_mut().filter_map(|(key, flow)| is_over(flow).then_some(*key)).collect();
        over.iter().filter_map(|key| self.remove(key)).collect()
    }
}

impl<T> Drop for Table<T> {
    fn drop(&mut self) {
        self.everywhere.fetch_sub(self.flows.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(client: u32) -> Key {
        let client = SocketAddr::new(IpAddr::V4(client.into()), 4_000);
        Key { client, local: IpAddr::from([127, 0, 0, 1]) }
    }

    fn add(table: &mut Table<u32>, key: Key, value: u32) -> Result<Option<u32>, Full> {
        let evicted = table.make_room(key.client.ip(), 5)?;
        let party = table.party(key.client.ip(), Instant::now());
        table.insert(key, party, value);
        Ok(evicted)
    }

    #[test]
    fn a_flood_pushes_out_itself_and_nothing_that_is_proven() {
        let everywhere = Arc::new(AtomicUsize::new(0));
        let mut table = Table::new(everywhere.clone());
        for client in 0..100 {
            add(&mut table, key(client), client).unwrap();
            table.prove(&key(client));
        }
        for client in 100..200_000 {
            let evicted = add(&mut table, key(client), client).unwrap();
            assert!(evicted.is_none_or(|evicted| evicted >= 100));
        }
        assert_eq!((table.len(), everywhere.load(Ordering::Relaxed)), (MAX_FLOWS_PER_PORT, MAX_FLOWS_PER_PORT));
        assert_eq!((table.parties.len(), table.unproven.len()), (MAX_FLOWS_PER_PORT, MAX_FLOWS_PER_PORT - 100));
        assert!((0..100).all(|client| table.get_mut(&key(client)).is_some()));
        assert!(table.get_mut(&key(199_999)).is_some(), "the newest is there");
        assert!(table.make_room(key(0).client.ip(), 1).unwrap().is_some(), "fewer tunnels take fewer");
        drop(table);
        assert_eq!(everywhere.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn one_address_has_its_share_and_refuses_itself_when_all_are_proven() {
        let mut table = Table::new(Arc::default());
        let one = |port| Key { client: SocketAddr::from(([192, 0, 2, 1], port)), local: [127, 0, 0, 1].into() };
        add(&mut table, key(7), 0).unwrap();
        for port in 1..=1_025 {
            let evicted = add(&mut table, one(port), u32::from(port)).unwrap();
            assert_eq!(evicted, (port == 1_025).then_some(1));
        }
        assert_eq!(table.len(), MAX_FLOWS_PER_PARTY + 1);
        (2..=1_025).for_each(|port| table.prove(&one(port)));
        assert_eq!(add(&mut table, one(2_000), 0), Err(Full));
        assert_eq!(add(&mut table, key(8), 0), Ok(None), "others come in");
        assert_eq!(table.take_if(|flow| *flow > 1_000).len(), 25);
        assert_eq!(add(&mut table, one(2_000), 0), Ok(None));
    }

    #[test]
    fn a_full_edge_leaves_each_port_its_reserve() {
        let everywhere = Arc::new(AtomicUsize::new(MAX_FLOWS));
        let mut table = Table::new(everywhere);
        for client in 0..1_000 {
            add(&mut table, key(client), client).unwrap();
        }
        assert_eq!(table.len(), RESERVED_FLOWS_PER_PORT);
    }

    #[test]
    fn what_goes_to_an_address_unproven_is_bounded() {
        let now = Instant::now();
        let party = Party::new(now);
        assert!(party.allows(UNPROVEN_BYTES_PER_SECOND, now));
        assert!(!party.allows(4_000, now));
        assert!(party.allows(4_000, now + std::time::Duration::from_secs(1)));
    }
}
