//! One attempt: a request to one origin, up to the head of its answer.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use http::{HeaderMap, Method, Request, Response, Uri, Version, header::TRANSFER_ENCODING};
use hyper::client::conn::TrySendError;
use sallyport_balance::{Delivery, Received, ejection};
use sallyport_http::forward::OurFields;
use sallyport_http1::client::ResponseError;
use sallyport_tunnel::Establishment;
use sallyport_wire::{FailureReason, OpenFailure};
use tokio::time::{Instant, Sleep};

use crate::{
    body::upload::{BoxError, Upload, UploadState},
    origins::{
        http::{
            h1::{H1Connection, H1Error},
            response_body::ResponseCarrier,
        },
        origin::{ConnectError, H2Place},
    },
};

/// How often a request that waits for its origin is looked at: whether it may go on is seen then.
const RECHECK_INTERVAL: Duration = Duration::from_secs(2);

/// How long an origin may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OriginTimeouts {
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
    /// Nobody said in time whether the origin was reached.
    #[error("the origin did not take the connection in time")]
    ConnectTimedOut {
        /// Whether anything of the request had left by then.
        sent: bool,
    },
    /// The tunnel broke before it was known whether the origin was reached.
    #[error("{failure}")]
    TunnelLost {
        /// How.
        failure: OpenFailure,
        /// Whether anything of the request had left by then.
        sent: bool,
    },
    /// An idle connection turned out to be dead; what of the request was sent is not known.
    #[error("an idle connection to the origin had ended: {0}")]
    Stale(BoxError),
    /// An idle connection turned out to be dead before anything was sent.
    #[error("an idle connection to the origin had ended")]
    Unsent,
    /// The origin had the request, or part of it, and gave no proper answer.
    #[error("the origin gave no valid response: {0}")]
    Broken(BoxError),
    /// The origin took the connection, and ended it without a word.
    #[error("the origin gave no response: {0}")]
    NoResponse(BoxError),
    /// The origin speaks TLS, and its socket says that it does not.
    #[error("the origin speaks TLS, and its socket is of type http: use --type https")]
    SpeaksTls,
    /// The origin did not begin its answer in time.
    #[error("the origin did not respond in time")]
    ResponseTimedOut,
    /// The origin switched protocols unasked.
    #[error("the origin switched to another protocol, which nobody asked for")]
    UnexpectedUpgrade,
    /// The origin used a transfer coding other than chunked, which nobody asked for: we send no TE but `trailers`.
    #[error("the origin used a transfer coding that nobody asked for")]
    UnknownTransferEncoding,
    /// The client stopped sending the body of its request.
    #[error("the client stopped sending its request")]
    UploadStalled,
    /// The client's body ended in an error.
    #[error("the request broke off")]
    UploadBroken,
}

impl Failure {
    /// What the origin has got of the request.
    pub(crate) fn received(&self) -> Received {
        match self {
            Self::NoStream(_) | Self::NotReached(_) | Self::Unsent => Received::Nothing,
            Self::ConnectTimedOut { sent } | Self::TunnelLost { sent, .. } => Received::unsaid(*sent),
            Self::Stale(_) => Received::Unknown,
            Self::Broken(_) | Self::NoResponse(_) | Self::SpeaksTls => Received::Some,
            Self::UnexpectedUpgrade | Self::UnknownTransferEncoding => Received::Some,
            Self::ResponseTimedOut | Self::UploadStalled | Self::UploadBroken => Received::Some,
        }
    }

    /// Whether only an idle connection was to blame, so that the same origin deserves a new one.
    pub(crate) fn is_stale(&self) -> bool {
        matches!(self, Self::Stale(_) | Self::Unsent)
    }

    /// Whether the origin took a new connection, and said nothing that HTTP knows.
    pub(crate) fn has_no_response(&self) -> bool {
        matches!(self, Self::NoResponse(_) | Self::NoStream(ConnectError::Http2(_)))
    }

