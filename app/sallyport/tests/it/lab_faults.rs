//! Faults in the laboratory of [`crate::lab`] under load: how many requests may fail, and what must recover.
//!
//! A bound is one running request of each connection, and one more for each timeout that clients run into on a silent
//! path.

use std::{
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    harness::text,
    lab::{CONNECTIONS, Here, until},
};

/// The seed of [`anything_breaks`].
const SEED: &str = "14";

/// Makes a socket from a client of the laboratory, and its name known to all nodes. Returns its id and URL.
fn socket(here: &Here, node: &str, name: &str) -> (String, String) {
    // The edge may just be changing to another control.
    let made = until("a control makes a socket", || here.asked(node, &["socket", "create", "--name", name]));
    until("its name is learned", || here.run(&["names"]).status.success().then_some(()));
    let word = |field: &str| made[field].as_str().unwrap().to_owned();
    (word("id"), format!("https://{}/", word("dns_name")))
}

/// Waits for this status of a socket at the edges of these regions: 200 with a tunnel, 503 without, 404 for an unknown
/// socket.
fn known(here: &Here, regions: &[&str], url: &str, status: u16) {
    until(&format!("{status} for {url} in {regions:?}"), || {
        let is_so = |region: &&str| here.status(&format!("{region}-client"), url) == status;
        regions.iter().all(is_so).then_some(())
    });
}

/// A region is cut off from the rest, which has both controls, the database and most of the bus. No client notices, and
/// changes made meanwhile are there afterwards.
pub(crate) fn a_region_is_cut_off(here: &Here) {
    let (before, went) = socket(here, "eu-client", "before");
    known(here, &["eu", "us", "ap"], &went, 503);
    let (within, without) = (here.load("ap-client"), here.load("eu-client"));
    here.done(&["fault", "partition", "ap"]);
    let (_, came) = socket(here, "eu-client", "meanwhile");
    here.owner("eu-client", &["socket", "delete", &before]);
    known(here, &["eu", "us"], &came, 503);
    known(here, &["eu", "us"], &went, 404);
    until("the edge reports an outdated configuration", || {
        let output = here.output_of("ap-client", &["curl", "-sS", "https://api.lab.test/healthz"]);
        output.contains("configuration: not of the present").then_some(())
    });
    let statuses = [here.status("ap-client", &came), here.status("ap-client", &went)];
    assert_eq!(statuses, [404, 503], "no client could detect it");
    let healed = Instant::now();
    here.done(&["fault", "heal"]);
    known(here, &["ap"], &came, 503);
    known(here, &["ap"], &went, 404);
    println!("what changed while a region was cut off was known there {:?} after it", healed.elapsed());
    within.end("region cut off").at_most(0);
    // A client may have been about to be served by the cut region.
    without.end("another region cut off").at_most(CONNECTIONS);
    here.until_whole();
}

/// An edge is killed, cut off and stopped. Its own clients lose running requests, those of others nothing.
pub(crate) fn an_edge_breaks(here: &Here) {
    type Fault<'a> = (&'a str, &'a dyn Fn(&Here), Option<Duration>, u64);
    let killed = |here: &Here| {
        here.done(&["fault", "kill", "eu-1"]);
        assert_eq!(here.status("eu-client", &here.url()), 200, "the next connection works at once");
        thread::sleep(Duration::from_secs(1));
        here.done(&["fault", "resume", "eu-1"]);
    };
    let cut_off = |here: &Here| drop(here.done(&["fault", "partition", "eu-1", "--for", "4s"]));
    let stopped = |here: &Here| drop(here.done(&["fault", "pause", "eu-1", "--for", "3s"]));
    // The clients' timeout.
    let patience = Duration::from_secs(2);
    // A machine that is cut off accepts no connections, so clients try the next one. A stopped one accepts them, and
    // clients run into their timeout again.
    let stops = 3_u64.div_ceil(patience.as_secs());
    let faults: [Fault<'_>; 3] = [
        ("edge killed", &killed, None, CONNECTIONS),
        ("edge cut off for 4 s", &cut_off, Some(patience), 2 * CONNECTIONS),
        ("edge stopped for 3 s", &stopped, Some(patience), (1 + stops) * CONNECTIONS),
    ];
    for (what, fault, patience, bound) in faults {
        let its_own = patience.map(|patience| here.impatient_load("eu-client", patience));
        let its_own = its_own.unwrap_or_else(|| here.load("eu-client"));
        let of_others = here.load("us-client");
        fault(here);
        its_own.end(what).at_most(bound);
        of_others.end(&format!("another {what}")).at_most(0);
        here.until_whole();
    }
}

