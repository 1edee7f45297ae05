//! Steering by DNS: clients on a map ask the answer path of the name server, byte by byte, before and after dials.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::Instant,
};

use sallyport_model::{DnsRegion, DnsSteeringPart, RegionName};
use sallyport_zone::{
    Now, Peer, Record, RecordData, Serving, Settings, State, StateConfig, Transport, View, Zone, Zones, answer,
    data::{Site, Steering},
    steer::{ChoiceReason, Keep, MeasuredNetwork, PlanInput, RegionTime, SteeringTable, plan},
};
use serde::Serialize;

use crate::chance::Chance;

/// The most clients.
pub const MAX_DNS_CLIENTS: u32 = 20_000;
/// The regions of the map: name, latitude and longitude in degrees.
const REGIONS: [(&str, f64, f64); 4] =
    [("ap", 1.35, 103.8), ("eu", 50.1, 8.7), ("us-east", 39.0, -77.5), ("us-west", 45.6, -121.2)];
/// Where clients are: latitude, longitude, and their part of all in percent.
const PLACES: [(f64, f64, u64); 12] = [
    (52.5, 13.4, 14),
    (51.5, -0.1, 12),
    (48.9, 2.4, 10),
    (41.9, 12.5, 6),
    (59.3, 18.1, 6),
    (40.7, -74.0, 12),
    (33.7, -84.4, 6),
    (37.8, -122.4, 8),
    (47.6, -122.3, 4),
    (1.3, 103.8, 8),
    (35.7, 139.7, 8),
    (-23.6, -46.6, 6),
];
/// How far clients are from their place at most, in degrees.
const SPREAD: f64 = 4.0;
/// The first network of clients.
const FIRST_CLIENT: u32 = 0x0b00_0000;
/// The resolver that asks for all of them.
const RESOLVER: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 53));
const NAME: &str = "www.anycast.example";
const TYPE_A: u16 = 1;
const TTL_SECONDS: u32 = 30;

/// What is simulated.
#[derive(Debug, Clone, Default)]
pub struct DnsOptions {
    /// How many clients, each in a network of its own.
    pub clients: u32,
    /// The seed of their places.
    pub seed: u64,
    /// Dials of regions, in percent.
    pub dials: BTreeMap<RegionName, u8>,
    /// Shares of regions, in percent.
    pub shares: BTreeMap<RegionName, u8>,
    /// Regions without edges.
    pub down: BTreeSet<RegionName>,
}

/// Why nothing is simulated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DnsSimulationError(String);

impl fmt::Display for DnsSimulationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for DnsSimulationError {}

/// A region of the report.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DnsRegionReport {
    /// Its name.
    pub region: RegionName,
    /// How much of what comes there stays, in percent.
    pub keeps_percent: f64,
    /// It has edges.
    pub is_up: bool,
    /// The clients that came there without dials.
    pub before: u32,
    /// The clients that come there now.
    pub after: u32,
    /// Those of before that stay.
    pub stayed: u32,
}

/// Clients that moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DnsMove {
    /// From this region.
    pub from: RegionName,
    /// To this one.
    pub to: RegionName,
    /// How many.
    pub clients: u32,
}

/// What came out.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DnsReport {
    /// The seed.
    pub seed: u64,
    /// How many clients asked.
    pub clients: u32,
    /// The regions by name.
    pub regions: Vec<DnsRegionReport>,
    /// The clients that moved.
    pub moves: Vec<DnsMove>,
    /// The mean round trip without dials, in milliseconds.
    pub mean_ms_before: f64,
    /// The mean round trip now, in milliseconds.
    pub mean_ms_after: f64,
    /// How many answers hold for which number of bits of the client's network.
    pub scopes: BTreeMap<u8, u32>,
    /// Queries that the name server answered.
    pub queries: u32,
    /// What is not as it should be.
    pub misses: Vec<String>,
}

/// A client: its network, and its round trips in microseconds by region.
struct Client {
    network: Ipv4Addr,
    micros: [u32; REGIONS.len()],
}

/// The distance on the earth, in kilometres.
fn distance(from: (f64, f64), to: (f64, f64)) -> f64 {
    let (a, b) = ((from.0.to_radians(), from.1.to_radians()), (to.0.to_radians(), to.1.to_radians()));
    let half = ((b.0 - a.0) / 2.0).sin().powi(2) + a.0.cos() * b.0.cos() * ((b.1 - a.1) / 2.0).sin().powi(2);
    2.0 * 6_371.0 * half.sqrt().min(1.0).asin()
}

