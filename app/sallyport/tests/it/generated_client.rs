//! A client that a published generator makes from the description of the API, at the running program.

use std::process::Command;

use crate::{
    harness::{Home, text},
    protocols::{client, tool},
};

#[test]
fn a_generated_client_makes_finds_changes_and_deletes() {
    let Some(python) = tool("openapi-python-client") else { return };
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    let token = home.json(&["token", "create", "--name", "program", "--scope", "sockets:write,identity:read"]);
    let description = concat!(env!("CARGO_MANIFEST_DIR"), "/../../api/openapi.json");
    let api = up.url("api.localhost", "");
    let output = Command::new(python)
        .args([&client("generated.py"), description])
        .arg(home.dir.path())
        .args([api.trim_end_matches('/'), up.ca.to_str().unwrap(), token["token"].as_str().unwrap()])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    assert!(text(&output.stdout).ends_with("all done\n"), "{}", text(&output.stdout));
}
