//! Key agreement: the public values of both sides, and the shared secret.

use aws_lc_rs::{
    agreement::{self, Algorithm as Curve, ECDH_P256, ECDH_P384, ECDH_P521, EphemeralPrivateKey, X25519},
    digest::{self, SHA256, SHA384, SHA512},
    kem::{EncapsulationKey, ML_KEM_768},
    rand::SystemRandom,
};
use zeroize::Zeroizing;

use crate::algorithms::Method;
use crate::{
    error::{Error, Result},
    wire::Put,
};

/// The length of an encapsulation key of ML-KEM-768, in bytes (FIPS 203 section 8).
const ENCAPSULATION_KEY_BYTES: usize = 1_184;
/// The length of a point of Curve25519, in bytes.
const X25519_BYTES: usize = 32;
const BAD_HALF: Error = Error::KeyExchange("the client's public value is invalid");

impl Method {
    fn hash_algorithm(self) -> &'static digest::Algorithm {
        match self {
            Self::MlKem768X25519 | Self::X25519 | Self::P256 => &SHA256,
            Self::P384 => &SHA384,
            Self::P521 => &SHA512,
        }
    }

    /// The hash function of the exchange and its keys.
    pub(crate) fn hash(self, message: &[u8]) -> Vec<u8> {
        digest::digest(self.hash_algorithm(), message).as_ref().to_vec()
    }
}

/// The shared secret as in the exchange hash and the keys: an mpint, or a string for the hybrid method.
pub(crate) struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    pub(crate) fn number(shared: &[u8]) -> Self {
        let mut encoded = Zeroizing::new(Vec::with_capacity(shared.len() + 5));
        encoded.put_mpint(shared);
        Self(encoded)
    }

    /// Combines both secrets of the hybrid method.
    pub(crate) fn hybrid(quantum: &[u8], classical: &[u8]) -> Self {
        let both = Zeroizing::new([quantum, classical].concat());
        let mut encoded = Zeroizing::new(Vec::with_capacity(36));
        encoded.put_string(digest::digest(&SHA256, &both));
        Self(encoded)
    }

    pub(crate) fn encoded(&self) -> &[u8] {
        &self.0
    }
}

/// The server's public value, and the shared secret.
pub(super) struct Agreed {
    pub(super) server_half: Vec<u8>,
    pub(super) secret: Secret,
}

/// Agrees with the client's public value. AWS-LC draws the randomness itself, which is the only way for ML-KEM.
pub(super) fn agree_as_server(method: Method, theirs: &[u8]) -> Result<Agreed> {
    let on_curve = |curve, theirs: &[u8]| {
        let key = EphemeralPrivateKey::generate(curve, &SystemRandom::new()).map_err(|_| Error::Cipher)?;
        let half = key.compute_public_key().map_err(|_| Error::Cipher)?.as_ref().to_vec();
        let shared = agree(curve, key, theirs).ok_or(BAD_HALF)?;
        Ok::<_, Error>((half, shared))
    };
    let curve = match method {
        Method::MlKem768X25519 => {
            let (quantum, point) = theirs.split_at_checked(ENCAPSULATION_KEY_BYTES).ok_or(BAD_HALF)?;
            let key = EncapsulationKey::new(&ML_KEM_768, quantum).map_err(|_| BAD_HALF)?;
            let (sealed, quantum) = key.encapsulate().map_err(|_| BAD_HALF)?;
            let (half, classical) = on_curve(&X25519, point)?;
            let server_half = [sealed.as_ref(), &half].concat();
            return Ok(Agreed { server_half, secret: Secret::hybrid(quantum.as_ref(), &classical) });
        }
        Method::X25519 => &X25519,
        Method::P256 => &ECDH_P256,
        Method::P384 => &ECDH_P384,
        Method::P521 => &ECDH_P521,
    };
    let (server_half, shared) = on_curve(curve, theirs)?;
    Ok(Agreed { server_half, secret: Secret::number(&shared) })
}

/// The shared secret of a Diffie-Hellman exchange; `None` if the other public value is invalid for this curve.
///
/// A point of NIST's curves is compressed or uncompressed (RFC 5656 section 4). Other encodings, such as DER, which
/// AWS-LC also accepts, are rejected. AWS-LC checks that the point is on the curve, and that the result of X25519 is
/// not zero.
pub fn agree(curve: &'static Curve, secret: EphemeralPrivateKey, theirs: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let is_half = if *curve == X25519 { theirs.len() == X25519_BYTES } else { matches!(theirs.first(), Some(2..=4)) };
    if !is_half {
        return None;
    }
    let theirs = agreement::UnparsedPublicKey::new(curve, theirs);
    agreement::agree_ephemeral(secret, theirs, (), |shared| Ok(Zeroizing::new(shared.to_vec()))).ok()
}
