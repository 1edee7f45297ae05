//! API tokens and their scopes.

use http::StatusCode;
use sallyport_api::{CreatedToken, Page, Token};
use serde_json::json;

use crate::harness::{Api, START};

#[tokio::test]
async fn a_token_is_shown_once_listed_without_secret_and_deleted() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    let body = json!({"name": "build server", "scopes": ["sockets:read", "account:read", "sockets:read"]});
    let response = api.post("/v1/tokens", Some(&token), body).await;
    let made: CreatedToken = response.read(StatusCode::CREATED);
    assert_eq!(response.header("location"), Some(format!("/v1/tokens/{}", made.details.id).as_str()));
    let secret = made.token.expose();
    assert!(secret.starts_with("spt_") && secret.len() == 47, "{secret}");
    assert_eq!(serde_json::to_value(&made.details.scopes).unwrap(), json!(["account:read", "sockets:read"]));

    let listed = api.get("/v1/tokens", Some(secret)).await;
    assert!(!listed.text.contains(secret));
    assert_eq!(listed.read::<Page<Token>>(StatusCode::OK).items, vec![made.details.clone()]);

    let path = format!("/v1/tokens/{}", made.details.id);
    assert_eq!(api.send("DELETE", &path, Some(&token), None).await.status, StatusCode::NO_CONTENT);
    api.get("/v1/account", Some(secret)).await.assert_problem(StatusCode::UNAUTHORIZED, "bad-token");
    api.send("DELETE", &path, Some(&token), None).await.assert_problem(StatusCode::NOT_FOUND, "not-found");
}

