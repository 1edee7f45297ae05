//! Connects to the edge: which transport carries the tunnels, and which comes next if the first is blocked.
//!
//! By default the connector tries TLS with the tunnel's ALPN, then a WebSocket, then QUIC; with links, first QUIC over
//! all of them. It stays with the transport that worked. After [`REMEMBERED`] a new session begins with the first
//! choice again.

mod links;
mod multipath;

use std::{fmt, io, net::SocketAddr, str::FromStr, sync::Arc, time::Duration};

use parking_lot::Mutex;
use rustls::{AlertDescription, ClientConfig};
use sallyport_model::LinkReport;
use sallyport_net::{Congestion, Outbound, TlsFailure};
use sallyport_tunnel::{
    BoxFuture, BoxedCarrier, CONTROL_NOTSENT_BYTES, Dial, EdgePlace,
    carrier::{
        quic::{QuicCarrier, QuicConnection},
        websocket::WebSocketCarrier,
    },
};
use sallyport_wire::ALPN;
use tokio::{net::TcpStream, task::JoinSet, time::Instant};

pub use self::links::{EdgePaths, Links};
use crate::{
    gauge::Gauge,
    link_report::{KnownDevice, of_path, totals_of},
    services::Services,
};

/// How long a TCP connection to the edge may take, and as long again its TLS handshake; less if there are other
/// transports to try.
const EDGE_CONNECT_TIME: Duration = Duration::from_secs(10);
const HANDSHAKE_TIME_OF_SEVERAL: Duration = Duration::from_secs(5);
/// How long the WebSocket handshake may take after TLS.
const WEBSOCKET_TIME: Duration = Duration::from_secs(10);
/// How long a QUIC connection may take.
const QUIC_TIME: Duration = Duration::from_secs(5);
/// How many addresses of the edge are tried over QUIC, and after how long without an answer the next one is tried
/// beside it.
const MAX_QUIC_ADDRESSES: usize = 4;
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);
/// How long the close frame of a stopping connector may take.
const FAREWELL_TIME: Duration = Duration::from_millis(500);
/// After how long a transport is tried again that failed in an unclear way. An edge that stops breaks a connection, and
/// refuses the next one.
const SECOND_LOOK_AFTER: Duration = Duration::from_millis(500);
/// For how long a transport other than the first choice is tried first.
const REMEMBERED: Duration = Duration::from_hours(1);

/// After how many short sessions in a row another transport is tried: some networks let a handshake through and break
/// the connection later.
const MAX_SHORT_SESSIONS: u32 = 3;
/// Shorter sessions count. Longer than the edge's default keepalive needs to notice a broken path.
const SHORT_SESSION: Duration = Duration::from_secs(60);

/// What carries tunnels to the edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transport {
    /// TLS over TCP, with our ALPN.
    Tcp,
    /// WebSocket over TLS over TCP, which looks like the web's.
    WebSocket,
    /// QUIC, over UDP.
    Quic,
    /// QUIC over an association of paths, one by each link of the machine.
    Multipath,
}

impl Transport {
    /// The word for it, as the command line and the logs have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::WebSocket => "websocket",
            Self::Quic => "quic",
            Self::Multipath => "multipath",
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
#[error("expected auto, tcp, websocket, quic or multipath")]
pub struct UnknownTransport;

impl FromStr for TransportChoice {
    type Err = UnknownTransport;

