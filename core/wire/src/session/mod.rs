//! One end of a control connection: attachments, keepalive, and multiplexed streams.
//!
//! May use `by_number`, `clients`, `frame`, `lifecycle`, `message` and `violation`.

mod control;
mod event;
mod input;
mod keepalive;
mod outbox;
mod stream;
mod streams;

use std::{
    collections::{HashMap, VecDeque},
    time::{Duration, Instant},
};

pub use event::{DownReason, Event, OpenError, Read, SessionConfig, StreamError, StreamId, TimeoutReason};
use sallyport_model::TunnelId;

use crate::{Attach, ByNumber, FrameType, Hello, Refusal, Shares, Side, VERSION, Violation};
use keepalive::Keepalive;
use outbox::{Outbox, Turn, put_ping};
use stream::{MAX_WINDOW_BYTES, Stream};

/// Bound on attached and requested tunnels of one session.
pub const MAX_TUNNELS_PER_SESSION: usize = 1_024;
/// Refused attachments after which a session without an attached tunnel is closed. An unauthorised client gets this
/// many guesses, and causes this much work, for one TLS handshake.
pub const MAX_REFUSED_ATTACHMENTS: u32 = 16;
/// Bound on the windows of all streams of a session, in bytes.
pub const MAX_SESSION_WINDOWS_BYTES: u64 = 64 * 1024 * 1024;
/// The part of that bound for window growth, in bytes.
const MAX_GROWN_BYTES: u64 = MAX_SESSION_WINDOWS_BYTES / 2;
/// The greatest share of a client in window growth, as a multiple of what is left. Windows only affect speed: a later
/// client has at least the minimum, and its windows grow.
const MAX_WINDOWS_OF_LEFT: u64 = 7;
/// The part of the bound for initial windows while there is a choice, in bytes. Each stream gets a share of what is
/// left, so that the first ones have room at once and thousands of idle ones cost little.
const MAX_FIRST_WINDOWS_BYTES: u64 = MAX_SESSION_WINDOWS_BYTES / 4;
/// A stream's share of what its client may still have. A single client starts with windows of 256 KiB, and its 200th
/// concurrent stream with 7 KiB.
const FIRST_WINDOW_SHARE: u64 = 56;
/// The most streams with a connector that does not support per-stream initial windows.
const MAX_STREAMS_OF_ONE_WINDOW: u32 = 1_024;
/// Bound on events about the session that wait for [`Session::poll_event`].
const MAX_QUEUED_EVENTS: usize = 4_096;
/// Bound on request records that wait for [`Session::poll_event`]; further ones are dropped.
const MAX_QUEUED_LOG_EVENTS: usize = 256;
/// The smallest initial window of a stream, in bytes.
const MIN_WINDOW_BYTES: u32 = 1_024;
/// The greatest configurable number of streams.
const MAX_STREAMS: u32 = 65_536;
/// Bounds of the keepalive interval.
const KEEPALIVE_BOUNDS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(3_600));
/// The greatest number of unanswered PINGs.
const MAX_MISSED_LIMIT: u32 = 100;

/// One end of a control connection, without the connection itself.
///
/// The methods are of four kinds:
///
/// - *input*: [`handle_input`](Self::handle_input) takes received bytes, in any pieces;
///   [`handle_timeout`](Self::handle_timeout) reports passed time, [`carrier_lost`](Self::carrier_lost) the loss of the
///   connection.
/// - *output*: [`poll_transmit`](Self::poll_transmit) returns bytes to send, [`poll_event`](Self::poll_event) events,
///   and [`poll_timeout`](Self::poll_timeout) the time of the next `handle_timeout`.
/// - *decisions* of the driver: `attach`, `accept_attach`, `detach`, `go_away`, ... and `open`.
/// - *streams*: `opened`, `failed`, `write`, `read`, `finish`, `reset`.
///
/// After any call of another kind the outputs may have changed: take all events, send the output, and reset the timer.
/// Methods on an ended session or stream do nothing.
///
/// Time is an argument; it may stand still or jump forward. It need not be exact, but all calls must use the same
/// clock.
#[derive(Debug)]
pub struct Session {
    side: Side,
    phase: Phase,
    window: u32,
    max_streams: u32,
    keepalive: Keepalive,
    /// The WELCOME to send (edge).
    welcome: Option<crate::Welcome>,
    /// The versions offered in HELLO (connector).
    offered: Vec<u16>,
    /// Deadline for WELCOME (connector) or the first attachment (edge).
    deadline: Option<Instant>,
    /// The beginning of an incomplete frame, shorter than one frame.
    partial: Vec<u8>,
    /// Attached tunnels, and whether the connector wants their request records.
    tunnels: HashMap<TunnelId, bool>,
    /// Tunnels with an unanswered ATTACH, and the same flag.
    unanswered: HashMap<TunnelId, bool>,
    /// Number of refused attachments (edge).
    refused: u32,
    /// Attachments to request once the session is established (connector).
    early_attach: Vec<Attach>,
    going_away: bool,
    /// Whether both ends are edges: nothing is attached, and streams are opened for any tunnel.
    is_between_edges: bool,
    streams: ByNumber<u32, Stream>,
    /// Number of streams without both terminal frames.
    running: u32,
    last_stream: u32,
    /// Sums of initial windows and of window growth in bytes, by client (edge).
    first_windows_bytes: Shares,
    grown_bytes: Shares,
    /// Whether the connector reads the fields after the server name in OPEN (edge).
    has_open_fields: bool,
    /// Whether the connector accepts flow records (edge).
    has_flow_log: bool,
    /// Whether the connector accepts health records (edge).
    has_health_log: bool,
    /// Whether the connector accepts lists of edges (edge).
    has_edges: bool,
    /// Whether the edge wants reports of links (connector).
    wants_links: bool,
    out: Outbox,
    events: VecDeque<Event>,
    log_events: usize,
}

