//! The firewall: real connections, and the same policy as tables of XDP, as rules of nftables, and as the model.

use std::{cell::Cell, collections::BTreeMap};

use sallyport_packet_model::{
    filter::{Action, AddressMatch, Facts, FlowState, Policy, Rule},
    parse::{Flow, Tcp, parse},
};
use sallyport_xdp::Router;
use serde_json::Value;

use crate::{
    model_frames::Frame,
    rig::{Rig, done, text},
};

const PINS: &str = "PACKET_POLICY_PINS";
const FRAMES: &str = "PACKET_POLICY_FRAMES";
const PORT: &str = "PACKET_POLICY_PORT";

/// The policy that the tests of agreement use.
const POLICY: &str = r#"
default = "drop"
[sets]
servers = ["192.0.2.0/28", "192.0.2.64/26", "fd00:2::/112"]
bad = ["192.0.2.7", "10.0.0.77"]
[[rule]]
name = "answers"
action = "accept"
states = ["established", "related"]
[[rule]]
name = "nothing from or to the bad"
action = "drop"
to = ["@bad"]
[[rule]]
name = "web"
action = "accept"
protocol = "tcp"
to = ["@servers"]
ports = [80, "443", "8000-8009"]
states = ["new"]
[[rule]]
name = "names"
action = "accept"
protocol = "udp"
from = ["10.0.0.0/25", "fd00::/64"]
ports = [53]
in = "d0"
out = "d1"
[[rule]]
name = "no low ports"
action = "reject"
protocol = "udp"
source-ports = ["1-1023"]
[[rule]]
name = "media"
action = "accept"
protocol = "udp"
from = ["10.0.0.0/24", "fd00::/64"]
to = ["192.0.2.128/25", "@servers"]
[[rule]]
name = "pings"
action = "accept"
protocol = "icmp"
from = ["10.0.0.0/26"]
[[rule]]
name = "not the other way"
action = "drop"
in = "d1"
"#;

fn standing(policy: &str, nat: &str) -> Option<Rig> {
    let rig = Rig::new()?;
    rig.resolve();
    rig.write("policy.toml", policy);
    let file = format!("policy = \"policy.toml\"\n[[port]]\ndev = \"d0\"\n[[port]]\ndev = \"d1\"\n{nat}");
    let file = rig.write("router.toml", &file);
    rig.up(&["--config", file.to_str().unwrap()]);
    Some(rig)
}

#[test]
fn test_says_which_rule_decides_and_why_others_do_not() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("policy.toml");
    std::fs::write(&file, POLICY).unwrap();
    let run = |args: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_sallyport-packet"));
        command.args(["policy", args[0]]).arg(&file).args(&args[1..]).output().unwrap()
    };
    let said = |args: &[&str]| {
        let output = run(args);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    assert!(said(&["check"]).contains("8 rules, then drop: the file is right"));
    assert!(said(&["check", "--nft"]).contains("tcp dport { 80, 443, 8000-8009 } counter accept comment \"rule 2\""));
    let web = said(&["test", "10.0.0.2", "192.0.2.3", "tcp/443"]);
    assert!(web.contains("accept") && web.contains("rule     web"), "{web}");
    assert!(web.contains("not answers: the flow has another state"), "{web}");
    let low = said(&["test", "10.0.0.2", "192.0.2.200", "udp/9", "--source-port", "7"]);
    assert!(low.contains("reject") && low.contains("not names: "), "{low}");
    let back = said(&["test", "192.0.2.3", "10.0.0.2", "tcp/40000", "--state", "established", "-o", "json"]);
    let back: Value = serde_json::from_str(&back).unwrap();
    assert_eq!((&back["action"], &back["rule"]), (&"accept".into(), &"answers".into()));
    let none = said(&["test", "192.0.2.3", "10.0.0.2", "tcp/40000"]);
    assert!(none.contains("drop") && none.contains("none: the default decides"), "{none}");
    assert_eq!(run(&["test", "192.0.2.3", "fd00::1"]).status.code(), Some(2));
    assert_eq!(run(&["test", "192.0.2.3", "10.0.0.2", "tpc/1"]).status.code(), Some(2));
}

