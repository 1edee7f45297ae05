//! One connection of a client.

use std::{
    collections::{HashMap, VecDeque},
    hash::{BuildHasherDefault, Hasher},
};

use bytes::Bytes;
use http::{request::Parts, uri::Authority};

use crate::{
    code::{ErrorCode, Fault},
    frame::{FrameHead, flag, kind},
    head::HeadRefusal,
    hpack::{DEFAULT_TABLE_BYTES, Decoder, Encoder},
    input::Input,
    output::Output,
    settings::{FIRST_WINDOW_BYTES, MAX_WINDOW_BYTES, parameter},
    stream::Stream,
};

/// A stream id.
pub type StreamId = u32;

/// Bound on streams that the client has reset while they are still being served, in addition to the open ones.
const MAX_GIVEN_UP: usize = 64;
/// Streams that a client may reset before their response; beyond it, the client may reset half of the streams it opens
/// (CVE-2023-44487). Streams that end because of a violation count too (CVE-2025-8671).
const MAX_GIVEN_UP_EARLY: u64 = 500;
/// Ended streams that are remembered: frames that the client sent before it knew of the end are no violation.
const MAX_REMEMBERED: usize = 256;
/// Payloads of the server's PINGs: a liveness probe, and the one after the first GOAWAY.
const PING_ALIVE: [u8; 8] = *b"there???";
const PING_GOING: [u8; 8] = *b"going...";

/// Limits of a connection.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// Concurrent requests.
    pub max_concurrent_streams: u32,
    /// Window of one request's body, in bytes; at most 2^31-1.
    pub stream_window_bytes: u32,
    /// Window of all requests' bodies, in bytes; at least 65,535, at most 2^31-1.
    pub connection_window_bytes: u32,
    /// The longest list of header fields, in bytes as in RFC 9113 section 6.5.2.
    pub max_header_list_bytes: u32,
    /// Unwritten output in bytes above which responses wait.
    pub max_output_bytes: usize,
}

/// A one-shot notification of a stream's reader or responder.
pub trait Signal: Default {
    /// Notifies.
    fn signal(&mut self);
}

/// A new request with a complete head.
#[derive(Debug)]
pub struct NewRequest {
    /// Its stream.
    pub stream: StreamId,
    /// Its head.
    pub head: Parts,
    /// Whether a body follows, or trailers.
    pub has_body: bool,
    /// `:protocol` of an extended CONNECT (RFC 8441): the protocol of the bytes on the stream.
    pub protocol: Option<Bytes>,
    /// Reason to refuse the request, if any.
    pub refusal: Option<HeadRefusal>,
}

/// How the connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Going {
    /// It does not end.
    No,
    /// A first GOAWAY was sent; requests in flight are still accepted.
    Announced,
    /// Requests with a greater id are refused.
    After(StreamId),
    /// The connection failed.
    Failed(ErrorCode),
}

/// The server's side of an HTTP/2 connection. `S` notifies the readers and responders of its streams.
#[derive(Debug)]
pub struct Server<S> {
    pub(crate) config: Config,
    pub(crate) input: Input,
    pub(crate) output: Output,
    pub(crate) decoder: Decoder,
    pub(crate) encoder: Encoder,
    pub(crate) streams: Streams<S>,
    /// Number of open streams.
    pub(crate) open: usize,
    /// Requests that were not polled yet.
    pub(crate) requests: VecDeque<NewRequest>,
    /// The highest id used by the client.
    pub(crate) last: StreamId,
    pub(crate) going: Going,
    pub(crate) client_goes: bool,
    /// The client's window for all streams.
    pub(crate) send_window: i64,
    /// The client's initial window of a stream.
    pub(crate) first_send_window: i64,
    /// Streams whose heads wait until the client reads.
    pub(crate) heads: Vec<StreamId>,
    /// Streams that wait for the connection's window, in order.
    pub(crate) turns: VecDeque<StreamId>,
    /// The remaining window of the client for all streams.
    pub(crate) window: i64,
    /// Bytes read from bodies that were not granted again yet.
    pub(crate) taken: u32,
    /// Bytes of bodies received since the last call of [`Server::received`].
    pub(crate) received: usize,
    pub(crate) known_authority: Option<Authority>,
    pub(crate) opened: u64,
    pub(crate) given_up_early: u64,
    /// Ended streams, the latest last.
    pub(crate) ended: VecDeque<Ended>,
    /// Errors reported to the client since the last call of [`Server::faults`], with counts.
    faults: Vec<(Fault, u32)>,
}

/// An ended stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ended {
    stream: StreamId,
    /// Whether the server reset it: the client may have sent more before it knew.
    by_us: bool,
}

pub(crate) type Streams<S> = HashMap<StreamId, Stream<S>, BuildHasherDefault<StreamHasher>>;

/// Stream ids are odd and rise: one multiplication spreads them, and there are at most a few hundred.
#[derive(Debug, Default)]
pub(crate) struct StreamHasher(u64);

impl Hasher for StreamHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(u32::from(*byte));
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }
}

