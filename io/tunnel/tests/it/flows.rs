//! Flows of datagrams, end to end.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use sallyport_model::TunnelId;
use sallyport_tunnel::{
    BoxFuture, ConnectorEvent, FlowEnd, FlowHandle, FlowHandler, FlowOpen, FlowSink, IncomingStream,
    MAX_DATAGRAM_BYTES, OpenFlowError, OriginHandler, TunnelHandle,
};
use sallyport_wire::{Hello, Join, Open, Refusal, Welcome};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::lab::*;

const UDP: u8 = FIRST_UDP;

fn flow_open(tunnel: TunnelId, port: u16) -> FlowOpen {
    FlowOpen {
        tunnel,
        client: ([198, 51, 100, 7], port).into(),
        destination: "[2001:db8::1]:4433".parse().unwrap(),
        opened_at_us: 1_700_000_000_000_000,
    }
}

/// A client that records its received datagrams.
#[derive(Default)]
struct Client {
    came: Mutex<Vec<Vec<u8>>>,
    end: Mutex<Vec<FlowEnd>>,
}

impl Client {
    fn count(&self) -> usize {
        self.came.lock().unwrap().len()
    }

    fn ends(&self) -> Vec<FlowEnd> {
        self.end.lock().unwrap().clone()
    }
}

impl FlowSink for Client {
    fn datagrams(&self, batch: &[&[u8]]) {
        self.came.lock().unwrap().extend(batch.iter().map(|datagram| datagram.to_vec()));
    }

    fn closed(&self, end: FlowEnd) {
        self.end.lock().unwrap().push(end);
    }
}

/// An origin that echoes datagrams; "bye" makes the origin close the flow. Counts the live flows.
#[derive(Default)]
struct EchoFlows {
    opened: Mutex<Vec<FlowOpen>>,
    ends: Arc<Mutex<Vec<FlowEnd>>>,
    live: Arc<AtomicUsize>,
}

struct EchoFlow {
    flow: Mutex<Option<FlowHandle>>,
    ends: Arc<Mutex<Vec<FlowEnd>>>,
    live: Arc<AtomicUsize>,
}

impl FlowHandler for EchoFlows {
    fn open(&self, open: FlowOpen, flow: FlowHandle) -> Arc<dyn FlowSink> {
        self.opened.lock().unwrap().push(open);
        self.live.fetch_add(1, Ordering::Relaxed);
        Arc::new(EchoFlow { flow: Mutex::new(Some(flow)), ends: self.ends.clone(), live: self.live.clone() })
    }
}

impl FlowSink for EchoFlow {
    fn datagrams(&self, batch: &[&[u8]]) {
        let mut flow = self.flow.lock().unwrap();
        if batch.contains(&&b"bye"[..]) {
            // The client may send "bye" more than once.
            if let Some(flow) = flow.take() {
                flow.close(FlowEnd::Unreachable);
            }
        } else if let Some(flow) = &*flow {
            flow.send_batch(batch);
        }
    }

    fn closed(&self, end: FlowEnd) {
        self.ends.lock().unwrap().push(end);
        self.flow.lock().unwrap().take();
    }
}

