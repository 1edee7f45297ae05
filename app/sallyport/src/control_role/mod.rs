//! `sallyport control`: accounts, sockets, policies and the edges of an installation, without clients of its own.

pub(crate) mod args;
mod issuer;
mod nodes;
mod takeover;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::Context as _;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use prometheus_client::registry::Registry;
use sallyport_api::{EdgeBootstrap, EdgeSsh, Secret};
use sallyport_audit::AuditLog;
use sallyport_bus::{Asker, Bus, BusCredentials, Directory, DirectoryRole, Nats, Routes, follow_directory};
use sallyport_control::{
    AddressDatabases, Control, ControlConfig, EdgesConfig, Reach, SETUP_TOKEN_FILE, Secrets, SignUp, SshInfo,
    default_ports_per_account,
};
use sallyport_edge::{Edge, EdgeConfig};
use sallyport_http::page::Site;
use sallyport_net::{Certificates, Listening, LocalCa, OwnPorts, Shutdown, server_config_for_nodes};
use sallyport_pki::NODE_DOMAIN;
use sallyport_policy::DialedNetworks;
use sallyport_ssh::{HostKeys, UserAuthority};
use sallyport_store::{DataDirLock, HolderId, Store};
use tokio::sync::watch;
use tracing::{info, warn};

pub(crate) use self::args::ControlArgs;
use self::{issuer::Issuer, takeover::Held};
use crate::{
    audit_stream::AuditStream,
    bus_metrics::BusMetrics,
    database,
    duties::Duties,
    failure::{Failure, Kind},
    installation::{self, Installation, NODES_DIR},
    local,
    process_metrics::ProcessMetrics,
    telemetry::Telemetry,
    threads,
    up::args::SignUpChoice,
};

/// Runs until SIGTERM or SIGINT.
///
/// # Errors
/// What kept it from starting, or made it stop.
pub(crate) async fn run(args: ControlArgs, verbose: u8) -> anyhow::Result<()> {
    let telemetry = Telemetry {
        verbose,
        default_level: tracing::Level::INFO,
        format: args.log_format,
        otlp_endpoint: None,
        otlp_ratio: 0.0,
    };
    let (_log, _) = telemetry.start()?;
    let shutdown = Shutdown::new();
    crate::up::stop_on_signals(&shutdown, crate::up::console::Console::OFF)?;
    if !args.domain.contains('.') {
        // Clients refuse one certificate for all names directly beneath a top-level domain.
        return Err(Failure::usage(format!("edges cannot have a certificate for *.{}", args.domain))
            .next("give a domain of two labels or more, such as tunnels.example.com or lab.localhost")
            .into());
    }
    std::fs::create_dir_all(&args.data).with_context(|| format!("cannot make {}", args.data.display()))?;
    let held = Held::begin(&args)?;
    let data = args.data.canonicalize().with_context(|| format!("cannot use {}", args.data.display()))?;
    let store = args.database.open(&data).await?;
    if let Err(error) = name_owner(&args, &store).await {
        store.close().await;
        return Err(error);
    }
    let served = match installation::open(&store, &data, &args.key, &args.domain).await {
        Ok(keys) => serve(&args, &data, store.clone(), keys, held, shutdown).await,
        Err(error) => Err(error),
    };
    store.close().await;
    // Held to the end, unless another process has taken over.
    served.map(drop)
}

