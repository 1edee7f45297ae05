//! HTTP/1.1 with a client, as a server: one connection.
//!
//! Servers of HTTP are lenient where a front door must not be: they take a bare line feed for a line end, and choose
//! between lengths that contradict each other. A client that finds two servers with different readings smuggles requests
//! past the first one. [`Server`] therefore reads by the letter of RFC 9112, and refuses what has two meanings.
//!
//! ```text
//!  bytes of the client ──> handle_input ──> poll_request ──> send_head ──> send_data ... finish ──> output
//!                                           poll_body ...
//! ```
//!
//! A head is read once, line by line as it comes, and a byte is never looked at twice. A refused head comes out of
//! [`Server::poll_request`] as an error in the place of a request, and is answered like one. Nothing behind it is read.
//! The bytes behind a request wait until its response is finished: after `101 Switching Protocols` they belong to the
//! other protocol ([`Server::into_unread`]).

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
/// connection. A client with more to send is told that the connection closes, and may stop.
const MAX_AWAITED_REST_BYTES: u64 = 1024 * 1024;

/// Bounds on a request's head that a program may set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The longest head, in bytes. A longer one gets status 431.
    pub max_head_bytes: usize,
    /// The longest target, in bytes. A longer one gets status 414.
    pub max_target_bytes: usize,
    /// The greatest number of header fields. More get status 431.
    pub max_header_count: usize,
}

