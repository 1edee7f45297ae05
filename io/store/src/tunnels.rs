//! Tunnels.

use sallyport_model::{AccountId, CredentialHash, MAX_TUNNELS_PER_SOCKET, SocketId, Tunnel, TunnelId};
use sqlx::{Row, sqlite::SqliteRow};

use crate::{Creation, Keyed, Position, Store, StoreError, row};

impl Store {
    /// Makes a tunnel at a socket of the account. The answer is not remembered, since it holds the credential.
    ///
    /// # Errors
    /// [`StoreError::Gone`] when the account has no such socket, [`StoreError::Limit`], [`StoreError::KeyReused`], or
    /// what stands in the way.
    pub async fn create_tunnel(
        &self,
        account: AccountId,
        tunnel: &Tunnel,
        keyed: Option<&Keyed>,
    ) -> Result<Creation<()>, StoreError> {
        let mut write = self.write().await?;
        if let Some(stored) = write.recall(account, keyed).await? {
            return Ok(Creation::Repeated(stored));
        }
        let count: i64 = sqlx::query_scalar("SELECT count(*) FROM tunnels WHERE socket = ?1")
            .bind(tunnel.socket.as_bytes().as_slice())
            .fetch_one(write.sql())
            .await?;
        if count >= MAX_TUNNELS_PER_SOCKET as i64 {
            return Err(StoreError::Limit {
                what: "tunnels at one socket: delete some first",
                max: MAX_TUNNELS_PER_SOCKET,
            });
        }
        let inserted = sqlx::query(
            "INSERT INTO tunnels (id, socket, position, credential, weight, forward_port, created_at)
             SELECT ?1, id, (SELECT coalesce(max(position), 0) + 1 FROM tunnels WHERE socket = ?2), ?4, ?5, ?6, ?7
             FROM sockets WHERE id = ?2 AND account = ?3",
        )
        .bind(tunnel.id.as_bytes().as_slice())
        .bind(tunnel.socket.as_bytes().as_slice())
        .bind(account.as_bytes().as_slice())
        .bind(tunnel.credential.0.as_slice())
        .bind(tunnel.weight)
        .bind(tunnel.forward_port)
        .bind(tunnel.created_at)
        .execute(write.sql())
        .await?;
        if inserted.rows_affected() == 0 {
            return Err(StoreError::Gone);
        }
        write.remember(account, keyed, *tunnel.id.as_bytes(), None).await?;
        write.commit().await?;
        Ok(Creation::Made(()))
    }

    /// The socket's tunnels after a position, oldest first, with their positions. Whose socket it is, the caller has
    /// looked up.
    ///
    /// # Errors
    /// What stands in the way.
    pub async fn tunnels(
        &self,
        socket: SocketId,
        after: Position,
        limit: u32,
    ) -> Result<Vec<(Position, Tunnel)>, StoreError> {
        let rows = sqlx::query("SELECT * FROM tunnels WHERE socket = ?1 AND position > ?2 ORDER BY position LIMIT ?3")
            .bind(socket.as_bytes().as_slice())
            .bind(after)
            .bind(limit)
            .fetch_all(&self.reader)
            .await?;
        rows.iter().map(|found| Ok((found.try_get("position")?, tunnel(found)?))).collect()
    }

    /// A tunnel of the socket.
    ///
    /// # Errors
    /// What stands in the way.
    pub async fn tunnel(&self, socket: SocketId, id: TunnelId) -> Result<Option<Tunnel>, StoreError> {
        let found = sqlx::query("SELECT * FROM tunnels WHERE id = ?1 AND socket = ?2")
            .bind(id.as_bytes().as_slice())
            .bind(socket.as_bytes().as_slice())
            .fetch_optional(&self.reader)
            .await?;
        found.as_ref().map(tunnel).transpose()
    }

    /// Puts a new credential in the place of the old one. Gives the tunnel as it is now, or `None` when there is none.
    ///
    /// # Errors
    /// What stands in the way; the old credential stays good then.
    pub async fn change_credential(
        &self,
        socket: SocketId,
        id: TunnelId,
        credential: CredentialHash,
    ) -> Result<Option<Tunnel>, StoreError> {
        let mut write = self.write().await?;
        let found = sqlx::query("UPDATE tunnels SET credential = ?3 WHERE id = ?1 AND socket = ?2 RETURNING *")
            .bind(id.as_bytes().as_slice())
            .bind(socket.as_bytes().as_slice())
            .bind(credential.0.as_slice())
            .fetch_optional(write.sql())
            .await?;
        let changed = found.as_ref().map(tunnel).transpose()?;
        write.commit().await?;
        Ok(changed)
    }

    /// Deletes a tunnel of the socket. Gives whether there was one.
    ///
    /// # Errors
    /// What stands in the way.
    pub async fn delete_tunnel(&self, socket: SocketId, id: TunnelId) -> Result<bool, StoreError> {
        let mut write = self.write().await?;
        let deleted = sqlx::query("DELETE FROM tunnels WHERE id = ?1 AND socket = ?2")
            .bind(id.as_bytes().as_slice())
            .bind(socket.as_bytes().as_slice())
            .execute(write.sql())
            .await?;
        write.commit().await?;
        Ok(deleted.rows_affected() > 0)
    }
}

pub(crate) fn tunnel(found: &SqliteRow) -> Result<Tunnel, StoreError> {
    Ok(Tunnel {
        id: TunnelId::from_bytes(row::bytes(found, "id")?),
        socket: SocketId::from_bytes(row::bytes(found, "socket")?),
        credential: CredentialHash(row::bytes(found, "credential")?),
        weight: found.try_get("weight")?,
        forward_port: found.try_get("forward_port")?,
        created_at: found.try_get("created_at")?,
    })
}
