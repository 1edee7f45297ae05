//! The configurations of the routers, for BIRD 2.
//!
//! Each network prefers routes of customers to those of peers, and those to routes of providers. It sends routes of
//! peers and providers to customers alone. Where a link has roles (RFC 9234), BIRD refuses leaks as well.

use std::{fmt::Write as _, path::Path};

use super::{
    ANYCAST_4, ANYCAST_6, Internet, MAX_SITE_EDGES, Network, NetworkKind, OUR_AS, Relation, SITE_ROUTER_AS, Seat,
    Uplink,
};

/// How many hops away a network may be that tells edges its routes.
pub(crate) const VIEW_HOPS: u8 = 16;
/// How BFD watches edges, in milliseconds, and after how many missing packets an edge is down.
pub(crate) const BFD: (u32, u8) = (100, 3);

/// One of the two families.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    Four,
    Six,
}

impl Family {
    const ALL: [Self; 2] = [Self::Four, Self::Six];

    fn digit(self) -> u8 {
        match self {
            Self::Four => 4,
            Self::Six => 6,
        }
    }

    fn channel(self) -> &'static str {
        match self {
            Self::Four => "ipv4",
            Self::Six => "ipv6",
        }
    }

    fn anycast(self) -> String {
        match self {
            Self::Four => format!("{}/{}", ANYCAST_4.0, ANYCAST_4.1),
            Self::Six => format!("{}/{}", ANYCAST_6.0, ANYCAST_6.1),
        }
    }

    fn pick(self, pair: (std::net::Ipv4Addr, std::net::Ipv6Addr)) -> String {
        match self {
            Self::Four => pair.0.to_string(),
            Self::Six => pair.1.to_string(),
        }
    }
}

impl Relation {
    /// The mark of a route that came over such a link.
    fn mark(self) -> u8 {
        match self {
            Self::Customer => 1,
            Self::Peer => 2,
            Self::Provider => 3,
        }
    }

    /// The local preference of routes that come over it.
    fn preference(self) -> u32 {
        match self {
            Self::Customer => 120,
            Self::Peer => 100,
            Self::Provider => 80,
        }
    }

    /// The role of this side.
    fn own_role(self) -> &'static str {
        match self {
            Self::Customer => "provider",
            Self::Peer => "peer",
            Self::Provider => "customer",
        }
    }
}

impl Internet {
    /// The configuration of the router of a network.
    #[must_use]
    pub fn router_config(&self, number: usize) -> String {
        let network = &self.networks[number];
        let mut text = format!(
            "# {}, AS{}: written by sallyport lab.\nlog stderr {{ info, warning, error, fatal, bug, remote }};\n\
             router id {};\nprotocol device {{ scan time 10; }}\n\
             protocol bfd {{ interface \"*\" {{ interval {} ms; multiplier {}; }}; }}\n",
            network.name,
            network.asn,
            network.loopback().0,
            BFD.0,
            BFD.1,
        );
        // Others have one route at a time, as if each had one best path.
        let merge = match network.kind {
            NetworkKind::Site(_) => format!("merge paths yes limit {MAX_SITE_EDGES}; "),
            _ => String::new(),
        };
        for family in Family::ALL {
            let (channel, digit) = (family.channel(), family.digit());
            let length = if family == Family::Four { 24 } else { 48 };
            let net = family.pick((network.net_4, network.net_6));
            let _ = write!(
                text,
                "protocol static own{digit} {{ {channel}; route {net}/{length} unreachable; }}\n\
                 protocol kernel kernel{digit} {{ {merge}{channel} {{ import none; \
                 export filter {{ if source = RTS_STATIC then reject; krt_prefsrc = {}; accept; }}; }}; }}\n",
                family.pick(network.loopback()),
            );
        }
        for (link, uplink) in self.links.iter().enumerate() {
            let (side, other, relation) = if uplink.one == number {
                (0, uplink.other, uplink.relation)
            } else if uplink.other == number {
                let back = if uplink.relation == Relation::Peer { Relation::Peer } else { Relation::Customer };
                (1, uplink.one, back)
            } else {
                continue;
            };
            for family in Family::ALL {
                self.add_neighbour(&mut text, network, (link, side), (other, relation, uplink.has_roles), family);
            }
        }
        if let NetworkKind::Site(site) = network.kind {
            for edge in 1..=MAX_SITE_EDGES {
                Family::ALL.iter().for_each(|family| add_edge(&mut text, site, edge, *family));
            }
        }
        if self.views(0).iter().any(|(asn, _)| *asn == network.asn) {
            self.add_views(&mut text, network);
        }
        text
    }

