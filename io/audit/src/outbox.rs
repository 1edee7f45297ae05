//! What this machine passes on of its log to the other machines of an installation: every event of its own, once it is on
//! disk, in order and from where it was left.

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

/// The schema of what travels. Fields may be added to it.
pub(crate) const BATCH_SCHEMA: u32 = 1;
/// How many events travel together, and how many bytes they have, at most one line more.
const MAX_BATCH_EVENTS: usize = 256;
const MAX_BATCH_BYTES: usize = 192 * 1024;
/// Where it is kept how far the log was passed on.
const OUTBOX_FILE: &str = "outbox";
/// The longest such file, in bytes.
const MAX_STATE_BYTES: u64 = 1 << 20;

/// Events on their way to the other machines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutBatch {
    /// As it travels.
    pub bytes: Vec<u8>,
    /// How many events.
    pub events: u64,
    /// The last one of the log that it accounts for.
    seq: u64,
}

/// A batch as it travels.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Travelling {
    /// [`BATCH_SCHEMA`].
    pub(crate) schema: u32,
    /// The id of the log that they are from.
    pub(crate) node: Uuid,
    /// What the machine is called.
    pub(crate) name: String,
    /// How many events of it were passed on before.
    pub(crate) after: u64,
    /// The lines of that log.
    pub(crate) lines: Vec<String>,
}

/// How far the log was passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Position {
    /// The id of the log.
    node: Uuid,
    /// The last event that is accounted for.
    seq: u64,
    /// How many were passed on.
    count: u64,
}

#[derive(Debug)]
struct State {
    position: Position,
    tail: Tail,
}

/// What this machine passes on of its log.
#[derive(Debug)]
pub struct Outbox {
    log: AuditLog,
    name: String,
    state: Mutex<State>,
}

impl Outbox {
    /// Goes on where it was left. `id` is taken for a log that has not got one yet; `name` says what the machine is called that
    /// has the log of an id. Reads and writes files.
    ///
    /// # Errors
    /// The files cannot be used.
    pub fn open(log: &AuditLog, id: Uuid, name: impl FnOnce(&str) -> String) -> Result<Self, AuditError> {
        let dir = &log.shared.dir;
        let new = Position { node: id, seq: 0, count: 0 };
        let known: Option<Position> = read_state(dir, OUTBOX_FILE)?;
        // A log that ends before what it has passed on is another log.
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

    /// What the machine is called.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The next events; `None`: all that is on disk was passed on. The same ones again until [`Outbox::mark_published`]. Reads files.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn next(&self) -> Result<Option<OutBatch>, AuditError> {
        let mut state = self.state.lock();
        let (dir, until) = (&self.log.shared.dir, *self.log.shared.synced.borrow());
        // What was read before and is not out is read again.
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
            let batch = Travelling { schema: BATCH_SCHEMA, node, name: self.name.clone(), after: count, lines: own };
            let bytes = serde_json::to_vec(&batch).map_err(|error| AuditError::at(dir)(error.into()))?;
            return Ok(Some(OutBatch { bytes, events, seq }));
        }
    }

    /// The events have arrived: they are not passed on again. Writes a file.
    ///
    /// # Errors
    /// It cannot be written; then they may be passed on once more, which does no harm.
    pub fn mark_published(&self, batch: &OutBatch) -> Result<(), AuditError> {
        let mut state = self.state.lock();
        state.position.seq = batch.seq;
        state.position.count += batch.events;
        write_state(&self.log.shared.dir, OUTBOX_FILE, &state.position)
    }

    /// How many events of the log are not accounted for yet.
    #[must_use]
    pub fn behind(&self) -> u64 {
        let seq = self.state.lock().position.seq;
        self.log.shared.head().seq.saturating_sub(seq)
    }

    /// Sees the number of the last event that is on disk after each time that some came there.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.log.shared.synced.subscribe()
    }
}

/// Whether the event was recorded here first.
fn is_own(line: &str) -> bool {
    // Most have no such word at all.
    !line.contains("\"node\":{") || serde_json::from_str::<AuditEvent>(line).is_ok_and(|event| event.node.is_none())
}

/// What is kept in this file of the log's folder; `None` where there is none, or none that is understood.
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
        tracing::warn!(path = %path.display(), %error, "a file of the audit log is damaged, and begun anew");
    }
    Ok(read.ok())
}

/// Keeps this in a file of the log's folder: after a crash there is this or what was there before.
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
