//! The test harness: an edge on a free port, with connectors, origins and clients.

use std::{
    convert::Infallible,
    future::Future,
    io,
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU16, AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use sallyport_bus::{Directory, Routes};
use sallyport_edge::{ApiRequestBody, BoxError, Edge, EdgeConfig, ShutdownReport};
use sallyport_model::{
    AccountId, BasicAuth, CredentialHash, OriginProtocol, SocketId, SocketRoute, SocketType, TunnelId, TunnelRoute,
};
use sallyport_net::{Certificates, HandOver, Listening, LocalCa, Shutdown, TakeoverOffer, Trust, client_config};
use sallyport_tunnel::{
    BoxFuture, BoxedCarrier, ConnectorConfig, ConnectorEvent, Dial, FlowHandler, IncomingStream, OriginHandler,
    TunnelCredential, run_connector,
};
use sallyport_wire::{ALPN, FailureReason, Open, OpenFailure, Refusal};
use sha2::{Digest, Sha256};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    task::JoinHandle,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

/// The limit of each wait: more than any step takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) type Client = TlsStream<TcpStream>;
pub(crate) type TestBody = UnsyncBoxBody<Bytes, BoxError>;

/// Awaits the future, and fails the test after [`PATIENCE`].
pub(crate) async fn soon<F: Future>(what: F) -> F::Output {
    tokio::time::timeout(PATIENCE, what).await.expect("this takes far too long")
}

pub(crate) struct World {
    pub(crate) edge: Arc<Edge>,
    pub(crate) addr: SocketAddr,
    pub(crate) plain_addr: SocketAddr,
    pub(crate) routes: Routes,
    pub(crate) directory: Directory,
    pub(crate) shutdown: Shutdown,
    serving: JoinHandle<anyhow::Result<ShutdownReport>>,
    ca: PathBuf,
    count: AtomicUsize,
    ports: HandOver,
    dir: Arc<tempfile::TempDir>,
}

impl World {
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| ()).await
    }

    pub(crate) async fn start_with(change: impl FnOnce(&mut EdgeConfig)) -> Self {
        let free: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let listening = Listening::bind(free, Some(free)).unwrap();
        let dir = Arc::new(tempfile::tempdir().unwrap());
        Self::start_on(listening, dir, Routes::default(), change, |_, _| ())
    }

    /// Starts one of several edges that share these routes and the authority in this directory. The function `prepare`
    /// runs before the edge serves.
    pub(crate) fn start_beside(
        ip: [u8; 4],
        dir: Arc<tempfile::TempDir>,
        routes: Routes,
        change: impl FnOnce(&mut EdgeConfig),
        prepare: impl FnOnce(&Edge, SocketAddr),
    ) -> Self {
        let free: SocketAddr = (ip, 0).into();
        let world = Self::start_on(Listening::bind(free, Some(free)).unwrap(), dir, routes, change, prepare);
        // Each edge numbers its sockets and tunnels in a range of its own.
        world.count.store(usize::from(ip[3]) * 8 % 240, Ordering::Relaxed);
        world
    }

    /// Starts another edge that takes over the ports of this edge, while this edge drains.
    pub(crate) async fn successor(&self) -> Self {
        let offer = TakeoverOffer::open(self.dir.path()).unwrap();
        let path = self.dir.path().to_owned();
        let asks = tokio::task::spawn_blocking(move || sallyport_net::Takeover::begin(&path)?.finish());
        let mut asked = soon(soon(offer.asked()).await.ready(&self.ports)).await.unwrap();
        asked.send(&self.ports).unwrap();
        self.shutdown.trigger();
        asked.released().unwrap();
        let listening = soon(asks).await.unwrap().unwrap();
        Self::start_on(listening, self.dir.clone(), self.routes.clone(), |_| (), |_, _| ())
    }

    fn start_on(
        listening: Listening,
        dir: Arc<tempfile::TempDir>,
        routes: Routes,
        change: impl FnOnce(&mut EdgeConfig),
        prepare: impl FnOnce(&Edge, SocketAddr),
    ) -> Self {
        let authority = LocalCa::open_or_create(dir.path(), "localhost").unwrap();
        let ca = authority.pem_path().to_owned();
        let certificates = Certificates::new(authority, "localhost").unwrap();
        let ports = HandOver::of(&listening).unwrap();
        let (addr, plain_addr) = (listening.tls_addr().unwrap(), listening.redirect_addr().unwrap().unwrap());
        let mut config = EdgeConfig::new("localhost", addr.port());
        change(&mut config);
        let directory = Directory::default();
        let api = Arc::new(|request: Request<ApiRequestBody>, client: sallyport_model::ClientAddr| {
            let body = format!("api {} for {}", request.uri().path(), client.0.ip());
            let reads = request.uri().path() == "/v1/read";
            Box::pin(async move {
                if reads {
                    let _ = request.into_body().collect().await;
                }
                Response::new(text(body))
            }) as BoxFuture<'static, Response<TestBody>>
        });
        let edge = Edge::new(config, routes.clone(), directory.clone(), api);
        prepare(&edge, addr);
        let mut registry = prometheus_client::registry::Registry::default();
        edge.register_metrics(&mut registry);
        edge.publish_metrics(registry);
        let shutdown = Shutdown::new();
        let serving = tokio::spawn({
            let (edge, shutdown) = (edge.clone(), shutdown.clone());
            async move { edge.serve(listening, certificates, shutdown).await }
        });
        let count = AtomicUsize::new(0);
        Self { edge, addr, plain_addr, routes, directory, shutdown, serving, ca, count, ports, dir }
    }

    /// Ends the edge as SIGTERM would.
    pub(crate) async fn stop(self) -> ShutdownReport {
        self.shutdown.trigger();
        drop(self.ports);
        soon(self.serving).await.unwrap().unwrap()
    }

    /// Adds a socket without tunnels.
    pub(crate) fn socket(&self) -> TestSocket {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let route = SocketRoute {
            id: SocketId::from_random([u8::try_from(number).unwrap(); 16]),
            account: AccountId::from_random([0; 16]),
            name: format!("calm-bay-{}", 1_000 + number).parse().unwrap(),
            socket_type: SocketType::Http,
            origin_protocol: OriginProtocol::Auto,
            basic_auth: None,
            port: None,
            settings: Default::default(),
            policies: Vec::new(),
            client_authority: None,
            tunnels: Vec::new(),
            origins: Vec::new(),
            domains: Vec::new(),
        };
        self.routes.put(route.clone());
        TestSocket { route }
    }

    /// Adds a tunnel to the socket, and connects a connector that dials this origin. Returns when the tunnel is up.
    pub(crate) async fn tunnel(&self, socket: &mut TestSocket, origin: SocketAddr) -> Connector {
        let id = self.new_tunnel(socket);
        self.connect(id, origin).await
    }

    /// Adds a tunnel without a connector.
    pub(crate) fn new_tunnel(&self, socket: &mut TestSocket) -> TunnelId {
        let number = u8::try_from(self.count.fetch_add(1, Ordering::Relaxed)).unwrap();
        let id = TunnelId::from_random([number; 16]);
        socket.route.tunnels.push(TunnelRoute {
            capacity: sallyport_model::Capacity::default(),
            id,
            credential: CredentialHash(Sha256::digest(credential(id)).into()),
            weight: sallyport_model::DEFAULT_WEIGHT,
            forward_port: 1_024 + u16::from(number),
            path: Default::default(),
        });
        self.routes.put(socket.route.clone());
        id
    }

    /// Connects a connector for this tunnel. Returns when the tunnel is up.
    pub(crate) async fn connect(&self, tunnel: TunnelId, origin: SocketAddr) -> Connector {
        self.connect_with(tunnel, Arc::new(DialOrigin(origin))).await
    }

    /// Connects a connector with this handler for the tunnel. Returns when the tunnel is up.
    pub(crate) async fn connect_with(&self, tunnel: TunnelId, handler: Arc<dyn OriginHandler>) -> Connector {
        self.try_connect(tunnel, handler).await.unwrap_or_else(|refusal| panic!("not attached: {refusal}"))
    }

    /// The reason why the edge refuses a connector for this tunnel.
    pub(crate) async fn refusal(&self, tunnel: TunnelId) -> Refusal {
        match self.try_connect(tunnel, Arc::new(DialOrigin(self.addr))).await {
            Ok(_) => panic!("the tunnel was attached"),
            Err(refusal) => refusal,
        }
    }

    async fn try_connect(&self, tunnel: TunnelId, handler: Arc<dyn OriginHandler>) -> Result<Connector, Refusal> {
        let tls = client_config(&Trust::Ca(self.ca.clone()), &[ALPN]).unwrap();
        let dial = Arc::new(TestDial { addr: self.addr, tls: TlsConnector::from(tls) });
        let (events, mut received_events) = mpsc::channel(1_024);
        let origin = Some("app.internal:3000".parse().unwrap());
        let held = TunnelCredential { tunnel, credential: credential(tunnel), request_log: true, origin, spreads: false };
        let mut id = [0; 16];
        getrandom::fill(&mut id).unwrap();
        let config = ConnectorConfig::new("test/1", id, vec![held]);
        let stop = Shutdown::new();
        let task = tokio::spawn({
            let stop = stop.clone();
            async move { run_connector(config, dial, handler, events, async move { stop.wait().await }).await }
        });
        loop {
            match soon(received_events.recv()).await.expect("the connector is there") {
                ConnectorEvent::Attached { .. } => break,
                ConnectorEvent::NotAttached { refusal, .. } => return Err(refusal),
                _ => {}
            }
        }
        let (log_in, log) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some(event) = received_events.recv().await {
                let _ = log_in.send(event);
            }
        });
        Ok(Connector { tunnel, stop, task, log })
    }

    /// Opens a client's TLS connection that offers these protocols.
    pub(crate) async fn client_with(&self, name: &str, alpn: &[&[u8]]) -> Client {
        self.client_at(self.addr, name, alpn).await.unwrap()
    }

    /// The roots that clients of this world trust.
    pub(crate) fn roots(&self) -> rustls::RootCertStore {
        sallyport_net::roots(&Trust::Ca(self.ca.clone())).unwrap()
    }

    /// Opens a TLS connection to this address, for a client that trusts this world's authority.
    pub(crate) async fn client_at(&self, addr: SocketAddr, name: &str, alpn: &[&[u8]]) -> io::Result<Client> {
        self.client_over(TcpStream::connect(addr).await?, name, alpn).await
    }

    /// Opens a client's TLS connection over this TCP connection.
    pub(crate) async fn client_over(&self, tcp: TcpStream, name: &str, alpn: &[&[u8]]) -> io::Result<Client> {
        let tls = client_config(&Trust::Ca(self.ca.clone()), alpn).unwrap();
        tcp.set_nodelay(true)?;
        let name = ServerName::try_from(name.to_owned()).unwrap();
        soon(TlsConnector::from(tls).connect(name, tcp)).await
    }

    /// Opens a client's connection for raw HTTP/1.1.
    pub(crate) async fn client(&self, socket: &TestSocket) -> Client {
        self.client_with(&socket.host(), &[b"http/1.1"]).await
    }

    /// Sends one GET on a connection of its own.
    pub(crate) async fn get(&self, socket: &TestSocket, path: &str) -> HttpResponse {
        let head = format!("GET {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", socket.host());
        self.raw(socket, head.as_bytes()).await
    }

    /// Sends these bytes on a connection of their own, and returns the first response.
    pub(crate) async fn raw(&self, socket: &TestSocket, bytes: &[u8]) -> HttpResponse {
        let mut client = self.client(socket).await;
        client.write_all(bytes).await.unwrap();
        read_response(&mut client).await
    }

    /// Opens a client's HTTP/2 connection.
    pub(crate) async fn http2(&self, socket: &TestSocket) -> hyper::client::conn::http2::SendRequest<TestBody> {
        let tls = self.client_with(&socket.host(), &[b"h2"]).await;
        assert_eq!(tls.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let (sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(tls)).await.unwrap();
        tokio::spawn(connection);
        sender
    }
}

