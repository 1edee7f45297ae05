//! The reader of the kernel's routes: what a message says, for those who look and for the forwarding table.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use ipnet::IpNet;
use rtnetlink::packet_route::{
    AddressFamily,
    route::{
        RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteNextHop, RouteNextHopFlags,
        RouteType, RouteVia,
    },
};
use sallyport_packet_model::follow::{self, Leg, Rank, Way};

use super::netlink::{self, List};
use crate::XdpError;

/// The most routes that are read of a list.
const MAX_ROUTES: usize = 4_000_000;
/// The tables of the kernel that are read.
const MAIN: u32 = RouteHeader::RT_TABLE_MAIN as u32;
const LOCAL: u32 = 255;

/// A next hop of a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hop {
    /// The gateway; `None` on a connected network.
    pub gateway: Option<IpAddr>,
    /// The device.
    pub device: Option<u32>,
    /// The weight among the hops of the route.
    pub weight: u16,
}

/// A route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The prefix.
    pub destination: IpAddr,
    /// The length of the prefix.
    pub length: u8,
    /// Its kind, as `ip route` names it.
    pub kind: &'static str,
    /// The metric: the lowest decides.
    pub metric: u32,
    /// The next hops.
    pub hops: Vec<Hop>,
}

/// The routes of the main table, IPv4 first.
///
/// # Errors
/// The kernel does not answer.
pub fn routes() -> Result<Vec<Route>, XdpError> {
    let failed = |error: io::Error| XdpError::Netlink { what: "routes", reason: error.to_string() };
    let mut routes = Vec::new();
    for family in [List::Routes4, List::Routes6] {
        let before = routes.len();
        for _ in 0..netlink::MAX_LISTINGS {
            routes.truncate(before);
            let listed = netlink::routes(family, |found| {
                if routes.len() == MAX_ROUTES {
                    return Err(io::Error::other(format!("there are more than {MAX_ROUTES}")));
                }
                routes.extend(found.into_shown());
                Ok(())
            });
            if listed.map_err(failed)? {
                break;
            }
        }
    }
    Ok(routes)
}

/// A next hop, as a message has it.
#[derive(Debug)]
struct FoundHop {
    hop: Hop,
    is_dead: bool,
}

/// A route, as a message has it.
#[derive(Debug)]
pub(super) struct Found {
    table: u32,
    kind: RouteType,
    destination: IpAddr,
    length: u8,
    metric: u32,
    hops: Vec<FoundHop>,
    /// The next-hop object.
    object: Option<u32>,
    /// Whether the route is for all packets to the prefix: it has no type of service and no source.
    is_for_all: bool,
    /// Whether the route has no type of service, no source, no encapsulation and no metrics.
    is_plain: bool,
}

impl Found {
    /// Reads a message; `None` for entries of a cache, and for other families than IP.
    pub(super) fn read(message: RouteMessage) -> Option<Self> {
        let header = &message.header;
        if header.flags.contains(RouteFlags::Cloned) {
            return None;
        }
        let unspecified = match header.address_family {
            AddressFamily::Inet => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            AddressFamily::Inet6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            _ => return None,
        };
        let mut found = Self {
            table: u32::from(header.table),
            kind: header.kind,
            destination: unspecified,
            length: header.destination_prefix_length,
            metric: 0,
            hops: Vec::new(),
            object: None,
            is_for_all: header.tos == 0 && header.source_prefix_length == 0,
            is_plain: header.tos == 0 && header.source_prefix_length == 0,
        };
        let mut single = Hop { gateway: None, device: None, weight: 1 };
        let is_dead = header.flags.contains(RouteFlags::Dead);
        for attribute in message.attributes {
            match attribute {
                RouteAttribute::Destination(address) => found.destination = address_of(address)?,
                RouteAttribute::Priority(number) => found.metric = number,
                RouteAttribute::Table(number) => found.table = number,
                RouteAttribute::Oif(index) => single.device = Some(index),
                RouteAttribute::NhId(id) => found.object = Some(id),
                RouteAttribute::Metrics(metrics) => found.is_plain &= metrics.is_empty(),
                RouteAttribute::MultiPath(hops) => {
                    for hop in hops {
                        found.take_hop(hop);
                    }
                }
                attribute => found.take_way(attribute, &mut single),
            }
        }
        if found.hops.is_empty() {
            found.hops.push(FoundHop { hop: single, is_dead });
        }
        Some(found)
    }

    fn take_hop(&mut self, next: RouteNextHop) {
        let is_dead = next.flags.contains(RouteNextHopFlags::Dead);
        let mut hop = Hop { gateway: None, device: Some(next.interface_index), weight: u16::from(next.hops) + 1 };
        for attribute in next.attributes {
            self.take_way(attribute, &mut hop);
        }
        self.hops.push(FoundHop { hop, is_dead });
    }

    /// Takes what a route and each of its next hops can have.
    fn take_way(&mut self, attribute: RouteAttribute, hop: &mut Hop) {
        match attribute {
            RouteAttribute::Gateway(address) => hop.gateway = address_of(address),
            RouteAttribute::Via(via) => hop.gateway = via_of(via),
            // An encapsulation.
            RouteAttribute::EncapType(_) | RouteAttribute::Encap(_) => self.is_plain = false,
            _ => {}
        }
    }

