//! Links to other edges: made when a stream needs one, shared by all streams, measured, and closed when unused.

use std::{
    future::Future,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use sallyport_bus::Fleet;
use sallyport_net::{ReadAhead, connect_tcp_to, set_notsent_lowat, start_tls};
use sallyport_tunnel::{CONTROL_NOTSENT_BYTES, EdgeLink};
use sallyport_wire::SessionConfig;
use tokio::{net::TcpStream, sync::oneshot, task::JoinSet};
use tokio_rustls::client::TlsStream;
use tracing::{debug, info};

use super::{Mesh, Peer};

use crate::origins::transport::remote::EdgeLinks;

/// How long a connection to another edge may take. Nothing was sent before, so the waiting streams can go to another
/// edge.
const CONNECT_TIME: Duration = Duration::from_secs(1);
/// How long a link may take with its handshakes, of three round trips and more.
const LINK_TIME: Duration = Duration::from_secs(3);
/// After how long an unused link is closed.
const MAX_IDLE: Duration = Duration::from_secs(300);
/// How long the address of an edge without a lease is kept. It may be there still, although the bus does not reach it.
const FORGET_AFTER: Duration = Duration::from_secs(900);
/// How often links are checked for that.
const TEND_PERIOD: Duration = Duration::from_secs(10);
/// How often the distance to an edge without a link is measured.
const MEASURE_PERIOD: Duration = Duration::from_secs(60);
/// How often edges are checked for a due measurement.
const MEASURE_LOOK: Duration = Duration::from_secs(5);
/// How many edges are measured at once.
const MAX_MEASURED_AT_ONCE: usize = 16;
/// After how much silence a keepalive is sent, and how many may go unanswered. A lost edge is noticed before its lease
/// ends.
const KEEPALIVE: Duration = Duration::from_secs(1);
const MAX_MISSED: u32 = 3;

/// A connection to another edge.
type Connection = TlsStream<ReadAhead<TcpStream>>;

/// The timeouts and bounds of links.
fn session_config() -> SessionConfig {
    SessionConfig { keepalive: KEEPALIVE, missed_limit: MAX_MISSED, ..SessionConfig::default() }
}

impl EdgeLinks for Mesh {
    fn fleet(&self) -> &Fleet {
        &self.settings.fleet
    }

    fn link<'a>(
        &'a self,
        peer: &'a Arc<Peer>,
    ) -> Pin<Box<dyn Future<Output = Result<EdgeLink, Arc<str>>> + Send + 'a>> {
        Box::pin(self.link_to(peer))
    }

    fn begin_link(&self, peer: &Arc<Peer>) {
        let (Some(mesh), peer) = (self.me.upgrade(), peer.clone()) else { return };
        if peer.begins_linking() {
            tokio::spawn(async move {
                let _ = mesh.link_to(&peer).await;
                peer.is_wanted.store(false, Ordering::Release);
            });
        }
    }

    fn record_relayed(&self, kind: &'static str) {
        self.metrics.relayed("out", kind);
    }
}

impl Mesh {
    /// The link to this edge, made if there is none.
    ///
    /// # Errors
    /// Why the edge cannot be reached.
    pub(super) async fn link_to(&self, peer: &Arc<Peer>) -> Result<EdgeLink, Arc<str>> {
        let requested_at = Instant::now();
        let _turn = peer.dialing.lock().await;
        if let Some(link) = peer.link() {
            return Ok(link);
        }
        if let Some(why) = peer.failed_since(requested_at) {
            return Err(why);
        }
        let linked = tokio::time::timeout(LINK_TIME, self.make_link(peer)).await;
        let linked = linked.unwrap_or_else(|_| Err(format!("no session began within {LINK_TIME:?}")));
        linked.map_err(|why| {
            self.metrics.failed("unreachable");
            info!(edge = %peer.name(), why, "another edge cannot be reached");
            peer.record_failure(&why);
            why.into()
        })
    }

