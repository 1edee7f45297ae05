//! The edges of an installation, and the tokens with which they join.

use sallyport_model::{AccountId, EdgeId, EdgeName, RegionName, SshLogin};

use crate::db::{
    SecretHash, Store,
    error::StoreError,
    row::{self, DbRow},
    sql,
};

/// Bound on the edges of an installation.
pub const MAX_EDGES: usize = 1_000;
/// Bound on unused join tokens.
pub const MAX_EDGE_TOKENS: usize = 1_000;
/// Time that used and expired tokens are stored, in seconds, so that an edge learns why its token is refused.
pub(crate) const REMEMBER_EDGE_TOKENS_SECONDS: i64 = 30 * 86_400;

/// An edge that has joined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEdge {
    /// Its id.
    pub id: EdgeId,
    /// Its name.
    pub name: EdgeName,
    /// Its region.
    pub region: RegionName,
    /// When it joined, in seconds since 1970.
    pub created_at: i64,
    /// End of the time for running flows if the edge is being drained, in seconds since 1970.
    pub drain_until: Option<i64>,
    /// The number by which balancers know it, from 1. No other edge has it.
    pub server: u16,
}

/// The beginning of the hash of a join token's secret, which identifies the token.
pub type EdgeTokenId = [u8; 8];

/// A stored join token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEdgeToken {
    /// Its id.
    pub id: EdgeTokenId,
    /// The name that the edge will have, if the token fixes one.
    pub name: Option<EdgeName>,
    /// The region that the edge will be in, if the token fixes one.
    pub region: Option<RegionName>,
    /// Time of creation in seconds since 1970.
    pub created_at: i64,
    /// Expiry in seconds since 1970.
    pub expires_at: i64,
    /// The edge that has joined with it.
    pub used_by: Option<TokenUser>,
}

/// The edge that joined with a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenUser {
    /// The name of the edge at that time.
    pub name: String,
    /// The id of the edge; `None` for an edge that was removed before ids were stored.
    pub id: Option<EdgeId>,
    /// Whether the edge was removed later.
    pub is_removed: bool,
}

/// A token with which one edge may join.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEdgeToken {
    /// Hash of its secret.
    pub hash: SecretHash,
    /// The name that the edge will have, if the token fixes one.
    pub name: Option<EdgeName>,
    /// The region that the edge will be in, if the token fixes one.
    pub region: Option<RegionName>,
    /// Time of creation in seconds since 1970.
    pub created_at: i64,
    /// Expiry in seconds since 1970.
    pub expires_at: i64,
}

/// An edge that asks to join.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoiningEdge {
    /// The id that the edge will have.
    pub id: EdgeId,
    /// The name that the edge asks for.
    pub name: Option<EdgeName>,
    /// The region that the edge names.
    pub region: Option<RegionName>,
    /// The current time in seconds since 1970.
    pub now: i64,
}

/// Reason why an edge may not join; the token stays valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JoinRefusal {
    /// There is no such token.
    #[error("the join token is unknown: create one with `sallyport edge token create`")]
    Unknown,
    /// The token was used before.
    #[error(
        "the join token was used before, by the edge {by}{}",
        if *.is_removed {
            ", which was removed since: create another with `sallyport edge token create`".to_owned()
        } else {
            format!(
                ": create another with `sallyport edge token create`; if you do not know that edge, remove it with \
                 `sallyport edge rm {by}`"
            )
        }
    )]
    Used {
        /// The edge that used it.
        by: String,
        /// Whether that edge was removed since; another one may have the same name.
        is_removed: bool,
    },
    /// The token has expired.
    #[error("the join token has expired: create another with `sallyport edge token create`")]
    Ended,
    /// The token is for another edge.
    #[error("the join token is for {what} {wanted}, and not for {found}")]
    Other {
        /// The differing property.
        what: &'static str,
        /// The value in the token.
        wanted: String,
        /// The edge's value.
        found: String,
    },
    /// Neither the token nor the edge names a region.
    #[error("neither the join token nor the edge names a region: add --region")]
    NoRegion,
    /// Another edge has the name.
    #[error(
        "there is already an edge named {name}: choose another name with --name, or remove that one with \
         `sallyport edge rm {name}`"
    )]
    NameTaken {
        /// The name.
        name: EdgeName,
    },
}

