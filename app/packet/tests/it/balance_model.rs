//! The programs of a balancer and of an edge agree with their models, over frames by a seed.
//!
//! `PACKET_FRAMES=1000000` runs more frames.

use std::{collections::HashMap, env, time::Duration};

use sallyport_packet_model::balance::{
    BalanceConfig, Edge, Encapsulation, Numbers, Outer, SteerReason, Steering, wrap,
};
use sallyport_xdp::{
    Action, Reason,
    balance::{Balancer, Decap},
};

use crate::{
    model_frames::Frame,
    rig::done,
    site::{EGRESS, SOURCE4, SOURCE6, Site, VIRTUAL4, VIRTUAL6},
};

const FRAMES: u64 = 20_000;
/// How the outer test tells the inner one where things stand.
pub(crate) const PINS: &str = "PACKET_TEST_PINS";
pub(crate) const CONFIG: &str = "PACKET_TEST_CONFIG";
pub(crate) const PORT: &str = "PACKET_TEST_PORT";
const MAC: &str = "PACKET_TEST_MAC";
/// The results of XDP.
pub(crate) const DROP: u32 = 1;
pub(crate) const PASS: u32 = 2;
pub(crate) const TX: u32 = 3;
pub(crate) const REDIRECT: u32 = 4;
/// The MTU of edges' links.
const MTU: u16 = 1600;
const ELSEWHERE: &str = "198.51.100.6";
const OTHER_SITE: &str = "10.8.0.1";

/// Randomness by a seed: SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())]
    }
}

/// Runs a part, which is an ignored test, in the namespace of a machine.
pub(crate) fn inner(site: &Site, name: &str, part: &str, device: &str, config: &str) {
    let test = env::current_exe().unwrap();
    let (index, mac) = site.link(name, device);
    let mut inner = site.inside(name, test.to_str().unwrap());
    inner.args(["--exact", part, "--ignored", "--nocapture"]);
    inner.env(PINS, site.pins(name)).env(CONFIG, config).env(PORT, index.to_string());
    let printed = done(inner.env(MAC, mac.map(|byte| byte.to_string()).join(",")));
    assert!(printed.contains("1 passed"), "{printed}");
    println!("{printed}");
}

pub(crate) fn variable(name: &str) -> String {
    env::var(name).unwrap()
}

pub(crate) fn mac() -> Vec<u8> {
    variable(MAC).split(',').map(|byte| byte.parse().unwrap()).collect()
}

fn frames() -> u64 {
    env::var("PACKET_FRAMES").map_or(FRAMES, |number| number.parse().unwrap())
}

#[test]
fn the_balancer_and_its_model_agree() {
    let Some(site) = Site::new(4) else { return };
    site.resolve();
    site.batch("lb", &format!("route add {OTHER_SITE}/32 via 10.2.1.2\n"));
    for head in ["seed = 77", "encapsulation = \"ipip\"\nconnections = 0", "connections = 0\nfragments = \"drop\""] {
        let edges = [
            (1, "server = 1"),
            (2, "server = 258\nstate = \"draining\""),
            (3, "weight = 300"),
            (4, "state = \"down\""),
        ];
        let mut text = site.config(head, &edges);
        // An edge and a machine of IPv6, of a family that services and egress addresses are not.
        text = text.replace("address = \"10.2.3.2\"", "address = \"fd02:3::2\"");
        text += &format!(
            "[[site]]\nname = \"fra\"\nbalancer = \"{OTHER_SITE}\"\n\
             [[egress]]\naddress = \"{ELSEWHERE}\"\nsite = \"fra\"\n\
             [[egress]]\naddress = \"{EGRESS}\"\n\
             slice = [{{ number = 1, machine = \"e1\" }}, {{ number = 2, machine = \"e3\" }}, {{ number = 31, machine = \"e2\" }}]\n"
        );
        site.balance(&text);
        inner(&site, "lb", "balance_model::inside_the_balancer", "b0", &text);
    }
}

