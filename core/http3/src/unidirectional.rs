//! The client's unidirectional streams (RFC 9114 section 6.2).

use crate::{
    code::ErrorCode,
    connection::Connection,
    frame::{FrameHead, HeadBuffer, kind as frame_kind, only_integer, read_integer},
    settings,
};

/// The longest frame on the control stream whose type is known, in bytes.
const MAX_PAYLOAD_BYTES: u64 = 1_024;
/// What a frame or an instruction costs in addition to its payload, in bytes: see [`Connection::count_skipped`].
pub(crate) const FRAME_COST_BYTES: u64 = 16;

/// Types of unidirectional streams (RFC 9114 section 6.2, RFC 9204 section 4.2).
pub(crate) mod kind {
    pub(crate) const CONTROL: u64 = 0x0;
    pub(crate) const PUSH: u64 = 0x1;
    pub(crate) const QPACK_ENCODER: u64 = 0x2;
    pub(crate) const QPACK_DECODER: u64 = 0x3;
}

/// Which critical streams the client has opened.
#[derive(Debug, Default)]
pub(crate) struct Critical {
    has_control: bool,
    has_encoder: bool,
    has_decoder: bool,
}

/// Whether to read on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// More bytes are expected.
    Continue,
    /// The type is unknown: the client is to be asked to stop with this code.
    Stop(ErrorCode),
}

/// One unidirectional stream of the client.
#[derive(Debug, Default)]
pub struct UniStream {
    head: HeadBuffer,
    state: State,
}

#[derive(Debug, Default)]
enum State {
    /// The type is still to come.
    #[default]
    Type,
    Control(Control),
    Encoder,
    /// Within a number of several bytes.
    Decoder {
        is_continued: bool,
    },
    Unknown,
}

/// The client's control stream.
#[derive(Debug, Default)]
struct Control {
    has_settings: bool,
    frame: Option<FrameHead>,
    /// The received part of a known frame's payload.
    payload: Vec<u8>,
    /// Bytes of an unknown frame that are still to come.
    skip: u64,
}

/// The result of a piece; an error closes the connection.
type Taken = Result<(), ErrorCode>;

impl UniStream {
    /// A new stream.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Handles received bytes.
    ///
    /// # Errors
    /// The connection is to be closed with this code.
    pub fn handle_input(&mut self, connection: &mut Connection, mut bytes: &[u8]) -> Result<Reading, ErrorCode> {
        if let State::Type = self.state {
            let Some(kind) = self.head.integer(&mut bytes) else { return Ok(Reading::Continue) };
            self.state = begin(kind, &mut connection.critical)?;
        }
        match &mut self.state {
            State::Type => {}
            State::Control(control) => control.handle_input(&mut self.head, connection, bytes)?,
            State::Encoder => encoder(connection, bytes)?,
            State::Decoder { is_continued } => decoder(is_continued, connection, bytes)?,
            State::Unknown => {
                connection.count_skipped(FRAME_COST_BYTES + bytes.len() as u64)?;
                //= RFC 9114 section 6.2
                //# Recipients of unknown stream types MUST either abort reading of the stream or discard incoming data
                //# without further processing. If reading is aborted, the recipient SHOULD use the
                //# H3_STREAM_CREATION_ERROR error code
                return Ok(Reading::Stop(ErrorCode::STREAM_CREATION_ERROR));
            }
        }
        Ok(Reading::Continue)
    }

    /// Handles the end of the stream, or its reset.
    ///
    /// # Errors
    /// The connection is to be closed with this code.
    pub fn handle_end(&self) -> Taken {
        match self.state {
            //= RFC 9114 section 6.2
            //# A receiver MUST tolerate unidirectional streams being closed or reset prior to the reception of the
            //# unidirectional stream header.
            State::Type | State::Unknown => Ok(()),
            //= RFC 9114 section 6.2.1
            //# If either control stream is closed at any point, this MUST be treated as a connection error of type
            //# H3_CLOSED_CRITICAL_STREAM.
            State::Control(_) | State::Encoder | State::Decoder { .. } => Err(ErrorCode::CLOSED_CRITICAL_STREAM),
        }
    }
}

