//! The program and the model of core/packet translate the same frames alike, by BPF_PROG_TEST_RUN.

use std::{
    collections::HashSet,
    path::Path,
    time::{Duration, Instant},
};

use sallyport_packet_model::{
    forward::{DropReason, PassReason, Verdict},
    nat::{Endpoint, Filtering, Nat, NatConfig, PortForward, Timeouts},
    parse::{Flow, Tcp, parse},
};
use sallyport_xdp::Router;

use crate::{
    clock,
    inner::{self, Inner, Numbers, variable},
    model_frames::Frame,
    rig::{PATIENCE, Rig, done},
};

const OPEN: &str = "PACKET_NAT_OPEN";
const SEED: &str = "PACKET_NAT_SEED";
const SEEDS: &str = "PACKET_NAT_SEEDS";
/// Frames of a seed.
const FRAMES: usize = 8_000;
/// What passes between two seeds: some sessions end, and each of the others lives for minutes more.
const PAUSE: Duration = Duration::from_secs(1_000);

#[test]
fn the_program_and_the_model_translate_alike() {
    for (filtering, seeds) in [("port-restricted", "17,18"), ("endpoint-independent", "19,20")] {
        let Some(rig) = Rig::new() else { return };
        rig.resolve();
        for last in 3..=9 {
            rig.ip("dut", &format!("neigh replace 10.0.0.{last} lladdr 02:00:00:00:00:{last:02} dev d0 nud permanent"));
        }
        let file = rig.write("nat.toml", &format!("[[port]]\ndev = \"d0\"\n[[port]]\ndev = \"d1\"\n[nat]\ninside = [\"10.0.0.0/24\"]\npool = [\"203.0.113.10-203.0.113.12\"]\nports = \"20000-20029\"\nmax-sessions = 250\ntimeouts = {{ tcp-transitory = 500, tcp-established = 7500, tcp-closing = 500, udp = 1500, icmp = 500, half-open = 500 }}\nmax-sessions-per-user = 40\nfiltering = \"{filtering}\"\n[[nat.forward]]\nexternal = \"203.0.113.10:80\"\ninside = \"10.0.0.9:8080\"\n[[nat.forward]]\nprotocol = \"udp\"\nexternal = \"203.0.113.20:53\"\ninside = \"10.0.0.9:5353\"\n"));
        rig.up(&["--config", file.to_str().unwrap()]);
        let mut inner = inner::command(&rig, "nat_model::inside_the_namespace");
        inner.env(SEED, Router::new(rig.pins()).nat_seed().unwrap().to_string());
        inner.env(OPEN, filtering).env(SEEDS, seeds);
        let printed = done(&mut inner);
        assert!(printed.contains("1 passed"), "{printed}");
        println!("{filtering}: {}", printed.lines().find(|line| line.contains("forwarded")).unwrap());
        for reason in ["nat-filtered", "nat-ports", "nat-sessions", "nat-no-session", "nat-no-mapping", "fragment"] {
            let count = rig.count("d0", reason) + rig.count("d1", reason);
            println!("{reason}: {count}");
            assert!(count > 0 || (reason == "nat-filtered" && filtering != "port-restricted"), "{reason}");
        }
    }
}

