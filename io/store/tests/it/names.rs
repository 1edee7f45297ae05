//! Display names of sockets and tunnels.

use sallyport_model::{DisplayName, ShortId};
use sallyport_store::{Creation, NameConflict, NewSocket, NewTunnel, SocketChange, StoreError, TunnelChange};

use crate::fixtures::{account, make_socket, make_tunnel, new_socket, new_tunnel, store_with_account};

fn name(text: &str) -> DisplayName {
    text.parse().unwrap()
}

#[tokio::test]
async fn an_account_has_no_two_sockets_of_a_name_and_another_account_may() {
    let (_dir, store) = store_with_account().await;
    store.create_account(account(2)).await.unwrap();
    let called = |owner, n, text: &str| NewSocket { display_name: name(text), ..new_socket(owner, n) };
    let make = async |new, random| match store.create_socket(new, &[random], None, |_| String::new()).await? {
        Creation::Made((socket, _)) => Ok::<_, StoreError>(socket),
        Creation::Repeated(_) => unreachable!("there was no key"),
    };
    let first = make(called(1, 1, "My Service"), 1).await.unwrap();
    let refused = make(called(1, 2, "my  service"), 2).await.unwrap_err();
    assert!(matches!(&refused, StoreError::NameTaken { by, .. } if by.contains(first.name.as_str())), "{refused}");
    make(called(2, 3, "my service"), 3).await.unwrap();
    let numbered = NewSocket { name_conflict: NameConflict::AddNumber, ..called(1, 4, "MY SERVICE") };
    assert_eq!(make(numbered.clone(), 4).await.unwrap().display_name.as_str(), "MY SERVICE (2)");
    let again = NewSocket { id: new_socket(1, 5).id, ..numbered };
    assert_eq!(make(again, 5).await.unwrap().display_name.as_str(), "MY SERVICE (3)");
    // A display name equal to a public name, even of a deleted socket, would be confused with that socket.
    let gone = make(called(2, 6, "gone"), 6).await.unwrap();
    assert!(store.delete_socket(gone.account, gone.id).await.unwrap());
    let refused = make(called(1, 7, gone.name.as_str()), 7).await.unwrap_err();
    assert!(matches!(&refused, StoreError::NameTaken { .. }), "{refused}");
    // But a chosen label stays its owner's, so the same socket can be made again.
    let labelled = |owner, n| NewSocket { label: Some("shop".parse().unwrap()), ..called(owner, n, "shop") };
    let shop = make(labelled(1, 8), 8).await.unwrap();
    let refused = make(called(2, 9, "shop"), 9).await.unwrap_err();
    assert!(matches!(&refused, StoreError::NameTaken { .. }), "{refused}");
    assert!(store.delete_socket(shop.account, shop.id).await.unwrap());
    let refused = make(labelled(2, 10), 10).await.unwrap_err();
    assert!(matches!(&refused, StoreError::NameTaken { .. }), "{refused}");
    assert_eq!(make(labelled(1, 11), 11).await.unwrap().name, shop.name);

    let found =
        async |text: &str| store.socket_by_display_name(first.account, &name(text)).await.unwrap().map(|it| it.id);
    assert_eq!(found(" my SERVICE").await, Some(first.id));
    assert_eq!(found("my service (4)").await, None);
    let rename = async |text: &str| {
        let change = SocketChange { display_name: Some(name(text)), ..SocketChange::default() };
        store.change_socket(first.account, first.id, |_| Ok::<_, StoreError>(change)).await
    };
    assert!(matches!(rename("my service (2)").await, Err(StoreError::NameTaken { .. })));
    assert_eq!(rename("my service").await.unwrap().unwrap().display_name.as_str(), "my service", "its own");
    rename(first.name.as_str()).await.unwrap().unwrap();
    rename("other").await.unwrap().unwrap();
    assert_eq!(found("my service").await, None);
    assert_eq!(found("Other").await, Some(first.id));
}

