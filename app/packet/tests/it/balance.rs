//! A balancer before real edges: connections reach them, and stay, whatever becomes of edges and of the balancer.

use std::net::IpAddr;

use sallyport_packet_model::{
    balance::{EdgeState, Member, fill_slots},
    parse::{Flow, flow_hash},
};
use serde_json::Value;

use crate::site::{Site, VIRTUAL4, VIRTUAL6};

/// Connections of a test.
const CONNECTIONS: usize = 400;

fn number(value: &Value) -> usize {
    value.as_u64().unwrap_or_default() as usize
}

#[test]
fn connections_reach_edges_which_answer_themselves() {
    let Some(site) = Site::new(3) else { return };
    site.edges_up(1..=3, &[]);
    // An edge that answers with cookies has no socket of a connection before the first packet that follows.
    crate::rig::done(site.inside("e3", "sysctl").args(["-qw", "net.ipv4.tcp_syncookies=2"]));
    site.balance(&site.config("", &[(1, ""), (2, ""), (3, "weight = 200")]));
    for address in [VIRTUAL4, VIRTUAL6] {
        let mut talker = site.hold(address, 200);
        let edges = talker.hear()["edges"].clone();
        println!("{address}: {edges}");
        assert!((1..=3).all(|edge| number(&edges[Site::edge(edge)]) > 20), "{edges}");
        assert!(number(&edges["e3"]) > number(&edges["e1"]), "weights are shares: {edges}");
        assert_eq!(number(&talker.say("ask")["alive"]), 200);
    }
    // Clients acknowledge what came for a while yet.
    let (mut shown, mut balanced) = (Value::Null, 0);
    site.wait_for("the last packet", || {
        let before = site.count("lb", "balanced") as usize;
        shown = site.json("lb", &["balance", "show", "edges"]);
        balanced = site.count("lb", "balanced") as usize;
        balanced == before
    });
    let sent: usize = shown.as_array().unwrap().iter().map(|edge| number(&edge["packets"])).sum();
    assert_eq!(balanced, sent, "{shown}");
    let came: usize = (1..=3).map(|edge| site.count(&Site::edge(edge), "decapsulated") as usize).sum();
    assert_eq!(came, sent, "all that was sent has come");
    // Answers have their own way: the balancer has seen none of them but as packets of the kernel.
    assert!(site.count("lb", "not-virtual") > 200);
}

/// The first edge of a flow of the client to the virtual address, as the model has it.
fn first_of(port: u16, edges: &[usize]) -> String {
    let member = |number: &usize| Member {
        number: *number as u16,
        address: IpAddr::from([10, 2, *number as u8, 2]),
        weight: 100,
        state: EdgeState::Serving,
    };
    let slots = fill_slots(&edges.iter().map(member).collect::<Vec<_>>());
    let flow = Flow {
        source: [10, 1, 0, 2].into(),
        destination: VIRTUAL4.parse().unwrap(),
        protocol: 6,
        source_port: port,
        destination_port: 80,
    };
    Site::edge(usize::from(slots[flow_hash(&flow, 0) as usize % slots.len()].first))
}

const SEVEN: [(usize, &str); 7] = [(1, ""), (2, ""), (3, ""), (4, ""), (5, ""), (6, ""), (7, "")];
const EIGHT: [(usize, &str); 8] = [(1, ""), (2, ""), (3, ""), (4, ""), (5, ""), (6, ""), (7, ""), (8, "")];

