//! The clear part of a packet: which association, which path, which packet.

use std::fmt;

/// The first byte of every packet. QUIC's fixed bit (0x40) is clear, and the byte is in the range 4 to 15, which RFC
/// 9443 gives to no protocol that shares a UDP port.
pub const HEADER_BYTE: u8 = 0x04;

/// Bytes of a header: the first byte, the receiver's association, the path, the packet number.
pub const HEADER_BYTES: usize = 1 + 8 + 2 + 6;

/// Packet numbers have 48 bits. The sender refuses to send beyond them, so no nonce comes twice.
pub(crate) const MAX_PACKET_NUMBER: u64 = (1 << 48) - 1;

/// The name that a receiver gave its end of an association: 8 bytes, random.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AssociationId(pub [u8; 8]);

impl fmt::Debug for AssociationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", u64::from_be_bytes(self.0))
    }
}

/// A path of an association. An association never uses a number again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PathId(pub u16);

/// The header of a packet, which everybody can read and nobody can change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The receiver's end.
    pub association: AssociationId,
    /// The path by which the sender sent the packet.
    pub path: PathId,
    /// Counts from 0 in each direction of each path.
    pub number: u64,
}

impl Header {
    /// The header of this UDP payload; `None` if the payload is no packet of an association.
    #[must_use]
    pub fn parse(packet: &[u8]) -> Option<Self> {
        let header: &[u8; HEADER_BYTES] = packet.first_chunk()?;
        let [HEADER_BYTE, rest @ ..] = header else { return None };
        let (association, rest) = rest.split_first_chunk::<8>()?;
        let (path, rest) = rest.split_first_chunk::<2>()?;
        let number = rest.iter().fold(0, |number, &byte| number << 8 | u64::from(byte));
        Some(Self { association: AssociationId(*association), path: PathId(u16::from_be_bytes(*path)), number })
    }

    /// Appends the header to a packet.
    pub(crate) fn write(&self, packet: &mut Vec<u8>) {
        packet.push(HEADER_BYTE);
        packet.extend_from_slice(&self.association.0);
        packet.extend_from_slice(&self.path.0.to_be_bytes());
        packet.extend_from_slice(&self.number.to_be_bytes()[2..]);
    }
}
