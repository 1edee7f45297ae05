//! One end of a datagram leg: the flows of a session, and the datagrams that wait to be sent.
//!
//! Datagrams are worth most when they are fresh, and nobody waits for them: what cannot be sent in time is dropped and
//! counted, and nothing ever holds its sender back. When there is no room, the oldest datagram of a flow that has much
//! waiting makes way. That is the choice which suits what travels in datagrams: voice and games want the newest word,
//! and transports such as QUIC learn of the loss sooner. A datagram that waited for [`MAX_DATAGRAM_AGE`] is dropped
//! too: after a stall of the carrier its peers have long sent it again or moved on.

use std::{
    collections::{HashMap, VecDeque},
    net::SocketAddr,
    time::{Duration, Instant},
};

use sallyport_model::TunnelId;

use crate::{
    Carrier, FrameHeader, FrameType, Refusal, Side, Violation,
    frame::{FLOW_ID_BYTES, HEADER_BYTES, MAX_DATAGRAM_BYTES, put_frame},
    message::{Fields, put_address},
};

/// How long a datagram may wait to be sent.
pub const MAX_DATAGRAM_AGE: Duration = Duration::from_millis(100);
/// How many bytes may wait to be sent on a leg; each datagram counts [`DATAGRAM_COST_BYTES`] more than it has.
pub const MAX_QUEUED_BYTES: usize = 4 * 1024 * 1024;
/// How many bytes of one flow may wait, counted in the same way.
pub const MAX_FLOW_QUEUED_BYTES: usize = 1024 * 1024;
/// What a datagram that waits costs besides its own bytes.
pub const DATAGRAM_COST_BYTES: usize = 64;
/// How many flows a leg may have at all; an end may take fewer.
pub const MAX_FLOWS: usize = 65_536;
/// How many flows an end takes unless it is told otherwise.
pub const DEFAULT_MAX_FLOWS: usize = 16_384;
/// How many bytes of FLOW_OPEN and FLOW_CLOSE may wait before no further flow begins.
const MAX_CONTROL_BYTES: usize = 1024 * 1024;
/// How much a flow sends before it is another's turn, in bytes.
const QUANTUM_BYTES: usize = 16 * 1024;
/// How much memory a flow keeps for its next datagrams while none waits, in bytes.
const MAX_IDLE_CAPACITY_BYTES: usize = 2 * 1024;

/// A flow on a datagram leg.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowId(pub u32);

/// A flow begins: whose it is and where it came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FlowOpen {
    /// The tunnel that it goes to.
    pub tunnel: TunnelId,
    /// The client's address.
    pub client: SocketAddr,
    /// The address of the edge that the client speaks to.
    pub destination: SocketAddr,
    /// When the edge opened it, in microseconds since 1970 (UTC).
    pub opened_at_us: u64,
}

impl FlowOpen {
    fn encode(&self, id: u32, out: &mut Vec<u8>) {
        put_frame(out, FrameType::FlowOpen, |out| {
            out.extend_from_slice(&id.to_be_bytes());
            out.extend_from_slice(self.tunnel.as_bytes());
            put_address(out, self.client);
            put_address(out, self.destination);
            out.extend_from_slice(&self.opened_at_us.to_be_bytes());
        });
    }

    /// Reads what follows the id; what a later version appends is not looked at.
    fn decode(mut fields: Fields<'_>) -> Result<Self, Violation> {
        Ok(Self {
            tunnel: TunnelId::from_bytes(fields.take()?),
            client: fields.address()?,
            destination: fields.address()?,
            opened_at_us: u64::from_be_bytes(fields.take()?),
        })
    }
}

/// Why a flow is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FlowEnd {
    /// Nobody wants it any more; also what a later version may add.
    Done = 0,
    /// Nothing came for long.
    Idle = 1,
    /// The origin cannot be reached.
    Unreachable = 2,
    /// There are too many flows.
    Busy = 3,
    /// The tunnel was detached.
    Detached = 4,
    /// The carrier or the session is gone. Never sent: each end finds out for itself.
    Lost = 0xff,
}

impl FlowEnd {
    /// The end as a short word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Idle => "idle",
            Self::Unreachable => "unreachable",
            Self::Busy => "busy",
            Self::Detached => "detached",
            Self::Lost => "lost",
        }
    }

    fn from_byte(byte: u8) -> Self {
        match byte {
            1 => Self::Idle,
            2 => Self::Unreachable,
            3 => Self::Busy,
            4 => Self::Detached,
            _ => Self::Done,
        }
    }
}

