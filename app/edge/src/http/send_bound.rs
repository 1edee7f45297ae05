//! A bound on clients that stop taking their answers.
//!
//! A client that reads nothing holds its answer's origin for as long as its connection lives. [`SendBound`] ends a
//! connection whose client takes none of the bytes that wait for it; [`StreamExecutor`] ends a single HTTP/2 stream
//! whose client grants it no window while others go on. Neither counts while there is nothing to send: a quiet
//! WebSocket or stream of events lives on.

use std::{
    cell::Cell,
    future::{Future, poll_fn},
    io,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use sallyport_net::RelayEnd;
use sallyport_shards::ShardLocation;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

use crate::{access::RevocationSlot, util::idle_timer::IdleTimer};

/// A client's connection that ends when the client takes nothing of what waits for it for this long.
///
/// That no room came up in the kernel's buffer does not say that the client takes nothing: a slow one may need minutes
/// for a third of a large buffer. So the connection is only suspected after half of the bound, and the kernel, which
/// sees every acknowledgement, judges it by TCP_USER_TIMEOUT. Without that option it ends after the bound itself.
pub(crate) struct SendBound<S> {
    inner: S,
    socket: fn(&S) -> &TcpStream,
    bound: Duration,
    idle_timer: IdleTimer,
    is_suspected: bool,
}

impl<S> SendBound<S> {
    /// Bounds this connection; `socket` finds the socket in it.
    pub(crate) fn new(inner: S, bound: Duration, socket: fn(&S) -> &TcpStream) -> Self {
        Self { inner, socket, bound, idle_timer: IdleTimer::new(bound / 2), is_suspected: false }
    }

    /// The socket below.
    pub(crate) fn socket(&self) -> &TcpStream {
        (self.socket)(&self.inner)
    }

    /// The connection, without the bound from now on.
    pub(crate) fn into_inner(self) -> S {
        if self.is_suspected {
            let _ = sallyport_net::set_user_timeout(self.socket(), Duration::ZERO);
        }
        self.inner
    }

    /// Looks at the outcome of a write: what was taken, or that nothing is.
    fn check_progress<T>(&mut self, cx: &mut Context<'_>, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.idle_timer.moved = true;
            if self.is_suspected {
                self.is_suspected = false;
                let _ = sallyport_net::set_user_timeout(self.socket(), Duration::ZERO);
            }
            return outcome;
        }
        if !(self.is_suspected && HAS_USER_TIMEOUT) && self.idle_timer.poll_over(cx).is_ready() {
            self.idle_timer.restart();
            if self.is_suspected || (HAS_USER_TIMEOUT && self.set_user_timeout().is_err()) {
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes nothing")));
            }
            self.is_suspected = true;
            if !HAS_USER_TIMEOUT {
                // The second half of the bound.
                let _ = self.idle_timer.poll_over(cx);
            }
        }
        Poll::Pending
    }

    fn set_user_timeout(&self) -> io::Result<()> {
        sallyport_net::set_user_timeout(self.socket(), self.bound)
    }
}

/// Whether the kernel can end a connection whose other end takes nothing.
const HAS_USER_TIMEOUT: bool = cfg!(any(target_os = "linux", target_os = "android"));

impl<S: AsyncRead + Unpin> AsyncRead for SendBound<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for SendBound<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.check_progress(cx, outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.check_progress(cx, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.inner).poll_flush(cx);
        self.check_progress(cx, outcome)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.check_progress(cx, outcome)
    }
}

impl<S: RelayEnd> RelayEnd for SendBound<S> {
    fn tcp(&self) -> Option<&TcpStream> {
        self.inner.tcp()
    }
}

tokio::task_local! {
    /// The HTTP/2 stream that this task serves.
    static STREAM: Stream;
}

struct Stream {
    /// Who is waited for.
    waits_for: Cell<WaitsFor>,
    /// What its answer goes on with.
    revocation: RevocationSlot,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WaitsFor {
    /// For us or the origin.
    Origin,
    /// For the client, which was given something just now.
    ClientAfterProgress,
    /// For the client.
    Client,
}

/// The answer has something for its client, and waits for it to be taken. Whether this is an HTTP/2 stream.
pub(crate) fn mark_waiting_for_client() -> bool {
    STREAM.try_with(|stream| stream.waits_for.set(WaitsFor::ClientAfterProgress)).is_ok()
}

/// The answer has nothing for its client at the moment.
pub(crate) fn mark_waiting_for_origin() {
    let _ = STREAM.try_with(|stream| stream.waits_for.set(WaitsFor::Origin));
}

/// Looks at what the answer of this task's HTTP/2 stream goes on with; `None`: this task serves none.
pub(crate) fn with_slot<R>(look: impl FnOnce(&RevocationSlot) -> R) -> Option<R> {
    STREAM.try_with(|stream| look(&stream.revocation)).ok()
}

/// Runs the streams of an HTTP/2 connection, and drops those whose client takes nothing for so long, and those that may
/// not go on.
#[derive(Debug, Clone)]
pub(crate) struct StreamExecutor {
    /// How long.
    pub(crate) bound: Duration,
    /// Where their connection is, and they are.
    pub(crate) place: Arc<ShardLocation>,
}

impl StreamExecutor {
    /// Runs this one.
    pub(crate) fn execute(&self, stream: impl Future<Output = ()> + Send + 'static) {
        let bound = self.bound;
        let scope = Stream { waits_for: Cell::new(WaitsFor::Origin), revocation: RevocationSlot::default() };
        let running = STREAM.scope(scope, async move {
            let mut stream = pin!(stream);
            let mut idle_timer = IdleTimer::new(bound);
            poll_fn(|cx| {
                if stream.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(());
                }
                if STREAM.with(|stream| stream.revocation.poll_over(cx)).is_ready() {
                    return Poll::Ready(());
                }
                match STREAM.with(|stream| stream.waits_for.get()) {
                    WaitsFor::Origin => {
                        idle_timer.moved = true;
                        return Poll::Pending;
                    }
                    WaitsFor::ClientAfterProgress => idle_timer.moved = true,
                    WaitsFor::Client => {}
                }
                STREAM.with(|stream| stream.waits_for.set(WaitsFor::Client));
                idle_timer.poll_over(cx)
            })
            .await;
        });
        tokio::spawn(self.place.follow(Box::pin(running)));
    }
}