impl Default for Limits {
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
pub struct Server {
    limits: Limits,
    /// Bytes of the client that were not taken yet.
    input: BytesMut,
    head: HeadDecoder,
    receive: Receive,
    respond: Respond,
    output: Output,
    /// Memory for the fields of the next request.
    room: HeaderMap,
    /// Whether the client waits for `100 Continue`.
    awaits_continue: bool,
    /// Whether no request follows the one under way.
    is_last: bool,
}

/// What the bytes of the client belong to.
#[derive(Debug)]
enum Receive {
    Head,
    Body(BodyDecoder),
    Refused {
        refusal: RequestRefusal,
        /// The refused bytes are of a body: the request that it belongs to is served already.
        is_in_body: bool,
    },
}

/// What the server owes the client.
#[derive(Debug)]
enum Respond {
    /// Nothing: the next request may come.
    Nothing,
    /// The head of a response.
    Head { request: RequestTraits, takes_trailers: bool, keeps_connection: bool },
    /// The body of a response, with the trailers that may follow.
    Body { framing: ResponseFraming, trailers: Vec<HeaderName> },
    /// Nothing: the connection goes on with another protocol, or ends behind a refusal.
    Over { is_switched: bool },
}

impl Server {
    /// A new connection.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            input: BytesMut::new(),
            head: HeadDecoder::default(),
            receive: Receive::Head,
            respond: Respond::Nothing,
            output: Output::default(),
            room: HeaderMap::new(),
            awaits_continue: false,
            is_last: false,
        }
    }

    // ---- what comes from the client

    /// Takes bytes of the client.
    pub fn handle_input(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    /// The buffer of bytes that were not taken yet: a driver may read behind them, without a copy.
    pub fn input_mut(&mut self) -> &mut BytesMut {
        &mut self.input
    }

    /// How many bytes of the client were not taken yet. Behind a refusal the first one is the refused message's, or the
    /// wrong byte of a body.
    #[must_use]
    pub fn unread_bytes(&self) -> usize {
        self.input.len()
    }

    /// Where the connection is.
    #[must_use]
    pub fn phase(&self) -> Phase {
        match (&self.receive, &self.respond) {
            (Receive::Refused { .. }, _) => Phase::Refused,
            (_, Respond::Over { is_switched: true }) => Phase::Switched,
            (Receive::Body(_), _) => Phase::Body,
            (Receive::Head, Respond::Nothing) if self.head.has_begun() => Phase::Head,
            (Receive::Head, Respond::Nothing) => Phase::Idle,
            (Receive::Head, _) => Phase::Response,
        }
    }

    /// Whether [`Server::poll_request`] has a request or a refusal: reads on in the head that came.
    pub fn has_request(&mut self) -> bool {
        if !matches!(self.respond, Respond::Nothing) {
            return false;
        }
        if matches!(self.receive, Receive::Head) {
            match self.head.advance(&self.input, &self.limits) {
                Ok(is_whole) => return is_whole,
                Err(refusal) => self.refuse(refusal),
            }
        }
        matches!(self.receive, Receive::Refused { is_in_body: false, .. })
    }

    /// Takes the next request, or the refusal in its place; `None` while there is neither.
    ///
    /// The caller takes the body by [`Server::poll_body`], and responds by [`Server::send_head`] in either case. Bytes
    /// behind the request stay unread until the response is finished.
    pub fn poll_request(&mut self) -> Option<Result<NewRequest, RequestRefusal>> {
        if !self.has_request() {
            return None;
        }
        let taken = match self.receive {
            Receive::Refused { refusal, .. } => Err(refusal),
            _ => self.take_head(),
        };
        Some(taken.inspect_err(|refusal| {
            self.refuse(*refusal);
            self.is_last = true;
            let request = RequestTraits { is_head: false, is_http10: false };
            self.respond = Respond::Head { request, takes_trailers: false, keeps_connection: false };
        }))
    }

    fn take_head(&mut self) -> Result<NewRequest, RequestRefusal> {
        let (Some(line), spans) = self.head.parts() else { return Err(RequestRefusal::RequestLine) };
        let bytes = self.input.split_to(self.head.bytes()).freeze();
        let head = request::build(&bytes, line, spans, std::mem::take(&mut self.room))?;
        let request = RequestTraits { is_head: head.method == http::Method::HEAD, is_http10: line.is_http10 };
        let (framing, keeps_connection) = (self.head.framing(), self.head.keeps_connection());
        self.respond = Respond::Head { request, takes_trailers: self.head.takes_trailers(), keeps_connection };
        self.awaits_continue = self.head.expects_continue() && self.input.is_empty();
        if framing != Framing::Length(0) {
            self.receive = Receive::Body(BodyDecoder::of_request(framing));
        }
        self.head.reset();
        Ok(NewRequest { head, framing, keeps_connection })
    }

    /// Takes the next piece of the request's body.
    ///
    /// # Errors
    /// The body is malformed. The connection is refused, and the request has no whole body.
    pub fn poll_body(&mut self) -> Result<Piece, RequestRefusal> {
        let body = match &mut self.receive {
            Receive::Body(body) => body,
            Receive::Head => return Ok(Piece::End),
            Receive::Refused { refusal, .. } => return Err(*refusal),
        };
        // A client that sends its body does not wait.
        self.awaits_continue &= self.input.is_empty();
        match body.next(&mut self.input) {
            Ok(piece) => {
                if piece == Piece::End || matches!(piece, Piece::Trailers(_)) || body.is_over() {
                    self.receive = Receive::Head;
                }
                Ok(piece)
            }
            Err(error) => {
                let refusal = error.into();
                self.receive = Receive::Refused { refusal, is_in_body: true };
                Err(refusal)
            }
        }
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
            Receive::Refused { .. } => None,
        }
    }

    /// Refuses what the client sends from now on. Between requests the refusal takes the place of the next one.
    pub fn refuse(&mut self, refusal: RequestRefusal) {
        if !matches!(self.receive, Receive::Refused { .. }) {
            let is_in_body = matches!(self.receive, Receive::Body(_));
            self.receive = Receive::Refused { refusal, is_in_body };
        }
    }

    /// Why the client's bytes are refused, when they are.
    #[must_use]
    pub fn refusal(&self) -> Option<RequestRefusal> {
        match self.receive {
            Receive::Refused { refusal, .. } => Some(refusal),
            _ => None,
        }
    }

    /// The bytes that nobody took, for the protocol that follows.
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
            self.output.tail().put_slice(CONTINUE);
        }
    }

    /// Lets no request follow the one under way: where the next one begins is not certain, or it is not wanted.
    pub fn set_last(&mut self) {
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
        // A client that was never told to send its body may send it or not: what comes next is not certain.
        self.is_last |= std::mem::take(&mut self.awaits_continue);
        //= RFC 9112 section 9.3
        //# A server MUST read the entire request message body or close the connection after sending its response
        self.is_last |= self.body_bytes_left().is_some_and(|left| left > MAX_AWAITED_REST_BYTES);
        let may_persist = head.may_persist && keeps_connection && !self.is_last;
        let head = ResponseHead { may_persist, ..*head };
        let (framing, persists) = encode_response(self.output.tail(), &head, request);
        let trailers = match framing {
            ResponseFraming::Chunked if takes_trailers => announced_trailers(head.fields),
            _ => Vec::new(),
        };
        self.respond = match framing {
            _ if head.status == StatusCode::SWITCHING_PROTOCOLS => Respond::Over { is_switched: true },
            ResponseFraming::Nothing => self.after_response(),
            framing => Respond::Body { framing, trailers },
        };
        persists
    }

    /// Gives memory of a response's fields to those of the next request.
    pub fn recycle(&mut self, fields: HeaderMap) {
        self.room = fields;
    }

    /// Whether a body of the response is still to be sent, or its end.
    #[must_use]
    pub fn has_response_body(&self) -> bool {
        matches!(self.respond, Respond::Body { .. })
    }

    /// Whether all bytes that the head announced were sent.
    #[must_use]
    pub fn has_announced_bytes(&self) -> bool {
        matches!(self.respond, Respond::Body { framing: ResponseFraming::Length(0), .. })
    }

    /// Sends a part of the response's body. Bytes past the announced length are dropped.
    pub fn send_data(&mut self, mut data: Bytes) {
        let Respond::Body { framing, .. } = &mut self.respond else { return };
        match framing {
            ResponseFraming::Chunked if !data.is_empty() => {
                self.output.tail().put_slice(chunk_start(data.len()).as_bytes());
                self.output.push(data);
                self.output.tail().put_slice(CHUNK_END);
            }
            ResponseFraming::Length(left) => {
                data.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= data.len() as u64;
                self.output.push(data);
            }
            _ => self.output.push(data),
        }
    }

    /// Ends the response, with these trailers where the client takes them.
    ///
    /// # Errors
    /// The head announced more bytes than were sent. The connection has to end.
    pub fn finish(&mut self, trailers: Option<&HeaderMap>) -> Result<(), ShortBody> {
        let after = self.after_response();
        let Respond::Body { framing, trailers: announced } = std::mem::replace(&mut self.respond, after) else {
            return Ok(());
        };
        match framing {
            ResponseFraming::Chunked => write_last_chunk(self.output.tail(), trailers, &announced),
            ResponseFraming::Length(1..) => return Err(ShortBody),
            _ => {}
        }
        Ok(())
    }

    /// Ends a response in the middle of its body: the connection has to end.
    pub fn abandon_response(&mut self) {
        self.respond = Respond::Over { is_switched: false };
        self.is_last = true;
    }

    fn after_response(&self) -> Respond {
        match self.receive {
            Receive::Refused { .. } => Respond::Over { is_switched: false },
            _ => Respond::Nothing,
        }
    }

    /// What is to be written to the client.
    #[must_use]
    pub fn output(&mut self) -> &mut Output {
        &mut self.output
    }

    /// Gives up the memory that only requests need. Nothing is lost, and an idle connection is small.
    pub fn rest(&mut self) {
        if self.input.is_empty() && self.output.is_empty() && matches!(self.respond, Respond::Nothing) {
            let input = std::mem::take(&mut self.input);
            drop(input);
            (self.output, self.room, self.head) = (Output::default(), HeaderMap::new(), HeadDecoder::default());
        }
    }
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
