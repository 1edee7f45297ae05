//! Networks with their numbers, links with their relations and delays, and what is planted to go wrong.
//!
//! The shape is that of the real internet: four networks at the top are peers of each other, regional networks are
//! their customers, and sites and client networks are customers of those. A network is one router.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
    time::Duration,
};

use serde::{Deserialize, Serialize};

/// The autonomous system of the edges; one for documentation (RFC 5398).
pub(crate) const OUR_AS: u32 = 64_500;
/// The autonomous system of the routers of sites, as edges see it. It is in no path.
pub(crate) const SITE_ROUTER_AS: u32 = 64_496;
/// The network that is customer of two providers, and leaks with [`Plant::Leak`].
const LEAK_AS: u32 = 64_499;
/// The first number of client networks.
const FIRST_CLIENT_AS: u32 = 64_501;
/// The anycast prefix of IPv4, its length, and the address that all edges have.
pub(crate) const ANYCAST_4: (Ipv4Addr, u8, Ipv4Addr) =
    (Ipv4Addr::new(198, 51, 100, 0), 24, Ipv4Addr::new(198, 51, 100, 1));
/// The same for IPv6.
pub(crate) const ANYCAST_6: (Ipv6Addr, u8, Ipv6Addr) =
    (Ipv6Addr::new(0x2001, 0xdb8, 0xa, 0, 0, 0, 0, 0), 48, Ipv6Addr::new(0x2001, 0xdb8, 0xa, 0, 0, 0, 0, 1));
/// How many edges a site may have.
pub(crate) const MAX_SITE_EDGES: u8 = 8;
/// The networks at the top. London's clients break ties by the lowest router, which is that of the first.
const TOP: [u32; 4] = [3356, 2914, 3257, 1299];
/// The delay between two of them, in milliseconds.
const TOP_MS: u64 = 1;
/// The delay from a site to its regional network, in milliseconds.
const SITE_MS: u64 = 1;
/// The delay from clients to their network, in milliseconds.
const CLIENT_MS: u64 = 2;

/// A city that may have a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct City {
    /// The name of its site.
    pub name: &'static str,
    /// The network to which its site announces.
    pub transit: u32,
    /// The provider of that network, and the delay to it in milliseconds; `None` at the top.
    pub upstream: Option<(u32, u64)>,
}

/// The cities, in the order in which they get sites.
pub(crate) const CITIES: [City; 6] = [
    City { name: "london", transit: 1299, upstream: None },
    City { name: "new-york", transit: 209, upstream: Some((3356, 35)) },
    City { name: "tokyo", transit: 4713, upstream: Some((2914, 110)) },
    City { name: "sao-paulo", transit: 4230, upstream: Some((3257, 95)) },
    City { name: "johannesburg", transit: 3741, upstream: Some((2914, 80)) },
    City { name: "sydney", transit: 1221, upstream: Some((3257, 130)) },
];

/// Something that sends clients to the wrong site.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Plant {
    /// New York announces to AS209 without scope, so AS3356 prefers the route of its customer.
    London,
    /// A customer of AS209 and AS2914 sends the routes of the one to the other.
    Leak,
}

impl FromStr for Plant {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "london" => Ok(Self::London),
            "leak" => Ok(Self::Leak),
            _ => Err(format!("{:?} cannot be planted: use london or leak", text.chars().take(64).collect::<String>())),
        }
    }
}

impl fmt::Display for Plant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::London => "london",
            Self::Leak => "leak",
        })
    }
}

/// Why there cannot be such an internet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnycastError {
    /// The number of sites.
    #[error("an anycast laboratory has 2 to {most} sites, and not {0}", most = CITIES.len())]
    Sites(u8),
    /// The number of edges.
    #[error("a site has 1 to {MAX_SITE_EDGES} edges, and not {0}")]
    Edges(u8),
}

/// What an anycast laboratory is built from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnycastOptions {
    /// How many sites.
    pub sites: u8,
    /// How many edges in each.
    pub edges_per_site: u8,
    /// What is planted.
    pub plant: Option<Plant>,
}

/// The sites with their edges, as stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnycastTopology {
    /// The number of edges of each site.
    pub edges: Vec<u8>,
    /// What is planted.
    pub plant: Option<Plant>,
}

