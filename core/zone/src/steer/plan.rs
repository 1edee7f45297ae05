//! Makes the parts that control publishes from what was measured.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap, HashSet},
    net::IpAddr,
};

use ipnet::IpNet;
use sallyport_model::{
    CLIENT_BITS, DnsRegion, DnsSteeringPart, MAX_NETWORKS_OF_PART, MAX_RANKED_REGIONS, MAX_STEERED_ADDRESSES,
    MAX_STEERED_NETWORKS, MAX_STEERED_REGIONS, MAX_STEERED_RESOLVERS, RegionName, STEERING_PARTS, SteeredNetwork,
    SteeredResolver,
};

use super::table::top_bits;

/// The round trip between clients and a region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegionTime {
    /// The region.
    pub region: RegionName,
    /// The round trip, in microseconds.
    pub micros: u32,
}

/// What was measured for a network of clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeasuredNetwork {
    /// The network.
    pub network: IpNet,
    /// The round trips, in any order.
    pub times: Vec<RegionTime>,
    /// How many requests came from there.
    pub requests: u64,
}

/// What was measured for the clients of a resolver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeasuredResolver {
    /// Its address.
    pub address: IpAddr,
    /// The round trips of its clients, in any order.
    pub times: Vec<RegionTime>,
    /// How many requests came from its clients.
    pub requests: u64,
}

/// What a plan is made from.
#[derive(Debug, Clone, Default)]
pub struct PlanInput {
    /// The regions that have edges, away or not. Only these are ranked.
    pub regions: Vec<RegionName>,
    /// The networks of clients.
    pub networks: Vec<MeasuredNetwork>,
    /// The resolvers.
    pub resolvers: Vec<MeasuredResolver>,
    /// Dials and shares of regions, and their anycast addresses.
    pub settings: BTreeMap<RegionName, DnsRegion>,
    /// The anycast addresses of the whole installation.
    pub global: Vec<IpAddr>,
}

/// Orders of regions, and for each best region the others by their usual distance from its clients.
struct Ranker {
    names: Vec<RegionName>,
    /// For each best region the others, the nearest first.
    usual: HashMap<u8, Vec<u8>>,
}

impl Ranker {
    fn new(input: &PlanInput) -> Self {
        let mut names = input.regions.clone();
        names.sort();
        names.dedup();
        names.truncate(MAX_STEERED_REGIONS);
        let mut ranker = Self { names, usual: HashMap::new() };
        // Sums of round trips, and how many they are, by best region and other region.
        let mut sums: HashMap<(u8, u8), (u64, u64)> = HashMap::new();
        let all = input.networks.iter().map(|one| &one.times).chain(input.resolvers.iter().map(|one| &one.times));
        for times in all {
            let times = ranker.times(times);
            let Some((_, best)) = times.first() else { continue };
            for (micros, other) in &times {
                let sum = sums.entry((*best, *other)).or_default();
                *sum = (sum.0.saturating_add(u64::from(*micros)), sum.1 + 1);
            }
        }
        for best in 0..ranker.names.len() as u8 {
            let mut others: Vec<u8> = (0..ranker.names.len() as u8).filter(|other| *other != best).collect();
            // Those that nobody has measured come last, by name.
            others.sort_by_key(|other| {
                sums.get(&(best, *other)).map_or((u64::MAX, *other), |(sum, count)| (sum / count, *other))
            });
            ranker.usual.insert(best, others);
        }
        ranker
    }

    /// The shortest round trip to each known region, the best one first.
    fn times(&self, times: &[RegionTime]) -> Vec<(u32, u8)> {
        let place = |region: &RegionName| self.names.binary_search(region).ok().map(|at| at as u8);
        let mut known: Vec<(u32, u8)> =
            times.iter().filter_map(|time| Some((time.micros, place(&time.region)?))).collect();
        known.sort_unstable();
        let mut seen = [false; MAX_STEERED_REGIONS];
        known.retain(|(_, at)| !std::mem::replace(&mut seen[usize::from(*at)], true));
        known
    }

    /// The ranking by these round trips. Regions without one follow as they usually do for clients of the best one.
    fn ranking(&self, times: &[RegionTime]) -> Option<Vec<u8>> {
        let mut ranking: Vec<u8> = self.times(times).into_iter().map(|(_, at)| at).collect();
        let usual = self.usual.get(ranking.first()?)?;
        for other in usual {
            if !ranking.contains(other) {
                ranking.push(*other);
            }
        }
        ranking.truncate(MAX_RANKED_REGIONS);
        Some(ranking)
    }
}

