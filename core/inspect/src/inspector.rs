//! Streams become exchanges: the state machine between what a connector relays and what is kept.

use std::{collections::HashMap, time::Instant};

use bytes::Bytes;

use crate::{
    conn::{Conn, Gap, Parsed, RawField, RawFrame, events::Events, field, grpc::Messages, http2::Http2},
    decode::{MAX_DECODED_BYTES, decode},
    message::{Body, Exchange, Field, Frame, From, Message, Protocol, Source},
    redact,
    store::{Bounds, MAX_BODY_BYTES, MAX_FRAMES, MAX_FRAMES_BYTES, Store},
};

/// How many bytes of bodies that have not ended are held, over all exchanges.
const MAX_HELD_BYTES: usize = 16 * 1024 * 1024;
/// How many streams are followed at once.
const MAX_STREAMS: usize = 4_096;
/// How many exchanges are searched for the one that a record belongs to.
const MAX_SEARCHED: usize = 2_000;
/// Records cut targets at this length, in bytes.
const MAX_RECORDED_TARGET_BYTES: usize = 1_024;
/// How many sentences about problems an exchange has.
const MAX_PROBLEMS: usize = 8;
/// The field that marks what this inspector sent again. The edge drops fields of this name that strangers send.
pub(crate) const REPLAY_FIELD: &str = "x-sallyport-replay";

/// The time: for people, and for durations.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// Milliseconds since 1970 (UTC).
    pub wall_ms: i64,
    /// A clock that nobody turns.
    pub instant: Instant,
}

/// The protocol of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamProtocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2.
    Http2,
}

/// A stream between an edge and the service.
#[derive(Debug, Clone)]
pub struct StreamOpen {
    /// Its protocol.
    pub protocol: StreamProtocol,
    /// Where its requests come from.
    pub source: Source,
    /// The exchange that it sends again, if this inspector opened it.
    pub replay_of: Option<u64>,
}

/// What happens on a stream. The number is that of the stream, for as long as it is open.
#[derive(Debug, Clone)]
pub enum StreamEvent {
    /// It was opened.
    Opened(u64, StreamOpen),
    /// Bytes were relayed: their sender, the place of the first one in its direction, and the bytes.
    Bytes {
        /// The stream.
        stream: u64,
        /// The sender.
        from: From,
        /// How many bytes the sender had sent before.
        offset: u64,
        /// The bytes.
        data: Bytes,
    },
    /// The sender has ended its direction.
    Ended(u64, From),
    /// It is closed, with the reason if it broke.
    Closed(u64, Option<String>),
}

/// What the edge records about a request.
#[derive(Debug, Clone, Default)]
pub struct Record {
    /// The id of the request.
    pub request_id: String,
    /// When it came, in milliseconds since 1970 (UTC).
    pub at_ms: i64,
    /// The method.
    pub method: String,
    /// The path with its query.
    pub target: String,
    /// The status.
    pub status: u16,
    /// Body bytes from the client.
    pub bytes_in: u64,
    /// Body bytes to the client.
    pub bytes_out: u64,
    /// The time that it took, in microseconds.
    pub duration_us: u64,
    /// The person or service token.
    pub identity: Option<String>,
    /// The rule that decided.
    pub rule: Option<String>,
    /// Why it was refused, or failed.
    pub refused: Option<String>,
    /// Where it came from.
    pub source: Source,
}

/// What has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// An exchange is new or different.
    Exchange(u64),
    /// An exchange has a message with this number.
    Frame(u64, u64),
    /// All is gone.
    Cleared,
}

/// The inspector.
#[derive(Debug)]
pub struct Inspector {
    store: Store,
    streams: HashMap<u64, Stream>,
    held: usize,
    missed: u64,
    changes: Vec<Change>,
    parsed: Vec<Parsed>,
}

#[derive(Debug)]
struct Stream {
    conn: Conn,
    open: StreamOpen,
    seen: [u64; 2],
    pending: HashMap<u32, Pending>,
}

