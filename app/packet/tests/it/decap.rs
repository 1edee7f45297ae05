//! An edge behind balancers: whose packets it takes, what it drops, and what a user may ask for. Slices too.

use sallyport_packet_model::balance::{BalanceConfig, Numbers};
use sallyport_xdp::balance::Balancer;
use serde_json::Value;

use crate::{
    model_frames::Frame,
    rig::done,
    site::{EGRESS, SOURCE4, Site, VIRTUAL4, VIRTUAL6},
};

#[test]
fn packets_of_strangers_are_dropped_and_counted() {
    let Some(site) = Site::new(1) else { return };
    site.edges_up([1], &[]);
    site.balance(&site.config("", &[(1, "")]));
    let (_, mac) = site.link("e1", "e0");
    let mac: String = mac.iter().map(|byte| format!("{byte:02x}")).collect();
    let inside = Frame::tcp(("10.1.0.2", 5000), (VIRTUAL4, 80), 2, b"").packet();
    let other = Frame::tcp(("10.1.0.2", 5000), ("203.0.113.99", 80), 2, b"").packet();
    let gue = |head: [u8; 4], packet: &[u8]| [head.as_slice(), packet].concat();
    let plain = [0, 4, 0, 0];
    let sent = |source: &str, payload: &[u8]| {
        let frame = Frame::udp((source, 50_000), ("10.2.1.2", 6080), payload).bytes();
        let hex: String = frame.iter().map(|byte| format!("{byte:02x}")).collect();
        done(&mut site.python("lb", &["raw", "b1", &format!("{mac}{}", &hex[12..])]));
    };
    let cases: [(&str, &str, Vec<u8>, &str); 9] = [
        ("a stranger", "192.0.2.66", gue(plain, &inside), "stranger"),
        ("the client itself", "10.1.0.2", gue(plain, &inside), "stranger"),
        ("another version of GUE", SOURCE4, gue([0x40, 4, 0, 0], &inside), "tunnel"),
        ("a control message", SOURCE4, gue([0x20, 4, 0, 0], &inside), "tunnel"),
        ("flags that nobody knows", SOURCE4, gue([0, 4, 1, 0], &inside), "tunnel"),
        ("another protocol inside", SOURCE4, gue([0, 47, 0, 0], &inside), "tunnel"),
        ("private data beyond the end", SOURCE4, gue([31, 4, 0, 0], &inside), "tunnel"),
        ("an address that is not here", SOURCE4, gue(plain, &other), "no-address"),
        ("half a packet inside", SOURCE4, gue(plain, &inside[..24]), "truncated"),
    ];
    for (name, source, payload, reason) in &cases {
        let before = site.count("e1", reason);
        sent(source, payload);
        println!("{name}: {reason}");
        site.wait_for(name, || site.count("e1", reason) == before + 1);
    }
    // A good one has an answer of the server: its SYN is taken.
    let before = site.count("e1", "decapsulated");
    sent(SOURCE4, &gue(plain, &inside));
    // The client knows nothing of it, and resets.
    site.wait_for("a good one", || site.count("e1", "decapsulated") > before + 1);
    // Of a packet with a second edge that is no mate, nothing goes on: no open relay.
    let ack = Frame::tcp(("10.1.0.2", 5001), (VIRTUAL4, 80), 0x10, b"").packet();
    let second = [[2, 4, 0, 0, 1, 4, 0, 0, 192, 0, 2, 99].as_slice(), &ack].concat();
    let before = site.count("e1", "decapsulated");
    sent(SOURCE4, &second);
    site.wait_for("no relay", || site.count("e1", "decapsulated") > before);
    assert_eq!(site.count("e1", "second-chance"), 0);
    let mut talker = site.hold(VIRTUAL4, 5);
    assert_eq!(talker.hear()["edges"]["e1"], 5, "the edge goes on");
    // What was seen can be looked at.
    let mut dump =
        site.packet("e1", &["dump", "--of", "decap", "--reason", "decapsulated", "--count", "1", "-o", "json"]);
    let dump = dump.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let mut end = Some(dump);
    site.wait_for("a packet", || {
        talker.say("ask");
        end.as_mut().unwrap().try_wait().unwrap().is_some()
    });
    let shown = crate::rig::text(&end.take().unwrap().wait_with_output().unwrap().stdout);
    let shown: Value = serde_json::from_str(shown.lines().next().unwrap()).unwrap();
    assert!(shown["packet"].as_str().unwrap().contains(&format!("{SOURCE4}.")), "{shown}");
    assert!(
        shown["became"].as_str().unwrap_or_default().contains(VIRTUAL4) || shown["is_rewritten"] == true,
        "{shown}"
    );
}

