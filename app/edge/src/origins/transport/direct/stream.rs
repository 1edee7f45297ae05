//! A stream to a direct origin: a connect future, then the connection.

use std::{
    future::Future,
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};

use sallyport_tunnel::Establishment;
use sallyport_wire::OpenFailure;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

use super::{Dialed, Lane, egress::SliceFlow};

/// A connection, with its count if it is from a slice.
pub(super) type Opened = (Box<dyn Dialed>, Option<SliceFlow>);

type Opening = Pin<Box<dyn Future<Output = Result<Opened, OpenFailure>> + Send>>;

enum State {
    Opening(Opening),
    Open(Box<dyn Dialed>),
    Failed,
}

/// A stream to a direct origin. The dial makes progress when the stream is read or written.
pub(crate) struct DirectStream {
    establishment: Establishment,
    lane: Lane,
    /// Counts the connection in its slice.
    flow: Option<SliceFlow>,
    state: State,
}

impl DirectStream {
    /// The stream that this future opens, for clients of this lane.
    pub(super) fn new(lane: Lane, opening: impl Future<Output = Result<Opened, OpenFailure>> + Send + 'static) -> Self {
        let state = State::Opening(Box::pin(opening));
        Self { establishment: Establishment::default(), lane, flow: None, state }
    }

    /// The clients that may share the stream.
    pub(crate) fn lane(&self) -> Lane {
        self.lane
    }

    /// The outcome of the dial, known once the stream is read or written.
    pub(crate) fn establishment(&self) -> &Establishment {
        &self.establishment
    }

    /// The connection, once it is open.
    pub(crate) fn tcp(&self) -> Option<&TcpStream> {
        match &self.state {
            State::Open(stream) => stream.tcp(),
            State::Opening(_) | State::Failed => None,
        }
    }

    /// Aborts the stream: the origin sees a reset.
    pub(crate) fn reset(self) {
        if let Some(tcp) = self.tcp() {
            drop(tcp.set_zero_linger());
        }
    }

    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Pin<&mut (dyn Dialed + 'static)>>> {
        if let State::Opening(opening) = &mut self.state {
            match ready!(opening.as_mut().poll(cx)) {
                Ok((stream, flow)) => {
                    self.flow = flow;
                    self.establishment.succeed();
                    self.state = State::Open(stream);
                }
                Err(failure) => {
                    self.establishment.fail(failure);
                    self.state = State::Failed;
                }
            }
        }
        Poll::Ready(match &mut self.state {
            State::Open(stream) => Ok(Pin::new(stream.as_mut())),
            _ => Err(io::Error::new(io::ErrorKind::ConnectionRefused, "the direct origin was not reached")),
        })
    }
}

impl AsyncRead for DirectStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        ready!(self.get_mut().poll_open(cx))?.poll_read(cx, buf)
    }
}

impl AsyncWrite for DirectStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.get_mut().poll_open(cx))?.poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.get_mut().poll_open(cx))?.poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        // Before the dial has ended, vectored writes are allowed; the connection below splits them if it must.
        match &self.state {
            State::Open(stream) => stream.is_write_vectored(),
            State::Opening(_) | State::Failed => true,
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.get_mut().poll_open(cx))?.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.get_mut().poll_open(cx))?.poll_shutdown(cx)
    }
}
