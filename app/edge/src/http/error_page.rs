//! The responses of the edge to requests without a response of an origin.

use std::{borrow::Cow, time::Duration};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Response, StatusCode,
    header::{ALLOW, CONNECTION, CONTENT_LENGTH, HOST, MAX_FORWARDS, RETRY_AFTER, VIA, WWW_AUTHENTICATE},
    request::Parts,
};
use http_body::Body;
use sallyport_http::{
    RequestId, RequestRefusal, basic,
    page::{Format, Problem, Site},
};
use sallyport_model::RequestRecord;
use sallyport_tunnel::OpenError;
use sallyport_wire::{FailureReason, OpenFailure};

use crate::{
    access::{AccessPage, Denial, admit::AdmissionError},
    http::response_body::{ResponseBody, Source},
    origins::{
        http::{exchange::Failure, forwarding::ForwardingError},
        origin::ConnectError,
    },
};

/// The methods that are forwarded to origins, for `Allow`.
const ALLOWED_METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS, TRACE";

/// Why a request gets no response of an origin.
#[derive(Debug)]
pub(crate) enum RequestError {
    /// The request is malformed.
    Malformed(RequestRefusal),
    /// The head of the request did not arrive in time.
    HeadTimeout,
    /// The host names no socket.
    UnknownName(String),
    /// The host is the domain itself, under which sockets have their names.
    DomainItself(String),
    /// The client certificate of the connection is valid for another host only.
    Misdirected,
    /// The request is early data (0-RTT), and its repetition could do harm.
    TooEarly,
    /// The path does not exist under the edge's own name.
    UnknownPath,
    /// No service of the socket serves the path.
    NoPath,
    /// Programs read the path in different ways, which lead to different services of the socket.
    AmbiguousPath,
    /// Only clients on this machine may send the request.
    LocalOnly,
    /// The socket admits no client of this address.
    Denied,
    /// A limit of the socket is reached; another try may succeed after this time.
    Limited(Duration),
    /// The request needs a user name and a password for this realm.
    Unauthorized {
        /// The realm.
        realm: String,
        /// Whether the request has a user name and a password: they are wrong then.
        is_wrong: bool,
    },
    /// Too many wrong passwords came from the address; the next try is possible after this many seconds.
    TooManyFailures(u64),
    /// The edge is overloaded.
    Busy,
    /// The socket has no tunnel.
    NoTunnel,
    /// Tunnels of the socket are up, but none of its origins takes requests.
    NoHealthyOrigin,
    /// Every origin has as many requests as it can carry; another try may succeed after this time.
    OverCapacity(Duration),
    /// The socket needs an identity, and the edge has no data of logins.
    IdentityUnavailable,
    /// The access of the client was revoked.
    Revoked,
    /// The identity check responds with a page of its own.
    Own(AccessPage),
    /// No origin responded; this is the failure of the last attempt.
    Origin(Failure),
}

impl From<Failure> for RequestError {
    fn from(failure: Failure) -> Self {
        Self::Origin(failure)
    }
}

impl From<AdmissionError> for RequestError {
    fn from(error: AdmissionError) -> Self {
        match error {
            AdmissionError::Denied => Self::Denied,
            AdmissionError::Limited { retry_after } => Self::Limited(retry_after),
        }
    }
}

impl From<Denial> for RequestError {
    fn from(denial: Denial) -> Self {
        match denial {
            Denial::Denied => Self::Denied,
            Denial::IdentityUnavailable => Self::IdentityUnavailable,
            Denial::UnknownPath => Self::UnknownPath,
            Denial::Page(page) => Self::Own(page),
        }
    }
}

impl From<ForwardingError> for RequestError {
    fn from(error: ForwardingError) -> Self {
        match error {
            ForwardingError::NoPath => Self::NoPath,
            ForwardingError::AmbiguousPath => Self::AmbiguousPath,
        }
    }
}

impl From<RequestRefusal> for RequestError {
    fn from(refusal: RequestRefusal) -> Self {
        Self::Malformed(refusal)
    }
}

/// What a person can do about a service that does not respond.
const LATER: &str = "Try again later. If the problem continues, contact the operator of the service.";

/// What a person can do about a denied request.
const ASK_FOR_ACCESS: &str = "If you should have access, contact the operator of the service.";