impl<S: Signal> Server<S> {
    /// A new connection; its output starts with SETTINGS.
    pub fn new(config: Config) -> Self {
        let mut server = Self {
            config,
            input: Input::default(),
            output: Output::default(),
            decoder: Decoder::new(DEFAULT_TABLE_BYTES),
            encoder: Encoder::new(),
            streams: HashMap::default(),
            open: 0,
            requests: VecDeque::new(),
            last: 0,
            going: Going::No,
            client_goes: false,
            send_window: FIRST_WINDOW_BYTES,
            first_send_window: FIRST_WINDOW_BYTES,
            heads: Vec::new(),
            turns: VecDeque::new(),
            window: i64::from(config.connection_window_bytes).clamp(FIRST_WINDOW_BYTES, MAX_WINDOW_BYTES),
            taken: 0,
            received: 0,
            known_authority: None,
            opened: 0,
            given_up_early: 0,
            ended: VecDeque::new(),
            faults: Vec::new(),
        };
        let settings = [
            (parameter::MAX_CONCURRENT_STREAMS, config.max_concurrent_streams),
            (parameter::INITIAL_WINDOW_SIZE, config.stream_window_bytes),
            (parameter::MAX_HEADER_LIST_SIZE, config.max_header_list_bytes),
            (parameter::ENABLE_CONNECT_PROTOCOL, 1),
        ];
        let mut payload = Vec::with_capacity(6 * settings.len());
        for (parameter, value) in settings {
            payload.extend_from_slice(&parameter.to_be_bytes());
            payload.extend_from_slice(&value.to_be_bytes());
        }
        server.control(kind::SETTINGS, 0, 0, &payload);
        if let Ok(more @ 1..) = u32::try_from(server.window - FIRST_WINDOW_BYTES) {
            server.control(kind::WINDOW_UPDATE, 0, 0, &more.to_be_bytes());
        }
        server
    }

    /// The output to the client.
    pub fn output(&self) -> &Output {
        &self.output
    }

    /// Records that bytes of the output were written.
    pub fn mark_written(&mut self, bytes: usize) {
        self.output.mark_written(bytes);
        self.call_heads();
        self.pass_turn();
    }

    /// The next new request.
    pub fn poll_request(&mut self) -> Option<NewRequest> {
        while let Some(request) = self.requests.pop_front() {
            if !self.is_reset(request.stream) {
                return Some(request);
            }
            if let Some(mut stream) = self.streams.remove(&request.stream) {
                let unread = stream.upload.clear();
                self.received = self.received.saturating_sub(unread);
                self.was_taken(unread);
            }
        }
        None
    }

    /// Bytes of bodies received since the last call, for requests returned by [`Server::poll_request`]. Each byte is
    /// returned by [`Server::poll_body`], or counted by [`Server::release_body`].
    pub fn received(&mut self) -> usize {
        std::mem::take(&mut self.received)
    }

    /// Errors reported to the client since the last call because of violations, with counts.
    pub fn faults(&mut self) -> Vec<(Fault, u32)> {
        std::mem::take(&mut self.faults)
    }

    pub(crate) fn count_fault(&mut self, fault: Fault) {
        match self.faults.iter_mut().find(|(known, _)| *known == fault) {
            Some((_, times)) => *times = times.saturating_add(1),
            None => self.faults.push((fault, 1)),
        }
    }

    /// Whether no stream is in use.
    pub fn is_idle(&self) -> bool {
        self.streams.is_empty() && self.requests.is_empty()
    }

    /// Whether to close the connection once the output is written.
    pub fn is_over(&self) -> bool {
        match self.going {
            Going::Failed(_) => true,
            Going::After(_) => self.is_idle(),
            Going::Announced | Going::No => self.client_goes && self.is_idle(),
        }
    }

    /// The error that ended the connection, if the client violated the protocol.
    pub fn failure(&self) -> Option<ErrorCode> {
        match self.going {
            Going::Failed(code) => Some(code),
            _ => None,
        }
    }

    /// Probes the client; any input is an answer.
    pub fn ping(&mut self) {
        self.control(kind::PING, 0, 0, &PING_ALIVE);
    }

    /// Announces the end with GOAWAY, and ends the connection after the requests that the client made before it knew
    /// (RFC 9113 section 6.8). A second call no longer waits for the client's acknowledgement.
    pub fn graceful_shutdown(&mut self) {
        match self.going {
            Going::No => {
                self.going = Going::Announced;
                self.go_away(MAX_WINDOW_BYTES as StreamId, ErrorCode::NO_ERROR);
                self.control(kind::PING, 0, 0, &PING_GOING);
            }
            Going::Announced => self.take_no_more(),
            Going::After(_) | Going::Failed(_) => {}
        }
    }

    /// Resets all streams, because the client has left, or the connection is cut.
    pub fn abandon(&mut self) {
        self.requests.clear();
        self.turns.clear();
        self.open = 0;
        for stream in self.streams.values_mut() {
            stream.reset.get_or_insert(ErrorCode::CANCEL);
            stream.writer.signal();
            stream.upload.reader.signal();
        }
    }

