//! `sallyport up`: control and edge in one process, over one data directory.
//!
//! May use what `roles` may use.

pub(crate) mod args;
mod config;
mod port_range;
mod ports;
mod ssh;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use anyhow::Context as _;
use sallyport_bus::{Asker, Bus};
use sallyport_control::{AcmeConfig, Control, LONE_EDGE, Secrets};
use sallyport_edge::{Edge, EdgeAudit, SteeringSettings};
use sallyport_geo::Geo;
use sallyport_http::page::Site;
use sallyport_identity::Sealer;
use sallyport_net::{Certificates, HandOver, Listening, LocalCa, Takeover};
use sallyport_resolver::Resolver;
use sallyport_shards::Shards;
use sallyport_store::Store;
use tokio::sync::watch;
use tracing::info;

pub(crate) use self::args::UpArgs;
use self::{config::Public, ssh::SshParts};
use super::{
    anycast::{self, AnnouncingEdge},
    api, egress,
    name_server::{DnsPorts, NameServer, NameServerParts},
    own_address::own_addresses,
    public_names,
    quic::{OpenedQuic, Quic},
};
use crate::{
    daemon::{Claim, Console, Daemon, Metrics, Ready, Role, Service, WhenReplaced},
    failure::Failure,
    installation::{database, default_data_dir},
    machine::server_note::{self, PublicNames, ServerNote},
    runtime::{process_metrics::ProcessMetrics, telemetry::Telemetry, threads},
};

/// The name of the edge of an installation on one machine.
const LONE_EDGE_NAME: &str = "edge";

/// Runs until SIGTERM or SIGINT, then lets running work finish.
///
/// # Errors
/// Why it could not start, or stopped.
pub(crate) async fn run(args: UpArgs, verbose: u8) -> anyhow::Result<()> {
    let console = Console::choose(args.log_format.is_some() || verbose > 0);
    let telemetry = Telemetry {
        verbose,
        default_level: if console.is_on() { tracing::Level::WARN } else { tracing::Level::INFO },
        format: args.log_format.unwrap_or_default(),
        otlp_endpoint: args.otlp_endpoint.as_deref(),
        otlp_ratio: args.otlp_ratio,
    };
    let daemon = Daemon::start(&telemetry, console)?;
    let result = serve(&args, &daemon).await;
    daemon.end().await;
    result
}

/// What is opened before the ports. Each part may fail.
struct Prepared {
    data: PathBuf,
    claim: Claim<Listening>,
    store: Store,
    secrets: Secrets,
    certificates: Arc<Certificates>,
    /// The root certificate in PEM.
    root: String,
    /// The fingerprint of the root certificate.
    fingerprint: String,
    shards: Shards,
    geo: Option<Arc<Geo>>,
    site: Site,
    mail_hook: Option<sallyport_control::MailHook>,
    acme: Option<AcmeConfig>,
    resolver: Option<Resolver>,
}

impl Prepared {
    async fn open(args: &UpArgs, console: Console) -> anyhow::Result<Self> {
        // Before anything is written: a root is for one domain.
        let (acme, resolver) = (args.acme.config(&args.domain)?, args.names.resolver.open()?);
        let data = args.data.clone().or_else(default_data_dir).ok_or_else(|| {
            Failure::usage("there is no home directory to keep data in").next("name a directory with --data DIR")
        })?;
        // With a new data directory, the ports come first: if they are taken, no directory is left behind.
        let ports = if data.exists() { None } else { Some(ports::open(args, console)?) };
        let claim = Claim::begin(&data, args.takeover, Takeover::begin)?;
        let data = data.canonicalize().with_context(|| format!("cannot use {}", data.display()))?;
        let store = args.database.open(&data).await?;
        let secrets = database::secrets(&store, &data).await?;
        let ca = LocalCa::open_or_create(&data, &args.domain)?;
        let (root, fingerprint) = (ca.root_pem().to_owned(), ca.fingerprint().to_string());
        let certificates = Certificates::new(ca, &args.domain)?;
        let (shards, geo) = (threads::shards()?, args.geo.open()?);
        let site = args.site.open(&args.domain)?;
        let mail_hook = args.mail.hook()?;
        if acme.is_some() {
            certificates.require_public(true);
        }
        port_range::warn_of_overlap(&args.port_range.0);
        let claim = claim.with_ports(|| ports.map_or_else(|| ports::open(args, console), Ok))?;
        Ok(Self {
            data,
            claim,
            store,
            secrets,
            certificates,
            root,
            fingerprint,
            shards,
            geo,
            site,
            mail_hook,
            acme,
            resolver,
        })
    }
}

