//! An HTTP/1.1 connection between the edge and the service, read in both directions.

use std::collections::VecDeque;

use bytes::{Buf as _, Bytes, BytesMut};
use http::{HeaderMap, Method};
use sallyport_http1::{
    BodyDecoder, Framing, Piece,
    client::{ReceivedHead, ResponseError, decode_response},
};

use super::{Gap, MAX_FIELDS, MAX_HEAD_BYTES, Parsed, RawField, field, websocket::WebSocket};
use crate::message::From;

/// How many requests may wait for their responses.
const MAX_WAITING: usize = 64;
const VERSION: &str = "HTTP/1.1";

/// A connection.
#[derive(Debug, Default)]
pub(crate) struct Http1 {
    requests: Half,
    responses: Half,
    /// The requests without a whole response, in order.
    waiting: VecDeque<Waiting>,
    next_key: u32,
    sockets: Option<Box<(WebSocket, WebSocket)>>,
}

#[derive(Debug)]
struct Waiting {
    key: u32,
    method: Method,
}

#[derive(Debug, Default)]
struct Half {
    buf: BytesMut,
    /// How many bytes of the buffer have no end of a head.
    searched: usize,
    state: State,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Head,
    /// A body with its key: so many bytes are left.
    Length(u32, u64),
    Chunked(u32, Box<BodyDecoder>),
    UntilClose(u32),
    WebSocket(u32),
    /// Bytes were missed, or could not be read. A new request may begin a new connection.
    Lost,
}

impl Http1 {
    /// Takes bytes of one direction.
    pub(crate) fn bytes(&mut self, from: From, data: &[u8], out: &mut Vec<Parsed>) {
        if from == From::Client && self.is_lost() && is_start_of_request(data) {
            *self = Self { next_key: self.next_key, ..Self::default() };
        }
        self.half(from).buf.extend_from_slice(data);
        // Each round takes bytes or changes the state.
        while self.step(from, out) {}
    }

    /// Takes note of bytes that were not seen.
    pub(crate) fn gap(&mut self, from: From, gap: Gap, out: &mut Vec<Parsed>) {
        let bytes = gap.bytes;
        let half = self.half(from);
        match &mut half.state {
            State::Length(key, left) if *left >= bytes => {
                *left -= bytes;
                out.push(Parsed::Missed { key: *key, from, bytes, is_loss: gap.is_loss });
                while self.step(from, out) {}
            }
            State::UntilClose(key) => out.push(Parsed::Missed { key: *key, from, bytes, is_loss: gap.is_loss }),
            State::WebSocket(key) => {
                let key = *key;
                if !self.socket(from).is_some_and(|socket| socket.gap(bytes)) {
                    let problem = format!("The capture missed {bytes} bytes, so later messages are not shown.");
                    self.lose(out, &problem);
                    out.push(Parsed::Failed { key, problem });
                }
            }
            State::Lost => {}
            _ => {
                let problem = format!("The capture missed {bytes} bytes of the connection: the rest is not shown.");
                self.lose(out, &problem);
            }
        }
    }

    /// The direction has ended.
    pub(crate) fn ended(&mut self, from: From, out: &mut Vec<Parsed>) {
        if from == From::Service
            && let State::UntilClose(key) = self.responses.state
        {
            self.end_response(key, Vec::new(), out);
        }
    }

    /// How many of the next bytes nobody wants.
    pub(crate) fn unwanted(&self, from: From, is_full: impl Fn(u32) -> bool) -> u64 {
        let half = if from == From::Client { &self.requests } else { &self.responses };
        match half.state {
            // The last byte is seen, so that the end of the body is known when it passes.
            State::Length(key, left) if is_full(key) => left.saturating_sub(1),
            State::WebSocket(_) => self
                .sockets
                .as_ref()
                .map_or(0, |sockets| if from == From::Client { sockets.0.unwanted() } else { sockets.1.unwanted() }),
            _ => 0,
        }
    }

    fn half(&mut self, from: From) -> &mut Half {
        if from == From::Client { &mut self.requests } else { &mut self.responses }
    }

    fn socket(&mut self, from: From) -> Option<&mut WebSocket> {
        self.sockets.as_mut().map(|sockets| if from == From::Client { &mut sockets.0 } else { &mut sockets.1 })
    }

    fn is_lost(&self) -> bool {
        matches!(self.requests.state, State::Lost) || matches!(self.responses.state, State::Lost)
    }

