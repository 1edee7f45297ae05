//! Two sessions, a simulated link between them, and users of their streams. Time is simulated; nothing waits.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::LazyLock,
    time::{Duration, Instant},
};

use sallyport_model::TunnelId;
use sallyport_wire::{
    Attach, Event, FailureReason, Hello, Open, OpenFailure, Read, ResetCode, Session, SessionConfig, StreamError,
    StreamId, StreamProtocol, VERSION, message::feature,
};

pub(crate) const TUNNEL: [u8; 16] = [7; 16];

pub(crate) fn tunnel() -> TunnelId {
    TunnelId::from_bytes(TUNNEL)
}

pub(crate) fn hello() -> Hello {
    Hello {
        versions: vec![VERSION],
        agent: "sallyport/0.1.0".to_owned(),
        connector: [3; 16],
        max_legs: 64,
        features: features(),
        host: None,
    }
}

fn features() -> Vec<String> {
    [feature::OPEN_FIELDS, feature::DATAGRAMS].map(str::to_owned).into()
}

pub(crate) fn attach() -> Attach {
    Attach {
        tunnel: tunnel(),
        credential: "spc_secret".to_owned(),
        request_log: true,
        home: None,
        origin: None,
        spread: false,
    }
}

/// An OPEN whose server name is a command for the connector's end; see [`Plan::of_server`].
pub(crate) fn open(server: &str) -> Open {
    Open {
        tunnel: tunnel(),
        protocol: StreamProtocol::Http1,
        client: "203.0.113.9:50000".parse().unwrap(),
        destination: None,
        opened_at_us: 1_700_000_000_000_000,
        server_name: server.to_owned(),
    }
}

/// Pseudorandom numbers that are the same in each run (splitmix64).
#[derive(Debug, Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

/// The content that users send: the same bytes over and over, with a period that is no multiple of any frame size.
const PERIOD: usize = 65_521;
static CONTENT: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut random = Random(1);
    (0..PERIOD).map(|_| random.next() as u8).collect()
});

/// Up to `len` bytes of the content from an offset on; `salt` differs by stream and direction.
pub(crate) fn content(salt: u64, offset: u64, len: usize) -> &'static [u8] {
    let start = ((offset + salt * 7_919) % PERIOD as u64) as usize;
    &CONTENT[start..start + len.min(PERIOD - start)]
}

/// The actions of one end on a stream.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) send: u64,
    pub(crate) finish: bool,
    pub(crate) reads: bool,
    pub(crate) answer: Answer,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Opened,
    Failed,
    None,
}

impl Plan {
    pub(crate) fn send(bytes: u64) -> Self {
        Self { send: bytes, finish: true, reads: true, answer: Answer::Opened }
    }

    pub(crate) fn unread(bytes: u64) -> Self {
        Self { reads: false, ..Self::send(bytes) }
    }

    /// Commands in the server name of OPEN: "respond N", "stall N" (sends, and never reads), "fail", "silent".
    fn of_server(name: &str) -> Self {
        let (word, bytes) = name.split_once(' ').unwrap_or((name, "0"));
        let plan = Self::send(bytes.parse().unwrap());
        match word {
            "stall" => Self { reads: false, ..plan },
            "fail" => Self { answer: Answer::Failed, ..plan },
            "silent" => Self { answer: Answer::None, ..plan },
            _ => plan,
        }
    }
}

/// A user of a stream, which reads and writes only when the session reports readiness.
#[derive(Debug)]
pub(crate) struct User {
    pub(crate) plan: Plan,
    pub(crate) sent: u64,
    pub(crate) received: u64,
    finished: bool,
    readable: bool,
    writable: bool,
    salt: u64,
    pub(crate) end: Option<Result<(), StreamError>>,
    pub(crate) end_at: Option<Instant>,
    pub(crate) write_error: Option<StreamError>,
    pub(crate) closed: bool,
}

impl User {
    fn new(plan: Plan, salt: u64, writable: bool) -> Self {
        Self {
            plan,
            sent: 0,
            received: 0,
            finished: false,
            readable: false,
            writable,
            salt,
            end: None,
            end_at: None,
            write_error: None,
            closed: false,
        }
    }

