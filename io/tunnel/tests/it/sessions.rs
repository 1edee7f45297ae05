//! Sessions: attaching, taking over, going away, stopping, and dying.

use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use sallyport_model::{LinkReport, LinkStatus, RequestRecord};
use sallyport_tunnel::{BoxFuture, BoxedCarrier, ConnectorError, ConnectorEvent, Dial, IncomingStream, OpenError};
use sallyport_wire::{LOGGED_PER_SECOND, MAX_LOGGED_BURST};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::lab::*;

#[tokio::test]
async fn a_wrong_credential_ends_the_connector_with_the_edges_words() {
    let edge = Edge::new();
    let mut connector = Connector::start_with(Arc::new(Pipes::to(&edge)), echo(), &[tunnel(1)], |config| {
        config.tunnels[0].credential = "guess".into();
    });
    let error = soon(&mut connector.task).await.unwrap().unwrap_err();
    assert!(matches!(&error, ConnectorError::Refused(refusal) if refusal.code == "bad-credential"), "{error}");
    assert!(error.to_string().contains("the credential is wrong"));
    assert!(edge.handle(tunnel(1)).is_none());
    until("the session ends", || edge.tunnels.stats().sessions == 0).await;
}

#[tokio::test]
async fn one_session_holds_many_tunnels_and_tells_of_requests() {
    let edge = Edge::new();
    let mut connector = Connector::start(Arc::new(Pipes::to(&edge)), echo(), &[tunnel(1), tunnel(2), tunnel(3)]);
    for number in 1..=3 {
        let handle = edge.attached(tunnel(number)).await;
        assert_eq!(handle.agent(), "test/1");
        assert_eq!(handle.connector_addr(), peer());
    }
    assert_eq!((edge.tunnels.stats().sessions, edge.tunnels.stats().tunnels), (1, 3));
    let record = RequestRecord {
        at_ms: 1,
        request_id: "r-1".into(),
        method: "GET".into(),
        target: "/".into(),
        version: "HTTP/1.1".into(),
        status: 200,
        bytes_in: 0,
        bytes_out: 5,
        duration_us: 12,
        client: peer(),
        tunnel: None,
        omitted_before: 0,
        identity: None,
        rule: None,
        refused: None,
    };
    edge.handle(tunnel(2)).unwrap().send_request_log(&record);
    let records = connector.event(|event| match event {
        ConnectorEvent::Request(record) => Some(record.clone()),
        _ => None,
    });
    assert_eq!(records.await, record);
}

/// A dialer with links.
struct Linked {
    pipes: Pipes,
    links: Arc<Mutex<Vec<LinkReport>>>,
}

impl Dial for Linked {
    fn dial(&self) -> BoxFuture<'static, io::Result<BoxedCarrier>> {
        self.pipes.dial()
    }

    fn links(&self) -> BoxFuture<'static, Vec<LinkReport>> {
        Box::pin(std::future::ready(self.links.lock().unwrap().clone()))
    }
}

#[tokio::test]
async fn the_edge_learns_of_the_links_of_a_connector_and_of_their_changes() {
    let link = |name: &str, status, bytes_sent| LinkReport {
        name: name.to_owned(),
        local: None,
        status,
        rtt_us: Some(20_000),
        loss_permille: None,
        bytes_sent,
        bytes_received: 7,
        path_mtu_bytes: Some(1_500),
        header_bytes: Some(52),
        is_metered: false,
        is_standby: false,
    };
    let edge = Edge::new();
    let links = Arc::new(Mutex::new(vec![link("eth0", LinkStatus::Up, 1_000)]));
    let dial = Linked { pipes: Pipes::to(&edge), links: links.clone() };
    let connector = Connector::start_with(Arc::new(dial), echo(), &[tunnel(1), tunnel(2)], |config| {
        config.link_report_interval = Duration::from_millis(10);
    });
    let handle = edge.attached(tunnel(2)).await;
    until("the links are reported", || handle.links()[..] == links.lock().unwrap()[..]).await;
    *links.lock().unwrap() = vec![link("eth0", LinkStatus::Silent, 1_500), link("wwan0", LinkStatus::Up, 400)];
    until("the change is reported", || handle.links()[..] == links.lock().unwrap()[..]).await;
    let stats = edge.tunnels.stats();
    assert_eq!((stats.links, stats.link_bytes), ([1, 1, 0, 0], (1_900, 14)));
    connector.task.abort();
    until("the session ends", || edge.tunnels.stats().links == [0; 4]).await;
    assert_eq!(edge.tunnels.stats().link_bytes, (1_900, 14), "counts remain");
}

