//! Echo messages of ICMP on the wire.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |     Type      |     Code      |          Checksum             |
//! |           Identifier          |        Sequence Number        |
//! |     Data ...                                                  |
//! ```
//!
//! The format is in RFC 792, page 14, and RFC 4443 sections 4.1 and 4.2.

use std::net::IpAddr;

/// The length of the header of an echo message, in bytes.
pub const HEADER_BYTES: usize = 8;
/// The most data of a request, in bytes: what fits into an IPv4 packet of 65,535 bytes.
pub const MAX_DATA_BYTES: usize = 65_507;

/// Length of the shortest IPv4 header, in bytes.
const MIN_IPV4_HEADER_BYTES: usize = 20;
/// The protocol number of ICMP in an IPv4 header.
const ICMP: u8 = 1;

/// The version of IP, which decides the numbers of the types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    /// ICMP (RFC 792).
    V4,
    /// `ICMPv6` (RFC 4443).
    V6,
}

impl Family {
    /// The family of an address.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    fn request_type(self) -> u8 {
        match self {
            Self::V4 => 8,
            Self::V6 => 128,
        }
    }

    fn reply_type(self) -> u8 {
        match self {
            Self::V4 => 0,
            Self::V6 => 129,
        }
    }
}

/// The form in which the kernel delivers a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The ICMP message alone, with a checksum that the kernel has verified: ping sockets, and raw sockets of IPv6.
    Verified,
    /// An IPv4 packet with a checksum that nobody has verified: raw sockets of IPv4.
    WithIpHeader,
}

/// A received echo reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EchoMessage<'a> {
    /// The identifier.
    pub identifier: u16,
    /// The sequence number.
    pub sequence: u16,
    /// The data. Fewer bytes than were sent are possible.
    pub data: &'a [u8],
}

/// Reason why bytes are no echo reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The message is of another type, or too short to have an identifier.
    #[error("no echo reply")]
    NoReply,
    /// The message ends within the header, or before the end that its IP header announces.
    #[error("an echo reply that is cut off")]
    CutOff {
        /// The identifier.
        identifier: u16,
    },
    /// The checksum is wrong.
    #[error("an echo reply with a wrong checksum")]
    Checksum {
        /// The identifier.
        identifier: u16,
    },
}

/// An echo request with its checksum. The checksum of `ICMPv6` covers addresses, so the kernel writes it.
#[must_use]
pub fn request(family: Family, identifier: u16, sequence: u16, data: &[u8]) -> Vec<u8> {
    message(family, family.request_type(), identifier, sequence, data)
}

/// An echo reply, for tests and fuzzers.
#[must_use]
pub fn reply(family: Family, identifier: u16, sequence: u16, data: &[u8]) -> Vec<u8> {
    message(family, family.reply_type(), identifier, sequence, data)
}

fn message(family: Family, kind: u8, identifier: u16, sequence: u16, data: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(HEADER_BYTES + data.len());
    message.extend([kind, 0, 0, 0]);
    message.extend(identifier.to_be_bytes());
    message.extend(sequence.to_be_bytes());
    message.extend(data);
    if family == Family::V4 {
        let checksum = checksum(&message);
        message[2..4].copy_from_slice(&checksum.to_be_bytes());
    }
    message
}

/// Parses an echo reply.
///
/// # Errors
/// The bytes are another message, are cut off, or have a wrong checksum.
pub fn parse(family: Family, form: Form, bytes: &[u8]) -> Result<EchoMessage<'_>, Malformed> {
    let (message, is_whole) = match form {
        Form::Verified => (bytes, true),
        Form::WithIpHeader => without_ip_header(bytes).ok_or(Malformed::NoReply)?,
    };
    let [kind, code, _, _, high, low, ..] = *message else { return Err(Malformed::NoReply) };
    if (kind, code) != (family.reply_type(), 0) {
        return Err(Malformed::NoReply);
    }
    let identifier = u16::from_be_bytes([high, low]);
    let [_, _, _, _, _, _, high, low, data @ ..] = message else { return Err(Malformed::CutOff { identifier }) };
    if !is_whole {
        return Err(Malformed::CutOff { identifier });
    }
    if form == Form::WithIpHeader && checksum(message) != 0 {
        return Err(Malformed::Checksum { identifier });
    }
    Ok(EchoMessage { identifier, sequence: u16::from_be_bytes([*high, *low]), data })
}

