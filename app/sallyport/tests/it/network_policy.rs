//! `sallyport network policy`: files, right and wrong, and what a machine enforces, in a network namespace of its own.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    process::{Command, Output},
};

use serde_json::json;

use crate::harness::{Home, text};

const SHOP: &str = r#"
network = "shop"
[sets]
partners = ["198.51.100.0/24"]
[[endpoint]]
name = "web-1"
addresses = ["10.20.0.11", "fd00:20::11"]
groups = ["web"]
device = "tap1"
[[endpoint]]
name = "db"
addresses = ["10.20.0.21"]
routes = ["10.30.0.0/16"]
[[allow]]
name = "sql"
from = ["web"]
to = ["db"]
services = ["tcp/5432"]
[[allow]]
name = "site"
to = ["web"]
services = ["tcp/80-443"]
[[deny]]
name = "no-partners"
from = ["@partners"]
to = ["web"]
"#;

fn write(home: &Home, text: &str) -> String {
    let file = home.dir.path().join("policy.toml");
    fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn test_names_the_rule_that_decides() {
    let home = Home::new();
    let file = write(&home, SHOP);
    let test = |words: &[&str]| home.json(&[&["network", "policy", "test", &file], words].concat());
    let sql = test(&["web-1", "db", "tcp/5432"]);
    assert_eq!((&sql["allowed"], &sql["rule"]), (&json!(true), &json!("sql")), "{sql}");
    assert_eq!((&sql["from"], &sql["to"]), (&json!("10.20.0.11"), &json!("10.20.0.21")), "one family");
    assert_eq!(test(&["web-1", "10.30.5.5", "tcp/5432"])["rule"], "sql");
    assert_eq!(test(&["2001:db8::1", "web-1", "tcp/443"])["rule"], "site");
    let partner = test(&["198.51.100.7", "web-1", "tcp/443"]);
    assert_eq!((&partner["allowed"], &partner["rule"]), (&json!(false), &json!("no-partners")));
    let other = test(&["db", "web-1", "icmp"]);
    assert_eq!((&other["allowed"], &other["rule"]), (&json!(false), &json!(null)));
    assert_eq!(test(&["web-1", "db", "tcp/5432", "--in", "tap1"])["allowed"], true);
    let spoofed = test(&["web-1", "db", "tcp/5432", "--in", "tap2"]);
    assert!(spoofed["by"].as_str().unwrap().contains("do not come by that device"), "{spoofed}");
    assert_eq!(test(&["192.0.2.1", "192.0.2.2", "udp/1"])["allowed"], true, "the policy is about endpoints only");
    let lines = text(&home.run(&["network", "policy", "test", &file, "web-1", "db", "tcp/5432"]).stdout);
    assert!(lines.contains("allowed") && lines.contains("the rule sql, which says allow"), "{lines}");
    let checked = home.json(&["network", "policy", "check", &file]);
    assert_eq!((&checked["endpoints"], &checked["rules"]), (&json!(2), &json!(3)), "{checked}");
    let rules = text(&home.run(&["network", "policy", "check", &file, "--nft"]).stdout);
    assert!(rules.contains("table inet sallyport_network_shop {"), "{rules}");
}

#[test]
fn what_is_wrong_is_said_in_one_sentence() {
    let home = Home::new();
    let file = write(&home, SHOP);
    for (words, code, says) in [
        (&["web-9", "db", "tcp/1"][..], 4, "there is no endpoint \"web-9\""),
        (&["web-1", "db", "tcp/0"], 2, "has no port from 1 to 65535"),
        (&["web-1", "db", "tcp"], 2, "is not one port"),
        (&["web-1", "db", "tcp/1-2"], 2, "is not one port"),
        (&["web-1", "db", "sctp/1"], 2, "expected tcp, udp or icmp"),
        (&["db", "2001:db8::1", "icmp"], 2, "no family of IP in common"),
        (&["::ffff:10.0.0.1", "db", "icmp"], 2, "write it as IPv4"),
        (&["10.0.0.0/8", "db", "icmp"], 2, "is a network"),
        (&["web-1", "db", "tcp/5432", "--expect", "deny"], 1, "it is allowed, by the rule sql"),
        (&["web-1", "db", "tcp/22", "--expect", "allow"], 1, "it is denied, by no rule"),
    ] {
        let output = home.run(&[&["network", "policy", "test", &file], words].concat());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
        assert!(said.contains(says), "{words:?}: {said}");
    }
    for (document, says) in [
        (String::new(), "policy.toml, line 1: missing field `network`"),
        ("network = \"shop\"".to_owned(), "policy.toml: the policy has no endpoint"),
        (SHOP.replace("\"shop\"", "\"Shop\""), "policy.toml, line 2: \"Shop\" is no name"),
        (SHOP.replace("from = [\"web\"]", "from = [\"shops\"]"), "the rule sql names shops, which is no endpoint"),
        (SHOP.replace("from = [\"web\"]", "from = []"), "`from` of the rule sql is empty"),
        (SHOP.replace("tcp/5432", "tcp/0"), "line 18: \"tcp/0\" has no port from 1 to 65535"),
        (SHOP.replace("10.30.0.0/16", "10.20.0.0/24"), "have addresses in common"),
        (SHOP.replace("10.30.0.0/16", "10.30.0.1/16"), "the network is 10.30.0.0/16"),
    ] {
        let file = write(&home, &document);
        let output = home.run(&["network", "policy", "check", &file]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(says), "{said}, not {says}");
    }
    let missing = home.run(&["network", "policy", "check", "/nonexistent"]);
    assert!(text(&missing.stderr).contains("there is no file /nonexistent"), "{}", text(&missing.stderr));
}

/// A network namespace, removed at the end.
struct Namespace(String);

impl Namespace {
    /// `None`, with the reason printed, for other users than root.
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: rules of the kernel are root's");
            return None;
        }
        let namespace = Self(format!("spnp{}", std::process::id()));
        namespace.ip(&["netns", "add", &namespace.0]);
        namespace.ip(&["-n", &namespace.0, "link", "set", "lo", "up"]);
        namespace.ip(&["-n", &namespace.0, "addr", "add", "10.20.0.21/32", "dev", "lo"]);
        Some(namespace)
    }

    fn ip(&self, args: &[&str]) {
        assert!(Command::new("ip").args(args).status().unwrap().success(), "ip {args:?}");
    }

    fn run(&self, home: &Home, words: &[&str], ssh: Option<&str>) -> Output {
        let mut command = home.program("ip");
        command.args(["netns", "exec", &self.0, env!("CARGO_BIN_EXE_sallyport"), "network", "policy"]).args(words);
        command.env_remove("SSH_CONNECTION").envs(ssh.map(|value| ("SSH_CONNECTION", value)));
        let output = command.output().unwrap();
        println!("$ {words:?}\n{}{}", text(&output.stdout), text(&output.stderr));
        output
    }

    fn done(&self, home: &Home, words: &[&str]) -> String {
        let output = self.run(home, words, None);
        assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    fn rules(&self) -> String {
        let output = Command::new("ip").args(["netns", "exec", &self.0, "nft", "list", "ruleset"]).output().unwrap();
        text(&output.stdout)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        drop(Command::new("ip").args(["netns", "del", &self.0]).status());
    }
}

