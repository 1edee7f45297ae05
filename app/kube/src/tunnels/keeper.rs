//! Keeps the tunnels of this replica as wanted: creates, changes and deletes them at the API, and holds them.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    num::NonZeroU16,
    sync::Arc,
    thread,
    time::Duration,
};

use anyhow::Context as _;
use sallyport_api::{CreateTunnel, CreatedTunnel, UpdateTunnel};
use sallyport_client::{ApiClient, ClientError, SocketRef, TunnelRef};
use sallyport_connector::{ConnectorEvent, OriginPool};
use sallyport_model::{SocketId, TunnelId};
use sallyport_net::Shutdown;
use sallyport_shards::Shards;
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::Instant,
};
use tracing::{debug, info, warn};

use super::{
    TunnelKey, TunnelOptions, TunnelSettings, TunnelWanted, WantedTunnels,
    carrier::{Carrier, CarrierEvent},
    pods,
};
use crate::{
    control::ControlApi,
    retry::Backoff,
    serve::{Change, Health, TunnelCount},
};

/// How many calls of the API run at once.
const MAX_CALLS: usize = 16;
/// How many events of all connectors may wait.
const MAX_QUEUED_EVENTS: usize = 4_096;
/// How long the deletion of the tunnels may take at the end.
const DELETE_TIME: Duration = Duration::from_secs(20);
/// How long connectors may take to end after their time of draining.
const CLOSE_TIME: Duration = Duration::from_secs(5);

/// A tunnel, and how far it is.
struct Entry {
    wanted: TunnelWanted,
    step: Step,
    backoff: Backoff,
}

/// How far a tunnel is.
enum Step {
    /// It is created at this time.
    Waiting(Instant),
    /// The API is called.
    Creating,
    /// A connector holds it.
    Held(Held),
}

/// A tunnel that a connector holds.
struct Held {
    tunnel: TunnelId,
    credential: sallyport_api::Secret,
    carrier: u64,
    /// The pods behind it.
    pods: OriginPool,
    is_up: bool,
    /// The settings that the API has.
    settings: TunnelSettings,
}

/// The result of a call.
enum Answer {
    Created(TunnelKey, TunnelSettings, Result<Box<CreatedTunnel>, CallError>),
    Updated(TunnelKey, Result<(), CallError>),
    Deleted,
}

/// Why a call failed.
struct CallError {
    text: String,
    /// Whether the socket or the tunnel is not there.
    is_missing: bool,
}

/// The tunnels of this replica.
pub(crate) struct TunnelKeeper {
    api: ControlApi,
    options: TunnelOptions,
    health: Arc<Health>,
    shards: Shards,
    entries: BTreeMap<TunnelKey, Entry>,
    by_tunnel: HashMap<TunnelId, TunnelKey>,
    carriers: Vec<Carrier>,
    next_carrier: u64,
    events_in: mpsc::Sender<(u64, CarrierEvent)>,
    events: mpsc::Receiver<(u64, CarrierEvent)>,
    calls: JoinSet<Answer>,
    /// Deletions that wait for a free call.
    to_delete: Vec<(TunnelKey, TunnelId)>,
    /// Told when a socket turns out to be gone.
    missing: watch::Sender<u64>,
    /// The sockets of tunnels that are up.
    up: watch::Sender<Arc<BTreeSet<SocketId>>>,
}

impl TunnelKeeper {
    /// No tunnels yet.
    ///
    /// # Errors
    /// The system cannot start the threads that serve connections.
    pub(crate) fn new(
        api: ControlApi,
        options: TunnelOptions,
        health: Arc<Health>,
        missing: watch::Sender<u64>,
    ) -> anyhow::Result<Self> {
        let count = thread::available_parallelism().ok().and_then(|count| NonZeroU16::try_from(count).ok());
        let count = count.unwrap_or(NonZeroU16::MIN);
        let shards = Shards::start(count).with_context(|| format!("cannot start {count} threads for connections"))?;
        let (events_in, events) = mpsc::channel(MAX_QUEUED_EVENTS);
        Ok(Self {
            api,
            options,
            health,
            shards,
            entries: BTreeMap::new(),
            by_tunnel: HashMap::new(),
            carriers: Vec::new(),
            next_carrier: 0,
            events_in,
            events,
            calls: JoinSet::new(),
            to_delete: Vec::new(),
            missing,
            up: watch::channel(Arc::default()).0,
        })
    }

