//! The store on PostgreSQL: a real server, started once for this program.

mod faults;
mod schema;
mod server;
mod together;
mod transfer;

use std::{
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
};

use sallyport_store::{PostgresAddress, Store};
use sqlx::{Connection, Executor, PgConnection};

pub(crate) use self::server::{Server, server};
use crate::fixtures::account;

/// The environment variable for a test program whose stores are on this server: the start of an address, up to the
/// database's name.
const SUITE: &str = "SALLYPORT_TEST_STORE_ON";

impl Server {
    /// The address of a new, empty database.
    pub(crate) async fn database(&self) -> String {
        database_on(&self.base()).await
    }
}

/// Runs SQL on a server as its superuser.
pub(crate) async fn say(address: &str, sql: String) {
    let mut connection = PgConnection::connect(address).await.unwrap();
    connection.execute(sqlx::AssertSqlSafe(sql)).await.unwrap();
    connection.close().await.unwrap();
}

async fn database_on(base: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = format!("t{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    say(&format!("{base}/postgres"), format!("CREATE DATABASE {name} TEMPLATE template0")).await;
    format!("{base}/{name}")
}

/// A database of the server on which the whole suite runs; `None` without one.
pub(crate) async fn of_suite() -> Option<PostgresAddress> {
    let base = std::env::var(SUITE).ok()?;
    Some(database_on(&base).await.parse().unwrap())
}

/// Opens the database.
pub(crate) async fn open(address: &str) -> Store {
    Store::open_postgres(&address.parse().unwrap()).await.unwrap()
}

/// Two stores on one new database, as two processes open them, with account 1.
pub(crate) async fn two_stores(server: &Server) -> (Store, Store) {
    let address = server.database().await;
    let address: PostgresAddress = address.parse().unwrap();
    let (one, two) = tokio::join!(Store::open_postgres(&address), Store::open_postgres(&address));
    let (one, two) = (one.unwrap(), two.unwrap());
    one.create_account(account(1)).await.unwrap();
    (one, two)
}

/// Runs SQL on a server as its superuser, and returns the resulting number.
pub(crate) async fn ask(address: &str, sql: String) -> i64 {
    let mut connection = PgConnection::connect(address).await.unwrap();
    sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).fetch_one(&mut connection).await.unwrap()
}

#[test]
fn the_suite_holds_on_postgresql() {
    let Some(server) = server() else { return };
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--skip", "open::", "--skip", "disk::", "--skip", "lock::", "--skip", "postgres::"])
        .env(SUITE, server.base())
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{stdout}\n{}", String::from_utf8_lossy(&output.stderr));
    let passed = stdout.split("test result: ok. ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    assert!(passed.parse::<u32>().unwrap() > 20, "{stdout}");
}
