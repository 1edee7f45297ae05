//! The messages: payloads of frames.
//!
//! Each `encode` appends a complete frame with header, without a stream id (as on legs); `decode` reads a payload. On a
//! control connection [`crate::session::Session`] adds the stream ids.

mod association;
mod edges;
mod links;
mod network;

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr, SocketAddr},
};

use sallyport_model::{EdgeName, FlowRecord, HealthRecord, OriginAddr, RegionName, RequestRecord, TunnelId};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    Violation,
    frame::{
        FrameHeader, FrameType, HEADER_BYTES, MAX_CONTROL_MESSAGE_BYTES, MAX_FAILURE_MESSAGE_BYTES,
        MAX_SERVER_NAME_BYTES, put_frame,
    },
};

pub use association::{Associate, Associated};
pub use edges::{EdgePlace, Edges, MAX_EDGE_ADDRESSES, MAX_EDGE_PLACES, Neighbours};
pub use links::{Links, MAX_LINK_NAME_BYTES, MAX_LINK_REPORTS};
pub use network::{JoinNetwork, MAX_NETWORK_ROUTES, NetworkJoined};

/// The longest code of a refusal, in bytes; longer ones are cut.
pub const MAX_CODE_BYTES: usize = 64;
/// The longest sentence or URL in a control message, in bytes; longer ones are cut.
pub const MAX_TEXT_BYTES: usize = 1_024;
/// The longest credential, in bytes.
pub const MAX_CREDENTIAL_BYTES: usize = 512;
/// The longest name of a connector's program, in bytes.
pub const MAX_AGENT_BYTES: usize = 128;
/// The longest name of a connector's machine, in bytes: the limit of Linux.
pub const MAX_HOST_BYTES: usize = 64;

/// The most features in HELLO; further ones are ignored.
pub const MAX_FEATURES: usize = 32;
/// Length of the fields that may follow the server name in OPEN: flags, the destination, the first window.
const OPEN_MORE_BYTES: usize = 2 + (16 + 2) + 4;

/// Features of a connector beyond version 1 of the protocol, as listed in HELLO.
pub mod feature {
    /// Serves flows of datagrams.
    pub const DATAGRAMS: &str = "datagrams";
    /// Reads the fields that follow the server name in OPEN, and ignores unknown ones.
    pub const OPEN_FIELDS: &str = "open-fields";
    /// Accepts records of ended flows in REQUEST_LOG.
    pub const FLOW_LOG: &str = "flow-log";
    /// Accepts health changes of its origins in REQUEST_LOG.
    pub const HEALTH_LOG: &str = "health-log";
    /// Accepts lists of other edges in WELCOME and EDGES.
    pub const EDGES: &str = "edges";
}

macro_rules! json_message {
    ($name:ident, $kind:ident) => {
        impl $name {
            #[doc = concat!("Appends the message as a whole ", stringify!($kind), " frame.")]
            pub fn encode(&self, out: &mut Vec<u8>) {
                put_json(out, FrameType::$kind, &self.bounded());
            }

            /// Decodes the payload of such a frame; texts are cut to their bounds and stripped of control characters.
            pub fn decode(payload: &[u8]) -> Result<Self, Violation> {
                let message: Self = get_json(FrameType::$kind, payload)?;
                Ok(message.bounded())
            }
        }
    };
}

/// The connector's first frame on a control connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The supported protocol versions.
    pub versions: Vec<u16>,
    /// Name and version of the connector's program.
    pub agent: String,
    /// 16 random bytes that identify this run of the connector.
    #[serde(with = "hex")]
    pub connector: [u8; 16],
    /// The most legs that the connector opens.
    pub max_legs: u16,
    /// Features beyond the base protocol; see [`feature`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<String>,
    /// The host name of the connector's machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}
json_message!(Hello, Hello);

impl Hello {
    fn bounded(&self) -> Self {
        let features = self.features.iter().take(MAX_FEATURES).map(|name| clean(name, MAX_CODE_BYTES)).collect();
        let host = self.host.as_deref().map(|host| clean(host, MAX_HOST_BYTES)).filter(|host| !host.trim().is_empty());
        Self { agent: clean(&self.agent, MAX_AGENT_BYTES), features, host, ..self.clone() }
    }

