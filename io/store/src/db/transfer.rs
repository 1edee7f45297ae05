//! Transfers a SQLite database to PostgreSQL: completely, or not at all.

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::{
    Store,
    error::StoreError,
    open::DATABASE_FILE,
    postgres::{self, PostgresAddress},
    sql::{self, DbConnection, Value},
    write::Write,
};

/// Rows read at once.
const MAX_ROWS_AT_ONCE: i64 = 500;
/// Values bound in one statement; PostgreSQL accepts 65,535.
const MAX_VALUES_AT_ONCE: usize = 8_000;

/// A transferred table, equal on both sides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransferredTable {
    /// Its name.
    pub name: String,
    /// Number of rows.
    pub rows: u64,
    /// SHA-256 of all its values, in the order of its rows.
    pub digest: [u8; 32],
}

/// Reason why nothing was transferred.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// The data directory has no database.
    #[error("{} has no database: name the data directory of the `sallyport up` whose data is to move", dir.display())]
    Nothing {
        /// The directory.
        dir: PathBuf,
    },
    /// The target is not empty.
    #[error("the database {database} is not empty ({table} has rows): transfer into an empty one")]
    NotEmpty {
        /// The address of the target.
        database: String,
        /// A table that has rows.
        table: String,
    },
    /// A table cannot be written to the target.
    #[error("the table {table} cannot be transferred: {source}; nothing was transferred")]
    Table {
        /// The table.
        table: String,
        /// The cause.
        source: StoreError,
    },
    /// A table differs after the transfer.
    #[error("the table {table} differs in the target: nothing was transferred")]
    Differs {
        /// The table.
        table: String,
    },
    /// A failure of either database.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A table of the source, in an order in which foreign keys refer to earlier tables.
struct Table {
    name: String,
    columns: Vec<String>,
}

impl Store {
    /// Transfers the SQLite database in `dir` into an empty PostgreSQL database, in one transaction. Counts and digests
    /// of every table are compared before the commit; any failure leaves the target unchanged. The caller holds the
    /// directory's lock. A database of an older version is migrated first. `dry` only reads, and checks whether the
    /// target is suitable.
    ///
    /// # Errors
    /// A database failed; the target is unchanged.
    pub async fn transfer(dir: &Path, to: &PostgresAddress, dry: bool) -> Result<Vec<TransferredTable>, TransferError> {
        if !std::fs::metadata(dir.join(DATABASE_FILE)).is_ok_and(|file| file.len() > 0) {
            return Err(TransferError::Nothing { dir: dir.to_owned() });
        }
        let source = Self::open(dir).await?;
        let mut reading = source.read().await?;
        let tables = tables(&mut reading).await?;
        let transferred = transfer(&mut reading, &tables, to, dry).await;
        drop(reading);
        source.close().await;
        transferred
    }
}

async fn transfer(
    source: &mut DbConnection,
    tables: &[Table],
    to: &PostgresAddress,
    dry: bool,
) -> Result<Vec<TransferredTable>, TransferError> {
    postgres::examine(to).await?;
    let writer = postgres::writer(to).await?;
    let mut write = Write::begin(&writer).await?;
    // Without a commit no trace is left, not even tables.
    postgres::bring_to_newest(&mut write, to).await?;
    let mut done = Vec::with_capacity(tables.len());
    for table in tables {
        let fail = |source: StoreError| TransferError::Table { table: table.name.clone(), source };
        let there = count(write.sql(), table).await.map_err(fail)?;
        if there > 0 {
            return Err(TransferError::NotEmpty { database: to.to_string(), table: table.name.clone() });
        }
        let before = if dry { None } else { Some(copy(source, write.sql(), table).await.map_err(fail)?) };
        let after = match &before {
            None => digest(source, table).await.map_err(fail)?,
            Some(_) => digest(write.sql(), table).await.map_err(fail)?,
        };
        if before.is_some_and(|before| before != after) {
            return Err(TransferError::Differs { table: table.name.clone() });
        }
        done.push(after);
    }
    if !dry {
        write.commit().await?;
    } else {
        drop(write);
    }
    writer.close().await;
    Ok(done)
}

/// The tables of SQLite with their columns.
async fn tables(source: &mut DbConnection) -> Result<Vec<Table>, StoreError> {
    let names = sql::query_scalar::<String>(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY rowid",
    );
    let mut tables = Vec::new();
    for name in names.fetch_all(&mut *source).await? {
        let columns = sql::query_scalar::<String>("SELECT name FROM pragma_table_info($1) ORDER BY cid").bind(&name);
        tables.push(Table { columns: columns.fetch_all(&mut *source).await?, name });
    }
    Ok(tables)
}