#[test]
fn addresses_come_and_go_with_the_program_and_bad_words_have_sentences() {
    let Some(site) = Site::new(1) else { return };
    let on_lo =
        || done(std::process::Command::new("ip").args(["-n", &site.namespace("e1"), "addr", "show", "dev", "lo"]));
    site.batch("e1", "addr add 203.0.113.77/32 dev lo\n");
    let up = |addresses: &str, more: &[&str]| {
        let args = ["decap", "up", "--dev", "e0", "--from", SOURCE4, "--address", addresses];
        site.run("e1", &[&args, more].concat())
    };
    assert!(up("203.0.113.10,203.0.113.77,2001:db8:a::10", &[]).status.success());
    assert!(["203.0.113.10/32", "203.0.113.77/32", "2001:db8:a::10/128"].iter().all(|one| on_lo().contains(one)));
    let status = site.json("e1", &["decap", "show", "status"]);
    assert_eq!(status["balancers"], serde_json::json!([SOURCE4]), "{status}");
    // Another list: what is not named goes, and what stood before stays.
    assert!(up("203.0.113.77", &["--no-second-chance"]).status.success());
    assert!(!on_lo().contains("203.0.113.10/") && on_lo().contains("203.0.113.77/"));
    assert_eq!(site.json("e1", &["decap", "show", "status"])["second_chance"], false);
    for (addresses, more, words) in [
        ("10.2.1.2", vec![], "10.2.1.2 is this machine's own address, on e0"),
        ("127.0.0.1", vec![], "--address 127.0.0.1 is no address of one machine"),
        (SOURCE4, vec![], "10.9.0.1 is a balancer or an edge, and cannot be shared by --address"),
        ("203.0.113.9", vec!["--mate", "224.0.0.1"], "--mate 224.0.0.1 is no address of one machine"),
    ] {
        let output = up(addresses, &more);
        let said = crate::rig::text(&output.stderr);
        assert!(!output.status.success() && said.contains(words), "{said}");
        assert!(!on_lo().contains("203.0.113.9/"), "nothing is left of it");
    }
    let said = site.refusal("e1", &["decap", "up", "--dev", "e9", "--from", SOURCE4, "--address", VIRTUAL4]);
    assert!(said.contains("there is no device e9 in this network namespace"), "{said}");
    site.json("e1", &["decap", "down"]);
    assert!(on_lo().contains("203.0.113.77/"), "what stood before stays: {}", on_lo());
    let link = done(std::process::Command::new("ip").args(["-n", &site.namespace("e1"), "link", "show", "e0"]));
    assert!(!link.contains("xdp"), "{link}");
    assert!(!site.pins("e1").exists());
    let said = site.refusal("e1", &["decap", "show", "status"]);
    assert!(said.contains("this machine takes no packets of balancers"), "{said}");
}

