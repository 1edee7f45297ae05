//! Connectors whose addresses change, and those that lie about them.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use sallyport_multipath::{Association, Config, PathSettings, Side};
use sallyport_multipath_udp::endpoint;
use tokio::{net::UdpSocket, task::AbortHandle};

use crate::lab::{Edge, exchange, until};

/// A NAT with one client: it forwards packets from a socket of its own.
struct Nat {
    inside: Arc<UdpSocket>,
    edge: SocketAddr,
    client: Arc<Mutex<Option<SocketAddr>>>,
    tasks: Vec<AbortHandle>,
}

impl Nat {
    async fn start(edge: SocketAddr) -> Self {
        let inside = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
        let mut nat = Self { inside, edge, client: Arc::default(), tasks: Vec::new() };
        nat.rebind().await;
        nat
    }

    /// Forgets the mapping: packets go on from another port. Returns where the edge sees the client now.
    async fn rebind(&mut self) -> SocketAddr {
        self.tasks.drain(..).for_each(|task| task.abort());
        let outside = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
        let (inside, edge, client) = (self.inside.clone(), self.edge, self.client.clone());
        let (from, to) = (outside.clone(), client.clone());
        let out = async move {
            let mut packet = vec![0; 65_536];
            while let Ok((length, sender)) = inside.recv_from(&mut packet).await {
                *client.lock().unwrap() = Some(sender);
                let _ = from.send_to(&packet[..length], edge).await;
            }
        };
        let (socket, inside) = (outside.clone(), self.inside.clone());
        let back = async move {
            let mut packet = vec![0; 65_536];
            while let Ok((length, _)) = socket.recv_from(&mut packet).await {
                let client = *to.lock().unwrap();
                if let Some(client) = client {
                    let _ = inside.send_to(&packet[..length], client).await;
                }
            }
        };
        self.tasks = vec![tokio::spawn(out).abort_handle(), tokio::spawn(back).abort_handle()];
        outside.local_addr().unwrap()
    }
}

#[tokio::test]
async fn a_nat_that_rebinds_breaks_no_connection() {
    let edge = Edge::start(2);
    let mut nat = Nat::start(edge.address()).await;
    let connector = edge.connect_by(&["127.0.0.1"], nat.inside.local_addr().unwrap()).await;
    for _ in 0..3 {
        exchange(&connector.connection, 20_000).await;
        let address = nat.rebind().await;
        exchange(&connector.connection, 20_000).await;
        let remote = || connector.at_edge.paths().first().and_then(|path| path.remote);
        until("answers go to the new address", || remote() == Some(address)).await;
    }
}

#[tokio::test]
async fn an_address_that_does_not_answer_gets_little() {
    let edge = Edge::start(1);
    let (at_edge, offer) = edge.associations.open().unwrap();
    let now = std::time::Instant::now();
    let mut liar = Association::new(Config::default(), &offer.setup(Side::Connector), now);
    liar.add_path(PathSettings::default(), now).unwrap();
    liar.send(vec![1; 300].into(), now).unwrap();
    let link = UdpSocket::bind("127.0.0.2:0").await.unwrap();
    let mut packets = 0;
    while let Some(transmit) = liar.poll_transmit(now) {
        link.send_to(&transmit.bytes, edge.address()).await.unwrap();
        packets += 1;
    }
    let path = || at_edge.paths().first().map(|path| path.stats);
    until("the edge has the packets", || path().is_some_and(|path| path.received_packets == packets)).await;
    // The edge has more to send than an address may get that did not answer.
    let dialing = endpoint(at_edge.clone(), edge.address(), None).unwrap();
    let _connecting = dialing.connect_with(edge.client(), edge.address(), "localhost").unwrap();
    until("the edge has repeated its datagram", || {
        let path = path().unwrap();
        assert!(path.sent_bytes <= 3 * path.received_bytes, "{path:?}");
        at_edge.counts().sent_datagrams >= 4
    })
    .await;
    assert!(path().unwrap().sent_packets >= 2, "the question is repeated");
}
