//! Early data (0-RTT) over HTTP/3: which requests may come in it, and what a repetition of it reaches.

use std::{
    net::{SocketAddr, UdpSocket},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use http::Method;

use crate::{
    harness::{Home, Origin, text, wait_until},
    http3_client::Http3Client,
};

/// For how long the relay collects the first flight of a client, and how late the second one is.
const FIRST_FLIGHT: Duration = Duration::from_millis(300);
const DELAY: Duration = Duration::from_millis(500);

/// Relays datagrams between one client and this server, and records what the client sends. The first flight goes on as
/// a whole, and what the client sends later is late, so that the server responds before the end of the handshake.
fn recorder(server: SocketAddr) -> (SocketAddr, Arc<Mutex<Vec<Vec<u8>>>>) {
    let (near, far) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
    far.connect(server).unwrap();
    let (address, recorded) = (near.local_addr().unwrap(), Arc::<Mutex<Vec<Vec<u8>>>>::default());
    let (record, client) = (recorded.clone(), Arc::new(Mutex::new(None)));
    let (back, to, of) = (near.try_clone().unwrap(), far.try_clone().unwrap(), client.clone());
    thread::spawn(move || {
        let mut datagram = [0; 2_048];
        let (mut first_flight, mut collects_until) = (Vec::new(), None);
        loop {
            let received = near.recv_from(&mut datagram);
            if let Ok((length, from)) = &received {
                *of.lock().unwrap() = Some(*from);
                record.lock().unwrap().push(datagram[..*length].to_vec());
                first_flight.push(datagram[..*length].to_vec());
            }
            let until = *collects_until.get_or_insert_with(|| Instant::now() + FIRST_FLIGHT);
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            near.set_read_timeout(Some(left)).unwrap();
        }
        first_flight.iter().for_each(|datagram| drop(to.send(datagram)));
        near.set_read_timeout(None).unwrap();
        let late = Instant::now() + DELAY;
        while let Ok((length, _)) = near.recv_from(&mut datagram) {
            record.lock().unwrap().push(datagram[..length].to_vec());
            thread::sleep(late.saturating_duration_since(Instant::now()));
            drop(to.send(&datagram[..length]));
        }
    });
    thread::spawn(move || {
        let mut datagram = [0; 2_048];
        while let Ok(length) = far.recv(&mut datagram) {
            if let Some(client) = *client.lock().unwrap() {
                drop(back.send_to(&datagram[..length], client));
            }
        }
    });
    (address, recorded)
}

/// Sends recorded datagrams from elsewhere until the server answers the handshake. The server knows the datagrams of a
/// connection for a moment after its end.
fn replay(recorded: &[Vec<u8>], address: SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    wait_until("an answer to the handshake", || {
        for datagram in recorded {
            socket.send_to(datagram, address).unwrap();
        }
        socket.recv(&mut [0; 2_048]).ok()
    });
}

#[test]
fn early_data_is_off_and_else_for_harmless_requests_once() {
    let home = Home::new();
    let up = home.up(&[]);
    let client = Http3Client::new(&up.ca);
    let address = SocketAddr::from(([127, 0, 0, 1], up.port));
    assert_eq!(client.connect(up.port, "api.localhost").get("api.localhost", "/v1/info").status, 200);
    assert!(client.connect_early(address, "api.localhost").is_none(), "it is off");
    assert!(up.program.stop().success());

    let home = Home::new();
    let up = home.up(&["--http3-early-data"]);
    home.account();
    let client = Http3Client::new(&up.ca);
    let address = SocketAddr::from(([127, 0, 0, 1], up.port));
    let (socket, host) = home.socket(&[]);
    let (origin, name) = (Origin::start("origin"), host.clone());
    let _connector = home.connector(&socket, origin.address, &[]);
    let returning = || {
        let mut connection = client.connect(up.port, &host);
        let seen = connection.get(&host, "/first").text().to_ascii_lowercase();
        assert!(seen.starts_with("origin get /first") && !seen.contains("early-data"), "{seen}");
        connection.quic.close(0_u32.into(), b"");
    };
    returning();
    let (relay, recorded) = recorder(address);
    let mut early = client.connect_early(relay, &host).unwrap();
    let seen = early.get(&host, "/early").text().to_ascii_lowercase();
    assert!(seen.starts_with("origin get /early") && seen.contains("early-data: 1"), "{seen}");
    let after = early.get(&host, "/after").text().to_ascii_lowercase();
    assert!(after.starts_with("origin get /after") && !after.contains("early-data"), "{after}");
    early.quic.close(0_u32.into(), b"");

    // Somebody sends the recorded datagrams once more, from elsewhere.
    let served = origin.count();
    replay(&recorded.lock().unwrap(), address);

    for (method, path, host) in
        [(Method::POST, "/upload", &*host), (Method::DELETE, "/", &host), (Method::GET, "/v1/info", "api.localhost")]
    {
        returning();
        let (relay, _) = recorder(address);
        let mut early = client.connect_early(relay, &name).unwrap();
        let refused = early.send(method, host, path, &[], None).unwrap();
        assert_eq!(refused.status, 425, "{}", refused.text());
    }
    assert_eq!(origin.count(), served + 3, "the repetition reached no origin, and neither did what came too early");
}

#[test]
fn early_data_at_another_process_with_the_same_certificates_is_refused() {
    let home = Home::new();
    let up = home.up(&["--http3-early-data"]);
    home.account();
    let (socket, host) = home.socket(&[]);
    let origin = Origin::start("origin");
    let _connector = home.connector(&socket, origin.address, &[]);
    let client = Http3Client::new(&up.ca);
    let mut first = client.connect(up.port, &host);
    assert_eq!(first.get(&host, "/first").status, 200);
    first.quic.close(0_u32.into(), b"");
    let (relay, recorded) = recorder(SocketAddr::from(([127, 0, 0, 1], up.port)));
    let mut early = client.connect_early(relay, &host).unwrap();
    assert_eq!(early.get(&host, "/early").status, 200);
    let served = origin.count();

    // It has the same names and keys, and does not know the session.
    assert!(up.program.stop().success());
    let other = home.up(&["--http3-early-data", "--listen", &format!("127.0.0.1:{}", up.port)]);
    let _connector = home.connector(&socket, origin.address, &[]);
    let address = SocketAddr::from(([127, 0, 0, 1], other.port));
    replay(&recorded.lock().unwrap(), address);
    let is_accepted = client.is_early_data_accepted(address, &host);
    assert_eq!(is_accepted, Some(false), "the edge does not know the session");
    assert_eq!(origin.count(), served, "the repetition reached no origin");
    assert_eq!(client.connect(other.port, &host).get(&host, "/after").status, 200);
}

#[test]
fn no_websocket_and_no_socket_with_address_rules_takes_early_data() {
    let home = Home::new();
    let up = home.up(&["--http3-early-data"]);
    home.account();
    let (socket, host) = home.socket(&["--allow", "127.0.0.0/8"]);
    let (open_socket, open_host) = home.socket(&[]);
    let origin = Origin::start("origin");
    let _connectors = [&socket, &open_socket].map(|socket| home.connector(socket, origin.address, &[]));
    let client = Http3Client::new(&up.ca);
    let address = SocketAddr::from(([127, 0, 0, 1], up.port));
    let mut first = client.connect(up.port, &host);
    assert_eq!(first.get(&host, "/first").status, 200);
    first.quic.close(0_u32.into(), b"");
    let (relay, _) = recorder(address);
    let mut early = client.connect_early(relay, &host).unwrap();
    assert_eq!(early.get(&host, "/early").status, 425);
    assert_eq!(early.get(&host, "/after").status, 200);
    early.quic.close(0_u32.into(), b"");

    let mut first = client.connect(up.port, &open_host);
    assert_eq!(first.get(&open_host, "/first").status, 200);
    first.quic.close(0_u32.into(), b"");
    let (relay, _) = recorder(address);
    let head = client.first_response(relay, &open_host, &extended_connect(&open_host));
    assert!(text(&head).contains("too-early"), "{}", text(&head));
    assert_eq!(origin.count(), 3);
}

/// A HEADERS frame of an extended CONNECT for a WebSocket, without compression (RFC 9220, RFC 9204 section 4.5.6).
fn extended_connect(host: &str) -> Vec<u8> {
    fn literal(prefix: u8, bits: u32, text: &str) -> Vec<u8> {
        let most = (1_usize << bits) - 1;
        let length = match text.len().checked_sub(most) {
            None => vec![prefix | text.len() as u8],
            Some(rest) => vec![prefix | most as u8, rest as u8],
        };
        [length, text.as_bytes().to_vec()].concat()
    }
    let fields = [
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "https"),
        (":authority", host),
        (":path", "/"),
        ("sec-websocket-version", "13"),
    ];
    let fields = fields.iter().flat_map(|(name, value)| [literal(0x20, 3, name), literal(0, 7, value)]);
    let section = [vec![0, 0], fields.flatten().collect()].concat();
    [vec![1, 0x40, section.len() as u8], section].concat()
}
