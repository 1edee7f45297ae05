//! Login sessions and their refresh tokens.
//!
//! A session starts with a login. It has one refresh token at a time; using it issues the next. A token that is used
//! twice was stolen from one of its two users, so the whole session ends (RFC 9700 section 4.14.2).

use sallyport_model::{Account, AccountId};

use super::account;
use crate::db::{SecretHash, Store, error::StoreError, row, sql, write::Write};

/// The id of a login session.
pub type SessionId = [u8; 16];

/// Bound on the sessions of an account; the oldest end first.
pub const MAX_SESSIONS_PER_ACCOUNT: usize = 100;
/// Bound on stored refresh tokens of one session, used ones included; the oldest are removed first.
const MAX_REFRESH_TOKENS_PER_SESSION: i64 = 4_096;
/// Time that a session is stored after its end, so that a clock that temporarily jumps ahead loses none.
pub(crate) const REMEMBER_ENDED_SECONDS: i64 = 30 * 86_400;

/// The result of using a refresh token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rotation {
    /// The new token replaces the old one.
    Done {
        /// The session it belongs to.
        session: SessionId,
        /// The account it belongs to.
        account: AccountId,
    },
    /// The token was used before: its session has ended now.
    Reused {
        /// The account it belongs to.
        account: AccountId,
    },
    /// The token is unknown or too old, or its session has ended.
    Invalid,
}

/// The origin of a session, as far as known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionClient {
    /// The address.
    pub address: Option<String>,
    /// The program, as declared by the client.
    pub program: Option<String>,
}

/// A new session.
#[derive(Debug, Clone)]
pub struct NewSession {
    /// Its id.
    pub id: SessionId,
    /// The account of the session.
    pub account: AccountId,
    /// The revision of the account's credentials that were checked.
    pub revision: i64,
    /// SHA-256 of its first refresh token.
    pub refresh: SecretHash,
    /// The current time in seconds since 1970.
    pub now: i64,
    /// Expiry unless renewed, in seconds since 1970.
    pub expires_at: i64,
    /// The client.
    pub client: SessionClient,
}

/// A session that has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredSession {
    /// Its id.
    pub id: SessionId,
    /// Start time in seconds since 1970.
    pub created_at: i64,
    /// Time of the last login or renewal in seconds since 1970; unknown for sessions of an older version.
    pub last_used_at: Option<i64>,
    /// Expiry unless renewed, in seconds since 1970.
    pub expires_at: i64,
    /// The client of the last login or renewal.
    pub client: SessionClient,
}

/// A session that was found by its secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SecretSession {
    /// Its id.
    pub id: SessionId,
    /// The account of the session.
    pub account: AccountId,
    /// Start time in seconds since 1970.
    pub created_at: i64,
    /// Time of the last login or renewal in seconds since 1970; unknown for sessions of an older version.
    pub last_used_at: Option<i64>,
}

