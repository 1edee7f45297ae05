//! Publishing the store to the edges over the bus, entry by entry.

use std::sync::Arc;

use sallyport_anycast::model::AnycastConfig;
use sallyport_bus::{
    Bus, ConfigKey, ConfigSource, ConfigValue, EgressConfig, Nats, PublishStats, SourceFuture,
    exchange_control_messages, publish_config,
};
use sallyport_model::{DnsSteeringPart, DrainOrder, EdgeOrders};
use sallyport_store::{StoreError, StoredEdge};
use tokio::sync::Notify;

use crate::{
    service::served,
    state::{App, Control},
};

/// How long changes by other controls are gathered before the store is read again.
const GATHER: std::time::Duration = std::time::Duration::from_millis(100);

/// The publishing of the store to the bus.
#[derive(Debug)]
pub struct ConfigPublishing {
    /// Counters of publishing.
    pub stats: PublishStats,
}

/// How often the store is read again without a notification, if other controls may have changed it.
const LOOK_EVERY: std::time::Duration = std::time::Duration::from_secs(30);

struct Source {
    control: Control,
    changed: Arc<Notify>,
}

fn read_error(error: impl std::fmt::Display) -> String {
    format!("the store cannot be read: {error}")
}

fn steering_value(part: DnsSteeringPart) -> ConfigValue {
    ConfigValue::DnsSteering(Box::new(part))
}

/// The orders to an edge. Every edge that has joined and was not removed has an entry, by which edges know each other.
fn orders(edge: &StoredEdge) -> EdgeOrders {
    EdgeOrders { edge: edge.id, drain: edge.drain_until.map(|until| DrainOrder { until }), server: edge.server }
}

impl ConfigSource for Source {
    fn read(&self, key: ConfigKey) -> SourceFuture<'_, Option<ConfigValue>> {
        Box::pin(async move {
            let app = &self.control.app;
            let now = app.clock.now().unix_seconds;
            Ok(match key {
                ConfigKey::Route(id) => {
                    let route = app.store.route(id).await.map_err(read_error)?;
                    route.map(|route| ConfigValue::Route(Box::new(app.config.served(route))))
                }
                ConfigKey::SshLogin(account) => {
                    app.store.ssh_login(account).await.map_err(read_error)?.map(ConfigValue::SshLogin)
                }
                ConfigKey::Session(id) => {
                    app.store.person_session(id, now).await.map_err(read_error)?.map(ConfigValue::Session)
                }
                ConfigKey::Token(id) => {
                    app.store.service_token_route(id, now).await.map_err(read_error)?.map(ConfigValue::Token)
                }
                ConfigKey::Certificate(id) => {
                    let stored = app.store.certificate(id).await.map_err(read_error)?;
                    stored.and_then(served).map(|served| ConfigValue::Certificate(Box::new(served)))
                }
                ConfigKey::Challenge(id) => {
                    app.store.challenge(id, now).await.map_err(read_error)?.map(ConfigValue::Challenge)
                }
                ConfigKey::Zone(id) => {
                    let whole = app.store.whole_zone(id).await.map_err(read_error)?;
                    let whole = whole.filter(|_| app.config.has_name_server);
                    whole.map(|(stored, served)| ConfigValue::Zone(Box::new(app.published_zone(&stored, served))))
                }
                ConfigKey::DnsSteering(0) => app.dns_head().await.map_err(read_error)?.map(steering_value),
                ConfigKey::DnsSteering(part) => app.dns_steering.get(part).map(|part| steering_value((*part).clone())),
                ConfigKey::Anycast => {
                    let config = app.anycast_config().await.map_err(read_error)?;
                    (config.config != AnycastConfig::default()).then(|| ConfigValue::Anycast(Box::new(config)))
                }
                ConfigKey::Egress => {
                    let config = app.egress_config().await.map_err(read_error)?;
                    (config != EgressConfig::default()).then(|| ConfigValue::Egress(Box::new(config)))
                }
                ConfigKey::Network(id) => {
                    let network = app.store.network(id).await.map_err(read_error)?;
                    network.map(|network| ConfigValue::Network(Box::new(network.route())))
                }
                ConfigKey::Balancers => {
                    let sites = app.site_balancers().await.map_err(read_error)?;
                    (!sites.is_empty()).then_some(ConfigValue::Balancers(sites))
                }
                ConfigKey::Edge(id) => {
                    app.store.edge(id).await.map_err(read_error)?.map(|edge| ConfigValue::Edge(orders(&edge)))
                }
            })
        })
    }

    fn all(&self) -> SourceFuture<'_, Vec<ConfigValue>> {
        Box::pin(async move {
            let app = &self.control.app;
            let now = app.clock.now().unix_seconds;
            let mut all = Vec::new();
            let routes = app.store.routes().await.map_err(read_error)?;
            all.extend(routes.into_iter().map(|route| ConfigValue::Route(Box::new(app.config.served(route)))));
            all.extend(app.store.ssh_logins().await.map_err(read_error)?.into_iter().map(ConfigValue::SshLogin));
            all.extend(
                app.store.all_person_sessions(now).await.map_err(read_error)?.into_iter().map(ConfigValue::Session),
            );
            all.extend(
                app.store.service_token_routes(now).await.map_err(read_error)?.into_iter().map(ConfigValue::Token),
            );
            let certificates = app.store.certificates().await.map_err(read_error)?;
            let certificates = certificates.into_iter().filter_map(served);
            all.extend(certificates.map(|served| ConfigValue::Certificate(Box::new(served))));
            all.extend(app.store.challenges(now).await.map_err(read_error)?.into_iter().map(ConfigValue::Challenge));
            for zone in app.store.zones().await.map_err(read_error)?.iter().filter(|_| app.config.has_name_server) {
                if let Some((stored, served)) = app.store.whole_zone(zone.id).await.map_err(read_error)? {
                    all.push(ConfigValue::Zone(Box::new(app.published_zone(&stored, served))));
                }
            }
            let config = app.anycast_config().await.map_err(read_error)?;
            if config.config != AnycastConfig::default() {
                all.push(ConfigValue::Anycast(Box::new(config)));
            }
            let config = app.egress_config().await.map_err(read_error)?;
            if config != EgressConfig::default() {
                all.push(ConfigValue::Egress(Box::new(config)));
            }
            let networks = app.store.networks().await.map_err(read_error)?;
            all.extend(networks.iter().map(|network| ConfigValue::Network(Box::new(network.route()))));
            let sites = app.site_balancers().await.map_err(read_error)?;
            if !sites.is_empty() {
                all.push(ConfigValue::Balancers(sites));
            }
            // Other controls may have changed part 0; the others follow from what was measured.
            all.extend(app.dns_head().await.map_err(read_error)?.map(steering_value));
            let parts = app.dns_steering.all();
            all.extend(parts.iter().filter(|part| part.part > 0).map(|part| steering_value((**part).clone())));
            let edges = app.store.edges().await.map_err(read_error)?;
            all.extend(edges.iter().map(orders).map(ConfigValue::Edge));
            Ok(all)
        })
    }

    fn changed_elsewhere(&self, _key: ConfigKey) {
        self.changed.notify_one();
    }
}