    /// Reports the sockets of tunnels that are up.
    pub(crate) fn watch(&self) -> watch::Receiver<Arc<BTreeSet<SocketId>>> {
        self.up.subscribe()
    }

    /// Keeps the tunnels until the shutdown; then lets them go, with their requests finishing, and deletes them.
    pub(crate) async fn run(mut self, mut wanted: watch::Receiver<Option<Arc<WantedTunnels>>>, shutdown: Shutdown) {
        let mut health = self.api.watch();
        loop {
            self.start_calls();
            self.count();
            let wake = self.wake();
            tokio::select! {
                () = shutdown.wait() => break,
                Ok(()) = wanted.changed() => {
                    let now = wanted.borrow_and_update().clone();
                    if let Some(now) = now {
                        self.want(&now).await;
                    }
                }
                Some((carrier, event)) = self.events.recv() => self.on_event(carrier, event),
                Some(answer) = self.calls.join_next() => {
                    if let Ok(answer) = answer {
                        self.on_answer(answer).await;
                    }
                }
                Ok(()) = health.changed() => {
                    // A new token, or an API that is back: what failed is tried now.
                    if health.borrow_and_update().problem().is_none() {
                        self.hurry();
                    }
                }
                () = tokio::time::sleep_until(wake) => {}
            }
        }
        self.stop().await;
    }

    /// When something is due.
    fn wake(&self) -> Instant {
        let due = self.entries.values().filter_map(|entry| match entry.step {
            Step::Waiting(at) => Some(at),
            _ => None,
        });
        let far = Instant::now() + Duration::from_secs(3_600);
        // With all calls in use, the end of one of them wakes.
        if self.calls.len() >= MAX_CALLS { far } else { due.min().unwrap_or(far) }
    }

    fn hurry(&mut self) {
        let now = Instant::now();
        for entry in self.entries.values_mut() {
            if let Step::Waiting(at) = &mut entry.step {
                *at = now.min(*at);
            }
        }
    }

    fn count(&self) {
        let up = self.entries.values().filter(|entry| matches!(&entry.step, Step::Held(held) if held.is_up)).count();
        let endpoints: usize = self.entries.values().map(|entry| entry.wanted.pool.endpoints.len()).sum();
        let gauge = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let metrics = &self.health.metrics;
        metrics.tunnels.set(gauge(self.entries.len()));
        metrics.tunnels_up.set(gauge(up));
        metrics.endpoints.set(gauge(endpoints));
    }

    /// The number of tunnels, for the readiness.
    fn tell_readiness(&self) {
        let up = self.entries.values().filter(|entry| matches!(&entry.step, Step::Held(held) if held.is_up)).count();
        self.health.readiness.set_tunnels(TunnelCount { wanted: self.entries.len(), up });
        let is_up = |entry: &Entry| matches!(&entry.step, Step::Held(held) if held.is_up);
        let sockets: BTreeSet<SocketId> =
            self.entries.iter().filter(|(_, entry)| is_up(entry)).map(|(key, _)| key.socket).collect();
        self.up.send_if_modified(|there| {
            let is_new = **there != sockets;
            if is_new {
                *there = Arc::new(sockets);
            }
            is_new
        });
    }

