//! The answers and requests of the local API.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde::{Deserialize, Serialize};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use utoipa::{IntoParams, ToSchema};

use crate::{
    inspector::REPLAY_FIELD,
    message::{Exchange, Field, Frame as KeptFrame, From as Sender, Message as KeptMessage, Protocol as KeptProtocol},
};

/// The kind of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// A request and a response.
    Http,
    /// A WebSocket.
    WebSocket,
    /// Server-sent events.
    Sse,
    /// gRPC.
    Grpc,
}

/// Whether an exchange runs, or how it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ExchangeState {
    /// It runs.
    Open,
    /// It is complete.
    Complete,
    /// It broke, or the service did not answer.
    Failed,
    /// The edge refused it.
    Denied,
}

/// One request and its response, in short.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = Exchange)]
pub struct Summary {
    /// Counts up from 1 as long as the program runs.
    pub id: u64,
    /// The time when the request came.
    #[schema(format = DateTime)]
    pub began: String,
    /// The method.
    pub method: String,
    /// The requested host.
    pub host: String,
    /// The path with its query, without secrets.
    pub path: String,
    /// The kind.
    pub protocol: Protocol,
    /// Whether it runs, or how it ended.
    pub state: ExchangeState,
    /// The status of the response.
    pub status: Option<u16>,
    /// The time that it took, in milliseconds; absent while it runs.
    pub duration_ms: Option<f64>,
    /// Bytes of the request's body so far.
    pub request_bytes: u64,
    /// Bytes of the response's body so far.
    pub response_bytes: u64,
    /// The socket, as people name it.
    pub socket_name: Option<String>,
    /// The person or service token that the edge let in.
    pub identity: Option<String>,
    /// The rule that decided about access.
    pub rule: Option<String>,
    /// The edge.
    pub edge: Option<String>,
    /// The client's address.
    pub client: Option<String>,
    /// One sentence about what went wrong.
    pub error: Option<String>,
    /// The exchange that was sent again.
    pub replay_of: Option<u64>,
    /// How many messages of a WebSocket, of server-sent events or of gRPC passed.
    pub frames: u64,
}

/// A header field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Header {
    /// The name, as it came.
    pub name: String,
    /// The value; bytes that are no UTF-8 are replaced.
    pub value: String,
}

/// What was kept of one direction.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Message {
    /// `HTTP/1.1` or `HTTP/2`.
    pub version: Option<String>,
    /// The header fields, in the order in which they came.
    pub headers: Vec<Header>,
    /// The fields behind the body.
    pub trailers: Vec<Header>,
    /// The length of the body that passed.
    pub bytes: u64,
    /// How much of the body was kept.
    pub kept: u64,
    /// Whether less was kept than passed.
    pub is_truncated: bool,
    /// Whether the end of the body has passed.
    pub is_complete: bool,
    /// How many bytes the capture missed, because it had no room.
    pub missed: u64,
    /// The type of the body.
    pub content_type: Option<String>,
    /// The content coding of the body as it is kept.
    pub content_encoding: Option<String>,
    /// Names of what was taken out before it was kept.
    pub redacted: Vec<String>,
}

/// A moment, in milliseconds after the request came.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Moment {
    /// What happened.
    pub name: String,
    /// When.
    pub at_ms: f64,
}

/// A further fact.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Fact {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// All of an exchange but its bodies.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Details {
    /// The exchange in short.
    #[serde(flatten)]
    pub summary: Summary,
    /// The request; without fields if only the edge's record of it is known.
    pub request: Message,
    /// The response.
    pub response: Option<Message>,
    /// Moments since the request came.
    pub timing: Vec<Moment>,
    /// Further facts.
    pub facts: Vec<Fact>,
}

/// The kind of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ViewKind {
    /// There is none.
    Empty,
    /// JSON, indented in `text`.
    Json,
    /// A form, in `parts`.
    Form,
    /// A multipart body, in `parts`.
    Multipart,
    /// An image of a safe type.
    Image,
    /// Text.
    Text,
    /// Bytes.
    Binary,
    /// Messages of gRPC, which are frames.
    Grpc,
}

