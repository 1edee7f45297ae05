//! An edge with a QUIC port and a direct origin, and its clients.

use std::{
    convert::Infallible,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use bytes::{Buf as _, Bytes};
use http::{HeaderValue, Request, Response};
use http_body_util::{BodyExt as _, Full, combinators::UnsyncBoxBody};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use sallyport_bus::{Directory, Routes};
use sallyport_model::{
    AccountId, AttachedPolicy, DirectOriginId, DirectOriginRoute, OriginProtocol, OriginTlsSettings, PolicyId,
    SocketId, SocketRoute, SocketType,
};
use sallyport_policy::DialedNetworks;
use tokio::{net::TcpListener, task::JoinHandle};

use crate::{
    Edge, EdgeConfig,
    http::multiplexed::{CONNECTION_WINDOW_BYTES, STREAM_WINDOW_BYTES},
};

pub(super) const HOST: &str = "calm-bay-1.localhost";
/// The limit of each wait.
const PATIENCE: Duration = Duration::from_secs(30);

/// Awaits the future, and fails the test after [`PATIENCE`].
pub(super) async fn soon<F: Future>(what: F) -> F::Output {
    tokio::time::timeout(PATIENCE, what).await.expect("this takes far too long")
}

pub(super) struct World {
    pub(super) edge: Arc<Edge>,
    routes: Routes,
    route: SocketRoute,
    addr: SocketAddr,
    roots: rustls::RootCertStore,
    pub(super) served: tokio::sync::mpsc::UnboundedReceiver<()>,
    _accepting: JoinHandle<()>,
}

/// What the origin does with a request.
async fn origin(request: Request<Incoming>) -> Response<UnsyncBoxBody<Bytes, hyper::Error>> {
    let whole = |text: Vec<u8>| Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed_unsync();
    let text = |name| request.headers().get(name).map_or("-", |value| value.to_str().unwrap()).to_owned();
    let path = request.uri().path().to_owned();
    if let Some(length) = path.strip_prefix("/bytes/") {
        return Response::new(whole(vec![b'b'; length.parse().unwrap()]));
    }
    match path.as_str() {
        "/echo" => Response::new(request.into_body().boxed_unsync()),
        "/early" => {
            // An unread body that is dropped would reset the connection.
            tokio::spawn(async move {
                let _body = request.into_body();
                std::future::pending::<()>().await;
            });
            Response::new(whole(b"early".to_vec()))
        }
        "/trailers" => {
            let version = format!("{:?}", request.version());
            let whole = request.into_body().collect().await.unwrap();
            let mut trailers = whole.trailers().cloned().unwrap_or_default();
            trailers.insert("grpc-status", HeaderValue::from_static("0"));
            let body = Full::new(whole.to_bytes()).map_err(|never| match never {});
            let response = Response::builder().header("x-version", version);
            response.body(body.with_trailers(async { Some(Ok(trailers)) }).boxed_unsync()).unwrap()
        }
        "/never" => std::future::pending().await,
        "/length" => {
            let length = request.into_body().collect().await.map_or(0, |body| body.to_bytes().len());
            Response::new(whole(length.to_string().into_bytes()))
        }
        _ => {
            let names = ["via", "x-forwarded-for", "transfer-encoding", "content-length"];
            Response::new(whole(names.map(text).join(" ").into_bytes()))
        }
    }
}

async fn serve_origin() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let service = service_fn(|request| async { Ok::<_, Infallible>(origin(request).await) });
            tokio::spawn(async move {
                // The edge calls gRPC services by HTTP/2.
                let mut first = [0; 2];
                if tcp.peek(&mut first).await.is_ok() && first == *b"PR" {
                    let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                    let _ = server.serve_connection(TokioIo::new(tcp), service).await;
                } else {
                    let server = hyper::server::conn::http1::Builder::new();
                    let _ = server.serve_connection(TokioIo::new(tcp), service).await;
                }
            });
        }
    });
    addr
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

impl World {
    pub(super) async fn start() -> Self {
        Self::start_with(|_| ()).await
    }

    pub(super) async fn start_with(change: impl FnOnce(&mut EdgeConfig)) -> Self {
        Self::start_at(serve_origin().await, change).await
    }

