//! Early data (0-RTT) over HTTP/3: which requests may come in it, and what a repetition of it reaches.

use std::{
    net::{SocketAddr, UdpSocket},
    sync::{Arc, Condvar, Mutex},
    thread,
    time::{Duration, Instant},
};

use http::Method;

use crate::{
    harness::{Home, Origin, text, wait_until},
    http3_client::Http3Client,
};

/// For how long the relay is silent before what the client has sent is all that it sends.
const SILENCE: Duration = Duration::from_millis(200);
/// What the handshake and the packets after it begin with (RFC 9000 section 17.2; RFC 9001 section 4.6.1).
const LONG_HEADER: u8 = 0x80;
const INITIAL: u8 = 0x00;
const ZERO_RTT: u8 = 0x10;

/// A relay of datagrams between one client and a server, which records what the client sends.
///
/// It holds the server's datagrams until the client has sent its early request, and the client's part of the handshake
/// until the client has a response. So a request is early however busy the machine is.
#[derive(Default)]
struct Relay {
    recorded: Mutex<Vec<Vec<u8>>>,
    state: Mutex<RelayState>,
    changed: Condvar,
}

/// What a relay lets pass.
#[derive(Default)]
struct RelayState {
    client: Option<SocketAddr>,
    last_from_client: Option<Instant>,
    has_response: bool,
}

impl Relay {
    fn start(server: SocketAddr) -> (SocketAddr, Arc<Self>) {
        let (near, far) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        far.connect(server).unwrap();
        let (address, relay) = (near.local_addr().unwrap(), Arc::new(Self::default()));
        let (back, to) = (near.try_clone().unwrap(), far.try_clone().unwrap());
        let to_server = relay.clone();
        thread::spawn(move || {
            let mut datagram = [0; 2_048];
            while let Ok((length, client)) = near.recv_from(&mut datagram) {
                to_server.to_server(&datagram[..length], client, &to);
            }
        });
        let to_client = relay.clone();
        thread::spawn(move || {
            let mut datagram = [0; 2_048];
            while let Ok(length) = far.recv(&mut datagram) {
                drop(back.send_to(&datagram[..length], to_client.client_when_silent()));
            }
        });
        (address, relay)
    }

    /// Records a datagram of the client, and passes it on when it may.
    fn to_server(&self, datagram: &[u8], client: SocketAddr, server: &UdpSocket) {
        self.recorded.lock().unwrap().push(datagram.to_vec());
        let mut state = self.state.lock().unwrap();
        (state.client, state.last_from_client) = (Some(client), Some(Instant::now()));
        if is_before_handshake(datagram) || state.has_response {
            drop(server.send(datagram));
        }
    }

    /// The client's address, once the client has sent what it sends without an answer.
    fn client_when_silent(&self) -> SocketAddr {
        loop {
            let state = self.state.lock().unwrap();
            let is_silent = state.last_from_client.is_some_and(|last| last.elapsed() >= SILENCE);
            if let Some(client) = state.client.filter(|_| is_silent || state.has_response) {
                return client;
            }
            drop(self.changed.wait_timeout(state, SILENCE / 4).unwrap());
        }
    }

    /// From now on all datagrams pass. The client sends again what it has sent in vain.
    fn set_has_response(&self) {
        self.state.lock().unwrap().has_response = true;
        self.changed.notify_all();
    }
}

/// Whether all packets of a datagram are Initial or 0-RTT packets: the client sends those before its part of the
/// handshake.
fn is_before_handshake(mut datagram: &[u8]) -> bool {
    // An integer of variable length (RFC 9000 section 16), and its length.
    let varint = |bytes: &[u8]| {
        let length = 1_usize << (bytes[0] >> 6);
        let first = usize::from(bytes[0] & 0x3f);
        (bytes[1..length].iter().fold(first, |value, byte| value << 8 | usize::from(*byte)), length)
    };
    while let Some(first) = datagram.first() {
        let kind = first & 0x30;
        // Padding after the last packet is zero.
        if datagram.iter().all(|byte| *byte == 0) {
            break;
        }
        if first & LONG_HEADER == 0 || ![INITIAL, ZERO_RTT].contains(&kind) {
            return false;
        }
        let mut at = 5;
        for _ in ["destination", "source"] {
            at += 1 + usize::from(datagram[at]);
        }
        if kind == INITIAL {
            let (token, length) = varint(&datagram[at..]);
            at += length + token;
        }
        let (rest, length) = varint(&datagram[at..]);
        datagram = &datagram[at + length + rest..];
    }
    true
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
    let (address_of_relay, relay) = Relay::start(address);
    let mut early = client.connect_early(address_of_relay, &host).unwrap();
    let seen = early.get(&host, "/early").text().to_ascii_lowercase();
    relay.set_has_response();
    assert!(seen.starts_with("origin get /early") && seen.contains("early-data: 1"), "{seen}");
    let after = early.get(&host, "/after").text().to_ascii_lowercase();
    assert!(after.starts_with("origin get /after") && !after.contains("early-data"), "{after}");
    early.quic.close(0_u32.into(), b"");

    // Somebody sends the recorded datagrams once more, from elsewhere.
    let served = origin.count();
    replay(&relay.recorded.lock().unwrap(), address);

    for (method, path, host) in
        [(Method::POST, "/upload", &*host), (Method::DELETE, "/", &host), (Method::GET, "/v1/info", "api.localhost")]
    {
        returning();
        let (address_of_relay, relay) = Relay::start(address);
        let mut early = client.connect_early(address_of_relay, &name).unwrap();
        let refused = early.send(method, host, path, &[], None).unwrap();
        relay.set_has_response();
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
    let (address_of_relay, relay) = Relay::start(SocketAddr::from(([127, 0, 0, 1], up.port)));
    let mut early = client.connect_early(address_of_relay, &host).unwrap();
    assert_eq!(early.get(&host, "/early").status, 200);
    relay.set_has_response();
    let served = origin.count();

    // It has the same names and keys, and does not know the session.
    assert!(up.program.stop().success());
    let other = home.up(&["--http3-early-data", "--listen", &format!("127.0.0.1:{}", up.port)]);
    let _connector = home.connector(&socket, origin.address, &[]);
    let address = SocketAddr::from(([127, 0, 0, 1], other.port));
    replay(&relay.recorded.lock().unwrap(), address);
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
    let (address_of_relay, relay) = Relay::start(address);
    let mut early = client.connect_early(address_of_relay, &host).unwrap();
    assert_eq!(early.get(&host, "/early").status, 425);
    relay.set_has_response();
    assert_eq!(early.get(&host, "/after").status, 200);
    early.quic.close(0_u32.into(), b"");

    let mut first = client.connect(up.port, &open_host);
    assert_eq!(first.get(&open_host, "/first").status, 200);
    first.quic.close(0_u32.into(), b"");
    let (address_of_relay, _relay) = Relay::start(address);
    let head = client.first_response(address_of_relay, &open_host, &extended_connect(&open_host));
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
