//! The NAT with real packets. `gen` is inside, `sink` is the internet.

use std::{
    io::{BufRead as _, BufReader},
    process::Stdio,
};

use sallyport_packet_model::parse::Tcp;
use serde_json::Value;

use crate::{
    hostile::sealed,
    model_frames::Frame,
    rig::{Rig, done, text},
};

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

#[test]
fn forwarded_ports_lead_inside_and_hairpins_come_back() {
    let Some(mut rig) = standing("[[nat.forward]]\nexternal = \"10.0.1.1:80\"\ninside = \"10.0.0.2:80\"\n") else {
        return;
    };
    drop(rig.serve("gen", &["tcp-serve"]));
    assert_eq!(done(&mut rig.python("sink", &["tcp", "10.0.1.1", "1000000"])).trim(), "same");
    assert_eq!(done(&mut rig.python("gen", &["tcp", "10.0.1.1", "1000000"])).trim(), "same");
    assert!(rig.count("d0", "forwarded") >= 2 * 500_000 / 1448, "XDP carried both");
    let sessions = shown(&rig, "sessions");
    let inbound = sessions.as_array().unwrap().iter().filter(|session| session["is_outbound"] == false);
    let peers: Vec<_> = inbound.map(|session| session["peer"].as_str().unwrap().split(':').next().unwrap()).collect();
    assert!(peers.contains(&"10.0.1.2") && peers.contains(&"10.0.1.1"), "the hairpin came as the NAT: {sessions}");
}

#[test]
fn errors_of_icmp_find_their_way_inside() {
    let Some(rig) = standing("") else { return };
    done(rig.inside("sink", "sysctl").args(["-qw", "net.ipv4.ip_forward=1", "net.ipv4.icmp_ratelimit=0"]));
    rig.ip("dut", "route add 198.51.100.0/24 via 10.0.1.2");
    rig.ip("sink", "route add 198.51.100.0/24 via 10.0.1.77 dev s0");
    assert_eq!(rig.refused("198.51.100.9", &["ttl=1"]), "icmp 11 0 by 10.0.0.1 info 0");
    assert_eq!(rig.refused("198.51.100.9", &["ttl=2"]), "icmp 11 0 by 10.0.1.2 info 0", "beyond the NAT");
    assert_eq!(rig.refused("10.0.1.2", &["to=1"]), "icmp 3 3 by 10.0.1.2 info 0");
    assert!(rig.count("d1", "forwarded") >= 2, "XDP translated the errors");
}

#[test]
fn fragments_are_translated_like_the_first_one_and_the_kernel_chooses_no_port() {
    let Some(rig) = standing("") else { return };
    let path = rig.write("pool.toml", &file("").replace("10.0.1.1\"", "10.0.1.64-10.0.1.71\""));
    rig.ip("sink", "route add 10.0.1.64/29 via 10.0.1.1");
    rig.up(&["--config", path.to_str().unwrap()]);
    let sources: Vec<_> = (50..56).map(|last| format!("10.0.0.{last}")).collect();
    for (number, source) in sources.iter().enumerate() {
        rig.ip("gen", &format!("addr add {source}/24 dev g0"));
        done(rig.inside("gen", "ping").args(["-c", "1", "-W", "30", "-I", source, "10.0.0.1"]));
        let source = format!("source={source}");
        // A small question with a large answer, both large, and a large question to a second peer of the same socket.
        assert_eq!(rig.probe("10.0.1.2", &["from=5000", "want=4000", &source]), "echo 4000");
        assert_eq!(rig.probe("10.0.1.2", &["from=5000", "size=4000", &source]), "echo 4000");
        assert_eq!(rig.probe("192.0.2.7", &["from=5000", "size=4000", "want=40", &source]), "echo 40");
        assert_eq!((rig.count("d0", "fragment"), rig.count("d1", "fragment")), (0, 0), "host {number}");
    }
    assert_eq!(done(rig.inside("dut", "conntrack").args(["-L", "-p", "udp"])), "", "the kernel has no session");
    assert_eq!(shown(&rig, "pools")["sessions"], 2 * sources.len());
    // A fragment without its first one: the kernel has it, and sends nothing on.
    let link: Value = serde_json::from_str(&rig.ip("dut", "-j link show d0")).unwrap();
    let mac = link[0]["address"].as_str().unwrap().replace(':', "");
    let stray = sealed(&format!("{mac} 020000000007 0800 4500001c 7777 0009 4011 0000 0a000032 0a000102 {:016x}", 0));
    let stray: String = stray.iter().map(|byte| format!("{byte:02x}")).collect();
    done(&mut rig.python("gen", &["raw", "g0", &stray, "1"]));
    rig.wait_count("d0", "fragment", 1);
    let drops = shown(&rig, "drops");
    assert!(drops.as_array().unwrap().iter().any(|count| count["reason"] == "fragment"), "{drops}");
}

