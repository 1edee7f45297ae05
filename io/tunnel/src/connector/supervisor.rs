//! The supervisor of a connector's sessions: which ones to have, which tunnels they hold, how they end.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    future::Future,
    io,
    pin::pin,
    sync::Arc,
    time::Duration,
};

use sallyport_model::{EdgeName, TunnelId};
use sallyport_wire::{
    Edges, NOT_YET_KNOWN, Refusal, Welcome,
    edge_selector::{EdgeSelector, MAX_REDUNDANCY, Target, Welcomed},
    session::MAX_TUNNELS_PER_SESSION,
};
use tokio::{
    runtime::Handle,
    sync::{mpsc, oneshot},
    task::JoinSet,
    time::Instant,
};
use tracing::debug;

use super::{
    ConnectorConfig, ConnectorError, ConnectorEvent, Dial, OriginHandler, TunnelChange, TunnelCredential, random,
    session::{ConnectorSession, SessionEvent},
};
use crate::mux::now;

/// Bound on queued events of sessions: all tunnels of all sessions may be attached at once.
pub(super) const MAX_QUEUED_NEWS: usize = 2 * MAX_TUNNELS_PER_SESSION * MAX_REDUNDANCY;
/// Timeout of dialing the control connection.
const DIAL_TIME: Duration = Duration::from_secs(30);
/// Delay before a tunnel that was refused for now is attached again.
const REATTACH_AFTER: Duration = Duration::from_secs(5);
/// The same delay if the edge does not know the tunnel, while other edges do.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(500);
/// Time that one of several edges has to learn of a tunnel before its "unknown tunnel" is believed.
const CONFIRMATION_TIME: Duration = Duration::from_secs(3);
/// Period in which attachment is retried soon after an edge reported that the tunnel may still be on its way to the
/// edge.
const ON_ITS_WAY_TIME: Duration = Duration::from_secs(6);
/// Least time in which a stream may still come after the connector announced that no more are accepted.
const MIN_LINGER: Duration = Duration::from_millis(250);
/// Time that an edge which goes away has to close its flows once the tunnels are attached elsewhere. Flows have no end
/// of their own; the edge closes them when the clients' datagrams go to another edge.
const FLOWS_MOVE_TIME: Duration = Duration::from_secs(5);
/// Time that sessions have to close once their streams are done.
const CLOSE_TIME: Duration = Duration::from_secs(2);

/// State shared by all sessions of a connector.
pub(super) struct ConnectorContext {
    pub(super) config: ConnectorConfig,
    pub(super) origin: Arc<dyn OriginHandler>,
    pub(super) events: mpsc::Sender<ConnectorEvent>,
    /// The runtime of everything but streams.
    pub(super) runtime: Handle,
}

impl ConnectorContext {
    /// Sends an event of a request or a flow, unless the room is needed for more important events.
    pub(super) fn emit_logged(&self, event: ConnectorEvent) {
        if self.events.capacity() > self.events.max_capacity() / 4 {
            let _ = self.events.try_send(event);
        }
    }
}

/// An attempt to set up a session, or an established one.
struct SessionSlot {
    /// The edge, once known.
    edge: Option<EdgeName>,
    dial: Arc<dyn Dial>,
    /// Dropping the sender cancels the attempt.
    _attempt: oneshot::Sender<()>,
    live: Option<Live>,
    /// When tunnels that were refused for now are attached again.
    attach_at: Option<Instant>,
}

/// An established session and its state.
struct Live {
    session: Arc<ConnectorSession>,
    /// The edge accepted the session, so tunnels may be attached.
    is_welcomed: bool,
    attached: HashSet<TunnelId>,
    refused: HashSet<TunnelId>,
    was_attached: bool,
    /// The session ends when its streams are done.
    is_released: bool,
    refusal: Option<Refusal>,
    since: Instant,
}

/// The answers of edges about a tunnel that none of them attached.
#[derive(Default)]
struct RefusalRecord {
    since: Option<Instant>,
    by: HashSet<Option<EdgeName>>,
}

