//! A request body on its way from the client to an origin.
//!
//! The body is not buffered: a frame is taken from the client when the origin has room for the frame.

use std::{
    cell::Cell,
    future::Future,
    pin::{Pin, pin},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use parking_lot::Mutex;
use sallyport_net::Pace as _;
use sallyport_tunnel::Establishment;
use tokio::{sync::Notify, time::Sleep};

use super::{
    h1::Http1Body,
    h2::Http2Body,
    h3::Http3Body,
    upload_meter::{MeteredUpload, UploadMeter},
};

use crate::{policy::limits::Meter, util::idle_timer::IdleTimer};

/// An error that ends a body early.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// A response body of the API's handler.
pub type ApiBody = UnsyncBoxBody<Bytes, BoxError>;

/// How long a body with `Expect: 100-continue` waits for the origin's `100 Continue`. The body is then sent without it
/// (RFC 9110 section 10.1.1: a client does not wait indefinitely).
const MAX_EXPECTATION_WAIT: Duration = Duration::from_secs(1);

/// The body of a client's request.
#[derive(Debug)]
pub(crate) enum ClientBody {
    /// The request has no body.
    Empty,
    /// A body over HTTP/1.
    Http1(Http1Body),
    /// A body over HTTP/2.
    Http2(Http2Body),
    /// A body over HTTP/3.
    Http3(Box<Http3Body>),
}

impl Body for ClientBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut *self {
            Self::Empty => Poll::Ready(None),
            Self::Http1(body) => Pin::new(body).poll_frame(cx),
            Self::Http2(body) => Pin::new(body).poll_frame(cx),
            Self::Http3(body) => Pin::new(&mut **body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Http1(body) => body.is_end_stream(),
            Self::Http2(body) => body.is_end_stream(),
            Self::Http3(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Http1(body) => body.size_hint(),
            Self::Http2(body) => body.size_hint(),
            Self::Http3(body) => body.size_hint(),
        }
    }
}

/// The state of one request body, shared by the request path and the connection to the origin.
///
/// The client's body stays here until an origin has accepted the connection. If the attempt fails before, another
/// origin gets the complete body.
#[derive(Debug)]
pub(crate) struct UploadState {
    untouched: Mutex<Option<ClientBody>>,
    unread: Mutex<Option<ClientBody>>,
    bytes: AtomicU64,
    is_finished: AtomicBool,
    is_broken: AtomicBool,
    is_continued: AtomicBool,
    is_response_over: AtomicBool,
    size: SizeHint,
    expects_continue: AtomicBool,
    max_silence: OnceLock<Duration>,
    meter: OnceLock<Meter>,
    client_meter: Option<MeteredUpload>,
    is_given_up: AtomicBool,
    given_up: Notify,
}

thread_local! {
    /// The body for an HTTP/2 origin that this thread has just polled for the first time.
    static FIRST_POLLED: Cell<Option<Arc<UploadState>>> = const { Cell::new(None) };
}

/// Takes the body for an HTTP/2 origin that this thread has just polled for the first time. hyper polls a body once
/// before it spawns the task that sends the body; so the executor learns which body the task sends.
pub(crate) fn take_first_polled() -> Option<Arc<UploadState>> {
    FIRST_POLLED.take()
}

impl UploadState {
    /// The state of this body; `None` if the request has no body. `meter` is that of an HTTP/2 or HTTP/3 connection.
    pub(crate) fn of(body: ClientBody, meter: Option<&Arc<UploadMeter>>) -> Option<Arc<Self>> {
        if body.is_end_stream() {
            return None;
        }
        Some(Arc::new(Self {
            size: body.size_hint(),
            untouched: Mutex::new(Some(body)),
            unread: Mutex::default(),
            bytes: AtomicU64::new(0),
            is_finished: AtomicBool::new(false),
            is_broken: AtomicBool::new(false),
            is_continued: AtomicBool::new(false),
            is_response_over: AtomicBool::new(false),
            expects_continue: AtomicBool::new(false),
            max_silence: OnceLock::new(),
            meter: OnceLock::new(),
            client_meter: meter.map(UploadMeter::begin),
            is_given_up: AtomicBool::new(false),
            given_up: Notify::new(),
        }))
    }

    /// How many bytes of the body were taken from the client.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether no part of the body was taken yet.
    pub(crate) fn is_untouched(&self) -> bool {
        self.untouched.lock().is_some()
    }

    /// Whether the whole body was taken.
    pub(crate) fn is_finished(&self) -> bool {
        self.is_finished.load(Ordering::Relaxed)
    }

    /// Whether the client's side of the body ended in an error.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Relaxed)
    }

    /// Sets the meter of the socket, which counts the body and delays it when the socket's limit is reached.
    pub(crate) fn set_meter(&self, meter: Meter) {
        let _ = self.meter.set(meter);
    }

    /// Sets how long the client may send nothing once the response has ended. For HTTP/2 origins, which may read on.
    pub(crate) fn set_max_silence(&self, max_silence: Duration) {
        let _ = self.max_silence.set(max_silence);
    }

    /// Records that the client waits for `100 Continue`.
    pub(crate) fn set_expects_continue(&self) {
        self.expects_continue.store(true, Ordering::Relaxed);
    }

    /// Whether the client waits for `100 Continue`.
    pub(crate) fn expects_continue(&self) -> bool {
        self.expects_continue.load(Ordering::Relaxed)
    }

    fn take(&self) -> Option<ClientBody> {
        self.untouched.lock().take()
    }

    /// Keeps the rest of a body that the origin does not read.
    fn put_unread(&self, body: ClientBody) {
        if !body.is_end_stream() {
            *self.unread.lock() = Some(body);
        }
    }

    /// Takes the body, or the rest of it, that no origin reads.
    pub(crate) fn take_unread(&self) -> Option<ClientBody> {
        self.take().or_else(|| self.unread.lock().take())
    }

    /// Counts a frame that was passed on.
    pub(crate) fn record_passed(&self, frame: Option<&Frame<Bytes>>, is_last: bool) {
        let data = frame.and_then(Frame::data_ref).map_or(0, Bytes::len);
        self.bytes.fetch_add(data as u64, Ordering::Relaxed);
        if let Some(client_meter) = &self.client_meter {
            client_meter.record_taken(data);
        }
        if is_last {
            self.is_finished.store(true, Ordering::Relaxed);
        }
    }

    /// Records that the response has ended.
    pub(crate) fn mark_response_ended(&self) {
        self.is_response_over.store(true, Ordering::Release);
    }

    /// Gives the body up because the response was not completed. Wakes the task that sends the body, which then stops.
    pub(crate) fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Release);
        self.given_up.notify_waiters();
    }

    /// Resolves when the body has been given up.
    pub(crate) async fn until_given_up(&self) {
        let mut given_up = pin!(self.given_up.notified());
        // Registered before the check, so that no `give_up` is missed.
        given_up.as_mut().enable();
        if !self.is_given_up.load(Ordering::Acquire) {
            given_up.await;
        }
    }

    /// Whether an HTTP/2 connection sends the body.
    fn is_for_http2(&self) -> bool {
        self.max_silence.get().is_some()
    }
}

