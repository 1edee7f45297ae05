//! Direct origins.

use sallyport_model::{
    AccountId, Capacity, DirectOrigin, DirectOriginId, MAX_DIRECT_ORIGINS_PER_SOCKET, OriginAddr, OriginTlsSettings,
    PathPrefix, PathRoute, RegionName, SocketId,
};

use super::tunnels;
use crate::db::{
    Position, Store,
    error::StoreError,
    idempotency::{Creation, IdempotencyKey},
    row::{self, DbRow},
    sql,
    write::Write,
};

/// Changes to a direct origin; `None` keeps the former value.
#[derive(Debug, Clone, Default)]
pub struct DirectOriginChange {
    /// Its address.
    pub address: Option<OriginAddr>,
    /// Its region; `Some(None)`: the region of each edge that dials it.
    pub region: Option<Option<RegionName>>,
    /// Its share of the socket's flows relative to the other origins.
    pub weight: Option<u16>,
    /// How its certificate is verified.
    pub tls: Option<OriginTlsSettings>,
    /// The paths of the socket that it serves.
    pub path: Option<PathRoute>,
    /// What it can carry.
    pub capacity: Option<Capacity>,
}

impl Store {
    /// Creates a direct origin at a socket of the account.
    ///
    /// # Errors
    /// [`StoreError::Gone`] if the account has no such socket, [`StoreError::Limit`], [`StoreError::OriginTaken`],
    /// [`StoreError::KeyReused`], or a failure of the database.
    pub async fn create_direct_origin(
        &self,
        account: AccountId,
        new: &DirectOrigin,
        keyed: Option<&IdempotencyKey>,
    ) -> Result<Creation<DirectOrigin>, StoreError> {
        let mut write = self.write().await?;
        if let Some(stored) = write.recall(account, keyed).await? {
            return Ok(Creation::Repeated(stored));
        }
        let (count, what) = (
            "SELECT count(*) FROM direct_origins WHERE socket = $1",
            "direct origins at one socket: remove some first",
        );
        write.require_room(count, new.socket.as_bytes(), MAX_DIRECT_ORIGINS_PER_SOCKET, what).await?;
        refuse_taken(&mut write, new).await?;
        let inserted = sql::query(
            "INSERT INTO direct_origins (id, socket, position, address, region, weight, tls, created_at, path,
                 rewrite_path, capacity)
             SELECT $1, id, (SELECT coalesce(max(position), 0) + 1 FROM direct_origins WHERE socket = $2), $4, $5, $6,
                    $7, $8, $9, $10, $11
             FROM sockets WHERE id = $2 AND account = $3",
        )
        .bind(new.id.as_bytes().as_slice())
        .bind(new.socket.as_bytes().as_slice())
        .bind(account.as_bytes().as_slice())
        .bind(new.address.to_string())
        .bind(new.region.as_ref().map(RegionName::as_str))
        .bind(new.weight)
        .bind(row::json(&new.tls)?)
        .bind(new.created_at)
        .bind(new.path.prefix.as_str())
        .bind(new.path.rewrite.as_ref().map(PathPrefix::as_str))
        .bind(row::json(&new.capacity)?)
        .execute(write.sql())
        .await?;
        if inserted.rows_affected() == 0 {
            return Err(StoreError::Gone);
        }
        write.remember(account, keyed, *new.id.as_bytes(), None).await?;
        write.commit().await?;
        Ok(Creation::Made(new.clone()))
    }

    /// The socket's direct origins after a position, oldest first, with their positions. The caller has checked the
    /// socket's owner.
    ///
    /// # Errors
    /// The database fails.
    pub async fn direct_origins(
        &self,
        socket: SocketId,
        after: Position,
        limit: u32,
    ) -> Result<Vec<(Position, DirectOrigin)>, StoreError> {
        let rows =
            sql::query("SELECT * FROM direct_origins WHERE socket = $1 AND position > $2 ORDER BY position LIMIT $3")
                .bind(socket.as_bytes().as_slice())
                .bind(after)
                .bind(limit)
                .fetch_all(&self.reader)
                .await?;
        rows.iter().map(|found| Ok((found.try_get("position")?, origin(found)?))).collect()
    }

    /// A direct origin of the socket.
    ///
    /// # Errors
    /// The database fails.
    pub async fn direct_origin(
        &self,
        socket: SocketId,
        id: DirectOriginId,
    ) -> Result<Option<DirectOrigin>, StoreError> {
        let found = sql::query("SELECT * FROM direct_origins WHERE id = $1 AND socket = $2")
            .bind(id.as_bytes().as_slice())
            .bind(socket.as_bytes().as_slice())
            .fetch_optional(&self.reader)
            .await?;
        found.as_ref().map(origin).transpose()
    }

    /// Changes a direct origin of the socket. Returns the changed one, or `None` if it does not exist.
    ///
    /// # Errors
    /// [`StoreError::OriginTaken`], or a failure of the database; nothing is changed then.
    pub async fn change_direct_origin(
        &self,
        socket: SocketId,
        id: DirectOriginId,
        change: DirectOriginChange,
    ) -> Result<Option<DirectOrigin>, StoreError> {
        let mut write = self.write().await?;
        let found = sql::query("SELECT * FROM direct_origins WHERE id = $1 AND socket = $2")
            .bind(id.as_bytes().as_slice())
            .bind(socket.as_bytes().as_slice())
            .fetch_optional(write.sql())
            .await?;
        let Some(former) = found.as_ref().map(origin).transpose()? else { return Ok(None) };
        let changed = DirectOrigin {
            address: change.address.unwrap_or(former.address),
            region: change.region.unwrap_or(former.region),
            weight: change.weight.unwrap_or(former.weight),
            tls: change.tls.unwrap_or(former.tls),
            path: change.path.unwrap_or(former.path),
            capacity: change.capacity.unwrap_or(former.capacity),
            ..former
        };
        refuse_taken(&mut write, &changed).await?;
        sql::query(
            "UPDATE direct_origins SET address = $2, region = $3, weight = $4, tls = $5, path = $6, rewrite_path = $7,
                 capacity = $8
             WHERE id = $1",
        )
        .bind(id.as_bytes().as_slice())
        .bind(changed.address.to_string())
        .bind(changed.region.as_ref().map(RegionName::as_str))
        .bind(changed.weight)
        .bind(row::json(&changed.tls)?)
        .bind(changed.path.prefix.as_str())
        .bind(changed.path.rewrite.as_ref().map(PathPrefix::as_str))
        .bind(row::json(&changed.capacity)?)
        .execute(write.sql())
        .await?;
        write.commit().await?;
        Ok(Some(changed))
    }

    /// Deletes a direct origin of the socket. Returns whether it existed.
    ///
    /// # Errors
    /// The database fails.
    pub async fn delete_direct_origin(&self, socket: SocketId, id: DirectOriginId) -> Result<bool, StoreError> {
        let mut write = self.write().await?;
        let deleted = sql::query("DELETE FROM direct_origins WHERE id = $1 AND socket = $2")
            .bind(id.as_bytes().as_slice())
            .bind(socket.as_bytes().as_slice())
            .execute(write.sql())
            .await?;
        write.commit().await?;
        Ok(deleted.rows_affected() > 0)
    }
}

