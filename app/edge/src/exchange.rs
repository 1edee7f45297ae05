//! One attempt: a request to one origin, up to the head of its answer.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use http::{Request, Response};
use hyper::{body::Incoming, client::conn::TrySendError};
use sallyport_tunnel::Establishment;
use sallyport_wire::{FailureReason, OpenFailure};
use tokio::time::{Instant, Sleep};

use crate::{
    body::{Upload, UploadSlot},
    origin::{Carrier, ConnectError, H1Connection, H2Place},
};

/// How often a request that waits for its origin is looked at: whether it may go on is seen then.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// How long an origin may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// To take the connection.
    pub(crate) connect: Duration,
    /// To begin its answer, counted from the last sign of life of the request's body.
    pub(crate) response: Duration,
}

/// Why an attempt gave no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The tunnel could not open a stream: nothing was sent.
    #[error("{0}")]
    NoStream(#[from] ConnectError),
    /// The connector said that it did not reach the origin: nothing was sent to it.
    #[error("{0}")]
    NotReached(OpenFailure),
    /// The connector did not say in time whether it reached the origin.
    #[error("the origin did not take the connection in time")]
    ConnectTimedOut,
    /// The tunnel broke before it was known whether the origin got anything.
    #[error("{0}")]
    TunnelLost(OpenFailure),
    /// An idle connection turned out to be dead; what of the request was sent is not known.
    #[error("an idle connection to the origin had ended: {0}")]
    Stale(hyper::Error),
    /// An idle connection turned out to be dead before anything was sent.
    #[error("an idle connection to the origin had ended")]
    Unsent,
    /// The origin had the request, or part of it, and gave no proper answer.
    #[error("the origin gave no valid answer: {0}")]
    Broken(hyper::Error),
    /// The origin did not begin its answer in time.
    #[error("the origin did not answer in time")]
    ResponseTimedOut,
    /// The origin switched protocols unasked.
    #[error("the origin switched to another protocol, which nobody asked for")]
    Unasked,
    /// The origin used a transfer coding other than chunked, which nobody asked for: we send no TE but `trailers`.
    #[error("the origin used a transfer coding that nobody asked for")]
    ForeignCoding,
    /// The client stopped sending the body of its request.
    #[error("the client stopped sending its request")]
    UploadStalled,
    /// The client's body ended in an error.
    #[error("the request broke off")]
    UploadBroken,
}

impl Failure {
    /// Whether the request may be sent again, to this or another origin. `idempotent`: sending it twice does no more
    /// than sending it once (RFC 9110 section 9.2.2). `untouched`: its body is still whole.
    pub(crate) fn may_retry(&self, idempotent: bool, untouched: bool) -> bool {
        match self {
            Self::NoStream(_) | Self::NotReached(_) | Self::ConnectTimedOut | Self::Unsent => untouched,
            Self::TunnelLost(_) | Self::Stale(_) => untouched && idempotent,
            Self::Broken(_) | Self::Unasked | Self::ForeignCoding => false,
            Self::ResponseTimedOut | Self::UploadStalled | Self::UploadBroken => false,
        }
    }

    /// Whether only an idle connection was to blame, so that the same origin deserves a new one.
    pub(crate) fn is_stale(&self) -> bool {
        matches!(self, Self::Stale(_) | Self::Unsent)
    }

    /// Whether the origin took no connection.
    pub(crate) fn is_of_origin(&self) -> bool {
        match self {
            Self::ConnectTimedOut | Self::NoStream(ConnectError::TimedOut) => true,
            Self::NotReached(failure) => failure.reason != FailureReason::Draining,
            _ => false,
        }
    }

    /// Whether the tunnel was to blame and not the origin: another tunnel, or the same one when it is back, may do.
    pub(crate) fn is_of_tunnel(&self) -> bool {
        match self {
            Self::NoStream(_) | Self::TunnelLost(_) | Self::Stale(_) | Self::Unsent => true,
            Self::NotReached(failure) => failure.reason == FailureReason::Draining,
            _ => false,
        }
    }
}

/// A connection for one request.
pub(crate) enum OriginConnection {
    /// Of its own.
    H1 {
        /// The connection.
        connection: Box<H1Connection>,
        /// Whether it has carried requests before.
        reused: bool,
    },
    /// A place on a shared one.
    H2(H2Place),
}

impl OriginConnection {
    /// What to wait for before a body may be sent; none where the origin is known to be there.
    pub(crate) fn pending_establishment(&self) -> Option<Establishment> {
        match self {
            Self::H1 { reused: true, .. } => None,
            Self::H1 { connection, .. } => Some(connection.establishment().clone()),
            Self::H2(place) => Some(place.establishment().clone()),
        }
    }
}

/// Sends the request over the connection and waits for the answer's head.
pub(crate) async fn exchange(
    connection: OriginConnection,
    request: Request<Upload>,
    upload: Option<&Arc<UploadSlot>>,
    patience: Patience,
) -> Result<(Response<Incoming>, Carrier), Failure> {
    match connection {
        OriginConnection::H1 { connection, reused } => over_h1(connection, reused, request, upload, patience).await,
        OriginConnection::H2(place) => Box::pin(over_h2(place, request, upload, patience)).await,
    }
}

