//! The transports to an origin, behind one interface: a connector's tunnel, the forward of a stock ssh client, another
//! edge that holds one of these, or a direct connection.
//!
//! May use the rooms below `origins`.

pub(crate) mod direct;
pub(crate) mod peer;
pub(crate) mod remote;
pub(crate) mod ssh;
pub(crate) mod ssh_tls;

use std::{
    future::Future,
    io::{self, IoSlice},
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use parking_lot::Mutex;
use sallyport_model::{EdgeId, EdgeName, FlowRecord, HealthRecord, OriginRef, RequestRecord, SocketName, TunnelId};
use sallyport_net::RelayEnd;
use sallyport_ssh::Forward;
use sallyport_tunnel::{
    Establishment, FlowEnd, FlowHandle, FlowOpen, FlowSink, OpenError, OpenFlowError, SessionId, TunnelHandle,
    TunnelStream,
};
use sallyport_wire::{FailureReason, LogBudget, Open, OpenFailure, ResetCode, StreamProtocol};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

use crate::origins::transport::{
    direct::{DirectFlow, DirectStream, DirectTransport, Lane},
    remote::{LinkingStream, RemoteTransport},
};

/// How long a service behind an ssh client may take for its TLS handshake.
const MAX_HANDSHAKE: Duration = Duration::from_secs(10);

/// What holds a tunnel; different after every reconnect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holder {
    /// A connector's session.
    Session(SessionId),
    /// A forward of an ssh connection, by a unique number.
    Ssh(u64),
    /// Another edge.
    Edge(EdgeId),
    /// No holder: this edge dials the origin itself.
    Direct,
}

/// The transport to one origin.
#[derive(Clone)]
pub(crate) enum OriginTransport {
    /// A connector's tunnel.
    Tunnel(TunnelHandle),
    /// A forward of a stock ssh client.
    Ssh(Arc<SshTransport>),
    /// A tunnel that another edge holds.
    Remote(Arc<RemoteTransport>),
    /// An address that this edge dials.
    Direct(Arc<DirectTransport>),
}

/// A forward that serves a tunnel.
pub(crate) struct SshTransport {
    number: u64,
    tunnel: TunnelId,
    name: SocketName,
    speaks_tls: bool,
    forward: Forward,
    log: Mutex<LogBudget>,
}

impl SshTransport {
    /// The forward for this tunnel of the socket with this name. `speaks_tls` says whether the service behind it does.
    pub(crate) fn new(tunnel: TunnelId, name: SocketName, speaks_tls: bool, forward: Forward) -> Arc<Self> {
        static FORWARDS: AtomicU64 = AtomicU64::new(0);
        let number = FORWARDS.fetch_add(1, Ordering::Relaxed);
        let log = Mutex::new(LogBudget::new(Instant::now()));
        Arc::new(Self { number, tunnel, name, speaks_tls, forward, log })
    }

    pub(crate) fn forward(&self) -> &Forward {
        &self.forward
    }

    /// What holds the tunnel.
    pub(crate) fn holder(&self) -> Holder {
        Holder::Ssh(self.number)
    }

    /// The socket's name, if the client has several forwards to tell apart.
    fn shown_name(&self) -> Option<&SocketName> {
        (self.forward.connection().forwards() > 1).then_some(&self.name)
    }

    /// Writes a line of the live log to the client's shell.
    fn show(&self, omitted_before: u32, line: &str) {
        let connection = self.forward.connection();
        if omitted_before > 0 {
            connection.console().line(&format!("… {omitted_before} more, not shown"));
        }
        connection.console().line(line);
    }
}

impl From<TunnelHandle> for OriginTransport {
    fn from(handle: TunnelHandle) -> Self {
        Self::Tunnel(handle)
    }
}

impl OriginTransport {
    /// The origin.
    pub(crate) fn origin(&self) -> OriginRef {
        match self {
            Self::Tunnel(handle) => handle.tunnel().into(),
            Self::Ssh(transport) => transport.tunnel.into(),
            Self::Remote(transport) => transport.tunnel().into(),
            Self::Direct(transport) => transport.id().into(),
        }
    }

