//! Internet checksums: whole (RFC 1071), incremental (RFC 1624), with a pseudo header. Uses no other room.

use std::net::IpAddr;

/// The sum of 16-bit words in ones' complement, not inverted. An odd last byte is the upper half of a word.
#[must_use]
pub fn sum(bytes: &[u8]) -> u16 {
    let (words, rest) = bytes.as_chunks::<2>();
    let sum: u64 = words.iter().map(|word| u64::from(u16::from_be_bytes(*word))).sum();
    fold(sum + rest.first().map_or(0, |byte| u64::from(*byte) << 8))
}

/// The checksum of bytes: the inverted sum. It is 0 over bytes with their right checksum.
#[must_use]
pub fn full(bytes: &[u8]) -> u16 {
    !sum(bytes)
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// The change of a checksum when bytes under it change.
///
/// ```text
/// //= RFC 1624 section 3
/// HC' = ~(~HC + ~m + m')
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Change(u64);

impl Change {
    /// No change.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// One word becomes another.
    #[must_use]
    pub fn word(self, old: u16, new: u16) -> Self {
        Self(u64::from(fold(self.0)) + u64::from(!old) + u64::from(new))
    }

    /// Bytes at an even place become others of the same even number.
    #[must_use]
    pub fn bytes(self, old: &[u8], new: &[u8]) -> Self {
        let (old, new) = (old.as_chunks::<2>().0, new.as_chunks::<2>().0);
        old.iter()
            .zip(new)
            .fold(self, |change, (old, new)| change.word(u16::from_be_bytes(*old), u16::from_be_bytes(*new)))
    }

    /// This change and another one.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(u64::from(fold(self.0)) + u64::from(fold(other.0)))
    }

    /// The checksum after the change.
    #[must_use]
    pub fn apply(self, checksum: u16) -> u16 {
        !fold(self.0 + u64::from(!checksum))
    }

    /// The checksum of UDP after the change: 0 stays 0, because it means that there is none (RFC 768); a sum of 0 is
    /// sent as 0xffff.
    #[must_use]
    pub fn apply_udp(self, checksum: u16) -> u16 {
        if checksum == 0 {
            return 0;
        }
        match self.apply(checksum) {
            0 => 0xffff,
            sum => sum,
        }
    }
}

/// The sum of the pseudo header of a transport (RFC 793, section 3.1; RFC 8200, section 8.1). A sender that leaves the
/// checksum to its network card writes this sum into the checksum field: a partial checksum.
#[must_use]
pub fn pseudo_header(source: IpAddr, destination: IpAddr, protocol: u8, bytes: usize) -> u16 {
    let address = |address| match address {
        IpAddr::V4(address) => sum(&address.octets()),
        IpAddr::V6(address) => sum(&address.octets()),
    };
    let length = bytes as u64;
    let length = (length >> 16) + (length & 0xffff);
    fold(u64::from(address(source)) + u64::from(address(destination)) + u64::from(protocol) + length)
}

/// The checksum of a transport's segment, whose checksum field is 0.
#[must_use]
pub fn transport(source: IpAddr, destination: IpAddr, protocol: u8, segment: &[u8]) -> u16 {
    let pseudo = pseudo_header(source, destination, protocol, segment.len());
    !fold(u64::from(pseudo) + u64::from(sum(segment)))
}

/// What a transport's checksum says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The checksum is right.
    Right,
    /// UDP without a checksum.
    Absent,
    /// The sum of the pseudo header alone: a network card was to complete it. Translation would spoil it, so such
    /// senders need `ethtool -K DEVICE tx off`.
    Partial,
    /// The checksum is wrong.
    Wrong,
}

/// Judges the checksum of a segment, whose checksum field is at `field`. A segment without the field is wrong.
#[must_use]
pub fn state(source: IpAddr, destination: IpAddr, protocol: u8, segment: &[u8], field: usize) -> State {
    const UDP: u8 = 17;
    let Some(&[high, low]) = segment.get(field..field + 2) else { return State::Wrong };
    let sent = u16::from_be_bytes([high, low]);
    let pseudo = pseudo_header(source, destination, protocol, segment.len());
    if protocol == UDP && sent == 0 {
        State::Absent
    } else if fold(u64::from(pseudo) + u64::from(sum(segment))) == 0xffff {
        State::Right
    } else if sent == pseudo {
        State::Partial
    } else {
        State::Wrong
    }
}