    fn drive(&mut self, session: &mut Session, id: StreamId, now: Instant) {
        while self.writable && !self.finished && self.sent < self.plan.send {
            let left = usize::try_from(self.plan.send - self.sent).unwrap();
            let data = content(self.salt, self.sent, left);
            match session.write(id, data) {
                Ok(taken) => {
                    self.sent += taken as u64;
                    self.writable = taken == data.len();
                }
                Err(error) => {
                    self.write_error = Some(error);
                    self.writable = false;
                }
            }
        }
        if self.writable && self.plan.finish && !self.finished && self.sent == self.plan.send {
            session.finish(id);
            self.finished = true;
        }
        let mut buf = [0; 20_000];
        while self.readable && self.plan.reads && self.end.is_none() {
            match session.read(id, &mut buf, now) {
                Ok(Read::Bytes(len)) => self.check(&buf[..len]),
                Ok(Read::Blocked) => self.readable = false,
                Ok(Read::End) => self.ends(Ok(()), now),
                Err(error) => self.ends(Err(error), now),
            }
        }
    }

    /// The received bytes are those that the other end's user sent, in order.
    fn check(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            let expected = content(self.salt + 1 - 2 * (self.salt % 2), self.received, data.len());
            let (front, rest) = data.split_at(expected.len());
            assert!(front == expected, "the bytes at {} came out of order or changed", self.received);
            self.received += front.len() as u64;
            data = rest;
        }
    }

    fn ends(&mut self, how: Result<(), StreamError>, now: Instant) {
        self.end = Some(how);
        self.end_at = Some(now);
    }
}

/// One end: a session and the users of the session's streams.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) session: Session,
    pub(crate) users: BTreeMap<StreamId, User>,
    /// All events but readable and writable.
    pub(crate) events: Vec<Event>,
}

impl Host {
    fn new(session: Session) -> Self {
        Self { session, users: BTreeMap::new(), events: Vec::new() }
    }

    /// Takes the events and lets every user act.
    pub(crate) fn drive(&mut self, now: Instant) {
        loop {
            while let Some(event) = self.session.poll_event() {
                self.on_event(event, now);
            }
            for (&id, user) in &mut self.users {
                user.drive(&mut self.session, id, now);
            }
            match self.session.poll_event() {
                Some(event) => self.on_event(event, now),
                None => return,
            }
        }
    }

    fn on_event(&mut self, event: Event, now: Instant) {
        match &event {
            Event::AttachRequested(attach) => {
                self.session.accept_attach(attach.tunnel, "https://wandering-shape-7752.localhost".to_owned());
            }
            Event::StreamOpen(id, open) => {
                let plan = Plan::of_server(&open.server_name);
                match plan.answer {
                    Answer::Opened => self.session.opened(*id),
                    Answer::Failed => {
                        let failure = OpenFailure::new(FailureReason::Refused, "connection refused by 127.0.0.1:8080");
                        self.session.failed(*id, failure);
                    }
                    Answer::None => {}
                }
                let user = User::new(plan.clone(), 2 * u64::from(id.0) + 1, plan.answer == Answer::Opened);
                if plan.answer != Answer::Failed {
                    self.users.insert(*id, user);
                }
            }
            Event::Readable(id) => self.user(*id, |user| user.readable = true),
            Event::Writable(id) => self.user(*id, |user| user.writable = true),
            Event::StreamFailed(id, failure) => {
                let failure = StreamError::Failed(failure.clone());
                self.user(*id, |user| user.ends(Err(failure), now));
                self.session.reset(*id, ResetCode::Cancelled);
            }
            Event::StreamReset(id, code) => {
                let error = StreamError::Reset(*code);
                self.user(*id, |user| {
                    user.write_error = Some(error);
                    user.readable = true;
                });
            }
            Event::StreamClosed(id) => self.user(*id, |user| user.closed = true),
            Event::Down(_) | Event::Refused(_) => {
                for user in self.users.values_mut() {
                    user.readable = true;
                }
            }
            _ => {}
        }
        if !matches!(event, Event::Readable(_) | Event::Writable(_)) {
            self.events.push(event);
        }
    }

    fn user(&mut self, id: StreamId, act: impl FnOnce(&mut User)) {
        if let Some(user) = self.users.get_mut(&id) {
            act(user);
        }
    }

