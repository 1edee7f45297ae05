//! The command line: what it says, and what it refuses.

use std::process::Command;

use serde_json::Value;

use crate::rig::{Rig, done, text};

fn explained(rig: &Rig, args: &[&str]) -> Value {
    serde_json::from_str(&done(&mut rig.packet(&[&["explain", "-o", "json"], args].concat()))).unwrap()
}

#[test]
fn it_is_called_as_a_command_of_sallyport() {
    let program = env!("CARGO_BIN_EXE_sallyport-packet");
    let help = Command::new(program).args(["router", "up", "--help"]).output().unwrap();
    let printed = text(&help.stdout);
    assert!(help.status.success() && printed.contains("Usage: sallyport packet router up"), "{printed}");
    let wrong = Command::new(program).args(["router", "up"]).output().unwrap();
    assert!(wrong.status.code() == Some(2) && text(&wrong.stderr).contains("--dev"), "{}", text(&wrong.stderr));
}

#[test]
fn explain_says_what_would_become_of_a_packet_and_counts_nothing() {
    let Some(rig) = Rig::new() else { return };
    rig.resolve();
    rig.up(&["--dev", "d0,d1", "--urpf", "strict"]);
    let there = explained(&rig, &["10.0.0.2", "192.0.2.7", "tcp", "40000", "443"]);
    assert_eq!(
        (&there["action"], &there["from"], &there["to"]),
        (&"forward".into(), &"d0".into(), &"d1".into()),
        "{there}"
    );
    assert_eq!(there["next_hop"], "10.0.1.2");
    let v6 = explained(&rig, &["fd00::2", "fd00:2::7", "udp", "5000", "53"]);
    assert_eq!((&v6["reason"], &v6["next_hop"]), (&"forwarded".into(), &"fd00:1::2".into()), "{v6}");
    let spoofed = explained(&rig, &["10.0.1.9", "192.0.2.7", "--from", "d0"]);
    assert_eq!((&spoofed["action"], &spoofed["reason"]), (&"drop".into(), &"urpf".into()), "{spoofed}");
    rig.ip("dut", "route add blackhole 203.0.113.0/24");
    assert_eq!(explained(&rig, &["10.0.0.2", "203.0.113.1"])["reason"], "blackhole");
    let big = explained(&rig, &["10.0.0.2", "192.0.2.7", "udp", "1", "2", "--size", "1600"]);
    assert_eq!((&big["reason"], &big["mtu"]), (&"too-big".into(), &1500.into()), "{big}");
    assert_eq!((rig.count("d0", "forwarded"), rig.count("d0", "urpf")), (0, 0));
    let mixed = rig.run(&["explain", "10.0.0.2", "fd00::1"]);
    assert!(mixed.status.code() == Some(2) && text(&mixed.stderr).contains("two families"), "{}", text(&mixed.stderr));
}

#[test]
fn what_cannot_be_has_a_sentence() {
    let Some(rig) = Rig::new() else { return };
    let failed = |args: &[&str], code: i32, words: &str| {
        let output = rig.run(args);
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(code) && said.contains(words), "{args:?}: {said}");
    };
    failed(&["router", "down"], 4, "no router stands here");
    failed(&["router", "show", "drops"], 4, "no router stands here");
    failed(&["explain", "10.0.0.2", "192.0.2.7"], 4, "no router stands here");
    failed(&["router", "up", "--dev", "d0,d9"], 4, "there is no device d9");
    failed(&["router", "up", "--dev", "d0,d0"], 2, "d0 is named twice");
    let file = rig.write("router.toml", "[[port]]\ndevice = \"d0\"\n");
    failed(&["router", "up", "--config", file.to_str().unwrap()], 2, "router.toml, line 2: unknown field `device`");
    let file = rig.write("none.toml", "");
    failed(&["router", "up", "--config", file.to_str().unwrap()], 2, "the router has no port");
    failed(&["router", "up", "--config", file.to_str().unwrap()], 2, "none.toml for each port");
    let file = rig.write("limits.toml", "[limits]\ngroups = 0\n[[port]]\ndev = \"d0\"\n");
    failed(&["router", "up", "--config", file.to_str().unwrap()], 2, "limits: groups is 0");
    let file = rig.write("policy-of-none.toml", "policy = \"nothing.toml\"\n[[port]]\ndev = \"d0\"\n");
    failed(&["router", "up", "--config", file.to_str().unwrap()], 1, "policy-of-none.toml names the file");
    // A folder of a disk, and one of /sys that nothing is mounted at.
    for folder in [rig.path("elsewhere"), "/sys/fs/nothing/router".into()] {
        let mut command = rig.inside("dut", env!("CARGO_BIN_EXE_sallyport-packet"));
        let output = command.arg("--pins").arg(folder).args(["router", "up", "--dev", "d0,d1"]).output();
        let said = text(&output.unwrap().stderr);
        assert!(said.contains("is not in a mounted bpffs: run `mount -t bpf bpf /sys/fs/bpf`"), "{said}");
    }
}

#[test]
fn without_root_each_command_says_so() {
    let Some(rig) = Rig::new() else { return };
    // The program is copied to where anybody may run it.
    let program = rig.path("sallyport-packet");
    std::fs::copy(env!("CARGO_BIN_EXE_sallyport-packet"), &program).unwrap();
    let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(program.parent().unwrap(), everybody).unwrap();
    for line in ["router up --dev d0,d1", "router run --dev d0,d1", "router down", "router show drops", "dump"] {
        let mut command = rig.inside("dut", "setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(&program);
        let output = command.arg("--pins").arg(rig.pins()).args(line.split(' ')).output().unwrap();
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(3) && said.contains("needs root"), "{line}: {said}");
    }
}

#[test]
fn a_port_that_does_not_forward_is_named() {
    let Some(rig) = Rig::new() else { return };
    let off = ["-qw", "net.ipv4.ip_forward=0", "net.ipv6.conf.all.forwarding=0"];
    done(rig.inside("dut", "sysctl").args(off));
    let output = rig.run(&["router", "up", "--dev", "d0,d1"]);
    let said = text(&output.stderr);
    assert!(output.status.success() && said.contains("forwarding is off for d0, d1: run `sysctl -w"), "{said}");
    done(rig.inside("dut", "sysctl").args(["-qw", "net.ipv4.ip_forward=1"]));
    let said = text(&rig.run(&["router", "up", "--dev", "d0,d1"]).stderr);
    assert!(!said.contains("forwarding is off"), "{said}");
}
