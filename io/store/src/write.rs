//! One transaction that writes.

use sqlx::{Sqlite, SqliteConnection, SqlitePool, pool::PoolConnection};

use crate::{Store, StoreError};

/// A transaction that holds the store's only writer. Dropped without [`Write::commit`] it leaves no trace: its
/// connection is closed, which is the one way of rolling back that works in every state SQLite can be in (a full disk
/// may or may not have rolled the transaction back already).
pub(crate) struct Write {
    connection: PoolConnection<Sqlite>,
    committed: bool,
}

impl Store {
    /// Begins a transaction that writes.
    pub(crate) async fn write(&self) -> Result<Write, StoreError> {
        Write::begin(&self.writer).await
    }
}

impl Write {
    pub(crate) async fn begin(writer: &SqlitePool) -> Result<Self, StoreError> {
        let connection = writer.acquire().await?;
        // Made before BEGIN, so that a caller that gives up in between does not leave a transaction behind.
        let mut write = Self { connection, committed: false };
        sqlx::raw_sql("BEGIN IMMEDIATE").execute(write.sql()).await?;
        Ok(write)
    }

    /// Where statements are executed.
    pub(crate) fn sql(&mut self) -> &mut SqliteConnection {
        &mut self.connection
    }

    /// Makes it so. When this returns without an error, the change is on disk.
    pub(crate) async fn commit(mut self) -> Result<(), StoreError> {
        sqlx::raw_sql("COMMIT").execute(self.sql()).await?;
        self.committed = true;
        Ok(())
    }
}

impl Drop for Write {
    fn drop(&mut self) {
        if !self.committed {
            self.connection.close_on_drop();
        }
    }
}