#[test]
fn explain_asks_nat_and_policy_about_the_first_packet_of_a_flow() {
    let nat = "[nat]\ninside = [\"10.0.0.0/24\"]\npool = [\"10.0.1.1\"]\n";
    let Some(rig) = standing(POLICY, nat) else { return };
    let explained = |question: &str| -> Value {
        let args: Vec<_> = ["explain", "-o", "json"].into_iter().chain(question.split(' ')).collect();
        serde_json::from_str(&done(&mut rig.packet(&args))).unwrap()
    };
    // What becomes of the packet, and which rule decides, by its place in the file.
    let verdict = |question: &str| {
        let said = explained(question);
        (said["reason"].as_str().unwrap().to_owned(), said["rule"].as_str().map(str::to_owned))
    };
    let decided = |reason: &str, rule: &str| (reason.to_owned(), Some(rule.to_owned()));
    assert_eq!(verdict("10.0.0.2 192.0.2.3 tcp 40000 443"), decided("forwarded", "3"));
    assert_eq!(verdict("10.0.0.2 192.0.2.3 tcp 40000 22"), decided("policy", "default"));
    assert_eq!(verdict("10.0.0.2 192.0.2.200 udp 7 9"), decided("policy-reject", "5"));
    assert_eq!(verdict("10.0.0.2 192.0.2.3 tcp 40000 443 --size 0"), decided("forwarded", "3"), "the least size");
    assert_eq!(verdict("10.0.0.2 192.0.2.3"), decided("forwarded", "7"), "an echo request begins a flow");
    assert_eq!(verdict("fd00::2 fd00:2::7 udp 5000 54"), decided("forwarded", "6"));
    assert_eq!(verdict("10.0.0.2 10.0.0.1").1, None, "this machine: nobody asks the policy");
    let sessions = done(&mut rig.packet(&["nat", "show", "sessions", "-o", "json"]));
    assert_eq!(sessions.trim(), "[]", "no session begins");
    let media = "10.0.0.2 192.0.2.200 udp 5000 9";
    assert_eq!(explained(media)["new_source"], "the pool chooses");
    rig.probe("192.0.2.200", &["from=5000", "to=9", "answer=0"]);
    rig.wait_for(|| explained(media)["new_source"] == "10.0.1.1:5000");
    let back = explained("192.0.2.200 10.0.1.1 udp 9 5000 --from d1");
    assert_eq!((&back["new_destination"], &back["rule"]), (&"10.0.0.2:5000".into(), &"1".into()), "{back}");
    assert_eq!(explained("fd00::2 fd00:2::7 tcp 40000 443")["new_source"], Value::Null);
    assert_eq!(explained("10.0.1.2 10.0.1.1 tcp 5000 9")["from"], "d1", "to an address of the NAT");
    let nowhere = rig.run(&["explain", "203.0.113.9", "10.0.0.2", "udp", "1", "2"]);
    let said = text(&nowhere.stderr);
    assert!(said.contains("no port leads back to 203.0.113.9, so d0 is taken"), "{said}");
}

#[test]
fn explain_says_that_nftables_judges_what_leaves_by_no_port() {
    let Some(rig) = standing(POLICY, "") else { return };
    rig.wire("sink", "s9", "d9");
    rig.ip("dut", "addr add 10.0.9.1/24 dev d9");
    rig.ip("dut", "neigh replace 10.0.9.2 lladdr 02:00:00:00:00:09 dev d9 nud permanent");
    let explained = |to: &str| rig.run(&["explain", "10.0.0.2", to, "udp", "5000", "53"]);
    let output = explained("10.0.9.2");
    let (said, hint) = (text(&output.stdout), text(&output.stderr));
    assert!(said.contains("other-port") && said.contains("the policy in nftables, which may drop it"), "{said}");
    assert!(hint.contains("`sallyport packet policy test` says what the policy does with it"), "{hint}");
    let said = text(&explained("192.0.2.7").stdout);
    assert!(said.contains("drop (policy)") && !said.contains("nftables"), "{said}");
}

