//! Connectors over QUIC: each connection is a session, and each of its streams a carrier.

use std::{
    io,
    net::{SocketAddr, UdpSocket},
    sync::Arc,
    time::Duration,
};

use sallyport_net::{Certificates, Shutdown, server_config_built_in};
use sallyport_tunnel::carrier::quic::{QuicConnection, QuicIncoming, QuicListener};

use crate::{
    edge::Edge,
    http::tunnel_websocket,
    lifecycle::{counts::HandshakePlace, phase},
};

/// How long a handshake may take.
const MAX_HANDSHAKE: Duration = Duration::from_secs(10);
/// From this many handshakes of all kinds on, a client must prove its address first (RFC 9000 section 8.1): source
/// addresses of UDP are easy to forge.
const PROVE_FROM_HANDSHAKES: usize = 256;
/// How many streams a connection may have besides its legs: control, datagrams, and streams that are closing.
const SPARE_STREAMS: u32 = 64;
/// How long the close frames to connectors may take at the end of a shutdown.
const MAX_FAREWELL: Duration = Duration::from_secs(1);

impl Edge {
    /// Serves connectors over QUIC at this socket, beside [`Edge::serve`] and with the same certificates. After the
    /// shutdown begins, existing connections stay until the other connections have ended.
    ///
    /// # Errors
    /// The socket cannot be used.
    pub async fn serve_quic(
        self: &Arc<Self>,
        socket: UdpSocket,
        certificates: Arc<Certificates>,
        shutdown: Shutdown,
    ) -> io::Result<()> {
        let tls = server_config_built_in(certificates, sallyport_wire::ALPN);
        let max_legs = u32::try_from(self.state.config.max_legs_per_session).unwrap_or(u32::MAX);
        let congestion = self.state.config.tunnel_congestion.as_ref().map(|congestion| congestion.name());
        let listener = QuicListener::new(socket, &tls, max_legs.saturating_add(SPARE_STREAMS), congestion)?;
        let mut phase = self.state.phase.subscribe();
        loop {
            let incoming = tokio::select! {
                biased;
                () = shutdown.wait() => break,
                incoming = listener.accept() => incoming,
            };
            match incoming {
                Some(incoming) => take(self, incoming),
                None => break,
            }
        }
        listener.refuse_new();
        phase::cut(&mut phase).await;
        let _ = tokio::time::timeout(MAX_FAREWELL, listener.close()).await;
        Ok(())
    }
}

/// Does the handshake of an incoming connection.
fn take(edge: &Arc<Edge>, incoming: QuicIncoming) {
    let peer = incoming.remote_address();
    let Some(place) = edge.connections.enter(peer.ip()) else {
        edge.state.metrics.handshake_failed("too-many-connections");
        return incoming.refuse();
    };
    let is_busy = edge.handshakes.len() >= PROVE_FROM_HANDSHAKES;
    let Some(incoming) = (if is_busy { incoming.validated() } else { Some(incoming) }) else { return };
    let handshake = edge.handshakes.enter(peer.ip());
    let edge = edge.clone();
    tokio::spawn(async move {
        if let Some(connection) = shake_hands(&edge, incoming, handshake).await {
            serve(&edge, connection, peer).await;
        }
        drop(place);
    });
}

async fn shake_hands(edge: &Edge, incoming: QuicIncoming, mut place: HandshakePlace) -> Option<QuicConnection> {
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

/// Serves the carriers of a connection until the connection ends.
async fn serve(edge: &Arc<Edge>, connection: QuicConnection, peer: SocketAddr) {
    loop {
        match connection.accept_carrier().await {
            Ok(carrier) => {
                let edge = edge.clone();
                tokio::spawn(async move { tunnel_websocket::serve(&edge.http, carrier, peer, "quic", |_| None).await });
            }
            Err(error) => return tracing::debug!(%peer, %error, "a QUIC connection ended"),
        }
    }
}