#[test]
fn edges_that_come_and_drain_break_nothing_with_the_second_chance() {
    let Some(site) = Site::new(8) else { return };
    site.edges_up(1..=8, &[]);
    // Without a memory of connections: the second chance alone keeps them.
    site.balance(&site.config("connections = 0", &SEVEN));
    let mut talker = site.hold(VIRTUAL4, CONNECTIONS);
    let before = talker.hear();
    assert_eq!(before["edges"].as_object().unwrap().len(), 7, "{before}");
    site.balance(&site.config("connections = 0", &EIGHT));
    let after = talker.say("ask");
    assert_eq!(number(&after["alive"]), CONNECTIONS, "an edge has come: {after}");
    let opened = talker.say("open 200");
    assert!(number(&opened["e8"]) > 0, "{opened}");
    let moved = site.count("e8", "second-chance");
    assert!(moved > 0, "the new edge has sent on what it does not know");
    // An edge drains by a word, and its connections stay.
    let drained = site.json("lb", &["balance", "drain", "e3"]);
    assert_eq!(drained["drained"], true);
    assert_eq!(number(&talker.say("ask")["alive"]), CONNECTIONS, "an edge drains");
    let opened = talker.say("open 200");
    assert_eq!(opened["e3"], Value::Null, "it gets no new connections: {opened}");
    let shown = site.json("lb", &["balance", "show", "edges"]);
    assert_eq!((&shown[2]["state"], &shown[2]["share"]), (&Value::from("draining"), &Value::from(0.0)), "{shown}");
    // A new start does not forget it, and `undrain` ends it.
    site.balance(&site.config("connections = 0", &EIGHT));
    assert_eq!(site.json("lb", &["balance", "show", "edges"])[2]["state"], "draining");
    site.json("lb", &["balance", "undrain", "e3"]);
    assert_eq!(number(&talker.say("ask")["alive"]), CONNECTIONS);
    assert!(number(&talker.say("open 200")["e3"]) > 0);
}

#[test]
fn without_the_second_chance_only_the_ideal_share_breaks_and_a_memory_keeps_that_too() {
    let Some(site) = Site::new(8) else { return };
    site.edges_up(1..=8, &[]);
    let off = "second_chance = false\nconnections = 0";
    site.balance(&site.config(off, &SEVEN));
    let mut talker = site.hold(VIRTUAL4, CONNECTIONS);
    let held = talker.hear();
    let numbers = |edges: &[(usize, &str)]| edges.iter().map(|edge| edge.0).collect::<Vec<_>>();
    let ports: Vec<u16> = held["ports"].as_object().unwrap().keys().map(|port| port.parse().unwrap()).collect();
    for port in &ports {
        assert_eq!(held["ports"][port.to_string()], first_of(*port, &numbers(&SEVEN)), "the model agrees");
    }
    let wanted = ports.iter().filter(|port| first_of(**port, &numbers(&EIGHT)) == "e8").count();
    site.balance(&site.config(off, &EIGHT));
    let after = talker.say("ask");
    println!("{wanted} of {CONNECTIONS} are the share of the new edge: {after}");
    assert_eq!(number(&after["alive"]), CONNECTIONS - wanted, "{after}");
    assert_eq!(after["broken"].as_object().unwrap().len(), wanted);
    // A memory of connections keeps them all, as long as it is the same balancer.
    let on = "second_chance = false";
    site.balance(&site.config(on, &SEVEN));
    let mut talker = site.hold(VIRTUAL4, CONNECTIONS);
    talker.hear();
    site.balance(&site.config(on, &EIGHT));
    assert_eq!(number(&talker.say("ask")["alive"]), CONNECTIONS);
    assert!(number(&talker.say("open 200")["e8"]) > 0);
}

#[test]
fn a_dead_edge_gets_nothing_at_once_and_comes_back_without_harm() {
    let Some(site) = Site::new(3) else { return };
    for edge in 1..=3 {
        site.edge_up(edge, &[]);
    }
    let servers: Vec<u32> = (1..=3).map(|edge| site.serve(edge)).collect();
    let edges = |state: &str| site.config("", &[(1, ""), (2, &format!("state = \"{state}\"")), (3, "")]);
    site.keep_in_step(&edges("serving"));
    let mut talker = site.hold(VIRTUAL4, 200);
    let held = talker.hear()["edges"].clone();
    site.end(servers[1]);
    site.write("balance.toml", &edges("down"));
    site.wait_for("down", || site.json("lb", &["balance", "show", "edges"])[1]["state"] == "down");
    let opened = talker.say("open 100");
    assert_eq!(opened["e2"], Value::Null, "{opened}");
    assert_eq!(number(&opened["e1"]) + number(&opened["e3"]), 100);
    let after = talker.say("ask");
    assert_eq!(number(&after["alive"]), 200 - number(&held["e2"]), "only its own connections end: {after}");
    // While the edge was away, others have taken its slots: their connections stay when the edge is back.
    let mut second = site.hold(VIRTUAL4, 200);
    second.hear();
    site.serve(2);
    site.write("balance.toml", &edges("serving"));
    site.wait_for("serving", || site.json("lb", &["balance", "show", "edges"])[1]["state"] == "serving");
    assert!(number(&second.say("open 100")["e2"]) > 0);
    assert_eq!(number(&second.say("ask")["alive"]), 200);
    // Health that flaps harms nobody: each turn is a change of the file.
    for turn in 0..6 {
        let state = if turn % 2 == 0 { "draining" } else { "serving" };
        site.write("balance.toml", &edges(state));
        site.wait_for(state, || site.json("lb", &["balance", "show", "edges"])[1]["state"] == state);
    }
    assert_eq!(number(&second.say("ask")["alive"]), 200);
}

