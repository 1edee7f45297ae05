//! Copies of the bytes that streams relay, for the inspector.
//!
//! Copies go into a bounded queue, and never wait: bytes without room are left out, and the inspector sees from the
//! place of the next ones that some are missing. A stream holds its place for the last event from the start, so the
//! inspector learns of its end in any case.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use sallyport_model::{EdgeName, TunnelId};
use sallyport_net::{RelayEnd, pass_writes};
use sallyport_wire::{Open, StreamProtocol};
use tokio::{
    io::{AsyncRead, ReadBuf},
    net::TcpStream,
    sync::mpsc,
};

/// How many events may wait for the inspector, with the places for the ends of streams.
const MAX_QUEUED_EVENTS: usize = 16_384;
/// How many copied bytes may wait for the inspector.
const MAX_QUEUED_BYTES: usize = 6 * 1024 * 1024;

/// Who sent relayed bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RelayedFrom {
    /// The client, by the edge.
    Client,
    /// The service.
    Service,
}

/// A stream, as the inspector hears of it.
#[derive(Debug)]
pub struct CapturedStream {
    /// Its number.
    pub number: u64,
    /// Its tunnel.
    pub tunnel: TunnelId,
    /// The edge that opened it, if it has a name.
    pub edge: Option<EdgeName>,
    /// The client's address; another one for a connection that several clients share.
    pub client: SocketAddr,
    /// Whether it is HTTP/2; otherwise it is HTTP/1.1.
    pub is_http2: bool,
    /// Where the inspector says which bytes it does not want.
    pub wanted: Arc<Wanted>,
}

/// What happens on captured streams.
#[derive(Debug)]
pub enum CaptureEvent {
    /// A stream is relayed.
    Opened(CapturedStream),
    /// Copied bytes.
    Bytes {
        /// The stream.
        stream: u64,
        /// The sender.
        from: RelayedFrom,
        /// How many bytes the sender had sent before.
        offset: u64,
        /// The bytes.
        data: Bytes,
    },
    /// The sender has ended its direction.
    Ended(u64, RelayedFrom),
    /// The stream is closed, with the reason if it broke.
    Closed(u64, Option<String>),
}

/// From which place on the inspector wants the bytes of a stream's directions.
#[derive(Debug, Default)]
pub struct Wanted([AtomicU64; 2]);

impl Wanted {
    /// Says that bytes before this place need not be copied.
    pub fn set(&self, from: RelayedFrom, place: u64) {
        self.0[direction(from)].store(place, Ordering::Relaxed);
    }

    fn get(&self, from: RelayedFrom) -> u64 {
        self.0[direction(from)].load(Ordering::Relaxed)
    }
}

fn direction(from: RelayedFrom) -> usize {
    usize::from(from == RelayedFrom::Service)
}

/// The capture of a connector's streams; clones share it.
#[derive(Debug, Clone)]
pub struct Capture {
    events: mpsc::Sender<CaptureEvent>,
    queued: Arc<AtomicUsize>,
    next: Arc<AtomicU64>,
}

/// The inspector's end of a capture.
#[derive(Debug)]
pub struct Captured {
    events: mpsc::Receiver<CaptureEvent>,
    queued: Arc<AtomicUsize>,
}

impl Captured {
    /// The next event, for which the thread waits; `None` once no connector captures.
    ///
    /// # Panics
    /// The thread is one of a runtime.
    pub fn blocking_next(&mut self) -> Option<CaptureEvent> {
        let event = self.events.blocking_recv()?;
        if let CaptureEvent::Bytes { data, .. } = &event {
            self.queued.fetch_sub(data.len(), Ordering::Relaxed);
        }
        Some(event)
    }
}

impl Capture {
    /// A capture, and the end that takes its events.
    #[must_use]
    pub fn new() -> (Self, Captured) {
        let (sender, events) = mpsc::channel(MAX_QUEUED_EVENTS);
        let queued = Arc::new(AtomicUsize::new(0));
        (Self { events: sender, queued: queued.clone(), next: Arc::default() }, Captured { events, queued })
    }

