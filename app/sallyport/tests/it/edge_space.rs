//! A network namespace with an edge, for tests that give machines links of their own to it.

use std::process::{Command, Stdio};

use crate::{harness::text, http3_paths::can_spoil_networks};

/// The domain of the edge.
pub(crate) const DOMAIN: &str = "edge.test";
/// The edge, which every link reaches.
pub(crate) const EDGE: &str = "10.9.0.1";

/// Runs this ignored test, with its module, in a namespace of its own, where names under the domain are the edge's.
pub(crate) fn run_within(test: &str) {
    if !can_spoil_networks() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let hosts = folder.path().join("hosts");
    std::fs::write(&hosts, format!("127.0.0.1 localhost\n{EDGE} {DOMAIN} api.{DOMAIN} tunnel.{DOMAIN}\n")).unwrap();
    let script =
        format!("set -e; mount --bind \"$0\" /etc/hosts; ip link set lo up; ip addr add {EDGE}/32 dev lo; exec \"$@\"");
    let output = Command::new("unshare")
        .args(["--net", "--mount", "sh", "-c", &script])
        .arg(&hosts)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{test}:\n{shown}\n{}", text(&output.stderr));
    assert!(shown.contains("1 passed"), "{test}:\n{shown}");
}

/// Runs a program that must work.
#[track_caller]
pub(crate) fn must(program: &str, words: &str) {
    let status = Command::new(program).args(words.split_whitespace()).status().unwrap();
    assert!(status.success(), "{program} {words}");
}
