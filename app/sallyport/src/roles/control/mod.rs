//! `sallyport control`: accounts, sockets, policies and the edges of an installation, without clients of its own.
//!
//! May use what `roles` may use.

pub(crate) mod args;
mod config;
mod issuer;
mod nodes;
mod ports;
mod ssh;

use std::{net::SocketAddr, path::Path, sync::Arc};

use anyhow::Context as _;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use sallyport_audit::AuditLog;
use sallyport_bus::{Asker, Bus, Directory, DirectoryRole, Nats, Routes, follow_directory};
use sallyport_control::{AcmeConfig, Control, EdgesConfig, MailHook, Secrets};
use sallyport_edge::{Edge, EdgeConfig};
use sallyport_geo::Geo;
use sallyport_identity::Sealer;
use sallyport_net::{Certificates, Listening, LocalCa, OwnPorts, Takeover, server_config_for_nodes};
use sallyport_pki::NODE_DOMAIN;
use sallyport_resolver::Resolver;
use sallyport_store::{DataDirLock, Store};
use tokio::{sync::watch, task::JoinHandle};
use tracing::{info, warn};

pub(crate) use self::args::ControlArgs;
use self::{issuer::Issuer, ports::ControlPorts, ssh::SshKeys};
use super::{api, public_names};
use crate::{
    daemon::{AuditStream, BusMetrics, Claim, Console, Daemon, Metrics, Role, Service, WhenReplaced, bus_health},
    failure::{Failure, Kind},
    installation::{self, Installation, NODES_DIR, database},
    machine::server_note::{self, PublicNames, ServerNote},
    runtime::{process_metrics::ProcessMetrics, telemetry::Telemetry, threads},
};

/// Runs until SIGTERM or SIGINT.
///
/// # Errors
/// Why it could not start, or stopped.
pub(crate) async fn run(args: ControlArgs, verbose: u8) -> anyhow::Result<()> {
    let daemon = Daemon::start(&Telemetry::of_server(verbose, args.log_format), Console::OFF)?;
    if !args.domain.contains('.') {
        // Clients refuse a wildcard certificate directly beneath a top-level domain.
        return Err(Failure::usage(format!("edges cannot have a certificate for *.{}", args.domain))
            .next("give a domain of two labels or more, such as tunnels.example.com or lab.localhost")
            .into());
    }
    std::fs::create_dir_all(&args.data).with_context(|| format!("cannot make {}", args.data.display()))?;
    let claim = Claim::begin(&args.data, args.takeover, Takeover::begin_control)?;
    let claim = claim.with_ports(|| ControlPorts::open(&args))?;
    let data = args.data.canonicalize().with_context(|| format!("cannot use {}", args.data.display()))?;
    let store = args.database.open(&data).await?;
    if let Err(error) = name_owner(&args, &store).await {
        store.close().await;
        return Err(error);
    }
    let served = match installation::open(&store, &data, &args.key, &args.domain).await {
        Ok(keys) => match Prepared::open(&args, keys) {
            Ok(prepared) => serve((&args, &daemon), &data, store.clone(), prepared, claim).await,
            Err(error) => Err(error),
        },
        Err(error) => Err(error),
    };
    store.close().await;
    // The lock is held to the end, unless another process has taken over.
    served.map(drop)
}

/// The installation's keys and other files, opened. Each part may fail.
struct Prepared {
    secrets: Secrets,
    /// For clients of the API.
    certificates: Arc<Certificates>,
    /// The root certificate of the API and the edges in PEM.
    root: String,
    /// The fingerprint of this root certificate.
    fingerprint: String,
    /// Signs certificates of edges.
    issuer: Issuer,
    /// The root certificate of machines, in PEM.
    node_root: String,
    /// The fingerprint of that root certificate.
    node_fingerprint: String,
    /// Serves edges.
    node_tls: Arc<rustls::ServerConfig>,
    ssh: Option<SshKeys>,
    geo: Option<Arc<Geo>>,
    mail_hook: Option<MailHook>,
    acme: Option<AcmeConfig>,
    resolver: Option<Resolver>,
}

