//! The work of each second.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use ipnet::IpNet;
use parking_lot::Mutex;
use sallyport_anycast::{
    bird::{EdgePart, Protocol, Version, configuration},
    floor::{Announcer, Demand, Withdrawal},
    health::{Cause, Found, PrefixHealth, Step},
    model::{Announcement, AnycastConfig, AnycastPrefix, OrderKind},
};
use sallyport_api::{AnycastEdge, AnycastEdgePrefix, AnycastEdgePreview, AnycastState, AuditAnycast, AuditEvent};
use sallyport_bird::{Bird, BirdError};
use sallyport_bus::{OwnedAnycast, PermitFailure};
use sallyport_identity::Purpose;
use time::OffsetDateTime;
use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior},
};

use super::{Anycast, AnycastSettings, Board, checks::OwnRequest, metrics::AnycastMetrics, report};
use crate::{state::EdgeState, util::service_addresses::ServiceAddresses};

/// How often the edge looks at itself.
const PERIOD: Duration = Duration::from_secs(1);
/// How often it does so while the process ends.
const ENDING_PERIOD: Duration = Duration::from_millis(200);
/// How often the edge looks at what BIRD announces and what neighbours have sent.
const LOOK_PERIOD: Duration = Duration::from_secs(5);
/// How often the edge says again that it announces.
const PERMIT_PERIOD: Duration = Duration::from_secs(30);
/// How long neighbours have for another route, when the process ends.
const SETTLE_TIME: Duration = Duration::from_secs(2);
/// How long a change is waited for that BIRD has refused, at first and at most.
const RETRY: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(60)];
/// The most problems that are told.
const MAX_PROBLEMS: usize = 64;

const BIRD_AWAY: &str = "BIRD does not answer: what was announced stays";
const BIRD_REFUSES: &str = "BIRD does not take the configuration: what was announced stays";

/// A prefix of this edge.
struct Served {
    spec: AnycastPrefix,
    health: PrefixHealth,
    since: OffsetDateTime,
    /// When the permits document was last told that this edge announces.
    told_at: Option<Duration>,
    /// Whether nobody wants it announced any more.
    is_gone: bool,
}

/// What BIRD is to do about a prefix.
struct BirdStep {
    net: IpNet,
    step: Step,
    state: Announcement,
}

/// Drives the prefixes of an edge.
pub(super) struct Agent {
    settings: AnycastSettings,
    state: Arc<EdgeState>,
    board: Arc<Mutex<Board>>,
    served: watch::Sender<Vec<IpAddr>>,
    metrics: Arc<AnycastMetrics>,
    ends: watch::Receiver<Option<Instant>>,
    started: Instant,
    check: OwnRequest,
    bird: Bird,
    version: Option<Version>,
    addresses: ServiceAddresses,
    prefixes: BTreeMap<IpNet, Served>,
    /// What BIRD has taken.
    applied: Option<EdgePart>,
    /// Whether BIRD was seen to announce something of an edge.
    has_announced: bool,
    failures: u32,
    retry_at: Duration,
    looked_at: Option<Duration>,
    /// Since when the process ends.
    ending_since: Option<Duration>,
    /// What this round has found wrong.
    problems: Vec<String>,
    /// What does not work with BIRD, until it does.
    bird_problem: Option<(&'static str, String)>,
    /// What BIRD has said of the last configuration.
    remarks: Vec<String>,
    protocols: Vec<Protocol>,
    sent: BTreeMap<String, BTreeSet<IpNet>>,
}

impl Agent {
    pub(super) fn new(anycast: &Anycast, listens: SocketAddr) -> Self {
        let settings = anycast.settings.clone();
        Self {
            state: anycast.state.clone(),
            board: anycast.board.clone(),
            served: anycast.served.clone(),
            metrics: anycast.metrics.clone(),
            ends: anycast.ends.subscribe(),
            started: Instant::now(),
            check: OwnRequest::new(&anycast.state, listens),
            bird: Bird::new(&settings.bird),
            version: None,
            addresses: ServiceAddresses::open(settings.interface.clone(), settings.kept.clone()),
            prefixes: BTreeMap::new(),
            applied: None,
            has_announced: false,
            failures: 0,
            retry_at: Duration::ZERO,
            looked_at: None,
            ending_since: None,
            problems: Vec::new(),
            bird_problem: None,
            remarks: Vec::new(),
            protocols: Vec::new(),
            sent: BTreeMap::new(),
            settings,
        }
    }

