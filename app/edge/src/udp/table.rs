//! The flows of one UDP port, and the bounds that hold under a flood of datagrams.
//!
//! Source addresses can be forged. When there is no room, a flow of the lowest [`Level`] is evicted: of the address
//! with most such flows, the oldest one. A flood from forged addresses so takes bounded memory and evicts itself, and
//! so does a flood from few addresses that answers. Flows of the highest level are safe, with one exception. If they
//! leave hardly any room, flows of networks with more than a few of them are evicted.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap},
    net::{IpAddr, Ipv6Addr, SocketAddr},
};

use crate::{
    lifecycle::{counts::party, flow_count::FlowCount},
    udp::address_validation::Level,
};

/// How many flows one port has.
pub(crate) const MAX_FLOWS_PER_PORT: usize = 16_384;
/// How many flows a port has for each tunnel that is up: a little less than a connector takes of one.
pub(crate) const MAX_FLOWS_PER_TUNNEL: usize = 4_000;
/// How many flows a port always may have, even if other ports have used up the bound of the account or of the edge.
pub(crate) const RESERVED_FLOWS_PER_PORT: usize = 256;
/// How many flows of a port one address may have; in IPv6, one network of 64 bits.
pub(crate) const MAX_FLOWS_PER_PARTY: usize = 1_024;
/// How many flows of the highest level one address keeps when there is no room. In IPv6 one network of 48 bits, because
/// networks of 64 bits are cheap.
const MAX_SAFE_FLOWS_PER_NETWORK: usize = 8;
/// How many places stay for flows below the highest level, before any of the highest is evicted.
const MIN_NEWCOMERS: usize = 512;
/// The same as a part of all places, if there are few.
const MIN_NEWCOMERS_PART: usize = 4;

/// How many flows are examined in search of one to evict.
const MAX_LOOKED_AT: usize = 32;

/// The key of a flow: the client's address, and the local address to which the client sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) client: SocketAddr,
    pub(crate) local: IpAddr,
}

/// The flows of one port.
#[derive(Debug)]
pub(crate) struct Table<T> {
    flows: HashMap<Key, Entry<T>>,
    parties: HashMap<IpAddr, AddressFlows>,
    /// The flows of the highest level by network, the oldest first.
    networks: HashMap<IpAddr, BTreeMap<u64, Key>>,
    /// The holders of flows of each level: addresses, and networks for the highest level.
    holders: [BTreeSet<Holder>; Level::COUNT],
    /// How many flows of the highest level there are.
    safe: usize,
    next: u64,
    /// Counts the flows of all ports.
    count: FlowCount,
}

#[derive(Debug)]
struct Entry<T> {
    number: u64,
    rank: Level,
    flow: T,
}

/// How many flows of a level a holder has, and its oldest one: the greatest is evicted first.
type Holder = (usize, Reverse<u64>, IpAddr);

/// The flows of one address, the oldest of each level first.
#[derive(Debug, Default)]
struct AddressFlows {
    by_rank: [BTreeMap<u64, Key>; Level::COUNT],
}

impl AddressFlows {
    fn len(&self) -> usize {
        self.by_rank.iter().map(BTreeMap::len).sum()
    }
}

fn holder(owner: IpAddr, flows: &BTreeMap<u64, Key>) -> Option<Holder> {
    let (oldest, _) = flows.first_key_value()?;
    Some((flows.len(), Reverse(*oldest), owner))
}

/// The network of an address: an IPv4 address, or the first 48 bits of an IPv6 address.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(six) => {
            let [a, b, c, ..] = six.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0))
        }
        four => four,
    }
}

/// There is no room, and no flow can be evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Full;

impl<T> Table<T> {
    /// No flow yet. `count` counts the flows together with those of other ports.
    pub(crate) fn new(count: FlowCount) -> Self {
        let (flows, parties, networks) = (HashMap::new(), HashMap::new(), HashMap::new());
        Self { flows, parties, networks, holders: Default::default(), safe: 0, next: 0, count }
    }

    /// How many flows there are.
    pub(crate) fn len(&self) -> usize {
        self.flows.len()
    }

    /// The flow with this key.
    pub(crate) fn get_mut(&mut self, key: &Key) -> Option<&mut T> {
        self.flows.get_mut(key).map(|entry| &mut entry.flow)
    }

