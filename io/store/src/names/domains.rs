//! Domains of organisations. Several organisations may add a name; at most one has it verified.

use sallyport_model::{AccountId, DomainId, DomainName, SocketId};

use crate::db::{
    Position, Store,
    error::StoreError,
    row::{self, DbConnection, DbRow},
    sql,
    write::Write,
};

/// Bound on the domains of an organisation.
pub const MAX_DOMAINS_PER_ORGANISATION: usize = 1_000;

/// A domain of an organisation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredDomain {
    /// Its id.
    pub id: DomainId,
    /// Its organisation.
    pub organisation: AccountId,
    /// The name.
    pub name: DomainName,
    /// The socket that the domain leads to.
    pub socket: Option<SocketId>,
    /// Since when the domain is verified, in seconds since 1970.
    pub verified_at: Option<i64>,
    /// Since when the record of a verified domain is missing.
    pub missing_since: Option<i64>,
    /// When the record was last looked up.
    pub checked_at: Option<i64>,
    /// What the last lookup lacked, a sentence.
    pub problem: Option<String>,
    /// When to look the record up again.
    pub check_at: i64,
    /// When the domain was added.
    pub created_at: i64,
}

/// The result of a lookup of a domain's record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DomainCheck {
    /// Since when the domain is verified.
    pub verified_at: Option<i64>,
    /// Since when its record is missing.
    pub missing_since: Option<i64>,
    /// When it was looked up.
    pub checked_at: i64,
    /// What was lacking.
    pub problem: Option<String>,
    /// When to look again.
    pub check_at: i64,
}

