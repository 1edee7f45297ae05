//! Documents of permits in a bucket of the bus.

use std::time::Duration;

use async_nats::jetstream::kv::{Operation, Store, UpdateErrorKind};
use ipnet::IpNet;
use sallyport_anycast::floor::{Permits, key};

use super::{
    ANYCAST_BUCKET, Nats,
    buckets::{BucketEntry, BucketWatch},
};

/// How long reading may take.
const READ_TIME: Duration = Duration::from_secs(3);

/// The permits of a prefix, as they were read.
pub(crate) struct PermitDocument {
    store: Store,
    key: String,
    revision: u64,
    permits: Permits,
}

impl PermitDocument {
    /// Reads the document of a prefix. A prefix without one is announced by nobody.
    pub(crate) async fn read(nats: &Nats, prefix: IpNet) -> Result<Self, String> {
        if !nats.link().is_up {
            return Err("the bus is away".to_owned());
        }
        let read = tokio::time::timeout(READ_TIME, Self::read_all(nats, prefix)).await;
        read.map_err(|_| "the bus does not send the permits".to_owned())?
    }

    /// Edges read by following alone: an answer to a direct question could be had written over the configuration.
    async fn read_all(nats: &Nats, prefix: IpNet) -> Result<Self, String> {
        let (key, mut revision, mut value) = (key(prefix), 0, None);
        let mut followed = BucketWatch::begin(nats, ANYCAST_BUCKET).await?;
        while !followed.is_complete {
            let BucketEntry { entry, .. } = followed.next().await?;
            if entry.key == key {
                revision = entry.revision;
                value = (entry.operation == Operation::Put).then_some(entry.value);
            }
        }
        let permits = match value {
            Some(value) => Permits::from_bytes(prefix, &value).map_err(|error| error.to_string())?,
            None => Permits::new(prefix),
        };
        Ok(Self { store: followed.store, key, revision, permits })
    }

    /// The permits.
    pub(crate) fn permits(&self) -> &Permits {
        &self.permits
    }

    /// Replaces the document; returns whether it was still as it was read.
    pub(crate) async fn replace(&self, next: &Permits) -> Result<bool, String> {
        let bytes = next.to_bytes().map_err(|error| error.to_string())?;
        match self.store.update(&self.key, bytes.into(), self.revision).await {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == UpdateErrorKind::WrongLastRevision => Ok(false),
            Err(error) => Err(format!("the permits cannot be written: {error}")),
        }
    }
}
