//! One request to a CA on one connection, with bounds on time and size.

use std::{
    cell::Cell,
    io,
    pin::Pin,
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri,
    header::{ACCEPT, CONNECTION, DATE, HOST, RETRY_AFTER, USER_AGENT},
    response,
};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use instant_acme::{BodyWrapper, BytesResponse, HttpClient, Problem};
use rustls::ClientConfig;
use sallyport_net::TlsFailure;
use time::OffsetDateTime;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{
    AcmeError, DirectoryConfig,
    directory::{check_directory, check_url},
    error::harmless,
    problem,
};

/// Time limit of one call to a CA, from the first packet to the last byte.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// The largest accepted answer of a CA, in bytes.
pub const MAX_ANSWER_BYTES: usize = 512 * 1_024;
/// The longest wait that a CA can ask for, in seconds: 30 days.
pub const MAX_RETRY_AFTER_SECONDS: u64 = 30 * 86_400;
/// Bound on the tries of an order, or of a new account, whose nonces the CA refuses more often than the library tries.
pub(crate) const MAX_TRIES_WITH_NONCES: usize = 4;
/// Time limit of one connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Bound on the tries of one request whose connection breaks.
const MAX_TRIES: u32 = 3;
/// Pause before the second try; each further pause is one longer.
const PAUSE: Duration = Duration::from_millis(300);
/// When to ask again for renewal information if the CA does not say, in seconds. RFC 9773, section 4.3, names six hours
/// for answers that stay away.
const ASK_AGAIN_SECONDS: u64 = 6 * 3_600;
const AGENT: &str = concat!("sallyport/", env!("CARGO_PKG_VERSION"));

tokio::task_local! {
    /// The `Retry-After` of the latest answer within this task's order, in seconds. The ACME library does not show it.
    static LATEST_RETRY_AFTER: Cell<Option<u64>>;
}

/// Runs an order, whose code may look at [`latest_retry_after`].
pub(crate) async fn with_retry_after<T>(order: impl Future<Output = T>) -> T {
    LATEST_RETRY_AFTER.scope(Cell::new(None), order).await
}

/// The wait that the latest answer asked for.
pub(crate) fn latest_retry_after() -> Option<Duration> {
    LATEST_RETRY_AFTER.try_with(|seconds| seconds.get().map(Duration::from_secs)).unwrap_or_default()
}

/// Makes the calls of the ACME library.
#[derive(Clone)]
pub(crate) struct Http {
    tls: Arc<ClientConfig>,
    directory: Uri,
}

/// A request, kept for further tries.
struct Call {
    method: Method,
    uri: Uri,
    host: String,
    headers: HeaderMap,
    body: Bytes,
}

/// A failed try.
struct Failed {
    error: AcmeError,
    /// Whether the next try may end otherwise.
    is_passing: bool,
}

impl HttpClient for Http {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, instant_acme::Error>> + Send>> {
        let http = self.clone();
        Box::pin(async move {
            let answer = http.answer(request).await.map_err(|error| instant_acme::Error::Other(Box::new(error)))?;
            Ok(BytesResponse::from(answer))
        })
    }
}

impl Http {
    /// The calls to the CA with this directory.
    pub(crate) async fn of(config: &DirectoryConfig) -> Result<Self, AcmeError> {
        let directory = check_url(&config.url, config.url.starts_with("http://"));
        let directory = directory
            .ok_or_else(|| AcmeError::Config(format!("the directory {} is not an https URL", harmless(&config.url))))?;
        Ok(Self { tls: config.tls().await?, directory })
    }

    /// The directory, with the clock of the CA.
    pub(crate) async fn directory(&self) -> Result<(Option<OffsetDateTime>, Bytes), AcmeError> {
        let request = Request::get(self.directory.clone()).body(BodyWrapper::default());
        let request = request.map_err(|_| AcmeError::Config("the URL of the directory cannot be called".to_owned()))?;
        let (head, body) = self.answer(request).await?.into_parts();
        let clock = head.headers.get(DATE).and_then(|date| httpdate::parse_http_date(date.to_str().ok()?).ok());
        let Ok(body) = body.collect().await;
        Ok((clock.map(OffsetDateTime::from), body.to_bytes()))
    }

    /// Only where the directory itself is at this machine without TLS.
    fn is_http_allowed(&self) -> bool {
        self.directory.scheme_str() == Some("http")
    }

