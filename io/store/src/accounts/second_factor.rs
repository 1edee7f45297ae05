//! One-time codes as a second factor, of persons and of accounts.

use sallyport_model::{AccountId, PersonId};

use crate::db::{
    SecretHash, Store,
    error::StoreError,
    sql::{self, DbConnection},
};

/// The number of recovery codes of one owner.
pub const RECOVERY_CODES: usize = 10;

/// The owner of codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodeOwner {
    /// A person of a provider of kind `local`.
    Person(PersonId),
    /// An account.
    Account(AccountId),
}

impl From<PersonId> for CodeOwner {
    fn from(id: PersonId) -> Self {
        Self::Person(id)
    }
}

impl From<AccountId> for CodeOwner {
    fn from(id: AccountId) -> Self {
        Self::Account(id)
    }
}

impl CodeOwner {
    /// The id, which is unique among all owners.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 16] {
        match self {
            Self::Person(id) => id.as_bytes(),
            Self::Account(id) => id.as_bytes(),
        }
    }

    /// The text for persons, or the one for accounts.
    fn choose(self, of_person: &'static str, of_account: &'static str) -> &'static str {
        match self {
            Self::Person(_) => of_person,
            Self::Account(_) => of_account,
        }
    }
}

impl Store {
    /// Enables codes, with the step of the last used one, and replaces the recovery codes. Returns `false` if the owner
    /// uses codes already.
    ///
    /// # Errors
    /// The database fails.
    pub async fn begin_totp(
        &self,
        owner: impl Into<CodeOwner>,
        secret: &str,
        step: i64,
        recovery: &[SecretHash],
        now: i64,
    ) -> Result<bool, StoreError> {
        let owner = owner.into();
        let mut write = self.write().await?;
        let count = owner.choose(
            "SELECT count(*) FROM persons WHERE id = $1 AND totp_secret IS NULL",
            "SELECT count(*) FROM accounts WHERE id = $1 AND totp_secret IS NULL",
        );
        let free: i64 = sql::query_scalar(count).bind(owner.as_bytes().as_slice()).fetch_one(write.sql()).await?;
        if free == 0 {
            return Ok(false);
        }
        set_totp(write.sql(), owner, Some(secret), step, now).await?;
        insert_recovery_codes(write.sql(), owner, recovery).await?;
        write.commit().await?;
        Ok(true)
    }

    /// Disables codes.
    ///
    /// # Errors
    /// The database fails.
    pub async fn end_totp(&self, owner: impl Into<CodeOwner>, now: i64) -> Result<(), StoreError> {
        let mut write = self.write().await?;
        set_totp(write.sql(), owner.into(), None, 0, now).await?;
        write.commit().await
    }

    /// Replaces the recovery codes.
    ///
    /// # Errors
    /// The database fails.
    pub async fn replace_recovery_codes(
        &self,
        owner: impl Into<CodeOwner>,
        recovery: &[SecretHash],
    ) -> Result<(), StoreError> {
        let owner = owner.into();
        let mut write = self.write().await?;
        delete_recovery_codes(write.sql(), owner).await?;
        insert_recovery_codes(write.sql(), owner, recovery).await?;
        write.commit().await
    }

    /// Records the use of the code of this step. Returns false if a code of this step or a later one was used before.
    ///
    /// # Errors
    /// The database fails.
    pub async fn take_totp_step(&self, owner: impl Into<CodeOwner>, step: i64) -> Result<bool, StoreError> {
        let owner = owner.into();
        let mut write = self.write().await?;
        let update = owner.choose(
            "UPDATE persons SET totp_step = $2 WHERE id = $1 AND totp_step < $2 AND totp_secret IS NOT NULL",
            "UPDATE accounts SET totp_step = $2 WHERE id = $1 AND totp_step < $2 AND totp_secret IS NOT NULL",
        );
        let update = sql::query(update).bind(owner.as_bytes().as_slice()).bind(step);
        let taken = update.execute(write.sql()).await?;
        write.commit().await?;
        Ok(taken.rows_affected() > 0)
    }

    /// Uses up a recovery code. Returns whether it existed.
    ///
    /// # Errors
    /// The database fails.
    pub async fn take_recovery_code(&self, owner: impl Into<CodeOwner>, hash: SecretHash) -> Result<bool, StoreError> {
        let owner = owner.into();
        let mut write = self.write().await?;
        let delete = owner.choose(
            "DELETE FROM person_recovery_codes WHERE person = $1 AND hash = $2",
            "DELETE FROM account_recovery_codes WHERE account = $1 AND hash = $2",
        );
        let delete = sql::query(delete).bind(owner.as_bytes().as_slice()).bind(hash.as_slice());
        let taken = delete.execute(write.sql()).await?;
        write.commit().await?;
        Ok(taken.rows_affected() > 0)
    }
}

/// Replaces the secret of the codes, and removes the recovery codes.
pub(crate) async fn set_totp(
    sql: &mut DbConnection,
    owner: CodeOwner,
    secret: Option<&str>,
    step: i64,
    now: i64,
) -> Result<(), StoreError> {
    let update = match owner {
        CodeOwner::Person(_) => {
            sql::query("UPDATE persons SET totp_secret = $2, totp_step = $3, changed_at = $4 WHERE id = $1")
                .bind(owner.as_bytes().as_slice())
                .bind(secret)
                .bind(step)
                .bind(now)
        }
        CodeOwner::Account(_) => sql::query(
            "UPDATE accounts SET totp_secret = $2, totp_step = $3, access_revision = access_revision + 1 WHERE id = $1",
        )
        .bind(owner.as_bytes().as_slice())
        .bind(secret)
        .bind(step),
    };
    update.execute(&mut *sql).await?;
    delete_recovery_codes(sql, owner).await
}

async fn delete_recovery_codes(sql: &mut DbConnection, owner: CodeOwner) -> Result<(), StoreError> {
    let delete = owner.choose(
        "DELETE FROM person_recovery_codes WHERE person = $1",
        "DELETE FROM account_recovery_codes WHERE account = $1",
    );
    sql::query(delete).bind(owner.as_bytes().as_slice()).execute(sql).await?;
    Ok(())
}

async fn insert_recovery_codes(
    sql: &mut DbConnection,
    owner: CodeOwner,
    recovery: &[SecretHash],
) -> Result<(), StoreError> {
    let insert = owner.choose(
        "INSERT INTO person_recovery_codes (person, hash) VALUES ($1, $2) ON CONFLICT DO NOTHING",
        "INSERT INTO account_recovery_codes (account, hash) VALUES ($1, $2) ON CONFLICT DO NOTHING",
    );
    for hash in recovery.iter().take(RECOVERY_CODES) {
        let insert = sql::query(insert).bind(owner.as_bytes().as_slice()).bind(hash.as_slice());
        insert.execute(&mut *sql).await?;
    }
    Ok(())
}
