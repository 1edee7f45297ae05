//! Machines of networks at one edge: joining, packets, policies, and the end of a machine.

use std::{io, sync::Arc, time::Duration};

use sallyport_bus::{Routes, ServedNetworks};
use sallyport_model::{AccountId, CredentialHash, MachineId, NetworkId};
use sallyport_network::{
    relay::MTU_BYTES,
    route::{MachineRoute, NetworkRoute},
};
use sallyport_packet_model::testing::Frame;
use sallyport_tunnel::packets::{NetworkRefused, PacketHandler, PacketQueue, PacketsEnd, carry_packets, join_network};
use sallyport_wire::{
    ALPN, JoinNetwork, NetworkJoined, Refusal, Side, Violation, frame::VIRTIO_HEADER_BYTES, packets::Parcels,
};
use sha2::{Digest, Sha256};
use tokio::{sync::mpsc, task::JoinHandle};

use crate::harness::*;

const A: &str = "10.20.0.1";
const B: &str = "10.20.0.2";
const POLICY: &str = "network = \"office\"\n[[allow]]\nname = \"web\"\nto = [\"m2\"]\nservices = [\"udp/443\"]\n";

fn id(number: u8) -> MachineId {
    MachineId::from_random([number; 16])
}

fn office(machines: u8, policy: Option<&str>) -> NetworkRoute {
    let machine = |number: u8| MachineRoute {
        id: id(number),
        name: format!("m{number}").parse().unwrap(),
        credential: CredentialHash(Sha256::digest(format!("secret {number}").as_bytes()).into()),
        addresses: vec![format!("10.20.0.{number}").parse().unwrap()],
        routes: Vec::new(),
        groups: Vec::new(),
        is_exit: false,
    };
    NetworkRoute {
        id: NetworkId::from_random([1; 16]),
        account: AccountId::from_random([2; 16]),
        name: "office".parse().unwrap(),
        ranges: vec!["10.20.0.0/24".parse().unwrap()],
        policy: policy.map(str::to_owned),
        machines: (1..=machines).map(machine).collect(),
    }
}

/// What a machine gets from the edge.
#[derive(Debug)]
enum Came {
    Parcel(Vec<u8>),
    Place(NetworkJoined),
}

struct Handler(mpsc::UnboundedSender<Came>);

impl PacketHandler for Handler {
    fn packets(&mut self, parcels: Parcels<'_>) -> Result<(), Violation> {
        for parcel in parcels {
            let _ = self.0.send(Came::Parcel(parcel?.to_vec()));
        }
        Ok(())
    }

    fn place(&mut self, place: NetworkJoined) {
        let _ = self.0.send(Came::Place(place));
    }
}

/// A machine that has joined.
struct Machine {
    queue: Arc<PacketQueue>,
    came: mpsc::UnboundedReceiver<Came>,
    carrying: JoinHandle<PacketsEnd>,
}

impl Machine {
    fn send(&self, frame: &Frame) {
        assert!(self.queue.push(&parcel(frame)));
    }

    /// The next packet.
    async fn packet(&mut self) -> Vec<u8> {
        match soon(self.came.recv()).await {
            Some(Came::Parcel(parcel)) => parcel,
            other => panic!("{other:?} instead of a packet"),
        }
    }

    /// The code of the refusal that ends the carrier.
    async fn refused(self) -> String {
        match soon(self.carrying).await.unwrap() {
            PacketsEnd::Refused(refusal) => refusal.code,
            end => panic!("{end:?}"),
        }
    }
}

fn parcel(frame: &Frame) -> Vec<u8> {
    [vec![0; VIRTIO_HEADER_BYTES], frame.packet()].concat()
}

fn udp(from: &str, to: &str, port: u16, payload: &[u8]) -> Frame {
    Frame::udp((from, 5_000), (to, port), payload)
}

fn refusal(error: &io::Error) -> Refusal {
    error.get_ref().and_then(|inner| inner.downcast_ref::<NetworkRefused>()).unwrap().0.clone()
}

struct Office {
    world: World,
    served: ServedNetworks,
}

