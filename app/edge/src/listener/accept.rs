//! The public ports: each accepted connection gets a task, a handshake, and the room that its ALPN selects.

use std::{
    future::poll_fn,
    io,
    net::{self, SocketAddr},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use sallyport_net::{Acceptor, Negotiated, Shutdown};
use sallyport_shards::Shards;
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use crate::{
    client::{
        round_trips::RoundTripRecorder,
        tls::{ClientTls, HttpClient},
    },
    edge::Edge,
    http::{h1, h2, send_bound::SendBound, tunnel_websocket},
    lifecycle::counts::{ConnectionPlace, HandshakePlace},
    listener::handshake::{Accepted, ConnectionRouter},
    mesh,
    tcp::flow,
};

/// How long accepting pauses after the system had no room for another connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// At most one log line in this time says that nothing can be accepted.
const ACCEPT_LOG_PERIOD: Duration = Duration::from_secs(1);

/// A source of connections.
pub(crate) trait Source {
    /// The stream of a connection.
    type Stream;

    /// The next connection and the address of its peer.
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<(Self::Stream, SocketAddr)>>;
}

impl Source for TcpListener {
    type Stream = TcpStream;

    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        Self::poll_accept(self, cx)
    }
}

impl Source for Acceptor {
    type Stream = net::TcpStream;

    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<(net::TcpStream, SocketAddr)>> {
        Self::poll_accept(self, cx)
    }
}

