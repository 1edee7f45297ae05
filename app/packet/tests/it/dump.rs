//! `packet dump`: what it shows, what it writes, and what stays when it ends.

use std::{
    borrow::Cow,
    fs::File,
    io::{BufRead as _, BufReader, Read as _},
    process::{Child, ChildStderr, Command, Stdio},
    time::Instant,
};

use libbpf_rs::{MapCore as _, MapFlags, MapHandle};
use pcap_file::pcapng::{
    Block, PcapNgReader,
    blocks::{
        enhanced_packet::EnhancedPacketOption,
        interface_description::{InterfaceDescriptionBlock, InterfaceDescriptionOption},
    },
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::rig::{PATIENCE, Rig, done, text};

/// A running `packet dump`.
struct Looking {
    child: Child,
    errors: BufReader<ChildStderr>,
}

impl Looking {
    /// Starts it, and waits until it looks.
    fn start(rig: &Rig, args: &[&str]) -> Self {
        let mut command = rig.packet(&[&["dump"], args].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut errors = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        errors.read_line(&mut line).unwrap();
        assert!(line.starts_with("looking at packets"), "{line}");
        Self { child, errors }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for its own end: what it printed, and the sentence of its end.
    fn end(mut self) -> (String, String) {
        let (mut printed, mut said) = (String::new(), String::new());
        self.child.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
        self.errors.read_to_string(&mut said).unwrap();
        assert!(self.child.wait().unwrap().success(), "{said}");
        (printed, said)
    }
}

/// A standing router with an echo server behind it, and a black hole.
fn standing() -> Option<Rig> {
    let mut rig = Rig::new()?;
    rig.resolve();
    drop(rig.serve("sink", &["echo"]));
    rig.ip("dut", "route add blackhole 203.0.113.0/24");
    rig.up(&["--dev", "d0,d1"]);
    Some(rig)
}

/// The line without its time.
fn timeless(line: &str) -> &str {
    let (time, rest) = line.split_once(' ').unwrap();
    assert!(time.len() == 15 && time.as_bytes()[8] == b'.', "{line}");
    rest
}

#[test]
fn packets_are_shown_with_what_became_of_them() {
    let Some(rig) = standing() else { return };
    let looking = Looking::start(&rig, &["--count", "4", "udp", "and", "host", "10.0.0.2"]);
    assert_eq!(rig.probe("192.0.2.7", &["from=5000"]), "echo 32");
    assert_eq!(rig.probe("203.0.113.9", &["from=5001", "answer=0"]), "sent");
    assert!(rig.probe("192.0.2.7", &["from=5002", "ttl=1"]).starts_with("icmp 11 0"));
    let (printed, said) = looking.end();
    let lines: Vec<_> = printed.lines().map(timeless).collect();
    let wanted = [
        "d0 > d1 forward IP 10.0.0.2.5000 > 192.0.2.7.9: UDP, length 32, ttl 64",
        "d1 > d0 forward IP 192.0.2.7.9 > 10.0.0.2.5000: UDP, length 32, ttl 64",
        "d0 drop (blackhole) IP 10.0.0.2.5001 > 203.0.113.9.9: UDP, length 32, ttl 64",
        "d0 kernel (ttl) IP 10.0.0.2.5002 > 192.0.2.7.9: UDP, length 32, ttl 1",
    ];
    assert_eq!(lines, wanted, "{said}");
    assert!(said.starts_with("4 packets shown, ") && said.contains(", 0 lost"), "{said}");
}

#[test]
fn flags_choose_in_the_kernel_and_json_is_for_programs() {
    let Some(rig) = standing() else { return };
    let looking = Looking::start(&rig, &["--dropped", "--count", "2", "-i", "d0"]);
    assert_eq!(rig.probe("192.0.2.7", &[]), "echo 32");
    for _ in 0..2 {
        rig.probe("203.0.113.9", &["answer=0"]);
    }
    let (printed, said) = looking.end();
    assert!(printed.lines().count() == 2 && printed.lines().all(|line| line.contains("drop (blackhole)")), "{printed}");
    assert!(said.starts_with("2 packets shown, 0 left out by the filter"), "{said}");
    let mut command = rig.packet(&["dump", "-o", "json", "--reason", "blackhole", "--count", "1"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Without a hint to wait for, packets go until one is shown.
    let end = Instant::now() + PATIENCE;
    while child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < end, "no packet is shown");
        rig.probe("203.0.113.9", &["answer=0"]);
    }
    let output = child.wait_with_output().unwrap();
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&shown["action"], &shown["reason"]), (&"drop".into(), &"blackhole".into()), "{shown}");
    assert_eq!((&shown["from"], &shown["to"]), (&"d0".into(), &Value::Null));
    let ended: Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!((&ended["shown"], &ended["lost"]), (&1.into(), &0.into()));
}

#[test]
fn one_of_so_many_is_shown() {
    let Some(rig) = standing() else { return };
    let looking = Looking::start(&rig, &["--sample", "10", "--reason", "blackhole"]);
    let frame = frame_of(&rig, "d0", 100);
    done(&mut rig.python("gen", &["raw", "g0", &frame, "200"]));
    rig.wait_count("d0", "blackhole", 200);
    looking.signal(Signal::TERM);
    let (printed, said) = looking.end();
    // Each processor counts for itself, so the last of each may be missing; the turns of other packets count too.
    let shown = printed.lines().count();
    let processors = std::thread::available_parallelism().unwrap().get();
    assert!(shown.abs_diff(20) <= processors, "{shown}: {said}");
}

#[test]
fn what_the_reader_cannot_take_is_counted() {
    let Some(rig) = standing() else { return };
    let looking = Looking::start(&rig, &["-B", "64", "--reason", "blackhole"]);
    looking.signal(Signal::STOP);
    let frame = frame_of(&rig, "d0", 1400);
    done(&mut rig.python("gen", &["raw", "g0", &frame, "300"]));
    rig.wait_count("d0", "blackhole", 300);
    looking.signal(Signal::CONT);
    looking.signal(Signal::TERM);
    let (printed, said) = looking.end();
    let shown = printed.lines().count();
    let sentence = format!(", {} lost because the reader was slower", 300 - shown);
    assert!((10..100).contains(&shown) && said.contains(&sentence), "{shown}: {said}");
}

/// A frame of this length to the black hole, in hex.
fn frame_of(rig: &Rig, device: &str, length: usize) -> String {
    let link: Value = serde_json::from_str(&rig.ip("dut", &format!("-j link show {device}"))).unwrap();
    let mac = link[0]["address"].as_str().unwrap().replace(':', "");
    let total = length - 14;
    let mut ip = hex(&format!("4500{total:04x}000000004011 0000 0a000002 cb007109"));
    let sum: u32 = ip.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let ip: String = ip.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{mac}0200000000010800{ip}{}", "00".repeat(total - 20))
}

fn hex(digits: &str) -> Vec<u8> {
    let digits: String = digits.chars().filter(|digit| *digit != ' ').collect();
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

/// What a file of pcapng has of a packet: interface, comment, direction, frame.
type Written = (String, String, u32, Vec<u8>);

fn read(bytes: impl std::io::Read) -> Vec<Written> {
    let mut reader = PcapNgReader::new(bytes).unwrap();
    let mut interfaces: Vec<InterfaceDescriptionBlock<'static>> = Vec::new();
    let mut packets = Vec::new();
    while let Some(block) = reader.next_block() {
        match block.unwrap().into_owned() {
            Block::InterfaceDescription(block) => interfaces.push(block),
            Block::EnhancedPacket(block) => {
                let interface = &interfaces[block.interface_id as usize];
                let name = interface.options.iter().find_map(|option| match option {
                    InterfaceDescriptionOption::IfName(name) => Some(name.to_string()),
                    _ => None,
                });
                let (mut comment, mut flags) = (String::new(), 0);
                for option in &block.options {
                    match option {
                        EnhancedPacketOption::Comment(text) => comment = text.to_string(),
                        EnhancedPacketOption::Flags(word) => flags = *word,
                        _ => {}
                    }
                }
                assert_eq!(block.original_len as usize, block.data.len());
                packets.push((name.unwrap(), comment, flags, Cow::into_owned(block.data)));
            }
            _ => {}
        }
    }
    packets
}

#[test]
fn pcapng_has_interfaces_reasons_and_both_frames_of_what_was_rewritten() {
    let Some(rig) = standing() else { return };
    let file = rig.path("packets.pcapng");
    let looking = Looking::start(&rig, &["-w", file.to_str().unwrap(), "--both", "--count", "2", "udp dst port 9"]);
    rig.probe("203.0.113.9", &["answer=0"]);
    assert_eq!(rig.probe("192.0.2.7", &[]), "echo 32");
    let (printed, said) = looking.end();
    assert!(printed.is_empty() && said.starts_with("2 packets shown"), "{said}");
    let packets = read(File::open(&file).unwrap());
    let said: Vec<_> =
        packets.iter().map(|(name, comment, flags, _)| (name.as_str(), comment.as_str(), *flags)).collect();
    let wanted = [
        ("d0", "drop (blackhole): a black hole route", 1),
        ("d0", "forward to d1", 1),
        ("d1", "as it left: d0 sent it on", 2),
    ];
    assert_eq!(said, wanted);
    let [_, before, after] = packets.as_slice() else { panic!("{packets:?}") };
    assert_eq!((before.3.len(), after.3.len()), (74, 74));
    assert_eq!((before.3[22], after.3[22]), (64, 63), "the time to live");
    assert_eq!(before.3[26..], after.3[26..], "all behind the checksum");
    assert_ne!(before.3[..12], after.3[..12], "the addresses of the link");
    // tcpdump reads the same, if it is there.
    match Command::new("tcpdump").arg("-nr").arg(&file).output() {
        Ok(output) => {
            let printed = text(&output.stdout);
            assert!(printed.lines().count() == 3 && printed.contains("> 203.0.113.9.9: UDP, length 32"), "{printed}");
        }
        Err(_) => println!("tcpdump is not there: only this reader has read the file"),
    }
    // A pipe has the packets at once, before the end.
    let mut looking = Looking::start(&rig, &["-w", "-", "--dropped"]);
    rig.probe("203.0.113.9", &["answer=0"]);
    let mut head = vec![0; 100];
    looking.child.stdout.as_mut().unwrap().read_exact(&mut head).unwrap();
    assert_eq!(head[..4], [0x0a, 0x0d, 0x0d, 0x0a]);
    // A reader that goes ends it without a complaint.
    drop(looking.child.stdout.take());
    let end = Instant::now() + PATIENCE;
    while looking.child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < end, "it goes on without a reader");
        rig.probe("203.0.113.9", &["answer=0"]);
    }
    assert!(looking.child.wait().unwrap().success());
}

