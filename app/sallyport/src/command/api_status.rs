//! The status of an API from this machine: names, reachability, login, and the edge.

use std::{
    net::{IpAddr, SocketAddr, UdpSocket},
    path::Path,
    time::Duration,
};

use sallyport_api::{Certificate, Info, Socket};
use sallyport_client::{ApiProbe, ClientError};
use sallyport_net::{RootInfo, Trust};
use serde::Serialize;
use time::OffsetDateTime;

use crate::{
    context::{Context, Target},
    failure::{self, Failure},
};

/// How long the edge may take to answer.
const EDGE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long each address may take to answer over UDP.
const UDP_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a name server may take.
const NAME_TIMEOUT: Duration = Duration::from_secs(5);
/// A name of no socket: names of sockets end in a number.
const ANY_NAME: &str = "sallyport-status";

/// A name and its addresses.
#[derive(Debug, Clone, Serialize)]
pub(super) struct ResolvedName {
    /// The name.
    pub(super) name: String,
    /// Its addresses.
    pub(super) addresses: Vec<IpAddr>,
    /// Whether one of them is an address of this machine.
    pub(super) is_here: bool,
    /// Why there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
}

impl ResolvedName {
    /// The name for people: the wildcard in place of the name that stands for all others.
    pub(super) fn label(&self) -> String {
        self.name.strip_prefix(ANY_NAME).map_or_else(|| self.name.clone(), |domain| format!("*{domain}"))
    }
}

/// The login.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub(super) enum Login {
    /// An account.
    LoggedIn {
        /// Its e-mail address.
        email: String,
    },
    /// An API token that may not read the account.
    Token,
    /// No login.
    Nobody,
    /// The stored login or token is not valid.
    Invalid {
        /// Why.
        reason: String,
    },
}

/// The status.
pub(super) struct ApiStatus {
    /// The API.
    pub(super) target: Target,
    /// Its facts.
    pub(super) info: Option<Info>,
    /// Whether it answers.
    pub(super) probe: Result<ApiProbe, Failure>,
    /// Its names, the API's first.
    pub(super) names: Vec<ResolvedName>,
    /// Whether the edge answers at the address for connectors; `None` while that address is not known.
    pub(super) edge: Option<Result<Duration, String>>,
    /// Whether the edge answers over UDP, at the port for HTTP/3 and QUIC; `None` without such a port.
    pub(super) udp: Option<Result<Duration, String>>,
    /// The login; `None` while the API does not answer.
    pub(super) login: Option<Login>,
    /// The sockets of the organisation; `None` if they may not be read.
    pub(super) sockets: Option<Vec<Socket>>,
    /// The certificates that the caller may see; `None` if they may not be read.
    pub(super) certificates: Option<Vec<Certificate>>,
    /// The root of the API's own authority.
    pub(super) root: Option<RootInfo>,
}

impl ApiStatus {
    /// Whether names have certificates of public authorities.
    pub(super) fn has_public_names(&self) -> bool {
        self.info.as_ref().is_some_and(|info| info.has_public_names)
    }
}

/// Collects the status.
///
/// # Errors
/// No API is configured or found.
pub(super) async fn probe(context: &Context) -> anyhow::Result<ApiStatus> {
    let target = context.target()?;
    let client = context.anonymous_client(&target);
    let (probe, info) = match &client {
        Ok(client) => (client.probe().await.map_err(|error| failure::of_client(&error)), client.info().await.ok()),
        Err(error) => (Err(described(error)), None),
    };
    let api = target.api.host();
    let domain = info.as_ref().map(|info| info.domain.clone()).or_else(|| api.strip_prefix("api.").map(str::to_owned));
    let mut wanted = vec![api.to_owned()];
    if let Some(domain) = domain {
        wanted.extend([format!("login.{domain}"), format!("tunnel.{domain}"), format!("{ANY_NAME}.{domain}")]);
    }
    let mut names = Vec::with_capacity(wanted.len());
    for name in wanted {
        names.push(resolve(name, target.api.port()).await);
    }
    let edge = match &info {
        Some(info) => Some(dial_edge(&target, info).await),
        None => None,
    };
    let udp = match info.as_ref().and_then(|info| Some((&info.tunnel_host, info.tunnel_quic_port?))) {
        Some((host, port)) => {
            let known = names.iter().find(|name| name.name == *host);
            Some(probe_udp(known.map_or(&[], |name| &name.addresses), port).await)
        }
        None => None,
    };
    let (mut login, mut sockets, mut certificates) = (None, None, None);
    if probe.is_ok() {
        let client = context.client(&target)?;
        let of_self = context.client_of_self(&target)?;
        login = Some(login_of(of_self.account().await.map(|account| account.email.to_string())));
        sockets = client.sockets().await.ok();
        if info.as_ref().is_some_and(|info| info.has_public_names) {
            certificates = client.certificates().await.ok();
        }
    }
    let root = root(&target, info.as_ref());
    Ok(ApiStatus { target, info, probe, names, edge, udp, login, sockets, certificates, root })
}

