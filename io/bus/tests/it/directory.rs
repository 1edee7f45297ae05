//! The directory of tunnels, over a real NATS server.

use std::time::{Duration, Instant};

use sallyport_bus::{
    Bus, Directory, DirectoryRole, EdgeCard, EdgeState, Fleet, Nats, follow_config, follow_directory, publish_config,
};
use sallyport_model::{EdgeId, OriginHealth, SocketId, TunnelId, TunnelPresence};
use tokio::{sync::watch, task::JoinHandle};

use crate::{
    config::Shelf,
    nats::{Nats as Server, until},
};

/// Half of the tunnels must be known within this time, and 99 of 100 within [`SLOW`]. Both are many times the usual
/// time, since test machines are busy.
const USUAL: Duration = Duration::from_millis(1_000);
const SLOW: Duration = Duration::from_secs(10);

fn card(number: u8) -> EdgeCard {
    EdgeCard {
        edge: EdgeId::from_random([number; 16]),
        name: format!("edge-{number}").parse().unwrap(),
        region: "eu".parse().unwrap(),
        addresses: vec![format!("192.0.2.{number}:443").parse().unwrap()],
        program: "0.1.0".to_owned(),
        since: 0,
        state: Default::default(),
        http3_port: None,
        anycast: Vec::new(),
        egress: Vec::new(),
        balanced: None,
    }
}

pub(crate) fn presence(number: u32) -> TunnelPresence {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    TunnelPresence {
        tunnel: TunnelId::from_random(bytes),
        socket: SocketId::from_random([1; 16]),
        connector_addr: "198.51.100.1:1000".parse().unwrap(),
        agent: "test".to_owned(),
        since: 0,
        home: None,
        origin: None,
        host: None,
        spread: false,
        health: OriginHealth::default(),
        failure: None,
    }
}

pub(crate) struct EdgeHere {
    own: Directory,
    fleet: Fleet,
    card: watch::Sender<EdgeCard>,
    ends: watch::Sender<bool>,
    task: JoinHandle<()>,
}

pub(crate) async fn edge(server: &Server, number: u8, epoch: u64) -> EdgeHere {
    let nats = Nats::connect(&server.config()).await.unwrap();
    let (own, fleet, ends) = (Directory::default(), Fleet::default(), watch::Sender::new(false));
    let card = watch::Sender::new(card(number));
    let role = DirectoryRole::Edge {
        card: card.subscribe(),
        epoch,
        own: own.clone(),
        takes_over: false,
        ends: ends.subscribe(),
    };
    let task = tokio::spawn(follow_directory(nats, role, fleet.clone()));
    EdgeHere { own, fleet, card, ends, task }
}