    fn from_str(text: &str) -> Result<Self, UnknownTransport> {
        match text {
            "auto" => Ok(Self::Auto),
            "tcp" => Ok(Self::Only(Transport::Tcp)),
            "websocket" => Ok(Self::Only(Transport::WebSocket)),
            "quic" => Ok(Self::Only(Transport::Quic)),
            "multipath" => Ok(Self::Only(Transport::Multipath)),
            _ => Err(UnknownTransport),
        }
    }
}

impl TransportChoice {
    /// The transports to try in this order, if none is known to work.
    fn candidates(self, has_links: bool) -> Vec<Transport> {
        let by_one_link = [Transport::Tcp, Transport::WebSocket, Transport::Quic];
        match self {
            Self::Auto if has_links => [&[Transport::Multipath][..], &by_one_link].concat(),
            Self::Auto => by_one_link.to_vec(),
            Self::Only(transport) => vec![transport],
        }
    }
}

/// Dials one edge.
pub(crate) struct Edge {
    dialer: Arc<EdgeDialer>,
}

/// The addresses of the edge, and how to reach them.
#[derive(Clone)]
pub(crate) struct EdgeAddress {
    /// Its host, which its certificate must name.
    pub(crate) host: String,
    /// Its port.
    pub(crate) port: u16,
    /// Its addresses, if known; otherwise the name is resolved.
    pub(crate) addresses: Vec<SocketAddr>,
    /// Its port for QUIC, if known. The TCP port's number is tried too, because a port mapping may lead from there.
    pub(crate) quic_port: Option<u16>,
    /// Name and version of the program.
    pub(crate) agent: String,
    /// Which certificates are trusted.
    pub(crate) tls: Arc<ClientConfig>,
    /// How connections leave this machine.
    pub(crate) outbound: Outbound,
    /// Which transport is configured.
    pub(crate) choice: TransportChoice,
    /// Whether links are configured, so that all of them are tried at once by default.
    pub(crate) has_links: bool,
    /// The links of a connection over several.
    pub(crate) links: Links,
    /// The services, whose tunnels' credentials open such a connection.
    pub(crate) services: Services,
}

struct EdgeDialer {
    address: EdgeAddress,
    /// TLS with the tunnel's ALPN.
    native: Arc<ClientConfig>,
    /// TLS with the ALPN of HTTP.
    http: Arc<ClientConfig>,
    used: Mutex<Used>,
    /// The edge's address in this session. Legs go there too: another address may be another edge's, and each
    /// resolution of the name takes a thread.
    session_at: Mutex<Option<SocketAddr>>,
    /// The QUIC connection of the last session over QUIC, by one link or several.
    quic: Mutex<Option<QuicConnection>>,
    /// What the connections to the edge have moved, and by which device.
    gauge: Arc<Gauge>,
    device: KnownDevice,
}

/// What a carrier is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// A new session.
    Control,
    /// A leg of the current session.
    Leg,
    /// The datagrams of the current session.
    Datagrams,
}

/// The transport of recent sessions, and since when it is used.
#[derive(Debug, Clone, Copy)]
struct Used {
    transport: Transport,
    since: Instant,
    /// How many short sessions there were in a row.
    short_sessions: u32,
}

impl Used {
    fn new(transport: Transport) -> Self {
        Self { transport, since: Instant::now(), short_sessions: 0 }
    }
}

/// A dial that failed.
struct Failed {
    error: io::Error,
    verdict: Verdict,
}

/// What the failure of a dial means for its transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// Another transport would fail as well.
    Unreachable,
    /// The network blocks this transport.
    Blocked,
    /// Blocked, or the edge stopped just then.
    Unclear,
    /// The edge does not accept the tunnels. It says so to a session over any transport.
    Refused,
}

impl Edge {
    /// The edge at this address.
    pub(crate) fn new(address: EdgeAddress) -> Self {
        let with = |alpn: &[u8]| {
            let mut config = (*address.tls).clone();
            config.alpn_protocols = vec![alpn.to_vec()];
            config
        };
        let first = address.choice.candidates(address.has_links).first().copied().unwrap_or(Transport::Tcp);
        let used = Mutex::new(Used::new(first));
        let mut native = with(ALPN);
        // Legs are idle for long: their records are handled without buffers.
        native.enable_secret_extraction = true;
        let (native, http) = (Arc::new(native), Arc::new(with(b"http/1.1")));
        let (quic, session_at, gauge, device) = Default::default();
        Self { dialer: Arc::new(EdgeDialer { native, http, address, used, quic, session_at, gauge, device }) }
    }
}

impl Edge {
    /// Another edge of the same installation and name, over the transport that works here.
    fn beside(&self, place: &EdgePlace) -> Option<Self> {
        let port = place.addresses.first()?.port();
        let address =
            EdgeAddress { port, quic_port: None, addresses: place.addresses.clone(), ..self.dialer.address.clone() };
        let other = Self::new(address);
        other.dialer.use_from_now_on(self.dialer.used().transport);
        Some(other)
    }

    /// Closes the QUIC connection.
    pub(crate) async fn close(&self) {
        let connection = self.dialer.quic.lock().take();
        if let Some(connection) = connection {
            let _ = tokio::time::timeout(FAREWELL_TIME, connection.close()).await;
        }
    }
}

