//! States and codes that are valid once, and have been used.

use sallyport_model::AccountId;

use crate::db::{Store, error::StoreError, sql};

/// Bound on stored used ones of one organisation. At the limit no more are accepted until the oldest expire.
pub const MAX_USED_ONCE_PER_ORGANISATION: usize = 50_000;

impl Store {
    /// Whether this was used, and has not expired.
    ///
    /// # Errors
    /// The database fails.
    pub async fn is_used(&self, organisation: AccountId, id: [u8; 16], now: i64) -> Result<bool, StoreError> {
        let count: i64 =
            sql::query_scalar("SELECT count(*) FROM used_once WHERE id = $1 AND organisation = $2 AND expires_at > $3")
                .bind(id.as_slice())
                .bind(organisation.as_bytes().as_slice())
                .bind(now)
                .fetch_one(&self.reader)
                .await?;
        Ok(count > 0)
    }

    /// Records the use of something that is valid once, until `expires_at`. Returns whether this is the first use,
    /// across restarts and all processes on the database.
    ///
    /// # Errors
    /// [`StoreError::Limit`], or a failure of the database; the use was not recorded then.
    pub async fn use_once(
        &self,
        organisation: AccountId,
        id: [u8; 16],
        expires_at: i64,
        now: i64,
    ) -> Result<bool, StoreError> {
        let mut write = self.write().await?;
        let count: i64 =
            sql::query_scalar("SELECT count(*) FROM used_once WHERE organisation = $1 AND expires_at > $2")
                .bind(organisation.as_bytes().as_slice())
                .bind(now)
                .fetch_one(write.sql())
                .await?;
        if count >= MAX_USED_ONCE_PER_ORGANISATION as i64 {
            return Err(StoreError::Limit {
                what: "logins at once: try again in some minutes",
                max: MAX_USED_ONCE_PER_ORGANISATION,
            });
        }
        let inserted = sql::query(
            "INSERT INTO used_once (id, organisation, expires_at) SELECT $1, id, $3 FROM accounts WHERE id = $2
             ON CONFLICT DO NOTHING",
        )
        .bind(id.as_slice())
        .bind(organisation.as_bytes().as_slice())
        .bind(expires_at)
        .execute(write.sql())
        .await?;
        write.commit().await?;
        Ok(inserted.rows_affected() > 0)
    }
}
