//! Removes expired rows.

use crate::{
    accounts::sessions,
    cluster::edges,
    db::{Store, error::StoreError, idempotency::REMEMBER_KEYS_SECONDS, sql},
    identity::authorities,
};

impl Store {
    /// Removes expired rows: login sessions, idempotency keys, links and used states, and old invitations and
    /// certificates.
    ///
    /// # Errors
    /// The database fails; nothing is lost, and the call can be repeated.
    pub async fn tidy(&self, now: i64) -> Result<(), StoreError> {
        let mut write = self.write().await?;
        sql::query("DELETE FROM login_sessions WHERE expires_at <= $1")
            .bind(now - sessions::REMEMBER_ENDED_SECONDS)
            .execute(write.sql())
            .await?;
        sql::query("DELETE FROM person_sessions WHERE expires_at <= $1")
            .bind(now - sessions::REMEMBER_ENDED_SECONDS)
            .execute(write.sql())
            .await?;
        sql::query("DELETE FROM idempotency_keys WHERE created_at <= $1")
            .bind(now - REMEMBER_KEYS_SECONDS)
            .execute(write.sql())
            .await?;
        sql::query("DELETE FROM invitations WHERE expires_at <= $1")
            .bind(now - sessions::REMEMBER_ENDED_SECONDS)
            .execute(write.sql())
            .await?;
        sql::query("DELETE FROM issued_certificates WHERE not_after <= $1")
            .bind(now - authorities::REMEMBER_CERTIFICATES_SECONDS)
            .execute(write.sql())
            .await?;
        sql::query("DELETE FROM person_links WHERE expires_at <= $1").bind(now).execute(write.sql()).await?;
        sql::query("DELETE FROM account_resets WHERE expires_at <= $1").bind(now).execute(write.sql()).await?;
        sql::query("DELETE FROM device_logins WHERE expires_at <= $1").bind(now).execute(write.sql()).await?;
        sql::query("DELETE FROM used_once WHERE expires_at <= $1").bind(now).execute(write.sql()).await?;
        sql::query("DELETE FROM edge_tokens WHERE expires_at <= $1")
            .bind(now - edges::REMEMBER_EDGE_TOKENS_SECONDS)
            .execute(write.sql())
            .await?;
        write.commit().await
    }
}