impl Office {
    fn start(network: NetworkRoute) -> Self {
        let served = ServedNetworks::default();
        served.put(network);
        let dir = Arc::new(tempfile::tempdir().unwrap());
        let networks = served.clone();
        let prepare = |edge: &sallyport_edge::Edge, _| edge.carry_networks(networks);
        let world = World::start_beside([127, 0, 0, 1], dir, Routes::default(), |_| (), prepare);
        Self { world, served }
    }

    async fn try_join(&self, number: u8, credential: &str) -> Result<(Machine, NetworkJoined), String> {
        let mut client = self.world.client_with("tunnel.localhost", &[ALPN]).await;
        let question = JoinNetwork { machine: id(number), credential: credential.to_owned() };
        let place = soon(join_network(&mut client, &question)).await.map_err(|error| refusal(&error).code)?;
        let queue = Arc::new(PacketQueue::default());
        let (sender, came) = mpsc::unbounded_channel();
        let carrying = tokio::spawn({
            let queue = queue.clone();
            async move {
                let mut handler = Handler(sender);
                carry_packets(client, &queue, Side::Connector, Duration::from_secs(10), &mut handler).await
            }
        });
        Ok((Machine { queue, came, carrying }, place))
    }

    async fn join(&self, number: u8) -> Machine {
        self.try_join(number, &format!("secret {number}")).await.unwrap().0
    }

    fn counted(&self, series: &str) -> u64 {
        let text = self.world.edge.metrics_text().unwrap();
        let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("no {series} in {text}")).parse().unwrap()
    }

    fn dropped(&self, reason: &str) -> u64 {
        self.counted(&format!("sallyport_edge_network_dropped_packets_total{{reason=\"{reason}\"}}"))
    }

    /// Waits until so many packets were dropped for this reason.
    async fn dropped_are(&self, reason: &str, count: u64) {
        let reached = async {
            while self.dropped(reason) < count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        soon(reached).await;
        assert_eq!(self.dropped(reason), count, "{reason}");
    }
}

#[tokio::test]
async fn packets_and_trains_cross_between_machines_whole() {
    let office = Office::start(office(3, None));
    let ((a, place), mut b) = (office.try_join(1, "secret 1").await.unwrap(), office.join(2).await);
    assert_eq!((place.network.as_str(), place.machine.as_str(), place.mtu_bytes), ("office", "m1", MTU_BYTES));
    assert_eq!(place.addresses, ["10.20.0.1/24".parse().unwrap()]);
    let small = udp(A, B, 9, b"hello");
    a.send(&small);
    assert_eq!(b.packet().await, parcel(&small));
    // A train of TCP with its virtio header: as it was sent, byte by byte.
    let train = Frame::tcp((A, 1), (B, 2), 16, &[7; 60_000]).packet();
    let [low, high] = 1_360_u16.to_le_bytes();
    let train = [&[1, 1, 40, 0, low, high, 20, 0, 16, 0], train.as_slice()].concat();
    assert!(a.queue.push(&train));
    assert_eq!(b.packet().await, train);
    assert_eq!(office.counted("sallyport_edge_network_machines"), 2);
    assert_eq!(office.counted("sallyport_edge_network_packets_total"), 2);
    assert_eq!(office.counted("sallyport_edge_network_bytes_total"), 33 + 60_040);
    // What is not for b, or not from a, is dropped and counted.
    a.send(&udp(B, A, 9, b"spoofed"));
    a.send(&udp("192.0.2.1", B, 9, b"spoofed"));
    office.dropped_are("spoofed", 2).await;
    a.send(&udp(A, "10.20.0.77", 9, b"x"));
    office.dropped_are("no-destination", 1).await;
    a.send(&udp(A, "10.20.0.3", 9, b"away"));
    office.dropped_are("away", 1).await;
    a.send(&udp(A, "224.0.0.1", 9, b"x"));
    office.dropped_are("multicast", 1).await;
    a.send(&udp(A, B, 9, &[0; 1_500]));
    office.dropped_are("oversize", 1).await;
    assert!(a.queue.push(&[0; 40]));
    office.dropped_are("malformed", 1).await;
    a.send(&small);
    assert_eq!(b.packet().await, parcel(&small), "nothing else has come");
}

