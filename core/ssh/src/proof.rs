//! Verification of signatures of users and authorities, by AWS-LC.

use aws_lc_rs::{
    digest::{SHA256, digest},
    signature::{
        ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ECDSA_P521_SHA512_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256,
        RSA_PKCS1_2048_8192_SHA512, RsaPublicKeyComponents, UnparsedPublicKey,
    },
};
use ssh_key::{
    Algorithm, Certificate, EcdsaCurve, HashAlg, Mpint, Signature,
    encoding::{Decode as _, Encode as _},
    public::{EcdsaPublicKey, KeyData},
};

pub use crate::{
    host_key::{ed25519_from_seed, new_p256},
    kex::agree,
};

/// Length of the trailer of a security key's signature: flags, and a counter (PROTOCOL.u2f of OpenSSH).
const SK_TRAILER_BYTES: usize = 5;

/// Whether this key signed the message. RSA keys must have 2,048 to 8,192 bits, and SHA-1 is rejected.
pub fn is_signed(key: &KeyData, message: &[u8], signature: &Signature) -> bool {
    let (algorithm, blob) = (signature.algorithm(), signature.as_bytes());
    match (key, algorithm) {
        (KeyData::Ed25519(key), Algorithm::Ed25519) => {
            UnparsedPublicKey::new(&ED25519, key.as_ref()).verify(message, blob).is_ok()
        }
        (KeyData::SkEd25519(key), Algorithm::SkEd25519) => by_security_key(key.application(), message, blob)
            .is_some_and(|(signed, blob)| {
                UnparsedPublicKey::new(&ED25519, key.public_key().as_ref()).verify(&signed, blob).is_ok()
            }),
        (KeyData::Ecdsa(key), Algorithm::Ecdsa { curve }) if key.curve() == curve => {
            is_signed_on_curve(curve, key.as_sec1_bytes(), message, blob)
        }
        (KeyData::SkEcdsaSha2NistP256(key), Algorithm::SkEcdsaSha2NistP256) => {
            let point = EcdsaPublicKey::NistP256(*key.ec_point());
            by_security_key(key.application(), message, blob).is_some_and(|(signed, blob)| {
                is_signed_on_curve(EcdsaCurve::NistP256, point.as_sec1_bytes(), &signed, blob)
            })
        }
        (KeyData::Rsa(key), Algorithm::Rsa { hash }) => {
            let parameters = match hash {
                Some(HashAlg::Sha512) => &RSA_PKCS1_2048_8192_SHA512,
                Some(HashAlg::Sha256) => &RSA_PKCS1_2048_8192_SHA256,
                // `ssh-rsa` is SHA-1.
                _ => return false,
            };
            let (Some(n), Some(e)) = (key.n().as_positive_bytes(), key.e().as_positive_bytes()) else { return false };
            // Some clients omit leading zeros.
            let Some(missing) = n.len().checked_sub(blob.len()) else { return false };
            let mut whole = vec![0; missing];
            whole.extend_from_slice(blob);
            RsaPublicKeyComponents { n, e }.verify(parameters, message, &whole).is_ok()
        }
        _ => false,
    }
}

/// The data that a security key signs for a message, and the signature without its trailer; `None` if the key was not
/// touched. OpenSSH's server also requires the touch, unless `no-touch-required` is set.
fn by_security_key<'a>(application: &str, message: &[u8], blob: &'a [u8]) -> Option<(Vec<u8>, &'a [u8])> {
    let (blob, trailer) = blob.split_last_chunk::<SK_TRAILER_BYTES>()?;
    // The lowest bit is FIDO's user presence.
    let is_touched = trailer[0] & 1 == 1;
    let application = digest(&SHA256, application.as_bytes());
    is_touched.then(|| ([application.as_ref(), trailer, digest(&SHA256, message).as_ref()].concat(), blob))
}

/// Whether the authority that a certificate names has signed it. The caller decides whether to trust that authority.
pub fn is_certified(certificate: &Certificate) -> bool {
    // The signature is the last field, and covers all before it (PROTOCOL.certkeys of OpenSSH).
    let signed = || {
        let mut whole = certificate.to_bytes().ok()?;
        let last = certificate.signature().encoded_len_prefixed().ok()?;
        whole.truncate(whole.len().checked_sub(last)?);
        Some(whole)
    };
    signed().is_some_and(|signed| is_signed(certificate.signature_key(), &signed, certificate.signature()))
}

/// `point` and `blob` are encoded as in SSH (RFC 5656 section 3.1).
fn is_signed_on_curve(curve: EcdsaCurve, point: &[u8], message: &[u8], blob: &[u8]) -> bool {
    let (algorithm, size) = match curve {
        EcdsaCurve::NistP256 => (&ECDSA_P256_SHA256_FIXED, 32),
        EcdsaCurve::NistP384 => (&ECDSA_P384_SHA384_FIXED, 48),
        EcdsaCurve::NistP521 => (&ECDSA_P521_SHA512_FIXED, 66),
    };
    fixed(blob, size).is_some_and(|fixed| UnparsedPublicKey::new(algorithm, point).verify(message, &fixed).is_ok())
}

/// The two numbers of a signature, each padded to the size of the curve's field.
fn fixed(mut blob: &[u8], size: usize) -> Option<Vec<u8>> {
    let reader = &mut blob;
    let mut out = Vec::with_capacity(2 * size);
    for _ in 0..2 {
        let number = Mpint::decode(reader).ok()?;
        let bytes = number.as_positive_bytes()?;
        out.resize(out.len() + size.checked_sub(bytes.len())?, 0);
        out.extend_from_slice(bytes);
    }
    reader.is_empty().then_some(out)
}
