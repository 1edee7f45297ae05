//! Access of accounts: passwords, reset tokens, second factors, sessions, and registration.

use sallyport_model::{InvitationId, Role};
use sallyport_store::{
    Admission, Invitation, InviteOutcome, MAX_RESETS_PER_ACCOUNT, NewAccount, NewReset, ResetMaker, Rotation,
    SecretSession, SessionClient, SetupRequirement, SignUpRequirement, Store, StoreError, StoredSetupToken,
};

use crate::{
    fixtures::{NOW, account, new_session, store_with_account},
    postgres,
};

fn reset(n: u8, made_by: ResetMaker, expires_at: i64) -> NewReset {
    NewReset { account: account(1).account.id, hash: [n; 32], made_by, expires_at }
}

async fn revision(store: &Store) -> i64 {
    store.account_access(&account(1).account.email).await.unwrap().unwrap().1.revision
}

#[tokio::test]
async fn another_password_ends_the_other_sessions_and_what_began_before_it() {
    let (_dir, store) = store_with_account().await;
    let owner = account(1).account.id;
    for n in 1..=3 {
        store.begin_session(&new_session(1, n, NOW + i64::from(n), NOW + 100)).await.unwrap();
    }
    store.create_account_reset(reset(1, ResetMaker::Myself, NOW + 50)).await.unwrap();
    assert!(!store.change_account_password(owner, 7, "$argon2id$y", None).await.unwrap(), "another revision");
    assert!(store.change_account_password(owner, 0, "$argon2id$y", Some([2; 16])).await.unwrap());
    assert!(!store.change_account_password(owner, 0, "$argon2id$z", None).await.unwrap(), "it is another one by now");
    let (_, access) = store.account_access(&account(1).account.email).await.unwrap().unwrap();
    assert_eq!((access.password_hash.as_deref(), access.revision), (Some("$argon2id$y"), 1));
    assert!(store.session_account([1; 16]).await.unwrap().is_none());
    assert!(store.session_account([2; 16]).await.unwrap().is_some());
    let left = store.account_sessions(owner, NOW).await.unwrap();
    assert_eq!(left.iter().map(|session| session.id).collect::<Vec<_>>(), [[2; 16]]);
    assert!(store.account_of_reset([1; 32], NOW).await.unwrap().is_none(), "codes that set another one end");
    let late = store.begin_session(&new_session(1, 4, NOW, NOW + 100)).await.unwrap_err();
    assert!(matches!(late, StoreError::Gone), "a login with the former password does not go on: {late}");
}

#[tokio::test]
async fn a_code_sets_a_password_once_in_its_time() {
    let (_dir, store) = store_with_account().await;
    let owner = account(1).account;
    store.begin_session(&new_session(1, 1, NOW, NOW + 100)).await.unwrap();
    store.reset_account(owner.id, false, NOW).await.unwrap();
    let (_, access) = store.account_access(&owner.email).await.unwrap().unwrap();
    assert_eq!(access.password_hash, None, "no password lets anybody in");
    assert!(store.session_account([1; 16]).await.unwrap().is_none());
    store.create_account_reset(reset(1, ResetMaker::Operator, NOW + 50)).await.unwrap();
    assert_eq!(store.account_of_reset([1; 32], NOW).await.unwrap(), Some(owner));
    assert_eq!(store.account_of_reset([1; 32], NOW + 50).await.unwrap(), None);
    assert_eq!(store.use_account_reset([1; 32], NOW + 50, "$argon2id$z").await.unwrap(), None);
    assert_eq!(store.use_account_reset([9; 32], NOW, "$argon2id$z").await.unwrap(), None);
    let used = store.use_account_reset([1; 32], NOW + 49, "$argon2id$z").await.unwrap();
    assert_eq!(used, Some(ResetMaker::Operator));
    assert_eq!(store.use_account_reset([1; 32], NOW + 49, "$argon2id$z").await.unwrap(), None, "once");
    let (_, access) = store.account_access(&account(1).account.email).await.unwrap().unwrap();
    assert_eq!(access.password_hash.as_deref(), Some("$argon2id$z"));
    for n in 1..=u8::try_from(MAX_RESETS_PER_ACCOUNT + 1).unwrap() {
        store.create_account_reset(reset(10 + n, ResetMaker::Owner, NOW + 100 + i64::from(n))).await.unwrap();
    }
    assert!(store.account_of_reset([11; 32], NOW).await.unwrap().is_none(), "the oldest goes");
    assert!(store.account_of_reset([12; 32], NOW).await.unwrap().is_some());
    store.tidy(NOW + 1_000).await.unwrap();
    assert!(store.account_of_reset([12; 32], NOW).await.unwrap().is_none());
}