#[tokio::test]
async fn a_machine_needs_its_credential_and_joins_once() {
    let office = Office::start(office(2, None));
    let code = async |number, credential: &str| office.try_join(number, credential).await.err().unwrap();
    assert_eq!(code(1, "secret 2").await, "bad-credential");
    assert_eq!(code(9, "secret 9").await, "not-yet-known");
    let former = office.join(1).await;
    let a = office.join(1).await;
    assert_eq!(former.refused().await, "replaced");
    let mut b = office.join(2).await;
    a.send(&udp(A, B, 9, b"x"));
    b.packet().await;
    assert_eq!(office.counted("sallyport_edge_network_machines"), 2);

    let world = World::start().await;
    let mut client = world.client_with("tunnel.localhost", &[ALPN]).await;
    let question = JoinNetwork { machine: id(1), credential: "secret 1".into() };
    let error = soon(join_network(&mut client, &question)).await.unwrap_err();
    assert_eq!(error.to_string(), "this edge carries no networks");
}

#[tokio::test]
async fn a_policy_is_obeyed_at_once_when_it_changes_under_way() {
    let office = Office::start(office(2, None));
    let (mut a, mut b) = (office.join(1).await, office.join(2).await);
    let (web, other, answer) = (udp(A, B, 443, b"q"), udp(A, B, 53, b"q"), Frame::udp((B, 443), (A, 5_000), b"a"));
    b.send(&udp(B, A, 9, b"without a policy each may talk to each"));
    a.packet().await;
    office.served.put(self::office(2, Some(POLICY)));
    // The edge takes the policy in another task: the first denied packet shows that it is there.
    let denied = async {
        while office.dropped("denied") == 0 {
            a.send(&other);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    soon(denied).await;
    while b.came.try_recv().is_ok() {}
    a.send(&web);
    assert_eq!(b.packet().await, parcel(&web));
    b.send(&answer);
    assert_eq!(a.packet().await, parcel(&answer));
    let before = office.dropped("denied");
    b.send(&udp(B, A, 443, b"not asked"));
    office.dropped_are("denied", before + 1).await;
}

#[tokio::test]
async fn a_removed_machine_is_cut_and_others_learn_of_routes() {
    let office = Office::start(office(3, None));
    let (a, mut b, c) = (office.join(1).await, office.join(2).await, office.join(3).await);
    let mut network = self::office(2, None);
    network.machines[0].routes = vec!["10.30.0.0/16".parse().unwrap()];
    office.served.put(network);
    assert_eq!(c.refused().await, "removed");
    match soon(b.came.recv()).await {
        Some(Came::Place(place)) => assert_eq!(place.routes, ["10.30.0.0/16".parse().unwrap()]),
        other => panic!("{other:?}"),
    }
    a.send(&udp("10.30.7.7", B, 9, b"from behind"));
    b.packet().await;
    office.served.remove(NetworkId::from_random([1; 16]));
    assert_eq!(a.refused().await, "removed");
    assert_eq!(b.refused().await, "removed");
    assert_eq!(office.counted("sallyport_edge_network_machines"), 0);
}

#[tokio::test]
async fn a_machine_that_reads_nothing_costs_a_bounded_queue_and_an_edge_that_stops_says_so() {
    let office = Office::start(office(2, None));
    let mut client = office.world.client_with("tunnel.localhost", &[ALPN]).await;
    let question = JoinNetwork { machine: id(2), credential: "secret 2".into() };
    soon(join_network(&mut client, &question)).await.unwrap();
    let a = office.join(1).await;
    let full = parcel(&udp(A, B, 9, &[0; 1_300]));
    let filled = async {
        while office.dropped("queue-full") < 100 {
            while a.queue.push(&full) {}
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    soon(filled).await;
    office.world.shutdown.trigger();
    assert_eq!(a.refused().await, "shutting-down");
}

#[tokio::test]
async fn an_edge_that_stops_lets_no_machine_join_any_more() {
    let office = Office::start(office(2, None));
    let mut late = office.world.client_with("tunnel.localhost", &[ALPN]).await;
    let a = office.join(1).await;
    office.world.shutdown.trigger();
    assert_eq!(a.refused().await, "shutting-down");
    // This connection was there before, and its machine comes only now.
    let question = JoinNetwork { machine: id(2), credential: "secret 2".into() };
    let refusal = refusal(&soon(join_network(&mut late, &question)).await.unwrap_err());
    assert_eq!((refusal.code.as_str(), refusal.retry), ("shutting-down", true));
}