async fn over_h1(
    mut connection: Box<H1Connection>,
    reused: bool,
    request: Request<Upload>,
    upload: Option<&Arc<UploadSlot>>,
    patience: Patience,
) -> Result<(Response<Incoming>, Carrier), Failure> {
    let establishment = connection.establishment().clone();
    let mut answer = pin!(connection.sender().try_send_request(request));
    let mut clock = Clock::start(&establishment, upload, patience);
    let answer = poll_fn(|cx| {
        connection.drive(cx);
        // Only the connection, polled just before, can make the answer ready.
        let mut quiet = Context::from_waker(Waker::noop());
        let mut polled = answer.as_mut().poll(&mut quiet);
        if polled.is_pending() && connection.is_over() {
            connection.let_go();
            polled = answer.as_mut().poll(&mut quiet);
        }
        if let Poll::Ready(answer) = polled {
            return Poll::Ready(Ok(answer));
        }
        clock.poll_expiry(connection.alarm(), cx).map(Err)
    })
    .await?;
    let response = answer.map_err(|error| explain(error, reused, &establishment, upload))?;
    Ok((response, Carrier::H1(connection)))
}

async fn over_h2(
    mut place: H2Place,
    request: Request<Upload>,
    upload: Option<&Arc<UploadSlot>>,
    patience: Patience,
) -> Result<(Response<Incoming>, Carrier), Failure> {
    let establishment = place.establishment().clone();
    let mut answer = pin!(place.sender().try_send_request(request));
    let (mut clock, mut alarm) = (Clock::start(&establishment, upload, patience), Alarm::default());
    let answer = poll_fn(|cx| {
        if let Poll::Ready(answer) = answer.as_mut().poll(cx) {
            return Poll::Ready(Ok(answer));
        }
        clock.poll_expiry(&mut alarm, cx).map(Err)
    })
    .await?;
    let response = answer.map_err(|error| explain(error, place.is_reused(), &establishment, upload))?;
    Ok((response, Carrier::H2 { _place: place }))
}

/// What the error of a connection means for the request.
fn explain(
    mut error: TrySendError<Request<Upload>>,
    reused: bool,
    establishment: &Establishment,
    upload: Option<&Arc<UploadSlot>>,
) -> Failure {
    if upload.is_some_and(|upload| upload.is_broken()) {
        return Failure::UploadBroken;
    }
    if let Some(Err(failure)) = establishment.peek() {
        return if establishment.is_lost() { Failure::TunnelLost(failure) } else { Failure::NotReached(failure) };
    }
    if error.take_message().is_some() {
        return Failure::Unsent;
    }
    let error = error.into_error();
    // An answer that began and makes no sense is the origin's fault; one that did not begin is the idle connection's.
    if reused && !error.is_parse() && !error.is_user() { Failure::Stale(error) } else { Failure::Broken(error) }
}

/// A timer that a connection keeps from one exchange to the next, and that is set again only when it fires: so a bound
/// that is never reached costs next to nothing.
#[derive(Debug, Default)]
pub(crate) struct Alarm(Option<Pin<Box<Sleep>>>);

impl Alarm {
    /// Ready when it is that late. Whoever waits is woken every few seconds until then.
    fn poll_due(&mut self, due: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let next = || due.min(Instant::now() + LOOK_AGAIN);
        let timer = self.0.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(next())));
        if due < timer.deadline() {
            timer.as_mut().reset(due);
        }
        while timer.as_mut().poll(cx).is_ready() {
            if due <= Instant::now() {
                return Poll::Ready(());
            }
            timer.as_mut().reset(next());
        }
        Poll::Pending
    }
}

/// Watches an attempt's two bounds.
struct Clock<'a> {
    establishment: &'a Establishment,
    upload: Option<&'a Arc<UploadSlot>>,
    patience: Patience,
    /// Whether the connection is there, and the answer is waited for.
    is_answer_due: bool,
    due: Instant,
    bytes_seen: u64,
}

impl<'a> Clock<'a> {
    fn start(establishment: &'a Establishment, upload: Option<&'a Arc<UploadSlot>>, patience: Patience) -> Self {
        let is_answer_due = establishment.peek().is_some();
        let first = if is_answer_due { patience.response } else { patience.connect };
        Self { establishment, upload, patience, is_answer_due, due: Instant::now() + first, bytes_seen: 0 }
    }

    /// Ready when the origin's time is over. To be polled whenever the connection was, which is when the establishment
    /// may have come: the time for the answer runs from there.
    fn poll_expiry(&mut self, alarm: &mut Alarm, cx: &mut Context<'_>) -> Poll<Failure> {
        if !self.is_answer_due && self.establishment.peek().is_some() {
            self.is_answer_due = true;
            self.due = Instant::now() + self.patience.response;
        }
        loop {
            ready!(alarm.poll_due(self.due, cx));
            if !self.is_answer_due {
                return Poll::Ready(Failure::ConnectTimedOut);
            }
            let bytes = self.upload.map_or(0, |upload| upload.bytes());
            if bytes == self.bytes_seen {
                return Poll::Ready(self.expired());
            }
            self.bytes_seen = bytes;
            self.due = Instant::now() + self.patience.response;
        }
    }

    fn expired(&self) -> Failure {
        let is_stalled =
            |upload: &Arc<UploadSlot>| !upload.is_finished() && !upload.is_untouched() && !upload.is_broken();
        if self.upload.is_some_and(is_stalled) { Failure::UploadStalled } else { Failure::ResponseTimedOut }
    }
}
