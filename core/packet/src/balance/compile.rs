//! What the data path reads, made of what a balancer is to do.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use serde::{Deserialize, Serialize};

use super::{
    BalanceConfig, EdgeState, Encapsulation, Fragments, Limits, MAX_RATE, MAX_SOURCES, PortSlices, Rate, Slot,
    config::{MAX_CONNECTIONS, ServiceConfig},
    fill_slots,
    slots::Member,
};
use crate::layout::{SLICE_PORTS, SLICES};

/// Edges, machines and other sites: their numbers are from 1 on.
pub const MAX_TARGETS: usize = 1_023;
/// Edges of a site.
pub const MAX_EDGES: usize = 256;
/// Sets of edges that services have.
pub const MAX_POOLS: usize = 16;
/// Virtual addresses, each with a protocol, and once more for all other protocols.
pub const MAX_VIRTUALS: usize = 2_048;
/// Services of a virtual address and a protocol.
pub const MAX_RANGES: usize = 16;
/// Egress addresses.
pub const MAX_EGRESS: usize = 1_024;
/// The largest weight.
const MAX_WEIGHT: u16 = 1_000;
/// Bytes of a name.
const MAX_NAME_BYTES: usize = 64;

/// What the data path reads.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tables {
    /// Settings of all packets.
    pub settings: Settings,
    /// Edges, machines and sites, by their numbers; 0 is none.
    pub targets: BTreeMap<u16, Target>,
    /// The services of a virtual address and a protocol, by their first ports. Protocol 0 has echoes.
    pub virtuals: BTreeMap<(IpAddr, u8), Vec<Range>>,
    /// The slots of each set of edges.
    pub pools: Vec<Vec<Slot>>,
    /// The owners of egress addresses.
    pub egress: BTreeMap<IpAddr, Egress>,
    /// Targets by the servers' numbers in connection ids of QUIC.
    pub servers: BTreeMap<u16, u16>,
    /// Balancers of other sites, which send packets to egress addresses of this site.
    pub peers: BTreeSet<IpAddr>,
}

/// Settings of all packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Settings {
    /// How packets travel.
    pub encapsulation: Encapsulation,
    /// The port of GUE.
    pub gue_port: u16,
    /// The sources of encapsulated packets, for IPv4 and for IPv6.
    pub source: (Option<std::net::Ipv4Addr>, Option<std::net::Ipv6Addr>),
    /// Whether packets name the second edge.
    pub has_second_chance: bool,
    /// Whether fragments go by the pair of addresses.
    pub takes_fragments: bool,
    /// Whether connections are remembered.
    pub has_connections: bool,
    /// The seed of hashes.
    pub seed: u32,
    /// The first three bits of connection ids.
    pub quic_config: u8,
    /// What one source may send.
    pub limits: Limits,
}

/// What encapsulated packets go to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: IpAddr,
    /// What it is.
    pub kind: TargetKind,
    /// Its state; machines and sites serve.
    pub state: EdgeState,
    /// How often its number was another target's.
    pub generation: u16,
}

/// What a target is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetKind {
    /// An edge.
    Edge,
    /// A machine with slices.
    Machine,
    /// The balancer of another site.
    Site,
}

/// The ports of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The first port.
    pub first: u16,
    /// The last port.
    pub last: u16,
    /// The place of its slots.
    pub pool: u16,
    /// Whether connection ids of QUIC count.
    pub is_quic: bool,
}

/// The owners of an egress address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Egress {
    /// Machines, by slices.
    Slices(PortSlices),
    /// Another site: the number of its target.
    Site(u16),
}

/// The numbers of targets, which stay the same when the configuration changes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Numbers {
    /// Number and generation by address.
    taken: BTreeMap<IpAddr, (u16, u16)>,
    /// Generations of numbers that were used.
    used: BTreeMap<u16, u16>,
}

/// What a balancer cannot do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(String);

fn wrong<T>(text: String) -> Result<T, ConfigError> {
    Err(ConfigError(text))
}

impl Numbers {
    /// Gives numbers to these addresses. Those that are not among them lose theirs.
    fn assign(&mut self, addresses: &BTreeSet<IpAddr>) {
        self.taken.retain(|address, _| addresses.contains(address));
        for address in addresses {
            if self.taken.contains_key(address) {
                continue;
            }
            let is_taken = |number: &u16| self.taken.values().any(|taken| taken.0 == *number);
            let fresh = (1..=MAX_TARGETS as u16).find(|number| !self.used.contains_key(number));
            let number = fresh.or_else(|| (1..=MAX_TARGETS as u16).find(|number| !is_taken(number)));
            let Some(number) = number else { return };
            let generation = self.used.get(&number).map_or(1, |used| used.wrapping_add(1));
            self.used.insert(number, generation);
            self.taken.insert(*address, (number, generation));
        }
    }