/// `edge drain` and `edge resume`: no request of this very edge's clients fails.
pub(crate) fn an_edge_is_emptied(here: &Here) {
    let load = here.load("eu-client");
    here.owner("us-client", &["edge", "drain", "eu-1", "--within", "2s"]);
    until("it holds no tunnel any more", || {
        let edge = here.edge("eu-1")?;
        (edge["state"] == "draining" && edge["tunnels"] == 0).then_some(())
    });
    // Requests after the deadline are served as well.
    thread::sleep(Duration::from_secs(2));
    here.owner("us-client", &["edge", "resume", "eu-1"]);
    until("it serves again", || (here.edge("eu-1")?["state"] == "up").then_some(()));
    load.end("the edge that serves the requests drains").at_most(0);
    here.until_whole();
}

/// The only origin of a region is lost, and the links to the others are long, lossy and narrow.
pub(crate) fn an_origin_is_lost_and_links_are_slow(here: &Here) {
    here.done(&["fault", "slow", "eu", "--delay", "60ms", "--loss", "1", "--rate", "20M"]);
    let load = here.load("eu-client");
    here.done(&["fault", "kill", "eu-connector"]);
    until("the others' share", || {
        here.response("eu-client", &here.url())
            .is_some_and(|(status, by)| status == 200 && by != "eu-origin")
            .then_some(())
    });
    let size = "200000";
    let url = format!("{}bytes/{size}", here.url());
    let got = here.done(&["exec", "eu-client", "--", "curl", "-sS", "-o", "/dev/null", "-w", "%{size_download}", &url]);
    assert_eq!(got, size, "what packets are lost of is whole");
    thread::sleep(Duration::from_secs(1));
    let report = load.end("the origin of the region lost, the others behind slow links").at_most(CONNECTIONS);
    assert!(report.by("us") + report.by("ap") > 0, "{}", report.report);
    here.done(&["fault", "heal", "eu"]);
    here.done(&["fault", "resume", "eu-connector"]);
    here.until_whole();
}

/// The NATS server that leads a stream, as a server of the cluster reports; `None` without a leader.
fn leader_of(here: &Here, stream: &str) -> Option<String> {
    let report = ["nats-1", "nats-2", "nats-3"].iter().find_map(|node| {
        let url = format!("http://{node}:8222/jsz?streams=true");
        let output = here.output_of("us-client", &["curl", "-sS", "--max-time", "5", &url]);
        serde_json::from_str::<Value>(&output).ok()
    })?;
    let streams =
        report["account_details"].as_array()?.iter().filter_map(|account| account["stream_detail"].as_array());
    let found = streams.flatten().find(|detail| detail["name"] == stream)?;
    Some(found["cluster"]["leader"].as_str().filter(|leader| !leader.is_empty())?.to_owned())
}

/// Faults off the path of requests fail no request, and cut no transfer.
pub(crate) fn engines_break(here: &Here) {
    // Requests to another region use a relay: its edges must know each other all the time.
    let (id, far) = socket(here, "eu-client", "far");
    let tunnel =
        ["tunnel", "connect", "--socket-id", &id, "--host", "127.0.0.1", "--port", "8000", "--redundancy", "1"];
    let connector = here.start("eu-origin", &[&["sallyport"], &tunnel[..], &["-o", "json"]].concat());
    connector.wait_for("attached");
    known(here, &["us", "ap"], &far, 200);
    let (load, relayed) = (here.load("us-client"), here.load_of_another("ap-client", &far));
    let transfer = here.transfer("eu-client", "1M");
    let before = lost_edges(here);
    controls_break(here);
    transfer.goes_on();
    the_bus_breaks(here);
    transfer.goes_on();
    the_database_breaks(here);
    transfer.goes_on();
    println!("edges lost sight of: {:?} before, {:?} after", before, lost_edges(here));
    load.end("controls, bus and database broken").at_most(0);
    relayed.end("the same, relayed").at_most(0);
    let (_, url) = socket(here, "us-client", "after");
    known(here, &["eu", "us", "ap"], &url, 503);
    transfer.goes_on();
    here.until_whole();
}

/// How often each edge has logged that another one is gone.
fn lost_edges(here: &Here) -> Vec<usize> {
    ["eu-1", "us-1", "ap-1"].iter().map(|edge| here.log(edge).matches("edge left").count()).collect()
}

