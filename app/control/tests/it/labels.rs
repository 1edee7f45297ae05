//! Labels of sockets, tunnels and policies, and lists of things with given labels.

use std::collections::BTreeMap;

use axum::body::Body;
use http::{Request, StatusCode, header};
use sallyport_api::{Page, Policy, Socket, Tunnel};
use serde_json::{Value, json};

use crate::harness::Api;

fn labels(pairs: &[(&str, &str)]) -> Value {
    json!(pairs.iter().copied().collect::<BTreeMap<_, _>>())
}

#[tokio::test]
async fn things_are_found_by_their_labels() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    let make = async |path: &str, body: Value| api.post(path, Some(&token), body).await;
    let cluster = |name: &str| labels(&[("sallyport.dev/cluster", name), ("quoted", "a\"b:c,d%_")]);
    for (name, of) in [("one", "prod"), ("two", "prod-2"), ("three", "Prod")] {
        let made = make("/v1/sockets", json!({"name": name, "labels": cluster(of)})).await;
        let made: Socket = made.read(StatusCode::CREATED);
        assert_eq!(made.labels.get("sallyport.dev/cluster"), Some(of));
    }
    let plain: Socket = make("/v1/sockets", json!({"name": "plain"})).await.read(StatusCode::CREATED);
    let found = async |query: &str| {
        let page = api.get(&format!("/v1/sockets?{query}"), Some(&token)).await.read::<Page<Socket>>(StatusCode::OK);
        page.items.into_iter().map(|socket| socket.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(found("label=sallyport.dev/cluster%3Dprod").await, ["one"], "the whole value counts, with its case");
    assert_eq!(found("label=sallyport.dev/cluster").await, ["one", "two", "three"]);
    assert_eq!(found("label=sallyport.dev/cluster&label=quoted%3Da%22b:c,d%25_&limit=2").await, ["one", "two"]);
    assert!(found("label=cluster").await.is_empty() && found("label=quoted%3Da").await.is_empty());

    // A change replaces all of them, and one without labels keeps them.
    let path = format!("/v1/sockets/{}", plain.id);
    let patch = async |body| api.send("PATCH", &path, Some(&token), Some(body)).await.read::<Socket>(StatusCode::OK);
    assert_eq!(patch(json!({"labels": {"a": "1", "b": "2"}})).await.labels.to_string(), "a=1, b=2");
    assert_eq!(patch(json!({"labels": {"b": "3"}})).await.labels.to_string(), "b=3");
    assert_eq!(patch(json!({"name": "renamed"})).await.labels.to_string(), "b=3");
    assert_eq!(found("label=b%3D3").await, ["renamed"]);
    assert!(patch(json!({"labels": null})).await.labels.is_empty());

    let made = make(&format!("{path}/tunnels"), json!({"labels": {"replica": "pod-1"}})).await;
    let tunnel: Tunnel = made.read(StatusCode::CREATED);
    make(&format!("{path}/tunnels"), json!({})).await.read::<Tunnel>(StatusCode::CREATED);
    for list in [format!("{path}/tunnels"), "/v1/sockets/-/tunnels".to_owned()] {
        let page = api.get(&format!("{list}?label=replica%3Dpod-1"), Some(&token)).await;
        let ids: Vec<_> = page.read::<Page<Tunnel>>(StatusCode::OK).items.into_iter().map(|one| one.id).collect();
        assert_eq!(ids, [tunnel.id]);
    }
    let path = format!("{path}/tunnels/{}", tunnel.id);
    let changed = api.send("PATCH", &path, Some(&token), Some(json!({"labels": {}}))).await;
    assert!(changed.read::<Tunnel>(StatusCode::OK).labels.is_empty());

    let document = json!({"allow": [{"who": {"emails": ["ann@example.com"]}}]});
    let body = json!({"name": "staff", "document": document, "labels": {"team": "a"}});
    let policy: Policy = make("/v1/policies", body).await.read(StatusCode::CREATED);
    let listed = api.get("/v1/policies?label=team%3Da", Some(&token)).await.read::<Page<Policy>>(StatusCode::OK);
    assert_eq!(listed.items.iter().map(|one| one.id).collect::<Vec<_>>(), [policy.id]);
    let changed = json!({"labels": {"team": "b"}});
    api.send("PATCH", "/v1/policies/staff", Some(&token), Some(changed)).await.read::<Policy>(StatusCode::OK);
    let listed = api.get("/v1/policies?label=team%3Da", Some(&token)).await.read::<Page<Policy>>(StatusCode::OK);
    assert!(listed.items.is_empty());
}

#[tokio::test]
async fn labels_that_cannot_be_are_refused() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    let too_many: BTreeMap<_, _> = (0..33).map(|number| (format!("k{number}"), "v")).collect();
    for (labels, sentence) in [
        (json!({"": "v"}), "a label's key has 1 to 63"),
        (json!({"a b": "v"}), "a label's key has 1 to 63"),
        (json!({"k": "v".repeat(256)}), "a label's value has at most 255 bytes"),
        (json!(too_many), "at most 32 labels"),
        (json!(["k"]), "expected a map"),
    ] {
        let response = api.post("/v1/sockets", Some(&token), json!({"name": "a", "labels": labels})).await;
        response.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-request");
        let detail = response.json()["errors"][0]["detail"].as_str().unwrap().to_owned();
        assert!(response.field().starts_with("labels") && detail.contains(sentence), "{}: {detail}", response.field());
    }
    for (query, sentence) in [
        ("label=%3Dv", "label: a label's key has"),
        ("label=a&label=b&label=c&label=d&label=e", "label is given more than 4 times"),
        ("labels=a", "known are limit, after and label"),
    ] {
        let refused = api.get(&format!("/v1/sockets?{query}"), Some(&token)).await;
        let detail = refused.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-query");
        assert!(detail.contains(sentence), "{detail}");
    }
    let refused = api.get("/v1/tokens?label=a", Some(&token)).await;
    let detail = refused.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-query");
    assert!(detail.contains("known are limit and after"), "{detail}");
}

