//! The transport to an origin behind a tunnel that is attached to another edge.

use std::{
    future::Future,
    io::{self, IoSlice},
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll, ready},
    time::Duration,
};

use parking_lot::Mutex;
use sallyport_bus::Fleet;
use sallyport_model::{EdgeId, EdgeName, FlowRecord, OriginAddr, RequestRecord, SocketId, TunnelId};
use sallyport_net::RelayEnd;
use sallyport_tunnel::{
    EdgeLink, Establishment, FlowHandle, FlowOpen, FlowSink, OpenError, OpenFlowError, TunnelHandle, TunnelStream,
};
use sallyport_wire::{FailureReason, Open, OpenFailure, ResetCode};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{OriginStream, peer::Peer};

/// Links to other edges, as [`RemoteTransport`] needs them.
pub(crate) trait EdgeLinks: Send + Sync {
    /// The edges of the installation, and the tunnels that they hold.
    fn fleet(&self) -> &Fleet;

    /// The link to this edge, made if there is none. Fails with the reason why the edge cannot be reached.
    fn link<'a>(&'a self, peer: &'a Arc<Peer>)
    -> Pin<Box<dyn Future<Output = Result<EdgeLink, Arc<str>>> + Send + 'a>>;

    /// Begins to make a link to this edge, without a caller that waits.
    fn begin_link(&self, peer: &Arc<Peer>);

    /// Counts a stream or flow that leaves over a link.
    fn record_relayed(&self, kind: &'static str);
}

/// The transport to a tunnel through the edge that holds it.
pub(crate) struct RemoteTransport {
    tunnel: TunnelId,
    socket: SocketId,
    /// Whether the tunnel's connector spreads streams over several endpoints.
    spread: bool,
    peer: Arc<Peer>,
    mesh: Weak<dyn EdgeLinks>,
    /// The tunnel on the current link, or on the last one.
    handle: Mutex<Option<TunnelHandle>>,
}

impl RemoteTransport {
    pub(crate) fn new(
        tunnel: TunnelId,
        socket: SocketId,
        spread: bool,
        peer: Arc<Peer>,
        mesh: Weak<dyn EdgeLinks>,
    ) -> Arc<Self> {
        Arc::new(Self { tunnel, socket, spread, peer, mesh, handle: Mutex::default() })
    }

    /// Whether the tunnel's connector spreads streams over several endpoints.
    pub(crate) fn spreads_streams(&self) -> bool {
        self.spread
    }

    pub(crate) fn tunnel(&self) -> TunnelId {
        self.tunnel
    }

    /// The edge that holds the tunnel.
    pub(crate) fn edge(&self) -> EdgeId {
        self.peer.edge()
    }

    /// The name of that edge.
    pub(crate) fn edge_name(&self) -> EdgeName {
        self.peer.name()
    }

    /// The address of the tunnel's connector, as that edge reports it.
    pub(crate) fn connector_addr(&self) -> Option<SocketAddr> {
        let holders = self.mesh.upgrade()?.fleet().tunnel_on_edges(self.tunnel);
        holders.into_iter().find(|holder| holder.card.edge == self.edge()).map(|holder| holder.presence.connector_addr)
    }

    /// The address at which the tunnel's connector dials the origin, as that edge reports it.
    pub(crate) fn dialed(&self) -> Option<OriginAddr> {
        let holders = self.mesh.upgrade()?.fleet().tunnel_on_edges(self.tunnel);
        holders.into_iter().find(|holder| holder.card.edge == self.edge())?.presence.origin
    }

    pub(crate) fn round_trip(&self) -> Option<Duration> {
        self.peer.round_trip()
    }

    /// Whether another transport is preferable, if there is one.
    pub(crate) fn is_unresponsive(&self) -> bool {
        self.peer.is_unresponsive()
    }

    /// Whether the reports about the tunnel may be outdated, because no edge has reported lately.
    pub(crate) fn may_be_outdated(&self) -> bool {
        self.mesh.upgrade().is_none_or(|mesh| mesh.fleet().stale_since().is_some())
    }

    pub(crate) fn has_idle_leg(&self) -> bool {
        self.linked().is_some_and(|handle| handle.has_idle_leg())
    }

    /// Whether a stream for this client may get a connection of its own, as far as is known.
    pub(crate) fn has_leg_for(&self, client: SocketAddr) -> bool {
        self.linked().is_none_or(|handle| handle.has_leg_for(client))
    }

    /// The tunnel on the current link.
    fn linked(&self) -> Option<TunnelHandle> {
        let mut known = self.handle.lock();
        if let Some(handle) = known.as_ref().filter(|handle| handle.is_usable()) {
            return Some(handle.clone());
        }
        let handle = self.peer.link()?.tunnel(self.tunnel, self.socket, true);
        *known = Some(handle.clone());
        Some(handle)
    }

    /// Opens a stream to the origin. Does not wait: without a link, the stream itself waits for one.
    ///
    /// # Errors
    /// The link takes no more streams.
    pub(crate) fn open(self: &Arc<Self>, open: Open) -> Result<OriginStream, OpenError> {
        if let Some(mesh) = self.mesh.upgrade() {
            mesh.record_relayed("stream");
        }
        match self.linked() {
            Some(handle) => handle.open(open).map(OriginStream::Tunnel),
            None => Ok(OriginStream::Linking(LinkingStream::new(self.clone(), open))),
        }
    }