/// Accepts connections until the shutdown, and passes each to `take`.
pub(crate) async fn accept<S: Source>(mut source: S, shutdown: Shutdown, mut take: impl FnMut(S::Stream, SocketAddr)) {
    let mut log = Occasionally::default();
    loop {
        let accepted = tokio::select! {
            biased;
            () = shutdown.wait() => return,
            accepted = poll_fn(|cx| source.poll_accept(cx)) => accepted,
        };
        match accepted {
            Ok((stream, peer)) => take(stream, peer),
            Err(error) if is_of_peer(&error) => {}
            Err(error) => {
                if log.is_due(Instant::now()) {
                    tracing::warn!(%error, "no connection can be accepted right now; is the limit of open files too low?");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Like [`accept`], in a shard. The shard serves its own share of the connections without another wake-up, and hands
/// the rest to other shards. If the future is dropped, accepting stops soon, but not at once.
///
/// # Errors
/// The listener cannot be registered with the reactor, or `take` panicked. Nothing is accepted any more then.
pub(crate) async fn accept_in_shard(
    shards: &Shards,
    listener: TcpListener,
    shutdown: Shutdown,
    take: impl FnMut(net::TcpStream, SocketAddr) + Send + 'static,
) -> io::Result<()> {
    // Taken from this runtime's reactor: the shard registers the listener again.
    let listener = listener.into_std()?;
    // Dropped with this future, which aborts the task.
    let mut tasks = JoinSet::new();
    shards.spawn_among(&mut tasks, async move {
        accept(Acceptor::new(listener)?, shutdown, take).await;
        Ok(())
    });
    match tasks.join_next().await {
        Some(Ok(outcome)) => outcome,
        Some(Err(panicked)) => Err(io::Error::other(panicked)),
        None => Ok(()),
    }
}

/// Lets an event pass at most once in each [`ACCEPT_LOG_PERIOD`].
#[derive(Debug, Default)]
struct Occasionally {
    last: Option<Instant>,
}

impl Occasionally {
    fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.last.is_none_or(|last| now.saturating_duration_since(last) >= ACCEPT_LOG_PERIOD);
        if is_due {
            self.last = Some(now);
        }
        is_due
    }
}

/// Whether the error concerns only the connection that was being accepted.
fn is_of_peer(error: &io::Error) -> bool {
    use io::ErrorKind as K;
    matches!(error.kind(), K::ConnectionAborted | K::ConnectionReset | K::ConnectionRefused | K::Interrupted)
}

/// Serves a TCP connection to the TLS port.
pub(crate) fn take_tls(edge: &Arc<Edge>, router: &Arc<ConnectionRouter>, stream: net::TcpStream, peer: SocketAddr) {
    let Some(place) = edge.connections.enter(peer.ip()) else {
        edge.state.metrics.handshake_failed("too-many-connections");
        return;
    };
    let mut handshake = edge.handshakes.enter(peer.ip());
    let (edge, router, shards) = (edge.clone(), router.clone(), edge.state.config.shards.clone());
    shards.spawn_unwatched(stream, async move |stream| {
        let mut place = Some(place);
        let opened = Box::pin(open(&edge, &router, stream, peer, &mut handshake)).await;
        let served = opened.map(|opened| dispatch(edge, opened, &mut place));
        // Released only now, when the connection's own count is taken: the shutdown waits for handshakes, then for
        // connections.
        drop(handshake);
        if let Some(served) = served {
            served.await;
        }
        drop(place);
    });
}

/// Serves a TCP connection to the port that is for ssh alone.
pub(crate) fn take_ssh(edge: &Arc<Edge>, router: &Arc<ConnectionRouter>, stream: net::TcpStream, peer: SocketAddr) {
    let Some(place) = edge.connections.enter(peer.ip()) else { return };
    let (edge, router, shards) = (edge.clone(), router.clone(), edge.state.config.shards.clone());
    shards.spawn_unwatched(stream, async move |stream| {
        let mut place = Some(place);
        if let Some((stream, ends)) = router.proxied(&edge, stream, peer).await {
            dispatch(edge, Accepted::Ssh(stream, ends.client), &mut place).await;
        }
    });
}

/// Does the handshake, and says what the connection is for.
async fn open(
    edge: &Arc<Edge>,
    router: &ConnectionRouter,
    stream: TcpStream,
    peer: SocketAddr,
    handshake: &mut HandshakePlace,
) -> Option<Accepted> {
    let (stream, ends) = router.proxied(edge, stream, peer).await?;
    router.open(edge, stream, ends, None, handshake).await
}

/// Serves the connection by the socket of its server name, or by its ALPN. HTTP takes the connection's place, because a
/// WebSocket outlives the future that is returned here.
fn dispatch(
    edge: Arc<Edge>,
    opened: Accepted,
    place: &mut Option<ConnectionPlace>,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    match opened {
        Accepted::Ssh(stream, client) => {
            let mut login = edge.ssh_logins.enter(client.ip());
            Box::pin(async move {
                if let Some(ssh) = edge.ssh.get() {
                    let pushed_out = async move { login.pushed_out().await };
                    ssh.server.serve_in_place(stream, client, pushed_out).await;
                }
            })
        }
        Accepted::Mesh(stream, from, client) => match edge.mesh.get() {
            Some(mesh) => Box::pin(mesh::inbound::serve(mesh.clone(), stream, from, client)),
            None => Box::pin(std::future::ready(())),
        },
        Accepted::Tunnel(stream, client) => {
            Box::pin(async move { tunnel_websocket::serve_native(&edge.http, stream, client).await })
        }
        Accepted::Http(client, peer) => dispatch_http(edge, client, peer, place),
        Accepted::TlsTerminated(flow) => {
            let running = edge.state.running.enter();
            Box::pin(flow::serve(edge.access.clone(), *flow, running))
        }
        Accepted::TlsPassthrough(flow) => {
            let running = edge.state.running.enter();
            Box::pin(flow::serve(edge.access.clone(), *flow, running))
        }
    }
}

/// Serves the connection by its ALPN. Each protocol has a boxed future of its own, so that no connection holds memory
/// for the others.
fn dispatch_http(
    edge: Arc<Edge>,
    client: HttpClient,
    peer: SocketAddr,
    place: &mut Option<ConnectionPlace>,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    let HttpClient { mut stream, negotiated, certificate } = client;
    stream.set_recorder(RoundTripRecorder::new(&edge.state.clients, peer.ip()));
    let stream = SendBound::new(stream, edge.state.config.send_timeout, ClientTls::socket);
    match negotiated {
        // A client that offers this ALPN got the tunnel's handshake before, and never arrives here.
        Negotiated::Tunnel | Negotiated::TunnelTooOld => Box::pin(std::future::ready(())),
        Negotiated::Http2 => {
            let (running, place, stream) = (edge.state.running.enter(), place.take(), stream);
            Box::pin(h2::serve(edge.http.clone(), stream, peer, place, certificate, running))
        }
        Negotiated::Http1 => {
            let (running, place, stream) = (edge.state.running.enter(), place.take(), Box::new(stream));
            Box::pin(async move {
                let _running = running;
                h1::serve(edge.http.clone(), stream, peer, place, certificate).await;
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_in_the_accept_task_is_reported() {
        for shards in [Shards::default(), Shards::start(std::num::NonZeroU16::MIN).unwrap()] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let take = |_, _| panic!("on purpose");
            let accepting = accept_in_shard(&shards, listener, Shutdown::new(), take);
            let (outcome, _) = tokio::join!(accepting, TcpStream::connect(address));
            assert!(outcome.is_err());
        }
    }

    #[test]
    fn accept_failures_are_logged_at_most_once_a_second() {
        let mut log = Occasionally::default();
        let start = Instant::now();
        let logged = (0..60).filter(|round| log.is_due(start + ACCEPT_PAUSE * *round)).count();
        assert_eq!(logged, 3, "three seconds");
    }
}
