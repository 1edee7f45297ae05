//! Where edges come: TLS 1.3 with certificates of the installation's machines, and HTTP/2.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use http_body_util::BodyExt as _;
use hyper::{body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use sallyport_control::{Control, NodePeer};
use sallyport_model::ClientAddr;
use sallyport_net::Shutdown;
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
/// How often a quiet connection is asked whether it is there, and how long it may take to say so.
const PING: Duration = Duration::from_secs(10);
/// How long nothing is accepted after the system had no room for another connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves edges until the shutdown.
pub(super) async fn serve(listener: TcpListener, tls: Arc<rustls::ServerConfig>, control: Control, shutdown: Shutdown) {
    let (acceptor, places) = (TlsAcceptor::from(tls), Arc::new(Semaphore::new(MAX_NODE_CONNECTIONS)));
    loop {
        let accepted = tokio::select! {
            () = shutdown.wait() => return,
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
            tokio::select! {
                () = shutdown.wait() => {}
                () = serve_one(stream, peer, &acceptor, &control) => {}
            }
            drop(place);
        });
    }
}

async fn serve_one(stream: TcpStream, peer: SocketAddr, acceptor: &TlsAcceptor, control: &Control) {
    drop(stream.set_nodelay(true));
    let stream = match tokio::time::timeout(HANDSHAKE_TIME, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            // What is wrong with a certificate is for whoever runs the edge to see too.
            warn!(%error, "an edge was not let in: its certificate is not believed, or it speaks something else");
            return;
        }
        Err(_) => return,
    };
    let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let edge = certificate.and_then(|der| sallyport_pki::edge_of_certificate(der)?.parse().ok());
    let peer = NodePeer { edge, address: ClientAddr(peer) };
    let router = control.node_router();
    let service = service_fn(move |mut request: http::Request<Incoming>| {
        let mut router = router.clone();
        request.extensions_mut().insert(peer);
        request.extensions_mut().insert(peer.address);
        async move { router.call(request).await.map(|answer| answer.map(|body| body.map_err(std::io::Error::other))) }
    });
    let mut server = http2::Builder::new(TokioExecutor::new());
    server.timer(TokioTimer::new()).keep_alive_interval(PING).keep_alive_timeout(PING);
    if let Err(error) = server.serve_connection(TokioIo::new(stream), service).await {
        debug!(%error, "the connection of an edge ended");
    }
}
