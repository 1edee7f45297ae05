//! What edges know and record, as control shows it, with real processes and a real bus.

use std::{
    process::{Child, Command, Stdio},
    time::Instant,
};

use serde_json::Value;

use crate::{
    fleet::{Bus, ControlHere, DOMAIN, EdgeHere, connect, edges, token},
    harness::{Home, Origin, text, wait_until},
};

/// A client with a lasting connection: it reads lines of a slow answer.
fn stays(home: &Home, edge: &EdgeHere, host: &str) -> Child {
    let url = format!("https://{host}:{}/trickle/6000", edge.port);
    let to = format!("{host}:{}:{}:{}", edge.port, edge.ip, edge.port);
    let mut command = Command::new("curl");
    command.args(["-sS", "--http1.1", "--connect-to", &to, "--cacert"]).arg(home.data().join("ca.pem")).arg(url);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn end(mut child: Child) {
    drop(child.kill());
    drop(child.wait());
}

/// The running flows by edge, and the other output.
fn flows(home: &Home) -> (Vec<(String, String)>, String) {
    let output = home.run(&["flow", "ls", "-o", "json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let flows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let mut found: Vec<_> = flows.iter().map(|flow| (word(flow, "edge"), word(flow, "id"))).collect();
    found.sort();
    (found, text(&output.stderr))
}

fn word(value: &Value, name: &str) -> String {
    value[name].as_str().unwrap_or_default().to_owned()
}

fn all_up(home: &Home, count: usize) {
    wait_until("all edges are there", || {
        let edges = edges(home);
        (edges.len() == count && edges.iter().all(|edge| edge["state"] == "up")).then_some(())
    });
}

/// Runs commands as a viewer.
fn as_viewer(home: &Home, control: &ControlHere) -> impl Fn(&[&str]) -> (Option<i32>, String) {
    let viewer = Home::new();
    let (api, ca) = (format!("https://api.{DOMAIN}:{}", control.ports.0), home.data().join("ca.pem"));
    let run = move |args: &[&str]| {
        let output = viewer.command(args).env("SALLYPORT_API", &api).env("SALLYPORT_CA", &ca).output().unwrap();
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    };
    assert_eq!(run(&["account", "create", "--name", "Eve", "--email", "eve@example.com"]).0, Some(0));
    assert_eq!(run(&["login", "--email", "eve@example.com"]).0, Some(0));
    assert!(home.run(&["organisation", "rename", "House"]).status.success());
    let invited = home.json(&["member", "add", "eve@example.com", "--role", "viewer"]);
    assert_eq!(run(&["invitation", "accept", invited["code"].as_str().unwrap()]).0, Some(0));
    assert_eq!(run(&["organisation", "use", "House"]).0, Some(0));
    run
}

#[test]
fn flows_and_counts_of_all_edges_are_seen_and_cut_at_control() {
    let home = Home::new();
    let Some(bus) = Bus::start(&home, "") else { return };
    let control = ControlHere::start(&home, &bus);
    home.account();
    let (a, b) = (EdgeHere::join(&home, "eu-1", "eu"), EdgeHere::join(&home, "us-1", "us"));
    all_up(&home, 2);
    let (web, host) = home.socket(&[]);
    let made = home.json(&["socket", "create", "--name", "raw", "--type", "tls"]);
    let (raw, raw_host) = (word(&made, "id"), word(&made, "dns_name"));
    wait_until("the sockets are known", || (a.knows(&home, &host) && b.knows(&home, &host)).then_some(()));
    let (origin, token) = (Origin::start("origin"), token(&home));
    let token = ["--token", token.as_str()];
    let _connectors = [
        connect(&home, &a, &web, &origin, &token),
        connect(&home, &b, &web, &origin, &token),
        connect(&home, &a, &raw, &origin, &token),
        connect(&home, &b, &raw, &origin, &token),
    ];

    // Flows of both edges are listed, and one is ended at its edge.
    let (at_a, mut at_b) = (stays(&home, &a, &raw_host), stays(&home, &b, &raw_host));
    let both = wait_until("both flows are seen", || {
        let (found, _) = flows(&home);
        (found.len() == 2).then_some(found)
    });
    assert_eq!((both[0].0.as_str(), both[1].0.as_str()), ("eu-1", "us-1"));
    let cut = both[1].1.as_str();
    assert!(home.run(&["flow", "kill", cut]).status.success());
    let status = wait_until("the client sees its flow end", || at_b.try_wait().unwrap());
    assert!(!status.success(), "a client must not take it for complete");
    wait_until("one is left", || (flows(&home).0 == both[..1]).then_some(()));
    assert_eq!(home.run(&["flow", "kill", cut]).status.code(), Some(4));

    // Counts add up over edges.
    for (edge, count) in [(&a, 3), (&b, 2)] {
        (0..count).for_each(|_| assert_eq!(edge.get(&home, &host, "/bytes/1000").0, 200));
    }
    let stats = wait_until("all is counted", || {
        let stats = home.json(&["socket", "stats", &host]);
        let counted: u64 = stats["edges"].as_array()?.iter().filter_map(|edge| edge["requests"]["2xx"].as_u64()).sum();
        (counted >= 5 && counted == stats["requests"]["2xx"].as_u64()?).then_some(stats)
    });
    let of = |name: &str| stats["edges"].as_array().unwrap().iter().find(|edge| edge["edge"] == name).unwrap().clone();
    assert_eq!(
        (of("eu-1")["requests"]["2xx"].as_u64(), of("us-1")["requests"]["2xx"].as_u64()),
        (Some(3), Some(2)),
        "{stats}"
    );
    let sent = |counted: &Value| counted["bytes_out"].as_u64().unwrap();
    assert_eq!(sent(&stats), sent(&of("eu-1")) + sent(&of("us-1")), "{stats}");
    assert!(stats["duration"]["p99_ms"].as_f64() >= stats["duration"]["p50_ms"].as_f64() && stats["since"].is_string());
    assert!(stats["first_byte"]["p50_ms"].as_f64().unwrap() > 0.0 && stats["per_second"].as_f64().unwrap() > 0.0);
    let tunnels = stats["origins"].as_array().unwrap();
    let by_tunnel: u64 = tunnels.iter().filter_map(|one| one["uses"].as_u64()).sum();
    assert_eq!((by_tunnel, tunnels.iter().map(sent).sum::<u64>()), (5, 5_000), "{stats}");
    assert_eq!(stats["regions"].as_array().map(Vec::len), Some(2), "{stats}");

    // Tunnels and edges show their state in 80 columns.
    wait_until("round trips are known", || {
        let held = home.json(&["tunnel", "ls", &host]);
        let is_listed =
            |one: &Value| one["round_trip_ms"].is_number() && one["holders"].as_array().is_some_and(|h| !h.is_empty());
        held.as_array()?.iter().all(is_listed).then_some(())
    });
    let at_edges = edges(&home);
    assert!(at_edges.iter().all(|edge| edge["flows"].is_u64() && edge["memory_bytes"].as_u64() > Some(1 << 20)));
    assert!(at_edges.iter().all(|edge| edge["round_trip_ms"].is_number() && edge["heard_at"].is_string()));
    for args in [["tunnel", "ls", host.as_str()].as_slice(), &["edge", "ls"]] {
        let narrow = text(&home.run(args).stdout);
        assert!(narrow.contains("us-1") && narrow.lines().all(|line| line.chars().count() <= 80), "{narrow}");
        let wide = text(&home.run(&[args, &["-o", "wide"]].concat()).stdout);
        assert!(wide.contains("127.0.0.1:") && wide.lines().count() == narrow.lines().count(), "{wide}");
    }
    wait_until("people are shown the same", || {
        let shown = text(&home.run(&["socket", "stats", &host]).stdout);
        (shown.contains("2xx 5") && shown.contains("us-1")).then_some(())
    });

    // Ended flows: all of them, in order; viewers see no addresses. A busy edge may not answer in its second.
    let bytes = wait_until("both list the flows that ended recently", || {
        let log = home.json(&["flow", "log", "--socket", &host]);
        let bytes = log.as_array()?.iter().filter(|one| one["path"] == "/bytes/1000").cloned();
        Some(bytes.collect::<Vec<_>>()).filter(|bytes| bytes.len() >= 5)
    });
    assert!(bytes.len() == 5 && bytes.iter().all(|one| one["client"].is_string() && one["status"] == 200), "{bytes:?}");
    wait_until("the killed flow is listed", || {
        home.json(&["flow", "log"]).as_array()?.iter().any(|one| one["verdict"] == "killed").then_some(())
    });
    let viewer = as_viewer(&home, &control);
    wait_until("a viewer gets the reason", || {
        let (code, seen) = viewer(&["flow", "log", "--socket", &host, "-o", "json"]);
        assert!(code == Some(0) && !seen.contains("127.0.0.1"), "{seen}");
        seen.contains("/bytes/1000").then_some(())
    });
    assert_eq!(viewer(&["socket", "stats", &host]).0, Some(0));
    let (code, printed) = viewer(&["flow", "ls"]);
    assert!(code == Some(3) && printed.contains("takes the role admin"), "{printed}");

    // Bad input: one sentence each.
    let refused = |args: &[&str], code: i32, expected: &str| {
        let output = home.run(args);
        let printed = text(&output.stderr);
        assert!(output.status.code() == Some(code) && printed.contains(expected), "{args:?}: {printed}");
    };
    refused(&["socket", "stats", "calm-bay-9999"], 4, "there is no such socket");
    refused(&["flow", "log", "--socket", "calm-bay-9999"], 4, "there is no such socket");
    refused(&["flow", "log", "--limit", "0"], 2, "0 is not in 1..=100");
    refused(&["flow", "log", "--socket", "a b"], 4, "there is no such socket: a b");
    refused(&["flow", "log", "--socket", "http://a"], 2, "is not a socket");

    // A hanging edge is named within the time limit, and the others' flows are listed.
    b.program.as_ref().unwrap().signal("STOP");
    wait_until("the flows of the other edge are listed, and the edge that hangs is named", || {
        let asked = Instant::now();
        let (found, printed) = flows(&home);
        println!("with an edge that hangs, all others are listed after {:?}", asked.elapsed());
        assert!(printed.contains("us-1 did not respond (no answer within 1 s)"), "{printed}");
        assert!(found == both[..1] || printed.contains("eu-1 did not respond"), "{found:?} {printed}");
        (found == both[..1]).then_some(())
    });
    b.program.as_ref().unwrap().signal("CONT");
    end(at_a);
    wait_until("the edge responds again", || {
        let (found, printed) = flows(&home);
        (found.is_empty() && !printed.contains("did not respond")).then_some(())
    });
}

/// The events about this socket at control: the recording machine, and the outcome.
fn events(home: &Home, socket: &str) -> Vec<(String, String)> {
    let output = home.run(&["audit", "--since", "1h", "--kind", "flow", "--socket", socket, "-o", "json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let events = text(&output.stdout);
    let events = events.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let events = events.filter(|event| event["flow"]["path"] == "/private");
    events.map(|event| (word(&event["node"], "name"), word(&event["flow"], "verdict"))).collect()
}

#[test]
fn what_edges_record_is_at_control_once_and_after_outages_too() {
    let home = Home::new();
    let Some(mut bus) = Bus::start(&home, "") else { return };
    let mut control = ControlHere::start(&home, &bus);
    home.account();
    let (a, mut b) = (EdgeHere::join(&home, "eu-1", "eu"), EdgeHere::join(&home, "us-1", "us"));
    all_up(&home, 2);
    let (socket, host) = home.socket(&["--cloudauth", "--allowed-email-domains", "example.com"]);
    wait_until("the socket is known", || (a.knows(&home, &host) && b.knows(&home, &host)).then_some(()));
    let came = |what: &str, count: usize| {
        wait_until(what, || {
            let events = events(&home, &socket);
            (events.len() >= count).then_some(events)
        })
    };
    let refused = |edge: &EdgeHere| assert_ne!(edge.get(&home, &host, "/private").0, 200);
    refused(&b);
    let seen = came("a request that was refused at an edge", 1);
    assert!(seen.len() == 1 && seen[0].0 == "us-1" && seen[0].1 != "complete", "{seen:?}");

    // The bus dies: events wait meanwhile, and that is reported.
    bus.kill();
    (0..3).for_each(|_| refused(&b));
    refused(&a);
    wait_until("the waiting events are reported", || {
        let (_, health) = b.get(&home, &format!("api.{DOMAIN}"), "/healthz");
        health.lines().any(|line| line.starts_with("audit: ") && line.contains("not published")).then_some(())
    });
    assert_eq!(events(&home, &socket).len(), seen.len());
    bus.resume();
    let seen = came("what was recorded while the bus was away", seen.len() + 4);
    let (_, metrics) = a.get(&home, &format!("api.{DOMAIN}"), "/metrics");
    assert!(metrics.contains("sallyport_audit_stream_published_total"), "{metrics}");

    // Control dies, and an edge restarts: no event is lost or doubled.
    control.program = None;
    (0..2).for_each(|_| refused(&b));
    assert!(b.program.as_ref().unwrap().stop().success());
    b.start(&home, &[]);
    refused(&b);
    control.resume(&home);
    let seen = came("what was recorded while control was away", seen.len() + 3);
    std::thread::sleep(std::time::Duration::from_millis(1_500));
    assert_eq!(events(&home, &socket).len(), seen.len(), "each is there once");
    let verified = home.json(&["audit", "verify"]);
    assert_eq!((verified["is_good"].as_bool(), verified["gaps"].as_u64()), (Some(true), Some(0)), "{verified}");
    // The edge's own log is unchanged.
    let offline = home.run(&["audit", "verify", "--data", b.data.to_str().unwrap()]);
    assert!(offline.status.success(), "{}{}", text(&offline.stdout), text(&offline.stderr));
}
