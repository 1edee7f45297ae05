//! Names address sockets and tunnels wherever ids do.

use http::StatusCode;
use sallyport_api::{CreatedTunnel, Page, Socket, Tunnel};
use serde_json::json;

use crate::harness::Api;

#[tokio::test]
async fn a_socket_goes_by_its_name_in_every_path() {
    let api = Api::start().await;
    let ann = api.account("ann@example.com").await;
    let bob = api.account("bob@example.com").await;
    let socket = api.socket(&ann, "My /?#%é;.. Service").await;
    let other = api.socket(&ann, "other").await;
    let short = &socket.id.to_string()[..8];
    for text in ["My%20%2F%3F%23%25%C3%A9%3B%2E%2E%20Service", "my%20%20%2F%3F%23%25%C3%89%3B..%20SERVICE", short] {
        let path = format!("/v1/sockets/{text}");
        assert_eq!(api.get(&path, Some(&ann)).await.read::<Socket>(StatusCode::OK).id, socket.id, "{text}");
        api.get(&path, Some(&bob)).await.assert_problem(StatusCode::NOT_FOUND, "not-found");
        assert_eq!(api.get(&format!("{path}/tunnels"), Some(&ann)).await.status, StatusCode::OK, "{text}");
        assert_eq!(api.get(&format!("{path}/stats"), Some(&ann)).await.status, StatusCode::OK, "{text}");
    }
    let refused = api.post("/v1/sockets", Some(&ann), json!({"name": "OTHER"})).await;
    let says = refused.assert_problem(StatusCode::CONFLICT, "name-taken");
    assert!(says.contains(&*other.label().unwrap().to_string()), "{says}");
    api.socket(&bob, "other").await;
    let whole = socket.id.to_string();
    for bad in [&whole, &whole.to_uppercase().replace('-', ""), &whole[..8], "DEADBEEF"] {
        let refused = api.post("/v1/sockets", Some(&ann), json!({ "name": bad })).await;
        refused.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-request");
    }
    // A name cannot be another socket's public name, which takes precedence.
    let label = other.label().unwrap().to_string();
    let path = format!("/v1/sockets/{}", socket.id);
    let refused = api.send("PATCH", &path, Some(&ann), Some(json!({ "name": label }))).await;
    refused.assert_problem(StatusCode::CONFLICT, "name-taken");
    let renamed = api.send("PATCH", &path, Some(&ann), Some(json!({"name": "new"}))).await;
    assert_eq!(renamed.read::<Socket>(StatusCode::OK).name.as_str(), "new");
    assert_eq!(api.get("/v1/sockets/NEW", Some(&ann)).await.status, StatusCode::OK);
    assert_eq!(api.send("DELETE", "/v1/sockets/new", Some(&ann), None).await.status, StatusCode::NO_CONTENT);
    api.get("/v1/sockets/new", Some(&ann)).await.assert_problem(StatusCode::NOT_FOUND, "not-found");
    api.socket(&ann, "new").await;
}

#[tokio::test]
async fn a_tunnel_goes_by_its_name_with_and_without_its_socket() {
    let api = Api::start().await;
    let ann = api.account("ann@example.com").await;
    let bob = api.account("bob@example.com").await;
    let (blog, shop) = (api.socket(&ann, "blog").await, api.socket(&ann, "shop").await);
    let make = async |socket: &str, body| api.post(&format!("/v1/sockets/{socket}/tunnels"), Some(&ann), body).await;
    let web: CreatedTunnel = make("blog", json!({"name": "web 1"})).await.read(StatusCode::CREATED);
    assert_eq!(web.details.name.as_ref().map(ToString::to_string).as_deref(), Some("web 1"));
    make("shop", json!({"name": "Web 1"})).await.assert_problem(StatusCode::CONFLICT, "name-taken");
    let plain: CreatedTunnel = make("shop", json!({})).await.read(StatusCode::CREATED);
    let short = plain.details.id.to_string()[..8].to_owned();

    let at = |socket: &str, tunnel: &str| format!("/v1/sockets/{socket}/tunnels/{tunnel}");
    for (socket, tunnel, id) in [
        ("blog", "WEB%201", web.details.id),
        ("-", "web%201", web.details.id),
        ("-", &*short, plain.details.id),
        ("shop", &*plain.details.id.to_string(), plain.details.id),
    ] {
        let found: Tunnel = api.get(&at(socket, tunnel), Some(&ann)).await.read(StatusCode::OK);
        assert_eq!(found.id, id, "{socket} {tunnel}");
        assert_eq!(api.get(&at(socket, tunnel), Some(&bob)).await.status, StatusCode::NOT_FOUND, "{socket} {tunnel}");
    }
    api.get(&at("shop", "web%201"), Some(&ann)).await.assert_problem(StatusCode::NOT_FOUND, "not-found");
    let all: Page<Tunnel> = api.get("/v1/sockets/-/tunnels", Some(&ann)).await.read(StatusCode::OK);
    assert_eq!(all.items.iter().map(|one| one.socket_id).collect::<Vec<_>>(), [blog.id, shop.id]);
    let first: Page<Tunnel> = api.get("/v1/sockets/-/tunnels?limit=1", Some(&ann)).await.read(StatusCode::OK);
    let next = format!("/v1/sockets/-/tunnels?after={}", first.next.unwrap());
    assert_eq!(api.get(&next, Some(&ann)).await.read::<Page<Tunnel>>(StatusCode::OK).items.len(), 1);
    let none: Page<Tunnel> = api.get("/v1/sockets/-/tunnels", Some(&bob)).await.read(StatusCode::OK);
    assert_eq!(none.items, []);

    let patch = async |path: &str, body| api.send("PATCH", path, Some(&ann), Some(body)).await;
    patch(&at("-", &short), json!({"name": "web 1"})).await.assert_problem(StatusCode::CONFLICT, "name-taken");
    patch(&at("-", &short), json!({})).await.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-request");
    let named: Tunnel = patch(&at("-", &short), json!({"name": "till", "weight": 7})).await.read(StatusCode::OK);
    assert_eq!((named.name.map(|name| name.to_string()).as_deref(), named.weight), (Some("till"), 7));
    let unnamed: Tunnel = patch(&at("-", "till"), json!({"name": null})).await.read(StatusCode::OK);
    assert_eq!((unnamed.name, unnamed.weight), (None, 7));
    let renewed = api.post(&format!("{}/credential", at("-", "web%201")), Some(&ann), json!({})).await;
    assert_eq!(renewed.read::<CreatedTunnel>(StatusCode::OK).details.id, web.details.id);
    assert_eq!(api.send("DELETE", &at("-", "web%201"), Some(&ann), None).await.status, StatusCode::NO_CONTENT);
    api.get(&at("-", "web%201"), Some(&ann)).await.assert_problem(StatusCode::NOT_FOUND, "not-found");
}
