//! Probes the API.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{HeaderValue, Request, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use sallyport_net::CertificateSummary;
use time::OffsetDateTime;

use crate::{
    ApiAddress, ApiClient, ClientError,
    transport::{CALL_TIMEOUT, CONNECT_TIMEOUT, connect_error},
};

/// The longest accepted answer of `/readyz` and `/healthz`, in bytes.
const MAX_PROBE_BYTES: usize = 16_384;

/// The result of a probe.
#[derive(Debug, Clone)]
pub struct ApiProbe {
    /// Time from the first packet to the end of the TLS handshake.
    pub connected_after: Duration,
    /// Whether the server is ready; otherwise its reason.
    pub ready: Result<(), String>,
    /// Problems, line by line, from `/healthz`.
    pub notes: Vec<String>,
    /// The clock of the server.
    pub date: Option<OffsetDateTime>,
    /// The server's verified certificate.
    pub certificate: Option<CertificateSummary>,
}

impl ApiClient {
    /// Asks the API whether it is ready.
    ///
    /// # Errors
    /// The API cannot be reached, or is not trusted.
    pub async fn probe(&self) -> Result<ApiProbe, ClientError> {
        let api = self.address();
        match tokio::time::timeout(CALL_TIMEOUT, self.probe_unbounded(api)).await {
            Ok(result) => result,
            Err(_) => Err(ClientError::TimedOut { api: api.clone() }),
        }
    }

    async fn probe_unbounded(&self, api: &ApiAddress) -> Result<ApiProbe, ClientError> {
        let began = Instant::now();
        let (outbound, tls) = (self.outbound(), Arc::clone(self.tls()));
        let stream = sallyport_net::connect_tls_by(outbound, api.host(), api.port(), api.host(), tls, CONNECT_TIMEOUT)
            .await
            .map_err(|error| connect_error(api, &error))?;
        let connected_after = began.elapsed();
        let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let certificate = shown.and_then(|der| CertificateSummary::from_der(der));
        let lost = |error: hyper::Error| ClientError::Lost { api: api.clone(), reason: error.to_string() };
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(lost)?;
        let asked = async {
            let (ready, readiness, date) = ask(api, &mut sender, "/readyz").await?;
            let (_, health, _) = ask(api, &mut sender, "/healthz").await?;
            let reason = || {
                let answer = serde_json::from_str::<serde_json::Value>(&readiness).ok();
                let reason = answer.and_then(|answer| answer["reason"].as_str().map(str::to_owned));
                reason.unwrap_or_else(|| "no reason given".to_owned())
            };
            Ok(ApiProbe {
                connected_after,
                ready: if ready { Ok(()) } else { Err(reason()) },
                notes: health.lines().filter(|line| *line != "ok").map(str::to_owned).collect(),
                date,
                certificate,
            })
        };
        tokio::pin!(asked);
        tokio::select! {
            result = &mut asked => return result,
            result = connection => if let Err(error) = result { tracing::debug!(%error, "the connection ended") },
        }
        asked.await
    }
}

/// Whether the answer is a success, its text, and the server's clock.
async fn ask(
    api: &ApiAddress,
    sender: &mut http1::SendRequest<Empty<Bytes>>,
    path: &str,
) -> Result<(bool, String, Option<OffsetDateTime>), ClientError> {
    let answer = |reason: String| ClientError::Answer { api: api.clone(), reason };
    let request = Request::get(path).header(header::HOST, api.authority()).body(Empty::new());
    let request = request.map_err(|error| answer(error.to_string()))?;
    let lost = |error: hyper::Error| ClientError::Lost { api: api.clone(), reason: error.to_string() };
    let (head, body) = sender.send_request(request).await.map_err(lost)?.into_parts();
    let body = Limited::new(body, MAX_PROBE_BYTES).collect().await.map_err(|error| answer(error.to_string()))?;
    let text = String::from_utf8_lossy(&body.to_bytes()).into_owned();
    Ok((head.status.is_success(), text, head.headers.get(header::DATE).and_then(date)))
}

fn date(value: &HeaderValue) -> Option<OffsetDateTime> {
    httpdate::parse_http_date(value.to_str().ok()?).ok().map(OffsetDateTime::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_of_a_server_is_read() {
        let read = |text: &'static str| date(&HeaderValue::from_static(text)).map(OffsetDateTime::unix_timestamp);
        assert_eq!(read("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
        assert_eq!((read(""), read("yesterday")), (None, None));
    }
}
