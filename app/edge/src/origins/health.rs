//! Active health checks: one task for each checked origin, which sends requests through the same transport as clients'
//! requests.

use std::{
    future::poll_fn,
    net::{Ipv4Addr, SocketAddr},
    pin::Pin,
    sync::{Arc, Weak},
    task::Poll,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use http::{
    HeaderMap, HeaderValue, Method, Uri,
    header::{CONNECTION, HOST, USER_AGENT},
    uri::Scheme,
};
use sallyport_balance::{
    Delivery,
    health::{CheckFailure, Health, HealthCheck, HealthConfig, HealthEvent, HealthState},
};
use sallyport_bus::Directory;
use sallyport_model::{
    HealthFailure, HealthFailureCode, HealthRecord, HostHeader, OriginProtocol, ProxyProtocol, SocketRoute, SocketType,
};
use sallyport_net::ProxiedAddresses;
use sallyport_wire::{FailureReason, OpenFailure};
use tokio::io::{AsyncRead as _, AsyncWriteExt as _, ReadBuf};

use crate::origins::{
    http::{
        exchange::{self, Failure, OriginConnection, OriginRequest, OriginTimeouts},
        forwarding,
    },
    origin::{ConnectError, Origin},
    pool::SocketPool,
    transport::OriginStream,
};

/// How many checks run at once, over all origins; others wait.
pub(crate) const MAX_CHECKS_AT_ONCE: usize = 64;
/// The `user-agent` of checks.
const AGENT: &str = concat!("sallyport-health-check/", env!("CARGO_PKG_VERSION"));
/// The PROXY protocol header for the balancer's own connections, without addresses: `UNKNOWN` in version 1, `LOCAL` in
/// version 2.
const UNKNOWN_V1: &[u8] = b"PROXY UNKNOWN\r\n";
const LOCAL_V2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20\x00\x00\x00";

/// The health check of a socket's origins.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Probe {
    config: HealthConfig,
    host: String,
    /// The configured `Host` for origins, if it differs from the socket's.
    host_header: Option<HostHeader>,
    socket_type: SocketType,
    protocol: OriginProtocol,
    proxy_protocol: ProxyProtocol,
}

impl Probe {
    /// The health check that the route configures, if any.
    pub(crate) fn of(route: &SocketRoute, domain: &str) -> Option<Self> {
        let wanted = route.settings.health_check.as_ref()?;
        let check = match &wanted.probe {
            sallyport_model::Probe::Tcp => HealthCheck::Tcp,
            sallyport_model::Probe::Http { path, status_from, status_to } => HealthCheck::Http {
                path: path.clone(),
                expected_status: format!("{status_from}-{status_to}").parse().unwrap_or_default(),
                host: None,
            },
        };
        let seconds = |seconds: u32| Duration::from_secs(u64::from(seconds));
        Some(Self {
            config: HealthConfig {
                check,
                interval: seconds(wanted.interval_seconds),
                timeout: seconds(wanted.timeout_seconds),
                healthy_threshold: wanted.healthy_threshold,
                unhealthy_threshold: wanted.unhealthy_threshold,
            },
            host: format!("{}.{domain}", route.name),
            host_header: route.settings.host_header.clone().filter(|_| route.socket_type.is_http()),
            socket_type: route.socket_type,
            protocol: route.origin_protocol,
            proxy_protocol: route.settings.proxy_protocol,
        })
    }

    /// The `Host` for this origin.
    fn host_for(&self, origin: &Origin) -> String {
        let changed =
            self.host_header.as_ref().map(|header| forwarding::origin_host(header, origin.handle(), self.socket_type));
        changed.unwrap_or_else(|| self.host.clone())
    }
}

/// The running checks of one origin, which end when dropped.
#[derive(Debug)]
pub(crate) struct Checks {
    probe: Arc<Probe>,
    task: tokio::task::AbortHandle,
}

impl Checks {
    /// Starts the checks.
    pub(crate) fn start(pool: &Arc<SocketPool>, origin: &Arc<Origin>, probe: Arc<Probe>) -> Self {
        let watch = watch(Arc::downgrade(pool), Arc::downgrade(origin), probe.clone());
        Self { probe, task: tokio::spawn(watch).abort_handle() }
    }

    /// What is checked.
    pub(crate) fn probe(&self) -> &Arc<Probe> {
        &self.probe
    }
}

