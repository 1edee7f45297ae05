//! One attempt: sends a request to one origin, and waits for the head of the response.

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

/// How often the task of a waiting request is woken at least, so that it sees a revocation.
const RECHECK_INTERVAL: Duration = Duration::from_secs(2);

/// How long an origin may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OriginTimeouts {
    /// To accept the connection.
    pub(crate) connect: Duration,
    /// To begin its response, counted from the last progress of the request body.
    pub(crate) response: Duration,
}

/// Why an attempt gave no response.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The tunnel opened no stream; nothing was sent.
    #[error("{0}")]
    NoStream(#[from] ConnectError),
    /// The connector did not reach the origin; the origin got nothing.
    #[error("{0}")]
    NotReached(OpenFailure),
    /// The connector did not report in time whether it reached the origin.
    #[error("the origin did not accept the connection in time")]
    ConnectTimedOut {
        /// Whether a part of the request was sent.
        sent: bool,
    },
    /// The tunnel broke before the connector reported whether it reached the origin.
    #[error("{failure}")]
    TunnelLost {
        /// The failure of the tunnel.
        failure: OpenFailure,
        /// Whether a part of the request was sent.
        sent: bool,
    },
    /// An idle connection had ended. How much of the request the origin got is unknown.
    #[error("an idle connection to the origin had ended: {0}")]
    Stale(BoxError),
    /// An idle connection had ended before the request was sent.
    #[error("an idle connection to the origin had ended")]
    Unsent,
    /// The origin got the request, or a part, and sent no valid response.
    #[error("the origin gave no valid response: {0}")]
    Broken(BoxError),
    /// The origin accepted the connection, and closed it without a response.
    #[error("the origin gave no response: {0}")]
    NoResponse(BoxError),
    /// The origin speaks TLS, but the type of its socket is `http`.
    #[error("the origin speaks TLS, and its socket is of type http: use --type https")]
    SpeaksTls,
    /// The origin did not begin its response in time.
    #[error("the origin did not respond in time")]
    ResponseTimedOut,
    /// The origin switched protocols without an upgrade request.
    #[error("the origin switched to another protocol without a request to do so")]
    UnexpectedUpgrade,
    /// The origin opened no WebSocket for an extended CONNECT: it did not switch protocols, or answered another key.
    #[error("the origin opened no websocket")]
    NoWebSocket,
    /// The origin used a transfer coding other than chunked, although the request has no `TE` but `trailers`.
    #[error("the origin used a transfer coding other than chunked")]
    UnknownTransferEncoding,
    /// The client stopped sending the request body.
    #[error("the client stopped sending the body of its request")]
    UploadStalled,
    /// The request body ended in an error.
    #[error("the body of the request was not completed")]
    UploadBroken,
}

impl Failure {
    /// How much of the request the origin got.
    pub(crate) fn received(&self) -> Received {
        match self {
            Self::NoStream(_) | Self::NotReached(_) | Self::Unsent => Received::Nothing,
            Self::ConnectTimedOut { sent } | Self::TunnelLost { sent, .. } => Received::from_sent(*sent),
            Self::Stale(_) => Received::Unknown,
            Self::Broken(_) | Self::NoResponse(_) | Self::SpeaksTls => Received::Some,
            Self::UnexpectedUpgrade | Self::NoWebSocket | Self::UnknownTransferEncoding => Received::Some,
            Self::ResponseTimedOut | Self::UploadStalled | Self::UploadBroken => Received::Some,
        }
    }

    /// Whether only an idle connection failed, so that the same origin gets another attempt.
    pub(crate) fn is_stale(&self) -> bool {
        matches!(self, Self::Stale(_) | Self::Unsent)
    }

    /// Whether the origin accepted a new connection, and sent nothing that is HTTP.
    pub(crate) fn has_no_response(&self) -> bool {
        matches!(self, Self::NoResponse(_) | Self::NoStream(ConnectError::Http2(_)))
    }

    /// Whether the origin did not accept the connection.
    pub(crate) fn is_connect_failure(&self) -> bool {
        match self {
            Self::ConnectTimedOut { .. } | Self::NoStream(ConnectError::TimedOut) => true,
            Self::NotReached(failure) => failure.reason != FailureReason::Draining,
            _ => false,
        }
    }

    /// The kind of failure for the ejection of origins. For failures to connect.
    pub(crate) fn as_ejection(&self) -> ejection::Failure {
        let is_silent = match self {
            Self::NotReached(failure) => failure.reason == FailureReason::TimedOut,
            Self::ConnectTimedOut { .. } | Self::NoStream(ConnectError::TimedOut) => true,
            _ => false,
        };
        if is_silent { ejection::Failure::Silent } else { ejection::Failure::Connect }
    }

