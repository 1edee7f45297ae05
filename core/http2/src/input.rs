//! Input: parses frames and checks their rules (RFC 9113 sections 4 to 6).

use std::ops::ControlFlow;

use http::Version;

use crate::{
    code::{ErrorCode, Fault},
    frame::{FrameHead, HEAD_BYTES, MAX_PAYLOAD_BYTES, STREAM_BITS, flag, kind},
    head::{HeadFields, Malformed, RequestHead},
    server::{Going, NewRequest, Server, Signal, StreamId},
    settings::{self, Change, MAX_WINDOW_BYTES},
    stream::{Stream, Upload},
};

/// The client's connection preface (RFC 9113 section 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The longest compressed header block, in bytes, and the most frames for one: a head that is too long is answered, but
/// an endless one is not.
const MAX_BLOCK_BYTES: usize = 128 * 1024;
const MAX_BLOCK_FRAMES: usize = 1_024;
/// Requests beyond the limit that a client may make before it can know the limit.
const MAX_REFUSED_UNAWARE: u32 = 1_000;
/// The longest list of trailers, in bytes as in RFC 9113 section 6.5.2: they are kept until the body was read.
const MAX_TRAILER_LIST_BYTES: usize = 8 * 1024;
/// Capacity for an incomplete frame that is kept for the next one, in bytes.
const MAX_KEPT_BYTES: usize = 1_024;

/// The position in the input.
#[derive(Debug, Default)]
pub(crate) struct Input {
    preface_got: usize,
    /// Whether the client's first SETTINGS arrived.
    has_begun: bool,
    /// Whether the client has acknowledged the server's SETTINGS.
    knows_settings: bool,
    /// Number of refused requests.
    refused: u32,
    head: [u8; HEAD_BYTES],
    head_got: usize,
    state: State,
    /// The received part of a frame's payload.
    payload: Vec<u8>,
    /// An incomplete header block.
    block: Option<Block>,
}

impl Input {
    pub(crate) fn rest(&mut self) {
        if self.payload.is_empty() {
            self.payload = Vec::new();
        }
    }
}

#[derive(Debug, Default, Clone, Copy)]
enum State {
    /// A frame header.
    #[default]
    Head,
    /// The payload of this frame.
    Payload(FrameHead),
    /// The payload of a DATA frame.
    Data(Data),
}

/// The rest of a DATA frame.
#[derive(Debug, Clone, Copy)]
struct Data {
    stream: StreamId,
    /// Whether the padding length, the first byte, is still to come.
    is_padded: bool,
    /// Bytes of payload without padding; with padding while its length is unknown.
    left: usize,
    padding: usize,
    ends: bool,
}

#[derive(Debug)]
struct Block {
    stream: StreamId,
    ends: bool,
    bytes: Vec<u8>,
    frames: usize,
}

/// The result of a frame; an error ends the connection.
type Taken = Result<(), ErrorCode>;

impl<S: Signal> Server<S> {
    /// Handles received bytes. Call only while the output is below [`Config::max_output_bytes`]: a client that does not
    /// read is not answered.
    ///
    /// [`Config::max_output_bytes`]: crate::Config::max_output_bytes
    pub fn handle_input(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && self.failure().is_none() {
            match self.step(bytes) {
                Ok(rest) => bytes = rest,
                Err(code) => self.fail(code),
            }
        }
    }

