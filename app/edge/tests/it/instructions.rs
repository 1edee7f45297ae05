//! Workloads in which `cargo xtask instructions` counts the edge's instructions. A usual test run ignores the
//! workloads. The task runs each one under callgrind.
//!
//! The edge has this thread for itself. Clients, connectors and origins run in another thread. So the count covers the
//! edge alone: TLS, the request path and the tunnel. One request or flow is open at a time, which makes the counts
//! repeatable.

use std::sync::Arc;

use http::{Request, Response};
use http_body_util::BodyExt;
use sallyport_model::SocketType;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    runtime::{Builder, Runtime},
    sync::oneshot,
};

use crate::{
    flows::{connect, service},
    harness::*,
};

/// The number of rounds before the count starts. These rounds fill pools and open connections.
const WARM_UP_ROUNDS: usize = 12;
const ROUNDS: usize = 50;
/// The last bytes of every response.
const END: &[u8] = b"END\n";

/// The gate between the warm-up and the counted rounds.
struct Gate {
    ready: oneshot::Sender<()>,
    go: oneshot::Receiver<()>,
}

impl Gate {
    async fn pass(self) {
        self.ready.send(()).unwrap();
        self.go.await.unwrap();
    }
}

/// Counts the instructions of the edge while the clients run past their [`Gate::pass`].
fn count(clients: impl AsyncFnOnce(World, Gate) + Send + 'static) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let world = runtime.block_on(World::start());
    let ((ready, is_ready), (go, may_go), (finish, done)) =
        (oneshot::channel(), oneshot::channel(), oneshot::channel());
    let others = std::thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(clients(world, Gate { ready, go: may_go }));
        finish.send(()).unwrap();
    });
    runtime.block_on(is_ready).unwrap();
    go.send(()).unwrap();
    counted(&runtime, done);
    others.join().unwrap();
    println!("\nrounds {ROUNDS}");
}

/// Runs the counted part. Callgrind selects this function by its name.
#[inline(never)]
fn counted(runtime: &Runtime, done: oneshot::Receiver<()>) {
    runtime.block_on(done).unwrap();
}

/// Sends this response after every request head on the connection.
async fn respond_to_all(mut tcp: TcpStream, response: Vec<u8>) {
    let (mut head, mut filled) = (vec![0; 65_536], 0);
    while let Ok(bytes) = tcp.read(&mut head[filled..]).await {
        if bytes == 0 {
            return;
        }
        filled += bytes;
        if head[..filled].ends_with(b"\r\n\r\n") {
            tcp.write_all(&response).await.unwrap();
            filled = 0;
        }
    }
}

/// An HTTP/1.1 response with a body of this many bytes that ends with [`END`].
fn response_of(body_bytes: usize) -> Vec<u8> {
    let mut response =
        format!("HTTP/1.1 200 OK\r\nServer: count\r\nContent-Type: text/plain\r\nContent-Length: {body_bytes}\r\n\r\n");
    response.push_str(&"x".repeat(body_bytes - END.len()));
    [response.as_bytes(), END].concat()
}

/// Sends the request, and reads until the end of a response.
async fn ask(io: &mut (impl AsyncRead + AsyncWrite + Unpin), request: &[u8], buffer: &mut [u8]) {
    io.write_all(request).await.unwrap();
    let mut filled = 0;
    while !buffer[..filled].ends_with(END) {
        let bytes = soon(io.read(&mut buffer[filled..])).await.unwrap();
        assert_ne!(bytes, 0, "the response broke off");
        filled += bytes;
    }
}

/// Counts requests in sequence on one HTTP/1.1 connection. The responses are small, because the number of pieces of a
/// large response depends on the machine's load.
fn count_requests(body_bytes: usize, spreads: bool) {
    count(async move |world, gate| {
        let mut socket = world.socket();
        let origin = service(move |tcp| respond_to_all(tcp, response_of(body_bytes))).await;
        let (tunnel, handler) = (world.new_tunnel(&mut socket), Arc::new(DialOrigin(origin)));
        let _connector = match spreads {
            true => world.connect_spreading(tunnel, handler).await,
            false => world.connect_with(tunnel, handler).await,
        };
        let mut client = world.client(&socket).await;
        let request =
            format!("GET /100b HTTP/1.1\r\nHost: {}\r\nAccept: */*\r\nUser-Agent: count\r\n\r\n", socket.host());
        let mut buffer = vec![0; body_bytes + 4_096];
        for _ in 0..WARM_UP_ROUNDS {
            ask(&mut client, request.as_bytes(), &mut buffer).await;
        }
        gate.pass().await;
        for _ in 0..ROUNDS {
            ask(&mut client, request.as_bytes(), &mut buffer).await;
        }
    });
}

#[test]
#[ignore = "counted by make instructions"]
fn request() {
    count_requests(100, false);
}

/// Each request has a stream of its own, as the connector spreads streams.
#[test]
#[ignore = "counted by make instructions"]
fn spread_request() {
    count_requests(100, true);
}

#[test]
#[ignore = "counted by make instructions"]
fn http2_request() {
    count(async |world, gate| {
        let mut socket = world.socket();
        let origin = origin(|_| async { Response::new(text("END\n")) }).await;
        let _connector = world.tunnel(&mut socket, origin).await;
        let mut client = world.http2(&socket).await;
        let uri = format!("https://{}/100b", socket.host());
        let mut round = async || {
            let request = Request::get(&uri).body(text("")).unwrap();
            let response = soon(client.send_request(request)).await.unwrap();
            assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), END);
        };
        for _ in 0..WARM_UP_ROUNDS {
            round().await;
        }
        gate.pass().await;
        for _ in 0..ROUNDS {
            round().await;
        }
    });
}

/// Small requests and responses on one connection to a TCP socket.
#[test]
#[ignore = "counted by make instructions"]
fn flow_echo() {
    count(async |world, gate| {
        let (client, request) = (tcp_socket(&world).await, [&[b'q'; 100], END].concat());
        let mut tcp = connect(client.addr).await;
        let mut buffer = [0; 4_096];
        for _ in 0..WARM_UP_ROUNDS {
            ask(&mut tcp, &request, &mut buffer).await;
        }
        gate.pass().await;
        for _ in 0..ROUNDS {
            ask(&mut tcp, &request, &mut buffer).await;
        }
    });
}

/// One connection for each request.
#[test]
#[ignore = "counted by make instructions"]
fn flow_of_its_own() {
    count(async |world, gate| {
        let (client, request) = (tcp_socket(&world).await, [&[b'q'; 100], END].concat());
        let mut buffer = [0; 4_096];
        let mut round = async || {
            let mut tcp = connect(client.addr).await;
            ask(&mut tcp, &request, &mut buffer).await;
            tcp.shutdown().await.unwrap();
            assert_eq!(soon(tcp.read(&mut buffer)).await.unwrap(), 0);
        };
        for _ in 0..WARM_UP_ROUNDS {
            round().await;
        }
        gate.pass().await;
        for _ in 0..ROUNDS {
            round().await;
        }
    });
}

/// A TCP socket with an echo origin.
struct EchoSocket {
    addr: std::net::SocketAddr,
    _connector: Connector,
}

async fn tcp_socket(world: &World) -> EchoSocket {
    let mut socket = world.socket();
    let echo = service(|mut tcp| async move {
        let (mut read, mut write) = tcp.split();
        let _ = tokio::io::copy(&mut read, &mut write).await;
        let _ = write.shutdown().await;
    });
    let connector = world.tunnel(&mut socket, echo.await).await;
    EchoSocket { addr: socket.set_type(world, SocketType::Tcp).await, _connector: connector }
}