    /// Sets the rank of a flow for eviction.
    pub(crate) fn set_rank(&mut self, key: &Key, rank: Level) {
        let Some(entry) = self.flows.get_mut(key) else { return };
        let (number, former) = (entry.number, std::mem::replace(&mut entry.rank, rank));
        if former != rank {
            self.unlist(key, former, number);
            self.list(key, rank, number);
        }
    }

    fn list(&mut self, key: &Key, rank: Level, number: u64) {
        self.safe += usize::from(rank == Level::Many);
        self.change(key, rank, |flows| {
            flows.insert(number, *key);
        });
    }

    fn unlist(&mut self, key: &Key, rank: Level, number: u64) {
        self.safe -= usize::from(rank == Level::Many);
        self.change(key, rank, |flows| {
            flows.remove(&number);
        });
    }

    /// Changes which flows of this level the holder of `key` has.
    fn change(&mut self, key: &Key, rank: Level, change: impl Fn(&mut BTreeMap<u64, Key>)) {
        let client = key.client.ip();
        let party = party(client);
        let mut flows = &mut self.parties.entry(party).or_default().by_rank[rank as usize];
        let mut owner = party;
        if rank == Level::Many {
            change(flows);
            owner = network(client);
            flows = self.networks.entry(owner).or_default();
        }
        let holders = &mut self.holders[rank as usize];
        if let Some(former) = holder(owner, flows) {
            holders.remove(&former);
        }
        change(flows);
        holders.extend(holder(owner, flows));
        if rank == Level::Many && flows.is_empty() {
            self.networks.remove(&owner);
        }
    }

    /// The flows of a level that this holder has.
    fn flows_of(&self, owner: &IpAddr, rank: Level) -> Option<&BTreeMap<u64, Key>> {
        match rank {
            Level::Many => self.networks.get(owner),
            _ => Some(&self.parties.get(owner)?.by_rank[rank as usize]),
        }
    }

    /// Makes room for one more flow of this address, with this many tunnels up. Returns the evicted flow, if any.
    ///
    /// # Errors
    /// There is no room: the flow must not begin.
    pub(crate) fn make_room(&mut self, client: IpAddr, tunnels: usize) -> Result<Option<T>, Full> {
        let max = MAX_FLOWS_PER_PORT.min(MAX_FLOWS_PER_TUNNEL.saturating_mul(tunnels.max(1)));
        let of_party = self.parties.get(&party(client)).filter(|of_party| of_party.len() >= MAX_FLOWS_PER_PARTY);
        let key = if let Some(of_party) = of_party {
            // A flow of the highest level is never evicted for another one of the same address.
            let first = of_party.by_rank.iter().take(Level::Many as usize).find_map(BTreeMap::first_key_value);
            first.map(|(_, key)| *key)
        } else if self.len() >= max || (self.len() >= RESERVED_FLOWS_PER_PORT && self.count.is_full()) {
            self.lowest()
        } else {
            return Ok(None);
        };
        let key = key.ok_or(Full)?;
        Ok(self.remove(&key))
    }

    /// The next flow to be evicted.
    fn lowest(&self) -> Option<Key> {
        if self.is_taken_by_few() {
            return self.lowest_of(Level::Many);
        }
        Level::ALL.into_iter().take(Level::Many as usize).find_map(|rank| self.lowest_of(rank))
    }

    /// The flow to evict for this one, among those for which `can` is true: of no higher rank, or of a network with too
    /// many.
    pub(crate) fn way_for(&self, key: &Key, can: impl Fn(&T) -> bool) -> Option<Key> {
        let own = self.flows.get(key)?.rank;
        let highest = self.is_taken_by_few().then_some(Level::Many);
        let lower = Level::ALL.into_iter().filter(|rank| *rank <= own && *rank < Level::Many);
        let oldest = |rank: Level| {
            let holders = self.holders[rank as usize].iter().rev();
            holders.filter_map(move |(_, Reverse(oldest), owner)| self.flows_of(owner, rank)?.get(oldest).copied())
        };
        let mut some = highest.into_iter().chain(lower).flat_map(oldest).take(MAX_LOOKED_AT);
        some.find(|other| other != key && self.flows.get(other).is_some_and(|entry| can(&entry.flow)))
    }

