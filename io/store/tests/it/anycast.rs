//! Prefixes, neighbours and orders of anycast.

use sallyport_anycast::model::{AnycastPrefix, Order, OrderKind, Peer, Place};
use sallyport_model::AnycastItemId;
use sallyport_store::{AnycastKind, Creation, IdempotencyKey, StoreError, StoredAnycastItem};

use crate::fixtures::{NOW, account, store_with_account};

fn stored<T: AnycastKind>(n: u8, item: T) -> StoredAnycastItem<T> {
    StoredAnycastItem { id: AnycastItemId::from_random([n; 16]), item, created_at: NOW }
}

fn prefix(net: &str) -> AnycastPrefix {
    let net = net.parse().unwrap();
    AnycastPrefix { net, addresses: vec![], regions: vec![], communities: vec![], min_sites: 1 }
}

fn peer(name: &str, place: &str, address: &str) -> Peer {
    Peer {
        name: name.into(),
        place: place.parse().unwrap(),
        address: address.parse().unwrap(),
        remote_as: 64_500,
        local_as: 64_501,
        role: None,
        password: Some("sealed".into()),
        hops: 1,
        bfd: None,
        max_prefixes: 10,
        communities: vec![],
        drain_communities: vec![],
        prepend: 0,
        is_no_export: false,
    }
}

fn order(place: &str, kind: OrderKind) -> Order {
    Order { place: place.parse().unwrap(), kind, since_ms: 1 }
}

#[tokio::test]
async fn items_are_unique_in_their_kind_and_an_order_replaces_the_former_one_of_its_place() {
    let (_dir, store) = store_with_account().await;
    let owner = account(1).account.id;
    let one = stored(1, prefix("198.51.100.0/24"));
    let keyed = IdempotencyKey { key: "k".into(), request_hash: [1; 32], now: NOW };
    assert!(matches!(store.create_anycast_item(owner, &one, Some(&keyed)).await.unwrap(), Creation::Made(())));
    let again = store.create_anycast_item(owner, &stored(2, prefix("198.51.100.0/24")), Some(&keyed)).await.unwrap();
    assert!(matches!(again, Creation::Repeated(it) if it.resource == *one.id.as_bytes()));
    let taken = store.create_anycast_item(owner, &stored(2, prefix("198.51.100.0/24")), None).await.unwrap_err();
    assert!(matches!(&taken, StoreError::AnycastTaken { name } if name == "198.51.100.0/24"), "{taken}");

    let ann = stored(3, peer("ann", "region:eu", "192.0.2.1"));
    store.create_anycast_item(owner, &ann, None).await.unwrap();
    // One edge would have two sessions with one address.
    for taken in [peer("ann", "edge:us-1", "192.0.2.9"), peer("bob", "everywhere", "192.0.2.1")] {
        let error = store.create_anycast_item(owner, &stored(4, taken), None).await.unwrap_err();
        assert!(matches!(error, StoreError::AnycastTaken { .. }), "{error}");
    }
    store.create_anycast_item(owner, &stored(4, peer("bob", "region:us", "192.0.2.1")), None).await.unwrap();

    store.create_anycast_item(owner, &stored(5, order("edge:eu-1", OrderKind::Drain)), None).await.unwrap();
    let maintain = stored(6, order("edge:eu-1", OrderKind::Maintain));
    store.create_anycast_item(owner, &maintain, None).await.unwrap();
    let all = store.anycast().await.unwrap();
    assert_eq!((all.prefixes.clone(), all.orders.clone()), (vec![one.clone()], vec![maintain]));
    let config = all.config();
    assert_eq!(config.peers.iter().map(|peer| peer.name.as_str()).collect::<Vec<_>>(), ["ann", "bob"]);
    // An id is of one kind.
    assert_eq!(store.delete_anycast_item::<Peer>(one.id).await.unwrap(), None);
    assert_eq!(store.delete_anycast_item::<AnycastPrefix>(one.id).await.unwrap(), Some(one.clone()));
    assert_eq!(store.delete_anycast_item::<AnycastPrefix>(one.id).await.unwrap(), None);
    assert_eq!(Place::default(), "everywhere".parse().unwrap());
}
