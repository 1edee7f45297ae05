//! Statements, executed on SQLite or on PostgreSQL.
//!
//! Every statement of this crate is one text for both databases, in their common syntax: `$1` for bound values, `ON
//! CONFLICT`, `RETURNING`, `IS NOT DISTINCT FROM`, `LIMIT 1000000 OFFSET $2`. Syntax of only one of them (`INSERT OR
//! REPLACE`, `json_extract`, `x''`, a bare `1` for true) fails on the other, which the tests detect: they run on both.
//! `rowid` exists in both, as a hidden column in PostgreSQL, and grows with every row.
//!
//! Values are integers, texts and bytes, as the columns are. A `bool` is an integer, 0 or 1; PostgreSQL's booleans can
//! be read too.

use std::time::Duration;

use sqlx::{
    ColumnIndex, PgPool, Postgres, Row as _, SqlSafeStr as _, SqlStr, Sqlite, SqlitePool, TypeInfo as _, ValueRef as _,
    pool::PoolConnection,
    postgres::{PgArguments, PgRow},
    sqlite::{SqliteArguments, SqliteRow},
};

use super::{error::is_lost, postgres::MAX_READERS};

/// Timeout of one statement on PostgreSQL, after which its connection counts as lost. The server's own timeout
/// ([`super::postgres`]) is shorter, so this one is for connections without any answer.
const MAX_ANSWER: Duration = Duration::from_secs(15);
/// Timeout of the probe for a caller that found no connection in the pool.
const MAX_PROBE: Duration = Duration::from_secs(1);
/// Attempts of a reading statement, each on another connection, if connections turn out to be lost: one more than a
/// pool holds, because a restarted server closed all of them.
const MAX_TRIES: u32 = MAX_READERS + 1;
/// Attempts if there was no answer, which takes [`MAX_ANSWER`] each time.
const MAX_SILENT_TRIES: u32 = 3;
/// A writer on PostgreSQL holds this lock until the end of the transaction, so that there is one writer across
/// processes, as with SQLite: counts stay valid, and `max(position) + 1` is unique. The number equals the application
/// id of SQLite files.
const BEGIN_WRITE: &str = "BEGIN; SELECT pg_advisory_xact_lock(1397772884)";

/// A pool of connections to one database.
#[derive(Debug, Clone)]
pub(crate) enum DbPool {
    /// SQLite.
    Sqlite(SqlitePool),
    /// PostgreSQL.
    Postgres(PgPool),
}

/// One connection.
pub(crate) enum DbConnection {
    /// SQLite.
    Sqlite(PoolConnection<Sqlite>),
    /// SQLite, in a reading transaction.
    SqliteRead(sqlx::Transaction<'static, Sqlite>),
    /// PostgreSQL.
    Postgres(PgConnection),
}

/// A connection to PostgreSQL that returns to the pool without uncommitted changes.
pub(crate) struct PgConnection {
    /// `None` only during the drop.
    connection: Option<PoolConnection<Postgres>>,
    /// Whether a transaction is open.
    open: bool,
    /// Whether a statement failed, after which PostgreSQL turns a commit into a rollback.
    failed: bool,
    /// Whether the state is unknown: the connection is closed instead of reused.
    is_uncertain: bool,
}

impl PgConnection {
    fn inner(&mut self) -> Result<&mut PoolConnection<Postgres>, sqlx::Error> {
        self.connection.as_mut().ok_or(sqlx::Error::PoolClosed)
    }

    /// Waits for an answer with a timeout, and records the state of the connection.
    async fn answered<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut sqlx::PgConnection) -> Result<T, sqlx::Error>,
    ) -> Result<T, sqlx::Error> {
        let answer = tokio::time::timeout(MAX_ANSWER, work(self.inner()?)).await.unwrap_or_else(|_| Err(no_answer()));
        if let Err(error) = &answer {
            self.failed = true;
            self.is_uncertain |= is_lost(error);
        }
        answer
    }

    async fn begin(&mut self, sql: &'static str) -> Result<(), sqlx::Error> {
        self.turn(sql).await?;
        self.open = true;
        Ok(())
    }

    /// Executes a statement that begins or ends a transaction. If cancelled, the connection is closed.
    async fn turn(&mut self, sql: &'static str) -> Result<(), sqlx::Error> {
        let is_uncertain = std::mem::replace(&mut self.is_uncertain, true);
        let answer = self.answered(async |connection| sqlx::raw_sql(sql).execute(connection).await).await;
        answer?;
        self.is_uncertain = is_uncertain;
        Ok(())
    }
}