#[tokio::test]
async fn all_tunnels_of_a_session_together_log_as_often_as_one() {
    let edge = Edge::new();
    let tunnels: Vec<_> = (1..=4).map(tunnel).collect();
    let _connector = Connector::start(Arc::new(Pipes::to(&edge)), echo(), &tunnels);
    log_as_often_as_one(&edge).await;
}

#[tokio::test]
async fn all_connectors_of_a_socket_together_log_as_often_as_one() {
    let edge = Edge::new();
    let _connectors =
        [1, 2, 3, 4].map(|number| Connector::start(Arc::new(Pipes::to(&edge)), echo(), &[tunnel(number)]));
    log_as_often_as_one(&edge).await;
    assert_eq!(edge.tunnels.stats().sessions, 4);
}

/// Attaches the first four tunnels and checks that together they log as many requests as one.
async fn log_as_often_as_one(edge: &Edge) {
    let mut handles = Vec::new();
    for number in 1..=4 {
        handles.push(edge.attached(tunnel(number)).await);
    }
    let asked = Instant::now();
    let records: Vec<u32> =
        handles.iter().map(|handle| (0..1_000).map(|_| u32::from(handle.request_log_turn().is_some())).sum()).collect();
    // Turns that accrued during the loop, and each tunnel's own turns of every second.
    let seconds = u32::try_from(asked.elapsed().as_secs() + 1).unwrap();
    let bound = MAX_LOGGED_BURST + seconds * (LOGGED_PER_SECOND + 4);
    assert!(records.iter().sum::<u32>() <= bound, "{records:?} in {seconds} s");
    assert!(records.iter().all(|records| *records > 0), "the first leaves the others something: {records:?}");
}

#[tokio::test]
async fn a_second_connector_takes_the_tunnel_over_while_the_firsts_streams_finish() {
    let edge = Edge::new();
    let mut first = Connector::start(Arc::new(Pipes::to(&edge)), echo(), &[tunnel(1)]);
    let old = edge.ready(tunnel(1)).await;
    let mut running = old.open(open_for(tunnel(1))).unwrap();
    running.write_all(b"before").await.unwrap();
    let mut received = [0; 6];
    soon(running.read_exact(&mut received)).await.unwrap();

    let second = Connector::start(Arc::new(Pipes::to(&edge)), echo(), &[tunnel(1)]);
    until("the second takes over", || edge.handle(tunnel(1)).is_some_and(|new| new.session() != old.session())).await;
    assert!(!old.is_usable());
    assert_eq!(old.open(open_for(tunnel(1))).unwrap_err(), OpenError::NotUsable);
    let log = edge.doorman.log.lock().unwrap().clone();
    let words: Vec<_> = log.iter().map(|(_, _, word)| word.as_str()).collect();
    assert_eq!(words, ["attached", "attached", "replaced"], "never without a tunnel in between");

    running.write_all(b"after!").await.unwrap();
    soon(running.read_exact(&mut received)).await.unwrap();
    assert_eq!(&received, b"after!");
    drop(running);
    let error = soon(&mut first.task).await.unwrap().unwrap_err();
    assert!(matches!(&error, ConnectorError::Detached { code, .. } if code == "replaced"), "{error}");
    let new = edge.handle(tunnel(1)).unwrap();
    assert_eq!(soon(exchange(new.open(open_for(tunnel(1))).unwrap(), b"hello")).await.unwrap(), b"hello");
    drop(second);
}

