//! The requirements of RFC 9110 and RFC 9112 for intermediaries: targets, versions and hop-by-hop fields.

use std::time::Duration;

use sallyport_model::OriginProtocol;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::mpsc,
};

use crate::{
    harness::*,
    raw_http2::{Outcome::Status, *},
};

/// A world with a socket and an origin that reports each request head.
async fn recording_origin() -> (World, TestSocket, Connector, mpsc::UnboundedReceiver<String>) {
    let world = World::start().await;
    let mut socket = world.socket();
    let (head_sender, heads) = mpsc::unbounded_channel();
    let (addr, _) = raw_origin(move |mut tcp| {
        let head_sender = head_sender.clone();
        async move {
            loop {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    match tcp.read_u8().await {
                        Ok(byte) => head.push(byte),
                        Err(_) => return,
                    }
                }
                let _ = head_sender.send(String::from_utf8(head).unwrap());
                tcp.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
            }
        }
    })
    .await;
    let connector = world.tunnel(&mut socket, addr).await;
    (world, socket, connector, heads)
}

/// The value of a field in a head.
fn field<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    head.lines()
        .find_map(|line| line.split_once(": ").filter(|(field, _)| field.eq_ignore_ascii_case(name)))
        .map(|f| f.1)
}

#[tokio::test]
async fn the_origin_gets_the_path_that_policies_check() {
    let (world, socket, _connector, mut heads) = recording_origin().await;
    let host = socket.host();
    for (line, target) in [
        (format!("GET https://{host}?q=1"), "GET /?q=1"),
        (format!("GET https://{host}"), "GET /"),
        (format!("OPTIONS https://{host}"), "OPTIONS *"),
        ("OPTIONS *".to_owned(), "OPTIONS *"),
        (format!("GET http://{host}/a?b"), "GET /a?b"),
    ] {
        let request = format!("{line} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        assert_eq!(world.raw(&socket, request.as_bytes()).await.status, 200, "{line}");
        let head = soon(heads.recv()).await.unwrap();
        assert_eq!(head.lines().next(), Some(format!("{target} HTTP/1.1").as_str()), "{line}");
    }
}

#[tokio::test]
async fn a_path_with_invalid_characters_is_refused_in_every_version() {
    let (world, socket, _connector, mut heads) = recording_origin().await;
    let mut client = RawHttp2::open(&world, &socket).await;
    let mut stream = 1;
    for path in ["/a#b", "/\u{e9}", "/?\u{20ac}", "/<b>"] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", socket.host());
        assert_eq!(world.raw(&socket, request.as_bytes()).await.status, 400, "{path}");
        client.get(stream, path).await;
        assert_eq!(client.outcome(stream).await, Status(400), "{path}");
        stream += 2;
    }
    client.get(stream, "/%C3%A9%23").await;
    assert_eq!(client.outcome(stream).await, Status(200));
    assert!(soon(heads.recv()).await.unwrap().starts_with("GET /%C3%A9%23 HTTP/1.1\r\n"), "nothing else came through");
}

#[tokio::test]
async fn a_later_minor_version_gets_a_response_in_http_1_1() {
    let (world, socket, _connector, mut heads) = recording_origin().await;
    let mut client = world.client(&socket).await;
    for version in ["HTTP/1.2", "HTTP/1.9"] {
        let request = format!("GET /x {version}\r\nHost: {}\r\n\r\n", socket.host());
        client.write_all(request.as_bytes()).await.unwrap();
        let response = read_response(&mut client).await;
        assert!(response.head.starts_with("HTTP/1.1 200 "), "{}", response.head);
        assert!(soon(heads.recv()).await.unwrap().starts_with("GET /x HTTP/1.1\r\n"));
    }
    let request = format!("GET /x HTTP/3.0\r\nHost: {}\r\n\r\n", socket.host());
    client.write_all(request.as_bytes()).await.unwrap();
    assert_eq!(read_response(&mut client).await.status, 505);
}

