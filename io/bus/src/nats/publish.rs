//! Keeps the configuration bucket in step with the store, at a control.

use std::{
    collections::{BTreeMap, HashSet},
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use async_nats::jetstream::kv::{Entry, Operation, Store, UpdateErrorKind};
use sallyport_directory::config::{Keeper, Mend, StoredEntry};
use tokio::{sync::broadcast, time::Instant};
use tracing::{debug, info, warn};

use super::{
    CONFIG_BUCKET, Nats, OPEN_AGAIN,
    buckets::{self, BucketEntry, BucketWatch},
};
use crate::{Bus, ConfigKey, ConfigValue, config_entry::CONFIG_SCHEMA};

/// An entry that is present when the configuration is complete.
pub(super) const META_KEY: &str = "meta";
/// Interval of comparing the bucket with the store.
const RECONCILE_EVERY: Duration = Duration::from_secs(30);
/// Attempts to write an entry that others change at the same time.
const MAX_TRIES: usize = 8;
/// Age from which on the mark of a removed entry is purged. Until then, machines that were offline see the removal.
const MARK_AGE: Duration = Duration::from_secs(3_600);
/// The most marks purged at a time.
const MAX_MARKS_REMOVED: usize = 100;

/// A boxed future of a [`ConfigSource`].
pub type SourceFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, String>> + Send + 'a>>;

/// The store, as the bucket is to be.
pub trait ConfigSource: Send + Sync {
    /// The value of this key in the store.
    fn read(&self, key: ConfigKey) -> SourceFuture<'_, Option<ConfigValue>>;
    /// All values in the store.
    fn all(&self) -> SourceFuture<'_, Vec<ConfigValue>>;
    /// Reports that another control has changed this key.
    fn changed_elsewhere(&self, key: ConfigKey);
}

/// Counters of publishing.
#[derive(Debug, Clone, Default)]
pub struct PublishStats {
    shared: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    written: AtomicU64,
    mended: AtomicU64,
    failed: AtomicU64,
    too_large: AtomicU64,
}

impl PublishStats {
    /// Number of written entries.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.shared.written.load(Relaxed)
    }

    /// Number of entries written because the bucket differed from the store without a notified change.
    #[must_use]
    pub fn mended(&self) -> u64 {
        self.shared.mended.load(Relaxed)
    }

    /// Number of failed writes, which were tried again.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.shared.failed.load(Relaxed)
    }

    /// Number of entries that exceed the limit of the bus; edges do not get them.
    #[must_use]
    pub fn too_large(&self) -> u64 {
        self.shared.too_large.load(Relaxed)
    }
}

struct Publisher<'a> {
    source: &'a dyn ConfigSource,
    stats: &'a PublishStats,
    keeper: Keeper<SystemTime>,
    /// The largest entry in bytes.
    max_bytes: usize,
    /// Keys of entries that exceed the limit.
    too_large: HashSet<String>,
}

/// The entry of the bucket, as it was read.
fn kept(entry: &Entry) -> StoredEntry<SystemTime> {
    let created = UNIX_EPOCH + Duration::from_secs(u64::try_from(entry.created.unix_timestamp()).unwrap_or_default());
    let value = (entry.operation == Operation::Put).then(|| entry.value.to_vec());
    StoredEntry { revision: entry.revision, value, written_at: created }
}

/// Creates missing buckets with this number of replicas, if possible at once.
pub async fn prepare(nats: &Nats, replicas: usize) {
    if nats.link().is_up
        && let Err(error) = buckets::make(nats, replicas).await
    {
        debug!(error, "the buckets will be created later");
    }
}

/// Keeps the bucket in step with the store, with this number of replicas. Runs until dropped.
pub async fn publish_config(nats: Nats, bus: Bus, source: Arc<dyn ConfigSource>, replicas: usize, stats: PublishStats) {
    let mut was_told = String::new();
    loop {
        let connection = nats.up().await;
        // Later changes arrive as hints; earlier ones are found by comparing.
        let hints = bus.config_changes();
        let why = tokio::select! {
            () = nats.over(connection) => String::new(),
            error = publish(&nats, hints, &*source, replicas, &stats) => error,
        };
        if !why.is_empty() && why != was_told {
            warn!(error = why, "cannot publish changes to edges: trying again");
        }
        was_told = why;
        tokio::time::sleep(OPEN_AGAIN).await;
    }
}

