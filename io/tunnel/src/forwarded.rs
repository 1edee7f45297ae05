//! A stream that is forwarded to another tunnel before the opening is answered.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll},
};

use sallyport_wire::{OpenFailure, ResetCode};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::{IncomingStream, TunnelStream, stream::Inner};

/// A stream that the edge has opened and whose origin is being reached through another tunnel. Reading works at once;
/// writing follows [`Self::open`]. Dropping an unanswered stream resets the stream: whether the origin got any data is
/// unknown.
#[derive(Debug)]
pub struct ForwardedStream {
    pub(crate) stream: Option<TunnelStream>,
    pub(crate) is_answered: bool,
}

impl ForwardedStream {
    /// Whether the opening was answered.
    #[must_use]
    pub fn is_answered(&self) -> bool {
        self.is_answered
    }

    /// Answers that the origin accepted the connection. The answer travels with the first bytes that are written; flush
    /// the stream if there are none yet.
    ///
    /// # Errors
    /// The tunnel was lost.
    pub fn open(&mut self) -> io::Result<()> {
        let Some(stream) = &mut self.stream else { return Err(io::ErrorKind::NotConnected.into()) };
        self.is_answered = true;
        match &mut stream.inner {
            Inner::Leg(stream) => stream.hold_opened(),
            Inner::Mux(stream) => {
                stream.send_opened();
                Ok(())
            }
        }
    }

    /// Answers that the origin was not reached, unless the opening was answered already. Returns when the edge has the
    /// answer or has reset the stream.
    pub async fn fail(mut self, failure: OpenFailure) {
        if let Some(stream) = self.stream.take().filter(|_| !self.is_answered) {
            IncomingStream::new(stream).failed(failure).await;
        }
    }

    /// Resets the stream in both directions.
    pub fn reset(mut self, code: ResetCode) {
        if let Some(stream) = self.stream.take() {
            stream.reset(code);
        }
    }

    /// Like [`TunnelStream::poll_reset`].
    pub fn poll_reset(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        self.stream.as_mut().map_or(Poll::Pending, |stream| stream.poll_reset(cx))
    }

    /// Like [`TunnelStream::poll_write_last`].
    pub fn poll_write_last(&mut self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Some(stream) => stream.poll_write_last(cx, buf),
            None => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    /// Like [`TunnelStream::holds_opened`].
    #[must_use]
    pub fn holds_opened(&self) -> bool {
        self.stream.as_ref().is_some_and(TunnelStream::holds_opened)
    }

    fn poll_stream<T>(
        &mut self,
        poll: impl FnOnce(Pin<&mut TunnelStream>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        match &mut self.stream {
            Some(stream) => poll(Pin::new(stream)),
            None => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }
}

impl Drop for ForwardedStream {
    fn drop(&mut self) {
        if let Some(stream) = self.stream.take().filter(|_| !self.is_answered) {
            stream.reset(ResetCode::OriginReset);
        }
    }
}

impl AsyncRead for ForwardedStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_stream(|stream| stream.poll_read(cx, buf))
    }
}

impl AsyncWrite for ForwardedStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().poll_stream(|stream| stream.poll_write(cx, buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().poll_stream(|stream| stream.poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_stream(|stream| stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_stream(|stream| stream.poll_shutdown(cx))
    }
}