#[test]
fn a_balancer_says_what_it_cannot_do_and_stays() {
    let Some(site) = Site::new(2) else { return };
    let said = site.refusal("lb", &["balance", "show", "edges"]);
    assert!(said.contains("no balancer stands here: `sallyport packet balance up --config balance.toml`"), "{said}");
    site.edges_up(1..=2, &[]);
    let good = site.config("", &[(1, ""), (2, "")]);
    site.balance(&good);
    let changed = |from: &str, to: &str| good.replacen(from, to, 1);
    for (text, words) in [
        (changed("address = \"10.2.2.2\"", "address = \"10.2.1.2\""), "e1 and e2 have one address, 10.2.1.2"),
        (
            changed(
                "[[service]]",
                "[[service]]\naddress = \"203.0.113.10\"\nprotocol = \"tcp\"\nports = \"70-90\"\n[[service]]",
            ),
            "overlaps another one at the ports",
        ),
        (changed("ports = 80", "ports = \"90-80\""), "the ports 90-80 are no range"),
        (changed("ports = 80", "ports = 0"), "are no range from 1 on"),
        (changed("ports = 80", "port = 80"), "unknown field `port`"),
        (changed("\"b1\"", "\"b9\""), "there is no device b9"),
        (changed("\"b1\"", "\"b0\""), "the device b0 is named twice"),
        (changed(SOURCE4, "10.9.0.9"), "source is 10.9.0.9, which is no address of this machine"),
        (changed(VIRTUAL4, "10.1.0.1"), "the virtual address 10.1.0.1 is this machine's own address"),
        (changed("name = \"e2\"", "name = \"e1\""), "two edges, machines or sites have the name e1"),
        (changed("name = \"e2\"", "name = \"e2\"\nweight = 0"), "the weight of e2 is 0"),
        (
            format!("{good}[[egress]]\naddress = \"{EGRESS}\"\nslice = [{{ number = 40, machine = \"e1\" }}]\n"),
            "slice 40 of 198.51.100.5 is none",
        ),
        (
            format!(
                "{good}[[egress]]\naddress = \"{EGRESS}\"\n\
                  slice = [{{ number = 4, machine = \"e1\" }}, {{ number = 4, machine = \"e2\" }}]\n"
            ),
            "slice 4 of 198.51.100.5 has two machines, e1 and e2",
        ),
    ] {
        let file = site.write("wrong.toml", &text);
        let said = site.refusal("lb", &["balance", "up", "--config", file.to_str().unwrap()]);
        assert!(said.contains(words), "{said} | {words}");
    }
    let said = site.refusal("lb", &["balance", "drain", "e7"]);
    assert!(said.contains("there is no edge e7"), "{said}");
    let mut talker = site.hold(VIRTUAL6, 10);
    talker.hear();
    // `explain` says why, and no port without a service answers.
    let explained = site.json("lb", &["balance", "explain", "10.1.0.2", VIRTUAL4, "tcp", "40000", "80"]);
    assert_eq!(
        (&explained["reason"], &explained["by"]),
        (&Value::from("balanced"), &Value::from("slot")),
        "{explained}"
    );
    assert!(explained["target"].as_str().unwrap().starts_with('e') && explained["second"].is_string(), "{explained}");
    let explained = site.json("lb", &["balance", "explain", "10.1.0.2", VIRTUAL4, "tcp", "40000", "81"]);
    assert_eq!(explained["reason"], "no-service");
    let explained =
        site.json("lb", &["balance", "explain", "10.1.0.2", VIRTUAL4, "tcp", "40000", "80", "--size", "1590"]);
    assert_eq!((&explained["reason"], &explained["mtu"]), (&Value::from("too-big"), &Value::from(1560)), "{explained}");
    // A process follows the file: a wrong one changes nothing, and its metrics can be read.
    let metrics = site.path("balance.prom");
    let run = site.keep_in_step(&format!("metrics = \"{}\"\n{good}", metrics.display()));
    let file = site.path("balance.toml");
    let said = site.refusal("lb", &["balance", "up", "--config", file.to_str().unwrap()]);
    assert!(said.contains("a process keeps this balancer in step"), "{said}");
    site.write("balance.toml", "[[edge]]\nname = 1\n");
    site.wait_for("metrics", || {
        std::fs::read_to_string(&metrics).is_ok_and(|text| {
            text.contains("sallyport_packet_balance_packets_total{edge=\"e1\"}")
                && text.contains("sallyport_packet_balance_edge{edge=\"e2\",state=\"serving\"} 1")
                && text.contains("action=\"forward\",reason=\"balanced\"}")
        })
    });
    assert_eq!(talker.say("ask")["alive"], 10);
    site.end(run);
    let down = site.json("lb", &["balance", "down"]);
    assert_eq!(down["detached"], serde_json::json!(["b0", "b1", "b2"]));
    assert!(!site.pins("lb").exists());
}

