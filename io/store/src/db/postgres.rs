//! Opens a PostgreSQL database, or refuses it.

use std::{fmt, path::PathBuf, str::FromStr, time::Duration};

use sqlx::{
    Connection as _, Executor as _, PgConnection,
    postgres::{PgConnectOptions, PgPoolOptions, PgSslMode},
};

use super::{
    SecretHash, Store, dialect,
    error::{StoreError, postgres_code},
    migrations, name_keys, row,
    sql::{self, DbPool},
    write::Write,
};

/// Reading connections of one process.
pub(crate) const MAX_READERS: u32 = 8;
/// Time that a caller waits for a connection.
const MAX_WAIT: Duration = Duration::from_secs(5);
/// Timeout of the first connection at the start.
const MAX_CONNECT: Duration = Duration::from_secs(10);
/// Idle time after which a connection is checked before use.
const MAX_TRUSTED_IDLE: Duration = Duration::from_secs(5);
/// The oldest supported version of the server, as in `server_version_num`.
const MIN_SERVER_VERSION: i64 = 130_000;
/// Settings of every connection: timeouts for statements, locks and idle transactions. The last one ends the
/// transaction of a hung process, which would keep the others from writing.
const SETTINGS: &str = "SET statement_timeout = '10s'; SET lock_timeout = '10s';
     SET idle_in_transaction_session_timeout = '20s'; SET client_min_messages = warning; SET timezone = 'UTC'";
/// The table that marks the database as Sallyport's, with its version and the check value of its key.
const MARK: &str = "CREATE TABLE sallyport_schema (
    mark TEXT PRIMARY KEY CHECK (mark = 'sallyport'), version BIGINT NOT NULL, key_check BYTEA)";

/// The address of a PostgreSQL database: `postgres://user:password@host:port/name?sslmode=…`, with the parameters,
/// environment variables and password file (`~/.pgpass`) of libpq. Connections to other machines verify the certificate
/// (`sslmode=verify-full`) unless the address says otherwise.
#[derive(Clone)]
pub struct PostgresAddress {
    options: PgConnectOptions,
}

impl FromStr for PostgresAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if !["postgres://", "postgresql://"].iter().any(|scheme| text.starts_with(scheme)) {
            return Err("expected the address of a database as postgres://USER@HOST:PORT/NAME".to_owned());
        }
        // sqlx's message may repeat the password in the address.
        let mut options: PgConnectOptions = text.parse().map_err(|error: sqlx::Error| match error {
            sqlx::Error::Configuration(error) => format!("the address of the database cannot be read: {error}"),
            _ => "the address of the database cannot be read: postgres://USER@HOST:PORT/NAME".to_owned(),
        })?;
        let is_given = text.split_once('?').is_some_and(|(_, query)| {
            query.split('&').any(|pair| pair.starts_with("sslmode=") || pair.starts_with("ssl-mode="))
        });
        if !is_given && std::env::var_os("PGSSLMODE").is_none() && !is_here(&options) {
            options = options.ssl_mode(PgSslMode::VerifyFull);
        }
        if options.get_application_name().is_none() {
            options = options.application_name("sallyport");
        }
        Ok(Self { options })
    }
}

/// Whether the server is on this machine.
fn is_here(options: &PgConnectOptions) -> bool {
    let host = options.get_host();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
    options.get_socket().is_some()
        || host.starts_with('/')
        || host == "localhost"
        || address.is_ok_and(|a| a.is_loopback())
}

impl fmt::Display for PostgresAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match self.options.get_socket() {
            Some(socket) => socket.display().to_string(),
            None => format!("{}:{}", self.options.get_host(), self.options.get_port()),
        };
        let user = self.options.get_username();
        write!(f, "postgres://{user}@{place}/{}", self.options.get_database().unwrap_or(user))
    }
}

impl fmt::Debug for PostgresAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Store {
    /// Opens a PostgreSQL database. An empty one gets the schema, an older one is migrated.
    ///
    /// # Errors
    /// The server cannot be reached, refuses the connection or is read-only, or the database is of a newer version or
    /// of another program. It is not changed then.
    pub async fn open_postgres(address: &PostgresAddress) -> Result<Self, StoreError> {
        examine(address).await?;
        let writer = writer(address).await?;
        migrate(&writer, address).await?;
        name_keys::assign_missing(&writer).await?;
        let reader = pool().max_connections(MAX_READERS).connect_lazy_with(address.options.clone());
        Ok(Self { writer, reader: DbPool::Postgres(reader), path: PathBuf::from(address.to_string()) })
    }
}

