//! Control: the API, over the store; it tells edges which sockets there are.
//!
//! A request runs through `finish` (id, problem body, metrics), is taken apart by `extract` and `auth`, and
//! is answered by the handler of its noun (`accounts`, `logins`, `tokens`, `sockets`, `tunnels`, `ssh_keys`, `info`).
//! What is done is in `work`, which `mysocket` asks too, for the paths of the original clients, and `ssh_forward`, for
//! ssh clients. A change is committed to the store first
//! and published to the edges after; when the answer says it is done, the next request at an edge sees it.

mod access_token;
mod account_access;
mod accounts;
mod attempts;
mod audit;
mod audit_trail;
mod auth;
mod client;
mod clock;
mod counted;
mod edges;
mod extract;
mod finish;
mod flow_log;
mod flows;
mod info;
mod invitations;
mod limit;
mod limits;
mod login;
mod login_sessions;
mod logins;
mod mail;
mod members;
mod metrics;
mod mysocket;
mod openapi;
mod operator;
mod organisations;
mod origin_health;
mod origins;
mod password;
mod peers;
mod persons;
mod policies;
mod problem;
mod provider_checks;
mod providers;
mod random;
mod replay;
mod second_factor;
mod secrets;
mod service_tokens;
mod setup;
mod signed_token;
mod sockets;
mod ssh_forward;
mod ssh_keys;
mod stats;
mod strict;
mod together;
mod tokens;
mod tunnels;
mod work;

use std::{
    collections::{HashMap, HashSet},
    ops::{Deref, RangeInclusive},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use axum::{
    Router,
    routing::{delete, get, patch, post, put},
};
use prometheus_client::registry::Registry;
use sallyport_audit::AuditLog;
use sallyport_bus::{Asker, Bus, Directory, Fleet, Identities, Orders, Routes, SshLogins};
use sallyport_geo::Geo;
use sallyport_http::page::Site;
use sallyport_identity::Sealer;
use sallyport_model::{AccountId, SocketId, SocketRoute};
use sallyport_oidc::Providers;
use sallyport_policy::DialedNetworks;
use sallyport_ssh::UserAuthority;
use sallyport_store::{HolderId, Store};
use tokio::sync::{Mutex, Semaphore};

pub use clock::{Clock, Moment};
pub use edges::{ConfigPublishing, EdgeIssuer, EdgesConfig, IssueFailure, NodePeer};
pub use mail::MailHook;
pub use openapi::{openapi, openapi_json};
pub use operator::{OperatorReset, reset_account};
pub use sallyport_oidc::Reach;
pub use secrets::{Secrets, SecretsError, TOKEN_KEY_FILE};
pub use setup::SETUP_TOKEN_FILE;
pub use ssh_forward::{ForwardRefusal, MAX_GUEST_SOCKETS_PER_ADDRESS, SshClient, SshTarget};

use crate::{
    access_token::AccessTokens,
    attempts::Attempts,
    audit::AuditReaders,
    client::{ClientLogins, MysocketClientTokens},
    counted::Telling,
    limits::Limits,
    mail::Mail,
    metrics::Metrics,
    mysocket::MysocketTokens,
    password::Passwords,
    problem::ApiError,
    ssh_forward::Temporaries,
    together::PeersWatched,
    work::KnownAuthorities,
};

/// How often the store forgets what is over.
const TIDY_EVERY: Duration = Duration::from_secs(3_600);
/// How often logins that are over are taken from the edges, which look at their ends themselves too.
const SWEEP_EVERY: Duration = Duration::from_secs(30);
/// How many messages to persons that asked for one are under way at once; more are not sent.
const MAX_HOOKS_AT_ONCE: usize = 16;
/// How often reading a socket back for the edges is tried.
const MAX_PUBLISH_TRIES: u32 = 3;

/// The ports that `tcp`, `tls` and `udp` sockets get for themselves, unless the operator gives others.
pub const DEFAULT_PORT_RANGE: RangeInclusive<u16> = 20_000..=20_999;

/// How many ports of this range one account may have, unless the operator says so: half of them, but no more than 100 and
/// no fewer than 10.
#[must_use]
pub fn default_ports_per_account(range: &RangeInclusive<u16>) -> usize {
    (range.len() / 2).clamp(10, 100)
}

/// Where stock ssh clients log in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshInfo {
    /// The host name of the ssh server.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Its host keys, as lines of a `known_hosts` file.
    pub known_hosts: Vec<String>,
}

