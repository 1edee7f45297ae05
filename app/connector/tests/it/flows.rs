//! Datagrams to a service, with a socket for each flow, and back.

use std::{
    collections::HashSet,
    net::SocketAddr,
    ops::Range,
    sync::{Arc, Mutex},
    time::Duration,
};

use sallyport_tunnel::{FlowEnd, FlowHandle, FlowOpen, FlowSink, OpenFlowError, TunnelHandle};
use tokio::{net::UdpSocket, sync::mpsc};

use crate::lab::*;

/// An answer, or the end.
enum Received {
    Datagram(Vec<u8>),
    Closed(FlowEnd),
}

/// A datagram that has not arrived in this time is lost.
const LOST_AFTER: Duration = Duration::from_secs(2);

pub(crate) struct Client {
    pub(crate) flow: FlowHandle,
    received: mpsc::UnboundedReceiver<Received>,
}

struct Forwarder(mpsc::UnboundedSender<Received>);

impl FlowSink for Forwarder {
    fn datagrams(&self, batch: &[&[u8]]) {
        for datagram in batch {
            let _ = self.0.send(Received::Datagram(datagram.to_vec()));
        }
    }

    fn closed(&self, end: FlowEnd) {
        let _ = self.0.send(Received::Closed(end));
    }
}

impl Client {
    /// A flow of the client with this port.
    pub(crate) async fn new(tunnel: &TunnelHandle, port: u16) -> Self {
        let open = FlowOpen {
            tunnel: tunnel.tunnel(),
            client: ([198, 51, 100, 1], port).into(),
            destination: ([127, 0, 0, 1], 4_433).into(),
            opened_at_us: 1_700_000_000_000_000,
        };
        let (sink, received) = mpsc::unbounded_channel();
        let sink = Arc::new(Forwarder(sink));
        let flow = soon(async {
            loop {
                match tunnel.open_flow(open, sink.clone()) {
                    Ok(flow) => return flow,
                    // The connection for datagrams follows a moment after the tunnel.
                    Err(OpenFlowError::NotReady) => tokio::time::sleep(Duration::from_millis(5)).await,
                    Err(error) => panic!("{error}"),
                }
            }
        })
        .await;
        Self { flow, received }
    }

    /// The next datagram; `None` if it was lost.
    async fn receive(&mut self) -> Option<Vec<u8>> {
        match tokio::time::timeout(LOST_AFTER, self.received.recv()).await.ok()?.unwrap() {
            Received::Datagram(datagram) => Some(datagram),
            Received::Closed(end) => panic!("closed: {}", end.as_str()),
        }
    }

    pub(crate) async fn end(&mut self) -> FlowEnd {
        loop {
            if let Received::Closed(end) = soon(self.received.recv()).await.unwrap() {
                return end;
            }
        }
    }

    /// Sends until the answer comes: a delayed machine drops datagrams.
    pub(crate) async fn ask(&mut self, question: &[u8]) {
        soon(async {
            loop {
                assert!(self.flow.send(question));
                while let Some(answer) = self.receive().await {
                    if answer == question {
                        return;
                    }
                }
            }
        })
        .await;
    }

    /// Sends until the flow ends.
    pub(crate) async fn ask_in_vain(&mut self, question: &[u8]) -> FlowEnd {
        soon(async {
            loop {
                let _ = self.flow.send(question);
                if let Ok(end) = tokio::time::timeout(LOST_AFTER, self.end()).await {
                    return end;
                }
            }
        })
        .await
    }

    /// Sends these numbers at once, and expects them in order; false if one was lost.
    async fn sends_in_order(&mut self, numbers: Range<u8>) -> bool {
        for number in numbers.clone() {
            assert!(self.flow.send(&[number]));
        }
        for expected in numbers.clone() {
            let Some(answer) = self.receive().await else { return false };
            assert!(answer.len() == 1 && answer[0] >= expected && numbers.contains(&answer[0]), "{answer:?}");
            if answer[0] > expected {
                return false;
            }
        }
        true
    }
}

