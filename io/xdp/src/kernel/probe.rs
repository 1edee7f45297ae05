//! Next hops that the kernel is to probe: it does not see the packets that XDP sends to them.

use std::{
    collections::{HashMap, HashSet},
    net::IpAddr,
};

use rtnetlink::{
    packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_REQUEST, NetlinkHeader},
    packet_route::{
        AddressFamily, RouteNetlinkMessage,
        neighbour::{
            NeighbourAddress, NeighbourAttribute, NeighbourExtFlags, NeighbourFlags, NeighbourMessage, NeighbourState,
        },
    },
};
use sallyport_packet_model::follow::{Leg, Object, Way};

use super::{
    lists::Neighbor,
    netlink::{self, Event, List},
};
use crate::XdpError;

/// The most gateways that are probed.
const MAX_GATEWAYS: usize = 65_536;

/// How the kernel is to probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Probing {
    /// From now on, also when the neighbour does not answer.
    Always,
    /// Once, as if a packet went there.
    Once,
}

/// The gateways of all routes and next-hop objects, at most 65,536.
///
/// # Errors
/// The kernel does not answer.
pub fn gateways() -> Result<HashSet<Leg>, XdpError> {
    let mut gateways = HashSet::new();
    let mut take = |leg: Leg| {
        if leg.gateway.is_some() && gateways.len() < MAX_GATEWAYS {
            gateways.insert(leg);
        }
    };
    for family in [List::Routes4, List::Routes6] {
        // Part of a list that changes is enough: the next call has the rest.
        let listed = netlink::routes(family, |found| {
            found.legs().for_each(&mut take);
            Ok(())
        });
        listed.map_err(|error| XdpError::Netlink { what: "routes", reason: error.to_string() })?;
    }
    netlink::list(List::Objects, |event| {
        if let Event::Object(_, Some(Object::Way(Way::Legs(legs)))) = event {
            legs.iter().for_each(|(leg, _)| take(*leg));
        }
    })?;
    Ok(gateways)
}

/// Has the kernel probe gateways of these devices from now on, and with `asks_stale` each neighbour of these devices
/// once that it has not heard of for long. Permanent neighbours stay as they are.
///
/// # Errors
/// The kernel refuses one; the others are probed.
pub(crate) fn probe(gateways: &HashSet<Leg>, devices: &HashSet<u32>, asks_stale: bool) -> Result<(), XdpError> {
    let mut neighbors: HashMap<(u32, IpAddr), Neighbor> = HashMap::new();
    netlink::list(List::Neighbors, |event| {
        if let Event::Neighbor(neighbor) = event {
            neighbors.insert((neighbor.device, neighbor.address), neighbor);
        }
    })?;
    let mut wanted = Vec::new();
    for (device, address) in gateways.iter().filter_map(|leg| Some((leg.interface, leg.gateway?))) {
        let standing = neighbors.get(&(device, address));
        if devices.contains(&device) && standing.is_none_or(|one| !one.is_managed && one.state != "permanent") {
            wanted.push((device, address, Probing::Always));
        }
    }
    let stale = neighbors.values().filter(|one| asks_stale && one.state == "stale" && !one.is_managed);
    let stale = stale.filter(|one| devices.contains(&one.device));
    wanted.extend(stale.map(|one| (one.device, one.address, Probing::Once)));
    let mut result = Ok(());
    for (device, address, probing) in wanted {
        if let Err(error) = netlink::ask(&request(device, address, probing)) {
            result = Err(XdpError::NotProbed { address, reason: error.to_string() });
        }
    }
    result
}

/// The request: `RTM_NEWNEIGH` without an address of the link.
fn request(device: u32, address: IpAddr, probing: Probing) -> Vec<u8> {
    let mut message = NeighbourMessage::default();
    message.header.ifindex = device;
    message.header.state = NeighbourState::None;
    let destination = match address {
        IpAddr::V4(address) => (AddressFamily::Inet, NeighbourAddress::Inet(address)),
        IpAddr::V6(address) => (AddressFamily::Inet6, NeighbourAddress::Inet6(address)),
    };
    message.header.family = destination.0;
    message.attributes.push(NeighbourAttribute::Destination(destination.1));
    match probing {
        Probing::Always => message.attributes.push(NeighbourAttribute::ExtFlags(NeighbourExtFlags::Managed)),
        Probing::Once => message.header.flags = NeighbourFlags::Use,
    }
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE;
    netlink::bytes_of(header, RouteNetlinkMessage::NewNeighbour(message))
}
