//! Devices that cannot, programs of others, and a killed process.

use std::{
    fs,
    process::Stdio,
    time::{Duration, Instant},
};

use libbpf_rs::{MapHandle, MapType, libbpf_sys};
use serde_json::Value;

use crate::rig::{Rig, done, text};

/// The id of the program at a device of the router, if one is there.
fn program_at(rig: &Rig, device: &str) -> Option<u64> {
    let shown: Value = serde_json::from_str(&rig.ip("dut", &format!("-j link show {device}"))).unwrap();
    shown[0]["xdp"]["prog"]["id"].as_u64()
}

#[test]
fn a_device_with_only_generic_mode_is_refused_and_the_others_are_as_before() {
    let Some(rig) = Rig::new() else { return };
    let output = rig.run(&["router", "up", "--dev", "d0,lo"]);
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(5), "{said}");
    assert!(said.contains("the driver of lo runs XDP only in generic mode"), "{said}");
    assert_eq!(program_at(&rig, "d0"), None, "d0 was taken back");
    assert!(!rig.pins().exists(), "no state stays");
}

#[test]
fn a_port_that_cannot_send_what_is_redirected_to_it_is_refused_and_the_others_are_as_before() {
    let Some(rig) = Rig::new() else { return };
    rig.up(&["--dev", "d0"]);
    let before = program_at(&rig, "d0");
    let set = |gro: &str| drop(done(rig.inside("sink", "ethtool").args(["-K", "s0", "gro", gro])));
    set("off");
    let output = rig.run(&["router", "up", "--dev", "d0,d1"]);
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(5), "{said}");
    assert!(said.contains("the driver of d1 sends no XDP frames") && said.contains("GRO of its peer on"), "{said}");
    assert_eq!((program_at(&rig, "d0"), program_at(&rig, "d1")), (before, None), "both have what they had");
    set("on");
    rig.up(&["--dev", "d0,d1"]);
}

#[test]
fn a_program_of_another_is_named_and_left() {
    let Some(rig) = Rig::new() else { return };
    // Another router, with a state of its own, is the program of another.
    rig.up(&["--dev", "d1"]);
    let before = program_at(&rig, "d1");
    let other = rig.path("bpf/other");
    let mut command = rig.inside("dut", env!("CARGO_BIN_EXE_sallyport-packet"));
    let output = command.arg("--pins").arg(&other).args(["router", "up", "--dev", "d0,d1"]).output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(5), "{said}");
    assert!(
        said.contains("d1 is a port of a router already: `sallyport packet --pins ITS-FOLDER router down`"),
        "{said}"
    );
    assert_eq!((program_at(&rig, "d0"), program_at(&rig, "d1")), (None, before));
    assert!(!other.exists());
    // A failed change leaves the standing router whole.
    let output = rig.run(&["router", "up", "--dev", "d1,lo"]);
    assert_eq!((output.status.code(), program_at(&rig, "d1")), (Some(5), before), "{}", text(&output.stderr));
}

#[test]
fn the_state_of_another_namespace_is_left_until_the_namespace_is_gone() {
    let Some(rig) = Rig::new() else { return };
    rig.up(&["--dev", "d0,d1"]);
    let before = program_at(&rig, "d0");
    for words in [&["router", "up", "--dev", "g0"][..], &["router", "down"]] {
        let mut command = rig.inside("gen", env!("CARGO_BIN_EXE_sallyport-packet"));
        let output = command.arg("--pins").arg(rig.pins()).args(words).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(5), "{said}");
        assert!(said.contains("has the state of another network namespace, which still exists"), "{said}");
    }
    // The first goes on, and can still change its router.
    assert_eq!(program_at(&rig, "d0"), before);
    assert_eq!(rig.up(&["--dev", "d0,d1"])["replaced"], serde_json::json!(["d0", "d1"]));
    // No namespace has the inode 1: the state of one that is gone is taken over.
    let mark = fs::read_dir(rig.pins()).unwrap().map(|entry| entry.unwrap().path());
    let mark = mark.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("net-")).collect::<Vec<_>>();
    assert_eq!(mark.len(), 1, "{mark:?}");
    fs::remove_dir(&mark[0]).unwrap();
    fs::create_dir(rig.pins().join("net-1")).unwrap();
    assert_eq!(rig.up(&["--dev", "d0,d1"])["replaced"], serde_json::json!(["d0", "d1"]));
    assert!(mark[0].exists() && !rig.pins().join("net-1").exists());
    done(&mut rig.packet(&["router", "down"]));
    assert!(!rig.pins().exists(), "nothing stays");
}

#[test]
fn packets_go_on_after_kill_9_and_the_state_is_found_again() {
    let Some(rig) = Rig::new() else { return };
    kill_replacements(rig, &["router", "up", "--dev", "d0,d1"]);
}

#[test]
fn packets_go_on_with_nat_and_policy_after_kill_9() {
    let Some(rig) = Rig::new() else { return };
    let answers = "[[rule]]\nname = \"answers\"\naction = \"accept\"\nstates = [\"established\"]\n";
    let inside = "[[rule]]\nname = \"inside\"\naction = \"accept\"\nin = \"d0\"\n";
    rig.write("policy.toml", &format!("default = \"drop\"\n{answers}{inside}"));
    let nat = "[nat]\ninside = [\"10.0.0.0/24\"]\npool = [\"10.0.1.1\"]\nmax-sessions = 1024\n";
    let file = format!("policy = \"policy.toml\"\n[[port]]\ndev = \"d0\"\n[[port]]\ndev = \"d1\"\n{nat}");
    let file = rig.write("router.toml", &file);
    kill_replacements(rig, &["router", "up", "--config", file.to_str().unwrap()]);
}