/// The text for one kind of error, for visitors. Operators find the cause by the reason and the request's id in their
/// log, in the live view and in `sallyport flow log`.
struct ErrorText {
    status: StatusCode,
    reason: &'static str,
    title: &'static str,
    detail: Cow<'static, str>,
    next_step: Cow<'static, str>,
}

impl ErrorText {
    fn new(
        status: StatusCode,
        reason: &'static str,
        title: &'static str,
        detail: impl Into<Cow<'static, str>>,
        next_step: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { status, reason, title, detail: detail.into(), next_step: next_step.into() }
    }
}

impl RequestError {
    /// Whether the connection of the request cannot be used again.
    pub(crate) fn ends_connection(&self) -> bool {
        matches!(
            self,
            Self::Malformed(_) | Self::HeadTimeout | Self::Origin(Failure::UploadStalled | Failure::UploadBroken)
        )
    }

    /// The label of the metric.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Own(page) => page.reason(),
            other => other.text().reason,
        }
    }

    fn text(&self) -> ErrorText {
        use StatusCode as S;
        match self {
            Self::Malformed(refusal) => {
                ErrorText::new(refusal.status(), "malformed", "Bad request", refusal.to_string(), "")
            }
            Self::HeadTimeout => ErrorText::new(
                S::REQUEST_TIMEOUT,
                "head-timeout",
                "Request timeout",
                "The header of the request did not arrive in time.",
                "Send the request again.",
            ),
            Self::DomainItself(domain) => ErrorText::new(
                S::NOT_FOUND,
                "unknown-name",
                "Sallyport works here",
                format!("Services have names of their own under `{domain}`."),
                "Open the URL that `sallyport connect` prints, or see `sallyport socket ls`.",
            ),
            Self::UnknownName(host) => ErrorText::new(
                S::NOT_FOUND,
                "unknown-name",
                "No such name",
                format!("There is no service at `{host}`."),
                "Check the address for mistakes, or ask the person who gave it to you.",
            ),
            //= RFC 9110 section 15.5.20
            //# the request was directed at a server that is unable or unwilling to produce an authoritative response
            Self::Misdirected => ErrorText::new(
                S::MISDIRECTED_REQUEST,
                "misdirected",
                "Misdirected request",
                "The client certificate of this connection is valid for another host only.",
                "Send the request again over a new connection.",
            ),
            //= RFC 8470 section 5.2
            //# A 425 (Too Early) status code indicates that the server is unwilling to risk processing a request that
            //# might be replayed.
            Self::TooEarly => ErrorText::new(
                S::TOO_EARLY,
                "too-early",
                "Too early",
                "The request came before the connection was complete.",
                "Send the request again.",
            ),
            Self::UnknownPath => {
                ErrorText::new(S::NOT_FOUND, "unknown-path", "Not found", "There is nothing under this path.", "")
            }
            Self::NoPath => ErrorText::new(
                S::NOT_FOUND,
                "no-path",
                "Not found",
                "No service of this name serves this path.",
                "Check the address.",
            ),
            Self::AmbiguousPath => ErrorText::new(
                S::BAD_REQUEST,
                "ambiguous-path",
                "Bad request",
                "The path can be read in more than one way, so it is not certain which service it is for.",
                "Send it without empty or dot segments, encoded slashes, backslashes and semicolons.",
            ),
            Self::LocalOnly => ErrorText::new(
                S::FORBIDDEN,
                "local-only",
                "Access is denied",
                "This path is available only to clients on the same machine.",
                "",
            ),
            Self::Denied => ErrorText::new(
                S::FORBIDDEN,
                "denied",
                "Access is denied",
                "This service does not accept requests from your network address.",
                ASK_FOR_ACCESS,
            ),
            Self::Limited(_) => ErrorText::new(
                S::TOO_MANY_REQUESTS,
                "limited",
                "Too many requests",
                "This service accepts no more requests at the moment.",
                "Try again in a few seconds.",
            ),
            Self::Unauthorized { is_wrong: true, .. } => ErrorText::new(
                S::UNAUTHORIZED,
                "unauthorized",
                "Sign in to continue",
                "The user name or the password is wrong.",
                "Use the ones that you got from the operator of the service.",
            ),
            Self::Unauthorized { .. } => ErrorText::new(
                S::UNAUTHORIZED,
                "unauthorized",
                "Sign in to continue",
                "This service requires a user name and a password.",
                "Use the ones that you got from the operator of the service.",
            ),
            Self::TooManyFailures(_) => ErrorText::new(
                S::TOO_MANY_REQUESTS,
                "too-many-failures",
                "Too many attempts",
                "Too many wrong passwords came from your network address.",
                "Wait a minute and try again.",
            ),
            Self::Busy => ErrorText::new(
                S::SERVICE_UNAVAILABLE,
                "busy",
                "Busy",
                "The server is overloaded at the moment.",
                "Try again in a few seconds.",
            ),
            Self::NoTunnel => ErrorText::new(
                S::SERVICE_UNAVAILABLE,
                "no-tunnel",
                "This service is offline",
                "The address is right, but the service behind it is not connected at the moment.",
                LATER,
            ),
            Self::NoHealthyOrigin => ErrorText::new(
                S::SERVICE_UNAVAILABLE,
                "no-healthy-origin",
                "This service is not ready",
                "The address is right, but the service behind it is not ready for requests at the moment.",
                LATER,
            ),
            Self::OverCapacity(_) => ErrorText::new(
                S::SERVICE_UNAVAILABLE,
                "over-capacity",
                "This service is busy",
                "The service has as many requests as it can carry at the moment.",
                "Try again in a few seconds.",
            ),
            Self::IdentityUnavailable => ErrorText::new(
                S::SERVICE_UNAVAILABLE,
                "nobody-known",
                "Sign-in is unavailable",
                "This service requires sign-in, and the server cannot check logins at the moment.",
                LATER,
            ),
            Self::Revoked => ErrorText::new(
                S::FORBIDDEN,
                "revoked",
                "Access was revoked",
                "You no longer have access to this service.",
                ASK_FOR_ACCESS,
            ),
            Self::Own(_) => ErrorText::new(S::INTERNAL_SERVER_ERROR, "own-page", "No response", "", ""),
            Self::Origin(failure) => text_of(failure),
        }
    }

    /// The response: HTML, JSON, text or a gRPC status, as `headers` ask for.
    pub(crate) fn to_response(&self, id: RequestId, headers: &HeaderMap, site: &Site) -> Response<ResponseBody> {
        if let Self::Own(page) = self {
            return page.response().map(own_body);
        }
        let text = self.text();
        let problem = match self {
            Self::Malformed(refusal) => Problem::refused(*refusal, id.as_str()),
            _ => Problem {
                status: text.status,
                code: text.reason,
                title: text.title.into(),
                detail: text.detail,
                next_step: text.next_step,
                request_id: id.as_str(),
            },
        };
        let mut response = problem.respond(Format::wanted(headers), site).map(own_body);
        let fields = response.headers_mut();
        match self {
            Self::Unauthorized { realm, .. } => {
                fields.insert(WWW_AUTHENTICATE, basic::challenge(realm));
            }
            Self::Limited(wait) | Self::OverCapacity(wait) => {
                let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
                fields.insert(RETRY_AFTER, HeaderValue::from(seconds.max(1)));
            }
            Self::TooManyFailures(seconds) => {
                fields.insert(RETRY_AFTER, HeaderValue::from(*seconds));
            }
            Self::Busy | Self::NoTunnel | Self::NoHealthyOrigin => {
                fields.insert(RETRY_AFTER, HeaderValue::from_static("5"));
            }
            _ => {}
        }
        response
    }
}

