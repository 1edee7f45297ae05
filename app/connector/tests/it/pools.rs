//! Services with a pool of addresses.

use std::{
    collections::{HashMap, HashSet},
    net::SocketAddr,
    time::Duration,
};

use sallyport_connector::{
    ClientAffinity, ConnectorEvent, ConnectorOptions, Endpoint, OriginPool, Service, StreamCounts,
};
use sallyport_model::OriginAddr;
use sallyport_tunnel::FlowEnd;
use sallyport_wire::{FailureReason, Open, OpenFailure, StreamProtocol};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
};

use crate::{
    flows::{Client, udp_echo},
    lab::*,
};

fn at(port: u16) -> OriginAddr {
    OriginAddr { host: "127.0.0.1".into(), port }
}

fn ready(ports: &[u16]) -> Vec<Endpoint> {
    ports.iter().map(|port| Endpoint::ready(at(*port))).collect()
}

/// A service that says its port, and then echoes until the end.
async fn named() -> u16 {
    service(|mut stream: TcpStream| async move {
        let port = stream.local_addr().unwrap().port();
        if stream.write_all(&port.to_be_bytes()).await.is_ok() {
            echo(stream).await;
        }
    })
    .await
}

/// A port that is bound but not listening, so that it refuses connections and stays reserved.
fn refusing() -> (TcpSocket, u16) {
    let held = TcpSocket::new_v4().unwrap();
    held.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let port = held.local_addr().unwrap().port();
    (held, port)
}

struct World {
    edge: Edge,
    connector: Connector,
    pool: OriginPool,
}

impl World {
    async fn new(endpoints: Vec<Endpoint>) -> Self {
        Self::with(endpoints, &ClientAffinity::None, Duration::from_secs(30), false).await
    }

    async fn with(
        endpoints: Vec<Endpoint>,
        affinity: &ClientAffinity,
        connect_timeout: Duration,
        datagrams: bool,
    ) -> Self {
        let edge = Edge::start_for(datagrams).await;
        let pool = OriginPool::new(endpoints, affinity).unwrap();
        let services = vec![Service { origin: pool.clone().into(), connect_timeout, ..service_at(0) }];
        let connector = Connector::start(ConnectorOptions { services, ..edge.options(0) });
        assert!(edge.handle().await.spreads_streams(), "the attachment says so");
        Self { edge, connector, pool }
    }

    /// The port of the endpoint that serves a stream of this client; the stream ends in order.
    async fn ask(&self, client: [u8; 4]) -> Result<u16, OpenFailure> {
        let open = Open {
            tunnel: tunnel(),
            protocol: StreamProtocol::Raw,
            client: SocketAddr::from((client, 1_234)),
            destination: None,
            opened_at_us: 1_700_000_000_000_000,
            server_name: "calm.localhost".into(),
        };
        let mut stream = self.edge.handle().await.open(open).unwrap();
        let establishment = stream.establishment();
        let Ok(port) = soon(stream.read_u16()).await else { return Err(soon(establishment.wait()).await.unwrap_err()) };
        stream.write_all(b"over").await.unwrap();
        stream.shutdown().await.unwrap();
        let mut rest = Vec::new();
        soon(stream.read_to_end(&mut rest)).await.unwrap();
        assert_eq!(rest, b"over");
        Ok(port)
    }

    /// How many of so many streams of one client each endpoint gets.
    async fn spread(&self, streams: usize) -> HashMap<u16, usize> {
        let mut counts = HashMap::new();
        for _ in 0..streams {
            *counts.entry(self.ask([198, 51, 100, 1]).await.unwrap()).or_insert(0) += 1;
        }
        counts
    }

    /// The counts of an endpoint, once nothing is active.
    async fn counts(&self, port: u16) -> StreamCounts {
        soon(async {
            loop {
                let status = self.pool.status();
                let found = status.endpoints.iter().find(|one| one.endpoint.address == at(port));
                match found {
                    Some(found) if found.counts.active == 0 => return found.counts,
                    _ => tokio::time::sleep(Duration::from_millis(5)).await,
                }
            }
        })
        .await
    }
}

