//! The grammar of filters: words into tests.

use std::{net::IpAddr, ops::RangeInclusive};

use ipnet::{IpNet, Ipv4Net};

use super::{
    FilterError, Glance,
    filter::{MAX_DEPTH, Op},
};
use crate::parse::{ICMP, ICMPV6, Mac, TCP, UDP};

const ETHERTYPE_ARP: u16 = 0x0806;
const PRIMITIVE: &str = "host, net, port, portrange, proto, src, dst, ip, ip6, arp, tcp, udp, sctp, icmp, icmp6, ether, \
                         vlan, less or greater";
const ADDRESS: &str = "an address (names are not looked up)";
const PORT: &str = "the number of a port";
const PORTS: &str = "a range of ports such as 1000-2000";
const NET: &str = "a network such as 192.0.2.0/24";
const MAC: &str = "an address such as 02:00:5e:10:00:01";
const NUMBER: &str = "a number";

/// A question to a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Test {
    /// The type of the frame, behind its tags.
    EtherType(u16),
    /// The protocol above IP.
    Protocol(u8),
    /// ICMP of one family.
    Icmp { is_v6: bool },
    /// Any VLAN, or this one.
    Vlan(Option<u16>),
    /// An address of IP.
    Net(Side, IpNet),
    /// Ports, of one protocol or any.
    Ports(Side, Option<u8>, RangeInclusive<u16>),
    /// An address of the link.
    Mac(Side, Mac),
    /// At most this length.
    Less(u32),
    /// At least this length.
    Greater(u32),
}

/// Which end of a packet is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Side {
    Source,
    Destination,
    #[default]
    Either,
    Both,
}

impl Side {
    fn is_true<T>(self, (source, destination): (T, T), test: impl Fn(T) -> bool) -> bool {
        match self {
            Self::Source => test(source),
            Self::Destination => test(destination),
            Self::Either => test(source) || test(destination),
            Self::Both => test(source) && test(destination),
        }
    }
}

impl Test {
    pub(super) fn is_true(&self, glance: &Glance, length: u32) -> bool {
        let ip = glance.ip.as_ref();
        match self {
            Self::EtherType(wanted) => glance.ethernet.ether_type == *wanted,
            Self::Protocol(wanted) => ip.is_some_and(|ip| ip.protocol == *wanted),
            Self::Icmp { is_v6 } => glance.is_icmp() && glance.is_v6() == *is_v6,
            Self::Vlan(None) => glance.ethernet.tags.outer.is_some(),
            Self::Vlan(wanted) => glance.ethernet.tags.outer == *wanted || glance.ethernet.tags.inner == *wanted,
            Self::Net(side, net) => {
                ip.is_some_and(|ip| side.is_true((ip.source, ip.destination), |address: IpAddr| net.contains(&address)))
            }
            Self::Ports(side, protocol, range) => {
                ip.is_some_and(|ip| protocol.is_none_or(|protocol| protocol == ip.protocol))
                    && glance.ports.is_some_and(|ports| side.is_true(ports, |port| range.contains(&port)))
            }
            Self::Mac(side, wanted) => {
                side.is_true((glance.ethernet.source, glance.ethernet.destination), |mac| mac == *wanted)
            }
            Self::Less(most) => length <= *most,
            Self::Greater(least) => length >= *least,
        }
    }
}

/// What a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Host,
    Net,
    Port,
    PortRange,
    Protocol,
}

/// The words before a value; a value alone takes those of the value before.
#[derive(Debug, Clone, Copy, Default)]
struct Qualifiers {
    protocol: Option<&'static str>,
    side: Side,
    kind: Option<Kind>,
}

struct Words<'a> {
    words: Vec<(usize, &'a str)>,
    next: usize,
    last: Qualifiers,
    ops: Vec<Op>,
}

