//! The translation of a packet.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddrV4},
    time::Duration,
};

use super::{
    Endpoint, Event, Filtering, NatConfig, NatConfigError, Session,
    edit::{self, End},
    sessions::Sessions,
};
use crate::{
    forward::{DropReason, PassReason, Verdict},
    parse::{Fragments, ICMP, Icmp, IcmpMessage, Ip, Packet, Quoted, TCP, Tcp, Transport, UDP, parse},
};

/// A NAT. Time is that since any fixed moment.
#[derive(Debug, Clone)]
pub struct Nat {
    config: NatConfig,
    sessions: Sessions,
    fragments: Fragments<Written>,
}

/// The addresses that a first fragment got.
#[derive(Debug, Clone, Copy)]
struct Written {
    source: Option<Ipv4Addr>,
    destination: Option<Ipv4Addr>,
}

/// Which way a packet goes through a NAT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// The NAT has nothing to do with the packet.
    Untouched,
    /// From inside: the source was replaced.
    Outbound,
    /// From outside: the destination was replaced.
    Inbound,
    /// From inside to an outside address of the inside: both were replaced (RFC 4787, REQ-9).
    Hairpin,
}

/// A translated packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Translation {
    /// The frame after translation.
    pub frame: Vec<u8>,
    /// Which way it goes.
    pub direction: Direction,
}

/// What of a packet the NAT translates.
#[derive(Debug, Clone, Copy)]
enum Subject {
    /// A packet of a session, with its ports and the header of TCP.
    Packet { source: Endpoint, destination: Endpoint, tcp: Option<Tcp>, may_begin: bool },
    /// An ICMP error.
    Error { icmp: Icmp, quoted: Quoted },
}

impl Nat {
    /// A NAT without sessions.
    ///
    /// # Errors
    /// The configuration is wrong.
    pub fn new(config: NatConfig) -> Result<Self, NatConfigError> {
        config.validate()?;
        let sessions = Sessions::new(&config);
        Ok(Self { config, sessions, fragments: Fragments::default() })
    }

    /// Translates a packet, before it is routed. The packet was read from the frame.
    ///
    /// # Errors
    /// The packet is dropped, or is for the kernel.
    pub fn translate(&mut self, frame: &[u8], packet: &Packet, now: Duration) -> Result<Translation, Verdict> {
        let untouched = || Ok(Translation { frame: frame.to_vec(), direction: Direction::Untouched });
        let Some((ip, source, destination)) = ipv4(packet) else { return untouched() };
        // The sources that the NAT writes are of nobody outside: a stranger would be taken for a hairpin.
        if self.config.is_external(source) {
            return Err(Verdict::Drop(DropReason::MartianSource));
        }
        let to_external = self.config.is_external(destination);
        let from_inside = self.is_from_inside(packet, source);
        let leaves = from_inside && (to_external || !self.config.is_inside(destination));
        if !to_external && !leaves {
            return untouched();
        }
        let direction = match (leaves, to_external) {
            (true, true) => Direction::Hairpin,
            (true, false) => Direction::Outbound,
            (false, _) => Direction::Inbound,
        };
        let mut frame = frame.to_vec();
        if ip.fragment.is_some_and(|fragment| fragment.offset != 0) {
            self.later_fragment(&mut frame, packet, ip, (leaves, to_external), now)?;
            return Ok(Translation { frame, direction });
        }
        let subject = subject(packet, ip, source, destination)?;
        match direction {
            Direction::Hairpin => self.hairpin(&mut frame, ip, subject, now)?,
            Direction::Outbound => self.outbound(&mut frame, ip, subject, now)?,
            Direction::Inbound | Direction::Untouched => self.inbound(&mut frame, ip, subject, now)?,
        }
        if let Some((_, source, destination)) = parse(&frame).ok().as_ref().and_then(ipv4) {
            let written = Written { source: leaves.then_some(source), destination: to_external.then_some(destination) };
            self.fragments.remember(packet, written, now);
        }
        Ok(Translation { frame, direction })
    }

