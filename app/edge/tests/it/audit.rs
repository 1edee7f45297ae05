//! Audit records of flows, and the list of live flows.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use sallyport_api::{AuditEvent, AuditFlow};
use sallyport_audit::AuditSink;
use sallyport_bus::LiveFlows;
use sallyport_edge::{EdgeAudit, EdgeConfig};
use sallyport_model::{AccessRules, AttachedPolicy, OriginProtocol, PolicyId, SocketType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{
    flows::{ask, connect, echo_with_greeting, service},
    harness::*,
    http1_connections::unended,
    http2_websockets::{byte_origin, open},
    raw_http2::{CANCEL, DATA, Outcome, RawHttp2},
};

/// A sink that stores audit events.
#[derive(Default)]
struct RecordedEvents(Mutex<Vec<AuditEvent>>);

impl AuditSink for RecordedEvents {
    fn record(&self, event: AuditEvent) {
        self.0.lock().unwrap().push(event);
    }
}

impl RecordedEvents {
    fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// Waits for this many recorded flows and returns them.
    async fn flows(&self, count: usize) -> Vec<AuditFlow> {
        until("the flows are recorded", || self.count() >= count).await;
        self.0.lock().unwrap().iter().map(|event| *event.flow.clone().unwrap()).collect()
    }
}

async fn world(all: bool) -> (World, Arc<RecordedEvents>, LiveFlows) {
    let (kept, live) = (Arc::new(RecordedEvents::default()), LiveFlows::default());
    let (sink, flows) = (kept.clone(), live.clone());
    let change = move |config: &mut EdgeConfig| {
        config.audit = Some(EdgeAudit { sink, all });
        config.flows = flows;
    };
    (World::start_with(change).await, kept, live)
}

#[tokio::test]
async fn a_connection_and_a_request_are_recorded_with_all_fields() {
    let (world, kept, live) = world(true).await;
    let mut socket = world.socket();
    let addr = socket.set_type(&world, SocketType::Tcp).await;
    let connector = world.tunnel(&mut socket, service(echo_with_greeting).await).await;
    assert_eq!(ask(connect(addr).await, b"a question").await, b"hello a question bye");
    let flow = kept.flows(1).await.remove(0);
    assert_eq!((flow.bytes_in, flow.bytes_out, flow.verdict.as_str()), (10, 20, "complete"));
    assert_eq!((flow.tunnel, flow.transport.as_str()), (Some(connector.tunnel), "tcp"));
    assert_eq!((flow.socket, flow.socket_name.as_str()), (socket.route.id, socket.route.name.as_str()));
    assert!(flow.client.ip().is_loopback() && flow.origin.is_some() && flow.began <= flow.ended);
    assert!(flow.method.is_none() && flow.status.is_none() && flow.id.len() == 32);

    let mut web = world.socket();
    let _connector = world.tunnel(&mut web, named_origin("here").await).await;
    assert_eq!(world.get(&web, "/a/path?secret=1").await.text(), "here");
    let flow = kept.flows(2).await.remove(1);
    assert_eq!((flow.method.as_deref(), flow.path.as_deref(), flow.status), (Some("GET"), Some("/a/path"), Some(200)));
    assert_eq!((flow.verdict.as_str(), flow.bytes_out, flow.transport.as_str()), ("complete", 4, "http"));

    web.set(&world, |settings| settings.access = AccessRules { deny: vec!["0.0.0.0/0".into()], ..Default::default() });
    assert_eq!(world.get(&web, "/").await.status, 403);
    let flow = kept.flows(3).await.remove(2);
    assert_eq!((flow.verdict.as_str(), flow.tunnel, flow.status), ("denied", None, Some(403)));
    until("nothing runs any more", || live.count() == 0).await;
}

#[tokio::test]
async fn a_response_received_in_full_is_complete_without_the_end_of_its_stream() {
    let (world, kept, _) = world(true).await;
    for (at, body) in [&b""[..], b"hello"].into_iter().enumerate() {
        let mut socket = world.socket();
        let addr = h2_origin(move |_| async move { unended(body) }).await;
        socket.speaks(&world, OriginProtocol::Http2);
        let _connector = world.tunnel(&mut socket, addr).await;
        let mut client = world.client(&socket).await;
        let head = format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", socket.host());
        client.write_all(head.as_bytes()).await.unwrap();
        assert_eq!(soon(read_response(&mut client)).await.body, body);
        let flow = kept.flows(at + 1).await.remove(at);
        assert_eq!((flow.verdict.as_str(), flow.bytes_out), ("complete", body.len() as u64));
    }
}

#[tokio::test]
async fn only_sockets_with_policies_are_recorded_by_default() {
    let (world, kept, _) = world(false).await;
    let mut socket = world.socket();
    let _connector = world.tunnel(&mut socket, named_origin("here").await).await;
    assert_eq!(world.get(&socket, "/").await.text(), "here");
    let document = r#"{"rules":[{"effect":"allow"}]}"#.to_owned();
    socket.route.policies.push(AttachedPolicy { id: PolicyId::from_random([1; 16]), name: "p".to_owned(), document });
    world.routes.put(socket.route.clone());
    let status = world.get(&socket, "/seen").await.status;
    let flow = kept.flows(1).await.remove(0);
    assert_eq!((flow.path.as_deref(), flow.status), (Some("/seen"), Some(status)));
}

#[tokio::test]
async fn a_live_connection_is_listed_and_can_be_killed() {
    let (world, kept, live) = world(true).await;
    let mut socket = world.socket();
    let organisation = socket.route.account;
    let addr = socket.set_type(&world, SocketType::Tcp).await;
    let connector = world.tunnel(&mut socket, service(echo_with_greeting).await).await;
    let mut client = connect(addr).await;
    client.write_all(b"12345").await.unwrap();
    let mut word = [0; 6];
    soon(client.read_exact(&mut word)).await.unwrap();
    until("the bytes are counted", || {
        live.of(organisation, "", 9).0[0].bytes.load(std::sync::atomic::Ordering::Relaxed) > 4
    })
    .await;
    let flow = live.of(organisation, "", 9).0.remove(0);
    assert_eq!((flow.way().tunnel, flow.client), (Some(connector.tunnel), client.local_addr().unwrap()));
    assert!(live.kill(organisation, &flow.id).is_some());
    let read = soon(client.read(&mut [0; 9])).await;
    assert!(read.is_err(), "a client must not take it for complete: {read:?}");
    let recorded = kept.flows(1).await.remove(0);
    assert_eq!((recorded.verdict.as_str(), recorded.bytes_in, recorded.id), ("killed", 5, flow.id.clone()));
    until("nothing runs any more", || live.count() == 0).await;
    assert!(live.kill(organisation, &flow.id).is_none());
    let metrics = world.edge.metrics_text().unwrap();
    assert!(metrics.contains(r#"flows_total{transport="tcp",verdict="killed"} 1"#), "{metrics}");
}

#[tokio::test]
async fn a_live_websocket_is_listed_and_can_be_killed() {
    let (world, kept, live) = world(true).await;
    let mut socket = world.socket();
    let addr = origin(|mut request| async move {
        let upgrade = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let mut io = TokioIo::new(upgrade.await.unwrap());
            io.write_all(b"welcome").await.unwrap();
            let _ = io.read(&mut [0; 9]).await;
        });
        let mut response = Response::new(text(""));
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        response.headers_mut().insert(header::CONNECTION, "Upgrade".parse().unwrap());
        response.headers_mut().insert(header::UPGRADE, "websocket".parse().unwrap());
        response
    })
    .await;
    let connector = world.tunnel(&mut socket, addr).await;
    let mut client = world.client(&socket).await;
    let head = format!(
        "GET /ws HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: AAAA\r\n\
         Sec-WebSocket-Version: 13\r\n\r\n",
        socket.host()
    );
    client.write_all(head.as_bytes()).await.unwrap();
    assert!(read_head(&mut client).await.starts_with("HTTP/1.1 101"));
    soon(client.read_exact(&mut [0; 7])).await.unwrap();
    let flow = live.of(socket.route.account, "", 9).0.remove(0);
    assert_eq!((flow.way().tunnel, flow.transport), (Some(connector.tunnel), SocketType::Http));
    assert_eq!(kept.count(), 0, "the record comes at the end of the flow");
    live.kill(socket.route.account, &flow.id).unwrap();
    let read =
        tokio::time::timeout(Duration::from_secs(20), client.read(&mut [0; 9])).await.expect("the connection ends");
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
    let recorded = kept.flows(1).await.remove(0);
    assert_eq!((recorded.verdict.as_str(), recorded.status, recorded.bytes_out), ("killed", Some(101), 7));
}

#[tokio::test]
async fn a_live_websocket_over_http2_is_listed_and_can_be_killed() {
    let (world, kept, live) = world(true).await;
    let mut socket = world.socket();
    let connector = world.tunnel(&mut socket, byte_origin().await).await;
    let mut client = RawHttp2::open(&world, &socket).await;
    for stream in [1, 3] {
        open(&mut client, stream, "/ws").await;
        client.send(DATA, 0, stream, b"hello").await;
        client.read_until("the bytes are echoed", |client| client.got(stream) == 5).await;
    }
    let flows = live.of(socket.route.account, "", 9).0;
    assert_eq!(flows.len(), 2);
    for flow in &flows {
        assert_eq!((flow.way().tunnel, flow.transport), (Some(connector.tunnel), SocketType::Http));
    }
    assert_eq!(kept.count(), 0, "the record comes at the end of the flow");
    live.kill(socket.route.account, &flows[0].id).unwrap();
    let recorded = kept.flows(1).await.remove(0);
    assert_eq!((recorded.id.as_str(), recorded.verdict.as_str()), (flows[0].id.as_str(), "killed"));
    assert_eq!((recorded.method.as_deref(), recorded.status), (Some("CONNECT"), Some(200)));
    assert_eq!((recorded.bytes_in, recorded.bytes_out), (5, 5));
    client
        .read_until("one is reset", |client| [1, 3].iter().any(|stream| client.received(*stream).reset.is_some()))
        .await;
    let (killed, other) = if client.received(1).reset.is_some() { (1, 3) } else { (3, 1) };
    assert_eq!(client.became(killed), Some(Outcome::Reset(CANCEL)));
    client.send(DATA, 0, other, b"again").await;
    client.read_until("the other goes on", |client| client.got(other) == 10).await;
    assert_eq!(live.count(), 1);
}
