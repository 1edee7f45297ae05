//! The parts of a packet that the data path reads.

use std::net::IpAddr;

use super::Malformed;

/// An address of Ethernet.
pub type Mac = [u8; 6];

/// A packet in an Ethernet frame. All offsets count from the first byte of the frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet {
    /// The link layer.
    pub ethernet: Ethernet,
    /// The IP header; `None` if the frame has another protocol.
    pub ip: Option<Ip>,
    /// What the IP packet has.
    pub transport: Transport,
}

/// An Ethernet header with its tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ethernet {
    /// Destination address.
    pub destination: Mac,
    /// Source address.
    pub source: Mac,
    /// VLAN tags, the outer one first.
    pub tags: Tags,
    /// Whether the outer tag is one of 802.1ad.
    pub is_service: bool,
    /// Type behind the tags.
    pub ether_type: u16,
    /// Bytes of the header with its tags: 14, 18 or 22.
    pub bytes: usize,
}

/// Up to two VLAN tags (IEEE 802.1Q, 802.1ad).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Tags {
    /// The outer VLAN.
    pub outer: Option<u16>,
    /// The inner VLAN; `None` without an outer one.
    pub inner: Option<u16>,
}

impl Tags {
    /// One tag.
    #[must_use]
    pub fn one(vlan: u16) -> Self {
        Self { outer: Some(vlan), inner: None }
    }

    /// Number of tags.
    #[must_use]
    pub fn count(self) -> usize {
        usize::from(self.outer.is_some()) + usize::from(self.inner.is_some())
    }
}

/// An IPv4 or IPv6 header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ip {
    /// Where the header starts.
    pub offset: usize,
    /// Bytes of the header with options or extension headers, as far as they could be read.
    pub header_bytes: usize,
    /// Bytes of the packet with the header, as the header says.
    pub total_bytes: usize,
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Protocol of the payload, behind extension headers.
    pub protocol: u8,
    /// Time to live or hop limit.
    pub hop_limit: u8,
    /// The fragment header or fields, if the packet is a fragment.
    pub fragment: Option<Fragment>,
    /// Whether routers have to look at options: IPv4 options, or hop-by-hop options of IPv6.
    pub has_router_options: bool,
}

impl Ip {
    /// Where the payload starts.
    #[must_use]
    pub fn payload(&self) -> usize {
        self.offset + self.header_bytes
    }

    /// Where the packet ends; padding of the frame may follow.
    #[must_use]
    pub fn end(&self) -> usize {
        self.offset + self.total_bytes
    }
}

/// The place of a fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fragment {
    /// Offset of its payload in bytes.
    pub offset: u32,
    /// Whether more fragments follow.
    pub has_more: bool,
    /// The identification, which all fragments of a packet have.
    pub id: u32,
}

/// The payload of an IP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// TCP.
    Tcp(Tcp),
    /// UDP.
    Udp(Udp),
    /// ICMP or ICMPv6.
    Icmp(Icmp),
    /// A fragment that is not the first: it has no ports.
    LaterFragment,
    /// Another protocol, or no IP packet.
    Other,
    /// The payload cannot be read. A router forwards it; what needs ports does not.
    Malformed(Malformed),
}

/// A TCP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tcp {
    /// Where the header starts.
    pub offset: usize,
    /// Source port.
    pub source: u16,
    /// Destination port.
    pub destination: u16,
    /// The flags, as in the header: [`Tcp::SYN`] and others.
    pub flags: u8,
    /// The number of the first byte.
    pub sequence: u32,
    /// The number of the byte that the sender waits for, with [`Tcp::ACK`].
    pub acknowledgement: u32,
    /// Bytes of data.
    pub length: u32,
}

impl Tcp {
    /// No more data from the sender.
    pub const FIN: u8 = 1;
    /// Begin of a connection.
    pub const SYN: u8 = 2;
    /// Reset of a connection.
    pub const RST: u8 = 4;
    /// Acknowledgement.
    pub const ACK: u8 = 16;
}

/// A UDP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Udp {
    /// Where the header starts.
    pub offset: usize,
    /// Source port.
    pub source: u16,
    /// Destination port.
    pub destination: u16,
    /// The checksum as sent: 0 is none.
    pub checksum: u16,
}

/// An ICMP or ICMPv6 message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Icmp {
    /// Where the message starts.
    pub offset: usize,
    /// Type of the message.
    pub kind: u8,
    /// Code of the message.
    pub code: u8,
    /// What the message is about.
    pub message: IcmpMessage,
}

/// What an ICMP message is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IcmpMessage {
    /// An echo request with its identifier.
    EchoRequest(u16),
    /// An echo reply with its identifier.
    EchoReply(u16),
    /// An error about the quoted packet.
    Error(Quoted),
    /// Any other message.
    Other,
}

/// The start of a packet inside an ICMP error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quoted {
    /// The quoted IP header. Its length may be more than what is quoted.
    pub ip: Ip,
    /// Source port; of an echo request the identifier; 0 without ports.
    pub source: u16,
    /// Destination port; of an echo reply the identifier; 0 without ports.
    pub destination: u16,
    /// Where the quoted payload starts.
    pub payload: usize,
}
