//! HTTP/3 over networks that forge, block and shorten.

use std::{
    fmt,
    io::{self, IoSliceMut},
    net::{SocketAddr, UdpSocket},
    pin::Pin,
    process::{Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    thread,
    time::Duration,
};

use bytes::{Buf as _, Bytes};
use http::Method;
use quinn::{
    AsyncUdpSocket, Runtime as _, TokioRuntime, UdpPoller,
    udp::{RecvMeta, Transmit},
};

use crate::{
    harness::{Home, Origin, text, wait_until},
    http3_client::Http3Client,
};

/// A socket that sends, and to which nothing comes back: its addresses are forged, or UDP is blocked on the way back.
#[derive(Debug)]
struct Deaf(Arc<dyn AsyncUdpSocket>);

impl AsyncUdpSocket for Deaf {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        self.0.clone().create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.0.try_send(transmit)
    }

    fn poll_recv(
        &self,
        _cx: &mut Context<'_>,
        _bufs: &mut [IoSliceMut<'_>],
        _meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        Poll::Pending
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

#[test]
fn in_a_flood_of_handshakes_real_clients_prove_their_address_and_are_served() {
    for options in [&[][..], &["--http3-early-data"]] {
        flood(options);
    }
}

fn flood(options: &[&str]) {
    /// More than the handshakes from which addresses are proven, from several addresses.
    const FLOOD: usize = 400;
    let home = Home::new();
    let up = home.up(options);
    let client = Http3Client::new(&up.ca);
    let retries = || {
        let shown = up.curl("api.localhost", "/metrics", &[]).body;
        let line = shown.lines().find(|line| line.starts_with("sallyport_edge_quic_retries_total "));
        line.unwrap().rsplit(' ').next().unwrap().parse::<u64>().unwrap()
    };
    assert_eq!(client.connect(up.port, "api.localhost").get("api.localhost", "/v1/info").status, 200);
    assert_eq!(retries(), 0, "one client is no flood");
    let mut flood = Vec::new();
    for number in 0..FLOOD {
        let address = format!("127.0.2.{}:0", number % 200 + 1);
        let _inside = client.runtime.enter();
        let inner = TokioRuntime.wrap_udp_socket(UdpSocket::bind(address).unwrap()).unwrap();
        let (socket, runtime) = (Arc::new(Deaf(inner)), Arc::new(TokioRuntime));
        let config = quinn::EndpointConfig::default();
        let mut endpoint = quinn::Endpoint::new_with_abstract_socket(config, None, socket, runtime).unwrap();
        endpoint.set_default_client_config(client.config());
        let server = SocketAddr::from(([127, 0, 0, 1], up.port));
        flood.push((endpoint.connect(server, "api.localhost").unwrap(), endpoint));
    }
    wait_until("the flood to be noticed", || (retries() > 0).then_some(()));
    wait_until("a client that has to prove its address", || {
        let before = retries();
        let fresh = Http3Client::new(&up.ca);
        assert_eq!(fresh.connect(up.port, "api.localhost").get("api.localhost", "/v1/info").status, 200);
        (retries() > before).then_some(())
    });
    drop(flood);
}

#[test]
fn http3_is_not_offered_where_udp_does_not_arrive() {
    let home = Home::new();
    // A port mapping that has forgotten UDP.
    let nowhere = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = nowhere.local_addr().unwrap().port().to_string();
    let up = home.up(&["--public-quic-port", &port]);
    let mut probe = [0; 2_048];
    assert_eq!(nowhere.recv(&mut probe).unwrap(), 1_200, "the edge looks whether UDP arrives");
    assert_eq!(up.curl("api.localhost", "/v1/info", &[]).header("alt-svc"), None);
    // The next question comes when the first was not answered.
    nowhere.recv(&mut probe).unwrap();
    assert_eq!(up.curl("api.localhost", "/v1/info", &[]).header("alt-svc"), None);
}

/// What a path does to packets: commands for a network namespace.
struct Network {
    name: &'static str,
    steps: &'static str,
}

const NETWORKS: [Network; 3] = [
    Network { name: "the smallest MTU of IPv6", steps: "ip link set lo mtu 1280" },
    Network {
        name: "marks of congestion are erased",
        steps: "nft add table inet t; nft add chain inet t o '{ type filter hook output priority 0; }'; \
                nft add rule inet t o ip ecn set not-ect",
    },
    Network {
        name: "every tenth datagram is lost",
        steps: "nft add table inet t; nft add chain inet t o '{ type filter hook output priority 0; }'; \
                nft add rule inet t o meta l4proto udp numgen random mod 10 0 drop",
    },
];

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Whether a test can have networks of its own.
pub(crate) fn can_spoil_networks() -> bool {
    let can_spoil = Command::new("unshare").args(["--net", "nft", "list", "ruleset"]).output();
    let can_spoil = can_spoil.is_ok_and(|output| output.status.success());
    if !can_spoil {
        assert!(std::env::var_os("CI").is_none(), "network namespaces and nft must be there in CI");
        println!("skipped: a network of its own needs root, and Debian's package `nftables`");
    }
    can_spoil
}

/// Runs this ignored test within the network.
fn run_within(network: &Network, test: &str) {
    let script = format!("set -e; ip link set lo up; {}; exec \"$0\" \"$@\"", network.steps);
    let output = Command::new("unshare")
        .args(["--net", "sh", "-c", &script])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", &format!("http3_paths::{test}"), "--ignored", "--nocapture"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{network}:\n{shown}\n{}", text(&output.stderr));
    assert!(shown.contains("1 passed"), "{network}:\n{shown}");
}

#[test]
fn requests_pass_over_narrow_and_lossy_networks() {
    if can_spoil_networks() {
        NETWORKS.iter().for_each(|network| run_within(network, "within_a_network"));
    }
}

#[test]
fn the_offer_ends_when_datagrams_pass_in_one_direction_only() {
    if can_spoil_networks() {
        let steps = "nft add table inet t; nft add chain inet t o '{ type filter hook output priority 0; }'";
        run_within(&Network { name: "one direction", steps }, "within_a_network_that_gets_blocked");
    }
}

#[test]
#[ignore = "runs within the network of the_offer_ends_when_datagrams_pass_in_one_direction_only"]
fn within_a_network_that_gets_blocked() {
    let home = Home::new();
    let dns = crate::tcp::free_port();
    let up = home.up(&["--listen-dns", &format!("127.0.0.1:{dns}")]);
    let alt_svc = || up.curl("api.localhost", "/v1/info", &[]).header("alt-svc").map(str::to_owned);
    let record = || {
        let port = dns.to_string();
        let asked = ["@127.0.0.1", "-p", &port, "+norec", "+short", "web.localhost", "HTTPS"];
        text(&Command::new("dig").args(asked).output().unwrap().stdout)
    };
    wait_until("the offer", || (alt_svc()?.starts_with("h3=") && record().contains("h3")).then_some(()));
    let client = Http3Client::new(&up.ca);
    assert_eq!(client.connect(up.port, "api.localhost").get("api.localhost", "/v1/info").status, 200);

    // Datagrams still reach the server, and its answers are lost.
    let block = ["add", "rule", "inet", "t", "o", "udp", "sport", &up.port.to_string(), "drop"];
    assert!(Command::new("nft").args(block).status().unwrap().success());
    wait_until("the end of the offer", || (alt_svc()? == "clear" && !record().contains("h3")).then_some(()));
    assert!(Command::new("nft").args(["flush", "chain", "inet", "t", "o"]).status().unwrap().success());
    wait_until("the new offer", || (alt_svc()?.starts_with("h3=") && record().contains("h3")).then_some(()));
    let client = Http3Client::new(&up.ca);
    assert_eq!(client.connect(up.port, "api.localhost").get("api.localhost", "/v1/info").status, 200);
}

#[test]
#[ignore = "runs within the networks of requests_pass_over_narrow_and_lossy_networks"]
fn within_a_network() {
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    let (socket, host) = home.socket(&[]);
    let origin = Origin::start("origin");
    let _connector = home.connector(&socket, origin.address, &[]);
    let client = Http3Client::new(&up.ca);
    let mut connection = client.connect(up.port, &host);
    let download = connection.get(&host, "/bytes/3000000");
    assert_eq!(download.body.len(), 3_000_000);
    let upload = Bytes::from(vec![b'u'; 1_000_000]);
    let echoed = connection.send(Method::POST, &host, "/", &[("content-length", "1000000")], Some(upload)).unwrap();
    assert!(echoed.body.ends_with(&[b'u'; 1_000_000]));
    for _ in 0..20 {
        assert_eq!(connection.get(&host, "/").status, 200);
    }
}

/// A relay between a client and the server. While `is_diverted`, the client's datagrams come from the address of a
/// victim.
struct Diversion {
    address: SocketAddr,
    is_diverted: Arc<AtomicBool>,
    sent_as_victim: Arc<AtomicUsize>,
    received_by_victim: Arc<AtomicUsize>,
}

impl Diversion {
    fn start(server: SocketAddr) -> Self {
        let bound = || {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            (socket.try_clone().unwrap(), socket)
        };
        let ((near, near_back), (far, far_back), (victim, victim_back)) = (bound(), bound(), bound());
        far.connect(server).unwrap();
        victim.connect(server).unwrap();
        let is_diverted = Arc::<AtomicBool>::default();
        let (sent, received) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let this = Self {
            address: near.local_addr().unwrap(),
            is_diverted: is_diverted.clone(),
            sent_as_victim: sent.clone(),
            received_by_victim: received.clone(),
        };
        let client = Arc::new(Mutex::new(None));
        let known = client.clone();
        thread::spawn(move || {
            let mut datagram = [0; 2_048];
            while let Ok((length, from)) = near.recv_from(&mut datagram) {
                *known.lock().unwrap() = Some(from);
                if is_diverted.load(Ordering::Relaxed) {
                    sent.fetch_add(length, Ordering::Relaxed);
                    drop(victim.send(&datagram[..length]));
                } else {
                    drop(far.send(&datagram[..length]));
                }
            }
        });
        thread::spawn(move || {
            let mut datagram = [0; 2_048];
            while let Ok(length) = far_back.recv(&mut datagram) {
                let to = *client.lock().unwrap();
                drop(to.map(|to| near_back.send_to(&datagram[..length], to)));
            }
        });
        thread::spawn(move || {
            let mut datagram = [0; 2_048];
            while let Ok(length) = victim_back.recv(&mut datagram) {
                received.fetch_add(length, Ordering::Relaxed);
            }
        });
        this
    }
}

/// The most bytes that quinn sends by one system call.
const MAX_BATCH_BYTES: usize = 10 * 1_500;

#[test]
fn a_client_that_names_the_address_of_a_victim_brings_little_upon_it_and_keeps_its_requests() {
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    let (socket, host) = home.socket(&[]);
    let origin = Origin::start("origin");
    let _connector = home.connector(&socket, origin.address, &[]);
    let diversion = Diversion::start(SocketAddr::from(([127, 0, 0, 1], up.port)));
    let client = Http3Client::new(&up.ca);
    let mut connection = client.connect(diversion.address.port(), &host);
    let length = client.runtime.block_on(async {
        let (_, mut stream) = connection.open(Method::GET, &host, "/bytes/30000000", &[], None).await.unwrap();
        let mut length = 0;
        while let Some(mut data) = stream.recv_data().await.unwrap() {
            length += data.copy_to_bytes(data.remaining()).len();
            let (sent, is_first) = (diversion.sent_as_victim.load(Ordering::Relaxed), length > 1_000_000);
            if is_first && sent == 0 {
                diversion.is_diverted.store(true, Ordering::Relaxed);
                // The client does not read on: the server would have megabytes to send.
                tokio::time::sleep(Duration::from_millis(700)).await;
                diversion.is_diverted.store(false, Ordering::Relaxed);
            }
        }
        length
    });
    assert_eq!(length, 30_000_000);
    let (sent, received) =
        (diversion.sent_as_victim.load(Ordering::Relaxed), diversion.received_by_victim.load(Ordering::Relaxed));
    assert!(sent > 0, "the client has spoken from the address of the victim");
    // Three times as much (RFC 9000 section 8.1), and what one system call sends: quinn looks before each.
    assert!(received <= 3 * sent + MAX_BATCH_BYTES, "{received} bytes came for {sent}");
}
