//! `sallyport edge`: serves clients and tunnels of an installation whose control runs elsewhere.
//!
//! May use what `roles` may use.

pub(crate) mod args;
mod balanced;
mod config;
mod control_link;
mod health;
mod join;
mod mesh;
mod neighbours;
mod orders;
mod ports;
mod ssh;
mod state;

use std::{
    net::{IpAddr, SocketAddr},
    path::Path,
    sync::{Arc, atomic::AtomicI64},
    time::Duration,
};

use anyhow::Context as _;
use sallyport_api::TunnelCheck;
use sallyport_audit::AuditLog;
use sallyport_bus::{
    Bus, ConfigProgress, DirectoryRole, Nats, Snapshot, answer_asks, carry_steering_of_edge, follow_config,
    follow_directory,
};
use sallyport_control::Secrets;
use sallyport_edge::{AskTunnel, Edge, EdgeAudit, SteeringSettings, TunnelStatus};
use sallyport_identity::Sealer;
use sallyport_model::{EdgeName, RegionName};
use sallyport_net::{Certificates, HandOver, Listening, Takeover};
use sallyport_quic::ServerNumber;
use tokio::{sync::watch, task::JoinHandle};
use tracing::{debug, info, warn};

pub(crate) use self::args::EdgeArgs;
use self::{
    control_link::{ControlLink, LinkError},
    health::Health,
    state::EdgeState,
};
use super::{
    anycast::{self, AnnouncingEdge},
    egress,
    name_server::{DnsPorts, NameServer, NameServerParts},
    public_names,
    quic::{OpenedQuic, Quic},
};
use crate::{
    args::site::site_of,
    daemon::{AuditStream, Claim, Console, Daemon, Metrics, Role, Service, WhenReplaced},
    failure::Failure,
    runtime::{process_metrics::ProcessMetrics, telemetry::Telemetry, threads},
};

/// The quotas of this edge, for a restart while no control answers.
const QUOTAS_FILE: &str = "quotas.json";
/// How long the departure may take to reach the directory at the end.
const DEPARTURE_TIME: Duration = Duration::from_secs(2);

/// Runs until SIGTERM or SIGINT, then lets running work finish.
///
/// # Errors
/// Why it could not start, or stopped.
pub(crate) async fn run(args: EdgeArgs, verbose: u8) -> anyhow::Result<()> {
    let daemon = Daemon::start(&Telemetry::of_server(verbose, args.log_format), Console::OFF)?;
    let data = args.data.clone().ok_or_else(|| {
        Failure::usage("an edge needs a directory for its identity").next("name a directory with --data DIR")
    })?;
    std::fs::create_dir_all(&data).with_context(|| format!("cannot make {}", data.display()))?;
    let data = data.canonicalize().with_context(|| format!("cannot use {}", data.display()))?;
    let claim = Claim::begin(&data, args.takeover, Takeover::begin)?.with_ports(|| ports::open(&args))?;
    let state = match EdgeState::read(&data)? {
        Some(state) => {
            check(&args, &state)?;
            state
        }
        None => {
            let state = join::join(&args).await?;
            // The token is used up, so the state is written before anything can fail.
            state.write(&data)?;
            state
        }
    };
    serve((&args, &daemon), &data, state, claim).await
}

/// The next epoch: greater than all before, whatever the clock shows.
fn next_epoch(last: u64) -> u64 {
    let clock = u64::try_from(join::now()).unwrap_or(0).saturating_mul(1_000);
    clock.max(last + 1)
}

/// The state with a new epoch. A process that is replaced may have renewed the certificates meanwhile.
fn begin_epoch(data: &Path, known: EdgeState) -> anyhow::Result<EdgeState> {
    let mut state = EdgeState::read(data)?.unwrap_or(known);
    state.epoch = next_epoch(state.epoch);
    state.write(data)?;
    Ok(state)
}

/// Refuses options that differ from those of the join.
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

