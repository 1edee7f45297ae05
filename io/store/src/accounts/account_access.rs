//! Credentials of accounts: the password, one-time codes, and codes for resetting the password.

use sallyport_model::{Account, AccountId, Email};

use super::{
    account::{self, email_key},
    second_factor, sessions,
};
use crate::db::{
    SecretHash, Store,
    error::StoreError,
    row::{self, DbRow},
    sql,
    write::Write,
};

/// Bound on valid reset codes of one account; the oldest are removed first.
pub const MAX_RESETS_PER_ACCOUNT: usize = 3;
/// Placeholder for a missing password hash; no password has this hash.
pub(crate) const NO_PASSWORD: &str = "!";

/// The stored credentials of an account.
#[derive(Clone, PartialEq, Eq)]
pub struct AccountAccess {
    /// The password as an argon2id PHC string; `None` while the owner has to set another one.
    pub password_hash: Option<String>,
    /// The secret of the codes, sealed by the caller.
    pub totp_secret: Option<String>,
    /// The time step of the last code that was used.
    pub totp_step: i64,
    /// Number of unused recovery codes.
    pub recovery_codes: u32,
    /// The revision, which grows with every change of these fields.
    pub revision: i64,
}

/// The requester of a reset code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResetMaker {
    /// The owner of the account, as the request claims.
    Myself,
    /// The owner of the installation.
    Owner,
    /// The operator, with access to the data directory.
    Operator,
}

impl ResetMaker {
    fn as_str(self) -> &'static str {
        match self {
            Self::Myself => "self",
            Self::Owner => "owner",
            Self::Operator => "operator",
        }
    }

    fn read(text: &str) -> Result<Self, StoreError> {
        match text {
            "self" => Ok(Self::Myself),
            "owner" => Ok(Self::Owner),
            "operator" => Ok(Self::Operator),
            other => Err(row::damaged("made_by", other)),
        }
    }
}

/// A reset code.
#[derive(Debug, Clone, Copy)]
pub struct NewReset {
    /// The account of the password.
    pub account: AccountId,
    /// SHA-256 of the code.
    pub hash: SecretHash,
    /// The maker of the code.
    pub made_by: ResetMaker,
    /// Expiry, in seconds since 1970.
    pub expires_at: i64,
}

impl Store {
    /// The account that logs in with this address, and its credentials.
    ///
    /// # Errors
    /// The database fails.
    pub async fn account_access(&self, email: &Email) -> Result<Option<(Account, AccountAccess)>, StoreError> {
        let found = sql::query(
            "SELECT id, name, email, created_at, password_hash, totp_secret, totp_step, access_revision,
             (SELECT count(*) FROM account_recovery_codes WHERE account = accounts.id) AS recovery_codes
             FROM accounts WHERE email_key = $1 AND email_key <> ''",
        )
        .bind(email_key(email))
        .fetch_optional(&self.reader)
        .await?;
        let Some(found) = found else { return Ok(None) };
        Ok(Some((account::account(&found)?, access(&found)?)))
    }

    /// Replaces the password if the credentials still have this revision. Ends all sessions except one, and all reset
    /// codes. Returns whether the password was replaced.
    ///
    /// # Errors
    /// The database fails.
    pub async fn change_account_password(
        &self,
        id: AccountId,
        revision: i64,
        password_hash: &str,
        but: Option<sessions::SessionId>,
    ) -> Result<bool, StoreError> {
        let mut write = self.write().await?;
        let updated = sql::query(
            "UPDATE accounts SET password_hash = $3, access_revision = access_revision + 1
             WHERE id = $1 AND access_revision = $2",
        )
        .bind(id.as_bytes().as_slice())
        .bind(revision)
        .bind(password_hash)
        .execute(write.sql())
        .await?;
        if updated.rows_affected() == 0 {
            return Ok(false);
        }
        end_resets(&mut write, id).await?;
        sessions::end_all(&mut write, id, but).await?;
        write.commit().await?;
        Ok(true)
    }

    /// Removes the password of an account, and if requested the one-time codes: the owner needs a reset code to log in
    /// again. All sessions end.
    ///
    /// # Errors
    /// The database fails.
    pub async fn reset_account(&self, id: AccountId, with_totp: bool, now: i64) -> Result<(), StoreError> {
        let mut write = self.write().await?;
        sql::query("UPDATE accounts SET password_hash = $2, access_revision = access_revision + 1 WHERE id = $1")
            .bind(id.as_bytes().as_slice())
            .bind(NO_PASSWORD)
            .execute(write.sql())
            .await?;
        if with_totp {
            second_factor::set_totp(write.sql(), id.into(), None, 0, now).await?;
        }
        end_resets(&mut write, id).await?;
        sessions::end_all(&mut write, id, None).await?;
        write.commit().await
    }

