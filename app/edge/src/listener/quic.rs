//! The QUIC port: connectors, each of whose streams is a carrier, also over associations of paths, and clients with
//! HTTP/3.

use std::{convert::Infallible, io, net::SocketAddr, sync::Arc, time::Duration};

use sallyport_multipath_udp::Associations;
use sallyport_net::{Certificates, HTTP3_ALPN, QuicProtocols, Shutdown, server_config_for_quic};
use sallyport_quic::{QuicIncoming, QuicListener, QuicPort, QuicSocket};
use sallyport_tunnel::carrier::quic::QuicConnection;
use tokio::{sync::watch, task::JoinSet};

use crate::{
    edge::Edge,
    http::{alt_svc::Reachability, h3, tunnel_websocket},
    lifecycle::{
        counts::{ConnectionPlace, HandshakePlace},
        phase,
    },
    listener::multipath::Opener,
};

/// How long a handshake may take.
const MAX_HANDSHAKE: Duration = Duration::from_secs(10);
/// From this many handshakes of all kinds on, a client must prove its address first (RFC 9000 section 8.1): source
/// addresses of UDP are easy to forge.
const PROVE_FROM_HANDSHAKES: usize = 256;
/// How many streams a connector may have besides its legs: control, datagrams, and streams that are closing.
const SPARE_STREAMS: u32 = 64;
/// How long a probe of the own port waits for the answer.
const MAX_PROBE: Duration = Duration::from_secs(2);
/// How often the own port is probed.
const PROBE_EVERY: Duration = Duration::from_secs(15);
/// After how long the own port is probed again when the answer is missing.
const PROBE_AGAIN: Duration = Duration::from_secs(3);
/// How long the close frames to peers may take at the end of a shutdown.
pub(super) const MAX_FAREWELL: Duration = Duration::from_secs(1);

/// How clients are offered HTTP/3.
#[derive(Debug, Clone)]
pub struct Http3Offer {
    /// The UDP port as clients see it.
    pub public_port: u16,
    /// Whether requests may come with the first datagram of a client that returns (0-RTT): GET and HEAD without a body
    /// alone, once each.
    pub accepts_early_data: bool,
    /// Addresses of this edge as clients see them. HTTP/3 is offered while one of them answers over UDP.
    pub probed: Vec<SocketAddr>,
}

impl Edge {
    /// The UDP port at which clients are offered HTTP/3, and its changes; `None` while there is no offer.
    #[must_use]
    pub fn http3_port(&self) -> watch::Receiver<Option<u16>> {
        self.http.alt_svc.subscribe()
    }

    /// Has clients forget an offer of HTTP/3, because this process does not serve it.
    pub fn set_no_http3(&self) {
        self.http.alt_svc.withdraw();
    }

