//! The generator with AF_XDP, several processors, the times of a file, and a receiver in another namespace.

use std::{
    collections::HashMap,
    process::{Command, Stdio},
    thread::available_parallelism,
    time::Duration,
};

use serde_json::Value;

use crate::{
    generate::{NOBODY, command, flow_of, generated, looped, numbers, ready, seen, write_pcap},
    rig::{Rig, done, text},
};

/// Whether this process has two processors; says so otherwise.
fn has_two_processors() -> bool {
    let has_two = available_parallelism().is_ok_and(|number| number.get() > 1);
    if !has_two {
        eprintln!("skipped: this machine gives the test one processor");
    }
    has_two
}

/// The frame without what differs from run to run: the stamp's run and time, and the sum above IP.
fn without_time(mut frame: Vec<u8>, above: usize, is_tcp: bool) -> Vec<u8> {
    let (sum, stamp) = if is_tcp { (above + 16, above + 20) } else { (above + 6, above + 8) };
    frame[sum..sum + 2].fill(0);
    frame[stamp..stamp + 4].fill(0);
    frame[stamp + 10..stamp + 18].fill(0);
    frame
}

#[test]
fn both_engines_send_the_same_bytes() {
    let Some(rig) = ready() else { return };
    let kinds: [(&[&str], usize, bool); 3] = [
        (&["--dst", "192.0.2.0/29", "--flows", "40", "--order", "scattered", "--size", "64,200,1518"], 34, false),
        (&["--proto", "tcp", "--vlan", "100", "--size", "100,1522"], 38, true),
        (&["--dst", "fd00:9::/126", "--flows", "9", "--size", "84,500"], 54, false),
    ];
    for (args, above, is_tcp) in kinds {
        let sent = |engine: &'static str| {
            let frames = seen(&rig, 60, &[args, &["--engine", engine]].concat());
            if above != 54 {
                for frame in &frames {
                    flow_of(frame, above - 20);
                }
            }
            frames.into_iter().map(|frame| without_time(frame, above, is_tcp)).collect::<Vec<_>>()
        };
        let (live, xsk) = (sent("live"), sent("xsk"));
        for (number, (live, xsk)) in live.iter().zip(&xsk).enumerate() {
            assert_eq!(live, xsk, "frame {number} of {args:?}");
        }
    }
}

#[test]
fn a_device_under_test_is_measured_between_two_namespaces() {
    let Some(rig) = ready() else { return };
    rig.resolve();
    rig.up(&["--dev", "d0,d1"]);
    let program = || {
        let link: Value = serde_json::from_str(&rig.ip("sink", "-j link show s0")).unwrap();
        link[0]["xdp"]["prog"]["id"].as_u64()
    };
    let path = format!("/run/netns/{}", rig.namespace("sink"));
    for (engine, namespace) in [("live", rig.namespace("sink")), ("xsk", path)] {
        let far = ["--receive-dev", "s0", "--receive-netns", &namespace, "--engine", engine];
        let args = ["--to", "auto", "--dst", "192.0.2.0/26", "--count", "3000", "--rate", "10k"];
        let view = generated(&rig, &[&args[..], &far].concat());
        assert_eq!((numbers(&view), &view["received"]["reordered"]), ([3_000, 3_000, 0], &0.into()), "{view}");
        assert!(view["received"]["latency_us"]["p50"].as_f64().unwrap() > 0.0, "{view}");
        assert_eq!(program(), None, "the receiver is gone");
    }
    assert_eq!(rig.count("d0", "forwarded"), 6_000);
    let found =
        generated(
            &rig,
            &[
                &[
                    "--to",
                    "auto",
                    "--dst",
                    "192.0.2.7",
                    "--receive-dev",
                    "s0",
                    "--receive-netns",
                    &rig.namespace("sink"),
                ][..],
                &["--find-rate", "--trial", "200ms", "--precision", "50", "--rate", "1k"],
            ]
            .concat(),
        );
    assert!(found[0]["packets_per_second"].as_f64().unwrap() > 0.0, "{found}");
}

