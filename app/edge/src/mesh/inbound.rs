//! Links from other edges: streams and flows to tunnels that are attached here.
//!
//! The client's edge has already admitted the client, so nothing is checked again here. Bytes of a stream are relayed
//! at once in both directions, and so is the outcome of the open.

use std::{
    collections::HashMap,
    future::Future,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll},
    time::Duration,
};

use parking_lot::Mutex;
use sallyport_model::{EdgeId, TunnelId};
use sallyport_net::{
    RelayCounts, RelayEnd, RelayError, ShardTcpStream, Side, Unpaced, relay, set_notsent_lowat, start_tls,
};
use sallyport_tunnel::{
    BoxFuture, BoxedCarrier, CONTROL_NOTSENT_BYTES, ConnectorConfig, ConnectorEvent, Dial, Establishment, FlowHandler,
    ForwardedStream, IncomingStream, OriginHandler, answer_link,
};
use sallyport_wire::{FailureReason, Open, OpenFailure, ResetCode};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::mpsc,
};
use tokio_rustls::server::TlsStream;
use tracing::{debug, info};

use super::{
    MAX_INBOUND_LINKS, MAX_INBOUND_LINKS_PER_EDGE, Mesh,
    busy::Busy,
    contact::{self, STEERING_TUNNEL},
    inbound_flows::InboundFlows,
    links::connect_tcp,
};

use crate::{
    client::tcp::{ClientIo as _, ClientTcp},
    lifecycle::phase::{self, Phase},
    origins::{origin::Origin, pool::SocketPool, transport::OriginTransport},
    util::wake_gated::WakeGated,
};

/// How long the handshake of a leg may take.
const HANDSHAKE_TIME: Duration = Duration::from_secs(5);
/// How long to wait for the address of an edge that has just joined.
const MAX_UNKNOWN: Duration = Duration::from_secs(3);
/// How often the edge looks up the address in the directory meanwhile.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// How many lines for connectors' logs may wait.
const MAX_QUEUED_LINES: usize = 1_024;

/// The links that other edges have made.
#[derive(Debug, Default)]
pub(super) struct Inbound {
    by_edge: Mutex<HashMap<EdgeId, usize>>,
}

/// The place of one link among the bounds, released when dropped.
struct InboundPlace {
    inbound: Arc<Inbound>,
    edge: EdgeId,
}

impl Inbound {
    fn enter(self: &Arc<Self>, edge: EdgeId) -> Option<InboundPlace> {
        let mut by_edge = self.by_edge.lock();
        let total: usize = by_edge.values().sum();
        let of_edge = by_edge.entry(edge).or_default();
        if total >= MAX_INBOUND_LINKS || *of_edge >= MAX_INBOUND_LINKS_PER_EDGE {
            return None;
        }
        *of_edge += 1;
        Some(InboundPlace { inbound: self.clone(), edge })
    }

    /// How many links there are.
    pub(super) fn count(&self) -> usize {
        self.by_edge.lock().values().sum()
    }
}

impl Drop for InboundPlace {
    fn drop(&mut self) {
        let mut by_edge = self.inbound.by_edge.lock();
        if let Some(count) = by_edge.get_mut(&self.edge) {
            *count -= 1;
            if *count == 0 {
                by_edge.remove(&self.edge);
            }
        }
    }
}

/// Serves a link of another edge to its end.
pub(crate) async fn serve(mesh: Arc<Mesh>, stream: Box<TlsStream<ClientTcp>>, from: EdgeId, peer: SocketAddr) {
    let Some(_place) = mesh.inbound.enter(from) else {
        mesh.metrics.failed("too-many-links");
        return debug!(edge = %from, "a link of another edge is refused: too many links");
    };
    let _ = set_notsent_lowat(stream.socket(), CONTROL_NOTSENT_BYTES);
    let mut config = ConnectorConfig::new(&mesh.settings.agent, crate::util::ids::random(), Vec::new());
    config.ready_legs = mesh.state.config.ready_legs;
    config.shards = mesh.state.config.shards.clone();
    let (events, mut lines) = mpsc::channel(MAX_QUEUED_LINES);
    let dial = Arc::new(LegDial { mesh: Arc::downgrade(&mesh), from });
    let origins = Arc::new(LocalOrigins { mesh: Arc::downgrade(&mesh), from });
    let mut phase = mesh.state.phase.subscribe();
    info!(edge = %from, %peer, "another edge opened a link");
    let leaving = async move { phase::reached(&mut phase, Phase::Closing).await };
    let answering = answer_link(config, stream, dial, origins, events, leaving);
    let passing_on = async {
        while let Some(event) = lines.recv().await {
            pass_on_line(&mesh, event);
        }
        std::future::pending().await
    };
    let why = tokio::select! {
        why = answering => why,
        () = passing_on => return,
        () = mesh.removed(from) => "the edge was removed from the installation".to_owned(),
    };
    info!(edge = %from, why, "the link of another edge ended");
}