    /// The tunnel, if there is one.
    pub(crate) fn tunnel(&self) -> Option<TunnelId> {
        self.origin().tunnel()
    }

    /// What holds the tunnel.
    pub(crate) fn holder(&self) -> Holder {
        match self {
            Self::Tunnel(handle) => Holder::Session(handle.session()),
            Self::Ssh(transport) => transport.holder(),
            Self::Remote(transport) => Holder::Edge(transport.edge()),
            Self::Direct(_) => Holder::Direct,
        }
    }

    /// The address at which the origin is dialed, if known.
    pub(crate) fn dialed(&self) -> Option<String> {
        match self {
            Self::Direct(transport) => Some(transport.address().to_string()),
            Self::Tunnel(handle) => handle.origin().map(ToString::to_string),
            Self::Remote(transport) => transport.dialed().map(|address| address.to_string()),
            Self::Ssh(_) => None,
        }
    }

    /// Whether the connector spreads streams over several endpoints, so that each request gets a stream of its own.
    pub(crate) fn spreads_streams(&self) -> bool {
        match self {
            Self::Tunnel(handle) => handle.spreads_streams(),
            Self::Remote(transport) => transport.spreads_streams(),
            Self::Ssh(_) | Self::Direct(_) => false,
        }
    }

    /// The other edge through which the origin is reached.
    pub(crate) fn relay(&self) -> Option<EdgeName> {
        match self {
            Self::Remote(transport) => Some(transport.edge_name()),
            Self::Tunnel(_) | Self::Ssh(_) | Self::Direct(_) => None,
        }
    }

    /// The address of the connector of a tunnel at another edge.
    pub(crate) fn relayed_connector(&self) -> Option<SocketAddr> {
        match self {
            Self::Remote(transport) => transport.connector_addr(),
            Self::Tunnel(_) | Self::Ssh(_) | Self::Direct(_) => None,
        }
    }

    /// Whether another transport is preferable, if there is one.
    pub(crate) fn is_unresponsive(&self) -> bool {
        match self {
            Self::Tunnel(handle) => handle.is_unresponsive(),
            Self::Remote(transport) => transport.is_unresponsive(),
            Self::Ssh(_) | Self::Direct(_) => false,
        }
    }

    /// Whether another edge's reports about the origin may be outdated, because the bus is away.
    pub(crate) fn may_be_outdated(&self) -> bool {
        matches!(self, Self::Remote(transport) if transport.may_be_outdated())
    }

    /// Whether new streams can be opened.
    pub(crate) fn is_usable(&self) -> bool {
        match self {
            Self::Tunnel(handle) => handle.is_usable(),
            Self::Ssh(transport) => transport.forward.is_usable(),
            // The origin is in the pool for as long as the other edge reports the tunnel.
            Self::Remote(_) => true,
            Self::Direct(transport) => transport.is_usable(),
        }
    }

    /// The clients with which a client may share connections.
    pub(crate) fn lane(&self, client: SocketAddr) -> Lane {
        match self {
            Self::Direct(transport) => transport.lane(client.ip()),
            Self::Tunnel(_) | Self::Ssh(_) | Self::Remote(_) => Lane::default(),
        }
    }

    /// A lane of connections that may be opened now.
    pub(crate) fn newest_lane(&self) -> Lane {
        match self {
            Self::Direct(transport) => transport.newest_lane(),
            Self::Tunnel(_) | Self::Ssh(_) | Self::Remote(_) => Lane::default(),
        }
    }

    /// Whether a stream opened now would get a connection of its own.
    pub(crate) fn has_idle_leg(&self) -> bool {
        match self {
            Self::Tunnel(handle) => handle.has_idle_leg(),
            Self::Ssh(_) | Self::Direct(_) => false,
            Self::Remote(transport) => transport.has_idle_leg(),
        }
    }

