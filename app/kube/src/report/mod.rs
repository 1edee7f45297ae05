//! Tells the cluster what its exposed ports have come to; the leader only. Uses `control`, `lead`, `sockets`, `status`
//! and `watch`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use sallyport_kube_model::{
    CLASS, Exposures, ObjectKey, ServiceType, Source,
    report::{
        CONDITION_EXPOSED, Condition, ConditionStatus, Event, EventLog, EventType, LoadBalancerIngress, Served,
        exposed, load_balancer,
    },
};
use sallyport_model::SocketId;
use sallyport_net::Shutdown;
use tokio::{sync::watch, task::JoinSet, time::Instant};
use tracing::{debug, warn};

use crate::{
    cluster::sentence,
    control::{ApiHealth, ControlApi},
    lead::Leadership,
    retry::Backoff,
    sockets::KnownSockets,
    status::{ClusterWriter, StatusUpdate},
    watch::{View, has_condition},
};

/// How many writes run at once.
const MAX_WRITES: usize = 8;
/// How long a write may take.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long changes are gathered before they are told.
const GATHER: Duration = Duration::from_millis(100);
/// The longest time without a round.
const LONGEST_WAIT: Duration = Duration::from_secs(3_600);

/// What is told.
pub(crate) struct Reports {
    /// What the cluster asks for.
    pub(crate) view: watch::Receiver<Arc<View>>,
    /// What is known about the sockets.
    pub(crate) known: watch::Receiver<Arc<KnownSockets>>,
    /// The sockets of tunnels that are up.
    pub(crate) up: watch::Receiver<Arc<BTreeSet<SocketId>>>,
    /// Whether this replica leads.
    pub(crate) leadership: Leadership,
    /// The API of Sallyport.
    pub(crate) api: ControlApi,
}

/// Tells the cluster.
pub(crate) struct Reporter {
    writer: ClusterWriter,
    reports: Reports,
    log: EventLog,
    /// What was written, and the version of the object before.
    written: BTreeMap<ObjectKey, (String, StatusUpdate)>,
    backoff: Backoff,
    start: Instant,
}

/// A write that is due.
struct Write {
    object: ObjectKey,
    uid: String,
    version: String,
    update: Option<StatusUpdate>,
    events: Vec<Event>,
}

impl Reporter {
    /// A reporter that has told nothing yet.
    pub(crate) fn new(writer: ClusterWriter, reports: Reports, retry: Duration) -> Self {
        Self {
            writer,
            reports,
            log: EventLog::default(),
            written: BTreeMap::new(),
            backoff: Backoff::new(retry),
            start: Instant::now(),
        }
    }

    /// Runs until the shutdown.
    pub(crate) async fn run(mut self, shutdown: Shutdown) {
        let mut health = self.reports.api.watch();
        loop {
            let was_leader = self.reports.leadership.is_leader();
            let wake = if was_leader { self.round().await } else { Instant::now() + LONGEST_WAIT };
            let Reports { view, known, up, leadership, .. } = &mut self.reports;
            tokio::select! {
                () = shutdown.wait() => return,
                Ok(()) = view.changed() => {}
                Ok(()) = known.changed() => {}
                Ok(()) = up.changed() => {}
                Ok(()) = health.changed() => {}
                () = leadership.turned(was_leader) => {}
                () = tokio::time::sleep_until(wake) => {}
            }
            tokio::select! {
                () = tokio::time::sleep(GATHER) => {}
                () = shutdown.wait() => return,
            }
            health.mark_unchanged();
        }
    }

    /// Writes what differs; returns when to try again.
    async fn round(&mut self) -> Instant {
        let view = self.reports.view.borrow_and_update().clone();
        let known = self.reports.known.borrow_and_update().clone();
        let up = self.reports.up.borrow_and_update().clone();
        let far = Instant::now() + LONGEST_WAIT;
        if !view.is_complete {
            return far;
        }
        let health = self.reports.api.health();
        let mut writes = Vec::new();
        for (object, exposures) in &view.exposures {
            let Some(source) = view.sources.get(object) else { continue };
            writes.extend(self.due(object, source, exposures, &known, &up, &health));
        }
        self.written.retain(|object, _| view.exposures.contains_key(object));
        if self.write(writes).await {
            self.backoff.reset();
            return far;
        }
        Instant::now() + self.backoff.next()
    }

