//! A raw HTTP/2 client that writes its own frames and records the frames of the edge. Also an origin that records its
//! requests.

use std::{
    collections::{BTreeMap, HashMap},
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::Semaphore,
};

use crate::harness::*;

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

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

pub(crate) const ACK: u8 = 0x1;
pub(crate) const END_STREAM: u8 = 0x1;
pub(crate) const END_HEADERS: u8 = 0x4;
pub(crate) const PADDED: u8 = 0x8;
pub(crate) const PRIORITIZED: u8 = 0x20;

pub(crate) const HEADER_TABLE_SIZE: u16 = 1;
pub(crate) const ENABLE_PUSH: u16 = 2;
pub(crate) const INITIAL_WINDOW_SIZE: u16 = 4;
pub(crate) const MAX_FRAME_SIZE: u16 = 5;

pub(crate) const NO_ERROR: u32 = 0;
pub(crate) const PROTOCOL_ERROR: u32 = 1;
pub(crate) const FLOW_CONTROL_ERROR: u32 = 3;
pub(crate) const STREAM_CLOSED: u32 = 5;
pub(crate) const FRAME_SIZE_ERROR: u32 = 6;
pub(crate) const REFUSED_STREAM: u32 = 7;
pub(crate) const CANCEL: u32 = 8;
pub(crate) const COMPRESSION_ERROR: u32 = 9;
pub(crate) const ENHANCE_YOUR_CALM: u32 = 11;

/// The longest payload that the client accepts: the default for MAX_FRAME_SIZE (RFC 9113 section 6.5.2).
const MAX_PAYLOAD_BYTES: usize = 16_384;

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, a, b, c] = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = vec![a, b, c, kind, flags];
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// The payload of SETTINGS.
pub(crate) fn settings(settings: &[(u16, u32)]) -> Vec<u8> {
    settings.iter().flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat()).collect()
}

/// A field block of literals without indexing (RFC 7541 section 6.2.2).
pub(crate) fn block<N: AsRef<[u8]>, V: AsRef<[u8]>>(fields: &[(N, V)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name.as_ref(), value.as_ref()] {
            length(&mut block, text.len());
            block.extend(text);
        }
    }
    block
}

/// Appends a string length with a prefix of seven bits (RFC 7541 section 5.1).
fn length(block: &mut Vec<u8>, length: usize) {
    if length < 127 {
        block.push(u8::try_from(length).unwrap());
        return;
    }
    block.push(127);
    let mut rest = length - 127;
    while rest >= 128 {
        block.push(u8::try_from(rest % 128).unwrap() | 128);
        rest /= 128;
    }
    block.push(u8::try_from(rest).unwrap());
}

/// The status in this block, if it begins with one. The client keeps no table, so the status never refers to an earlier
/// block.
fn status_in(block: &[u8]) -> Option<u16> {
    let start = block.iter().position(|byte| byte & 0xe0 != 0x20)?;
    let block = &block[start..];
    let first = *block.first()?;
    let indexed = [200, 204, 206, 304, 400, 404, 500];
    if first & 0x80 != 0 {
        return indexed.get(usize::from(first & 0x7f).checked_sub(8)?).copied();
    }
    let index = if first & 0x40 != 0 { first & 0x3f } else { first & 0x0f };
    if !(8..=14).contains(&index) {
        return None;
    }
    let length = *block.get(1)?;
    let text = block.get(2..2 + usize::from(length & 0x7f))?;
    if length & 0x80 == 0 {
        return std::str::from_utf8(text).ok()?.parse().ok();
    }
    // Digits in the Huffman code: 0 to 2 have five bits, the others six (RFC 7541 appendix B).
    let bits = text.iter().fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte)) << (64 - 8 * text.len());
    let (mut bits, mut status) = (bits, 0);
    for _ in 0..3 {
        let five = u16::try_from(bits >> 59).unwrap();
        let six = u16::try_from(bits >> 58).unwrap();
        let (digit, used) = if five < 3 { (five, 5) } else { (six.checked_sub(0x16)?, 6) };
        status = status * 10 + digit;
        bits <<= used;
    }
    Some(status)
}

