//! Opens buckets and reads their entries one after the other.

use std::{pin::Pin, time::Duration};

use async_nats::jetstream::kv::{Config, Entry, Store, Watch};
use futures_core::Stream as _;
use sallyport_directory::ENTRY_AGE;

use super::{ANYCAST_BUCKET, CONFIG_BUCKET, DIRECTORY_BUCKET, Nats};

/// The largest entry in bytes: enough for a socket with a thousand tunnels and its policies.
const MAX_ENTRY_BYTES: i32 = 1_000_000;
/// Bound on subject and headers of a message with an entry, in bytes.
const MAX_BESIDE_BYTES: usize = 4_096;

/// The current limit for entries in bytes: the limit of the bus for messages may be lower than [`MAX_ENTRY_BYTES`].
pub(super) fn max_entry_bytes(nats: &Nats) -> usize {
    let most = usize::try_from(MAX_ENTRY_BYTES).unwrap_or_default();
    nats.jetstream.client().server_info().max_payload.saturating_sub(MAX_BESIDE_BYTES).min(most)
}

/// Creates missing buckets with this number of replicas.
pub(super) async fn make(nats: &Nats, replicas: usize) -> Result<(), String> {
    for (bucket, max_age) in
        [(CONFIG_BUCKET, Duration::ZERO), (DIRECTORY_BUCKET, ENTRY_AGE), (ANYCAST_BUCKET, Duration::ZERO)]
    {
        let config = Config {
            bucket: bucket.to_owned(),
            max_value_size: MAX_ENTRY_BYTES,
            history: 1,
            max_age,
            num_replicas: replicas,
            ..Config::default()
        };
        let made = nats.jetstream.create_or_update_key_value(config).await;
        made.map_err(|error| format!("cannot create the bucket {bucket}: {error}"))?;
    }
    Ok(())
}

/// Follows a bucket: first all entries, then changes.
pub(super) struct BucketWatch {
    watch: Watch,
    /// The last revision at the start.
    listed_to: u64,
    /// Whether all entries of the start were delivered.
    pub(super) is_complete: bool,
    /// For reads and writes in the same bucket.
    pub(super) store: Store,
}

/// A delivered entry.
pub(super) struct BucketEntry {
    pub(super) entry: Entry,
    /// Whether the entry was written after the start.
    pub(super) is_live: bool,
}

impl BucketWatch {
    /// Starts to follow a bucket.
    pub(super) async fn begin(nats: &Nats, bucket: &str) -> Result<Self, String> {
        let store = nats.jetstream.get_key_value(bucket).await;
        let store = store.map_err(|error| format!("cannot open the bucket {bucket}: {error}"))?;
        let state = &store.stream.cached_info().state;
        let (listed_to, is_complete) = (state.last_sequence, state.messages == 0);
        let watch = store.watch_with_history(">").await;
        let watch = watch.map_err(|error| format!("cannot follow the bucket {bucket}: {error}"))?;
        Ok(Self { watch, listed_to, is_complete, store })
    }

    /// The next entry. Cancel safe.
    pub(super) async fn next(&mut self) -> Result<BucketEntry, String> {
        let watch = &mut self.watch;
        match std::future::poll_fn(|context| Pin::new(&mut *watch).poll_next(context)).await {
            None => Err("the subscription to the bucket ended".to_owned()),
            Some(Err(error)) => Err(format!("the bucket cannot be followed: {error}")),
            Some(Ok(entry)) => {
                self.is_complete |= entry.delta == 0;
                Ok(BucketEntry { is_live: entry.revision > self.listed_to, entry })
            }
        }
    }
}