#[tokio::test]
async fn via_names_the_edge_and_the_received_version() {
    let (world, mut socket, _connector, mut heads) = recording_origin().await;
    let request =
        |line: &str, more: &str| format!("{line}\r\nHost: {}\r\n{more}Connection: close\r\n\r\n", socket.host());
    world.raw(&socket, request("GET / HTTP/1.1", "Via: 1.0 fred\r\n").as_bytes()).await;
    let head = soon(heads.recv()).await.unwrap();
    let (first, second) = (head.find("via: 1.0 fred\r\n").unwrap(), head.find("via: 1.1 sallyport\r\n").unwrap());
    assert!(first < second, "{head}");
    world.raw(&socket, request("GET / HTTP/1.0", "").as_bytes()).await;
    assert_eq!(field(&soon(heads.recv()).await.unwrap(), "via"), Some("1.0 sallyport"));
    let mut client = RawHttp2::open(&world, &socket).await;
    client.get(1, "/").await;
    assert_eq!(client.outcome(1).await, Status(200));
    assert_eq!(field(&soon(heads.recv()).await.unwrap(), "via"), Some("2 sallyport"));

    let addr =
        h2_origin(
            |request| async move { http::Response::new(text(request.headers()["via"].to_str().unwrap().to_owned())) },
        )
        .await;
    socket.route.tunnels.clear();
    socket.speaks(&world, OriginProtocol::Http2);
    let _second = world.tunnel(&mut socket, addr).await;
    assert_eq!(world.get(&socket, "/").await.text(), "1.1 sallyport");
}

#[tokio::test]
async fn max_forwards_is_decremented_and_obeyed() {
    let (world, socket, _connector, mut heads) = recording_origin().await;
    let host = socket.host();
    let ask = async |method: &str, forwards: &str| {
        let head = format!(
            "{method} /x HTTP/1.1\r\nHost: {host}\r\nMax-Forwards: {forwards}\r\nCookie: secret\r\n\
             Authorization: secret\r\nConnection: close\r\n\r\n"
        );
        world.raw(&socket, head.as_bytes()).await
    };
    for method in ["OPTIONS", "TRACE"] {
        assert_eq!(ask(method, "3").await.text(), "ok");
        assert_eq!(field(&soon(heads.recv()).await.unwrap(), "max-forwards"), Some("2"), "{method}");
        assert_eq!(ask(method, "x").await.status, 400, "{method}");
    }
    assert_eq!(ask("GET", "0").await.text(), "ok", "for others it means nothing");
    assert_eq!(field(&soon(heads.recv()).await.unwrap(), "max-forwards"), Some("0"));
    let options = ask("OPTIONS", "0").await;
    assert_eq!(options.status, 204);
    assert!(options.header("allow").unwrap().contains("OPTIONS"), "{}", options.head);
    let trace = ask("TRACE", "0").await;
    assert_eq!((trace.status, trace.header("content-type")), (200, Some("message/http")));
    assert!(trace.text().starts_with("TRACE /x HTTP/1.1\r\n"), "{}", trace.text());
    assert!(!trace.text().contains("secret"), "{}", trace.text());
    let mut client = RawHttp2::open(&world, &socket).await;
    let head = client.head("OPTIONS", "/", &[("max-forwards", "0")]);
    client.send(HEADERS, END_HEADERS | END_STREAM, 1, &head).await;
    assert_eq!(client.outcome(1).await, Status(204));
    assert!(heads.try_recv().is_err(), "none of these requests reached the origin");
}

#[tokio::test]
async fn an_expectation_in_http_1_0_is_ignored() {
    let world = World::start().await;
    let mut socket = world.socket();
    let (addr, _) = raw_origin(|mut tcp| async move {
        let head = read_head(&mut tcp).await;
        assert!(field(&head, "expect").is_none(), "{head}");
        let mut body = [0; 5];
        tcp.read_exact(&mut body).await.unwrap();
        tcp.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nyes").await.unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
    })
    .await;
    let _connector = world.tunnel(&mut socket, addr).await;
    let host = socket.host();
    let request = format!("PUT / HTTP/1.0\r\nHost: {host}\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello");
    let response = world.raw(&socket, request.as_bytes()).await;
    assert_eq!((response.status, response.text()), (200, "yes"));
}

#[tokio::test]
async fn the_edges_own_hosts_send_hsts_except_under_localhost() {
    for (domain, hsts) in [("example.test", Some("max-age=31536000")), ("localhost", None), ("a.localhost", None)] {
        let world = World::start_with(|config| domain.clone_into(&mut config.domain)).await;
        let mut socket = world.socket();
        let _connector = world.tunnel(&mut socket, named_origin("ok").await).await;
        let name = socket.route.name.to_string();
        for (label, hsts) in [("api", hsts), ("login", hsts), (&name, None)] {
            let mut client = world.client_with("api.localhost", &[b"http/1.1"]).await;
            let request = format!("GET /x HTTP/1.1\r\nHost: {label}.{domain}\r\n\r\n");
            client.write_all(request.as_bytes()).await.unwrap();
            let response = read_response(&mut client).await;
            assert_eq!(response.status, 200, "{label}.{domain}");
            assert_eq!(response.header("strict-transport-security"), hsts, "{label}.{domain}");
        }
    }
}