impl Store {
    /// The account that owns the installation: the first account, or the one that the owner named. After that account
    /// is deleted there is no owner, until all accounts are deleted and a new first one is created.
    ///
    /// # Errors
    /// The database fails.
    pub async fn first_account(&self) -> Result<Option<AccountId>, StoreError> {
        let found = sql::query("SELECT account FROM installation_owner").fetch_optional(&self.reader).await?;
        found.map(|found| Ok(AccountId::from_bytes(row::bytes(&found, "account")?))).transpose()
    }

    /// Creates a token with which one edge may join.
    ///
    /// # Errors
    /// [`StoreError::Limit`], or a failure of the database.
    pub async fn create_edge_token(&self, new: &NewEdgeToken) -> Result<(), StoreError> {
        let mut write = self.write().await?;
        let waiting: i64 =
            sql::query_scalar("SELECT count(*) FROM edge_tokens WHERE used_by IS NULL AND expires_at > $1")
                .bind(new.created_at)
                .fetch_one(write.sql())
                .await?;
        if waiting >= MAX_EDGE_TOKENS as i64 {
            return Err(StoreError::Limit { what: "join tokens: let some of them end first", max: MAX_EDGE_TOKENS });
        }
        sql::query("INSERT INTO edge_tokens (hash, name, region, created_at, expires_at) VALUES ($1, $2, $3, $4, $5)")
            .bind(new.hash.as_slice())
            .bind(new.name.as_ref().map(EdgeName::as_str))
            .bind(new.region.as_ref().map(RegionName::as_str))
            .bind(new.created_at)
            .bind(new.expires_at)
            .execute(write.sql())
            .await?;
        write.commit().await
    }

    /// The stored join tokens, newest first: unused ones, and those that were used or expired in the last 30 days.
    ///
    /// # Errors
    /// The database fails.
    pub async fn edge_tokens(&self) -> Result<Vec<StoredEdgeToken>, StoreError> {
        let rows = sql::query(
            "SELECT hash, name, region, created_at, expires_at, used_by, used_by_id,
                 (SELECT count(*) FROM edges WHERE edges.id = edge_tokens.used_by_id
                     OR edge_tokens.used_by_id IS NULL AND edges.name = edge_tokens.used_by
                         AND edges.created_at BETWEEN edge_tokens.created_at AND edge_tokens.expires_at) AS users_there
             FROM edge_tokens ORDER BY created_at DESC, hash LIMIT $1",
        );
        let rows = rows.bind(2 * MAX_EDGE_TOKENS as i64).fetch_all(&self.reader).await?;
        let token = |found: &DbRow| {
            let hash: SecretHash = row::bytes(found, "hash")?;
            let mut id = EdgeTokenId::default();
            id.copy_from_slice(&hash[..8]);
            Ok(StoredEdgeToken {
                id,
                name: optional(found, "name")?,
                region: optional(found, "region")?,
                created_at: found.try_get("created_at")?,
                expires_at: found.try_get("expires_at")?,
                used_by: user(found)?,
            })
        };
        rows.iter().map(token).collect()
    }

    /// Removes a join token, used or not. Returns whether there was one.
    ///
    /// # Errors
    /// The database fails.
    pub async fn delete_edge_token(&self, id: EdgeTokenId) -> Result<bool, StoreError> {
        let mut write = self.write().await?;
        let deleted = sql::query("DELETE FROM edge_tokens WHERE substr(hash, 1, 8) = $1");
        let deleted = deleted.bind(id.as_slice()).execute(write.sql()).await?;
        write.commit().await?;
        Ok(deleted.rows_affected() > 0)
    }

    /// Makes this account the owner of the installation. Returns whether the account exists.
    ///
    /// # Errors
    /// The database fails.
    pub async fn hand_over(&self, account: AccountId) -> Result<bool, StoreError> {
        let mut write = self.write().await?;
        sql::query("DELETE FROM installation_owner").execute(write.sql()).await?;
        let done = sql::query(
            "INSERT INTO installation_owner (account) SELECT id FROM accounts WHERE id = $1 AND email_key <> ''",
        );
        let done = done.bind(account.as_bytes().as_slice()).execute(write.sql()).await?;
        if done.rows_affected() == 0 {
            return Ok(false);
        }
        write.commit().await?;
        Ok(true)
    }