impl AnycastTopology {
    /// The sites for these options.
    ///
    /// # Errors
    /// A number is not possible.
    pub fn new(options: AnycastOptions) -> Result<Self, AnycastError> {
        let sites = usize::from(options.sites);
        if !(2..=CITIES.len()).contains(&sites) {
            return Err(AnycastError::Sites(options.sites));
        }
        if !(1..=MAX_SITE_EDGES).contains(&options.edges_per_site) {
            return Err(AnycastError::Edges(options.edges_per_site));
        }
        Ok(Self { edges: vec![options.edges_per_site; sites], plant: options.plant })
    }
}

/// What the other side of a link is to this side (RFC 9234).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    /// It carries traffic to everybody.
    Provider,
    /// It carries traffic to its own customers.
    Peer,
    /// It is served by this side.
    Customer,
}

/// What a network is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetworkKind {
    /// It carries the traffic of others.
    Transit,
    /// It has clients, and no customers.
    Clients,
    /// It is the router of a site, by the number of the site.
    Site(usize),
    /// It has two providers, and should not carry traffic between them.
    Customer,
}

/// A network, which is one router.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    /// The name of its node.
    pub name: String,
    /// Its number.
    pub asn: u32,
    /// What it is for.
    pub kind: NetworkKind,
    /// The site to whose city it belongs.
    pub site: usize,
    /// Its IPv4 prefix, a /24.
    pub net_4: Ipv4Addr,
    /// Its IPv6 prefix, a /48.
    pub net_6: Ipv6Addr,
}

impl Network {
    /// The addresses of its router, the first ones of its prefixes.
    #[must_use]
    pub fn loopback(&self) -> (Ipv4Addr, Ipv6Addr) {
        (Ipv4Addr::from_bits(self.net_4.to_bits() + 1), Ipv6Addr::from_bits(self.net_6.to_bits() + 1))
    }
}

/// A link between two networks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Uplink {
    /// The customer, or one of two peers.
    pub one: usize,
    /// The provider, or the other peer.
    pub other: usize,
    /// What the other is to the one: a provider or a peer.
    pub relation: Relation,
    /// The delay of each packet, one way.
    pub delay: Duration,
    /// Whether both sides guard the link with roles, which stop leaks.
    pub has_roles: bool,
}

/// All networks and links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Internet {
    /// The names of the sites.
    pub sites: Vec<&'static str>,
    /// Sites and plants.
    pub topology: AnycastTopology,
    /// The networks.
    pub networks: Vec<Network>,
    /// The links; the number of a link is part of its addresses.
    pub links: Vec<Uplink>,
}

impl Internet {
    /// The internet of these sites.
    #[must_use]
    pub fn new(topology: AnycastTopology) -> Self {
        let cities = &CITIES[..topology.edges.len().min(CITIES.len())];
        let sites = cities.iter().map(|city| city.name).collect();
        let mut internet = Self { sites, topology, networks: Vec::new(), links: Vec::new() };
        let top: Vec<usize> = TOP.iter().map(|asn| internet.transit(*asn, 0)).collect();
        for (one, first) in top.iter().enumerate() {
            for second in &top[one + 1..] {
                internet.link(*first, *second, Relation::Peer, TOP_MS);
            }
        }
        for (number, city) in cities.iter().enumerate() {
            let transit = match city.upstream {
                None => internet.by_as(city.transit).unwrap_or_default(),
                Some((provider, ms)) => {
                    let transit = internet.transit(city.transit, number);
                    let provider = internet.by_as(provider).unwrap_or_default();
                    internet.link(transit, provider, Relation::Provider, ms);
                    transit
                }
            };
            let router = internet.site_router(number, city.name);
            internet.link(router, transit, Relation::Provider, SITE_MS);
            let clients = internet.client(city.name, number);
            // London's network is a customer of all but the one to which London's site announces.
            let providers = if city.upstream.is_some() { vec![transit] } else { top[..3].to_vec() };
            for provider in providers {
                internet.link(clients, provider, Relation::Provider, CLIENT_MS);
            }
        }
        let paris = internet.client("paris", 0);
        internet.link(paris, top[1], Relation::Provider, CLIENT_MS);
        internet.add_leak(top[1]);
        internet
    }

