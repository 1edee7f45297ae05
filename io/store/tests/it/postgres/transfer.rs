//! Transfer from SQLite to PostgreSQL.

use std::{collections::HashMap, path::Path, sync::atomic::Ordering};

use sallyport_store::{DATABASE_FILE, PostgresAddress, Store, TransferError};
use sqlx::{AssertSqlSafe, Connection, Executor, Row, SqliteConnection};

use crate::{
    fixtures::{account, make_socket, make_tunnel},
    postgres::{
        ask,
        faults::{BEFORE, Cutter},
        open, say, server,
    },
};

/// Rows in every table.
const ROWS: u32 = 3;

async fn sqlite(dir: &Path) -> SqliteConnection {
    SqliteConnection::connect(&format!("sqlite://{}", dir.join(DATABASE_FILE).display())).await.unwrap()
}

/// The length that the column's CHECK requires.
fn length(table: &str, column: &str) -> u32 {
    let wanted = table.split_once(&format!("length({column}) = ")).map(|(_, rest)| rest);
    wanted.and_then(|rest| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()).unwrap_or(16)
}

/// The first value that the column's CHECK allows.
fn allowed(table: &str, column: &str) -> Option<String> {
    let (_, rest) = table.split_once(&format!("CHECK ({column} IN ("))?;
    rest.split([',', ')']).next().map(|value| value.trim().to_owned())
}

/// A directory with a store that has rows in every table.
async fn filled() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).await.unwrap();
    store.create_account(account(1)).await.unwrap();
    let socket = make_socket(&store, 1, 1, &[1]).await.unwrap();
    make_tunnel(&store, 1, socket.id, 1).await.unwrap();
    store.close().await;
    let mut on = sqlite(dir.path()).await;
    let tables = sqlx::query("SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'");
    for found in tables.fetch_all(&mut on).await.unwrap() {
        let (table, text): (String, String) = (found.get("name"), found.get("sql"));
        let mut keys = HashMap::new();
        let of_others = sqlx::query("SELECT * FROM pragma_foreign_key_list($1)").bind(&table);
        for key in of_others.fetch_all(&mut on).await.unwrap() {
            let to: Option<String> = key.get("to");
            keys.insert(key.get::<String, _>("from"), (key.get::<String, _>("table"), to.unwrap_or("id".into())));
        }
        let columns = sqlx::query("SELECT name, type FROM pragma_table_info($1)").bind(&table).fetch_all(&mut on);
        let columns = columns.await.unwrap();
        for row in 0..ROWS {
            let value = |(name, kind): (String, String)| match (keys.get(&name), allowed(&text, &name), kind.as_str()) {
                (Some((other, column)), _, _) => {
                    format!(
                        "(SELECT {column} FROM {other} ORDER BY rowid DESC LIMIT 1 \
                         OFFSET {row} % (SELECT count(*) FROM {other}))"
                    )
                }
                (_, Some(allowed), _) => allowed,
                (_, _, "BLOB") => format!("randomblob({})", length(&text, &name)),
                (_, _, "INTEGER") => format!("{}", 40_000 + row),
                _ => format!("'{name} {row} \u{fc}''\u{1f6aa}'"),
            };
            let names: Vec<String> = columns.iter().map(|column| column.get("name")).collect();
            let values: Vec<String> = columns.iter().map(|c| value((c.get("name"), c.get("type")))).collect();
            let insert = format!("INSERT INTO {table} ({}) VALUES ({})", names.join(", "), values.join(", "));
            on.execute(AssertSqlSafe(insert.clone())).await.unwrap_or_else(|error| panic!("{insert}: {error}"));
        }
    }
    // Row ids of deleted rows are not reused.
    on.execute("INSERT INTO freed_ports (position, port) VALUES (90000, 1); DELETE FROM freed_ports WHERE port = 1")
        .await
        .unwrap();
    on.close().await.unwrap();
    dir
}

async fn transfer(dir: &Path, to: &str, dry: bool) -> Result<Vec<sallyport_store::TransferredTable>, TransferError> {
    let to: PostgresAddress = to.parse().unwrap();
    Store::transfer(dir, &to, dry).await
}