/// Serves as the edge of this state, once everything is checked.
async fn serve(
    (args, daemon): (&EdgeArgs, &Daemon),
    data: &Path,
    state: EdgeState,
    claim: Claim<Listening>,
) -> anyhow::Result<()> {
    let (address, is_takeover) = (claim.addresses()?, claim.is_takeover());
    let nats = Nats::connect_patiently(&state.bus(data)).await?;
    let (shards, geo) = (threads::shards()?, args.geo.open()?);
    Certificates::given(&state.certificates.server, state.key.expose(), &state.bootstrap.domain)?;
    // All checks are done: from here on a replaced process has stopped.
    let (lock, mut listening) = claim.take(data)?;
    let state = begin_epoch(data, state)?;
    let certificates = Certificates::given(&state.certificates.server, state.key.expose(), &state.bootstrap.domain)?;
    certificates.require_public(state.bootstrap.has_public_names);
    let (bus, followed) = (Bus::default(), ConfigProgress::default());
    let snapshot = restored(data, &bus);
    let sealer = Arc::new(Sealer::new(state::key(&state.bootstrap.seal_key)?));
    public_names::follow(bus.certificates.clone(), sealer.clone(), certificates.clone());
    let link = join::link(&state)?;

    let own_card = watch::Sender::new(config::card(args, &state, address));
    let server = args.behind.is_set().then(ServerNumber::default);
    let (removed, clock) = (watch::Sender::new(false), watch::Sender::new(None));
    let site = watch::Sender::new(Arc::new(site_of(&state.bootstrap)));
    let drain_until = orders::follow(state.id, &bus, own_card.clone(), (removed.subscribe(), clock.subscribe()));
    let neighbours = neighbours::follow(own_card.subscribe(), &bus);
    let own_secrets = Secrets::open_or_create(data)?;
    let audit = args.audit_log.open(data, |purpose| own_secrets.derived(purpose))?;
    let stream = AuditStream::of_edge(&audit, &nats, state.name.as_str())?;
    let mut config = config::of_edge(args, &state, address, &bus)?;
    (config.site, config.neighbours, config.drain_until) = (site.subscribe(), neighbours, drain_until);
    let sockets = shards.count();
    (config.shards, config.geo) = (shards, geo);
    config.audit = Some(EdgeAudit { sink: Arc::new(audit.clone()), all: args.audit_use.is_all() });
    let edge = Edge::new(config, bus.routes.clone(), bus.directory.clone(), link.api());
    edge.ask_about_tunnels(tunnel_asker(link.clone()));
    let (ip, logins) = (address.ip(), bus.ssh_logins.clone());
    if let Some(ssh) = ssh::settings(&args.ssh, &state, (ip, is_takeover), logins, link.clone()).await? {
        edge.serve_ssh(ssh);
    }
    let public_port = args.advertise.first().map_or(address.port(), SocketAddr::port);
    let opened = OpenedQuic::open(&args.quic, (address, public_port), sockets, is_takeover)?;
    if !opened.as_ref().is_some_and(OpenedQuic::has_http3) {
        edge.set_no_http3();
    }
    let redirect = listening.redirect.as_ref().and_then(|listener| listener.local_addr().ok()).map(|at| at.port());
    // If this process has no QUIC port, the former one goes on with its own.
    let inherited = std::mem::take(&mut listening.quic);
    let quic_port = opened.as_ref().map(OpenedQuic::public_port);
    let quic = opened.map(|opened| {
        let served = (&edge, certificates.clone());
        let own: Vec<IpAddr> = own_card.borrow().addresses.iter().map(SocketAddr::ip).collect();
        let secret = own_secrets.derived("quic");
        Quic::start(opened, inherited, (secret, server.clone()), served, &own, daemon.shutdown.clone())
    });
    let passed = quic.as_ref().map(Quic::passed);
    tokio::spawn(config::keep_http3_port(edge.http3_port(), own_card.clone()));
    let parts = NameServerParts {
        bus: bus.clone(),
        sealer,
        shared_secret: state::key(&state.bootstrap.seal_key)?,
        own: own_card.borrow().addresses.iter().map(SocketAddr::ip).collect(),
        own_port: public_port,
        own_http3_port: edge.http3_port(),
        resolver: args.resolver.open()?,
        domain: state.bootstrap.domain.clone(),
        identity: state.name.to_string(),
    };
    let announcing = AnnouncingEdge {
        name: state.name.clone(),
        region: Some(state.region.clone()),
        own: &parts.own,
        data,
        bus: &bus,
        sealer: parts.sealer.clone(),
        nats: Some(nats.clone()),
    };
    if let Some(mut settings) = anycast::settings(&args.anycast, announcing) {
        config::share_flows(args, &state, &parts, &mut settings);
        edge.announce(settings);
        tokio::spawn(config::keep_anycast(edge.anycast_addresses(), own_card.clone()));
    }
    if let Some(server) = server {
        let place = balanced::Place { state: &state, bus: &bus, redirect, quic_port, is_takeover };
        balanced::serve(&args.behind, place, (&edge, address), server, &own_card);
    }
    let renewed = {
        let (fleet, followed) = (bus.fleet.clone(), followed.clone());
        Arc::new(move || fleet.acknowledged().filter(|_| followed.is_present()))
    };
    edge.carry_networks(bus.networks.clone());
    let (served, servers) = (bus.egress.clone(), args.resolver.resolver.clone());
    edge.leave_from(egress::settings(&args.egress, state.id, served, data, (renewed, servers)));
    tokio::spawn(egress::keep(bus.egress.uses(), own_card.clone()));
    let dns = DnsPorts::open(&args.dns, address, is_takeover)?;
    let dns = dns.map(|ports| NameServer::start(ports, &args.dns, parts)).transpose()?;
    let certified_until = Arc::new(AtomicI64::new(state.certificates.not_after));
    let health = Health {
        nats: nats.clone(),
        fleet: bus.fleet.clone(),
        config: followed.clone(),
        audit: stream.clone(),
        certified_until: certified_until.clone(),
        removed: removed.subscribe(),
    };
    let bus_metrics = Some(health.bus_metrics());
    health.publish(&edge);
    let settings = mesh::settings(&state, &bus)?;
    let mesh_tls = settings.tls.clone();
    edge.join_mesh(settings);
    let process = ProcessMetrics::new(certificates.clone()).of_machine(certified_until.clone());
    let observed = Metrics {
        edge: &edge,
        control: None,
        audit: &audit,
        stream: Some(&stream),
        process,
        bus: bus_metrics,
        dns: dns.as_ref().map(NameServer::counters),
    };
    let steering_key = watch::Sender::new(state::steering_key(&state.bootstrap));
    edge.join_steering(SteeringSettings {
        edge: state.id,
        epoch: state.epoch,
        bus: bus.steering.clone(),
        kept: Some(data.join(QUOTAS_FILE)),
        restores: !is_takeover,
    });
    observed.publish();
    let (followed_key, steering) = (steering_key.subscribe(), bus.steering.clone());
    let steered = tokio::spawn(carry_steering_of_edge(nats.clone(), state.id, followed_key, steering)).abort_handle();
    let ends = watch::Sender::new(false);
    let (epoch, own, is_ended) = (state.epoch, bus.directory.clone(), ends.subscribe());
    let part = DirectoryRole::Edge { card: own_card.subscribe(), epoch, own, takes_over: is_takeover, ends: is_ended };
    let directory = tokio::spawn(follow_directory(nats.clone(), part, bus.fleet.clone()));
    let answering = tokio::spawn(answer_asks(nats.clone(), state.id, edge.answers()));
    let (name, region, orders) = (state.name.clone(), state.region.clone(), bus.orders.clone());
    let following = tokio::spawn(follow_config(nats.clone(), bus, data.to_owned(), snapshot, followed.clone()));
    let renewal = join::Renewal {
        dir: data.to_owned(),
        state,
        link,
        nats,
        served: certificates.clone(),
        skew_logged: false,
        ends_at: certified_until,
        mesh: mesh_tls,
        orders,
        removed,
        clock,
        site,
        steering_key,
    };
    let renewing = tokio::spawn(renewal.run());

    let mut tasks = vec![directory.abort_handle(), renewing.abort_handle(), answering.abort_handle(), steered];
    tasks.extend(stream.abort_handles());
    let when_replaced = WhenReplaced { tasks, snapshot: Some(followed), follower: None };
    let tasks = [following, answering, renewing];
    let mut role = EdgeRole {
        name,
        region,
        listen: address,
        data,
        quic,
        dns,
        ends,
        directory,
        tasks,
        stream,
        audit: audit.clone(),
    };
    let ports = HandOver::of(&listening)?.with_quic(passed);
    let service = Service { edge, listening, certificates, lock, ports, data, audit, when_replaced };
    let ended = daemon.serve(service, &mut role).await?;
    drop(ended.lock);
    let report = ended.report?;
    info!(finished = report.finished, cut = report.cut, "stopped");
    Ok(())
}