/// The phase of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// HELLO (edge) or WELCOME (connector) is awaited.
    Greeting,
    Up,
    Over,
}

impl Session {
    /// The connector's end; HELLO is its first output.
    #[must_use]
    pub fn connector(hello: Hello, config: SessionConfig, now: Instant) -> Self {
        let mut session = Self::new(Side::Connector, &config, now);
        hello.encode(session.out.control());
        session.offered = hello.versions;
        session
    }

    /// The edge's end; HELLO is its first input. `session_id` and `leg_secret` are random; legs present both to join.
    #[must_use]
    pub fn edge(config: SessionConfig, session_id: [u8; 16], leg_secret: [u8; 32], now: Instant) -> Self {
        let mut session = Self::new(Side::Edge, &config, now);
        session.welcome = Some(crate::Welcome {
            version: VERSION,
            session: session_id,
            leg_secret,
            keepalive_ms: u64::try_from(config.keepalive.as_millis()).unwrap_or(u64::MAX),
            missed_limit: config.missed_limit.clamp(1, MAX_MISSED_LIMIT),
            stream_window: session.window,
            max_streams: session.max_streams,
            edge: None,
            region: None,
            edges: Vec::new(),
            leave: false,
            link_reports: true,
        });
        session
    }

    fn new(side: Side, config: &SessionConfig, now: Instant) -> Self {
        let (least, most) = KEEPALIVE_BOUNDS;
        let every = config.keepalive.clamp(least, most);
        Self {
            side,
            phase: Phase::Greeting,
            window: config.stream_window_bytes.clamp(MIN_WINDOW_BYTES, MAX_WINDOW_BYTES),
            max_streams: config.max_streams.clamp(1, MAX_STREAMS),
            keepalive: Keepalive::new(every, config.missed_limit.clamp(1, MAX_MISSED_LIMIT), now),
            welcome: None,
            offered: Vec::new(),
            deadline: now.checked_add(config.attach_deadline),
            partial: Vec::new(),
            tunnels: HashMap::new(),
            unanswered: HashMap::new(),
            refused: 0,
            early_attach: Vec::new(),
            going_away: false,
            is_between_edges: false,
            streams: ByNumber::default(),
            running: 0,
            last_stream: 0,
            first_windows_bytes: Shares::default(),
            grown_bytes: Shares::default(),
            has_open_fields: false,
            has_flow_log: false,
            has_health_log: false,
            has_edges: false,
            wants_links: false,
            out: Outbox::default(),
            events: VecDeque::new(),
            log_events: 0,
        }
    }

    /// Marks the session as one between two edges: nothing is attached, and streams are opened for any tunnel. The user
    /// of [`Event::StreamOpen`] checks the tunnel. Call right after the creation.
    #[must_use]
    pub fn between_edges(mut self) -> Self {
        self.is_between_edges = true;
        if self.side == Side::Edge {
            self.deadline = None;
        }
        self
    }

    /// Handles received bytes, cut anywhere. An error means that the session is over: send the output of
    /// `poll_transmit` and close the connection. No [`Event::Down`] repeats the error.
    pub fn handle_input(&mut self, bytes: &[u8], now: Instant) -> Result<(), Violation> {
        if self.phase == Phase::Over || bytes.is_empty() {
            return Ok(());
        }
        self.keepalive.on_input(now);
        let result = self.take_input(bytes, now);
        if let Err(violation) = &result {
            if self.side == Side::Edge {
                Refusal::new("protocol", &violation.to_string(), true).encode(self.out.control());
            }
            self.end();
        } else {
            self.check_stuck();
        }
        result
    }

    /// Appends complete frames to `out`, about `max_bytes` (at most one frame more), and returns the number of bytes; 0
    /// if there is nothing to send. Appended frames count as sent.
    pub fn poll_transmit(&mut self, out: &mut Vec<u8>, max_bytes: usize, now: Instant) -> usize {
        let start = out.len();
        while out.len() - start < max_bytes {
            if self.out.take_control(out) {
                continue;
            }
            if let Some(value) = self.keepalive.take_due(now) {
                put_ping(out, FrameType::Ping, value);
                continue;
            }
            match self.out.next_turn() {
                Some(Turn::Stream(id)) => self.transmit_turn(id, out),
                Some(Turn::Log) => self.out.take_log(out),
                None => break,
            }
        }
        out.len() - start
    }

