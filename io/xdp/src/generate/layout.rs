//! The maps of the generator, as the program reads them: packet/bpf/generate.h.

use std::{net::IpAddr, time::Duration};

use libbpf_rs::{MapCore as _, MapHandle, Object, OpenObject};
use sallyport_packet_model::generate::{AddressRange, BUCKETS, MAX_SIZES, Pace, Traffic, Transport};

use super::{Plan, Source};
use crate::{XdpError, error::asked, object};

/// The programs, compiled by build.rs; empty without clang.
static PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/generate.bpf.o"));
/// The most frames of a file.
pub const MAX_RECORDS: usize = 65_535;
/// The most bytes of such a frame.
pub const MAX_RECORD_BYTES: usize = 2_044;
/// The most senders of a run, which the last bits of its number tell apart.
pub const MAX_SENDERS: usize = 64;
/// The bytes of `struct plan`, `struct state` and `struct received`.
const PLAN_BYTES: usize = 248;
const STATE_BYTES: usize = 64;
const RECEIVED_BYTES: usize = RECEIVED_LATENCY + BUCKETS * 8;
/// Where the sizes of a plan end, and where the buckets of a receiver begin.
const PLAN_PERIOD: usize = 232;
const RECEIVED_LATENCY: usize = 56 + MAX_SENDERS * 8;

/// Whether this build has the generator.
#[must_use]
pub fn has_generator() -> bool {
    !PROGRAM.is_empty()
}

/// Opens the programs: only the named one will be loaded, with room for the frames of a file.
pub(super) fn load(function: &str, records: usize) -> Result<Object, XdpError> {
    let mut open: OpenObject = object::open_program(PROGRAM)?;
    for mut program in open.progs_mut() {
        let is_wanted = program.name() == function;
        program.set_autoload(is_wanted);
    }
    if let Some(mut map) = open.maps_mut().find(|map| map.name() == "records") {
        map.set_max_entries(records.clamp(1, MAX_RECORDS) as u32).map_err(asked("size the table of frames"))?;
    }
    object::load_program(open)
}

/// A map of the loaded programs, which other threads may read.
pub(super) fn map(object: &Object, name: &str) -> Result<MapHandle, XdpError> {
    let map = object.maps().find(|map| map.name() == name).ok_or(XdpError::NoProgram)?;
    MapHandle::try_from(&map).map_err(asked(format!("open the table {name}")))
}

/// The name of the program for this source.
pub(super) fn function_of(source: &Source) -> String {
    match source {
        Source::Records(_) => "send_recorded".to_owned(),
        Source::Traffic(traffic) => {
            let tag = if traffic.vlan.is_some() { "vlan_" } else { "" };
            let family = if traffic.dest.first.is_ipv6() { "v6" } else { "v4" };
            let above = if traffic.transport == Transport::Tcp { "tcp" } else { "udp" };
            format!("send_{tag}{family}_{above}")
        }
    }
}

/// The longest frame of this source, without the check sequence.
pub(super) fn longest(source: &Source) -> usize {
    match source {
        Source::Records(recording) => recording.frames.iter().map(Vec::len).max().unwrap_or_default(),
        Source::Traffic(traffic) => traffic.sizes.frames().max().unwrap_or_default().into(),
    }
}

fn words(range: &AddressRange) -> [u32; 4] {
    match range.first {
        IpAddr::V4(first) => [0, 0, 0, first.to_bits()],
        IpAddr::V6(first) => {
            let bits = first.to_bits();
            [96, 64, 32, 0].map(|shift| (bits >> shift) as u32)
        }
    }
}

/// `struct plan`.
pub(super) fn plan_bytes(plan: &Plan) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(PLAN_BYTES);
    bytes.extend(plan.count.unwrap_or(0).to_ne_bytes());
    bytes.extend(nanoseconds(plan.duration.unwrap_or_default()).to_ne_bytes());
    let mut put = |word: u32| bytes.extend(word.to_ne_bytes());
    put(plan.run);
    put(longest(&plan.source) as u32);
    match &plan.source {
        Source::Traffic(traffic) => traffic_bytes(traffic, &mut bytes),
        Source::Records(recording) => {
            bytes.resize(80, 0);
            bytes.extend([0; 6]);
            bytes.extend((recording.frames.len().min(MAX_RECORDS) as u16).to_ne_bytes());
        }
    }
    let (from, to) = plan.macs.unwrap_or_default();
    bytes.extend(from);
    bytes.extend(to);
    bytes.extend(u32::from(plan.macs.is_some()).to_ne_bytes());
    if let Source::Traffic(traffic) = &plan.source {
        bytes.extend(traffic.sizes.frames().take(MAX_SIZES).flat_map(u16::to_ne_bytes));
    }
    bytes.resize(PLAN_PERIOD, 0);
    let (period, first_flow) = match &plan.source {
        Source::Records(recording) => (plan.speed.map_or(0, |speed| recording.period(speed)), 0),
        Source::Traffic(traffic) => (0, traffic.first_flow),
    };
    bytes.extend(period.to_ne_bytes());
    bytes.extend(first_flow.to_ne_bytes());
    bytes.resize(PLAN_BYTES, 0);
    bytes
}

