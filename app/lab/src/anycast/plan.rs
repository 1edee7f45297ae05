//! The nodes of an anycast laboratory, with the lines of `ip` that set them up.
//!
//! Edges, control, the bus and origins are in a management network besides, in which no anycast address is.

use std::{
    fmt::Write as _,
    net::{IpAddr, Ipv4Addr},
};

use super::{ANYCAST_4, ANYCAST_6, BFD, Internet, NetworkKind, OUR_AS, SITE_ROUTER_AS, VIEW_HOPS};

/// The address of the switch of the management network.
const SWITCH: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// The device of a node in the management network.
const MANAGEMENT: &str = "mgmt0";
/// The device of an edge towards its site's router.
const UPLINK: &str = "up0";

/// What sits on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeatKind {
    /// The router of a network, or its only client, by the number of the network.
    Network(usize),
    /// An edge, by its number in the site, which counts from 1.
    Edge(u8),
    /// The origin of a site.
    Origin,
    /// The control.
    Control,
    /// The NATS server.
    Bus,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seat {
    /// The name.
    pub name: String,
    /// What sits there.
    pub kind: SeatKind,
    /// The site.
    pub site: usize,
    /// Its address: of the management network, or the router's own.
    pub address: Ipv4Addr,
}

/// A device of a node, at the end of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cable {
    /// The number of the network.
    pub network: usize,
    /// The name of the device.
    pub device: String,
}

/// A router with which edges speak BGP, as an operator sets it up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neighbour {
    /// The name.
    pub name: String,
    /// Which edges speak with it.
    pub place: String,
    /// Its address.
    pub address: IpAddr,
    /// Its autonomous system.
    pub remote_as: u32,
    /// How many hops away it is.
    pub hops: u8,
    /// Whether BFD watches it, and it has the role of a provider: it takes announcements.
    pub is_provider: bool,
    /// Communities of announcements to it.
    pub communities: Vec<String>,
}

impl Neighbour {
    /// The command of `sallyport` that sets it up.
    #[must_use]
    pub fn command(&self) -> Vec<String> {
        let mut words: Vec<String> = ["anycast", "peer", "add", &self.name].map(str::to_owned).into();
        words.extend(["--address".into(), self.address.to_string(), "--as".into(), self.remote_as.to_string()]);
        words.extend(["--local-as".into(), OUR_AS.to_string(), "--at".into(), self.place.clone()]);
        words.extend(["--hops".into(), self.hops.to_string(), "--role".into()]);
        if self.is_provider {
            words.extend(["provider".into(), "--bfd".into(), "--bfd-interval".into(), BFD.0.to_string()]);
        } else {
            words.push("none".into());
        }
        words.extend(self.communities.iter().flat_map(|community| ["--community".into(), community.clone()]));
        words
    }
}

impl Internet {
    /// The anycast prefixes, with the address that all edges have in each.
    #[must_use]
    pub fn prefixes() -> [(String, IpAddr); 2] {
        [
            (format!("{}/{}", ANYCAST_4.0, ANYCAST_4.1), ANYCAST_4.2.into()),
            (format!("{}/{}", ANYCAST_6.0, ANYCAST_6.1), ANYCAST_6.2.into()),
        ]
    }

    /// The routers with which an edge speaks: its site's, over both families.
    #[must_use]
    pub fn neighbours(&self, seat: &Seat) -> Vec<Neighbour> {
        let SeatKind::Edge(edge) = seat.kind else { return Vec::new() };
        let [(four, six), _] = Self::edge_addresses(seat.site, edge);
        let scope = self.scope(seat.site).map(|(high, low)| format!("{high}:{low}"));
        let of = |(suffix, address): (&str, IpAddr)| Neighbour {
            name: format!("{}-{suffix}", seat.name),
            place: format!("edge:{}", seat.name),
            address,
            remote_as: SITE_ROUTER_AS,
            hops: 1,
            is_provider: true,
            communities: scope.clone().into_iter().collect(),
        };
        [("v4", four.into()), ("v6", six.into())].map(of).into()
    }

