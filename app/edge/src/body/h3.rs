//! The body of an HTTP/3 request, and the state of its connection, which the tasks of all streams share.

use std::{
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use quinn::{ReadError, RecvStream, VarInt};
use sallyport_http2::Signal as _;
use sallyport_http3::{Connection, ErrorCode, Fault, Piece, RequestStream};
use tokio::{sync::Notify, time::Instant};

use super::{
    h2::TaskWaker,
    upload::BoxError,
    upload_meter::{MAX_SPARED_BYTES, UploadMeter},
};

/// How many bytes one stream may send ahead of the origin: the receive window of QUIC's streams.
pub(crate) const STREAM_WINDOW_BYTES: usize = 1024 * 1024;
/// Bounds on the bytes of responses that a connection holds until the client has acknowledged them. They follow the
/// congestion window: a client that acknowledges nothing gets no more than the least.
const MIN_SEND_WINDOW_BYTES: u64 = 256 * 1024;
const MAX_SEND_WINDOW_BYTES: u64 = 16 * 1024 * 1024;
/// After how many sent bytes the bound is adapted.
const ADAPT_AFTER_BYTES: usize = 128 * 1024;
/// How many pieces of a stream are read at once. A piece is the part of a stream in one packet.
const MAX_CHUNKS: usize = 16;

/// The code on the wire.
pub(crate) fn varint(code: ErrorCode) -> VarInt {
    // Every code has fewer than 62 bits.
    VarInt::from_u64(code.0).unwrap_or(VarInt::MAX)
}

/// The state of an HTTP/3 connection that its streams share.
#[derive(Debug)]
pub(crate) struct Http3State {
    /// The connection below.
    pub(crate) quic: quinn::Connection,
    /// Receive window of the connection, in bytes.
    window: u32,
    /// Whether the window is reduced, because uploads hold too much memory.
    is_narrow: AtomicBool,
    /// Whether the client is to acknowledge something from its new address.
    wants_proof: AtomicBool,
    /// Bytes that were sent since the send window was adapted.
    sent: AtomicUsize,
    shared: Mutex<Shared>,
    /// Notified when the connection's task has something to do.
    pub(crate) changed: Notify,
}

#[derive(Debug)]
struct Shared {
    http: Connection,
    running: usize,
    quiet_since: Instant,
    /// What the client may send on the streams of all running uploads, in bytes.
    credit: usize,
    /// Faults that were not counted yet.
    faults: Vec<Fault>,
}

/// A request that runs, counted until dropped.
#[derive(Debug)]
pub(crate) struct RunningRequest(Arc<Http3State>);

impl Http3State {
    /// The state of a new connection with this receive window.
    pub(crate) fn new(quic: quinn::Connection, window: u32) -> Self {
        let shared =
            Shared { http: Connection::new(), running: 0, quiet_since: Instant::now(), credit: 0, faults: Vec::new() };
        let (shared, is_narrow, wants_proof) = (Mutex::new(shared), AtomicBool::default(), AtomicBool::default());
        quic.set_send_window(MIN_SEND_WINDOW_BYTES);
        Self { quic, window, is_narrow, wants_proof, sent: AtomicUsize::new(0), shared, changed: Notify::new() }
    }

    /// Records bytes of a response. As the path carries more, more may be unacknowledged.
    pub(crate) fn record_sent(&self, bytes: usize) {
        if self.sent.fetch_add(bytes, Ordering::Relaxed) + bytes < ADAPT_AFTER_BYTES {
            return;
        }
        self.sent.store(0, Ordering::Relaxed);
        let in_flight = self.quic.stats().path.cwnd;
        self.quic.set_send_window((2 * in_flight).clamp(MIN_SEND_WINDOW_BYTES, MAX_SEND_WINDOW_BYTES));
    }

    /// Has the connection's task send something that the client acknowledges from its new address.
    pub(crate) fn ask_for_proof(&self) {
        self.wants_proof.store(true, Ordering::Relaxed);
        self.changed.notify_one();
    }

    /// Whether `ask_for_proof` was called since the last call.
    pub(crate) fn take_proof_wish(&self) -> bool {
        self.wants_proof.swap(false, Ordering::Relaxed)
    }

    /// Calls `act` on the state machine.
    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut Connection) -> R) -> R {
        act(&mut self.shared.lock().http)
    }

    /// Counts one more running request.
    pub(crate) fn begin_request(self: &Arc<Self>) -> RunningRequest {
        self.shared.lock().running += 1;
        RunningRequest(self.clone())
    }

    /// When an idle connection will have been quiet for `bound`; `None` while requests run.
    pub(crate) fn quiet_until(&self, bound: Duration) -> Option<Instant> {
        let shared = self.shared.lock();
        (shared.running == 0).then(|| shared.quiet_since + bound)
    }

    /// Whether requests run.
    pub(crate) fn is_serving(&self) -> bool {
        self.shared.lock().running > 0
    }

    /// Whether to close the connection: no request runs, and the client has gone, or `is_closing`.
    pub(crate) fn is_over(&self, is_closing: bool) -> bool {
        let shared = self.shared.lock();
        shared.running == 0 && (is_closing || shared.http.has_client_gone())
    }

    /// The faults since the last call.
    pub(crate) fn faults(&self) -> Vec<Fault> {
        std::mem::take(&mut self.shared.lock().faults)
    }

    /// Closes the connection because of a violation.
    pub(crate) fn fail(&self, code: ErrorCode) {
        let is_first = self.quic.close_reason().is_none();
        self.quic.close(varint(code), b"");
        if is_first {
            self.record(Fault::Connection(code));
        }
    }

    /// Records a violation on a request's stream, which the caller resets with the returned code.
    pub(crate) fn fail_request(&self, fault: Fault) -> ErrorCode {
        match fault {
            Fault::Connection(code) => {
                self.fail(code);
                code
            }
            Fault::Stream(code) => {
                self.record(fault);
                self.count_given_up();
                code
            }
        }
    }

    /// Counts a request that its client gave up before the response.
    pub(crate) fn count_given_up(&self) {
        if let Err(code) = self.with(Connection::count_given_up) {
            self.fail(code);
        }
    }

    fn record(&self, fault: Fault) {
        self.shared.lock().faults.push(fault);
        self.changed.notify_one();
    }

    /// Counts a change of the client's credit on one stream, and bytes that were read from it. On all streams together,
    /// the client has no more credit than the window of the connection.
    fn count_credit(&self, meter: &UploadMeter, before: usize, now: usize, read: usize) {
        let window = self.window as usize;
        let mut shared = self.shared.lock();
        let held_before = shared.credit.min(window);
        shared.credit = shared.credit.saturating_sub(before) + now;
        let held = shared.credit.min(window) + read;
        drop(shared);
        match held.checked_sub(held_before) {
            Some(more) => meter.record_received(more),
            None => meter.record_taken(held_before - held),
        }
    }

    /// Grants the client less credit while uploads hold too much memory.
    fn check_window(&self, meter: &UploadMeter) {
        let is_narrow = !meter.may_read();
        if self.is_narrow.load(Ordering::Relaxed) != is_narrow
            && self.is_narrow.swap(is_narrow, Ordering::Relaxed) != is_narrow
        {
            let bytes = if is_narrow { MAX_SPARED_BYTES as u32 } else { self.window };
            self.quic.set_receive_window(bytes.into());
        }
    }
}