    /// Whether flows of the highest level leave hardly any room, and one network has more of them than it keeps then.
    fn is_taken_by_few(&self) -> bool {
        let has_room = self.len() - self.safe >= MIN_NEWCOMERS.min(self.len() / MIN_NEWCOMERS_PART);
        let most = self.holders[Level::Many as usize].last().map_or(0, |(count, ..)| *count);
        !has_room && most > MAX_SAFE_FLOWS_PER_NETWORK
    }

    /// The next flow of this level to be evicted.
    pub(crate) fn lowest_of(&self, rank: Level) -> Option<Key> {
        let (_, Reverse(oldest), holder) = self.holders[rank as usize].last()?;
        self.flows_of(holder, rank)?.get(oldest).copied()
    }

    /// Adds a flow with a new key.
    pub(crate) fn insert(&mut self, key: Key, flow: T) {
        let (number, rank) = (self.next, Level::New);
        self.next += 1;
        if self.flows.insert(key, Entry { number, rank, flow }).is_some() {
            return;
        }
        self.count.begun();
        self.list(&key, rank, number);
    }

    /// Removes the flow.
    pub(crate) fn remove(&mut self, key: &Key) -> Option<T> {
        let entry = self.flows.remove(key)?;
        self.count.ended(1);
        self.unlist(key, entry.rank, entry.number);
        let party = party(key.client.ip());
        if self.parties.get(&party).is_some_and(|of_party| of_party.len() == 0) {
            self.parties.remove(&party);
        }
        Some(entry.flow)
    }

    /// All flows, in no order.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&Key, &mut T)> {
        self.flows.iter_mut().map(|(key, entry)| (key, &mut entry.flow))
    }

    /// Updates the rank of every flow.
    pub(crate) fn rank_all(&mut self, rank_of: impl Fn(&T) -> Level) {
        let changed = self.flows.iter().filter_map(|(key, entry)| {
            let rank = rank_of(&entry.flow);
            (rank != entry.rank).then_some((*key, rank))
        });
        for (key, rank) in changed.collect::<Vec<_>>() {
            self.set_rank(&key, rank);
        }
    }

    /// Removes and returns the flows for which `is_over` is true.
    pub(crate) fn take_if(&mut self, mut is_over: impl FnMut(&mut T) -> bool) -> Vec<T> {
        let over: Vec<Key> = self.iter_mut().filter_map(|(key, flow)| is_over(flow).then_some(*key)).collect();
        over.iter().filter_map(|key| self.remove(key)).collect()
    }
}

impl<T> Drop for Table<T> {
    fn drop(&mut self) {
        self.count.ended(self.flows.len());
    }
}

#[cfg(test)]
mod tests {
    use sallyport_model::AccountId;

    use super::*;
    use crate::lifecycle::flow_count::{FlowCounts, MAX_FLOWS_PER_ACCOUNT};

    /// The count of an account that has all its flows.
    fn exhausted() -> FlowCount {
        let count = FlowCount::default();
        (0..MAX_FLOWS_PER_ACCOUNT).for_each(|_| count.begun());
        count
    }

    fn key(client: u32) -> Key {
        from(client, 4_000)
    }

    fn from(client: u32, port: u16) -> Key {
        let client = SocketAddr::new(IpAddr::V4(client.into()), port);
        Key { client, local: IpAddr::from([127, 0, 0, 1]) }
    }

    fn add(table: &mut Table<u32>, key: Key, value: u32) -> Result<Option<u32>, Full> {
        let evicted = table.make_room(key.client.ip(), 5)?;
        table.insert(key, value);
        Ok(evicted)
    }

    /// A table for one tunnel, full of flows of this level, with this many ports for each address.
    fn full(ports: u16, rank: Level) -> Table<u32> {
        let mut table = Table::new(FlowCount::default());
        for flow in 0..4_000_u32 {
            let key = from(flow / u32::from(ports), (flow % u32::from(ports)) as u16);
            assert!(table.make_room(key.client.ip(), 1).unwrap().is_none());
            table.insert(key, flow);
            table.set_rank(&key, rank);
        }
        table
    }