#[test]
fn a_machine_enforces_a_file_until_it_is_removed() {
    let Some(namespace) = Namespace::new() else { return };
    let home = Home::new();
    let file = write(&home, SHOP);
    assert_eq!(namespace.done(&home, &["show", "-o", "json"]).trim(), "[]");
    let applied = namespace.done(&home, &["apply", &file]);
    assert!(applied.contains("network shop: 2 endpoints, 3 rules; flows that have ended: 0"), "{applied}");
    let shown = namespace.done(&home, &["show", "shop", "-o", "json"]);
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    let rules: Vec<_> = shown.as_array().unwrap().iter().map(|one| one["rule"].as_str().unwrap()).collect();
    for rule in ["sql", "site", "no-partners", "default", "spoofed", "invalid"] {
        assert!(rules.contains(&rule), "{rule}: {rules:?}");
    }
    // A wrong file leaves what stands, and so does one that would lock its author out.
    let before = namespace.rules();
    let wrong = write(&home, &SHOP.replace("from = [\"web\"]", "from = [\"shops\"]"));
    assert_eq!(namespace.run(&home, &["apply", &wrong], None).status.code(), Some(2));
    let file = write(&home, SHOP);
    let ssh = Some("10.20.0.11 40000 10.20.0.21 22");
    let locked = namespace.run(&home, &["apply", &file], ssh);
    assert_eq!(locked.status.code(), Some(5));
    assert!(text(&locked.stderr).contains("ends the ssh connection from 10.20.0.11"), "{}", text(&locked.stderr));
    assert!(text(&locked.stderr).contains("allow tcp/22 from 10.20.0.11 to 10.20.0.21, or add --force"));
    assert_eq!(namespace.rules(), before);
    assert!(namespace.run(&home, &["apply", &file, "--force"], ssh).status.success());
    assert!(namespace.run(&home, &["apply", &file], Some("203.0.113.1 40000 203.0.113.2 22")).status.success());
    // Removed, and nothing of it is left.
    assert_eq!(namespace.run(&home, &["rm", "shops"], None).status.code(), Some(4));
    assert_eq!(namespace.run(&home, &["show", "shops"], None).status.code(), Some(4));
    namespace.done(&home, &["rm", "shop"]);
    assert_eq!(namespace.rules(), "");
    assert_eq!(namespace.run(&home, &["rm", "shop"], None).status.code(), Some(4));
}

#[test]
fn others_than_root_are_told_so() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root becomes nobody");
        return;
    }
    let home = Home::new();
    // Every user may run the program there.
    fs::set_permissions(home.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = home.dir.path().join("sallyport");
    fs::copy(env!("CARGO_BIN_EXE_sallyport"), &program).unwrap();
    let mut command = home.program("setpriv");
    command.args(["--reuid", "65534", "--clear-groups"]).arg(&program).args(["network", "policy", "rm", "shop"]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("only root may see and change rules of the kernel"));
}