    /// Whether `poll_transmit` has output.
    #[must_use]
    pub fn wants_transmit(&self) -> bool {
        self.out.has_any() || self.keepalive.is_due()
    }

    /// The next event. Events of a stream may still follow after the stream was removed.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?;
        if matches!(event, Event::RequestLog(_) | Event::FlowLog(_) | Event::HealthLog(_)) {
            self.log_events -= 1;
        }
        Some(event)
    }

    /// Time and reason of the next [`Self::handle_timeout`]; `None` if no timer is set.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Instant, TimeoutReason)> {
        let deadline = match (self.phase, self.side) {
            (Phase::Over, _) => return None,
            (_, Side::Edge) => self.deadline.map(|at| (at, TimeoutReason::AttachDeadline)),
            (_, Side::Connector) => self.deadline.map(|at| (at, TimeoutReason::WelcomeDeadline)),
        };
        let keepalive = self.keepalive.deadline().filter(|_| self.phase == Phase::Up);
        let keepalive = keepalive.map(|at| (at, TimeoutReason::Keepalive));
        deadline.into_iter().chain(keepalive).min_by_key(|(at, _)| *at)
    }

    /// Handles the passing of time. May be called at any time, even if nothing is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.phase == Phase::Over {
            return;
        }
        if self.deadline.is_some_and(|deadline| now >= deadline) {
            return match self.side {
                Side::Edge => {
                    let refusal = Refusal::new("nothing-attached", &DownReason::NothingAttached.to_string(), true);
                    refusal.encode(self.out.control());
                    self.go_down(DownReason::NothingAttached);
                }
                Side::Connector => self.go_down(DownReason::NotWelcomed),
            };
        }
        if self.phase == Phase::Up
            && let Err(missed) = self.keepalive.on_timeout(now)
        {
            return self.go_down(DownReason::DeadPeer { missed });
        }
        self.check_stuck();
    }

    /// Probes the peer because a stream's user waits for it. An unresponsive peer is dead after as many seconds as
    /// PINGs may go unanswered, or sooner with a shorter keepalive. A peer that sent bytes within the last half second
    /// is not probed.
    pub fn check_liveness(&mut self, now: Instant) {
        if self.phase == Phase::Up {
            self.keepalive.check_liveness(now);
        }
    }

    /// Whether the peer was [probed](Self::check_liveness) and has not answered for a second.
    #[must_use]
    pub fn is_unresponsive(&self) -> bool {
        self.keepalive.is_unresponsive()
    }

    /// Reports the loss of the connection. Streams whose end was received can still be read to their end.
    pub fn carrier_lost(&mut self) {
        if self.phase != Phase::Over {
            self.go_down(DownReason::CarrierLost);
        }
    }

    /// Whether no new streams are accepted: the session is over or not established yet, or either end sent GOAWAY.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        self.going_away || self.phase == Phase::Over
    }

    /// Whether the session is over; `poll_transmit` may still have its last frames.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// Whether no streams are left, including ended ones that their users still hold.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.streams.is_empty()
    }

    /// The smoothed round-trip time; `None` before the first measurement.
    #[must_use]
    pub fn smoothed_rtt(&self) -> Option<Duration> {
        self.keepalive.smoothed_rtt()
    }

    /// Number of streams, including ended ones that their users still hold.
    #[must_use]
    pub fn stream_count(&self) -> usize {
        self.streams.len()
    }

    /// Bytes buffered for streams, queued frames and incomplete input. Visits every stream.
    #[must_use]
    pub fn buffered_bytes(&self) -> usize {
        let streams = self.streams.values().map(|stream| stream.send.queue.len() + stream.recv.buffer.len());
        streams.sum::<usize>() + self.partial.len() + self.out.buffered_bytes()
    }

    /// Ends the session with an event.
    fn go_down(&mut self, reason: DownReason) {
        self.end();
        self.events.push_back(Event::Down(reason));
    }

    /// Ends the session: queued control frames are still sent; streams keep only data that can be read to its end.
    fn end(&mut self) {
        self.phase = Phase::Over;
        self.deadline = None;
        self.keepalive.stop();
        self.out.close();
        self.partial = Vec::new();
        self.tunnels.clear();
        self.unanswered.clear();
        self.early_attach.clear();
        self.running = 0;
        let mut closed = Vec::new();
        for (&id, stream) in &mut self.streams {
            stream.running = false;
            stream.send.discard();
            if stream.released || stream.ended_cleanly() {
                closed.push(id);
            }
        }
        for id in closed {
            self.forget(id);
        }
    }

    fn check_stuck(&mut self) {
        if self.phase != Phase::Over && self.out.is_stuck(self.max_streams) {
            self.go_down(DownReason::Stuck);
        }
    }
}