/// A part of a form or a multipart body.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Part {
    /// Its name.
    pub name: Option<String>,
    /// The name of its file.
    pub file_name: Option<String>,
    /// Its type.
    pub content_type: Option<String>,
    /// Its length.
    pub bytes: u64,
    /// Its content, if it is text.
    pub text: Option<String>,
}

/// A body, decoded for reading.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct View {
    /// The kind.
    pub kind: ViewKind,
    /// The type, as the message says.
    pub content_type: Option<String>,
    /// The length after decoding.
    pub bytes: u64,
    /// Whether there was more.
    pub is_truncated: bool,
    /// The text.
    pub text: Option<String>,
    /// The parts of a form or a multipart body.
    pub parts: Vec<Part>,
    /// One sentence about why it could not be decoded or is malformed.
    pub problem: Option<String>,
    /// The line of the problem in `text`, from 1.
    pub problem_line: Option<u32>,
    /// The column of the problem in its line, from 1.
    pub problem_column: Option<u32>,
}

/// The sender of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum FrameSender {
    /// The client.
    Client,
    /// The service.
    Service,
}

/// One message of a WebSocket, of server-sent events or of gRPC.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Frame {
    /// Counts up from 1 in its exchange.
    pub number: u64,
    /// When it passed.
    #[schema(format = DateTime)]
    pub at: String,
    /// Its sender.
    pub from: FrameSender,
    /// `text`, `binary`, `ping`, `pong`, `close`, `event` or `message`.
    pub kind: String,
    /// Its length as it passed.
    pub bytes: u64,
    /// Whether less was kept.
    pub is_truncated: bool,
    /// The content, if it is UTF-8.
    pub text: Option<String>,
    /// The content, if it is not.
    pub base64: Option<String>,
    /// One sentence about what could not be read.
    pub problem: Option<String>,
}

/// A frame of an exchange, in the stream of events.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct FrameEvent {
    /// The exchange.
    pub exchange: u64,
    /// The frame.
    pub frame: Frame,
}

/// A page of exchanges.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ExchangePage {
    /// The exchanges, the newest first.
    pub items: Vec<Summary>,
    /// The `before` of the next page, if there may be more.
    pub next: Option<u64>,
}

/// A page of frames.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct FramePage {
    /// The frames, the oldest first.
    pub items: Vec<Frame>,
    /// The `after` of the next page, if there are more.
    pub next: Option<u64>,
    /// How many earlier ones were dropped.
    pub dropped: u64,
}

/// A tunnel that is held.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct TunnelState {
    /// Its public address.
    pub url: String,
    /// The socket, as people name it.
    pub socket_name: Option<String>,
    /// The service.
    pub target: Option<String>,
}

/// An edge that holds tunnels.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct EdgeState {
    /// Its name.
    pub name: String,
    /// Whether it is connected.
    pub is_up: bool,
}

/// The state of the inspector.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct State {
    /// The tunnels.
    pub tunnels: Vec<TunnelState>,
    /// The edges.
    pub edges: Vec<EdgeState>,
    /// How many exchanges are kept.
    pub exchanges: u64,
    /// The memory that they take, in bytes.
    pub bytes: u64,
    /// The greatest number of exchanges.
    pub max_exchanges: u64,
    /// The most memory, in bytes.
    pub max_bytes: u64,
    /// How many exchanges were dropped to keep the bounds.
    pub dropped: u64,
    /// How many bytes the capture missed, because it had no room.
    pub missed_bytes: u64,
    /// The version of the program.
    pub version: String,
}

/// What a line of a comparison is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DiffOp {
    /// Both have it.
    Same,
    /// Only the first has it.
    Removed,
    /// Only the second has it.
    Added,
}

