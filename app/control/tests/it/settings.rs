//! What an owner can set on a socket: ports, checks, limits, access; weights of tunnels.

use http::StatusCode;
use sallyport_api::{CreatedTunnel, Page, ProbeType, Socket, Tunnel};
use sallyport_model::{Affinity, ProxyProtocol, SocketType, TlsMode};
use sallyport_store::{SocketChange, StoreError};
use serde_json::{Value, json};

use crate::harness::Api;

async fn make(api: &Api, token: &str, body: Value) -> Socket {
    api.post("/v1/sockets", Some(token), body).await.read(StatusCode::CREATED)
}

#[tokio::test]
async fn a_port_stays_with_its_socket_and_is_in_its_url() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    let tcp = make(&api, &token, json!({"name": "db", "type": "tcp"})).await;
    assert_eq!((tcp.socket_type, tcp.port), (SocketType::Tcp, Some(20_000)));
    assert_eq!(tcp.url, format!("tcp://{}:20000", tcp.dns_name));
    let tls = make(&api, &token, json!({"name": "db by tls", "type": "tls", "port": 20_003})).await;
    assert_eq!((tls.url.as_str(), tls.port), (format!("tls://{}:8443", tls.dns_name).as_str(), Some(20_003)));
    let udp = make(&api, &token, json!({"name": "dns", "type": "udp", "port": null})).await;
    assert_eq!((udp.url.as_str(), udp.port), (format!("udp://{}:20001", udp.dns_name).as_str(), Some(20_001)));
    assert_eq!(udp.ssh, None, "ssh carries no datagrams");
    let route = api.routes.get(tls.id).unwrap();
    assert_eq!((route.port, route.socket_type), (Some(20_003), SocketType::Tls));
    assert_eq!(api.socket(&token, "web").await.port, None);

    let patch = json!({"name": "other", "type": "tls"});
    let path = format!("/v1/sockets/{}", tcp.id);
    let changed: Socket = api.send("PATCH", &path, Some(&token), Some(patch)).await.read(StatusCode::OK);
    assert_eq!((changed.socket_type, changed.port), (SocketType::Tls, Some(20_000)));
    let api = api.restart().await;
    assert_eq!(api.get(&path, Some(&token)).await.read::<Socket>(StatusCode::OK), changed);
    assert_eq!(api.routes.get(tcp.id).unwrap().port, Some(20_000));
}

#[tokio::test]
async fn ports_that_cannot_be_had_are_refused_with_the_reason() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    let post = async |body| api.post("/v1/sockets", Some(&token), body).await;
    let tcp = make(&api, &token, json!({"name": "a", "type": "tcp", "port": 20_002})).await;
    let taken = post(json!({"name": "b", "type": "udp", "port": 20_002})).await;
    assert!(taken.assert_problem(StatusCode::CONFLICT, "port-taken").contains("20002"));
    let outside = post(json!({"name": "b", "type": "tcp", "port": 8_080})).await;
    assert!(
        outside.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-request").contains("from 20000 to 20004")
    );
    assert_eq!(outside.field(), "port");
    let web = post(json!({"name": "b", "port": 20_001})).await;
    assert!(web.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-request").contains("only tcp, tls and udp"));
    for n in 0..4 {
        make(&api, &token, json!({"name": format!("s{n}"), "type": "udp"})).await;
    }
    let full = post(json!({"name": "b", "type": "tcp"})).await.assert_problem(StatusCode::CONFLICT, "ports-exhausted");
    assert!(full.contains("from 20000 to 20004"), "{full}");
    let path = format!("/v1/sockets/{}", tcp.id);
    assert_eq!(api.send("DELETE", &path, Some(&token), None).await.status, StatusCode::NO_CONTENT);
    assert_eq!(make(&api, &token, json!({"name": "b", "type": "tcp"})).await.port, Some(20_002));
}

