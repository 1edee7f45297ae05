//! What the fuzzer does with an association: the peer has the keys, seals what it likes, and repeats what it sent.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use aws_lc_rs::{
    aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey},
    hkdf::{HKDF_SHA256, Salt},
};
use bytes::Bytes;
use sallyport_multipath::{
    Association, AssociationId, Config, HEADER_BYTE, HEADER_BYTES, Header, PathId, PathSettings, Refused, Secret,
    Setup, Side, TAG_BYTES,
};

const SECRET: [u8; 32] = [7; 32];
const VICTIM: AssociationId = AssociationId([1; 8]);
const PEER: AssociationId = AssociationId([2; 8]);
/// Small bounds, so that few bytes reach them.
const CONFIG: Config =
    Config { send_queue_bytes: 20_000, reorder_wait: Duration::from_millis(500), reorder_bytes: 8_000 };
/// The paths of one association, at most.
const MAX_PATHS: usize = 16;
/// Packets that one operation of the fuzzer may make an association send: what waits, and two for each path.
const MAX_PACKETS: usize = 400;

/// A peer that seals packets by itself, as the format of packets is described, and has no other rule.
pub(crate) struct Forger {
    key: LessSafeKey,
    association: AssociationId,
}

impl Forger {
    /// The peer of the end that is `victim`.
    pub(crate) fn new(victim: Side) -> Self {
        let label: &[u8] = match victim {
            Side::Edge => b"sallyport multipath 1 connector",
            Side::Connector => b"sallyport multipath 1 edge",
        };
        let pseudorandom = Salt::new(HKDF_SHA256, b"").extract(&SECRET);
        let info = [label];
        let key = pseudorandom.expand(&info, &CHACHA20_POLY1305).map(UnboundKey::from);
        Self { key: LessSafeKey::new(key.expect("a key is short")), association: VICTIM }
    }

    pub(crate) fn seal(&self, path: u16, number: u64, frames: &[u8]) -> Vec<u8> {
        let mut packet = vec![HEADER_BYTE];
        packet.extend_from_slice(&self.association.0);
        packet.extend_from_slice(&path.to_be_bytes());
        packet.extend_from_slice(&number.to_be_bytes()[2..]);
        let mut nonce = [0; 12];
        nonce[2..4].copy_from_slice(&path.to_be_bytes());
        nonce[4..].copy_from_slice(&number.to_be_bytes());
        let mut body = frames.to_vec();
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = self.key.seal_in_place_separate_tag(nonce, Aad::from(&packet), &mut body);
        packet.extend_from_slice(&body);
        packet.extend_from_slice(tag.expect("the packet is short").as_ref());
        packet
    }
}

/// The end that is attacked, without paths.
pub(crate) fn victim(side: Side, config: Config, now: Instant) -> Association {
    let setup = Setup { side, local: VICTIM, remote: PEER, secret: Secret::new(SECRET) };
    Association::new(config, &setup, now)
}

/// Takes bytes from the front; zero when none are left.
struct Input<'d>(&'d [u8]);

impl<'d> Input<'d> {
    fn take(&mut self, count: usize) -> &'d [u8] {
        let (front, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        front
    }

    fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }

    /// As many bytes as the next one says.
    fn counted(&mut self) -> &'d [u8] {
        let count = self.byte();
        self.take(count.into())
    }
}

struct Case {
    victim: Association,
    forger: Forger,
    now: Instant,
    /// The greatest number of each path.
    numbers: BTreeMap<u16, u64>,
    accepted: BTreeSet<(u16, u64)>,
    last: Vec<u8>,
    /// Bytes that may still go to an address that is not validated.
    allowance: BTreeMap<PathId, usize>,
}

/// The first byte chooses the end that is attacked. Then each byte is an operation, with arguments.
pub(crate) fn multipath_packet(data: &[u8]) {
    let mut input = Input(data);
    let side = if input.byte() % 2 == 0 { Side::Edge } else { Side::Connector };
    let now = Instant::now();
    let mut case = Case {
        victim: victim(side, CONFIG, now),
        forger: Forger::new(side),
        now,
        numbers: BTreeMap::new(),
        accepted: BTreeSet::new(),
        last: Vec::new(),
        allowance: BTreeMap::new(),
    };
    if side == Side::Connector {
        case.victim.add_path(PathSettings::default(), now).expect("the first path has room");
    }
    while !input.0.is_empty() {
        case.operate(&mut input);
        case.settle();
    }
}

