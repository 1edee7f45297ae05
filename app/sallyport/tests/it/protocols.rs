//! Protocols through the edge by their real clients: HTTP in its versions and shapes, WebSocket, gRPC.

use std::{
    io::{Read as _, Write as _},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use crate::harness::{Home, Origin, Program, Up, text};

/// The path of a tool of `scripts/tools`; `None` with a message if it is missing outside of CI.
pub(crate) fn tool(name: &str) -> Option<PathBuf> {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/tools");
    let output = Command::new(scripts).arg(name).output().unwrap();
    if output.status.success() {
        return Some(text(&output.stdout).trim().into());
    }
    assert!(std::env::var_os("CI").is_none(), "{name} must be there in CI: {}", text(&output.stderr));
    println!("skipped: {name} cannot be had here: {}", text(&output.stderr).trim());
    None
}

pub(crate) fn client(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/clients").join(name).to_str().unwrap().to_owned()
}

/// A service of one of the client scripts, and its address.
pub(crate) fn service(python: &Path, script: &str) -> (Program, SocketAddr) {
    let program = Program::start(Command::new(python).args([&client(script), "serve"]).stdin(Stdio::null()));
    let port = program.wait_for("port ").trim_start_matches("port ").parse().unwrap();
    (program, SocketAddr::from(([127, 0, 0, 1], port)))
}

pub(crate) fn call(python: &Path, script: &str, verb: &str, up: &Up, host: &str) -> String {
    let output = Command::new(python)
        .args([&client(script), verb, up.ca.to_str().unwrap(), host, &up.port.to_string()])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn a_websocket_passes_frames_both_ways_and_closes_in_order() {
    let Some(python) = tool("python") else { return };
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    let (socket, host) = home.socket(&[]);
    let (_service, address) = service(&python, "websocket_echo.py");
    let _connector = home.connector(&socket, address, &[]);
    assert!(call(&python, "websocket_echo.py", "call", &up, &host).contains("all messages came back"));
}

#[test]
fn grpc_calls_of_every_kind_pass_with_their_trailers() {
    let Some(python) = tool("python") else { return };
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    let (socket, host) = home.socket(&[]);
    assert!(call(&python, "grpc_echo.py", "call-nobody", &up, &host).contains("status UNAVAILABLE"));
    let (_service, address) = service(&python, "grpc_echo.py");
    let _connector = home.connector(&socket, address, &[]);
    assert!(call(&python, "grpc_echo.py", "call", &up, &host).contains("all calls answered"));
}

#[test]
fn h2spec_finds_the_edge_in_order() {
    let Some(h2spec) = tool("h2spec") else { return };
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    let (socket, host) = home.socket(&[]);
    let origin = Origin::start("origin");
    let _connector = home.connector(&socket, origin.address, &[]);
    let port = up.port.to_string();
    let args = ["-t", "-k", "-h", &host, "-p", &port, "--timeout", "5"];
    let output = home.knowing(&host, h2spec.to_str().unwrap(), &args).output().unwrap();
    let printed = text(&output.stdout);
    let summary = printed.lines().rev().find(|line| line.contains("tests,")).unwrap_or_default().to_owned();
    println!("{summary}");
    assert!(summary.ends_with(" 0 failed"), "{printed}\n{}", text(&output.stderr));
}

#[test]
fn bodies_stream_both_ways_in_bounded_memory() {
    let home = Home::new();
    let up = home.up(&["--no-access-log"]);
    home.account();
    let (socket, host) = home.socket(&[]);
    let origin = Sink::start();
    let connector = home.connector(&socket, origin, &[]);
    let size = megabytes();
    for version in ["--http1.1", "--http2"] {
        let count = transfer(&["-o", "-", version], &up, &host, &format!("/download/{size}"), 0);
        assert_eq!(count, size * 1_000_000, "{version}");
        let count = transfer(&["-T", "-", version], &up, &host, "/upload", size);
        assert_eq!(count, size * 1_000_000, "{version}");
    }
    for (name, program) in [("up", &up.program), ("the connector", &connector)] {
        let peak = program.peak_memory_kib();
        println!("{name}: {peak} KiB at most");
        assert!(peak < 150_000, "{name} took {peak} KiB for bodies of {size} MB");
    }
}

/// The size of streamed bodies: enough to show in memory if they were buffered. `SALLYPORT_TEST_MEGABYTES=5000` makes
/// it the 5 GB of the documentation.
fn megabytes() -> u64 {
    std::env::var("SALLYPORT_TEST_MEGABYTES").ok().and_then(|n| n.parse().ok()).unwrap_or(400)
}

/// Downloads and counts, or uploads this many megabytes and reads the origin's count.
fn transfer(options: &[&str], up: &Up, host: &str, path: &str, upload_megabytes: u64) -> u64 {
    let mut curl = Command::new("curl")
        .args(["-sS", "--max-time", "600", "--cacert", up.ca.to_str().unwrap()])
        .args(options)
        .arg(up.url(host, path))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = curl.stdin.take().unwrap();
    let feeder = std::thread::spawn(move || {
        let block = vec![b'u'; 1_000_000];
        for _ in 0..upload_megabytes {
            input.write_all(&block).unwrap();
        }
    });
    let mut output = curl.stdout.take().unwrap();
    let mut block = vec![0; 65_536];
    let (mut count, mut kept) = (0, Vec::new());
    loop {
        let n = output.read(&mut block).unwrap();
        if n == 0 {
            break;
        }
        count += n as u64;
        kept.extend_from_slice(&block[..n.min(64 - kept.len().min(64))]);
    }
    feeder.join().unwrap();
    assert!(curl.wait().unwrap().success());
    if upload_megabytes == 0 { count } else { text(&kept).trim().parse().unwrap() }
}

/// An origin for large bodies: `/download/N` sends N megabytes in chunks, `/upload` answers with the number of received
/// bytes.
struct Sink;

impl Sink {
    fn start() -> SocketAddr {
        use http_body_util::{BodyExt, StreamBody, combinators::BoxBody};
        use hyper::{
            Request, Response,
            body::{Bytes, Frame, Incoming},
            service::service_fn,
        };
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        async fn response(request: Request<Incoming>) -> Result<Response<BoxBody<Bytes, hyper::Error>>, hyper::Error> {
            let path = request.uri().path().to_owned();
            if let Some(size) = path.strip_prefix("/download/").and_then(|n| n.parse::<u64>().ok()) {
                let block = Bytes::from(vec![b'd'; 100_000]);
                let frames = (0..size * 10).map(move |_| Ok(Frame::data(block.clone())));
                return Ok(Response::new(BodyExt::boxed(StreamBody::new(Frames(frames)))));
            }
            let mut body = request.into_body();
            let mut count = 0;
            while let Some(frame) = body.frame().await {
                count += frame?.data_ref().map_or(0, |data| data.len() as u64);
            }
            let body = http_body_util::Full::new(Bytes::from(format!("{count}\n"))).map_err(|never| match never {});
            Ok(Response::new(body.boxed()))
        }
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                loop {
                    let (stream, _) = listener.accept().await.unwrap();
                    let io = hyper_util::rt::TokioIo::new(stream);
                    tokio::spawn(async move {
                        drop(
                            hyper::server::conn::http1::Builder::new().serve_connection(io, service_fn(response)).await,
                        );
                    });
                }
            });
        });
        address
    }
}

