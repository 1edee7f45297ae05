//! Statements, executed on SQLite or on PostgreSQL.
//!
//! Every statement of this crate is one text for both, in the words that both know: `$1` for what is bound,
//! `ON CONFLICT`, `RETURNING`, `IS NOT DISTINCT FROM`, `LIMIT 1000000 OFFSET $2`. What only one of them knows
//! (`INSERT OR REPLACE`, `json_extract`, `x''`, a bare `1` for true) does not work on the other, which the tests tell:
//! they run on both. `rowid` is there in both, as a hidden column in PostgreSQL: it grows with every row.
//!
//! Values are integers, texts and bytes, as the columns are; a `bool` is an integer, 0 or 1, and may be read from what
//! PostgreSQL calls boolean too.

use std::time::Duration;

use sqlx::{
    ColumnIndex, PgPool, Postgres, Row as _, SqlSafeStr as _, SqlStr, Sqlite, SqlitePool, TypeInfo as _, ValueRef as _,
    pool::PoolConnection,
    postgres::{PgArguments, PgRow},
    sqlite::{SqliteArguments, SqliteRow},
};

use super::{error::is_lost, postgres::MAX_READERS};

/// How long PostgreSQL may take for one statement before its connection counts as lost; it gives up earlier itself
/// ([`super::postgres`]), so that this is for connections that nobody answers on.
const MAX_ANSWER: Duration = Duration::from_secs(15);
/// How long the server may take to be reached by who found no connection in the pool.
const MAX_PROBE: Duration = Duration::from_secs(1);
/// How often a statement that only reads is tried, each time on another connection, when connections turn out to be
/// lost: once more than there can be at rest in a pool, since a server that went away took them all.
const MAX_TRIES: u32 = MAX_READERS + 1;
/// The same when nobody answered, which takes [`MAX_ANSWER`] each time.
const MAX_SILENT_TRIES: u32 = 3;
/// Who writes to PostgreSQL holds this lock until the transaction ends, in whichever process, so that there is one
/// writer as with SQLite: what was counted holds, and `max(position) + 1` is nobody else's. The number is what marks
/// files too.
const BEGIN_WRITE: &str = "BEGIN; SELECT pg_advisory_xact_lock(1397772884)";

/// Connections to one database.
#[derive(Debug, Clone)]
pub(crate) enum DbPool {
    /// A file.
    Sqlite(SqlitePool),
    /// A server.
    Postgres(PgPool),
}

/// One connection, for as long as it is held.
pub(crate) enum DbConnection {
    /// To a file.
    Sqlite(PoolConnection<Sqlite>),
    /// To a file, in a transaction that reads.
    SqliteRead(sqlx::Transaction<'static, Sqlite>),
    /// To a server.
    Postgres(PgConnection),
}

/// A connection to a server, which goes back to the pool without a trace of what was not committed.
pub(crate) struct PgConnection {
    /// Gone only while it is dropped.
    connection: Option<PoolConnection<Postgres>>,
    /// Whether a transaction is open.
    open: bool,
    /// Whether a statement failed, after which PostgreSQL makes a rollback of a commit.
    failed: bool,
    /// Whether its state is unknown: it is closed then rather than used again.
    doubtful: bool,
}

impl PgConnection {
    fn inner(&mut self) -> Result<&mut PoolConnection<Postgres>, sqlx::Error> {
        self.connection.as_mut().ok_or(sqlx::Error::PoolClosed)
    }

    /// Waits for an answer, but not for ever, and notes what became of the connection.
    async fn answered<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut sqlx::PgConnection) -> Result<T, sqlx::Error>,
    ) -> Result<T, sqlx::Error> {
        let answer = tokio::time::timeout(MAX_ANSWER, work(self.inner()?)).await.unwrap_or_else(|_| Err(no_answer()));
        if let Err(error) = &answer {
            self.failed = true;
            self.doubtful |= is_lost(error);
        }
        answer
    }

    async fn begin(&mut self, sql: &'static str) -> Result<(), sqlx::Error> {
        self.turn(sql).await?;
        self.open = true;
        Ok(())
    }

    /// Executes a text of ours that begins or ends a transaction. Given up half-way, its connection is closed.
    async fn turn(&mut self, sql: &'static str) -> Result<(), sqlx::Error> {
        let doubtful = std::mem::replace(&mut self.doubtful, true);
        let answer = self.answered(async |connection| sqlx::raw_sql(sql).execute(connection).await).await;
        answer?;
        self.doubtful = doubtful;
        Ok(())
    }
}