impl Drop for EchoFlow {
    fn drop(&mut self) {
        self.live.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Serves flows, and streams as [`echo`] does.
struct Both(Arc<EchoFlows>);

impl OriginHandler for Both {
    fn serve(&self, open: Open, stream: IncomingStream) -> BoxFuture<'static, ()> {
        echo().serve(open, stream)
    }

    fn flows(&self) -> Option<Arc<dyn FlowHandler>> {
        Some(self.0.clone())
    }
}

async fn ready(edge: &Edge, number: u8) -> TunnelHandle {
    let handle = edge.attached(tunnel(number)).await;
    until("the datagram connection is up", || handle.can_open_flow()).await;
    handle
}

/// Sends the question until its answer arrives. The answer to a repeated earlier question does not count. A datagram
/// may be lost, though rarely here.
async fn ask(flow: &FlowHandle, client: &Client, question: &[u8]) {
    until("the answer comes", || {
        assert!(flow.is_open());
        let _ = flow.send(question);
        client.came.lock().unwrap().last().is_some_and(|last| last == question)
    })
    .await;
}

/// Whether more time has passed than a datagram can be in flight. If so, the period starts anew.
fn is_late(since: &mut Instant) -> bool {
    let is_late = since.elapsed() > Duration::from_secs(2);
    if is_late {
        *since = Instant::now();
    }
    is_late
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn datagrams_of_many_clients_come_back_to_each_unchanged() {
    let (edge, origin) = (Edge::new(), Arc::new(EchoFlows::default()));
    let _connector = Connector::start(Tls::to(&edge).await, Arc::new(Both(origin.clone())), &[tunnel(UDP)]);
    let handle = ready(&edge, UDP).await;
    assert!(handle.carries_datagrams());
    let sizes = [0, 1, 512, 1_200, 16_380, 30_000, MAX_DATAGRAM_BYTES];
    let mut flows = Vec::new();
    for number in 0..50_u16 {
        let client = Arc::new(Client::default());
        let flow = handle.open_flow(flow_open(tunnel(UDP), number), client.clone()).unwrap();
        flows.push((flow, client));
    }
    let mut asked = 0;
    for size in sizes {
        let mut ask = |number: usize, flow: &FlowHandle| {
            assert!(flow.send(&vec![number as u8; size]));
            asked += 1;
        };
        flows.iter().enumerate().for_each(|(number, (flow, _))| ask(number, flow));
        // One size after the other, so that no datagram is dropped unless this machine stalls.
        for (number, (flow, client)) in flows.iter().enumerate() {
            let mut since = Instant::now();
            until("answers come", || {
                let is_answered = client.came.lock().unwrap().last().is_some_and(|last| last.len() == size);
                if !is_answered && is_late(&mut since) {
                    ask(number, flow);
                }
                is_answered
            })
            .await;
        }
    }
    assert!(!flows[0].0.send(&vec![0; MAX_DATAGRAM_BYTES + 1]));
    for (number, (_, client)) in flows.iter().enumerate() {
        let mut came = client.came.lock().unwrap().clone();
        // A question that was sent twice may be answered twice.
        came.dedup();
        assert!(came == sizes.map(|size| vec![number as u8; size]));
    }
    assert_eq!((handle.flow_count(), edge.tunnels.stats().flows), (50, 50));
    let stats = handle.datagram_stats();
    assert_eq!((stats.sent + stats.dropped_old, stats.dropped_full), (asked, 0));
    until("all that came is counted", || {
        let came: usize = flows.iter().map(|(_, client)| client.count()).sum();
        handle.datagram_stats().received == came as u64
    })
    .await;
    let opened = origin.opened.lock().unwrap().clone();
    assert_eq!(opened[7], flow_open(tunnel(UDP), 7));
    // Dropping a flow handle closes the flow at both ends; the dropping side gets no further callbacks.
    let (_, clients): (Vec<_>, Vec<_>) = flows.into_iter().unzip();
    until("the origin's flows end", || origin.live.load(Ordering::Relaxed) == 0).await;
    assert_eq!(*origin.ends.lock().unwrap(), [FlowEnd::Done; 50]);
    assert!(clients.iter().all(|client| client.ends().is_empty()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_origin_can_end_a_flow_too() {
    let (edge, origin) = (Edge::new(), Arc::new(EchoFlows::default()));
    let _connector = Connector::start(Arc::new(Pipes::to(&edge)), Arc::new(Both(origin.clone())), &[tunnel(UDP)]);
    let handle = ready(&edge, UDP).await;
    let client = Arc::new(Client::default());
    let flow = handle.open_flow(flow_open(tunnel(UDP), 1), client.clone()).unwrap();
    ask(&flow, &client, b"hello").await;
    assert!(flow.send(b"bye"));
    let mut since = Instant::now();
    until("the client is notified", || {
        if is_late(&mut since) {
            let _ = flow.send(b"bye");
        }
        !client.ends().is_empty()
    })
    .await;
    assert!(!flow.is_open() && !flow.send(b"more"));
    drop(flow);
    assert_eq!(client.ends(), [FlowEnd::Unreachable]);
    until("the origin has let go of it", || origin.live.load(Ordering::Relaxed) == 0).await;
    assert!(origin.ends.lock().unwrap().is_empty(), "the side that ended the flow is not notified");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connector_that_carries_no_datagrams_is_refused_in_words() {
    let edge = Edge::new();
    let mut connector = Connector::start(Arc::new(Pipes::to(&edge)), echo(), &[tunnel(UDP), tunnel(1)]);
    let refusal = connector
        .event(|event| match event {
            ConnectorEvent::NotAttached { tunnel: of, refusal } if *of == tunnel(UDP) => Some(refusal.clone()),
            _ => None,
        })
        .await;
    assert_eq!((refusal.code.as_str(), refusal.retry), ("no-datagrams", false));
    assert!(refusal.message.contains("update the connector"), "{refusal}");
    let handle = edge.attached(tunnel(1)).await;
    let opened = handle.open_flow(flow_open(tunnel(1), 1), Arc::new(Client::default()));
    assert_eq!(opened.unwrap_err(), OpenFlowError::NotUsable);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flows_end_with_their_tunnel_and_those_of_others_do_not() {
    let (edge, origin) = (Edge::new(), Arc::new(EchoFlows::default()));
    let tunnels = [tunnel(UDP), tunnel(UDP + 1)];
    let _connector = Connector::start(Arc::new(Pipes::to(&edge)), Arc::new(Both(origin.clone())), &tunnels);
    let (one, other) = (ready(&edge, UDP).await, ready(&edge, UDP + 1).await);
    let clients = [Arc::new(Client::default()), Arc::new(Client::default())];
    let gone = one.open_flow(flow_open(tunnel(UDP), 1), clients[0].clone()).unwrap();
    let stays = other.open_flow(flow_open(tunnel(UDP + 1), 2), clients[1].clone()).unwrap();
    ask(&gone, &clients[0], b"one").await;
    ask(&stays, &clients[1], b"two").await;
    edge.tunnels.detach(tunnel(UDP), "deleted", "the tunnel was deleted");
    assert_eq!(clients[0].ends(), [FlowEnd::Detached]);
    assert!(!gone.send(b"more"));
    until("the origin is notified", || *origin.ends.lock().unwrap() == [FlowEnd::Detached]).await;
    let again = one.open_flow(flow_open(tunnel(UDP), 3), clients[0].clone());
    assert_eq!(again.unwrap_err(), OpenFlowError::NotUsable);
    ask(&stays, &clients[1], b"three").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_takeover_moves_flows_to_the_new_session() {
    let edge = Edge::new();
    let start = || {
        let origin = Arc::new(EchoFlows::default());
        (Connector::start(Arc::new(Pipes::to(&edge)), Arc::new(Both(origin.clone())), &[tunnel(UDP)]), origin)
    };
    let _first = start();
    let former = ready(&edge, UDP).await;
    let client = Arc::new(Client::default());
    let flow = former.open_flow(flow_open(tunnel(UDP), 1), client.clone()).unwrap();
    ask(&flow, &client, b"one").await;
    let (_second, origin) = start();
    until("the client is notified", || client.ends() == [FlowEnd::Detached]).await;
    let handle = ready(&edge, UDP).await;
    assert_ne!(handle.session(), former.session());
    let flow = handle.open_flow(flow_open(tunnel(UDP), 1), client.clone()).unwrap();
    ask(&flow, &client, b"two").await;
    assert_eq!(origin.opened.lock().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flows_are_lost_with_the_session_and_come_back_with_the_next() {
    let (edge, origin) = (Edge::new(), Arc::new(EchoFlows::default()));
    let dial = Pipes::to(&edge);
    let connector = Connector::start(Arc::new(dial.clone()), Arc::new(Both(origin.clone())), &[tunnel(UDP)]);
    let handle = ready(&edge, UDP).await;
    let client = Arc::new(Client::default());
    let flow = handle.open_flow(flow_open(tunnel(UDP), 1), client.clone()).unwrap();
    ask(&flow, &client, b"one").await;
    connector.ask_to_stop();
    until("the client is notified", || !client.ends().is_empty()).await;
    assert!(!flow.is_open() && !handle.can_open_flow());
    until("so does the origin", || origin.live.load(Ordering::Relaxed) == 0).await;
    let _connector = Connector::start(Arc::new(dial), Arc::new(Both(origin.clone())), &[tunnel(UDP)]);
    let handle = ready(&edge, UDP).await;
    let flow = handle.open_flow(flow_open(tunnel(UDP), 1), client.clone()).unwrap();
    ask(&flow, &client, b"two").await;
}

/// A connector built by hand: the control connection with a tunnel attached, and the joining of other connections to
/// its session.
async fn by_hand(edge: &Edge, number: u8) -> (tokio::io::DuplexStream, Join) {
    let (mut control, far) = tokio::io::duplex(64 * 1024);
    let tunnels = edge.tunnels.clone();
    tokio::spawn(async move { tunnels.serve_carrier(far, peer()).await });
    let mut frames = Vec::new();
    let features = vec!["datagrams".to_owned(), "a-later-one".to_owned()];
    Hello { versions: vec![1], agent: "raw/1".into(), connector: [3; 16], max_legs: 0, features, host: None }
        .encode(&mut frames);
    control.write_all(&frames).await.unwrap();
    let mut header = [0; 4];
    soon(control.read_exact(&mut header)).await.unwrap();
    assert_eq!(header[0], 2, "WELCOME");
    let mut payload = vec![0; usize::from(header[2]) * 256 + usize::from(header[3])];
    soon(control.read_exact(&mut payload)).await.unwrap();
    let welcome = Welcome::decode(&payload).unwrap();
    assert_eq!(welcome.max_streams, 1_024, "it does not know of first windows");
    let mut frames = Vec::new();
    let credential = "open sesame".to_owned();
    sallyport_wire::Attach {
        tunnel: tunnel(number),
        credential,
        request_log: false,
        home: None,
        origin: None,
        spread: false,
    }
    .encode(&mut frames);
    control.write_all(&frames).await.unwrap();
    edge.attached(tunnel(number)).await;
    (control, Join { session: welcome.session, leg_secret: welcome.leg_secret })
}

async fn join(edge: &Edge, join: &Join) -> tokio::io::DuplexStream {
    let (mut near, far) = tokio::io::duplex(4 * 1024);
    let tunnels = edge.tunnels.clone();
    tokio::spawn(async move { tunnels.serve_carrier(far, peer()).await });
    let mut frame = Vec::new();
    join.encode_datagrams(&mut frame);
    near.write_all(&frame).await.unwrap();
    near
}

async fn refusal(mut leg: tokio::io::DuplexStream) -> Refusal {
    let mut all = Vec::new();
    soon(leg.read_to_end(&mut all)).await.unwrap();
    assert_eq!(all[0], 3, "REFUSED");
    Refusal::decode(&all[4..]).unwrap()
}

#[tokio::test]
async fn a_datagram_connection_needs_the_secret_and_a_tunnel_for_datagrams() {
    let edge = Edge::new();
    let (_control, good) = by_hand(&edge, UDP).await;
    let bad = Join { leg_secret: [0; 32], ..good };
    assert_eq!(refusal(join(&edge, &bad).await).await.code, "protocol");
    let (_other, streams_only) = by_hand(&edge, 1).await;
    assert_eq!(refusal(join(&edge, &streams_only).await).await.code, "nothing-attached");
    let handle = edge.attached(tunnel(UDP)).await;
    let opened = handle.open_flow(flow_open(tunnel(UDP), 1), Arc::new(Client::default()));
    assert_eq!(opened.unwrap_err(), OpenFlowError::NotReady);
    // A second connection replaces the first, and the flows of the first are lost.
    let mut first = join(&edge, &good).await;
    until("it is up", || handle.can_open_flow()).await;
    let client = Arc::new(Client::default());
    let _flow = handle.open_flow(flow_open(tunnel(UDP), 1), client.clone()).unwrap();
    let _second = join(&edge, &good).await;
    until("the first one is given up", || client.ends() == [FlowEnd::Lost]).await;
    soon(first.read_to_end(&mut Vec::new())).await.unwrap();
    assert!(handle.can_open_flow());
}

#[tokio::test]
async fn what_breaks_the_rules_ends_the_flows_and_not_the_session() {
    let edge = Edge::new();
    let (_control, good) = by_hand(&edge, UDP).await;
    let mut leg = join(&edge, &good).await;
    let handle = edge.attached(tunnel(UDP)).await;
    until("it is up", || handle.can_open_flow()).await;
    let client = Arc::new(Client::default());
    let _flow = handle.open_flow(flow_open(tunnel(UDP), 1), client.clone()).unwrap();
    leg.write_all(&[0x31, 0, 0, 5, 0, 0, 0, 9, b'!']).await.unwrap();
    until("its flows end", || client.ends() == [FlowEnd::Lost]).await;
    assert!(handle.is_usable() && !handle.can_open_flow());
}

#[tokio::test]
async fn a_stalled_connection_drops_datagrams_and_delays_no_other() {
    let edge = Edge::new();
    let (_control, good) = by_hand(&edge, UDP).await;
    let mut leg = join(&edge, &good).await;
    let handle = edge.attached(tunnel(UDP)).await;
    until("it is up", || handle.can_open_flow()).await;
    let flow = handle.open_flow(flow_open(tunnel(UDP), 1), Arc::new(Client::default())).unwrap();
    for number in 0..20_000_u32 {
        let mut datagram = [0; 1_200];
        datagram[..4].copy_from_slice(&number.to_be_bytes());
        assert!(flow.send(&datagram));
        if number % 1_000 == 0 {
            tokio::task::yield_now().await;
        }
    }
    let stats = handle.datagram_stats();
    assert!(stats.dropped_full > 18_000, "{stats:?}");
    // When the leg reads again, new datagrams get through, and old ones are dropped.
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(flow.send(b"fresh"));
    let mut came = Vec::new();
    while !came.ends_with(b"fresh") {
        match tokio::time::timeout(Duration::from_secs(2), leg.read_buf(&mut came)).await {
            Ok(read) => assert!(read.unwrap() > 0),
            // This machine stalled, and the datagram expired.
            Err(_) => assert!(flow.send(b"fresh")),
        }
    }
    assert!(came.len() < 200_000, "{} bytes", came.len());
    assert!(handle.datagram_stats().dropped_old > 500, "{:?}", handle.datagram_stats());
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_takes_nothing_for_long_is_given_up() {
    let edge = Edge::new();
    let (_control, good) = by_hand(&edge, UDP).await;
    let _leg = join(&edge, &good).await;
    let handle = edge.attached(tunnel(UDP)).await;
    until("it is up", || handle.can_open_flow()).await;
    let client = Arc::new(Client::default());
    let flow = handle.open_flow(flow_open(tunnel(UDP), 1), client.clone()).unwrap();
    assert!(flow.send(&[1; 60_000]));
    until("it is given up", || client.ends() == [FlowEnd::Lost]).await;
    assert!(!flow.send(b"more"));
}