impl App {
    /// Reads the edges from the store. Code that adds or removes an edge holds the publishing lock meanwhile.
    pub(crate) async fn reload_edge_orders(&self) -> Result<(), StoreError> {
        if self.edges.get().is_some() {
            self.orders.know(self.store.edges().await?.iter().map(orders));
        }
        Ok(())
    }
}

impl Control {
    /// Publishes the store to the edges, from now on and for as long as the program runs. `bus` is the one that control
    /// was started with.
    #[must_use]
    pub fn publish_to(&self, nats: Nats, bus: Bus, replicas: usize) -> ConfigPublishing {
        let (changed, stats) = (Arc::new(Notify::new()), PublishStats::default());
        let nats_of_talk = nats.clone();
        let source = Source { control: self.clone(), changed: changed.clone() };
        tokio::spawn(publish_config(nats, bus, Arc::new(source), replicas, stats.clone()));
        if let Some(attempts) = self.app.attempt_gossip.begin() {
            let hearer = self.clone();
            let talk = exchange_control_messages(nats_of_talk, self.app.config.id, attempts, move |word| {
                hearer.app.record_remote(word)
            });
            tokio::spawn(talk);
        }
        let control = self.clone();
        tokio::spawn(async move {
            if let Err(error) = control.app.reload_edge_orders().await {
                tracing::warn!(%error, "the edges cannot be read from the store yet");
            }
            loop {
                // While the bus is away, no notification of other controls comes.
                if tokio::time::timeout(LOOK_EVERY, changed.notified()).await.is_ok() {
                    tokio::time::sleep(GATHER).await;
                }
                if let Err(error) = control.reload().await {
                    tracing::warn!(error = format!("{error:#}"), "the changes of another control cannot be read yet");
                }
            }
        });
        ConfigPublishing { stats }
    }
}
