//! Where clients land: of connections, of pings from an anycast address, of answers of servers, and of RIPE Atlas.

use std::path::Path;

use serde_json::{Value, json};
use time::OffsetDateTime;

use crate::{
    edge_quic_and_geo::databases,
    harness::{Home, curl, text, wait_until},
    networks::{Sockets, must, run_within},
};

const ANYCAST: &str = "198.51.100.1";

/// The first item with these values.
fn listed(home: &Home, args: &[&str], wanted: &Value) -> Value {
    wait_until("a network that has landed", || {
        let items = home.json(&[&["catchment", "ls", "--top", "10000"], args].concat());
        let has = |item: &&Value| wanted.as_object().unwrap().iter().all(|(name, value)| item[name] == *value);
        items.as_array().unwrap().iter().find(has).cloned()
    })
}

/// A file of lines.
fn file(home: &Home, name: &str, lines: &[String]) -> String {
    let path = home.dir.path().join(name);
    std::fs::write(&path, lines.join("\n")).unwrap();
    path.to_str().unwrap().to_owned()
}

#[track_caller]
fn refused(home: &Home, args: &[&str], code: i32, sentence: &str) {
    let output = home.run(&[&["catchment"], args].concat());
    let errors = text(&output.stderr);
    assert!(errors.contains(sentence) && output.status.code() == Some(code), "{args:?}: {:?} {errors}", output.status);
}

#[test]
fn clients_pings_and_answers_tell_where_networks_land() {
    run_within(Sockets::Ping, &[], "landings::within_a_network_with_an_anycast_address");
}

#[test]
#[ignore = "runs within the network of clients_pings_and_answers_tell_where_networks_land"]
fn within_a_network_with_an_anycast_address() {
    let bhutanese = "67.43.156.9";
    for address in [ANYCAST, bhutanese] {
        must(&format!("ip addr add {address}/32 dev lo"));
    }
    must("ip route add local 20.0.0.0/16 dev lo; ip route add local 10.20.0.0/16 dev lo");
    let home = Home::new();
    let [country, asn] = databases();
    let dns = format!("{ANYCAST}:5353");
    let geo = ["--geoip-country", &country, "--geoip-asn", &asn];
    let up = home.up(&[&["--catchment-every", "1s", "--listen-dns", &dns], &geo[..]].concat());
    home.account();
    refused(&home, &["measure", "--address", "2001:db8::1"], 5, "there is no network of IPv6 to ping");

    // Five connections tell where a network lands.
    let url = up.url("api.localhost", "/v1/info");
    for _ in 0..5 {
        assert_eq!(curl(&up.ca, &url, &["--interface", bhutanese]).status, 200);
    }
    let wanted = json!({"prefix": "67.43.156.0/24", "requests": 5});
    let item = listed(&home, &[], &wanted);
    assert_eq!(
        (&item["country"], &item["as"], &item["site"], &item["source"]),
        (&json!("BT"), &json!(35_908), &json!("local"), &json!("clients")),
        "{item}"
    );
    listed(&home, &["--by", "country"], &json!({"country": "BT", "site": "local", "requests": 5}));
    listed(&home, &["--by", "as"], &json!({"as": 35_908, "networks": 1}));

    // Pings: all that may be pinged reply here.
    let targets: Vec<_> = (0..300).map(|number| format!("20.0.{}.7", number % 256)).collect();
    let targets = [&targets[..], &["10.20.0.1 # private".to_owned(), String::new()]].concat();
    let (targets, opt_out) = (file(&home, "targets", &targets), file(&home, "out", &["20.0.9.0/24".to_owned()]));
    let lists = ["--targets", &targets, "--opt-out", &opt_out, "--rate", "2000"];
    let measured = home.json(&[&["catchment", "measure", "--address", ANYCAST], &lists[..]].concat());
    let shown = ["state", "targets", "opted_out", "landed", "split"].map(|name| measured[name].clone());
    assert_eq!(shown, [json!("done"), json!(256), json!(1), json!(255), json!(0)], "{measured}");
    let edge = &measured["edges"][0];
    let counts = ["sent", "unsent", "refused", "landed", "duplicates", "forged"].map(|name| &edge[name]);
    assert_eq!(counts, [255, 0, 1, 255, 0, 0].map(Value::from).each_ref(), "{measured}");
    let item = listed(&home, &[], &json!({"prefix": "20.0.8.0/24"}));
    assert_eq!(item["source"], "ping", "{item}");
    let all = home.json(&["catchment", "ls", "--top", "10000"]);
    // On a busy machine, some replies come with clocks that were read too far apart to tell a time.
    let rows = all["items"].as_array().or(all.as_array()).unwrap().iter();
    let timed = rows.filter(|row| row["source"] == "ping" && row["mean_ms"].as_f64().is_some_and(|mean| mean > 0.0));
    assert!(edge["timed"].as_u64().is_some_and(|count| count > 0 && count == timed.count() as u64), "{measured}");
    assert!(!all.to_string().contains("20.0.9.0/24") && !all.to_string().contains("10.20.0.0/24"), "{all}");
    assert_eq!(home.json(&["catchment", "measurements"])[0]["id"], measured["id"]);

    answers_and_results(&home, &dns);

    let metrics = up.curl("api.localhost", "/metrics", &[]).body;
    for series in [
        "sallyport_catchment_rows_total{source=\"ping\"} 255",
        "sallyport_catchment_measurements_total{outcome=\"done\"} 1",
        "sallyport_edge_catchment_pings_total 255",
        "sallyport_edge_catchment_replies_total{outcome=\"counted\"} 255",
    ] {
        assert!(metrics.lines().any(|line| line == series), "{series}: {metrics}");
    }
    bad_input(&home);
}