/// Who may make an account, besides those who are invited. The first account can always be made, by whoever has the setup token
/// where there is one: an installation without one is of no use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignUp {
    /// Everybody who reaches the API.
    Open,
    /// Nobody but the first.
    Closed,
}

/// What control tells others about where things are, and whom it takes.
#[derive(Debug, Clone)]
pub struct ControlConfig {
    /// What it is called among the processes that share its store: the same after a restart, and of no other.
    pub id: HolderId,
    /// The domain under which sockets get their names, such as `localhost`.
    pub domain: String,
    /// Whose pages people see where they log in.
    pub site: Site,
    /// The TCP port at which clients and connectors reach the edge.
    pub public_port: u16,
    /// The host that connectors dial.
    pub tunnel_host: String,
    /// The UDP port at which connectors reach the edge over QUIC, when they can.
    pub quic_port: Option<u16>,
    /// The root certificate of the built-in certificate authority in PEM, when there is one.
    pub ca_pem: Option<String>,
    /// Its fingerprint, `sha256:` and hexadecimal digits.
    pub ca_fingerprint: Option<String>,
    /// Who may make an account.
    pub sign_up: SignUp,
    /// The ports that `tcp`, `tls` and `udp` sockets get for themselves.
    pub port_range: RangeInclusive<u16>,
    /// How many of these ports one account may have, and all guests together.
    pub ports_per_account: usize,
    /// Whether all `udp` sockets have the amplification guard, whatever their owners have set or want.
    pub requires_amplification_guard: bool,
    /// Where stock ssh clients log in, when they can.
    pub ssh: Option<SshInfo>,
    /// Signs ssh keys for one tunnel each, where ssh clients can log in.
    pub ssh_authority: Option<UserAuthority>,
    /// Which networks edges dial into by themselves, for direct origins.
    pub direct_origins: DialedNetworks,
    /// Which databases of addresses the edges have; rules that need another one are refused.
    pub databases: AddressDatabases,
    /// Where identity providers may be.
    pub provider_reach: Reach,
    /// The databases themselves, where there are any: who logs in is asked the same questions as at an edge.
    pub geo: Option<Arc<Geo>>,
    /// Where it is recorded who did what.
    pub audit: Option<AuditLog>,
    /// Asks edges what only they know.
    pub asker: Asker,
    /// Sends messages to owners of accounts, where the operator has set one up.
    pub mail_hook: Option<MailHook>,
    /// Where the setup token is written that the first account takes; `None` where whoever comes first may make it.
    pub setup_token_file: Option<PathBuf>,
}

impl ControlConfig {
    /// The route as edges serve it.
    fn served(&self, mut route: SocketRoute) -> SocketRoute {
        route.settings.amplification_guard |= self.requires_amplification_guard;
        route
    }
}

/// What is known of clients' addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AddressDatabases {
    /// The country that an address is in.
    pub country: bool,
    /// The autonomous system that an address belongs to.
    pub asn: bool,
}

/// The control plane. Clones share it.
#[derive(Clone)]
pub struct Control {
    app: App,
}

/// What handlers work with.
#[derive(Clone)]
pub(crate) struct App(Arc<AppParts>);

pub(crate) struct AppParts {
    config: ControlConfig,
    store: Store,
    routes: Routes,
    ssh_logins: SshLogins,
    identities: Identities,
    directory: Directory,
    fleet: Fleet,
    orders: Orders,
    /// How edges join, where they can.
    edges: edges::Edges,
    /// Seals what browsers carry, and what only this installation may read in its store.
    sealer: Sealer,
    providers: Providers,
    mail: Option<Mail>,
    /// Which providers could not be asked about logins.
    failing: provider_checks::Failing,
    /// Who tries to be which person.
    attempts: Attempts,
    /// Each is a message that goes to a hook while nobody waits for it.
    hook_turns: Arc<Semaphore>,
    authorities: KnownAuthorities,
    client_logins: ClientLogins,
    /// Tells the other controls what was counted here.
    telling: Telling,
    mysocket_client_tokens: MysocketClientTokens,
    tokens: AccessTokens,
    mysocket_tokens: MysocketTokens,
    passwords: Passwords,
    limits: Limits,
    metrics: Metrics,
    clock: Clock,
    /// Held while a route is read from the store and published, so that the last one published is the newest.
    publishing: Mutex<()>,
    /// What lives as long as an ssh client's forward.
    temporaries: Temporaries,
    audit_readers: AuditReaders,
    /// Which controls share the store.
    peers: PeersWatched,
}

