//! `sallyport up`: control and edge in one process, over one data directory.

pub(crate) mod args;
pub(crate) mod console;
mod port_range;
pub(crate) mod quic;
pub(crate) mod ssh;

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use http_body_util::BodyExt as _;
use prometheus_client::registry::Registry;
use sallyport_audit::AuditLog;
use sallyport_bus::{Asker, Bus};
use sallyport_control::{
    AddressDatabases, Control, ControlConfig, Reach, SETUP_TOKEN_FILE, Secrets, SignUp, default_ports_per_account,
};
use sallyport_edge::{ApiService, Edge, EdgeAudit, EdgeConfig, EdgeIdentity, Readiness};
use sallyport_geo::Geo;
use sallyport_identity::{AssertionKey, Sealer};
use sallyport_net::{
    Certificates, HandOver, ListenError, Listening, LocalCa, OwnPorts, Shutdown, Takeover, TakeoverOffer,
};
use sallyport_policy::DialedNetworks;
use sallyport_store::{DataDirLock, LockError};
use tower_service::Service as _;
use tracing::{info, warn};

pub(crate) use self::args::UpArgs;
use self::{
    args::{GeoArgs, ListenAddress, RedirectAddress, SignUpChoice},
    console::{Console, Ready},
    quic::{Quic, QuicPort},
    ssh::SshParts,
};
use crate::{
    database,
    failure::{Failure, Kind},
    local,
    process_metrics::ProcessMetrics,
    signals::Signals,
    telemetry::Telemetry,
    threads,
};

/// The port that serves clients, the API and tunnels unless another is asked for.
pub(crate) const DEFAULT_PORT: u16 = 8443;
/// The port that redirects plain HTTP unless another is asked for.
const DEFAULT_REDIRECT_PORT: u16 = 8080;

/// When a process that took over reads the sockets again, counted from its start: requests to the API that the former
/// process had accepted may still change them until its drain is over.
const RELOADS_AFTER_TAKEOVER: [Duration; 3] =
    [Duration::from_secs(2), Duration::from_secs(10), Duration::from_secs(35)];
/// What the head of the audit log is sealed for.
pub(crate) const AUDIT_KEY: &str = "audit";
/// How often a process that was replaced looks at who may still come.
const CATCH_UP_INTERVAL: Duration = Duration::from_secs(1);
/// How long the last traces may hold up the end.
const TRACE_FLUSH: Duration = Duration::from_secs(5);

/// The data directory that is used when none is named.
pub(crate) fn default_data_dir() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some("/var/lib/sallyport".into());
    }
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_DATA_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/share")))
        .map(|base| base.join("sallyport"))
}

/// Runs until SIGTERM or SIGINT, then lets what runs finish.
///
/// # Errors
/// What kept it from starting, or made it stop.
pub(crate) async fn run(args: UpArgs, verbose: u8) -> anyhow::Result<()> {
    let console = Console::choose(args.log_format.is_some() || verbose > 0);
    let (_log, traces) = Telemetry {
        verbose,
        default_level: if console.is_on() { tracing::Level::WARN } else { tracing::Level::INFO },
        format: args.log_format.unwrap_or_default(),
        otlp_endpoint: args.otlp_endpoint.as_deref(),
        otlp_ratio: args.otlp_ratio,
    }
    .start()?;
    let result = serve(args, console).await;
    if let Some(traces) = traces {
        let flushed = tokio::task::spawn_blocking(move || traces.flush());
        if tokio::time::timeout(TRACE_FLUSH, flushed).await.is_err() {
            warn!("the last traces were given up: the collector does not answer");
        }
    }
    result
}

