//! The identity providers of organisations.

use sallyport_model::{AccountId, ProviderConfig, ProviderId, ProviderKind, ProviderName};

use crate::db::{
    Position, Store,
    error::StoreError,
    row::{self, DbRow},
    sql,
};

/// Bound on the providers of an organisation.
pub const MAX_PROVIDERS_PER_ORGANISATION: usize = 32;

/// A provider of an organisation.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredProvider {
    /// Its id.
    pub id: ProviderId,
    /// The organisation of the provider.
    pub organisation: AccountId,
    /// Its name in the organisation.
    pub name: ProviderName,
    /// Its configuration.
    pub config: ProviderConfig,
    /// Its client secret, or the secret for signing hook requests, sealed by the caller.
    pub secret: String,
    /// Time of creation, in seconds since 1970.
    pub created_at: i64,
}

impl std::fmt::Debug for StoredProvider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoredProvider").field("id", &self.id).field("name", &self.name).finish_non_exhaustive()
    }
}

impl Store {
    /// Adds a provider.
    ///
    /// # Errors
    /// [`StoreError::ProviderTaken`], [`StoreError::LocalProviderTaken`], [`StoreError::Limit`], [`StoreError::Gone`]
    /// if the organisation does not exist, or a failure of the database.
    pub async fn create_provider(&self, provider: &StoredProvider) -> Result<(), StoreError> {
        let mut write = self.write().await?;
        let organisation = provider.organisation.as_bytes().as_slice();
        let (count, what) = (
            "SELECT count(*) FROM providers WHERE organisation = $1",
            "providers for one organisation: delete some first",
        );
        write.require_room(count, organisation, MAX_PROVIDERS_PER_ORGANISATION, what).await?;
        if provider.config.kind == ProviderKind::Local {
            let rows = sql::query("SELECT config FROM providers WHERE organisation = $1")
                .bind(organisation)
                .fetch_all(write.sql())
                .await?;
            for found in &rows {
                if row::from_json::<ProviderConfig>(found, "config")?.kind == ProviderKind::Local {
                    return Err(StoreError::LocalProviderTaken);
                }
            }
        }
        let inserted = sql::query(
            "INSERT INTO providers (id, organisation, position, name, config, secret, created_at)
             SELECT $1, id, (SELECT coalesce(max(position), 0) + 1 FROM providers WHERE organisation = $2), \
             $3, $4, $5, $6
             FROM accounts WHERE id = $2",
        )
        .bind(provider.id.as_bytes().as_slice())
        .bind(organisation)
        .bind(provider.name.as_str())
        .bind(row::json(&provider.config)?)
        .bind(provider.secret.as_bytes())
        .bind(provider.created_at)
        .execute(write.sql())
        .await
        .map_err(taken)?;
        if inserted.rows_affected() == 0 {
            return Err(StoreError::Gone);
        }
        write.commit().await
    }

    /// The organisation's providers after a position, oldest first, with their positions.
    ///
    /// # Errors
    /// The database fails.
    pub async fn providers(
        &self,
        organisation: AccountId,
        after: Position,
        limit: u32,
    ) -> Result<Vec<(Position, StoredProvider)>, StoreError> {
        let rows =
            sql::query("SELECT * FROM providers WHERE organisation = $1 AND position > $2 ORDER BY position LIMIT $3")
                .bind(organisation.as_bytes().as_slice())
                .bind(after)
                .bind(limit)
                .fetch_all(&self.reader)
                .await?;
        rows.iter().map(|found| Ok((found.try_get("position")?, provider(found)?))).collect()
    }

    /// The organisation's provider with this name.
    ///
    /// # Errors
    /// The database fails.
    pub async fn provider(
        &self,
        organisation: AccountId,
        name: &ProviderName,
    ) -> Result<Option<StoredProvider>, StoreError> {
        let found = sql::query("SELECT * FROM providers WHERE organisation = $1 AND name = $2")
            .bind(organisation.as_bytes().as_slice())
            .bind(name.as_str())
            .fetch_optional(&self.reader)
            .await?;
        found.as_ref().map(provider).transpose()
    }

    /// Replaces the configuration and, if given, the secret. Returns whether the provider exists.
    ///
    /// # Errors
    /// The database fails.
    pub async fn update_provider(
        &self,
        id: ProviderId,
        config: &ProviderConfig,
        secret: Option<&str>,
    ) -> Result<bool, StoreError> {
        let mut write = self.write().await?;
        let updated = sql::query("UPDATE providers SET config = $2, secret = coalesce($3, secret) WHERE id = $1")
            .bind(id.as_bytes().as_slice())
            .bind(row::json(config)?)
            .bind(secret.map(str::as_bytes))
            .execute(write.sql())
            .await?;
        write.commit().await?;
        Ok(updated.rows_affected() > 0)
    }

    /// Deletes a provider. Returns whether it existed.
    ///
    /// # Errors
    /// The database fails.
    pub async fn delete_provider(&self, organisation: AccountId, id: ProviderId) -> Result<bool, StoreError> {
        let mut write = self.write().await?;
        let deleted = sql::query("DELETE FROM providers WHERE id = $1 AND organisation = $2")
            .bind(id.as_bytes().as_slice())
            .bind(organisation.as_bytes().as_slice())
            .execute(write.sql())
            .await?;
        write.commit().await?;
        Ok(deleted.rows_affected() > 0)
    }
}

fn taken(error: sqlx::Error) -> StoreError {
    if StoreError::is_unique_violation(&error) { StoreError::ProviderTaken } else { error.into() }
}

pub(crate) fn provider(found: &DbRow) -> Result<StoredProvider, StoreError> {
    let secret: Vec<u8> = found.try_get("secret")?;
    Ok(StoredProvider {
        id: ProviderId::from_bytes(row::bytes(found, "id")?),
        organisation: AccountId::from_bytes(row::bytes(found, "organisation")?),
        name: row::parsed(found, "name")?,
        config: row::from_json(found, "config")?,
        secret: String::from_utf8(secret).map_err(|error| row::damaged("secret", error))?,
        created_at: found.try_get("created_at")?,
    })
}