#[test]
fn options_and_unknown_next_hops_go_by_the_kernel_and_are_translated() {
    let Some(rig) = standing("") else { return };
    let ping = done(rig.inside("gen", "ping").args(["-R", "-c", "2", "-i", "0.2", "-W", "30", "10.0.1.2"]));
    assert!(ping.contains(" 2 received"), "{ping}");
    assert!(rig.count("d0", "options") >= 2);
    // An unresolved next hop: the kernel asks for it, and translates the first packets.
    rig.ip("dut", "neigh del 10.0.1.2 dev d1");
    assert_eq!(rig.probe("10.0.1.2", &["from=5001"]), "echo 32");
    assert!(rig.count("d0", "neighbor") >= 1);
    // So it does for an answer whose session only XDP has.
    assert_eq!(rig.probe("10.0.1.2", &["from=5002"]), "echo 32");
    rig.ip("dut", "neigh del 10.0.0.2 dev d0");
    assert_eq!(rig.probe("10.0.1.2", &["from=5002"]), "echo 32");
    assert!(rig.count("d1", "neighbor") >= 1);
    // The kernel has taken that answer for no flow. So it translates the same socket, and its inside address stays inside.
    let listed = done(rig.inside("dut", "conntrack").args(["-L", "-p", "udp"]));
    assert!(!listed.contains("dst=10.0.0.2 sport=9 dport=5002"), "{listed}");
    let left = rig.count("d0", "neighbor");
    rig.ip("dut", "neigh del 10.0.1.2 dev d1");
    assert_eq!(rig.probe("10.0.1.2", &["from=5002"]), "echo 32");
    assert!(rig.count("d0", "neighbor") > left);
}

#[test]
fn bounds_of_users_and_ports_have_a_counter_and_a_sentence() {
    let Some(rig) = standing("ports = \"40000-40003\"\nmax-sessions-per-user = 6\n") else { return };
    done(&mut rig.python("gen", &["flows", "10.0.1.2", "4"]));
    rig.probe("10.0.1.2", &["from=6000", "answer=0"]);
    rig.wait_count("d0", "nat-ports", 1);
    let printed = done(&mut rig.packet(&["nat", "show", "drops"]));
    assert!(printed.contains("the ports of the NAT are exhausted: give it more addresses"), "{printed}");
    // Two more sessions of mappings that are there; the seventh is one too many.
    for to in ["192.0.2.7", "192.0.2.8", "192.0.2.9"] {
        rig.probe(to, &["from=20000", "answer=0"]);
    }
    rig.wait_count("d0", "nat-sessions", 1);
    assert_eq!(shown(&rig, "pools")["sessions"], 6);
    // Another user has the same four ports, and no more.
    rig.ip("gen", "addr add 10.0.0.3/24 dev g0");
    rig.probe("10.0.1.2", &["source=10.0.0.3", "from=20000", "answer=0"]);
    rig.wait_count("d0", "nat-ports", 2);
}

#[test]
fn a_flood_of_beginnings_leaves_a_forwarded_server_its_own_sessions_and_ends_soon() {
    let nat = "max-sessions-per-user = 6\ntimeouts = { half-open = 1 }\n\
               [[nat.forward]]\nexternal = \"10.0.1.1:80\"\ninside = \"10.0.0.2:80\"\n";
    let Some(mut rig) = standing(nat) else { return };
    drop(rig.serve("gen", &["tcp-serve"]));
    let link: Value = serde_json::from_str(&rig.ip("dut", "-j link show d1")).unwrap();
    let mac = link[0]["address"].as_str().unwrap().replace(':', "");
    let hex = |frame: Vec<u8>| frame.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let syns = (0..12).map(|number| {
        let source = format!("192.0.2.{}", 100 + number);
        let bytes = Frame::tcp((&source, 4_000), ("10.0.1.1", 80), Tcp::SYN, b"").bytes();
        format!("{mac}{}", &hex(bytes)[12..])
    });
    let file = rig.write("syns", &syns.map(|syn| syn + "\n").collect::<String>());
    done(&mut rig.python("sink", &["frames", "s0", file.to_str().unwrap()]));
    rig.wait_for(|| rig.count("d1", "nat-sessions") >= 1);
    for port in ["from=5001", "from=5002", "from=5003"] {
        assert_eq!(rig.probe("10.0.1.2", &[port]), "echo 32", "the server's own sessions");
    }
    assert_eq!(rig.count("d0", "nat-sessions"), 0);
    assert_eq!(done(&mut rig.python("sink", &["tcp", "10.0.1.1", "1000"])).trim(), "same", "a new client");
}

