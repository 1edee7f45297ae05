//! HTTP/1.1 with a client, as a server: one connection.
//!
//! May use `body`, `chunk_encode`, `chunked`, `decimal` and `limits`.
//!
//! Many HTTP servers are lenient: they take a bare line feed for a line end, and choose between contradictory lengths.
//! A client that finds two servers with different readings smuggles requests past the first one. [`Server`] therefore
//! follows RFC 9112 strictly, and refuses bytes that have two meanings.
//!
//! ```text
//!  client's bytes ──> handle_input ──> poll_request ──> send_head ──> send_data ... finish ──> output
//!                                      poll_body ...
//! ```
//!
//! A head is read once, line by line as it arrives. For a refused head, [`Server::poll_request`] returns an error in
//! the place of a request. The caller responds to both alike. Nothing behind a refused head is read. The bytes behind a
//! request wait until its response is finished: after `101 Switching Protocols` they belong to the other protocol
//! ([`Server::into_unread`]).
//!
//! The driver reads no more than [`Server::wants_input`] allows. That bounds the server's memory: one head, and one
//! read.

mod head;
mod output;
mod request;
mod response_encode;

use std::fmt;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, StatusCode, request::Parts};
use sallyport_http::RequestRefusal;

pub use self::{
    output::{MAX_SLICES, Output},
    response_encode::ResponseHead,
};

use self::{
    head::HeadDecoder,
    response_encode::{RequestTraits, ResponseFraming, encode_response},
};
use crate::{
    body::{BodyDecoder, Framing, Piece},
    chunk_encode::{CHUNK_END, announced_trailers, chunk_start, write_last_chunk},
    chunked::{ChunkError, LineError},
    limits::{MAX_HEAD_BYTES, MAX_HEADER_COUNT, MAX_TARGET_BYTES},
};

/// The interim response that a client may wait for before it sends a body (RFC 9110 section 15.2.1).
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
/// The longest rest of a request's body that is read after the response, in bytes, so that the next request has the
/// connection. A client with more to send gets `connection: close`, and may stop.
const MAX_AWAITED_REST_BYTES: u64 = 1024 * 1024;

/// Bounds on a request's head that a program may set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// The longest head, in bytes. A longer one gets status 431.
    pub max_head_bytes: usize,
    /// The longest target, in bytes. A longer one gets status 414.
    pub max_target_bytes: usize,
    /// The greatest number of header fields. More get status 431.
    pub max_header_count: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self { max_head_bytes: MAX_HEAD_BYTES, max_target_bytes: MAX_TARGET_BYTES, max_header_count: MAX_HEADER_COUNT }
    }
}

/// Where a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Between requests: no byte of the next one came.
    Idle,
    /// A head has begun and is not whole.
    Head,
    /// A request's body has not ended.
    Body,
    /// A request is whole, and its response is not finished.
    Response,
    /// The connection goes on with another protocol.
    Switched,
    /// A request was refused. No more bytes are read.
    Refused,
}

/// A request's head.
#[derive(Debug)]
pub struct NewRequest {
    /// Method, target, version and fields. The values lie in the memory that the head was read into.
    pub head: Parts,
    /// How the body ends. [`Framing::Length`] of 0: there is none.
    pub framing: Framing,
    /// Whether the client keeps the connection open behind the response.
    pub keeps_connection: bool,
}

/// The body of a response ended before its announced length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the body of the response is shorter than its announced length")]
pub struct ShortBody;

/// One connection of a client.
#[derive(Default)]
pub struct Server {
    config: Config,
    /// Bytes of the client that were not taken yet.
    input: BytesMut,
    receive: Receive,
    respond: Respond,
    /// Whether the client waits for `100 Continue`.
    awaits_continue: bool,
    /// Whether no request follows the one under way.
    is_last: bool,
    /// State that an idle connection does not need: most connections are idle.
    busy: Option<Box<Busy>>,
}

/// The part of a server that only requests need.
#[derive(Default)]
struct Busy {
    head: HeadDecoder,
    output: Output,
    /// Memory for the fields of the next request.
    room: HeaderMap,
}

/// What the bytes of the client belong to.
#[derive(Debug, Default)]
enum Receive {
    #[default]
    Head,
    Body(Box<BodyDecoder>),
    /// The refused bytes are those of a head, in the place of a request.
    RefusedHead(RequestRefusal),
    /// The refused bytes are those of a body, whose request is served already.
    RefusedBody(RequestRefusal),
}

