//! The database layer: opening, migrations, transactions, and statements with one text for both databases.
//!
//! May use: no other room of this crate.

pub(crate) mod dialect;
pub(crate) mod error;
pub(crate) mod idempotency;
pub(crate) mod lock;
pub(crate) mod migrations;
pub(crate) mod name_keys;
pub(crate) mod open;
pub(crate) mod postgres;
pub(crate) mod row;
pub(crate) mod sql;
pub(crate) mod transfer;
pub(crate) mod write;

use std::path::{Path, PathBuf};

use self::{error::StoreError, sql::DbPool};

/// SHA-256 of a secret. The secrets are 256 random bits, so a plain hash is enough.
pub type SecretHash = [u8; 32];

/// The store. Clones share it.
#[derive(Debug, Clone)]
pub struct Store {
    pub(crate) writer: DbPool,
    pub(crate) reader: DbPool,
    pub(crate) path: PathBuf,
}

/// The start of a page in a list: after this position. Positions only grow, and mean nothing outside their list.
pub type Position = i64;

impl Store {
    /// The database file, or the address of the PostgreSQL database without a password.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Checks that the store answers, for readiness checks.
    ///
    /// # Errors
    /// The database fails.
    pub async fn check(&self) -> Result<(), StoreError> {
        sql::query_scalar::<i64>("SELECT count(*) FROM (SELECT 1 FROM accounts LIMIT 1) AS at_most_one")
            .fetch_one(&self.reader)
            .await?;
        Ok(())
    }

    /// Closes all connections; acknowledged changes are in the database.
    pub async fn close(&self) {
        self.reader.close().await;
        self.writer.close().await;
    }
}
