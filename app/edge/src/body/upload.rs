//! The bodies that pass through: [`Upload`] towards the origin, [`AnswerBody`] towards the client.
//!
//! Neither buffers: a frame is taken from one side when the other has room for it.

use std::{
    cell::Cell,
    future::Future,
    pin::{Pin, pin},
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use sallyport_net::Pace as _;
use sallyport_tunnel::Establishment;
use tokio::{sync::Notify, time::Sleep};

use crate::{
    Edge,
    body::upload_meter::{MeteredUpload, UploadMeter},
    http::{
        context::Ticket,
        guarded_io::WireState,
        h1::Http1Body,
        h2::Http2Body,
        send_bound::{self, Patience},
        upgrade::Upgraded,
    },
    origins::http::response_body::Download,
    policy::limits::Meter,
};

/// Any error that ends a body before its end.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// A body made elsewhere, such as the API's.
pub type ApiBody = UnsyncBoxBody<Bytes, BoxError>;

/// How much of an answer an HTTP/2 stream is given at once, in bytes: it counts as sent then, and waits for the client.
const MAX_H2_PIECE_BYTES: usize = 32 * 1024;
/// How long, and how much in bytes, is read of a body that nobody wants before its HTTP/2 stream is reset.
const MAX_UNWANTED_TIME: Duration = Duration::from_secs(5);
const MAX_UNWANTED_BYTES: u64 = 16 * 1024 * 1024;
/// How long a client that expects `100 Continue` waits for the origin's word before its body is taken regardless
/// (RFC 9110 section 10.1.1: a client may not wait indefinitely, and neither do we for it).
const MAX_EXPECTATION_WAIT: Duration = Duration::from_secs(1);

/// A request's body, as its client sends it.
#[derive(Debug)]
pub(crate) enum ClientBody {
    /// There is none.
    Empty,
    /// Over HTTP/1.
    Http1(Http1Body),
    /// Over HTTP/2.
    Http2(Http2Body),
}

impl Body for ClientBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut *self {
            Self::Empty => Poll::Ready(None),
            Self::Http1(body) => Pin::new(body).poll_frame(cx),
            Self::Http2(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Http1(body) => body.is_end_stream(),
            Self::Http2(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Http1(body) => body.size_hint(),
            Self::Http2(body) => body.size_hint(),
        }
    }
}

/// What the request path and the origin connection share of one request body.
///
/// The client's body lies here until the origin has taken the connection, so that it can be taken back whole for
/// another origin.
#[derive(Debug)]
pub(crate) struct UploadSlot {
    waiting: Mutex<Option<ClientBody>>,
    unread: Mutex<Option<ClientBody>>,
    bytes: AtomicU64,
    finished: AtomicBool,
    broken: AtomicBool,
    continued: AtomicBool,
    answered: AtomicBool,
    size: SizeHint,
    expects: AtomicBool,
    silence: OnceLock<Duration>,
    pace: OnceLock<Meter>,
    metered: Option<MeteredUpload>,
    is_given_up: AtomicBool,
    given_up: Notify,
}

thread_local! {
    /// The body for an HTTP/2 origin that this thread has just looked at for the first time.
    static FIRST_LOOK: Cell<Option<Arc<UploadSlot>>> = const { Cell::new(None) };
}

/// The body for an HTTP/2 origin that is being set under way in this thread, once: a connection looks at a body before it starts
/// what sends it.
pub(crate) fn take_first_look() -> Option<Arc<UploadSlot>> {
    FIRST_LOOK.take()
}

impl UploadSlot {
    /// The slot of this body, counted by the meter of an HTTP/2 connection; none when the request has no body.
    pub(crate) fn of(body: ClientBody, meter: Option<&Arc<UploadMeter>>) -> Option<Arc<Self>> {
        if body.is_end_stream() {
            return None;
        }
        Some(Arc::new(Self {
            size: body.size_hint(),
            waiting: Mutex::new(Some(body)),
            unread: Mutex::default(),
            bytes: AtomicU64::new(0),
            finished: AtomicBool::new(false),
            broken: AtomicBool::new(false),
            continued: AtomicBool::new(false),
            answered: AtomicBool::new(false),
            expects: AtomicBool::new(false),
            silence: OnceLock::new(),
            pace: OnceLock::new(),
            metered: meter.map(UploadMeter::begin),
            is_given_up: AtomicBool::new(false),
            given_up: Notify::new(),
        }))
    }

    /// Body bytes taken from the client so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether nothing of the body was taken yet.
    pub(crate) fn is_untouched(&self) -> bool {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Whether the whole body was taken.
    pub(crate) fn is_finished(&self) -> bool {
        self.finished.load(Ordering::Relaxed)
    }

    /// Whether the client's side of the body ended in an error.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
    }

    /// The body is counted here, and held back while its socket has used what it may.
    pub(crate) fn is_metered(&self, meter: Meter) {
        let _ = self.pace.set(meter);
    }

    /// How long the client may send nothing of it once its answer has ended; for an origin that may go on reading.
    pub(crate) fn bound_silence(&self, silence: Duration) {
        let _ = self.silence.set(silence);
    }

    /// The client waits for `100 Continue`, which the origin may say.
    pub(crate) fn expect_continue(&self) {
        self.expects.store(true, Ordering::Relaxed);
    }

    /// Whether the client waits for `100 Continue`.
    pub(crate) fn expects_continue(&self) -> bool {
        self.expects.load(Ordering::Relaxed)
    }

    fn take(&self) -> Option<ClientBody> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Nobody wants the rest of the body.
    fn put_unread(&self, body: ClientBody) {
        if !body.is_end_stream() {
            *self.unread.lock().unwrap_or_else(PoisonError::into_inner) = Some(body);
        }
    }

    /// The body, or the rest of it, that nobody wants.
    pub(crate) fn take_unread(&self) -> Option<ClientBody> {
        self.take().or_else(|| self.unread.lock().unwrap_or_else(PoisonError::into_inner).take())
    }

    /// Looks at a frame of the body that is passed on.
    fn passed(&self, frame: Option<&Frame<Bytes>>, is_last: bool) {
        let data = frame.and_then(Frame::data_ref).map_or(0, Bytes::len);
        self.bytes.fetch_add(data as u64, Ordering::Relaxed);
        if let Some(metered) = &self.metered {
            metered.taken(data);
        }
        if is_last {
            self.finished.store(true, Ordering::Relaxed);
        }
    }

    /// The answer has come to its end.
    pub(crate) fn answered(&self) {
        self.answered.store(true, Ordering::Release);
    }

    /// The answer broke off: nobody waits for what the origin makes of the body, and the client may not go on with it.
    pub(crate) fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Release);
        self.given_up.notify_waiters();
    }

    /// Resolves when the body has been given up.
    pub(crate) async fn until_given_up(&self) {
        let mut given_up = pin!(self.given_up.notified());
        // Whoever gives it up after this wakes us.
        given_up.as_mut().enable();
        if !self.is_given_up.load(Ordering::Acquire) {
            given_up.await;
        }
    }

    /// Whether an origin's HTTP/2 connection sends it.
    fn is_for_http2(&self) -> bool {
        self.silence.get().is_some()
    }
}

