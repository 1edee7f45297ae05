//! Regional dials: edges in two regions, with real servers as origins that both can dial.

use std::{collections::HashMap, path::Path};

use crate::{
    direct::named,
    fleet::{Bus, ControlHere, EdgeHere, edges},
    harness::{Home, text, wait_until},
    tcp::free_port,
};

const LOOPBACK: [&str; 2] = ["--direct-origins", "127.0.0.0/8"];

fn join(home: &Home, name: &str, region: &str) -> EdgeHere {
    let token = home.json(&["edge", "token", "create", "--name", name]);
    let mut edge = EdgeHere::new(home, name, "127.0.0.1");
    let join = ["--join", token["token"].as_str().unwrap(), "--region", region];
    edge.start(home, &[&join[..], &LOOPBACK].concat());
    edge
}

/// How many of twenty requests at this edge each origin served.
fn twenty(home: &Home, edge: &EdgeHere, host: &str) -> HashMap<String, usize> {
    let mut counts = HashMap::new();
    for _ in 0..20 {
        let (status, body) = edge.get(home, host, "/");
        assert_eq!(status, 200, "{body}");
        *counts.entry(body).or_insert(0) += 1;
    }
    counts
}

/// Whether one origin served this many, give or take one, and the other one the rest.
fn is_split(counts: &HashMap<String, usize>, of: &str, wanted: usize) -> bool {
    counts.get(of).copied().unwrap_or(0).abs_diff(wanted) <= usize::from(!wanted.is_multiple_of(20))
}

#[test]
fn traffic_of_a_region_is_shared_by_its_dial() {
    let home = Home::new();
    let Some(bus) = Bus::start(&home, "") else { return };
    let _control = ControlHere::start_with(&home, &bus, &LOOPBACK);
    home.account();
    let (eu, us) = (join(&home, "eu-1", "eu"), join(&home, "us-1", "us"));
    wait_until("both edges are there", || edges(&home).iter().all(|edge| edge["state"] == "up").then_some(()));
    let (socket, host) = home.socket(&[]);
    let dir = |name: &str| home.dir.path().join(name);
    let (at_eu, at_us) = (free_port(), free_port());
    let serve = |name: &str, port| {
        std::fs::create_dir_all(dir(name)).unwrap();
        named(Path::new(&dir(name)), port, name)
    };
    let Some(_in_eu) = serve("in-eu", at_eu) else { return };
    let Some(in_us) = serve("in-us", at_us) else { return };
    for (port, region) in [(at_eu, "eu"), (at_us, "us")] {
        home.json(&["socket", "origin", "add", &socket, &format!("127.0.0.1:{port}"), "--region", region]);
    }
    let knows_both = |edge: &EdgeHere| edge.get(&home, &host, "/").0 == 200;
    wait_until("the socket is known at both", || (knows_both(&eu) && knows_both(&us)).then_some(()));
    // A change applies as soon as it has reached the edge.
    let becomes = |edge: &EdgeHere, of: &str, wanted: usize| {
        let mut last = HashMap::new();
        wait_until(&format!("{wanted} of 20 at {of}"), || {
            last = twenty(&home, edge, &host);
            eprintln!("{of} wanted {wanted}: {last:?}");
            is_split(&last, of, wanted).then_some(())
        });
    };
    becomes(&eu, "in-eu", 20);
    becomes(&us, "in-us", 20);
    let dial = |dials: &str| home.run(&["socket", "edit", &socket, "--dial", dials]);
    assert!(dial("eu=20").status.success());
    becomes(&eu, "in-eu", 4);
    becomes(&us, "in-us", 20);
    assert!(dial("eu=50,us=50").status.success());
    becomes(&eu, "in-eu", 10);
    becomes(&us, "in-us", 10);
    assert!(dial("eu=0,us=off").status.success());
    becomes(&eu, "in-us", 20);
    becomes(&us, "in-us", 20);
    let metrics = eu.get(&home, "api.lab.localhost", "/metrics").1;
    assert!(metrics.contains(r#"sallyport_edge_region_flows_total{region="us",why="dialed"}"#), "{metrics}");

    // The only open region is lost: the request is served by the closed one.
    drop(in_us);
    assert_eq!(twenty(&home, &eu, &host), HashMap::from([("in-eu".to_owned(), 20)]));
    assert_eq!(twenty(&home, &us, &host), HashMap::from([("in-eu".to_owned(), 20)]));

    // An edge cannot be an origin.
    let refused = home.run(&["socket", "origin", "add", &socket, &format!("127.0.0.1:{}", us.port)]);
    let printed = text(&refused.stderr);
    assert!(refused.status.code() == Some(5) && printed.contains("where the edge us-1 serves clients"), "{printed}");
    let ended = home.json(&["flow", "log", "--socket", &socket]);
    let direct = |one: &serde_json::Value| one["direct_origin_address"] == format!("127.0.0.1:{at_eu}");
    assert!(ended.as_array().unwrap().iter().any(direct), "{ended}");

    let refused = dial("eu=0,us=0");
    assert!(
        refused.status.code() == Some(5) && text(&refused.stderr).contains("edges disregard dials that leave nothing")
    );
    let noted = dial("mars=50");
    let printed = text(&noted.stdout) + &text(&noted.stderr);
    assert!(noted.status.success() && printed.contains("no edge is in the region mars now"), "{printed}");
}