/// Publishes until a failure; returns the reason.
async fn publish(
    nats: &Nats,
    mut hints: broadcast::Receiver<ConfigKey>,
    source: &dyn ConfigSource,
    replicas: usize,
    stats: &PublishStats,
) -> String {
    let work = async {
        buckets::make(nats, replicas).await?;
        let mut followed = BucketWatch::begin(nats, CONFIG_BUCKET).await?;
        let (max_bytes, too_large) = (buckets::max_entry_bytes(nats), HashSet::new());
        let mut publisher = Publisher { source, stats, keeper: Keeper::new(), max_bytes, too_large };
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
    /// Records an entry of the bucket; returns the key if another control has changed the entry.
    fn read(&mut self, came: BucketEntry) -> Option<ConfigKey> {
        let BucketEntry { entry, is_live } = came;
        let is_others = self.keeper.handle_entry(&entry.key, kept(&entry));
        entry.key.parse().ok().filter(|_| is_live && is_others)
    }

    /// Makes the entry equal to the store, and returns whether a write was needed. The store is read after the revision
    /// of the bucket, and the bucket accepts a write only in place of that revision. So an older state never replaces a
    /// newer one, whichever control writes.
    async fn publish(&mut self, store: &Store, key: ConfigKey) -> Result<bool, String> {
        let text = key.to_string();
        for _ in 0..MAX_TRIES {
            let basis = self.keeper.basis(&text);
            let value = self.source.read(key).await?;
            let value = value.map(|value| value.to_bytes()).transpose().map_err(|error| error.to_string())?;
            let value = self.fitting(&text, value);
            let is_done = match self.keeper.mend(&text, basis, value.as_deref()) {
                Mend::Nothing => return Ok(false),
                Mend::Put(revision) => self.put(store, &text, value.unwrap_or_default(), revision).await?,
                Mend::Remove(revision) => self.remove(store, &text, revision).await?,
            };
            if is_done {
                self.stats.shared.written.fetch_add(1, Relaxed);
                return Ok(true);
            }
            // Another control was faster: read both again.
            match store.entry(&text).await.map_err(|error| format!("cannot read {text}: {error}"))? {
                Some(entry) => {
                    self.keeper.handle_entry(&text, kept(&entry));
                }
                None => self.keeper.handle_nothing(&text),
            }
        }
        Err(format!("other controls keep changing {text}"))
    }

    /// Writes the entry in place of this revision; returns whether the revision was still the latest.
    async fn put(&mut self, store: &Store, key: &str, value: Vec<u8>, revision: u64) -> Result<bool, String> {
        match store.update(key, value.clone().into(), revision).await {
            Ok(revision) => {
                let written_at = SystemTime::now();
                self.keeper.handle_put(key, StoredEntry { revision, value: Some(value), written_at });
                Ok(true)
            }
            Err(error) if error.kind() == UpdateErrorKind::WrongLastRevision => Ok(false),
            Err(error) => {
                self.stats.shared.failed.fetch_add(1, Relaxed);
                Err(format!("cannot write {key}: {error}"))
            }
        }
    }

    /// Marks the entry as removed in place of this revision; returns whether the revision was still the latest.
    async fn remove(&mut self, store: &Store, key: &str, revision: u64) -> Result<bool, String> {
        let Err(error) = store.delete_expect_revision(key, Some(revision)).await else {
            self.keeper.handle_removed(key, revision, SystemTime::now());
            return Ok(true);
        };
        self.stats.shared.failed.fetch_add(1, Relaxed);
        debug!(key, %error, "an entry was not removed");
        // Reading the entry shows whether it was changed meanwhile.
        match store.entry(key).await.map_err(|error| format!("cannot read {key}: {error}"))? {
            Some(entry) if entry.revision == revision => Err(format!("cannot remove {key}: {error}")),
            _ => Ok(false),
        }
    }

    /// The value, if the bus accepts its size. An entry that is too large does not block others. Edges then remove what
    /// they knew under its key, because a later change, such as a revoked right, would not reach them.
    fn fitting(&mut self, key: &str, value: Option<Vec<u8>>) -> Option<Vec<u8>> {
        let bytes = value.as_ref().map_or(0, Vec::len);
        let fits = bytes <= self.max_bytes;
        if fits {
            self.too_large.remove(key);
        } else if self.too_large.insert(key.to_owned()) {
            warn!(key, bytes, max = self.max_bytes, "an entry is too large for the bus: edges do not get it");
        }
        self.stats.shared.too_large.store(self.too_large.len() as u64, Relaxed);
        value.filter(|_| fits)
    }

    /// Corrects every difference between store and bucket.
    async fn reconcile(&mut self, store: &Store) -> Result<(), String> {
        let (mut stored, mut large) = (BTreeMap::new(), HashSet::new());
        for value in self.source.all().await? {
            let (key, bytes) = (value.key().to_string(), value.to_bytes().map_err(|error| error.to_string())?);
            match self.fitting(&key, Some(bytes)) {
                Some(bytes) => drop(stored.insert(key, bytes)),
                None => drop(large.insert(key)),
            }
        }
        self.too_large = large;
        self.stats.shared.too_large.store(self.too_large.len() as u64, Relaxed);
        let differing: Vec<ConfigKey> =
            self.keeper.differing(&stored).into_iter().filter_map(|key| key.parse().ok()).collect();
        let mut mended = 0_u64;
        for key in differing {
            mended += u64::from(self.publish(store, key).await?);
        }
        self.stats.shared.mended.fetch_add(mended, Relaxed);
        if mended > 0 {
            info!(entries = mended, "published entries that edges did not have");
        }
        self.mark_whole(store).await?;
        self.remove_old_marks(store).await;
        Ok(())
    }

    /// Marks the configuration as complete.
    async fn mark_whole(&mut self, store: &Store) -> Result<(), String> {
        let value = format!(r#"{{"schema":{CONFIG_SCHEMA}}}"#).into_bytes();
        if let Mend::Put(revision) = self.keeper.mend(META_KEY, self.keeper.basis(META_KEY), Some(&value)) {
            // Another control that was faster wrote the same.
            self.put(store, META_KEY, value, revision).await?;
        }
        Ok(())
    }

    /// Purges old marks of removed entries.
    async fn remove_old_marks(&mut self, store: &Store) {
        let now = SystemTime::now();
        let is_old = |written: SystemTime| now.duration_since(written).is_ok_and(|age| age > MARK_AGE);
        let old = self.keeper.marks().filter(|(_, _, written)| is_old(*written));
        let old: Vec<_> = old.map(|(key, revision, _)| (key.to_owned(), revision)).collect();
        for (key, revision) in old.into_iter().take(MAX_MARKS_REMOVED) {
            let subject = format!("$KV.{CONFIG_BUCKET}.{key}");
            // Keeps an entry written in the meantime.
            match store.stream.purge().filter(subject).sequence(revision + 1).await {
                Ok(_) => self.keeper.handle_nothing(&key),
                Err(error) => debug!(key, %error, "an old mark was not purged"),
            }
        }
    }
}
