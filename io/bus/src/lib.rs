//! The events and the directory: how control and the edges meet, in memory on one machine, and by NATS between several.
//!
//! [`Routes`], [`SshLogins`] and [`Identities`] carry what control decides (which sockets there are, which keys let ssh
//! clients in, who has logged in) to the edges; [`Directory`] carries what edges see (which tunnels are up) to control. All are maps that readers look into directly, so that a change is visible to
//! the next request after the call that made it returned; a broadcast beside the map tells those who must act on it.
//!
//! Between machines these maps stay what readers look into; what fills them on an edge is [`follow_config`], from what
//! [`publish_config`] writes at a control. [`Fleet`] is what [`follow_directory`] knows of all edges. What only edges know is
//! asked of them by an [`Asker`].

mod answers;
mod asker;
mod asks;
mod audit_stream;
mod config_entry;
mod fleet;
mod flows;
mod nats;
mod orders;
mod snapshot;

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::RwLock;
use sallyport_model::{
    AccountId, HealthFailure, LoginSession, LoginSessionId, OriginHealth, OriginRef, ServiceTokenId, ServiceTokenRoute,
    SocketId, SocketName, SocketRoute, SshLogin, TunnelId, TunnelPresence,
};
use tokio::sync::{broadcast, watch};

pub use answers::{EdgeFigures, EndedFlow, EndedHttp, EndedList, FlowList, FlowSeen, HeldTunnel, OriginUse, SocketUse};
pub use asker::Asker;
pub use asks::{
    ASK_SCHEMA, ASK_TIME, Answer, Answered, Ask, AskResults, MAX_ANSWER_BYTES, MAX_ANSWER_ITEMS, MAX_ASK_BYTES,
    NoAnswerReason, Responder, UnansweredEdge,
};
pub use audit_stream::{AuditSource, AuditStreamStats, AuditTaker};
pub use config_entry::{CONFIG_SCHEMA, ConfigEntryError, ConfigKey, ConfigValue, UnknownKey};
pub use fleet::{Fleet, FleetEdge, FleetNews, TunnelOnEdge};
pub use flows::{FlowGuard, FlowRoute, LiveFlow, LiveFlows};
pub use nats::{
    AUDIT_STREAM, AUDIT_STREAM_AGE, BusConfig, BusCredentials, BusError, CONFIG_BUCKET, ConfigProgress, ConfigSource,
    DIRECTORY_BUCKET, DirectoryRole, Link, MAX_AUDIT_STREAM_BYTES, Nats, PublishStats, SourceFuture, answer_asks,
    follow_config, follow_directory, prepare, publish_audit, publish_config, take_audit, talk_to_controls,
};
pub use orders::Orders;
pub use sallyport_directory::{Change as DirectoryChange, EdgeCard, EdgeState};
pub use snapshot::{MAX_SNAPSHOT_BYTES, SNAPSHOT_FILE, Snapshot, SnapshotError};

/// How many changes a slow subscriber may lag behind before it is told to look at the whole map again.
const MAX_QUEUED_CHANGES: usize = 1_024;

/// What happened to a route.
#[derive(Debug, Clone)]
pub enum RouteChange {
    /// A socket is new or changed: its tunnels, its access rule, its type.
    Changed(Arc<SocketRoute>),
    /// A socket is gone.
    Removed(SocketId),
    /// Changes were missed: look at the whole map again.
    Missed,
}

/// The sockets that edges serve.
#[derive(Clone, Debug)]
pub struct Routes {
    shared: Arc<RoutesState>,
}

#[derive(Debug)]
struct RoutesState {
    maps: RwLock<RouteMaps>,
    /// Goes up before the maps can be read that have changed.
    version: AtomicU64,
    changes: broadcast::Sender<RouteChange>,
    hints: Hints,
}

#[derive(Debug, Default)]
struct RouteMaps {
    by_id: HashMap<SocketId, Arc<SocketRoute>>,
    by_name: HashMap<SocketName, SocketId>,
}

impl Default for Routes {
    fn default() -> Self {
        Self::hinting(Hints::default())
    }
}

impl Routes {
    fn hinting(hints: Hints) -> Self {
        let changes = broadcast::Sender::new(MAX_QUEUED_CHANGES);
        Self { shared: Arc::new(RoutesState { maps: RwLock::default(), version: AtomicU64::new(0), changes, hints }) }
    }