#[tokio::test]
async fn codes_of_accounts_are_taken_once() {
    let (_dir, store) = store_with_account().await;
    let owner = account(1).account;
    let hashes: Vec<_> = (1..=3).map(|n| [n; 32]).collect();
    assert!(!store.take_totp_step(owner.id, 5).await.unwrap(), "there are no codes yet");
    assert!(store.begin_totp(owner.id, "sealed", 5, &hashes, NOW).await.unwrap());
    assert!(!store.begin_totp(owner.id, "other", 0, &[], NOW).await.unwrap());
    let (_, access) = store.account_access(&owner.email).await.unwrap().unwrap();
    assert_eq!((access.totp_secret.as_deref(), access.totp_step, access.recovery_codes), (Some("sealed"), 5, 3));
    assert!(!store.take_totp_step(owner.id, 5).await.unwrap() && store.take_totp_step(owner.id, 7).await.unwrap());
    assert!(!store.take_totp_step(owner.id, 7).await.unwrap());
    assert!(store.take_recovery_code(owner.id, [1; 32]).await.unwrap());
    assert!(!store.take_recovery_code(owner.id, [1; 32]).await.unwrap());
    store.replace_recovery_codes(owner.id, &[[8; 32]]).await.unwrap();
    assert!(!store.take_recovery_code(owner.id, [2; 32]).await.unwrap(), "the former are good for nothing");
    assert!(store.take_recovery_code(owner.id, [8; 32]).await.unwrap());
    let before = revision(&store).await;
    store.reset_account(owner.id, true, NOW).await.unwrap();
    let (_, access) = store.account_access(&owner.email).await.unwrap().unwrap();
    assert_eq!((access.totp_secret, access.recovery_codes), (None, 0));
    assert!(access.revision > before);
    assert!(store.begin_totp(owner.id, "again", 5, &hashes, NOW).await.unwrap());
    store.end_totp(owner.id, NOW).await.unwrap();
    assert!(!store.take_recovery_code(owner.id, [1; 32]).await.unwrap());
}

