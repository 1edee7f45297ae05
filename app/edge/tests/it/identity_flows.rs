//! Long requests and connections end when their login or their permission ends.

use bytes::Bytes;
use http::Response;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use sallyport_edge::BoxError;
use sallyport_model::{AttachedPolicy, LoginSession, PolicyId, SocketType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{
    flows::{connect, service},
    harness::*,
    identity::{IdentityFixture, asks, now},
};

/// A WebSocket origin that echoes each byte in upper case.
async fn websocket_origin() -> std::net::SocketAddr {
    service(|mut tcp| async move {
        read_head(&mut tcp).await;
        tcp.write_all(b"HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n").await.unwrap();
        let mut byte = [0];
        while tcp.read_exact(&mut byte).await.is_ok() {
            if tcp.write_all(&byte.map(|byte| byte.to_ascii_uppercase())).await.is_err() {
                return;
            }
        }
    })
    .await
}

async fn echoes(client: &mut Client) -> bool {
    let mut byte = [0];
    client.write_all(b"a").await.is_ok() && soon(client.read_exact(&mut byte)).await.is_ok() && &byte == b"A"
}

async fn upgraded(fixture: &IdentityFixture, socket: &TestSocket, lines: &str) -> Client {
    let mut client = fixture.world.client(socket).await;
    let head = format!(
        "GET /ws HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n{lines}\r\n",
        socket.host()
    );
    client.write_all(head.as_bytes()).await.unwrap();
    let response = read_head(&mut client).await;
    assert!(response.starts_with("HTTP/1.1 101"), "{response}");
    assert!(echoes(&mut client).await);
    client
}

pub(crate) fn policy(document: &str) -> Vec<AttachedPolicy> {
    vec![AttachedPolicy { id: PolicyId::from_random([1; 16]), name: "p".into(), document: document.into() }]
}

fn revocations(fixture: &IdentityFixture, count: u32) -> bool {
    fixture.world.edge.metrics_text().unwrap().contains(&format!("identity_total{{outcome=\"revoked\"}} {count}"))
}

#[tokio::test]
async fn a_websocket_ends_with_its_login_or_its_permission() {
    let fixture = IdentityFixture::start().await;
    let mut socket = fixture.world.socket();
    let _connector = fixture.world.tunnel(&mut socket, websocket_origin().await).await;
    // This WebSocket opened before the socket required a login.
    let mut open = upgraded(&fixture, &socket, "").await;
    socket.set(&fixture.world, |settings| settings.identity = asks("example.com"));
    assert_eq!(read_rest(&mut open).await, b"");
    let (ann, bob) = (fixture.login(1, "ann@example.com"), fixture.login(2, "bob@example.com"));
    let mut of_ann = upgraded(&fixture, &socket, &fixture.cookie(socket.route.id, &ann, now())).await;
    let mut of_bob = upgraded(&fixture, &socket, &fixture.cookie(socket.route.id, &bob, now())).await;
    fixture.identities.end_sessions(|session| session.id == ann.id);
    assert_eq!(read_rest(&mut of_ann).await, b"", "her login was ended");
    assert!(echoes(&mut of_bob).await, "his was not");
    socket.route.policies = policy(r#"{"deny":[{"who":{"emails":["bob@example.com"]}}]}"#);
    fixture.world.routes.put(socket.route.clone());
    assert_eq!(read_rest(&mut of_bob).await, b"", "a policy denies Bob from now on");
    assert!(revocations(&fixture, 3));
}

#[tokio::test]
async fn a_websocket_ends_when_its_login_expires() {
    let fixture = IdentityFixture::start().await;
    let mut socket = fixture.world.socket();
    let _connector = fixture.world.tunnel(&mut socket, websocket_origin().await).await;
    socket.set(&fixture.world, |settings| settings.identity = asks("example.com"));
    let short = LoginSession { expires_at: now() + 3, ..fixture.login(1, "ann@example.com") };
    fixture.identities.put_session(short.clone());
    let mut client = upgraded(&fixture, &socket, &fixture.cookie(socket.route.id, &short, now())).await;
    assert_eq!(read_rest(&mut client).await, b"");
}

/// A body that never ends.
struct Endless(tokio::time::Interval);

impl futures_core::Stream for Endless {
    type Item = Result<Frame<Bytes>, BoxError>;
    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        self.0.poll_tick(cx).map(|_| Some(Ok(Frame::data(Bytes::from_static(b"tick")))))
    }
}

#[tokio::test]
async fn a_download_and_a_waiting_request_end_with_the_login() {
    let fixture = IdentityFixture::start().await;
    let mut socket = fixture.world.socket();
    let addr = origin(|request| async move {
        if request.uri().path() == "/waits" {
            std::future::pending::<()>().await;
        }
        let ticks = tokio::time::interval(std::time::Duration::from_millis(20));
        Response::new(StreamBody::new(Endless(ticks)).boxed_unsync())
    });
    let mut connector = fixture.world.tunnel(&mut socket, addr.await).await;
    socket.set(&fixture.world, |settings| settings.identity = asks("example.com"));
    let ann = fixture.login(1, "ann@example.com");
    let cookie = fixture.cookie(socket.route.id, &ann, now());
    let ask = async |path: &str| {
        let mut client = fixture.world.client(&socket).await;
        let head = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n{cookie}\r\n", socket.host());
        client.write_all(head.as_bytes()).await.unwrap();
        client
    };
    let (mut download, mut waits) = (ask("/long").await, ask("/waits").await);
    assert!(read_head(&mut download).await.starts_with("HTTP/1.1 200"));
    let mut some = [0; 30];
    soon(download.read_exact(&mut some)).await.unwrap();
    fixture.identities.end_sessions(|_| true);
    let rest = read_rest(&mut download).await;
    assert!(!rest.ends_with(b"0\r\n\r\n"), "the download does not look complete");
    let response = read_response(&mut waits).await;
    assert_eq!(response.status, 403, "{}", response.head);
    assert!(revocations(&fixture, 2));
    // The record names the person and the rule that gave access.
    let record = loop {
        match soon(connector.log.recv()).await.unwrap() {
            sallyport_tunnel::ConnectorEvent::Request(record) => break record,
            _ => continue,
        }
    };
    assert_eq!(record.identity.as_deref(), Some("ann@example.com"));
    assert_eq!(record.rule.as_deref(), Some("the socket's allowed e-mail domains"));
}

#[tokio::test]
async fn policies_on_addresses_and_times_apply_without_login() {
    let fixture = IdentityFixture::start().await;
    let mut web = fixture.world.socket();
    let _web_connector = fixture.world.tunnel(&mut web, named_origin("here").await).await;
    let mut tcp = fixture.world.socket();
    let addr = tcp.set_type(&fixture.world, SocketType::Tcp).await;
    let echo = service(|mut stream| async move {
        let (mut from, mut to) = stream.split();
        let _ = tokio::io::copy(&mut from, &mut to).await;
    });
    let _tcp_connector = fixture.world.tunnel(&mut tcp, echo.await).await;
    let mut client = connect(addr).await;
    client.write_all(b"x").await.unwrap();
    assert_eq!(soon(client.read_u8()).await.unwrap(), b'x');
    for (document, is_allowed) in [
        (r#"{"allow":[{"where":["127.0.0.0/8"]}]}"#, true),
        (r#"{"allow":[{"who":{"email_domains":["example.com"]}}]}"#, false),
        (r#"{"allow":[{"when":{"not_before":"2020-01-01T00:00:00Z"}}]}"#, true),
        (r#"{"allow":[{"when":{"not_after":"2020-01-01T00:00:00Z"}}]}"#, false),
        (r#"{"deny":[{"where":["127.0.0.1"]}],"allow":[{"who":{"anyone":true}}]}"#, false),
    ] {
        for socket in [&mut web, &mut tcp] {
            socket.route.policies = policy(document);
            fixture.world.routes.put(socket.route.clone());
        }
        let status = fixture.world.get(&web, "/").await.status;
        assert_eq!(status, if is_allowed { 200 } else { 403 }, "{document}");
        let mut newcomer = connect(addr).await;
        let _ = newcomer.write_all(b"y").await;
        assert_eq!(soon(newcomer.read_u8()).await.is_ok(), is_allowed, "{document}");
    }
    assert!(soon(client.read_u8()).await.is_err(), "the connection that stood was cut");
    let metrics = fixture.world.edge.metrics_text().unwrap();
    assert!(metrics.contains(r#"flows_total{transport="tcp",verdict="revoked"}"#), "{metrics}");
}
