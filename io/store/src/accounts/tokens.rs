//! API tokens.

use sallyport_model::{Account, AccountId, DisplayName, ScopeSet, TokenId};

use super::{account, organisations::role_in};
use crate::db::{
    Position, SecretHash, Store,
    error::StoreError,
    idempotency::{Creation, IdempotencyKey},
    row::{self, DbRow},
    sql,
};

/// Bound on the API tokens of an account.
pub const MAX_TOKENS_PER_ACCOUNT: usize = 100;

/// An API token, without its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredToken {
    /// Its id.
    pub id: TokenId,
    /// The organisation that it is valid for.
    pub organisation: AccountId,
    /// Its name.
    pub name: DisplayName,
    /// Its scopes.
    pub scopes: ScopeSet,
    /// Time of creation in seconds since 1970.
    pub created_at: i64,
    /// Expiry in seconds since 1970, if any.
    pub expires_at: Option<i64>,
}

/// A new API token.
#[derive(Debug, Clone)]
pub struct NewToken {
    /// The account of the token.
    pub account: AccountId,
    /// The token.
    pub token: StoredToken,
    /// Hash of its secret.
    pub hash: SecretHash,
}

impl Store {
    /// Creates a token. The answer is not stored for repetitions, because it holds the secret.
    ///
    /// # Errors
    /// [`StoreError::Limit`], [`StoreError::KeyReused`], [`StoreError::Gone`], or a failure of the database.
    pub async fn create_token(
        &self,
        new: NewToken,
        keyed: Option<&IdempotencyKey>,
    ) -> Result<Creation<()>, StoreError> {
        let mut write = self.write().await?;
        if let Some(stored) = write.recall(new.account, keyed).await? {
            return Ok(Creation::Repeated(stored));
        }
        // The member may have been removed since the request was authorised.
        if role_in(&mut write, new.token.organisation, new.account).await?.is_none() {
            return Err(StoreError::Gone);
        }
        let (count, what) =
            ("SELECT count(*) FROM tokens WHERE account = $1", "API tokens for one account: delete some first");
        write.require_room(count, new.account.as_bytes(), MAX_TOKENS_PER_ACCOUNT, what).await?;
        let scopes: Vec<&str> = new.token.scopes.iter().map(|scope| scope.as_str()).collect();
        let inserted = sql::query(
            "INSERT INTO tokens (id, account, position, name, scopes, hash, created_at, expires_at, organisation)
             SELECT $1, id, (SELECT coalesce(max(position), 0) + 1 FROM tokens WHERE account = $2), \
             $3, $4, $5, $6, $7, $8
             FROM accounts WHERE id = $2",
        )
        .bind(new.token.id.as_bytes().as_slice())
        .bind(new.account.as_bytes().as_slice())
        .bind(new.token.name.as_str())
        .bind(scopes.join(" "))
        .bind(new.hash.as_slice())
        .bind(new.token.created_at)
        .bind(new.token.expires_at)
        .bind(new.token.organisation.as_bytes().as_slice())
        .execute(write.sql())
        .await?;
        if inserted.rows_affected() == 0 {
            return Err(StoreError::Gone);
        }
        write.remember(new.account, keyed, *new.token.id.as_bytes(), None).await?;
        write.commit().await?;
        Ok(Creation::Made(()))
    }

    /// The account's tokens for one organisation after a position, oldest first, with their positions.
    ///
    /// # Errors
    /// The database fails.
    pub async fn tokens(
        &self,
        account: AccountId,
        organisation: AccountId,
        after: Position,
        limit: u32,
    ) -> Result<Vec<(Position, StoredToken)>, StoreError> {
        let rows = sql::query(
            "SELECT position, id, organisation, name, scopes, created_at, expires_at FROM tokens
             WHERE account = $1 AND organisation = $2 AND position > $3 ORDER BY position LIMIT $4",
        )
        .bind(account.as_bytes().as_slice())
        .bind(organisation.as_bytes().as_slice())
        .bind(after)
        .bind(limit)
        .fetch_all(&self.reader)
        .await?;
        rows.iter().map(|found| Ok((found.try_get("position")?, token(found)?))).collect()
    }

    /// The token with this secret, and its account. The caller checks the expiry.
    ///
    /// # Errors
    /// The database fails.
    pub async fn token_by_hash(&self, hash: SecretHash) -> Result<Option<(StoredToken, Account)>, StoreError> {
        let found = sql::query(
            "SELECT id, account, organisation, name, scopes, created_at, expires_at FROM tokens WHERE hash = $1",
        )
        .bind(hash.as_slice())
        .fetch_optional(&self.reader)
        .await?;
        let Some(found) = found else { return Ok(None) };
        let owner = sql::query("SELECT id, name, email, created_at FROM accounts WHERE id = $1")
            .bind(row::bytes::<16>(&found, "account")?.as_slice())
            .fetch_optional(&self.reader)
            .await?;
        let Some(owner) = owner else { return Ok(None) };
        Ok(Some((token(&found)?, account::account(&owner)?)))
    }

    /// Deletes a token of the account for the organisation. Returns whether it existed.
    ///
    /// # Errors
    /// The database fails.
    pub async fn delete_token(
        &self,
        account: AccountId,
        organisation: AccountId,
        id: TokenId,
    ) -> Result<bool, StoreError> {
        let mut write = self.write().await?;
        let deleted = sql::query("DELETE FROM tokens WHERE id = $1 AND account = $2 AND organisation = $3")
            .bind(id.as_bytes().as_slice())
            .bind(account.as_bytes().as_slice())
            .bind(organisation.as_bytes().as_slice())
            .execute(write.sql())
            .await?;
        write.commit().await?;
        Ok(deleted.rows_affected() > 0)
    }
}

fn token(found: &DbRow) -> Result<StoredToken, StoreError> {
    let scopes: &str = found.try_get("scopes")?;
    let scopes = scopes
        .split_ascii_whitespace()
        .map(str::parse)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| row::damaged("scopes", error))?;
    Ok(StoredToken {
        id: TokenId::from_bytes(row::bytes(found, "id")?),
        organisation: AccountId::from_bytes(row::bytes(found, "organisation")?),
        name: row::display_name(found, "name")?,
        scopes: ScopeSet::from(scopes),
        created_at: found.try_get("created_at")?,
        expires_at: found.try_get("expires_at")?,
    })
}
