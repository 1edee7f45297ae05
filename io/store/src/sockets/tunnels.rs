//! Tunnels.

use sallyport_model::{
    AccountId, Capacity, CredentialHash, DisplayName, LabelSelector, Labels, MAX_TUNNELS_PER_SOCKET, PathPrefix,
    PathRoute, ShortId, SocketId, Tunnel, TunnelId,
};

use super::{labels, socket_names};
use crate::{
    cluster::controls::HolderId,
    db::{
        Position, Store,
        error::StoreError,
        idempotency::{Creation, IdempotencyKey},
        row::{self, DbRow},
        sql,
        write::Write,
    },
};

/// A new tunnel.
#[derive(Debug, Clone)]
pub struct NewTunnel {
    /// Its id.
    pub id: TunnelId,
    /// The socket it will belong to.
    pub socket: SocketId,
    /// Its display name, if any.
    pub name: Option<DisplayName>,
    /// SHA-256 of the connector's credential.
    pub credential: CredentialHash,
    /// Its share of the socket's flows relative to the other tunnels.
    pub weight: u16,
    /// The paths of the socket that it serves.
    pub path: PathRoute,
    /// What its origin can carry.
    pub capacity: Capacity,
    /// Its labels.
    pub labels: Labels,
    /// The holder of a temporary tunnel, which ends with its forward, at the latest with the holder.
    pub temporary: Option<HolderId>,
    /// Time of creation in seconds since 1970.
    pub created_at: i64,
}

/// Changes to a tunnel; `None` keeps the former value.
#[derive(Debug, Clone, Default)]
pub struct TunnelChange {
    /// The display name; `Some(None)`: none.
    pub name: Option<Option<DisplayName>>,
    /// The share of the socket's flows.
    pub weight: Option<u16>,
    /// The paths of the socket that it serves.
    pub path: Option<PathRoute>,
    /// What its origin can carry.
    pub capacity: Option<Capacity>,
    /// All labels.
    pub labels: Option<Labels>,
}

