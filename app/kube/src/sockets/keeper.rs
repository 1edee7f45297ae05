//! Brings the sockets of this cluster to what the cluster asks for, on the leader; lists them on every replica.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use sallyport_client::{ApiClient, ClientError};
use sallyport_kube_model::{
    Action, Backoff as Pauses, Exposure, ExposureKey, Failure, Memory, ObjectKey, Plan, Seen, SocketSpec, plan,
};
use sallyport_net::Shutdown;
use tokio::{sync::watch, task::JoinSet, time::Instant};
use tracing::{info, warn};

use super::{
    KnownSockets, SocketOptions,
    act::{self, Done},
    list::SocketList,
    sweep::TunnelSweep,
};
use crate::{
    cluster::sentence,
    control::{self, ControlApi},
    lead::Leadership,
    retry::Backoff,
    serve::{Change, Health},
    status::ClusterWriter,
    watch::View,
};

/// How many actions run at once.
const MAX_ACTIONS_AT_ONCE: usize = 8;
/// How many plans one round may take; each does what the one before made possible.
const MAX_PASSES: usize = 8;
/// The longest time without a round.
const LONGEST_WAIT: Duration = Duration::from_secs(3_600);

/// Keeps the sockets.
pub(crate) struct SocketKeeper {
    api: ControlApi,
    writer: ClusterWriter,
    health: Arc<Health>,
    options: SocketOptions,
    known: watch::Sender<Arc<KnownSockets>>,
    leadership: Leadership,
    list: Option<SocketList>,
    listed_at: Instant,
    /// Whether the list is known to be old.
    is_stale: bool,
    /// When the sockets may be listed again after a failure, or where a listing did not have what was looked for.
    list_not_before: Instant,
    list_backoff: Backoff,
    memory: Memory,
    pauses: Pauses,
    specs: BTreeMap<ExposureKey, SocketSpec>,
    errors: BTreeMap<ExposureKey, (String, String)>,
    /// Idempotency keys of creations whose outcome is not known yet.
    create_keys: BTreeMap<ExposureKey, String>,
    /// Changes that were accepted and did not change the socket.
    futile: BTreeMap<ExposureKey, Action>,
    sweep: TunnelSweep,
    start: Instant,
}

impl SocketKeeper {
    /// A keeper that knows nothing yet.
    pub(crate) fn new(
        api: ControlApi,
        writer: ClusterWriter,
        health: Arc<Health>,
        options: SocketOptions,
        leadership: Leadership,
    ) -> Self {
        let now = Instant::now();
        Self {
            api,
            writer,
            health,
            known: watch::channel(Arc::default()).0,
            leadership,
            list: None,
            listed_at: now,
            is_stale: true,
            list_not_before: now,
            list_backoff: Backoff::new(options.retry),
            memory: Memory::new(options.sweep_after),
            pauses: Pauses::default(),
            specs: BTreeMap::new(),
            errors: BTreeMap::new(),
            create_keys: BTreeMap::new(),
            futile: BTreeMap::new(),
            sweep: TunnelSweep::new(options.forget_after),
            start: now,
            options,
        }
    }

    /// Reports what is known.
    pub(crate) fn watch(&self) -> watch::Receiver<Arc<KnownSockets>> {
        self.known.subscribe()
    }

    /// Runs until the shutdown. `missing` tells that a socket turned out to be gone.
    pub(crate) async fn run(
        mut self,
        mut view: watch::Receiver<Arc<View>>,
        mut missing: watch::Receiver<u64>,
        shutdown: Shutdown,
    ) {
        let mut health = self.api.watch();
        let mut leadership = self.leadership.clone();
        loop {
            let was_leader = leadership.is_leader();
            self.health.metrics.leader.set(i64::from(was_leader));
            let current = view.borrow_and_update().clone();
            let wake = tokio::select! {
                wake = self.round(&current) => wake,
                () = shutdown.wait() => return,
            };
            tokio::select! {
                () = shutdown.wait() => return,
                Ok(()) = view.changed() => {
                    // What was looked for in vain may be there now: the leader tells by a change of the object.
                    self.list_backoff.reset();
                    self.list_not_before = Instant::now();
                }
                () = leadership.turned(was_leader) => self.is_stale = true,
                Ok(()) = missing.changed() => {
                    missing.mark_unchanged();
                    self.is_stale = true;
                }
                Ok(()) = health.changed() => {
                    if health.borrow_and_update().problem().is_none() {
                        self.pauses.token_changed();
                        self.list_not_before = Instant::now();
                    }
                }
                () = tokio::time::sleep_until(wake) => {}
            }
        }
    }

