//! Next hops that are exchanged, fall silent or come back: the kernel probes them, as it sees none of their packets.

use serde_json::Value;

use crate::{
    fib::{explained, run, wait},
    rig::{Rig, done},
};

const LOOKUPS: [&str; 2] = ["kernel", "fib"];

/// The router learns the neighbours of these devices itself, and notices soon that one is gone. The others learn
/// nothing: no packet of theirs tells the router of a change.
fn learn(rig: &Rig, devices: &[(&str, &str)]) {
    rig.ip("gen", &format!("neigh replace 10.0.0.1 lladdr {} dev g0 nud permanent", mac(rig, "dut", "d0")));
    rig.ip("dut", &format!("neigh replace 10.0.0.2 lladdr {} dev d0 nud permanent", mac(rig, "gen", "g0")));
    for (device, outer) in devices {
        let router = format!("10.0.{}.1", &device[1..]);
        rig.ip("sink", &format!("neigh replace {router} lladdr {} dev {outer} nud permanent", mac(rig, "dut", device)));
        notice_soon(rig, device);
    }
}

/// Makes the times short by which the router notices that a neighbour is gone.
pub(crate) fn notice_soon(rig: &Rig, device: &str) {
    let settings = ["base_reachable_time_ms=1000", "delay_first_probe_time=1", "retrans_time_ms=200"];
    let settings = settings.map(|setting| format!("net.ipv4.neigh.{device}.{setting}"));
    done(rig.inside("dut", "sysctl").arg("-qw").args(settings));
}

fn mac(rig: &Rig, name: &str, device: &str) -> String {
    let link: Value = serde_json::from_str(&rig.ip(name, &format!("-j link show {device}"))).unwrap();
    link[0]["address"].as_str().unwrap().to_owned()
}

/// The MAC that packets to a host go to.
fn next_hop(rig: &Rig, to: &str) -> Option<String> {
    explained(rig, to)["next_hop_mac"].as_str().map(str::to_owned)
}

#[test]
fn a_next_hop_whose_card_is_exchanged_without_a_word_is_found_again_with_both_lookups() {
    for lookup in LOOKUPS {
        let Some(mut rig) = Rig::new() else { return };
        learn(&rig, &[("d1", "s0")]);
        drop(rig.serve("sink", &["echo"]));
        let _running = match lookup {
            "kernel" => {
                rig.up(&["--dev", "d0,d1"]);
                None
            }
            _ => Some(run(&rig, &["--dev", "d0,d1", "--lookup", "fib"])),
        };
        assert_eq!(rig.probe("192.0.2.7", &[]), "echo 32");
        wait("the next hop", || next_hop(&rig, "192.0.2.7"));
        rig.ip("sink", "link set s0 address 02:00:00:00:99:99");
        wait("the new card", || next_hop(&rig, "192.0.2.7").filter(|mac| mac == "02:00:00:00:99:99"));
        assert_eq!(rig.probe("192.0.2.7", &[]), "echo 32", "{lookup}");
    }
}

#[test]
fn flows_leave_a_next_hop_that_falls_silent_and_it_gets_its_share_when_it_is_back_with_both_lookups() {
    for lookup in LOOKUPS {
        let Some(rig) = Rig::new() else { return };
        rig.wire("sink", "s1", "d2");
        rig.ip("dut", "addr add 10.0.2.1/24 dev d2");
        rig.ip("sink", "addr add 10.0.2.2/24 dev s1");
        learn(&rig, &[("d1", "s0"), ("d2", "s1")]);
        done(rig.inside("dut", "sysctl").args(["-qw", "net.ipv4.fib_multipath_use_neigh=1"]));
        rig.ip("dut", "route replace 192.0.2.0/24 nexthop via 10.0.1.2 nexthop via 10.0.2.2");
        let _running = match lookup {
            "kernel" => {
                rig.up(&["--dev", "d0,d1,d2"]);
                None
            }
            _ => Some(run(&rig, &["--dev", "d0,d1,d2", "--lookup", "fib"])),
        };
        // With 12 flows, each next hop has one.
        let hops = || (1..=12).map(|host| next_hop(&rig, &format!("192.0.2.{host}")));
        let goes = mac(&rig, "sink", "s1");
        let has_share = || hops().any(|hop| hop.as_ref() == Some(&goes));
        wait("the share", || has_share().then_some(()));
        rig.ip("sink", "addr del 10.0.2.2/24 dev s1");
        wait("the end of the share", || hops().all(|hop| hop.is_some_and(|hop| hop != goes)).then_some(()));
        rig.ip("sink", "addr add 10.0.2.2/24 dev s1");
        wait("the share of the one that is back", || has_share().then_some(()));
    }
}

#[test]
fn a_host_that_is_no_gateway_is_probed_beside_run_and_permanent_neighbours_stay() {
    let Some(rig) = Rig::new() else { return };
    learn(&rig, &[("d1", "s0")]);
    rig.ip("sink", "addr add 10.0.1.9/24 dev s0");
    rig.ip("dut", &format!("neigh replace 10.0.1.9 lladdr {} dev d1 nud stale", mac(&rig, "sink", "s0")));
    rig.ip("dut", "neigh replace 10.0.1.2 lladdr 02:00:00:00:00:02 dev d1 nud permanent");
    let _running = run(&rig, &["--dev", "d0,d1"]);
    wait("the host", || next_hop(&rig, "10.0.1.9"));
    rig.ip("sink", "link set s0 address 02:00:00:00:99:99");
    wait("the kernel's view", || {
        let shown = rig.ip("dut", "neigh show 10.0.1.9 dev d1");
        (shown.contains("FAILED") || shown.contains("02:00:00:00:99:99")).then_some(())
    });
    let permanent = rig.ip("dut", "neigh show 10.0.1.2 dev d1");
    assert!(permanent.contains("PERMANENT") && !permanent.contains("managed"), "{permanent}");
}
