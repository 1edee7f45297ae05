//! An edge follows the configuration that control publishes: fills the maps of the request path, and writes the
//! snapshot.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use async_nats::jetstream::kv::{Entry, Operation};
use sallyport_directory::config::{EntryContent, OutOfOrder, Replica};
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::{
    CONFIG_BUCKET, Nats, OPEN_AGAIN,
    buckets::{BucketEntry, BucketWatch},
    publish::META_KEY,
};
use crate::{Bus, ConfigKey, ConfigValue, EgressConfig, OwnedAnycast, Snapshot};

/// The shortest time between two writes of the snapshot.
const SNAPSHOT_EVERY: Duration = Duration::from_secs(1);

/// Progress of an edge in following the configuration, for metrics and health.
#[derive(Debug, Clone, Default)]
pub struct ConfigProgress {
    shared: Arc<ConfigCounts>,
}

#[derive(Debug, Default)]
struct ConfigCounts {
    revision: AtomicU64,
    entries: AtomicU64,
    refused: AtomicU64,
    is_present: AtomicBool,
    snapshot_failures: AtomicU64,
    is_unsaved: AtomicBool,
}

impl ConfigProgress {
    /// The last known revision of the bucket.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.shared.revision.load(Relaxed)
    }

    /// Number of known entries.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.shared.entries.load(Relaxed)
    }

    /// Number of entries that were not understood.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.shared.refused.load(Relaxed)
    }

    /// Number of failed writes of the snapshot.
    #[must_use]
    pub fn snapshot_failures(&self) -> u64 {
        self.shared.snapshot_failures.load(Relaxed)
    }

    /// Stops writing the snapshot, because another process takes over.
    pub fn stop_saving(&self) {
        self.shared.is_unsaved.store(true, Relaxed);
    }

    /// Whether all published entries are known and the bus is connected.
    #[must_use]
    pub fn is_present(&self) -> bool {
        self.shared.is_present.load(Relaxed)
    }
}

impl Bus {
    /// Applies an entry to the maps.
    pub fn apply_config(&self, value: ConfigValue) {
        match value {
            ConfigValue::Route(route) => {
                if self.routes.get(route.id).is_none_or(|known| *known != *route) {
                    self.routes.put(*route);
                }
            }
            ConfigValue::SshLogin(login) => self.ssh_logins.put(login),
            ConfigValue::Session(session) => self.identities.put_session(session),
            ConfigValue::Token(token) => {
                if self.identities.token(token.id).is_none_or(|known| *known != token) {
                    self.identities.put_token(token);
                }
            }
            ConfigValue::Edge(orders) => self.orders.put(orders),
            ConfigValue::Certificate(certificate) => self.certificates.put(*certificate),
            ConfigValue::Challenge(challenge) => self.challenges.put(challenge),
            ConfigValue::Zone(zone) => self.zones.put(*zone),
            ConfigValue::Anycast(config) => self.anycast.put(*config),
            ConfigValue::Balancers(sites) => self.balancers.put(sites),
            ConfigValue::DnsSteering(part) => self.dns_steering.put(*part),
            ConfigValue::Egress(config) => self.egress.put(*config),
            ConfigValue::Network(network) => self.networks.put(*network),
        }
    }

    /// Removes the subject of an entry from the maps.
    pub fn forget_config(&self, key: ConfigKey) {
        match key {
            ConfigKey::Route(id) => self.routes.remove(id),
            ConfigKey::SshLogin(account) => self.ssh_logins.remove(account),
            ConfigKey::Session(id) => {
                self.identities.end_sessions(|session| session.id == id);
            }
            ConfigKey::Token(id) => self.identities.remove_token(id),
            ConfigKey::Edge(id) => self.orders.remove(id),
            ConfigKey::Certificate(id) => self.certificates.remove(id),
            ConfigKey::Challenge(id) => self.challenges.remove(id),
            ConfigKey::Zone(id) => self.zones.remove(id),
            ConfigKey::Anycast => self.anycast.put(OwnedAnycast::default()),
            ConfigKey::Balancers => self.balancers.put(Vec::new()),
            ConfigKey::DnsSteering(part) => self.dns_steering.remove(part),
            ConfigKey::Egress => self.egress.put(EgressConfig::default()),
            ConfigKey::Network(id) => self.networks.remove(id),
        }
    }
}

struct Follower {
    bus: Bus,
    dir: PathBuf,
    followed: ConfigProgress,
    replica: Replica<String, ConfigValue>,
    /// When to write the snapshot, if the known state differs from it.
    save_at: Option<Instant>,
}

