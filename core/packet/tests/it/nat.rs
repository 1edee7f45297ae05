//! The NAT: there and back, who comes in, errors, hairpins, bounds and time.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use proptest::prelude::*;
use sallyport_packet_model::{
    checksum,
    forward::{DropReason, PassReason, Verdict},
    nat::{
        Direction, Event, Filtering, Nat, NatConfig, NatConfigError, PortForward, SessionState, Translation, nft_rules,
    },
    parse::{Flow, IcmpMessage, Tcp, Transport, parse},
};

use sallyport_packet_model::testing::Frame;

const SERVER: (&str, u16) = ("198.51.100.7", 53);
const SECOND: Duration = Duration::from_secs(1);

fn config(filtering: Filtering) -> NatConfig {
    NatConfig {
        inside: vec!["10.0.0.0/8".parse().unwrap()],
        pool: vec!["203.0.113.10".parse().unwrap(), "203.0.113.11".parse().unwrap()],
        ports: 20_000..=29_999,
        filtering,
        forwards: vec![PortForward {
            protocol: 6,
            external: "203.0.113.10:80".parse().unwrap(),
            inside: "10.0.0.80:8080".parse().unwrap(),
        }],
        seed: 9,
        ..NatConfig::default()
    }
}

fn nat() -> Nat {
    Nat::new(config(Filtering::PortRestricted)).unwrap()
}

fn translate(nat: &mut Nat, frame: &Frame, now: Duration) -> Result<Translation, Verdict> {
    let bytes = frame.bytes();
    let result = nat.translate(&bytes, &parse(&bytes).unwrap(), now)?;
    check(&result.frame);
    Ok(result)
}

fn flow(frame: &[u8]) -> Flow {
    Flow::of(&parse(frame).unwrap()).unwrap()
}

/// Every checksum is right: the parser has judged that of IPv4.
fn check(frame: &[u8]) {
    let packet = parse(frame).unwrap();
    let ip = packet.ip.unwrap();
    let segment = &frame[ip.payload()..ip.end()];
    let state = |protocol, field| checksum::state(ip.source, ip.destination, protocol, segment, field);
    let is_right = |state| matches!(state, checksum::State::Right | checksum::State::Absent);
    match packet.transport {
        Transport::Tcp(_) => assert!(is_right(state(6, 16))),
        Transport::Udp(_) => assert!(is_right(state(17, 6))),
        Transport::Icmp(icmp) => {
            assert_eq!(checksum::full(segment), 0, "{packet:?}");
            if let IcmpMessage::Error(quoted) = icmp.message {
                let header = &frame[quoted.ip.offset..quoted.ip.payload()];
                assert_eq!(checksum::full(header), 0, "the quoted header");
                if quoted.ip.protocol == 17 && quoted.ip.end() <= frame.len() {
                    let segment = &frame[quoted.payload..quoted.ip.end()];
                    let inner = checksum::state(quoted.ip.source, quoted.ip.destination, 17, segment, 6);
                    assert!(is_right(inner), "the quoted datagram");
                }
            }
        }
        _ => {}
    }
}

/// A datagram from one end of a flow to the other.
fn along(flow: Flow, payload: &[u8]) -> Frame {
    let (source, destination) = (flow.source.to_string(), flow.destination.to_string());
    match flow.protocol {
        17 => Frame::udp((&source, flow.source_port), (&destination, flow.destination_port), payload),
        6 => Frame::tcp((&source, flow.source_port), (&destination, flow.destination_port), Tcp::ACK, payload),
        _ => Frame::echo(&source, &destination, true, flow.destination_port),
    }
}

#[test]
fn a_packet_goes_out_by_a_mapping_and_answers_come_back() {
    let mut nat = nat();
    for frame in [
        Frame::udp(("10.0.0.1", 5_000), SERVER, b"question"),
        Frame::tcp(("10.0.0.1", 5_000), SERVER, Tcp::SYN, b""),
        Frame::echo("10.0.0.1", SERVER.0, false, 5_000),
    ] {
        let out = translate(&mut nat, &frame, SECOND).unwrap();
        assert_eq!(out.direction, Direction::Outbound);
        let outside = flow(&out.frame);
        assert!(outside.source.to_string().starts_with("203.0.113.1"), "{outside:?}");
        assert!((20_000..30_000).contains(&outside.source_port));
        let back = translate(&mut nat, &along(outside.reversed(), b"answer"), SECOND * 2).unwrap();
        assert_eq!(back.direction, Direction::Inbound);
        assert_eq!(flow(&back.frame), flow(&frame.bytes()).reversed());
        let again = translate(&mut nat, &frame, SECOND * 3).unwrap();
        assert_eq!(again.frame, out.frame, "the mapping stays");
    }
    assert_eq!((nat.session_count(), nat.sessions_of([10, 0, 0, 1].into())), (3, 3));
}

