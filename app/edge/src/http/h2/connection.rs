//! The I/O of one HTTP/2 client connection: reads, writes, and keepalive.

use std::{
    future::Future,
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use sallyport_http2::{NewRequest, Signal as _};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{CONFIG, MAX_OUTPUT_BYTES, stream};

use crate::{
    body::{h2::Http2Server, upload_meter::ReadGate},
    http::{connection::Client, send_bound::StreamExecutor, server::HttpServer},
    util::wake_gated::WakeGated,
};

/// How many bytes are read at once: one TLS record.
const READ_BYTES: usize = 16 * 1024;
/// How many reads one poll makes before other tasks run, such as those of the requests.
const MAX_READS: usize = 8;
/// How many slices one write has.
const MAX_PIECES: usize = 32;
/// How soon an idle connection releases the memory that only a busy one needs, and how often a busy one is checked.
const REST_AFTER: Duration = Duration::from_secs(1);

thread_local! {
    /// The read buffer of all connections of this thread.
    static READ: std::cell::RefCell<Box<[u8; READ_BYTES]>> = std::cell::RefCell::new(Box::new([0; READ_BYTES]));
}

/// A client's connection, as a future that resolves when the connection has ended.
pub(super) struct Connection<S> {
    server: Arc<HttpServer>,
    client: Arc<Client>,
    io: S,
    shared: Arc<Http2Server>,
    executor: StreamExecutor,
    gate: ReadGate,
    keepalive: Keepalive,
    /// Whether bytes were written and not flushed.
    is_unflushed: bool,
}

/// Checks that the client is alive.
struct Keepalive {
    /// How long the client may be quiet before a ping. After the same time without an answer, the connection ends.
    interval: Duration,
    /// How long until the next check.
    check_after: Duration,
    due: WakeGated<()>,
    /// How long nothing has come, as of the last check.
    quiet: Duration,
    /// Whether the connection has released the memory that only a busy one needs.
    is_resting: bool,
    is_ping_sent: bool,
}

impl Keepalive {
    fn new(interval: Duration) -> Self {
        let check_after = REST_AFTER.min(interval / 2);
        let due = WakeGated::new(tokio::time::sleep(check_after));
        Self { interval, check_after, due, quiet: Duration::ZERO, is_resting: false, is_ping_sent: false }
    }

    /// Records that bytes came. Runs for every request, so only a resting connection restarts the timer.
    fn record_activity(&mut self) {
        if self.is_resting {
            *self = Self::new(self.interval);
        }
        (self.quiet, self.is_ping_sent) = (Duration::ZERO, false);
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    pub(super) fn new(server: Arc<HttpServer>, client: Arc<Client>, io: S) -> Self {
        let meter = client.uploads.clone().unwrap_or_else(|| server.uploads.meter(client.addr.ip()));
        let (shared, executor) = (
            Arc::new(Http2Server::new(CONFIG)),
            StreamExecutor { bound: server.state.config.send_timeout, place: Arc::default() },
        );
        let keepalive = Keepalive::new(server.state.config.ping_interval);
        Self { server, client, io, shared, executor, gate: ReadGate::new(meter), keepalive, is_unflushed: false }
    }

    /// Lets running requests end, and accepts no more.
    pub(super) fn graceful_shutdown(self: Pin<&mut Self>) {
        self.shared.with(|server| server.graceful_shutdown());
    }

    /// The stream, if the connection ended because of a protocol error. The client may still be sending.
    pub(super) fn unread(&mut self) -> Option<&mut S> {
        let has_failed = self.shared.lock().server.failure().is_some();
        has_failed.then_some(&mut self.io)
    }

    /// Ready when all output is written.
    fn poll_write_all(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.shared.lock();
        while !state.server.output().is_empty() {
            let mut slices = [IoSlice::new(&[]); MAX_PIECES];
            let count = state.server.output().slices(&mut slices);
            let written = ready!(Pin::new(&mut self.io).poll_write_vectored(cx, &slices[..count]))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.is_unflushed = true;
            sallyport_shards::weigh(written);
            state.server.mark_written(written);
        }
        drop(state);
        if self.is_unflushed {
            ready!(Pin::new(&mut self.io).poll_flush(cx))?;
            self.is_unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Reads once, and returns the number of bytes. Does not read while too much output waits for the client.
    fn poll_read_once(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.shared.lock().server.output().len() >= MAX_OUTPUT_BYTES {
            // The send bounds decide whether such a client is alive.
            self.keepalive.record_activity();
            return Poll::Pending;
        }
        ready!(self.gate.poll_open(cx));
        READ.with_borrow_mut(|room| {
            let mut read = ReadBuf::new(&mut room[..]);
            ready!(Pin::new(&mut self.io).poll_read(cx, &mut read))?;
            self.keepalive.record_activity();
            sallyport_shards::weigh(read.filled().len());
            self.handle_input(read.filled());
            Poll::Ready(Ok(read.filled().len()))
        })
    }

    /// Passes these bytes to the server, and spawns the requests that they complete.
    fn handle_input(&mut self, bytes: &[u8]) {
        self.shared.lock().server.handle_input(bytes);
        // Not under the lock: a runtime that shuts down drops a spawned task at once, and the drop takes the lock.
        while let Some(request) = self.next_request() {
            self.client.count_request();
            let served = stream::serve(self.server.clone(), self.client.clone(), &self.shared, request);
            self.executor.execute(served);
        }
        let (received, faults) = {
            let server = &mut self.shared.lock().server;
            (server.received(), server.faults())
        };
        self.gate.record_received(received);
        for (fault, times) in faults {
            self.server.state.metrics.http2_fault(fault, times);
        }
    }

    fn next_request(&self) -> Option<NewRequest> {
        self.shared.lock().server.poll_request()
    }

    /// Sends pings when due.
    ///
    /// # Errors
    /// The client does not answer.
    fn poll_keepalive(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let keepalive = &mut self.keepalive;
        while Pin::new(&mut keepalive.due).poll(cx).is_ready() {
            keepalive.quiet += keepalive.check_after;
            let server = &mut self.shared.lock().server;
            if keepalive.quiet >= 2 * keepalive.interval {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not answer pings"));
            }
            if keepalive.quiet >= keepalive.interval && !std::mem::replace(&mut keepalive.is_ping_sent, true) {
                server.forget_ended();
                server.ping();
            }
            if !std::mem::replace(&mut keepalive.is_resting, true) {
                server.rest();
            }
            keepalive.check_after = keepalive.interval / 2;
            keepalive.due = WakeGated::new(tokio::time::sleep(keepalive.check_after));
        }
        Ok(())
    }

    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.executor.place.mark_here();
        for _ in 0..MAX_READS {
            let written = self.poll_write_all(cx)?;
            if written.is_ready() && self.shared.lock().server.is_over() {
                return Pin::new(&mut self.io).poll_shutdown(cx);
            }
            match self.poll_read_once(cx)? {
                Poll::Ready(0) => {
                    // The client has ended its side, and may still read.
                    self.shared.lock().server.abandon();
                    if self.poll_write_all(cx).is_ready() {
                        let _ = Pin::new(&mut self.io).poll_shutdown(cx);
                    }
                    return Poll::Ready(Ok(()));
                }
                Poll::Ready(_) => {}
                Poll::Pending => {
                    // The bytes that just came may have restarted the timer.
                    self.poll_keepalive(cx)?;
                    let mut state = self.shared.lock();
                    state.connection.wait(cx);
                    // Another thread may have produced output since the last write.
                    if written.is_ready() && (!state.server.output().is_empty() || state.server.is_over()) {
                        state.connection.signal();
                    }
                    return Poll::Pending;
                }
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Future for Connection<S> {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_end(cx)
    }
}

impl<S> Drop for Connection<S> {
    fn drop(&mut self) {
        self.shared.lock().server.abandon();
    }
}