/// Follows the published configuration, starting from `known`, a snapshot that is applied to the bus already. Runs
/// until dropped.
pub async fn follow_config(nats: Nats, bus: Bus, dir: PathBuf, known: Snapshot, followed: ConfigProgress) {
    let mut follower = Follower { bus, dir, followed, replica: Replica::new(known.entries), save_at: None };
    follower.count();
    let mut was_told = String::new();
    loop {
        let connection = nats.up().await;
        let why = tokio::select! {
            () = nats.over(connection) => String::new(),
            error = follower.follow(&nats) => error,
        };
        follower.followed.shared.is_present.store(false, Relaxed);
        if !why.is_empty() && why != was_told {
            warn!(error = why, "cannot follow the configuration: serving the known one, trying again");
        }
        was_told = why;
        let wait = tokio::time::sleep(OPEN_AGAIN);
        tokio::join!(wait, follower.save_now());
    }
}

impl Follower {
    /// Follows until a failure; returns the reason. May be dropped at any time.
    async fn follow(&mut self, nats: &Nats) -> String {
        let mut followed = match BucketWatch::begin(nats, CONFIG_BUCKET).await {
            Ok(followed) => followed,
            Err(error) => return error,
        };
        self.replica.handle_begin();
        loop {
            let save = async {
                match self.save_at {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            let came = tokio::select! {
                came = followed.next() => came,
                () = save => {
                    self.save_now().await;
                    continue;
                }
            };
            let BucketEntry { entry, .. } = match came {
                Ok(came) => came,
                Err(error) => return error,
            };
            self.followed.shared.revision.store(entry.revision, Relaxed);
            if let Err(error) = self.take(&entry) {
                return error.to_string();
            }
            if followed.is_complete
                && let Some(gone) = self.replica.handle_listed()
            {
                gone.iter().filter_map(|key| key.parse().ok()).for_each(|key| self.bus.forget_config(key));
                if !gone.is_empty() {
                    self.changed();
                }
                self.followed.shared.is_present.store(true, Relaxed);
                info!(entries = self.replica.known().len(), "the configuration is complete");
            }
        }
    }

    /// Applies an entry, or removes its subject.
    fn take(&mut self, entry: &Entry) -> Result<(), OutOfOrder> {
        let is_put = entry.operation == Operation::Put;
        if entry.key == META_KEY {
            return self.replica.handle_whole(entry.revision, is_put);
        }
        let Ok(key) = entry.key.parse::<ConfigKey>() else {
            debug!(key = entry.key, "an entry of a kind that is not known");
            return self.replica.handle_revision(entry.revision);
        };
        let content = match is_put.then(|| ConfigValue::from_bytes(key, &entry.value)) {
            Some(Ok(value)) => EntryContent::Put(value),
            Some(Err(error)) => {
                self.followed.shared.refused.fetch_add(1, Relaxed);
                warn!(key = entry.key, %error, "an entry of the configuration is not understood");
                EntryContent::Unclear
            }
            None => EntryContent::Gone,
        };
        if self.replica.handle_entry(entry.key.clone(), entry.revision, content)? {
            match self.replica.known().get(&entry.key) {
                Some(value) => self.bus.apply_config(value.clone()),
                None => self.bus.forget_config(key),
            }
            self.changed();
        }
        Ok(())
    }

    /// Schedules a write of the snapshot.
    fn changed(&mut self) {
        self.count();
        self.save_at.get_or_insert_with(|| Instant::now() + SNAPSHOT_EVERY);
    }

    fn count(&self) {
        self.followed.shared.entries.store(self.replica.known().len() as u64, Relaxed);
    }

    /// Writes the snapshot, if the known state differs from it.
    async fn save_now(&mut self) {
        if self.save_at.take().is_none() || self.followed.shared.is_unsaved.load(Relaxed) {
            return;
        }
        let entries: Vec<_> = self.replica.known().values().cloned().collect();
        let (dir, now) = (self.dir.clone(), SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
        let saved_at = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        let written = tokio::task::spawn_blocking(move || Snapshot::write(&dir, &entries, saved_at)).await;
        if let Ok(Err(error)) = written {
            self.followed.shared.snapshot_failures.fetch_add(1, Relaxed);
            warn!(%error, "cannot write the snapshot: trying again");
            self.save_at = Some(Instant::now() + SNAPSHOT_EVERY);
        }
    }
}
