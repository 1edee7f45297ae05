//! Responses: heads, bodies within the client's windows, trailers.

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

use crate::{
    code::ErrorCode,
    frame::{FrameHead, MAX_PAYLOAD_BYTES, flag, kind},
    hpack::Encoder,
    server::{Server, Signal, StreamId},
};

/// How much of a response's body may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// This many bytes, at least one, in one frame, now.
    Bytes(usize),
    /// None before [`Server::writer`] is signalled.
    Later,
    /// The stream was reset.
    Reset,
}

impl<S: Signal> Server<S> {
    /// The signal of this stream's responder, called when the stream was reset or may send more.
    pub fn writer(&mut self, id: StreamId) -> Option<&mut S> {
        self.streams.get_mut(&id).map(|stream| &mut stream.writer)
    }

    /// Whether this stream was reset, so that its response is not needed.
    pub fn is_reset(&self, id: StreamId) -> bool {
        self.streams.get(&id).is_none_or(|stream| stream.reset.is_some())
    }

    /// How much of the response's body may be sent now. Streams take turns in the connection's window: a stream that
    /// asks again after sending waits for those that wait already.
    pub fn room(&mut self, id: StreamId) -> Room {
        let free = self.free_room();
        let is_turn = self.turns.front().is_none_or(|first| *first == id);
        let Some(stream) = self.streams.get_mut(&id).filter(|stream| stream.reset.is_none()) else {
            return Room::Reset;
        };
        let may_send = usize::try_from(stream.send_window).unwrap_or(0);
        let waits_for_connection = may_send > 0 && (free == 0 || !is_turn);
        let was_queued = std::mem::replace(&mut stream.is_queued, waits_for_connection);
        if waits_for_connection {
            if !was_queued {
                self.turns.push_back(id);
            }
            return Room::Later;
        }
        if was_queued {
            self.leave_queue(id);
        }
        match may_send.min(free).min(MAX_PAYLOAD_BYTES) {
            0 => Room::Later,
            bytes => Room::Bytes(bytes),
        }
    }

    /// Whether the head of the response may be sent, because the output is not too long. If not, [`Server::writer`] is
    /// signalled later.
    pub fn may_send_head(&mut self, id: StreamId) -> bool {
        let may = self.output.len() < self.config.max_output_bytes;
        if !may && !self.heads.contains(&id) {
            self.heads.push(id);
        }
        may
    }

    /// Sends the head of the response; `ends` if nothing follows.
    pub fn send_head(&mut self, id: StreamId, status: StatusCode, fields: &HeaderMap, ends: bool) {
        let Some(stream) = self.streams.get_mut(&id).filter(|stream| stream.reset.is_none()) else { return };
        stream.has_head = true;
        self.send_block(id, ends, |encoder, block| {
            encoder.status(status, block);
            for (name, value) in fields {
                encoder.field(name, value, block);
            }
        });
        if ends {
            self.mark_response_ended(id);
        }
    }

    /// Sends a part of the response's body: at most as much as [`Server::room`] permits, or nothing if it only `ends`.
    pub fn send_data(&mut self, id: StreamId, data: Bytes, ends: bool) {
        let Some(stream) = self.streams.get_mut(&id).filter(|stream| stream.reset.is_none()) else { return };
        let length = data.len();
        // No window is larger than 2^31, and no part larger than a frame.
        stream.send_window -= length as i64;
        self.send_window -= length as i64;
        let flags = if ends { flag::END_STREAM } else { 0 };
        self.output.data(FrameHead { length, kind: kind::DATA, flags, stream: id }, data);
        if ends {
            self.mark_response_ended(id);
        }
        self.pass_turn();
    }

    /// Sends trailers, and ends the response.
    pub fn send_trailers(&mut self, id: StreamId, fields: &HeaderMap) {
        if self.is_reset(id) {
            return;
        }
        self.send_block(id, true, |encoder, block| {
            for (name, value) in fields {
                encoder.field(name, value, block);
            }
        });
        self.mark_response_ended(id);
    }

    /// Resets the response with this code.
    pub fn break_off(&mut self, id: StreamId, code: ErrorCode) {
        if !self.is_reset(id) {
            self.reset_stream(id, code);
        }
    }

    /// Releases the response. If it has not ended, the stream is reset.
    pub fn release_response(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.has_writer = false;
        if !stream.has_response_ended && stream.reset.is_none() {
            self.reset_stream(id, ErrorCode::CANCEL);
        }
        self.forget_unheld(id);
    }

    /// Room in the output for any stream.
    pub(crate) fn free_room(&self) -> usize {
        let by_output = self.config.max_output_bytes.saturating_sub(self.output.len());
        usize::try_from(self.send_window).unwrap_or(0).min(by_output)
    }

    /// Signals the streams with waiting heads once they may be sent.
    pub(crate) fn call_heads(&mut self) {
        if !self.heads.is_empty() && self.output.len() < self.config.max_output_bytes {
            for id in std::mem::take(&mut self.heads) {
                if let Some(stream) = self.streams.get_mut(&id) {
                    stream.writer.signal();
                }
            }
        }
    }

    /// Signals the stream whose turn it is, if it can send.
    pub(crate) fn pass_turn(&mut self) {
        if let Some(first) = self.turns.front()
            && self.free_room() > 0
            && let Some(stream) = self.streams.get_mut(first)
        {
            stream.writer.signal();
        }
    }

    /// Removes a stream from the queue of turns.
    pub(crate) fn leave_queue(&mut self, id: StreamId) {
        if self.turns.front() == Some(&id) {
            self.turns.pop_front();
        } else {
            self.turns.retain(|waiting| *waiting != id);
        }
        self.pass_turn();
    }

    /// Sends `100 Continue` to a client that waits before sending its body (RFC 9110 section 15.2.1).
    pub(crate) fn send_continue(&mut self, id: StreamId) {
        self.send_block(id, false, |encoder, block| encoder.status(StatusCode::CONTINUE, block));
    }

    fn send_block(&mut self, id: StreamId, ends: bool, write: impl FnOnce(&mut Encoder, &mut Vec<u8>)) {
        let begin = self.output.begin();
        self.encoder.begin(self.output.block());
        write(&mut self.encoder, self.output.block());
        let end_stream = if ends { flag::END_STREAM } else { 0 };
        let length = self.output.payload_since(begin);
        if length <= MAX_PAYLOAD_BYTES {
            let flags = flag::END_HEADERS | end_stream;
            return self.output.set_head(begin, FrameHead { length, kind: kind::HEADERS, flags, stream: id });
        }
        let more = self.output.split_payload(begin, MAX_PAYLOAD_BYTES);
        let head = FrameHead { length: MAX_PAYLOAD_BYTES, kind: kind::HEADERS, flags: end_stream, stream: id };
        self.output.set_head(begin, head);
        let mut pieces = more.chunks(MAX_PAYLOAD_BYTES).peekable();
        while let Some(piece) = pieces.next() {
            let flags = if pieces.peek().is_none() { flag::END_HEADERS } else { 0 };
            let head = FrameHead { length: piece.len(), kind: kind::CONTINUATION, flags, stream: id };
            self.output.frame(head, piece);
        }
    }

    fn mark_response_ended(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id) {
            let was_open = stream.is_open();
            stream.has_response_ended = true;
            if was_open && !stream.is_open() {
                self.open = self.open.saturating_sub(1);
            }
        }
    }
}
