//! A client that writes frames by hand, and a parser of the server's frames.

use std::{cell::Cell, rc::Rc};

use sallyport_http2::{Config, ErrorCode, Fault, NewRequest, Server, Signal};

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PUSH_PROMISE: u8 = 5;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
pub(crate) const PADDED: u8 = 8;

pub(crate) const CONFIG: Config = Config {
    max_concurrent_streams: 10,
    stream_window_bytes: 40_000,
    connection_window_bytes: 100_000,
    max_header_list_bytes: 2_000,
    max_output_bytes: 50_000,
};

/// Number of notifications.
#[derive(Debug, Default, Clone)]
pub(crate) struct Calls(Rc<Cell<usize>>);

impl Calls {
    pub(crate) fn take(&self) -> usize {
        self.0.take()
    }
}

impl Signal for Calls {
    fn signal(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

/// A frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, a, b, c] = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = vec![a, b, c, kind, flags];
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// A block of fields, none of them indexed.
pub(crate) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in fields {
        bytes.push(0);
        for text in [name, value] {
            let length = text.len();
            if length < 127 {
                bytes.push(u8::try_from(length).unwrap());
            } else {
                let mut rest = length - 127;
                bytes.push(127);
                while rest >= 128 {
                    bytes.push(u8::try_from(rest % 128).unwrap() | 128);
                    rest /= 128;
                }
                bytes.push(u8::try_from(rest).unwrap());
            }
            bytes.extend_from_slice(text.as_bytes());
        }
    }
    bytes
}

const GET: [(&str, &str); 4] = [(":method", "GET"), (":scheme", "https"), (":authority", "a.example"), (":path", "/")];

pub(crate) fn get_with(more: &[(&str, &str)]) -> Vec<u8> {
    block(&[&GET, more].concat())
}

pub(crate) fn post_with(more: &[(&str, &str)]) -> Vec<u8> {
    block(&[&[(":method", "POST")], &GET[1..], more].concat())
}

/// A server, and the client's view of it.
pub(crate) struct Tested {
    pub(crate) server: Server<Calls>,
    came: Vec<u8>,
}

impl Tested {
    /// A connection after both sides' SETTINGS.
    pub(crate) fn new() -> Self {
        let mut tested = Self::silent();
        tested.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        tested.send(&frame(SETTINGS, 0, 0, &[]));
        let kinds: Vec<_> = tested.frames().iter().map(|frame| (frame.kind, frame.flags)).collect();
        assert_eq!(kinds, [(SETTINGS, 0), (WINDOW_UPDATE, 0), (SETTINGS, ACK)]);
        tested
    }

    /// A connection before any input of the client.
    pub(crate) fn silent() -> Self {
        Self { server: Server::new(CONFIG), came: Vec::new() }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.server.handle_input(bytes);
    }

    /// A request without a body.
    pub(crate) fn get(&mut self, stream: u32) {
        self.send(&frame(HEADERS, END_HEADERS | END_STREAM, stream, &get_with(&[])));
    }

    /// A request with a body.
    pub(crate) fn post(&mut self, stream: u32, more: &[(&str, &str)]) {
        self.send(&frame(HEADERS, END_HEADERS, stream, &post_with(more)));
    }

    pub(crate) fn request(&mut self) -> NewRequest {
        self.server.poll_request().expect("a request")
    }

    /// Takes all output and parses it.
    pub(crate) fn frames(&mut self) -> Vec<Frame> {
        while !self.server.output().is_empty() {
            let mut slices = [std::io::IoSlice::new(&[]); 3];
            let count = self.server.output().slices(&mut slices);
            // Partial writes of any length.
            let bytes: Vec<u8> = slices[..count].iter().flat_map(|slice| slice.to_vec()).collect();
            let part = bytes.len().div_ceil(2);
            self.came.extend_from_slice(&bytes[..part]);
            self.server.mark_written(part);
        }
        let mut frames = Vec::new();
        let mut rest = std::mem::take(&mut self.came);
        while !rest.is_empty() {
            let length = u32::from_be_bytes([0, rest[0], rest[1], rest[2]]) as usize;
            let tail = rest.split_off(9 + length);
            let stream = u32::from_be_bytes([rest[5], rest[6], rest[7], rest[8]]);
            frames.push(Frame { kind: rest[3], flags: rest[4], stream, payload: rest.split_off(9) });
            rest = tail;
        }
        frames
    }

    /// Checks that the connection has failed with this code, reported last.
    pub(crate) fn fails(&mut self, code: ErrorCode) {
        assert_eq!(self.server.failure(), Some(code));
        assert!(self.server.is_over());
        assert_eq!(self.server.faults().pop(), Some((Fault::Connection(code), 1)), "the last reported error");
        let last = self.frames().pop().expect("a last frame");
        assert_eq!((last.kind, &last.payload[4..]), (GOAWAY, &code.0.to_be_bytes()[..]));
    }

    /// Checks that the stream is reset with this code, and the connection continues.
    pub(crate) fn resets(&mut self, stream: u32, code: ErrorCode) {
        let expected = Frame { kind: RST_STREAM, flags: 0, stream, payload: code.0.to_be_bytes().to_vec() };
        assert_eq!(self.frames(), [expected]);
        assert_eq!(self.server.failure(), None);
        assert!(self.server.is_reset(stream));
        let is_fault = ![ErrorCode::NO_ERROR, ErrorCode::CANCEL, ErrorCode::INTERNAL_ERROR].contains(&code);
        assert_eq!(self.server.faults(), if is_fault { vec![(Fault::Stream(code), 1)] } else { Vec::new() });
    }
}