/// The part of an address: always the same one, so that a change elsewhere does not move it.
fn part_of(address: IpAddr, len: u8) -> u8 {
    let (bits, _) = top_bits(address);
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in bits.to_be_bytes().into_iter().chain([len]) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    }
    1 + ((hash >> 32) % u64::from(STEERING_PARTS)) as u8
}

/// The longest network whose bits count.
fn shortened(network: IpNet) -> IpNet {
    let most = if network.addr().is_ipv4() { CLIENT_BITS.0 } else { CLIENT_BITS.1 };
    match network.prefix_len() > most {
        true => IpNet::new(network.addr(), most).unwrap_or(network).trunc(),
        false => network.trunc(),
    }
}

/// The greatest power of two that is not above the number of requests: it seldom changes, and so do the parts.
fn weight(requests: u64) -> u32 {
    1 << requests.max(1).ilog2().min(31)
}

impl PartBuilder {
    fn ranking(&mut self, names: &[RegionName], ranking: Vec<u8>) -> u16 {
        let ranking: Vec<u8> = ranking
            .into_iter()
            .map(|at| {
                *self.places.entry(at).or_insert_with(|| {
                    self.part.names.push(names[usize::from(at)].clone());
                    (self.part.names.len() - 1) as u8
                })
            })
            .collect();
        let next = self.part.rankings.len() as u16;
        let at = *self.rankings.entry(ranking.clone()).or_insert(next);
        if at == next {
            self.part.rankings.push(ranking);
        }
        at
    }

    fn is_full(&self) -> bool {
        self.part.networks.len() + self.part.resolvers.len() >= MAX_NETWORKS_OF_PART
    }
}

/// A part that is being made.
#[derive(Default)]
struct PartBuilder {
    part: DnsSteeringPart,
    places: HashMap<u8, u8>,
    rankings: HashMap<Vec<u8>, u16>,
}

/// The parts: part 0, and those that have networks or resolvers. Beyond the bounds, those with the fewest requests are
/// left out. The same input always makes the same parts.
#[must_use]
pub fn plan(input: &PlanInput) -> Vec<DnsSteeringPart> {
    let ranker = Ranker::new(input);
    let mut networks: Vec<&MeasuredNetwork> = input.networks.iter().collect();
    networks.sort_by_key(|one| (Reverse(one.requests), one.network));
    let mut resolvers: Vec<&MeasuredResolver> = input.resolvers.iter().collect();
    resolvers.sort_by_key(|one| (Reverse(one.requests), one.address));
    let mut parts: BTreeMap<u8, PartBuilder> = BTreeMap::new();
    let mut known = HashSet::new();
    for one in networks {
        let network = shortened(one.network);
        let Some(ranking) = ranker.ranking(&one.times) else { continue };
        if known.len() >= MAX_STEERED_NETWORKS || !known.insert(network) {
            continue;
        }
        let part = parts.entry(part_of(network.addr(), network.prefix_len())).or_default();
        if !part.is_full() {
            let at = part.ranking(&ranker.names, ranking);
            part.part.networks.push(SteeredNetwork(network, at, weight(one.requests)));
        }
    }
    let mut known = HashSet::new();
    for one in resolvers {
        let address = one.address.to_canonical();
        let Some(ranking) = ranker.ranking(&one.times) else { continue };
        if known.len() >= MAX_STEERED_RESOLVERS || !known.insert(address) {
            continue;
        }
        let part = parts.entry(part_of(address, 128)).or_default();
        if !part.is_full() {
            let at = part.ranking(&ranker.names, ranking);
            part.part.resolvers.push(SteeredResolver(address, at, weight(one.requests)));
        }
    }
    let few = |addresses: &[IpAddr]| addresses.iter().take(MAX_STEERED_ADDRESSES).copied().collect();
    let settings = input.settings.iter().filter(|(_, region)| **region != DnsRegion::default());
    let settings = settings.take(MAX_STEERED_REGIONS);
    let head = DnsSteeringPart {
        part: 0,
        regions: settings
            .map(|(name, region)| (name.clone(), DnsRegion { addresses: few(&region.addresses), ..*region }))
            .collect(),
        global: few(&input.global),
        ..DnsSteeringPart::default()
    };
    let others = parts.into_iter().map(|(number, built)| DnsSteeringPart { part: number, ..built.part });
    std::iter::once(head).chain(others).collect()
}