/// What the server owes the client.
#[derive(Debug, Default)]
enum Respond {
    /// Nothing: the next request may come.
    #[default]
    Nothing,
    /// The head of a response.
    Head { request: RequestTraits, takes_trailers: bool, keeps_connection: bool },
    /// The body of a response, with the trailers that may follow.
    Body { framing: ResponseFraming, trailers: Vec<HeaderName> },
    /// Nothing: the connection goes on with another protocol.
    Switched,
    /// Nothing: the connection ends.
    Over,
}

impl Server {
    /// A new connection.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self { config, ..Self::default() }
    }

    // ---- what comes from the client

    /// Takes bytes of the client, of any number. [`Server::wants_input`] says when more are of use.
    pub fn handle_input(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    /// The buffer of bytes that were not taken yet: a driver may read behind them, without a copy.
    pub fn input_mut(&mut self) -> &mut BytesMut {
        &mut self.input
    }

    /// How many bytes of the client were not taken yet.
    ///
    /// Behind a refused head they begin with that head. Behind a refused body they begin with the wrong byte.
    #[must_use]
    pub fn unread_bytes(&self) -> usize {
        self.input.len()
    }

    /// Where the connection is.
    #[must_use]
    pub fn phase(&self) -> Phase {
        match (&self.receive, &self.respond) {
            (Receive::RefusedHead(_) | Receive::RefusedBody(_), _) => Phase::Refused,
            (_, Respond::Switched) => Phase::Switched,
            (Receive::Body(_), _) => Phase::Body,
            // One empty line may precede a request, and is no part of it (RFC 9112 section 2.2).
            (Receive::Head, Respond::Nothing) if matches!(self.input[..], [] | [b'\r'] | [b'\r', b'\n']) => Phase::Idle,
            (Receive::Head, Respond::Nothing) => Phase::Head,
            (Receive::Head, _) => Phase::Response,
        }
    }

    /// Whether to read more bytes of the client: not behind a refusal, and not behind a complete head that waits for
    /// the response before it.
    pub fn wants_input(&mut self) -> bool {
        match (&self.receive, &self.respond) {
            (Receive::RefusedHead(_) | Receive::RefusedBody(_), _) | (_, Respond::Switched | Respond::Over) => false,
            (Receive::Body(_), _) => true,
            (Receive::Head, _) => self.read_head() == Ok(false),
        }
    }

    /// Reads on in the head that came. Returns whether it is whole.
    fn read_head(&mut self) -> Result<bool, RequestRefusal> {
        // An idle connection allocates nothing.
        if self.input.is_empty() { Ok(false) } else { busy(&mut self.busy).head.advance(&self.input, &self.config) }
    }

    /// Reads on in the bytes that came. Returns whether [`Server::poll_request`] has a request or a refusal.
    pub fn advance(&mut self) -> bool {
        match (&self.receive, &self.respond) {
            (Receive::Head, Respond::Nothing) => self.read_head().unwrap_or(true),
            (Receive::RefusedHead(_), Respond::Nothing) => true,
            _ => false,
        }
    }

    /// Takes the next request, or the refusal in its place; `None` while there is neither.
    ///
    /// The caller takes the body by [`Server::poll_body`], and responds by [`Server::send_head`] in either case. Bytes
    /// behind the request stay unread until the response is finished.
    pub fn poll_request(&mut self) -> Option<Result<NewRequest, RequestRefusal>> {
        if !self.advance() {
            return None;
        }
        let taken = match self.receive {
            Receive::RefusedHead(refusal) => Err(refusal),
            _ => self.take_head(),
        };
        Some(taken.inspect_err(|refusal| {
            self.refuse(*refusal);
            let request = RequestTraits { is_head: false, is_http10: false };
            self.respond = Respond::Head { request, takes_trailers: false, keeps_connection: false };
        }))
    }

    fn take_head(&mut self) -> Result<NewRequest, RequestRefusal> {
        let Busy { head: decoder, room, .. } = busy(&mut self.busy);
        decoder.advance(&self.input, &self.config)?;
        let (Some(line), spans) = decoder.parts() else { return Err(RequestRefusal::RequestLine) };
        let bytes = self.input.split_to(decoder.bytes()).freeze();
        let head = request::build(&bytes, line, spans, std::mem::take(room))?;
        let request = RequestTraits { is_head: head.method == http::Method::HEAD, is_http10: line.is_http10 };
        let (framing, keeps_connection) = (decoder.framing(), decoder.keeps_connection());
        self.respond = Respond::Head { request, takes_trailers: decoder.takes_trailers(), keeps_connection };
        self.awaits_continue = decoder.expects_continue() && self.input.is_empty();
        if framing != Framing::Length(0) {
            self.receive = Receive::Body(Box::new(BodyDecoder::of_request(framing)));
        }
        decoder.reset();
        Ok(NewRequest { head, framing, keeps_connection })
    }

    /// Takes the next piece of the request's body.
    ///
    /// # Errors
    /// The body is malformed. The request has no whole body, and none follows it.
    pub fn poll_body(&mut self) -> Result<Piece, RequestRefusal> {
        let body = match &mut self.receive {
            Receive::Body(body) => body,
            Receive::Head => return Ok(Piece::End),
            Receive::RefusedHead(refusal) | Receive::RefusedBody(refusal) => return Err(*refusal),
        };
        // A client that sends its body does not wait.
        self.awaits_continue &= self.input.is_empty();
        let piece = body.next(&mut self.input);
        let is_over = body.is_over();
        match piece {
            Ok(_) if is_over => self.receive = Receive::Head,
            Ok(_) => {}
            Err(error) => self.refuse(error.into()),
        }
        piece.map_err(RequestRefusal::from)
    }

    /// Whether all of the request's body was taken.
    #[must_use]
    pub fn is_body_over(&self) -> bool {
        matches!(self.receive, Receive::Head)
    }

    /// How many bytes of the request's body were not taken yet, where its framing says so.
    #[must_use]
    pub fn body_bytes_left(&self) -> Option<u64> {
        match &self.receive {
            Receive::Body(body) => body.bytes_left(),
            Receive::Head => Some(0),
            Receive::RefusedHead(_) | Receive::RefusedBody(_) => None,
        }
    }

    /// Refuses the client's bytes from here on: no request follows. Between requests the refusal takes the place of the
    /// next request.
    pub fn refuse(&mut self, refusal: RequestRefusal) {
        self.is_last = true;
        match (&self.receive, &self.respond) {
            (Receive::RefusedHead(_) | Receive::RefusedBody(_), _) => {}
            (Receive::Head, Respond::Nothing) => self.receive = Receive::RefusedHead(refusal),
            _ => self.receive = Receive::RefusedBody(refusal),
        }
    }

    /// Why the client's bytes are refused, when they are.
    #[must_use]
    pub fn refusal(&self) -> Option<RequestRefusal> {
        match self.receive {
            Receive::RefusedHead(refusal) | Receive::RefusedBody(refusal) => Some(refusal),
            Receive::Head | Receive::Body(_) => None,
        }
    }

    /// The bytes that were not taken, for the protocol that follows.
    #[must_use]
    pub fn into_unread(self) -> BytesMut {
        self.input
    }

    // ---- what goes to the client

    /// Whether the client waits for `100 Continue` before it sends the body.
    #[must_use]
    pub fn awaits_continue(&self) -> bool {
        self.awaits_continue
    }

    /// Sends `100 Continue`. To be called before the response, when the body is wanted.
    pub fn send_continue(&mut self) {
        if std::mem::take(&mut self.awaits_continue) {
            self.output().tail().put_slice(CONTINUE);
        }
    }

    /// Makes the current request the last one: where the next request begins is uncertain, or no other is wanted.
    pub fn disable_keep_alive(&mut self) {
        self.is_last = true;
    }

    /// Whether no request follows the one under way.
    #[must_use]
    pub fn is_last(&self) -> bool {
        self.is_last
    }

    /// Sends the head of the response. Returns whether the connection stays open behind the response.
    ///
    /// The body follows by [`Server::send_data`] and [`Server::finish`] where [`Server::has_response_body`] says so.
    pub fn send_head(&mut self, head: &ResponseHead<'_>) -> bool {
        let Respond::Head { request, takes_trailers, keeps_connection } = self.respond else { return false };
        // A client that got no `100 Continue` may send its body or not: where the next request begins is not certain.
        self.is_last |= std::mem::take(&mut self.awaits_continue);
        //= RFC 9112 section 9.3
        //# A server MUST read the entire request message body or close the connection after sending its response
        self.is_last |= self.body_bytes_left().is_some_and(|left| left > MAX_AWAITED_REST_BYTES);
        let may_persist = head.may_persist && keeps_connection && !self.is_last;
        let head = ResponseHead { may_persist, ..*head };
        let (framing, persists) = encode_response(self.output().tail(), &head, request);
        let trailers = match framing {
            ResponseFraming::Chunked if takes_trailers => announced_trailers(head.fields),
            _ => Vec::new(),
        };
        self.respond = match framing {
            _ if head.status == StatusCode::SWITCHING_PROTOCOLS => Respond::Switched,
            ResponseFraming::Nothing => self.after_response(),
            framing => Respond::Body { framing, trailers },
        };
        persists
    }

    /// Gives memory of a response's fields to those of the next request.
    pub fn recycle(&mut self, fields: HeaderMap) {
        busy(&mut self.busy).room = fields;
    }

    /// Whether a body of the response is still to be sent, or its end.
    #[must_use]
    pub fn has_response_body(&self) -> bool {
        matches!(self.respond, Respond::Body { .. })
    }

    /// Whether all bytes that the head announced were sent.
    #[must_use]
    pub fn has_sent_announced_bytes(&self) -> bool {
        matches!(self.respond, Respond::Body { framing: ResponseFraming::Length(0), .. })
    }

    /// Sends a part of the response's body. Bytes past the announced length are dropped.
    pub fn send_data(&mut self, mut data: Bytes) {
        let Respond::Body { framing, .. } = &mut self.respond else { return };
        let output = &mut busy(&mut self.busy).output;
        match framing {
            ResponseFraming::Chunked if !data.is_empty() => {
                output.tail().put_slice(chunk_start(data.len()).as_bytes());
                output.push(data);
                output.tail().put_slice(CHUNK_END);
            }
            ResponseFraming::Length(left) => {
                data.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= data.len() as u64;
                output.push(data);
            }
            _ => output.push(data),
        }
    }

    /// Ends the response, with these trailers where the client takes them.
    ///
    /// # Errors
    /// The head announced more bytes than were sent. The connection has to end.
    pub fn finish(&mut self, trailers: Option<&HeaderMap>) -> Result<(), ShortBody> {
        let Respond::Body { framing, trailers: announced } = &self.respond else { return Ok(()) };
        match framing {
            ResponseFraming::Chunked => {
                write_last_chunk(busy(&mut self.busy).output.tail(), trailers, announced);
            }
            ResponseFraming::Length(1..) => {
                self.break_off();
                return Err(ShortBody);
            }
            _ => {}
        }
        self.respond = self.after_response();
        Ok(())
    }

    /// Ends a response in the middle of its body: the connection has to end.
    pub fn break_off(&mut self) {
        self.respond = Respond::Over;
        self.is_last = true;
    }

    fn after_response(&self) -> Respond {
        if self.refusal().is_some() { Respond::Over } else { Respond::Nothing }
    }

    /// What is to be written to the client.
    pub fn output(&mut self) -> &mut Output {
        &mut busy(&mut self.busy).output
    }

    /// Gives up the memory that only requests need, when nothing is under way.
    pub fn rest(&mut self) {
        let is_idle = matches!((&self.receive, &self.respond), (Receive::Head, Respond::Nothing));
        if is_idle && self.input.is_empty() && self.busy.as_ref().is_none_or(|busy| busy.output.is_empty()) {
            (self.input, self.busy) = (BytesMut::new(), None);
        }
    }
}