    /// A customer of AS209 and of this network.
    fn add_leak(&mut self, other: usize) {
        let Some(first) = self.by_as(209) else { return };
        let customer = self.add(format!("as{LEAK_AS}"), LEAK_AS, NetworkKind::Customer, 0);
        let has_roles = self.topology.plant != Some(Plant::Leak);
        for (provider, ms) in [(first, 35), (other, CLIENT_MS)] {
            self.link(customer, provider, Relation::Provider, ms);
            if let Some(link) = self.links.last_mut() {
                link.has_roles = has_roles;
            }
        }
    }

    fn transit(&mut self, asn: u32, site: usize) -> usize {
        self.add(format!("as{asn}"), asn, NetworkKind::Transit, site)
    }

    fn client(&mut self, city: &str, site: usize) -> usize {
        let count = self.networks.iter().filter(|network| network.kind == NetworkKind::Clients).count();
        let asn = FIRST_CLIENT_AS + u32::try_from(count).unwrap_or_default();
        self.add(format!("{city}-client"), asn, NetworkKind::Clients, site)
    }

    fn site_router(&mut self, site: usize, city: &str) -> usize {
        let router = self.add(format!("{city}-router"), OUR_AS, NetworkKind::Site(site), site);
        let number = u8::try_from(site).unwrap_or(u8::MAX);
        self.networks[router].net_4 = Ipv4Addr::new(10, 30, number, 0);
        self.networks[router].net_6 = Ipv6Addr::new(0xfd30, 0, number.into(), 0, 0, 0, 0, 0);
        router
    }

    fn add(&mut self, name: String, asn: u32, kind: NetworkKind, site: usize) -> usize {
        let number = self.networks.len();
        // Ties between routes go to the lowest address.
        let third = u8::try_from(number + 1).unwrap_or(u8::MAX);
        let net_4 = Ipv4Addr::new(10, 20, third, 0);
        let net_6 = Ipv6Addr::new(0xfd20, 0, third.into(), 0, 0, 0, 0, 0);
        self.networks.push(Network { name, asn, kind, site, net_4, net_6 });
        number
    }

    fn link(&mut self, one: usize, other: usize, relation: Relation, ms: u64) {
        self.links.push(Uplink { one, other, relation, delay: Duration::from_millis(ms), has_roles: true });
    }

    fn by_as(&self, asn: u32) -> Option<usize> {
        self.networks.iter().position(|network| network.asn == asn)
    }

    /// The network whose node has this name.
    #[must_use]
    pub fn network(&self, name: &str) -> Option<(usize, &Network)> {
        self.networks.iter().enumerate().find(|(_, network)| network.name == name)
    }

    /// The addresses of a link: those of one side, then those of the other.
    #[must_use]
    pub fn addresses(link: usize) -> [(Ipv4Addr, Ipv6Addr); 2] {
        let number = u8::try_from(link).unwrap_or(u8::MAX);
        [0, 1].map(|side: u8| {
            let last = u16::from(side) + 1;
            (Ipv4Addr::new(10, 10, number, side), Ipv6Addr::new(0xfd10, 0, 0, number.into(), 0, 0, 0, last))
        })
    }

    /// The addresses between a site's router and its edge with this number, which counts from 1: the router's, then the
    /// edge's.
    #[must_use]
    pub fn edge_addresses(site: usize, edge: u8) -> [(Ipv4Addr, Ipv6Addr); 2] {
        let number = u8::try_from(site).unwrap_or(u8::MAX);
        [0, 1].map(|side: u8| {
            let last = 16_u8.saturating_add(edge.saturating_mul(2)).saturating_add(side);
            let six = Ipv6Addr::new(0xfd30, 0, number.into(), edge.into(), 0, 0, 0, u16::from(side) + 1);
            (Ipv4Addr::new(10, 30, number, last), six)
        })
    }

    /// The communities that a site's announcements have: its provider's provider prefers other routes to them. New
    /// York's are left out with [`Plant::London`].
    #[must_use]
    pub fn scope(&self, site: usize) -> Option<(u16, u16)> {
        let (provider, _) = CITIES.get(site)?.upstream?;
        let is_planted = self.topology.plant == Some(Plant::London) && CITIES[site].transit == 209;
        (!is_planted).then_some((u16::try_from(provider).unwrap_or_default(), 70))
    }

