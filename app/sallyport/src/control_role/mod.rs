//! `sallyport control`: accounts, sockets, policies and the edges of an installation, without clients of its own.

pub(crate) mod args;
mod issuer;
mod nodes;

use std::{
    net::{Ipv6Addr, SocketAddr},
    path::Path,
    sync::Arc,
};

use anyhow::Context as _;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use prometheus_client::registry::Registry;
use sallyport_api::{EdgeWorld, Secret};
use sallyport_audit::{AUDIT_DIR, AuditConfig, AuditLog};
use sallyport_bus::{Bus, BusCredentials, Directory, DirectoryRole, LiveFlows, Nats, Routes, follow_directory};
use sallyport_control::{
    AddressDatabases, Control, ControlConfig, EdgesConfig, Reach, Secrets, SignUp, default_ports_per_account,
};
use sallyport_edge::{Edge, EdgeConfig};
use sallyport_net::{Certificates, Listening, LocalCa, OwnPorts, Shutdown, server_config_for_nodes};
use sallyport_pki::NODE_DOMAIN;
use sallyport_store::{DataDirLock, Store};
use tracing::{info, warn};

pub(crate) use self::args::ControlArgs;
use self::issuer::Issuer;
use crate::{
    bus_metrics::BusMetrics,
    database,
    failure::Failure,
    local,
    telemetry::Telemetry,
    threads,
    up::{AUDIT_KEY, args::SignUpChoice},
};

/// The folder of the authority of the installation's machines, in the data directory.
const NODES_DIR: &str = "nodes";
/// How long the audit log is kept, and how large it may become.
const AUDIT_KEEP: std::time::Duration = std::time::Duration::from_secs(90 * 86_400);
const MAX_AUDIT_BYTES: u64 = 1 << 30;

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
    crate::up::stop_on_signals(&shutdown)?;
    if !args.domain.contains('.') {
        // Clients refuse one certificate for all names directly beneath a top-level domain.
        return Err(Failure::usage(format!("edges cannot have a certificate for *.{}", args.domain))
            .next("give a domain of two labels or more, such as tunnels.example.com or lab.localhost")
            .into());
    }
    std::fs::create_dir_all(&args.data).with_context(|| format!("cannot make {}", args.data.display()))?;
    let lock = DataDirLock::take(&args.data)?;
    let data = args.data.canonicalize().with_context(|| format!("cannot use {}", args.data.display()))?;
    let store = args.database.open(&data).await?;
    let secrets = database::secrets(&store, &data).await?;
    let served = serve(&args, &data, store.clone(), secrets, shutdown).await;
    store.close().await;
    drop(lock);
    served
}