    /// Whether a stream for this client may get a connection of its own.
    pub(crate) fn has_leg_for(&self, client: SocketAddr) -> bool {
        match self {
            Self::Tunnel(handle) => handle.has_leg_for(client),
            Self::Remote(transport) => transport.has_leg_for(client),
            Self::Ssh(_) | Self::Direct(_) => true,
        }
    }

    /// The round trip to the holder of the tunnel, if measured.
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        match self {
            Self::Tunnel(handle) => handle.smoothed_rtt(),
            Self::Ssh(_) => None,
            Self::Remote(transport) => transport.round_trip(),
            Self::Direct(transport) => transport.round_trip(),
        }
    }

    /// How far the origin is, for the cost of requests: the shortest round trip of the last minutes where the edge
    /// measures that.
    pub(crate) fn distance(&self) -> Option<Duration> {
        match self {
            Self::Direct(transport) => transport.distance(),
            Self::Tunnel(_) | Self::Ssh(_) | Self::Remote(_) => self.round_trip(),
        }
    }

    /// Opens a datagram flow to the origin. The datagrams of the origin go to `sink`. Does not wait.
    ///
    /// # Errors
    /// The transport takes no (more) flows, or not yet; ssh carries none.
    pub(crate) fn open_flow(&self, wanted: FlowRequest, sink: Arc<dyn FlowSink>) -> Result<OriginFlow, OpenFlowError> {
        match (self, self.tunnel()) {
            (Self::Direct(transport), _) => transport.open_flow(wanted.client.ip(), sink).map(OriginFlow::Direct),
            (_, Some(tunnel)) => self.open_flow_through(wanted.through(tunnel), sink).map(OriginFlow::Tunnel),
            (_, None) => Err(OpenFlowError::NotUsable),
        }
    }

    /// Like [`Self::open_flow`], with an open message of the tunnel protocol.
    ///
    /// # Errors
    /// The tunnel takes no (more) flows, or not yet; ssh carries none.
    pub(crate) fn open_flow_through(
        &self,
        open: FlowOpen,
        sink: Arc<dyn FlowSink>,
    ) -> Result<FlowHandle, OpenFlowError> {
        match self {
            Self::Tunnel(handle) => handle.open_flow(open, sink),
            Self::Ssh(_) | Self::Direct(_) => Err(OpenFlowError::NotUsable),
            Self::Remote(transport) => transport.open_flow(open, sink),
        }
    }

    /// Opens a stream to the origin. Does not wait.
    ///
    /// # Errors
    /// The transport takes no (more) streams.
    pub(crate) fn open(&self, wanted: StreamRequest<'_>) -> Result<OriginStream, OpenError> {
        match (self, self.tunnel()) {
            (Self::Direct(transport), _) if transport.is_usable() => {
                Ok(OriginStream::Direct(transport.open(wanted.protocol, wanted.client.ip())))
            }
            (_, Some(tunnel)) => self.open_through(wanted.through(tunnel)),
            (_, None) => Err(OpenError::NotUsable),
        }
    }

    /// Like [`Self::open`], with an open message of the tunnel protocol.
    ///
    /// # Errors
    /// The tunnel takes no (more) streams.
    pub(crate) fn open_through(&self, open: Open) -> Result<OriginStream, OpenError> {
        match self {
            Self::Tunnel(handle) => handle.open(open).map(OriginStream::Tunnel),
            Self::Ssh(transport) if !transport.forward.is_usable() => Err(OpenError::NotUsable),
            Self::Ssh(transport) => Ok(OriginStream::Ssh(OpeningStream::new(transport, &open))),
            Self::Remote(transport) => transport.open(open),
            Self::Direct(_) => Err(OpenError::NotUsable),
        }
    }

    /// Counts a running request, until [`Self::request_ended`].
    pub(crate) fn request_began(&self) {
        if let Self::Tunnel(handle) = self {
            handle.request_began();
        }
    }

    /// Ends the count of a running request.
    pub(crate) fn request_ended(&self) {
        if let Self::Tunnel(handle) = self {
            handle.request_ended();
        }
    }

    /// Whether a request with a short response should share a connection instead of taking a leg.
    pub(crate) fn prefers_shared(&self) -> bool {
        match self {
            Self::Tunnel(handle) => handle.prefers_shared(),
            // Each stream of a link has a leg on both hops.
            Self::Ssh(_) | Self::Remote(_) | Self::Direct(_) => false,
        }
    }

    /// Opens a stream on a connection that others share, if the transport has one. Does not wait.
    ///
    /// # Errors
    /// The transport takes no (more) such streams.
    pub(crate) fn open_shared(&self, wanted: StreamRequest<'_>) -> Result<OriginStream, OpenError> {
        match self {
            Self::Tunnel(handle) => handle.open_shared(wanted.through(handle.tunnel())).map(OriginStream::Tunnel),
            Self::Ssh(_) | Self::Remote(_) | Self::Direct(_) => self.open(wanted),
        }
    }

    /// Whether the transport can pass log lines to the owner.
    pub(crate) fn has_owner(&self) -> bool {
        !matches!(self, Self::Direct(_))
    }

    /// Whether the owner gets a line for one more request or flow, and how many lines were omitted before it.
    pub(crate) fn log_turn(&self) -> Option<u32> {
        match self {
            Self::Tunnel(handle) => handle.request_log_turn(),
            Self::Ssh(transport) => {
                transport.forward.connection().console().is_shown().then_some(())?;
                transport.log.lock().take(Instant::now())
            }
            Self::Remote(transport) => transport.log_turn(),
            Self::Direct(_) => None,
        }
    }

    /// Sends the owner the line of a request. To be called after [`Self::log_turn`].
    pub(crate) fn log_request(&self, record: &RequestRecord) {
        match self {
            Self::Tunnel(handle) => handle.send_request_log(record),
            Self::Remote(transport) => transport.log_request(record),
            Self::Ssh(transport) => {
                transport.show(record.omitted_before, &ssh::request(record, transport.shown_name()))
            }
            Self::Direct(_) => {}
        }
    }

    /// Sends the owner the line of a flow. To be called after [`Self::log_turn`].
    pub(crate) fn log_flow(&self, record: &FlowRecord) {
        match self {
            Self::Tunnel(handle) => handle.send_flow_log(record),
            Self::Remote(transport) => transport.log_flow(record),
            Self::Ssh(transport) => transport.show(record.omitted_before, &ssh::flow(record, transport.shown_name())),
            Self::Direct(_) => {}
        }
    }
}

