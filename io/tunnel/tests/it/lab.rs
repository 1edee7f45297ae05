//! The test bench: edges, connectors, and the connections between them.

use std::{
    collections::HashMap,
    future::Future,
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use sallyport_model::{SocketId, TunnelId};
use sallyport_net::{Certificates, LocalCa, Trust, client_config, connect_tls, server_config};
use sallyport_tunnel::{
    Admission, Admitted, BoxFuture, BoxedCarrier, ConnectorConfig, ConnectorError, ConnectorEvent, Dial, EdgeTunnels,
    EdgeTunnelsConfig, IncomingStream, OriginHandler, SessionId, TunnelCredential, TunnelHandle, TunnelStream,
    run_connector,
};
use sallyport_wire::{ALPN, Open, Refusal, StreamProtocol};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    sync::{mpsc, watch},
    task::JoinHandle,
};
use tokio_rustls::TlsAcceptor;

/// The longest wait in a test, longer than any step takes on a slow machine.
pub(crate) const LONG: Duration = Duration::from_secs(60);
/// Tunnels with this number and higher ones carry datagrams.
pub(crate) const FIRST_UDP: u8 = 100;
pub(crate) const CREDENTIAL: &str = "open sesame";

pub(crate) fn peer() -> SocketAddr {
    "192.0.2.7:4000".parse().unwrap()
}

pub(crate) fn tunnel(number: u8) -> TunnelId {
    TunnelId::from_random([number; 16])
}

pub(crate) fn open_for(tunnel: TunnelId) -> Open {
    Open {
        tunnel,
        protocol: StreamProtocol::Raw,
        client: "198.51.100.1:1234".parse().unwrap(),
        destination: Some("192.0.2.1:8443".parse().unwrap()),
        opened_at_us: 1_700_000_000_000_000,
        server_name: "calm-bay-1000.localhost".into(),
    }
}

pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, future).await.expect("this should not take so long")
}

/// Waits until the condition holds.
pub(crate) async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + LONG;
    while !condition() {
        assert!(tokio::time::Instant::now() < deadline, "in vain: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Admits tunnels with the right credential, and records the attachments.
#[derive(Default)]
pub(crate) struct Doorman {
    pub(crate) handles: Mutex<HashMap<TunnelId, TunnelHandle>>,
    pub(crate) log: Mutex<Vec<(TunnelId, SessionId, String)>>,
    /// The count of credentials checked.
    pub(crate) judged: AtomicUsize,
}

impl Admission for Doorman {
    fn admit(&self, tunnel: TunnelId, credential: &str, _peer: SocketAddr) -> Result<Admitted, Refusal> {
        self.judged.fetch_add(1, Ordering::Relaxed);
        if credential != CREDENTIAL {
            return Err(Refusal::new("bad-credential", "the credential is wrong", false));
        }
        let datagrams = tunnel.as_bytes()[0] >= FIRST_UDP;
        Ok(Admitted { socket: SocketId::from_random([1; 16]), url: format!("https://{tunnel}.localhost"), datagrams })
    }

    fn attached(&self, tunnel: TunnelHandle) {
        self.log.lock().unwrap().push((tunnel.tunnel(), tunnel.session(), "attached".into()));
        self.handles.lock().unwrap().insert(tunnel.tunnel(), tunnel);
    }

    fn detached(&self, tunnel: TunnelId, session: SessionId, reason: &str) {
        self.log.lock().unwrap().push((tunnel, session, reason.into()));
        let mut handles = self.handles.lock().unwrap();
        if handles.get(&tunnel).is_some_and(|handle| handle.session() == session) {
            handles.remove(&tunnel);
        }
    }
}

#[derive(Clone)]
pub(crate) struct Edge {
    pub(crate) tunnels: EdgeTunnels,
    pub(crate) doorman: Arc<Doorman>,
}

impl Edge {
    pub(crate) fn new() -> Self {
        Self::with(EdgeTunnelsConfig::default())
    }

    pub(crate) fn with(config: EdgeTunnelsConfig) -> Self {
        let doorman = Arc::new(Doorman::default());
        Self { tunnels: EdgeTunnels::new(config, doorman.clone()), doorman }
    }

    pub(crate) fn handle(&self, tunnel: TunnelId) -> Option<TunnelHandle> {
        self.doorman.handles.lock().unwrap().get(&tunnel).cloned()
    }

    pub(crate) async fn attached(&self, tunnel: TunnelId) -> TunnelHandle {
        until("the tunnel attaches", || self.handle(tunnel).is_some()).await;
        self.handle(tunnel).unwrap()
    }

    /// Waits for the tunnel and its first legs.
    pub(crate) async fn ready(&self, tunnel: TunnelId) -> TunnelHandle {
        let handle = self.attached(tunnel).await;
        until("the first legs join", || self.tunnels.stats().legs_idle >= 8).await;
        handle
    }
}

/// A dialer of an edge: pipes in memory, each served by the edge in a task.
#[derive(Clone)]
pub(crate) struct Pipes {
    pub(crate) edge: Arc<Mutex<Edge>>,
    pub(crate) dialed: Arc<AtomicUsize>,
    /// From this dial on, dials of legs fail.
    pub(crate) max_dials: usize,
}

impl Pipes {
    pub(crate) fn to(edge: &Edge) -> Self {
        Self { edge: Arc::new(Mutex::new(edge.clone())), dialed: Arc::default(), max_dials: usize::MAX }
    }
}

impl Dial for Pipes {
    fn dial(&self) -> BoxFuture<'static, io::Result<BoxedCarrier>> {
        let edge = self.edge.lock().unwrap().clone();
        let fails = self.dialed.fetch_add(1, Ordering::Relaxed) >= self.max_dials;
        Box::pin(async move {
            if fails {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            let (near, far) = tokio::io::duplex(256 * 1024);
            tokio::spawn(async move { edge.tunnels.serve_carrier(far, peer()).await });
            Ok(Box::new(near) as BoxedCarrier)
        })
    }
}

/// A dialer of an edge over loopback TCP and TLS.
pub(crate) struct Tls {
    port: u16,
    config: Arc<rustls::ClientConfig>,
    _directory: tempfile::TempDir,
}

impl Tls {
    pub(crate) async fn to(edge: &Edge) -> Arc<Self> {
        let directory = tempfile::tempdir().unwrap();
        let ca = LocalCa::open_or_create(directory.path(), "localhost").unwrap();
        let trust = Trust::Ca(ca.pem_path().to_owned());
        let server = server_config(Certificates::new(ca, "localhost").unwrap(), ALPN);
        let config = client_config(&trust, &[ALPN]).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let edge = edge.clone();
        tokio::spawn(async move {
            while let Ok((stream, peer)) = listener.accept().await {
                let (acceptor, edge) = (TlsAcceptor::from(server.clone()), edge.clone());
                stream.set_nodelay(true).unwrap();
                tokio::spawn(async move {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        edge.tunnels.serve_carrier(stream, peer).await;
                    }
                });
            }
        });
        Arc::new(Self { port, config, _directory: directory })
    }
}

impl Dial for Tls {
    fn dial(&self) -> BoxFuture<'static, io::Result<BoxedCarrier>> {
        let (port, config) = (self.port, self.config.clone());
        Box::pin(async move {
            let stream = connect_tls("127.0.0.1", port, "tunnel.localhost", config, LONG).await?;
            Ok(Box::new(stream) as BoxedCarrier)
        })
    }
}

