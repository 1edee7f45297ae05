//! The certificate authorities of organisations, and the records of their certificates.

use sallyport_model::{IdentitySettings, SocketSettings, SocketType};
use sallyport_store::{
    AuthorityKind, Creation, IssuedCertificate, NewSocket, PortRequest, Store, StoreError, StoredAuthority,
};

use crate::fixtures::{NOW, account, make_socket, new_socket, store_with_account};

fn authority(owner: u8, kind: AuthorityKind, certificate: &[u8]) -> StoredAuthority {
    StoredAuthority {
        organisation: account(owner).account.id,
        kind,
        certificate: certificate.to_vec(),
        secret: b"sealed".to_vec(),
        settings: "{}".to_owned(),
        created_at: NOW,
    }
}

async fn tls_socket(store: &Store, n: u32, settings: SocketSettings) -> sallyport_model::Socket {
    let port = PortRequest::Any(20_000..=20_010);
    let new = NewSocket { socket_type: SocketType::Tls, settings, port, ..new_socket(1, n) };
    match store.create_socket(new, &[u64::from(n)], None, |_| String::new()).await.unwrap() {
        Creation::Made((socket, _)) => socket,
        Creation::Repeated(_) => unreachable!("there was no key"),
    }
}

#[tokio::test]
async fn an_organisation_has_one_authority_of_a_kind_and_its_own_sockets_know_it() {
    let (_dir, store) = store_with_account().await;
    store.create_account(account(2)).await.unwrap();
    let first = authority(1, AuthorityKind::ClientTls, b"first");
    assert_eq!(store.authority(first.organisation, first.kind).await.unwrap(), None);
    assert_eq!(store.keep_authority(&first).await.unwrap(), first);
    let second = store.keep_authority(&authority(1, AuthorityKind::ClientTls, b"second")).await.unwrap();
    assert_eq!(second, first, "two controls that create one at the same time get the same");
    store.keep_authority(&authority(1, AuthorityKind::Ssh, b"ssh")).await.unwrap();
    store.keep_authority(&authority(2, AuthorityKind::ClientTls, b"other")).await.unwrap();
    assert!(matches!(store.keep_authority(&authority(3, AuthorityKind::Ssh, b"x")).await, Err(StoreError::Gone)));

    let asking = SocketSettings { identity: Some(IdentitySettings::default()), ..SocketSettings::default() };
    let asks = tls_socket(&store, 1, asking.clone()).await;
    let plain = tls_socket(&store, 2, SocketSettings::default()).await;
    let web = make_socket(&store, 1, 3, &[3]).await.unwrap();
    for (socket, expected) in [(&asks, Some(&b"first"[..])), (&plain, None), (&web, None)] {
        let route = store.route(socket.id).await.unwrap().unwrap();
        assert_eq!(route.client_authority.as_deref(), expected, "{}", socket.name);
        let among_all = store.routes().await.unwrap().into_iter().find(|route| route.id == socket.id).unwrap();
        assert_eq!(among_all, route);
    }
    assert!(store.set_authority_settings(first.organisation, first.kind, r#"{"a":1}"#).await.unwrap());
    let changed = store.authority(first.organisation, first.kind).await.unwrap().unwrap();
    assert_eq!(changed, StoredAuthority { settings: r#"{"a":1}"#.to_owned(), ..first });
    assert!(!store.set_authority_settings(account(2).account.id, AuthorityKind::Ssh, "{}").await.unwrap());
    let public = store.authorities().await.unwrap();
    assert_eq!(public.len(), 3);
    assert!(public.iter().all(|authority| authority.secret.is_empty()));
}

#[tokio::test]
async fn what_was_signed_is_remembered_for_a_while_after_its_end() {
    let (_dir, store) = store_with_account().await;
    let owner = account(1).account.id;
    let issued = |serial: u8, end: i64| IssuedCertificate {
        organisation: owner,
        kind: AuthorityKind::Ssh,
        serial: vec![serial; 8],
        socket: None,
        subject: "ann@example.com".to_owned(),
        not_before: NOW - 300,
        not_after: end,
    };
    store.record_certificate(&issued(1, NOW + 300)).await.unwrap();
    store.record_certificate(&issued(2, NOW + 900)).await.unwrap();
    assert!(store.record_certificate(&issued(2, NOW)).await.is_err(), "a serial number is given once");
    let stranger = IssuedCertificate { organisation: account(9).account.id, ..issued(3, NOW) };
    assert!(matches!(store.record_certificate(&stranger).await, Err(StoreError::Gone)));
    assert_eq!(store.issued_certificates(owner).await.unwrap(), [issued(2, NOW + 900), issued(1, NOW + 300)]);
    store.tidy(NOW + 300 + 90 * 86_400).await.unwrap();
    assert_eq!(store.issued_certificates(owner).await.unwrap(), [issued(2, NOW + 900)]);
}
