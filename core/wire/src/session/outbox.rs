//! What waits to be sent on a control connection, in the order in which it goes: control frames, answers to PINGs, and
//! then the streams in turns, among which the request log counts as one.

use std::collections::VecDeque;

use serde::Serialize;

use super::input::frame_bytes;
use super::stream::QUANTUM_BYTES;
use crate::{
    FrameHeader, FrameType,
    frame::{HEADER_BYTES, put_frame},
    message::encode_request_log,
};

/// How many answers to PINGs may wait.
pub(crate) const MAX_QUEUED_PONGS: usize = 64;
/// How many bytes of control frames may wait on a session, besides those for each of its streams.
const MAX_CONTROL_QUEUE_BYTES: usize = 1024 * 1024;
/// How many bytes of control frames each stream that a session may have adds to that.
const MAX_CONTROL_QUEUE_BYTES_PER_STREAM: usize = 1_024;
/// How many bytes of the request log may wait.
const MAX_REQUEST_LOG_BYTES: usize = 4 * QUANTUM_BYTES;
/// The request log's place among the streams that take turns; no stream has this id.
const LOG_TURN: u32 = 0;

/// Whose turn it is.
pub(crate) enum Turn {
    /// The stream's.
    Stream(u32),
    /// The request log's.
    Log,
}

/// What waits to be sent.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    control: Vec<u8>,
    /// How much of `control` has been sent, in bytes.
    control_sent: usize,
    pongs: VecDeque<u64>,
    turns: VecDeque<u32>,
    log: VecDeque<u8>,
}

impl Outbox {
    /// Where control frames are appended, whole.
    pub(crate) fn control(&mut self) -> &mut Vec<u8> {
        &mut self.control
    }

    /// Queues a frame that starts with a stream's id, ahead of all data.
    pub(crate) fn stream_frame(&mut self, kind: FrameType, id: u32, payload: impl FnOnce(&mut Vec<u8>)) {
        put_stream_frame(&mut self.control, kind, id, payload);
    }

    /// The peer asks for more than it takes in.
    pub(crate) fn is_stuck(&self, max_streams: u32) -> bool {
        let bound = MAX_CONTROL_QUEUE_BYTES + max_streams as usize * MAX_CONTROL_QUEUE_BYTES_PER_STREAM;
        self.control.len() - self.control_sent > bound
    }

    /// Queues the answer to a PING; false if too many wait.
    pub(crate) fn pong(&mut self, value: u64) -> bool {
        if self.pongs.len() >= MAX_QUEUED_PONGS {
            return false;
        }
        self.pongs.push_back(value);
        true
    }

    /// Queues a record of the request log, a request or a flow; false if there is no room.
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

    /// The stream waits for its turn.
    pub(crate) fn give_turn(&mut self, id: u32) {
        self.turns.push_back(id);
    }

    /// Something waits, whatever it is.
    pub(crate) fn has_any(&self) -> bool {
        !self.control.is_empty() || !self.pongs.is_empty() || !self.turns.is_empty()
    }

    /// How many bytes wait, answers to PINGs not counted.
    pub(crate) fn buffered_bytes(&self) -> usize {
        self.control.len() + self.log.len()
    }

    /// Moves the next control frame or answer to a PING to `out`; false if none waits.
    pub(crate) fn take_control(&mut self, out: &mut Vec<u8>) -> bool {
        let rest = &self.control[self.control_sent..];
        if !rest.is_empty() {
            let len = frame_bytes(rest);
            out.extend_from_slice(&rest[..len]);
            self.control_sent += len;
            // What was sent gives way when it is most of the buffer, so each byte is moved at most once.
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

    /// Whose turn it is.
    pub(crate) fn next_turn(&mut self) -> Option<Turn> {
        Some(match self.turns.pop_front()? {
            LOG_TURN => Turn::Log,
            id => Turn::Stream(id),
        })
    }

    /// Moves one turn's worth of the request log to `out`, whole frames.
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

    /// Only control frames are still of use.
    pub(crate) fn close(&mut self) {
        self.pongs.clear();
        self.turns.clear();
        self.log.clear();
    }
}

/// Appends a frame that starts with a stream's id.
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
