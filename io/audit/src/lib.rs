//! The audit log: append-only files in which each line is chained to the previous one by its hash.
//!
//! [`AuditLog`] is the log of the process that holds the data directory. Callers record events by
//! [`AuditSink::record`], which never waits: the log's own thread writes. Events that cannot be written are counted,
//! and a `gap` event records the loss once the log is writable again.
//!
//! The files are named `NNNNNNNNNN.jsonl` after the number of their first event. The file `head` has the number and the
//! hash of the last event, authenticated with a key, so that a truncated log is detected. It also has the number of the
//! first stored event, so that only events removed by the log itself may be missing at the beginning.

mod copy;
mod export;
mod head;
mod inbox;
mod line;
mod otlp;
mod outbox;
mod read;
mod recover;
mod segment;
mod shipping;
mod spool;
mod tail;
mod verify;
mod writer;

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{self, SyncSender, TrySendError},
    },
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use prometheus_client::{
    metrics::{counter::Counter, gauge::Gauge},
    registry::Registry,
};
use sallyport_api::{AuditEvent, AuditVerification};
use tokio::sync::watch;

pub use copy::{Copied, copy};
pub use export::{SyslogTarget, SyslogTargetError};
pub use inbox::{Inbox, StreamPlace};
pub use otlp::{OtlpTarget, OtlpTargetError};
pub use outbox::{OutBatch, Outbox};
pub use read::{AuditFilter, AuditPage};
pub use segment::MAX_SEGMENT_BYTES;

use crate::{head::Head, writer::Message};

/// Bound on events that wait for the writer.
pub const MAX_QUEUED_EVENTS: usize = 8_192;
/// The longest line of the log, in bytes.
pub const MAX_LINE_BYTES: usize = 64 * 1024;
/// Timeout of closing the log and of handing it over.
const MAX_END_WAIT: Duration = Duration::from_secs(10);
/// The folder of the log in the data directory.
pub const AUDIT_DIR: &str = "audit";

/// A consumer of events.
pub trait AuditSink: Send + Sync + 'static {
    /// Records the event asynchronously; never waits.
    fn record(&self, event: AuditEvent);
}

/// Configuration of the log.
#[derive(Debug, Clone)]
pub struct AuditConfig {
    /// The key that authenticates the head.
    pub key: [u8; 32],
    /// Retention of events. Whole files are removed, so an event may stay for a day longer.
    pub keep: Duration,
    /// Bound on the size of the log, in bytes; at least the last file stays.
    pub max_bytes: u64,
    /// Target of the syslog export, if any.
    pub syslog: Option<SyslogTarget>,
    /// Target of the OTLP export, if any.
    pub otlp: Option<OtlpTarget>,
}

/// Reason why the log cannot be opened, read or written.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// A file or folder cannot be used.
    #[error("cannot use {path} of the audit log: {error}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// The folder has no log.
    #[error("there is no audit log in {0}")]
    None(PathBuf),
    /// The disk is not writable at the moment, or another process has the log.
    #[error("the audit log cannot be written")]
    NotWritten,
    /// The writing thread has ended.
    #[error("the audit log was closed")]
    Closed,
}

impl AuditError {
    fn at(path: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        move |error| Self::Io { path: path.to_owned(), error }
    }
}

/// Metrics of the log.
#[derive(Debug, Default, Clone)]
struct Counters {
    written: Counter,
    lost: Counter,
    export_lost: Counter,
    export_behind: Gauge,
    otlp: otlp::OtlpCounters,
    otlp_behind: Gauge,
    bytes: Gauge,
}

/// State shared by readers and the writer.
#[derive(Debug)]
struct LogState {
    dir: PathBuf,
    head: Mutex<Head>,
    last: watch::Sender<u64>,
    /// Number of the last event that is synced to disk.
    synced: watch::Sender<u64>,
    counters: Counters,
}

impl LogState {
    fn head(&self) -> MutexGuard<'_, Head> {
        self.head.lock()
    }
}

/// The audit log. Clones share it.
#[derive(Debug, Clone)]
pub struct AuditLog {
    sender: SyncSender<Message>,
    shared: Arc<LogState>,
}

impl AuditLog {
    /// Opens the log in this folder, which is created if it is missing. Repairs the effects of a crash: an incomplete
    /// line is removed, and a `gap` event recorded for it. Only for the holder of the data directory.
    ///
    /// # Errors
    /// The folder or the files cannot be used.
    pub fn open(dir: &Path, config: AuditConfig) -> Result<Self, AuditError> {
        Self::open_with(dir, config, Box::new(segment::open))
    }