    /// Stores a reset code; if there are too many, the oldest of the account are removed.
    ///
    /// # Errors
    /// [`StoreError::Gone`] if the account does not exist, or a failure of the database.
    pub async fn create_account_reset(&self, reset: NewReset) -> Result<(), StoreError> {
        let mut write = self.write().await?;
        let inserted = sql::query(
            "INSERT INTO account_resets (hash, account, made_by, expires_at)
             SELECT $1, id, $3, $4 FROM accounts WHERE id = $2",
        )
        .bind(reset.hash.as_slice())
        .bind(reset.account.as_bytes().as_slice())
        .bind(reset.made_by.as_str())
        .bind(reset.expires_at)
        .execute(write.sql())
        .await?;
        if inserted.rows_affected() == 0 {
            return Err(StoreError::Gone);
        }
        sql::query(
            "DELETE FROM account_resets WHERE account = $1 AND hash NOT IN (
                 SELECT hash FROM account_resets WHERE account = $1 ORDER BY expires_at DESC, hash LIMIT $2)
                 AND hash <> $3",
        )
        .bind(reset.account.as_bytes().as_slice())
        .bind(MAX_RESETS_PER_ACCOUNT as i64)
        .bind(reset.hash.as_slice())
        .execute(write.sql())
        .await?;
        write.commit().await
    }

    /// The account of a valid reset code. The code stays valid.
    ///
    /// # Errors
    /// The database fails.
    pub async fn account_of_reset(&self, hash: SecretHash, now: i64) -> Result<Option<Account>, StoreError> {
        let found = sql::query(
            "SELECT id, name, email, created_at FROM accounts
             WHERE id = (SELECT account FROM account_resets WHERE hash = $1 AND expires_at > $2)",
        )
        .bind(hash.as_slice())
        .bind(now)
        .fetch_optional(&self.reader)
        .await?;
        found.as_ref().map(account::account).transpose()
    }

    /// Uses a reset code once: sets the password, and ends the sessions and codes of the account. Returns the account
    /// and the requester of the code, if the code was valid.
    ///
    /// # Errors
    /// The database fails.
    pub async fn use_account_reset(
        &self,
        hash: SecretHash,
        now: i64,
        password_hash: &str,
    ) -> Result<Option<ResetMaker>, StoreError> {
        let mut write = self.write().await?;
        let used =
            sql::query("DELETE FROM account_resets WHERE hash = $1 AND expires_at > $2 RETURNING account, made_by")
                .bind(hash.as_slice())
                .bind(now)
                .fetch_optional(write.sql())
                .await?;
        let Some(used) = used else { return Ok(None) };
        let id = AccountId::from_bytes(row::bytes(&used, "account")?);
        let made_by = ResetMaker::read(used.try_get("made_by")?)?;
        sql::query("UPDATE accounts SET password_hash = $2, access_revision = access_revision + 1 WHERE id = $1")
            .bind(id.as_bytes().as_slice())
            .bind(password_hash)
            .execute(write.sql())
            .await?;
        end_resets(&mut write, id).await?;
        sessions::end_all(&mut write, id, None).await?;
        write.commit().await?;
        Ok(Some(made_by))
    }
}

async fn end_resets(write: &mut Write, id: AccountId) -> Result<(), StoreError> {
    let delete = sql::query("DELETE FROM account_resets WHERE account = $1").bind(id.as_bytes().as_slice());
    delete.execute(write.sql()).await?;
    Ok(())
}

fn access(found: &DbRow) -> Result<AccountAccess, StoreError> {
    let (hash, codes): (String, i64) = (found.try_get("password_hash")?, found.try_get("recovery_codes")?);
    Ok(AccountAccess {
        password_hash: Some(hash).filter(|hash| hash != NO_PASSWORD),
        totp_secret: found.try_get("totp_secret")?,
        totp_step: found.try_get("totp_step")?,
        recovery_codes: u32::try_from(codes).unwrap_or(u32::MAX),
        revision: found.try_get("access_revision")?,
    })
}
