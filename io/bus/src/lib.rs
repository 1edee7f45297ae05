//! Shared state of control and the edges: maps in memory on one machine, kept in step over NATS between several.
//!
//! [`Routes`], [`SshLogins`] and [`Identities`] carry decisions of control to the edges: sockets, ssh keys and logins.
//! [`Directory`] carries observations of edges to control: which tunnels are attached. Readers look into the maps
//! directly, so a change is visible to the next request after the changing call returned. A broadcast beside each map
//! notifies subscribers.
//!
//! Between machines [`follow_config`] fills the maps of an edge from what [`publish_config`] writes at a control.
//! [`follow_directory`] fills [`Fleet`] with the state of all edges. An [`Asker`] asks edges for what only edges know.

mod answers;
mod anycast;
mod asker;
mod asks;
mod audit_stream;
mod balancers;
mod catchment;
mod certificates;
mod config_entry;
mod dns_steering;
mod egress;
mod fleet;
mod flows;
mod nats;
mod networks;
mod orders;
mod permits;
mod snapshot;
mod steering;
mod zones;

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
    SocketId, SocketName, SocketRoute, SshLogin, TunnelId, TunnelPresence, wildcard_over,
};
use tokio::sync::{broadcast, watch};

pub use answers::{
    ClientFigures, ClientList, ClientsBy, EdgeFigures, EndedFlow, EndedHttp, EndedList, FlowList, FlowSeen, OriginUse,
    SocketUse, TunnelFigures, WayFigures, WayKind, WayList, WayMethod,
};
pub use anycast::{AnycastAnswer, AnycastAsk, AnycastRouteList, OwnedAnycast, ServedAnycast};
pub use asker::Asker;
pub use asks::{
    ASK_SCHEMA, ASK_TIME, Answer, Answered, Ask, AskResults, MAX_ANSWER_BYTES, MAX_ANSWER_ITEMS, MAX_ASK_BYTES,
    NoAnswerReason, Responder, UnansweredEdge,
};
pub use audit_stream::{AuditSource, AuditStreamStats, AuditTaker};
pub use balancers::ServedBalancers;
pub use catchment::{
    CatchmentAnswer, CatchmentAsk, MAX_ASKED_TARGETS, MeasurementKey, MeasurementProgress, OpenMeasurement,
    TargetResult,
};
pub use certificates::{AcmeChallenges, ServedCertificates};
pub use config_entry::{CONFIG_SCHEMA, ConfigEntryError, ConfigKey, ConfigValue, UnknownKey};
pub use dns_steering::DnsSteering;
pub use egress::{EgressConfig, ServedEgress};
pub use fleet::{Fleet, FleetEdge, FleetNews, TunnelOnEdge};
pub use flows::{FlowGuard, FlowRoute, LiveFlow, LiveFlows};
pub use nats::{
    ANYCAST_BUCKET, AUDIT_STREAM, AUDIT_STREAM_AGE, BusConfig, BusCredentials, BusError, CONFIG_BUCKET, ConfigProgress,
    ConfigSource, DIRECTORY_BUCKET, DirectoryRole, Link, MAX_AUDIT_STREAM_BYTES, Nats, PublishStats, SourceFuture,
    SteeringKey, answer_asks, carry_steering_of_control, carry_steering_of_edge, exchange_control_messages,
    follow_config, follow_directory, prepare, publish_audit, publish_config, take_audit,
};
pub use networks::ServedNetworks;
pub use orders::Orders;
pub use permits::{AnycastPermits, PermitFailure};
pub use sallyport_directory::{BalancedEdge, Change as DirectoryChange, EdgeCard, EdgeState};
pub use snapshot::{MAX_SNAPSHOT_BYTES, SNAPSHOT_FILE, Snapshot, SnapshotError};
pub use steering::Steering;
pub use zones::ServedZones;

/// Changes that a slow subscriber may lag behind. Beyond it the subscriber has to read the whole map again.
const MAX_QUEUED_CHANGES: usize = 1_024;

/// A change of a route.
#[derive(Debug, Clone)]
pub enum RouteChange {
    /// A socket was added or changed.
    Changed(Arc<SocketRoute>),
    /// A socket was removed.
    Removed(SocketId),
    /// Changes were missed: read the whole map again.
    Missed,
}

