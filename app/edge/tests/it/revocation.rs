//! Revocation: every kind of long request and connection is cut, in every state, when its access ends. Both the client
//! and the origin see the end. The origin reports each end on a channel.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper_util::rt::{TokioExecutor, TokioIo};
use sallyport_edge::BoxError;
use sallyport_model::LoginSession;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::JoinHandle,
};

use crate::{
    flows::service,
    harness::*,
    identity::{IdentityFixture, asks, now},
};

/// A guard that reports on drop that a request has ended at the origin.
struct Word(UnboundedSender<String>, String);

impl Drop for Word {
    fn drop(&mut self) {
        let _ = self.0.send(std::mem::take(&mut self.1));
    }
}

/// The paths. Each path selects how the client sends the request, and how the origin handles it.
const HTTP1: [&str; 5] = ["/events/1", "/firehose/1", "/waits/1", "/upload/1", "/websocket/1"];
const HTTP2: [&str; 5] = ["/events/2", "/firehose/2", "/waits/2", "/upload/2", "/window-0/2"];
const GRPC: [&str; 2] = ["/grpc", "/grpc/unread"];

async fn serve_http1(mut tcp: TcpStream, words: UnboundedSender<String>) {
    let head = read_head(&mut tcp).await;
    let path = head.split(' ').nth(1).unwrap().to_owned();
    let kind = path.split('/').nth(1).unwrap().to_owned();
    let _word = Word(words, path);
    match &kind[..] {
        "events" => {
            let _ = tcp.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n").await;
        }
        "firehose" | "window-0" => {
            let _ = tcp.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
            while tcp.write_all(&[7; 16 * 1024]).await.is_ok() {}
            return;
        }
        "websocket" => {
            let head = b"HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\nhi";
            let _ = tcp.write_all(head).await;
        }
        _ => {}
    }
    let mut scrap = [0; 4_096];
    while tcp.read(&mut scrap).await.is_ok_and(|bytes| bytes > 0) {}
}

/// A body that never ends.
struct Endless(
    #[expect(dead_code, reason = "a drop sends the word")] Option<Word>,
    tokio::time::Interval,
    usize,
    Arc<AtomicUsize>,
);

impl Endless {
    fn body(word: Option<Word>, every_ms: u64, bytes: usize) -> TestBody {
        Self::counted(word, every_ms, bytes, Arc::default())
    }

    /// An endless body that counts the pieces taken from it.
    fn counted(word: Option<Word>, every_ms: u64, bytes: usize, taken: Arc<AtomicUsize>) -> TestBody {
        let ticks = tokio::time::interval(Duration::from_millis(every_ms));
        StreamBody::new(Self(word, ticks, bytes, taken)).boxed_unsync()
    }
}

impl futures_core::Stream for Endless {
    type Item = Result<Frame<Bytes>, BoxError>;
    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        let bytes = self.2;
        self.1.poll_tick(cx).map(|_| {
            self.3.fetch_add(1, Ordering::SeqCst);
            Some(Ok(Frame::data(vec![7; bytes].into())))
        })
    }
}

struct Scene {
    fixture: IdentityFixture,
    socket: TestSocket,
    grpc: TestSocket,
    _connectors: [Connector; 2],
    words: UnboundedReceiver<String>,
}

impl Scene {
    async fn start() -> Self {
        let fixture = IdentityFixture::start().await;
        let (mut socket, mut grpc) = (fixture.world.socket(), fixture.world.socket());
        let (word_sender, words) = unbounded_channel();
        let of_http1 = word_sender.clone();
        let http1 = service(move |tcp| serve_http1(tcp, of_http1.clone())).await;
        let http2 = h2_origin(move |request: Request<hyper::body::Incoming>| {
            let word_sender = word_sender.clone();
            async move {
                let path = request.uri().path().to_owned();
                let mut body = request.into_body();
                let word = Word(word_sender, path.clone());
                tokio::spawn(async move {
                    if path == "/grpc/unread" {
                        // This request's body stays unread.
                        std::future::pending::<()>().await;
                    }
                    while let Some(Ok(_)) = body.frame().await {}
                });
                let mut response = Response::new(Endless::body(Some(word), 20, 5));
                response.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
                response
            }
        })
        .await;
        let connectors = [fixture.world.tunnel(&mut socket, http1).await, fixture.world.tunnel(&mut grpc, http2).await];
        Self { fixture, socket, grpc, _connectors: connectors, words }
    }

