//! Sockets: making, seeing, changing, deleting.

use std::collections::HashSet;

use http::StatusCode;
use sallyport_api::{Page, Socket};
use sallyport_model::{OriginProtocol, SocketType};
use serde_json::json;

use crate::harness::Api;

#[tokio::test]
async fn a_socket_gets_a_name_a_url_and_a_route() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    let response = api.post("/v1/sockets", Some(&token), json!({"name": "my test service"})).await;
    let made: Socket = response.read(StatusCode::CREATED);
    assert_eq!(response.header("location"), Some(format!("/v1/sockets/{}", made.id).as_str()));
    let label = made.dns_name.strip_suffix(".localhost").unwrap();
    assert_eq!(made.url, format!("https://{label}.localhost:8443"));
    assert_eq!((made.socket_type, made.origin_protocol), (SocketType::Http, OriginProtocol::Auto));
    assert_eq!((made.tunnels_total, made.tunnels_up, &made.protected), (0, 0, &None));
    let route = api.routes.by_name(label).expect("edges have it");
    assert_eq!((route.id, &route.basic_auth), (made.id, &None));

    for id in [made.id.to_string(), label.to_owned(), made.dns_name.clone()] {
        let found: Socket = api.get(&format!("/v1/sockets/{id}"), Some(&token)).await.read(StatusCode::OK);
        assert_eq!(found, made);
    }
}

#[tokio::test]
async fn a_socket_is_changed_field_by_field() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    let socket = api.socket(&token, "first").await;
    let path = format!("/v1/sockets/{}", socket.id);
    let patch = async |body| api.send("PATCH", &path, Some(&token), Some(body)).await.read::<Socket>(StatusCode::OK);

    let renamed = patch(json!({"name": "second", "type": "https"})).await;
    assert_eq!((renamed.name.as_str(), renamed.socket_type), ("second", SocketType::Https));
    assert_eq!(renamed.dns_name, socket.dns_name, "the DNS name stays");
    let protected = patch(json!({"protected": {"username": "u", "password": "p"}})).await;
    assert_eq!(protected.protected.unwrap().username, "u");
    let hash = api.routes.get(socket.id).unwrap().basic_auth.clone().unwrap().password_hash;
    assert!(hash.starts_with("$argon2id$"), "{hash}");
    let kept = patch(json!({"origin_protocol": "http2"})).await;
    assert_eq!((kept.protected.unwrap().username.as_str(), kept.origin_protocol), ("u", OriginProtocol::Http2));
    let same = patch(json!({})).await;
    assert_eq!((same.name.as_str(), same.socket_type), ("second", SocketType::Https));
    let open = patch(json!({"protected": null, "force": true})).await;
    assert_eq!(open.protected, None);
    let route = api.routes.get(socket.id).unwrap();
    assert_eq!(
        (route.socket_type, route.origin_protocol, &route.basic_auth),
        (SocketType::Https, OriginProtocol::Http2, &None)
    );
    let response = api.get(&path, Some(&token)).await;
    assert!(!response.text.contains("argon2"), "{}", response.text);
}

#[tokio::test]
async fn a_deleted_socket_is_gone_and_its_name_is_not_reused() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    let socket = api.socket(&token, "s").await;
    let label = socket.label().unwrap();
    let path = format!("/v1/sockets/{label}");
    assert_eq!(api.send("DELETE", &path, Some(&token), None).await.status, StatusCode::NO_CONTENT);
    assert!(api.routes.by_name(label.as_str()).is_none());
    api.get(&path, Some(&token)).await.assert_problem(StatusCode::NOT_FOUND, "not-found");
    api.send("DELETE", &path, Some(&token), None).await.assert_problem(StatusCode::NOT_FOUND, "not-found");
    assert_eq!(api.get("/v1/sockets", Some(&token)).await.read::<Page<Socket>>(StatusCode::OK).items, []);
}

#[tokio::test]
async fn two_hundred_and_fifty_sockets_are_listed_page_by_page() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    let other = api.account("bob@example.com").await;
    let mut made = Vec::new();
    for n in 0..250 {
        made.push(api.socket(&token, &format!("socket {n}")).await.id);
        if n % 50 == 0 {
            api.socket(&other, &format!("not mine {n}")).await;
        }
    }
    for (limit, pages) in [("", 5), ("?limit=100", 3), ("?limit=50", 5), ("?limit=7", 36)] {
        let (mut seen, mut path, mut count) = (Vec::new(), format!("/v1/sockets{limit}"), 0);
        loop {
            let page: Page<Socket> = api.get(&path, Some(&token)).await.read(StatusCode::OK);
            seen.extend(page.items.into_iter().map(|socket| socket.id));
            count += 1;
            let Some(next) = page.next else { break };
            let joint = if limit.is_empty() { "?" } else { "&" };
            path = format!("/v1/sockets{limit}{joint}after={next}");
        }
        assert_eq!((seen == made, count), (true, pages), "{limit}");
    }
}