/// A frame, and whether it comes from inside. `seen` are frames that the NAT has let through.
fn next(numbers: &mut Numbers, seen: &[Vec<u8>]) -> (Frame, bool) {
    let user = format!("10.0.0.{}", 2 + numbers.below(8));
    let peer = format!("192.0.2.{}", 1 + numbers.below(6));
    let (port, peer_port) = (19_990 + numbers.below(300) as u16, 50 + numbers.below(5) as u16);
    let flags = numbers.pick(&[Tcp::SYN, Tcp::SYN, Tcp::ACK, Tcp::SYN | Tcp::ACK, Tcp::FIN | Tcp::ACK, Tcp::RST]);
    let external = format!("203.0.113.{}", numbers.pick(&[10, 11, 12, 20]));
    let (from, to) = ((user.as_str(), port), (peer.as_str(), peer_port));
    let outside = (external.as_str(), numbers.pick(&[80, 53, 20_000, 20_100, port]));
    let payload: Vec<u8> = (0..numbers.below(9)).map(|_| numbers.below(256) as u8).collect();
    let mut frame = match numbers.below(12) {
        0 | 1 => (Frame::udp(from, to, &payload), true),
        2 => (Frame::tcp(from, to, flags, &payload), true),
        3 => (Frame::echo(&user, &peer, numbers.below(4) == 0, port), true),
        4 => (Frame::udp(to, outside, &payload), false),
        5 => (Frame::tcp(to, outside, flags, &payload), false),
        6 => (Frame::udp(from, outside, &payload), true),
        7 => (Frame::tcp(from, outside, flags, &payload), true),
        // Answers to what went through, and errors about it.
        kind if !seen.is_empty() => {
            let frame = &seen[numbers.below(seen.len())];
            let flow = Flow::of(&parse(frame).unwrap()).unwrap();
            let (source, destination) = (flow.source.to_string(), flow.destination.to_string());
            let is_inside = destination.starts_with("10.0.0.");
            let back = ((destination.as_str(), flow.destination_port), (source.as_str(), flow.source_port));
            let answer = match (kind, flow.protocol) {
                (11, _) => {
                    let cut = numbers.pick(&[28, 40, 200]).min(frame.len() - 14);
                    Frame::error(&destination, &source, numbers.pick(&[3, 11]), &frame[14..14 + cut])
                }
                (_, 17) => Frame::udp(back.0, back.1, &payload),
                (_, 6) => Frame::tcp(back.0, back.1, flags, &payload),
                _ => Frame::echo(&destination, &source, true, flow.source_port),
            };
            (answer, is_inside)
        }
        _ => (Frame::udp(to, outside, &payload), false),
    };
    if frame.0.protocol == 6 {
        // Few numbers, so that many are those that the other side waits for.
        let (sequence, ack) = (numbers.below(3) as u32, numbers.below(3) as u32);
        frame.0 = frame.0.at(sequence.wrapping_sub(1), ack.wrapping_sub(1));
    }
    if frame.0.protocol == 17 && numbers.below(8) == 0 {
        // UDP without a sum.
        frame.0.segment[6..8].fill(0);
    }
    if numbers.below(15) == 0 {
        frame.0.fragment = numbers.pick(&[0x2000, 0x2000, 0x2000, 0x0010, 0x4000]);
    }
    frame
}

/// A fragment that follows a first one: it may be of another packet, or begin within the header.
fn later(numbers: &mut Numbers, first: &Frame) -> Frame {
    let fragment = numbers.pick(&[0x2009, 0x0009, 0x0003, 0x0001]);
    let id = if numbers.below(5) == 0 { first.id ^ 0x8000 } else { first.id };
    let segment = (0..numbers.below(40)).map(|_| numbers.below(256) as u8).collect();
    Frame { fragment, id, segment, ..first.clone() }
}

/// The NAT of the file, by hand.
fn model(filtering: &str, seed: u32) -> Nat {
    let forward = |protocol, external: &str, inside: &str| PortForward {
        protocol,
        external: external.parse().unwrap(),
        inside: inside.parse().unwrap(),
    };
    let seconds = Duration::from_secs;
    Nat::new(NatConfig {
        inside: vec!["10.0.0.0/24".parse().unwrap()],
        pool: (10..=12).map(|last| [203, 0, 113, last].into()).collect(),
        ports: 20_000..=20_029,
        filtering: match filtering {
            "port-restricted" => Filtering::PortRestricted,
            _ => Filtering::EndpointIndependent,
        },
        forwards: vec![forward(6, "203.0.113.10:80", "10.0.0.9:8080"), forward(17, "203.0.113.20:53", "10.0.0.9:5353")],
        max_sessions: 250,
        max_sessions_per_user: 40,
        seed,
        timeouts: Timeouts {
            tcp_transitory: seconds(500),
            tcp_established: seconds(7_500),
            tcp_closing: seconds(500),
            udp: seconds(1_500),
            icmp: seconds(500),
            half_open: seconds(500),
        },
    })
    .unwrap()
}

