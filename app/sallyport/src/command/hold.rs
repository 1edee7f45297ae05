//! Holds tunnels until the command is stopped: the common part of `connect` and `tunnel connect`.

use std::{fmt, path::PathBuf, time::Duration};

use clap::Args;
use sallyport_api::{ConnectEdge, ConnectTo, CreatedTunnel, Secret};
use sallyport_connector::{
    ChoiceError, ClientAffinity, Connector, ConnectorOptions, DEFAULT_REDUNDANCY, EdgePlace, Endpoint, LinkChoice,
    MAX_REDUNDANCY, OriginPool, OriginTls, Service, ServiceOrigin, Transport, TransportChoice, TunnelCredential,
};
use sallyport_model::{Capacity, OriginAddr, RegionName, SocketType, TunnelId};
use sallyport_net::{Congestion, Fingerprint, Outbound, Shutdown};
use tokio::sync::mpsc;

use crate::{
    args::{
        capacity::ServiceCapacityArgs,
        service::{ServiceAddress, ServiceArg},
    },
    context::{AGENT, Target},
    duration,
    failure::Failure,
    inspector::Inspection,
    runtime::threads,
    signals::Signals,
    view::live::Live,
};

/// How many events may wait for the terminal; further ones are omitted.
pub(super) const MAX_QUEUED_EVENTS: usize = 1_024;
/// How long running requests may take to finish after the command was stopped.
const DRAIN: Duration = Duration::from_secs(30);
/// After how long without a connection to the edge a message is printed.
pub(super) const NOT_CONNECTED_AFTER: Duration = Duration::from_secs(1);
/// How long the service may take to accept the test connection.
const LOOK_TIMEOUT: Duration = Duration::from_secs(1);

/// The private service, and its protocol.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "The service")]
pub(crate) struct OriginArgs {
    #[command(flatten)]
    service: ServiceArg,
    /// The host of the service, as this machine reaches it. Given several times, requests and connections take turns
    /// among the hosts [default: localhost]
    #[arg(long = "host", value_name = "HOST", value_parser = host)]
    hosts: Vec<String>,
    /// The root certificate that signed the certificate of a --type https service, in PEM
    #[arg(long, value_name = "FILE", conflicts_with = "origin_pin")]
    origin_ca: Option<PathBuf>,
    /// The fingerprint of the certificate of a --type https service: sha256:...
    #[arg(long, value_name = "FINGERPRINT", value_parser = origin_pin)]
    origin_pin: Option<Fingerprint>,
    /// The name that the certificate of a --type https service must have [default: the host]
    #[arg(long, value_name = "NAME")]
    origin_server_name: Option<String>,
    /// How long the service may take to accept a connection
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration::parse_positive)]
    connect_timeout: Duration,
    #[command(flatten)]
    capacity: ServiceCapacityArgs,
    #[command(flatten)]
    way: TransportArgs,
}

/// The connection to the edge.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "The connection to the edge")]
pub(crate) struct TransportArgs {
    /// The keepalive interval: an edge that is silent for so long gets a ping. Three unanswered pings end the
    /// connection
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration::parse_positive)]
    keepalive: Duration,
    /// The number of edges to hold the tunnel at, 1 to 4, in different regions where possible. An installation of one
    /// edge uses that edge
    #[arg(long, value_name = "COUNT", env = "SALLYPORT_REDUNDANCY", default_value_t = DEFAULT_REDUNDANCY)]
    #[arg(value_parser = redundancy)]
    redundancy: usize,
    /// The region of the service; edges prefer services of their own region [default: that of the first edge that
    /// answers]
    #[arg(id = "home_region", long = "region", value_name = "REGION", env = "SALLYPORT_HOME_REGION")]
    region: Option<RegionName>,
    /// The number of connections to the edge that carry one request each; 0: all requests share one connection
    #[arg(long, value_name = "COUNT", default_value_t = 512, value_parser = clap::value_parser!(u16).range(0..=4_096))]
    max_legs: u16,
    /// The transport of the tunnel: auto, tcp, websocket, quic (`up --listen-quic`) or multipath. auto tries multipath
    /// if there is a --link, then tcp, websocket and quic, until one connects
    #[arg(long, value_name = "TRANSPORT", env = "SALLYPORT_TRANSPORT", default_value = "auto")]
    pub(super) transport: TransportChoice,
    /// The congestion control of the tunnel's connections, by its name in the kernel: bbr, cubic, reno ... (bbr for
    /// lossy networks) [default: the kernel's]
    #[arg(long, value_name = "NAME", env = "SALLYPORT_CONGESTION")]
    congestion: Option<Congestion>,
    /// Use several networks of this machine at once, by Multipath TCP, when the edge accepts it (`up --mptcp`)
    #[arg(long, env = "SALLYPORT_MPTCP")]
    mptcp: bool,
    /// A link that carries the tunnel, together with the other ones (`help transports`): a device or an address of this
    /// machine, or auto for all. Further words after a comma: metered, standby, weight=N [default with --transport
    /// multipath: auto]
    #[arg(long = "link", value_name = "LINK", value_parser = link)]
    links: Vec<String>,
}

