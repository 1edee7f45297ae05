//! One end of a control connection: attachments, keepalive, and the streams that are multiplexed on it.

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

/// How many tunnels one session may have attached or asked for.
pub const MAX_TUNNELS_PER_SESSION: usize = 1_024;
/// How many attachments of a session are refused before it is closed, as long as it has nothing attached. Who knows no
/// credential gets no more guesses than that, and causes no more work, for one TLS handshake.
pub const MAX_REFUSED_ATTACHMENTS: u32 = 16;
/// The windows of all streams of a session together grow to this, in bytes.
pub const MAX_SESSION_WINDOWS_BYTES: u64 = 64 * 1024 * 1024;
/// How much of that growth may take, in bytes.
const MAX_GROWN_BYTES: u64 = MAX_SESSION_WINDOWS_BYTES / 2;
/// How many times what is left of windows one client may have. Windows are for speed: whoever comes later has the least one,
/// and it grows.
const MAX_WINDOWS_OF_LEFT: u64 = 7;
/// How much of it the first windows may take as long as there is a choice, in bytes. Each stream gets a share of what is
/// left, so that the first ones have room at once and thousands of idle ones cost next to nothing.
const MAX_FIRST_WINDOWS_BYTES: u64 = MAX_SESSION_WINDOWS_BYTES / 4;
/// Which part of what its client may still have is a stream's share. A client that is alone begins with windows of 256 KiB,
/// and its 200th stream at once has one of 7 KiB.
const FIRST_WINDOW_SHARE: u64 = 56;
/// How many streams run at most with a connector that knows no first windows of their own.
const MAX_STREAMS_OF_ONE_WINDOW: u32 = 1_024;
/// How many events about the session as a whole may wait for [`Session::poll_event`].
const MAX_QUEUED_EVENTS: usize = 4_096;
/// How many lines of the request log may wait for [`Session::poll_event`]; more are dropped.
const MAX_QUEUED_LOG_EVENTS: usize = 256;
/// The smallest window that a stream may begin with, in bytes.
const MIN_WINDOW_BYTES: u32 = 1_024;
/// The most streams that a session may be configured for.
const MAX_STREAMS: u32 = 65_536;
/// The bounds of the keepalive.
const KEEPALIVE_BOUNDS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(3_600));
/// The most PINGs that may go unanswered.
const MAX_MISSED_LIMIT: u32 = 100;

/// One end of a control connection, without the connection.
///
/// Its methods are of four kinds:
///
/// - *input*: [`handle_input`](Self::handle_input) takes what came, in any pieces;
///   [`handle_timeout`](Self::handle_timeout) says that time has passed; [`carrier_lost`](Self::carrier_lost) that the
///   connection is gone.
/// - *output*: [`poll_transmit`](Self::poll_transmit) gives what is to be sent, [`poll_event`](Self::poll_event) what
///   happened, [`poll_timeout`](Self::poll_timeout) when to call `handle_timeout`.
/// - *decisions* of the driver: `attach`, `accept_attach`, `detach`, `go_away`, ... and `open`.
/// - *streams*: `opened`, `failed`, `write`, `read`, `finish`, `reset`.
///
/// After any call of the other kinds, the outputs may have changed: take all events, send what there is to send, and
/// set the timer anew. Methods called on a session that is over, or on a stream that is, do nothing.
///
/// Time is what the driver says it is; it may stand still or jump forward. It need not be exact, but it must be the
/// same clock for all calls.
#[derive(Debug)]
pub struct Session {
    side: Side,
    phase: Phase,
    window: u32,
    max_streams: u32,
    keepalive: Keepalive,
    /// What is sent in WELCOME (edge).
    welcome: Option<crate::Welcome>,
    /// The versions that were offered in HELLO (connector).
    offered: Vec<u16>,
    /// By when a session must be welcomed (connector) or have a tunnel attached (edge).
    deadline: Option<Instant>,
    /// The beginning of a frame that has not come in whole; never longer than one frame.
    partial: Vec<u8>,
    /// Attached tunnels, and whether the connector wants their request log.
    tunnels: HashMap<TunnelId, bool>,
    /// Tunnels whose ATTACH has no answer yet, and the same.
    unanswered: HashMap<TunnelId, bool>,
    /// How many attachments were refused (edge).
    refused: u32,
    /// What to ask for once the session is up (connector).
    early_attach: Vec<Attach>,
    going_away: bool,
    /// Both ends are edges: nothing is attached, and streams are opened for any tunnel.
    is_between_edges: bool,
    streams: ByNumber<u32, Stream>,
    /// How many of the streams lack a terminal.
    running: u32,
    last_stream: u32,
    /// The first windows of all streams together, in bytes, and by how much these have grown: by the clients that the streams
    /// are for (edge).
    first_windows_bytes: Shares,
    grown_bytes: Shares,
    /// The connector reads the fields that follow the server name in OPEN (edge).
    has_open_fields: bool,
    /// The connector takes flows in REQUEST_LOG (edge).
    has_flow_log: bool,
    /// The connector is told how its origins are found (edge).
    has_health_log: bool,
    /// The connector is told of other edges (edge).
    has_edges: bool,
    out: Outbox,
    events: VecDeque<Event>,
    log_events: usize,
}