async fn count(on: &mut DbConnection, table: &Table) -> Result<i64, StoreError> {
    Ok(sql::text_scalar::<i64>(format!("SELECT count(*) FROM {}", table.name)).fetch_one(on).await?)
}

/// A page of rows after a row number, each with its row number first.
async fn page(on: &mut DbConnection, table: &Table, after: i64) -> Result<Vec<Vec<Value>>, StoreError> {
    let columns = table.columns.join(", ");
    let select = format!(
        "SELECT rowid AS number_of_row, {columns} FROM {} WHERE rowid > $1 ORDER BY rowid LIMIT $2",
        table.name
    );
    let rows = sql::text(select).bind(after).bind(MAX_ROWS_AT_ONCE).fetch_all(on).await?;
    Ok(rows.iter().map(sql::DbRow::values).collect::<Result<_, _>>()?)
}

/// Copies a table, and returns the summary of the rows that were read.
async fn copy(
    source: &mut DbConnection,
    target: &mut DbConnection,
    table: &Table,
) -> Result<TransferredTable, StoreError> {
    let mut summing = Summing::default();
    let width = table.columns.len() + 1;
    let mut last = i64::MIN;
    loop {
        let rows = page(source, table, last).await?;
        let Some(end) = rows.last() else { break };
        last = number(end);
        for some in rows.chunks((MAX_VALUES_AT_ONCE / width).max(1)) {
            let mut insert = format!("INSERT INTO {} (rowid, {}) VALUES ", table.name, table.columns.join(", "));
            for row in 0..some.len() {
                let places: Vec<String> = (1..=width).map(|column| format!("${}", row * width + column)).collect();
                let comma = if row == 0 { "" } else { ", " };
                insert.push_str(&format!("{comma}({})", places.join(", ")));
            }
            let mut query = sql::text(insert);
            for value in some.iter().flatten() {
                query = query.bind(value.clone());
            }
            query.execute(&mut *target).await?;
        }
        for row in &rows {
            summing.add(row);
        }
    }
    // Later rows get higher numbers.
    let numbered = sql::text(
        "SELECT column_name FROM information_schema.columns
         WHERE table_schema = current_schema() AND table_name = $1 AND is_identity = 'YES'"
            .to_owned(),
    );
    for found in numbered.bind(&table.name).fetch_all(&mut *target).await? {
        let column: &str = found.try_get("column_name")?;
        let name = &table.name;
        let highest = highest(source, target, name, column).await?;
        let next = format!("SELECT setval(pg_get_serial_sequence('{name}', '{column}'), $1, true)");
        if highest > 0 {
            sql::text(next).bind(highest).fetch_one(&mut *target).await?;
        }
    }
    Ok(summing.end(table))
}

/// The highest number of a column, including deleted rows where SQLite remembers them (`AUTOINCREMENT`).
async fn highest(
    source: &mut DbConnection,
    target: &mut DbConnection,
    table: &str,
    column: &str,
) -> Result<i64, StoreError> {
    let now = sql::text_scalar::<i64>(format!("SELECT coalesce(max({column}), 0) FROM {table}"));
    let ever = sql::query_scalar::<i64>("SELECT seq FROM sqlite_sequence WHERE name = $1").bind(table);
    let (now, ever) = (now.fetch_one(target).await?, ever.fetch_optional(source).await?);
    Ok(now.max(ever.unwrap_or(0)))
}

async fn digest(on: &mut DbConnection, table: &Table) -> Result<TransferredTable, StoreError> {
    let mut summing = Summing::default();
    let mut last = i64::MIN;
    loop {
        let rows = page(on, table, last).await?;
        let Some(end) = rows.last() else { return Ok(summing.end(table)) };
        last = number(end);
        for row in &rows {
            summing.add(row);
        }
    }
}

fn number(row: &[Value]) -> i64 {
    match row.first() {
        Some(Value::Int(Some(number))) => *number,
        _ => i64::MAX,
    }
}

/// The digest of a table, row by row.
#[derive(Default)]
struct Summing {
    rows: u64,
    hash: Sha256,
}

impl Summing {
    fn add(&mut self, row: &[Value]) {
        self.rows += 1;
        for value in row {
            let (kind, bytes): (u8, &[u8]) = match value {
                Value::Int(Some(value)) => (1, &value.to_be_bytes()),
                Value::Text(Some(value)) => (2, value.as_bytes()),
                Value::Bytes(Some(value)) => (3, value),
                Value::Int(None) | Value::Text(None) | Value::Bytes(None) => (0, &[]),
            };
            self.hash.update([kind]);
            self.hash.update((bytes.len() as u64).to_be_bytes());
            self.hash.update(bytes);
        }
    }

    fn end(self, table: &Table) -> TransferredTable {
        TransferredTable { name: table.name.clone(), rows: self.rows, digest: self.hash.finalize().into() }
    }
}
