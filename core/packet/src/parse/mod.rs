//! Frames into packets: Ethernet, VLAN tags, IP, TCP, UDP and ICMP. Uses only the checksums.

mod connection;
mod flow;
mod fragments;
mod icmp;
mod ip;
mod malformed;
mod packet;

pub use connection::Connection;
pub use flow::{Flow, flow_hash, mix_words};
pub use fragments::{FRAGMENT_LIFETIME, Fragments, MAX_FRAGMENTED};
pub use ip::MAX_EXTENSION_HEADERS;
pub use malformed::Malformed;
pub use packet::{Ethernet, Fragment, Icmp, IcmpMessage, Ip, Mac, Packet, Quoted, Tags, Tcp, Transport, Udp};

/// The type of IPv4 frames.
pub const ETHERTYPE_IPV4: u16 = 0x0800;
/// The type of IPv6 frames.
pub const ETHERTYPE_IPV6: u16 = 0x86dd;
/// The type of a VLAN tag (802.1Q).
pub const ETHERTYPE_VLAN: u16 = 0x8100;
/// The type of a service tag (802.1ad).
pub const ETHERTYPE_SERVICE: u16 = 0x88a8;

/// Protocol number of ICMP.
pub const ICMP: u8 = 1;
/// Protocol number of TCP.
pub const TCP: u8 = 6;
/// Protocol number of UDP.
pub const UDP: u8 = 17;
/// Protocol number of ICMPv6.
pub const ICMPV6: u8 = 58;

/// Bytes at a place, if the frame has them.
pub(crate) fn bytes<const N: usize>(frame: &[u8], offset: usize) -> Option<[u8; N]> {
    frame.get(offset..offset.checked_add(N)?)?.try_into().ok()
}

/// A number of 16 bits at a place.
pub(crate) fn word(frame: &[u8], offset: usize) -> Option<u16> {
    bytes(frame, offset).map(u16::from_be_bytes)
}

/// Reads a frame.
///
/// # Errors
/// The Ethernet header or the IP header cannot be read. A bad payload is no error: see [`Transport::Malformed`].
pub fn parse(frame: &[u8]) -> Result<Packet, Malformed> {
    let ethernet = parse_ethernet(frame)?;
    let ip = match ethernet.ether_type {
        ETHERTYPE_IPV4 => ip::ipv4(frame, ethernet.bytes, ip::Place::Frame)?,
        ETHERTYPE_IPV6 => ip::ipv6(frame, ethernet.bytes, ip::Place::Frame)?,
        _ => return Ok(Packet { ethernet, ip: None, transport: Transport::Other }),
    };
    let transport = match ip.trouble {
        Some(trouble) => Transport::Malformed(trouble),
        None => transport(frame, &ip.header),
    };
    Ok(Packet { ethernet, ip: Some(ip.header), transport })
}

/// Reads a packet without a link layer, from its IP header on.
///
/// # Errors
/// The IP header cannot be read. A bad payload is no error: see [`Transport::Malformed`].
pub fn parse_ip(packet: &[u8]) -> Result<(Ip, Transport), Malformed> {
    let ip = match packet.first().map(|first| first >> 4) {
        Some(4) => ip::ipv4(packet, 0, ip::Place::Frame)?,
        Some(6) => ip::ipv6(packet, 0, ip::Place::Frame)?,
        Some(_) => return Err(Malformed::WrongVersion),
        None => return Err(Malformed::TruncatedIpv4),
    };
    let transport = match ip.trouble {
        Some(trouble) => Transport::Malformed(trouble),
        None => transport(packet, &ip.header),
    };
    Ok((ip.header, transport))
}

/// Reads the Ethernet header alone.
///
/// # Errors
/// The header or a tag is cut short.
pub fn parse_ethernet(frame: &[u8]) -> Result<Ethernet, Malformed> {
    let truncated = Malformed::TruncatedEthernet;
    let destination = bytes(frame, 0).ok_or(truncated)?;
    let source = bytes(frame, 6).ok_or(truncated)?;
    let mut ether_type = word(frame, 12).ok_or(truncated)?;
    let is_service = ether_type == ETHERTYPE_SERVICE;
    let (mut tags, mut offset) = (Tags::default(), 14);
    for slot in [&mut tags.outer, &mut tags.inner] {
        if !matches!(ether_type, ETHERTYPE_VLAN | ETHERTYPE_SERVICE) {
            break;
        }
        *slot = Some(word(frame, offset).ok_or(Malformed::TruncatedTag)? & 0x0fff);
        ether_type = word(frame, offset + 2).ok_or(Malformed::TruncatedTag)?;
        offset += 4;
    }
    Ok(Ethernet { destination, source, tags, is_service, ether_type, bytes: offset })
}

/// Reads the header of IP, where it can be read: its lengths, its checksum and the end of the packet do not matter.
pub(crate) fn read_ip(frame: &[u8], ethernet: &Ethernet) -> Option<Ip> {
    let read = match ethernet.ether_type {
        ETHERTYPE_IPV4 => ip::ipv4(frame, ethernet.bytes, ip::Place::Quote),
        ETHERTYPE_IPV6 => ip::ipv6(frame, ethernet.bytes, ip::Place::Quote),
        _ => return None,
    };
    read.ok().map(|read| read.header)
}

/// The payload of a whole packet or a first fragment.
fn transport(frame: &[u8], ip: &Ip) -> Transport {
    if ip.fragment.is_some_and(|fragment| fragment.offset != 0) {
        return Transport::LaterFragment;
    }
    let frame = frame.get(..ip.end()).unwrap_or(frame);
    let read = match (ip.protocol, ip.source.is_ipv4()) {
        (TCP, _) => tcp(frame, ip.payload()).map(Transport::Tcp),
        (UDP, _) => udp(frame, ip).map(Transport::Udp),
        (ICMP, true) | (ICMPV6, false) => icmp::message(frame, ip).map(Transport::Icmp),
        _ => Ok(Transport::Other),
    };
    read.unwrap_or_else(Transport::Malformed)
}

fn tcp(frame: &[u8], offset: usize) -> Result<Tcp, Malformed> {
    let header: [u8; 20] = bytes(frame, offset).ok_or(Malformed::TruncatedTcp)?;
    let header_bytes = usize::from(header[12] >> 4) * 4;
    if header_bytes < 20 {
        return Err(Malformed::ShortTcpHeader);
    }
    if frame.len() < offset + header_bytes {
        return Err(Malformed::TruncatedTcp);
    }
    Ok(Tcp {
        offset,
        source: u16::from_be_bytes([header[0], header[1]]),
        destination: u16::from_be_bytes([header[2], header[3]]),
        flags: header[13],
        sequence: u32::from_be_bytes([header[4], header[5], header[6], header[7]]),
        acknowledgement: u32::from_be_bytes([header[8], header[9], header[10], header[11]]),
        length: (frame.len() - offset - header_bytes) as u32,
    })
}

fn udp(frame: &[u8], ip: &Ip) -> Result<Udp, Malformed> {
    let offset = ip.payload();
    let header: [u8; 8] = bytes(frame, offset).ok_or(Malformed::TruncatedUdp)?;
    let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
    // The first of several fragments has only a part of the datagram.
    let is_whole = ip.fragment.is_none();
    if length < 8 || (is_whole && length > frame.len() - offset) {
        return Err(Malformed::WrongUdpLength);
    }
    Ok(Udp {
        offset,
        source: u16::from_be_bytes([header[0], header[1]]),
        destination: u16::from_be_bytes([header[2], header[3]]),
        checksum: u16::from_be_bytes([header[6], header[7]]),
    })
}
