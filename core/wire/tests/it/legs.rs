//! Legs: every order in which frames of both ends can cross on the link. Both ends must agree at the end.

use std::collections::{HashSet, VecDeque};

use sallyport_wire::{
    FailureReason, FrameHeader, FrameType, LegInput, LegState, OpenFailure, Refusal, ResetCode, Side, Violation,
    leg::MAX_DISCARDED_BYTES, message::reset_frame,
};

use crate::link::open;

/// The most frames in flight in one direction.
const MAX_ON_THE_WAY: usize = 6;
/// How many streams the leg carries, one after another.
const MAX_STREAMS: u32 = 3;
/// How many DATA frames each side sends on each stream.
const MAX_DATA: u8 = 2;

/// A frame in flight, marked with the stream of its sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Sent {
    kind: FrameType,
    serial: u32,
}

/// Both ends and the link between them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    ends: [LegState; 2],
    /// Frames in flight from each end.
    ways: [VecDeque<Sent>; 2],
    data_sent: [u8; 2],
}

const KINDS: [FrameType; 6] =
    [FrameType::Open, FrameType::Opened, FrameType::Failed, FrameType::Data, FrameType::Fin, FrameType::Reset];

fn payload(frame: Sent) -> Vec<u8> {
    let mut out = Vec::new();
    match frame.kind {
        FrameType::Open => open("x").encode(&mut out),
        FrameType::Failed => OpenFailure::new(FailureReason::Refused, "nothing listens").encode(&mut out),
        FrameType::Reset => out.extend_from_slice(&reset_frame(frame.serial, ResetCode::Timeout)),
        _ => return Vec::new(),
    }
    out.split_off(4)
}

impl World {
    fn new() -> Self {
        Self {
            ends: [LegState::new(Side::Edge), LegState::new(Side::Connector)],
            ways: [VecDeque::new(), VecDeque::new()],
            data_sent: [0; 2],
        }
    }

    /// The state after this end has sent this frame; `None` if the end may not.
    fn after_sending(&self, end: usize, kind: FrameType) -> Option<Self> {
        let mut world = self.clone();
        let full = self.ways[end].len() >= MAX_ON_THE_WAY;
        let enough = match kind {
            FrameType::Open => self.ends[end].serial() >= MAX_STREAMS,
            FrameType::Data => self.data_sent[end] >= MAX_DATA,
            _ => false,
        };
        if full || enough || world.ends[end].on_send(kind).is_err() {
            return None;
        }
        match kind {
            FrameType::Open => world.data_sent[end] = 0,
            FrameType::Data => world.data_sent[end] += 1,
            _ => {}
        }
        world.ways[end].push_back(Sent { kind, serial: world.ends[end].serial() });
        Some(world)
    }

    /// The state after the oldest frame from this end has arrived; `None` without such a frame.
    fn after_arrival(&self, from: usize) -> Option<Self> {
        let mut world = self.clone();
        let frame = world.ways[from].pop_front()?;
        let to = 1 - from;
        let payload = payload(frame);
        let len = if frame.kind == FrameType::Data { 1 } else { payload.len() as u32 };
        let before = &self.ends[to];
        let input = world.ends[to]
            .on_receive(FrameHeader { kind: frame.kind, len }, &payload)
            .unwrap_or_else(|violation| panic!("{violation}: {frame:?} arrives in {self:?}"));
        let of_this_stream = frame.serial == world.ends[to].serial();
        match input {
            LegInput::Ignore => {
                assert!(frame.serial < before.serial() || before.is_idle(), "{frame:?} ignored in {self:?}");
                assert_eq!(world.ends[to], *before, "what is ignored changes nothing");
            }
            LegInput::Deliver => {
                assert!(of_this_stream && before.may_read(), "{frame:?} leaked into another stream: {self:?}");
            }
            LegInput::Discard => assert!(of_this_stream && before.sent_terminal() && !before.may_read()),
            LegInput::Opening(_) => {
                assert!(of_this_stream && before.is_idle());
                world.data_sent[to] = 0;
            }
            _ => assert!(of_this_stream && !before.is_idle(), "{frame:?} leaked into another stream: {self:?}"),
        }
        Some(world)
    }

    /// No frame is in flight: both ends must report the same state of the stream.
    fn check_agreement(&self) {
        let [edge, connector] = &self.ends;
        assert_eq!(edge.serial(), connector.serial(), "{self:?}");
        assert_eq!(edge.is_idle(), connector.is_idle(), "{self:?}");
        assert_eq!(edge.is_opened(), connector.is_opened(), "{self:?}");
        assert_eq!(edge.sent_terminal(), connector.received_terminal(), "{self:?}");
        assert_eq!(connector.sent_terminal(), edge.received_terminal(), "{self:?}");
    }
}

#[test]
fn both_ends_agree_in_every_order_of_events() {
    let mut seen = HashSet::new();
    let mut open_ends = vec![World::new()];
    let (mut quiet, mut recycled) = (0, 0);
    while let Some(world) = open_ends.pop() {
        if world.ways.iter().all(VecDeque::is_empty) {
            world.check_agreement();
            quiet += 1;
            recycled += usize::from(world.ends[0].serial() == MAX_STREAMS && world.ends[0].is_idle());
        }
        for end in 0..2 {
            let sent = KINDS.iter().filter_map(|kind| world.after_sending(end, *kind));
            for next in sent.chain(world.after_arrival(end)) {
                if seen.insert(next.clone()) {
                    open_ends.push(next);
                }
            }
        }
    }
    assert!(seen.len() > 10_000 && quiet > 30 && recycled > 3, "{} worlds, {quiet} quiet, {recycled}", seen.len());
}

