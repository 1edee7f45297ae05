//! The send queue of a control connection. Order: control frames, PONGs, and then the streams in turn, where the
//! request log counts as one stream.

use std::collections::VecDeque;

use serde::Serialize;

use super::input::frame_bytes;
use super::stream::QUANTUM_BYTES;
use crate::{
    FrameHeader, FrameType,
    frame::{HEADER_BYTES, put_frame},
    message::encode_request_log,
};

/// Bound on queued PONGs.
pub(crate) const MAX_QUEUED_PONGS: usize = 64;
/// Bound on queued control frames of a session in bytes, without the allowance for streams.
const MAX_CONTROL_QUEUE_BYTES: usize = 1024 * 1024;
/// Allowance of queued control frames for each possible stream, in bytes.
const MAX_CONTROL_QUEUE_BYTES_PER_STREAM: usize = 1_024;
/// Bound on queued request records in bytes.
const MAX_REQUEST_LOG_BYTES: usize = 4 * QUANTUM_BYTES;
/// The id of the request log among the streams; no stream has this id.
const LOG_TURN: u32 = 0;

/// The owner of a turn.
pub(crate) enum Turn {
    /// The stream's.
    Stream(u32),
    /// The request log's.
    Log,
}

/// Queued output.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    control: Vec<u8>,
    /// Number of sent bytes of `control`.
    control_sent: usize,
    pongs: VecDeque<u64>,
    turns: VecDeque<u32>,
    log: VecDeque<u8>,
}

impl Outbox {
    /// The buffer for complete control frames.
    pub(crate) fn control(&mut self) -> &mut Vec<u8> {
        &mut self.control
    }

    /// Queues a frame that starts with a stream id, ahead of all data.
    pub(crate) fn stream_frame(&mut self, kind: FrameType, id: u32, payload: impl FnOnce(&mut Vec<u8>)) {
        put_stream_frame(&mut self.control, kind, id, payload);
    }

    /// Whether the peer causes more answers than it reads.
    pub(crate) fn is_stuck(&self, max_streams: u32) -> bool {
        let bound = MAX_CONTROL_QUEUE_BYTES + max_streams as usize * MAX_CONTROL_QUEUE_BYTES_PER_STREAM;
        self.control.len() - self.control_sent > bound
    }

    /// Queues a PONG; false if too many are queued.
    pub(crate) fn pong(&mut self, value: u64) -> bool {
        if self.pongs.len() >= MAX_QUEUED_PONGS {
            return false;
        }
        self.pongs.push_back(value);
        true
    }

    /// Queues a record of a request or flow; false if there is no room.
    pub(crate) fn log(&mut self, record: &impl Serialize) -> bool {
        let mut frame = Vec::new();
        if !encode_request_log(record, &mut frame) || self.log.len() + frame.len() > MAX_REQUEST_LOG_BYTES {
            return false;
        }
        if self.log.is_empty() {
            self.turns.push_back(LOG_TURN);
        }
        self.log.extend(&frame);
        true
    }

    /// Queues the stream for its turn.
    pub(crate) fn give_turn(&mut self, id: u32) {
        self.turns.push_back(id);
    }

    /// Whether anything is queued.
    pub(crate) fn has_any(&self) -> bool {
        !self.control.is_empty() || !self.pongs.is_empty() || !self.turns.is_empty()
    }

    /// Number of queued bytes, without PONGs.
    pub(crate) fn buffered_bytes(&self) -> usize {
        self.control.len() + self.log.len()
    }

    /// Moves the next control frame or PONG to `out`; false if none is queued.
    pub(crate) fn take_control(&mut self, out: &mut Vec<u8>) -> bool {
        let rest = &self.control[self.control_sent..];
        if !rest.is_empty() {
            let len = frame_bytes(rest);
            out.extend_from_slice(&rest[..len]);
            self.control_sent += len;
            // Sent bytes are removed once they are most of the buffer, so each byte is moved at most once.
            if self.control_sent * 2 >= self.control.len() {
                self.control.drain(..self.control_sent);
                self.control_sent = 0;
            }
            return true;
        }
        match self.pongs.pop_front() {
            Some(value) => {
                put_ping(out, FrameType::Pong, value);
                true
            }
            None => false,
        }
    }

    /// The owner of the next turn.
    pub(crate) fn next_turn(&mut self) -> Option<Turn> {
        Some(match self.turns.pop_front()? {
            LOG_TURN => Turn::Log,
            id => Turn::Stream(id),
        })
    }

    /// Moves one turn's worth of complete request records to `out`.
    pub(crate) fn take_log(&mut self, out: &mut Vec<u8>) {
        let end = out.len() + QUANTUM_BYTES;
        while out.len() < end && !self.log.is_empty() {
            let mut header = [0; HEADER_BYTES];
            for (byte, waiting) in header.iter_mut().zip(&self.log) {
                *byte = *waiting;
            }
            let len = frame_bytes(&header);
            out.extend(self.log.drain(..len));
        }
        if !self.log.is_empty() {
            self.turns.push_back(LOG_TURN);
        }
    }

    /// Drops all output except control frames.
    pub(crate) fn close(&mut self) {
        self.pongs.clear();
        self.turns.clear();
        self.log.clear();
    }
}

/// Appends a frame that starts with a stream id.
pub(crate) fn put_stream_frame(out: &mut Vec<u8>, kind: FrameType, id: u32, payload: impl FnOnce(&mut Vec<u8>)) {
    put_frame(out, kind, |out| {
        out.extend_from_slice(&id.to_be_bytes());
        payload(out);
    });
}

/// Appends a PING or a PONG.
pub(crate) fn put_ping(out: &mut Vec<u8>, kind: FrameType, value: u64) {
    out.extend_from_slice(&FrameHeader { kind, len: 8 }.encode());
    out.extend_from_slice(&value.to_be_bytes());
}
