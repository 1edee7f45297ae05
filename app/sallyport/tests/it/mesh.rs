//! Clients at one edge, tunnels at another: control and edges over a real NATS, each a process.

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use serde_json::Value;

use crate::{
    fleet::{Bus, ControlHere, DOMAIN, EdgeHere, connect, connect_to, edges, token},
    harness::{Home, Origin, PATIENCE, text, wait_until},
    tcp::{free_port, free_ports, id, socket},
};

/// An origin with this handler for every connection.
pub(crate) fn service(serve: impl Fn(TcpStream) + Clone + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let serve = serve.clone();
            thread::spawn(move || serve(stream));
        }
    });
    address
}

/// Echoes a connection.
fn echo(stream: TcpStream) {
    drop(std::io::copy(&mut &stream, &mut &stream));
    drop(stream.shutdown(Shutdown::Write));
}

/// Switches the protocol, and echoes from there on.
fn websocket(mut stream: TcpStream) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if stream.read_exact(&mut byte).is_err() {
            return;
        }
        head.push(byte[0]);
    }
    let response = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                  Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
    stream.write_all(response.as_bytes()).unwrap();
    echo(stream);
}

/// A TLS connection of openssl's client to a name at this edge.
pub(crate) struct Tls(pub(crate) Child);

impl Tls {
    pub(crate) fn open(home: &Home, edge: &EdgeHere, host: &str, more: &[&str]) -> Self {
        let at = format!("{}:{}", edge.ip, edge.port);
        let ca = home.data().join("ca.pem");
        let child = Command::new("openssl")
            .args(["s_client", "-quiet", "-verify_return_error", "-connect", &at, "-servername", host, "-CAfile"])
            .arg(ca)
            .args(more)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self(child)
    }

    pub(crate) fn send(&mut self, words: &str) {
        self.0.stdin.as_mut().unwrap().write_all(words.as_bytes()).unwrap();
    }

    /// Whether these words are echoed; false if the connection ends before.
    pub(crate) fn try_reads(&mut self, words: &str) -> bool {
        let (input, out) = (self.0.stdin.as_mut().unwrap(), self.0.stdout.as_mut().unwrap());
        input.write_all(words.as_bytes()).is_ok() && out.read_exact(&mut vec![0; words.len()]).is_ok()
    }

    /// Reads until the words have come.
    pub(crate) fn reads(&mut self, words: &str) {
        let out = self.0.stdout.as_mut().unwrap();
        let mut received = Vec::new();
        while !received.ends_with(words.as_bytes()) {
            let mut byte = [0];
            out.read_exact(&mut byte).unwrap_or_else(|error| panic!("{error} after {}", text(&received)));
            received.push(byte[0]);
        }
    }
}

impl Drop for Tls {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// The value of a metric of this edge; 0 if absent.
fn metric(home: &Home, edge: &EdgeHere, name: &str) -> f64 {
    let (_, metrics) = edge.get(home, &format!("api.{DOMAIN}"), "/metrics");
    let line = metrics.lines().find(|line| line.starts_with(name));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0.0)
}

