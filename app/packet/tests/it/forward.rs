//! Packets that go through, and those that do not.

use std::{io::BufRead as _, process::Stdio};

use serde_json::Value;

use crate::rig::{Rig, done};

/// The router of most tests: up between d0 and d1, with an echo server behind it.
fn standing(args: &[&str]) -> Option<Rig> {
    let mut rig = Rig::new()?;
    rig.resolve();
    drop(rig.serve("sink", &["echo"]));
    rig.up(&[&["--dev", "d0,d1"], args].concat());
    Some(rig)
}

#[test]
fn ipv4_and_ipv6_are_forwarded_and_counted() {
    let Some(rig) = standing(&[]) else { return };
    for (to, packets) in [("192.0.2.7", 1), ("fd00:2::7", 2)] {
        assert_eq!(rig.probe(to, &[]), "echo 32");
        rig.wait_count("d0", "forwarded", packets);
        rig.wait_count("d1", "forwarded", packets);
    }
    // The echo comes back with its time to live, one less for the router.
    assert!(rig.probe("192.0.2.7", &["ttl=2"]).starts_with("echo"));
}

#[test]
fn an_unresolved_neighbor_is_asked_for_by_the_kernel() {
    let Some(mut rig) = Rig::new() else { return };
    drop(rig.serve("sink", &["echo"]));
    // Gateways are asked for as soon as the router stands; these two are none.
    rig.ip("sink", "addr add 10.0.1.7/24 dev s0");
    rig.ip("sink", "addr add fd00:1::7/64 dev s0 nodad");
    rig.up(&["--dev", "d0,d1"]);
    for to in ["10.0.1.7", "fd00:1::7"] {
        assert_eq!(rig.probe(to, &[]), "echo 32");
    }
    assert!(rig.count("d0", "neighbor") >= 2, "the first packet of each family went to the kernel");
    assert!(rig.count("d0", "not-ip") >= 1, "so did ARP");
    let shown: Value =
        serde_json::from_str(&done(&mut rig.packet(&["router", "show", "neighbors", "-o", "json"]))).unwrap();
    assert!(shown.as_array().unwrap().iter().any(|neighbor| neighbor["address"] == "10.0.1.2"), "{shown}");
}

#[test]
fn the_kernel_answers_what_ends_here() {
    let Some(rig) = standing(&[]) else { return };
    assert_eq!(rig.refused("192.0.2.7", &["ttl=1"]), "icmp 11 0 by 10.0.0.1 info 0");
    assert_eq!(rig.refused("fd00:2::7", &["ttl=1"]), "icmp 3 0 by fd00::1 info 0");
    assert!(rig.count("d0", "ttl") >= 2);
    for (to, words) in [("203.0.113.1", "prohibit"), ("203.0.113.2", "unreachable")] {
        rig.ip("dut", &format!("route add {words} {to}"));
    }
    assert_eq!(rig.refused("203.0.113.1", &[]), "icmp 3 13 by 10.0.0.1 info 0");
    assert!(rig.count("d0", "prohibit") >= 1);
    assert_eq!(rig.refused("203.0.113.2", &[]), "icmp 3 1 by 10.0.0.1 info 0");
    assert!(rig.count("d0", "unreachable") >= 1);
    assert_eq!(rig.refused("203.0.113.3", &[]), "icmp 3 0 by 10.0.0.1 info 0");
    assert!(rig.count("d0", "not-routed") >= 1);
}

#[test]
fn what_is_too_big_is_answered_or_fragmented_by_the_kernel() {
    let Some(rig) = standing(&[]) else { return };
    rig.ip("dut", "link set d1 mtu 1400");
    assert_eq!(rig.refused("192.0.2.7", &["size=1400", "df=1"]), "icmp 3 4 by 10.0.0.1 info 1400");
    assert_eq!(rig.refused("fd00:2::7", &["size=1400", "df=1"]), "icmp 2 0 by fd00::1 info 1400");
    assert!(rig.count("d0", "too-big") >= 2);
    assert_eq!(rig.probe("192.0.2.7", &["size=1372", "df=1"]), "echo 1372", "1400 bytes with the headers");
}

