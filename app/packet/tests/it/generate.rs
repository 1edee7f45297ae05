//! The generator: what it sends, byte by byte, and what its receiver tells.

use std::{
    collections::HashSet,
    fs::File,
    io::{BufRead as _, BufReader},
    net::IpAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use pcap_file::pcap::{PcapPacket, PcapReader, PcapWriter};
use sallyport_packet_model::generate::{PortRange, Sizes, Traffic, Transport};
use serde_json::Value;

use crate::rig::{Rig, done, text};

/// A card that nobody has, so that the kernel answers nothing.
pub(crate) const NOBODY: &str = "02:00:00:00:00:99";

/// The rig, where `g0` sends frames of XDP: its peer has begun to poll after `g0` was up.
pub(crate) fn ready() -> Option<Rig> {
    let rig = Rig::new()?;
    for state in ["off", "on"] {
        done(rig.inside("dut", "ethtool").args(["-K", "d0", "gro", state]));
    }
    Some(rig)
}

/// The rig with a second device of the generator, behind the router: `gen (g0)-(d0) dut (d2)-(r0) gen`.
pub(crate) fn looped() -> Option<Rig> {
    let rig = ready()?;
    rig.wire("gen", "r0", "d2");
    for line in ["addr add 10.0.2.1/24 dev d2", "addr add fd00:3::1/64 dev d2 nodad"] {
        rig.ip("dut", line);
    }
    let link: Value = serde_json::from_str(&rig.ip("gen", "-j link show r0")).unwrap();
    let mac = link[0]["address"].as_str().unwrap();
    rig.ip("dut", &format!("neigh replace 10.0.2.2 lladdr {mac} dev d2 nud permanent"));
    rig.ip("dut", &format!("neigh replace fd00:3::2 lladdr {mac} dev d2 nud permanent"));
    rig.ip("dut", "route add 198.19.0.0/16 via 10.0.2.2");
    rig.ip("dut", "route add fd00:19::/64 via fd00:3::2");
    Some(rig)
}

pub(crate) fn command(rig: &Rig, name: &str, args: &[&str]) -> Command {
    let mut command = rig.inside(name, env!("CARGO_BIN_EXE_sallyport-packet"));
    command.env("NO_COLOR", "1").arg("generate").args(args);
    command
}

/// Generates in the generator's namespace, and tells what was printed.
pub(crate) fn generated(rig: &Rig, args: &[&str]) -> Value {
    let printed = done(&mut command(rig, "gen", &[&["-o", "json", "--dev", "g0"], args].concat()));
    serde_json::from_str(&printed).unwrap()
}

pub(crate) fn numbers(view: &Value) -> [u64; 3] {
    [&view["sent"], &view["received"]["packets"], &view["received"]["lost"]].map(|number| number.as_u64().unwrap())
}

/// A capture by tcpdump at the router's side, of frames for [`NOBODY`].
struct Capture {
    child: Child,
    file: PathBuf,
}

impl Capture {
    fn start(rig: &Rig, count: usize) -> Self {
        let file = rig.path("seen.pcap");
        let mut command = rig.inside("dut", "tcpdump");
        command.args(["-i", "d0", "-Q", "in", "-B", "16384", "-Z", "root", "-c", &count.to_string(), "-w"]).arg(&file);
        let mut child = command.args(["ether", "dst", NOBODY]).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("listening on") {
            line.clear();
            assert_ne!(said.read_line(&mut line).unwrap(), 0, "tcpdump does not listen");
        }
        std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
        Self { child, file }
    }

    /// The frames, once all are there.
    fn frames(mut self) -> Vec<Vec<u8>> {
        assert!(self.child.wait().unwrap().success());
        let mut reader = PcapReader::new(File::open(&self.file).unwrap()).unwrap();
        std::iter::from_fn(|| reader.next_packet().map(|packet| packet.unwrap().data.into_owned())).collect()
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Sends this many frames to nobody, and returns them as tcpdump has seen them.
pub(crate) fn seen(rig: &Rig, count: usize, args: &[&str]) -> Vec<Vec<u8>> {
    let capture = Capture::start(rig, count);
    let number = count.to_string();
    let view = generated(rig, &[&["--to", NOBODY, "--rate", "20k", "--count", &number], args].concat());
    assert_eq!(view["sent"], count);
    capture.frames()
}

/// Whether a sum over these bytes, with this start, is that of a right header.
fn is_right(start: u32, bytes: &[u8]) -> bool {
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u32::from(*low)));
    let mut sum = start + words.sum::<u32>();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum == 0xffff
}

/// The addresses and ports of a frame of IPv4, whose sums are right.
pub(crate) fn flow_of(frame: &[u8], ip: usize) -> (u32, u32, u16, u16) {
    let word = |at: usize| u32::from_be_bytes(frame[at..at + 4].try_into().unwrap());
    let half = |at: usize| u16::from_be_bytes(frame[at..at + 2].try_into().unwrap());
    assert_eq!((half(ip - 2), usize::from(half(ip + 2))), (0x0800, frame.len() - ip), "the length of IP");
    assert!(is_right(0, &frame[ip..ip + 20]), "the sum of IP");
    let above = u32::from(frame[ip + 9]) + u32::from(half(ip + 2)) - 20;
    let pseudo =
        above + frame[ip + 12..ip + 20].chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum::<u32>();
    assert!(is_right(pseudo, &frame[ip + 20..]), "the sum above IP");
    (word(ip + 12), word(ip + 16), half(ip + 20), half(ip + 22))
}

#[test]
fn as_many_arrive_as_are_sent_by_the_kernel_and_by_xdp() {
    let Some(rig) = looped() else { return };
    let args = ["--to", "auto", "--receive-dev", "r0", "--rate", "10k", "--count", "2000", "--flows", "100"];
    let kernel = generated(&rig, &args);
    assert_eq!(numbers(&kernel), [2_000, 2_000, 0], "{kernel}");
    rig.up(&["--dev", "d0,d1,d2"]);
    let xdp = generated(&rig, &[&args[..], &["--imix"]].concat());
    assert_eq!(numbers(&xdp), [2_000, 2_000, 0], "{xdp}");
    assert_eq!(rig.count("d0", "forwarded"), 2_000, "every frame went by XDP");
    let received = &xdp["received"];
    assert_eq!((&xdp["is_complete"], &received["reordered"]), (&true.into(), &0.into()));
    assert_eq!(xdp["bytes"], received["bytes"]);
    let latency = ["p50", "p99", "max"].map(|name| received["latency_us"][name].as_f64().unwrap());
    assert!(latency[0] > 0.0 && latency.is_sorted(), "{latency:?}");
    let v6 = generated(
        &rig,
        &["--to", "auto", "--dst", "fd00:19::/120", "--receive-dev", "r0", "--count", "512", "--rate", "10k"],
    );
    assert_eq!((numbers(&v6), rig.count("d0", "forwarded")), ([512, 512, 0], 2_512), "{v6}");
    assert_eq!(rig.count("d0", "checksum") + rig.count("d0", "malformed") + rig.count("d0", "truncated"), 0);
    let text = done(&mut command(&rig, "gen", &[&["--dev", "g0", "--interval", "10ms"], &args[..]].concat()));
    assert!(text.contains("2,000 frames at r0") && text.contains("0 (0.0000 %)"), "{text}");
}

/// The first flows of the ranges below, as the model has them.
fn of_model(order: &str, count: u32) -> Vec<(u32, u32, u16, u16)> {
    let traffic = Traffic {
        transport: Transport::Udp,
        source: "10.9.0.0/30".parse().unwrap(),
        dest: "192.0.2.250-192.0.3.4".parse().unwrap(),
        source_ports: "7-9".parse().unwrap(),
        dest_ports: PortRange::one(53),
        flows: 1,
        step: 1,
        first_flow: 0,
        vlan: None,
        sizes: Sizes::of(&[64]).unwrap(),
    };
    let traffic = traffic.with_flows(None, true, order == "scattered").unwrap();
    let bits = |address: IpAddr| match address {
        IpAddr::V4(address) => address.to_bits(),
        IpAddr::V6(_) => unreachable!(),
    };
    let flow = |place: u32| traffic.flow(place.wrapping_mul(traffic.step) % traffic.flows);
    let flows = (0..count).map(flow);
    flows.map(|(source, dest, source_port, dest_port)| (bits(source), bits(dest), source_port, dest_port)).collect()
}

#[test]
fn a_rate_and_a_ramp_are_never_exceeded() {
    let Some(rig) = ready() else { return };
    let sent = |args: &[&str]| {
        generated(&rig, &[&["--to", NOBODY, "--duration", "1s"], args].concat())["sent"].as_u64().unwrap()
    };
    // 672 bits a frame on the wire: 1,488 in a second, and the first one at once.
    let frames = sent(&["--rate", "1Mbps"]);
    assert!((100..=1_490).contains(&frames), "{frames}");
    // From 500 to 10,000 a second in a second: 5,012, where a constant rate has 10,000.
    let frames = sent(&["--rate", "10k", "--ramp", "1s"]);
    assert!((100..7_500).contains(&frames), "{frames}");
}

#[test]
fn flows_stay_in_their_ranges_and_all_are_seen() {
    let Some(rig) = ready() else { return };
    let ranges = ["--src", "10.9.0.0/30", "--dst", "192.0.2.250-192.0.3.4", "--sport", "7-9", "--dport", "53"];
    for order in ["in-order", "scattered"] {
        let frames = seen(&rig, 264, &[&ranges[..], &["--order", order]].concat());
        let flows: Vec<_> = frames.iter().map(|frame| flow_of(frame, 14)).collect();
        let all: HashSet<_> = flows[..132].iter().copied().collect();
        assert_eq!(flows, of_model(order, 264), "the order of the model");
        assert_eq!(all.len(), 4 * 11 * 3, "each flow once in a round");
        assert_eq!(flows[..132], flows[132..], "the second round is as the first");
        for (source, dest, source_port, dest_port) in all {
            assert!((0x0a09_0000..=0x0a09_0003).contains(&source) && (0xc000_02fa..=0xc000_0304).contains(&dest));
            assert!((7..=9).contains(&source_port) && dest_port == 53);
        }
    }
    let spread = seen(&rig, 500, &["--flows", "500"]);
    let ports: HashSet<_> = spread.iter().map(|frame| flow_of(frame, 14).2).collect();
    assert_eq!(ports.len(), 500, "flows without ranges spread over source ports");
}

#[test]
fn a_mix_has_its_shares_and_frames_have_their_tags() {
    let Some(rig) = ready() else { return };
    let mix = seen(&rig, 1_200, &["--imix"]);
    let share = |size: usize| mix.iter().filter(|frame| frame.len() == size - 4).count();
    assert_eq!((share(64), share(594), share(1_518)), (700, 400, 100));
    for frame in &mix {
        flow_of(frame, 14);
    }
    let tagged = seen(&rig, 10, &["--vlan", "100", "--proto", "tcp", "--size", "100,1522"]);
    for (frame, size) in tagged.iter().zip([96, 1_518].into_iter().cycle()) {
        flow_of(frame, 18);
        assert_eq!((&frame[12..16], frame.len(), frame[27]), (&[0x81, 0, 0, 100][..], size, 6));
        assert_eq!(frame[18 + 20 + 13], 2, "a SYN");
    }
    let v6 = seen(&rig, 300, &["--dst", "fd00:9::ffff:fff0-fd00:9::1:0:ef", "--size", "84"]);
    let dests: HashSet<_> = v6.iter().map(|frame| frame[38..54].to_vec()).collect();
    assert_eq!(dests.len(), 256, "a range goes over the border of a word");
    for frame in &v6 {
        let pseudo = frame[22..54].chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum::<u32>();
        assert!(frame[20] == 17 && is_right(pseudo + 17 + (frame.len() - 54) as u32, &frame[54..]), "the sum of UDP");
    }
}

pub(crate) fn write_pcap(path: &Path, frames: &[Vec<u8>], gap: Duration) {
    let mut writer = PcapWriter::new(File::create(path).unwrap()).unwrap();
    for (number, frame) in (0..).zip(frames) {
        writer.write_packet(&PcapPacket::new(gap * number, frame.len() as u32, frame)).unwrap();
    }
}

#[test]
fn a_file_is_sent_byte_by_byte() {
    let Some(rig) = looped() else { return };
    let frame = |number: usize| {
        let length = [60, 1_514, 61, 333, 1_000, 14][number % 6];
        let mut frame = vec![2, 0, 0, 0, 0, 0x99, 2, 0, 0, 0, 0, 1, 0x88, 0xb5];
        frame.extend((14..length).map(|at| (at * 7 + number * 13) as u8));
        frame
    };
    let frames: Vec<_> = (0..50).map(frame).collect();
    let file = rig.path("sent.pcap");
    write_pcap(&file, &frames, Duration::ZERO);
    let capture = Capture::start(&rig, 50);
    let view = generated(&rig, &["--pcap", file.to_str().unwrap(), "--rate", "5k"]);
    assert_eq!((&view["sent"], capture.frames()), (&50.into(), frames.clone()));
    // Other addresses of the link, and twice through the file.
    let capture = Capture::start(&rig, 100);
    let twice = ["--pcap", file.to_str().unwrap(), "--to", NOBODY, "--count", "100", "--rate", "5k"];
    assert_eq!(generated(&rig, &twice)["sent"], 100);
    let again = capture.frames();
    assert!(again.iter().zip(frames.iter().cycle()).all(|(seen, sent)| seen[12..] == sent[12..]));
    assert_ne!(again[0][6..12], frames[0][6..12], "the source is the device");
    let auto = ["--dev", "g0", "--pcap", file.to_str().unwrap(), "--to", "auto"];
    let refused = command(&rig, "gen", &auto).output().unwrap();
    assert!(refused.status.code() == Some(2) && text(&refused.stderr).contains("name a MAC"));
    // A capture is sent through the router, and a receiver counts its frames, which bear no stamp.
    seen(&rig, 24, &["--imix"]);
    let link: Value = serde_json::from_str(&rig.ip("dut", "-j link show d0")).unwrap();
    let (capture, mac) = (rig.path("seen.pcap"), link[0]["address"].as_str().unwrap());
    let through = ["--pcap", capture.to_str().unwrap(), "--to", mac, "--rate", "5k", "--receive-dev", "r0"];
    let view = generated(&rig, &through);
    assert!(view["sent"] == 24 && numbers(&view)[1] >= 24 && view["received"]["reordered"].is_null(), "{view}");
}

#[test]
fn loss_is_counted_and_the_rate_without_it_is_found() {
    let Some(rig) = looped() else { return };
    let nft = |line: &str| done(rig.inside("dut", "nft").args(line.split(' ')));
    nft("add table ip limits");
    nft("add chain ip limits forward { type filter hook forward priority 0 ; }");
    nft("add rule ip limits forward numgen inc mod 10 0 drop");
    let lossy = generated(&rig, &["--to", "auto", "--receive-dev", "r0", "--rate", "10k", "--count", "1000"]);
    assert_eq!(numbers(&lossy), [1_000, 900, 100], "{lossy}");
    assert_eq!(lossy["received"]["lost_percent"], 10.0);
    nft("flush chain ip limits forward");
    nft("add rule ip limits forward limit rate over 2000/second burst 200 packets drop");
    let search = ["--find-rate", "--trial", "500ms", "--precision", "20", "--rate", "16k", "--size", "64,200"];
    let found = generated(&rig, &[&["--to", "auto", "--receive-dev", "r0"], &search[..]].concat());
    let found = found.as_array().unwrap();
    assert_eq!((&found[0]["sizes"], &found[1]["sizes"]), (&serde_json::json!([64]), &serde_json::json!([200])));
    for found in found {
        let rate = found["packets_per_second"].as_f64().unwrap();
        // 2,000 a second, and 200 at once in half a second.
        assert!(rate > 500.0 && rate < 2_500.0, "{found}");
        assert!(found["trials"].as_u64().unwrap() >= 3, "{found}");
    }
}

#[test]
fn the_card_stays_with_the_kernel_and_the_receiver_leaves_nothing() {
    let Some(rig) = looped() else { return };
    rig.up(&["--dev", "d0,d1,d2"]);
    let program = |name: &str, device: &str| {
        let link: Value = serde_json::from_str(&rig.ip(name, &format!("-j link show {device}"))).unwrap();
        link[0]["xdp"]["prog"]["id"].as_u64()
    };
    let before = program("dut", "d0");
    assert!(before.is_some());
    let args = ["--dev", "d0", "--to", NOBODY, "--count", "100", "-o", "json"];
    let sent: Value = serde_json::from_str(&done(&mut command(&rig, "dut", &args))).unwrap();
    assert_eq!((&sent["sent"], program("dut", "d0")), (&100.into(), before), "the router stays");
    let taken = command(&rig, "dut", &[&args[..], &["--receive-dev", "d2"]].concat()).output().unwrap();
    assert_eq!(taken.status.code(), Some(5));
    assert!(text(&taken.stderr).contains("d2 is a port of a router already: "), "{}", text(&taken.stderr));
    assert_eq!(program("gen", "r0"), None);
    let endless = ["--dev", "g0", "--to", "auto", "--receive-dev", "r0", "--rate", "1k", "--duration", "1h"];
    for signal in ["-INT", "-KILL"] {
        let child = command(&rig, "gen", &endless).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        while program("gen", "r0").is_none() {
            std::thread::sleep(Duration::from_millis(20));
        }
        let (sent, wanted) = (rig.count("d0", "forwarded"), 50);
        while rig.count("d0", "forwarded") < sent + wanted {
            std::thread::sleep(Duration::from_millis(20));
        }
        done(Command::new("kill").args([signal, &child.id().to_string()]));
        let output = child.wait_with_output().unwrap();
        if signal == "-INT" {
            assert!(
                output.status.success() && text(&output.stdout).contains("stopped early"),
                "{}",
                text(&output.stdout)
            );
        }
        while program("gen", "r0").is_some() {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn what_cannot_be_sent_has_a_sentence() {
    let Some(rig) = ready() else { return };
    let failed = |args: &[&str], code: i32, words: &str| {
        let output = command(&rig, "gen", args).output().unwrap();
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(code) && said.contains(words), "{args:?}: {said}");
    };
    failed(&["--dev", "g9", "--to", NOBODY], 4, "there is no device g9");
    failed(&["--dev", "g0"], 2, "--to");
    let g0 = |more: &[&'static str]| [&["--dev", "g0", "--to", NOBODY], more].concat();
    failed(&g0(&["--receive-dev", "g8"]), 4, "there is no device g8");
    failed(&g0(&["--rate", "0"]), 2, "a rate of 0 sends nothing");
    failed(&g0(&["--size", "63"]), 2, "a frame of 63 bytes is out of bounds: 64 to 1518 bytes");
    failed(&g0(&["--size", "1519"]), 2, "a frame of 1519 bytes is out of bounds: 64 to 1518 bytes");
    failed(&g0(&["--dst", "192.0.2.9-192.0.2.1"]), 2, "`192.0.2.9-192.0.2.1` ends before it starts");
    failed(&g0(&["--sport", "9-8"]), 2, "`9-8` ends before it starts");
    failed(&g0(&["--dst", "fd00::1", "--src", "10.0.0.1"]), 2, "two families");
    failed(&g0(&["--vlan", "4095", "--size", "100"]), 2, "VLAN 4095 is not from 1 to 4094");
    failed(&g0(&["--flows", "65000"]), 2, "65000 flows are more than the ranges have (64512)");
    failed(&g0(&["--find-rate"]), 2, "--receive-dev");
    failed(&g0(&["--cpu", "9999"]), 2, "there is no processor 9999");
    failed(
        &["--dev", "g0", "--to", "auto", "--dst", "10.0.0.77"],
        6,
        "the next hop 10.0.0.77 at g0 does not tell its MAC",
    );
    rig.ip("gen", "route del default via 10.0.0.1");
    failed(&["--dev", "g0", "--to", "auto", "--dst", "192.0.2.7"], 4, "no route by g0 leads to 192.0.2.7");
    let file = rig.path("broken.pcap");
    write_pcap(&file, &[vec![0; 60]], Duration::ZERO);
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() - 1]).unwrap();
    failed(&["--dev", "g0", "--pcap", file.to_str().unwrap()], 2, "frame 1 is broken: the file ends too early");
    failed(&["--dev", "g0", "--pcap", "/nowhere.pcap"], 1, "cannot read /nowhere.pcap");
    rig.ip("gen", "link set g0 mtu 9000");
    rig.ip("dut", "link set d0 mtu 9000");
    failed(&g0(&["--size", "3401"]), 2, "a frame of 3401 bytes is out of bounds: 64 to 3400 bytes");
    assert_eq!(generated(&rig, &["--to", NOBODY, "--size", "3400", "--count", "9"])["bytes"], 9 * 3_396);
    failed(&g0(&["--receive-dev", "g0"]), 5, "the MTU of g0, or that of its peer, is too large for XDP");
    // A veth whose peer does not poll loses every frame: that is refused.
    done(rig.inside("dut", "ethtool").args(["-K", "d0", "gro", "off"]));
    failed(&g0(&["--count", "1"]), 5, "the driver of g0 sends no XDP frames");
    rig.ip("gen", "link set g0 down");
    failed(&g0(&["--count", "1"]), 5, "g0 is down");
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--clear-groups"]).arg(env!("CARGO_BIN_EXE_sallyport-packet"));
    let output = command.args(["generate", "--dev", "lo", "--to", NOBODY]).output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(3) && said.contains("the packet path needs root"), "{said}");
}