async fn serve(
    args: &ControlArgs,
    data: &Path,
    store: Store,
    keys: Installation,
    held: Held,
    shutdown: Shutdown,
) -> anyhow::Result<Option<DataDirLock>> {
    let secrets = Secrets::open_or_create(keys.dir())?;
    let open_site = || LocalCa::open_or_create(keys.dir(), &args.domain);
    let open_nodes = || LocalCa::open_or_create(&keys.dir().join(NODES_DIR), NODE_DOMAIN);
    let (site, nodes) = (open_site()?, open_nodes()?);
    let (ca_pem, fingerprint) = (site.root_pem().to_owned(), site.fingerprint().to_string());
    let (node_ca, node_fingerprint) = (nodes.root_pem().to_owned(), nodes.fingerprint().to_string());
    let node_tls = server_config_for_nodes(Certificates::new(nodes, NODE_DOMAIN)?, &node_ca)?;
    let certificates = Certificates::new(site, &args.domain)?;
    let ssh = if args.no_ssh { None } else { Some(SshKeys::open(keys.dir())?) };
    let geo = crate::up::open_geo(&args.geo)?;
    let mail_hook = args.mail.hook()?;
    let issuer = Issuer {
        site: open_site()?,
        nodes: open_nodes()?,
        domain: args.domain.clone(),
        lifetime: args.edge_certificates,
    };
    // What lay there while it was opened is taken away.
    drop(keys);

    let nats = Nats::connect(&args.bus.config("sallyport control")?).await?;
    args.bus.check_edges().await?;
    let (address, edges_address) = held.addresses()?;
    let mut world = world(args, &secrets, edges_address, ca_pem.clone(), node_ca)?;
    world.ssh = ssh.as_ref().map(SshKeys::told).transpose()?;
    // All that could be refused has been looked at: from here on a process that is replaced has stopped.
    let takes_over = held.is_by_other();
    let (lock, ports) = held.take(data)?;

    let bus = Bus::default();
    let audit = args.audit_log.open(data, |purpose| secrets.derived(purpose))?;
    let gathered = AuditStream::of_control(&audit, &nats, usize::from(args.bus_replicas))?;
    let asker = Asker::over(nats.clone(), bus.fleet.clone());
    let site = args.site.open(&args.domain)?;
    let mut config = control_config(args, ca_pem, fingerprint.clone(), site.clone(), audit.clone(), asker);
    config.id = database::own_id(&store, data)?;
    config.mail_hook = mail_hook;
    config.setup_token_file = setup_token_file(args, &[address, edges_address], data);
    config.databases = AddressDatabases {
        country: geo.as_ref().is_some_and(|geo| geo.has_country()),
        asn: geo.as_ref().is_some_and(|geo| geo.has_asn()),
    };
    config.geo = geo;
    if let Some(ssh) = &ssh {
        config.ssh = Some(ssh.info(args));
        config.ssh_authority = Some(ssh.authority.clone());
    }
    let control = Control::start(config, store, bus.clone(), secrets).await?;
    control.take_edges(EdgesConfig { issuer: Arc::new(issuer), bootstrap: world, fingerprint: node_fingerprint });
    sallyport_bus::prepare(&nats, usize::from(args.bus_replicas)).await;
    if takes_over {
        sallyport_net::spawn_boxed(crate::up::reload_after_takeover(control.clone()));
    }
    let published = control.publish_to(nats.clone(), bus.clone(), usize::from(args.bus_replicas));
    let role = DirectoryRole::Control { name: own_name()?, all: bus.directory.clone() };
    sallyport_net::spawn_boxed(follow_directory(nats.clone(), role, bus.fleet.clone()));

    // No sockets are served here: what this edge answers is the API and the login.
    let mut config = EdgeConfig::new(&args.domain, address.port());
    config.site = watch::Sender::new(Arc::new(site)).subscribe();
    (config.shards, config.drain) = (threads::shards()?, args.drain);
    let api = crate::up::api_service(&control, &args.domain);
    let edge = Edge::new(config, Routes::default(), Directory::default(), api);
    let asked = control.clone();
    edge.ask_readiness(
        "control cannot use its database",
        Arc::new(move || {
            let control = asked.clone();
            Box::pin(async move { control.check().await })
        }),
    );
    let health = (nats.clone(), bus.fleet.clone(), gathered.clone());
    edge.tell_health(Arc::new(move || {
        format!("{}{}", crate::edge_role::health_of_bus(&health.0, &health.1), health.2.health())
    }));
    let mut registry = Registry::default();
    edge.register_metrics(&mut registry);
    control.register_metrics(&mut registry);
    audit.register_metrics(&mut registry);
    gathered.register(&mut registry);
    ProcessMetrics::new(certificates.clone()).register(&mut registry);
    BusMetrics { nats, fleet: bus.fleet, followed: None, published: Some(published.stats) }.register(&mut registry);
    edge.publish_metrics(registry);

    let api = crate::up::api_url(&args.domain, address.port());
    let listen = vec![address.to_string(), edges_address.to_string()];
    let note = local::Local::of_this_process(&api, data, data.join("ca.pem"), listen);
    if let Err(error) = local::write(&note) {
        warn!(%error, "commands of this machine will not find this process by themselves: give them --api and --ca");
    }
    info!(%api, listen = %address, edges = %edges_address, data = %data.display(), ca_fingerprint = %fingerprint, "ready");
    sallyport_net::notify_ready();
    let duties = (lock, ports.to_hand_over()?, data);
    let duties = Duties::new(duties, audit.clone(), None, gathered.abort_handles())?;
    let duties = sallyport_net::spawn_boxed(duties.until_over(shutdown.clone()));
    let nodes = nodes::serve(ports.edges, node_tls, control.clone(), (shutdown.clone(), args.drain));
    let nodes = sallyport_net::spawn_boxed(nodes);
    let listening = Listening { tls: ports.api, redirect: None, own: OwnPorts::default() };
    let report = edge.serve(listening, certificates, shutdown.clone()).await;
    shutdown.trigger();
    drop(nodes.await);
    let lock = duties.await?;
    local::remove(std::process::id());
    if lock.is_some() {
        control.leave().await;
        gathered.end(&audit).await;
        if let Err(error) = tokio::task::block_in_place(|| audit.close()) {
            warn!(%error, "the last events of the audit log may not be on disk");
        }
    }
    report?;
    info!("stopped");
    Ok(lock)
}