/// A control, which makes the buckets; its directory of all tunnels, and its fleet.
pub(crate) async fn control(server: &Server) -> (Directory, Fleet) {
    let nats = Nats::connect(&server.config()).await.unwrap();
    let (bus, shelf) = (Bus::default(), Shelf::default());
    tokio::spawn(publish_config(nats.clone(), bus, shelf.source(), 1, Default::default()));
    let (all, fleet) = (Directory::default(), Fleet::default());
    let role = DirectoryRole::Control { name: "one".to_owned(), all: all.clone() };
    tokio::spawn(follow_directory(nats, role, fleet.clone()));
    (all, fleet)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tunnel_is_known_everywhere_soon_and_gone_when_its_edge_dies() {
    let Some(server) = Server::start("") else { return };
    let (all, _fleet) = control(&server).await;
    let (a, b) = (edge(&server, 1, 1).await, edge(&server, 2, 1).await);
    until("both edges know both", || [&a, &b].iter().all(|edge| edge.fleet.edges().len() == 2)).await;

    let mut times = Vec::new();
    for number in 0..200 {
        let began = Instant::now();
        a.own.arrived(presence(number));
        let tunnel = presence(number).tunnel;
        while b.fleet.holders(tunnel).is_empty() || all.get(tunnel).is_none() {
            assert!(began.elapsed() < crate::nats::PATIENCE);
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
        times.push(began.elapsed());
    }
    times.sort_unstable();
    let (median, p99) = (times[times.len() / 2], times[times.len() * 99 / 100]);
    println!("a tunnel at one edge is known at another and at control: median {median:?}, p99 {p99:?}");
    assert!(median < USUAL && p99 < SLOW, "{median:?} {p99:?}");
    assert_eq!(b.fleet.holders(presence(0).tunnel)[0].name.as_str(), "edge-1");

    a.own.left(presence(0).tunnel);
    until("one is gone", || b.fleet.holders(presence(0).tunnel).is_empty() && all.get(presence(0).tunnel).is_none())
        .await;

    // The edge dies without a goodbye, and its lease expires.
    a.task.abort();
    let died = Instant::now();
    until("the dead edge is gone", || b.fleet.edges().len() == 1 && b.fleet.tunnels() == 0 && all.is_empty()).await;
    println!("a dead edge is gone after {:?}", died.elapsed());
    assert!(died.elapsed() > Duration::from_secs(3), "the lease was not waited for");

    // The restarted edge lists only its present tunnels.
    let a = edge(&server, 1, 2).await;
    a.own.arrived(presence(500));
    until("it is back", || b.fleet.tunnels() == 1 && all.get(presence(500).tunnel).is_some()).await;
    // A change of the edge's own card is published at once.
    a.card.send_modify(|card| card.state = EdgeState::Draining);
    let state = || b.fleet.edge(card(1).edge).map(|seen| seen.card.state);
    until("it is known to be emptied", || state() == Some(EdgeState::Draining)).await;
    assert_eq!(b.fleet.tunnels(), 1);
    // An edge that stops in order is removed at once.
    a.ends.send_replace(true);
    a.task.await.unwrap();
    let ended = Instant::now();
    until("it has ended", || b.fleet.edges().len() == 1 && all.is_empty()).await;
    assert!(ended.elapsed() < Duration::from_secs(4), "its lease was waited for");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bus_that_was_away_or_has_forgotten_everything_costs_nothing_but_time() {
    let Some(mut server) = Server::start("") else { return };
    let (all, _) = control(&server).await;
    let (a, b) = (edge(&server, 1, 1).await, edge(&server, 2, 1).await);
    (0..20).for_each(|number| a.own.arrived(presence(number)));
    until("all are known", || b.fleet.tunnels() == 20 && all.len() == 20).await;
    server.kill();
    // Longer than a lease: known entries are kept, and marked as stale.
    until("what is known is stale", || b.fleet.stale_since().is_some()).await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!((b.fleet.tunnels(), b.fleet.edges().len(), all.len()), (20, 2, 20));
    a.own.left(presence(0).tunnel);
    a.own.arrived(presence(100));
    server.wipe();
    server.resume();
    let now_there = |fleet: &Fleet| {
        fleet.stale_since().is_none()
            && fleet.holders(presence(0).tunnel).is_empty()
            && !fleet.holders(presence(100).tunnel).is_empty()
            && fleet.tunnels() == 20
    };
    until("all is known again", || now_there(&a.fleet) && now_there(&b.fleet) && all.len() == 20).await;
}

/// An edge that starts before control waits for the buckets.
#[tokio::test(flavor = "multi_thread")]
async fn edges_wait_for_a_control_to_make_the_buckets() {
    let Some(server) = Server::start("") else { return };
    let a = edge(&server, 1, 1).await;
    let dir = tempfile::tempdir().unwrap();
    let nats = Nats::connect(&server.config()).await.unwrap();
    let followed = sallyport_bus::ConfigProgress::default();
    tokio::spawn(follow_config(nats, Bus::default(), dir.path().into(), Default::default(), followed.clone()));
    tokio::time::sleep(Duration::from_millis(800)).await;
    assert!(a.fleet.edges().is_empty() && !followed.is_present());
    let _control = control(&server).await;
    until("the edge is known", || a.fleet.edges().len() == 1 && followed.is_present()).await;
}