impl Deref for App {
    type Target = AppParts;
    fn deref(&self) -> &AppParts {
        &self.0
    }
}

impl Control {
    /// Starts control: when this returns, edges know every socket and every ssh key of the store.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn start(config: ControlConfig, store: Store, bus: Bus, secrets: Secrets) -> anyhow::Result<Self> {
        Self::start_with_clock(config, store, bus, secrets, Clock::system()).await
    }

    /// [`Control::start`] with a clock that the caller turns.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn start_with_clock(
        config: ControlConfig,
        store: Store,
        bus: Bus,
        secrets: Secrets,
        clock: Clock,
    ) -> anyhow::Result<Self> {
        let Bus { routes, ssh_logins, identities, directory, fleet, orders, .. } = bus;
        let metrics = Metrics::default();
        let passwords = Passwords::start()
            .map_err(|e| anyhow::anyhow!("cannot hash passwords: {}", e.inner().unwrap_or("busy")))?;
        let temporaries = Temporaries::new(&secrets, config.id);
        // Who else lives is not known yet.
        temporaries.sweep(&store, |_, _| store.is_shared()).await.context("cannot remove what ssh clients left")?;
        for login in store.ssh_logins().await.context("cannot read the ssh keys")? {
            ssh_logins.put(login);
        }
        let now = clock.now().unix_seconds;
        for session in store.all_person_sessions(now).await.context("cannot read who is logged in")? {
            identities.put_session(session);
        }
        for token in store.service_token_routes(now).await.context("cannot read the service tokens")? {
            identities.put_token(token);
        }
        let known = store.routes().await.context("cannot read the sockets")?;
        metrics.sockets.set(i64::try_from(known.len()).unwrap_or(i64::MAX));
        let accounts = store.count_accounts().await.context("cannot count the accounts")?;
        metrics.accounts.set(i64::try_from(accounts).unwrap_or(i64::MAX));
        for route in known {
            routes.put(config.served(route));
        }
        let tokens = AccessTokens::new(&secrets, &config.domain);
        let mysocket_tokens = MysocketTokens::new(&secrets, &config.domain);
        let mysocket_client_tokens = MysocketClientTokens::new(&secrets, &config.domain);
        let authorities = KnownAuthorities::default();
        for authority in store.authorities().await.context("cannot read the authorities of organisations")? {
            authorities.learn(&authority);
        }
        let telling = Telling::default();
        let limits = Limits::new(telling.clone());
        let sealer = Sealer::new(secrets.derived("seal"));
        let providers = Providers::new(config.provider_reach, concat!("sallyport/", env!("CARGO_PKG_VERSION")));
        let mail = config.mail_hook.clone().map(Mail::new);
        let app = App(Arc::new(AppParts {
            config,
            store,
            routes,
            ssh_logins,
            identities,
            directory,
            fleet,
            orders,
            edges: edges::Edges::new(),
            sealer,
            providers,
            mail,
            failing: provider_checks::Failing::default(),
            attempts: Attempts::new(telling.clone()),
            hook_turns: Arc::new(Semaphore::new(MAX_HOOKS_AT_ONCE)),
            authorities,
            client_logins: ClientLogins::new(telling.clone()),
            telling,
            mysocket_client_tokens,
            tokens,
            mysocket_tokens,
            passwords,
            limits,
            metrics,
            clock,
            publishing: Mutex::new(()),
            temporaries,
            audit_readers: AuditReaders::default(),
            peers: PeersWatched::default(),
        }));
        if app.store.is_shared() {
            app.beat().await.context("cannot tell the other controls that this one is there")?;
            tokio::spawn(together::beat(Arc::downgrade(&app.0)));
        }
        app.prepare_setup()
            .await
            .map_err(|error| anyhow::anyhow!("{}", error.inner().unwrap_or(error.sentence())))
            .context("cannot prepare the first account")?;
        tokio::spawn(tidy(Arc::downgrade(&app.0)));
        tokio::spawn(sweep(Arc::downgrade(&app.0)));
        tokio::spawn(provider_checks::follow(Arc::downgrade(&app.0)));
        Ok(Self { app })
    }

    /// Asks providers about the logins of which it is time to ask; that happens by itself, too. Gives how many those were.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn check_providers(&self) -> anyhow::Result<usize> {
        self.app.check_providers().await.map_err(|error| anyhow::anyhow!("{}", error.sentence()))
    }

    /// Answers `/v1/...`, `/openapi.json` and the paths of the original clients. Requests carry the client's address as an extension of type
    /// [`sallyport_model::ClientAddr`].
    pub fn router(&self) -> Router {
        Router::new()
            .route("/openapi.json", get(info::openapi))
            .route("/v1/info", get(info::get))
            .route("/v1/accounts", post(accounts::create))
            .route("/v1/accounts/forgot", post(account_access::forgot))
            .route("/v1/accounts/reset", post(account_access::reset))
            .route("/v1/accounts/password", post(account_access::set_password))
            .route("/v1/account/password", post(account_access::change_password))
            .route("/v1/account/totp", post(account_access::begin_totp))
            .route("/v1/account/totp/confirm", post(account_access::confirm_totp))
            .route("/v1/account/totp/disable", post(account_access::disable_totp))
            .route("/v1/account/totp/codes", post(account_access::renew_codes))
            .route("/v1/account/sessions", get(account_access::list_sessions))
            .route("/v1/account/sessions/end-others", post(account_access::end_others))
            .route("/v1/account/sessions/{id}", delete(account_access::end_session))
            .route("/v1/account", get(accounts::get).delete(accounts::delete))
            .route("/v1/login", post(logins::login))
            .route("/v1/login/refresh", post(logins::refresh))
            .route("/v1/logout", post(logins::logout))
            .route("/v1/tokens", get(tokens::list).post(tokens::create))
            .route("/v1/tokens/{id}", delete(tokens::delete))
            .route("/v1/organisations", get(organisations::list))
            .route("/v1/organisation", get(organisations::get).patch(organisations::update))
            .route("/v1/organisation/leave", post(organisations::leave))
            .route("/v1/members", get(members::list))
            .route("/v1/members/{id}", patch(members::update).delete(members::delete))
            .route("/v1/invitations", get(invitations::list).post(invitations::create))
            .route("/v1/invitations/{id}", delete(invitations::delete))
            .route("/v1/account/invitations", get(invitations::list_received))
            .route("/v1/account/invitations/accept", post(invitations::accept))
            .route("/v1/account/invitations/{id}", delete(invitations::decline))
            .route("/v1/sockets", get(sockets::list).post(sockets::create))
            .route("/v1/sockets/{id}", get(sockets::get).patch(sockets::update).delete(sockets::delete))
            .route("/v1/sockets/{id}/origins", get(origins::list).post(origins::create))
            .route(
                "/v1/sockets/{id}/origins/{origin_id}",
                get(origins::get).patch(origins::update).delete(origins::delete),
            )
            .route("/v1/sockets/{id}/stats", get(stats::get))
            .route("/v1/sockets/{id}/tunnels", get(tunnels::list).post(tunnels::create))
            .route(
                "/v1/sockets/{id}/tunnels/{tunnel_id}",
                get(tunnels::get).patch(tunnels::update).delete(tunnels::delete),
            )
            .route("/v1/sockets/{id}/tunnels/{tunnel_id}/credential", post(tunnels::rotate))
            .route("/v1/sockets/{id}/tunnels/{tunnel_id}/ssh-certificate", post(tunnels::sign_key))
            .route("/v1/ssh-keys", get(ssh_keys::list).post(ssh_keys::create))
            .route("/v1/ssh-keys/{id}", delete(ssh_keys::delete))
            .route("/v1/policies", get(policies::list).post(policies::create))
            .route("/v1/policies/{id}", get(policies::get).patch(policies::update).delete(policies::delete))
            .route("/v1/policies/{id}/attach", post(policies::attach))
            .route("/v1/policies/{id}/detach", post(policies::detach))
            .route("/v1/policy-test", post(policies::test))
            .route("/v1/providers", get(providers::list).post(providers::create))
            .route("/v1/providers/{id}", get(providers::get).patch(providers::update).delete(providers::delete))
            .route("/v1/providers/{id}/test", post(providers::test))
            .route("/v1/persons", get(persons::list).post(persons::create))
            .route("/v1/persons/{id}", get(persons::get).patch(persons::update).delete(persons::delete))
            .route("/v1/persons/{id}/reset", post(persons::reset))
            .route("/v1/login-sessions", get(login_sessions::list))
            .route("/v1/login-sessions/end", post(login_sessions::end))
            .route("/v1/login-sessions/{id}", delete(login_sessions::delete))
            .merge(client::routes())
            .route("/v1/service-tokens", get(service_tokens::list).post(service_tokens::create))
            .route("/v1/service-tokens/{id}", get(service_tokens::get).delete(service_tokens::delete))
            .route("/v1/service-tokens/{id}/certificate", post(service_tokens::certificate))
            .route("/v1/audit", get(audit::list))
            .route("/v1/audit/verify", get(audit::verify))
            .route("/v1/edges", get(edges::list))
            .route("/v1/edges/{id}", delete(edges::delete))
            .route("/v1/edges/{id}/drain", post(edges::drain))
            .route("/v1/edges/{id}/resume", post(edges::resume))
            .route("/v1/edge-tokens", get(edges::list_tokens).post(edges::create_token))
            .route("/v1/edge-tokens/{id}", delete(edges::delete_token))
            .route("/v1/installation/owner", put(edges::hand_over))
            .route("/v1/flows", get(flows::list))
            .route("/v1/flows/log", get(flow_log::list))
            .route("/v1/flows/{id}", delete(flows::kill))
            .merge(mysocket::routes())
            .fallback(finish::no_such_path)
            .layer(axum::middleware::from_fn_with_state(self.app.clone(), finish::finish))
            .with_state(self.app.clone())
    }

    /// Answers `https://login.<domain>/...`, where people log in with a browser. Requests carry the client's address as those
    /// to [`Control::router`] do.
    pub fn login_router(&self) -> Router {
        login::router(&self.app)
    }

    /// Adds control's metrics.
    pub fn register_metrics(&self, registry: &mut Registry) {
        self.app.metrics.register(registry);
    }

    /// Reads every socket from the store again and tells edges what differs from what they know: for changes that
    /// another process made to the store. Returns how many sockets differed.
    ///
    /// # Errors
    /// When the store cannot be read; nothing was told then.
    pub async fn reload(&self) -> anyhow::Result<usize> {
        let app = &self.app;
        // Before the turn: who makes something for an ssh client holds back the sweep, and publishes what it has made.
        app.sweep().await.context("cannot remove what ssh clients left")?;
        let _turn = app.publishing.lock().await;
        app.know_edges().await.context("cannot read the edges again")?;
        let stored = app.store.routes().await.context("cannot read the sockets again")?;
        let logins = app.store.ssh_logins().await.context("cannot read the ssh keys again")?;
        let accounts = app.store.count_accounts().await.context("cannot count the accounts again")?;
        let mut known: HashMap<_, _> = app.routes.all().into_iter().map(|route| (route.id, route)).collect();
        let mut differed = 0;
        for route in stored {
            if known.remove(&route.id).is_none_or(|known| *known != route) {
                app.put(route);
                differed += 1;
            }
        }
        differed += known.len();
        known.into_keys().for_each(|id| app.remove(id));
        let mut without_keys: HashSet<_> = app.ssh_logins.accounts().into_iter().collect();
        for login in logins {
            without_keys.remove(&login.account);
            app.ssh_logins.put(login);
        }
        without_keys.into_iter().for_each(|account| app.ssh_logins.remove(account));
        app.follow_who_may_come(Newcomers::ComeIn).await?;
        app.metrics.accounts.set(i64::try_from(accounts).unwrap_or(i64::MAX));
        Ok(differed)
    }

    /// Reads from the store who may come, for a process that only finishes what runs while another one takes what is new:
    /// whoever is sent away there is sent away here. What is gone from the store stays as it was.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn catch_up(&self) -> anyhow::Result<()> {
        let app = &self.app;
        let _turn = app.publishing.lock().await;
        for route in app.store.routes().await.context("cannot read the sockets")? {
            if app.routes.get(route.id).is_some_and(|known| *known != app.config.served(route.clone())) {
                app.put(route);
            }
        }
        app.follow_who_may_come(Newcomers::StayOut).await
    }

    /// Tells the other controls that this one ends.
    pub async fn leave(&self) {
        if !self.app.store.is_shared() {
            return;
        }
        if let Err(error) = self.app.store.forget_control(self.app.config.id, i64::MAX).await {
            tracing::debug!(%error, "the other controls find out by themselves that this one has ended");
        }
    }

    /// Whether control can do its work: for readiness checks.
    ///
    /// # Errors
    /// What stands in the way, in a sentence.
    pub async fn check(&self) -> Result<(), String> {
        self.app.store.check().await.map_err(|error| error.to_string())
    }
}