impl Store {
    /// The check value of the installation's key in a shared database; `None` if it is not set yet, and for a file,
    /// which is beside its key.
    ///
    /// # Errors
    /// The database fails.
    pub async fn key_check(&self) -> Result<Option<SecretHash>, StoreError> {
        let DbPool::Postgres(_) = &self.reader else { return Ok(None) };
        let found = sql::query("SELECT key_check FROM sallyport_schema WHERE key_check IS NOT NULL");
        found.fetch_optional(&self.reader).await?.map(|found| row::bytes(&found, "key_check")).transpose()
    }

    /// Sets the check value of the installation's key, unless it is set; returns the valid one.
    ///
    /// # Errors
    /// The database fails.
    pub async fn claim(&self, key_check: SecretHash) -> Result<SecretHash, StoreError> {
        let DbPool::Postgres(_) = &self.reader else { return Ok(key_check) };
        let mut write = self.write().await?;
        let claim = sql::query("UPDATE sallyport_schema SET key_check = coalesce(key_check, $1) RETURNING key_check");
        let found = claim.bind(key_check.as_slice()).fetch_one(write.sql()).await?;
        let holds = row::bytes(&found, "key_check")?;
        write.commit().await?;
        Ok(holds)
    }
}

/// The writing connection.
pub(crate) async fn writer(address: &PostgresAddress) -> Result<DbPool, StoreError> {
    let writer = pool().max_connections(1).connect_with(address.options.clone()).await;
    writer.map(DbPool::Postgres).map_err(|error| named(error, address))
}

fn pool() -> PgPoolOptions {
    PgPoolOptions::new()
        .acquire_timeout(MAX_WAIT)
        .test_before_acquire(false)
        .max_lifetime(None)
        .after_connect(|connection, _| Box::pin(async move { connection.execute(SETTINGS).await.map(|_| ()) }))
        .before_acquire(|connection, meta| {
            Box::pin(async move {
                if meta.idle_for > MAX_TRUSTED_IDLE {
                    connection.ping().await?;
                }
                Ok(true)
            })
        })
}

/// Checks the database before anything is written to it.
pub(crate) async fn examine(address: &PostgresAddress) -> Result<(), StoreError> {
    let name = |error| named(error, address);
    let connecting = tokio::time::timeout(MAX_CONNECT, PgConnection::connect_with(&address.options)).await;
    let mut connection = connecting
        .unwrap_or_else(|_| Err(sqlx::Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, "no answer"))))
        .map_err(name)?;
    connection.execute(SETTINGS).await.map_err(name)?;
    let version: String =
        sqlx::query_scalar("SHOW server_version_num").fetch_one(&mut connection).await.map_err(name)?;
    let encoding: String = sqlx::query_scalar("SHOW server_encoding").fetch_one(&mut connection).await.map_err(name)?;
    if version.parse::<i64>().unwrap_or(0) < MIN_SERVER_VERSION {
        let detail = format!("the server has version {version}");
        return Err(refused(address, detail, "PostgreSQL 13 or newer is needed"));
    }
    if encoding != "UTF8" {
        let detail = format!("the encoding of the database is {encoding}");
        return Err(refused(address, detail, "create it with ENCODING 'UTF8'"));
    }
    let read_only: bool =
        sqlx::query_scalar("SELECT pg_is_in_recovery() OR current_setting('transaction_read_only')::boolean")
            .fetch_one(&mut connection)
            .await
            .map_err(name)?;
    let found = version_of(&mut connection).await.map_err(name)?;
    let tables: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM pg_class WHERE relnamespace = current_schema()::regnamespace \
         AND relkind IN ('r', 'p', 'v', 'm', 'f')",
    )
    .fetch_one(&mut connection)
    .await
    .map_err(name)?;
    // After a failed check, closing may fail too; the result of the check counts.
    let _ = connection.close().await;
    match found {
        None if tables > 0 => Err(StoreError::Foreign { path: address.to_string().into() }),
        Some(found) if found > migrations::newest() => Err(newer(address, found)),
        _ if read_only => Err(StoreError::ReadOnly),
        _ => Ok(()),
    }
}

/// The schema version, if the tables exist.
async fn version_of(connection: &mut PgConnection) -> Result<Option<i64>, sqlx::Error> {
    let is_there: bool =
        sqlx::query_scalar("SELECT to_regclass('sallyport_schema') IS NOT NULL").fetch_one(&mut *connection).await?;
    if !is_there {
        return Ok(None);
    }
    sqlx::query_scalar("SELECT version FROM sallyport_schema").fetch_optional(connection).await
}