#[tokio::test]
async fn sessions_say_from_where_and_end_one_by_one() {
    let (_dir, store) = store_with_account().await;
    let owner = account(1).account.id;
    store.begin_session(&new_session(1, 1, NOW, NOW + 100)).await.unwrap();
    store.begin_session(&new_session(1, 2, NOW + 1, NOW + 100)).await.unwrap();
    let moved = SessionClient { address: Some("198.51.100.7".to_owned()), program: None };
    let renewed = store.rotate_refresh([1; 32], [91; 32], NOW + 60, NOW + 160, &moved).await.unwrap();
    assert_eq!(renewed, Rotation::Done { session: [1; 16], account: owner });
    let all = store.account_sessions(owner, NOW + 60).await.unwrap();
    assert_eq!(all.iter().map(|session| session.id).collect::<Vec<_>>(), [[1; 16], [2; 16]]);
    let first = &all[0];
    assert_eq!((first.created_at, first.last_used_at, first.expires_at), (NOW, Some(NOW + 60), NOW + 160));
    assert_eq!(first.client.address.as_deref(), Some("198.51.100.7"));
    assert_eq!(first.client.program.as_deref(), Some("curl/8"), "a missing value changes nothing");
    assert_eq!(store.account_sessions(owner, NOW + 100).await.unwrap().len(), 1, "what is over is not shown");
    store.create_account(account(2)).await.unwrap();
    assert!(!store.end_account_session(account(2).account.id, [1; 16]).await.unwrap(), "it is not theirs");
    assert!(store.end_account_session(owner, [1; 16]).await.unwrap());
    assert!(!store.end_account_session(owner, [1; 16]).await.unwrap());
    assert!(store.session_account([1; 16]).await.unwrap().is_none());
    let after = store.rotate_refresh([91; 32], [92; 32], NOW + 61, NOW + 161, &moved).await.unwrap();
    assert_eq!(after, Rotation::Invalid);
    store.begin_session(&new_session(1, 3, NOW, NOW + 100)).await.unwrap();
    assert_eq!(store.end_account_sessions(owner, Some([3; 16])).await.unwrap(), 1);
    assert!(store.session_account([3; 16]).await.unwrap().is_some());
    assert_eq!(store.end_account_sessions(owner, None).await.unwrap(), 1);
}

#[tokio::test]
async fn a_session_is_found_by_its_secret_until_it_ends_and_keeps_the_secret_when_it_is_renewed() {
    let (_dir, store) = store_with_account().await;
    let owner = account(1).account.id;
    store.begin_session(&new_session(1, 1, NOW, NOW + 100)).await.unwrap();
    let found = SecretSession { id: [1; 16], account: owner, created_at: NOW, last_used_at: Some(NOW) };
    assert_eq!(store.session_by_secret([1; 32], NOW + 99).await.unwrap(), Some(found));
    assert_eq!(store.session_by_secret([1; 32], NOW + 100).await.unwrap(), None, "it is over");
    assert_eq!(store.session_by_secret([2; 32], NOW).await.unwrap(), None, "no session has this secret");
    store.renew_session([1; 32], NOW + 90, NOW + 190).await.unwrap();
    let renewed = SecretSession { last_used_at: Some(NOW + 90), ..found };
    assert_eq!(store.session_by_secret([1; 32], NOW + 189).await.unwrap(), Some(renewed));
    assert_eq!(store.account_sessions(owner, NOW + 90).await.unwrap()[0].expires_at, NOW + 190);
    let client = SessionClient::default();
    store.rotate_refresh([1; 32], [2; 32], NOW + 91, NOW + 191, &client).await.unwrap();
    assert_eq!(store.session_by_secret([1; 32], NOW + 92).await.unwrap(), None, "a secret that was used up");
    store.renew_session([1; 32], NOW + 92, NOW + 900).await.unwrap();
    assert_eq!(store.session_by_secret([2; 32], NOW + 191).await.unwrap(), None, "it renews nothing");
    assert!(store.session_by_secret([2; 32], NOW + 190).await.unwrap().is_some());
    store.end_account_session(owner, [1; 16]).await.unwrap();
    assert_eq!(store.session_by_secret([2; 32], NOW + 93).await.unwrap(), None, "the session has ended");
}

fn comes(n: u8, setup: SetupRequirement, entry: SignUpRequirement) -> NewAccount {
    NewAccount { admission: Admission { setup, entry }, ..account(n) }
}