/// `sallyport edge`, while it serves.
struct EdgeRole<'a> {
    name: EdgeName,
    region: RegionName,
    listen: SocketAddr,
    data: &'a Path,
    quic: Option<Quic>,
    dns: Option<NameServer>,
    /// Publishes the departure of the edge.
    ends: watch::Sender<bool>,
    directory: JoinHandle<()>,
    /// Tasks that follow the configuration, answer control, and renew certificates.
    tasks: [JoinHandle<()>; 3],
    stream: AuditStream,
    audit: AuditLog,
}

impl Role for EdgeRole<'_> {
    fn ready(&self) -> Option<String> {
        let Self { name, region, listen, data, .. } = self;
        info!(edge = %name, %region, %listen, data = %data.display(), "ready");
        Some(format!("edge {name} in {region}"))
    }

    async fn drained(&mut self) {
        if let Some(quic) = self.quic.take() {
            quic.ended().await;
        }
        if let Some(dns) = self.dns.take() {
            dns.end().await;
        }
    }

    async fn leave(&mut self, _is_replaced: bool) {
        // The departure is published after the last tunnel has gone. After a takeover, the directory here has stopped
        // already.
        self.ends.send_replace(true);
        drop(tokio::time::timeout(DEPARTURE_TIME, &mut self.directory).await);
        self.stream.end(&self.audit).await;
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Asks control about tunnels that this edge does not know.
fn tunnel_asker(link: ControlLink) -> AskTunnel {
    Arc::new(move |tunnel, credential| {
        let link = link.clone();
        Box::pin(async move {
            let ask = sallyport_api::TunnelCheckRequest { tunnel, credential };
            match link.ask::<TunnelCheck>("/node/v1/tunnel", &ask).await {
                Ok(TunnelCheck::Known) => TunnelStatus::Exists,
                Ok(TunnelCheck::Unknown) => TunnelStatus::Unknown,
                Ok(TunnelCheck::BadCredential) => TunnelStatus::BadCredential,
                // An older control takes this request for one of a client; the edge's own data must suffice then.
                Err(LinkError::Refused(problem)) if problem.code == "no-client" => TunnelStatus::Unknown,
                Err(error) => {
                    debug!(%error, %tunnel, "cannot check whether this tunnel exists");
                    TunnelStatus::Away
                }
            }
        })
    })
}

/// The snapshot of the last run, which the edge serves from now on.
fn restored(data: &Path, bus: &Bus) -> Snapshot {
    match Snapshot::read(data) {
        Ok(Some(snapshot)) => {
            snapshot.entries.values().for_each(|value| bus.apply_config(value.clone()));
            info!(entries = snapshot.entries.len(), "serving the last known configuration");
            snapshot
        }
        Ok(None) => Snapshot::default(),
        Err(error) => {
            warn!(%error, "nothing is known yet");
            Snapshot::default()
        }
    }
}
