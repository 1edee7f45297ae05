//! Transports to the edge: each carries requests, and a blocked one is replaced by another.

use std::{
    io::{Read as _, Write as _},
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use sallyport_net::{Certificates, LocalCa, Trust, client_config, connect_tls, server_config};
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::{
    harness::{Home, Origin, Program, Up, text, wait_until},
    tcp::{free_port, installed},
};

/// The transport that the connector printed.
fn transport_of(connector: &Program) -> String {
    let event: Value = serde_json::from_str(&connector.wait_for("\"connected\"")).unwrap();
    event["transport"].as_str().unwrap().to_owned()
}

/// Requests of several kinds get through.
fn carries_requests(up: &Up, host: &str) {
    let response = up.curl(host, "/hello", &[]);
    assert!(response.status == 200 && response.body.starts_with("origin GET /hello\n"), "{}", response.body);
    assert_eq!(up.curl(host, "/bytes/5000000", &[]).body.len(), 5_000_000);
    let upload = "x".repeat(100_000);
    let response = up.curl(host, "/upload", &["--data-binary", &upload]);
    assert!(response.body.ends_with(&upload), "{}", response.body.len());
}

/// The value of a counter whose name and labels are these.
fn counted(up: &Up, series: &str) -> u64 {
    let metrics = up.curl("api.localhost", "/metrics", &[]).body;
    metrics.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok()).unwrap_or(0)
}

#[test]
fn each_transport_carries_requests_and_shows_its_name() {
    let home = Home::new();
    let up = home.up(&["--listen-quic", "--tunnel-congestion", "reno", "--mptcp"]);
    home.account();
    let (socket, host) = home.socket(&[]);
    let origin = Origin::start("origin");
    for (options, transport) in [
        (["--transport", "auto", "--max-legs", "512"], "tcp"),
        (["--transport", "tcp", "--max-legs", "0"], "tcp"),
        (["--transport", "websocket", "--max-legs", "512"], "websocket"),
        (["--transport", "websocket", "--max-legs", "0"], "websocket"),
        (["--transport", "quic", "--max-legs", "512"], "quic"),
        (["--transport", "quic", "--max-legs", "0"], "quic"),
    ] {
        let connector = home.connector(&socket, origin.address, &options);
        assert_eq!(transport_of(&connector), transport);
        carries_requests(&up, &host);
        assert!(connector.stop().success(), "{}", connector.output());
    }
    for transport in ["websocket", "quic"] {
        for kind in ["control", "leg"] {
            let series = format!("sallyport_edge_carriers_total{{transport=\"{transport}\",kind=\"{kind}\"}}");
            assert!(counted(&up, &series) >= 1, "{series}");
        }
    }
}

#[test]
fn a_websocket_that_is_no_connectors_is_refused_by_name() {
    let home = Home::new();
    let up = home.up(&[]);
    let key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==";
    let upgrade = ["--http1.1", "-H", "Connection: Upgrade", "-H", "Upgrade: websocket", "-H", key];
    let ask = |path: &str, more: &[&str]| up.curl("tunnel.localhost", path, &[&upgrade, more].concat());
    let (version, ours) = ("Sec-WebSocket-Version: 13", "Sec-WebSocket-Protocol: sallyport-tunnel.1");

    let response = ask("/_sallyport/tunnel", &["-H", version, "-H", "Sec-WebSocket-Protocol: chat"]);
    assert_eq!((response.status, response.body.contains("sallyport-tunnel.1")), (400, true), "{}", response.body);
    let response = ask("/_sallyport/tunnel", &["-H", "Sec-WebSocket-Version: 8", "-H", ours]);
    assert_eq!((response.status, response.header("sec-websocket-version")), (426, Some("13")));
    let response = ask("/_sallyport/tunnel", &["-H", version, "-H", ours, "-H", "Origin: https://page.example"]);
    assert_eq!(
        (response.status, response.body.contains("pages in a browser cannot open tunnels")),
        (403, true),
        "{}",
        response.body
    );
    assert_eq!(ask("/elsewhere", &["-H", version, "-H", ours]).status, 404);
    let plain = up.curl("tunnel.localhost", "/_sallyport/tunnel", &[]);
    assert_eq!((plain.status, plain.header("upgrade")), (426, None), "HTTP/2 has no Upgrade");
    let plain = up.curl("tunnel.localhost", "/_sallyport/tunnel", &["--http1.1"]);
    assert_eq!((plain.status, plain.header("upgrade")), (426, Some("websocket")));
    assert_eq!(counted(&up, "sallyport_edge_carriers_total{transport=\"websocket\",kind=\"control\"}"), 0);
}