/// Everything between the first log line and the last.
async fn serve(args: UpArgs, console: Console) -> anyhow::Result<()> {
    let shutdown = Shutdown::new();
    stop_on_signals(&shutdown, console)?;

    let data = args.data.clone().or_else(default_data_dir).ok_or_else(|| {
        Failure::usage("there is no home directory to keep data in").next("name a directory with --data DIR")
    })?;
    // A folder that is not there yet belongs to nobody: when the ports are taken, none is left behind.
    let own_ports = if data.exists() { None } else { Some(listen(&args, console)?) };
    let held = hold(&data, args.takeover)?;
    let data = data.canonicalize().with_context(|| format!("cannot use {}", data.display()))?;
    let store = args.database.open(&data).await?;
    let secrets = database::secrets(&store, &data).await?;
    let ca = LocalCa::open_or_create(&data, &args.domain)?;
    let fingerprint = ca.fingerprint().to_string();
    let root = data.join("ca.pem");

    let ca_pem = ca.root_pem().to_owned();
    let certificates = Certificates::new(ca, &args.domain)?;
    let (shards, geo) = (threads::shards()?, open_geo(&args.geo)?);
    let site = args.site.open(&args.domain)?;
    let mail_hook = args.mail.hook()?;
    port_range::warn_of_overlap(&args.port_range.0);

    let held = held.with_ports(own_ports, &args, console)?;
    let was_takeover = matches!(held, Held::ByOther(_));
    let address = held.tls_addr()?;
    let public_port = args.public_port.unwrap_or(address.port());
    let mut ssh = SshParts::open(&args, &data, address.ip(), public_port, was_takeover)?;
    let quic = QuicPort::open(args.quic.listen_quic, address, was_takeover)?;
    // All that could be refused has been looked at: from here on a process that is replaced has stopped.
    let (lock, listening) = held.take(&data)?;
    if let Some(ssh) = &mut ssh {
        ssh.wait_for_port().await;
    }
    let bus = Bus::default();
    let (audit, asker) = (args.audit_log.open(&data, |purpose| secrets.derived(purpose))?, Asker::default());
    let affinity_key = secrets.derived("affinity");
    let config = ControlConfig {
        id: database::own_id(&store, &data)?,
        domain: args.domain.clone(),
        site: site.clone(),
        public_port,
        tunnel_host: format!("tunnel.{}", args.domain),
        quic_port: quic::public_port(args.quic.listen_quic, public_port),
        ca_pem: Some(ca_pem),
        ca_fingerprint: Some(fingerprint.clone()),
        sign_up: sign_up(&args, address.ip()),
        port_range: args.port_range.0.clone(),
        ports_per_account: args
            .ports_per_account
            .map_or_else(|| default_ports_per_account(&args.port_range.0), usize::from),
        requires_amplification_guard: args.require_amplification_guard,
        ssh: ssh.as_ref().map(|ssh| ssh.info.clone()),
        ssh_authority: ssh.as_ref().map(|ssh| ssh.authority.clone()),
        direct_origins: DialedNetworks::new(args.direct_origins.clone()),
        databases: AddressDatabases {
            country: geo.as_ref().is_some_and(|geo| geo.has_country()),
            asn: geo.as_ref().is_some_and(|geo| geo.has_asn()),
        },
        provider_reach: provider_reach(&args, address.ip()),
        geo: geo.clone(),
        audit: Some(audit.clone()),
        asker: asker.clone(),
        mail_hook,
        setup_token_file: setup_token_file(&args, address.ip(), &data),
    };
    let identity = edge_identity(&secrets, &bus);
    let control = Control::start(config, store.clone(), bus.clone(), secrets).await?;

    if was_takeover {
        sallyport_net::spawn_boxed(reload_after_takeover(control.clone()));
    }

    let mut config = edge_config(&args, public_port, geo, affinity_key);
    config.shards = shards;
    config.site = tokio::sync::watch::Sender::new(Arc::new(site)).subscribe();
    config.identity = identity;
    config.audit = Some(EdgeAudit { sink: Arc::new(audit.clone()), all: args.audit_use.is_all() });
    let edge = Edge::new(config, bus.routes, bus.directory, api_service(&control, &args.domain));
    asker.set_responder(edge.answers());
    edge.ask_readiness("control cannot use its database", readiness(&control));
    if let Some(ssh) = ssh {
        edge.serve_ssh(ssh.settings(bus.ssh_logins, control.clone()));
    }
    let mut registry = Registry::default();
    edge.register_metrics(&mut registry);
    control.register_metrics(&mut registry);
    audit.register_metrics(&mut registry);
    ProcessMetrics::new(certificates.clone()).register(&mut registry);
    edge.publish_metrics(registry);

    let quic = quic.map(|port| Quic::start(port, &edge, certificates.clone(), shutdown.clone()));
    let ports = HandOver::of(&listening)?;
    let offer = TakeoverOffer::open(&data).with_context(|| format!("cannot make a socket in {}", data.display()))?;
    let api = api_url(&args.domain, public_port);
    let redirect = listening.redirect_addr().ok().flatten();
    let listens = std::iter::once(address).chain(redirect).map(|address| address.to_string()).collect();
    let note = local::Local::of_this_process(&api, &data, root.clone(), listens);
    if let Err(error) = local::write(&note) {
        warn!(%error, "commands of this machine will not find this process by themselves: give them --api and --ca");
    }
    let is_new = console.is_on() && store.count_accounts().await.is_ok_and(|count| count == 0);
    info!(
        %api,
        listen = %address,
        redirect = redirect.map(tracing::field::display),
        data = %data.display(),
        ca = %root.display(),
        ca_fingerprint = %fingerprint,
        "ready"
    );
    console.ready(&Ready { api: &api, data: &data, root: &root, is_new });
    sallyport_net::notify_ready();
    sallyport_net::notify_status(&format!("serving {api}"));

    let held =
        sallyport_net::spawn_boxed(until_over(lock, ports, offer, shutdown.clone(), audit.clone(), control.clone()));
    let report = edge.serve(listening, certificates, shutdown.clone()).await;

    shutdown.trigger();
    if let Some(quic) = quic {
        quic.ended().await;
    }
    let lock = held.await?;
    if lock.is_some() {
        control.leave().await;
    }
    local::remove(std::process::id());
    store.close().await;
    if lock.is_some()
        && let Err(error) = tokio::task::block_in_place(|| audit.close())
    {
        warn!(%error, "the last events of the audit log may not be on disk");
    }
    drop(lock);
    let report = report?;
    info!(finished = report.finished, cut = report.cut, "stopped");
    console.tell("stopped");
    Ok(())
}