#[test]
fn machines_dial_from_their_slices_and_answers_come_back_to_them() {
    let Some(site) = Site::new(2) else { return };
    for number in 1..=2 {
        let args = ["decap", "up", "--dev", "e0", "--from", SOURCE4, "--address", EGRESS];
        site.json(&Site::edge(number), &args);
        done(site.inside(&Site::edge(number), "sysctl").args(["-qw", "net.ipv4.ip_local_port_range=2048 65535"]));
    }
    let slices = "slice = [{ number = 1, machine = \"e1\" }, { number = 31, machine = \"e2\" }]";
    let text = site.config("", &[(1, ""), (2, "")]) + &format!("[[egress]]\naddress = \"{EGRESS}\"\n{slices}\n");
    site.balance(&text);
    site.start("cl", &["serve", "far", "80", "10.1.0.2"]);
    for (machine, first, last) in [("e1", "2048", "4095"), ("e2", "63488", "65535")] {
        let args = ["dial", "10.1.0.2", "80", EGRESS, first, last, "300"];
        assert_eq!(done(&mut site.python(machine, &args)).trim(), "300", "{machine}");
    }
    let shown = site.json("lb", &["balance", "show", "slices"]);
    assert!(shown.as_array().unwrap().iter().all(|slice| slice["packets"].as_u64().unwrap() > 900), "{shown}");
    // A slice moves to another machine: the next packet goes there.
    let explained = |port: &str| site.json("lb", &["balance", "explain", "10.1.0.2", EGRESS, "tcp", "80", port]);
    assert!(explained("3000")["target"].as_str().unwrap().starts_with("e1 "));
    site.balance(&text.replace("number = 1, machine = \"e1\"", "number = 1, machine = \"e2\""));
    assert!(explained("3000")["target"].as_str().unwrap().starts_with("e2 "));
    assert_eq!(explained("5000")["reason"], "slice-free");
    assert_eq!(explained("80")["reason"], "not-virtual", "slice 0 is this machine's own");
}

const PINS: &str = "PACKET_TEST_PINS";
const PORT: &str = "PACKET_TEST_PORT";
const MAC: &str = "PACKET_TEST_MAC";

/// The file of 31 machines that share one address.
fn machines() -> String {
    let mut text = format!("dev = [\"b0\", \"b1\"]\nsource = [\"{SOURCE4}\"]\n");
    for number in 1..=31 {
        text += &format!("[[machine]]\nname = \"m{number}\"\naddress = \"10.2.1.{}\"\n", 100 + number);
    }
    text += &format!("[[egress]]\naddress = \"{EGRESS}\"\n");
    for number in 1..=31 {
        text += &format!("[[egress.slice]]\nnumber = {number}\nmachine = \"m{number}\"\n");
    }
    text
}

#[test]
fn thirty_one_machines_share_one_address_without_a_packet_astray() {
    let Some(site) = Site::new(1) else { return };
    let (_, mac) = site.link("e1", "e0");
    let mac = mac.map(|byte| format!("{byte:02x}")).join(":");
    let neighbors: String = (1..=31)
        .map(|number| format!("neigh replace 10.2.1.{} lladdr {mac} dev b1 nud permanent\n", 100 + number))
        .collect();
    site.batch("lb", &neighbors);
    site.balance(&machines());
    let test = std::env::current_exe().unwrap();
    let (index, own) = site.link("lb", "b0");
    let mut inner = site.inside("lb", test.to_str().unwrap());
    inner.args(["--exact", "decap::every_port_inside_the_balancer", "--ignored", "--nocapture"]);
    inner.env(PINS, site.pins("lb")).env(PORT, index.to_string());
    let printed = done(inner.env(MAC, own.map(|byte| byte.to_string()).join(",")));
    assert!(printed.contains("1 passed"), "{printed}");
    println!("{printed}");
}

#[test]
#[ignore = "thirty_one_machines_share_one_address_without_a_packet_astray runs it in the namespace of its balancer"]
fn every_port_inside_the_balancer() {
    let variable = |name| std::env::var(name).unwrap();
    let runner = Balancer::new(variable(PINS)).runner().unwrap();
    let port = variable(PORT).parse().unwrap();
    let mac: Vec<u8> = variable(MAC).split(',').map(|byte| byte.parse().unwrap()).collect();
    for number in 2_048..=65_535_u16 {
        // Answers of TCP and UDP, and errors about what a machine has sent.
        let sent = Frame::udp((EGRESS, number), ("192.0.2.7", 53), b"question");
        let frame = match number % 3 {
            0 => Frame::tcp(("192.0.2.7", 443), (EGRESS, number), 0x12, b""),
            1 => Frame::udp(("192.0.2.7", 53), (EGRESS, number), b"answer"),
            _ => Frame::error("192.0.2.1", EGRESS, 11, &sent.packet()),
        };
        let mut bytes = frame.bytes();
        bytes[..6].copy_from_slice(&mac);
        let (action, after) = runner.run(&bytes, port).unwrap();
        let machine = 100 + (number / 2_048) as u8;
        assert_eq!((action, &after[30..34]), (4, [10, 2, 1, machine].as_slice()), "port {number}");
    }
}