    /// Handles some of these bytes, and returns the rest.
    fn step<'b>(&mut self, bytes: &'b [u8]) -> Result<&'b [u8], ErrorCode> {
        if self.input.preface_got < PREFACE.len() {
            return self.preface(bytes);
        }
        match self.input.state {
            State::Head => {
                let input = &mut self.input;
                let (part, rest) = bytes.split_at((HEAD_BYTES - input.head_got).min(bytes.len()));
                if let Some(room) = input.head.get_mut(input.head_got..input.head_got + part.len()) {
                    room.copy_from_slice(part);
                }
                input.head_got += part.len();
                if input.head_got == HEAD_BYTES {
                    input.head_got = 0;
                    let head = FrameHead::read(input.head);
                    self.begin_frame(head)?;
                }
                Ok(rest)
            }
            State::Payload(head) if self.input.payload.is_empty() && bytes.len() >= head.length => {
                let (payload, rest) = bytes.split_at(head.length);
                self.input.state = State::Head;
                self.frame(head, payload)?;
                Ok(rest)
            }
            State::Payload(head) => {
                let missing = head.length - self.input.payload.len();
                let (part, rest) = bytes.split_at(missing.min(bytes.len()));
                self.input.payload.extend_from_slice(part);
                if self.input.payload.len() == head.length {
                    self.input.state = State::Head;
                    let mut payload = std::mem::take(&mut self.input.payload);
                    self.frame(head, &payload)?;
                    payload.clear();
                    if payload.capacity() <= MAX_KEPT_BYTES {
                        self.input.payload = payload;
                    }
                }
                Ok(rest)
            }
            State::Data(data) => self.data(data, bytes),
        }
    }

    fn preface<'b>(&mut self, bytes: &'b [u8]) -> Result<&'b [u8], ErrorCode> {
        let expected = PREFACE.get(self.input.preface_got..).unwrap_or_default();
        let (part, rest) = bytes.split_at(expected.len().min(bytes.len()));
        if !expected.starts_with(part) {
            return Err(ErrorCode::PROTOCOL_ERROR);
        }
        self.input.preface_got += part.len();
        Ok(rest)
    }

    /// Handles a frame header.
    fn begin_frame(&mut self, head: FrameHead) -> Taken {
        if head.length > MAX_PAYLOAD_BYTES {
            return Err(ErrorCode::FRAME_SIZE_ERROR);
        }
        //= RFC 9113 section 3.4
        //# That is, the connection preface starts with the string [...]. This sequence MUST be followed by a SETTINGS
        //# frame (Section 6.5), which MAY be empty.
        if !self.input.has_begun && (head.kind != kind::SETTINGS || head.has(flag::ACK)) {
            return Err(ErrorCode::PROTOCOL_ERROR);
        }
        self.input.has_begun = true;
        //= RFC 9113 section 6.10
        //# Any number of CONTINUATION frames can be sent, as long as the preceding frame is on the same stream and is a
        //# HEADERS, PUSH_PROMISE, or CONTINUATION frame without the END_HEADERS flag set.
        let goes_on = self.input.block.as_ref().map(|block| block.stream);
        if (head.kind == kind::CONTINUATION).then_some(head.stream) != goes_on {
            return Err(ErrorCode::PROTOCOL_ERROR);
        }
        if head.kind == kind::DATA {
            return self.begin_data(head);
        }
        if head.length == 0 {
            return self.frame(head, &[]);
        }
        self.input.state = State::Payload(head);
        Ok(())
    }

    fn frame(&mut self, head: FrameHead, payload: &[u8]) -> Taken {
        match head.kind {
            kind::HEADERS => self.headers(head, payload),
            kind::CONTINUATION => self.continuation(head, payload),
            kind::PRIORITY => self.priority(head.stream, payload),
            kind::RST_STREAM => self.rst_stream(head.stream, payload),
            kind::SETTINGS => self.settings(head, payload),
            kind::PING => self.pinged(head, payload),
            kind::GOAWAY if head.stream != 0 => Err(ErrorCode::PROTOCOL_ERROR),
            kind::GOAWAY if payload.len() < 8 => Err(ErrorCode::FRAME_SIZE_ERROR),
            kind::GOAWAY => {
                self.client_goes = true;
                Ok(())
            }
            kind::WINDOW_UPDATE => self.window_update(head.stream, payload),
            //= RFC 9113 section 8.4
            //# A client cannot push. Thus, servers MUST treat the receipt of a PUSH_PROMISE frame as a connection error
            //# (Section 5.4.1) of type PROTOCOL_ERROR.
            kind::PUSH_PROMISE => Err(ErrorCode::PROTOCOL_ERROR),
            //= RFC 9113 section 5.5
            //# Implementations MUST ignore unknown or unsupported values in all extensible protocol elements.
            _ => Ok(()),
        }
    }

    /// Whether this id is new.
    fn is_unused(&self, id: StreamId) -> bool {
        id > self.last || id.is_multiple_of(2)
    }

    /// Whether the client knows that requests with this id and above are refused.
    fn is_refused(&self, id: StreamId) -> bool {
        matches!(self.going, Going::After(last) if id > last)
    }

    /// Resets a stream because of a violation, which counts against the client.
    fn stream_error(&mut self, id: StreamId, code: ErrorCode) {
        self.reset_stream(id, code);
        self.count_fault(Fault::Stream(code));
        self.count_given_up();
    }

    fn headers(&mut self, head: FrameHead, payload: &[u8]) -> Taken {
        //= RFC 9113 section 5.1.1
        //# Streams initiated by a client MUST use odd-numbered stream identifiers
        if head.stream.is_multiple_of(2) {
            return Err(ErrorCode::PROTOCOL_ERROR);
        }
        let mut block = payload;
        let mut padding = 0;
        if head.has(flag::PADDED) {
            let (length, rest) = block.split_first().ok_or(ErrorCode::FRAME_SIZE_ERROR)?;
            (padding, block) = (usize::from(*length), rest);
        }
        if head.has(flag::PRIORITY) {
            let (priority, rest) = block.split_first_chunk::<5>().ok_or(ErrorCode::FRAME_SIZE_ERROR)?;
            if dependency(priority) == head.stream {
                return Err(ErrorCode::PROTOCOL_ERROR);
            }
            block = rest;
        }
        //= RFC 9113 section 6.2
        //# If the length of the padding is [...] the length of the frame payload or greater, the recipient MUST treat
        //# this as a connection error (Section 5.4.1) of type PROTOCOL_ERROR.
        let length = block.len().checked_sub(padding).ok_or(ErrorCode::PROTOCOL_ERROR)?;
        let block = block.get(..length).unwrap_or_default();
        let ends = head.has(flag::END_STREAM);
        if head.has(flag::END_HEADERS) {
            return self.header_block(head.stream, ends, block);
        }
        self.input.block = Some(Block { stream: head.stream, ends, bytes: block.to_vec(), frames: 1 });
        Ok(())
    }

    fn continuation(&mut self, head: FrameHead, payload: &[u8]) -> Taken {
        let Some(mut block) = self.input.block.take() else { return Err(ErrorCode::PROTOCOL_ERROR) };
        block.frames += 1;
        if block.frames > MAX_BLOCK_FRAMES || block.bytes.len() + payload.len() > MAX_BLOCK_BYTES {
            return Err(ErrorCode::ENHANCE_YOUR_CALM);
        }
        block.bytes.extend_from_slice(payload);
        if head.has(flag::END_HEADERS) {
            return self.header_block(block.stream, block.ends, &block.bytes);
        }
        self.input.block = Some(block);
        Ok(())
    }

    /// Handles a complete header block. It is always decoded, because later blocks refer to it.
    fn header_block(&mut self, id: StreamId, ends: bool, block: &[u8]) -> Taken {
        let is_new = id > self.last;
        let max_head = self.config.max_header_list_bytes as usize;
        let max = if is_new { max_head } else { max_head.min(MAX_TRAILER_LIST_BYTES) };
        let mut fields = match is_new {
            true => HeadFields::of_request(Version::HTTP_2),
            false => HeadFields::of_trailers(Version::HTTP_2),
        };
        self.decoder
            .decode(block, |field, bytes| {
                fields.take(field, bytes, max);
                if fields.bytes() > max { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
            .map_err(|_| ErrorCode::COMPRESSION_ERROR)?;
        let is_too_long = fields.bytes() > max;
        if is_new {
            self.last = id;
            return self.new_stream(id, ends, fields, is_too_long);
        }
        let Some(stream) = self.streams.get_mut(&id) else {
            //= RFC 9113 section 5.1.1
            //# An endpoint that receives an unexpected stream identifier MUST respond with a connection error
            //# (Section 5.4.1) of type PROTOCOL_ERROR.
            return match self.was_reset(id) {
                Some(true) => Ok(()),
                Some(false) => Err(ErrorCode::STREAM_CLOSED),
                None => Err(ErrorCode::PROTOCOL_ERROR),
            };
        };
        if stream.reset.is_some() || stream.upload.is_over {
            if self.was_reset(id) != Some(true) {
                self.stream_error(id, ErrorCode::STREAM_CLOSED);
            }
            return Ok(());
        }
        //= RFC 9113 section 8.5
        //# Frame types other than DATA or stream management frames (RST_STREAM, WINDOW_UPDATE, and PRIORITY) MUST NOT be
        //# sent on a connected stream and MUST be treated as a stream error (Section 5.4.2) if received.
        let may_follow = ends && !is_too_long && !stream.is_tunnel;
        match fields.into_trailers().ok().filter(|_| may_follow) {
            Some(trailers) => {
                stream.upload.trailers = (!trailers.is_empty() && stream.upload.has_reader).then_some(trailers);
                self.upload_ended(id);
            }
            None => self.stream_error(id, ErrorCode::PROTOCOL_ERROR),
        }
        Ok(())
    }

    fn new_stream(&mut self, id: StreamId, ends: bool, fields: HeadFields, is_too_long: bool) -> Taken {
        if self.is_refused(id) {
            return Ok(());
        }
        self.opened += 1;
        if !self.has_place() {
            self.reset_stream(id, ErrorCode::REFUSED_STREAM);
            self.count_fault(Fault::Stream(ErrorCode::REFUSED_STREAM));
            self.input.refused += 1;
            if self.input.knows_settings || self.input.refused > MAX_REFUSED_UNAWARE {
                self.count_given_up();
            }
            return Ok(());
        }
        let head = match is_too_long {
            true => Ok(fields.into_cut_request()),
            false => fields.into_request(ends, &mut self.known_authority),
        };
        match head {
            Ok(RequestHead { parts, length, expects, protocol, refusal }) => {
                let upload = Upload::new(ends, length, expects, self.config.stream_window_bytes);
                self.streams.insert(id, Stream::new(upload, self.first_send_window, protocol.is_some()));
                self.open += 1;
                let request = NewRequest { stream: id, head: parts, has_body: !ends, protocol, refusal };
                self.requests.push_back(request);
            }
            Err(Malformed) => self.stream_error(id, ErrorCode::PROTOCOL_ERROR),
        }
        Ok(())
    }

    fn begin_data(&mut self, head: FrameHead) -> Taken {
        let FrameHead { stream: id, length, .. } = head;
        if self.is_unused(id) {
            return Err(ErrorCode::PROTOCOL_ERROR);
        }
        //= RFC 9113 section 6.9.1
        //# A receiver MAY respond with a stream error (Section 5.4.2) or connection error (Section 5.4.1) of type
        //# FLOW_CONTROL_ERROR if it is unable to accept a frame.
        self.window -= length as i64;
        if self.window < 0 {
            return Err(ErrorCode::FLOW_CONTROL_ERROR);
        }
        let error = if let Some(stream) = self.streams.get_mut(&id) {
            stream.upload.window -= length as i64;
            match &stream.upload {
                _ if stream.reset.is_some() => {
                    (!self.was_reset(id).unwrap_or(false)).then_some(ErrorCode::STREAM_CLOSED)
                }
                upload if upload.is_over => Some(ErrorCode::STREAM_CLOSED),
                upload if upload.window < 0 => Some(ErrorCode::FLOW_CONTROL_ERROR),
                _ => None,
            }
        } else {
            let is_known = self.was_reset(id) == Some(true) || self.is_refused(id);
            (!is_known).then_some(ErrorCode::STREAM_CLOSED)
        };
        if let Some(code) = error {
            self.stream_error(id, code);
        }
        let is_padded = head.has(flag::PADDED);
        if is_padded && length == 0 {
            return Err(ErrorCode::FRAME_SIZE_ERROR);
        }
        let data = Data { stream: id, is_padded, left: length, padding: 0, ends: head.has(flag::END_STREAM) };
        self.go_on_with(data);
        Ok(())
    }

    /// Handles received bytes of a DATA frame.
    fn data<'b>(&mut self, mut data: Data, mut bytes: &'b [u8]) -> Result<&'b [u8], ErrorCode> {
        if data.is_padded
            && let Some((length, rest)) = bytes.split_first()
        {
            (data.padding, bytes, data.is_padded) = (usize::from(*length), rest, false);
            //= RFC 9113 section 6.1
            //# If the length of the padding is the length of the frame payload or greater, the recipient MUST treat
            //# this as a connection error (Section 5.4.1) of type PROTOCOL_ERROR.
            data.left = data.left.checked_sub(1 + data.padding).ok_or(ErrorCode::PROTOCOL_ERROR)?;
            self.stream_was_taken(data.stream, 1 + data.padding);
            self.was_taken(1 + data.padding);
        }
        let (part, bytes) = bytes.split_at(data.left.min(bytes.len()));
        data.left -= part.len();
        if !part.is_empty() {
            self.upload_came(data.stream, part);
        }
        let skipped = data.padding.min(bytes.len());
        data.padding -= skipped;
        self.go_on_with(data);
        Ok(bytes.get(skipped..).unwrap_or_default())
    }

    fn go_on_with(&mut self, data: Data) {
        if data.left > 0 || data.padding > 0 {
            self.input.state = State::Data(data);
            return;
        }
        self.input.state = State::Head;
        if data.ends {
            self.upload_ended(data.stream);
        }
    }

    fn upload_came(&mut self, id: StreamId, data: &[u8]) {
        let Some(stream) = self.streams.get_mut(&id).filter(|stream| stream.reset.is_none()) else {
            return self.was_taken(data.len());
        };
        let upload = &mut stream.upload;
        //= RFC 9113 section 8.1.1
        //# A request or response is also malformed if the value of a Content-Length header field does not equal the
        //# sum of the DATA frame payload lengths that form the content
        let left = upload.left.map(|left| left.checked_sub(data.len() as u64));
        if left == Some(None) {
            self.was_taken(data.len());
            return self.stream_error(id, ErrorCode::PROTOCOL_ERROR);
        }
        upload.left = left.flatten();
        if upload.has_reader {
            upload.push(data);
            upload.reader.signal();
            self.received += data.len();
        } else {
            self.was_taken(data.len());
        }
    }

    fn upload_ended(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id).filter(|stream| stream.reset.is_none()) else { return };
        if stream.upload.left.is_some_and(|left| left > 0) {
            return self.stream_error(id, ErrorCode::PROTOCOL_ERROR);
        }
        stream.upload.is_over = true;
        stream.upload.reader.signal();
        if !stream.is_open() {
            self.open = self.open.saturating_sub(1);
        }
    }

    fn priority(&mut self, id: StreamId, payload: &[u8]) -> Taken {
        if id == 0 {
            return Err(ErrorCode::PROTOCOL_ERROR);
        }
        let code = match <&[u8; 5]>::try_from(payload) {
            Ok(priority) if dependency(priority) == id => ErrorCode::PROTOCOL_ERROR,
            Ok(_) => return Ok(()),
            Err(_) => ErrorCode::FRAME_SIZE_ERROR,
        };
        if self.is_reset(id) {
            return Err(code);
        }
        self.stream_error(id, code);
        Ok(())
    }

    fn rst_stream(&mut self, id: StreamId, payload: &[u8]) -> Taken {
        if self.is_unused(id) {
            return Err(ErrorCode::PROTOCOL_ERROR);
        }
        let code = u32::from_be_bytes(*<&[u8; 4]>::try_from(payload).map_err(|_| ErrorCode::FRAME_SIZE_ERROR)?);
        if let Some(stream) = self.streams.get(&id).filter(|stream| stream.reset.is_none()) {
            let is_early = !stream.has_head;
            self.broke_off(id, ErrorCode(code));
            if is_early {
                self.count_given_up();
            }
        }
        Ok(())
    }

    fn settings(&mut self, head: FrameHead, payload: &[u8]) -> Taken {
        if head.stream != 0 {
            return Err(ErrorCode::PROTOCOL_ERROR);
        }
        if head.has(flag::ACK) {
            self.input.knows_settings = true;
            return if payload.is_empty() { Ok(()) } else { Err(ErrorCode::FRAME_SIZE_ERROR) };
        }
        let (parameters, rest) = payload.as_chunks::<6>();
        if !rest.is_empty() {
            return Err(ErrorCode::FRAME_SIZE_ERROR);
        }
        let mut window = None;
        for [a, b, value @ ..] in parameters {
            match settings::change(u16::from_be_bytes([*a, *b]), u32::from_be_bytes(*value))? {
                Some(Change::TableBytes(bytes)) => self.encoder.set_max_table_bytes(bytes),
                Some(Change::WindowBytes(bytes)) => window = Some(bytes),
                None => {}
            }
        }
        // Once for a frame, because all streams are visited.
        if let Some(bytes) = window {
            self.set_first_send_window(bytes)?;
        }
        self.settings_ack();
        Ok(())
    }

    //= RFC 9113 section 6.9.2
    //# When the value of SETTINGS_INITIAL_WINDOW_SIZE changes, a receiver MUST adjust the size of all stream
    //# flow-control windows that it maintains by the difference between the new value and the old value.
    fn set_first_send_window(&mut self, bytes: i64) -> Taken {
        let more = bytes - self.first_send_window;
        self.first_send_window = bytes;
        for stream in self.streams.values_mut() {
            if !stream.widen(more) {
                return Err(ErrorCode::FLOW_CONTROL_ERROR);
            }
        }
        Ok(())
    }

    fn pinged(&mut self, head: FrameHead, payload: &[u8]) -> Taken {
        if head.stream != 0 {
            return Err(ErrorCode::PROTOCOL_ERROR);
        }
        if payload.len() != 8 {
            return Err(ErrorCode::FRAME_SIZE_ERROR);
        }
        if head.has(flag::ACK) {
            self.pong(payload);
        } else {
            self.control(kind::PING, flag::ACK, 0, payload);
        }
        Ok(())
    }

    fn window_update(&mut self, id: StreamId, payload: &[u8]) -> Taken {
        let more = u32::from_be_bytes(*<&[u8; 4]>::try_from(payload).map_err(|_| ErrorCode::FRAME_SIZE_ERROR)?);
        let more = i64::from(more & STREAM_BITS);
        if id == 0 {
            if more == 0 {
                return Err(ErrorCode::PROTOCOL_ERROR);
            }
            self.send_window += more;
            if self.send_window > MAX_WINDOW_BYTES {
                return Err(ErrorCode::FLOW_CONTROL_ERROR);
            }
            self.pass_turn();
            return Ok(());
        }
        if self.is_unused(id) {
            return Err(ErrorCode::PROTOCOL_ERROR);
        }
        let Some(stream) = self.streams.get_mut(&id).filter(|stream| stream.reset.is_none()) else { return Ok(()) };
        let has_room = stream.widen(more);
        //= RFC 9113 section 6.9
        //# A receiver MUST treat the receipt of a WINDOW_UPDATE frame with a flow-control window increment of 0 as a
        //# stream error (Section 5.4.2) of type PROTOCOL_ERROR
        let code = match more {
            0 => ErrorCode::PROTOCOL_ERROR,
            //= RFC 9113 section 6.9.1
            //# A sender MUST NOT allow a flow-control window to exceed 2^31-1 octets. [...] the sender sends a
            //# RST_STREAM with an error code of FLOW_CONTROL_ERROR
            _ if !has_room => ErrorCode::FLOW_CONTROL_ERROR,
            _ => return Ok(()),
        };
        self.stream_error(id, code);
        Ok(())
    }
}

/// The stream that a priority depends on (RFC 7540 section 6.3).
fn dependency(priority: &[u8; 5]) -> StreamId {
    let [a, b, c, d, _] = *priority;
    u32::from_be_bytes([a, b, c, d]) & STREAM_BITS
}