#[tokio::test]
async fn settings_are_set_kept_and_put_back() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    let full = json!({
        "name": "db", "type": "tls", "proxy_protocol": "v2", "alpn": ["postgresql"], "affinity": "address",
        "health_check": {"type": "http", "path": "/up", "status_to": 204, "interval_seconds": 9},
        "limits": {"max_connections": 10, "queue": 5},
        "access": {"allow": ["192.0.2.7/32", "country:ch"], "deny": ["asn:64500"]},
    });
    let socket = make(&api, &token, full).await;
    assert_eq!((socket.proxy_protocol, socket.affinity), (ProxyProtocol::V2, Affinity::Address));
    let check = socket.health_check.clone().unwrap();
    assert_eq!((check.probe, check.path.as_deref(), check.interval_seconds), (ProbeType::Http, Some("/up"), 9));
    assert_eq!((check.status_from, check.status_to, check.unhealthy_threshold), (Some(200), Some(204), 3));
    assert_eq!(socket.access.allow, ["192.0.2.7", "country:CH"], "in the form that all have");
    let known = api.routes.get(socket.id).unwrap().settings.clone();
    assert_eq!((known.limits, known.access), (socket.limits, socket.access.clone()));

    let path = format!("/v1/sockets/{}", socket.id);
    let patch = async |body| api.send("PATCH", &path, Some(&token), Some(body)).await.read::<Socket>(StatusCode::OK);
    let same = patch(json!({"name": "db 2"})).await;
    assert_eq!((same.limits, &same.access, &same.health_check), (socket.limits, &socket.access, &socket.health_check));
    let back = patch(json!({"limits": null, "access": null, "health_check": null, "affinity": null, "alpn": null,
                            "proxy_protocol": "v1", "tls_mode": "passthrough"}))
    .await;
    assert_eq!((back.limits, back.access.is_empty(), back.health_check), (Default::default(), true, None));
    assert_eq!((back.tls_mode, back.proxy_protocol), (TlsMode::Passthrough, ProxyProtocol::V1));
    assert_eq!(api.routes.get(socket.id).unwrap().settings.tls_mode, TlsMode::Passthrough);

    let open = make(&api, &token, json!({"name": "game", "type": "udp", "amplification_guard": false})).await;
    assert!(!open.amplification_guard && socket.amplification_guard);
    assert!(!api.routes.get(open.id).unwrap().settings.amplification_guard);
    let path = format!("/v1/sockets/{}", open.id);
    let patch = async |body| api.send("PATCH", &path, Some(&token), Some(body)).await.read::<Socket>(StatusCode::OK);
    assert!(!patch(json!({"name": "game 2"})).await.amplification_guard);
    assert!(patch(json!({"amplification_guard": null})).await.amplification_guard);
    assert!(api.routes.get(open.id).unwrap().settings.amplification_guard);
}

