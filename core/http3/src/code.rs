//! Error codes of streams and connections.

use std::fmt;

/// An error code (RFC 9114 section 8.1, RFC 9204 section 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ErrorCode(pub u64);

impl ErrorCode {
    /// No error.
    pub const NO_ERROR: Self = Self(0x100);
    /// The peer violated the protocol.
    pub const GENERAL_PROTOCOL_ERROR: Self = Self(0x101);
    /// An internal error.
    pub const INTERNAL_ERROR: Self = Self(0x102);
    /// The peer created a stream that is not accepted.
    pub const STREAM_CREATION_ERROR: Self = Self(0x103);
    /// A stream that the connection needs was closed.
    pub const CLOSED_CRITICAL_STREAM: Self = Self(0x104);
    /// A frame is not permitted in the current state or on its stream.
    pub const FRAME_UNEXPECTED: Self = Self(0x105);
    /// A frame has an invalid layout or size.
    pub const FRAME_ERROR: Self = Self(0x106);
    /// The peer causes disproportionate work.
    pub const EXCESSIVE_LOAD: Self = Self(0x107);
    /// A stream id or push id was used wrongly.
    pub const ID_ERROR: Self = Self(0x108);
    /// SETTINGS has an invalid parameter.
    pub const SETTINGS_ERROR: Self = Self(0x109);
    /// The control stream does not start with SETTINGS.
    pub const MISSING_SETTINGS: Self = Self(0x10a);
    /// The request was not processed, and may be repeated.
    pub const REQUEST_REJECTED: Self = Self(0x10b);
    /// The request or its response is no longer needed.
    pub const REQUEST_CANCELLED: Self = Self(0x10c);
    /// The request's stream ended before the request.
    pub const REQUEST_INCOMPLETE: Self = Self(0x10d);
    /// The message is malformed.
    pub const MESSAGE_ERROR: Self = Self(0x10e);
    /// A field section cannot be decoded.
    pub const QPACK_DECOMPRESSION_FAILED: Self = Self(0x200);
    /// An instruction on the encoder stream is invalid.
    pub const QPACK_ENCODER_STREAM_ERROR: Self = Self(0x201);
    /// An instruction on the decoder stream is invalid.
    pub const QPACK_DECODER_STREAM_ERROR: Self = Self(0x202);
}

impl ErrorCode {
    /// Its name, if it is defined in RFC 9114 or RFC 9204.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        Some(match self.0 {
            0x100 => "H3_NO_ERROR",
            0x101 => "H3_GENERAL_PROTOCOL_ERROR",
            0x102 => "H3_INTERNAL_ERROR",
            0x103 => "H3_STREAM_CREATION_ERROR",
            0x104 => "H3_CLOSED_CRITICAL_STREAM",
            0x105 => "H3_FRAME_UNEXPECTED",
            0x106 => "H3_FRAME_ERROR",
            0x107 => "H3_EXCESSIVE_LOAD",
            0x108 => "H3_ID_ERROR",
            0x109 => "H3_SETTINGS_ERROR",
            0x10a => "H3_MISSING_SETTINGS",
            0x10b => "H3_REQUEST_REJECTED",
            0x10c => "H3_REQUEST_CANCELLED",
            0x10d => "H3_REQUEST_INCOMPLETE",
            0x10e => "H3_MESSAGE_ERROR",
            0x10f => "H3_CONNECT_ERROR",
            0x110 => "H3_VERSION_FALLBACK",
            0x200 => "QPACK_DECOMPRESSION_FAILED",
            0x201 => "QPACK_ENCODER_STREAM_ERROR",
            0x202 => "QPACK_DECODER_STREAM_ERROR",
            _ => return None,
        })
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "error {:#x}", self.0),
        }
    }
}

/// A violation or a limit, and how far its error reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The stream is to be reset with this code.
    Stream(ErrorCode),
    /// The connection is to be closed with this code.
    Connection(ErrorCode),
}
