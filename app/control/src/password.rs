//! Passwords: argon2id, a few at a time.

use std::{sync::Arc, time::Duration};

use argon2::{
    Algorithm, Argon2, Params, Version,
    password_hash::{PasswordHasher, PasswordVerifier},
};
use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use sallyport_api::Secret;
use tokio::sync::Semaphore;

use crate::{problem::ApiError, random};

/// Parameters of the OWASP Password Storage Cheat Sheet for argon2id: 19 MiB, two passes, one lane.
const MEMORY_KIB: u32 = 19_456;
const PASSES: u32 = 2;
const LANES: u32 = 1;
/// The length of a hash, in bytes.
const HASH_BYTES: usize = 32;
/// How many hashes are computed at once; each takes a core and 19 MiB.
const MAX_AT_ONCE: usize = 4;
/// How long a request waits for its turn.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// Hashes and verifies passwords.
#[derive(Clone)]
pub(crate) struct Passwords {
    turns: Arc<Semaphore>,
    /// Verified when there is no account, so that the time taken does not tell.
    dummy: Arc<str>,
}

impl Passwords {
    /// Makes the dummy hash: random bytes in the place of a password's, so that nothing is hashed at the start.
    pub(crate) fn start() -> Result<Self, ApiError> {
        let (salt, hash) = (random::bytes::<16>()?, random::bytes::<HASH_BYTES>()?);
        let (salt, hash) = (STANDARD_NO_PAD.encode(salt), STANDARD_NO_PAD.encode(hash));
        let dummy = format!("$argon2id$v=19$m={MEMORY_KIB},t={PASSES},p={LANES}${salt}${hash}");
        Ok(Self { turns: Arc::new(Semaphore::new(MAX_AT_ONCE)), dummy: dummy.into() })
    }

    /// The password as an argon2id PHC string with a salt of its own.
    pub(crate) async fn hash(&self, password: Secret) -> Result<String, ApiError> {
        let salt = random::bytes::<16>()?;
        self.in_turn(move || {
            let hash = argon2()?.hash_password_with_salt(password.expose().as_bytes(), &salt);
            hash.map(|hash| hash.to_string()).map_err(ApiError::internal)
        })
        .await
    }

    /// Whether the password is the one of this hash; `None` takes as long and is never right.
    pub(crate) async fn verify(&self, password: Secret, hash: Option<String>) -> Result<bool, ApiError> {
        let known = hash.is_some();
        let hash = hash.unwrap_or_else(|| self.dummy.to_string());
        self.in_turn(
            move || Ok(argon2()?.verify_password(password.expose().as_bytes(), hash.as_str()).is_ok() && known),
        )
        .await
    }

    async fn in_turn<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let turn = tokio::time::timeout(MAX_WAIT, self.turns.clone().acquire_owned()).await;
        let Ok(Ok(turn)) = turn else { return Err(ApiError::busy()) };
        tokio::task::spawn_blocking(move || {
            let done = work();
            drop(turn);
            done
        })
        .await
        .map_err(ApiError::internal)?
    }
}

fn argon2() -> Result<Argon2<'static>, ApiError> {
    let params = Params::new(MEMORY_KIB, PASSES, LANES, None).map_err(ApiError::internal)?;
    Ok(Argon2::new(Algorithm::Argon2id, Version::V0x13, params))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_the_right_password_of_an_account_is_right() {
        let passwords = Passwords::start().unwrap();
        let hash = passwords.hash("correct horse".into()).await.unwrap();
        assert!(hash.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{hash}");
        assert!(passwords.verify("correct horse".into(), Some(hash.clone())).await.unwrap());
        assert!(!passwords.verify("wrong horse".into(), Some(hash.clone())).await.unwrap());
        assert!(!passwords.verify("correct horse".into(), None).await.unwrap());
        assert!(!passwords.verify("correct horse".into(), Some("not a hash".into())).await.unwrap());
        let (dummy, shape) = (passwords.dummy.split('$'), hash.split('$'));
        let lengths = |parts: std::str::Split<'_, char>| parts.map(str::len).collect::<Vec<_>>();
        assert_eq!(lengths(dummy), lengths(shape), "a hash of nobody takes as long as any other");
        assert!(argon2::password_hash::phc::PasswordHash::new(&passwords.dummy).is_ok(), "{}", passwords.dummy);
        assert_ne!(passwords.hash("correct horse".into()).await.unwrap(), hash, "each hash has its own salt");
    }
}