#[tokio::test]
async fn a_deleted_tunnel_is_taken_from_its_connector() {
    let edge = Edge::new();
    let mut connector = Connector::start(Arc::new(Pipes::to(&edge)), echo(), &[tunnel(1), tunnel(2)]);
    edge.attached(tunnel(1)).await;
    edge.attached(tunnel(2)).await;
    edge.tunnels.detach(tunnel(1), "deleted", "its socket was deleted");
    assert!(edge.handle(tunnel(1)).is_none());
    let detached = connector.event(|event| match event {
        ConnectorEvent::Detached { tunnel, code, .. } => Some((*tunnel, code.clone())),
        _ => None,
    });
    assert_eq!(detached.await, (tunnel(1), "deleted".into()));
    assert!(!connector.task.is_finished(), "the other tunnel is held on");
    edge.tunnels.detach(tunnel(2), "deleted", "its socket was deleted");
    assert!(soon(&mut connector.task).await.unwrap().is_err());
}

#[tokio::test]
async fn an_edge_that_goes_away_is_replaced_before_its_streams_end() {
    let old_edge = Edge::new();
    let pipes = Pipes::to(&old_edge);
    let mut connector = Connector::start(Arc::new(pipes.clone()), echo(), &[tunnel(1)]);
    let old = old_edge.ready(tunnel(1)).await;
    let mut running = old.open(open_for(tunnel(1))).unwrap();
    running.write_all(b"x").await.unwrap();
    soon(running.read_u8()).await.unwrap();

    let new_edge = Edge::new();
    *pipes.edge.lock().unwrap() = new_edge.clone();
    old_edge.tunnels.go_away("the edge is restarted");
    assert!(!old.is_usable());
    connector.event(|event| matches!(event, ConnectorEvent::GoingAway { .. }).then_some(())).await;
    let new = new_edge.ready(tunnel(1)).await;
    assert_eq!(soon(exchange(new.open(open_for(tunnel(1))).unwrap(), b"hello")).await.unwrap(), b"hello");

    // Well after the new session is up, the old stream still works.
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert_eq!(old_edge.tunnels.stats().sessions, 1);
    running.write_all(b"y").await.unwrap();
    assert_eq!(soon(running.read_u8()).await.unwrap(), b'y');
    running.shutdown().await.unwrap();
    assert_eq!(soon(running.read(&mut [0; 1])).await.unwrap(), 0);
    soon(old_edge.tunnels.drained()).await;
    until("the old session ends with its last stream", || old_edge.tunnels.stats().sessions == 0).await;
    assert!(new.is_usable());
}

/// A dialer of an edge on a runtime of its own.
struct PipesOn {
    edge: Edge,
    runtime: tokio::runtime::Handle,
}

impl Dial for PipesOn {
    fn dial(&self) -> BoxFuture<'static, io::Result<BoxedCarrier>> {
        let (near, far) = tokio::io::duplex(256 * 1024);
        let edge = self.edge.clone();
        self.runtime.spawn(async move { edge.tunnels.serve_carrier(far, peer()).await });
        Box::pin(async { Ok(Box::new(near) as BoxedCarrier) })
    }
}

#[tokio::test]
async fn connectors_learn_that_an_edge_goes_away_though_its_process_ends_at_once() {
    let edge = Edge::new();
    // Its tasks run only while its thread waits, and are dropped with it.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let dial = Arc::new(PipesOn { edge: edge.clone(), runtime: runtime.handle().clone() });
    let (go, gone) = tokio::sync::oneshot::channel::<()>();
    let tunnels = edge.tunnels.clone();
    let process = std::thread::spawn(move || {
        runtime.block_on(async move {
            gone.await.unwrap();
            tunnels.go_away("the edge is restarted");
            tunnels.flushed().await;
        });
    });
    let mut connector = Connector::start(dial, echo(), &[tunnel(1)]);
    edge.attached(tunnel(1)).await;
    go.send(()).unwrap();
    connector.event(|event| matches!(event, ConnectorEvent::GoingAway { .. }).then_some(())).await;
    process.join().unwrap();
}

