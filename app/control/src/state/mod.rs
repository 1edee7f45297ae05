//! What a control holds in memory: one [`App`], which all handlers and tasks share.
//!
//! May use: `config`, `mail`, `security`, `cluster`, `metrics`, `clock`, `problem`.

pub(crate) mod audit_readers;
pub(crate) mod authorities;
pub(crate) mod failing_providers;
pub(crate) mod forwards;
mod routes;

use std::{ops::Deref, sync::Arc};

use sallyport_bus::{Directory, Fleet, Identities, Orders, Routes, SshLogins};
use sallyport_identity::Sealer;
use sallyport_oidc::Providers;
use sallyport_store::Store;
use tokio::sync::{Mutex, Semaphore};

use self::{
    audit_readers::AuditReaders, authorities::AuthorityCache, failing_providers::FailingProviders,
    forwards::TemporaryForwards,
};
use crate::{
    clock::Clock,
    cluster::{attempt_gossip::AttemptGossip, peers::PeerWatch},
    config::{ControlConfig, Edges},
    mail::Mail,
    metrics::Metrics,
    security::{
        access_token::AccessTokens, attempt_limits::AttemptLimits, attempts::Attempts, device_limits::DeviceLimits,
        mysocket_client_token::MysocketClientTokens, mysocket_token::MysocketTokens, password::Passwords,
    },
};

/// The control plane. Clones share it.
#[derive(Clone)]
pub struct Control {
    pub(crate) app: App,
}

/// What handlers work with.
#[derive(Clone)]
pub(crate) struct App(pub(crate) Arc<AppParts>);

pub(crate) struct AppParts {
    pub(crate) config: ControlConfig,
    pub(crate) store: Store,
    pub(crate) routes: Routes,
    pub(crate) ssh_logins: SshLogins,
    pub(crate) identities: Identities,
    pub(crate) directory: Directory,
    pub(crate) fleet: Fleet,
    pub(crate) orders: Orders,
    /// How edges join, where they can.
    pub(crate) edges: Edges,
    /// Seals what browsers carry, and what only this installation may read in its store.
    pub(crate) sealer: Sealer,
    pub(crate) providers: Providers,
    pub(crate) mail: Option<Mail>,
    /// Which providers could not be asked about logins.
    pub(crate) failing: FailingProviders,
    /// Who tries to be which person.
    pub(crate) attempts: Attempts,
    /// Each is a message that goes to a hook while nobody waits for it.
    pub(crate) hook_turns: Arc<Semaphore>,
    pub(crate) authorities: AuthorityCache,
    pub(crate) device_limits: DeviceLimits,
    /// Tells the other controls what was counted here.
    pub(crate) attempt_gossip: AttemptGossip,
    pub(crate) mysocket_client_tokens: MysocketClientTokens,
    pub(crate) tokens: AccessTokens,
    pub(crate) mysocket_tokens: MysocketTokens,
    pub(crate) passwords: Passwords,
    pub(crate) limits: AttemptLimits,
    pub(crate) metrics: Metrics,
    pub(crate) clock: Clock,
    /// Held while a route is read from the store and published, so that the last one published is the newest.
    pub(crate) publishing: Mutex<()>,
    /// What lives as long as an ssh client's forward.
    pub(crate) temporary_forwards: TemporaryForwards,
    pub(crate) audit_readers: AuditReaders,
    /// Which controls share the store.
    pub(crate) peers: PeerWatch,
}

impl Deref for App {
    type Target = AppParts;
    fn deref(&self) -> &AppParts {
        &self.0
    }
}