impl Prepared {
    /// Opens the parts. The directory of the keys is gone afterwards.
    fn open(args: &ControlArgs, keys: Installation) -> anyhow::Result<Self> {
        let secrets = Secrets::open_or_create(keys.dir())?;
        let open_site = || LocalCa::open_or_create(keys.dir(), &args.domain);
        let open_nodes = || LocalCa::open_or_create(&keys.dir().join(NODES_DIR), NODE_DOMAIN);
        let (site, nodes) = (open_site()?, open_nodes()?);
        let (root, fingerprint) = (site.root_pem().to_owned(), site.fingerprint().to_string());
        let (node_root, node_fingerprint) = (nodes.root_pem().to_owned(), nodes.fingerprint().to_string());
        let node_tls = server_config_for_nodes(Certificates::new(nodes, NODE_DOMAIN)?, &node_root)?;
        let certificates = Certificates::new(site, &args.domain)?;
        let ssh = if args.no_ssh { None } else { Some(SshKeys::open(keys.dir())?) };
        let (geo, mail_hook) = (args.geo.open()?, args.mail.hook()?);
        let (acme, resolver) = (args.acme.config(&args.domain)?, args.names.resolver.open()?);
        let issuer = Issuer {
            site: open_site()?,
            nodes: open_nodes()?,
            domain: args.domain.clone(),
            lifetime: args.edge_certificates,
        };
        Ok(Self {
            secrets,
            certificates,
            root,
            fingerprint,
            issuer,
            node_root,
            node_fingerprint,
            node_tls,
            ssh,
            geo,
            mail_hook,
            acme,
            resolver,
        })
    }
}

/// Serves. Returns the data directory's lock unless another process has taken over.
async fn serve(
    (args, daemon): (&ControlArgs, &Daemon),
    data: &Path,
    store: Store,
    prepared: Prepared,
    claim: Claim<ControlPorts>,
) -> anyhow::Result<Option<DataDirLock>> {
    let Prepared { secrets, certificates, fingerprint, ssh, .. } = prepared;
    let nats = Nats::connect(&args.bus.config("sallyport control")?).await?;
    args.bus.check_edges().await?;
    let (address, edges_address) = claim.addresses()?;
    let mut bootstrap = config::bootstrap(args, &secrets, edges_address, prepared.root.clone(), prepared.node_root)?;
    bootstrap.ssh = ssh.as_ref().map(SshKeys::for_edges).transpose()?;
    // All checks are done: from here on a replaced process has stopped.
    let is_takeover = claim.is_takeover();
    let (lock, ports) = claim.take(data)?;

    let bus = Bus::default();
    let audit = args.audit_log.open(data, |purpose| secrets.derived(purpose))?;
    let stream = AuditStream::of_control(&audit, &nats, usize::from(args.bus_replicas))?;
    let site = args.site.open(&args.domain)?;
    let mut config = config::of_control(args, prepared.geo);
    config.id = database::own_id(&store, data)?;
    config.site = site.clone();
    (config.ca_pem, config.ca_fingerprint) = (Some(prepared.root), Some(fingerprint.clone()));
    (config.audit, config.mail_hook) = (Some(audit.clone()), prepared.mail_hook);
    (config.acme, config.resolver) = (prepared.acme, prepared.resolver);
    config.asker = Asker::over(nats.clone(), bus.fleet.clone());
    config.setup_token_file = config::setup_token_file(args, &[address, edges_address], data);
    if let Some(ssh) = &ssh {
        config.ssh = Some(ssh.info(args));
        config.ssh_authority = Some(ssh.authority.clone());
    }
    let sealer = Arc::new(Sealer::new(secrets.derived("seal")));
    let control = Control::start(config, store, bus.clone(), secrets).await?;
    public_names::follow(bus.certificates.clone(), sealer, certificates.clone());
    let fingerprint_of_nodes = prepared.node_fingerprint;
    control.take_edges(EdgesConfig { issuer: Arc::new(prepared.issuer), bootstrap, fingerprint: fingerprint_of_nodes });
    sallyport_bus::prepare(&nats, usize::from(args.bus_replicas)).await;
    if is_takeover {
        tokio::spawn(api::reload_after_takeover(control.clone()));
    }
    let published = control.publish_to(nats.clone(), bus.clone(), usize::from(args.bus_replicas));
    let role = DirectoryRole::Control { name: own_name()?, all: bus.directory.clone() };
    tokio::spawn(follow_directory(nats.clone(), role, bus.fleet.clone()));
    let steered = control.steer_over(nats.clone(), bus.steering.clone());

    // This edge has no sockets; it serves only the API and the login.
    let mut config = EdgeConfig::new(&args.domain, address.port());
    config.site = watch::Sender::new(Arc::new(site)).subscribe();
    (config.shards, config.shutdown_grace) = (threads::shards()?, args.drain);
    let api = api::api_service(&control);
    let edge = Edge::new(config, Routes::default(), Directory::default(), api);
    edge.ask_readiness("control cannot use its database", api::readiness(&control));
    api::stop_waiting_at(daemon.shutdown.clone(), &control);
    let health = (nats.clone(), bus.fleet.clone(), stream.clone(), control.clone());
    edge.set_health_notes(Arc::new(move || {
        let (nats, fleet, stream, control) = &health;
        format!("{}{}{}", bus_health(nats, fleet), stream.health(), control.health())
    }));
    let bus = BusMetrics { nats, fleet: bus.fleet, followed: None, published: Some(published.stats) };
    let (process, bus) = (ProcessMetrics::new(certificates.clone()), Some(bus));
    Metrics { edge: &edge, control: Some(&control), audit: &audit, stream: Some(&stream), process, bus, dns: None }
        .publish();

    let mut tasks = stream.abort_handles();
    tasks.push(steered);
    tasks.extend(control.order_certificates());
    let when_replaced = WhenReplaced { tasks, ..WhenReplaced::default() };
    let handed_over = ports.to_hand_over()?;
    let ends = (daemon.shutdown.clone(), args.drain);
    let nodes = tokio::spawn(nodes::serve(ports.edges, prepared.node_tls, control.clone(), ends));
    let public_names = args.acme.acme.is_some().then(|| {
        let ports = vec![args.public_port];
        public_names::note(&args.acme, &args.names.resolver, &args.domain, ports, Vec::new(), None, !args.no_desk)
    });
    let mut role = ControlRole {
        api: api::api_url(&args.domain, address.port()),
        listen: address,
        edges: edges_address,
        fingerprint,
        data,
        control,
        stream,
        audit: audit.clone(),
        nodes: Some(nodes),
        public_names,
    };
    let listening = Listening { tls: ports.api, redirect: None, own: OwnPorts::default(), quic: Vec::new() };
    let service = Service { edge, listening, certificates, lock, ports: handed_over, data, audit, when_replaced };
    let ended = daemon.serve(service, &mut role).await?;
    ended.report?;
    info!("stopped");
    Ok(ended.lock)
}

