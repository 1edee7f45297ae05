//! Documents, right and wrong, and what their policies decide.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::{Decision, Document, Flow, Policy};

fn policy(document: &Value) -> Result<Policy, String> {
    let document: Document = serde_json::from_value(document.clone()).map_err(|error| error.to_string())?;
    document.into_policy().map_err(|error| error.to_string())
}

fn shop() -> Value {
    json!({
        "network": "shop",
        "sets": { "partners": ["198.51.100.0/24", "2001:db8:5::/48"] },
        "endpoint": [
            { "name": "web-1", "addresses": ["10.20.0.11", "fd00:20::11"], "groups": ["web"], "device": "tap1" },
            { "name": "web-2", "addresses": ["10.20.0.12"], "groups": ["web"] },
            { "name": "db", "addresses": ["10.20.0.21", "fd00:20::21"], "routes": ["10.30.0.0/16"] }
        ],
        "allow": [
            { "name": "sql", "from": ["web"], "to": ["db"], "services": ["tcp/5432"] },
            { "name": "site", "to": ["web"], "services": ["tcp/443", "udp/443"] },
            { "name": "ping", "services": ["icmp"] },
            { "name": "out", "from": ["web-1"], "to": ["@partners"] }
        ],
        "deny": [{ "name": "not-from-partners", "from": ["@partners", "192.0.2.7"], "to": ["web-2"] }]
    })
}

fn decided(policy: &Policy, from: &str, to: &str, protocol: u8, port: u16) -> String {
    let flow = Flow { source: from.parse().unwrap(), destination: to.parse().unwrap(), protocol, port };
    match policy.decide(&flow) {
        Decision::Foreign => "foreign".to_owned(),
        Decision::Default => "default".to_owned(),
        Decision::Rule(rule) => format!("{} {}", rule.action.as_str(), rule.name),
    }
}

#[test]
fn the_deciding_rule_is_named_in_both_directions() {
    let policy = policy(&shop()).unwrap();
    let decided = |from: &str, to: &str, protocol, port| decided(&policy, from, to, protocol, port);
    assert_eq!(decided("10.20.0.11", "10.20.0.21", 6, 5432), "allow sql");
    assert_eq!(decided("fd00:20::11", "fd00:20::21", 6, 5432), "allow sql");
    assert_eq!(decided("10.20.0.11", "10.30.7.7", 6, 5432), "allow sql", "what lies behind an endpoint is its own");
    assert_eq!(decided("10.20.0.21", "10.20.0.11", 6, 5432), "default", "the other direction is another matter");
    assert_eq!(decided("203.0.113.1", "10.20.0.12", 17, 443), "allow site", "anyone");
    assert_eq!(decided("198.51.100.9", "10.20.0.12", 17, 443), "deny not-from-partners", "deny wins");
    assert_eq!(decided("192.0.2.7", "10.20.0.12", 1, 0), "deny not-from-partners");
    assert_eq!(decided("10.20.0.21", "203.0.113.1", 1, 0), "allow ping");
    assert_eq!(decided("fd00:20::21", "2001:db8::1", 58, 0), "allow ping");
    assert_eq!(decided("10.20.0.11", "198.51.100.1", 47, 0), "allow out", "any protocol");
    assert_eq!(decided("10.20.0.12", "198.51.100.1", 47, 0), "default");
    assert_eq!(decided("203.0.113.1", "198.51.100.1", 6, 443), "foreign");
}

#[test]
fn a_source_belongs_to_its_device() {
    let policy = policy(&shop()).unwrap();
    let is_spoofed = |source: &str, device| policy.is_spoofed(source.parse::<IpAddr>().unwrap(), device);
    assert!(!is_spoofed("10.20.0.11", "tap1"));
    assert!(is_spoofed("10.20.0.11", "eth0"), "another device");
    assert!(is_spoofed("10.20.0.12", "tap1"), "another endpoint");
    assert!(is_spoofed("203.0.113.1", "tap1"), "no endpoint");
    assert!(!is_spoofed("fe80::1", "tap1") && !is_spoofed("0.0.0.0", "tap1"), "before it has an address");
    assert!(!is_spoofed("10.20.0.12", "eth0") && !is_spoofed("203.0.113.1", "eth0"), "neither is bound");
}

