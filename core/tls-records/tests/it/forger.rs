//! Records that no correct peer sends, sealed with OpenSSL's traffic secret by an independent key derivation.

use aws_lc_rs::{
    aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey},
    hkdf::{HKDF_SHA256, KeyType, Prk},
};

const APPLICATION_DATA: u8 = 23;
const TAG_BYTES: usize = 16;

/// Seals records as the peer would, with TLS_AES_128_GCM_SHA256.
pub(crate) struct Forger {
    key: LessSafeKey,
    iv: [u8; 12],
    sequence: u64,
}

struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// HKDF-Expand-Label with an empty context (RFC 8446 section 7.1).
fn expand_label(secret: &[u8], label: &str, into: &mut [u8]) {
    let label = format!("tls13 {label}");
    let len = (into.len() as u16).to_be_bytes();
    let info = [&len[..], &[label.len() as u8], label.as_bytes(), &[0]];
    let prk = Prk::new_less_safe(HKDF_SHA256, secret);
    prk.expand(&info, Length(into.len())).unwrap().fill(into).unwrap();
}

impl Forger {
    /// The peer's first key of application data (RFC 8446 section 7.3).
    pub(crate) fn new(traffic_secret: &[u8]) -> Self {
        let (mut key, mut iv) = ([0; 16], [0; 12]);
        expand_label(traffic_secret, "key", &mut key);
        expand_label(traffic_secret, "iv", &mut iv);
        Self { key: LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key).unwrap()), iv, sequence: 0 }
    }

    /// A record with this inner plaintext: content, content type and padding.
    pub(crate) fn record(&mut self, inner: &[u8]) -> Vec<u8> {
        self.record_with(APPLICATION_DATA, 0x0303, inner)
    }

    /// A record with this outer type and version; the seal authenticates both in the header.
    pub(crate) fn record_with(&mut self, outer: u8, version: u16, inner: &[u8]) -> Vec<u8> {
        let [v1, v2] = version.to_be_bytes();
        let [l1, l2] = ((inner.len() + TAG_BYTES) as u16).to_be_bytes();
        let header = [outer, v1, v2, l1, l2];
        //= RFC 8446 section 5.3: "The padded sequence number is XORed with either the static client_write_iv or
        //= server_write_iv".
        let mut nonce = self.iv;
        nonce[4..].iter_mut().zip(self.sequence.to_be_bytes()).for_each(|(byte, sequence)| *byte ^= sequence);
        self.sequence += 1;
        let mut sealed = inner.to_vec();
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.key.seal_in_place_append_tag(nonce, Aad::from(header), &mut sealed).unwrap();
        [&header[..], &sealed].concat()
    }

    /// Leaves one sequence number out.
    pub(crate) fn skip(&mut self) {
        self.sequence += 1;
    }
}