    /// Opens all requests and connections. Each has a task that ends when its client has seen the end.
    async fn open_all(&self, cookies: [&str; 2]) -> Vec<(String, JoinHandle<()>)> {
        let mut open = Vec::new();
        for path in HTTP1 {
            open.push((path.to_owned(), self.over_http1(path, cookies[0]).await));
        }
        for path in HTTP2 {
            open.push((path.to_owned(), self.over_http2(&self.socket, path, cookies[0]).await));
        }
        for path in GRPC {
            open.push((path.to_owned(), self.over_http2(&self.grpc, path, cookies[1]).await));
        }
        open
    }

    async fn over_http1(&self, path: &'static str, cookie: &str) -> JoinHandle<()> {
        let mut client = self.fixture.world.client(&self.socket).await;
        let (method, more) = match path {
            "/upload/1" => ("POST", "Transfer-Encoding: chunked\r\n"),
            "/websocket/1" => ("GET", "Connection: Upgrade\r\nUpgrade: websocket\r\n"),
            _ => ("GET", ""),
        };
        let head = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\n{more}{cookie}\r\n", self.socket.host());
        client.write_all(head.as_bytes()).await.unwrap();
        if path == "/upload/1" {
            client.write_all(b"2\r\nhi\r\n").await.unwrap();
        }
        if ["/events/1", "/websocket/1", "/firehose/1"].contains(&path) {
            let response = read_head(&mut client).await;
            assert!(response.starts_with("HTTP/1.1 200") || response.starts_with("HTTP/1.1 101"), "{response}");
        }
        tokio::spawn(async move {
            if path == "/firehose/1" {
                // The client reads nothing, and would see the end at its next read.
                tokio::time::sleep(PATIENCE).await;
                return;
            }
            if ["/waits/1", "/upload/1"].contains(&path) {
                assert_eq!(read_response(&mut client).await.status, 403, "{path}");
                return;
            }
            let rest = read_rest(&mut client).await;
            assert!(!rest.ends_with(b"0\r\n\r\n"), "{path} is not taken for complete");
        })
    }