/// The outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A whole response with this status.
    Status(u16),
    /// A reset of the stream with this code.
    Reset(u32),
    /// The end of the connection, with the code of GOAWAY if there was one.
    Ended(Option<u32>),
}

/// The data received on one stream.
#[derive(Default, Clone)]
pub(crate) struct ReceivedStream {
    /// The status of each head; `None` for trailers.
    pub(crate) heads: Vec<Option<u16>>,
    pub(crate) data: Vec<u8>,
    /// The kind, flags and length of each frame.
    pub(crate) frames: Vec<(u8, u8, usize)>,
    /// Whether the stream ended in order.
    pub(crate) whole: bool,
    /// The code of the stream's reset.
    pub(crate) reset: Option<u32>,
    /// The window that the edge granted for the stream by WINDOW_UPDATE, in bytes.
    pub(crate) granted: usize,
}

impl std::fmt::Debug for ReceivedStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { heads, data, whole, reset, granted, .. } = self;
        write!(f, "{heads:?}, {} bytes, whole: {whole}, reset: {reset:?}, granted: {granted}", data.len())
    }
}

pub(crate) struct RawHttp2 {
    io: Client,
    host: String,
    pub(crate) streams: BTreeMap<u32, ReceivedStream>,
    /// The settings of the edge.
    pub(crate) settings: HashMap<u16, u32>,
    /// The number of SETTINGS that the edge acknowledged.
    pub(crate) settings_taken: usize,
    /// The last stream and the code of each GOAWAY.
    pub(crate) goaways: Vec<(u32, u32)>,
    pub(crate) pongs: Vec<Vec<u8>>,
    /// The number of pings from the edge.
    pub(crate) pings: usize,
    /// The window that the edge granted for the connection by WINDOW_UPDATE, in bytes.
    pub(crate) granted: usize,
    pub(crate) ended: bool,
}

impl RawHttp2 {
    /// Opens a TLS connection without the preface.
    pub(crate) async fn connect(world: &World, host: &str) -> Self {
        let io = world.client_with(host, &[b"h2"]).await;
        assert_eq!(io.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        Self {
            io,
            host: host.to_owned(),
            streams: BTreeMap::new(),
            settings: HashMap::new(),
            settings_taken: 0,
            goaways: Vec::new(),
            pongs: Vec::new(),
            pings: 0,
            granted: 0,
            ended: false,
        }
    }

    /// Opens a connection with these settings and a header table size of 0.
    pub(crate) async fn open_with(world: &World, socket: &TestSocket, set: &[(u16, u32)]) -> Self {
        let mut client = Self::connect(world, &socket.host()).await;
        let set = [&[(HEADER_TABLE_SIZE, 0)], set].concat();
        client.write(&[PREFACE, &frame(SETTINGS, 0, 0, &settings(&set))].concat()).await;
        client
    }

    pub(crate) async fn open(world: &World, socket: &TestSocket) -> Self {
        Self::open_with(world, socket, &[]).await
    }

    /// Writes, and ignores errors. A later read sees the end of the connection.
    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        soon(write_lossy(&mut self.io, bytes)).await;
    }

    /// Writes while the edge reads. Returns whether the edge took all bytes within this time.
    pub(crate) async fn may_write(&mut self, bytes: &[u8], patience: std::time::Duration) -> bool {
        let write = async {
            self.io.write_all(bytes).await?;
            self.io.flush().await
        };
        matches!(tokio::time::timeout(patience, write).await, Ok(Ok(())))
    }

