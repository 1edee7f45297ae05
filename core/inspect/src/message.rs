//! An exchange: a request with its response, as it is kept.

use std::time::Instant;

use bytes::Bytes;

/// A header field, in the spelling and the order in which it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// The name.
    pub name: String,
    /// The value, with [`REDACTED`](crate::REDACTED) in the place of a secret.
    pub value: Bytes,
    /// Whether something was taken out.
    pub is_redacted: bool,
}

impl Field {
    /// The value as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.value).into_owned()
    }
}

/// What was kept of a body.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Body {
    /// The bytes that were kept: the first ones.
    pub bytes: Bytes,
    /// How many bytes passed.
    pub passed: u64,
    /// Whether the bytes that were kept end before those that passed.
    pub is_truncated: bool,
    /// Whether its end has passed.
    pub is_complete: bool,
    /// How many bytes the capture missed, because it had no room.
    pub missed: u64,
    /// Whether secrets were taken out.
    pub is_redacted: bool,
    /// Whether the bytes are kept without their content coding, because secrets were taken out.
    pub is_kept_decoded: bool,
}

/// One direction of an exchange.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Message {
    /// `HTTP/1.1` or `HTTP/2`.
    pub version: &'static str,
    /// The header fields.
    pub fields: Vec<Field>,
    /// The fields behind the body.
    pub trailers: Vec<Field>,
    /// The body.
    pub body: Body,
}

impl Message {
    /// The first value of the field with this name.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<String> {
        self.fields.iter().find(|field| field.name.eq_ignore_ascii_case(name)).map(Field::text)
    }

    /// The type of the body, as the message says.
    #[must_use]
    pub fn content_type(&self) -> String {
        self.field("content-type").unwrap_or_default()
    }

    /// The content coding of the bytes that were kept.
    #[must_use]
    pub fn encoding(&self) -> String {
        if self.body.is_kept_decoded { String::new() } else { self.field("content-encoding").unwrap_or_default() }
    }

    /// The memory that it takes, in bytes.
    pub(crate) fn size(&self) -> usize {
        let of = |fields: &[Field]| fields.iter().map(|field| field.name.len() + field.value.len() + 64).sum::<usize>();
        of(&self.fields) + of(&self.trailers) + self.body.bytes.len()
    }
}

/// What kind of exchange it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// A request and a response.
    Http,
    /// A WebSocket.
    WebSocket,
    /// A response of server-sent events.
    Sse,
    /// A call of gRPC.
    Grpc,
}

/// Who sent a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// The client.
    Client,
    /// The service.
    Service,
}

/// What kind of message a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameKind {
    /// Text of a WebSocket.
    Text,
    /// Bytes of a WebSocket.
    Binary,
    /// A ping of a WebSocket.
    Ping,
    /// A pong of a WebSocket.
    Pong,
    /// The close of a WebSocket.
    Close,
    /// A server-sent event.
    Event,
    /// A message of gRPC.
    Grpc,
}

impl FrameKind {
    /// The kind as a word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Binary => "binary",
            Self::Ping => "ping",
            Self::Pong => "pong",
            Self::Close => "close",
            Self::Event => "event",
            Self::Grpc => "message",
        }
    }
}

/// One message of a WebSocket, of server-sent events or of gRPC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Counts up from 1 in its exchange.
    pub number: u64,
    /// When it passed, in milliseconds since 1970 (UTC).
    pub at_ms: i64,
    /// Its sender.
    pub from: From,
    /// Its kind.
    pub kind: FrameKind,
    /// Its content, decompressed where it was compressed, without secrets.
    pub data: Bytes,
    /// The length of its content as it passed.
    pub bytes: u64,
    /// Whether the content is cut.
    pub is_truncated: bool,
    /// One sentence about what could not be read.
    pub problem: Option<String>,
}

/// Where an exchange came from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Source {
    /// The tunnel.
    pub tunnel: Option<String>,
    /// The socket, as people name it.
    pub socket: Option<String>,
    /// The edge.
    pub edge: Option<String>,
    /// The client's address.
    pub client: Option<String>,
}

/// A request, its response, and what is known about both.
#[derive(Debug, Clone)]
pub struct Exchange {
    /// Counts up from 1.
    pub id: u64,
    /// The id at the edge, which joins it with the request log.
    pub request_id: Option<String>,
    /// When the request came, in milliseconds since 1970 (UTC).
    pub at_ms: i64,
    /// When the request came, for durations.
    pub began: Instant,
    /// Where it came from.
    pub source: Source,
    /// The kind.
    pub protocol: Protocol,
    /// The method.
    pub method: String,
    /// The path with its query, without secrets.
    pub target: String,
    /// Whether secrets were taken out of the target.
    pub is_target_redacted: bool,
    /// The path with its query before the edge changed it for the service, without secrets, if it differs.
    pub public_target: Option<String>,
    /// The requested host.
    pub host: String,
    /// The request.
    pub request: Message,
    /// The status, once the response has begun or the edge has said so.
    pub status: Option<u16>,
    /// The response.
    pub response: Option<Message>,
    /// Microseconds from the request to the first byte of the response.
    pub first_byte_us: Option<u64>,
    /// Microseconds to the end; `None` while it runs.
    pub duration_us: Option<u64>,
    /// Whether it ended without a whole response.
    pub is_failed: bool,
    /// The person or service token that the edge let in.
    pub identity: Option<String>,
    /// The rule that decided about access.
    pub rule: Option<String>,
    /// Why the edge did not serve it, if so.
    pub refused: Option<String>,
    /// Whether the edge has reported it.
    pub is_recorded: bool,
    /// The exchange that was sent again.
    pub replay_of: Option<u64>,
    /// What went wrong, one sentence each.
    pub problems: Vec<String>,
    /// The last messages of a WebSocket, of server-sent events or of gRPC.
    pub frames: std::collections::VecDeque<Frame>,
    /// How many messages passed.
    pub frame_count: u64,
    /// The memory that it takes, in bytes.
    pub(crate) size: usize,
}

impl Exchange {
    /// The memory that it takes, in bytes.
    pub(crate) fn measured(&self) -> usize {
        let frames: usize = self.frames.iter().map(|frame| frame.data.len() + 96).sum();
        let problems: usize = self.problems.iter().map(String::len).sum();
        let response = self.response.as_ref().map_or(0, Message::size);
        let public = self.public_target.as_ref().map_or(0, String::len);
        512 + public
            + self.method.len()
            + self.target.len()
            + self.host.len()
            + problems
            + self.request.size()
            + response
            + frames
    }
}