    /// Whether the connector has this feature; see [`feature`].
    #[must_use]
    pub fn has(&self, feature: &str) -> bool {
        self.features.iter().any(|name| name == feature)
    }
}

/// The edge's answer to [`Hello`].
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The selected protocol version.
    pub version: u16,
    /// The id of the session.
    #[serde(with = "hex")]
    pub session: [u8; 16],
    /// The secret that legs of the session present.
    #[serde(with = "hex")]
    pub leg_secret: [u8; 32],
    /// Time without input after which a PING is sent, in milliseconds.
    pub keepalive_ms: u64,
    /// Consecutive unanswered PINGs after which the session is over.
    pub missed_limit: u32,
    /// Initial window of each stream in each direction, in bytes.
    pub stream_window: u32,
    /// The most concurrent streams of the session.
    pub max_streams: u32,
    /// The edge's name, if there may be several edges.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edge: Option<EdgeName>,
    /// The edge's region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<RegionName>,
    /// Other edges, as in [`Edges`]; only with [`feature::EDGES`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub edges: Vec<EdgePlace>,
    /// Whether the edge is being drained, as in [`Edges`]; only with [`feature::EDGES`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leave: bool,
    /// Whether the edge wants [`Links`]; older edges do not know the frame.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub link_reports: bool,
}
json_message!(Welcome, Welcome);

impl Welcome {
    fn bounded(&self) -> Self {
        Self { edges: edges::bounded(&self.edges), ..self.clone() }
    }
}

impl fmt::Debug for Welcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Welcome")
            .field("version", &self.version)
            .field("keepalive_ms", &self.keepalive_ms)
            .field("missed_limit", &self.missed_limit)
            .field("stream_window", &self.stream_window)
            .field("max_streams", &self.max_streams)
            .field("edge", &self.edge)
            .finish_non_exhaustive()
    }
}

/// Code of a refusal by an edge that cannot tell yet whether the tunnel exists: a later attempt may succeed.
pub const NOT_YET_KNOWN: &str = "not-yet-known";

/// A refusal: of a carrier (the REFUSED frame) or of one tunnel (within NOT_ATTACHED).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message} ({code})")]
pub struct Refusal {
    /// A short word for programs: "unknown-tunnel", "bad-credential", "replaced", "deleted", "shutting-down",
    /// "version", "protocol", "busy", "nothing-attached", [`NOT_YET_KNOWN`].
    pub code: String,
    /// One sentence for people.
    pub message: String,
    /// Whether trying again later makes sense.
    pub retry: bool,
}
json_message!(Refusal, Refused);

impl Refusal {
    /// A refusal with this code and message.
    #[must_use]
    pub fn new(code: &str, message: &str, retry: bool) -> Self {
        Self { code: code.to_owned(), message: message.to_owned(), retry }
    }

    fn bounded(&self) -> Self {
        Self {
            code: clean(&self.code, MAX_CODE_BYTES),
            message: clean(&self.message, MAX_TEXT_BYTES),
            retry: self.retry,
        }
    }
}

/// The connector presents the credential of a tunnel.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attach {
    /// The tunnel.
    pub tunnel: TunnelId,
    /// Its credential, at most [`MAX_CREDENTIAL_BYTES`].
    pub credential: String,
    /// Whether the connector wants a record of each request of the tunnel.
    #[serde(default)]
    pub request_log: bool,
    /// The origin's region, if the connector knows it; `None` means the edge's region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home: Option<RegionName>,
    /// The address at which the connector dials the origin, possibly a local one; absent from older connectors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<OriginAddr>,
    /// Whether the connector spreads streams over several endpoints. The edge then opens a stream for each request
    /// instead of keeping one for the next; older edges ignore this.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub spread: bool,
}