    /// Begins the capture of a stream; `None` if it is no HTTP, or if there is no room.
    pub(crate) fn begin(&self, open: &Open, edge: Option<&EdgeName>) -> Option<Box<Tap>> {
        let is_http2 = match open.protocol {
            StreamProtocol::Http1 => false,
            StreamProtocol::Http2 => true,
            StreamProtocol::Raw => return None,
        };
        let last = self.events.clone().try_reserve_owned().ok()?;
        let (number, wanted) = (self.next.fetch_add(1, Ordering::Relaxed), Arc::<Wanted>::default());
        let stream = CapturedStream {
            number,
            tunnel: open.tunnel,
            edge: edge.cloned(),
            client: open.client,
            is_http2,
            wanted: wanted.clone(),
        };
        self.events.try_send(CaptureEvent::Opened(stream)).ok()?;
        let tap = |from| TapHalf { capture: self.clone(), stream: number, wanted: wanted.clone(), from, passed: 0 };
        let end = CaptureEnd { number, last: Some(last), reason: None };
        Some(Box::new(Tap { client: tap(RelayedFrom::Client), service: tap(RelayedFrom::Service), end }))
    }
}

/// The capture of one stream.
#[derive(Debug)]
pub(crate) struct Tap {
    pub(crate) client: TapHalf,
    pub(crate) service: TapHalf,
    pub(crate) end: CaptureEnd,
}

/// Reports the end of a stream when it is dropped.
#[derive(Debug)]
pub(crate) struct CaptureEnd {
    number: u64,
    last: Option<mpsc::OwnedPermit<CaptureEvent>>,
    /// Why the stream broke.
    pub(crate) reason: Option<String>,
}

impl Drop for CaptureEnd {
    fn drop(&mut self) {
        if let Some(last) = self.last.take() {
            last.send(CaptureEvent::Closed(self.number, self.reason.take()));
        }
    }
}

/// The capture of one direction of a stream.
#[derive(Debug)]
pub(crate) struct TapHalf {
    capture: Capture,
    stream: u64,
    wanted: Arc<Wanted>,
    from: RelayedFrom,
    passed: u64,
}

impl TapHalf {
    /// Copies what a read has brought. No bytes are the end of the direction.
    pub(crate) fn copy(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            let _ = self.capture.events.try_send(CaptureEvent::Ended(self.stream, self.from));
            return;
        }
        let offset = self.passed;
        self.passed += bytes.len() as u64;
        let unwanted = usize::try_from(self.wanted.get(self.from).saturating_sub(offset)).unwrap_or(usize::MAX);
        let Some(wanted) = bytes.get(unwanted..).filter(|wanted| !wanted.is_empty()) else { return };
        let queued = &self.capture.queued;
        if queued.fetch_add(wanted.len(), Ordering::Relaxed) + wanted.len() > MAX_QUEUED_BYTES {
            queued.fetch_sub(wanted.len(), Ordering::Relaxed);
            return;
        }
        let (offset, data) = (offset + unwanted as u64, Bytes::copy_from_slice(wanted));
        let event = CaptureEvent::Bytes { stream: self.stream, from: self.from, offset, data };
        if self.capture.events.try_send(event).is_err() {
            queued.fetch_sub(wanted.len(), Ordering::Relaxed);
        }
    }
}

/// The service's end of a relay whose reads are copied.
pub(crate) struct TappedOrigin<S> {
    origin: S,
    tap: TapHalf,
}

impl<S> TappedOrigin<S> {
    pub(crate) fn new(origin: S, tap: TapHalf) -> Self {
        Self { origin, tap }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TappedOrigin<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let (before, has_room) = (buf.filled().len(), buf.remaining() > 0);
        let read = Pin::new(&mut self.origin).poll_read(cx, buf);
        if matches!(read, Poll::Ready(Ok(()))) && has_room {
            self.tap.copy(&buf.filled()[before..]);
        }
        read
    }
}

pass_writes!(TappedOrigin<S>, origin, S);

impl<S: RelayEnd> RelayEnd for TappedOrigin<S> {
    fn tcp(&self) -> Option<&TcpStream> {
        self.origin.tcp()
    }

    fn poll_reset(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        self.origin.poll_reset(cx)
    }

    fn poll_write_last(&mut self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.origin.poll_write_last(cx, buf)
    }

    fn poll_delayed_write(&mut self, cx: &mut Context<'_>) {
        self.origin.poll_delayed_write(cx);
    }
}