    pub(crate) async fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.write(&frame(kind, flags, stream, payload)).await;
    }

    /// The field block of a request with these additional fields.
    pub(crate) fn head(&self, method: &str, path: &str, more: &[(&str, &str)]) -> Vec<u8> {
        let first = [(":method", method), (":scheme", "https"), (":authority", &self.host), (":path", path)];
        block(&[&first, more].concat())
    }

    /// Sends a request without a body.
    pub(crate) async fn get(&mut self, stream: u32, path: &str) {
        let head = self.head("GET", path, &[]);
        self.send(HEADERS, END_HEADERS | END_STREAM, stream, &head).await;
    }

    /// Sends the head of a request with a body.
    pub(crate) async fn post(&mut self, stream: u32, path: &str, more: &[(&str, &str)]) {
        let head = self.head("POST", path, more);
        self.send(HEADERS, END_HEADERS, stream, &head).await;
    }

    /// Grants a window of this size for the stream, or for the connection if the stream is 0.
    pub(crate) async fn grant(&mut self, stream: u32, bytes: u32) {
        self.send(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes()).await;
    }

    /// The data received on this stream.
    pub(crate) fn received(&self, stream: u32) -> ReceivedStream {
        self.streams.get(&stream).cloned().unwrap_or_default()
    }

    /// The bytes of content received on this stream.
    pub(crate) fn got(&self, stream: u32) -> usize {
        self.streams.get(&stream).map_or(0, |received| received.data.len())
    }

    /// The outcome of the request, if it has one.
    pub(crate) fn became(&self, stream: u32) -> Option<Outcome> {
        let received = self.streams.get(&stream);
        if let Some(received) = received {
            let status = received.heads.iter().flatten().find(|status| **status >= 200);
            if let (true, Some(status)) = (received.whole, status) {
                return Some(Outcome::Status(*status));
            }
            if let Some(code) = received.reset {
                return Some(Outcome::Reset(code));
            }
        }
        let failed = self.goaways.iter().map(|(_, code)| *code).find(|code| *code != NO_ERROR);
        (self.ended || failed.is_some()).then_some(Outcome::Ended(failed))
    }

    /// Reads until the request has an outcome.
    pub(crate) async fn outcome(&mut self, stream: u32) -> Outcome {
        self.read_until("the request has an outcome", |client| client.became(stream).is_some()).await;
        self.became(stream).unwrap()
    }

    /// Reads until the connection ends, and returns the code of the last GOAWAY.
    pub(crate) async fn end(&mut self) -> Option<u32> {
        self.read_until("the connection ends", |client| client.ended).await;
        self.goaways.last().map(|(_, code)| *code)
    }

    /// Reads until the edge has processed all sent frames.
    pub(crate) async fn all_is_looked_at(&mut self) {
        let payload = (self.pongs.len() as u64).to_be_bytes();
        self.send(PING, 0, 0, &payload).await;
        self.read_until("a ping is answered", |client| client.pongs.iter().any(|pong| *pong == payload)).await;
    }

    /// Reads until the condition holds.
    pub(crate) async fn read_until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let read = async {
            while !is_so(self) {
                assert!(!self.ended, "the connection ended before {what}: {}", self.state());
                self.read().await;
            }
        };
        if tokio::time::timeout(PATIENCE, read).await.is_err() {
            panic!("not in time: {what}: {}", self.state());
        }
    }

    fn state(&self) -> String {
        let Self { streams, granted, goaways, ended, .. } = self;
        format!("{streams:?}, granted: {granted}, GOAWAY {goaways:?}, ended: {ended}")
    }

    /// Reads one frame, and acknowledges SETTINGS and PING.
    async fn read(&mut self) {
        let mut header = [0; 9];
        if self.io.read_exact(&mut header).await.is_err() {
            self.ended = true;
            return;
        }
        let [a, b, c, kind, flags, d, e, f, g] = header;
        let stream = u32::from_be_bytes([d, e, f, g]);
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        assert!(payload.len() <= MAX_PAYLOAD_BYTES, "a frame of {} bytes", payload.len());
        if self.io.read_exact(&mut payload).await.is_err() {
            self.ended = true;
            return;
        }
        let number = |at: usize| u32::from_be_bytes(payload[at..at + 4].try_into().unwrap());
        match kind {
            SETTINGS if flags & ACK != 0 => self.settings_taken += 1,
            SETTINGS => {
                let pairs = payload.chunks_exact(6).map(|pair| {
                    (u16::from_be_bytes([pair[0], pair[1]]), u32::from_be_bytes(pair[2..].try_into().unwrap()))
                });
                self.settings.extend(pairs);
                self.send(SETTINGS, ACK, 0, &[]).await;
            }
            PING if flags & ACK != 0 => self.pongs.push(payload),
            PING => {
                self.pings += 1;
                self.send(PING, ACK, 0, &payload).await;
            }
            GOAWAY => self.goaways.push((number(0), number(4))),
            WINDOW_UPDATE if stream == 0 => self.granted += number(0) as usize,
            _ => {
                let received = self.streams.entry(stream).or_default();
                received.frames.push((kind, flags, payload.len()));
                assert!(received.reset.is_none(), "a frame arrived on stream {stream} after its reset: {kind}");
                match kind {
                    DATA | HEADERS => {
                        assert!(!received.whole, "a frame arrived on stream {stream} after its end: {kind}");
                        received.whole = flags & END_STREAM != 0;
                        if kind == HEADERS {
                            received.heads.push(status_in(&payload));
                        } else {
                            received.data.extend(payload);
                        }
                    }
                    CONTINUATION => {}
                    WINDOW_UPDATE => received.granted += number(0) as usize,
                    RST_STREAM => received.reset = Some(number(0)),
                    _ => panic!("a frame of kind {kind} on stream {stream}"),
                }
            }
        }
    }
}

