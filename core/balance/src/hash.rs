//! Keyed hashes, which clients cannot predict.

use std::{fmt, hash::Hasher, net::IpAddr};

use siphasher::{
    sip::SipHasher24,
    sip128::{Hasher128, SipHasher24 as SipHasher24Wide},
};

/// The permanent id of an origin: the 16 bytes of its tunnel's id.
pub type OriginId = [u8; 16];

/// The key of all hashes in this crate: SipHash-2-4 (Aumasson and Bernstein, 2012), a pseudorandom function. Without
/// the key no client can aim at an origin or forge a cookie. The key must stay the same as long as clients shall keep
/// their origins, and on every edge that serves the socket.
#[derive(Clone)]
pub struct HashKey([u8; 16]);

/// Domain separation: the purpose of a hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Client = 1,
    Value = 2,
    Offset = 3,
    Skip = 4,
    Affinity = 5,
    Name = 6,
}

impl HashKey {
    /// Creates a key from 16 secret random bytes.
    #[must_use]
    pub fn new(secret: [u8; 16]) -> Self {
        Self(secret)
    }

    /// The hash of a client's address. An IPv4-mapped IPv6 address has the hash of its IPv4 address.
    #[must_use]
    pub fn client(&self, address: IpAddr) -> u64 {
        match address.to_canonical() {
            IpAddr::V4(address) => self.hash(Purpose::Client, &address.octets()),
            IpAddr::V6(address) => self.hash(Purpose::Client, &address.octets()),
        }
    }

    /// The hash of any other value that selects the origin, such as a header's.
    #[must_use]
    pub fn value(&self, value: &[u8]) -> u64 {
        self.hash(Purpose::Value, value)
    }

    pub(crate) fn hash(&self, purpose: Purpose, bytes: &[u8]) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        hasher.write(&[purpose as u8]);
        hasher.write(bytes);
        hasher.finish()
    }

    /// The id of an origin that is known by these bytes alone, such as its address.
    #[must_use]
    pub fn origin_id(bytes: &[u8]) -> OriginId {
        let mut hasher = SipHasher24Wide::new_with_key(&[Purpose::Name as u8; 16]);
        hasher.write(bytes);
        hasher.finish128().as_bytes()
    }

    /// A 128-bit authentication code of the parts, which have fixed lengths.
    pub(crate) fn mac(&self, purpose: Purpose, parts: [&[u8; 16]; 2]) -> [u8; 16] {
        let mut hasher = SipHasher24Wide::new_with_key(&self.0);
        hasher.write(&[purpose as u8]);
        for part in parts {
            hasher.write(part);
        }
        hasher.finish128().as_bytes()
    }
}

impl fmt::Debug for HashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_depend_on_key_purpose_and_value_alone() {
        let key = HashKey::new([7; 16]);
        let address: IpAddr = [192, 0, 2, 1].into();
        assert_eq!(key.client(address), key.client("::ffff:192.0.2.1".parse().unwrap()));
        assert_eq!(key.client(address), HashKey::new([7; 16]).client(address));
        assert_ne!(key.client(address), HashKey::new([8; 16]).client(address));
        assert_ne!(key.client(address), key.value(&[192, 0, 2, 1]));
        assert_ne!(key.client(address), key.client([192, 0, 2, 2].into()));
        assert_eq!(format!("{key:?}"), "HashKey(..)", "the secret is not printed");
    }
}
