//! Ports of sockets, forward ports of tunnels, and temporary records.

use std::ops::RangeInclusive;

use sallyport_model::{PathPrefix, PathRoute, Socket, SocketType};
use sallyport_store::{Creation, NewSocket, PortRequest, SocketChange, Store, StoreError, guest_account};

use crate::fixtures::{NOW, account, make_socket, make_tunnel, new_socket, new_tunnel, store_with_account};

const RANGE: RangeInclusive<u16> = 20_000..=20_002;

async fn make(store: &Store, n: u32, port: PortRequest) -> Result<Socket, StoreError> {
    let mut new = new_socket(1, n);
    new.socket_type = SocketType::Tcp;
    new.port = port;
    match store.create_socket(new, &[u64::from(n) * 7 + 1], None, |_| String::new()).await? {
        Creation::Made((socket, _)) => Ok(socket),
        Creation::Repeated(_) => unreachable!("there was no key"),
    }
}

async fn port(store: &Store, n: u32) -> u16 {
    make(store, n, PortRequest::Any(RANGE)).await.unwrap().port.unwrap()
}

#[tokio::test]
async fn every_socket_gets_a_port_of_its_own_until_there_are_none() {
    let (_dir, store) = store_with_account().await;
    assert_eq!([port(&store, 1).await, port(&store, 2).await, port(&store, 3).await], [20_000, 20_001, 20_002]);
    let error = make(&store, 4, PortRequest::Any(RANGE)).await.unwrap_err();
    assert!(matches!(error, StoreError::PortsExhausted { from: 20_000, to: 20_002 }), "{error}");
    assert_eq!(make_socket(&store, 1, 5, &[99]).await.unwrap().port, None, "http sockets need none");
    let routed: Vec<_> = store.routes().await.unwrap().into_iter().filter_map(|route| route.port).collect();
    assert_eq!(routed.len(), 3);
}

#[tokio::test]
async fn a_port_that_was_given_back_is_the_last_to_be_given_out() {
    let (_dir, store) = store_with_account().await;
    let first = make(&store, 1, PortRequest::Any(RANGE)).await.unwrap();
    store.delete_socket(first.account, first.id).await.unwrap();
    assert_eq!([port(&store, 2).await, port(&store, 3).await], [20_001, 20_002]);
    let again = make(&store, 4, PortRequest::Any(RANGE)).await.unwrap();
    assert_eq!(again.port, Some(20_000));
    // Deleting the account frees all its ports; the port that was freed first is used first.
    let sockets = store.sockets(again.account, 0, 9).await.unwrap();
    for (_, socket) in sockets.iter().rev() {
        store.delete_socket(socket.account, socket.id).await.unwrap();
    }
    assert_eq!([port(&store, 5).await, port(&store, 6).await, port(&store, 7).await], [20_000, 20_002, 20_001]);
    store.delete_account(again.account).await.unwrap();
    store.create_account(account(1)).await.unwrap();
    port(&store, 8).await;
}

#[tokio::test]
async fn a_port_that_is_asked_for_is_had_or_taken() {
    let (_dir, store) = store_with_account().await;
    let socket = make(&store, 1, PortRequest::This(20_001)).await.unwrap();
    assert_eq!(socket.port, Some(20_001));
    let error = make(&store, 2, PortRequest::This(20_001)).await.unwrap_err();
    assert!(matches!(error, StoreError::PortTaken { port: 20_001 }), "{error}");
    assert_eq!([port(&store, 2).await, port(&store, 3).await], [20_000, 20_002], "around it");
    assert_eq!(store.socket(socket.account, socket.id).await.unwrap().unwrap().port, Some(20_001));
}

#[tokio::test]
async fn an_account_has_so_many_ports_and_no_more() {
    let (_dir, store) = store_with_account().await;
    store.create_account(account(2)).await.unwrap();
    store.create_guest_account(NOW).await.unwrap();
    let make = async |owner, n, port| {
        let new = NewSocket { account: owner, port, max_ports: 2, ..new_socket(1, n) };
        store.create_socket(new, &[u64::from(n)], None, |_| String::new()).await
    };
    let (one, other) = (account(1).account.id, account(2).account.id);
    for (owner, first, words) in [(one, 10, "for one account: delete"), (guest_account(), 20, "for guests at a time")] {
        make(owner, first, PortRequest::Any(30_000..=30_099)).await.unwrap();
        let Creation::Made((last, _)) = make(owner, first + 1, PortRequest::This(30_050 + first as u16)).await.unwrap()
        else {
            panic!("there was no key")
        };
        for (n, port) in [(first + 2, PortRequest::Any(30_000..=30_099)), (first + 3, PortRequest::This(30_090))] {
            let error = make(owner, n, port).await.unwrap_err();
            assert!(matches!(error, StoreError::Limit { max: 2, .. }) && error.to_string().contains(words), "{error}");
        }
        make(owner, first + 4, PortRequest::None).await.unwrap();
        store.delete_socket(owner, last.id).await.unwrap();
        make(owner, first + 5, PortRequest::Any(30_000..=30_099)).await.unwrap();
    }
    make(other, 30, PortRequest::Any(30_000..=30_099)).await.unwrap();
}