/// Where the setup token is, with which the first account is made unless all of the installation is on this machine.
fn setup_token_file(args: &ControlArgs, listens_on: &[SocketAddr], data: &Path) -> Option<PathBuf> {
    let is_local = crate::up::is_of_this_machine(&args.domain)
        && listens_on.iter().all(|address| address.ip().to_canonical().is_loopback());
    (!is_local).then(|| data.join(SETUP_TOKEN_FILE))
}

/// What edges and the API need to take stock ssh clients.
struct SshKeys {
    host: HostKeys,
    authority: UserAuthority,
}

impl SshKeys {
    fn open(dir: &Path) -> anyhow::Result<Self> {
        let host = HostKeys::open_or_create(dir).context("the host keys for ssh cannot be used")?;
        let authority = UserAuthority::open_or_create(dir).context("the authority for ssh keys cannot be used")?;
        Ok(Self { host, authority })
    }

    /// What the API tells of it.
    fn info(&self, args: &ControlArgs) -> SshInfo {
        let (host, port) = (crate::up::ssh::host(&args.domain), args.ssh_port.unwrap_or(args.public_port));
        SshInfo { known_hosts: self.host.known_hosts_lines(&host, port), host, port }
    }

    /// What edges are told: to know certificates, and not to make any.
    fn told(&self) -> anyhow::Result<EdgeSsh> {
        let host_keys = self.host.to_openssh()?.into_iter().map(Secret::from).collect();
        Ok(EdgeSsh { host_keys, authority: self.authority.public_key().to_openssh()? })
    }
}

/// Makes the account that was named the owner of the installation, and says so when it has none.
async fn name_owner(args: &ControlArgs, store: &Store) -> anyhow::Result<()> {
    let Some(email) = &args.owner else {
        if store.first_account().await?.is_none() && store.count_accounts().await? > 0 {
            warn!("nobody owns this installation, so that no edges can join: name an account with --owner EMAIL");
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

/// By which this control hears itself on the bus.
fn own_name() -> anyhow::Result<String> {
    let mut bytes = [0; 12];
    getrandom::fill(&mut bytes).map_err(|error| anyhow::anyhow!("the system gave no random numbers: {error}"))?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

fn control_config(
    args: &ControlArgs,
    ca_pem: String,
    fingerprint: String,
    site: Site,
    audit: AuditLog,
    asker: Asker,
) -> ControlConfig {
    let sign_up = match args.sign_up {
        Some(SignUpChoice::Open) => SignUp::Open,
        _ => SignUp::Closed,
    };
    ControlConfig {
        id: HolderId::default(),
        domain: args.domain.clone(),
        site,
        public_port: args.public_port,
        tunnel_host: format!("tunnel.{}", args.domain),
        quic_port: args.quic_port,
        ca_pem: Some(ca_pem),
        ca_fingerprint: Some(fingerprint),
        sign_up,
        port_range: args.port_range.0.clone(),
        ports_per_account: default_ports_per_account(&args.port_range.0),
        requires_amplification_guard: false,
        ssh: None,
        ssh_authority: None,
        direct_origins: DialedNetworks::new(args.direct_origins.clone()),
        databases: AddressDatabases::default(),
        provider_reach: if sign_up == SignUp::Open { Reach::Public } else { Reach::Anywhere },
        geo: None,
        audit: Some(audit),
        asker,
        mail_hook: None,
        setup_token_file: None,
    }
}

/// What edges are told.
fn world(
    args: &ControlArgs,
    secrets: &Secrets,
    edges: SocketAddr,
    ca: String,
    node_ca: String,
) -> anyhow::Result<EdgeBootstrap> {
    let key = |purpose: &str| Secret::from(URL_SAFE_NO_PAD.encode(secrets.derived(purpose)));
    let controls = match args.advertise.as_slice() {
        [] if edges.ip().is_unspecified() => {
            return Err(Failure::usage("it is not known where edges find this control")
                .next("say it with --advertise HOST:PORT, such as control.example.com:8444")
                .into());
        }
        [] => vec![edges.to_string()],
        said => said.to_vec(),
    };
    let bus_ca = args.bus.authority.as_ref().map(|path| {
        std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the authority of the bus {}", path.display()))
    });
    let (bus_user, bus_password, bus_token) = match args.bus.config_of_edges()?.credentials {
        BusCredentials::None => (None, None, None),
        BusCredentials::Password { user, password } => (Some(user), Some(Secret::from(password)), None),
        BusCredentials::Token(token) => (None, None, Some(Secret::from(token))),
    };
    let mut world = EdgeBootstrap {
        domain: args.domain.clone(),
        site_name: None,
        site_icon: None,
        ca,
        node_ca,
        controls,
        bus: args.bus.servers.clone(),
        bus_user,
        bus_password,
        bus_token,
        bus_ca: bus_ca.transpose()?,
        ssh: None,
        seal_key: key("seal"),
        assertion_key: key("assertions"),
        affinity_key: key("affinity"),
    };
    args.site.tell(&mut world)?;
    Ok(world)
}
