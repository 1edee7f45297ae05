//! Accounts: making, seeing, deleting.

use http::StatusCode;
use sallyport_api::Account;
use serde_json::json;

use crate::harness::{Api, PASSWORD};

#[tokio::test]
async fn an_account_is_made_and_seen_by_its_owner() {
    let api = Api::start().await;
    let response = api.create_account("Ann@Example.COM").await;
    assert_eq!(response.header("location"), Some("/v1/account"));
    let made: Account = response.read(StatusCode::CREATED);
    assert_eq!(made.email.as_str(), "Ann@example.com");
    assert_eq!(made.created_at.unix_timestamp(), crate::harness::START);
    let token = api.login("ann@example.com").await.access_token;
    let response = api.get("/v1/account", Some(token.expose())).await;
    assert_eq!(response.read::<Account>(StatusCode::OK), made);
    assert!(!response.text.contains("argon2") && !response.text.contains("password"), "{}", response.text);
    assert_eq!(response.header("cache-control"), Some("no-store"));
}

#[tokio::test]
async fn an_address_has_one_account_however_it_is_written() {
    let api = Api::start().await;
    api.account("ann@example.com").await;
    api.create_account("ANN@example.com").await.assert_problem(StatusCode::CONFLICT, "email-taken");
}

#[tokio::test]
async fn bad_accounts_are_refused_with_the_field() {
    let api = Api::start().await;
    for (body, field, says) in [
        (json!({"name": "A", "email": "nonsense", "password": PASSWORD}), "email", "not an e-mail address"),
        (json!({"name": "A", "email": "a@example.com", "password": "short"}), "password", "too short"),
        (json!({"name": "A", "email": "a@example.com", "password": "password12345"}), "password", "too easy"),
        (json!({"name": "A", "email": "wanderer@example.com", "password": "wanderer-2026"}), "password", "e-mail"),
        (json!({"name": "A", "email": "a@example.com", "password": "x".repeat(1025)}), "password", "too long"),
        (json!({"name": " ", "email": "a@example.com", "password": PASSWORD}), "name", "one line"),
        (json!({"email": "a@example.com", "password": PASSWORD}), "name", "missing"),
        (json!({"name": "A", "email": "a@example.com", "password": 12}), "password", "expected a string"),
        (json!({"name": "A", "email": "a@example.com", "password": PASSWORD, "admin": true}), "admin", "no such field"),
    ] {
        let response = api.post("/v1/accounts", None, body.clone()).await;
        let detail = response.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-request");
        assert_eq!(response.field(), field, "{body}");
        assert!(detail.contains(says), "{body}: {detail}");
    }
    assert_eq!(api.store.count_accounts().await.unwrap(), 0);
}

#[tokio::test]
async fn deleting_an_account_takes_all_it_owns() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    let other = api.account("bob@example.com").await;
    let api_token = api.api_token(&token, &["account:read"]).await;
    let socket = api.socket(&token, "mine").await;
    let kept = api.socket(&other, "kept").await;
    assert_eq!(api.send("DELETE", "/v1/account", Some(&token), None).await.status, StatusCode::NO_CONTENT);

    assert!(api.routes.get(socket.id).is_none() && api.routes.get(kept.id).is_some());
    api.get("/v1/account", Some(&token)).await.assert_problem(StatusCode::UNAUTHORIZED, "logged-out");
    api.get("/v1/account", Some(&api_token)).await.assert_problem(StatusCode::UNAUTHORIZED, "bad-token");
    let login = json!({"email": "ann@example.com", "password": PASSWORD});
    api.post("/v1/login", None, login).await.assert_problem(StatusCode::UNAUTHORIZED, "wrong-login");
    let again: Account = api.create_account("ann@example.com").await.read(StatusCode::CREATED);
    assert_eq!(again.email.as_str(), "ann@example.com", "the address is free again");
    assert_eq!(api.get("/v1/account", Some(&other)).await.status, StatusCode::OK);
}

#[tokio::test]
async fn new_accounts_of_one_client_are_limited() {
    let api = Api::start().await;
    let body = |n: u32| json!({"name": "A", "email": format!("a{n}@example.com"), "password": PASSWORD});
    let ours = api.client_at("[2001:db8::1]:4000");
    // Taken addresses count as attempts too, and are refused quickly.
    for n in 0..30 {
        let response = ours.post("/v1/accounts", body(n % 2)).await;
        assert!([StatusCode::CREATED, StatusCode::CONFLICT].contains(&response.status), "{response:?}");
    }
    let same_customer = api.client_at("[2001:db8::2]:4000");
    let response = same_customer.post("/v1/accounts", body(100)).await;
    response.assert_problem(StatusCode::TOO_MANY_REQUESTS, "too-many-attempts");
    assert_eq!(response.header("retry-after"), Some("60"));
    assert_eq!(api.post("/v1/accounts", None, body(101)).await.status, StatusCode::CREATED, "others are not touched");
    api.clock.pass(60);
    assert_eq!(same_customer.post("/v1/accounts", body(100)).await.status, StatusCode::CREATED);
}

#[tokio::test]
async fn where_sign_up_is_closed_the_first_account_alone_is_made() {
    let api = std::sync::Arc::new(Api::start_closed().await);
    let mut making = tokio::task::JoinSet::new();
    for n in 0..8 {
        let api = api.clone();
        making.spawn(async move { api.create_account(&format!("a{n}@example.com")).await });
    }
    let answers = making.join_all().await;
    let (made, refused): (Vec<_>, Vec<_>) = answers.iter().partition(|response| response.status == StatusCode::CREATED);
    assert_eq!(made.len(), 1, "{answers:?}");
    for response in refused {
        let detail = response.assert_problem(StatusCode::FORBIDDEN, "sign-up-closed");
        assert!(detail.contains("--sign-up open"), "{detail}");
    }
    // The response does not reveal whether an address has an account.
    let first: Account = made[0].read(StatusCode::CREATED);
    api.create_account(first.email.as_str()).await.assert_problem(StatusCode::FORBIDDEN, "sign-up-closed");
    api.login(first.email.as_str()).await;
}
