//! One end of a datagram leg: the flows of a session, and the queue of datagrams to send.
//!
//! A datagram is most valuable while fresh, and no sender waits for it. A datagram that cannot be sent in time is
//! dropped and counted; a sender is never blocked. If there is no room, the oldest datagram of the flow with the
//! longest queue is dropped. Voice and games need the newest datagram, and transports such as QUIC detect the loss
//! sooner. A datagram is also dropped after [`MAX_DATAGRAM_AGE`]: after a stall of the carrier its peers have
//! retransmitted or moved on.

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

/// Time that a datagram may wait to be sent.
pub const MAX_DATAGRAM_AGE: Duration = Duration::from_millis(100);
/// Bound on the queue of a leg in bytes; each datagram counts [`DATAGRAM_COST_BYTES`] in addition to its length.
pub const MAX_QUEUED_BYTES: usize = 4 * 1024 * 1024;
/// Bound on the queue of one flow in bytes, counted in the same way.
pub const MAX_FLOW_QUEUED_BYTES: usize = 1024 * 1024;
/// Overhead of a queued datagram in bytes.
pub const DATAGRAM_COST_BYTES: usize = 64;
/// Bound on the flows of a leg; an end may have a lower one.
pub const MAX_FLOWS: usize = 65_536;
/// Default bound on the flows of a leg.
pub const DEFAULT_MAX_FLOWS: usize = 16_384;
/// Bound on queued FLOW_OPEN and FLOW_CLOSE frames in bytes, above which no further flow is opened.
const MAX_CONTROL_BYTES: usize = 1024 * 1024;
/// Bytes that a flow sends before the next flow's turn.
const QUANTUM_BYTES: usize = 16 * 1024;
/// Memory that a flow keeps while its queue is empty, in bytes.
const MAX_IDLE_CAPACITY_BYTES: usize = 2 * 1024;

/// Id of a flow on a datagram leg.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowId(pub u32);

/// The opening of a flow: its tunnel and addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FlowOpen {
    /// The tunnel.
    pub tunnel: TunnelId,
    /// The client's address.
    pub client: SocketAddr,
    /// The edge's address that the client sends to.
    pub destination: SocketAddr,
    /// Time of the opening at the edge, in microseconds since 1970 (UTC).
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

    /// Decodes the fields after the id; fields of later versions are ignored.
    fn decode(mut fields: Fields<'_>) -> Result<Self, Violation> {
        Ok(Self {
            tunnel: TunnelId::from_bytes(fields.take()?),
            client: fields.address()?,
            destination: fields.address()?,
            opened_at_us: u64::from_be_bytes(fields.take()?),
        })
    }
}

/// Reason of the end of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FlowEnd {
    /// No longer needed; also codes of later versions.
    Done = 0,
    /// Idle for too long.
    Idle = 1,
    /// The origin cannot be reached.
    Unreachable = 2,
    /// There are too many flows.
    Busy = 3,
    /// The tunnel was detached.
    Detached = 4,
    /// The carrier or the session ended. Never sent: each end detects the loss itself.
    Lost = 0xff,
}

impl FlowEnd {
    /// The reason as a short word.
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

/// Reason why a flow cannot be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FlowOpenError {
    /// The limit of flows is reached, or too many openings are queued.
    #[error("the datagram connection has reached its limit of flows")]
    TooMany,
    /// All 2^32 ids are used up: the leg must be replaced.
    #[error("the datagram connection has used up its flow ids")]
    Exhausted,
    /// Only the edge may open flows.
    #[error("a connector cannot open flows")]
    NotEdge,
}

/// A frame received on a datagram leg.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DatagramInput<'a> {
    /// A flow was opened (connector).
    Opened(FlowId, FlowOpen),
    /// A datagram of a flow, possibly empty.
    Datagram(FlowId, &'a [u8]),
    /// The peer ended the flow.
    Closed(FlowId, FlowEnd),
    /// Nothing to do: the frame crossed the end of its flow, or opened a flow that was refused at once.
    Ignored,
    /// The edge refuses this leg and closes it (connector).
    Refused(Refusal),
}

/// Counters of one end of a datagram leg.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DatagramStats {
    /// Open flows.
    pub flows: usize,
    /// Sent datagrams.
    pub sent: u64,
    /// Received datagrams.
    pub received: u64,
    /// Datagrams dropped for lack of room.
    pub dropped_full: u64,
    /// Datagrams dropped because they waited too long.
    pub dropped_old: u64,
    /// Datagrams received for an ended flow.
    pub ignored: u64,
}

