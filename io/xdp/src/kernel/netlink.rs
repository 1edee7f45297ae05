//! What changes in the kernel, by netlink: lists and events of routes, next-hop objects, neighbours and devices.
//!
//! The sockets are read directly, because a socket that has overrun must say so: what it lost is listed anew.

use std::{
    io::{self, ErrorKind},
    net::IpAddr,
    os::fd::AsFd as _,
    time::{Duration, Instant},
};

use rtnetlink::{
    packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NetlinkHeader, NetlinkMessage, NetlinkPayload},
    packet_route::{
        AddressFamily, RouteNetlinkMessage,
        link::LinkMessage,
        neighbour::NeighbourMessage,
        route::RouteMessage,
        rule::{RuleAction, RuleAttribute, RuleFlags, RuleMessage},
    },
    sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE},
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sallyport_packet_model::follow::{Leg, Object, Route, Way};

use super::{
    lists::{Device, Neighbor, device_of, neighbor_of},
    route::Found,
};
use crate::XdpError;

/// How long the kernel may take for the next part of a list.
const PATIENCE: Duration = Duration::from_secs(60);
/// The bytes of one read: the kernel sends up to 32 KiB at once.
const READ_BYTES: usize = 1 << 18;
/// The most events that are read after an overrun.
const MAX_DRAINED: usize = 4_000_000;
/// Message types of next-hop objects (include/uapi/linux/rtnetlink.h).
const RTM_NEWNEXTHOP: u16 = 104;
/// The message type of a route that is there.
const RTM_NEWROUTE: u16 = 24;
const RTM_DELNEXTHOP: u16 = 105;
const RTM_GETNEXTHOP: u16 = 106;
/// The groups of events: link, neighbour, IPv4 and IPv6 addresses, routes and rules, next-hop objects.
const GROUPS: [u32; 9] = [1, 3, 5, 9, 7, 11, 8, 19, 32];
/// The list has changed while the kernel wrote it.
const NLM_F_DUMP_INTR: u16 = 0x10;
/// A route took the place of another one.
const NLM_F_REPLACE: u16 = 0x100;
/// A route was added behind others.
const NLM_F_APPEND: u16 = 0x800;
/// How often a list that has changed meanwhile is read again.
pub(super) const MAX_LISTINGS: usize = 8;
/// Rules that every machine has: their priorities and tables (`ip rule`).
const STANDARD_RULES: [(u32, u32); 3] = [(0, 255), (32_766, 254), (32_767, 253)];
/// The protocol of BIRD in the kernel's routes.
const PROTOCOL_BIRD: u8 = 12;

/// Something of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A route, which is there or gone.
    Route {
        /// The route.
        route: Route,
        /// Whether it is there.
        is_there: bool,
        /// Whether it was added behind others with its metric.
        is_appended: bool,
        /// Whether it has taken the place of another one.
        replaces: bool,
    },
    /// A next-hop object; `None` if it is gone.
    Object(u32, Option<Object>),
    /// A neighbour.
    Neighbor(Neighbor),
    /// A neighbour that is gone.
    NoNeighbor(Neighbor),
    /// A device.
    Device(Device),
    /// A device that is gone.
    NoDevice(u32),
    /// An address has come.
    Address,
    /// An address is gone. The kernel removes routes with it, and does not say so.
    NoAddress,
    /// A rule for the choice of a table, which is there or gone.
    Rule {
        /// Whether it is one of those that every machine has.
        is_standard: bool,
    },
}

/// A list of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum List {
    /// Devices.
    Devices,
    /// Next-hop objects.
    Objects,
    /// Routes of IPv4.
    Routes4,
    /// Routes of IPv6.
    Routes6,
    /// Neighbours.
    Neighbors,
    /// Rules of IPv4.
    Rules4,
    /// Rules of IPv6.
    Rules6,
}

/// The events since the last call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// All that were there, or as many as were wanted.
    Events(usize),
    /// The kernel had more than the socket could hold, and some are lost.
    Overrun,
}

/// A socket with events.
#[derive(Debug)]
pub struct Events {
    socket: Socket,
    buffer: Vec<u8>,
}

fn failed(what: &'static str) -> impl Fn(io::Error) -> XdpError {
    move |error| XdpError::Netlink { what, reason: error.to_string() }
}