impl Drop for Checks {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Checks an origin until the origin is gone.
async fn watch(pool: Weak<SocketPool>, origin: Weak<Origin>, probe: Arc<Probe>) {
    let mut state = HealthState::new(probe.config.clone(), Instant::now(), random());
    while let Some(due) = state.next_check() {
        tokio::time::sleep_until(due.into()).await;
        let (Some(pool), Some(origin)) = (pool.upgrade(), origin.upgrade()) else { return };
        if origin.has_left() {
            return;
        }
        let Ok(turn) = pool.shared().checks.acquire().await else { return };
        let opened = tokio::time::timeout(probe.config.timeout, open(&origin, &probe)).await;
        if !origin.is_up() || matches!(opened, Ok(Err(ConnectError::Tunnel(_)))) {
            // An absent or full tunnel is no evidence about its origin.
            drop(turn);
            drop((pool, origin));
            tokio::time::sleep(probe.config.interval).await;
            continue;
        }
        let Some(number) = state.check_started(Instant::now()) else { return };
        let check = async {
            match opened {
                Ok(Ok(opened)) => opened.ask(&probe, &probe.host_for(&origin)).await,
                Ok(Err(ConnectError::TimedOut)) | Err(_) => Err(Failed::timed_out(&probe)),
                Ok(Err(error)) => Err(Failed::new(CheckFailure::BadAnswer, HealthFailureCode::BadAnswer, error)),
            }
        };
        let outcome =
            tokio::time::timeout(probe.config.timeout, check).await.unwrap_or_else(|_| Err(Failed::timed_out(&probe)));
        let now = Instant::now();
        match outcome {
            Ok(()) => {
                if origin.health_state().check_passed(now) {
                    publish(&pool.shared().directory, &origin);
                }
                if let Some(event) = state.check_passed(number, now, random()) {
                    pool.checked(&origin, &probe, event, None);
                }
            }
            Err(failed) => match state.check_failed(number, failed.why, now, random()) {
                Some(event) => pool.checked(&origin, &probe, event, Some(failed.at(wall_seconds()))),
                None if state.health() == Health::Down => pool.fails_as(&origin, &probe, &failed.at(wall_seconds())),
                None => {}
            },
        }
    }
}

/// The time, in seconds since 1970 (UTC).
pub(crate) fn wall_seconds() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_secs()).unwrap_or(i64::MAX)
}

/// How a check failed.
#[derive(Debug)]
struct Failed {
    why: CheckFailure,
    code: HealthFailureCode,
    message: String,
}

impl Failed {
    fn new(why: CheckFailure, code: HealthFailureCode, message: impl ToString) -> Self {
        Self { why, code, message: message.to_string() }
    }

    fn timed_out(probe: &Probe) -> Self {
        let text = format!("no answer within {} s", probe.config.timeout.as_secs());
        Self::new(CheckFailure::TimedOut, HealthFailureCode::TimedOut, text)
    }

    /// The connector or edge that dialed the origin gives the reason.
    fn not_reached(failure: &OpenFailure) -> Self {
        let (why, code) = match failure.reason {
            FailureReason::TimedOut => (CheckFailure::TimedOut, HealthFailureCode::TimedOut),
            FailureReason::Refused => (CheckFailure::Connect, HealthFailureCode::Refused),
            FailureReason::Unresolved => (CheckFailure::Connect, HealthFailureCode::Unresolved),
            FailureReason::Tls => (CheckFailure::Connect, HealthFailureCode::Tls),
            FailureReason::Draining | FailureReason::Other => (CheckFailure::Connect, HealthFailureCode::Other),
        };
        let message = if failure.message.is_empty() { why.to_string() } else { failure.message.clone() };
        Self::new(why, code, message)
    }

    fn at(&self, now: i64) -> HealthFailure {
        HealthFailure::new(self.code, &self.message, now)
    }
}

fn random() -> u64 {
    u64::from_be_bytes(crate::util::ids::random())
}

/// A connection on which an origin is checked.
enum ProbeConnection {
    Raw(Box<OriginStream>),
    Http(OriginConnection),
}

/// The client address in checks, which have no client.
const NO_CLIENT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

async fn open(origin: &Origin, probe: &Probe) -> Result<ProbeConnection, ConnectError> {
    if probe.config.check == HealthCheck::Tcp {
        return origin
            .open_flow(ProxiedAddresses { client: NO_CLIENT, destination: NO_CLIENT }, &probe.host)
            .map(|stream| ProbeConnection::Raw(Box::new(stream)));
    }
    Ok(ProbeConnection::Http(match probe.protocol {
        OriginProtocol::Http2 => {
            OriginConnection::H2(origin.connect_h2(NO_CLIENT, &probe.host, probe.config.timeout).await?)
        }
        OriginProtocol::Auto | OriginProtocol::Http1 => {
            OriginConnection::H1 { connection: origin.connect_h1(NO_CLIENT, &probe.host, false)?, reused: false }
        }
    }))
}

