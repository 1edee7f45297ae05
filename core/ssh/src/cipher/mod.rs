//! Packet ciphers: sealing for output, opening for input.
//!
//! May use `error`.

mod ctr;
mod gcm;

use aws_lc_rs::aead::chacha20_poly1305_openssh as chacha;

use self::{ctr::Ctr, gcm::Gcm};
use crate::error::{Error, Result};

/// Tag length of an AEAD, in bytes.
pub(crate) const TAG_BYTES: usize = 16;
/// Length of the packet length field, in bytes.
pub(crate) const LENGTH_BYTES: usize = 4;

/// A cipher by its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cipher {
    ChaCha20Poly1305,
    Aes256Gcm,
    Aes128Gcm,
    Aes256Ctr,
    Aes128Ctr,
}

/// A MAC over the ciphertext.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mac {
    Sha256,
    Sha512,
}

impl Cipher {
    /// Key length in bytes.
    pub(crate) fn key_bytes(self) -> usize {
        match self {
            Self::ChaCha20Poly1305 => chacha::KEY_LEN,
            Self::Aes256Gcm | Self::Aes256Ctr => 32,
            Self::Aes128Gcm | Self::Aes128Ctr => 16,
        }
    }

    /// Length of the initialisation vector, in bytes.
    pub(crate) fn iv_bytes(self) -> usize {
        match self {
            Self::ChaCha20Poly1305 => 0,
            Self::Aes256Gcm | Self::Aes128Gcm => gcm::IV_BYTES,
            Self::Aes256Ctr | Self::Aes128Ctr => ctr::BLOCK_BYTES,
        }
    }

    /// Whether the cipher needs a MAC.
    pub(crate) fn needs_mac(self) -> bool {
        matches!(self, Self::Aes256Ctr | Self::Aes128Ctr)
    }
}

impl Mac {
    /// Key length in bytes (RFC 6668 section 2).
    pub(crate) fn key_bytes(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha512 => 64,
        }
    }
}

/// The keys of one direction.
#[derive(Clone, Copy)]
pub(crate) struct Keys<'a> {
    pub(crate) cipher: Cipher,
    pub(crate) mac: Mac,
    pub(crate) iv: &'a [u8],
    pub(crate) key: &'a [u8],
    pub(crate) mac_key: &'a [u8],
}

/// Constraints of a cipher on packet lengths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    /// A packet's size is a multiple of this, in bytes.
    pub(crate) block: usize,
    /// Whether the length field counts for that.
    pub(crate) counts_length: bool,
    /// Length of the tag after the packet, in bytes.
    pub(crate) tag: usize,
}

const CLEAR: Shape = Shape { block: 8, counts_length: true, tag: 0 };
const CHACHA: Shape = Shape { block: 8, counts_length: false, tag: TAG_BYTES };
const GCM: Shape = Shape { block: 16, counts_length: false, tag: TAG_BYTES };

/// Seals the server's packets.
pub(crate) enum Sealing {
    Clear,
    ChaCha(Box<chacha::SealingKey>),
    Gcm(Box<Gcm>),
    Ctr(Box<Ctr>),
}

impl Sealing {
    pub(crate) fn new(keys: Keys<'_>) -> Result<Self> {
        Ok(match keys.cipher {
            Cipher::ChaCha20Poly1305 => {
                Self::ChaCha(Box::new(chacha::SealingKey::new(keys.key.try_into().map_err(|_| Error::Cipher)?)))
            }
            Cipher::Aes256Gcm | Cipher::Aes128Gcm => Self::Gcm(Box::new(Gcm::new(keys)?)),
            Cipher::Aes256Ctr | Cipher::Aes128Ctr => Self::Ctr(Box::new(Ctr::for_sealing(keys)?)),
        })
    }

    pub(crate) fn shape(&self) -> Shape {
        match self {
            Self::Clear => CLEAR,
            Self::ChaCha(_) => CHACHA,
            Self::Gcm(_) => GCM,
            Self::Ctr(ctr) => ctr.shape(),
        }
    }

    /// Seals the packet at `start` of `buffer`, with its length and padding, and appends the tag.
    pub(crate) fn seal(&mut self, sequence: u32, buffer: &mut Vec<u8>, start: usize) -> Result<()> {
        match self {
            Self::Clear => Ok(()),
            Self::ChaCha(key) => {
                let mut tag = [0; TAG_BYTES];
                key.seal_in_place(sequence, &mut buffer[start..], &mut tag);
                buffer.extend_from_slice(&tag);
                Ok(())
            }
            Self::Gcm(gcm) => gcm.seal(buffer, start),
            Self::Ctr(ctr) => ctr.seal(sequence, buffer, start),
        }
    }
}

/// Opens the client's packets.
pub(crate) enum Opening {
    Clear,
    ChaCha(Box<chacha::OpeningKey>),
    Gcm(Box<Gcm>),
    Ctr(Box<Ctr>),
}

impl Opening {
    pub(crate) fn new(keys: Keys<'_>) -> Result<Self> {
        Ok(match keys.cipher {
            Cipher::ChaCha20Poly1305 => {
                Self::ChaCha(Box::new(chacha::OpeningKey::new(keys.key.try_into().map_err(|_| Error::Cipher)?)))
            }
            Cipher::Aes256Gcm | Cipher::Aes128Gcm => Self::Gcm(Box::new(Gcm::new(keys)?)),
            Cipher::Aes256Ctr | Cipher::Aes128Ctr => Self::Ctr(Box::new(Ctr::for_opening(keys)?)),
        })
    }

    pub(crate) fn shape(&self) -> Shape {
        match self {
            Self::Clear => CLEAR,
            Self::ChaCha(_) => CHACHA,
            Self::Gcm(_) => GCM,
            Self::Ctr(ctr) => ctr.shape(),
        }
    }

    /// The length in these first bytes of a packet.
    pub(crate) fn length(&self, sequence: u32, head: [u8; LENGTH_BYTES]) -> usize {
        let head = match self {
            Self::Clear | Self::Gcm(_) | Self::Ctr(_) => head,
            Self::ChaCha(key) => key.decrypt_packet_length(sequence, head),
        };
        u32::from_be_bytes(head) as usize
    }

    /// Opens a whole packet in place: padding length, payload and padding.
    pub(crate) fn open<'a>(&mut self, sequence: u32, packet: &'a mut [u8]) -> Result<&'a [u8]> {
        match self {
            Self::Clear => packet.get(LENGTH_BYTES..).ok_or(Error::Forged),
            Self::ChaCha(key) => {
                let at = packet.len().checked_sub(TAG_BYTES).ok_or(Error::Forged)?;
                let (body, tag) = packet.split_at_mut(at);
                let tag: &[u8; TAG_BYTES] = (&*tag).try_into().map_err(|_| Error::Forged)?;
                key.open_in_place(sequence, body, tag).map_err(|_| Error::Forged)
            }
            Self::Gcm(gcm) => gcm.open(packet),
            Self::Ctr(ctr) => ctr.open(sequence, packet),
        }
    }
}