impl Events {
    /// Listens to events, with so many bytes for those that wait.
    ///
    /// # Errors
    /// There is no socket to be had.
    pub fn open(buffer_bytes: usize) -> Result<Self, XdpError> {
        let failed = failed("events");
        let mut socket = Socket::new(NETLINK_ROUTE).map_err(&failed)?;
        rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, buffer_bytes)
            .map_err(|error| failed(error.into()))?;
        socket.bind_auto().map_err(&failed)?;
        socket.set_non_blocking(true).map_err(&failed)?;
        for group in GROUPS {
            socket.add_membership(group).map_err(&failed)?;
        }
        Ok(Self { socket, buffer: Vec::with_capacity(READ_BYTES) })
    }

    /// Waits for an event, at most this long. Says whether one is there.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn wait(&self, at_most: Duration) -> Result<bool, XdpError> {
        let mut sockets = [PollFd::new(&self.socket, PollFlags::IN)];
        let at_most = Timespec::try_from(at_most).ok();
        match poll(&mut sockets, at_most.as_ref()) {
            Ok(ready) => Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(failed("events")(error.into())),
        }
    }

    /// Reads the events that are there, about `most` of them.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn read(&mut self, most: usize, mut take: impl FnMut(Event)) -> Result<Received, XdpError> {
        let (mut count, mut has_overrun) = (0, false);
        // After an overrun the kernel drops events without a word until the socket is empty.
        while count < most || has_overrun && count < MAX_DRAINED {
            self.buffer.clear();
            match self.socket.recv(&mut self.buffer, 0) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error()) => {
                    has_overrun = true;
                    continue;
                }
                Err(error) => return Err(failed("events")(error)),
            }
            parse(&self.buffer, |_, _, event| {
                count += 1;
                if let Some(event) = event {
                    take(event);
                }
                Ok(())
            })
            .map_err(failed("events"))?;
        }
        Ok(if has_overrun { Received::Overrun } else { Received::Events(count) })
    }
}

/// Reads a list from its beginning to its end. A list that changed meanwhile is read again, up to a bound; entries are
/// then taken twice.
///
/// # Errors
/// The kernel does not answer, or the list has changed each time: entries can be missing.
pub fn list(list: List, mut take: impl FnMut(Event)) -> Result<(), XdpError> {
    let what = match list {
        List::Devices => "devices",
        List::Objects => "next-hop objects",
        List::Routes4 | List::Routes6 => "routes",
        List::Neighbors => "neighbours",
        List::Rules4 | List::Rules6 => "rules",
    };
    read_whole(what, || list_once(list, &mut take))
}

/// Reads until the list is whole, up to a bound.
fn read_whole(what: &'static str, mut read: impl FnMut() -> io::Result<bool>) -> Result<(), XdpError> {
    for _ in 0..MAX_LISTINGS {
        if read().map_err(failed(what))? {
            return Ok(());
        }
    }
    Err(XdpError::ListChanged(what))
}

/// Reads the routes of a family, of all tables. Says whether the list is whole.
pub(super) fn routes(list: List, mut take: impl FnMut(Found) -> io::Result<()>) -> io::Result<bool> {
    dump(list, |bytes, is_done, is_whole| {
        messages(bytes, |kind, flags, message| {
            *is_whole &= flags & NLM_F_DUMP_INTR == 0;
            *is_done |= kind == NLMSG_DONE;
            match (kind == RTM_NEWROUTE).then(|| NetlinkMessage::<RouteNetlinkMessage>::deserialize(message)) {
                Some(Ok(NetlinkMessage {
                    payload: NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewRoute(message)),
                    ..
                })) => Found::read(message).map_or(Ok(()), &mut take),
                _ => Ok(()),
            }
        })
    })
}

/// Counts the routes of BIRD, of all tables, without reading more of each than its header.
///
/// # Errors
/// The kernel does not answer.
pub fn count_routes_of_bird() -> Result<usize, XdpError> {
    let mut count = 0;
    for list in [List::Routes4, List::Routes6] {
        let counted = dump(list, |bytes, is_done, _| {
            messages(bytes, |kind, _, message| {
                *is_done |= kind == NLMSG_DONE;
                // struct nlmsghdr, and the protocol in struct rtmsg.
                let is_of_bird = kind == RTM_NEWROUTE && message.get(16 + 5) == Some(&PROTOCOL_BIRD);
                count += usize::from(is_of_bird);
                Ok(())
            })
        });
        counted.map_err(failed("routes"))?;
    }
    Ok(count)
}

fn list_once(list: List, take: &mut impl FnMut(Event)) -> io::Result<bool> {
    dump(list, |bytes, is_done, is_whole| {
        parse(bytes, |kind, flags, event| {
            *is_whole &= flags & NLM_F_DUMP_INTR == 0;
            *is_done |= kind == NLMSG_DONE;
            if let Some(event) = event {
                take(event);
            }
            Ok(())
        })
    })
}

