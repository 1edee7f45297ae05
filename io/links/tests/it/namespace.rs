//! A network namespace for a test.

use std::process::{Command, Stdio};

/// Runs this ignored test in a network namespace of its own; says why if there can be none.
#[track_caller]
pub(crate) fn run_within(test: &str) {
    let can = Command::new("unshare").args(["--net", "ip", "link", "set", "lo", "up"]).output();
    if !can.is_ok_and(|output| output.status.success()) {
        println!("skipped: a network of its own needs root, and Debian's packages `util-linux` and `iproute2`");
        return;
    }
    let output = Command::new("unshare")
        .arg("--net")
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{shown}\n{errors}");
    assert!(shown.contains("1 passed"), "{shown}\n{errors}");
}

/// Runs `ip` with these words.
#[track_caller]
pub(crate) fn ip(words: &str) {
    let status = Command::new("ip").args(words.split_whitespace()).status().unwrap();
    assert!(status.success(), "ip {words}");
}
