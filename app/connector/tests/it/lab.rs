//! An edge, a connector before a service, and streams through both.

use std::{future::Future, io, net::SocketAddr, sync::Arc, time::Duration};

use sallyport_connector::{
    ALPN, ConnectorEvent, ConnectorOptions, OriginTls, Service, Transport, TransportChoice, TunnelCredential,
};
use sallyport_model::{OriginAddr, SocketId, TunnelId};
use sallyport_net::{Certificates, LocalCa, Outbound, Shutdown, Trust, client_config, server_config};
use sallyport_tunnel::{Admission, Admitted, EdgeTunnels, EdgeTunnelsConfig, SessionId, TunnelHandle, TunnelStream};
use sallyport_wire::{FailureReason, Open, OpenFailure, Refusal, StreamProtocol};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{mpsc, watch},
    task::JoinHandle,
};
use tokio_rustls::TlsAcceptor;

const LONG: Duration = Duration::from_secs(60);

pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, future).await.expect("this should not take so long")
}

pub(crate) fn tunnel() -> TunnelId {
    TunnelId::from_random([5; 16])
}

/// Certificates for `localhost` and the names beneath it.
pub(crate) struct Names {
    pub(crate) certificates: Arc<Certificates>,
    _directory: tempfile::TempDir,
}

impl Names {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let ca = LocalCa::open_or_create(directory.path(), "localhost").unwrap();
        Self { certificates: Certificates::new(ca, "localhost").unwrap(), _directory: directory }
    }

    pub(crate) fn ca_file(&self) -> std::path::PathBuf {
        self.certificates.ca().unwrap().pem_path().to_owned()
    }
}

struct FixedAdmission {
    present: watch::Sender<Option<TunnelHandle>>,
    datagrams: bool,
}

impl Admission for FixedAdmission {
    fn admit(&self, _: TunnelId, credential: &str, _: SocketAddr) -> Result<Admitted, Refusal> {
        match credential {
            "good" => Ok(Admitted {
                socket: SocketId::from_random([1; 16]),
                url: "https://calm.localhost".into(),
                datagrams: self.datagrams,
            }),
            _ => Err(Refusal::new("bad-credential", "the credential is wrong", false)),
        }
    }

    fn attached(&self, tunnel: TunnelHandle) {
        self.present.send_replace(Some(tunnel));
    }

    fn detached(&self, _: TunnelId, _: SessionId, _: &str) {
        self.present.send_replace(None);
    }
}

/// An edge on its own port.
pub(crate) struct Edge {
    pub(crate) tunnels: EdgeTunnels,
    pub(crate) port: u16,
    pub(crate) names: Names,
    handle: watch::Receiver<Option<TunnelHandle>>,
}

impl Edge {
    pub(crate) async fn start() -> Self {
        Self::start_for(false).await
    }

