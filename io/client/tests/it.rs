//! The client against a server with the answers of each test, over real TLS.
#![allow(missing_docs, clippy::unwrap_used)]

use std::{
    future::Future,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use sallyport_api::{CreateSocket, Session};
use sallyport_client::{
    ApiClient, Auth, ClientConfig, ClientError, MAX_ANSWER_BYTES, SessionLock, SessionStore, SessionStoreError,
};
use sallyport_model::SocketType;
use sallyport_net::{Certificates, LocalCa, Outbound, Trust};
use time::OffsetDateTime;
use tokio::{net::TcpListener, sync::Barrier};
use tokio_rustls::TlsAcceptor;

/// The server's reaction to a request: status and body of an answer, or `None` to close the connection.
type Script = Arc<dyn Fn(&str, &http::HeaderMap) -> Option<(u16, String)> + Send + Sync>;

struct Server {
    _dir: tempfile::TempDir,
    ca: PathBuf,
    url: String,
    /// Method, path and query of each request, in order.
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    async fn start(script: impl Fn(&str, &http::HeaderMap) -> Option<(u16, String)> + Send + Sync + 'static) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let ca = LocalCa::open_or_create(dir.path(), "localhost").unwrap();
        let tls = sallyport_net::server_config(Certificates::new(ca, "localhost").unwrap(), b"none");
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://api.localhost:{}", listener.local_addr().unwrap().port());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (seen, script): (_, Script) = (requests.clone(), Arc::new(script));
        tokio::spawn(async move {
            let acceptor = TlsAcceptor::from(tls);
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, seen, script) = (acceptor.clone(), seen.clone(), script.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = hyper::service::service_fn(|request| answer(request, &seen, &script));
                    drop(
                        hyper::server::conn::http1::Builder::new()
                            .serve_connection(TokioIo::new(stream), service)
                            .await,
                    );
                });
            }
        });
        Self { ca: dir.path().join("ca.pem"), _dir: dir, url, requests }
    }

    fn client(&self, auth: Auth) -> ApiClient {
        self.client_that_trusts(auth, Trust::Ca(self.ca.clone()))
    }

    fn client_that_trusts(&self, auth: Auth, trust: Trust) -> ApiClient {
        let address = self.url.parse().unwrap();
        ApiClient::new(ClientConfig { address, trust, outbound: Outbound::default(), auth, agent: "test/1".into() })
            .unwrap()
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

fn answer(
    request: Request<Incoming>,
    seen: &Mutex<Vec<String>>,
    script: &Script,
) -> impl Future<Output = Result<Response<Full<Bytes>>, std::io::Error>> + use<> {
    let line = format!("{} {}", request.method(), request.uri());
    let answer = script(&line, request.headers());
    seen.lock().unwrap().push(line);
    async move {
        let Some((status, body)) = answer else { return Err(std::io::ErrorKind::ConnectionReset.into()) };
        let response = Response::builder().status(StatusCode::from_u16(status).unwrap());
        // The other one has no number of seconds.
        let wait = if status == 429 { "7" } else { "soon" };
        let response = response.header("retry-after", wait);
        Ok(response.header("location", "https://elsewhere.example/").body(Full::new(body.into())).unwrap())
    }
}

/// A store in memory that behaves like the program's file.
#[derive(Default)]
struct Memory {
    session: Mutex<Option<Session>>,
    lock: Arc<Mutex<bool>>,
}

struct Unlock(Arc<Mutex<bool>>);

impl Drop for Unlock {
    fn drop(&mut self) {
        *self.0.lock().unwrap() = false;
    }
}

impl SessionStore for Memory {
    fn load(&self) -> Result<Option<Session>, SessionStoreError> {
        Ok(self.session.lock().unwrap().clone())
    }

    fn save(&self, session: &Session) -> Result<(), SessionStoreError> {
        *self.session.lock().unwrap() = Some(session.clone());
        Ok(())
    }

    fn try_lock(&self) -> Result<Option<SessionLock>, SessionStoreError> {
        let mut locked = self.lock.lock().unwrap();
        let got = !std::mem::replace(&mut *locked, true);
        Ok(got.then(|| Box::new(Unlock(self.lock.clone())) as SessionLock))
    }
}

fn session(access: &str, seconds_left: i64) -> Session {
    let now = OffsetDateTime::now_utc();
    Session {
        access_token: access.into(),
        expires_at: now + time::Duration::seconds(seconds_left),
        refresh_token: format!("refresh-{access}").as_str().into(),
        refresh_expires_at: now + time::Duration::days(1),
    }
}

fn store(session: Session) -> Arc<Memory> {
    Arc::new(Memory { session: Mutex::new(Some(session)), ..Memory::default() })
}

const ACCOUNT: &str = r#"{"id":"0b7e3c1a-5f0e-4c57-9f63-6a1f0f9e2d11","name":"Ann","email":"ann@example.com",
    "created_at":"2026-01-02T03:04:05Z","of_a_later_version":1}"#;

