//! Connects to the private service, once for every stream.

use std::{
    future::Future,
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use rustls::AlertDescription;
use sallyport_model::{EdgeName, OriginAddr, TunnelId};
use sallyport_net::{ReadAhead, RelayEnd, ShardTcpStream, TlsFailure};
use sallyport_tunnel::{BoxFuture, ConnectorEvent, FlowHandle, FlowOpen, FlowSink, IncomingStream, TunnelStream};
use sallyport_wire::{FailureReason, Open, OpenFailure, StreamProtocol};
use tokio::sync::mpsc;
use tokio_rustls::client::TlsStream;
use tracing::{debug, warn};

use crate::{
    capture::{Capture, Tap, TappedOrigin},
    flows::Flows,
    origin_tls::Configs,
    pool::{OriginPool, ServiceOrigin},
    quick_ack::Stalls,
    relay::relay,
    services::ServiceConnection,
};

/// How soon the same TLS error of the service is logged again, and how soon a different one.
const SAME_ERROR_AFTER: Duration = Duration::from_secs(30);
const OTHER_ERROR_AFTER: Duration = Duration::from_secs(2);

/// The private service of a tunnel.
#[derive(Debug)]
pub(crate) struct Origin {
    target: Arc<OriginTarget>,
    flows: Flows,
}

#[derive(Debug)]
struct OriginTarget {
    origin: ServiceOrigin,
    tls: Option<Tls>,
    connect_timeout: Duration,
    stalls: Stalls,
    /// The capture for the inspector, if there is one.
    capture: Option<Capture>,
}

#[derive(Debug)]
struct Tls {
    configs: Configs,
    /// The name that the certificate must have; by default the dialed host.
    server_name: Option<String>,
    log_limit: ErrorLogLimit,
}

/// Limits the log of the service's TLS errors, because every request meets the same error.
#[derive(Debug, Default)]
struct ErrorLogLimit(Mutex<Option<(String, Instant)>>);

impl ErrorLogLimit {
    /// Whether this error is logged now.
    fn is_due(&self, text: &str, now: Instant) -> bool {
        let mut last = self.0.lock();
        let is_due = last.as_ref().is_none_or(|(logged, at)| {
            let pause = if logged == text { SAME_ERROR_AFTER } else { OTHER_ERROR_AFTER };
            now.saturating_duration_since(*at) >= pause
        });
        if is_due {
            *last = Some((text.to_owned(), now));
        }
        is_due
    }
}

impl Origin {
    pub(crate) fn new(
        tunnel: TunnelId,
        origin: ServiceOrigin,
        tls: Option<Configs>,
        server_name: Option<String>,
        connect_timeout: Duration,
        events: mpsc::Sender<ConnectorEvent>,
        capture: Option<Capture>,
    ) -> Self {
        let tls = tls.map(|configs| Tls { configs, server_name, log_limit: ErrorLogLimit::default() });
        let (flows, stalls) = (Flows::new(tunnel, origin.clone(), events), Stalls::default());
        Self { target: Arc::new(OriginTarget { origin, tls, connect_timeout, stalls, capture }), flows }
    }

    /// Whether the service has a pool of addresses.
    pub(crate) fn is_pool(&self) -> bool {
        self.target.origin.is_pool()
    }

    /// The TLS configurations of the service, if it speaks TLS.
    pub(crate) fn tls_configs(&self) -> Option<Configs> {
        self.target.tls.as_ref().map(|tls| tls.configs.clone())
    }

    /// Opens a connection to the service for HTTP/1.1.
    pub(crate) async fn connect(&self) -> Result<Box<dyn ServiceConnection>, OpenFailure> {
        let target = &self.target;
        let time = target.connect_timeout;
        let address = match &target.origin {
            ServiceOrigin::One(address) => address.clone(),
            ServiceOrigin::Pool(pool) => {
                let mut search = pool.search(std::net::Ipv4Addr::LOCALHOST.into(), time);
                match search.next() {
                    Some((endpoint, _)) => endpoint.address().clone(),
                    None => return Err(search.failure()),
                }
            }
        };
        Ok(match &target.tls {
            Some(_) => target.connect_tls(&address, StreamProtocol::Http1, time).await?,
            None => Box::new(target.connect_plain(&address, time).await?),
        })
    }

    /// Serves a datagram flow.
    pub(crate) fn open_flow(&self, open: FlowOpen, flow: FlowHandle) -> Arc<dyn FlowSink> {
        self.flows.open(open, flow)
    }

    /// Serves a stream.
    pub(crate) fn serve(&self, open: Open, edge: Option<&EdgeName>, stream: IncomingStream) -> BoxFuture<'static, ()> {
        let target = self.target.clone();
        let tap = target.capture.as_ref().and_then(|capture| capture.begin(&open, edge));
        if let ServiceOrigin::Pool(pool) = &target.origin {
            return serve_from_pool(pool, target.clone(), open, stream, tap);
        }
        // Streams may stay idle for long: the connect future is boxed, and freed before bytes move.
        if target.tls.is_some() {
            Box::pin(carry(self.target.clone(), tap, async move {
                let ServiceOrigin::One(address) = &target.origin else { return None };
                let connected = target.connect_tls(address, open.protocol, target.connect_timeout).await;
                answer(stream, connected.map(|origin| (origin, ()))).await
            }))
        } else {
            Box::pin(carry(self.target.clone(), tap, async move {
                let ServiceOrigin::One(address) = &target.origin else { return None };
                let connected = target.connect_plain(address, target.connect_timeout).await;
                answer(stream, connected.map(|origin| (origin, ()))).await
            }))
        }
    }
}

