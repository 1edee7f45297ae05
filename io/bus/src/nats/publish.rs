//! What control does: it keeps the bucket as the store is.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use async_nats::jetstream::kv::{Operation, Store, UpdateErrorKind};
use tokio::{sync::broadcast, time::Instant};
use tracing::{debug, info, warn};

use super::{
    CONFIG_BUCKET, Nats, OPEN_AGAIN,
    buckets::{self, Came, Followed},
};
use crate::{Bus, ConfigKey, ConfigValue, config_entry::CONFIG_SCHEMA};

/// An entry that is there when all of the configuration is.
pub(super) const META_KEY: &str = "meta";
/// How often the bucket is compared with the store.
const RECONCILE_EVERY: Duration = Duration::from_secs(30);
/// How often a change is tried when others change the same entry.
const MAX_TRIES: usize = 8;
/// How old the mark of something that is gone must be before it is removed, so that who was away for a while sees it.
const MARK_AGE: Duration = Duration::from_secs(3_600);
/// How many such marks are removed at a time.
const MAX_MARKS_REMOVED: usize = 100;

/// What a source gives.
pub type SourceFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, String>> + Send + 'a>>;

/// The store, as the bucket is to be.
pub trait ConfigSource: Send + Sync {
    /// What the store has of this now.
    fn read(&self, key: ConfigKey) -> SourceFuture<'_, Option<ConfigValue>>;
    /// All that the store has now.
    fn all(&self) -> SourceFuture<'_, Vec<ConfigValue>>;
    /// Another control has changed this.
    fn changed_elsewhere(&self, key: ConfigKey);
}

/// What was published.
#[derive(Debug, Clone, Default)]
pub struct PublishStats {
    shared: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    written: AtomicU64,
    mended: AtomicU64,
    failed: AtomicU64,
}

impl PublishStats {
    /// How many entries were written.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.shared.written.load(Relaxed)
    }

    /// How many of them because the bucket differed from the store without a change that was told.
    #[must_use]
    pub fn mended(&self) -> u64 {
        self.shared.mended.load(Relaxed)
    }

    /// How often an entry could not be written, and was tried again.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.shared.failed.load(Relaxed)
    }
}

/// What the bucket has under a key.
#[derive(Default)]
struct Kept {
    revision: u64,
    value: Option<Vec<u8>>,
    /// When it was marked as gone.
    gone_at: Option<SystemTime>,
}

struct Publisher<'a> {
    source: &'a dyn ConfigSource,
    stats: &'a PublishStats,
    kept: BTreeMap<String, Kept>,
    /// The revisions that this control has written and not read back yet.
    ours: HashSet<u64>,
}

/// Keeps the bucket as the store is, on so many machines of the bus. Runs until it is dropped.
pub async fn publish_config(nats: Nats, bus: Bus, source: Arc<dyn ConfigSource>, replicas: usize, stats: PublishStats) {
    let mut was_told = String::new();
    loop {
        let connection = nats.up().await;
        // Whatever changes from here on is told; what changed before is found by comparing.
        let hints = bus.config_changes();
        let why = tokio::select! {
            () = nats.over(connection) => String::new(),
            error = publish(&nats, hints, &*source, replicas, &stats) => error,
        };
        if !why.is_empty() && why != was_told {
            warn!(error = why, "edges are not told of changes: trying again");
        }
        was_told = why;
        tokio::time::sleep(OPEN_AGAIN).await;
    }
}

/// Publishes until it cannot any longer; gives why.
async fn publish(
    nats: &Nats,
    mut hints: broadcast::Receiver<ConfigKey>,
    source: &dyn ConfigSource,
    replicas: usize,
    stats: &PublishStats,
) -> String {
    let work = async {
        buckets::make(nats, replicas).await?;
        let mut followed = Followed::begin(nats, CONFIG_BUCKET).await?;
        let mut publisher = Publisher { source, stats, kept: BTreeMap::new(), ours: HashSet::new() };
        while !followed.is_complete {
            let came = followed.next().await?;
            publisher.read(came);
        }
        let store = followed.store.clone();
        publisher.reconcile(&store).await?;
        let mut next = Instant::now() + RECONCILE_EVERY;
        loop {
            tokio::select! {
                came = followed.next() => {
                    if let Some(key) = publisher.read(came?) {
                        source.changed_elsewhere(key);
                    }
                }
                hint = hints.recv() => match hint {
                    Ok(key) => {
                        publisher.publish(&store, key).await?;
                    }
                    Err(broadcast::error::RecvError::Lagged(_)) => next = Instant::now(),
                    Err(broadcast::error::RecvError::Closed) => return Err("control has ended".to_owned()),
                },
                () = tokio::time::sleep_until(next) => {
                    publisher.reconcile(&store).await?;
                    next = Instant::now() + RECONCILE_EVERY;
                }
            }
        }
    };
    let ended: Result<(), String> = work.await;
    ended.err().unwrap_or_default()
}