impl Drop for PgConnection {
    fn drop(&mut self) {
        let Some(mut connection) = self.connection.take() else { return };
        if self.is_uncertain {
            connection.close_on_drop();
        } else if self.open {
            tokio::spawn(async move {
                let rollback = tokio::time::timeout(MAX_ANSWER, sqlx::raw_sql("ROLLBACK").execute(&mut *connection));
                if !matches!(rollback.await, Ok(Ok(_))) {
                    connection.close_on_drop();
                }
            });
        }
    }
}

/// The reason why the pool had no connection in time: the pool itself keeps trying without an error if nothing listens.
async fn why_none(pool: &PgPool) -> sqlx::Error {
    use sqlx::Connection as _;
    let waited = |detail: String| sqlx::Error::Io(std::io::Error::new(std::io::ErrorKind::NotConnected, detail));
    let options = pool.connect_options();
    match tokio::time::timeout(MAX_PROBE, sqlx::postgres::PgConnection::connect_with(&options)).await {
        Err(_) => waited("no answer".to_owned()),
        Ok(Err(error)) if is_lost(&error) => waited(error.to_string()),
        Ok(answer) => {
            if let Ok(connection) = answer {
                drop(connection.close().await);
            }
            sqlx::Error::PoolTimedOut
        }
    }
}

/// Whether a failed statement without effect is tried again on another connection, after this many attempts.
pub(crate) fn is_tried_again(error: &sqlx::Error, tried: u32) -> bool {
    // The wait was long enough: see `why_none`.
    if matches!(error, sqlx::Error::Io(error) if error.kind() == std::io::ErrorKind::NotConnected) {
        return false;
    }
    let is_silent = matches!(error, sqlx::Error::Io(error) if error.kind() == std::io::ErrorKind::TimedOut);
    is_lost(error) && tried < if is_silent { MAX_SILENT_TRIES } else { MAX_TRIES }
}

fn no_answer() -> sqlx::Error {
    sqlx::Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, "no answer within 15 s"))
}

impl DbPool {
    /// A connection in a reading transaction: all statements see the database as of the first one.
    pub(crate) async fn begin_read(&self) -> Result<DbConnection, sqlx::Error> {
        if let Self::Sqlite(pool) = self {
            return Ok(DbConnection::SqliteRead(pool.begin().await?));
        }
        let mut connection = self.acquire().await?;
        if let DbConnection::Postgres(connection) = &mut connection {
            connection.begin("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
        }
        Ok(connection)
    }

    /// A connection for the caller's use.
    pub(crate) async fn acquire(&self) -> Result<DbConnection, sqlx::Error> {
        Ok(match self {
            Self::Sqlite(pool) => DbConnection::Sqlite(pool.acquire().await?),
            Self::Postgres(pool) => {
                let connection = match pool.acquire().await {
                    Err(sqlx::Error::PoolTimedOut) => return Err(why_none(pool).await),
                    connection => Some(connection?),
                };
                DbConnection::Postgres(PgConnection { connection, open: false, failed: false, is_uncertain: false })
            }
        })
    }

    /// Closes all connections.
    pub(crate) async fn close(&self) {
        match self {
            Self::Sqlite(pool) => pool.close().await,
            Self::Postgres(pool) => pool.close().await,
        }
    }
}

impl DbConnection {
    /// Begins a writing transaction.
    pub(crate) async fn begin(&mut self) -> Result<(), sqlx::Error> {
        match self {
            Self::Postgres(connection) => connection.begin(BEGIN_WRITE).await,
            _ => self.script("BEGIN IMMEDIATE".to_owned()).await,
        }
    }

    /// Commits the transaction.
    pub(crate) async fn commit(&mut self) -> Result<(), sqlx::Error> {
        match self {
            Self::Postgres(connection) if connection.failed => {
                Err(sqlx::Error::Protocol("a statement of the transaction failed".to_owned()))
            }
            Self::Postgres(connection) => {
                connection.turn("COMMIT").await?;
                connection.open = false;
                Ok(())
            }
            _ => self.script("COMMIT".to_owned()).await,
        }
    }

