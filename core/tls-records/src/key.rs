//! Traffic keys: the key of each direction, and the source of the next ones.

use aws_lc_rs::aead::{self, Aad, LessSafeKey, UnboundKey};
use rustls::{
    ConnectionTrafficSecrets, SupportedCipherSuite,
    client::ClientConnectionData,
    crypto::cipher::{Iv, Nonce},
    kernel::KernelConnection,
    server::ServerConnectionData,
};

use crate::{RecordError, record::TAG_BYTES};

/// The state of rustls after the handshake: the traffic secrets and, for a client, the session store.
pub(crate) enum KeySchedule {
    Client(Box<KernelConnection<ClientConnectionData>>),
    Server(Box<KernelConnection<ServerConnectionData>>),
}

impl KeySchedule {
    pub(crate) fn next_read_key(&mut self) -> Result<TrafficKey, RecordError> {
        let secrets = match self {
            Self::Client(kernel) => kernel.update_rx_secret(),
            Self::Server(kernel) => kernel.update_rx_secret(),
        };
        TrafficKey::new(secrets.map_err(RecordError::no_keys)?)
    }

    pub(crate) fn next_write_key(&mut self) -> Result<TrafficKey, RecordError> {
        let secrets = match self {
            Self::Client(kernel) => kernel.update_tx_secret(),
            Self::Server(kernel) => kernel.update_tx_secret(),
        };
        TrafficKey::new(secrets.map_err(RecordError::no_keys)?)
    }

    pub(crate) fn suite(&self) -> SupportedCipherSuite {
        match self {
            Self::Client(kernel) => kernel.negotiated_cipher_suite(),
            Self::Server(kernel) => kernel.negotiated_cipher_suite(),
        }
    }
}

/// The key of one direction, and the sequence number of its next record.
pub(crate) struct TrafficKey {
    key: LessSafeKey,
    iv: Iv,
    sequence: u64,
}

impl TrafficKey {
    pub(crate) fn new((sequence, secrets): (u64, ConnectionTrafficSecrets)) -> Result<Self, RecordError> {
        let (algorithm, key, iv) = match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (&aead::AES_128_GCM, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (&aead::AES_256_GCM, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (&aead::CHACHA20_POLY1305, key, iv),
            _ => return Err(RecordError::no_keys("an unknown cipher")),
        };
        let key = UnboundKey::new(algorithm, key.as_ref()).map_err(RecordError::no_keys)?;
        Ok(Self { key: LessSafeKey::new(key), iv, sequence })
    }

    /// Number of records that the key was used for.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    //= RFC 8446 section 5.3: "Each sequence number is set to zero at the beginning of a connection and whenever the
    //= key is changed".
    fn next_nonce(&mut self) -> aead::Nonce {
        let nonce = Nonce::new(&self.iv, self.sequence);
        self.sequence += 1;
        aead::Nonce::assume_unique_for_key(nonce.0)
    }

    /// Encrypts `inner` in place, and writes the tag.
    pub(crate) fn seal(&mut self, header: &[u8], inner: &mut [u8], tag: &mut [u8]) -> Result<(), RecordError> {
        let nonce = self.next_nonce();
        let sealed = self.key.seal_in_place_separate_tag(nonce, Aad::from(header), inner);
        tag[..TAG_BYTES].copy_from_slice(sealed.map_err(RecordError::no_keys)?.as_ref());
        Ok(())
    }

    /// Decrypts `sealed` in place; `None` if the tag does not match.
    pub(crate) fn open<'a>(&mut self, header: &[u8], sealed: &'a mut [u8]) -> Option<&'a mut [u8]> {
        let nonce = self.next_nonce();
        self.key.open_in_place(nonce, Aad::from(header), sealed).ok()
    }
}
