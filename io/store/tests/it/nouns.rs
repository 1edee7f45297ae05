//! Promises of the store about each kind of record, beyond persistence.

use std::collections::HashSet;

use sallyport_model::{MAX_TUNNELS_PER_SOCKET, SocketName};
use sallyport_store::{
    Creation, IdempotencyKey, MAX_SESSIONS_PER_ACCOUNT, MAX_SOCKETS_PER_ACCOUNT, REMEMBER_KEYS_SECONDS, Rotation,
    SessionClient, Store, StoreError,
};

use crate::fixtures::{NOW, account, make_socket, make_tunnel, new_session, new_socket, store_with_account};

#[tokio::test]
async fn a_name_is_never_given_out_twice() {
    let (_dir, store) = store_with_account().await;
    let first = make_socket(&store, 1, 1, &[42]).await.unwrap();
    assert_eq!(first.name, SocketName::generate(42));
    assert!(matches!(make_socket(&store, 1, 2, &[42]).await, Err(StoreError::NoFreeName)));
    let second = make_socket(&store, 1, 2, &[42, 42, 43]).await.unwrap();
    assert_eq!(second.name, SocketName::generate(43), "the next random number is tried");

    assert!(store.delete_socket(first.account, first.id).await.unwrap());
    assert!(matches!(make_socket(&store, 1, 3, &[42]).await, Err(StoreError::NoFreeName)));
    store.delete_account(first.account).await.unwrap();
    store.create_account(account(2)).await.unwrap();
    assert!(matches!(make_socket(&store, 2, 4, &[42, 43]).await, Err(StoreError::NoFreeName)));
    assert_eq!(make_socket(&store, 2, 4, &[43, 44]).await.unwrap().name, SocketName::generate(44));
}

#[tokio::test]
async fn sockets_made_at_once_never_share_a_name() {
    let (_dir, store) = store_with_account().await;
    let mut making = tokio::task::JoinSet::new();
    for n in 0..40 {
        let store = store.clone();
        // All tasks request the same names.
        making.spawn(async move { make_socket(&store, 1, n, &(0..40).collect::<Vec<_>>()).await.unwrap().name });
    }
    let names: HashSet<SocketName> = making.join_all().await.into_iter().collect();
    assert_eq!(names.len(), 40);
}

#[tokio::test]
async fn a_caller_that_gives_up_leaves_the_store_working() {
    let (_dir, store) = store_with_account().await;
    for n in 0..200 {
        let randoms = [u64::from(n)];
        let making = make_socket(&store, 1, n, &randoms);
        // Cancelled at some point between the first and the last step.
        let _ = tokio::time::timeout(std::time::Duration::from_micros(u64::from(n) * 20), making).await;
    }
    make_socket(&store, 1, 1_000, &[1_000]).await.unwrap();
    let routes = store.routes().await.unwrap();
    let names: HashSet<_> = routes.iter().map(|route| route.name.clone()).collect();
    assert_eq!(names.len(), routes.len());
}

#[tokio::test]
async fn there_are_bounds() {
    let (_dir, store) = store_with_account().await;
    let owner = account(1).account.id;
    for n in 0..MAX_SOCKETS_PER_ACCOUNT as u32 {
        make_socket(&store, 1, n, &[u64::from(n) * 9_973, u64::from(n) * 9_973 + 1]).await.unwrap();
    }
    let error = make_socket(&store, 1, 5_000, &[1 << 40]).await.unwrap_err();
    assert!(matches!(error, StoreError::Limit { max: MAX_SOCKETS_PER_ACCOUNT, .. }), "{error}");
    let socket = store.sockets(owner, 0, 1).await.unwrap()[0].1.id;
    for n in 0..MAX_TUNNELS_PER_SOCKET as u32 {
        make_tunnel(&store, 1, socket, n).await.unwrap();
    }
    let error = make_tunnel(&store, 1, socket, 9_999).await.unwrap_err();
    assert!(matches!(error, StoreError::Limit { max: MAX_TUNNELS_PER_SOCKET, .. }), "{error}");
}

#[tokio::test]
async fn records_without_an_owner_are_not_created() {
    let (_dir, store) = store_with_account().await;
    assert!(matches!(make_socket(&store, 9, 1, &[1]).await, Err(StoreError::Gone)));
    make_socket(&store, 1, 1, &[1]).await.expect("the name was not lost with the refusal");
    store.create_account(account(2)).await.unwrap();
    let of_first = make_socket(&store, 1, 2, &[2]).await.unwrap();
    let error = make_tunnel(&store, 2, of_first.id, 1).await.unwrap_err();
    assert!(matches!(error, StoreError::Gone), "{error}");
    let error = store.begin_session(&new_session(9, 1, NOW, NOW + 1)).await.unwrap_err();
    assert!(matches!(error, StoreError::Gone), "{error}");
}

