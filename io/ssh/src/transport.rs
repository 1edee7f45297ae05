//! The transport of one connection: detects signs of life, and fails if the peer does not read.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::Notify,
    time::{Sleep, sleep},
};

/// A byte stream to a client.
pub(crate) struct Transport<S> {
    io: S,
    /// Notified when the peer has sent bytes, or has accepted output that was waiting.
    sign_of_life: Arc<Notify>,
    stall: Duration,
    /// Runs while a write waits.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Transport<S> {
    /// Writes that wait longer than `stall` fail.
    pub(crate) fn new(io: S, stall: Duration, sign_of_life: Arc<Notify>) -> Self {
        Self { io, sign_of_life, stall, waiting: None }
    }

    /// Reads available bytes; returns their number, 0 at the end.
    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, target: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut buf = ReadBuf::new(target);
        ready!(Pin::new(&mut self.io).poll_read(cx, &mut buf))?;
        let count = buf.filled().len();
        if count > 0 {
            self.sign_of_life.notify_waiters();
        }
        Poll::Ready(Ok(count))
    }

    pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.io).poll_write(cx, data);
        self.bounded(result, cx)
    }

    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.io).poll_flush(cx);
        self.bounded(result, cx)
    }

    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.io).poll_shutdown(cx);
        self.bounded(result, cx)
    }

    fn bounded<T>(&mut self, result: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if let Poll::Ready(outcome) = &result {
            // Only the peer can have made room.
            if self.waiting.take().is_some() && outcome.is_ok() {
                self.sign_of_life.notify_waiters();
            }
            return result;
        }
        // tokio requests a yield, so whether the peer would accept the bytes is unknown.
        if !tokio::task::coop::has_budget_remaining() {
            return Poll::Pending;
        }
        let stall = self.stall;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(stall)));
        if waiting.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client accepts no data")));
        }
        Poll::Pending
    }
}