/// A line of a comparison.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct DiffLine {
    /// What it is.
    pub op: DiffOp,
    /// The line.
    pub text: String,
}

/// A part of a comparison.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct DiffSection {
    /// What is compared.
    pub title: String,
    /// The lines.
    pub lines: Vec<DiffLine>,
}

/// The comparison of two exchanges.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Diff {
    /// Its parts.
    pub sections: Vec<DiffSection>,
}

/// What is sent again; what is absent is taken from the exchange.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Replay {
    /// Another method.
    pub method: Option<String>,
    /// Another path with its query.
    pub path: Option<String>,
    /// All header fields, in place of those of the exchange.
    pub headers: Option<Vec<Header>>,
    /// Another body, in base64.
    pub body_base64: Option<String>,
    /// Whether the person has confirmed what the first answer asked.
    #[serde(default)]
    pub confirm: bool,
}

/// A request that was sent again.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Replayed {
    /// The new exchange.
    pub id: u64,
}

/// A refusal (RFC 9457).
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Problem {
    /// The status.
    pub status: u16,
    /// The problem in a few words.
    pub title: String,
    /// One sentence about what to do.
    pub detail: String,
    /// Whether the same request with `confirm` is accepted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub needs_confirmation: bool,
}

/// Which exchanges are listed.
#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListQuery {
    /// Words and `key:value` pairs, such as `status:5xx path:/hook`.
    #[serde(default)]
    pub filter: String,
    /// Only exchanges before the one with this id.
    pub before: Option<u64>,
    /// How many, 1 to 1,000; 100 if absent.
    pub limit: Option<usize>,
}

/// A time as RFC 3339 text.
#[must_use]
pub fn date_time(at_ms: i64) -> String {
    let at = OffsetDateTime::from_unix_timestamp_nanos(i128::from(at_ms) * 1_000_000);
    at.ok().and_then(|at| at.format(&Rfc3339).ok()).unwrap_or_default()
}

fn millis(micros: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "durations are far below 2^53 microseconds")]
    let millis = micros as f64 / 1_000.0;
    millis
}

impl From<KeptProtocol> for Protocol {
    fn from(protocol: KeptProtocol) -> Self {
        match protocol {
            KeptProtocol::Http => Self::Http,
            KeptProtocol::WebSocket => Self::WebSocket,
            KeptProtocol::Sse => Self::Sse,
            KeptProtocol::Grpc => Self::Grpc,
        }
    }
}

impl From<&Exchange> for Summary {
    fn from(exchange: &Exchange) -> Self {
        let is_captured = !exchange.request.version.is_empty();
        let state = match (&exchange.refused, exchange.duration_us) {
            (Some(_), _) if !is_captured => ExchangeState::Denied,
            (Some(_), _) => ExchangeState::Failed,
            (None, _) if exchange.is_failed => ExchangeState::Failed,
            (None, None) => ExchangeState::Open,
            (None, Some(_)) => ExchangeState::Complete,
        };
        // The reasons of failed origins begin so; all others are refusals.
        let is_of_origin = exchange.refused.as_deref().is_some_and(|reason| reason.starts_with("origin"));
        let state = if state == ExchangeState::Denied && is_of_origin { ExchangeState::Failed } else { state };
        let refused = exchange.refused.as_ref().map(|reason| match is_of_origin {
            true => format!("The service did not answer: {reason}."),
            false => format!("The edge refused it: {reason}."),
        });
        Self {
            id: exchange.id,
            began: date_time(exchange.at_ms),
            method: exchange.method.clone(),
            host: exchange.host.clone(),
            path: exchange.target.clone(),
            protocol: exchange.protocol.into(),
            state,
            status: exchange.status,
            duration_ms: exchange.duration_us.map(millis),
            request_bytes: exchange.request.body.passed,
            response_bytes: exchange.response.as_ref().map_or(0, |response| response.body.passed),
            socket_name: exchange.source.socket.clone(),
            identity: exchange.identity.clone(),
            rule: exchange.rule.clone(),
            edge: exchange.source.edge.clone(),
            client: exchange.source.client.clone(),
            error: exchange.problems.first().cloned().or(refused),
            replay_of: exchange.replay_of,
            frames: exchange.frame_count,
        }
    }
}

