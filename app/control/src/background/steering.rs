//! Runs the planner: takes reports of edges, elects a leader among the controls, and sends quotas.
//!
//! Every control takes every report, so that another one can lead at once.

use std::{
    collections::BTreeMap,
    sync::Weak,
    time::{Duration, Instant},
};

use sallyport_bus::{Steering, TunnelOnEdge};
use sallyport_model::{EdgeId, OriginRef, RegionName, SocketRoute, TunnelId};
use sallyport_steer::{
    plan::{Dimension, EdgeInfo, Place, ReportRefused, SteeredOrigin, SteeredRegion, SteeredSocket},
    report::{LoadReport, QuotaAssignment},
};
use tokio::sync::{broadcast::error::RecvError, watch};

use crate::{
    cluster::election::{BEAT_PERIOD, Election},
    config::{LONE_EDGE, LONE_NAME, LONE_REGION},
    state::{App, AppParts, steering::SAMPLE_PERIOD},
};

/// How often quotas are planned.
const PLAN_PERIOD: Duration = Duration::from_millis(500);
/// The shortest time between two plans.
const MIN_PERIOD: Duration = Duration::from_millis(100);
/// How long the store may take to answer.
const STORE_TIME: Duration = Duration::from_secs(2);
/// The name of this task in the store.
const TASK: &str = "steering";

/// Takes part in the election for as long as control lives.
pub(crate) async fn elect(app: Weak<AppParts>, term: watch::Sender<Option<i64>>) {
    let started = Instant::now();
    let mut election = None;
    while let Some(app) = app.upgrade().map(App) {
        let election = election.get_or_insert_with(|| Election::new(app.config.id, app.store.is_shared()));
        let began = started.elapsed();
        match tokio::time::timeout(STORE_TIME, turn(&app, election, began)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "the lead in steering cannot be read or written: trying again"),
            Err(_) => tracing::debug!("the store does not answer about the lead in steering: trying again"),
        }
        let leads = election.term(started.elapsed());
        if term.send_if_modified(|known| std::mem::replace(known, leads) != leads) {
            match leads {
                Some(term) => tracing::info!(term, "this control leads in steering"),
                None => tracing::info!("this control does not lead in steering"),
            }
        }
        drop(app);
        tokio::time::sleep(BEAT_PERIOD).await;
    }
}

/// One beat, or one look at the leader.
async fn turn(app: &App, election: &mut Election, began: Duration) -> Result<(), sallyport_store::StoreError> {
    if let Some(term) = election.beats(began) {
        let asked_at = app.steering.planner().1;
        let is_leader = app.store.keep_lead(TASK, app.config.id, term).await?;
        election.handle_beat(is_leader, began);
        if is_leader
            && let Some(lost) = app.steering.confirm(asked_at)
            && election.may_raise(began)
            && app.store.raise_term(TASK, app.config.id, term, lost + 1).await?
        {
            tracing::warn!(term, raised = lost + 1, "edges know a later term than the store: the term is raised");
            election.handle_lead(lost + 1, began);
        }
        return Ok(());
    }
    let stored = app.store.leader(TASK).await?;
    if election.handle_leader(stored, began) {
        let holders = read_holders(&app.store.legacy(TASK).await?);
        if let Some(term) = app.store.take_lead(TASK, app.config.id, stored).await? {
            app.steering.set_stored_holders(holders);
            election.handle_lead(term, began);
        }
    }
    Ok(())
}

/// The edges that may have quotas, as the former leader left them.
fn read_holders(legacy: &str) -> BTreeMap<EdgeId, EdgeInfo> {
    if legacy.is_empty() {
        return BTreeMap::new();
    }
    serde_json::from_str(legacy).unwrap_or_else(|error| {
        tracing::warn!(%error, "the list of edges with quotas in the store is damaged");
        BTreeMap::new()
    })
}

