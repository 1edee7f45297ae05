//! The audit log: every change leaves an event, and only its organisation sees it.

use std::time::{Duration, SystemTime};

use http::StatusCode;
use sallyport_api::{AuditEvent, AuditVerification, Flow, Page, Socket};
use sallyport_bus::LiveFlow;
use sallyport_model::{SocketType, TunnelId};
use serde_json::{Value, json};

use crate::{
    harness::{Api, PASSWORD},
    ssh::KEY,
};

impl Api {
    pub(crate) async fn audit(&self, token: &str, query: &str) -> Vec<AuditEvent> {
        self.audit.flush().unwrap();
        let path = format!("/v1/audit?limit=100{query}");
        self.get(&path, Some(token)).await.read::<Page<AuditEvent>>(StatusCode::OK).items
    }

    /// The actions recorded, oldest first.
    pub(crate) async fn actions(&self, token: &str) -> Vec<String> {
        let events = self.audit(token, "&order=oldest&kind=admin").await;
        events.into_iter().map(|event| event.admin.unwrap().action).collect()
    }
}

/// Requests for changes, as `/v1` names them.
fn changes(socket: &str, tunnel: &str) -> Vec<(&'static str, String, Value, &'static str)> {
    let of_tunnel = format!("/v1/sockets/{socket}/tunnels/{tunnel}");
    vec![
        ("POST", "/v1/tokens".to_owned(), json!({"name": "ci", "scopes": ["sockets:write"]}), "token.create"),
        ("POST", "/v1/sockets".to_owned(), json!({"name": "other"}), "socket.create"),
        ("PATCH", format!("/v1/sockets/{socket}"), json!({"name": "renamed"}), "socket.edit"),
        ("POST", format!("/v1/sockets/{socket}/tunnels"), Value::Null, "tunnel.create"),
        ("PATCH", of_tunnel.clone(), json!({"weight": 7}), "tunnel.edit"),
        ("POST", format!("{of_tunnel}/credential"), Value::Null, "tunnel.credential"),
        ("POST", format!("{of_tunnel}/ssh-certificate"), json!({"public_key": KEY}), "tunnel.sign-key"),
        ("DELETE", of_tunnel, Value::Null, "tunnel.delete"),
        ("POST", "/v1/ssh-keys".to_owned(), json!({"public_key": KEY}), "ssh-key.create"),
        ("DELETE", format!("/v1/sockets/{socket}"), Value::Null, "socket.delete"),
    ]
}

#[tokio::test]
async fn whatever_changes_something_leaves_an_event() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    let socket = api.socket(&token, "mine").await;
    let tunnel = api.tunnel(&token, &socket).await;
    let mut expected = vec!["account.create", "socket.create", "tunnel.create"];
    for (method, path, body, action) in changes(&socket.id.to_string(), &tunnel.details.id.to_string()) {
        let response = api.send(method, &path, Some(&token), (!body.is_null()).then_some(body)).await;
        assert!(response.status.is_success(), "{method} {path}: {}", response.text);
        expected.push(action);
    }
    let listed = |list: &str| {
        let path = format!("/v1/{list}");
        let (api, token) = (&api, &token);
        async move { api.get(&path, Some(token)).await.json()["items"][0]["id"].as_str().unwrap().to_owned() }
    };
    let (api_token, key) = (listed("tokens").await, listed("ssh-keys").await);
    for (path, action) in
        [(format!("/v1/tokens/{api_token}"), "token.delete"), (format!("/v1/ssh-keys/{key}"), "ssh-key.delete")]
    {
        assert_eq!(api.send("DELETE", &path, Some(&token), None).await.status, StatusCode::NO_CONTENT);
        expected.push(action);
    }
    assert_eq!(api.actions(&token).await, expected);

    let events = api.audit(&token, "&order=oldest").await;
    let admin = events.iter().filter_map(|event| event.admin.as_ref()).collect::<Vec<_>>();
    for event in &admin {
        assert_eq!((event.actor.as_str(), event.outcome.as_str()), ("ann@example.com", "done"));
        assert_eq!(event.client, Some("192.0.2.1:40000".parse().unwrap()));
        assert!(event.target.is_some() && !event.request_id.is_empty(), "{event:?}");
    }
    let name = socket.dns_name.split('.').next().unwrap();
    assert_eq!(admin[1].target.as_deref(), Some(name));
    assert_eq!(admin[2].target, Some(format!("{name}/{}", tunnel.details.id)));
    let login = events.iter().find_map(|event| event.login.as_ref()).unwrap();
    assert_eq!((login.identity.as_str(), login.outcome.as_str()), ("ann@example.com", "done"));
    let certificate = events.iter().find_map(|event| event.certificate.as_ref()).unwrap();
    assert_eq!(
        (certificate.certificate_type.as_str(), certificate.socket.as_ref()),
        ("ssh-tunnel", Some(&socket.dns_name))
    );
    // No caller is left to see the account's end, but it stays on record.
    assert_eq!(api.send("DELETE", "/v1/account", Some(&token), None).await.status, StatusCode::NO_CONTENT);
    api.audit.flush().unwrap();
    let log = std::fs::read_to_string(api.dir.path().join("audit/0000000001.jsonl")).unwrap();
    assert!(log.contains("\"action\":\"account.delete\""), "{log}");
}

