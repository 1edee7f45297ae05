//! Password hashing by argon2id with reused memory.
//!
//! One computation takes 19 MiB. Allocating and freeing that much for each of many computations fragments memory. So a
//! [`PasswordMemory`] keeps the memory for the next computation as long as one runs or waits, and frees everything
//! after the last. The caller bounds the number of concurrent computations, and so the memory.

use std::sync::Arc;

use argon2::{
    Algorithm, Argon2, Block, Params, Version,
    password_hash::phc::{Output, ParamsString, PasswordHash, Salt},
};
use parking_lot::{Mutex, MutexGuard};
use subtle::ConstantTimeEq as _;

/// Memory of one hash in KiB. The parameters are those of the OWASP Password Storage Cheat Sheet for argon2id: 19 MiB,
/// two passes, one lane.
pub const MEMORY_KIB: u32 = 19_456;
/// Passes over the memory.
pub const PASSES: u32 = 2;
/// Lanes of the memory.
pub const LANES: u32 = 1;
/// The length of a hash, in bytes.
pub const HASH_BYTES: usize = 32;
/// The most memory that a verified hash may need, in KiB.
const MAX_MEMORY_KIB: u32 = 64 * 1024;

/// The password cannot be hashed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the password cannot be hashed: {0}")]
pub struct HashError(String);

impl HashError {
    fn new(error: impl std::fmt::Display) -> Self {
        Self(error.to_string())
    }
}

/// The reused memory of computations.
#[derive(Debug, Default)]
pub struct PasswordMemory {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Number of running and waiting computations.
    users: usize,
    /// Free memory.
    spare: Vec<Vec<Block>>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("users", &self.users).field("spare", &self.spare.len()).finish()
    }
}

/// Registration of a running or waiting computation; until the last is dropped, free memory is kept.
#[derive(Debug)]
pub struct PasswordUser(Arc<PasswordMemory>);

impl PasswordMemory {
    /// Registers a computation. Call before it waits for its turn.
    #[must_use]
    pub fn enter(self: &Arc<Self>) -> PasswordUser {
        self.lock().users += 1;
        PasswordUser(self.clone())
    }

    /// Size of the free memory, in bytes: 0 without registrations.
    #[must_use]
    pub fn spare_bytes(&self) -> usize {
        self.lock().spare.iter().map(|blocks| blocks.capacity() * Block::SIZE).sum()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl PasswordUser {
    /// Hashes the password with this random salt; returns a PHC string.
    ///
    /// # Errors
    /// The salt is shorter than 8 bytes or longer than 64.
    pub fn hash(&self, password: &[u8], salt: &[u8]) -> Result<String, HashError> {
        let params = Params::new(MEMORY_KIB, PASSES, LANES, None).map_err(HashError::new)?;
        let salt = Salt::new(salt).map_err(HashError::new)?;
        let mut out = [0; HASH_BYTES];
        let written = ParamsString::try_from(&params).map_err(HashError::new)?;
        let argon = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
        self.compute(&argon, password, &salt, &mut out).map_err(HashError::new)?;
        let hash = PasswordHash {
            algorithm: Algorithm::Argon2id.ident(),
            version: Some(Version::V0x13.into()),
            params: written,
            salt: Some(salt),
            hash: Some(Output::new(&out).map_err(HashError::new)?),
        };
        Ok(hash.to_string())
    }

    /// Whether the password matches the hash. A malformed hash, or one that needs too much memory, matches nothing.
    #[must_use]
    pub fn verify(&self, password: &[u8], hash: &str) -> bool {
        self.verify_with(password, hash).unwrap_or(false)
    }

    fn verify_with(&self, password: &[u8], hash: &str) -> Option<bool> {
        let hash = PasswordHash::new(hash).ok()?;
        let (salt, expected) = (hash.salt?, hash.hash?);
        let algorithm = Algorithm::try_from(hash.algorithm.as_str()).ok()?;
        let version = hash.version.map_or(Ok(Version::default()), Version::try_from).ok()?;
        let params = Params::try_from(&hash).ok().filter(|params| params.m_cost() <= MAX_MEMORY_KIB)?;
        let mut out = [0; Output::MAX_LENGTH];
        let out = out.get_mut(..expected.as_bytes().len())?;
        self.compute(&Argon2::new(algorithm, version, params), password, &salt, out).ok()?;
        Some(out.ct_eq(expected.as_bytes()).into())
    }

    fn compute(&self, argon: &Argon2<'_>, password: &[u8], salt: &[u8], out: &mut [u8]) -> argon2::Result<()> {
        let count = argon.params().block_count();
        let mut blocks = self.0.lock().spare.pop().unwrap_or_default();
        if blocks.len() < count {
            // Allocated anew: growing would copy unused data.
            blocks = vec![Block::new(); count];
        }
        let computed = argon.hash_password_into_with_memory(password, salt, out, &mut blocks[..count]);
        self.0.lock().spare.push(blocks);
        computed
    }
}

impl Drop for PasswordUser {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.users -= 1;
        let unused = if state.users == 0 { std::mem::take(&mut state.spare) } else { Vec::new() };
        drop(state);
        drop(unused);
    }
}

#[cfg(test)]
mod tests {
    use argon2::{PasswordHasher, PasswordVerifier};

