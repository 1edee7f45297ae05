//! What hosts send that no host should: loops, neighbours that never answer, odd frames from a file.

use std::io::Cursor;

use pcap_file::pcap::{PcapPacket, PcapReader, PcapWriter};
use serde_json::Value;

use crate::rig::{Rig, done};

#[test]
fn a_loop_ends_with_the_time_to_live() {
    let Some(rig) = Rig::new() else { return };
    rig.resolve();
    // The next router sends the network back: each packet goes around until its time to live ends.
    rig.ip("sink", "route add 198.51.100.0/24 via 10.0.1.1");
    rig.ip("dut", "route add 198.51.100.0/24 via 10.0.1.2");
    done(rig.inside("sink", "sysctl").args(["-qw", "net.ipv4.ip_forward=1", "net.ipv4.conf.all.send_redirects=0"]));
    done(rig.inside("sink", "sysctl").args(["-qw", "net.ipv4.conf.s0.send_redirects=0"]));
    rig.up(&["--dev", "d0,d1"]);
    // Of two routers that take turns, this one has every second hop.
    assert!(rig.refused("198.51.100.9", &["ttl=64"]).starts_with("icmp 11 0"), "time exceeded");
    let (in_by, around) = (rig.count("d0", "forwarded"), rig.count("d1", "forwarded"));
    assert!(in_by >= 1 && around >= 31 * in_by, "{in_by} packets went around {around} times");
    assert!(around <= 32 * in_by + in_by, "no packet goes around for ever: {in_by}, {around}");
}

#[test]
fn a_neighbour_that_never_answers_ends_with_an_error_of_the_kernel() {
    let Some(mut rig) = Rig::new() else { return };
    drop(rig.serve("sink", &["echo"]));
    rig.resolve();
    let sysctl = ["-qw", "net.ipv4.neigh.d1.retrans_time_ms=100", "net.ipv4.neigh.d1.mcast_solicit=2"];
    done(rig.inside("dut", "sysctl").args(sysctl));
    rig.ip("dut", "route add 198.51.100.0/24 via 10.0.1.99");
    rig.up(&["--dev", "d0,d1"]);
    assert_eq!(rig.refused("198.51.100.9", &[]), "icmp 3 1 by 10.0.0.1 info 0", "host unreachable");
    assert!(rig.count("d0", "neighbor") >= 1);
    let shown: Value =
        serde_json::from_str(&done(&mut rig.packet(&["router", "show", "neighbors", "-o", "json"]))).unwrap();
    let silent = shown.as_array().unwrap().iter().find(|neighbor| neighbor["address"] == "10.0.1.99");
    assert_eq!(silent.unwrap()["mac"], Value::Null, "{shown}");
    assert_eq!(rig.probe("192.0.2.7", &[]), "echo 32", "others go on");
}

/// Frames of attacks and of broken stacks, each with the reason that must count it. `D` is the address of the port.
const ODD: [(&str, &str, &str); 15] = [
    (
        "a land attack: source and destination are the router",
        "not-routed",
        "D 020000000007 0800 4500001c0001000040060000 0a000001 0a000001 0007000700000000",
    ),
    (
        "an overlapping fragment of TCP at 8",
        "forwarded",
        "D 020000000007 0800 4500001c0001000140060000 0a000002 c0000207 0000000000000000",
    ),
    (
        "a ping of death: a fragment that ends beyond 65,535",
        "forwarded",
        "D 020000000007 0800 4500001c00011fff40010000 0a000002 c0000207 0000000000000000",
    ),
    (
        "every flag of TCP",
        "forwarded",
        "D 020000000007 0800 45000028000100004006 0000 0a000002 c0000207 00140050 00000000 00000000 50ff2000 00000000",
    ),
    (
        "UDP with a length of 0",
        "forwarded",
        "D 020000000007 0800 4500001c0001000040110000 0a000002 c0000207 0035003500000000",
    ),
    (
        "UDP with the checksum 0",
        "forwarded",
        "D 020000000007 0800 4500001c0001000040110000 0a000002 c0000207 0035003500080000",
    ),
    (
        "the reserved bit of fragments",
        "forwarded",
        "D 020000000007 0800 4500001c0001800040110000 0a000002 c0000207 0035003500080000",
    ),
    (
        "a source route",
        "options",
        "D 020000000007 0800 470000240001000040110000 0a000002 c0000207 830704c000020700 0035003500080000",
    ),
    (
        "an unknown protocol",
        "forwarded",
        "D 020000000007 0800 4500001c0001000040ff0000 0a000002 c0000207 0000000000000000",
    ),
    ("from broadcast", "martian", "D 020000000007 0800 4500001c0001000040110000 ffffffff c0000207 0035003500080000"),
    (
        "a header of IPv6 in a frame of IPv4",
        "malformed",
        "D 020000000007 0800 6000000000081140 fd000000000000000000000000000002 fd000002000000000000000000000007",
    ),
    (
        "IPv6 with a routing header of type 0",
        "forwarded",
        "D 020000000007 86dd 6000000000102b40 fd000000000000000000000000000002 fd000002000000000000000000000007 1100000000000000 0035003500080000",
    ),
    (
        "IPv6 with the jumbo option",
        "options",
        "D 020000000007 86dd 6000000000080040 fd000000000000000000000000000002 fd000002000000000000000000000007 3b00c20400010000",
    ),
    (
        "IPv6 whose chain of headers has no end",
        "forwarded",
        "D 020000000007 86dd 6000000000083c40 fd000000000000000000000000000002 fd000002000000000000000000000007 3cff000000000000",
    ),
    (
        "a jumbo length without a packet",
        "truncated",
        "D 020000000007 0800 4500ffff0001000040110000 0a000002 c0000207 0035003500080000",
    ),
];

