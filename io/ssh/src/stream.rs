//! One connection of a visitor, carried by a `forwarded-tcpip` channel.

use std::{
    collections::VecDeque,
    io,
    ops::Range,
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
    config::{FIRST_WINDOW_BYTES, MAX_WINDOW_BYTES},
    connection::{Inner, StreamPlace},
    stats::add,
};

/// Packets that wait are joined up to this size, in bytes, so that many small ones take little room.
const JOINED_BYTES: usize = 32 * 1_024;
/// Packets with at least so much data, in bytes, are kept as they are instead of being copied.
const WHOLE_BYTES: usize = 16 * 1_024;

/// What has come on a channel and waits for its reader: at most a window of bytes, for the library ends a connection
/// that sends more.
#[derive(Debug)]
pub(crate) struct Inbound {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// How large the window is when everything has been read.
    window_bytes: u32,
    chunks: VecDeque<Chunk>,
    /// Read since the window was opened last.
    ungranted_bytes: u32,
    /// The reader has waited for the network since the window was opened last.
    has_waited: bool,
    end: End,
    /// The client has closed the channel: nothing can be written any more.
    is_closed: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

/// Bytes that wait for the reader.
#[derive(Debug)]
struct Chunk {
    bytes: Vec<u8>,
    /// Where that begins which has not been read.
    start: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Open,
    Eof,
    /// Closed without an EOF.
    Broken,
    /// The connection is gone.
    Lost,
}

/// How far a window may be opened after a read.
#[derive(Debug, Clone, Copy)]
struct Grant {
    /// What has been read since the last time.
    read_bytes: u32,
    /// By how much the window may grow: the reader waits for the network.
    growth_bytes: u32,
}

impl Inbound {
    pub(crate) fn new() -> Self {
        let state = State {
            window_bytes: FIRST_WINDOW_BYTES,
            chunks: VecDeque::new(),
            ungranted_bytes: 0,
            has_waited: false,
            end: End::Open,
            is_closed: false,
            reader: None,
            writer: None,
        };
        Self { state: Mutex::new(state) }
    }

    pub(crate) fn push(&self, data: &[u8]) {
        let mut state = self.lock();
        if state.end != End::Open {
            return;
        }
        match state.chunks.back_mut() {
            Some(last) if last.bytes.len() + data.len() <= JOINED_BYTES => last.bytes.extend_from_slice(data),
            _ => state.chunks.push_back(Chunk { bytes: data.to_vec(), start: 0 }),
        }
        wake(state.reader.take());
    }