impl Attach {
    /// Appends the message as a whole ATTACH frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_json(out, FrameType::Attach, self);
    }

    /// Reads the payload of such a frame.
    pub fn decode(payload: &[u8]) -> Result<Self, Violation> {
        let mut message: Self = get_json(FrameType::Attach, payload)?;
        // A text that is no address counts as absent.
        message.origin = message.origin.and_then(|origin| origin.to_string().parse().ok());
        if message.credential.len() > MAX_CREDENTIAL_BYTES {
            return Err(bad(FrameType::Attach, format!("the credential is longer than {MAX_CREDENTIAL_BYTES} bytes")));
        }
        Ok(message)
    }
}

impl fmt::Debug for Attach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attach")
            .field("tunnel", &self.tunnel)
            .field("request_log", &self.request_log)
            .field("home", &self.home)
            .finish_non_exhaustive()
    }
}

/// The tunnel is attached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attached {
    /// The tunnel.
    pub tunnel: TunnelId,
    /// Public URL of the socket.
    pub url: String,
    /// Whether the socket's clients send datagrams: the connector opens a datagram leg if the session has none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub datagrams: bool,
}
json_message!(Attached, Attached);

impl Attached {
    fn bounded(&self) -> Self {
        Self { tunnel: self.tunnel, url: clean(&self.url, MAX_TEXT_BYTES), datagrams: self.datagrams }
    }
}

/// The tunnel is not attached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotAttached {
    /// The tunnel.
    pub tunnel: TunnelId,
    /// The reason.
    #[serde(flatten)]
    pub refusal: Refusal,
}
json_message!(NotAttached, NotAttached);

impl NotAttached {
    fn bounded(&self) -> Self {
        Self { tunnel: self.tunnel, refusal: self.refusal.bounded() }
    }
}

/// The tunnel is detached from the session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Detach {
    /// The tunnel.
    pub tunnel: TunnelId,
    /// A short word for programs.
    pub code: String,
    /// One sentence for people.
    pub message: String,
}
json_message!(Detach, Detach);

impl Detach {
    fn bounded(&self) -> Self {
        Self {
            tunnel: self.tunnel,
            code: clean(&self.code, MAX_CODE_BYTES),
            message: clean(&self.message, MAX_TEXT_BYTES),
        }
    }
}

/// No new streams are accepted on this session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GoAway {
    /// A short word for programs.
    pub code: String,
    /// One sentence for people.
    pub message: String,
}
json_message!(GoAway, GoAway);

impl GoAway {
    fn bounded(&self) -> Self {
        Self { code: clean(&self.code, MAX_CODE_BYTES), message: clean(&self.message, MAX_TEXT_BYTES) }
    }
}

/// The connector's first frame on a leg or a datagram leg.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Join {
    /// The session that the leg belongs to.
    pub session: [u8; 16],
    /// The secret from its WELCOME.
    pub leg_secret: [u8; 32],
}

impl Join {
    /// Appends the message as a whole JOIN frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.encode_as(FrameType::Join, out);
    }

    /// Appends the message as a whole JOIN_DATAGRAMS frame.
    pub fn encode_datagrams(&self, out: &mut Vec<u8>) {
        self.encode_as(FrameType::JoinDatagrams, out);
    }

    fn encode_as(&self, kind: FrameType, out: &mut Vec<u8>) {
        put_frame(out, kind, |out| {
            out.extend_from_slice(&self.session);
            out.extend_from_slice(&self.leg_secret);
        });
    }

    /// Reads the payload of either frame.
    pub fn decode(payload: &[u8]) -> Result<Self, Violation> {
        let mut rest = Fields { kind: FrameType::Join, rest: payload };
        let join = Self { session: rest.take()?, leg_secret: rest.take()? };
        rest.end()?;
        Ok(join)
    }
}

impl fmt::Debug for Join {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Join(..)")
    }
}

/// The protocol that the origin speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum StreamProtocol {
    /// Opaque bytes.
    Raw = 0,
    /// HTTP/1.1.
    Http1 = 1,
    /// HTTP/2.
    Http2 = 2,
}

