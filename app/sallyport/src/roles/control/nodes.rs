//! The port for edges: TLS 1.3 with machine certificates, and HTTP/2.

use std::{net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use http_body_util::BodyExt as _;
use hyper::{body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use sallyport_control::{Control, NodePeer};
use sallyport_model::ClientAddr;
use sallyport_net::{NODE_CLIENTS_ALPN, Shutdown};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tokio_rustls::TlsAcceptor;
use tower_service::Service as _;
use tracing::{debug, warn};

/// How many connections there may be.
const MAX_NODE_CONNECTIONS: usize = 4_096;
/// How long a handshake may take.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// How many requests of one edge, or of all its clients, run at once; some of them wait for events.
const MAX_CONCURRENT_STREAMS: u32 = 1_000;
/// How long a connection may be silent before a ping, and how long the answer may take.
const PING: Duration = Duration::from_secs(10);
/// How long accepting pauses after the system had no room for another connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves edges until the shutdown, and then answers running requests for a bounded time.
pub(super) async fn serve(
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    control: Control,
    (shutdown, drain): (Shutdown, Duration),
) {
    let (acceptor, places) = (TlsAcceptor::from(tls), Arc::new(Semaphore::new(MAX_NODE_CONNECTIONS)));
    loop {
        let accepted = tokio::select! {
            () = shutdown.wait() => break,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                warn!(%error, "an edge's connection cannot be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Ok(place) = places.clone().try_acquire_owned() else {
            debug!("a connection too many is refused");
            continue;
        };
        let (acceptor, control, shutdown) = (acceptor.clone(), control.clone(), shutdown.clone());
        tokio::spawn(async move {
            serve_one(stream, peer, (&acceptor, &control), &shutdown).await;
            drop(place);
        });
    }
    drop(listener);
    let all = u32::try_from(MAX_NODE_CONNECTIONS).unwrap_or(u32::MAX);
    if tokio::time::timeout(drain, places.acquire_many(all)).await.is_err() {
        warn!("open requests of edges are cut off: they took too long");
    }
}

async fn serve_one(
    stream: TcpStream,
    peer: SocketAddr,
    (acceptor, control): (&TlsAcceptor, &Control),
    shutdown: &Shutdown,
) {
    drop(stream.set_nodelay(true));
    let stream = match tokio::time::timeout(HANDSHAKE_TIME, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            // Logged here too, for the operator of the edge.
            warn!(%error, "an edge was refused: its certificate is not trusted, or it speaks another protocol");
            return;
        }
        Err(_) => return,
    };
    let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let edge = certificate.and_then(|der| sallyport_pki::edge_of_certificate(der)?.parse().ok());
    let peer = NodePeer { edge, address: ClientAddr(peer) };
    let is_for_clients = stream.get_ref().1.alpn_protocol() == Some(NODE_CLIENTS_ALPN);
    let router = if is_for_clients { control.clients_router() } else { control.node_router() };
    let service = service_fn(move |mut request: http::Request<Incoming>| {
        let mut router = router.clone();
        request.extensions_mut().insert(peer);
        request.extensions_mut().insert(peer.address);
        async move { router.call(request).await.map(|answer| answer.map(|body| body.map_err(std::io::Error::other))) }
    });
    let mut server = http2::Builder::new(TokioExecutor::new());
    server.timer(TokioTimer::new()).keep_alive_interval(PING).keep_alive_timeout(PING);
    server.max_concurrent_streams(MAX_CONCURRENT_STREAMS);
    let mut served = pin!(server.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = served.as_mut() => ended,
        () = shutdown.wait() => {
            // New requests go to the process that takes over, or to another control.
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = ended {
        debug!(%error, "the connection of an edge ended");
    }
}
