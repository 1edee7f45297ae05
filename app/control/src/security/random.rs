//! Random numbers of the operating system, and secrets made of them.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use sallyport_api::Secret;
use sallyport_store::SecretHash;
use sha2::{Digest, Sha256};

use crate::problem::ApiError;

/// Random bytes of the operating system.
///
/// # Errors
/// The operating system gives none.
pub(crate) fn bytes<const N: usize>() -> Result<[u8; N], getrandom::Error> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)?;
    Ok(bytes)
}

/// A secret of 256 random bits with a prefix for its kind, and the hash to store.
pub(crate) fn secret(prefix: &str) -> Result<(Secret, SecretHash), ApiError> {
    let text = format!("{prefix}{}", URL_SAFE_NO_PAD.encode(bytes::<32>()?));
    let hash = hash(&text);
    Ok((Secret::from(text), hash))
}

/// The hash under which a secret is stored.
pub(crate) fn hash(secret: &str) -> SecretHash {
    Sha256::digest(secret.as_bytes()).into()
}
