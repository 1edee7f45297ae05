//! The way to an origin: through a connector's tunnel, or through the forward of a stock ssh client. Whoever opens
//! streams need not know which.

use std::{
    future::Future,
    io::{self, IoSlice},
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
    time::Instant,
};

use sallyport_model::{FlowRecord, RequestRecord, TunnelId};
use sallyport_net::RelayEnd;
use sallyport_ssh::{Forward, SshStream};
use sallyport_tunnel::{Establishment, OpenError, SessionId, TunnelHandle, TunnelStream};
use sallyport_wire::{FailureReason, LogBudget, Open, OpenFailure, ResetCode};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What holds a tunnel up: it is another one after every reconnect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holder {
    /// A connector's session.
    Session(SessionId),
    /// An ssh connection, by its number.
    Ssh(u64),
}

/// The way to one origin.
#[derive(Clone)]
pub(crate) enum Way {
    /// A connector's tunnel.
    Tunnel(TunnelHandle),
    /// A forward of a stock ssh client.
    Ssh(Arc<SshWay>),
}

/// A forward that serves a tunnel.
pub(crate) struct SshWay {
    tunnel: TunnelId,
    forward: Forward,
    log: Mutex<LogBudget>,
}

impl SshWay {
    /// The forward serves this tunnel.
    pub(crate) fn new(tunnel: TunnelId, forward: Forward) -> Arc<Self> {
        Arc::new(Self { tunnel, forward, log: Mutex::new(LogBudget::new(Instant::now())) })
    }

    /// The forward.
    pub(crate) fn forward(&self) -> &Forward {
        &self.forward
    }
}

impl From<TunnelHandle> for Way {
    fn from(handle: TunnelHandle) -> Self {
        Self::Tunnel(handle)
    }
}

impl Way {
    /// The tunnel.
    pub(crate) fn tunnel(&self) -> TunnelId {
        match self {
            Self::Tunnel(handle) => handle.tunnel(),
            Self::Ssh(way) => way.tunnel,
        }
    }

    /// What holds it up.
    pub(crate) fn holder(&self) -> Holder {
        match self {
            Self::Tunnel(handle) => Holder::Session(handle.session()),
            Self::Ssh(way) => Holder::Ssh(way.forward.connection().id()),
        }
    }

    /// Whether new streams can be opened.
    pub(crate) fn is_usable(&self) -> bool {
        match self {
            Self::Tunnel(handle) => handle.is_usable(),
            Self::Ssh(way) => way.forward.is_usable(),
        }
    }

    /// Whether a stream opened now would get a connection for itself.
    pub(crate) fn has_idle_leg(&self) -> bool {
        match self {
            Self::Tunnel(handle) => handle.has_idle_leg(),
            Self::Ssh(_) => false,
        }
    }

    /// The connector's tunnel, for what ssh cannot do: datagrams.
    pub(crate) fn native(&self) -> Option<&TunnelHandle> {
        match self {
            Self::Tunnel(handle) => Some(handle),
            Self::Ssh(_) => None,
        }
    }

    /// Opens a stream to the origin. Nothing is waited for.
    ///
    /// # Errors
    /// The tunnel takes no (more) streams.
    pub(crate) fn open(&self, open: Open) -> Result<WayStream, OpenError> {
        match self {
            Self::Tunnel(handle) => handle.open(open).map(WayStream::Tunnel),
            Self::Ssh(way) if !way.forward.is_usable() => Err(OpenError::NotUsable),
            Self::Ssh(way) => Ok(WayStream::Ssh(OpeningStream::new(way.forward.clone(), open.client))),
        }
    }

    /// Whether the owner is to be told of one more request or flow, and if so, how many before it were left out.
    pub(crate) fn log_turn(&self) -> Option<u32> {
        match self {
            Self::Tunnel(handle) => handle.request_log_turn(),
            Self::Ssh(way) => {
                way.forward.connection().console().is_shown().then_some(())?;
                way.log.lock().unwrap_or_else(PoisonError::into_inner).take(Instant::now())
            }
        }
    }