    /// The routers that tell edges their routes to the anycast prefixes, and take nothing.
    #[must_use]
    pub fn viewers(&self) -> Vec<Neighbour> {
        let sites = self.sites.iter().enumerate();
        let of_site = |(site, name): (usize, &&str)| {
            let place = format!("region:{name}");
            let views = self.views(site).into_iter();
            let both = views.flat_map(move |(asn, addresses)| {
                let place = place.clone();
                ["v4", "v6"].into_iter().zip(addresses).map(move |(suffix, address)| Neighbour {
                    name: format!("as{asn}-{suffix}"),
                    place: place.clone(),
                    address,
                    remote_as: asn,
                    hops: VIEW_HOPS,
                    is_provider: false,
                    communities: Vec::new(),
                })
            });
            both.collect::<Vec<_>>()
        };
        sites.flat_map(of_site).collect()
    }

    /// All nodes, in the order in which they start.
    #[must_use]
    pub fn seats(&self) -> Vec<Seat> {
        let mut seats = Vec::new();
        let mut add = |name: String, kind, site, address| seats.push(Seat { name, kind, site, address });
        for (number, network) in self.networks.iter().enumerate() {
            add(network.name.clone(), SeatKind::Network(number), network.site, network.loopback().0);
        }
        add("nats-1".to_owned(), SeatKind::Bus, 0, Ipv4Addr::new(10, 77, 0, 41));
        add("control-1".to_owned(), SeatKind::Control, 0, Ipv4Addr::new(10, 77, 0, 31));
        let sites = self.sites.iter().zip(&self.topology.edges).enumerate();
        for (site, (name, edges)) in sites {
            let third = u8::try_from(site + 1).unwrap_or(u8::MAX);
            for edge in 1..=*edges {
                add(format!("{name}-{edge}"), SeatKind::Edge(edge), site, Ipv4Addr::new(10, 77, third, 10 + edge));
            }
            add(format!("{name}-origin"), SeatKind::Origin, site, Ipv4Addr::new(10, 77, third, 111));
        }
        seats
    }

    /// The two devices of each link. Packets to the one come out at the other, after the delay of the link.
    #[must_use]
    pub fn cables(&self) -> Vec<[Cable; 2]> {
        let cable = |link: usize, network| Cable { network, device: format!("link{link}") };
        self.links.iter().enumerate().map(|(link, ends)| [cable(link, ends.one), cable(link, ends.other)]).collect()
    }

    /// The lines of a shell that make a node's kernel a router, or a host, before it has devices.
    #[must_use]
    pub fn kernel_settings(&self, seat: &Seat) -> String {
        let mut text = "cd /proc/sys/net\n".to_owned();
        let mut set = |name: &str, value: u8| {
            let _ = writeln!(text, "echo {value} >{name}");
        };
        for name in ["all", "default"] {
            set(&format!("ipv4/conf/{name}/rp_filter"), 0);
            set(&format!("ipv6/conf/{name}/accept_dad"), 0);
        }
        if let SeatKind::Network(number) = seat.kind
            && self.networks[number].kind != NetworkKind::Clients
        {
            set("ipv4/ip_forward", 1);
            set("ipv6/conf/all/forwarding", 1);
            // Flows of one client spread over edges by their ports.
            set("ipv4/fib_multipath_hash_policy", 1);
            set("ipv6/fib_multipath_hash_policy", 1);
        }
        text
    }

    /// The lines of `ip -batch`, of any namespace, that connect a node at once: to the management network, and an edge
    /// to its site's router. `space` gives the namespace of a node, `switch` is that of the management network.
    #[must_use]
    pub fn wire(&self, seat: &Seat, switch: &str, space: &dyn Fn(&str) -> String) -> String {
        let mut text = String::new();
        let here = space(&seat.name);
        if has_management(seat) {
            let port = port(seat);
            let _ = writeln!(text, "link add name {MANAGEMENT} netns {here} type veth peer name {port} netns {switch}");
        }
        if let SeatKind::Edge(edge) = seat.kind {
            let router = space(&format!("{}-router", self.sites[seat.site]));
            let _ = writeln!(text, "link add name {UPLINK} netns {here} type veth peer name edge{edge} netns {router}");
        }
        text
    }

    /// The lines for `ip -batch` on the switch of the management network, for the port of a node.
    #[must_use]
    pub fn switch_port(&self, seat: &Seat) -> String {
        if !has_management(seat) {
            return String::new();
        }
        let port = port(seat);
        format!("addr add {SWITCH}/32 dev {port}\nlink set {port} up\nroute replace {}/32 dev {port}\n", seat.address)
    }