#[test]
fn connections_of_the_inside_pass_and_strangers_do_not() {
    for nat in [
        "",
        "[nat]\ninside = [\"10.0.0.0/24\"]\npool = [\"10.0.1.1\"]\n",
        "[nat]\nengine = \"conntrack\"\ninside = [\"10.0.0.0/24\"]\npool = [\"10.0.1.1\"]\n",
    ] {
        let policy = "default = \"drop\"\n[[rule]]\nname = \"answers\"\naction = \"accept\"\nstates = [\"established\", \"related\"]\n[[rule]]\nname = \"inside\"\naction = \"accept\"\nin = \"d0\"\nout = \"d1\"\nprotocol = \"tcp\"\nports = [80]\n[[rule]]\nname = \"echo\"\naction = \"accept\"\nin = \"d0\"\nprotocol = \"udp\"\nports = [9, 1]\n[[rule]]\nname = \"rejected\"\naction = \"reject\"\nprotocol = \"udp\"\nports = [2]\n";
        let Some(mut rig) = standing(policy, nat) else { return };
        drop(rig.serve("sink", &["tcp-serve"]));
        drop(rig.serve("sink", &["echo"]));
        drop(rig.serve("gen", &["echo"]));
        assert_eq!(done(&mut rig.python("gen", &["tcp", "10.0.1.2", "2000000"])).trim(), "same", "{nat}");
        assert!(rig.count("d0", "forwarded") >= 1_000_000 / 1448, "XDP carried it");
        assert_eq!(rig.probe("10.0.1.2", &[]), "echo 32");
        assert_eq!(rig.refused("10.0.1.2", &["to=1"]), "icmp 3 3 by 10.0.1.2 info 0", "a related error");
        assert_eq!(rig.refused("10.0.1.2", &["to=2"]), "icmp 3 13 by 10.0.0.1 info 0", "rejected by the kernel");
        rig.probe("10.0.1.2", &["to=3", "answer=0"]);
        // Of connection tracking, the kernel has the first packets.
        if !nat.contains("conntrack") {
            rig.wait_count("d0", "policy", 1);
            done(&mut rig.python("sink", &["probe", "10.0.0.2", "answer=0"]));
            rig.wait_count("d1", "policy", 1);
            let file = rig.path("policy.toml");
            let printed = done(&mut rig.packet(&["policy", "show", file.to_str().unwrap(), "-o", "json"]));
            let hits: Value = serde_json::from_str(&printed).unwrap();
            assert_eq!((&hits[4]["rule"], &hits[4]["packets"]), (&"default".into(), &2.into()), "{hits}");
        }
    }
}

#[test]
fn fragmented_questions_and_answers_pass_the_firewall() {
    let policy = "default = \"drop\"\n[[rule]]\nname = \"answers\"\naction = \"accept\"\nstates = [\"established\"]\n[[rule]]\nname = \"inside\"\naction = \"accept\"\nin = \"d0\"\nprotocol = \"udp\"\nports = [9]\n";
    for nat in ["", "[nat]\ninside = [\"10.0.0.0/24\"]\npool = [\"10.0.1.1\"]\n"] {
        let Some(mut rig) = standing(policy, nat) else { return };
        drop(rig.serve("sink", &["echo"]));
        for to in ["10.0.1.2", "fd00:1::2"] {
            assert_eq!(rig.probe(to, &["want=4000"]), "echo 4000", "{to} {nat}");
            assert_eq!(rig.probe(to, &["size=4000"]), "echo 4000", "{to} {nat}");
            rig.probe(to, &["size=4000", "to=10", "answer=0"]);
        }
        // Of a question that a rule refuses, the first fragment is dropped, and the kernel waits for it in vain.
        rig.wait_count("d0", "policy", 2);
        rig.wait_count("d0", "fragment", 4);
        assert_eq!(rig.count("d1", "fragment"), 0, "{nat}");
    }
}

#[test]
fn later_fragments_follow_their_first_one_over_a_new_program() {
    let nat = "[nat]\ninside = [\"10.0.0.0/24\"]\npool = [\"10.0.1.1\"]\n";
    let Some(rig) = standing("default = \"accept\"\n", nat) else { return };
    let send = |id: u16, fragment: u16| {
        let frame = Frame { id, fragment, ..Frame::udp(("10.0.0.2", 5000), ("10.0.1.2", 9), &[0; 32]) };
        rig.send(("gen", "g0"), "d0", &frame, 1);
    };
    let file = rig.path("router.toml");
    let id = Cell::new(0);
    // A first fragment is remembered for 5 seconds: a slow machine tries again.
    rig.wait_for(|| {
        id.set(id.get() + 1);
        let before = rig.count("d0", "forwarded");
        send(id.get(), 0x2000);
        rig.wait_count("d0", "forwarded", before + 1);
        rig.up(&["--config", file.to_str().unwrap()]);
        let strays = rig.count("d0", "fragment");
        send(id.get(), 5);
        rig.wait_for(|| rig.count("d0", "forwarded") + rig.count("d0", "fragment") > before + 1 + strays);
        rig.count("d0", "forwarded") == before + 2
    });
}