#[test]
fn an_upgrade_in_place_and_a_killed_process_lose_no_packet() {
    let Some(site) = Site::new(2) else { return };
    site.edges_up(1..=2, &[]);
    let text = site.config("", &[(1, ""), (2, "")]);
    let run = site.keep_in_step(&text);
    for edge in 1..=2 {
        site.start(&Site::edge(edge), &["count", VIRTUAL4]);
    }
    let stop = site.path("stop");
    let mut windows = site.python("cl", &["windows", VIRTUAL4, "100000", stop.to_str().unwrap()]);
    let windows = windows.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    // The process dies, and the state is found again by the next command.
    site.end(run);
    site.json("lb", &["balance", "drain", "e2"]);
    let shown = site.json("lb", &["balance", "show", "edges"]);
    assert_eq!(shown[1]["state"], "draining", "{shown}");
    for turn in 0..3 {
        let head = format!("connections = {}", 100_000 + turn % 2);
        let view = site.balance(&site.config(&head, &[(1, ""), (2, "")]));
        assert_eq!(view["replaced"], serde_json::json!(["b0", "b1", "b2"]), "{view}");
        let edge = site.edge_up(1 + turn % 2, &[]);
        assert_eq!(edge["replaced"], serde_json::json!(["e0"]), "{edge}");
    }
    site.write("stop", "");
    let ended = windows.wait_with_output().unwrap();
    assert!(ended.status.success(), "{}", crate::rig::text(&ended.stderr));
    let sent: u64 = crate::rig::text(&ended.stdout).trim().parse().unwrap();
    println!("{sent} packets, none lost");
    assert!(sent >= 100_000);
}

#[test]
fn a_packet_that_does_not_fit_is_answered_and_answers_of_others_reach_the_edge() {
    let Some(site) = Site::new(2) else { return };
    site.edges_up(1..=2, &[]);
    for edge in 1..=2 {
        site.batch("lb", &format!("link set b{edge} mtu 1500\n"));
    }
    site.balance(&site.config("", &[(1, ""), (2, "")]));
    // The kernel learns what fits from the balancer's answer: 1,500 without 40 bytes of outer headers.
    for (address, overhead) in [(VIRTUAL4, 40), (VIRTUAL6, 40)] {
        let header = if address == VIRTUAL4 { 28 } else { 48 };
        let size = 1500 - overhead - header;
        let send = |size: u16| {
            let data = "00".repeat(usize::from(size));
            site.client(&["datagram", address, "80", &data])
        };
        assert!(send(size).contains("\"e"), "{address}: the longest that fits");
        let before = site.count("lb", "too-big-sent");
        let learned = site.client(&["learn", address, "80", &(size + 1).to_string()]);
        assert_eq!(learned, (1500 - overhead).to_string(), "{address}");
        assert_eq!(site.count("lb", "too-big-sent"), before + 1);
    }
    // A host of the client's path says that an answer was too big: that is for the edge of the connection.
    let mut talker = site.hold(VIRTUAL4, 40);
    let held = talker.hear();
    let received = |edge: usize| {
        let shown = crate::rig::done(site.inside(&Site::edge(edge), "cat").arg("/proc/net/snmp"));
        let mut lines = shown.lines().filter(|line| line.starts_with("Icmp: "));
        let (names, values) = (lines.next().unwrap().split(' '), lines.next().unwrap().split(' '));
        let found = names.zip(values).find(|(name, _)| *name == "InDestUnreachs");
        found.unwrap().1.parse::<usize>().unwrap()
    };
    let before = [received(1), received(2)];
    for port in held["ports"].as_object().unwrap().keys() {
        site.client(&["too-big", "c0", &mac(site.link("lb", "b0").1), VIRTUAL4, port]);
    }
    for edge in 1..=2 {
        let wanted = before[edge - 1] + number(&held["edges"][Site::edge(edge)]);
        site.wait_for("each error at its edge", || received(edge) == wanted);
    }
    assert_eq!(number(&talker.say("ask")["alive"]), 40);
}

