//! Carriers over QUIC (RFC 9000): each carrier is one bidirectional stream that the connector opens.
//!
//! One connection holds a session with all its legs. A new leg costs no handshake, packet loss on one leg does not
//! delay another, and the connection survives a change of the connector's address. quinn implements the protocol;
//! certificates and ALPN are those of the TLS carriers. Early data (0-RTT) is off, because a replayed HELLO or JOIN
//! must have no effect.

use std::{
    fmt, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use quinn::{
    ConnectionError, Endpoint, EndpointConfig, IdleTimeout, RecvStream, SendStream, TokioRuntime, TransportConfig,
    VarInt,
    congestion::{BbrConfig, CubicConfig, NewRenoConfig},
    crypto::rustls::{QuicClientConfig, QuicServerConfig},
};
use sallyport_wire::ALPN;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Idle timeout of a connection.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval of keep-alive packets on an idle connection, sent by the connector.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// Receive window of one stream, in bytes.
const STREAM_WINDOW_BYTES: u32 = 1024 * 1024;
/// Receive window of a connection (all streams together), in bytes.
const CONNECTION_WINDOW_BYTES: u32 = 64 * 1024 * 1024;
/// Send window of a connection (all streams together), in bytes.
const SEND_WINDOW_BYTES: u64 = 16 * 1024 * 1024;
/// Bounds on connections that are not accepted yet: their number, and their received bytes (each and together).
const MAX_INCOMING: usize = 1_024;
const MAX_INCOMING_BYTES: u64 = 65_536;
const MAX_ALL_INCOMING_BYTES: u64 = 16 * 1024 * 1024;
/// Time that the last written bytes have to leave before a connection is closed. A close discards unsent data.
const DRAIN_TIME: Duration = Duration::from_millis(200);
/// Application error code of an orderly close.
const DONE: VarInt = VarInt::from_u32(0);

/// The edge's UDP port.
#[derive(Debug, Clone)]
pub struct QuicListener {
    endpoint: Endpoint,
}

/// An incoming connection before its handshake.
pub struct QuicIncoming(quinn::Incoming);

/// A connection between a connector and an edge.
#[derive(Clone)]
pub struct QuicConnection {
    connection: quinn::Connection,
    /// Set on dialed connections: keeps their socket open.
    endpoint: Option<Endpoint>,
}

/// A carrier: one stream of a connection.
#[derive(Debug)]
pub struct QuicCarrier {
    send: SendStream,
    recv: RecvStream,
}

fn transport(congestion: Option<&str>) -> TransportConfig {
    let mut transport = TransportConfig::default();
    transport
        .max_idle_timeout(Some(IdleTimeout::try_from(IDLE_TIMEOUT).unwrap_or_else(|_| VarInt::MAX.into())))
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .max_concurrent_bidi_streams(VarInt::from_u32(0))
        .stream_receive_window(STREAM_WINDOW_BYTES.into())
        .receive_window(CONNECTION_WINDOW_BYTES.into())
        .send_window(SEND_WINDOW_BYTES)
        .datagram_receive_buffer_size(None);
    match congestion {
        Some("bbr") => transport.congestion_controller_factory(Arc::new(BbrConfig::default())),
        Some("reno") => transport.congestion_controller_factory(Arc::new(NewRenoConfig::default())),
        _ => transport.congestion_controller_factory(Arc::new(CubicConfig::default())),
    };
    transport
}

fn unusable(error: impl fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("these TLS settings do not fit QUIC: {error}"))
}

impl QuicListener {
    /// Accepts connections on this socket with these certificates, and up to `max_streams` carriers on each. Must be
    /// called inside a tokio runtime.
    ///
    /// # Errors
    /// The socket or the TLS settings cannot be used.
    pub fn new(
        socket: UdpSocket,
        tls: &rustls::ServerConfig,
        max_streams: u32,
        congestion: Option<&str>,
    ) -> io::Result<Self> {
        let mut tls = tls.clone();
        tls.alpn_protocols = vec![ALPN.to_vec()];
        tls.max_early_data_size = 0;
        let crypto = QuicServerConfig::try_from(tls).map_err(unusable)?;
        let mut transport = transport(congestion);
        transport.max_concurrent_bidi_streams(max_streams.into());
        let mut config = quinn::ServerConfig::with_crypto(Arc::new(crypto));
        config
            .transport_config(Arc::new(transport))
            .migration(true)
            .max_incoming(MAX_INCOMING)
            .incoming_buffer_size(MAX_INCOMING_BYTES)
            .incoming_buffer_size_total(MAX_ALL_INCOMING_BYTES);
        let endpoint = Endpoint::new(EndpointConfig::default(), Some(config), socket, Arc::new(TokioRuntime))?;
        Ok(Self { endpoint })
    }

