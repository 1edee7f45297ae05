//! The associations of the QUIC port: each carries one QUIC connection of a connector over all of its links.

use std::{
    net::SocketAddr,
    sync::{Arc, Weak},
    time::Duration,
};

use quinn::{Connection, Endpoint, ServerConfig};
use sallyport_multipath_udp::{Associations, MAX_ASSOCIATIONS, Offer, endpoint};
use sallyport_net::Shutdown;
use sallyport_tunnel::Associations as OpenAssociations;
use sallyport_wire::{Associate, Associated, Refusal};
use tokio::time::timeout;

use crate::{
    edge::Edge,
    lifecycle::{
        counts::{ConnectionPlace, Connections, Running},
        phase,
    },
    listener::quic::{MAX_FAREWELL, serve_connector},
};

/// How long a connector has for its QUIC connection, from the edge's answer to the end of the handshake.
const MAX_OPENING: Duration = Duration::from_secs(10);
/// How many associations the connectors of one address may have. A connector needs one, and a second one for a moment.
const MAX_PER_ADDRESS: usize = 64;

/// Opens associations for connectors with the credential of a tunnel.
pub(super) struct Opener {
    edge: Weak<Edge>,
    associations: Arc<Associations>,
    /// QUIC within associations.
    server: ServerConfig,
    /// The UDP port as connectors see it.
    public_port: u16,
    places: Arc<Connections>,
    serving: Running,
    shutdown: Shutdown,
}

impl Opener {
    pub(super) fn new(
        edge: &Arc<Edge>,
        associations: Arc<Associations>,
        server: ServerConfig,
        public_port: u16,
        shutdown: Shutdown,
    ) -> Arc<Self> {
        let places = Connections::new(MAX_ASSOCIATIONS, MAX_PER_ADDRESS);
        edge.quic.set_associations(places.clone());
        let (edge, serving) = (Arc::downgrade(edge), Running::default());
        Arc::new(Self { edge, associations, server, public_port, places, serving, shutdown })
    }

    /// Waits, after the shutdown has begun, until the connectors know of the end.
    pub(super) async fn ended(&self) {
        let _ = timeout(MAX_FAREWELL, self.serving.none_left()).await;
    }

    fn open(&self, edge: &Arc<Edge>, peer: SocketAddr) -> Result<Associated, (&'static str, Refusal)> {
        let busy = |text: &str| Refusal::new("busy", text, true);
        if self.shutdown.is_triggered() {
            return Err(("shutting-down", Refusal::new("shutting-down", "the edge is shutting down", true)));
        }
        if edge.balanced.get().is_some() {
            let text = "this edge takes no tunnels over several paths, because a balancer would spread them over edges";
            return Err(("balancer", Refusal::new("no-multipath", text, false)));
        }
        let too_many = "your address has as many tunnels over several paths at this edge as it may";
        let place = self.places.enter(peer.ip()).ok_or_else(|| ("too-many", busy(too_many)))?;
        let failed = |error: std::io::Error| {
            tracing::warn!(%error, "no association of paths could be opened");
            ("failed", busy("the edge can open no tunnel over several paths now"))
        };
        let (multipath, Offer { edge: edge_id, connector, secret }) = self.associations.open().map_err(failed)?;
        let endpoint = endpoint(multipath, peer, Some(self.server.clone())).map_err(failed)?;
        let running = self.serving.enter();
        let (edge, shutdown) = (edge.clone(), self.shutdown.clone());
        tokio::spawn(async move {
            serve(&edge, endpoint, peer, place, shutdown).await;
            drop(running);
        });
        Ok(Associated { edge: edge_id.0, connector: connector.0, secret, port: self.public_port })
    }
}

impl OpenAssociations for Opener {
    fn associate(&self, question: &Associate, peer: SocketAddr) -> Result<Associated, Refusal> {
        let gone = || Refusal::new("shutting-down", "the edge is shutting down", true);
        let edge = self.edge.upgrade().ok_or_else(gone)?;
        let checked = edge.gate.check(question.tunnel, &question.credential);
        let opened = match checked {
            Ok(()) => self.open(&edge, peer),
            Err(refusal) => Err(("credential", refusal)),
        };
        opened.map_err(|(reason, refusal)| {
            tracing::debug!(%peer, reason, "an association of paths is refused");
            edge.quic.association_refused(reason);
            refusal
        })
    }
}

/// Serves the only connection of an association until the connection ends, or the edge does.
async fn serve(edge: &Arc<Edge>, endpoint: Endpoint, peer: SocketAddr, _place: ConnectionPlace, shutdown: Shutdown) {
    let stops = async {
        shutdown.wait().await;
        phase::cut(&mut edge.state.phase.subscribe()).await;
    };
    let served = async {
        match timeout(MAX_OPENING, first_connection(&endpoint)).await {
            Ok(Some(connection)) => serve_connector(edge, connection, peer, "multipath").await,
            Ok(None) | Err(_) => {
                tracing::debug!(%peer, "an association of paths is given up, because no QUIC connection came");
                edge.quic.association_refused("unused");
            }
        }
    };
    tokio::select! {
        () = served => {}
        () = stops => {}
    }
    let _ = timeout(MAX_FAREWELL, sallyport_quic::close(&endpoint)).await;
}

/// The connection of the association. Further ones are refused.
async fn first_connection(endpoint: &Endpoint) -> Option<Connection> {
    let connection = endpoint.accept().await?.await.inspect_err(|error| {
        tracing::debug!(%error, "a QUIC handshake within an association failed");
    });
    endpoint.set_server_config(None);
    connection.ok()
}