impl EdgeDialer {
    fn used(&self) -> Used {
        *self.used.lock()
    }

    fn use_from_now_on(&self, transport: Transport) {
        let mut used = self.used.lock();
        if used.transport != transport {
            *used = Used::new(transport);
        }
    }

    /// The transports to try.
    fn candidates(&self) -> Vec<Transport> {
        let EdgeAddress { choice, has_links, outbound, .. } = &self.address;
        let mut candidates = choice.candidates(*has_links);
        if *choice == TransportChoice::Auto && outbound.proxy.is_some() {
            // Proxies do not carry UDP.
            candidates.retain(|transport| !matches!(transport, Transport::Quic | Transport::Multipath));
        }
        candidates
    }

    /// The transports to try for a new session, in this order.
    fn order(&self) -> Vec<Transport> {
        let mut order = self.candidates();
        let used = self.used();
        if used.since.elapsed() < REMEMBERED {
            order.sort_by_key(|transport| *transport != used.transport);
        }
        order
    }

    /// Records a session that was lost after this time. Returns a message if the next transport is tried because of
    /// short sessions.
    fn lost(&self, after: Duration) -> Option<String> {
        let candidates = self.candidates();
        let mut used = self.used.lock();
        used.short_sessions = if after < SHORT_SESSION { used.short_sessions + 1 } else { 0 };
        if used.short_sessions < MAX_SHORT_SESSIONS {
            return None;
        }
        let former = used.transport;
        let behind = candidates.iter().skip_while(|transport| **transport != former).skip(1);
        let next = *behind.chain(&candidates).find(|transport| **transport != former)?;
        *used = Used::new(next);
        Some(format!(
            "{MAX_SHORT_SESSIONS} sessions over {former} were lost within {} seconds of their beginning, so {next} is \
             tried",
            SHORT_SESSION.as_secs()
        ))
    }

    async fn dial_control(&self) -> io::Result<BoxedCarrier> {
        let mut blocked: Vec<(Transport, io::Error)> = Vec::new();
        for transport in self.order() {
            let mut dialed = self.dial(transport, Purpose::Control).await;
            if dialed.as_ref().is_err_and(|failed| failed.verdict == Verdict::Unclear) {
                tokio::time::sleep(SECOND_LOOK_AFTER).await;
                dialed = self.dial(transport, Purpose::Control).await;
            }
            match dialed {
                Ok(carrier) => {
                    self.use_from_now_on(transport);
                    return Ok(carrier);
                }
                Err(failed) if failed.verdict == Verdict::Refused => {
                    // The session learns of the refusal when it attaches its tunnels.
                    let carrier = self.dial(Transport::Tcp, Purpose::Control).await.map_err(|failed| failed.error)?;
                    self.use_from_now_on(Transport::Tcp);
                    return Ok(carrier);
                }
                Err(failed) if failed.verdict != Verdict::Unreachable => {
                    tracing::debug!(%transport, error = %failed.error, "a transport is blocked");
                    blocked.push((transport, failed.error));
                }
                Err(failed) => {
                    // An edge that was away for a moment has lost its sessions for that reason.
                    self.used.lock().short_sessions = 0;
                    return Err(failed.error);
                }
            }
        }
        Err(nothing_gets_through(blocked))
    }

