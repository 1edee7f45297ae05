//! What edges are told: the store, entry by entry.

use std::sync::Arc;

use sallyport_bus::{Bus, ConfigKey, ConfigSource, ConfigValue, Nats, PublishStats, SourceFuture, publish_config};
use tokio::sync::Notify;

use crate::Control;

/// How long changes by other controls are gathered before the store is read again.
const GATHER: std::time::Duration = std::time::Duration::from_millis(100);

/// Publishes what edges need to know, and learns what other controls change.
#[derive(Debug)]
pub struct ConfigPublishing {
    /// What was published.
    pub stats: PublishStats,
}

struct Source {
    control: Control,
    changed: Arc<Notify>,
}

fn said(error: impl std::fmt::Display) -> String {
    format!("the store cannot be read: {error}")
}

impl ConfigSource for Source {
    fn read(&self, key: ConfigKey) -> SourceFuture<'_, Option<ConfigValue>> {
        Box::pin(async move {
            let app = &self.control.app;
            let now = app.clock.now().unix_seconds;
            Ok(match key {
                ConfigKey::Route(id) => {
                    let route = app.store.route(id).await.map_err(said)?;
                    route.map(|route| ConfigValue::Route(Box::new(app.config.served(route))))
                }
                ConfigKey::SshLogin(account) => {
                    app.store.ssh_login(account).await.map_err(said)?.map(ConfigValue::SshLogin)
                }
                ConfigKey::Session(id) => {
                    app.store.person_session(id, now).await.map_err(said)?.map(ConfigValue::Session)
                }
                ConfigKey::Token(id) => {
                    app.store.service_token_route(id, now).await.map_err(said)?.map(ConfigValue::Token)
                }
            })
        })
    }

    fn all(&self) -> SourceFuture<'_, Vec<ConfigValue>> {
        Box::pin(async move {
            let app = &self.control.app;
            let now = app.clock.now().unix_seconds;
            let mut all = Vec::new();
            let routes = app.store.routes().await.map_err(said)?;
            all.extend(routes.into_iter().map(|route| ConfigValue::Route(Box::new(app.config.served(route)))));
            all.extend(app.store.ssh_logins().await.map_err(said)?.into_iter().map(ConfigValue::SshLogin));
            all.extend(app.store.all_person_sessions(now).await.map_err(said)?.into_iter().map(ConfigValue::Session));
            all.extend(app.store.service_token_routes(now).await.map_err(said)?.into_iter().map(ConfigValue::Token));
            Ok(all)
        })
    }

    fn changed_elsewhere(&self, _key: ConfigKey) {
        self.changed.notify_one();
    }
}

impl Control {
    /// Keeps edges told of what they need to know, from now on and for as long as the program runs; `bus` is the one that control
    /// was started with.
    #[must_use]
    pub fn publish_to(&self, nats: Nats, bus: Bus, replicas: usize) -> ConfigPublishing {
        let (changed, stats) = (Arc::new(Notify::new()), PublishStats::default());
        let source = Source { control: self.clone(), changed: changed.clone() };
        tokio::spawn(publish_config(nats, bus, Arc::new(source), replicas, stats.clone()));
        let control = self.clone();
        tokio::spawn(async move {
            loop {
                changed.notified().await;
                tokio::time::sleep(GATHER).await;
                if let Err(error) = control.reload().await {
                    tracing::warn!(error = format!("{error:#}"), "what another control has changed is not known yet");
                }
            }
        });
        ConfigPublishing { stats }
    }
}