    /// Who is whose customer, and who are peers: `PROVIDER|CUSTOMER|-1` or `PEER|PEER|0` in each line, as published lists
    /// of such relations have it.
    #[must_use]
    pub fn relations(&self) -> String {
        let line = |link: &Uplink| {
            let (one, other) = (self.networks[link.one].asn, self.networks[link.other].asn);
            match link.relation {
                Relation::Peer => format!("{one}|{other}|0\n"),
                _ => format!("{other}|{one}|-1\n"),
            }
        };
        self.links.iter().map(line).collect()
    }

    /// The networks that tell the edges of a site which routes to the anycast prefixes they prefer: their number, and
    /// their addresses. They take no announcement there.
    #[must_use]
    pub fn views(&self, site: usize) -> Vec<(u32, [IpAddr; 2])> {
        let is_viewed = |link: &&Uplink| {
            let customer = &self.networks[link.one];
            site == 0 && customer.kind == NetworkKind::Clients && customer.name.starts_with(self.sites[0])
        };
        let of = |link: &Uplink| {
            let network = &self.networks[link.other];
            let (four, six) = network.loopback();
            (network.asn, [four.into(), six.into()])
        };
        self.links.iter().filter(is_viewed).map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    pub(crate) fn internet(sites: u8, plant: Option<Plant>) -> Internet {
        Internet::new(AnycastTopology::new(AnycastOptions { sites, edges_per_site: 2, plant }).unwrap())
    }

    #[test]
    fn every_network_has_a_name_and_prefixes_of_its_own_and_a_way_to_the_top() {
        let all = internet(6, None);
        let names: BTreeSet<_> = all.networks.iter().map(|network| network.name.clone()).collect();
        let nets: BTreeSet<_> = all.networks.iter().map(|network| (network.net_4, network.net_6)).collect();
        assert_eq!((names.len(), nets.len()), (all.networks.len(), all.networks.len()));
        for (number, network) in all.networks.iter().enumerate() {
            let has_provider = all.links.iter().any(|link| link.one == number && link.relation == Relation::Provider);
            assert_eq!(has_provider, !TOP.contains(&network.asn), "{}", network.name);
        }
        let peers = all.links.iter().filter(|link| link.relation == Relation::Peer).count();
        assert_eq!(peers, 6);
        assert_eq!(all.networks[0].asn, 3356, "ties go to it");
    }

    #[test]
    fn options_are_checked() {
        let with = |sites, edges_per_site| AnycastTopology::new(AnycastOptions { sites, edges_per_site, plant: None });
        for sites in [0, 1, 7] {
            assert_eq!(with(sites, 2), Err(AnycastError::Sites(sites)));
        }
        assert_eq!(with(2, 9).unwrap_err().to_string(), "a site has 1 to 8 edges, and not 9");
        assert_eq!(with(2, 1).unwrap().edges, [1, 1]);
        assert_eq!("leak".parse(), Ok(Plant::Leak));
        assert!("mars".parse::<Plant>().unwrap_err().contains("london or leak"));
    }

    #[test]
    fn the_plants_take_away_what_guards() {
        assert_eq!(internet(2, None).scope(1), Some((3356, 70)));
        assert_eq!(internet(2, Some(Plant::London)).scope(1), None);
        assert_eq!(internet(3, Some(Plant::London)).scope(2), Some((2914, 70)), "Tokyo's stays");
        let unguarded = |plant| internet(2, plant).links.iter().filter(|link| !link.has_roles).count();
        assert_eq!((unguarded(None), unguarded(Some(Plant::Leak))), (0, 2));
    }

    #[test]
    fn relations_are_listed_with_the_provider_first() {
        let relations = internet(2, None).relations();
        for line in ["3356|209|-1", "3356|2914|0", "209|64500|-1", "3356|64501|-1"] {
            assert!(relations.lines().any(|one| one == line), "{line}: {relations}");
        }
    }

    #[test]
    fn londons_edges_hear_the_providers_of_londons_clients() {
        let views = internet(2, None);
        let numbers: Vec<_> = views.views(0).iter().map(|(asn, _)| *asn).collect();
        assert_eq!(numbers, [3356, 2914, 3257]);
        assert!(views.views(1).is_empty());
    }
}
