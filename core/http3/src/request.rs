//! The client's side of a request stream (RFC 9114 section 4.1).

use std::ops::ControlFlow;

use bytes::{Buf as _, Bytes};
use http::{HeaderMap, Method, Version};
use sallyport_http2::{
    head::{HeadFields, Malformed, RequestHead},
    hpack,
};

use crate::{
    code::{ErrorCode, Fault},
    frame::{FrameHead, HeadBuffer, kind},
    qpack::{self, DecodeError},
    unidirectional::FRAME_COST_BYTES,
};

/// How much of a head that is too long is read for the request's method, in bytes.
const MAX_CUT_BYTES: u64 = 1_024;
/// The longest list of trailers, in bytes as in RFC 9114 section 4.2.2.
const MAX_TRAILER_BYTES: u64 = 8 * 1024;
/// What one request may send that is skipped or changes nothing: frames and their payloads, in bytes.
const MAX_SKIPPED_BYTES: u64 = 64 * 1024;

/// Limits of a request.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// The longest list of fields, in bytes as in RFC 9114 section 4.2.2. Longer ones are refused with a response.
    pub max_head_bytes: u64,
    /// The longest HEADERS frame, in bytes. A longer one ends the stream.
    pub max_head_frame_bytes: u64,
}

/// The next part of a request.
#[derive(Debug)]
pub enum Piece {
    /// The head.
    Head(Box<RequestHead>),
    /// A part of the body.
    Data(Bytes),
    /// Trailers; only the end follows.
    Trailers(HeaderMap),
    /// The end of the request.
    End,
    /// More bytes have to come first.
    Missing,
}

/// The client's side of one request.
#[derive(Debug)]
pub struct RequestStream {
    config: Config,
    /// The part of the last input that was not polled.
    input: Bytes,
    /// Whether no more input comes.
    has_ended: bool,
    head: HeadBuffer,
    state: State,
    phase: Phase,
    /// The received part of a HEADERS frame.
    section: Vec<u8>,
    /// Bytes of the body still to come according to `content-length`.
    left: Option<u64>,
    /// What was skipped in all, in bytes.
    skipped: u64,
    /// The part of it that was not returned by [`RequestStream::skipped`].
    uncounted: u64,
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// A frame header.
    Frame,
    /// A field section: bytes to collect, and bytes to skip after them.
    Section { collect: u64, skip: u64 },
    /// The payload of a DATA frame: bytes still to come.
    Data(u64),
    /// A payload that is skipped: bytes still to come.
    Skip(u64),
    /// The request failed.
    Failed(Fault),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Head,
    Body,
    /// The bytes of a CONNECT, which have no trailers.
    Tunnel,
    /// After the trailers.
    Over,
}

