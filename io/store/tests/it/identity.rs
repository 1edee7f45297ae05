//! Identity providers, and logins of persons.

use sallyport_model::{AccountId, LoginSession, LoginSessionId, Person, ProviderConfig, ProviderId, ProviderKind};
use sallyport_store::{MAX_PROVIDERS_PER_ORGANISATION, MAX_SESSIONS_PER_PERSON, StoreError, StoredProvider};

use crate::fixtures::{NOW, account, store_with_account};

fn provider(organisation: AccountId, n: u8, name: &str) -> StoredProvider {
    StoredProvider {
        id: ProviderId::from_random([n; 16]),
        organisation,
        name: name.parse().unwrap(),
        config: ProviderConfig {
            kind: ProviderKind::Oidc,
            issuer: Some("https://id.example.com".to_owned()),
            tenant: None,
            client_id: "c".to_owned(),
            scopes: vec!["groups".to_owned()],
            groups_claim: None,
            trust_email: false,
            ca_pem: None,
            hook: None,
            require_totp: false,
        },
        secret: "sealed".to_owned(),
        created_at: NOW,
    }
}

fn session(organisation: AccountId, n: u16, email: &str, provider: &str) -> LoginSession {
    let mut id = [9; 16];
    id[..2].copy_from_slice(&n.to_be_bytes());
    LoginSession {
        id: LoginSessionId::from_random(id),
        organisation,
        person: Person {
            email: email.parse().unwrap(),
            name: Some("Ann \u{c5}".to_owned()),
            groups: vec!["eng".to_owned()],
            provider: provider.parse().unwrap(),
            subject: "u-1".to_owned(),
        },
        authenticated_at: NOW + i64::from(n),
        expires_at: NOW + 1_000 + i64::from(n),
    }
}

#[tokio::test]
async fn providers_belong_to_organisations() {
    let (_dir, store) = store_with_account().await;
    store.create_account(account(2)).await.unwrap();
    let (ann, bob) = (account(1).account.id, account(2).account.id);
    store.create_provider(&provider(ann, 1, "dex")).await.unwrap();
    let again = store.create_provider(&provider(ann, 2, "dex")).await.unwrap_err();
    assert!(matches!(again, StoreError::ProviderTaken), "{again}");
    store.create_provider(&provider(bob, 3, "dex")).await.unwrap();
    assert_eq!(store.providers(ann, 0, 9).await.unwrap(), [(1, provider(ann, 1, "dex"))]);
    let name = "dex".parse().unwrap();
    let mut found = store.provider(bob, &name).await.unwrap().unwrap();
    assert_eq!(found, provider(bob, 3, "dex"));
    assert!(!format!("{found:?}").contains("sealed"));
    found.config.client_id = "d".to_owned();
    assert!(store.update_provider(found.id, &found.config, None).await.unwrap());
    assert_eq!(store.provider(bob, &name).await.unwrap(), Some(found.clone()));
    assert!(store.update_provider(found.id, &found.config, Some("other")).await.unwrap());
    assert_eq!(store.provider(bob, &name).await.unwrap().unwrap().secret, "other");
    assert!(!store.delete_provider(ann, found.id).await.unwrap(), "it is not hers");
    assert!(store.delete_provider(bob, found.id).await.unwrap());
    assert!(!store.update_provider(found.id, &found.config, None).await.unwrap());
    for n in 1..MAX_PROVIDERS_PER_ORGANISATION as u8 {
        store.create_provider(&provider(ann, n + 10, &format!("p{n}"))).await.unwrap();
    }
    let full = store.create_provider(&provider(ann, 200, "more")).await.unwrap_err();
    assert!(matches!(full, StoreError::Limit { .. }), "{full}");
    store.delete_account(ann).await.unwrap();
    assert!(store.providers(ann, 0, 9).await.unwrap().is_empty());
    assert!(matches!(store.create_provider(&provider(ann, 1, "dex")).await, Err(StoreError::Gone)));
}

#[tokio::test]
async fn logins_end_by_themselves_by_name_and_by_number() {
    let (_dir, store) = store_with_account().await;
    store.create_account(account(2)).await.unwrap();
    let (ann, bob) = (account(1).account.id, account(2).account.id);
    let all = [
        session(ann, 1, "x@example.com", "dex"),
        session(ann, 2, "y@example.com", "dex"),
        session(ann, 3, "x@example.com", "google"),
        session(bob, 4, "x@example.com", "dex"),
    ];
    for session in &all {
        assert!(store.begin_person_session(session).await.unwrap().is_empty());
    }
    let listed = store.person_sessions(ann, NOW, 0, 2).await.unwrap();
    assert_eq!(listed.iter().map(|(_, session)| session.clone()).collect::<Vec<_>>(), all[..2]);
    assert_eq!(store.person_sessions(ann, NOW, listed[1].0, 9).await.unwrap()[0].1, all[2]);
    assert_eq!(store.all_person_sessions(NOW + 1_002).await.unwrap().len(), 2, "two are over");

    let (email, dex) = ("x@example.com".parse().unwrap(), "dex".parse().unwrap());
    let ended = store.end_person_sessions(ann, None, Some(&email), Some(&dex)).await.unwrap();
    assert_eq!(ended, [all[0].id]);
    assert!(store.end_person_sessions(ann, Some(all[3].id), None, None).await.unwrap().is_empty(), "not hers");
    assert_eq!(store.end_person_sessions(ann, None, None, None).await.unwrap().len(), 2);
    assert_eq!(store.all_person_sessions(NOW).await.unwrap(), all[3..]);

    let last = MAX_SESSIONS_PER_PERSON as u16 + 10;
    for n in 10..last {
        assert!(store.begin_person_session(&session(ann, n, "z@example.com", "dex")).await.unwrap().is_empty());
    }
    let ended = store.begin_person_session(&session(ann, last, "z@example.com", "dex")).await.unwrap();
    assert_eq!(ended, [session(ann, 10, "z@example.com", "dex").id], "the oldest makes room");
    store.delete_account(ann).await.unwrap();
    assert_eq!(store.all_person_sessions(NOW).await.unwrap().len(), 1);
    assert!(matches!(store.begin_person_session(&all[0]).await, Err(StoreError::Gone)));
}
