//! Stores events of other machines in this machine's log: each event once, in the order of its machine, with its
//! source.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use sallyport_api::{AuditEvent, AuditGap, AuditNode};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{
    AuditError, AuditLog,
    outbox::{BATCH_SCHEMA, EncodedBatch, read_state, write_state},
    tail::Tail,
};

/// File with the positions in other machines' logs.
const INBOX_FILE: &str = "inbox";
/// The most remembered machines, including removed ones.
const MAX_NODES: usize = 4_096;
/// Lines of the own log that are read at once at the start.
const MAX_LOOK_LINES: usize = 1_024;
const MAX_LOOK_BYTES: usize = 4 << 20;

/// The position in a stream of batches. A stream that is created anew counts from the beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StreamPlace {
    /// Creation time of the stream, in nanoseconds since 1970.
    pub created: i64,
    /// The sequence number of the last batch that was read.
    pub seq: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
struct InboxState {
    place: StreamPlace,
    /// The last event of the own log that this state includes.
    own: u64,
    /// Number of accepted events of each other machine.
    nodes: BTreeMap<Uuid, u64>,
}

/// Accepts events of other machines.
#[derive(Debug)]
pub struct Inbox {
    log: AuditLog,
    own: Uuid,
    state: Mutex<InboxState>,
}

impl Inbox {
    /// Continues from the stored position. `own` is the id of this machine's own log, whose events come back too. Reads
    /// files.
    ///
    /// # Errors
    /// The files cannot be read.
    pub fn open(log: &AuditLog, own: Uuid) -> Result<Self, AuditError> {
        let dir = &log.shared.dir;
        let mut state: InboxState = read_state(dir, INBOX_FILE)?.unwrap_or_default();
        // Events that reached the log before a crash, but not the position file.
        let head = log.shared.head().seq;
        let mut tail = Tail::behind(dir, state.own.min(head));
        loop {
            let lines = tail.next(head, MAX_LOOK_LINES, MAX_LOOK_BYTES)?;
            if lines.is_empty() {
                break;
            }
            for line in lines.iter().filter(|line| line.text.contains("\"node\":{")) {
                let Ok(AuditEvent { node: Some(node), .. }) = serde_json::from_str(&line.text) else { continue };
                let known = state.nodes.entry(node.id).or_default();
                *known = node.number.max(*known);
            }
        }
        state.own = head;
        Ok(Self { log: log.clone(), own, state: Mutex::new(state) })
    }

    /// The position in the stream.
    #[must_use]
    pub fn place(&self) -> StreamPlace {
        self.state.lock().place
    }

    /// Stores a batch; returns how many of its events are new in the log. Writes files.
    ///
    /// # Errors
    /// The log cannot be written: nothing was stored, and the batch is to be delivered again.
    pub fn take(&self, bytes: &[u8], place: StreamPlace) -> Result<u64, AuditError> {
        let mut state = self.state.lock();
        let (mut events, mut last) = (Vec::new(), None);
        match serde_json::from_slice::<EncodedBatch>(bytes) {
            Ok(batch) if batch.schema == BATCH_SCHEMA && batch.node == self.own => {}
            Ok(batch) if batch.schema == BATCH_SCHEMA => match batch.after.checked_add(batch.lines.len() as u64) {
                Some(number) if !batch.lines.is_empty() => {
                    let known = state.nodes.get(&batch.node).copied();
                    last = Some((batch.node, number));
                    events = new_ones(batch, known);
                }
                _ => tracing::warn!(node = %batch.node, "a batch of another machine holds no events"),
            },
            // Missing events are detected with the next batch of that machine that is understood.
            Ok(batch) => tracing::warn!(schema = batch.schema, "events of another machine have an unknown schema"),
            Err(error) => tracing::warn!(%error, "events of another machine are damaged"),
        }
        let taken = events.iter().filter(|event| event.gap.is_none() || is_whole(event)).count() as u64;
        if !events.is_empty() {
            state.own = self.log.take_in(events)?;
        }
        if let Some((node, number)) = last {
            let known = state.nodes.entry(node).or_default();
            *known = number.max(*known);
            while state.nodes.len() > MAX_NODES {
                state.nodes.pop_first();
            }
        }
        state.place = place;
        write_state(&self.log.shared.dir, INBOX_FILE, &*state)?;
        Ok(taken)
    }
}

/// Whether the other machine itself recorded no gap with this event.
fn is_whole(event: &AuditEvent) -> bool {
    event.node.as_ref().is_some_and(|node| !node.hash.is_empty())
}

/// The new events of the batch, preceded by a gap if events are missing.
fn new_ones(batch: EncodedBatch, known: Option<u64>) -> Vec<AuditEvent> {
    let EncodedBatch { node: id, name, after, lines, .. } = batch;
    let mut events = Vec::new();
    let node = |seq, number, hash| Some(Box::new(AuditNode { id, name: name.clone(), seq, number, hash }));
    let missing = |number: u64, events: u64| {
        let gap = AuditGap { reason: "stream".to_owned(), events: Some(events), bytes: None };
        AuditEvent { node: node(0, number, String::new()), ..AuditEvent::gap(OffsetDateTime::now_utc(), None, gap) }
    };
    // Earlier events of a new machine are not missing here.
    if let Some(known) = known.filter(|known| *known < after) {
        events.push(missing(after, after - known));
    }
    for (number, line) in (after + 1..).zip(lines) {
        if known.is_some_and(|known| number <= known) {
            continue;
        }
        match serde_json::from_str::<AuditEvent>(&line) {
            Ok(event) => {
                let node = node(event.seq, number, event.hash.clone());
                events.push(AuditEvent { node, ..event });
            }
            Err(_) => events.push(missing(number, 1)),
        }
    }
    events
}
