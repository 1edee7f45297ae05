//! Tunnels over real connections: drives `core/wire` over TLS, QUIC or any other byte stream.
//!
//! Between edges the same protocol runs with reversed roles: [`EdgeTunnels::serve_link`] on the calling side,
//! [`answer_link`] on the called side.
//!
//! The edge side is [`EdgeTunnels`]: it accepts carriers from connectors and opens a [`TunnelStream`] for each client.
//! The connector side is [`run_connector`]: it keeps a session with the edge and hands each [`IncomingStream`] to an
//! [`OriginHandler`].
//!
//! A stream on a leg has no task and no channel: reads and writes of the stream are those of the carrier, with a header
//! of four bytes. A stream that finds no idle leg uses the control connection, where one task moves the bytes of all
//! streams.
//!
//! Datagrams travel in flows ([`FlowHandle`], [`FlowSink`]), which share a connection of their own. So do the IP packets
//! of a machine of a network ([`packets`]).
//! `docs/tunnel-protocol.md` describes the protocol.

pub mod carrier;
mod connector;
mod count;
mod driver;
mod edge;
mod establishment;
mod flows;
mod forwarded;
mod leg;
mod leg_stream;
mod life;
mod migration;
mod mux;
pub mod packets;
mod pool;
mod share;
mod stream;
mod unattached;
mod watch;

use std::{fmt, future::Future, pin::Pin};

pub use connector::{
    ConnectorConfig, ConnectorError, ConnectorEvent, Dial, OriginHandler, TunnelChange, TunnelCredential, answer_link,
    run_changing_connector, run_connector,
};
pub use edge::{
    Admission, Admitted, Associations, CONTROL_NOTSENT_BYTES, EdgeLink, EdgeTunnels, EdgeTunnelsConfig, JoinedMachine,
    LinkError, Networks, OpenError, OpenFlowError, TunnelHandle, TunnelStats,
};
pub use establishment::Establishment;
pub use flows::{FlowHandle, FlowHandler, FlowSink};
pub use forwarded::ForwardedStream;
pub use sallyport_wire::{
    Carrier as CarrierKind, DatagramStats, EdgePlace, FlowEnd, FlowOpen, Neighbours, SessionConfig,
    frame::MAX_DATAGRAM_BYTES,
};
pub use stream::{BEST_WRITE_BYTES, IncomingStream, TunnelStream};
use tokio::io::{AsyncRead, AsyncWrite};

/// A connection that carries frames, mostly TLS over TCP.
pub trait Carrier: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send + 'static> Carrier for T {}

/// A boxed carrier.
pub type BoxedCarrier = Box<dyn Carrier>;

/// A boxed future.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Id of a connector's session with this edge: 16 random bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub [u8; 16]);

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionId({self})")
    }
}