    /// Serves connectors over QUIC at this port, and clients over HTTP/3 if there is an offer, beside [`Edge::serve`]
    /// and with the same certificates. Connectors with several links find the port at `public_port`. After the shutdown
    /// begins, existing connections stay until the other connections have ended.
    ///
    /// # Errors
    /// A socket cannot be used.
    pub async fn serve_quic(
        self: &Arc<Self>,
        (port, public_port): (QuicPort, u16),
        certificates: Arc<Certificates>,
        http3: Option<Http3Offer>,
        shutdown: Shutdown,
    ) -> io::Result<()> {
        let accepts_early_data = http3.as_ref().is_some_and(|offer| offer.accepts_early_data);
        let protocols = QuicProtocols { has_http3: http3.is_some(), accepts_early_data };
        let tls = server_config_for_quic(certificates.clone(), sallyport_wire::ALPN, protocols);
        self.quic.set_counts(port.counts());
        let opener = self.share_with_associations((&port, public_port), certificates, shutdown.clone())?;
        let mut serving = JoinSet::new();
        for socket in port.take_sockets() {
            let early_protocol = accepts_early_data.then_some(HTTP3_ALPN);
            let served = serve_socket(self.clone(), socket, (tls.clone(), early_protocol), shutdown.clone());
            self.state.config.shards.spawn_among(&mut serving, served);
        }
        let all_served = async {
            while let Some(served) = serving.join_next().await {
                served.map_err(io::Error::other)??;
            }
            opener.ended().await;
            Ok(())
        };
        let offering = async {
            match http3 {
                Some(offer) => self.offer_http3(&offer).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            served = all_served => served,
            never = offering => match never {},
        }
    }

    /// Opens associations of paths at the port for connectors with several links.
    fn share_with_associations(
        self: &Arc<Self>,
        (port, public_port): (&QuicPort, u16),
        certificates: Arc<Certificates>,
        shutdown: Shutdown,
    ) -> io::Result<Arc<Opener>> {
        let associations = Associations::new(sallyport_multipath::Config::default(), port.sender()?);
        port.share_with(associations.clone());
        let tls = server_config_for_quic(certificates, sallyport_wire::ALPN, QuicProtocols::default());
        let server = sallyport_multipath_udp::server_config(&tls)?;
        let opener = Opener::new(self, associations, server, public_port, shutdown);
        self.tunnels.set_associations(opener.clone());
        Ok(opener)
    }

    /// Offers HTTP/3 while the own port answers.
    async fn offer_http3(&self, offer: &Http3Offer) -> Infallible {
        let (mut reachability, mut has_warned) = (Reachability::default(), false);
        loop {
            let mut has_answered = false;
            for address in &offer.probed {
                match sallyport_quic::probe(*address, MAX_PROBE).await {
                    Ok(()) => has_answered = true,
                    Err(error) => tracing::debug!(%error, "the own port for HTTP/3"),
                }
            }
            let is_reachable = reachability.record(has_answered);
            let was_reachable = self.http3_port().borrow().is_some();
            if is_reachable != was_reachable {
                tracing::info!(port = offer.public_port, is_reachable, "the offer of HTTP/3 to clients has changed");
            }
            if !is_reachable && !has_warned {
                has_warned = true;
                tracing::warn!(
                    probed = ?offer.probed,
                    "HTTP/3 is not offered, because the own UDP port does not answer: let UDP through, or turn HTTP/3 off \
                     with --no-http3"
                );
            }
            self.quic.set_offered(is_reachable);
            self.http.alt_svc.set_port(is_reachable.then_some(offer.public_port));
            tokio::time::sleep(if has_answered { PROBE_EVERY } else { PROBE_AGAIN }).await;
        }
    }
}

/// Serves the connections of one socket in this shard.
async fn serve_socket(
    edge: Arc<Edge>,
    socket: QuicSocket,
    (tls, early_protocol): (Arc<rustls::ServerConfig>, Option<&[u8]>),
    shutdown: Shutdown,
) -> io::Result<()> {
    let congestion = edge.state.config.tunnel_congestion.as_ref().map(|congestion| congestion.name());
    let listener = socket.listen(&tls, early_protocol, congestion)?;
    let mut phase = edge.state.phase.subscribe();
    tokio::select! {
        () = shutdown.wait() => {}
        () = take_all(&edge, &listener) => return Ok(()),
    }
    tokio::select! {
        () = phase::cut(&mut phase) => {}
        () = take_last(&edge, &listener) => {}
    }
    listener.refuse_new();
    phase::cut(&mut phase).await;
    let _ = tokio::time::timeout(MAX_FAREWELL, listener.close()).await;
    Ok(())
}

async fn take_all(edge: &Arc<Edge>, listener: &QuicListener) {
    while let Some(incoming) = listener.accept().await {
        take(edge, incoming);
    }
}

/// Takes the connections that have begun here before another process took over, and refuses all others: clients then
/// come over TCP at once.
async fn take_last(edge: &Arc<Edge>, listener: &QuicListener) {
    while let Some(incoming) = listener.accept().await {
        match listener.is_replaced() {
            true => take(edge, incoming),
            false => incoming.refuse(),
        }
    }
}

/// Does the handshake of an incoming connection, and serves the connection by its protocol.
fn take(edge: &Arc<Edge>, incoming: QuicIncoming) {
    let peer = incoming.remote_address();
    let Some(place) = edge.connections.enter(peer.ip()) else {
        edge.state.metrics.handshake_failed("too-many-connections");
        return incoming.refuse();
    };
    let is_busy = edge.handshakes.len() >= PROVE_FROM_HANDSHAKES;
    let Some(incoming) = (if is_busy { incoming.validated() } else { Some(incoming) }) else { return };
    let mut handshake = edge.handshakes.enter(peer.ip());
    let edge = edge.clone();
    tokio::spawn(async move {
        let Some(connection) = shake_hands(&edge, incoming, &mut handshake).await else { return };
        match sallyport_quic::protocol(&connection) {
            Some(protocol) if protocol == HTTP3_ALPN => serve_client(&edge, connection, peer, handshake, place).await,
            _ => {
                drop(handshake);
                serve_connector(&edge, connection, peer, "quic").await;
                drop(place);
            }
        }
    });
}

async fn shake_hands(edge: &Edge, incoming: QuicIncoming, place: &mut HandshakePlace) -> Option<quinn::Connection> {
    let reason = tokio::select! {
        biased;
        accepted = incoming.accept() => match accepted {
            Ok(connection) => return Some(connection),
            Err(error) => {
                tracing::debug!(%error, "a QUIC handshake failed");
                "quic"
            }
        },
        () = place.pushed_out() => "pushed-out",
        () = tokio::time::sleep(MAX_HANDSHAKE) => "timeout",
    };
    edge.state.metrics.handshake_failed(reason);
    None
}

/// Serves HTTP/3 until the connection ends.
async fn serve_client(
    edge: &Arc<Edge>,
    connection: quinn::Connection,
    peer: SocketAddr,
    handshake: HandshakePlace,
    place: ConnectionPlace,
) {
    let running = edge.state.running.enter();
    // Released only now, when the connection's own count is taken: the shutdown waits for handshakes, then for
    // connections.
    drop(handshake);
    let guards = (running, edge.quic.connected());
    h3::serve(edge.http.clone(), connection, peer, Some(place), guards).await;
}

/// Serves the carriers of a connection until the connection ends.
pub(super) async fn serve_connector(
    edge: &Arc<Edge>,
    connection: quinn::Connection,
    peer: SocketAddr,
    transport: &'static str,
) {
    let max_legs = u32::try_from(edge.state.config.max_legs_per_session).unwrap_or(u32::MAX);
    let connection = QuicConnection::accepted(connection, max_legs.saturating_add(SPARE_STREAMS));
    loop {
        match connection.accept_carrier().await {
            Ok(carrier) => {
                let edge = edge.clone();
                tokio::spawn(
                    async move { tunnel_websocket::serve(&edge.http, carrier, peer, transport, |_| None).await },
                );
            }
            Err(error) => return tracing::debug!(%peer, %error, "a QUIC connection ended"),
        }
    }
}