#[test]
fn strangers_come_in_only_where_the_filter_is_open() {
    let Some(rig) = standing("") else { return };
    assert_eq!(rig.probe("10.0.1.2", &["from=5000"]), "echo 32");
    done(&mut rig.python("sink", &["probe", "10.0.1.1", "from=77", "to=5000", "answer=0"]));
    rig.wait_count("d1", "nat-filtered", 1);
    up(&rig, "filtering = \"endpoint-independent\"\n");
    done(&mut rig.python("sink", &["probe", "10.0.1.1", "from=78", "to=5000", "answer=0"]));
    rig.wait_count("d1", "forwarded", 2);
    assert_eq!(rig.count("d1", "nat-filtered"), 1, "the mapping outlived the change");
    let unknown = ["probe", "10.0.1.1", "from=78", "to=5001", "answer=0"];
    done(&mut rig.python("sink", &unknown));
    rig.wait_count("d1", "nat-no-mapping", 1);
}

#[test]
fn the_log_has_the_beginning_and_the_end_of_each_session() {
    let Some(rig) = standing("timeouts = { udp = 1 }\n") else { return };
    let mut log = rig.packet(&["nat", "log", "-o", "json", "--count", "4"]);
    let mut log = log.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(log.stderr.take().unwrap()).read_line(&mut said).unwrap();
    assert!(said.contains("the log begins"), "{said}");
    let busy = rig.run(&["nat", "log"]);
    assert!(text(&busy.stderr).contains("another `sallyport packet nat log`"), "{}", text(&busy.stderr));
    for port in ["from=5000", "from=5001"] {
        assert_eq!(rig.probe("10.0.1.2", &[port]), "echo 32");
    }
    let printed = text(&log.wait_with_output().unwrap().stdout);
    let lines: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |event: &str| lines.iter().filter(|line| line["event"] == event).count();
    assert_eq!((of("new"), of("ended")), (2, 2), "{printed}");
    assert_eq!((&lines[0]["inside"], &lines[0]["peer"]), (&"10.0.0.2:5000".into(), &"10.0.1.2:9".into()));
    let ended = lines.iter().find(|line| line["event"] == "ended").unwrap();
    assert!(ended["seconds"].as_f64().unwrap() >= 1.0, "{ended}");
    assert_eq!(shown(&rig, "sessions"), serde_json::json!([]), "the clock of the kernel has ended them");
    assert_eq!(shown(&rig, "pools")["sessions"], 0);
}

#[test]
fn connection_tracking_translates_the_first_packets_and_xdp_the_rest() {
    let Some(mut rig) =
        standing("engine = \"conntrack\"\n[[nat.forward]]\nexternal = \"10.0.1.1:80\"\ninside = \"10.0.0.2:80\"\n")
    else {
        return;
    };
    drop(rig.serve("sink", &["tcp-serve"]));
    drop(rig.serve("gen", &["tcp-serve"]));
    assert_eq!(done(&mut rig.python("gen", &["tcp", "10.0.1.2", "4000000"])).trim(), "same");
    assert!(rig.count("d0", "forwarded") >= 2_000_000 / 1448, "XDP carried it");
    assert!(rig.count("d0", "nat-kernel") >= 2, "the kernel had the beginning and the end");
    assert_eq!(done(&mut rig.python("sink", &["tcp", "10.0.1.1", "1000000"])).trim(), "same");
    assert_eq!(done(&mut rig.python("gen", &["tcp", "10.0.1.1", "1000000"])).trim(), "same", "a hairpin");
    let ping = done(rig.inside("gen", "ping").args(["-c", "2", "-i", "0.2", "-W", "30", "10.0.1.2"]));
    assert!(ping.contains(" 2 received"), "{ping}");
    assert_eq!(rig.refused("10.0.1.2", &["to=1"]), "icmp 3 3 by 10.0.1.2 info 0");
    let listed = done(rig.inside("dut", "conntrack").args(["-L", "-p", "tcp"]));
    assert!(listed.contains("src=10.0.0.2 dst=10.0.1.2") && listed.contains("dst=10.0.1.1"), "{listed}");
    let refused = rig.run(&["nat", "show", "sessions"]);
    assert!(text(&refused.stderr).contains("`conntrack -L` lists them"), "{}", text(&refused.stderr));
    // Back to tables of XDP, and to no NAT: no rule stays.
    up(&rig, "");
    assert_eq!(rig.probe("10.0.1.2", &["from=5000"]), "echo 32");
    rig.up(&["--dev", "d0,d1"]);
    assert_eq!(done(rig.inside("dut", "nft").args(["list", "ruleset"])), "");
    assert!(text(&rig.run(&["nat", "show", "sessions"]).stderr).contains("has no NAT"));
}

