//! The start of a connection: PROXY protocol, ClientHello, TLS handshake, and the choice of the protocol.

use std::{
    future::Future,
    io::{self, BufRead as _},
    net::{IpAddr, SocketAddr},
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use rustls::{ProtocolVersion, ServerConfig, server::Acceptor};
use sallyport_model::{EdgeId, Identity, SocketRoute, SocketType, TlsMode};
use sallyport_net::{
    ACME_TLS_ALPN, Certificates, ProxiedAddresses, ReadAhead, ReplayStream, ShardTcpStream, UnbufferedTlsStream,
    negotiated, offers_session, offers_tls13, read_header, server_config, server_config_for,
    server_config_for_challenge, server_config_for_returning, server_config_for_tunnels, unbuffered_server_config,
};
use sallyport_policy::Network;
use sallyport_wire::MESH_ALPN;
use sha2::{Digest as _, Sha256};
use tokio::net::TcpStream;
use tokio_rustls::{LazyConfigAcceptor, StartHandshake, server::TlsStream};

use crate::{
    access::{self, RefusedCertificate},
    client::{
        certificate::ClientCertificate,
        tcp::ClientTcp,
        tls::{ClientTls, HttpClient},
    },
    edge::Edge,
    lifecycle::counts::HandshakePlace,
    listener::redirect,
    mesh::Mesh,
    metrics::verdict::Verdict,
    record::flow::FlowContext,
    tcp::flow::{self, AcceptedFlow, ends_of},
};

/// How long a TLS handshake may take, and how long the PROXY protocol header before it.
const MAX_HANDSHAKE: Duration = Duration::from_secs(10);

/// The fatal alert `unrecognized_name` (RFC 6066 section 3), as a whole record.
const UNRECOGNIZED_NAME: [u8; 7] = [21, 3, 3, 0, 2, 2, 112];

/// The fatal alert `missing_extension` (RFC 8446 section 9.2), as a whole record.
const MISSING_EXTENSION: [u8; 7] = [21, 3, 3, 0, 2, 2, 109];

/// The fatal alert `access_denied` (RFC 8446 section 6.2), as a whole record.
const ACCESS_DENIED: [u8; 7] = [21, 3, 3, 0, 2, 2, 49];

/// The client spoke plain HTTP, and was answered in plain HTTP.
#[derive(Debug, thiserror::Error)]
#[error("the client speaks plain HTTP, and this port speaks HTTPS")]
struct PlainHttp;

/// Reads the start of every incoming connection and decides how it is served.
pub(crate) struct ConnectionRouter {
    base: Arc<ServerConfig>,
    returning: Arc<ServerConfig>,
    /// For clients that speak TLS 1.3 and present no certificate; so is `unbuffered_returning`.
    unbuffered: Arc<ServerConfig>,
    unbuffered_returning: Arc<ServerConfig>,
    tunnels: Arc<ServerConfig>,
    certificates: Arc<Certificates>,
    trusted_proxies: Vec<Network>,
}

/// A connection with a known protocol.
pub(crate) enum Accepted {
    /// A stock ssh client.
    Ssh(TcpStream, SocketAddr),
    /// Another edge, identified by its machine certificate.
    Mesh(Box<TlsStream<ClientTcp>>, EdgeId, SocketAddr),
    /// A connector that speaks the tunnel protocol.
    Tunnel(UnbufferedTlsStream<ClientTcp>, SocketAddr),
    /// TLS terminated here, for HTTP, the API or a WebSocket.
    Http(HttpClient, SocketAddr),
    /// TLS terminated here, for a `tls` socket.
    TlsTerminated(Box<AcceptedFlow<TlsStream<ClientTcp>>>),
    /// TLS passed through to the origin from the first byte.
    TlsPassthrough(Box<AcceptedFlow<ClientTcp>>),
}

impl ConnectionRouter {
    /// A router with these certificates, which reads the PROXY protocol from these networks.
    pub(crate) fn new(certificates: Arc<Certificates>, trusted_proxies: Vec<Network>) -> Arc<Self> {
        let base = server_config(certificates.clone(), sallyport_wire::ALPN);
        let returning = server_config_for_returning(&base);
        let (unbuffered, unbuffered_returning) =
            (unbuffered_server_config(&base), unbuffered_server_config(&returning));
        let tunnels = server_config_for_tunnels(&base, certificates.clone(), sallyport_wire::ALPN);
        Arc::new(Self { base, returning, unbuffered, unbuffered_returning, tunnels, certificates, trusted_proxies })
    }

    /// The addresses of client and destination: those of the connection, or those in a trusted balancer's PROXY
    /// protocol header. `None` if the header is missing or malformed; the connection is then closed.
    pub(crate) async fn proxied(
        &self,
        edge: &Edge,
        mut stream: TcpStream,
        peer: SocketAddr,
    ) -> Option<(TcpStream, ProxiedAddresses)> {
        if let Some(ends) = self.direct(&stream, peer) {
            return Some((stream, ends));
        }
        let direct = ends_of(&stream, peer);
        let why = match tokio::time::timeout(MAX_HANDSHAKE, read_header(&mut stream)).await {
            Ok(Ok(proxied)) => return Some((stream, proxied.unwrap_or(direct))),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no PROXY protocol header came in time".to_owned(),
        };
        tracing::warn!(why, "a connection from a trusted balancer was closed");
        edge.state.metrics.handshake_failed("proxy-header");
        None
    }

    /// The addresses of a connection that comes from no trusted balancer, where nothing needs to be read.
    pub(crate) fn direct(&self, stream: &TcpStream, peer: SocketAddr) -> Option<ProxiedAddresses> {
        (!self.is_trusted(peer.ip())).then(|| ends_of(stream, peer))
    }

    /// Whether this address is a trusted balancer, which sends a PROXY protocol header.
    pub(crate) fn is_trusted(&self, peer: IpAddr) -> bool {
        self.trusted_proxies.iter().any(|network| network.contains(peer))
    }

    /// Reads the ClientHello and does the handshake. Ends after [`MAX_HANDSHAKE`], and earlier if newer handshakes need
    /// the place. `socket` is the socket of the port, if the port has one.
    pub(crate) async fn open(
        &self,
        edge: &Arc<Edge>,
        stream: TcpStream,
        ends: ProxiedAddresses,
        socket: Option<Arc<SocketRoute>>,
        place: &mut HandshakePlace,
    ) -> Option<Accepted> {
        // Pinned here, because `select!` would move the future.
        let mut handshake = pin!(self.handshake(edge, stream, ends, socket));
        let reason = tokio::select! {
            biased;
            opened = &mut handshake => match opened {
                Ok(opened) => return Some(opened),
                Err(error) => {
                    tracing::debug!(%error, "a TLS handshake failed");
                    reason(&error)
                }
            },
            () = place.pushed_out() => "pushed-out",
            () = tokio::time::sleep(MAX_HANDSHAKE) => "timeout",
        };
        edge.state.metrics.handshake_failed(reason);
        None
    }

    async fn handshake(
        &self,
        edge: &Arc<Edge>,
        stream: TcpStream,
        ends: ProxiedAddresses,
        socket: Option<Arc<SocketRoute>>,
    ) -> io::Result<Accepted> {
        // An ssh client sends its version at once (RFC 4253 section 4.2); a ClientHello begins with 0x16.
        if edge.ssh.get().is_some() && socket.is_none() {
            let mut first = [0];
            stream.peek(&mut first).await?;
            if &first == b"S" {
                return Ok(Accepted::Ssh(stream, ends.client));
            }
        }
        let mut start = client_hello(edge, stream, socket.is_none()).await?;
        if socket.is_none()
            && let Some(mesh) = edge.mesh.get()
            && start.client_hello().alpn().is_some_and(|mut offered| offered.any(|one| one == MESH_ALPN))
        {
            start.io.stop();
            return Box::pin(mesh_link(mesh, start, ends.client)).await;
        }
        let server_name = start.client_hello().server_name().unwrap_or_default().to_ascii_lowercase();
        if socket.is_none() && is_challenge(&start) {
            start.io.stop();
            return Box::pin(answer_challenge(edge, start, &server_name)).await;
        }
        let is_shared = socket.is_none();
        let tls_socket = socket.or_else(|| tls_socket(edge, &server_name));
        let is_passed = tls_socket.as_ref().is_some_and(|route| route.settings.tls_mode == TlsMode::Passthrough);
        if is_shared && !is_passed {
            //= RFC 8446 section 9.2
            //# Servers requiring this extension SHOULD respond to a ClientHello lacking a "server_name" extension by
            //# terminating the connection with a "missing_extension" alert.
            let refused = match &*server_name {
                "" => Some((&MISSING_EXTENSION, "the client names no host")),
                name if !self.certificates.covers(name) => {
                    Some((&UNRECOGNIZED_NAME, "the client names a host that this edge does not serve"))
                }
                _ => None,
            };
            if let Some((alert, why)) = refused {
                start.io.stop();
                tokio::io::AsyncWriteExt::write_all(&mut start.io, alert).await?;
                tokio::io::AsyncWriteExt::shutdown(&mut start.io).await?;
                return Err(io::Error::new(io::ErrorKind::InvalidData, why));
            }
        }
        let base = if offers_session(start.io.recorded()) { &self.returning } else { &self.base };
        let Some(route) = tls_socket else {
            if is_tunnel(&start) {
                start.io.replay();
                let (stream, _) = Box::pin(UnbufferedTlsStream::accept(start.io, self.tunnels.clone())).await?;
                return Ok(Accepted::Tunnel(stream, ends.client));
            }
            let asking = access::http_server_config(&edge.access, base, &self.certificates, &server_name);
            let Some((config, route)) = asking else {
                return Ok(Accepted::Http(self.end_for_http(start).await?, ends.client));
            };
            start.io.stop();
            let opened = Box::pin(start.into_stream(config)).await;
            let refused = |error| {
                refused_certificate(edge, &route, ends.client, &error, None);
                error
            };
            return Ok(Accepted::Http(buffered(opened.map_err(refused)?), ends.client));
        };
        if is_passed {
            start.io.replay();
            return Ok(Accepted::TlsPassthrough(Box::new(AcceptedFlow {
                io: start.io,
                route,
                ends,
                server_name,
                identity: None,
            })));
        }
        start.io.stop();
        if route.settings.identity.is_some() {
            return Box::pin(self.ask_certificate(edge, start, route, ends, server_name)).await;
        }
        let name = served_name(edge, &route, &server_name);
        let config = server_config_for(base, self.certificates.clone(), name, &route.settings.alpn);
        let io = Box::pin(start.into_stream(config)).await?;
        Ok(Accepted::TlsTerminated(Box::new(AcceptedFlow { io, route, ends, server_name, identity: None })))
    }

    /// Terminates TLS for HTTP without client certificates.
    ///
    /// Each variant is a boxed future of its own: the common one needs nothing more of the ClientHello, and holds no
    /// memory for the others.
    fn end_for_http(
        &self,
        mut start: StartHandshake<ClientTcp>,
    ) -> Pin<Box<dyn Future<Output = io::Result<HttpClient>> + Send>> {
        near(&mut start.io).let_tickets_wait();
        let first_bytes = start.io.recorded();
        if !offers_tls13(first_bytes) {
            return Box::pin(end_with_buffers(start, self.base.clone()));
        }
        let config = if offers_session(first_bytes) { &self.unbuffered_returning } else { &self.unbuffered };
        Box::pin(end_unbuffered(start.io, config.clone()))
    }

    /// Terminates TLS and demands a client certificate.
    async fn ask_certificate(
        &self,
        edge: &Arc<Edge>,
        mut start: StartHandshake<ClientTcp>,
        route: Arc<SocketRoute>,
        ends: ProxiedAddresses,
        server_name: String,
    ) -> io::Result<Accepted> {
        let (pool, refused) = (edge.state.sockets.pool(route.id), Arc::<RefusedCertificate>::default());
        let (rules, certificates) = (pool.rules(&route), self.certificates.clone());
        let client = ends.client.ip();
        let refuse = |why| io::Error::new(io::ErrorKind::InvalidData, why);
        let config = access::server_config(&edge.access, &self.base, certificates, &route, &rules, client, &refused);
        let Some(config) = config else {
            tokio::io::AsyncWriteExt::write_all(&mut start.io, &ACCESS_DENIED).await?;
            tokio::io::AsyncWriteExt::shutdown(&mut start.io).await?;
            return Err(refuse("the socket demands client certificates, and its organisation has no authority"));
        };
        match start.into_stream(config).await {
            Ok(io) => {
                let der = io.get_ref().1.peer_certificates().and_then(|chain| chain.first());
                let identity = der.and_then(|der| access::holder(&edge.access, &route, der));
                let identity = identity.ok_or_else(|| refuse("the login of the certificate has ended"))?;
                let identity = Some(identity);
                Ok(Accepted::TlsTerminated(Box::new(AcceptedFlow { io, route, ends, server_name, identity })))
            }
            Err(error) => {
                refused_certificate(edge, &route, ends.client, &error, refused.refused());
                Err(error)
            }
        }
    }
}

/// Why the handshake failed, as the label of the metric.
fn reason(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::InvalidData => "tls",
        io::ErrorKind::Unsupported => "tunnel-too-old",
        _ if error.get_ref().is_some_and(|why| why.is::<PlainHttp>()) => "plain-http",
        _ => "closed",
    }
}

