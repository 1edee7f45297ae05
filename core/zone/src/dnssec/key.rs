//! Keys that sign a zone.

use std::fmt;

use aws_lc_rs::{
    agreement::{ECDH_P256, PrivateKey},
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _},
};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::name::Name;

/// Length of a signature, in bytes, by either algorithm.
pub(crate) const SIGNATURE_BYTES: usize = 64;
/// Any key of DNSSEC has this protocol (RFC 4034 section 2.1.2).
const PROTOCOL: u8 = 3;
/// Flags of a key that signs the zone, and of one that the parent names (RFC 4034 section 2.1.1).
const ZONE_KEY: u16 = 256;
const ENTRY_POINT: u16 = 257;
/// The digest SHA-256 of a DS record (RFC 4509).
const DIGEST_SHA256: u8 = 2;

/// How a key signs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// ECDSA with P-256 and SHA-256 (RFC 6605).
    EcdsaP256Sha256,
    /// Ed25519 (RFC 8080).
    Ed25519,
}

impl Algorithm {
    /// Its number in DNSSEC.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::EcdsaP256Sha256 => 13,
            Self::Ed25519 => 15,
        }
    }
}

/// What a key signs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyRole {
    /// Everything (CSK).
    Combined,
    /// The keys (KSK). The parent has its DS record.
    KeySigning,
    /// Everything but the keys (ZSK).
    ZoneSigning,
}

/// When a key is in use, in seconds since 1970 (RFC 7583).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyTimes {
    /// From then on it is in the DNSKEY set.
    pub published: u64,
    /// From then on it signs.
    pub active: u64,
    /// From then on it does not sign.
    pub retired: Option<u64>,
    /// From then on it is not in the DNSKEY set.
    pub removed: Option<u64>,
    /// From then on the parent should have its DS record: the sets CDS and CDNSKEY have it.
    pub ds_from: Option<u64>,
    /// From then on the parent should not have its DS record.
    pub ds_until: Option<u64>,
}

impl KeyTimes {
    /// In use from this time on, without an end.
    #[must_use]
    pub fn from(now: u64) -> Self {
        Self { published: now, active: now, retired: None, removed: None, ds_from: Some(now), ds_until: None }
    }

    pub(super) fn is_published(&self, now: u64) -> bool {
        self.published <= now && self.removed.is_none_or(|removed| now < removed)
    }

    pub(super) fn is_active(&self, now: u64) -> bool {
        self.is_published(now) && self.active <= now && self.retired.is_none_or(|retired| now < retired)
    }

    pub(super) fn has_ds(&self, now: u64) -> bool {
        self.ds_from.is_some_and(|from| from <= now) && self.ds_until.is_none_or(|until| now < until)
    }

    pub(super) fn changes(&self) -> impl Iterator<Item = u64> {
        let ends = [self.retired, self.removed, self.ds_from, self.ds_until];
        [self.published, self.active].into_iter().chain(ends.into_iter().flatten())
    }
}

/// Why a secret is no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the secret is no private key of the algorithm")]
pub struct KeyError;