    /// The answer, if the library has something to do with it; everything else is an error already here.
    async fn answer(&self, request: Request<BodyWrapper<Bytes>>) -> Result<Response<Full<Bytes>>, AcmeError> {
        let _ = LATEST_RETRY_AFTER.try_with(|latest| latest.set(None));
        let call = self.call(request).await?;
        let timed_out =
            || AcmeError::TimedOut { what: format!("a call to {}", call.host), seconds: CALL_TIMEOUT.as_secs() };
        let (mut head, body) =
            tokio::time::timeout(CALL_TIMEOUT, self.tries(&call)).await.unwrap_or_else(|_| Err(timed_out()))?;
        let retry_after = retry_after_seconds(&head.headers, SystemTime::now());
        let _ = LATEST_RETRY_AFTER.try_with(|latest| latest.set(retry_after));
        if let Some(error) = refusal(&head, &body, retry_after) {
            return Err(error);
        }
        if call.method == Method::GET && call.uri == self.directory {
            check_directory(&body, self.is_http_allowed())?;
        }
        // The library adds the seconds to its clock without a bound, and demands the field for renewal information.
        head.headers.remove(RETRY_AFTER);
        let default = (call.method == Method::GET).then_some(ASK_AGAIN_SECONDS);
        if let Some(seconds) = retry_after.or(default) {
            head.headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        Ok(Response::from_parts(head, Full::new(body)))
    }

    async fn call(&self, request: Request<BodyWrapper<Bytes>>) -> Result<Call, AcmeError> {
        let (head, body) = request.into_parts();
        let url = head.uri.to_string();
        let uri = check_url(&url, self.is_http_allowed())
            .ok_or_else(|| AcmeError::malformed(format!("it sends us to {}, which is not https", harmless(&url))))?;
        let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
        let mut headers = head.headers;
        let authority = uri.authority().map(http::uri::Authority::as_str).unwrap_or_default();
        let field = HeaderValue::from_str(authority).map_err(|_| AcmeError::malformed("it sends us to no host"))?;
        headers.insert(HOST, field);
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
        let Ok(body) = body.collect().await;
        Ok(Call { method: head.method, uri, host, headers, body: body.to_bytes() })
    }

    /// A request whose connection broke is sent again. Its nonce may be used up by then, and the library signs anew.
    async fn tries(&self, call: &Call) -> Result<(response::Parts, Bytes), AcmeError> {
        let mut tries = 1;
        loop {
            match self.exchange(call).await {
                Ok(answer) => return Ok(answer),
                Err(failed) if !failed.is_passing || tries >= MAX_TRIES => return Err(failed.error),
                Err(failed) => tracing::debug!(error = %failed.error, tries, "a call to a CA is made again"),
            }
            tokio::time::sleep(PAUSE * tries).await;
            tries += 1;
        }
    }

    async fn exchange(&self, call: &Call) -> Result<(response::Parts, Bytes), Failed> {
        let is_tls = call.uri.scheme_str() == Some("https");
        let port = call.uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let failed = |error: io::Error| unreachable(&call.host, &error);
        let stream = sallyport_net::connect_tcp(&call.host, port, CONNECT_TIMEOUT).await.map_err(failed)?;
        if !is_tls {
            return send(stream, call).await;
        }
        let tls = self.tls.clone();
        let stream = sallyport_net::start_tls(stream, &call.host, port, &call.host, tls, CONNECT_TIMEOUT).await;
        send(stream.map_err(failed)?, call).await
    }
}

async fn send<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    call: &Call,
) -> Result<(response::Parts, Bytes), Failed> {
    let lost = || {
        let reason = "it closed the connection without an answer".to_owned();
        Failed { error: AcmeError::Unreachable { host: call.host.clone(), reason }, is_passing: true }
    };
    let mut request = Request::new(Full::new(call.body.clone()));
    *request.method_mut() = call.method.clone();
    let path = call.uri.path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = path.parse().map_err(|_| lost())?;
    *request.headers_mut() = call.headers.clone();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|_| lost())?;
    let exchange = async {
        let (head, body) = match sender.send_request(request).await {
            Ok(answer) => answer.into_parts(),
            Err(error) if error.is_parse() => {
                return Err(Failed { error: AcmeError::malformed("it is not HTTP"), is_passing: false });
            }
            Err(_) => return Err(lost()),
        };
        match Limited::new(body, MAX_ANSWER_BYTES).collect().await {
            Ok(body) => Ok((head, body.to_bytes())),
            Err(error) if error.is::<LengthLimitError>() => {
                let error = AcmeError::malformed(format!("it is longer than {MAX_ANSWER_BYTES} bytes"));
                Err(Failed { error, is_passing: false })
            }
            Err(_) => Err(lost()),
        }
    };
    // The connection must be driven while the answer is read; afterwards it has nothing more to do.
    tokio::pin!(exchange);
    tokio::select! {
        result = &mut exchange => return result,
        result = connection => if let Err(error) = result { tracing::debug!(%error, "the connection ended") },
    }
    exchange.await
}

