//! Exports each line of the log in a thread of its own, from a stored position, so that lines are sent later if the
//! target is unavailable.

use std::{
    path::Path,
    sync::{
        Arc,
        mpsc::{self, Receiver, RecvTimeoutError, SyncSender},
    },
    time::Duration,
};

use prometheus_client::metrics::{counter::Counter, gauge::Gauge};
use sallyport_api::AuditKind;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::{
    LogState,
    outbox::{read_state, write_state},
    tail::{Line, Tail},
};

/// Bounds of a batch: lines, and bytes.
const MAX_BATCH_LINES: usize = 512;
const MAX_BATCH_BYTES: usize = 1024 * 1024;
/// Pause after a failure.
const RETRY: Duration = Duration::from_secs(5);
/// Interval of looking for lines without a notification.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// Time that the last lines have at the end.
const MAX_END_WAIT: Duration = Duration::from_secs(2);

/// Sends lines to a target.
pub(crate) trait Carrier: Send + 'static {
    /// The name of its thread and of its position file.
    const NAME: &'static str;
    /// The name of the target.
    fn target(&self) -> String;
    /// Sends lines; returns how many of them, from the first on, are done.
    fn send(&mut self, lines: &[Line]) -> usize;
}

/// The fields of a line that exports need.
#[derive(Deserialize)]
pub(crate) struct Head {
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) at: OffsetDateTime,
    pub(crate) kind: AuditKind,
}

/// A message to an exporting thread.
enum ExportMessage {
    /// There are new lines.
    NewLines,
    /// Stop once everything is sent, or cannot be sent.
    Stop(SyncSender<()>),
}

/// The exported position.
#[derive(Debug, Serialize, Deserialize)]
struct ExportPosition {
    target: String,
    seq: u64,
}

/// An exporting thread.
pub(crate) struct Shipping {
    sender: SyncSender<ExportMessage>,
}

impl Shipping {
    /// Starts exporting from the stored position, or from now on for a new target. Events that are removed from the log
    /// before the export are counted as lost.
    pub(crate) fn start<C: Carrier>(carrier: C, shared: Arc<LogState>, lost: Counter, behind: Gauge) -> Option<Self> {
        let (sender, rings) = mpsc::sync_channel(1);
        let work = Work { carrier, shared, lost, behind };
        // Before the thread starts, so that later events are sent.
        let seq = work.begin(&work.shared.dir);
        match std::thread::Builder::new().name(C::NAME.to_owned()).spawn(move || work.run(&rings, seq)) {
            Ok(_) => Some(Self { sender }),
            Err(error) => {
                tracing::warn!(%error, name = C::NAME, "the audit log is not exported");
                None
            }
        }
    }

    /// Notifies the thread of new lines.
    pub(crate) fn notify(&self) {
        // One queued notification is enough.
        let _ = self.sender.try_send(ExportMessage::NewLines);
    }

    /// Stops the thread, after a moment for queued lines: the next holder of the log sends the rest.
    pub(crate) fn end(&self) {
        let (done, when_done) = mpsc::sync_channel(1);
        if self.sender.send(ExportMessage::Stop(done)).is_ok() {
            let _ = when_done.recv_timeout(MAX_END_WAIT);
        }
    }
}

struct Work<C> {
    carrier: C,
    shared: Arc<LogState>,
    lost: Counter,
    behind: Gauge,
}

impl<C: Carrier> Work<C> {
    /// Exports until it is stopped.
    fn run(mut self, rings: &Receiver<ExportMessage>, mut seq: u64) {
        let dir = self.shared.dir.clone();
        let mut tail = Tail::behind(&dir, seq);
        let mut ending: Option<SyncSender<()>> = None;
        loop {
            let is_done = self.send_all(&dir, &mut tail, &mut seq);
            let head = self.shared.head().seq;
            self.behind.set(i64::try_from(head.saturating_sub(seq)).unwrap_or(i64::MAX));
            if let Some(ending) = ending {
                let _ = ending.try_send(());
                return;
            }
            match rings.recv_timeout(if is_done { LOOK_AGAIN } else { RETRY }) {
                Ok(ExportMessage::Stop(done)) => ending = Some(done),
                Ok(ExportMessage::NewLines) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// The stored position; for a new target the end of the log, which is stored at once.
    fn begin(&self, dir: &Path) -> u64 {
        let head = self.shared.head().seq;
        let known: Option<ExportPosition> = read_state(dir, C::NAME).ok().flatten();
        if let Some(known) = known.filter(|known| known.target == self.carrier.target() && known.seq <= head) {
            return known.seq;
        }
        self.keep(dir, head);
        head
    }

    fn keep(&self, dir: &Path, seq: u64) {
        if let Err(error) = write_state(dir, C::NAME, &ExportPosition { target: self.carrier.target(), seq }) {
            tracing::warn!(%error, "cannot store the exported position of the audit log");
        }
    }

    /// Sends the lines on disk; `false` if the target accepts no more at the moment.
    fn send_all(&mut self, dir: &Path, tail: &mut Tail, seq: &mut u64) -> bool {
        loop {
            if tail.after() != *seq {
                *tail = Tail::behind(dir, *seq);
            }
            let until = *self.shared.synced.borrow();
            let lines = match tail.next(until, MAX_BATCH_LINES, MAX_BATCH_BYTES) {
                Ok(lines) => lines,
                Err(error) => {
                    tracing::warn!(%error, "cannot read the audit log for export: trying again");
                    return false;
                }
            };
            let Some(first) = lines.first() else { return true };
            self.lost.inc_by(first.seq.saturating_sub(*seq + 1));
            let sent = self.carrier.send(&lines);
            let Some(last) = sent.checked_sub(1).and_then(|last| lines.get(last)) else {
                *seq = first.seq - 1;
                return false;
            };
            *seq = last.seq;
            self.keep(dir, *seq);
            if sent < lines.len() {
                return false;
            }
        }
    }
}