#[tokio::test]
async fn an_account_sees_only_its_own_sockets() {
    let api = Api::start().await;
    let ann = api.account("ann@example.com").await;
    let bob = api.account("bob@example.com").await;
    let socket = api.socket(&ann, "mine").await;
    let tunnel = api.tunnel(&ann, &socket).await.details.id;
    for id in [socket.id.to_string(), socket.dns_name.clone()] {
        let path = format!("/v1/sockets/{id}");
        let patch = Some(json!({"name": "stolen"}));
        for (method, path, body) in [
            ("GET", path.clone(), None),
            ("PATCH", path.clone(), patch),
            ("DELETE", path.clone(), None),
            ("GET", format!("{path}/tunnels"), None),
            ("POST", format!("{path}/tunnels"), None),
            ("GET", format!("{path}/tunnels/{tunnel}"), None),
            ("DELETE", format!("{path}/tunnels/{tunnel}"), None),
            ("POST", format!("{path}/tunnels/{tunnel}/credential"), None),
        ] {
            let response = api.send(method, &path, Some(&bob), body).await;
            response.assert_problem(StatusCode::NOT_FOUND, "not-found");
        }
    }
    let own = api.socket(&bob, "own").await;
    let path = format!("/v1/sockets/{}/tunnels/{tunnel}", own.id);
    for method in ["GET", "DELETE"] {
        api.send(method, &path, Some(&bob), None).await.assert_problem(StatusCode::NOT_FOUND, "not-found");
    }
    let found: Socket = api.get(&format!("/v1/sockets/{}", socket.id), Some(&ann)).await.read(StatusCode::OK);
    assert_eq!((found.name.as_str(), found.tunnels_total), ("mine", 1));
}

#[tokio::test]
async fn bad_sockets_are_refused_with_the_field() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    for (body, field, says) in [
        (json!({}), "name", "missing"),
        (json!({"name": ""}), "name", "one line"),
        (json!({"name": "x".repeat(101)}), "name", "1 to 100"),
        (json!({"name": "a", "type": "gopher"}), "type", "http"),
        (json!({"name": "a", "origin_protocol": "http3"}), "origin_protocol", "http2"),
        (json!({"name": "a", "portocol": "x"}), "portocol", "no such field"),
        (json!({"name": "a", "protected": {"username": "u"}}), "protected.password", "missing"),
        (json!({"name": "a", "protected": {"username": "a:b", "password": "p"}}), "protected.username", "colon"),
        (json!({"name": "a", "protected": {"username": "", "password": "p"}}), "protected.username", "1 to 128"),
        (json!({"name": "a", "protected": {"username": "u", "password": ""}}), "protected.password", "1 to 1024"),
        (json!({"name": "a", "protected": {"username": "u", "password": "a\nb"}}), "protected.password", "control"),
    ] {
        let response = api.post("/v1/sockets", Some(&token), body.clone()).await;
        let detail = response.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-request");
        assert_eq!(response.field(), field, "{body}");
        assert!(detail.contains(says), "{body}: {detail}");
    }
    for (query, says) in [
        ("?limit=0", "limit must be a whole number from 1 to 100"),
        ("?limit=101", "limit must be a whole number from 1 to 100"),
        ("?limit=many", "limit must be a whole number from 1 to 100"),
        ("?limit=", "limit must be a whole number from 1 to 100"),
        ("?limit=1&limit=2", "limit is given twice"),
        ("?after=nonsense", "after must be the `next` of a page of this list"),
        ("?offset=3", "there is no parameter \"offset\": known are limit, after and label"),
    ] {
        let response = api.get(&format!("/v1/sockets{query}"), Some(&token)).await;
        assert_eq!(response.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-query"), says, "{query}");
    }
    let first = api.get("/v1/sockets?after=", Some(&token)).await;
    assert_eq!(first.read::<Page<Socket>>(StatusCode::OK), Page { items: Vec::new(), next: None });
    let nothing_to_change = api.send("PATCH", "/v1/sockets/x", Some(&token), None).await;
    let detail = nothing_to_change.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-request");
    assert!(detail.contains("the body is missing"), "{detail}");
    for id in ["nonsense!", "api", "no-such-1000", "00000000-0000-4000-8000-000000000000", "%FF"] {
        let response = api.get(&format!("/v1/sockets/{id}"), Some(&token)).await;
        assert!([StatusCode::NOT_FOUND, StatusCode::BAD_REQUEST].contains(&response.status), "{id}: {response:?}");
        assert_eq!(response.headers["content-type"], "application/problem+json");
    }
    assert!(api.routes.all().is_empty());
}