impl Store {
    /// Starts a session.
    ///
    /// # Errors
    /// [`StoreError::Gone`] if the account does not exist, or its credentials were changed in the meantime; or a
    /// failure of the database.
    pub async fn begin_session(&self, new: &NewSession) -> Result<(), StoreError> {
        let NewSession { id, account, refresh, now, expires_at, .. } = *new;
        let mut write = self.write().await?;
        let inserted = sql::query(
            "INSERT INTO login_sessions \
             (id, account, created_at, expires_at, last_used_at, client_address, client_program)
             SELECT $1, id, $3, $4, $3, $5, $6 FROM accounts WHERE id = $2 AND access_revision = $7",
        )
        .bind(id.as_slice())
        .bind(account.as_bytes().as_slice())
        .bind(now)
        .bind(expires_at)
        .bind(new.client.address.as_deref())
        .bind(new.client.program.as_deref())
        .bind(new.revision)
        .execute(write.sql())
        .await?;
        if inserted.rows_affected() == 0 {
            return Err(StoreError::Gone);
        }
        sql::query(
            "DELETE FROM login_sessions WHERE id IN (
                 SELECT id FROM login_sessions WHERE account = $1 \
                 ORDER BY created_at DESC, rowid DESC LIMIT 1000000 OFFSET $2)",
        )
        .bind(account.as_bytes().as_slice())
        .bind(MAX_SESSIONS_PER_ACCOUNT as i64)
        .execute(write.sql())
        .await?;
        insert_refresh(&mut write, id, refresh, expires_at).await?;
        write.commit().await
    }

    /// Replaces a refresh token by a new one, once.
    ///
    /// # Errors
    /// The database fails; the old token stays good then.
    pub async fn rotate_refresh(
        &self,
        old: SecretHash,
        new: SecretHash,
        now: i64,
        expires_at: i64,
        client: &SessionClient,
    ) -> Result<Rotation, StoreError> {
        let mut write = self.write().await?;
        let found = sql::query(
            "SELECT r.session, r.used, r.expires_at, s.account, s.ended FROM refresh_tokens r
             JOIN login_sessions s ON s.id = r.session WHERE r.hash = $1",
        )
        .bind(old.as_slice())
        .fetch_optional(write.sql())
        .await?;
        let Some(found) = found else { return Ok(Rotation::Invalid) };
        let session: SessionId = row::bytes(&found, "session")?;
        let account = AccountId::from_bytes(row::bytes(&found, "account")?);
        let used: bool = found.try_get("used")?;
        let ended: bool = found.try_get("ended")?;
        let ends: i64 = found.try_get("expires_at")?;
        if used {
            end(&mut write, session).await?;
            write.commit().await?;
            return Ok(Rotation::Reused { account });
        }
        if ended || ends <= now {
            return Ok(Rotation::Invalid);
        }
        sql::query("UPDATE refresh_tokens SET used = 1 WHERE hash = $1")
            .bind(old.as_slice())
            .execute(write.sql())
            .await?;
        insert_refresh(&mut write, session, new, expires_at).await?;
        sql::query(
            "UPDATE login_sessions SET expires_at = $2, last_used_at = $3, \
             client_address = coalesce($4, client_address),
             client_program = coalesce($5, client_program) WHERE id = $1",
        )
        .bind(session.as_slice())
        .bind(expires_at)
        .bind(now)
        .bind(client.address.as_deref())
        .bind(client.program.as_deref())
        .execute(write.sql())
        .await?;
        // Used tokens are kept to recognise a second use, as many as there is room for.
        sql::query(
            "DELETE FROM refresh_tokens WHERE session = $1 AND rowid <= (
                 SELECT rowid FROM refresh_tokens WHERE session = $1 ORDER BY rowid DESC LIMIT 1 OFFSET $2)",
        )
        .bind(session.as_slice())
        .bind(MAX_REFRESH_TOKENS_PER_SESSION)
        .execute(write.sql())
        .await?;
        write.commit().await?;
        Ok(Rotation::Done { session, account })
    }

    /// The session of a secret that is not used up, if neither has ended.
    ///
    /// # Errors
    /// The database fails.
    pub async fn session_by_secret(&self, secret: SecretHash, now: i64) -> Result<Option<SecretSession>, StoreError> {
        let found = sql::query(
            "SELECT s.id, s.account, s.created_at, s.last_used_at FROM refresh_tokens r
             JOIN login_sessions s ON s.id = r.session
             WHERE r.hash = $1 AND r.used = 0 AND r.expires_at > $2 AND s.ended = 0 AND s.expires_at > $2",
        )
        .bind(secret.as_slice())
        .bind(now)
        .fetch_optional(&self.reader)
        .await?;
        let Some(found) = found else { return Ok(None) };
        Ok(Some(SecretSession {
            id: row::bytes(&found, "id")?,
            account: AccountId::from_bytes(row::bytes(&found, "account")?),
            created_at: found.try_get("created_at")?,
            last_used_at: found.try_get("last_used_at")?,
        }))
    }

    /// Moves the end of a session that keeps its secret.
    ///
    /// # Errors
    /// The database fails.
    pub async fn renew_session(&self, secret: SecretHash, now: i64, expires_at: i64) -> Result<(), StoreError> {
        let mut write = self.write().await?;
        sql::query("UPDATE refresh_tokens SET expires_at = $2 WHERE hash = $1 AND used = 0")
            .bind(secret.as_slice())
            .bind(expires_at)
            .execute(write.sql())
            .await?;
        sql::query(
            "UPDATE login_sessions SET expires_at = $2, last_used_at = $3
             WHERE ended = 0 AND id IN (SELECT session FROM refresh_tokens WHERE hash = $1 AND used = 0)",
        )
        .bind(secret.as_slice())
        .bind(expires_at)
        .bind(now)
        .execute(write.sql())
        .await?;
        write.commit().await
    }

    /// The account of a session that has not ended.
    ///
    /// # Errors
    /// The database fails.
    pub async fn session_account(&self, session: SessionId) -> Result<Option<Account>, StoreError> {
        let found = sql::query(
            "SELECT a.id, a.name, a.email, a.created_at FROM login_sessions s JOIN accounts a ON a.id = s.account
             WHERE s.id = $1 AND s.ended = 0",
        )
        .bind(session.as_slice())
        .fetch_optional(&self.reader)
        .await?;
        found.as_ref().map(account::account).transpose()
    }

    /// Ends the session of this refresh token, used or not. Returns the account, when there was one.
    ///
    /// # Errors
    /// The database fails.
    pub async fn end_session(&self, refresh: SecretHash) -> Result<Option<AccountId>, StoreError> {
        let mut write = self.write().await?;
        let statement =
            "SELECT id, account FROM login_sessions WHERE id IN (SELECT session FROM refresh_tokens WHERE hash = $1)";
        let found = sql::query(statement).bind(refresh.as_slice()).fetch_optional(write.sql()).await?;
        let Some(found) = found else {
            write.commit().await?;
            return Ok(None);
        };
        let account = AccountId::from_bytes(row::bytes(&found, "account")?);
        end(&mut write, row::bytes(&found, "id")?).await?;
        write.commit().await?;
        Ok(Some(account))
    }
}

