//! An HTTP/2 connection between the edge and the service, read in both directions (RFC 9113).

use std::{collections::HashMap, ops::ControlFlow};

use bytes::{Bytes, BytesMut};
use sallyport_http2::hpack::{Decoder, Field};

use super::{Gap, MAX_FIELDS, MAX_HEAD_BYTES, Parsed, RawField};
use crate::message::From;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEAD_BYTES: usize = 9;
/// The longest frame that is read, in bytes: ends announce no more.
const MAX_FRAME_BYTES: usize = 1024 * 1024;
/// The greatest table of header compression that is followed, in bytes.
const MAX_TABLE_BYTES: usize = 64 * 1024;
/// How many streams are followed at once.
const MAX_STREAMS: usize = 1_024;
const VERSION: &str = "HTTP/2";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const PRIORITY: u8 = 0x20;

/// A connection.
#[derive(Debug)]
pub(crate) struct Http2 {
    client: Half,
    service: Half,
    /// Which heads have been read of the streams that are open: of the request, and of the response.
    streams: HashMap<u32, (bool, bool)>,
    is_lost: bool,
}

#[derive(Debug)]
struct Half {
    buf: BytesMut,
    awaits_preface: bool,
    decoder: Decoder,
    /// A block of header fields that is not whole: its stream, whether the stream ends with it, and its bytes.
    block: Option<(u32, bool, Vec<u8>)>,
    /// The rest of a frame of data: its stream, bytes of data, bytes of padding, and whether the stream ends.
    data: Option<(u32, usize, usize, bool)>,
}

impl Half {
    fn new(awaits_preface: bool) -> Self {
        let decoder = Decoder::new(MAX_TABLE_BYTES);
        Self { buf: BytesMut::new(), awaits_preface, decoder, block: None, data: None }
    }
}

/// What a block of header fields says.
#[derive(Default)]
struct Head {
    method: Option<Bytes>,
    path: Option<Bytes>,
    authority: Option<Bytes>,
    fields: Vec<RawField>,
}

impl Http2 {
    /// A new connection.
    pub(crate) fn new() -> Self {
        Self { client: Half::new(true), service: Half::new(false), streams: HashMap::new(), is_lost: false }
    }

    /// Takes bytes of one direction.
    pub(crate) fn bytes(&mut self, from: From, data: &[u8], out: &mut Vec<Parsed>) {
        if self.is_lost {
            return;
        }
        self.half(from).buf.extend_from_slice(data);
        // Each round takes bytes.
        while !self.is_lost && self.step(from, out) {}
    }

    /// Takes note of bytes that were not seen.
    pub(crate) fn gap(&mut self, from: From, gap: Gap, out: &mut Vec<Parsed>) {
        let bytes = gap.bytes;
        match &mut self.half(from).data {
            Some((stream, left, ..)) if *left as u64 >= bytes => {
                *left -= bytes as usize;
                out.push(Parsed::Missed { key: *stream, from, bytes, is_loss: gap.is_loss });
            }
            _ => self.lose(out, &format!("The capture missed {bytes} bytes of the connection: the rest is not shown.")),
        }
    }

    fn half(&mut self, from: From) -> &mut Half {
        if from == From::Client { &mut self.client } else { &mut self.service }
    }

    fn lose(&mut self, out: &mut Vec<Parsed>, problem: &str) {
        self.is_lost = true;
        self.client = Half::new(false);
        self.service = Half::new(false);
        out.extend(self.streams.drain().map(|(key, _)| Parsed::Failed { key, problem: problem.to_owned() }));
    }