/// Reads the ClientHello.
async fn client_hello(edge: &Arc<Edge>, stream: TcpStream, is_shared: bool) -> io::Result<StartHandshake<ClientTcp>> {
    let io = ReplayStream::new(ReadAhead::new(ShardTcpStream::new(stream)));
    let mut accepting = LazyConfigAcceptor::new(Acceptor::default(), io);
    let error = match (&mut accepting).await {
        Ok(start) => return Ok(start),
        Err(error) => error,
    };
    match accepting.take_io() {
        Some(io) if io.recorded().first().is_some_and(u8::is_ascii_uppercase) => {
            Box::pin(without_tls(edge, io, is_shared)).await
        }
        _ => Err(error),
    }
}

/// Answers a client that does not speak TLS. Plain HTTP at the shared port gets an HTTP response; everything else gets
/// the TLS alert.
async fn without_tls(edge: &Arc<Edge>, mut io: ClientTcp, is_shared: bool) -> io::Result<StartHandshake<ClientTcp>> {
    let mut is_http = if is_shared { redirect::detect_http(io.recorded()) } else { Some(false) };
    while is_http.is_none() {
        let n = tokio::io::AsyncReadExt::read(&mut io, &mut [0; 8]).await?;
        is_http = if n == 0 { Some(false) } else { redirect::detect_http(io.recorded()) };
    }
    io.replay();
    if is_http == Some(true) {
        let has_responded = redirect::respond_at_tls_port(edge.clone(), io).await;
        return Err(if has_responded { io::Error::other(PlainHttp) } else { io::ErrorKind::UnexpectedEof.into() });
    }
    LazyConfigAcceptor::new(Acceptor::default(), io).await
}