/// An exchange that has not ended.
#[derive(Debug)]
struct Pending {
    id: u64,
    request: Gather,
    response: Gather,
    events: Option<Events>,
    calls: Option<Box<(Messages, Messages)>>,
    is_websocket: bool,
}

/// A body under way.
#[derive(Debug, Default)]
struct Gather {
    kept: Vec<u8>,
    passed: u64,
    missed: u64,
    is_truncated: bool,
    is_over: bool,
}

impl Gather {
    fn is_full(&self) -> bool {
        self.is_truncated
    }
}

impl Inspector {
    /// An inspector without exchanges.
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        let (streams, changes, parsed) = (HashMap::new(), Vec::new(), Vec::new());
        Self { store: Store::new(bounds), streams, held: 0, missed: 0, changes, parsed }
    }

    /// What is kept.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// How many bytes the capture missed, because it had no room.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// Drops all exchanges. Those under way are not shown either.
    pub fn clear(&mut self) {
        self.store.clear();
        self.changes.push(Change::Cleared);
    }

    /// What has changed since the last call.
    pub fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// The place up to which nobody wants the bytes of a direction: a connector need not copy those before it.
    #[must_use]
    pub fn unwanted_until(&self, stream: u64, from: From) -> u64 {
        let Some(stream) = self.streams.get(&stream) else { return 0 };
        let is_full = |key| {
            stream.pending.get(&key).is_none_or(|pending| {
                let gather = if from == From::Client { &pending.request } else { &pending.response };
                gather.is_full() && pending.events.is_none() && pending.calls.is_none()
            })
        };
        stream.seen[place(from)].saturating_add(stream.conn.unwanted(from, is_full))
    }

    /// Takes what happened on a stream.
    pub fn handle(&mut self, event: StreamEvent, now: Now) {
        match event {
            StreamEvent::Opened(number, open) => {
                if self.streams.len() < MAX_STREAMS {
                    let conn = match open.protocol {
                        StreamProtocol::Http1 => Conn::Http1(Box::default()),
                        StreamProtocol::Http2 => Conn::Http2(Box::new(Http2::new())),
                    };
                    self.streams.insert(number, Stream { conn, open, seen: [0; 2], pending: HashMap::new() });
                }
            }
            StreamEvent::Bytes { stream, from, offset, data } => self.bytes(stream, from, offset, &data, now),
            StreamEvent::Ended(number, from) => {
                let Some(mut stream) = self.streams.remove(&number) else { return };
                let mut parsed = std::mem::take(&mut self.parsed);
                stream.conn.ended(from, &mut parsed);
                self.apply(&mut stream, &mut parsed, now);
                self.parsed = parsed;
                self.streams.insert(number, stream);
            }
            StreamEvent::Closed(number, reason) => {
                let Some(mut stream) = self.streams.remove(&number) else { return };
                let mut parsed = std::mem::take(&mut self.parsed);
                if reason.is_none() {
                    stream.conn.ended(From::Service, &mut parsed);
                }
                self.apply(&mut stream, &mut parsed, now);
                self.parsed = parsed;
                let problem = match reason {
                    Some(reason) => format!("The connection broke: {reason}."),
                    None => "The connection ended before the exchange was complete.".to_owned(),
                };
                let mut keys: Vec<u32> = stream.pending.keys().copied().collect();
                keys.sort_unstable();
                for key in keys {
                    if let Some(pending) = stream.pending.remove(&key) {
                        let problem = (!pending.is_websocket).then(|| problem.clone());
                        self.finish(pending, problem, now);
                    }
                }
            }
        }
    }

    fn bytes(&mut self, number: u64, from: From, offset: u64, data: &[u8], now: Now) {
        let Some(mut stream) = self.streams.remove(&number) else { return };
        let mut parsed = std::mem::take(&mut self.parsed);
        let seen = stream.seen[place(from)];
        if let Some(bytes) = offset.checked_sub(seen).filter(|bytes| *bytes > 0) {
            let wanted_from = self.unwanted_of(&stream, from).saturating_add(seen);
            let is_loss = offset > wanted_from;
            if is_loss {
                self.missed = self.missed.saturating_add(offset - wanted_from);
            }
            stream.conn.gap(from, Gap { bytes, is_loss }, &mut parsed);
        }
        stream.seen[place(from)] = offset.saturating_add(data.len() as u64);
        stream.conn.bytes(from, data, &mut parsed);
        self.apply(&mut stream, &mut parsed, now);
        self.parsed = parsed;
        self.streams.insert(number, stream);
    }

    fn unwanted_of(&self, stream: &Stream, from: From) -> u64 {
        stream.conn.unwanted(from, |key| {
            stream.pending.get(&key).is_none_or(|pending| {
                let gather = if from == From::Client { &pending.request } else { &pending.response };
                gather.is_full()
            })
        })
    }

    fn apply(&mut self, stream: &mut Stream, parsed: &mut Vec<Parsed>, now: Now) {
        for one in parsed.drain(..) {
            match one {
                Parsed::Request { key, version, method, target, host, fields } => {
                    let request = self.begin(stream, (version, method, target, host), fields, now);
                    stream.pending.insert(key, request);
                }
                Parsed::Response { key, version, status, fields } => {
                    if let Some(pending) = stream.pending.get_mut(&key) {
                        self.respond(pending, version, status, fields, now);
                    }
                }
                Parsed::Data { key, from, data } => {
                    if let Some(pending) = stream.pending.get_mut(&key) {
                        self.data(pending, from, &data, now);
                    }
                }
                Parsed::Missed { key, from, bytes, is_loss } => {
                    if let Some(pending) = stream.pending.get_mut(&key) {
                        let gather = if from == From::Client { &mut pending.request } else { &mut pending.response };
                        gather.passed += bytes;
                        gather.is_truncated = true;
                        if is_loss {
                            gather.missed += bytes;
                        }
                        self.show_passed(pending, from);
                    }
                }
                Parsed::End { key, from, trailers } => {
                    let Some(pending) = stream.pending.get_mut(&key) else { continue };
                    self.end(pending, from, trailers);
                    if pending.request.is_over
                        && pending.response.is_over
                        && let Some(pending) = stream.pending.remove(&key)
                    {
                        self.finish(pending, None, now);
                    }
                }
                Parsed::Upgraded { key } => {
                    if let Some(pending) = stream.pending.get_mut(&key) {
                        pending.is_websocket = true;
                        self.store.touch(pending.id, |exchange| exchange.protocol = Protocol::WebSocket);
                    }
                }
                Parsed::Frame { key, frame } => {
                    if let Some(pending) = stream.pending.get(&key) {
                        self.frame(pending.id, frame, now);
                    }
                }
                Parsed::Failed { key, problem } => {
                    if let Some(pending) = stream.pending.remove(&key) {
                        self.finish(pending, Some(problem), now);
                    }
                }
            }
        }
    }

    fn begin(
        &mut self,
        stream: &Stream,
        (version, method, target, host): (&'static str, String, String, String),
        fields: Vec<RawField>,
        now: Now,
    ) -> Pending {
        let text = |name| field(&fields, name).map(|value| String::from_utf8_lossy(value).into_owned());
        let (request_id, identity) = (text("x-request-id"), text("x-auth-email"));
        let content_type = text("content-type").unwrap_or_default();
        let is_grpc = content_type.to_ascii_lowercase().starts_with("application/grpc");
        let encoding = text("grpc-encoding").unwrap_or_default();
        let redacted = redact::target(&target);
        let is_target_redacted = redacted.is_some();
        // Several clients may share a stream, and the edge says for each request who it is.
        let mut source = stream.open.source.clone();
        if stream.open.replay_of.is_none() {
            source.client = text("x-forwarded-for").or(source.client);
        }
        let request = Message { version, fields: kept_fields(fields), ..Message::default() };
        let mut exchange = Exchange {
            id: 0,
            request_id,
            at_ms: now.wall_ms,
            began: now.instant,
            source,
            protocol: if is_grpc { Protocol::Grpc } else { Protocol::Http },
            method,
            target: redacted.unwrap_or(target),
            is_target_redacted,
            public_target: None,
            host,
            request,
            status: None,
            response: None,
            first_byte_us: None,
            duration_us: None,
            is_failed: false,
            identity,
            rule: None,
            refused: None,
            is_recorded: false,
            replay_of: stream.open.replay_of,
            problems: Vec::new(),
            frames: std::collections::VecDeque::new(),
            frame_count: 0,
            size: 0,
        };
        // The edge's record may have come first.
        let known = exchange.request_id.clone().and_then(|wanted| {
            self.searched()
                .find(|one| {
                    one.is_recorded && one.request.version.is_empty() && one.request_id.as_deref() == Some(&wanted)
                })
                .map(|one| one.id)
        });
        let id = match known.and_then(|id| self.store.get(id)) {
            Some(record) => {
                exchange.public_target = Some(record.target.clone()).filter(|target| *target != exchange.target);
                (exchange.rule, exchange.refused) = (record.rule.clone(), record.refused.clone());
                exchange.identity = exchange.identity.or_else(|| record.identity.clone());
                (exchange.id, exchange.is_recorded, exchange.status) = (record.id, true, record.status);
                (exchange.frame_count, exchange.size) = (0, record.size);
                let id = record.id;
                self.store.update(id, |kept| *kept = exchange);
                id
            }
            None => self.store.add(exchange),
        };
        self.changed(Change::Exchange(id));
        let calls = is_grpc
            .then(|| Box::new((Messages::new(From::Client, encoding), Messages::new(From::Service, String::new()))));
        let (request, response) = (Gather::default(), Gather::default());
        Pending { id, request, response, events: None, calls, is_websocket: false }
    }

    fn respond(&mut self, pending: &mut Pending, version: &'static str, status: u16, fields: Vec<RawField>, now: Now) {
        let text = |name| field(&fields, name).map(|value| String::from_utf8_lossy(value).to_ascii_lowercase());
        let is_sse = text("content-type").is_some_and(|found| found.trim_start().starts_with("text/event-stream"))
            && text("content-encoding").is_none_or(|found| found == "identity");
        if let Some(calls) = &mut pending.calls {
            calls.1 = Messages::new(From::Service, text("grpc-encoding").unwrap_or_default());
        } else if is_sse {
            pending.events = Some(Events::default());
        }
        self.store.update(pending.id, |exchange| {
            if status > 0 {
                exchange.status = Some(status);
            }
            if is_sse {
                exchange.protocol = Protocol::Sse;
            }
            exchange.first_byte_us = Some(micros(exchange.began, now.instant));
            exchange.response = Some(Message { version, fields: kept_fields(fields), ..Message::default() });
        });
        self.changed(Change::Exchange(pending.id));
    }

    fn data(&mut self, pending: &mut Pending, from: From, data: &[u8], now: Now) {
        let mut frames = Vec::new();
        if let Some(calls) = &mut pending.calls {
            let messages = if from == From::Client { &mut calls.0 } else { &mut calls.1 };
            messages.bytes(data, |frame| frames.push(frame));
        } else if from == From::Service
            && let Some(events) = &mut pending.events
        {
            events.bytes(data, |frame| frames.push(frame));
        }
        for frame in frames {
            self.frame(pending.id, frame, now);
        }
        let gather = if from == From::Client { &mut pending.request } else { &mut pending.response };
        let room = (MAX_BODY_BYTES - gather.kept.len()).min(MAX_HELD_BYTES.saturating_sub(self.held));
        let taken = if gather.is_truncated { 0 } else { data.len().min(room) };
        gather.kept.extend_from_slice(&data[..taken]);
        gather.is_truncated |= taken < data.len();
        gather.passed += data.len() as u64;
        self.held += taken;
        self.show_passed(pending, from);
    }

    fn show_passed(&mut self, pending: &Pending, from: From) {
        self.store.touch(pending.id, |exchange| match (from, &mut exchange.response) {
            (From::Client, _) => exchange.request.body.passed = pending.request.passed,
            (From::Service, Some(response)) => response.body.passed = pending.response.passed,
            (From::Service, None) => {}
        });
    }

    /// The direction of an exchange has ended: its body is stored, without secrets.
    fn end(&mut self, pending: &mut Pending, from: From, trailers: Vec<RawField>) {
        let gather = if from == From::Client { &mut pending.request } else { &mut pending.response };
        gather.is_over = true;
        self.store_body(pending, from, trailers, true);
    }

    fn store_body(&mut self, pending: &mut Pending, from: From, trailers: Vec<RawField>, is_complete: bool) {
        let gather = if from == From::Client { &mut pending.request } else { &mut pending.response };
        let kept = std::mem::take(&mut gather.kept);
        self.held = self.held.saturating_sub(kept.len());
        let mut body = Body {
            passed: gather.passed,
            is_truncated: gather.is_truncated,
            is_complete,
            missed: gather.missed,
            ..Body::default()
        };
        self.store.update(pending.id, |exchange| {
            let message = match from {
                From::Client => &mut exchange.request,
                From::Service => match &mut exchange.response {
                    Some(message) => message,
                    None => return,
                },
            };
            let (content_type, encoding) = (message.content_type(), message.encoding());
            (body.bytes, body.is_redacted, body.is_kept_decoded) = clean_body(kept, &content_type, &encoding);
            message.trailers = kept_fields(trailers);
            message.body = body;
        });
    }

    fn finish(&mut self, mut pending: Pending, problem: Option<String>, now: Now) {
        for from in [From::Client, From::Service] {
            let gather = if from == From::Client { &pending.request } else { &pending.response };
            if !gather.is_over {
                let is_websocket = pending.is_websocket;
                self.store_body(&mut pending, from, Vec::new(), is_websocket);
            }
        }
        self.store.update(pending.id, |exchange| {
            exchange.duration_us = Some(micros(exchange.began, now.instant));
            exchange.is_failed = problem.is_some();
            if let Some(problem) = problem
                && exchange.problems.len() < MAX_PROBLEMS
            {
                exchange.problems.push(problem);
            }
        });
        self.changed(Change::Exchange(pending.id));
    }

    fn frame(&mut self, id: u64, frame: RawFrame, now: Now) {
        let mut number = 0;
        let is_kept = self.store.update(id, |exchange| {
            exchange.frame_count += 1;
            number = exchange.frame_count;
            let clean = redact::body("application/json", &frame.data).filter(|_| looks_like_text(&frame.data));
            exchange.frames.push_back(Frame {
                number,
                at_ms: now.wall_ms,
                from: frame.from,
                kind: frame.kind,
                data: clean.unwrap_or(frame.data).into(),
                bytes: frame.bytes,
                is_truncated: frame.is_truncated,
                problem: frame.problem,
            });
            let mut bytes: usize = exchange.frames.iter().map(|frame| frame.data.len()).sum();
            while exchange.frames.len() > MAX_FRAMES || (bytes > MAX_FRAMES_BYTES && exchange.frames.len() > 1) {
                bytes -= exchange.frames.pop_front().map_or(0, |oldest| oldest.data.len());
            }
        });
        if is_kept {
            self.changed(Change::Frame(id, number));
        }
    }

    /// Takes what the edge records about a request: joined with its exchange, or kept as one without bodies.
    pub fn record(&mut self, record: Record, now: Now) {
        let wanted = Some(record.request_id.as_str());
        let known = self.searched().find(|one| one.request_id.as_deref() == wanted && one.replay_of.is_none());
        let Record { identity, rule, refused, status, source, .. } = record.clone();
        if let Some(id) = known.map(|known| known.id) {
            // A longer one is cut.
            let target = Some(record.target).filter(|target| target.len() < MAX_RECORDED_TARGET_BYTES);
            let public_target = target.map(|target| redact::target(&target).unwrap_or(target));
            self.store.update(id, |exchange| {
                exchange.is_recorded = true;
                exchange.identity = identity.or(exchange.identity.take());
                exchange.rule = rule;
                exchange.refused = refused;
                exchange.public_target = public_target.filter(|target| *target != exchange.target);
                exchange.source.client = source.client.or(exchange.source.client.take());
                exchange.status = exchange.status.or(Some(status));
            });
            return self.changed(Change::Exchange(id));
        }
        let redacted = redact::target(&record.target);
        let is_target_redacted = redacted.is_some();
        let mut request = Message::default();
        request.body.passed = record.bytes_in;
        let id = self.store.add(Exchange {
            id: 0,
            request_id: Some(record.request_id).filter(|id| !id.is_empty()),
            at_ms: record.at_ms,
            began: now.instant,
            source: record.source,
            protocol: Protocol::Http,
            method: record.method,
            target: redacted.unwrap_or(record.target),
            is_target_redacted,
            public_target: None,
            host: String::new(),
            request,
            status: Some(status),
            response: None,
            first_byte_us: None,
            duration_us: Some(record.duration_us),
            is_failed: false,
            identity,
            rule,
            refused,
            is_recorded: true,
            replay_of: None,
            problems: Vec::new(),
            frames: std::collections::VecDeque::new(),
            frame_count: 0,
            size: 0,
        });
        self.changed(Change::Exchange(id));
    }

    /// Keeps an exchange that could not be sent again, with the reason.
    pub fn note_problem(&mut self, id: u64, problem: &str) {
        self.store.update(id, |exchange| {
            if exchange.problems.len() < MAX_PROBLEMS {
                exchange.problems.push(problem.to_owned());
            }
        });
        self.changed(Change::Exchange(id));
    }

    fn searched(&self) -> impl Iterator<Item = &Exchange> {
        self.store.newest().take(MAX_SEARCHED)
    }

    fn changed(&mut self, change: Change) {
        if self.changes.last() != Some(&change) {
            self.changes.push(change);
        }
    }
}