impl Store {
    /// The active sessions of an account, the oldest first.
    ///
    /// # Errors
    /// The database fails.
    pub async fn account_sessions(&self, account: AccountId, now: i64) -> Result<Vec<StoredSession>, StoreError> {
        let rows = sql::query(
            "SELECT id, created_at, last_used_at, expires_at, client_address, client_program FROM login_sessions
             WHERE account = $1 AND ended = 0 AND expires_at > $2 ORDER BY created_at, rowid LIMIT $3",
        )
        .bind(account.as_bytes().as_slice())
        .bind(now)
        .bind(MAX_SESSIONS_PER_ACCOUNT as i64)
        .fetch_all(&self.reader)
        .await?;
        let session = |found: &row::DbRow| {
            Ok(StoredSession {
                id: row::bytes(found, "id")?,
                created_at: found.try_get("created_at")?,
                last_used_at: found.try_get("last_used_at")?,
                expires_at: found.try_get("expires_at")?,
                client: SessionClient {
                    address: found.try_get("client_address")?,
                    program: found.try_get("client_program")?,
                },
            })
        };
        rows.iter().map(session).collect()
    }

    /// Ends a session of an account. Returns whether it was active.
    ///
    /// # Errors
    /// The database fails.
    pub async fn end_account_session(&self, account: AccountId, id: SessionId) -> Result<bool, StoreError> {
        let mut write = self.write().await?;
        let ended = sql::query("UPDATE login_sessions SET ended = 1 WHERE account = $1 AND id = $2 AND ended = 0")
            .bind(account.as_bytes().as_slice())
            .bind(id.as_slice())
            .execute(write.sql())
            .await?;
        write.commit().await?;
        Ok(ended.rows_affected() > 0)
    }

    /// Ends the sessions of an account, except one. Returns their number.
    ///
    /// # Errors
    /// The database fails.
    pub async fn end_account_sessions(&self, account: AccountId, but: Option<SessionId>) -> Result<u64, StoreError> {
        let mut write = self.write().await?;
        let ended = end_all(&mut write, account, but).await?;
        write.commit().await?;
        Ok(ended)
    }
}

/// Ends the sessions of an account, except one. Returns their number.
pub(crate) async fn end_all(write: &mut Write, account: AccountId, but: Option<SessionId>) -> Result<u64, StoreError> {
    let ended =
        sql::query("UPDATE login_sessions SET ended = 1 WHERE account = $1 AND ended = 0 AND id IS DISTINCT FROM $2")
            .bind(account.as_bytes().as_slice())
            .bind(but.as_ref().map(<[u8; 16]>::as_slice))
            .execute(write.sql())
            .await?;
    Ok(ended.rows_affected())
}

async fn insert_refresh(
    write: &mut Write,
    session: SessionId,
    hash: SecretHash,
    expires_at: i64,
) -> Result<(), StoreError> {
    sql::query("INSERT INTO refresh_tokens (hash, session, expires_at) VALUES ($1, $2, $3)")
        .bind(hash.as_slice())
        .bind(session.as_slice())
        .bind(expires_at)
        .execute(write.sql())
        .await?;
    Ok(())
}

async fn end(write: &mut Write, session: SessionId) -> Result<(), StoreError> {
    sql::query("UPDATE login_sessions SET ended = 1 WHERE id = $1")
        .bind(session.as_slice())
        .execute(write.sql())
        .await?;
    Ok(())
}