/// The opening of a stream: its tunnel and addresses.
#[derive(Debug, Clone, PartialEq)]
pub struct Open {
    /// The tunnel.
    pub tunnel: TunnelId,
    /// The origin's protocol.
    pub protocol: StreamProtocol,
    /// The client's address.
    pub client: SocketAddr,
    /// The address that the client connected to; `None` if the edge does not report it.
    pub destination: Option<SocketAddr>,
    /// Time of the opening at the edge, in microseconds since 1970 (UTC).
    pub opened_at_us: u64,
    /// The name that the client requested, at most [`MAX_SERVER_NAME_BYTES`] bytes; longer ones are cut.
    pub server_name: String,
}

impl Open {
    /// Appends the message as a whole OPEN frame of a leg.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_frame(out, FrameType::Open, |out| self.encode_payload(None, out));
    }

    /// Writes the fields after the server name only if needed: peers without support get neither a destination nor a
    /// window.
    pub(crate) fn encode_payload(&self, first_window: Option<u32>, out: &mut Vec<u8>) {
        out.extend_from_slice(self.tunnel.as_bytes());
        out.push(self.protocol as u8);
        put_address(out, self.client);
        out.extend_from_slice(&self.opened_at_us.to_be_bytes());
        let name = cut(&self.server_name, MAX_SERVER_NAME_BYTES);
        out.push(name.len() as u8);
        out.extend_from_slice(name.as_bytes());
        if self.destination.is_some() || first_window.is_some() {
            let flags = 0_u16;
            out.extend_from_slice(&flags.to_be_bytes());
            put_address(out, self.destination.unwrap_or(UNKNOWN_ADDRESS));
            out.extend_from_slice(&first_window.unwrap_or(0).to_be_bytes());
        }
    }

    /// Reads the payload of an OPEN frame, on a control connection without the stream's id.
    pub fn decode(payload: &[u8]) -> Result<Self, Violation> {
        Self::decode_with_window(payload).map(|(open, _)| open)
    }

    /// Like [`Self::decode`], with the stream's initial window if the frame has one.
    pub(crate) fn decode_with_window(payload: &[u8]) -> Result<(Self, Option<u32>), Violation> {
        const KIND: FrameType = FrameType::Open;
        let mut rest = Fields { kind: KIND, rest: payload };
        let tunnel = TunnelId::from_bytes(rest.take()?);
        let [protocol] = rest.take()?;
        let protocol = match protocol {
            0 => StreamProtocol::Raw,
            1 => StreamProtocol::Http1,
            2 => StreamProtocol::Http2,
            other => return Err(bad(KIND, format!("{other} is no protocol of an origin"))),
        };
        let client = rest.address()?;
        let opened_at_us = u64::from_be_bytes(rest.take()?);
        let [name_len] = rest.take()?;
        let Some((name, more)) = rest.rest.split_at_checked(usize::from(name_len)) else {
            return Err(bad(KIND, format!("the server name should have {name_len} bytes, not {}", rest.rest.len())));
        };
        let server_name =
            std::str::from_utf8(name).map_err(|_| bad(KIND, "the server name is not UTF-8".to_owned()))?.to_owned();
        let (mut destination, mut first_window) = (None, None);
        if !more.is_empty() {
            if more.len() < OPEN_MORE_BYTES {
                return Err(bad(KIND, "what follows the server name is too short".to_owned()));
            }
            // Fields and flags of later versions are ignored.
            let mut rest = Fields { kind: KIND, rest: more };
            let _flags = u16::from_be_bytes(rest.take()?);
            destination = Some(rest.address()?).filter(|address| *address != UNKNOWN_ADDRESS);
            first_window = Some(u32::from_be_bytes(rest.take()?)).filter(|window| *window > 0);
        }
        Ok((Self { tunnel, protocol, client, destination, opened_at_us, server_name }, first_window))
    }
}

/// Stands for an unreported address.
const UNKNOWN_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0);

/// Appends an address (16 bytes, IPv4 mapped to IPv6) and its port.
pub(crate) fn put_address(out: &mut Vec<u8>, address: SocketAddr) {
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    out.extend_from_slice(&ip.octets());
    out.extend_from_slice(&address.port().to_be_bytes());
}

