//! Carriers over QUIC (RFC 9000): each carrier is one bidirectional stream that the connector opens.
//!
//! One connection holds a session with all its legs. A new leg costs no handshake, packet loss on one leg does not
//! delay another, and the connection survives a change of the connector's address. quinn implements the protocol;
//! certificates and ALPN are those of the TLS carriers. Early data (0-RTT) is off, because a replayed HELLO or JOIN
//! must have no effect.

use std::{
    fmt, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use quinn::{
    ConnectionError, Endpoint, RecvStream, SendStream, TransportConfig, VarInt, crypto::rustls::QuicClientConfig,
};
use sallyport_wire::ALPN;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Interval of keep-alive packets on an idle connection, sent by the connector.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// Receive window of a connection (all streams together), in bytes.
const CONNECTION_WINDOW_BYTES: u32 = 64 * 1024 * 1024;
/// Send window of a connection (all streams together), in bytes.
const SEND_WINDOW_BYTES: u64 = 16 * 1024 * 1024;
/// The bytes of a UDP header (RFC 768).
const UDP_BYTES: u32 = 8;
/// What QUIC adds to a packet: a short header with an edge's connection ID and the longest packet number (RFC 9000
/// section 17.3.1), and the tag of its cipher (RFC 9001 section 5.3).
const PACKET_BYTES: u32 = 1 + sallyport_quic::CONNECTION_ID_BYTES as u32 + 4 + 16;
/// Application error code of an orderly close.
const DONE: VarInt = VarInt::from_u32(0);

/// A connection between a connector and an edge.
#[derive(Clone)]
pub struct QuicConnection {
    connection: quinn::Connection,
    /// Set on dialed connections: keeps their socket open.
    endpoint: Option<Endpoint>,
}

/// What a connection knows of its path.
#[derive(Debug, Clone, Copy)]
pub struct QuicPath {
    /// The smoothed round trip.
    pub rtt: Duration,
    /// The largest packet, in bytes, with its IP header (RFC 8899).
    pub mtu_bytes: u32,
    /// What the headers of IP, UDP and QUIC take of such a packet, at most.
    pub header_bytes: u32,
    /// Packets sent so far.
    pub sent_packets: u64,
    /// Packets lost so far.
    pub lost_packets: u64,
    /// Bytes of UDP datagrams sent so far.
    pub sent_bytes: u64,
    /// Bytes of UDP datagrams received so far.
    pub received_bytes: u64,
}

/// A carrier: one stream of a connection.
#[derive(Debug)]
pub struct QuicCarrier {
    send: SendStream,
    recv: RecvStream,
}

fn unusable(error: impl fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("these TLS settings do not fit QUIC: {error}"))
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
        let any: IpAddr = match address {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let endpoint = Endpoint::client(SocketAddr::new(any, 0))?;
        Self::connect_on(endpoint, sallyport_quic::transport(congestion), address, server_name, tls).await
    }

    /// As [`QuicConnection::connect`], from this endpoint and with these parameters.
    ///
    /// # Errors
    /// As [`QuicConnection::connect`].
    pub async fn connect_on(
        endpoint: Endpoint,
        mut transport: TransportConfig,
        address: SocketAddr,
        server_name: &str,
        tls: &rustls::ClientConfig,
    ) -> io::Result<Self> {
        let mut tls = tls.clone();
        tls.alpn_protocols = vec![ALPN.to_vec()];
        tls.enable_early_data = false;
        let crypto = QuicClientConfig::try_from(tls).map_err(unusable)?;
        let mut config = quinn::ClientConfig::new(Arc::new(crypto));
        transport
            .keep_alive_interval(Some(KEEP_ALIVE))
            .max_concurrent_uni_streams(VarInt::from_u32(0))
            .max_concurrent_bidi_streams(VarInt::from_u32(0))
            .receive_window(CONNECTION_WINDOW_BYTES.into())
            .send_window(SEND_WINDOW_BYTES);
        config.transport_config(Arc::new(transport));
        let connecting = endpoint.connect_with(config, address, server_name).map_err(unusable)?;
        let connection = connecting.await.map_err(|error| failed(address, error))?;
        Ok(Self { connection, endpoint: Some(endpoint) })
    }

    /// The connection of a connector, which may open up to `max_streams` carriers at once: or as many as any peer may,
    /// if that is more, because QUIC takes no permission back.
    #[must_use]
    pub fn accepted(connection: quinn::Connection, max_streams: u32) -> Self {
        connection.set_max_concurrent_bi_streams(max_streams.into());
        connection.set_max_concurrent_uni_streams(VarInt::from_u32(0));
        connection.set_receive_window(CONNECTION_WINDOW_BYTES.into());
        connection.set_send_window(SEND_WINDOW_BYTES);
        Self { connection, endpoint: None }
    }

    /// The address of the peer.
    #[must_use]
    pub fn remote_address(&self) -> SocketAddr {
        self.connection.remote_address()
    }

    /// What the connection knows of its path now.
    #[must_use]
    pub fn path(&self) -> QuicPath {
        let stats = self.connection.stats();
        let below = UDP_BYTES + if self.remote_address().ip().to_canonical().is_ipv4() { 20 } else { 40 };
        QuicPath {
            rtt: stats.path.rtt,
            mtu_bytes: u32::from(stats.path.current_mtu) + below,
            header_bytes: below + PACKET_BYTES,
            sent_packets: stats.path.sent_packets,
            lost_packets: stats.path.lost_packets,
            sent_bytes: stats.udp_tx.bytes,
            received_bytes: stats.udp_rx.bytes,
        }
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