#[tokio::test]
async fn an_id_is_known_by_its_beginning_unless_others_begin_so() {
    let (_dir, store) = store_with_account().await;
    let owner = account(1).account.id;
    let socket = make_socket(&store, 1, 0x1234_5678, &[1]).await.unwrap();
    let tunnel = make_tunnel(&store, 1, socket.id, 0x2234_5678).await.unwrap();
    let short = |text: &str| text.parse::<ShortId>().unwrap();
    assert_eq!(store.socket_by_short_id(owner, &short("123456")).await.unwrap().unwrap().id, socket.id);
    assert_eq!(store.tunnel_by_short_id(owner, &short("22345678")).await.unwrap().unwrap().id, tunnel.id);
    assert_eq!(store.tunnel_of_account(owner, tunnel.id).await.unwrap().unwrap().id, tunnel.id);
    assert!(store.socket_by_short_id(owner, &short("123457")).await.unwrap().is_none());
    make_socket(&store, 1, 0x1234_5679, &[2]).await.unwrap();
    make_tunnel(&store, 1, socket.id, 0x2234_5679).await.unwrap();
    let refused = store.socket_by_short_id(owner, &short("1234567")).await.unwrap_err();
    assert!(matches!(refused, StoreError::AmbiguousId { .. }), "{refused}");
    assert!(matches!(store.tunnel_by_short_id(owner, &short("2234567")).await, Err(StoreError::AmbiguousId { .. })));
    store.create_account(account(2)).await.unwrap();
    let other = account(2).account.id;
    assert!(store.socket_by_short_id(other, &short("12345678")).await.unwrap().is_none());
    assert!(store.tunnel_by_short_id(other, &short("22345678")).await.unwrap().is_none());
    assert!(store.tunnel_of_account(other, tunnel.id).await.unwrap().is_none());
}

#[tokio::test]
async fn tunnels_have_names_that_are_unique_in_an_account() {
    let (_dir, store) = store_with_account().await;
    let owner = account(1).account.id;
    let one = make_socket(&store, 1, 1, &[1]).await.unwrap();
    let other = make_socket(&store, 1, 2, &[2]).await.unwrap();
    let called = |socket, n, text: &str| NewTunnel { name: Some(name(text)), ..new_tunnel(socket, n) };
    let make = async |new: NewTunnel, port: u16| store.create_tunnel(owner, &new, &[port], None).await;
    let Creation::Made(web) = make(called(one.id, 1, "web 1"), 2_001).await.unwrap() else { panic!() };
    assert_eq!(web.name, Some(name("web 1")));
    let refused = make(called(other.id, 2, "WEB 1"), 2_002).await.unwrap_err();
    assert!(matches!(&refused, StoreError::NameTaken { by, .. } if by.contains(one.name.as_str())), "{refused}");
    let plain = make_tunnel(&store, 1, other.id, 3).await.unwrap();
    let rename = async |account, id, text: Option<&str>| {
        let change = TunnelChange { name: Some(text.map(name)), ..TunnelChange::default() };
        store.change_tunnel(account, id, |_| Ok::<_, StoreError>(change)).await
    };
    assert_eq!(store.tunnel_by_name(owner, &name("Web 1")).await.unwrap().unwrap().id, web.id);
    assert!(matches!(rename(owner, plain.id, Some("web 1")).await, Err(StoreError::NameTaken { .. })));
    rename(owner, web.id, None).await.unwrap().unwrap();
    let renamed = rename(owner, plain.id, Some("web 1")).await.unwrap().unwrap();
    assert_eq!((renamed.id, renamed.name), (plain.id, Some(name("web 1"))));

    let all = store.tunnels_of_account(owner, &[], 0, 10).await.unwrap();
    assert_eq!(all.iter().map(|(_, tunnel)| tunnel.id).collect::<Vec<_>>(), [web.id, plain.id]);
    let after = store.tunnels_of_account(owner, &[], all[0].0, 10).await.unwrap();
    assert_eq!(after.len(), 1);
    store.create_account(account(2)).await.unwrap();
    let stranger = account(2).account.id;
    assert!(store.tunnels_of_account(stranger, &[], 0, 10).await.unwrap().is_empty());
    assert!(store.tunnel_by_name(stranger, &name("web 1")).await.unwrap().is_none());
    assert!(rename(stranger, web.id, None).await.unwrap().is_none());
}
