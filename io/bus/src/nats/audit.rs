//! The audit stream over JetStream: each machine publishes its batches in order, and controls read all of them.
//!
//! A batch is published again until the bus has confirmed it, so a batch may occur twice; the reader recognises
//! duplicates by the numbers. A control that was offline for long misses batches that the stream has dropped because of
//! age or size, and records the gap in its log. The machine that recorded a dropped batch still has it.

use std::{future::poll_fn, pin::Pin, sync::Arc, time::Duration};

use async_nats::jetstream::{
    consumer::{DeliverPolicy, pull::OrderedConfig},
    stream::{Compression, Config, DiscardPolicy, Stream},
};
use futures_core::Stream as _;
use tracing::{info, warn};

use super::{ANSWER_TIME, Nats, OPEN_AGAIN};
use crate::{AuditSource, AuditStreamStats, AuditTaker};

/// Name of the stream of audit events.
pub const AUDIT_STREAM: &str = "sallyport-audit";
/// Subject prefix of audit events, followed by the id of the machine's log.
const AUDIT_SUBJECT: &str = "sallyport.audit";
/// Size limit of the stream in bytes; the oldest batches are dropped.
pub const MAX_AUDIT_STREAM_BYTES: i64 = 128 * 1024 * 1024;
/// Time that a batch stays in the stream.
pub const AUDIT_STREAM_AGE: Duration = Duration::from_secs(7 * 86_400);
/// Time that a new event waits for others in the same batch.
const GATHER_TIME: Duration = Duration::from_millis(100);
/// Interval of looking for batches without a notification.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// Pause after a failure.
const TRY_AGAIN: Duration = Duration::from_secs(1);

fn config(replicas: usize) -> Config {
    Config {
        name: AUDIT_STREAM.to_owned(),
        subjects: vec![format!("{AUDIT_SUBJECT}.>")],
        max_bytes: MAX_AUDIT_STREAM_BYTES,
        max_age: AUDIT_STREAM_AGE,
        discard: DiscardPolicy::Old,
        num_replicas: replicas,
        compression: Some(Compression::S2),
        ..Config::default()
    }
}

/// Publishes the audit events of this machine under the id of its log. Runs until dropped.
pub async fn publish_audit(nats: Nats, id: String, source: Arc<dyn AuditSource>, stats: AuditStreamStats) {
    let mut changes = source.changes();
    let subject = format!("{AUDIT_SUBJECT}.{id}");
    let mut was_told = String::new();
    loop {
        changes.mark_unchanged();
        match put_all(&nats, &subject, &source, &stats).await {
            Ok(()) => {
                if !std::mem::take(&mut was_told).is_empty() {
                    info!("the audit log is being published again");
                }
                // Whichever comes first; a closed channel is no reason to stop.
                let _ = tokio::time::timeout(LOOK_AGAIN, changes.changed()).await;
                tokio::time::sleep(GATHER_TIME).await;
            }
            Err(why) => {
                stats.failed_by(why.clone());
                if why != was_told {
                    warn!(error = why, "the audit log cannot be published: it is kept and published later");
                }
                was_told = why;
                tokio::time::sleep(TRY_AGAIN).await;
            }
        }
    }
}

/// Publishes all available batches.
async fn put_all(
    nats: &Nats,
    subject: &str,
    source: &Arc<dyn AuditSource>,
    stats: &AuditStreamStats,
) -> Result<(), String> {
    loop {
        let from = source.clone();
        let Some((bytes, events)) = blocking(move || from.next()).await? else { return Ok(()) };
        if !nats.link().is_up {
            return Err("the bus is unavailable".to_owned());
        }
        let put = async {
            let sent = nats.jetstream.publish(subject.to_owned(), bytes.into()).await;
            sent.map_err(|error| error.to_string())?.await.map_err(|error| error.to_string())
        };
        let put = tokio::time::timeout(ANSWER_TIME, put).await;
        put.map_err(|_| "the bus does not answer".to_owned())?
            .map_err(|error| format!("the bus refuses the batch: {error}"))?;
        let from = source.clone();
        blocking(move || from.mark_published()).await?;
        stats.record_published(events);
    }
}

/// Reads the audit events of other machines, and creates the stream with this number of replicas if needed. Runs until
/// dropped.
pub async fn take_audit(nats: Nats, replicas: usize, taker: Arc<dyn AuditTaker>, stats: AuditStreamStats) {
    let mut was_told = String::new();
    loop {
        let connection = nats.up().await;
        let why = tokio::select! {
            () = nats.over(connection) => String::new(),
            why = take_all(&nats, replicas, &taker, &stats) => why,
        };
        stats.reads(false);
        if !why.is_empty() && why != was_told {
            warn!(error = why, "cannot read the audit events of other machines: trying again");
        }
        was_told = why;
        tokio::time::sleep(OPEN_AGAIN).await;
    }
}

/// Reads until a failure; returns the reason.
async fn take_all(nats: &Nats, replicas: usize, taker: &Arc<dyn AuditTaker>, stats: &AuditStreamStats) -> String {
    match try_take_all(nats, replicas, taker, stats).await {
        Ok(never) => match never {},
        Err(why) => why,
    }
}

async fn try_take_all(
    nats: &Nats,
    replicas: usize,
    taker: &Arc<dyn AuditTaker>,
    stats: &AuditStreamStats,
) -> Result<std::convert::Infallible, String> {
    let made = nats.jetstream.create_or_update_stream(config(replicas)).await;
    made.map_err(|error| format!("cannot create the stream {AUDIT_STREAM}: {error}"))?;
    let stream = nats.jetstream.get_stream(AUDIT_STREAM).await;
    let stream: Stream = stream.map_err(|error| format!("cannot open the stream {AUDIT_STREAM}: {error}"))?;
    let info = stream.cached_info();
    let created = i64::try_from(info.created.unix_timestamp_nanos()).unwrap_or(i64::MAX);
    let (was_created, seq) = taker.place();
    // A stream that was created anew is read from its beginning.
    let after = if was_created == created && seq <= info.state.last_sequence { seq } else { 0 };
    let consumer = OrderedConfig {
        deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: after + 1 },
        ..OrderedConfig::default()
    };
    let cannot = |error: &dyn std::fmt::Display| format!("cannot follow the stream {AUDIT_STREAM}: {error}");
    let consumer = stream.create_consumer(consumer).await.map_err(|error| cannot(&error))?;
    let mut messages = consumer.messages().await.map_err(|error| cannot(&error))?;
    stats.reads(true);
    loop {
        let next = poll_fn(|context| Pin::new(&mut messages).poll_next(context)).await;
        let message = next.ok_or_else(|| "the subscription to the stream ended".to_owned())?;
        let message = message.map_err(|error| cannot(&error))?;
        let seq = message.info().map_err(|error| cannot(&error))?.stream_sequence;
        loop {
            let (to, bytes) = (taker.clone(), message.payload.clone());
            match blocking(move || to.take(&bytes, (created, seq))).await {
                Ok(events) => {
                    stats.was_taken(events);
                    break;
                }
                Err(error) => {
                    warn!(error, "cannot store audit events of another machine: trying again");
                    tokio::time::sleep(TRY_AGAIN).await;
                }
            }
        }
    }
}

/// Runs work on a blocking thread, because it may wait for the disk.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, String> + Send + 'static) -> Result<T, String> {
    tokio::task::spawn_blocking(work).await.map_err(|error| error.to_string())?
}
