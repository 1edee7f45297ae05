//! Public keys with which ssh clients log in.

use std::collections::HashMap;

use sallyport_model::{AccountId, SshLogin};

use crate::db::{
    Position, Store,
    error::StoreError,
    row::{self, DbRow},
    sql,
    write::Write,
};

/// Bound on the ssh keys of an account.
pub const MAX_SSH_KEYS_PER_ACCOUNT: usize = 32;

/// A public key of an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshKey {
    /// Its id, a random UUID.
    pub id: [u8; 16],
    /// Its name, given by the owner.
    pub name: String,
    /// The key as in an `authorized_keys` file, without options: type, base64, comment.
    pub public_key: String,
    /// `SHA256:` and the hash of the key in base64, as ssh shows it.
    pub fingerprint: String,
    /// When it was added, in seconds since 1970.
    pub created_at: i64,
}

impl Store {
    /// Adds a key to an account.
    ///
    /// # Errors
    /// [`StoreError::SshKeyTaken`], [`StoreError::Limit`], [`StoreError::Gone`] if the account does not exist, or a
    /// failure of the database.
    pub async fn create_ssh_key(&self, account: AccountId, key: &SshKey) -> Result<(), StoreError> {
        let mut write = self.write().await?;
        insert(&mut write, account, key).await?;
        write.commit().await
    }

    /// The account's keys after a position, oldest first, with their positions; at most [`MAX_SSH_KEYS_PER_ACCOUNT`].
    ///
    /// # Errors
    /// The database fails.
    pub async fn ssh_keys(
        &self,
        account: AccountId,
        after: Position,
        limit: u32,
    ) -> Result<Vec<(Position, SshKey)>, StoreError> {
        let rows = sql::query("SELECT * FROM ssh_keys WHERE account = $1 AND position > $2 ORDER BY position LIMIT $3")
            .bind(account.as_bytes().as_slice())
            .bind(after)
            .bind(limit)
            .fetch_all(&self.reader)
            .await?;
        rows.iter().map(|found| Ok((found.try_get("position")?, ssh_key(found)?))).collect()
    }

    /// The keys of every account that has any.
    ///
    /// # Errors
    /// The database fails.
    pub async fn ssh_logins(&self) -> Result<Vec<SshLogin>, StoreError> {
        let rows = sql::query("SELECT account, public_key FROM ssh_keys ORDER BY account, position")
            .fetch_all(&self.reader)
            .await?;
        let mut logins: HashMap<AccountId, SshLogin> = HashMap::new();
        for found in &rows {
            let account = AccountId::from_bytes(row::bytes(found, "account")?);
            let login = logins.entry(account).or_insert_with(|| SshLogin { account, keys: Vec::new() });
            login.keys.push(found.try_get("public_key")?);
        }
        Ok(logins.into_values().collect())
    }

    /// Deletes a key of an account. Returns whether it existed.
    ///
    /// # Errors
    /// The database fails.
    pub async fn delete_ssh_key(&self, account: AccountId, id: [u8; 16]) -> Result<bool, StoreError> {
        let mut write = self.write().await?;
        let deleted = sql::query("DELETE FROM ssh_keys WHERE id = $1 AND account = $2")
            .bind(id.as_slice())
            .bind(account.as_bytes().as_slice())
            .execute(write.sql())
            .await?;
        write.commit().await?;
        Ok(deleted.rows_affected() > 0)
    }
}

pub(crate) async fn insert(write: &mut Write, account: AccountId, key: &SshKey) -> Result<(), StoreError> {
    let same: Option<String> = sql::query_scalar("SELECT name FROM ssh_keys WHERE account = $1 AND fingerprint = $2")
        .bind(account.as_bytes().as_slice())
        .bind(&key.fingerprint)
        .fetch_optional(write.sql())
        .await?;
    if let Some(name) = same {
        return Err(StoreError::SshKeyTaken { name });
    }
    let (count, what) =
        ("SELECT count(*) FROM ssh_keys WHERE account = $1", "ssh keys for one account: delete some first");
    write.require_room(count, account.as_bytes(), MAX_SSH_KEYS_PER_ACCOUNT, what).await?;
    let inserted = sql::query(
        "INSERT INTO ssh_keys (id, account, position, name, public_key, fingerprint, created_at)
         SELECT $1, id, (SELECT coalesce(max(position), 0) + 1 FROM ssh_keys WHERE account = $2), $3, $4, $5, $6
         FROM accounts WHERE id = $2",
    )
    .bind(key.id.as_slice())
    .bind(account.as_bytes().as_slice())
    .bind(&key.name)
    .bind(&key.public_key)
    .bind(&key.fingerprint)
    .bind(key.created_at)
    .execute(write.sql())
    .await?;
    if inserted.rows_affected() == 0 { Err(StoreError::Gone) } else { Ok(()) }
}

fn ssh_key(found: &DbRow) -> Result<SshKey, StoreError> {
    Ok(SshKey {
        id: row::bytes(found, "id")?,
        name: found.try_get("name")?,
        public_key: found.try_get("public_key")?,
        fingerprint: found.try_get("fingerprint")?,
        created_at: found.try_get("created_at")?,
    })
}
