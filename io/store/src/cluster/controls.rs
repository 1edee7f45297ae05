//! The controls that share a database, and their common keys.

use crate::db::{
    Store,
    error::StoreError,
    row,
    sql::{self, DbPool},
};

/// Id of a process that holds temporary things: a control or an edge.
pub type HolderId = [u8; 16];
/// The number of controls in one answer.
pub const MAX_CONTROLS: usize = 64;

/// The heartbeat of a control.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredControl {
    /// Its id.
    pub id: HolderId,
    /// A counter that grows while the control lives; its value has no other meaning.
    pub beat: i64,
    /// Addresses for edges, separated by commas; empty if no edges connect.
    pub addresses: String,
    /// Version of the program.
    pub program: String,
}

impl Store {
    /// Whether other processes may use this store at the same time.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        matches!(self.reader, DbPool::Postgres(_))
    }

    /// Records a heartbeat of this control, and returns those of all controls.
    ///
    /// # Errors
    /// The database fails.
    pub async fn beat(&self, id: HolderId, addresses: &str, program: &str) -> Result<Vec<StoredControl>, StoreError> {
        let mut write = self.write().await?;
        sql::query(
            "INSERT INTO controls (id, beat, addresses, program) VALUES ($1, 1, $2, $3) ON CONFLICT (id) DO UPDATE
             SET beat = controls.beat + 1, addresses = excluded.addresses, program = excluded.program",
        )
        .bind(id.as_slice())
        .bind(addresses)
        .bind(program)
        .execute(write.sql())
        .await?;
        let rows = sql::query("SELECT id, beat, addresses, program FROM controls ORDER BY id LIMIT $1")
            .bind(MAX_CONTROLS as i64)
            .fetch_all(write.sql())
            .await?;
        write.commit().await?;
        let control = |found: &row::DbRow| {
            Ok(StoredControl {
                id: row::bytes(found, "id")?,
                beat: found.try_get("beat")?,
                addresses: found.try_get("addresses")?,
                program: found.try_get("program")?,
            })
        };
        rows.iter().map(control).collect()
    }

    /// Removes a control, unless its heartbeat has advanced past this one.
    ///
    /// # Errors
    /// The database fails.
    pub async fn forget_control(&self, id: HolderId, beat: i64) -> Result<(), StoreError> {
        let mut write = self.write().await?;
        sql::query("DELETE FROM controls WHERE id = $1 AND beat <= $2")
            .bind(id.as_slice())
            .bind(beat)
            .execute(write.sql())
            .await?;
        write.commit().await
    }

    /// The common keys of all controls, by name, each sealed.
    ///
    /// # Errors
    /// The database fails.
    pub async fn installation_keys(&self) -> Result<Vec<(String, String)>, StoreError> {
        let rows =
            sql::query("SELECT name, sealed FROM installation_keys ORDER BY name").fetch_all(&self.reader).await?;
        rows.iter().map(|found| Ok((found.try_get("name")?, found.try_get("sealed")?))).collect()
    }

    /// Stores the keys whose names are not taken yet, in one transaction; existing ones are never replaced. Returns all
    /// stored keys.
    ///
    /// # Errors
    /// The database fails.
    pub async fn keep_installation_keys(&self, keys: &[(String, String)]) -> Result<Vec<(String, String)>, StoreError> {
        let mut write = self.write().await?;
        for (name, sealed) in keys {
            sql::query("INSERT INTO installation_keys (name, sealed) VALUES ($1, $2) ON CONFLICT DO NOTHING")
                .bind(name)
                .bind(sealed)
                .execute(write.sql())
                .await?;
        }
        write.commit().await?;
        self.installation_keys().await
    }

    /// Replaces sealed keys, if they still have the given former values.
    ///
    /// # Errors
    /// [`StoreError::Gone`] if another control has changed them in the meantime, or a failure of the database; nothing
    /// is changed then.
    pub async fn reseal_installation_keys(&self, keys: &[(String, String, String)]) -> Result<(), StoreError> {
        let mut write = self.write().await?;
        for (name, former, sealed) in keys {
            let done = sql::query("UPDATE installation_keys SET sealed = $1 WHERE name = $2 AND sealed = $3")
                .bind(sealed)
                .bind(name)
                .bind(former)
                .execute(write.sql())
                .await?;
            if done.rows_affected() == 0 {
                return Err(StoreError::Gone);
            }
        }
        write.commit().await
    }
}