    /// Makes the route known, in place of the former one of the same socket.
    pub fn put(&self, route: SocketRoute) {
        let route = Arc::new(route);
        {
            let mut maps = self.shared.maps.write();
            self.shared.version.fetch_add(1, Ordering::Release);
            if let Some(former) = maps.by_id.insert(route.id, route.clone()) {
                maps.by_name.remove(&former.name);
            }
            maps.by_name.insert(route.name.clone(), route.id);
        }
        self.shared.hints.tell(ConfigKey::Route(route.id));
        let _ = self.shared.changes.send(RouteChange::Changed(route));
    }

    /// Forgets the route.
    pub fn remove(&self, id: SocketId) {
        {
            let mut maps = self.shared.maps.write();
            self.shared.version.fetch_add(1, Ordering::Release);
            if let Some(former) = maps.by_id.remove(&id) {
                maps.by_name.remove(&former.name);
            }
        }
        self.shared.hints.tell(ConfigKey::Route(id));
        let _ = self.shared.changes.send(RouteChange::Removed(id));
    }

    /// Has it looked at again whether all know this route as it is.
    pub fn tell_again(&self, id: SocketId) {
        self.shared.hints.tell(ConfigKey::Route(id));
    }

    /// How often a route was put or removed. What was found after this was asked is as it was for as long as this is the same.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.shared.version.load(Ordering::Acquire)
    }

    /// The route of the socket with this DNS label.
    #[must_use]
    pub fn by_name(&self, label: &str) -> Option<Arc<SocketRoute>> {
        let name: SocketName = label.parse().ok()?;
        let maps = self.shared.maps.read();
        maps.by_id.get(maps.by_name.get(&name)?).cloned()
    }

    /// The route of this socket.
    #[must_use]
    pub fn get(&self, id: SocketId) -> Option<Arc<SocketRoute>> {
        self.shared.maps.read().by_id.get(&id).cloned()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.maps.read().by_id.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Every route, in no order.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<SocketRoute>> {
        self.shared.maps.read().by_id.values().cloned().collect()
    }

    /// Changes from now on. Subscribe first and read [`Routes::all`] after, and nothing is missed.
    #[must_use]
    pub fn subscribe(&self) -> RouteChanges {
        RouteChanges { receiver: self.shared.changes.subscribe() }
    }
}

/// The changes of [`Routes`], in order.
#[derive(Debug)]
pub struct RouteChanges {
    receiver: broadcast::Receiver<RouteChange>,
}