/// What the edge needs to know who comes: the keys are made of the installation's secret, as control's are.
pub(crate) fn edge_identity(secrets: &Secrets, bus: &Bus) -> Option<EdgeIdentity> {
    let assertions = AssertionKey::new(secrets.derived("assertions"))?;
    let sealer = Arc::new(Sealer::new(secrets.derived("seal")));
    Some(EdgeIdentity { sealer, identities: bus.identities.clone(), assertions: Arc::new(assertions) })
}

/// Requests to `api.<domain>` and to `login.<domain>` go from the edge to control by a call: both are this process.
pub(crate) fn api_service(control: &Control, domain: &str) -> ApiService {
    let (api, login) = (control.router(), control.login_router());
    let login_host = format!("login.{domain}");
    Arc::new(move |mut request, client| {
        let mut router = if is_for_host(&request, &login_host) { login.clone() } else { api.clone() };
        request.extensions_mut().insert(client);
        Box::pin(async move {
            let Ok(answer) = router.call(request).await;
            answer.map(|body| body.map_err(Into::into).boxed_unsync())
        })
    })
}

/// Whether the request, which the edge has looked through, is for this host on whatever port.
fn is_for_host<B>(request: &http::Request<B>, host: &str) -> bool {
    let header = request.headers().get(http::header::HOST).and_then(|host| host.to_str().ok());
    let asked = request.uri().host().or(header).unwrap_or_default();
    let asked = asked.rsplit_once(':').map_or(asked, |(asked, _)| asked);
    asked.trim_end_matches('.').eq_ignore_ascii_case(host)
}

/// Where the setup token is, with which the first account is made wherever strangers come.
fn setup_token_file(args: &UpArgs, listens_on: IpAddr, data: &Path) -> Option<PathBuf> {
    let is_local = is_of_this_machine(&args.domain) && listens_on.to_canonical().is_loopback();
    (!is_local).then(|| data.join(SETUP_TOKEN_FILE))
}

/// Where identity providers may be: anywhere where only those have accounts who were let in, or where nobody else comes.
fn provider_reach(args: &UpArgs, listens_on: IpAddr) -> Reach {
    let is_local = is_of_this_machine(&args.domain) && listens_on.to_canonical().is_loopback();
    match sign_up(args, listens_on) {
        SignUp::Open if !is_local => Reach::Public,
        SignUp::Open | SignUp::Closed => Reach::Anywhere,
    }
}

/// `/readyz` asks control too.
fn readiness(control: &Control) -> Readiness {
    let control = control.clone();
    Arc::new(move || {
        let control = control.clone();
        Box::pin(async move { control.check().await })
    })
}