/// An origin from a function.
pub(crate) struct Origin<F>(pub(crate) F);

impl<F, T> OriginHandler for Origin<F>
where
    F: Fn(Open, IncomingStream) -> T + Send + Sync + 'static,
    T: Future<Output = ()> + Send + 'static,
{
    fn serve(&self, open: Open, stream: IncomingStream) -> BoxFuture<'static, ()> {
        Box::pin(self.0(open, stream))
    }
}

/// Echoes bytes, and ends when the client ends.
pub(crate) fn echo() -> Arc<dyn OriginHandler> {
    Arc::new(Origin(|_open, stream: IncomingStream| async move {
        let Ok(stream) = stream.opened().await else { return };
        let _ = echo_on(stream).await;
    }))
}

pub(crate) async fn echo_on(stream: TunnelStream) -> io::Result<()> {
    let (mut reader, mut writer) = tokio::io::split(stream);
    tokio::io::copy(&mut reader, &mut writer).await?;
    writer.shutdown().await
}

/// A running connector.
pub(crate) struct Connector {
    pub(crate) task: JoinHandle<Result<(), ConnectorError>>,
    pub(crate) events: mpsc::Receiver<ConnectorEvent>,
    stop: watch::Sender<bool>,
}

impl Connector {
    pub(crate) fn start(dial: Arc<dyn Dial>, origin: Arc<dyn OriginHandler>, tunnels: &[TunnelId]) -> Self {
        Self::start_with(dial, origin, tunnels, |_| ())
    }

    pub(crate) fn start_with(
        dial: Arc<dyn Dial>,
        origin: Arc<dyn OriginHandler>,
        tunnels: &[TunnelId],
        change: impl FnOnce(&mut ConnectorConfig),
    ) -> Self {
        let credential = |&tunnel| TunnelCredential {
            tunnel,
            credential: CREDENTIAL.into(),
            request_log: true,
            origin: None,
            spreads: false,
        };
        let mut config = ConnectorConfig::new("test/1", [9; 16], tunnels.iter().map(credential).collect());
        change(&mut config);
        let (events_in, events) = mpsc::channel(1_024);
        let (stop, mut stopped) = watch::channel(false);
        let shutdown = async move {
            let _ = stopped.wait_for(|stop| *stop).await;
        };
        let task = tokio::spawn(run_connector(config, dial, origin, events_in, shutdown));
        Self { task, events, stop }
    }

    pub(crate) fn ask_to_stop(&self) {
        self.stop.send_replace(true);
    }

    /// Waits for an event that the function accepts.
    pub(crate) async fn event<T>(&mut self, mut known: impl FnMut(&ConnectorEvent) -> Option<T>) -> T {
        soon(async {
            loop {
                let event = self.events.recv().await.expect("the connector runs");
                if let Some(found) = known(&event) {
                    return found;
                }
            }
        })
        .await
    }
}

/// Sends the bytes, ends that direction, and reads the answer to its end.
pub(crate) async fn exchange(mut stream: TunnelStream, bytes: &[u8]) -> io::Result<Vec<u8>> {
    stream.write_all(bytes).await?;
    stream.shutdown().await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(answer)
}
