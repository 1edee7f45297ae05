//! Replies of every kind: which are believed, and how the others are counted.

use std::{
    net::IpAddr,
    time::{Duration, Instant},
};

use sallyport_ping::{
    BeginError, Echoes, Family, Form, HEADER_BYTES, Key, MAX_DATA_BYTES, MAX_REMEMBERED, MAX_TIMEOUT, MAX_WAITING,
    Moment, Received, Rejected, Rejection, RoundTrip, Source, Verdict, reply,
};

const IDENTIFIER: u16 = 0x1234;
const DATA_BYTES: usize = 56;
const TIMEOUT: Duration = Duration::from_secs(1);
/// The wall clock at the start.
const WALL: Duration = Duration::from_secs(1_700_000_000);

/// Requests to one target, with a clock that the test moves.
struct World {
    echoes: Echoes,
    start: Instant,
    passed: Duration,
    nonce: u64,
}

fn target() -> IpAddr {
    "192.0.2.1".parse().unwrap()
}

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// The verdict of a reply without stamps.
fn answered(sequence: u16, time: Duration) -> Verdict {
    Verdict::Answered { sequence, round_trip: RoundTrip { time, source: Source::Unstamped } }
}

impl World {
    fn new() -> Self {
        let echoes = Echoes::new(Family::V4, IDENTIFIER, Key::new([7; 16]));
        Self { echoes, start: Instant::now(), passed: Duration::ZERO, nonce: 0 }
    }

    fn now(&self) -> Moment {
        Moment { monotonic: self.start + self.passed, wall: WALL + self.passed }
    }

    /// Sends a request, and gives its sequence number and its data.
    fn send(&mut self) -> (u16, Vec<u8>) {
        self.nonce += 1;
        let now = self.now();
        let request = self.echoes.begin(target(), DATA_BYTES, TIMEOUT, self.nonce, now).unwrap();
        self.echoes.handle_sent(request.sequence);
        assert_eq!(request.message.len(), HEADER_BYTES + DATA_BYTES);
        (request.sequence, request.message[HEADER_BYTES..].to_vec())
    }

    fn receive_bytes(&mut self, from: IpAddr, bytes: &[u8], arrived: Option<Duration>) -> Verdict {
        let at = self.now();
        self.echoes.handle_received(&Received { from, form: Form::Verified, bytes, arrived, at })
    }

    /// Receives a reply with this data from the target.
    fn receive(&mut self, sequence: u16, data: &[u8]) -> Verdict {
        self.receive_bytes(target(), &reply(Family::V4, IDENTIFIER, sequence, data), None)
    }
}

#[test]
fn a_reply_is_believed_once() {
    let mut world = World::new();
    let (sequence, data) = world.send();
    world.passed += ms(20);
    assert_eq!(world.receive(sequence, &data), answered(sequence, ms(20)));
    assert_eq!(world.receive(sequence, &data), Verdict::Rejected(Rejection::Duplicate));
    assert_eq!(world.receive(sequence, &data), Verdict::Rejected(Rejection::Duplicate));
    assert_eq!(world.echoes.rejected(), Rejected { duplicates: 2, ..Rejected::default() });
}

#[test]
fn forged_replies_are_counted_and_the_right_one_is_still_believed() {
    let mut world = World::new();
    let (sequence, data) = world.send();
    for at in 0..DATA_BYTES {
        let mut changed = data.clone();
        changed[at] ^= 1;
        assert_eq!(world.receive(sequence, &changed), Verdict::Rejected(Rejection::Forged), "byte {at}");
    }
    let longer = [&data[..], &[DATA_BYTES as u8]].concat();
    assert_eq!(world.receive(sequence, &longer), Verdict::Rejected(Rejection::Forged));
    assert_eq!(world.receive(sequence + 1, &data), Verdict::Rejected(Rejection::Forged), "of a number not sent");
    assert_eq!(world.receive(sequence, &[0; DATA_BYTES]), Verdict::Rejected(Rejection::Forged));
    world.passed += ms(5);
    assert_eq!(world.receive(sequence, &data), answered(sequence, ms(5)));
    assert_eq!(world.echoes.rejected(), Rejected { forged: DATA_BYTES as u64 + 3, ..Rejected::default() });
}

#[test]
fn a_token_of_another_process_is_no_token() {
    let mut world = World::new();
    let (sequence, _) = world.send();
    let mut other = Echoes::new(Family::V4, IDENTIFIER, Key::new([8; 16]));
    let theirs = other.begin(target(), DATA_BYTES, TIMEOUT, 1, world.now()).unwrap();
    assert_eq!(theirs.sequence, sequence);
    let verdict = world.receive(sequence, &theirs.message[HEADER_BYTES..]);
    assert_eq!(verdict, Verdict::Rejected(Rejection::Forged));
}