    /// The next hops with gateways and devices, whichever table the route is in.
    pub(super) fn legs(&self) -> impl Iterator<Item = Leg> {
        self.hops.iter().filter_map(|FoundHop { hop, .. }| Some(Leg { interface: hop.device?, gateway: hop.gateway }))
    }

    /// The route for those who look: of the main table, and of a kind that leads somewhere.
    fn into_shown(self) -> Option<Route> {
        let kind = match self.kind {
            RouteType::Unicast => "unicast",
            RouteType::BlackHole => "blackhole",
            RouteType::Unreachable => "unreachable",
            RouteType::Prohibit => "prohibit",
            _ => return None,
        };
        if self.table != MAIN {
            return None;
        }
        let leads = self.kind == RouteType::Unicast;
        let hops = self.hops.into_iter().filter(|_| leads).map(|found| found.hop).collect();
        let Self { destination, length, metric, .. } = self;
        Some(Route { destination, length, kind, metric, hops })
    }

    /// The route for the forwarding table, of the tables `local` and `main`. What that has no word for leads to the
    /// kernel.
    pub(super) fn to_followed(&self) -> Option<follow::Route> {
        let table = match self.table {
            MAIN => 1,
            LOCAL => 0,
            _ => return None,
        };
        let way = match self.kind {
            RouteType::Unicast => self.way(),
            RouteType::BlackHole => Way::BlackHole,
            RouteType::Prohibit => Way::Prohibit,
            RouteType::Unreachable => Way::Unreachable,
            _ => Way::Kernel,
        };
        let prefix = IpNet::new(self.destination, self.length).ok()?.trunc();
        let rank = Rank { table, is_for_all: self.is_for_all, metric: self.metric };
        Some(follow::Route { prefix, rank, way })
    }

    fn way(&self) -> Way {
        if !self.is_plain {
            return Way::Kernel;
        }
        if let Some(id) = self.object {
            return Way::Object(id);
        }
        let legs = self.hops.iter().filter(|found| !found.is_dead).filter_map(|FoundHop { hop, .. }| {
            Some((Leg { interface: hop.device?, gateway: hop.gateway }, hop.weight))
        });
        let mut legs: Vec<_> = legs.collect();
        match legs.as_mut_slice() {
            [] => Way::Kernel,
            [(_, weight)] => {
                *weight = 1;
                Way::Legs(legs)
            }
            _ => Way::Legs(legs),
        }
    }
}

fn address_of(address: RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some(address.into()),
        RouteAddress::Inet6(address) => Some(address.into()),
        _ => None,
    }
}

fn via_of(via: RouteVia) -> Option<IpAddr> {
    match via {
        RouteVia::Inet(address) => Some(address.into()),
        RouteVia::Inet6(address) => Some(address.into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hop(index: u32, weight: u8, flags: RouteNextHopFlags) -> RouteNextHop {
        let mut hop = RouteNextHop::default();
        (hop.interface_index, hop.hops, hop.flags) = (index, weight - 1, flags);
        hop.attributes = vec![RouteAttribute::Gateway(RouteAddress::Inet([10, 0, 0, index as u8].into()))];
        hop
    }

    fn message(attributes: Vec<RouteAttribute>) -> RouteMessage {
        let mut message = RouteMessage::default();
        message.header.address_family = AddressFamily::Inet;
        message.header.kind = RouteType::Unicast;
        message.header.table = RouteHeader::RT_TABLE_MAIN;
        message.header.destination_prefix_length = 24;
        message.attributes = vec![RouteAttribute::Destination(RouteAddress::Inet([192, 0, 2, 0].into()))];
        message.attributes.extend(attributes);
        message
    }

    #[test]
    fn those_who_look_see_dead_hops_and_the_forwarding_table_does_not() {
        let hops = vec![hop(3, 2, RouteNextHopFlags::empty()), hop(4, 1, RouteNextHopFlags::Dead)];
        let found = Found::read(message(vec![RouteAttribute::MultiPath(hops)])).unwrap();
        let leg = Leg { interface: 3, gateway: Some([10, 0, 0, 3].into()) };
        assert_eq!(found.to_followed().unwrap().way, Way::Legs(vec![(leg, 1)]), "one leg has no weight");
        let shown = found.into_shown().unwrap();
        assert_eq!(
            shown.hops.iter().map(|hop| (hop.device, hop.weight)).collect::<Vec<_>>(),
            [(Some(3), 2), (Some(4), 1)]
        );
    }

    #[test]
    fn an_object_leads_the_forwarding_table_and_other_tables_are_not_shown() {
        let attributes = vec![RouteAttribute::NhId(7), RouteAttribute::Oif(3)];
        assert_eq!(Found::read(message(attributes)).unwrap().to_followed().unwrap().way, Way::Object(7));
        let mut local = message(vec![RouteAttribute::Table(LOCAL)]);
        local.header.kind = RouteType::Local;
        let local = Found::read(local).unwrap();
        assert_eq!(local.to_followed().map(|route| (route.rank.table, route.way)), Some((0, Way::Kernel)));
        assert_eq!(local.into_shown(), None);
        let other = Found::read(message(vec![RouteAttribute::Table(100), RouteAttribute::Oif(3)])).unwrap();
        assert_eq!((other.to_followed(), other.into_shown()), (None, None));
    }
}