/// Serves a stream from one endpoint of the pool.
fn serve_from_pool(
    pool: &OriginPool,
    target: Arc<OriginTarget>,
    open: Open,
    stream: IncomingStream,
    tap: Option<Box<Tap>>,
) -> BoxFuture<'static, ()> {
    let (carried, mut search) = (target.clone(), pool.search(open.client.ip(), target.connect_timeout));
    if target.tls.is_some() {
        Box::pin(carry(carried, tap, async move {
            while let Some((endpoint, time)) = search.next() {
                let connected = target.connect_tls(endpoint.address(), open.protocol, time).await;
                if let Some(connected) = search.record(endpoint, connected) {
                    return answer(stream, Ok(connected)).await;
                }
            }
            refuse(stream, search.failure()).await
        }))
    } else {
        Box::pin(carry(carried, tap, async move {
            while let Some((endpoint, time)) = search.next() {
                let connected = target.connect_plain(endpoint.address(), time).await;
                if let Some(connected) = search.record(endpoint, connected) {
                    return answer(stream, Ok(connected)).await;
                }
            }
            refuse(stream, search.failure()).await
        }))
    }
}

impl OriginTarget {
    async fn connect_plain(&self, address: &OriginAddr, time: Duration) -> Result<ShardTcpStream, OpenFailure> {
        let connect = sallyport_net::connect_tcp(&address.host, address.port, time);
        connect.await.map(ShardTcpStream::new).map_err(|error| why_not_connected(&error, address))
    }

    async fn connect_tls(
        &self,
        address: &OriginAddr,
        protocol: StreamProtocol,
        time: Duration,
    ) -> Result<Box<TlsStream<ReadAhead<ShardTcpStream>>>, OpenFailure> {
        let Some(tls) = &self.tls else {
            return Err(OpenFailure::new(FailureReason::Other, "TLS to the service is not set up"));
        };
        let OriginAddr { host, port } = address;
        let began = Instant::now();
        let tcp = self.connect_plain(address, time).await?;
        let left = time.saturating_sub(began.elapsed());
        let (config, name) = (tls.configs.of(protocol), tls.server_name_at(address));
        let failure = match sallyport_net::start_tls(tcp, host, *port, name, config, left).await {
            Ok(origin) if protocol == StreamProtocol::Http2 && origin.get_ref().1.alpn_protocol() != Some(b"h2") => {
                OpenFailure::new(FailureReason::Tls, &format!("{address} speaks no HTTP/2 over TLS"))
            }
            Ok(origin) => return Ok(Box::new(origin)),
            Err(error) => tls.why_not(address, time, &error),
        };
        if tls.log_limit.is_due(&failure.message, Instant::now()) {
            warn!("{}", failure.message);
        }
        Err(failure)
    }
}

impl Tls {
    /// The name that the certificate at this address must have.
    fn server_name_at<'a>(&'a self, address: &'a OriginAddr) -> &'a str {
        self.server_name.as_deref().unwrap_or(&address.host)
    }

    /// The failure of a handshake with the service, with advice.
    fn why_not(&self, address: &OriginAddr, time: Duration, error: &io::Error) -> OpenFailure {
        const WITHOUT: &str = "for a service without TLS, make a socket of --type http";
        if error.kind() == io::ErrorKind::TimedOut {
            let text = format!("{address} did not finish the TLS handshake within {time:?}: {WITHOUT}");
            return OpenFailure::new(FailureReason::TimedOut, &text);
        }
        let why = match error.get_ref().and_then(|inner| inner.downcast_ref::<TlsFailure>()).map(TlsFailure::error) {
            Some(
                rustls::Error::InvalidMessage(_)
                | rustls::Error::InappropriateMessage { .. }
                | rustls::Error::InappropriateHandshakeMessage { .. },
            ) => format!("it speaks no TLS: {WITHOUT}"),
            Some(rustls::Error::AlertReceived(AlertDescription::UnrecognisedName | AlertDescription::AccessDenied)) => {
                let name = self.server_name_at(address);
                format!("it has no certificate for {name}: say with --origin-server-name NAME which one it has")
            }
            Some(rustls::Error::Other(other)) => other.to_string(),
            Some(other) => other.to_string(),
            None => format!("it closed the connection: {WITHOUT}"),
        };
        OpenFailure::new(FailureReason::Tls, &format!("the TLS handshake with {address} failed: {why}"))
    }
}