impl Drop for RunningRequest {
    fn drop(&mut self) {
        let mut shared = self.0.shared.lock();
        shared.running -= 1;
        if shared.running == 0 {
            shared.quiet_since = Instant::now();
            if shared.http.is_ending() {
                self.0.changed.notify_one();
            }
        }
    }
}

/// What the body of a request tells the task of its stream.
#[derive(Debug, Default)]
pub(crate) struct BodySignals(Mutex<Signals>);

#[derive(Debug, Default)]
struct Signals {
    wants_continue: bool,
    broken: Option<ErrorCode>,
    task: TaskWaker,
}

/// A signal of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodySignal {
    /// The body is awaited, and the client waits for `100 Continue`.
    WantsContinue,
    /// The body broke off; the stream is to be reset with this code.
    Broken(ErrorCode),
}

impl BodySignals {
    /// Ready with the next signal.
    pub(crate) fn poll(&self, cx: &Context<'_>) -> Poll<BodySignal> {
        let mut signals = self.0.lock();
        if let Some(code) = signals.broken {
            return Poll::Ready(BodySignal::Broken(code));
        }
        if std::mem::take(&mut signals.wants_continue) {
            return Poll::Ready(BodySignal::WantsContinue);
        }
        signals.task.wait(cx);
        Poll::Pending
    }