    async fn dial(&self, transport: Transport, purpose: Purpose) -> Result<BoxedCarrier, Failed> {
        match transport {
            Transport::Tcp => {
                let EdgeAddress { host, port, .. } = &self.address;
                let tcp = self.gauge.wrap(self.tcp(purpose).await?);
                let started = sallyport_net::start_unbuffered_tls(
                    tcp,
                    host,
                    *port,
                    host,
                    self.native.clone(),
                    self.handshake_time(),
                );
                let (stream, agreed) = started.await.map_err(failed)?;
                if agreed.as_deref() != Some(ALPN) {
                    let text = format!("{host}:{port} takes no tunnels: is it a Sallyport edge?");
                    let error = io::Error::new(io::ErrorKind::Unsupported, text);
                    return Err(Failed { error, verdict: Verdict::Blocked });
                }
                Ok(Box::new(stream))
            }
            Transport::WebSocket => {
                let EdgeAddress { host, port, agent, .. } = &self.address;
                let tcp = self.gauge.wrap(self.tcp(purpose).await?);
                let started =
                    sallyport_net::start_tls(tcp, host, *port, host, self.http.clone(), self.handshake_time());
                let stream = started.await.map_err(failed)?;
                let asking = WebSocketCarrier::request(stream, host, *port, agent);
                let error = match tokio::time::timeout(WEBSOCKET_TIME, asking).await {
                    Ok(Ok(carrier)) => return Ok(Box::new(carrier)),
                    Ok(Err(error)) => error,
                    Err(_) => io::Error::new(io::ErrorKind::TimedOut, "the edge did not answer in time"),
                };
                Err(Failed { error, verdict: Verdict::Blocked })
            }
            Transport::Quic | Transport::Multipath => {
                let blocked = |error| Failed { error, verdict: Verdict::Blocked };
                let carrier = match (purpose, transport) {
                    (Purpose::Leg | Purpose::Datagrams, _) => self.quic_carrier().await.map_err(blocked)?,
                    (Purpose::Control, Transport::Multipath) => self.new_multipath().await?,
                    (Purpose::Control, _) => self.new_quic().await.map_err(blocked)?,
                };
                Ok(Box::new(carrier))
            }
        }
    }