/// Why a flow cannot be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FlowOpenError {
    /// As many flows run as may, or too many openings wait to be sent.
    #[error("the datagram connection carries as many flows as it may")]
    TooMany,
    /// All 2^32 ids are used up: the leg must be replaced.
    #[error("the datagram connection has used up its flow ids")]
    Exhausted,
    /// Only the edge opens flows.
    #[error("the connector opens no flows")]
    NotEdge,
}

/// What came on a datagram leg.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DatagramInput<'a> {
    /// A flow begins (connector).
    Opened(FlowId, FlowOpen),
    /// A datagram of a flow; it may be empty.
    Datagram(FlowId, &'a [u8]),
    /// The peer ended the flow.
    Closed(FlowId, FlowEnd),
    /// Nothing that concerns anybody: it crossed the end of its flow, or began a flow that was refused at once.
    Ignored,
    /// The edge does not take this leg, and closes it (connector).
    Refused(Refusal),
}

/// Counts of one end of a datagram leg.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DatagramStats {
    /// Flows that run.
    pub flows: usize,
    /// Datagrams that were sent.
    pub sent: u64,
    /// Datagrams that came.
    pub received: u64,
    /// Datagrams that were dropped for lack of room.
    pub dropped_full: u64,
    /// Datagrams that were dropped because they had waited too long.
    pub dropped_old: u64,
    /// Datagrams that came for a flow that was over.
    pub ignored: u64,
}

/// One end of a datagram leg. At the edge it begins after JOIN_DATAGRAMS was taken, at the connector after it was sent.
///
/// The edge opens flows with ids that rise from 1 and are never used twice on a leg; either end closes them with one
/// FLOW_CLOSE that needs no answer. What comes for a flow that is over is ignored. No end promises that a datagram
/// arrives; those that do arrive in the order in which they were sent in their flow.
#[derive(Debug)]
pub struct DatagramLeg {
    side: Side,
    max_flows: usize,
    flows: HashMap<u32, Flow>,
    last: u32,
    /// FLOW_OPEN and FLOW_CLOSE that wait, whole frames; they go before datagrams.
    control: Vec<u8>,
    /// Flows with something to send, in the order of their turns.
    turns: VecDeque<u32>,
    queued_bytes: usize,
    /// A flow that had more waiting than others when it was last looked at: the first to lose something.
    fattest: u32,
    stats: DatagramStats,
}

/// What one flow has to send.
#[derive(Debug, Default)]
struct Flow {
    queue: VecDeque<Queued>,
    bytes: VecDeque<u8>,
    has_turn: bool,
}

#[derive(Debug, Clone, Copy)]
struct Queued {
    at: Instant,
    len: usize,
}

impl Flow {
    fn cost(&self) -> usize {
        self.bytes.len() + self.queue.len() * DATAGRAM_COST_BYTES
    }

    /// Forgets the oldest datagram; what it cost, or none if there was none.
    fn drop_oldest(&mut self) -> Option<usize> {
        let oldest = self.queue.pop_front()?;
        self.bytes.drain(..oldest.len);
        Some(oldest.len + DATAGRAM_COST_BYTES)
    }

    /// Gives memory back that a burst has left.
    fn rest(&mut self) {
        if self.queue.is_empty() && self.bytes.capacity() > MAX_IDLE_CAPACITY_BYTES {
            *self = Self { has_turn: self.has_turn, ..Self::default() };
        }
    }
}

impl DatagramLeg {
    /// A fresh leg that takes so many flows, [`MAX_FLOWS`] at most.
    #[must_use]
    pub fn new(side: Side, max_flows: usize) -> Self {
        Self {
            side,
            max_flows: max_flows.min(MAX_FLOWS),
            flows: HashMap::new(),
            last: 0,
            control: Vec::new(),
            turns: VecDeque::new(),
            queued_bytes: 0,
            fattest: 0,
            stats: DatagramStats::default(),
        }
    }

    /// Opens a flow (edge). Datagrams can be sent at once.
    ///
    /// # Errors
    /// There are too many flows, or the ids are used up.
    pub fn open(&mut self, open: &FlowOpen) -> Result<FlowId, FlowOpenError> {
        if self.side != Side::Edge {
            return Err(FlowOpenError::NotEdge);
        }
        if self.flows.len() >= self.max_flows || self.control.len() >= MAX_CONTROL_BYTES {
            return Err(FlowOpenError::TooMany);
        }
        let id = self.last.checked_add(1).ok_or(FlowOpenError::Exhausted)?;
        self.last = id;
        open.encode(id, &mut self.control);
        self.flows.insert(id, Flow::default());
        Ok(FlowId(id))
    }

