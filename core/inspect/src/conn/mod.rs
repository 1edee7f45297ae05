//! The parsing of connections: from the bytes of both directions to messages.
//!
//! Uses `message`. [`http1`] and [`http2`] are connections, [`websocket`] is what an HTTP/1.1 connection may become.
//! [`events`] and [`grpc`] take messages out of bodies.

pub(crate) mod events;
pub(crate) mod grpc;
pub(crate) mod http1;
pub(crate) mod http2;
pub(crate) mod websocket;

use bytes::Bytes;

use crate::message::{FrameKind, From};

/// A field as it came: name and value.
pub(crate) type RawField = (String, Bytes);

/// The greatest number of fields of a head that are read.
pub(crate) const MAX_FIELDS: usize = 512;
/// The longest head that is read, in bytes.
pub(crate) const MAX_HEAD_BYTES: usize = 256 * 1024;

/// A message of a WebSocket, of server-sent events or of gRPC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RawFrame {
    pub(crate) from: From,
    pub(crate) kind: FrameKind,
    pub(crate) data: Vec<u8>,
    pub(crate) bytes: u64,
    pub(crate) is_truncated: bool,
    pub(crate) problem: Option<String>,
}

/// What was read. The key is that of a request in its connection.
#[derive(Debug)]
pub(crate) enum Parsed {
    /// The head of a request.
    Request { key: u32, version: &'static str, method: String, target: String, host: String, fields: Vec<RawField> },
    /// The head of a final response.
    Response { key: u32, version: &'static str, status: u16, fields: Vec<RawField> },
    /// Bytes of a body.
    Data { key: u32, from: From, data: Bytes },
    /// Bytes of a body that the capture did not see.
    Missed { key: u32, from: From, bytes: u64, is_loss: bool },
    /// The end of a direction, with trailers.
    End { key: u32, from: From, trailers: Vec<RawField> },
    /// The connection is a WebSocket from here on.
    Upgraded { key: u32 },
    /// A message of a WebSocket.
    Frame { key: u32, frame: RawFrame },
    /// Nothing more is known about an exchange.
    Failed { key: u32, problem: String },
}

/// Bytes that were not seen: on purpose, because nobody wants them, or by a loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gap {
    pub(crate) bytes: u64,
    pub(crate) is_loss: bool,
}

/// A connection in one of its protocols.
#[derive(Debug)]
pub(crate) enum Conn {
    Http1(Box<http1::Http1>),
    Http2(Box<http2::Http2>),
}

impl Conn {
    /// Takes bytes of one direction.
    pub(crate) fn bytes(&mut self, from: From, data: &[u8], out: &mut Vec<Parsed>) {
        match self {
            Self::Http1(conn) => conn.bytes(from, data, out),
            Self::Http2(conn) => conn.bytes(from, data, out),
        }
    }

    /// Takes note of bytes that were not seen.
    pub(crate) fn gap(&mut self, from: From, gap: Gap, out: &mut Vec<Parsed>) {
        match self {
            Self::Http1(conn) => conn.gap(from, gap, out),
            Self::Http2(conn) => conn.gap(from, gap, out),
        }
    }

    /// The direction has ended.
    pub(crate) fn ended(&mut self, from: From, out: &mut Vec<Parsed>) {
        if let Self::Http1(conn) = self {
            conn.ended(from, out);
        }
    }

    /// How many of the next bytes nobody wants, once the bodies with these keys are at their bound.
    pub(crate) fn unwanted(&self, from: From, is_full: impl Fn(u32) -> bool) -> u64 {
        match self {
            Self::Http1(conn) => conn.unwanted(from, is_full),
            Self::Http2(_) => 0,
        }
    }
}

/// The value of the first field with this name.
pub(crate) fn field<'a>(fields: &'a [RawField], name: &str) -> Option<&'a [u8]> {
    fields.iter().find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_ref())
}