/// Reads an expression into its steps.
pub(super) fn read(text: &str) -> Result<Vec<Op>, FilterError> {
    let mut words = Words { words: split(text), next: 0, last: Qualifiers::default(), ops: Vec::new() };
    if words.words.is_empty() {
        return Ok(Vec::new());
    }
    words.chain(0)?;
    match words.peek() {
        None => Ok(words.ops),
        Some(_) => Err(words.unexpected("and, or, or the end")),
    }
}

/// The words with their places. Parentheses and signs are words without spaces around.
fn split(text: &str) -> Vec<(usize, &str)> {
    let mut words = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| !c.is_whitespace()) {
        rest = &rest[start..];
        let length = ["&&", "||"].iter().find(|sign| rest.starts_with(**sign)).map_or_else(
            || match rest.find(|c: char| c.is_whitespace() || "()!&|".contains(c)) {
                Some(0) => rest.chars().next().map_or(1, char::len_utf8),
                Some(end) => end,
                None => rest.len(),
            },
            |sign| sign.len(),
        );
        words.push((text[..text.len() - rest.len()].chars().count() + 1, &rest[..length]));
        rest = &rest[length..];
    }
    words
}

impl<'a> Words<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.words.get(self.next).map(|(_, word)| *word)
    }

    fn take(&mut self, wanted: &[&str]) -> bool {
        let is_there = self.peek().is_some_and(|word| wanted.contains(&word));
        self.next += usize::from(is_there);
        is_there
    }

    fn unexpected(&self, wanted: &'static str) -> FilterError {
        match self.words.get(self.next) {
            Some((at, found)) => FilterError::Unexpected { found: (*found).to_owned(), at: *at, wanted },
            None => FilterError::Ended(wanted),
        }
    }

    /// The value of the next word.
    fn value<T>(&mut self, wanted: &'static str, read: impl Fn(&str) -> Option<T>) -> Result<T, FilterError> {
        let value = self.peek().and_then(read).ok_or_else(|| self.unexpected(wanted))?;
        self.next += 1;
        Ok(value)
    }

    fn chain(&mut self, depth: usize) -> Result<(), FilterError> {
        self.term(depth)?;
        loop {
            let op = if self.take(&["and", "&&"]) {
                Op::And
            } else if self.take(&["or", "||"]) {
                Op::Or
            } else {
                return Ok(());
            };
            self.term(depth)?;
            self.ops.push(op);
        }
    }

    fn term(&mut self, depth: usize) -> Result<(), FilterError> {
        if depth == MAX_DEPTH {
            return Err(FilterError::TooDeep);
        }
        if self.take(&["not", "!"]) {
            self.term(depth + 1)?;
            self.ops.push(Op::Not);
            return Ok(());
        }
        if self.take(&["("]) {
            self.chain(depth + 1)?;
            return if self.take(&[")"]) { Ok(()) } else { Err(self.unexpected("and, or, or a parenthesis")) };
        }
        self.primitive()
    }

    fn primitive(&mut self) -> Result<(), FilterError> {
        if self.take(&["vlan"]) {
            let vid = self.peek().and_then(|word| word.parse().ok()).filter(|vid| *vid < 4096);
            self.next += usize::from(vid.is_some());
            self.ops.push(Op::Test(Test::Vlan(vid)));
            return Ok(());
        }
        for word in ["less", "greater"] {
            if self.take(&[word]) {
                let number = self.value(NUMBER, |word| word.parse().ok())?;
                self.ops.push(Op::Test(if word == "less" { Test::Less(number) } else { Test::Greater(number) }));
                return Ok(());
            }
        }
        let mut own = Qualifiers::default();
        let before = self.next;
        let protocols = ["ip", "ip6", "arp", "tcp", "udp", "sctp", "icmp", "icmp6", "ether"];
        own.protocol = protocols.into_iter().find(|word| self.take(&[word]));
        let side = self.side();
        own.side = side.unwrap_or_default();
        let kinds = [
            ("host", Kind::Host),
            ("net", Kind::Net),
            ("port", Kind::Port),
            ("portrange", Kind::PortRange),
            ("proto", Kind::Protocol),
        ];
        own.kind = kinds.into_iter().find(|(word, _)| self.take(&[word])).map(|(_, kind)| kind);
        match own.protocol {
            Some(protocol) if side.is_none() && own.kind.is_none() && protocol != "ether" => {
                self.ops.push(Op::Test(bare(protocol)));
                return Ok(());
            }
            _ => {}
        }
        if self.next == before {
            // A value alone: `port 80 or 443`.
            let is_value =
                self.peek().is_some_and(|word| word.starts_with(|c: char| c.is_ascii_hexdigit() || c == ':'));
            if self.last.kind.is_none()
                && !self.peek().is_some_and(|word| address(word).is_some() || net(word).is_some())
                || !is_value
            {
                return Err(self.unexpected(PRIMITIVE));
            }
            own = self.last;
        }
        self.last = own;
        self.valued(own)
    }

    /// `src`, `dst`, `src or dst`, `src and dst`.
    fn side(&mut self) -> Option<Side> {
        let second = |words: &Self| words.words.get(words.next + 1).map(|(_, word)| *word);
        let (side, other) = if self.take(&["src"]) {
            (Side::Source, "dst")
        } else if self.take(&["dst"]) {
            (Side::Destination, "src")
        } else {
            return None;
        };
        if second(self) == Some(other) {
            if self.take(&["or", "||"]) {
                self.next += 1;
                return Some(Side::Either);
            }
            if self.take(&["and", "&&"]) {
                self.next += 1;
                return Some(Side::Both);
            }
        }
        Some(side)
    }

    /// A value with its qualifiers.
    fn valued(&mut self, own: Qualifiers) -> Result<(), FilterError> {
        let Qualifiers { protocol, side, kind } = own;
        if protocol == Some("ether") {
            return match kind {
                None | Some(Kind::Host) => {
                    let wanted = self.value(MAC, mac)?;
                    self.ops.push(Op::Test(Test::Mac(side, wanted)));
                    Ok(())
                }
                Some(Kind::Protocol) => {
                    let wanted = self.value(NUMBER, ether_type)?;
                    self.ops.push(Op::Test(Test::EtherType(wanted)));
                    Ok(())
                }
                Some(kind) => Err(FilterError::Apart("ether", name(kind))),
            };
        }
        let kind = match kind {
            Some(kind) => kind,
            None if self.peek().is_some_and(|word| word.contains('/')) => Kind::Net,
            None => Kind::Host,
        };
        match kind {
            Kind::Host => {
                let net = IpNet::from(self.value(ADDRESS, address)?);
                self.network(side, protocol, net)
            }
            Kind::Net => {
                let (text, net) = self.value(NET, |word| net(word).map(|net| (word.to_owned(), net)))?;
                if net.network() != net.addr() {
                    return Err(FilterError::HostBits(text, net.trunc()));
                }
                self.network(side, protocol, net)
            }
            Kind::Port | Kind::PortRange => {
                let number = match protocol {
                    None | Some("ip" | "ip6") => None,
                    Some("tcp") => Some(TCP),
                    Some("udp") => Some(UDP),
                    Some("sctp") => Some(132),
                    Some(other) => return Err(FilterError::Apart(other, name(kind))),
                };
                let range = if kind == Kind::Port {
                    self.value(PORT, |word| word.parse().ok().map(|port: u16| port..=port))?
                } else {
                    self.value(PORTS, range)?
                };
                self.ops.push(Op::Test(Test::Ports(side, number, range)));
                self.family(protocol);
                Ok(())
            }
            Kind::Protocol => {
                if !matches!(protocol, None | Some("ip" | "ip6")) {
                    return Err(FilterError::Apart(protocol.unwrap_or_default(), "proto"));
                }
                let number = self.value("tcp, udp, icmp, icmp6, sctp, or a number up to 255", ip_protocol)?;
                self.ops.push(Op::Test(Test::Protocol(number)));
                self.family(protocol);
                Ok(())
            }
        }
    }

    fn network(&mut self, side: Side, protocol: Option<&'static str>, net: IpNet) -> Result<(), FilterError> {
        let is_v4 = matches!(net, IpNet::V4(_));
        match protocol {
            Some(word @ ("ip" | "icmp")) if !is_v4 => {
                return Err(FilterError::OtherFamily(word, net.addr().to_string()));
            }
            Some(word @ ("ip6" | "icmp6")) if is_v4 => {
                return Err(FilterError::OtherFamily(word, net.addr().to_string()));
            }
            Some("arp") => return Err(FilterError::Apart("arp", "an address")),
            _ => {}
        }
        self.ops.push(Op::Test(Test::Net(side, net)));
        if let Some(word @ ("tcp" | "udp" | "sctp" | "icmp" | "icmp6")) = protocol {
            self.ops.push(Op::Test(bare(word)));
            self.ops.push(Op::And);
        }
        Ok(())
    }

    /// Only one family, if the qualifier says so.
    fn family(&mut self, protocol: Option<&'static str>) {
        if let Some(word @ ("ip" | "ip6")) = protocol {
            self.ops.push(Op::Test(bare(word)));
            self.ops.push(Op::And);
        }
    }
}