/// What becomes of logins and service tokens that edges do not know yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Newcomers {
    /// Edges learn of them.
    ComeIn,
    /// They are for another process.
    StayOut,
}

impl App {
    /// Takes logins and service tokens that the store does not have (any more) from the edges.
    async fn follow_who_may_come(&self, newcomers: Newcomers) -> anyhow::Result<()> {
        let now = self.clock.now().unix_seconds;
        let sessions = self.store.all_person_sessions(now).await.context("cannot read who is logged in")?;
        let good: HashSet<_> = sessions.iter().map(|session| session.id).collect();
        // Where logins begin, one that began since the store was read is not in it yet.
        let is_new = |at: i64| newcomers == Newcomers::ComeIn && at >= now;
        self.identities.end_sessions(|session| !good.contains(&session.id) && !is_new(session.authenticated_at));
        let tokens = self.store.service_token_routes(now).await.context("cannot read the service tokens")?;
        let good: HashSet<_> = tokens.iter().map(|token| token.id).collect();
        self.identities.end_tokens(|token| !good.contains(&token.id));
        if newcomers == Newcomers::ComeIn {
            sessions.into_iter().for_each(|session| self.identities.put_session(session));
            tokens.into_iter().for_each(|token| self.identities.put_token(token));
        }
        Ok(())
    }

