//! Idempotency keys: one request, one creation.

use http::StatusCode;
use sallyport_api::{CreatedTunnel, Page, Socket, Token, Tunnel};
use serde_json::{Value, json};

use crate::harness::Api;

#[tokio::test]
async fn the_same_key_and_body_give_the_same_socket() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    let body = json!({"name": "s", "protected": {"username": "u", "password": "p"}});
    let first = api.post_keyed("/v1/sockets", &token, "key-1", body.clone()).await;
    assert_eq!((first.status, first.header("idempotency-replayed")), (StatusCode::CREATED, None));
    let socket: Socket = first.read(StatusCode::CREATED);
    let patch = Some(json!({"name": "renamed since"}));
    api.send("PATCH", &format!("/v1/sockets/{}", socket.id), Some(&token), patch).await;

    let api = api.restart().await;
    let again = api.post_keyed("/v1/sockets", &token, "key-1", body.clone()).await;
    assert_eq!((again.status, &again.text), (first.status, &first.text));
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(again.header("location"), first.header("location"));
    assert_eq!(api.get("/v1/sockets", Some(&token)).await.read::<Page<Socket>>(StatusCode::OK).items.len(), 1);

    let other_body = json!({"name": "other"});
    api.post_keyed("/v1/sockets", &token, "key-1", other_body)
        .await
        .assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "idempotency-key-reused");
    let path = format!("/v1/sockets/{}/tunnels", socket.id);
    api.post_keyed(&path, &token, "key-1", json!({}))
        .await
        .assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "idempotency-key-reused");

    api.clock.pass(24 * 3_600);
    let token = api.login("ann@example.com").await.access_token;
    let later: Socket = api.post_keyed("/v1/sockets", token.expose(), "key-1", body).await.read(StatusCode::CREATED);
    assert_ne!(later.id, socket.id, "a key is remembered for a day");
}

#[tokio::test]
async fn keys_of_different_accounts_do_not_meet() {
    let api = Api::start().await;
    let ann = api.account("ann@example.com").await;
    let bob = api.account("bob@example.com").await;
    let a: Socket = api.post_keyed("/v1/sockets", &ann, "k", json!({"name": "s"})).await.read(StatusCode::CREATED);
    let b: Socket = api.post_keyed("/v1/sockets", &bob, "k", json!({"name": "s"})).await.read(StatusCode::CREATED);
    assert_ne!(a.id, b.id);
}

#[tokio::test]
async fn twenty_requests_with_one_key_make_one_socket() {
    let api = std::sync::Arc::new(Api::start().await);
    let token = api.account("ann@example.com").await;
    let mut making = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let (api, token) = (api.clone(), token.clone());
        making.spawn(async move { api.post_keyed("/v1/sockets", &token, "k", json!({"name": "s"})).await.text });
    }
    let answers = making.join_all().await;
    assert!(answers.iter().all(|response| *response == answers[0]));
    assert_eq!(api.routes.all().len(), 1);
}

#[tokio::test]
async fn a_secret_is_not_shown_twice_and_the_way_out_works() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    let socket = api.socket(&token, "s").await;
    let path = format!("/v1/sockets/{}/tunnels", socket.id);
    let first: CreatedTunnel = api.post_keyed(&path, &token, "k", json!({})).await.read(StatusCode::CREATED);
    let again = api.post_keyed(&path, &token, "k", json!({})).await;
    again.assert_problem(StatusCode::CONFLICT, "secret-already-shown");
    let location = again.header("location").unwrap().to_owned();
    assert_eq!(api.get(&location, Some(&token)).await.read::<Tunnel>(StatusCode::OK).id, first.details.id);
    let next = api.send("POST", &format!("{location}/credential"), Some(&token), None).await;
    assert_eq!(next.status, StatusCode::OK);

    let body = json!({"name": "t", "scopes": ["account:read"]});
    assert_eq!(api.post_keyed("/v1/tokens", &token, "k2", body.clone()).await.status, StatusCode::CREATED);
    let again = api.post_keyed("/v1/tokens", &token, "k2", body).await;
    again.assert_problem(StatusCode::CONFLICT, "secret-already-shown");
    assert_eq!(api.get("/v1/tokens", Some(&token)).await.read::<Page<Token>>(StatusCode::OK).items.len(), 1);
}