/// The test of a protocol's word alone.
fn bare(protocol: &str) -> Test {
    match protocol {
        "ip" => Test::EtherType(0x0800),
        "ip6" => Test::EtherType(0x86dd),
        "arp" => Test::EtherType(ETHERTYPE_ARP),
        "tcp" => Test::Protocol(TCP),
        "udp" => Test::Protocol(UDP),
        "sctp" => Test::Protocol(132),
        other => Test::Icmp { is_v6: other == "icmp6" },
    }
}

fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Host => "host",
        Kind::Net => "net",
        Kind::Port => "port",
        Kind::PortRange => "portrange",
        Kind::Protocol => "proto",
    }
}

fn address(word: &str) -> Option<IpAddr> {
    word.parse().ok()
}

/// A network with its length, an address, or the first bytes of an address of IPv4: `10`, `192.168`.
fn net(word: &str) -> Option<IpNet> {
    if let Ok(net) = word.parse() {
        return Some(net);
    }
    if let Some(address) = address(word) {
        return Some(address.into());
    }
    let bytes: Vec<u8> = word.split('.').map(|byte| byte.parse().ok()).collect::<Option<_>>()?;
    let mut octets = [0; 4];
    octets.get_mut(..bytes.len()).filter(|_| bytes.len() < 4)?.copy_from_slice(&bytes);
    Ipv4Net::new(octets.into(), bytes.len() as u8 * 8).ok().map(IpNet::V4)
}

fn range(word: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = word.split_once('-')?;
    let range = first.parse().ok()?..=last.parse().ok()?;
    (!range.is_empty()).then_some(range)
}

fn mac(word: &str) -> Option<Mac> {
    let mut bytes = [0; 6];
    let mut parts = word.split(':');
    for byte in &mut bytes {
        *byte = parts.next().filter(|part| part.len() <= 2).and_then(|part| u8::from_str_radix(part, 16).ok())?;
    }
    parts.next().is_none().then_some(bytes)
}

fn ether_type(word: &str) -> Option<u16> {
    match (word, word.strip_prefix("0x")) {
        ("ip", _) => Some(0x0800),
        ("ip6", _) => Some(0x86dd),
        ("arp", _) => Some(ETHERTYPE_ARP),
        (_, Some(digits)) => u16::from_str_radix(digits, 16).ok(),
        _ => word.parse().ok(),
    }
}

fn ip_protocol(word: &str) -> Option<u8> {
    match word.trim_start_matches('\\') {
        "icmp" => Some(ICMP),
        "icmp6" => Some(ICMPV6),
        "tcp" => Some(TCP),
        "udp" => Some(UDP),
        "sctp" => Some(132),
        number => number.parse().ok(),
    }
}