async fn tables_of(address: &str) -> i64 {
    ask(address, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'".to_owned()).await
}

#[tokio::test]
async fn everything_is_there_afterwards() {
    let Some(server) = server() else { return };
    let dir = filled().await;
    let address = server.database().await;
    let planned = transfer(dir.path(), &address, true).await.unwrap();
    assert_eq!(tables_of(&address).await, 0, "it only looked");
    let done = transfer(dir.path(), &address, false).await.unwrap();
    assert_eq!(planned, done);
    assert!(done.len() > 15 && done.iter().all(|table| table.rows >= u64::from(ROWS)), "{done:?}");

    let (store, file) = (open(&address).await, Store::open(dir.path()).await.unwrap());
    let (owner, same) = (account(1).account.id, account(1).account);
    assert_eq!(store.account(owner).await.unwrap(), Some(same));
    let sockets = store.sockets(owner, 0, 10).await.unwrap();
    assert_eq!(sockets, file.sockets(owner, 0, 10).await.unwrap());
    assert_eq!(store.count_accounts().await.unwrap(), u64::from(ROWS) + 1);
    // The store continues as before: names stay taken, numbers grow.
    assert!(make_socket(&store, 1, 2, &[1]).await.is_err());
    make_socket(&store, 1, 2, &[2]).await.unwrap();
    let numbers = "SELECT count(*) FROM sockets a JOIN sockets b ON a.rowid > b.rowid AND a.position < b.position";
    assert_eq!(ask(&address, format!("{numbers} AND a.account = b.account")).await, 0);
    say(&address, "INSERT INTO freed_ports (port) VALUES (1)".to_owned()).await;
    assert_eq!(ask(&address, "SELECT position FROM freed_ports WHERE port = 1".to_owned()).await, 90_001);

    let again = transfer(dir.path(), &address, false).await.unwrap_err();
    assert!(matches!(again, TransferError::NotEmpty { .. }), "{again}");
    let again = transfer(dir.path(), &address, true).await.unwrap_err();
    assert!(again.to_string().contains("is not empty"), "{again}");
}

#[tokio::test]
async fn what_is_cut_off_leaves_nothing() {
    let Some(server) = server() else { return };
    let dir = filled().await;
    let address = server.database().await;
    for word in ["CREATE TABLE", "INSERT INTO tunnels", "SELECT rowid AS number_of_row", "COMMIT"] {
        let cutter = Cutter::before(&address, word).await;
        cutter.cut.store(BEFORE, Ordering::SeqCst);
        let error = transfer(dir.path(), &cutter.address, false).await.unwrap_err();
        assert!(!error.to_string().contains('\n'), "{error}");
        assert_eq!(tables_of(&address).await, 0, "{word}: {error}");
    }
    transfer(dir.path(), &address, false).await.unwrap();
}

#[tokio::test]
async fn data_that_cannot_be_transferred_is_an_error() {
    let Some(server) = server() else { return };
    let (dir, address) = (filled().await, server.database().await);
    let empty = tempfile::tempdir().unwrap();
    let nothing = transfer(empty.path(), &address, false).await.unwrap_err();
    assert!(matches!(nothing, TransferError::Nothing { .. }), "{nothing}");
    assert_eq!(std::fs::read_dir(empty.path()).unwrap().count(), 0, "and nothing is made there");

    say(&address, "CREATE TABLE notes (text TEXT)".to_owned()).await;
    let foreign = transfer(dir.path(), &address, false).await.unwrap_err();
    assert!(foreign.to_string().contains("another program"), "{foreign}");
    say(&address, "DROP TABLE notes".to_owned()).await;

    // PostgreSQL stores no text with a NUL character.
    let mut on = sqlite(dir.path()).await;
    on.execute("UPDATE ssh_keys SET name = 'a' || char(0) || 'b'").await.unwrap();
    let zero = transfer(dir.path(), &address, false).await.unwrap_err();
    assert!(matches!(&zero, TransferError::Table { table, .. } if table == "ssh_keys"), "{zero}");
    on.execute("UPDATE ssh_keys SET name = 'key'").await.unwrap();
    assert_eq!(tables_of(&address).await, 0);

    on.execute("PRAGMA user_version = 9999").await.unwrap();
    on.close().await.unwrap();
    let newer = transfer(dir.path(), &address, false).await.unwrap_err();
    assert!(newer.to_string().contains("version 9999"), "{newer}");
}

#[tokio::test]
async fn an_empty_database_that_was_used_before_will_do() {
    let Some(server) = server() else { return };
    let (dir, address) = (filled().await, server.database().await);
    open(&address).await.close().await;
    transfer(dir.path(), &address, false).await.unwrap();
}