/// Dials a control connection and drives its session, with all streams, in one scheduler.
async fn dial_and_drive(
    number: u64,
    shared: Arc<ConnectorContext>,
    dial: Arc<dyn Dial>,
    news: mpsc::Sender<(u64, SessionEvent)>,
    mut given_up: oneshot::Receiver<()>,
) {
    let dialed = tokio::select! {
        dialed = tokio::time::timeout(DIAL_TIME, dial.dial_control()) => dialed,
        _ = &mut given_up => return,
    };
    let late = |_| Err(io::Error::new(io::ErrorKind::TimedOut, "the edge did not answer in time"));
    match dialed.unwrap_or_else(late) {
        Err(error) => drop(news.send((number, SessionEvent::NotDialed(error))).await),
        Ok(carrier) => {
            let session = ConnectorSession::new(number, shared, dial, news.clone());
            // If the supervisor has stopped waiting, the connection is dropped.
            if news.send((number, SessionEvent::Dialed(session.clone()))).await.is_ok() {
                session.run(carrier).await;
            }
        }
    }
}

/// Everything a connector does besides its streams.
pub(super) struct Supervisor {
    shared: Arc<ConnectorContext>,
    /// The dialer of the configured address.
    dial: Arc<dyn Dial>,
    /// The tunnels that are still wanted.
    tunnels: Vec<TunnelCredential>,
    places: EdgeSelector,
    posts: BTreeMap<u64, SessionSlot>,
    /// Sessions that are going away or were given up, until their streams are done.
    retiring: Vec<Live>,
    refusals: HashMap<TunnelId, RefusalRecord>,
    tasks: JoinSet<()>,
    news_in: mpsc::Sender<(u64, SessionEvent)>,
    next_number: u64,
}

impl Supervisor {
    pub(super) fn new(
        config: ConnectorConfig,
        dial: Arc<dyn Dial>,
        origin: Arc<dyn OriginHandler>,
        events: mpsc::Sender<ConnectorEvent>,
    ) -> Self {
        Self {
            tunnels: config.tunnels.clone(),
            places: EdgeSelector::new(config.redundancy, config.home.clone(), config.edges.clone(), random()),
            shared: Arc::new(ConnectorContext { config, origin, events, runtime: Handle::current() }),
            dial,
            posts: BTreeMap::new(),
            retiring: Vec::new(),
            refusals: HashMap::new(),
            tasks: JoinSet::new(),
            news_in: mpsc::channel(MAX_QUEUED_NEWS).0,
            next_number: 0,
        }
    }

    /// Holds the tunnels until the shutdown.
    ///
    /// # Errors
    /// No tunnel is left to hold.
    pub(super) async fn run(
        mut self,
        mut changes: mpsc::Receiver<TunnelChange>,
        shutdown: impl Future<Output = ()> + Send,
    ) -> Result<(), ConnectorError> {
        let (news_in, mut news) = mpsc::channel(MAX_QUEUED_NEWS);
        self.news_in = news_in;
        let mut shutdown = pin!(shutdown);
        loop {
            self.dial_and_release();
            let wake = self.wake();
            let outcome = tokio::select! {
                () = &mut shutdown => Err(Ok(())),
                Some((number, message)) = news.recv() => self.on_news(number, message).map_err(Err),
                Some(change) = changes.recv() => {
                    self.on_change(change);
                    Ok(())
                }
                () = at(wake) => {
                    self.attach_again();
                    Ok(())
                }
            };
            if let Err(end) = outcome {
                self.stop(news).await;
                return end;
            }
        }
    }

    /// When the next timer is due.
    fn wake(&self) -> Option<Instant> {
        let attach = self.posts.values().filter_map(|post| post.attach_at);
        attach.chain(self.places.poll_timeout(now()).map(Instant::from_std)).min()
    }

    /// Sends an event without waiting: a consumer that does not read must not keep the connector from stopping.
    fn emit(&self, event: ConnectorEvent) {
        if self.shared.events.try_send(event).is_err() {
            debug!("an event was dropped: the consumer does not read");
        }
    }

    /// Dials and gives up edges as the selector decides.
    fn dial_and_release(&mut self) {
        while let Some(target) = self.places.dial(self.next_number + 1, now()) {
            self.next_number += 1;
            self.start(self.next_number, &target);
        }
        while let Some(number) = self.places.release(now()) {
            let Some(SessionSlot { live: Some(live), edge, .. }) = self.posts.remove(&number) else { continue };
            for tunnel in &live.attached {
                live.session.mux.detach(*tunnel, "moved", "the connector holds the tunnel at other edges");
            }
            self.retiring.push(live);
            self.emit(ConnectorEvent::Left { edge });
            self.release_retiring();
        }
    }

