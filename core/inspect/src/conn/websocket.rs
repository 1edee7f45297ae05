//! One direction of a WebSocket (RFC 6455), with messages compressed by permessage-deflate (RFC 7692).

use bytes::{Buf as _, BytesMut};
use flate2::{Decompress, FlushDecompress, Status};

use super::RawFrame;
use crate::{
    message::{FrameKind, From},
    store::MAX_FRAME_BYTES,
};

/// How far one message may unfold before its direction is no longer decompressed, in bytes.
const MAX_UNFOLDED_BYTES: u64 = 16 * 1024 * 1024;
/// The memory for one step, in bytes.
const STEP_BYTES: usize = 16 * 1024;
/// What ends a compressed message (RFC 7692 section 7.2.2).
const TAIL: &[u8] = &[0, 0, 0xff, 0xff];

/// One direction.
pub(crate) struct WebSocket {
    from: From,
    head: BytesMut,
    payload: Option<Payload>,
    message: Option<Message>,
    control: Option<Message>,
    inflate: Option<Inflate>,
    is_lost: bool,
}

impl std::fmt::Debug for WebSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WebSocket").field("from", &self.from).field("is_lost", &self.is_lost).finish_non_exhaustive()
    }
}

/// The payload under way.
#[derive(Debug, Clone, Copy)]
struct Payload {
    left: u64,
    mask: Option<[u8; 4]>,
    position: usize,
    is_last: bool,
    is_control: bool,
}

#[derive(Debug)]
struct Message {
    kind: FrameKind,
    data: Vec<u8>,
    bytes: u64,
    is_compressed: bool,
    is_truncated: bool,
    problem: Option<String>,
}

struct Inflate {
    decoder: Decompress,
    keeps_context: bool,
    is_broken: bool,
    unfolded: u64,
}

impl WebSocket {
    /// A direction with these negotiated extensions.
    pub(crate) fn new(from: From, extensions: &[u8]) -> Self {
        let has = |word: &[u8]| memchr::memmem::find(extensions, word).is_some();
        let no_context: &[u8] =
            if from == From::Client { b"client_no_context_takeover" } else { b"server_no_context_takeover" };
        let inflate = has(b"permessage-deflate").then(|| Inflate {
            decoder: Decompress::new(false),
            keeps_context: !has(no_context),
            is_broken: false,
            unfolded: 0,
        });
        Self { from, head: BytesMut::new(), payload: None, message: None, control: None, inflate, is_lost: false }
    }

    /// Takes bytes, and passes each whole message on.
    pub(crate) fn bytes(&mut self, input: &mut BytesMut, mut out: impl FnMut(RawFrame)) {
        while !self.is_lost && (!input.is_empty() || self.payload.is_some_and(|payload| payload.left == 0)) {
            match self.payload {
                None => self.read_head(input, &mut out),
                Some(payload) => self.read_payload(payload, input, &mut out),
            }
        }
        input.clear();
    }

    /// Takes note of bytes that were not seen; false if nothing can be read any more.
    pub(crate) fn gap(&mut self, bytes: u64) -> bool {
        let is_compressed =
            self.inflate.is_some() && self.message.as_ref().is_some_and(|message| message.is_compressed);
        match &mut self.payload {
            Some(payload) if payload.left >= bytes && !payload.is_control && !is_compressed => {
                payload.left -= bytes;
                payload.position = (payload.position + (bytes % 4) as usize) % 4;
                if let Some(message) = &mut self.message {
                    message.bytes += bytes;
                    message.is_truncated = true;
                }
                true
            }
            _ => {
                self.is_lost = true;
                false
            }
        }
    }

    /// How many of the next bytes nobody wants.
    pub(crate) fn unwanted(&self) -> u64 {
        match (&self.payload, &self.message) {
            (Some(payload), Some(message))
                if !payload.is_control && !message.is_compressed && message.data.len() >= MAX_FRAME_BYTES =>
            {
                // The end of a payload is seen, so that its message is passed on.
                payload.left.saturating_sub(1)
            }
            _ => 0,
        }
    }

    fn read_head(&mut self, input: &mut BytesMut, out: &mut impl FnMut(RawFrame)) {
        while !input.is_empty() {
            self.head.extend_from_slice(&input[..1]);
            input.advance(1);
            if self.head.len() < 2 {
                continue;
            }
            let (short, is_masked) = (self.head[1] & 0x7f, self.head[1] & 0x80 != 0);
            let extended = match short {
                126 => 2,
                127 => 8,
                _ => 0,
            };
            if self.head.len() < 2 + extended + if is_masked { 4 } else { 0 } {
                continue;
            }
            let number = self.head[2..2 + extended].iter().fold(0_u64, |sum, byte| (sum << 8) | u64::from(*byte));
            let left = if extended == 0 { u64::from(short) } else { number };
            let mask = is_masked.then(|| [0, 1, 2, 3].map(|at| self.head[2 + extended + at]));
            let first = self.head[0];
            self.head.clear();
            self.begin(first, left, mask, out);
            return;
        }
    }

