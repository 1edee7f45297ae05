//! Requests while edges die, hang, drain and get a new program.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::{
    fleet::{Bus, ControlHere, DOMAIN, EdgeHere, connect, edges, token},
    harness::{Home, Origin, Program, text, wait_until},
    wrk::Load,
};

/// The tunnels of each present edge, by its name.
fn tunnels(home: &Home) -> Vec<(String, String, u64)> {
    let of = |edge: &Value| {
        let word = |field: &str| edge[field].as_str().unwrap_or_default().to_owned();
        (word("name"), word("state"), edge["tunnels"].as_u64().unwrap_or(0))
    };
    edges(home).iter().map(of).collect()
}

fn held_by(home: &Home) -> Vec<String> {
    let held = tunnels(home).into_iter().filter(|(_, state, tunnels)| state != "down" && *tunnels > 0);
    held.map(|(name, ..)| name).collect()
}

fn state_of(home: &Home, name: &str) -> String {
    tunnels(home).into_iter().find(|(edge, ..)| edge == name).map(|(_, state, _)| state).unwrap_or_default()
}

/// Waits until the edge is known to drain. An edge without a processor for seconds counts as gone until its next
/// report.
fn wait_until_draining(home: &Home, name: &str) {
    wait_until("the drain is known", || {
        let state = state_of(home, name);
        assert_ne!(state, "up");
        (state == "draining").then_some(())
    });
}

/// Waits until all edges know that this many are up.
fn all_up(home: &Home, count: usize) {
    wait_until("all edges are there", || {
        let up = edges(home).iter().filter(|edge| edge["state"] == "up").count();
        (up == count).then_some(())
    });
}

/// How often the connector has printed a line with all of these words.
fn lines_with(connector: &Program, words: &[&str]) -> usize {
    let output = connector.output();
    output.lines().filter(|line| words.iter().all(|word| line.contains(word))).count()
}

