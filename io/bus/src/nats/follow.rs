//! What an edge does with what control publishes: it fills the maps that the request path looks into, and the snapshot.

use std::{
    collections::{BTreeMap, HashSet},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use async_nats::jetstream::kv::Operation;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::{
    CONFIG_BUCKET, Nats, OPEN_AGAIN,
    buckets::{Came, Followed},
    publish::META_KEY,
};
use crate::{Bus, ConfigKey, ConfigValue, Snapshot};

/// How often the snapshot is written at most.
const SNAPSHOT_EVERY: Duration = Duration::from_secs(1);

/// How far an edge has come in following: for metrics and for health.
#[derive(Debug, Clone, Default)]
pub struct ConfigFollowed {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    revision: AtomicU64,
    entries: AtomicU64,
    refused: AtomicU64,
    is_present: AtomicBool,
    snapshot_failures: AtomicU64,
}

impl ConfigFollowed {
    /// The revision of the bucket that is known.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.shared.revision.load(Relaxed)
    }

    /// How many entries are known.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.shared.entries.load(Relaxed)
    }

    /// How many entries were not understood.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.shared.refused.load(Relaxed)
    }

    /// How often the snapshot could not be written.
    #[must_use]
    pub fn snapshot_failures(&self) -> u64 {
        self.shared.snapshot_failures.load(Relaxed)
    }

    /// Whether all that control has published is known, and the bus is there to tell of changes.
    #[must_use]
    pub fn is_present(&self) -> bool {
        self.shared.is_present.load(Relaxed)
    }
}

impl Bus {
    /// Takes an entry over.
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
        }
    }

    /// Forgets what the entry was about.
    pub fn forget_config(&self, key: ConfigKey) {
        match key {
            ConfigKey::Route(id) => self.routes.remove(id),
            ConfigKey::SshLogin(account) => self.ssh_logins.remove(account),
            ConfigKey::Session(id) => {
                self.identities.end_sessions(|session| session.id == id);
            }
            ConfigKey::Token(id) => self.identities.remove_token(id),
        }
    }
}

struct Follower {
    bus: Bus,
    dir: PathBuf,
    followed: ConfigFollowed,
    known: BTreeMap<String, ConfigValue>,
    /// When the snapshot is to be written, if what is known differs from it.
    save_at: Option<Instant>,
}

/// Follows what control publishes, from `known` on, which came from a snapshot and is in the bus already. Runs until it is
/// dropped.
pub async fn follow_config(nats: Nats, bus: Bus, dir: PathBuf, known: Snapshot, followed: ConfigFollowed) {
    let mut follower = Follower { bus, dir, followed, known: known.entries, save_at: None };
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
            warn!(error = why, "the configuration cannot be followed: serving what is known, trying again");
        }
        was_told = why;
        let wait = tokio::time::sleep(OPEN_AGAIN);
        tokio::join!(wait, follower.save_now());
    }
}

impl Follower {
    /// Follows until it cannot any longer; gives why. May be dropped at any time.
    async fn follow(&mut self, nats: &Nats) -> String {
        let mut followed = match Followed::begin(nats, CONFIG_BUCKET).await {
            Ok(followed) => followed,
            Err(error) => return error,
        };
        // An entry that is not there is gone only when all that control knows is there.
        let (mut seen, mut is_whole) = (Some(HashSet::new()), false);
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
            let Came { entry, .. } = match came {
                Ok(came) => came,
                Err(error) => return error,
            };
            self.followed.shared.revision.store(entry.revision, Relaxed);
            let is_put = entry.operation == Operation::Put;
            if entry.key == META_KEY {
                is_whole = is_put;
            } else if let Ok(key) = entry.key.parse::<ConfigKey>() {
                if let Some(seen) = &mut seen {
                    seen.insert(entry.key.clone());
                }
                self.take(key, is_put.then_some(&entry.value[..]));
            } else {
                debug!(key = entry.key, "an entry of a kind that is not known");
            }
            if followed.is_complete
                && is_whole
                && let Some(seen) = seen.take()
            {
                self.forget_all_but(&seen);
                self.followed.shared.is_present.store(true, Relaxed);
                info!(entries = self.known.len(), "all that control knows is known");
            }
        }
    }

    /// Takes an entry over, or forgets it.
    fn take(&mut self, key: ConfigKey, value: Option<&[u8]>) {
        let text = key.to_string();
        match value.map(|bytes| ConfigValue::from_bytes(key, bytes)) {
            Some(Ok(value)) => {
                if self.known.get(&text) == Some(&value) {
                    return;
                }
                self.bus.apply_config(value.clone());
                self.known.insert(text, value);
            }
            Some(Err(error)) => {
                // What is known stays: half of what was meant would be worse.
                self.followed.shared.refused.fetch_add(1, Relaxed);
                warn!(key = text, %error, "an entry of the configuration is not understood");
                return;
            }
            None => {
                if self.known.remove(&text).is_none() {
                    return;
                }
                self.bus.forget_config(key);
            }
        }
        self.count();
        self.save_at.get_or_insert_with(|| Instant::now() + SNAPSHOT_EVERY);
    }

    fn forget_all_but(&mut self, seen: &HashSet<String>) {
        let gone: Vec<_> = self.known.keys().filter(|key| !seen.contains(*key)).cloned().collect();
        for key in gone.iter().filter_map(|key| key.parse().ok()) {
            self.take(key, None);
        }
    }

    fn count(&self) {
        self.followed.shared.entries.store(self.known.len() as u64, Relaxed);
    }

    /// Writes the snapshot, if what is known differs from it.
    async fn save_now(&mut self) {
        if self.save_at.take().is_none() {
            return;
        }
        let entries: Vec<_> = self.known.values().cloned().collect();
        let (dir, now) = (self.dir.clone(), SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
        let saved_at = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        let written = tokio::task::spawn_blocking(move || Snapshot::write(&dir, &entries, saved_at)).await;
        if let Ok(Err(error)) = written {
            self.followed.shared.snapshot_failures.fetch_add(1, Relaxed);
            warn!(%error, "what is known is not on disk: trying again");
            self.save_at = Some(Instant::now() + SNAPSHOT_EVERY);
        }
    }
}