    async fn over_http2(&self, socket: &TestSocket, path: &'static str, cookie: &str) -> JoinHandle<()> {
        let tls = self.fixture.world.client_with(&socket.host(), &[b"h2"]).await;
        let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        let window = if path == "/window-0/2" { 0 } else { 65_535 };
        builder.initial_stream_window_size(window).initial_connection_window_size(65_535);
        let (mut sender, connection) = builder.handshake(TokioIo::new(tls)).await.unwrap();
        tokio::spawn(connection);
        let taken = Arc::new(AtomicUsize::new(0));
        let body = match path {
            "/grpc/unread" => Endless::counted(None, 1, 16 * 1024, taken.clone()),
            "/upload/2" | "/window-0/2" | "/grpc" => Endless::body(None, 20, 5),
            _ => text(""),
        };
        let mut request = Request::post(format!("https://{}{path}", socket.host())).body(body).unwrap();
        if path.starts_with("/grpc") {
            request.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
        }
        if let Some(cookie) = cookie.trim_end().strip_prefix("Cookie: ") {
            request.headers_mut().insert("cookie", cookie.parse().unwrap());
        }
        let response = sender.send_request(request);
        let (begun, begins) = tokio::sync::oneshot::channel();
        let task = tokio::spawn(async move {
            let _sender = sender;
            if path.starts_with("/waits") || path.starts_with("/upload") {
                let _ = begun.send(());
                assert_eq!(response.await.unwrap().status(), 403, "{path}");
                return;
            }
            let mut response = response.await.unwrap();
            assert_eq!(response.status(), 200, "{path}");
            if path == "/firehose/2" {
                let _ = begun.send(());
                // The client reads nothing while its stream is open.
                tokio::time::sleep(PATIENCE).await;
                return;
            }
            let _ = begun.send(());
            loop {
                match response.frame().await {
                    Some(Ok(_)) => {}
                    Some(Err(_)) => return,
                    None => panic!("{path} is not taken for complete"),
                }
            }
        });
        soon(begins).await.unwrap();
        if path == "/grpc/unread" {
            // Waits until all buffers on the path are full, including the connection window of the origin.
            let mut before = 0;
            while taken.load(Ordering::SeqCst) != before {
                before = taken.load(Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
        }
        task
    }

    /// Waits until each origin and each client has seen the end.
    async fn all_end(&mut self, open: Vec<(String, JoinHandle<()>)>) {
        let mut waited: BTreeSet<String> = open.iter().map(|(path, _)| path.clone()).collect();
        while !waited.is_empty() {
            let word = tokio::time::timeout(PATIENCE, self.words.recv()).await;
            let word = word.unwrap_or_else(|_| panic!("the origins of these requests saw no end: {waited:?}")).unwrap();
            waited.remove(&word);
        }
        for (path, task) in open {
            if path.starts_with("/firehose") {
                task.abort();
            } else {
                soon(task).await.unwrap();
            }
        }
    }
}

fn cookies(scene: &Scene, session: &LoginSession) -> [String; 2] {
    [&scene.socket, &scene.grpc].map(|socket| scene.fixture.cookie(socket.route.id, session, now()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_open_requests_and_connections_end_with_the_login() {
    let mut scene = Scene::start().await;
    for socket in [&mut scene.socket, &mut scene.grpc] {
        socket.set(&scene.fixture.world, |settings| settings.identity = asks("example.com"));
    }
    let ann = scene.fixture.login(1, "ann@example.com");
    let [first, second] = cookies(&scene, &ann);
    let open = scene.open_all([&first, &second]).await;
    let number = open.len();
    scene.fixture.identities.end_sessions(|_| true);
    scene.all_end(open).await;
    let revoked = format!("identity_total{{outcome=\"revoked\"}} {number}");
    until("all are counted", || scene.fixture.world.edge.metrics_text().unwrap().contains(&revoked)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_from_before_a_login_was_required_end() {
    let mut scene = Scene::start().await;
    let open = scene.open_all(["", ""]).await;
    for socket in [&mut scene.socket, &mut scene.grpc] {
        socket.set(&scene.fixture.world, |settings| settings.identity = asks("example.com"));
    }
    scene.all_end(open).await;
}

#[tokio::test]
async fn requests_that_a_new_policy_allows_go_on() {
    let mut scene = Scene::start().await;
    let mut client = scene.fixture.world.client(&scene.socket).await;
    let mut other = scene.fixture.world.client(&scene.socket).await;
    for (client, path) in [(&mut client, "/events/kept"), (&mut other, "/events/denied")] {
        let head = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", scene.socket.host());
        client.write_all(head.as_bytes()).await.unwrap();
        assert!(read_head(client).await.starts_with("HTTP/1.1 200"));
    }
    scene.socket.route.policies = crate::identity_flows::policy(
        r#"{"allow":[{"where":["127.0.0.0/8"]}],"deny":[{"what":{"paths":["/events/denied"]}}]}"#,
    );
    scene.fixture.world.routes.put(scene.socket.route.clone());
    assert_eq!(soon(scene.words.recv()).await.unwrap(), "/events/denied");
    read_rest(&mut other).await;
    let mut chunk = [0; 7];
    soon(client.read_exact(&mut chunk)).await.unwrap();
    let kept = tokio::time::timeout(std::time::Duration::from_millis(300), client.read_u8()).await;
    assert!(kept.is_err(), "the stream without a revocation goes on");
    // The edge refuses CONNECT, so no CONNECT tunnel needs to be cut.
    let connect = format!("CONNECT {}:443 HTTP/1.1\r\nHost: {0}:443\r\n\r\n", scene.socket.host());
    assert_eq!(scene.fixture.world.raw(&scene.socket, connect.as_bytes()).await.status, 501);
}