    /// Queues a datagram. False: the flow is over, the datagram is too long, or there is no room for it.
    pub fn send(&mut self, id: FlowId, datagram: &[u8], now: Instant) -> bool {
        if datagram.len() > MAX_DATAGRAM_BYTES || !self.flows.contains_key(&id.0) {
            return false;
        }
        let cost = datagram.len() + DATAGRAM_COST_BYTES;
        while self.cost_of(id.0) + cost > MAX_FLOW_QUEUED_BYTES && self.drop_oldest_of(id.0) {}
        while self.queued_bytes + cost > MAX_QUEUED_BYTES {
            // Who has much waiting loses first; who has nothing waiting does not get in by force.
            if !self.drop_oldest_of(self.fattest) && !self.drop_oldest_of(id.0) {
                self.stats.dropped_full += 1;
                return false;
            }
        }
        let fattest = self.cost_of(self.fattest);
        let Some(flow) = self.flows.get_mut(&id.0) else { return false };
        flow.queue.push_back(Queued { at: now, len: datagram.len() });
        flow.bytes.extend(datagram);
        self.queued_bytes += cost;
        if flow.cost() > fattest {
            self.fattest = id.0;
        }
        if !std::mem::replace(&mut flow.has_turn, true) {
            self.turns.push_back(id.0);
        }
        true
    }

    /// Ends a flow. What waits is dropped.
    pub fn close(&mut self, id: FlowId, end: FlowEnd) {
        if self.forget(id.0) {
            let end = if end == FlowEnd::Lost { FlowEnd::Done } else { end };
            put_close(&mut self.control, id.0, end);
        }
    }

