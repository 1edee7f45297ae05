//! QUIC over an association. The paths have congestion control of their own, so QUIC's window is large and fixed; the
//! bounded send queue of the association pushes back.

use std::{
    any::Any,
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Instant,
};

use quinn::{
    Endpoint, EndpointConfig, ServerConfig, TokioRuntime, TransportConfig,
    congestion::{Controller, ControllerFactory},
    crypto::rustls::QuicServerConfig,
};
use quinn_proto::RttEstimator;

use crate::{association::Multipath, socket::MultipathSocket};

/// QUIC packets that may be in flight, in bytes: 300 Mbit/s over 1.7 seconds.
const WINDOW_BYTES: u64 = 64 * 1024 * 1024;
/// Length of QUIC packets, in bytes. One fits into one packet of a path with the MTU of Ethernet, over IPv4 and IPv6.
const DATAGRAM_BYTES: u16 = 1_400;

/// A congestion controller without an opinion.
#[derive(Debug, Clone)]
struct FixedWindow;

impl ControllerFactory for FixedWindow {
    fn build(self: Arc<Self>, _now: Instant, _current_mtu: u16) -> Box<dyn Controller> {
        Box::new(Self)
    }
}

impl Controller for FixedWindow {
    fn on_ack(&mut self, _now: Instant, _sent: Instant, _bytes: u64, _app_limited: bool, _rtt: &RttEstimator) {}

    fn on_congestion_event(&mut self, _now: Instant, _sent: Instant, _is_persistent: bool, _lost_bytes: u64) {}

    fn on_mtu_update(&mut self, _new_mtu: u16) {}

    fn window(&self) -> u64 {
        WINDOW_BYTES
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        WINDOW_BYTES
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// The parameters of a QUIC connection over an association.
#[must_use]
pub fn transport() -> TransportConfig {
    let mut transport = sallyport_quic::transport(None);
    transport
        .congestion_controller_factory(Arc::new(FixedWindow))
        .initial_mtu(DATAGRAM_BYTES)
        .min_mtu(DATAGRAM_BYTES)
        .mtu_discovery_config(None);
    transport
}

/// The configuration of the end that accepts, with these certificates and protocols.
///
/// # Errors
/// The TLS settings do not fit QUIC.
pub fn server_config(tls: &Arc<rustls::ServerConfig>) -> io::Result<ServerConfig> {
    let crypto = QuicServerConfig::try_from(tls.clone()).map_err(|error| {
        io::Error::new(io::ErrorKind::InvalidInput, format!("these TLS settings do not fit QUIC: {error}"))
    })?;
    let mut config = ServerConfig::with_crypto(Arc::new(crypto));
    config.transport_config(Arc::new(transport())).migration(false);
    Ok(config)
}

/// An endpoint of QUIC whose datagrams travel by the association. `peer` is the address of its only peer, as
/// connections show it. Must be called inside a tokio runtime.
///
/// # Errors
/// quinn refuses the endpoint.
pub fn endpoint(multipath: Arc<Multipath>, peer: SocketAddr, server: Option<ServerConfig>) -> io::Result<Endpoint> {
    let local = match peer {
        SocketAddr::V4(_) => SocketAddr::new(Ipv4Addr::LOCALHOST.into(), peer.port()),
        SocketAddr::V6(_) => SocketAddr::new(Ipv6Addr::LOCALHOST.into(), peer.port()),
    };
    let socket = Arc::new(MultipathSocket { multipath, local, peer });
    Endpoint::new_with_abstract_socket(EndpointConfig::default(), server, socket, Arc::new(TokioRuntime))
}
