//! What edges measure: the ways to origins, to each other, and to hosts that they are told.

use std::net::TcpListener;

use serde_json::{Value, json};

use crate::{
    fleet::{Bus, ControlHere, EdgeHere, connect, edges, token},
    harness::{Home, Origin, text, wait_until},
    networks::{Sockets, must, run_within},
};

/// The ways with these values.
fn found(ways: &Value, wanted: &Value) -> Vec<Value> {
    let has = |way: &&Value| wanted.as_object().unwrap().iter().all(|(name, value)| way[name] == *value);
    ways.as_array().unwrap().iter().filter(has).cloned().collect()
}

/// Waits for the one way with these values that was measured.
fn measured(home: &Home, wanted: &Value) -> Value {
    wait_until("a measured way", || {
        let ways = found(&home.json(&["edge", "ways"]), wanted);
        assert!(ways.len() < 2, "{ways:?}");
        ways.into_iter().find(|way| way["min_ms"].is_number())
    })
}

/// Asserts that the times of a way are in order.
fn assert_sound(way: &Value) {
    let time = |name: &str| way[name].as_f64().unwrap_or_else(|| panic!("{name}: {way}"));
    assert!(
        0.0 < time("min_ms") && time("min_ms") <= time("median_ms") && time("median_ms") <= time("max_ms"),
        "{way}"
    );
    assert!(time("floor_ms") <= time("max_ms") && time("max_ms") < 2_000.0, "{way}");
}

#[test]
fn a_machine_measures_its_origins_and_what_it_is_told() {
    let home = Home::new();
    let up = home.up(&["--direct-origins", "127.0.0.1", "--measure-every", "1s"]);
    home.account();
    let (direct, behind) = (Origin::start("direct"), Origin::start("behind"));
    let (socket, _) = home.socket(&[]);
    let address = direct.address.to_string();
    home.json(&["socket", "origin", "add", &socket, &address, "--max-rps", "50"]);
    let nowhere = "nosuch.invalid:80";
    home.json(&["socket", "origin", "add", &socket, nowhere]);
    let (other, _) = home.socket(&[]);
    let connector = home.connector(&other, behind.address, &[]);

    let way = measured(&home, &json!({"from": "edge", "to": address, "kind": "origin", "by": "tcp"}));
    assert_sound(&way);
    assert_eq!(way["recent_lost"], 0, "{way}");
    let link = measured(&home, &json!({"from": "edge", "kind": "origin", "by": "link"}));
    assert_sound(&link);
    assert!(link["to"].as_str().unwrap().contains('/'), "{link}");
    // What cannot be sent is not lost.
    let unsent = wait_until("the origin without an address", || {
        found(&home.json(&["edge", "ways"]), &json!({"to": nowhere})).into_iter().find(|way| way["failure"].is_string())
    });
    let why = unsent["failure"].as_str().unwrap();
    assert!(unsent["sent"] == 0 && why.contains("the name nosuch.invalid has no address"), "{unsent}");
    // No request went to the origin, and the plan knows the way all the same.
    assert_eq!(direct.count(), 0);
    wait_until("the round trip in the plan", || {
        let plan = home.json(&["socket", "plan", &socket]);
        let shares = plan["edges"][0]["shares"].as_array()?.clone();
        shares.iter().find_map(|share| share["round_trip_ms"].as_f64()).filter(|ms| *ms > 0.0)
    });

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let open = format!("localhost:{}", listener.local_addr().unwrap().port());
    let told = home.json(&["edge", "ways", "edge", "--to", &open]);
    assert_eq!(told.as_array().unwrap().len(), 1, "{told}");
    assert_sound(&told[0]);
    assert_eq!((&told[0]["to"], &told[0]["kind"], &told[0]["by"]), (&json!(open), &json!("host"), &json!("tcp")));
    assert!(told[0]["recent"].as_u64().unwrap() >= 3 && told[0]["recent_lost"] == 0, "{told}");
    let table = text(&home.run(&["edge", "ways"]).stdout);
    let head: Vec<_> = table.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(head, ["FROM", "TO", "KIND", "BY", "MIN", "MEDIAN", "MAX", "LOST"]);
    assert!(table.lines().any(|line| line.contains(&open) && line.ends_with("0%")), "{table}");

    // An origin that is gone is forgotten, and so is a connector's tunnel.
    drop(connector);
    home.json(&["socket", "origin", "rm", &socket, &address]);
    wait_until("origins to be forgotten", || {
        let ways = home.json(&["edge", "ways"]);
        (found(&ways, &json!({"to": address})).is_empty() && found(&ways, &json!({"by": "link"})).is_empty())
            .then_some(())
    });
    let metrics = up.curl("api.localhost", "/metrics", &[]).body;
    for series in [
        "sallyport_edge_way_probes_total{kind=\"origin\",by=\"tcp\",outcome=\"answered\"} ",
        "sallyport_edge_way_probes_total{kind=\"origin\",by=\"tcp\",outcome=\"not-sent\"} ",
        "sallyport_edge_way_probes_total{kind=\"host\",by=\"tcp\",outcome=\"answered\"} ",
    ] {
        let count = metrics.lines().find_map(|line| line.strip_prefix(series)?.parse::<u64>().ok());
        assert!(count.is_some_and(|count| count >= 1), "{series}: {metrics}");
    }
}