    /// Opens a datagram flow to the origin. Does not wait.
    ///
    /// # Errors
    /// There is no link yet, or the link takes no more flows.
    pub(crate) fn open_flow(&self, open: FlowOpen, sink: Arc<dyn FlowSink>) -> Result<FlowHandle, OpenFlowError> {
        let Some(mesh) = self.mesh.upgrade() else { return Err(OpenFlowError::NotUsable) };
        let Some(handle) = self.linked() else {
            mesh.begin_link(&self.peer);
            let was_tried = self.peer.unreached_for().is_some();
            return Err(if was_tried { OpenFlowError::NotUsable } else { OpenFlowError::NotReady });
        };
        let flow = handle.open_flow(open, sink)?;
        mesh.record_relayed("flow");
        Ok(flow)
    }

    /// As [`TunnelHandle::request_log_turn`]. The edge that holds the tunnel passes the line on to the connector.
    pub(crate) fn log_turn(&self) -> Option<u32> {
        self.linked()?.request_log_turn()
    }

    pub(crate) fn log_request(&self, record: &RequestRecord) {
        if let Some(handle) = self.linked() {
            handle.send_request_log(record);
        }
    }

    pub(crate) fn log_flow(&self, record: &FlowRecord) {
        if let Some(handle) = self.linked() {
            handle.send_flow_log(record);
        }
    }

    /// Opens a stream once there is a link.
    async fn link_and_open(
        self: Arc<Self>,
        open: Open,
        establishment: Establishment,
    ) -> Result<TunnelStream, OpenFailure> {
        let name = self.peer.name();
        // Nothing was sent, so another edge that holds the tunnel may be tried, or this one later.
        let not_reached = |why: &str| {
            let text = format!("the edge {name}, which holds the tunnel, cannot be reached: {why}");
            OpenFailure::new(FailureReason::Draining, &text)
        };
        let mesh = self.mesh.upgrade().ok_or_else(|| not_reached("this edge is shutting down"))?;
        let link = mesh.link(&self.peer).await.map_err(|why| not_reached(&why))?;
        let handle = self.linked().unwrap_or_else(|| link.tunnel(self.tunnel, self.socket, true));
        handle.open_as(open, establishment).map_err(|error| not_reached(&error.to_string()))
    }
}

type Linking = Pin<Box<dyn Future<Output = Result<TunnelStream, OpenFailure>> + Send>>;

/// A stream over a link that is being made.
pub(crate) struct LinkingStream {
    establishment: Establishment,
    state: LinkingState,
}

enum LinkingState {
    Linking(Linking),
    Open(Box<TunnelStream>),
    Failed,
}

impl LinkingStream {
    fn new(transport: Arc<RemoteTransport>, open: Open) -> Self {
        let establishment = Establishment::default();
        let linking = Box::pin(transport.link_and_open(open, establishment.clone()));
        Self { establishment, state: LinkingState::Linking(linking) }
    }

    pub(crate) fn establishment(&self) -> Establishment {
        self.establishment.clone()
    }

    pub(crate) fn set_client(&mut self, client: Option<SocketAddr>) {
        if let LinkingState::Open(stream) = &mut self.state {
            stream.set_client(client);
        }
    }

    pub(crate) fn reset(self, code: ResetCode) {
        if let LinkingState::Open(stream) = self.state {
            stream.reset(code);
        }
    }

    /// The stream, once there is a link.
    fn poll_linked(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Pin<&mut TunnelStream>>> {
        if let LinkingState::Linking(linking) = &mut self.state {
            self.state = match ready!(linking.as_mut().poll(cx)) {
                Ok(stream) => LinkingState::Open(Box::new(stream)),
                Err(failure) => {
                    self.establishment.fail(failure);
                    LinkingState::Failed
                }
            };
        }
        Poll::Ready(match &mut self.state {
            LinkingState::Open(stream) => Ok(Pin::new(&mut **stream)),
            _ => Err(match self.establishment.peek() {
                Some(Err(failure)) => io::Error::new(io::ErrorKind::ConnectionRefused, failure),
                _ => io::ErrorKind::ConnectionRefused.into(),
            }),
        })
    }
}

impl RelayEnd for LinkingStream {
    fn poll_reset(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        match &mut self.state {
            LinkingState::Open(stream) => stream.poll_reset(cx),
            _ => Poll::Pending,
        }
    }

    fn poll_write_last(&mut self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_linked(cx))?.poll_write_last(cx, buf)
    }
}

impl AsyncRead for LinkingStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        ready!(self.get_mut().poll_linked(cx))?.poll_read(cx, buf)
    }
}

impl AsyncWrite for LinkingStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.get_mut().poll_linked(cx))?.poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.get_mut().poll_linked(cx))?.poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.get_mut().poll_linked(cx))?.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.get_mut().poll_linked(cx))?.poll_shutdown(cx)
    }
}
