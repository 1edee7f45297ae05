//! The steps of the router, in their order.

use std::net::IpAddr;

use super::{DropReason, PassReason, ReversePath, Router, Verdict, rewrite, special};
use crate::{
    parse::{
        ETHERTYPE_IPV4, ETHERTYPE_IPV6, Ethernet, Flow, Ip, Mac, Malformed, Packet, Tags, flow_hash, parse,
        parse_ethernet,
    },
    route::{Cells, Found, NextHop},
};

/// The result for a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// What happens.
    pub verdict: Verdict,
    /// The bytes that leave, or those that came.
    pub frame: Vec<u8>,
}

/// What a step has found out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The frame came by this interface, and is for the router.
    CameBy(u32),
    /// The packet was read.
    Parsed(Packet),
    /// The route back to the source.
    ReversePath {
        /// The source.
        source: IpAddr,
        /// The longest prefix.
        found: Option<Found>,
    },
    /// The route to the destination, by the hash of the flow.
    Route {
        /// The destination.
        destination: IpAddr,
        /// The longest prefix.
        found: Option<Found>,
        /// The hash that chooses among equal next hops.
        hash: u32,
    },
    /// The neighbor on an interface, and its hardware address.
    Neighbor {
        /// Index of the interface.
        interface: u32,
        /// Address of the neighbor.
        address: IpAddr,
        /// Its hardware address, if known.
        mac: Option<Mac>,
    },
}

/// Who wants to know the steps. `()` does not.
pub trait Observer {
    /// A step was taken.
    fn observe(&mut self, step: Step);
}

impl Observer for () {
    fn observe(&mut self, _step: Step) {}
}

impl Observer for Vec<Step> {
    fn observe(&mut self, step: Step) {
        self.push(step);
    }
}

/// What the router does with a frame that came by a port: [`admit`], then [`send`].
#[must_use]
pub fn forward<C: Cells>(router: &Router<C>, port: u32, frame: &[u8], observer: &mut impl Observer) -> Outcome {
    let sent = admit(router, port, frame, observer).and_then(|packet| send(router, frame, &packet, observer));
    match sent {
        Ok((port, frame)) => Outcome { verdict: Verdict::Forward { port }, frame },
        Err(verdict) => Outcome { verdict, frame: frame.to_vec() },
    }
}

/// The first half: who it is for, whether it can be read, whether it may come. A NAT translates the packet after it.
///
/// # Errors
/// The packet is dropped, or is for the kernel.
pub fn admit<C: Cells>(
    router: &Router<C>,
    port: u32,
    frame: &[u8],
    observer: &mut impl Observer,
) -> Result<Packet, Verdict> {
    let malformed = |malformed| Verdict::Drop(DropReason::Malformed(malformed));
    // What is not for the router is the kernel's, whatever it is.
    let ethernet = parse_ethernet(frame).map_err(malformed)?;
    let incoming = incoming_interface(router, port, &ethernet)?;
    observer.observe(Step::CameBy(incoming));
    let packet = parse(frame).map_err(malformed)?;
    observer.observe(Step::Parsed(packet));
    let ip = routable(&packet)?;
    check_reverse_path(router, incoming, &ip, routing_hash(router, &packet), observer)?;
    // The kernel forwards no frame for a group, and delivers it.
    if is_for_group(&ethernet) {
        return Err(Verdict::Pass(PassReason::NotForRouter));
    }
    // What the kernel forwards comes after the source: the kernel does not check it again.
    if special::is_link_local(ip.source) || special::is_link_local(ip.destination) {
        return Err(Verdict::Pass(PassReason::LinkLocal));
    }
    if special::is_reserved(ip.destination) {
        return Err(Verdict::Pass(PassReason::MartianDestination));
    }
    if ip.has_router_options {
        return Err(Verdict::Pass(PassReason::RouterOptions));
    }
    Ok(packet)
}

/// The second half: where it goes, whether it fits, and the frame that leaves, with the port by which it leaves.
///
/// # Errors
/// The packet is dropped, or is for the kernel.
pub fn send<C: Cells>(
    router: &Router<C>,
    frame: &[u8],
    packet: &Packet,
    observer: &mut impl Observer,
) -> Result<(u32, Vec<u8>), Verdict> {
    let ip = packet.ip.ok_or(Verdict::Pass(PassReason::NotIp))?;
    let hash = routing_hash(router, packet);
    let found = router.fib.lookup(ip.destination, hash);
    observer.observe(Step::Route { destination: ip.destination, found, hash });
    let (outgoing, gateway) = way_out(found)?;
    if ip.hop_limit <= 1 {
        return Err(Verdict::Pass(PassReason::HopLimit));
    }
    let interface = router.interface(outgoing).ok_or(Verdict::Pass(PassReason::OtherInterface))?;
    if ip.total_bytes > interface.mtu {
        return Err(Verdict::Pass(PassReason::TooBig));
    }
    let address = gateway.unwrap_or(ip.destination);
    let mac = router.neighbor(outgoing, address);
    observer.observe(Step::Neighbor { interface: outgoing, address, mac });
    let mac = mac.ok_or(Verdict::Pass(PassReason::NoNeighbor))?;
    Ok((interface.port, rewrite(frame, packet, interface, mac)))
}