/// A request body, as the connection to an origin polls it.
pub(crate) struct Upload {
    state: Option<Arc<UploadState>>,
    stage: UploadStage,
    meter: Option<Meter>,
    is_polled: bool,
}

/// What an [`Upload`] waits for.
enum UploadStage {
    /// The origin may not have accepted the connection yet.
    Origin(Establishment),
    /// The establishment of the connection is being polled.
    Waiting(Pin<Box<dyn Future<Output = Result<(), BoxError>> + Send>>),
    /// The origin has accepted the connection, and may still refuse the body.
    Expectation(Pin<Box<Sleep>>),
    /// The body may be taken from its state.
    Clear,
    /// The body is being sent. The timer bounds the client's silence once the response has ended.
    Open(ClientBody, Option<IdleTimer>),
}

impl std::fmt::Debug for Upload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upload").field("state", &self.state).finish_non_exhaustive()
    }
}

impl Upload {
    /// The body in `state`, sent once the origin has accepted the connection. `establishment` is `None` if it has.
    pub(crate) fn new(state: Option<Arc<UploadState>>, establishment: Option<Establishment>) -> Self {
        let stage = match (&state, establishment) {
            (Some(_), Some(establishment)) => UploadStage::Origin(establishment),
            (Some(state), None) => Self::after_origin(state),
            (None, _) => UploadStage::Clear,
        };
        let meter = state.as_ref().and_then(|state| state.meter.get().cloned());
        Self { state, stage, meter, is_polled: false }
    }

    /// Records that the origin sent `100 Continue`.
    pub(crate) fn mark_continued(&self) {
        if let Some(state) = &self.state {
            state.is_continued.store(true, Ordering::Release);
        }
    }

