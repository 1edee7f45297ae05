//! `sallyport edge`: takes clients and tunnels of an installation whose control runs elsewhere.

pub(crate) mod args;
mod control_link;
mod join;
mod mesh;
mod neighbours;
mod orders;
mod ssh;
mod state;
mod takeover;

use std::{
    net::SocketAddr,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::Instant,
};

use anyhow::Context as _;
use prometheus_client::registry::Registry;
use sallyport_api::ToldTunnel;
use sallyport_bus::{
    Bus, ConfigProgress, DirectoryRole, EdgeCard, EdgeState as Serving, Fleet, Nats, Snapshot, answer_asks,
    follow_config, follow_directory,
};
use sallyport_control::Secrets;
use sallyport_edge::{AskTunnel, Edge, EdgeAudit, EdgeConfig, EdgeIdentity, TunnelStatus};
use sallyport_identity::{AssertionKey, Sealer};
use sallyport_net::{Certificates, HandOver, Shutdown};
use sallyport_policy::DialedNetworks;
use tokio::sync::watch;
use tracing::{info, warn};

pub(crate) use self::args::EdgeArgs;
use self::{
    control_link::{ControlLink, LinkError},
    state::EdgeState,
    takeover::Held,
};
use crate::{
    audit_stream::AuditStream,
    bus_metrics::BusMetrics,
    duties::Duties,
    failure::Failure,
    process_metrics::ProcessMetrics,
    site_args::site_of,
    telemetry::Telemetry,
    threads,
    up::quic::{Quic, QuicPort},
};

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
    crate::up::stop_on_signals(&shutdown, crate::up::console::Console::OFF)?;
    let data = args.data.clone().ok_or_else(|| {
        Failure::usage("an edge needs a place to keep who it is").next("name a directory with --data DIR")
    })?;
    std::fs::create_dir_all(&data).with_context(|| format!("cannot make {}", data.display()))?;
    let data = data.canonicalize().with_context(|| format!("cannot use {}", data.display()))?;
    let held = Held::begin(&args, &data)?;
    let state = match EdgeState::read(&data)? {
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
    serve(&args, &data, state, held, shutdown).await
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

async fn serve(args: &EdgeArgs, data: &Path, state: EdgeState, held: Held, shutdown: Shutdown) -> anyhow::Result<()> {
    let (address, takes_over) = (held.address()?, held.is_by_other());
    let nats = Nats::connect_patiently(&state.bus(data)).await?;
    let (shards, geo) = (threads::shards()?, crate::up::open_geo(&args.geo)?);
    Certificates::given(&state.certificates.server, state.key.expose(), &state.world.domain)?;
    // All that could be refused has been looked at: from here on a process that is replaced has stopped.
    let (lock, listening) = held.take(data)?;
    // It may have had new certificates meanwhile.
    let mut state = EdgeState::read(data)?.unwrap_or(state);
    state.epoch = next_epoch(state.epoch);
    state.write(data)?;
    let domain = state.world.domain.clone();
    let certificates = Certificates::given(&state.certificates.server, state.key.expose(), &domain)?;
    let (bus, followed) = (Bus::default(), ConfigProgress::default());
    let known = known(data, &bus);
    let link = join::link(&state)?;

    let own_card = watch::Sender::new(card(args, &state, address));
    let (removed, clock) = (watch::Sender::new(false), watch::Sender::new(None));
    let emptied = orders::follow(state.id, &bus, own_card.clone(), (removed.subscribe(), clock.subscribe()));
    let neighbours = neighbours::follow(own_card.subscribe(), &bus);
    let own_secrets = Secrets::open_or_create(data)?;
    let audit = args.audit_log.open(data, |purpose| own_secrets.derived(purpose))?;
    let passed_on = AuditStream::of_edge(&audit, &nats, state.name.as_str())?;
    let mut config = EdgeConfig::new(&domain, args.advertise.first().map_or(address.port(), SocketAddr::port));
    let site = watch::Sender::new(Arc::new(site_of(&state.world)));
    config.site = site.subscribe();
    config.region = Some(state.region.clone());
    config.drain = args.drain;
    (config.neighbours, config.emptied) = (neighbours, emptied);
    config.geo = geo;
    config.trusted_proxies.clone_from(&args.trust_proxy);
    config.access_log = !args.no_access_log;
    config.direct_origins = DialedNetworks::new(args.direct_origins.clone());
    config.shards = shards;
    config.affinity_key = state::key(&state.world.affinity_key)?.into();
    config.identity = Some(EdgeIdentity {
        sealer: Arc::new(Sealer::new(state::key(&state.world.seal_key)?)),
        identities: bus.identities.clone(),
        assertions: Arc::new(
            AssertionKey::new(state::key(&state.world.assertion_key)?)
                .context("a key of the installation is damaged")?,
        ),
    });
    config.audit = Some(EdgeAudit { sink: Arc::new(audit.clone()), all: args.audit_use.is_all() });
    let edge = Edge::new(config, bus.routes.clone(), bus.directory.clone(), link.api());
    edge.ask_about_tunnels(tunnel_asker(link.clone()));
    let (ip, logins) = (address.ip(), bus.ssh_logins.clone());
    if let Some(ssh) = ssh::settings(&args.ssh, &state, (ip, takes_over), logins, link.clone()).await? {
        edge.serve_ssh(ssh);
    }
    let quic = QuicPort::open(args.quic.listen_quic, address, takes_over)?;
    let quic = quic.map(|port| Quic::start(port, &edge, certificates.clone(), shutdown.clone()));
    let health = (nats.clone(), bus.fleet.clone(), followed.clone(), passed_on.clone());
    let ends_at = Arc::new(AtomicI64::new(state.certificates.not_after));
    let certified_until = ends_at.clone();
    let is_removed = removed.subscribe();
    edge.tell_health(Arc::new(move || {
        // A machine of the bus that is cut off from the others goes on telling of what it has, which nobody can change.
        let is_present = health.2.is_present() && health.1.stale_since().is_none();
        let stale = if is_present { "" } else { "configuration: not of the present\n" };
        let ended = if join::now() < certified_until.load(Relaxed) { "" } else { "certificates: ended\n" };
        let gone = if *is_removed.borrow() { "edge: removed\n" } else { "" };
        format!("{gone}{ended}{stale}{}{}", health_of_bus(&health.0, &health.1), health.3.health())
    }));
    let known_now = followed.clone();
    edge.ask_readiness(
        "this edge knows no configuration yet",
        Arc::new(move || {
            let is_known = known_now.is_present() || known_now.entries() > 0;
            let told = "neither the bus nor its snapshot has told it any";
            Box::pin(async move { if is_known { Ok(()) } else { Err(told.to_owned()) } })
        }),
    );
    let settings = mesh::settings(&state, &bus)?;
    let mesh_tls = settings.tls.clone();
    edge.join_mesh(settings);
    let mut registry = Registry::default();
    edge.register_metrics(&mut registry);
    audit.register_metrics(&mut registry);
    passed_on.register(&mut registry);
    ProcessMetrics::new(certificates.clone()).of_machine(ends_at.clone()).register(&mut registry);
    let metrics =
        BusMetrics { nats: nats.clone(), fleet: bus.fleet.clone(), followed: Some(followed.clone()), published: None };
    metrics.register(&mut registry);
    edge.publish_metrics(registry);

    let ends = watch::Sender::new(false);
    let (card, epoch) = (own_card.subscribe(), state.epoch);
    let own = bus.directory.clone();
    let role = DirectoryRole::Edge { card, epoch, own, takes_over, ends: ends.subscribe() };
    let directory = sallyport_net::spawn_boxed(follow_directory(nats.clone(), role, bus.fleet.clone()));
    let answering = sallyport_net::spawn_boxed(answer_asks(nats.clone(), state.id, edge.answers()));
    let (name, region) = (state.name.clone(), state.region.clone());
    let orders = bus.orders.clone();
    let following =
        sallyport_net::spawn_boxed(follow_config(nats.clone(), bus, data.to_owned(), known, followed.clone()));
    let renewal = join::Renewal {
        dir: data.to_owned(),
        state,
        link,
        nats: nats.clone(),
        served: certificates.clone(),
        skew_told: false,
        ends_at,
        mesh: mesh_tls,
        orders,
        removed,
        clock,
        site,
    };
    let renewing = sallyport_net::spawn_boxed(renewal.run());
    info!(edge = %name, %region, listen = %address, data = %data.display(), "ready");
    sallyport_net::notify_ready();
    sallyport_net::notify_status(&format!("edge {name} in {region}"));

    let mut tasks = vec![directory.abort_handle(), renewing.abort_handle(), answering.abort_handle()];
    tasks.extend(passed_on.abort_handles());
    let duties = Duties::new((lock, HandOver::of(&listening)?, data), audit.clone(), Some(followed), tasks)?;
    let duties = sallyport_net::spawn_boxed(duties.until_over(shutdown.clone()));
    let report = edge.serve(listening, certificates, shutdown.clone()).await;
    shutdown.trigger();
    if let Some(quic) = quic {
        quic.ended().await;
    }
    let lock = duties.await?;
    // The last word comes after the last tunnel has gone; who takes over says it in our stead.
    ends.send_replace(true);
    drop(tokio::time::timeout(std::time::Duration::from_secs(2), directory).await);
    passed_on.end(&audit).await;
    following.abort();
    answering.abort();
    renewing.abort();
    if lock.is_some()
        && let Err(error) = tokio::task::block_in_place(|| audit.close())
    {
        warn!(%error, "the last events of the audit log may not be on disk");
    }
    drop(lock);
    let report = report?;
    info!(finished = report.finished, cut = report.cut, "stopped");
    Ok(())
}

/// Asks control about tunnels that this edge has not heard of.
fn tunnel_asker(link: ControlLink) -> AskTunnel {
    Arc::new(move |tunnel, credential| {
        let link = link.clone();
        Box::pin(async move {
            let ask = sallyport_api::AskTunnel { tunnel, credential };
            match link.ask::<ToldTunnel>("/node/v1/tunnel", &ask).await {
                Ok(ToldTunnel::Known) => TunnelStatus::Known,
                Ok(ToldTunnel::Unknown) => TunnelStatus::Unknown,
                Ok(ToldTunnel::BadCredential) => TunnelStatus::BadCredential,
                // A control of a former version takes what it does not know for a request of a client. What the edge knows has to
                // do then.
                Err(LinkError::Refused(problem)) if problem.code == "no-client" => TunnelStatus::Unknown,
                Err(error) => {
                    tracing::debug!(%error, %tunnel, "whether there is this tunnel is not known");
                    TunnelStatus::Away
                }
            }
        })
    })
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
        addresses: mesh::addresses(&args.advertise, address),
        program: env!("CARGO_PKG_VERSION").to_owned(),
        since: join::now(),
        state: Serving::default(),
    }
}

/// Lines for `/healthz` of what is not as it should be with the bus.
pub(crate) fn health_of_bus(nats: &Nats, fleet: &Fleet) -> String {
    let ago = |since: Instant| since.elapsed().as_secs();
    let link = nats.link();
    let mut notes = String::new();
    if link.is_refused {
        notes += &format!("bus: refuses the credentials, for {} s\n", ago(link.since));
    } else if !link.is_up {
        notes += &format!("bus: away for {} s\n", ago(link.since));
    }
    if let Some(since) = fleet.stale_since() {
        notes += &format!("directory: stale for {} s\n", ago(since));
    }
    notes
}
