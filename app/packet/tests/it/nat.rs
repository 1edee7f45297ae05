//! The NAT with real packets. `gen` is inside, `sink` is the internet.

use serde_json::Value;

use crate::rig::{Rig, done};

/// The file of a router with a NAT to 10.0.1.50, which `sink` reaches by its route to the router.
fn file(nat: &str) -> String {
    format!(
        "[[port]]\ndev = \"d0\"\n[[port]]\ndev = \"d1\"\n[nat]\ninside = [\"10.0.0.0/24\"]\npool = [\"10.0.1.1\"]\n{nat}"
    )
}

/// A router with this NAT, and an echo server outside, which has no way back but by the address of the NAT.
fn standing(nat: &str) -> Option<Rig> {
    let mut rig = Rig::new()?;
    rig.ip("sink", "route del default via 10.0.1.1");
    rig.resolve();
    drop(rig.serve("sink", &["echo"]));
    up(&rig, nat);
    Some(rig)
}

fn up(rig: &Rig, nat: &str) {
    let path = rig.write("nat.toml", &file(nat));
    rig.up(&["--config", path.to_str().unwrap()]);
}

fn shown(rig: &Rig, what: &str) -> Value {
    serde_json::from_str(&done(&mut rig.packet(&["nat", "show", what, "-o", "json"]))).unwrap()
}

#[test]
fn udp_tcp_and_echo_go_out_by_the_address_of_the_nat() {
    let Some(mut rig) = standing("") else { return };
    drop(rig.serve("sink", &["tcp-serve"]));
    assert_eq!(rig.probe("10.0.1.2", &["from=5000"]), "echo 32");
    assert_eq!(done(&mut rig.python("gen", &["tcp", "10.0.1.2", "4000000"])).trim(), "same");
    assert!(rig.count("d0", "forwarded") >= 2_000_000 / 1448, "XDP carried it");
    let ping = done(rig.inside("gen", "ping").args(["-c", "3", "-i", "0.2", "-W", "30", "10.0.1.2"]));
    assert!(ping.contains(" 3 received"), "{ping}");
    let sessions = shown(&rig, "sessions");
    let sessions = sessions.as_array().unwrap();
    let of = |protocol: &str| sessions.iter().find(|session| session["protocol"] == protocol).unwrap();
    assert_eq!((&of("udp")["inside"], &of("udp")["external"]), (&"10.0.0.2:5000".into(), &"10.0.1.1:5000".into()));
    assert_eq!((&of("udp")["peer"], &of("tcp")["peer"]), (&"10.0.1.2:9".into(), &"10.0.1.2:80".into()));
    assert!(of("icmp")["external"].as_str().unwrap().starts_with("10.0.1.1:"), "{sessions:?}");
    assert_eq!(of("tcp")["state"], "closing", "both sides have ended it");
    let pools = shown(&rig, "pools");
    assert_eq!((&pools["sessions"], pools["ports"].as_array().unwrap().len()), (&3.into(), 3), "{pools}");
}