    /// The same with data that lies here in a packet, whose memory is taken where that is worth it.
    pub(crate) fn push_packet(&self, packet: &mut Vec<u8>, data: Range<usize>) {
        if data.len() < WHOLE_BYTES {
            return self.push(packet.get(data).unwrap_or_default());
        }
        let mut state = self.lock();
        if state.end != End::Open {
            return;
        }
        let mut bytes = std::mem::take(packet);
        bytes.truncate(data.end);
        if bytes.capacity() > 2 * bytes.len() {
            bytes.shrink_to_fit();
        }
        state.chunks.push_back(Chunk { bytes, start: data.start });
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

    /// The window has grown.
    fn grown(&self, growth_bytes: u32) {
        self.lock().window_bytes += growth_bytes;
    }

    /// By how much the window has grown in all.
    fn growth(&self) -> usize {
        self.lock().window_bytes.saturating_sub(FIRST_WINDOW_BYTES) as usize
    }

    /// Reads what is there; says when the window should be opened again.
    fn poll_read(&self, cx: &Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<Option<Grant>>> {
        let mut guard = self.lock();
        let state = &mut *guard;
        let before = buf.remaining();
        while buf.remaining() > 0
            && let Some(chunk) = state.chunks.front_mut()
        {
            let rest = &chunk.bytes[chunk.start..];
            let taken = rest.len().min(buf.remaining());
            buf.put_slice(&rest[..taken]);
            if taken == rest.len() {
                state.chunks.pop_front();
            } else {
                chunk.start += taken;
            }
        }
        let read = before - buf.remaining();
        if read > 0 || before == 0 {
            // A read is at most what the window let through.
            state.ungranted_bytes += u32::try_from(read).unwrap_or(MAX_WINDOW_BYTES);
            if state.ungranted_bytes < state.window_bytes / 4 || state.end != End::Open {
                return Poll::Ready(Ok(None));
            }
            let can_grow = std::mem::take(&mut state.has_waited) && state.window_bytes < MAX_WINDOW_BYTES;
            let growth_bytes = if can_grow { state.window_bytes.min(MAX_WINDOW_BYTES - state.window_bytes) } else { 0 };
            return Poll::Ready(Ok(Some(Grant {
                read_bytes: std::mem::take(&mut state.ungranted_bytes),
                growth_bytes,
            })));
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
                state.has_waited = true;
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
        self.inbound.poll_read(cx, buf).map_ok(|grant| {
            let (Some(grant), Some(handle)) = (grant, self.connection.handle()) else { return };
            let mut bytes = grant.read_bytes;
            if grant.growth_bytes > 0 && self.connection.take_growth(grant.growth_bytes as usize) {
                self.inbound.grown(grant.growth_bytes);
                bytes += grant.growth_bytes;
            }
            // Fails only when the connection is over, which the next read says.
            let _ = handle.grant_window(self.id, bytes);
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
        self.connection.give_growth(self.inbound.growth());
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

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET_BYTES: usize = 32 * 1_024;
    const HEAD_BYTES: usize = 14;

    /// A packet with data of this value comes.
    fn comes(inbound: &Inbound, value: u8) {
        let mut packet = vec![value; HEAD_BYTES + PACKET_BYTES + 5];
        inbound.push_packet(&mut packet, HEAD_BYTES..HEAD_BYTES + PACKET_BYTES);
    }

    /// Reads this many bytes at most: what was read, or that there is nothing; and whether the window opens.
    fn read(inbound: &Inbound, bytes: usize) -> (Option<Vec<u8>>, Option<Grant>) {
        let mut memory = vec![0; bytes];
        let mut buf = ReadBuf::new(&mut memory);
        match inbound.poll_read(&Context::from_waker(Waker::noop()), &mut buf) {
            Poll::Ready(grant) => (Some(buf.filled().to_vec()), grant.unwrap()),
            Poll::Pending => (None, None),
        }
    }

    #[test]
    fn a_window_grows_for_a_reader_that_has_waited_and_for_no_other() {
        let inbound = Inbound::new();
        for round in 0..20 {
            comes(&inbound, 1);
            comes(&inbound, 2);
            let (_, grant) = read(&inbound, 2 * PACKET_BYTES);
            let grant = grant.unwrap_or_else(|| panic!("a quarter has been read: {round}"));
            assert_eq!((grant.read_bytes as usize, grant.growth_bytes), (2 * PACKET_BYTES, 0), "{round}");
        }
        assert!(read(&inbound, 1).0.is_none());
        comes(&inbound, 1);
        comes(&inbound, 2);
        // The rest of what came is still there: that is not what counts.
        comes(&inbound, 3);
        let grant = read(&inbound, 2 * PACKET_BYTES).1.unwrap();
        assert_eq!(grant.growth_bytes, FIRST_WINDOW_BYTES);
        inbound.grown(grant.growth_bytes);
        assert_eq!(inbound.growth(), FIRST_WINDOW_BYTES as usize);
    }

    #[test]
    fn packets_large_and_small_are_read_in_their_order_and_in_any_pieces() {
        let inbound = Inbound::new();
        comes(&inbound, 1);
        inbound.push(&[2; 10]);
        let mut small = vec![3; HEAD_BYTES + 20];
        inbound.push_packet(&mut small, HEAD_BYTES..HEAD_BYTES + 20);
        assert_eq!(small.len(), HEAD_BYTES + 20, "its memory is not taken");
        comes(&inbound, 4);
        inbound.eof();
        let mut all = Vec::new();
        while let (Some(piece), _) = read(&inbound, 1_000)
            && !piece.is_empty()
        {
            all.extend(piece);
        }
        let expected = [vec![1; PACKET_BYTES], vec![2; 10], vec![3; 20], vec![4; PACKET_BYTES]].concat();
        assert!(all == expected, "{} bytes", all.len());
    }
}