/// An iterator of frames as a stream of them.
struct Frames<I>(I);

impl<I: Iterator + Unpin> futures_core::Stream for Frames<I> {
    type Item = I::Item;
    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<I::Item>> {
        std::task::Poll::Ready(self.0.next())
    }
}

#[test]
fn events_arrive_while_the_response_still_runs() {
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    let (socket, host) = home.socket(&[]);
    let origin = Origin::start("origin");
    let _connector = home.connector(&socket, origin.address, &[]);
    let mut curl = Command::new("curl")
        .args(["-sSN", "--cacert", up.ca.to_str().unwrap(), &up.url(&host, "/trickle/100")])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    let mut first = [0; 5];
    curl.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    // The whole response takes ten seconds: a first event after half of them would have been delayed.
    assert!(begun.elapsed() < Duration::from_secs(5) && first == *b"line\n", "{:?}", begun.elapsed());
    curl.kill().unwrap();
    curl.wait().unwrap();
}

#[test]
fn head_ranges_expectations_and_methods_pass() {
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    let (socket, host) = home.socket(&[]);
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("file"), "0123456789".repeat(1_000)).unwrap();
    let origin = Origin::start("origin");
    let _connector = home.connector(&socket, origin.address, &[]);
    for version in ["--http1.1", "--http2"] {
        let head = up.curl(&host, "/x", &["-I", version]);
        assert_eq!((head.status, head.body.trim_end()), (200, head.head.trim_end()), "{version}: nothing but the head");
        assert!(head.header("content-length").is_some_and(|n| n.parse::<u32>().unwrap() > 0), "{}", head.head);
        let body = "b".repeat(200_000);
        let file = directory.path().join("body");
        std::fs::write(&file, &body).unwrap();
        let data = format!("@{}", file.display());
        let posted = up.curl(&host, "/x", &["--data-binary", &data, "-H", "Expect: 100-continue", version]);
        assert!(posted.status == 200 && posted.body.ends_with(&body), "{version}: {}", posted.head);
        for method in ["PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"] {
            let response = up.curl(&host, "/x", &["-X", method, version]);
            assert!(response.body.starts_with(&format!("origin {method} /x")), "{method} {version}: {}", response.body);
        }
        let range = up.curl(&host, "/x", &["-H", "Range: bytes=0-99", version]);
        assert!(range.body.to_ascii_lowercase().contains("range: bytes=0-99"), "{}", range.body);
    }
}