fn controls_break(here: &Here) {
    here.done(&["fault", "kill", "control-1"]);
    let (_, url) = socket(here, "us-client", "by-the-other-control");
    known(here, &["eu", "us", "ap"], &url, 503);
    here.done(&["fault", "resume", "control-1"]);
    here.done(&["fault", "pause", "control-2"]);
    until("the first control serves the request", || here.asked("us-client", &["socket", "ls"]).map(drop));
    here.done(&["fault", "resume", "control-2"]);
}

/// The server that leads the stream of the configuration is killed: two of three continue. After a second one, nothing
/// is published until they are back.
fn the_bus_breaks(here: &Here) {
    let stream = "KV_sallyport_config";
    let first = until("a leader of the configuration", || leader_of(here, stream));
    here.done(&["fault", "kill", &first]);
    let killed = Instant::now();
    let (_, url) = socket(here, "us-client", "without-its-leader");
    known(here, &["eu", "us", "ap"], &url, 503);
    println!(
        "the bus lost {first}, the leader of {stream}: a change was known everywhere {:?} after it",
        killed.elapsed()
    );
    let second = until("a new leader", || leader_of(here, stream).filter(|leader| *leader != first));
    here.done(&["fault", "kill", &second]);
    let (_, url) = socket(here, "us-client", "without-a-quorum");
    thread::sleep(Duration::from_secs(1));
    assert_eq!(here.status("eu-client", &url), 404, "one machine of three cannot detect it");
    assert_eq!(here.status("eu-client", &here.url()), 200);
    let back = Instant::now();
    for machine in [&second, &first] {
        here.done(&["fault", "resume", machine]);
    }
    known(here, &["eu", "us", "ap"], &url, 503);
    println!(
        "the bus had no quorum: what changed meanwhile was known everywhere {:?} after it was back",
        back.elapsed()
    );
    here.done(&["fault", "partition", "nats-3", "--for", "1s"]);
}

fn the_database_breaks(here: &Here) {
    here.done(&["fault", "kill", "postgres"]);
    until("the API reports that the database is away", || {
        let output = here.run(&["exec", "us-client", "--", "sallyport", "socket", "ls"]);
        text(&output.stderr).contains("cannot reach its database").then_some(())
    });
    here.done(&["fault", "resume", "postgres"]);
    until("the store responds", || here.asked("us-client", &["socket", "ls"]).map(drop));
    here.done(&["fault", "pause", "postgres", "--for", "2s"]);
    until("the store responds again", || here.asked("us-client", &["socket", "ls"]).map(drop));
}

/// Random faults and repairs by a seed. No more fails than ran on the broken paths, with a long timeout for a busy
/// machine, and each recovery is complete.
pub(crate) fn anything_breaks(here: &Here) {
    here.done(&["fault", "pause", "control-2"]);
    let refused = here.run(&["chaos"]);
    assert!(text(&refused.stderr).contains("something is broken already"), "{refused:?}");
    here.done(&["fault", "resume", "control-2"]);

    let wish = ["chaos", "--for", "20s", "--seed", SEED, "--connections", "4", "--rate", "20", "--patience", "30s"];
    let output = here.run(&[&wish[..], &["-o", "json"]].concat());
    let report: Value = serde_json::from_str(&text(&output.stdout)).unwrap_or_else(|_| panic!("{output:?}"));
    let faults = report["faults"].as_array().unwrap();
    let may: u64 = faults.iter().map(|fault| fault["may_fail"].as_u64().unwrap()).sum();
    let failed = report["all"]["failed"].as_u64().unwrap();
    for fault in faults {
        println!(
            "{} {} for {} ms: {} of {} requests failed, all answered {} ms and all was as before {} ms after it was \
             mended",
            fault["act"],
            fault["name"],
            fault["lasts_ms"],
            fault["failed"],
            fault["requests"],
            fault["answered_ms"],
            fault["whole_ms"]
        );
        assert!(fault["whole_ms"].is_u64(), "not as before: {fault}");
    }
    println!("what a seed decides: {failed} of {} requests failed, and {may} may", report["all"]["requests"]);
    assert_eq!((faults.len() as u64, report["seed"].to_string()), (report["planned"].as_u64().unwrap(), SEED.into()));
    assert!(faults.len() >= 3, "{report}");
    assert!(failed <= may, "{report}");
    here.until_whole();
}
