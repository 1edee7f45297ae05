//! Signatures by AWS-LC, so that its arithmetic of NIST's curves and of RSA is the only one in the program.

use aws_lc_rs::agreement::{self, Algorithm as Curve, EphemeralPrivateKey};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{self as lc, EcdsaKeyPair, UnparsedPublicKey};
use sha2::{Digest, Sha256};
use signature::{Signer, Verifier};
use ssh_encoding::{Decode, Encode};
use ssh_key::private::{EcdsaKeypair, EcdsaPrivateKey, KeypairData};
use ssh_key::public::{EcdsaPublicKey, KeyData};
use ssh_key::{Algorithm, Certificate, EcdsaCurve, Error, HashAlg, Mpint, PrivateKey, Signature};
use zeroize::Zeroizing;

/// What follows a signature by a security key: a byte of flags, and a counter (PROTOCOL.u2f of OpenSSH).
const SK_TRAILER_BYTES: usize = 5;

/// Whether the owner of this key has signed the message.
pub fn is_signed(key: &KeyData, message: &[u8], signature: &Signature) -> bool {
    let (algorithm, blob) = (signature.algorithm(), signature.as_bytes());
    match (key, algorithm) {
        (KeyData::Ed25519(key), Algorithm::Ed25519) => key.verify(message, signature).is_ok(),
        (KeyData::SkEd25519(key), Algorithm::SkEd25519) => {
            blob.last_chunk().is_some_and(was_touched) && key.verify(message, signature).is_ok()
        }
        (KeyData::Ecdsa(key), Algorithm::Ecdsa { curve }) if key.curve() == curve => {
            is_signed_on_curve(curve, key.as_sec1_bytes(), message, blob)
        }
        (KeyData::SkEcdsaSha2NistP256(key), Algorithm::SkEcdsaSha2NistP256) => {
            let Some((blob, trailer)) = blob.split_last_chunk::<SK_TRAILER_BYTES>() else {
                return false;
            };
            if !was_touched(trailer) {
                return false;
            }
            let mut signed = Sha256::digest(key.application()).to_vec();
            signed.extend_from_slice(trailer);
            signed.extend_from_slice(&Sha256::digest(message));
            let point = EcdsaPublicKey::NistP256(*key.ec_point());
            is_signed_on_curve(EcdsaCurve::NistP256, point.as_sec1_bytes(), &signed, blob)
        }
        (KeyData::Rsa(key), Algorithm::Rsa { hash }) => {
            let parameters = match hash {
                Some(HashAlg::Sha512) => &lc::RSA_PKCS1_2048_8192_SHA512,
                Some(HashAlg::Sha256) => &lc::RSA_PKCS1_2048_8192_SHA256,
                // `ssh-rsa` is SHA-1.
                _ => return false,
            };
            let (Some(n), Some(e)) = (key.n().as_positive_bytes(), key.e().as_positive_bytes()) else {
                return false;
            };
            // Some leave out the zeros at its beginning.
            let Some(missing) = n.len().checked_sub(blob.len()) else {
                return false;
            };
            let mut whole = vec![0; missing];
            whole.extend_from_slice(blob);
            lc::RsaPublicKeyComponents { n, e }.verify(parameters, message, &whole).is_ok()
        }
        _ => false,
    }
}

/// Whether whoever has the security key was there and touched it: the bit of FIDO for user presence, which OpenSSH's server
/// demands too where nobody said `no-touch-required`.
fn was_touched(trailer: &[u8; SK_TRAILER_BYTES]) -> bool {
    trailer[0] & 1 == 1
}

/// What both sides of a key exchange know. The other's point is compressed or not (RFC 5656 section 4), and nothing else, such
/// as a structure in DER, which AWS-LC takes too; that it is on the curve is checked by AWS-LC.
pub fn agree(curve: &'static Curve, secret: EphemeralPrivateKey, point: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    if !matches!(point.first(), Some(2..=4)) {
        return None;
    }
    let point = agreement::UnparsedPublicKey::new(curve, point);
    agreement::agree_ephemeral(secret, &point, (), |shared| Ok(Zeroizing::new(shared.to_vec()))).ok()
}