#[test]
fn an_edge_that_is_killed_falls_silent_or_is_emptied_costs_others_nothing() {
    let home = Home::new();
    let Some(bus) = Bus::start(&home, "") else { return };
    let _control = ControlHere::start(&home, &bus);
    home.account();
    let mut eu = EdgeHere::join(&home, "eu-1", "eu");
    let (us, asia) = (EdgeHere::join(&home, "us-1", "us"), EdgeHere::join(&home, "asia-1", "asia"));
    all_up(&home, 3);
    let (socket, host) = home.socket(&[]);
    for edge in [&eu, &us, &asia] {
        wait_until("the socket is known", || edge.knows(&home, &host).then_some(()));
    }
    let origin = Origin::start("origin");
    let token = token(&home);
    let connector = connect(&home, &eu, &socket, &origin, &["--token", &token]);
    let first = wait_until("two edges hold it", || {
        let held = held_by(&home);
        (held.len() == 2).then_some(held)
    });
    assert!(first.contains(&"eu-1".to_owned()), "the edge of the connection is one of them: {first:?}");
    let (other, third) = if first.contains(&"us-1".to_owned()) { (&us, "asia-1") } else { (&asia, "us-1") };

    // An edge hangs: clients of the other edge notice nothing, and it is back when it continues.
    let load = Load::start(&home, &host, other.port);
    eu.program.as_ref().unwrap().signal("STOP");
    wait_until("the loss of the silent edge is detected", || (state_of(&home, "eu-1") == "down").then_some(()));
    eu.program.as_ref().unwrap().signal("CONT");
    wait_until("it is there again", || (state_of(&home, "eu-1") == "up").then_some(()));

    // One drains: its tunnel attaches to the third edge before it leaves. Clients of the draining edge are relayed,
    // past the deadline too.
    let emptied = Load::start(&home, &host, eu.port);
    std::thread::sleep(Duration::from_secs(1));
    let output = home.run(&["edge", "drain", "eu-1", "--within", "2s"]);
    assert!(output.status.success() && text(&output.stdout).contains("eu-1 is emptied"), "{output:?}");
    wait_until("the connector leaves", || (lines_with(&connector, &["\"left\"", "eu-1"]) > 0).then_some(()));
    let held = wait_until("its tunnels are elsewhere", || {
        let held = held_by(&home);
        (!held.contains(&"eu-1".to_owned()) && held.len() == 2).then_some(held)
    });
    assert!(held.contains(&third.to_owned()), "{held:?}");
    wait_until("the time is over", || {
        eu.program.as_ref().unwrap().output().contains("this edge is empty").then_some(())
    });
    std::thread::sleep(Duration::from_millis(500));
    let tally = emptied.stop();
    println!("at the edge that was emptied: {tally:?}");
    assert!(tally.requests > 0 && (tally.broken, tally.refused) == (0, 0), "{tally:?}");
    let (status, why) = eu.get(&home, &format!("api.{DOMAIN}"), "/readyz");
    assert!(status == 503 && why.contains("draining"), "{status} {why}");
    wait_until_draining(&home, "eu-1");
    // The drain survives a restart.
    eu.kill();
    eu.start(&home, &[]);
    let (status, _) = eu.get(&home, &format!("api.{DOMAIN}"), "/readyz");
    assert_eq!(status, 503);
    wait_until_draining(&home, "eu-1");
    assert!(home.run(&["edge", "resume", "eu-1"]).status.success());
    wait_until("it serves again", || {
        (eu.get(&home, &format!("api.{DOMAIN}"), "/readyz").0 == 200 && state_of(&home, "eu-1") == "up").then_some(())
    });
    // Its region is that of the service: the connector comes back, and drops a surplus session.
    wait_until("the connector is back in its region", || {
        let held = held_by(&home);
        (held.contains(&"eu-1".to_owned()) && held.len() == 2).then_some(())
    });
    let tally = load.stop();
    println!("by another edge, while one was silent, emptied and restarted: {tally:?}");
    assert_eq!((tally.broken, tally.refused), (0, 0), "{tally:?}");

    // An edge is killed: its tunnel is at another one as soon as the loss is noticed.
    let held = held_by(&home);
    let spare = ["us-1", "asia-1"].into_iter().find(|edge| !held.contains(&(*edge).to_owned())).unwrap();
    let stays = held.iter().find(|edge| *edge != "eu-1").unwrap();
    let stays = if stays == "us-1" { &us } else { &asia };
    let (dying, living) = (Load::start(&home, &host, eu.port), Load::start(&home, &host, stays.port));
    std::thread::sleep(Duration::from_secs(1));
    let before = lines_with(&connector, &["\"attached\"", spare]);
    eu.kill();
    let killed = Instant::now();
    let elsewhere = wait_until("the tunnel is at the spare edge", || {
        (lines_with(&connector, &["\"attached\"", spare]) > before).then(|| killed.elapsed())
    });
    let (dying, living) = (dying.stop(), living.stop());
    println!("back at another edge {elsewhere:?} after the kill; at the dead edge {dying:?}, at the other {living:?}");
    assert!(living.requests > 0 && (living.broken, living.refused) == (0, 0), "{living:?}");
    // A few seconds with a free processor: far less than any timeout.
    assert!(elsewhere < Duration::from_secs(30), "{elsewhere:?}");
}