/// Passes the log line of a request or flow, which another edge has served, to the connector of the tunnel.
fn pass_on_line(mesh: &Mesh, event: ConnectorEvent) {
    let transport = |tunnel: Option<TunnelId>| held_here(mesh, tunnel?).map(|tunnel| tunnel.transport);
    match event {
        ConnectorEvent::Request(mut record) => {
            let transport = transport(record.tunnel);
            if let Some((transport, omitted)) =
                transport.and_then(|transport| transport.log_turn().map(|omitted| (transport, omitted)))
            {
                record.omitted_before += omitted;
                transport.log_request(&record);
            }
        }
        ConnectorEvent::Flow(mut record) => {
            let transport = transport(record.tunnel);
            if let Some((transport, omitted)) =
                transport.and_then(|transport| transport.log_turn().map(|omitted| (transport, omitted)))
            {
                record.omitted_before += omitted;
                transport.log_flow(&record);
            }
        }
        _ => {}
    }
}

/// A tunnel that is attached here.
pub(super) struct LocalOrigin {
    pub(super) transport: OriginTransport,
    /// Its origin in the pool of its socket; `None` for a moment after the tunnel attached.
    pub(super) origin: Option<(Arc<SocketPool>, Arc<Origin>)>,
}

impl LocalOrigin {
    /// Whether health checks have found its origin unhealthy.
    pub(super) fn is_unhealthy(&self) -> bool {
        self.origin.as_ref().is_some_and(|(_, origin)| origin.health_state().is_down())
    }
}

/// The tunnel with this id, if it is attached here.
pub(super) fn held_here(mesh: &Mesh, tunnel: TunnelId) -> Option<LocalOrigin> {
    let attached = mesh.tunnels.attached(tunnel);
    let socket = match &attached {
        Some(handle) => handle.socket(),
        None => mesh.state.directory.get(tunnel)?.socket,
    };
    mesh.state.routes.get(socket)?;
    let pool = mesh.state.sockets.pool(socket);
    let origin = pool.attached(tunnel).map(|origin| (pool, origin));
    let transport =
        attached.map(OriginTransport::from).or_else(|| origin.as_ref().map(|(_, origin)| origin.handle().clone()))?;
    Some(LocalOrigin { transport, origin })
}

/// Dials legs to the edge that has made a link.
struct LegDial {
    mesh: Weak<Mesh>,
    from: EdgeId,
}

impl LegDial {
    async fn connect(
        mesh: Arc<Mesh>,
        from: EdgeId,
    ) -> io::Result<tokio_rustls::client::TlsStream<sallyport_net::ReadAhead<ShardTcpStream>>> {
        let known = async {
            loop {
                if let Some(seen) = mesh.settings.fleet.edge(from) {
                    return seen.card.addresses.clone();
                }
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        };
        let unknown = |_| io::Error::new(io::ErrorKind::NotFound, "the address of that edge is not known");
        let addresses = tokio::time::timeout(MAX_UNKNOWN, known).await.map_err(unknown)?;
        let tcp = connect_tcp(&addresses).await?;
        let (address, name) = (tcp.peer_addr()?, format!("tunnel.{}", mesh.state.config.domain));
        let tls = mesh.settings.legs.clone();
        start_tls(ShardTcpStream::new(tcp), &address.ip().to_string(), address.port(), &name, tls, HANDSHAKE_TIME).await
    }
}

impl Dial for LegDial {
    fn dial(&self) -> BoxFuture<'static, io::Result<BoxedCarrier>> {
        let (mesh, from) = (self.mesh.upgrade(), self.from);
        Box::pin(async move {
            let mesh = mesh.ok_or(io::ErrorKind::NotConnected)?;
            Ok(Box::new(Self::connect(mesh, from).await?) as BoxedCarrier)
        })
    }

    fn dial_datagrams(&self) -> BoxFuture<'static, io::Result<BoxedCarrier>> {
        let (mesh, from) = (self.mesh.upgrade(), self.from);
        Box::pin(async move {
            let mesh = mesh.ok_or(io::ErrorKind::NotConnected)?;
            let stream = Self::connect(mesh, from).await?;
            let _ = set_notsent_lowat(stream.get_ref().0.get_ref().get_ref(), CONTROL_NOTSENT_BYTES);
            Ok(Box::new(stream) as BoxedCarrier)
        })
    }
}

/// Opens the tunnels that are attached here for another edge.
struct LocalOrigins {
    mesh: Weak<Mesh>,
    from: EdgeId,
}

impl OriginHandler for LocalOrigins {
    fn serve(&self, open: Open, stream: IncomingStream) -> BoxFuture<'static, ()> {
        let (mesh, from) = (self.mesh.upgrade(), self.from);
        Box::pin(async move {
            match mesh {
                Some(mesh) if open.tunnel == STEERING_TUNNEL => contact::answer(mesh, from, stream).await,
                Some(mesh) => pass_on(mesh, open, stream).await,
                None => {}
            }
        })
    }

    fn flows(&self) -> Option<Arc<dyn FlowHandler>> {
        Some(Arc::new(InboundFlows::new(self.mesh.clone())))
    }
}