    fn step(&mut self, from: From, out: &mut Vec<Parsed>) -> bool {
        let half = self.half(from);
        if half.awaits_preface {
            if half.buf.len() < PREFACE.len() {
                return false;
            }
            half.awaits_preface = false;
            if half.buf.split_to(PREFACE.len()) != PREFACE {
                self.lose(out, "The connection does not begin as HTTP/2.");
            }
            return true;
        }
        if let Some((stream, left, padding, is_last)) = half.data.take() {
            return self.data(from, (stream, left, padding, is_last), out);
        }
        let Some(head) = half.buf.first_chunk::<HEAD_BYTES>().copied() else { return false };
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let (kind, flags) = (head[3], head[4]);
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]) & 0x7fff_ffff;
        let is_last = flags & END_STREAM != 0;
        if kind == DATA {
            let pad_byte = usize::from(flags & PADDED != 0);
            if half.buf.len() < HEAD_BYTES + pad_byte {
                return false;
            }
            let padding = if pad_byte == 1 { usize::from(half.buf[HEAD_BYTES]) } else { 0 };
            let _head = half.buf.split_to(HEAD_BYTES + pad_byte);
            half.data = Some((stream, length.saturating_sub(pad_byte + padding), padding, is_last));
            return true;
        }
        if length > MAX_FRAME_BYTES {
            self.lose(out, "A frame of the connection is too long to be read.");
            return false;
        }
        if half.buf.len() < HEAD_BYTES + length {
            return false;
        }
        let payload = half.buf.split_to(HEAD_BYTES + length).split_off(HEAD_BYTES);
        match kind {
            HEADERS => {
                let Some(block) = block_of(&payload, flags) else {
                    self.lose(out, "A block of header fields has wrong padding.");
                    return false;
                };
                half.block = Some((stream, is_last, block.to_vec()));
                self.end_block(from, flags, out);
            }
            CONTINUATION => {
                if let Some((_, _, block)) = &mut half.block {
                    block.extend_from_slice(&payload);
                    if block.len() > MAX_HEAD_BYTES {
                        self.lose(out, "A head is too long to be read.");
                        return false;
                    }
                }
                self.end_block(from, flags, out);
            }
            RST_STREAM if self.streams.remove(&stream).is_some() => {
                let code = payload.first_chunk::<4>().map_or(0, |code| u32::from_be_bytes(*code));
                let who = if from == From::Client { "edge" } else { "service" };
                let problem = format!("The {who} reset the request (code {code}).");
                out.push(Parsed::Failed { key: stream, problem });
            }
            _ => {}
        }
        true
    }

    fn data(&mut self, from: From, frame: (u32, usize, usize, bool), out: &mut Vec<Parsed>) -> bool {
        let (stream, left, padding, is_last) = frame;
        let is_known = self.streams.contains_key(&stream);
        let half = self.half(from);
        let taken = half.buf.len().min(left);
        let data = half.buf.split_to(taken).freeze();
        let padded = half.buf.len().min(padding);
        if left > taken {
            half.data = Some((stream, left - taken, padding, is_last));
        } else if padding > padded {
            let _padding = half.buf.split_to(padded);
            half.data = Some((stream, 0, padding - padded, is_last));
        } else {
            let _padding = half.buf.split_to(padded);
        }
        let (is_over, has_more) = (half.data.is_none(), !half.buf.is_empty());
        if is_known && !data.is_empty() {
            out.push(Parsed::Data { key: stream, from, data });
        }
        if is_over && is_last && is_known {
            self.end(from, stream, Vec::new(), out);
        }
        is_over || (has_more && taken > 0)
    }

    fn end_block(&mut self, from: From, flags: u8, out: &mut Vec<Parsed>) {
        if flags & END_HEADERS == 0 {
            return;
        }
        let half = self.half(from);
        let Some((stream, is_last, block)) = half.block.take() else { return };
        let mut head = Head::default();
        let decoded = half.decoder.decode(&block, |field, _| head.take(field));
        if decoded.is_err() {
            self.lose(out, "The compression of header fields is broken.");
            return;
        }
        let Some((has_request, has_response)) = self.streams.get(&stream).copied() else {
            if from == From::Client && self.streams.len() < MAX_STREAMS {
                self.streams.insert(stream, (true, false));
                out.push(head.request(stream));
                if is_last {
                    self.end(from, stream, Vec::new(), out);
                }
            }
            return;
        };
        let is_trailers = if from == From::Client { has_request } else { has_response };
        if is_trailers {
            self.end(from, stream, head.fields, out);
            return;
        }
        let status = status_of(&block);
        if status.is_some_and(|status| (100..200).contains(&status)) {
            return;
        }
        self.streams.insert(stream, (has_request, true));
        let status = status.unwrap_or(0);
        out.push(Parsed::Response { key: stream, version: VERSION, status, fields: head.fields });
        if is_last {
            self.end(from, stream, Vec::new(), out);
        }
    }

    fn end(&mut self, from: From, stream: u32, trailers: Vec<RawField>, out: &mut Vec<Parsed>) {
        out.push(Parsed::End { key: stream, from, trailers });
        if from == From::Service {
            self.streams.remove(&stream);
        }
    }
}

impl Head {
    fn take(&mut self, field: Field) -> ControlFlow<()> {
        match field {
            Field::Method(value) => self.method = Some(value),
            Field::Path(value) => self.path = Some(value),
            Field::Authority(value) => self.authority = Some(value),
            Field::Regular(name, value) if self.fields.len() < MAX_FIELDS => {
                self.fields.push((name.as_str().to_owned(), Bytes::copy_from_slice(value.as_bytes())));
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn request(self, key: u32) -> Parsed {
        let text = |value: Option<Bytes>| String::from_utf8_lossy(&value.unwrap_or_default()).into_owned();
        let (method, target, host) = (text(self.method), text(self.path), text(self.authority));
        Parsed::Request { key, version: VERSION, method, target, host, fields: self.fields }
    }
}

/// The block of a frame of headers, without padding and priority.
fn block_of(payload: &[u8], flags: u8) -> Option<&[u8]> {
    let (mut start, mut end) = (0, payload.len());
    if flags & PADDED != 0 {
        start = 1;
        end = end.checked_sub(usize::from(*payload.first()?))?;
    }
    if flags & PRIORITY != 0 {
        start += 5;
    }
    payload.get(start..end)
}

/// The status of a response, if its block begins with one from the static table, or with a literal. Otherwise the
/// edge's record has it.
fn status_of(block: &[u8]) -> Option<u16> {
    const FIXED: [u16; 7] = [200, 204, 206, 304, 400, 404, 500];
    match *block {
        [first @ 0x88..=0x8e, ..] => Some(FIXED[usize::from(first - 0x88)]),
        // A literal with the name of entry 8 to 14 whose value is plain, or in the digits of the Huffman code.
        [0x48..=0x4e | 0x08..=0x0e | 0x18..=0x1e, 3, a, b, c, ..] => std::str::from_utf8(&[a, b, c]).ok()?.parse().ok(),
        [0x48..=0x4e | 0x08..=0x0e | 0x18..=0x1e, length @ 0x82..=0x83, ref rest @ ..] => {
            let mut digits = [0; 8];
            let made = sallyport_http2::hpack::huffman::decode(rest.get(..usize::from(length - 0x80))?, &mut digits);
            std::str::from_utf8(digits.get(..made.ok()?)?).ok()?.parse().ok()
        }
        _ => None,
    }
}