pub(crate) struct TestSocket {
    pub(crate) route: SocketRoute,
}

impl TestSocket {
    pub(crate) fn host(&self) -> String {
        format!("{}.localhost", self.route.name)
    }

    pub(crate) fn speaks(&mut self, world: &World, protocol: OriginProtocol) {
        self.route.origin_protocol = protocol;
        world.routes.put(self.route.clone());
    }

    pub(crate) fn protect(&mut self, world: &World, username: &str, password: &str) {
        use argon2::PasswordHasher;
        let cheap = argon2::Params::new(8, 1, 1, None).unwrap();
        let argon = argon2::Argon2::new(argon2::Algorithm::Argon2id, argon2::Version::V0x13, cheap);
        let hash = argon.hash_password_with_salt(password.as_bytes(), b"salt-for-tests").unwrap().to_string();
        self.route.basic_auth = Some(BasicAuth { username: username.to_owned(), password_hash: hash });
        world.routes.put(self.route.clone());
    }
}

fn credential(tunnel: TunnelId) -> String {
    format!("secret of {tunnel}")
}

pub(crate) struct Connector {
    pub(crate) tunnel: TunnelId,
    stop: Shutdown,
    task: JoinHandle<Result<(), sallyport_tunnel::ConnectorError>>,
    pub(crate) log: mpsc::UnboundedReceiver<ConnectorEvent>,
}