/// Terminates TLS 1.3 for HTTP.
async fn end_unbuffered(mut io: ClientTcp, config: Arc<ServerConfig>) -> io::Result<HttpClient> {
    io.replay();
    let (mut stream, alpn) = UnbufferedTlsStream::accept(io, config).await?;
    let request_came = stream.has_request();
    near(stream.get_mut()).handshake_is_over(request_came);
    let negotiated = negotiated(alpn.as_deref(), Some(ProtocolVersion::TLSv1_3), sallyport_wire::ALPN);
    Ok(HttpClient { stream: ClientTls::unbuffered(stream), negotiated, certificate: None })
}

/// Terminates TLS for HTTP with a client that does not offer TLS 1.3.
async fn end_with_buffers(mut start: StartHandshake<ClientTcp>, config: Arc<ServerConfig>) -> io::Result<HttpClient> {
    start.io.stop();
    let mut stream = start.into_stream(config).await?;
    let (io, tls) = stream.get_mut();
    near(io).handshake_is_over(tls.reader().fill_buf().is_ok_and(|came| !came.is_empty()));
    Ok(buffered(stream))
}

/// A client with a finished handshake on a buffered TLS stream.
fn buffered(stream: TlsStream<ClientTcp>) -> HttpClient {
    let tls = stream.get_ref().1;
    let negotiated = negotiated(tls.alpn_protocol(), tls.protocol_version(), sallyport_wire::ALPN);
    let certificate = ClientCertificate::of(tls);
    HttpClient { stream: ClientTls::buffered(stream), negotiated, certificate }
}

