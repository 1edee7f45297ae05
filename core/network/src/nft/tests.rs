//! The compiled table, read as text, and how many rules a packet meets. The kernel's own opinion is tested in io/nft.

use serde_json::{Value, json};

use super::compile;
use crate::policy::{Document, Policy};

fn policy(document: Value) -> Policy {
    serde_json::from_value::<Document>(document).unwrap().into_policy().unwrap()
}

/// A network of so many web servers, each with an owner of its own and so many rules, and one database.
fn network(servers: usize, rules: usize) -> Policy {
    let endpoint = |number: usize, octet: usize, name: &str, groups: &[&str]| {
        let address = format!("10.{octet}.{}.{}", number / 250, 1 + number % 250);
        let v6 = format!("fd00:{octet}::{:x}", number + 1);
        json!({ "name": name, "addresses": [address, v6], "groups": groups, "device": format!("t{octet}.{number}") })
    };
    let mut endpoints = vec![endpoint(0, 40, "db", &[])];
    let mut allow = vec![json!({ "name": "sql", "from": ["web"], "to": ["db"], "services": ["tcp/5432"] })];
    for number in 0..servers {
        let (server, owner) = (format!("web-{number}"), format!("owner-{number}"));
        endpoints.push(endpoint(number, 20, &server, &["web"]));
        endpoints.push(endpoint(number, 30, &owner, &["owners"]));
        allow.extend((0..rules).map(|rule| {
            let (name, service) = (format!("ssh-{number}-{rule}"), format!("tcp/{}", 22 + rule));
            json!({ "name": name, "from": [owner], "to": [server], "services": [service] })
        }));
    }
    let deny = json!([{ "name": "no-mail", "from": ["web"], "services": ["tcp/25"] }]);
    policy(json!({ "network": "shop", "endpoint": endpoints, "allow": allow, "deny": deny }))
}

#[test]
fn ten_thousand_endpoints_are_as_deep_as_ten() {
    let (small, large) = (network(5, 1), network(5_000, 1));
    assert_eq!((small.endpoints().len(), large.endpoints().len()), (11, 10_001));
    let depth = compile(&small).depth();
    assert_eq!(compile(&large).depth(), depth);
    assert_eq!(compile(&network(5, 3)).depth(), depth + 4, "two rules more, once for each family");
    assert!(depth <= 40, "{depth}");
}

#[test]
fn the_table_reads_like_the_document() {
    let text = compile(&policy(json!({
        "network": "shop",
        "sets": { "partners": ["198.51.100.0/24", "203.0.113.0/24"] },
        "endpoint": [
            { "name": "web-1", "addresses": ["10.20.0.11", "fd00:20::11"], "groups": ["web"], "device": "tap1" },
            { "name": "web-2", "addresses": ["10.20.0.13"], "groups": ["web"] },
            { "name": "db", "addresses": ["10.20.0.21"], "routes": ["10.30.0.0/16"] }
        ],
        "allow": [
            { "name": "sql", "from": ["web"], "to": ["db"], "services": ["tcp/5432", "tcp/5400-5440", "icmp"] },
            { "name": "ping", "services": ["icmp"] }
        ],
        "deny": [{ "name": "partners", "from": ["@partners"], "to": ["web"] }]
    })))
    .to_string();
    for line in [
        "table inet sallyport_network_shop\ndelete table inet sallyport_network_shop\n",
        "\tcounter deny-partners { }",
        "\tset deny-partners-from-ip {\n\t\ttype ipv4_addr\n\t\tflags interval\n\t\telements = { 198.51.100.0/24, 203.0.113.0/24 }",
        "\t\t\t10.20.0.11 : jump deny-to-1,",
        "\t\t\t10.30.0.0/16 : jump allow-to-1,",
        "\t\t\t\"tap1\" : goto source-1,",
        "\t\tip saddr { 0.0.0.0, 10.20.0.11/32 } accept",
        "\t\tip saddr @deny-partners-from-ip counter name \"deny-partners\" goto refuse",
        "\t\tip saddr @allow-sql-from-ip tcp dport { 5400-5440 } counter name \"allow-sql\" accept",
        "\t\tip6 saddr fd00:20::11 meta l4proto { 1, 58 } counter name \"allow-sql\" accept",
        "\t\tct state vmap { established : accept, related : accept }",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    let place = |line: &str| text.find(line).unwrap();
    assert!(place("vmap @deny-to-ip\n") < place("vmap @allow-to-ip\n"), "deny comes first");
}
