//! Two ends and links between them, on virtual time: each link has a delay, a rate, a queue, losses, jitter and an MTU.
//! The edge sees each link at an address, answers to it, and challenges new addresses, as the driver in `io/` does it.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    time::{Duration, Instant},
};

use bytes::Bytes;
use sallyport_multipath::{Association, AssociationId, Config, Event, PathId, PathSettings, Secret, Setup, Side};

/// Bytes of IP and UDP headers that a link carries besides a payload.
const HEADERS: usize = 28;

pub(crate) fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Reproducible randomness (SplitMix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Whether something of this probability happens.
    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        (self.next() >> 11) as f64 / ((1u64 << 53) as f64) < probability
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// A link, the same in both directions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Link {
    pub(crate) delay: Duration,
    /// Bits a second.
    pub(crate) rate: f64,
    pub(crate) queue_bytes: usize,
    pub(crate) loss: f64,
    /// One packet of ten comes later by up to this much.
    pub(crate) jitter: Duration,
    pub(crate) max_payload: usize,
    /// A link that is not up swallows everything and says nothing.
    pub(crate) is_up: bool,
    /// The chance that a packet comes twice, and that one of its bits is changed.
    pub(crate) doubled: f64,
    pub(crate) corrupted: f64,
    /// Where the edge sees the link. A link without an address of its own has the number of its path.
    pub(crate) address: Option<u16>,
}

impl Link {
    /// A link of so many Mbit/s, with a queue of 50 ms.
    pub(crate) fn new(mbits: f64, delay_ms: u64) -> Self {
        Self {
            delay: ms(delay_ms),
            rate: mbits * 1e6,
            queue_bytes: ((mbits * 1e6 / 8.0 * 0.05) as usize).max(30_000),
            loss: 0.0,
            jitter: Duration::ZERO,
            max_payload: 1472,
            is_up: true,
            doubled: 0.0,
            corrupted: 0.0,
            address: None,
        }
    }
}

/// The two ends, by index.
pub(crate) const CONNECTOR: usize = 0;
pub(crate) const EDGE: usize = 1;

/// What the ends exchange beyond the association: programs that send and receive datagrams.
pub(crate) trait Program {
    /// Sends what this end has to send now; returns when it wants to be called again.
    fn run(&mut self, end: usize, association: &mut Association, now: Instant) -> Option<Instant>;
    /// Takes a datagram.
    fn receive(&mut self, end: usize, datagram: Bytes, now: Instant);
}

/// When a packet arrives, its order, the end to which it goes, its bytes, and the address from which it comes.
type Arrival = (Instant, u64, usize, Vec<u8>, u16);

/// Where the edge sends packets of a path, and the last address that was validated.
#[derive(Debug, Clone, Copy)]
struct Route {
    address: u16,
    trusted: Option<u16>,
}

pub(crate) struct World {
    pub(crate) now: Instant,
    pub(crate) start: Instant,
    pub(crate) ends: [Association; 2],
    /// By the number of their path.
    pub(crate) links: BTreeMap<PathId, Link>,
    busy_until: BTreeMap<(usize, PathId), Instant>,
    on_the_way: BinaryHeap<Reverse<Arrival>>,
    packets: u64,
    routes: BTreeMap<PathId, Route>,
    /// Bytes that each address got from the edge, and that came from there.
    pub(crate) traffic: BTreeMap<u16, (u64, u64)>,
    /// How far the times of two packets may be in the wrong order.
    pub(crate) clock_jitter: Duration,
    pub(crate) random: Random,
    pub(crate) events: [Vec<(Duration, Event)>; 2],
    /// Headers of all packets that were sent: no two are equal, so no nonce is.
    pub(crate) nonces: Option<std::collections::HashSet<(usize, Vec<u8>)>>,
}

impl World {
    pub(crate) fn new(config: Config, links: &[Link]) -> Self {
        let now = Instant::now();
        let ids = [AssociationId([1; 8]), AssociationId([2; 8])];
        let end = |side, local: usize, remote: usize| {
            let setup = Setup { side, local: ids[local], remote: ids[remote], secret: Secret::new([7; 32]) };
            Association::new(config, &setup, now)
        };
        let mut world = Self {
            now,
            start: now,
            ends: [end(Side::Connector, 0, 1), end(Side::Edge, 1, 0)],
            links: BTreeMap::new(),
            busy_until: BTreeMap::new(),
            on_the_way: BinaryHeap::new(),
            packets: 0,
            routes: BTreeMap::new(),
            traffic: BTreeMap::new(),
            clock_jitter: Duration::ZERO,
            random: Random(1),
            events: [Vec::new(), Vec::new()],
            nonces: None,
        };
        for link in links {
            world.add(*link, PathSettings::default());
        }
        world
    }