    async fn make_link(&self, peer: &Arc<Peer>) -> Result<EdgeLink, String> {
        let mesh = self.me.upgrade().ok_or("this edge is shutting down")?;
        let (established, link) = oneshot::channel();
        self.state.config.shards.spawn(mesh.drive_link(peer.clone(), established));
        link.await.unwrap_or_else(|_| Err("the task of the link ended early".to_owned()))
    }

    /// Makes a link and drives it to its end.
    async fn drive_link(self: Arc<Self>, peer: Arc<Peer>, tell: oneshot::Sender<Result<EdgeLink, String>>) {
        let (stream, address) = match self.connect(&peer).await {
            Ok(connected) => connected,
            Err(error) => return drop(tell.send(Err(error.to_string()))),
        };
        let mut session = None;
        let linked = peer.clone();
        let report = |link: Result<EdgeLink, _>| match link {
            Ok(link) => {
                session = Some(link.session());
                linked.set_link(link.clone());
                let _ = tell.send(Ok(link));
            }
            Err(error) => drop(tell.send(Err(format!("{error}")))),
        };
        info!(edge = %peer.name(), %address, "a link to another edge is open");
        let why = self.tunnels.serve_link(stream, address, session_config(), report).await;
        if let Some(session) = session {
            peer.clear_link(session);
            info!(edge = %peer.name(), why, "the link to another edge ended");
        }
    }

    async fn connect(&self, peer: &Peer) -> io::Result<(Connection, SocketAddr)> {
        let tcp = connect_tcp(&peer.addresses()).await?;
        let address = tcp.peer_addr()?;
        let _ = set_notsent_lowat(&tcp, CONTROL_NOTSENT_BYTES);
        let name = sallyport_pki::edge_node(&peer.edge().to_string());
        let (host, port) = (address.ip().to_string(), address.port());
        let stream = start_tls(tcp, &host, port, &name, self.settings.tls.client(), LINK_TIME).await?;
        Ok((stream, address))
    }

    /// Closes unused links, and forgets edges that are gone.
    pub(super) async fn tend(&self) {
        loop {
            tokio::time::sleep(TEND_PERIOD).await;
            for peer in self.peers() {
                if let Some(link) = peer.idle_link(MAX_IDLE) {
                    debug!(edge = %peer.name(), "a link to another edge is closed, because it is unused");
                    link.close("the link is unused");
                }
                let is_there = peer.has_link() || self.settings.fleet.edge(peer.edge()).is_some();
                let is_gone = peer.record_presence(is_there) >= FORGET_AFTER || !self.may_link(peer.edge());
                if !is_there && is_gone {
                    self.forget(&peer);
                }
            }
        }
    }

    fn forget(&self, peer: &Arc<Peer>) {
        let mut peers = self.peers.lock();
        // Origins that still refer to this peer have lost their tunnel.
        if peers.get(&peer.edge()).is_some_and(|known| Arc::ptr_eq(known, peer)) {
            peers.remove(&peer.edge());
        }
    }

    /// Measures the distance to edges without a link, by the time of a TCP handshake.
    pub(super) async fn measure(&self) {
        let mut measuring = JoinSet::new();
        loop {
            tokio::time::sleep(MEASURE_LOOK).await;
            while measuring.try_join_next().is_some() {}
            for peer in self.peers().into_iter().filter(|peer| peer.wants_measure(MEASURE_PERIOD)) {
                if measuring.len() >= MAX_MEASURED_AT_ONCE {
                    break;
                }
                peer.record_round_trip(peer.round_trip());
                measuring.spawn(async move {
                    let began = Instant::now();
                    let connected = connect_tcp(&peer.addresses()).await;
                    peer.record_round_trip(connected.is_ok().then(|| began.elapsed()));
                });
            }
        }
    }
}

/// Connects to the first address that accepts.
pub(super) async fn connect_tcp(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let known: Vec<_> = addresses.iter().filter(|address| !address.ip().is_unspecified()).copied().collect();
    if known.is_empty() {
        let why = "the edge announces no address: start it with --advertise ADDR:PORT";
        return Err(io::Error::new(io::ErrorKind::AddrNotAvailable, why));
    }
    connect_tcp_to(&known, CONNECT_TIME).await
}
