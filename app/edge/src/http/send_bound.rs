//! Bounds on clients that do not read their responses.
//!
//! Such a client holds the origin of its response for as long as its connection lives. [`SendBound`] ends a connection
//! when its client reads nothing. [`StreamExecutor`] ends a single stream of HTTP/2 or HTTP/3 when its
//! client grants no window. Both
//! bounds count only while there are bytes to send, so a quiet WebSocket or event stream is not affected.

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

/// A client's connection that ends if the client reads none of the waiting bytes for `bound`.
///
/// A full kernel buffer does not prove that the client reads nothing: a slow client may need minutes for a third of a
/// large buffer. After half of the bound, the connection therefore sets TCP_USER_TIMEOUT, and the kernel, which sees
/// every acknowledgement, decides. Without that option the connection ends after the bound.
pub(crate) struct SendBound<S> {
    inner: S,
    socket: fn(&S) -> &TcpStream,
    bound: Duration,
    idle_timer: IdleTimer,
    is_suspected: bool,
}

impl<S> SendBound<S> {
    /// Bounds this connection. `socket` finds the TCP socket in `inner`.
    pub(crate) fn new(inner: S, bound: Duration, socket: fn(&S) -> &TcpStream) -> Self {
        Self { inner, socket, bound, idle_timer: IdleTimer::new(bound / 2), is_suspected: false }
    }

    /// The TCP socket below.
    pub(crate) fn socket(&self) -> &TcpStream {
        (self.socket)(&self.inner)
    }

    /// The connection, without the bound.
    pub(crate) fn into_inner(self) -> S {
        if self.is_suspected {
            let _ = sallyport_net::set_user_timeout(self.socket(), Duration::ZERO);
        }
        self.inner
    }

    /// Checks the outcome of a write against the bound.
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
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client reads nothing")));
            }
            self.is_suspected = true;
            if !HAS_USER_TIMEOUT {
                // Starts the second half of the bound.
                let _ = self.idle_timer.poll_over(cx);
            }
        }
        Poll::Pending
    }

    fn set_user_timeout(&self) -> io::Result<()> {
        sallyport_net::set_user_timeout(self.socket(), self.bound)
    }
}

/// Whether the kernel has TCP_USER_TIMEOUT.
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
    /// The stream of HTTP/2 or HTTP/3 that this task serves.
    static STREAM: Stream;
}

struct Stream {
    /// Which side the response waits for.
    waits_for: Cell<WaitsFor>,
    /// The revocation check of the response.
    revocation: RevocationSlot,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WaitsFor {
    /// The edge or the origin.
    Origin,
    /// The client, which got bytes just now.
    ClientAfterProgress,
    /// The client.
    Client,
}

/// Records that the response waits for its client. Returns whether this task serves a stream of HTTP/2 or
/// HTTP/3.
pub(crate) fn mark_waiting_for_client() -> bool {
    STREAM.try_with(|stream| stream.waits_for.set(WaitsFor::ClientAfterProgress)).is_ok()
}

/// Records that the response has nothing to send at the moment.
pub(crate) fn mark_waiting_for_origin() {
    let _ = STREAM.try_with(|stream| stream.waits_for.set(WaitsFor::Origin));
}

/// Calls `look` with the revocation slot of this task's stream. `None` if the task serves no stream.
pub(crate) fn with_slot<R>(look: impl FnOnce(&RevocationSlot) -> R) -> Option<R> {
    STREAM.try_with(|stream| look(&stream.revocation)).ok()
}

/// Runs the streams of an HTTP/2 or HTTP/3 connection. Drops revoked streams, and streams to clients that read nothing
/// for `bound`.
#[derive(Debug, Clone)]
pub(crate) struct StreamExecutor {
    /// How long a client may read nothing.
    pub(crate) bound: Duration,
    /// The shard on which the connection and its streams run.
    pub(crate) place: Arc<ShardLocation>,
}

impl StreamExecutor {
    /// Spawns a stream.
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