/// A request body on its way to an origin.
pub(crate) struct Upload {
    shared: Option<Arc<UploadSlot>>,
    gate: Gate,
    pace: Option<Meter>,
    is_looked_at: bool,
}

/// What stands between the client's body and the origin.
enum Gate {
    /// The origin's connection may not be there yet.
    Origin(Establishment),
    /// It is being waited for.
    Waiting(Pin<Box<dyn Future<Output = Result<(), BoxError>> + Send>>),
    /// The origin is there, but may yet say that it does not want the body.
    Expectation(Pin<Box<Sleep>>),
    /// Nothing; the body is still in its slot.
    Clear,
    /// Nothing; the body flows, and may not stop for ever once it is answered.
    Open(ClientBody, Option<Patience>),
}

impl std::fmt::Debug for Upload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upload").field("shared", &self.shared).finish_non_exhaustive()
    }
}

impl Upload {
    /// The body in the slot, to be sent once the origin took the connection. `None`: the connection is known to stand.
    pub(crate) fn new(shared: Option<Arc<UploadSlot>>, establishment: Option<Establishment>) -> Self {
        let gate = match (&shared, establishment) {
            (Some(_), Some(establishment)) => Gate::Origin(establishment),
            (Some(slot), None) => Self::after_origin(slot),
            (None, _) => Gate::Clear,
        };
        let pace = shared.as_ref().and_then(|slot| slot.pace.get().cloned());
        Self { shared, gate, pace, is_looked_at: false }
    }