/// The kind of an obstacle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Obstacle {
    /// Ends TLS, and speaks only HTTP/1.1.
    OnlyHttp,
    /// Ends TLS without ALPN.
    NoAlpn,
    /// Resets connections with the tunnel's ALPN in the ClientHello.
    Resets,
    /// Resets connections to the tunnel's host name.
    ResetsTunnels,
    /// Breaks connections with the tunnel's ALPN after a moment.
    CutsLater,
}

/// An obstacle between connector and edge, which counts the affected connections.
fn obstacle(kind: Obstacle, home: &Home, listener: std::net::TcpListener, edge: SocketAddr) -> Arc<AtomicUsize> {
    let data = home.data();
    let counter = Arc::new(AtomicUsize::new(0));
    let count = counter.clone();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            listener.set_nonblocking(true).unwrap();
            let listener = TcpListener::from_std(listener).unwrap();
            let ca = LocalCa::open_or_create(&data, "localhost").unwrap();
            let trust = Trust::Ca(data.join("ca.pem"));
            let mut server = (*server_config(Certificates::new(ca, "localhost").unwrap(), b"unused")).clone();
            server.alpn_protocols = if kind == Obstacle::NoAlpn { Vec::new() } else { vec![b"http/1.1".to_vec()] };
            let acceptor = TlsAcceptor::from(Arc::new(server));
            let client = client_config(&trust, &[b"http/1.1"]).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, client, count) = (acceptor.clone(), client.clone(), count.clone());
                tokio::spawn(async move {
                    count.fetch_add(1, Ordering::SeqCst);
                    match kind {
                        Obstacle::Resets => return pass_or_reset(stream, edge, b"sallyport-tunnel").await,
                        Obstacle::CutsLater => return pass_or_cut(stream, edge).await,
                        Obstacle::ResetsTunnels => return pass_or_reset(stream, edge, b"tunnel.localhost").await,
                        Obstacle::OnlyHttp | Obstacle::NoAlpn => {}
                    }
                    let Ok(mut near) = acceptor.accept(stream).await else { return };
                    let name = near.get_ref().1.server_name().unwrap_or("localhost").to_owned();
                    let far = connect_tls("127.0.0.1", edge.port(), &name, client, Duration::from_secs(20)).await;
                    let _ = tokio::io::copy_bidirectional(&mut near, &mut far.unwrap()).await;
                });
            }
        });
    });
    counter
}

async fn pass_or_reset(mut near: TcpStream, edge: SocketAddr, forbidden: &[u8]) {
    let mut start = [0; 4_096];
    near.readable().await.unwrap();
    let n = near.peek(&mut start).await.unwrap_or(0);
    if start[..n].windows(forbidden.len()).any(|part| part == forbidden) {
        near.set_zero_linger().unwrap();
        return;
    }
    let mut far = TcpStream::connect(edge).await.unwrap();
    let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
}

async fn pass_or_cut(near: TcpStream, edge: SocketAddr) {
    let mut start = [0; 4_096];
    near.readable().await.unwrap();
    let n = near.peek(&mut start).await.unwrap_or(0);
    let is_tunnel = start[..n].windows(16).any(|part| part == b"sallyport-tunnel");
    let (mut near, mut far) = (near, TcpStream::connect(edge).await.unwrap());
    let passing = tokio::io::copy_bidirectional(&mut near, &mut far);
    if is_tunnel {
        let _ = tokio::time::timeout(Duration::from_millis(300), passing).await;
        near.set_zero_linger().unwrap();
    } else {
        let _ = passing.await;
    }
}