    /// The reader of a stalled stream begins to read.
    pub(crate) fn start_reading(&mut self, id: StreamId) {
        self.user(id, |user| user.plan.reads = true);
    }

    pub(crate) fn has(&self, wanted: impl Fn(&Event) -> bool) -> bool {
        self.events.iter().any(wanted)
    }
}

/// One direction of the link.
#[derive(Debug)]
struct Direction {
    in_flight: VecDeque<(Instant, Vec<u8>)>,
    busy_until: Instant,
    /// Whether all sent bytes are lost, as with a dead peer.
    cut: bool,
    /// Everything that was delivered, in its original pieces.
    delivered: Vec<Vec<u8>>,
}

/// Properties of the link, the same both ways.
#[derive(Debug, Clone)]
pub(crate) struct LinkConfig {
    /// One-way delay.
    pub(crate) delay: Duration,
    pub(crate) rate_bytes_per_s: u64,
    /// The most bytes that may wait to be sent below the session.
    pub(crate) queue_bytes: u64,
    /// Whether sent bytes are cut into random pieces.
    pub(crate) pieces: bool,
    pub(crate) seed: u64,
    pub(crate) session: SessionConfig,
}

impl Default for LinkConfig {
    fn default() -> Self {
        Self {
            delay: Duration::from_millis(5),
            rate_bytes_per_s: 100_000_000,
            queue_bytes: 32_768,
            pieces: false,
            seed: 1,
            session: SessionConfig::default(),
        }
    }
}

/// Two ends and the link between them.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) edge: Host,
    pub(crate) connector: Host,
    pub(crate) start: Instant,
    pub(crate) now: Instant,
    config: LinkConfig,
    random: Random,
    to_edge: Direction,
    to_connector: Direction,
    /// Whether delivered bytes are recorded.
    pub(crate) record: bool,
}

impl Pair {
    pub(crate) fn new(config: LinkConfig) -> Self {
        let now = Instant::now();
        let mut connector = Session::connector(hello(), SessionConfig::default(), now);
        connector.attach(attach());
        let edge = Session::edge(config.session.clone(), [1; 16], [2; 32], now);
        let direction = || Direction { in_flight: VecDeque::new(), busy_until: now, cut: false, delivered: Vec::new() };
        Self {
            edge: Host::new(edge),
            connector: Host::new(connector),
            start: now,
            now,
            random: Random(config.seed),
            config,
            to_edge: direction(),
            to_connector: direction(),
            record: false,
        }
    }

    /// Two ends with the tunnel attached.
    pub(crate) fn attached(config: LinkConfig) -> Self {
        let mut pair = Self::new(config);
        pair.run_until(Duration::from_secs(5), |pair| pair.connector.has(|e| matches!(e, Event::Attached { .. })));
        pair
    }

    pub(crate) fn open(&mut self, server: &str, plan: Plan) -> StreamId {
        let id = self.edge.session.open(open(server)).unwrap();
        self.edge.users.insert(id, User::new(plan, 2 * u64::from(id.0), true));
        id
    }

    pub(crate) fn user(&self, id: StreamId) -> &User {
        &self.edge.users[&id]
    }

    pub(crate) fn origin(&self, id: StreamId) -> &User {
        &self.connector.users[&id]
    }

    pub(crate) fn cut(&mut self, to_edge: bool, to_connector: bool) {
        self.to_edge.cut |= to_edge;
        self.to_connector.cut |= to_connector;
    }

    /// The bytes that were delivered to the edge, and to the connector, in pieces.
    pub(crate) fn recorded(&self) -> (&[Vec<u8>], &[Vec<u8>]) {
        (&self.to_edge.delivered, &self.to_connector.delivered)
    }

    /// Lets both ends act at the present time, and puts their output on the link.
    pub(crate) fn act(&mut self) {
        self.edge.drive(self.now);
        self.connector.drive(self.now);
        let (config, now) = (&self.config, self.now);
        self.to_connector.transmit(&mut self.edge, config, now, &mut self.random);
        self.to_edge.transmit(&mut self.connector, config, now, &mut self.random);
        // A taken turn may have woken a writer.
        self.edge.drive(now);
        self.connector.drive(now);
    }