/// The document with one value set, by its path.
fn with(path: &str, value: Value) -> Value {
    let mut document = shop();
    *document.pointer_mut(path).unwrap() = value;
    document
}

#[test]
fn what_is_wrong_has_a_sentence() {
    let wrong = |document: Value, words: &str| {
        let said = policy(&document).unwrap_err();
        assert!(said.contains(words), "{said}, not {words}");
    };
    let rule = |rule: Value| with("/allow/0", rule);
    wrong(json!({}), "missing field `network`");
    wrong(json!({ "network": "shop" }), "the policy has no endpoint");
    wrong(with("/network", json!("Shop")), "is no name");
    wrong(with("/allow", json!([])), "no rule under allow");
    let twin = json!({ "name": "db", "addresses": ["10.20.0.21"] });
    let twins = json!({ "network": "shop", "endpoint": [twin, twin], "allow": [{ "name": "ping" }] });
    wrong(twins, "db is the name of two endpoints");
    wrong(with("/endpoint/1/groups", json!(["web-1"])), "web-1 is the name of two things: an endpoint and a group");
    wrong(with("/endpoint/1/addresses", json!([])), "the endpoint web-2 has no address");
    wrong(with("/endpoint/1/addresses", json!(["10.20.0.21"])), "have addresses in common");
    wrong(with("/endpoint/1/addresses", json!(["10.30.1.1"])), "10.30.0.0/16 of db and 10.30.1.1/32 of web-2");
    wrong(with("/endpoint/1/addresses", json!(["::ffff:10.20.0.12"])), "write it as IPv4");
    wrong(with("/endpoint/2/routes", json!(["10.30.0.1/16"])), "has bits behind its prefix");
    wrong(with("/endpoint/2/routes", json!(["0.0.0.0/0"])), "every address is in it");
    wrong(with("/endpoint/0/device", json!("tap*")), "is no device");
    wrong(with("/endpoint/0/device", json!("lo")), "is no device");
    wrong(with("/sets/partners", json!([])), "the set partners is empty");
    wrong(with("/sets/partners", json!(["198.51.100.1/24"])), "has bits behind its prefix");
    wrong(rule(json!({ "name": "sql", "from": ["shops"] })), "the rule sql names shops, which is no endpoint");
    wrong(rule(json!({ "name": "sql", "from": ["@partner"] })), "the set partner, which is not under sets");
    wrong(rule(json!({ "name": "sql", "to": [] })), "`to` of the rule sql is empty");
    wrong(rule(json!({ "name": "sql", "services": [] })), "`services` of the rule sql is empty");
    wrong(rule(json!({ "name": "sql", "services": ["tcp/0"] })), "has no port from 1 to 65535");
    wrong(rule(json!({ "name": "sql", "port": 80 })), "unknown field `port`");
    wrong(rule(json!({ "name": "sql", "to": ["10.0.0.1/8"] })), "has bits behind its prefix");
    wrong(rule(json!({ "name": "site" })), "site is the name of two rules");
    wrong(with("/deny/0", json!({ "name": "all" })), "the rule all denies every flow");
}

#[test]
fn a_packet_is_compared_with_few_rules_or_the_policy_is_refused() {
    let rules = |number: usize, to: &str| -> Vec<Value> {
        (0..number).map(|number| json!({ "name": format!("r{number}"), "from": ["@partners"], "to": [to] })).collect()
    };
    assert!(policy(&with("/allow", json!(rules(256, "web-1")))).is_ok());
    let said = policy(&with("/allow", json!(rules(257, "web-1")))).unwrap_err();
    assert!(said.contains("more than 256 rules to web-1"), "{said}");
    let said = policy(&with("/allow", json!(rules(257, "@partners")))).unwrap_err();
    assert!(said.contains("name no endpoint or group alone"), "{said}");
}
