//! Domains of organisations.

use sallyport_model::{AccountId, DomainId, DomainName};
use sallyport_store::{DomainCheck, StoreError, StoredDomain};

use crate::fixtures::{NOW, account, make_socket, store_with_account};

fn domain(n: u8, organisation: AccountId, name: &str) -> StoredDomain {
    StoredDomain {
        id: DomainId::from_random([n; 16]),
        organisation,
        name: name.parse().unwrap(),
        socket: None,
        verified_at: None,
        missing_since: None,
        checked_at: None,
        problem: None,
        check_at: NOW + 60,
        created_at: NOW,
    }
}

fn verified() -> DomainCheck {
    let (verified_at, checked_at) = (Some(NOW), NOW);
    DomainCheck { verified_at, missing_since: None, checked_at, problem: None, check_at: NOW + 600 }
}

#[tokio::test]
async fn one_organisation_at_a_time_has_a_name_verified() {
    let (_dir, store) = store_with_account().await;
    store.create_account(account(2)).await.unwrap();
    let (ann, bob) = (account(1).account.id, account(2).account.id);
    let (one, other) = (domain(1, ann, "app.example.com"), domain(2, bob, "app.example.com"));
    store.create_domain(&one).await.unwrap();
    store.create_domain(&other).await.unwrap();
    let again = store.create_domain(&domain(3, ann, "app.example.com")).await.unwrap_err();
    assert!(matches!(again, StoreError::DomainTaken { by: "this organisation", .. }), "{again}");
    assert_eq!(store.domain_owner(&one.name).await.unwrap(), None);

    assert_eq!(store.check_domain(one.id, &verified()).await.unwrap().unwrap().verified_at, Some(NOW));
    let taken = store.check_domain(other.id, &verified()).await.unwrap_err();
    assert!(matches!(taken, StoreError::DomainTaken { by: "another organisation", .. }), "{taken}");
    assert_eq!(store.domain_owner(&one.name).await.unwrap(), Some(ann));

    // The name is its former owner's until somebody proves it.
    store.delete_domain(ann, &one.name).await.unwrap().unwrap();
    assert_eq!(store.domain_owner(&one.name).await.unwrap(), Some(ann));
    store.check_domain(other.id, &verified()).await.unwrap().unwrap();
    assert_eq!(store.domain_owner(&one.name).await.unwrap(), Some(bob));
    // So it is when the whole organisation is gone.
    store.delete_account(bob).await.unwrap();
    assert_eq!(store.domain_owner(&one.name).await.unwrap(), Some(bob));
    assert!(store.domain(bob, &one.name).await.unwrap().is_none());
    assert!(matches!(store.create_domain(&other).await, Err(StoreError::Gone)));
}

#[tokio::test]
async fn only_verified_domains_lead_to_a_socket() {
    let (_dir, store) = store_with_account().await;
    let ann = account(1).account.id;
    let (first, second) =
        (make_socket(&store, 1, 1, &[1]).await.unwrap(), make_socket(&store, 1, 2, &[2]).await.unwrap());
    let names: Vec<DomainName> = ["app.example.com", "*.example.com"].map(|name| name.parse().unwrap()).to_vec();
    for (n, name) in (1..).zip(&names) {
        store.create_domain(&domain(n, ann, name.as_str())).await.unwrap();
    }
    let refused = store.set_socket_domains(ann, first.id, &names).await.unwrap_err();
    assert!(matches!(&refused, StoreError::DomainUnverified { name } if name == "app.example.com"), "{refused}");
    for n in [1, 2] {
        store.check_domain(DomainId::from_random([n; 16]), &verified()).await.unwrap();
    }
    assert!(store.set_socket_domains(ann, first.id, &names).await.unwrap().is_empty());
    assert_eq!(store.route(first.id).await.unwrap().unwrap().domains.len(), 2);
    assert_eq!(store.set_socket_domains(ann, second.id, &names[..1]).await.unwrap(), [first.id]);
    let routes = store.routes().await.unwrap();
    let of = |id| routes.iter().find(|route| route.id == id).unwrap().domains.clone();
    assert_eq!((of(first.id), of(second.id)), (names[1..].to_vec(), names[..1].to_vec()));
    // A domain that is no longer verified leads nowhere, and does so again when it is.
    let lapsed = DomainCheck { verified_at: None, problem: Some("no record".into()), ..verified() };
    let after = store.check_domain(DomainId::from_random([1; 16]), &lapsed).await.unwrap().unwrap();
    assert_eq!((after.verified_at, after.socket), (None, Some(second.id)));
    assert!(store.route(second.id).await.unwrap().unwrap().domains.is_empty());
    store.check_domain(DomainId::from_random([1; 16]), &verified()).await.unwrap();
    assert_eq!(store.route(second.id).await.unwrap().unwrap().domains, names[..1]);
    store.delete_socket(ann, second.id).await.unwrap();
    assert_eq!(store.domain(ann, &names[0]).await.unwrap().unwrap().socket, None);
}

#[tokio::test]
async fn domains_are_looked_up_when_they_are_due() {
    let (_dir, store) = store_with_account().await;
    let ann = account(1).account.id;
    store.create_domain(&domain(1, ann, "a.example.com")).await.unwrap();
    store.create_domain(&StoredDomain { check_at: NOW, ..domain(2, ann, "b.example.com") }).await.unwrap();
    let due = |at| {
        let store = store.clone();
        async move {
            store
                .due_domains(at, at + 6 * 3_600, 9)
                .await
                .unwrap()
                .into_iter()
                .map(|one| one.name.to_string())
                .collect::<Vec<_>>()
        }
    };
    assert!(due(NOW - 1).await.is_empty());
    assert_eq!(due(NOW + 60).await, ["b.example.com", "a.example.com"]);
    assert_eq!(store.domains(ann, 1, 9).await.unwrap().len(), 1);
    assert!(store.check_domain(DomainId::from_random([9; 16]), &verified()).await.unwrap().is_none());
}