impl Store {
    /// Adds a domain.
    ///
    /// # Errors
    /// [`StoreError::DomainTaken`] if the organisation has the name, or if the domain is verified here and in another
    /// organisation; [`StoreError::Limit`], [`StoreError::Gone`], or a failure of the database.
    pub async fn create_domain(&self, domain: &StoredDomain) -> Result<(), StoreError> {
        let mut write = self.write().await?;
        let own = sql::query_scalar::<i64>("SELECT count(*) FROM domains WHERE organisation = $1 AND name = $2")
            .bind(domain.organisation.as_bytes().as_slice())
            .bind(domain.name.as_str())
            .fetch_one(write.sql())
            .await?;
        if own > 0 {
            return Err(StoreError::DomainTaken { name: domain.name.to_string(), by: "this organisation" });
        }
        if domain.verified_at.is_some() {
            require_unverified(&mut write, domain.id, &domain.name).await?;
        }
        let (count, what) =
            ("SELECT count(*) FROM domains WHERE organisation = $1", "domains for one organisation: remove some first");
        write.require_room(count, domain.organisation.as_bytes(), MAX_DOMAINS_PER_ORGANISATION, what).await?;
        let inserted = sql::query(
            "INSERT INTO domains (id, organisation, position, name, verified_at, checked_at, problem, check_at,
                                  created_at)
             SELECT $1, id, (SELECT coalesce(max(position), 0) + 1 FROM domains WHERE organisation = $2), $3, $4, $5,
                    $6, $7, $8
             FROM accounts WHERE id = $2",
        )
        .bind(domain.id.as_bytes().as_slice())
        .bind(domain.organisation.as_bytes().as_slice())
        .bind(domain.name.as_str())
        .bind(domain.verified_at)
        .bind(domain.checked_at)
        .bind(domain.problem.as_deref())
        .bind(domain.check_at)
        .bind(domain.created_at)
        .execute(write.sql())
        .await?;
        if inserted.rows_affected() == 0 {
            return Err(StoreError::Gone);
        }
        if domain.verified_at.is_some() {
            forget_former(&mut write, &domain.name).await?;
        }
        write.commit().await
    }

    /// The domains of an organisation after a position, oldest first, with their positions.
    ///
    /// # Errors
    /// The database fails.
    pub async fn domains(
        &self,
        organisation: AccountId,
        after: Position,
        limit: u32,
    ) -> Result<Vec<(Position, StoredDomain)>, StoreError> {
        let rows =
            sql::query("SELECT * FROM domains WHERE organisation = $1 AND position > $2 ORDER BY position LIMIT $3")
                .bind(organisation.as_bytes().as_slice())
                .bind(after)
                .bind(limit)
                .fetch_all(&self.reader)
                .await?;
        rows.iter().map(|found| Ok((found.try_get("position")?, domain(found)?))).collect()
    }

    /// A domain of an organisation, by its name.
    ///
    /// # Errors
    /// The database fails.
    pub async fn domain(&self, organisation: AccountId, name: &DomainName) -> Result<Option<StoredDomain>, StoreError> {
        let found = sql::query("SELECT * FROM domains WHERE organisation = $1 AND name = $2")
            .bind(organisation.as_bytes().as_slice())
            .bind(name.as_str())
            .fetch_optional(&self.reader)
            .await?;
        found.as_ref().map(domain).transpose()
    }

    /// The organisation that has the name verified, or had it verified last.
    ///
    /// # Errors
    /// The database fails.
    pub async fn domain_owner(&self, name: &DomainName) -> Result<Option<AccountId>, StoreError> {
        let found = sql::query(
            "SELECT organisation FROM domains WHERE name = $1 AND verified_at IS NOT NULL
             UNION ALL SELECT organisation FROM former_domains WHERE name = $1 LIMIT 1",
        )
        .bind(name.as_str())
        .fetch_optional(&self.reader)
        .await?;
        found.map(|found| row::bytes(&found, "organisation").map(AccountId::from_bytes)).transpose()
    }

    /// The domain that is verified under this name, of any organisation.
    ///
    /// # Errors
    /// The database fails.
    pub async fn verified_domain(&self, name: &DomainName) -> Result<Option<StoredDomain>, StoreError> {
        let found = sql::query("SELECT * FROM domains WHERE name = $1 AND verified_at IS NOT NULL")
            .bind(name.as_str())
            .fetch_optional(&self.reader)
            .await?;
        found.as_ref().map(domain).transpose()
    }

    /// All verified domains, of all organisations.
    ///
    /// # Errors
    /// The database fails.
    pub async fn verified_domains(&self) -> Result<Vec<StoredDomain>, StoreError> {
        let rows = sql::query("SELECT * FROM domains WHERE verified_at IS NOT NULL ORDER BY name")
            .fetch_all(&self.reader)
            .await?;
        rows.iter().map(domain).collect()
    }

    /// The domains whose record is to be looked up by now. Organisations take turns; of each, the longest due comes
    /// first. A time beyond `latest` counts as due: the clock was ahead when it was set.
    ///
    /// # Errors
    /// The database fails.
    pub async fn due_domains(&self, now: i64, latest: i64, limit: u32) -> Result<Vec<StoredDomain>, StoreError> {
        let rows = sql::query(
            "SELECT * FROM (
                 SELECT *, row_number() OVER (PARTITION BY organisation ORDER BY check_at) AS turn
                 FROM domains WHERE check_at <= $1 OR check_at > $2
             ) AS due ORDER BY turn, check_at LIMIT $3",
        )
        .bind(now)
        .bind(latest)
        .bind(limit)
        .fetch_all(&self.reader)
        .await?;
        rows.iter().map(domain).collect()
    }

    /// Stores the result of a lookup. Returns the domain afterwards, or `None` if it was removed meanwhile.
    ///
    /// # Errors
    /// [`StoreError::DomainTaken`] if another organisation has the name verified; a failure of the database.
    pub async fn check_domain(&self, id: DomainId, check: &DomainCheck) -> Result<Option<StoredDomain>, StoreError> {
        let mut write = self.write().await?;
        let Some(found) = find(&mut write, id).await? else { return Ok(None) };
        if check.verified_at.is_some() && found.verified_at.is_none() {
            require_unverified(&mut write, id, &found.name).await?;
            forget_former(&mut write, &found.name).await?;
        }
        if check.verified_at.is_none() && found.verified_at.is_some() {
            remember_former(&mut write, &found).await?;
        }
        sql::query(
            "UPDATE domains SET verified_at = $2, missing_since = $3, checked_at = $4, problem = $5, check_at = $6
             WHERE id = $1",
        )
        .bind(id.as_bytes().as_slice())
        .bind(check.verified_at)
        .bind(check.missing_since)
        .bind(check.checked_at)
        .bind(check.problem.as_deref())
        .bind(check.check_at)
        .execute(write.sql())
        .await?;
        let after = find(&mut write, id).await?;
        write.commit().await?;
        Ok(after)
    }

    /// Replaces the domains of a socket by these domains of its organisation. Returns the sockets that had one of them
    /// before.
    ///
    /// # Errors
    /// [`StoreError::DomainUnverified`] if one is missing or not verified, or a failure of the database.
    pub async fn set_socket_domains(
        &self,
        organisation: AccountId,
        socket: SocketId,
        names: &[DomainName],
    ) -> Result<Vec<SocketId>, StoreError> {
        let mut write = self.write().await?;
        let former = attach(&mut write, (organisation, socket), names, None).await?;
        write.commit().await?;
        Ok(former)
    }

    /// Removes a domain of an organisation. A verified name is then for whoever proves it next. Returns the removed
    /// domain.
    ///
    /// # Errors
    /// The database fails.
    pub async fn delete_domain(
        &self,
        organisation: AccountId,
        name: &DomainName,
    ) -> Result<Option<StoredDomain>, StoreError> {
        let mut write = self.write().await?;
        let found = sql::query("SELECT * FROM domains WHERE organisation = $1 AND name = $2")
            .bind(organisation.as_bytes().as_slice())
            .bind(name.as_str())
            .fetch_optional(write.sql())
            .await?;
        let Some(found) = found.as_ref().map(domain).transpose()? else { return Ok(None) };
        sql::query("DELETE FROM domains WHERE id = $1")
            .bind(found.id.as_bytes().as_slice())
            .execute(write.sql())
            .await?;
        write.commit().await?;
        Ok(Some(found))
    }
}