    /// Nothing more is read until a new request begins.
    fn lose(&mut self, out: &mut Vec<Parsed>, problem: &str) {
        let mut keys: Vec<u32> = self.waiting.drain(..).map(|waiting| waiting.key).collect();
        for half in [&self.requests, &self.responses] {
            match half.state {
                State::Length(key, _) | State::Chunked(key, _) | State::UntilClose(key) => keys.push(key),
                State::Head | State::WebSocket(_) | State::Lost => {}
            }
        }
        keys.dedup();
        out.extend(keys.into_iter().map(|key| Parsed::Failed { key, problem: problem.to_owned() }));
        for half in [&mut self.requests, &mut self.responses] {
            *half = Half { state: State::Lost, ..Half::default() };
        }
    }

    /// Reads on; returns whether there may be more to read.
    fn step(&mut self, from: From, out: &mut Vec<Parsed>) -> bool {
        let half = self.half(from);
        match &mut half.state {
            State::Lost => {
                half.buf.clear();
                false
            }
            State::Head if half.buf.is_empty() => false,
            State::Head if from == From::Client => self.request_head(out),
            State::Head => self.response_head(out),
            State::Length(key, 0) => {
                let key = *key;
                self.end(from, key, Vec::new(), out);
                true
            }
            State::Length(_, _) | State::UntilClose(_) | State::WebSocket(_) if half.buf.is_empty() => false,
            State::Length(key, left) => {
                let taken = usize::try_from(*left).map_or(half.buf.len(), |left| left.min(half.buf.len()));
                *left -= taken as u64;
                out.push(Parsed::Data { key: *key, from, data: half.buf.split_to(taken).freeze() });
                true
            }
            State::UntilClose(key) => {
                out.push(Parsed::Data { key: *key, from, data: half.buf.split().freeze() });
                false
            }
            State::Chunked(key, chunks) => {
                let key = *key;
                match chunks.next(&mut half.buf) {
                    Ok(Piece::Data(data)) => out.push(Parsed::Data { key, from, data }),
                    Ok(Piece::Missing) => return false,
                    Ok(Piece::End) => self.end(from, key, Vec::new(), out),
                    Ok(Piece::Trailers(trailers)) => self.end(from, key, listed(&trailers), out),
                    Err(error) => {
                        let error = ResponseError::from(error);
                        self.lose(out, &format!("The chunks of a body are malformed: {error}."));
                        return false;
                    }
                }
                true
            }
            State::WebSocket(key) => {
                let (key, mut bytes) = (*key, half.buf.split());
                if let Some(socket) = self.socket(from) {
                    socket.bytes(&mut bytes, |frame| out.push(Parsed::Frame { key, frame }));
                }
                false
            }
        }
    }

    fn request_head(&mut self, out: &mut Vec<Parsed>) -> bool {
        let Some(bytes) = self.requests.head() else {
            if self.requests.buf.len() > MAX_HEAD_BYTES {
                self.lose(out, "The head of a request is too long to be read.");
            }
            return false;
        };
        let mut room = vec![httparse::EMPTY_HEADER; MAX_FIELDS];
        let mut head = httparse::Request::new(&mut room);
        let parsed = head.parse(&bytes);
        let (Ok(httparse::Status::Complete(_)), Some(method), Some(target)) = (parsed, head.method, head.path) else {
            self.lose(out, "The head of a request is malformed, or has too many fields.");
            return false;
        };
        let fields = raw_fields(head.headers, &bytes);
        if self.waiting.len() == MAX_WAITING {
            self.lose(out, "Too many requests wait for responses.");
            return false;
        }
        let key = self.next_key;
        self.next_key = self.next_key.wrapping_add(1);
        let host = field(&fields, "host").map(|host| String::from_utf8_lossy(host).into_owned()).unwrap_or_default();
        let known = Method::from_bytes(method.as_bytes()).unwrap_or(Method::GET);
        self.requests.state = match (field(&fields, "transfer-encoding"), field(&fields, "content-length")) {
            // The edge frames requests by the letter, so the rules of responses read them too.
            (Some(_), _) => State::Chunked(key, Box::new(BodyDecoder::of_response(Framing::Chunked))),
            (None, length) => {
                let length = length.and_then(|length| std::str::from_utf8(length).ok()?.trim().parse().ok());
                State::Length(key, length.unwrap_or(0))
            }
        };
        self.waiting.push_back(Waiting { key, method: known });
        let (method, target) = (method.to_owned(), target.to_owned());
        out.push(Parsed::Request { key, version: VERSION, method, target, host, fields });
        true
    }