#[test]
fn a_free_own_port_is_kept_and_a_taken_one_is_not() {
    let mut nat = Nat::new(NatConfig { pool: vec![[203, 0, 113, 9].into()], ..config(Filtering::default()) }).unwrap();
    let mut port = |user| {
        let out = translate(&mut nat, &Frame::udp((user, 25_000), SERVER, b""), SECOND).unwrap();
        flow(&out.frame).source_port
    };
    assert_eq!(port("10.0.0.1"), 25_000);
    assert_ne!(port("10.0.0.2"), 25_000);
}

#[test]
fn only_known_peers_come_in_unless_the_filter_is_open() {
    for filtering in [Filtering::PortRestricted, Filtering::EndpointIndependent] {
        let mut nat = Nat::new(config(filtering)).unwrap();
        let out = translate(&mut nat, &Frame::udp(("10.0.0.1", 5_000), SERVER, b""), SECOND).unwrap();
        let external = (flow(&out.frame).source.to_string(), flow(&out.frame).source_port);
        let external = (external.0.as_str(), external.1);
        let restricted = filtering == Filtering::PortRestricted;
        for stranger in [(SERVER.0, 54), ("198.51.100.8", 53)] {
            let came = translate(&mut nat, &Frame::udp(stranger, external, b""), SECOND);
            match came {
                Ok(came) => assert!(!restricted && flow(&came.frame).destination_port == 5_000),
                Err(verdict) => assert!(restricted && verdict == Verdict::Drop(DropReason::NatFiltered)),
            }
        }
        let nobody = translate(&mut nat, &Frame::udp(SERVER, ("203.0.113.10", 19_999), b""), SECOND);
        assert_eq!(nobody, Err(Verdict::Pass(PassReason::NatNoMapping)));
        let other = translate(&mut nat, &Frame::udp(("10.0.0.1", 5_000), ("198.51.100.9", 1), b""), SECOND).unwrap();
        assert_eq!(flow(&other.frame).source_port, external.1, "one mapping for all peers");
    }
}

#[test]
fn a_forwarded_port_lets_strangers_in_and_answers_out() {
    let mut nat = nat();
    let client = ("192.0.2.33", 40_000);
    let came = translate(&mut nat, &Frame::tcp(client, ("203.0.113.10", 80), Tcp::SYN, b""), SECOND).unwrap();
    assert_eq!(
        (flow(&came.frame).destination.to_string(), flow(&came.frame).destination_port),
        ("10.0.0.80".to_owned(), 8_080)
    );
    let answer = Frame::tcp(("10.0.0.80", 8_080), client, Tcp::SYN | Tcp::ACK, b"");
    let answer = translate(&mut nat, &answer, SECOND).unwrap();
    assert_eq!(
        (flow(&answer.frame).source.to_string(), flow(&answer.frame).source_port),
        ("203.0.113.10".to_owned(), 80)
    );
    let reset = Frame::tcp(("192.0.2.34", 1), ("203.0.113.10", 80), Tcp::RST, b"");
    assert_eq!(translate(&mut nat, &reset, SECOND), Err(Verdict::Drop(DropReason::NatNoSession)));
    // From inside by the outside address: both ends change, in both directions.
    let near = translate(&mut nat, &Frame::tcp(("10.0.0.5", 4_444), ("203.0.113.10", 80), Tcp::SYN, b""), SECOND);
    let near = near.unwrap();
    assert_eq!(near.direction, Direction::Hairpin);
    let seen = flow(&near.frame);
    assert!(seen.source.to_string().starts_with("203.0.113."), "{seen:?}");
    assert_eq!(seen.destination.to_string(), "10.0.0.80");
    let back = translate(&mut nat, &along(seen.reversed(), b""), SECOND).unwrap();
    assert_eq!(back.direction, Direction::Hairpin);
    let expected = Flow {
        source: [203, 0, 113, 10].into(),
        destination: [10, 0, 0, 5].into(),
        protocol: 6,
        source_port: 80,
        destination_port: 4_444,
    };
    assert_eq!(flow(&back.frame), expected);
    let closed = Frame::udp(("10.0.0.5", 4_445), ("203.0.113.10", 81), b"");
    assert_eq!(translate(&mut nat, &closed, SECOND), Err(Verdict::Pass(PassReason::NatNoMapping)));
}

