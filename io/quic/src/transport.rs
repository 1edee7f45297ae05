//! Parameters of connections.

use std::time::Duration;

use quinn::{
    IdleTimeout, TransportConfig, VarInt,
    congestion::{BbrConfig, CubicConfig, NewRenoConfig},
};

use crate::path::ProvingFactory;

/// Idle timeout of a connection.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval of keep-alive packets: a request that waits for its response keeps its connection, and a client that has
/// vanished is noticed.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Receive window of one stream, in bytes.
const STREAM_WINDOW_BYTES: u32 = 1024 * 1024;
/// Receive window of a connection (all streams together), in bytes. A connector's is raised after its handshake.
const CONNECTION_WINDOW_BYTES: u32 = 4 * 1024 * 1024;
/// Send window of a connection (all streams together), in bytes. It is raised as a connection needs more.
const SEND_WINDOW_BYTES: u64 = 256 * 1024;
/// How many streams a peer may open in each direction. Both are raised after the handshake of a connector.
const STREAMS: u32 = 200;
/// How many streams a client may open for its own side: three of HTTP/3 (RFC 9114 section 6.2), and reserved ones.
const UNIDIRECTIONAL_STREAMS: u32 = 8;

/// The parameters of an accepted connection. `congestion` is bbr, cubic or reno; any other value means cubic.
#[must_use]
pub fn transport(congestion: Option<&str>) -> TransportConfig {
    let mut transport = TransportConfig::default();
    transport
        .max_idle_timeout(Some(IdleTimeout::try_from(IDLE_TIMEOUT).unwrap_or_else(|_| VarInt::MAX.into())))
        .keep_alive_interval(Some(KEEP_ALIVE))
        .max_concurrent_uni_streams(UNIDIRECTIONAL_STREAMS.into())
        .max_concurrent_bidi_streams(STREAMS.into())
        .stream_receive_window(STREAM_WINDOW_BYTES.into())
        .receive_window(CONNECTION_WINDOW_BYTES.into())
        .send_window(SEND_WINDOW_BYTES)
        .datagram_receive_buffer_size(None);
    match congestion {
        Some("bbr") => transport.congestion_controller_factory(ProvingFactory::new(BbrConfig::default())),
        Some("reno") => transport.congestion_controller_factory(ProvingFactory::new(NewRenoConfig::default())),
        _ => transport.congestion_controller_factory(ProvingFactory::new(CubicConfig::default())),
    };
    transport
}