    /// The code to reset the stream with, if the body broke off.
    pub(crate) fn broken(&self) -> Option<ErrorCode> {
        self.0.lock().broken
    }

    fn set(&self, signal: BodySignal) {
        let mut signals = self.0.lock();
        match signal {
            BodySignal::WantsContinue => signals.wants_continue = true,
            BodySignal::Broken(code) => signals.broken = Some(code),
        }
        signals.task.signal();
    }
}

/// Reads the request of a stream.
#[derive(Debug)]
pub(crate) struct RequestReader {
    request: RequestStream,
    recv: RecvStream,
    state: Arc<Http3State>,
    /// Bytes of an unfinished head that are held.
    held: usize,
}

impl RequestReader {
    pub(crate) fn new(request: RequestStream, recv: RecvStream, state: Arc<Http3State>) -> Self {
        Self { request, recv, state, held: 0 }
    }

    /// Ready with the next part of the request. An error is the code to reset the stream with:
    /// [`ErrorCode::REQUEST_CANCELLED`] if the client has reset it.
    pub(crate) fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Result<Piece, ErrorCode>> {
        loop {
            let piece = self.request.poll();
            let skipped = self.request.skipped();
            if skipped > 0
                && let Err(code) = self.state.with(|http| http.count_skipped(skipped))
            {
                return Poll::Ready(Err(self.state.fail_request(Fault::Connection(code))));
            }
            let piece = match (piece, self.hold()) {
                (Ok(piece), Ok(())) => piece,
                (Err(fault), _) | (_, Err(fault)) => return Poll::Ready(Err(self.state.fail_request(fault))),
            };
            if !matches!(piece, Piece::Missing) {
                return Poll::Ready(Ok(piece));
            }
            match ready!(self.poll_bytes(cx)) {
                Ok(Some(bytes)) => self.request.handle_input(bytes),
                Ok(None) => self.request.handle_end(),
                // The client has reset the stream, or the connection is lost.
                Err(_) => return Poll::Ready(Err(ErrorCode::REQUEST_CANCELLED)),
            }
        }
    }

    fn hold(&mut self) -> Result<(), Fault> {
        let (before, now) = (self.held, self.request.held_bytes());
        if before != now {
            self.held = 0;
            self.state.with(|http| http.hold(before, now))?;
            self.held = now;
        }
        Ok(())
    }

    /// Ready with the next bytes. Several short pieces are joined, because each passes through the whole request path.
    fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, ReadError>> {
        let mut chunks = [const { Bytes::new() }; MAX_CHUNKS];
        let read = ready!(pin!(self.recv.read_chunks(&mut chunks)).poll(cx))?;
        Poll::Ready(Ok(match (read, chunks) {
            (None, _) => None,
            (Some(1), [only, ..]) => Some(only),
            (Some(_), chunks) => {
                let mut joined = BytesMut::with_capacity(chunks.iter().map(Bytes::len).sum());
                chunks.iter().for_each(|chunk| joined.extend_from_slice(chunk));
                Some(joined.freeze())
            }
        }))
    }

    /// Asks the client to stop sending.
    pub(crate) fn stop(&mut self, code: ErrorCode) {
        // Fails if everything was received.
        let _ = self.recv.stop(varint(code));
    }
}

impl Drop for RequestReader {
    fn drop(&mut self) {
        if self.held > 0 {
            let _ = self.state.with(|http| http.hold(self.held, 0));
        }
        self.stop(ErrorCode::NO_ERROR);
    }
}

/// The body of an HTTP/3 request. Once dropped, the client is asked to stop sending.
#[derive(Debug)]
pub(crate) struct Http3Body {
    reader: RequestReader,
    signals: Arc<BodySignals>,
    /// The next part, if it was read already.
    next: Option<Result<Piece, ErrorCode>>,
    /// Whether the client waits for `100 Continue`.
    expects: bool,
    is_over: bool,
    /// Counts the bytes in memory, of this body and of others.
    meter: Option<Arc<UploadMeter>>,
    /// What the client may send, as counted by the meter.
    credit: usize,
}

