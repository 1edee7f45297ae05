//! A service that speaks TLS, behind a socket whose type says that it does not. Some servers answer a plain request with an
//! alert of TLS, some with a status 400 that says so, and many end the connection without a word: those are asked once, by a
//! greeting of TLS over a connection of its own.

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

/// How long an origin may take to answer a greeting.
const MAX_PROBE: Duration = Duration::from_secs(2);
/// For how long it is believed what it answered.
const BELIEVED_FOR: Duration = Duration::from_secs(30);
/// What the records of TLS begin with that answer a greeting: an alert, and a handshake (RFC 8446 section 5.1).
const ALERT_OR_HANDSHAKE: [u8; 2] = [21, 22];
/// What servers of TLS say to a plain request: Go, nginx, Apache, Tomcat.
const SAYINGS: [&[u8]; 4] = [
    b"Client sent an HTTP request to an HTTPS server",
    b"The plain HTTP request was sent to HTTPS port",
    b"speaking plain HTTP to an SSL-enabled server port",
    b"This combination of host and port requires TLS",
];
/// How far into an answer these are looked for, in bytes.
const MAX_SAYING_BYTES: usize = 2_048;
/// Who asks: nobody that could be named.
const NOBODY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// What an origin answered to a greeting of TLS, and when.
#[derive(Debug, Default)]
pub(crate) struct TlsDetection(Mutex<Option<(Instant, bool)>>);

impl TlsDetection {
    fn known(&self, now: Instant) -> Option<bool> {
        let greeted = self.0.lock();
        greeted.filter(|(at, _)| now.saturating_duration_since(*at) < BELIEVED_FOR).map(|(_, speaks_tls)| speaks_tls)
    }

    /// Remembers it; returns whether it was not known.
    fn learn(&self, now: Instant, speaks_tls: bool) -> bool {
        let was_known = self.known(now) == Some(speaks_tls);
        if !was_known {
            *self.0.lock() = Some((now, speaks_tls));
        }
        !was_known
    }
}

/// The answer, unless by it a server of TLS says that the request should have come by TLS.
pub(crate) fn check_answer(
    route: &SocketRoute,
    answered: (Response<()>, ResponseCarrier),
) -> Result<(Response<()>, ResponseCarrier), Failure> {
    let (response, carrier) = &answered;
    if response.status() != StatusCode::BAD_REQUEST || route.socket_type != SocketType::Http {
        return Ok(answered);
    }
    let ResponseCarrier::H1(connection) = carrier else { return Ok(answered) };
    let read = connection.read_ahead();
    let read = &read[..read.len().min(MAX_SAYING_BYTES)];
    let says = |saying: &[u8]| read.windows(saying.len()).any(|window| window == saying);
    if SAYINGS.into_iter().any(says) { Err(Failure::SpeaksTls) } else { Ok(answered) }
}

/// Why the attempt really failed, where the origin may speak TLS.
pub(crate) async fn explain(route: &SocketRoute, origin: &Origin, host: &RequestHost, failure: Failure) -> Failure {
    if route.socket_type != SocketType::Http || !(failure.has_no_response() || matches!(failure, Failure::SpeaksTls)) {
        return failure;
    }
    let now = Instant::now();
    let speaks_tls = match origin.greeted().known(now) {
        _ if matches!(failure, Failure::SpeaksTls) => true,
        Some(speaks_tls) => speaks_tls,
        None => Box::pin(tokio::time::timeout(MAX_PROBE, greet(origin, host)))
            .await
            .is_ok_and(|asked| asked.unwrap_or(false)),
    };
    if origin.greeted().learn(now, speaks_tls) && speaks_tls {
        tracing::warn!(
            socket = %route.name,
            origin = %origin.handle().origin(),
            "the service speaks TLS, and its socket is of type http: use --type https, as in `sallyport socket edit {} --type https`",
            route.name
        );
    }
    if speaks_tls { Failure::SpeaksTls } else { failure }
}

/// Whether the origin answers a greeting of TLS with TLS.
async fn greet(origin: &Origin, host: &RequestHost) -> io::Result<bool> {
    let connection = origin.connect_h1(NOBODY, host.name(), false).map_err(io::Error::other)?;
    let (mut stream, _) = connection.into_stream();
    stream.write_all(&greeting()?).await?;
    stream.flush().await?;
    let mut first = [0];
    Ok(stream.read(&mut first).await? == 1 && ALERT_OR_HANDSHAKE.contains(&first[0]))
}

/// A ClientHello. The handshake goes no further.
fn greeting() -> io::Result<Vec<u8>> {
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
    fn what_was_learned_is_believed_for_a_while() {
        let (greeted, now) = (TlsDetection::default(), Instant::now());
        assert_eq!(greeted.known(now), None);
        assert!(greeted.learn(now, true) && !greeted.learn(now, true));
        assert_eq!(greeted.known(now + BELIEVED_FOR / 2), Some(true));
        assert_eq!(greeted.known(now + BELIEVED_FOR), None);
        assert!(greeted.learn(now, false));
    }

    #[test]
    fn a_greeting_is_a_record_of_the_handshake() {
        assert_eq!(greeting().unwrap().first(), Some(&22));
    }
}