    /// An edge, optionally with datagrams.
    pub(crate) async fn start_for(datagrams: bool) -> Self {
        let names = Names::new();
        let (present, handle) = watch::channel(None);
        let tunnels = EdgeTunnels::new(EdgeTunnelsConfig::default(), Arc::new(FixedAdmission { present, datagrams }));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let acceptor = TlsAcceptor::from(server_config(names.certificates.clone(), ALPN));
        let serving = tunnels.clone();
        tokio::spawn(async move {
            while let Ok((stream, peer)) = listener.accept().await {
                let (acceptor, tunnels) = (acceptor.clone(), serving.clone());
                tokio::spawn(async move {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        tunnels.serve_carrier(stream, peer).await;
                    }
                });
            }
        });
        Self { tunnels, port, names, handle }
    }

    /// The tunnel, once it is attached.
    pub(crate) async fn handle(&self) -> TunnelHandle {
        let mut handle = self.handle.clone();
        soon(handle.wait_for(Option::is_some)).await.unwrap().clone().unwrap()
    }

    pub(crate) async fn open(&self, protocol: StreamProtocol) -> TunnelStream {
        let open = Open {
            tunnel: tunnel(),
            protocol,
            client: "198.51.100.1:1234".parse().unwrap(),
            destination: None,
            opened_at_us: 1_700_000_000_000_000,
            server_name: "calm.localhost".into(),
        };
        self.handle().await.open(open).unwrap()
    }

    /// Why a stream cannot be opened.
    pub(crate) async fn failure(&self, protocol: StreamProtocol) -> OpenFailure {
        let mut stream = self.open(protocol).await;
        let establishment = stream.establishment();
        stream.write_all(b"hello?").await.unwrap();
        let error = soon(stream.read_u8()).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused, "{error}");
        soon(establishment.wait()).await.unwrap_err()
    }

    /// Sends the bytes and the end, and reads the answer to its end.
    pub(crate) async fn exchange(&self, protocol: StreamProtocol, bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut stream = self.open(protocol).await;
        stream.write_all(bytes).await?;
        stream.shutdown().await?;
        let mut answer = Vec::new();
        soon(stream.read_to_end(&mut answer)).await?;
        Ok(answer)
    }

    pub(crate) fn options(&self, origin_port: u16) -> ConnectorOptions {
        ConnectorOptions {
            agent: "test/1".into(),
            edge_host: "localhost".into(),
            edge_port: self.port,
            quic_port: None,
            tls: client_config(&Trust::Ca(self.names.ca_file()), &[ALPN]).unwrap(),
            transport: TransportChoice::Only(Transport::Tcp),
            links: None,
            outbound: Outbound::default(),
            services: vec![service_at(origin_port)],
            redundancy: 2,
            region: None,
            edges: Vec::new(),
            max_legs: 512,
            keepalive: Duration::from_secs(10),
            drain: Duration::from_secs(30),
            shards: Default::default(),
            capture: None,
        }
    }
}

/// The service on this port, with the edge's one tunnel.
pub(crate) fn service_at(port: u16) -> Service {
    Service {
        tunnel: TunnelCredential {
            tunnel: tunnel(),
            credential: "good".into(),
            request_log: false,
            origin: None,
            spreads: false,
        },
        origin: OriginAddr { host: "localhost".into(), port }.into(),
        origin_tls: None,
        connect_timeout: Duration::from_secs(10),
    }
}

/// A running connector.
pub(crate) struct Connector {
    pub(crate) task: JoinHandle<anyhow::Result<()>>,
    pub(crate) events: mpsc::Receiver<ConnectorEvent>,
    pub(crate) shutdown: Shutdown,
}

impl Connector {
    pub(crate) fn start(options: ConnectorOptions) -> Self {
        let (events_in, events) = mpsc::channel(1_024);
        let shutdown = Shutdown::new();
        let task = tokio::spawn(sallyport_connector::run(options, events_in, shutdown.clone()));
        Self { task, events, shutdown }
    }

    /// Why it has no session.
    pub(crate) async fn disconnected(&mut self) -> String {
        soon(async {
            loop {
                if let ConnectorEvent::Disconnected { reason, .. } = self.events.recv().await.unwrap() {
                    return reason;
                }
            }
        })
        .await
    }
}

impl Drop for Connector {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// An edge and a connector for the service on this port.
pub(crate) async fn before(port: u16, tls: Option<OriginTls>) -> (Edge, Connector) {
    let edge = Edge::start().await;
    let services = vec![Service { origin_tls: tls, ..service_at(port) }];
    let connector = Connector::start(ConnectorOptions { services, ..edge.options(port) });
    edge.handle().await;
    (edge, connector)
}

/// A service with this handler for every connection.
pub(crate) async fn service<F>(serve: impl Fn(TcpStream) -> F + Send + 'static) -> u16
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream));
        }
    });
    port
}

pub(crate) async fn echo(mut stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin) {
    let mut buffer = vec![0; 10_000];
    while let Ok(n) = stream.read(&mut buffer).await {
        if n == 0 || stream.write_all(&buffer[..n]).await.is_err() {
            break;
        }
    }
    let _ = stream.shutdown().await;
}

pub(crate) fn is(failure: &OpenFailure, reason: FailureReason, words: &str) {
    assert_eq!(failure.reason, reason, "{failure}");
    assert!(failure.message.contains(words), "{failure}");
}