#[tokio::test]
async fn ports_asked_for_at_once_are_never_shared() {
    let (_dir, store) = store_with_account().await;
    let mut making = tokio::task::JoinSet::new();
    for n in 0..20 {
        let store = store.clone();
        making.spawn(async move { make(&store, n, PortRequest::Any(30_000..=30_019)).await.unwrap().port.unwrap() });
    }
    let mut ports = making.join_all().await;
    ports.sort_unstable();
    assert_eq!(ports, (30_000..=30_019).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_change_is_made_of_what_is_there_or_not_at_all() {
    let (_dir, store) = store_with_account().await;
    let socket = make_socket(&store, 1, 1, &[1]).await.unwrap();
    let mut changing = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let store = store.clone();
        changing.spawn(async move {
            let longer = |now: &Socket| {
                let mut settings = now.settings.clone();
                settings.alpn.push("h2".into());
                Ok::<_, StoreError>(SocketChange { settings: Some(settings), ..SocketChange::default() })
            };
            store.change_socket(socket.account, socket.id, longer).await.unwrap().unwrap()
        });
    }
    changing.join_all().await;
    let refused = store.change_socket(socket.account, socket.id, |_| Err::<SocketChange, _>(StoreError::Busy)).await;
    assert!(matches!(refused, Err(StoreError::Busy)));
    let now = store.socket(socket.account, socket.id).await.unwrap().unwrap();
    assert_eq!(now.settings.alpn.len(), 20, "no change was lost");
    let of_others = store.change_socket(account(2).account.id, socket.id, |_| Err(StoreError::Busy)).await.unwrap();
    assert_eq!(of_others, None);
}

#[tokio::test]
async fn forward_ports_differ_within_an_account() {
    let (_dir, store) = store_with_account().await;
    store.create_account(account(2)).await.unwrap();
    let owner = account(1).account.id;
    let (one, two) =
        (make_socket(&store, 1, 1, &[1]).await.unwrap().id, make_socket(&store, 1, 2, &[2]).await.unwrap().id);
    let elsewhere = make_socket(&store, 2, 3, &[3]).await.unwrap().id;
    let first = make_tunnel(&store, 1, one, 5).await.unwrap();
    let Creation::Made(second) =
        store.create_tunnel(owner, &new_tunnel(two, 6), &[first.forward_port, 4_000], None).await.unwrap()
    else {
        panic!("there was no key")
    };
    assert_eq!(second.forward_port, 4_000);
    let error = store.create_tunnel(owner, &new_tunnel(two, 7), &[4_000], None).await.unwrap_err();
    assert!(matches!(error, StoreError::NoFreeForwardPort), "{error}");
    let Creation::Made(other) = store
        .create_tunnel(account(2).account.id, &new_tunnel(elsewhere, 8), &[first.forward_port], None)
        .await
        .unwrap()
    else {
        panic!("there was no key")
    };
    assert_eq!(other.forward_port, first.forward_port, "accounts do not share them");
    let found = store.tunnel_by_forward_port(owner, first.forward_port).await.unwrap();
    assert_eq!(found.as_ref(), Some(&first));
    assert_eq!(store.tunnel_by_forward_port(owner, 1).await.unwrap(), None);

    let changed = store.change_tunnel(one, first.id, Some(7), None, None, None).await.unwrap().unwrap();
    assert_eq!((changed.weight, store.route(one).await.unwrap().unwrap().tunnels[0].weight), (7, 7));
    assert_eq!(store.change_tunnel(two, first.id, Some(7), None, None, None).await.unwrap(), None);

    let path = PathRoute { prefix: "/api".parse().unwrap(), rewrite: Some(PathPrefix::root()) };
    let changed = store.change_tunnel(one, first.id, None, Some(&path), None, None).await.unwrap().unwrap();
    assert_eq!((changed.weight, &changed.path), (7, &path));
    assert_eq!(store.route(one).await.unwrap().unwrap().tunnels[0].path, path);
    let changed =
        store.change_tunnel(one, first.id, None, Some(&PathRoute::default()), None, None).await.unwrap().unwrap();
    assert_eq!(changed.path, PathRoute::default());
}

#[tokio::test]
async fn temporary_sockets_and_tunnels_are_listed() {
    let (_dir, store) = store_with_account().await;
    let stays = make_socket(&store, 1, 1, &[1]).await.unwrap();
    let goes = sallyport_store::NewSocket { temporary: Some([1; 16]), ..new_socket(1, 2) };
    let goes = match store.create_socket(goes, &[2], None, |_| String::new()).await.unwrap() {
        Creation::Made((socket, _)) => socket,
        Creation::Repeated(_) => panic!("there was no key"),
    };
    make_tunnel(&store, 1, stays.id, 1).await.unwrap();
    let tunnel = sallyport_store::NewTunnel { temporary: Some([2; 16]), ..new_tunnel(stays.id, 2) };
    store.create_tunnel(stays.account, &tunnel, &[5_000], None).await.unwrap();
    assert_eq!(store.temporary_sockets().await.unwrap(), [(goes.account, goes.id, Some([1; 16]))]);
    assert_eq!(store.temporary_tunnels().await.unwrap(), [(stays.id, tunnel.id, Some([2; 16]))]);
    assert_eq!(store.tunnel_by_forward_port(stays.account, 5_000).await.unwrap(), None);
}

#[tokio::test]
async fn guests_have_few_sockets_and_do_not_count_as_an_account() {
    let (_dir, store) = store_with_account().await;
    store.create_guest_account(NOW).await.unwrap();
    store.create_guest_account(NOW + 1).await.unwrap();
    assert_eq!(store.count_accounts().await.unwrap(), 1);
    for n in 0..=sallyport_store::MAX_GUEST_SOCKETS as u32 {
        let new = sallyport_store::NewSocket { account: guest_account(), temporary: Some([1; 16]), ..new_socket(1, n) };
        let made = store.create_socket(new, &[u64::from(n)], None, |_| String::new()).await;
        assert_eq!(made.is_ok(), n < 100, "{n}");
    }
}