    /// Translates a fragment after the first, which has no ports: it gets the addresses of the first.
    fn later_fragment(
        &self,
        frame: &mut [u8],
        packet: &Packet,
        ip: &Ip,
        (leaves, to_external): (bool, bool),
        now: Duration,
    ) -> Result<(), Verdict> {
        let written = self.fragments.recall(packet, now);
        let written = written
            .filter(|written| written.source.is_some() == leaves && written.destination.is_some() == to_external)
            .ok_or(Verdict::Pass(PassReason::NatFragment))?;
        for (end, address) in [(End::Source, written.source), (End::Destination, written.destination)] {
            if let Some(address) = address {
                edit::address(frame, ip, end, Endpoint { protocol: ip.protocol, address, port: 0 });
            }
        }
        Ok(())
    }

    fn hairpin(&mut self, frame: &mut [u8], ip: &Ip, subject: Subject, now: Duration) -> Result<(), Verdict> {
        // The packet must not begin a session with an address that leads nowhere.
        if let Subject::Packet { destination, .. } = subject {
            self.sessions.inside_of(destination, now).ok_or(Verdict::Pass(PassReason::NatNoMapping))?;
        }
        self.outbound(frame, ip, subject, now)?;
        let packet = parse(frame).map_err(|malformed| Verdict::Drop(DropReason::Malformed(malformed)))?;
        let Some((ip, source, destination)) = ipv4(&packet) else { return Ok(()) };
        let subject = self::subject(&packet, ip, source, destination)?;
        self.inbound(frame, ip, subject, now)
    }

    /// Ends the sessions whose time is over. Returns their number.
    pub fn expire(&mut self, now: Duration) -> usize {
        self.sessions.expire(now)
    }

    /// The next entry for the log of sessions.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.sessions.poll_event()
    }

    /// Number of events that were lost, because nobody polled.
    #[must_use]
    pub fn lost_events(&self) -> u64 {
        self.sessions.lost_events()
    }

    /// Every session, in no order; ended ones too, until [`Nat::expire`] removes them.
    pub fn sessions(&self) -> impl Iterator<Item = &Session> {
        self.sessions.iter()
    }

    /// Number of sessions.
    #[must_use]
    pub fn session_count(&self) -> usize {
        self.sessions.count()
    }

    /// Number of sessions of an inside address, whoever has begun them.
    #[must_use]
    pub fn sessions_of(&self, user: Ipv4Addr) -> usize {
        self.sessions.of_user(user, true) + self.sessions.of_user(user, false)
    }

    /// Whether the source is inside: in an inside network, or the end of a forwarded port.
    fn is_from_inside(&self, packet: &Packet, source: Ipv4Addr) -> bool {
        if self.config.is_inside(source) {
            return true;
        }
        let end = |protocol, port| Endpoint { protocol, address: source, port };
        match packet.transport {
            Transport::Tcp(tcp) => self.sessions.is_forwarded(end(TCP, tcp.source)),
            Transport::Udp(udp) => self.sessions.is_forwarded(end(UDP, udp.source)),
            Transport::Icmp(Icmp { message: IcmpMessage::Error(quoted), .. }) => {
                quoted.ip.destination == IpAddr::V4(source)
                    && self.sessions.is_forwarded(end(quoted.ip.protocol, quoted.destination))
            }
            _ => false,
        }
    }

    fn outbound(&mut self, frame: &mut [u8], ip: &Ip, subject: Subject, now: Duration) -> Result<(), Verdict> {
        match subject {
            Subject::Packet { source, destination, tcp, may_begin } => {
                let remote = remote(destination);
                if self.sessions.live(source, remote, now).is_none() {
                    if !may_begin {
                        return Err(Verdict::Drop(DropReason::NatNoSession));
                    }
                    self.sessions.begin(&self.config, source, remote, true, tcp, now)?;
                }
                let session = self.sessions.refresh(&self.config, (source, remote), tcp, true, now);
                let session = session.ok_or(Verdict::Drop(DropReason::NatNoSession))?;
                edit::packet(frame, ip, End::Source, session.external);
            }
            Subject::Error { icmp, quoted } => {
                // The quoted packet came in: its destination is inside, its source is the peer.
                let (peer, inside) = quoted_ends(&quoted)?;
                let session = self.sessions.live(inside, remote(peer), now);
                let external = session.ok_or(Verdict::Drop(DropReason::NatNoSession))?.external;
                edit::quoted(frame, icmp.offset, &quoted, End::Destination, external);
                edit::address(frame, ip, End::Source, external);
            }
        }
        Ok(())
    }

    fn inbound(&mut self, frame: &mut [u8], ip: &Ip, subject: Subject, now: Duration) -> Result<(), Verdict> {
        match subject {
            Subject::Packet { source, destination, tcp, may_begin } => {
                let found = self.sessions.inside_of(destination, now);
                let (inside, is_forward) = found.ok_or(Verdict::Pass(PassReason::NatNoMapping))?;
                let remote = remote(source);
                if self.sessions.live(inside, remote, now).is_none() {
                    let is_open = is_forward || self.config.filtering == Filtering::EndpointIndependent;
                    if !is_open || inside.protocol == ICMP {
                        return Err(Verdict::Drop(DropReason::NatFiltered));
                    }
                    if !may_begin {
                        return Err(Verdict::Drop(DropReason::NatNoSession));
                    }
                    self.sessions.begin(&self.config, inside, remote, false, tcp, now)?;
                }
                self.sessions.refresh(&self.config, (inside, remote), tcp, false, now);
                edit::packet(frame, ip, End::Destination, inside);
            }
            Subject::Error { icmp, quoted } => {
                // The quoted packet went out: its source is a mapping.
                let (external, peer) = quoted_ends(&quoted)?;
                let found = self.sessions.inside_of(external, now);
                let (inside, _) = found.ok_or(Verdict::Pass(PassReason::NatNoMapping))?;
                self.sessions.live(inside, remote(peer), now).ok_or(Verdict::Drop(DropReason::NatNoSession))?;
                edit::quoted(frame, icmp.offset, &quoted, End::Source, inside);
                edit::address(frame, ip, End::Destination, inside);
            }
        }
        Ok(())
    }
}

