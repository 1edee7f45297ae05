//! Opens a SQLite database, or refuses it.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io::{self, Read},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use sqlx::{
    Connection, SqliteConnection,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};

use super::{Store, error::StoreError, migrations, name_keys, sql::DbPool};

/// The database's file name in the data directory.
pub const DATABASE_FILE: &str = "sallyport.db";
/// Marks a SQLite file as Sallyport's (`PRAGMA application_id`): "SPRT".
pub(crate) const APPLICATION_ID: i64 = 0x5350_5254;
/// The first bytes of every SQLite file (<https://sqlite.org/fileformat.html> section 1.3.1).
const SQLITE_MAGIC: &[u8; 16] = b"SQLite format 3\0";
/// Connections that read.
const MAX_READERS: u32 = 4;
/// Time that a caller waits for a connection.
const MAX_WAIT: Duration = Duration::from_secs(10);
/// Size to which the write-ahead log is cut back after a checkpoint, in bytes.
const MAX_IDLE_LOG_BYTES: &str = "16777216";

impl Store {
    /// Opens the database of the data directory. Both are created if they are missing (modes 0600 and 0700); an older
    /// database is migrated.
    ///
    /// # Errors
    /// The file is damaged, of a newer version, of another program, or cannot be read or written. It is not changed
    /// then.
    pub async fn open(dir: &Path) -> Result<Self, StoreError> {
        let path = dir.join(DATABASE_FILE);
        let io_error = |action, path: &Path| {
            let path = path.to_owned();
            move |source| StoreError::Io { action, path, source }
        };
        make_private_dir(dir).map_err(io_error("create the directory", dir))?;
        prepare_file(&path)?;

        let name_file = |error| named(error, &path);
        let options = SqliteConnectOptions::new()
            .filename(&path)
            .create_if_missing(false)
            .foreign_keys(true)
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(MAX_WAIT)
            .pragma("journal_size_limit", MAX_IDLE_LOG_BYTES)
            .pragma("trusted_schema", "OFF");
        // Read-only, so that not even the log of a refused database is merged into it.
        examine(&options.clone().read_only(true), &path).await.map_err(name_file)?;

        let options = options.journal_mode(SqliteJournalMode::Wal);
        let pool = || {
            SqlitePoolOptions::new()
                .acquire_timeout(MAX_WAIT)
                .test_before_acquire(false)
                .idle_timeout(None)
                .max_lifetime(None)
        };
        let writer = pool().max_connections(1).connect_with(options.clone()).await.map_err(|e| name_file(e.into()))?;
        migrations::run(&writer).await.map_err(name_file)?;
        let writer = DbPool::Sqlite(writer);
        name_keys::assign_missing(&writer).await.map_err(name_file)?;
        let reader = pool()
            .min_connections(1)
            .max_connections(MAX_READERS)
            .connect_with(options.pragma("query_only", "ON"))
            .await
            .map_err(|e| name_file(e.into()))?;
        Ok(Self { writer, reader: DbPool::Sqlite(reader), path })
    }
}

impl Store {
    /// Writes a consistent copy of the SQLite database in `dir` to a file of the same name in `into`, while it is in
    /// use.
    ///
    /// # Errors
    /// It is damaged, of a newer version or of another program, or the file cannot be written.
    pub async fn back_up(dir: &Path, into: &Path) -> Result<(), StoreError> {
        let (path, copy) = (dir.join(DATABASE_FILE), into.join(DATABASE_FILE));
        let io_error = |source| StoreError::Io { action: "write the backup", path: copy.clone(), source };
        let options = SqliteConnectOptions::new().filename(&path).read_only(true).busy_timeout(MAX_WAIT);
        examine(&options, &path).await.map_err(|error| named(error, &path))?;
        // SQLite would create the file readable by others, but writes to an existing empty one.
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&copy).map_err(io_error)?;
        let mut connection = SqliteConnection::connect_with(&options).await?;
        let name = copy.to_str().ok_or_else(|| io_error(io::Error::other("its path is not UTF-8")))?;
        let written = sqlx::query("VACUUM INTO $1").bind(name).execute(&mut connection).await;
        // After a failed write, closing may fail too.
        let _ = connection.close().await;
        written?;
        File::open(&copy).and_then(|file| file.sync_all()).map_err(io_error)
    }

    /// Whether the database in `dir` has the version of this program, so that opening it changes no table.
    ///
    /// # Errors
    /// It is damaged, of a newer version or of another program.
    pub async fn is_of_this_version(dir: &Path) -> Result<bool, StoreError> {
        let path = dir.join(DATABASE_FILE);
        let options = SqliteConnectOptions::new().filename(&path).read_only(true).busy_timeout(MAX_WAIT);
        let mut connection =
            SqliteConnection::connect_with(&options).await.map_err(|error| named(error.into(), &path))?;
        let found = sqlx::query_scalar::<_, i64>("PRAGMA user_version").fetch_one(&mut connection).await;
        // The result counts, not how the connection ends.
        let _ = connection.close().await;
        Ok(found? == migrations::newest())
    }

    /// Checks whether the database in `dir` can be opened, without changing it.
    ///
    /// # Errors
    /// It is damaged, of a newer version or of another program.
    pub async fn verify(dir: &Path) -> Result<(), StoreError> {
        let path = dir.join(DATABASE_FILE);
        let immutable = SqliteConnectOptions::new().filename(&path).read_only(true).immutable(true);
        examine(&immutable, &path).await.map_err(|error| named(error, &path))
    }
}

