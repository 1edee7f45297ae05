//! The secret of client affinity.

use sallyport_balance::HashKey;
use sha2::{Digest, Sha256};

/// The secret from which the affinity of clients to origins is computed. A client with the secret could choose
/// addresses that lead to a certain origin. With another secret, all clients change origins.
#[derive(Clone)]
pub struct AffinityKey(HashKey);

impl std::fmt::Debug for AffinityKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AffinityKey(..)")
    }
}

impl From<[u8; 32]> for AffinityKey {
    /// The key made of these secret random bytes.
    fn from(secret: [u8; 32]) -> Self {
        let digest: [u8; 32] = Sha256::digest([&b"sallyport affinity "[..], &secret[..]].concat()).into();
        let mut key = [0; 16];
        key.copy_from_slice(&digest[..16]);
        Self(HashKey::new(key))
    }
}

impl AffinityKey {
    /// The key of the hashes.
    pub(crate) fn hash_key(&self) -> &HashKey {
        &self.0
    }
}
