//! An inspector that is told of streams.

use std::time::{Duration, Instant};

use bytes::Bytes;
use sallyport_inspect::{
    Bounds, Exchange, From, Inspector, Now, Record, Source, StreamEvent, StreamOpen, StreamProtocol,
};

pub(crate) struct Rig {
    pub(crate) inspector: Inspector,
    start: Instant,
    pub(crate) wall_ms: i64,
    pub(crate) passed_ms: u64,
    offsets: [u64; 2],
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with(Bounds::default(), StreamProtocol::Http1)
    }

    pub(crate) fn with(bounds: Bounds, protocol: StreamProtocol) -> Self {
        let inspector = Inspector::new(bounds);
        let mut rig =
            Self { inspector, start: Instant::now(), wall_ms: 1_700_000_000_000, passed_ms: 0, offsets: [0; 2] };
        rig.open(protocol);
        rig
    }

    pub(crate) fn open(&mut self, protocol: StreamProtocol) {
        self.offsets = [0; 2];
        let source = Source { edge: Some("edge-1".to_owned()), ..Source::default() };
        self.handle(StreamEvent::Opened(1, StreamOpen { protocol, source, replay_of: None }));
    }

    pub(crate) fn now(&self) -> Now {
        let instant = self.start + Duration::from_millis(self.passed_ms);
        Now { wall_ms: self.wall_ms + self.passed_ms as i64, instant }
    }

    pub(crate) fn handle(&mut self, event: StreamEvent) {
        self.inspector.handle(event, self.now());
    }

    pub(crate) fn send(&mut self, from: From, data: &[u8]) {
        let offset = &mut self.offsets[usize::from(from == From::Service)];
        let event = StreamEvent::Bytes { stream: 1, from, offset: *offset, data: Bytes::copy_from_slice(data) };
        *offset += data.len() as u64;
        self.handle(event);
    }

    /// Bytes that pass without being seen.
    pub(crate) fn skip(&mut self, from: From, bytes: u64) {
        self.offsets[usize::from(from == From::Service)] += bytes;
    }

    pub(crate) fn client(&mut self, data: impl AsRef<[u8]>) {
        self.send(From::Client, data.as_ref());
    }

    pub(crate) fn service(&mut self, data: impl AsRef<[u8]>) {
        self.send(From::Service, data.as_ref());
    }

    pub(crate) fn close(&mut self, reason: Option<&str>) {
        self.handle(StreamEvent::Closed(1, reason.map(str::to_owned)));
    }

    pub(crate) fn record(&mut self, record: Record) {
        self.inspector.record(record, self.now());
    }

    /// The newest exchange.
    pub(crate) fn last(&self) -> &Exchange {
        self.inspector.store().newest().next().unwrap()
    }

    /// One exchange from a request and a response.
    pub(crate) fn exchange(&mut self, request: impl AsRef<[u8]>, response: impl AsRef<[u8]>) -> Exchange {
        self.client(request);
        self.service(response);
        self.last().clone()
    }
}

/// A request with a body.
pub(crate) fn post(path: &str, content_type: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: shop.example.com\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\r\n"
    );
    [head.as_bytes(), body].concat()
}

pub(crate) const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
