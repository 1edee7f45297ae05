//! The secret of a port, and the keys that are derived from it.

use std::{fmt, io, sync::Arc};

use aws_lc_rs::{hkdf, hmac, rand};
use quinn::crypto::{HandshakeTokenKey, HmacKey};

/// Length of a secret, in bytes.
pub(crate) const SECRET_BYTES: usize = 32;

/// The secret that the processes of one port share. Whoever has it can forge tokens and resets of the port.
#[derive(Clone, PartialEq, Eq)]
pub struct QuicSecret([u8; SECRET_BYTES]);

impl fmt::Debug for QuicSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("QuicSecret(..)")
    }
}

impl From<[u8; SECRET_BYTES]> for QuicSecret {
    fn from(secret: [u8; SECRET_BYTES]) -> Self {
        Self(secret)
    }
}

impl QuicSecret {
    /// A new secret. After a crash, clients of the former process notice its end by a timeout only.
    ///
    /// # Errors
    /// The system gives no randomness.
    pub fn random() -> io::Result<Self> {
        let mut secret = [0; SECRET_BYTES];
        rand::fill(&mut secret).map_err(|_| io::Error::other("the system gives no randomness"))?;
        Ok(Self(secret))
    }

    pub(crate) fn as_bytes(&self) -> &[u8; SECRET_BYTES] {
        &self.0
    }

    /// The key for one purpose.
    pub(crate) fn derived(&self, purpose: &[u8]) -> hmac::Tag {
        hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &self.0), purpose)
    }

    /// The key of stateless resets (RFC 9000 section 10.3).
    pub(crate) fn reset_key(&self) -> Arc<dyn HmacKey> {
        Arc::new(hmac::Key::new(hmac::HMAC_SHA256, self.derived(b"stateless reset").as_ref()))
    }

    /// The key of the tokens that prove an address (RFC 9000 section 8.1).
    pub(crate) fn token_key(&self) -> Arc<dyn HandshakeTokenKey> {
        Arc::new(hkdf::Salt::new(hkdf::HKDF_SHA256, b"address validation").extract(&self.0))
    }
}