/// Reason why the origin was not reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FailureReason {
    /// Nothing listens at the address.
    Refused = 1,
    /// The origin did not answer in time.
    TimedOut = 2,
    /// The origin's name has no address.
    Unresolved = 3,
    /// The TLS handshake with it failed.
    Tls = 4,
    /// The tunnel is being detached and accepts no new streams.
    Draining = 5,
    /// Anything else; also codes of later versions.
    Other = 0,
}

impl FailureReason {
    /// The reason as a short word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::TimedOut => "timed-out",
            Self::Unresolved => "unresolved",
            Self::Tls => "tls",
            Self::Draining => "draining",
            Self::Other => "other",
        }
    }

    fn from_byte(byte: u8) -> Self {
        match byte {
            1 => Self::Refused,
            2 => Self::TimedOut,
            3 => Self::Unresolved,
            4 => Self::Tls,
            5 => Self::Draining,
            _ => Self::Other,
        }
    }
}

/// The origin was not reached, and received nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct OpenFailure {
    /// The reason for programs.
    pub reason: FailureReason,
    /// The reason for people: one sentence of at most [`MAX_FAILURE_MESSAGE_BYTES`] bytes; longer ones are cut.
    pub message: String,
}

impl OpenFailure {
    /// A failure with this reason and message.
    #[must_use]
    pub fn new(reason: FailureReason, message: &str) -> Self {
        Self { reason, message: message.to_owned() }
    }

    /// Appends the message as a whole FAILED frame of a leg.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_frame(out, FrameType::Failed, |out| self.encode_payload(out));
    }

    pub(crate) fn encode_payload(&self, out: &mut Vec<u8>) {
        out.push(self.reason as u8);
        out.extend_from_slice(cut(&self.message, MAX_FAILURE_MESSAGE_BYTES).as_bytes());
    }

    /// Reads the payload of a FAILED frame, on a control connection without the stream's id.
    pub fn decode(payload: &[u8]) -> Result<Self, Violation> {
        let (&reason, message) =
            payload.split_first().ok_or_else(|| bad(FrameType::Failed, "the reason is missing".to_owned()))?;
        let message = clean(&String::from_utf8_lossy(message), MAX_FAILURE_MESSAGE_BYTES);
        Ok(Self { reason: FailureReason::from_byte(reason), message })
    }
}

/// Reason why a stream was reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ResetCode {
    /// No longer needed; also codes of later versions.
    Cancelled = 0,
    /// The origin broke the connection.
    OriginReset = 1,
    /// A timeout.
    Timeout = 2,
    /// A protocol error on the stream.
    Protocol = 3,
    /// An internal error.
    Internal = 4,
}

impl ResetCode {
    /// The code as a short word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cancelled => "cancelled",
            Self::OriginReset => "origin-reset",
            Self::Timeout => "timeout",
            Self::Protocol => "protocol",
            Self::Internal => "internal",
        }
    }

    fn from_byte(byte: u8) -> Self {
        match byte {
            1 => Self::OriginReset,
            2 => Self::Timeout,
            3 => Self::Protocol,
            4 => Self::Internal,
            _ => Self::Cancelled,
        }
    }
}

impl fmt::Display for ResetCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A RESET frame of a leg; `serial` is [`crate::LegState::serial`].
#[must_use]
pub fn reset_frame(serial: u32, code: ResetCode) -> [u8; HEADER_BYTES + 5] {
    let [a, b, c, d] = FrameHeader { kind: FrameType::Reset, len: 5 }.encode();
    let [e, f, g, h] = serial.to_be_bytes();
    [a, b, c, d, e, f, g, h, code as u8]
}

/// A frame of a leg without payload: OPENED or FIN.
#[must_use]
pub fn empty_frame(kind: FrameType) -> [u8; HEADER_BYTES] {
    FrameHeader { kind, len: 0 }.encode()
}