    /// What is to be written about an object, if anything.
    fn due(
        &mut self,
        object: &ObjectKey,
        source: &Source,
        exposures: &Exposures,
        known: &KnownSockets,
        up: &BTreeSet<SocketId>,
        health: &ApiHealth,
    ) -> Option<Write> {
        let served = served(exposures, known, up, health);
        let meta = source.meta();
        let is_told = exposures.is_requested || !exposures.refusals.is_empty();
        let update = match source {
            Source::Service(service) => {
                let present = service.conditions.iter().find(|one| one.condition_type == CONDITION_EXPOSED);
                let condition = is_told.then(|| {
                    let wanted = exposed(exposures, &served, meta.generation, unix_now());
                    wanted.clone().after(present).unwrap_or_else(|| present.cloned().unwrap_or(wanted))
                });
                let is_ours = service.service_type == ServiceType::LoadBalancer
                    && service.load_balancer_class.as_deref() == Some(CLASS);
                let names = is_ours.then(|| load_balancer(&service.ports, &served));
                let is_new =
                    condition.as_ref() != present || names.as_ref().is_some_and(|names| *names != service.status);
                let is_left = is_told || has_condition(source);
                (is_left && is_new).then_some(StatusUpdate { condition, load_balancer: names })
            }
            Source::Ingress(ingress) => {
                let names: BTreeSet<&String> = served.iter().filter_map(|one| one.hostname.as_ref()).collect();
                let names: Vec<_> = names
                    .into_iter()
                    .map(|name| LoadBalancerIngress { hostname: name.clone(), ports: Vec::new() })
                    .collect();
                // The status of an Ingress of another class is another controller's.
                let is_ours = exposures.is_requested || meta.has_finalizer();
                (is_ours && names != ingress.status)
                    .then_some(StatusUpdate { condition: None, load_balancer: Some(names) })
            }
        };
        // An object on its way out needs no status; applying one to an object that is gone would make a new one.
        let update = update.filter(|_| !meta.is_deleting).filter(|update| {
            let version = &meta.resource_version;
            !self.written.get(object).is_some_and(|(at, there)| at == version && there == update)
        });
        let mut events: Vec<Event> = exposures.refusals.iter().map(Event::refused).collect();
        events.extend(exposures.notes.iter().map(Event::noted));
        events.extend(served.iter().filter_map(|one| {
            let (reason, sentence) = one.error.as_ref()?;
            let message = format!("{}: {sentence}", one.port);
            Some(Event::new(object.clone(), EventType::Warning, reason, &message))
        }));
        events.extend(known.blocked.iter().filter(|blocked| blocked.key.object == *object).map(|blocked| {
            let message = format!("{}: {}; {}", blocked.key.port, blocked.message, blocked.remedy);
            Event::new(object.clone(), EventType::Warning, blocked.reason, &message)
        }));
        let now = self.start.elapsed();
        events.retain(|event| self.log.admit(event, now));
        events.extend(became_exposed(object, source, update.as_ref(), &served));
        if update.is_none() && events.is_empty() {
            return None;
        }
        let (uid, version) = (meta.uid.clone(), meta.resource_version.clone());
        Some(Write { object: object.clone(), uid, version, update, events })
    }

    /// Does these writes. Returns whether all succeeded.
    async fn write(&mut self, writes: Vec<Write>) -> bool {
        let mut running = JoinSet::new();
        let (mut waiting, mut is_fine) = (writes.into_iter(), true);
        loop {
            while running.len() < MAX_WRITES
                && self.reports.leadership.is_leader()
                && let Some(write) = waiting.next()
            {
                let writer = self.writer.clone();
                running.spawn(async move {
                    let result = tokio::time::timeout(WRITE_TIMEOUT, send(&writer, &write)).await;
                    (write, result.unwrap_or_else(|_| Err("the API server did not answer in time".to_owned())))
                });
            }
            match running.join_next().await {
                None => return is_fine,
                Some(Ok((write, Ok(())))) => {
                    if let Some(update) = write.update {
                        self.written.insert(write.object, (write.version, update));
                    }
                }
                Some(Ok((write, Err(error)))) => {
                    is_fine = false;
                    warn!(object = %write.object, %error, "the status was not written");
                    self.log.forget(&write.object);
                }
                Some(Err(error)) => debug!(%error, "a write ended early"),
            }
        }
    }
}

async fn send(writer: &ClusterWriter, write: &Write) -> Result<(), String> {
    let text = |error: kube::Error| sentence(&error);
    if let Some(update) = &write.update {
        writer.status(&write.object, update).await.map_err(text)?;
    }
    for event in &write.events {
        writer.event(event, &write.uid).await.map_err(text)?;
    }
    Ok(())
}

/// What the sockets of an object have come to.
fn served(exposures: &Exposures, known: &KnownSockets, up: &BTreeSet<SocketId>, health: &ApiHealth) -> Vec<Served> {
    let of = |exposure: &sallyport_kube_model::Exposure| {
        let socket = known.by_key.get(&exposure.key);
        let error = known.errors.get(&exposure.key).cloned().or_else(|| match (socket, health) {
            (None, ApiHealth::NoToken(problem)) => Some(("Unauthorized".to_owned(), problem.clone())),
            (None, ApiHealth::Away(problem)) => {
                Some(("ApiUnavailable".to_owned(), format!("{problem}; it is tried again")))
            }
            _ => None,
        });
        Served {
            port: exposure.key.port.clone(),
            hostname: socket.map(|socket| socket.dns_name.clone()),
            url: socket.map(|socket| socket.url.clone()),
            is_up: socket.is_some_and(|socket| up.contains(&socket.id) || socket.tunnels_up > 0),
            error,
        }
    };
    exposures.desired.iter().map(of).collect()
}

/// The Event with the public names, at the moment at which all are served.
fn became_exposed(
    object: &ObjectKey,
    source: &Source,
    update: Option<&StatusUpdate>,
    served: &[Served],
) -> Option<Event> {
    let is_new = match (source, update?) {
        (Source::Service(service), StatusUpdate { condition: Some(condition), .. }) => {
            let was: Option<&Condition> = service.conditions.iter().find(|one| one.condition_type == CONDITION_EXPOSED);
            condition.status == ConditionStatus::True && was.is_none_or(|was| was.status != ConditionStatus::True)
        }
        (Source::Ingress(_), StatusUpdate { load_balancer: Some(names), .. }) => !names.is_empty(),
        _ => false,
    };
    let urls: Vec<&str> = served.iter().filter_map(|one| one.url.as_deref()).collect();
    (is_new && !urls.is_empty()).then(|| Event::new(object.clone(), EventType::Normal, "Exposed", &urls.join(", ")))
}

/// The wall clock in seconds, for the times in conditions.
fn unix_now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
