//! Idempotent creation: the same key with the same request creates once.

use sallyport_model::AccountId;

use super::{SecretHash, Store, error::StoreError, row, sql, write::Write};

/// Time that a key is stored, in seconds.
pub const REMEMBER_KEYS_SECONDS: i64 = 24 * 3_600;
/// Bound on stored keys of one account.
pub const MAX_KEYS_PER_ACCOUNT: usize = 10_000;

/// The idempotency key of a request.
#[derive(Debug, Clone)]
pub struct IdempotencyKey {
    /// The key, as the client chose it.
    pub key: String,
    /// The hash of the request: method, path, organisation and body.
    pub request_hash: SecretHash,
    /// The time of the request, in seconds since 1970.
    pub now: i64,
}

/// The result of a creation.
#[derive(Debug, Clone)]
pub enum Creation<T> {
    /// This request created the thing.
    Made(T),
    /// An earlier request with the same key and content created the thing.
    Repeated(StoredAnswer),
}

/// The stored answer of a creation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredAnswer {
    /// The id of the created thing.
    pub resource: [u8; 16],
    /// The answer; `None` if it held a secret, which is not stored.
    pub answer: Option<String>,
}

/// The state of a reserved key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reservation {
    /// This request has the key from now on: it must settle or release it.
    Reserved,
    /// An earlier request has it, and has not ended, or nobody knows how it ended.
    Pending,
    /// An earlier request has settled it with this answer.
    Settled(String),
}

/// The answer of a reserved key that is not settled.
const PENDING: &str = "";

impl Store {
    /// Reserves a key for one creation, across all processes, unless it is taken.
    ///
    /// For creations whose own transactions do not know the key.
    ///
    /// # Errors
    /// [`StoreError::KeyReused`], [`StoreError::Limit`], or a failure of the database.
    pub async fn reserve_key(&self, account: AccountId, keyed: &IdempotencyKey) -> Result<Reservation, StoreError> {
        let mut write = self.write().await?;
        if let Some(stored) = write.recall(account, Some(keyed)).await? {
            return Ok(match stored.answer.unwrap_or_default() {
                answer if answer == PENDING => Reservation::Pending,
                answer => Reservation::Settled(answer),
            });
        }
        write.remember(account, Some(keyed), [0; 16], Some(PENDING.to_owned())).await?;
        write.commit().await?;
        Ok(Reservation::Reserved)
    }

    /// Settles a reserved key with the answer for repetitions, which holds no secret and is not empty.
    ///
    /// # Errors
    /// The database fails; the key stays reserved then.
    pub async fn settle_key(&self, account: AccountId, key: &str, answer: &str) -> Result<(), StoreError> {
        let mut write = self.write().await?;
        sql::query("UPDATE idempotency_keys SET answer = $3 WHERE account = $1 AND key = $2 AND answer = $4")
            .bind(account.as_bytes().as_slice())
            .bind(key)
            .bind(answer)
            .bind(PENDING)
            .execute(write.sql())
            .await?;
        write.commit().await
    }

    /// Releases a reserved key, because nothing was made.
    ///
    /// # Errors
    /// The database fails; the key stays reserved then.
    pub async fn release_key(&self, account: AccountId, key: &str) -> Result<(), StoreError> {
        let mut write = self.write().await?;
        sql::query("DELETE FROM idempotency_keys WHERE account = $1 AND key = $2 AND answer = $3")
            .bind(account.as_bytes().as_slice())
            .bind(key)
            .bind(PENDING)
            .execute(write.sql())
            .await?;
        write.commit().await
    }
}

impl Write {
    /// The stored result of the key.
    ///
    /// # Errors
    /// [`StoreError::KeyReused`] if the key was used with another request.
    pub(crate) async fn recall(
        &mut self,
        account: AccountId,
        keyed: Option<&IdempotencyKey>,
    ) -> Result<Option<StoredAnswer>, StoreError> {
        let Some(keyed) = keyed else { return Ok(None) };
        let found = sql::query(
            "SELECT request_hash, resource, answer FROM idempotency_keys
             WHERE account = $1 AND key = $2 AND created_at > $3",
        )
        .bind(account.as_bytes().as_slice())
        .bind(&keyed.key)
        .bind(keyed.now - REMEMBER_KEYS_SECONDS)
        .fetch_optional(self.sql())
        .await?;
        let Some(found) = found else { return Ok(None) };
        if row::bytes::<32>(&found, "request_hash")? != keyed.request_hash {
            return Err(StoreError::KeyReused);
        }
        Ok(Some(StoredAnswer { resource: row::bytes(&found, "resource")?, answer: found.try_get("answer")? }))
    }

    /// Stores the result of the key, in the same transaction.
    pub(crate) async fn remember(
        &mut self,
        account: AccountId,
        keyed: Option<&IdempotencyKey>,
        resource: [u8; 16],
        answer: Option<String>,
    ) -> Result<(), StoreError> {
        let Some(keyed) = keyed else { return Ok(()) };
        let (count, what) = (
            "SELECT count(*) FROM idempotency_keys WHERE account = $1",
            "idempotency keys for one account a day: wait, or leave them out",
        );
        self.require_room(count, account.as_bytes(), MAX_KEYS_PER_ACCOUNT, what).await?;
        sql::query(
            "INSERT INTO idempotency_keys (account, key, request_hash, resource, answer, created_at)
             VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (account, key) DO UPDATE
             SET request_hash = excluded.request_hash, resource = excluded.resource, answer = excluded.answer,
                 created_at = excluded.created_at",
        )
        .bind(account.as_bytes().as_slice())
        .bind(&keyed.key)
        .bind(keyed.request_hash.as_slice())
        .bind(resource.as_slice())
        .bind(answer)
        .bind(keyed.now)
        .execute(self.sql())
        .await?;
        Ok(())
    }
}