    /// The time of core/kube.
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Lists, plans and acts; returns when the next round is due.
    async fn round(&mut self, view: &View) -> Instant {
        let far = Instant::now() + LONGEST_WAIT;
        if !view.is_complete {
            return far;
        }
        let Ok(client) = self.api.client() else { return far };
        self.forget_failures(view);
        // The numbers of tunnels that are up tell which sockets the sweep looks at.
        self.is_stale |= self.leadership.is_leader() && self.sweep.next() <= Instant::now();
        if self.is_list_due() {
            self.relist(&client, view).await;
        }
        let mut plan = self.plan(view);
        for _ in 0..MAX_PASSES {
            self.publish(&plan);
            if !self.leadership.is_leader() || self.list.is_none() {
                break;
            }
            let due = self.due(&plan);
            if due.is_empty() || !self.execute(&client, view, due).await {
                break;
            }
            plan = self.plan(view);
        }
        self.publish(&plan);
        if self.leadership.is_leader() {
            self.release(view, &plan).await;
            if let Some(list) = &mut self.list {
                self.sweep.round(&self.api, &client, &self.health, list).await;
            }
        } else if view.desired().any(|one| !one.is_held && !plan.adopted.contains_key(&one.key)) {
            self.look_again_later();
        }
        self.next_wake(&plan)
    }

    fn is_list_due(&self) -> bool {
        let now = Instant::now();
        let is_old = self.is_stale || self.list.is_none() || self.listed_at + self.options.resync <= now;
        is_old && self.list_not_before <= now
    }

    /// A follower looks for sockets that the leader makes.
    fn look_again_later(&mut self) {
        if !self.is_stale {
            self.is_stale = true;
            self.list_not_before = Instant::now() + self.list_backoff.next();
        }
    }

    fn next_wake(&self, plan: &Plan) -> Instant {
        let now = Instant::now();
        let core = |at: Duration| self.start + at;
        let list = match self.list {
            Some(_) if !self.is_stale => self.listed_at + self.options.resync,
            _ => self.list_not_before,
        };
        let is_leader = self.leadership.is_leader();
        let sweep = plan.sweep_at.filter(|_| is_leader).map(core);
        let pauses = self.pauses.next(self.now()).filter(|_| is_leader).map(core);
        let tunnels = is_leader.then(|| self.sweep.next());
        let next = [Some(list), sweep, pauses, tunnels].into_iter().flatten().min().unwrap_or(now + LONGEST_WAIT);
        // A round never follows a round at once; what is due now waits for something that failed.
        next.max(now + Duration::from_millis(100))
    }

    async fn relist(&mut self, client: &ApiClient, view: &View) {
        let settings = &view.settings;
        let read = SocketList::read(client, settings.cluster.as_str(), settings.installation.as_deref()).await;
        self.api.note(&read);
        self.health.metrics.called(Change::List, control::outcome(&read));
        match read {
            Ok(list) => {
                self.list = Some(list);
                self.listed_at = Instant::now();
                self.is_stale = false;
                self.futile.clear();
            }
            Err(error) => {
                let wait = self.list_backoff.next();
                self.list_not_before = Instant::now() + wait;
                warn!(%error, ?wait, "the sockets cannot be listed");
            }
        }
    }

    /// What failed is tried at once where its object asks for something else now.
    fn forget_failures(&mut self, view: &View) {
        let wanted: BTreeMap<ExposureKey, SocketSpec> =
            view.desired().map(|one| (one.key.clone(), one.spec.clone())).collect();
        for (key, spec) in &wanted {
            if self.specs.get(key) != Some(spec) {
                self.pauses.forget(key);
                self.futile.remove(key);
                self.errors.remove(key);
            }
        }
        self.errors.retain(|key, _| wanted.contains_key(key) || view.sources.contains_key(&key.object));
        self.create_keys.retain(|key, _| wanted.contains_key(key));
        self.specs = wanted;
    }

