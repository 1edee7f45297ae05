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
    task::{Context, Poll, ready},
    time::Duration,
};

use sallyport_net::RelayEnd;
use sallyport_shards::ShardLocation;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{Instant, Sleep},
};

use crate::identity::StakeSlot;

/// A timer that is set to its bound again only when it fires, so that progress costs nothing.
#[derive(Debug)]
pub(crate) struct Patience {
    bound: Duration,
    timer: Option<Pin<Box<Sleep>>>,
    /// Whether something moved since the timer was set.
    pub(crate) moved: bool,
}

impl Patience {
    /// For so long.
    pub(crate) fn new(bound: Duration) -> Self {
        Self { bound, timer: None, moved: false }
    }

    /// To be called while something is waited for: ready when nothing moved for the bound.
    pub(crate) fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let bound = self.bound;
        let timer = self.timer.get_or_insert_with(|| {
            self.moved = false;
            Box::pin(tokio::time::sleep(bound))
        });
        loop {
            ready!(timer.as_mut().poll(cx));
            if !std::mem::take(&mut self.moved) {
                return Poll::Ready(());
            }
            timer.as_mut().reset(Instant::now() + bound);
        }
    }
}

/// A client's connection that ends when the client takes nothing of what waits for it for this long.
///
/// That no room came up in the kernel's buffer does not say that the client takes nothing: a slow one may need minutes
/// for a third of a large buffer. So the connection is only suspected after half of the bound, and the kernel, which
/// sees every acknowledgement, judges it by TCP_USER_TIMEOUT. Without that option it ends after the bound itself.
pub(crate) struct SendBound<S> {
    inner: S,
    socket: fn(&S) -> &TcpStream,
    bound: Duration,
    patience: Patience,
    suspected: bool,
}

impl<S> SendBound<S> {
    /// Bounds this connection; `socket` finds the socket in it.
    pub(crate) fn new(inner: S, bound: Duration, socket: fn(&S) -> &TcpStream) -> Self {
        Self { inner, socket, bound, patience: Patience::new(bound / 2), suspected: false }
    }

    /// The socket below.
    pub(crate) fn socket(&self) -> &TcpStream {
        (self.socket)(&self.inner)
    }

    /// The connection, without the bound from now on.
    pub(crate) fn into_inner(self) -> S {
        if self.suspected {
            let _ = sallyport_net::set_user_timeout(self.socket(), Duration::ZERO);
        }
        self.inner
    }

    /// Looks at the outcome of a write: what was taken, or that nothing is.
    fn judge<T>(&mut self, cx: &mut Context<'_>, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.patience.moved = true;
            if self.suspected {
                self.suspected = false;
                let _ = sallyport_net::set_user_timeout(self.socket(), Duration::ZERO);
            }
            return outcome;
        }
        if !(self.suspected && KERNEL_JUDGES) && self.patience.poll_over(cx).is_ready() {
            self.patience.timer = None;
            if self.suspected || (KERNEL_JUDGES && self.kernel_judges().is_err()) {
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes nothing")));
            }
            self.suspected = true;
            if !KERNEL_JUDGES {
                // The second half of the bound.
                let _ = self.patience.poll_over(cx);
            }
        }
        Poll::Pending
    }

    fn kernel_judges(&self) -> io::Result<()> {
        sallyport_net::set_user_timeout(self.socket(), self.bound)
    }
}

/// Whether the kernel can end a connection whose other end takes nothing.
const KERNEL_JUDGES: bool = cfg!(any(target_os = "linux", target_os = "android"));

impl<S: AsyncRead + Unpin> AsyncRead for SendBound<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for SendBound<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.judge(cx, outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.judge(cx, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.inner).poll_flush(cx);
        self.judge(cx, outcome)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.judge(cx, outcome)
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
    waiting: Cell<Waiting>,
    /// What its answer goes on with.
    stake: StakeSlot,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waiting {
    /// For us or the origin.
    Here,
    /// For the client, which was given something just now.
    ClientAnew,
    /// For the client.
    Client,
}

/// The answer has something for its client, and waits for it to be taken. Whether this is an HTTP/2 stream.
pub(crate) fn waits_for_client() -> bool {
    STREAM.try_with(|stream| stream.waiting.set(Waiting::ClientAnew)).is_ok()
}

/// The answer has nothing for its client at the moment.
pub(crate) fn waits_for_origin() {
    let _ = STREAM.try_with(|stream| stream.waiting.set(Waiting::Here));
}

/// Looks at what the answer of this task's HTTP/2 stream goes on with; `None`: this task serves none.
pub(crate) fn with_slot<R>(look: impl FnOnce(&StakeSlot) -> R) -> Option<R> {
    STREAM.try_with(|stream| look(&stream.stake)).ok()
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
        let of_stream = Stream { waiting: Cell::new(Waiting::Here), stake: StakeSlot::default() };
        let running = STREAM.scope(of_stream, async move {
            let mut stream = pin!(stream);
            let mut patience = Patience::new(bound);
            poll_fn(|cx| {
                if stream.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(());
                }
                if STREAM.with(|stream| stream.stake.poll_over(cx)).is_ready() {
                    return Poll::Ready(());
                }
                match STREAM.with(|stream| stream.waiting.get()) {
                    Waiting::Here => {
                        patience.moved = true;
                        return Poll::Pending;
                    }
                    Waiting::ClientAnew => patience.moved = true,
                    Waiting::Client => {}
                }
                STREAM.with(|stream| stream.waiting.set(Waiting::Client));
                patience.poll_over(cx)
            })
            .await;
        });
        tokio::spawn(self.place.follow(Box::pin(running)));
    }
}