    /// Takes over what is wanted now.
    async fn want(&mut self, wanted: &WantedTunnels) {
        let gone: Vec<TunnelKey> = self.entries.keys().filter(|key| !wanted.contains_key(key)).cloned().collect();
        for key in gone {
            let Some(entry) = self.entries.remove(&key) else { continue };
            if let Step::Held(held) = entry.step {
                self.let_go(&held).await;
                self.to_delete.push((key, held.tunnel));
            }
        }
        for (key, wanted) in wanted {
            match self.entries.get_mut(key) {
                None => {
                    let step = Step::Waiting(Instant::now());
                    let backoff = Backoff::new(self.options.retry);
                    self.entries.insert(key.clone(), Entry { wanted: wanted.clone(), step, backoff });
                }
                Some(entry) if entry.wanted != *wanted => {
                    let before = std::mem::replace(&mut entry.wanted, wanted.clone());
                    let Step::Held(held) = &entry.step else { continue };
                    if before.pool.endpoints != wanted.pool.endpoints || before.pool.is_sticky != wanted.pool.is_sticky
                    {
                        pods::replace(&held.pods, key, &wanted.pool);
                    }
                    let has_other_way = before.pool.tls != wanted.pool.tls
                        || before.pool.connect_timeout != wanted.pool.connect_timeout;
                    if has_other_way
                        && let Some(carrier) = self.carriers.iter().find(|carrier| carrier.number == held.carrier)
                    {
                        let service =
                            pods::service(held.tunnel, &held.credential, &held.pods, &wanted.pool, &self.options);
                        if let Err(error) = carrier.services().serve(service).await {
                            warn!(%error, "TLS to the pods of a tunnel was not changed");
                        }
                    }
                }
                Some(_) => {}
            }
        }
        self.tell_readiness();
    }

    async fn let_go(&mut self, held: &Held) {
        self.by_tunnel.remove(&held.tunnel);
        if let Some(carrier) = self.carriers.iter_mut().find(|carrier| carrier.number == held.carrier) {
            carrier.let_go(held.tunnel).await;
        }
    }

    /// Starts calls that are due.
    fn start_calls(&mut self) {
        let Ok(client) = self.api.client() else { return };
        while self.calls.len() < MAX_CALLS
            && let Some((key, tunnel)) = self.to_delete.pop()
        {
            let (api, client, health) = (self.api.clone(), client.clone(), self.health.clone());
            self.calls.spawn(async move {
                delete(&api, &client, &health, &key, tunnel).await;
                Answer::Deleted
            });
        }
        let now = Instant::now();
        for (key, entry) in &mut self.entries {
            if self.calls.len() >= MAX_CALLS {
                break;
            }
            let (api, client, health) = (self.api.clone(), client.clone(), self.health.clone());
            let (key, wanted) = (key.clone(), entry.wanted.clone());
            match &mut entry.step {
                Step::Waiting(at) if *at <= now => {
                    entry.step = Step::Creating;
                    self.calls.spawn(async move {
                        let created = create(&client, &key, &wanted).await;
                        note(&api, &health, Change::CreateTunnel, &created);
                        Answer::Created(key, wanted.settings, created.map(Box::new).map_err(CallError::of))
                    });
                }
                Step::Held(held) if held.settings != wanted.settings => {
                    // Not asked again before the answer; a refusal is a matter of the settings.
                    held.settings = wanted.settings.clone();
                    let tunnel = held.tunnel;
                    self.calls.spawn(async move {
                        let updated = update(&client, &key, tunnel, &wanted.settings).await;
                        note(&api, &health, Change::CreateTunnel, &updated);
                        Answer::Updated(key, updated.map_err(CallError::of))
                    });
                }
                _ => {}
            }
        }
    }

    async fn on_answer(&mut self, answer: Answer) {
        match answer {
            Answer::Deleted => {}
            Answer::Updated(key, Ok(())) => debug!(socket = %key.socket, "a tunnel has new settings"),
            Answer::Updated(key, Err(error)) => {
                warn!(socket = %key.socket, error = %error.text, "the settings of a tunnel were not changed");
            }
            Answer::Created(key, settings, Ok(created)) => self.hold(key, settings, *created).await,
            Answer::Created(key, _, Err(error)) => {
                if error.is_missing {
                    self.missing.send_modify(|count| *count = count.wrapping_add(1));
                }
                self.fail(&key, &error.text);
            }
        }
        self.tell_readiness();
    }