/// Everything between the first log line and the last.
async fn serve(args: &UpArgs, daemon: &Daemon) -> anyhow::Result<()> {
    let prepared = Prepared::open(args, daemon.console).await?;
    let Prepared { data, claim, store, secrets, certificates, root, fingerprint, shards, geo, site, .. } = prepared;
    let is_takeover = claim.is_takeover();
    let address = claim.addresses()?;
    let public = Public { ip: address.ip(), port: args.public_port.unwrap_or(address.port()) };
    let mut ssh = SshParts::open(args, &data, address.ip(), public.port, is_takeover)?;
    let quic = OpenedQuic::open(&args.quic, (address, public.port), shards.count(), is_takeover)?;
    let dns = DnsPorts::open(&args.dns, address, is_takeover)?;
    // All checks are done: from here on a replaced process has stopped.
    let (lock, mut listening) = claim.take(&data)?;
    if let Some(ssh) = &mut ssh {
        ssh.wait_for_port().await;
    }
    let bus = Bus::default();
    let (audit, asker) = (args.audit_log.open(&data, |purpose| secrets.derived(purpose))?, Asker::default());
    let affinity_key = secrets.derived("affinity");
    let mut config = config::of_control(args, &public, &data, geo.clone());
    config.id = database::own_id(&store, &data)?;
    config.quic_port = quic.as_ref().map(OpenedQuic::public_port);
    config.site = site.clone();
    (config.ca_pem, config.ca_fingerprint) = (Some(root), Some(fingerprint.clone()));
    config.ssh = ssh.as_ref().map(|ssh| ssh.info.clone());
    config.ssh_authority = ssh.as_ref().map(|ssh| ssh.authority.clone());
    (config.audit, config.asker, config.mail_hook) = (Some(audit.clone()), asker.clone(), prepared.mail_hook);
    (config.acme, config.resolver) = (prepared.acme, prepared.resolver);
    let identity = config::identity(&secrets, &bus);
    let (shared_secret, quic_secret) = (secrets.derived("seal"), secrets.derived("quic"));
    let sealer = Arc::new(Sealer::new(shared_secret));
    let announced_by = sealer.clone();
    let control = Control::start(config, store.clone(), bus.clone(), secrets).await?;
    public_names::follow(bus.certificates.clone(), sealer.clone(), certificates.clone());
    let own = match args.public_address.is_empty() {
        true => own_addresses(public.ip),
        false => args.public_address.clone(),
    };
    if is_takeover {
        tokio::spawn(api::reload_after_takeover(control.clone()));
    }

    let mut config = config::of_edge(args, public.port, geo, affinity_key);
    config.shards = shards;
    config.site = watch::Sender::new(Arc::new(site)).subscribe();
    config.identity = identity;
    config.challenges = bus.challenges.clone();
    config.audit = Some(EdgeAudit { sink: Arc::new(audit.clone()), all: args.audit_use.is_all() });
    let edge = Edge::new(config, bus.routes.clone(), bus.directory.clone(), api::api_service(&control));
    let parts = NameServerParts {
        bus: bus.clone(),
        sealer,
        shared_secret,
        own: own.clone(),
        own_port: public.port,
        own_http3_port: edge.http3_port(),
        resolver: args.names.resolver.open()?,
        domain: args.domain.clone(),
        identity: args.domain.clone(),
    };
    edge.join_steering(SteeringSettings {
        edge: LONE_EDGE,
        epoch: 1,
        bus: bus.steering.clone(),
        // Control runs in the same process.
        kept: None,
        restores: false,
    });
    let announcing = AnnouncingEdge {
        name: LONE_EDGE_NAME.parse().context("the name of the edge")?,
        region: None,
        own: &own,
        data: &data,
        bus: &bus,
        sealer: announced_by,
        nats: None,
    };
    if let Some(settings) = anycast::settings(&args.anycast, announcing) {
        edge.announce(settings);
    }
    // Control is in this process, and hears the edge always.
    let renewed = Arc::new(|| Some(Instant::now()));
    edge.carry_networks(bus.networks.clone());
    let (served, servers) = (bus.egress.clone(), args.names.resolver.resolver.clone());
    edge.leave_from(egress::settings(&args.egress, LONE_EDGE, served, &data, (renewed, servers)));
    let dns = dns.map(|ports| NameServer::start(ports, &args.dns, parts)).transpose()?;
    asker.set_responder(edge.answers());
    edge.ask_readiness("control cannot use its database", api::readiness(&control));
    let health = control.clone();
    edge.set_health_notes(Arc::new(move || health.health()));
    api::stop_waiting_at(daemon.shutdown.clone(), &control);
    if let Some(ssh) = ssh {
        edge.serve_ssh(ssh.settings(bus.ssh_logins, control.clone()));
    }
    let process = ProcessMetrics::new(certificates.clone());
    let counters = dns.as_ref().map(NameServer::counters);
    Metrics { edge: &edge, control: Some(&control), audit: &audit, stream: None, process, bus: None, dns: counters }
        .publish();

    if !quic.as_ref().is_some_and(OpenedQuic::has_http3) {
        edge.set_no_http3();
    }
    // If this process has no QUIC port, the former one goes on with its own.
    let inherited = std::mem::take(&mut listening.quic);
    let quic = quic.map(|opened| {
        let served = (&edge, certificates.clone());
        Quic::start(opened, inherited, (quic_secret, None), served, &own, daemon.shutdown.clone())
    });
    let passed = quic.as_ref().map(Quic::passed);
    let is_new = daemon.console.is_on() && store.count_accounts().await.is_ok_and(|count| count == 0);
    let redirect = listening.redirect_addr().ok().flatten();
    let name_server = dns.as_ref().map(|dns| public_names::on_this_machine(dns.address()));
    let public_names = args.acme.acme.is_some().then(|| {
        // A port mapping in front has both ports of the web.
        let plain = redirect
            .map(|address| if public.port == ports::PUBLIC_PORTS.0 { ports::PUBLIC_PORTS.1 } else { address.port() });
        let ports: Vec<u16> = std::iter::once(public.port).chain(plain).collect();
        public_names::warn_of_ports(&args.acme, &ports, name_server.is_some());
        public_names::note(&args.acme, &args.names.resolver, &args.domain, ports, own, name_server, !args.no_desk)
    });
    let mut role = Up {
        api: api::api_url(&args.domain, public.port),
        desk: (!args.no_desk).then(|| api::desk_url(&args.domain, public.port)),
        listen: address,
        redirect,
        fingerprint,
        is_new,
        console: daemon.console,
        data: &data,
        control: control.clone(),
        store,
        quic,
        dns,
        public_names,
    };
    let ports = HandOver::of(&listening)?.with_quic(passed);
    let tasks = control.order_certificates().into_iter().collect();
    let when_replaced = WhenReplaced { follower: Some(control), tasks, ..WhenReplaced::default() };
    let service = Service { edge, listening, certificates, lock, ports, data: &data, audit, when_replaced };
    let ended = daemon.serve(service, &mut role).await?;
    drop(ended.lock);
    let report = ended.report?;
    info!(finished = report.finished, cut = report.cut, "stopped");
    daemon.console.print("stopped");
    Ok(())
}

