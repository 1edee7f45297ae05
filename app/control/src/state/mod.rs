//! The state of a control in memory: one [`App`], which all handlers and tasks share.
//!
//! May use: `config`, `mail`, `security`, `cluster`, `metrics`, `clock`, `problem`.

pub(crate) mod audit_readers;
pub(crate) mod authorities;
pub(crate) mod catchment;
pub(crate) mod egress;
pub(crate) mod failing_providers;
pub(crate) mod forwards;
mod routes;
pub(crate) mod steering;

use std::{
    ops::Deref,
    sync::{Arc, atomic::AtomicBool},
};

use sallyport_bus::{
    AcmeChallenges, Directory, DnsSteering, Fleet, Identities, Orders, Routes, ServedAnycast, ServedBalancers,
    ServedCertificates, ServedEgress, ServedNetworks, ServedZones, SshLogins,
};
use sallyport_identity::Sealer;
use sallyport_oidc::Providers;
use sallyport_resolver::Resolver;
use sallyport_store::Store;
use tokio::sync::{Mutex, Notify, Semaphore};

use self::{
    audit_readers::AuditReaders, authorities::AuthorityCache, catchment::CatchmentState, egress::EgressLeases,
    failing_providers::FailingProviders, forwards::TemporaryForwards, steering::SteeringState,
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

/// The state that handlers and tasks share. Clones share it.
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
    pub(crate) certificates: ServedCertificates,
    pub(crate) challenges: AcmeChallenges,
    pub(crate) zones: ServedZones,
    /// What steers clients of the name server.
    pub(crate) dns_steering: DnsSteering,
    pub(crate) anycast: ServedAnycast,
    /// The egress addresses, and the leases of their slices.
    pub(crate) egress: ServedEgress,
    /// The leases with their times.
    pub(crate) leases: EgressLeases,
    /// The networks of machines.
    pub(crate) networks: ServedNetworks,
    pub(crate) balancers: ServedBalancers,
    /// Makes lookups for domains; `None`: domains cannot be verified.
    pub(crate) resolver: Option<Resolver>,
    /// Whether the domain of the installation is delegated to its name server.
    pub(crate) is_delegated: AtomicBool,
    /// Seals the keys of accounts at ACME servers. Edges do not have its secret.
    pub(crate) acme_sealer: Sealer,
    /// Makes the records that prove domains.
    pub(crate) domain_secret: [u8; 32],
    /// Notified when other names may need certificates.
    pub(crate) names_changed: Notify,
    /// How edges join; empty on one machine.
    pub(crate) edges: Edges,
    /// Seals cookies and other texts of browsers, and secrets in the store.
    pub(crate) sealer: Sealer,
    pub(crate) providers: Providers,
    pub(crate) mail: Option<Mail>,
    /// The identity providers that did not answer last.
    pub(crate) failing: FailingProviders,
    /// Attempts to log in as persons, with their waits.
    pub(crate) attempts: Attempts,
    /// One permit for each message to a hook that no request waits for.
    pub(crate) hook_turns: Arc<Semaphore>,
    pub(crate) authorities: AuthorityCache,
    pub(crate) device_limits: DeviceLimits,
    /// Sends counted attempts to the other controls.
    pub(crate) attempt_gossip: AttemptGossip,
    pub(crate) mysocket_client_tokens: MysocketClientTokens,
    pub(crate) tokens: AccessTokens,
    pub(crate) mysocket_tokens: MysocketTokens,
    pub(crate) passwords: Passwords,
    pub(crate) limits: AttemptLimits,
    pub(crate) metrics: Metrics,
    pub(crate) clock: Clock,
    /// Locked from reading a route until publishing it, so that the last one published is the newest.
    pub(crate) publishing: Mutex<()>,
    /// Sockets and tunnels that live as long as a forward of an ssh client.
    pub(crate) temporary_forwards: TemporaryForwards,
    pub(crate) audit_readers: AuditReaders,
    /// The controls that share the store.
    pub(crate) peers: PeerWatch,
    /// The secret from which the keys of edges for messages about steering are derived.
    pub(crate) steering_secret: [u8; 32],
    /// The planner of steering.
    pub(crate) steering: SteeringState,
    /// Whether steering may follow the catchment.
    pub(crate) catchment: CatchmentState,
}

impl Deref for App {
    type Target = AppParts;
    fn deref(&self) -> &AppParts {
        &self.0
    }
}
