//! The virtio header of a packet (virtio 1.2, section 5.1.6), as far as an edge has to check it.

use sallyport_packet_model::parse::{Ip, Transport};
use sallyport_wire::frame::VIRTIO_HEADER_BYTES;

/// The transport checksum is unfinished.
const NEEDS_CHECKSUM: u8 = 1;
/// The checksum was found right.
const IS_VALID: u8 = 2;
/// TCP of the train has ECN set.
const ECN: u8 = 0x80;
/// Kinds of trains.
const NO_TRAIN: u8 = 0;
const TCP_OVER_IPV4: u8 = 1;
const TCP_OVER_IPV6: u8 = 4;
const UDP: u8 = 5;
/// Bytes of a header of UDP.
const UDP_HEADER_BYTES: usize = 8;
/// Where the checksum is in a header of TCP and of UDP.
const TCP_CHECKSUM: usize = 16;
const UDP_CHECKSUM: usize = 6;
/// The least data of a segment of TCP, in bytes, as Linux has it.
const MIN_SEGMENT_BYTES: usize = 48;
/// The most datagrams of a train, as Linux has it.
const MAX_DATAGRAMS: usize = 128;

/// The length of the longest packet that a receiver makes of it, in bytes; `None` if the header does not fit the
/// packet.
pub(super) fn longest_packet(
    header: &[u8; VIRTIO_HEADER_BYTES],
    packet_bytes: usize,
    ip: &Ip,
    transport: &Transport,
) -> Option<usize> {
    let word = |at: usize| usize::from(u16::from_le_bytes([header[at], header[at + 1]]));
    let (flags, kind) = (header[0], header[1] & !ECN);
    let (segment_bytes, start, offset) = (word(4), word(6), word(8));
    if flags & !(NEEDS_CHECKSUM | IS_VALID) != 0 {
        return None;
    }
    let needs_checksum = flags & NEEDS_CHECKSUM != 0;
    // The receiver's kernel writes the checksum to this place after the policy has decided: nowhere else than a header
    // of its transport has one.
    let place = match transport {
        Transport::Tcp(tcp) => Some((tcp.offset, TCP_CHECKSUM)),
        Transport::Udp(udp) => Some((udp.offset, UDP_CHECKSUM)),
        _ => None,
    };
    if needs_checksum && (place != Some((start, offset)) || ip.fragment.is_some()) {
        return None;
    }
    if kind == NO_TRAIN {
        return Some(packet_bytes);
    }
    let (header_bytes, least) = match (kind, transport, ip.source.is_ipv4()) {
        (TCP_OVER_IPV4, Transport::Tcp(tcp), true) | (TCP_OVER_IPV6, Transport::Tcp(tcp), false) => {
            (packet_bytes.checked_sub(tcp.length as usize)?, MIN_SEGMENT_BYTES)
        }
        (UDP, Transport::Udp(udp), _) => {
            let header_bytes = udp.offset + UDP_HEADER_BYTES;
            (header_bytes, packet_bytes.checked_sub(header_bytes)?.div_ceil(MAX_DATAGRAMS).max(1))
        }
        _ => return None,
    };
    let is_train = needs_checksum && segment_bytes >= least;
    is_train.then(|| packet_bytes.min(header_bytes + segment_bytes))
}
