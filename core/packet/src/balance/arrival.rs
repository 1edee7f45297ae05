//! What a balancer reads of a packet: `read_flow` of packet/bpf/flow.h.

use std::net::IpAddr;

use super::SteerReason;
use crate::parse::{Flow, ICMP, ICMPV6, TCP, Tcp, UDP, bytes, word};

/// Where IP starts in a frame without tags.
pub(super) const IP_OFFSET: usize = 14;
/// The next header of fragments of IPv6.
const FRAGMENT: u8 = 44;
/// Bytes of a header of ICMP.
const ICMP_BYTES: usize = 8;

/// A packet to a virtual address, or to an egress address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// The flow, from the client. An error of ICMP has that of the packet inside, turned around.
    pub flow: Flow,
    /// Whether it is a fragment.
    pub is_fragment: bool,
    /// Whether it is a fragment that is not the first.
    pub is_later_fragment: bool,
    /// Whether it is an error of ICMP.
    pub is_error: bool,
    /// Whether it is an echo request.
    pub is_echo: bool,
    /// The flags of TCP.
    pub flags: u8,
    /// Bytes of the packet with its header of IP.
    pub length: u16,
    /// Where the payload starts in the frame.
    pub payload: usize,
    /// The type of service, or the traffic class.
    pub tos: u8,
}

impl Arrival {
    /// Reads a frame without tags whose header of IP is right, and has no options.
    ///
    /// # Errors
    /// The rest cannot be read.
    pub fn read(frame: &[u8]) -> Result<Self, SteerReason> {
        let mut arrival = match frame.get(IP_OFFSET).map(|byte| byte >> 4) {
            Some(4) => Self::of_v4(frame),
            _ => Self::of_v6(frame),
        }
        .ok_or(SteerReason::Truncated)?;
        if arrival.is_fragment {
            return Ok(arrival);
        }
        let is_icmp = arrival.flow.protocol == if arrival.flow.source.is_ipv4() { ICMP } else { ICMPV6 };
        match arrival.flow.protocol {
            TCP | UDP => arrival.read_ports(frame).ok_or(SteerReason::Truncated)?,
            _ if is_icmp => arrival.read_icmp(frame)?,
            _ => {}
        }
        Ok(arrival)
    }

