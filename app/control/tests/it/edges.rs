//! What edges and operators see of control.

use std::time::Duration;

use http::StatusCode;
use sallyport_model::SocketId;
use serde_json::json;

use crate::harness::Api;

#[tokio::test]
async fn a_restart_publishes_every_socket_before_it_answers() {
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
async fn a_client_that_goes_away_leaves_edges_with_what_the_store_has() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    for n in 0..60 {
        let name = format!("s{n}");
        let making = api.socket(&token, &name);
        // Gone at some point between the request's first and last step.
        let _ = tokio::time::timeout(Duration::from_micros(n * 100), making).await;
    }
    // What was begun is finished behind the clients' backs, and the store makes one thing after the other.
    let mut tries = 0;
    loop {
        api.socket(&token, "another").await;
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
        assert!(tries < 50, "edges know {} of {} sockets", published.len(), stored.len());
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