/// Routes with other events, or without a change.
const NOT_ADMIN: [&str; 3] = ["/v1/login", "/v1/login/refresh", "/v1/logout"];

#[tokio::test]
async fn no_request_of_the_description_succeeds_or_is_forbidden_without_a_trace() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    let reader = api.api_token(&token, &["audit:read"]).await;
    let description: Value = serde_json::from_str(&sallyport_control::openapi_json()).unwrap();
    let mut looked_at = 0;
    for (path, operations) in description["paths"].as_object().unwrap() {
        for method in ["post", "put", "patch", "delete"] {
            if operations.get(method).is_none() || NOT_ADMIN.contains(&path.as_str()) {
                continue;
            }
            let real = path.replace(['{', '}'], "");
            let asked = [(&reader, None), (&reader, Some(json!({}))), (&token, Some(json!({}))), (&token, None)];
            for (who, body) in asked {
                if path == "/v1/account" && who == &token {
                    continue;
                }
                let before = api.audit(&token, "&kind=admin").await.first().map_or(0, |event| event.seq);
                let response = api.send(&method.to_uppercase(), &real, Some(who), body).await;
                if !response.status.is_success() && response.status != StatusCode::FORBIDDEN {
                    continue;
                }
                looked_at += 1;
                // The newest come first, and there are more of them than a page has.
                let events = api.audit(&token, "&kind=admin").await;
                let newer: Vec<_> = events.iter().take_while(|event| event.seq > before).collect();
                let [newest] = newer[..] else { panic!("{method} {path} left {newer:?}: {}", response.text) };
                let event = newest.admin.as_ref().unwrap();
                let outcome = if response.status == StatusCode::FORBIDDEN { "refused" } else { "done" };
                assert_eq!((event.outcome.as_str(), event.action.contains('.')), (outcome, true), "{event:?}");
                assert_eq!(event.actor, if who == &reader { "token:t" } else { "ann@example.com" });
            }
        }
    }
    assert!(looked_at > 5, "{looked_at}");
}

#[tokio::test]
async fn the_original_clients_paths_and_ssh_clients_leave_events_too() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    let body = json!({"email": "ann@example.com", "password": PASSWORD});
    let old = api.post("/login", None, body).await.json()["token"].as_str().unwrap().to_owned();
    let send = |method: &'static str, path: String, body: Value| {
        let request = http::Request::builder().method(method).uri(path).header("x-access-token", &old);
        api.raw(request.header("content-type", "application/json").body(body.to_string().into()).unwrap())
    };
    let asks = json!({"name": "old", "socket_type": "http", "cloud_authentication_enabled": true,
                      "cloud_authentication_email_allowed_domains": ["example.com"]});
    let made = send("POST", "/socket".to_owned(), asks).await;
    assert!(made.status.is_success(), "{}", made.text);
    let id = made.json()["socket_id"].as_str().unwrap().to_owned();
    assert!(send("POST", format!("/socket/{id}/tunnel"), json!({})).await.status.is_success());
    // Opening a socket to everyone has no other request here, and is recorded.
    let opens = json!({"name": "open", "cloud_authentication_enabled": false, "protected_password": "s3cret"});
    assert!(send("PUT", format!("/socket/{id}"), opens).await.status.is_success());
    let edit = api.audit(&token, "&kind=admin").await.remove(0).admin.unwrap();
    assert_eq!(
        (edit.action.as_str(), &edit.changed[..]),
        ("socket.edit", &["identity=null".to_owned(), "name".to_owned()][..])
    );
    assert!(send("DELETE", format!("/socket/{id}"), json!({})).await.status.is_success());
    let account = api.get("/v1/account", Some(&token)).await.read::<sallyport_api::Account>(StatusCode::OK).id;
    api.control.ssh_forward_target(&crate::ssh::client(account), "localhost", 80).await.unwrap();
    let actions = api.actions(&token).await;
    assert_eq!(
        actions,
        [
            "account.create",
            "socket.create",
            "tunnel.create",
            "socket.edit",
            "socket.delete",
            "socket.create",
            "tunnel.create"
        ]
    );
    let last = api.audit(&token, "&kind=admin").await.remove(0).admin.unwrap();
    assert_eq!((last.actor, last.client.is_some()), (format!("ssh:{account}"), true));
}

