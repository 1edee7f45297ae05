//! The endpoint of one socket, and the connections before their handshakes.

use std::{
    any::Any,
    fmt, io,
    net::SocketAddr,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use quinn::{Connection, Endpoint, EndpointConfig, TokioRuntime, VarInt, crypto::rustls::QuicServerConfig};

use crate::{
    connection_id::{Generator, Place},
    path::PathCount,
    router::{QuicCounts, Router},
    socket::RoutedSocket,
    transport::{transport, transport_with_paths},
};

/// Bounds on connections that are not accepted yet: their number, and their received bytes (each and together).
const MAX_INCOMING: usize = 1_024;
const MAX_INCOMING_BYTES: u64 = 65_536;
const MAX_ALL_INCOMING_BYTES: u64 = 16 * 1024 * 1024;
/// Time that the last written bytes have to leave before a connection is closed. A close discards unsent data.
const DRAIN_TIME: Duration = Duration::from_millis(200);
/// Application error code of an orderly close.
const DONE: VarInt = VarInt::from_u32(0);
/// Application error code of a client that has moved before the end of its handshake.
const MOVED_EARLY: VarInt = VarInt::from_u32(1);

/// The endpoint of one socket. Clones share it.
#[derive(Debug, Clone)]
pub struct QuicListener {
    endpoint: Endpoint,
    early: Option<Arc<EarlyData>>,
    router: Arc<Router>,
}

/// How connections with early data are accepted.
#[derive(Debug)]
struct EarlyData {
    /// The protocol (ALPN) whose connections may have early data.
    protocol: Vec<u8>,
    config: quinn::ServerConfig,
    congestion: Option<String>,
}

/// An incoming connection before its handshake.
pub struct QuicIncoming {
    incoming: quinn::Incoming,
    early: Option<Arc<EarlyData>>,
    counts: Arc<QuicCounts>,
}

impl QuicListener {
    pub(crate) fn new(
        socket: RoutedSocket,
        tls: &Arc<rustls::ServerConfig>,
        early_protocol: Option<&[u8]>,
        congestion: Option<&str>,
    ) -> io::Result<Self> {
        let router = socket.router.clone();
        let crypto = QuicServerConfig::try_from(tls.clone()).map_err(|error| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("these TLS settings do not fit QUIC: {error}"))
        })?;
        let mut config = quinn::ServerConfig::new(Arc::new(crypto), router.secret.token_key());
        config
            .transport_config(Arc::new(transport(congestion)))
            .migration(true)
            .max_incoming(MAX_INCOMING)
            .incoming_buffer_size(MAX_INCOMING_BYTES)
            .incoming_buffer_size_total(MAX_ALL_INCOMING_BYTES);
        let mut endpoint = EndpointConfig::new(router.secret.reset_key());
        let (key, place) = (router.key.clone(), Place { generation: router.generation, socket: socket.number });
        endpoint.cid_generator(move || Box::new(Generator { key: key.clone(), place }));
        let early = early_protocol.map(|protocol| {
            let (protocol, congestion) = (protocol.to_vec(), congestion.map(str::to_owned));
            Arc::new(EarlyData { protocol, config: config.clone(), congestion })
        });
        let socket = Arc::new(socket);
        let endpoint = Endpoint::new_with_abstract_socket(endpoint, Some(config), socket, Arc::new(TokioRuntime))?;
        Ok(Self { endpoint, early, router })
    }

    /// The address.
    ///
    /// # Errors
    /// The kernel does not give it.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.endpoint.local_addr()
    }

    /// Returns the next connection, or `None` once the port is closed. Cancel safe.
    pub async fn accept(&self) -> Option<QuicIncoming> {
        let incoming = self.endpoint.accept().await?;
        Some(QuicIncoming { incoming, early: self.early.clone(), counts: self.router.counts.clone() })
    }

    /// Whether another process has taken the port over. Connections that this process has begun to accept continue.
    #[must_use]
    pub fn is_replaced(&self) -> bool {
        self.router.is_replaced()
    }

    /// Refuses new connections; existing ones continue.
    pub fn refuse_new(&self) {
        self.endpoint.set_server_config(None);
    }

    /// Sends what the connections still have to send, closes them, and waits until the peers were notified.
    pub async fn close(&self) {
        if self.endpoint.open_connections() > 0 {
            tokio::time::sleep(DRAIN_TIME).await;
        }
        self.endpoint.close(DONE, b"the edge stops");
        self.endpoint.wait_idle().await;
    }
}

impl fmt::Debug for QuicIncoming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("QuicIncoming").field(&self.remote_address()).finish()
    }
}

impl QuicIncoming {
    /// The address that the client claims.
    #[must_use]
    pub fn remote_address(&self) -> SocketAddr {
        self.incoming.remote_address()
    }

    /// Refuses the connection.
    pub fn refuse(self) {
        self.incoming.refuse();
    }

    /// Returns the connection if a token proves its address. Otherwise asks the client to retry with a token, and
    /// returns `None`.
    #[must_use]
    pub fn validated(self) -> Option<Self> {
        if self.incoming.remote_address_validated() || !self.incoming.may_retry() {
            return Some(self);
        }
        self.counts.retries.fetch_add(1, Ordering::Relaxed);
        let _ = self.incoming.retry();
        None
    }

    /// Completes the handshake. A connection whose protocol takes early data (0-RTT) is returned as soon as the
    /// protocol is known: streams before the end of the handshake are early, and [`quinn::RecvStream::is_0rtt`] says
    /// so.
    ///
    /// # Errors
    /// The handshake failed.
    pub async fn accept(self) -> io::Result<Connection> {
        let Some(early) = self.early else { return self.incoming.await.map_err(io::Error::from) };
        let paths = PathCount::default();
        let mut config = early.config.clone();
        config.transport_config(Arc::new(transport_with_paths(early.congestion.as_deref(), paths.clone())));
        let mut connecting = self.incoming.accept_with(Arc::new(config)).map_err(io::Error::from)?;
        let data = connecting.handshake_data().await.map_err(io::Error::from)?;
        if protocol_in(data).as_ref() != Some(&early.protocol) {
            return connecting.await.map_err(io::Error::from);
        }
        match connecting.into_0rtt() {
            Ok((connection, accepted)) => {
                tokio::spawn(close_if_moved(connection.clone(), accepted, paths));
                Ok(connection)
            }
            Err(connecting) => connecting.await.map_err(io::Error::from),
        }
    }
}

/// Closes a connection whose client has moved before the end of the handshake. The handshake then does not prove that
/// the client receives at its first address.
//= RFC 9000 section 9
//# An endpoint MUST NOT initiate connection migration before the handshake is confirmed
async fn close_if_moved(connection: Connection, accepted: quinn::ZeroRttAccepted, paths: PathCount) {
    accepted.await;
    if paths.get() > 1 {
        connection.close(MOVED_EARLY, b"moved before the end of the handshake");
    }
}

/// The protocol that a connection has negotiated (ALPN); `None` if none was.
#[must_use]
pub fn protocol(connection: &Connection) -> Option<Vec<u8>> {
    protocol_in(connection.handshake_data()?)
}

fn protocol_in(handshake_data: Box<dyn Any>) -> Option<Vec<u8>> {
    handshake_data.downcast::<quinn::crypto::rustls::HandshakeData>().ok()?.protocol
}

/// The server name of a connection (SNI).
#[must_use]
pub fn server_name(connection: &Connection) -> Option<String> {
    let data = connection.handshake_data()?.downcast::<quinn::crypto::rustls::HandshakeData>().ok()?;
    data.server_name
}