#[tokio::test]
async fn sixty_streams_over_three_endpoints_are_twenty_each() {
    let ports = [named().await, named().await, named().await];
    let world = World::new(ready(&ports)).await;
    assert_eq!(world.spread(60).await, ports.map(|port| (port, 20)).into());
    for port in ports {
        assert_eq!(world.counts(port).await, StreamCounts { opened: 20, failed: 0, active: 0 });
    }
    assert_eq!(world.pool.status().total, StreamCounts { opened: 60, failed: 0, active: 0 });
}

#[tokio::test]
async fn a_pool_is_replaced_under_open_streams_and_the_tunnel_stays() {
    let (one, two) = (named().await, named().await);
    let mut world = World::new(ready(&[one])).await;
    let mut open = world.edge.open(StreamProtocol::Raw).await;
    assert_eq!(soon(open.read_u16()).await.unwrap(), one);
    world.pool.replace(ready(&[two]), &ClientAffinity::None).unwrap();
    assert_eq!(world.spread(5).await, [(two, 5)].into());
    open.write_all(b"still there").await.unwrap();
    let mut answer = [0; 11];
    soon(open.read_exact(&mut answer)).await.unwrap();
    assert_eq!(&answer, b"still there");
    assert_eq!(world.pool.status().total.active, 1, "the stream of the endpoint that left");
    drop(open);
    // The same again, while streams open and close without a pause.
    let (mut rounds, three) = (0, named().await);
    let asks = async {
        for number in 0..200 {
            world.ask([198, 51, 100, number]).await.unwrap();
        }
    };
    let replaces = async {
        loop {
            rounds += 1;
            let ports = [vec![one, two], vec![three], vec![two, three]];
            world.pool.replace(ready(&ports[rounds % 3]), &ClientAffinity::None).unwrap();
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        () = asks => {}
        () = replaces => {}
    }
    assert!(rounds > 10, "{rounds}");
    let mut attached = 0;
    while let Ok(event) = world.connector.events.try_recv() {
        attached += usize::from(matches!(event, ConnectorEvent::Attached { .. }));
    }
    assert_eq!(attached, 1);
}

#[tokio::test]
async fn an_endpoint_that_refuses_is_skipped_before_the_stream_is_answered() {
    let (good, (_held, bad)) = (named().await, refusing());
    let world = World::new(ready(&[bad, good])).await;
    assert_eq!(world.spread(20).await, [(good, 20)].into());
    let refused = world.counts(bad).await;
    assert!(refused.opened == 0 && (1..=10).contains(&refused.failed), "{refused:?}: not at every turn");
    assert_eq!(world.counts(good).await.opened, 20);
    // Only those that refuse are left: the last failure is the answer.
    let (_other, worse) = refusing();
    world.pool.replace(ready(&[bad, worse]), &ClientAffinity::None).unwrap();
    let failure = world.ask([198, 51, 100, 1]).await.unwrap_err();
    is(&failure, FailureReason::Refused, "nothing listens on 127.0.0.1:");
}

#[tokio::test]
async fn an_endpoint_that_is_silent_leaves_time_for_the_next_one() {
    // A full accept queue, so that the kernel leaves further connections unanswered.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(0).unwrap();
    let silent = listener.local_addr().unwrap();
    let mut waiting = Vec::new();
    while let Ok(Ok(stream)) = tokio::time::timeout(Duration::from_millis(500), TcpStream::connect(silent)).await {
        waiting.push(stream);
    }
    let good = named().await;
    let both = ready(&[silent.port(), good]);
    // Half of the time is for the first attempt.
    let world = World::with(both, &ClientAffinity::None, Duration::from_secs(6), false).await;
    assert_eq!(world.spread(6).await, [(good, 6)].into());
    let failed = world.counts(silent.port()).await.failed;
    assert!((1..=3).contains(&failed), "{failed}");
}

#[tokio::test]
async fn draining_endpoints_serve_only_while_no_ready_one_does() {
    let (old, new) = (named().await, named().await);
    let world = World::new(vec![Endpoint::draining(at(old)), Endpoint::ready(at(new))]).await;
    assert_eq!(world.spread(10).await, [(new, 10)].into());
    world.pool.replace(vec![Endpoint::draining(at(old))], &ClientAffinity::None).unwrap();
    assert_eq!(world.spread(10).await, [(old, 10)].into());
}

#[tokio::test]
async fn a_client_keeps_its_endpoint_at_every_connector() {
    let ports = [named().await, named().await, named().await];
    let affinity = ClientAffinity::Address { key: [3; 16] };
    let time = Duration::from_secs(30);
    let (one, other) = (
        World::with(ready(&ports), &affinity, time, false).await,
        World::with(ready(&ports), &affinity, time, false).await,
    );
    let mut seen = HashSet::new();
    for number in 0..30 {
        let client = [198, 51, 100, number];
        let port = one.ask(client).await.unwrap();
        assert_eq!(one.ask(client).await.unwrap(), port);
        assert_eq!(other.ask(client).await.unwrap(), port);
        seen.insert(port);
    }
    assert_eq!(seen.len(), 3, "clients are spread");
    one.pool.replace(ready(&ports), &ClientAffinity::None).unwrap();
    assert_eq!(one.spread(30).await.len(), 3, "the affinity has ended");
}

#[tokio::test]
async fn an_empty_pool_fails_at_once_with_one_sentence() {
    let world = World::new(Vec::new()).await;
    let failure = world.ask([198, 51, 100, 1]).await.unwrap_err();
    is(&failure, FailureReason::Refused, "the service has no endpoint");
    let port = named().await;
    world.pool.replace(ready(&[port]), &ClientAffinity::None).unwrap();
    assert_eq!(world.spread(2).await, [(port, 2)].into());
    let many = (1..=1_025).map(|port| Endpoint::ready(at(port))).collect();
    let error = world.pool.replace(many, &ClientAffinity::None).unwrap_err();
    assert_eq!(error.to_string(), "a service has at most 1024 endpoints, not 1025");
    assert_eq!(world.spread(2).await, [(port, 2)].into(), "the former pool stays");
}

#[tokio::test]
async fn each_flow_of_datagrams_has_one_endpoint() {
    let ((one, of_one), (two, of_two)) = (udp_echo().await, udp_echo().await);
    let time = Duration::from_secs(10);
    let world = World::with(ready(&[one, two]), &ClientAffinity::None, time, true).await;
    let handle = world.edge.handle().await;
    let mut clients = Vec::new();
    for port in 1..=6 {
        clients.push(Client::new(&handle, port).await);
    }
    for _ in 0..2 {
        for client in &mut clients {
            client.ask(b"hello").await;
        }
    }
    assert_eq!((of_one.lock().unwrap().len(), of_two.lock().unwrap().len()), (3, 3));
    assert_eq!(world.pool.status().total.active, 6);

    // The port stays reserved, and its socket is connected to itself, so it refuses all others.
    let held = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let bad = held.local_addr().unwrap().port();
    held.connect(("127.0.0.1", bad)).unwrap();
    world.pool.replace(vec![Endpoint::ready(at(bad)), Endpoint::draining(at(one))], &ClientAffinity::None).unwrap();
    let mut refused = Client::new(&handle, 100).await;
    assert_eq!(refused.ask_in_vain(b"anybody?").await, FlowEnd::Unreachable);
    Client::new(&handle, 101).await.ask(b"the next flow").await;
    world.pool.replace(Vec::new(), &ClientAffinity::None).unwrap();
    assert_eq!(Client::new(&handle, 102).await.ask_in_vain(b"?").await, FlowEnd::Unreachable);
    for mut client in clients {
        assert_eq!(soon(client.end()).await, FlowEnd::Done, "its endpoint has left");
    }
}
