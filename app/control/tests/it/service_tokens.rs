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
    let response = api.post(PATH, Some(&owner), body.clone()).await;
    let made: CreatedServiceToken = response.read(StatusCode::CREATED);
    let (id, secret) = (made.details.id, made.secret.expose().to_owned());
    assert!(secret.starts_with("sps_") && secret.len() == 47, "{secret}");
    let known = api.identities.token(id).unwrap();
    assert_eq!(known.hash, <[u8; 32]>::from(Sha256::digest(&secret)));
    assert_eq!((known.name.as_str(), &known.sockets[..]), ("ci", &[socket.id][..]));
    assert_eq!(known.organisation, api.routes.get(socket.id).unwrap().account);

    let listed = api.get(PATH, Some(&owner)).await;
    assert!(!listed.text.contains(&secret));
    assert_eq!(listed.read::<Page<ServiceToken>>(StatusCode::OK).items, vec![made.details]);
    api.post(PATH, Some(&owner), body).await.assert_problem(StatusCode::CONFLICT, "name-taken");

    let other = api.account("bob@example.com").await;
    let path = format!("{PATH}/{id}");
    api.send("DELETE", &path, Some(&other), None).await.assert_problem(StatusCode::NOT_FOUND, "not-found");
    let theirs = json!({"name": "x", "sockets": [socket.id]});
    api.post(PATH, Some(&other), theirs).await.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-request");

    let api = api.restart().await;
    assert!(api.identities.token(id).is_some(), "it outlives a restart");
    assert_eq!(api.send("DELETE", &path, Some(&owner), None).await.status, StatusCode::NO_CONTENT);
    assert!(api.identities.token(id).is_none());
    api.send("DELETE", &path, Some(&owner), None).await.assert_problem(StatusCode::NOT_FOUND, "not-found");
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
        let response = api.post(PATH, Some(&owner), body).await;
        assert!(response.status.is_client_error(), "{}", response.text);
    }
    let scoped = json!({"name": "reads", "scopes": ["identity:read"]});
    let reader: sallyport_api::CreatedToken =
        api.post("/v1/tokens", Some(&owner), scoped).await.read(StatusCode::CREATED);
    let reader = reader.token.expose();
    assert_eq!(api.get(PATH, Some(reader)).await.status, StatusCode::OK);
    api.post(PATH, Some(reader), json!({"name": "ci"})).await.assert_problem(StatusCode::FORBIDDEN, "missing-scope");
    api.get(PATH, None).await.assert_problem(StatusCode::UNAUTHORIZED, "not-logged-in");
}

#[tokio::test]
async fn a_scope_is_shown_known_to_edges_and_refused_when_nothing_is_in_it() {
    let api = Api::start().await;
    let owner = api.account("ann@example.com").await;
    let scope = json!({"read_only": true, "paths": ["/api", "/api"], "ports": [443], "types": ["http"]});
    let body = json!({"name": "ci", "scope": scope});
    let made: CreatedServiceToken = api.post(PATH, Some(&owner), body).await.read(StatusCode::CREATED);
    let path = format!("{PATH}/{}", made.details.id);
    let shown: ServiceToken = api.get(&path, Some(&owner)).await.read(StatusCode::OK);
    assert_eq!((shown.scope.read_only, &shown.scope.paths[..]), (true, &["/api".to_owned()][..]));
    assert_eq!(api.identities.token(made.details.id).unwrap().scope, shown.scope);
    let api = api.restart().await;
    assert_eq!(api.identities.token(made.details.id).unwrap().scope, shown.scope, "it outlives a restart");
    for scope in [
        json!({"paths": ["api"]}),
        json!({"methods": ["GE T"]}),
        json!({"read_only": true, "methods": ["POST"]}),
        json!({"types": ["tcp"]}),
        json!({"ports": [0]}),
        json!({"hosts": ["x"]}),
    ] {
        let response = api.post(PATH, Some(&owner), json!({"name": "x", "scope": scope})).await;
        assert!(response.status.is_client_error(), "{}", response.text);
    }
    let other = api.account("bob@example.com").await;
    api.get(&path, Some(&other)).await.assert_problem(StatusCode::NOT_FOUND, "not-found");
}

#[tokio::test]
async fn a_certificate_of_a_token_ends_with_it_and_edges_request_client_certificates() {
    let api = Api::start().await;
    let owner = api.account("ann@example.com").await;
    let body = json!({"name": "web", "identity": {"email_domains": ["example.com"]}});
    let socket: sallyport_api::Socket = api.post("/v1/sockets", Some(&owner), body).await.read(StatusCode::CREATED);
    let organisation = api.routes.get(socket.id).unwrap().account;
    assert!(api.routes.get(socket.id).unwrap().client_authority.is_none());
    let end = time::OffsetDateTime::from_unix_timestamp(START + 3_600).unwrap();
    let end = end.format(&time::format_description::well_known::Rfc3339).unwrap();
    let body = json!({"name": "ci", "expires_at": end});
    let made: CreatedServiceToken = api.post(PATH, Some(&owner), body).await.read(StatusCode::CREATED);
    let id = made.details.id;
    let path = format!("{PATH}/{id}/certificate");
    let key = sallyport_pki::KeyPair::generate_for(&sallyport_pki::PKCS_ECDSA_P256_SHA256).unwrap();
    let csr = sallyport_pki::certificate_request(&key).unwrap();
    for (body, code) in [
        (json!({"csr": "nonsense"}), "invalid-request"),
        (json!({"csr": csr, "days": 0}), "invalid-request"),
        (json!({"csr": csr, "days": 398}), "invalid-request"),
    ] {
        api.post(&path, Some(&owner), body).await.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, code);
    }
    assert!(!api.identities.has_certificates(organisation, START));
    let response = api.post(&path, Some(&owner), json!({"csr": csr})).await;
    let given: sallyport_api::ServiceTokenCertificate = response.read(StatusCode::OK);
    assert_eq!(given.valid_until.unix_timestamp(), START + 3_600, "not longer than the token");
    assert!(given.certificate.starts_with("-----BEGIN CERTIFICATE-----") && given.serial.len() == 32);
    assert!(api.identities.has_certificates(organisation, START));
    assert!(!api.identities.has_certificates(organisation, START + 3_600));
    let route = api.routes.get(socket.id).unwrap();
    let der = route.client_authority.as_deref().map(sallyport_pki::certificate_pem);
    assert_eq!(der.as_deref(), Some(given.authority.as_str()), "edges have the authority's certificate");
    let shown: ServiceToken = api.get(&format!("{PATH}/{id}"), Some(&owner)).await.read(StatusCode::OK);
    assert_eq!(shown.certified_until, Some(given.valid_until));

    let other = api.account("bob@example.com").await;
    api.post(&path, Some(&other), json!({"csr": csr})).await.assert_problem(StatusCode::NOT_FOUND, "not-found");
    let scopes = json!({"name": "writes", "scopes": ["identity:write"]});
    let writer: sallyport_api::CreatedToken =
        api.post("/v1/tokens", Some(&owner), scopes).await.read(StatusCode::CREATED);
    api.clock.pass(3_601);
    let late = api.post(&path, Some(writer.token.expose()), json!({"csr": csr})).await;
    late.assert_problem(StatusCode::CONFLICT, "token-ended");
}
