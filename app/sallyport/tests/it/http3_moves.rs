//! Clients over HTTP/3 whose address changes, or that send from the address of another.

use std::{
    io::{self, IoSliceMut},
    net::{SocketAddr, UdpSocket},
    pin::Pin,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Buf as _;
use http::Method;
use quinn::{
    AsyncUdpSocket, Runtime as _, TokioRuntime, UdpPoller,
    udp::{RecvMeta, Transmit},
};
use serde_json::Value;

use crate::{
    browser::browser,
    harness::{Home, Origin, text, wait_until},
    http3_client::{Http3Client, Http3Connection, Http3Stream},
    http3_paths::can_spoil_networks,
    protocols::{client, tool},
};

/// How many bytes of the response came, and whether the stream broke off then.
fn received(client: &Http3Client, stream: &mut Http3Stream) -> (usize, bool) {
    client.runtime.block_on(async {
        let mut length = 0;
        loop {
            match stream.recv_data().await {
                Ok(Some(mut data)) => length += data.copy_to_bytes(data.remaining()).len(),
                Ok(None) => return (length, false),
                Err(_) => return (length, true),
            }
        }
    })
}

#[test]
fn a_client_that_moves_keeps_its_requests_and_is_judged_at_its_new_address() {
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    let policy = home.run(&["policy", "create", "machines", "--service-token", "ci"]);
    assert!(policy.status.success(), "{}", text(&policy.stderr));
    let made = home.json(&["service-token", "create", "ci"]);
    let (id, secret) = (made["id"].as_str().unwrap(), made["secret"].as_str().unwrap());
    let token = [("sallyport-token-id", id), ("sallyport-token-secret", secret)];
    let (socket, host) = home.socket(&["--deny", "127.0.0.9/32", "--cloudauth", "--policy", "machines"]);
    let origin = Origin::start("origin");
    let _connector = home.connector(&socket, origin.address, &[]);
    let client = Http3Client::new(&up.ca);
    let mut connection = client.connect(up.port, &host);
    let status = |connection: &mut Http3Connection, fields: &[(&str, &str)]| {
        connection.send(Method::GET, &host, "/", fields, None).unwrap().status
    };
    assert_ne!(status(&mut connection, &[]), 200, "nobody comes in without a login or a token");
    assert_eq!(status(&mut connection, &token), 200);

    let (head, mut stream) =
        client.runtime.block_on(connection.open(Method::GET, &host, "/trickle/30", &token, None)).unwrap();
    assert_eq!(head.status(), 200);
    client.rebind("127.0.0.8:0");
    let seen = connection.send(Method::GET, &host, "/", &token, None).unwrap().text();
    assert!(seen.contains("127.0.0.8") && !seen.contains("127.0.0.1"), "{seen}");
    assert_eq!(received(&client, &mut stream), (150, false), "the response that began at the first address");
    client.rebind("127.0.0.9:0");
    assert_eq!(status(&mut connection, &token), 403);
    client.rebind("127.0.0.1:0");
    assert_eq!(status(&mut connection, &token), 200);
    assert!(connection.quic.close_reason().is_none(), "one connection all the time");
}

#[test]
fn a_response_ends_when_its_client_moves_to_an_address_that_is_not_admitted() {
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    // One socket with an access list alone, one with a policy.
    let made = home.run(&["policy", "create", "near", "--from", "127.0.0.0/29"]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    for options in [["--deny", "127.0.0.9/32"], ["--policy", "near"]] {
        let (socket, host) = home.socket(&options);
        let origin = Origin::start("origin");
        let _connector = home.connector(&socket, origin.address, &[]);
        let client = Http3Client::new(&up.ca);
        let mut connection = client.connect(up.port, &host);
        let open = |connection: &mut Http3Connection, path| {
            client.runtime.block_on(connection.open(Method::GET, &host, path, &[], None)).unwrap()
        };
        // One that flows, and one of which nothing comes for a while.
        let (_, mut flowing) = open(&mut connection, "/trickle/1000");
        let (head, mut large) = open(&mut connection, "/bytes/1000000000");
        assert_eq!(head.status(), 200);
        client.rebind("127.0.0.9:0");
        assert_eq!(connection.send(Method::GET, &host, "/", &[], None).unwrap().status, 403, "{options:?}");
        let (length, is_broken) = received(&client, &mut large);
        assert!(is_broken && length < 1_000_000_000, "{options:?}: {length}");
        let (length, is_broken) = received(&client, &mut flowing);
        assert!(is_broken && length < 5_000, "{options:?}: {length}");
        up.program.wait_for("end=\"revoked\"");
    }
}

/// A client that receives at its own address, and sends from the address of another while `is_forging`.
#[derive(Debug)]
struct Forger {
    own: Arc<dyn AsyncUdpSocket>,
    forged: Arc<dyn AsyncUdpSocket>,
    is_forging: Arc<AtomicBool>,
}

impl AsyncUdpSocket for Forger {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        self.own.clone().create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let socket = if self.is_forging.load(Ordering::Relaxed) { &self.forged } else { &self.own };
        socket.try_send(transmit)
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        self.own.poll_recv(cx, bufs, meta)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.own.local_addr()
    }
}

/// An endpoint that receives at 127.0.0.1, and sends from `forged` while the flag is set.
fn forger(client: &Http3Client, forged: &str) -> (quinn::Endpoint, Arc<AtomicBool>) {
    let is_forging = Arc::<AtomicBool>::default();
    let _inside = client.runtime.enter();
    let bound = |address| TokioRuntime.wrap_udp_socket(UdpSocket::bind(address).unwrap()).unwrap();
    let socket = Forger { own: bound("127.0.0.1:0"), forged: bound(forged), is_forging: is_forging.clone() };
    let (config, runtime) = (quinn::EndpointConfig::default(), Arc::new(TokioRuntime));
    let endpoint = quinn::Endpoint::new_with_abstract_socket(config, None, Arc::new(socket), runtime).unwrap();
    (endpoint, is_forging)
}

/// Sends a request, and checks that it is not admitted. The refusal may go to the other address.
fn in_vain(client: &Http3Client, connection: &mut Http3Connection, host: &str, path: &str) {
    let response = client.runtime.block_on(async {
        let sending = connection.open(Method::GET, host, path, &[], None);
        tokio::time::timeout(Duration::from_secs(3), sending).await
    });
    if let Ok(response) = response {
        assert_eq!(response.unwrap().0.status(), 403, "{path}");
    }
}

#[test]
fn a_client_that_sends_from_an_admitted_address_is_not_admitted_unless_it_receives_there() {
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    let (socket, host) = home.socket(&["--allow", "127.0.0.8/32"]);
    let origin = Origin::start("origin");
    let _connector = home.connector(&socket, origin.address, &[]);
    let client = Http3Client::new(&up.ca);
    let (endpoint, is_forging) = forger(&client, "127.0.0.8:0");
    let mut connection = client.connect_from(&endpoint, up.port, &host).unwrap();
    assert_eq!(connection.get(&host, "/").status, 403);
    assert_eq!(origin.count(), 0);
    for number in 0..3 {
        is_forging.store(true, Ordering::Relaxed);
        in_vain(&client, &mut connection, &host, &format!("/forged/{number}"));
        is_forging.store(false, Ordering::Relaxed);
        assert_eq!(connection.get(&host, "/").status, 403);
    }
    assert_eq!(origin.count(), 0, "no request was admitted");
    assert!(!up.program.output().contains("client=127.0.0.8"), "no record has the other address");

    let honest = Http3Client::new(&up.ca);
    let mut connection = honest.connect(up.port, &host);
    assert_eq!(connection.get(&host, "/").status, 403);
    honest.rebind("127.0.0.8:0");
    assert_eq!(connection.get(&host, "/").status, 200, "a client that receives there is admitted");
}

#[test]
fn a_client_at_an_address_that_is_not_admitted_gains_nothing_by_withholding_the_proof() {
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    let made = home.run(&["policy", "create", "near", "--from", "127.0.0.0/29"]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    for options in [["--deny", "127.0.0.9/32"], ["--policy", "near"]] {
        let (socket, host) = home.socket(&options);
        let origin = Origin::start("origin");
        let _connector = home.connector(&socket, origin.address, &[]);
        let client = Http3Client::new(&up.ca);
        let (endpoint, is_forging) = forger(&client, "127.0.0.9:0");
        let mut connection = client.connect_from(&endpoint, up.port, &host).unwrap();
        assert_eq!(connection.get(&host, "/").status, 200);
        let opened = client.runtime.block_on(connection.open(Method::GET, &host, "/trickle/1000", &[], None));
        let (_, mut running) = opened.unwrap();
        let served = origin.count();
        is_forging.store(true, Ordering::Relaxed);
        for number in 0..3 {
            in_vain(&client, &mut connection, &host, &format!("/withheld/{number}"));
        }
        assert_eq!(origin.count(), served, "{options:?}: no request was admitted");
        is_forging.store(false, Ordering::Relaxed);
        let (length, is_broken) = received(&client, &mut running);
        assert!(is_broken && length < 5_000, "{options:?}: {length}");
        assert_eq!(connection.get(&host, "/").status, 200, "{options:?}: back at its own address");
    }
}

/// The network of a browser: a home behind a router, which has two ways to the server and hides the browser's address.
///
/// The test runs in the network of the server. `$SERVER` is the server's address on both ways.
const TWO_NETWORKS: &str = "set -e
ip link set lo up
ip addr add 10.9.9.9/32 dev lo
for way in 1 2; do
  ip link add way$way type veth peer name way$way netns $ROUTER
  ip addr add 10.$way.0.1/24 dev way$way
  ip link set way$way up
  nsenter -t $ROUTER -n ip addr add 10.$way.0.2/24 dev way$way
  nsenter -t $ROUTER -n ip link set way$way up
done
nsenter -t $ROUTER -n ip link add home type veth peer name home netns $HOME_NETWORK
nsenter -t $ROUTER -n ip addr add 192.168.7.1/24 dev home
nsenter -t $ROUTER -n ip link set home up
nsenter -t $ROUTER -n sysctl -qw net.ipv4.ip_forward=1
nsenter -t $ROUTER -n ip route add default via 10.1.0.1
nsenter -t $ROUTER -n nft add table ip nat
nsenter -t $ROUTER -n nft add chain ip nat out '{ type nat hook postrouting priority 100; }'
nsenter -t $ROUTER -n nft add rule ip nat out oifname way1 masquerade
nsenter -t $ROUTER -n nft add rule ip nat out oifname way2 masquerade
nsenter -t $HOME_NETWORK -n ip link set lo up
nsenter -t $HOME_NETWORK -n ip addr add 192.168.7.2/24 dev home
nsenter -t $HOME_NETWORK -n ip link set home up
nsenter -t $HOME_NETWORK -n ip route add default via 192.168.7.1
";

/// A process in a network namespace of its own, which it keeps.
struct Network(Child);

impl Network {
    fn new() -> Self {
        let child = Command::new("unshare").args(["--net", "sleep", "1000"]).spawn().unwrap();
        let own = std::fs::read_link("/proc/self/ns/net").unwrap();
        let theirs = format!("/proc/{}/ns/net", child.id());
        wait_until("the network", || std::fs::read_link(&theirs).is_ok_and(|network| network != own).then_some(()));
        Self(child)
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_browser_that_moves_between_two_networks_goes_on_with_its_download() {
    if browser().is_none() || tool("playwright").is_none() || !can_spoil_networks() {
        return;
    }
    let output = Command::new("unshare")
        .arg("--net")
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "http3_moves::within_the_network_of_the_server", "--ignored", "--nocapture"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let shown = text(&output.stdout);
    assert!(output.status.success() && shown.contains("1 passed"), "{shown}\n{}", text(&output.stderr));
}

#[test]
#[ignore = "runs within a network of a_browser_that_moves_between_two_networks_goes_on_with_its_download"]
fn within_the_network_of_the_server() {
    let (router, browsers) = (Network::new(), Network::new());
    let made = Command::new("sh")
        .args(["-c", TWO_NETWORKS])
        .env("ROUTER", router.pid())
        .env("HOME_NETWORK", browsers.pid())
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", text(&made.stderr));
    let home = Home::new();
    let up = home.up(&["--listen", "0.0.0.0:8443", "--listen-quic", "0.0.0.0:8443"]);
    home.account();
    let (socket, host) = home.socket(&[]);
    let origin = Origin::start("origin");
    let _connector = home.connector(&socket, origin.address, &[]);
    home.json(&["trust", "install", "--only-browsers"]);
    let move_away = format!(
        "nsenter -t {0} -n ip route replace default via 10.2.0.1 && nsenter -t {0} -n ip link set way1 down",
        router.pid()
    );
    let output = home
        .program("nsenter")
        .args(["-t", &browsers.pid(), "-n", "node", &client("http3_moves.mjs")])
        .args([tool("playwright").unwrap(), browser().unwrap()])
        .args([&format!("https://{host}:8443"), &format!("{host}:8443"), "10.9.9.9", &move_away])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}\n{}", text(&output.stderr), up.program.output());
    let seen: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(seen["protocols"], serde_json::json!(["h3", "h3"]), "{seen}");
    assert_eq!(seen["downloaded"].as_u64(), Some(60_000_000), "{seen}");
    assert!(seen["before"].as_str().unwrap().contains("x-forwarded-for: 10.1.0.2"), "{seen}");
    assert!(seen["after"].as_str().unwrap().contains("x-forwarded-for: 10.2.0.2"), "{seen}");
    let downloads = up.program.output().matches("path=\"/bytes/60000000\"").count();
    assert_eq!(downloads, 1, "the download was one request: {}", up.program.output());
}