    /// Tries a tunnel again later.
    fn fail(&mut self, key: &TunnelKey, reason: &str) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let wait = entry.backoff.next();
        entry.step = Step::Waiting(Instant::now() + wait);
        warn!(tunnel = entry.wanted.name.as_str(), socket = %key.socket, ?wait, "the tunnel is not there: {reason}");
    }

    /// Has a connector hold the tunnel.
    async fn hold(&mut self, key: TunnelKey, settings: TunnelSettings, created: CreatedTunnel) {
        let (tunnel, credential) = (created.details.id, created.credential);
        let Some(entry) = self.entries.get(&key) else {
            // No longer wanted.
            self.to_delete.push((key, tunnel));
            return;
        };
        let pods = match pods::pool(&key, &entry.wanted.pool) {
            Ok(pods) => pods,
            Err(error) => {
                self.to_delete.push((key.clone(), tunnel));
                return self.fail(&key, &format!("{error:#}"));
            }
        };
        let service = pods::service(tunnel, &credential, &pods, &entry.wanted.pool, &self.options);
        let carrier = match self.carriers.iter_mut().find(|carrier| carrier.has_room()) {
            Some(carrier) => carrier.serve(service).await.map(|()| carrier.number),
            None => {
                self.next_carrier += 1;
                let (number, control) = (self.next_carrier, self.api.options());
                let (shards, events) = (&self.shards, self.events_in.clone());
                let started = Carrier::start(number, control, &self.options, created.connect, service, shards, events);
                started.map(|carrier| {
                    self.carriers.push(carrier);
                    number
                })
            }
        };
        match carrier {
            Ok(carrier) => {
                self.by_tunnel.insert(tunnel, key.clone());
                if let Some(entry) = self.entries.get_mut(&key) {
                    entry.step = Step::Held(Held { tunnel, credential, carrier, pods, is_up: false, settings });
                }
            }
            Err(error) => {
                self.to_delete.push((key.clone(), tunnel));
                self.fail(&key, &format!("{error:#}"));
            }
        }
    }

    fn on_event(&mut self, carrier: u64, event: CarrierEvent) {
        match event {
            CarrierEvent::Connector(event) => self.on_connector_event(carrier, *event),
            CarrierEvent::Ended(reason) => {
                self.carriers.retain(|known| known.number != carrier);
                let lost: Vec<TunnelKey> = self
                    .entries
                    .iter()
                    .filter(|(_, entry)| matches!(&entry.step, Step::Held(held) if held.carrier == carrier))
                    .map(|(key, _)| key.clone())
                    .collect();
                for key in lost {
                    self.lose(&key, &reason);
                }
            }
        }
        self.tell_readiness();
    }

    fn on_connector_event(&mut self, carrier: u64, event: ConnectorEvent) {
        match event {
            ConnectorEvent::Attached { tunnel, url, edge } => {
                let Some(entry) = self.by_tunnel.get(&tunnel).and_then(|key| self.entries.get_mut(key)) else { return };
                if let Step::Held(held) = &mut entry.step
                    && !std::mem::replace(&mut held.is_up, true)
                {
                    entry.backoff.reset();
                    let edge = edge.map(|edge| edge.to_string()).unwrap_or_default();
                    info!(tunnel = entry.wanted.name.as_str(), %url, %edge, "the tunnel is up");
                }
            }
            ConnectorEvent::NotAttached { tunnel, refusal } => {
                let Some(key) = self.by_tunnel.get(&tunnel).cloned() else { return };
                if refusal.retry {
                    debug!(socket = %key.socket, %refusal, "a tunnel is not attached yet");
                } else {
                    self.lose(&key, &refusal.to_string());
                }
            }
            ConnectorEvent::Detached { tunnel, message, .. } => {
                if let Some(key) = self.by_tunnel.get(&tunnel).cloned() {
                    self.lose(&key, &message);
                }
            }
            ConnectorEvent::Disconnected { reason, held_by: 0, .. } => {
                warn!(%reason, "no edge holds the tunnels of a connector; it dials again");
                for entry in self.entries.values_mut() {
                    match &mut entry.step {
                        Step::Held(held) if held.carrier == carrier => held.is_up = false,
                        _ => {}
                    }
                }
            }
            ConnectorEvent::Connected { edge, transport, .. } => {
                let edge = edge.map(|edge| edge.to_string()).unwrap_or_default();
                info!(%edge, transport, "connected to an edge");
            }
            _ => {}
        }
    }

    /// The edge ended the tunnel for good: it is created again.
    fn lose(&mut self, key: &TunnelKey, reason: &str) {
        let Some(Step::Held(held)) = self.entries.get(key).map(|entry| &entry.step) else { return };
        let (tunnel, carrier) = (held.tunnel, held.carrier);
        self.by_tunnel.remove(&tunnel);
        if let Some(carrier) = self.carriers.iter_mut().find(|known| known.number == carrier) {
            carrier.tunnels = carrier.tunnels.saturating_sub(1);
        }
        self.missing.send_modify(|count| *count = count.wrapping_add(1));
        self.fail(key, reason);
    }

    /// Lets all tunnels go, waits for their requests, and deletes them.
    async fn stop(mut self) {
        let held = self.by_tunnel.len();
        info!(tunnels = held, "lets its tunnels go; requests finish");
        self.carriers.iter().for_each(Carrier::drain);
        let ending = async {
            for carrier in &mut self.carriers {
                carrier.ended().await;
            }
        };
        if tokio::time::timeout(self.options.drain + CLOSE_TIME, ending).await.is_err() {
            warn!("some requests did not finish in time");
        }
        let deleting = async {
            while let Some(answer) = self.calls.join_next().await {
                if let Ok(Answer::Created(key, _, Ok(created))) = answer {
                    self.to_delete.push((key, created.details.id));
                }
            }
            let Ok(client) = self.api.client() else { return };
            let tunnels = self.by_tunnel.into_iter().map(|(tunnel, key)| (key, tunnel));
            let mut all: Vec<_> = self.to_delete.into_iter().chain(tunnels).collect();
            let mut calls = JoinSet::new();
            while !all.is_empty() || !calls.is_empty() {
                while calls.len() < MAX_CALLS
                    && let Some((key, tunnel)) = all.pop()
                {
                    let (api, client, health) = (self.api.clone(), client.clone(), self.health.clone());
                    calls.spawn(async move { delete(&api, &client, &health, &key, tunnel).await });
                }
                let _ = calls.join_next().await;
            }
        };
        if tokio::time::timeout(DELETE_TIME, deleting).await.is_err() {
            warn!("some tunnels were not deleted in time; the leader removes them later");
        }
    }
}