fn clients(options: &DnsOptions) -> Vec<Client> {
    let mut chance = Chance::of_purpose(options.seed, 30);
    let total: u64 = PLACES.iter().map(|(.., part)| part).sum();
    let mut client = |number: u32| {
        let mut at = chance.next() % total;
        let place = PLACES.iter().find(|(.., part)| match at.checked_sub(*part) {
            Some(rest) => {
                at = rest;
                false
            }
            None => true,
        });
        let (latitude, longitude, _) = place.copied().unwrap_or(PLACES[0]);
        let place = (latitude + chance.between(-SPREAD, SPREAD), longitude + chance.between(-SPREAD, SPREAD));
        let access = chance.between(2.0, 20.0);
        // Light in fibre takes 1 ms for 100 km and back, on ways that are longer than the shortest.
        let micros = REGIONS.map(|(_, latitude, longitude)| {
            let way = distance(place, (latitude, longitude)) / 100.0 * chance.between(1.3, 1.6);
            ((access + way) * 1_000.0) as u32
        });
        Client { network: Ipv4Addr::from(FIRST_CLIENT + (number << 8)), micros }
    };
    (0..options.clients).map(&mut client).collect()
}

/// The address of the edges of a region.
fn address(at: usize) -> Ipv4Addr {
    Ipv4Addr::new(203, 0, 113, at as u8 + 1)
}

/// A name server with the table as it comes over the bus.
struct Server {
    zones: Zones,
    view: View,
    settings: Settings,
    state: State,
    now: Now,
}

/// What one client was answered.
struct Answered {
    region: usize,
    scope: u8,
}

impl Server {
    fn new(names: &[RegionName], parts: &[DnsSteeringPart], is_up: impl Fn(&RegionName) -> bool) -> Option<Self> {
        let apex: sallyport_zone::Name = "anycast.example".parse().ok()?;
        let base = "@ 300 SOA ns host 1 3600 600 86400 60\n@ 300 NS ns\nns 300 A 192.0.2.53\n";
        let mut records = Zone::from_master_file(apex.clone(), base, None).ok()?.records();
        let data = RecordData::Edges(sallyport_model::ALL_EDGES.to_owned());
        records.push(Record { owner: NAME.parse().ok()?, ttl: TTL_SECONDS, data });
        let zones = Zones::new([Arc::new(Zone::build(apex, records, None).ok()?)]).ok()?;
        let settings = parts.iter().find(|part| part.part == 0).map(|part| part.regions.clone()).unwrap_or_default();
        let site = |(at, name): (usize, &RegionName)| {
            let set = settings.get(name).cloned().unwrap_or_default();
            Site {
                region: name.clone(),
                addresses: vec![address(at).into()],
                ports: None,
                keep: Keep::new(set.dial, set.share),
                slot: at as u8,
            }
        };
        let sites: Vec<Site> = names.iter().enumerate().filter(|(_, name)| is_up(name)).map(site).collect();
        let all: Vec<IpAddr> = sites.iter().flat_map(|site| site.addresses.clone()).collect();
        let mut view = View::default();
        view.set_group(sallyport_model::ALL_EDGES, TTL_SECONDS, &all, None).ok()?;
        let table = Arc::new(SteeringTable::new(parts));
        view.set_steering(Steering::new(table, &sites, (&[], None), TTL_SECONDS).map(Arc::new));
        let mut config = StateConfig::default();
        config.rate.answers_per_second = 0;
        let state = State::new(config, [0; 16]);
        let now = Now { unix_seconds: 1_800_000_000, monotonic: Instant::now() };
        Some(Self { zones, view, settings: Settings::default(), state, now })
    }

    /// Sends the query of a resolver for a client, and reads the answer.
    fn ask(&mut self, client: &Client, names: usize) -> Option<Answered> {
        let query = query(client.network);
        let peer = Peer { address: RESOLVER, transport: Transport::Udp };
        let serving = Serving { zones: &self.zones, view: &self.view, settings: &self.settings };
        let mut out = Vec::new();
        let outcome = answer(&query, &peer, &serving, &mut self.state, self.now, &mut out);
        let (address, scope) = read(&query, &out)?;
        let region = (0..names).find(|at| self::address(*at) == address)?;
        outcome.steered.filter(|steered| steered.reason == ChoiceReason::Subnet)?;
        Some(Answered { region, scope })
    }
}