    /// The number of the target with this address, 0 if there is none.
    #[must_use]
    pub fn number(&self, address: IpAddr) -> u16 {
        self.of(address).0
    }

    fn of(&self, address: IpAddr) -> (u16, u16) {
        self.taken.get(&address).copied().unwrap_or_default()
    }
}

impl BalanceConfig {
    /// Makes the tables. The numbers of targets that stay are kept.
    ///
    /// # Errors
    /// The first thing that cannot be, in one sentence.
    pub fn compile(&self, numbers: &mut Numbers) -> Result<Tables, ConfigError> {
        let mut tables = Tables { settings: self.settings()?, ..Tables::default() };
        self.check_edges(&tables.settings)?;
        let addresses = self.targets().map(|target| target.1).collect::<BTreeSet<_>>();
        if addresses.len() > MAX_TARGETS {
            return wrong(format!("{} edges, machines and sites are more than {MAX_TARGETS}", addresses.len()));
        }
        numbers.assign(&addresses);
        for (name, address, kind, state) in self.targets() {
            let (number, generation) = numbers.of(address);
            tables.targets.insert(number, Target { name: name.to_owned(), address, kind, state, generation });
        }
        tables.servers =
            self.edges.iter().filter_map(|edge| Some((edge.server?, numbers.number(edge.address)))).collect();
        tables.peers = self.sites.iter().map(|site| site.balancer).collect();
        self.add_services(&mut tables, numbers)?;
        self.add_egress(&mut tables, numbers)?;
        Ok(tables)
    }

    /// Names, addresses, kinds and states of edges, machines and sites.
    pub fn targets(&self) -> impl Iterator<Item = (&str, IpAddr, TargetKind, EdgeState)> {
        let edges = self.edges.iter().map(|edge| (edge.name.as_str(), edge.address, TargetKind::Edge, edge.state));
        let serving = EdgeState::Serving;
        let machines =
            self.machines.iter().map(move |one| (one.name.as_str(), one.address, TargetKind::Machine, serving));
        let sites = self.sites.iter().map(move |site| (site.name.as_str(), site.balancer, TargetKind::Site, serving));
        edges.chain(machines).chain(sites)
    }

    fn settings(&self) -> Result<Settings, ConfigError> {
        let mut source = (None, None);
        for address in &self.source {
            let was_there = match address {
                IpAddr::V4(address) => source.0.replace(*address).is_some(),
                IpAddr::V6(address) => source.1.replace(*address).is_some(),
            };
            if was_there {
                return wrong(format!("source has two addresses of one family: leave out {address} or the other one"));
            }
            check_unicast("source", *address)?;
        }
        if self.gue_port == 0 {
            return wrong("gue_port is 0, and must be from 1 to 65535".to_owned());
        }
        if self.connections > MAX_CONNECTIONS {
            return wrong(format!("connections is {}, and must be at most {MAX_CONNECTIONS}", self.connections));
        }
        if self.quic_config > 6 {
            return wrong(format!("quic_config is {}, and must be from 0 to 6", self.quic_config));
        }
        Ok(Settings {
            encapsulation: self.encapsulation,
            gue_port: self.gue_port,
            source,
            has_second_chance: self.second_chance && self.encapsulation == Encapsulation::Gue,
            takes_fragments: self.fragments == Fragments::Pair,
            has_connections: self.connections > 0,
            seed: self.seed,
            quic_config: self.quic_config,
            limits: self.limits()?,
        })
    }

    /// What one source may send.
    fn limits(&self) -> Result<Limits, ConfigError> {
        let shield = &self.shield;
        for (word, limit) in [("packets", shield.packets), ("connections", shield.connections)] {
            if let Some(limit) = limit.filter(|limit| !(1..=MAX_RATE).contains(limit)) {
                return wrong(format!(
                    "{word} of [shield] is {limit}, and must be from 1 to {MAX_RATE}: leave it out for no limit"
                ));
            }
        }
        let sources = shield.sources;
        if !(1..=MAX_SOURCES).contains(&sources) {
            return wrong(format!("sources of [shield] is {sources}, and must be from 1 to {MAX_SOURCES}"));
        }
        let rate = |limit: Option<u32>| limit.map(Rate::per_second);
        Ok(Limits { packets: rate(shield.packets), connections: rate(shield.connections), sources })
    }

