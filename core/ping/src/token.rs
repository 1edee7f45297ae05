//! The data of a request: a nonce, the token that proves it, and filler.

use std::{fmt, hash::Hasher as _};

use siphasher::sip::SipHasher24;

/// Length of the nonce, in bytes.
const NONCE_BYTES: usize = 8;
/// The least data of a request, in bytes: the nonce and the token.
pub const MIN_DATA_BYTES: usize = 2 * NONCE_BYTES;

/// The secret of a process, with which it recognizes its own requests in replies: a key of SipHash-2-4.
#[derive(Clone)]
pub struct Key([u8; 16]);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

impl Key {
    /// A key of random bytes.
    #[must_use]
    pub fn new(random: [u8; 16]) -> Self {
        Self(random)
    }

    /// The data of a request of this length, in bytes; at least [`MIN_DATA_BYTES`].
    pub(crate) fn data(&self, identifier: u16, sequence: u16, nonce: u64, bytes: usize) -> Vec<u8> {
        let mut data = Vec::with_capacity(bytes.max(MIN_DATA_BYTES));
        data.extend(nonce.to_be_bytes());
        data.extend(self.token(identifier, sequence, nonce).to_be_bytes());
        data.extend((MIN_DATA_BYTES..bytes).map(filler));
        data
    }

    /// The nonce in the data of a reply, if the token beside it is ours.
    pub(crate) fn nonce(&self, identifier: u16, sequence: u16, data: &[u8]) -> Option<u64> {
        let (nonce, rest) = data.split_first_chunk::<NONCE_BYTES>()?;
        let (token, _) = rest.split_first_chunk::<NONCE_BYTES>()?;
        let nonce = u64::from_be_bytes(*nonce);
        (self.token(identifier, sequence, nonce) == u64::from_be_bytes(*token)).then_some(nonce)
    }

    fn token(&self, identifier: u16, sequence: u16, nonce: u64) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        hasher.write(&identifier.to_be_bytes());
        hasher.write(&sequence.to_be_bytes());
        hasher.write(&nonce.to_be_bytes());
        hasher.finish()
    }
}

/// Whether the data ends as [`Key::data`] ended it.
pub(crate) fn has_filler(data: &[u8]) -> bool {
    data.iter().enumerate().skip(MIN_DATA_BYTES).all(|(at, byte)| *byte == filler(at))
}

/// The byte at a position behind the token.
fn filler(at: usize) -> u8 {
    at as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_of_one_key_one_identifier_one_number_and_one_nonce() {
        let key = Key::new([1; 16]);
        let data = key.data(7, 9, 0x0123_4567_89ab_cdef, 24);
        assert_eq!(data.len(), 24);
        assert_eq!(key.nonce(7, 9, &data), Some(0x0123_4567_89ab_cdef));
        assert!(has_filler(&data));
        assert_eq!(key.nonce(8, 9, &data), None);
        assert_eq!(key.nonce(7, 10, &data), None);
        assert_eq!(Key::new([2; 16]).nonce(7, 9, &data), None);
        for at in 0..MIN_DATA_BYTES {
            let mut changed = data.clone();
            changed[at] ^= 0x80;
            assert_eq!(key.nonce(7, 9, &changed), None, "byte {at}");
            assert_eq!(key.nonce(7, 9, &data[..at]), None, "{at} bytes");
        }
        assert_eq!(format!("{key:?}"), "Key(..)");
    }
}
