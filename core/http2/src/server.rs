//! One connection of a client.

use std::{
    collections::{HashMap, VecDeque},
    hash::{BuildHasherDefault, Hasher},
};

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

/// The number of a stream.
pub type StreamId = u32;

/// How many streams a client may have that it gave up while we still served them, beside those that count.
const MAX_GIVEN_UP: usize = 64;
/// How many streams a client may give up before their answer; past it, it may give up half of what it opens
/// (CVE-2023-44487). Streams that ended because the client broke the rules count too (CVE-2025-8671).
const MAX_GIVEN_UP_EARLY: u64 = 500;
/// How many streams are remembered after their end: what the client had sent before it knew is not its fault.
const MAX_REMEMBERED: usize = 256;
/// What a PING of ours says that asks whether the client is there, and one that follows a first GOAWAY.
const PING_ALIVE: [u8; 8] = *b"there???";
const PING_GOING: [u8; 8] = *b"going...";

/// What a connection may.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// How many requests run at once.
    pub max_concurrent_streams: u32,
    /// How much one request may send ahead of who takes it, in bytes; at most 2^31-1.
    pub stream_window_bytes: u32,
    /// How much all requests may send ahead, in bytes; at least 65,535, at most 2^31-1.
    pub connection_window_bytes: u32,
    /// The longest list of header fields, in bytes as RFC 9113 section 6.5.2 counts them.
    pub max_header_list_bytes: u32,
    /// How much may wait to be written to the client, in bytes, before answers have to wait.
    pub max_output_bytes: usize,
}

/// Tells who serves a stream that it may go on. It is told once, and then listens anew.
pub trait Signal: Default {
    /// It may.
    fn signal(&mut self);
}

/// A request whose head has come.
#[derive(Debug)]
pub struct NewRequest {
    /// Its stream.
    pub stream: StreamId,
    /// Its head.
    pub head: Parts,
    /// Whether a body follows, or trailers.
    pub has_body: bool,
    /// Why it is to be refused, where it is.
    pub refusal: Option<HeadRefusal>,
}

/// How the connection comes to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Going {
    /// It does not.
    No,
    /// The client is told that no more requests should come; those that were under way are still taken.
    Told,
    /// Requests after this one are not taken.
    After(StreamId),
    /// With nothing more.
    Failed(ErrorCode),
}

/// The server's side of an HTTP/2 connection. `S` is how those who serve its streams are told to go on.
#[derive(Debug)]
pub struct Server<S> {
    pub(crate) config: Config,
    pub(crate) input: Input,
    pub(crate) output: Output,
    pub(crate) decoder: Decoder,
    pub(crate) encoder: Encoder,
    pub(crate) streams: Streams<S>,
    /// How many of them are open.
    pub(crate) open: usize,
    /// Those whose heads have come and were not taken.
    pub(crate) requests: VecDeque<NewRequest>,
    /// The highest number that the client has used.
    pub(crate) last: StreamId,
    pub(crate) going: Going,
    pub(crate) client_goes: bool,
    /// How much may be sent, over all streams.
    pub(crate) send_window: i64,
    /// What a new stream may send.
    pub(crate) first_send_window: i64,
    /// Those whose heads wait for the client to take what it has.
    pub(crate) heads: Vec<StreamId>,
    /// Those that wait for room of the connection, in their order.
    pub(crate) turns: VecDeque<StreamId>,
    /// How much the client may still send, over all streams.
    pub(crate) window: i64,
    /// How much was taken of bodies that the client has not been told of.
    pub(crate) taken: u32,
    /// How much came of bodies since it was last asked.
    pub(crate) received: usize,
    pub(crate) known_authority: Option<Authority>,
    pub(crate) opened: u64,
    pub(crate) given_up_early: u64,
    /// Those that have ended, the last of them last.
    pub(crate) ended: VecDeque<Ended>,
    /// What the client was told since that was last asked: each once, and how often.
    faults: Vec<(Fault, u32)>,
}

/// A stream that has ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ended {
    stream: StreamId,
    /// Whether we reset it: then the client may not have known when it sent more.
    by_us: bool,
}

pub(crate) type Streams<S> = HashMap<StreamId, Stream<S>, BuildHasherDefault<StreamHasher>>;