    /// Returns the next connection, or `None` once the port is closed. Cancel safe.
    pub async fn accept(&self) -> Option<QuicIncoming> {
        self.endpoint.accept().await.map(QuicIncoming)
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
        self.0.remote_address()
    }

    /// Refuses the connection.
    pub fn refuse(self) {
        self.0.refuse();
    }

    /// Returns the connection if a token proves its address. Otherwise asks the client to retry with a token, and
    /// returns `None`.
    #[must_use]
    pub fn validated(self) -> Option<Self> {
        if self.0.remote_address_validated() || !self.0.may_retry() {
            return Some(self);
        }
        let _ = self.0.retry();
        None
    }

    /// Completes the handshake.
    ///
    /// # Errors
    /// The handshake failed.
    pub async fn accept(self) -> io::Result<QuicConnection> {
        let connection = self.0.accept().map_err(io::Error::from)?.await.map_err(io::Error::from)?;
        Ok(QuicConnection { connection, endpoint: None })
    }
}

impl fmt::Debug for QuicConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("QuicConnection").field(&self.remote_address()).finish()
    }
}

impl QuicConnection {
    /// Connects to an edge and verifies that its name is `server_name`. `congestion` is bbr, cubic or reno; any other
    /// value means cubic. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// The edge does not answer over UDP, or the handshake fails; the text says why.
    pub async fn connect(
        address: SocketAddr,
        server_name: &str,
        tls: &rustls::ClientConfig,
        congestion: Option<&str>,
    ) -> io::Result<Self> {
        let mut tls = tls.clone();
        tls.alpn_protocols = vec![ALPN.to_vec()];
        tls.enable_early_data = false;
        let crypto = QuicClientConfig::try_from(tls).map_err(unusable)?;
        let mut config = quinn::ClientConfig::new(Arc::new(crypto));
        let mut transport = transport(congestion);
        transport.keep_alive_interval(Some(KEEP_ALIVE));
        config.transport_config(Arc::new(transport));
        let any: IpAddr = match address {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let endpoint = Endpoint::client(SocketAddr::new(any, 0))?;
        let connecting = endpoint.connect_with(config, address, server_name).map_err(unusable)?;
        let connection = connecting.await.map_err(|error| failed(address, error))?;
        Ok(Self { connection, endpoint: Some(endpoint) })
    }

    /// The address of the peer.
    #[must_use]
    pub fn remote_address(&self) -> SocketAddr {
        self.connection.remote_address()
    }

    /// Whether new carriers can be opened on the connection.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.connection.close_reason().is_none()
    }

    /// Opens a carrier. Nothing is sent before the first write. Waits while the edge's limit of streams is reached.
    ///
    /// # Errors
    /// The connection is closed.
    pub async fn open_carrier(&self) -> io::Result<QuicCarrier> {
        let (send, recv) = self.connection.open_bi().await.map_err(io::Error::from)?;
        Ok(QuicCarrier { send, recv })
    }

    /// Returns the next carrier that the connector opened. Cancel safe.
    ///
    /// # Errors
    /// The connection is closed.
    pub async fn accept_carrier(&self) -> io::Result<QuicCarrier> {
        let (send, recv) = self.connection.accept_bi().await.map_err(io::Error::from)?;
        Ok(QuicCarrier { send, recv })
    }

    /// Closes the connection and waits until the peer was notified.
    pub async fn close(&self) {
        self.connection.close(DONE, b"done");
        if let Some(endpoint) = &self.endpoint {
            endpoint.wait_idle().await;
        }
    }
}

fn failed(address: SocketAddr, error: ConnectionError) -> io::Error {
    match error {
        ConnectionError::TimedOut => {
            io::Error::new(io::ErrorKind::TimedOut, format!("{address} does not answer over UDP"))
        }
        error => {
            let text = format!("no QUIC connection with {address}: {error}");
            io::Error::new(io::Error::from(error).kind(), text)
        }
    }
}

impl AsyncRead for QuicCarrier {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        AsyncRead::poll_read(Pin::new(&mut self.recv), cx, buf)
    }
}

impl AsyncWrite for QuicCarrier {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        AsyncWrite::poll_write(Pin::new(&mut self.send), cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_flush(Pin::new(&mut self.send), cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_shutdown(Pin::new(&mut self.send), cx)
    }
}