#[tokio::test]
async fn each_endpoint_requires_its_scope() {
    let api = Api::start().await;
    let owner = api.account("ann@example.com").await;
    let socket = api.socket(&owner, "s").await;
    let tunnel = api.tunnel(&owner, &socket).await;
    let s = format!("/v1/sockets/{}", socket.id);
    let t = format!("{s}/tunnels/{}", tunnel.details.id);
    let endpoints = [
        ("GET", "/v1/account".to_owned(), "account:read"),
        ("DELETE", "/v1/account".to_owned(), "account:write"),
        ("GET", "/v1/tokens".to_owned(), "account:read"),
        ("POST", "/v1/tokens".to_owned(), "account:write"),
        ("DELETE", "/v1/tokens/x".to_owned(), "account:write"),
        ("GET", "/v1/sockets".to_owned(), "sockets:read"),
        ("POST", "/v1/sockets".to_owned(), "sockets:write"),
        ("GET", s.clone(), "sockets:read"),
        ("PATCH", s.clone(), "sockets:write"),
        ("DELETE", s.clone(), "sockets:write"),
        ("GET", format!("{s}/tunnels"), "sockets:read"),
        ("POST", format!("{s}/tunnels"), "tunnels:connect"),
        ("GET", t.clone(), "sockets:read"),
        ("DELETE", t.clone(), "sockets:write"),
        ("POST", format!("{t}/credential"), "sockets:write"),
    ];
    let for_connectors = [("GET", &s), ("GET", &format!("{s}/tunnels")), ("GET", &t), ("DELETE", &t)];
    let bodies = |method: &str, path: &str| match (method, path) {
        ("POST", "/v1/tokens") => Some(json!({"name": "x", "scopes": ["account:read"]})),
        ("POST", "/v1/sockets") => Some(json!({"name": "x"})),
        ("PATCH", _) => Some(json!({})),
        _ => None,
    };
    for scope in sallyport_model::Scope::ALL.map(sallyport_model::Scope::as_str) {
        let token = api.api_token(&owner, &[scope]).await;
        for (method, path, needed) in &endpoints {
            let allowed = scope == *needed
                || (scope == "account:write" && *needed == "account:read")
                || (scope == "sockets:write" && ["sockets:read", "tunnels:connect"].contains(needed))
                || (scope == "tunnels:connect" && for_connectors.contains(&(*method, path)));
            if allowed {
                continue;
            }
            let response = api.send(method, path, Some(&token), bodies(method, path)).await;
            let detail = response.assert_problem(StatusCode::FORBIDDEN, "missing-scope");
            assert!(detail.contains(needed), "{method} {path} with {scope}: {detail}");
        }
    }
    let connect = api.api_token(&owner, &["tunnels:connect"]).await;
    for path in [&s, &format!("/v1/sockets/{}", socket.dns_name), &format!("{s}/tunnels"), &t] {
        assert_eq!(api.get(path, Some(&connect)).await.status, StatusCode::OK, "{path}");
    }
    let made = api.tunnel(&connect, &socket).await.details.id;
    let made = format!("{s}/tunnels/{made}");
    assert_eq!(api.send("DELETE", &made, Some(&connect), None).await.status, StatusCode::NO_CONTENT);
    let read = api.api_token(&owner, &["sockets:read"]).await;
    assert_eq!(api.get(&t, Some(&read)).await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_token_never_makes_a_stronger_or_longer_one() {
    let api = Api::start().await;
    let owner = api.account("ann@example.com").await;
    let weak = api.api_token(&owner, &["account:write"]).await;
    let body = json!({"name": "x", "scopes": ["account:read", "sockets:read"]});
    let detail = api.post("/v1/tokens", Some(&weak), body).await.assert_problem(StatusCode::FORBIDDEN, "missing-scope");
    assert!(detail.contains("sockets:read"), "{detail}");
    let body = json!({"name": "x", "scopes": ["account:read"]});
    assert_eq!(api.post("/v1/tokens", Some(&weak), body.clone()).await.status, StatusCode::CREATED);

    let body_until = |date: &str| json!({"name": "x", "scopes": ["account:write"], "expires_at": date});
    let short: CreatedToken =
        api.post("/v1/tokens", Some(&owner), body_until("2027-01-15T09:00:00Z")).await.read(StatusCode::CREATED);
    assert_eq!(short.details.expires_at.unwrap().unix_timestamp(), START + 3_600);
    let short = short.token.expose();
    api.post("/v1/tokens", Some(short), body).await.assert_problem(StatusCode::FORBIDDEN, "outlives-its-maker");
    api.post("/v1/tokens", Some(short), body_until("2027-01-15T09:00:01Z"))
        .await
        .assert_problem(StatusCode::FORBIDDEN, "outlives-its-maker");
    assert_eq!(
        api.post("/v1/tokens", Some(short), body_until("2027-01-15T10:00:00+01:00")).await.status,
        StatusCode::CREATED
    );

    api.clock.pass(3_600);
    api.get("/v1/account", Some(short)).await.assert_problem(StatusCode::UNAUTHORIZED, "expired-token");
}

#[tokio::test]
async fn bad_tokens_are_refused() {
    let api = Api::start().await;
    let owner = api.account("ann@example.com").await;
    for (body, field) in [
        (json!({"name": "x", "scopes": []}), "scopes"),
        (json!({"name": "x", "scopes": ["root"]}), "scopes[0]"),
        (json!({"name": "x"}), "scopes"),
        (json!({"name": "x", "scopes": ["account:read"], "expires_at": "tomorrow"}), "expires_at"),
        (json!({"name": "x", "scopes": ["account:read"], "expires_at": "2027-01-15T08:00:00Z"}), "expires_at"),
    ] {
        let response = api.post("/v1/tokens", Some(&owner), body.clone()).await;
        response.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-request");
        assert_eq!(response.field(), field, "{body}");
    }
    assert!(api.get("/v1/tokens", Some(&owner)).await.read::<Page<Token>>(StatusCode::OK).items.is_empty());
}

#[tokio::test]
async fn an_account_has_a_hundred_tokens_and_only_its_own() {
    let api = Api::start().await;
    let ann = api.account("ann@example.com").await;
    let bob = api.account("bob@example.com").await;
    let of_bob = api.post("/v1/tokens", Some(&bob), json!({"name": "b", "scopes": ["account:read"]})).await;
    let of_bob: CreatedToken = of_bob.read(StatusCode::CREATED);
    for _ in 0..100 {
        api.api_token(&ann, &["account:read"]).await;
    }
    let body = json!({"name": "one more", "scopes": ["account:read"]});
    let detail = api.post("/v1/tokens", Some(&ann), body).await.assert_problem(StatusCode::CONFLICT, "limit-reached");
    assert!(detail.contains("100 API tokens"), "{detail}");
    let path = format!("/v1/tokens/{}", of_bob.details.id);
    api.send("DELETE", &path, Some(&ann), None).await.assert_problem(StatusCode::NOT_FOUND, "not-found");
    assert_eq!(api.get("/v1/account", Some(of_bob.token.expose())).await.status, StatusCode::OK);
}