/// The ICMP message in an IPv4 packet, and whether it is there to its end (RFC 791 section 3.1).
fn without_ip_header(packet: &[u8]) -> Option<(&[u8], bool)> {
    let header_bytes = usize::from(packet.first()? & 0x0f) * 4;
    let is_icmp = packet.first()? >> 4 == 4 && packet.get(9) == Some(&ICMP);
    if !is_icmp || header_bytes < MIN_IPV4_HEADER_BYTES {
        return None;
    }
    let total_bytes = usize::from(u16::from_be_bytes([*packet.get(2)?, *packet.get(3)?]));
    let end = total_bytes.min(packet.len());
    Some((packet.get(header_bytes..end)?, total_bytes <= packet.len()))
}

/// The Internet checksum (RFC 1071); zero over a message with its right checksum.
fn checksum(message: &[u8]) -> u16 {
    let (pairs, rest) = message.as_chunks::<2>();
    let mut sum: u64 = pairs.iter().map(|pair| u64::from(u16::from_be_bytes(*pair))).sum();
    sum += rest.first().map_or(0, |last| u64::from(*last) << 8);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An IPv4 packet with this message.
    fn packet(message: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, ICMP, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2];
        packet.extend(message);
        let total = packet.len() as u16;
        packet[2..4].copy_from_slice(&total.to_be_bytes());
        packet
    }

    #[test]
    fn a_request_has_the_bytes_of_the_standard() {
        let four = request(Family::V4, 0x1234, 1, b"abc");
        assert_eq!(four[..2], [8, 0]);
        assert_eq!(four[4..], [0x12, 0x34, 0, 1, b'a', b'b', b'c']);
        assert_eq!(checksum(&four), 0);
        let six = request(Family::V6, 0x1234, 0xffff, b"");
        assert_eq!(six, [128, 0, 0, 0, 0x12, 0x34, 0xff, 0xff]);
        // The example of RFC 1071 section 3.
        assert_eq!(checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
    }

    #[test]
    fn a_reply_is_read_in_both_forms() {
        let expected = Ok(EchoMessage { identifier: 7, sequence: 9, data: b"data" });
        for family in [Family::V4, Family::V6] {
            assert_eq!(parse(family, Form::Verified, &reply(family, 7, 9, b"data")), expected);
        }
        let raw = packet(&reply(Family::V4, 7, 9, b"data"));
        assert_eq!(parse(Family::V4, Form::WithIpHeader, &raw), expected);
        let padded = [&raw[..], &[0; 6]].concat();
        assert_eq!(parse(Family::V4, Form::WithIpHeader, &padded), expected, "a short Ethernet frame is padded");
    }

    #[test]
    fn what_is_no_reply_is_told_from_what_is_cut_or_damaged() {
        let good = reply(Family::V4, 7, 9, b"data");
        let raw = packet(&good);
        let parsed = |bytes: &[u8]| parse(Family::V4, Form::WithIpHeader, bytes).map(|message| message.sequence);
        assert_eq!(parsed(&packet(&request(Family::V4, 7, 9, b"data"))), Err(Malformed::NoReply));
        assert_eq!(parsed(&packet(&good[..5])), Err(Malformed::NoReply));
        assert_eq!(parsed(&packet(&good[..7])), Err(Malformed::CutOff { identifier: 7 }));
        assert_eq!(parsed(&raw[..raw.len() - 1]), Err(Malformed::CutOff { identifier: 7 }));
        let mut damaged = raw.clone();
        damaged[29] ^= 1;
        assert_eq!(parsed(&damaged), Err(Malformed::Checksum { identifier: 7 }));
        let mut udp = raw.clone();
        udp[9] = 17;
        assert_eq!(parsed(&udp), Err(Malformed::NoReply));
        let mut short_header = raw;
        short_header[0] = 0x44;
        assert_eq!(parsed(&short_header), Err(Malformed::NoReply));
        assert_eq!(parsed(&[]), Err(Malformed::NoReply));
        assert_eq!(parse(Family::V6, Form::Verified, &good), Err(Malformed::NoReply), "the types differ");
    }
}