/// Refuses the address of another origin of the socket: a duplicate would get twice its share by mistake.
async fn refuse_taken(write: &mut Write, origin: &DirectOrigin) -> Result<(), StoreError> {
    let address = origin.address.to_string();
    let others: i64 =
        sql::query_scalar("SELECT count(*) FROM direct_origins WHERE socket = $1 AND address = $2 AND id <> $3")
            .bind(origin.socket.as_bytes().as_slice())
            .bind(address.as_str())
            .bind(origin.id.as_bytes().as_slice())
            .fetch_one(write.sql())
            .await?;
    if others > 0 { Err(StoreError::OriginTaken { address }) } else { Ok(()) }
}

pub(crate) fn origin(found: &DbRow) -> Result<DirectOrigin, StoreError> {
    let region: Option<&str> = found.try_get("region")?;
    let region = region.map(|name| name.parse().map_err(|error| row::damaged("region", error))).transpose()?;
    Ok(DirectOrigin {
        id: DirectOriginId::from_bytes(row::bytes(found, "id")?),
        socket: SocketId::from_bytes(row::bytes(found, "socket")?),
        address: row::parsed(found, "address")?,
        region,
        weight: found.try_get("weight")?,
        tls: row::from_json(found, "tls")?,
        path: tunnels::path(found)?,
        capacity: row::from_json(found, "capacity")?,
        created_at: found.try_get("created_at")?,
    })
}