/// Numbers of streams are odd and rise: one multiplication spreads them, and there are never more than a few hundred.
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
    /// A connection that has just begun: our SETTINGS wait to be written.
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

    /// What is to be written to the client.
    pub fn output(&self) -> &Output {
        &self.output
    }

    /// So many bytes of the output were written.
    pub fn written(&mut self, bytes: usize) {
        self.output.written(bytes);
        self.call_heads();
        self.pass_turn();
    }

    /// The next request whose head has come.
    pub fn poll_request(&mut self) -> Option<NewRequest> {
        while let Some(request) = self.requests.pop_front() {
            if !self.is_gone(request.stream) {
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

    /// How many bytes of bodies came since this was last asked, for those that were taken by [`Server::poll_request`].
    /// Each is given out by [`Server::read`], or told by [`Server::leave_upload`].
    pub fn received(&mut self) -> usize {
        std::mem::take(&mut self.received)
    }

    /// What the client was told since this was last asked because it broke the rules, and how often.
    pub fn faults(&mut self) -> Vec<(Fault, u32)> {
        std::mem::take(&mut self.faults)
    }

    pub(crate) fn count_fault(&mut self, fault: Fault) {
        match self.faults.iter_mut().find(|(known, _)| *known == fault) {
            Some((_, times)) => *times = times.saturating_add(1),
            None => self.faults.push((fault, 1)),
        }
    }

    /// Whether no stream is held by anybody.
    pub fn is_idle(&self) -> bool {
        self.streams.is_empty() && self.requests.is_empty()
    }

    /// Whether the connection is to be closed when the output is written.
    pub fn is_over(&self) -> bool {
        match self.going {
            Going::Failed(_) => true,
            Going::After(_) => self.is_idle(),
            Going::Told | Going::No => self.client_goes && self.is_idle(),
        }
    }

    /// Why the client was told that the connection ends, where it broke the rules.
    pub fn failure(&self) -> Option<ErrorCode> {
        match self.going {
            Going::Failed(code) => Some(code),
            _ => None,
        }
    }

    /// Asks the client whether it is there; whatever it sends is an answer.
    pub fn ping(&mut self) {
        self.control(kind::PING, 0, 0, &PING_ALIVE);
    }

    /// Tells the client to make no more requests, and ends the connection after those that it made before it knew
    /// (RFC 9113 section 6.8). Called again, it waits no longer for the client to say that it knows.
    pub fn shut_down(&mut self) {
        match self.going {
            Going::No => {
                self.going = Going::Told;
                self.go_away(MAX_WINDOW_BYTES as StreamId, ErrorCode::NO_ERROR);
                self.control(kind::PING, 0, 0, &PING_GOING);
            }
            Going::Told => self.take_no_more(),
            Going::After(_) | Going::Failed(_) => {}
        }
    }

    /// Gives up all streams: the client has left, or the connection is cut.
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

    /// Gives up the room that only busy connections need: nothing may come for a while.
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

    /// Forgets which streams have ended: nothing has come for so long that nothing is on its way that was sent before the
    /// client could know.
    pub fn forget_ended(&mut self) {
        self.ended = VecDeque::new();
    }

    /// The client has answered the PING that follows the first GOAWAY: what it sent before it knew has come.
    pub(crate) fn pong(&mut self, payload: &[u8]) {
        if self.going == Going::Told && payload == PING_GOING {
            self.take_no_more();
        }
    }

    fn take_no_more(&mut self) {
        self.going = Going::After(self.last);
        self.go_away(self.last, ErrorCode::NO_ERROR);
    }

    /// Ends the connection for this reason.
    pub(crate) fn fail(&mut self, code: ErrorCode) {
        if self.failure().is_none() {
            self.going = Going::Failed(code);
            self.count_fault(Fault::Connection(code));
            self.go_away(self.last, code);
            self.abandon();
        }
    }

    /// Ends a stream for this reason; what is known of it stays until nobody holds it.
    pub(crate) fn reset_stream(&mut self, id: StreamId, code: ErrorCode) {
        self.control(kind::RST_STREAM, 0, id, &code.0.to_be_bytes());
        self.remember(id, true);
        self.broke_off(id, code);
    }

    /// How a stream ended, where that is remembered: whether we reset it.
    pub(crate) fn was_reset(&self, id: StreamId) -> Option<bool> {
        self.ended.iter().rev().find(|ended| ended.stream == id).map(|ended| ended.by_us)
    }

    fn remember(&mut self, stream: StreamId, by_us: bool) {
        if self.ended.len() == MAX_REMEMBERED {
            self.ended.pop_front();
        }
        self.ended.push_back(Ended { stream, by_us });
    }

    /// A stream has broken off, by whomever.
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

    /// The client gave a stream up before it was answered, or broke the rules on it. Who does little else must stop.
    pub(crate) fn count_given_up(&mut self) {
        self.given_up_early += 1;
        if self.given_up_early > MAX_GIVEN_UP_EARLY && self.given_up_early > self.opened / 2 {
            self.fail(ErrorCode::ENHANCE_YOUR_CALM);
        }
    }

    /// Whether there is a place for one more request.
    pub(crate) fn has_place(&self) -> bool {
        let max = self.config.max_concurrent_streams as usize;
        self.open < max && self.streams.len() < max + MAX_GIVEN_UP
    }

    /// Forgets a stream that nobody holds any more.
    pub(crate) fn forget_unheld(&mut self, id: StreamId) {
        let is_held = |stream: &Stream<S>| stream.has_writer || stream.upload.has_reader;
        let Some(stream) = self.streams.get(&id).filter(|stream| !is_held(stream)) else { return };
        if stream.is_open() {
            //= RFC 9113 section 8.1
            //# A server can send a complete response prior to the client sending an entire request [...] by sending a
            //# RST_STREAM frame with an error code of NO_ERROR after sending a complete response
            let code = if stream.is_answered { ErrorCode::NO_ERROR } else { ErrorCode::CANCEL };
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

    /// Writes a short frame.
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
