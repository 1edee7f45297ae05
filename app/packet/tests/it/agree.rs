//! The programs and their model agree: verdict, reason and bytes, over frames of all kinds, by BPF_PROG_TEST_RUN.
//!
//! `PACKET_FRAMES=1000000` runs more frames, and `PACKET_SEED` runs those of a failure again.

use std::{
    env,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use sallyport_packet_model::{
    checksum,
    forward::{DropReason, Interface, PassReason, ReversePath, Router as Model, Verdict, forward},
    parse::{Malformed, Tags},
    route::{Fib, NextHop, Storage},
};
use sallyport_xdp::{Action, Reason, Router};
use serde_json::Value;

use crate::rig::{Rig, done};

const PINS: &str = "PACKET_TEST_PINS";
/// Frames of a normal run, for each lookup.
const FRAMES: u64 = 50_000;
/// The results of XDP.
const DROP: u32 = 1;
const PASS: u32 = 2;
const REDIRECT: u32 = 4;

#[test]
fn the_programs_and_the_model_agree() {
    let Some(rig) = prepared() else { return };
    rig.up(&["--config", file(&rig).to_str().unwrap()]);
    agree(&rig);
}

#[test]
fn the_programs_with_tables_of_their_own_and_the_model_agree() {
    let Some(mut rig) = prepared() else { return };
    let mut run = rig.packet(&["router", "run", "--lookup", "fib", "--config", file(&rig).to_str().unwrap()]);
    let mut child = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    rig.keep(child);
    assert!(line.starts_with("following the kernel"), "{line}");
    agree(&rig);
}

/// The machine of the router, with all that [`SETUP`] has.
fn prepared() -> Option<Rig> {
    let rig = Rig::new()?;
    rig.resolve();
    for device in ["v100", "v200", "x0"] {
        rig.ip("dut", &format!("link add {device} type veth peer name {device}p"));
        rig.ip("dut", &format!("link set {device}p up"));
        rig.ip("dut", &format!("link set {device} up"));
    }
    rig.ip("dut", "link set d1 mtu 1400");
    // The model knows no MTU of a device that is no port.
    rig.ip("dut", "link set x0 mtu 9000");
    for line in SETUP.lines().map(str::trim).filter(|line| !line.is_empty()) {
        rig.ip("dut", line);
    }
    Some(rig)
}

/// The file of the router.
fn file(rig: &Rig) -> PathBuf {
    let file = "[[port]]\ndev = \"d0\"\nurpf = \"strict\"\n[[port]]\ndev = \"d1\"\nurpf = \"loose\"\n\
                [[vlan]]\ndev = \"v100\"\nport = \"d0\"\nid = 100\n[[vlan]]\ndev = \"v200\"\nport = \"d1\"\nid = 200\n";
    rig.write("router.toml", file)
}

/// Runs the comparison in the namespace of the router.
fn agree(rig: &Rig) {
    let test = env::current_exe().unwrap();
    let mut inner = rig.inside("dut", test.to_str().unwrap());
    inner.args(["--exact", "agree::inside_the_namespace", "--ignored", "--nocapture"]).env(PINS, rig.pins());
    let printed = done(&mut inner);
    assert!(printed.contains("1 passed"), "{printed}");
    println!("{printed}");
}

/// What the router's machine has besides the addresses of the rig.
const SETUP: &str = "
    addr add 10.100.0.1/24 dev v100
    addr add 10.200.0.1/24 dev v200
    addr add 10.50.0.1/24 dev x0
    addr add fd00:100::1/64 dev v100 nodad
    addr add fd00:200::1/64 dev v200 nodad
    neigh replace 10.100.0.2 lladdr 02:00:00:00:01:00 dev v100 nud permanent
    neigh replace fd00:100::2 lladdr 02:00:00:00:01:00 dev v100 nud permanent
    neigh replace 10.200.0.9 lladdr 02:00:00:00:02:00 dev v200 nud permanent
    neigh replace fd00:200::9 lladdr 02:00:00:00:02:00 dev v200 nud permanent
    neigh replace 10.50.0.2 lladdr 02:00:00:00:05:00 dev x0 nud permanent
    route add 198.18.0.0/16 via 10.200.0.9
    route add fd00:18::/48 via fd00:200::9
    route add 198.19.0.0/16 via 10.50.0.2
    route add 198.51.100.0/24 via 10.0.1.99
    route add fd00:99::/48 via fd00:1::99
    route add blackhole 203.0.113.0/24
    route add prohibit 203.0.112.0/24
    route add unreachable 203.0.111.0/24
    route add blackhole fd00:dead::/48
    route add prohibit fd00:dea1::/48
    route add unreachable fd00:dea2::/48
";

/// A device of the router's machine.
#[derive(Debug, Clone)]
struct Device {
    index: u32,
    mac: [u8; 6],
}

fn mac_of(text: &str) -> [u8; 6] {
    let bytes: Vec<u8> = text.split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
    bytes.try_into().unwrap()
}

fn ip(args: &[&str]) -> Value {
    serde_json::from_str(&done(Command::new("ip").arg("-j").args(args))).unwrap()
}

/// The model with what the kernel has.
fn model(device: impl Fn(&str) -> Device) -> Model<Vec<u32>> {
    let mut model = Model::new(Fib::new(Storage::in_memory(64, 256, 64, 1)), 1);
    let (d0, d1, v100, v200, x0) = (device("d0"), device("d1"), device("v100"), device("v200"), device("x0"));
    let (strict, loose) = (ReversePath::Strict, ReversePath::Loose);
    for (own, port, tags, mtu, reverse_path) in [
        (&d0, &d0, Tags::default(), 1500, strict),
        (&d1, &d1, Tags::default(), 1400, loose),
        (&v100, &d0, Tags::one(100), 1500, strict),
        (&v200, &d1, Tags::one(200), 1500, loose),
    ] {
        let interface = Interface { port: port.index, tags, mac: own.mac, mtu, reverse_path };
        model.set_interface(own.index, interface).unwrap();
    }
    let way = |device: &Device, gateway: Option<&str>| NextHop::Forward {
        interface: device.index,
        gateway: gateway.map(|gateway| gateway.parse().unwrap()),
    };
    let mut routes = vec![
        ("192.0.2.0/24", way(&d1, Some("10.0.1.2"))),
        ("fd00:2::/64", way(&d1, Some("fd00:1::2"))),
        ("198.18.0.0/16", way(&v200, Some("10.200.0.9"))),
        ("fd00:18::/48", way(&v200, Some("fd00:200::9"))),
        ("198.19.0.0/16", way(&x0, Some("10.50.0.2"))),
        ("198.51.100.0/24", way(&d1, Some("10.0.1.99"))),
        ("fd00:99::/48", way(&d1, Some("fd00:1::99"))),
        ("203.0.113.0/24", NextHop::BlackHole),
        ("203.0.112.0/24", NextHop::Prohibit),
        ("203.0.111.0/24", NextHop::Unreachable),
        ("fd00:dead::/48", NextHop::BlackHole),
        ("fd00:dea1::/48", NextHop::Prohibit),
        ("fd00:dea2::/48", NextHop::Unreachable),
    ];
    for (device, v4, v6) in [
        (&d0, ["10.0.0.0/24", "10.0.0.1/32", "10.0.0.255/32"], Some(["fd00::/64", "fd00::1/128", "fd00::/128"])),
        (&d1, ["10.0.1.0/24", "10.0.1.1/32", "10.0.1.255/32"], Some(["fd00:1::/64", "fd00:1::1/128", "fd00:1::/128"])),
        (
            &v100,
            ["10.100.0.0/24", "10.100.0.1/32", "10.100.0.255/32"],
            Some(["fd00:100::/64", "fd00:100::1/128", "fd00:100::/128"]),
        ),
        (
            &v200,
            ["10.200.0.0/24", "10.200.0.1/32", "10.200.0.255/32"],
            Some(["fd00:200::/64", "fd00:200::1/128", "fd00:200::/128"]),
        ),
        (&x0, ["10.50.0.0/24", "10.50.0.1/32", "10.50.0.255/32"], None),
    ] {
        routes.extend([(v4[0], way(device, None)), (v4[1], NextHop::Local), (v4[2], NextHop::Local)]);
        // The last is the address of any router there (RFC 4291, section 2.6.1).
        let own =
            |v6: [&'static str; 3]| [(v6[0], way(device, None)), (v6[1], NextHop::Local), (v6[2], NextHop::Local)];
        routes.extend(v6.into_iter().flat_map(own));
    }
    for (prefix, next_hop) in routes {
        let number = model.fib.next_hops_mut().number_of(next_hop).unwrap();
        model.fib.add(prefix.parse().unwrap(), number).unwrap();
    }
    let neighbors = ip(&["neigh", "show", "nud", "permanent"]);
    let neighbors = neighbors.as_array().unwrap().iter().filter_map(|neighbor| {
        let name = neighbor["dev"].as_str()?;
        Some((device(name).index, neighbor["dst"].as_str()?.parse().ok()?, mac_of(neighbor["lladdr"].as_str()?)))
    });
    let neighbors: Vec<(u32, std::net::IpAddr, _)> = neighbors.collect();
    assert!(neighbors.len() >= 9, "{neighbors:?}");
    for (interface, address, mac) in neighbors {
        model.set_neighbor(interface, address, mac).unwrap();
    }
    model
}

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

    fn one_in(&mut self, bound: usize) -> bool {
        self.below(bound) == 0
    }

    /// One of the good values as often as any.
    fn mostly<T: Copy>(&mut self, values: &[T]) -> T {
        if self.one_in(2) { self.of(&values[..GOOD]) } else { self.of(values) }
    }

    fn of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())]
    }
}