impl OriginTransport {
    /// Sends the owner a line about a change of the origin's health, at most one for each check.
    pub(crate) fn log_health(&self, record: &HealthRecord) {
        match self {
            Self::Tunnel(handle) => handle.send_health_log(record),
            Self::Ssh(transport) if transport.forward.connection().console().is_shown() => {
                transport.show(0, &ssh::health(record, transport.shown_name()));
            }
            // The edge that holds the tunnel reports its own checks.
            Self::Ssh(_) | Self::Remote(_) | Self::Direct(_) => {}
        }
    }
}

/// What a stream is opened for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StreamRequest<'a> {
    /// The protocol on the stream.
    pub(crate) protocol: StreamProtocol,
    /// The address of the client.
    pub(crate) client: SocketAddr,
    /// The address to which the client connected, if the origin is to know it.
    pub(crate) destination: Option<SocketAddr>,
    /// The server name of the client.
    pub(crate) server_name: &'a str,
}

impl StreamRequest<'_> {
    /// The open message for a connector.
    fn through(self, tunnel: TunnelId) -> Open {
        Open {
            tunnel,
            protocol: self.protocol,
            client: self.client,
            destination: self.destination,
            opened_at_us: now_us(),
            server_name: self.server_name.to_owned(),
        }
    }
}

/// What a datagram flow is opened for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FlowRequest {
    /// The address of the client.
    pub(crate) client: SocketAddr,
    /// The address to which the client sends.
    pub(crate) destination: SocketAddr,
}

impl FlowRequest {
    /// The open message for a connector.
    fn through(self, tunnel: TunnelId) -> FlowOpen {
        FlowOpen { tunnel, client: self.client, destination: self.destination, opened_at_us: now_us() }
    }
}