#[test]
fn a_packet_too_long_for_the_inside_is_answered_with_the_address_outside() {
    for policy in ["", "default = \"drop\"\n[[rule]]\nname = \"web\"\naction = \"accept\"\nprotocol = \"tcp\"\n"] {
        let Some(mut rig) = standing("") else { return };
        let nat = file("[[nat.forward]]\nexternal = \"10.0.1.1:80\"\ninside = \"10.0.0.2:80\"\n");
        rig.write("policy.toml", policy);
        let head = if policy.is_empty() { "" } else { "policy = \"policy.toml\"\n" };
        let path = rig.write("router.toml", &format!("{head}{nat}"));
        // The hosts believe in 1,500 bytes.
        rig.ip("dut", "link set d0 mtu 1400");
        rig.up(&["--config", path.to_str().unwrap()]);
        drop(rig.serve("gen", &["tcp-serve"]));
        assert_eq!(done(&mut rig.python("sink", &["tcp", "10.0.1.1", "1000000"])).trim(), "same", "{policy}");
        assert!(rig.count("d1", "too-big-sent") >= 1);
        let learned = rig.ip("sink", "route get 10.0.1.1");
        assert!(learned.contains("mtu 1400"), "{learned}");
    }
    // The kernel fragments what may be fragmented.
    let Some(mut rig) = Rig::new() else { return };
    rig.ip("sink", "route del default via 10.0.1.1");
    rig.resolve();
    done(rig.inside("sink", "sysctl").args(["-qw", "net.ipv4.ip_no_pmtu_disc=1"]));
    drop(rig.serve("sink", &["echo"]));
    rig.ip("dut", "link set d0 mtu 1400");
    up(&rig, "");
    assert_eq!(rig.probe("10.0.1.2", &["want=1450"]), "echo 1450");
    assert_eq!((rig.count("d1", "too-big"), rig.count("d1", "too-big-sent")), (1, 0));
}

#[test]
fn a_flood_of_packets_that_are_too_long_gets_no_flood_of_answers() {
    let Some(rig) = standing("") else { return };
    rig.ip("dut", "link set d0 mtu 1400");
    up(&rig, "");
    assert_eq!(rig.probe("10.0.1.2", &["from=5000"]), "echo 32");
    let long = Frame { fragment: 0x4000, ..Frame::udp(("10.0.1.2", 9), ("10.0.1.1", 5000), &[0; 1450]) };
    rig.send(("sink", "s0"), "d1", &long, 4_000);
    let answers = || (rig.count("d1", "too-big-sent"), rig.count("d1", "icmp-limited"));
    rig.wait_for(|| answers().0 + answers().1 == 4_000);
    let (sent, limited) = answers();
    println!("{sent} answers, and {limited} packets without one");
    // A processor answers 50 at once, and then as many as its time allows.
    assert!(sent >= 50 && limited >= 1, "{sent} {limited}");
    let drops = done(&mut rig.packet(&["router", "show", "drops"]));
    assert!(drops.contains("icmp-limited"), "{drops}");
}