/// The text for a failed attempt.
fn text_of(failure: &Failure) -> ErrorText {
    use StatusCode as S;
    match failure {
        Failure::NotReached(OpenFailure { reason, .. }) => match reason {
            FailureReason::TimedOut => connect_timed_out(),
            FailureReason::Draining => ErrorText::new(
                S::SERVICE_UNAVAILABLE,
                "draining",
                "This service is restarting",
                "It will be back in a moment.",
                "Try again in a few seconds.",
            ),
            FailureReason::Refused => not_running("origin-refused"),
            FailureReason::Unresolved => not_running("origin-unresolved"),
            FailureReason::Tls => not_running("origin-tls"),
            FailureReason::Other => not_running("origin-unreachable"),
        },
        Failure::ConnectTimedOut { .. } | Failure::NoStream(ConnectError::TimedOut) => connect_timed_out(),
        Failure::ResponseTimedOut => ErrorText::new(
            S::GATEWAY_TIMEOUT,
            "origin-slow",
            "The service is too slow",
            "The service has the request, but did not begin its response in time.",
            LATER,
        ),
        Failure::NoStream(ConnectError::Tunnel(OpenError::NoRoom(_))) => ErrorText::new(
            S::SERVICE_UNAVAILABLE,
            "tunnel-full",
            "Busy",
            "This service has reached its limit of concurrent requests.",
            "Try again in a few seconds.",
        ),
        Failure::NoStream(_) | Failure::TunnelLost { .. } => ErrorText::new(
            S::BAD_GATEWAY,
            "tunnel-lost",
            "The connection was lost",
            "The connection to the service was lost on the way.",
            LATER,
        ),
        Failure::SpeaksTls => ErrorText::new(
            S::BAD_GATEWAY,
            RequestRecord::ORIGIN_SPEAKS_TLS,
            "Invalid response",
            "The address is right, but the connection to the service behind it is misconfigured.",
            LATER,
        ),
        Failure::Stale(_)
        | Failure::Unsent
        | Failure::Broken(_)
        | Failure::NoResponse(_)
        | Failure::UnexpectedUpgrade
        | Failure::NoWebSocket
        | Failure::UnknownTransferEncoding => ErrorText::new(
            S::BAD_GATEWAY,
            "origin-broken",
            "Invalid response",
            "The service sent an invalid or incomplete response.",
            LATER,
        ),
        Failure::UploadStalled => ErrorText::new(
            S::REQUEST_TIMEOUT,
            "upload-stalled",
            "Request timeout",
            "The body of the request stopped arriving.",
            "Send the request again.",
        ),
        Failure::UploadBroken => ErrorText::new(
            S::BAD_REQUEST,
            "upload-broken",
            "Incomplete request",
            "The body of the request ended too early.",
            "Send the request again.",
        ),
    }
}