fn mac(bytes: [u8; 6]) -> String {
    bytes.map(|byte| format!("{byte:02x}")).concat()
}

#[test]
fn fragments_of_two_addresses_meet_at_one_edge() {
    let Some(site) = Site::new(2) else { return };
    site.edges_up(1..=2, &[]);
    site.balance(&site.config("", &[(1, ""), (2, "")]));
    let data = "00".repeat(4000);
    for address in [VIRTUAL4, VIRTUAL6] {
        let names: Value = serde_json::from_str(&site.client(&["datagram", address, "80", &data, "20"])).unwrap();
        assert_eq!(names.as_object().unwrap().len(), 1, "{address}: {names}");
    }
    assert!(site.count("lb", "balanced-pair") >= 120);
    site.balance(&site.config("fragments = \"drop\"", &[(1, ""), (2, "")]));
    let sent = site.client(&["quiet", VIRTUAL4, "80", &data]);
    assert_eq!(sent, "sent");
    site.wait_for("drops", || site.count("lb", "fragment-dropped") == 3);
}

#[test]
fn quic_packets_go_to_the_server_that_their_id_names() {
    let Some(site) = Site::new(3) else { return };
    site.edges_up(1..=3, &[]);
    let edges = [(1, "server = 11"), (2, "server = 12"), (3, "server = 13")];
    site.balance(&site.config("", &edges));
    let edges_of = |data: &str| -> Value {
        serde_json::from_str(&site.client(&["datagram", VIRTUAL4, "443", data, "24"])).unwrap()
    };
    for edge in 1..=3 {
        site.start(&Site::edge(edge), &["serve", &Site::edge(edge), "443", VIRTUAL4]);
    }
    // An id of 13 bytes: configuration 0 and 12 more, the number of the server.
    for (edge, server) in [(1, "000b"), (2, "000c"), (3, "000d")] {
        let id = format!("0c{server}0102030405060708090a");
        let all = serde_json::json!({ Site::edge(edge): 24 });
        assert_eq!(edges_of(&format!("40{id}aabbcc")), all, "a short header");
        assert_eq!(edges_of(&format!("e0000000010d{id}00aabb")), all, "a long header");
    }
    let random = edges_of("c0000000010899aabbccddeeff0000aabbccddeeff");
    assert!(random.as_object().unwrap().len() > 1, "an id of a client says nothing: {random}");
    let foreign = edges_of("4020000b0102030405060708090aaabbcc");
    assert!(foreign.as_object().unwrap().len() > 1, "another configuration: {foreign}");
    // A server that is down has none of its packets.
    let edges = [(1, "server = 11"), (2, "server = 12\nstate = \"down\""), (3, "server = 13")];
    site.balance(&site.config("", &edges));
    let others = edges_of("400c000c0102030405060708090aaabbcc");
    assert_eq!(others["e2"], Value::Null, "{others}");
}

#[test]
fn every_kind_of_tunnel_carries_both_families() {
    let Some(site) = Site::new(2) else { return };
    site.resolve();
    site.edges_up(1..=2, &[]);
    let ipip = "encapsulation = \"ipip\"";
    for (head, is_v6) in [(ipip, false), (ipip, true), ("", true)] {
        let mut text = site.config(head, &[(1, ""), (2, "")]);
        if is_v6 {
            text = text.replace("\"10.2.1.2\"", "\"fd02:1::2\"").replace("\"10.2.2.2\"", "\"fd02:2::2\"");
        }
        site.balance(&text);
        for address in [VIRTUAL4, VIRTUAL6] {
            let before = site.count("lb", "balanced");
            let mut talker = site.hold(address, 20);
            let held = talker.hear();
            assert_eq!(held["edges"].as_object().unwrap().len(), 2, "{head} {is_v6} {address}: {held}");
            assert!(site.count("lb", "balanced") > before + 40);
        }
    }
    assert_eq!(site.count("lb", "no-route") + site.count("e1", "tunnel") + site.count("e2", "tunnel"), 0);
}