/// A query for the address of the name, with the client's network (RFC 7871).
fn query(client: Ipv4Addr) -> Vec<u8> {
    let mut bytes = vec![0x30, 0x39, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1];
    for label in NAME.split('.') {
        bytes.push(label.len() as u8);
        bytes.extend(label.as_bytes());
    }
    bytes.push(0);
    bytes.extend([TYPE_A.to_be_bytes(), 1_u16.to_be_bytes()].concat());
    // An OPT record for 1,232 bytes, with the first 24 bits of the client's address.
    bytes.extend([0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 11, 0, 8, 0, 7, 0, 1, 24, 0]);
    bytes.extend(&client.octets()[..3]);
    bytes
}

/// The address of an answer with one address, and its scope.
fn read(query: &[u8], out: &[u8]) -> Option<(Ipv4Addr, u8)> {
    const OPT_AND_OPTION: usize = 11 + 11;
    let question_end = query.len() - OPT_AND_OPTION;
    let counts = out.get(4..12)?;
    let record = out.get(question_end..question_end + 16)?;
    let option = out.get(question_end + 16 + 11..)?;
    let is_expected = counts == [0, 1, 0, 1, 0, 0, 0, 1] && record[2..4] == TYPE_A.to_be_bytes();
    let address: [u8; 4] = record[12..].try_into().ok()?;
    (is_expected && option.len() == 11).then(|| (Ipv4Addr::from(address), option[7]))
}

fn unknown(names: &[RegionName], options: &DnsOptions) -> Option<DnsSimulationError> {
    let given = options.dials.keys().chain(options.shares.keys()).chain(&options.down);
    let bad = given.into_iter().find(|name| !names.contains(name))?;
    let known: Vec<_> = names.iter().map(ToString::to_string).collect();
    Some(DnsSimulationError(format!("the map has no region {bad}: use {}", known.join(", "))))
}

/// Lets all clients ask before and after the dials.
///
/// # Errors
/// A region is not on the map, or fewer than two have edges.
pub fn simulate_dns(options: &DnsOptions) -> Result<DnsReport, DnsSimulationError> {
    let failed = |why: &str| DnsSimulationError(why.to_owned());
    let names: Vec<RegionName> = REGIONS.iter().filter_map(|(name, ..)| name.parse().ok()).collect();
    if let Some(error) = unknown(&names, options) {
        return Err(error);
    }
    if options.down.len() + 2 > names.len() {
        return Err(failed("two regions with edges are needed at least"));
    }
    let clients = clients(options);
    let measured = |client: &Client| MeasuredNetwork {
        network: ipnet::Ipv4Net::new_assert(client.network, 24).into(),
        times: names
            .iter()
            .zip(client.micros)
            .map(|(region, micros)| RegionTime { region: region.clone(), micros })
            .collect(),
        requests: 1,
    };
    let mut input =
        PlanInput { regions: names.clone(), networks: clients.iter().map(measured).collect(), ..PlanInput::default() };
    let before = plan(&input);
    for name in options.dials.keys().chain(options.shares.keys()) {
        let percent = |of: &BTreeMap<RegionName, u8>| of.get(name).copied().unwrap_or(100);
        let set = DnsRegion { dial: percent(&options.dials), share: percent(&options.shares), addresses: Vec::new() };
        input.settings.insert(name.clone(), set);
    }
    let after = plan(&input);
    let is_up = |name: &RegionName| !options.down.contains(name);
    let mut servers = [
        Server::new(&names, &before, is_up).ok_or_else(|| failed("the name server does not take the zone"))?,
        Server::new(&names, &after, is_up).ok_or_else(|| failed("the name server does not take the zone"))?,
    ];
    let mut answers = Vec::with_capacity(clients.len());
    for client in &clients {
        let asked = servers.each_mut().map(|server| server.ask(client, names.len()));
        let [Some(before), Some(after)] = asked else {
            return Err(failed("an answer of the name server is not as expected"));
        };
        answers.push((before, after));
    }
    Ok(report(options, &names, &clients, &answers))
}