#[tokio::test]
async fn settings_that_make_no_sense_are_refused_by_field() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    for (body, field, says) in [
        (json!({"type": "tcp", "affinity": "cookie"}), "affinity", "http and https"),
        (json!({"type": "http", "proxy_protocol": "v1"}), "proxy_protocol", "tcp and tls"),
        (json!({"type": "tcp", "tls_mode": "passthrough"}), "tls_mode", "tls"),
        (json!({"type": "tls", "tls_mode": "passthrough", "alpn": ["h2"]}), "alpn", "passthrough"),
        (json!({"type": "udp", "health_check": {"type": "tcp"}}), "health_check", "health check"),
        (json!({"type": "tcp", "amplification_guard": false}), "amplification_guard", "udp"),
        (json!({"health_check": {"type": "http"}}), "health_check", "needs the path"),
        (json!({"health_check": {"type": "tcp", "timeout_seconds": 9}}), "health_check", "1 to 5"),
        (json!({"health_check": {"type": "ftp"}}), "health_check.type", "ftp"),
        (json!({"limits": {"max_connections": 0}}), "limits", "1 to"),
        (json!({"limits": {"max_conns": 1}}), "limits.max_conns", "no such field"),
        (json!({"access": {"deny": ["192.0.2.0/24", "10.1.2.3/8"]}}), "access.deny[1]", "10.0.0.0/8"),
        (json!({"access": {"allow": ["CH"]}}), "access.allow[0]", "not an access rule"),
        (json!({"access": {"deny": ["0.0.0.0/0", "::/0"]}}), "access", "nobody"),
        (json!({"type": "tcp", "protected": {"username": "u", "password": "p"}}), "protected", "access rules"),
        (json!({"type": "udp", "origin_protocol": "http2"}), "origin_protocol", "http and https"),
    ] {
        let mut body = body;
        body["name"] = json!("s");
        let response = api.post("/v1/sockets", Some(&token), body.clone()).await;
        let detail = response.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-request");
        assert_eq!((response.field().as_str(), detail.contains(says)), (field, true), "{body}: {detail}");
    }
    let web = api.socket(&token, "web").await;
    let tls = make(&api, &token, json!({"name": "s", "type": "tls", "alpn": ["h2"]})).await;
    for (socket, body, field) in [
        (&web, json!({"type": "tcp"}), "type"),
        (&tls, json!({"type": "https"}), "type"),
        (&tls, json!({"type": "tcp"}), "alpn"),
        (&tls, json!({"protected": {"username": "u", "password": "p"}}), "protected"),
    ] {
        let response = api.send("PATCH", &format!("/v1/sockets/{}", socket.id), Some(&token), Some(body)).await;
        response.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-request");
        assert_eq!(response.field(), field);
    }
}

#[tokio::test]
async fn what_an_older_server_took_is_in_no_edits_way() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    let socket = api.socket(&token, "web").await;
    let stored = api.routes.get(socket.id).unwrap();
    let mut old = stored.settings.clone();
    old.limits.queue = Some(5);
    old.health_check = serde_json::from_value(json!({"type": "http", "path": "/up#now"})).unwrap();
    let change = SocketChange { settings: Some(old.clone()), ..SocketChange::default() };
    let changed = api.store.change_socket(stored.account, socket.id, |_| Ok::<_, StoreError>(change)).await;
    assert_eq!(changed.unwrap().unwrap().settings, old);

    let path = format!("/v1/sockets/{}", socket.id);
    let patch = async |body| api.send("PATCH", &path, Some(&token), Some(body)).await;
    let renamed: Socket = patch(json!({"name": "shop"})).await.read(StatusCode::OK);
    assert_eq!((renamed.name.as_str(), renamed.limits), ("shop", old.limits));
    let denied: Socket = patch(json!({"access": {"deny": ["192.0.2.0/24"]}})).await.read(StatusCode::OK);
    assert_eq!((denied.access.deny.as_slice(), denied.limits), (["192.0.2.0/24".to_owned()].as_slice(), old.limits));
    patch(json!({"type": "https"})).await.read::<Socket>(StatusCode::OK);
    for (body, field) in [
        (json!({"limits": {"queue": 5}}), "limits"),
        (json!({"health_check": {"type": "http", "path": "/up#now"}}), "health_check"),
        (json!({"name": "s", "proxy_protocol": "v1"}), "proxy_protocol"),
    ] {
        let response = patch(body).await;
        response.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-request");
        assert_eq!(response.field(), field);
    }
    let mended: Socket = patch(json!({"limits": {"queue": 5, "max_connections": 2}})).await.read(StatusCode::OK);
    assert_eq!(mended.limits.max_connections, Some(2));
}