impl Publisher<'_> {
    /// Learns what is in the bucket; gives what another control has changed.
    fn read(&mut self, came: Came) -> Option<ConfigKey> {
        let Came { entry, is_told } = came;
        let is_ours = self.ours.remove(&entry.revision);
        let is_gone = entry.operation != Operation::Put;
        if self.kept.get(&entry.key).is_some_and(|kept| kept.revision >= entry.revision) {
            return None;
        }
        let key = entry.key.parse().ok();
        let created =
            UNIX_EPOCH + Duration::from_secs(u64::try_from(entry.created.unix_timestamp()).unwrap_or_default());
        let kept = Kept {
            revision: entry.revision,
            value: (!is_gone).then(|| entry.value.to_vec()),
            gone_at: is_gone.then_some(created),
        };
        self.kept.insert(entry.key, kept);
        key.filter(|_| is_told && !is_ours)
    }

    /// Makes the entry as the store is now. What is read from the store is newer than what was in the bucket, since the
    /// bucket takes it only in place of the revision that was known before the store was read: an older state never
    /// replaces a newer one, whichever control writes it. Gives whether it had to be written.
    async fn publish(&mut self, store: &Store, key: ConfigKey) -> Result<bool, String> {
        let text = key.to_string();
        for _ in 0..MAX_TRIES {
            let revision = self.kept.get(&text).map_or(0, |kept| kept.revision);
            let value = self.source.read(key).await?;
            let value = value.map(|value| value.to_bytes()).transpose().map_err(|error| error.to_string())?;
            if self.kept.get(&text).and_then(|kept| kept.value.as_ref()) == value.as_ref() {
                return Ok(false);
            }
            if self.write(store, &text, value, revision).await? {
                self.stats.shared.written.fetch_add(1, Relaxed);
                return Ok(true);
            }
            // Somebody else was faster: look again at both.
            let entry = store.entry(&text).await.map_err(|error| format!("cannot read {text}: {error}"))?;
            let kept = entry.map_or_else(Kept::default, |entry| Kept {
                revision: entry.revision,
                value: (entry.operation == Operation::Put).then(|| entry.value.to_vec()),
                gone_at: None,
            });
            self.kept.insert(text.clone(), kept);
        }
        Err(format!("{text} is changed by others all the time"))
    }

    /// Writes the entry in place of this revision; gives whether it was still the latest.
    async fn write(&mut self, store: &Store, key: &str, value: Option<Vec<u8>>, revision: u64) -> Result<bool, String> {
        let written = match value.clone() {
            Some(value) => store.update(key, value.into(), revision).await,
            None => match store.delete_expect_revision(key, Some(revision)).await {
                // The mark of what is gone has a revision of its own, which comes back by following.
                Ok(()) => {
                    self.kept.remove(key);
                    return Ok(true);
                }
                Err(error) => {
                    self.stats.shared.failed.fetch_add(1, Relaxed);
                    debug!(key, %error, "an entry was not removed");
                    // Whether it was changed meanwhile is seen by reading it.
                    let now = store.entry(key).await.map_err(|error| format!("cannot read {key}: {error}"))?;
                    return match now {
                        Some(entry) if entry.revision == revision => Err(format!("cannot remove {key}: {error}")),
                        _ => Ok(false),
                    };
                }
            },
        };
        match written {
            Ok(revision) => {
                self.ours.insert(revision);
                self.kept.insert(key.to_owned(), Kept { revision, value, gone_at: None });
                Ok(true)
            }
            Err(error) if error.kind() == UpdateErrorKind::WrongLastRevision => Ok(false),
            Err(error) => {
                self.stats.shared.failed.fetch_add(1, Relaxed);
                Err(format!("cannot write {key}: {error}"))
            }
        }
    }

    /// Mends whatever differs between store and bucket.
    async fn reconcile(&mut self, store: &Store) -> Result<(), String> {
        let mut stored = HashMap::new();
        for value in self.source.all().await? {
            let bytes = value.to_bytes().map_err(|error| error.to_string())?;
            stored.insert(value.key().to_string(), (value.key(), bytes));
        }
        let missing = stored
            .iter()
            .filter(|(text, (_, bytes))| self.kept.get(*text).and_then(|kept| kept.value.as_ref()) != Some(bytes));
        let mut differing: Vec<ConfigKey> = missing.map(|(_, (key, _))| *key).collect();
        let gone = self.kept.iter().filter(|(text, kept)| kept.value.is_some() && !stored.contains_key(*text));
        differing.extend(gone.filter_map(|(text, _)| text.parse::<ConfigKey>().ok()));
        let mut mended = 0_u64;
        for key in differing {
            mended += u64::from(self.publish(store, key).await?);
        }
        self.stats.shared.mended.fetch_add(mended, Relaxed);
        if mended > 0 {
            info!(entries = mended, "edges are told what they did not know");
        }
        self.mark_whole(store).await?;
        self.remove_old_marks(store).await;
        Ok(())
    }

    /// Says that all is there.
    async fn mark_whole(&mut self, store: &Store) -> Result<(), String> {
        let value = format!(r#"{{"schema":{CONFIG_SCHEMA}}}"#).into_bytes();
        let (revision, is_there) =
            self.kept.get(META_KEY).map_or((0, false), |kept| (kept.revision, kept.value.as_ref() == Some(&value)));
        if !is_there {
            // When another control was faster it says the same.
            self.write(store, META_KEY, Some(value), revision).await?;
        }
        Ok(())
    }

    /// Removes the marks of what has been gone for long.
    async fn remove_old_marks(&mut self, store: &Store) {
        let now = SystemTime::now();
        let is_old =
            |kept: &Kept| kept.gone_at.is_some_and(|gone| now.duration_since(gone).is_ok_and(|age| age > MARK_AGE));
        let old = self.kept.iter().filter(|(_, kept)| is_old(kept));
        let old: Vec<_> = old.map(|(key, kept)| (key.clone(), kept.revision)).collect();
        for (key, revision) in old.into_iter().take(MAX_MARKS_REMOVED) {
            let subject = format!("$KV.{CONFIG_BUCKET}.{key}");
            // Not what was written in its place meanwhile.
            match store.stream.purge().filter(subject).sequence(revision + 1).await {
                Ok(_) => {
                    self.kept.remove(&key);
                }
                Err(error) => debug!(key, %error, "an old mark stays"),
            }
        }
    }
}