#[test]
fn errors_find_the_sender_of_the_quoted_packet() {
    for frame in [
        Frame::udp(("10.0.0.1", 5_000), SERVER, b"question"),
        Frame::tcp(("10.0.0.1", 5_000), SERVER, Tcp::SYN, b"data"),
        Frame::echo("10.0.0.1", SERVER.0, false, 5_000),
    ] {
        let mut nat = nat();
        let out = translate(&mut nat, &frame, SECOND).unwrap();
        let outside = out.frame[14..].to_vec();
        let source = flow(&out.frame).source.to_string();
        for quoted in [&outside[..], &outside[..28]] {
            let error = Frame::error("192.0.2.99", &source, 11, quoted);
            let came = translate(&mut nat, &error, SECOND).unwrap();
            let inner = &came.frame[42..];
            assert_eq!(came.direction, Direction::Inbound);
            assert_eq!(inner, &frame.packet()[..inner.len()], "the sender sees its own packet");
            assert_eq!(flow(&came.frame).destination.to_string(), "10.0.0.1");
            assert_eq!(flow(&came.frame).source.to_string(), "192.0.2.99", "the router that says so");
        }
        // A packet that was never sent.
        let other = Frame { destination: "198.51.100.8".parse().unwrap(), ..frame.clone() };
        let mut unsent = other.packet();
        unsent.splice(12..16, parse(&out.frame).unwrap().ip.map(|_| [203, 0, 113, 10]).unwrap());
        let error = Frame::error("192.0.2.99", "203.0.113.10", 3, &unsent);
        assert!(translate(&mut nat, &error, SECOND).is_err());
    }
}

#[test]
fn errors_of_the_inside_name_the_outside_address() {
    let mut nat = nat();
    let client = ("192.0.2.33", 40_000);
    let syn = Frame::tcp(client, ("203.0.113.10", 80), Tcp::SYN, b"");
    let came = translate(&mut nat, &syn, SECOND).unwrap();
    for reporter in ["10.0.0.80", "10.0.0.254"] {
        let error = Frame::error(reporter, client.0, 3, &came.frame[14..]);
        let out = translate(&mut nat, &error, SECOND).unwrap();
        assert_eq!(flow(&out.frame).source.to_string(), "203.0.113.10");
        assert_eq!(&out.frame[42..], syn.packet(), "the client sees its own packet");
    }
    let unknown =
        Frame::error("10.0.0.80", "192.0.2.34", 3, &Frame::tcp(("192.0.2.34", 1), ("10.0.0.80", 1), 2, b"").packet());
    assert_eq!(translate(&mut nat, &unknown, SECOND), Err(Verdict::Drop(DropReason::NatNoSession)));
    // Between two hosts of the inside by an outside address.
    let near = Frame::tcp(("10.0.0.5", 4_444), ("203.0.113.10", 80), Tcp::SYN, b"");
    let seen = translate(&mut nat, &near, SECOND).unwrap();
    let source = flow(&seen.frame).source.to_string();
    let error = translate(&mut nat, &Frame::error("10.0.0.80", &source, 3, &seen.frame[14..]), SECOND).unwrap();
    assert_eq!(error.direction, Direction::Hairpin);
    assert_eq!(flow(&error.frame).destination.to_string(), "10.0.0.5");
    assert_eq!(&error.frame[42..], near.packet());
}