/// The error that this answer is, if it is one. The library handles a rejected nonce itself.
fn refusal(head: &response::Parts, body: &[u8], retry_after_seconds: Option<u64>) -> Option<AcmeError> {
    let status = head.status;
    if status.is_success() {
        return None;
    }
    if !(status.is_client_error() || status.is_server_error()) {
        return Some(AcmeError::malformed(format!("status {} is not followed", status.as_u16())));
    }
    let empty = || Problem { r#type: None, detail: None, status: None, subproblems: Vec::new() };
    let problem: Problem = serde_json::from_slice(body).unwrap_or_else(|_| empty());
    let is_nonce = problem::short_type(problem.r#type.as_deref()) == "badNonce";
    if status == StatusCode::BAD_REQUEST && is_nonce {
        return None;
    }
    Some(problem::of_problem(&problem, status.as_u16(), retry_after_seconds))
}

/// The wait that an answer asks for, in seconds, within bounds.
///
//= RFC 9110 section 10.2.3
// Retry-After = HTTP-date / delay-seconds
fn retry_after_seconds(headers: &HeaderMap, now: SystemTime) -> Option<u64> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let seconds = if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than fit are a long wait, too.
        text.parse().unwrap_or(u64::MAX)
    } else {
        let wait = httpdate::parse_http_date(text).ok()?.duration_since(now).unwrap_or_default();
        wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
    };
    Some(seconds.min(MAX_RETRY_AFTER_SECONDS))
}

fn unreachable(host: &str, error: &io::Error) -> Failed {
    let failure = error.get_ref().and_then(|inner| inner.downcast_ref::<TlsFailure>());
    let reason = match failure {
        Some(failure) if failure.is_certificate() => {
            "its certificate is not trusted here; name its root in a file if it is a private CA".to_owned()
        }
        Some(failure) => harmless(&failure.to_string()),
        None => match error.kind() {
            io::ErrorKind::ConnectionRefused => "nothing listens there".to_owned(),
            io::ErrorKind::TimedOut => "it does not answer in time".to_owned(),
            io::ErrorKind::NotFound => "there is no such host".to_owned(),
            _ => harmless(&error.to_string()),
        },
    };
    // A certificate and a name stay what they are, and another silence takes as long again.
    let is_lasting = failure.is_some_and(TlsFailure::is_certificate)
        || matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::NotFound);
    Failed { error: AcmeError::Unreachable { host: host.to_owned(), reason }, is_passing: !is_lasting }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(text: &str) -> Option<u64> {
        let now = httpdate::parse_http_date("Thu, 26 Nov 2026 08:00:00 GMT").unwrap();
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, HeaderValue::from_bytes(text.as_bytes()).unwrap());
        retry_after_seconds(&headers, now)
    }

    #[test]
    fn a_wait_is_seconds_or_a_date_within_bounds() {
        assert_eq!(seconds("120"), Some(120));
        assert_eq!(seconds(" 0 "), Some(0));
        assert_eq!(seconds("Thu, 26 Nov 2026 09:00:01 GMT"), Some(3_601));
        assert_eq!(seconds("Thu, 26 Nov 2026 07:00:00 GMT"), Some(0));
        assert_eq!(seconds("Fri, 26 Nov 2027 07:00:00 GMT"), Some(MAX_RETRY_AFTER_SECONDS));
        assert_eq!(seconds("99999999999999999999999999"), Some(MAX_RETRY_AFTER_SECONDS));
        for bad in ["", "-1", "1.5", "soon", "+5", "\u{ff11}"] {
            assert_eq!(seconds(bad), None, "{bad}");
        }
        assert_eq!(retry_after_seconds(&HeaderMap::new(), SystemTime::now()), None);
    }
}