    fn begin(&mut self, first: u8, left: u64, mask: Option<[u8; 4]>, out: &mut impl FnMut(RawFrame)) {
        let (opcode, is_last, is_compressed) = (first & 0x0f, first & 0x80 != 0, first & 0x40 != 0);
        let kind = match opcode {
            0 => self.message.as_ref().map(|message| message.kind),
            1 => Some(FrameKind::Text),
            2 => Some(FrameKind::Binary),
            8 => Some(FrameKind::Close),
            9 => Some(FrameKind::Ping),
            10 => Some(FrameKind::Pong),
            _ => None,
        };
        let is_control = opcode >= 8;
        let Some(kind) = kind.filter(|_| !is_control || left <= 125) else {
            self.is_lost = true;
            let problem = Some("This is no frame of a WebSocket: later ones are not shown.".to_owned());
            let (from, kind) = (self.from, FrameKind::Binary);
            return out(RawFrame { from, kind, data: vec![first], bytes: 1, is_truncated: true, problem });
        };
        if opcode != 0 {
            let problem = None;
            let new = Message { kind, data: Vec::new(), bytes: 0, is_compressed, is_truncated: false, problem };
            if is_control {
                self.control = Some(new);
            } else {
                if is_compressed && let Some(inflate) = &mut self.inflate {
                    inflate.unfolded = 0;
                }
                self.message = Some(new);
            }
        }
        self.payload = Some(Payload { left, mask, position: 0, is_last, is_control });
    }

    fn read_payload(&mut self, mut payload: Payload, input: &mut BytesMut, out: &mut impl FnMut(RawFrame)) {
        let taken = usize::try_from(payload.left).map_or(input.len(), |left| left.min(input.len())).min(STEP_BYTES);
        let mut bytes = input.split_to(taken);
        if let Some(mask) = payload.mask {
            for (at, byte) in bytes.iter_mut().enumerate() {
                *byte ^= mask[(payload.position + at) % 4];
            }
        }
        payload.position = (payload.position + taken) % 4;
        payload.left -= taken as u64;
        let message = if payload.is_control { &mut self.control } else { &mut self.message };
        if let Some(message) = message {
            message.take(&bytes, self.inflate.as_mut());
        }
        if payload.left > 0 {
            self.payload = Some(payload);
            return;
        }
        self.payload = None;
        if !payload.is_last {
            return;
        }
        let whole = if payload.is_control { self.control.take() } else { self.message.take() };
        let Some(mut message) = whole else { return };
        if message.is_compressed {
            message.end(self.inflate.as_mut());
        }
        let Message { kind, data, bytes, is_truncated, problem, .. } = message;
        out(RawFrame { from: self.from, kind, data, bytes, is_truncated, problem });
    }
}

impl Message {
    fn take(&mut self, bytes: &[u8], inflate: Option<&mut Inflate>) {
        self.bytes += bytes.len() as u64;
        match inflate {
            Some(inflate) if self.is_compressed => inflate.unfold(bytes, self),
            _ => self.keep(bytes),
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = MAX_FRAME_BYTES.saturating_sub(self.data.len());
        self.is_truncated |= bytes.len() > room;
        self.data.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn end(&mut self, inflate: Option<&mut Inflate>) {
        let Some(inflate) = inflate else {
            self.problem = Some("The message is compressed in a way that is not known here.".to_owned());
            return;
        };
        inflate.unfold(TAIL, self);
        if !inflate.keeps_context {
            inflate.decoder.reset(false);
        }
    }
}

impl Inflate {
    fn unfold(&mut self, mut input: &[u8], message: &mut Message) {
        let mut room = [0; STEP_BYTES];
        while !self.is_broken {
            let (taken, made) = (self.decoder.total_in(), self.decoder.total_out());
            let status = self.decoder.decompress(input, &mut room, FlushDecompress::Sync);
            let (taken, made) = (self.decoder.total_in() - taken, self.decoder.total_out() - made);
            input = &input[taken as usize..];
            message.keep(&room[..made as usize]);
            self.unfolded += made;
            if status.is_err() || self.unfolded > MAX_UNFOLDED_BYTES {
                self.is_broken = true;
            }
            let is_over = matches!(status, Ok(Status::StreamEnd)) || (taken == 0 && made == 0);
            if is_over || (input.is_empty() && (made as usize) < room.len()) {
                break;
            }
        }
        if self.is_broken && message.problem.is_none() {
            message.is_truncated = true;
            message.problem = Some("The message's compression is broken or unfolds too far.".to_owned());
        }
    }
}
