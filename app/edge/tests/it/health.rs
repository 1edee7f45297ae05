//! Health checks, failing origins and ejection.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use http::{Response, StatusCode};
use sallyport_model::{HealthCheck, HealthFailureCode, OriginHealth, Probe, ProxyProtocol, SocketType};
use sallyport_tunnel::ConnectorEvent;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{
    flows::{ask, connect, echo_with_greeting, service},
    harness::*,
};

/// A check at the shortest interval, where one result decides. The timeout suits a busy machine.
fn check(probe: Probe) -> Option<HealthCheck> {
    let (interval_seconds, timeout_seconds, healthy_threshold, unhealthy_threshold) = (1, 10, 1, 1);
    Some(HealthCheck { probe, interval_seconds, timeout_seconds, healthy_threshold, unhealthy_threshold })
}

fn http_check() -> Option<HealthCheck> {
    check(Probe::Http { path: "/up?really".into(), status_from: 200, status_to: 299 })
}

/// The value of the metric in the line that starts with this text.
fn metric(world: &World, line: &str) -> Option<u64> {
    let text = world.edge.metrics_text().unwrap();
    text.lines().find_map(|found| found.strip_prefix(line)?.trim().parse().ok())
}

fn healthy(world: &World, socket: &TestSocket) -> Option<u64> {
    metric(world, &format!("sallyport_edge_origins_healthy{{socket=\"{}\"}}", socket.route.name))
}

/// An origin that is healthy while the flag is set, and always serves other requests. Returns its address and the
/// requests of checks.
async fn switchable_origin(
    name: &'static str,
    well: Arc<AtomicBool>,
) -> (std::net::SocketAddr, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = asked.clone();
    let addr = origin(move |request| {
        let mut response = Response::new(text(name));
        if request.uri().path() == "/up" {
            let host = request.headers()["host"].to_str().unwrap();
            log.lock().unwrap().push(format!("{} {host}", request.uri()));
            if !well.load(Ordering::SeqCst) {
                *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            }
        }
        async move { response }
    })
    .await;
    (addr, asked)
}