#[test]
fn a_policy_without_rules_is_its_default() {
    for nat in [
        "",
        "[nat]\ninside = [\"10.0.0.0/24\"]\npool = [\"10.0.1.1\"]\n",
        "[nat]\nengine = \"conntrack\"\ninside = [\"10.0.0.0/24\"]\npool = [\"10.0.1.1\"]\n",
    ] {
        let Some(rig) = standing("default = \"drop\"\n", nat) else { return };
        rig.probe("fd00:1::2", &["answer=0"]);
        rig.wait_count("d0", "policy", 1);
    }
}

/// The policy of POLICY, by hand: the file is not what is tested.
fn model(devices: (u32, u32)) -> Policy {
    let rule = |name: &str, action| Rule::new(name, action);
    let net = |net: &str| AddressMatch::Net(net.parse().unwrap());
    let set = |name: &str| AddressMatch::Set(name.to_owned());
    let rules = vec![
        Rule { states: vec![FlowState::Established, FlowState::Related], ..rule("answers", Action::Accept) },
        Rule { to: vec![set("bad")], ..rule("bad", Action::Drop) },
        Rule {
            protocol: Some(6),
            to: vec![set("servers")],
            destination_ports: vec![80..=80, 443..=443, 8000..=8009],
            states: vec![FlowState::New],
            ..rule("web", Action::Accept)
        },
        Rule {
            protocol: Some(17),
            from: vec![net("10.0.0.0/25"), net("fd00::/64")],
            destination_ports: vec![53..=53],
            incoming: Some(devices.0),
            outgoing: Some(devices.1),
            ..rule("names", Action::Accept)
        },
        Rule { protocol: Some(17), source_ports: vec![1..=1023], ..rule("no low ports", Action::Reject) },
        Rule {
            protocol: Some(17),
            from: vec![net("10.0.0.0/24"), net("fd00::/64")],
            to: vec![net("192.0.2.128/25"), set("servers")],
            ..rule("media", Action::Accept)
        },
        Rule { protocol: Some(1), from: vec![net("10.0.0.0/26")], ..rule("pings", Action::Accept) },
        Rule { incoming: Some(devices.1), ..rule("other way", Action::Drop) },
    ];
    let nets = |nets: &[&str]| nets.iter().map(|net| net.parse().unwrap()).collect();
    let sets = BTreeMap::from([
        ("servers".to_owned(), nets(&["192.0.2.0/28", "192.0.2.64/26", "fd00:2::/112"])),
        ("bad".to_owned(), nets(&["192.0.2.7/32", "10.0.0.77/32"])),
    ]);
    Policy::new(rules, sets, Action::Drop).unwrap()
}

/// Frames of new flows from `gen`, no two of one flow.
fn frames(mac: &[u8]) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for number in 0..1_500_u16 {
        let pick = |bound: u16, salt: u16| (number.wrapping_mul(31).wrapping_add(salt) >> (salt & 3)) % bound;
        let is_v6 = number % 5 == 0;
        let (source, destination) = if is_v6 {
            (format!("fd00::{:x}", 2 + pick(9, 1)), format!("fd00:2::{:x}", pick(2, 2) << 15 | 3))
        } else {
            (format!("10.0.0.{}", 2 + pick(250, 3)), format!("192.0.2.{}", 1 + pick(250, 5)))
        };
        let port = [53, 80, 443, 8003, 8010, 9][usize::from(pick(6, 7))];
        let source_port = if number % 11 == 0 { 1 + number % 1000 } else { 2_000 + number };
        let (from, to) = ((source.as_str(), source_port), (destination.as_str(), port));
        let frame = match number % 3 {
            0 => Frame::tcp(from, to, Tcp::SYN, b""),
            1 => Frame::udp(from, to, b"x"),
            _ if is_v6 => Frame::udp(from, to, b"y"),
            _ => Frame::echo(&source, &destination, false, number),
        };
        let mut bytes = frame.bytes();
        bytes[..6].copy_from_slice(mac);
        frames.push(bytes);
    }
    frames
}

