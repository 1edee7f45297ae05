//! SETTINGS (RFC 9114 section 7.2.4).

use crate::{
    code::ErrorCode,
    frame::{kind, read_integer, write_integer},
};

/// The most parameters of one SETTINGS frame.
const MAX_PARAMETERS: usize = 64;

/// Parameters of SETTINGS (RFC 9114 section 7.2.4.1, RFC 9204 section 5, RFC 9220 section 3, RFC 9297 section 2.1.1).
mod parameter {
    pub(super) const QPACK_MAX_TABLE_CAPACITY: u64 = 0x1;
    pub(super) const MAX_FIELD_SECTION_SIZE: u64 = 0x6;
    pub(super) const QPACK_BLOCKED_STREAMS: u64 = 0x7;
    pub(super) const ENABLE_CONNECT_PROTOCOL: u64 = 0x8;
    pub(super) const H3_DATAGRAM: u64 = 0x33;
    /// Parameters of HTTP/2 without a counterpart.
    pub(super) const RESERVED: [u64; 5] = [0x0, 0x2, 0x3, 0x4, 0x5];
    /// One of those that receivers ignore (RFC 9114 section 7.2.4.1), so that clients keep to the rule.
    pub(super) const IGNORED: u64 = 0x1f * 0x1d + 0x21;
}

/// Appends the server's SETTINGS frame. `max_head_bytes` is the longest list of fields.
pub(crate) fn write(max_head_bytes: u64, out: &mut Vec<u8>) {
    let mut payload = Vec::with_capacity(24);
    for (parameter, value) in [
        (parameter::QPACK_MAX_TABLE_CAPACITY, 0),
        (parameter::QPACK_BLOCKED_STREAMS, 0),
        (parameter::MAX_FIELD_SECTION_SIZE, max_head_bytes),
        (parameter::ENABLE_CONNECT_PROTOCOL, 1),
        (parameter::IGNORED, 0),
    ] {
        write_integer(&mut payload, parameter);
        write_integer(&mut payload, value);
    }
    write_integer(out, kind::SETTINGS);
    write_integer(out, payload.len() as u64);
    out.extend_from_slice(&payload);
}

/// Checks the client's parameters. None of them affects the server: it compresses with the static table alone, and its
/// responses are those of origins.
pub(crate) fn check(mut payload: &[u8]) -> Result<(), ErrorCode> {
    let mut seen = Vec::new();
    while !payload.is_empty() {
        let (parameter, rest) = read_integer(payload).ok_or(ErrorCode::FRAME_ERROR)?;
        let (value, rest) = read_integer(rest).ok_or(ErrorCode::FRAME_ERROR)?;
        payload = rest;
        //= RFC 9114 section 7.2.4
        //# The same setting identifier MUST NOT occur more than once in the SETTINGS frame. A receiver MAY treat the
        //# presence of duplicate setting identifiers as a connection error of type H3_SETTINGS_ERROR.
        if seen.contains(&parameter) {
            return Err(ErrorCode::SETTINGS_ERROR);
        }
        if seen.len() == MAX_PARAMETERS {
            return Err(ErrorCode::EXCESSIVE_LOAD);
        }
        seen.push(parameter);
        //= RFC 9114 section 7.2.4.1
        //# These reserved settings MUST NOT be sent, and their receipt MUST be treated as a connection error of type
        //# H3_SETTINGS_ERROR.
        let is_flag = matches!(parameter, parameter::ENABLE_CONNECT_PROTOCOL | parameter::H3_DATAGRAM);
        if parameter::RESERVED.contains(&parameter) || (is_flag && value > 1) {
            return Err(ErrorCode::SETTINGS_ERROR);
        }
    }
    Ok(())
}
