//! IP packets on a packet carrier: the payload of PACKETS.
//!
//! Each packet is its length (2 bytes, without the virtio header), the virtio header (10 bytes, little-endian), and the
//! packet from its IP header on. The virtio header says which checksum is unfinished, and how a train of segments is
//! cut. A packet that is complete has a header of zeros. A *parcel* is a virtio header with its packet, as a TUN device
//! reads and writes them.

use crate::{
    Violation,
    frame::{
        FrameType, MAX_PACKET_BYTES, MAX_PACKETS_BYTES, MIN_PACKET_BYTES, PACKET_PREFIX_BYTES, VIRTIO_HEADER_BYTES,
        put_frame,
    },
    message::bad,
};

/// The longest parcel, in bytes.
pub const MAX_PARCEL_BYTES: usize = VIRTIO_HEADER_BYTES + MAX_PACKET_BYTES;
/// Bytes of the length of a packet.
const LENGTH_BYTES: usize = PACKET_PREFIX_BYTES - VIRTIO_HEADER_BYTES;

/// Whether a parcel of so many bytes fits into PACKETS.
#[must_use]
pub fn is_parcel(bytes: usize) -> bool {
    (VIRTIO_HEADER_BYTES + MIN_PACKET_BYTES..=MAX_PARCEL_BYTES).contains(&bytes)
}

/// How many bytes a parcel of so many bytes takes in the payload of PACKETS.
#[must_use]
pub fn bytes_of(parcel_bytes: usize) -> usize {
    LENGTH_BYTES + parcel_bytes
}

/// Appends a PACKETS frame with these parcels. Each satisfies [`is_parcel`], and together they take at most
/// [`MAX_PACKETS_BYTES`].
pub fn encode<'a>(parcels: impl IntoIterator<Item = &'a [u8]>, out: &mut Vec<u8>) {
    put_frame(out, FrameType::Packets, |out| {
        let start = out.len();
        for parcel in parcels {
            debug_assert!(is_parcel(parcel.len()), "{} bytes are no parcel", parcel.len());
            let length = u16::try_from(parcel.len() - VIRTIO_HEADER_BYTES).unwrap_or(u16::MAX);
            out.extend_from_slice(&length.to_be_bytes());
            out.extend_from_slice(parcel);
        }
        debug_assert!(out.len() - start <= MAX_PACKETS_BYTES, "the parcels fit into one frame");
    });
}

/// The parcels in the payload of a PACKETS frame. An error ends them.
#[derive(Debug, Clone)]
pub struct Parcels<'a> {
    rest: &'a [u8],
}

impl<'a> Parcels<'a> {
    /// The parcels of this payload.
    #[must_use]
    pub fn of(payload: &'a [u8]) -> Self {
        Self { rest: payload }
    }

    fn take(&mut self) -> Option<&'a [u8]> {
        let (length, rest) = self.rest.split_first_chunk()?;
        let bytes = usize::from(u16::from_be_bytes(*length)) + VIRTIO_HEADER_BYTES;
        let (parcel, rest) = rest.split_at_checked(bytes).filter(|_| is_parcel(bytes))?;
        self.rest = rest;
        Some(parcel)
    }
}

impl<'a> Iterator for Parcels<'a> {
    type Item = Result<&'a [u8], Violation>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let taken = self.take();
        if taken.is_none() {
            self.rest = &[];
        }
        Some(taken.ok_or_else(|| bad(FrameType::Packets, "the length of a packet is wrong".to_owned())))
    }
}
