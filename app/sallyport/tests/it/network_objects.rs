//! `sallyport network`: networks of an installation, their machines and their policies.

use std::fs;

use serde_json::{Value, json};

use crate::harness::{Home, Up, text};

const POLICY: &str = r#"
network = "shop"
[[allow]]
name = "sql"
from = ["web"]
to = ["db"]
services = ["tcp/5432"]
"#;

/// Adds a machine as a program does that joins.
fn add_machine(home: &Home, up: &Up, body: &Value) -> Value {
    let scopes = ["--scope", "sockets:write", "--scope", "identity:write"];
    let token = home.json(&[["token", "create", "--name", "join"].as_slice(), &scopes].concat());
    let bearer = format!("authorization: Bearer {}", token["token"].as_str().unwrap());
    let body = body.to_string();
    let request = ["-H", &bearer, "-H", "content-type: application/json", "-d", &body];
    let added = up.curl("api.localhost", "/v1/networks/shop/machines", &request);
    assert_eq!(added.status, 201, "{}", added.body);
    serde_json::from_str(&added.body).unwrap()
}

#[test]
fn a_network_is_made_judged_and_removed() {
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    let made = home.json(&["network", "create", "shop", "--range", "10.20.0.0/24", "--range", "fd00:20::/64"]);
    assert_eq!((&made["name"], &made["ranges"][0]), (&json!("shop"), &json!("10.20.0.0/24")), "{made}");
    let file = home.dir.path().join("policy.toml");
    fs::write(&file, POLICY).unwrap();
    let file = file.to_str().unwrap();
    let refused = |args: &[&str], code: i32, words: &str| {
        let output = home.run(args);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        assert!(said.contains(words), "{args:?}: {said}");
    };
    refused(&["network", "create", "other", "--range", "10.20.0.0/16"], 5, "10.20.0.0/24 of the network shop");
    refused(&["network", "policy", "set", "shop", file], 5, "the rule sql names web, which is no endpoint");
    refused(&["network", "policy", "get", "shop"], 4, "the network has none");
    refused(&["network", "show", "nowhere"], 4, "no such network");

    let web = add_machine(&home, &up, &json!({"name": "web-1", "groups": ["web"]}));
    assert_eq!(web["addresses"], json!(["10.20.0.1", "fd00:20::1"]));
    assert!(web["credential"].as_str().is_some() && web["edge"]["port"].as_u64().is_some(), "{web}");
    add_machine(&home, &up, &json!({"name": "db", "routes": ["10.30.0.0/16"], "is_exit": true}));
    let test = |service: &str| home.json(&["network", "policy", "test", "--network", "shop", "web-1", "db", service]);
    assert_eq!(test("tcp/22")["allowed"], true, "without a policy");
    let set = home.json(&["network", "policy", "set", "shop", file]);
    assert_eq!(set["rules"], 1);
    assert_eq!((&test("tcp/22")["allowed"], &test("tcp/5432")["rule"]), (&json!(false), &json!("sql")));
    assert_eq!(home.json(&["network", "policy", "get", "shop"])["document"], POLICY);
    let both = ["network", "policy", "test", "--network", "shop", file, "web-1", "db", "tcp/22"];
    refused(&both, 2, "a file or --network, and not both");

    let shown = text(&home.run(&["network", "show", "shop"]).stdout);
    for words in ["1 rule; what none allows is denied", "10.20.0.2 fd00:20::2", "10.30.0.0/16", "web-1"] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    assert_eq!(home.json(&["network", "ls"])[0]["machines"], 2);
    assert_eq!(home.json(&["network", "machine", "ls", "shop"])[0]["name"], "db");
    refused(&["network", "rm", "shop"], 5, "the network has machines (2)");
    home.json(&["network", "machine", "rm", "shop", "web-1"]);
    refused(&["network", "machine", "rm", "shop", "web-1"], 4, "no such machine");
    home.json(&["network", "policy", "unset", "shop"]);
    home.json(&["network", "rm", "shop", "--force"]);
    assert_eq!(home.json(&["network", "ls"]), json!([]));
}