    /// The first carrier of a new QUIC connection.
    async fn new_quic(&self) -> io::Result<QuicCarrier> {
        let EdgeAddress { host, port, addresses: known_addresses, quic_port, outbound, .. } = &self.address;
        if let Some(proxy) = &outbound.proxy {
            let text = format!("QUIC does not go through the proxy {proxy}: choose another transport, or --proxy none");
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        let connecting = async {
            let mut attempts = JoinSet::new();
            let mut addresses = Vec::new();
            let at = match known_addresses.as_slice() {
                [] => sallyport_net::resolve(host, *port).await?,
                known => known.to_vec(),
            };
            for address in at.into_iter().take(MAX_QUIC_ADDRESSES) {
                let known = quic_port.filter(|quic_port| quic_port != port);
                addresses.extend(known.map(|port| SocketAddr::new(address.ip(), port)));
                addresses.push(address);
            }
            for (number, address) in (0..).zip(addresses) {
                let (host, tls, congestion) = (host.clone(), self.native.clone(), outbound.congestion.clone());
                attempts.spawn(async move {
                    tokio::time::sleep(ATTEMPT_DELAY * number).await;
                    QuicConnection::connect(address, &host, &tls, congestion.as_ref().map(Congestion::name)).await
                });
            }
            let mut last = io::Error::from(io::ErrorKind::NotFound);
            while let Some(attempt) = attempts.join_next().await {
                match attempt.map_err(io::Error::other).flatten() {
                    Ok(connection) => return Ok(connection),
                    Err(error) => last = error,
                }
            }
            Err(last)
        };
        let Ok(connected) = tokio::time::timeout(QUIC_TIME, connecting).await else {
            let text = format!("{host}:{port} does not answer over UDP: does the edge take QUIC (--listen-quic)?");
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        };
        let connection = connected?;
        let carrier = connection.open_carrier().await?;
        let former = self.quic.lock().replace(connection);
        if let Some(former) = former {
            self.gauge.record_past(totals_of(&former.path()));
        }
        Ok(carrier)
    }

    /// Another carrier of the current QUIC connection.
    async fn quic_carrier(&self) -> io::Result<QuicCarrier> {
        let connection = self.quic.lock().clone();
        match connection {
            Some(connection) => connection.open_carrier().await,
            None => Err(io::Error::new(io::ErrorKind::NotConnected, "there is no QUIC connection")),
        }
    }

    /// The links of the connections to the edge: the one that the kernel has chosen, or all that carry an association.
    async fn links(&self) -> Vec<LinkReport> {
        let report = match self.used().transport {
            Transport::Tcp | Transport::WebSocket => match self.gauge.read() {
                Some(reading) => self.device.over_tcp(reading).await,
                None => None,
            },
            Transport::Quic => {
                let open = self.quic.lock().clone();
                match open {
                    Some(open) => {
                        let edge = open.remote_address();
                        self.device.over_quic(edge, open.path(), self.gauge.past()).await
                    }
                    None => None,
                }
            }
            Transport::Multipath => {
                let edge = self.quic.lock().as_ref().map(QuicConnection::remote_address);
                let connections = self.address.links.paths().into_iter().filter(|of| Some(of.edge) == edge);
                return connections.flat_map(|of| of.paths).filter_map(|path| of_path(&path)).collect();
            }
        };
        report.into_iter().collect()
    }

    /// The edge's address in this session, if known.
    fn session_at(&self) -> Option<SocketAddr> {
        *self.session_at.lock()
    }

    /// Sets the edge's address in this session. Not set behind a proxy, and not for link-local addresses, which need an
    /// interface.
    fn set_session_at(&self, peer: Option<SocketAddr>) {
        let is_whole = |peer: &SocketAddr| !matches!(peer, SocketAddr::V6(six) if six.scope_id() != 0);
        let known = peer.filter(|peer| self.address.outbound.proxy.is_none() && is_whole(peer));
        *self.session_at.lock() = known;
    }

    /// Connects to the first of these addresses that accepts.
    async fn connect_to(&self, addresses: &[SocketAddr]) -> io::Result<TcpStream> {
        let time = EDGE_CONNECT_TIME / u32::try_from(addresses.len().max(1)).unwrap_or(1);
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for at in addresses {
            match sallyport_net::connect_tcp_by(&self.address.outbound, &at.ip().to_string(), at.port(), time).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// How long a TLS handshake may take.
    fn handshake_time(&self) -> Duration {
        match self.address.choice {
            TransportChoice::Auto => HANDSHAKE_TIME_OF_SEVERAL,
            TransportChoice::Only(_) => EDGE_CONNECT_TIME,
        }
    }

    /// A TCP connection to the edge.
    async fn tcp(&self, purpose: Purpose) -> Result<TcpStream, Failed> {
        let EdgeAddress { host, port, outbound, .. } = &self.address;
        let known = if purpose == Purpose::Control { None } else { self.session_at() };
        // All transports over TCP need this connection, so no other is tried.
        let unreachable = |error| Failed { error, verdict: Verdict::Unreachable };
        let tcp = match (known, self.address.addresses.as_slice()) {
            (Some(known), _) => self.connect_to(&[known]).await,
            (None, []) => sallyport_net::connect_tcp_by(outbound, host, *port, EDGE_CONNECT_TIME).await,
            (None, addresses) => self.connect_to(addresses).await,
        };
        let tcp = tcp.map_err(unreachable)?;
        if purpose == Purpose::Control {
            self.set_session_at(tcp.peer_addr().ok());
        }
        if purpose != Purpose::Leg {
            // Older kernels do not have the option with multipath TCP; the connection works without.
            let _ = sallyport_net::set_notsent_lowat(&tcp, CONTROL_NOTSENT_BYTES);
        }
        Ok(tcp)
    }
}

/// The failure of a TLS handshake.
fn failed(error: io::Error) -> Failed {
    Failed { verdict: verdict(&error), error }
}

/// What the failure of a handshake means. A certificate that is not trusted will not be trusted over another transport
/// either.
fn verdict(error: &io::Error) -> Verdict {
    if error.kind() == io::ErrorKind::TimedOut {
        return Verdict::Blocked;
    }
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
    let failures: Vec<String> = blocked.iter().map(|(transport, error)| format!("by {transport}: {error}")).collect();
    io::Error::new(kind, failures.join("; "))
}

impl Dial for Edge {
    fn dial(&self) -> BoxFuture<'static, io::Result<BoxedCarrier>> {
        let dialer = self.dialer.clone();
        Box::pin(async move { dialer.dial(dialer.used().transport, Purpose::Leg).await.map_err(|failed| failed.error) })
    }

    fn dial_control(&self) -> BoxFuture<'static, io::Result<BoxedCarrier>> {
        let dialer = self.dialer.clone();
        Box::pin(async move { dialer.dial_control().await })
    }

    fn dial_datagrams(&self) -> BoxFuture<'static, io::Result<BoxedCarrier>> {
        let dialer = self.dialer.clone();
        Box::pin(async move {
            dialer.dial(dialer.used().transport, Purpose::Datagrams).await.map_err(|failed| failed.error)
        })
    }