/// Whether the authority that a certificate names has signed it; whether that authority is trusted is for others to say.
pub fn is_certified(certificate: &Certificate) -> bool {
    let signed = || -> Result<Vec<u8>, Error> {
        // The signature is the last field, and signs all before it (PROTOCOL.certkeys of OpenSSH).
        let mut whole = certificate.to_bytes()?;
        let last = certificate.signature().encoded_len_prefixed()?;
        whole.truncate(whole.len().checked_sub(last).ok_or(Error::CertificateValidation)?);
        Ok(whole)
    };
    signed().is_ok_and(|signed| is_signed(certificate.signature_key(), &signed, certificate.signature()))
}

/// Signs as the host with this key: Ed25519 or one of NIST's curves.
pub(crate) fn sign_as_host(key: &PrivateKey, message: &[u8]) -> Result<Vec<u8>, Error> {
    let signature = match key.key_data() {
        KeypairData::Ed25519(pair) => pair.try_sign(message)?,
        KeypairData::Ecdsa(pair) => sign_on_curve(pair, message)?,
        _ => return Err(Error::AlgorithmUnsupported { algorithm: key.algorithm() }),
    };
    Ok(signature.encode_vec()?)
}

/// A new key of the curve P-256.
///
/// # Errors
/// There are no random numbers.
pub fn new_p256() -> Result<PrivateKey, Error> {
    use aws_lc_rs::encoding::AsBigEndian as _;
    use lc::KeyPair as _;

    let pair = EcdsaKeyPair::generate(&lc::ECDSA_P256_SHA256_FIXED_SIGNING).map_err(|_| Error::Crypto)?;
    let private = pair.private_key().as_be_bytes().map_err(|_| Error::Crypto)?;
    let private = Zeroizing::new(<[u8; 32]>::try_from(private.as_ref()).map_err(|_| Error::Crypto)?);
    let EcdsaPublicKey::NistP256(public) = EcdsaPublicKey::from_sec1_bytes(pair.public_key().as_ref())? else {
        return Err(Error::Crypto);
    };
    Ok(EcdsaKeypair::NistP256 { public, private: EcdsaPrivateKey::from(*private) }.into())
}

fn sign_on_curve(pair: &EcdsaKeypair, message: &[u8]) -> Result<Signature, Error> {
    let (algorithm, private, public) = match pair {
        EcdsaKeypair::NistP256 { private, public } => {
            (&lc::ECDSA_P256_SHA256_FIXED_SIGNING, private.as_slice(), public.as_bytes())
        }
        EcdsaKeypair::NistP384 { private, public } => {
            (&lc::ECDSA_P384_SHA384_FIXED_SIGNING, private.as_slice(), public.as_bytes())
        }
        EcdsaKeypair::NistP521 { private, public } => {
            (&lc::ECDSA_P521_SHA512_FIXED_SIGNING, private.as_slice(), public.as_bytes())
        }
    };
    let lc_pair = EcdsaKeyPair::from_private_key_and_public_key(algorithm, private, public).map_err(|_| Error::Crypto)?;
    let signed = lc_pair.sign(&SystemRandom::new(), message).map_err(|_| Error::Crypto)?;
    let (r, s) = signed.as_ref().split_at(signed.as_ref().len() / 2);
    let mut blob = Vec::new();
    Mpint::from_positive_bytes(r).encode(&mut blob)?;
    Mpint::from_positive_bytes(s).encode(&mut blob)?;
    Signature::new(pair.algorithm(), blob)
}

/// `point` and `blob` are as SSH has them (RFC 5656 section 3.1).
fn is_signed_on_curve(curve: EcdsaCurve, point: &[u8], message: &[u8], blob: &[u8]) -> bool {
    let (algorithm, size) = match curve {
        EcdsaCurve::NistP256 => (&lc::ECDSA_P256_SHA256_FIXED, 32),
        EcdsaCurve::NistP384 => (&lc::ECDSA_P384_SHA384_FIXED, 48),
        EcdsaCurve::NistP521 => (&lc::ECDSA_P521_SHA512_FIXED, 66),
    };
    fixed(blob, size)
        .is_some_and(|fixed| UnparsedPublicKey::new(algorithm, point).verify(message, &fixed).is_ok())
}

/// The two numbers of a signature, each filled up to the size of the curve's field.
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