    /// The origin said `100 Continue`.
    pub(crate) fn continue_came(&self) {
        if let Some(slot) = &self.shared {
            slot.continued.store(true, Ordering::Release);
        }
    }

    fn after_origin(slot: &UploadSlot) -> Gate {
        if slot.expects_continue() {
            Gate::Expectation(Box::pin(tokio::time::sleep(MAX_EXPECTATION_WAIT)))
        } else {
            Gate::Clear
        }
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        let Some(slot) = &this.shared else { return Poll::Ready(None) };
        if !std::mem::replace(&mut this.is_looked_at, true) && slot.is_for_http2() {
            FIRST_LOOK.set(Some(slot.clone()));
        }
        loop {
            match &mut this.gate {
                Gate::Origin(establishment) => match establishment.peek() {
                    Some(Ok(())) => this.gate = Self::after_origin(slot),
                    Some(Err(failure)) => return Poll::Ready(Some(Err(failure.into()))),
                    None => {
                        let establishment = establishment.clone();
                        this.gate = Gate::Waiting(Box::pin(async move { Ok(establishment.wait().await?) }));
                    }
                },
                Gate::Waiting(wait) => match ready!(wait.as_mut().poll(cx)) {
                    Ok(()) => this.gate = Self::after_origin(slot),
                    Err(failure) => return Poll::Ready(Some(Err(failure))),
                },
                Gate::Expectation(sleep) => {
                    if !slot.continued.load(Ordering::Acquire) {
                        ready!(sleep.as_mut().poll(cx));
                    }
                    this.gate = Gate::Clear;
                }
                Gate::Clear => match slot.take() {
                    Some(body) => this.gate = Gate::Open(body, slot.silence.get().copied().map(Patience::new)),
                    None => return Poll::Ready(Some(Err("the request body went to another origin".into()))),
                },
                Gate::Open(body, patience) => {
                    if let Some(pace) = &mut this.pace {
                        ready!(pace.poll_ready(cx));
                    }
                    let polled = Pin::new(&mut *body).poll_frame(cx);
                    if let Some(patience) = patience {
                        patience.moved |= polled.is_ready() || !slot.answered.load(Ordering::Acquire);
                        if polled.is_pending() && patience.poll_over(cx).is_ready() {
                            slot.broken.store(true, Ordering::Relaxed);
                            return Poll::Ready(Some(Err(
                                "the request is answered, and its body stopped coming".into()
                            )));
                        }
                    }
                    let mut frame = ready!(polled);
                    match &mut frame {
                        Some(Ok(frame)) => {
                            if let Some(trailers) = frame.trailers_mut() {
                                sallyport_http::forward::trailers(trailers);
                            }
                            if let (Some(pace), Some(data)) = (&mut this.pace, frame.data_ref()) {
                                pace.moved(data.len());
                            }
                            slot.passed(Some(frame), body.is_end_stream());
                        }
                        Some(Err(_)) => slot.broken.store(true, Ordering::Relaxed),
                        None => slot.passed(None, true),
                    }
                    return Poll::Ready(frame);
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.gate {
            Gate::Open(body, _) => body.is_end_stream(),
            _ => self.shared.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match (&self.gate, &self.shared) {
            (Gate::Open(body, _), _) => body.size_hint(),
            (_, Some(slot)) => slot.size,
            (_, None) => SizeHint::with_exact(0),
        }
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if let (Some(slot), Gate::Open(body, _)) = (&self.shared, std::mem::replace(&mut self.gate, Gate::Clear)) {
            slot.put_unread(body);
        }
    }
}

/// The body of a request to the API.
#[derive(Debug)]
pub struct ApiRequestBody {
    slot: Option<Arc<UploadSlot>>,
    body: Option<ClientBody>,
}

impl ApiRequestBody {
    /// The body in this slot.
    pub(crate) fn new(slot: Option<Arc<UploadSlot>>) -> Self {
        let body = slot.as_ref().and_then(|slot| slot.take());
        Self { slot, body }
    }
}

impl Body for ApiRequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        let (Some(slot), Some(body)) = (&this.slot, &mut this.body) else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(&mut *body).poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => slot.passed(Some(frame), body.is_end_stream()),
            Some(Err(_)) => slot.broken.store(true, Ordering::Relaxed),
            None => slot.passed(None, true),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl Drop for ApiRequestBody {
    fn drop(&mut self) {
        if let (Some(slot), Some(body)) = (&self.slot, self.body.take()) {
            slot.put_unread(body);
        }
    }
}

/// A request's body over HTTP/2 that nobody wants, read behind the end of its answer.
///
/// A client that is still sending when its stream is reset may take that for a failure, although the reset comes after
/// a whole answer and says NO_ERROR (RFC 9113 section 8.1). So it has some time to notice that it has its answer.
pub(crate) struct Unwanted {
    body: ClientBody,
    slot: Arc<UploadSlot>,
    rest: u64,
    timer: Pin<Box<Sleep>>,
}

impl Unwanted {
    fn new(body: ClientBody, slot: Arc<UploadSlot>) -> Self {
        Self { body, slot, rest: MAX_UNWANTED_BYTES, timer: Box::pin(tokio::time::sleep(MAX_UNWANTED_TIME)) }
    }

    /// Ready when the body has ended, or enough of it was read.
    pub(crate) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.rest > 0 {
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    self.slot.passed(Some(&frame), self.body.is_end_stream());
                    self.rest = self.rest.saturating_sub(frame.data_ref().map_or(0, Bytes::len) as u64);
                }
                Poll::Ready(None) => {
                    self.slot.passed(None, true);
                    break;
                }
                Poll::Ready(Some(Err(_))) => break,
                Poll::Pending => return self.timer.as_mut().poll(cx),
            }
        }
        Poll::Ready(())
    }
}

/// Where the bytes of an answer come from.
pub(crate) enum Source {
    /// There are none.
    Empty,
    /// From us.
    Own(Bytes),
    /// From the API's handler.
    Api(ApiBody),
    /// From an origin.
    Origin(Download),
    /// Nowhere: the connection goes on as something else.
    Switch(Box<Upgraded>),
}

/// A response body on its way to the client. When it is dropped the request is over, and recorded.
pub(crate) struct AnswerBody {
    source: Source,
    /// What is left of a frame that is given out in pieces.
    rest: Bytes,
    ticket: Option<Box<Ticket>>,
    /// The connection that ends with it.
    ends: Option<Arc<WireState>>,
}

impl AnswerBody {
    /// A body from this source, which ends this request.
    pub(crate) fn new(source: Source, ticket: Option<Box<Ticket>>) -> Self {
        Self { source, rest: Bytes::new(), ticket, ends: None }
    }

