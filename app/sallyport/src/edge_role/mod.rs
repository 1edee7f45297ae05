//! `sallyport edge`: takes clients and tunnels of an installation whose control runs elsewhere.

pub(crate) mod args;
mod control_link;
mod join;
mod state;

use std::{
    net::{Ipv6Addr, SocketAddr},
    path::Path,
    sync::Arc,
    time::Instant,
};

use anyhow::Context as _;
use prometheus_client::registry::Registry;
use sallyport_audit::{AUDIT_DIR, AuditConfig, AuditLog};
use sallyport_bus::{
    Bus, ConfigFollowed, DirectoryRole, EdgeCard, Fleet, Nats, Snapshot, follow_config, follow_directory,
};
use sallyport_control::Secrets;
use sallyport_edge::{Edge, EdgeAudit, EdgeConfig, EdgeIdentity};
use sallyport_identity::{AssertionKey, Sealer};
use sallyport_net::{Certificates, Listening, OwnPorts, Shutdown};
use sallyport_store::DataDirLock;
use tokio::sync::watch;
use tracing::{info, warn};

pub(crate) use self::args::EdgeArgs;
use self::state::EdgeState;
use crate::{
    bus_metrics::BusMetrics,
    failure::Failure,
    telemetry::Telemetry,
    threads,
    up::{AUDIT_KEY, args::RedirectAddress},
};

/// How long the audit log is kept, and how large it may become.
const AUDIT_KEEP: std::time::Duration = std::time::Duration::from_secs(90 * 86_400);
const MAX_AUDIT_BYTES: u64 = 1 << 30;

/// Runs until SIGTERM or SIGINT, then lets what runs finish.
///
/// # Errors
/// What kept it from starting, or made it stop.
pub(crate) async fn run(args: EdgeArgs, verbose: u8) -> anyhow::Result<()> {
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
    let data = args.data.clone().ok_or_else(|| {
        Failure::usage("an edge needs a place to keep who it is").next("name a directory with --data DIR")
    })?;
    std::fs::create_dir_all(&data).with_context(|| format!("cannot make {}", data.display()))?;
    let lock = DataDirLock::take(&data)?;
    let data = data.canonicalize().with_context(|| format!("cannot use {}", data.display()))?;
    let mut state = match EdgeState::read(&data)? {
        Some(state) => {
            check(&args, &state)?;
            state
        }
        None => {
            let state = join::join(&args).await?;
            // The token is used up: what came for it is kept before anything else can fail.
            state.write(&data)?;
            state
        }
    };
    state.epoch = next_epoch(state.epoch);
    state.write(&data)?;
    let served = serve(&args, &data, state, shutdown).await;
    drop(lock);
    served
}

/// Greater than that of all former lives, whatever the clock says.
fn next_epoch(last: u64) -> u64 {
    let clock = u64::try_from(join::now()).unwrap_or(0).saturating_mul(1_000);
    clock.max(last + 1)
}

/// An edge that has joined is who it is.
fn check(args: &EdgeArgs, state: &EdgeState) -> Result<(), Failure> {
    let other = |what: &str, is: &dyn std::fmt::Display, wanted: &dyn std::fmt::Display| {
        Failure::usage(format!("this edge has joined with the {what} {is}, and not {wanted}"))
            .next(format!("leave --{what} out, or join anew in an empty data directory"))
    };
    if let Some(name) = args.name.as_ref().filter(|name| **name != state.name) {
        return Err(other("name", &state.name, name));
    }
    if let Some(region) = args.region.as_ref().filter(|region| **region != state.region) {
        return Err(other("region", &state.region, region));
    }
    Ok(())
}