impl Store {
    /// Creates a tunnel at a socket of the account, with the first of the forward ports that no other tunnel of the
    /// account has. The answer is not stored for repetitions, because it holds the credential.
    ///
    /// # Errors
    /// [`StoreError::Gone`] when the account has no such socket, [`StoreError::Limit`], [`StoreError::NameTaken`],
    /// [`StoreError::NoFreeForwardPort`], [`StoreError::KeyReused`], or a failure of the database.
    pub async fn create_tunnel(
        &self,
        account: AccountId,
        new: &NewTunnel,
        forward_ports: &[u16],
        keyed: Option<&IdempotencyKey>,
    ) -> Result<Creation<Tunnel>, StoreError> {
        let mut write = self.write().await?;
        if let Some(stored) = write.recall(account, keyed).await? {
            return Ok(Creation::Repeated(stored));
        }
        let (count, what) =
            ("SELECT count(*) FROM tunnels WHERE socket = $1", "tunnels at one socket: delete some first");
        write.require_room(count, new.socket.as_bytes(), MAX_TUNNELS_PER_SOCKET, what).await?;
        if let Some(name) = &new.name {
            socket_names::require_free_tunnel(&mut write, account, new.id, name).await?;
        }
        let tunnel = Tunnel {
            id: new.id,
            socket: new.socket,
            name: new.name.clone(),
            credential: new.credential,
            weight: new.weight,
            path: new.path.clone(),
            capacity: new.capacity.clone(),
            labels: new.labels.clone(),
            forward_port: take_forward_port(&mut write, account, forward_ports).await?,
            created_at: new.created_at,
        };
        let inserted = sql::query(
            "INSERT INTO tunnels (id, socket, position, credential, weight, forward_port, created_at, temporary, holder,
                 path, rewrite_path, display_name, name_key, capacity, labels)
             SELECT $1, id, (SELECT coalesce(max(position), 0) + 1 FROM tunnels WHERE socket = $2), \
             $4, $5, $6, $7, $8, $9,
                    $10, $11, $12, $13, $14, $15
             FROM sockets WHERE id = $2 AND account = $3",
        )
        .bind(tunnel.id.as_bytes().as_slice())
        .bind(tunnel.socket.as_bytes().as_slice())
        .bind(account.as_bytes().as_slice())
        .bind(tunnel.credential.0.as_slice())
        .bind(tunnel.weight)
        .bind(tunnel.forward_port)
        .bind(tunnel.created_at)
        .bind(new.temporary.is_some())
        .bind(new.temporary.map(Vec::from))
        .bind(tunnel.path.prefix.as_str())
        .bind(tunnel.path.rewrite.as_ref().map(PathPrefix::as_str))
        .bind(tunnel.name.as_ref().map(DisplayName::as_str))
        .bind(tunnel.name.as_ref().map(DisplayName::key))
        .bind(row::json(&tunnel.capacity)?)
        .bind(row::json(&tunnel.labels)?)
        .execute(write.sql())
        .await?;
        if inserted.rows_affected() == 0 {
            return Err(StoreError::Gone);
        }
        write.remember(account, keyed, *tunnel.id.as_bytes(), None).await?;
        write.commit().await?;
        Ok(Creation::Made(tunnel))
    }

    /// The socket's tunnels with these labels after a position, oldest first, with their positions. The caller has
    /// checked the socket's owner.
    ///
    /// # Errors
    /// The database fails.
    pub async fn tunnels(
        &self,
        socket: SocketId,
        selectors: &[LabelSelector],
        after: Position,
        limit: u32,
    ) -> Result<Vec<(Position, Tunnel)>, StoreError> {
        let query = sql::query(labels::selected!(
            "SELECT * FROM tunnels WHERE socket = $1 AND position > $2 ",
            "labels",
            " ORDER BY position LIMIT $3"
        ))
        .bind(socket.as_bytes().as_slice())
        .bind(after)
        .bind(limit);
        let rows = labels::bind(query, selectors)?.fetch_all(&self.reader).await?;
        rows.iter().map(|found| Ok((found.try_get("position")?, tunnel(found)?))).collect()
    }

    /// All tunnels of the account with these labels after a position, oldest first, with their positions.
    ///
    /// # Errors
    /// The database fails.
    pub async fn tunnels_of_account(
        &self,
        account: AccountId,
        selectors: &[LabelSelector],
        after: Position,
        limit: u32,
    ) -> Result<Vec<(Position, Tunnel)>, StoreError> {
        let query = sql::query(labels::selected!(
            "SELECT t.*, t.rowid AS place FROM tunnels t JOIN sockets s ON s.id = t.socket
             WHERE s.account = $1 AND t.rowid > $2 ",
            "t.labels",
            " ORDER BY t.rowid LIMIT $3"
        ))
        .bind(account.as_bytes().as_slice())
        .bind(after)
        .bind(limit);
        let rows = labels::bind(query, selectors)?.fetch_all(&self.reader).await?;
        rows.iter().map(|found| Ok((found.try_get("place")?, tunnel(found)?))).collect()
    }

    /// The tunnel of the account with this id.
    ///
    /// # Errors
    /// The database fails.
    pub async fn tunnel_of_account(&self, account: AccountId, id: TunnelId) -> Result<Option<Tunnel>, StoreError> {
        let id: &[u8; 16] = id.as_bytes();
        Ok(self.tunnels_between(account, id, id).await?.pop())
    }

    /// The tunnel of the account with this display name.
    ///
    /// # Errors
    /// The database fails.
    pub async fn tunnel_by_name(&self, account: AccountId, name: &DisplayName) -> Result<Option<Tunnel>, StoreError> {
        let found = sql::query(
            "SELECT t.* FROM tunnels t JOIN sockets s ON s.id = t.socket WHERE s.account = $1 AND t.name_key = $2",
        )
        .bind(account.as_bytes().as_slice())
        .bind(name.key())
        .fetch_optional(&self.reader)
        .await?;
        found.as_ref().map(tunnel).transpose()
    }

    /// The tunnel of the account with this id prefix.
    ///
    /// # Errors
    /// [`StoreError::AmbiguousId`], or a failure of the database.
    pub async fn tunnel_by_short_id(&self, account: AccountId, start: &ShortId) -> Result<Option<Tunnel>, StoreError> {
        let mut found = self.tunnels_between(account, &start.first(), &start.last()).await?;
        if found.len() > 1 {
            return Err(StoreError::AmbiguousId { start: start.to_string() });
        }
        Ok(found.pop())
    }

    /// At most two of the account's tunnels with ids from `first` to `last`.
    async fn tunnels_between(
        &self,
        account: AccountId,
        first: &[u8; 16],
        last: &[u8; 16],
    ) -> Result<Vec<Tunnel>, StoreError> {
        let found = sql::query(
            "SELECT t.* FROM tunnels t JOIN sockets s ON s.id = t.socket
             WHERE s.account = $1 AND t.id >= $2 AND t.id <= $3 LIMIT 2",
        )
        .bind(account.as_bytes().as_slice())
        .bind(first.as_slice())
        .bind(last.as_slice())
        .fetch_all(&self.reader)
        .await?;
        found.iter().map(tunnel).collect()
    }

    /// Changes a tunnel of the account. `change` gets the current tunnel, within the transaction. Returns the changed
    /// tunnel, or `None` if it does not exist.
    ///
    /// # Errors
    /// An error of `change`, [`StoreError::NameTaken`], or a failure of the database; nothing is changed then.
    pub async fn change_tunnel<E: From<StoreError>>(
        &self,
        account: AccountId,
        id: TunnelId,
        change: impl FnOnce(&Tunnel) -> Result<TunnelChange, E> + Send,
    ) -> Result<Option<Tunnel>, E> {
        let mut write = self.write().await?;
        let Some(found) = find(&mut write, account, id).await? else { return Ok(None) };
        let change = change(&found)?;
        if let Some(Some(name)) = &change.name {
            socket_names::require_free_tunnel(&mut write, account, id, name).await?;
        }
        let tunnel = Tunnel {
            name: change.name.unwrap_or(found.name),
            weight: change.weight.unwrap_or(found.weight),
            path: change.path.unwrap_or(found.path),
            capacity: change.capacity.unwrap_or(found.capacity),
            labels: change.labels.unwrap_or(found.labels),
            ..found
        };
        update(&mut write, &tunnel).await?;
        write.commit().await?;
        Ok(Some(tunnel))
    }

    /// A tunnel of the socket.
    ///
    /// # Errors
    /// The database fails.
    pub async fn tunnel(&self, socket: SocketId, id: TunnelId) -> Result<Option<Tunnel>, StoreError> {
        let found = sql::query("SELECT * FROM tunnels WHERE id = $1 AND socket = $2")
            .bind(id.as_bytes().as_slice())
            .bind(socket.as_bytes().as_slice())
            .fetch_optional(&self.reader)
            .await?;
        found.as_ref().map(tunnel).transpose()
    }

    /// The hash of the credential of this tunnel, of any account.
    ///
    /// # Errors
    /// The database fails.
    pub async fn tunnel_credential(&self, id: TunnelId) -> Result<Option<CredentialHash>, StoreError> {
        let found = sql::query("SELECT * FROM tunnels WHERE id = $1")
            .bind(id.as_bytes().as_slice())
            .fetch_optional(&self.reader)
            .await?;
        Ok(found.as_ref().map(tunnel).transpose()?.map(|tunnel| tunnel.credential))
    }

    /// The account's tunnel with this forward port, unless it is temporary.
    ///
    /// # Errors
    /// The database fails.
    pub async fn tunnel_by_forward_port(&self, account: AccountId, port: u16) -> Result<Option<Tunnel>, StoreError> {
        let found = sql::query(
            "SELECT t.* FROM tunnels t JOIN sockets s ON s.id = t.socket
             WHERE s.account = $1 AND t.forward_port = $2 AND t.temporary = 0 LIMIT 1",
        )
        .bind(account.as_bytes().as_slice())
        .bind(port)
        .fetch_optional(&self.reader)
        .await?;
        found.as_ref().map(tunnel).transpose()
    }

    /// The temporary tunnels, each with its holder.
    ///
    /// # Errors
    /// The database fails.
    pub async fn temporary_tunnels(&self) -> Result<Vec<(SocketId, TunnelId, Option<HolderId>)>, StoreError> {
        let rows =
            sql::query("SELECT socket, id, holder FROM tunnels WHERE temporary = 1").fetch_all(&self.reader).await?;
        let ids = |found: &DbRow| {
            let socket = SocketId::from_bytes(row::bytes(found, "socket")?);
            Ok((socket, TunnelId::from_bytes(row::bytes(found, "id")?), row::optional_bytes(found, "holder")?))
        };
        rows.iter().map(ids).collect()
    }

    /// Replaces the credential. Returns the changed tunnel, or `None` if it does not exist.
    ///
    /// # Errors
    /// The database fails; the old credential stays valid then.
    pub async fn change_credential(
        &self,
        socket: SocketId,
        id: TunnelId,
        credential: CredentialHash,
    ) -> Result<Option<Tunnel>, StoreError> {
        let mut write = self.write().await?;
        let found = sql::query("UPDATE tunnels SET credential = $3 WHERE id = $1 AND socket = $2 RETURNING *")
            .bind(id.as_bytes().as_slice())
            .bind(socket.as_bytes().as_slice())
            .bind(credential.0.as_slice())
            .fetch_optional(write.sql())
            .await?;
        let changed = found.as_ref().map(tunnel).transpose()?;
        write.commit().await?;
        Ok(changed)
    }

    /// Deletes a tunnel of the socket. Returns whether it existed.
    ///
    /// # Errors
    /// The database fails.
    pub async fn delete_tunnel(&self, socket: SocketId, id: TunnelId) -> Result<bool, StoreError> {
        self.delete_tunnel_if(socket, id, |_| Ok(())).await
    }

    /// Like [`Store::delete_tunnel`], unless `check` fails, which gets the current tunnel within the transaction.
    ///
    /// # Errors
    /// An error of `check`, or a failure of the database; nothing is deleted then.
    pub async fn delete_tunnel_if<E: From<StoreError>>(
        &self,
        socket: SocketId,
        id: TunnelId,
        check: impl FnOnce(&Tunnel) -> Result<(), E> + Send,
    ) -> Result<bool, E> {
        let mut write = self.write().await?;
        let found = sql::query("SELECT * FROM tunnels WHERE id = $1 AND socket = $2")
            .bind(id.as_bytes().as_slice())
            .bind(socket.as_bytes().as_slice())
            .fetch_optional(write.sql())
            .await
            .map_err(StoreError::from)?;
        let Some(found) = found.as_ref().map(tunnel).transpose()? else { return Ok(false) };
        check(&found)?;
        let deleted = sql::query("DELETE FROM tunnels WHERE id = $1 AND socket = $2")
            .bind(id.as_bytes().as_slice())
            .bind(socket.as_bytes().as_slice())
            .execute(write.sql())
            .await
            .map_err(StoreError::from)?;
        write.commit().await?;
        Ok(deleted.rows_affected() > 0)
    }
}