/// Migrates the database to the newest version, all steps in one transaction: of several processes that start at the
/// same time one migrates, and the others find it done.
async fn migrate(writer: &DbPool, address: &PostgresAddress) -> Result<(), StoreError> {
    let mut write = Write::begin(writer).await?;
    let found = bring_to_newest(&mut write, address).await?;
    if found < migrations::newest() {
        write.commit().await?;
    }
    migrations::log_migration(found);
    Ok(())
}

/// Returns the version that was found, 0 if there was nothing.
pub(crate) async fn bring_to_newest(write: &mut Write, address: &PostgresAddress) -> Result<i64, StoreError> {
    let is_there = sql::query_scalar::<bool>("SELECT to_regclass('sallyport_schema') IS NOT NULL");
    let mut found = 0;
    if is_there.fetch_one(write.sql()).await? {
        let version = sql::query_scalar::<i64>("SELECT version FROM sallyport_schema");
        found = version.fetch_optional(write.sql()).await?.unwrap_or(0);
    } else {
        let made = write
            .sql()
            .script(format!("{MARK}; INSERT INTO sallyport_schema (mark, version) VALUES ('sallyport', 0)"))
            .await;
        made.map_err(|error| named(error, address))?;
    }
    if found > migrations::newest() {
        return Err(newer(address, found));
    }
    if found == migrations::newest() {
        return Ok(found);
    }
    for step in migrations::after(found) {
        write.sql().script(dialect::for_postgres(step)).await.map_err(|error| named(error, address))?;
    }
    sql::query("UPDATE sallyport_schema SET version = $1").bind(migrations::newest()).execute(write.sql()).await?;
    Ok(found)
}

fn newer(address: &PostgresAddress, found: i64) -> StoreError {
    StoreError::Newer { path: address.to_string().into(), found, known: migrations::newest() }
}

fn refused(address: &PostgresAddress, detail: String, advice: &'static str) -> StoreError {
    StoreError::Refused { database: address.to_string(), detail, advice }
}

/// The error of the start, with advice.
fn named(error: sqlx::Error, address: &PostgresAddress) -> StoreError {
    let detail = match error.as_database_error() {
        Some(error) => error.message().to_owned(),
        None => error.to_string(),
    };
    let advice = match postgres_code(&error) {
        Some("28P01") => {
            "check the password: it may be set by SALLYPORT_DATABASE, PGPASSWORD, ~/.pgpass or --database-file"
        }
        Some("28000") => "check the user's name, and its rules in pg_hba.conf",
        Some("3D000") => "create it first: createdb --encoding UTF8 NAME",
        Some("42501") => "let the user create tables there: GRANT CREATE ON SCHEMA public, or make the user its owner",
        Some("3F000") => "create a schema for the user: search_path names none that exists",
        Some("25006") => return StoreError::ReadOnly,
        Some(_) => return error.into(),
        None => match &error {
            sqlx::Error::Io(source) => {
                let detail = format!("{address}: {source}");
                return StoreError::Unreachable { detail };
            }
            sqlx::Error::Tls(_) => {
                "check sslmode, and name the authority of its certificate by sslrootcert=FILE in the address"
            }
            _ => return error.into(),
        },
    };
    refused(address, detail, advice)
}

#[cfg(test)]
mod tests {
    use sqlx::postgres::PgSslMode;

    use crate::db::postgres::PostgresAddress;

    #[test]
    fn addresses_show_no_password_and_verify_who_is_far() {
        let far: PostgresAddress = "postgres://ann:geheim@db.example.com/sally".parse().unwrap();
        assert_eq!(far.to_string(), "postgres://ann@db.example.com:5432/sally");
        assert_eq!(format!("{far:?}"), far.to_string());
        let mode = |text: &str| text.parse::<PostgresAddress>().unwrap().options.get_ssl_mode();
        for (address, verified) in [
            ("postgres://ann@db.example.com/sally", true),
            ("postgres://ann@10.0.0.1/sally?sslmode=prefer", false),
            ("postgresql://ann@127.0.0.1:5433/sally", false),
            ("postgres://ann@[::1]/sally", false),
            ("postgres://ann@localhost/sally", false),
            ("postgres:///sally?host=/run/postgresql", false),
        ] {
            assert_eq!(matches!(mode(address), PgSslMode::VerifyFull), verified, "{address}");
        }
        for wrong in ["", "mysql://x", "sallyport.db", "postgres://a:geheim@h:99999/x", "postgres://h/x?sslmode=geheim"]
        {
            let error = wrong.parse::<PostgresAddress>().unwrap_err();
            assert!(!error.contains('@') || error.contains("USER@HOST"), "{error}");
        }
    }
}
