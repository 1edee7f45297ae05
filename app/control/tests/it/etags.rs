//! Entity tags: a client changes only what it has seen.

use http::{Request, StatusCode, header};
use sallyport_api::{Policy, Socket, Tunnel};
use serde_json::{Value, json};

use crate::harness::{Api, HttpResponse};

/// A request with `If-Match`.
async fn send(api: &Api, token: &str, method: &str, path: &str, tag: &str, body: Option<Value>) -> HttpResponse {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::AUTHORIZATION, format!("Bearer {token}"))
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::IF_MATCH, tag);
    api.raw(request.body(body.map(|body| body.to_string()).unwrap_or_default().into()).unwrap()).await
}

/// The tag of a thing.
async fn tag(api: &Api, token: &str, path: &str) -> String {
    api.get(path, Some(token)).await.header("etag").unwrap().to_owned()
}

#[tokio::test]
async fn a_thing_that_has_changed_meanwhile_is_left_alone() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    let socket = api.socket(&token, "first").await;
    let socket_path = format!("/v1/sockets/{}", socket.id);
    let made = api.post(&format!("{socket_path}/tunnels"), Some(&token), json!({})).await;
    let tunnel: Tunnel = made.read(StatusCode::CREATED);
    let document = json!({"allow": [{"who": {"emails": ["ann@example.com"]}}]});
    let made = api.post("/v1/policies", Some(&token), json!({"name": "staff", "document": document})).await;
    let policy: Policy = made.read(StatusCode::CREATED);
    let tunnel_path = format!("{socket_path}/tunnels/{}", tunnel.id);
    let policy_path = format!("/v1/policies/{}", policy.id);
    for (path, change) in [
        (&tunnel_path, json!({"weight": 7})),
        (&policy_path, json!({"labels": {"a": "b"}})),
        (&socket_path, json!({"name": "second"})),
    ] {
        let former = tag(&api, &token, path).await;
        assert!(former.starts_with('"') && former.len() == 34, "{former}");
        assert_eq!(tag(&api, &token, path).await, former, "nothing has changed");
        let changed = send(&api, &token, "PATCH", path, &former, Some(change.clone())).await;
        assert_eq!(changed.status, StatusCode::OK, "{}", changed.text);
        let current = tag(&api, &token, path).await;
        assert_ne!(current, former);
        if let Some(shown) = changed.header("etag") {
            assert_eq!(shown, current);
        }
        for method in ["PATCH", "DELETE"] {
            let refused = send(&api, &token, method, path, &former, Some(change.clone())).await;
            let detail = refused.assert_problem(StatusCode::PRECONDITION_FAILED, "precondition-failed");
            assert!(detail.contains("read it again"), "{detail}");
        }
        assert_eq!(tag(&api, &token, path).await, current, "the refused requests changed nothing");
        for malformed in ["x", "\"a", ""] {
            let refused = send(&api, &token, "DELETE", path, malformed, None).await;
            refused.assert_problem(StatusCode::BAD_REQUEST, "bad-if-match");
        }
        let weak = send(&api, &token, "DELETE", path, &format!("W/{current}"), None).await;
        assert_eq!(weak.status, StatusCode::PRECONDITION_FAILED, "a weak tag never matches");
        let any = send(&api, &token, "PATCH", path, "*", Some(change)).await;
        assert_eq!(any.status, StatusCode::OK, "{}", any.text);
        if path != &tunnel_path {
            let deleted = send(&api, &token, "DELETE", path, &format!("\"other\", {current}"), None).await;
            assert_eq!(deleted.status, StatusCode::NO_CONTENT, "{}", deleted.text);
        }
    }
}

#[tokio::test]
async fn of_many_writers_with_one_tag_one_wins() {
    let api = Api::start().await;
    let token = api.account("ann@example.com").await;
    let socket = api.socket(&token, "first").await;
    let path = format!("/v1/sockets/{}", socket.id);
    let seen = tag(&api, &token, &path).await;
    let writers =
        (0..8).map(|n| send(&api, &token, "PATCH", &path, &seen, Some(json!({"labels": {"n": n.to_string()}}))));
    let mut won = Vec::new();
    for (n, response) in futures_of(writers).await.into_iter().enumerate() {
        match response.status {
            StatusCode::OK => won.push(n.to_string()),
            status => assert_eq!(status, StatusCode::PRECONDITION_FAILED, "{}", response.text),
        }
    }
    let now: Socket = api.get(&path, Some(&token)).await.read(StatusCode::OK);
    assert_eq!((won.len(), now.labels.get("n")), (1, won.first().map(String::as_str)));
}

/// Runs these futures side by side.
pub(crate) async fn futures_of<F: Future>(all: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut all: Vec<_> = all.map(|one| (Box::pin(one), None)).collect();
    std::future::poll_fn(move |cx| {
        let mut is_pending = false;
        for (future, output) in &mut all {
            if output.is_none() {
                match future.as_mut().poll(cx) {
                    std::task::Poll::Ready(value) => *output = Some(value),
                    std::task::Poll::Pending => is_pending = true,
                }
            }
        }
        if is_pending {
            return std::task::Poll::Pending;
        }
        std::task::Poll::Ready(all.iter_mut().filter_map(|(_, output)| output.take()).collect())
    })
    .await
}