impl ProbeConnection {
    async fn ask(self, probe: &Probe, host: &str) -> Result<(), Failed> {
        match (self, &probe.config.check) {
            (Self::Raw(stream), _) => ask_tcp(*stream, probe).await,
            (Self::Http(connection), HealthCheck::Http { path, expected_status, .. }) => {
                let unsent =
                    || Failed::new(CheckFailure::BadAnswer, HealthFailureCode::Other, "the check cannot be sent");
                let (target, mut headers) = request(probe, host, path).ok_or_else(unsent)?;
                let question = OriginRequest {
                    method: &Method::GET,
                    target: &target,
                    headers: &mut headers,
                    ours: None,
                    upload: None,
                    delivery: Delivery::new(true),
                };
                let timeouts = OriginTimeouts { connect: probe.config.timeout, response: probe.config.timeout };
                let (response, _carrier) =
                    exchange::exchange(connection, question, timeouts).await.map_err(|failure| why(&failure, probe))?;
                let status = response.status().as_u16();
                if expected_status.contains(status) {
                    return Ok(());
                }
                Err(Failed::new(
                    CheckFailure::Status(status),
                    HealthFailureCode::Status,
                    format!("status {status} for GET {path}"),
                ))
            }
            (Self::Http(_), _) => Ok(()),
        }
    }
}

/// Checks that the origin accepts a connection.
async fn ask_tcp(mut stream: OriginStream, probe: &Probe) -> Result<(), Failed> {
    let greeting = match probe.proxy_protocol {
        ProxyProtocol::Off => &[][..],
        ProxyProtocol::V1 => UNKNOWN_V1,
        ProxyProtocol::V2 => LOCAL_V2,
    };
    let establishment = stream.establishment();
    // An error of the write shows in the read that follows.
    let _ = stream.write_all(greeting).await;
    let _ = stream.flush().await;
    poll_fn(|cx| {
        let mut scrap = [0; 64];
        let read = Pin::new(&mut stream).poll_read(cx, &mut ReadBuf::new(&mut scrap));
        match establishment.peek() {
            Some(Ok(())) => Poll::Ready(Ok(())),
            Some(Err(failure)) => Poll::Ready(Err(Failed::not_reached(&failure))),
            None if read.is_ready() => {
                let why = CheckFailure::Connect;
                Poll::Ready(Err(Failed::new(why, HealthFailureCode::Other, why)))
            }
            None => Poll::Pending,
        }
    })
    .await?;
    // An orderly close, so that the origin logs no aborted connection.
    let _ = stream.shutdown().await;
    Ok(())
}

/// The target and the header fields of a check.
fn request(probe: &Probe, host: &str, path: &str) -> Option<(Uri, HeaderMap)> {
    let mut fields = HeaderMap::new();
    fields.insert(USER_AGENT, HeaderValue::from_static(AGENT));
    if probe.protocol == OriginProtocol::Http2 {
        let scheme = if probe.socket_type == SocketType::Https { Scheme::HTTPS } else { Scheme::HTTP };
        let uri = Uri::builder().scheme(scheme).authority(host).path_and_query(path);
        return Some((uri.build().ok()?, fields));
    }
    fields.insert(HOST, HeaderValue::from_str(host).ok()?);
    fields.insert(CONNECTION, HeaderValue::from_static("close"));
    Some((path.parse().ok()?, fields))
}

fn why(failure: &Failure, probe: &Probe) -> Failed {
    match failure {
        Failure::ConnectTimedOut { .. } | Failure::ResponseTimedOut => Failed::timed_out(probe),
        Failure::NotReached(failure) => Failed::not_reached(failure),
        Failure::NoStream(_) | Failure::TunnelLost { .. } => {
            Failed::new(CheckFailure::Connect, HealthFailureCode::Other, failure)
        }
        _ => Failed::new(CheckFailure::BadAnswer, HealthFailureCode::BadAnswer, failure),
    }
}

/// Publishes the health of the origin to other edges, control and the connector, if this edge holds its tunnel.
pub(crate) fn publish(directory: &Directory, origin: &Origin) {
    let tunnel = origin.handle().tunnel().filter(|_| origin.place().is_local && !origin.has_left());
    if let Some(tunnel) = tunnel
        && directory.finds(tunnel, || origin.health_state().found())
    {
        let (health, failure) = origin.health_state().found();
        origin.handle().log_health(&HealthRecord { tunnel, health, failure });
    }
}

/// Like [`publish`], now and again at the end of the ejection.
pub(crate) fn publish_until(directory: &Directory, origin: &Arc<Origin>, until: Instant) {
    publish(directory, origin);
    let (directory, origin) = (directory.clone(), Arc::downgrade(origin));
    tokio::spawn(async move {
        tokio::time::sleep_until(until.into()).await;
        if let Some(origin) = origin.upgrade() {
            publish(&directory, &origin);
        }
    });
}

/// Logs a change of an origin's health.
pub(crate) fn log(pool: &SocketPool, origin: &Origin, event: HealthEvent, failure: Option<&HealthFailure>) {
    let (socket, origin) = (pool.socket(), origin.handle().origin());
    match event {
        HealthEvent::Up => tracing::info!(%socket, %origin, "an origin is healthy again"),
        HealthEvent::Down { why, failures } => {
            let why = failure.map_or_else(|| why.to_string(), |failure| failure.message.clone());
            tracing::info!(%socket, %origin, why, failures, "an origin is unhealthy: it gets no new requests");
        }
    }
}