#[test]
fn truncated_replies_are_counted_and_the_right_one_is_still_believed() {
    let mut world = World::new();
    let (sequence, data) = world.send();
    for bytes in 0..DATA_BYTES {
        assert_eq!(world.receive(sequence, &data[..bytes]), Verdict::Rejected(Rejection::Truncated), "{bytes} bytes");
    }
    let message = reply(Family::V4, IDENTIFIER, sequence, &data);
    let cut = world.receive_bytes(target(), &message[..7], None);
    assert_eq!(cut, Verdict::Rejected(Rejection::Truncated));
    assert_eq!(world.receive_bytes(target(), &message[..5], None), Verdict::Foreign, "nobody knows whose it is");
    assert_eq!(world.receive(sequence, &data), answered(sequence, ms(0)));
    assert_eq!(world.echoes.rejected().truncated, DATA_BYTES as u64 + 1);
}

#[test]
fn replies_from_another_address_are_not_believed() {
    let mut world = World::new();
    let (sequence, data) = world.send();
    let message = reply(Family::V4, IDENTIFIER, sequence, &data);
    let other = world.receive_bytes("192.0.2.2".parse().unwrap(), &message, None);
    assert_eq!(other, Verdict::Rejected(Rejection::OtherSender));
    let mapped = world.receive_bytes("::ffff:192.0.2.1".parse().unwrap(), &message, None);
    assert_eq!(mapped, answered(sequence, ms(0)), "the same address in the other form");
    assert_eq!(world.echoes.rejected(), Rejected { other_sender: 1, ..Rejected::default() });
}

#[test]
fn a_reply_at_the_deadline_or_after_the_end_of_the_wait_is_late() {
    let mut world = World::new();
    let (first, first_data) = world.send();
    let (second, second_data) = world.send();
    world.echoes.give_up(second);
    world.passed += TIMEOUT - ms(1);
    assert_eq!(world.receive(second, &second_data), Verdict::Rejected(Rejection::Late));
    world.passed += ms(1);
    assert_eq!(world.receive(first, &first_data), Verdict::Rejected(Rejection::Late));
    world.echoes.give_up(first);
    assert_eq!(world.receive(first, &first_data), Verdict::Rejected(Rejection::Late));
    assert_eq!(world.echoes.rejected(), Rejected { late: 3, ..Rejected::default() });
}

#[test]
fn replies_in_another_order_are_each_believed() {
    let mut world = World::new();
    let sent: Vec<_> = (0..5).map(|_| world.send()).collect();
    for (sequence, data) in sent.iter().rev() {
        assert_eq!(world.receive(*sequence, data), answered(*sequence, ms(0)));
    }
    assert_eq!(world.echoes.rejected(), Rejected::default());
}

#[test]
fn messages_of_others_are_not_counted() {
    let mut world = World::new();
    let (sequence, data) = world.send();
    let other_program = reply(Family::V4, IDENTIFIER + 1, sequence, &data);
    let other_family = reply(Family::V6, IDENTIFIER, sequence, &data);
    let request = sallyport_ping::request(Family::V4, IDENTIFIER, sequence, &data);
    for bytes in [&other_program[..], &other_family, &request, &[], &[0; 4]] {
        assert_eq!(world.receive_bytes(target(), bytes, None), Verdict::Foreign);
    }
    assert_eq!(world.echoes.rejected(), Rejected::default());
}

#[test]
fn a_damaged_packet_of_a_raw_socket_is_counted() {
    let mut world = World::new();
    let (sequence, data) = world.send();
    let message = reply(Family::V4, IDENTIFIER, sequence, &data);
    let total = (20 + message.len()) as u16;
    let mut bytes = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 1, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2];
    bytes[2..4].copy_from_slice(&total.to_be_bytes());
    bytes.extend(&message);
    let at = world.now();
    let mut receive = |bytes: &[u8]| {
        let form = Form::WithIpHeader;
        world.echoes.handle_received(&Received { from: target(), form, bytes, arrived: None, at })
    };
    let mut damaged = bytes.clone();
    damaged[40] ^= 1;
    assert_eq!(receive(&damaged), Verdict::Rejected(Rejection::Damaged));
    assert_eq!(receive(&bytes[..bytes.len() - 1]), Verdict::Rejected(Rejection::Truncated));
    assert_eq!(receive(&bytes), answered(sequence, ms(0)));
}

