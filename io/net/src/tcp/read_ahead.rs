//! Larger reads below TLS while much data arrives.
//!
//! rustls reads at most 4 KiB at a time, so a record of 16 KiB costs four system calls. [`ReadAhead`] passes small
//! reads through. After a full read it reads 64 KiB at a time, until less arrives. An idle connection holds no buffer.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, ReadBuf};

use crate::pass_writes;

/// Size of a read while much data arrives, in bytes.
const BUFFER_BYTES: usize = 65_536;
/// The most buffers that are kept for other connections.
const MAX_SPARE_BUFFERS: usize = 64;
/// A full read of this size means that more data waits: rustls asks for this many bytes at once.
const FULL_READ_BYTES: usize = 4_096;

static SPARE: Mutex<Vec<Box<[u8]>>> = Mutex::new(Vec::new());

fn take_buffer() -> Box<[u8]> {
    let spare = SPARE.lock().pop();
    spare.unwrap_or_else(|| vec![0; BUFFER_BYTES].into_boxed_slice())
}

fn give_back(buffer: Box<[u8]>) {
    let mut spare = SPARE.lock();
    if spare.len() < MAX_SPARE_BUFFERS {
        spare.push(buffer);
    }
}

/// A connection that reads larger pieces than its reader asks for.
#[derive(Debug)]
pub struct ReadAhead<S> {
    inner: S,
    /// Bytes that the reader has not requested yet.
    ahead: Option<Ahead>,
    much_comes: bool,
}

#[derive(Debug)]
struct Ahead {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

impl<S> ReadAhead<S> {
    /// Wraps a connection.
    pub fn new(inner: S) -> Self {
        Self { inner, ahead: None, much_comes: false }
    }

    /// The underlying connection. Do not read from it.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The underlying connection. Do not read from it.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ReadAhead<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.ahead.is_none() {
            let (before, asked) = (buf.filled().len(), buf.remaining());
            // A reader with a large buffer needs no read-ahead.
            let asks_for_much = asked >= BUFFER_BYTES;
            if !this.much_comes || asks_for_much {
                ready!(Pin::new(&mut this.inner).poll_read(cx, buf))?;
                this.much_comes = !asks_for_much && asked >= FULL_READ_BYTES && buf.filled().len() - before == asked;
                return Poll::Ready(Ok(()));
            }
            let mut buffer = take_buffer();
            let mut into = ReadBuf::new(&mut buffer);
            let read = Pin::new(&mut this.inner).poll_read(cx, &mut into);
            let end = into.filled().len();
            if end == 0 || !matches!(read, Poll::Ready(Ok(()))) {
                give_back(buffer);
                return read;
            }
            this.much_comes = end > FULL_READ_BYTES;
            this.ahead = Some(Ahead { buffer, start: 0, end });
        }
        if let Some(mut ahead) = this.ahead.take() {
            let n = buf.remaining().min(ahead.end - ahead.start);
            buf.put_slice(&ahead.buffer[ahead.start..ahead.start + n]);
            ahead.start += n;
            if ahead.start == ahead.end {
                give_back(ahead.buffer);
            } else {
                this.ahead = Some(ahead);
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<S> Drop for ReadAhead<S> {
    fn drop(&mut self) {
        if let Some(ahead) = self.ahead.take() {
            give_back(ahead.buffer);
        }
    }
}

pass_writes!(ReadAhead<S>, inner, S);

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// Counts the reads of the connection.
    struct Counted(tokio::io::DuplexStream, usize);

    impl AsyncRead for Counted {
        fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            self.1 += 1;
            Pin::new(&mut self.0).poll_read(cx, buf)
        }
    }

    #[tokio::test]
    async fn much_is_read_in_large_pieces_and_nothing_is_lost_or_kept() {
        let (mut sender, receiver) = tokio::io::duplex(1 << 20);
        let sent: Vec<u8> = (0..300_007_u32).map(|n| (n % 251) as u8).collect();
        sender.write_all(&sent).await.unwrap();
        drop(sender);
        let mut ahead = ReadAhead::new(Counted(receiver, 0));
        let mut got = Vec::new();
        let mut piece = [0; 4_096];
        loop {
            let n = ahead.read(&mut piece).await.unwrap();
            if n == 0 {
                break;
            }
            got.extend_from_slice(&piece[..n]);
        }
        assert!(got == sent, "the bytes came as they were sent");
        assert!(ahead.get_ref().1 < 12, "{} reads for 300 kB", ahead.get_ref().1);
        assert!(ahead.ahead.is_none(), "an idle connection has no buffer");
    }

    #[tokio::test]
    async fn small_reads_pass_as_they_are() {
        let (mut sender, receiver) = tokio::io::duplex(1 << 20);
        let mut ahead = ReadAhead::new(receiver);
        let mut piece = [0; 4_096];
        for _ in 0..3 {
            sender.write_all(b"a short message").await.unwrap();
            assert_eq!(ahead.read(&mut piece).await.unwrap(), 15);
            assert!(ahead.ahead.is_none() && !ahead.much_comes);
        }
        drop(sender);
        assert_eq!(ahead.read(&mut piece).await.unwrap(), 0);
    }
}