fn ipv4(packet: &Packet) -> Option<(&Ip, Ipv4Addr, Ipv4Addr)> {
    let ip = packet.ip.as_ref()?;
    match (ip.source, ip.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => Some((ip, source, destination)),
        _ => None,
    }
}

/// What is translated of a packet that concerns the NAT.
fn subject(packet: &Packet, ip: &Ip, source: Ipv4Addr, destination: Ipv4Addr) -> Result<Subject, Verdict> {
    let protocol = ip.protocol;
    let ends = |from, to, tcp, may_begin| {
        let source = Endpoint { protocol, address: source, port: from };
        let destination = Endpoint { protocol, address: destination, port: to };
        Ok(Subject::Packet { source, destination, tcp, may_begin })
    };
    match packet.transport {
        Transport::Tcp(tcp) => {
            // The answer to a beginning begins nothing: that one may be over.
            let is_answer = tcp.flags & (Tcp::SYN | Tcp::ACK) == Tcp::SYN | Tcp::ACK;
            ends(tcp.source, tcp.destination, Some(tcp), tcp.flags & Tcp::RST == 0 && !is_answer)
        }
        Transport::Udp(udp) => ends(udp.source, udp.destination, None, true),
        Transport::Icmp(icmp) => match icmp.message {
            IcmpMessage::EchoRequest(identifier) => ends(identifier, 0, None, true),
            IcmpMessage::EchoReply(identifier) => ends(0, identifier, None, false),
            IcmpMessage::Error(quoted) => Ok(Subject::Error { icmp, quoted }),
            IcmpMessage::Other => Err(Verdict::Pass(PassReason::NatProtocol)),
        },
        Transport::Malformed(malformed) => Err(Verdict::Drop(DropReason::Malformed(malformed))),
        Transport::LaterFragment => Err(Verdict::Pass(PassReason::NatFragment)),
        Transport::Other => Err(Verdict::Pass(PassReason::NatProtocol)),
    }
}

/// Source and destination of a quoted packet. Of an echo request the destination has the port 0, of a reply the source.
fn quoted_ends(quoted: &Quoted) -> Result<(Endpoint, Endpoint), Verdict> {
    let ip = &quoted.ip;
    let is_known = matches!(ip.protocol, TCP | UDP | ICMP) && ip.fragment.is_none_or(|fragment| fragment.offset == 0);
    match (ip.source, ip.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) if is_known => {
            let end = |address, port| Endpoint { protocol: ip.protocol, address, port };
            Ok((end(source, quoted.source), end(destination, quoted.destination)))
        }
        _ => Err(Verdict::Pass(PassReason::NatProtocol)),
    }
}

fn remote(endpoint: Endpoint) -> SocketAddrV4 {
    // The identifier of an echo message belongs to one side alone.
    let port = if endpoint.protocol == ICMP { 0 } else { endpoint.port };
    SocketAddrV4::new(endpoint.address, port)
}