    /// Whether the origin took no connection.
    pub(crate) fn is_connect_failure(&self) -> bool {
        match self {
            Self::ConnectTimedOut { .. } | Self::NoStream(ConnectError::TimedOut) => true,
            Self::NotReached(failure) => failure.reason != FailureReason::Draining,
            _ => false,
        }
    }

    /// What it says of an origin that took no connection.
    pub(crate) fn as_ejection(&self) -> ejection::Failure {
        let is_silent = match self {
            Self::NotReached(failure) => failure.reason == FailureReason::TimedOut,
            Self::ConnectTimedOut { .. } | Self::NoStream(ConnectError::TimedOut) => true,
            _ => false,
        };
        if is_silent { ejection::Failure::Silent } else { ejection::Failure::Connect }
    }

    /// Whether the tunnel was to blame and not the origin: another tunnel, or the same one when it is back, may do.
    pub(crate) fn is_tunnel_failure(&self) -> bool {
        match self {
            Self::NoStream(_) | Self::TunnelLost { .. } | Self::Stale(_) | Self::Unsent => true,
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
    /// Whether the origin was reached, while that is not known.
    pub(crate) fn pending_establishment(&self) -> Option<Establishment> {
        let establishment = match self {
            Self::H1 { reused: true, .. } => return None,
            Self::H1 { connection, .. } => connection.establishment(),
            Self::H2(place) => place.establishment(),
        };
        establishment.peek().is_none().then(|| establishment.clone())
    }
}

/// What an origin is asked.
pub(crate) struct OriginRequest<'a> {
    /// The method.
    pub(crate) method: &'a Method,
    /// The path with its query; over HTTP/2 with scheme and authority.
    pub(crate) target: &'a Uri,
    /// The header fields. When an answer came their place is free for others.
    pub(crate) headers: &'a mut HeaderMap,
    /// What only we say, where that is not among the header fields: of a client's request in HTTP/1.1.
    pub(crate) ours: Option<OurFields<'a>>,
    /// The body, where there is one.
    pub(crate) upload: Option<&'a Arc<UploadState>>,
    /// What attempts there may be.
    pub(crate) delivery: Delivery,
}

impl OriginRequest<'_> {
    /// The body for one attempt. It waits for the connection, when that is not known to stand.
    fn body(&self, establishment: Option<Establishment>) -> Upload {
        Upload::new(self.upload.cloned(), establishment)
    }
}

/// Sends the request over the connection and waits for the answer's head. A request that may not be repeated is sent when the
/// origin has taken the connection.
pub(crate) async fn exchange(
    connection: OriginConnection,
    request: OriginRequest<'_>,
    timeouts: OriginTimeouts,
) -> Result<(Response<()>, ResponseCarrier), Failure> {
    match connection {
        OriginConnection::H1 { mut connection, reused } => {
            if !request.delivery.may_go_ahead() && !reused {
                Box::pin(wait_accepted_h1(&mut connection, timeouts)).await?;
            }
            over_h1(connection, reused, request, timeouts).await
        }
        OriginConnection::H2(place) => {
            let exchanged = async {
                if !request.delivery.may_go_ahead() {
                    wait_accepted_h2(&place, timeouts).await?;
                }
                over_h2(place, request, timeouts).await
            };
            Box::pin(exchanged).await
        }
    }
}

/// Waits until the origin has taken the connection; nothing of the request has left.
async fn wait_accepted_h1(connection: &mut H1Connection, timeouts: OriginTimeouts) -> Result<(), Failure> {
    let establishment = connection.establishment().clone();
    let mut accepted = pin!(establishment.wait());
    let accepted = tokio::time::timeout(
        timeouts.connect,
        poll_fn(|cx| {
            let is_over = connection.poll_open(cx).is_ready();
            match accepted.as_mut().poll(cx) {
                // What it ended with is told when the request is not taken.
                Poll::Pending if is_over => Poll::Ready(Ok(())),
                polled => polled,
            }
        }),
    );
    check_accepted(&establishment, accepted.await)
}