    /// Executes a text of several statements without bound values.
    pub(crate) async fn script(&mut self, sql: String) -> Result<(), sqlx::Error> {
        let sql = sqlx::AssertSqlSafe(sql);
        match self {
            Self::Sqlite(connection) => sqlx::raw_sql(sql).execute(&mut **connection).await.map(|_| ()),
            Self::SqliteRead(connection) => sqlx::raw_sql(sql).execute(&mut **connection).await.map(|_| ()),
            Self::Postgres(connection) => {
                connection.answered(async |connection| sqlx::raw_sql(sql).execute(connection).await.map(|_| ())).await
            }
        }
    }
}

/// Where to execute a statement: on any connection of a pool, or on a given one.
pub(crate) enum On<'c> {
    /// Any connection.
    Pool(&'c DbPool),
    /// A given connection.
    Connection(&'c mut DbConnection),
}

impl<'c> From<&'c DbPool> for On<'c> {
    fn from(pool: &'c DbPool) -> Self {
        Self::Pool(pool)
    }
}

impl<'c> From<&'c mut DbConnection> for On<'c> {
    fn from(connection: &'c mut DbConnection) -> Self {
        Self::Connection(connection)
    }
}

/// A bound value.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    /// An integer.
    Int(Option<i64>),
    /// A text.
    Text(Option<String>),
    /// Bytes.
    Bytes(Option<Vec<u8>>),
}

macro_rules! values {
    ($($variant:ident: $($from:ty),+ => $how:expr;)+) => {$($(
        impl From<$from> for Value {
            fn from(value: $from) -> Self {
                Self::$variant(Some(($how)(value)))
            }
        }
        impl From<Option<$from>> for Value {
            fn from(value: Option<$from>) -> Self {
                Self::$variant(value.map($how))
            }
        }
    )+)+};
}

values! {
    Int: i64 => std::convert::identity;
    Int: u32, u16, i32, bool => i64::from;
    Int: &u32, &u16 => |value: &_| i64::from(*value);
    Text: &str, String, &String => String::from;
    Bytes: &[u8], Vec<u8> => Vec::from;
}

/// A statement with its bound values.
#[must_use]
pub(crate) struct Query {
    sql: SqlStr,
    values: Vec<Value>,
}

/// The effect of a statement.
pub(crate) struct ExecuteResult {
    rows: u64,
}

impl ExecuteResult {
    /// Number of changed rows.
    pub(crate) fn rows_affected(&self) -> u64 {
        self.rows
    }
}

/// A statement; its text never contains values from outside.
pub(crate) fn query(sql: &'static str) -> Query {
    Query { sql: sql.into_sql_str(), values: Vec::new() }
}

/// A statement whose text contains names read from the database itself.
pub(crate) fn text(sql: String) -> Query {
    Query { sql: sqlx::AssertSqlSafe(sql).into_sql_str(), values: Vec::new() }
}

/// Like [`text`], for a result of one column.
pub(crate) fn text_scalar<T>(sql: String) -> Scalar<T> {
    Scalar { query: text(sql), column: std::marker::PhantomData }
}

/// A statement whose result has one column.
pub(crate) fn query_scalar<T>(sql: &'static str) -> Scalar<T> {
    Scalar { query: query(sql), column: std::marker::PhantomData }
}

/// The wanted part of a result.
#[derive(Clone, Copy)]
enum FetchMode {
    First,
    All,
    Count,
}

/// The result of a statement.
struct Answer {
    rows: Vec<DbRow>,
    changed: u64,
}

impl Query {
    /// Binds the next value.
    pub(crate) fn bind(mut self, value: impl Into<Value>) -> Self {
        self.values.push(value.into());
        self
    }

    /// Executes it for its effect.
    pub(crate) async fn execute(self, on: impl Into<On<'_>>) -> Result<ExecuteResult, sqlx::Error> {
        self.run(on.into(), FetchMode::Count).await.map(|answer| ExecuteResult { rows: answer.changed })
    }

    /// The first row, if any.
    pub(crate) async fn fetch_optional(self, on: impl Into<On<'_>>) -> Result<Option<DbRow>, sqlx::Error> {
        self.run(on.into(), FetchMode::First).await.map(|mut answer| answer.rows.pop())
    }