#[test]
fn what_is_not_translated_has_a_reason() {
    let mut nat = nat();
    let out = Frame::udp(("10.0.0.1", 5_000), SERVER, b"data");
    for (name, frame, verdict) in [
        ("later fragment", Frame { fragment: 9, ..out.clone() }, Verdict::Pass(PassReason::NatFragment)),
        ("GRE", Frame::new("10.0.0.1", SERVER.0, 47, vec![0; 8]), Verdict::Pass(PassReason::NatProtocol)),
        ("ping of the pool", Frame::echo(SERVER.0, "203.0.113.10", false, 9), Verdict::Pass(PassReason::NatNoMapping)),
        ("reset", Frame::tcp(("10.0.0.1", 1), SERVER, Tcp::RST, b""), Verdict::Drop(DropReason::NatNoSession)),
        ("reply", Frame::echo("10.0.0.1", SERVER.0, true, 9), Verdict::Drop(DropReason::NatNoSession)),
    ] {
        assert_eq!(translate(&mut nat, &frame, SECOND), Err(verdict), "{name}");
    }
    let malformed = translate(&mut nat, &Frame::new("10.0.0.1", SERVER.0, 6, vec![1, 2, 3]), SECOND);
    assert!(matches!(malformed, Err(Verdict::Drop(DropReason::Malformed(_)))));
    for frame in [
        Frame::udp(("10.0.0.1", 1), ("10.1.0.1", 2), b""),
        Frame::udp(("192.0.2.1", 1), SERVER, b""),
        Frame::udp(("2001:db8::1", 1), ("2001:db8::2", 2), b""),
        Frame::new("192.0.2.1", SERVER.0, 47, vec![0; 8]),
    ] {
        let result = translate(&mut nat, &frame, SECOND).unwrap();
        assert_eq!((result.direction, result.frame), (Direction::Untouched, frame.bytes()));
    }
    assert_eq!(nat.session_count(), 0);
}

#[test]
fn fragments_follow_their_first_one_in_both_directions() {
    let mut nat = nat();
    let whole = Frame::udp(("10.0.0.1", 5_000), SERVER, &[7; 64]);
    let later = |frame: &Frame| Frame { fragment: 9, segment: vec![8; 16], ..frame.clone() };
    let first = Frame { fragment: 0x2000, ..whole.clone() };
    let early = translate(&mut nat, &later(&whole), SECOND);
    assert_eq!(early, Err(Verdict::Pass(PassReason::NatFragment)), "before the first one");
    let out = nat.translate(&first.bytes(), &parse(&first.bytes()).unwrap(), SECOND).unwrap();
    let outside = parse(&out.frame).unwrap();
    let second = translate(&mut nat, &later(&whole), SECOND).unwrap();
    let second = (second.direction, parse(&second.frame).unwrap().ip.unwrap().source);
    assert_eq!(second, (Direction::Outbound, outside.ip.unwrap().source));
    let Transport::Udp(udp) = outside.transport else { panic!("{outside:?}") };
    let back = Frame::udp(SERVER, (&outside.ip.unwrap().source.to_string(), udp.source), &[9; 64]);
    let answer = Frame { fragment: 0x2000, ..back.clone() };
    nat.translate(&answer.bytes(), &parse(&answer.bytes()).unwrap(), SECOND).unwrap();
    let came = translate(&mut nat, &later(&back), SECOND).unwrap();
    let came = (came.direction, parse(&came.frame).unwrap().ip.unwrap().destination.to_string());
    assert_eq!(came, (Direction::Inbound, "10.0.0.1".to_owned()));
    for (name, frame, now) in [
        ("another packet", Frame { id: 1, ..later(&back) }, SECOND),
        ("too late", later(&back), SECOND * 6),
        ("the flags of TCP again", Frame { fragment: 1, protocol: 6, ..later(&back) }, SECOND),
    ] {
        assert_eq!(translate(&mut nat, &frame, now), Err(Verdict::Pass(PassReason::NatFragment)), "{name}");
    }
    // A packet that is refused lets no fragment through.
    let strange = Frame::udp((SERVER.0, 54), (&outside.ip.unwrap().source.to_string(), udp.source), &[9; 64]);
    let strange = Frame { id: 2, ..strange };
    let refused = translate(&mut nat, &Frame { fragment: 0x2000, ..strange.clone() }, SECOND);
    assert_eq!(refused, Err(Verdict::Drop(DropReason::NatFiltered)));
    assert_eq!(translate(&mut nat, &later(&strange), SECOND), Err(Verdict::Pass(PassReason::NatFragment)));
}

#[test]
fn a_datagram_without_a_checksum_stays_without() {
    let mut nat = nat();
    let mut frame = Frame::udp(("10.0.0.1", 5_000), SERVER, b"data");
    frame.segment[6..8].fill(0);
    let out = translate(&mut nat, &frame, SECOND).unwrap();
    assert!(matches!(parse(&out.frame).unwrap().transport, Transport::Udp(udp) if udp.checksum == 0));
}