/// Answers of the name server, results of RIPE Atlas, and what follows from them.
fn answers_and_results(home: &Home, dns: &str) {
    let asked = ["catchment", "measure", "--chaos", dns, "--site-of", "local=local", "--network", "8.8.8.8"];
    let asked = home.json(&asked);
    assert_eq!((&asked[0]["site"], &asked[0]["prefix"]), (&json!("local"), &json!("8.8.8.0/24")), "{asked}");
    listed(home, &[], &json!({"prefix": "8.8.8.0/24", "source": "chaos"}));
    let now = OffsetDateTime::now_utc().unix_timestamp();
    let results = json!([
        {"type": "dns", "from": "9.9.9.9", "timestamp": now,
            "result": {"rt": 90.0, "answers": [{"RDATA": ["nyc-7"]}]}},
        {"type": "ping", "from": "9.9.9.9", "timestamp": now, "dst_addr": "203.0.113.7", "min": 10.0},
    ]);
    let results = file(home, "atlas.json", &[results.to_string()]);
    refused(home, &["import", "atlas", &results], 5, "none of the 2 results names a site (one says \"nyc-7\")");
    let rules = ["--site-of", "nyc=us", "--site-of", "203.0.113.0/24=eu"];
    let imported = home.json(&[&["catchment", "import", "atlas", &results], &rules[..]].concat());
    assert_eq!(imported, json!({"rows": 2, "results": 2, "skipped": 0}));
    let lost = listed(home, &[], &json!({"prefix": "9.9.9.0/24", "site": "us", "better": "eu", "better_ms": 10.0}));
    assert_eq!((&lost["lost_ms"], &lost["mean_ms"]), (&json!(80.0), &json!(90.0)), "{lost}");
    let first = home.json(&["catchment", "ls", "--top", "1"]);
    assert_eq!(first[0]["prefix"], "9.9.9.0/24", "the greatest loss comes first");
    let change = &home.json(&["catchment", "suggest"])["change"];
    assert_eq!(change["action"], "steer 9.9.9.0/24 from us to eu by DNS", "{change}");
    assert_eq!((&change["before_ms"], &change["after_ms"]), (&json!(90.0), &json!(10.0)), "{change}");

    let drawing = home.dir.path().join("map.svg");
    let places = ["--place", "us=41,-74", "--title", "<Where>"];
    let output = home.run(&[&["catchment", "map", drawing.to_str().unwrap()], &places[..]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let drawing = std::fs::read_to_string(drawing).unwrap();
    assert!(drawing.starts_with("<svg ") && drawing.contains("BT lands at local: 5 requests"), "{drawing}");
    assert!(drawing.contains("<title>&lt;Where&gt;</title>"), "{drawing}");
}

fn bad_input(home: &Home) {
    let nothing = file(home, "nothing", &[]);
    let words = file(home, "words", &["here".to_owned()]);
    for (args, code, sentence) in [
        (&["ls", "--top", "0"][..], 2, "0 is not in 1..=10000"),
        (&["ls", "--by", "colour"], 2, "invalid value 'colour'"),
        (&["measure"], 2, "required"),
        (&["measure", "--address", "here"], 2, "invalid value 'here'"),
        (&["measure", "--address", "224.0.0.1"], 5, "224.0.0.1 is not the address of one host"),
        (&["measure", "--address", ANYCAST, "--rate", "5001"], 2, "5001 is not in 1..=5000"),
        (&["measure", "--address", ANYCAST, "--from", "mars-1"], 5, "no edge \"mars-1\" is there"),
        (&["measure", "--address", "198.51.100.9"], 5, "198.51.100.9 is not an address of this machine"),
        (&["measure", "--address", ANYCAST, "--targets", &words], 5, "targets[0]: this is no IP address"),
        (&["measure", "--chaos", "127.0.0.9"], 5, "no server named a site"),
        (&["measure", "--chaos", "here"], 2, "expected ADDRESS or ADDRESS:PORT"),
        (&["import", "atlas", "/nonexistent"], 2, "there is no file /nonexistent"),
        (&["import", "atlas", &nothing], 5, "the file has no result of RIPE Atlas"),
        (&["import", "atlas", &words], 5, "the file is no JSON of RIPE Atlas results"),
        (&["import", "atlas", &words, "--site-of", "fra"], 2, "is no rule: use TEXT=REGION"),
        (&["map", "/nonexistent/map.svg"], 1, "cannot write /nonexistent/map.svg"),
        (&["map", "map.svg", "--place", "eu=91,0"], 2, "is no place of a site"),
    ] {
        refused(home, args, code, sentence);
    }
    assert!(!Path::new("map.svg").exists());
}