    /// The first row, which must exist.
    pub(crate) async fn fetch_one(self, on: impl Into<On<'_>>) -> Result<DbRow, sqlx::Error> {
        self.fetch_optional(on).await?.ok_or(sqlx::Error::RowNotFound)
    }

    /// All rows.
    pub(crate) async fn fetch_all(self, on: impl Into<On<'_>>) -> Result<Vec<DbRow>, sqlx::Error> {
        self.run(on.into(), FetchMode::All).await.map(|answer| answer.rows)
    }

    async fn run(self, on: On<'_>, want: FetchMode) -> Result<Answer, sqlx::Error> {
        match on {
            On::Pool(pool @ DbPool::Sqlite(_)) => self.on(&mut pool.acquire().await?, want).await,
            On::Pool(pool @ DbPool::Postgres(_)) => {
                // A reading statement can be repeated, for example after a restart of the server.
                let mut tried = 0;
                loop {
                    tried += 1;
                    let answer = match pool.acquire().await {
                        Ok(mut connection) => self.on(&mut connection, want).await,
                        Err(error) => Err(error),
                    };
                    match answer {
                        Err(error) if is_tried_again(&error, tried) => {}
                        answer => return answer,
                    }
                }
            }
            On::Connection(connection) => self.on(connection, want).await,
        }
    }

    async fn on(&self, connection: &mut DbConnection, want: FetchMode) -> Result<Answer, sqlx::Error> {
        macro_rules! ask {
            ($arguments:ty, $row:path, $connection:expr) => {{
                let mut arguments = <$arguments>::default();
                for value in &self.values {
                    let added = match value {
                        Value::Int(value) => sqlx::Arguments::add(&mut arguments, *value),
                        Value::Text(value) => sqlx::Arguments::add(&mut arguments, value.clone()),
                        Value::Bytes(value) => sqlx::Arguments::add(&mut arguments, value.clone()),
                    };
                    added.map_err(sqlx::Error::Encode)?;
                }
                let query = sqlx::query_with(self.sql.clone(), arguments);
                let connection = $connection;
                let (mut rows, mut changed) = (Vec::new(), 0);
                match want {
                    FetchMode::Count => changed = query.execute(connection).await?.rows_affected(),
                    FetchMode::First => rows.extend(query.fetch_optional(connection).await?.map($row)),
                    FetchMode::All => rows.extend(query.fetch_all(connection).await?.into_iter().map($row)),
                }
                Ok(Answer { rows, changed })
            }};
        }
        match connection {
            DbConnection::Sqlite(connection) => ask!(SqliteArguments, DbRow::Sqlite, &mut **connection),
            DbConnection::SqliteRead(connection) => ask!(SqliteArguments, DbRow::Sqlite, &mut **connection),
            DbConnection::Postgres(connection) => {
                connection.answered(async |connection| ask!(PgArguments, DbRow::Postgres, connection)).await
            }
        }
    }
}

/// A statement whose result has one column.
#[must_use]
pub(crate) struct Scalar<T> {
    query: Query,
    column: std::marker::PhantomData<T>,
}

impl<T: for<'r> Column<'r>> Scalar<T> {
    /// Binds the next value.
    pub(crate) fn bind(mut self, value: impl Into<Value>) -> Self {
        self.query = self.query.bind(value);
        self
    }

    /// The value in the first row, which must exist.
    pub(crate) async fn fetch_one(self, on: impl Into<On<'_>>) -> Result<T, sqlx::Error> {
        T::get(&self.query.fetch_one(on).await?, 0)
    }

    /// The value in the first row, if any.
    pub(crate) async fn fetch_optional(self, on: impl Into<On<'_>>) -> Result<Option<T>, sqlx::Error> {
        self.query.fetch_optional(on).await?.map(|row| T::get(&row, 0)).transpose()
    }

    /// The values in all rows.
    pub(crate) async fn fetch_all(self, on: impl Into<On<'_>>) -> Result<Vec<T>, sqlx::Error> {
        self.query.fetch_all(on).await?.iter().map(|row| T::get(row, 0)).collect()
    }
}

/// A row of a result.
pub(crate) enum DbRow {
    /// SQLite.
    Sqlite(SqliteRow),
    /// PostgreSQL.
    Postgres(PgRow),
}

impl DbRow {
    /// The value of a column.
    pub(crate) fn try_get<'r, T: Column<'r>>(&'r self, column: &str) -> Result<T, sqlx::Error> {
        T::get(self, column)
    }