    /// Whether it was made here and not by an origin.
    pub(crate) fn is_ours(&self) -> bool {
        matches!(self.source, Source::Own(_) | Source::Api(_))
    }

    /// Whether an origin's answer passes on with it.
    pub(crate) fn is_of_origin(&self) -> bool {
        matches!(self.source, Source::Origin(_))
    }

    /// The same body; its end is the end of the request that this ticket stands for.
    pub(crate) fn with_ticket(mut self, mut ticket: Box<Ticket>, edge: Arc<Edge>) -> Self {
        if !self.is_end_stream() {
            ticket.goes_on(edge);
        }
        self.ticket = Some(ticket);
        send_bound::waits_for_client();
        self
    }

    /// All that was announced of it has been given out, whatever its origin still says.
    pub(crate) fn is_whole(&mut self) {
        if let Some(ticket) = &mut self.ticket {
            ticket.complete();
        }
    }

    /// The end of HTTP on its connection.
    pub(crate) fn switching(mut self, upgraded: Upgraded) -> Self {
        self.source = Source::Switch(Box::new(upgraded));
        self
    }

    /// What its connection goes on as, when that is something else.
    pub(crate) fn take_upgraded(&mut self) -> Option<Upgraded> {
        if !matches!(self.source, Source::Switch(_)) {
            return None;
        }
        match std::mem::replace(&mut self.source, Source::Empty) {
            Source::Switch(upgraded) => Some(*upgraded),
            _ => None,
        }
    }

    /// The same body, after which this connection of HTTP/1 ends; to be told behind [`AnswerBody::with_ticket`].
    pub(crate) fn ending(mut self, wire: Arc<WireState>) -> Self {
        self.ends = Some(wire);
        if self.is_end_stream() {
            self.ends_connection();
        }
        self
    }

    /// The body has been given out to its end. The connection ends behind it, or later: an origin may take the rest of the
    /// request after its answer.
    fn ends_connection(&mut self) {
        let is_whole = self.ticket.as_ref().is_none_or(|ticket| ticket.has_whole_request());
        if let Some(wire) = self.ends.take().filter(|_| is_whole) {
            wire.ends();
        }
    }

