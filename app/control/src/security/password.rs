//! Passwords: argon2id, a few at a time.

use std::{sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use sallyport_api::Secret;
use sallyport_password::{HASH_BYTES, LANES, MEMORY_KIB, PASSES, PasswordMemory, PasswordUser};
use tokio::sync::Semaphore;

use super::random;
use crate::problem::ApiError;

/// How many hashes are computed at once; each takes a core and 19 MiB.
const MAX_AT_ONCE: usize = 4;
/// How long a request waits for its turn.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// Hashes and verifies passwords.
#[derive(Clone)]
pub(crate) struct Passwords {
    turns: Arc<Semaphore>,
    memory: Arc<PasswordMemory>,
    /// A hash to verify for an unknown account, so that the time does not reveal the account.
    dummy: Arc<str>,
}

impl Passwords {
    /// Makes the dummy hash from random bytes, so that the start computes no hash.
    pub(crate) fn start() -> Result<Self, ApiError> {
        let (salt, hash) = (random::bytes::<16>()?, random::bytes::<HASH_BYTES>()?);
        let (salt, hash) = (STANDARD_NO_PAD.encode(salt), STANDARD_NO_PAD.encode(hash));
        let dummy = format!("$argon2id$v=19$m={MEMORY_KIB},t={PASSES},p={LANES}${salt}${hash}");
        let turns = Arc::new(Semaphore::new(MAX_AT_ONCE));
        Ok(Self { turns, memory: Arc::default(), dummy: dummy.into() })
    }

    /// The password as an argon2id PHC string with a salt of its own.
    pub(crate) async fn hash(&self, password: Secret) -> Result<String, ApiError> {
        let salt = random::bytes::<16>()?;
        self.in_turn(move |user| user.hash(password.expose().as_bytes(), &salt).map_err(ApiError::internal)).await
    }

    /// Whether the password matches this hash. `None` takes as long, and never matches.
    pub(crate) async fn verify(&self, password: Secret, hash: Option<String>) -> Result<bool, ApiError> {
        let known = hash.is_some();
        let hash = hash.unwrap_or_else(|| self.dummy.to_string());
        self.in_turn(move |user| Ok(user.verify(password.expose().as_bytes(), &hash) && known)).await
    }

    async fn in_turn<T: Send + 'static>(
        &self,
        work: impl FnOnce(&PasswordUser) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        // Entered here, so that the memory of one computation serves the next.
        let user = self.memory.enter();
        let turn = tokio::time::timeout(MAX_WAIT, self.turns.clone().acquire_owned()).await;
        let Ok(Ok(turn)) = turn else { return Err(ApiError::busy()) };
        tokio::task::spawn_blocking(move || {
            let done = work(&user);
            drop((user, turn));
            done
        })
        .await
        .map_err(ApiError::internal)?
    }
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
        assert_eq!(lengths(dummy), lengths(shape), "the hash for an unknown person takes as long as any other");
        // The hash of random bytes can be verified, and matches no password.
        assert!(!passwords.memory.enter().verify(b"correct horse", &passwords.dummy));
        assert_ne!(passwords.hash("correct horse".into()).await.unwrap(), hash, "each hash has its own salt");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn many_at_once_take_as_much_memory_as_a_few_and_leave_none() {
        let passwords = Passwords::start().unwrap();
        let mut all = tokio::task::JoinSet::new();
        for _ in 0..3 * MAX_AT_ONCE {
            let passwords = passwords.clone();
            all.spawn(async move { passwords.verify("correct horse".into(), None).await.unwrap() });
        }
        let at_once = MAX_AT_ONCE * usize::try_from(MEMORY_KIB).unwrap() * 1024;
        let mut most = 0;
        while let Some(is_right) = all.join_next().await {
            assert!(!is_right.unwrap());
            most = most.max(passwords.memory.spare_bytes());
        }
        assert!((1..=at_once).contains(&most), "{most} bytes were kept for those that waited");
        assert_eq!(passwords.memory.spare_bytes(), 0);
    }
}