    /// All values.
    pub(crate) fn values(&self) -> Result<Vec<Value>, sqlx::Error> {
        let columns = match self {
            Self::Sqlite(row) => row.len(),
            Self::Postgres(row) => row.len(),
        };
        (0..columns).map(|column| self.value(column)).collect()
    }

    fn value(&self, column: usize) -> Result<Value, sqlx::Error> {
        let kind = match self {
            // The declared type, also for a null value.
            Self::Sqlite(row) => sqlx::Column::type_info(row.column(column)).name().to_owned(),
            Self::Postgres(row) => sqlx::Column::type_info(row.column(column)).name().to_owned(),
        };
        Ok(match kind.as_str() {
            "INTEGER" | "INT8" => Value::Int(Column::get(self, column)?),
            "TEXT" => Value::Text(Column::get(self, column)?),
            "BLOB" | "BYTEA" => Value::Bytes(Column::get(self, column)?),
            other => return Err(sqlx::Error::Decode(format!("a value of type {other}").into())),
        })
    }
}

/// Types that columns are read as.
pub(crate) trait Column<'r>: Sized {
    /// The value of a column, by name or index.
    fn get<I>(row: &'r DbRow, column: I) -> Result<Self, sqlx::Error>
    where
        I: ColumnIndex<SqliteRow> + ColumnIndex<PgRow>;
}

macro_rules! columns {
    ($($of:ty),+) => {$(
        impl<'r> Column<'r> for $of {
            fn get<I>(row: &'r DbRow, column: I) -> Result<Self, sqlx::Error>
            where
                I: ColumnIndex<SqliteRow> + ColumnIndex<PgRow>,
            {
                match row {
                    DbRow::Sqlite(row) => row.try_get(column),
                    DbRow::Postgres(row) => row.try_get(column),
                }
            }
        }
    )+};
}

columns! { &'r str, &'r [u8], String, Vec<u8>, Option<&'r str>, Option<&'r [u8]>, Option<String>, Option<Vec<u8>> }

impl<'r> Column<'r> for Option<i64> {
    fn get<I>(row: &'r DbRow, column: I) -> Result<Self, sqlx::Error>
    where
        I: ColumnIndex<SqliteRow> + ColumnIndex<PgRow>,
    {
        match row {
            DbRow::Sqlite(row) => row.try_get(column),
            DbRow::Postgres(row) => {
                let value = row.try_get_raw(&column)?;
                if value.is_null() {
                    return Ok(None);
                }
                let kind = value.type_info();
                match kind.name() {
                    // Integers of each width are read alike: big-endian.
                    "INT8" | "INT4" | "INT2" | "BOOL" => row.try_get_unchecked(column).map(Some),
                    other => Err(sqlx::Error::Decode(format!("{other} is read as an integer").into())),
                }
            }
        }
    }
}

macro_rules! integers {
    ($($of:ty: $how:expr;)+) => {$(
        impl<'r> Column<'r> for Option<$of> {
            fn get<I>(row: &'r DbRow, column: I) -> Result<Self, sqlx::Error>
            where
                I: ColumnIndex<SqliteRow> + ColumnIndex<PgRow>,
            {
                let value = <Option<i64>>::get(row, column)?;
                value.map($how).transpose().map_err(|error| sqlx::Error::Decode(Box::new(error)))
            }
        }
        impl<'r> Column<'r> for $of {
            fn get<I>(row: &'r DbRow, column: I) -> Result<Self, sqlx::Error>
            where
                I: ColumnIndex<SqliteRow> + ColumnIndex<PgRow>,
            {
                <Option<$of>>::get(row, column)?.ok_or_else(|| sqlx::Error::Decode("there is no value".into()))
            }
        }
    )+};
}

integers! {
    u16: u16::try_from;
    u32: u32::try_from;
    bool: |value: i64| Ok::<_, std::convert::Infallible>(value != 0);
}

impl<'r> Column<'r> for i64 {
    fn get<I>(row: &'r DbRow, column: I) -> Result<Self, sqlx::Error>
    where
        I: ColumnIndex<SqliteRow> + ColumnIndex<PgRow>,
    {
        <Option<Self>>::get(row, column)?.ok_or_else(|| sqlx::Error::Decode("there is no value".into()))
    }
}
