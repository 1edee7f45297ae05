//! SETTINGS (RFC 9113 section 6.5).

use crate::{code::ErrorCode, frame::STREAM_BITS};

/// Parameters of SETTINGS (RFC 9113 section 6.5.2).
pub(crate) mod parameter {
    pub(crate) const HEADER_TABLE_SIZE: u16 = 0x1;
    pub(crate) const ENABLE_PUSH: u16 = 0x2;
    pub(crate) const MAX_CONCURRENT_STREAMS: u16 = 0x3;
    pub(crate) const INITIAL_WINDOW_SIZE: u16 = 0x4;
    pub(crate) const MAX_FRAME_SIZE: u16 = 0x5;
    pub(crate) const MAX_HEADER_LIST_SIZE: u16 = 0x6;
    /// RFC 8441 section 3.
    pub(crate) const ENABLE_CONNECT_PROTOCOL: u16 = 0x8;
}

/// The initial window of streams and of the connection (RFC 9113 section 6.9.2), in bytes.
pub(crate) const FIRST_WINDOW_BYTES: i64 = 65_535;
/// The largest window (RFC 9113 section 6.9.1), in bytes.
pub(crate) const MAX_WINDOW_BYTES: i64 = 0x7fff_ffff;
const _: () = assert!(MAX_WINDOW_BYTES == STREAM_BITS as i64);

/// A change by the client's SETTINGS that affects the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// Size of the encoder's dynamic table, in bytes.
    TableBytes(u32),
    /// Initial window of a stream, in bytes.
    WindowBytes(i64),
}

/// Parses one parameter. `None` if it does not affect the server.
pub(crate) fn change(parameter: u16, value: u32) -> Result<Option<Change>, ErrorCode> {
    match parameter {
        parameter::HEADER_TABLE_SIZE => Ok(Some(Change::TableBytes(value))),
        //= RFC 9113 section 6.5.2
        //# Any value other than 0 or 1 MUST be treated as a connection error (Section 5.4.1) of type PROTOCOL_ERROR.
        parameter::ENABLE_PUSH if value > 1 => Err(ErrorCode::PROTOCOL_ERROR),
        //= RFC 9113 section 6.5.2
        //# Values above the maximum flow-control window size of 2^31-1 MUST be treated as a connection error
        //# (Section 5.4.1) of type FLOW_CONTROL_ERROR.
        parameter::INITIAL_WINDOW_SIZE if i64::from(value) > MAX_WINDOW_BYTES => Err(ErrorCode::FLOW_CONTROL_ERROR),
        parameter::INITIAL_WINDOW_SIZE => Ok(Some(Change::WindowBytes(value.into()))),
        //= RFC 9113 section 6.5.2
        //# The value advertised by an endpoint MUST be between this initial value and the maximum allowed frame size
        //# (2^24-1 or 16,777,215 octets), inclusive. Values outside this range MUST be treated as a connection error
        //# (Section 5.4.1) of type PROTOCOL_ERROR.
        parameter::MAX_FRAME_SIZE if !(16_384..=16_777_215).contains(&value) => Err(ErrorCode::PROTOCOL_ERROR),
        // The server's frames have the least size that every client accepts; it pushes nothing and opens no streams.
        _ => Ok(None),
    }
}
