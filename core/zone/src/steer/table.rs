//! What was measured, ready for lookups.

use std::{
    collections::HashMap,
    hash::Hasher as _,
    net::{IpAddr, Ipv6Addr},
};

use sallyport_model::{
    CLIENT_BITS, DnsSteeringPart, MAX_RANKED_REGIONS, MAX_STEERED_NETWORKS, MAX_STEERED_REGIONS, MAX_STEERED_RESOLVERS,
    RegionName,
};
use siphasher::sip::SipHasher13;

use super::networks::{Leaf, Match, Network, Networks};

/// The rankings of regions of networks and resolvers. A table never changes; a new one takes its place.
#[derive(Debug, Default)]
pub struct SteeringTable {
    names: Vec<RegionName>,
    rankings: Vec<Box<[u8]>>,
    v4: Networks,
    v6: Networks,
    resolvers: HashMap<IpAddr, Leaf>,
}

/// The bits of an address at the top, and whether it is of IPv4.
pub(super) fn top_bits(address: IpAddr) -> (u128, bool) {
    match address.to_canonical() {
        IpAddr::V4(four) => (u128::from(u32::from(four)) << 96, true),
        IpAddr::V6(six) => (u128::from(six), false),
    }
}

/// Something with a place in its order, before its place is known.
struct Placed {
    bits: u128,
    len: u8,
    is_v4: bool,
    ranking: u32,
    weight: u32,
    hash: u64,
    position: u32,
}

impl Placed {
    fn new(address: IpAddr, len: u8, ranking: u32, weight: u32) -> Self {
        let (bits, is_v4) = top_bits(address);
        // No secret: all edges, of all versions, must come to the same order.
        let mut hasher = SipHasher13::new_with_keys(0x7361_6c6c_7970_6f72, 0x7374_6565_7269_6e67);
        hasher.write(&bits.to_be_bytes());
        hasher.write_u8(len);
        Self { bits, len, is_v4, ranking, weight: weight.max(1), hash: hasher.finish(), position: 0 }
    }

    fn leaf(&self) -> Leaf {
        Leaf { ranking: self.ranking, position: self.position }
    }
}

/// Gives each its position among those with the same best region, by weight. So a dial cuts at what it says, and a
/// higher dial moves nobody out.
fn place(all: &mut [Placed], rankings: &[Box<[u8]>]) {
    let best = |one: &Placed| rankings.get(one.ranking as usize).and_then(|ranking| ranking.first().copied());
    all.sort_by_key(|one| (best(one), one.hash, one.bits, one.len));
    for group in all.chunk_by_mut(|a, b| best(a) == best(b)) {
        let total: u128 = group.iter().map(|one| u128::from(one.weight)).sum();
        let mut before = 0_u128;
        for one in group {
            let middle = 2 * before + u128::from(one.weight);
            one.position = ((middle << 31) / total.max(1)).min(u128::from(u32::MAX)) as u32;
            before += u128::from(one.weight);
        }
    }
}

impl SteeringTable {
    /// The table of these parts. What is beyond a bound or leads nowhere is left out.
    #[must_use]
    pub fn new<'a>(parts: impl IntoIterator<Item = &'a DnsSteeringPart>) -> Self {
        let mut table = Self::default();
        let (mut names, mut known) = (HashMap::new(), HashMap::new());
        let (mut networks, mut resolvers) = (Vec::new(), Vec::new());
        let mut parts: Vec<_> = parts.into_iter().collect();
        parts.sort_by_key(|part| part.part);
        for part in parts {
            let here: Vec<Option<u8>> = part.names.iter().map(|name| table.name(name, &mut names)).collect();
            let rankings: Vec<Option<u32>> =
                part.rankings.iter().map(|ranking| table.intern(ranking, &here, &mut known)).collect();
            let ranking = |at: u16| rankings.get(usize::from(at)).copied().flatten();
            for one in part.networks.iter().take(MAX_STEERED_NETWORKS - networks.len()) {
                let (net, most) = (one.0, if one.0.addr().is_ipv4() { CLIENT_BITS.0 } else { CLIENT_BITS.1 });
                if let Some(ranking) = ranking(one.1).filter(|_| net.prefix_len() <= most) {
                    networks.push(Placed::new(net.network(), net.prefix_len(), ranking, one.2));
                }
            }
            for one in part.resolvers.iter().take(MAX_STEERED_RESOLVERS - resolvers.len()) {
                resolvers.extend(ranking(one.1).map(|ranking| Placed::new(one.0, 128, ranking, one.2)));
            }
        }
        place(&mut networks, &table.rankings);
        place(&mut resolvers, &table.rankings);
        let of = |is_v4| {
            let of_family = networks.iter().filter(|one| one.is_v4 == is_v4);
            Networks::new(of_family.map(|one| Network::new(one.bits, one.len, one.leaf())).collect())
        };
        (table.v4, table.v6) = (of(true), of(false));
        table.resolvers = resolvers.iter().map(|one| (one.address(), one.leaf())).collect();
        table
    }

    fn name(&mut self, name: &RegionName, known: &mut HashMap<RegionName, u8>) -> Option<u8> {
        if let Some(at) = known.get(name) {
            return Some(*at);
        }
        let at = u8::try_from(self.names.len()).ok().filter(|at| usize::from(*at) < MAX_STEERED_REGIONS)?;
        self.names.push(name.clone());
        known.insert(name.clone(), at);
        Some(at)
    }

    fn intern(&mut self, ranking: &[u8], names: &[Option<u8>], known: &mut HashMap<Box<[u8]>, u32>) -> Option<u32> {
        let mut all: Vec<u8> = Vec::with_capacity(MAX_RANKED_REGIONS);
        for at in ranking.iter().take(MAX_RANKED_REGIONS) {
            all.extend(names.get(usize::from(*at)).copied().flatten().filter(|name| !all.contains(name)));
        }
        if all.is_empty() {
            return None;
        }
        let all: Box<[u8]> = all.into();
        if let Some(at) = known.get(&all) {
            return Some(*at);
        }
        let at = self.rankings.len() as u32;
        self.rankings.push(all.clone());
        known.insert(all, at);
        Some(at)
    }

    /// The regions of the rankings.
    #[must_use]
    pub fn names(&self) -> &[RegionName] {
        &self.names
    }

    /// Number of networks and of resolvers.
    #[must_use]
    pub fn sizes(&self) -> (usize, usize) {
        (self.v4.len() + self.v6.len(), self.resolvers.len())
    }

    /// Whether nothing was measured.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sizes() == (0, 0)
    }

    /// What was measured for a network of clients.
    pub(super) fn network(&self, bits: u128, len: u8, is_v4: bool) -> Match {
        if is_v4 { self.v4.find(bits, len) } else { self.v6.find(bits, len) }
    }

    /// What was measured for the clients of a resolver.
    pub(super) fn resolver(&self, address: IpAddr) -> Option<Leaf> {
        self.resolvers.get(&address.to_canonical()).copied()
    }

    /// The places of the regions of a ranking, the best one first.
    pub(super) fn regions(&self, leaf: Leaf) -> &[u8] {
        self.rankings.get(leaf.ranking as usize).map(AsRef::as_ref).unwrap_or_default()
    }
}

impl Placed {
    fn address(&self) -> IpAddr {
        match self.is_v4 {
            true => std::net::Ipv4Addr::from((self.bits >> 96) as u32).into(),
            false => Ipv6Addr::from(self.bits).into(),
        }
    }
}
