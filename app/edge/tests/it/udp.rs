//! UDP sockets: flows of datagrams between clients and origins.

use std::{
    collections::HashSet,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use sallyport_model::{AccessRules, Limits, SocketType, TlsMode};
use sallyport_net::UdpPort;
use sallyport_tunnel::{FlowEnd, FlowHandle, FlowHandler, FlowOpen, FlowSink};
use tokio::{net::UdpSocket, sync::Notify};

use crate::harness::*;

/// A connector's flow handler that opens a socket to the origin for each flow.
pub(crate) struct DialUdp(pub(crate) SocketAddr);

struct UdpFlow {
    port: UdpPort,
    origin: SocketAddr,
    flow: Mutex<Option<FlowHandle>>,
    over: Notify,
}

impl FlowHandler for DialUdp {
    fn open(&self, _open: FlowOpen, flow: FlowHandle) -> Arc<dyn FlowSink> {
        let any = if self.0.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = std::net::UdpSocket::bind(any).unwrap();
        socket.connect(self.0).unwrap();
        let port = UdpPort::adopt(socket).unwrap();
        let flow = UdpFlow { port, origin: self.0, flow: Mutex::new(Some(flow)), over: Notify::new() };
        let flow = Arc::new(flow);
        tokio::spawn(carry_back(flow.clone()));
        flow
    }
}

async fn carry_back(flow: Arc<UdpFlow>) {
    loop {
        tokio::select! {
            () = flow.over.notified() => return,
            _ = flow.port.readable() => {}
        }
        let read = flow.port.try_recv(|received| {
            if let Some(flow) = &*flow.flow.lock().unwrap() {
                flow.send_batch(&received.datagrams().collect::<Vec<_>>());
            }
        });
        if read.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
            && let Some(flow) = flow.flow.lock().unwrap().take()
        {
            flow.close(FlowEnd::Unreachable);
            return;
        }
    }
}

impl FlowSink for UdpFlow {
    fn datagrams(&self, batch: &[&[u8]]) {
        self.port.send(self.origin, None, batch);
    }

    fn closed(&self, _end: FlowEnd) {
        self.flow.lock().unwrap().take();
        self.over.notify_one();
    }
}

/// An echo origin that prefixes each datagram with a mark. Returns its address and the set of peer addresses.
async fn echo(mark: &'static str) -> (SocketAddr, Arc<Mutex<HashSet<SocketAddr>>>) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let (addr, peers) = (socket.local_addr().unwrap(), Arc::new(Mutex::new(HashSet::new())));
    let seen = peers.clone();
    tokio::spawn(async move {
        let mut datagram = vec![0; 65_536];
        loop {
            let (n, peer) = socket.recv_from(&mut datagram).await.unwrap();
            seen.lock().unwrap().insert(peer);
            let answer = [mark.as_bytes(), &datagram[..n]].concat();
            let _ = socket.send_to(&answer, peer).await;
        }
    });
    (addr, peers)
}

impl TestSocket {
    /// Makes this a UDP socket with a port of its own.
    pub(crate) fn make_udp(&mut self, world: &World) -> u16 {
        let free = free_port();
        self.route.socket_type = SocketType::Udp;
        self.route.settings.tls_mode = TlsMode::Terminate;
        self.route.port = Some(free);
        world.routes.put(self.route.clone());
        free
    }
}

struct UdpClient(UdpSocket);

impl UdpClient {
    /// A client with a socket that receives datagrams only from this address of the edge.
    async fn new(at: SocketAddr) -> Self {
        let socket = UdpSocket::bind(if at.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" }).await.unwrap();
        socket.connect(at).await.unwrap();
        Self(socket)
    }

    async fn receive_within(&self, time: Duration) -> Option<Vec<u8>> {
        tokio::time::timeout(time, self.receive()).await.ok()
    }

    async fn receive(&self) -> Vec<u8> {
        let mut answer = vec![0; 65_536];
        let n = soon(self.0.recv(&mut answer)).await.unwrap();
        answer.truncate(n);
        answer
    }

    /// Sends a datagram and returns the response. The client repeats only after a long pause: a duplicate response
    /// would pass for the next one. A datagram after a response also proves the client's address.
    async fn ask(&self, question: &[u8]) -> Vec<u8> {
        self.ask_every(Duration::from_secs(5), question).await
    }

    /// Sends a datagram repeatedly until a response comes. Use it while the flow still looks for its origin.
    async fn ask_often(&self, question: &[u8]) -> Vec<u8> {
        self.ask_every(Duration::from_millis(100), question).await
    }

    async fn ask_every(&self, pause: Duration, question: &[u8]) -> Vec<u8> {
        soon(async {
            loop {
                // An error belongs to an earlier datagram that found no listener. The port opens a moment after the
                // route.
                let _ = self.0.send(question).await;
                let mut answer = vec![0; 65_536];
                match tokio::time::timeout(pause, self.0.recv(&mut answer)).await {
                    Ok(Ok(n)) => {
                        answer.truncate(n);
                        return answer;
                    }
                    Ok(Err(_)) => tokio::time::sleep(Duration::from_millis(5)).await,
                    Err(_) => {}
                }
            }
        })
        .await
    }
}

/// A large prefix, which makes each response much longer than its request.
const LARGE: &str = match std::str::from_utf8(&[b'x'; 30_000]) {
    Ok(text) => text,
    Err(_) => "",
};

fn at(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}

#[tokio::test]
async fn each_client_has_its_own_flow_and_responses() {
    let world = World::start().await;
    let mut socket = world.socket();
    let port = socket.make_udp(&world);
    let (origin, peers) = echo("> ").await;
    let _connector = world.tunnel(&mut socket, origin).await;
    let (one, other) = (UdpClient::new(at(port)).await, UdpClient::new(at(port)).await);
    assert_eq!(one.ask(b"first").await, b"> first");
    assert_eq!(other.ask(b"second").await, b"> second");
    assert_eq!(one.ask(b"third").await, b"> third");
    assert_eq!(peers.lock().unwrap().len(), 2);
    let metrics = world.edge.metrics_text().unwrap();
    assert!(metrics.contains("sallyport_edge_udp_flows 2"), "{metrics}");
}

#[tokio::test]
async fn datagrams_of_every_size_pass_whole_and_in_order() {
    let world = World::start().await;
    let mut socket = world.socket();
    let port = socket.make_udp(&world);
    let (origin, _) = echo("").await;
    let _connector = world.tunnel(&mut socket, origin).await;
    let client = UdpClient::new(at(port)).await;
    // The second datagram proves the client's address.
    assert_eq!(client.ask(b"1").await, b"1");
    assert_eq!(client.ask(b"2").await, b"2");
    for len in [1, 0, 1_200, 1_453, 9_000, 60_000] {
        let question: Vec<u8> = (0..len).map(|n| (n % 251) as u8).collect();
        assert!(client.ask(&question).await == question, "{len}");
    }
    // Each round sends few datagrams, so that none is lost. Datagrams may still expire when the machine stalls.
    let (mut first, mut came, mut last) = (0_u32, 0, None);
    while came < 1_000 {
        for number in first..first + 8 {
            client.0.send(&number.to_be_bytes()).await.unwrap();
        }
        while last != Some(first + 7) {
            let Some(answer) = client.receive_within(Duration::from_secs(1)).await else { break };
            let number = u32::from_be_bytes(answer.try_into().unwrap());
            assert!(last.is_none_or(|last| last < number) && number < first + 8, "{number} after {last:?}");
            (came, last) = (came + 1, Some(number));
        }
        first += 8;
        assert!(first < 8_000, "only {came} of {first} came");
    }
}

#[tokio::test]
async fn a_flow_moves_to_another_origin_when_its_tunnel_is_lost() {
    let world = World::start().await;
    let mut socket = world.socket();
    let port = socket.make_udp(&world);
    let (one, _) = echo("one ").await;
    let first = world.tunnel(&mut socket, one).await;
    let client = UdpClient::new(at(port)).await;
    assert_eq!(client.ask(b"x").await, b"one x");
    let (two, _) = echo("two ").await;
    let _second = world.tunnel(&mut socket, two).await;
    assert_eq!(client.ask(b"y").await, b"one y", "a flow stays where it is");
    first.kill();
    assert_eq!(client.ask_often(b"z").await, b"two z");
}

#[tokio::test]
async fn an_origin_without_a_listener_is_skipped() {
    let world = World::start().await;
    let mut socket = world.socket();
    let port = socket.make_udp(&world);
    let _dead = world.tunnel(&mut socket, dead_origin()).await;
    let (alive, _) = echo("alive ").await;
    let _alive = world.tunnel(&mut socket, alive).await;
    for _ in 0..4 {
        assert_eq!(UdpClient::new(at(port)).await.ask_often(b"x").await, b"alive x");
    }
}

#[tokio::test]
async fn datagrams_wait_briefly_for_a_tunnel() {
    let world = World::start().await;
    let mut socket = world.socket();
    let port = socket.make_udp(&world);
    let tunnel = world.new_tunnel(&mut socket);
    let client = UdpClient::new(at(port)).await;
    // The port opens a moment after the route. Until then the kernel reports a closed port.
    while !world.edge.metrics_text().unwrap().contains("sallyport_edge_udp_flows 1") {
        let _ = client.0.send(b"early").await;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (origin, _) = echo("").await;
    let _connector = world.connect(tunnel, origin).await;
    assert_eq!(client.receive().await, b"early");
}

#[tokio::test]
async fn a_flood_from_many_addresses_is_bounded_and_does_not_affect_established_flows() {
    let world = World::start().await;
    let mut socket = world.socket();
    let port = socket.make_udp(&world);
    // The origin responds only to real datagrams, so the flows of the flood get no responses.
    let origin = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let addr = origin.local_addr().unwrap();
    tokio::spawn(async move {
        let mut datagram = [0; 2_000];
        loop {
            let Ok((n, peer)) = origin.recv_from(&mut datagram).await else { continue };
            if datagram[..n].starts_with(b"real") {
                let _ = origin.send_to(&datagram[..n], peer).await;
            }
        }
    });
    let _connector = world.tunnel(&mut socket, addr).await;
    let client = UdpClient::new(at(port)).await;
    assert_eq!(client.ask(b"real").await, b"real");
    assert_eq!(client.ask(b"real").await, b"real");
    // One address, with more ports than its limit of flows.
    for _ in 0..3 {
        for chunk in 0..10 {
            let sockets: Vec<_> = (0..150).map(|_| std::net::UdpSocket::bind("127.0.0.2:0").unwrap()).collect();
            for socket in &sockets {
                let _ = socket.send_to(b"flood", at(port));
            }
            drop(sockets);
            assert_eq!(client.ask_often(format!("real {chunk}").as_bytes()).await[..4], *b"real");
        }
    }
    let metrics = world.edge.metrics_text().unwrap();
    let flows = metrics.lines().find_map(|line| line.strip_prefix("sallyport_edge_udp_flows ")).unwrap();
    assert!(flows.parse::<usize>().unwrap() <= 1_025, "{metrics}");
    assert!(metrics.contains(r#"flows_total{transport="udp",verdict="evicted"}"#), "{metrics}");
}

/// An origin that responds to each datagram with a hundred datagrams of 50,000 bytes.
async fn amplifying_origin() -> SocketAddr {
    let origin = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let addr = origin.local_addr().unwrap();
    tokio::spawn(async move {
        let mut datagram = [0; 2_000];
        loop {
            let Ok((_, peer)) = origin.recv_from(&mut datagram).await else { continue };
            for _ in 0..100 {
                let _ = origin.send_to(&[0; 50_000], peer).await;
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
    });
    addr
}

#[tokio::test]
async fn an_unproven_client_gets_a_limited_amount() {
    let world = World::start().await;
    let mut socket = world.socket();
    let port = socket.make_udp(&world);
    let addr = amplifying_origin().await;
    let _connector = world.tunnel(&mut socket, addr).await;
    let client = UdpClient::new(at(port)).await;
    assert_eq!(client.ask(b"?").await.len(), 50_000);
    let dropped = || world.edge.metrics_text().unwrap().contains(r#"datagrams_dropped_total{reason="amplification"}"#);
    until("datagrams to the unvalidated address are dropped", dropped).await;
}

#[tokio::test]
async fn the_amplification_guard_can_be_switched_off() {
    let world = World::start().await;
    let mut socket = world.socket();
    let port = socket.make_udp(&world);
    let addr = amplifying_origin().await;
    let _connector = world.tunnel(&mut socket, addr).await;
    socket.route.settings.amplification_guard = false;
    world.routes.put(socket.route.clone());
    let client = UdpClient::new(at(port)).await;
    assert_eq!(client.ask(b"?").await.len(), 50_000);
    for _ in 1..20 {
        assert_eq!(client.receive().await.len(), 50_000);
    }
    let metrics = world.edge.metrics_text().unwrap();
    assert!(!metrics.contains(r#"reason="amplification""#), "{metrics}");
}

#[tokio::test]
async fn the_amplification_limit_covers_all_flows_of_an_address() {
    let world = World::start().await;
    let (origin, _) = echo(LARGE).await;
    let mut socket = world.socket();
    let port = socket.make_udp(&world);
    let _connector = world.tunnel(&mut socket, origin).await;
    assert_eq!(UdpClient::new(at(port)).await.ask(b"?").await.len(), LARGE.len() + 1);
    // Each client sends one datagram, so no client proves its address. All clients send at once. So even on a slow
    // machine the responses exceed the allowance of the address.
    let mut clients = Vec::new();
    for _ in 0..100 {
        clients.push(UdpClient::new(at(port)).await);
    }
    for client in &clients {
        client.0.send(b"?").await.unwrap();
    }
    until("datagrams are dropped", || {
        world.edge.metrics_text().unwrap().contains(r#"datagrams_dropped_total{reason="amplification"}"#)
    })
    .await;
}

/// An origin that sends without end to each peer.
async fn streaming_origin() -> SocketAddr {
    let origin = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
    let addr = origin.local_addr().unwrap();
    tokio::spawn(async move {
        let mut datagram = [0; 2_000];
        loop {
            let Ok((_, peer)) = origin.recv_from(&mut datagram).await else { continue };
            let origin = origin.clone();
            tokio::spawn(async move {
                loop {
                    let _ = origin.send_to(&[0; 30_000], peer).await;
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            });
        }
    });
    addr
}

#[tokio::test]
async fn a_flooding_socket_does_not_use_up_the_allowance_of_other_sockets() {
    let world = World::start().await;
    let (mut one, mut other) = (world.socket(), world.socket());
    let (flooding, asked) = (one.make_udp(&world), other.make_udp(&world));
    let (stream, (origin, _)) = (streaming_origin().await, echo(&LARGE[..3_000]).await);
    let _connectors = (world.tunnel(&mut one, stream).await, world.tunnel(&mut other, origin).await);
    assert_eq!(UdpClient::new(at(asked)).await.ask(b"?").await.len(), 3_001);
    let victim = UdpClient::new(at(flooding)).await;
    assert_eq!(victim.ask(b"forged").await.len(), 30_000);
    let dropped = r#"datagrams_dropped_total{reason="amplification"}"#;
    until("what is too much is dropped", || world.edge.metrics_text().unwrap().contains(dropped)).await;
    // A stalled machine may lose some datagrams.
    let mut came = 0;
    for _ in 0..30 {
        let client = UdpClient::new(at(asked)).await;
        client.0.send(b"?").await.unwrap();
        came += usize::from(client.receive_within(Duration::from_secs(2)).await.is_some_and(|it| it.len() == 3_001));
    }
    assert!(came > 15, "{came} of 30 answers came");
}

#[tokio::test]
async fn unproven_flows_are_evicted_at_the_limit_and_denied_clients_use_no_flow() {
    let world = World::start().await;
    let mut socket = world.socket();
    let port = socket.make_udp(&world);
    let (origin, _) = echo("").await;
    let _connector = world.tunnel(&mut socket, origin).await;
    socket.route.settings.limits = Limits { max_connections: Some(2), queue: Some(5), ..Limits::default() };
    socket.route.settings.access = AccessRules { deny: vec!["127.0.0.9".into()], ..AccessRules::default() };
    world.routes.put(socket.route.clone());
    let established = UdpClient::new(at(port)).await;
    assert_eq!(established.ask(b"1").await, b"1");
    assert_eq!(established.ask(b"2").await, b"2");
    for last in 2..6 {
        let stranger = std::net::UdpSocket::bind((IpAddr::from([127, 0, 0, last]), 0)).unwrap();
        stranger.send_to(b"forged", at(port)).unwrap();
    }
    let client = UdpClient::new(at(port)).await;
    assert_eq!(client.ask(b"asked").await, b"asked");
    let denied = std::net::UdpSocket::bind("127.0.0.9:0").unwrap();
    (0..10).for_each(|_| drop(denied.send_to(b"denied", at(port))));
    assert_eq!(client.ask(b"again").await, b"again");
    assert_eq!(established.ask(b"still").await, b"still");
    // Both flows are proven now, so neither can be evicted.
    let late = UdpClient::new(at(port)).await;
    late.0.send(b"late").await.unwrap();
    let limited = r#"flows_total{transport="udp",verdict="limited"}"#;
    until("the late one is refused", || world.edge.metrics_text().unwrap().contains(limited)).await;
    let metrics = world.edge.metrics_text().unwrap();
    assert!(metrics.contains(r#"verdict="evicted"} 4"#), "{metrics}");
}

#[tokio::test]
async fn an_idle_flow_ends() {
    let world = World::start_with(|config| config.udp_idle_timeout = Duration::from_millis(500)).await;
    let mut socket = world.socket();
    let port = socket.make_udp(&world);
    let (origin, peers) = echo("").await;
    let _connector = world.tunnel(&mut socket, origin).await;
    let client = UdpClient::new(at(port)).await;
    assert_eq!(client.ask(b"x").await, b"x");
    let ended = r#"flows_total{transport="udp",verdict="complete"} 1"#;
    until("the flow has ended", || {
        let metrics = world.edge.metrics_text().unwrap();
        metrics.contains(ended) && metrics.contains("sallyport_edge_udp_flows 0")
    })
    .await;
    assert_eq!(client.ask(b"y").await, b"y");
    assert_eq!(peers.lock().unwrap().len(), 2, "the connector's socket ended with it");
}

#[tokio::test]
async fn kernel_drops_and_tunnel_datagrams_are_counted() {
    let world = World::start().await;
    let mut socket = world.socket();
    let port = socket.make_udp(&world);
    let (origin, _) = echo("").await;
    let _connector = world.tunnel(&mut socket, origin).await;
    let client = UdpClient::new(at(port)).await;
    assert_eq!(client.ask(b"x").await, b"x");
    // The edge runs on this thread as well, and reads nothing meanwhile.
    let stranger = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    (0..1_000).for_each(|_| drop(stranger.send_to(&[0; 60_000], at(port))));
    let metrics = world.edge.metrics_text().unwrap();
    let count = |name: &str| {
        let line = metrics.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("{name}: {metrics}")).trim().parse::<u64>().unwrap()
    };
    assert!((500..1_000).contains(&count(r#"sallyport_edge_datagrams_dropped_total{reason="kernel"}"#)));
    assert!(count("sallyport_edge_tunnel_datagrams_sent_total") >= 1);
    assert!(count("sallyport_edge_tunnel_datagrams_received_total") >= 1);
    assert_eq!(count(r#"sallyport_edge_tunnel_datagrams_dropped_total{reason="full"}"#), 0);
}

#[tokio::test]
async fn flows_end_when_their_socket_is_removed() {
    let world = World::start().await;
    let mut socket = world.socket();
    let port = socket.make_udp(&world);
    let (origin, _) = echo("").await;
    let connector = world.tunnel(&mut socket, origin).await;
    let client = UdpClient::new(at(port)).await;
    assert_eq!(client.ask(b"x").await, b"x");
    world.routes.remove(socket.route.id);
    until("its flows end with the socket", || {
        world.edge.metrics_text().unwrap().contains("sallyport_edge_udp_flows 0")
    })
    .await;
    drop(connector);
}

/// Counts the stalls of the thread that runs the edge and its connector. A stall counts if datagrams in a tunnel may
/// expire during it.
fn count_stalls() -> Arc<AtomicUsize> {
    const STEP: Duration = Duration::from_millis(10);
    let times = Arc::new(AtomicUsize::new(0));
    let count = times.clone();
    tokio::spawn(async move {
        loop {
            let began = Instant::now();
            tokio::time::sleep(STEP).await;
            if began.elapsed() > STEP + Duration::from_millis(50) {
                count.fetch_add(1, Ordering::SeqCst);
            }
        }
    });
    times
}

#[tokio::test]
async fn a_flow_survives_a_takeover_by_another_edge() {
    let world = World::start().await;
    let mut socket = world.socket();
    let port = socket.make_udp(&world);
    let (origin, _) = echo("").await;
    let _connector = world.tunnel(&mut socket, origin).await;
    let client = Arc::new(UdpClient::new(at(port)).await);
    assert_eq!(client.ask(b"here").await, b"here");
    assert_eq!(client.ask(b"here").await, b"here");
    let held_up = count_stalls();
    // Sixty datagrams a second, for eight seconds.
    let numbers = 0..480_u32;
    let sender = tokio::spawn({
        let (client, numbers) = (client.clone(), numbers.clone());
        async move {
            for number in numbers {
                client.0.send(&number.to_be_bytes()).await.unwrap();
                tokio::time::sleep(Duration::from_millis(16)).await;
            }
        }
    });
    tokio::time::sleep(Duration::from_millis(500)).await;
    let next = world.successor().await;
    let mut came = HashSet::new();
    while came.len() < numbers.len() {
        let Some(answer) = client.receive_within(Duration::from_secs(3)).await else {
            assert!(sender.is_finished(), "silence after {} answers", came.len());
            break;
        };
        assert!(came.insert(u32::from_be_bytes(answer.try_into().unwrap())), "answered once");
    }
    soon(sender).await.unwrap();
    // Datagrams on the way may expire during a stall, in both directions.
    let lost = numbers.len() - came.len();
    let held_up = held_up.load(Ordering::SeqCst);
    assert!(lost <= held_up * 8, "{lost} were lost, and the machine was held up {held_up} times");
    soon(world.stop()).await;
    assert_eq!(client.ask(b"still here").await, b"still here");
    // The successor serves flows that start after the takeover.
    assert_eq!(UdpClient::new(at(port)).await.ask(b"new").await, b"new");
    let metrics = next.edge.metrics_text().unwrap();
    assert!(metrics.contains("sallyport_edge_udp_flows 2"), "{metrics}");
}
