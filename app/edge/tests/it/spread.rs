//! Connectors that spread streams over several endpoints, and those that do not.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use http::{Request, Response};
use http_body_util::BodyExt;
use sallyport_bus::DirectoryChange;
use sallyport_model::{OriginProtocol, TunnelPresence};
use sallyport_tunnel::{BoxFuture, IncomingStream, OriginHandler};
use sallyport_wire::Open;
use tokio::io::AsyncWriteExt;

use crate::{harness::*, mesh::Installation};

/// Gives each stream to the next of several origins, as the pool of a connector does.
struct InTurn {
    origins: Vec<SocketAddr>,
    streams: AtomicUsize,
}

impl InTurn {
    fn over(origins: Vec<SocketAddr>) -> Arc<Self> {
        Arc::new(Self { origins, streams: AtomicUsize::new(0) })
    }

    fn streams(&self) -> usize {
        self.streams.load(Ordering::SeqCst)
    }
}

impl OriginHandler for InTurn {
    fn serve(&self, open: Open, stream: IncomingStream) -> BoxFuture<'static, ()> {
        let number = self.streams.fetch_add(1, Ordering::SeqCst);
        DialOrigin(self.origins[number % self.origins.len()]).serve(open, stream)
    }
}

/// How many of these responses each origin gave, the most first.
fn counts(bodies: &[String]) -> Vec<usize> {
    let mut names: Vec<_> = bodies.to_vec();
    names.sort();
    names.dedup();
    let mut counts: Vec<_> = names.iter().map(|name| bodies.iter().filter(|body| *body == name).count()).collect();
    counts.sort_unstable_by(|one, other| other.cmp(one));
    counts
}

/// Twelve requests of one kept connection, among them some with a body.
async fn ask_twelve_times(world: &World, socket: &TestSocket) -> Vec<String> {
    let mut client = world.client(socket).await;
    let mut bodies = Vec::new();
    for number in 0..12 {
        let host = socket.host();
        let request = match number % 3 {
            0 => format!("POST / HTTP/1.1\r\nHost: {host}\r\nContent-Length: 2\r\n\r\nhi"),
            _ => format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"),
        };
        client.write_all(request.as_bytes()).await.unwrap();
        let response = read_response(&mut client).await;
        assert_eq!(response.status, 200, "{}", response.text());
        bodies.push(response.text().to_owned());
    }
    bodies
}

#[tokio::test]
async fn each_request_has_a_stream_of_its_own_if_the_connector_spreads_streams() {
    let world = World::start().await;
    let mut socket = world.socket();
    let handler = InTurn::over(vec![named_origin("a").await, named_origin("b").await, named_origin("c").await]);
    let tunnel = world.new_tunnel(&mut socket);
    let _connector = world.connect_spreading(tunnel, handler.clone()).await;
    assert_eq!(counts(&ask_twelve_times(&world, &socket).await), [4, 4, 4]);
    assert_eq!(handler.streams(), 12);
}

/// An edge that does not know the flag sees such an attachment.
#[tokio::test]
async fn streams_are_kept_for_further_requests_without_the_flag() {
    let world = World::start().await;
    let mut socket = world.socket();
    let handler = InTurn::over(vec![named_origin("a").await, named_origin("b").await, named_origin("c").await]);
    let tunnel = world.new_tunnel(&mut socket);
    let _connector = world.connect_with(tunnel, handler.clone()).await;
    let bodies = ask_twelve_times(&world, &socket).await;
    assert_eq!(bodies.len(), 12);
    assert!(handler.streams() < 12, "{} streams", handler.streams());
}

#[tokio::test]
async fn each_request_over_http2_has_a_stream_of_its_own_too() {
    let world = World::start().await;
    for (spreads, streams) in [(true, 12), (false, 1)] {
        let mut socket = world.socket();
        socket.speaks(&world, OriginProtocol::Http2);
        let origin = |name: &'static str| h2_origin(move |_| async move { Response::new(text(name)) });
        let handler = InTurn::over(vec![origin("a").await, origin("b").await, origin("c").await]);
        let tunnel = world.new_tunnel(&mut socket);
        let _connector = match spreads {
            true => world.connect_spreading(tunnel, handler.clone()).await,
            false => world.connect_with(tunnel, handler.clone()).await,
        };
        let mut client = world.http2(&socket).await;
        let mut bodies = Vec::new();
        for _ in 0..12 {
            let request = Request::get(format!("https://{}/", socket.host())).body(text("")).unwrap();
            let response = soon(client.send_request(request)).await.unwrap();
            assert_eq!(response.status(), 200);
            let body = response.into_body().collect().await.unwrap().to_bytes();
            bodies.push(String::from_utf8(body.to_vec()).unwrap());
        }
        assert_eq!(handler.streams(), streams);
        assert_eq!(counts(&bodies), if spreads { vec![4, 4, 4] } else { vec![12] });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_edges_learn_that_a_connector_spreads_streams() {
    let mut installation = Installation::new();
    let (far, near) = (installation.edge(91, "eu"), installation.edge(92, "us"));
    let mut socket = near.world.socket();
    let handler = InTurn::over(vec![named_origin("a").await, named_origin("b").await, named_origin("c").await]);
    let tunnel = near.world.new_tunnel(&mut socket);
    let _connector = near.world.connect_spreading(tunnel, handler.clone()).await;
    installation.announce(&[&far, &near]);
    assert_eq!(far.get(&socket, "/").await.status, 200);
    let before = handler.streams();
    assert_eq!(counts(&ask_twelve_times(&far.world, &socket).await), [4, 4, 4]);
    assert_eq!(handler.streams() - before, 12);

    // The connector attaches again without a pool.
    let presence = near.world.directory.get(tunnel).unwrap();
    assert!(presence.spread);
    installation.apply(DirectoryChange::TunnelCame(near.card.edge, TunnelPresence { spread: false, ..presence }));
    // Until the other edge has learnt of it, requests have streams of their own.
    soon(async {
        loop {
            let before = handler.streams();
            ask_twelve_times(&far.world, &socket).await;
            if handler.streams() - before < 12 {
                return;
            }
        }
    })
    .await;
}