fn place(from: From) -> usize {
    usize::from(from == From::Service)
}

fn micros(from: Instant, to: Instant) -> u64 {
    u64::try_from(to.saturating_duration_since(from).as_micros()).unwrap_or(u64::MAX)
}

/// Whether bytes look like text that could have keys.
fn looks_like_text(data: &[u8]) -> bool {
    !data.iter().take(64).any(|byte| *byte < 9)
}

/// The fields as they are kept: without secrets.
fn kept_fields(fields: Vec<RawField>) -> Vec<Field> {
    let keep = |(name, value): RawField| {
        let hidden = |value: Vec<u8>| (Bytes::from(value), true);
        let (value, is_redacted) = if redact::is_secret_name(&name) {
            hidden(redact::REDACTED.as_bytes().to_vec())
        } else {
            match std::str::from_utf8(&value).ok().and_then(redact::target) {
                Some(clean) if is_address(&name) => hidden(clean.into_bytes()),
                // A copy, so that a small value does not hold a whole read.
                _ => (Bytes::copy_from_slice(&value), false),
            }
        };
        Field { name, value, is_redacted }
    };
    fields.into_iter().map(keep).collect()
}

/// Whether the field's value is an address, whose query may have secrets.
fn is_address(name: &str) -> bool {
    ["location", "referer", "content-location", "x-original-url", "x-forwarded-uri", "link", "refresh"]
        .iter()
        .any(|address| name.eq_ignore_ascii_case(address))
}

/// A body as it is kept: its bytes, whether secrets were taken out, and whether it lost its coding for that.
fn clean_body(kept: Vec<u8>, content_type: &str, encoding: &str) -> (Bytes, bool, bool) {
    let is_plain = encoding.is_empty() || encoding.eq_ignore_ascii_case("identity");
    if is_plain {
        return match redact::body(content_type, &kept) {
            Some(clean) => (clean.into(), true, false),
            None => (kept.into(), false, false),
        };
    }
    let decoded = decode(encoding, &kept, MAX_DECODED_BYTES);
    match redact::body(content_type, &decoded.bytes) {
        Some(mut clean) => {
            clean.truncate(MAX_BODY_BYTES);
            (clean.into(), true, true)
        }
        None => (kept.into(), false, false),
    }
}
