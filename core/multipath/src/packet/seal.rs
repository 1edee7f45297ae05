//! The seal: ChaCha20-Poly1305 with one key for each direction. The nonce is the path and the packet number.
//!
//! The keys last as long as the association. RFC 9001 section 6.6 bounds what one AES-GCM key may seal to some millions
//! of packets, and what one ChaCha20-Poly1305 key may seal to more than can be numbered.

use aws_lc_rs::{
    aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey},
    hkdf::{HKDF_SHA256, Salt},
};
use zeroize::Zeroizing;

use super::header::{HEADER_BYTES, Header, MAX_PACKET_NUMBER};

/// Bytes that the seal adds at the end of a packet.
pub const TAG_BYTES: usize = 16;

/// The ends of an association. Both derive the same two keys, one for each direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Opens the association and adds its paths.
    Connector,
    /// Accepts paths.
    Edge,
}

impl Side {
    fn other(self) -> Self {
        match self {
            Self::Connector => Self::Edge,
            Self::Edge => Self::Connector,
        }
    }

    fn label(self) -> &'static [u8] {
        match self {
            Self::Connector => b"sallyport multipath 1 connector",
            Self::Edge => b"sallyport multipath 1 edge",
        }
    }
}

/// The secret of one association: 32 random bytes, used for no other association.
pub struct Secret(Zeroizing<[u8; 32]>);

impl Secret {
    /// The secret of these random bytes.
    #[must_use]
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The key of packets that this side sends.
    fn key(&self, sender: Side) -> LessSafeKey {
        let pseudorandom = Salt::new(HKDF_SHA256, b"").extract(&self.0[..]);
        let info = [sender.label()];
        let expanded = pseudorandom.expand(&info, &CHACHA20_POLY1305).map(UnboundKey::from);
        // HKDF fails only for outputs of more than 255 blocks.
        LessSafeKey::new(expanded.expect("one key is shorter than the bound of HKDF"))
    }

    pub(crate) fn sealer(&self, side: Side) -> Sealer {
        Sealer(self.key(side))
    }

    pub(crate) fn opener(&self, side: Side) -> Opener {
        Opener(self.key(side.other()))
    }
}

/// A packet number is beyond 48 bits, or the cipher failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SealError;

/// Seals packets of one direction.
pub(crate) struct Sealer(LessSafeKey);

impl Sealer {
    /// Encrypts what follows the header of `packet`, and appends the tag.
    pub(crate) fn seal(&self, header: &Header, packet: &mut Vec<u8>) -> Result<(), SealError> {
        if header.number > MAX_PACKET_NUMBER {
            return Err(SealError);
        }
        let (clear, body) = packet.split_at_mut(HEADER_BYTES);
        let tag = self.0.seal_in_place_separate_tag(nonce(header), Aad::from(&*clear), body).map_err(|_| SealError)?;
        packet.extend_from_slice(tag.as_ref());
        Ok(())
    }
}

/// Opens packets of one direction.
pub(crate) struct Opener(LessSafeKey);

impl Opener {
    /// Decrypts a packet in place: its frames, or `None` if the seal does not fit.
    pub(crate) fn open<'p>(&self, header: &Header, packet: &'p mut [u8]) -> Option<&'p [u8]> {
        let (clear, body) = packet.split_at_mut_checked(HEADER_BYTES)?;
        Some(&*self.0.open_in_place(nonce(header), Aad::from(&*clear), body).ok()?)
    }
}

fn nonce(header: &Header) -> Nonce {
    let mut nonce = [0; 12];
    nonce[2..4].copy_from_slice(&header.path.0.to_be_bytes());
    nonce[4..].copy_from_slice(&header.number.to_be_bytes());
    Nonce::assume_unique_for_key(nonce)
}