impl Case {
    fn operate(&mut self, input: &mut Input<'_>) {
        match input.byte() % 8 {
            // A packet of the peer with the next number of its path, or with another one.
            operation @ 0..=2 => {
                let path = u16::from(input.byte() % 20);
                let next = self.numbers.get(&path).map_or(0, |number| number + 1);
                let number = if operation == 2 { next + u64::from(input.byte()) } else { next };
                let frames = input.counted();
                self.last = self.forger.seal(path, number, frames);
                self.deliver();
            }
            3 => self.deliver(),
            4 => {
                self.last = input.counted().to_vec();
                self.deliver();
            }
            5 => {
                let length = usize::from(input.byte()) * 16;
                // A full queue refuses, and a closed association too.
                let _ = self.victim.send(Bytes::from(vec![1; length]), self.now);
            }
            6 => self.now += Duration::from_micros(1 << (input.byte() % 26)),
            _ => self.decide(input.byte(), PathId(u16::from(input.byte() % 20))),
        }
    }

    /// Does what the program of the attacked end may do with a path.
    fn decide(&mut self, what: u8, path: PathId) {
        let now = self.now;
        match what % 6 {
            // The edge adds none, and the connector not too many.
            0 => drop(self.victim.add_path(PathSettings::default(), now)),
            1 => self.victim.remove_path(path, now),
            2 => {
                self.victim.validate(path, [what; 8], usize::from(what) * 4, now);
                self.allowance.insert(path, usize::from(what) * 12);
            }
            3 => self.victim.set_validated(path),
            4 => {
                let (is_available, is_metered) = (what & 64 == 0, what & 128 == 0);
                let settings = PathSettings { is_available, is_metered, weight: what, ..PathSettings::default() };
                self.victim.set_path(path, settings, now);
            }
            _ if what > 250 => self.victim.close(now),
            _ => {}
        }
    }

    fn deliver(&mut self) {
        let header = Header::parse(&self.last);
        let bytes = self.last.len();
        match self.victim.handle(&mut self.last.clone(), self.now) {
            Ok(arrival) => {
                let header = header.expect("a packet without a header is foreign");
                assert_eq!(arrival.path, header.path);
                assert!(self.accepted.insert((header.path.0, header.number)), "{header:?} counted twice");
                let number = self.numbers.entry(header.path.0).or_insert(header.number);
                assert_eq!(arrival.is_newest, header.number >= *number);
                *number = header.number.max(*number);
                let allowance = self.allowance.entry(header.path).or_default();
                *allowance += if arrival.is_newest { 3 * bytes } else { 0 };
            }
            Err(Refused::Foreign | Refused::Unsealed | Refused::Malformed | Refused::NoPath) => {}
            Err(Refused::Replayed) => assert!(header.is_some()),
        }
    }

    /// Does what a driver does, and checks that all of it ends.
    fn settle(&mut self) {
        if self.victim.poll_timeout().is_some_and(|at| at <= self.now) {
            self.victim.handle_timeout(self.now);
        }
        let mut packets = 0;
        while let Some(transmit) = self.victim.poll_transmit(self.now) {
            packets += 1;
            assert!(packets <= MAX_PACKETS, "the association never stops to send");
            let header = Header::parse(&transmit.bytes).expect("a packet has a header");
            assert!(header.association == PEER && header.path == transmit.path);
            assert!((HEADER_BYTES + TAG_BYTES..=1472).contains(&transmit.bytes.len()));
            if !self.victim.is_validated(transmit.path) {
                let allowance = self.allowance.entry(transmit.path).or_default();
                *allowance = allowance.checked_sub(transmit.bytes.len()).expect("too much for an unknown address");
            }
        }
        let datagrams = std::iter::from_fn(|| self.victim.receive()).map(|datagram| datagram.len());
        assert!(datagrams.sum::<usize>() <= CONFIG.reorder_bytes + 70_000, "more waited than the bound");
        while self.victim.poll_event().is_some() {}
        assert!(self.victim.paths().count() <= MAX_PATHS);
        let stats = self.victim.paths().filter_map(|path| self.victim.path_stats(path));
        let in_flight: u64 = stats.map(|stats| stats.in_flight).sum();
        assert!(in_flight <= 1 << 20, "{in_flight} bytes in flight");
        let next = self.victim.poll_timeout();
        assert!(next.is_none_or(|at| at > self.now), "the driver would run without end");
    }
}
