//! [`TunnelStream`] and [`IncomingStream`]: a stream through a tunnel, on a leg of its own or multiplexed.

use std::{
    io::{self, IoSlice},
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll},
};

use sallyport_wire::{FailureReason, OpenFailure, ResetCode};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::{
    establishment::Establishment, forwarded::ForwardedStream, leg_stream::LegStream, mux::MuxStream, watch::Watch,
};

/// Best size of a single write in bytes: with its header, the write fills whole TLS records.
pub const BEST_WRITE_BYTES: usize = 65_532;

/// A stream through a tunnel.
///
/// `poll_shutdown` ends the own direction and leaves the other one open. Dropping a stream that has not ended in both
/// directions resets the stream ([`ResetCode::Cancelled`]).
///
/// Errors: [`io::ErrorKind::ConnectionRefused`] with an [`OpenFailure`] inside if the origin was not reached,
/// [`io::ErrorKind::ConnectionReset`] if the peer reset the stream or the tunnel was lost,
/// [`io::ErrorKind::BrokenPipe`] for a write after the end.
pub struct TunnelStream {
    pub(crate) inner: Inner,
    /// Set for streams that the edge has opened.
    watch: Option<Watch>,
}

pub(crate) enum Inner {
    Leg(LegStream),
    Mux(MuxStream),
}

impl TunnelStream {
    pub(crate) fn on_leg(stream: LegStream) -> Self {
        Self { inner: Inner::Leg(stream), watch: None }
    }

    pub(crate) fn multiplexed(stream: MuxStream) -> Self {
        Self { inner: Inner::Mux(stream), watch: None }
    }

    /// Adds a [`Watch`], which probes the connector while the stream waits.
    pub(crate) fn watched(mut self, watch: Watch) -> Self {
        self.watch = Some(watch);
        self
    }

    /// Sets the client to which the stream is counted; `None` while the stream is idle.
    pub fn set_client(&mut self, client: Option<SocketAddr>) {
        match &mut self.inner {
            Inner::Leg(stream) => stream.set_client(client),
            Inner::Mux(stream) => stream.set_client(client),
        }
    }

    /// Handles the result of a write.
    fn wrote(&mut self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let (Some(watch), Poll::Ready(Ok(1..))) = (&mut self.watch, &written) {
            watch.sent();
        }
        written
    }

    /// The answer to the opening, known once something reads the stream; see [`Establishment`].
    #[must_use]
    pub fn establishment(&self) -> Establishment {
        match &self.inner {
            Inner::Leg(stream) => stream.establishment().clone(),
            Inner::Mux(stream) => stream.establishment().clone(),
        }
    }

    /// Whether the stream has a leg of its own; for statistics.
    #[must_use]
    pub fn is_on_leg(&self) -> bool {
        matches!(self.inner, Inner::Leg(_))
    }

    /// Waits for a reset after the end of input (a read of 0 bytes), while the own direction continues. Ready with the
    /// error of a write when the peer resets the stream or the tunnel is lost; pending for ever when the stream ends in
    /// order. Without this call, a relay that has nothing to write would not notice the reset.
    pub fn poll_reset(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        match &mut self.inner {
            Inner::Leg(stream) => stream.poll_reset(cx),
            Inner::Mux(stream) => stream.poll_reset(cx),
        }
    }

    /// Writes the last bytes: FIN may travel with them if all are accepted. A shutdown must follow in either case, and
    /// no other write.
    pub fn poll_write_last(&mut self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = match &mut self.inner {
            Inner::Leg(stream) => stream.poll_write(cx, &[IoSlice::new(buf)], true),
            Inner::Mux(stream) => stream.poll_write(cx, buf),
        };
        self.wrote(written)
    }

    /// Whether the answer of [`IncomingStream::opened_later`] is still held back.
    #[must_use]
    pub fn holds_opened(&self) -> bool {
        match &self.inner {
            Inner::Leg(stream) => stream.holds_opened(),
            Inner::Mux(_) => false,
        }
    }

