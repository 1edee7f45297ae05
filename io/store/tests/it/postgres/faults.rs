//! Faults of a database server, at the start and in use.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU8, Ordering},
};

use sallyport_store::{Store, StoreError};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::{
    fixtures::{account, make_socket},
    postgres::{Server, open, say, server},
};

async fn refused(address: &str) -> StoreError {
    let error = Store::open_postgres(&address.parse().unwrap()).await.expect_err("refused");
    assert!(!error.to_string().contains('\n'), "{error}");
    error
}

#[tokio::test]
async fn an_unreachable_server_is_an_error_at_once() {
    // A bound port without a listener refuses connections, and no other process can take the port.
    let reserved = tokio::net::TcpSocket::new_v4().unwrap();
    reserved.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let unused = reserved.local_addr().unwrap();
    let error = refused(&format!("postgres://ann:geheim@{unused}/sally")).await;
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error:?}");
    assert!(error.to_string().contains(&format!("postgres://ann@{unused}/sally")), "{error}");
}

#[tokio::test]
async fn errors_name_the_reason_of_a_refused_connection() {
    let Some(server) = server() else { return };
    let address = server.database().await;
    let (base, name) = address.rsplit_once('/').unwrap();
    let host = base.rsplit_once('@').unwrap().1;
    say(&address, "CREATE ROLE locked LOGIN PASSWORD 'geheim'; CREATE ROLE guest LOGIN".to_owned()).await;
    for (address, words) in [
        (format!("postgres://locked:wrong@{host}/{name}"), "check the password"),
        (format!("postgres://guest@{host}/{name}"), "GRANT CREATE"),
        (format!("postgres://nobody@{host}/{name}"), "check the user's name"),
        (format!("{base}/nothing"), "createdb"),
        (format!("{address}?sslmode=verify-full"), "check sslmode"),
    ] {
        let error = refused(&address).await;
        assert!(matches!(error, StoreError::Refused { .. }), "{error:?}");
        assert!(error.to_string().contains(words) && !error.to_string().contains("wrong"), "{error}");
    }
    say(&address, "GRANT CREATE ON SCHEMA public TO locked".to_owned()).await;
    open(&format!("postgres://locked:geheim@{host}/{name}")).await.close().await;
}

#[tokio::test]
async fn databases_of_others_and_of_the_future_are_refused_and_kept() {
    let Some(server) = server() else { return };
    let foreign = server.database().await;
    say(&foreign, "CREATE TABLE notes (text TEXT)".to_owned()).await;
    let error = refused(&foreign).await;
    assert!(matches!(error, StoreError::Foreign { .. }), "{error:?}");
    say(&foreign, "DROP TABLE notes".to_owned()).await;
    open(&foreign).await.close().await;

    say(&foreign, "UPDATE sallyport_schema SET version = 9999".to_owned()).await;
    let error = refused(&foreign).await;
    assert!(matches!(error, StoreError::Newer { found: 9999, .. }), "{error:?}");
    let latin = format!("{}/postgres", server.base());
    let name = format!("latin{}", std::process::id());
    say(&latin, format!("CREATE DATABASE {name} TEMPLATE template0 ENCODING 'LATIN1'")).await;
    assert!(refused(&format!("{}/{name}", server.base())).await.to_string().contains("UTF8"));
}

#[tokio::test]
async fn a_read_only_server_is_an_error_at_the_start_and_later() {
    let Some(server) = server() else { return };
    let address = server.database().await;
    let name = address.rsplit_once('/').unwrap().1;
    let store = open(&address).await;
    store.create_account(account(1)).await.unwrap();
    say(&address, format!("ALTER DATABASE {name} SET default_transaction_read_only = on")).await;
    cut_all(server, name).await;
    let error = store.create_account(account(2)).await.unwrap_err();
    assert!(matches!(error, StoreError::ReadOnly), "{error:?}");
    assert_eq!(store.count_accounts().await.unwrap(), 1, "reading goes on");
    assert!(matches!(refused(&address).await, StoreError::ReadOnly));
    let healed = format!("SET transaction_read_only = off; ALTER DATABASE {name} RESET default_transaction_read_only");
    say(&format!("{}/postgres", server.base()), healed).await;
    cut_all(server, name).await;
    store.create_account(account(2)).await.unwrap();
}

/// Ends all connections to a database, as a restarting server does.
async fn cut_all(server: &Server, name: &str) {
    let sql = format!("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = '{name}'");
    say(&format!("{}/postgres", server.base()), sql).await;
}

#[tokio::test]
async fn connections_that_are_lost_are_replaced() {
    let Some(server) = server() else { return };
    let address = server.database().await;
    let name = address.rsplit_once('/').unwrap().1;
    let store = open(&address).await;
    store.create_account(account(1)).await.unwrap();
    for n in 0..5 {
        store.check().await.unwrap();
        cut_all(server, name).await;
        assert_eq!(store.routes().await.unwrap().len(), n);
        cut_all(server, name).await;
        assert_eq!(store.count_accounts().await.unwrap(), 1);
        cut_all(server, name).await;
        make_socket(&store, 1, n as u32, &[n as u64]).await.unwrap();
    }
}

