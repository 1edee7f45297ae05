//! A machine of a network: its device, its routes and its packets, in a network namespace of its own.

use std::{
    net::SocketAddr,
    path::Path,
    process::{Command, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use sallyport_connector::{
    TransportChoice,
    network::{Control, JoinNetwork, NetworkEdge, NetworkError, NetworkEvent, NetworkOptions, join},
};
use sallyport_model::MachineId;
use sallyport_net::{Outbound, Shutdown, Trust, client_config};
use sallyport_tunnel::{
    JoinedMachine, Networks,
    packets::{PacketHandler, PacketQueue},
};
use sallyport_wire::{NOT_YET_KNOWN, NetworkJoined, Refusal, Violation, packets::Parcels};
use tokio::sync::mpsc;

use crate::lab::{Edge, soon};

const DEVICE: &str = "sp-office";

/// Runs this ignored test in a network namespace of its own.
fn run_within(test: &str) {
    let has_space = Command::new("unshare").args(["--net", "true"]).status().is_ok_and(|status| status.success());
    if !has_space || !Path::new("/dev/net/tun").exists() {
        assert!(std::env::var_os("CI").is_none(), "network namespaces and /dev/net/tun must be there in CI");
        println!("skipped: a TUN device in a network of its own needs root, and /dev/net/tun");
        return;
    }
    let output = Command::new("unshare")
        .args(["--net", "sh", "-c", "ip link set lo up; exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", &format!("network::{test}"), "--ignored", "--nocapture"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{test}:\n{shown}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(shown.contains("1 passed"), "{test}:\n{shown}");
}

fn ip(words: &str) -> String {
    let output = Command::new("ip").args(words.split_whitespace()).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Pings once; the edge of this test answers.
async fn pings(address: &str) -> bool {
    let address = address.to_owned();
    let pinging = move || Command::new("ping").args(["-c", "1", "-W", "20", &address]).output().unwrap();
    tokio::task::spawn_blocking(pinging).await.unwrap().status.success()
}

fn place(routes: &[&str]) -> NetworkJoined {
    NetworkJoined {
        network: "office".into(),
        machine: "m1".into(),
        addresses: vec!["10.77.0.1/24".parse().unwrap(), "fd00:77::1/64".parse().unwrap()],
        routes: routes.iter().map(|route| route.parse().unwrap()).collect(),
        mtu_bytes: 1_400,
    }
}

/// An edge that answers each echo request itself.
struct Echo {
    joined: mpsc::UnboundedSender<Arc<PacketQueue>>,
}

struct EchoHandler(Arc<PacketQueue>);

impl PacketHandler for EchoHandler {
    fn packets(&mut self, parcels: Parcels<'_>) -> Result<(), Violation> {
        for parcel in parcels {
            if let Some(reply) = reply(parcel?) {
                assert!(self.0.push(&reply));
            }
        }
        Ok(())
    }
}

/// The reply to an echo request: addresses change places, and the checksum follows the type of the message.
fn reply(parcel: &[u8]) -> Option<Vec<u8>> {
    let mut reply = parcel.to_vec();
    let packet = &mut reply[10..];
    let (addresses, length, message, change) = match (packet[0] >> 4, packet[9], packet[6]) {
        (4, 1, _) if packet[20] == 8 => (12, 4, 20, 0x0800),
        (6, _, 58) if packet[40] == 128 => (8, 16, 40, 0xfeff),
        _ => return None,
    };
    for at in addresses..addresses + length {
        packet.swap(at, at + length);
    }
    packet[message] = if length == 4 { 0 } else { 129 };
    let sum = u32::from(u16::from_be_bytes([packet[message + 2], packet[message + 3]])) + change;
    let sum = (sum & 0xffff) as u16 + (sum >> 16) as u16;
    packet[message + 2..message + 4].copy_from_slice(&sum.to_be_bytes());
    Some(reply)
}

impl Networks for Echo {
    fn join(&self, question: &JoinNetwork, _: SocketAddr) -> Result<JoinedMachine, Refusal> {
        match question.credential.as_str() {
            "good" => {}
            "unknown" => return Err(Refusal::new(NOT_YET_KNOWN, "this edge does not know the machine", true)),
            _ => return Err(Refusal::new("bad-credential", "the credential is wrong", false)),
        }
        let queue = Arc::new(PacketQueue::default());
        queue.tell(place(&["10.78.0.0/24", "127.0.0.0/24"]));
        self.joined.send(queue.clone()).unwrap();
        Ok(JoinedMachine { handler: Box::new(EchoHandler(queue.clone())), queue })
    }
}

fn network_edge(edge: &Edge, port: u16) -> NetworkEdge {
    NetworkEdge {
        host: "localhost".into(),
        port,
        quic_port: None,
        tls: client_config(&Trust::Ca(edge.names.ca_file()), &[]).unwrap(),
        outbound: Outbound::default(),
    }
}

/// Control that says this, each thing once.
#[derive(Default)]
struct Says {
    is_removed: bool,
    edge: Mutex<Option<NetworkEdge>>,
}

impl Control for Says {
    async fn is_removed(&self) -> bool {
        self.is_removed
    }

    async fn other_edge(&self) -> Option<NetworkEdge> {
        self.edge.lock().unwrap().take()
    }
}

fn options(edge: &Edge, credential: &str) -> NetworkOptions {
    NetworkOptions {
        agent: "test".into(),
        edge: network_edge(edge, edge.port),
        transport: TransportChoice::Auto,
        machine: JoinNetwork { machine: MachineId::from_random([1; 16]), credential: credential.into() },
        keepalive: Duration::from_secs(10),
        device: None,
        accepts_routes: true,
    }
}

/// A machine whose control says nothing.
async fn join_alone(
    options: NetworkOptions,
    events: mpsc::Sender<NetworkEvent>,
    shutdown: Shutdown,
) -> Result<(), NetworkError> {
    join(options, &Says::default(), events, shutdown).await
}

#[test]
fn packets_of_the_kernel_cross_and_the_device_goes_with_its_machine() {
    run_within("within_a_network");
}

#[tokio::test]
#[ignore = "runs within the network of packets_of_the_kernel_cross_and_the_device_goes_with_its_machine"]
async fn within_a_network() {
    let edge = Edge::start().await;
    let (joined, mut queues) = mpsc::unbounded_channel();
    edge.tunnels.set_networks(Arc::new(Echo { joined }));
    let (sender, mut events) = mpsc::channel(16);
    let shutdown = Shutdown::new();
    let machine = tokio::spawn(join_alone(options(&edge, "good"), sender, shutdown.clone()));
    assert_eq!(soon(events.recv()).await, Some(NetworkEvent::RouteLeftOut("127.0.0.0/24".parse().unwrap())));
    let event = soon(events.recv()).await;
    assert!(matches!(&event, Some(NetworkEvent::Joined { device, .. }) if device == DEVICE), "{event:?}");
    assert!(pings("10.77.0.9").await && pings("fd00:77::9").await, "{}", ip("addr"));
    assert!(pings("10.78.0.9").await, "by the route of another machine: {}", ip("route"));
    assert!(ip("route get 10.78.0.9").contains("src 10.77.0.1"), "{}", ip("route get 10.78.0.9"));

    // A route goes, another comes; then the edge is lost, and the device stays until the machine is back.
    let queue = soon(queues.recv()).await.unwrap();
    queue.tell(place(&["10.79.0.0/24"]));
    let changed = async {
        while !ip("route").contains("10.79.0.0/24") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    soon(changed).await;
    assert!(!ip("route").contains("10.78.0.0/24"), "{}", ip("route"));
    queue.end(Some(Refusal::new("shutting-down", "the edge is shutting down", true)));
    let event = soon(events.recv()).await;
    assert!(matches!(&event, Some(NetworkEvent::Lost { why, .. }) if why == "the edge is shutting down"), "{event:?}");
    assert!(ip("link").contains(DEVICE));
    let queue = soon(queues.recv()).await.unwrap();
    assert!(pings("10.77.0.9").await);

    queue.end(Some(Refusal::new("removed", "the machine was removed from its network", false)));
    let ended = soon(machine).await.unwrap();
    assert!(matches!(&ended, Err(NetworkError::Refused(refusal)) if refusal.code == "removed"), "{ended:?}");
    assert!(!ip("link").contains(DEVICE), "{}", ip("link"));

    // A machine that is stopped leaves nothing either, and a wrong credential makes no device.
    let (sender, mut events) = mpsc::channel(16);
    // It has accepted no routes, and uses none but those of its ranges.
    let without_routes = NetworkOptions { accepts_routes: false, ..options(&edge, "good") };
    let machine = tokio::spawn(join_alone(without_routes, sender, shutdown.clone()));
    let announced = ["10.78.0.0/24", "127.0.0.0/24"].map(|route| route.parse().unwrap()).to_vec();
    assert_eq!(soon(events.recv()).await, Some(NetworkEvent::RoutesNotAccepted(announced)));
    let event = soon(events.recv()).await;
    assert!(matches!(&event, Some(NetworkEvent::Joined { place, .. }) if place.routes.is_empty()), "{event:?}");
    assert!(ip("route").contains("10.77.0.0/24") && !ip("route").contains("10.78.0.0/24"), "{}", ip("route"));
    shutdown.trigger();
    soon(machine).await.unwrap().unwrap();
    assert!(!ip("link").contains(DEVICE), "{}", ip("link"));
    let refused = join_alone(options(&edge, "bad"), mpsc::channel(16).0, Shutdown::new());
    assert_eq!(soon(refused).await.unwrap_err().to_string(), "the credential is wrong");
    assert!(!ip("link").contains(DEVICE), "{}", ip("link"));
}

#[tokio::test]
async fn an_unknown_machine_tries_again_until_control_says_that_it_was_removed() {
    let edge = Edge::start().await;
    edge.tunnels.set_networks(Arc::new(Echo { joined: mpsc::unbounded_channel().0 }));
    let (sender, mut events) = mpsc::channel(16);
    let shutdown = Shutdown::new();
    // Control that does not say so: the machine may be new, and tries again.
    let machine = tokio::spawn(join_alone(options(&edge, "unknown"), sender, shutdown.clone()));
    for _ in 0..2 {
        let event = soon(events.recv()).await;
        assert!(matches!(&event, Some(NetworkEvent::Lost { why, .. }) if why.contains("does not know")), "{event:?}");
    }
    shutdown.trigger();
    soon(machine).await.unwrap().unwrap();
    let removed = Says { is_removed: true, ..Says::default() };
    let ended = soon(join(options(&edge, "unknown"), &removed, mpsc::channel(16).0, Shutdown::new())).await;
    assert!(matches!(&ended, Err(NetworkError::Refused(refusal)) if refusal.code == "removed"), "{ended:?}");
}

#[tokio::test]
async fn a_machine_whose_edge_is_silent_goes_to_the_edge_that_control_names() {
    let edge = Edge::start().await;
    edge.tunnels.set_networks(Arc::new(Echo { joined: mpsc::unbounded_channel().0 }));
    // A port that nobody listens at. The credential is wrong, so that the answer of the other edge needs no device.
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let options = NetworkOptions { edge: network_edge(&edge, nobody), ..options(&edge, "bad") };
    let control = Says { edge: Mutex::new(Some(network_edge(&edge, edge.port))), ..Says::default() };
    let ended = soon(join(options, &control, mpsc::channel(16).0, Shutdown::new())).await;
    assert_eq!(ended.unwrap_err().to_string(), "the credential is wrong");
}