    /// Tells edges what the store has of this socket now.
    async fn publish(&self, id: SocketId) -> Result<(), ApiError> {
        let _turn = self.publishing.lock().await;
        let mut tries = 1;
        let route = loop {
            match self.store.route(id).await {
                Ok(route) => break route,
                Err(error) if tries == MAX_PUBLISH_TRIES => return Err(error.into()),
                Err(error) => tracing::warn!(socket = %id, %error, "cannot read a socket back, trying again"),
            }
            tries += 1;
        };
        match route {
            Some(route) => self.put(route),
            None => self.remove(id),
        }
        Ok(())
    }

    /// Tells edges what the store has of the organisation's sockets now, where that differs from what they know.
    async fn publish_organisation(&self, organisation: AccountId) -> Result<(), ApiError> {
        let _turn = self.publishing.lock().await;
        for route in self.store.routes_of(organisation).await? {
            let route = self.config.served(route);
            if self.routes.get(route.id).is_none_or(|known| *known != route) {
                self.put(route);
            } else if self.store.is_shared() {
                // Another control may have told edges otherwise meanwhile.
                self.routes.tell_again(route.id);
            }
        }
        Ok(())
    }

    /// Tells edges that these sockets are gone, as the store has it.
    async fn unpublish(&self, gone: &[SocketId]) {
        let _turn = self.publishing.lock().await;
        gone.iter().for_each(|id| self.remove(*id));
    }

