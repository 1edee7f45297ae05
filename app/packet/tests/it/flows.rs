//! What a flood and a stranger's end do to flows that are known, by frames that nobody sends.

use sallyport_packet_model::{checksum, nat::SessionState, parse::Tcp};
use sallyport_xdp::{Router, Runner};
use serde_json::Value;

use crate::{
    model_frames::Frame,
    rig::{Rig, done},
};

const PINS: &str = "PACKET_FLOWS_PINS";
const PORTS: &str = "PACKET_FLOWS_PORTS";
const MACS: &str = "PACKET_FLOWS_MACS";
/// Flows of a flood: more than the tables hold.
const FLOOD: u32 = 600_000;
const INSIDE: (&str, u16) = ("10.0.0.2", 5_000);
const OUTSIDE: (&str, u16) = ("192.0.2.7", 80);
const REDIRECT: u32 = 4;
const DROP: u32 = 1;

/// Runs an ignored test of this file in the namespace of a router with this file.
fn inside(test: &str, lines: &str, policy: &str) {
    let Some(rig) = Rig::new() else { return };
    rig.resolve();
    rig.write("policy.toml", policy);
    let file = rig.write("router.toml", &format!("{lines}[[port]]\ndev = \"d0\"\n[[port]]\ndev = \"d1\"\n"));
    rig.up(&["--config", file.to_str().unwrap()]);
    let links = ["d0", "d1"]
        .map(|device| -> Value { serde_json::from_str(&rig.ip("dut", &format!("-j link show {device}"))).unwrap() });
    let both = |field: &str| {
        links.iter().map(|link| link[0][field].to_string().replace('"', "")).collect::<Vec<_>>().join(",")
    };
    let own = std::env::current_exe().unwrap();
    let mut inner = rig.inside("dut", own.to_str().unwrap());
    inner.args(["--exact", &format!("flows::{test}"), "--ignored", "--nocapture"]);
    inner.env(PINS, rig.pins()).env(PORTS, both("ifindex")).env(MACS, both("address"));
    let printed = done(&mut inner);
    assert!(printed.contains("1 passed"), "{printed}");
}

/// The programs of the router, and the sides of it.
struct Sides {
    router: Router,
    runner: Runner,
    ports: Vec<u32>,
    macs: Vec<Vec<u8>>,
}

impl Sides {
    fn open() -> Self {
        let variable = |name| std::env::var(name).unwrap();
        let router = Router::new(variable(PINS));
        let byte = |byte| u8::from_str_radix(byte, 16).unwrap();
        Self {
            runner: router.runner().unwrap(),
            router,
            ports: variable(PORTS).split(',').map(|port| port.parse().unwrap()).collect(),
            macs: variable(MACS).split(',').map(|mac| mac.split(':').map(byte).collect()).collect(),
        }
    }

    /// What XDP says to a frame from the inside (0) or from the outside (1).
    fn run(&self, side: usize, frame: &Frame) -> u32 {
        let mut bytes = frame.bytes();
        bytes[..6].copy_from_slice(&self.macs[side]);
        self.runner.run(&bytes, self.ports[side]).unwrap().0
    }

    /// A segment of a connection by its numbers.
    fn segment(&self, side: usize, flags: u8, (sequence, ack): (u32, u32)) -> u32 {
        let (from, to) = if side == 0 { (INSIDE, OUTSIDE) } else { (OUTSIDE, INSIDE) };
        self.run(side, &Frame::tcp(from, to, flags, b"").at(sequence, ack))
    }

    fn shake_hands(&self) {
        assert_eq!(self.segment(0, Tcp::SYN, (100, 0)), REDIRECT);
        assert_eq!(self.segment(1, Tcp::SYN | Tcp::ACK, (700, 101)), REDIRECT);
        assert_eq!(self.segment(0, Tcp::ACK, (101, 701)), REDIRECT);
    }
}

const POLICY: &str = "default = \"drop\"\n[[rule]]\nname = \"answers\"\naction = \"accept\"\nstates = [\"established\"]\n\
                      [[rule]]\nname = \"inside\"\naction = \"accept\"\nin = \"d0\"\n";

#[test]
fn a_flood_of_beginnings_evicts_no_known_flow() {
    inside("inside_a_flood", "policy = \"policy.toml\"\n", POLICY);
}

#[test]
#[ignore = "a_flood_of_beginnings_evicts_no_known_flow runs it in the namespace of its router"]
fn inside_a_flood() {
    let sides = Sides::open();
    sides.shake_hands();
    let talk = |side: usize| {
        let (from, to) =
            if side == 0 { (("10.0.0.2", 6_000), ("192.0.2.7", 53)) } else { (("192.0.2.7", 53), ("10.0.0.2", 6_000)) };
        sides.run(side, &Frame::udp(from, to, b"x"))
    };
    assert_eq!([talk(0), talk(1), talk(0)], [REDIRECT; 3]);
    let mut flood = Frame::tcp(INSIDE, OUTSIDE, Tcp::SYN, b"").bytes();
    flood[..6].copy_from_slice(&sides.macs[0]);
    for number in 0..FLOOD {
        // Another port and another number: the sum of TCP is not looked at.
        flood[34..36].copy_from_slice(&(number as u16).to_be_bytes());
        flood[36..38].copy_from_slice(&(1_000 + (number >> 16) as u16).to_be_bytes());
        let (action, _) = sides.runner.run(&flood, sides.ports[0]).unwrap();
        assert_eq!(action, REDIRECT, "{number}");
    }
    assert_eq!(sides.segment(1, Tcp::ACK, (701, 101)), REDIRECT, "the connection is known");
    assert_eq!(talk(1), REDIRECT, "so is the other flow");
    assert_eq!(sides.segment(1, Tcp::ACK, (9, 9)), REDIRECT);
    let (peer, own) = (1_000 + ((FLOOD - 1) >> 16) as u16, (FLOOD - 1) as u16);
    let answer = Frame::tcp((OUTSIDE.0, peer), (INSIDE.0, own), Tcp::SYN | Tcp::ACK, b"");
    assert_eq!(sides.run(1, &answer), REDIRECT, "the last of the flood is there too");
    assert_eq!(sides.run(1, &Frame::tcp(OUTSIDE, ("10.0.0.9", 5_001), Tcp::ACK, b"")), DROP);
}