impl Http3Body {
    /// The body behind a head. `expects` says that the client waits for `100 Continue`.
    pub(crate) fn new(
        reader: RequestReader,
        signals: Arc<BodySignals>,
        expects: bool,
        meter: Option<Arc<UploadMeter>>,
    ) -> Self {
        let mut body = Self { reader, signals, next: None, expects, is_over: false, meter, credit: 0 };
        body.count_credit(0);
        body
    }

    /// Reads what is there already, so that the end of the body is known as soon as it has come.
    pub(crate) fn read_ahead(&mut self, cx: &mut Context<'_>) {
        if self.next.is_none()
            && let Poll::Ready(piece) = self.reader.poll_piece(cx)
        {
            self.count_read(&piece);
            self.next = Some(piece);
        }
    }

    /// What the client may send until more is read: as much as is left, or as the window of a stream.
    fn count_credit(&mut self, read: usize) {
        let Some(meter) = &self.meter else { return };
        let left =
            self.reader.request.body_bytes_left().map_or(usize::MAX, |left| left.try_into().unwrap_or(usize::MAX));
        let credit = if self.is_over { 0 } else { left.min(STREAM_WINDOW_BYTES) };
        self.reader.state.count_credit(meter, self.credit, credit, read);
        self.credit = credit;
        self.reader.state.check_window(meter);
    }

    /// Counts no credit until more is read: what comes is taken at once.
    pub(crate) fn release_credit(&mut self) {
        let Some(meter) = &self.meter else { return };
        if self.credit > 0 {
            self.reader.state.count_credit(meter, self.credit, 0, 0);
            self.credit = 0;
            self.reader.state.check_window(meter);
        }
    }

    /// Asks the client to stop sending.
    pub(crate) fn stop(&mut self, code: ErrorCode) {
        self.reader.stop(code);
    }

    fn count_read(&mut self, piece: &Result<Piece, ErrorCode>) {
        let read = match piece {
            Ok(Piece::Data(data)) => data.len(),
            Ok(Piece::Trailers(_)) => 0,
            _ => {
                self.is_over = true;
                0
            }
        };
        self.count_credit(read);
        if let Err(code) = piece {
            self.reader.stop(*code);
            self.signals.set(BodySignal::Broken(*code));
        }
    }
}

impl Body for Http3Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        let piece = match this.next.take() {
            Some(piece) => piece,
            None if this.is_over => return Poll::Ready(None),
            None => match this.reader.poll_piece(cx) {
                Poll::Ready(piece) => {
                    this.count_read(&piece);
                    piece
                }
                Poll::Pending => {
                    if std::mem::take(&mut this.expects) {
                        this.signals.set(BodySignal::WantsContinue);
                    }
                    return Poll::Pending;
                }
            },
        };
        this.expects = false;
        if this.reader.request.body_bytes_left() == Some(0) && !this.is_over {
            this.read_ahead(cx);
        }
        Poll::Ready(match piece {
            Ok(Piece::Data(data)) => Some(Ok(Frame::data(data))),
            Ok(Piece::Trailers(fields)) => Some(Ok(Frame::trailers(fields))),
            Ok(Piece::End) => None,
            // A request has one head, and missing bytes are waited for.
            Ok(Piece::Head(_) | Piece::Missing) => None,
            Err(code) => Some(Err(format!("the client's stream broke off: {code}").into())),
        })
    }

    fn is_end_stream(&self) -> bool {
        match &self.next {
            Some(piece) => matches!(piece, Ok(Piece::End)),
            None => self.is_over,
        }
    }

    fn size_hint(&self) -> SizeHint {
        let read = match &self.next {
            Some(Ok(Piece::Data(data))) => data.len() as u64,
            _ => 0,
        };
        let left = self.reader.request.body_bytes_left();
        left.map_or_else(SizeHint::default, |left| SizeHint::with_exact(left + read))
    }
}

impl Drop for Http3Body {
    fn drop(&mut self) {
        if let Some(meter) = &self.meter {
            let unread = match &self.next {
                Some(Ok(Piece::Data(data))) => data.len(),
                _ => 0,
            };
            self.reader.state.count_credit(meter, self.credit, 0, 0);
            meter.record_taken(unread);
        }
    }
}