/// A packet of a client, mostly a good one.
fn packet(random: &mut Random) -> Frame {
    let is_v6 = random.below(3) == 0;
    let source = if is_v6 {
        random.of(&["fd01:0::2", "2001:db8::7", "2001:db8::8"])
    } else {
        random.of(&["10.1.0.2", "192.0.2.7", "192.0.2.8"])
    };
    let dest = if is_v6 {
        random.of(&[VIRTUAL6, VIRTUAL6, VIRTUAL6, "2001:db8:b::1"])
    } else {
        random.of(&[VIRTUAL4, VIRTUAL4, VIRTUAL4, EGRESS, EGRESS, ELSEWHERE, "10.1.0.1", "203.0.113.11"])
    };
    let from = random.of(&[1025, 1026, 40_000, 65_535]);
    let to = if dest == EGRESS {
        random.of(&[80, 2_048, 4_095, 4_096, 6_143, 6_144, 63_488, 65_535])
    } else {
        random.of(&[80, 80, 443, 1_000, 1_001])
    };
    let length = if random.below(8) == 0 { 1_400 + random.below(180) } else { random.below(60) };
    let mut payload: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
    if random.below(2) == 0 && payload.len() > 9 {
        // An id of QUIC.
        let [high, low] = random.of(&[1_u16, 258, 9]).to_be_bytes();
        let start = if random.below(2) == 0 { 1 } else { 6 };
        (payload[0], payload[5]) = (if start == 1 { 0x40 } else { 0xc0 }, 9);
        payload[start..start + 3].copy_from_slice(&[random.of(&[8, 8, 8, 1, 0x28]), high, low]);
    }
    let flags = random.of(&[2, 0x10, 0x10, 0x18, 0x11, 4, 0x12]);
    let mut frame = match random.below(12) {
        0..=4 => Frame::tcp((source, from), (dest, to), flags, &payload),
        5..=7 => Frame::udp((source, from), (dest, to), &payload),
        8 => Frame::echo(source, dest, random.below(2) == 0, to),
        9 | 10 => {
            let kind = if is_v6 { random.of(&[1, 2, 3]) } else { random.of(&[3, 11, 12]) };
            let quoted = match random.below(4) {
                0 => Frame::udp((dest, to), (source, from), &payload),
                1 => Frame::tcp((source, to), (dest, from), 0x10, &payload),
                _ => Frame::tcp((dest, to), (source, from), 0x10, &payload),
            };
            let quoted = quoted.packet();
            let cut = random.of(&[20, 24, 28, 44, 48, 200]).min(quoted.len());
            Frame::error(source, dest, kind, &quoted[..cut])
        }
        _ => Frame::new(source, dest, random.of(&[47, 132, 4, 41]), payload),
    };
    if random.below(10) == 0 {
        frame.segment.truncate(random.below(24));
    }
    if random.below(10) == 0 {
        if is_v6 {
            let more = random.of(&[[0, 1], [0, 9], [1, 0x20]]);
            frame.extra = vec![frame.protocol, 0, more[0], more[1], 1, 2, 3, 4];
            frame.next_header = Some(44);
        } else {
            frame.fragment = random.of(&[0x2000, 0x0010, 0x2010]);
        }
    } else if !is_v6 {
        frame.fragment = random.of(&[0, 0x4000]);
    }
    frame.padding = random.of(&[0, 0, 7]);
    frame
}

/// The frame in a tunnel of another site, or of a stranger.
fn in_tunnel(random: &mut Random, frame: &Frame, source: &str, dest: &str) -> Vec<u8> {
    let bytes = frame.bytes();
    let outer = Outer {
        encapsulation: random.of(&[Encapsulation::Gue, Encapsulation::Ipip]),
        source: source.parse().unwrap(),
        destination: dest.parse().unwrap(),
        second: random
            .of(&[None, Some("10.2.2.2"), Some("10.2.3.2"), Some("fd02:2::2")])
            .map(|two| two.parse().unwrap()),
        port: random.of(&[6080, 6080, 6080, 6081]),
        hash: random.next() as u32,
    };
    let mut sent = wrap(&bytes, (bytes.len() - 14 - frame.padding) as u16, 0, &outer);
    // The header of GUE is behind those of IP and UDP.
    let start = if outer.destination.is_ipv4() { 42 } else { 62 };
    if random.below(6) == 0 && outer.encapsulation == Encapsulation::Gue {
        let place = start + random.below(8);
        sent[place] = random.next() as u8;
    }
    sent
}

