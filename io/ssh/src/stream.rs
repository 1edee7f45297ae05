//! One connection of a visitor, carried by a `forwarded-tcpip` channel.

use std::{
    collections::VecDeque,
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use russh::{Channel, ChannelId, server::Msg};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    runtime::Handle as Runtime,
};

use crate::{
    config::WINDOW_BYTES,
    connection::{Inner, StreamPlace},
    stats::add,
};

/// The window is opened again when so much has been read, in bytes.
const GRANT_BYTES: u32 = WINDOW_BYTES / 4;
/// Packets that wait are joined up to this size, in bytes, so that many small ones take little room.
const JOINED_BYTES: usize = 32 * 1_024;

/// What has come on a channel and waits for its reader: at most a window of bytes, for the library ends a connection
/// that sends more.
#[derive(Debug, Default)]
pub(crate) struct Inbound {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    chunks: VecDeque<Vec<u8>>,
    /// How much of the first chunk was read.
    offset_bytes: usize,
    /// Read since the window was opened last.
    ungranted_bytes: u32,
    end: End,
    /// The client has closed the channel: nothing can be written any more.
    is_closed: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum End {
    #[default]
    Open,
    Eof,
    /// Closed without an EOF.
    Broken,
    /// The connection is gone.
    Lost,
}

impl Inbound {
    pub(crate) fn push(&self, data: &[u8]) {
        let mut state = self.lock();
        if state.end != End::Open {
            return;
        }
        match state.chunks.back_mut() {
            Some(last) if last.len() + data.len() <= JOINED_BYTES => last.extend_from_slice(data),
            _ => state.chunks.push_back(data.to_vec()),
        }
        wake(state.reader.take());
    }

    pub(crate) fn eof(&self) {
        let mut state = self.lock();
        if state.end == End::Open {
            state.end = End::Eof;
        }
        wake(state.reader.take());
    }

    pub(crate) fn closed(&self) {
        self.finish(End::Broken);
    }

    pub(crate) fn lost(&self) {
        self.finish(End::Lost);
    }

    fn finish(&self, end: End) {
        let mut state = self.lock();
        if state.end == End::Open {
            state.end = end;
        }
        state.is_closed = true;
        let wakers = [state.reader.take(), state.writer.take()];
        drop(state);
        wakers.into_iter().for_each(wake);
    }

    fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads what is there; with how many bytes the window may be opened now.
    fn poll_read(&self, cx: &Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<Option<u32>>> {
        let mut guard = self.lock();
        let state = &mut *guard;
        let before = buf.remaining();
        while buf.remaining() > 0
            && let Some(chunk) = state.chunks.front()
        {
            let rest = &chunk[state.offset_bytes..];
            let taken = rest.len().min(buf.remaining());
            buf.put_slice(&rest[..taken]);
            if taken == rest.len() {
                state.chunks.pop_front();
                state.offset_bytes = 0;
            } else {
                state.offset_bytes += taken;
            }
        }
        let read = before - buf.remaining();
        if read > 0 || before == 0 {
            // A read is at most what the window let through.
            state.ungranted_bytes += u32::try_from(read).unwrap_or(WINDOW_BYTES);
            let is_due = state.ungranted_bytes >= GRANT_BYTES && state.end == End::Open;
            return Poll::Ready(Ok(is_due.then(|| std::mem::take(&mut state.ungranted_bytes))));
        }
        match state.end {
            End::Eof => Poll::Ready(Ok(None)),
            End::Broken => Poll::Ready(Err(io::Error::new(
                io::ErrorKind::ConnectionReset,
                "the ssh client closed the stream before its end",
            ))),
            End::Lost => {
                Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionReset, "the ssh connection was lost")))
            }
            End::Open => {
                state.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Notes who waits to write; an error when nobody needs to.
    fn check_writable(&self, cx: &Context<'_>) -> io::Result<()> {
        let mut state = self.lock();
        if state.is_closed {
            return Err(io::Error::new(io::ErrorKind::BrokenPipe, "the ssh client closed the stream"));
        }
        state.writer = Some(cx.waker().clone());
        Ok(())
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// A stream to the client's origin.
///
/// `shutdown` sends EOF, and the other direction goes on; a read of 0 bytes is the origin's EOF. Dropping the stream
/// closes the channel, after what was written. SSH has no resets: a channel that is closed without an EOF is read as
/// [`ConnectionReset`](io::ErrorKind::ConnectionReset), and OpenSSH ends its connection to the origin normally when the
/// stream is dropped before its end.
pub struct SshStream {
    id: ChannelId,
    inbound: Arc<Inbound>,
    writer: Pin<Box<dyn AsyncWrite + Send + Sync>>,
    connection: Arc<Inner>,
    _place: StreamPlace,
}

impl SshStream {
    pub(crate) fn new(
        channel: Channel<Msg>,
        inbound: Arc<Inbound>,
        connection: Arc<Inner>,
        place: StreamPlace,
    ) -> Self {
        // Data comes by `Inbound`; the library's own queue, which would hold up the whole connection, is let go.
        let (_, write) = channel.split();
        Self { id: write.id(), inbound, writer: Box::pin(write.make_writer()), connection, _place: place }
    }
}

impl AsyncRead for SshStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.inbound.poll_read(cx, buf).map_ok(|granted| {
            if let (Some(bytes), Some(handle)) = (granted, self.connection.handle()) {
                // Fails only when the connection is over, which the next read says.
                let _ = handle.grant_window(self.id, bytes);
            }
        })
    }
}

impl AsyncWrite for SshStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if buf.is_empty() {
            return Poll::Ready(Ok(0));
        }
        self.inbound.check_writable(cx)?;
        let result = self.writer.as_mut().poll_write(cx, buf);
        if let Poll::Ready(Ok(written)) = result {
            add(&self.connection.stats().bytes_to_clients, written as u64);
        }
        result
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Packets are on their way as soon as they are written.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.inbound.check_writable(cx).is_err() {
            return Poll::Ready(Ok(()));
        }
        self.writer.as_mut().poll_shutdown(cx)
    }
}

impl Drop for SshStream {
    fn drop(&mut self) {
        self.connection.forget_channel(self.id);
        if self.inbound.is_closed() {
            return;
        }
        // In the order of what was written, so it may have to wait for room.
        if let (Some(handle), Ok(runtime)) = (self.connection.handle().cloned(), Runtime::try_current()) {
            let id = self.id;
            runtime.spawn(async move { handle.close(id).await });
        }
    }
}

impl std::fmt::Debug for SshStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SshStream").field("id", &self.id).finish_non_exhaustive()
    }
}
