//! Service tokens, and what edges know of them.

use http::StatusCode;
use sallyport_api::{CreatedServiceToken, Page, ServiceToken};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::harness::{Api, START};

const PATH: &str = "/v1/service-tokens";

#[tokio::test]
async fn a_service_token_is_shown_once_known_to_edges_and_gone_at_once() {
    let api = Api::start().await;
    let owner = api.account("ann@example.com").await;
    let socket = api.socket(&owner, "s").await;
    let body = json!({"name": "ci", "sockets": [socket.id, socket.id]});
    let answer = api.post(PATH, Some(&owner), body.clone()).await;
    let made: CreatedServiceToken = answer.read(StatusCode::CREATED);
    let (id, secret) = (made.details.id, made.secret.expose().to_owned());
    assert!(secret.starts_with("sps_") && secret.len() == 47, "{secret}");
    let known = api.identities.token(id).unwrap();
    assert_eq!(known.hash, <[u8; 32]>::from(Sha256::digest(&secret)));
    assert_eq!((known.name.as_str(), &known.sockets[..]), ("ci", &[socket.id][..]));
    assert_eq!(known.organisation, api.routes.get(socket.id).unwrap().account);

    let listed = api.get(PATH, Some(&owner)).await;
    assert!(!listed.text.contains(&secret));
    assert_eq!(listed.read::<Page<ServiceToken>>(StatusCode::OK).items, vec![made.details]);
    api.post(PATH, Some(&owner), body).await.is_problem(StatusCode::CONFLICT, "name-taken");

    let other = api.account("bob@example.com").await;
    let path = format!("{PATH}/{id}");
    api.send("DELETE", &path, Some(&other), None).await.is_problem(StatusCode::NOT_FOUND, "not-found");
    let theirs = json!({"name": "x", "sockets": [socket.id]});
    api.post(PATH, Some(&other), theirs).await.is_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-request");

    let api = api.restart().await;
    assert!(api.identities.token(id).is_some(), "it outlives a restart");
    assert_eq!(api.send("DELETE", &path, Some(&owner), None).await.status, StatusCode::NO_CONTENT);
    assert!(api.identities.token(id).is_none());
    api.send("DELETE", &path, Some(&owner), None).await.is_problem(StatusCode::NOT_FOUND, "not-found");
}

#[tokio::test]
async fn bad_ends_and_missing_scopes_are_refused() {
    let api = Api::start().await;
    let owner = api.account("ann@example.com").await;
    let past = time::OffsetDateTime::from_unix_timestamp(START - 1).unwrap();
    let past = past.format(&time::format_description::well_known::Rfc3339).unwrap();
    for body in
        [json!({"name": "ci", "expires_at": past}), json!({"name": ""}), json!({}), json!({"name": "x", "a": 1})]
    {
        let answer = api.post(PATH, Some(&owner), body).await;
        assert!(answer.status.is_client_error(), "{}", answer.text);
    }
    let scoped = json!({"name": "reads", "scopes": ["identity:read"]});
    let reader: sallyport_api::CreatedToken =
        api.post("/v1/tokens", Some(&owner), scoped).await.read(StatusCode::CREATED);
    let reader = reader.token.expose();
    assert_eq!(api.get(PATH, Some(reader)).await.status, StatusCode::OK);
    api.post(PATH, Some(reader), json!({"name": "ci"})).await.is_problem(StatusCode::FORBIDDEN, "missing-scope");
    api.get(PATH, None).await.is_problem(StatusCode::UNAUTHORIZED, "not-logged-in");
}