/// Kills replacements of the program all over their time, and asks for an answer after each.
fn kill_replacements(mut rig: Rig, up: &[&str]) {
    rig.resolve();
    drop(rig.serve("sink", &["echo"]));
    done(&mut rig.packet(up));
    let begun = Instant::now();
    done(&mut rig.packet(up));
    let start = begun.elapsed();
    let mut probes = 0;
    let mut probe = || {
        probes += 1;
        assert_eq!(rig.probe("10.0.1.2", &[]), "echo 32");
    };
    probe();
    // Kills a replacement when `is_time`, and says whether the program was at the ports already; `None` if it had ended.
    let kill = |is_time: &dyn Fn(Duration, bool) -> bool| {
        let before = program_at(&rig, "d0");
        let mut child = rig.packet(up).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let begun = Instant::now();
        while child.try_wait().unwrap().is_none() && !is_time(begun.elapsed(), program_at(&rig, "d0") != before) {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(child.kill());
        child.wait().unwrap().code().is_none().then(|| program_at(&rig, "d0") != before)
    };
    // Spread over the whole start, and at the moment at which the ports have the program.
    let mut kills = Vec::new();
    for part in 0..5_u32 {
        kills.extend(kill(&|elapsed, _| elapsed >= start * part / 5));
        probe();
    }
    for _ in 0..20 {
        if kills.contains(&true) {
            break;
        }
        kills.extend(kill(&|_, is_attached| is_attached));
        probe();
    }
    let after = kills.iter().filter(|is_attached| **is_attached).count();
    println!("{} runs were killed, {after} of them after the attach; a run takes {start:?}", kills.len());
    assert!(after > 0 && after < kills.len(), "{kills:?}");
    rig.wait_count("d0", "forwarded", probes);
    let change: Value = serde_json::from_str(&done(&mut rig.packet(&[up, &["-o", "json"]].concat()))).unwrap();
    assert_eq!(change["replaced"], serde_json::json!(["d0", "d1"]), "{change}");
    assert_eq!(rig.count("d0", "forwarded"), probes, "counters outlive the process");
    let down: Value = serde_json::from_str(&done(&mut rig.packet(&["router", "down", "-o", "json"]))).unwrap();
    assert_eq!(down["detached"], serde_json::json!(["d0", "d1"]));
    assert!(!rig.pins().exists() && program_at(&rig, "d0").is_none());
    assert_eq!(rig.probe("10.0.1.2", &[]), "echo 32", "the kernel forwards");
}

#[test]
fn tables_of_an_older_build_are_refused_and_the_router_stays() {
    let Some(rig) = Rig::new() else { return };
    rig.up(&["--dev", "d0,d1"]);
    let before = program_at(&rig, "d0");
    assert!(before.is_some());
    rig.write("policy.toml", "default = \"accept\"\n");
    let nat = "[nat]\ninside = [\"10.0.0.0/24\"]\npool = [\"10.0.1.1\"]\nmax-sessions = 1024\n";
    for (table, head, tail) in [("nat_sessions", "", nat), ("policy_flows", "policy = \"policy.toml\"\n", "")] {
        let options = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
            ..Default::default()
        };
        let mut old = MapHandle::create(MapType::Hash, Some(table), 12, 20, 1024, &options).unwrap();
        old.pin(rig.pins().join(table)).unwrap();
        let file = format!("{head}[[port]]\ndev = \"d0\"\n[[port]]\ndev = \"d1\"\n{tail}");
        let file = rig.write("router.toml", &file);
        let output = rig.run(&["router", "up", "--config", file.to_str().unwrap()]);
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains("has another layout: run `sallyport"), "{said}");
        assert_eq!(program_at(&rig, "d0"), before, "{table}");
        fs::remove_file(rig.pins().join(table)).unwrap();
    }
}

#[test]
fn a_machine_without_nft_gets_no_half_of_a_policy() {
    let Some(rig) = Rig::new() else { return };
    rig.write("policy.toml", "default = \"drop\"\n");
    let file = rig.write("router.toml", "policy = \"policy.toml\"\n[[port]]\ndev = \"d0\"\n");
    for command in ["up", "run"] {
        let mut without = rig.inside("dut", "env");
        without.args(["PATH=/nonexistent", env!("CARGO_BIN_EXE_sallyport-packet")]).arg("--pins").arg(rig.pins());
        let output = without.args(["router", command, "--config"]).arg(&file).output().unwrap();
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains("install the package nftables"), "{said}");
        assert!(said.contains("nothing was changed") && program_at(&rig, "d0").is_none(), "{said}");
    }
}

#[test]
fn a_port_that_goes_is_detached() {
    let Some(rig) = Rig::new() else { return };
    rig.up(&["--dev", "d0,d1"]);
    let change = rig.up(&["--dev", "d1"]);
    assert_eq!((&change["replaced"], &change["detached"]), (&serde_json::json!(["d1"]), &serde_json::json!(["d0"])));
    assert_eq!(program_at(&rig, "d0"), None);
}