/// Reports to the edge whether the service was reached. Returns the two ends of the relay if it was, and what lives as
/// long as the relay.
async fn answer<S, G>(stream: IncomingStream, connected: Result<(S, G), OpenFailure>) -> Option<(TunnelStream, S, G)> {
    match connected {
        Ok((origin, guard)) => match stream.opened_later() {
            Ok(tunnel) => return Some((tunnel, origin, guard)),
            Err(error) => debug!(%error, "a stream ended early"),
        },
        Err(failure) => return refuse(stream, failure).await,
    }
    None
}

/// Reports to the edge that the service was not reached.
async fn refuse<T>(stream: IncomingStream, failure: OpenFailure) -> Option<T> {
    debug!(%failure, "the service could not be reached");
    stream.failed(failure).await;
    None
}

/// Relays the stream once the service is reached.
fn carry<S: RelayEnd + Send, G: Send>(
    target: Arc<OriginTarget>,
    tap: Option<Box<Tap>>,
    reaching: impl Future<Output = Option<(TunnelStream, S, G)>> + Send,
) -> impl Future<Output = ()> + Send {
    let reaching = Box::pin(reaching);
    async move {
        let Some((tunnel, origin, _guard)) = reaching.await else { return };
        let relayed = match tap {
            None => relay(tunnel, origin, &target.stalls, None).await,
            Some(tap) => Box::pin(relay_copied(tunnel, origin, &target.stalls, *tap)).await,
        };
        if let Err(error) = relayed {
            debug!(%error, "a stream ended early");
        }
    }
}

/// Relays the stream with copies for the inspector.
async fn relay_copied<S: RelayEnd + Send>(
    tunnel: TunnelStream,
    origin: S,
    stalls: &Stalls,
    tap: Tap,
) -> io::Result<()> {
    let Tap { client, service, mut end } = tap;
    let relayed = relay(tunnel, TappedOrigin::new(origin, service), stalls, Some(Box::new(client))).await;
    end.reason = relayed.as_ref().err().map(ToString::to_string);
    relayed
}

/// One sentence for the owner of the service, who reads it in an error page or a log.
fn why_not_connected(error: &io::Error, address: &OriginAddr) -> OpenFailure {
    let (reason, text) = match error.kind() {
        io::ErrorKind::ConnectionRefused => (
            FailureReason::Refused,
            format!("nothing listens on {address}: start the service, or choose another one with --port and --host"),
        ),
        io::ErrorKind::TimedOut => (FailureReason::TimedOut, error.to_string()),
        io::ErrorKind::NotFound => (FailureReason::Unresolved, format!("the host {:?} has no address", address.host)),
        _ => (FailureReason::Other, error.to_string()),
    };
    OpenFailure::new(reason, &text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_failures_are_reported_at_once_and_then_rarely() {
        let (limit, start) = (ErrorLogLimit::default(), Instant::now());
        let is_due = |text: &str, seconds| limit.is_due(text, start + Duration::from_secs(seconds));
        assert!(is_due("no TLS", 0));
        assert!(!is_due("no TLS", 29) && is_due("no TLS", 30) && !is_due("no TLS", 59));
        assert!(!is_due("not trusted", 31) && is_due("not trusted", 32));
        assert!(!is_due("no TLS", 33) && is_due("no TLS", 34), "two that take turns are bounded too");
    }

    #[test]
    fn a_failure_names_the_service_and_the_way_out() {
        let address = OriginAddr { host: "localhost".into(), port: 8000 };
        let refused = why_not_connected(&io::ErrorKind::ConnectionRefused.into(), &address);
        assert_eq!(refused.reason, FailureReason::Refused);
        assert_eq!(
            refused.message,
            "nothing listens on localhost:8000: start the service, or choose another one with --port and --host"
        );
        assert_eq!(why_not_connected(&io::ErrorKind::TimedOut.into(), &address).reason, FailureReason::TimedOut);
        assert_eq!(why_not_connected(&io::ErrorKind::NotFound.into(), &address).reason, FailureReason::Unresolved);
    }
}
