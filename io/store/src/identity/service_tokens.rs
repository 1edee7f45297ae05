//! Service tokens, which machines present to sockets that require an identity.

use sallyport_model::{
    AccountId, DisplayName, PersonEmail, ServiceTokenId, ServiceTokenRoute, ServiceTokenScope, SocketId,
};

use crate::db::{
    Position, SecretHash, Store,
    error::StoreError,
    idempotency::{Creation, IdempotencyKey},
    row::{self, DbRow},
    sql,
};

/// Bound on the service tokens of an organisation.
pub const MAX_SERVICE_TOKENS: usize = 200;

/// A service token, without its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredServiceToken {
    /// Its id.
    pub id: ServiceTokenId,
    /// Its name, by which policies refer to it.
    pub name: DisplayName,
    /// The sockets that it is valid for; empty: all of the organisation.
    pub sockets: Vec<SocketId>,
    /// Time of creation in seconds since 1970.
    pub created_at: i64,
    /// Expiry in seconds since 1970, if any.
    pub expires_at: Option<i64>,
    /// The limits of its access.
    pub scope: ServiceTokenScope,
    /// When the last of its client certificates ends, in seconds since 1970, if it has any.
    pub certified_until: Option<i64>,
    /// The e-mail address that origins get.
    pub email: Option<PersonEmail>,
    /// The name that origins get instead of the token's name.
    pub display_name: Option<DisplayName>,
}

/// A new service token.
#[derive(Debug, Clone)]
pub struct NewServiceToken {
    /// The organisation of the token.
    pub organisation: AccountId,
    /// The token.
    pub token: StoredServiceToken,
    /// Hash of its secret.
    pub hash: SecretHash,
}

impl NewServiceToken {
    /// The token for edges.
    #[must_use]
    pub fn route(&self) -> ServiceTokenRoute {
        ServiceTokenRoute {
            id: self.token.id,
            organisation: self.organisation,
            name: self.token.name.to_string(),
            hash: self.hash,
            sockets: self.token.sockets.clone(),
            expires_at: self.token.expires_at,
            scope: self.token.scope.clone(),
            certified_until: self.token.certified_until,
            email: self.token.email.clone(),
            display_name: self.token.display_name.as_ref().map(ToString::to_string),
        }
    }
}