#[test]
fn sequence_numbers_wrap_and_skip_those_that_wait() {
    let mut world = World::new();
    let (waiting, waiting_data) = world.send();
    assert_eq!(waiting, 0);
    let (old, old_data) = world.send();
    assert_eq!(world.receive(old, &old_data), answered(old, ms(0)));
    for expected in 2..=u16::MAX {
        let (sequence, data) = world.send();
        assert_eq!(sequence, expected);
        assert_eq!(world.receive(sequence, &data), answered(sequence, ms(0)));
    }
    let (sequence, data) = world.send();
    assert_eq!(sequence, 1, "0 still waits");
    assert_eq!(world.receive(old, &old_data), Verdict::Rejected(Rejection::Late), "a reply of the former round");
    assert_eq!(world.receive(sequence, &data), answered(sequence, ms(0)));
    assert_eq!(world.receive(waiting, &waiting_data), answered(waiting, ms(0)));
}

#[test]
fn memory_is_bounded() {
    let mut world = World::new();
    let first = world.send();
    assert_eq!(world.receive(first.0, &first.1), answered(first.0, ms(0)));
    for _ in 0..MAX_REMEMBERED {
        let (sequence, _) = world.send();
        world.echoes.give_up(sequence);
    }
    assert_eq!(world.receive(first.0, &first.1), Verdict::Rejected(Rejection::Late), "no longer known as answered");
    let waiting: Vec<_> = (0..MAX_WAITING).map(|_| world.send()).collect();
    let begin = |world: &mut World, bytes, timeout| world.echoes.begin(target(), bytes, timeout, 1, world.now());
    assert_eq!(begin(&mut world, DATA_BYTES, TIMEOUT), Err(BeginError::Full));
    world.echoes.handle_unsent(waiting[0].0);
    assert!(begin(&mut world, DATA_BYTES, MAX_TIMEOUT).is_ok());
    world.echoes.give_up(waiting[1].0);
    assert_eq!(begin(&mut world, DATA_BYTES, MAX_TIMEOUT + ms(1)), Err(BeginError::Timeout));
    for bytes in [0, 15, MAX_DATA_BYTES + 1] {
        assert_eq!(begin(&mut world, bytes, TIMEOUT), Err(BeginError::DataBytes), "{bytes}");
    }
    assert!(begin(&mut world, MAX_DATA_BYTES, TIMEOUT).is_ok());
}

#[test]
fn the_kernels_stamps_are_matched_by_their_id() {
    let mut world = World::new();
    let (first, first_data) = world.send();
    let (second, second_data) = world.send();
    // The stamps come in any order; ids that nobody waits for change nothing.
    world.echoes.handle_stamp(1, WALL + ms(2));
    world.echoes.handle_stamp(0, WALL + ms(1));
    world.echoes.handle_stamp(0, WALL + ms(9));
    world.echoes.handle_stamp(77, WALL + ms(9));
    world.passed += ms(500);
    for (sequence, data, time) in [(first, first_data, ms(99)), (second, second_data, ms(98))] {
        let message = reply(Family::V4, IDENTIFIER, sequence, &data);
        let verdict = world.receive_bytes(target(), &message, Some(WALL + ms(100)));
        let round_trip = RoundTrip { time, source: Source::Kernel };
        assert_eq!(verdict, Verdict::Answered { sequence, round_trip });
    }
}

#[test]
fn stamps_that_disagree_with_the_monotonic_clock_are_not_believed() {
    for (transmitted, arrived) in [
        (WALL, WALL - Duration::from_secs(3_600)),
        (WALL, WALL + Duration::from_secs(3_600)),
        (WALL + ms(10), WALL),
        (WALL, WALL + ms(60)),
        (WALL - ms(30), WALL + ms(10)),
        (Duration::MAX, Duration::ZERO),
        (Duration::ZERO, Duration::MAX),
    ] {
        let mut world = World::new();
        let (sequence, data) = world.send();
        world.echoes.handle_stamp(0, transmitted);
        world.passed += ms(50);
        let message = reply(Family::V4, IDENTIFIER, sequence, &data);
        let verdict = world.receive_bytes(target(), &message, Some(arrived));
        let round_trip = RoundTrip { time: ms(50), source: Source::ClockJumped };
        assert_eq!(verdict, Verdict::Answered { sequence, round_trip }, "{transmitted:?} {arrived:?}");
    }
}

#[test]
fn after_a_restart_of_the_ids_no_stamp_goes_to_another_request() {
    let mut world = World::new();
    let (first, first_data) = world.send();
    world.echoes.handle_stamps_restarted();
    world.echoes.handle_stamp(0, WALL);
    let message = reply(Family::V4, IDENTIFIER, first, &first_data);
    let verdict = world.receive_bytes(target(), &message, Some(WALL));
    assert_eq!(verdict, answered(first, ms(0)));
    let (second, second_data) = world.send();
    world.echoes.handle_stamp(0, WALL);
    let message = reply(Family::V4, IDENTIFIER, second, &second_data);
    let verdict = world.receive_bytes(target(), &message, Some(WALL));
    let round_trip = RoundTrip { time: ms(0), source: Source::Kernel };
    assert_eq!(verdict, Verdict::Answered { sequence: second, round_trip });
}