fn edge_config(args: &UpArgs, public_port: u16, geo: Option<Arc<Geo>>, affinity_key: [u8; 32]) -> EdgeConfig {
    let mut config = EdgeConfig::new(&args.domain, public_port);
    config.connect_timeout = args.connect_timeout;
    config.response_timeout = args.response_timeout;
    config.drain = args.drain;
    config.session.keepalive = args.keepalive;
    config.session.missed_limit = args.keepalive_missed;
    config.trusted_proxies.clone_from(&args.trust_proxy);
    config.access_log = !args.no_access_log;
    config.direct_origins = DialedNetworks::new(args.direct_origins.clone());
    config.geo = geo;
    config.affinity_key = affinity_key.into();
    config.tunnel_congestion = args.tunnel_congestion.clone();
    config
}

/// The databases of addresses, where there are any.
pub(crate) fn open_geo(args: &GeoArgs) -> anyhow::Result<Option<Arc<Geo>>> {
    if args.geoip_country.is_none() && args.geoip_asn.is_none() {
        return Ok(None);
    }
    Ok(Some(Arc::new(Geo::open(args.geoip_country.as_deref(), args.geoip_asn.as_deref())?)))
}

pub(crate) fn api_url(domain: &str, port: u16) -> String {
    if port == 443 { format!("https://api.{domain}") } else { format!("https://api.{domain}:{port}") }
}

/// Who holds the data directory while this process makes sure that it can run, and the ports.
enum Held<P> {
    ByUs(DataDirLock, P),
    ByOther(Takeover),
}

/// The data directory for this process alone, or what a process that is to be replaced offers; that one serves on.
fn hold(data: &Path, takeover: bool) -> anyhow::Result<Held<()>> {
    match DataDirLock::take(data) {
        Err(LockError::InUse { .. }) if takeover => {
            Ok(Held::ByOther(tokio::task::block_in_place(|| Takeover::begin(data))?))
        }
        Err(error @ LockError::InUse { .. }) => {
            Err(Failure::new(Kind::Failed, error.to_string()).next("to replace that process, add --takeover").into())
        }
        held => Ok(Held::ByUs(held?, ())),
    }
}

impl Held<()> {
    /// With these ports, or else with newly opened ones, unless those of another process are taken over.
    fn with_ports(self, ports: Option<Listening>, args: &UpArgs, console: Console) -> anyhow::Result<Held<Listening>> {
        Ok(match self {
            Self::ByOther(takeover) => Held::ByOther(takeover),
            Self::ByUs(lock, ()) => Held::ByUs(lock, ports.map_or_else(|| listen(args, console), Ok)?),
        })
    }
}

impl Held<Listening> {
    fn tls_addr(&self) -> std::io::Result<SocketAddr> {
        match self {
            Self::ByUs(_, listening) => listening.tls_addr(),
            Self::ByOther(takeover) => takeover.tls_addr(),
        }
    }

    /// All that is held; a process that is replaced stops taking what is new.
    fn take(self, data: &Path) -> anyhow::Result<(DataDirLock, Listening)> {
        match self {
            Self::ByUs(lock, listening) => Ok((lock, listening)),
            Self::ByOther(takeover) => {
                let listening = tokio::task::block_in_place(|| takeover.finish())?;
                Ok((DataDirLock::take(data)?, listening))
            }
        }
    }
}

/// Learns what the former process still changed after this one had read the sockets.
pub(crate) async fn reload_after_takeover(control: Control) {
    let began = tokio::time::Instant::now();
    for after in RELOADS_AFTER_TAKEOVER {
        tokio::time::sleep_until(began + after).await;
        match control.reload().await {
            Ok(0) => {}
            Ok(differed) => info!(differed, "the former process had changed sockets"),
            Err(error) => warn!(error = format!("{error:#}"), "what the former process changed is not known"),
        }
    }
}