#[test]
fn rewritten_packets_are_shown_before_and_after() {
    let Some(rig) = standing() else { return };
    // A device that stands for VLAN 100 of d0: its packets lose their tag.
    rig.ip("dut", "link add v100 type veth peer name v100p");
    rig.ip("dut", "link set v100 up");
    rig.ip("dut", "link set v100p up");
    let file = "[[port]]\ndev = \"d0\"\n[[port]]\ndev = \"d1\"\n[[vlan]]\ndev = \"v100\"\nport = \"d0\"\nid = 100\n";
    rig.up(&["--config", rig.write("router.toml", file).to_str().unwrap()]);
    done(rig.inside("gen", "ethtool").args(["-K", "g0", "txvlan", "off"]));
    done(rig.inside("dut", "ethtool").args(["-K", "d0", "rxvlan", "off"]));
    let plain = frame_of(&rig, "v100", 60).replace("cb007109", "c0000207");
    let (head, ip) = (&plain[..24], hex(&plain[28..68]));
    let (mut ip, rest) = (ip, &plain[68..]);
    ip[10..12].fill(0);
    let sum: u32 = ip.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    ip[10..12].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
    let ip: String = ip.iter().map(|byte| format!("{byte:02x}")).collect();
    let tagged = format!("{head}810000640800{ip}{rest}");
    let looking = Looking::start(&rig, &["--rewritten", "--count", "1"]);
    assert_eq!(rig.probe("192.0.2.7", &[]), "echo 32", "every router changes that much");
    done(&mut rig.python("gen", &["raw", "g0", &tagged, "1"]));
    let (printed, said) = looking.end();
    let lines: Vec<_> = printed.lines().collect();
    assert_eq!(lines.len(), 2, "{printed}");
    let wanted = "v100 > d1 rewrite vlan 100, IP 10.0.0.2.0 > 192.0.2.7.0: UDP, length 0, ttl 64";
    assert_eq!(timeless(lines[0]), wanted);
    assert_eq!(lines[1], "    as IP 10.0.0.2.0 > 192.0.2.7.0: UDP, length 0, ttl 63");
    assert!(said.starts_with("1 packet shown"), "{said}");
}