    fn other(&self, edge: &EdgePlace) -> Option<Arc<dyn Dial>> {
        Some(Arc::new(self.beside(edge)?))
    }

    fn transport(&self) -> &'static str {
        self.dialer.used().transport.name()
    }

    fn links(&self) -> BoxFuture<'static, Vec<LinkReport>> {
        let dialer = self.dialer.clone();
        Box::pin(async move { dialer.links().await })
    }

    fn lost(&self, after: Duration) -> Option<String> {
        self.dialer.lost(after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_the_command_line_are_the_names_of_the_transports() {
        for transport in TransportChoice::Auto.candidates(true) {
            assert_eq!(transport.name().parse(), Ok(TransportChoice::Only(transport)));
        }
        assert_eq!("auto".parse(), Ok(TransportChoice::Auto));
        assert!("TCP".parse::<TransportChoice>().is_err());
    }

    fn edge(choice: TransportChoice) -> Arc<EdgeDialer> {
        let roots = rustls::RootCertStore::empty();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let address = EdgeAddress {
            host: "127.0.0.1".into(),
            port: 1,
            addresses: Vec::new(),
            quic_port: None,
            agent: "test".into(),
            tls: Arc::new(tls),
            outbound: Outbound::default(),
            choice,
            has_links: false,
            links: Links::new(None),
            services: Services::new(tokio::sync::mpsc::channel(1).0, None).0,
        };
        Edge::new(address).dialer
    }

    #[test]
    fn links_are_used_at_once_by_default_and_one_of_them_after_a_failure() {
        let auto = TransportChoice::Auto.candidates(true);
        assert_eq!(auto, [Transport::Multipath, Transport::Tcp, Transport::WebSocket, Transport::Quic]);
        assert_eq!(TransportChoice::Only(Transport::Tcp).candidates(true), [Transport::Tcp]);
    }

    #[test]
    fn a_session_begins_with_what_worked_last() {
        let edge = edge(TransportChoice::Auto);
        assert_eq!(edge.order(), [Transport::Tcp, Transport::WebSocket, Transport::Quic]);
        edge.use_from_now_on(Transport::WebSocket);
        assert_eq!(edge.order(), [Transport::WebSocket, Transport::Tcp, Transport::Quic]);
    }

    #[tokio::test]
    async fn a_transport_with_short_sessions_is_replaced() {
        let (soon, later) = (Duration::from_secs(2), SHORT_SESSION);
        let edge = edge(TransportChoice::Auto);
        for lived in [soon, soon, later, soon, soon] {
            assert_eq!(edge.lost(lived), None, "not three in a row");
        }
        assert!(edge.dial_control().await.is_err(), "nothing listens there: the edge is away");
        assert_eq!((edge.lost(soon), edge.lost(soon)), (None, None));
        let message = edge.lost(soon).unwrap();
        assert!(
            message.starts_with("3 sessions over tcp were lost") && message.ends_with("so websocket is tried"),
            "{message}"
        );
        assert_eq!(edge.order(), [Transport::WebSocket, Transport::Tcp, Transport::Quic]);
        edge.use_from_now_on(Transport::WebSocket);
        let message: Vec<_> = (0..3).filter_map(|_| edge.lost(soon)).collect();
        assert!(message.len() == 1 && message[0].ends_with("so quic is tried"), "{message:?}");
        edge.use_from_now_on(Transport::Quic);
        let message: Vec<_> = (0..3).filter_map(|_| edge.lost(soon)).collect();
        assert!(message.len() == 1 && message[0].ends_with("so tcp is tried"), "{message:?}");
        let only = self::edge(TransportChoice::Only(Transport::Tcp));
        assert!((0..9).all(|_| only.lost(soon).is_none()), "no other transport was chosen");
    }

    #[test]
    fn every_failure_is_reported_when_no_transport_connects() {
        let failed = |text: &str| io::Error::new(io::ErrorKind::Unsupported, text.to_owned());
        let both = vec![(Transport::Tcp, failed("no ALPN")), (Transport::WebSocket, failed("status 403"))];
        assert_eq!(nothing_gets_through(both).to_string(), "by tcp: no ALPN; by websocket: status 403");
        let one = vec![(Transport::Tcp, failed("no ALPN"))];
        assert_eq!(nothing_gets_through(one).to_string(), "no ALPN");
    }
}