/// `sallyport up`, while it serves.
struct Up<'a> {
    api: String,
    /// The address of the desk; `None` without one.
    desk: Option<String>,
    listen: SocketAddr,
    redirect: Option<SocketAddr>,
    /// The fingerprint of the root certificate.
    fingerprint: String,
    /// Whether there is no account yet.
    is_new: bool,
    console: Console,
    data: &'a Path,
    control: Control,
    store: Store,
    quic: Option<Quic>,
    dns: Option<NameServer>,
    /// What `doctor` checks about names with certificates of public authorities.
    public_names: Option<PublicNames>,
}

impl Role for Up<'_> {
    fn ready(&self) -> Option<String> {
        let (api, root) = (&self.api, self.data.join("ca.pem"));
        let listens = std::iter::once(self.listen).chain(self.redirect).map(|address| address.to_string()).collect();
        let note = ServerNote::of_this_process(api, self.data, root.clone(), listens);
        server_note::announce(&ServerNote { public_names: self.public_names.clone(), ..note });
        info!(
            %api,
            listen = %self.listen,
            redirect = self.redirect.map(tracing::field::display),
            data = %self.data.display(),
            ca = %root.display(),
            ca_fingerprint = %self.fingerprint,
            "ready"
        );
        let desk = self.desk.as_deref();
        self.console.ready(&Ready { api, desk, data: self.data, root: &root, is_new: self.is_new });
        Some(format!("serving {api}"))
    }

    async fn drained(&mut self) {
        if let Some(quic) = self.quic.take() {
            quic.ended().await;
        }
        if let Some(dns) = self.dns.take() {
            dns.end().await;
        }
    }

    async fn leave(&mut self, is_replaced: bool) {
        if !is_replaced {
            self.control.leave().await;
        }
        server_note::remove(std::process::id());
        self.store.close().await;
    }
}