#[tokio::test]
async fn the_first_account_takes_the_setup_token_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = match postgres::of_suite().await {
        Some(address) => Store::open_postgres(&address).await.unwrap(),
        None => Store::open(dir.path()).await.unwrap(),
    };
    let token = |n: u8| StoredSetupToken { hash: [n; 32], sealed: format!("sealed {n}") };
    assert_eq!(store.keep_setup_token(&token(1)).await.unwrap(), Some(token(1)));
    assert_eq!(store.keep_setup_token(&token(2)).await.unwrap(), Some(token(1)), "all have the same one");
    assert_eq!(store.replace_setup_token(&token(2)).await.unwrap(), Some(token(2)));
    assert!(store.is_setup_token([2; 32]).await.unwrap() && !store.is_setup_token([1; 32]).await.unwrap());
    for shown in [None, Some([1; 32])] {
        let error =
            store.create_account(comes(1, SetupRequirement::Token(shown), SignUpRequirement::Open)).await.unwrap_err();
        assert!(matches!(error, StoreError::SetupToken), "{error}");
    }
    assert!(store.is_setup_token([2; 32]).await.unwrap(), "a wrong one takes nothing away");
    store.create_account(comes(1, SetupRequirement::Token(Some([2; 32])), SignUpRequirement::Closed)).await.unwrap();
    assert!(!store.is_setup_token([2; 32]).await.unwrap(), "it is good once");
    assert_eq!(store.keep_setup_token(&token(3)).await.unwrap(), None, "there is an account");
    let closed = store
        .create_account(comes(2, SetupRequirement::Token(Some([2; 32])), SignUpRequirement::Closed))
        .await
        .unwrap_err();
    assert!(matches!(closed, StoreError::NotFirst), "{closed}");
    store.create_account(comes(2, SetupRequirement::Token(None), SignUpRequirement::Open)).await.unwrap();
}

#[tokio::test]
async fn an_invitation_makes_one_account_of_its_address_in_its_time() {
    let (_dir, store) = store_with_account().await;
    let organisation = account(1).account.id;
    let invitation = |n: u8, email: &str| Invitation {
        id: InvitationId::from_random([n; 16]),
        organisation,
        email: email.parse().unwrap(),
        role: Role::Member,
        invited_by: organisation,
        created_at: NOW,
        expires_at: NOW + 10,
    };
    assert_eq!(store.invite(&invitation(1, "A2@example.com"), [2; 32]).await.unwrap(), InviteOutcome::Done);
    assert_eq!(store.invite(&invitation(2, "a4@example.com"), [4; 32]).await.unwrap(), InviteOutcome::Done);
    assert!(store.is_invited(&account(2).account.email, [2; 32], NOW).await.unwrap(), "whatever its capitals");
    assert!(!store.is_invited(&account(2).account.email, [2; 32], NOW + 10).await.unwrap());
    assert!(!store.is_invited(&account(3).account.email, [2; 32], NOW).await.unwrap());
    let with = |hash| SignUpRequirement::Invitation(hash);
    for (n, hash) in [(3, [2; 32]), (2, [9; 32]), (2, [4; 32])] {
        let error = store.create_account(comes(n, SetupRequirement::Free, with(hash))).await.unwrap_err();
        assert!(matches!(error, StoreError::NoInvitation), "{n}: {error}");
    }
    let mut late = comes(4, SetupRequirement::Free, with([4; 32]));
    late.account.created_at = NOW + 10;
    assert!(matches!(store.create_account(late).await.unwrap_err(), StoreError::NoInvitation), "it is over");
    let used = store.create_account(comes(2, SetupRequirement::Free, with([2; 32]))).await.unwrap().unwrap();
    assert_eq!((used.organisation, used.role), (organisation, Role::Member));
    let role = store.role(organisation, account(2).account.id).await.unwrap();
    assert_eq!(role, Some(Role::Member));
    assert!(!store.is_invited(&account(2).account.email, [2; 32], NOW).await.unwrap(), "once");
    let taken = store.invite(&invitation(3, "a3@example.com"), [3; 32]).await.unwrap();
    assert_eq!(taken, InviteOutcome::Done);
    store.create_account(account(3)).await.unwrap();
    let error = store.create_account(comes(3, SetupRequirement::Free, with([3; 32]))).await.unwrap_err();
    assert!(matches!(error, StoreError::EmailTaken), "{error}");
    assert!(store.is_invited(&account(3).account.email, [3; 32], NOW).await.unwrap(), "nothing is used up then");
}