#[test]
fn bad_input_gets_one_sentence() {
    let home = Home::new();
    let _up = home.up(&["--measure-every", "0s"]);
    home.account();
    let long = "a".repeat(254);
    let longest = "a".repeat(100_000);
    for (args, sentence) in [
        (&["mars-1"][..], "there is no edge \"mars-1\""),
        (&["mars-1", "--to", "127.0.0.1:80"], "there is no edge \"mars-1\""),
        (&["--to", ""], "the host is empty"),
        (&["--to", &long], "a host has at most 253 characters"),
        (&["--to", &longest], "a host has at most 253 characters"),
        (&["--to", "224.0.0.1"], "224.0.0.1 is not the address of one host"),
        (&["--to", "[ff02::1]:80"], "ff02::1 is not the address of one host"),
        (&["--to", "0.0.0.0"], "0.0.0.0 is not the address of one host"),
        (&["--to", "127.0.0.1:0"], "with a port from 1 to 65535"),
        (&["--to", "127.0.0.1:65536"], "with a port from 1 to 65535"),
        (&["--to", "http://a"], "expected HOST, HOST:PORT or [ADDRESS]:PORT"),
        (&["--to", "a\u{1b}[2Jb"], "expected HOST, HOST:PORT or [ADDRESS]:PORT"),
    ] {
        let output = home.run(&[&["edge", "ways"], args].concat());
        let stderr = text(&output.stderr);
        assert!(!output.status.success() && stderr.contains(sentence), "{args:?}: {stderr}");
        assert!(output.stdout.is_empty() && !stderr.contains('\u{1b}'), "{args:?}: {stderr}");
    }
    // A name without an address is no reason to fail: the figures say so.
    let output = home.run(&["edge", "ways", "--to", "nosuch.invalid:80", "-o", "json"]);
    let stderr = text(&output.stderr);
    assert!(output.status.success() && stderr.contains("edge: the name nosuch.invalid has no address"), "{stderr}");
    let ways: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&ways[0]["sent"], &ways[0]["recent"]), (&json!(0), &json!(0)));
    let output = home.run(&["up", "--measure-every", "10ms"]);
    assert!(text(&output.stderr).contains("expected a second or more, or 0s for never"), "{output:?}");
}

#[test]
fn echo_requests_are_sent_where_that_is_allowed() {
    run_within(Sockets::Ping, &[], "measuring::within_an_open_machine");
    let nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];
    run_within(Sockets::Raw, &nobody, "measuring::within_a_closed_machine");
}

