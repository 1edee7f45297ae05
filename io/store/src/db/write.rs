//! Writing transactions, and reading transactions of several statements.

use std::ops::{Deref, DerefMut};

use super::{
    Store,
    error::{StoreError, is_lost},
    sql::{self, DbConnection, DbPool, is_tried_again},
};

/// A transaction that holds the store's only writer. Dropped without [`Write::commit`] it leaves no trace. With SQLite
/// its connection is then closed: the only rollback that works in every state of SQLite (a full disk may have rolled
/// the transaction back already).
pub(crate) struct Write {
    connection: DbConnection,
    committed: bool,
}

/// A reading transaction.
pub(crate) struct Read {
    connection: DbConnection,
}

impl Store {
    /// Begins a writing transaction.
    pub(crate) async fn write(&self) -> Result<Write, StoreError> {
        Write::begin(&self.writer).await
    }

    /// Begins a reading transaction: all its statements see the database as of the first one.
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
            // The transaction is empty, so a lost connection is simply replaced.
            match Self::begin_once(writer).await {
                Err(error) if is_tried_again(&error, tried) => {}
                begun => return Ok(begun?),
            }
        }
    }

    async fn begin_once(writer: &DbPool) -> Result<Self, sqlx::Error> {
        // Created before BEGIN, so that a cancelled caller leaves no transaction behind.
        let mut write = Self { connection: writer.acquire().await?, committed: false };
        write.connection.begin().await?;
        Ok(write)
    }

    /// The connection for statements.
    pub(crate) fn sql(&mut self) -> &mut DbConnection {
        &mut self.connection
    }

    /// Fails if `count` for the owner with this id has reached `max`.
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

    /// Commits. When this returns without an error, the change is on disk.
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