#[test]
fn a_black_hole_swallows_and_is_counted() {
    let Some(rig) = standing(&[]) else { return };
    rig.ip("dut", "route add blackhole 203.0.113.0/24");
    rig.ip("dut", "route add blackhole fd00:dead::/64");
    for _ in 0..3 {
        assert_eq!(rig.probe("203.0.113.9", &["answer=0"]), "sent");
    }
    assert_eq!(rig.probe("fd00:dead::9", &["answer=0"]), "sent");
    rig.wait_count("d0", "blackhole", 4);
    assert_eq!(rig.probe("192.0.2.7", &[]), "echo 32", "others go on");
}

#[test]
fn a_spoofed_source_is_dropped_and_counted() {
    let Some(rig) = standing(&["--urpf", "strict"]) else { return };
    rig.ip("gen", "addr add 10.0.1.77/32 dev lo");
    rig.ip("gen", "addr add 198.51.100.5/32 dev lo");
    assert_eq!(rig.probe("192.0.2.7", &[]), "echo 32");
    assert_eq!(rig.probe("192.0.2.7", &["source=10.0.1.77", "answer=0"]), "sent");
    rig.wait_count("d0", "urpf", 1);
    // Loose: a route to the source is enough, and the source without a route is still dropped.
    rig.up(&["--dev", "d0,d1", "--urpf", "loose"]);
    rig.probe("192.0.2.7", &["source=198.51.100.5", "answer=0"]);
    rig.wait_count("d0", "urpf", 2);
    rig.probe("192.0.2.7", &["source=10.0.1.77", "answer=0"]);
    rig.wait_count("d0", "forwarded", 2);
    assert_eq!(rig.count("d0", "urpf"), 2, "the other side's source passed");
}

#[test]
fn tcp_goes_through_whole() {
    let Some(mut rig) = standing(&[]) else { return };
    drop(rig.serve("sink", &["tcp-serve"]));
    assert_eq!(done(&mut rig.python("gen", &["tcp", "192.0.2.7", "4000000"])).trim(), "same");
    assert!(rig.count("d0", "forwarded") >= 2_000_000 / 1448, "XDP carried it, not the kernel");
}

#[test]
fn next_hops_share_flows_by_their_weights() {
    let Some(mut rig) = Rig::new() else { return };
    drop(rig.serve("sink", &["echo"]));
    rig.wire("sink", "s1", "d2");
    rig.ip("sink", "addr add 10.0.2.2/24 dev s1");
    rig.ip("dut", "addr add 10.0.2.1/24 dev d2");
    rig.ip(
        "dut",
        "route replace 192.0.2.0/24 nexthop via 10.0.1.2 dev d1 weight 1 nexthop via 10.0.2.2 dev d2 weight 3",
    );
    rig.resolve();
    let link: Value = serde_json::from_str(&rig.ip("sink", "-j link show s1")).unwrap();
    let mac = link[0]["address"].as_str().unwrap();
    rig.ip("dut", &format!("neigh replace 10.0.2.2 lladdr {mac} dev d2 nud permanent"));
    done(rig.inside("sink", "sysctl").args(["-qw", "net.ipv4.conf.s1.rp_filter=0", "net.ipv4.conf.all.rp_filter=0"]));
    rig.up(&["--dev", "d0,d1,d2"]);
    let before = received(&rig, "s1");
    let flows = 400;
    done(&mut rig.python("gen", &["flows", "192.0.2.7", "400"]));
    rig.wait_count("d0", "forwarded", flows);
    let share = received(&rig, "s1") - before;
    println!("of {flows} flows, {share} took the next hop with weight 3 of 4");
    // 300 are expected; seven standard deviations are 61.
    assert!((239..=361).contains(&share), "{share} of {flows}");
    let routes = done(&mut rig.packet(&["router", "show", "routes"]));
    assert!(routes.contains("10.0.1.2 d1, 10.0.2.2 d2 weight 3"), "{routes}");
}

/// The packets that a device of `sink` has received.
fn received(rig: &Rig, device: &str) -> u64 {
    let shown: Value = serde_json::from_str(&rig.ip("sink", &format!("-j -s link show {device}"))).unwrap();
    shown[0]["stats64"]["rx"]["packets"].as_u64().unwrap()
}