    fn plan(&mut self, view: &View) -> Plan {
        let (owned, is_sockets_complete) = match &self.list {
            Some(list) => (list.owned(), true),
            None => (Vec::new(), false),
        };
        let desired: Vec<Exposure> = view.desired().cloned().collect();
        let objects = view.objects();
        let seen = Seen { objects: &objects, is_objects_complete: view.is_complete, is_sockets_complete };
        let now = self.now();
        if self.leadership.is_leader() {
            plan(&view.settings, &desired, &owned, seen, &mut self.memory, now)
        } else {
            // Only the leader counts how long objects are gone.
            plan(&view.settings, &desired, &owned, seen, &mut self.memory.clone(), now)
        }
    }

    fn due(&self, plan: &Plan) -> Vec<Action> {
        let now = self.now();
        let is_due = |action: &&Action| {
            let is_futile = action.key().is_some_and(|key| self.futile.get(key) == Some(*action));
            !is_futile && action.key().is_none_or(|key| self.pauses.is_due(key, now))
        };
        plan.actions.iter().filter(is_due).cloned().collect()
    }

    /// Does these actions: those of one kind at once, and each kind after the one before. Returns whether one
    /// succeeded.
    async fn execute(&mut self, client: &ApiClient, view: &View, actions: Vec<Action>) -> bool {
        let kind = |action: &Action| match action {
            Action::Delete { .. } => 0,
            Action::Update { .. } => 1,
            Action::Create { .. } => 2,
        };
        let mut did_any = false;
        for number in 0..3 {
            let mut waiting: Vec<Action> = actions.iter().filter(|one| kind(one) == number).cloned().collect();
            if number == 2 {
                self.mark(view, &mut waiting).await;
            }
            let mut running: JoinSet<(Action, Result<Done, ClientError>)> = JoinSet::new();
            waiting.reverse();
            loop {
                while running.len() < MAX_ACTIONS_AT_ONCE
                    && self.leadership.is_leader()
                    && let Some(action) = waiting.pop()
                {
                    let (client, key) = (client.clone(), self.create_key(&action));
                    running.spawn(async move {
                        let done = act::act(&client, &action, &key).await;
                        (action, done)
                    });
                }
                match running.join_next().await {
                    None => break,
                    Some(Ok((action, done))) => did_any |= self.settle(action, done),
                    Some(Err(error)) => warn!(%error, "an action failed"),
                }
            }
        }
        did_any
    }

    /// The idempotency key of a creation: the same one until the outcome is known.
    fn create_key(&mut self, action: &Action) -> String {
        let Action::Create { key, .. } = action else { return String::new() };
        let new = || {
            let mut bytes = [0; 16];
            // Without random numbers the time tells keys apart.
            let random = getrandom::fill(&mut bytes).map(|()| u128::from_be_bytes(bytes));
            format!("kube-{:032x}", random.unwrap_or_else(|_| self.start.elapsed().as_nanos()))
        };
        self.create_keys.entry(key.clone()).or_insert_with(new).clone()
    }

    /// Gives the objects of new sockets the finalizer. Sockets whose object did not get it wait.
    async fn mark(&mut self, view: &View, creates: &mut Vec<Action>) {
        let objects: BTreeSet<&ObjectKey> = creates.iter().filter_map(|one| Some(&one.key()?.object)).collect();
        let metas: Vec<_> = objects
            .into_iter()
            .filter_map(|key| Some((key.clone(), view.sources.get(key)?.meta().clone())))
            .filter(|(_, meta)| !meta.has_finalizer())
            .collect();
        let mut unmarked = BTreeSet::new();
        for (key, result) in self.set_finalizers(metas, true).await {
            if let Err(error) = result {
                warn!(object = %key, error = %sentence(&error), "the finalizer was not added; the socket waits");
                unmarked.insert(key);
            }
        }
        if !unmarked.is_empty() {
            self.list_not_before = self.list_not_before.max(Instant::now());
            creates.retain(|one| one.key().is_none_or(|key| !unmarked.contains(&key.object)));
        }
    }