fn traffic_bytes(traffic: &Traffic, bytes: &mut Vec<u8>) {
    let spans = [traffic.source.span, traffic.dest.span, traffic.source_ports.span, traffic.dest_ports.span];
    let words = [traffic.flows, traffic.step].into_iter().chain(spans);
    bytes.extend(words.chain(words_of(traffic)).flat_map(u32::to_ne_bytes));
    let count = traffic.sizes.sizes().len() as u16;
    let halves = [traffic.source_ports.first, traffic.dest_ports.first, traffic.vlan.unwrap_or(0), count];
    bytes.extend(halves.into_iter().flat_map(u16::to_ne_bytes));
}

fn words_of(traffic: &Traffic) -> impl Iterator<Item = u32> {
    words(&traffic.source).into_iter().chain(words(&traffic.dest))
}

pub(super) fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// `struct pace`.
pub(super) fn pace_bytes(pace: Pace) -> Vec<u8> {
    [pace.frame, pace.byte].into_iter().flat_map(u64::to_ne_bytes).collect()
}

/// `struct recorded`.
pub(super) fn record_bytes(frame: &[u8], at: u64) -> Vec<u8> {
    let mut bytes = at.to_ne_bytes().to_vec();
    bytes.extend((frame.len() as u32).to_ne_bytes());
    bytes.extend(frame);
    bytes.resize(12 + MAX_RECORD_BYTES, 0);
    bytes
}

fn long(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_ne_bytes)
}

/// `struct state`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct State {
    pub(super) start: u64,
    pub(super) sent: u64,
    pub(super) bytes: u64,
    pub(super) last: u64,
    pub(super) is_done: bool,
}

impl State {
    pub(super) fn of_bytes(bytes: &[u8]) -> Option<Self> {
        (bytes.len() == STATE_BYTES).then(|| Self {
            start: long(bytes, 0),
            sent: long(bytes, 16),
            bytes: long(bytes, 24),
            last: long(bytes, 32),
            is_done: long(bytes, 48) as u32 != 0,
        })
    }
}

/// `struct received` of a processor.
pub(super) struct Received {
    pub(super) packets: u64,
    pub(super) bytes: u64,
    pub(super) reordered: u64,
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) longest: u64,
    pub(super) sum: u64,
    pub(super) buckets: Vec<u64>,
}

impl Received {
    pub(super) fn of_bytes(bytes: &[u8]) -> Option<Self> {
        (bytes.len() == RECEIVED_BYTES).then(|| Self {
            packets: long(bytes, 0),
            bytes: long(bytes, 8),
            reordered: long(bytes, 16),
            first: long(bytes, 24),
            last: long(bytes, 32),
            longest: long(bytes, 40),
            sum: long(bytes, 48),
            buckets: (0..BUCKETS).map(|bucket| long(bytes, RECEIVED_LATENCY + bucket * 8)).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use sallyport_packet_model::generate::{PortRange, Recording, Sizes};

    use super::*;

    #[test]
    fn a_plan_has_the_bytes_of_the_program() {
        let traffic = Traffic {
            transport: Transport::Tcp,
            source: "10.0.0.1".parse().unwrap(),
            dest: "192.0.2.0/24".parse().unwrap(),
            source_ports: PortRange { first: 1_024, span: 7 },
            dest_ports: PortRange::one(53),
            flows: 9,
            step: 2,
            first_flow: 77,
            vlan: Some(100),
            sizes: Sizes::of(&[68, 1_522]).unwrap(),
        };
        let source = Source::Traffic(traffic);
        assert_eq!((function_of(&source).as_str(), longest(&source)), ("send_vlan_v4_tcp", 1_518));
        let macs = Some(([1; 6], [2; 6]));
        let plan = Plan { source, macs, run: 0x0102_0304, count: Some(3), ..Plan::default() };
        let bytes = plan_bytes(&plan);
        let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        let half = |at: usize| u16::from_ne_bytes(bytes[at..at + 2].try_into().unwrap());
        assert_eq!(
            (bytes.len(), long(&bytes, 0), word(16), word(20), word(24), word(28)),
            (248, 3, 0x0102_0304, 1_518, 9, 2)
        );
        assert_eq!((word(36), word(60), half(80), half(84), half(86)), (256, 0x0a00_0001, 1_024, 100, 2));
        assert_eq!((bytes[88], bytes[94], word(100), half(104), half(106), half(108)), (1, 2, 1, 64, 1_518, 0));
        assert_eq!((long(&bytes, 232), word(240)), (0, 77));
        let recording = Recording::new((0..5).map(|number| (number * 1_000, vec![0; 60])));
        let replay = Plan { source: Source::Records(recording.into()), macs: None, speed: Some(2.0), ..plan };
        let bytes = plan_bytes(&replay);
        assert_eq!((bytes.len(), bytes[86], bytes[100], long(&bytes, 232)), (248, 5, 0, 2_500));
        let record = record_bytes(&[7; 60], 1_000);
        assert_eq!((record.len(), long(&record, 0), record[8], record[12]), (2_056, 1_000, 60, 7));
    }
}
