//! The audit log of this machine and the audit stream. Recorded events go to the stream; a control also takes others'
//! events from the stream into its log.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use parking_lot::Mutex;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
    registry::Registry,
};
use sallyport_audit::{AuditLog, Inbox, OutBatch, Outbox, StreamPlace};
use sallyport_bus::{AuditSource, AuditStreamStats, AuditTaker, Nats, publish_audit, take_audit};
use sallyport_model::EdgeId;
use tokio::{
    sync::watch,
    task::{AbortHandle, JoinHandle},
};

/// How long the last events may take to leave at the end.
const LAST_EVENTS_TIME: Duration = Duration::from_secs(2);
/// How often this is checked.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The events to publish, and how far publishing is.
struct OutboxSource {
    outbox: Outbox,
    /// The last batch.
    last_batch: Mutex<Option<OutBatch>>,
}

impl AuditSource for OutboxSource {
    fn next(&self) -> Result<Option<(Vec<u8>, u64)>, String> {
        let batch = self.outbox.next().map_err(|error| error.to_string())?;
        let next = batch.as_ref().map(|batch| (batch.bytes.clone(), batch.events));
        *self.last_batch.lock() = batch;
        Ok(next)
    }

    fn mark_published(&self) -> Result<(), String> {
        let last_batch = self.last_batch.lock().take();
        last_batch
            .map_or(Ok(()), |last_batch| self.outbox.mark_published(&last_batch).map_err(|error| error.to_string()))
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.outbox.changes()
    }

    fn behind(&self) -> u64 {
        self.outbox.behind()
    }
}

struct InboxTaker(Inbox);

impl AuditTaker for InboxTaker {
    fn place(&self) -> (i64, u64) {
        let StreamPlace { created, seq } = self.0.place();
        (created, seq)
    }

    fn take(&self, batch: &[u8], (created, seq): (i64, u64)) -> Result<u64, String> {
        self.0.take(batch, StreamPlace { created, seq }).map_err(|error| error.to_string())
    }
}

/// The state of the log and of the stream.
#[derive(Clone)]
pub(crate) struct AuditStream {
    source: Arc<OutboxSource>,
    stats: AuditStreamStats,
    tasks: Arc<Vec<JoinHandle<()>>>,
}

impl AuditStream {
    /// For an edge: publishes its events under its name.
    ///
    /// # Errors
    /// The log's files cannot be used.
    pub(crate) fn of_edge(log: &AuditLog, nats: &Nats, name: &str) -> anyhow::Result<Self> {
        let open = || anyhow::Ok(Outbox::open(log, new_id()?.uuid(), |_| name.to_owned())?);
        Ok(Self::publishing(tokio::task::block_in_place(open)?, nats))
    }

    /// For a control: publishes its events, and takes others' events into its log.
    ///
    /// # Errors
    /// The log's files cannot be used.
    pub(crate) fn of_control(log: &AuditLog, nats: &Nats, replicas: usize) -> anyhow::Result<Self> {
        let open = || {
            let name = |id: &str| format!("control-{}", id.chars().take(6).collect::<String>());
            let outbox = Outbox::open(log, new_id()?.uuid(), name)?;
            let inbox = Inbox::open(log, outbox.node())?;
            anyhow::Ok((outbox, inbox))
        };
        let (outbox, inbox) = tokio::task::block_in_place(open)?;
        let mut stream = Self::publishing(outbox, nats);
        let taking = take_audit(nats.clone(), replicas, Arc::new(InboxTaker(inbox)), stream.stats.clone());
        if let Some(tasks) = Arc::get_mut(&mut stream.tasks) {
            tasks.push(tokio::spawn(taking));
        }
        Ok(stream)
    }

    fn publishing(outbox: Outbox, nats: &Nats) -> Self {
        let (id, stats) = (outbox.node().to_string(), AuditStreamStats::default());
        let source = Arc::new(OutboxSource { outbox, last_batch: Mutex::default() });
        let publishing = tokio::spawn(publish_audit(nats.clone(), id, source.clone(), stats.clone()));
        Self { source, stats, tasks: Arc::new(vec![publishing]) }
    }

    /// Stops publishing, after a moment for the last events. Remaining events are published when the program runs
    /// again.
    pub(crate) async fn end(&self, log: &AuditLog) {
        if tokio::task::block_in_place(|| log.flush()).is_ok() {
            let until = tokio::time::Instant::now() + LAST_EVENTS_TIME;
            while self.source.behind() > 0 && self.stats.stuck().is_none() && tokio::time::Instant::now() < until {
                tokio::time::sleep(LOOK_EVERY).await;
            }
        }
        self.tasks.iter().for_each(JoinHandle::abort);
    }

    /// Handles that stop publishing at once, for a takeover by another process.
    pub(crate) fn abort_handles(&self) -> Vec<AbortHandle> {
        self.tasks.iter().map(JoinHandle::abort_handle).collect()
    }

    /// A line for `/healthz` if events cannot be published.
    pub(crate) fn health(&self) -> String {
        let Some((since, why)) = self.stats.stuck() else { return String::new() };
        let (behind, seconds) = (self.source.behind(), Instant::now().duration_since(since).as_secs());
        format!("audit: {behind} events are not published since {seconds} s: {why}\n")
    }

    /// Registers the metrics.
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(self.clone()));
    }
}

impl fmt::Debug for AuditStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AuditStream(..)")
    }
}

impl Collector for AuditStream {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let signed = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let gauges = [
            (
                "sallyport_audit_stream_behind",
                "Events of this machine that are not published yet",
                self.source.behind(),
            ),
            (
                "sallyport_audit_stream_read",
                "Whether what other machines recorded is read now; always 0 at an edge",
                self.stats.is_read().into(),
            ),
        ];
        for (name, help, value) in gauges {
            let gauge = ConstGauge::new(signed(value));
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        let counters = [
            ("sallyport_audit_stream_published", "Events that were published", self.stats.published()),
            ("sallyport_audit_stream_failed", "Attempts to publish events that failed", self.stats.failed()),
            (
                "sallyport_audit_stream_taken",
                "Events of other machines that were added to this log",
                self.stats.taken(),
            ),
        ];
        for (name, help, value) in counters {
            let counter = ConstCounter::new(value);
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
        }
        Ok(())
    }
}

/// A new id for a log.
fn new_id() -> anyhow::Result<EdgeId> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).context("the system gave no random numbers")?;
    Ok(EdgeId::from_random(bytes))
}
