//! One stream: a request and its response.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;

use crate::{code::ErrorCode, server::Signal, settings::MAX_WINDOW_BYTES};

/// Payload shorter than this is gathered: each slice costs more memory than its bytes.
const MIN_PIECE_BYTES: usize = 1_024;

/// The state of a stream (RFC 9113 section 5.1), from the request's head until it is no longer in use.
#[derive(Debug)]
pub(crate) struct Stream<S> {
    /// The request's body.
    pub(crate) upload: Upload<S>,
    /// The client's window. Negative if the client has reduced it.
    pub(crate) send_window: i64,
    /// Whether it is the tunnel of a CONNECT, which has data alone.
    pub(crate) is_tunnel: bool,
    /// Whether the head of the response was sent.
    pub(crate) has_head: bool,
    /// Whether the end of the response was sent.
    pub(crate) has_response_ended: bool,
    /// Whether the responder still uses the stream.
    pub(crate) has_writer: bool,
    /// Whether it waits for its turn to send.
    pub(crate) is_queued: bool,
    /// Set if it was reset.
    pub(crate) reset: Option<ErrorCode>,
    /// Notifies the responder.
    pub(crate) writer: S,
}

/// The received part of a request's body that was not read yet.
#[derive(Debug)]
pub(crate) struct Upload<S> {
    /// Bytes still to come according to `content-length`.
    pub(crate) left: Option<u64>,
    /// Whether the whole body has arrived.
    pub(crate) is_over: bool,
    /// Whether the reader still uses the body.
    pub(crate) has_reader: bool,
    /// Whether the client waits for `100 Continue`.
    pub(crate) expects: bool,
    /// The remaining window of the client.
    pub(crate) window: i64,
    /// Bytes read that were not granted again yet.
    pub(crate) taken: u32,
    pieces: VecDeque<Bytes>,
    /// The last part, while it is short.
    tail: BytesMut,
    pub(crate) trailers: Option<HeaderMap>,
    /// Notifies the reader.
    pub(crate) reader: S,
}

impl<S: Signal> Upload<S> {
    pub(crate) fn new(ends: bool, left: Option<u64>, expects: bool, window: u32) -> Self {
        Self {
            left,
            is_over: ends,
            has_reader: !ends,
            expects: expects && !ends,
            window: window.into(),
            taken: 0,
            pieces: VecDeque::new(),
            tail: BytesMut::new(),
            trailers: None,
            reader: S::default(),
        }
    }

    /// Appends received data.
    pub(crate) fn push(&mut self, data: &[u8]) {
        self.expects = false;
        if !self.tail.is_empty() && self.tail.len().max(data.len()) >= MIN_PIECE_BYTES {
            self.pieces.push_back(self.tail.split().freeze());
        }
        if data.len() >= MIN_PIECE_BYTES {
            self.pieces.push_back(Bytes::copy_from_slice(data));
        } else {
            self.tail.extend_from_slice(data);
        }
    }

    /// Takes the next part.
    pub(crate) fn pop(&mut self) -> Option<Bytes> {
        let piece = self.pieces.pop_front();
        piece.or_else(|| (!self.tail.is_empty()).then(|| self.tail.split().freeze()))
    }

    /// Whether nothing waits to be read or will arrive.
    pub(crate) fn is_drained(&self) -> bool {
        self.is_over && self.pieces.is_empty() && self.tail.is_empty() && self.trailers.is_none()
    }

    /// Number of bytes that wait to be read.
    pub(crate) fn waiting(&self) -> usize {
        self.pieces.iter().map(Bytes::len).sum::<usize>() + self.tail.len()
    }

    /// Drops the waiting bytes; returns their number.
    pub(crate) fn clear(&mut self) -> usize {
        let bytes = self.waiting();
        (self.pieces, self.tail, self.trailers) = (VecDeque::new(), BytesMut::new(), None);
        bytes
    }
}

impl<S: Signal> Stream<S> {
    pub(crate) fn new(upload: Upload<S>, send_window: i64, is_tunnel: bool) -> Self {
        Self {
            upload,
            send_window,
            is_tunnel,
            has_head: false,
            has_response_ended: false,
            has_writer: true,
            is_queued: false,
            reset: None,
            writer: S::default(),
        }
    }

    /// Changes the client's window; returns whether the result is valid.
    pub(crate) fn widen(&mut self, more: i64) -> bool {
        let before = self.send_window;
        self.send_window += more;
        if before <= 0 && self.send_window > 0 {
            self.writer.signal();
        }
        self.send_window <= MAX_WINDOW_BYTES
    }

    /// Whether the stream counts as open: neither side has ended it.
    pub(crate) fn is_open(&self) -> bool {
        self.reset.is_none() && !(self.has_response_ended && self.upload.is_over)
    }
}