/// A service that echoes, and the addresses of its peers.
pub(crate) async fn udp_echo() -> (u16, Arc<Mutex<HashSet<SocketAddr>>>) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let (port, peers) = (socket.local_addr().unwrap().port(), Arc::new(Mutex::new(HashSet::new())));
    let seen = peers.clone();
    tokio::spawn(async move {
        let mut datagram = vec![0; 65_536];
        loop {
            let Ok((n, peer)) = socket.recv_from(&mut datagram).await else { continue };
            seen.lock().unwrap().insert(peer);
            let _ = socket.send_to(&datagram[..n], peer).await;
        }
    });
    (port, peers)
}

async fn with(port: u16) -> (Edge, Connector, TunnelHandle) {
    let edge = Edge::start_for(true).await;
    let connector = Connector::start(edge.options(port));
    let handle = edge.handle().await;
    assert!(handle.carries_datagrams() && handle.tunnel() == tunnel());
    (edge, connector, handle)
}

#[tokio::test]
async fn each_flow_has_a_socket_to_the_service() {
    let (port, peers) = udp_echo().await;
    let (_edge, _connector, tunnel) = with(port).await;
    let mut one = Client::new(&tunnel, 1).await;
    let mut two = Client::new(&tunnel, 2).await;
    one.ask(b"one").await;
    two.ask(b"two").await;
    one.ask(b"").await;
    one.ask(&[7; 60_000]).await;
    assert_eq!(peers.lock().unwrap().len(), 2);
    // Datagrams before the service's address is known keep their order, and so do later ones. If one is lost on a
    // delayed machine, another client tries again.
    soon(async {
        'clients: for port in 3.. {
            let mut client = Client::new(&tunnel, port).await;
            for first in (0..200).step_by(20) {
                if !client.sends_in_order(first..first + 20).await {
                    continue 'clients;
                }
            }
            return;
        }
    })
    .await;
}

#[tokio::test]
async fn a_service_that_does_not_run_ends_the_flow() {
    // The port stays reserved, and its socket is connected to itself, so it refuses all others.
    let held = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = held.local_addr().unwrap().port();
    held.connect(("127.0.0.1", port)).unwrap();
    let (_edge, _connector, tunnel) = with(port).await;
    let mut client = Client::new(&tunnel, 1).await;
    assert_eq!(client.ask_in_vain(b"anybody?").await, FlowEnd::Unreachable);
}

#[tokio::test]
async fn a_flow_on_another_path_keeps_its_socket_and_an_ended_one_does_not() {
    let (port, peers) = udp_echo().await;
    let (_edge, _connector, tunnel) = with(port).await;
    let mut first = Client::new(&tunnel, 1).await;
    first.ask(b"1").await;
    // The same client again, while the former flow runs: the former one ends.
    let mut second = Client::new(&tunnel, 1).await;
    second.ask(b"2").await;
    assert_eq!(first.end().await, FlowEnd::Done);
    // The same after its session was lost.
    second.flow.close(FlowEnd::Detached);
    let mut third = Client::new(&tunnel, 1).await;
    third.ask(b"3").await;
    assert_eq!(peers.lock().unwrap().len(), 1, "the service has seen one peer");
    third.flow.close(FlowEnd::Idle);
    let mut fourth = Client::new(&tunnel, 1).await;
    fourth.ask(b"4").await;
    assert_eq!(peers.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn a_service_at_another_of_its_hosts_addresses_is_found() {
    let socket = UdpSocket::bind("[::1]:0").await.unwrap();
    let (_edge, _connector, tunnel) = with(socket.local_addr().unwrap().port()).await;
    let mut refused = Client::new(&tunnel, 1).await;
    assert_eq!(refused.ask_in_vain(b"?").await, FlowEnd::Unreachable, "nothing listens at 127.0.0.1");
    let again = Client::new(&tunnel, 1).await;
    soon(async {
        let mut datagram = [0; 10];
        loop {
            assert!(again.flow.send(b"!"));
            if let Ok(came) = tokio::time::timeout(LOST_AFTER, socket.recv(&mut datagram)).await {
                return assert_eq!(datagram[..came.unwrap()], *b"!");
            }
        }
    })
    .await;
}
