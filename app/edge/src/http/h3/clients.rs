//! The client of a connection, whose address may change (RFC 9000 section 9).

use std::{net::SocketAddr, sync::Arc};

use parking_lot::Mutex;

use crate::{
    http::{connection::Client, server::HttpServer},
    lifecycle::counts::ConnectionPlace,
};

/// The client of a connection, as of each request.
pub(super) struct Clients {
    server: Arc<HttpServer>,
    /// Keeps the connection's place within the bounds.
    first: Arc<Client>,
    current: Mutex<Current>,
}

struct Current {
    /// The address in the form in which QUIC has it.
    remote: SocketAddr,
    client: Arc<Client>,
}

impl Clients {
    pub(super) fn new(
        server: Arc<HttpServer>,
        remote: SocketAddr,
        addr: SocketAddr,
        place: Option<ConnectionPlace>,
    ) -> Self {
        let first = Client::new(&server, addr, true, place, None);
        let current = Mutex::new(Current { remote, client: first.clone() });
        Self { server, first, current }
    }

    /// The client of a request that begins now, at this address. A new address has a state of its own, so that address
    /// rules, limits and forwarded fields are those of the address.
    pub(super) fn at(&self, remote: SocketAddr) -> Arc<Client> {
        let mut current = self.current.lock();
        if current.remote != remote {
            let addr = SocketAddr::new(remote.ip().to_canonical(), remote.port());
            let client = if addr == self.first.addr {
                self.first.clone()
            } else {
                Client::new(&self.server, addr, true, None, None)
            };
            *current = Current { remote, client };
        }
        current.client.clone()
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