fn routing_hash<C: Cells>(router: &Router<C>, packet: &Packet) -> u32 {
    Flow::for_routing(packet).map_or(0, |flow| flow_hash(&flow, router.seed))
}

/// Whether the frame is for a group of hosts: broadcast or multicast.
fn is_for_group(ethernet: &Ethernet) -> bool {
    ethernet.destination[0] & 1 == 1
}

/// The interface that the frame came by; its hardware address is the frame's destination. A frame for a group of hosts
/// is read further where sources are checked: the kernel takes what is inside, if that is for this machine.
fn incoming_interface<C: Cells>(router: &Router<C>, port: u32, ethernet: &Ethernet) -> Result<u32, Verdict> {
    refuse_hidden(router, port, ethernet)?;
    // One tag is of 802.1Q, and of two the outer is of 802.1ad, as they are written.
    if ethernet.tags != Tags::default() && ethernet.is_service != ethernet.tags.inner.is_some() {
        return Err(Verdict::Pass(PassReason::NotRouted));
    }
    // The number 0 names no VLAN: the tag has a priority only (IEEE 802.1Q, section 9.6).
    let tags = if ethernet.tags == Tags::one(0) { Tags::default() } else { ethernet.tags };
    let index = router.interface_of(port, tags).ok_or(Verdict::Pass(PassReason::NotRouted))?;
    let interface = router.interface(index).ok_or(Verdict::Pass(PassReason::NotRouted))?;
    if !matches!(ethernet.ether_type, ETHERTYPE_IPV4 | ETHERTYPE_IPV6) {
        return Err(Verdict::Pass(PassReason::NotIp));
    }
    let is_read = is_for_group(ethernet) && interface.reverse_path != ReversePath::Off;
    if ethernet.destination != interface.mac && !is_read {
        return Err(Verdict::Pass(PassReason::NotForRouter));
    }
    Ok(index)
}

/// Refuses a packet behind a tag with the number 0, which the kernel takes off, where sources are checked.
fn refuse_hidden<C: Cells>(router: &Router<C>, port: u32, ethernet: &Ethernet) -> Result<(), Verdict> {
    let Tags { outer: Some(outer), inner } = ethernet.tags else { return Ok(()) };
    let is_hidden = match (ethernet.is_service, inner) {
        (true, _) => outer == 0,
        (false, Some(inner)) => outer == 0 || inner == 0,
        (false, None) => false,
    };
    let tags = if outer == 0 { Tags::default() } else { Tags::one(outer) };
    let interface = router.interface_of(port, tags).and_then(|index| router.interface(index));
    if is_hidden && interface.is_some_and(|interface| interface.reverse_path != ReversePath::Off) {
        return Err(Verdict::Drop(DropReason::Malformed(Malformed::ZeroTag)));
    }
    Ok(())
}

/// The IP header, if the router may forward the packet at all.
fn routable(packet: &Packet) -> Result<Ip, Verdict> {
    let ip = packet.ip.ok_or(Verdict::Pass(PassReason::NotIp))?;
    if special::is_multicast(ip.destination) {
        return Err(Verdict::Pass(PassReason::Multicast));
    }
    if special::is_martian_destination(ip.destination) {
        return Err(Verdict::Pass(PassReason::MartianDestination));
    }
    // The kernel forwards link-local packets of IPv4, and none of IPv6.
    if ip.source.is_ipv6() && (special::is_link_local(ip.source) || special::is_link_local(ip.destination)) {
        return Err(Verdict::Pass(PassReason::LinkLocal));
    }
    if special::is_martian_source(ip.source) {
        return Err(Verdict::Drop(DropReason::MartianSource));
    }
    Ok(ip)
}

/// RFC 3704, sections 2.2 and 2.4. The default route counts as a route.
fn check_reverse_path<C: Cells>(
    router: &Router<C>,
    incoming: u32,
    ip: &Ip,
    hash: u32,
    observer: &mut impl Observer,
) -> Result<(), Verdict> {
    let mode = router.interface(incoming).map_or(ReversePath::Off, |interface| interface.reverse_path);
    if mode == ReversePath::Off {
        return Ok(());
    }
    let found = router.fib.lookup(ip.source, hash);
    observer.observe(Step::ReversePath { source: ip.source, found });
    let leads_back = match (mode, found) {
        (ReversePath::Strict, Some(found)) => router.fib.next_hops().has_interface(found.route, incoming),
        (_, Some(found)) => matches!(found.next_hop, NextHop::Forward { .. }),
        (_, None) => false,
    };
    if leads_back { Ok(()) } else { Err(Verdict::Drop(DropReason::SpoofedSource)) }
}

/// The interface and the gateway of a route.
fn way_out(found: Option<Found>) -> Result<(u32, Option<IpAddr>), Verdict> {
    let pass = |reason| Err(Verdict::Pass(reason));
    match found.map(|found| found.next_hop) {
        Some(NextHop::Forward { interface, gateway }) => Ok((interface, gateway)),
        Some(NextHop::Local) => pass(PassReason::Local),
        Some(NextHop::BlackHole) => Err(Verdict::Drop(DropReason::BlackHole)),
        Some(NextHop::Prohibit) => pass(PassReason::Prohibit),
        Some(NextHop::Unreachable) => pass(PassReason::Unreachable),
        Some(NextHop::Group(_)) | None => pass(PassReason::NoRoute),
    }
}