/// The number of errors with this code, from the edge's metrics. The metric covers ended connections
/// (`connections_failed`) or reset streams (`streams_reset`).
pub(crate) fn counted(world: &World, what: &str, code: u32) -> u64 {
    let name = match code {
        PROTOCOL_ERROR => "PROTOCOL_ERROR",
        FLOW_CONTROL_ERROR => "FLOW_CONTROL_ERROR",
        STREAM_CLOSED => "STREAM_CLOSED",
        FRAME_SIZE_ERROR => "FRAME_SIZE_ERROR",
        REFUSED_STREAM => "REFUSED_STREAM",
        COMPRESSION_ERROR => "COMPRESSION_ERROR",
        ENHANCE_YOUR_CALM => "ENHANCE_YOUR_CALM",
        other => panic!("the edge sends {other} for no protocol error"),
    };
    let line = format!("sallyport_edge_http2_{what}_total{{code=\"{name}\"}} ");
    let metrics = world.edge.metrics_text().unwrap();
    metrics.lines().find_map(|found| found.strip_prefix(&line)).map_or(0, |count| count.parse().unwrap())
}

/// An HTTP/1.1 origin that records its requests.
pub(crate) struct TestOrigin {
    pub(crate) addr: SocketAddr,
    seen: Arc<Mutex<Vec<String>>>,
    /// The gate with one permit for each response to `/held`.
    pub(crate) gate: Arc<Semaphore>,
}

impl TestOrigin {
    /// Starts the origin. The origin serves `/bytes/N` with [`pattern`], `/held` when the gate opens, and "ok" for all
    /// other paths.
    pub(crate) async fn start() -> Self {
        let (seen, gate) = (Arc::<Mutex<Vec<String>>>::default(), Arc::new(Semaphore::new(0)));
        let addr = origin({
            let (seen, gate) = (seen.clone(), gate.clone());
            move |request: Request<Incoming>| {
                let (seen, gate) = (seen.clone(), gate.clone());
                async move {
                    let asked = format!("{} {}", request.method(), request.uri());
                    let path = request.uri().path().to_owned();
                    seen.lock().unwrap().push(asked.clone());
                    if let Ok(body) = request.into_body().collect().await {
                        let length = body.to_bytes().len();
                        if length > 0 {
                            seen.lock().unwrap().push(format!("{asked} whole, {length} bytes"));
                        }
                    }
                    if path == "/held" {
                        gate.acquire().await.unwrap().forget();
                    }
                    let length = path.strip_prefix("/bytes/").and_then(|length| length.parse().ok());
                    Response::new(length.map_or_else(|| text("ok"), |length| text(pattern(length))))
                }
            }
        })
        .await;
        Self { addr, seen, gate }
    }

    /// The requests of the origin, and the bodies that arrived whole.
    pub(crate) fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

/// This many bytes, in a pattern that shows displaced bytes.
pub(crate) fn pattern(length: usize) -> Vec<u8> {
    let piece: Vec<u8> = (0..65_521_u32).map(|n| (n % 251) as u8 ^ (n / 251) as u8).collect();
    piece.iter().copied().cycle().take(length).collect()
}