const SOURCES4: [&str; 12] = [
    "10.0.0.2",
    "10.100.0.2",
    "10.0.0.77",
    "10.0.1.2",
    "10.100.0.2",
    "192.0.2.7",
    "8.8.8.8",
    "127.0.0.1",
    "0.0.0.0",
    "224.0.0.1",
    "169.254.3.4",
    "203.0.113.5",
];
const DESTINATIONS4: [&str; 22] = [
    "192.0.2.7",
    "198.18.3.4",
    "192.0.2.8",
    "198.18.3.4",
    "198.18.3.4",
    "10.100.0.2",
    "10.0.0.2",
    "10.0.0.1",
    "10.0.1.255",
    "198.51.100.3",
    "198.19.1.1",
    "203.0.113.5",
    "203.0.112.5",
    "203.0.111.5",
    "8.8.8.8",
    "224.0.0.5",
    "255.255.255.255",
    "127.0.0.1",
    "0.1.2.3",
    "240.1.2.3",
    "169.254.1.1",
    "10.0.1.50",
];
const SOURCES6: [&str; 11] = [
    "fd00::2",
    "fd00:100::2",
    "fd00::77",
    "fd00:1::2",
    "fd00:100::2",
    "2001:db8::1",
    "::1",
    "::",
    "ff02::1",
    "fe80::5",
    "::ffff:10.0.0.2",
];
const DESTINATIONS6: [&str; 19] = [
    "fd00:2::7",
    "fd00:18::4",
    "fd00:2::8",
    "fd00:18::4",
    "fd00:18::5",
    "fd00:100::2",
    "fd00::2",
    "fd00::1",
    "fd00:99::1",
    "fd00:dead::1",
    "fd00:dea1::1",
    "fd00:dea2::1",
    "2001:db8::1",
    "ff02::1",
    "::1",
    "::",
    "fe80::9",
    "fd00:1::50",
    "::ffff:192.0.2.7",
];