fn receive(leg: &mut LegState, kind: FrameType, payload: &[u8]) -> Result<LegInput, Violation> {
    leg.on_receive(FrameHeader { kind, len: payload.len() as u32 }, payload)
}

fn opening(leg: &mut LegState) {
    let mut frame = Vec::new();
    open("x").encode(&mut frame);
    assert_eq!(receive(leg, FrameType::Open, &frame[4..]), Ok(LegInput::Opening(open("x"))));
}

#[test]
fn frames_out_of_place_are_violations() {
    let reset = |serial| reset_frame(serial, ResetCode::Cancelled)[4..].to_vec();
    let mut idle = LegState::new(Side::Connector);
    for (kind, payload) in [(FrameType::Data, vec![0]), (FrameType::Fin, vec![]), (FrameType::Reset, reset(1))] {
        assert!(receive(&mut idle, kind, &payload).is_err(), "{kind} before the first stream");
    }
    for kind in [FrameType::Opened, FrameType::Failed, FrameType::Join, FrameType::Ping, FrameType::Window] {
        assert!(receive(&mut idle, kind, &[1; 48]).is_err(), "{kind} from the edge");
    }
    opening(&mut idle);
    let mut leg = idle;
    let mut again = Vec::new();
    open("y").encode(&mut again);
    assert_eq!(
        receive(&mut leg, FrameType::Open, &again[4..]).unwrap_err().to_string(),
        "the peer sent OPEN while the leg's stream was not over"
    );
    assert!(receive(&mut leg, FrameType::Refused, br#"{"code":"","message":"","retry":true}"#).is_err());
    assert_eq!(receive(&mut leg, FrameType::Reset, &reset(2)), Err(Violation::WrongSerial { serial: 2, current: 1 }));
    assert_eq!(receive(&mut leg, FrameType::Reset, &reset(0)), Err(Violation::WrongSerial { serial: 0, current: 1 }));
    assert_eq!(receive(&mut leg, FrameType::Fin, &[]), Ok(LegInput::End));
    assert_eq!(
        receive(&mut leg, FrameType::Data, &[1]).unwrap_err().to_string(),
        "the peer sent DATA after the end of its direction"
    );

    let mut edge = LegState::new(Side::Edge);
    edge.on_send(FrameType::Open).unwrap();
    for (kind, payload) in [(FrameType::Data, &b"early"[..]), (FrameType::Fin, b""), (FrameType::Open, b"")] {
        assert!(receive(&mut edge, kind, payload).is_err(), "{kind} before OPENED");
    }
    assert_eq!(receive(&mut edge, FrameType::Opened, &[]), Ok(LegInput::Opened));
    assert!(receive(&mut edge, FrameType::Opened, &[]).is_err());
    assert!(receive(&mut edge, FrameType::Failed, &[1]).is_err());
}

#[test]
fn misuse_is_an_error_and_changes_nothing() {
    let mut edge = LegState::new(Side::Edge);
    for kind in [FrameType::Data, FrameType::Fin, FrameType::Reset, FrameType::Opened, FrameType::Ping] {
        assert!(edge.on_send(kind).is_err(), "{kind} on an idle leg");
    }
    edge.on_send(FrameType::Open).unwrap();
    edge.on_send(FrameType::Fin).unwrap();
    let before = edge.clone();
    assert_eq!(
        edge.on_send(FrameType::Data).unwrap_err().to_string(),
        "DATA cannot be sent on this leg after the end of its direction"
    );
    assert!(edge.on_send(FrameType::Open).is_err());
    assert_eq!(edge, before);
    let mut connector = LegState::new(Side::Connector);
    opening(&mut connector);
    assert!(connector.on_send(FrameType::Data).is_err() && connector.on_send(FrameType::Fin).is_err());
    assert!(!connector.may_send_data() && connector.may_read());
}

#[test]
fn what_is_discarded_is_counted_for_each_stream() {
    let mut leg = LegState::new(Side::Connector);
    opening(&mut leg);
    leg.on_send(FrameType::Failed).unwrap();
    for _ in 0..70 {
        let header = FrameHeader { kind: FrameType::Data, len: 65_536 };
        assert_eq!(leg.on_receive(header, &[]), Ok(LegInput::Discard));
    }
    assert!(leg.discarded_bytes() > MAX_DISCARDED_BYTES);
    assert_eq!(receive(&mut leg, FrameType::Fin, &[]), Ok(LegInput::End));
    assert!(leg.is_idle());
    opening(&mut leg);
    assert_eq!((leg.discarded_bytes(), leg.serial()), (0, 2));
}

#[test]
fn a_leg_can_be_refused_before_its_first_stream() {
    let refusal = Refusal::new("unknown-session", "there is no such session", false);
    let mut frame = Vec::new();
    refusal.encode(&mut frame);
    let mut leg = LegState::new(Side::Connector);
    assert_eq!(receive(&mut leg, FrameType::Refused, &frame[4..]), Ok(LegInput::Refused(refusal)));
}