impl From<&Field> for Header {
    fn from(field: &Field) -> Self {
        Self { name: field.name.clone(), value: field.text() }
    }
}

impl From<&KeptMessage> for Message {
    fn from(message: &KeptMessage) -> Self {
        let body = &message.body;
        let secret = message.fields.iter().chain(&message.trailers).filter(|field| field.is_redacted);
        let mut redacted: Vec<String> = secret.map(|field| field.name.clone()).collect();
        if body.is_redacted {
            redacted.push("values in the body".to_owned());
        }
        Self {
            version: Some(message.version.to_owned()).filter(|version| !version.is_empty()),
            headers: message.fields.iter().map(Header::from).collect(),
            trailers: message.trailers.iter().map(Header::from).collect(),
            bytes: body.passed,
            kept: body.bytes.len() as u64,
            is_truncated: body.is_truncated,
            is_complete: body.is_complete,
            missed: body.missed,
            content_type: Some(message.content_type()).filter(|found| !found.is_empty()),
            content_encoding: Some(message.encoding()).filter(|found| !found.is_empty()),
            redacted,
        }
    }
}

impl From<&Exchange> for Details {
    fn from(exchange: &Exchange) -> Self {
        let mut facts = Vec::new();
        let mut fact = |name: &str, value: &str| facts.push(Fact { name: name.to_owned(), value: value.to_owned() });
        if let Some(id) = &exchange.request_id {
            fact("Request id", id);
        }
        if let Some(reason) = &exchange.refused {
            fact("Not served", reason);
        }
        if let Some(target) = &exchange.public_target {
            fact("Path at the edge", target);
        }
        if exchange.is_target_redacted {
            fact("Redacted", "values in the query");
        }
        if exchange.replay_of.is_some() {
            fact("Mark", REPLAY_FIELD);
        }
        exchange.problems.iter().for_each(|problem| fact("Problem", problem));
        let moment = |name: &str, at: Option<u64>| at.map(|at| Moment { name: name.to_owned(), at_ms: millis(at) });
        let timing = [moment("first byte", exchange.first_byte_us), moment("end", exchange.duration_us)];
        Self {
            summary: exchange.into(),
            request: (&exchange.request).into(),
            response: exchange.response.as_ref().map(Message::from),
            timing: timing.into_iter().flatten().collect(),
            facts,
        }
    }
}

impl From<&KeptFrame> for Frame {
    fn from(frame: &KeptFrame) -> Self {
        let text = match frame.is_truncated {
            // The cut may be within a letter.
            true => Some(String::from_utf8_lossy(&frame.data).into_owned()),
            false => std::str::from_utf8(&frame.data).ok().map(str::to_owned),
        };
        let text = match frame.data.split_first_chunk::<2>() {
            Some((code, reason)) if frame.kind == crate::FrameKind::Close => {
                let reason = String::from_utf8_lossy(reason);
                Some(format!("{} {reason}", u16::from_be_bytes(*code)).trim_end().to_owned())
            }
            _ => text,
        };
        let text = text.filter(|_| !matches!(frame.kind, crate::FrameKind::Binary | crate::FrameKind::Grpc));
        let base64 = text.is_none().then(|| BASE64_STANDARD.encode(&frame.data));
        let from = match frame.from {
            Sender::Client => FrameSender::Client,
            Sender::Service => FrameSender::Service,
        };
        Self {
            number: frame.number,
            at: date_time(frame.at_ms),
            from,
            kind: frame.kind.as_str().to_owned(),
            bytes: frame.bytes,
            is_truncated: frame.is_truncated,
            text,
            base64,
            problem: frame.problem.clone(),
        }
    }
}