#[test]
fn tags_of_vlans_are_taken_added_and_exchanged() {
    let Some(mut rig) = Rig::new() else { return };
    // Devices that stand for VLANs: this works where the kernel has no kind `vlan`.
    for (device, peer, address) in [("v100", "v100p", "10.100.0.1/24"), ("v200", "v200p", "10.200.0.1/24")] {
        rig.ip("dut", &format!("link add {device} type veth peer name {peer}"));
        rig.ip("dut", &format!("link set {peer} up"));
        rig.ip("dut", &format!("link set {device} up"));
        rig.ip("dut", &format!("addr add {address} dev {device}"));
    }
    rig.resolve();
    let mac = |name: &str, device: &str| {
        let link: Value = serde_json::from_str(&rig.ip(name, &format!("-j link show {device}"))).unwrap();
        link[0]["address"].as_str().unwrap().replace(':', "")
    };
    let (sink, d0, v100) = (mac("sink", "s0"), mac("dut", "d0"), mac("dut", "v100"));
    rig.ip("dut", "neigh replace 10.200.0.9 lladdr 02:00:00:00:00:99 dev v200 nud permanent");
    let file = "[[port]]\ndev = \"d0\"\n[[port]]\ndev = \"d1\"\n\
                [[vlan]]\ndev = \"v100\"\nport = \"d0\"\nid = 100\n[[vlan]]\ndev = \"v200\"\nport = \"d1\"\nid = 200\n";
    let file = rig.write("router.toml", file);
    rig.up(&["--config", file.to_str().unwrap()]);
    let mut sniffed = rig.serve("sink", &["sniff", "s0", "3"]);
    let packet = |destination: &str| {
        // IPv4, time to live 64, UDP to port 9, from 10.100.0.2.
        let head = format!("4500001c000000004011 0000 0a640002{destination}").replace(' ', "");
        let words: u32 = (0..20).step_by(2).map(|at| u32::from_str_radix(&head[at * 2..at * 2 + 4], 16).unwrap()).sum();
        let sum = !((words & 0xffff) + (words >> 16)) as u16;
        format!("{}{sum:04x}{}13880009000800 00", &head[..20], &head[24..]).replace(' ', "")
    };
    let (plain, to_vlan) = (packet("c0000207"), packet("0ac80009"));
    for frame in [
        format!("{v100}0200000000018100006408 00{plain}"),
        format!("{d0}0200000000010800{to_vlan}"),
        format!("{v100}0200000000018100a06408 00{to_vlan}"),
    ] {
        done(&mut rig.python("gen", &["raw", "g0", &frame.replace(' ', ""), "1"]));
    }
    rig.wait_count("d0", "forwarded", 3);
    let mut line = String::new();
    let lines = [(); 3].map(|()| {
        line.clear();
        sniffed.read_line(&mut line).unwrap();
        line.trim().to_owned()
    });
    assert_eq!(lines, ["0 ttl 63", "200 ttl 63", "200 ttl 63"], "taken, added, exchanged; {sink}");
    done(
        &mut rig
            .python("gen", &["raw", "g0", &format!("{v100}0200000000018100006508 00{plain}").replace(' ', ""), "1"]),
    );
    rig.wait_count("d0", "unknown-vlan", 1);
}

#[test]
fn a_router_that_is_replaced_loses_nothing() {
    let Some(mut rig) = Rig::new() else { return };
    rig.resolve();
    drop(rig.serve("sink", &["count"]));
    rig.up(&["--dev", "d0,d1"]);
    let stop = rig.path("stop");
    let mut sender = rig.python("gen", &["windows", "192.0.2.7", "100000", stop.to_str().unwrap()]);
    let sender = sender.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut replaced = 0;
    while replaced < 10 {
        let change = rig.up(&["--dev", "d0,d1"]);
        assert_eq!(change["replaced"], serde_json::json!(["d0", "d1"]), "{change}");
        replaced += 1;
    }
    std::fs::write(&stop, "").unwrap();
    let output = sender.wait_with_output().unwrap();
    let (printed, errors) = (crate::rig::text(&output.stdout), crate::rig::text(&output.stderr));
    assert!(output.status.success(), "{errors}");
    let sent: u64 = printed.trim().parse().unwrap();
    assert!(sent >= 100_000);
    let forwarded = rig.count("d0", "forwarded");
    println!("{sent} packets, {replaced} replacements, {forwarded} forwarded by XDP");
    assert_eq!(forwarded, sent, "the kernel carried none of them");
    let pins = std::fs::read_dir(rig.pins()).unwrap();
    let programs =
        pins.filter(|pin| pin.as_ref().unwrap().file_name().to_string_lossy().starts_with("program-")).count();
    assert_eq!(programs, 1, "old programs are gone");
}
