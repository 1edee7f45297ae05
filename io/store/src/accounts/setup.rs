//! The setup token, required for the first account of a server that is reachable by others.

use crate::db::{SecretHash, Store, error::StoreError, row, sql, write::Write};

/// A stored setup token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredSetupToken {
    /// SHA-256 of it.
    pub hash: SecretHash,
    /// The token, sealed by the caller, so that all controls can show the same one.
    pub sealed: String,
}

impl Store {
    /// Stores a setup token, unless there is one; returns the valid one. `None` once there is an account.
    ///
    /// # Errors
    /// The database fails.
    pub async fn keep_setup_token(&self, new: &StoredSetupToken) -> Result<Option<StoredSetupToken>, StoreError> {
        self.put_setup_token(new, false).await
    }

    /// Replaces a setup token that can no longer be decrypted; returns the valid one.
    ///
    /// # Errors
    /// The database fails.
    pub async fn replace_setup_token(&self, new: &StoredSetupToken) -> Result<Option<StoredSetupToken>, StoreError> {
        self.put_setup_token(new, true).await
    }

    async fn put_setup_token(
        &self,
        new: &StoredSetupToken,
        replaces: bool,
    ) -> Result<Option<StoredSetupToken>, StoreError> {
        let mut write = self.write().await?;
        if has_accounts(&mut write).await? {
            forget(&mut write).await?;
            write.commit().await?;
            return Ok(None);
        }
        if replaces {
            forget(&mut write).await?;
        }
        sql::query("INSERT INTO setup_token (hash, sealed) SELECT $1, $2 WHERE NOT EXISTS (SELECT 1 FROM setup_token)")
            .bind(new.hash.as_slice())
            .bind(&new.sealed)
            .execute(write.sql())
            .await?;
        let found = sql::query("SELECT hash, sealed FROM setup_token").fetch_one(write.sql()).await?;
        let kept = StoredSetupToken { hash: row::bytes(&found, "hash")?, sealed: found.try_get("sealed")? };
        write.commit().await?;
        Ok(Some(kept))
    }

    /// Whether this is the hash of the setup token.
    ///
    /// # Errors
    /// The database fails.
    pub async fn is_setup_token(&self, hash: SecretHash) -> Result<bool, StoreError> {
        let count: i64 = sql::query_scalar("SELECT count(*) FROM setup_token WHERE hash = $1")
            .bind(hash.as_slice())
            .fetch_one(&self.reader)
            .await?;
        Ok(count > 0)
    }
}

/// Whether there is an account, besides the guest account.
pub(crate) async fn has_accounts(write: &mut Write) -> Result<bool, StoreError> {
    let count: i64 =
        sql::query_scalar("SELECT count(*) FROM accounts WHERE email_key <> ''").fetch_one(write.sql()).await?;
    Ok(count > 0)
}

/// Uses up the setup token with this hash. Returns whether it existed.
pub(crate) async fn take(write: &mut Write, hash: SecretHash) -> Result<bool, StoreError> {
    let taken = sql::query("DELETE FROM setup_token WHERE hash = $1").bind(hash.as_slice());
    Ok(taken.execute(write.sql()).await?.rows_affected() > 0)
}

/// Removes the setup token.
pub(crate) async fn forget(write: &mut Write) -> Result<(), StoreError> {
    sql::query("DELETE FROM setup_token").execute(write.sql()).await?;
    Ok(())
}
