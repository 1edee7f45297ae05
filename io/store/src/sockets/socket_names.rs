//! Display names of sockets and tunnels. Within an organisation they are unique among sockets and among tunnels,
//! compared by [`DisplayName::key`].

use std::collections::HashSet;

use sallyport_model::{AccountId, DisplayName, SocketId, SocketName, TunnelId};

use crate::db::{error::StoreError, name_keys::MAX_NUMBER, sql, write::Write};

/// What to do when the name of a new socket is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameConflict {
    /// The creation fails.
    Refuse,
    /// The name gets a number.
    AddNumber,
}

/// The name for a new socket: the requested one, or that with a number.
pub(crate) async fn take(
    write: &mut Write,
    account: AccountId,
    socket: SocketId,
    wanted: DisplayName,
    name_conflict: NameConflict,
) -> Result<DisplayName, StoreError> {
    let Err(error) = require_free(write, account, socket, &wanted).await else { return Ok(wanted) };
    if !matches!(error, StoreError::NameTaken { .. }) || name_conflict == NameConflict::Refuse {
        return Err(error);
    }
    let keys = sql::query_scalar::<String>("SELECT name_key FROM sockets WHERE account = $1 AND name_key IS NOT NULL");
    let keys = keys.bind(account.as_bytes().as_slice()).fetch_all(write.sql()).await?;
    numbered(&wanted, &keys.into_iter().collect()).ok_or(error)
}

/// Refuses a name that another socket of the account has, or that is or was the public name of another one, which could
/// be confused with it. A label that the account chose is free again once its socket is gone: nobody else can take it.
pub(crate) async fn require_free(
    write: &mut Write,
    account: AccountId,
    socket: SocketId,
    wanted: &DisplayName,
) -> Result<(), StoreError> {
    let key = wanted.key();
    let taken = sql::query("SELECT name FROM sockets WHERE account = $1 AND name_key = $2 AND id <> $3")
        .bind(account.as_bytes().as_slice())
        .bind(key.as_str())
        .bind(socket.as_bytes().as_slice())
        .fetch_optional(write.sql())
        .await?;
    if let Some(taken) = taken {
        let by = format!("the socket {}", taken.try_get::<String>("name")?);
        return Err(StoreError::NameTaken { name: wanted.to_string(), by });
    }
    if key.parse::<SocketName>().is_err() {
        return Ok(());
    }
    let public = sql::query_scalar::<i64>(
        "SELECT count(*) FROM names WHERE name = $1 AND name NOT IN (SELECT name FROM sockets WHERE id = $2)
                AND (maker IS NULL OR maker <> $3 OR name IN (SELECT name FROM sockets))",
    )
    .bind(key.as_str())
    .bind(socket.as_bytes().as_slice())
    .bind(label_owner(account).as_slice())
    .fetch_one(write.sql())
    .await?;
    if public == 0 {
        return Ok(());
    }
    Err(StoreError::NameTaken { name: wanted.to_string(), by: "another socket, as its public name".to_owned() })
}

/// The maker of a label that an account chose, in the table of public names.
pub(crate) fn label_owner(account: AccountId) -> [u8; 32] {
    let mut owner = [0; 32];
    owner[..16].copy_from_slice(account.as_bytes());
    owner
}

/// Refuses a name that another tunnel of the account has.
pub(crate) async fn require_free_tunnel(
    write: &mut Write,
    account: AccountId,
    tunnel: TunnelId,
    wanted: &DisplayName,
) -> Result<(), StoreError> {
    let taken = sql::query(
        "SELECT s.name AS name FROM tunnels t JOIN sockets s ON s.id = t.socket
         WHERE s.account = $1 AND t.name_key = $2 AND t.id <> $3",
    )
    .bind(account.as_bytes().as_slice())
    .bind(wanted.key())
    .bind(tunnel.as_bytes().as_slice())
    .fetch_optional(write.sql())
    .await?;
    let Some(taken) = taken else { return Ok(()) };
    let by = format!("a tunnel of the socket {}", taken.try_get::<String>("name")?);
    Err(StoreError::NameTaken { name: wanted.to_string(), by })
}

/// The name with the lowest number that is free.
fn numbered(name: &DisplayName, taken: &HashSet<String>) -> Option<DisplayName> {
    (2..MAX_NUMBER).map(|number| name.numbered(number)).find(|name| !taken.contains(&name.key()))
}
