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
    access::Whereabouts,
    http::{connection::Client, server::HttpServer},
    lifecycle::counts::ConnectionPlace,
};

/// How long a request from a new address waits for the proof that its client receives there.
const MAX_PROOF: Duration = Duration::from_secs(1);
/// After how long the proof is looked for again; doubled each time.
const FIRST_LOOK: Duration = Duration::from_millis(2);

/// The client of a connection, as of each request.
///
/// A client may send from the address of another. So an address counts once the client is proven to receive there.
/// Until then the client counts as at its last proven address, and must be admitted at both.
pub(super) struct Clients {
    server: Arc<HttpServer>,
    /// Keeps the connection's place within the bounds.
    first: Arc<Client>,
    /// The client at its last proven address.
    current: Mutex<Arc<Client>>,
    /// Tells running requests where the client is.
    moves: watch::Sender<Whereabouts>,
}

impl Clients {
    /// The client of a new connection. The handshake has proven its address.
    pub(super) fn new(server: Arc<HttpServer>, addr: SocketAddr, place: Option<ConnectionPlace>) -> Self {
        let addr = canonical(addr);
        let moves = watch::Sender::new(Whereabouts::at(addr.ip()));
        let first = Client::moving(&server, addr, None, place, moves.subscribe());
        let current = Mutex::new(first.clone());
        Self { server, first, current, moves }
    }

    /// The client of a request that begins now. A request from a new address waits for the proof, for a while.
    pub(super) async fn of_request(&self, quic: &quinn::Connection, ask_for_proof: impl FnOnce()) -> Arc<Client> {
        let claimed = canonical(quic.remote_address()).ip();
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
            Ok(client) if client.addr.ip() == claimed => return client,
            // Without an answer, QUIC goes back to the former address.
            Ok(_) => {}
            Err(_) => self.set_claimed(quic),
        }
        let proven = self.current.lock().addr;
        Client::moving(&self.server, proven, Some(claimed), None, self.moves.subscribe())
    }

    /// Looks where the client is, for the requests that run. `was_asked` says that the client has had a second for the
    /// proof. Returns whether the proof is missing.
    pub(super) fn look(&self, quic: &quinn::Connection, was_asked: bool) -> bool {
        if self.known(quic).is_some() {
            return false;
        }
        if was_asked {
            self.set_claimed(quic);
        }
        true
    }

    /// Has running requests judged at an address that is not proven, too.
    fn set_claimed(&self, quic: &quinn::Connection) {
        let remote = canonical(quic.remote_address()).ip();
        self.set(|seen| seen.claimed = (remote != seen.proven).then_some(remote));
    }

    fn set(&self, change: impl FnOnce(&mut Whereabouts)) {
        self.moves.send_if_modified(|seen| {
            let before = *seen;
            change(seen);
            *seen != before
        });
    }

    /// The client at its present address; `None` if that is not proven.
    fn known(&self, quic: &quinn::Connection) -> Option<Arc<Client>> {
        let (mut current, remote) = (self.current.lock(), canonical(quic.remote_address()));
        if current.addr == remote {
            if self.moves.borrow().claimed.is_some() {
                self.set(|seen| seen.claimed = None);
            }
            return Some(current.clone());
        }
        match proven_address(quic).map(canonical) {
            // A new address has a state of its own, so that limits and forwarded fields are those of the address.
            Some(addr) => {
                self.set(|seen| *seen = Whereabouts::at(addr.ip()));
                *current = Client::moving(&self.server, addr, None, None, self.moves.subscribe());
            }
            // The client has another port.
            None if current.addr.ip() == remote.ip() => {}
            None => return None,
        }
        Some(current.clone())
    }

    /// The last address at which the client was proven to receive.
    pub(super) fn proven_ip(&self) -> IpAddr {
        self.current.lock().addr.ip()
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
