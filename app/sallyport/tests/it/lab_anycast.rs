//! The laboratory with an internet: real BGP by BIRD, clients of several networks, and edges that come and go.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::lab::Here;

/// An anycast laboratory; `None` with a message if it cannot be built here.
fn laboratory() -> Option<Here> {
    for program in ["bird", "nft"] {
        if Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
            println!("skipped: no anycast laboratory can stand here: {program} is missing");
            return None;
        }
    }
    Here::new('y')
}

/// Where the clients of a network land in each family, as `SITE by PATH`.
fn landings(here: &Here, clients: &str) -> Vec<String> {
    let all = here.json(&["anycast", "status"]);
    let all = all.as_array().unwrap().iter().filter(|landing| landing["clients"] == clients);
    let landings: Vec<_> = all
        .map(|landing| {
            assert_eq!(landing["failed"], 0, "{landing}");
            let sites: Vec<_> = landing["by_site"].as_object().unwrap().keys().cloned().collect();
            let path: Vec<_> = landing["path"].as_array().unwrap().iter().map(Value::to_string).collect();
            format!("{} by {}", sites.join(","), path.join(" "))
        })
        .collect();
    assert_eq!(landings.len(), 2, "IPv4 and IPv6");
    landings
}

/// The requests of a drill, which it prints: all of both families, the failed, and those that were sent again.
fn drill(here: &Here, drill: &str, edge: &str) -> (u64, u64) {
    let report = here.json(&["anycast", "drill", drill, edge, "--rate", "25"]);
    let asked: Vec<_> = report["asked"].as_array().unwrap().iter().map(|pair| &pair[1]).collect();
    let sum = |name: &str| asked.iter().map(|asked| asked[name].as_u64().unwrap()).sum::<u64>();
    let longest = |name: &str| asked.iter().map(|asked| asked[name].as_u64().unwrap()).max().unwrap();
    println!(
        "{drill} {edge}: {} of {} requests failed, {} were sent again; first to last failure {} ms, longest without a \
         response {} ms",
        sum("failed"),
        sum("requests"),
        sum("again"),
        longest("failing_ms"),
        longest("longest_gap_ms"),
    );
    assert!(sum("requests") >= 100, "{report}");
    (sum("requests"), sum("failed"))
}

#[test]
fn clients_land_at_the_nearest_site_and_edges_go_without_loss() {
    let Some(mut here) = laboratory() else { return };
    let printed = here.up_anycast(&["--sites", "2"]);
    assert!(printed.contains("anycast drill silent london-1"), "{printed}");
    assert_eq!(landings(&here, "london-client"), ["london by 3356 1299 64500"; 2]);
    assert_eq!(landings(&here, "new-york-client"), ["new-york by 209 64500"; 2]);
    let (_, failed) = drill(&here, "withdraw", "london-1");
    assert_eq!(failed, 0, "an edge that an operator drains loses nothing");
    let (requests, failed) = drill(&here, "silent", "london-1");
    assert!(failed < requests / 4, "BFD notices: without it, half of the requests of seconds fail");
    here.refused(&["anycast", "drill", "kill", "mars-1"], 4, "no \"mars-1\"; it has london-1");
    here.refused(&["anycast", "grow", "london", "2"], 5, "london has 2 edges: it can grow to 3 to 8");
    here.refused(&["chaos"], 5, "chaos is for laboratories without --anycast");
    here.goes_without_a_trace();
}