#[test]
fn a_client_at_one_edge_reaches_every_kind_of_tunnel_at_another() {
    let home = Home::new();
    let Some(mut bus) = Bus::start(&home, "") else { return };
    let ports = free_ports(4);
    let range = format!("{}-{}", ports.start(), ports.end());
    let _control = ControlHere::start_with(&home, &bus, &["--port-range", &range]);
    home.account();
    let b = EdgeHere::join(&home, "us-1", "us");
    let mut a = EdgeHere::join_with(&home, "eu-1", "eu", "127.0.0.2", &["--audit", "all"]);
    let token = token(&home);
    // At one edge alone: else the tunnel would be at the client's edge too.
    let with = ["--token", token.as_str(), "--redundancy", "1"];

    // HTTP/1.1 and HTTP/2, bodies of a megabyte each way, the client's address.
    let (web, host) = home.socket(&[]);
    let origin = Origin::start("origin");
    let at_b = connect(&home, &b, &web, &origin, &with);
    wait_until("the route to the tunnel is known", || (a.get(&home, &host, "/").0 == 200).then_some(()));
    for version in ["--http1.1", "--http2"] {
        let response = a.curl(&home, &host, "/hello", &[version, "--interface", "127.0.0.9"]);
        assert!(response.body.starts_with("origin GET /hello"), "{}{}", response.head, response.body);
        assert!(response.body.to_ascii_lowercase().contains("x-forwarded-for: 127.0.0.9"), "{}", response.body);
        let down = a.curl(&home, &host, "/bytes/1048576", &[version]);
        assert_eq!((down.status, down.body.len()), (200, 1 << 20));
        let file = home.dir.path().join("body");
        std::fs::write(&file, vec![b'y'; 1 << 20]).unwrap();
        let body = format!("@{}", file.display());
        let up = a.curl(&home, &host, "/up", &[version, "--data-binary", &body]);
        assert!(up.status == 200 && up.body.len() > 1 << 20, "{} {}", up.status, up.body.len());
    }
    assert!(a.program.as_ref().unwrap().wait_for("relayed_by").contains("us-1"), "the log names the relaying edge");
    let recorded = wait_until("the audit event", || {
        let output = home.run(&["audit", "--since", "1h", "--kind", "flow", "--socket", &web, "-o", "json"]);
        let lines: Vec<Value> = text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        lines.into_iter().find(|event| event["flow"]["path"] == "/hello")
    });
    let origin = recorded["flow"]["origin"].as_str().unwrap_or_default();
    assert!(origin.starts_with("127.0.0.1:"), "the address of the connector at the other edge: {recorded}");
    let line = at_b.wait_for("/hello");
    assert!(line.contains("127.0.0.9"), "the connector's live log has the request of another edge: {line}");
    assert!(metric(&home, &a, r#"sallyport_mesh_links{direction="out"}"#) >= 1.0);
    assert!(metric(&home, &b, r#"sallyport_mesh_links{direction="in"}"#) >= 1.0);
    assert!(metric(&home, &b, r#"sallyport_mesh_relayed_total{direction="in",kind="stream"}"#) >= 1.0);

    // A refusing service has the same error as one with its tunnel here.
    let (gone, gone_host) = home.socket(&[]);
    let _gone = connect_to(&home, &b, &gone, free_port(), &with);
    wait_until("the route to the tunnel is known", || (a.get(&home, &gone_host, "/").0 == 502).then_some(()));

    // A WebSocket.
    let (chat, chat_host) = home.socket(&[]);
    let _chat = connect_to(&home, &b, &chat, service(websocket).port(), &with);
    let request = format!(
        "GET / HTTP/1.1\r\nHost: {chat_host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    wait_until("the route to the chat is known", || {
        (metric(&home, &a, "sallyport_directory_tunnels") >= 3.0 && a.knows(&home, &chat_host)).then_some(())
    });
    let mut chat = Tls::open(&home, &a, &chat_host, &["-alpn", "http/1.1"]);
    chat.send(&request);
    chat.reads("\r\n\r\n");
    chat.send("sent in the chat");
    chat.reads("sent in the chat");

    // TCP, TLS and UDP.
    let tcp = socket(&home, "tcp", &[]);
    let _tcp = connect_to(&home, &b, id(&tcp), service(echo).port(), &with);
    let at = (a.ip, port_of(&tcp));
    let mut flow = wait_until("the port is served", || {
        let mut flow = TcpStream::connect(at).ok()?;
        flow.set_read_timeout(Some(PATIENCE)).unwrap();
        flow.write_all(b"hello").ok()?;
        flow.read_exact(&mut [0; 5]).ok()?;
        Some(flow)
    });
    let (mut sends, large) = (flow.try_clone().unwrap(), vec![7; 1 << 20]);
    let sending = thread::spawn(move || {
        sends.write_all(&large).unwrap();
        sends.shutdown(Shutdown::Write).unwrap();
    });
    let mut back = Vec::new();
    flow.read_to_end(&mut back).unwrap();
    sending.join().unwrap();
    assert_eq!(back.len(), 1 << 20);
    let tls = socket(&home, "tls", &[]);
    let _tls = connect_to(&home, &b, id(&tls), service(echo).port(), &with);
    let tls_host = tls["dns_name"].as_str().unwrap();
    wait_until("the route to the tls socket is known", || {
        (metric(&home, &a, "sallyport_directory_tunnels") >= 5.0).then_some(())
    });
    let mut flow = Tls::open(&home, &a, tls_host, &[]);
    flow.send("through TLS");
    flow.reads("through TLS");
    let udp = socket(&home, "udp", &[]);
    let service = UdpSocket::bind("127.0.0.1:0").unwrap();
    let udp_port = service.local_addr().unwrap().port();
    thread::spawn(move || {
        let mut datagram = [0; 2_048];
        while let Ok((length, from)) = service.recv_from(&mut datagram) {
            drop(service.send_to(&datagram[..length], from));
        }
    });
    let _udp = connect_to(&home, &b, id(&udp), udp_port, &with);
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.connect((a.ip, port_of(&udp))).unwrap();
    client.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let mut response = [0; 64];
    let length = wait_until("an answer to a datagram", || {
        drop(client.send(b"a datagram"));
        client.recv(&mut response).ok()
    });
    assert_eq!(&response[..length], b"a datagram");

    // Without the bus, everything works with the known state, new links too.
    bus.kill();
    assert_eq!(a.get(&home, &host, "/").0, 200);
    a.kill();
    bus.resume();
    a.start(&home, &[]);
    wait_until("the route is known again", || (a.get(&home, &host, "/").0 == 200).then_some(()));

    // A is removed: from then on it has no links, though its certificate is valid for days.
    assert!(home.run(&["edge", "rm", "eu-1"]).status.success());
    wait_until("what is at other edges is not reached any more", || {
        let (status, body) = a.get(&home, &host, "/");
        (status == 502 || status == 503).then_some(body)
    });
}

pub(crate) fn port_of(socket: &Value) -> u16 {
    u16::try_from(socket["port"].as_u64().unwrap_or_else(|| panic!("{socket}"))).unwrap()
}

#[test]
fn requests_avoid_a_killed_edge_or_get_an_error() {
    let home = Home::new();
    let Some(bus) = Bus::start(&home, "") else { return };
    let _control = ControlHere::start(&home, &bus);
    home.account();
    let a = EdgeHere::join_at(&home, "eu-1", "eu", "127.0.0.2");
    let (mut b, mut c) = (EdgeHere::join(&home, "us-1", "us"), EdgeHere::join(&home, "us-2", "us"));
    let token = token(&home);
    let with = ["--token", token.as_str(), "--redundancy", "1"];
    let (socket, host) = home.socket(&[]);
    let (one, other) = (Origin::start("one"), Origin::start("other"));
    let at_b = connect(&home, &b, &socket, &one, &with);
    let at_c = connect(&home, &c, &socket, &other, &with);
    let got = |name: &str| {
        let (status, body) = a.get(&home, &host, "/");
        (status == 200 && body.starts_with(name)).then_some(())
    };
    wait_until("one is served", || got("one"));
    wait_until("the other is served", || got("other"));
    // B dies while its connector can use no other edge: each request continues by C, also those for B.
    at_b.signal("STOP");
    b.kill();
    for number in 0..20 {
        let (status, body) = a.get(&home, &host, "/");
        assert!(status == 200 && body.starts_with("other"), "request {number}: {status} {body}");
    }
    // C dies too: a clear error.
    at_c.signal("STOP");
    c.kill();
    let (status, body) = a.get(&home, &host, "/");
    assert!(status == 502 || status == 503, "{status} {body}");
    wait_until("the loss of the edges is detected", || {
        edges(&home).iter().all(|edge| edge["name"] == "eu-1" || edge["state"] == "down").then_some(())
    });
    assert_eq!(a.get(&home, &host, "/").0, 503);
}