/// The TCP stream below, which holds session tickets back until the next write: the response, or the settings of
/// HTTP/2.
fn near(io: &mut ClientTcp) -> &mut ShardTcpStream {
    io.get_mut().get_mut()
}

/// Terminates TLS for another edge, which must present its machine certificate.
async fn mesh_link(mesh: &Arc<Mesh>, start: StartHandshake<ClientTcp>, client: SocketAddr) -> io::Result<Accepted> {
    let refused = |error| {
        mesh.metrics().failed("refused");
        tracing::debug!(%client, %error, "a link is refused: the peer has no certificate of an edge of this installation");
        error
    };
    let stream = start.into_stream(mesh.tls().server()).await.map_err(refused)?;
    let der = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let edge: Option<EdgeId> = der.and_then(|der| sallyport_pki::edge_of_certificate(der)?.parse().ok());
    let no_edge = || refused(io::Error::new(io::ErrorKind::InvalidData, "no certificate of another edge"));
    let edge = edge.ok_or_else(no_edge)?;
    if !mesh.may_link_soon(edge).await {
        return Err(no_edge());
    }
    Ok(Accepted::Mesh(Box::new(stream), edge, client))
}

/// Records a handshake that failed because of the client certificate.
///
/// A valid certificate that policies refuse is always recorded. Other failures are recorded a few times for each
/// address.
fn refused_certificate(
    edge: &Edge,
    route: &Arc<SocketRoute>,
    client: SocketAddr,
    error: &io::Error,
    known: Option<(Identity, String)>,
) {
    let Some(why) = access::refusal(error) else { return };
    edge.state.metrics.identity("certificate-refused");
    let (identity, rule) = match known {
        Some((identity, rule)) => (Some(identity), rule),
        None if edge.access.identity.may_record_refusal(client.ip()) => (None, why.to_owned()),
        None => return,
    };
    let pool = edge.state.sockets.pool(route.id);
    let mut context = FlowContext::new(&edge.state, route, &pool, client);
    context.record_decision(identity.as_ref(), rule);
    context.ended_in(&pool, Verdict::Denied);
}