/// Writes which edges may have quotas, before these get any. Returns the edges that are in the store.
async fn keep_holders(app: &App, term: i64, holders: BTreeMap<EdgeId, EdgeInfo>) -> BTreeMap<EdgeId, EdgeInfo> {
    let known = app.steering.stored_holders();
    if known == holders {
        return known;
    }
    let Ok(legacy) = serde_json::to_string(&holders) else { return known };
    let write = app.store.set_legacy(TASK, app.config.id, term, &legacy);
    match tokio::time::timeout(STORE_TIME, write).await {
        Ok(Ok(true)) => {
            app.steering.set_stored_holders(holders.clone());
            holders
        }
        Ok(Ok(false)) | Err(_) => known,
        Ok(Err(error)) => {
            tracing::debug!(%error, "the list of edges with quotas cannot be written: trying again");
            known
        }
    }
}

/// Plans for as long as control lives. `term` is the own one, while this control leads.
pub(crate) async fn plan(app: Weak<AppParts>, steering: Steering, term: watch::Receiver<Option<i64>>) {
    let mut loads = steering.subscribe_loads();
    let mut ticks = tokio::time::interval(PLAN_PERIOD);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut sampled_at: Option<Instant> = None;
    let (mut planned, mut took) = (Instant::now(), Duration::ZERO);
    // When to plan for an urgent report.
    let mut urgent_at: Option<Instant> = None;
    loop {
        let is_tick = tokio::select! {
            report = loads.recv() => match report {
                Ok(report) => {
                    let Some(app) = app.upgrade().map(App) else { return };
                    take_report(&app, &report);
                    if report.is_urgent {
                        urgent_at.get_or_insert(planned + MIN_PERIOD.max(10 * took));
                    }
                    continue;
                }
                // Counts are cumulative: a later report replaces a lost one.
                Err(RecvError::Lagged(_)) => continue,
                Err(RecvError::Closed) => return,
            },
            () = tokio::time::sleep_until(urgent_at.unwrap_or(planned).into()), if urgent_at.is_some() => false,
            _ = ticks.tick() => true,
        };
        let Some(app) = app.upgrade().map(App) else { return };
        (planned, urgent_at) = (Instant::now(), None);
        let led = *term.borrow();
        make_plan(&app, &steering, led).await;
        took = planned.elapsed();
        if is_tick && sampled_at.is_none_or(|at| at.elapsed() >= SAMPLE_PERIOD) {
            sampled_at = Some(Instant::now());
            sample(&app);
        }
    }
}

/// Takes a report. The sockets and edges are those of the last plan, or of now if there was none.
fn take_report(app: &App, report: &LoadReport) {
    let (mut planner, now) = app.steering.planner();
    let mut taken = planner.handle_report(report, now);
    if taken == Err(ReportRefused::UnknownEdge) {
        planner.set_edges(edges_of(app));
        taken = planner.handle_report(report, now);
    }
    drop(planner);
    app.metrics.steering.reported(taken.err());
}

async fn make_plan(app: &App, steering: &Steering, term: Option<i64>) {
    let Some((assignments, holders)) = plan_now(app, term) else { return };
    // A lone edge is this process: nobody else leads, and no other edge is left over.
    let stored = match term.filter(|_| app.edges.get().is_some()) {
        Some(term) => Some(keep_holders(app, term, holders).await),
        None => None,
    };
    let may_have = |edge: EdgeId| stored.as_ref().is_none_or(|stored| stored.contains_key(&edge));
    assignments.into_iter().filter(|one| may_have(one.edge)).for_each(|one| steering.assign(one));
}