/// The time, in microseconds since 1970 (UTC).
fn now_us() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_micros()).unwrap_or(u64::MAX)
}

/// A datagram flow to an origin, closed when dropped.
pub(crate) enum OriginFlow {
    /// Through a connector's tunnel.
    Tunnel(FlowHandle),
    /// Dialed by this edge.
    Direct(DirectFlow),
}

impl OriginFlow {
    /// Sends datagrams in order. Returns how many were taken; delivery is not guaranteed.
    pub(crate) fn send_batch(&self, batch: &[&[u8]]) -> usize {
        match self {
            Self::Tunnel(flow) => flow.send_batch(batch),
            Self::Direct(flow) => flow.send_batch(batch),
        }
    }

    /// Closes the flow, with the reason where the protocol has one.
    pub(crate) fn close(self, end: FlowEnd) {
        match self {
            Self::Tunnel(flow) => flow.close(end),
            Self::Direct(flow) => drop(flow),
        }
    }
}

/// A stream to an origin.
#[expect(clippy::large_enum_variant, reason = "the large one is the usual one")]
pub(crate) enum OriginStream {
    /// Through a connector's tunnel.
    Tunnel(TunnelStream),
    /// Through an ssh client.
    Ssh(OpeningStream),
    /// Through another edge, once there is a link.
    Linking(LinkingStream),
    /// Dialed by this edge.
    Direct(DirectStream),
}

impl OriginStream {
    /// The outcome of the open, known once the stream is read.
    pub(crate) fn establishment(&self) -> Establishment {
        match self {
            Self::Tunnel(stream) => stream.establishment(),
            Self::Ssh(stream) => stream.establishment.clone(),
            Self::Linking(stream) => stream.establishment(),
            Self::Direct(stream) => stream.establishment().clone(),
        }
    }

    /// The clients that may share the stream.
    pub(crate) fn lane(&self) -> Lane {
        match self {
            Self::Direct(stream) => stream.lane(),
            Self::Tunnel(_) | Self::Ssh(_) | Self::Linking(_) => Lane::default(),
        }
    }

    /// Whether the stream has a connection of its own.
    pub(crate) fn is_on_leg(&self) -> bool {
        match self {
            Self::Tunnel(stream) => stream.is_on_leg(),
            Self::Ssh(_) | Self::Linking(_) | Self::Direct(_) => false,
        }
    }

    /// Sets the client that the stream counts for in the shares of the tunnel; `None` while the stream is idle.
    pub(crate) fn set_client(&mut self, client: Option<SocketAddr>) {
        match self {
            Self::Tunnel(stream) => stream.set_client(client),
            Self::Linking(stream) => stream.set_client(client),
            Self::Ssh(_) | Self::Direct(_) => {}
        }
    }

    /// Aborts the stream in both directions.
    pub(crate) fn reset(self, code: ResetCode) {
        match self {
            Self::Tunnel(stream) => stream.reset(code),
            Self::Ssh(_) => {}
            Self::Linking(stream) => stream.reset(code),
            Self::Direct(stream) => stream.reset(),
        }
    }
}

/// A stream through an ssh client, which reports whether its origin accepted.
pub(crate) struct OpeningStream {
    establishment: Establishment,
    state: SshState,
}

/// An open stream, with or without TLS.
trait Duplex: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Duplex for S {}

type Opening = Pin<Box<dyn Future<Output = Result<Box<dyn Duplex>, OpenFailure>> + Send>>;

enum SshState {
    Opening(Opening),
    Open(Box<dyn Duplex>),
    Failed,
}

impl OpeningStream {
    fn new(transport: &SshTransport, open: &Open) -> Self {
        let opening =
            open_duplex(transport.forward.clone(), open.client, transport.speaks_tls.then_some(open.protocol));
        Self { establishment: Establishment::default(), state: SshState::Opening(Box::pin(opening)) }
    }