    pub(crate) fn add(&mut self, link: Link, settings: PathSettings) -> PathId {
        let path = self.ends[CONNECTOR].add_path(settings, self.now).expect("there is room for the path");
        self.links.insert(path, link);
        path
    }

    pub(crate) fn link(&mut self, path: u16) -> &mut Link {
        self.links.get_mut(&PathId(path)).expect("the link is there")
    }

    /// Lets this much time pass.
    pub(crate) fn run(&mut self, duration: Duration, program: &mut impl Program) {
        let until = self.now + duration;
        loop {
            let mut next = until;
            for end in 0..2 {
                let wake = self.drive(end, program);
                next = wake.map_or(next, |wake| next.min(wake));
            }
            if let Some(Reverse((at, ..))) = self.on_the_way.peek() {
                next = next.min(*at);
            }
            // What is overdue must have been done.
            self.now = next.max(self.now);
            while self.on_the_way.peek().is_some_and(|Reverse((at, ..))| *at <= self.now) {
                let Some(Reverse((_, _, end, packet, from))) = self.on_the_way.pop() else { break };
                self.handle(end, packet, from);
            }
            if self.now >= until {
                return;
            }
        }
    }

    fn handle(&mut self, end: usize, mut packet: Vec<u8>, from: u16) {
        let jitter = self.clock_jitter.mul_f64(self.random.below(1000) as f64 / 1000.0);
        let now = self.now.checked_sub(jitter).unwrap_or(self.now);
        self.traffic.entry(from).or_default().1 += if end == EDGE { packet.len() as u64 } else { 0 };
        // Refusals are counted by the association.
        let Ok(arrival) = self.ends[end].handle(&mut packet, now) else { return };
        if end == CONNECTOR || !arrival.is_newest {
            return;
        }
        let before = self.routes.get(&arrival.path).copied();
        let is_validated = self.ends[EDGE].is_validated(arrival.path);
        let trusted = before.and_then(|route| if is_validated { Some(route.address) } else { route.trusted });
        if before.is_none_or(|route| route.address != from) {
            if trusted == Some(from) {
                self.ends[EDGE].set_validated(arrival.path);
            } else {
                let challenge = self.random.next().to_be_bytes();
                self.ends[EDGE].validate(arrival.path, challenge, packet.len(), now);
            }
        }
        self.routes.insert(arrival.path, Route { address: from, trusted });
    }

    /// Where the edge sees the link of this path.
    fn address(&self, path: PathId) -> u16 {
        self.links.get(&path).and_then(|link| link.address).unwrap_or(path.0)
    }

    /// The link by which a packet of this path travels, and the address of the connector's side.
    fn way(&mut self, end: usize, path: PathId, bytes: usize) -> Option<(PathId, u16)> {
        if end == CONNECTOR {
            return Some((path, self.address(path)));
        }
        let address = self.routes.get(&path)?.address;
        self.traffic.entry(address).or_default().0 += bytes as u64;
        let others = self.links.keys().copied();
        let link = std::iter::once(path).chain(others).find(|&link| self.address(link) == address)?;
        Some((link, address))
    }

    /// Runs one end until it has nothing more to do; when it wants to run again.
    fn drive(&mut self, end: usize, program: &mut impl Program) -> Option<Instant> {
        let mut rounds = 0;
        loop {
            rounds += 1;
            assert!(rounds < 100_000, "end {end} never waits: {:?}", self.ends[end].poll_timeout());
            if self.ends[end].poll_timeout().is_some_and(|at| at <= self.now) {
                self.ends[end].handle_timeout(self.now);
            }
            while let Some(datagram) = self.ends[end].receive() {
                program.receive(end, datagram, self.now);
            }
            let wake = program.run(end, &mut self.ends[end], self.now);
            while let Some(transmit) = self.ends[end].poll_transmit(self.now) {
                self.transmit(end, transmit.path, transmit.bytes);
            }
            while let Some(event) = self.ends[end].poll_event() {
                self.events[end].push((self.now - self.start, event));
            }
            let timeout = self.ends[end].poll_timeout();
            let next = timeout.into_iter().chain(wake).min();
            if next.is_none_or(|at| at > self.now) {
                return next;
            }
        }
    }