#[test]
fn odd_frames_of_a_file_are_counted_by_their_reasons() {
    let Some(rig) = Rig::new() else { return };
    rig.resolve();
    rig.up(&["--dev", "d0,d1"]);
    let link: Value = serde_json::from_str(&rig.ip("dut", "-j link show d0")).unwrap();
    let mac = link[0]["address"].as_str().unwrap().replace(':', "");
    // Through a file, as people have them: what is written is read again.
    let mut writer = PcapWriter::new(Vec::new()).unwrap();
    for (_, _, digits) in ODD {
        let frame = sealed(&digits.replace('D', &mac));
        let length = frame.len() as u32;
        writer.write_packet(&PcapPacket::new(std::time::Duration::ZERO, length, &frame)).unwrap();
    }
    let mut reader = PcapReader::new(Cursor::new(writer.into_writer())).unwrap();
    let mut frames = Vec::new();
    while let Some(packet) = reader.next_packet() {
        frames.push(packet.unwrap().data.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    }
    assert_eq!(frames.len(), ODD.len());
    let before = rig.counts("d0");
    let frames: Vec<_> = frames.iter().map(String::as_str).collect();
    done(&mut rig.python("gen", &[&["several", "g0"], frames.as_slice()].concat()));
    for (name, reason, _) in ODD {
        println!("{name}: {reason}");
        let own = ODD.iter().filter(|(_, other, _)| *other == reason).count() as u64;
        rig.wait_count("d0", reason, before.get(reason).copied().unwrap_or_default() + own);
    }
}

/// The frame of these digits, with the right sum of its header of IPv4.
pub(crate) fn sealed(digits: &str) -> Vec<u8> {
    let digits: String = digits.chars().filter(char::is_ascii_hexdigit).collect();
    let mut frame: Vec<u8> =
        (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect();
    if frame[12..15] == [8, 0, 0x45] || frame[12..15] == [8, 0, 0x47] {
        let end = 14 + usize::from(frame[14] & 15) * 4;
        frame[24..26].fill(0);
        let sum = sallyport_packet_model::checksum::full(&frame[14..end]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
    }
    frame
}

#[test]
fn a_vlan_that_cannot_be_is_refused_and_the_router_stays() {
    let Some(rig) = Rig::new() else { return };
    rig.resolve();
    rig.up(&["--dev", "d0,d1"]);
    for (file, words) in [
        (
            "[[port]]\ndev = \"d0\"\n[[vlan]]\ndev = \"d1\"\nport = \"d0\"\nid = 4095\n",
            "VLAN 4095 of d1 is not from 1 to 4094",
        ),
        ("[[port]]\ndev = \"d0\"\n[[vlan]]\ndev = \"d9\"\nport = \"d0\"\nid = 5\n", "there is no device d9"),
    ] {
        let path = rig.write("router.toml", file);
        let output = rig.run(&["router", "up", "--config", path.to_str().unwrap()]);
        let said = crate::rig::text(&output.stderr);
        assert!(!output.status.success() && said.contains(words), "{said}");
    }
    let shown: Value = serde_json::from_str(&rig.ip("dut", "-j link show d1")).unwrap();
    assert!(shown[0]["xdp"]["prog"]["id"].is_u64(), "the router stands: {shown}");
}

#[test]
fn a_root_that_may_not_load_programs_is_told_so() {
    let Some(rig) = Rig::new() else { return };
    let program = env!("CARGO_BIN_EXE_sallyport-packet");
    let said = |limits: &[&str]| {
        let mut command = rig.inside("dut", "setpriv");
        command.args(limits).arg(program).arg("--pins").arg(rig.pins()).args(["router", "up", "--dev", "d0,d1"]);
        let output = command.output().unwrap();
        (output.status.code(), crate::rig::text(&output.stderr))
    };
    // A user, and the root of a container.
    let (code, words) = said(&["--reuid=65534", "--clear-groups"]);
    assert!(code == Some(3) && words.contains("the packet path needs root"), "{code:?}: {words}");
    let (code, words) = said(&["--bounding-set=-sys_admin,-bpf", "--inh-caps=-sys_admin,-bpf"]);
    assert!(code == Some(3) && words.contains("lets this process load no programs"), "{code:?}: {words}");
    assert!(words.lines().count() <= 2, "one sentence: {words}");
    let shown: Value = serde_json::from_str(&rig.ip("dut", "-j link show d0")).unwrap();
    assert_eq!(shown[0]["xdp"], Value::Null, "nothing is attached");
}