    /// Runs until everything is withdrawn at the end of the process.
    pub(super) async fn run(&mut self) {
        let mut ticks = tokio::time::interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut ends = self.ends.clone();
        // BIRD does not start without the file that it includes.
        if let Err(error) = sallyport_bird::ensure_file(&self.settings.file).await {
            tracing::warn!(error = report::short(&error.to_string()), "the file of BIRD cannot be written");
        }
        loop {
            let has_begun = self.ending_since.is_some();
            tokio::select! {
                _ = ticks.tick() => {}
                // The end is begun at once, and in shorter rounds.
                Ok(()) = ends.changed() => {}
                () = tokio::time::sleep(ENDING_PERIOD), if has_begun => {}
            }
            self.round().await;
            if self.ends.borrow().is_some() && self.is_bird_away() {
                tracing::warn!("nothing is withdrawn: BIRD does not answer");
                return;
            }
            if self.ending_since.is_some() && self.prefixes.values().all(|one| one.health.is_stopped()) {
                return;
            }
        }
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    async fn round(&mut self) {
        self.problems.clear();
        let served = self.settings.served.get();
        let config = self.own_part(&served);
        self.look().await;
        if !self.follow(&config).await {
            self.publish(None);
            return;
        }
        self.check().await;
        self.handle_end();
        self.handle_orders(&config);
        self.ask_permits(&config).await;
        self.take_steps(&config, &served).await;
        let part = self.part(&config, &BTreeMap::new());
        self.publish(Some(&part));
    }

    /// The configuration, without what this edge does not accept. Passwords are opened.
    fn own_part(&mut self, served: &OwnedAnycast) -> AnycastConfig {
        let mut config = served.config.clone();
        let allow = self.settings.allow.clone();
        let mut refused = Vec::new();
        config.prefixes.retain(|prefix| match prefix.check(&allow) {
            Ok(()) => true,
            Err(error) => {
                if prefix.is_for(self.settings.region.as_ref()) {
                    refused.push(format!("this edge does not announce it: {error}"));
                }
                false
            }
        });
        config.peers.retain_mut(|peer| {
            if !peer.place.has(&self.settings.edge, self.settings.region.as_ref()) {
                return false;
            }
            if let Some(sealed) = peer.password.take() {
                let Some(password) = self.settings.sealer.open::<String>(Purpose::RouterPassword, &sealed) else {
                    refused.push(format!("the password of {} cannot be opened", peer.name));
                    return false;
                };
                peer.password = Some(password);
            }
            let checked = peer.check();
            if let Err(error) = &checked {
                refused.push(format!("this edge does not speak with a neighbour: {error}"));
            }
            checked.is_ok()
        });
        self.problems.extend(refused);
        config
    }

    /// Looks at BIRD: whether it answers, its sessions, and from time to time what it announces and was sent.
    async fn look(&mut self) {
        match self.bird.protocols().await {
            Ok(protocols) => {
                self.metrics.set_bird(true);
                self.protocols = protocols;
                if self.bird_problem.as_ref().is_some_and(|(note, _)| *note == BIRD_AWAY) {
                    self.bird_problem = None;
                    // It may be another process, with another configuration.
                    self.looked_at = None;
                    self.retry_at = Duration::ZERO;
                }
            }
            Err(error) => return self.bird_away(&error),
        }
        let now = self.now();
        if self.looked_at.is_some_and(|at| now < at + LOOK_PERIOD) {
            return;
        }
        self.looked_at = Some(now);
        if let Ok(version) = self.bird.version().await {
            self.version = Some(version);
        }
        let routes = self.bird.imported().await.map(report::routes).unwrap_or_default();
        self.board.lock().routes = routes;
        self.look_at_exports().await;
        // What is announced by somebody else's hand, or no longer after a restart of BIRD.
        if let Ok(announced) = self.bird.announced().await {
            let own = self.addresses.own().clone();
            for (net, one) in &mut self.prefixes {
                let announcement = announced.get(net).copied().unwrap_or(Announcement::Withdrawn);
                if announcement != one.health.announcement() {
                    self.applied = None;
                    let has_address = one.spec.addresses.iter().any(|address| own.contains(address));
                    one.health
                        .handle_found(Found { announcement, has_address: has_address || one.health.has_address() });
                }
            }
            self.has_announced |= !announced.is_empty();
        } else {
            self.applied = None;
        }
    }

    async fn look_at_exports(&mut self) {
        self.sent.clear();
        let peers: Vec<String> =
            report::peers(&self.protocols).into_iter().filter(|peer| peer.is_up).map(|peer| peer.name).collect();
        for peer in peers {
            if let Ok(Some(routes)) = self.bird.routes_exported(&peer).await {
                self.sent.insert(peer, routes.into_iter().map(|route| route.net).collect());
            }
        }
    }

    fn bird_away(&mut self, error: &BirdError) {
        self.metrics.set_bird(false);
        let text = report::short(&error.to_string());
        if self.bird_problem.as_ref().is_none_or(|(note, _)| *note != BIRD_AWAY) {
            tracing::warn!(error = text, "{BIRD_AWAY}");
            self.metrics.failed("bird");
        }
        self.bird_problem = Some((BIRD_AWAY, text));
        self.protocols.clear();
        self.sent.clear();
    }

    /// Begins with prefixes that are new, and ends those that are gone. `false` while BIRD does not say what it
    /// announces: then nothing is known, and nothing changes.
    async fn follow(&mut self, config: &AnycastConfig) -> bool {
        let region = self.settings.region.clone();
        let wanted: BTreeMap<IpNet, &AnycastPrefix> =
            config.prefixes.iter().filter(|one| one.is_for(region.as_ref())).map(|one| (one.net, one)).collect();
        let is_new = wanted.keys().any(|net| !self.prefixes.contains_key(net));
        let mut announced = BTreeMap::new();
        if is_new {
            announced = match self.bird.announced().await {
                Ok(announced) => announced,
                // BIRD has no file of an edge yet.
                Err(BirdError::Reply(_)) => BTreeMap::new(),
                Err(error) => {
                    self.bird_away(&error);
                    return !self.prefixes.is_empty();
                }
            };
        }
        for (net, spec) in &wanted {
            match self.prefixes.get_mut(net) {
                Some(one) if !one.is_gone => one.spec = (*spec).clone(),
                Some(_) => {}
                None => {
                    let has_address = spec.addresses.iter().all(|address| self.addresses.own().contains(address));
                    let announcement = announced.get(net).copied().unwrap_or(Announcement::Withdrawn);
                    let health = PrefixHealth::new(*net, self.settings.timing, Found { announcement, has_address });
                    let since = OffsetDateTime::now_utc();
                    let one = Served { spec: (*spec).clone(), health, since, told_at: None, is_gone: false };
                    self.prefixes.insert(*net, one);
                }
            }
        }
        for (net, one) in &mut self.prefixes {
            if !wanted.contains_key(net) && !one.is_gone {
                one.is_gone = true;
                one.health.handle_stop();
            }
        }
        self.prefixes.retain(|_, one| !(one.is_gone && one.health.is_stopped()));
        self.remove_strays().await;
        true
    }

    /// Removes addresses that a former process has left, of prefixes that this edge does not have.
    async fn remove_strays(&mut self) {
        let known: BTreeSet<_> = self.prefixes.values().flat_map(|one| one.spec.addresses.iter().copied()).collect();
        let strays: Vec<_> = self.addresses.own().difference(&known).copied().collect();
        for address in strays {
            if let Err(error) = self.addresses.remove(address).await {
                self.metrics.failed("address");
                self.problems.push(error);
            }
        }
    }

    /// Checks itself, and what other machines do for it.
    async fn check(&mut self) {
        let own = self.check.send().await;
        let now = self.now();
        let mut results = vec![(Cause::Listener, own.listens), (Cause::Request, own.answers || !own.listens)];
        results.extend((self.settings.shared)());
        let flows = self.state.running.count() as u64;
        for one in self.prefixes.values_mut() {
            results.iter().for_each(|(cause, is_good)| one.health.handle_check(*cause, *is_good, now));
            one.health.handle_flows(flows);
        }
    }

    /// The strictest order for this edge.
    fn handle_orders(&mut self, config: &AnycastConfig) {
        let here =
            |place: &sallyport_anycast::model::Place| place.has(&self.settings.edge, self.settings.region.as_ref());
        let has = |kind| config.orders.iter().any(|order| order.kind == kind && here(&order.place));
        let mut order = [OrderKind::Drain, OrderKind::Maintain].into_iter().find(|kind| has(*kind));
        if self.ending_since.is_some() {
            order = Some(OrderKind::Maintain);
        }
        self.prefixes.values_mut().for_each(|one| one.health.handle_order(order));
    }

    /// At the end of the process, neighbours prefer others first; then everything is withdrawn.
    fn handle_end(&mut self) {
        let Some(until) = *self.ends.borrow() else { return };
        let now = self.now();
        let since = *self.ending_since.get_or_insert(now);
        let left = until.saturating_duration_since(Instant::now());
        // Half of the time is for work that runs, and the rest for the withdrawal.
        let is_idle = self.state.running.count() == 0;
        let is_over = now >= since + SETTLE_TIME && (is_idle || left < now.saturating_sub(since));
        let ended = self.prefixes.values_mut();
        let ended = ended.filter(|one| is_over || one.health.announcement() == Announcement::Withdrawn);
        ended.for_each(|one| one.health.handle_stop());
    }

    /// Why a prefix stands as it does.
    fn reason(&self, one: &Served) -> String {
        if one.is_gone {
            return "nobody wants it announced".to_owned();
        }
        if self.ending_since.is_some() {
            return "the edge stops".to_owned();
        }
        one.health.wanted(self.now()).reason
    }

    fn is_bird_away(&self) -> bool {
        self.bird_problem.as_ref().is_some_and(|(note, _)| *note == BIRD_AWAY)
    }

    /// Asks for permits to withdraw, and says which prefixes this edge announces.
    async fn ask_permits(&mut self, config: &AnycastConfig) {
        let (edge, now) = (self.settings.edge.clone(), self.now());
        let live = (self.settings.live)();
        for (net, one) in &mut self.prefixes {
            let min_sites = config.prefixes.iter().find(|prefix| prefix.net == *net).map_or(0, |one| one.min_sites);
            let demand = Demand { min_sites, requests: 0 };
            if one.health.is_counted() {
                if one.told_at.is_none_or(|at| now >= at + PERMIT_PERIOD) {
                    let as_one = Announcer { region: self.settings.region.clone(), capacity: 0 };
                    match self.settings.permits.announce(*net, &edge, &as_one, &live).await {
                        Ok(()) => one.told_at = Some(now),
                        Err(error) => {
                            self.metrics.failed("permit");
                            tracing::debug!(%error, prefix = %net, "the permits are not told of an announcement");
                        }
                    }
                }
            } else if one.told_at.is_some() && one.health.permit_ask(now).is_none() {
                // This edge is broken or ends, which no permit prevents.
                one.told_at = None;
                let _ = self.settings.permits.withdraw(*net, &edge, Withdrawal::Local, &live, demand).await;
            }
            let Some(ask) = one.health.permit_ask(now) else { continue };
            let answer = self.settings.permits.withdraw(*net, &edge, Withdrawal::ByPermit, &live, demand).await;
            match &answer {
                Ok(()) => one.told_at = None,
                Err(PermitFailure::Refused(why)) => {
                    self.metrics.refused();
                    tracing::warn!(prefix = %net, why, "the prefix is not withdrawn");
                }
                Err(PermitFailure::Away(why)) => {
                    self.metrics.failed("permit");
                    tracing::warn!(prefix = %net, why, "the prefix is not withdrawn without a permit");
                }
            }
            one.health.handle_permit(ask, answer.map_err(|error| error.to_string()), now);
        }
    }

    /// The part of this edge with these states in place of the present ones.
    fn part(&self, config: &AnycastConfig, states: &BTreeMap<IpNet, Announcement>) -> EdgePart {
        let settings = &self.settings;
        let mut part = EdgePart::of(config, &settings.edge, settings.region.as_ref(), settings.router_id);
        part.rpki.clone_from(&settings.rpki);
        for (net, one) in &self.prefixes {
            let state = states.get(net).copied().unwrap_or(one.health.announcement());
            // A prefix that is gone is not in the part any more.
            part.set(*net, state);
        }
        part
    }

    /// Adds and removes addresses, and has BIRD take what changed, all in one configuration.
    async fn take_steps(&mut self, config: &AnycastConfig, served: &OwnedAnycast) {
        if self.is_bird_away() {
            return;
        }
        let (states, steps) = self.poll_steps().await;
        let part = self.part(config, &states);
        let is_due = !steps.is_empty() || self.now() >= self.retry_at;
        if self.applied.as_ref() == Some(&part) && steps.is_empty() || !is_due {
            return;
        }
        // Nobody has set up anything yet: BIRD may not even include the file.
        let is_empty = part.prefixes.is_empty() && part.peers.is_empty() && steps.is_empty();
        if is_empty && self.applied.is_none() && !self.has_announced {
            return;
        }
        let result = self.bird.apply(&part, &self.settings.file).await;
        let now = self.now();
        match result {
            Ok(applied) => {
                self.version = Some(applied.version);
                self.remarks = applied.missing;
                self.remarks.extend(applied.unheard.iter().map(ToString::to_string));
                (self.bird_problem, self.failures, self.retry_at) = (None, 0, now);
                self.applied = Some(part);
                steps.iter().for_each(|step| self.handle_changed(step, served));
                self.look_at_exports().await;
            }
            Err(error) => {
                let text = report::short(&error.to_string());
                if self.bird_problem.as_ref().is_none_or(|(_, known)| *known != text) {
                    tracing::warn!(error = text, "{BIRD_REFUSES}");
                }
                self.metrics.failed("bird");
                self.bird_problem = Some((BIRD_REFUSES, text));
                self.applied = None;
                let delay = RETRY[0].saturating_mul(1 << self.failures.min(6)).min(RETRY[1]);
                (self.failures, self.retry_at) = (self.failures.saturating_add(1), now + delay);
                for BirdStep { net, step, .. } in steps {
                    if let Some(one) = self.prefixes.get_mut(&net) {
                        one.health.handle_failed(step, now);
                    }
                }
            }
        }
    }

    /// The next steps with BIRD. What is about addresses is done here: they come before an announcement, and go after it.
    async fn poll_steps(&mut self) -> (BTreeMap<IpNet, Announcement>, Vec<BirdStep>) {
        let (now, mut states, mut steps) = (self.now(), BTreeMap::new(), Vec::new());
        for (net, one) in &mut self.prefixes {
            while let Some(step) = one.health.poll_step(now) {
                let state = match step {
                    Step::Announce => Announcement::Announced,
                    Step::Deprioritise => Announcement::Deprioritised,
                    Step::Withdraw => Announcement::Withdrawn,
                    Step::AddAddress | Step::RemoveAddress => {
                        let mut result = Ok(());
                        for address in &one.spec.addresses {
                            let done = match step {
                                Step::AddAddress => self.addresses.add(*address).await,
                                _ => self.addresses.remove(*address).await,
                            };
                            result = result.and(done);
                        }
                        match result {
                            Ok(()) => one.health.handle_done(step, now),
                            Err(error) => {
                                self.metrics.failed("address");
                                tracing::warn!(error, "a service address is not as it should be");
                                self.problems.push(error);
                                // Tried again after a while.
                                one.health.handle_failed(step, now);
                            }
                        }
                        continue;
                    }
                };
                states.insert(*net, state);
                steps.push(BirdStep { net: *net, step, state });
                break;
            }
        }
        (states, steps)
    }

    /// Records a change that BIRD has made.
    fn handle_changed(&mut self, &BirdStep { net, step, state }: &BirdStep, served: &OwnedAnycast) {
        let now = self.now();
        let Some(why) = self.prefixes.get(&net).map(|one| self.reason(one)) else { return };
        let Some(one) = self.prefixes.get_mut(&net) else { return };
        one.health.handle_done(step, now);
        one.since = OffsetDateTime::now_utc();
        self.metrics.changed(state);
        tracing::info!(prefix = %net, %state, why, "announcement changed");
        if let Some(audit) = &self.state.config.audit {
            let event = AuditAnycast {
                prefix: net.to_string(),
                edge: self.settings.edge.to_string(),
                state: state.as_str().to_owned(),
                why,
            };
            audit.sink.record(AuditEvent::anycast(one.since, served.owner, event));
        }
    }

    /// Publishes what is known now.
    fn publish(&mut self, part: Option<&EdgePart>) {
        let announced = self.prefixes.values().filter(|one| one.health.announcement() != Announcement::Withdrawn);
        let mut served: Vec<IpAddr> = announced.flat_map(|one| one.spec.addresses.iter().copied()).collect();
        served.sort_unstable();
        self.served.send_if_modified(|known| std::mem::replace(known, served.clone()) != served);
        self.metrics.set_states(self.prefixes.values().map(|one| one.health.announcement()));
        let own = self.addresses.own();
        let prefixes = self.prefixes.iter().map(|(net, one)| AnycastEdgePrefix {
            prefix: net.to_string(),
            state: match one.health.announcement() {
                Announcement::Announced => AnycastState::Announced,
                Announcement::Deprioritised => AnycastState::Deprioritised,
                Announcement::Withdrawn => AnycastState::Withdrawn,
            },
            why: self.reason(one),
            since: one.since,
            addresses: one.spec.addresses.iter().filter(|address| own.contains(address)).copied().collect(),
            sent_to: self.sent.iter().filter(|(_, nets)| nets.contains(net)).map(|(peer, _)| peer.clone()).collect(),
        });
        let mut problems: Vec<String> = self.bird_problem.iter().map(|(note, why)| format!("{note} ({why})")).collect();
        problems.extend(self.problems.iter().chain(&self.remarks).cloned());
        problems.truncate(MAX_PROBLEMS);
        let status = AnycastEdge {
            edge: self.settings.edge.to_string(),
            region: self.settings.region.as_ref().map(ToString::to_string),
            bird: self.version.map(|version| version.to_string()),
            prefixes: prefixes.collect(),
            peers: report::peers(&self.protocols),
            problems,
        };
        let preview = self.preview(part);
        let mut board = self.board.lock();
        board.status = Some(status);
        board.preview = Some(preview);
        board.notes = self.bird_problem.iter().map(|(note, _)| *note).collect();
    }

    /// What the file would be with everything that is wanted now.
    fn preview(&self, part: Option<&EdgePart>) -> AnycastEdgePreview {
        let file = self.settings.file.display().to_string();
        let empty = AnycastEdgePreview { edge: self.settings.edge.to_string(), ..AnycastEdgePreview::default() };
        let (Some(part), Some(version)) = (part, self.version) else {
            let problem = Some("BIRD has not answered yet".to_owned());
            return AnycastEdgePreview { file: Some(file), problem, ..empty };
        };
        let mut part = part.clone();
        let now = self.now();
        for (net, one) in &self.prefixes {
            part.set(*net, one.health.wanted(now).state);
        }
        match configuration(&part, version) {
            Ok(next) => {
                let present = std::fs::read_to_string(&self.settings.file).unwrap_or_default();
                let (present, next) = (report::masked(&present), report::masked(&next.text));
                AnycastEdgePreview { file: Some(file), diff: report::diff(&present, &next), next, ..empty }
            }
            Err(error) => AnycastEdgePreview { file: Some(file), problem: Some(error.to_string()), ..empty },
        }
    }
}