    /// Takes the finalizer off objects that have no socket any more and ask for none.
    async fn release(&mut self, view: &View, plan: &Plan) {
        if self.list.is_none() {
            return;
        }
        let released: Vec<_> = view
            .exposures
            .iter()
            .filter(|(key, exposures)| !exposures.is_requested && !plan.busy.contains(*key))
            .filter_map(|(key, _)| Some((key.clone(), view.sources.get(key)?.meta().clone())))
            .filter(|(_, meta)| meta.has_finalizer())
            .collect();
        for (key, result) in self.set_finalizers(released, false).await {
            if let Err(error) = result {
                warn!(object = %key, error = %sentence(&error), "the finalizer was not removed yet");
            }
        }
    }

    async fn set_finalizers(
        &self,
        metas: Vec<(ObjectKey, sallyport_kube_model::ObjectMeta)>,
        is_wanted: bool,
    ) -> Vec<(ObjectKey, Result<(), kube::Error>)> {
        let mut running = JoinSet::new();
        let (mut waiting, mut results) = (metas.into_iter(), Vec::new());
        loop {
            while running.len() < MAX_ACTIONS_AT_ONCE
                && let Some((key, meta)) = waiting.next()
            {
                let writer = self.writer.clone();
                running.spawn(async move {
                    let result = writer.finalizer(key.kind, &meta, is_wanted).await;
                    (key, result)
                });
            }
            match running.join_next().await {
                None => return results,
                Some(Ok(result)) => results.push(result),
                Some(Err(error)) => warn!(%error, "a finalizer was not written"),
            }
        }
    }

    /// Notes what an action came to. Returns whether it succeeded.
    fn settle(&mut self, action: Action, done: Result<Done, ClientError>) -> bool {
        self.api.note(&done);
        let change = match &action {
            Action::Create { .. } => Change::CreateSocket,
            Action::Update { .. } => Change::UpdateSocket,
            Action::Delete { .. } => Change::DeleteSocket,
        };
        self.health.metrics.called(change, control::outcome(&done));
        let key = action.key().cloned();
        match done {
            Ok(done) => {
                if let Some(key) = &key {
                    self.pauses.succeeded(key);
                    self.errors.remove(key);
                    self.create_keys.remove(key);
                }
                let shown = key.as_ref().map(ToString::to_string).unwrap_or_default();
                match done {
                    Done::Socket(socket) => {
                        let verb = if change == Change::CreateSocket { "created" } else { "changed" };
                        info!(object = %shown, url = %socket.url, "{verb} a socket");
                        // The same change again would change nothing either.
                        let Some(list) = &mut self.list else { return true };
                        let is_same = list.sockets.get(&socket.id).is_some_and(|there| *there == *socket);
                        if is_same && let Action::Update { key, .. } = &action {
                            self.futile.insert(key.clone(), action.clone());
                        }
                        list.sockets.insert(socket.id, *socket);
                    }
                    Done::Gone(id) => {
                        info!(object = %shown, socket = %id, "deleted a socket");
                        if let Some(list) = &mut self.list {
                            list.sockets.remove(&id);
                        }
                    }
                }
                true
            }
            Err(error) => {
                let failure = act::failure(&error);
                if !error.is_ambiguous()
                    && let Some(key) = &key
                {
                    self.create_keys.remove(key);
                }
                if let (Failure::NameTaken, Some(key)) = (failure, &key) {
                    self.memory.name_taken(key);
                }
                if matches!(failure, Failure::Changed | Failure::Conflict) || error.status() == Some(404) {
                    self.is_stale = true;
                }
                let text = act::sentence(&error, failure);
                if let Some(key) = key {
                    warn!(object = %key, error = %text, "the socket is not as asked");
                    self.pauses.failed(&key, failure, self.now(), getrandom::u64().unwrap_or(0));
                    self.errors.insert(key, (failure.reason().to_owned(), text));
                }
                false
            }
        }
    }

    fn publish(&self, plan: &Plan) {
        let Some(list) = &self.list else { return };
        let by_key =
            plan.adopted.iter().filter_map(|(key, id)| Some((key.clone(), list.sockets.get(id)?.clone()))).collect();
        let known =
            KnownSockets { is_listed: true, by_key, errors: self.errors.clone(), blocked: plan.blocked.clone() };
        self.known.send_if_modified(|there| {
            let is_new = !(there.is_listed
                && there.by_key == known.by_key
                && there.errors == known.errors
                && there.blocked == known.blocked);
            if is_new {
                *there = Arc::new(known);
            }
            is_new
        });
    }
}
