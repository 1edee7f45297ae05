//! The audit stream over JetStream: each machine puts its batches into it one after the other, and controls read all.
//!
//! A batch is put there again until the bus has said that it has it, so one may be there twice; whoever takes it knows by
//! its numbers. What the stream drops because of its age or size is missed by a control that was away for so long, which
//! says so in its log; the machine that recorded it has it still.

use std::{future::poll_fn, pin::Pin, sync::Arc, time::Duration};

use async_nats::jetstream::{
    consumer::{DeliverPolicy, pull::OrderedConfig},
    stream::{Compression, Config, DiscardPolicy, Stream},
};
use futures_core::Stream as _;
use tracing::{info, warn};

use super::{ANSWER_TIME, Nats, OPEN_AGAIN};
use crate::{AuditSource, AuditStreamStats, AuditTaker};

/// The stream of what machines have recorded.
pub const AUDIT_STREAM: &str = "sallyport-audit";
/// The subject of what machines have recorded, before the id of the machine's log.
const AUDIT_SUBJECT: &str = "sallyport.audit";
/// How large the stream becomes, in bytes; the oldest batches make way.
pub const MAX_AUDIT_STREAM_BYTES: i64 = 128 * 1024 * 1024;
/// How long a batch stays in the stream.
pub const AUDIT_STREAM_AGE: Duration = Duration::from_secs(7 * 86_400);
/// How long what was recorded last waits for more that goes with it.
const GATHER_TIME: Duration = Duration::from_millis(100);
/// After what time without any change it is looked for more all the same.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// How long after a failure it is tried again.
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

/// Puts what this machine records into the stream, under the id of its log. Runs until it is dropped.
pub async fn publish_audit(nats: Nats, id: String, source: Arc<dyn AuditSource>, stats: AuditStreamStats) {
    let mut changes = source.changes();
    let subject = format!("{AUDIT_SUBJECT}.{id}");
    let mut was_told = String::new();
    loop {
        changes.mark_unchanged();
        match put_all(&nats, &subject, &source, &stats).await {
            Ok(()) => {
                if !std::mem::take(&mut was_told).is_empty() {
                    info!("the audit log is passed on again");
                }
                // Whichever comes first; that the source is gone ends nothing.
                let _ = tokio::time::timeout(LOOK_AGAIN, changes.changed()).await;
                tokio::time::sleep(GATHER_TIME).await;
            }
            Err(why) => {
                stats.failed_by(why.clone());
                if why != was_told {
                    warn!(error = why, "the audit log is not passed on: it is kept, and passed on later");
                }
                was_told = why;
                tokio::time::sleep(TRY_AGAIN).await;
            }
        }
    }
}

/// Puts all that there is into the stream.
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
            return Err("the bus is away".to_owned());
        }
        let put = async {
            let sent = nats.jetstream.publish(subject.to_owned(), bytes.into()).await;
            sent.map_err(|error| error.to_string())?.await.map_err(|error| error.to_string())
        };
        let put = tokio::time::timeout(ANSWER_TIME, put).await;
        put.map_err(|_| "the bus does not answer".to_owned())?
            .map_err(|error| format!("the bus has not taken it: {error}"))?;
        let from = source.clone();
        blocking(move || from.mark_published()).await?;
        stats.record_published(events);
    }
}

/// Takes what other machines have recorded, and makes the stream where there is none, on so many machines of the bus. Runs
/// until it is dropped.
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
            warn!(error = why, "what other machines recorded is not taken: trying again");
        }
        was_told = why;
        tokio::time::sleep(OPEN_AGAIN).await;
    }
}

/// Takes until it cannot any longer, and gives why.
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
    made.map_err(|error| format!("cannot make the stream {AUDIT_STREAM}: {error}"))?;
    let stream = nats.jetstream.get_stream(AUDIT_STREAM).await;
    let stream: Stream = stream.map_err(|error| format!("cannot open the stream {AUDIT_STREAM}: {error}"))?;
    let info = stream.cached_info();
    let created = i64::try_from(info.created.unix_timestamp_nanos()).unwrap_or(i64::MAX);
    let (was_created, seq) = taker.place();
    // One that was made anew begins anew, whatever it is called.
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
        let message = next.ok_or_else(|| "the stream is followed no more".to_owned())?;
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
                    warn!(error, "what another machine recorded is not taken: trying again");
                    tokio::time::sleep(TRY_AGAIN).await;
                }
            }
        }
    }
}

/// Runs what may wait for the disk.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, String> + Send + 'static) -> Result<T, String> {
    tokio::task::spawn_blocking(work).await.map_err(|error| error.to_string())?
}