#[tokio::test]
async fn a_connector_that_stops_leaves_the_pool_first_and_finishes_its_streams() {
    for max_legs in [0, 512] {
        let edge = Edge::new();
        let mut connector = Connector::start_with(Arc::new(Pipes::to(&edge)), echo(), &[tunnel(1)], |config| {
            config.max_legs = max_legs;
        });
        let handle = edge.attached(tunnel(1)).await;
        let mut running = handle.open(open_for(tunnel(1))).unwrap();
        running.write_all(b"x").await.unwrap();
        soon(running.read_u8()).await.unwrap();
        connector.ask_to_stop();
        until("the tunnel leaves the pool", || edge.handle(tunnel(1)).is_none()).await;
        tokio::time::sleep(Duration::from_millis(400)).await;
        assert!(!connector.task.is_finished(), "a stream still runs");
        running.write_all(b"y").await.unwrap();
        assert_eq!(soon(running.read_u8()).await.unwrap(), b'y');
        drop(running);
        soon(&mut connector.task).await.unwrap().unwrap();
        until("the session ends", || edge.tunnels.stats().sessions == 0).await;
        assert_eq!(edge.tunnels.stats().legs_idle + edge.tunnels.stats().legs_busy, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_connector_that_stops_waits_only_so_long() {
    let edge = Edge::new();
    let mut connector = Connector::start(Arc::new(Pipes::to(&edge)), echo(), &[tunnel(1)]);
    let handle = edge.attached(tunnel(1)).await;
    let mut running = handle.open(open_for(tunnel(1))).unwrap();
    running.write_all(b"x").await.unwrap();
    running.read_u8().await.unwrap();
    let asked = tokio::time::Instant::now();
    connector.ask_to_stop();
    (&mut connector.task).await.unwrap().unwrap();
    let took = asked.elapsed();
    assert!((Duration::from_secs(30)..Duration::from_secs(33)).contains(&took), "{took:?}");
    assert_eq!(running.read_u8().await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_connector_fails_its_streams_and_no_others() {
    let edge = Edge::new();
    let dial = Tls::to(&edge).await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let record = seen.clone();
    let origin = Arc::new(Origin(move |_, stream: IncomingStream| {
        let record = record.clone();
        async move {
            let Ok(stream) = stream.opened().await else { return };
            let ended = echo_on(stream).await;
            record.lock().unwrap().push(ended.map_err(|error| error.kind()));
        }
    }));
    let doomed = Connector::start(dial.clone(), origin, &[tunnel(1)]);
    let _lasting = Connector::start(dial, echo(), &[tunnel(2)]);
    let (handle, other) = (edge.attached(tunnel(1)).await, edge.attached(tunnel(2)).await);
    until("all legs join", || edge.tunnels.stats().legs_idle >= 16).await;
    let mut streams: Vec<_> = (0..20).map(|_| handle.open(open_for(tunnel(1))).unwrap()).collect();
    assert!(streams.iter().any(|stream| !stream.is_on_leg()) && streams.iter().any(|stream| stream.is_on_leg()));
    for stream in &mut streams {
        stream.write_all(b"x").await.unwrap();
        soon(stream.read_u8()).await.unwrap();
    }
    let mut unaffected = other.open(open_for(tunnel(2))).unwrap();
    unaffected.write_all(b"x").await.unwrap();
    soon(unaffected.read_u8()).await.unwrap();

    doomed.task.abort();
    for stream in &mut streams {
        let error = soon(stream.read_u8()).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
    }
    until("the connector's side ends as well", || seen.lock().unwrap().len() == 20).await;
    assert!(seen.lock().unwrap().iter().all(|ended| *ended == Err(io::ErrorKind::ConnectionReset)));
    until("the dead tunnel leaves the pool", || edge.handle(tunnel(1)).is_none()).await;
    assert_eq!(handle.open(open_for(tunnel(1))).unwrap_err(), OpenError::NotUsable);
    unaffected.write_all(b"y").await.unwrap();
    assert_eq!(soon(unaffected.read_u8()).await.unwrap(), b'y');
}

/// Pipes that can be made silent: bytes stop, without an error at either end.
struct Silent {
    edge: Edge,
    is_silent: Arc<AtomicBool>,
}

impl sallyport_tunnel::Dial for Silent {
    fn dial(&self) -> sallyport_tunnel::BoxFuture<'static, io::Result<sallyport_tunnel::BoxedCarrier>> {
        let (edge, is_silent) = (self.edge.clone(), self.is_silent.clone());
        Box::pin(async move {
            if is_silent.load(Ordering::Relaxed) {
                return std::future::pending().await;
            }
            let (near, near_wire) = tokio::io::duplex(64 * 1024);
            let (far_wire, far) = tokio::io::duplex(64 * 1024);
            let (near_in, near_out) = tokio::io::split(near_wire);
            let (far_in, far_out) = tokio::io::split(far_wire);
            for (mut from, mut to) in [(near_in, far_out), (far_in, near_out)] {
                let is_silent = is_silent.clone();
                tokio::spawn(async move {
                    let mut buffer = [0; 1_024];
                    while let Ok(n) = from.read(&mut buffer).await {
                        if is_silent.load(Ordering::Relaxed) {
                            continue_silently(&mut from).await;
                        }
                        if n == 0 || to.write_all(&buffer[..n]).await.is_err() {
                            break;
                        }
                    }
                });
            }
            tokio::spawn(async move { edge.tunnels.serve_carrier(far, peer()).await });
            Ok(Box::new(near) as sallyport_tunnel::BoxedCarrier)
        })
    }
}

/// Discards everything, for ever.
async fn continue_silently(from: &mut (impl AsyncReadExt + Unpin)) {
    let mut buffer = [0; 1_024];
    loop {
        if from.read(&mut buffer).await.is_ok_and(|n| n == 0) {
            std::future::pending::<()>().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_vanished_connector_is_noticed_within_the_detection_time() {
    let edge = Edge::new();
    let is_silent = Arc::new(AtomicBool::new(false));
    let dial = Arc::new(Silent { edge: edge.clone(), is_silent: is_silent.clone() });
    let mut connector = Connector::start(dial, echo(), &[tunnel(1)]);
    let handle = edge.ready(tunnel(1)).await;
    let mut on_leg = handle.open(open_for(tunnel(1))).unwrap();
    on_leg.write_all(b"x").await.unwrap();
    on_leg.read_u8().await.unwrap();

    is_silent.store(true, Ordering::Relaxed);
    let since = tokio::time::Instant::now();
    // Three unanswered PINGs, ten seconds apart, after ten quiet seconds; the legs fail with the session.
    let error = on_leg.read_u8().await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    assert!(since.elapsed() <= Duration::from_secs(42), "{:?}", since.elapsed());
    until("the dead tunnel leaves the pool", || edge.handle(tunnel(1)).is_none()).await;
    let reason = connector.event(|event| match event {
        ConnectorEvent::Disconnected { reason, .. } => Some(reason.clone()),
        _ => None,
    });
    assert!(reason.await.contains("has not answered"));
    assert!(since.elapsed() <= Duration::from_secs(43), "{:?}", since.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_connector_comes_back_when_the_edge_does() {
    let edge = Edge::new();
    let pipes = Pipes { max_dials: 0, ..Pipes::to(&edge) };
    let mut connector = Connector::start(Arc::new(pipes), echo(), &[tunnel(1)]);
    let mut waits = Vec::new();
    while waits.len() < 12 {
        let wait = connector.event(|event| match event {
            ConnectorEvent::Retrying { after } => Some(*after),
            _ => None,
        });
        waits.push(wait.await);
    }
    assert!(waits[0] <= Duration::from_millis(250));
    assert!(waits.iter().all(|wait| *wait <= Duration::from_secs(30)));

    let edge = Edge::new();
    let connector = Connector::start(Arc::new(Pipes::to(&edge)), echo(), &[tunnel(1)]);
    let first = edge.attached(tunnel(1)).await;
    // The session breaks, and the edge forgets it. The connector reconnects at once.
    edge.tunnels.detach(tunnel(9), "deleted", "unknown tunnels are no matter");
    assert!(first.is_usable());
    drop(connector);
}