#[test]
fn what_breaks_tunnels_after_their_handshake_is_passed_by_websocket() {
    let home = Home::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let public = listener.local_addr().unwrap().port().to_string();
    let up = home.up(&["--public-port", &public]);
    let line = up.program.wait_for("redirect=");
    let edge = line.split("listen=").nth(1).unwrap().split_whitespace().next().unwrap().parse().unwrap();
    obstacle(Obstacle::CutsLater, &home, listener, edge);
    home.account();
    let (socket, host) = home.socket(&[]);
    let origin = Origin::start("origin");
    let connector = home.connector(&socket, origin.address, &["--transport", "auto"]);
    connector.wait_for("3 sessions over tcp were lost within 60 seconds of their beginning, so websocket is tried");
    connector.wait_for("\"transport\":\"websocket\"");
    carries_requests(&up, &host);
    assert!(connector.stop().success(), "{}", connector.output());
}

#[test]
fn websocket_passes_a_firewall_for_web_protocols() {
    for kind in [Obstacle::OnlyHttp, Obstacle::NoAlpn, Obstacle::Resets] {
        let home = Home::new();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let public = listener.local_addr().unwrap().port().to_string();
        let log = ["--public-port", &public];
        let up = home.up(&log);
        let line = up.program.wait_for("redirect=");
        let edge: SocketAddr =
            line.split("listen=").nth(1).unwrap().split_whitespace().next().unwrap().parse().unwrap();
        let passed = obstacle(kind, &home, listener, edge);
        home.account();
        let (socket, host) = home.socket(&[]);
        let origin = Origin::start("origin");

        let connector = home.connector(&socket, origin.address, &["--transport", "auto"]);
        assert_eq!(transport_of(&connector), "websocket", "{kind:?}");
        carries_requests(&up, &host);
        assert!(passed.load(Ordering::SeqCst) > 3, "{kind:?}");
        assert!(connector.stop().success());

        // With one transport configured, no other is tried, and the error names the obstacle.
        let port = origin.address.port().to_string();
        let only = ["tunnel", "connect", &socket, "--port", &port, "--transport", "tcp", "-o", "json"];
        let connector = Program::start(&mut home.command(&only));
        let event: Value = serde_json::from_str(&connector.wait_for("\"disconnected\"")).unwrap();
        let reason = event["reason"].as_str().unwrap();
        let words = if kind == Obstacle::Resets { "closed the connection" } else { "is it a Sallyport edge?" };
        assert!(reason.contains(words), "{kind:?}: {reason}");
        connector.signal("KILL");
    }
}

#[test]
fn quic_is_found_at_a_port_of_its_own() {
    let home = Home::new();
    let port = crate::tcp::free_port();
    let up = home.up(&["--listen-quic", &format!("127.0.0.1:{port}")]);
    assert_ne!(up.port, port);
    home.account();
    let (socket, host) = home.socket(&[]);
    let origin = Origin::start("origin");
    let connector = home.connector(&socket, origin.address, &["--transport", "quic"]);
    assert_eq!(transport_of(&connector), "quic");
    carries_requests(&up, &host);
    assert!(connector.stop().success(), "{}", connector.output());
}

#[test]
fn quic_is_the_last_resort_where_tcp_is_blocked() {
    let home = Home::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let public = listener.local_addr().unwrap();
    let port = public.port().to_string();
    let up = home.up(&["--public-port", &port, "--listen-quic", &public.to_string()]);
    let line = up.program.wait_for("redirect=");
    let edge = line.split("listen=").nth(1).unwrap().split_whitespace().next().unwrap().parse().unwrap();
    obstacle(Obstacle::ResetsTunnels, &home, listener, edge);
    home.account();
    let (socket, host) = home.socket(&[]);
    let origin = Origin::start("origin");
    let connector = home.connector(&socket, origin.address, &["--transport", "auto"]);
    assert_eq!(transport_of(&connector), "quic");
    carries_requests(&up, &host);

    // A stopping edge closes its connections; it is found again afterwards.
    up.program.signal("TERM");
    connector.wait_for("\"going-away\"");
    connector.wait_for("\"disconnected\"");
    assert!(up.program.ended().success(), "{}", up.program.output());
}