    /// Takes the frame at the front of `bytes`, and says how long it was; none if it is not whole. An error means that
    /// the leg is to be closed.
    pub fn take_input<'a>(&mut self, bytes: &'a [u8]) -> Result<Option<(usize, DatagramInput<'a>)>, Violation> {
        let Some((header, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let header = FrameHeader::decode(*header, Carrier::Datagrams)?;
        let (kind, from) = (header.kind, self.side.other());
        if !kind.may_come_from(from) {
            return Err(Violation::WrongSide { kind, from });
        }
        let Some(payload) = rest.get(..header.len as usize) else {
            return Ok(None);
        };
        let input = self.on_frame(kind, payload)?;
        Ok(Some((HEADER_BYTES + payload.len(), input)))
    }

    fn on_frame<'a>(&mut self, kind: FrameType, payload: &'a [u8]) -> Result<DatagramInput<'a>, Violation> {
        let misplaced = |place| Violation::OutOfPlace { kind, place };
        match kind {
            FrameType::Refused => return Ok(DatagramInput::Refused(Refusal::decode(payload)?)),
            FrameType::FlowOpen | FrameType::Datagram | FrameType::FlowClose => {}
            _ => return Err(misplaced("in the middle of a datagram connection")),
        }
        let Some((id, rest)) = payload.split_first_chunk::<FLOW_ID_BYTES>() else {
            return Err(misplaced("without the id of a flow"));
        };
        let id = u32::from_be_bytes(*id);
        if kind == FrameType::FlowOpen {
            return self.on_open(id, rest);
        }
        if id == 0 || id > self.last {
            return Err(misplaced("for a flow that was never opened"));
        }
        if kind == FrameType::Datagram {
            if !self.flows.contains_key(&id) {
                self.stats.ignored += 1;
                return Ok(DatagramInput::Ignored);
            }
            self.stats.received += 1;
            return Ok(DatagramInput::Datagram(FlowId(id), rest));
        }
        if !self.forget(id) {
            return Ok(DatagramInput::Ignored);
        }
        let end = rest.first().map_or(FlowEnd::Done, |byte| FlowEnd::from_byte(*byte));
        Ok(DatagramInput::Closed(FlowId(id), end))
    }

    fn on_open(&mut self, id: u32, fields: &[u8]) -> Result<DatagramInput<'static>, Violation> {
        let kind = FrameType::FlowOpen;
        if id <= self.last {
            return Err(Violation::OutOfPlace { kind, place: "with an id that is not new" });
        }
        // The edge knows of every end before we do, or at the same time: it cannot be mistaken about this bound.
        if self.flows.len() >= MAX_FLOWS {
            return Err(Violation::TooManyUnanswered { kind, max: MAX_FLOWS });
        }
        let open = FlowOpen::decode(Fields { kind, rest: fields })?;
        self.last = id;
        if self.flows.len() >= self.max_flows {
            if self.control.len() >= MAX_CONTROL_BYTES {
                return Err(Violation::TooManyUnanswered { kind, max: MAX_CONTROL_BYTES });
            }
            put_close(&mut self.control, id, FlowEnd::Busy);
            return Ok(DatagramInput::Ignored);
        }
        self.flows.insert(id, Flow::default());
        Ok(DatagramInput::Opened(FlowId(id), open))
    }

    /// Appends whole frames to `out`, about `max_bytes` of them (by at most one frame more), and returns how many
    /// bytes; 0 if there is nothing to send. What is appended counts as sent.
    pub fn poll_transmit(&mut self, out: &mut Vec<u8>, max_bytes: usize, now: Instant) -> usize {
        let start = out.len();
        self.take_control(out, max_bytes);
        while out.len() - start < max_bytes
            && let Some(id) = self.turns.pop_front()
        {
            let end = (start + max_bytes).min(out.len() + QUANTUM_BYTES);
            self.take_turn(id, out, end, now);
        }
        out.len() - start
    }

    /// Moves frames of control to `out`, as many as fit, and one at least.
    fn take_control(&mut self, out: &mut Vec<u8>, max_bytes: usize) {
        let mut taken = 0;
        while taken < max_bytes
            && let Some(&[_, a, b, c]) = self.control[taken..].first_chunk::<HEADER_BYTES>()
        {
            taken += HEADER_BYTES + u32::from_be_bytes([0, a, b, c]) as usize;
        }
        out.extend(self.control.drain(..taken));
        if self.control.is_empty() {
            self.control = Vec::new();
        }
    }

    /// Sends what the flow has, until `out` has grown to `end`.
    fn take_turn(&mut self, id: u32, out: &mut Vec<u8>, end: usize, now: Instant) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        while out.len() < end
            && let Some(next) = flow.queue.pop_front()
        {
            self.queued_bytes -= next.len + DATAGRAM_COST_BYTES;
            if now.saturating_duration_since(next.at) > MAX_DATAGRAM_AGE {
                self.stats.dropped_old += 1;
                flow.bytes.drain(..next.len);
                continue;
            }
            let header = FrameHeader { kind: FrameType::Datagram, len: (FLOW_ID_BYTES + next.len) as u32 };
            out.extend_from_slice(&header.encode());
            out.extend_from_slice(&id.to_be_bytes());
            let (front, back) = flow.bytes.as_slices();
            let of_front = next.len.min(front.len());
            out.extend_from_slice(&front[..of_front]);
            out.extend_from_slice(&back[..next.len - of_front]);
            flow.bytes.drain(..next.len);
            self.stats.sent += 1;
        }
        flow.has_turn = !flow.queue.is_empty();
        if flow.has_turn {
            self.turns.push_back(id);
        } else {
            flow.rest();
        }
    }

    /// Whether `poll_transmit` would give something, or has something to drop.
    #[must_use]
    pub fn wants_transmit(&self) -> bool {
        !self.control.is_empty() || !self.turns.is_empty()
    }

    /// Whether the flow runs.
    #[must_use]
    pub fn is_open(&self, id: FlowId) -> bool {
        self.flows.contains_key(&id.0)
    }

    /// How many bytes wait to be sent.
    #[must_use]
    pub fn buffered_bytes(&self) -> usize {
        self.control.len() + self.queued_bytes
    }

    /// What was counted so far.
    #[must_use]
    pub fn stats(&self) -> DatagramStats {
        DatagramStats { flows: self.flows.len(), ..self.stats }
    }

    fn cost_of(&self, id: u32) -> usize {
        self.flows.get(&id).map_or(0, Flow::cost)
    }

    /// Makes room; false if the flow has nothing waiting.
    fn drop_oldest_of(&mut self, id: u32) -> bool {
        let Some(cost) = self.flows.get_mut(&id).and_then(Flow::drop_oldest) else { return false };
        self.queued_bytes -= cost;
        self.stats.dropped_full += 1;
        true
    }

    /// Forgets the flow; false if there was none. Its turn, if it had one, comes to nothing.
    fn forget(&mut self, id: u32) -> bool {
        let Some(flow) = self.flows.remove(&id) else { return false };
        self.queued_bytes -= flow.cost();
        if flow.has_turn {
            self.turns.retain(|turn| *turn != id);
        }
        true
    }
}

fn put_close(out: &mut Vec<u8>, id: u32, end: FlowEnd) {
    put_frame(out, FrameType::FlowClose, |out| {
        out.extend_from_slice(&id.to_be_bytes());
        out.push(end as u8);
    });
}