#[test]
#[ignore = "runs within the network of echo_requests_are_sent_where_that_is_allowed"]
fn within_an_open_machine() {
    let home = Home::new();
    let _up = home.up(&[]);
    home.account();
    let told = home.json(&["edge", "ways", "--to", "127.0.0.1"]);
    assert_eq!((&told[0]["by"], &told[0]["recent_lost"]), (&json!("icmp"), &json!(0)), "{told}");
    assert_sound(&told[0]);
    assert!(told[0]["recent"].as_u64().unwrap() >= 3, "{told}");
    // Nobody answers here.
    must("ip link add void type veth peer name hole; ip link set hole up; ip addr add 10.98.0.1/24 dev void");
    must("ip link set void up; ip neigh add 10.98.0.2 lladdr 02:00:00:00:00:01 dev void");
    for (host, by) in [("10.98.0.2", "icmp"), ("10.98.0.2:80", "tcp")] {
        let output = home.run(&["edge", "ways", "--to", host]);
        let (table, stderr) = (text(&output.stdout), text(&output.stderr));
        let line: Vec<_> = table.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(line, ["edge", host, "host", by, "-", "-", "-", "100%"], "{table}");
        assert!(stderr.contains(&format!("edge: {host} did not answer within 2000 ms")), "{stderr}");
    }
}

#[test]
#[ignore = "runs within the network of echo_requests_are_sent_where_that_is_allowed"]
fn within_a_closed_machine() {
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    let output = home.run(&["edge", "ways", "--to", "127.0.0.1"]);
    let stderr = text(&output.stderr);
    assert_eq!(stderr.matches("echo requests are not allowed here").count(), 1, "{stderr}");
    assert!(output.status.success() && text(&output.stdout).contains("127.0.0.1"), "{output:?}");
    let told = home.json(&["edge", "ways", "--to", &format!("127.0.0.1:{}", up.port)]);
    assert_sound(&told[0]);
}

#[test]
fn edges_measure_one_another_and_what_they_are_told() {
    let home = Home::new();
    let Some(bus) = Bus::start(&home, "") else { return };
    let _control = ControlHere::start(&home, &bus);
    home.account();
    let each_second = ["--measure-every", "1s"];
    let (a, mut b) = (
        EdgeHere::join_with(&home, "eu-1", "eu", "127.0.0.1", &each_second),
        EdgeHere::join_with(&home, "us-1", "us", "127.0.0.2", &each_second),
    );
    wait_until("both edges are there", || {
        let edges = edges(&home);
        (edges.len() == 2 && edges.iter().all(|edge| edge["state"] == "up")).then_some(())
    });
    for (from, to) in [("eu-1", "us-1"), ("us-1", "eu-1")] {
        let way = measured(&home, &json!({"from": from, "to": to, "kind": "edge", "by": "tcp"}));
        assert_sound(&way);
    }
    // A relayed request makes a link, which measures too.
    let (socket, host) = home.socket(&[]);
    let (origin, token) = (Origin::start("origin"), token(&home));
    let _connector = connect(&home, &a, &socket, &origin, &["--token", &token, "--redundancy", "1"]);
    wait_until("a relayed request", || (b.get(&home, &host, "/").0 == 200).then_some(()));
    assert_sound(&measured(&home, &json!({"from": "us-1", "to": "eu-1", "kind": "edge", "by": "link"})));

    let told = format!("127.0.0.1:{}", origin.address.port());
    let both = home.json(&["edge", "ways", "--to", &told]);
    let names: Vec<_> = both.as_array().unwrap().iter().map(|way| way["from"].as_str().unwrap()).collect();
    assert_eq!(names, ["eu-1", "us-1"], "{both}");
    both.as_array().unwrap().iter().for_each(assert_sound);
    let one = format!("localhost:{}", origin.address.port());
    home.json(&["edge", "ways", "us-1", "--to", &one]);
    let all = found(&home.json(&["edge", "ways"]), &json!({"to": one}));
    assert!(all.len() == 1 && all[0]["from"] == "us-1", "{all:?}");
    let of_one = home.json(&["edge", "ways", "eu-1"]);
    assert!(of_one.as_array().unwrap().iter().all(|way| way["from"] == "eu-1"), "{of_one}");
    let unknown = home.run(&["edge", "ways", "edge"]);
    assert!(text(&unknown.stderr).contains("there is no edge \"edge\""), "{unknown:?}");

    // A lost edge is named, and its way forgotten by the others.
    b.kill();
    wait_until("the loss is noticed", || {
        let gone = home.run(&["edge", "ways", "us-1"]);
        text(&gone.stderr).contains("us-1 did not respond").then_some(())
    });
    wait_until("the way is forgotten", || {
        found(&home.json(&["edge", "ways"]), &json!({"to": "us-1"})).is_empty().then_some(())
    });
}
