//! Starting control: publishing the store to edges, and starting the background tasks.

use std::sync::{Arc, atomic::AtomicBool};

use anyhow::Context as _;
use prometheus_client::registry::Registry;
use sallyport_bus::{Bus, Nats, Steering};
use sallyport_identity::Sealer;
use sallyport_oidc::Providers;
use sallyport_store::Store;
use tokio::{
    sync::{Mutex, Notify, Semaphore, watch},
    task::AbortHandle,
};

use crate::{
    background::{catchment, cluster, dns_steering, egress as leasing, names, steering as plans, tidy},
    certificates,
    clock::Clock,
    cluster::{attempt_gossip::AttemptGossip, peers::PeerWatch},
    config::{ControlConfig, Edges},
    mail::Mail,
    metrics::Metrics,
    security::{
        access_token::AccessTokens, attempt_limits::AttemptLimits, attempts::Attempts, device_limits::DeviceLimits,
        mysocket_client_token::MysocketClientTokens, mysocket_token::MysocketTokens, password::Passwords,
        secrets::Secrets,
    },
    service::provider_checks,
    state::{
        App, AppParts, Control, audit_readers::AuditReaders, authorities::AuthorityCache, catchment::CatchmentState,
        egress::EgressLeases, failing_providers::FailingProviders, forwards::TemporaryForwards,
        steering::SteeringState,
    },
};