    /// Lets an edge join with the token of this hash, and marks the token as used.
    ///
    /// # Errors
    /// [`StoreError::Limit`], or a failure of the database. A refusal is part of the value.
    pub async fn join_edge(
        &self,
        hash: SecretHash,
        joining: &JoiningEdge,
    ) -> Result<Result<StoredEdge, JoinRefusal>, StoreError> {
        let mut write = self.write().await?;
        let token = sql::query(
            "SELECT name, region, expires_at, used_by, used_by_id,
                 (SELECT count(*) FROM edges WHERE edges.id = edge_tokens.used_by_id
                     OR edge_tokens.used_by_id IS NULL AND edges.name = edge_tokens.used_by
                         AND edges.created_at BETWEEN edge_tokens.created_at AND edge_tokens.expires_at) AS users_there
             FROM edge_tokens WHERE hash = $1",
        );
        let token = token.bind(hash.as_slice()).fetch_optional(write.sql()).await?;
        let Some(token) = token else { return Ok(Err(JoinRefusal::Unknown)) };
        if let Some(TokenUser { name, is_removed, .. }) = user(&token)? {
            return Ok(Err(JoinRefusal::Used { by: name, is_removed }));
        }
        if token.try_get::<i64>("expires_at")? <= joining.now {
            return Ok(Err(JoinRefusal::Ended));
        }
        let said_name = optional::<EdgeName>(&token, "name")?;
        let said_region = optional::<RegionName>(&token, "region")?;
        let name = match agreed("the edge", said_name, joining.name.clone()) {
            Ok(name) => name,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let region = match agreed("the region", said_region, joining.region.clone()) {
            Ok(Some(region)) => region,
            Ok(None) => return Ok(Err(JoinRefusal::NoRegion)),
            Err(refusal) => return Ok(Err(refusal)),
        };
        let names: Vec<String> = sql::query_scalar("SELECT name FROM edges").fetch_all(write.sql()).await?;
        let name = name.unwrap_or_else(|| free_name(&region, &names));
        if names.iter().any(|taken| taken == name.as_str()) {
            return Ok(Err(JoinRefusal::NameTaken { name }));
        }
        if names.len() >= MAX_EDGES {
            return Err(StoreError::Limit { what: "edges: remove some first", max: MAX_EDGES });
        }
        let servers: Vec<i64> = sql::query_scalar("SELECT server FROM edges").fetch_all(write.sql()).await?;
        let server = free_number(&servers);
        let edge = StoredEdge { id: joining.id, name, region, created_at: joining.now, drain_until: None, server };
        sql::query("INSERT INTO edges (id, name, region, created_at, server) VALUES ($1, $2, $3, $4, $5)")
            .bind(edge.id.as_bytes().as_slice())
            .bind(edge.name.as_str())
            .bind(edge.region.as_str())
            .bind(edge.created_at)
            .bind(i64::from(edge.server))
            .execute(write.sql())
            .await?;
        sql::query("UPDATE edge_tokens SET used_by = $1, used_by_id = $2 WHERE hash = $3")
            .bind(edge.name.as_str())
            .bind(edge.id.as_bytes().as_slice())
            .bind(hash.as_slice())
            .execute(write.sql())
            .await?;
        write.commit().await?;
        Ok(Ok(edge))
    }

    /// Every edge that has joined and was not removed, by name.
    ///
    /// # Errors
    /// The database fails.
    pub async fn edges(&self) -> Result<Vec<StoredEdge>, StoreError> {
        let rows = sql::query("SELECT id, name, region, created_at, drain_until, server FROM edges ORDER BY name")
            .fetch_all(&self.reader)
            .await?;
        rows.iter().map(edge).collect()
    }

    /// The edge, unless it was removed.
    ///
    /// # Errors
    /// The database fails.
    pub async fn edge(&self, id: EdgeId) -> Result<Option<StoredEdge>, StoreError> {
        let found = sql::query("SELECT id, name, region, created_at, drain_until, server FROM edges WHERE id = $1")
            .bind(id.as_bytes().as_slice())
            .fetch_optional(&self.reader)
            .await?;
        found.as_ref().map(edge).transpose()
    }

    /// The account's keys for ssh clients, if it has any.
    ///
    /// # Errors
    /// The database fails.
    pub async fn ssh_login(&self, account: AccountId) -> Result<Option<SshLogin>, StoreError> {
        let keys: Vec<String> =
            sql::query_scalar("SELECT public_key FROM ssh_keys WHERE account = $1 ORDER BY position")
                .bind(account.as_bytes().as_slice())
                .fetch_all(&self.reader)
                .await?;
        Ok((!keys.is_empty()).then_some(SshLogin { account, keys }))
    }

    /// Drains an edge, with time until then for running flows; `None` ends draining. Returns the edge, if it exists.
    ///
    /// # Errors
    /// The database fails.
    pub async fn drain_edge(&self, id: EdgeId, until: Option<i64>) -> Result<Option<StoredEdge>, StoreError> {
        let mut write = self.write().await?;
        sql::query("UPDATE edges SET drain_until = $1 WHERE id = $2")
            .bind(until)
            .bind(id.as_bytes().as_slice())
            .execute(write.sql())
            .await?;
        write.commit().await?;
        self.edge(id).await
    }

    /// Removes an edge. Returns whether it existed.
    ///
    /// # Errors
    /// The database fails.
    pub async fn delete_edge(&self, id: EdgeId) -> Result<bool, StoreError> {
        let mut write = self.write().await?;
        let deleted =
            sql::query("DELETE FROM edges WHERE id = $1").bind(id.as_bytes().as_slice()).execute(write.sql()).await?;
        write.commit().await?;
        Ok(deleted.rows_affected() > 0)
    }
}

/// The common value, or the only one given.
fn agreed<T: PartialEq + ToString>(
    what: &'static str,
    token: Option<T>,
    edge: Option<T>,
) -> Result<Option<T>, JoinRefusal> {
    match (token, edge) {
        (Some(wanted), Some(found)) if wanted != found => {
            Err(JoinRefusal::Other { what, wanted: wanted.to_string(), found: found.to_string() })
        }
        (token, edge) => Ok(token.or(edge)),
    }
}

/// The first unused server number. There are more numbers than edges.
fn free_number(taken: &[i64]) -> u16 {
    (1..u16::MAX).find(|number| !taken.contains(&i64::from(*number))).unwrap_or(u16::MAX)
}

/// The region's name with the first unused number.
fn free_name(region: &RegionName, taken: &[String]) -> EdgeName {
    let stem: String = region.as_str().chars().take(26).collect();
    let stem = stem.trim_end_matches('-');
    let free = (1..=MAX_EDGES + 1).map(|number| format!("{stem}-{number}")).find(|name| !taken.contains(name));
    // There is one number more than edges, so one is unused. The result has the form of an edge's name.
    let name = free.unwrap_or_else(|| stem.to_owned());
    name.parse().expect("a region's name and a number are a name")
}

fn optional<T: std::str::FromStr<Err: std::fmt::Display>>(
    found: &DbRow,
    column: &'static str,
) -> Result<Option<T>, StoreError> {
    let text: Option<&str> = found.try_get(column)?;
    text.map(|text| text.parse().map_err(|error| row::damaged(column, error))).transpose()
}

/// The edge that joined with the token of this row.
fn user(found: &DbRow) -> Result<Option<TokenUser>, StoreError> {
    let Some(name) = found.try_get::<Option<&str>>("used_by")? else { return Ok(None) };
    let id = row::optional_bytes(found, "used_by_id")?.map(EdgeId::from_bytes);
    Ok(Some(TokenUser { name: name.to_owned(), id, is_removed: found.try_get::<i64>("users_there")? == 0 }))
}

fn edge(found: &DbRow) -> Result<StoredEdge, StoreError> {
    Ok(StoredEdge {
        id: EdgeId::from_bytes(row::bytes(found, "id")?),
        name: row::parsed(found, "name")?,
        region: row::parsed(found, "region")?,
        created_at: found.try_get("created_at")?,
        drain_until: found.try_get("drain_until")?,
        server: u16::try_from(found.try_get::<i64>("server")?).map_err(|error| row::damaged("server", error))?,
    })
}
