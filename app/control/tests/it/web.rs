//! What owners of web services set: paths of tunnels and direct origins, the host, header fields.

use http::StatusCode;
use sallyport_api::{CreatedTunnel, DirectOrigin, Socket, Tunnel};
use sallyport_model::{HostHeader, OriginRef};
use serde_json::{Value, json};

use crate::harness::Api;

/// The prefix and the replacement of each origin, as edges know them.
fn paths(api: &Api, socket: &Socket) -> Vec<(String, Option<String>)> {
    let route = api.routes.get(socket.id).unwrap();
    let shown = |(_, path): (OriginRef, &sallyport_model::PathRoute)| {
        (path.prefix.to_string(), path.rewrite.as_ref().map(ToString::to_string))
    };
    route.paths().map(shown).collect()
}

fn pair(prefix: &str, rewrite: Option<&str>) -> (String, Option<String>) {
    (prefix.to_owned(), rewrite.map(str::to_owned))
}

#[tokio::test]
async fn tunnels_and_direct_origins_have_paths_that_edges_know() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    let socket = api.socket(&token, "web").await;
    let tunnels = format!("/v1/sockets/{}/tunnels", socket.id);
    let made = api.post(&tunnels, Some(&token), json!({"path": "/api/", "rewrite_path": "/"})).await;
    let made: CreatedTunnel = made.read(StatusCode::CREATED);
    assert_eq!((made.details.path.as_str(), made.details.rewrite_path.unwrap().as_str()), ("/api", "/"));
    let origins = format!("/v1/sockets/{}/origins", socket.id);
    let origin = api.post(&origins, Some(&token), json!({"address": "10.0.0.7:80", "path": "/docs"})).await;
    let origin: DirectOrigin = origin.read(StatusCode::CREATED);
    assert_eq!((origin.path.as_str(), origin.rewrite_path), ("/docs", None));
    assert_eq!(paths(&api, &socket), [pair("/api", Some("/")), pair("/docs", None)]);

    let one = format!("{tunnels}/{}", made.details.id);
    let patch = async |at: &str, body: Value| api.send("PATCH", at, Some(&token), Some(body)).await;
    let changed: Tunnel = patch(&one, json!({"rewrite_path": null})).await.read(StatusCode::OK);
    assert_eq!((changed.path.as_str(), changed.rewrite_path, changed.weight), ("/api", None, 100));
    let changed: Tunnel = patch(&one, json!({"path": null, "weight": 7})).await.read(StatusCode::OK);
    assert_eq!((changed.path.as_str(), changed.weight), ("/", 7));
    let direct = format!("{origins}/{}", origin.id);
    let moved: DirectOrigin = patch(&direct, json!({"path": "/v2", "rewrite_path": "/x/y"})).await.read(StatusCode::OK);
    assert_eq!(moved.path.as_str(), "/v2");
    let api = api.restart().await;
    assert_eq!(paths(&api, &socket), [pair("/", None), pair("/v2", Some("/x/y"))]);

    let patch = async |at: &str, body: Value| api.send("PATCH", at, Some(&token), Some(body)).await;
    for (at, body, field) in [
        (&one, json!({"path": "api"}), "path"),
        (&one, json!({"path": "/a//b"}), "path"),
        (&one, json!({"path": "/%61"}), "path"),
        (&one, json!({"rewrite_path": "/../x"}), "rewrite_path"),
        (&direct, json!({"path": "/a;b"}), "path"),
    ] {
        let response = patch(at, body.clone()).await;
        let detail = response.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-request");
        assert!(detail.contains("is no path prefix") && response.field() == field, "{body}: {detail}");
    }
    patch(&one, json!({})).await.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-request");
}

#[tokio::test]
async fn sockets_that_are_not_of_the_web_refuse_all_of_it() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    let made = api.post("/v1/sockets", Some(&token), json!({"name": "db", "type": "tcp"})).await;
    let socket: Socket = made.read(StatusCode::CREATED);
    let tunnels = format!("/v1/sockets/{}/tunnels", socket.id);
    let response = api.post(&tunnels, Some(&token), json!({"path": "/api"})).await;
    let detail = response.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-request");
    assert!(detail.contains("paths are for http and https sockets"), "{detail}");
    let tunnel: CreatedTunnel = api.post(&tunnels, Some(&token), json!({})).await.read(StatusCode::CREATED);
    let one = format!("{tunnels}/{}", tunnel.details.id);
    let response = api.send("PATCH", &one, Some(&token), Some(json!({"rewrite_path": "/v2"}))).await;
    assert_eq!(response.field(), "rewrite_path");
    let at = format!("/v1/sockets/{}", socket.id);
    for (body, field) in [
        (json!({"host_header": "localhost"}), "host_header"),
        (json!({"headers": {"request": {"remove": ["Cookie"]}}}), "headers"),
    ] {
        let response = api.send("PATCH", &at, Some(&token), Some(body)).await;
        let detail = response.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-request");
        assert!(detail.contains("http and https sockets") && response.field() == field, "{detail}");
    }
}

#[tokio::test]
async fn the_host_and_header_fields_are_kept_and_bounded() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    let headers = json!({"request": {"set": [{"name": "X-A", "value": "b"}]}, "response": {"remove": ["Server"]}});
    let body = json!({"name": "web", "host_header": "LOCALHOST:3000", "headers": headers});
    let socket: Socket = api.post("/v1/sockets", Some(&token), body).await.read(StatusCode::CREATED);
    assert_eq!(socket.host_header, Some("localhost:3000".parse().unwrap()));
    assert_eq!(serde_json::to_value(&socket.headers).unwrap(), headers);
    let at = format!("/v1/sockets/{}", socket.id);
    let patch = async |body: Value| api.send("PATCH", &at, Some(&token), Some(body)).await;
    let changed: Socket = patch(json!({"host_header": "origin", "headers": null})).await.read(StatusCode::OK);
    assert_eq!((changed.host_header, changed.headers.is_empty()), (Some(HostHeader::Origin), true));
    let settings = api.routes.get(socket.id).unwrap().settings.clone();
    assert_eq!((settings.host_header, settings.headers.is_empty()), (Some(HostHeader::Origin), true));
    let changed: Socket = patch(json!({"host_header": null})).await.read(StatusCode::OK);
    assert_eq!(changed.host_header, None);

    let set = |name: &str, value: &str| json!({"headers": {"request": {"set": [{"name": name, "value": value}]}}});
    for (body, says) in [
        (json!({"host_header": "http://a"}), "is no host"),
        (set("Host", "a"), "a setting of its own"),
        (set("X-Auth-Email", "a@b.c"), "the source of a request"),
        (set("x_forwarded_for", "1.1.1.1"), "the source of a request"),
        (set("Content-Length", "1"), "the framing of the body"),
        (set("Connection", "close"), "concerns one connection"),
        (set("X-A", "b\r\nX-B: c"), "is not one line"),
        (set("X A", "b"), "is no name of a header field"),
        (json!({"headers": {"response": {"remove": vec!["X-A"; 33]}}}), "at most 32"),
        (json!({"headers": {"request": {"add": []}}}), "there is no such field"),
    ] {
        let response = patch(body.clone()).await;
        let detail = response.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-request");
        assert!(detail.contains(says), "{body}: {detail}");
    }
}