impl Store {
    /// Creates a token. The answer is not stored for repetitions, because it holds the secret.
    ///
    /// # Errors
    /// [`StoreError::ServiceTokenTaken`], [`StoreError::Limit`], [`StoreError::KeyReused`], [`StoreError::Gone`], or
    /// a failure of the database.
    pub async fn create_service_token(
        &self,
        new: &NewServiceToken,
        keyed: Option<&IdempotencyKey>,
    ) -> Result<Creation<()>, StoreError> {
        let mut write = self.write().await?;
        if let Some(stored) = write.recall(new.organisation, keyed).await? {
            return Ok(Creation::Repeated(stored));
        }
        let names: Vec<String> = sql::query_scalar("SELECT name FROM service_tokens WHERE organisation = $1")
            .bind(new.organisation.as_bytes().as_slice())
            .fetch_all(write.sql())
            .await?;
        if names.iter().any(|name| name == new.token.name.as_str()) {
            return Err(StoreError::ServiceTokenTaken { name: new.token.name.to_string() });
        }
        if names.len() >= MAX_SERVICE_TOKENS {
            return Err(StoreError::Limit {
                what: "service tokens for one organisation: delete some first",
                max: MAX_SERVICE_TOKENS,
            });
        }
        let sockets: Vec<String> = new.token.sockets.iter().map(SocketId::to_string).collect();
        let scope = row::json(&new.token.scope)?;
        let inserted = sql::query(
            "INSERT INTO service_tokens (id, organisation, position, name, hash, sockets, created_at, expires_at, scope,
                                         email, display_name)
             SELECT $1, id, (SELECT coalesce(max(position), 0) + 1 FROM service_tokens WHERE organisation = $2),
                    $3, $4, $5, $6, $7, $8, $9, $10
             FROM accounts WHERE id = $2",
        )
        .bind(new.token.id.as_bytes().as_slice())
        .bind(new.organisation.as_bytes().as_slice())
        .bind(new.token.name.as_str())
        .bind(new.hash.as_slice())
        .bind(sockets.join(" "))
        .bind(new.token.created_at)
        .bind(new.token.expires_at)
        .bind(scope)
        .bind(new.token.email.as_ref().map(PersonEmail::as_str))
        .bind(new.token.display_name.as_ref().map(DisplayName::as_str))
        .execute(write.sql())
        .await?;
        if inserted.rows_affected() == 0 {
            return Err(StoreError::Gone);
        }
        write.remember(new.organisation, keyed, *new.token.id.as_bytes(), None).await?;
        write.commit().await?;
        Ok(Creation::Made(()))
    }

    /// The organisation's tokens after a position, oldest first, with their positions.
    ///
    /// # Errors
    /// The database fails.
    pub async fn service_tokens(
        &self,
        organisation: AccountId,
        after: Position,
        limit: u32,
    ) -> Result<Vec<(Position, StoredServiceToken)>, StoreError> {
        let rows = sql::query(
            "SELECT position, id, name, sockets, created_at, expires_at, scope, certified_until, email,
                    display_name FROM service_tokens
             WHERE organisation = $1 AND position > $2 ORDER BY position LIMIT $3",
        )
        .bind(organisation.as_bytes().as_slice())
        .bind(after)
        .bind(limit)
        .fetch_all(&self.reader)
        .await?;
        rows.iter().map(|found| Ok((found.try_get("position")?, token(found)?))).collect()
    }

    /// Every token of every organisation that is valid at `now`, for edges.
    ///
    /// # Errors
    /// The database fails.
    pub async fn service_token_routes(&self, now: i64) -> Result<Vec<ServiceTokenRoute>, StoreError> {
        let rows = sql::query(
            "SELECT id, organisation, name, hash, sockets, created_at, expires_at, scope, certified_until, email,
                    display_name
             FROM service_tokens WHERE expires_at IS NULL OR expires_at > $1",
        )
        .bind(now)
        .fetch_all(&self.reader)
        .await?;
        rows.iter().map(route).collect()
    }

    /// A token of the organisation, for edges.
    ///
    /// # Errors
    /// The database fails.
    pub async fn service_token(
        &self,
        organisation: AccountId,
        id: ServiceTokenId,
    ) -> Result<Option<NewServiceToken>, StoreError> {
        let found = sql::query(
            "SELECT id, organisation, name, hash, sockets, created_at, expires_at, scope, certified_until, email,
                    display_name
             FROM service_tokens WHERE id = $1 AND organisation = $2",
        )
        .bind(id.as_bytes().as_slice())
        .bind(organisation.as_bytes().as_slice())
        .fetch_optional(&self.reader)
        .await?;
        found.as_ref().map(stored).transpose()
    }

    /// Records the end of a client certificate of this token; the latest end is stored. Returns the changed token;
    /// `None` if it does not exist.
    ///
    /// # Errors
    /// The database fails.
    pub async fn certify_service_token(
        &self,
        organisation: AccountId,
        id: ServiceTokenId,
        until: i64,
    ) -> Result<Option<NewServiceToken>, StoreError> {
        let mut write = self.write().await?;
        let found = sql::query(
            "UPDATE service_tokens
             SET certified_until = CASE WHEN coalesce(certified_until, 0) > $3 THEN certified_until ELSE $3 END
             WHERE id = $1 AND organisation = $2
             RETURNING id, organisation, name, hash, sockets, created_at, expires_at, scope, certified_until,
                       email, display_name",
        )
        .bind(id.as_bytes().as_slice())
        .bind(organisation.as_bytes().as_slice())
        .bind(until)
        .fetch_optional(write.sql())
        .await?;
        let token = found.as_ref().map(stored).transpose()?;
        write.commit().await?;
        Ok(token)
    }

    /// The token, if it is valid at `now`, for edges.
    ///
    /// # Errors
    /// The database fails.
    pub async fn service_token_route(
        &self,
        id: ServiceTokenId,
        now: i64,
    ) -> Result<Option<ServiceTokenRoute>, StoreError> {
        let found = sql::query(
            "SELECT id, organisation, name, hash, sockets, created_at, expires_at, scope, certified_until, email,
                    display_name
             FROM service_tokens WHERE id = $1 AND (expires_at IS NULL OR expires_at > $2)",
        )
        .bind(id.as_bytes().as_slice())
        .bind(now)
        .fetch_optional(&self.reader)
        .await?;
        found.as_ref().map(route).transpose()
    }

    /// Deletes a token of the organisation. Returns whether it existed.
    ///
    /// # Errors
    /// The database fails.
    pub async fn delete_service_token(&self, organisation: AccountId, id: ServiceTokenId) -> Result<bool, StoreError> {
        let mut write = self.write().await?;
        let deleted = sql::query("DELETE FROM service_tokens WHERE id = $1 AND organisation = $2")
            .bind(id.as_bytes().as_slice())
            .bind(organisation.as_bytes().as_slice())
            .execute(write.sql())
            .await?;
        write.commit().await?;
        Ok(deleted.rows_affected() > 0)
    }
}

fn stored(found: &DbRow) -> Result<NewServiceToken, StoreError> {
    let organisation = AccountId::from_bytes(row::bytes(found, "organisation")?);
    Ok(NewServiceToken { organisation, token: token(found)?, hash: row::bytes(found, "hash")? })
}

fn route(found: &DbRow) -> Result<ServiceTokenRoute, StoreError> {
    Ok(stored(found)?.route())
}

fn token(found: &DbRow) -> Result<StoredServiceToken, StoreError> {
    let sockets: &str = found.try_get("sockets")?;
    let sockets = sockets.split_ascii_whitespace().map(str::parse).collect::<Result<Vec<_>, _>>();
    Ok(StoredServiceToken {
        id: ServiceTokenId::from_bytes(row::bytes(found, "id")?),
        name: row::display_name(found, "name")?,
        sockets: sockets.map_err(|error| row::damaged("sockets", error))?,
        created_at: found.try_get("created_at")?,
        expires_at: found.try_get("expires_at")?,
        scope: row::from_json(found, "scope")?,
        certified_until: found.try_get("certified_until")?,
        email: optional(found, "email", |text| {
            text.parse::<PersonEmail>().map_err(|error| row::damaged("email", error))
        })?,
        display_name: optional(found, "display_name", |text| {
            DisplayName::from_stored(text).map_err(|error| row::damaged("display_name", error))
        })?,
    })
}

fn optional<T>(
    found: &DbRow,
    column: &'static str,
    read: impl FnOnce(&str) -> Result<T, StoreError>,
) -> Result<Option<T>, StoreError> {
    let text: Option<&str> = found.try_get(column)?;
    text.map(read).transpose()
}