fn described(error: &anyhow::Error) -> Failure {
    failure::describe(error).unwrap_or_else(|| Failure::new(failure::Kind::Failed, error.to_string()))
}

fn login_of(account: Result<String, ClientError>) -> Login {
    match account {
        Ok(email) => Login::LoggedIn { email },
        Err(ClientError::NotLoggedIn { .. }) => Login::Nobody,
        Err(ClientError::Problem(problem)) if problem.status == 403 => Login::Token,
        Err(error) => Login::Invalid { reason: error.to_string() },
    }
}

async fn resolve(name: String, port: u16) -> ResolvedName {
    let found = tokio::time::timeout(NAME_TIMEOUT, sallyport_net::resolve(&name, port)).await;
    let (addresses, error) = match found {
        Ok(Ok(addresses)) => (addresses.into_iter().map(|address| address.ip()).collect::<Vec<_>>(), None),
        Ok(Err(error)) => (Vec::new(), Some(error.to_string())),
        Err(_) => (Vec::new(), Some(format!("no name server answered within {} s", NAME_TIMEOUT.as_secs()))),
    };
    let is_here = addresses.iter().any(|address| is_of_this_machine(*address));
    ResolvedName { name, addresses, is_here, error }
}

/// Whether this machine has the address, tested by a bind to it.
fn is_of_this_machine(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

async fn dial_edge(target: &Target, info: &Info) -> Result<Duration, String> {
    let tls = sallyport_net::client_config(&target.trust, &[b"http/1.1"]).map_err(|error| error.to_string())?;
    let (host, port) = (info.tunnel_host.as_str(), info.tunnel_port);
    let began = tokio::time::Instant::now();
    let outbound = target.network.to(host, port);
    let dialed = sallyport_net::connect_tls_by(&outbound, host, port, host, tls, EDGE_TIMEOUT).await;
    dialed.map(|_| began.elapsed()).map_err(|error| error.to_string())
}

/// Asks the QUIC port at these addresses, one after another, until one answers.
async fn probe_udp(addresses: &[IpAddr], port: u16) -> Result<Duration, String> {
    let mut why = format!("port {port} has no address");
    for address in addresses {
        let began = tokio::time::Instant::now();
        match sallyport_quic::probe(SocketAddr::new(*address, port), UDP_TIMEOUT).await {
            Ok(()) => return Ok(began.elapsed()),
            Err(error) => why = error.to_string(),
        }
    }
    Err(why)
}

/// The root of the API's authority, from the local file, or from the API over a verified connection.
fn root(target: &Target, info: Option<&Info>) -> Option<RootInfo> {
    let of_file = match &target.trust {
        Trust::Ca(path) | Trust::CaAndSystem(path) => super::trust::read_root(path).ok(),
        Trust::System | Trust::Pinned(_) => None,
    };
    of_file.or_else(|| RootInfo::from_pem(info?.ca_pem.as_deref()?).ok())
}

/// What the trust in the API is based on, for people.
pub(super) fn trusted_by(trust: &Trust) -> String {
    match trust {
        Trust::System => "the authorities of this system".to_owned(),
        Trust::Ca(path) => path.display().to_string(),
        Trust::CaAndSystem(path) => format!("{} and the authorities of this system", path.display()),
        Trust::Pinned(pin) => format!("the root with the fingerprint {pin}"),
    }
}

/// Whole days until then.
pub(super) fn days(until: OffsetDateTime, now: OffsetDateTime) -> i64 {
    (until - now).whole_days()
}

/// By how many seconds this machine's clock is ahead of the API's, without the network delay.
pub(super) fn clock_ahead(probe: &ApiProbe, now: OffsetDateTime) -> Option<i64> {
    probe.date.map(|date| (now - date).whole_seconds())
}

/// The folder of a file, or of the working directory.
pub(super) fn folder(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
