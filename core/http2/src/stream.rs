//! One stream: a request and its answer.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;

use crate::{code::ErrorCode, server::Signal, settings::MAX_WINDOW_BYTES};

/// Payload shorter than this is gathered: each piece takes more room than its bytes.
const MIN_PIECE_BYTES: usize = 1_024;

/// Where a stream is (RFC 9113 section 5.1), from the moment that its request's head came until nobody holds it any
/// more.
#[derive(Debug)]
pub(crate) struct Stream<S> {
    /// What the client sends.
    pub(crate) upload: Upload<S>,
    /// How much may be sent to the client. Below zero when the client took back what it had granted.
    pub(crate) send_window: i64,
    /// Whether the head of the answer is on its way.
    pub(crate) has_head: bool,
    /// Whether the last of the answer is on its way.
    pub(crate) is_answered: bool,
    /// Whether the answer is still being made.
    pub(crate) has_writer: bool,
    /// Whether it waits for its turn to send.
    pub(crate) is_queued: bool,
    /// It broke off.
    pub(crate) reset: Option<ErrorCode>,
    /// Whoever makes the answer.
    pub(crate) writer: S,
}

/// What came of a request's body, and was not taken yet.
#[derive(Debug)]
pub(crate) struct Upload<S> {
    /// How much of what `content-length` said is still to come.
    pub(crate) left: Option<u64>,
    /// Whether all has come.
    pub(crate) is_over: bool,
    /// Whether the body is still wanted.
    pub(crate) has_reader: bool,
    /// Whether the client waits for `100 Continue`.
    pub(crate) expects: bool,
    /// How much the client may still send.
    pub(crate) window: i64,
    /// How much was taken that the client has not been told of.
    pub(crate) taken: u32,
    pieces: VecDeque<Bytes>,
    /// What came last, while it is short.
    tail: BytesMut,
    pub(crate) trailers: Option<HeaderMap>,
    /// Whoever takes it.
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

    /// More came.
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

    /// The next piece.
    pub(crate) fn pop(&mut self) -> Option<Bytes> {
        let piece = self.pieces.pop_front();
        piece.or_else(|| (!self.tail.is_empty()).then(|| self.tail.split().freeze()))
    }

    /// Whether nothing waits to be taken, or will.
    pub(crate) fn is_drained(&self) -> bool {
        self.is_over && self.pieces.is_empty() && self.tail.is_empty() && self.trailers.is_none()
    }

    /// How much waits to be taken, in bytes.
    pub(crate) fn waiting(&self) -> usize {
        self.pieces.iter().map(Bytes::len).sum::<usize>() + self.tail.len()
    }

    /// Gives up what waits; how much it was.
    pub(crate) fn clear(&mut self) -> usize {
        let bytes = self.waiting();
        (self.pieces, self.tail, self.trailers) = (VecDeque::new(), BytesMut::new(), None);
        bytes
    }
}

impl<S: Signal> Stream<S> {
    pub(crate) fn new(upload: Upload<S>, send_window: i64) -> Self {
        Self {
            upload,
            send_window,
            has_head: false,
            is_answered: false,
            has_writer: true,
            is_queued: false,
            reset: None,
            writer: S::default(),
        }
    }

    /// The client lets so much more be sent, or less; whether its window is none that may not be.
    pub(crate) fn widen(&mut self, more: i64) -> bool {
        let before = self.send_window;
        self.send_window += more;
        if before <= 0 && self.send_window > 0 {
            self.writer.signal();
        }
        self.send_window <= MAX_WINDOW_BYTES
    }

    /// Whether it counts against the client's bound: neither side has ended it.
    pub(crate) fn is_open(&self) -> bool {
        self.reset.is_none() && !(self.is_answered && self.upload.is_over)
    }
}
