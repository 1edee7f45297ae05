//! How the edge is reached: which transport carries the tunnels, and what is done where the first choice is blocked.
//!
//! Left to itself the connector tries TLS with our ALPN, and where something on the way lets that not through, a WebSocket.
//! It stays with what worked; after [`REMEMBERED`] a new session begins with the first choice again.

use std::{
    fmt, io,
    str::FromStr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rustls::{AlertDescription, ClientConfig};
use sallyport_net::{ReadAhead, TlsFailure};
use sallyport_tunnel::{BoxFuture, BoxedCarrier, CONTROL_NOTSENT_BYTES, Dial, carrier::websocket::WebSocketCarrier};
use sallyport_wire::ALPN;
use tokio::{net::TcpStream, time::Instant};
use tokio_rustls::client::TlsStream;

/// How long a connection to the edge may take to come about, and as long again its TLS handshake.
const EDGE_CONNECT_TIME: Duration = Duration::from_secs(10);
/// How long a WebSocket may take once TLS is there.
const WEBSOCKET_TIME: Duration = Duration::from_secs(10);
/// After how long a transport that failed in an unclear way is tried again: an edge that stops lets a connection break,
/// but takes no second one.
const SECOND_LOOK_AFTER: Duration = Duration::from_millis(500);
/// For how long a transport that was not the first choice is the first one tried.
const REMEMBERED: Duration = Duration::from_hours(1);

/// What carries tunnels to the edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transport {
    /// TLS over TCP, with our ALPN.
    Tcp,
    /// WebSocket over TLS over TCP, which looks like the web's.
    WebSocket,
}

impl Transport {
    /// The word for it, as the command line and the logs have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::WebSocket => "websocket",
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Which transport is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TransportChoice {
    /// The first one that gets through.
    #[default]
    Auto,
    /// This one and no other.
    Only(Transport),
}

/// The word stands for no transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected auto, tcp or websocket")]
pub struct UnknownTransport;

impl FromStr for TransportChoice {
    type Err = UnknownTransport;

    fn from_str(text: &str) -> Result<Self, UnknownTransport> {
        match text {
            "auto" => Ok(Self::Auto),
            "tcp" => Ok(Self::Only(Transport::Tcp)),
            "websocket" => Ok(Self::Only(Transport::WebSocket)),
            _ => Err(UnknownTransport),
        }
    }
}

impl TransportChoice {
    /// What is tried, in this order, when nothing is known yet.
    fn candidates(self) -> Vec<Transport> {
        match self {
            Self::Auto => vec![Transport::Tcp, Transport::WebSocket],
            Self::Only(transport) => vec![transport],
        }
    }
}

/// The edge, as it is dialed.
pub(crate) struct Edge {
    shared: Arc<Shared>,
}

struct Shared {
    host: String,
    port: u16,
    agent: String,
    /// TLS with our ALPN.
    native: Arc<ClientConfig>,
    /// TLS as the web has it.
    http: Arc<ClientConfig>,
    choice: TransportChoice,
    used: Mutex<Used>,
}

/// The transport of the last session, and since when sessions have it.
#[derive(Debug, Clone, Copy)]
struct Used {
    transport: Transport,
    since: Instant,
}

/// A dial that failed.
struct Failed {
    error: io::Error,
    verdict: Verdict,
}

/// What a failed dial says of its transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// Another transport would fare no better.
    Unreachable,
    /// Something lets this transport not through.
    Blocked,
    /// The same, or the edge went away just then.
    Unclear,
}

impl Edge {
    /// The edge at this host and port; `tls` says whom to trust.
    pub(crate) fn new(host: String, port: u16, agent: String, tls: &ClientConfig, choice: TransportChoice) -> Self {
        let with = |alpn: &[u8]| {
            let mut config = tls.clone();
            config.alpn_protocols = vec![alpn.to_vec()];
            Arc::new(config)
        };
        let first = choice.candidates().first().copied().unwrap_or(Transport::Tcp);
        let used = Mutex::new(Used { transport: first, since: Instant::now() });
        Self {
            shared: Arc::new(Shared { host, port, agent, native: with(ALPN), http: with(b"http/1.1"), choice, used }),
        }
    }
}

