//! Each line of the log to another place too, in a thread of its own: from where it was left, so that what comes while the place
//! is away is sent when it is back.

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
    Shared,
    outbox::{read_state, write_state},
    tail::{Line, Tail},
};

/// How many lines are sent at once, and how long they are together, in bytes.
const MAX_BATCH_LINES: usize = 512;
const MAX_BATCH_BYTES: usize = 1024 * 1024;
/// How long after a failure the same lines are tried again.
const RETRY: Duration = Duration::from_secs(5);
/// How often it is looked for more when nobody says that there is.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// How long the last lines are waited for at the end.
const MAX_END_WAIT: Duration = Duration::from_secs(2);

/// What brings lines to a place.
pub(crate) trait Carrier: Send + 'static {
    /// The name of its thread, and of the file that keeps how far it is.
    const NAME: &'static str;
    /// Where it brings them.
    fn target(&self) -> String;
    /// Sends lines: says how many of them, from the first on, are not to be sent again.
    fn send(&mut self, lines: &[Line]) -> usize;
}

/// What there is to know of a line besides its text.
#[derive(Deserialize)]
pub(crate) struct Head {
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) at: OffsetDateTime,
    pub(crate) kind: AuditKind,
}

/// What a thread that sends is told.
enum Bell {
    /// There is more.
    Ring,
    /// It is to end when all is sent, or cannot be.
    End(SyncSender<()>),
}

/// How far the log was sent.
#[derive(Debug, Serialize, Deserialize)]
struct Sent {
    target: String,
    seq: u64,
}

/// A thread that sends.
pub(crate) struct Shipping {
    bell: SyncSender<Bell>,
}

impl Shipping {
    /// Sends from where it was left to this place, from now on where it was none. What is removed from the log before it could be sent
    /// is counted as lost.
    pub(crate) fn start<C: Carrier>(carrier: C, shared: Arc<Shared>, lost: Counter, behind: Gauge) -> Option<Self> {
        let (bell, rings) = mpsc::sync_channel(1);
        let work = Work { carrier, shared, lost, behind };
        // Before the thread runs: what is recorded from here on is sent.
        let seq = work.begin(&work.shared.dir);
        match std::thread::Builder::new().name(C::NAME.to_owned()).spawn(move || work.run(&rings, seq)) {
            Ok(_) => Some(Self { bell }),
            Err(error) => {
                tracing::warn!(%error, name = C::NAME, "the audit log is not sent");
                None
            }
        }
    }

    /// There is more on disk.
    pub(crate) fn ring(&self) {
        // One that waits already is enough.
        let _ = self.bell.try_send(Bell::Ring);
    }

    /// Ends it, after a moment for what waits: the rest is sent by whoever has the log next.
    pub(crate) fn end(&self) {
        let (done, when_done) = mpsc::sync_channel(1);
        if self.bell.send(Bell::End(done)).is_ok() {
            let _ = when_done.recv_timeout(MAX_END_WAIT);
        }
    }
}

struct Work<C> {
    carrier: C,
    shared: Arc<Shared>,
    lost: Counter,
    behind: Gauge,
}

impl<C: Carrier> Work<C> {
    /// Sends until it is to end.
    fn run(mut self, rings: &Receiver<Bell>, mut seq: u64) {
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
                Ok(Bell::End(done)) => ending = Some(done),
                Ok(Bell::Ring) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Where it was left; at the end of the log for a place that was never sent to, which is kept in mind at once.
    fn begin(&self, dir: &Path) -> u64 {
        let head = self.shared.head().seq;
        let known: Option<Sent> = read_state(dir, C::NAME).ok().flatten();
        if let Some(known) = known.filter(|known| known.target == self.carrier.target() && known.seq <= head) {
            return known.seq;
        }
        self.keep(dir, head);
        head
    }

    fn keep(&self, dir: &Path, seq: u64) {
        if let Err(error) = write_state(dir, C::NAME, &Sent { target: self.carrier.target(), seq }) {
            tracing::warn!(%error, "how far the audit log was sent cannot be kept");
        }
    }

    /// Sends what is on disk; `false` when the place takes no more at the moment.
    fn send_all(&mut self, dir: &Path, tail: &mut Tail, seq: &mut u64) -> bool {
        loop {
            if tail.after() != *seq {
                *tail = Tail::behind(dir, *seq);
            }
            let until = *self.shared.synced.borrow();
            let lines = match tail.next(until, MAX_BATCH_LINES, MAX_BATCH_BYTES) {
                Ok(lines) => lines,
                Err(error) => {
                    tracing::warn!(%error, "the audit log cannot be read to be sent, trying again");
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
