//! Bytes for the client: heads and small pieces in one buffer, large pieces as they are.

use std::{collections::VecDeque, io::IoSlice};

use bytes::{Buf, Bytes, BytesMut};

/// How many bytes are gathered before they are written.
const MAX_GATHERED_BYTES: usize = 128 * 1024;
/// How many large pieces are gathered.
const MAX_PIECES: usize = 16;
/// The largest piece that is copied, in bytes. A copy costs less than a slice of its own in a write.
const MAX_COPIED_BYTES: usize = 2 * 1024;
/// The greatest number of slices in [`Output::slices`].
pub const MAX_SLICES: usize = MAX_PIECES + 2;

/// Bytes that wait to be written, in order.
#[derive(Debug, Default)]
pub struct Output {
    /// Written before `tail`.
    pieces: VecDeque<Bytes>,
    tail: BytesMut,
    /// The size of all pieces, in bytes.
    piece_bytes: usize,
}

impl Output {
    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.tail.is_empty()
    }

    /// Whether more should be gathered before a write.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.pieces.len() < MAX_PIECES && self.piece_bytes + self.tail.len() < MAX_GATHERED_BYTES
    }

    /// What waits, as far as `into` has room; how many slices it is.
    pub fn slices<'a>(&'a self, into: &mut [IoSlice<'a>]) -> usize {
        let all = self.pieces.iter().map(|piece| &piece[..]).chain([&self.tail[..]]);
        let mut count = 0;
        for (slice, bytes) in into.iter_mut().zip(all.filter(|bytes| !bytes.is_empty())) {
            *slice = IoSlice::new(bytes);
            count += 1;
        }
        count
    }

    /// Records that the first `bytes` of it were written.
    pub fn mark_written(&mut self, mut bytes: usize) {
        while let Some(first) = self.pieces.front_mut() {
            let taken = bytes.min(first.len());
            self.piece_bytes -= taken;
            if taken < first.len() {
                return first.advance(taken);
            }
            bytes -= taken;
            self.pieces.pop_front();
        }
        self.tail.advance(bytes);
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
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let mut written: Vec<u8> = Vec::new();
            while !output.is_empty() {
                let mut slices = [IoSlice::new(&[]); MAX_SLICES];
                let count = output.slices(&mut slices);
                let before = written.len();
                written.extend(slices[..count].iter().flat_map(|slice| slice.iter()).take(at_once));
                let bytes = written.len() - before;
                output.mark_written(bytes);
            }
            assert!(written == expected, "{at_once} at once");
            assert!(output.has_room() && output.piece_bytes == 0);
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