fn report(
    options: &DnsOptions,
    names: &[RegionName],
    clients: &[Client],
    answers: &[(Answered, Answered)],
) -> DnsReport {
    let mut moves: BTreeMap<(usize, usize), u32> = BTreeMap::new();
    let (mut scopes, mut sums, mut misses) = (BTreeMap::new(), [0_u64; 2], Vec::new());
    for (client, (before, after)) in clients.iter().zip(answers) {
        *moves.entry((before.region, after.region)).or_default() += 1;
        *scopes.entry(after.scope).or_default() += 1;
        sums[0] += u64::from(client.micros[before.region]);
        sums[1] += u64::from(client.micros[after.region]);
        let up = |at: &usize| !options.down.contains(&names[*at]);
        let nearest = (0..names.len()).filter(up).min_by_key(|at| client.micros[*at]);
        if nearest != Some(before.region) && misses.is_empty() {
            misses.push(format!("{} is not sent to its nearest region", client.network));
        }
    }
    let count = |want: &dyn Fn(usize, usize) -> bool| -> u32 {
        moves.iter().filter(|((from, to), _)| want(*from, *to)).map(|(_, clients)| clients).sum()
    };
    let percent = |name: &RegionName| {
        let of = |all: &BTreeMap<RegionName, u8>| f64::from(all.get(name).copied().unwrap_or(100));
        of(&options.dials) * of(&options.shares) / 100.0
    };
    let is_open = |name: &RegionName| !options.down.contains(name) && percent(name) > 0.0;
    let others_open = |name: &RegionName| names.iter().any(|other| other != name && is_open(other));
    let regions: Vec<DnsRegionReport> = names
        .iter()
        .enumerate()
        .map(|(at, name)| DnsRegionReport {
            region: name.clone(),
            keeps_percent: percent(name),
            is_up: !options.down.contains(name),
            before: count(&|from, _| from == at),
            after: count(&|_, to| to == at),
            stayed: count(&|from, to| from == at && to == at),
        })
        .collect();
    for region in regions.iter().filter(|region| region.is_up && others_open(&region.region)) {
        let wanted = f64::from(region.before) * region.keeps_percent / 100.0;
        if (f64::from(region.stayed) - wanted).abs() > 1.0 {
            misses.push(format!("{} keeps {} of {} clients", region.region, region.stayed, region.before));
        }
    }
    let mean = |sum: u64| sum as f64 / 1_000.0 / clients.len().max(1) as f64;
    let moved = moves.iter().filter(|((from, to), _)| from != to);
    DnsReport {
        seed: options.seed,
        clients: options.clients,
        moves: moved
            .map(|((from, to), clients)| DnsMove {
                from: names[*from].clone(),
                to: names[*to].clone(),
                clients: *clients,
            })
            .collect(),
        regions,
        mean_ms_before: mean(sums[0]),
        mean_ms_after: mean(sums[1]),
        scopes,
        queries: 2 * options.clients,
        misses,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dials(of: &[(&str, u8)]) -> BTreeMap<RegionName, u8> {
        of.iter().map(|(name, dial)| (name.parse().unwrap(), *dial)).collect()
    }

    fn of<'r>(report: &'r DnsReport, name: &str) -> &'r DnsRegionReport {
        report.regions.iter().find(|region| region.region.as_str() == name).unwrap()
    }

    #[test]
    fn half_of_what_came_to_eu_goes_to_the_next_region() {
        for seed in 0..5 {
            let options = DnsOptions { clients: 500, seed, dials: dials(&[("eu", 50)]), ..DnsOptions::default() };
            let report = simulate_dns(&options).unwrap();
            assert_eq!(report.misses, [] as [String; 0]);
            assert_eq!(report, simulate_dns(&options).unwrap(), "a seed determines everything");
            let eu = of(&report, "eu");
            assert!(eu.before > 200 && (eu.stayed * 2).abs_diff(eu.before) <= 2, "{eu:?}");
            let moved: u32 = report.moves.iter().map(|one| one.clients).sum();
            assert!(report.moves.iter().all(|one| one.from.as_str() == "eu"), "{:?}", report.moves);
            let to_east = report.moves.iter().find(|one| one.to.as_str() == "us-east").unwrap();
            assert!(to_east.clients * 10 > moved * 9, "{:?}", report.moves);
            assert!(report.mean_ms_after > report.mean_ms_before);
            assert_eq!(report.scopes, BTreeMap::from([(24, 500)]));
        }
    }

    #[test]
    fn a_region_without_edges_gets_nobody_and_the_last_open_one_everybody() {
        let down = DnsOptions {
            clients: 200,
            down: ["eu".parse().unwrap()].into(),
            dials: dials(&[("us-east", 0), ("ap", 0)]),
            ..DnsOptions::default()
        };
        let report = simulate_dns(&down).unwrap();
        assert_eq!((report.misses.len(), of(&report, "eu").before, of(&report, "us-west").after), (0, 0, 200));
        let bad = DnsOptions { dials: dials(&[("mars", 1)]), ..down };
        assert!(simulate_dns(&bad).unwrap_err().to_string().contains("no region mars: use ap, eu"));
    }
}
