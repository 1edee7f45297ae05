//! The laboratory as a program, without a network: what stands is tested with the whole of Sallyport, in app/sallyport.
#![allow(missing_docs, clippy::unwrap_used)]

mod measure;

use std::{
    path::Path,
    process::{Command, Output},
};

/// Runs the program.
fn run(dir: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sallyport-lab"));
    command.env_remove("SALLYPORT_CA").env("NO_COLOR", "1").arg("--dir").arg(dir).args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn it_is_called_as_a_command_of_sallyport() {
    let dir = tempfile::tempdir().unwrap();
    let help = run(dir.path(), &["up", "--help"]);
    let printed = text(&help.stdout);
    assert!(help.status.success() && printed.contains("Usage: sallyport lab up [OPTIONS]"), "{printed}");
    assert!(printed.contains("--regions <COUNT>") && printed.contains("Global options"), "{printed}");
    let wrong = run(dir.path(), &["up", "--region", "2"]);
    let printed = text(&wrong.stderr);
    assert!(wrong.status.code() == Some(2) && printed.contains("'--regions'"), "{printed}");
}

#[test]
fn programs_get_json() {
    let dir = tempfile::tempdir().unwrap();
    let list = run(dir.path(), &["ls", "-o", "json"]);
    assert_eq!((list.status.code(), text(&list.stdout).trim()), (Some(0), "[]"), "{}", text(&list.stderr));
    let none = run(dir.path(), &["status", "-o", "json"]);
    let printed: serde_json::Value = serde_json::from_slice(&none.stderr).unwrap();
    assert_eq!((none.status.code(), &printed["error"]["kind"]), (Some(4), &"not-found".into()), "{printed}");
    let wrong = run(dir.path(), &["nonsense", "-o", "json"]);
    let printed: serde_json::Value = serde_json::from_slice(&wrong.stderr).unwrap();
    assert_eq!((wrong.status.code(), &printed["error"]["kind"]), (Some(2), &"usage".into()), "{printed}");
}

#[test]
fn a_simulation_needs_no_laboratory_and_says_what_is_wrong_with_its_options() {
    let dir = tempfile::tempdir().unwrap();
    let steering = |args: &[&str]| run(dir.path(), &[&["simulate", "steering"], args].concat());
    let list = text(&steering(&["--list"]).stdout);
    assert!(list.contains("origin-loss") && list.lines().count() == 10, "{list}");
    let svg = dir.path().join("article.svg");
    let done = steering(&["--scenario", "article", "--seed", "2", "--svg", svg.to_str().unwrap()]);
    let printed = text(&done.stdout);
    assert!(done.status.success() && printed.contains("article, seed 2,") && printed.contains("pass"), "{printed}");
    assert!(std::fs::read_to_string(svg).unwrap().starts_with("<svg "));
    for (args, words) in [
        (&["--scenario", "flush"][..], "no scenario is called \"flush\"; there are article, flash, diurnal"),
        (&["--loss", "51"], "expected a whole number from 0 to 50"),
        (&["--delay", "11s"], "expected 10s at the most"),
        (&["--seeds", "5..5"], "5..5 has no seed"),
        (&["--seeds", "5"], "expected two whole numbers, such as 0..100"),
        (&["--svg", "all.svg"], "a drawing shows one scenario"),
    ] {
        let wrong = steering(args);
        let printed = text(&wrong.stderr);
        assert!(wrong.status.code() == Some(2) && printed.contains(words), "{args:?}: {printed}");
    }
    let dns = |args: &[&str]| run(dir.path(), &[&["simulate", "dns", "--clients", "100"], args].concat());
    let dialed = dns(&["--dial", "eu=50", "-o", "json"]);
    let report: serde_json::Value = serde_json::from_slice(&dialed.stdout).unwrap();
    assert!(dialed.status.success() && report["moves"][0]["from"] == "eu", "{report}");
    assert!(text(&dns(&["--dial", "eu=50"]).stdout).contains("\nmoved  "));
    for (args, words) in [
        (&["--dial", "mars=1"][..], "the map has no region mars: use ap, eu, us-east, us-west"),
        (&["--dial", "eu=101"], "expected REGION=PERCENT, such as eu=50"),
        (&["--down", "eu,us-east,us-west"], "two regions with edges are needed"),
    ] {
        let wrong = dns(args);
        let printed = text(&wrong.stderr);
        assert!(wrong.status.code() == Some(2) && printed.contains(words), "{args:?}: {printed}");
    }
    let solved = run(dir.path(), &["simulate", "solver", "--edges", "20", "--origins", "5", "-o", "json"]);
    let solved: serde_json::Value = serde_json::from_slice(&solved.stdout).unwrap();
    assert_eq!(solved["gap_percent"], 0.0, "{solved}");
}