    fn response_head(&mut self, out: &mut Vec<Parsed>) -> bool {
        let Some(waiting) = self.waiting.front() else {
            self.lose(out, "The service sent bytes without a request.");
            return false;
        };
        let (key, method) = (waiting.key, waiting.method.clone());
        let Some(bytes) = self.responses.head() else {
            let starts = b"HTTP/1.";
            let seen = self.responses.buf.len().min(starts.len());
            if self.responses.buf.len() > MAX_HEAD_BYTES || self.responses.buf[..seen] != starts[..seen] {
                self.lose(out, "The service did not answer in HTTP/1.1.");
            }
            return false;
        };
        let (mut copy, mut searched, mut map) = (BytesMut::from(&bytes[..]), 0, HeaderMap::new());
        let decoded = decode_response(&mut copy, &mut searched, &method, &mut map);
        let response = match decoded {
            Ok(Some(ReceivedHead::Informational(_)) | None) => return true,
            Ok(Some(ReceivedHead::Final(response))) => response,
            Err(error) => {
                self.lose(out, &format!("The service's response cannot be used: {error}."));
                return false;
            }
        };
        let mut room = vec![httparse::EMPTY_HEADER; MAX_FIELDS];
        let mut head = httparse::Response::new(&mut room);
        let is_read = head.parse(&bytes).is_ok();
        let fields = if is_read { raw_fields(head.headers, &bytes) } else { listed(&map) };
        let status = response.status.as_u16();
        if status == 101 {
            let extensions = field(&fields, "sec-websocket-extensions").map(<[u8]>::to_ascii_lowercase);
            let extensions = extensions.unwrap_or_default();
            let sockets = (WebSocket::new(From::Client, &extensions), WebSocket::new(From::Service, &extensions));
            self.sockets = Some(Box::new(sockets));
            self.waiting.pop_front();
            self.requests.state = State::WebSocket(key);
            self.responses.state = State::WebSocket(key);
            out.push(Parsed::Response { key, version: VERSION, status, fields });
            out.push(Parsed::Upgraded { key });
            return true;
        }
        out.push(Parsed::Response { key, version: VERSION, status, fields });
        self.responses.state = match response.framing {
            Framing::Length(bytes) => State::Length(key, bytes),
            Framing::Chunked => State::Chunked(key, Box::new(BodyDecoder::of_response(Framing::Chunked))),
            Framing::UntilClose => State::UntilClose(key),
        };
        true
    }

    fn end(&mut self, from: From, key: u32, trailers: Vec<RawField>, out: &mut Vec<Parsed>) {
        match from {
            From::Client => {
                self.requests.state = State::Head;
                out.push(Parsed::End { key, from, trailers });
            }
            From::Service => self.end_response(key, trailers, out),
        }
    }

    fn end_response(&mut self, key: u32, trailers: Vec<RawField>, out: &mut Vec<Parsed>) {
        self.waiting.pop_front();
        self.responses.state = State::Head;
        out.push(Parsed::End { key, from: From::Service, trailers });
    }
}

impl Half {
    /// Takes a whole head out of the buffer.
    fn head(&mut self) -> Option<Bytes> {
        if self.searched == 0 {
            let blank = self.buf.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
            self.buf.advance(blank);
        }
        let from = self.searched.saturating_sub(3);
        let found = memchr::memmem::find(&self.buf[from..], b"\n\r\n").map(|at| from + at + 3);
        let found = found.or_else(|| memchr::memmem::find(&self.buf[from..], b"\n\n").map(|at| from + at + 2));
        self.searched = if found.is_some() { 0 } else { self.buf.len() };
        found.map(|end| self.buf.split_to(end).freeze())
    }
}

/// Whether a request begins here: the edge writes a head from its start.
fn is_start_of_request(data: &[u8]) -> bool {
    let line = &data[..data.iter().position(|byte| *byte == b'\n').unwrap_or(0)];
    line.ends_with(b" HTTP/1.1\r") && line.first().is_some_and(u8::is_ascii_uppercase)
}

fn raw_fields(fields: &[httparse::Header<'_>], bytes: &Bytes) -> Vec<RawField> {
    fields.iter().map(|field| (field.name.to_owned(), bytes.slice_ref(field.value))).collect()
}

/// The fields of a map in its order.
pub(crate) fn listed(map: &HeaderMap) -> Vec<RawField> {
    let copied = |value: &http::HeaderValue| Bytes::copy_from_slice(value.as_bytes());
    map.iter().take(MAX_FIELDS).map(|(name, value)| (name.as_str().to_owned(), copied(value))).collect()
}