#[tokio::test]
async fn a_wrong_password_is_in_the_log_of_its_account() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    let wrong = |email: &str| api.post("/v1/login", None, json!({"email": email, "password": "not the right one"}));
    assert_eq!(wrong("ann@example.com").await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(wrong("nobody@example.com").await.status, StatusCode::UNAUTHORIZED);
    let events = api.audit(&token, "&verdict=refused").await;
    assert_eq!(events.len(), 1);
    let login = events[0].login.as_ref().unwrap();
    assert_eq!((login.identity.as_str(), login.reason.as_deref()), ("ann@example.com", Some("wrong password")));
}

#[tokio::test]
async fn one_organisation_sees_nothing_of_another_and_a_token_needs_its_scope() {
    let api = Api::start().await;
    let ann = api.account("ann@example.com").await;
    let bob = api.account("bob@example.com").await;
    let socket = api.socket(&ann, "mine").await;
    let theirs = api.audit(&bob, "").await;
    assert!(!theirs.is_empty() && theirs.iter().all(|event| event.identity() == Some("bob@example.com")));
    assert_eq!(api.audit(&ann, &format!("&socket={}", socket.dns_name)).await.len(), 1);
    assert_eq!(api.audit(&ann, "&identity=ANN%40example.com&kind=login").await.len(), 1);
    assert_eq!(api.audit(&ann, "&until=2001-01-01T00:00:00Z").await.len(), 0);
    let other = api.api_token(&ann, &["sockets:write", "account:write", "identity:write"]).await;
    for path in ["/v1/audit", "/v1/audit/verify", "/v1/flows"] {
        api.get(path, Some(&other)).await.assert_problem(StatusCode::FORBIDDEN, "missing-scope");
        assert_eq!(api.get(path, None).await.status, StatusCode::UNAUTHORIZED);
    }
    let reader = api.api_token(&ann, &["audit:read"]).await;
    let found = api.get("/v1/audit/verify", Some(&reader)).await.read::<AuditVerification>(StatusCode::OK);
    assert!(found.is_good && found.events >= 5, "{found:?}");
    for query in [
        "limit=0",
        "limit=101",
        "kind=x",
        "order=up",
        "since=yesterday",
        "after=x",
        "wait=21",
        "no=1",
        "limit=1&limit=2",
        "wait=1&order=newest",
    ] {
        let response = api.get(&format!("/v1/audit?{query}"), Some(&reader)).await;
        response.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-query");
    }
}

#[tokio::test]
async fn pages_go_on_where_they_ended_and_new_events_are_waited_for() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    for number in 0..5 {
        api.socket(&token, &format!("s{number}")).await;
    }
    api.audit.flush().unwrap();
    let (mut seen, mut next) = (Vec::new(), String::new());
    loop {
        let path = format!("/v1/audit?limit=2&after={next}");
        let page = api.get(&path, Some(&token)).await.read::<Page<AuditEvent>>(StatusCode::OK);
        seen.extend(page.items.iter().map(|event| event.seq));
        let Some(after) = page.next else { break };
        next = after;
    }
    assert_eq!(seen, (1..=7).rev().collect::<Vec<_>>());
    let nothing = api.get("/v1/audit?wait=0&after=7", Some(&token)).await.read::<Page<AuditEvent>>(StatusCode::OK);
    assert_eq!((nothing.items.len(), nothing.next.as_deref()), (0, Some("7")));
    let waiting = api.get("/v1/audit?wait=20&after=7&kind=admin", Some(&token));
    let making = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        api.socket(&token, "late").await
    };
    let (page, socket): (_, Socket) = tokio::join!(waiting, making);
    let page = page.read::<Page<AuditEvent>>(StatusCode::OK);
    let target = page.items[0].admin.as_ref().unwrap().target.clone().unwrap();
    assert_eq!((page.items.len(), socket.dns_name.starts_with(&target)), (1, true));
    assert_eq!(page.next.as_deref(), Some("8"));
    // A shutdown does not wait for those that follow the log.
    let waiting = api.get("/v1/audit?wait=20&after=8", Some(&token));
    let stopping = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        api.control.stop_waiting();
    };
    let (page, ()) = tokio::time::timeout(Duration::from_secs(10), async { tokio::join!(waiting, stopping) })
        .await
        .expect("the wait ends with the shutdown");
    let page = page.read::<Page<AuditEvent>>(StatusCode::OK);
    assert_eq!((page.items.len(), page.next.as_deref()), (0, Some("8")));
}