    /// Frees capacity that only busy connections need.
    pub fn rest(&mut self) {
        self.output.rest();
        self.input.rest();
        if self.is_idle() {
            self.streams.shrink_to_fit();
            self.requests.shrink_to_fit();
            (self.turns, self.heads) = (VecDeque::new(), Vec::new());
            self.ended.shrink_to_fit();
        }
    }

    /// Forgets ended streams. Call after a long silence, when nothing can be in flight that was sent before the client
    /// knew.
    pub fn forget_ended(&mut self) {
        self.ended = VecDeque::new();
    }

    /// Handles the answer to the PING after the first GOAWAY: all earlier frames of the client have arrived.
    pub(crate) fn pong(&mut self, payload: &[u8]) {
        if self.going == Going::Announced && payload == PING_GOING {
            self.take_no_more();
        }
    }

    fn take_no_more(&mut self) {
        self.going = Going::After(self.last);
        self.go_away(self.last, ErrorCode::NO_ERROR);
    }

    /// Ends the connection with this error.
    pub(crate) fn fail(&mut self, code: ErrorCode) {
        if self.failure().is_none() {
            self.going = Going::Failed(code);
            self.count_fault(Fault::Connection(code));
            self.go_away(self.last, code);
            self.abandon();
        }
    }

    /// Resets a stream with this code; its state stays while it is in use.
    pub(crate) fn reset_stream(&mut self, id: StreamId, code: ErrorCode) {
        self.control(kind::RST_STREAM, 0, id, &code.0.to_be_bytes());
        self.remember(id, true);
        self.broke_off(id, code);
    }

    /// Whether the server reset an ended stream, if it is remembered.
    pub(crate) fn was_reset(&self, id: StreamId) -> Option<bool> {
        self.ended.iter().rev().find(|ended| ended.stream == id).map(|ended| ended.by_us)
    }

    fn remember(&mut self, stream: StreamId, by_us: bool) {
        if self.ended.len() == MAX_REMEMBERED {
            self.ended.pop_front();
        }
        self.ended.push_back(Ended { stream, by_us });
    }

    /// Records that either side has reset a stream.
    pub(crate) fn broke_off(&mut self, id: StreamId, code: ErrorCode) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if stream.is_open() {
            self.open = self.open.saturating_sub(1);
        }
        stream.reset.get_or_insert(code);
        let was_queued = std::mem::take(&mut stream.is_queued);
        stream.writer.signal();
        stream.upload.reader.signal();
        if was_queued {
            self.leave_queue(id);
        }
    }

    /// Counts a stream that the client reset before its response, or on which it violated the protocol. A client that
    /// does little else is disconnected.
    pub(crate) fn count_given_up(&mut self) {
        self.given_up_early += 1;
        if self.given_up_early > MAX_GIVEN_UP_EARLY && self.given_up_early > self.opened / 2 {
            self.fail(ErrorCode::ENHANCE_YOUR_CALM);
        }
    }

    /// Whether one more request is accepted.
    pub(crate) fn has_place(&self) -> bool {
        let max = self.config.max_concurrent_streams as usize;
        self.open < max && self.streams.len() < max + MAX_GIVEN_UP
    }

    /// Removes a stream that is no longer in use.
    pub(crate) fn forget_unheld(&mut self, id: StreamId) {
        let is_held = |stream: &Stream<S>| stream.has_writer || stream.upload.has_reader;
        let Some(stream) = self.streams.get(&id).filter(|stream| !is_held(stream)) else { return };
        if stream.is_open() {
            //= RFC 9113 section 8.1
            //# A server can send a complete response prior to the client sending an entire request [...] by sending a
            //# RST_STREAM frame with an error code of NO_ERROR after sending a complete response
            let code = if stream.has_response_ended { ErrorCode::NO_ERROR } else { ErrorCode::CANCEL };
            self.reset_stream(id, code);
        }
        if let Some(mut stream) = self.streams.remove(&id) {
            if stream.reset.is_none() {
                self.remember(id, false);
            }
            let unread = stream.upload.clear();
            self.was_taken(unread);
            if stream.is_queued {
                self.leave_queue(id);
            }
        }
    }

    /// Appends a short frame.
    pub(crate) fn control(&mut self, kind: u8, flags: u8, stream: StreamId, payload: &[u8]) {
        self.output.frame(FrameHead { length: payload.len(), kind, flags, stream }, payload);
    }

    pub(crate) fn settings_ack(&mut self) {
        self.control(kind::SETTINGS, flag::ACK, 0, &[]);
    }

    fn go_away(&mut self, last: StreamId, code: ErrorCode) {
        let mut payload = [0; 8];
        payload[..4].copy_from_slice(&last.to_be_bytes());
        payload[4..].copy_from_slice(&code.0.to_be_bytes());
        self.control(kind::GOAWAY, 0, 0, &payload);
    }
}
