//! The audit log: what happened, in files that only grow, each line bound to the one before by its hash.
//!
//! [`AuditLog`] is the log of the process that holds the data directory. Whoever has something to record calls
//! [`AuditSink::record`], which never waits: a thread of the log's own writes. Events that cannot be written are counted,
//! and a `gap` in the log says so as soon as it can be written again.
//!
//! The files are `NNNNNNNNNN.jsonl`, named after the number of their first event. Beside them, `head` has the number and
//! the hash of the last event, sealed with a key, so that a log that was cut off at its end shows; and from which event
//! on the log is kept, so that only what the log itself removed may be missing at its beginning.

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

/// How many events may wait for the writer.
pub const MAX_QUEUED_EVENTS: usize = 8_192;
/// The longest line of the log, in bytes.
pub const MAX_LINE_BYTES: usize = 64 * 1024;
/// How long the end of the log, or its handing over, is waited for.
const MAX_END_WAIT: Duration = Duration::from_secs(10);
/// The folder of the log in the data directory.
pub const AUDIT_DIR: &str = "audit";

/// Where events go.
pub trait AuditSink: Send + Sync + 'static {
    /// Records the event, later; never waits.
    fn record(&self, event: AuditEvent);
}

/// How the log is kept.
#[derive(Debug, Clone)]
pub struct AuditConfig {
    /// What the head is sealed with.
    pub key: [u8; 32],
    /// How long events are kept. Files go as a whole, so that an event may stay for a day longer.
    pub keep: Duration,
    /// How large the log may become, in bytes; at least the last file stays.
    pub max_bytes: u64,
    /// Where each line is sent too.
    pub syslog: Option<SyslogTarget>,
    /// The collector that gets each line too.
    pub otlp: Option<OtlpTarget>,
}

/// Why the log cannot be opened or read.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// A file or folder cannot be used.
    #[error("cannot use {path} of the audit log: {error}")]
    Io {
        /// Which.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// There is no log.
    #[error("there is no audit log in {0}")]
    None(PathBuf),
    /// The disk takes nothing at the moment, or another process has the log.
    #[error("the audit log cannot be written")]
    NotWritten,
    /// The thread that writes is gone.
    #[error("the audit log was closed")]
    Closed,
}

impl AuditError {
    fn at(path: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        move |error| Self::Io { path: path.to_owned(), error }
    }
}

/// What the log counts.
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

/// What readers and the writer share.
#[derive(Debug)]
struct Shared {
    dir: PathBuf,
    head: Mutex<Head>,
    last: watch::Sender<u64>,
    /// The last event that is on disk for certain.
    synced: watch::Sender<u64>,
    counters: Counters,
}

impl Shared {
    fn head(&self) -> MutexGuard<'_, Head> {
        self.head.lock()
    }
}

/// The log. Clones share it.
#[derive(Debug, Clone)]
pub struct AuditLog {
    sender: SyncSender<Message>,
    shared: Arc<Shared>,
}

impl AuditLog {
    /// Opens the log in this folder, which is made where it is not there, and repairs what a crash left: a line that was
    /// not written whole is removed, and a `gap` is recorded for it. Only the holder of the data directory may do so.
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
        let shared = Arc::new(Shared {
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

    /// The events that fit. Reads files: not for a thread that must not wait.
    ///
    /// # Errors
    /// The files cannot be read.
    pub fn read(&self, filter: &AuditFilter) -> Result<AuditPage, AuditError> {
        read::page(&self.shared.dir, filter)
    }

    /// Looks through the whole log. Reads files: not for a thread that must not wait.
    ///
    /// # Errors
    /// The files cannot be read.
    pub fn verify(&self) -> Result<AuditVerification, AuditError> {
        self.flush()?;
        let head = || Some(self.shared.head().clone());
        verify::verify(&self.shared.dir, head, verify::Tail::IsHead)
    }

    /// Sees the number of the last event after each one.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.shared.last.subscribe()
    }

    /// Waits until all that was recorded before is on disk, as far as it can be.
    ///
    /// # Errors
    /// The log was closed.
    pub fn flush(&self) -> Result<(), AuditError> {
        self.ask(Message::Flush)
    }

    /// Ends the log: what was recorded is on disk, and what comes after is lost.
    ///
    /// # Errors
    /// The log was closed before.
    pub fn close(&self) -> Result<(), AuditError> {
        self.ask(Message::Close)
    }

    /// Leaves the log to another process: what was recorded is on disk, and what comes after goes to a file that the other
    /// process takes in when this one has ended.
    ///
    /// # Errors
    /// The log was closed before.
    pub fn hand_over(&self) -> Result<(), AuditError> {
        self.ask(Message::HandOver)
    }

    /// Takes events of other machines into the log, waits until they are on disk, and gives the number of the last event then.
    fn take_in(&self, events: Vec<AuditEvent>) -> Result<u64, AuditError> {
        let (done, when_done) = mpsc::sync_channel(1);
        self.sender.send(Message::Take(events, done)).map_err(|_| AuditError::Closed)?;
        // However long the disk takes: what is not answered may be in the log or not.
        when_done.recv().ok().flatten().ok_or(AuditError::NotWritten)
    }

    fn ask(&self, message: fn(SyncSender<()>) -> Message) -> Result<(), AuditError> {
        let (done, when_done) = mpsc::sync_channel(1);
        self.sender.send(message(done)).map_err(|_| AuditError::Closed)?;
        when_done.recv_timeout(MAX_END_WAIT).map_err(|_| AuditError::Closed)
    }

    /// Adds the log's metrics.
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

/// Looks through a log whose process need not run; the key is what its head was sealed with.
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