/// The routes of all sockets, which edges serve.
#[derive(Clone, Debug)]
pub struct Routes {
    shared: Arc<RoutesState>,
}

#[derive(Debug)]
struct RoutesState {
    maps: RwLock<RouteMaps>,
    /// Incremented before a changed map can be read.
    version: AtomicU64,
    changes: broadcast::Sender<RouteChange>,
    hints: Hints,
}

#[derive(Debug, Default)]
struct RouteMaps {
    by_id: HashMap<SocketId, Arc<SocketRoute>>,
    by_name: HashMap<SocketName, SocketId>,
    /// By domain of an organisation; wildcards with their asterisk.
    by_domain: HashMap<String, SocketId>,
}

impl RouteMaps {
    fn insert(&mut self, route: Arc<SocketRoute>) {
        self.remove(route.id);
        self.by_name.insert(route.name.clone(), route.id);
        self.by_domain.extend(route.domains.iter().map(|domain| (domain.as_str().to_owned(), route.id)));
        self.by_id.insert(route.id, route);
    }

    fn remove(&mut self, id: SocketId) {
        let Some(former) = self.by_id.remove(&id) else { return };
        self.by_name.remove(&former.name);
        for domain in &former.domains {
            // Another socket may have the domain by now: changes of two sockets come in any order.
            if self.by_domain.get(domain.as_str()) == Some(&id) {
                self.by_domain.remove(domain.as_str());
            }
        }
    }
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

    /// Adds the route, in place of the former one of the same socket.
    pub fn put(&self, route: SocketRoute) {
        let route = Arc::new(route);
        {
            let mut maps = self.shared.maps.write();
            self.shared.version.fetch_add(1, Ordering::Release);
            maps.insert(route.clone());
        }
        self.shared.hints.notify(ConfigKey::Route(route.id));
        let _ = self.shared.changes.send(RouteChange::Changed(route));
    }

    /// Removes the route.
    pub fn remove(&self, id: SocketId) {
        {
            let mut maps = self.shared.maps.write();
            self.shared.version.fetch_add(1, Ordering::Release);
            maps.remove(id);
        }
        self.shared.hints.notify(ConfigKey::Route(id));
        let _ = self.shared.changes.send(RouteChange::Removed(id));
    }

    /// Notifies subscribers of the unchanged route, which check again whether everything is up to date.
    pub fn notify_again(&self, id: SocketId) {
        self.shared.hints.notify(ConfigKey::Route(id));
    }

    /// Number of changes. A result obtained after reading the version is valid while the version stays the same.
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

    /// The route of the socket with this domain: the domain itself, or else a wildcard that covers it. `host` is in
    /// lower case without a final dot.
    #[must_use]
    pub fn by_domain(&self, host: &str) -> Option<Arc<SocketRoute>> {
        let maps = self.shared.maps.read();
        if maps.by_domain.is_empty() {
            return None;
        }
        let find = |name: &str| maps.by_domain.get(name);
        maps.by_id.get(find(host).or_else(|| find(&wildcard_over(host)?))?).cloned()
    }

    /// The route of this socket.
    #[must_use]
    pub fn get(&self, id: SocketId) -> Option<Arc<SocketRoute>> {
        self.shared.maps.read().by_id.get(&id).cloned()
    }

    /// Number of routes.
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

    /// Changes from now on. Subscribe first and read [`Routes::all`] afterwards, so that no change is missed.
    #[must_use]
    pub fn subscribe(&self) -> RouteChanges {
        RouteChanges { receiver: self.shared.changes.subscribe() }
    }
}

/// Receiver of the changes of [`Routes`], in order.
#[derive(Debug)]
pub struct RouteChanges {
    receiver: broadcast::Receiver<RouteChange>,
}