#[tokio::test]
async fn an_account_has_at_most_a_thousand_sockets_and_makes_them_at_a_bounded_rate() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    let mut last = api.socket(&token, "s").await.id;
    for number in 1..1_000 {
        last = api.socket(&token, &format!("s{number}")).await.id;
    }
    let create = async || api.post("/v1/sockets", Some(&token), json!({"name": "one more"})).await;
    let detail = create().await.assert_problem(StatusCode::CONFLICT, "limit-reached");
    assert!(detail.contains("1000 sockets"), "{detail}");
    assert_eq!(
        api.send("DELETE", &format!("/v1/sockets/{last}"), Some(&token), None).await.status,
        StatusCode::NO_CONTENT
    );
    assert_eq!(create().await.status, StatusCode::CREATED);
    let refused = loop {
        let response = create().await;
        if response.status != StatusCode::CONFLICT {
            break response;
        }
    };
    refused.assert_problem(StatusCode::TOO_MANY_REQUESTS, "too-many-attempts");
    api.clock.pass(5);
    create().await.assert_problem(StatusCode::CONFLICT, "limit-reached");
}

#[tokio::test]
async fn sockets_made_at_the_same_time_all_get_their_own_name() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    let mut making = tokio::task::JoinSet::new();
    let api = std::sync::Arc::new(api);
    for n in 0..60 {
        let (api, token) = (api.clone(), token.clone());
        making.spawn(async move { api.socket(&token, &format!("s{n}")).await });
    }
    let made = making.join_all().await;
    let names: HashSet<_> = made.iter().map(|socket| socket.dns_name.clone()).collect();
    assert_eq!((names.len(), api.routes.all().len()), (60, 60));
}

#[tokio::test]
async fn changes_at_the_same_time_leave_edges_with_what_the_store_has() {
    let api = std::sync::Arc::new(Api::start().await);
    let token = api.account("ann@example.com").await;
    let socket = api.socket(&token, "s").await;
    let mut changing = tokio::task::JoinSet::new();
    for n in 0..40 {
        let (api, token, id) = (api.clone(), token.clone(), socket.id);
        changing.spawn(async move {
            let protocol = ["auto", "http1", "http2"][n % 3];
            let body = json!({"type": if n % 2 == 0 { "http" } else { "https" }, "origin_protocol": protocol});
            api.send("PATCH", &format!("/v1/sockets/{id}"), Some(&token), Some(body)).await.status
        });
    }
    assert!(changing.join_all().await.into_iter().all(|status| status == StatusCode::OK));
    let stored = api.store.route(socket.id).await.unwrap().unwrap();
    assert_eq!(*api.routes.get(socket.id).unwrap(), stored);
}

#[tokio::test]
async fn a_reload_publishes_changes_of_another_process_to_edges() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    let (same, changed) = (api.socket(&token, "same").await, api.socket(&token, "changed").await);
    let (gone, made) = (api.socket(&token, "gone").await, api.socket(&token, "made").await);
    api.tunnel(&token, &same).await;
    api.tunnel(&token, &changed).await;
    let (untouched, stored) = (api.routes.get(same.id).unwrap(), api.routes.get(changed.id).unwrap());
    // Edges have the state before the other process made, changed and deleted a socket.
    api.routes.remove(made.id);
    api.routes.put(sallyport_model::SocketRoute { tunnels: Vec::new(), ..(*stored).clone() });
    assert!(api.store.delete_socket(stored.account, gone.id).await.unwrap());

    assert_eq!(api.control.reload().await.unwrap(), 3);
    assert_eq!(api.routes.get(changed.id), Some(stored));
    assert!(api.routes.get(made.id).is_some() && api.routes.get(gone.id).is_none());
    assert!(std::sync::Arc::ptr_eq(&untouched, &api.routes.get(same.id).unwrap()), "only differences are published");
    assert_eq!(api.control.reload().await.unwrap(), 0);
}