    /// The lines for a node's `ip -batch`, once its devices exist.
    #[must_use]
    pub fn set_up(&self, seat: &Seat) -> String {
        let mut text = "link set lo up\n".to_owned();
        if has_management(seat) {
            let _ = write!(
                text,
                "addr add {}/32 dev {MANAGEMENT}\nlink set {MANAGEMENT} up\nroute add {SWITCH}/32 dev {MANAGEMENT}\n\
                 route add 10.77.0.0/16 via {SWITCH} dev {MANAGEMENT}\n",
                seat.address
            );
        }
        if let SeatKind::Edge(edge) = seat.kind {
            let [router, own] = Self::edge_addresses(seat.site, edge);
            let _ = write!(
                text,
                "addr add {}/31 dev {UPLINK}\naddr add {}/64 dev {UPLINK} nodad\nlink set {UPLINK} up\n\
                 route add default via {}\nroute add default via {} dev {UPLINK}\n",
                own.0, own.1, router.0, router.1
            );
        }
        let SeatKind::Network(number) = seat.kind else { return text };
        let (four, six) = self.networks[number].loopback();
        let _ = write!(text, "addr add {four}/32 dev lo\naddr add {six}/128 dev lo\n");
        for (link, ends) in self.links.iter().enumerate() {
            let sides = Self::addresses(link);
            let own = match number {
                number if number == ends.one => sides[0],
                number if number == ends.other => sides[1],
                _ => continue,
            };
            let device = format!("link{link}");
            let _ = write!(
                text,
                "addr add {}/31 dev {device}\naddr add {}/64 dev {device} nodad\n\
                 link set {device} up txqueuelen 4000\n",
                own.0, own.1
            );
        }
        text
    }

    /// The lines for `ip -batch` on a site's router, for the device of an edge.
    #[must_use]
    pub fn router_port(&self, seat: &Seat) -> String {
        let SeatKind::Edge(edge) = seat.kind else { return String::new() };
        let [router, _] = Self::edge_addresses(seat.site, edge);
        format!(
            "addr add {}/31 dev edge{edge}\naddr add {}/64 dev edge{edge} nodad\nlink set edge{edge} up\n",
            router.0, router.1
        )
    }

    /// The hosts file of a node: nodes of the management network, and the names of sockets, which lead clients to the
    /// anycast addresses. On an edge and on control those lead to itself, elsewhere to the first site's edges.
    #[must_use]
    pub fn hosts(&self, seat: &Seat, names: &[String]) -> String {
        let mut text = "127.0.0.1 localhost\n::1 localhost\n".to_owned();
        let seats = self.seats();
        for other in seats.iter().filter(|other| has_management(other)) {
            let _ = writeln!(text, "{} {}", other.address, other.name);
        }
        let addresses: Vec<String> = match seat.kind {
            SeatKind::Network(_) => vec![ANYCAST_4.2.to_string(), ANYCAST_6.2.to_string()],
            SeatKind::Control => vec![seat.address.to_string()],
            SeatKind::Edge(_) => vec![Ipv4Addr::LOCALHOST.to_string()],
            SeatKind::Origin | SeatKind::Bus => {
                let edges = seats.iter().filter(|edge| matches!(edge.kind, SeatKind::Edge(_)) && edge.site == 0);
                edges.map(|edge| edge.address.to_string()).collect()
            }
        };
        for name in names {
            for address in &addresses {
                let _ = writeln!(text, "{address} {name}");
            }
        }
        text
    }

    /// The rules of `nft` with which an edge neither hears nor says anything, while its links stay up.
    #[must_use]
    pub fn silence() -> &'static str {
        "table inet silence {\n\
         chain in { type filter hook input priority -300; iif != lo drop; }\n\
         chain out { type filter hook output priority -300; oif != lo drop; }\n}\n"
    }
}

fn has_management(seat: &Seat) -> bool {
    !matches!(seat.kind, SeatKind::Network(_))
}

/// The device of a node's port on the switch: devices have short names.
fn port(seat: &Seat) -> String {
    let [_, _, third, last] = seat.address.octets();
    format!("port{third}-{last}")
}

#[cfg(test)]
mod tests {
    use super::{super::*, *};

    fn internet() -> Internet {
        Internet::new(AnycastTopology::new(AnycastOptions { sites: 6, edges_per_site: 8, plant: None }).unwrap())
    }

