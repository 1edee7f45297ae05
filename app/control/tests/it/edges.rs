//! Edges and operators at control.

use std::time::Duration;

use axum::{Router, body::Body};
use http::{Request, StatusCode};
use sallyport_control::NodePeer;
use sallyport_model::{ClientAddr, EdgeId, SocketId};
use sallyport_store::{JoiningEdge, NewEdgeToken};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::harness::Api;

#[tokio::test]
async fn a_restart_publishes_every_socket_before_it_serves() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    let body = json!({"name": "s", "type": "https", "protected": {"username": "u", "password": "p"}});
    let socket: sallyport_api::Socket = api.post("/v1/sockets", Some(&token), body).await.read(StatusCode::CREATED);
    api.tunnel(&token, &socket).await;
    api.socket(&token, "another").await;
    let before = api.routes.get(socket.id).unwrap();
    let api = api.restart().await;
    assert_eq!(api.routes.all().len(), 2);
    assert_eq!(api.routes.get(socket.id).unwrap(), before);
    assert_eq!(api.get("/v1/account", Some(&token)).await.status, StatusCode::OK, "and logins go on");
}

#[tokio::test]
async fn a_client_that_disconnects_leaves_edges_with_the_stored_state() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    for n in 0..60 {
        let name = format!("s{n}");
        let making = api.socket(&token, &name);
        // The client leaves at some point between the first and the last step.
        let _ = tokio::time::timeout(Duration::from_micros(n * 100), making).await;
    }
    // A begun creation finishes after its client has left, one after the other.
    let mut tries = 0;
    loop {
        api.socket(&token, &format!("another {tries}")).await;
        let sorted = |mut ids: Vec<SocketId>| {
            ids.sort_unstable();
            ids
        };
        let stored = sorted(api.store.routes().await.unwrap().iter().map(|route| route.id).collect());
        let published = sorted(api.routes.all().iter().map(|route| route.id).collect());
        if stored == published {
            break;
        }
        tries += 1;
        assert!(tries < 50, "edges have {} of {} sockets", published.len(), stored.len());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn what_happens_is_counted() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    let socket = api.socket(&token, "s").await;
    api.socket(&token, "t").await;
    api.send("DELETE", &format!("/v1/sockets/{}", socket.id), Some(&token), None).await;
    api.post("/v1/login", None, json!({"email": "ann@example.com", "password": "wrong horse"})).await;
    api.get("/nonsense/1", None).await;
    let mut registry = prometheus_client::registry::Registry::default();
    api.control.register_metrics(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    for line in [
        "sallyport_sockets 1\n",
        "sallyport_accounts 1\n",
        "sallyport_logins_total{outcome=\"ok\"} 1\n",
        "sallyport_logins_total{outcome=\"failed\"} 1\n",
        "sallyport_api_requests_total{route=\"/v1/sockets\",method=\"POST\",status=\"201\"} 2\n",
        "sallyport_api_requests_total{route=\"/v1/sockets/{id}\",method=\"DELETE\",status=\"204\"} 1\n",
        "sallyport_api_requests_total{route=\"none\",method=\"GET\",status=\"404\"} 1\n",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    assert_eq!(api.control.check().await, Ok(()));
}

/// An edge that has joined.
async fn joined_edge(api: &Api) -> EdgeId {
    // Later than what is removed.
    let now = 4_000_000_000;
    let token = NewEdgeToken { hash: [1; 32], name: None, region: None, created_at: now, expires_at: now + 60 };
    api.store.create_edge_token(&token).await.unwrap();
    let (name, region) = (Some("eu-1".parse().unwrap()), Some("eu".parse().unwrap()));
    let joining = JoiningEdge { id: EdgeId::from_random([1; 16]), name, region, now };
    api.store.join_edge([1; 32], &joining).await.unwrap().unwrap().id
}

#[tokio::test]
async fn an_edge_checks_an_unknown_tunnel_at_control() {
    let api = Api::start().await;
    let edge = joined_edge(&api).await;
    let token = api.account("ann@example.com").await;
    let socket = api.socket(&token, "s").await;
    let made = api.tunnel(&token, &socket).await;
    let (tunnel, credential) = (made.details.id, made.credential.expose());
    let ask = async |tunnel: &str, credential: &str| {
        let hash: [u8; 32] = Sha256::digest(credential).into();
        let body = json!({ "tunnel": tunnel, "credential": hash }).to_string();
        let request = Request::post("https://control/node/v1/tunnel").header("content-type", "application/json");
        let mut request = request.body(Body::from(body)).unwrap();
        let address = ClientAddr("192.0.2.7:7".parse().unwrap());
        request.extensions_mut().insert(NodePeer { edge: Some(edge), address });
        request.extensions_mut().insert(address);
        let response = Api::response(api.control.node_router(), request).await;
        (response.status, response.json()["status"].as_str().unwrap_or_default().to_owned())
    };
    assert_eq!(ask(&tunnel.to_string(), credential).await, (StatusCode::OK, "known".into()));
    assert_eq!(ask(&tunnel.to_string(), "another").await, (StatusCode::OK, "bad-credential".into()));
    let nobody = "00000000-0000-4000-8000-000000000001";
    assert_eq!(ask(nobody, credential).await, (StatusCode::OK, "unknown".into()));
    assert_ne!(ask("nothing", credential).await.0, StatusCode::OK);
    api.send("DELETE", &format!("/v1/sockets/{}", socket.id), Some(&token), None).await;
    assert_eq!(
        ask(&tunnel.to_string(), credential).await,
        (StatusCode::OK, "unknown".into()),
        "it was deleted with its socket"
    );
}

/// Sends a request of an edge to this router.
async fn ask(router: Router, edge: Option<EdgeId>, path: &str, client: Option<&str>) -> (StatusCode, String) {
    let mut request = Request::post(format!("https://api.localhost{path}")).header("content-type", "application/json");
    if let Some(client) = client {
        request = request.header("sallyport-client", client);
    }
    let mut request = request.body(Body::from("{}")).unwrap();
    let address = ClientAddr("192.0.2.7:7".parse().unwrap());
    request.extensions_mut().insert(NodePeer { edge, address });
    request.extensions_mut().insert(address);
    let response = Api::response(router, request).await;
    (response.status, response.json_code())
}

#[tokio::test]
async fn requests_of_edges_are_served_on_their_own_connections_alone() {
    let api = Api::start().await;
    let edge = Some(joined_edge(&api).await);
    let client = Some("192.0.2.1:1");
    for path in ["join", "renew", "world", "tunnel", "ssh/begin", "ssh/forward", "ssh/ended"] {
        let path = format!("/node/v1/{path}");
        let own = ask(api.control.node_router(), edge, &path, None).await;
        assert!(own.0 != StatusCode::NOT_FOUND && own.1 != "no-client", "{path}: {own:?}");
        // Under any name, requests of an edge's clients are none of these.
        for router in [api.control.clients_router(), api.control.node_router()] {
            assert_eq!(ask(router, edge, &path, client).await.0, StatusCode::NOT_FOUND, "{path}");
        }
        let unnamed = ask(api.control.clients_router(), edge, &path, None).await;
        assert_eq!(unnamed, (StatusCode::BAD_REQUEST, "no-client".to_owned()), "{path}");
        let stranger = ask(api.control.clients_router(), None, &path, client).await;
        assert_eq!(stranger, (StatusCode::UNAUTHORIZED, "no-certificate".to_owned()), "{path}");
    }
    let login = ask(api.control.clients_router(), edge, "/v1/login", client).await;
    assert!(login.0 != StatusCode::NOT_FOUND && login.1 != "no-client", "the API is there: {login:?}");
}