async fn serve(
    args: &ControlArgs,
    data: &Path,
    store: Store,
    secrets: Secrets,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    let nodes_dir = data.join(NODES_DIR);
    std::fs::create_dir_all(&nodes_dir).with_context(|| format!("cannot make {}", nodes_dir.display()))?;
    let open_site = || LocalCa::open_or_create(data, &args.domain);
    let open_nodes = || LocalCa::open_or_create(&nodes_dir, NODE_DOMAIN);
    let (site, nodes) = (open_site()?, open_nodes()?);
    let (ca_pem, fingerprint) = (site.root_pem().to_owned(), site.fingerprint().to_string());
    let (node_ca, node_fingerprint) = (nodes.root_pem().to_owned(), nodes.fingerprint().to_string());
    let node_tls = server_config_for_nodes(Certificates::new(nodes, NODE_DOMAIN)?, &node_ca)?;
    let certificates = Certificates::new(site, &args.domain)?;

    let nats = Nats::connect(&args.bus.config("sallyport control")?).await?;
    let unspecified = Ipv6Addr::UNSPECIFIED.into();
    let listen = args.listen.with_default(unspecified);
    let tls = sallyport_net::listen(listen, "--listen")?;
    let edges = sallyport_net::listen(args.listen_edges.with_default(unspecified), "--listen-edges")?;
    let (address, edges_address) = (tls.local_addr()?, edges.local_addr()?);

    let bus = Bus::default();
    let audit = open_audit(data, &secrets)?;
    let config = control_config(args, ca_pem.clone(), fingerprint.clone(), audit.clone());
    let world = world(args, &secrets, edges_address, ca_pem, node_ca)?;
    let control = Control::start(config, store, bus.clone(), secrets).await?;
    let issuer = Issuer {
        site: open_site()?,
        nodes: open_nodes()?,
        domain: args.domain.clone(),
        lifetime: args.edge_certificates,
    };
    control.take_edges(EdgesConfig { issuer: Arc::new(issuer), world, fingerprint: node_fingerprint });
    let published = control.publish_to(nats.clone(), bus.clone(), usize::from(args.bus_replicas));
    let role = DirectoryRole::Control { name: own_name()?, all: bus.directory.clone() };
    tokio::spawn(follow_directory(nats.clone(), role, bus.fleet.clone()));

    // No sockets are served here: what this edge answers is the API and the login.
    let mut config = EdgeConfig::new(&args.domain, address.port());
    config.shards = threads::shards()?;
    let api = crate::up::api_service(&control, &args.domain);
    let edge = Edge::new(config, Routes::default(), Directory::default(), api);
    let asked = control.clone();
    edge.ask_readiness(Arc::new(move || {
        let control = asked.clone();
        Box::pin(async move { control.check().await })
    }));
    let health = (nats.clone(), bus.fleet.clone());
    edge.tell_health(Arc::new(move || crate::edge_role::health_of_bus(&health.0, &health.1)));
    let mut registry = Registry::default();
    edge.register_metrics(&mut registry);
    control.register_metrics(&mut registry);
    audit.register_metrics(&mut registry);
    BusMetrics { nats, fleet: bus.fleet, followed: None, published: Some(published.stats) }.register(&mut registry);
    edge.publish_metrics(registry);

    let api = crate::up::api_url(&args.domain, address.port());
    let note = local::Local { api: api.clone(), ca: data.join("ca.pem"), pid: std::process::id() };
    if let Err(error) = local::write(&note) {
        warn!(%error, "commands of this machine will not find this process by themselves: give them --api and --ca");
    }
    info!(%api, listen = %address, edges = %edges_address, data = %data.display(), ca_fingerprint = %fingerprint, "ready");
    sallyport_net::notify_ready();
    let nodes = tokio::spawn(nodes::serve(edges, node_tls, control, shutdown.clone()));
    let listening = Listening { tls, redirect: None, own: OwnPorts::default() };
    let report = edge.serve(listening, certificates, shutdown.clone()).await;
    shutdown.trigger();
    drop(nodes.await);
    local::remove(std::process::id());
    if let Err(error) = tokio::task::block_in_place(|| audit.close()) {
        warn!(%error, "the last events of the audit log may not be on disk");
    }
    report.map(|_| info!("stopped"))
}

/// By which this control hears itself on the bus.
fn own_name() -> anyhow::Result<String> {
    let mut bytes = [0; 12];
    getrandom::fill(&mut bytes).map_err(|error| anyhow::anyhow!("the system gave no random numbers: {error}"))?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

fn open_audit(data: &Path, secrets: &Secrets) -> anyhow::Result<AuditLog> {
    let config = AuditConfig {
        key: secrets.derived(AUDIT_KEY),
        keep: AUDIT_KEEP,
        max_bytes: MAX_AUDIT_BYTES,
        syslog: None,
        otlp: None,
    };
    Ok(tokio::task::block_in_place(|| AuditLog::open(&data.join(AUDIT_DIR), config))?)
}

fn control_config(args: &ControlArgs, ca_pem: String, fingerprint: String, audit: AuditLog) -> ControlConfig {
    let sign_up = match args.sign_up {
        Some(SignUpChoice::Open) => SignUp::Open,
        _ => SignUp::Closed,
    };
    ControlConfig {
        domain: args.domain.clone(),
        public_port: args.public_port,
        tunnel_host: format!("tunnel.{}", args.domain),
        quic_port: None,
        ca_pem: Some(ca_pem),
        ca_fingerprint: Some(fingerprint),
        sign_up,
        port_range: args.port_range.0.clone(),
        ports_per_account: default_ports_per_account(&args.port_range.0),
        requires_amplification_guard: false,
        ssh: None,
        ssh_authority: None,
        databases: AddressDatabases::default(),
        provider_reach: if sign_up == SignUp::Open { Reach::Public } else { Reach::Anywhere },
        geo: None,
        audit: Some(audit),
        flows: LiveFlows::default(),
    }
}

/// What edges are told.
fn world(
    args: &ControlArgs,
    secrets: &Secrets,
    edges: SocketAddr,
    ca: String,
    node_ca: String,
) -> anyhow::Result<EdgeWorld> {
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
    let (bus_user, bus_password, bus_token) = match args.bus.config("")?.credentials {
        BusCredentials::None => (None, None, None),
        BusCredentials::Password { user, password } => (Some(user), Some(Secret::from(password)), None),
        BusCredentials::Token(token) => (None, None, Some(Secret::from(token))),
    };
    Ok(EdgeWorld {
        domain: args.domain.clone(),
        ca,
        node_ca,
        controls,
        bus: args.bus.servers.clone(),
        bus_user,
        bus_password,
        bus_token,
        bus_ca: bus_ca.transpose()?,
        seal_key: key("seal"),
        assertion_key: key("assertions"),
        affinity_key: key("affinity"),
    })
}