/// Lets time pass, and waits until the clock of the NAT has removed what is over.
fn pause(pins: &Path, nat: &mut Nat, now: Duration) {
    clock::pass(pins, &clock::NAT, PAUSE);
    let (before, over) = (nat.session_count(), nat.expire(now));
    assert!(over > 0 && over < before, "{over} of {before} sessions are over");
    let forwarded =
        [(6, 8080), (17, 5353)].map(|(protocol, port)| Endpoint { protocol, address: [10, 0, 0, 9].into(), port });
    let mappings: HashSet<_> = nat.sessions().map(|session| session.inside).chain(forwarded).collect();
    let users: HashSet<_> = nat.sessions().map(|session| (session.inside.address, session.is_outbound)).collect();
    let wanted = [("nat_sessions", before - over), ("nat_mappings", mappings.len()), ("nat_users", users.len())];
    let end = Instant::now() + PATIENCE;
    while wanted.iter().any(|(name, entries)| clock::entries(pins, name) != *entries) {
        let found = wanted.map(|(name, _)| clock::entries(pins, name));
        assert!(Instant::now() < end, "the tables have {found:?} entries, and not {wanted:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
#[ignore = "the_program_and_the_model_translate_alike runs it in the namespace of its router"]
fn inside_the_namespace() {
    let inner = Inner::read();
    let router = Router::new(inner.pins());
    let seeds: Vec<u64> = variable(SEEDS).split(',').map(|seed| seed.parse().unwrap()).collect();
    let mut nat = model(&variable(OPEN), variable(SEED).parse().unwrap());
    let mut now = Duration::from_secs(1);
    let mut numbers = Numbers(seeds[0]);
    let mut seen: Vec<Vec<u8>> = Vec::new();
    let mut counts = [0; 3];
    let program = router.runner().unwrap();
    let mut first: Option<(Frame, bool)> = None;
    let mut followed = 0;
    for number in 0..FRAMES * seeds.len() {
        if number > 0 && number % FRAMES == 0 {
            now += PAUSE;
            pause(inner.pins(), &mut nat, now);
            numbers = Numbers(seeds[number / FRAMES]);
        }
        let (frame, is_inside) = match first.take() {
            Some((first, is_inside)) => (later(&mut numbers, &first), is_inside),
            None => {
                let (frame, is_inside) = next(&mut numbers, &seen);
                (Frame { id: number as u16, ..frame }, is_inside)
            }
        };
        first = (frame.fragment == 0x2000).then(|| (frame.clone(), is_inside));
        let side = usize::from(!is_inside);
        let mut bytes = frame.bytes();
        inner.set_destination(&mut bytes, side);
        let packet = parse(&bytes).unwrap();
        let expected = nat.translate(&bytes, &packet, now);
        let (action, after) = program.run(&bytes, inner.ports[side]).unwrap();
        let context = || format!("frame {number} {packet:?}\nmodel {expected:?}\nprogram {action} {after:02x?}");
        match &expected {
            Ok(translation) => {
                assert_eq!(action, 4, "{}", context());
                // The router has changed the time to live, its sum and the addresses of the link.
                let mut wanted = translation.frame.clone();
                wanted[..12].copy_from_slice(&after[..12]);
                assert_eq!(after[22] + 1, wanted[22]);
                wanted[22..26].copy_from_slice(&after[22..26]);
                assert_eq!(after, wanted, "{}", context());
                parse(&after).unwrap();
                counts[0] += 1;
                followed += usize::from(frame.fragment & 0x1fff != 0);
                if seen.len() < 400 {
                    seen.push(after);
                } else {
                    let place = numbers.below(400);
                    seen[place] = after;
                }
            }
            Err(Verdict::Pass(PassReason::NatFragment | PassReason::NatProtocol | PassReason::NatNoMapping)) => {
                assert_eq!((action, &after), (2, &bytes), "{}", context());
                counts[1] += 1;
            }
            Err(Verdict::Drop(
                DropReason::NatFiltered
                | DropReason::NatPortsExhausted
                | DropReason::NatSessionsExhausted
                | DropReason::NatNoSession
                | DropReason::MartianSource
                | DropReason::Malformed(_),
            )) => {
                assert_eq!(action, 1, "{}", context());
                counts[2] += 1;
            }
            Err(other) => panic!("{other:?}"),
        }
    }
    println!("{} forwarded, {} to the kernel, {} dropped", counts[0], counts[1], counts[2]);
    assert!(followed > 20, "{followed} fragments followed their first one");
    let mut sessions: Vec<_> = nat.sessions().map(|one| (one.inside, one.remote, one.external, one.state)).collect();
    sessions.sort_by_key(|one| (one.0, one.1));
    let standing = router.nat_sessions(10_000).unwrap();
    let standing: Vec<_> = standing.iter().map(|one| (one.inside, one.remote, one.external, one.state)).collect();
    assert_eq!(standing, sessions);
}
