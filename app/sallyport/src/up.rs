//! `sallyport up`: control and edge in one process, over one data directory.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use http_body_util::BodyExt as _;
use prometheus_client::registry::Registry;
use sallyport_bus::{Directory, Routes, SshLogins};
use sallyport_control::{Control, ControlConfig, DEFAULT_PORT_RANGE, Secrets, SignUp};
use sallyport_edge::{ApiService, Edge, EdgeConfig, Readiness};
use sallyport_net::{Certificates, HandOver, Listening, LocalCa, Shutdown, TakeoverOffer};
use sallyport_store::{DataDirLock, LockError, Store};
use tower_service::Service as _;
use tracing::{info, warn};

use crate::{
    duration,
    failure::{Failure, Kind},
    local,
    signals::Signals,
    telemetry::{LogFormat, Telemetry},
};

/// The port that serves clients, the API and tunnels unless another is asked for.
const DEFAULT_PORT: u16 = 8443;
/// The port that redirects plain HTTP unless another is asked for.
const DEFAULT_REDIRECT_PORT: u16 = 8080;
/// When a process that took over reads the sockets again, counted from its start: requests to the API that the former
/// process had accepted may still change them until its drain is over.
const RELOADS_AFTER_TAKEOVER: [Duration; 3] =
    [Duration::from_secs(2), Duration::from_secs(10), Duration::from_secs(35)];
/// How long the last traces may hold up the end.
const TRACE_FLUSH: Duration = Duration::from_secs(5);

/// What `sallyport up` can be told.
#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    /// Where everything is kept [default: /var/lib/sallyport for root, else ~/.local/share/sallyport]
    #[arg(long, value_name = "DIR", env = "SALLYPORT_DATA")]
    data: Option<PathBuf>,
    /// The domain under which sockets get their names
    #[arg(long, value_name = "DOMAIN", env = "SALLYPORT_DOMAIN", default_value = "localhost", value_parser = domain)]
    domain: String,
    /// Where clients, the API and tunnels are served: ADDR:PORT or :PORT [default: 127.0.0.1:8443 for localhost, else
    /// [::]:8443]
    #[arg(long, value_name = "ADDR:PORT", env = "SALLYPORT_LISTEN", value_parser = listen_address)]
    listen: Option<ListenAddress>,
    /// Where plain HTTP is redirected to HTTPS: ADDR:PORT, :PORT or none [default: port 8080 when it is free]
    #[arg(long, value_name = "ADDR:PORT", env = "SALLYPORT_LISTEN_HTTP", value_parser = redirect_address)]
    listen_http: Option<RedirectAddress>,
    /// The port in public URLs, where a port mapping stands in front [default: the port of --listen]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    public_port: Option<u16>,
    /// Replace the `sallyport up` that runs on the same data directory: take its ports over, so that no connection is
    /// refused, and let it finish what it serves
    #[arg(long)]
    takeover: bool,
    /// How long what runs may take to finish after SIGTERM
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration::parse)]
    drain: Duration,
    /// How long an origin may take to accept a connection before another one is tried
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration::parse_positive)]
    connect_timeout: Duration,
    /// How long an origin may take to begin its answer
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration::parse_positive)]
    response_timeout: Duration,
    /// After how much silence a connector is asked for a sign of life
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration::parse_positive)]
    keepalive: Duration,
    /// After how many missing signs of life a connector is down
    #[arg(long, value_name = "COUNT", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    keepalive_missed: u32,
    /// Who may make an account: open for everybody who reaches the API, closed for nobody but the first [default: open
    /// for localhost on a loopback address, else closed]
    #[arg(long, value_enum, value_name = "WHO", env = "SALLYPORT_SIGN_UP", hide_possible_values = true)]
    sign_up: Option<SignUpChoice>,
    /// Do not log each request
    #[arg(long)]
    no_access_log: bool,
    /// How log lines are written: text or json
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT", hide_possible_values = true)]
    log_format: LogFormat,
    /// Send traces to this OpenTelemetry collector, by OTLP over HTTP, such as http://127.0.0.1:4318
    #[arg(long, value_name = "URL", env = "OTEL_EXPORTER_OTLP_ENDPOINT")]
    otlp_endpoint: Option<String>,
    /// How many of all traces are sent, from 0 to 1
    #[arg(long, value_name = "RATIO", default_value_t = 1.0, value_parser = ratio)]
    otlp_ratio: f64,
}

/// Who may make an account, as the command line says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SignUpChoice {
    Open,
    Closed,
}