/// As [`wait_accepted_h1`]; the connection has a task that reads.
async fn wait_accepted_h2(place: &H2Place, timeouts: OriginTimeouts) -> Result<(), Failure> {
    let establishment = place.establishment();
    check_accepted(establishment, tokio::time::timeout(timeouts.connect, establishment.wait()).await)
}

fn check_accepted(
    establishment: &Establishment,
    accepted: Result<Result<(), OpenFailure>, tokio::time::error::Elapsed>,
) -> Result<(), Failure> {
    match accepted {
        Ok(Ok(())) => Ok(()),
        Ok(Err(failure)) if establishment.is_lost() => Err(Failure::TunnelLost { failure, sent: false }),
        Ok(Err(failure)) => Err(Failure::NotReached(failure)),
        Err(_) => Err(Failure::ConnectTimedOut { sent: false }),
    }
}

async fn over_h1(
    mut connection: Box<H1Connection>,
    reused: bool,
    request: OriginRequest<'_>,
    timeouts: OriginTimeouts,
) -> Result<(Response<()>, ResponseCarrier), Failure> {
    let establishment = connection.establishment().clone();
    // On a connection that is used again a body need not wait.
    let body = request.body((request.upload.is_some() && !reused).then(|| establishment.clone()));
    // Where it was waited for, what came since is looked at as on one that is used again.
    let may_have_ended = reused || establishment.peek().is_some();
    connection.begin_exchange(
        may_have_ended,
        request.method,
        request.target,
        request.headers,
        request.ours.as_ref(),
        body,
    );
    let mut clock = Clock::start(&establishment, request.upload, timeouts);
    let outcome = poll_fn(|cx| match connection.poll_response(request.headers, cx) {
        Poll::Ready(outcome) => Poll::Ready(Ok(outcome)),
        Poll::Pending => clock.poll_expiry(connection.timer(), cx).map(Err),
    })
    .await?;
    let status = outcome.map_err(|error| explain_h1(error, reused, &establishment, request.upload))?;
    let mut response = Response::new(());
    *response.status_mut() = status;
    *response.headers_mut() = std::mem::take(request.headers);
    Ok((response, ResponseCarrier::H1(connection)))
}

async fn over_h2(
    mut place: H2Place,
    request: OriginRequest<'_>,
    timeouts: OriginTimeouts,
) -> Result<(Response<()>, ResponseCarrier), Failure> {
    let (establishment, upload) = (place.establishment().clone(), request.upload);
    let mut outgoing = Request::new(request.body(Some(establishment.clone())));
    *outgoing.method_mut() = request.method.clone();
    *outgoing.uri_mut() = request.target.clone();
    *outgoing.headers_mut() = request.headers.clone();
    *outgoing.version_mut() = Version::HTTP_2;
    let mut response = pin!(place.sender().try_send_request(outgoing));
    let (mut clock, mut timer) = (Clock::start(&establishment, upload, timeouts), LazyTimer::default());
    let response = poll_fn(|cx| {
        if let Poll::Ready(response) = response.as_mut().poll(cx) {
            return Poll::Ready(Ok(response));
        }
        clock.poll_expiry(&mut timer, cx).map(Err)
    })
    .await?;
    let response = response.map_err(|error| explain_h2(error, place.is_reused(), &establishment, upload))?;
    let (mut head, body) = response.into_parts();
    // No connection has a coding of its own over HTTP/2 (RFC 9113 section 8.2.2).
    if head.headers.contains_key(TRANSFER_ENCODING) {
        return Err(Failure::UnknownTransferEncoding);
    }
    head.version = Version::HTTP_11;
    head.extensions = http::Extensions::new();
    Ok((Response::from_parts(head, ()), ResponseCarrier::H2 { body, _place: place }))
}

/// What the request's body and the establishment of the connection say of an exchange that failed, before all else.
fn explain(establishment: &Establishment, upload: Option<&Arc<UploadState>>) -> Option<Failure> {
    if upload.is_some_and(|upload| upload.is_broken()) {
        return Some(Failure::UploadBroken);
    }
    let failure = establishment.peek()?.err()?;
    let is_lost = establishment.is_lost();
    Some(if is_lost { Failure::TunnelLost { failure, sent: true } } else { Failure::NotReached(failure) })
}