async fn serve(args: &EdgeArgs, data: &Path, state: EdgeState, shutdown: Shutdown) -> anyhow::Result<()> {
    let unspecified = Ipv6Addr::UNSPECIFIED.into();
    let tls = sallyport_net::listen(args.listen.with_default(unspecified), "--listen")?;
    let address = tls.local_addr()?;
    let redirect = match args.listen_http {
        RedirectAddress::Nowhere => None,
        RedirectAddress::At(at) => Some(sallyport_net::listen(at.with_default(address.ip()), "--listen-http")?),
    };
    let domain = state.world.domain.clone();
    let certificates = Certificates::given(&state.certificates.server, state.key.expose(), &domain)?;
    let (bus, followed) = (Bus::default(), ConfigFollowed::default());
    let known = known(data, &bus);
    let nats = Nats::connect(&state.bus(data)).await?;
    let link = join::link(&state)?;

    let audit = open_audit(data)?;
    let mut config = EdgeConfig::new(&domain, args.advertise.first().map_or(address.port(), SocketAddr::port));
    config.drain = args.drain;
    config.trusted_proxies.clone_from(&args.trust_proxy);
    config.access_log = !args.no_access_log;
    config.shards = threads::shards()?;
    config.affinity_key = state::key(&state.world.affinity_key)?.into();
    config.identity = Some(EdgeIdentity {
        sealer: Arc::new(Sealer::new(state::key(&state.world.seal_key)?)),
        identities: bus.identities.clone(),
        assertions: Arc::new(
            AssertionKey::new(state::key(&state.world.assertion_key)?)
                .context("a key of the installation is damaged")?,
        ),
    });
    config.audit = Some(EdgeAudit { sink: Arc::new(audit.clone()), all: false });
    let edge = Edge::new(config, bus.routes.clone(), bus.directory.clone(), link.api());
    let health = (nats.clone(), bus.fleet.clone(), followed.clone());
    edge.tell_health(Arc::new(move || {
        let stale = if health.2.is_present() { "" } else { "configuration: not of the present\n" };
        format!("{stale}{}", health_of_bus(&health.0, &health.1))
    }));
    let mut registry = Registry::default();
    edge.register_metrics(&mut registry);
    audit.register_metrics(&mut registry);
    let metrics =
        BusMetrics { nats: nats.clone(), fleet: bus.fleet.clone(), followed: Some(followed.clone()), published: None };
    metrics.register(&mut registry);
    edge.publish_metrics(registry);

    let ends = watch::Sender::new(false);
    let card = card(args, &state, address);
    let role = DirectoryRole::Edge { card, epoch: state.epoch, own: bus.directory.clone(), ends: ends.subscribe() };
    let directory = tokio::spawn(follow_directory(nats.clone(), role, bus.fleet.clone()));
    let (name, region) = (state.name.clone(), state.region.clone());
    let following = tokio::spawn(follow_config(nats, bus, data.to_owned(), known, followed));
    let renewal = join::Renewal { dir: data.to_owned(), state, link, served: certificates.clone() };
    let renewing = tokio::spawn(renewal.run());
    info!(edge = %name, %region, listen = %address, data = %data.display(), "ready");
    sallyport_net::notify_ready();
    sallyport_net::notify_status(&format!("edge {name} in {region}"));

    let listening = Listening { tls, redirect, own: OwnPorts::default() };
    let report = edge.serve(listening, certificates, shutdown.clone()).await;
    // The last word comes after the last tunnel has gone.
    ends.send_replace(true);
    drop(tokio::time::timeout(std::time::Duration::from_secs(2), directory).await);
    following.abort();
    renewing.abort();
    if let Err(error) = tokio::task::block_in_place(|| audit.close()) {
        warn!(%error, "the last events of the audit log may not be on disk");
    }
    let report = report?;
    info!(finished = report.finished, cut = report.cut, "stopped");
    Ok(())
}

/// What was known when this edge last ran, which is served from now on.
fn known(data: &Path, bus: &Bus) -> Snapshot {
    match Snapshot::read(data) {
        Ok(Some(snapshot)) => {
            snapshot.entries.values().for_each(|value| bus.apply_config(value.clone()));
            info!(entries = snapshot.entries.len(), "serving what was known");
            snapshot
        }
        Ok(None) => Snapshot::default(),
        Err(error) => {
            warn!(%error, "nothing is known yet");
            Snapshot::default()
        }
    }
}

fn card(args: &EdgeArgs, state: &EdgeState, address: SocketAddr) -> EdgeCard {
    EdgeCard {
        edge: state.id,
        name: state.name.clone(),
        region: state.region.clone(),
        addresses: if args.advertise.is_empty() { vec![address] } else { args.advertise.clone() },
        program: env!("CARGO_PKG_VERSION").to_owned(),
        since: join::now(),
    }
}

fn open_audit(data: &Path) -> anyhow::Result<AuditLog> {
    let secrets = Secrets::open_or_create(data)?;
    let config = AuditConfig {
        key: secrets.derived(AUDIT_KEY),
        keep: AUDIT_KEEP,
        max_bytes: MAX_AUDIT_BYTES,
        syslog: None,
        otlp: None,
    };
    Ok(tokio::task::block_in_place(|| AuditLog::open(&data.join(AUDIT_DIR), config))?)
}

/// Lines for `/healthz` of what is not as it should be with the bus.
pub(crate) fn health_of_bus(nats: &Nats, fleet: &Fleet) -> String {
    let ago = |since: Instant| since.elapsed().as_secs();
    let link = nats.link();
    let mut notes = String::new();
    if !link.is_up {
        notes += &format!("bus: away for {} s\n", ago(link.since));
    }
    if let Some(since) = fleet.stale_since() {
        notes += &format!("directory: stale for {} s\n", ago(since));
    }
    notes
}