/// An address to listen on; without an IP address, the default one for the domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ListenAddress {
    ip: Option<IpAddr>,
    port: u16,
}

/// Where plain HTTP is redirected, if at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RedirectAddress {
    Nowhere,
    At(ListenAddress),
}

impl ListenAddress {
    fn with_default(self, ip: IpAddr) -> SocketAddr {
        SocketAddr::new(self.ip.unwrap_or(ip), self.port)
    }
}

fn listen_address(text: &str) -> Result<ListenAddress, String> {
    let wrong = || "expected ADDR:PORT or :PORT, such as 127.0.0.1:8443 or [::]:443".to_owned();
    if let Some(port) = text.strip_prefix(':') {
        return Ok(ListenAddress { ip: None, port: port.parse().map_err(|_| wrong())? });
    }
    let address: SocketAddr = text.parse().map_err(|_| wrong())?;
    Ok(ListenAddress { ip: Some(address.ip()), port: address.port() })
}

fn redirect_address(text: &str) -> Result<RedirectAddress, String> {
    if text == "none" {
        return Ok(RedirectAddress::Nowhere);
    }
    listen_address(text).map(RedirectAddress::At).map_err(|error| format!("{error}, or none"))
}

/// A domain: labels of letters, digits and hyphens; kept in lower case without a final dot.
fn domain(text: &str) -> Result<String, String> {
    let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    let label_ok = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    // Room must be left for the label of a socket and its dot (RFC 1035 section 2.3.4: 255 octets in all).
    if name.len() > 253 - 64 || !name.split('.').all(label_ok) || name.parse::<Ipv4Addr>().is_ok() {
        return Err("expected a domain such as localhost or tunnels.example.com".to_owned());
    }
    Ok(name)
}

fn ratio(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|ratio| (0.0..=1.0).contains(ratio))
        .ok_or_else(|| "expected a number from 0 to 1".to_owned())
}

/// The data directory that is used when none is named.
fn default_data_dir() -> Option<PathBuf> {
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
    let (_log, traces) = Telemetry {
        verbose,
        default_level: tracing::Level::INFO,
        format: args.log_format,
        otlp_endpoint: args.otlp_endpoint.as_deref(),
        otlp_ratio: args.otlp_ratio,
    }
    .start()?;
    let result = serve(args).await;
    if let Some(traces) = traces {
        let flushed = tokio::task::spawn_blocking(move || traces.flush());
        if tokio::time::timeout(TRACE_FLUSH, flushed).await.is_err() {
            warn!("the last traces were given up: the collector does not answer");
        }
    }
    result
}

/// Everything between the first log line and the last.
async fn serve(args: UpArgs) -> anyhow::Result<()> {
    let shutdown = Shutdown::new();
    stop_on_signals(&shutdown)?;

    let data = args.data.clone().or_else(default_data_dir).ok_or_else(|| {
        Failure::usage("there is no home directory to keep data in").next("name a directory with --data DIR")
    })?;
    // A folder that is not there yet belongs to nobody: when the ports are taken, none is left behind.
    let own_ports = if data.exists() { None } else { Some(listen(&args)?) };
    let (lock, ports_taken_over) = hold(&data, args.takeover)?;
    let data = lock.dir().canonicalize().with_context(|| format!("cannot use {}", data.display()))?;
    refuse_lost_database(&data)?;
    let store = Store::open(&data).await?;
    let secrets = Secrets::open_or_create(&data)?;
    let ca = LocalCa::open_or_create(&data, &args.domain)?;
    let fingerprint = ca.fingerprint().to_string();
    let root = data.join("ca.pem");

    let was_takeover = ports_taken_over.is_some();
    let listening = match ports_taken_over.or(own_ports) {
        Some(ports) => ports,
        None => listen(&args)?,
    };
    let address = listening.tls.local_addr()?;
    let public_port = args.public_port.unwrap_or(address.port());
    let routes = Routes::default();
    let directory = Directory::default();
    let config = ControlConfig {
        domain: args.domain.clone(),
        public_port,
        tunnel_host: format!("tunnel.{}", args.domain),
        ca_pem: Some(ca.root_pem().to_owned()),
        ca_fingerprint: Some(fingerprint.clone()),
        sign_up: sign_up(&args, address.ip()),
        port_range: DEFAULT_PORT_RANGE,
        ssh: None,
    };
    let ssh_logins = SshLogins::default();
    let control = Control::start(config, store.clone(), routes.clone(), ssh_logins, directory.clone(), secrets).await?;

    if was_takeover {
        tokio::spawn(reload_after_takeover(control.clone()));
    }

    let certificates = Certificates::new(ca, &args.domain)?;
    let edge = Edge::new(edge_config(&args, public_port), routes, directory, api_service(&control));
    edge.ask_readiness(readiness(&control));
    let mut registry = Registry::default();
    edge.register_metrics(&mut registry);
    control.register_metrics(&mut registry);
    edge.publish_metrics(registry);

    let ports = HandOver::of(&listening)?;
    let offer = TakeoverOffer::open(&data).with_context(|| format!("cannot make a socket in {}", data.display()))?;
    let api = api_url(&args.domain, public_port);
    let note = local::Local { api: api.clone(), ca: root.clone(), pid: std::process::id() };
    if let Err(error) = local::write(&note) {
        warn!(%error, "commands of this machine will not find this process by themselves: give them --api and --ca");
    }
    info!(
        %api,
        listen = %address,
        redirect = listening.redirect.as_ref().and_then(|socket| socket.local_addr().ok()).map(tracing::field::display),
        data = %data.display(),
        ca = %root.display(),
        ca_fingerprint = %fingerprint,
        "ready"
    );
    sallyport_net::notify_ready();
    sallyport_net::notify_status(&format!("serving {api}"));

    let held = tokio::spawn(until_over(lock, ports, offer, shutdown.clone()));
    let report = edge.serve(listening, certificates, shutdown.clone()).await;

    shutdown.trigger();
    let lock = held.await?;
    local::remove(std::process::id());
    store.close().await;
    drop(lock);
    let report = report?;
    info!(finished = report.finished, cut = report.cut, "stopped");
    Ok(())
}