impl Connector {
    /// Stops the connector as SIGTERM would.
    pub(crate) async fn stop(self) {
        self.stop.trigger();
        soon(self.task).await.unwrap().unwrap();
    }

    /// Ends every connection of the connector at once without notice, as SIGKILL would.
    pub(crate) fn kill(self) {
        self.task.abort();
    }
}

struct TestDial {
    addr: SocketAddr,
    tls: TlsConnector,
}

impl Dial for TestDial {
    fn dial(&self) -> BoxFuture<'static, io::Result<BoxedCarrier>> {
        let (addr, tls) = (self.addr, self.tls.clone());
        Box::pin(async move {
            let tcp = TcpStream::connect(addr).await?;
            tcp.set_nodelay(true)?;
            let name = ServerName::try_from("tunnel.localhost").map_err(io::Error::other)?;
            Ok(Box::new(tls.connect(name, tcp).await?) as BoxedCarrier)
        })
    }
}

/// An origin handler that dials the origin for each stream.
struct DialOrigin(SocketAddr);

impl OriginHandler for DialOrigin {
    fn flows(&self) -> Option<Arc<dyn FlowHandler>> {
        Some(Arc::new(crate::udp::DialUdp(self.0)))
    }

    fn serve(&self, _open: Open, stream: IncomingStream) -> BoxFuture<'static, ()> {
        let addr = self.0;
        Box::pin(async move {
            let mut origin = match TcpStream::connect(addr).await {
                Ok(origin) => origin,
                Err(error) => {
                    stream.failed(OpenFailure::new(FailureReason::Refused, &error.to_string())).await;
                    return;
                }
            };
            let _ = origin.set_nodelay(true);
            if let Ok(mut stream) = stream.opened().await {
                let _ = tokio::io::copy_bidirectional(&mut stream, &mut origin).await;
            }
        })
    }
}