impl Shared {
    fn used(&self) -> Used {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn use_from_now_on(&self, transport: Transport) {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if used.transport != transport {
            *used = Used { transport, since: Instant::now() };
        }
    }

    /// What is tried for a new session, in this order.
    fn order(&self) -> Vec<Transport> {
        let mut order = self.choice.candidates();
        let used = self.used();
        if used.since.elapsed() < REMEMBERED {
            order.sort_by_key(|transport| *transport != used.transport);
        }
        order
    }

    async fn dial_control(&self) -> io::Result<BoxedCarrier> {
        let mut blocked: Vec<(Transport, io::Error)> = Vec::new();
        for transport in self.order() {
            let mut dialed = self.dial(transport, true).await;
            if dialed.as_ref().is_err_and(|failed| failed.verdict == Verdict::Unclear) {
                tokio::time::sleep(SECOND_LOOK_AFTER).await;
                dialed = self.dial(transport, true).await;
            }
            match dialed {
                Ok(carrier) => {
                    self.use_from_now_on(transport);
                    return Ok(carrier);
                }
                Err(failed) if failed.verdict != Verdict::Unreachable => {
                    tracing::debug!(%transport, error = %failed.error, "this transport does not get through");
                    blocked.push((transport, failed.error));
                }
                Err(failed) => return Err(failed.error),
            }
        }
        Err(nothing_gets_through(blocked))
    }

    async fn dial(&self, transport: Transport, is_control: bool) -> Result<BoxedCarrier, Failed> {
        match transport {
            Transport::Tcp => {
                let stream = self.tls(&self.native, is_control).await?;
                if stream.get_ref().1.alpn_protocol() != Some(ALPN) {
                    let text = format!("{}:{} takes no tunnels: is it a Sallyport edge?", self.host, self.port);
                    let error = io::Error::new(io::ErrorKind::Unsupported, text);
                    return Err(Failed { error, verdict: Verdict::Blocked });
                }
                Ok(Box::new(stream))
            }
            Transport::WebSocket => {
                let stream = self.tls(&self.http, is_control).await?;
                let asking = WebSocketCarrier::request(stream, &self.host, self.port, &self.agent);
                let error = match tokio::time::timeout(WEBSOCKET_TIME, asking).await {
                    Ok(Ok(carrier)) => return Ok(Box::new(carrier)),
                    Ok(Err(error)) => error,
                    Err(_) => io::Error::new(io::ErrorKind::TimedOut, "the edge did not answer in time"),
                };
                Err(Failed { error, verdict: Verdict::Blocked })
            }
        }
    }

    async fn tls(
        &self,
        config: &Arc<ClientConfig>,
        is_control: bool,
    ) -> Result<TlsStream<ReadAhead<TcpStream>>, Failed> {
        // All transports need this much: when it fails no other one is tried.
        let unreachable = |error| Failed { error, verdict: Verdict::Unreachable };
        let tcp = sallyport_net::connect_tcp(&self.host, self.port, EDGE_CONNECT_TIME).await.map_err(unreachable)?;
        if is_control {
            sallyport_net::set_notsent_lowat(&tcp, CONTROL_NOTSENT_BYTES).map_err(unreachable)?;
        }
        sallyport_net::start_tls(tcp, &self.host, self.port, &self.host, config.clone(), EDGE_CONNECT_TIME)
            .await
            .map_err(|error| Failed { verdict: verdict(&error), error })
    }
}

/// What a failed handshake says. A certificate that is not trusted will not be for another transport either.
fn verdict(error: &io::Error) -> Verdict {
    let Some(failure) = error.get_ref().and_then(|inner| inner.downcast_ref::<TlsFailure>()) else {
        return Verdict::Unclear;
    };
    match failure.error() {
        rustls::Error::InvalidCertificate(_)
        | rustls::Error::AlertReceived(AlertDescription::UnrecognisedName | AlertDescription::AccessDenied) => {
            Verdict::Unreachable
        }
        _ => Verdict::Blocked,
    }
}

fn nothing_gets_through(mut blocked: Vec<(Transport, io::Error)>) -> io::Error {
    if blocked.len() == 1 {
        return blocked.remove(0).1;
    }
    let kind = blocked.first().map_or(io::ErrorKind::Unsupported, |(_, error)| error.kind());
    let told: Vec<String> = blocked.iter().map(|(transport, error)| format!("by {transport}: {error}")).collect();
    io::Error::new(kind, told.join("; "))
}

impl Dial for Edge {
    fn dial(&self) -> BoxFuture<'static, io::Result<BoxedCarrier>> {
        let shared = self.shared.clone();
        Box::pin(async move { shared.dial(shared.used().transport, false).await.map_err(|failed| failed.error) })
    }

    fn dial_control(&self) -> BoxFuture<'static, io::Result<BoxedCarrier>> {
        let shared = self.shared.clone();
        Box::pin(async move { shared.dial_control().await })
    }

    fn dial_datagrams(&self) -> BoxFuture<'static, io::Result<BoxedCarrier>> {
        let shared = self.shared.clone();
        Box::pin(async move { shared.dial(shared.used().transport, true).await.map_err(|failed| failed.error) })
    }

    fn transport(&self) -> &'static str {
        self.shared.used().transport.name()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_the_command_line_are_the_names_of_the_transports() {
        for transport in TransportChoice::Auto.candidates() {
            assert_eq!(transport.name().parse(), Ok(TransportChoice::Only(transport)));
        }
        assert_eq!("auto".parse(), Ok(TransportChoice::Auto));
        assert!("TCP".parse::<TransportChoice>().is_err());
    }

    #[test]
    fn a_session_begins_with_what_worked_last() {
        let roots = rustls::RootCertStore::empty();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let edge = Edge::new("edge.example".into(), 443, "test".into(), &tls, TransportChoice::Auto).shared;
        assert_eq!(edge.order(), [Transport::Tcp, Transport::WebSocket]);
        edge.use_from_now_on(Transport::WebSocket);
        assert_eq!(edge.order(), [Transport::WebSocket, Transport::Tcp]);
    }

    #[test]
    fn every_failure_is_told_when_nothing_gets_through() {
        let failed = |text: &str| io::Error::new(io::ErrorKind::Unsupported, text.to_owned());
        let both = vec![(Transport::Tcp, failed("no ALPN")), (Transport::WebSocket, failed("status 403"))];
        assert_eq!(nothing_gets_through(both).to_string(), "by tcp: no ALPN; by websocket: status 403");
        let one = vec![(Transport::Tcp, failed("no ALPN"))];
        assert_eq!(nothing_gets_through(one).to_string(), "no ALPN");
    }
}