/// The part that only requests need, made when the first one comes.
fn busy(part: &mut Option<Box<Busy>>) -> &mut Busy {
    part.get_or_insert_default()
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("phase", &self.phase())
            .field("unread", &self.input.len())
            .finish_non_exhaustive()
    }
}

impl From<ChunkError> for RequestRefusal {
    fn from(error: ChunkError) -> Self {
        match error {
            ChunkError::Size => Self::ChunkSize,
            ChunkError::LineLong => Self::ChunkLineLong,
            ChunkError::End => Self::ChunkEnd,
            ChunkError::Trailer => Self::Trailer,
            ChunkError::TrailersLong => Self::TrailersLong,
            ChunkError::SizeLine(error) | ChunkError::TrailerLine(error) => line_refusal(error),
        }
    }
}

const fn line_refusal(error: LineError) -> RequestRefusal {
    match error {
        LineError::BareLineFeed => RequestRefusal::BareLineFeed,
        LineError::BareCarriageReturn => RequestRefusal::BareCarriageReturn,
        LineError::ControlCharacter => RequestRefusal::ControlCharacter,
    }
}

/// Why a byte that is neither a value byte nor a proper line end is refused.
const fn misplaced(byte: u8) -> RequestRefusal {
    line_refusal(LineError::of_byte(byte))
}