    /// An edge whose origin is at this address.
    pub(super) async fn start_at(origin: SocketAddr, change: impl FnOnce(&mut EdgeConfig)) -> Self {
        let routes = Routes::default();
        let route = SocketRoute {
            id: SocketId::from_random([1; 16]),
            account: AccountId::from_random([0; 16]),
            name: "calm-bay-1".parse().unwrap(),
            socket_type: SocketType::Http,
            origin_protocol: OriginProtocol::Auto,
            basic_auth: None,
            port: None,
            settings: Default::default(),
            policies: Vec::new(),
            client_authority: None,
            tunnels: Vec::new(),
            origins: vec![DirectOriginRoute {
                capacity: sallyport_model::Capacity::default(),
                id: DirectOriginId::from_random([100; 16]),
                address: origin.to_string().parse().unwrap(),
                region: None,
                weight: 100,
                tls: OriginTlsSettings::default(),
                path: Default::default(),
            }],
            domains: Vec::new(),
        };
        routes.put(route.clone());
        let mut config = EdgeConfig::new("localhost", 443);
        config.direct_origins = DialedNetworks::new(vec!["127.0.0.0/8".parse().unwrap()]);
        change(&mut config);
        let api = Arc::new(|_, _| -> std::pin::Pin<Box<dyn Future<Output = _> + Send>> {
            Box::pin(async { unreachable!("no test calls the API") })
        });
        let edge = Edge::new(config, routes.clone(), Directory::default(), api);
        let key = rcgen::generate_simple_self_signed([HOST.to_owned()]).unwrap();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(key.cert.der().clone()).unwrap();
        let mut tls = rustls::ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![key.cert.der().clone()],
                rustls::pki_types::PrivateKeyDer::Pkcs8(key.signing_key.serialize_der().into()),
            )
            .unwrap();
        tls.alpn_protocols = vec![b"h3".to_vec()];
        let mut config = quinn::ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls).unwrap()));
        let mut transport = sallyport_quic::transport(None);
        transport.stream_receive_window(STREAM_WINDOW_BYTES.into()).receive_window(CONNECTION_WINDOW_BYTES.into());
        config.transport_config(Arc::new(transport));
        let endpoint = quinn::Endpoint::server(config, (Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let (addr, http) = (endpoint.local_addr().unwrap(), edge.http.clone());
        let (ended, served) = tokio::sync::mpsc::unbounded_channel();
        let _accepting = tokio::spawn(async move {
            while let Some(incoming) = endpoint.accept().await {
                let (http, ended) = (http.clone(), ended.clone());
                tokio::spawn(async move {
                    let connection = incoming.await.unwrap();
                    let addr = connection.remote_address();
                    super::super::serve(http, connection, addr, None, ()).await;
                    let _ = ended.send(());
                });
            }
        });
        Self { edge, routes, route, addr, roots, served, _accepting }
    }

    /// Sets the policy of the socket, and evaluates what runs again.
    pub(super) fn set_policy(&self, document: &str) {
        let id = PolicyId::from_random([1; 16]);
        let policies = vec![AttachedPolicy { id, name: "p".into(), document: document.into() }];
        self.routes.put(SocketRoute { policies, ..self.route.clone() });
        self.edge.state.sockets.all().iter().for_each(|pool| pool.call_judged());
    }

    /// An endpoint of a client at this address.
    fn endpoint(&self, ip: Ipv4Addr) -> quinn::Endpoint {
        let mut tls = rustls::ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(self.roots.clone())
            .with_no_client_auth();
        tls.alpn_protocols = vec![b"h3".to_vec()];
        let mut endpoint = quinn::Endpoint::client((ip, 0).into()).unwrap();
        endpoint
            .set_default_client_config(quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap())));
        endpoint
    }

    /// A QUIC connection without any stream, and its endpoint.
    pub(super) async fn connect(&self) -> (quinn::Connection, quinn::Endpoint) {
        let endpoint = self.endpoint(Ipv4Addr::LOCALHOST);
        let connection = soon(endpoint.connect(self.addr, HOST).unwrap()).await.unwrap();
        (connection, endpoint)
    }

    /// A client by `h3`.
    pub(super) async fn client(&self) -> Client {
        let (connection, endpoint) = self.connect().await;
        let quic = h3_quinn::Connection::new(connection.clone());
        let (mut driver, sender) = h3::client::new(quic).await.unwrap();
        let driver = tokio::spawn(async move { std::future::poll_fn(|cx| driver.poll_close(cx)).await });
        Client { sender, connection, endpoint, driver }
    }

    /// The sum of the metrics whose lines begin so.
    pub(super) fn metric(&self, line: &str) -> u64 {
        let mut registry = prometheus_client::registry::Registry::default();
        self.edge.state.metrics.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let values = text.lines().filter(|found| found.starts_with(line)).filter_map(|found| found.rsplit(' ').next());
        values.map(|value| value.parse::<u64>().unwrap()).sum()
    }
}

pub(super) struct Client {
    pub(super) sender: h3::client::SendRequest<h3_quinn::OpenStreams, Bytes>,
    pub(super) connection: quinn::Connection,
    pub(super) endpoint: quinn::Endpoint,
    pub(super) driver: JoinHandle<h3::error::ConnectionError>,
}

impl Client {
    /// Sends a request with this body, and returns the status and the body of the response.
    pub(super) async fn request(&mut self, request: Request<()>, body: Option<Bytes>) -> (Response<()>, Vec<u8>) {
        let stream = soon(self.sender.send_request(request)).await.unwrap();
        let (mut send, mut recv) = stream.split();
        let upload = async {
            if let Some(body) = body {
                // A server that responds early asks to stop.
                if send.send_data(body).await.is_err() {
                    return;
                }
            }
            let _ = send.finish().await;
        };
        let download = async {
            let response = recv.recv_response().await.unwrap();
            let mut body = Vec::new();
            while let Some(mut data) = recv.recv_data().await.unwrap() {
                body.extend_from_slice(&data.copy_to_bytes(data.remaining()));
            }
            (response, body)
        };
        soon(async { tokio::join!(upload, download).1 }).await
    }

    pub(super) async fn get(&mut self, path: &str) -> (u16, String) {
        let request = Request::get(format!("https://{HOST}{path}")).body(()).unwrap();
        let (response, body) = self.request(request, None).await;
        (response.status().as_u16(), String::from_utf8(body).unwrap())
    }
}