#[test]
fn several_processors_share_the_flows_and_the_count() {
    let Some(rig) = looped() else { return };
    if !has_two_processors() {
        return;
    }
    let frames = seen(&rig, 402, &["--cpu", "0,1", "--flows", "201", "--dst", "192.0.2.0/24"]);
    let mut flows = HashMap::new();
    frames.iter().for_each(|frame| *flows.entry(flow_of(frame, 14)).or_insert(0) += 1);
    // One has 100 flows and 201 frames, the other 101 and 201: its last flow comes once less.
    assert_eq!((flows.len(), flows.values().sum::<u32>()), (201, 402));
    assert!(flows.values().all(|count| (1..=3).contains(count)), "{flows:?}");
    let args = ["--to", "auto", "--receive-dev", "r0", "--rate", "20k", "--count", "3001", "--flows", "100"];
    for processors in [["--cpus", "0-1"], ["--threads", "2"]] {
        let view = generated(&rig, &[&args[..], &processors].concat());
        assert_eq!((numbers(&view), &view["processors"]), ([3_001, 3_001, 0], &2.into()), "{view}");
        assert_eq!(view["received"]["reordered"], 0, "each sender has numbers of its own: {view}");
    }
    assert_eq!(generated(&rig, &["--to", NOBODY, "--cpu", "0,1", "--count", "1"])["sent"], 1);
    let text = done(&mut command(&rig, "gen", &["--dev", "g0", "--to", NOBODY, "--cpu", "0,1", "--count", "10"]));
    assert!(text.contains("10 frames by g0 from 2 processors"), "{text}");
    // A second queue, so that each of two sockets has one.
    done(Command::new("ip").args(["-n", &rig.namespace("gen"), "link", "del", "r0"]));
    let pair = "link add q0 numtxqueues 2 numrxqueues 2 type veth peer name q1";
    rig.ip("gen", pair);
    for device in ["q0", "q1"] {
        rig.ip("gen", &format!("link set {device} up"));
    }
    let queues = ["--dev", "q0", "--to", NOBODY, "--engine", "xsk", "--cpu", "0,1", "--count", "1000", "--rate", "10k"];
    let queues = [&queues[..], &["--receive-dev", "q1", "-o", "json"]].concat();
    let view: Value = serde_json::from_str(&done(&mut command(&rig, "gen", &queues))).unwrap();
    assert_eq!(numbers(&view), [1_000, 1_000, 0], "{view}");
}

#[test]
fn a_file_keeps_its_times() {
    let Some(rig) = ready() else { return };
    let frame = [&[2, 0, 0, 0, 0, 0x99, 2, 0, 0, 0, 0, 1, 0x88, 0xb5][..], &[7; 46]].concat();
    let file = rig.path("timed.pcap");
    write_pcap(&file, &vec![frame; 4], Duration::from_millis(50));
    let seconds = |args: &[&str]| {
        let view = generated(&rig, &[&["--pcap", file.to_str().unwrap(), "--keep-times"], args].concat());
        (view["sent"].as_u64().unwrap(), view["seconds"].as_f64().unwrap())
    };
    // A frame is never early, however busy the machine is. Half of a millisecond is for the first one's own work.
    for engine in ["live", "xsk"] {
        for (args, sent, least) in
            [(&[][..], 4, 0.15), (&["--speed", "0.5"], 4, 0.3), (&["--count", "7", "--speed", "2"], 7, 0.15)]
        {
            let (found, time) = seconds(&[args, &["--engine", engine]].concat());
            assert!(found == sent && time > least - 0.000_5, "{engine} {args:?}: {found} in {time} s");
        }
    }
    // The second frame of a file of an hour is not waited for.
    write_pcap(&file, &[vec![2; 60], vec![2; 60]], Duration::from_secs(3_600));
    assert_eq!(seconds(&["--duration", "50ms"]).0, 1);
}