    /// The protocols of a router that speak with other networks.
    #[must_use]
    pub fn sessions(&self, number: usize) -> Vec<String> {
        let other = |link: &Uplink| match number {
            number if number == link.one => Some(link.other),
            number if number == link.other => Some(link.one),
            _ => None,
        };
        let others = self.links.iter().filter_map(other);
        others.flat_map(|other| Family::ALL.map(|family| session_name(&self.networks[other], family))).collect()
    }

    /// The configuration of the BIRD beside an edge, which includes what the edge writes.
    #[must_use]
    pub fn edge_config(&self, seat: &Seat, announcements: &Path) -> String {
        // A pattern, because nothing is there yet; and BIRD does not start without a protocol.
        let pattern = announcements.with_extension("c*");
        format!(
            "# {}: written by sallyport lab. The edge writes what is included.\n\
             log stderr {{ info, warning, error, fatal, bug, remote }};\nrouter id {};\n\
             protocol static nothing {{ ipv4; }}\ninclude {pattern:?};\n",
            seat.name, seat.address,
        )
    }

    /// A neighbour over a link.
    fn add_neighbour(
        &self,
        text: &mut String,
        network: &Network,
        (link, side): (usize, usize),
        (other, relation, has_roles): (usize, Relation, bool),
        family: Family,
    ) {
        let addresses = Self::addresses(link);
        let neighbour = &self.networks[other];
        let (me, channel) = (network.asn, family.channel());
        let is_site = matches!(network.kind, NetworkKind::Site(_));
        let role = if has_roles { format!("local role {}; ", relation.own_role()) } else { String::new() };
        // The router of a site leaves the path as the edges made it, and takes the unicast routes of other sites.
        let more = if is_site { "rs client; allow local as 1; " } else { "" };
        let import = match is_site {
            true => format!("if net = {} then reject; bgp_local_pref = 80; accept;", family.anycast()),
            false => {
                let lower = if relation == Relation::Customer {
                    format!("if ({me}, 70) ~ bgp_community then bgp_local_pref = 70; ")
                } else {
                    String::new()
                };
                format!(
                    "bgp_large_community.delete([({me}, *, *)]); bgp_large_community.add(({me}, 1, {})); \
                     bgp_local_pref = {}; {lower}if (65535, 0) ~ bgp_community then bgp_local_pref = 0; accept;",
                    relation.mark(),
                    relation.preference(),
                )
            }
        };
        let own = if is_site { format!("bgp_path.prepend({OUR_AS}); ") } else { String::new() };
        let export = match (is_site, network.kind, relation) {
            (true, ..) => format!(
                "if source = RTS_STATIC then {{ {own}accept; }} if net = {} then accept; reject;",
                family.anycast()
            ),
            // It knows no better: it sends everything to everybody.
            (_, NetworkKind::Customer, _) if !has_roles => "accept;".to_owned(),
            (_, _, Relation::Customer) => "accept;".to_owned(),
            _ => format!("if source = RTS_STATIC || ({me}, 1, 1) ~ bgp_large_community then accept; reject;"),
        };
        let next_hop = if is_site { "next hop self; " } else { "" };
        let _ = writeln!(
            text,
            "protocol bgp {} {{ local {} as {me}; neighbor {} as {}; {role}{more}{} {channel} {{ {next_hop}\
             import filter {{ {import} }}; export filter {{ {export} }}; }}; }}",
            session_name(neighbour, family),
            family.pick(addresses[side]),
            family.pick(addresses[1 - side]),
            neighbour.asn,
            timers(30),
        );
    }

    /// Sessions by which edges of the first site hear which route to the anycast prefix this network prefers. Nothing
    /// that they announce is taken.
    fn add_views(&self, text: &mut String, network: &Network) {
        for family in Family::ALL {
            let range = if family == Family::Four { "10.30.0.0/24" } else { "fd30:0:0::/48" };
            let _ = writeln!(
                text,
                "protocol bgp views{digit} {{ local {} as {}; neighbor range {range} as {OUR_AS}; multihop {VIEW_HOPS}; \
                 dynamic name \"view{digit}_\"; {} {} {{ import none; \
                 export filter {{ if net = {} then accept; reject; }}; }}; }}",
                family.pick(network.loopback()),
                network.asn,
                timers(30),
                family.channel(),
                family.anycast(),
                digit = family.digit(),
            );
        }
    }
}