/// Requests to `api.<domain>` go from the edge to control by a call: both are this process.
fn api_service(control: &Control) -> ApiService {
    let router = control.router();
    Arc::new(move |mut request, client| {
        let mut router = router.clone();
        request.extensions_mut().insert(client);
        Box::pin(async move {
            let Ok(answer) = router.call(request).await;
            answer.map(|body| body.map_err(Into::into).boxed_unsync())
        })
    })
}

/// `/readyz` asks control too.
fn readiness(control: &Control) -> Readiness {
    let control = control.clone();
    Arc::new(move || {
        let control = control.clone();
        Box::pin(async move { control.check().await })
    })
}

fn edge_config(args: &UpArgs, public_port: u16) -> EdgeConfig {
    let mut config = EdgeConfig::new(&args.domain, public_port);
    config.connect_timeout = args.connect_timeout;
    config.response_timeout = args.response_timeout;
    config.drain = args.drain;
    config.session.keepalive = args.keepalive;
    config.session.missed_limit = args.keepalive_missed;
    config.access_log = !args.no_access_log;
    config
}

fn api_url(domain: &str, port: u16) -> String {
    if port == 443 { format!("https://api.{domain}") } else { format!("https://api.{domain}:{port}") }
}

/// The data directory for this process alone, and the ports of the process that had it before, when that one is to be
/// replaced.
fn hold(data: &Path, takeover: bool) -> anyhow::Result<(DataDirLock, Option<Listening>)> {
    match DataDirLock::take(data) {
        Err(LockError::InUse { .. }) if takeover => {
            let ports = tokio::task::block_in_place(|| sallyport_net::take_over(data))?;
            Ok((DataDirLock::take(data)?, Some(ports)))
        }
        Err(error @ LockError::InUse { .. }) => {
            Err(Failure::new(Kind::Failed, error.to_string()).next("to replace that process, add --takeover").into())
        }
        held => Ok((held?, None)),
    }
}