    /// Sends on of the request while its client takes nothing of the answer.
    pub(crate) fn poll_upload(&mut self, cx: &mut Context<'_>) {
        if let Source::Origin(download) = &mut self.source {
            download.poll_upload(cx);
        }
    }

    fn poll_source(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Poll::Ready(match &mut self.source {
            Source::Empty | Source::Switch(_) => None,
            Source::Own(_) => match std::mem::replace(&mut self.source, Source::Empty) {
                Source::Own(bytes) => Some(Ok(Frame::data(bytes))),
                _ => None,
            },
            Source::Api(body) => ready!(Pin::new(body).poll_frame(cx)),
            Source::Origin(download) => {
                const REVOKED: &str = "whose request it was may not come in any more";
                if self.ticket.as_mut().is_some_and(|ticket| ticket.poll_going_on(false, cx).is_ready()) {
                    return Poll::Ready(Some(Err(REVOKED.into())));
                }
                let mut pass = self.ticket.as_mut().and_then(|ticket| ticket.pass());
                if let Some(pass) = &mut pass {
                    ready!(pass.poll_ready(cx));
                }
                match download.poll_frame(cx) {
                    Poll::Ready(frame) => {
                        if let (Some(pass), Some(Ok(frame))) = (pass, &frame) {
                            pass.moved(frame.data_ref().map_or(0, Bytes::len));
                        }
                        frame
                    }
                    Poll::Pending => {
                        ready!(self.ticket.as_mut().map_or(Poll::Pending, |ticket| ticket.poll_going_on(true, cx)));
                        Some(Err(REVOKED.into()))
                    }
                }
            }
        })
    }

    /// What is left of the request's body over HTTP/2 and that nobody wants, when all of the answer has been given out. The
    /// request is over with it.
    pub(crate) fn into_unwanted(self) -> Option<Unwanted> {
        let slot = self.ticket.as_ref()?.http2_upload()?.clone();
        // What the origin's connection holds of the body comes back with the end of the answer.
        drop(self);
        let body = slot.take_unread()?;
        Some(Unwanted::new(body, slot))
    }

    /// What is given out of a frame on this connection: all of it, or in HTTP/2 its first piece.
    fn piece_of(&mut self, frame: Frame<Bytes>) -> Frame<Bytes> {
        let is_http2 = send_bound::waits_for_client();
        if !is_http2 || frame.data_ref().is_none_or(|data| data.len() <= MAX_H2_PIECE_BYTES) {
            return frame;
        }
        match frame.into_data() {
            Ok(mut data) => {
                self.rest = data.split_off(MAX_H2_PIECE_BYTES);
                Frame::data(data)
            }
            Err(frame) => frame,
        }
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        let frame = if this.rest.is_empty() {
            match this.poll_source(cx) {
                Poll::Ready(frame) => frame,
                Poll::Pending => {
                    send_bound::waits_for_origin();
                    return Poll::Pending;
                }
            }
        } else {
            Some(Ok(Frame::data(std::mem::take(&mut this.rest))))
        };
        let frame = frame.map(|frame| frame.map(|frame| this.piece_of(frame)));
        if this.ends.is_some() && frame.as_ref().is_none_or(|frame| frame.is_ok() && this.is_end_stream()) {
            this.ends_connection();
        }
        if let Some(ticket) = &mut this.ticket {
            match &frame {
                Some(Ok(frame)) => ticket.count_out(frame.data_ref().map_or(0, Bytes::len)),
                Some(Err(_)) => ticket.broken(),
                None => ticket.complete(),
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        // An answer that is a head alone ends with it, whatever the client still sends: gRPC has its status there
        // (Trailers-Only), and takes it from nowhere else when a frame follows.
        if !self.rest.is_empty() {
            return false;
        }
        match &self.source {
            Source::Empty | Source::Switch(_) => true,
            Source::Own(bytes) => bytes.is_empty(),
            Source::Api(body) => body.is_end_stream(),
            Source::Origin(download) => download.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Empty | Source::Switch(_) => SizeHint::with_exact(0),
            Source::Own(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Source::Api(body) => body.size_hint(),
            Source::Origin(download) => download.size_hint(),
        }
    }
}

impl Drop for AnswerBody {
    fn drop(&mut self) {
        if let Some(mut ticket) = self.ticket.take() {
            if self.is_end_stream() {
                ticket.complete();
            }
            ticket.record();
        }
    }
}