async fn find(write: &mut Write, account: AccountId, id: TunnelId) -> Result<Option<Tunnel>, StoreError> {
    let found =
        sql::query("SELECT t.* FROM tunnels t JOIN sockets s ON s.id = t.socket WHERE s.account = $1 AND t.id = $2")
            .bind(account.as_bytes().as_slice())
            .bind(id.as_bytes().as_slice())
            .fetch_optional(write.sql())
            .await?;
    found.as_ref().map(tunnel).transpose()
}

/// Stores the changeable parts of a tunnel.
async fn update(write: &mut Write, tunnel: &Tunnel) -> Result<(), StoreError> {
    sql::query(
        "UPDATE tunnels SET display_name = $2, name_key = $3, weight = $4, path = $5, rewrite_path = $6, capacity = $7,
                            labels = $8
         WHERE id = $1",
    )
    .bind(tunnel.id.as_bytes().as_slice())
    .bind(tunnel.name.as_ref().map(DisplayName::as_str))
    .bind(tunnel.name.as_ref().map(DisplayName::key))
    .bind(tunnel.weight)
    .bind(tunnel.path.prefix.as_str())
    .bind(tunnel.path.rewrite.as_ref().map(PathPrefix::as_str))
    .bind(row::json(&tunnel.capacity)?)
    .bind(row::json(&tunnel.labels)?)
    .execute(write.sql())
    .await?;
    Ok(())
}

