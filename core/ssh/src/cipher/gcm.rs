//! AES in Galois counter mode (RFC 5647, PROTOCOL of OpenSSH section 1.6).

use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

use super::{Cipher, Keys, LENGTH_BYTES};
use crate::error::{Error, Result};

/// Nonce length in bytes: four fixed ones, and a counter of eight (RFC 5647 section 7.1).
pub(crate) const IV_BYTES: usize = 12;

/// A key and the nonce of its next packet.
pub(crate) struct Gcm {
    key: LessSafeKey,
    fixed: [u8; 4],
    counter: u64,
}

impl Gcm {
    pub(crate) fn new(keys: Keys<'_>) -> Result<Self> {
        let algorithm = if keys.cipher == Cipher::Aes256Gcm { &AES_256_GCM } else { &AES_128_GCM };
        let key = LessSafeKey::new(UnboundKey::new(algorithm, keys.key).map_err(|_| Error::Cipher)?);
        let (fixed, counter) = keys.iv.split_first_chunk().ok_or(Error::Cipher)?;
        let counter = u64::from_be_bytes(counter.try_into().map_err(|_| Error::Cipher)?);
        Ok(Self { key, fixed: *fixed, counter })
    }

    fn next_nonce(&mut self) -> Nonce {
        let mut nonce = [0; IV_BYTES];
        nonce[..4].copy_from_slice(&self.fixed);
        nonce[4..].copy_from_slice(&self.counter.to_be_bytes());
        self.counter = self.counter.wrapping_add(1);
        Nonce::assume_unique_for_key(nonce)
    }

    pub(crate) fn seal(&mut self, buffer: &mut Vec<u8>, start: usize) -> Result<()> {
        let nonce = self.next_nonce();
        let (length, body) = buffer[start..].split_at_mut_checked(LENGTH_BYTES).ok_or(Error::Cipher)?;
        let sealed = self.key.seal_in_place_separate_tag(nonce, Aad::from(&*length), body);
        let tag = sealed.map_err(|_| Error::Cipher)?;
        buffer.extend_from_slice(tag.as_ref());
        Ok(())
    }

    pub(crate) fn open<'a>(&mut self, packet: &'a mut [u8]) -> Result<&'a [u8]> {
        let nonce = self.next_nonce();
        let (length, body) = packet.split_at_mut_checked(LENGTH_BYTES).ok_or(Error::Forged)?;
        Ok(self.key.open_in_place(nonce, Aad::from(&*length), body).map_err(|_| Error::Forged)?)
    }
}
