//! Fair shares of an origin's connections among clients.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex},
};

use http::Request;
use sallyport_tunnel::{BoxFuture, IncomingStream, OriginHandler};
use sallyport_wire::Open;
use tokio::{io::AsyncWriteExt, net::TcpSocket, sync::watch};

use crate::harness::*;

/// The limit of connections that wait to open to an origin for one client.
const MAX_OPENINGS: usize = 128;

/// An origin that opens no connection before the test permits it, and then never responds.
struct Slow {
    asked: Mutex<Vec<IpAddr>>,
    takes: watch::Sender<bool>,
}

impl Slow {
    fn asked_by(&self, client: IpAddr) -> usize {
        self.asked.lock().unwrap().iter().filter(|asked| **asked == client).count()
    }
}

impl OriginHandler for Slow {
    fn serve(&self, open: Open, stream: IncomingStream) -> BoxFuture<'static, ()> {
        self.asked.lock().unwrap().push(open.client.ip().to_canonical());
        let mut takes = self.takes.subscribe();
        Box::pin(async move {
            takes.wait_for(|takes| *takes).await.unwrap();
            let stream = stream.opened().await.unwrap();
            std::future::pending::<()>().await;
            drop(stream);
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_opens_many_connections_does_not_block_other_clients() {
    const REQUESTS: usize = 300;
    let world = World::start_with(|config| config.connect_timeout = 4 * PATIENCE).await;
    let mut socket = world.socket();
    let slow = Arc::new(Slow { asked: Mutex::default(), takes: watch::Sender::new(false) });
    let tunnel = world.new_tunnel(&mut socket);
    let _connector = world.connect_with(tunnel, slow.clone()).await;
    let (greedy, other): (IpAddr, IpAddr) = ([127, 0, 0, 1].into(), [127, 0, 0, 2].into());
    let mut requests = Vec::new();
    for _ in 0..2 {
        let mut client = world.http2(&socket).await;
        for _ in 0..REQUESTS / 2 {
            let request = Request::get(format!("https://{}/", socket.host())).body(text("")).unwrap();
            client.ready().await.unwrap();
            requests.push(tokio::spawn(client.send_request(request)));
        }
    }
    until("the greedy one has all it may have", || slow.asked_by(greedy) == MAX_OPENINGS).await;
    // A connection of a later client opens at once.
    let tcp = TcpSocket::new_v4().unwrap();
    tcp.bind(SocketAddr::from((other, 0))).unwrap();
    let tcp = tcp.connect(world.addr).await.unwrap();
    let mut client = world.client_over(tcp, &socket.host(), &[b"http/1.1"]).await.unwrap();
    client.write_all(format!("GET / HTTP/1.1\r\nhost: {}\r\n\r\n", socket.host()).as_bytes()).await.unwrap();
    until("the other one's connection is asked for", || slow.asked_by(other) == 1).await;
    assert_eq!(slow.asked_by(greedy), MAX_OPENINGS);
    // An origin that opens connections and responds slowly gets all connections that one client needs.
    slow.takes.send_replace(true);
    until("all are asked for", || slow.asked_by(greedy) == REQUESTS).await;
    for request in requests {
        assert!(!request.is_finished());
        request.abort();
    }
}