#[tokio::test]
async fn a_lost_server_is_its_own_error_when_no_connection_is_left() {
    let Some(server) = server() else { return };
    let address = server.database().await;
    let (base, name) = address.rsplit_once('/').unwrap();
    let (user, host) = base.rsplit_once('@').unwrap();
    let (listener, host) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), host.to_owned());
    let front = listener.local_addr().unwrap();
    let way = tokio::spawn(async move {
        let mut connections = tokio::task::JoinSet::new();
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            let host = host.clone();
            connections.spawn(async move {
                let mut server = TcpStream::connect(host).await.unwrap();
                drop(tokio::io::copy_bidirectional(&mut client, &mut server).await);
            });
        }
    });
    let store = open(&format!("{user}@{front}/{name}")).await;
    store.create_account(account(1)).await.unwrap();
    way.abort();
    drop(way.await);
    let (read, written) = tokio::join!(store.count_accounts(), store.create_account(account(2)));
    let errors = [read.unwrap_err(), written.unwrap_err()];
    assert!(errors.iter().all(|error| matches!(error, StoreError::Unreachable { .. })), "{errors:?}");
}

#[tokio::test]
async fn what_is_given_up_does_not_keep_others_from_writing() {
    let Some(server) = server() else { return };
    let address = server.database().await;
    let (one, two) = (open(&address).await, open(&address).await);
    one.create_account(account(1)).await.unwrap();
    for n in 0..100_u32 {
        let (randoms, other) = ([u64::from(n)], [u64::from(n) + 1_000]);
        let _ = tokio::time::timeout(
            std::time::Duration::from_micros(u64::from(n) * 50),
            make_socket(&one, 1, n, &randoms),
        )
        .await;
        make_socket(&two, 1, n + 1_000, &other).await.unwrap();
    }
}

/// A proxy in front of a server. The proxy cuts the connection on which a client sends a given word, before or after
/// the server receives the word.
pub(super) struct Cutter {
    pub(super) address: String,
    pub(super) cut: Arc<AtomicU8>,
}

pub(super) const BEFORE: u8 = 1;
const AFTER: u8 = 2;

impl Cutter {
    pub(super) async fn before(address: &str, word: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (base, name) = address.rsplit_once('/').unwrap();
        let server = base.rsplit_once('@').unwrap().1.to_owned();
        let address = format!("postgres://postgres@{}/{name}", listener.local_addr().unwrap());
        let cut = Arc::new(AtomicU8::new(0));
        let when = cut.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(&server).await.unwrap();
                tokio::spawn(pass(client, server, word, when.clone()));
            }
        });
        Self { address, cut }
    }
}

async fn pass(client: TcpStream, server: TcpStream, word: &'static str, cut: Arc<AtomicU8>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let deaf = Arc::new(AtomicBool::new(false));
    let is_deaf = deaf.clone();
    let answers = tokio::spawn(async move {
        let mut buffer = vec![0; 65_536];
        while let Ok(length @ 1..) = from_server.read(&mut buffer).await {
            if !is_deaf.load(Ordering::SeqCst) {
                to_client.write_all(&buffer[..length]).await.unwrap();
            }
        }
    });
    let mut buffer = vec![0; 65_536];
    while let Ok(length @ 1..) = from_client.read(&mut buffer).await {
        let bytes = &buffer[..length];
        if bytes.windows(word.len()).any(|some| some == word.as_bytes()) {
            match cut.swap(0, Ordering::SeqCst) {
                BEFORE => break,
                AFTER => {
                    deaf.store(true, Ordering::SeqCst);
                    to_server.write_all(bytes).await.unwrap();
                    // Gives the server time to execute the statement before the client notices the cut.
                    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
                    break;
                }
                _ => {}
            }
        }
        to_server.write_all(bytes).await.unwrap();
    }
    answers.abort();
}

#[tokio::test]
async fn a_change_with_an_unknown_outcome_is_its_own_error() {
    let Some(server) = server() else { return };
    let address = server.database().await;
    open(&address).await.close().await;
    let cutter = Cutter::before(&address, "COMMIT").await;
    let store = open(&cutter.address).await;
    for (n, when, made) in [(1, BEFORE, 0), (2, AFTER, 1)] {
        cutter.cut.store(when, Ordering::SeqCst);
        let error = store.create_account(account(n)).await.unwrap_err();
        assert!(matches!(error, StoreError::OutcomeUnknown), "{error:?}");
        assert!(error.to_string().contains("made or not"), "{error}");
        assert_eq!(store.count_accounts().await.unwrap(), made);
    }
    store.create_account(account(3)).await.expect("it goes on");
}
