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
