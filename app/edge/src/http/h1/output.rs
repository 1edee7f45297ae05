//! What is to be written to a client: heads and small pieces one behind the other in one buffer, large ones as they are.

use std::{
    collections::VecDeque,
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::AsyncWrite;

/// How much is gathered before it is written, in bytes.
const MAX_GATHERED_BYTES: usize = 128 * 1024;
/// How many large pieces are.
const MAX_PIECES: usize = 16;
/// The largest piece that is copied, in bytes: that costs less than a place of its own among what is written at once.
const MAX_COPIED_BYTES: usize = 2 * 1024;

/// What is to be written.
#[derive(Debug, Default)]
pub(super) struct Output {
    /// What comes first.
    pieces: VecDeque<Bytes>,
    /// What follows.
    tail: BytesMut,
    /// How much is in the pieces, in bytes.
    piece_bytes: usize,
}

impl Output {
    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.tail.is_empty()
    }

    /// Whether more should be gathered.
    pub(super) fn has_room(&self) -> bool {
        self.pieces.len() < MAX_PIECES && self.piece_bytes + self.tail.len() < MAX_GATHERED_BYTES
    }

    /// Where small things are put, behind all that waits.
    pub(super) fn tail(&mut self) -> &mut BytesMut {
        &mut self.tail
    }

    /// Puts a piece behind all that waits.
    pub(super) fn push(&mut self, piece: Bytes) {
        if piece.len() <= MAX_COPIED_BYTES {
            self.tail.extend_from_slice(&piece);
            return;
        }
        if !self.tail.is_empty() {
            let tail = self.tail.split().freeze();
            self.piece_bytes += tail.len();
            self.pieces.push_back(tail);
        }
        self.piece_bytes += piece.len();
        self.pieces.push_back(piece);
    }

    /// Writes all that waits.
    pub(super) fn poll_write(
        &mut self,
        mut io: Pin<&mut impl AsyncWrite>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while !self.is_empty() {
            let written = if self.pieces.is_empty() {
                ready!(io.as_mut().poll_write(cx, &self.tail))?
            } else {
                let mut slices = [IoSlice::new(&[]); MAX_PIECES + 2];
                let all = self.pieces.iter().map(|piece| &piece[..]).chain([&self.tail[..]]);
                let mut count = 0;
                for (slice, bytes) in slices.iter_mut().zip(all) {
                    *slice = IoSlice::new(bytes);
                    count += 1;
                }
                ready!(io.as_mut().poll_write_vectored(cx, &slices[..count]))?
            };
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.advance(written);
        }
        Poll::Ready(Ok(()))
    }

    /// So much was written.
    fn advance(&mut self, mut written: usize) {
        while let Some(first) = self.pieces.front_mut() {
            let taken = written.min(first.len());
            self.piece_bytes -= taken;
            if taken < first.len() {
                return first.advance(taken);
            }
            written -= taken;
            self.pieces.pop_front();
        }
        self.tail.advance(written);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes so many bytes at once.
    struct Slow {
        taken: Vec<u8>,
        at_once: usize,
    }

    impl AsyncWrite for Slow {
        fn poll_write(mut self: Pin<&mut Self>, _cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
            let taken = buf.len().min(self.at_once);
            self.taken.extend_from_slice(&buf[..taken]);
            Poll::Ready(Ok(taken))
        }

        fn poll_write_vectored(
            mut self: Pin<&mut Self>,
            _cx: &mut Context<'_>,
            bufs: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            let all: Vec<u8> = bufs.iter().flat_map(|buf| buf.iter().copied()).take(self.at_once).collect();
            self.taken.extend_from_slice(&all);
            Poll::Ready(Ok(all.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn all_is_written_in_its_order_however_little_is_taken_at_once() {
        let small = Bytes::from(vec![b's'; 100]);
        let large = Bytes::from(vec![b'l'; MAX_COPIED_BYTES + 1]);
        for at_once in [1, 99, 100, 101, 2_000, 1 << 20] {
            let (mut output, mut expected) = (Output::default(), Vec::new());
            for round in 0..6 {
                for piece in [&small, &large, &large, &small][round % 3..].iter().copied() {
                    output.tail().extend_from_slice(b"<");
                    output.push(piece.clone());
                    expected.push(b'<');
                    expected.extend_from_slice(piece);
                }
            }
            let mut slow = Slow { taken: Vec::new(), at_once };
            let mut cx = Context::from_waker(std::task::Waker::noop());
            assert!(output.poll_write(Pin::new(&mut slow), &mut cx).is_ready());
            assert!(slow.taken == expected, "{at_once} at once");
            assert!(output.is_empty() && output.has_room() && output.piece_bytes == 0);
        }
    }

    #[test]
    fn so_much_is_gathered_and_no_more() {
        let mut output = Output::default();
        let piece = Bytes::from(vec![0; 64 * 1024]);
        output.push(piece.clone());
        assert!(output.has_room());
        output.push(piece);
        assert!(!output.has_room());
        let mut output = Output::default();
        for _ in 0..MAX_PIECES {
            assert!(output.has_room());
            output.push(Bytes::from(vec![0; MAX_COPIED_BYTES + 1]));
        }
        assert!(!output.has_room());
    }
}
