//! One request on one connection.

use std::{error::Error as _, io, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::{CertificateError, pki_types::UnixTime};
use sallyport_net::{Outbound, ProxyFailure, TlsFailure};
use time::OffsetDateTime;

use crate::{ApiAddress, ClientError, Lapse};

/// Timeout of one call, from the first packet to the last byte of the answer.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout of connecting.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The largest accepted answer, in bytes.
pub const MAX_ANSWER_BYTES: usize = 4 * 1_024 * 1_024;

/// What the API has answered.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    /// `Retry-After` in seconds (RFC 9110 section 10.2.3). The API sends no dates.
    pub(crate) retry_after: Option<Duration>,
    pub(crate) body: Bytes,
}

/// Sends the request and reads the answer.
pub(crate) async fn exchange(
    api: &ApiAddress,
    tls: Arc<rustls::ClientConfig>,
    outbound: &Outbound,
    request: Request<Full<Bytes>>,
) -> Result<Answer, ClientError> {
    match tokio::time::timeout(CALL_TIMEOUT, exchange_unbounded(api, tls, outbound, request)).await {
        Ok(result) => result,
        Err(_) => Err(ClientError::TimedOut { api: api.clone() }),
    }
}

async fn exchange_unbounded(
    api: &ApiAddress,
    tls: Arc<rustls::ClientConfig>,
    outbound: &Outbound,
    request: Request<Full<Bytes>>,
) -> Result<Answer, ClientError> {
    let stream = sallyport_net::connect_tls_by(outbound, api.host(), api.port(), api.host(), tls, CONNECT_TIMEOUT)
        .await
        .map_err(|error| connect_error(api, &error))?;
    let lost = |error: hyper::Error| ClientError::Lost { api: api.clone(), reason: plain(&error) };
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(lost)?;
    let exchange = async {
        let response = sender.send_request(request).await.map_err(lost)?;
        read(api, response).await
    };
    // The connection must be driven while the answer is read; afterwards it has nothing more to do.
    tokio::pin!(exchange);
    tokio::select! {
        result = &mut exchange => return result,
        result = connection => if let Err(error) = result { tracing::debug!(%error, "the connection ended") },
    }
    exchange.await
}

async fn read(api: &ApiAddress, response: Response<hyper::body::Incoming>) -> Result<Answer, ClientError> {
    let (head, body) = response.into_parts();
    if head.status.is_redirection() {
        let to = head.headers.get(header::LOCATION).and_then(|to| to.to_str().ok()).unwrap_or("another address");
        let reason = format!("a redirect to {}", to.chars().take(200).collect::<String>());
        return Err(ClientError::Answer { api: api.clone(), reason });
    }
    let retry_after = head.headers.get(header::RETRY_AFTER).and_then(|seconds| seconds.to_str().ok()?.parse().ok());
    let retry_after = retry_after.map(Duration::from_secs);
    match Limited::new(body, MAX_ANSWER_BYTES).collect().await {
        Ok(body) => Ok(Answer { status: head.status, retry_after, body: body.to_bytes() }),
        Err(error) if error.is::<LengthLimitError>() => {
            Err(ClientError::Answer { api: api.clone(), reason: format!("longer than {MAX_ANSWER_BYTES} bytes") })
        }
        Err(error) => Err(ClientError::Lost { api: api.clone(), reason: error.to_string() }),
    }
}

/// hyper's errors have their details only in their source.
fn plain(error: &hyper::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// Distinguishes an untrusted or lapsed certificate from a network failure.
pub(crate) fn connect_error(api: &ApiAddress, error: &io::Error) -> ClientError {
    let (api, inner) = (api.clone(), error.get_ref());
    if let Some(failure) = inner.and_then(|inner| inner.downcast_ref::<TlsFailure>())
        && failure.is_certificate()
    {
        return match failure.error() {
            rustls::Error::InvalidCertificate(why) => refused(api, why),
            _ => ClientError::Untrusted { api, reason: failure.to_string() },
        };
    }
    // A proxy's refusal has its own text.
    match inner.and_then(|inner| inner.downcast_ref::<ProxyFailure>()) {
        Some(failure) => ClientError::Unreachable {
            api,
            reason: failure.sentence().to_owned(),
            advice: failure.advice().map(str::to_owned),
        },
        None => ClientError::Unreachable { api, reason: reason(error), advice: None },
    }
}

/// The error of a certificate that was refused.
fn refused(api: ApiAddress, why: &CertificateError) -> ClientError {
    match lapse(why) {
        Some(lapse) => ClientError::Lapsed { api, lapse },
        None => ClientError::Untrusted { api, reason: certificate_reason(why) },
    }
}

/// Whether the certificate was refused because of its dates.
fn lapse(why: &CertificateError) -> Option<Lapse> {
    let at = |time: &UnixTime| OffsetDateTime::from_unix_timestamp(i64::try_from(time.as_secs()).ok()?).ok();
    match why {
        CertificateError::Expired => Some(Lapse::Ended(None)),
        CertificateError::ExpiredContext { not_after, .. } => Some(Lapse::Ended(at(not_after))),
        CertificateError::NotValidYet => Some(Lapse::NotBegun(None)),
        CertificateError::NotValidYetContext { not_before, .. } => Some(Lapse::NotBegun(at(not_before))),
        _ => None,
    }
}

fn certificate_reason(why: &CertificateError) -> String {
    match why {
        CertificateError::UnknownIssuer => "it is not signed by a trusted authority".into(),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "it is for another name".into()
        }
        CertificateError::Other(other) => other.0.to_string(),
        other => other.to_string(),
    }
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "nothing listens there (connection refused)".into(),
        io::ErrorKind::TimedOut => format!("no answer within {} seconds", CONNECT_TIMEOUT.as_secs()),
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => "there is no route to it".into(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_connection_has_a_reason_in_plain_words() {
        let api: ApiAddress = "https://api.localhost:8443".parse().unwrap();
        let error = |kind: io::ErrorKind| connect_error(&api, &kind.into()).to_string();
        assert_eq!(
            error(io::ErrorKind::ConnectionRefused),
            "cannot reach https://api.localhost:8443: nothing listens there (connection refused)"
        );
        assert!(error(io::ErrorKind::TimedOut).ends_with("no answer within 10 seconds"));
    }

    #[test]
    fn a_lapsed_certificate_has_its_date_and_is_not_called_untrusted() {
        let api: ApiAddress = "https://api.localhost:8443".parse().unwrap();
        let said = |why: CertificateError| refused(api.clone(), &why).to_string();
        let at = |seconds: u64| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let ended = CertificateError::ExpiredContext { time: at(1_800_000_000), not_after: at(1_790_000_000) };
        assert_eq!(
            said(ended),
            "the certificate of api.localhost:8443 has ended on 2026-09-21 14:13 UTC by the clock of this machine"
        );
        assert!(said(CertificateError::Expired).ends_with("has ended by the clock of this machine"));
        let early = CertificateError::NotValidYetContext { time: at(1_000_000_000), not_before: at(1_790_000_000) };
        assert!(said(early).contains("is not valid before 2026-09-21 14:13 UTC"));
        assert!(said(CertificateError::NotValidYet).contains("is not valid yet"));
        assert!(said(CertificateError::UnknownIssuer).contains("cannot be trusted: it is not signed"));
    }
}