    /// Tells edges of the socket and counts it; only while `publishing` is held.
    fn put(&self, route: SocketRoute) {
        if self.routes.get(route.id).is_none() {
            self.metrics.sockets.inc();
        }
        self.routes.put(self.config.served(route));
    }

    /// Tells edges that the socket is gone and counts it out; only while `publishing` is held.
    fn remove(&self, id: SocketId) {
        if self.routes.get(id).is_some() {
            self.metrics.sockets.dec();
        }
        self.routes.remove(id);
    }
}

/// Takes logins that are over from the edges, as long as control lives.
async fn sweep(app: std::sync::Weak<AppParts>) {
    while let Some(app) = app.upgrade() {
        let now = app.clock.now().unix_seconds;
        app.identities.end_sessions(|session| session.expires_at <= now);
        let app = App(app);
        if app.edges.get().is_some()
            && let Err(error) = app.sweep_and_tell().await
        {
            tracing::debug!(error = error.sentence(), "what ssh clients left is removed later");
        }
        drop(app);
        tokio::time::sleep(SWEEP_EVERY).await;
    }
}

/// Forgets what is over, now and then, as long as control lives.
async fn tidy(app: std::sync::Weak<AppParts>) {
    while let Some(app) = app.upgrade() {
        if let Err(error) = app.store.tidy(app.clock.now().unix_seconds).await {
            tracing::warn!(%error, "cannot tidy the store, trying again later");
        }
        let app = App(app);
        // The first account may have been made at another control.
        if app.config.setup_token_file.as_ref().is_some_and(|path| path.exists())
            && app.store.count_accounts().await.is_ok_and(|accounts| accounts > 0)
        {
            app.end_setup();
        }
        drop(app);
        tokio::time::sleep(TIDY_EVERY).await;
    }
}