#[test]
fn every_port_is_used_once_and_then_none_is_left() {
    let config = NatConfig {
        pool: vec![[203, 0, 113, 9].into()],
        ports: 100..=131,
        max_sessions_per_user: 20,
        ..config(Filtering::default())
    };
    let mut nat = Nat::new(config).unwrap();
    let mut ports = HashSet::new();
    for host in 0..32 {
        let frame = Frame::udp((&format!("10.0.1.{host}"), 5_000), SERVER, b"");
        assert!(ports.insert(flow(&translate(&mut nat, &frame, SECOND).unwrap().frame).source_port));
    }
    let late = Frame::udp(("10.0.2.1", 5_000), SERVER, b"");
    assert_eq!(translate(&mut nat, &late, SECOND), Err(Verdict::Drop(DropReason::NatPortsExhausted)));
    assert!(translate(&mut nat, &Frame::tcp(("10.0.2.1", 5_000), SERVER, Tcp::SYN, b""), SECOND).is_ok());
    // A user has a bound of sessions, whatever its mappings.
    for peer in 1..20 {
        let frame = Frame::udp(("10.0.1.0", 5_000), ("198.51.100.9", peer), b"");
        assert!(translate(&mut nat, &frame, SECOND).is_ok(), "{peer}");
    }
    let more = Frame::udp(("10.0.1.0", 5_000), ("198.51.100.9", 99), b"");
    assert_eq!(translate(&mut nat, &more, SECOND), Err(Verdict::Drop(DropReason::NatSessionsExhausted)));
    // Time frees all of them; the other protocol is a session of its own.
    let later = SECOND * 302;
    assert_eq!(nat.expire(later), 52);
    assert!(translate(&mut nat, &late, later).is_ok());
    let (mut began, mut ended) = (0, 0);
    while let Some(event) = nat.poll_event() {
        match event {
            Event::Began(_) => began += 1,
            Event::Ended(_) => ended += 1,
        }
    }
    assert_eq!((began, ended, nat.lost_events()), (53, 52, 0));
}

#[test]
fn a_connection_lives_by_its_state() {
    let mut nat = nat();
    let out = |nat: &mut Nat, flags, now, (sequence, ack)| {
        translate(nat, &Frame::tcp(("10.0.0.1", 5_000), SERVER, flags, b"").at(sequence, ack), now)
    };
    let outside = flow(&out(&mut nat, Tcp::SYN, SECOND, (100, 0)).unwrap().frame);
    let back = |nat: &mut Nat, flags, now, (sequence, ack)| {
        let (source, destination) = (outside.destination.to_string(), outside.source.to_string());
        let frame = Frame::tcp((&source, outside.destination_port), (&destination, outside.source_port), flags, b"");
        translate(nat, &frame.at(sequence, ack), now)
    };
    let state = |nat: &Nat| nat.sessions().next().map(|session| (session.state, session.expires.as_secs()));
    assert_eq!(state(&nat), Some((SessionState::Opening, 241)));
    back(&mut nat, Tcp::SYN | Tcp::ACK, SECOND * 2, (700, 101)).unwrap();
    assert_eq!(state(&nat), Some((SessionState::Answered, 242)));
    out(&mut nat, Tcp::ACK, SECOND * 3, (101, 701)).unwrap();
    assert_eq!(state(&nat), Some((SessionState::Established, 7_443)));
    back(&mut nat, Tcp::ACK, SECOND * 7_000, (701, 101)).unwrap();
    assert_eq!(nat.expire(SECOND * 7_443), 0, "a packet has renewed it");
    // A stranger who guesses the ends does not know the numbers.
    for guessed in [0, 700, 702, 66_000] {
        back(&mut nat, Tcp::RST, SECOND * 7_500, (guessed, 0)).unwrap();
        back(&mut nat, Tcp::FIN | Tcp::ACK, SECOND * 7_500, (guessed, 101)).unwrap();
        assert_eq!(state(&nat), Some((SessionState::Established, 14_940)));
    }
    // One side ends, and then the other one.
    back(&mut nat, Tcp::FIN | Tcp::ACK, SECOND * 7_500, (701, 101)).unwrap();
    assert_eq!(state(&nat), Some((SessionState::Established, 14_940)));
    out(&mut nat, Tcp::FIN | Tcp::ACK, SECOND * 7_500, (101, 702)).unwrap();
    assert_eq!(state(&nat), Some((SessionState::Closing, 7_510)));
    back(&mut nat, Tcp::ACK, SECOND * 7_505, (702, 102)).unwrap();
    assert_eq!(state(&nat), Some((SessionState::Closing, 7_515)));
    assert_eq!(
        back(&mut nat, Tcp::ACK, SECOND * 8_000, (702, 102)),
        Err(Verdict::Drop(DropReason::NatFiltered)),
        "its time is over"
    );
    out(&mut nat, Tcp::SYN, SECOND * 8_001, (9, 0)).unwrap();
    assert_eq!(state(&nat), Some((SessionState::Opening, 8_241)));
    assert_eq!(nat.session_count(), 1);
}

