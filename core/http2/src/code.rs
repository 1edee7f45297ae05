//! Error codes of streams and connections.

use std::fmt;

/// An error code (RFC 9113 section 7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ErrorCode(pub u32);

impl ErrorCode {
    /// No error.
    pub const NO_ERROR: Self = Self(0x0);
    /// The peer violated the protocol.
    pub const PROTOCOL_ERROR: Self = Self(0x1);
    /// An internal error.
    pub const INTERNAL_ERROR: Self = Self(0x2);
    /// The peer exceeded its window.
    pub const FLOW_CONTROL_ERROR: Self = Self(0x3);
    /// A frame arrived for a closed stream.
    pub const STREAM_CLOSED: Self = Self(0x5);
    /// A frame has an invalid length.
    pub const FRAME_SIZE_ERROR: Self = Self(0x6);
    /// The request was not processed, and may be repeated.
    pub const REFUSED_STREAM: Self = Self(0x7);
    /// The stream is no longer needed.
    pub const CANCEL: Self = Self(0x8);
    /// The state of the header compression is lost.
    pub const COMPRESSION_ERROR: Self = Self(0x9);
    /// The peer causes disproportionate work.
    pub const ENHANCE_YOUR_CALM: Self = Self(0xb);
}

impl ErrorCode {
    /// Its name, if it is defined in RFC 9113.
    pub fn name(self) -> Option<&'static str> {
        Some(match self.0 {
            0x0 => "NO_ERROR",
            0x1 => "PROTOCOL_ERROR",
            0x2 => "INTERNAL_ERROR",
            0x3 => "FLOW_CONTROL_ERROR",
            0x4 => "SETTINGS_TIMEOUT",
            0x5 => "STREAM_CLOSED",
            0x6 => "FRAME_SIZE_ERROR",
            0x7 => "REFUSED_STREAM",
            0x8 => "CANCEL",
            0x9 => "COMPRESSION_ERROR",
            0xa => "CONNECT_ERROR",
            0xb => "ENHANCE_YOUR_CALM",
            0xc => "INADEQUATE_SECURITY",
            0xd => "HTTP_1_1_REQUIRED",
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

/// An error that was reported to the client because of a violation or a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// A stream was reset with this code.
    Stream(ErrorCode),
    /// The connection ended with this code.
    Connection(ErrorCode),
}