impl RouteChanges {
    /// The next change; `None` once the routes are dropped. Cancel safe.
    pub async fn next(&mut self) -> Option<RouteChange> {
        match self.receiver.recv().await {
            Ok(change) => Some(change),
            Err(broadcast::error::RecvError::Lagged(_)) => Some(RouteChange::Missed),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}

/// The attached tunnels, with the health of their origins.
#[derive(Clone, Debug)]
pub struct Directory {
    present: Arc<RwLock<HashMap<TunnelId, TunnelPresence>>>,
    changes: broadcast::Sender<TunnelId>,
    /// The results of health checks of checked origins.
    well: Arc<RwLock<HashMap<OriginRef, CheckResult>>>,
}

/// The result of the health checks of one origin.
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
    /// Adds an attached tunnel.
    pub fn arrived(&self, presence: TunnelPresence) {
        let tunnel = presence.tunnel;
        self.present.write().insert(tunnel, presence);
        let _ = self.changes.send(tunnel);
    }

    /// The ids of tunnels that come, go or change from now on; read the new state with [`Directory::get`].
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<TunnelId> {
        self.changes.subscribe()
    }

    /// Every attached tunnel, in no order.
    #[must_use]
    pub fn all(&self) -> Vec<TunnelPresence> {
        self.present.read().values().cloned().collect()
    }

    /// Sets the result of the health checks of an origin; `None` if the origin is not checked. Ignored for a tunnel
    /// that is not attached.
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

    /// The result of the origin's health checks, if there is one.
    #[must_use]
    pub fn health(&self, origin: impl Into<OriginRef>) -> Option<bool> {
        let well = self.well.read();
        well.get(&origin.into()).map(|checked| checked.is_well)
    }

    /// Records a failed health check with its reason; see [`Directory::checked`].
    pub fn check_failed(&self, origin: impl Into<OriginRef>, failure: HealthFailure) {
        let origin = origin.into();
        self.checked(origin, Some(false));
        if let Some(checked) = self.well.write().get_mut(&origin) {
            checked.failure = Some(failure);
        }
    }

    /// Reason of the last failed health check of the origin.
    #[must_use]
    pub fn failure(&self, origin: impl Into<OriginRef>) -> Option<HealthFailure> {
        let well = self.well.read();
        well.get(&origin.into()).filter(|checked| !checked.is_well)?.failure.clone()
    }

    /// Sets the origin's health as reported by the edge that holds the tunnel. Ignored for a tunnel that is not
    /// attached. `health` is called under the lock. Returns whether the health changed.
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

    /// Removes a tunnel.
    pub fn left(&self, tunnel: TunnelId) {
        self.present.write().remove(&tunnel);
        self.checked(tunnel, None);
        let _ = self.changes.send(tunnel);
    }

    /// The tunnel's presence, if it is attached.
    #[must_use]
    pub fn get(&self, tunnel: TunnelId) -> Option<TunnelPresence> {
        self.present.read().get(&tunnel).cloned()
    }

    /// Number of attached tunnels.
    #[must_use]
    pub fn len(&self) -> usize {
        self.present.read().len()
    }

    /// Whether no tunnel is attached.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The keys with which ssh clients log in, by account. Accounts without keys are absent.
#[derive(Clone, Debug, Default)]
pub struct SshLogins {
    by_account: Arc<RwLock<HashMap<AccountId, Arc<SshLogin>>>>,
    changed: Arc<watch::Sender<()>>,
    hints: Hints,
}

/// Notifies the publisher of changes.
#[derive(Clone, Debug)]
struct Hints(broadcast::Sender<ConfigKey>);

impl Default for Hints {
    fn default() -> Self {
        Self(broadcast::Sender::new(MAX_QUEUED_CHANGES))
    }
}

impl Hints {
    fn notify(&self, key: ConfigKey) {
        // There may be no receiver.
        let _ = self.0.send(key);
    }
}

/// The login name for ssh clients: the account's id without hyphens.
#[must_use]
pub fn ssh_login_name(account: AccountId) -> String {
    account.uuid().simple().to_string()
}

impl SshLogins {
    /// Sets the account's keys.
    pub fn put(&self, login: SshLogin) {
        let (account, login) = (login.account, Arc::new(login));
        self.by_account.write().insert(account, login);
        self.changed.send_replace(());
        self.hints.notify(ConfigKey::SshLogin(account));
    }

    /// Removes the account's keys.
    pub fn remove(&self, account: AccountId) {
        self.by_account.write().remove(&account);
        self.changed.send_replace(());
        self.hints.notify(ConfigKey::SshLogin(account));
    }

    /// Changes after each change of any account's keys from now on.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// The keys of the account with this login name; the id with hyphens works too.
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

/// The valid logins of persons and tokens of machines. An absent login or token is invalid.
#[derive(Clone, Debug, Default)]
pub struct Identities {
    sessions: Arc<RwLock<HashMap<LoginSessionId, Arc<LoginSession>>>>,
    tokens: Arc<RwLock<HashMap<ServiceTokenId, Arc<ServiceTokenRoute>>>>,
    /// Time at which the last client certificate of any machine of these organisations expires.
    certified: Arc<RwLock<HashMap<AccountId, i64>>>,
    changed: Arc<watch::Sender<u64>>,
    hints: Hints,
}

impl Identities {
    /// Adds a login session.
    pub fn put_session(&self, session: LoginSession) {
        let id = session.id;
        self.sessions.write().insert(id, Arc::new(session));
        self.hints.notify(ConfigKey::Session(id));
    }

    /// Every login session, in no order.
    #[must_use]
    pub fn sessions(&self) -> Vec<Arc<LoginSession>> {
        self.sessions.read().values().cloned().collect()
    }

    /// The login session, unless it was ended; the caller checks the expiry.
    #[must_use]
    pub fn session(&self, id: LoginSessionId) -> Option<Arc<LoginSession>> {
        self.sessions.read().get(&id).cloned()
    }

    /// Ends every login session for which `is_over` holds; returns their number.
    pub fn end_sessions(&self, is_over: impl Fn(&LoginSession) -> bool) -> usize {
        let mut sessions = self.sessions.write();
        let ended: Vec<_> = sessions.extract_if(|_, session| is_over(session)).map(|(id, _)| id).collect();
        drop(sessions);
        if !ended.is_empty() {
            self.notify();
        }
        ended.iter().for_each(|id| self.hints.notify(ConfigKey::Session(*id)));
        ended.len()
    }

    /// Ends these login sessions, known here or not: another control may have started them.
    pub fn end_these(&self, ids: &[LoginSessionId]) {
        self.end_sessions(|session| ids.contains(&session.id));
        ids.iter().for_each(|id| self.hints.notify(ConfigKey::Session(*id)));
    }

    /// Adds or changes a service token.
    pub fn put_token(&self, token: ServiceTokenRoute) {
        let id = token.id;
        if let Some(until) = token.certified_until {
            let mut certified = self.certified.write();
            let last = certified.entry(token.organisation).or_insert(until);
            *last = until.max(*last);
        }
        self.tokens.write().insert(id, Arc::new(token));
        self.notify();
        self.hints.notify(ConfigKey::Token(id));
    }

    /// Revokes a service token.
    pub fn remove_token(&self, id: ServiceTokenId) {
        self.tokens.write().remove(&id);
        self.notify();
        self.hints.notify(ConfigKey::Token(id));
    }

    /// Revokes every service token for which `is_over` holds.
    pub fn end_tokens(&self, is_over: impl Fn(&ServiceTokenRoute) -> bool) {
        let mut tokens = self.tokens.write();
        let ended: Vec<_> = tokens.extract_if(|_, token| is_over(token)).map(|(id, _)| id).collect();
        drop(tokens);
        if !ended.is_empty() {
            self.notify();
        }
        ended.iter().for_each(|id| self.hints.notify(ConfigKey::Token(*id)));
    }

    /// The service token with this id; the caller checks secret and expiry.
    #[must_use]
    pub fn token(&self, id: ServiceTokenId) -> Option<Arc<ServiceTokenRoute>> {
        self.tokens.read().get(&id).cloned()
    }

    /// Whether a machine of the organisation may have a client certificate that is valid at `now` (seconds since 1970).
    /// If so, its sockets request one. May be true for a while after the last such machine is gone.
    #[must_use]
    pub fn has_certificates(&self, organisation: AccountId, now: i64) -> bool {
        let certified = self.certified.read();
        certified.get(&organisation).is_some_and(|until| *until > now)
    }

    /// Changes whenever an identity may have become invalid: admitted flows are checked again.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    fn notify(&self) {
        self.changed.send_modify(|count| *count = count.wrapping_add(1));
    }
}

/// The state shared by control and the edges of one machine.
#[derive(Clone, Debug)]
pub struct Bus {
    /// The sockets that edges serve.
    pub routes: Routes,
    /// The keys of ssh clients.
    pub ssh_logins: SshLogins,
    /// The valid logins and service tokens.
    pub identities: Identities,
    /// Orders for edges.
    pub orders: Orders,
    /// The certificates of public authorities.
    pub certificates: ServedCertificates,
    /// The challenges of ACME servers.
    pub challenges: AcmeChallenges,
    /// The zones of the name server.
    pub zones: ServedZones,
    /// The prefixes that edges announce.
    pub anycast: ServedAnycast,
    /// The balancers of sites.
    pub balancers: ServedBalancers,
    /// What steers the name server.
    pub dns_steering: DnsSteering,
    /// The egress addresses, and the leases of their slices.
    pub egress: ServedEgress,
    /// The networks of machines.
    pub networks: ServedNetworks,
    /// The attached tunnels: all at a control, its own at an edge.
    pub directory: Directory,
    /// The edges of the installation, if there are several.
    pub fleet: Fleet,
    /// Loads of edges, and their quotas.
    pub steering: Steering,
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
            certificates: ServedCertificates::hinting(hints.clone()),
            challenges: AcmeChallenges::hinting(hints.clone()),
            zones: ServedZones::hinting(hints.clone()),
            anycast: ServedAnycast::hinting(hints.clone()),
            balancers: ServedBalancers::hinting(hints.clone()),
            dns_steering: DnsSteering::hinting(hints.clone()),
            egress: ServedEgress::hinting(hints.clone()),
            networks: ServedNetworks::hinting(hints.clone()),
            fleet: Fleet::among(orders.clone()),
            orders,
            directory: Directory::default(),
            steering: Steering::default(),
            hints,
        }
    }
}

