//! Test data for a store.

use sallyport_model::{Account, AccountId, CredentialHash, Socket, SocketId, SocketType, Tunnel, TunnelId};
use sallyport_store::{
    Admission, Creation, NameConflict, NewAccount, NewSession, NewSocket, NewTunnel, PortRequest, SessionClient, Store,
    StoreError,
};

use crate::postgres;

pub(crate) const NOW: i64 = 1_800_000_000;

pub(crate) fn account(n: u8) -> NewAccount {
    NewAccount {
        account: Account {
            id: AccountId::from_random([n; 16]),
            name: format!("account {n}"),
            email: format!("a{n}@example.com").parse().unwrap(),
            created_at: NOW,
        },
        password_hash: "$argon2id$x".into(),
        ssh_key: None,
        admission: Admission::OPEN,
    }
}

/// A session of an account with its original password, with a refresh token of the same number.
pub(crate) fn new_session(owner: u8, n: u8, now: i64, expires_at: i64) -> NewSession {
    NewSession {
        id: [n; 16],
        account: account(owner).account.id,
        revision: 0,
        refresh: [n; 32],
        now,
        expires_at,
        client: SessionClient { address: Some(format!("192.0.2.{n}")), program: Some("curl/8".to_owned()) },
    }
}

pub(crate) fn new_socket(owner: u8, n: u32) -> NewSocket {
    let mut id = [7; 16];
    id[..4].copy_from_slice(&n.to_be_bytes());
    NewSocket {
        id: SocketId::from_random(id),
        account: account(owner).account.id,
        display_name: format!("socket {n}").parse().unwrap(),
        name_conflict: NameConflict::Refuse,
        label: None,
        socket_type: SocketType::Http,
        origin_protocol: sallyport_model::OriginProtocol::Auto,
        basic_auth: None,
        port: PortRequest::None,
        max_ports: 1_000,
        settings: Default::default(),
        labels: Default::default(),
        policies: Vec::new(),
        domains: Vec::new(),
        idle: Vec::new(),
        temporary: None,
        maker: None,
        created_at: NOW,
    }
}

pub(crate) fn new_tunnel(socket: SocketId, n: u32) -> NewTunnel {
    let mut id = [9; 16];
    id[..4].copy_from_slice(&n.to_be_bytes());
    NewTunnel {
        capacity: sallyport_model::Capacity::default(),
        labels: Default::default(),
        id: TunnelId::from_random(id),
        socket,
        name: None,
        credential: CredentialHash([3; 32]),
        weight: sallyport_model::DEFAULT_WEIGHT,
        path: Default::default(),
        temporary: None,
        created_at: NOW,
    }
}

/// Makes a tunnel whose forward port derives from its number.
pub(crate) async fn make_tunnel(store: &Store, owner: u8, socket: SocketId, n: u32) -> Result<Tunnel, StoreError> {
    let port = u16::try_from(2_000 + n % 60_000).unwrap();
    match store.create_tunnel(account(owner).account.id, &new_tunnel(socket, n), &[port], None).await? {
        Creation::Made(tunnel) => Ok(tunnel),
        Creation::Repeated(_) => unreachable!("there was no key"),
    }
}

/// Makes a socket whose name derives from these random numbers.
pub(crate) async fn make_socket(store: &Store, owner: u8, n: u32, randoms: &[u64]) -> Result<Socket, StoreError> {
    match store.create_socket(new_socket(owner, n), randoms, None, |_| String::new()).await? {
        Creation::Made((socket, _)) => Ok(socket),
        Creation::Repeated(_) => unreachable!("there was no key"),
    }
}

/// A store with account 1: in the folder, or on the server where the whole suite runs a second time.
pub(crate) async fn store_with_account() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = match postgres::of_suite().await {
        Some(address) => Store::open_postgres(&address).await.unwrap(),
        None => Store::open(dir.path()).await.unwrap(),
    };
    store.create_account(account(1)).await.unwrap();
    (dir, store)
}
