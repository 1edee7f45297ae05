//! A stream through a tunnel, as both ends hold it. Whether it has a leg for itself or is multiplexed, nobody can tell.

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

/// How many bytes a single write takes at best: with its header, this fills whole TLS records.
pub const BEST_WRITE_BYTES: usize = 65_532;

/// A stream through a tunnel.
///
/// `poll_shutdown` ends the own direction and leaves the other one open. Dropping a stream that has not ended both
/// ways gives it up ([`ResetCode::Cancelled`]). Errors: [`io::ErrorKind::ConnectionRefused`] with an [`OpenFailure`]
/// inside when the origin was not reached, [`io::ErrorKind::ConnectionReset`] when the other side gave up or the
/// tunnel was lost, [`io::ErrorKind::BrokenPipe`] for a write after the end.
pub struct TunnelStream {
    pub(crate) inner: Inner,
    /// Of those that the edge has opened.
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

    /// Has the connector asked whether it is there when it is waited for in vain.
    pub(crate) fn watched(mut self, watch: Watch) -> Self {
        self.watch = Some(watch);
        self
    }

    /// Whose stream it is from now on, where clients have shares of what carries it; `None`: nobody's, as long as it rests.
    pub fn set_client(&mut self, client: Option<SocketAddr>) {
        match &mut self.inner {
            Inner::Leg(stream) => stream.set_client(client),
            Inner::Mux(stream) => stream.set_client(client),
        }
    }

    /// What a write came to.
    fn wrote(&mut self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let (Some(watch), Poll::Ready(Ok(1..))) = (&mut self.watch, &written) {
            watch.sent();
        }
        written
    }

    /// Whether the origin was reached: known when something reads the stream, see [`Establishment`].
    #[must_use]
    pub fn establishment(&self) -> Establishment {
        match &self.inner {
            Inner::Leg(stream) => stream.establishment().clone(),
            Inner::Mux(stream) => stream.establishment().clone(),
        }
    }

    /// Whether the stream has a leg for itself; for statistics.
    #[must_use]
    pub fn is_on_leg(&self) -> bool {
        matches!(self.inner, Inner::Leg(_))
    }

    /// After the end of what comes (a read of 0 bytes), while the own direction goes on: ready when the other side gave
    /// the stream up after all, or the tunnel was lost, as a write would say. A relay that has nothing to write would not
    /// learn of it otherwise. Pending for ever when the stream ends in good order.
    pub fn poll_reset(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        match &mut self.inner {
            Inner::Leg(stream) => stream.poll_reset(cx),
            Inner::Mux(stream) => stream.poll_reset(cx),
        }
    }

    /// As a write, of what is known to be the last: the end may travel with it, when all of it is taken. A shutdown is to
    /// follow in either case, and no other write.
    pub fn poll_write_last(&mut self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = match &mut self.inner {
            Inner::Leg(stream) => stream.poll_write(cx, &[IoSlice::new(buf)], true),
            Inner::Mux(stream) => stream.poll_write(cx, buf),
        };
        self.wrote(written)
    }

    /// Whether it is still to be said that the origin took the connection: see [`IncomingStream::opened_later`].
    #[must_use]
    pub fn holds_opened(&self) -> bool {
        match &self.inner {
            Inner::Leg(stream) => stream.holds_opened(),
            Inner::Mux(_) => false,
        }
    }

    /// Gives the stream up in both directions.
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

/// A stream that the edge has opened and the connector has not answered yet. Dropping it says that it failed.
#[derive(Debug)]
pub struct IncomingStream {
    stream: Option<TunnelStream>,
}

impl IncomingStream {
    pub(crate) fn new(stream: TunnelStream) -> Self {
        Self { stream: Some(stream) }
    }

    /// Says that the origin took the connection.
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

    /// Says that the origin took the connection, together with its first bytes: they leave in one piece. Where it has
    /// nothing to say, or not soon, the stream is to be flushed.
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

    /// The stream, for whoever passes it on before it is known whether its origin is reached.
    #[must_use]
    pub fn pass_on(mut self) -> ForwardedStream {
        ForwardedStream { stream: self.stream.take(), is_answered: false }
    }

    /// Says that the origin was not reached and why. Returns when the edge knows or does not care any more.
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
        let failure = OpenFailure::new(FailureReason::Other, "the connector gave up before it reached the origin");
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