#[test]
fn smuggled_requests_are_refused_and_never_reach_the_origin() {
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    let (socket, host) = home.socket(&[]);
    let origin = Origin::start("origin");
    let _connector = home.connector(&socket, origin.address, &[]);
    let h = format!("Host: {host}\r\n");
    let cases = [
        (
            "both lengths",
            format!("POST / HTTP/1.1\r\n{h}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        ),
        (
            "both lengths, the other way",
            format!("POST / HTTP/1.1\r\n{h}Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n"),
        ),
        ("two lengths", format!("POST / HTTP/1.1\r\n{h}Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcde")),
        ("a folded header", format!("GET / HTTP/1.1\r\n{h}X-A: b\r\n c\r\n\r\n")),
        ("bare line feeds", format!("GET / HTTP/1.1\n{}\n", h.replace('\r', ""))),
        ("a bare line feed", format!("GET / HTTP/1.1\r\nX-A: b\n{h}\r\n")),
        ("a bare carriage return", format!("GET / HTTP/1.1\r\n{h}X-A: b\rX-B: c\r\n\r\n")),
        ("two hosts", format!("GET / HTTP/1.1\r\n{h}Host: other.localhost\r\n\r\n")),
        ("no host", "GET / HTTP/1.1\r\n\r\n".to_owned()),
        ("a target of another host", format!("GET http://other.localhost/ HTTP/1.1\r\n{h}\r\n")),
        ("a space before the colon", format!("POST / HTTP/1.1\r\n{h}Content-Length : 4\r\n\r\nabcd")),
        ("an unknown coding", format!("POST / HTTP/1.1\r\n{h}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n")),
        (
            "chunked twice",
            format!("POST / HTTP/1.1\r\n{h}Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        ),
        ("a signed length", format!("POST / HTTP/1.1\r\n{h}Content-Length: +4\r\n\r\nabcd")),
        ("a tunnel of the client's", format!("CONNECT {host}:443 HTTP/1.1\r\n{h}\r\n")),
        ("a NUL", format!("GET / HTTP/1.1\r\n{h}X-A: \0\r\n\r\n")),
    ];
    for (what, request) in cases {
        let smuggled = format!("{request}GET /smuggled HTTP/1.1\r\n{h}\r\n");
        let response = raw(&up, &host, smuggled.as_bytes());
        let status: u16 =
            response.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or_else(|| panic!("{what}: {response:?}"));
        assert!((400..500).contains(&status) || status == 501, "{what}: {response}");
        assert_eq!(response.matches("HTTP/1.1 ").count(), 1, "{what}: one response, then the end: {response}");
    }
    assert_eq!(origin.count(), 0);
}

/// What the edge answers to these bytes until it closes.
fn raw(up: &Up, host: &str, request: &[u8]) -> String {
    let mut client = Command::new("openssl")
        .args(["s_client", "-quiet", "-no_ign_eof", "-alpn", "http/1.1", "-servername", host, "-CAfile"])
        .arg(&up.ca)
        .args(["-connect", &format!("127.0.0.1:{}", up.port)])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = client.stdin.take().unwrap();
    input.write_all(request).unwrap();
    // The input stays open, so the edge must end the connection.
    let mut response = Vec::new();
    client.stdout.take().unwrap().read_to_end(&mut response).unwrap();
    drop(input);
    client.wait().unwrap();
    text(&response)
}