/// Starts an endless run by AF_XDP, which has sent something.
fn endless(rig: &Rig) -> std::process::Child {
    let args = ["--dev", "g0", "--to", NOBODY, "--engine", "xsk", "--rate", "1k", "--duration", "1h"];
    let sent = || {
        let link: Value = serde_json::from_str(&rig.ip("gen", "-j -s link show g0")).unwrap();
        link[0]["stats64"]["tx"]["packets"].as_u64().unwrap()
    };
    let before = sent();
    let child = command(rig, "gen", &args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    rig.wait_for(|| sent() > before + 50);
    child
}

#[test]
fn engines_processors_times_and_namespaces_that_cannot_be() {
    let Some(rig) = ready() else { return };
    let failed = |args: &[&str], code: i32, words: &str| {
        let args = [&["--dev", "g0", "--count", "2"], args].concat();
        let output = command(&rig, "gen", &args).output().unwrap();
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(code) && said.contains(words), "{args:?}: {said}");
    };
    let to = |more: &[&'static str]| [&["--to", NOBODY], more].concat();
    failed(&to(&["--cpu", "0,0"]), 2, "`0,0` names processor 0 twice");
    failed(&to(&["--cpu", "0,9999"]), 2, "there is no processor 9999");
    failed(&to(&["--threads", "60000"]), 2, "60000 threads are not from 1 to ");
    failed(&to(&["--threads", "0"]), 2, "0 threads are not from 1 to ");
    failed(&to(&["--keep-times"]), 2, "--pcap");
    failed(&to(&["--receive-netns", "x"]), 2, "--receive-dev");
    failed(&to(&["--receive-dev", "s0", "--receive-netns", "nowhere"]), 4, "there is no network namespace nowhere");
    failed(&to(&["--receive-dev", "s0", "--receive-netns", "/nowhere"]), 4, "there is no network namespace /nowhere");
    failed(&to(&["--receive-dev", "s0", "--receive-netns", "/etc/passwd"]), 2, "/etc/passwd is no network namespace");
    failed(&to(&["--receive-dev", "s0", "--receive-netns", "/proc/self/ns/mnt"]), 2, "is no network namespace");
    // Nobody writes into this pipe, and nobody waits for that.
    let pipe = rig.path("pipe");
    done(Command::new("mkfifo").arg(&pipe));
    let pipe = pipe.to_str().unwrap();
    failed(&[&to(&["--receive-dev", "s0", "--receive-netns"])[..], &[pipe]].concat(), 2, "is no network namespace");
    failed(
        &[&to(&["--receive-dev", "s9", "--receive-netns"])[..], &[&rig.namespace("sink")]].concat(),
        4,
        "no device s9",
    );
    let file = rig.path("two.pcap");
    write_pcap(&file, &[vec![2; 60], vec![2; 60]], Duration::ZERO);
    let file = file.to_str().unwrap();
    failed(&["--pcap", file, "--keep-times", "--speed", "0"], 2, "a factor from 0.001 to 1000");
    failed(&["--pcap", file, "--keep-times", "--rate", "1k"], 2, "--rate");
    if has_two_processors() {
        failed(&["--pcap", file, "--cpu", "0,1"], 2, "one processor sends the frames of a file");
        failed(&to(&["--engine", "xsk", "--cpu", "0,1"]), 4, "g0 has no queue 1");
    }
    // One socket has a queue. Ctrl-C ends it.
    let child = endless(&rig);
    failed(&to(&["--engine", "xsk"]), 5, "another program sends by AF_XDP on queue 0 of g0");
    done(Command::new("kill").args(["-INT", &child.id().to_string()]));
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && text(&output.stdout).contains("stopped early"), "{}", text(&output.stdout));
    // AF_XDP needs nothing of the driver: the peer does not poll.
    done(rig.inside("dut", "ethtool").args(["-K", "d0", "gro", "off"]));
    failed(&to(&["--engine", "live"]), 5, "the driver of g0 sends no XDP frames");
    assert_eq!(seen(&rig, 20, &["--engine", "xsk"]).len(), 20);
}

#[test]
fn a_device_that_goes_ends_the_run_with_a_sentence() {
    let Some(rig) = ready() else { return };
    for engine in ["live", "xsk"] {
        rig.wire("gen", "gone", "peer");
        for state in ["off", "on"] {
            done(rig.inside("dut", "ethtool").args(["-K", "peer", "gro", state]));
        }
        let args = ["--dev", "gone", "--to", NOBODY, "--engine", engine, "--rate", "1k", "--duration", "1h"];
        let child = command(&rig, "gen", &args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        rig.wait_for(|| {
            let link: Value = serde_json::from_str(&rig.ip("dut", "-j -s link show peer")).unwrap();
            link[0]["stats64"]["rx"]["packets"].as_u64() > Some(50)
        });
        rig.ip("gen", "link del gone");
        let output = child.wait_with_output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(4), "{engine}: {said}");
        assert!(said.contains("there is no device gone in this network namespace"), "{engine}: {said}");
    }
}
