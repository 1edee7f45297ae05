//! Datagrams: to a service of its own socket for each flow, and back.

use std::{
    collections::HashSet,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use sallyport_tunnel::{FlowEnd, FlowHandle, FlowOpen, FlowSink, OpenFlowError, TunnelHandle};
use tokio::{net::UdpSocket, sync::mpsc};

use crate::lab::*;

/// What came back, and the end.
enum Heard {
    Datagram(Vec<u8>),
    Closed(FlowEnd),
}

struct Client {
    flow: FlowHandle,
    heard: mpsc::UnboundedReceiver<Heard>,
}

struct Ear(mpsc::UnboundedSender<Heard>);

impl FlowSink for Ear {
    fn datagrams(&self, batch: &[&[u8]]) {
        for datagram in batch {
            let _ = self.0.send(Heard::Datagram(datagram.to_vec()));
        }
    }

    fn closed(&self, end: FlowEnd) {
        let _ = self.0.send(Heard::Closed(end));
    }
}

impl Client {
    /// A flow of the client with this port.
    async fn new(tunnel: &TunnelHandle, port: u16) -> Self {
        let open = FlowOpen {
            tunnel: tunnel.tunnel(),
            client: ([198, 51, 100, 1], port).into(),
            destination: ([127, 0, 0, 1], 4_433).into(),
            opened_at_us: 1_700_000_000_000_000,
        };
        let (ear, heard) = mpsc::unbounded_channel();
        let ear = Arc::new(Ear(ear));
        let flow = soon(async {
            loop {
                match tunnel.open_flow(open, ear.clone()) {
                    Ok(flow) => return flow,
                    // The connection for datagrams comes a moment after the tunnel.
                    Err(OpenFlowError::NotReady) => tokio::time::sleep(Duration::from_millis(5)).await,
                    Err(error) => panic!("{error}"),
                }
            }
        })
        .await;
        Self { flow, heard }
    }

    async fn hear(&mut self) -> Vec<u8> {
        match soon(self.heard.recv()).await.unwrap() {
            Heard::Datagram(datagram) => datagram,
            Heard::Closed(end) => panic!("closed: {}", end.as_str()),
        }
    }

    async fn end(&mut self) -> FlowEnd {
        loop {
            if let Heard::Closed(end) = soon(self.heard.recv()).await.unwrap() {
                return end;
            }
        }
    }

    async fn ask(&mut self, question: &[u8]) -> Vec<u8> {
        assert!(self.flow.send(question));
        self.hear().await
    }
}

/// A service that answers with what came; and everybody who spoke to it.
async fn udp_echo() -> (u16, Arc<Mutex<HashSet<SocketAddr>>>) {
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
    assert_eq!(one.ask(b"one").await, b"one");
    assert_eq!(two.ask(b"two").await, b"two");
    assert_eq!(one.ask(b"").await, b"");
    assert_eq!(one.ask(&[7; 60_000]).await.len(), 60_000);
    assert_eq!(peers.lock().unwrap().len(), 2);
    // What is sent before the service's address is known keeps its order, and so does what follows.
    let mut three = Client::new(&tunnel, 3).await;
    for number in 0..200_u8 {
        assert!(three.flow.send(&[number]));
        if number % 20 == 19 {
            for expected in number - 19..=number {
                assert_eq!(three.hear().await, [expected]);
            }
        }
    }
}

#[tokio::test]
async fn a_service_that_does_not_run_ends_the_flow() {
    // Nobody else gets this port, and its socket hears itself alone: to all others nobody is there.
    let held = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = held.local_addr().unwrap().port();
    held.connect(("127.0.0.1", port)).unwrap();
    let (_edge, _connector, tunnel) = with(port).await;
    let mut client = Client::new(&tunnel, 1).await;
    assert!(client.flow.send(b"anybody?"));
    assert_eq!(client.end().await, FlowEnd::Unreachable);
}

#[tokio::test]
async fn a_flow_that_comes_another_way_keeps_its_socket_and_one_that_ended_does_not() {
    let (port, peers) = udp_echo().await;
    let (_edge, _connector, tunnel) = with(port).await;
    let mut first = Client::new(&tunnel, 1).await;
    assert_eq!(first.ask(b"1").await, b"1");
    // The same client again, while the former flow still runs: that one is over.
    let mut second = Client::new(&tunnel, 1).await;
    assert_eq!(second.ask(b"2").await, b"2");
    assert_eq!(first.end().await, FlowEnd::Done);
    // And after its way was lost.
    second.flow.close(FlowEnd::Detached);
    let mut third = Client::new(&tunnel, 1).await;
    assert_eq!(third.ask(b"3").await, b"3");
    assert_eq!(peers.lock().unwrap().len(), 1, "the service has seen one peer");
    third.flow.close(FlowEnd::Idle);
    let mut fourth = Client::new(&tunnel, 1).await;
    assert_eq!(fourth.ask(b"4").await, b"4");
    assert_eq!(peers.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn a_service_at_another_of_its_hosts_addresses_is_found() {
    let socket = UdpSocket::bind("[::1]:0").await.unwrap();
    let (_edge, _connector, tunnel) = with(socket.local_addr().unwrap().port()).await;
    let mut refused = Client::new(&tunnel, 1).await;
    assert!(refused.flow.send(b"?"));
    assert_eq!(refused.end().await, FlowEnd::Unreachable, "nobody is at 127.0.0.1");
    let again = Client::new(&tunnel, 1).await;
    assert!(again.flow.send(b"!"));
    let mut datagram = [0; 10];
    assert_eq!(soon(socket.recv(&mut datagram)).await.unwrap(), 1);
}