/// A proxy that requires Basic credentials and records the requested hosts; names resolve to this machine.
fn proxy(credentials: &'static str) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let note = asked.clone();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let note = note.clone();
            thread::spawn(move || drop(serve_connect(stream, credentials, &note)));
        }
    });
    (address, asked)
}

fn serve_connect(mut near: std::net::TcpStream, credentials: &str, note: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        near.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let target = head.split_whitespace().nth(1).unwrap_or_default().to_owned();
    if !head.contains(&format!("Proxy-Authorization: Basic {credentials}\r\n")) {
        note.lock().unwrap().push(format!("refused {target}"));
        return near.write_all(
            b"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=\"test\"\r\n\r\n",
        );
    }
    let port: u16 = target.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or(0);
    let mut far = std::net::TcpStream::connect(("127.0.0.1", port))?;
    note.lock().unwrap().push(target);
    near.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
    let (mut near_in, mut far_out) = (near.try_clone()?, far.try_clone()?);
    thread::spawn(move || {
        drop(std::io::copy(&mut near_in, &mut far_out));
        drop(far_out.shutdown(std::net::Shutdown::Write));
    });
    std::io::copy(&mut far, &mut near)?;
    near.shutdown(std::net::Shutdown::Write)
}

#[test]
fn commands_and_tunnels_go_through_an_http_proxy_with_its_credentials() {
    let home = Home::new();
    let up = home.up(&[]);
    // user:secret in Base64.
    let (address, asked) = proxy("dXNlcjpzZWNyZXQ=");
    home.account();
    let (socket, host) = home.socket(&[]);
    let origin = Origin::start("origin");
    for transport in ["tcp", "websocket"] {
        asked.lock().unwrap().clear();
        let through = format!("http://user:secret@{address}");
        let connector = home.connector(&socket, origin.address, &["--proxy", &through, "--transport", transport]);
        assert_eq!(transport_of(&connector), transport);
        carries_requests(&up, &host);
        let asked = asked.lock().unwrap().clone();
        assert!(asked.contains(&format!("api.localhost:{}", up.port)), "{asked:?}");
        let tunnels = asked.iter().filter(|target| **target == format!("tunnel.localhost:{}", up.port)).count();
        assert!(tunnels >= 2, "the control connection and legs: {asked:?}");
        assert!(connector.stop().success(), "{}", connector.output());
    }
    for (through, words) in [
        (format!("http://{address}"), "requires credentials"),
        (format!("http://user:banana@{address}"), "rejected the credentials"),
    ] {
        let output = home.run(&["socket", "ls", "--proxy", &through]);
        let printed = text(&output.stderr);
        assert!(output.status.code() == Some(6) && printed.contains(words), "{printed}");
        assert!(!printed.contains("banana"), "{printed}");
    }
    let output = home.command(&["socket", "ls"]).env("HTTPS_PROXY", "ftp://x").output().unwrap();
    let printed = text(&output.stderr);
    assert!(output.status.code() == Some(2) && printed.contains("HTTPS_PROXY"), "{printed}");
    // This machine is reached without the proxy of the environment.
    let output = home.command(&["socket", "ls"]).env("HTTPS_PROXY", format!("http://{address}")).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}

