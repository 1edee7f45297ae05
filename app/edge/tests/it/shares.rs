//! What one client may have of an origin, and what that leaves to others.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex},
};

use http::Request;
use sallyport_tunnel::{BoxFuture, IncomingStream, OriginHandler};
use sallyport_wire::Open;
use tokio::{io::AsyncWriteExt, net::TcpSocket, sync::watch};

use crate::harness::*;

/// How many connections of one client an origin is asked for at once.
const MAX_OPENINGS: usize = 128;

/// An origin that takes no connection before it is told to, and then says nothing.
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
async fn a_client_that_opens_many_connections_at_once_holds_up_nobody_else() {
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
    // Whoever comes behind all of these is asked for at once.
    let tcp = TcpSocket::new_v4().unwrap();
    tcp.bind(SocketAddr::from((other, 0))).unwrap();
    let tcp = tcp.connect(world.addr).await.unwrap();
    let mut client = world.client_over(tcp, &socket.host(), &[b"http/1.1"]).await.unwrap();
    client.write_all(format!("GET / HTTP/1.1\r\nhost: {}\r\n\r\n", socket.host()).as_bytes()).await.unwrap();
    until("the other one's connection is asked for", || slow.asked_by(other) == 1).await;
    assert_eq!(slow.asked_by(greedy), MAX_OPENINGS);
    // An origin that takes connections, and is slow to answer, has as many of one client as that wants.
    slow.takes.send_replace(true);
    until("all are asked for", || slow.asked_by(greedy) == REQUESTS).await;
    for request in requests {
        assert!(!request.is_finished());
        request.abort();
    }
}
