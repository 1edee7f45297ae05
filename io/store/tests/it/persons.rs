//! Persons with a password, and single-use tokens.

use sallyport_model::{AccountId, PersonId, ProviderConfig, ProviderId, ProviderKind};
use sallyport_store::{LocalPerson, MAX_LINKS_PER_PERSON, NewPersonLink, Store, StoreError, StoredProvider};

use crate::fixtures::{NOW, account, store_with_account};

fn provider(organisation: AccountId, n: u8) -> StoredProvider {
    let config: ProviderConfig = serde_json::from_str(r#"{"kind":"local"}"#).unwrap();
    let (id, name) = (ProviderId::from_random([n; 16]), format!("local{n}").parse().unwrap());
    StoredProvider { id, organisation, name, config, secret: "sealed".to_owned(), created_at: NOW }
}

fn person(organisation: AccountId, n: u8, email: &str) -> LocalPerson {
    LocalPerson {
        id: PersonId::from_random([n; 16]),
        organisation,
        provider: ProviderId::from_random([1; 16]),
        email: email.parse().unwrap(),
        name: Some("Ann".to_owned()),
        groups: vec!["eng".to_owned()],
        has_password: false,
        verified_at: None,
        disabled: false,
        has_totp: false,
        recovery_codes: 0,
        changed_at: NOW,
        last_login_at: None,
        created_at: NOW,
    }
}

async fn store_with_person() -> (tempfile::TempDir, Store, LocalPerson) {
    let (dir, store) = store_with_account().await;
    let ann = account(1).account.id;
    store.create_provider(&provider(ann, 1)).await.unwrap();
    let person = person(ann, 1, "ann@example.com");
    store.create_person(&person).await.unwrap();
    (dir, store, person)
}

#[tokio::test]
async fn persons_are_kept_once_for_each_address_and_go_with_their_provider() {
    let (_dir, store, ann) = store_with_person().await;
    let organisation = ann.organisation;
    let again = store.create_person(&person(organisation, 2, "Ann@Example.com")).await.unwrap_err();
    assert!(matches!(again, StoreError::PersonTaken), "{again}");
    let second = store.create_provider(&provider(organisation, 2)).await.unwrap_err();
    assert!(matches!(second, StoreError::LocalProviderTaken), "{second}");
    store.create_account(account(2)).await.unwrap();
    let bob = account(2).account.id;
    let foreign = store.create_person(&person(bob, 3, "ann@example.com")).await.unwrap_err();
    assert!(matches!(foreign, StoreError::Gone), "the provider is not his: {foreign}");
    assert_eq!(store.persons(organisation, 0, 9).await.unwrap(), [(1, ann.clone())]);
    assert!(store.persons(organisation, 1, 9).await.unwrap().is_empty());
    let mut changed = LocalPerson { name: None, groups: Vec::new(), disabled: true, ..ann.clone() };
    assert!(store.update_person(&changed).await.unwrap());
    assert_eq!(store.person_by_email(organisation, &ann.email).await.unwrap().unwrap().0, changed);
    changed.organisation = bob;
    assert!(!store.update_person(&changed).await.unwrap());
    assert!(store.person(bob, ann.id).await.unwrap().is_none());
    assert!(!store.delete_person(bob, ann.id).await.unwrap());
    assert_eq!(provider(organisation, 1).config.kind, ProviderKind::Local);
    assert!(store.delete_provider(organisation, ann.provider).await.unwrap());
    assert!(store.person(organisation, ann.id).await.unwrap().is_none());
}

#[tokio::test]
async fn a_link_sets_a_password_once() {
    let (_dir, store, ann) = store_with_person().await;
    let link = |n: u8, expires_at| NewPersonLink { person: ann.id, hash: [n; 32], expires_at };
    for n in 1..=MAX_LINKS_PER_PERSON as u8 + 1 {
        store.create_person_link(link(n, NOW + i64::from(n))).await.unwrap();
    }
    assert!(store.person_of_link([1; 32], NOW).await.unwrap().is_none(), "the oldest went");
    assert_eq!(store.person_of_link([2; 32], NOW).await.unwrap(), Some(ann.clone()));
    assert!(store.person_of_link([2; 32], NOW + 2).await.unwrap().is_none(), "it is over");
    assert!(!store.use_person_link([2; 32], NOW + 2, "hash").await.unwrap());
    store.update_person(&LocalPerson { disabled: true, ..ann.clone() }).await.unwrap();
    assert!(!store.use_person_link([3; 32], NOW, "hash").await.unwrap(), "a disabled person sets no password");
    store.create_person_link(link(5, NOW + 5)).await.unwrap();
    store.update_person(&LocalPerson { disabled: true, name: Some("Ann".into()), ..ann.clone() }).await.unwrap();
    store.update_person(&ann).await.unwrap();
    assert!(!store.use_person_link([3; 32], NOW, "hash").await.unwrap(), "it ended when the person was disabled");
    assert!(store.use_person_link([5; 32], NOW, "hash").await.unwrap(), "it was made since");
    for n in 2..=5 {
        assert!(!store.use_person_link([n; 32], NOW, "other").await.unwrap(), "{n}");
    }
    let (person, secrets) = store.person(ann.organisation, ann.id).await.unwrap().unwrap();
    assert!(person.may_log_in() && person.verified_at == Some(NOW));
    assert_eq!(secrets.password_hash.as_deref(), Some("hash"));
    assert!(!store.change_person_password(ann.id, "other", "new", NOW + 1).await.unwrap());
    assert!(store.change_person_password(ann.id, "hash", "new", NOW + 1).await.unwrap());
    store.reset_person(ann.id, false, NOW + 2).await.unwrap();
    let (person, _) = store.person(ann.organisation, ann.id).await.unwrap().unwrap();
    assert!(!person.may_log_in() && person.verified_at == Some(NOW) && person.changed_at == NOW + 2);
}

#[tokio::test]
async fn codes_and_recovery_codes_are_taken_once() {
    let (_dir, store, ann) = store_with_person().await;
    let hashes = [[1; 32], [2; 32]];
    assert!(!store.take_totp_step(ann.id, 5).await.unwrap(), "there are no codes yet");
    assert!(store.begin_totp(ann.id, "sealed", 5, &hashes, NOW).await.unwrap());
    assert!(!store.begin_totp(ann.id, "other", 0, &[], NOW).await.unwrap());
    assert!(!store.take_totp_step(ann.id, 5).await.unwrap() && store.take_totp_step(ann.id, 7).await.unwrap());
    assert!(!store.take_totp_step(ann.id, 6).await.unwrap() && !store.take_totp_step(ann.id, 7).await.unwrap());
    assert!(store.take_recovery_code(ann.id, [1; 32]).await.unwrap());
    assert!(!store.take_recovery_code(ann.id, [1; 32]).await.unwrap());
    assert!(!store.take_recovery_code(PersonId::from_random([9; 16]), [2; 32]).await.unwrap());
    let (person, secrets) = store.person(ann.organisation, ann.id).await.unwrap().unwrap();
    assert_eq!((person.has_totp, person.recovery_codes, secrets.totp_step), (true, 1, 7));
    store.end_totp(ann.id, NOW).await.unwrap();
    let (person, secrets) = store.person(ann.organisation, ann.id).await.unwrap().unwrap();
    assert_eq!((person.has_totp, person.recovery_codes, secrets.totp_secret), (false, 0, None));
}

#[tokio::test]
async fn what_is_good_once_is_taken_once_and_forgotten_when_it_is_over() {
    let (_dir, store) = store_with_account().await;
    let ann = account(1).account.id;
    assert!(store.use_once(ann, [1; 16], NOW + 10, NOW).await.unwrap());
    assert!(!store.use_once(ann, [1; 16], NOW + 10, NOW).await.unwrap());
    assert!(
        !store.use_once(AccountId::from_random([99; 16]), [2; 16], NOW + 10, NOW).await.unwrap(),
        "an unknown account"
    );
    store.tidy(NOW + 10).await.unwrap();
    assert!(store.use_once(ann, [1; 16], NOW + 20, NOW + 10).await.unwrap());
}