    #[test]
    fn a_flood_pushes_out_itself_and_nothing_that_has_shown_more() {
        let counts = FlowCounts::default();
        let mut table = Table::new(counts.of(AccountId::from_random([1; 16])));
        for client in 0..100 {
            add(&mut table, key(client), client).unwrap();
            table.set_rank(&key(client), Level::ALL[1 + client as usize % 3]);
        }
        for client in 100..200_000 {
            let evicted = add(&mut table, key(client), client).unwrap();
            assert!(evicted.is_none_or(|evicted| evicted >= 100));
        }
        assert_eq!((table.len(), counts.all()), (MAX_FLOWS_PER_PORT, MAX_FLOWS_PER_PORT));
        assert_eq!((table.parties.len(), table.holders[0].len()), (MAX_FLOWS_PER_PORT, MAX_FLOWS_PER_PORT - 100));
        assert!((0..100).all(|client| table.get_mut(&key(client)).is_some()));
        assert!(table.get_mut(&key(199_999)).is_some(), "the newest is there");
        assert!(table.make_room(key(0).client.ip(), 1).unwrap().is_some(), "fewer tunnels take fewer");
        table.take_if(|_| true);
        assert!(table.parties.is_empty() && table.networks.is_empty() && table.holders.iter().all(BTreeSet::is_empty));
        assert_eq!(counts.all(), 0);
    }

    #[test]
    fn eviction_takes_the_lowest_level_then_the_largest_holder_then_the_oldest_flow() {
        let mut table = Table::new(FlowCount::default());
        for (at, (client, rank)) in [
            (1, Level::Many),
            (2, Level::Few),
            (3, Level::Some),
            (3, Level::New),
            (4, Level::New),
            (5, Level::New),
            (5, Level::New),
            (6, Level::Some),
            (6, Level::Some),
        ]
        .into_iter()
        .enumerate()
        {
            let key = from(client, at as u16);
            add(&mut table, key, at as u32).unwrap();
            table.set_rank(&key, rank);
        }
        let mut order = Vec::new();
        while let Some(key) = table.lowest() {
            order.extend(table.remove(&key));
        }
        assert_eq!(order, [5, 3, 4, 6, 1, 7, 2, 8]);
        assert_eq!(table.len(), 1, "a flow of the highest level is safe");
    }

    #[test]
    fn a_flow_makes_way_only_for_one_that_is_worth_as_much_and_only_where_that_helps() {
        let mut table = Table::new(FlowCount::default());
        for (client, rank) in [(1, Level::Few), (2, Level::Few), (3, Level::New), (4, Level::Some), (5, Level::Many)] {
            add(&mut table, key(client), client).unwrap();
            table.set_rank(&key(client), rank);
        }
        assert_eq!(table.way_for(&key(3), |_| true), None, "no flow of a higher level, and not the flow itself");
        assert_eq!(table.way_for(&key(2), |_| true), Some(key(3)));
        assert_eq!(table.way_for(&key(2), |flow| *flow < 3), Some(key(1)));
        assert_eq!(table.way_for(&key(5), |flow| *flow > 3), Some(key(4)));
        assert_eq!(table.way_for(&key(4), |flow| *flow > 3), None);
        for port in 0..100 {
            table.insert(from(6, port), 6);
            table.set_rank(&from(6, port), Level::Many);
        }
        assert_eq!(table.way_for(&key(3), |_| true), Some(from(6, 0)), "one network has nearly all flows");
    }

    #[test]
    fn few_addresses_with_many_ports_lock_no_address_out_at_any_level() {
        for rank in Level::ALL {
            let mut table = full(1_000, rank);
            for newcomer in 1_000..1_100 {
                let evicted = table.make_room(key(newcomer).client.ip(), 1).unwrap().unwrap();
                assert!(evicted < 4_000, "{rank:?}");
                table.insert(key(newcomer), newcomer);
                table.set_rank(&key(newcomer), rank);
            }
            assert_eq!(table.len(), 4_000);
            let left = |of: u32| (0..1_000).filter(|port| table.flows.contains_key(&from(of, *port))).count();
            assert_eq!([0, 1, 2, 3].map(left), [975; 4], "each of the four made way as often as the others");
        }
    }

    #[test]
    fn newcomers_have_room_beside_addresses_that_hold_many_flows_of_the_highest_level() {
        let mut table = full(1_000, Level::Many);
        for newcomer in 10_000..20_000 {
            assert!(table.make_room(key(newcomer).client.ip(), 1).unwrap().is_some());
            table.insert(key(newcomer), newcomer);
        }
        assert!((19_488..20_000).all(|newcomer| table.get_mut(&key(newcomer)).is_some()));
        assert_eq!((table.len(), table.safe), (4_000, 4_000 - MIN_NEWCOMERS));
    }