/// Asks for a list, and hands over each part of the answer, until that says that it is done. Says whether the list is
/// whole.
fn dump(list: List, mut take: impl FnMut(&[u8], &mut bool, &mut bool) -> io::Result<()>) -> io::Result<bool> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    socket.send(&request(list), 0)?;
    let mut buffer = Vec::with_capacity(READ_BYTES);
    let (mut is_whole, mut is_done) = (true, false);
    while !is_done {
        let mut sockets = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)];
        let end = Instant::now() + PATIENCE;
        while poll(&mut sockets, Timespec::try_from(end.saturating_duration_since(Instant::now())).ok().as_ref())? == 0
        {
            if Instant::now() >= end {
                return Err(io::Error::new(ErrorKind::TimedOut, format!("no answer in {} s", PATIENCE.as_secs())));
            }
        }
        buffer.clear();
        socket.recv(&mut buffer, 0)?;
        take(&buffer, &mut is_done, &mut is_whole)?;
    }
    Ok(is_whole)
}

/// The request for a list.
fn request(list: List) -> Vec<u8> {
    let route = |family| {
        let mut message = RouteMessage::default();
        message.header.address_family = family;
        RouteNetlinkMessage::GetRoute(message)
    };
    let rule = |family| {
        let mut message = RuleMessage::default();
        message.header.family = family;
        RouteNetlinkMessage::GetRule(message)
    };
    let message = match list {
        List::Devices => RouteNetlinkMessage::GetLink(LinkMessage::default()),
        List::Routes4 => route(AddressFamily::Inet),
        List::Routes6 => route(AddressFamily::Inet6),
        List::Neighbors => RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default()),
        List::Rules4 => rule(AddressFamily::Inet),
        List::Rules6 => rule(AddressFamily::Inet6),
        List::Objects => {
            // struct nlmsghdr and struct nhmsg: 24 bytes.
            let mut bytes = 24_u32.to_ne_bytes().to_vec();
            bytes.extend(RTM_GETNEXTHOP.to_ne_bytes());
            bytes.extend((NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
            bytes.resize(24, 0);
            return bytes;
        }
    };
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    bytes_of(header, message)
}

/// The bytes of a request.
pub(super) fn bytes_of(header: NetlinkHeader, message: RouteNetlinkMessage) -> Vec<u8> {
    let mut message = NetlinkMessage::new(header, NetlinkPayload::from(message));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

/// Has the kernel do something, and waits until it says that it did.
pub(super) fn ask(request: &[u8]) -> io::Result<()> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    socket.send(request, 0)?;
    let mut buffer = Vec::with_capacity(READ_BYTES);
    socket.recv(&mut buffer, 0)?;
    messages(&buffer, |_, _, _| Ok(()))
}

/// Takes the messages of a read: the kind, the flags, and what is in it.
fn parse(bytes: &[u8], mut take: impl FnMut(u16, u16, Option<Event>) -> io::Result<()>) -> io::Result<()> {
    messages(bytes, |kind, flags, message| {
        let event = match kind {
            RTM_NEWNEXTHOP | RTM_DELNEXTHOP => object_of(message.get(16..).unwrap_or_default(), kind == RTM_NEWNEXTHOP),
            NLMSG_DONE | NLMSG_ERROR => None,
            // What the library cannot read is nothing that is followed.
            _ => NetlinkMessage::<RouteNetlinkMessage>::deserialize(message)
                .ok()
                .and_then(|message| event_of(message, flags)),
        };
        take(kind, flags, event)
    })
}

/// Takes the messages of a read, as they are.
fn messages(bytes: &[u8], mut take: impl FnMut(u16, u16, &[u8]) -> io::Result<()>) -> io::Result<()> {
    let mut rest = bytes;
    while let (Some(length), Some(kind), Some(flags)) = (word(rest, 0), half(rest, 4), half(rest, 6)) {
        let length = length as usize;
        let Some(message) = rest.get(..length).filter(|message| message.len() >= 16) else { break };
        if kind == NLMSG_ERROR {
            match word(message, 16).map_or(0, |code| code as i32) {
                0 => {}
                code => return Err(io::Error::from_raw_os_error(-code)),
            }
        }
        take(kind, flags, message)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(())
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes)
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().ok().map(u16::from_ne_bytes)
}

fn event_of(message: NetlinkMessage<RouteNetlinkMessage>, flags: u16) -> Option<Event> {
    let NetlinkPayload::InnerMessage(message) = message.payload else { return None };
    let route = |message: RouteMessage, is_there: bool| {
        let route = Found::read(message)?.to_followed()?;
        let (is_appended, replaces) = (flags & NLM_F_APPEND != 0, flags & NLM_F_REPLACE != 0);
        Some(Event::Route { route, is_there, is_appended, replaces })
    };
    match message {
        RouteNetlinkMessage::NewRoute(message) => route(message, true),
        RouteNetlinkMessage::DelRoute(message) => route(message, false),
        RouteNetlinkMessage::NewNeighbour(message) => neighbor_of(message).map(Event::Neighbor),
        RouteNetlinkMessage::DelNeighbour(message) => neighbor_of(message).map(Event::NoNeighbor),
        RouteNetlinkMessage::NewLink(message) => device_of(message).map(Event::Device),
        RouteNetlinkMessage::DelLink(message) => Some(Event::NoDevice(message.header.index)),
        RouteNetlinkMessage::NewAddress(_) => Some(Event::Address),
        RouteNetlinkMessage::DelAddress(_) => Some(Event::NoAddress),
        RouteNetlinkMessage::NewRule(message) | RouteNetlinkMessage::DelRule(message) => {
            Some(Event::Rule { is_standard: is_standard(&message) })
        }
        _ => None,
    }
}

/// Whether a rule is one of those that every machine has: all packets look up in `local`, then in `main`, then in
/// `default`.
fn is_standard(message: &RuleMessage) -> bool {
    let header = &message.header;
    let (mut priority, mut table) = (0, u32::from(header.table));
    let is_for_all = (header.dst_len, header.src_len, header.tos) == (0, 0, 0)
        && header.action == RuleAction::ToTable
        && !header.flags.contains(RuleFlags::Invert)
        && message.attributes.iter().all(|attribute| match attribute {
            RuleAttribute::Priority(number) => {
                priority = *number;
                true
            }
            RuleAttribute::Table(number) => {
                table = *number;
                true
            }
            RuleAttribute::Protocol(_) | RuleAttribute::SuppressPrefixLen(u32::MAX) => true,
            _ => false,
        });
    is_for_all && STANDARD_RULES.contains(&(priority, table))
}

/// A next-hop object: struct nhmsg, and attributes (include/uapi/linux/nexthop.h).
fn object_of(message: &[u8], is_there: bool) -> Option<Event> {
    let family = *message.first()?;
    let (mut id, mut interface, mut gateway, mut members) = (None, None, None, None);
    let (mut is_black_hole, mut is_plain) = (false, true);
    let mut rest = message.get(8..)?;
    while let (Some(length), Some(kind)) = (half(rest, 0), half(rest, 2)) {
        let Some(value) = rest.get(4..usize::from(length)) else { break };
        match kind & 0x3fff {
            1 => id = word(value, 0),
            2 => {
                let member = |entry: &[u8]| {
                    let weight = u16::from(*entry.get(4)?) + 1 + (u16::from(*entry.get(5)?) << 8);
                    Some((word(entry, 0)?, weight))
                };
                members = Some(value.chunks_exact(8).filter_map(member).collect::<Vec<_>>());
            }
            // A group that is resilient, an encapsulation, an entry of a bridge.
            3 => is_plain &= half(value, 0) == Some(0),
            7 | 8 | 11 => is_plain = false,
            4 => is_black_hole = true,
            5 => interface = word(value, 0),
            6 => gateway = address(family, value),
            _ => {}
        }
        rest = rest.get(usize::from(length).next_multiple_of(4)..).unwrap_or_default();
    }
    let object = match (members, interface) {
        _ if !is_plain => Object::Way(Way::Kernel),
        (Some(members), _) => Object::Group(members),
        _ if is_black_hole => Object::Way(Way::BlackHole),
        (None, Some(interface)) => Object::Way(Way::Legs(vec![(Leg { interface, gateway }, 1)])),
        _ => Object::Way(Way::Kernel),
    };
    Some(Event::Object(id?, is_there.then_some(object)))
}

fn address(family: u8, bytes: &[u8]) -> Option<IpAddr> {
    match family {
        2 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        10 => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_changes_each_time_is_an_error_and_one_that_is_whole_at_last_is_not() {
        let mut reads = 0;
        let mut read = |whole_at| {
            reads = 0;
            read_whole("routes", || {
                reads += 1;
                Ok(reads == whole_at)
            })
        };
        assert!(read(MAX_LISTINGS).is_ok());
        let error = read(MAX_LISTINGS + 1).unwrap_err();
        assert_eq!(error.to_string(), "the kernel's list of routes has changed each time that it was read");
        assert_eq!(reads, MAX_LISTINGS);
    }
}