impl TransportArgs {
    /// The links that are named; `None` if none is.
    ///
    /// # Errors
    /// They do not fit each other, or the transport uses one link.
    pub(super) fn links(&self) -> Result<Option<LinkChoice>, Failure> {
        if self.links.is_empty() {
            return Ok(None);
        }
        if let TransportChoice::Only(transport) = self.transport
            && transport != Transport::Multipath
        {
            let text = format!("--link is for several links at once, and --transport {transport} uses one");
            return Err(Failure::usage(text).next("use --transport multipath, or leave --link out"));
        }
        LinkChoice::parse(&self.links).map(Some).map_err(|error| Failure::usage(format!("--link: {error}")))
    }
}

/// A service with its settings.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    /// Its type.
    pub(super) socket_type: SocketType,
    /// Its address, the first one of several.
    pub(super) address: OriginAddr,
    /// Its other addresses.
    others: Vec<OriginAddr>,
    tls: Option<OriginTls>,
    connect_timeout: Duration,
    /// What it can carry.
    pub(super) capacity: Option<Capacity>,
    way: TransportArgs,
}

/// A tunnel with its credential.
pub(crate) struct Credential {
    /// The tunnel.
    pub(crate) tunnel: TunnelId,
    /// The credential.
    pub(crate) credential: Secret,
    /// The address of the edge.
    pub(crate) connect: ConnectTo,
}

impl OriginArgs {
    /// What the service can carry, as the options say.
    pub(crate) fn capacity(&self) -> &ServiceCapacityArgs {
        &self.capacity
    }

    /// The service as it was named.
    pub(crate) fn service(&self) -> &ServiceAddress {
        &self.service.0
    }

    /// The address of the service.
    pub(crate) fn address(&self) -> OriginAddr {
        self.address_of(self.service())
    }

    /// The address of another service, with this one's host as the default.
    pub(crate) fn address_of(&self, service: &ServiceAddress) -> OriginAddr {
        let host = service.host.clone().or_else(|| self.hosts.first().cloned());
        OriginAddr { host: host.unwrap_or_else(|| "localhost".to_owned()), port: service.port }
    }

    /// The addresses of another service besides its first one.
    fn other_addresses_of(&self, service: &ServiceAddress) -> Vec<OriginAddr> {
        let hosts = if service.host.is_none() { self.hosts.get(1..) } else { None };
        let at = |host: &String| OriginAddr { host: host.clone(), port: service.port };
        hosts.unwrap_or_default().iter().map(at).collect()
    }

    /// The type of a new socket, from the option `given` and from the scheme of the service's address.
    ///
    /// # Errors
    /// The two differ.
    pub(crate) fn socket_type(&self, given: Option<SocketType>) -> Result<SocketType, Failure> {
        let socket_type = given.or(self.service().scheme).unwrap_or(SocketType::Http);
        check_scheme(self.service(), socket_type)?;
        Ok(socket_type)
    }

    /// The service, with the protocol of the socket's type.
    ///
    /// # Errors
    /// Options for HTTPS services were given for another type, or the scheme of the address does not fit.
    pub(crate) fn prepare(self, socket_type: SocketType) -> anyhow::Result<Origin> {
        if !self.hosts.is_empty() && self.service().host.is_some() {
            let failure = Failure::usage("the service's address has a host already");
            return Err(failure.next("leave out --host, or name the service by its port").into());
        }
        check_scheme(self.service(), socket_type)?;
        let (address, others) = (self.address(), self.other_addresses_of(self.service()));
        pool(&address, &others)?;
        self.way.links()?;
        let tls = match socket_type {
            SocketType::Https => {
                let tls = match (self.origin_ca, self.origin_pin) {
                    (Some(ca), _) => OriginTls::ca(ca),
                    (None, Some(pin)) => OriginTls::pinned(pin),
                    (None, None) => OriginTls::system(),
                };
                Some(match self.origin_server_name {
                    Some(name) => tls.with_server_name(name),
                    None => tls,
                })
            }
            _ => {
                if self.origin_ca.is_some() || self.origin_pin.is_some() || self.origin_server_name.is_some() {
                    return Err(Failure::usage(
                        "--origin-ca, --origin-pin and --origin-server-name are for HTTPS services",
                    )
                    .next("add --type https, or make the socket with it")
                    .into());
                }
                None
            }
        };
        let (connect_timeout, capacity) = (self.connect_timeout, self.capacity.get()?);
        Ok(Origin { socket_type, address, others, tls, connect_timeout, capacity, way: self.way })
    }
}