/// The first ones can be forwarded, and are half of all.
const GOOD: usize = 2;

/// A frame that comes in by a port: mostly a good one, often with something wrong.
fn frame(random: &mut Random, devices: &[(&str, Device)]) -> (u32, Vec<u8>) {
    let device =
        |name: &str| devices.iter().find(|(other, _)| *other == name).map(|(_, device)| device.clone()).unwrap();
    let port = random.of(&["d0", "d0", "d1"]);
    let (own_vlan, number) = if port == "d0" { ("v100", 100_u16) } else { ("v200", 200) };
    let mut tags: Vec<(u16, u16)> = Vec::new();
    let mut own = port;
    let priority = (random.below(16) as u16) << 12;
    match random.below(12) {
        0 | 1 => {
            tags.push((0x8100, priority | number));
            own = own_vlan;
        }
        2 => tags.push((0x8100, priority)),
        3 => tags.push((0x8100, priority | random.of(&[999, 100, 200]))),
        4 if random.one_in(3) => tags.extend([(random.of(&[0x8100, 0x88a8]), number), (0x8100, 7)]),
        4 if random.one_in(2) => tags.push((0x88a8, random.of(&[number, 0]))),
        // A tag with the number 0 before or behind another one.
        5 if random.one_in(3) => {
            let (outer, inner) = random.of(&[(0, number), (number, 0), (0, 0)]);
            tags.extend([(random.of(&[0x8100, 0x88a8]), outer), (random.of(&[0x8100, 0x88a8]), inner)]);
        }
        _ => {}
    }
    let mut frame = if random.one_in(25) {
        random.of(&[[2, 9, 9, 9, 9, 9], [0xff; 6], [1, 0, 0x5e, 0, 0, 9]]).to_vec()
    } else {
        device(own).mac.to_vec()
    };
    frame.extend([2, 0, 0, 0, 0, 7]);
    for (kind, tag) in &tags {
        frame.extend(kind.to_be_bytes());
        frame.extend(tag.to_be_bytes());
    }
    let is_v6 = random.one_in(2);
    let kind =
        if random.one_in(30) { random.of(&[0x0806_u16, 0x0800, 0x86dd]) } else { [0x0800, 0x86dd][usize::from(is_v6)] };
    frame.extend(kind.to_be_bytes());
    let start = frame.len();
    frame.extend(packet(random, is_v6));
    if random.one_in(4) {
        frame.extend(vec![0; random.below(60)]);
    }
    spoil(random, &mut frame, start);
    frame.resize(frame.len().max(14), 0);
    (device(port).index, frame)
}