#[tokio::test]
async fn bad_keys_are_refused() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    for key in ["", " ", "two words", &"k".repeat(129)] {
        api.post_keyed("/v1/sockets", &token, key, json!({"name": "s"}))
            .await
            .assert_problem(StatusCode::BAD_REQUEST, "bad-idempotency-key");
    }
    assert!(api.routes.all().is_empty());
}

#[test]
fn every_creation_takes_a_key() {
    let description: Value = serde_json::from_str(&sallyport_control::openapi_json()).unwrap();
    let creations = description["paths"].as_object().unwrap().values().map(|path| &path["post"]);
    let creations: Vec<_> = creations.filter(|post| !post["responses"]["201"].is_null()).collect();
    assert!(creations.len() >= 18, "{}", creations.len());
    let is_keyed = |post: &&Value| {
        let parameters = post["parameters"].as_array().into_iter().flatten();
        parameters.into_iter().any(|parameter| parameter["name"] == "idempotency-key")
    };
    let without: Vec<_> = creations.iter().filter(|post| !is_keyed(post)).map(|post| &post["operationId"]).collect();
    // An account is not made by anyone who has keys: a repetition gets 409 with its place.
    assert_eq!(without, ["create_account"]);
}

#[tokio::test]
async fn what_is_unique_by_its_name_is_made_once_for_each_key_too() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    let document = json!({"allow": [{"who": {"anyone": true}}]});
    for (path, body) in [
        ("/v1/policies", json!({"name": "staff", "document": document})),
        ("/v1/ssh-keys", json!({"public_key": crate::ssh::KEY})),
    ] {
        let first = api.post_keyed(path, &token, path, body.clone()).await;
        assert_eq!(first.status, StatusCode::CREATED, "{}", first.text);
        let again = api.post_keyed(path, &token, path, body.clone()).await;
        assert_eq!((again.status, &again.text), (StatusCode::CREATED, &first.text));
        assert_eq!(again.header("location"), first.header("location"));
        assert_eq!((first.header("idempotency-replayed"), again.header("idempotency-replayed")), (None, Some("true")));
        // Another request of the same key, and the same one with another key.
        let mut other = body.clone();
        other["name"] = json!("other");
        let refused = api.post_keyed(path, &token, path, other).await;
        refused.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "idempotency-key-reused");
        assert_eq!(api.post_keyed(path, &token, "another-key", body).await.status, StatusCode::CONFLICT);
    }
    // A refused request leaves its key free.
    let wrong = json!({"name": "late", "document": {"allow": []}});
    let refused = api.post_keyed("/v1/policies", &token, "late", wrong).await;
    assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY, "{}", refused.text);
    let right = json!({"name": "late", "document": document});
    let made = api.post_keyed("/v1/policies", &token, "late", right).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.text);
    // A response with a secret is not kept.
    let invite = json!({"email": "bob@example.com", "role": "viewer"});
    let first = api.post_keyed("/v1/invitations", &token, "bob", invite.clone()).await;
    assert_eq!(first.status, StatusCode::CREATED, "{}", first.text);
    let again = api.post_keyed("/v1/invitations", &token, "bob", invite).await;
    let detail = again.assert_problem(StatusCode::CONFLICT, "secret-already-shown");
    assert!(detail.contains("invite the address again"), "{detail}");
    assert_eq!(again.header("location"), first.header("location"));
}

#[tokio::test]
async fn a_creation_whose_end_nobody_knows_is_not_repeated() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    let document = json!({"allow": [{"who": {"anyone": true}}]});
    let body = json!({"name": "staff", "document": document});
    let both = [(); 8].map(|()| api.post_keyed("/v1/policies", &token, "k", body.clone()));
    let mut texts = Vec::new();
    for response in crate::etags::futures_of(both.into_iter()).await {
        match response.status {
            StatusCode::CREATED => texts.push(response.text),
            _ => drop(response.assert_problem(StatusCode::CONFLICT, "request-pending")),
        }
    }
    assert!(!texts.is_empty() && texts.iter().all(|text| *text == texts[0]), "{texts:?}");
    let listed: Value = api.get("/v1/policies", Some(&token)).await.json();
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
}