    fn open_with(dir: &Path, config: AuditConfig, opener: segment::Opener) -> Result<Self, AuditError> {
        if !dir.is_dir() {
            DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(AuditError::at(dir))?;
        }
        let recovered = recover::recover(dir, &config.key)?;
        let shared = Arc::new(LogState {
            dir: dir.to_owned(),
            last: watch::Sender::new(recovered.head.seq),
            synced: watch::Sender::new(0),
            head: Mutex::new(recovered.head.clone()),
            counters: Counters::default(),
        });
        let (sender, receiver) = mpsc::sync_channel(MAX_QUEUED_EVENTS);
        let writer = writer::Writer::new(shared.clone(), config, opener, recovered);
        std::thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || writer.run(&receiver))
            .map_err(AuditError::at(dir))?;
        Ok(Self { sender, shared })
    }

    /// Returns the matching events. Reads files: call on a blocking thread.
    ///
    /// # Errors
    /// The files cannot be read.
    pub fn read(&self, filter: &AuditFilter) -> Result<AuditPage, AuditError> {
        read::page(&self.shared.dir, filter)
    }

    /// Verifies the whole log. Reads files: call on a blocking thread.
    ///
    /// # Errors
    /// The files cannot be read.
    pub fn verify(&self) -> Result<AuditVerification, AuditError> {
        self.flush()?;
        let head = || Some(self.shared.head().clone());
        verify::verify(&self.shared.dir, head, verify::Tail::IsHead)
    }

    /// Receives the number of the last event after each write.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.shared.last.subscribe()
    }

    /// Waits until all earlier records are on disk, as far as possible.
    ///
    /// # Errors
    /// The log was closed.
    pub fn flush(&self) -> Result<(), AuditError> {
        self.ask(Message::Flush)
    }

    /// Closes the log: earlier records are on disk, and later ones are lost. After [`AuditLog::hand_over`] it closes the
    /// file that the other process reads.
    ///
    /// # Errors
    /// The log was already closed.
    pub fn close(&self) -> Result<(), AuditError> {
        self.ask(Message::Close)
    }

    /// Hands the log over to another process: earlier records are on disk, and later ones go to a file that the other
    /// process reads after this one has ended.
    ///
    /// # Errors
    /// The log was already closed.
    pub fn hand_over(&self) -> Result<(), AuditError> {
        self.ask(Message::HandOver)
    }

    /// Stores events of other machines, waits until they are on disk, and returns the number of the last event.
    fn take_in(&self, events: Vec<AuditEvent>) -> Result<u64, AuditError> {
        let (done, when_done) = mpsc::sync_channel(1);
        self.sender.send(Message::Take(events, done)).map_err(|_| AuditError::Closed)?;
        // Without a timeout for the disk: without an answer the events may be in the log or not.
        when_done.recv().ok().flatten().ok_or(AuditError::NotWritten)
    }

    fn ask(&self, message: fn(SyncSender<()>) -> Message) -> Result<(), AuditError> {
        let (done, when_done) = mpsc::sync_channel(1);
        self.sender.send(message(done)).map_err(|_| AuditError::Closed)?;
        when_done.recv_timeout(MAX_END_WAIT).map_err(|_| AuditError::Closed)
    }

    /// Registers the log's metrics.
    pub fn register_metrics(&self, registry: &mut Registry) {
        let counters = &self.shared.counters;
        registry.register("sallyport_audit_events", "Events written to the audit log", counters.written.clone());
        registry.register(
            "sallyport_audit_events_lost",
            "Events that could not be written to the audit log",
            counters.lost.clone(),
        );
        registry.register(
            "sallyport_audit_export_lost",
            "Events that could not be sent to the syslog server before they were removed, or are too long for it",
            counters.export_lost.clone(),
        );
        registry.register(
            "sallyport_audit_export_behind",
            "Events that are still to be sent to the syslog server",
            counters.export_behind.clone(),
        );
        registry.register(
            "sallyport_audit_otlp_sent",
            "Events of the audit log that a collector took",
            counters.otlp.sent.clone(),
        );
        registry.register(
            "sallyport_audit_otlp_lost",
            "Events of the audit log that the collector refused, or that were removed before it was back",
            counters.otlp.lost.clone(),
        );
        registry.register(
            "sallyport_audit_otlp_behind",
            "Events of the audit log that are still to be sent to the collector",
            counters.otlp_behind.clone(),
        );
        registry.register("sallyport_audit_bytes", "Size of the audit log in bytes", counters.bytes.clone());
    }
}

impl AuditSink for AuditLog {
    fn record(&self, event: AuditEvent) {
        match self.sender.try_send(Message::Event(Box::new(event))) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.shared.counters.lost.inc();
            }
        }
    }
}

/// Verifies a log without a running process; `key` is the key of its head.
///
/// # Errors
/// There is no log, or its files cannot be read.
pub fn verify(dir: &Path, key: &[u8; 32]) -> Result<AuditVerification, AuditError> {
    if fs::metadata(dir).is_err() {
        return Err(AuditError::None(dir.to_owned()));
    }
    let head = || Head::read(dir, key).ok().flatten();
    verify::verify(dir, head, verify::Tail::MayBeBeyondHead)
}

#[cfg(test)]
mod passing_tests;
#[cfg(test)]
mod tests;