/// A packet of IP, with right lengths and sums.
fn packet(random: &mut Random, is_v6: bool) -> Vec<u8> {
    let protocol = random.of(&[6, 17, 17, if is_v6 { 58 } else { 1 }, 47, 132]);
    let length = if random.one_in(8) { 1300 + random.below(210) } else { 8 + random.below(100) };
    let mut segment: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
    if protocol == 17 {
        segment[4..6].copy_from_slice(&(length as u16).to_be_bytes());
        if random.one_in(3) {
            segment[6..8].fill(0);
        }
    }
    let hops = random.of(&[64, 64, 64, 64, 255, 2, 1, 0]);
    if is_v6 {
        let mut next = protocol;
        let mut rest = segment;
        for _ in 0..random.of(&[0, 0, 0, 0, 1, 1, 2]) {
            let kind = random.of(&[0, 43, 44, 60, 60]);
            rest = [[next, 0, 0, 0, 1, 2, 0, 0].as_slice(), &rest].concat();
            next = kind;
        }
        let mut header = vec![0x60 | random.below(16) as u8, random.next() as u8, 0, 0];
        header.extend((rest.len() as u16).to_be_bytes());
        header.extend([next, hops]);
        for address in [random.mostly(&SOURCES6), random.mostly(&DESTINATIONS6)] {
            header.extend(address.parse::<std::net::Ipv6Addr>().unwrap().octets());
        }
        return [header, rest].concat();
    }
    let options = if random.one_in(8) { random.below(11) * 4 } else { 0 };
    let fragment = if random.one_in(6) { random.next() as u16 & 0x3fff } else { random.of(&[0, 0x4000]) };
    let total = (20 + options + segment.len()) as u16;
    let mut header = vec![0x45 + (options / 4) as u8, random.next() as u8];
    header.extend(total.to_be_bytes());
    header.extend((random.next() as u16).to_be_bytes());
    header.extend(fragment.to_be_bytes());
    header.extend([hops, protocol, 0, 0]);
    for address in [random.mostly(&SOURCES4), random.mostly(&DESTINATIONS4)] {
        header.extend(address.parse::<std::net::Ipv4Addr>().unwrap().octets());
    }
    header.extend((0..options).map(|_| random.next() as u8));
    [mended(header, 0), segment].concat()
}