fn keyed(key: &str, request: u8, now: i64) -> IdempotencyKey {
    IdempotencyKey { key: key.into(), request_hash: [request; 32], now }
}

async fn create(store: &Store, n: u32, keyed: &IdempotencyKey) -> Result<Creation<String>, StoreError> {
    let made = store.create_socket(new_socket(1, n), &[u64::from(n)], Some(keyed), |s| s.id.to_string()).await?;
    Ok(match made {
        Creation::Made((_, answer)) => Creation::Made(answer),
        Creation::Repeated(stored) => Creation::Repeated(stored),
    })
}

#[tokio::test]
async fn a_key_is_remembered_for_a_day() {
    let (_dir, store) = store_with_account().await;
    let Creation::Made(answer) = create(&store, 1, &keyed("k", 1, NOW)).await.unwrap() else { panic!("new") };
    let Creation::Repeated(stored) = create(&store, 2, &keyed("k", 1, NOW + 5)).await.unwrap() else { panic!("old") };
    assert_eq!(stored.answer.as_deref(), Some(answer.as_str()));
    assert!(matches!(create(&store, 2, &keyed("k", 2, NOW)).await, Err(StoreError::KeyReused)));
    let later = NOW + REMEMBER_KEYS_SECONDS;
    assert!(matches!(create(&store, 2, &keyed("k", 2, later)).await.unwrap(), Creation::Made(_)));
    store.tidy(later + REMEMBER_KEYS_SECONDS).await.unwrap();
    assert!(matches!(create(&store, 3, &keyed("k", 3, later)).await.unwrap(), Creation::Made(_)));
}

#[tokio::test]
async fn a_refused_creation_does_not_use_its_key() {
    let (_dir, store) = store_with_account().await;
    create(&store, 1, &keyed("a", 1, NOW)).await.unwrap();
    let same_name = store.create_socket(new_socket(1, 2), &[1], Some(&keyed("b", 1, NOW)), |_| String::new()).await;
    assert!(matches!(same_name, Err(StoreError::NoFreeName)));
    assert!(matches!(create(&store, 2, &keyed("b", 2, NOW)).await.unwrap(), Creation::Made(_)));
}

#[tokio::test]
async fn sessions_rotate_end_and_are_forgotten() {
    let (_dir, store) = store_with_account().await;
    let owner = account(1).account.id;
    store.begin_session(&new_session(1, 1, NOW, NOW + 100)).await.unwrap();
    let rotated = store.rotate_refresh([1; 32], [2; 32], NOW + 50, NOW + 150, &SessionClient::default()).await.unwrap();
    assert_eq!(rotated, Rotation::Done { session: [1; 16], account: owner });
    assert_eq!(
        store.rotate_refresh([9; 32], [3; 32], NOW, NOW, &SessionClient::default()).await.unwrap(),
        Rotation::Invalid
    );
    assert_eq!(
        store.rotate_refresh([2; 32], [3; 32], NOW + 150, NOW + 300, &SessionClient::default()).await.unwrap(),
        Rotation::Invalid
    );
    assert!(store.session_account([1; 16]).await.unwrap().is_some());
    let reused = store.rotate_refresh([1; 32], [3; 32], NOW + 60, NOW + 160, &SessionClient::default()).await.unwrap();
    assert_eq!(reused, Rotation::Reused { account: owner });
    assert!(store.session_account([1; 16]).await.unwrap().is_none());
    assert_eq!(
        store.rotate_refresh([2; 32], [3; 32], NOW + 60, NOW + 160, &SessionClient::default()).await.unwrap(),
        Rotation::Invalid
    );
    store.tidy(NOW + 160 + 30 * 86_400).await.unwrap();
    assert_eq!(
        store.rotate_refresh([1; 32], [3; 32], NOW + 60, NOW + 160, &SessionClient::default()).await.unwrap(),
        Rotation::Invalid
    );
    assert_eq!(store.end_session([1; 32]).await.unwrap(), None);
}

#[tokio::test]
async fn the_oldest_sessions_end_first() {
    let (_dir, store) = store_with_account().await;
    for n in 0..=u8::try_from(MAX_SESSIONS_PER_ACCOUNT).unwrap() {
        store.begin_session(&new_session(1, n, NOW + i64::from(n), NOW + 1_000)).await.unwrap();
    }
    assert!(store.session_account([0; 16]).await.unwrap().is_none());
    assert!(store.session_account([1; 16]).await.unwrap().is_some());
}