/// Replaces the file in the error by the full path.
fn named(error: StoreError, path: &Path) -> StoreError {
    match error {
        StoreError::Corrupt { detail, .. } => StoreError::Corrupt { path: path.to_owned(), detail },
        StoreError::Database(source) => {
            StoreError::Io { action: "open the database", path: path.to_owned(), source: io::Error::other(source) }
        }
        other => other,
    }
}

/// Checks the database before anything is written to it.
async fn examine(options: &SqliteConnectOptions, path: &Path) -> Result<(), StoreError> {
    let mut connection = SqliteConnection::connect_with(options).await?;
    let verdict = examine_with(&mut connection, path).await;
    // After a failed check, closing may fail too; the result of the check counts.
    let _ = connection.close().await;
    verdict
}

async fn examine_with(connection: &mut SqliteConnection, path: &Path) -> Result<(), StoreError> {
    let application: i64 = sqlx::query_scalar("PRAGMA application_id").fetch_one(&mut *connection).await?;
    let tables: i64 = sqlx::query_scalar("SELECT count(*) FROM sqlite_schema").fetch_one(&mut *connection).await?;
    if application != APPLICATION_ID && (application != 0 || tables > 0) {
        return Err(StoreError::Foreign { path: path.to_owned() });
    }
    let found: i64 = sqlx::query_scalar("PRAGMA user_version").fetch_one(&mut *connection).await?;
    if found > migrations::newest() {
        return Err(StoreError::Newer { path: path.to_owned(), found, known: migrations::newest() });
    }
    let verdict: String = sqlx::query_scalar("PRAGMA quick_check(1)").fetch_one(&mut *connection).await?;
    if verdict != "ok" {
        return Err(StoreError::Corrupt { path: path.to_owned(), detail: verdict });
    }
    Ok(())
}

/// Creates an empty file readable only by its owner, or checks that an existing one is a SQLite file. SQLite gives its
/// log files the same mode.
fn prepare_file(path: &Path) -> Result<(), StoreError> {
    let io_error = |action| move |source| StoreError::Io { action, path: PathBuf::from(path), source };
    let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    match created {
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(io_error("create the database")(error)),
    }
    let file = File::open(path).map_err(io_error("read the database"))?;
    let metadata = file.metadata().map_err(io_error("read the database"))?;
    if !metadata.is_file() {
        return Err(io_error("read the database")(io::Error::other("the path is not a file")));
    }
    let mut head = Vec::with_capacity(SQLITE_MAGIC.len());
    file.take(SQLITE_MAGIC.len() as u64).read_to_end(&mut head).map_err(io_error("read the database"))?;
    if !head.is_empty() && head != SQLITE_MAGIC {
        let detail = "the file is not a SQLite database".to_owned();
        return Err(StoreError::Corrupt { path: path.to_owned(), detail });
    }
    match OpenOptions::new().write(true).open(path) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => return Err(StoreError::ReadOnly),
        Err(error) => return Err(io_error("write to the database")(error)),
    }
    if metadata.permissions().mode() & 0o077 != 0 {
        fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(io_error("set the permissions of"))?;
    }
    Ok(())
}

/// Creates the folder for its owner only; an existing one is not changed, because it may serve other purposes too.
pub(crate) fn make_private_dir(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}