/// Holds the data directory until the process is over, or until another one replaces it; then it is no longer held.
async fn until_over(
    lock: DataDirLock,
    ports: HandOver,
    offer: TakeoverOffer,
    shutdown: Shutdown,
    audit: AuditLog,
    control: Control,
) -> Option<DataDirLock> {
    loop {
        let ready = async { offer.asked().await.ready(&ports).await };
        let successor = tokio::select! {
            () = shutdown.wait() => return Some(lock),
            successor = ready => successor.and_then(|mut successor| successor.send(&ports).map(|()| successor)),
        };
        let successor = match successor {
            Ok(successor) => successor,
            Err(error) => {
                warn!(%error, "a process asked to take over and did not: all goes on here");
                continue;
            }
        };
        info!("another process takes over: no new connections here; what runs may finish");
        shutdown.trigger();
        // Who holds the data directory writes the log.
        if let Err(error) = tokio::task::block_in_place(|| audit.hand_over()) {
            warn!(%error, "the last events of the audit log may not be on disk");
        }
        sallyport_net::spawn_boxed(keep_up(control));
        drop((ports, offer, lock));
        if let Err(error) = successor.released() {
            warn!(%error, "the process that took over went away");
        }
        return None;
    }
}

/// Learns what the successor changes, for as long as something runs here: who is sent away there is sent away here too.
async fn keep_up(control: Control) {
    loop {
        tokio::time::sleep(CATCH_UP_INTERVAL).await;
        if let Err(error) = control.catch_up().await {
            tracing::debug!(error = format!("{error:#}"), "what the successor changed is not known");
        }
    }
}

/// Whether the domain means this machine to everybody (RFC 6761 section 6.3).
pub(crate) fn is_of_this_machine(domain: &str) -> bool {
    domain == "localhost" || domain.ends_with(".localhost")
}

/// Who may make an account: strangers only where none can come, or where they are asked for.
fn sign_up(args: &UpArgs, listens_on: IpAddr) -> SignUp {
    match args.sign_up {
        Some(SignUpChoice::Open) => SignUp::Open,
        Some(SignUpChoice::Closed) => SignUp::Closed,
        None if is_of_this_machine(&args.domain) && listens_on.to_canonical().is_loopback() => SignUp::Open,
        None => SignUp::Closed,
    }
}

/// The sockets that systemd opened for us, else our own.
fn listen(args: &UpArgs, console: Console) -> anyhow::Result<Listening> {
    if let Some(listening) = Listening::from_systemd()? {
        return Ok(listening);
    }
    let ip = if is_of_this_machine(&args.domain) { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let listen = args.listen.unwrap_or(ListenAddress { ip: None, port: DEFAULT_PORT }).with_default(ip);
    let redirect = match args.listen_http {
        Some(RedirectAddress::Nowhere) => None,
        Some(RedirectAddress::At(address)) => Some((address.with_default(listen.ip()), true)),
        None => Some((SocketAddr::new(listen.ip(), DEFAULT_REDIRECT_PORT), false)),
    };
    let tls = sallyport_net::listen_by(listen, "--listen", args.mptcp)?;
    let redirect = match redirect {
        None => None,
        Some((address, asked_for)) => match sallyport_net::listen(address, "--listen-http") {
            Ok(listener) => Some(listener),
            Err(error) if asked_for => return Err(error.into()),
            // Nobody asked for this port, and another program has it: that is no reason not to start.
            Err(error) => {
                let why = match error {
                    ListenError::Taken { address, .. } => format!("port {} is taken", address.port()),
                    other => other.to_string(),
                };
                let step = "choose another port with --listen-http :PORT, or none with --listen-http none";
                if !console.tell(&format!("note: {why}, so plain HTTP is not redirected: {step}")) {
                    warn!("{why}, so plain HTTP is not redirected: {step}");
                }
                None
            }
        },
    };
    Ok(Listening { tls, redirect, own: OwnPorts::default() })
}

/// SIGTERM, SIGINT and the end of the terminal begin the drain; a second signal ends the process at once, as an impatient user expects.
pub(crate) fn stop_on_signals(shutdown: &Shutdown, console: Console) -> anyhow::Result<()> {
    let mut signals = Signals::take()?;
    let shutdown = Arc::new(shutdown.clone());
    sallyport_net::spawn_boxed(async move {
        signals.next().await;
        sallyport_net::notify_stopping();
        info!("stopping: no new connections; what runs may finish");
        console.tell("stopping: what runs may finish; Ctrl-C again to stop now");
        shutdown.trigger();
        signals.next().await;
        warn!("stopping at once: asked for a second time");
        std::process::exit(crate::signals::INTERRUPTED);
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_https_port_is_not_spelled_out() {
        assert_eq!(api_url("example.com", 443), "https://api.example.com");
        assert_eq!(api_url("localhost", 8443), "https://api.localhost:8443");
    }
}
