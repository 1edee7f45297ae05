//! Frames for tests, built by hand.

use std::net::IpAddr;

use crate::checksum;

/// The parts of a frame.
#[derive(Debug, Clone)]
pub struct Frame {
    /// Tags of VLANs, the outermost first.
    pub tags: Vec<u16>,
    /// The source.
    pub source: IpAddr,
    /// The destination, of the same family.
    pub destination: IpAddr,
    /// The protocol above IP.
    pub protocol: u8,
    /// The time to live, or the hop limit.
    pub hop_limit: u8,
    /// Options of IPv4, or extension headers of IPv6 that end with `protocol`.
    pub extra: Vec<u8>,
    /// The flags and the offset of a fragment in IPv4.
    pub fragment: u16,
    /// The identification of a packet of IPv4.
    pub id: u16,
    /// The next header of IPv6, if extension headers come first.
    pub next_header: Option<u8>,
    /// What follows the header of IP and its options.
    pub segment: Vec<u8>,
    /// Zeros behind the packet.
    pub padding: usize,
}

/// The link address that frames go to.
pub const ROUTER: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// The link address that frames come from.
pub const HOST: [u8; 6] = [2, 0, 0, 0, 0, 9];

impl Frame {
    /// A frame with this segment, whose checksum is filled in.
    ///
    /// # Panics
    /// A text is no address.
    pub fn new(source: &str, destination: &str, protocol: u8, segment: Vec<u8>) -> Self {
        let address = |text: &str| text.parse().unwrap_or_else(|_| panic!("{text:?} is no address"));
        let (source, destination) = (address(source), address(destination));
        let mut frame = Self {
            tags: vec![],
            source,
            destination,
            protocol,
            hop_limit: 64,
            extra: vec![],
            fragment: 0,
            id: 0x1234,
            next_header: None,
            segment,
            padding: 0,
        };
        frame.fill_checksum();
        frame
    }

    /// A datagram of UDP.
    pub fn udp(source: (&str, u16), destination: (&str, u16), payload: &[u8]) -> Self {
        let length = 8 + payload.len() as u16;
        let fields = [source.1, destination.1, length, 0];
        let segment = fields.iter().flat_map(|field| field.to_be_bytes()).chain(payload.iter().copied());
        Self::new(source.0, destination.0, 17, segment.collect())
    }

    /// A segment of TCP.
    pub fn tcp(source: (&str, u16), destination: (&str, u16), flags: u8, payload: &[u8]) -> Self {
        let mut segment = vec![0; 20];
        segment[..2].copy_from_slice(&source.1.to_be_bytes());
        segment[2..4].copy_from_slice(&destination.1.to_be_bytes());
        segment[4..8].copy_from_slice(&[1, 2, 3, 4]);
        segment[12..16].copy_from_slice(&[0x50, flags, 0x20, 0]);
        segment.extend_from_slice(payload);
        Self::new(source.0, destination.0, 6, segment)
    }

    /// The same segment of TCP with these numbers.
    pub fn at(mut self, sequence: u32, acknowledgement: u32) -> Self {
        self.segment[4..8].copy_from_slice(&sequence.to_be_bytes());
        self.segment[8..12].copy_from_slice(&acknowledgement.to_be_bytes());
        self.fill_checksum();
        self
    }

    /// An echo request of ICMP, or the reply.
    pub fn echo(source: &str, destination: &str, is_reply: bool, identifier: u16) -> Self {
        let is_v4 = !source.contains(':');
        let kind = match (is_v4, is_reply) {
            (true, false) => 8,
            (true, true) => 0,
            (false, false) => 128,
            (false, true) => 129,
        };
        let [high, low] = identifier.to_be_bytes();
        let segment = vec![kind, 0, 0, 0, high, low, 0, 1, b'p', b'i', b'n', b'g'];
        Self::new(source, destination, if is_v4 { 1 } else { 58 }, segment)
    }

    /// An ICMP error about a packet, which is given without its Ethernet header.
    pub fn error(source: &str, destination: &str, kind: u8, quoted: &[u8]) -> Self {
        let mut segment = vec![kind, 1, 0, 0, 0, 0, 0, 0];
        segment.extend_from_slice(quoted);
        Self::new(source, destination, if source.contains(':') { 58 } else { 1 }, segment)
    }

    /// Writes the right checksum into the segment.
    pub fn fill_checksum(&mut self) {
        let field = match self.protocol {
            6 => 16,
            17 => 6,
            1 | 58 => 2,
            _ => return,
        };
        if self.segment.len() < field + 2 {
            return;
        }
        self.segment[field..field + 2].fill(0);
        let sum = if self.protocol == 1 {
            checksum::full(&self.segment)
        } else {
            checksum::transport(self.source, self.destination, self.protocol, &self.segment)
        };
        let sum = if sum == 0 && self.protocol == 17 { 0xffff } else { sum };
        self.segment[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    }

    /// The bytes of the frame.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = [ROUTER, HOST].concat();
        for (index, tag) in self.tags.iter().enumerate() {
            let is_service = index == 0 && self.tags.len() > 1;
            bytes.extend_from_slice(if is_service { &[0x88, 0xa8] } else { &[0x81, 0] });
            bytes.extend_from_slice(&tag.to_be_bytes());
        }
        bytes.extend_from_slice(if self.source.is_ipv4() { &[8, 0] } else { &[0x86, 0xdd] });
        bytes.extend(self.packet());
        bytes.resize(bytes.len() + self.padding, 0);
        bytes
    }

    /// The bytes from the IP header on.
    pub fn packet(&self) -> Vec<u8> {
        let rest = [self.extra.as_slice(), &self.segment].concat();
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let header_bytes = 20 + self.extra.len();
                let total = (20 + rest.len()) as u16;
                let mut header = vec![0x40 | (header_bytes / 4) as u8, 0];
                header.extend_from_slice(&total.to_be_bytes());
                header.extend_from_slice(&self.id.to_be_bytes());
                header.extend_from_slice(&self.fragment.to_be_bytes());
                header.extend_from_slice(&[self.hop_limit, self.protocol, 0, 0]);
                header.extend_from_slice(&source.octets());
                header.extend_from_slice(&destination.octets());
                header.extend_from_slice(&rest);
                let sum = checksum::full(&header[..header_bytes]);
                header[10..12].copy_from_slice(&sum.to_be_bytes());
                header
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let mut header = vec![0x60, 0, 0, 0];
                header.extend_from_slice(&(rest.len() as u16).to_be_bytes());
                header.extend_from_slice(&[self.next_header.unwrap_or(self.protocol), self.hop_limit]);
                header.extend_from_slice(&source.octets());
                header.extend_from_slice(&destination.octets());
                header.extend_from_slice(&rest);
                header
            }
            _ => panic!("two families"),
        }
    }
}