/// The text for a service that cannot be reached. A visitor can do nothing with the cause, which is in `reason`.
fn not_running(reason: &'static str) -> ErrorText {
    ErrorText::new(
        StatusCode::BAD_GATEWAY,
        reason,
        "This service is not running",
        "The address is right, but the service behind it cannot be reached at the moment.",
        LATER,
    )
}

fn connect_timed_out() -> ErrorText {
    ErrorText::new(
        StatusCode::GATEWAY_TIMEOUT,
        "connect-timeout",
        "The service is not responding",
        "The service did not accept the connection in time.",
        LATER,
    )
}

fn own_body(bytes: Bytes) -> ResponseBody {
    ResponseBody::new(Source::Own(bytes), None)
}

/// A short response that is not cached.
pub(crate) fn plain(status: StatusCode, kind: &'static str, text: impl Into<Bytes>) -> Response<ResponseBody> {
    let mut response = Response::new(own_body(text.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(http::header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// The response of the edge as final recipient of a request (RFC 9110 section 7.6.2): the allowed methods for OPTIONS,
/// the received head for TRACE.
pub(crate) fn final_recipient_response(head: &Parts) -> Response<ResponseBody> {
    if head.method != Method::TRACE {
        let mut response = Response::new(own_body(Bytes::new()));
        *response.status_mut() = StatusCode::NO_CONTENT;
        response.headers_mut().insert(ALLOW, HeaderValue::from_static(ALLOWED_METHODS));
        return response;
    }
    //= RFC 9110 section 9.3.8
    //# The final recipient of the request SHOULD exclude any request fields that are likely to contain sensitive data
    let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
    let mut text = format!("TRACE {target} {:?}\r\n", head.version);
    for (name, value) in [HOST, VIA, MAX_FORWARDS].iter().flat_map(|name| {
        head.headers.get_all(name).iter().map(move |value| (name, String::from_utf8_lossy(value.as_bytes())))
    }) {
        text.extend([name.as_str(), ": ", &value, "\r\n"]);
    }
    text.push_str("\r\n");
    plain(StatusCode::OK, "message/http", text)
}

/// Drops the body of a response to HEAD. Keeps the `Content-Length` that the body has.
pub(crate) fn drop_body(response: &mut Response<ResponseBody>) {
    if !response.body().is_own() {
        return;
    }
    if let Some(length) = response.body().size_hint().exact().filter(|length| *length > 0) {
        response.headers_mut().entry(CONTENT_LENGTH).or_insert_with(|| HeaderValue::from(length));
    }
    *response.body_mut() = ResponseBody::new(Source::Empty, None);
}

/// Announces that an HTTP/1 connection closes behind this response.
pub(crate) fn set_connection_close(response: &mut Response<ResponseBody>) {
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
}
