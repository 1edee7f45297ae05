//! What others take away from a router: a program, a port, the tables of nftables. Each loss is named, and `router run`
//! mends it.

use crate::{
    fib::{run, status},
    rig::{Rig, done, text},
};

const POLICY: &str = "default = \"drop\"\n[[rule]]\nname = \"inside\"\naction = \"accept\"\nin = \"d0\"\n";

/// A file of a router with a policy.
fn file(rig: &Rig) -> String {
    rig.write("policy.toml", POLICY);
    let ports = "policy = \"policy.toml\"\n[[port]]\ndev = \"d0\"\n[[port]]\ndev = \"d1\"\n";
    rig.write("router.toml", ports).to_str().unwrap().to_owned()
}

fn notes(rig: &Rig) -> String {
    status(rig)["notes"].to_string()
}

fn tables(rig: &Rig) -> String {
    done(rig.inside("dut", "nft").args(["list", "tables"]))
}

fn has_program(rig: &Rig, device: &str) -> bool {
    rig.ip("dut", &format!("link show {device}")).contains("prog/xdp")
}

#[test]
fn a_router_that_loses_its_policy_says_so() {
    let Some(rig) = Rig::new() else { return };
    let file = file(&rig);
    rig.up(&["--config", &file]);
    assert_eq!(status(&rig)["has_policy"], true);
    let changed = rig.up(&["--dev", "d0,d1"]);
    assert_eq!(changed["removed"], serde_json::json!(["policy"]));
    assert_eq!((&status(&rig)["has_policy"], tables(&rig).as_str()), (&false.into(), ""));
    assert_eq!(rig.up(&["--dev", "d0,d1"])["removed"], serde_json::json!([]));

    rig.up(&["--config", &file]);
    let mut without_nft = rig.inside("dut", "/usr/bin/env");
    without_nft.args(["PATH=/nowhere", env!("CARGO_BIN_EXE_sallyport-packet"), "--pins"]);
    let down = without_nft.arg(rig.pins()).args(["router", "down"]).output().unwrap();
    let said = text(&down.stderr);
    assert_eq!(down.status.code(), Some(1), "{said}");
    assert!(said.contains("its rules are still in nftables") && said.contains("nft delete table"), "{said}");
    assert!(tables(&rig).contains("sallyport_policy"));
}

#[test]
fn tables_that_nftables_has_lost_are_named_and_set_again() {
    let Some(rig) = Rig::new() else { return };
    let file = file(&rig);
    rig.up(&["--config", &file]);
    assert_eq!(notes(&rig), "[]");
    done(rig.inside("dut", "nft").args(["flush", "ruleset"]));
    assert!(notes(&rig).contains("nftables has lost the policy"), "{}", notes(&rig));
    let _run = run(&rig, &["--config", &file]);
    assert!(tables(&rig).contains("sallyport_policy"));
    done(rig.inside("dut", "nft").args(["flush", "ruleset"]));
    rig.wait_for(|| tables(&rig).contains("sallyport_policy"));
    assert_eq!(notes(&rig), "[]");
}

#[test]
fn a_port_that_is_made_anew_and_a_program_that_was_removed_come_back() {
    for lookup in ["kernel", "fib"] {
        let Some(rig) = Rig::new() else { return };
        rig.up(&["--dev", "d0,d1"]);
        rig.ip("dut", "link set d0 xdp off");
        assert!(notes(&rig).contains("d0 runs no program of the router"), "{}", notes(&rig));
        let _run = run(&rig, &["--dev", "d0,d1", "--lookup", lookup]);
        assert_eq!(notes(&rig), "[]");
        rig.ip("dut", "link set d0 xdp off");
        rig.wait_for(|| has_program(&rig, "d0"));
        rig.ip("dut", "link del d1");
        rig.wait_for(|| notes(&rig).contains("is gone, and was a port"));
        rig.wire("sink", "s0", "d1");
        rig.ip("dut", "addr add 10.0.1.1/24 dev d1");
        rig.ip("sink", "addr add 10.0.1.2/24 dev s0");
        rig.ip("sink", "route add default via 10.0.1.1");
        rig.wait_for(|| has_program(&rig, "d1") && notes(&rig) == "[]");
        let before = rig.count("d1", "forwarded");
        let ping = || rig.inside("gen", "ping").args(["-c1", "-W5", "10.0.1.2"]).output();
        rig.wait_for(|| ping().unwrap().status.success() && rig.count("d1", "forwarded") > before);
    }
}

#[test]
fn the_state_of_another_namespace_is_not_read_here() {
    let Some(rig) = Rig::new() else { return };
    rig.up(&["--dev", "d0,d1"]);
    for words in ["router show status", "router show drops", "router show neighbors", "explain 10.0.0.2 10.0.1.2"] {
        let mut command = rig.inside("sink", env!("CARGO_BIN_EXE_sallyport-packet"));
        let output = command.arg("--pins").arg(rig.pins()).args(words.split(' ')).output().unwrap();
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains("the state of another network namespace"), "{words}: {said}");
    }
    assert_eq!(notes(&rig), "[]");
}