/// Replaces the domains of a socket; see [`Store::set_socket_domains`]. Only from the `movable` sockets, if some are
/// given, may a domain be taken.
pub(crate) async fn attach(
    write: &mut Write,
    (organisation, socket): (AccountId, SocketId),
    names: &[DomainName],
    movable: Option<&[SocketId]>,
) -> Result<Vec<SocketId>, StoreError> {
    let mut former = Vec::new();
    sql::query("UPDATE domains SET socket = NULL WHERE socket = $1")
        .bind(socket.as_bytes().as_slice())
        .execute(write.sql())
        .await?;
    for name in names {
        let found = sql::query("SELECT * FROM domains WHERE organisation = $1 AND name = $2")
            .bind(organisation.as_bytes().as_slice())
            .bind(name.as_str())
            .fetch_optional(write.sql())
            .await?;
        let found = found.as_ref().map(domain).transpose()?.filter(|found| found.verified_at.is_some());
        let Some(found) = found else { return Err(StoreError::DomainUnverified { name: name.to_string() }) };
        let holder = found.socket.filter(|other| *other != socket);
        if let (Some(holder), Some(movable)) = (holder, movable)
            && !movable.contains(&holder)
        {
            return Err(StoreError::DomainInUse { name: name.to_string() });
        }
        former.extend(holder);
        sql::query("UPDATE domains SET socket = $2 WHERE id = $1")
            .bind(found.id.as_bytes().as_slice())
            .bind(socket.as_bytes().as_slice())
            .execute(write.sql())
            .await?;
    }
    Ok(former)
}

/// The verified domains with a socket: those of one socket, or all.
pub(crate) async fn attached(
    read: &mut DbConnection,
    socket: Option<SocketId>,
) -> Result<Vec<(SocketId, DomainName)>, StoreError> {
    let socket = socket.as_ref().map(|socket| socket.as_bytes().as_slice());
    let rows = sql::query(
        "SELECT socket, name FROM domains
         WHERE verified_at IS NOT NULL AND socket IS NOT NULL AND ($1 IS NULL OR socket = $1) ORDER BY name",
    )
    .bind(socket)
    .fetch_all(read)
    .await?;
    let pair = |found: &DbRow| Ok((SocketId::from_bytes(row::bytes(found, "socket")?), row::parsed(found, "name")?));
    rows.iter().map(pair).collect()
}

async fn find(write: &mut Write, id: DomainId) -> Result<Option<StoredDomain>, StoreError> {
    let found = sql::query("SELECT * FROM domains WHERE id = $1")
        .bind(id.as_bytes().as_slice())
        .fetch_optional(write.sql())
        .await?;
    found.as_ref().map(domain).transpose()
}

/// Fails if another domain with this name is verified.
async fn require_unverified(write: &mut Write, id: DomainId, name: &DomainName) -> Result<(), StoreError> {
    let count = sql::query_scalar::<i64>(
        "SELECT count(*) FROM domains WHERE name = $1 AND verified_at IS NOT NULL AND id <> $2",
    )
    .bind(name.as_str())
    .bind(id.as_bytes().as_slice())
    .fetch_one(write.sql())
    .await?;
    if count == 0 {
        return Ok(());
    }
    Err(StoreError::DomainTaken { name: name.to_string(), by: "another organisation" })
}

/// Notes which organisation had the name verified last, so that nobody takes it over by adding it.
async fn remember_former(write: &mut Write, domain: &StoredDomain) -> Result<(), StoreError> {
    sql::query(
        "INSERT INTO former_domains (name, organisation) VALUES ($1, $2)
         ON CONFLICT (name) DO UPDATE SET organisation = excluded.organisation",
    )
    .bind(domain.name.as_str())
    .bind(domain.organisation.as_bytes().as_slice())
    .execute(write.sql())
    .await?;
    Ok(())
}

async fn forget_former(write: &mut Write, name: &DomainName) -> Result<(), StoreError> {
    sql::query("DELETE FROM former_domains WHERE name = $1").bind(name.as_str()).execute(write.sql()).await?;
    Ok(())
}

fn domain(found: &DbRow) -> Result<StoredDomain, StoreError> {
    Ok(StoredDomain {
        id: DomainId::from_bytes(row::bytes(found, "id")?),
        organisation: AccountId::from_bytes(row::bytes(found, "organisation")?),
        name: row::parsed(found, "name")?,
        socket: row::optional_bytes(found, "socket")?.map(SocketId::from_bytes),
        verified_at: found.try_get("verified_at")?,
        missing_since: found.try_get("missing_since")?,
        checked_at: found.try_get("checked_at")?,
        problem: found.try_get("problem")?,
        check_at: found.try_get("check_at")?,
        created_at: found.try_get("created_at")?,
    })
}
