//! The server's host keys.

use aws_lc_rs::{
    encoding::AsBigEndian as _,
    rand::SystemRandom,
    signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, ECDSA_P521_SHA512_FIXED_SIGNING,
        EcdsaKeyPair, Ed25519KeyPair, KeyPair as _,
    },
};
use ssh_key::{
    PrivateKey,
    private::{EcdsaKeypair, EcdsaPrivateKey, Ed25519Keypair, Ed25519PrivateKey, KeypairData},
    public::{EcdsaPublicKey, Ed25519PublicKey},
};
use zeroize::Zeroizing;

use crate::{
    error::{Error, Result},
    wire::Put,
};

/// A host key for signing: Ed25519, or one of NIST's curves.
pub struct HostKey {
    algorithm: &'static str,
    public_blob: Vec<u8>,
    pair: Pair,
}

enum Pair {
    Ed25519(Ed25519KeyPair),
    Ecdsa(EcdsaKeyPair),
}

impl HostKey {
    /// Creates it from a parsed key.
    ///
    /// # Errors
    /// The key is of another kind, or invalid.
    pub fn new(key: &PrivateKey) -> std::result::Result<Self, ssh_key::Error> {
        let (algorithm, pair) = match key.key_data() {
            KeypairData::Ed25519(pair) => {
                let seed = Zeroizing::new(pair.private.to_bytes());
                let made = Ed25519KeyPair::from_seed_and_public_key(&*seed, pair.public.as_ref());
                ("ssh-ed25519", Pair::Ed25519(made.map_err(|_| ssh_key::Error::Crypto)?))
            }
            KeypairData::Ecdsa(pair) => {
                let (name, algorithm, private, public) = match pair {
                    EcdsaKeypair::NistP256 { private, public } => {
                        ("ecdsa-sha2-nistp256", &ECDSA_P256_SHA256_FIXED_SIGNING, private.as_slice(), public.as_bytes())
                    }
                    EcdsaKeypair::NistP384 { private, public } => {
                        ("ecdsa-sha2-nistp384", &ECDSA_P384_SHA384_FIXED_SIGNING, private.as_slice(), public.as_bytes())
                    }
                    EcdsaKeypair::NistP521 { private, public } => {
                        ("ecdsa-sha2-nistp521", &ECDSA_P521_SHA512_FIXED_SIGNING, private.as_slice(), public.as_bytes())
                    }
                };
                let made = EcdsaKeyPair::from_private_key_and_public_key(algorithm, private, public);
                (name, Pair::Ecdsa(made.map_err(|_| ssh_key::Error::Crypto)?))
            }
            _ => return Err(ssh_key::Error::AlgorithmUnsupported { algorithm: key.algorithm() }),
        };
        Ok(Self { algorithm, public_blob: key.public_key().to_bytes()?, pair })
    }

    /// The algorithm name of the key and of its signatures.
    pub fn algorithm(&self) -> &'static str {
        self.algorithm
    }

    pub(crate) fn public_blob(&self) -> &[u8] {
        &self.public_blob
    }

    /// Signs a message; returns the signature with its name, as in messages.
    pub(crate) fn sign(&self, message: &[u8]) -> Result<Vec<u8>> {
        let mut signature = Vec::new();
        signature.put_string(self.algorithm);
        match &self.pair {
            Pair::Ed25519(pair) => signature.put_string(pair.sign(message)),
            Pair::Ecdsa(pair) => {
                let signed = pair.sign(&SystemRandom::new(), message).map_err(|_| Error::Cipher)?;
                let (r, s) = signed.as_ref().split_at(signed.as_ref().len() / 2);
                let mut numbers = Vec::new();
                numbers.put_mpint(r);
                numbers.put_mpint(s);
                signature.put_string(numbers);
            }
        }
        Ok(signature)
    }
}

impl std::fmt::Debug for HostKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostKey").field("algorithm", &self.algorithm).finish_non_exhaustive()
    }
}

/// Derives the Ed25519 key from this seed of 256 random bits.
///
/// # Errors
/// AWS-LC refuses the seed; does not happen with seeds of this length.
pub fn ed25519_from_seed(seed: &[u8; 32]) -> std::result::Result<PrivateKey, ssh_key::Error> {
    let pair = Ed25519KeyPair::from_seed_unchecked(seed).map_err(|_| ssh_key::Error::Crypto)?;
    let public = Ed25519PublicKey::try_from(pair.public_key().as_ref())?;
    PrivateKey::new(Ed25519Keypair { public, private: Ed25519PrivateKey::from_bytes(seed) }.into(), "")
}

/// Generates a P-256 key with AWS-LC's own randomness.
///
/// # Errors
/// There is no randomness.
pub fn new_p256() -> std::result::Result<PrivateKey, ssh_key::Error> {
    let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).map_err(|_| ssh_key::Error::Crypto)?;
    let private = pair.private_key().as_be_bytes().map_err(|_| ssh_key::Error::Crypto)?;
    let private = Zeroizing::new(<[u8; 32]>::try_from(private.as_ref()).map_err(|_| ssh_key::Error::Crypto)?);
    let EcdsaPublicKey::NistP256(public) = EcdsaPublicKey::from_sec1_bytes(pair.public_key().as_ref())? else {
        return Err(ssh_key::Error::Crypto);
    };
    Ok(EcdsaKeypair::NistP256 { public, private: EcdsaPrivateKey::from(*private) }.into())
}
