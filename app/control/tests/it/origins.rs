//! Direct origins of sockets, and the dials of their regions.

use http::StatusCode;
use sallyport_api::{DirectOrigin, Page, Socket};
use sallyport_model::MAX_DIRECT_ORIGINS_PER_SOCKET;
use serde_json::{Value, json};

use crate::harness::Api;

async fn add(api: &Api, token: &str, socket: &Socket, body: Value) -> DirectOrigin {
    api.post(&format!("/v1/sockets/{}/origins", socket.id), Some(token), body).await.read(StatusCode::CREATED)
}

#[tokio::test]
async fn an_origin_is_made_changed_and_removed_and_edges_know_it() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    let socket = api.socket(&token, "web").await;
    let first = add(&api, &token, &socket, json!({"address": "10.0.0.7:8080", "region": "eu", "weight": 300})).await;
    assert_eq!((first.address.as_str(), first.weight), ("10.0.0.7:8080", 300));
    let second = add(&api, &token, &socket, json!({"address": "App.Internal:80"})).await;
    assert_eq!((second.address.as_str(), second.region.clone(), second.weight), ("app.internal:80", None, 100));
    let list = format!("/v1/sockets/{}/origins", socket.dns_name);
    let listed: Page<DirectOrigin> = api.get(&list, Some(&token)).await.read(StatusCode::OK);
    assert_eq!(listed.items, [first.clone(), second.clone()]);
    let known = || api.routes.get(socket.id).unwrap().origins.clone();
    assert_eq!(
        known().iter().map(|origin| origin.address.to_string()).collect::<Vec<_>>(),
        ["10.0.0.7:8080", "app.internal:80"]
    );

    let one = format!("{list}/{}", first.id);
    let patch = async |body| api.send("PATCH", &one, Some(&token), Some(body)).await;
    let moved: DirectOrigin = patch(json!({"address": "10.0.0.9:80", "region": null})).await.read(StatusCode::OK);
    assert_eq!((moved.address.as_str(), moved.region, moved.weight), ("10.0.0.9:80", None, 300));
    assert_eq!(known()[0].address.to_string(), "10.0.0.9:80");
    patch(json!({"address": "app.internal:80"})).await.assert_problem(StatusCode::CONFLICT, "origin-taken");
    patch(json!({})).await.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-request");

    let api = api.restart().await;
    let got: DirectOrigin = api.get(&one, Some(&token)).await.read(StatusCode::OK);
    assert_eq!(got.address, "10.0.0.9:80");
    assert_eq!(api.routes.get(socket.id).unwrap().origins.len(), 2);
    assert_eq!(api.send("DELETE", &one, Some(&token), None).await.status, StatusCode::NO_CONTENT);
    api.send("DELETE", &one, Some(&token), None).await.assert_problem(StatusCode::NOT_FOUND, "not-found");
    assert_eq!(api.routes.get(socket.id).unwrap().origins.len(), 1);
    let gone = format!("/v1/sockets/{}", socket.id);
    assert_eq!(api.send("DELETE", &gone, Some(&token), None).await.status, StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn addresses_that_edges_may_not_dial_are_refused_with_what_to_do() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    let socket = api.socket(&token, "web").await;
    let path = format!("/v1/sockets/{}/origins", socket.id);
    let post = async |body| api.post(&path, Some(&token), body).await;
    for (address, says) in [
        ("192.0.2.7:80", "in none of the networks"),
        ("127.0.0.1:80", "in none of the networks"),
        ("169.254.169.254:80", "in none of the networks"),
        ("[::ffff:169.254.169.254]:80", "169.254.169.254 is in none"),
        ("[::1]:80", "in none of the networks"),
        ("[64:ff9b::a00:1]:80", "in none of the networks"),
        ("10.0.0.7", "expected HOST:PORT"),
        ("10.0.0.7:0", "1 to 65535"),
        ("127.1:80", "four numbers"),
        ("http://10.0.0.7:80", "HOST:PORT"),
    ] {
        let response = post(json!({ "address": address })).await;
        let detail = response.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-request");
        assert!(detail.contains(says) || says == "HOST:PORT", "{address}: {detail}");
        assert_eq!(response.field(), "address", "{address}");
    }
    for (body, field) in [
        (json!({"address": "10.0.0.7:80", "region": "Mars One"}), "region"),
        (json!({"address": "10.0.0.7:80", "weight": 1001}), "weight"),
        (json!({"address": "10.0.0.7:80", "tls": {"pin": "x"}}), "tls"),
        (json!({"address": "10.0.0.7:80", "wait": 1}), "wait"),
        (json!({}), "address"),
    ] {
        let response = post(body.clone()).await;
        response.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-request");
        assert_eq!(response.field(), field, "{body}");
    }
    add(&api, &token, &socket, json!({"address": "10.0.0.7:80"})).await;
    let twice = post(json!({"address": "[::ffff:10.0.0.7]:80"})).await;
    assert!(twice.assert_problem(StatusCode::CONFLICT, "origin-taken").contains("change its weight"));
    for n in 1..MAX_DIRECT_ORIGINS_PER_SOCKET {
        add(&api, &token, &socket, json!({"address": format!("10.0.1.{n}:80")})).await;
    }
    let full = post(json!({"address": "10.0.2.1:80"})).await;
    assert!(full.assert_problem(StatusCode::CONFLICT, "limit-reached").contains("no more than 64 direct origins"));

    let https: Socket =
        api.post("/v1/sockets", Some(&token), json!({"name": "s", "type": "https"})).await.read(StatusCode::CREATED);
    let path = format!("/v1/sockets/{}/origins", https.id);
    for (tls, says) in [
        (json!({"ca": "nonsense"}), "PEM"),
        (json!({"ca": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"}), "damaged"),
        (json!({"server_name": ""}), "no name"),
    ] {
        let response = api.post(&path, Some(&token), json!({"address": "10.0.0.7:443", "tls": tls})).await;
        let detail = response.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-request");
        assert!(detail.contains(says), "{detail}");
    }
    let pin = format!("sha256:{}", "ab".repeat(32));
    let pinned = add(&api, &token, &https, json!({"address": "10.0.0.7:443", "tls": {"pin": pin}})).await;
    assert_eq!(pinned.tls.unwrap().pin, Some(pin));

    let api = Api::start_without_direct_origins().await;
    let token = api.account("ann@example.com").await;
    let socket = api.socket(&token, "web").await;
    let path = format!("/v1/sockets/{}/origins", socket.id);
    let off = api.post(&path, Some(&token), json!({"address": "10.0.0.7:80"})).await;
    assert!(off.assert_problem(StatusCode::FORBIDDEN, "direct-origins-off").contains("--direct-origins"));
}

#[tokio::test]
async fn dials_of_regions_are_set_kept_and_put_back() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    let body = json!({"name": "web", "regions": {"eu": {"dial": 20}, "us": {}}});
    let socket: Socket = api.post("/v1/sockets", Some(&token), body).await.read(StatusCode::CREATED);
    let dials = |socket: &Socket| {
        socket.regions.iter().map(|(region, group)| (region.to_string(), group.dial)).collect::<Vec<_>>()
    };
    assert_eq!(dials(&socket), [("eu".to_owned(), 20), ("us".to_owned(), 100)]);
    assert!(socket.notes[0].contains("this installation is one machine"), "{:?}", socket.notes);
    assert_eq!(api.routes.get(socket.id).unwrap().settings.regions, socket.regions);
    let path = format!("/v1/sockets/{}", socket.id);
    let patch = async |body| api.send("PATCH", &path, Some(&token), Some(body)).await;
    let same: Socket = patch(json!({"name": "web 2"})).await.read(StatusCode::OK);
    assert_eq!(same.regions, socket.regions);
    for (body, field, says) in [
        (json!({"regions": {"eu": {"dial": 101}}}), "regions", "the dial of eu must be 0 to 100 percent"),
        (json!({"regions": {"eu": {"dial": -1}}}), "regions.eu.dial", ""),
        (json!({"regions": {"eu": 20}}), "regions.eu", "expected an object"),
        (json!({"regions": {"eu": {"dail": 20}}}), "regions.eu.dail", "no such field"),
        (json!({"regions": {"Mars One": {"dial": 20}}}), "regions", "no name of a region"),
    ] {
        let response = patch(body.clone()).await;
        let detail = response.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-request");
        assert!(response.field().starts_with(field) && detail.contains(says), "{body}: {} {detail}", response.field());
    }
    add(&api, &token, &socket, json!({"address": "10.0.0.7:80", "region": "eu"})).await;
    let noted: Socket = patch(json!({"regions": {"eu": {"dial": 0}, "us": {"dial": 5}}})).await.read(StatusCode::OK);
    assert_eq!(noted.notes, socket.notes);
    let back: Socket = patch(json!({"regions": null})).await.read(StatusCode::OK);
    assert!(back.regions.is_empty() && back.notes.is_empty());
}
