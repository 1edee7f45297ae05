//! The client of a connection, whose address may change (RFC 9000 section 9).

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use sallyport_quic::proven_address;
use tokio::sync::watch;

use crate::{
    http::{connection::Client, server::HttpServer},
    lifecycle::counts::ConnectionPlace,
};

/// How long a request from a new address waits for the proof that its client receives there.
const MAX_PROOF: Duration = Duration::from_secs(1);
/// After how long the proof is looked for again; doubled each time.
const FIRST_LOOK: Duration = Duration::from_millis(2);

/// The client of a connection, as of each request.
///
/// Requests are judged at addresses at which the client is proven to receive. A client may send from the address of
/// another, which an access list may admit.
pub(super) struct Clients {
    server: Arc<HttpServer>,
    /// Keeps the connection's place within the bounds.
    first: Arc<Client>,
    /// The client at its last proven address.
    current: Mutex<Arc<Client>>,
    /// Tells running requests the last proven address.
    moves: watch::Sender<IpAddr>,
}

impl Clients {
    /// The client of a new connection. The handshake has proven its address.
    pub(super) fn new(server: Arc<HttpServer>, addr: SocketAddr, place: Option<ConnectionPlace>) -> Self {
        let moves = watch::Sender::new(addr.ip());
        let first = Client::moving(&server, addr, place, moves.subscribe());
        let current = Mutex::new(first.clone());
        Self { server, first, current, moves }
    }

    /// The client of a request that begins now. A request from a new address waits until the address is proven.
    /// Without the proof, the request counts as one from the last proven address.
    pub(super) async fn of_request(&self, quic: &quinn::Connection, ask_for_proof: impl FnOnce()) -> Arc<Client> {
        if let Some(client) = self.known(quic) {
            return client;
        }
        ask_for_proof();
        let wait = async {
            let mut pause = FIRST_LOOK;
            loop {
                tokio::time::sleep(pause).await;
                if let Some(client) = self.known(quic) {
                    return client;
                }
                pause *= 2;
            }
        };
        match tokio::time::timeout(MAX_PROOF, wait).await {
            Ok(client) => client,
            Err(_) => self.current.lock().clone(),
        }
    }

    /// Looks whether the client has moved, for the requests that run.
    pub(super) fn look(&self, quic: &quinn::Connection, ask_for_proof: impl FnOnce()) {
        if self.known(quic).is_none() {
            ask_for_proof();
        }
    }

    /// The client at its present address; `None` if that is not proven.
    fn known(&self, quic: &quinn::Connection) -> Option<Arc<Client>> {
        let (mut current, remote) = (self.current.lock(), canonical(quic.remote_address()));
        if current.addr != remote {
            match proven_address(quic).map(canonical) {
                // A new address has a state of its own, so that limits and forwarded fields are those of the address.
                Some(addr) => {
                    if addr.ip() != current.addr.ip() {
                        self.moves.send_replace(addr.ip());
                    }
                    *current = Client::moving(&self.server, addr, None, self.moves.subscribe());
                }
                // The client has another port.
                None if current.addr.ip() == remote.ip() => {}
                None => return None,
            }
        }
        Some(current.clone())
    }

    /// Counts one more request of the connection.
    pub(super) fn count_request(&self) {
        self.first.count_request();
    }

    /// Whether the connection has carried as many requests as the configuration allows.
    pub(super) fn has_reached_max_requests(&self) -> bool {
        self.first.has_reached_max_requests(&self.server)
    }
}

/// The address in the form that rules have.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