    /// Checks edges, machines and sites.
    fn check_edges(&self, settings: &Settings) -> Result<(), ConfigError> {
        if self.edges.len() > MAX_EDGES {
            return wrong(format!("{} edges are more than {MAX_EDGES}", self.edges.len()));
        }
        let (mut names, mut addresses, mut servers) = (BTreeSet::new(), BTreeMap::new(), BTreeMap::new());
        for (name, address, kind, _) in self.targets() {
            let is_word = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
            if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.chars().all(is_word) {
                return wrong(format!("`{name}` is no name: use 1 to {MAX_NAME_BYTES} letters, digits, - _ and ."));
            }
            let is_site = kind == TargetKind::Site;
            if !names.insert((name, is_site)) {
                return wrong(format!("two edges, machines or sites have the name {name}"));
            }
            if let Some(other) = addresses.insert(address, name) {
                return wrong(format!("{other} and {name} have one address, {address}"));
            }
            check_unicast(name, address)?;
            let source = match address {
                IpAddr::V4(_) => settings.source.0.is_some(),
                IpAddr::V6(_) => settings.source.1.is_some(),
            };
            if !source {
                return wrong(format!(
                    "{name} has the address {address}, and source has none of its family: name an address of this machine"
                ));
            }
        }
        for edge in &self.edges {
            if !(1..=MAX_WEIGHT).contains(&edge.weight) {
                return wrong(format!(
                    "the weight of {} is {}, and must be from 1 to {MAX_WEIGHT}",
                    edge.name, edge.weight
                ));
            }
            if let Some(other) = edge.server.and_then(|server| servers.insert(server, &edge.name)) {
                let server = edge.server.unwrap_or_default();
                return wrong(format!("{other} and {} have one number of a server, {server}", edge.name));
            }
        }
        Ok(())
    }

    fn target_at(&self, address: IpAddr) -> Option<&str> {
        self.targets().find(|target| target.1 == address).map(|target| target.0)
    }

    /// The names of the edges of a service, sorted.
    fn edges_of(&self, service: &ServiceConfig) -> Result<BTreeSet<&str>, ConfigError> {
        let Some(names) = &service.edges else { return Ok(self.edges.iter().map(|edge| edge.name.as_str()).collect()) };
        let edge = |name: &String| match self.edges.iter().find(|edge| edge.name == *name) {
            Some(edge) => Ok(edge.name.as_str()),
            None => wrong(format!("{} names the edge {name}, which is not there", said(service))),
        };
        names.iter().map(edge).collect()
    }

    fn add_services(&self, tables: &mut Tables, numbers: &Numbers) -> Result<(), ConfigError> {
        let mut pools: Vec<BTreeSet<&str>> = Vec::new();
        for service in &self.services {
            check_unicast("a service", service.address)?;
            if let Some(name) = self.target_at(service.address) {
                return wrong(format!(
                    "{} has the address of {name} itself: edges share a virtual address",
                    said(service)
                ));
            }
            if self.source.contains(&service.address) {
                return wrong(format!("{} has the address that encapsulated packets come from", said(service)));
            }
            let edges = self.edges_of(service)?;
            if edges.is_empty() {
                return wrong(format!("{} has no edge: add [[edge]], or name some by `edges`", said(service)));
            }
            if service.quic && service.protocol != super::Protocol::Udp {
                return wrong(format!("{} has quic = true, which is for udp", said(service)));
            }
            let pool = pools.iter().position(|pool| *pool == edges).unwrap_or_else(|| {
                pools.push(edges);
                pools.len() - 1
            });
            let key = (service.address, service.protocol.number());
            let ranges = tables.virtuals.entry(key).or_default();
            let (first, last) = (service.ports.first, service.ports.last);
            if let Some(other) = ranges.iter().find(|range| first <= range.last && range.first <= last) {
                let other = super::Ports { first: other.first, last: other.last };
                return wrong(format!("{} overlaps another one at the ports {other}", said(service)));
            }
            let range = Range { first, last, pool: pool as u16, is_quic: service.quic };
            ranges.push(range);
            if ranges.len() > MAX_RANGES {
                return wrong(format!(
                    "{} is one of more than {MAX_RANGES} of its address and protocol",
                    said(service)
                ));
            }
        }
        if pools.len() > MAX_POOLS {
            return wrong(format!("services have {} different sets of edges, more than {MAX_POOLS}", pools.len()));
        }
        if tables.virtuals.len() > MAX_VIRTUALS {
            return wrong(format!("{} virtual addresses are more than {MAX_VIRTUALS}", tables.virtuals.len()));
        }
        tables.virtuals.values_mut().for_each(|ranges| ranges.sort_by_key(|range| range.first));
        tables.pools = pools.iter().map(|pool| self.pool(pool, numbers)).collect();
        Ok(())
    }

