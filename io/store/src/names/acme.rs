//! Accounts at ACME servers, and the challenges that edges answer now.

use sallyport_model::{AcmeChallenge, ChallengeId};

use crate::db::{
    Store,
    error::StoreError,
    row::{self, DbRow},
    sql,
};

/// Bound on the challenges that edges answer at a time.
pub const MAX_CHALLENGES: usize = 1_000;

impl Store {
    /// The sealed credentials of the account at an ACME server; `key` is its directory and contact.
    ///
    /// # Errors
    /// The database fails.
    pub async fn acme_account(&self, key: &str) -> Result<Option<String>, StoreError> {
        let found = sql::query_scalar("SELECT sealed FROM acme_accounts WHERE directory = $1").bind(key);
        Ok(found.fetch_optional(&self.reader).await?)
    }

    /// Keeps the sealed credentials of an account. The first ones count: returns those that are kept.
    ///
    /// # Errors
    /// The database fails.
    pub async fn keep_acme_account(&self, key: &str, sealed: &str, now: i64) -> Result<String, StoreError> {
        let mut write = self.write().await?;
        sql::query(
            "INSERT INTO acme_accounts (directory, sealed, created_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
        )
        .bind(key)
        .bind(sealed)
        .bind(now)
        .execute(write.sql())
        .await?;
        let kept = sql::query_scalar("SELECT sealed FROM acme_accounts WHERE directory = $1").bind(key);
        let kept = kept.fetch_one(write.sql()).await?;
        write.commit().await?;
        Ok(kept)
    }

    /// Forgets the account at an ACME server, for example because the server does not know it any more.
    ///
    /// # Errors
    /// The database fails.
    pub async fn forget_acme_account(&self, key: &str) -> Result<(), StoreError> {
        let mut write = self.write().await?;
        sql::query("DELETE FROM acme_accounts WHERE directory = $1").bind(key).execute(write.sql()).await?;
        write.commit().await
    }

    /// Adds a challenge for edges, until a time.
    ///
    /// # Errors
    /// [`StoreError::Limit`], or a failure of the database.
    pub async fn put_challenge(&self, challenge: &AcmeChallenge, now: i64, until: i64) -> Result<(), StoreError> {
        let mut write = self.write().await?;
        sql::query("DELETE FROM acme_challenges WHERE expires_at <= $1").bind(now).execute(write.sql()).await?;
        let count = sql::query_scalar::<i64>("SELECT count(*) FROM acme_challenges").fetch_one(write.sql()).await?;
        if usize::try_from(count).is_ok_and(|count| count >= MAX_CHALLENGES) {
            return Err(StoreError::Limit { what: "challenges at a time", max: MAX_CHALLENGES });
        }
        sql::query(
            "INSERT INTO acme_challenges (id, name, kind, token, key_authorization, expires_at)
             VALUES ($1, $2, $3, $4, $5, $6)",
        )
        .bind(challenge.id.as_bytes().as_slice())
        .bind(&challenge.name)
        .bind(challenge.kind.as_str())
        .bind(&challenge.token)
        .bind(&challenge.key_authorization)
        .bind(until)
        .execute(write.sql())
        .await?;
        write.commit().await
    }

    /// Removes a challenge.
    ///
    /// # Errors
    /// The database fails.
    pub async fn delete_challenge(&self, id: ChallengeId) -> Result<(), StoreError> {
        let mut write = self.write().await?;
        sql::query("DELETE FROM acme_challenges WHERE id = $1")
            .bind(id.as_bytes().as_slice())
            .execute(write.sql())
            .await?;
        write.commit().await
    }

    /// The challenges that are not over.
    ///
    /// # Errors
    /// The database fails.
    pub async fn challenges(&self, now: i64) -> Result<Vec<AcmeChallenge>, StoreError> {
        let rows = sql::query("SELECT * FROM acme_challenges WHERE expires_at > $1").bind(now);
        rows.fetch_all(&self.reader).await?.iter().map(challenge).collect()
    }

    /// The challenge with this id, if it is not over.
    ///
    /// # Errors
    /// The database fails.
    pub async fn challenge(&self, id: ChallengeId, now: i64) -> Result<Option<AcmeChallenge>, StoreError> {
        let found = sql::query("SELECT * FROM acme_challenges WHERE id = $1 AND expires_at > $2")
            .bind(id.as_bytes().as_slice())
            .bind(now)
            .fetch_optional(&self.reader)
            .await?;
        found.as_ref().map(challenge).transpose()
    }
}

fn challenge(found: &DbRow) -> Result<AcmeChallenge, StoreError> {
    Ok(AcmeChallenge {
        id: ChallengeId::from_bytes(row::bytes(found, "id")?),
        name: found.try_get("name")?,
        kind: row::parsed(found, "kind")?,
        token: found.try_get("token")?,
        key_authorization: found.try_get("key_authorization")?,
    })
}