    /// Whether it begins a connection of TCP.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.flow.protocol == TCP && !self.is_error && self.flags & (Tcp::SYN | Tcp::ACK) == Tcp::SYN
    }

    fn new(source: IpAddr, destination: IpAddr, protocol: u8, length: u16, payload: usize, tos: u8) -> Self {
        let flow = Flow { source, destination, protocol, source_port: 0, destination_port: 0 };
        let (is_fragment, is_later_fragment, is_error, is_echo) = (false, false, false, false);
        Self { flow, is_fragment, is_later_fragment, is_error, is_echo, flags: 0, length, payload, tos }
    }

    fn of_v4(frame: &[u8]) -> Option<Self> {
        let header: [u8; 20] = bytes(frame, IP_OFFSET)?;
        let (source, destination) = (bytes::<4>(&header, 12)?, bytes::<4>(&header, 16)?);
        let fields = word(&header, 6)?;
        let payload = IP_OFFSET + 20;
        let arrival = Self::new(source.into(), destination.into(), header[9], word(&header, 2)?, payload, header[1]);
        Some(Self { is_fragment: fields & 0x3fff != 0, is_later_fragment: fields & 0x1fff != 0, ..arrival })
    }

    fn of_v6(frame: &[u8]) -> Option<Self> {
        let header: [u8; 40] = bytes(frame, IP_OFFSET)?;
        let (source, destination) = (bytes::<16>(&header, 8)?, bytes::<16>(&header, 24)?);
        let payload = IP_OFFSET + 40;
        let length = word(&header, 4)?.wrapping_add(40);
        let tos = (word(&header, 0)? >> 4 & 0xff) as u8;
        let mut arrival = Self::new(source.into(), destination.into(), header[6], length, payload, tos);
        if header[6] == FRAGMENT {
            let fragment: [u8; 8] = bytes(frame, payload)?;
            arrival.flow.protocol = fragment[0];
            arrival.is_fragment = true;
            arrival.is_later_fragment = fragment[2] != 0 || fragment[3] & 0xf8 != 0;
        }
        Some(arrival)
    }

    fn read_ports(&mut self, frame: &[u8]) -> Option<()> {
        (self.flow.source_port, self.flow.destination_port) =
            (word(frame, self.payload)?, word(frame, self.payload + 2)?);
        if self.flow.protocol == TCP {
            self.flags = bytes::<20>(frame, self.payload)?[13];
        }
        Some(())
    }

    fn read_icmp(&mut self, frame: &[u8]) -> Result<(), SteerReason> {
        let header: [u8; ICMP_BYTES] = bytes(frame, self.payload).ok_or(SteerReason::Truncated)?;
        let is_v4 = self.flow.source.is_ipv4();
        let identifier = u16::from_be_bytes([header[4], header[5]]);
        match (is_v4, header[0]) {
            (true, 8) | (false, 128) => self.is_echo = true,
            (true, 0) | (false, 129) => self.flow.destination_port = identifier,
            (true, 3 | 11 | 12) | (false, 1..=4) => {
                self.is_error = true;
                let quoted = if is_v4 { self.quote_v4(frame) } else { self.quote_v6(frame) };
                return quoted.ok_or(SteerReason::Malformed);
            }
            _ => {}
        }
        Ok(())
    }

    fn quote_v4(&mut self, frame: &[u8]) -> Option<()> {
        let at = self.payload + ICMP_BYTES;
        let quote: [u8; 24] = bytes(frame, at)?;
        let is_whole = quote[0] == 0x45 && word(&quote, 6)? & 0x1fff == 0;
        let (source, destination) = (IpAddr::from(bytes::<4>(&quote, 12)?), IpAddr::from(bytes::<4>(&quote, 16)?));
        self.take_quote(quote[9], source, destination, [word(&quote, 20)?, word(&quote, 22)?]).filter(|()| is_whole)
    }

    fn quote_v6(&mut self, frame: &[u8]) -> Option<()> {
        let at = self.payload + ICMP_BYTES;
        let quote: [u8; 44] = bytes(frame, at)?;
        let (source, destination) = (IpAddr::from(bytes::<16>(&quote, 8)?), IpAddr::from(bytes::<16>(&quote, 24)?));
        let is_whole = quote[0] >> 4 == 6;
        self.take_quote(quote[6], source, destination, [word(&quote, 40)?, word(&quote, 42)?]).filter(|()| is_whole)
    }

    /// Turns the flow of the packet around that this side has sent.
    fn take_quote(&mut self, protocol: u8, source: IpAddr, destination: IpAddr, ports: [u16; 2]) -> Option<()> {
        if source != self.flow.destination {
            return None;
        }
        self.flow.source = destination;
        self.flow.protocol = protocol;
        if matches!(protocol, TCP | UDP) {
            (self.flow.source_port, self.flow.destination_port) = (ports[1], ports[0]);
        }
        Some(())
    }
}

/// The number of a server in the destination connection id of a QUIC packet, as QUIC-LB lays it out without a key: the
/// first octet has three bits of configuration, and the number of octets that follow; the next two are the number.
///
/// A long header tells the length of its id, which must agree. `None` for ids that clients have chosen, mostly.
#[must_use]
pub fn quic_server(datagram: &[u8], configuration: u8) -> Option<u16> {
    let start: [u8; 9] = bytes(datagram, 0)?;
    let (octet, high, low) = match start[0] & 0x80 {
        0 => (start[1], start[2], start[3]),
        _ if (start[6] & 31) + 1 == start[5] => (start[6], start[7], start[8]),
        _ => return None,
    };
    (octet >> 5 == configuration && octet & 31 >= 2).then(|| u16::from_be_bytes([high, low]))
}
