//! A transport that can be cut from outside, that notices signs of life, and that gives up on a peer that takes nothing.
//!
//! The SSH library runs a connection as a task of its own which may be waiting on the network for ever; an error of its
//! transport is what surely ends it.

use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::{Notify, futures::Notified},
    time::{Sleep, sleep},
};

/// Cuts the [`CutStream`] it belongs to.
#[derive(Debug, Default)]
pub(crate) struct Cut {
    state: Mutex<State>,
    /// The peer has sent bytes, or has made room for some that waited.
    sign_of_life: Notify,
}

#[derive(Debug, Default)]
struct State {
    is_cut: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Cut {
    /// From now on reads and writes fail; those that wait fail at once.
    pub(crate) fn cut(&self) {
        let mut state = self.lock();
        state.is_cut = true;
        let wakers = [state.reader.take(), state.writer.take()];
        drop(state);
        wakers.into_iter().flatten().for_each(Waker::wake);
    }

    /// Ends with the next sign of life of the peer, counted from this call.
    pub(crate) fn sign_of_life(&self) -> Notified<'_> {
        self.sign_of_life.notified()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&self, is_read: bool, cx: &Context<'_>) -> io::Result<()> {
        let mut state = self.lock();
        if state.is_cut {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the connection was ended by the server"));
        }
        let waker = if is_read { &mut state.reader } else { &mut state.writer };
        match waker {
            Some(waker) => waker.clone_from(cx.waker()),
            None => *waker = Some(cx.waker().clone()),
        }
        Ok(())
    }
}

/// The transport of one connection.
pub(crate) struct CutStream<S> {
    io: S,
    cut: Arc<Cut>,
    stall: Duration,
    /// Runs while a write waits.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S> CutStream<S> {
    pub(crate) fn new(io: S, stall: Duration) -> (Self, Arc<Cut>) {
        let cut = Arc::new(Cut::default());
        (Self { io, cut: cut.clone(), stall, waiting: None }, cut)
    }

    fn bounded<T>(&mut self, result: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if let Poll::Ready(outcome) = &result {
            // Only the peer can have made the room that was waited for.
            if self.waiting.take().is_some() && outcome.is_ok() {
                self.cut.sign_of_life.notify_waiters();
            }
            return result;
        }
        // Then it is tokio that asks for a pause, and nobody knows whether the peer would take it.
        if !tokio::task::coop::has_budget_remaining() {
            return Poll::Pending;
        }
        let stall = self.stall;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(stall)));
        if waiting.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes no data")));
        }
        Poll::Pending
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for CutStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.cut.check(true, cx)?;
        let before = buf.filled().len();
        let result = Pin::new(&mut self.io).poll_read(cx, buf);
        if buf.filled().len() > before {
            self.cut.sign_of_life.notify_waiters();
        }
        result
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for CutStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.cut.check(false, cx)?;
        let result = Pin::new(&mut self.io).poll_write(cx, buf);
        self.bounded(result, cx)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.cut.check(false, cx)?;
        let result = Pin::new(&mut self.io).poll_flush(cx);
        self.bounded(result, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.cut.check(false, cx)?;
        let result = Pin::new(&mut self.io).poll_shutdown(cx);
        self.bounded(result, cx)
    }
}