/// How many messages to persons may be on their way at once; further ones are not sent.
const MAX_HOOKS_AT_ONCE: usize = 16;

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
        let Bus {
            routes,
            ssh_logins,
            identities,
            directory,
            fleet,
            orders,
            certificates,
            challenges,
            zones,
            dns_steering,
            anycast,
            egress,
            networks,
            balancers,
            steering,
            ..
        } = bus;
        let metrics = Metrics::default();
        let passwords = Passwords::start()
            .map_err(|e| anyhow::anyhow!("cannot hash passwords: {}", e.inner().unwrap_or("busy")))?;
        let temporary_forwards = TemporaryForwards::new(&secrets, config.id);
        // The other living controls are not known yet.
        temporary_forwards
            .sweep(&store, |_, _| store.is_shared())
            .await
            .context("cannot remove the temporary sockets of ssh clients")?;
        for login in store.ssh_logins().await.context("cannot read the ssh keys")? {
            ssh_logins.put(login);
        }
        let now = clock.now().unix_seconds;
        for session in store.all_person_sessions(now).await.context("cannot read the logins of persons")? {
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
        let authorities = AuthorityCache::default();
        for authority in store.authorities().await.context("cannot read the authorities of organisations")? {
            authorities.insert(&authority);
        }
        let attempt_gossip = AttemptGossip::default();
        let limits = AttemptLimits::new(attempt_gossip.clone());
        let sealer = Sealer::new(secrets.derived("seal"));
        let providers = Providers::new(config.provider_reach, concat!("sallyport/", env!("CARGO_PKG_VERSION")));
        let mail = config.mail_hook.clone().map(Mail::new);
        let app = App(Arc::new(AppParts {
            store,
            routes,
            ssh_logins,
            identities,
            directory,
            fleet,
            orders,
            certificates,
            challenges,
            zones,
            dns_steering,
            anycast,
            egress,
            networks,
            leases: EgressLeases::new(config.egress_times),
            balancers,
            resolver: config.resolver.clone(),
            is_delegated: AtomicBool::new(false),
            acme_sealer: Sealer::new(secrets.derived("acme")),
            domain_secret: secrets.derived("domains"),
            names_changed: Notify::new(),
            config,
            edges: Edges::new(),
            sealer,
            providers,
            mail,
            failing: FailingProviders::default(),
            attempts: Attempts::new(attempt_gossip.clone()),
            hook_turns: Arc::new(Semaphore::new(MAX_HOOKS_AT_ONCE)),
            authorities,
            device_limits: DeviceLimits::new(attempt_gossip.clone()),
            attempt_gossip,
            mysocket_client_tokens,
            tokens,
            mysocket_tokens,
            passwords,
            limits,
            metrics,
            clock,
            publishing: Mutex::new(()),
            temporary_forwards,
            audit_readers: AuditReaders::default(),
            peers: PeerWatch::default(),
            steering_secret: secrets.derived("steering"),
            steering: SteeringState::default(),
            catchment: CatchmentState::default(),
        }));
        if app.store.is_shared() {
            app.beat().await.context("cannot write the heartbeat of this control")?;
            tokio::spawn(cluster::beat(Arc::downgrade(&app.0)));
        }
        app.prepare_setup()
            .await
            .map_err(|error| anyhow::anyhow!("{}", error.inner().unwrap_or(error.sentence())))
            .context("cannot prepare the first account")?;
        app.reload_certificates()
            .await
            .map_err(|error| anyhow::anyhow!("{}", error.inner().unwrap_or(error.sentence())))
            .context("cannot read the certificates")?;
        app.open_zones()
            .await
            .map_err(|error| anyhow::anyhow!("{}", error.inner().unwrap_or(error.sentence())))
            .context("cannot read the zones")?;
        app.reload_anycast()
            .await
            .map_err(|error| anyhow::anyhow!("{}", error.inner().unwrap_or(error.sentence())))
            .context("cannot read the prefixes of anycast")?;
        app.reload_egress().await.context("cannot read the egress addresses")?;
        app.reload_networks().await.context("cannot read the networks")?;
        app.reload_balancers().await.context("cannot read the balancers of sites")?;
        app.renew_dns_steering()
            .await
            .map_err(|error| anyhow::anyhow!("{}", error.inner().unwrap_or(error.sentence())))
            .context("cannot read what steers the name server")?;
        tokio::spawn(dns_steering::renew(Arc::downgrade(&app.0)));
        tokio::spawn(leasing::follow(Arc::downgrade(&app.0)));
        tokio::spawn(names::check_domains(Arc::downgrade(&app.0)));
        tokio::spawn(names::renew_serials(Arc::downgrade(&app.0)));
        tokio::spawn(tidy::tidy(Arc::downgrade(&app.0)));
        tokio::spawn(tidy::sweep(Arc::downgrade(&app.0)));
        let term = watch::Sender::new(None);
        tokio::spawn(plans::plan(Arc::downgrade(&app.0), steering, term.subscribe()));
        tokio::spawn(catchment::gather(Arc::downgrade(&app.0), term.subscribe()));
        tokio::spawn(plans::elect(Arc::downgrade(&app.0), term));
        tokio::spawn(provider_checks::follow(Arc::downgrade(&app.0)));
        Ok(Self { app })
    }

    /// Takes reports of edges from the bus, and sends them their quotas, from now on. Returns what ends that, for a
    /// process that is replaced.
    pub fn steer_over(&self, nats: Nats, steering: Steering) -> AbortHandle {
        let (secret, metrics) = (self.app.steering_secret, self.app.metrics.clone());
        let refused = move || metrics.steering.forged();
        tokio::spawn(sallyport_bus::carry_steering_of_control(nats, secret, steering, refused)).abort_handle()
    }

    /// Orders and renews certificates from now on, if there is an ACME server. The edges of this machine accept
    /// connections by now: ACME servers verify names there. Returns what ends the orders, for a process that is replaced.
    pub fn order_certificates(&self) -> Option<AbortHandle> {
        let acme = self.app.config.acme.clone()?;
        Some(tokio::spawn(certificates::run(Arc::downgrade(&self.app.0), acme)).abort_handle())
    }

    /// Asks providers about the logins of which it is time to ask; that happens by itself, too. Gives how many those
    /// were.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn check_providers(&self) -> anyhow::Result<usize> {
        self.app.check_providers().await.map_err(|error| anyhow::anyhow!("{}", error.sentence()))
    }

    /// Adds control's metrics.
    pub fn register_metrics(&self, registry: &mut Registry) {
        self.app.metrics.register(registry);
    }

    /// A line for `/healthz` if certificates cannot be ordered or renewed. It names none: the page is public.
    #[must_use]
    pub fn health(&self) -> String {
        match self.app.metrics.troubled_certificates() {
            ..=0 => String::new(),
            count => {
                format!("certificates: {count} cannot be obtained or renewed: `sallyport cert ls` has the reasons\n")
            }
        }
    }

    /// Ends the waits of requests that follow the audit log. Called when the shutdown begins: it would wait for them.
    pub fn stop_waiting(&self) {
        self.app.audit_readers.stop_waiting();
    }

    /// Tells the other controls that this one ends.
    pub async fn leave(&self) {
        if !self.app.store.is_shared() {
            return;
        }
        if let Err(error) = self.app.store.forget_control(self.app.config.id, i64::MAX).await {
            tracing::debug!(%error, "the heartbeat could not be removed: other controls notice the end by its absence");
        }
    }

    /// Whether control can do its work: for readiness checks.
    ///
    /// # Errors
    /// The store fails: the reason, a sentence.
    pub async fn check(&self) -> Result<(), String> {
        self.app.store.check().await.map_err(|error| error.to_string())
    }
}