/// An edge as the neighbour of its site's router.
fn add_edge(text: &mut String, site: usize, edge: u8, family: Family) {
    let [router, address] = Internet::edge_addresses(site, edge);
    let _ = writeln!(
        text,
        "protocol bgp edge{edge}_{} {{ local {} as {SITE_ROUTER_AS}; neighbor {} as {OUR_AS}; local role provider; ttl security on; bfd on; \
         {} {} {{ import filter {{ if net != {} then reject; bgp_local_pref = 120; \
         if (65535, 0) ~ bgp_community then bgp_local_pref = 0; accept; }}; export none; }}; }}",
        family.digit(),
        family.pick(router),
        family.pick(address),
        timers(30),
        family.channel(),
        family.anycast(),
    );
}

/// Sessions that come up soon after both sides are there.
fn timers(hold: u8) -> String {
    format!("connect delay time 1; connect retry time 2; error wait time 1, 4; hold time {hold};")
}

/// The name of a neighbour's protocol; BIRD's names have no hyphen.
fn session_name(neighbour: &Network, family: Family) -> String {
    format!("{}_{}", neighbour.name.replace('-', "_"), family.digit())
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write as _,
        process::{Command, Stdio},
    };

    use super::{
        super::{AnycastOptions, AnycastTopology, Plant, SeatKind},
        *,
    };

    fn internet(sites: u8, plant: Option<Plant>) -> Internet {
        Internet::new(AnycastTopology::new(AnycastOptions { sites, edges_per_site: 2, plant }).unwrap())
    }

    fn config(internet: &Internet, name: &str) -> String {
        let (number, _) = internet.network(name).unwrap();
        internet.router_config(number)
    }

    #[test]
    fn bird_takes_every_configuration() {
        if Command::new("bird").arg("--version").stderr(Stdio::null()).stdout(Stdio::null()).status().is_err() {
            println!("skipped: bird is not there");
            return;
        }
        let judge = |name: &str, config: &str| {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(config.as_bytes()).unwrap();
            let output = Command::new("bird").args(["-p", "-c"]).arg(file.path()).output().unwrap();
            let printed = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{name}: {printed}\n{config}");
        };
        for plant in [None, Some(Plant::London), Some(Plant::Leak)] {
            let internet = internet(6, plant);
            for (number, network) in internet.networks.iter().enumerate() {
                judge(&network.name, &internet.router_config(number));
            }
            let dir = tempfile::tempdir().unwrap();
            for seat in internet.seats().iter().filter(|seat| matches!(seat.kind, SeatKind::Edge(_))) {
                judge(&seat.name, &internet.edge_config(seat, &dir.path().join("sallyport.conf")));
            }
        }
    }

    fn line<'a>(config: &'a str, protocol: &str) -> &'a str {
        config.lines().find(|line| line.starts_with(&format!("protocol bgp {protocol} "))).unwrap()
    }

    #[test]
    fn routes_of_peers_and_providers_go_to_customers_alone() {
        let all = internet(2, None);
        let config = config(&all, "as3356");
        let (peer, customer) = (line(&config, "as1299_4"), line(&config, "as209_4"));
        assert!(peer.contains("local role peer") && peer.contains("bgp_local_pref = 100"), "{peer}");
        assert!(peer.contains("if source = RTS_STATIC || (3356, 1, 1) ~ bgp_large_community then accept; reject;"));
        assert!(customer.contains("local role provider") && customer.contains("bgp_local_pref = 120"), "{customer}");
        assert!(customer.contains("if (3356, 70) ~ bgp_community then bgp_local_pref = 70"), "{customer}");
        assert!(customer.contains("export filter { accept; }") && !peer.contains(", 70)"), "{customer}");
    }

    #[test]
    fn a_leaking_customer_sends_everything_and_nobody_guards_against_it() {
        let guarded = config(&internet(2, None), "as64499");
        assert!(line(&guarded, "as2914_4").contains("then accept; reject;"));
        let leaking = internet(2, Some(Plant::Leak));
        let own = config(&leaking, "as64499");
        let own = line(&own, "as2914_4");
        assert!(own.contains("export filter { accept; }") && !own.contains("local role"), "{own}");
        let other = config(&leaking, "as2914");
        assert!(!line(&other, "as64499_4").contains("local role"));
        assert!(line(&other, "as3356_4").contains("local role"));
    }

    #[test]
    fn the_router_of_a_site_shares_among_its_edges_and_hides_itself() {
        let config = config(&internet(2, None), "new-york-router");
        assert!(config.contains("merge paths yes limit 8"), "{config}");
        let edge = line(&config, "edge1_4");
        assert!(
            edge.contains(
                "local 10.30.1.18 as 64496; neighbor 10.30.1.19 as 64500; local role provider; ttl security on"
            )
        );
        assert!(edge.contains("if net != 198.51.100.0/24 then reject"), "{edge}");
        let transit = line(&config, "as209_6");
        assert!(transit.contains("as 64500; neighbor") && transit.contains("rs client"), "{transit}");
    }
}
