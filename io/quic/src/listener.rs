//! The endpoint of one socket, and the connections before their handshakes.

use std::{
    any::Any,
    fmt, io,
    net::SocketAddr,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use quinn::{
    BloomTokenLog, Connection, Endpoint, EndpointConfig, NoneTokenLog, TokioRuntime, ValidationTokenConfig, VarInt,
    crypto::rustls::QuicServerConfig,
};

use crate::{
    connection_id::{Generator, Place},
    router::{QuicCounts, Router},
    socket::RoutedSocket,
    transport::transport,
};

/// Bounds on connections that are not accepted yet: their number, and their received bytes (each and together).
const MAX_INCOMING: usize = 1_024;
const MAX_INCOMING_BYTES: u64 = 65_536;
const MAX_ALL_INCOMING_BYTES: u64 = 16 * 1024 * 1024;
/// How long the token of a client proves its address, for early data: see [`QuicIncoming::accept`].
const TOKEN_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);
/// The memory of tokens that were used, in bytes, and for how many tokens it is good.
const TOKEN_LOG_BYTES: usize = 256 * 1024;
const LOGGED_TOKENS: u64 = 20_000;
/// Time that the last written bytes have to leave before a connection is closed. A close discards unsent data.
const DRAIN_TIME: Duration = Duration::from_millis(200);
/// Application error code of an orderly close.
const DONE: VarInt = VarInt::from_u32(0);

/// The endpoint of one socket. Clones share it.
#[derive(Debug, Clone)]
pub struct QuicListener {
    endpoint: Endpoint,
    /// The protocol (ALPN) whose connections may have early data, if any.
    early_protocol: Option<Vec<u8>>,
    router: Arc<Router>,
}

/// An incoming connection before its handshake.
pub struct QuicIncoming {
    incoming: quinn::Incoming,
    early_protocol: Option<Vec<u8>>,
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
            .validation_token_config(tokens(early_protocol.is_some()))
            .max_incoming(MAX_INCOMING)
            .incoming_buffer_size(MAX_INCOMING_BYTES)
            .incoming_buffer_size_total(MAX_ALL_INCOMING_BYTES);
        let mut endpoint = EndpointConfig::new(router.secret.reset_key());
        // The fixed bit tells QUIC from a protocol that shares the port, so clients keep it (RFC 9287 section 3).
        endpoint.grease_quic_bit(false);
        let (key, place) = (router.key.clone(), Place { generation: router.generation, socket: socket.number });
        let server = router.server.clone();
        endpoint.cid_generator(move || Box::new(Generator { key: key.clone(), place, server: server.clone() }));
        let socket = Arc::new(socket);
        let endpoint = Endpoint::new_with_abstract_socket(endpoint, Some(config), socket, Arc::new(TokioRuntime))?;
        Ok(Self { endpoint, early_protocol: early_protocol.map(<[u8]>::to_vec), router })
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
        Some(QuicIncoming { incoming, early_protocol: self.early_protocol.clone(), counts: self.router.counts.clone() })
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
        close(&self.endpoint).await;
    }
}

/// Sends what the connections of an edge's endpoint still have to send, closes them, and waits until the peers were
/// notified.
pub async fn close(endpoint: &Endpoint) {
    if endpoint.open_connections() > 0 {
        tokio::time::sleep(DRAIN_TIME).await;
    }
    endpoint.close(DONE, b"the edge stops");
    endpoint.wait_idle().await;
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
    /// protocol is known, if a token proves the client's address: streams before the end of the handshake are early,
    /// and [`quinn::RecvStream::is_0rtt`] says so. Without that proof, one forged datagram would make a connection.
    ///
    /// # Errors
    /// The handshake failed.
    pub async fn accept(self) -> io::Result<Connection> {
        let early_protocol = self.early_protocol.filter(|_| self.incoming.remote_address_validated());
        let mut connecting = self.incoming.accept().map_err(io::Error::from)?;
        let Some(early_protocol) = early_protocol else { return connecting.await.map_err(io::Error::from) };
        let data = connecting.handshake_data().await.map_err(io::Error::from)?;
        if protocol_in(data) != Some(early_protocol) {
            return connecting.await.map_err(io::Error::from);
        }
        match connecting.into_0rtt() {
            Ok((connection, _)) => Ok(connection),
            Err(connecting) => connecting.await.map_err(io::Error::from),
        }
    }
}

/// The tokens that clients get to prove their address at their next connection (RFC 9000 section 8.1.3).
fn tokens(has_early_data: bool) -> ValidationTokenConfig {
    let mut tokens = ValidationTokenConfig::default();
    tokens.lifetime(TOKEN_LIFETIME);
    match has_early_data {
        true => tokens.log(Arc::new(BloomTokenLog::new_expected_items(TOKEN_LOG_BYTES, LOGGED_TOKENS))),
        false => tokens.sent(0).log(Arc::new(NoneTokenLog)),
    };
    tokens
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