    use super::*;

    const SALT: &[u8] = b"salt-for-tests";

    fn cheap(password: &str, memory_kib: u32) -> String {
        let params = Params::new(memory_kib, 1, 1, None).unwrap();
        let argon = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
        argon.hash_password_with_salt(password.as_bytes(), SALT).unwrap().to_string()
    }

    #[test]
    fn a_hash_is_what_the_library_says_it_is() {
        let user = Arc::<PasswordMemory>::default().enter();
        let hash = user.hash(b"correct horse", SALT).unwrap();
        assert!(hash.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{hash}");
        let params = Params::new(MEMORY_KIB, PASSES, LANES, None).unwrap();
        let argon = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
        assert_eq!(argon.hash_password_with_salt(b"correct horse", SALT).unwrap().to_string(), hash);
        assert!(PasswordVerifier::<str>::verify_password(&argon, b"correct horse", &hash).is_ok());
        assert!(user.verify(b"correct horse", &hash));
        assert!(!user.verify(b"wrong horse", &hash));
    }

    #[test]
    fn memory_that_was_used_for_one_password_changes_nothing_for_the_next() {
        let memory = Arc::<PasswordMemory>::default();
        let user = memory.enter();
        let (large, small) = (cheap("one", 64), cheap("two", 8));
        for _ in 0..3 {
            assert!(user.verify(b"one", &large) && user.verify(b"two", &small));
            assert!(!user.verify(b"two", &large) && !user.verify(b"one", &small));
        }
        assert_eq!(memory.spare_bytes(), 64 * 1024, "consecutive computations reused it");
    }

    #[test]
    fn memory_is_kept_only_while_a_caller_waits() {
        let memory = Arc::<PasswordMemory>::default();
        let (one, waiting) = (memory.enter(), memory.enter());
        assert!(one.verify(b"one", &cheap("one", 8)));
        drop(one);
        assert_eq!(memory.spare_bytes(), 8 * 1024);
        drop(waiting);
        assert_eq!(memory.spare_bytes(), 0);
    }

    #[test]
    fn an_invalid_hash_matches_no_password() {
        let memory = Arc::<PasswordMemory>::default();
        let user = memory.enter();
        let hash = cheap("one", 8);
        let greedy = hash.replace("m=8,", "m=4194304,");
        assert_ne!(greedy, hash);
        for bad in ["", "x", "$argon2id$", "$argon2id$v=19$m=8,t=1,p=1$c2FsdA", &hash[..hash.len() - 4], &greedy] {
            assert!(!user.verify(b"one", bad), "{bad}");
        }
        assert!(memory.spare_bytes() <= 8 * 1024, "no large memory was allocated for it");
        assert!(user.hash(b"one", b"short").is_err());
    }
}
