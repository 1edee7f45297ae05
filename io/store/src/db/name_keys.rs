//! Keys of names, for sockets of a database from before names had keys.

use std::collections::HashSet;

use sallyport_model::DisplayName;

use super::{
    error::StoreError,
    row::{self, DbRow},
    sql::{self, DbConnection, DbPool},
    write::Write,
};

/// Bound on the numbers tried after a taken name; an organisation has fewer sockets.
pub(crate) const MAX_NUMBER: u32 = 10_000;

/// Assigns keys to sockets that were created before keys existed. Of several with the same name the oldest keeps it,
/// and the others get numbers.
pub(crate) async fn assign_missing(writer: &DbPool) -> Result<(), StoreError> {
    let mut write = Write::begin(writer).await?;
    if assign_all(write.sql()).await? {
        write.commit().await?;
    }
    Ok(())
}

async fn assign_all(connection: &mut DbConnection) -> Result<bool, StoreError> {
    let without =
        "SELECT id, account, name, display_name FROM sockets WHERE name_key IS NULL ORDER BY account, position";
    let without = sql::query(without).fetch_all(&mut *connection).await?;
    let mut taken = HashSet::new();
    let keys = "SELECT account, name_key FROM sockets WHERE name_key IS NOT NULL";
    for found in sql::query(keys).fetch_all(&mut *connection).await?.iter().filter(|_| !without.is_empty()) {
        let account: [u8; 16] = row::bytes(found, "account")?;
        taken.insert((account, found.try_get::<String>("name_key")?));
    }
    let mut others = Vec::new();
    for found in &without {
        let account: [u8; 16] = row::bytes(found, "account")?;
        let name = row::display_name(found, "display_name")?;
        if taken.insert((account, name.key())) {
            set_name(connection, found, &name).await?;
        } else {
            others.push((account, name, found));
        }
    }
    // After all sockets that keep their names, so that no number takes one of those.
    for (account, former, found) in others {
        let free = |name: &DisplayName| !taken.contains(&(account, name.key()));
        let Some(name) = (2..MAX_NUMBER).map(|number| former.numbered(number)).find(free) else { continue };
        taken.insert((account, name.key()));
        set_name(connection, found, &name).await?;
        let label: String = found.try_get("name")?;
        tracing::warn!(socket = label, "another socket has the same name: appended a number to the name of this one");
    }
    Ok(!without.is_empty())
}

async fn set_name(connection: &mut DbConnection, socket: &DbRow, name: &DisplayName) -> Result<(), StoreError> {
    let id: [u8; 16] = row::bytes(socket, "id")?;
    let update = sql::query("UPDATE sockets SET display_name = $2, name_key = $3 WHERE id = $1");
    update.bind(id.as_slice()).bind(name.as_str()).bind(name.key()).execute(connection).await?;
    Ok(())
}