/// A port that is free in TCP and UDP. The port lies below the system's ephemeral range, so no other program gets it by
/// chance.
pub(crate) fn free_port() -> u16 {
    static TRIED: AtomicU16 = AtomicU16::new(0);
    let first = 21_000 + u16::try_from(std::process::id() % 8_000).unwrap();
    loop {
        let at = ("127.0.0.1", first + TRIED.fetch_add(1, Ordering::Relaxed));
        if std::net::TcpListener::bind(at).is_ok() && std::net::UdpSocket::bind(at).is_ok() {
            return at.1;
        }
    }
}

/// An address at which nothing ever listens.
pub(crate) fn dead_origin() -> SocketAddr {
    ([127, 0, 0, 1], free_port()).into()
}

/// An HTTP/1.1 origin. Returns its address and the count of its connections.
pub(crate) async fn origin<F, R>(handle: F) -> SocketAddr
where
    F: Fn(Request<Incoming>) -> R + Clone + Send + 'static,
    R: Future<Output = Response<TestBody>> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let _ = tcp.set_nodelay(true);
            let handle = handle.clone();
            tokio::spawn(async move {
                let service = service_fn(move |request| {
                    let response = handle(request);
                    async move { Ok::<_, Infallible>(response.await) }
                });
                let _ = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(tcp), service)
                    .with_upgrades()
                    .await;
            });
        }
    });
    addr
}

/// An origin that speaks HTTP/2 with prior knowledge.
pub(crate) async fn h2_origin<F, R>(handle: F) -> SocketAddr
where
    F: Fn(Request<Incoming>) -> R + Clone + Send + 'static,
    R: Future<Output = Response<TestBody>> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let handle = handle.clone();
            tokio::spawn(async move {
                let service = service_fn(move |request| {
                    let response = handle(request);
                    async move { Ok::<_, Infallible>(response.await) }
                });
                let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(tcp), service)
                    .await;
            });
        }
    });
    addr
}