/// With the right sum of the header of IPv4 at a place, if there is one.
fn mended(mut frame: Vec<u8>, at: usize) -> Vec<u8> {
    let end = at + frame.get(at).map_or(0, |byte| usize::from(byte & 15) * 4);
    if end >= at + 20 && frame.len() >= end {
        frame[at + 10..at + 12].fill(0);
        let sum = checksum::full(&frame[at..end]);
        frame[at + 10..at + 12].copy_from_slice(&sum.to_be_bytes());
    }
    frame
}

/// Cuts the frame, or changes bytes, often with the sum mended.
fn spoil(random: &mut Random, frame: &mut Vec<u8>, start: usize) {
    match random.below(10) {
        0 => frame.truncate(14 + random.below(frame.len() - 13)),
        1 => {
            for _ in 0..=random.below(3) {
                let at = random.below(frame.len().min(start + 48));
                frame[at] = random.next() as u8;
            }
        }
        2 => {
            for _ in 0..=random.below(3) {
                let at = start + random.below((frame.len() - start).min(44));
                frame[at] ^= 1 << random.below(8);
            }
            if frame.get(start).is_some_and(|byte| byte >> 4 == 4) {
                *frame = mended(std::mem::take(frame), start);
            }
        }
        _ => {}
    }
}

/// Whether the program's reason is that of the model.
fn is_same(verdict: Verdict, reason: Reason, frame: &[u8]) -> bool {
    use Malformed as M;
    // The program reads one tag of 802.1Q; more, and those of 802.1ad, are the kernel's.
    let is_beyond = match frame.get(12..14) {
        Some([0x88, 0xa8]) => true,
        Some([0x81, 0]) => matches!(frame.get(16..18), Some([0x81, 0] | [0x88, 0xa8])),
        _ => false,
    };
    match verdict {
        Verdict::Forward { .. } => reason == Reason::Forwarded,
        Verdict::Drop(DropReason::Malformed(malformed)) => match malformed {
            M::WrongVersion | M::ShortIpv4Header | M::ShortIpv4Length | M::ZeroTag => reason == Reason::Malformed,
            M::WrongIpv4Checksum => reason == Reason::Checksum,
            M::TruncatedTag if is_beyond => {
                matches!(reason, Reason::Truncated | Reason::Malformed | Reason::NotIp | Reason::UnknownVlan)
            }
            _ => reason == Reason::Truncated,
        },
        Verdict::Drop(DropReason::MartianSource) => reason == Reason::Martian,
        Verdict::Drop(DropReason::SpoofedSource) => reason == Reason::Urpf,
        Verdict::Drop(DropReason::BlackHole) => reason == Reason::Blackhole,
        Verdict::Drop(_) => false,
        Verdict::Pass(pass) => match pass {
            PassReason::NotRouted if is_beyond => matches!(reason, Reason::UnknownVlan | Reason::NotIp),
            PassReason::NotRouted => reason == Reason::UnknownVlan,
            PassReason::NotIp => reason == Reason::NotIp,
            PassReason::NotForRouter => reason == Reason::OtherHost,
            PassReason::RouterOptions => reason == Reason::Options,
            PassReason::Multicast | PassReason::MartianDestination | PassReason::LinkLocal => {
                reason == Reason::NotUnicast
            }
            PassReason::Local | PassReason::NoRoute => reason == Reason::NotRouted,
            PassReason::Prohibit => reason == Reason::Prohibit,
            PassReason::Unreachable => reason == Reason::Unreachable,
            PassReason::HopLimit => reason == Reason::Ttl,
            PassReason::TooBig => reason == Reason::TooBig,
            PassReason::NoNeighbor => reason == Reason::Neighbor,
            PassReason::OtherInterface => reason == Reason::OtherPort,
            _ => false,
        },
    }
}