/// Learns what the former process still changed after this one had read the sockets.
async fn reload_after_takeover(control: Control) {
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

/// Refuses an empty database file beside the keys of an installation: that is what remains of a lost one, and would be
/// taken for a new one.
fn refuse_lost_database(data: &Path) -> Result<(), Failure> {
    let is_empty = |name: &str| std::fs::metadata(data.join(name)).map(|file| file.len() == 0);
    let database = data.join(sallyport_store::DATABASE_FILE);
    let log = format!("{}-wal", sallyport_store::DATABASE_FILE);
    let has_keys =
        [sallyport_net::CA_KEY_FILE, sallyport_control::TOKEN_KEY_FILE].iter().any(|name| data.join(name).exists());
    let is_lost = is_empty(sallyport_store::DATABASE_FILE).unwrap_or(false) && is_empty(&log).unwrap_or(true);
    if !has_keys || !is_lost {
        return Ok(());
    }
    let message = format!("the database {} is empty, while the keys beside it have been used", database.display());
    Err(Failure::new(Kind::Failed, message)
        .next("restore it from a backup, or remove it to start with no accounts and no sockets"))
}

/// Holds the data directory until the process is over, or until another one replaces it; then it is no longer held.
async fn until_over(
    lock: DataDirLock,
    ports: HandOver,
    offer: TakeoverOffer,
    shutdown: Shutdown,
) -> Option<DataDirLock> {
    loop {
        let mut asked = tokio::select! {
            () = shutdown.wait() => return Some(lock),
            asked = offer.asked() => asked,
        };
        if let Err(error) = asked.send(&ports) {
            warn!(%error, "a process that asked for the ports went away");
            continue;
        }
        info!("another process takes over: no new connections here; what runs may finish");
        shutdown.trigger();
        drop((ports, offer, lock));
        if let Err(error) = asked.released() {
            warn!(%error, "the process that took over went away");
        }
        return None;
    }
}

/// Whether the domain means this machine to everybody (RFC 6761 section 6.3).
fn is_of_this_machine(domain: &str) -> bool {
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
fn listen(args: &UpArgs) -> anyhow::Result<Listening> {
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
    let tls = sallyport_net::listen(listen, "--listen")?;
    let redirect = match redirect {
        None => None,
        Some((address, asked_for)) => match sallyport_net::listen(address, "--listen-http") {
            Ok(listener) => Some(listener),
            Err(error) if asked_for => return Err(error.into()),
            // Nobody asked for this port, and another program has it: that is no reason not to start.
            Err(error) => {
                warn!(%error, "plain HTTP is not redirected");
                None
            }
        },
    };
    Ok(Listening { tls, redirect })
}

/// SIGTERM, SIGINT and the end of the terminal begin the drain; a second signal ends the process at once, as an impatient user expects.
fn stop_on_signals(shutdown: &Shutdown) -> anyhow::Result<()> {
    let mut signals = Signals::take()?;
    let shutdown = Arc::new(shutdown.clone());
    tokio::spawn(async move {
        signals.next().await;
        sallyport_net::notify_stopping();
        info!("stopping: no new connections; what runs may finish");
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
    fn an_address_may_leave_out_its_ip() {
        assert_eq!(listen_address(":443").unwrap(), ListenAddress { ip: None, port: 443 });
        let six = listen_address("[::1]:8443").unwrap();
        assert_eq!(six.with_default(Ipv4Addr::LOCALHOST.into()), "[::1]:8443".parse().unwrap());
        for bad in ["", "8443", "localhost:8443", ":70000", "127.0.0.1", "::1:8443"] {
            assert!(listen_address(bad).unwrap_err().contains("ADDR:PORT"), "{bad}");
        }
        assert_eq!(redirect_address("none").unwrap(), RedirectAddress::Nowhere);
        assert!(redirect_address("nowhere").unwrap_err().ends_with("or none"));
    }

    #[test]
    fn a_domain_is_lower_case_and_leaves_room_for_names() {
        assert_eq!(domain("Tunnels.Example.COM.").unwrap(), "tunnels.example.com");
        for bad in ["", ".", "a..b", "-a.b", "a_b.c", "127.0.0.1", &"a.".repeat(120)] {
            assert!(domain(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn strangers_sign_up_only_where_none_can_come_or_where_they_are_asked_for() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            up: UpArgs,
        }
        let sign_up = |line: &[&str], listens_on: &str| {
            let args = <Line as clap::Parser>::try_parse_from([&["up"], line].concat()).unwrap().up;
            super::sign_up(&args, listens_on.parse().unwrap())
        };
        assert_eq!(sign_up(&["--domain", "localhost"], "127.0.0.1"), SignUp::Open);
        assert_eq!(sign_up(&["--domain", "a.localhost"], "::1"), SignUp::Open);
        assert_eq!(sign_up(&["--domain", "localhost"], "0.0.0.0"), SignUp::Closed);
        assert_eq!(sign_up(&["--domain", "example.com"], "127.0.0.1"), SignUp::Closed);
        assert_eq!(sign_up(&["--domain", "example.com", "--sign-up", "open"], "::"), SignUp::Open);
        assert_eq!(sign_up(&["--domain", "localhost", "--sign-up", "closed"], "127.0.0.1"), SignUp::Closed);
    }

    #[test]
    fn the_default_https_port_is_not_spelled_out() {
        assert_eq!(api_url("example.com", 443), "https://api.example.com");
        assert_eq!(api_url("localhost", 8443), "https://api.localhost:8443");
    }
}