/// How far the session has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// HELLO is awaited (edge), or WELCOME (connector).
    Greeting,
    Up,
    Over,
}

impl Session {
    /// The connector's end; HELLO is the first thing to send.
    #[must_use]
    pub fn connector(hello: Hello, config: SessionConfig, now: Instant) -> Self {
        let mut session = Self::new(Side::Connector, &config, now);
        hello.encode(session.out.control());
        session.offered = hello.versions;
        session
    }

    /// The edge's end; HELLO is the first thing to come. `session_id` and `leg_secret` are random, and what a leg must
    /// show to join.
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
            out: Outbox::default(),
            events: VecDeque::new(),
            log_events: 0,
        }
    }

    /// The session is between two edges: nothing is attached to it, and streams are opened for whatever tunnel. Whether there is
    /// such a tunnel is for the user of [`Event::StreamOpen`] to say. To be said of a session that has just been made.
    #[must_use]
    pub fn between_edges(mut self) -> Self {
        self.is_between_edges = true;
        if self.side == Side::Edge {
            self.deadline = None;
        }
        self
    }

    /// Takes bytes that came from the peer, cut anywhere. An error means that the session is over: send what
    /// `poll_transmit` gives and close the connection. No [`Event::Down`] says so again.
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

    /// Appends whole frames to `out`, about `max_bytes` of them (by at most one frame more), and returns how many
    /// bytes; 0 if there is nothing to send. What is appended counts as sent.
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

    /// Whether `poll_transmit` would give something.
    #[must_use]
    pub fn wants_transmit(&self) -> bool {
        self.out.has_any() || self.keepalive.is_due()
    }

    /// The next thing that happened. Events about a stream may still wait when the stream is already forgotten.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?;
        if matches!(event, Event::RequestLog(_) | Event::FlowLog(_) | Event::HealthLog(_)) {
            self.log_events -= 1;
        }
        Some(event)
    }

    /// When to call [`Self::handle_timeout`], and what for; none if nothing waits for time to pass.
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

    /// Time has passed. May be called at any time, with nothing due too.
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

    /// A user of a stream waits for the peer in vain. It is asked at once whether it is there; when it answers nothing, it is
    /// dead after as many seconds as PINGs may go unanswered, or sooner with a shorter keepalive. One that was heard within
    /// the last half second is not asked.
    pub fn doubt(&mut self, now: Instant) {
        if self.phase == Phase::Up {
            self.keepalive.doubt(now);
        }
    }

    /// Whether the peer was [doubted](Self::doubt) and has not answered for a second.
    #[must_use]
    pub fn is_doubtful(&self) -> bool {
        self.keepalive.is_doubtful()
    }

    /// The connection under the session is gone. Streams whose end had come can still be read to it.
    pub fn carrier_lost(&mut self) {
        if self.phase != Phase::Over {
            self.go_down(DownReason::CarrierLost);
        }
    }

    /// No new streams: the session is over or not up yet, or either end said GOAWAY.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        self.going_away || self.phase == Phase::Over
    }

    /// The session is over; what `poll_transmit` still gives are its last words.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// No streams are left, not even ones that only their users still hold.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.streams.is_empty()
    }

    /// The round trip to the peer, smoothed; none before it was first measured.
    #[must_use]
    pub fn smoothed_rtt(&self) -> Option<Duration> {
        self.keepalive.smoothed_rtt()
    }

    /// How many streams there are, with those that only their users still hold.
    #[must_use]
    pub fn stream_count(&self) -> usize {
        self.streams.len()
    }

    /// How many bytes the session holds for its streams and of frames that wait to be sent or are not whole yet.
    /// Looks at every stream.
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

    /// Ends the session: control frames still go out; streams keep only what can be read to its end.
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
