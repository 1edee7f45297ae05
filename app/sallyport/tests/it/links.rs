//! Links: `sallyport link ls` on the devices of this machine, and those that carry tunnels.

use serde_json::Value;

use crate::harness::{Home, Origin, text, wait_until};

#[test]
fn devices_are_listed_and_those_that_are_no_links_say_why() {
    let home = Home::new();
    let devices = home.json(&["link", "ls"]);
    let loopback = devices.as_array().unwrap().iter().find(|device| device["name"] == "lo").unwrap();
    assert_eq!((&loopback["kind"], &loopback["is_link"]), (&"loopback".into(), &false.into()), "{loopback}");
    assert_eq!(loopback["reason"], "it reaches this machine alone");
    let lines = text(&home.run(&["link", "ls"]).stdout);
    assert!(lines.starts_with("DEVICE") && lines.contains("no: it reaches this machine alone"), "{lines}");
}

#[test]
fn a_named_link_is_shown_with_its_properties() {
    let home = Home::new();
    let devices = home.json(&["link", "ls", "127.0.0.1,metered,weight=2"]);
    let devices = devices.as_array().unwrap();
    let loopback = devices.iter().find(|device| device["name"] == "lo").unwrap();
    let is_up = loopback["addresses"].as_array().is_some_and(|all| all.contains(&"127.0.0.1".into()));
    assert!(is_up && loopback["is_link"] == true, "{loopback}");
    assert_eq!((&loopback["weight"], &loopback["is_metered"]), (&2.into(), &true.into()), "{loopback}");
    let (mtu, segment) = (loopback["mtu_bytes"].as_u64().unwrap(), loopback["segment_bytes"].as_u64().unwrap());
    assert_eq!((mtu - segment, loopback["header_bytes"].as_u64()), (52, Some(52)), "{loopback}");
    let others: Vec<_> = devices.iter().filter(|device| device["name"] != "lo").collect();
    assert!(others.iter().all(|device| device["reason"] == "it is not named"), "{others:?}");
}

#[test]
fn words_that_name_no_link_are_refused_in_one_sentence() {
    let home = Home::new();
    for (words, code, says) in [
        (&["nowhere0"][..], 4, "this machine has no device or address nowhere0"),
        (&["eth0,fast"], 2, "\"fast\" is no property of a link"),
        (&["lo,weight=0"], 2, "expected a number from 1 to 1000"),
        (&["auto", "lo"], 2, "auto takes every link"),
        (&["a device"], 2, "is neither a device nor an address"),
    ] {
        let output = home.run(&[&["link", "ls"], words].concat());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
        assert!(said.contains(says) && said.contains("sallyport link ls"), "{words:?}: {said}");
    }
}

/// The one link of the one tunnel of a socket, once it satisfies the condition.
fn link_when(home: &Home, socket: &str, what: &str, is_there: impl Fn(&Value) -> bool) -> Value {
    let tunnels = home.json(&["tunnel", "ls", socket]);
    let tunnel = tunnels[0]["id"].as_str().unwrap();
    wait_until(what, || {
        let seen = home.json(&["tunnel", "show", tunnel, "--socket-id", socket]);
        let links = seen["links"].as_array()?;
        (links.len() == 1 && is_there(&links[0])).then(|| links[0].clone())
    })
}

#[test]
fn a_tunnel_has_the_link_that_carries_it_over_each_transport() {
    let home = Home::new();
    let up = home.up(&["--listen-quic"]);
    home.account();
    let (socket, host) = home.socket(&[]);
    let origin = Origin::start("origin");
    for transport in ["tcp", "websocket", "quic"] {
        let connector = home.connector(&socket, origin.address, &["--transport", transport]);
        let is_measured = |link: &Value| link["round_trip_ms"].as_f64().is_some_and(|ms| ms > 0.0);
        let link = link_when(&home, &socket, "a link with a round trip", is_measured);
        assert_eq!((&link["name"], &link["status"]), (&"lo".into(), &"up".into()), "{transport}: {link}");
        assert_eq!(link["local"], "127.0.0.1", "{transport}: {link}");
        let number = |field: &str| link[field].as_u64().unwrap_or_else(|| panic!("{transport}: no {field} in {link}"));
        assert!(number("path_mtu_bytes") > 1_200 && (40..200).contains(&number("header_bytes")), "{link}");
        assert!(number("loss_permille") < 1_000, "{link}");
        assert_eq!(up.curl(&host, "/bytes/200000", &[]).body.len(), 200_000);
        let sent = |link: &Value| link["bytes_sent"].as_u64().is_some_and(|sent| sent > 200_000);
        let link = link_when(&home, &socket, "the bytes of a response", sent);
        assert!(link["bytes_received"].as_u64().unwrap() > 100, "{transport}: {link}");
        assert!(connector.stop().success(), "{}", connector.output());
    }
    let metrics = up.curl("api.localhost", "/metrics", &[]).body;
    let counted = |series: &str| -> u64 {
        let found = metrics.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok());
        found.unwrap_or_else(|| panic!("no {series} in:\n{metrics}"))
    };
    assert!(counted("sallyport_edge_tunnel_link_bytes_total{direction=\"sent\"}") > 600_000);
    assert!(counted("sallyport_edge_tunnel_link_bytes_total{direction=\"received\"}") > 300);
    assert_eq!(counted("sallyport_edge_tunnel_links{status=\"silent\"}"), 0);
}

#[test]
fn a_tunnel_is_shown_to_people_with_its_links() {
    let home = Home::new();
    let _up = home.up(&[]);
    home.account();
    let (socket, _host) = home.socket(&[]);
    let origin = Origin::start("origin");
    let _connector = home.connector(&socket, origin.address, &[]);
    link_when(&home, &socket, "a link", |_| true);
    let tunnels = home.json(&["tunnel", "ls", &socket]);
    let tunnel = tunnels[0]["id"].as_str().unwrap();
    let shown = text(&home.run(&["tunnel", "show", tunnel]).stdout);
    assert!(shown.contains("PATH MTU") && shown.contains(tunnel), "{shown}");
    assert!(shown.lines().any(|line| line.starts_with("lo ") && line.contains(" up ")), "{shown}");
    let wide = text(&home.run(&["tunnel", "ls", &socket, "-o", "wide"]).stdout);
    assert!(wide.contains("LINKS") && wide.contains(" lo "), "{wide}");
    let missing = home.run(&["tunnel", "show", "0b7e3c1a-5f0e-4c57-9f63-6a1f0f9e2d11"]);
    assert_eq!(missing.status.code(), Some(4), "{}", text(&missing.stderr));
}
