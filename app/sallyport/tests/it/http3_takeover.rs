//! Clients over HTTP/3 and a connector over QUIC while `up` is replaced.

use std::{
    net::UdpSocket,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use bytes::Buf as _;
use http::Method;

use crate::{
    harness::{Home, Origin, Up, wait_until},
    http3_client::{Http3Client, Http3Connection},
};

/// What a client downloads while two processes take over.
const DOWNLOAD_BYTES: usize = 1 << 28;
/// How many connections are idle meanwhile, and how many of them share a socket of their client.
const IDLE_CONNECTIONS: usize = 1_000;
const CONNECTIONS_PER_SOCKET: usize = 50;
/// How many idle connections may notice their end by a reset, as browsers bear it: the close is one datagram, which a
/// busy machine can lose.
const MAX_RESETS: usize = 10;
/// Arguments of each process: the first one finishes the download.
const UP: [&str; 3] = ["--no-access-log", "--drain", "10m"];

/// What the origin sends.
const EXPECTED: [u8; 16_384] = [b'x'; 16_384];

/// Requests one after another through the connector, each on the client's connection while that is good.
struct Load {
    stop: Arc<AtomicBool>,
    served: Arc<AtomicUsize>,
    task: thread::JoinHandle<Result<(), String>>,
}

impl Load {
    fn start(client: Http3Client, port: u16, host: &str) -> Self {
        let (stop, served, host) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default(), host.to_owned());
        let (stops, count) = (stop.clone(), served.clone());
        let task = thread::spawn(move || {
            let mut connection = client.connect(port, &host);
            while !stops.load(Ordering::Relaxed) {
                let response = get_or_connect(&client, &mut connection, port, &host)?;
                if response != 200 {
                    return Err(format!("status {response}"));
                }
                count.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        });
        Self { stop, served, task }
    }

    fn serve_more(&self) {
        let before = self.served.load(Ordering::Relaxed);
        wait_until("requests to be served", || (self.served.load(Ordering::Relaxed) > before + 50).then_some(()));
    }

    fn all_good(self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        self.task.join().unwrap().unwrap();
        self.served.load(Ordering::Relaxed)
    }
}

/// A request on this connection; on a new one, if the server has announced the end of this one, as browsers do it.
fn get_or_connect(
    client: &Http3Client,
    connection: &mut Http3Connection,
    port: u16,
    host: &str,
) -> Result<u16, String> {
    match connection.send(Method::GET, host, "/", &[], None) {
        Ok(response) => return Ok(response.status),
        Err(error) if is_orderly(&error) => {}
        Err(error) => return Err(error),
    }
    *connection = client.try_connect(port, host).map_err(|error| format!("cannot connect again: {error}"))?;
    connection.send(Method::GET, host, "/", &[], None).map(|response| response.status)
}

/// Whether the error says that the server has not begun the request: GOAWAY, H3_NO_ERROR or H3_REQUEST_REJECTED.
fn is_orderly(error: &str) -> bool {
    ["H3_NO_ERROR", "H3_REQUEST_REJECTED", "closing"].iter().any(|orderly| error.contains(orderly))
}

#[test]
fn a_download_idle_connections_and_a_tunnel_survive_two_takeovers_in_a_row() {
    let home = Home::new();
    let first = home.up(&UP);
    home.account();
    let (socket, host) = home.socket(&[]);
    let origin = Origin::start("origin");
    let connector = home.connector(&socket, origin.address, &["--transport", "quic"]);
    let client = Http3Client::new(&first.ca);
    let another = || Http3Client::within(client.runtime.clone(), &first.ca);
    let port = first.port;
    let idle_clients: Vec<_> = (0..IDLE_CONNECTIONS / CONNECTIONS_PER_SOCKET).map(|_| another()).collect();
    let mut idle: Vec<Http3Connection> = (0..IDLE_CONNECTIONS)
        .map(|number| {
            let mut connection = idle_clients[number / CONNECTIONS_PER_SOCKET].connect(port, &host);
            assert_eq!(connection.get(&host, "/").status, 200);
            connection
        })
        .collect();
    let load = Load::start(another(), port, &host);
    let (received, whole) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
    let download = {
        let (received, may_finish, host, client) = (received.clone(), whole.clone(), host.clone(), another());
        thread::spawn(move || {
            let mut connection = client.connect(port, &host);
            let path = format!("/bytes/{DOWNLOAD_BYTES}");
            client.runtime.clone().block_on(async {
                let (response, mut stream) = connection.open(Method::GET, &host, &path, &[], None).await?;
                assert_eq!(response.status(), 200);
                while let Some(mut data) = stream.recv_data().await.map_err(|error| error.to_string())? {
                    let bytes = data.copy_to_bytes(data.remaining());
                    assert!(bytes.chunks(EXPECTED.len()).all(|part| part == &EXPECTED[..part.len()]));
                    let so_far = received.fetch_add(bytes.len(), Ordering::Relaxed) + bytes.len();
                    // The last part is read when the third process serves. An edge cuts off a client that reads nothing.
                    if so_far > DOWNLOAD_BYTES / 4 && !may_finish.load(Ordering::Relaxed) {
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                }
                Ok::<_, String>(())
            })
        })
    };
    wait_until("the download to be under way", || {
        (received.load(Ordering::Relaxed) > DOWNLOAD_BYTES / 8).then_some(())
    });

    load.serve_more();
    let second = home.up(&[&UP[..], &["--takeover"]].concat());
    load.serve_more();
    assert_all_served(&idle_clients, &mut idle, port, &host);
    let third = home.up(&[&UP[..], &["--takeover"]].concat());
    load.serve_more();
    assert_all_served(&idle_clients, &mut idle, port, &host);
    assert!(received.load(Ordering::Relaxed) < DOWNLOAD_BYTES, "the download is under way still");
    whole.store(true, Ordering::Relaxed);

    download.join().unwrap().unwrap();
    assert_eq!(received.load(Ordering::Relaxed), DOWNLOAD_BYTES);
    let served = load.all_good();
    eprintln!("{served} requests were served one after another during the takeovers, and none failed");
    assert_eq!((second.port, third.port), (port, port));
    for process in [&first, &second] {
        assert_eq!(process.program.ended().code(), Some(0), "{}", process.program.output());
    }
    let mut fresh = another().connect(port, &host);
    assert_eq!(fresh.get(&host, "/").status, 200);
    drop((connector, idle, fresh));
    assert_ended(third);
}

#[test]
fn a_successor_without_http3_or_at_another_port_lets_the_download_finish() {
    let home = Home::new();
    let mut up = home.up(&UP);
    home.account();
    let (socket, host) = home.socket(&[]);
    let origin = Origin::start("origin");
    let _connector = home.connector(&socket, origin.address, &[]);
    let other = format!("127.0.0.1:{}", crate::tcp::free_port());
    // The UDP port of each next process.
    let ports = [None, Some(up.port), Some(other.rsplit_once(':').unwrap().1.parse().unwrap())];
    let options = [&["--no-http3"][..], &[], &["--listen-quic", &other]];
    let mut port = Some(up.port);
    for (options, next_port) in options.into_iter().zip(ports) {
        let client = Http3Client::new(&up.ca);
        let download = port.map(|port| {
            let mut connection = client.connect(port, &host);
            let opened = client.runtime.block_on(connection.open(Method::GET, &host, "/trickle/30", &[], None));
            (connection, opened.unwrap().1)
        });
        let next = home.up(&[&UP[..], options, &["--takeover"]].concat());
        if let Some((connection, mut stream)) = download {
            let length = client.runtime.block_on(async {
                let mut length = 0;
                while let Some(mut data) = stream.recv_data().await.unwrap() {
                    length += data.copy_to_bytes(data.remaining()).len();
                }
                connection.quic.close(0_u32.into(), b"");
                connection.quic.closed().await;
                tokio::time::sleep(Duration::from_millis(50)).await;
                length
            });
            assert_eq!(length, 150, "{options:?}");
        }
        assert_eq!(up.program.ended().code(), Some(0), "{options:?}: {}", up.program.output());
        match next_port {
            Some(port) => {
                assert_eq!(Http3Client::new(&next.ca).connect(port, &host).get(&host, "/").status, 200, "{options:?}");
            }
            None => {
                drop(UdpSocket::bind(("127.0.0.1", up.port)).expect("the port is closed"));
                assert_eq!(next.curl("api.localhost", "/v1/info", &[]).header("alt-svc"), Some("clear"));
            }
        }
        assert_eq!(next.curl(&host, "/", &[]).status, 200);
        (up, port) = (next, next_port);
    }
    assert_ended(up);
}

fn assert_all_served(clients: &[Http3Client], idle: &mut [Http3Connection], port: u16, host: &str) {
    let mut resets = 0;
    for (number, connection) in idle.iter_mut().enumerate() {
        let client = &clients[number / CONNECTIONS_PER_SOCKET];
        let mut status = get_or_connect(client, connection, port, host);
        if status.as_ref().is_err_and(|error| error.contains("reset by peer")) {
            resets += 1;
            *connection = client.connect(port, host);
            status = Ok(connection.get(host, "/").status);
        }
        assert_eq!(status, Ok(200), "connection {number}");
    }
    assert!(resets <= MAX_RESETS, "{resets} idle connections were reset");
}

fn assert_ended(up: Up) {
    assert!(up.program.stop().success(), "{}", up.program.output());
}