    #[test]
    fn names_and_addresses_differ_and_devices_have_short_names() {
        let internet = internet();
        let seats = internet.seats();
        let mut addresses: Vec<_> = seats.iter().map(|seat| seat.address).collect();
        let mut names: Vec<_> = seats.iter().map(|seat| seat.name.clone()).collect();
        addresses.sort();
        addresses.dedup();
        names.sort();
        names.dedup();
        assert_eq!((addresses.len(), names.len()), (seats.len(), seats.len()));
        assert!(seats.iter().all(|seat| port(seat).len() < 16));
        let cables = internet.cables();
        assert_eq!(cables.len(), internet.links.len());
        assert!(cables.iter().flatten().all(|cable| cable.device.len() < 16));
    }

    #[test]
    fn an_edge_has_one_device_to_its_router_and_one_for_management() {
        let internet = internet();
        let seats = internet.seats();
        let edge = seats.iter().find(|seat| seat.name == "tokyo-2").unwrap();
        let wire = internet.wire(edge, "x-wires", &|name| format!("x-{name}"));
        assert_eq!(
            wire,
            "link add name mgmt0 netns x-tokyo-2 type veth peer name port3-12 netns x-wires\n\
             link add name up0 netns x-tokyo-2 type veth peer name edge2 netns x-tokyo-router\n"
        );
        let up = internet.set_up(edge);
        assert!(up.contains("addr add 10.30.2.21/31 dev up0\n") && up.contains("route add default via 10.30.2.20\n"));
        assert!(internet.router_port(edge).contains("addr add 10.30.2.20/31 dev edge2\n"));
        assert!(!internet.kernel_settings(edge).contains("ip_forward"));
    }

    #[test]
    fn edges_speak_with_their_router_and_hear_the_providers_of_londons_clients() {
        let internet = internet();
        let seats = internet.seats();
        let of = |name: &str| internet.neighbours(seats.iter().find(|seat| seat.name == name).unwrap());
        let [four, six] = &of("new-york-2")[..] else { panic!("two families") };
        assert_eq!((four.name.as_str(), four.place.as_str()), ("new-york-2-v4", "edge:new-york-2"));
        assert_eq!((four.address.to_string(), six.address.to_string()), ("10.30.1.20".into(), "fd30:0:1:2::1".into()));
        assert_eq!((four.remote_as, four.communities.clone()), (64_496, vec!["3356:70".to_owned()]));
        assert_eq!(
            six.command().join(" "),
            "anycast peer add new-york-2-v6 --address fd30:0:1:2::1 --as 64496 --local-as 64500 --at edge:new-york-2 \
             --hops 1 --role provider --bfd --bfd-interval 100 --community 3356:70"
        );
        assert!(of("london-1")[0].communities.is_empty() && of("london-origin").is_empty());
        let viewers: Vec<_> = internet.viewers().iter().map(|viewer| viewer.name.clone()).collect();
        assert_eq!(viewers, ["as3356-v4", "as3356-v6", "as2914-v4", "as2914-v6", "as3257-v4", "as3257-v6"]);
        assert!(internet.viewers().iter().all(|viewer| viewer.place == "region:london" && !viewer.is_provider));
    }

    #[test]
    fn routers_forward_and_share_by_ports_and_clients_do_not() {
        let internet = internet();
        let seats = internet.seats();
        let of = |name: &str| internet.kernel_settings(seats.iter().find(|seat| seat.name == name).unwrap());
        assert!(of("london-router").contains("echo 1 >ipv6/fib_multipath_hash_policy\n"));
        assert!(of("as3356").contains("echo 1 >ipv4/ip_forward\n"));
        assert!(!of("paris-client").contains("forward"));
    }

    #[test]
    fn names_lead_clients_to_the_anycast_addresses() {
        let internet = internet();
        let seats = internet.seats();
        let leads = |node: &str| {
            let seat = seats.iter().find(|seat| seat.name == node).unwrap();
            let hosts = internet.hosts(seat, &["a.lab.test".to_owned()]);
            let lines = hosts.lines().filter_map(|line| line.strip_suffix(" a.lab.test"));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(leads("paris-client"), ["198.51.100.1", "2001:db8:a::1"]);
        assert_eq!(leads("control-1"), ["10.77.0.31"]);
        assert_eq!(leads("london-3"), ["127.0.0.1"]);
        assert_eq!(leads("tokyo-origin").len(), 8);
    }
}
