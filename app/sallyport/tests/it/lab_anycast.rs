//! The laboratory with an internet: real BGP by BIRD, clients of several networks, and edges that come and go.

use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::lab::{Here, until};

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
            let sites: Vec<_> = landing["by_site"].as_object().unwrap().keys().cloned().collect();
            let path: Vec<_> = landing["path"].as_array().unwrap().iter().map(Value::to_string).collect();
            let failed = landing["failed"].as_u64().filter(|failed| *failed > 0);
            let failed = failed.map_or_else(String::new, |failed| format!(", {failed} failed"));
            format!("{} by {}{failed}", sites.join(","), path.join(" "))
        })
        .collect();
    assert_eq!(landings.len(), 2, "IPv4 and IPv6");
    landings
}

/// The requests of a drill, which it prints: all of both families, the failed, and those that were sent again.
fn drill(here: &Here, drill: &str, edge: &str, patience: &str) -> (u64, u64) {
    let report = here.json(&["anycast", "drill", drill, edge, "--rate", "25", "--patience", patience]);
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

/// Waits until these clients land so in both families.
fn until_they_land(here: &Here, clients: &str, landing: &str) {
    until(&format!("{clients} lands at {landing}"), || (landings(here, clients) == [landing; 2]).then_some(()));
}

/// The installation reads what is planted from the routes that London's edges are sent, and an operator mends it.
fn london_is_explained_and_mended(here: &Here) {
    until_they_land(here, "london-client", "new-york by 3356 209 64500");
    let route_of = |peer: &str, path: Value| {
        until("edges were sent the routes of London's providers", || {
            let explained = here.owner("control-1", &["anycast", "explain", "198.51.100.0/24"]);
            let routes = explained["routes"].as_array().unwrap();
            routes.iter().find(|route| route["peer"] == peer && route["path"] == path).cloned()
        })
    };
    let misled = route_of("as3356-v4", json!([3356, 209, 64_500]));
    let other = route_of("as2914-v4", json!([2914, 1299, 64_500]));
    // A large community of each announcement names its site.
    let site = |route: &Value| {
        let communities = route["communities"].as_array().unwrap().iter().filter_map(Value::as_str);
        communities.filter(|community| community.starts_with("64500:1:")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(site(&misled).len() == 1 && site(&misled) != site(&other), "{misled} {other}");
    let relations = here.ca().with_file_name("as-relations.txt").display().to_string();
    let explain = ["exec", "control-1", "--", "sallyport", "anycast", "explain", "198.51.100.0/24", "--from", "AS3356"];
    let told = here.done(&[&explain[..], &["--wanted", "london", "--relations", &relations]].concat());
    for words in [
        "AS3356 prefers the route of its customer AS209 to that of its peer AS1299",
        "a community on the session with AS209 in new-york",
        "Prepending on the session with AS209 in new-york cannot help",
    ] {
        assert!(told.contains(words), "{words}: {told}");
    }
    // What New York announces to AS209 gets the community that AS3356 has for it.
    let peers = here.owner("control-1", &["anycast", "peer", "ls"]);
    let is_new_yorks = |peer: &&Value| peer["place"].as_str().unwrap().starts_with("edge:new-york");
    for peer in peers.as_array().unwrap().iter().filter(is_new_yorks) {
        let [name, place, address] = ["name", "place", "address"].map(|field| peer[field].as_str().unwrap());
        here.owner("control-1", &["anycast", "peer", "rm", name, "--yes"]);
        let add = ["anycast", "peer", "add", name, "--at", place, "--address", address, "--as", "64496"];
        here.owner("control-1", &[&add[..], &["--local-as", "64500", "--bfd", "--community", "3356:70"]].concat());
    }
    until_they_land(here, "london-client", "london by 3356 1299 64500");
    until_they_land(here, "new-york-client", "new-york by 209 64500");
}

#[test]
fn clients_land_at_the_nearest_site_and_edges_go_without_loss() {
    let Some(mut here) = laboratory() else { return };
    let printed = here.up_anycast(&["--sites", "2", "--plant", "london"]);
    assert!(printed.contains("anycast drill silent london-1"), "{printed}");
    london_is_explained_and_mended(&here);
    // First, because an edge that was silent waits for the connections that broke meanwhile.
    // With a patience that a busy machine does not exhaust: what fails was refused, or broke.
    let (requests, failed) = drill(&here, "withdraw", "london-1", "15s");
    assert!(failed * 100 <= requests, "an edge that an operator drains loses nothing");
    let (requests, failed) = drill(&here, "silent", "london-1", "3s");
    assert!(failed < requests / 4, "BFD notices: without it, half of the requests of seconds fail");
    here.refused(&["anycast", "drill", "kill", "mars-1"], 4, "no \"mars-1\"; it has london-1");
    here.refused(&["anycast", "grow", "london", "2"], 5, "london has 2 edges: it can grow to 3 to 8");
    here.refused(&["chaos"], 5, "chaos is for laboratories without --anycast");
    here.goes_without_a_trace();
}