/// One end of a datagram leg. The edge creates it after receiving JOIN_DATAGRAMS, the connector after sending it.
///
/// The edge opens flows with ids that rise from 1 and are never reused on a leg. Either end closes a flow with one
/// FLOW_CLOSE, which needs no answer. Frames for an ended flow are ignored. Delivery is not guaranteed; delivered
/// datagrams of a flow keep their order.
#[derive(Debug)]
pub struct DatagramLeg {
    side: Side,
    max_flows: usize,
    flows: HashMap<u32, Flow>,
    last: u32,
    /// Queued FLOW_OPEN and FLOW_CLOSE frames, sent before datagrams.
    control: Vec<u8>,
    /// Flows with queued datagrams, in the order of their turns.
    turns: VecDeque<u32>,
    queued_bytes: usize,
    /// The flow with the longest queue at the last check, which loses datagrams first.
    fattest: u32,
    stats: DatagramStats,
}

/// The send queue of one flow.
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

    /// Drops the oldest datagram; returns its cost, or `None` if the queue was empty.
    fn drop_oldest(&mut self) -> Option<usize> {
        let oldest = self.queue.pop_front()?;
        self.bytes.drain(..oldest.len);
        Some(oldest.len + DATAGRAM_COST_BYTES)
    }

    /// Frees memory after a burst.
    fn rest(&mut self) {
        if self.queue.is_empty() && self.bytes.capacity() > MAX_IDLE_CAPACITY_BYTES {
            *self = Self { has_turn: self.has_turn, ..Self::default() };
        }
    }
}

impl DatagramLeg {
    /// A new leg with this limit of flows, at most [`MAX_FLOWS`].
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

    /// Opens a flow (edge). Datagrams may be sent at once.
    ///
    /// # Errors
    /// The limit of flows is reached, or the ids are used up.
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

    /// Queues a datagram. False: the flow has ended, the datagram is too long, or there is no room.
    pub fn send(&mut self, id: FlowId, datagram: &[u8], now: Instant) -> bool {
        if datagram.len() > MAX_DATAGRAM_BYTES || !self.flows.contains_key(&id.0) {
            return false;
        }
        let cost = datagram.len() + DATAGRAM_COST_BYTES;
        while self.cost_of(id.0) + cost > MAX_FLOW_QUEUED_BYTES && self.drop_oldest_of(id.0) {}
        while self.queued_bytes + cost > MAX_QUEUED_BYTES {
            // The flow with the longest queue loses a datagram first, then the flow itself; a flow with an empty queue
            // displaces nothing else.
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

    /// Ends a flow and drops its queue.
    pub fn close(&mut self, id: FlowId, end: FlowEnd) {
        if self.forget(id.0) {
            let end = if end == FlowEnd::Lost { FlowEnd::Done } else { end };
            put_close(&mut self.control, id.0, end);
        }
    }

    /// Decodes the frame at the front of `bytes`, and returns its length; `None` if it is incomplete. After an error
    /// the leg must be closed.
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
        // The edge knows of every end before the connector or at the same time, so an honest edge never exceeds the
        // bound.
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

    /// Appends complete frames to `out`, about `max_bytes` (at most one frame more), and returns the number of bytes; 0
    /// if there is nothing to send. Appended frames count as sent.
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

    /// Moves queued control frames to `out`, as many as fit, at least one.
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

    /// Sends the queue of a flow until `out` has reached `end`.
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

    /// Whether `poll_transmit` has something to send or to drop.
    #[must_use]
    pub fn wants_transmit(&self) -> bool {
        !self.control.is_empty() || !self.turns.is_empty()
    }

    /// Whether the flow is open.
    #[must_use]
    pub fn is_open(&self, id: FlowId) -> bool {
        self.flows.contains_key(&id.0)
    }

    /// Number of queued bytes.
    #[must_use]
    pub fn buffered_bytes(&self) -> usize {
        self.control.len() + self.queued_bytes
    }

    /// The counters so far.
    #[must_use]
    pub fn stats(&self) -> DatagramStats {
        DatagramStats { flows: self.flows.len(), ..self.stats }
    }

    fn cost_of(&self, id: u32) -> usize {
        self.flows.get(&id).map_or(0, Flow::cost)
    }

    /// Drops a datagram of the flow; false if its queue is empty.
    fn drop_oldest_of(&mut self, id: u32) -> bool {
        let Some(cost) = self.flows.get_mut(&id).and_then(Flow::drop_oldest) else { return false };
        self.queued_bytes -= cost;
        self.stats.dropped_full += 1;
        true
    }

    /// Removes the flow; false if there was none. A pending turn of the flow has no effect.
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