impl Bus {
    /// Keys of configuration entries that change from now on; the maps or the store have the new values.
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
            domains: Vec::new(),
        }
    }

    #[test]
    fn a_domain_leads_to_its_socket_and_a_wildcard_to_what_no_other_has() {
        let routes = Routes::default();
        let with = |id, name, domains: &[&str]| SocketRoute {
            domains: domains.iter().map(|domain| domain.parse().expect("a valid domain")).collect(),
            ..route(id, name)
        };
        let (one, two) = (with(1, "calm-bay-1000", &["app.example.com"]), with(2, "calm-bay-1001", &["*.example.com"]));
        routes.put(one.clone());
        routes.put(two.clone());
        let found = |host: &str| routes.by_domain(host).map(|route| route.id);
        assert_eq!((found("app.example.com"), found("b.example.com")), (Some(one.id), Some(two.id)));
        assert_eq!((found("example.com"), found("a.b.example.com")), (None, None));
        // The domain moves to the other socket, and the news of the former one comes last.
        routes.put(with(2, "calm-bay-1001", &["app.example.com"]));
        routes.put(with(1, "calm-bay-1000", &[]));
        assert_eq!((found("app.example.com"), found("b.example.com")), (Some(two.id), None));
        routes.remove(two.id);
        assert_eq!(found("app.example.com"), None);
    }

    #[tokio::test]
    async fn a_change_is_visible_at_once_and_delivered_in_order() {
        let routes = Routes::default();
        let mut changes = routes.subscribe();
        routes.put(route(1, "calm-bay-1000"));
        assert!(routes.by_name("calm-bay-1000").is_some());
        routes.put(route(1, "calm-bay-1001"));
        assert!(routes.by_name("calm-bay-1000").is_none(), "a former name is removed");
        routes.remove(SocketId::from_random([1; 16]));
        assert!(routes.all().is_empty() && routes.by_name("calm-bay-1001").is_none());
        assert!(matches!(changes.next().await, Some(RouteChange::Changed(r)) if r.name.as_str() == "calm-bay-1000"));
        assert!(matches!(changes.next().await, Some(RouteChange::Changed(r)) if r.name.as_str() == "calm-bay-1001"));
        assert!(matches!(changes.next().await, Some(RouteChange::Removed(_))));
    }

    #[tokio::test]
    async fn a_lagging_subscriber_has_to_read_everything_again() {
        let routes = Routes::default();
        let mut changes = routes.subscribe();
        for _ in 0..=MAX_QUEUED_CHANGES {
            routes.put(route(1, "calm-bay-1000"));
        }
        assert!(matches!(changes.next().await, Some(RouteChange::Missed)));
    }

    #[test]
    fn an_ended_login_is_gone_at_once_and_reported() {
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
        assert!(!changes.has_changed().unwrap(), "a new login invalidates no other");
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
        assert!(matches!(changes.has_changed(), Ok(true)), "subscribers are notified");
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