impl Drop for PgConnection {
    fn drop(&mut self) {
        let Some(mut connection) = self.connection.take() else { return };
        if self.doubtful {
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

/// Why no connection was to be had in time: the pool goes on trying where nothing listens, and does not say so.
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

/// Whether what has not happened yet, after so many tries, is tried once more on another connection.
pub(crate) fn is_tried_again(error: &sqlx::Error, tried: u32) -> bool {
    // It was waited for long enough: see `why_none`.
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
    /// A connection in a transaction that reads: all statements see the database as it was at the first one.
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

    /// A connection for the caller alone.
    pub(crate) async fn acquire(&self) -> Result<DbConnection, sqlx::Error> {
        Ok(match self {
            Self::Sqlite(pool) => DbConnection::Sqlite(pool.acquire().await?),
            Self::Postgres(pool) => {
                let connection = match pool.acquire().await {
                    Err(sqlx::Error::PoolTimedOut) => return Err(why_none(pool).await),
                    connection => Some(connection?),
                };
                DbConnection::Postgres(PgConnection { connection, open: false, failed: false, doubtful: false })
            }
        })
    }

    /// Ends all connections.
    pub(crate) async fn close(&self) {
        match self {
            Self::Sqlite(pool) => pool.close().await,
            Self::Postgres(pool) => pool.close().await,
        }
    }
}

impl DbConnection {
    /// Begins a transaction that writes.
    pub(crate) async fn begin(&mut self) -> Result<(), sqlx::Error> {
        match self {
            Self::Postgres(connection) => connection.begin(BEGIN_WRITE).await,
            _ => self.script("BEGIN IMMEDIATE".to_owned()).await,
        }
    }

    /// Makes what was done in the transaction so.
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

/// Where a statement is executed: on any connection of a pool that reads, or on one that is held.
pub(crate) enum On<'c> {
    /// Any connection.
    Pool(&'c DbPool),
    /// This one.
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

/// A value that is bound.
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

/// A statement with what is bound to it.
#[must_use]
pub(crate) struct Query {
    sql: SqlStr,
    values: Vec<Value>,
}

/// What a statement changed.
pub(crate) struct Done {
    rows: u64,
}

impl Done {
    /// How many rows.
    pub(crate) fn rows_affected(&self) -> u64 {
        self.rows
    }
}

/// A statement; its text never holds a value from outside.
pub(crate) fn query(sql: &'static str) -> Query {
    Query { sql: sql.into_sql_str(), values: Vec::new() }
}

/// A statement whose text was put together, of names that the database itself gave.
pub(crate) fn text(sql: String) -> Query {
    Query { sql: sqlx::AssertSqlSafe(sql).into_sql_str(), values: Vec::new() }
}

/// [`text`], for an answer of one column.
pub(crate) fn text_scalar<T>(sql: String) -> Scalar<T> {
    Scalar { query: text(sql), column: std::marker::PhantomData }
}

/// A statement whose answer has one column.
pub(crate) fn query_scalar<T>(sql: &'static str) -> Scalar<T> {
    Scalar { query: query(sql), column: std::marker::PhantomData }
}

/// How much of an answer is wanted.
#[derive(Clone, Copy)]
enum FetchMode {
    First,
    All,
    Count,
}

/// What a statement answered.
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
    pub(crate) async fn execute(self, on: impl Into<On<'_>>) -> Result<Done, sqlx::Error> {
        self.run(on.into(), FetchMode::Count).await.map(|answer| Done { rows: answer.changed })
    }

    /// The first row of its answer.
    pub(crate) async fn fetch_optional(self, on: impl Into<On<'_>>) -> Result<Option<DbRow>, sqlx::Error> {
        self.run(on.into(), FetchMode::First).await.map(|mut answer| answer.rows.pop())
    }

    /// The first row of its answer, which has one.
    pub(crate) async fn fetch_one(self, on: impl Into<On<'_>>) -> Result<DbRow, sqlx::Error> {
        self.fetch_optional(on).await?.ok_or(sqlx::Error::RowNotFound)
    }

    /// All rows of its answer.
    pub(crate) async fn fetch_all(self, on: impl Into<On<'_>>) -> Result<Vec<DbRow>, sqlx::Error> {
        self.run(on.into(), FetchMode::All).await.map(|answer| answer.rows)
    }

    async fn run(self, on: On<'_>, want: FetchMode) -> Result<Answer, sqlx::Error> {
        match on {
            On::Pool(pool @ DbPool::Sqlite(_)) => self.on(&mut pool.acquire().await?, want).await,
            On::Pool(pool @ DbPool::Postgres(_)) => {
                // What reads can be asked again, of a server that was restarted say.
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

/// A statement whose answer has one column.
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

    /// The value in the first row, which is there.
    pub(crate) async fn fetch_one(self, on: impl Into<On<'_>>) -> Result<T, sqlx::Error> {
        T::get(&self.query.fetch_one(on).await?, 0)
    }

    /// The value in the first row.
    pub(crate) async fn fetch_optional(self, on: impl Into<On<'_>>) -> Result<Option<T>, sqlx::Error> {
        self.query.fetch_optional(on).await?.map(|row| T::get(&row, 0)).transpose()
    }

    /// The values in all rows.
    pub(crate) async fn fetch_all(self, on: impl Into<On<'_>>) -> Result<Vec<T>, sqlx::Error> {
        self.query.fetch_all(on).await?.iter().map(|row| T::get(row, 0)).collect()
    }
}

/// A row of an answer.
pub(crate) enum DbRow {
    /// From a file.
    Sqlite(SqliteRow),
    /// From a server.
    Postgres(PgRow),
}

impl DbRow {
    /// The value of a column.
    pub(crate) fn try_get<'r, T: Column<'r>>(&'r self, column: &str) -> Result<T, sqlx::Error> {
        T::get(self, column)
    }

    /// All values, as they are.
    pub(crate) fn values(&self) -> Result<Vec<Value>, sqlx::Error> {
        let columns = match self {
            Self::Sqlite(row) => row.len(),
            Self::Postgres(row) => row.len(),
        };
        (0..columns).map(|column| self.value(column)).collect()
    }

    fn value(&self, column: usize) -> Result<Value, sqlx::Error> {
        let kind = match self {
            // As the column was declared, also where there is no value.
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

/// What columns are read as.
pub(crate) trait Column<'r>: Sized {
    /// The value of a column, by its name or its number.
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
                    // Both are as long as they are, and read alike: an integer in the order of the network.
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
                <Option<i64>>::get(row, column)?.map($how).transpose().map_err(|error| sqlx::Error::Decode(Box::new(error)))
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