impl RequestStream {
    /// A new stream.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            config,
            input: Bytes::new(),
            has_ended: false,
            head: HeadBuffer::default(),
            state: State::Frame,
            phase: Phase::Head,
            section: Vec::new(),
            left: None,
            skipped: 0,
            uncounted: 0,
        }
    }

    /// Takes received bytes. Call only after [`RequestStream::poll`] returned [`Piece::Missing`].
    pub fn handle_input(&mut self, bytes: Bytes) {
        debug_assert!(self.input.is_empty(), "the input is polled before more is taken");
        self.input = bytes;
    }

    /// Takes the end of the stream.
    pub fn handle_end(&mut self) {
        self.has_ended = true;
    }

    /// Bytes of the body still to come or to be polled, if its length was declared.
    #[must_use]
    pub fn body_bytes_left(&self) -> Option<u64> {
        self.left
    }

    /// Bytes of an unfinished field section that are held, for [`Connection::hold`].
    ///
    /// [`Connection::hold`]: crate::Connection::hold
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.section.len()
    }

    /// What was skipped since the last call, in bytes: for [`Connection::count_skipped`].
    ///
    /// [`Connection::count_skipped`]: crate::Connection::count_skipped
    pub fn skipped(&mut self) -> u64 {
        std::mem::take(&mut self.uncounted)
    }

    /// Takes the next part of the request.
    ///
    /// # Errors
    /// The request violates the protocol; every later call returns the same.
    pub fn poll(&mut self) -> Result<Piece, Fault> {
        let polled = self.step();
        if let Err(fault) = polled {
            self.state = State::Failed(fault);
            (self.input, self.section) = (Bytes::new(), Vec::new());
        }
        polled
    }

    fn step(&mut self) -> Result<Piece, Fault> {
        loop {
            match self.state {
                State::Failed(fault) => return Err(fault),
                _ if self.input.is_empty() => return self.at_end_of_input(),
                State::Frame => {
                    let mut rest = &*self.input;
                    let frame = self.head.frame(&mut rest);
                    let taken = self.input.len() - rest.len();
                    self.input.advance(taken);
                    if let Some(frame) = frame
                        && let Some(piece) = self.begin_frame(frame)?
                    {
                        return Ok(piece);
                    }
                }
                State::Section { collect, skip } => {
                    let missing = collect.saturating_sub(self.section.len() as u64);
                    let part = self.take(missing);
                    if self.section.is_empty() && part.len() as u64 == collect {
                        return self.end_section(&part, skip);
                    }
                    self.section.extend_from_slice(&part);
                    if self.section.len() as u64 == collect {
                        let section = std::mem::take(&mut self.section);
                        return self.end_section(&section, skip);
                    }
                }
                State::Data(left) => {
                    let part = self.take(left);
                    self.go_on(State::Data, left - part.len() as u64);
                    self.count_body(part.len())?;
                    return Ok(Piece::Data(part));
                }
                State::Skip(left) => {
                    let part = self.take(left);
                    self.go_on(State::Skip, left - part.len() as u64);
                }
            }
        }
    }

    /// Takes at most this many bytes of the input.
    fn take(&mut self, bytes: u64) -> Bytes {
        let len = self.input.len().min(usize::try_from(bytes).unwrap_or(usize::MAX));
        self.input.split_to(len)
    }

    fn go_on(&mut self, state: fn(u64) -> State, left: u64) {
        self.state = if left > 0 { state(left) } else { State::Frame };
    }

    fn at_end_of_input(&mut self) -> Result<Piece, Fault> {
        if !self.has_ended {
            return Ok(Piece::Missing);
        }
        //= RFC 9114 section 7.1
        //# When a stream terminates cleanly, if the last frame on the stream was truncated, this MUST be treated as a
        //# connection error of type H3_FRAME_ERROR.
        if !matches!(self.state, State::Frame) || !self.head.is_empty() {
            return Err(Fault::Connection(ErrorCode::FRAME_ERROR));
        }
        //= RFC 9114 section 4.1
        //# If a client-initiated stream terminates without enough of the HTTP message to provide a complete response,
        //# the server SHOULD abort its response stream with the error code H3_REQUEST_INCOMPLETE.
        if self.phase == Phase::Head {
            return Err(Fault::Stream(ErrorCode::REQUEST_INCOMPLETE));
        }
        //= RFC 9114 section 4.1.2
        //# A request or response that is defined as having content when it contains a Content-Length header field
        //# [...] is malformed if the value of the Content-Length header field does not equal the sum of the DATA frame
        //# lengths received.
        if self.left.is_some_and(|left| left > 0) {
            return Err(Fault::Stream(ErrorCode::MESSAGE_ERROR));
        }
        Ok(Piece::End)
    }

    /// Handles a frame header; returns a piece if the frame is one without a payload.
    fn begin_frame(&mut self, frame: FrameHead) -> Result<Option<Piece>, Fault> {
        let FrameHead { kind, length } = frame;
        match kind {
            kind::DATA if matches!(self.phase, Phase::Body | Phase::Tunnel) => {
                if length == 0 {
                    self.count_skipped(0)?;
                }
                //= RFC 9114 section 4.1.2
                //# Intermediaries [...] MUST NOT forward a malformed request or response.
                if self.left.is_some_and(|left| length > left) {
                    return Err(Fault::Stream(ErrorCode::MESSAGE_ERROR));
                }
                self.go_on(State::Data, length);
                Ok(None)
            }
            kind::HEADERS if matches!(self.phase, Phase::Head | Phase::Body) => self.begin_section(length),
            //= RFC 9114 section 4.4
            //# Once the CONNECT method has completed, only DATA frames are permitted to be sent on the stream. [...]
            //# Receipt of any other known frame type MUST be treated as a connection error of type H3_FRAME_UNEXPECTED.
            //= RFC 9114 section 4.1
            //# Receipt of an invalid sequence of frames MUST be treated as a connection error of type
            //# H3_FRAME_UNEXPECTED.
            kind::DATA
            | kind::HEADERS
            | kind::CANCEL_PUSH
            | kind::SETTINGS
            | kind::PUSH_PROMISE
            | kind::GOAWAY
            | kind::MAX_PUSH_ID
            | kind::PRIORITY_UPDATE
            | kind::PRIORITY_UPDATE_PUSH => Err(Fault::Connection(ErrorCode::FRAME_UNEXPECTED)),
            kind if kind::RESERVED.contains(&kind) => Err(Fault::Connection(ErrorCode::FRAME_UNEXPECTED)),
            //= RFC 9114 section 9
            //# Implementations MUST ignore unknown or unsupported values in all extensible protocol elements.
            _ => {
                self.count_skipped(length)?;
                self.go_on(State::Skip, length);
                Ok(None)
            }
        }
    }

    fn begin_section(&mut self, length: u64) -> Result<Option<Piece>, Fault> {
        let max = match self.phase {
            Phase::Head => self.config.max_head_frame_bytes,
            _ => MAX_TRAILER_BYTES,
        };
        if length > max {
            return Err(Fault::Stream(ErrorCode::EXCESSIVE_LOAD));
        }
        if length == 0 {
            return self.end_section(&[], 0).map(Some);
        }
        // Fields take no fewer bytes than they have in a list, except by a wasteful code.
        let is_cut = self.phase == Phase::Head && length > self.config.max_head_bytes;
        let collect = if is_cut { MAX_CUT_BYTES.min(length) } else { length };
        self.state = State::Section { collect, skip: length - collect };
        Ok(None)
    }

    /// Handles a complete field section, or the beginning of one that is too long.
    fn end_section(&mut self, section: &[u8], skip: u64) -> Result<Piece, Fault> {
        self.go_on(State::Skip, skip);
        let is_head = self.phase == Phase::Head;
        let (max, mut fields) = match is_head {
            true => (self.config.max_head_bytes, HeadFields::of_request(Version::HTTP_3)),
            false => (MAX_TRAILER_BYTES.min(self.config.max_head_bytes), HeadFields::of_trailers(Version::HTTP_3)),
        };
        // A bound in memory fits.
        let max = max as usize;
        let decoded = qpack::decode(section, |field, bytes| {
            fields.take(field, bytes, max);
            if fields.bytes() > max { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        match decoded {
            Ok(()) => {}
            Err(DecodeError::Primitive(hpack::DecodeError::Truncated)) if skip > 0 => {}
            //= RFC 9204 section 6
            //# QPACK_DECOMPRESSION_FAILED (0x0200): The decoder failed to interpret an encoded field section and is not
            //# able to continue decoding that field section.
            Err(_) => return Err(Fault::Connection(ErrorCode::QPACK_DECOMPRESSION_FAILED)),
        }
        let is_too_long = skip > 0 || fields.bytes() > max;
        let malformed = |Malformed| Fault::Stream(ErrorCode::MESSAGE_ERROR);
        if !is_head {
            self.phase = Phase::Over;
            let trailers = fields.into_trailers().map_err(malformed)?;
            return if is_too_long { Err(malformed(Malformed)) } else { Ok(Piece::Trailers(trailers)) };
        }
        let head = match is_too_long {
            true => fields.into_cut_request(),
            false => fields.into_request(false, &mut None).map_err(malformed)?,
        };
        self.phase = if head.parts.method == Method::CONNECT { Phase::Tunnel } else { Phase::Body };
        self.left = head.length;
        Ok(Piece::Head(Box::new(head)))
    }

    /// Counts a part of the body against `content-length`.
    fn count_body(&mut self, bytes: usize) -> Result<(), Fault> {
        if let Some(left) = &mut self.left {
            *left = left.checked_sub(bytes as u64).ok_or(Fault::Stream(ErrorCode::MESSAGE_ERROR))?;
        }
        Ok(())
    }

    fn count_skipped(&mut self, length: u64) -> Result<(), Fault> {
        let cost = FRAME_COST_BYTES.saturating_add(length);
        self.skipped = self.skipped.saturating_add(cost);
        self.uncounted = self.uncounted.saturating_add(cost);
        if self.skipped > MAX_SKIPPED_BYTES { Err(Fault::Connection(ErrorCode::EXCESSIVE_LOAD)) } else { Ok(()) }
    }
}