#[test]
fn a_packet_that_ends_on_its_way_inside_is_answered_with_the_address_outside() {
    let Some(rig) =
        standing("[[nat.forward]]\nprotocol = \"udp\"\nexternal = \"10.0.1.1:81\"\ninside = \"10.0.0.2:81\"\n")
    else {
        return;
    };
    rig.probe("10.0.1.2", &["from=5000", "to=77", "answer=0"]);
    let back = |options: &[&str]| {
        let packet = ["probe", "10.0.1.1", "from=77", "to=5000"];
        done(&mut rig.python("sink", &[&packet, options].concat())).trim().to_owned()
    };
    // The socket of the peer gets the error, so the packet inside has the address and the port that the peer knows.
    assert_eq!(back(&["ttl=1"]), "icmp 11 0 by 10.0.1.1 info 0");
    for (route, error) in [("unreachable", "icmp 3 1"), ("prohibit", "icmp 3 13")] {
        rig.ip("dut", &format!("route add {route} 10.0.0.2/32"));
        assert_eq!(back(&[]), format!("{error} by 10.0.1.1 info 0"));
        rig.ip("dut", &format!("route del {route} 10.0.0.2/32"));
    }
    assert_eq!(rig.count("d1", "error-sent"), 3);
    // Of a device that is no port, the kernel knows the forwarded ports alone.
    rig.wire("sink", "s9", "d9");
    rig.ip("dut", "route add 10.0.0.2/32 dev d9");
    rig.ip("dut", "neigh replace 10.0.0.2 lladdr 02:00:00:00:00:09 dev d9 nud permanent");
    back(&["answer=0"]);
    rig.wait_count("d1", "nat-other-port", 1);
    done(&mut rig.python("sink", &["probe", "10.0.1.1", "from=78", "to=81", "answer=0"]));
    rig.wait_count("d1", "other-port", 1);
    // Nobody answers an error: the peer's own one, about a packet of the inside.
    rig.ip("dut", "route replace unreachable 10.0.0.2/32");
    let inner = Frame::udp(("10.0.1.1", 5000), ("10.0.1.2", 77), b"x");
    let error = Frame { hop_limit: 1, ..Frame::error("10.0.1.2", "10.0.1.1", 3, &inner.packet()) };
    rig.send(("sink", "s0"), "d1", &error, 1);
    rig.wait_count("d1", "error-dropped", 1);
    assert_eq!(rig.count("d1", "error-sent"), 3);
}

#[test]
fn an_address_that_is_taken_away_is_written_no_more() {
    let Some(rig) = standing("") else { return };
    let up = |address: &str| {
        let path =
            rig.write("nat.toml", &file("").replace("pool = [\"10.0.1.1\"]", &format!("pool = [\"{address}\"]")));
        rig.up(&["--config", path.to_str().unwrap()]);
    };
    for address in ["10.0.1.50", "10.0.1.60"] {
        rig.ip("sink", &format!("route add {address} via 10.0.1.1"));
    }
    up("10.0.1.50");
    assert_eq!(rig.probe("10.0.1.2", &["from=5000"]), "echo 32");
    up("10.0.1.60");
    rig.ip("sink", "route replace 10.0.1.50 via 10.0.1.77 dev s0");
    // The socket sends all the time, so its session never ends by itself.
    assert_eq!(rig.probe("10.0.1.2", &["from=5000", "retry=1"]), "echo 32");
    let sessions = shown(&rig, "sessions");
    let external: Vec<_> = sessions.as_array().unwrap().iter().map(|session| &session["external"]).collect();
    assert_eq!(external, ["10.0.1.60:5000"], "{sessions}");
}

#[test]
fn more_sessions_than_the_tables_have_room_for_are_refused_and_the_nat_stands() {
    let Some(rig) = standing("max-sessions = 1000\n") else { return };
    let path = rig.write("larger.toml", &file("max-sessions = 2000\n"));
    let output = rig.run(&["router", "up", "--config", path.to_str().unwrap()]);
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(5) && said.contains("have room for 1024 sessions, and 2000"), "{said}");
    assert_eq!(rig.probe("10.0.1.2", &["from=5000"]), "echo 32");
    assert_eq!(shown(&rig, "pools")["sessions"], 1);
}

#[test]
fn ports_that_sockets_of_this_machine_have_too_are_said() {
    let Some(rig) = Rig::new() else { return };
    let up = |nat: &str| {
        let path = rig.write("nat.toml", &file(nat));
        text(&rig.run(&["router", "up", "--config", path.to_str().unwrap()]).stderr)
    };
    let said = up("");
    let words =
        "10.0.1.1 is an address of this machine too, and its sockets have ports of the NAT (chosen from 32768-60999)";
    assert!(said.contains(words), "{said}");
    let said = up("ports = \"1024-32767\"\n");
    assert!(!said.contains("is an address of this machine too"), "{said}");
}
