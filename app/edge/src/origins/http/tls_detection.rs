//! Detects a service that speaks TLS behind a socket of type `http`.
//!
//! Some servers answer a plain request with a TLS alert, some with status 400, and many just close the connection. The
//! last kind is checked once, by a ClientHello on a connection of its own.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use http::{Response, StatusCode};
use parking_lot::Mutex;
use rustls::{ClientConfig, ClientConnection, pki_types::ServerName};
use sallyport_http::RequestHost;
use sallyport_model::{SocketRoute, SocketType};
use sallyport_net::{client_config_by, custom_server_verifier};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::origins::{
    http::{exchange::Failure, response_body::ResponseCarrier},
    origin::Origin,
};

/// How long an origin may take to answer a ClientHello.
const MAX_PROBE: Duration = Duration::from_secs(2);
/// How long the result of a ClientHello is reused.
const RESULT_TTL: Duration = Duration::from_secs(30);
/// The content types of TLS records that answer a ClientHello: alert, and handshake (RFC 8446 section 5.1).
const ALERT_OR_HANDSHAKE: [u8; 2] = [21, 22];
/// The errors of TLS servers for plain requests: Go, nginx, Apache, Tomcat.
const PLAIN_HTTP_ERRORS: [&[u8]; 4] = [
    b"Client sent an HTTP request to an HTTPS server",
    b"The plain HTTP request was sent to HTTPS port",
    b"speaking plain HTTP to an SSL-enabled server port",
    b"This combination of host and port requires TLS",
];
/// How far into a response these texts are searched, in bytes.
const MAX_ERROR_BYTES: usize = 2_048;
/// The client address of the check, which has no client.
const NO_CLIENT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// The result of the last ClientHello, and when.
#[derive(Debug, Default)]
pub(crate) struct TlsDetection(Mutex<Option<(Instant, bool)>>);

impl TlsDetection {
    fn known(&self, now: Instant) -> Option<bool> {
        let detection = self.0.lock();
        detection.filter(|(at, _)| now.saturating_duration_since(*at) < RESULT_TTL).map(|(_, speaks_tls)| speaks_tls)
    }

    /// Stores the result. Returns whether it is new.
    fn learn(&self, now: Instant, speaks_tls: bool) -> bool {
        let was_known = self.known(now) == Some(speaks_tls);
        if !was_known {
            *self.0.lock() = Some((now, speaks_tls));
        }
        !was_known
    }
}

/// Passes the response on, unless it is a TLS server's complaint about plain HTTP.
pub(crate) fn check_response(
    route: &SocketRoute,
    exchanged: (Response<()>, ResponseCarrier),
) -> Result<(Response<()>, ResponseCarrier), Failure> {
    let (response, carrier) = &exchanged;
    if response.status() != StatusCode::BAD_REQUEST || route.socket_type != SocketType::Http {
        return Ok(exchanged);
    }
    let ResponseCarrier::H1(connection) = carrier else { return Ok(exchanged) };
    let read = connection.read_ahead();
    let read = &read[..read.len().min(MAX_ERROR_BYTES)];
    let has_error = |error: &[u8]| read.windows(error.len()).any(|window| window == error);
    if PLAIN_HTTP_ERRORS.into_iter().any(has_error) { Err(Failure::SpeaksTls) } else { Ok(exchanged) }
}

/// Replaces the failure by a clearer one if the origin speaks TLS.
pub(crate) async fn explain(route: &SocketRoute, origin: &Origin, host: &RequestHost, failure: Failure) -> Failure {
    if route.socket_type != SocketType::Http || !(failure.has_no_response() || matches!(failure, Failure::SpeaksTls)) {
        return failure;
    }
    let now = Instant::now();
    let speaks_tls = match origin.tls_detection().known(now) {
        _ if matches!(failure, Failure::SpeaksTls) => true,
        Some(speaks_tls) => speaks_tls,
        None => Box::pin(tokio::time::timeout(MAX_PROBE, probe(origin, host)))
            .await
            .is_ok_and(|probed| probed.unwrap_or(false)),
    };
    if origin.tls_detection().learn(now, speaks_tls) && speaks_tls {
        tracing::warn!(
            socket = %route.name,
            origin = %origin.handle().origin(),
            "the service speaks TLS, and its socket is of type http: use --type https, as in `sallyport socket edit {} --type https`",
            route.name
        );
    }
    if speaks_tls { Failure::SpeaksTls } else { failure }
}

/// Whether the origin answers a ClientHello with TLS.
async fn probe(origin: &Origin, host: &RequestHost) -> io::Result<bool> {
    let connection = origin.connect_h1(NO_CLIENT, host.name(), false).map_err(io::Error::other)?;
    let (mut stream, _) = connection.into_stream();
    stream.write_all(&client_hello()?).await?;
    stream.flush().await?;
    let mut first = [0];
    Ok(stream.read(&mut first).await? == 1 && ALERT_OR_HANDSHAKE.contains(&first[0]))
}

/// A ClientHello, without the rest of the handshake.
fn client_hello() -> io::Result<Vec<u8>> {
    static CONFIG: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    let config = CONFIG.get_or_init(|| Arc::new(client_config_by(custom_server_verifier(|_| Ok(())), &[]))).clone();
    let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
    let mut connection = ClientConnection::new(config, name).map_err(io::Error::other)?;
    let mut hello = Vec::new();
    while connection.wants_write() {
        connection.write_tls(&mut hello)?;
    }
    Ok(hello)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_reused_until_it_expires() {
        let (detection, now) = (TlsDetection::default(), Instant::now());
        assert_eq!(detection.known(now), None);
        assert!(detection.learn(now, true) && !detection.learn(now, true));
        assert_eq!(detection.known(now + RESULT_TTL / 2), Some(true));
        assert_eq!(detection.known(now + RESULT_TTL), None);
        assert!(detection.learn(now, false));
    }

    #[test]
    fn a_client_hello_is_a_handshake_record() {
        assert_eq!(client_hello().unwrap().first(), Some(&22));
    }
}