fn begin(kind: u64, critical: &mut Critical) -> Result<State, ErrorCode> {
    let (has_one, state) = match kind {
        kind::CONTROL => (&mut critical.has_control, State::Control(Control::default())),
        kind::QPACK_ENCODER => (&mut critical.has_encoder, State::Encoder),
        kind::QPACK_DECODER => (&mut critical.has_decoder, State::Decoder { is_continued: false }),
        //= RFC 9114 section 6.2.2
        //# Only servers can push; if a server receives a client-initiated push stream, this MUST be treated as a
        //# connection error of type H3_STREAM_CREATION_ERROR.
        kind::PUSH => return Err(ErrorCode::STREAM_CREATION_ERROR),
        _ => return Ok(State::Unknown),
    };
    //= RFC 9114 section 6.2.1
    //# Only one control stream per peer is permitted; receipt of a second stream claiming to be a control stream MUST
    //# be treated as a connection error of type H3_STREAM_CREATION_ERROR.
    if std::mem::replace(has_one, true) { Err(ErrorCode::STREAM_CREATION_ERROR) } else { Ok(state) }
}

/// Handles instructions of the client's encoder (RFC 9204 section 4.3). The dynamic table has no bytes, so only its
/// capacity can be set, to zero.
fn encoder(connection: &mut Connection, bytes: &[u8]) -> Taken {
    //= RFC 9204 section 4.3.1
    //# The decoder MUST treat a new dynamic table capacity value that exceeds this limit as a connection error of type
    //# QPACK_ENCODER_STREAM_ERROR.
    if bytes.iter().any(|byte| *byte != 0x20) {
        return Err(ErrorCode::QPACK_ENCODER_STREAM_ERROR);
    }
    connection.count_skipped(FRAME_COST_BYTES.saturating_mul(bytes.len() as u64))
}

/// Handles instructions of the client's decoder (RFC 9204 section 4.4). The server inserts nothing, so only streams can
/// be cancelled.
fn decoder(is_continued: &mut bool, connection: &mut Connection, bytes: &[u8]) -> Taken {
    for byte in bytes {
        if *is_continued {
            *is_continued = byte & 0x80 != 0;
            continue;
        }
        //= RFC 9204 section 4.4.1
        //# If an encoder receives a Section Acknowledgment instruction referring to a stream on which every encoded
        //# field section with a non-zero Required Insert Count has already been acknowledged, this MUST be treated as a
        //# connection error of type QPACK_DECODER_STREAM_ERROR.
        if byte & 0xc0 != 0x40 {
            return Err(ErrorCode::QPACK_DECODER_STREAM_ERROR);
        }
        *is_continued = byte & 0x3f == 0x3f;
        connection.count_skipped(FRAME_COST_BYTES)?;
    }
    connection.count_skipped(bytes.len() as u64)
}

impl Control {
    fn handle_input(&mut self, head: &mut HeadBuffer, connection: &mut Connection, mut bytes: &[u8]) -> Taken {
        while !bytes.is_empty() {
            if self.skip > 0 {
                let part = bytes.len().min(usize::try_from(self.skip).unwrap_or(usize::MAX));
                bytes = bytes.get(part..).unwrap_or_default();
                self.skip -= part as u64;
                continue;
            }
            let frame = match self.frame {
                Some(frame) => frame,
                None => match head.frame(&mut bytes) {
                    Some(frame) => self.begin(frame, connection)?,
                    None => return Ok(()),
                },
            };
            if self.skip > 0 || self.frame.is_none() {
                continue;
            }
            // A known frame is no longer than its bound, which fits.
            let missing = (frame.length as usize).saturating_sub(self.payload.len());
            let (part, rest) = bytes.split_at(missing.min(bytes.len()));
            bytes = rest;
            self.payload.extend_from_slice(part);
            if self.payload.len() as u64 == frame.length {
                self.frame = None;
                let payload = std::mem::take(&mut self.payload);
                self.frame(frame.kind, &payload, connection)?;
            }
        }
        Ok(())
    }