    fn start(&mut self, number: u64, target: &Target) {
        self.collect_finished();
        let edge = target.edge().cloned();
        self.emit(ConnectorEvent::Connecting { edge: edge.clone() });
        let dial = match target {
            Target::Given => Some(self.dial.clone()),
            Target::Edge(place) => self.dial.other(place),
        };
        let Some(dial) = dial else { return self.places.handle_lost(number, now(), random()) };
        let (attempt, given_up) = oneshot::channel();
        let task = dial_and_drive(number, self.shared.clone(), dial.clone(), self.news_in.clone(), given_up);
        self.shared.config.shards.spawn_among(&mut self.tasks, task);
        self.posts.insert(number, SessionSlot { edge, dial, _attempt: attempt, live: None, attach_at: None });
    }

    /// Removes finished tasks, so that they do not accumulate.
    fn collect_finished(&mut self) {
        while self.tasks.try_join_next().is_some() {}
    }

    fn attach_again(&mut self) {
        let due = Instant::now();
        for post in self.posts.values_mut().filter(|post| post.attach_at.is_some_and(|at| at <= due)) {
            post.attach_at = None;
            let Some(live) = &mut post.live else { continue };
            live.refused.clear();
            for tunnel in self.tunnels.iter().filter(|tunnel| !live.attached.contains(&tunnel.tunnel)) {
                live.session.attach(tunnel, self.places.home());
            }
        }
    }

    fn on_change(&mut self, change: TunnelChange) {
        let lives = self.posts.values_mut().filter_map(|post| post.live.as_mut()).filter(|live| live.is_welcomed);
        match change {
            TunnelChange::Hold(tunnel) => {
                let id = tunnel.tunnel;
                for live in lives.filter(|live| !live.attached.contains(&id)) {
                    live.session.attach(&tunnel, self.places.home());
                }
                match self.tunnels.iter_mut().find(|known| known.tunnel == id) {
                    Some(known) => *known = tunnel,
                    None => self.tunnels.push(tunnel),
                }
            }
            TunnelChange::LetGo(tunnel) => {
                self.tunnels.retain(|known| known.tunnel != tunnel);
                self.refusals.remove(&tunnel);
                for live in lives {
                    live.attached.remove(&tunnel);
                    live.session.mux.detach(tunnel, "shutting-down", "the connector no longer serves the tunnel");
                }
            }
        }
    }

    /// Handles an event of a session. An error means that no tunnel is left.
    fn on_news(&mut self, number: u64, news: SessionEvent) -> Result<(), ConnectorError> {
        self.collect_finished();
        let Some(post) = self.posts.get_mut(&number) else {
            match news {
                SessionEvent::Ended { .. } => self.retiring.retain(|live| live.session.number != number),
                SessionEvent::Dialed(session) => session.mux.close("the connector has stopped waiting for the session"),
                _ => {}
            }
            return Ok(());
        };
        match (news, &mut post.live) {
            (SessionEvent::NotDialed(error), _) => self.lost(number, error.to_string()),
            (SessionEvent::Dialed(session), live) => {
                *live = Some(Live {
                    session,
                    is_welcomed: false,
                    attached: HashSet::new(),
                    refused: HashSet::new(),
                    was_attached: false,
                    is_released: false,
                    refusal: None,
                    since: Instant::now(),
                });
            }
            (_, None) => {}
            (SessionEvent::Welcomed { rtt, transport, welcome }, _) => {
                self.on_welcomed(number, rtt, transport, *welcome)
            }
            (SessionEvent::Edges(Edges { edges, leave }), _) => self.places.handle_edges(number, edges, leave),
            (SessionEvent::Attached { tunnel, url }, Some(live)) => {
                live.attached.insert(tunnel);
                live.refused.remove(&tunnel);
                live.was_attached = true;
                let edge = post.edge.clone();
                self.refusals.remove(&tunnel);
                self.look_whether_holding(number);
                self.release_retiring();
                self.emit(ConnectorEvent::Attached { tunnel, url, edge });
            }
            (SessionEvent::NotAttached { tunnel, refusal }, Some(live)) => {
                live.refused.insert(tunnel);
                self.look_whether_holding(number);
                self.on_not_attached(number, tunnel, refusal)?;
            }
            (SessionEvent::Detached { tunnel, code, message }, Some(live)) => {
                live.attached.remove(&tunnel);
                let event = ConnectorEvent::Detached { tunnel, code: code.clone(), message: message.clone() };
                self.emit(event);
                self.give_up(tunnel, ConnectorError::Detached { code, message })?;
            }
            (SessionEvent::GoAway { message }, Some(_)) => self.on_go_away(number, message),
            (SessionEvent::Refused(refusal), Some(live)) => live.refusal = Some(refusal),
            (SessionEvent::Ended { why }, Some(live)) => {
                let refusal = live.refusal.take();
                let done = refusal.is_none().then(|| post.dial.lost(live.since.elapsed())).flatten();
                let is_for_good = |refusal: &Refusal| !refusal.retry && refusal.code != "nothing-attached";
                if let Some(refusal) = refusal.filter(is_for_good)
                    && !self.has_others(number)
                {
                    return Err(ConnectorError::SessionRefused(refusal));
                }
                self.lost(number, done.map_or(why.clone(), |done| format!("{why}; {done}")));
            }
        }
        Ok(())
    }

