//! Several processes over one database: each promise of the store holds across all of them.

use std::collections::HashSet;

use sallyport_model::{MAX_TUNNELS_PER_SOCKET, SocketType};
use sallyport_store::{
    Creation, IdempotencyKey, MAX_SSH_KEYS_PER_ACCOUNT, NewSocket, PortRequest, Rotation, SessionClient, SshKey,
    StoreError,
};
use tokio::task::JoinSet;

use crate::{
    fixtures::{NOW, account, make_socket, make_tunnel, new_session, new_socket},
    postgres::{server, two_stores},
};

#[tokio::test]
async fn positions_names_and_ports_are_given_once() {
    let Some(server) = server() else { return };
    let (one, two) = two_stores(server).await;
    let mut making = JoinSet::new();
    for n in 0..40 {
        let store = if n % 2 == 0 { one.clone() } else { two.clone() };
        making.spawn(async move {
            let port = PortRequest::Any(30_000..=30_039);
            let new = NewSocket { socket_type: SocketType::Tcp, port, ..new_socket(1, n) };
            // All tasks request the same names.
            let names: Vec<u64> = (0..40).collect();
            match store.create_socket(new, &names, None, |_| String::new()).await.unwrap() {
                Creation::Made((socket, _)) => (socket.name, socket.port.unwrap()),
                Creation::Repeated(_) => panic!("there was no key"),
            }
        });
    }
    let made = making.join_all().await;
    assert_eq!(made.iter().map(|(name, _)| name.clone()).collect::<HashSet<_>>().len(), 40);
    assert_eq!(made.iter().map(|(_, port)| *port).collect::<HashSet<_>>().len(), 40);
    let listed = two.sockets(account(1).account.id, 0, 100).await.unwrap();
    assert_eq!(listed.iter().map(|(position, _)| *position).collect::<Vec<_>>(), (1..=40).collect::<Vec<_>>());
}

#[tokio::test]
async fn bounds_hold() {
    let Some(server) = server() else { return };
    let (one, two) = two_stores(server).await;
    let socket = make_socket(&one, 1, 1, &[1]).await.unwrap().id;
    let mut making = JoinSet::new();
    let most = MAX_TUNNELS_PER_SOCKET as u32;
    for n in 0..most + 10 {
        let store = if n % 2 == 0 { one.clone() } else { two.clone() };
        making.spawn(async move { make_tunnel(&store, 1, socket, n).await.map(|_| ()) });
    }
    let done = making.join_all().await;
    assert_eq!(done.iter().filter(|made| made.is_ok()).count(), MAX_TUNNELS_PER_SOCKET);
    assert!(done.iter().all(|made| matches!(made, Ok(()) | Err(StoreError::Limit { .. }))), "{done:?}");

    let mut adding = JoinSet::new();
    for n in 0..40_u8 {
        let store = if n % 2 == 0 { one.clone() } else { two.clone() };
        adding.spawn(async move {
            let key = SshKey {
                id: [n; 16],
                name: format!("key {n}"),
                public_key: format!("ssh-ed25519 AAAA{n}"),
                fingerprint: format!("SHA256:{n}"),
                created_at: NOW,
            };
            store.create_ssh_key(account(1).account.id, &key).await.is_ok()
        });
    }
    let added = adding.join_all().await;
    assert_eq!(added.into_iter().filter(|added| *added).count(), MAX_SSH_KEYS_PER_ACCOUNT);
}

#[tokio::test]
async fn a_key_of_a_request_creates_once() {
    let Some(server) = server() else { return };
    let (one, two) = two_stores(server).await;
    let mut making = JoinSet::new();
    for n in 0..20 {
        let store = if n % 2 == 0 { one.clone() } else { two.clone() };
        making.spawn(async move {
            let keyed = IdempotencyKey { key: "k".to_owned(), request_hash: [1; 32], now: NOW };
            let made = store.create_socket(new_socket(1, n), &[u64::from(n)], Some(&keyed), |s| s.id.to_string()).await;
            match made.unwrap() {
                Creation::Made((socket, _)) => (true, *socket.id.as_bytes()),
                Creation::Repeated(stored) => (false, stored.resource),
            }
        });
    }
    let done = making.join_all().await;
    assert_eq!(done.iter().filter(|(made, _)| *made).count(), 1);
    assert_eq!(done.iter().map(|(_, id)| *id).collect::<HashSet<_>>().len(), 1, "all get the same one");
}

#[tokio::test]
async fn a_refresh_token_is_used_once() {
    let Some(server) = server() else { return };
    let (one, two) = two_stores(server).await;
    for round in 0..10_u8 {
        one.begin_session(&new_session(1, round, NOW, NOW + 100)).await.unwrap();
        let client = SessionClient::default();
        let (first, second) = tokio::join!(
            one.rotate_refresh([round; 32], [100 + round; 32], NOW + 1, NOW + 101, &client),
            two.rotate_refresh([round; 32], [200 + round; 32], NOW + 1, NOW + 101, &client)
        );
        let both = [first.unwrap(), second.unwrap()];
        let done = both.iter().filter(|rotation| matches!(rotation, Rotation::Done { .. })).count();
        let reused = both.iter().filter(|rotation| matches!(rotation, Rotation::Reused { .. })).count();
        assert_eq!((done, reused), (1, 1), "{both:?}");
        assert!(two.session_account([round; 16]).await.unwrap().is_none(), "the session has ended");
    }
}

#[tokio::test]
async fn the_first_key_is_the_installations() {
    let Some(server) = server() else { return };
    let (one, two) = two_stores(server).await;
    assert_eq!(one.key_check().await.unwrap(), None);
    let (first, second) = tokio::join!(one.claim([1; 32]), two.claim([2; 32]));
    let holds = one.key_check().await.unwrap();
    assert_eq!((first.ok(), second.ok()), (holds, holds), "both learn the same");
    let dir = tempfile::tempdir().unwrap();
    let file = sallyport_store::Store::open(dir.path()).await.unwrap();
    assert_eq!((file.claim([3; 32]).await.unwrap(), file.key_check().await.unwrap()), ([3; 32], None));
}

#[tokio::test]
async fn what_one_has_answered_the_other_sees() {
    let Some(server) = server() else { return };
    let (one, two) = two_stores(server).await;
    for n in 0..20 {
        let socket = make_socket(&one, 1, n, &[u64::from(n)]).await.unwrap();
        assert_eq!(two.route(socket.id).await.unwrap().map(|route| route.id), Some(socket.id));
    }
    assert_eq!(two.routes().await.unwrap().len(), 20);
    two.delete_account(account(1).account.id).await.unwrap();
    assert!(one.routes().await.unwrap().is_empty());
}