    /// Handles a frame header.
    fn begin(&mut self, frame: FrameHead, connection: &mut Connection) -> Result<FrameHead, ErrorCode> {
        let is_settings = frame.kind == frame_kind::SETTINGS;
        //= RFC 9114 section 6.2.1
        //# If the first frame of the control stream is any other frame type, this MUST be treated as a connection error
        //# of type H3_MISSING_SETTINGS.
        if !self.has_settings && !is_settings {
            return Err(ErrorCode::MISSING_SETTINGS);
        }
        match frame.kind {
            frame_kind::SETTINGS if self.has_settings => return Err(ErrorCode::FRAME_UNEXPECTED),
            frame_kind::SETTINGS
            | frame_kind::CANCEL_PUSH
            | frame_kind::GOAWAY
            | frame_kind::MAX_PUSH_ID
            | frame_kind::PRIORITY_UPDATE
            | frame_kind::PRIORITY_UPDATE_PUSH => {
                if frame.length > MAX_PAYLOAD_BYTES {
                    return Err(ErrorCode::EXCESSIVE_LOAD);
                }
                self.frame = Some(frame);
            }
            frame_kind::DATA | frame_kind::HEADERS | frame_kind::PUSH_PROMISE => {
                return Err(ErrorCode::FRAME_UNEXPECTED);
            }
            kind if frame_kind::RESERVED.contains(&kind) => return Err(ErrorCode::FRAME_UNEXPECTED),
            //= RFC 9114 section 9
            //# Implementations MUST discard data or abort reading on unidirectional streams that have unknown or
            //# unsupported types. [...] Implementations MUST ignore unknown or unsupported values in all extensible
            //# protocol elements.
            _ => self.skip = frame.length,
        }
        self.has_settings = true;
        connection.count_skipped(FRAME_COST_BYTES.saturating_add(frame.length))?;
        if self.frame.is_some() && frame.length == 0 {
            self.frame = None;
            self.frame(frame.kind, &[], connection)?;
        }
        Ok(frame)
    }

    /// Handles a complete frame.
    fn frame(&mut self, kind: u64, payload: &[u8], connection: &mut Connection) -> Taken {
        if kind == frame_kind::SETTINGS {
            return settings::check(payload);
        }
        if matches!(kind, frame_kind::PRIORITY_UPDATE | frame_kind::PRIORITY_UPDATE_PUSH) {
            let (id, _) = read_integer(payload).ok_or(ErrorCode::FRAME_ERROR)?;
            //= RFC 9218 section 7.2
            //# The request-stream variant of PRIORITY_UPDATE (type=0xF0700) MUST reference a request stream. If a
            //# server receives a PRIORITY_UPDATE (type=0xF0700) for a stream ID that is not a request stream, this MUST
            //# be treated as a connection error of type H3_ID_ERROR.
            let is_valid = kind == frame_kind::PRIORITY_UPDATE && id.is_multiple_of(4);
            // No push was promised, so no push has a priority.
            return if is_valid { Ok(()) } else { Err(ErrorCode::ID_ERROR) };
        }
        let id = only_integer(payload).ok_or(ErrorCode::FRAME_ERROR)?;
        match kind {
            //= RFC 9114 section 7.2.7
            //# A MAX_PUSH_ID frame cannot reduce the maximum push ID; receipt of a MAX_PUSH_ID frame that contains a
            //# smaller value than previously received MUST be treated as a connection error of type H3_ID_ERROR.
            frame_kind::MAX_PUSH_ID if id >= connection.max_push_id => {
                connection.max_push_id = id;
                Ok(())
            }
            //= RFC 9114 section 5.2
            //# Receiving a GOAWAY containing a larger identifier than previously received MUST be treated as a
            //# connection error of type H3_ID_ERROR.
            frame_kind::GOAWAY if connection.client_goes.is_none_or(|before| id <= before) => {
                connection.client_goes = Some(id);
                Ok(())
            }
            //= RFC 9114 section 7.2.3
            //# If a server receives a CANCEL_PUSH frame for a push ID that has not yet been mentioned by a PUSH_PROMISE
            //# frame, this MUST be treated as a connection error of type H3_ID_ERROR.
            _ => Err(ErrorCode::ID_ERROR),
        }
    }
}
