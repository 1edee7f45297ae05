//! The command line of the program. Tests at a real API server are beside those of `sallyport`, which starts it.

#![allow(clippy::unwrap_used)]

use std::process::{Command, Output};

/// Runs the program with no environment and an empty home.
fn run(args: &[&str]) -> Output {
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sallyport-kube"));
    command.args(args).env_clear().env("HOME", home.path()).current_dir(home.path());
    command.output().unwrap()
}

#[test]
fn what_is_missing_or_wrong_is_named_in_a_sentence() {
    for (args, says) in [
        (&[][..], "the cluster has no name"),
        (&["--cluster", "Prod"], "is no name of a cluster"),
        (&["--cluster", "prod"], "has no address"),
        (&["--cluster", "prod", "--api", "https://api.example.com"], "there is no API token"),
        (&["--cluster", "prod", "--redundancy", "9"], "from 1 to 4"),
        (&["cleanup", "--clutser", "prod"], "--cluster"),
    ] {
        let output = run(args);
        let printed = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {printed}");
        assert!(printed.contains(says), "{args:?}: {printed}");
    }
}

#[test]
fn the_help_names_every_command() {
    let output = run(&["--help"]);
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && ["--cluster", "cleanup", "ls"].iter().all(|word| printed.contains(word)));
}