enum Pair {
    Ecdsa(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

/// A key that signs a zone.
pub struct SigningKey {
    pair: Pair,
    role: KeyRole,
    times: KeyTimes,
    dnskey: Vec<u8>,
    tag: u16,
}

impl SigningKey {
    /// The key of a secret: 32 random bytes. They are the seed of Ed25519 or the private scalar of P-256. About one of
    /// 2^32 secrets is no scalar of P-256.
    ///
    /// # Errors
    /// The secret is no private key.
    pub fn from_secret(
        algorithm: Algorithm,
        secret: &[u8; 32],
        role: KeyRole,
        times: KeyTimes,
    ) -> Result<Self, KeyError> {
        let (pair, public) = match algorithm {
            Algorithm::Ed25519 => {
                let pair = Ed25519KeyPair::from_seed_unchecked(secret).map_err(|_| KeyError)?;
                let public = pair.public_key().as_ref().to_vec();
                (Pair::Ed25519(pair), public)
            }
            Algorithm::EcdsaP256Sha256 => {
                let secret = Zeroizing::new(*secret);
                let private = PrivateKey::from_private_key(&ECDH_P256, &*secret).map_err(|_| KeyError)?;
                let public = private.compute_public_key().map_err(|_| KeyError)?;
                let signing = &ECDSA_P256_SHA256_FIXED_SIGNING;
                let pair = EcdsaKeyPair::from_private_key_and_public_key(signing, &*secret, public.as_ref());
                // DNSSEC leaves out the byte that says "uncompressed" (RFC 6605 section 4).
                let point = public.as_ref().get(1..).ok_or(KeyError)?.to_vec();
                (Pair::Ecdsa(pair.map_err(|_| KeyError)?), point)
            }
        };
        let flags = if role == KeyRole::ZoneSigning { ZONE_KEY } else { ENTRY_POINT };
        let mut dnskey = flags.to_be_bytes().to_vec();
        dnskey.extend([PROTOCOL, algorithm.number()]);
        dnskey.extend(public);
        Ok(Self { pair, role, times, tag: key_tag(&dnskey), dnskey })
    }

    /// What it signs.
    #[must_use]
    pub fn role(&self) -> KeyRole {
        self.role
    }

    /// When it is in use.
    #[must_use]
    pub fn times(&self) -> &KeyTimes {
        &self.times
    }

    /// Its key tag (RFC 4034 appendix B).
    #[must_use]
    pub fn tag(&self) -> u16 {
        self.tag
    }

    /// The number of its algorithm.
    #[must_use]
    pub fn algorithm_number(&self) -> u8 {
        self.dnskey[3]
    }

    /// The data of its DNSKEY record.
    #[must_use]
    pub fn dnskey_data(&self) -> &[u8] {
        &self.dnskey
    }

    /// The data of its DS record, by SHA-256.
    //= RFC 4034 section 5.1.4
    //# digest = digest_algorithm( DNSKEY owner name | DNSKEY RDATA);
    #[must_use]
    pub fn ds_data(&self, apex: &Name) -> Vec<u8> {
        let digest = Sha256::new().chain_update(apex.as_wire()).chain_update(&self.dnskey).finalize();
        let mut data = self.tag.to_be_bytes().to_vec();
        data.extend([self.algorithm_number(), DIGEST_SHA256]);
        data.extend_from_slice(&digest);
        data
    }

    /// The data of the DS record that the parent needs, in presentation form.
    #[must_use]
    pub fn ds_value(&self, apex: &Name) -> String {
        let data = self.ds_data(apex);
        let digest: String = data[4..].iter().map(|byte| format!("{byte:02X}")).collect();
        format!("{} {} {DIGEST_SHA256} {digest}", self.tag, self.algorithm_number())
    }

    pub(super) fn sign(&self, message: &[u8]) -> Option<[u8; SIGNATURE_BYTES]> {
        match &self.pair {
            Pair::Ecdsa(pair) => pair.sign(&SystemRandom::new(), message).ok()?.as_ref().try_into().ok(),
            Pair::Ed25519(pair) => pair.try_sign(message).ok()?.as_ref().try_into().ok(),
        }
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("tag", &self.tag).field("role", &self.role).finish_non_exhaustive()
    }
}

//= RFC 4034 appendix B
//# ac += (i & 1) ? key[i] : key[i] << 8;
fn key_tag(dnskey: &[u8]) -> u16 {
    let sum = |sum: u32, (index, byte): (usize, &u8)| {
        sum + if index % 2 == 1 { u32::from(*byte) } else { u32::from(*byte) << 8 }
    };
    let sum = dnskey.iter().enumerate().fold(0, sum);
    ((sum + (sum >> 16)) & 0xffff) as u16
}

#[cfg(test)]
mod tests {
    use base64::{Engine as _, engine::general_purpose::STANDARD};

    use super::*;

    fn key(algorithm: Algorithm, secret: &str) -> SigningKey {
        let secret: [u8; 32] = STANDARD.decode(secret).unwrap().try_into().unwrap();
        SigningKey::from_secret(algorithm, &secret, KeyRole::Combined, KeyTimes::from(0)).unwrap()
    }

    #[test]
    fn the_ds_records_are_those_of_the_rfcs() {
        // RFC 6605 section 6.1.
        let p256 = key(Algorithm::EcdsaP256Sha256, "GU6SnQ/Ou+xC5RumuIUIuJZteXT2z0O/ok1s38Et6mQ=");
        assert_eq!(
            p256.ds_value(&Name::from_text("example.net").unwrap()),
            "55648 13 2 B4C8C1FE2E7477127B27115656AD6256F424625BF5C1E2770CE6D6E37DF61D17"
        );
        // RFC 8080 section 6.1.
        let ed25519 = key(Algorithm::Ed25519, "ODIyNjAzODQ2MjgwODAxMjI2NDUxOTAyMDQxNDIyNjI=");
        assert_eq!(
            ed25519.ds_value(&Name::from_text("example.com").unwrap()),
            "3613 15 2 3AA5AB37EFCE57F737FC1627013FEE07BDF241BD10F3B1964AB55C78E79A304B"
        );
    }

    #[test]
    fn a_secret_that_is_no_scalar_is_refused() {
        for secret in [[0; 32], [0xff; 32]] {
            let key =
                SigningKey::from_secret(Algorithm::EcdsaP256Sha256, &secret, KeyRole::Combined, KeyTimes::from(0));
            assert_eq!(key.err(), Some(KeyError));
        }
    }
}