/// The pool of these addresses; `None` for a single one.
fn pool(address: &OriginAddr, others: &[OriginAddr]) -> Result<Option<OriginPool>, Failure> {
    if others.is_empty() {
        return Ok(None);
    }
    let all = std::iter::once(address).chain(others).cloned().map(Endpoint::ready).collect();
    let pool = OriginPool::new(all, &ClientAffinity::None).map_err(|error| Failure::usage(error.to_string()))?;
    Ok(Some(pool))
}

/// Checks that the scheme of the service fits a socket of this type.
fn check_scheme(service: &ServiceAddress, socket_type: SocketType) -> Result<(), Failure> {
    let Some(scheme) = service.scheme else { return Ok(()) };
    // The edge terminates TLS for tls sockets, so the service gets plain TCP.
    if scheme == socket_type || (scheme == SocketType::Tcp && socket_type == SocketType::Tls) {
        return Ok(());
    }
    let text = format!("the service's address begins with {scheme}://, and the socket is of type {socket_type}");
    Err(Failure::usage(text)
        .next(format!("use --type {scheme}, which `socket edit` takes too, or leave {scheme}:// out")))
}

impl Origin {
    /// Another service with the same settings.
    ///
    /// # Errors
    /// The scheme of its address does not fit.
    pub(super) fn beside(&self, args: &OriginArgs, service: &ServiceAddress) -> Result<Self, Failure> {
        check_scheme(service, self.socket_type)?;
        Ok(Self { address: args.address_of(service), others: args.other_addresses_of(service), ..self.clone() })
    }

    /// The service behind this tunnel.
    pub(super) fn served_by(&self, tunnel: TunnelId, credential: &Secret) -> Service {
        let credential = credential.expose().to_owned();
        Service {
            tunnel: TunnelCredential {
                tunnel,
                credential,
                request_log: true,
                origin: Some(self.address.clone()),
                spreads: false,
            },
            origin: self.origin(),
            origin_tls: self.tls.clone(),
            connect_timeout: self.connect_timeout,
        }
    }

    fn origin(&self) -> ServiceOrigin {
        match pool(&self.address, &self.others) {
            Ok(Some(pool)) => pool.into(),
            // The number was checked when the options were read.
            Ok(None) | Err(_) => self.address.clone().into(),
        }
    }

    /// Why no connection to the service is possible, at none of its addresses, if so. UDP services are not checked, because that would take a
    /// datagram.
    pub(super) async fn why_missing(&self) -> Option<String> {
        if self.socket_type == SocketType::Udp {
            return None;
        }
        let mut reason = None;
        for OriginAddr { host, port } in std::iter::once(&self.address).chain(&self.others) {
            match sallyport_net::connect_tcp(host, *port, LOOK_TIMEOUT).await {
                Ok(_) => return None,
                Err(error) => reason = reason.or(Some(error.to_string())),
            }
        }
        reason
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.socket_type, self.address)?;
        self.others.iter().try_for_each(|other| write!(f, ", {other}"))
    }
}

impl From<CreatedTunnel> for Credential {
    fn from(tunnel: CreatedTunnel) -> Self {
        Self { tunnel: tunnel.details.id, credential: tunnel.credential, connect: tunnel.connect }
    }
}

