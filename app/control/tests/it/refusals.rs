//! Requests that are wrong before they reach a handler.

use std::process::Command;

use axum::body::Body;
use http::{Request, StatusCode, header};

use serde_json::json;

use crate::harness::{Api, HttpResponse};

async fn post_raw(api: &Api, content_type: Option<&str>, body: impl Into<Body>) -> HttpResponse {
    let mut request = Request::post("/v1/login");
    if let Some(content_type) = content_type {
        request = request.header(header::CONTENT_TYPE, content_type);
    }
    api.raw(request.body(body.into()).unwrap()).await
}

#[tokio::test]
async fn bodies_that_are_not_json_are_refused() {
    let api = Api::start().await;
    let json = Some("application/json");
    for body in ["{", "nonsense", "{\"email\":\"a@example.com\",\"password\":\"x\"} more", "{'a':1}", "\u{0}"] {
        post_raw(&api, json, body).await.assert_problem(StatusCode::BAD_REQUEST, "bad-json");
    }
    let deep = "[".repeat(10_000);
    assert!(post_raw(&api, json, deep).await.status.is_client_error());
    post_raw(&api, json, vec![0xff, 0xfe]).await.assert_problem(StatusCode::BAD_REQUEST, "bad-json");
    for body in ["[]", "null", "3", "\"x\""] {
        post_raw(&api, json, body).await.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-request");
    }
    let twice = "{\"email\":\"a@example.com\",\"email\":\"b@example.com\",\"password\":\"x\"}";
    post_raw(&api, json, twice).await.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-request");
}

#[tokio::test]
async fn bodies_of_another_type_or_size_are_refused() {
    let api = Api::start().await;
    for content_type in [None, Some("text/plain"), Some("application/x-www-form-urlencoded")] {
        post_raw(&api, content_type, "{}").await.assert_problem(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not-json");
    }
    let with_charset = post_raw(&api, Some("Application/JSON; charset=utf-8"), "{}").await;
    with_charset.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-request");
    let big = format!("{{\"email\":\"{}\"}}", "x".repeat(65_536));
    post_raw(&api, Some("application/json"), big).await.assert_problem(StatusCode::PAYLOAD_TOO_LARGE, "body-too-large");
}

#[tokio::test]
async fn unknown_paths_and_methods_are_problems_too() {
    let api = Api::start().await;
    for path in ["/", "/v1", "/v1/sockets/", "/v2/sockets", "/v1/nonsense", "/v1//sockets"] {
        api.get(path, None).await.assert_problem(StatusCode::NOT_FOUND, "no-such-path");
    }
    let response = api.send("PUT", "/v1/sockets", None, None).await;
    response.assert_problem(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed");
    assert_eq!(response.header("allow"), Some("GET,HEAD,POST"));
}

#[tokio::test]
async fn requests_without_a_proper_token_are_refused() {
    let api = Api::start().await;
    api.get("/v1/account", None).await.assert_problem(StatusCode::UNAUTHORIZED, "not-logged-in");
    for value in ["Basic YTpi", "Bearer", "Bearer ", "token"] {
        let request = Request::get("/v1/account").header(header::AUTHORIZATION, value).body(Body::empty()).unwrap();
        api.raw(request).await.assert_problem(StatusCode::UNAUTHORIZED, "bad-token");
    }
    let twice = Request::get("/v1/account")
        .header(header::AUTHORIZATION, "Bearer a")
        .header(header::AUTHORIZATION, "Bearer b")
        .body(Body::empty())
        .unwrap();
    api.raw(twice).await.assert_problem(StatusCode::UNAUTHORIZED, "bad-token");
}

#[tokio::test]
async fn every_response_has_an_id_and_may_not_be_stored() {
    let api = Api::start().await;
    let request = Request::get("/v1/info").header("x-request-id", "from-the-edge-1").body(Body::empty()).unwrap();
    let response = api.raw(request).await;
    assert_eq!(response.header("x-request-id"), Some("from-the-edge-1"));
    assert_eq!(response.header("cache-control"), Some("no-store"));
    assert_eq!(response.header("x-content-type-options"), Some("nosniff"));
    let info: sallyport_api::Info = response.read(StatusCode::OK);
    assert_eq!((info.domain.as_str(), info.tunnel_port, info.tunnel_quic_port), ("localhost", 8443, Some(8444)));
    let request = Request::get("/v1/info").header("x-request-id", "a b<script>").body(Body::empty()).unwrap();
    let id = api.raw(request).await.header("x-request-id").unwrap().to_owned();
    assert_eq!(id.len(), 16, "{id}");
}

#[tokio::test]
async fn a_full_disk_is_reported_and_free_space_repairs_it() {
    let parent = tempfile::tempdir().unwrap();
    let disk = parent.path().join("disk");
    std::fs::create_dir(&disk).unwrap();
    let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"]).arg(&disk).output();
    if !mount.as_ref().is_ok_and(|output| output.status.success()) {
        println!("skipped: a small disk cannot be mounted here: {mount:?}");
        return;
    }
    let api = Api::start_under(&disk).await;
    let token = api.account("ann@example.com").await;
    let socket = api.socket(&token, "kept").await;
    let filler = disk.join("filler");
    let _ = std::fs::write(&filler, vec![1; 1 << 20]);
    let mut full = None;
    for n in 0..900 {
        let response = api.post("/v1/sockets", Some(&token), json!({"name": format!("s{n}")})).await;
        if response.status != StatusCode::CREATED {
            full = Some(response);
            break;
        }
    }
    let detail = full.expect("the disk is full").assert_problem(StatusCode::INSUFFICIENT_STORAGE, "disk-full");
    assert!(detail.contains("nothing was changed"), "{detail}");
    let path = format!("/v1/sockets/{}", socket.id);
    assert_eq!(api.get(&path, Some(&token)).await.status, StatusCode::OK, "reading goes on");
    std::fs::remove_file(filler).unwrap();
    api.socket(&token, "room again").await;
    assert_eq!(api.store.routes().await.unwrap().len(), api.routes.all().len());
    api.store.close().await;
    let unmounted = Command::new("umount").arg("-l").arg(&disk).status().unwrap();
    assert!(unmounted.success());
}

#[tokio::test]
async fn a_failing_store_is_reported_without_internals() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    api.store.close().await;
    let response = api.get("/v1/account", Some(&token)).await;
    let detail = response.assert_problem(StatusCode::INTERNAL_SERVER_ERROR, "internal");
    assert!(!detail.contains("pool") && !detail.contains("database"), "{detail}");
    assert!(api.control.check().await.is_err());
}
