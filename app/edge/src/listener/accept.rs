//! The public port: connections come in, end their TLS in a task of their own, and go where their ALPN says.

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
    client::tls::{ClientTls, HttpClient},
    edge::Edge,
    http::{h1, h2, send_bound::SendBound, tunnel_websocket},
    lifecycle::counts::{ConnectionPlace, HandshakePlace},
    listener::handshake::{Accepted, ConnectionRouter},
    mesh,
    tcp::flow,
};

/// How long nothing is accepted after the system had no room for another connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How often at most it is logged that nothing can be accepted.
const ACCEPT_LOG_PERIOD: Duration = Duration::from_secs(1);

/// Where connections come from.
pub(crate) trait Source {
    /// What comes.
    type Stream;

    /// The next connection, and whom it comes from.
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

/// Takes connections until the shutdown, each into a task of its own.
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

/// The same in a shard: what is served there too was woken for once, and is watched once. The others are handed to
/// theirs. Dropped early, it stops soon, and not at once.
///
/// # Errors
/// The system does not watch the listener, or what takes a connection panicked: nobody listens any more.
pub(crate) async fn accept_in_shard(
    shards: &Shards,
    listener: TcpListener,
    shutdown: Shutdown,
    take: impl FnMut(net::TcpStream, SocketAddr) + Send + 'static,
) -> io::Result<()> {
    // It is watched by the shard, and no longer here.
    let listener = listener.into_std()?;
    // Dropped with this, which ends what is in it.
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

/// Lets something happen at most once in each [`ACCEPT_LOG_PERIOD`].
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

/// Whether the error concerns only the connection that was to be accepted.
fn is_of_peer(error: &io::Error) -> bool {
    use io::ErrorKind as K;
    matches!(error.kind(), K::ConnectionAborted | K::ConnectionReset | K::ConnectionRefused | K::Interrupted)
}

/// A TCP connection to the TLS port.
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
        // Only now, when what came of it runs: a drain waits for the one and then for the other.
        drop(handshake);
        if let Some(served) = served {
            served.await;
        }
        drop(place);
    });
}

/// A TCP connection to the port that is for ssh alone.
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

/// What the connection is, once its handshake is over.
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

/// Goes to the socket that the client's name says, or where its ALPN says. HTTP takes the connection's place along,
/// since a WebSocket outlives what is returned here.
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
        Accepted::Shared(client, peer) => dispatch_shared(edge, client, peer, place),
        Accepted::Ended(arrival) => {
            let running = edge.state.running.enter();
            Box::pin(flow::serve(edge.access.clone(), *arrival, running))
        }
        Accepted::Passed(arrival) => {
            let running = edge.state.running.enter();
            Box::pin(flow::serve(edge.access.clone(), *arrival, running))
        }
    }
}

/// Goes where the client's ALPN says. Each way has a future of its own size: what a connection of one kind needs, those
/// of the others do not hold.
fn dispatch_shared(
    edge: Arc<Edge>,
    client: HttpClient,
    peer: SocketAddr,
    place: &mut Option<ConnectionPlace>,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    let HttpClient { stream, negotiated, shown } = client;
    let stream = SendBound::new(stream, edge.state.config.send_timeout, ClientTls::socket);
    match negotiated {
        // Whoever offers to speak it gets no other handshake than that of tunnels.
        Negotiated::Tunnel | Negotiated::TunnelTooOld => Box::pin(std::future::ready(())),
        Negotiated::Http2 => {
            let (running, place, stream) = (edge.state.running.enter(), place.take(), stream);
            Box::pin(h2::serve(edge.http.clone(), stream, peer, place, shown, running))
        }
        Negotiated::Http1 => {
            let (running, place, stream) = (edge.state.running.enter(), place.take(), Box::new(stream));
            Box::pin(async move {
                let _running = running;
                h1::serve(edge.http.clone(), stream, peer, place, shown).await;
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_port_that_nobody_listens_at_any_more_is_told_of() {
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
    fn a_port_that_cannot_accept_says_so_once_a_second() {
        let mut log = Occasionally::default();
        let start = Instant::now();
        let said = (0..60).filter(|round| log.is_due(start + ACCEPT_PAUSE * *round)).count();
        assert_eq!(said, 3, "three seconds");
    }
}
