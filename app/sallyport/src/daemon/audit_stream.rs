//! The audit log of this machine and the audit stream: what is recorded here goes there, and at a control, what others
//! have recorded comes here.

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

/// How long, at the end, what was recorded last may take to be passed on.
const LAST_EVENTS_TIME: Duration = Duration::from_secs(2);
/// How often it is looked whether it is.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What is passed on of the log, and how far it is.
struct OutboxSource {
    outbox: Outbox,
    /// What was given last.
    last_batch: Mutex<Option<OutBatch>>,
}

impl AuditSource for OutboxSource {
    fn next(&self) -> Result<Option<(Vec<u8>, u64)>, String> {
        let batch = self.outbox.next().map_err(|error| error.to_string())?;
        let told = batch.as_ref().map(|batch| (batch.bytes.clone(), batch.events));
        *self.last_batch.lock() = batch;
        Ok(told)
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

/// How the log of this machine and the stream do.
#[derive(Clone)]
pub(crate) struct AuditStream {
    source: Arc<OutboxSource>,
    stats: AuditStreamStats,
    tasks: Arc<Vec<JoinHandle<()>>>,
}

impl AuditStream {
    /// Of an edge: what it records is passed on, under its name.
    ///
    /// # Errors
    /// The log's files cannot be used.
    pub(crate) fn of_edge(log: &AuditLog, nats: &Nats, name: &str) -> anyhow::Result<Self> {
        let open = || anyhow::Ok(Outbox::open(log, new_id()?.uuid(), |_| name.to_owned())?);
        Ok(Self::publishing(tokio::task::block_in_place(open)?, nats))
    }

    /// Of a control: what it records is passed on, and what others have recorded comes into its log.
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

    /// Ends the passing on, after a moment for what was recorded last: what is not out then goes when the program runs
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

    /// By what the passing on is ended at once, where another process goes on with it.
    pub(crate) fn abort_handles(&self) -> Vec<AbortHandle> {
        self.tasks.iter().map(JoinHandle::abort_handle).collect()
    }

    /// A line for `/healthz`, where events do not get away.
    pub(crate) fn health(&self) -> String {
        let Some((since, why)) = self.stats.stuck() else { return String::new() };
        let (behind, seconds) = (self.source.behind(), Instant::now().duration_since(since).as_secs());
        format!("audit: {behind} events are not passed on since {seconds} s: {why}\n")
    }

    /// Makes what is counted known to the registry.
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
                "Events of this machine that are not passed on yet",
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
            ("sallyport_audit_stream_published", "Events that were passed on", self.stats.published()),
            ("sallyport_audit_stream_failed", "Attempts to pass events on that failed", self.stats.failed()),
            ("sallyport_audit_stream_taken", "Events of other machines that came into this log", self.stats.taken()),
        ];
        for (name, help, value) in counters {
            let counter = ConstCounter::new(value);
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
        }
        Ok(())
    }
}

/// An id for a log that has none yet.
fn new_id() -> anyhow::Result<EdgeId> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).context("the system gave no random numbers")?;
    Ok(EdgeId::from_random(bytes))
}
