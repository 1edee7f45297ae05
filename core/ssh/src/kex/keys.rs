//! Key derivation from the shared secret (RFC 4253 section 7.2).

use zeroize::Zeroizing;

use super::Secret;
use crate::algorithms::Method;
use crate::{
    cipher::{Cipher, Keys, Mac},
    error::Result,
};

/// The input of the key derivation.
pub(crate) struct Secrets<'a> {
    pub(crate) method: Method,
    pub(crate) secret: &'a Secret,
    pub(crate) hash: &'a [u8],
    pub(crate) session: &'a [u8],
}

impl Secrets<'_> {
    /// The keys of the client's packets.
    pub(crate) fn with_client_keys<T>(
        &self,
        cipher: Cipher,
        mac: Mac,
        make: impl FnOnce(Keys<'_>) -> Result<T>,
    ) -> Result<T> {
        self.with_keys(cipher, mac, *b"ACE", make)
    }

    /// The keys of the server's packets.
    pub(crate) fn with_server_keys<T>(
        &self,
        cipher: Cipher,
        mac: Mac,
        make: impl FnOnce(Keys<'_>) -> Result<T>,
    ) -> Result<T> {
        self.with_keys(cipher, mac, *b"BDF", make)
    }

    fn with_keys<T>(
        &self,
        cipher: Cipher,
        mac: Mac,
        letters: [u8; 3],
        make: impl FnOnce(Keys<'_>) -> Result<T>,
    ) -> Result<T> {
        let iv = self.derive(letters[0], cipher.iv_bytes());
        let key = self.derive(letters[1], cipher.key_bytes());
        let mac_key = self.derive(letters[2], mac.key_bytes());
        make(Keys { cipher, mac, iv: &iv, key: &key, mac_key: &mac_key })
    }

    fn derive(&self, letter: u8, count: usize) -> Zeroizing<Vec<u8>> {
        let head = [self.secret.encoded(), self.hash].concat();
        let first = Zeroizing::new([&*head, &[letter], self.session].concat());
        let head = Zeroizing::new(head);
        let mut key = Zeroizing::new(self.method.hash(&first));
        while key.len() < count {
            let more = Zeroizing::new([&**head, &**key].concat());
            let more = Zeroizing::new(self.method.hash(&more));
            key = Zeroizing::new([&**key, &**more].concat());
        }
        key.truncate(count);
        key
    }
}
