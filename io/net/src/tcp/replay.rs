//! Keeps a copy of a connection's first bytes, so that they can be read again.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, ReadBuf};

use crate::pass_writes;

/// The most bytes that are kept: more than the longest ClientHello.
pub const MAX_REPLAY_BYTES: usize = 66_000;

/// A connection that copies its first bytes while they are read, until [`ReplayStream::stop`] or
/// [`ReplayStream::replay`].
///
/// A first byte that is a capital letter cannot start a ClientHello. The first read then fails before anything is
/// answered, and [`ReplayStream::recorded`] has the bytes.
#[derive(Debug)]
pub struct ReplayStream<S> {
    inner: S,
    record: Option<Vec<u8>>,
    replay: usize,
}

impl<S> ReplayStream<S> {
    /// Begins the copy.
    pub fn new(inner: S) -> Self {
        Self { inner, record: Some(Vec::new()), replay: usize::MAX }
    }

    /// The underlying connection. Do not read from it.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The underlying connection. Do not read from it.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// The bytes copied so far.
    pub fn recorded(&self) -> &[u8] {
        self.record.as_deref().unwrap_or_default()
    }

    /// Drops the copy.
    pub fn stop(&mut self) {
        if self.replay == usize::MAX {
            self.record = None;
        }
    }

    /// Reads the copied bytes again, and then the rest.
    pub fn replay(&mut self) {
        self.replay = 0;
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ReplayStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let Some(record) = &mut this.record else { return Pin::new(&mut this.inner).poll_read(cx, buf) };
        if this.replay != usize::MAX {
            let rest = &record[this.replay..];
            let n = rest.len().min(buf.remaining());
            buf.put_slice(&rest[..n]);
            this.replay += n;
            if this.replay == record.len() {
                this.record = None;
                if n == 0 {
                    return Pin::new(&mut this.inner).poll_read(cx, buf);
                }
            }
            return Poll::Ready(Ok(()));
        }
        let room = MAX_REPLAY_BYTES - record.len();
        if room == 0 {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "the ClientHello is too long")));
        }
        let room = room.min(buf.remaining());
        let mut into = ReadBuf::new(buf.initialize_unfilled_to(room));
        ready!(Pin::new(&mut this.inner).poll_read(cx, &mut into))?;
        let is_first = record.is_empty();
        record.extend_from_slice(into.filled());
        // Record types are numbers from 20 to 24 (RFC 8446, appendix B.1, RFC 6520, section 2).
        if is_first && record.first().is_some_and(u8::is_ascii_uppercase) {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "the client does not speak TLS")));
        }
        let n = into.filled().len();
        buf.advance(n);
        Poll::Ready(Ok(()))
    }
}

pass_writes!(ReplayStream<S>, inner, S);

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn the_first_bytes_can_be_read_twice_and_the_rest_once() {
        let (mut sender, receiver) = tokio::io::duplex(1_024);
        sender.write_all(b"hello, world").await.unwrap();
        let mut recorded = ReplayStream::new(receiver);
        let mut first = [0; 5];
        recorded.read_exact(&mut first).await.unwrap();
        recorded.replay();
        drop(sender);
        let mut all = String::new();
        recorded.read_to_string(&mut all).await.unwrap();
        assert_eq!(all, "hello, world");
        assert!(recorded.record.is_none());
    }

    #[tokio::test]
    async fn plain_text_is_distinguished_from_tls_before_an_answer_and_read_again() {
        let (mut sender, receiver) = tokio::io::duplex(1_024);
        sender.write_all(b"GET / HTTP").await.unwrap();
        let mut recorded = ReplayStream::new(receiver);
        let error = recorded.read(&mut [0; 5]).await.unwrap_err();
        assert_eq!((error.kind(), recorded.recorded()), (io::ErrorKind::InvalidData, &b"GET /"[..]));
        assert_eq!(recorded.read(&mut [0; 2]).await.unwrap(), 2, "the error occurs once");
        recorded.replay();
        drop(sender);
        let mut all = String::new();
        recorded.read_to_string(&mut all).await.unwrap();
        assert_eq!(all, "GET / HTTP");
    }

    #[tokio::test]
    async fn a_beginning_without_end_is_refused() {
        let (mut sender, receiver) = tokio::io::duplex(2 * MAX_REPLAY_BYTES);
        sender.write_all(&vec![1; MAX_REPLAY_BYTES + 1]).await.unwrap();
        drop(sender);
        let error = ReplayStream::new(receiver).read_to_end(&mut Vec::new()).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
