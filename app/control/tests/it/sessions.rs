//! Logging in, refreshing, logging out; tokens that are not what they seem.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http::StatusCode;
use sallyport_api::Session;
use serde_json::json;

use crate::harness::{Api, PASSWORD, START};

async fn refresh(api: &Api, token: &str) -> crate::harness::HttpResponse {
    api.post("/v1/login/refresh", None, json!({"refresh_token": token})).await
}

#[tokio::test]
async fn a_session_lives_fifteen_minutes_and_is_refreshed() {
    let api = Api::start().await;
    api.account("ann@example.com").await;
    let session = api.login("ann@example.com").await;
    assert_eq!(session.expires_at.unix_timestamp(), START + 900);
    assert_eq!(session.refresh_expires_at.unix_timestamp(), START + 30 * 86_400);
    assert!(session.refresh_token.expose().starts_with("spr_"));

    api.clock.pass(959);
    assert_eq!(api.get("/v1/account", Some(session.access_token.expose())).await.status, StatusCode::OK);
    api.clock.pass(1);
    let response = api.get("/v1/account", Some(session.access_token.expose())).await;
    response.assert_problem(StatusCode::UNAUTHORIZED, "expired-token");
    assert!(response.header("www-authenticate").unwrap().starts_with("Bearer"));

    let next: Session = refresh(&api, session.refresh_token.expose()).await.read(StatusCode::OK);
    assert_ne!(next.refresh_token, session.refresh_token);
    assert_eq!(api.get("/v1/account", Some(next.access_token.expose())).await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_refresh_token_that_is_used_twice_ends_the_whole_session() {
    let api = Api::start().await;
    let elsewhere = api.account("ann@example.com").await;
    let first = api.login("ann@example.com").await;
    let second: Session = refresh(&api, first.refresh_token.expose()).await.read(StatusCode::OK);
    refresh(&api, first.refresh_token.expose()).await.assert_problem(StatusCode::UNAUTHORIZED, "refresh-token-reused");
    refresh(&api, second.refresh_token.expose()).await.assert_problem(StatusCode::UNAUTHORIZED, "bad-refresh-token");
    for token in [first.access_token, second.access_token] {
        api.get("/v1/account", Some(token.expose())).await.assert_problem(StatusCode::UNAUTHORIZED, "logged-out");
    }
    assert_eq!(api.get("/v1/account", Some(&elsewhere)).await.status, StatusCode::OK, "other logins go on");
}

#[tokio::test]
async fn two_refreshes_at_once_never_both_succeed() {
    let api = Api::start().await;
    api.account("ann@example.com").await;
    let session = api.login("ann@example.com").await;
    let token = session.refresh_token.expose();
    let (a, b) = tokio::join!(refresh(&api, token), refresh(&api, token));
    let mut statuses = [a.status, b.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [StatusCode::OK, StatusCode::UNAUTHORIZED]);
}

#[tokio::test]
async fn a_refresh_token_ends_after_thirty_days_and_survives_a_restart() {
    let api = Api::start().await;
    api.account("ann@example.com").await;
    let session = api.login("ann@example.com").await;
    api.clock.pass(30 * 86_400 - 1);
    let api = api.restart().await;
    let next: Session = refresh(&api, session.refresh_token.expose()).await.read(StatusCode::OK);
    assert_eq!(api.get("/v1/account", Some(next.access_token.expose())).await.status, StatusCode::OK);
    api.clock.pass(30 * 86_400);
    refresh(&api, next.refresh_token.expose()).await.assert_problem(StatusCode::UNAUTHORIZED, "bad-refresh-token");
    refresh(&api, "spr_nonsense").await.assert_problem(StatusCode::UNAUTHORIZED, "bad-refresh-token");
}

#[tokio::test]
async fn logging_out_ends_the_session_at_once() {
    let api = Api::start().await;
    api.account("ann@example.com").await;
    let session = api.login("ann@example.com").await;
    for _ in 0..2 {
        let response = api.post("/v1/logout", None, json!({"refresh_token": session.refresh_token})).await;
        assert_eq!(response.status, StatusCode::NO_CONTENT);
    }
    api.get("/v1/account", Some(session.access_token.expose()))
        .await
        .assert_problem(StatusCode::UNAUTHORIZED, "logged-out");
    refresh(&api, session.refresh_token.expose()).await.assert_problem(StatusCode::UNAUTHORIZED, "bad-refresh-token");
}

#[tokio::test]
async fn a_small_jump_of_the_clock_ends_no_login() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    api.clock.jump(-60);
    assert_eq!(api.get("/v1/account", Some(&token)).await.status, StatusCode::OK);
    api.clock.jump(-60);
    api.get("/v1/account", Some(&token)).await.assert_problem(StatusCode::UNAUTHORIZED, "bad-token");
}

#[tokio::test]
async fn wrong_logins_do_not_reveal_what_is_wrong() {
    let api = Api::start().await;
    api.account("ann@example.com").await;
    let wrong = json!({"email": "ann@example.com", "password": "wrong horse battery"});
    let unknown = json!({"email": "bob@example.com", "password": PASSWORD});
    let wrong = api.post("/v1/login", None, wrong).await.assert_problem(StatusCode::UNAUTHORIZED, "wrong-login");
    let unknown = api.post("/v1/login", None, unknown).await.assert_problem(StatusCode::UNAUTHORIZED, "wrong-login");
    assert_eq!(wrong, unknown);
}

#[tokio::test]
async fn guessing_one_account_is_limited_for_each_client() {
    let api = Api::start().await;
    api.account("ann@example.com").await;
    let guess = json!({"email": "Ann@example.com", "password": "wrong horse battery"});
    let guesser = api.client_at("198.51.100.1:4000");
    for _ in 0..10 {
        assert_eq!(guesser.post("/v1/login", guess.clone()).await.status, StatusCode::UNAUTHORIZED);
    }
    let right = json!({"email": "ann@example.com", "password": PASSWORD});
    let response = guesser.post("/v1/login", right.clone()).await;
    response.assert_problem(StatusCode::TOO_MANY_REQUESTS, "too-many-attempts");
    assert_eq!(response.header("retry-after"), Some("30"));
    api.clock.jump(86_400);
    let response = guesser.post("/v1/login", right.clone()).await;
    assert_eq!(response.status, StatusCode::TOO_MANY_REQUESTS, "a jump of the wall clock opens nothing");
    api.clock.pass(30);
    assert_eq!(guesser.post("/v1/login", right).await.status, StatusCode::OK);
}

#[tokio::test]
async fn wrong_logins_do_not_lock_the_owner_out() {
    let api = Api::start().await;
    api.account("ann@example.com").await;
    let right = json!({"email": "ann@example.com", "password": PASSWORD});
    let guess = json!({"email": "ann@example.com", "password": "wrong horse battery"});
    let home = api.client_at("203.0.113.1:1");
    assert_eq!(home.post("/v1/login", right.clone()).await.status, StatusCode::OK);
    for n in 0..15 {
        for _ in 0..3 {
            api.client_at(&format!("198.51.100.{n}:4000")).post("/v1/login", guess.clone()).await;
        }
    }
    let guesser = api.client_at("198.51.100.1:4000").post("/v1/login", guess.clone()).await;
    guesser.assert_problem(StatusCode::TOO_MANY_REQUESTS, "too-many-attempts");
    // A client that has logged in before may mistype; a client without failures is not delayed.
    assert_eq!(home.post("/v1/login", guess.clone()).await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(home.post("/v1/login", right.clone()).await.status, StatusCode::OK);
    let cafe = api.client_at("192.0.2.9:1");
    assert_eq!(cafe.post("/v1/login", right).await.status, StatusCode::OK);
    let another = api.client_at("192.0.2.10:1");
    assert_eq!(another.post("/v1/login", guess.clone()).await.status, StatusCode::UNAUTHORIZED);
    let again = another.post("/v1/login", guess).await;
    again.assert_problem(StatusCode::TOO_MANY_REQUESTS, "too-many-attempts");
}

#[tokio::test]
async fn guessing_many_accounts_is_limited_and_right_logins_are_not() {
    let api = Api::start().await;
    api.account("ann@example.com").await;
    for _ in 0..30 {
        api.login("ann@example.com").await;
    }
    for n in 0..20 {
        let guess = json!({"email": format!("a{n}@example.com"), "password": PASSWORD});
        assert_eq!(api.post("/v1/login", None, guess).await.status, StatusCode::UNAUTHORIZED);
    }
    let guess = json!({"email": "z@example.com", "password": PASSWORD});
    api.post("/v1/login", None, guess.clone()).await.assert_problem(StatusCode::TOO_MANY_REQUESTS, "too-many-attempts");
    let other = api.client_at("203.0.113.9:1");
    assert_eq!(other.post("/v1/login", guess).await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn refreshes_are_limited() {
    let api = Api::start().await;
    for _ in 0..60 {
        assert_eq!(refresh(&api, "spr_x").await.status, StatusCode::UNAUTHORIZED);
    }
    refresh(&api, "spr_x").await.assert_problem(StatusCode::TOO_MANY_REQUESTS, "too-many-attempts");
}

#[tokio::test]
async fn forged_access_tokens_are_refused() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    let other = Api::start().await;
    let elsewhere = other.account("ann@example.com").await;
    let parts: Vec<&str> = token.split('.').collect();
    let none = URL_SAFE_NO_PAD.encode(r#"{"typ":"at+jwt","alg":"none"}"#);
    let claims: serde_json::Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(parts[1]).unwrap()).unwrap();
    let mut later = claims;
    later["exp"] = json!(START + 10_000_000);
    let later = URL_SAFE_NO_PAD.encode(later.to_string());
    for forged in [
        elsewhere,
        format!("{none}.{}.", parts[1]),
        format!("{}.{later}.{}", parts[0], parts[2]),
        format!("{}.{}.{}", parts[0], parts[1], "A".repeat(43)),
        "nonsense".to_owned(),
        "spt_nonsense".to_owned(),
        format!("spt_{token}"),
    ] {
        api.get("/v1/account", Some(&forged)).await.assert_problem(StatusCode::UNAUTHORIZED, "bad-token");
    }
    assert_eq!(api.get("/v1/account", Some(&token)).await.status, StatusCode::OK);
}