    /// Advances to the next event and lets both ends act; false if no event happens before `limit`.
    pub(crate) fn step(&mut self, limit: Instant) -> bool {
        let timers = [&self.edge, &self.connector].into_iter().filter_map(|host| host.session.poll_timeout());
        let moments = [
            self.to_edge.next_moment(&self.connector, &self.config, self.now),
            self.to_connector.next_moment(&self.edge, &self.config, self.now),
        ];
        let Some(next) = moments.into_iter().flatten().chain(timers.map(|(at, _)| at)).min() else {
            return false;
        };
        if next > limit {
            return false;
        }
        self.now = self.now.max(next);
        self.to_edge.deliver(&mut self.edge, self.now, self.record);
        self.to_connector.deliver(&mut self.connector, self.now, self.record);
        for host in [&mut self.edge, &mut self.connector] {
            if host.session.poll_timeout().is_some_and(|(at, _)| at <= self.now) {
                host.session.handle_timeout(self.now);
            }
        }
        self.act();
        true
    }

    /// Lets simulated time pass.
    pub(crate) fn run_for(&mut self, time: Duration) {
        let limit = self.now + time;
        self.act();
        while self.step(limit) {}
        self.now = limit;
    }

    /// Advances simulated time until the condition holds, and fails at the deadline.
    #[track_caller]
    pub(crate) fn run_until(&mut self, time: Duration, done: impl Fn(&Self) -> bool) {
        let limit = self.now + time;
        self.act();
        while !done(self) {
            assert!(
                self.step(limit) || done(self),
                "not so within {time:?}: {:?}, {:?}",
                self.edge.events,
                self.connector.events
            );
        }
    }

    /// Runs until the edge's user of the stream has received its end; returns the elapsed time.
    #[track_caller]
    pub(crate) fn run_until_end(&mut self, id: StreamId, time: Duration) -> Duration {
        let start = self.now;
        self.run_until(time, |pair| pair.user(id).end.is_some());
        self.now.duration_since(start)
    }

    /// The connection breaks: bytes in flight are lost, and both ends notice.
    pub(crate) fn lose_carrier(&mut self) {
        for host in [&mut self.edge, &mut self.connector] {
            host.session.carrier_lost();
            host.drive(self.now);
        }
    }
}

impl Direction {
    /// The time at which there is room below the session again, or a delivery arrives.
    fn next_moment(&self, from: &Host, config: &LinkConfig, now: Instant) -> Option<Instant> {
        let room_at = self.busy_until.checked_sub(config.time_for(config.queue_bytes)).unwrap_or(now);
        let sends_at = from.session.wants_transmit().then(|| room_at.max(now) + Duration::from_nanos(1));
        self.in_flight.front().map(|(at, _)| *at).into_iter().chain(sends_at).min()
    }

    fn transmit(&mut self, from: &mut Host, config: &LinkConfig, now: Instant, random: &mut Random) {
        while self.busy_until.saturating_duration_since(now) < config.time_for(config.queue_bytes) {
            let mut chunk = Vec::new();
            if from.session.poll_transmit(&mut chunk, 16_384, now) == 0 {
                assert!(!from.session.wants_transmit());
                return;
            }
            let mut rest = &chunk[..];
            while !rest.is_empty() {
                let len = if config.pieces { 1 + random.below(rest.len().min(5_000)) } else { rest.len() };
                let (piece, after) = rest.split_at(len);
                self.busy_until = self.busy_until.max(now) + config.time_for(len as u64);
                if !self.cut {
                    self.in_flight.push_back((self.busy_until + config.delay, piece.to_vec()));
                }
                rest = after;
            }
        }
    }

    fn deliver(&mut self, to: &mut Host, now: Instant, record: bool) {
        while let Some((_, piece)) = self.in_flight.pop_front_if(|(at, _)| *at <= now) {
            to.session.handle_input(&piece, now).expect("both ends keep to the protocol");
            if record {
                self.delivered.push(piece);
            }
        }
    }
}

impl LinkConfig {
    fn time_for(&self, bytes: u64) -> Duration {
        Duration::from_nanos(bytes * 1_000_000_000 / self.rate_bytes_per_s)
    }
}