#[test]
#[ignore = "the_balancer_and_its_model_agree runs it in the namespace of its balancer"]
fn inside_the_balancer() {
    let balancer = Balancer::new(variable(PINS));
    let config: BalanceConfig = toml::from_str(&variable(CONFIG)).unwrap();
    let tables = config.compile(&mut Numbers::default()).unwrap();
    let mut model = Steering::new(tables, config.connections as usize);
    let (port, mac) = (variable(PORT).parse().unwrap(), mac());
    let runner = balancer.runner().unwrap();
    let mut random = Random(5);
    let mut seen: HashMap<&str, u64> = HashMap::new();
    let mut limited = 0_u64;
    for number in 0..frames() {
        let frame = packet(&mut random);
        let mut bytes = match random.below(12) {
            0 => {
                let source = random.of(&[OTHER_SITE, OTHER_SITE, "10.8.0.2"]);
                in_tunnel(&mut random, &frame, source, SOURCE4)
            }
            _ => frame.bytes(),
        };
        bytes[..6].copy_from_slice(&mac);
        let said = runner.explain_frame(&bytes, port).unwrap();
        let (action, after) = runner.run(&bytes, port).unwrap();
        let expected = model.steer(&bytes, Duration::ZERO, MTU);
        let context =
            || format!("frame {number} {bytes:02x?}\nmodel {expected:02x?}\nprogram {action} {said:?} {after:02x?}");
        match expected.reason {
            SteerReason::TooBigSent | SteerReason::TooBigDropped => {
                assert_eq!(said.reason, Reason::TooBig, "{}", context())
            }
            // The model does not tell what is wrong with the packet inside a tunnel.
            SteerReason::Tunnel => assert_eq!(said.reason.action(), Action::Drop, "{}", context()),
            reason => assert_eq!(said.reason.name(), reason.name(), "{}", context()),
        }
        // The model has no limit for errors: the program drops what is above it, as it came.
        if expected.reason == SteerReason::TooBigSent && action == DROP {
            assert_eq!(after, bytes, "{}", context());
            limited += 1;
            continue;
        }
        *seen.entry(expected.reason.name()).or_default() += 1;
        let (wanted, compares) = match expected.reason {
            SteerReason::Balanced | SteerReason::BalancedPair | SteerReason::Slice | SteerReason::Site => {
                (REDIRECT, 12)
            }
            SteerReason::TooBigSent => (TX, 0),
            SteerReason::NotVirtual => (PASS, 0),
            _ => (DROP, usize::MAX),
        };
        assert_eq!(action, wanted, "{}", context());
        if compares < usize::MAX {
            let frame = expected.frame.as_ref().unwrap_or(&bytes);
            assert_eq!(after[compares..], frame[compares..], "{}", context());
        }
    }
    println!("{seen:?}, {limited} above the limit for errors, {} connections", model.connections());
    let all =
        ["balanced", "balanced-pair", "slice", "site", "too-big-sent", "stranger", "slice-free", "slice-fragment"];
    for reason in all.iter().filter(|reason| !variable(CONFIG).contains("drop") || **reason != "balanced-pair") {
        assert!(seen.get(reason).is_some_and(|count| *count > 5), "{reason}: {seen:?}");
    }
}

#[test]
fn an_edge_and_its_model_agree() {
    let Some(site) = Site::new(3) else { return };
    site.edge_up(1, &[]);
    inner(&site, "e1", "balance_model::inside_the_edge", "e0", "");
}

#[test]
#[ignore = "an_edge_and_its_model_agree runs it in the namespace of its edge"]
fn inside_the_edge() {
    let decap = Decap::new(variable(PINS));
    let config = decap.config().unwrap();
    let model = Edge {
        balancers: config.balancers,
        mates: config.mates,
        addresses: config.addresses.into_keys().collect(),
        locals: config.locals,
        gue_port: config.gue_port,
        has_second_chance: config.has_second_chance,
    };
    let (port, mac) = (variable(PORT).parse().unwrap(), mac());
    let mut random = Random(6);
    let mut seen: HashMap<&str, u64> = HashMap::new();
    let frames: Vec<Vec<u8>> = (0..frames())
        .map(|_| {
            let frame = packet(&mut random);
            let (source, dest) = random.of(&[
                (SOURCE4, "10.2.1.2"),
                (SOURCE4, "10.2.1.2"),
                (SOURCE6, "fd02:1::2"),
                ("10.2.2.2", "10.2.1.2"),
                ("192.0.2.66", "10.2.1.2"),
                (SOURCE4, "10.2.9.9"),
            ]);
            let mut bytes = in_tunnel(&mut random, &frame, source, dest);
            bytes[..6].copy_from_slice(&mac);
            bytes
        })
        .collect();
    for (number, (frame, (action, after))) in frames.iter().zip(decap.run_frames(&frames, port).unwrap()).enumerate() {
        // No server runs here, so no connection is here.
        let (reason, expected) = model.take(frame, |_| false);
        *seen.entry(reason.name()).or_default() += 1;
        let context =
            || format!("frame {number} {frame:02x?}\nmodel {reason:?} {expected:02x?}\nprogram {action} {after:02x?}");
        let wanted = match reason {
            SteerReason::SecondChance => TX,
            SteerReason::Decapsulated | SteerReason::NotVirtual => PASS,
            _ => DROP,
        };
        assert_eq!(action, wanted, "{}", context());
        if action != DROP {
            assert_eq!(after[12..], expected[12..], "{}", context());
        }
    }
    println!("{seen:?}");
    for reason in ["second-chance", "decapsulated", "not-virtual", "stranger", "tunnel", "no-address"] {
        assert!(seen.get(reason).is_some_and(|count| *count > 5), "{reason}: {seen:?}");
    }
}