/// What the error of a connection means for the request.
fn explain_h1(
    error: H1Error,
    reused: bool,
    establishment: &Establishment,
    upload: Option<&Arc<UploadState>>,
) -> Failure {
    // An answer that began and makes no sense is the origin's fault; one that did not begin is the idle connection's.
    explain(establishment, upload).unwrap_or_else(|| match error {
        H1Error::Unsent => Failure::Unsent,
        H1Error::Malformed(ResponseError::UnknownTransferEncoding) => Failure::UnknownTransferEncoding,
        H1Error::Malformed(ResponseError::TlsAlert) => Failure::SpeaksTls,
        H1Error::Stream(_) | H1Error::Ended if reused => Failure::Stale(error.into()),
        H1Error::Stream(_) | H1Error::Ended => Failure::NoResponse(error.into()),
        error => Failure::Broken(error.into()),
    })
}

fn explain_h2(
    mut error: TrySendError<Request<Upload>>,
    reused: bool,
    establishment: &Establishment,
    upload: Option<&Arc<UploadState>>,
) -> Failure {
    if let Some(failure) = explain(establishment, upload) {
        return failure;
    }
    if error.take_message().is_some() {
        return Failure::Unsent;
    }
    let error = error.into_error();
    if reused && !error.is_parse() && !error.is_user() {
        Failure::Stale(error.into())
    } else {
        Failure::NoResponse(error.into())
    }
}

/// A timer that a connection keeps from one exchange to the next, and that is set again only when it fires: so a bound
/// that is never reached costs next to nothing.
#[derive(Debug, Default)]
pub(crate) struct LazyTimer(Option<Pin<Box<Sleep>>>);

impl LazyTimer {
    /// Ready when it is that late. Whoever waits is woken every few seconds until then.
    fn poll_due(&mut self, due: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let next = || due.min(Instant::now() + RECHECK_INTERVAL);
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
    upload: Option<&'a Arc<UploadState>>,
    timeouts: OriginTimeouts,
    /// Whether the connection is there, and the answer is waited for.
    is_response_due: bool,
    due: Instant,
    bytes_seen: u64,
}

impl<'a> Clock<'a> {
    fn start(establishment: &'a Establishment, upload: Option<&'a Arc<UploadState>>, timeouts: OriginTimeouts) -> Self {
        let is_response_due = establishment.peek().is_some();
        let first = if is_response_due { timeouts.response } else { timeouts.connect };
        Self { establishment, upload, timeouts, is_response_due, due: Instant::now() + first, bytes_seen: 0 }
    }

    /// Ready when the origin's time is over. To be polled whenever the connection was, which is when the establishment
    /// may have come: the time for the answer runs from there.
    fn poll_expiry(&mut self, timer: &mut LazyTimer, cx: &mut Context<'_>) -> Poll<Failure> {
        if !self.is_response_due && self.establishment.peek().is_some() {
            self.is_response_due = true;
            self.due = Instant::now() + self.timeouts.response;
        }
        loop {
            ready!(timer.poll_due(self.due, cx));
            if !self.is_response_due {
                return Poll::Ready(Failure::ConnectTimedOut { sent: true });
            }
            let bytes = self.upload.map_or(0, |upload| upload.bytes());
            if bytes == self.bytes_seen {
                return Poll::Ready(self.expired());
            }
            self.bytes_seen = bytes;
            self.due = Instant::now() + self.timeouts.response;
        }
    }

    fn expired(&self) -> Failure {
        let is_stalled =
            |upload: &Arc<UploadState>| !upload.is_finished() && !upload.is_untouched() && !upload.is_broken();
        if self.upload.is_some_and(is_stalled) { Failure::UploadStalled } else { Failure::ResponseTimedOut }
    }
}