    #[test]
    fn a_handful_of_addresses_or_networks_that_are_served_leave_newcomers_their_places() {
        let four: fn(u32) -> IpAddr = |at| IpAddr::V4(at.into());
        let six: fn(u32) -> IpAddr = |at| IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 1, at as u16, 0, 0, 0, 1));
        let of = [(16, 250, four), (16, 250, six), (250, 16, four), (256, 16, six), (2_000, 2, six)];
        for (at, (parties, each, address)) in of.into_iter().enumerate() {
            let mut table = Table::new(FlowCount::default());
            for flow in 0..(parties * each).min(4_000) {
                let client = SocketAddr::new(address(flow % parties), (flow / parties) as u16);
                let key = Key { client, ..key(0) };
                table.insert(key, flow);
                table.set_rank(&key, Level::Many);
            }
            for newcomer in 10_000..12_000 {
                let transport = table.make_room(key(newcomer).client.ip(), 1);
                assert!(transport.unwrap().is_some(), "{at}: {newcomer}");
                table.insert(key(newcomer), newcomer);
            }
            assert!((11_500..12_000).all(|newcomer| table.get_mut(&key(newcomer)).is_some()), "{at}");
            assert_eq!(table.safe, 4_000 - MIN_NEWCOMERS, "{at}");
            table.take_if(|_| true);
            assert!(table.networks.is_empty() && table.holders.iter().all(BTreeSet::is_empty));
        }
    }

    #[test]
    fn a_port_with_few_flows_has_no_need_of_as_many_newcomers() {
        let mut table = Table::new(exhausted());
        for flow in 0..RESERVED_FLOWS_PER_PORT as u32 {
            let key = from(if flow % 2 == 0 { 7 } else { flow }, flow as u16);
            assert_eq!(table.make_room(key.client.ip(), 1), Ok(None));
            table.insert(key, flow);
            table.set_rank(&key, if flow % 2 == 0 { Level::Many } else { Level::New });
        }
        assert_eq!(table.make_room(key(5_000).client.ip(), 1), Ok(Some(1)), "half of them are newcomers already");
    }

    #[test]
    fn active_flows_of_many_addresses_are_safe_and_resting_flows_are_not() {
        let mut table = full(1, Level::Many);
        assert_eq!(table.make_room(key(5_000).client.ip(), 1), Err(Full));
        table.rank_all(|flow| if *flow == 17 { Level::Some } else { Level::Many });
        assert_eq!(table.make_room(key(5_000).client.ip(), 1), Ok(Some(17)));
        assert_eq!(full(2, Level::Some).make_room(key(5_000).client.ip(), 1), Ok(Some(0)));
    }

    #[test]
    fn one_address_has_its_share_and_refuses_itself_when_all_are_served() {
        let mut table = Table::new(FlowCount::default());
        let one = |port| Key { client: SocketAddr::from(([192, 0, 2, 1], port)), local: [127, 0, 0, 1].into() };
        add(&mut table, key(7), 0).unwrap();
        for port in 1..=1_025 {
            let evicted = add(&mut table, one(port), u32::from(port)).unwrap();
            assert_eq!(evicted, (port == 1_025).then_some(1));
        }
        assert_eq!(table.len(), MAX_FLOWS_PER_PARTY + 1);
        (2..=1_025).for_each(|port| table.set_rank(&one(port), Level::Many));
        assert_eq!(add(&mut table, one(2_000), 0), Err(Full));
        assert_eq!(add(&mut table, key(8), 0), Ok(None), "other addresses are admitted");
        assert_eq!(table.take_if(|flow| *flow > 1_000).len(), 25);
        assert_eq!(add(&mut table, one(2_000), 0), Ok(None));
    }

    #[test]
    fn a_full_edge_leaves_each_port_its_reserve() {
        let mut table = Table::new(exhausted());
        for client in 0..1_000 {
            add(&mut table, key(client), client).unwrap();
        }
        assert_eq!(table.len(), RESERVED_FLOWS_PER_PORT);
    }
}