/// The first of the ports that no tunnel of the account has.
async fn take_forward_port(write: &mut Write, account: AccountId, ports: &[u16]) -> Result<u16, StoreError> {
    for port in ports {
        let count: i64 = sql::query_scalar(
            "SELECT count(*) FROM tunnels t JOIN sockets s ON s.id = t.socket
             WHERE s.account = $1 AND t.forward_port = $2",
        )
        .bind(account.as_bytes().as_slice())
        .bind(port)
        .fetch_one(write.sql())
        .await?;
        if count == 0 {
            return Ok(*port);
        }
    }
    Err(StoreError::NoFreeForwardPort)
}

pub(crate) fn tunnel(found: &DbRow) -> Result<Tunnel, StoreError> {
    Ok(Tunnel {
        id: TunnelId::from_bytes(row::bytes(found, "id")?),
        socket: SocketId::from_bytes(row::bytes(found, "socket")?),
        name: row::optional_display_name(found, "display_name")?,
        credential: CredentialHash(row::bytes(found, "credential")?),
        weight: found.try_get("weight")?,
        forward_port: found.try_get("forward_port")?,
        path: path(found)?,
        capacity: row::from_json(found, "capacity")?,
        labels: row::from_json(found, "labels")?,
        created_at: found.try_get("created_at")?,
    })
}

/// The paths of an origin, from its row.
pub(crate) fn path(found: &DbRow) -> Result<PathRoute, StoreError> {
    let read = |column: &'static str| -> Result<Option<PathPrefix>, StoreError> {
        let text: Option<&str> = found.try_get(column)?;
        text.map(|text| text.parse().map_err(|error| row::damaged(column, error))).transpose()
    };
    Ok(PathRoute { prefix: read("path")?.unwrap_or_default(), rewrite: read("rewrite_path")? })
}