    /// Resets the stream in both directions.
    pub fn reset(mut self, code: ResetCode) {
        match &mut self.inner {
            Inner::Leg(stream) => stream.reset(code),
            Inner::Mux(stream) => stream.reset(code),
        }
    }
}

impl std::fmt::Debug for TunnelStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TunnelStream").field("is_on_leg", &self.is_on_leg()).finish_non_exhaustive()
    }
}

impl AsyncRead for TunnelStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let read = match &mut self.inner {
            Inner::Leg(stream) => stream.poll_read(cx, buf),
            Inner::Mux(stream) => stream.poll_read(cx, buf),
        };
        match &mut self.watch {
            Some(watch) => watch.read(read, cx),
            None => read,
        }
    }
}

impl AsyncWrite for TunnelStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = match &mut self.inner {
            Inner::Leg(stream) => stream.poll_write(cx, &[IoSlice::new(buf)], false),
            Inner::Mux(stream) => stream.poll_write(cx, buf),
        };
        self.wrote(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = match &mut self.inner {
            Inner::Leg(stream) => stream.poll_write(cx, bufs, false),
            Inner::Mux(stream) => stream.poll_write_vectored(cx, bufs),
        };
        self.wrote(written)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.inner {
            Inner::Leg(stream) => stream.poll_flush(cx),
            Inner::Mux(stream) => stream.poll_flush(),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.inner {
            Inner::Leg(stream) => stream.poll_shutdown(cx),
            Inner::Mux(stream) => stream.poll_shutdown(),
        }
    }
}

/// A stream that the edge has opened and the connector has not answered yet. Dropping an unanswered stream answers with
/// a failure.
#[derive(Debug)]
pub struct IncomingStream {
    stream: Option<TunnelStream>,
}

impl IncomingStream {
    pub(crate) fn new(stream: TunnelStream) -> Self {
        Self { stream: Some(stream) }
    }

    /// Answers that the origin accepted the connection.
    ///
    /// # Errors
    /// The tunnel was lost.
    pub async fn opened(mut self) -> io::Result<TunnelStream> {
        let mut stream = self.stream.take().ok_or(io::ErrorKind::NotConnected)?;
        match &mut stream.inner {
            Inner::Leg(stream) => stream.send_opened().await?,
            Inner::Mux(stream) => stream.send_opened(),
        }
        Ok(stream)
    }

    /// Answers that the origin accepted the connection, in one piece with the first bytes of the origin. Flush the
    /// stream if the origin sends nothing, or not soon.
    ///
    /// # Errors
    /// The tunnel was lost.
    pub fn opened_later(mut self) -> io::Result<TunnelStream> {
        let mut stream = self.stream.take().ok_or(io::ErrorKind::NotConnected)?;
        match &mut stream.inner {
            Inner::Leg(stream) => stream.hold_opened()?,
            Inner::Mux(stream) => stream.send_opened(),
        }
        Ok(stream)
    }

    /// Converts the stream into a [`ForwardedStream`], to forward it before its origin is reached.
    #[must_use]
    pub fn pass_on(mut self) -> ForwardedStream {
        ForwardedStream { stream: self.stream.take(), is_answered: false }
    }

    /// Answers that the origin was not reached, with the reason. Returns when the edge has the answer or has reset the
    /// stream.
    pub async fn failed(mut self, failure: OpenFailure) {
        match self.stream.take().map(|stream| stream.inner) {
            Some(Inner::Leg(stream)) => stream.send_failed(&failure).await,
            Some(Inner::Mux(stream)) => stream.send_failed(failure),
            None => {}
        }
    }
}

impl Drop for IncomingStream {
    fn drop(&mut self) {
        let Some(stream) = self.stream.take() else { return };
        let failure = OpenFailure::new(FailureReason::Other, "the connector gave up before reaching the origin");
        match stream.inner {
            Inner::Mux(stream) => stream.send_failed(failure),
            Inner::Leg(stream) => {
                if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                    runtime.spawn(async move { stream.send_failed(&failure).await });
                }
            }
        }
    }
}