    fn transmit(&mut self, end: usize, path: PathId, packet: Vec<u8>) {
        if let Some(nonces) = &mut self.nonces {
            assert!(nonces.insert((end, packet[9..17].to_vec())), "a nonce was used twice");
        }
        let Some((path, address)) = self.way(end, path, packet.len()) else { return };
        let Some(&link) = self.links.get(&path) else { return };
        if !link.is_up || packet.len() > link.max_payload {
            return;
        }
        let serialise = |bytes: usize| Duration::from_secs_f64(bytes as f64 * 8.0 / link.rate);
        let busy = self.busy_until.entry((end, path)).or_insert(self.now);
        let start = (*busy).max(self.now);
        if start - self.now > serialise(link.queue_bytes) {
            return;
        }
        *busy = start + serialise(packet.len() + HEADERS);
        let mut at = *busy + link.delay;
        if self.random.chance(link.loss) {
            return;
        }
        if !link.jitter.is_zero() && self.random.chance(0.1) {
            at += link.jitter.mul_f64((self.random.below(1000) as f64) / 1000.0);
        }
        let mut packet = packet;
        if self.random.chance(link.doubled) {
            self.enqueue(at + ms(1), 1 - end, packet.clone(), address);
        }
        if self.random.chance(link.corrupted) {
            let bit = self.random.below(packet.len() as u64 * 8) as usize;
            packet[bit / 8] ^= 1 << (bit % 8);
        }
        self.enqueue(at, 1 - end, packet, address);
    }

    fn enqueue(&mut self, at: Instant, end: usize, packet: Vec<u8>, address: u16) {
        self.packets += 1;
        self.on_the_way.push(Reverse((at, self.packets, end, packet, address)));
    }
}

/// Sends datagrams from the connector to the edge at a steady rate, or as fast as there is room; checks their order.
pub(crate) struct Stream {
    pub(crate) bytes: usize,
    /// Bits a second; `None` sends whenever there is room.
    pub(crate) rate: Option<f64>,
    pub(crate) next_at: Option<Instant>,
    pub(crate) offered: u64,
    pub(crate) sent: u64,
    pub(crate) received: u64,
    pub(crate) received_bytes: u64,
    last: Option<u64>,
    last_at: Option<Instant>,
    /// The longest time without a datagram.
    pub(crate) stall: Duration,
}

impl Stream {
    pub(crate) fn new(bytes: usize, rate: Option<f64>) -> Self {
        Self {
            bytes,
            rate,
            next_at: None,
            offered: 0,
            sent: 0,
            received: 0,
            received_bytes: 0,
            last: None,
            last_at: None,
            stall: Duration::ZERO,
        }
    }

    /// Begins to count anew, in the middle of the stream.
    pub(crate) fn restart(&mut self) {
        (self.offered, self.sent, self.received, self.received_bytes) = (0, 0, 0, 0);
        self.stall = Duration::ZERO;
    }

    /// Mbit/s that arrived in this time.
    pub(crate) fn mbits(&self, duration: Duration) -> f64 {
        self.received_bytes as f64 * 8.0 / 1e6 / duration.as_secs_f64()
    }

    fn datagram(&self, number: u64) -> Bytes {
        let mut datagram = vec![(number % 251) as u8; self.bytes];
        datagram[..8].copy_from_slice(&number.to_be_bytes());
        Bytes::from(datagram)
    }
}

impl Program for Stream {
    fn run(&mut self, end: usize, association: &mut Association, now: Instant) -> Option<Instant> {
        if end == EDGE {
            return None;
        }
        let Some(rate) = self.rate else {
            while association.has_room() {
                let number = self.last.map_or(0, |last| last + 1).max(association.counts().sent_datagrams);
                if association.send(self.datagram(number), now).is_err() {
                    break;
                }
                self.sent += 1;
            }
            return None;
        };
        let mut at = self.next_at.unwrap_or(now);
        while at <= now {
            let number = association.counts().sent_datagrams;
            self.offered += 1;
            self.sent += u64::from(association.send(self.datagram(number), now).is_ok());
            at += Duration::from_secs_f64(self.bytes as f64 * 8.0 / rate);
        }
        self.next_at = Some(at);
        Some(at)
    }

    fn receive(&mut self, end: usize, datagram: Bytes, now: Instant) {
        assert_eq!(end, EDGE);
        assert_eq!(datagram.len(), self.bytes);
        let number = u64::from_be_bytes(datagram[..8].try_into().expect("eight bytes"));
        assert!(self.last.is_none_or(|last| number > last), "{number} after {:?}", self.last);
        assert!(datagram[8..].iter().all(|&byte| u64::from(byte) == number % 251), "a datagram was changed");
        self.stall = self.stall.max(self.last_at.map_or(Duration::ZERO, |at| now - at));
        self.last = Some(number);
        self.last_at = Some(now);
        self.received += 1;
        self.received_bytes += datagram.len() as u64;
    }
}
