//! Transactions that write, and transactions that read several times of one moment.

use std::ops::{Deref, DerefMut};

use super::{
    Store,
    error::{StoreError, is_lost},
    sql::{self, DbConnection, DbPool, is_tried_again},
};

/// A transaction that holds the store's only writer. Dropped without [`Write::commit`] it leaves no trace. With SQLite
/// its connection is closed then, which is the one way of rolling back that works in every state SQLite can be in (a
/// full disk may or may not have rolled the transaction back already).
pub(crate) struct Write {
    connection: DbConnection,
    committed: bool,
}

/// A transaction that reads.
pub(crate) struct Read {
    connection: DbConnection,
}

impl Store {
    /// Begins a transaction that writes.
    pub(crate) async fn write(&self) -> Result<Write, StoreError> {
        Write::begin(&self.writer).await
    }

    /// Begins a transaction that reads: all its statements see the database as it was at the first one.
    pub(crate) async fn read(&self) -> Result<Read, StoreError> {
        let mut tried = 0;
        loop {
            tried += 1;
            match self.reader.begin_read().await {
                Err(error) if is_tried_again(&error, tried) => {}
                begun => return Ok(Read { connection: begun? }),
            }
        }
    }
}

impl Write {
    pub(crate) async fn begin(writer: &DbPool) -> Result<Self, StoreError> {
        let mut tried = 0;
        loop {
            tried += 1;
            // Nothing has happened in it, so that a lost connection only means to take another one.
            match Self::begin_once(writer).await {
                Err(error) if is_tried_again(&error, tried) => {}
                begun => return Ok(begun?),
            }
        }
    }

    async fn begin_once(writer: &DbPool) -> Result<Self, sqlx::Error> {
        // Made before BEGIN, so that a caller that gives up in between does not leave a transaction behind.
        let mut write = Self { connection: writer.acquire().await?, committed: false };
        write.connection.begin().await?;
        Ok(write)
    }

    /// Where statements are executed.
    pub(crate) fn sql(&mut self) -> &mut DbConnection {
        &mut self.connection
    }

    /// Refuses one more of what `count` counts for the owner with this id, where there are `max`.
    pub(crate) async fn require_room(
        &mut self,
        count: &'static str,
        owner: &[u8],
        max: usize,
        what: &'static str,
    ) -> Result<(), StoreError> {
        let count: i64 = sql::query_scalar(count).bind(owner).fetch_one(self.sql()).await?;
        if usize::try_from(count).is_ok_and(|count| count < max) {
            return Ok(());
        }
        Err(StoreError::Limit { what, max })
    }

    /// Makes it so. When this returns without an error, the change is on disk.
    pub(crate) async fn commit(mut self) -> Result<(), StoreError> {
        if let Err(error) = self.connection.commit().await {
            return Err(if is_lost(&error) { StoreError::OutcomeUnknown } else { error.into() });
        }
        self.committed = true;
        Ok(())
    }
}

impl Drop for Write {
    fn drop(&mut self) {
        if let (false, DbConnection::Sqlite(connection)) = (self.committed, &mut self.connection) {
            connection.close_on_drop();
        }
    }
}

impl Deref for Read {
    type Target = DbConnection;
    fn deref(&self) -> &DbConnection {
        &self.connection
    }
}

impl DerefMut for Read {
    fn deref_mut(&mut self) -> &mut DbConnection {
        &mut self.connection
    }
}