impl CallError {
    fn of(error: ClientError) -> Self {
        Self { text: error.to_string(), is_missing: error.status() == Some(404) }
    }
}

/// Counts a call, and notes what it says about the API.
fn note<T>(api: &ControlApi, health: &Health, change: Change, result: &Result<T, ClientError>) {
    api.note(result);
    health.metrics.called(change, crate::control::outcome(result));
}

/// Creates the tunnel. One with this name is of an earlier run of this replica, and gets a new credential.
async fn create(client: &ApiClient, key: &TunnelKey, wanted: &TunnelWanted) -> Result<CreatedTunnel, ClientError> {
    let socket = SocketRef::from(key.socket);
    let TunnelSettings { weight, path, rewrite_path, capacity } = wanted.settings.clone();
    let labels = crate::control::labels(&wanted.labels);
    let request = CreateTunnel { name: Some(wanted.name.clone()), weight, path, rewrite_path, capacity, labels };
    match client.create_tunnel(&socket, &request).await {
        Err(error) if error.status() == Some(409) => {
            match client.renew_credential(&socket, &TunnelRef::Called(wanted.name.clone())).await {
                // The conflict was about something else.
                Err(other) if other.status() == Some(404) => Err(error),
                result => result,
            }
        }
        result => result,
    }
}

async fn update(
    client: &ApiClient,
    key: &TunnelKey,
    tunnel: TunnelId,
    settings: &TunnelSettings,
) -> Result<(), ClientError> {
    let TunnelSettings { weight, path, rewrite_path, capacity } = settings.clone();
    let update = UpdateTunnel {
        name: None,
        weight: Some(weight.unwrap_or(sallyport_model::DEFAULT_WEIGHT)),
        path: Some(path),
        rewrite_path: Some(rewrite_path),
        capacity: Some(capacity),
        labels: None,
    };
    client.update_tunnel(&SocketRef::from(key.socket), &TunnelRef::from(tunnel), &update).await.map(drop)
}

/// Deletes the tunnel; if that fails, the leader removes it later.
async fn delete(api: &ControlApi, client: &ApiClient, health: &Health, key: &TunnelKey, tunnel: TunnelId) {
    let deleted = client.delete_tunnel(&SocketRef::from(key.socket), &TunnelRef::from(tunnel)).await;
    note(api, health, Change::DeleteTunnel, &deleted);
    match deleted {
        Err(error) if error.status() != Some(404) => debug!(%error, "a tunnel was not deleted"),
        _ => {}
    }
}
