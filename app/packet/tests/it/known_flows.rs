//! The firewall's known flows: the program and the tracker of core/packet judge the same packets alike, over time.

use std::{
    collections::{BTreeMap, HashMap},
    time::{Duration, Instant},
};

use sallyport_packet_model::{
    filter::{Action, Filter, FlowState, Policy, Rule, Timeouts, Tracker},
    parse::{Tcp, parse},
};
use sallyport_xdp::Router;

use crate::{
    clock,
    inner::{self, Inner, Numbers},
    model_frames::Frame,
    rig::{Rig, done},
};

/// Frames between two moves of the clock.
const FRAMES: usize = 2_000;
/// The seed of the frames, and the time that passes before them. Unanswered flows live for 30 seconds, answered ones for
/// 180, beginnings of TCP for 240, and its connections for 7,440.
const PHASES: [(u64, u64); 4] = [(1, 0), (2, 100), (3, 210), (4, 10_000)];

/// Answers and errors of known flows, everything new from inside, and questions from outside.
const POLICY: &str = r#"
default = "drop"
[[rule]]
name = "answers"
action = "accept"
states = ["established", "related"]
[[rule]]
name = "inside"
action = "accept"
in = "d0"
states = ["new"]
[[rule]]
name = "questions"
action = "accept"
protocol = "udp"
ports = [53]
states = ["new"]
"#;

#[test]
fn the_program_and_the_tracker_know_the_same_flows() {
    let Some(rig) = Rig::new() else { return };
    rig.resolve();
    rig.write("policy.toml", POLICY);
    let file = rig.write("router.toml", "policy = \"policy.toml\"\n[[port]]\ndev = \"d0\"\n[[port]]\ndev = \"d1\"\n");
    rig.up(&["--config", file.to_str().unwrap()]);
    let mut inner = inner::command(&rig, "known_flows::inside_the_namespace");
    let printed = done(&mut inner);
    assert!(printed.contains("1 passed"), "{printed}");
    println!("{printed}");
}

/// A frame of one of a few hundred flows, and whether it comes from inside.
fn next(numbers: &mut Numbers) -> (Frame, bool) {
    let is_v6 = numbers.below(3) == 0;
    let (inside, outside) = if is_v6 {
        ("fd00::2".to_owned(), format!("fd00:2::{}", 1 + numbers.below(3)))
    } else {
        ("10.0.0.2".to_owned(), format!("192.0.2.{}", 1 + numbers.below(3)))
    };
    let (port, peer_port) = (5_000 + numbers.below(12) as u16, numbers.pick(&[53, 80]));
    let from_inside = numbers.below(2) == 0;
    let (near, far) = ((inside.as_str(), port), (outside.as_str(), peer_port));
    // What an outside host begins goes to the port 53 of the inside.
    let near = if numbers.below(6) == 0 { (near.0, 53) } else { near };
    let (from, to) = if from_inside { (near, far) } else { (far, near) };
    let flags = numbers.pick(&[
        Tcp::SYN,
        Tcp::SYN | Tcp::ACK,
        Tcp::ACK,
        Tcp::ACK,
        Tcp::FIN | Tcp::ACK,
        Tcp::RST,
        Tcp::RST | Tcp::ACK,
    ]);
    let frame = match numbers.below(8) {
        0..=2 => Frame::udp(from, to, b"x"),
        3..=5 => {
            // Few numbers, so that many are those that the other side waits for.
            let (sequence, ack) = (numbers.below(3) as u32, numbers.below(3) as u32);
            Frame::tcp(from, to, flags, b"").at(sequence.wrapping_sub(1), ack.wrapping_sub(1))
        }
        6 => Frame::echo(from.0, to.0, numbers.below(2) == 0, port),
        // An error about a packet that goes the other way; one in four is about a packet of the sender.
        _ => {
            let (source, dest) = if numbers.below(4) == 0 { (from, to) } else { (to, from) };
            let quoted = match numbers.below(2) {
                0 => Frame::udp(source, dest, b"x"),
                _ => Frame::tcp(source, dest, Tcp::SYN, b""),
            };
            Frame::error(from.0, to.0, if is_v6 { 1 } else { 3 }, &quoted.packet())
        }
    };
    (frame, from_inside)
}

/// The policy of POLICY, by hand.
fn model(inside: u32) -> Filter {
    let rule = |name: &str| Rule::new(name, Action::Accept);
    let rules = vec![
        Rule { states: vec![FlowState::Established, FlowState::Related], ..rule("answers") },
        Rule { incoming: Some(inside), states: vec![FlowState::New], ..rule("inside") },
        Rule {
            protocol: Some(17),
            destination_ports: vec![53..=53],
            states: vec![FlowState::New],
            ..rule("questions")
        },
    ];
    let policy = Policy::new(rules, BTreeMap::new(), Action::Drop).unwrap();
    // As after a restart, connections may begin in their middle.
    Filter { policy, tracker: Tracker::new(100_000, Timeouts::default(), true) }
}

#[test]
#[ignore = "the_program_and_the_tracker_know_the_same_flows runs it in the namespace of its router"]
fn inside_the_namespace() {
    let inner = Inner::read();
    let runner = Router::new(inner.pins()).runner().unwrap();
    let mut filter = model(inner.ports[0]);
    let began = Instant::now();
    let mut passed = Duration::ZERO;
    let mut seen: HashMap<(FlowState, bool), u64> = HashMap::new();
    for (seed, seconds) in PHASES {
        let time = Duration::from_secs(seconds);
        clock::pass(inner.pins(), &clock::POLICY, time);
        passed += time;
        let forgotten = filter.tracker.expire(began.elapsed() + passed);
        println!("after {seconds} s, {forgotten} flows are over, and {} live", filter.tracker.count());
        assert_eq!(forgotten > 0, seconds > 0, "some flows end in each phase");
        let mut numbers = Numbers(seed);
        for number in 0..FRAMES {
            let (frame, from_inside) = next(&mut numbers);
            let side = usize::from(!from_inside);
            let mut bytes = frame.bytes();
            inner.set_destination(&mut bytes, side);
            let packet = parse(&bytes).unwrap();
            let now = began.elapsed() + passed;
            let ways = (Some(inner.ports[side]), Some(inner.ports[1 - side]));
            let state = filter.test(&packet, ways, now).unwrap().0.state;
            let decision = filter.check(&packet, ways, now).unwrap().unwrap();
            let (action, _) = runner.run(&bytes, inner.ports[side]).unwrap();
            let is_accepted = decision.action == Action::Accept;
            let wanted = if is_accepted { 4 } else { 1 };
            assert_eq!(action, wanted, "seed {seed}, frame {number}: {state:?} {decision:?}\n{packet:?}");
            *seen.entry((state, is_accepted)).or_default() += 1;
        }
    }
    println!("{seen:?}");
    for one in [
        (FlowState::New, true),
        (FlowState::New, false),
        (FlowState::Established, true),
        (FlowState::Related, true),
        (FlowState::Invalid, false),
    ] {
        assert!(seen.get(&one).is_some_and(|count| *count > 50), "{one:?}: {seen:?}");
    }
}