#[test]
fn an_edge_gets_a_new_process_under_load_without_a_failed_request() {
    let home = Home::new();
    let Some(bus) = Bus::start(&home, "") else { return };
    let _control = ControlHere::start(&home, &bus);
    home.account();
    let mut edge = EdgeHere::join(&home, "eu-1", "eu");
    let watcher = EdgeHere::join(&home, "us-1", "us");
    all_up(&home, 2);
    let (socket, host) = home.socket(&[]);
    wait_until("the socket is known", || edge.knows(&home, &host).then_some(()));
    let origin = Origin::start("origin");
    let token = token(&home);
    let _connector = connect(&home, &edge, &socket, &origin, &["--token", &token, "--redundancy", "1"]);
    wait_until("the tunnel is known", || (held_by(&home) == ["eu-1"]).then_some(()));
    let load = Load::start(&home, &host, edge.port);
    std::thread::sleep(Duration::from_secs(1));
    let refused = home.run(&["edge", "--data", edge.data.to_str().unwrap(), "--listen", "127.0.0.1:0"]);
    let printed = text(&refused.stderr);
    assert!(refused.status.code() == Some(1) && printed.contains("--takeover"), "{printed}");
    let former = edge.program.take().unwrap();
    edge.start(&home, &["--takeover"]);
    // No edge ever counts it as gone or as without tunnels.
    let until = Instant::now() + Duration::from_secs(7);
    while Instant::now() < until {
        let now = tunnels(&home).into_iter().find(|(name, ..)| name == "eu-1").unwrap();
        assert_eq!((now.1.as_str(), now.2), ("up", 1), "after {:?} at most", Duration::from_secs(7));
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(former.ended().code(), Some(0), "{}", former.output());
    let tally = load.stop();
    println!("while a new process took over: {tally:?}");
    assert!(tally.requests > 0 && (tally.broken, tally.refused) == (0, 0), "{tally:?}");
    assert_eq!(edge.get(&home, &host, "/").0, 200);
    drop(watcher);
}

#[test]
fn edges_that_cannot_be_drained_are_reported() {
    let home = Home::new();
    let Some(bus) = Bus::start(&home, "") else { return };
    let _control = ControlHere::start(&home, &bus);
    home.account();
    let mut first = EdgeHere::join(&home, "eu-1", "eu");
    all_up(&home, 1);
    let refused = |args: &[&str], code: i32, words: &str| {
        let output = home.run(&[&["edge"], args].concat());
        let printed = text(&output.stderr);
        assert!(
            output.status.code() == Some(code) && printed.contains(words),
            "{args:?}: {:?} {printed}",
            output.status
        );
    };
    refused(&["drain", "eu-9"], 4, "there is no such edge: eu-9");
    refused(&["resume", "0b7e3c1a-5f0e-4c57-9f63-6a1f0f9e2d11"], 4, "edge");
    refused(&["drain", "eu-1", "--within", "soon"], 2, "expected a time such as");
    refused(&["drain", "eu-1", "--within", "25h"], 2, "at most a day");
    refused(&["drain", "eu-1"], 5, "the last edge that serves");
    assert!(home.run(&["edge", "drain", "eu-1", "--force"]).status.success());
    wait_until("it is emptied all the same", || (state_of(&home, "eu-1") == "draining").then_some(()));
    assert!(home.run(&["edge", "resume", "eu-1"]).status.success());
    first.kill();
    wait_until("the loss of the edge is detected", || (state_of(&home, "eu-1") == "down").then_some(()));
    refused(&["drain", "eu-1"], 5, "is not there now");
}

#[test]
fn a_removed_edge_that_runs_on_keeps_no_clients() {
    let home = Home::new();
    let Some(bus) = Bus::start(&home, "") else { return };
    let mut control = ControlHere::start(&home, &bus);
    home.account();
    let (eu, us) = (EdgeHere::join(&home, "eu-1", "eu"), EdgeHere::join(&home, "us-1", "us"));
    all_up(&home, 2);
    let (socket, host) = home.socket(&[]);
    for edge in [&eu, &us] {
        wait_until("the socket is known", || edge.knows(&home, &host).then_some(()));
    }
    let origin = Origin::start("origin");
    let token = token(&home);
    let _connector = connect(&home, &eu, &socket, &origin, &["--token", &token, "--redundancy", "1"]);
    wait_until("the first edge holds it", || (held_by(&home) == ["eu-1"]).then_some(()));
    // A control that has just started knows the edges from its store.
    control.program = None;
    control.resume(&home);
    all_up(&home, 2);

    assert!(home.run(&["edge", "rm", "eu-1"]).status.success());
    let output = home.run(&["edge", "drain", "us-1"]);
    let printed = text(&output.stderr);
    assert!(output.status.code() == Some(5) && printed.contains("the last edge that serves"), "{printed}");
    let us_has_it = || us.get(&home, &host, "/").0 == 200;
    wait_until("it is reached by the edge that is left", || us_has_it().then_some(()));
    wait_until("that one holds it", || (held_by(&home) == ["us-1"]).then_some(()));
    let shown = home.json(&["tunnel", "ls", &socket]);
    let holders = shown[0]["holders"].as_array().unwrap();
    assert!(holders.len() == 1 && holders[0]["edge"] == "us-1", "{shown}");

    let api = format!("api.{DOMAIN}");
    let (status, body) = eu.get(&home, &api, "/readyz");
    assert!(status == 503 && body.contains("draining"), "{status} {body}");
    let (_, body) = eu.get(&home, &api, "/healthz");
    assert!(body.contains("edge: removed"), "{body}");
    let (status, body) = eu.get(&home, &api, "/v1/info");
    assert!(status == 503 && body.contains("edge-removed") && body.contains("use another edge"), "{status} {body}");
    let log = eu.program.as_ref().unwrap().output();
    assert_eq!(log.matches("this edge was removed from the installation").count(), 1, "{log}");
    // Clients there are served, as at any draining edge.
    assert_eq!(us.get(&home, &api, "/readyz").0, 200);
}