#[tokio::test]
async fn a_list_comes_in_lines_to_who_asks_for_them() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    let socket = api.socket(&token, "first").await;
    for number in 0..5 {
        let body = json!({"name": format!("s{number}"), "labels": {"even": (number % 2 == 0).to_string()}});
        api.post("/v1/sockets", Some(&token), body).await.read::<Socket>(StatusCode::CREATED);
    }
    let tunnels = format!("/v1/sockets/{}/tunnels", socket.id);
    // More than are read at a time.
    for number in 0..101 {
        let made = api.post(&tunnels, Some(&token), json!({"labels": {"n": number.to_string()}})).await;
        made.read::<Tunnel>(StatusCode::CREATED);
    }
    let lines = async |path: &str, accept: &str| {
        let request = Request::get(path)
            .header(header::AUTHORIZATION, format!("Bearer {token}"))
            .header(header::ACCEPT, accept)
            .body(Body::empty());
        api.raw(request.unwrap()).await
    };
    let names = async |query: &str| {
        let response = lines(&format!("/v1/sockets{query}"), "text/html, application/x-ndjson;q=0.9").await;
        assert_eq!(response.header("content-type"), Some("application/x-ndjson"));
        let socket = |line: &str| serde_json::from_str::<Socket>(line).unwrap().name.to_string();
        response.text.lines().map(socket).collect::<Vec<_>>()
    };
    assert_eq!(names("").await, ["first", "s0", "s1", "s2", "s3", "s4"]);
    assert_eq!(names("?label=even%3Dtrue").await, ["s0", "s2", "s4"]);
    let page = api.get("/v1/sockets?limit=4", Some(&token)).await.read::<Page<Socket>>(StatusCode::OK);
    assert_eq!(names(&format!("?after={}", page.next.unwrap())).await, ["s3", "s4"]);

    let mut all = Vec::new();
    let mut after = String::new();
    while all.len() < 101 {
        let page = api.get(&format!("{tunnels}?limit=100&after={after}"), Some(&token)).await;
        let page = page.read::<Page<Tunnel>>(StatusCode::OK);
        all.extend(page.items.into_iter().map(|tunnel| tunnel.id));
        after = page.next.unwrap_or_default();
    }
    for list in [tunnels.clone(), "/v1/sockets/-/tunnels".to_owned()] {
        let response = lines(&list, "application/x-ndjson").await;
        let id = |line: &str| serde_json::from_str::<Tunnel>(line).unwrap().id;
        assert_eq!(response.text.lines().map(id).collect::<Vec<_>>(), all);
    }
    assert_eq!(lines("/v1/policies", "application/x-ndjson").await.text, "");
    lines("/v1/sockets/none/tunnels", "application/x-ndjson").await.assert_problem(StatusCode::NOT_FOUND, "not-found");
    let refused = lines("/v1/sockets?label=a%20b", "application/x-ndjson").await;
    refused.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-query");
    assert_eq!(lines("/v1/sockets", "application/json").await.header("content-type"), Some("application/json"));
}
