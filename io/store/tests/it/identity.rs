//! Identity providers, and logins of persons.

use sallyport_model::{AccountId, LoginSession, LoginSessionId, Person, ProviderConfig, ProviderId, ProviderKind};
use sallyport_store::{
    LogoutSubject, MAX_PROVIDERS_PER_ORGANISATION, MAX_SESSIONS_PER_PERSON, NewProviderSession, StoreError,
    StoredProvider,
};

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
            check_minutes: None,
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
            groups_stated: true,
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

#[tokio::test]
async fn what_a_provider_gave_is_kept_with_the_login_and_asked_once_at_a_time() {
    let (_dir, store) = store_with_account().await;
    let ann = account(1).account.id;
    let (dex, other) = (provider(ann, 3, "dex"), provider(ann, 4, "other"));
    store.create_provider(&dex).await.unwrap();
    store.create_provider(&other).await.unwrap();
    let there = |provider: &StoredProvider, sid: Option<&str>, check_at| NewProviderSession {
        provider: provider.id,
        sid: sid.map(str::to_owned),
        tokens: Some("sealed".to_owned()),
        check_at,
    };
    let begin = async |n: u16, subject: &str, there: NewProviderSession| {
        let mut session = session(ann, n, "x@example.com", "dex");
        (session.person.subject, session.expires_at) = (subject.to_owned(), NOW + 10_000);
        store.begin_provider_session(&session, Some(&there)).await.unwrap();
        session
    };
    let one = begin(1, "u-1", there(&dex, Some("s-1"), Some(NOW + 10))).await;
    let two = begin(2, "u-1", there(&dex, None, Some(NOW + 20))).await;
    let three = begin(3, "u-2", there(&dex, Some("s-3"), None)).await;
    let four = begin(4, "u-1", there(&other, Some("s-1"), None)).await;
    assert_eq!(store.provider_tokens(one.id).await.unwrap().as_deref(), Some("sealed"));

    // Due checks are claimed once, the oldest first.
    assert!(store.claim_provider_checks(NOW + 9).await.unwrap().is_empty());
    let due = store.claim_provider_checks(NOW + 30).await.unwrap();
    let ids: Vec<_> = due.iter().map(|check| check.session.id).collect();
    assert!(ids.len() == 2 && ids.contains(&one.id) && ids.contains(&two.id));
    assert!(due.iter().all(|check| check.provider == dex && check.tokens == "sealed" && check.failures == 0));
    assert!(store.claim_provider_checks(NOW + 31).await.unwrap().is_empty(), "another control has them");
    assert_eq!(store.claim_provider_checks(NOW + 200).await.unwrap().len(), 2, "no control has answered");
    store.record_provider_check(one.id, Some(NOW + 300), 2, Some("newer")).await.unwrap();
    store.record_provider_check(two.id, None, 0, None).await.unwrap();
    let due = store.claim_provider_checks(NOW + 9_000).await.unwrap();
    assert_eq!((due.len(), due[0].tokens.as_str(), due[0].failures), (1, "newer", 2));
    // Ended logins are not checked.
    assert!(store.claim_provider_checks(NOW + 20_000).await.unwrap().is_empty());

    // The login with this session id, and a login of the same person without a session id. Logins of other persons and
    // at other providers stay.
    let end = async |subject: Option<&str>, sid: Option<&str>| {
        let ended = store.end_provider_sessions(ann, dex.id, LogoutSubject { subject, sid }).await.unwrap();
        let mut ids: Vec<_> = ended.iter().map(|session| session.id).collect();
        ids.sort_unstable();
        ids
    };
    assert!(end(Some("u-2"), Some("s-1")).await.is_empty());
    assert_eq!(end(None, Some("s-1")).await, [one.id], "by its name alone nothing else can be meant");
    assert_eq!(end(Some("u-1"), Some("s-9")).await, [two.id]);
    assert_eq!(end(Some("u-2"), None).await, [three.id]);
    let described = Person { groups: vec!["leavers".to_owned()], ..four.person.clone() };
    assert!(store.describe_person_session(four.id, &described).await.unwrap());
    assert_eq!(store.person_session(four.id, NOW).await.unwrap().unwrap().person, described);
    assert!(!store.describe_person_session(one.id, &described).await.unwrap(), "it has ended");
    assert_eq!(store.provider_tokens(one.id).await.unwrap(), None);
    // A used token is remembered as used.
    assert!(store.use_once(ann, [9; 16], NOW + 10, NOW).await.unwrap());
    assert!(store.is_used(ann, [9; 16], NOW).await.unwrap() && !store.is_used(ann, [9; 16], NOW + 10).await.unwrap());
    assert!(!store.is_used(ann, [8; 16], NOW).await.unwrap());
}