    /// Whether the tunnel failed and not the origin. Another tunnel, or the same one later, may succeed.
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
    /// An HTTP/1.1 connection, for this request alone.
    H1 {
        /// The connection.
        connection: Box<H1Connection>,
        /// Whether the connection has carried requests before.
        reused: bool,
    },
    /// A place on a shared HTTP/2 connection.
    H2(H2Place),
}

impl OriginConnection {
    /// The establishment of the connection; `None` once its outcome is known.
    pub(crate) fn pending_establishment(&self) -> Option<Establishment> {
        let establishment = match self {
            Self::H1 { reused: true, .. } => return None,
            Self::H1 { connection, .. } => connection.establishment(),
            Self::H2(place) => place.establishment(),
        };
        establishment.peek().is_none().then(|| establishment.clone())
    }
}

/// A request to an origin.
pub(crate) struct OriginRequest<'a> {
    /// The method.
    pub(crate) method: &'a Method,
    /// The path with its query; over HTTP/2 with scheme and authority.
    pub(crate) target: &'a Uri,
    /// The header fields. The fields of the response replace them.
    pub(crate) headers: &'a mut HeaderMap,
    /// The fields that only the edge sets, if they are not in `headers`: over HTTP/1.1.
    pub(crate) ours: Option<OurFields<'a>>,
    /// The body, if any.
    pub(crate) upload: Option<&'a Arc<UploadState>>,
    /// Which attempts are allowed.
    pub(crate) delivery: Delivery,
}

impl OriginRequest<'_> {
    /// The body for one attempt. The body waits for `establishment`, if its outcome is unknown.
    fn body(&self, establishment: Option<Establishment>) -> Upload {
        Upload::new(self.upload.cloned(), establishment)
    }
}

/// Sends the request and waits for the head of the response. A request that must not be repeated is sent only after the
/// origin has accepted the connection.
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

/// Waits until the origin has accepted the connection. Nothing of the request is sent before.
async fn wait_accepted_h1(connection: &mut H1Connection, timeouts: OriginTimeouts) -> Result<(), Failure> {
    let establishment = connection.establishment().clone();
    let mut accepted = pin!(establishment.wait());
    let accepted = tokio::time::timeout(
        timeouts.connect,
        poll_fn(|cx| {
            let is_over = connection.poll_open(cx).is_ready();
            match accepted.as_mut().poll(cx) {
                // The connection has ended: sending the request gives the error.
                Poll::Pending if is_over => Poll::Ready(Ok(())),
                polled => polled,
            }
        }),
    );
    check_accepted(&establishment, accepted.await)
}

/// Like [`wait_accepted_h1`], for a connection with a task that reads.
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
    // On a reused connection the body need not wait.
    let body = request.body((request.upload.is_some() && !reused).then(|| establishment.clone()));
    // After a wait, the connection may have ended, like a reused one.
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
    // HTTP/2 has no transfer codings (RFC 9113 section 8.2.2).
    if head.headers.contains_key(TRANSFER_ENCODING) {
        return Err(Failure::UnknownTransferEncoding);
    }
    head.version = Version::HTTP_11;
    head.extensions = http::Extensions::new();
    Ok((Response::from_parts(head, ()), ResponseCarrier::H2 { body, _place: place }))
}

/// The cause of a failed exchange, if the request body or the establishment of the connection is the cause.
fn explain(establishment: &Establishment, upload: Option<&Arc<UploadState>>) -> Option<Failure> {
    if upload.is_some_and(|upload| upload.is_broken()) {
        return Some(Failure::UploadBroken);
    }
    let failure = establishment.peek()?.err()?;
    let is_lost = establishment.is_lost();
    Some(if is_lost { Failure::TunnelLost { failure, sent: true } } else { Failure::NotReached(failure) })
}

/// The failure that a connection's error means.
fn explain_h1(
    error: H1Error,
    reused: bool,
    establishment: &Establishment,
    upload: Option<&Arc<UploadState>>,
) -> Failure {
    // A malformed response is the origin's fault. A missing response on a reused connection means that the connection
    // had ended.
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

/// A timer that a connection keeps between exchanges. The timer is set again only when it fires, so a bound that is not
/// reached costs almost nothing.
#[derive(Debug, Default)]
pub(crate) struct LazyTimer(Option<Pin<Box<Sleep>>>);

impl LazyTimer {
    /// Ready at `due`. Wakes the task every [`RECHECK_INTERVAL`] until then.
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

/// The timeouts of one attempt.
struct Clock<'a> {
    establishment: &'a Establishment,
    upload: Option<&'a Arc<UploadState>>,
    timeouts: OriginTimeouts,
    /// Whether the origin has accepted the connection, so that the response is awaited.
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

    /// Ready when a timeout is exceeded. To be polled after each poll of the connection: the time for the response
    /// begins when the origin has accepted the connection.
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