    /// Tells the owner of a request that was served. To be called after [`Self::log_turn`].
    pub(crate) fn log_request(&self, record: &RequestRecord) {
        match self {
            Self::Tunnel(handle) => handle.send_request_log(record),
            Self::Ssh(way) => {
                let RequestRecord { status, method, target, duration_us, client, omitted_before, .. } = record;
                let console = way.forward.connection().console().clone();
                if *omitted_before > 0 {
                    console.line(&format!("… {omitted_before} requests not shown"));
                }
                let took = *duration_us as f64 / 1_000.0;
                console.line(&format!("{status} {method} {target}  {took:.1} ms  {}", client.ip()));
            }
        }
    }

    /// Tells the owner of a flow that ended. To be called after [`Self::log_turn`].
    pub(crate) fn log_flow(&self, record: &FlowRecord) {
        match self {
            Self::Tunnel(handle) => handle.send_flow_log(record),
            Self::Ssh(way) => {
                let FlowRecord { transport, verdict, bytes_in, bytes_out, client, .. } = record;
                let line = format!("{transport} {verdict}  in {bytes_in}  out {bytes_out} bytes  {}", client.ip());
                way.forward.connection().console().line(&line);
            }
        }
    }
}

/// A stream to an origin.
#[expect(clippy::large_enum_variant, reason = "the large one is the usual one")]
pub(crate) enum WayStream {
    /// Through a connector's tunnel.
    Tunnel(TunnelStream),
    /// Through an ssh client.
    Ssh(OpeningStream),
}

impl WayStream {
    /// Whether the origin was reached: known when something reads the stream.
    pub(crate) fn establishment(&self) -> Establishment {
        match self {
            Self::Tunnel(stream) => stream.establishment(),
            Self::Ssh(stream) => stream.establishment.clone(),
        }
    }

    /// Whether the stream has a connection for itself.
    pub(crate) fn is_on_leg(&self) -> bool {
        match self {
            Self::Tunnel(stream) => stream.is_on_leg(),
            Self::Ssh(_) => false,
        }
    }

    /// Gives the stream up in both directions.
    pub(crate) fn reset(self, code: ResetCode) {
        if let Self::Tunnel(stream) = self {
            stream.reset(code);
        }
    }
}

/// A stream through an ssh client, which answers whether its origin took the connection.
pub(crate) struct OpeningStream {
    establishment: Establishment,
    state: SshState,
}

type Opening = Pin<Box<dyn Future<Output = Result<SshStream, sallyport_ssh::OpenError>> + Send>>;

enum SshState {
    Opening(Opening),
    Open(Box<SshStream>),
    Failed,
}

impl OpeningStream {
    fn new(forward: Forward, client: SocketAddr) -> Self {
        let opening = Box::pin(async move { forward.open(client).await });
        Self { establishment: Establishment::default(), state: SshState::Opening(opening) }
    }

    /// The stream, once it is open.
    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Pin<&mut SshStream>>> {
        if let SshState::Opening(opening) = &mut self.state {
            match ready!(opening.as_mut().poll(cx)) {
                Ok(stream) => {
                    self.establishment.succeed();
                    self.state = SshState::Open(Box::new(stream));
                }
                Err(error) => {
                    self.establishment.fail(failure(&error));
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

fn failure(error: &sallyport_ssh::OpenError) -> OpenFailure {
    let reason = match error {
        sallyport_ssh::OpenError::OriginNotReached { .. } => FailureReason::Refused,
        sallyport_ssh::OpenError::TimedOut { .. } => FailureReason::TimedOut,
        sallyport_ssh::OpenError::Gone | sallyport_ssh::OpenError::NoRoom => FailureReason::Other,
    };
    OpenFailure::new(reason, &error.to_string())
}

impl RelayEnd for WayStream {
    fn poll_given_up(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        match self {
            Self::Tunnel(stream) => stream.poll_given_up(cx),
            // SSH closes a channel in both directions or ends one; it has no resets.
            Self::Ssh(_) => Poll::Pending,
        }
    }
}

impl AsyncRead for WayStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tunnel(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Ssh(stream) => ready!(stream.poll_open(cx))?.poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for WayStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tunnel(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Ssh(stream) => ready!(stream.poll_open(cx))?.poll_write(cx, buf),
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
        }
    }

    fn is_write_vectored(&self) -> bool {
        matches!(self, Self::Tunnel(_))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tunnel(stream) => Pin::new(stream).poll_flush(cx),
            Self::Ssh(stream) => ready!(stream.poll_open(cx))?.poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tunnel(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Ssh(stream) => ready!(stream.poll_open(cx))?.poll_shutdown(cx),
        }
    }
}