    /// The stream, once it is open.
    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Pin<&mut (dyn Duplex + 'static)>>> {
        if let SshState::Opening(opening) = &mut self.state {
            match ready!(opening.as_mut().poll(cx)) {
                Ok(stream) => {
                    self.establishment.succeed();
                    self.state = SshState::Open(stream);
                }
                Err(failure) => {
                    self.establishment.fail(failure);
                    self.state = SshState::Failed;
                }
            }
        }
        Poll::Ready(match &mut self.state {
            SshState::Open(stream) => Ok(Pin::new(stream.as_mut())),
            _ => Err(io::Error::new(io::ErrorKind::ConnectionRefused, "the ssh client did not reach its origin")),
        })
    }
}

/// Opens a stream through the forward, with TLS if the service speaks TLS, and with this protocol inside.
async fn open_duplex(
    forward: Forward,
    client: SocketAddr,
    tls: Option<StreamProtocol>,
) -> Result<Box<dyn Duplex>, OpenFailure> {
    let stream = forward.open(client).await.map_err(|error| failure(&error))?;
    let Some(protocol) = tls else { return Ok(Box::new(stream)) };
    match tokio::time::timeout(MAX_HANDSHAKE, ssh_tls::start(stream, protocol)).await {
        Ok(Ok(stream)) => Ok(Box::new(stream)),
        Ok(Err(error)) => Err(OpenFailure::new(FailureReason::Tls, &format!("no TLS with the service: {error}"))),
        Err(_) => Err(OpenFailure::new(FailureReason::TimedOut, "the service did not finish its TLS handshake")),
    }
}

fn failure(error: &sallyport_ssh::OpenError) -> OpenFailure {
    let reason = match error {
        sallyport_ssh::OpenError::OriginNotReached { .. } => FailureReason::Refused,
        sallyport_ssh::OpenError::TimedOut { .. } => FailureReason::TimedOut,
        sallyport_ssh::OpenError::Gone | sallyport_ssh::OpenError::NoRoom => FailureReason::Other,
    };
    OpenFailure::new(reason, &error.to_string())
}

impl RelayEnd for OriginStream {
    fn tcp(&self) -> Option<&TcpStream> {
        match self {
            Self::Tunnel(_) | Self::Ssh(_) | Self::Linking(_) => None,
            Self::Direct(stream) => stream.tcp(),
        }
    }

    fn poll_reset(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        match self {
            Self::Tunnel(stream) => stream.poll_reset(cx),
            // SSH has no resets: a channel is closed in both directions, or one direction ends.
            Self::Ssh(_) => Poll::Pending,
            Self::Linking(stream) => stream.poll_reset(cx),
            // The caller looks at the TCP connection itself.
            Self::Direct(_) => Poll::Pending,
        }
    }

    fn poll_write_last(&mut self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Tunnel(stream) => stream.poll_write_last(cx, buf),
            Self::Linking(stream) => stream.poll_write_last(cx, buf),
            Self::Ssh(_) | Self::Direct(_) => Pin::new(self).poll_write(cx, buf),
        }
    }
}

impl AsyncRead for OriginStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tunnel(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Ssh(stream) => ready!(stream.poll_open(cx))?.poll_read(cx, buf),
            Self::Linking(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Direct(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for OriginStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tunnel(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Ssh(stream) => ready!(stream.poll_open(cx))?.poll_write(cx, buf),
            Self::Linking(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Direct(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tunnel(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Self::Ssh(stream) => ready!(stream.poll_open(cx))?.poll_write_vectored(cx, bufs),
            Self::Linking(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Self::Direct(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Tunnel(_) | Self::Linking(_) => true,
            Self::Ssh(_) => false,
            Self::Direct(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tunnel(stream) => Pin::new(stream).poll_flush(cx),
            Self::Ssh(stream) => ready!(stream.poll_open(cx))?.poll_flush(cx),
            Self::Linking(stream) => Pin::new(stream).poll_flush(cx),
            Self::Direct(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tunnel(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Ssh(stream) => ready!(stream.poll_open(cx))?.poll_shutdown(cx),
            Self::Linking(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Direct(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