/// Makes the plan. Returns the assignments, and all edges that may have quotas then. `None`: there are no limits.
fn plan_now(app: &App, term: Option<i64>) -> Option<(Vec<QuotaAssignment>, BTreeMap<EdgeId, EdgeInfo>)> {
    let sockets = steered_sockets(app);
    let edges = edges_of(app);
    let (mut planner, now) = app.steering.planner();
    if sockets.is_empty() && !planner.has_sockets() {
        return None;
    }
    planner.set_sockets(sockets);
    planner.set_edges(edges);
    planner.forget_removed(|id| id != LONE_EDGE && !app.orders.is_known(id), now);
    match term.and_then(|term| u64::try_from(term).ok()) {
        Some(term) => {
            let is_new = planner.term() != Some(term);
            planner.lead(term, now);
            if is_new {
                planner.set_former_holders(app.steering.stored_holders(), now);
            }
        }
        None => planner.follow(),
    }
    let began = Instant::now();
    let assignments = planner.tick(now);
    let (took, gap) = (began.elapsed(), planner.gap_ppm());
    let holders = planner.holders();
    drop(planner);
    app.metrics.steering.planned(took, gap, term.is_some(), assignments.len());
    Some((assignments, holders))
}

/// Keeps the plans of all sockets, and counts them in metrics.
fn sample(app: &App) {
    let (planner, now) = app.steering.planner();
    let plans: Vec<_> = planner.sockets().filter_map(|socket| planner.view(socket, now)).collect();
    let granted = |place: &Place| planner.granted(place, Dimension::Rate);
    let most = planner.places().filter_map(granted).map(|(granted, capacity)| {
        let per_mille = u128::from(granted) * 1_000 / u128::from(capacity.max(1));
        u64::try_from(per_mille).unwrap_or(u64::MAX)
    });
    let most = most.max().unwrap_or_default();
    drop(planner);
    let name = |plan: &sallyport_steer::plan::PlanView| {
        app.routes.get(plan.socket).map(|route| route.name.as_str().to_owned())
    };
    app.metrics.steering.set_plans(plans.iter().filter_map(|plan| Some((name(plan)?, plan))), most);
    app.steering.keep(&plans, app.clock.now().unix_seconds);
}

/// The edges of the installation; on one machine, the one edge.
fn edges_of(app: &App) -> BTreeMap<EdgeId, EdgeInfo> {
    if app.edges.get().is_none() {
        let (name, region) = (LONE_NAME.parse(), LONE_REGION.parse());
        let info = name.ok().zip(region.ok()).map(|(name, region)| EdgeInfo { name, region });
        return info.map(|info| (LONE_EDGE, info)).into_iter().collect();
    }
    let info = |card: &sallyport_bus::EdgeCard| EdgeInfo { name: card.name.clone(), region: card.region.clone() };
    app.fleet.edges().iter().map(|edge| (edge.card.edge, info(&edge.card))).collect()
}

/// The sockets with limits.
fn steered_sockets(app: &App) -> Vec<SteeredSocket> {
    let routes = app.routes.all();
    let limited = routes.iter().filter(|route| route.has_capacities());
    limited.map(|route| steered_socket(app, route)).collect()
}

fn steered_socket(app: &App, route: &SocketRoute) -> SteeredSocket {
    let origins = route.capacities().map(|(origin, capacity)| {
        let region = match origin {
            OriginRef::Tunnel(tunnel) => region_of_tunnel(app, tunnel),
            OriginRef::Direct(id) => route.origin(id).and_then(|origin| origin.region.clone()),
        };
        let weight = route.weight(origin).unwrap_or_default();
        (origin, SteeredOrigin { region, weight, capacity: capacity.clone() })
    });
    let regions = route
        .settings
        .regions
        .iter()
        .map(|(name, group)| (name.clone(), SteeredRegion { dial: group.dial, capacity: group.capacity.clone() }));
    SteeredSocket { id: route.id, account: route.account, origins: origins.collect(), regions: regions.collect() }
}

/// The region of a tunnel: that of its connector, else that of the edge that has held it longest.
fn region_of_tunnel(app: &App, tunnel: TunnelId) -> Option<RegionName> {
    let holders = app.fleet.tunnel_on_edges(tunnel);
    let declared = holders.iter().find_map(|one: &TunnelOnEdge| one.presence.home.clone());
    declared.or_else(|| holders.first().map(|one| one.card.region.clone()))
}