/// Holds the tunnels, at least one, until a signal comes, and shows events. The first signal lets running requests
/// finish, the second ends them.
///
/// # Errors
/// The edge refuses the tunnel, or the output is closed.
pub(crate) async fn hold(
    target: &Target,
    tunnels: Vec<(Credential, Origin)>,
    live: &mut Live,
    signals: &mut Signals,
    inspection: Option<&Inspection>,
) -> anyhow::Result<()> {
    for (credential, origin) in &tunnels {
        if let Some(reason) = origin.why_missing().await {
            live.origin_missing(Some(credential.tunnel), &reason, origin.socket_type)?;
        }
    }
    let served =
        |(credential, origin): &(Credential, Origin)| origin.served_by(credential.tunnel, &credential.credential);
    let services = tunnels.iter().map(served).collect();
    let Some((Credential { connect, .. }, Origin { way, .. })) = tunnels.into_iter().next() else { return Ok(()) };
    let transport = way.transport;
    let options =
        ConnectorOptions { capture: inspection.map(Inspection::capture), ..options(target, connect, way, services)? };
    let shutdown = Shutdown::new();
    let (events_in, mut events) = mpsc::channel(MAX_QUEUED_EVENTS);
    let connector = Connector::new(options, events_in)?;
    if let Some(inspection) = inspection {
        inspection.set_services(connector.services());
    }
    let connector = connector.run(shutdown.clone());
    let not_connected = tokio::time::sleep(NOT_CONNECTED_AFTER);
    tokio::pin!(connector, not_connected);
    let mut is_patient = true;
    let mut shown: anyhow::Result<()> = Ok(());
    loop {
        tokio::select! {
            biased;
            () = signals.next() => {
                if shutdown.is_triggered() {
                    return shown;
                }
                shutdown.trigger();
                shown = shown.and_then(|()| live.stopping());
            }
            Some(event) = events.recv() => {
                if let Some(inspection) = inspection {
                    inspection.observe(&event);
                }
                shown = shown.and_then(|()| live.event(&event));
                if shown.is_err() {
                    shutdown.trigger();
                }
            }
            () = &mut not_connected, if is_patient => {
                is_patient = false;
                live.still_connecting(transport);
            }
            ended = &mut connector => {
                while let Ok(event) = events.try_recv() {
                    shown = shown.and_then(|()| live.event(&event));
                }
                return ended.and(shown);
            }
        }
    }
}

/// The options of a connector for these services.
///
/// # Errors
/// The trusted certificates cannot be used, or the system cannot start threads.
pub(super) fn options(
    target: &Target,
    connect: ConnectTo,
    way: TransportArgs,
    services: Vec<Service>,
) -> anyhow::Result<ConnectorOptions> {
    let alpn: &[&[u8]] = &[sallyport_connector::ALPN];
    let tls = match &connect.ca_pem {
        Some(root) => sallyport_net::client_config_with(&target.trust, root, alpn)?,
        None => sallyport_net::client_config(&target.trust, alpn)?,
    };
    let links = way.links()?;
    let outbound =
        Outbound { congestion: way.congestion, mptcp: way.mptcp, ..target.network.to(&connect.host, connect.port) };
    Ok(ConnectorOptions {
        agent: AGENT.to_owned(),
        edge_host: connect.host,
        edge_port: connect.port,
        quic_port: connect.quic_port,
        tls,
        transport: way.transport,
        links,
        outbound,
        services,
        redundancy: way.redundancy,
        region: way.region,
        edges: connect.edges.into_iter().map(place).collect(),
        max_legs: usize::from(way.max_legs),
        keepalive: way.keepalive,
        drain: DRAIN,
        shards: threads::shards()?,
        capture: None,
    })
}

fn place(edge: ConnectEdge) -> EdgePlace {
    EdgePlace { name: edge.name, region: edge.region, addresses: edge.addresses }
}

/// Parses the number of edges for a tunnel.
fn redundancy(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| (1..=MAX_REDUNDANCY).contains(count));
    count.ok_or_else(|| format!("expected a number of edges from 1 to {MAX_REDUNDANCY}"))
}

/// Checks the text of a link by itself.
fn link(text: &str) -> Result<String, ChoiceError> {
    LinkChoice::parse(&[text]).map(|_| text.to_owned())
}

/// A host to connect to: a name or an address, without brackets.
fn host(text: &str) -> Result<String, String> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let is_address = bare.parse::<std::net::IpAddr>().is_ok();
    let is_name = !bare.is_empty()
        && bare.len() <= 253
        && bare.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'));
    if is_address || is_name {
        Ok(bare.to_owned())
    } else {
        Err("expected a host name or an IP address, such as localhost or 10.0.0.7".to_owned())
    }
}

/// The fingerprint of the only accepted certificate of the service.
pub(super) fn origin_pin(text: &str) -> Result<Fingerprint, String> {
    let how = "expected sha256:... of the service's certificate, as `openssl x509 -fingerprint -sha256` shows it";
    text.parse().map_err(|_| how.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_a_name_or_an_address() {
        for (given, kept) in
            [("localhost", "localhost"), ("[::1]", "::1"), ("10.0.0.7", "10.0.0.7"), ("my_db.x", "my_db.x")]
        {
            assert_eq!(host(given).unwrap(), kept);
        }
        for bad in ["", "a b", "http://a", "a:80", "[a:b", "a/b"] {
            assert!(host(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_pin_is_the_openssl_fingerprint_and_the_error_names_it() {
        let printed = format!("sha256 Fingerprint={}AB", "AB:".repeat(31));
        assert_eq!(origin_pin(&printed).unwrap(), format!("sha256:{}", "ab".repeat(32)).parse().unwrap());
        let refusal = origin_pin("sha1:abcd").unwrap_err();
        assert!(refusal.contains("openssl x509 -fingerprint -sha256"), "{refusal}");
    }
}