#[test]
fn the_files_of_the_page_are_right() {
    let page = include_str!("../../../../docs/packet-balance.md");
    let blocks: Vec<&str> = page.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(blocks.len(), 3, "the file of a balancer, its egress addresses, and its shield");
    // The others continue the first.
    for text in [blocks[0].to_owned(), blocks[..2].concat(), blocks.concat()] {
        let config: BalanceConfig = toml::from_str(&text).unwrap();
        let tables = config.compile(&mut Numbers::default()).unwrap();
        assert_eq!((config.edges.len(), tables.pools.len()), (2, 1));
    }
}

#[test]
fn packets_for_another_site_go_to_its_balancer() {
    let Some(site) = Site::new(2) else { return };
    // The second machine is the balancer of the other site, and the first one works there.
    done(site.inside("e2", "sysctl").args(["-qw", "net.ipv4.ip_forward=1"]));
    site.json("e1", &["decap", "up", "--dev", "e0", "--from", "10.2.2.2", "--address", EGRESS]);
    done(site.inside("e1", "sysctl").args(["-qw", "net.ipv4.ip_local_port_range=2048 65535"]));
    let there = format!(
        "dev = [\"e0\"]\nsource = [\"10.2.2.2\"]\n[[machine]]\nname = \"m\"\naddress = \"10.2.1.2\"\n\
         [[site]]\nname = \"here\"\nbalancer = \"{SOURCE4}\"\n\
         [[egress]]\naddress = \"{EGRESS}\"\nslice = [{{ number = 5, machine = \"m\" }}]\n"
    );
    let file = site.write("there.toml", &there);
    site.json("e2", &["balance", "up", "--config", file.to_str().unwrap()]);
    let here = site.config("", &[(1, "")])
        + &format!(
            "[[site]]\nname = \"fra\"\nbalancer = \"10.2.2.2\"\n[[egress]]\naddress = \"{EGRESS}\"\nsite = \"fra\"\n"
        );
    site.balance(&here);
    site.start("cl", &["serve", "far", "80", "10.1.0.2"]);
    let args = ["dial", "10.1.0.2", "80", EGRESS, "10240", "12287", "100"];
    assert_eq!(done(&mut site.python("e1", &args)).trim(), "100");
    let counted = |name: &str, reason: &str| {
        let counts = site.json(name, &["balance", "show", "drops", "--all"]);
        let counts = counts.as_array().unwrap().iter().filter(|count| count["reason"] == reason);
        counts.map(|count| count["packets"].as_u64().unwrap()).sum::<u64>()
    };
    let sent = site.count("lb", "site");
    assert!(sent >= 300, "{sent}");
    assert_eq!(counted("e2", "slice"), sent, "the other site has steered all of them");
    // If both say that the other one has the address, a packet does not go around.
    let loops = there.replace("slice = [{ number = 5, machine = \"m\" }]", "site = \"here\"");
    let file = site.write("there.toml", &loops);
    site.json("e2", &["balance", "up", "--config", file.to_str().unwrap()]);
    site.client(&["quiet", EGRESS, "10241", "00"]);
    site.wait_for("its end", || counted("e2", "site-loop") == 1);
    // A balancer takes tunnels only of sites of its file.
    let stranger = there.replace(SOURCE4, "10.9.0.77");
    let file = site.write("there.toml", &stranger);
    site.json("e2", &["balance", "up", "--config", file.to_str().unwrap()]);
    site.client(&["quiet", EGRESS, "10241", "00"]);
    site.wait_for("its end", || counted("e2", "stranger") == 1);
}
