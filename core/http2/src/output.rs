//! The output to the client.

use std::{collections::VecDeque, io::IoSlice};

use bytes::{Buf as _, Bytes};

use crate::frame::{FrameHead, HEAD_BYTES};

/// Payload of at least this size is passed on without copying; shorter payload is copied, so that a write has few
/// slices.
const MIN_PIECE_BYTES: usize = 2_048;
/// Capacity for small frames that is kept between writes, in bytes.
const MAX_KEPT_BYTES: usize = 32 * 1024;

/// Frames to write, in order.
#[derive(Debug, Default)]
pub struct Output {
    /// Written before `tail`.
    pieces: VecDeque<Bytes>,
    pieces_bytes: usize,
    tail: Vec<u8>,
    /// Number of written bytes of `tail`.
    tail_written: usize,
}

impl Output {
    /// Number of unwritten bytes.
    pub fn len(&self) -> usize {
        self.pieces_bytes + self.tail.len() - self.tail_written
    }

    /// Whether everything is written.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `into` with the unwritten slices; returns their number.
    pub fn slices<'a>(&'a self, into: &mut [IoSlice<'a>]) -> usize {
        let tail = self.tail.get(self.tail_written..).unwrap_or_default();
        let all = self.pieces.iter().map(|piece| &**piece).chain([tail]).filter(|piece| !piece.is_empty());
        let mut count = 0;
        for (slot, piece) in into.iter_mut().zip(all) {
            *slot = IoSlice::new(piece);
            count += 1;
        }
        count
    }

    /// Records that bytes were written.
    pub fn mark_written(&mut self, mut bytes: usize) {
        while let Some(first) = self.pieces.front_mut().filter(|_| bytes > 0) {
            let part = bytes.min(first.len());
            first.advance(part);
            bytes -= part;
            self.pieces_bytes -= part;
            if first.is_empty() {
                self.pieces.pop_front();
            }
        }
        self.tail_written = self.tail.len().min(self.tail_written + bytes);
        if self.tail_written == self.tail.len() {
            self.tail_written = 0;
            self.tail.clear();
            if self.tail.capacity() > MAX_KEPT_BYTES {
                self.tail = Vec::new();
            }
        } else if self.tail_written > self.tail.len() / 2 {
            // With a constant flow of frames the end may never be reached.
            self.tail.drain(..self.tail_written);
            self.tail_written = 0;
        }
    }

    /// Frees kept capacity, for an idle connection.
    pub fn rest(&mut self) {
        if self.is_empty() {
            (self.tail, self.pieces) = (Vec::new(), VecDeque::new());
        }
    }

    /// Appends a frame with this header and payload.
    pub(crate) fn frame(&mut self, head: FrameHead, payload: &[u8]) {
        self.tail.extend_from_slice(&head.bytes());
        self.tail.extend_from_slice(payload);
    }

    /// Appends a frame with this header and payload, without copying a long payload.
    pub(crate) fn data(&mut self, head: FrameHead, payload: Bytes) {
        if payload.len() < MIN_PIECE_BYTES {
            return self.frame(head, &payload);
        }
        self.tail.extend_from_slice(&head.bytes());
        let mut tail = Bytes::from(std::mem::take(&mut self.tail));
        tail.advance(std::mem::take(&mut self.tail_written));
        self.pieces_bytes += tail.len() + payload.len();
        self.pieces.extend([tail, payload]);
    }

    /// Begins a frame whose payload is written to [`Output::block`]; returns its position.
    pub(crate) fn begin(&mut self) -> usize {
        let begin = self.tail.len();
        self.tail.extend_from_slice(&[0; HEAD_BYTES]);
        begin
    }

    /// The buffer for the payload of the begun frame.
    pub(crate) fn block(&mut self) -> &mut Vec<u8> {
        &mut self.tail
    }

    /// The length of the payload of the frame at this position.
    pub(crate) fn payload_since(&self, begin: usize) -> usize {
        self.tail.len() - begin - HEAD_BYTES
    }

    /// Writes the header of the frame at this position.
    pub(crate) fn set_head(&mut self, begin: usize, head: FrameHead) {
        if let Some(room) = self.tail.get_mut(begin..begin + HEAD_BYTES) {
            room.copy_from_slice(&head.bytes());
        }
    }

    /// Removes and returns the payload after `keep` bytes of the frame at this position.
    pub(crate) fn split_payload(&mut self, begin: usize, keep: usize) -> Vec<u8> {
        self.tail.split_off(begin + HEAD_BYTES + keep)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::kind;

    #[test]
    fn what_is_never_written_to_its_end_takes_no_more_room_than_it_needs() {
        let mut output = Output::default();
        for _ in 0..10_000 {
            output
                .data(FrameHead { length: 1_000, kind: kind::DATA, flags: 0, stream: 1 }, Bytes::from(vec![1; 1_000]));
            if output.len() > 5_000 {
                output.mark_written(output.len() - 4_000);
            }
        }
        assert!(output.tail.capacity() < 64 * 1024, "{} bytes", output.tail.capacity());
        assert_eq!((output.len() < 6_000, output.pieces.len()), (true, 0));
    }

    #[test]
    fn long_payload_is_passed_on_and_short_payload_gathered() {
        let mut output = Output::default();
        for length in [10, 5_000, 20, 30] {
            let head = FrameHead { length, kind: kind::DATA, flags: 0, stream: 1 };
            output.data(head, Bytes::from(vec![1; length]));
        }
        let mut slices = [IoSlice::new(&[]); 8];
        assert_eq!(output.slices(&mut slices), 3);
        let lengths: Vec<_> = slices.iter().map(|slice| slice.len()).collect();
        assert_eq!(lengths, [28, 5_000, 68, 0, 0, 0, 0, 0]);
        output.mark_written(28 + 4_999);
        assert_eq!(output.len(), 1 + 68);
        output.mark_written(2);
        assert_eq!((output.len(), output.pieces.len()), (67, 0));
    }
}