#[tokio::test]
async fn an_unhealthy_origin_gets_no_requests_until_it_recovers() {
    let world = World::start().await;
    let mut socket = world.socket();
    let well = Arc::new(AtomicBool::new(false));
    let (sick, asked) = switchable_origin("sick", well.clone()).await;
    let _good = world.tunnel(&mut socket, named_origin("good").await).await;
    let _sick = world.tunnel(&mut socket, sick).await;
    socket.set(&world, |settings| settings.health_check = http_check());
    until("the sick one is out", || healthy(&world, &socket) == Some(1)).await;
    for _ in 0..10 {
        assert_eq!(world.get(&socket, "/").await.text(), "good");
    }
    let health_of = |at: usize| world.directory.health(socket.route.tunnels[at].id);
    until("both have been checked", || (health_of(0), health_of(1)) == (Some(true), Some(false))).await;
    assert_eq!(asked.lock().unwrap()[0], format!("/up?really {}", socket.host()));
    well.store(true, Ordering::SeqCst);
    until("the sick one is back", || healthy(&world, &socket) == Some(2)).await;
    let mut names = Vec::new();
    for _ in 0..10 {
        names.push(world.get(&socket, "/").await.text().to_owned());
    }
    assert_eq!(names.iter().filter(|name| *name == "sick").count(), 5, "{names:?}");
    assert_eq!(metric(&world, r#"sallyport_edge_origin_health_changes_total{to="down"}"#), Some(1));
    // An origin without a check does not count as down.
    well.store(false, Ordering::SeqCst);
    until("the sick one is out", || healthy(&world, &socket) == Some(1)).await;
    socket.set(&world, |settings| settings.health_check = None);
    until("no origin is checked", || healthy(&world, &socket) == Some(2)).await;
}

#[tokio::test]
async fn without_a_healthy_origin_clients_get_503_at_once() {
    let world = World::start().await;
    let mut socket = world.socket();
    let well = Arc::new(AtomicBool::new(false));
    let (sick, _) = switchable_origin("sick", well.clone()).await;
    let _sick = world.tunnel(&mut socket, sick).await;
    socket.set(&world, |settings| settings.health_check = http_check());
    until("the origin is unhealthy", || healthy(&world, &socket) == Some(0)).await;
    let began = Instant::now();
    let response = world.get(&socket, "/").await;
    assert!(began.elapsed() < Duration::from_secs(4), "nothing is waited for");
    assert_eq!(response.status, 503);
    assert!(response.text().contains("no-healthy-origin"), "{}", response.text());
    assert!(response.header("retry-after").is_some());
    assert_eq!(metric(&world, r#"sallyport_edge_refusals_total{reason="no-healthy-origin"}"#), Some(1));
    well.store(true, Ordering::SeqCst);
    until("the origin is healthy again", || healthy(&world, &socket) == Some(1)).await;
    assert_eq!(world.get(&socket, "/").await.text(), "sick");
    socket.set(&world, |settings| settings.health_check = None);
    socket.route.tunnels[0].weight = 0;
    world.routes.put(socket.route.clone());
    assert_eq!(world.get(&socket, "/").await.status, 503, "all are drained");
}

#[tokio::test]
async fn tcp_checks_connect_and_send_proxy_unknown() {
    let world = World::start().await;
    let mut socket = world.socket();
    let addr = socket.set_type(&world, SocketType::Tcp).await;
    let first_words = Arc::new(Mutex::new(Vec::new()));
    let alive = service({
        let first_words = first_words.clone();
        move |mut stream: tokio::net::TcpStream| {
            let first_words = first_words.clone();
            async move {
                let mut line = Vec::new();
                while !line.ends_with(b"\n") && stream.read_buf(&mut line).await.is_ok_and(|n| n > 0) {}
                first_words.lock().unwrap().push(String::from_utf8(line).unwrap());
                let _ = stream.write_all(b"alive").await;
            }
        }
    })
    .await;
    let _dead = world.tunnel(&mut socket, dead_origin()).await;
    let _alive = world.tunnel(&mut socket, alive).await;
    socket.set(&world, |settings| {
        settings.health_check = check(Probe::Tcp);
        settings.proxy_protocol = ProxyProtocol::V1;
    });
    until("the dead one is out", || healthy(&world, &socket) == Some(1)).await;
    until("the other one was asked", || !first_words.lock().unwrap().is_empty()).await;
    assert_eq!(first_words.lock().unwrap()[0], "PROXY UNKNOWN\r\n");
    drop(connect(addr).await);
    let retries = metric(&world, "sallyport_edge_retries_total");
    for _ in 0..6 {
        assert_eq!(ask(connect(addr).await, b"x").await, b"alive");
    }
    assert_eq!(metric(&world, "sallyport_edge_retries_total"), retries, "the dead one was not tried");
}

#[tokio::test]
async fn an_origin_that_refuses_repeatedly_is_ejected_without_a_check() {
    let world = World::start().await;
    let mut socket = world.socket();
    let _dead = world.tunnel(&mut socket, dead_origin()).await;
    let _good = world.tunnel(&mut socket, named_origin("good").await).await;
    for _ in 0..20 {
        assert_eq!(world.get(&socket, "/").await.text(), "good");
    }
    assert_eq!(metric(&world, "sallyport_edge_origin_ejections_total"), Some(1));
    assert_eq!(
        metric(&world, "sallyport_edge_retries_total"),
        Some(5),
        "the bad origin got requests until its ejection"
    );
    assert_eq!(healthy(&world, &socket), Some(1));
}

#[tokio::test]
async fn the_last_origin_is_never_ejected() {
    let world = World::start().await;
    let mut socket = world.socket();
    let addr = socket.set_type(&world, SocketType::Tcp).await;
    let _dead = world.tunnel(&mut socket, dead_origin()).await;
    drop(connect(addr).await);
    for _ in 0..10 {
        let mut client = connect(addr).await;
        assert!(soon(client.read(&mut [0; 1])).await.is_err());
    }
    assert_eq!(metric(&world, "sallyport_edge_origin_ejections_total"), Some(0));
    // An ejected origin is used again when it is the only one left.
    let alive = world.tunnel(&mut socket, service(echo_with_greeting).await).await;
    for _ in 0..12 {
        assert_eq!(ask(connect(addr).await, b"x").await, b"hello x bye");
    }
    assert_eq!(metric(&world, "sallyport_edge_origin_ejections_total"), Some(1));
    let tunnel = alive.tunnel;
    alive.stop().await;
    until("the good one is gone", || world.directory.get(tunnel).is_none()).await;
    let mut client = connect(addr).await;
    assert!(soon(client.read(&mut [0; 1])).await.is_err());
    assert!(metric(&world, r#"sallyport_edge_flows_total{transport="tcp",verdict="origin-refused"}"#) >= Some(11));
}

#[tokio::test]
async fn a_failure_has_a_reason_and_a_time_and_reaches_the_connector() {
    let world = World::start().await;
    let mut socket = world.socket();
    let well = Arc::new(AtomicBool::new(false));
    let (sick, _) = switchable_origin("sick", well.clone()).await;
    let mut connector = world.tunnel(&mut socket, sick).await;
    let _dead = world.tunnel(&mut socket, dead_origin()).await;
    socket.set(&world, |settings| settings.health_check = http_check());
    let found = |at: usize| world.directory.get(socket.route.tunnels[at].id).unwrap();
    until("both fail", || [0, 1].map(|at| found(at).health) == [OriginHealth::Unwell; 2]).await;
    let failure = found(0).failure.unwrap();
    assert_eq!((failure.code, failure.message.as_str()), (HealthFailureCode::Status, "status 500 for GET /up?really"));
    assert_eq!(world.directory.failure(socket.route.tunnels[0].id), Some(failure.clone()));
    let dead = found(1).failure.unwrap();
    assert_eq!(dead.code, HealthFailureCode::Refused);
    assert!(dead.message.contains("refused"), "{}", dead.message);
    let mut next_record = async || loop {
        if let ConnectorEvent::Health(record) = soon(connector.log.recv()).await.unwrap() {
            return record;
        }
    };
    let record = next_record().await;
    assert_eq!((record.tunnel, record.health), (socket.route.tunnels[0].id, OriginHealth::Unwell));
    assert_eq!(record.failure, Some(failure));
    well.store(true, Ordering::SeqCst);
    let record = next_record().await;
    assert_eq!((record.health, record.failure), (OriginHealth::Well, None));
    assert_eq!(world.directory.failure(socket.route.tunnels[0].id), None);
}

#[tokio::test]
async fn a_changed_reason_keeps_the_time_of_the_first_failure() {
    let world = World::start().await;
    let mut socket = world.socket();
    let status = Arc::new(std::sync::atomic::AtomicU16::new(500));
    let asked = status.clone();
    let addr = origin(move |_| {
        let mut response = Response::new(text("x"));
        *response.status_mut() = StatusCode::from_u16(asked.load(Ordering::SeqCst)).unwrap();
        async move { response }
    })
    .await;
    let _connector = world.tunnel(&mut socket, addr).await;
    socket.set(&world, |settings| settings.health_check = http_check());
    let failure = || world.directory.get(socket.route.tunnels[0].id).unwrap().failure;
    until("the check fails", || failure().is_some()).await;
    let first = failure().unwrap();
    // The second failure comes at least a second later, so a new time would differ.
    status.store(503, Ordering::SeqCst);
    until("the check fails with the new status", || failure().is_some_and(|failure| failure.message.contains("503")))
        .await;
    assert_eq!(failure().unwrap().since, first.since);
}