#[test]
#[ignore = "the_programs_and_the_model_agree runs it in the namespace of its router"]
fn inside_the_namespace() {
    let router = Router::new(Path::new(&env::var(PINS).unwrap()));
    let links = ip(&["link", "show"]);
    let links = links.as_array().unwrap().iter().map(|link| {
        let name = link["ifname"].as_str().unwrap().to_owned();
        let mac = link["address"].as_str().filter(|mac| mac.len() == 17).map(mac_of).unwrap_or_default();
        (name, Device { index: link["ifindex"].as_u64().unwrap() as u32, mac })
    });
    let links: Vec<(String, Device)> = links.collect();
    let devices: Vec<(&str, Device)> = links.iter().map(|(name, device)| (name.as_str(), device.clone())).collect();
    let model = model(|name| devices.iter().find(|(other, _)| *other == name).unwrap().1.clone());
    let frames = env::var("PACKET_FRAMES").map_or(FRAMES, |frames| frames.parse().unwrap());
    let seed = env::var("PACKET_SEED").map_or_else(|_| rand_seed(), |seed| seed.parse().unwrap());
    println!("PACKET_SEED={seed} PACKET_FRAMES={frames}");
    let mut random = Random(seed);
    let runner = router.runner().unwrap();
    let mut seen = vec![0_u64; Reason::ALL.len()];
    for number in 0..frames {
        let (port, frame) = frame(&mut random, &devices);
        let wanted = forward(&model, port, &frame, &mut ());
        let said = runner.explain(&frame, port).unwrap().reason;
        let (result, after) = runner.run(&frame, port).unwrap();
        seen[said as usize] += 1;
        let result_of_reason = match said.action() {
            Action::Forward => REDIRECT,
            Action::Kernel => PASS,
            Action::Drop => DROP,
        };
        let is_agreed = is_same(wanted.verdict, said, &frame) && result == result_of_reason && after == wanted.frame;
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert!(
            is_agreed,
            "PACKET_SEED={seed}, frame {number} by device {port}: the model says {:?}, the program {said:?} (result \
             {result})\nframe {}\nmodel {}\nafter {}",
            wanted.verdict,
            hex(&frame),
            hex(&wanted.frame),
            hex(&after)
        );
    }
    let counted = Reason::ALL.iter().zip(&seen).map(|(reason, count)| format!("{} {count}", reason.name()));
    println!("{}", counted.collect::<Vec<_>>().join(", "));
    // This router has neither NAT nor policy.
    let is_own = |name: &str| name != "fragment" && !name.starts_with("nat-") && !name.starts_with("policy");
    let never = [Reason::ForwardingOff, Reason::Unsupported, Reason::NoRoom];
    // The reasons from `balanced` on are of balancers.
    let router = Reason::ALL.iter().zip(&seen).take(Reason::Balanced as usize);
    let expected = router.filter(|(reason, _)| is_own(reason.name()));
    for (reason, count) in expected.filter(|(reason, _)| !never.contains(reason)) {
        assert!(*count > 0 || frames < FRAMES, "no frame was made for {}", reason.name());
    }
}

/// A new seed for each run.
fn rand_seed() -> u64 {
    let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    time.as_nanos() as u64
}
