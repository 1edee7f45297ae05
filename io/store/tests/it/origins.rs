//! Direct origins of sockets.

use sallyport_model::{DirectOrigin, DirectOriginId, OriginTlsSettings, PathPrefix, PathRoute, SocketId};
use sallyport_store::{Creation, DirectOriginChange, IdempotencyKey, StoreError};

use crate::fixtures::{NOW, account, make_socket, store_with_account};

fn origin(socket: SocketId, n: u8, address: &str) -> DirectOrigin {
    DirectOrigin {
        capacity: sallyport_model::Capacity::default(),
        id: DirectOriginId::from_random([n; 16]),
        socket,
        address: address.parse().unwrap(),
        region: (n == 1).then(|| "eu".parse().unwrap()),
        weight: 100,
        tls: OriginTlsSettings { server_name: Some("app.internal".into()), ..OriginTlsSettings::default() },
        path: PathRoute { prefix: "/api".parse().unwrap(), rewrite: (n == 1).then(PathPrefix::root) },
        created_at: NOW,
    }
}

#[tokio::test]
async fn direct_origins_are_kept_in_order_and_go_with_their_socket() {
    let (_dir, store) = store_with_account().await;
    let (owner, socket) = (account(1).account.id, make_socket(&store, 1, 1, &[1]).await.unwrap().id);
    let (one, two) = (origin(socket, 1, "10.0.0.7:80"), origin(socket, 2, "app.internal:443"));
    for new in [&one, &two] {
        let made = store.create_direct_origin(owner, new, None).await.unwrap();
        assert!(matches!(made, Creation::Made(made) if made == *new));
    }
    let listed: Vec<_> =
        store.direct_origins(socket, 0, 10).await.unwrap().into_iter().map(|(_, origin)| origin).collect();
    assert_eq!(listed, [one.clone(), two.clone()]);
    let route = store.route(socket).await.unwrap().unwrap();
    assert_eq!(route.origins, [one.clone().into(), two.clone().into()]);
    assert_eq!(store.routes().await.unwrap()[0].origins, route.origins);
    let taken = store.create_direct_origin(owner, &origin(socket, 3, "10.0.0.7:80"), None).await;
    assert!(matches!(taken, Err(StoreError::OriginTaken { .. })));

    let change = DirectOriginChange { region: Some(None), weight: Some(0), ..DirectOriginChange::default() };
    let changed = store.change_direct_origin(socket, one.id, change).await.unwrap().unwrap();
    assert_eq!(changed, DirectOrigin { region: None, weight: 0, ..one.clone() });
    let onto = DirectOriginChange { address: Some(two.address.clone()), ..DirectOriginChange::default() };
    assert!(matches!(store.change_direct_origin(socket, one.id, onto).await, Err(StoreError::OriginTaken { .. })));
    assert_eq!(store.direct_origin(socket, one.id).await.unwrap(), Some(changed));

    assert!(store.delete_direct_origin(socket, one.id).await.unwrap());
    assert!(!store.delete_direct_origin(socket, one.id).await.unwrap());
    assert!(store.change_direct_origin(socket, one.id, DirectOriginChange::default()).await.unwrap().is_none());
    store.delete_socket(owner, socket).await.unwrap();
    assert!(store.direct_origins(socket, 0, 10).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_repeated_creation_makes_one_and_a_foreign_socket_none() {
    let (_dir, store) = store_with_account().await;
    store.create_account(account(2)).await.unwrap();
    let (owner, socket) = (account(1).account.id, make_socket(&store, 1, 1, &[1]).await.unwrap().id);
    let keyed = IdempotencyKey { key: "k".into(), request_hash: [1; 32], now: NOW };
    let new = origin(socket, 1, "10.0.0.7:80");
    assert!(matches!(store.create_direct_origin(owner, &new, Some(&keyed)).await.unwrap(), Creation::Made(_)));
    let again = DirectOrigin { id: DirectOriginId::from_random([9; 16]), ..new.clone() };
    match store.create_direct_origin(owner, &again, Some(&keyed)).await.unwrap() {
        Creation::Repeated(stored) => assert_eq!(stored.resource, *new.id.as_bytes()),
        Creation::Made(_) => panic!("it was made twice"),
    }
    let theirs = store.create_direct_origin(account(2).account.id, &origin(socket, 5, "10.0.0.8:80"), None).await;
    assert!(matches!(theirs, Err(StoreError::Gone)));
}