#[tokio::test]
async fn flows_are_listed_and_cut_with_permission() {
    let api = Api::start().await;
    let ann = api.account("ann@example.com").await;
    let bob = api.account("bob@example.com").await;
    let socket = api.socket(&ann, "mine").await;
    let organisation = api.get("/v1/account", Some(&ann)).await.read::<sallyport_api::Account>(StatusCode::OK).id;
    let name = socket.dns_name.split('.').next().unwrap();
    let of = (organisation, socket.id, name.parse().unwrap(), SocketType::Tcp);
    let client = "192.0.2.9:5000".parse().unwrap();
    let stay = api.flows.begin(LiveFlow::new("f1".to_owned(), of, client, SystemTime::now()));
    stay.flow().goes_to(TunnelId::from_random([9; 16]));
    stay.flow().moved(17);
    let flows = api.get("/v1/flows", Some(&ann)).await.read::<Page<Flow>>(StatusCode::OK).items;
    assert_eq!((flows.len(), flows[0].bytes, flows[0].client), (1, 17, client));
    assert!(api.get("/v1/flows", Some(&bob)).await.read::<Page<Flow>>(StatusCode::OK).items.is_empty());
    api.send("DELETE", "/v1/flows/f1", Some(&bob), None).await.assert_problem(StatusCode::NOT_FOUND, "not-found");
    let reader = api.api_token(&ann, &["audit:read", "sockets:read"]).await;
    api.send("DELETE", "/v1/flows/f1", Some(&reader), None)
        .await
        .assert_problem(StatusCode::FORBIDDEN, "missing-scope");
    assert_eq!(api.send("DELETE", "/v1/flows/f1", Some(&ann), None).await.status, StatusCode::NO_CONTENT);
    stay.cut().await;
    let killed = api.audit(&ann, "&kind=admin&verdict=done").await.remove(0).admin.unwrap();
    assert_eq!((killed.action.as_str(), killed.target), ("flow.kill", Some(format!("{name}/f1"))));
}

#[tokio::test]
async fn invalid_queries_of_flows_are_refused() {
    let api = Api::start().await;
    let ann = api.account("ann@example.com").await;
    let socket = api.socket(&ann, "mine").await;
    for (query, expected) in [
        ("limit=0", "limit must be a whole number from 1 to 100"),
        ("limit=101", "limit must be a whole number from 1 to 100"),
        ("limit=x", "the query is not valid"),
        ("after=x", "after must be the `next` of a former response"),
        ("colour=green", "the query is not valid"),
    ] {
        let response = api.get(&format!("/v1/flows/log?{query}"), Some(&ann)).await;
        let detail = response.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-query");
        assert!(detail.contains(expected), "{query}: {detail}");
    }
    for path in ["/v1/flows/log?socket=calm-bay-9999", "/v1/sockets/calm-bay-9999/stats"] {
        api.get(path, Some(&ann)).await.assert_problem(StatusCode::NOT_FOUND, "not-found");
    }
    let bob = api.account("bob@example.com").await;
    let stats = format!("/v1/sockets/{}/stats", socket.id);
    api.get(&stats, Some(&bob)).await.assert_problem(StatusCode::NOT_FOUND, "not-found");
    api.get(&format!("/v1/flows/log?socket={}", socket.id), Some(&bob))
        .await
        .assert_problem(StatusCode::NOT_FOUND, "not-found");
    let other = api.api_token(&ann, &["audit:read"]).await;
    api.get(&stats, Some(&other)).await.assert_problem(StatusCode::FORBIDDEN, "missing-scope");
    // An edge without a valid response does not count.
    let counted = api.get(&stats, Some(&ann)).await.read::<sallyport_api::SocketStats>(StatusCode::OK);
    assert!(counted.edges.is_empty() && counted.total.requests.is_empty() && counted.total.since.is_none());
    let page = api.get("/v1/flows/log", Some(&ann)).await.read::<sallyport_api::EndedFlowPage>(StatusCode::OK);
    assert!(page.items.is_empty() && page.silent.is_empty());
    let again = api.get(&format!("/v1/flows/log?after={}", page.next), Some(&ann)).await;
    assert_eq!(again.status, StatusCode::OK);
    let long = "x".repeat(1_000);
    api.send("DELETE", &format!("/v1/flows/{long}"), Some(&ann), None)
        .await
        .assert_problem(StatusCode::NOT_FOUND, "not-found");
}