#[test]
fn sessions_of_strangers_count_apart_and_are_short_before_they_are_answered() {
    let mut nat = Nat::new(NatConfig { max_sessions_per_user: 3, ..config(Filtering::default()) }).unwrap();
    let syn = |port| Frame::tcp(("192.0.2.33", port), ("203.0.113.10", 80), Tcp::SYN, b"").at(100, 0);
    let answer = |port, now| (Frame::tcp(("10.0.0.80", 8_080), ("192.0.2.33", port), Tcp::SYN | Tcp::ACK, b""), now);
    for port in 1..=3 {
        translate(&mut nat, &syn(port), SECOND).unwrap();
    }
    assert_eq!(translate(&mut nat, &syn(4), SECOND), Err(Verdict::Drop(DropReason::NatSessionsExhausted)));
    // The server may still begin its own, and its answer alone proves nothing about the source.
    translate(&mut nat, &Frame::udp(("10.0.0.80", 5_000), SERVER, b""), SECOND).unwrap();
    let (frame, now) = answer(1, SECOND * 2);
    translate(&mut nat, &frame.at(700, 101), now).unwrap();
    let lives = |nat: &Nat, port| {
        nat.sessions().find(|one| one.remote.port() == port).map(|one| (one.state, one.expires.as_secs()))
    };
    assert_eq!(lives(&nat, 1), Some((SessionState::Answered, 7)));
    let handshake = Frame::tcp(("192.0.2.33", 1), ("203.0.113.10", 80), Tcp::ACK, b"").at(101, 701);
    translate(&mut nat, &handshake, SECOND * 3).unwrap();
    assert_eq!(lives(&nat, 1), Some((SessionState::Established, 7_443)));
    assert_eq!(nat.expire(SECOND * 6), 2);
    translate(&mut nat, &syn(4), SECOND * 6).unwrap();
    // A late answer begins no session of the server's own.
    let (frame, now) = answer(2, SECOND * 8);
    assert_eq!(translate(&mut nat, &frame, now), Err(Verdict::Drop(DropReason::NatNoSession)));
}

#[test]
fn errors_do_not_keep_a_session_alive() {
    let mut nat = nat();
    let out = translate(&mut nat, &Frame::udp(("10.0.0.1", 5_000), SERVER, b""), SECOND).unwrap();
    let source = flow(&out.frame).source.to_string();
    let error = Frame::error("192.0.2.99", &source, 3, &out.frame[14..]);
    translate(&mut nat, &error, SECOND * 200).unwrap();
    assert_eq!(translate(&mut nat, &error, SECOND * 301), Err(Verdict::Pass(PassReason::NatNoMapping)));
}

#[test]
fn wrong_configurations_are_refused() {
    let good = || config(Filtering::default());
    let forward = good().forwards[0];
    for (config, error) in [
        (NatConfig { pool: vec![], ..good() }, NatConfigError::EmptyPool),
        (NatConfig { pool: vec![[10, 0, 0, 9].into()], ..good() }, NatConfigError::PoolInside([10, 0, 0, 9].into())),
        (NatConfig { ports: 0..=9, ..good() }, NatConfigError::NoPorts),
        (NatConfig { max_sessions: 0, ..good() }, NatConfigError::BadBounds),
        (NatConfig { forwards: vec![forward, forward], ..good() }, NatConfigError::SameForward(forward.external)),
        (
            NatConfig { forwards: vec![PortForward { protocol: 1, ..forward }], ..good() },
            NatConfigError::BadForward(forward.external),
        ),
    ] {
        assert_eq!(Nat::new(config).err(), Some(error));
    }
}