impl RouteChanges {
    /// The next change; `None` when the routes are gone. Cancel safe.
    pub async fn next(&mut self) -> Option<RouteChange> {
        match self.receiver.recv().await {
            Ok(change) => Some(change),
            Err(broadcast::error::RecvError::Lagged(_)) => Some(RouteChange::Missed),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}

/// The live map of which tunnels are up.
#[derive(Clone, Debug)]
pub struct Directory {
    present: Arc<RwLock<HashMap<TunnelId, TunnelPresence>>>,
    changes: broadcast::Sender<TunnelId>,
    /// What health checks say of the origins of those that are checked.
    well: Arc<RwLock<HashMap<OriginRef, CheckResult>>>,
}

/// What health checks have said of an origin.
#[derive(Debug, Clone, Default)]
struct CheckResult {
    is_well: bool,
    failure: Option<HealthFailure>,
}

impl Default for Directory {
    fn default() -> Self {
        let changes = broadcast::Sender::new(MAX_QUEUED_CHANGES);
        Self { present: Arc::default(), changes, well: Arc::default() }
    }
}

impl Directory {
    /// The tunnel is up.
    pub fn arrived(&self, presence: TunnelPresence) {
        let tunnel = presence.tunnel;
        self.present.write().insert(tunnel, presence);
        let _ = self.changes.send(tunnel);
    }

    /// The tunnels that come or go from now on: where each is then is for [`Directory::get`] to say.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<TunnelId> {
        self.changes.subscribe()
    }

    /// Every tunnel that is up, in no order.
    #[must_use]
    pub fn all(&self) -> Vec<TunnelPresence> {
        self.present.read().values().cloned().collect()
    }

    /// Health checks say this of the origin; `None`: it is not checked (any more). Nothing is said of one behind a tunnel
    /// that is not up.
    pub fn checked(&self, origin: impl Into<OriginRef>, is_well: Option<bool>) {
        let origin = origin.into();
        let present = self.present.read();
        let is_up = origin.tunnel().is_none_or(|tunnel| present.contains_key(&tunnel));
        let mut well = self.well.write();
        match is_well {
            Some(is_well) if is_up => well.insert(origin, CheckResult { is_well, failure: None }),
            _ => well.remove(&origin),
        };
    }

    /// Whether the origin is well, as far as health checks have said.
    #[must_use]
    pub fn health(&self, origin: impl Into<OriginRef>) -> Option<bool> {
        let well = self.well.read();
        well.get(&origin.into()).map(|checked| checked.is_well)
    }

    /// Health checks say that the origin is not well, for this reason; as [`Directory::checked`].
    pub fn check_failed(&self, origin: impl Into<OriginRef>, failure: HealthFailure) {
        let origin = origin.into();
        self.checked(origin, Some(false));
        if let Some(checked) = self.well.write().get_mut(&origin) {
            checked.failure = Some(failure);
        }
    }

    /// Why the origin is not well, as far as health checks have said.
    #[must_use]
    pub fn failure(&self, origin: impl Into<OriginRef>) -> Option<HealthFailure> {
        let well = self.well.read();
        well.get(&origin.into()).filter(|checked| !checked.is_well)?.failure.clone()
    }

    /// The edge that holds the tunnel finds its origin so, for this reason; nothing is said of a tunnel that is not up. `health`
    /// is asked while nobody else says something. Returns whether that is new.
    pub fn finds(&self, tunnel: TunnelId, health: impl FnOnce() -> (OriginHealth, Option<HealthFailure>)) -> bool {
        let mut present = self.present.write();
        let Some(presence) = present.get_mut(&tunnel) else { return false };
        let found = health();
        let is_new = (presence.health, &presence.failure) != (found.0, &found.1);
        (presence.health, presence.failure) = found;
        if is_new {
            drop(present);
            let _ = self.changes.send(tunnel);
        }
        is_new
    }

    /// The tunnel is gone.
    pub fn left(&self, tunnel: TunnelId) {
        self.present.write().remove(&tunnel);
        self.checked(tunnel, None);
        let _ = self.changes.send(tunnel);
    }

    /// Where the tunnel is held, when it is up.
    #[must_use]
    pub fn get(&self, tunnel: TunnelId) -> Option<TunnelPresence> {
        self.present.read().get(&tunnel).cloned()
    }

    /// How many tunnels are up.
    #[must_use]
    pub fn len(&self) -> usize {
        self.present.read().len()
    }

    /// Whether no tunnel is up.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The keys with which stock ssh clients log in, account by account. Accounts without keys are not in it.
#[derive(Clone, Debug, Default)]
pub struct SshLogins {
    by_account: Arc<RwLock<HashMap<AccountId, Arc<SshLogin>>>>,
    changed: Arc<watch::Sender<()>>,
    hints: Hints,
}

/// Tells whoever publishes what has changed.
#[derive(Clone, Debug)]
struct Hints(broadcast::Sender<ConfigKey>);

impl Default for Hints {
    fn default() -> Self {
        Self(broadcast::Sender::new(MAX_QUEUED_CHANGES))
    }
}

impl Hints {
    fn tell(&self, key: ConfigKey) {
        // Nobody listens where nothing is published.
        let _ = self.0.send(key);
    }
}

/// The name that ssh clients log in with: the account's id without hyphens.
#[must_use]
pub fn ssh_login_name(account: AccountId) -> String {
    account.uuid().simple().to_string()
}

impl SshLogins {
    /// These are the account's keys from now on.
    pub fn put(&self, login: SshLogin) {
        let (account, login) = (login.account, Arc::new(login));
        self.by_account.write().insert(account, login);
        self.changed.send_replace(());
        self.hints.tell(ConfigKey::SshLogin(account));
    }

    /// The account has no keys any more.
    pub fn remove(&self, account: AccountId) {
        self.by_account.write().remove(&account);
        self.changed.send_replace(());
        self.hints.tell(ConfigKey::SshLogin(account));
    }

    /// Sees a change after each change of any account's keys from now on.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// The keys of the account with this login name; the id with its hyphens is good too.
    #[must_use]
    pub fn get(&self, login: &str) -> Option<Arc<SshLogin>> {
        let account: AccountId = login.parse().ok()?;
        self.by_account.read().get(&account).cloned()
    }

    /// Every account that has keys, in no order.
    #[must_use]
    pub fn accounts(&self) -> Vec<AccountId> {
        self.by_account.read().keys().copied().collect()
    }
}

/// The logins of persons and the tokens of machines that are good now. What is not in it is worth nothing.
#[derive(Clone, Debug, Default)]
pub struct Identities {
    sessions: Arc<RwLock<HashMap<LoginSessionId, Arc<LoginSession>>>>,
    tokens: Arc<RwLock<HashMap<ServiceTokenId, Arc<ServiceTokenRoute>>>>,
    /// When the last client certificate of any machine of these organisations ends.
    certified: Arc<RwLock<HashMap<AccountId, i64>>>,
    changed: Arc<watch::Sender<u64>>,
    hints: Hints,
}

impl Identities {
    /// The person has logged in.
    pub fn put_session(&self, session: LoginSession) {
        let id = session.id;
        self.sessions.write().insert(id, Arc::new(session));
        self.hints.tell(ConfigKey::Session(id));
    }

    /// Every login, in no order.
    #[must_use]
    pub fn sessions(&self) -> Vec<Arc<LoginSession>> {
        self.sessions.read().values().cloned().collect()
    }

    /// The login, while it is good; whether it has come to its end is for the caller to see.
    #[must_use]
    pub fn session(&self, id: LoginSessionId) -> Option<Arc<LoginSession>> {
        self.sessions.read().get(&id).cloned()
    }

    /// Ends every login of which this is said; gives how many those were.
    pub fn end_sessions(&self, is_over: impl Fn(&LoginSession) -> bool) -> usize {
        let mut sessions = self.sessions.write();
        let ended: Vec<_> = sessions.extract_if(|_, session| is_over(session)).map(|(id, _)| id).collect();
        drop(sessions);
        if !ended.is_empty() {
            self.tell();
        }
        ended.iter().for_each(|id| self.hints.tell(ConfigKey::Session(*id)));
        ended.len()
    }

    /// Ends these logins, known here or not: another control may have begun them.
    pub fn end_these(&self, ids: &[LoginSessionId]) {
        self.end_sessions(|session| ids.contains(&session.id));
        ids.iter().for_each(|id| self.hints.tell(ConfigKey::Session(*id)));
    }

    /// The machine's token is new or changed.
    pub fn put_token(&self, token: ServiceTokenRoute) {
        let id = token.id;
        if let Some(until) = token.certified_until {
            let mut certified = self.certified.write();
            let last = certified.entry(token.organisation).or_insert(until);
            *last = until.max(*last);
        }
        self.tokens.write().insert(id, Arc::new(token));
        self.tell();
        self.hints.tell(ConfigKey::Token(id));
    }

    /// The token is worth nothing from now on.
    pub fn remove_token(&self, id: ServiceTokenId) {
        self.tokens.write().remove(&id);
        self.tell();
        self.hints.tell(ConfigKey::Token(id));
    }

    /// Ends every token of which this is said.
    pub fn end_tokens(&self, is_over: impl Fn(&ServiceTokenRoute) -> bool) {
        let mut tokens = self.tokens.write();
        let ended: Vec<_> = tokens.extract_if(|_, token| is_over(token)).map(|(id, _)| id).collect();
        drop(tokens);
        if !ended.is_empty() {
            self.tell();
        }
        ended.iter().for_each(|id| self.hints.tell(ConfigKey::Token(*id)));
    }

    /// The token with this id; its secret and its end are for the caller to look at.
    #[must_use]
    pub fn token(&self, id: ServiceTokenId) -> Option<Arc<ServiceTokenRoute>> {
        self.tokens.read().get(&id).cloned()
    }

    /// Whether a machine of the organisation may have a client certificate that is good `now`, in seconds since 1970: then
    /// its sockets ask for one. May say so for a while when the last of such machines is gone.
    #[must_use]
    pub fn has_certificates(&self, organisation: AccountId, now: i64) -> bool {
        let certified = self.certified.read();
        certified.get(&organisation).is_some_and(|until| *until > now)
    }

    /// Sees a change whenever somebody who was somebody may be nobody now: who has let flows in looks at them again.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    fn tell(&self) {
        self.changed.send_modify(|count| *count = count.wrapping_add(1));
    }
}

/// All that control and the edges of one machine share.
#[derive(Clone, Debug)]
pub struct Bus {
    /// The sockets that edges serve.
    pub routes: Routes,
    /// The keys of ssh clients.
    pub ssh_logins: SshLogins,
    /// Who is logged in.
    pub identities: Identities,
    /// What is wanted of edges.
    pub orders: Orders,
    /// Which tunnels are up: all at a control, its own at an edge.
    pub directory: Directory,
    /// The edges of the installation, where there are several.
    pub fleet: Fleet,
    hints: Hints,
}

impl Default for Bus {
    fn default() -> Self {
        let hints = Hints::default();
        let orders = Orders::hinting(hints.clone());
        Self {
            routes: Routes::hinting(hints.clone()),
            ssh_logins: SshLogins { hints: hints.clone(), ..SshLogins::default() },
            identities: Identities { hints: hints.clone(), ..Identities::default() },
            fleet: Fleet::among(orders.clone()),
            orders,
            directory: Directory::default(),
            hints,
        }
    }
}

impl Bus {
    /// What of the configuration is changed from now on; what it is then is for the maps, or for the store, to say.
    #[must_use]
    pub fn config_changes(&self) -> broadcast::Receiver<ConfigKey> {
        self.hints.0.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use sallyport_model::{OriginProtocol, SocketSettings, SocketType};

    use super::*;

    fn route(id: u8, name: &str) -> SocketRoute {
        SocketRoute {
            id: SocketId::from_random([id; 16]),
            account: AccountId::from_random([0; 16]),
            name: name.parse().expect("a valid name"),
            socket_type: SocketType::Http,
            origin_protocol: OriginProtocol::Auto,
            basic_auth: None,
            port: None,
            settings: SocketSettings::default(),
            policies: Vec::new(),
            client_authority: None,
            tunnels: Vec::new(),
            origins: Vec::new(),
        }
    }

    #[tokio::test]
    async fn a_change_is_visible_at_once_and_told_in_order() {
        let routes = Routes::default();
        let mut changes = routes.subscribe();
        routes.put(route(1, "calm-bay-1000"));
        assert!(routes.by_name("calm-bay-1000").is_some());
        routes.put(route(1, "calm-bay-1001"));
        assert!(routes.by_name("calm-bay-1000").is_none(), "a former name is forgotten");
        routes.remove(SocketId::from_random([1; 16]));
        assert!(routes.all().is_empty() && routes.by_name("calm-bay-1001").is_none());
        assert!(matches!(changes.next().await, Some(RouteChange::Changed(r)) if r.name.as_str() == "calm-bay-1000"));
        assert!(matches!(changes.next().await, Some(RouteChange::Changed(r)) if r.name.as_str() == "calm-bay-1001"));
        assert!(matches!(changes.next().await, Some(RouteChange::Removed(_))));
    }

    #[tokio::test]
    async fn a_subscriber_that_lags_is_told_to_look_again() {
        let routes = Routes::default();
        let mut changes = routes.subscribe();
        for _ in 0..=MAX_QUEUED_CHANGES {
            routes.put(route(1, "calm-bay-1000"));
        }
        assert!(matches!(changes.next().await, Some(RouteChange::Missed)));
    }

    #[test]
    fn a_login_that_ended_is_gone_at_once_and_told() {
        let identities = Identities::default();
        let mut changes = identities.subscribe();
        let session = |id: u8, email: &str| LoginSession {
            id: LoginSessionId::from_random([id; 16]),
            organisation: AccountId::from_random([0; 16]),
            person: sallyport_model::Person {
                email: email.parse().unwrap(),
                name: None,
                groups: Vec::new(),
                groups_stated: true,
                provider: "dex".parse().unwrap(),
                subject: email.to_owned(),
            },
            authenticated_at: 0,
            expires_at: 10,
        };
        identities.put_session(session(1, "ann@example.com"));
        identities.put_session(session(2, "bob@example.com"));
        assert!(!changes.has_changed().unwrap(), "one who comes takes nothing from anybody");
        assert_eq!(identities.end_sessions(|session| session.person.email.as_str() == "ann@example.com"), 1);
        assert!(changes.has_changed().unwrap());
        changes.mark_unchanged();
        assert!(identities.session(LoginSessionId::from_random([1; 16])).is_none());
        assert!(identities.session(LoginSessionId::from_random([2; 16])).is_some());
        assert_eq!(identities.end_sessions(|_| false), 0);
        assert!(!changes.has_changed().unwrap());
    }

    #[test]
    fn a_login_is_found_by_its_name_until_it_is_gone() {
        let logins = SshLogins::default();
        let account = AccountId::from_random([7; 16]);
        let mut changes = logins.subscribe();
        logins.put(SshLogin { account, keys: vec!["ssh-ed25519 AAAA".into()] });
        assert!(matches!(changes.has_changed(), Ok(true)), "whoever looks after logins is told");
        changes.mark_unchanged();
        let name = ssh_login_name(account);
        assert_eq!((name.len(), name.contains('-')), (32, false));
        assert_eq!(logins.get(&name).map(|login| login.keys.len()), Some(1));
        assert!(logins.get(&account.to_string()).is_some());
        for unknown in ["", "root", &name[1..], &ssh_login_name(AccountId::from_random([8; 16]))] {
            assert!(logins.get(unknown).is_none(), "{unknown}");
        }
        logins.remove(account);
        assert!(matches!(changes.has_changed(), Ok(true)));
        assert!(logins.get(&name).is_none() && logins.accounts().is_empty());
    }
}