/// `sallyport control`, while it serves.
struct ControlRole<'a> {
    api: String,
    listen: SocketAddr,
    /// The address of the port for edges.
    edges: SocketAddr,
    /// The fingerprint of the root certificate.
    fingerprint: String,
    data: &'a Path,
    control: Control,
    stream: AuditStream,
    audit: AuditLog,
    /// The task that serves edges.
    nodes: Option<JoinHandle<()>>,
    /// What `doctor` checks about names with certificates of public authorities.
    public_names: Option<PublicNames>,
}

impl Role for ControlRole<'_> {
    fn ready(&self) -> Option<String> {
        let Self { api, listen, edges, fingerprint, data, .. } = self;
        let listens = vec![listen.to_string(), edges.to_string()];
        let note = ServerNote::of_this_process(api, data, data.join("ca.pem"), listens);
        server_note::announce(&ServerNote { public_names: self.public_names.clone(), ..note });
        info!(%api, %listen, %edges, data = %data.display(), ca_fingerprint = %fingerprint, "ready");
        None
    }

    async fn drained(&mut self) {
        if let Some(nodes) = self.nodes.take() {
            drop(nodes.await);
        }
    }

    async fn leave(&mut self, is_replaced: bool) {
        server_note::remove(std::process::id());
        if !is_replaced {
            self.control.leave().await;
            self.stream.end(&self.audit).await;
        }
    }
}

/// Makes the named account the owner of the installation, and logs if there is no owner.
async fn name_owner(args: &ControlArgs, store: &Store) -> anyhow::Result<()> {
    let Some(email) = &args.owner else {
        if store.first_account().await?.is_none() && store.count_accounts().await? > 0 {
            warn!("this installation has no owner, so that no edges can join: name an account with --owner EMAIL");
        }
        return Ok(());
    };
    let found = store.account_for_login(email).await?;
    let Some((account, _)) = found else {
        return Err(Failure::new(
            Kind::NotFound,
            format!("there is no account {email} that could own the installation"),
        )
        .next("start without --owner, and make it with `sallyport account create`")
        .into());
    };
    if store.first_account().await? != Some(account.id) {
        store.hand_over(account.id).await?;
        info!(account = %account.id, "the installation has another owner");
    }
    Ok(())
}

/// The name by which this control recognizes itself on the bus.
fn own_name() -> anyhow::Result<String> {
    let mut bytes = [0; 12];
    getrandom::fill(&mut bytes).map_err(|error| anyhow::anyhow!("the system gave no random numbers: {error}"))?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}