#[test]
fn the_middle_of_an_unknown_connection_is_for_the_kernel() {
    let mut nat = nat();
    let middle = Frame::tcp(("10.0.0.1", 5_000), SERVER, Tcp::ACK, b"");
    assert_eq!(translate(&mut nat, &middle, SECOND), Err(Verdict::Pass(PassReason::NatNoMapping)));
    translate(&mut nat, &Frame::tcp(("10.0.0.1", 5_000), SERVER, Tcp::SYN, b""), SECOND).unwrap();
    assert!(translate(&mut nat, &middle, SECOND).is_ok());
    let rules = nft_rules(&config(Filtering::PortRestricted), Some([2, 0, 0, 0, 0, 9]));
    assert!(rules.contains("jhash ip saddr mod 2 seed 0x9 vmap { 0 : goto pool0, 1 : goto pool1 }"), "{rules}");
    assert!(rules.contains("ether saddr 02:00:00:00:00:09 ip saddr != @inside ip daddr @inside notrack"), "{rules}");
    assert!(rules.contains("dnat ip to ip daddr . tcp dport map { 203.0.113.10 . 80 : 10.0.0.80 . 8080 }"), "{rules}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn there_and_back_is_the_identity_and_no_mapping_is_shared(
        packets in prop::collection::vec(
            (0u8..12, 0u16..40, 0u8..3, prop::sample::select(vec![6u8, 17, 1]), 0u64..40,
             prop::collection::vec(any::<u8>(), 0..30)),
            1..150,
        ),
        open in any::<bool>(),
    ) {
        let filtering = if open { Filtering::EndpointIndependent } else { Filtering::PortRestricted };
        let mut nat = Nat::new(NatConfig { ports: 20_000..=20_099, ..config(filtering) }).unwrap();
        let mut now = SECOND;
        for (host, port, server, protocol, wait, payload) in packets {
            now += SECOND * u32::try_from(wait).unwrap();
            nat.expire(now);
            let source = format!("10.0.0.{host}");
            let server = format!("198.51.100.{server}");
            let inside = (source.as_str(), 20_000 + port);
            let frame = match protocol {
                6 => Frame::tcp(inside, (&server, 443), Tcp::SYN, &payload),
                17 => Frame::udp(inside, (&server, 443), &payload),
                _ => Frame::echo(&source, &server, false, inside.1),
            };
            let out = match translate(&mut nat, &frame, now) {
                Ok(out) => out.frame,
                Err(verdict) => {
                    prop_assert_eq!(verdict, Verdict::Drop(DropReason::NatPortsExhausted));
                    continue;
                }
            };
            // The packet comes back with its ends exchanged, and nothing else changed.
            let outside = flow(&out);
            prop_assert!(!outside.source.to_string().starts_with("10."));
            let answer = along(outside.reversed(), &payload);
            let came = translate(&mut nat, &answer, now).unwrap().frame;
            prop_assert_eq!(&came, &along(flow(&frame.bytes()).reversed(), &payload).bytes());
            let mut owners = HashMap::new();
            for session in nat.sessions() {
                let owner = *owners.entry(session.external).or_insert(session.inside);
                prop_assert_eq!(owner, session.inside, "{:?} has two owners", session.external);
            }
            let users: HashMap<_, usize> = nat.sessions().fold(HashMap::new(), |mut users, session| {
                *users.entry(session.inside.address).or_default() += 1;
                users
            });
            prop_assert!(users.iter().all(|(user, count)| nat.sessions_of(*user) == *count));
        }
    }

    #[test]
    fn arbitrary_packets_break_no_table(
        frames in prop::collection::vec((prop::collection::vec(any::<u8>(), 34..80), any::<[bool; 3]>()), 1..40)
    ) {
        let mut nat = nat();
        for (mut frame, [inside, external, icmp]) in frames {
            frame[12..14].copy_from_slice(&[8, 0]);
            frame[14] = 0x45;
            let total = (frame.len() - 14) as u16;
            frame[16..18].copy_from_slice(&total.to_be_bytes());
            frame[20..22].fill(0);
            frame[23] = if icmp { 1 } else { 17 };
            if inside { frame[26] = 10 }
            if external { frame[30..34].copy_from_slice(&[203, 0, 113, 10]) }
            frame[24..26].fill(0);
            let sum = checksum::full(&frame[14..34]);
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
            let packet = parse(&frame).unwrap();
            if let Ok(result) = nat.translate(&frame, &packet, SECOND) {
                prop_assert_eq!(result.frame.len(), frame.len());
                prop_assert!(parse(&result.frame).is_ok());
            }
        }
    }
}