/// Relays a stream to its tunnel, if the tunnel is attached here. Returns a boxed future: many streams stay idle for
/// long, and an `async fn` would hold its arguments twice.
fn pass_on(mesh: Arc<Mesh>, open: Open, incoming: IncomingStream) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    let metrics = mesh.metrics().clone();
    let (tunnel, protocol) = (open.tunnel, open.protocol);
    let local = held_here(&mesh, tunnel);
    if local.as_ref().is_some_and(LocalOrigin::is_unhealthy) {
        // The report of the health check has not reached the other edge yet.
        metrics.failed("unwell");
        let failure = OpenFailure::new(FailureReason::Draining, "the origin is unhealthy");
        return Box::pin(incoming.failed(failure));
    }
    let opened = local.and_then(|local| Some((local.transport.open_through(open).ok()?, local.origin)));
    let Some((mut stream, origin)) = opened else {
        metrics.failed("not-here");
        debug!(%tunnel, "another edge asks for a tunnel that is not attached here");
        // Nothing was sent, so the other edge may try again: the tunnel may have moved to another edge.
        let failure = OpenFailure::new(FailureReason::Draining, "the tunnel is not attached to this edge");
        return Box::pin(incoming.failed(failure));
    };
    let (pool, origin) = origin.unzip();
    let busy = origin.map(|origin| mesh.busy.enter(origin, protocol));
    metrics.relayed("in", "stream");
    let mut phase = mesh.state.phase.subscribe();
    let mut cut = WakeGated::new(async move { phase::cut(&mut phase).await });
    let running = mesh.state.running.enter();
    let mut near = InboundStream { stream: incoming.pass_on(), establishment: stream.establishment(), busy };
    Box::pin(async move {
        let (mut carried, mut pace) = (RelayCounts::default(), Unpaced);
        let end = tokio::select! {
            end = relay(&mut near, &mut stream, &mut pace, &mut carried) => end.map_err(Some),
            () = &mut cut => Err(None),
        };
        metrics.carried(carried);
        match end {
            Ok(()) => {}
            Err(Some(RelayError { side: Side::First, error, .. })) => {
                debug!(%tunnel, %error, "a stream of another edge failed");
                stream.reset(ResetCode::Cancelled);
                near.stream.reset(ResetCode::Cancelled);
            }
            Err(Some(RelayError { side: Side::Second, error, .. })) => {
                debug!(%tunnel, %error, "a stream for another edge failed");
                near.broke(pool.as_deref()).await;
            }
            Err(None) => near.stream.reset(ResetCode::Cancelled),
        }
        drop(running);
    })
}

/// The stream of another edge as an end of a relay. Sends the outcome of the open as soon as the connector reports it.
struct InboundStream {
    stream: ForwardedStream,
    establishment: Establishment,
    busy: Option<Arc<Busy>>,
}

impl InboundStream {
    /// Reports to the other edge that the origin accepted the connection, once.
    fn answer(&mut self) -> io::Result<()> {
        if !self.stream.is_answered() && matches!(self.establishment.peek(), Some(Ok(()))) {
            self.stream.open()?;
            if let Some(busy) = &self.busy {
                busy.origin().health_state().served();
            }
        }
        Ok(())
    }

    /// Records how much of a response the other edge took.
    fn took(&self, words: &[u8], taken: &Poll<io::Result<usize>>) {
        if let (Some(busy), Poll::Ready(Ok(taken))) = (&self.busy, taken) {
            busy.record_answer(&words[..*taken]);
        }
    }

    /// Ends the stream of a relay, after its origin was not reached or its connection failed.
    async fn broke(self, pool: Option<&SocketPool>) {
        match self.establishment.peek() {
            Some(Err(failure)) if !self.stream.is_answered() && !self.establishment.is_lost() => {
                if let (Some(pool), Some(busy)) = (pool, &self.busy) {
                    pool.not_reached(busy.origin(), failure.reason);
                }
                self.stream.fail(failure).await;
            }
            _ => self.stream.reset(ResetCode::OriginReset),
        }
    }
}

impl RelayEnd for InboundStream {
    fn poll_reset(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        self.stream.poll_reset(cx)
    }

    fn poll_write_last(&mut self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if let Err(error) = self.answer() {
            return Poll::Ready(Err(error));
        }
        let taken = self.stream.poll_write_last(cx, buf);
        self.took(buf, &taken);
        taken
    }

    fn poll_delayed_write(&mut self, cx: &mut Context<'_>) {
        // The connector has already waited for bytes that travel with its outcome; this edge does not wait again.
        if self.answer().is_ok() && self.stream.holds_opened() {
            // Bytes that are not flushed now leave with the next read or write, which also shows any error.
            drop(Pin::new(&mut self.stream).poll_flush(cx));
        }
    }
}

impl AsyncRead for InboundStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if let Some(busy) = self.busy.as_ref().filter(|_| buf.filled().len() > before) {
            busy.record_request();
        }
        read
    }
}

impl AsyncWrite for InboundStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.answer()?;
        let taken = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.took(buf, &taken);
        taken
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.answer()?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