    fn pool(&self, names: &BTreeSet<&str>, numbers: &Numbers) -> Vec<Slot> {
        let members = self.edges.iter().filter(|edge| names.contains(edge.name.as_str())).map(|edge| Member {
            number: numbers.number(edge.address),
            address: edge.address,
            weight: edge.weight,
            state: edge.state,
        });
        fill_slots(&members.collect::<Vec<_>>())
    }

    fn add_egress(&self, tables: &mut Tables, numbers: &Numbers) -> Result<(), ConfigError> {
        if self.egress.len() > MAX_EGRESS {
            return wrong(format!("{} egress addresses are more than {MAX_EGRESS}", self.egress.len()));
        }
        for egress in &self.egress {
            let address = egress.address;
            check_unicast("an egress address", address)?;
            if let Some(name) = self.target_at(address) {
                return wrong(format!("the egress address {address} is the address of {name} itself"));
            }
            if self.services.iter().any(|service| service.address == address) {
                return wrong(format!("{address} is a virtual address and an egress address: it can be one of both"));
            }
            let owners = match &egress.site {
                Some(site) if egress.slices.is_empty() => {
                    let Some(site) = self.sites.iter().find(|other| other.name == *site) else {
                        return wrong(format!("{address} is of the site {site}, which is not there"));
                    };
                    Egress::Site(numbers.number(site.balancer))
                }
                Some(site) => return wrong(format!("{address} is of the site {site}, and has slices here")),
                None => Egress::Slices(self.slices(egress, numbers)?),
            };
            if tables.egress.insert(address, owners).is_some() {
                return wrong(format!("the egress address {address} is named twice"));
            }
        }
        Ok(())
    }

    fn slices(&self, egress: &super::EgressConfig, numbers: &Numbers) -> Result<PortSlices, ConfigError> {
        let mut slices = PortSlices::default();
        let mut owners: BTreeMap<u8, &str> = BTreeMap::new();
        for slice in &egress.slices {
            let (number, address) = (slice.number, egress.address);
            if number == 0 || usize::from(number) >= SLICES {
                return wrong(format!("slice {number} of {address} is none: slices are from 1 to {}", SLICES - 1));
            }
            let edges = self.edges.iter().map(|edge| (&edge.name, edge.address));
            let mut machines = self.machines.iter().map(|machine| (&machine.name, machine.address)).chain(edges);
            let Some((_, machine)) = machines.find(|(name, _)| **name == slice.machine) else {
                return wrong(format!("slice {number} of {address} is of {}, which is not there", slice.machine));
            };
            if let Some(other) = owners.insert(number, &slice.machine) {
                return wrong(format!("slice {number} of {address} has two machines, {other} and {}", slice.machine));
            }
            let taken = slices.take_slice(u32::from(numbers.number(machine)) - 1, usize::from(number));
            taken.map_err(|error| ConfigError(format!("{address}: {error}")))?;
        }
        Ok(slices)
    }
}

/// A service, as an error names it.
fn said(service: &ServiceConfig) -> String {
    format!("the service {} {} {}", service.address, service.protocol.name(), service.ports)
}

fn check_unicast(what: &str, address: IpAddr) -> Result<(), ConfigError> {
    let is_wrong = match address {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_multicast() || v4.is_broadcast() || v4.octets()[0] == 0,
        IpAddr::V6(v6) => {
            v6.is_loopback()
                || v6.is_multicast()
                || v6.is_unspecified()
                || v6.is_unicast_link_local()
                || v6.to_ipv4_mapped().is_some()
        }
    };
    if is_wrong { wrong(format!("{what}: {address} is no address of one machine")) } else { Ok(()) }
}

impl Range {
    /// Whether it has a port.
    #[must_use]
    pub fn has(&self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }
}

/// The number of the slice that has a port.
#[must_use]
pub fn slice_of(port: u16) -> usize {
    usize::from(port / SLICE_PORTS)
}