    /// Whether there are other edges, in use or to be tried.
    fn has_others(&self, number: u64) -> bool {
        self.places.has_others() || self.posts.keys().any(|other| *other != number)
    }

    fn on_welcomed(&mut self, number: u64, rtt: Duration, transport: &'static str, welcome: Welcome) {
        let Welcome { edge, region, edges, leave, .. } = welcome;
        if self.places.handle_welcome(number, edge.clone(), region.clone(), now(), random()) == Welcomed::Twice {
            debug!(?edge, "there is a session with this edge already");
            if let Some(SessionSlot { live: Some(live), .. }) = self.posts.remove(&number) {
                live.session.mux.close("there is another session with this edge");
            }
            return;
        }
        self.places.handle_edges(number, edges, leave);
        self.emit(ConnectorEvent::Connected { edge: edge.clone(), region, rtt, transport });
        let Some(post) = self.posts.get_mut(&number) else { return };
        post.edge = edge;
        let Some(live) = &mut post.live else { return };
        live.is_welcomed = true;
        self.tunnels.iter().for_each(|tunnel| live.session.attach(tunnel, self.places.home()));
        self.look_whether_holding(number);
    }

    /// Checks whether all tunnels that the edge accepts are attached.
    fn look_whether_holding(&mut self, number: u64) {
        let Some(live) = self.posts.get(&number).and_then(|post| post.live.as_ref()) else { return };
        let is_settled = |id: &TunnelId| live.attached.contains(id) || live.refused.contains(id);
        let is_empty = self.tunnels.is_empty();
        if (is_empty || !live.attached.is_empty()) && self.tunnels.iter().all(|tunnel| is_settled(&tunnel.tunnel)) {
            self.places.handle_holding(number);
        }
    }

    fn on_not_attached(&mut self, number: u64, tunnel: TunnelId, refusal: Refusal) -> Result<(), ConnectorError> {
        let is_held = |post: &SessionSlot| post.live.as_ref().is_some_and(|live| live.attached.contains(&tunnel));
        let is_held_elsewhere = self.posts.values().any(is_held);
        let has_others = self.has_others(number);
        let Some(post) = self.posts.get_mut(&number) else { return Ok(()) };
        // One of several edges may not have learned of the tunnel yet. The answer is believed after a while, or when
        // another edge confirms it.
        let edge = post.edge.clone();
        let is_unconfirmed = edge.is_some() && refusal.code != "no-datagrams";
        let record = self.refusals.entry(tunnel).or_default();
        let since = *record.since.get_or_insert_with(Instant::now);
        if !refusal.retry {
            record.by.insert(edge);
        }
        let is_on_its_way = refusal.code == NOT_YET_KNOWN && since.elapsed() < ON_ITS_WAY_TIME;
        let is_new = is_on_its_way || (!refusal.retry && since.elapsed() < CONFIRMATION_TIME);
        let at = Instant::now() + if is_new { LOOK_AGAIN_AFTER } else { REATTACH_AFTER };
        post.attach_at = Some(post.attach_at.map_or(at, |known| known.min(at)));
        let is_believed =
            !is_unconfirmed || (since.elapsed() >= CONFIRMATION_TIME && (record.by.len() > 1 || !has_others));
        let is_first = since.elapsed() < LOOK_AGAIN_AFTER / 2;
        if refusal.retry || is_held_elsewhere || !is_believed {
            if (is_first || (refusal.retry && !is_on_its_way)) && !is_held_elsewhere {
                self.emit(ConnectorEvent::NotAttached { tunnel, refusal: Refusal { retry: true, ..refusal } });
            }
            return Ok(());
        }
        self.emit(ConnectorEvent::NotAttached { tunnel, refusal: refusal.clone() });
        self.give_up(tunnel, ConnectorError::Refused(refusal))
    }