#[tokio::test]
async fn an_operator_can_require_the_amplification_guard() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    let open = json!({"name": "game", "type": "udp", "amplification_guard": false});
    let before = make(&api, &token, open.clone()).await;
    let api = api.restart_guarded().await;
    assert!(api.routes.get(before.id).unwrap().settings.amplification_guard, "also what was set before");
    let path = format!("/v1/sockets/{}", before.id);
    let renamed = api.send("PATCH", &path, Some(&token), Some(json!({"name": "game 2"}))).await;
    assert!(renamed.read::<Socket>(StatusCode::OK).amplification_guard);
    assert!(api.routes.get(before.id).unwrap().settings.amplification_guard);
    for (method, path, body) in
        [("POST", "/v1/sockets", open), ("PATCH", path.as_str(), json!({"amplification_guard": false}))]
    {
        let response = api.send(method, path, Some(&token), Some(body)).await;
        let says = response.assert_problem(StatusCode::FORBIDDEN, "amplification-guard-required");
        assert!(says.contains("requires the amplification guard"), "{says}");
    }
    make(&api, &token, json!({"name": "dns", "type": "udp", "amplification_guard": true})).await;
}

#[tokio::test]
async fn a_tunnel_has_a_weight_and_a_forward_port() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    let socket = api.socket(&token, "s").await;
    let path = format!("/v1/sockets/{}/tunnels", socket.id);
    let first = api.tunnel(&token, &socket).await.details;
    assert_eq!(first.weight, 100);
    let second: CreatedTunnel = api.post(&path, Some(&token), json!({"weight": 0})).await.read(StatusCode::CREATED);
    assert_eq!(second.details.weight, 0);
    for port in [first.forward_port, second.details.forward_port] {
        assert!(port >= 1_024 && !(20_000..=20_004).contains(&port), "{port}");
    }
    assert_ne!(first.forward_port, second.details.forward_port);
    let one = format!("{path}/{}", first.id);
    let changed: Tunnel = api.send("PATCH", &one, Some(&token), Some(json!({"weight": 7}))).await.read(StatusCode::OK);
    assert_eq!((changed.weight, changed.forward_port), (7, first.forward_port));
    let weights: Vec<_> = api.routes.get(socket.id).unwrap().tunnels.iter().map(|tunnel| tunnel.weight).collect();
    assert_eq!(weights, [7, 0]);
    for (method, at, body) in [
        ("PATCH", &one, json!({"weight": 1_001})),
        ("PATCH", &one, json!({})),
        ("PATCH", &one, json!({"weight": -1})),
        ("POST", &path, json!({"weight": 2_000})),
    ] {
        let response = api.send(method, at, Some(&token), Some(body)).await;
        response.assert_problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid-request");
        assert_eq!(response.field(), "weight");
    }
    let listed: Page<Tunnel> = api.get(&path, Some(&token)).await.read(StatusCode::OK);
    assert_eq!(listed.items.iter().map(|tunnel| tunnel.weight).collect::<Vec<_>>(), [7, 0]);
}

#[tokio::test]
async fn an_account_has_its_share_of_the_ports() {
    let api = Api::start_with_ports(2).await;
    let (ann, bob) = (api.account("ann@example.com").await, api.account("bob@example.com").await);
    let first = make(&api, &ann, json!({"name": "a", "type": "tcp"})).await;
    make(&api, &ann, json!({"name": "b", "type": "udp", "port": 20_003})).await;
    for body in [json!({"name": "c", "type": "tls"}), json!({"name": "c", "type": "tcp", "port": 20_004})] {
        let says =
            api.post("/v1/sockets", Some(&ann), body).await.assert_problem(StatusCode::CONFLICT, "limit-reached");
        assert!(
            says.contains("no more than 2 sockets with a port of their own") && says.contains("operator"),
            "{says}"
        );
    }
    make(&api, &ann, json!({"name": "c"})).await;
    make(&api, &bob, json!({"name": "d", "type": "tcp"})).await;
    api.send("DELETE", &format!("/v1/sockets/{}", first.id), Some(&ann), None).await;
    make(&api, &ann, json!({"name": "e", "type": "tls"})).await;
}

#[test]
fn a_fair_share_is_half_of_the_ports_within_bounds() {
    let share = |to| sallyport_control::default_ports_per_account(&(20_000..=to));
    assert_eq!([20_000, 20_019, 20_050, 20_199, 29_999].map(share), [10, 10, 25, 100, 100]);
}