/// An origin of raw bytes, which passes each connection to this function.
pub(crate) async fn raw_origin<F, R>(handle: F) -> (SocketAddr, Arc<AtomicUsize>)
where
    F: Fn(TcpStream) -> R + Send + 'static,
    R: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    tokio::spawn({
        let count = count.clone();
        async move {
            while let Ok((tcp, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(handle(tcp));
            }
        }
    });
    (addr, count)
}

pub(crate) fn text(text: impl Into<Bytes>) -> TestBody {
    Full::new(text.into()).map_err(|never: Infallible| match never {}).boxed_unsync()
}

/// An origin that responds with its name.
pub(crate) async fn named_origin(name: &'static str) -> SocketAddr {
    origin(move |_| async move { Response::new(text(name)) }).await
}

/// An HTTP/1.1 response, as a client reads it.
#[derive(Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    /// Whether the body came to its end.
    pub(crate) complete: bool,
}

impl HttpResponse {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (field, value) = line.split_once(':')?;
            field.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// Reads up to the end of a head.
pub(crate) async fn read_head(io: &mut (impl AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match soon(io.read_u8()).await {
            Ok(byte) => head.push(byte),
            Err(error) => panic!("no whole head: {error}; {:?}", String::from_utf8_lossy(&head)),
        }
    }
    String::from_utf8(head).unwrap()
}

/// Reads one response to a request other than HEAD.
pub(crate) async fn read_response(io: &mut (impl AsyncRead + Unpin)) -> HttpResponse {
    let head = read_head(io).await;
    let status: u16 = head.split(' ').nth(1).unwrap().parse().unwrap();
    let mut response = HttpResponse { status, head, body: Vec::new(), complete: true };
    if let Some(length) = response.header("content-length").map(|length| length.parse::<usize>().unwrap()) {
        response.body.resize(length, 0);
        response.complete = soon(io.read_exact(&mut response.body)).await.is_ok();
    } else if response.header("transfer-encoding") == Some("chunked") {
        response.complete = read_chunks(io, &mut response.body).await.is_ok();
    } else if status >= 200 && status != 204 && status != 304 {
        response.complete = soon(io.read_to_end(&mut response.body)).await.is_ok();
    }
    response
}

/// Reads chunks, and appends trailers unchanged.
async fn read_chunks(io: &mut (impl AsyncRead + Unpin), body: &mut Vec<u8>) -> io::Result<()> {
    loop {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            line.push(soon(io.read_u8()).await?);
        }
        let size = usize::from_str_radix(std::str::from_utf8(&line).unwrap().trim(), 16).unwrap();
        if size == 0 {
            while !(line.ends_with(b"\r\n\r\n") || line == b"0\r\n\r\n") {
                line.push(soon(io.read_u8()).await?);
            }
            body.extend_from_slice(&line[3..line.len() - 2]);
            return Ok(());
        }
        let start = body.len();
        body.resize(start + size, 0);
        soon(io.read_exact(&mut body[start..])).await?;
        let mut end = [0; 2];
        soon(io.read_exact(&mut end)).await?;
        assert_eq!(&end, b"\r\n");
    }
}

/// Reads until the peer ends the connection, orderly or not.
pub(crate) async fn read_rest(io: &mut (impl AsyncRead + Unpin)) -> Vec<u8> {
    let mut rest = Vec::new();
    let _ = soon(io.read_to_end(&mut rest)).await;
    rest
}

/// Writes, and ignores errors of a closed connection.
pub(crate) async fn write_lossy(io: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) {
    let _ = io.write_all(bytes).await;
    let _ = io.flush().await;
}

/// Waits until the condition holds.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let asked = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, asked).await.unwrap_or_else(|_| panic!("not so in time: {what}"));
}

/// Runs this test in a process of its own, because other tests change process-wide state: memory, and interest in
/// spans. Returns whether the caller already runs in such a process.
pub(crate) async fn is_alone(test: &str) -> bool {
    const ALONE: &str = "SALLYPORT_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
    alone.args(["--exact", test]).env(ALONE, "1");
    let output = tokio::task::spawn_blocking(move || alone.output()).await.unwrap().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && stdout.contains("1 passed"), "{stdout}");
    false
}

/// The memory in use by this process, in bytes.
pub(crate) fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4_096
}
