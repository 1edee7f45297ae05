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
    site.balance(&site.config("", &[(1, ""), (2, ""), (3, "weight = 200")]));
    for address in [VIRTUAL4, VIRTUAL6] {
        let mut talker = site.hold(address, 200);
        let edges = talker.hear()["edges"].clone();
        println!("{address}: {edges}");
        assert!((1..=3).all(|edge| number(&edges[Site::edge(edge)]) > 20), "{edges}");
        assert!(number(&edges["e3"]) > number(&edges["e1"]), "weights are shares: {edges}");
        assert_eq!(number(&talker.say("ask")["alive"]), 200);
    }
    let shown = site.json("lb", &["balance", "show", "edges"]);
    let sent: usize = shown.as_array().unwrap().iter().map(|edge| number(&edge["packets"])).sum();
    let balanced = site.count("lb", "balanced") as usize;
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