/// A server that accepts only the token `new`, and issues it at each refresh.
async fn renewing_server() -> Server {
    let next = serde_json::to_string(&session("new", 900)).unwrap();
    Server::start(move |line, headers| {
        Some(match line {
            "POST /v1/login/refresh" => (200, next.clone()),
            _ if headers.get("authorization").is_some_and(|value| value == "Bearer new") => (200, ACCOUNT.to_owned()),
            _ => (401, r#"{"status":401,"detail":"the session has ended"}"#.to_owned()),
        })
    })
    .await
}

#[tokio::test]
async fn a_session_that_ends_is_renewed_before_it_is_used_and_saved() {
    let server = renewing_server().await;
    let store = store(session("old", 5));
    let account = server.client(Auth::Saved(store.clone())).account().await.unwrap();
    assert_eq!(account.email.as_str(), "ann@example.com");
    assert_eq!(server.requests(), ["POST /v1/login/refresh", "GET /v1/account"]);
    assert_eq!(store.load().unwrap().unwrap().access_token.expose(), "new");
}

#[tokio::test]
async fn a_session_that_the_server_no_longer_knows_is_renewed_once() {
    let server = renewing_server().await;
    server.client(Auth::Saved(store(session("old", 900)))).account().await.unwrap();
    assert_eq!(server.requests(), ["GET /v1/account", "POST /v1/login/refresh", "GET /v1/account"]);
}

#[tokio::test]
async fn calls_side_by_side_renew_a_session_once() {
    let server = renewing_server().await;
    let client = server.client(Auth::Saved(store(session("old", 5))));
    let together = Arc::new(Barrier::new(4));
    let calls: Vec<_> = (0..4)
        .map(|_| {
            let (client, together) = (client.clone(), together.clone());
            tokio::spawn(async move {
                together.wait().await;
                client.account().await
            })
        })
        .collect();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    let renewals = server.requests().iter().filter(|line| line.ends_with("/refresh")).count();
    assert_eq!(renewals, 1, "{:?}", server.requests());
}

#[tokio::test]
async fn a_session_that_cannot_be_renewed_means_to_log_in_again() {
    let server = Server::start(|_, _| Some((401, r#"{"status":401,"detail":"ended"}"#.to_owned()))).await;
    let error = server.client(Auth::Saved(store(session("old", 5)))).account().await.unwrap_err();
    assert!(matches!(error, ClientError::NotLoggedIn { .. }), "{error}");
    let error = server.client(Auth::Saved(Arc::new(Memory::default()))).account().await.unwrap_err();
    assert!(matches!(error, ClientError::NotLoggedIn { .. }), "{error}");
}

#[tokio::test]
async fn refusals_of_the_api_keep_its_words() {
    let server =
        Server::start(|_, _| Some((409, r#"{"status":409,"detail":"taken","code":"email-taken"}"#.into()))).await;
    let error = server.client(Auth::Token("spt_x".into())).account().await.unwrap_err();
    assert_eq!((error.status(), error.to_string().as_str()), (Some(409), "taken"));
}

#[tokio::test]
async fn an_invalid_response_of_the_api_is_refused() {
    for (status, body, reason) in [
        (302, String::new(), "a redirect to https://elsewhere.example/"),
        (502, "<html>".to_owned(), "status 502"),
        (200, "<html>".to_owned(), "expected value"),
        (200, " ".repeat(MAX_ANSWER_BYTES + 1), "longer than"),
    ] {
        let server = Server::start(move |_, _| Some((status, body.clone()))).await;
        let error = server.client(Auth::Anonymous).info().await.unwrap_err();
        assert!(matches!(error, ClientError::Answer { .. }) && error.to_string().contains(reason), "{error}");
        assert_eq!(server.requests(), ["GET /v1/info"]);
    }
}

#[tokio::test]
async fn nothing_is_sent_to_a_server_that_is_not_trusted() {
    let server = Server::start(|_, _| Some((200, ACCOUNT.to_owned()))).await;
    let other = tempfile::tempdir().unwrap();
    LocalCa::open_or_create(other.path(), "localhost").unwrap();
    let wrong_pin = format!("sha256:{}", "ab".repeat(32));
    for trust in [Trust::Ca(other.path().join("ca.pem")), Trust::Pinned(wrong_pin)] {
        let client = server.client_that_trusts(Auth::Token("spt_secret".into()), trust);
        let error = client.account().await.unwrap_err();
        assert!(matches!(error, ClientError::Untrusted { .. }), "{error}");
    }
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn an_unreachable_api_is_named_even_without_a_login() {
    // A bound port without a listener refuses connections, and no other process can take the port.
    let reserved = tokio::net::TcpSocket::new_v4().unwrap();
    reserved.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let port = reserved.local_addr().unwrap().port();
    let address = format!("https://127.0.0.1:{port}").parse().unwrap();
    let dir = tempfile::tempdir().unwrap();
    LocalCa::open_or_create(dir.path(), "localhost").unwrap();
    let trust = Trust::Ca(dir.path().join("ca.pem"));
    let config =
        ClientConfig { address, trust, outbound: Outbound::default(), auth: Auth::Anonymous, agent: "test/1".into() };
    let error = ApiClient::new(config).unwrap().account().await.unwrap_err();
    assert!(matches!(error, ClientError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains(&format!("127.0.0.1:{port}")), "{error}");
}

#[tokio::test]
async fn lists_are_read_to_their_end_and_never_for_ever() {
    let server = Server::start(|line, _| {
        Some(match line {
            "GET /v1/tokens?limit=100" => (200, r#"{"items":[],"next":null}"#.to_owned()),
            "GET /v1/sockets?limit=100" => (200, format!(r#"{{"items":[{}],"next":"a&b"}}"#, socket("one"))),
            "GET /v1/sockets?limit=100&after=a%26b" => (200, format!(r#"{{"items":[{}]}}"#, socket("two"))),
            _ => (200, r#"{"items":[],"next":"again"}"#.to_owned()),
        })
    })
    .await;
    let client = server.client(Auth::Token("spt_x".into()));
    assert!(client.tokens().await.unwrap().is_empty());
    let names: Vec<String> = client.sockets().await.unwrap().into_iter().map(|it| it.name.to_string()).collect();
    assert_eq!(names, ["one", "two"]);
    let error = client.tunnels(&"endless-list-1000".parse().unwrap()).await.unwrap_err();
    assert!(error.to_string().contains("a list without an end"), "{error}");
}

fn socket(name: &str) -> String {
    format!(
        r#"{{"id":"0b7e3c1a-5f0e-4c57-9f63-6a1f0f9e2d11","name":"{name}","dns_name":"calm-bay-1000.localhost",
        "url":"https://calm-bay-1000.localhost","type":"http","origin_protocol":"auto","protected":null,
        "created_at":"2026-01-02T03:04:05Z","tunnels_total":0,"tunnels_up":0}}"#
    )
}

#[tokio::test]
async fn a_creation_without_a_response_is_repeated_with_the_same_key() {
    let calls = Arc::new(AtomicUsize::new(0));
    let count = calls.clone();
    let server = Server::start(move |_, headers| {
        assert_eq!(headers.get("idempotency-key").unwrap(), "key-1");
        (count.fetch_add(1, Ordering::SeqCst) > 0).then(|| (201, socket("one")))
    })
    .await;
    let create = CreateSocket::new("one".parse().unwrap(), SocketType::Http);
    let client = server.client(Auth::Token("spt_x".into()));
    assert_eq!(client.create_socket(&create, "key-1").await.unwrap().name.as_str(), "one");
    assert_eq!(calls.load(Ordering::SeqCst), 2);
    let lost = Server::start(|_, _| None).await;
    let error = lost.client(Auth::Token("spt_x".into())).delete_socket(&"calm-bay-1000".parse().unwrap()).await;
    assert!(error.unwrap_err().is_ambiguous());
    assert_eq!(lost.requests().len(), 1, "only what has a key is sent twice");
}

#[tokio::test]
async fn a_token_with_line_breaks_is_refused_before_anything_is_sent() {
    let server = Server::start(|_, _| Some((200, ACCOUNT.to_owned()))).await;
    let error = server.client(Auth::Token("spt_a\r\nX-Evil: 1".into())).account().await.unwrap_err();
    assert!(matches!(error, ClientError::Token), "{error}");
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn an_error_carries_the_time_that_the_api_asks_to_wait() {
    let server = Server::start(|line, _| {
        let status = if line.contains("busy") { 503 } else { 429 };
        Some((status, format!(r#"{{ "status": {status}, "detail": "wait", "code": "too-many" }}"#)))
    })
    .await;
    let client = server.client(Auth::Token("token".into()));
    for (name, seconds) in [("shop", Some(7)), ("busy", None)] {
        let Err(ClientError::Problem(problem)) = client.socket(&name.parse().unwrap()).await else { panic!("{name}") };
        assert_eq!(problem.retry_after.map(|time| time.as_secs()), seconds, "{name}");
        assert_eq!(problem.to_string(), "wait");
    }
}