/// Whether the client is a connector, which offers the ALPN of the tunnel protocol.
fn is_tunnel(start: &StartHandshake<ClientTcp>) -> bool {
    start.client_hello().alpn().is_some_and(|mut offered| offered.any(|protocol| protocol == sallyport_wire::ALPN))
}

/// Whether the client is an ACME server that verifies a name (RFC 8737).
fn is_challenge(start: &StartHandshake<ClientTcp>) -> bool {
    start.client_hello().alpn().is_some_and(|mut offered| offered.any(|protocol| protocol == ACME_TLS_ALPN))
}

/// Presents the certificate of a challenge, and closes the connection.
async fn answer_challenge(
    edge: &Edge,
    mut start: StartHandshake<ClientTcp>,
    server_name: &str,
) -> io::Result<Accepted> {
    let wrong = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    let Some(challenge) = edge.state.config.challenges.tls_challenge(server_name) else {
        tokio::io::AsyncWriteExt::write_all(&mut start.io, &UNRECOGNIZED_NAME).await?;
        tokio::io::AsyncWriteExt::shutdown(&mut start.io).await?;
        return Err(wrong("no order verifies this name now".to_owned()));
    };
    let digest: [u8; 32] = Sha256::digest(challenge.key_authorization.as_bytes()).into();
    let config = server_config_for_challenge(server_name, &digest).map_err(|error| wrong(error.to_string()))?;
    let mut stream = start.into_stream(config).await?;
    tracing::debug!(name = server_name, "a challenge was answered");
    tokio::io::AsyncWriteExt::shutdown(&mut stream).await?;
    Err(io::Error::other("an ACME server has verified a name"))
}

/// The `tls` socket of this name. Of an encrypted ClientHello only the outer name counts (RFC 9849), so a client cannot
/// reach the certificate or origin of another name.
fn tls_socket(edge: &Edge, server_name: &str) -> Option<Arc<SocketRoute>> {
    edge.state.route_of_host(server_name).filter(|route| route.socket_type == SocketType::Tls)
}

/// The name whose certificate a `tls` socket presents: the requested one if it leads to the socket, else its own.
fn served_name(edge: &Edge, route: &SocketRoute, server_name: &str) -> String {
    if route.domains.iter().any(|domain| domain.covers(server_name)) {
        return server_name.to_owned();
    }
    format!("{}.{}", route.name, edge.state.config.domain)
}

/// Serves a connection to the own port of a `tls` socket, which clients reach without a server name too.
pub(crate) async fn serve_tls_port(
    edge: Arc<Edge>,
    router: Arc<ConnectionRouter>,
    route: Arc<SocketRoute>,
    stream: TcpStream,
    ends: ProxiedAddresses,
) {
    let mut place = edge.handshakes.enter(ends.client.ip());
    // Boxed: the state of the handshake is freed before the flow begins.
    let Some(opened) = Box::pin(router.open(&edge, stream, ends, Some(route), &mut place)).await else { return };
    let served = serve_opened(edge, opened);
    drop(place);
    if let Some(served) = served {
        served.await;
    }
}

fn serve_opened(edge: Arc<Edge>, opened: Accepted) -> Option<Pin<Box<dyn Future<Output = ()> + Send>>> {
    let running = edge.state.running.enter();
    match opened {
        Accepted::TlsTerminated(accepted) => Some(Box::pin(flow::serve(edge.access.clone(), *accepted, running))),
        Accepted::TlsPassthrough(accepted) => Some(Box::pin(flow::serve(edge.access.clone(), *accepted, running))),
        Accepted::Tunnel(..) | Accepted::Http(..) | Accepted::Ssh(..) | Accepted::Mesh(..) => None,
    }
}