    /// Gives a tunnel up at all edges. The last one ends the connector.
    fn give_up(&mut self, tunnel: TunnelId, error: ConnectorError) -> Result<(), ConnectorError> {
        self.tunnels.retain(|wanted| wanted.tunnel != tunnel);
        self.refusals.remove(&tunnel);
        for live in self.posts.values_mut().filter_map(|post| post.live.as_mut()) {
            if live.attached.remove(&tunnel) {
                live.session.mux.detach(tunnel, "shutting-down", "the connector may no longer hold the tunnel");
            }
        }
        if self.tunnels.is_empty() { Err(error) } else { Ok(()) }
    }

    /// Handles a failed attempt or an ended session, and reports what happens next.
    fn lost(&mut self, number: u64, reason: String) {
        self.places.handle_lost(number, now(), random());
        let edge = self.posts.remove(&number).and_then(|post| post.edge);
        let is_held = |post: &&SessionSlot| post.live.as_ref().is_some_and(|live| !live.attached.is_empty());
        let held_by = self.posts.values().filter(is_held).count();
        self.emit(ConnectorEvent::Disconnected { edge, reason, held_by });
        self.dial_and_release();
        if self.posts.is_empty()
            && let Some(at) = self.places.poll_timeout(now())
        {
            self.emit(ConnectorEvent::Retrying { after: at.saturating_duration_since(now()) });
        }
    }

    fn on_go_away(&mut self, number: u64, message: String) {
        let Some(SessionSlot { live: Some(live), edge, .. }) = self.posts.remove(&number) else { return };
        // The edge may still be listening. Only a session that worked justifies an immediate retry.
        self.places.handle_gone_away(number, live.was_attached, now(), random());
        self.retiring.push(live);
        self.emit(ConnectorEvent::GoingAway { edge, message });
        self.release_retiring();
    }

    /// Ends sessions that are going away after their last stream, once their tunnels are attached elsewhere.
    fn release_retiring(&mut self) {
        let attached: HashSet<TunnelId> = self
            .posts
            .values()
            .filter_map(|post| post.live.as_ref())
            .flat_map(|live| live.attached.iter().copied())
            .collect();
        let wanted = |id: &TunnelId| self.tunnels.iter().any(|tunnel| tunnel.tunnel == *id);
        for live in self.retiring.iter_mut().filter(|live| !live.is_released) {
            // A session that never worked has no tunnels to move.
            let is_moved = live.attached.iter().all(|id| attached.contains(id) || !wanted(id)) && !attached.is_empty();
            if !is_moved {
                continue;
            }
            live.is_released = true;
            let session = live.session.clone();
            self.tasks.spawn(async move {
                tokio::time::sleep(linger(&session)).await;
                session.streams.zero().await;
                session.flows_over(FLOWS_MOVE_TIME).await;
                session.mux.close("the edge went away and all streams are done");
            });
        }
    }

    /// Detaches the tunnels, lets their streams finish, and closes the sessions.
    async fn stop(mut self, mut news: mpsc::Receiver<(u64, SessionEvent)>) {
        let posts = std::mem::take(&mut self.posts);
        let lives: Vec<_> = posts.into_values().filter_map(|post| post.live).chain(self.retiring.drain(..)).collect();
        for live in &lives {
            for tunnel in &live.attached {
                live.session.mux.detach(*tunnel, "shutting-down", "the connector stops");
            }
        }
        let drained = async {
            let linger = lives.iter().filter(|live| live.was_attached).map(|live| linger(&live.session)).max();
            tokio::time::sleep(linger.unwrap_or_default()).await;
            for live in &lives {
                live.session.streams.zero().await;
            }
        };
        let ignored = async { while news.recv().await.is_some() {} };
        let closed = async {
            if tokio::time::timeout(self.shared.config.drain, drained).await.is_err() {
                debug!("streams were still running at the end of the drain time");
            }
            for live in &lives {
                live.session.mux.close("the connector stops");
            }
            let ended = async { while self.tasks.join_next().await.is_some() {} };
            let _ = tokio::time::timeout(CLOSE_TIME, ended).await;
        };
        tokio::select! {
            () = closed => {}
            () = ignored => {}
        }
    }
}

/// Time in which a stream may arrive that the edge opened before it learned of the end.
fn linger(session: &ConnectorSession) -> Duration {
    session.mux.smoothed_rtt().map_or(MIN_LINGER, |rtt| (rtt * 4).max(MIN_LINGER))
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}