/// Serial number and code of a RESET frame's payload, on a control connection without the stream's id.
pub(crate) fn decode_reset(payload: &[u8]) -> Result<(u32, ResetCode), Violation> {
    let mut rest = Fields { kind: FrameType::Reset, rest: payload };
    let serial = u32::from_be_bytes(rest.take()?);
    let [code] = rest.take()?;
    rest.end()?;
    Ok((serial, ResetCode::from_byte(code)))
}

/// The content of a REQUEST_LOG frame; the fields decide which of the three it is.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum LogRecord {
    /// A served request.
    Request(RequestRecord),
    /// An ended flow; see [`feature::FLOW_LOG`].
    Flow(FlowRecord),
    /// A change of an origin's health; see [`feature::HEALTH_LOG`].
    Health(HealthRecord),
}

/// Appends one record as a REQUEST_LOG frame; false, with nothing appended, if it is too long.
pub(crate) fn encode_request_log(record: &impl Serialize, out: &mut Vec<u8>) -> bool {
    let start = out.len();
    put_json(out, FrameType::RequestLog, record);
    let fits = out.len() - start <= HEADER_BYTES + MAX_CONTROL_MESSAGE_BYTES;
    if !fits {
        out.truncate(start);
    }
    fits
}

/// Reads the payload of a REQUEST_LOG frame.
pub(crate) fn decode_request_log(payload: &[u8]) -> Result<LogRecord, Violation> {
    get_json(FrameType::RequestLog, payload)
}

/// The fields of a binary payload, taken from its front.
pub(crate) struct Fields<'a> {
    pub(crate) kind: FrameType,
    pub(crate) rest: &'a [u8],
}

impl Fields<'_> {
    pub(crate) fn take<const N: usize>(&mut self) -> Result<[u8; N], Violation> {
        let (field, rest) =
            self.rest.split_first_chunk().ok_or_else(|| bad(self.kind, "the payload is too short".to_owned()))?;
        self.rest = rest;
        Ok(*field)
    }

    /// An address and its port, see [`put_address`].
    pub(crate) fn address(&mut self) -> Result<SocketAddr, Violation> {
        let address = Ipv6Addr::from(self.take::<16>()?).to_canonical();
        Ok(SocketAddr::new(address, u16::from_be_bytes(self.take()?)))
    }

    fn end(&self) -> Result<(), Violation> {
        if self.rest.is_empty() { Ok(()) } else { Err(bad(self.kind, "the payload is too long".to_owned())) }
    }
}

pub(crate) fn bad(kind: FrameType, detail: String) -> Violation {
    Violation::BadMessage { kind, detail }
}

fn put_json(out: &mut Vec<u8>, kind: FrameType, message: &impl Serialize) {
    put_frame(out, kind, |out| {
        // Plain structs of texts and numbers, written to memory, cannot fail.
        serde_json::to_writer(out, message).expect("a control message is plain data");
    });
}

fn get_json<T: DeserializeOwned>(kind: FrameType, payload: &[u8]) -> Result<T, Violation> {
    serde_json::from_slice(payload).map_err(|error| bad(kind, clean(&error.to_string(), MAX_TEXT_BYTES)))
}

/// The text, cut to the bound.
fn cut(text: &str, max_bytes: usize) -> &str {
    &text[..text.floor_char_boundary(max_bytes)]
}

/// The text, cut to the bound and without control characters, which could manipulate a terminal or a log.
fn clean(text: &str, max_bytes: usize) -> String {
    cut(text, max_bytes).chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>()
}

/// Byte arrays as lower-case hexadecimal text.
mod hex {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer, const N: usize>(bytes: &[u8; N], to: S) -> Result<S::Ok, S::Error> {
        let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        to.serialize_str(&text)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>, const N: usize>(from: D) -> Result<[u8; N], D::Error> {
        let text = String::deserialize(from)?;
        let wrong = || D::Error::custom(format!("expected {} hexadecimal digits", N * 2));
        if text.len() != N * 2 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let mut bytes = [0; N];
        for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
            let digits = std::str::from_utf8(digits).map_err(|_| wrong())?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| wrong())?;
        }
        Ok(bytes)
    }
}