#[test]
fn a_killed_look_costs_nothing_after_a_moment_and_another_one_can_begin() {
    let Some(rig) = standing() else { return };
    let mut looking = Looking::start(&rig, &["--dropped"]);
    let second = rig.run(&["dump"]);
    let said = text(&second.stderr);
    assert!(second.status.code() == Some(5) && said.contains("another `sallyport packet dump` looks"), "{said}");
    looking.child.kill().unwrap();
    looking.child.wait().unwrap();
    let control = MapHandle::from_pinned_path(rig.pins().join("dump_control")).unwrap();
    let is_on = || control.lookup(&[0; 4], MapFlags::ANY).unwrap().unwrap()[..8] != [0; 8];
    assert!(is_on(), "nobody has switched it off");
    let end = Instant::now() + PATIENCE;
    while is_on() {
        assert!(Instant::now() < end, "the program still copies packets");
        assert_eq!(rig.probe("192.0.2.7", &[]), "echo 32");
    }
    let looking = Looking::start(&rig, &["--dropped", "--count", "1"]);
    rig.probe("203.0.113.9", &["answer=0"]);
    let (printed, _) = looking.end();
    assert!(printed.contains("drop (blackhole)"), "{printed}");
    assert!(!is_on(), "an end in order switches it off at once");
}

#[test]
fn bad_arguments_have_a_sentence() {
    let Some(rig) = standing() else { return };
    let failed = |args: &[&str], code: i32, words: &str| {
        let output = rig.run(&[&["dump"], args].concat());
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(code) && said.contains(words), "{args:?}: {said}");
    };
    failed(&["port", "http"], 2, "has \"http\" at character 6, where the number of a port is expected");
    failed(&["host"], 2, "the filter ends where an address");
    failed(&["-i", "lo"], 2, "lo is no port of the router");
    failed(&["-i", "d9"], 4, "there is no device d9");
    failed(&["--reason", "nothing"], 2, "expected one of forwarded, not-ip");
    failed(&["-B", "100"], 2, "expected a power of two from 4");
    failed(&["--sample", "0"], 2, "--sample");
    failed(&["-w", "/nowhere/file.pcapng"], 1, "cannot write /nowhere/file.pcapng: No such file");
    failed(&["-w", "-", "-o", "json"], 2, "use one of both");
    done(&mut rig.packet(&["router", "down"]));
    failed(&[], 4, "no router stands here");
}
