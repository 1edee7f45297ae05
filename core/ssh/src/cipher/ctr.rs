//! AES in counter mode (RFC 4344 section 4), with a MAC over the ciphertext (PROTOCOL of OpenSSH section 1.1).

use aws_lc_rs::{
    cipher::{AES_128, AES_256, DecryptingKey, DecryptionContext, EncryptingKey, EncryptionContext, UnboundCipherKey},
    hmac,
    iv::FixedLength,
};

use super::{Cipher, Keys, LENGTH_BYTES, Mac, Shape};
use crate::error::{Error, Result};

/// Block length of AES, in bytes.
pub(crate) const BLOCK_BYTES: usize = 16;

/// The cipher's direction.
enum Key {
    Sealing(EncryptingKey),
    Opening(DecryptingKey),
}

/// The keys, and the counter of the next packet.
pub(crate) struct Ctr {
    key: Key,
    counter: u128,
    mac: hmac::Key,
    tag_bytes: usize,
}

impl Ctr {
    pub(crate) fn for_sealing(keys: Keys<'_>) -> Result<Self> {
        Self::new(keys, Key::Sealing(EncryptingKey::ctr(unbound(keys)?).map_err(|_| Error::Cipher)?))
    }

    pub(crate) fn for_opening(keys: Keys<'_>) -> Result<Self> {
        Self::new(keys, Key::Opening(DecryptingKey::ctr(unbound(keys)?).map_err(|_| Error::Cipher)?))
    }

    fn new(keys: Keys<'_>, key: Key) -> Result<Self> {
        let counter = u128::from_be_bytes(keys.iv.try_into().map_err(|_| Error::Cipher)?);
        let algorithm = match keys.mac {
            Mac::Sha256 => hmac::HMAC_SHA256,
            Mac::Sha512 => hmac::HMAC_SHA512,
        };
        let tag_bytes = algorithm.tag_len();
        Ok(Self { key, counter, mac: hmac::Key::new(algorithm, keys.mac_key), tag_bytes })
    }

    pub(crate) fn shape(&self) -> Shape {
        Shape { block: BLOCK_BYTES, counts_length: false, tag: self.tag_bytes }
    }

    /// The counter of a packet of whole blocks with `bytes` bytes; advances it for the next packet.
    fn next_counter(&mut self, bytes: usize) -> FixedLength<BLOCK_BYTES> {
        let counter = self.counter;
        self.counter = counter.wrapping_add((bytes / BLOCK_BYTES) as u128);
        FixedLength::from(counter.to_be_bytes())
    }

    fn tag(&self, sequence: u32, packet: &[u8]) -> hmac::Context {
        let mut context = hmac::Context::with_key(&self.mac);
        context.update(&sequence.to_be_bytes());
        context.update(packet);
        context
    }

    pub(crate) fn seal(&mut self, sequence: u32, buffer: &mut Vec<u8>, start: usize) -> Result<()> {
        let body = buffer.get_mut(start + LENGTH_BYTES..).ok_or(Error::Cipher)?;
        let context = EncryptionContext::Iv128(self.next_counter(body.len()));
        let Key::Sealing(key) = &self.key else { return Err(Error::Cipher) };
        key.less_safe_encrypt(body, context).map_err(|_| Error::Cipher)?;
        let tag = self.tag(sequence, &buffer[start..]).sign();
        buffer.extend_from_slice(tag.as_ref());
        Ok(())
    }

    pub(crate) fn open<'a>(&mut self, sequence: u32, packet: &'a mut [u8]) -> Result<&'a [u8]> {
        let at = packet.len().checked_sub(self.tag_bytes).ok_or(Error::Forged)?;
        let (sealed, tag) = packet.split_at_mut(at);
        let expected = self.tag(sequence, sealed).sign();
        aws_lc_rs::constant_time::verify_slices_are_equal(expected.as_ref(), tag).map_err(|_| Error::Forged)?;
        let body = sealed.get_mut(LENGTH_BYTES..).ok_or(Error::Forged)?;
        let context = DecryptionContext::Iv128(self.next_counter(body.len()));
        let Key::Opening(key) = &self.key else { return Err(Error::Cipher) };
        Ok(key.decrypt(body, context).map_err(|_| Error::Cipher)?)
    }
}

fn unbound(keys: Keys<'_>) -> Result<UnboundCipherKey> {
    let algorithm = if keys.cipher == Cipher::Aes256Ctr { &AES_256 } else { &AES_128 };
    UnboundCipherKey::new(algorithm, keys.key).map_err(|_| Error::Cipher)
}