/// tinyproxy, which requires `user:secret` and resolves the names of `sallyport.test`; and its port.
fn tinyproxy(home: &Home, more: &str) -> Option<(Program, u16)> {
    let tinyproxy = installed("tinyproxy", "tinyproxy-bin")?;
    let port = free_port();
    let file = home.dir.path().join(format!("tinyproxy-{port}.conf"));
    let config = format!(
        "Port {port}\nListen 127.0.0.1\nTimeout 600\nMaxClients 100\nLogLevel Connect\nBasicAuth user secret\n{more}\n"
    );
    std::fs::write(&file, config).unwrap();
    let names = "api.sallyport.test tunnel.sallyport.test";
    let args = ["-d", "-c", file.to_str().unwrap()];
    let program = Program::start(&mut home.knowing(names, tinyproxy.to_str().unwrap(), &args));
    wait_until("the proxy", || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
    Some((program, port))
}

/// A machine that cannot resolve the edge's name, and reaches the edge only through tinyproxy.
#[test]
fn everything_goes_through_a_packaged_proxy_that_the_environment_names() {
    let home = Home::new();
    let Some((_proxy, port)) = tinyproxy(&home, "") else { return };
    let up = home.up(&["--domain", "sallyport.test"]);
    let through = |credentials: &str, args: &[&str]| {
        let mut command = home.command(args);
        command.env("HTTPS_PROXY", format!("http://{credentials}127.0.0.1:{port}"));
        command
    };
    let printed = |credentials: &str, args: &[&str]| {
        let output = through(credentials, args).output().unwrap();
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    };
    let account = ["account", "create", "--name", "Test", "--email", "test@example.com"];
    for (credentials, words) in [
        ("", "requires credentials\n  give them as http://USER:PASSWORD@127.0.0.1"),
        ("user:banana@", "rejected the credentials\n  correct user name and password"),
    ] {
        let (code, printed) = printed(credentials, &account);
        assert!(code == Some(6) && printed.contains(words) && !printed.contains("banana"), "{printed}");
    }
    for args in [&account[..], &["login", "--email", "test@example.com"]] {
        let (code, printed) = printed("user:secret@", args);
        assert_eq!(code, Some(0), "{printed}");
    }
    let origin = Origin::start("origin");
    let service = origin.address.port().to_string();
    for transport in ["tcp", "websocket"] {
        let args = ["connect", "--port", &service, "--transport", transport, "-o", "json"];
        let connector = Program::start(&mut through("user:secret@", &args));
        assert_eq!(transport_of(&connector), transport);
        let event: Value = serde_json::from_str(&connector.wait_for("\"attached\"")).unwrap();
        let host = event["url"].as_str().unwrap().trim_start_matches("https://").split(':').next().unwrap().to_owned();
        let here = ["--resolve", &format!("{host}:{}:127.0.0.1", up.port)];
        let response = up.curl(&host, "/hello", &here);
        assert!(response.status == 200 && response.body.starts_with("origin GET /hello\n"), "{}", response.body);
        assert_eq!(up.curl(&host, "/bytes/5000000", &here).body.len(), 5_000_000);
        assert!(connector.stop().success(), "{}", connector.output());
    }

    // Most proxies allow port 443 alone.
    let Some((_strict, strict)) = tinyproxy(&home, "ConnectPort 443") else { return };
    let output = home.run(&["socket", "ls", "--proxy", &format!("http://user:secret@127.0.0.1:{strict}")]);
    let printed = text(&output.stderr);
    let words = format!(
        "does not let connections to api.sallyport.test:{} through (status 403)\n  ask its operator, or use an edge \
         on port 443",
        up.port
    );
    assert!(output.status.code() == Some(6) && printed.contains(&words), "{printed}");

    // Advice for a missing proxy is about the proxy, not the edge.
    let output = home.run(&["socket", "ls", "--proxy", "http://127.0.0.1:1"]);
    let printed = text(&output.stderr);
    let words = "the proxy cannot be reached: cannot connect to 127.0.0.1:1: connection refused (nothing \
                 listens there)\n  check its address (--proxy, or HTTPS_PROXY in the environment), or go without it \
                 by --proxy none";
    assert!(output.status.code() == Some(6) && printed.contains(words), "{printed}");
}

#[test]
fn options_that_the_kernel_cannot_fulfil_are_refused_with_what_it_has() {
    let home = Home::new();
    let output = home.run(&["up", "--tunnel-congestion", "warpdrive", "--data", "/nowhere"]);
    let printed = text(&output.stderr);
    assert!(output.status.code() == Some(2) && printed.contains("warpdrive") && printed.contains("reno"), "{printed}");
    let up = home.up(&["--mptcp"]);
    home.account();
    let (socket, host) = home.socket(&[]);
    let origin = Origin::start("origin");
    let connector = home.connector(&socket, origin.address, &["--mptcp", "--congestion", "reno"]);
    carries_requests(&up, &host);
    assert!(connector.stop().success(), "{}", connector.output());
}