#[test]
fn xdp_nftables_and_the_model_decide_alike() {
    let Some(rig) = standing(POLICY, "") else { return };
    let links = ["d0", "d1"]
        .map(|device| -> Value { serde_json::from_str(&rig.ip("dut", &format!("-j link show {device}"))).unwrap() });
    let index = |place: usize| links[place][0]["ifindex"].as_u64().unwrap() as u32;
    let mac: Vec<u8> =
        links[0][0]["address"].as_str().unwrap().split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
    let frames = frames(&mac);
    let policy = model((index(0), index(1)));
    let mut expected = vec![0_u64; 9];
    for frame in &frames {
        let flow = Flow::of(&parse(frame).unwrap()).unwrap();
        let has_ports = flow.protocol == 6 || flow.protocol == 17;
        let facts =
            Facts { flow, has_ports, state: FlowState::New, incoming: Some(index(0)), outgoing: Some(index(1)) };
        expected[policy.decide(&facts).rule.unwrap_or(8)] += 1;
    }
    println!("packets of each rule: {expected:?}");
    assert!(expected[1..7].iter().all(|count| *count > 0) && expected[8] > 0, "{expected:?}");
    // The tables of XDP.
    let hex: String =
        frames.iter().map(|frame| frame.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + "\n").collect();
    let file = rig.write("frames", &hex);
    let test = std::env::current_exe().unwrap();
    let mut inner = rig.inside("dut", test.to_str().unwrap());
    inner.args(["--exact", "policy::inside_the_namespace", "--ignored", "--nocapture"]);
    inner.env(PINS, rig.pins()).env(PORT, index(0).to_string()).env(FRAMES, &file);
    let printed = done(&mut inner);
    assert!(printed.contains("1 passed"), "{printed}");
    let (hits, default) = Router::new(rig.pins()).policy_hits().unwrap();
    assert_eq!([hits, vec![default]].concat(), expected, "XDP");
    // The rules of nftables, over the same frames, with no program in the way.
    let rules = done(rig.inside("dut", "nft").args(["list", "table", "inet", "sallyport_policy"]));
    done(&mut rig.packet(&["router", "down"]));
    let saved = rig.write("rules.nft", &rules);
    done(rig.inside("dut", "nft").arg("-f").arg(&saved));
    done(&mut rig.python("gen", &["frames", "g0", file.to_str().unwrap()]));
    let counted = || {
        let listed = done(rig.inside("dut", "nft").args(["-j", "list", "table", "inet", "sallyport_policy"]));
        let listed: Value = serde_json::from_str(&listed).unwrap();
        let mut counts = vec![0; 9];
        let rules = listed["nftables"].as_array().unwrap().iter().filter_map(|one| one.get("rule"));
        // The one without a comment decides nothing.
        for rule in rules.filter(|rule| rule.get("comment").is_some()) {
            let place =
                rule["comment"].as_str().unwrap().strip_prefix("rule ").map_or(8, |place| place.parse().unwrap());
            let mut counters = rule["expr"].as_array().unwrap().iter().filter_map(|one| one.get("counter"));
            counts[place] += counters.next().unwrap()["packets"].as_u64().unwrap();
        }
        counts
    };
    rig.wait_for(|| counted().iter().sum::<u64>() >= frames.len() as u64);
    assert_eq!(counted(), expected, "nftables");
}

#[test]
#[ignore = "xdp_nftables_and_the_model_decide_alike runs it in the namespace of its router"]
fn inside_the_namespace() {
    let variable = |name| std::env::var(name).unwrap();
    let runner = Router::new(variable(PINS)).runner().unwrap();
    let port = variable(PORT).parse().unwrap();
    for line in std::fs::read_to_string(variable(FRAMES)).unwrap().lines() {
        let frame: Vec<u8> =
            (0..line.len() / 2).map(|at| u8::from_str_radix(&line[at * 2..at * 2 + 2], 16).unwrap()).collect();
        runner.run(&frame, port).unwrap();
    }
}
