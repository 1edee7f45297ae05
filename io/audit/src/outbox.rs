//! Publishes this machine's own events to the other machines of an installation: in order, once they are on disk, from
//! the last published one on.

use std::{
    fs::{self, File, OpenOptions},
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use parking_lot::Mutex;
use sallyport_api::AuditEvent;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::sync::watch;
use uuid::Uuid;

use crate::{AuditError, AuditLog, tail::Tail};

/// The schema of batches. Fields may be added.
pub(crate) const BATCH_SCHEMA: u32 = 1;
/// Bounds of a batch: events, and bytes (at most one line more).
const MAX_BATCH_EVENTS: usize = 256;
const MAX_BATCH_BYTES: usize = 192 * 1024;
/// File with the published position.
const OUTBOX_FILE: &str = "outbox";
/// The longest such file, in bytes.
const MAX_STATE_BYTES: u64 = 1 << 20;

/// A batch of events for the other machines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutBatch {
    /// The encoded batch.
    pub bytes: Vec<u8>,
    /// Number of events.
    pub events: u64,
    /// The last event of the log that the batch includes.
    seq: u64,
}

/// The encoded form of a batch.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct EncodedBatch {
    /// [`BATCH_SCHEMA`].
    pub(crate) schema: u32,
    /// The id of the log of these events.
    pub(crate) node: Uuid,
    /// The name of the machine.
    pub(crate) name: String,
    /// Number of its events in earlier batches.
    pub(crate) after: u64,
    /// The lines of that log.
    pub(crate) lines: Vec<String>,
}

/// The published position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Position {
    /// The id of the log.
    node: Uuid,
    /// The last included event.
    seq: u64,
    /// Number of published events.
    count: u64,
}

#[derive(Debug)]
struct State {
    position: Position,
    tail: Tail,
}

/// Provides batches of this machine's events.
#[derive(Debug)]
pub struct Outbox {
    log: AuditLog,
    name: String,
    state: Mutex<State>,
}

impl Outbox {
    /// Continues from the stored position. `id` is used for a log without an id; `name` maps an id to the machine's
    /// name. Reads and writes files.
    ///
    /// # Errors
    /// The files cannot be used.
    pub fn open(log: &AuditLog, id: Uuid, name: impl FnOnce(&str) -> String) -> Result<Self, AuditError> {
        let dir = &log.shared.dir;
        let new = Position { node: id, seq: 0, count: 0 };
        let known: Option<Position> = read_state(dir, OUTBOX_FILE)?;
        // A log that ends before the published position is another log.
        let position = known.filter(|known| known.seq <= log.shared.head().seq).unwrap_or(new);
        let outbox = Self {
            log: log.clone(),
            name: name(&position.node.simple().to_string()),
            state: Mutex::new(State { position, tail: Tail::behind(dir, position.seq) }),
        };
        write_state(dir, OUTBOX_FILE, &position)?;
        Ok(outbox)
    }

    /// The id of the log.
    #[must_use]
    pub fn node(&self) -> Uuid {
        self.state.lock().position.node
    }

    /// The name of the machine.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The next batch; `None` if all events on disk were published. The same batch until [`Outbox::mark_published`].
    /// Reads files.
    ///
    /// # Errors
    /// The files cannot be read.
    pub fn next(&self) -> Result<Option<OutBatch>, AuditError> {
        let mut state = self.state.lock();
        let (dir, until) = (&self.log.shared.dir, *self.log.shared.synced.borrow());
        // Events that were read but not published are read again.
        if state.tail.after() != state.position.seq {
            state.tail = Tail::behind(dir, state.position.seq);
        }
        loop {
            let lines = state.tail.next(until, MAX_BATCH_EVENTS, MAX_BATCH_BYTES)?;
            let Some(last) = lines.last() else { return Ok(None) };
            let seq = last.seq;
            let own: Vec<_> = lines.into_iter().map(|line| line.text).filter(|line| is_own(line)).collect();
            if own.is_empty() {
                state.position.seq = seq;
                continue;
            }
            let Position { node, count, .. } = state.position;
            let events = own.len() as u64;
            let batch = EncodedBatch { schema: BATCH_SCHEMA, node, name: self.name.clone(), after: count, lines: own };
            let bytes = serde_json::to_vec(&batch).map_err(|error| AuditError::at(dir)(error.into()))?;
            return Ok(Some(OutBatch { bytes, events, seq }));
        }
    }

    /// Marks the batch as published. Writes a file.
    ///
    /// # Errors
    /// The file cannot be written; the events may then be published again, which does no harm.
    pub fn mark_published(&self, batch: &OutBatch) -> Result<(), AuditError> {
        let mut state = self.state.lock();
        state.position.seq = batch.seq;
        state.position.count += batch.events;
        write_state(&self.log.shared.dir, OUTBOX_FILE, &state.position)
    }

    /// Number of events that are not published yet.
    #[must_use]
    pub fn behind(&self) -> u64 {
        let seq = self.state.lock().position.seq;
        self.log.shared.head().seq.saturating_sub(seq)
    }

    /// Receives the number of the last synced event after each sync.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.log.shared.synced.subscribe()
    }
}

/// Whether the event was first recorded by this machine.
fn is_own(line: &str) -> bool {
    // Most lines do not have the field at all.
    !line.contains("\"node\":{") || serde_json::from_str::<AuditEvent>(line).is_ok_and(|event| event.node.is_none())
}

/// Reads a state file of the log's folder; `None` if it is missing or damaged.
pub(crate) fn read_state<T: DeserializeOwned>(dir: &Path, name: &str) -> Result<Option<T>, AuditError> {
    let path = dir.join(name);
    match fs::metadata(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Ok(file) if file.len() > MAX_STATE_BYTES => return Ok(None),
        _ => {}
    }
    let bytes = fs::read(&path).map_err(AuditError::at(&path))?;
    let read = serde_json::from_slice(&bytes);
    if let Err(error) = &read {
        tracing::warn!(path = %path.display(), %error, "a state file of the audit log is damaged: starting anew");
    }
    Ok(read.ok())
}

/// Replaces a state file of the log's folder atomically.
pub(crate) fn write_state(dir: &Path, name: &str, state: &impl Serialize) -> Result<(), AuditError> {
    let (path, new): (PathBuf, PathBuf) = (dir.join(name), dir.join(format!("{name}.new")));
    let written = || {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(&serde_json::to_vec(state)?)?;
        file.sync_data()?;
        fs::rename(&new, &path)?;
        File::open(dir)?.sync_all()
    };
    written().map_err(AuditError::at(&path))
}