    fn after_origin(state: &UploadState) -> UploadStage {
        if state.expects_continue() {
            UploadStage::Expectation(Box::pin(tokio::time::sleep(MAX_EXPECTATION_WAIT)))
        } else {
            UploadStage::Clear
        }
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        let Some(state) = &this.state else { return Poll::Ready(None) };
        if !std::mem::replace(&mut this.is_polled, true) && state.is_for_http2() {
            FIRST_POLLED.set(Some(state.clone()));
        }
        loop {
            match &mut this.stage {
                UploadStage::Origin(establishment) => match establishment.peek() {
                    Some(Ok(())) => this.stage = Self::after_origin(state),
                    Some(Err(failure)) => return Poll::Ready(Some(Err(failure.into()))),
                    None => {
                        let establishment = establishment.clone();
                        this.stage = UploadStage::Waiting(Box::pin(async move { Ok(establishment.wait().await?) }));
                    }
                },
                UploadStage::Waiting(wait) => match ready!(wait.as_mut().poll(cx)) {
                    Ok(()) => this.stage = Self::after_origin(state),
                    Err(failure) => return Poll::Ready(Some(Err(failure))),
                },
                UploadStage::Expectation(sleep) => {
                    if !state.is_continued.load(Ordering::Acquire) {
                        ready!(sleep.as_mut().poll(cx));
                    }
                    this.stage = UploadStage::Clear;
                }
                UploadStage::Clear => match state.take() {
                    Some(body) => {
                        this.stage = UploadStage::Open(body, state.max_silence.get().copied().map(IdleTimer::new))
                    }
                    None => return Poll::Ready(Some(Err("the request body went to another origin".into()))),
                },
                UploadStage::Open(body, idle_timer) => {
                    if let Some(meter) = &mut this.meter {
                        ready!(meter.poll_ready(cx));
                    }
                    let polled = Pin::new(&mut *body).poll_frame(cx);
                    if let Some(idle_timer) = idle_timer {
                        idle_timer.moved |= polled.is_ready() || !state.is_response_over.load(Ordering::Acquire);
                        if polled.is_pending() && idle_timer.poll_over(cx).is_ready() {
                            state.is_broken.store(true, Ordering::Relaxed);
                            return Poll::Ready(Some(Err(
                                "the response has ended, and the request body stopped".into()
                            )));
                        }
                    }
                    let mut frame = ready!(polled);
                    match &mut frame {
                        Some(Ok(frame)) => {
                            if let Some(trailers) = frame.trailers_mut() {
                                sallyport_http::forward::trailers(trailers);
                            }
                            if let (Some(meter), Some(data)) = (&mut this.meter, frame.data_ref()) {
                                meter.moved(data.len());
                            }
                            state.record_passed(Some(frame), body.is_end_stream());
                        }
                        Some(Err(_)) => state.is_broken.store(true, Ordering::Relaxed),
                        None => state.record_passed(None, true),
                    }
                    return Poll::Ready(frame);
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.stage {
            UploadStage::Open(body, _) => body.is_end_stream(),
            _ => self.state.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match (&self.stage, &self.state) {
            (UploadStage::Open(body, _), _) => body.size_hint(),
            (_, Some(state)) => state.size,
            (_, None) => SizeHint::with_exact(0),
        }
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if let (Some(state), UploadStage::Open(body, _)) =
            (&self.state, std::mem::replace(&mut self.stage, UploadStage::Clear))
        {
            state.put_unread(body);
        }
    }
}

/// The body of a request to the API.
#[derive(Debug)]
pub struct ApiRequestBody {
    state: Option<Arc<UploadState>>,
    body: Option<ClientBody>,
}

impl ApiRequestBody {
    /// The body in `state`.
    pub(crate) fn new(state: Option<Arc<UploadState>>) -> Self {
        let body = state.as_ref().and_then(|state| state.take());
        Self { state, body }
    }
}

impl Body for ApiRequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        let (Some(state), Some(body)) = (&this.state, &mut this.body) else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(&mut *body).poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => state.record_passed(Some(frame), body.is_end_stream()),
            Some(Err(_)) => state.is_broken.store(true, Ordering::Relaxed),
            None => state.record_passed(None, true),
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
        if let (Some(state), Some(body)) = (&self.state, self.body.take()) {
            state.put_unread(body);
        }
    }
}