#[test]
fn a_reset_of_a_stranger_ends_no_session() {
    inside("inside_a_reset", "[nat]\ninside = [\"10.0.0.0/24\"]\npool = [\"10.0.1.1\"]\n", "default = \"accept\"\n");
}

#[test]
#[ignore = "a_reset_of_a_stranger_ends_no_session runs it in the namespace of its router"]
fn inside_a_reset() {
    let sides = Sides::open();
    let back = |flags, (sequence, ack)| {
        let frame = Frame::tcp(OUTSIDE, ("10.0.1.1", INSIDE.1), flags, b"").at(sequence, ack);
        assert_eq!(sides.run(1, &frame), REDIRECT);
        let sessions = sides.router.nat_sessions(10).unwrap();
        (sessions[0].state, sessions[0].expires.as_secs() > 3_600)
    };
    assert_eq!(sides.segment(0, Tcp::SYN, (100, 0)), REDIRECT);
    assert_eq!(back(Tcp::SYN | Tcp::ACK, (700, 101)), (SessionState::Answered, false));
    assert_eq!(sides.segment(0, Tcp::ACK, (101, 701)), REDIRECT);
    for guessed in (0..u32::MAX - 200_000).step_by(199_999) {
        assert_eq!(back(Tcp::RST, (guessed, 0)), (SessionState::Established, true), "{guessed}");
    }
    assert_eq!(back(Tcp::FIN | Tcp::ACK, (701, 101)), (SessionState::Established, true), "one end");
    assert_eq!(back(Tcp::RST, (701, 0)), (SessionState::Closing, false), "the awaited one");
}

#[test]
fn what_is_behind_a_packet_and_who_speaks_as_the_nat_has_no_say() {
    let policy = "default = \"drop\"\n[[rule]]\nname = \"answers\"\naction = \"accept\"\nstates = [\"established\", \
                  \"related\"]\n[[rule]]\nname = \"web\"\naction = \"accept\"\nprotocol = \"tcp\"\nports = [80]\n";
    let nat = "[nat]\ninside = [\"10.0.0.0/24\"]\npool = [\"10.0.1.1\"]\n[[nat.forward]]\nexternal = \"10.0.1.1:80\"\n\
               inside = \"10.0.0.2:80\"\n";
    inside("inside_odd_ends", &format!("policy = \"policy.toml\"\n{nat}"), policy);
}

#[test]
#[ignore = "what_is_behind_a_packet_and_who_speaks_as_the_nat_has_no_say runs it in the namespace of its router"]
fn inside_odd_ends() {
    let sides = Sides::open();
    let run = |side: usize, mut bytes: Vec<u8>| {
        bytes[..6].copy_from_slice(&sides.macs[side]);
        sides.runner.run(&bytes, sides.ports[side]).unwrap()
    };
    // IPv6 whose header of TCP is behind the end of the packet.
    let whole = Frame::tcp(("fd00::2", 5_000), ("fd00:2::7", 80), Tcp::SYN, b"").bytes();
    assert_eq!(run(0, whole.clone()).0, REDIRECT);
    for length in [0, 4, 8, 19] {
        let mut short = whole.clone();
        short[18..20].copy_from_slice(&(length as u16).to_be_bytes());
        assert_eq!(run(0, short).0, DROP, "{length} bytes of TCP");
    }
    // A stranger whose source is the NAT itself.
    let knock = |from: &str| run(1, Frame::tcp((from, 7), ("10.0.1.1", 80), Tcp::SYN, b"").bytes()).0;
    assert_eq!((knock("192.0.2.7"), knock("10.0.1.1")), (REDIRECT, DROP));
    // An error whose quote ends before the sum of TCP, with something behind the packet.
    assert_eq!(sides.segment(0, Tcp::SYN, (100, 0)), REDIRECT);
    let sent = Frame::tcp(("10.0.1.1", INSIDE.1), OUTSIDE, Tcp::SYN, b"").at(100, 0).packet();
    for (quoted, behind) in [(28, 0), (28, 30), (40, 7)] {
        let mut error = Frame::error("192.0.2.9", "10.0.1.1", 3, &sent[..quoted]).bytes();
        error.extend(std::iter::repeat_n(0x5a, behind));
        let (action, after) = run(1, error);
        assert_eq!(action, REDIRECT);
        let packet = &after[14..14 + 28 + quoted];
        assert_eq!(checksum::full(&packet[20..]), 0, "the sum of an error with {quoted} bytes and {behind} behind");
        assert_eq!(packet[16..20], [10, 0, 0, 2]);
        assert!(after[14 + 28 + quoted..].iter().all(|byte| *byte == 0x5a), "what is behind is not changed");
    }
}
