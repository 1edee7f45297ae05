//! How `sallyport lab` finds and starts `sallyport-lab`.
//!
//! `cargo test --workspace` and `scripts/test` build it; `cargo build --package sallyport-lab` does so alone.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    harness::{Home, text},
    names::offered,
};

/// The program alone in a folder, without the laboratory beside it.
fn alone(home: &Home) -> PathBuf {
    let program = home.dir.path().join("alone/sallyport");
    fs::create_dir(program.parent().unwrap()).unwrap();
    let built = env!("CARGO_BIN_EXE_sallyport");
    fs::hard_link(built, &program).or_else(|_| fs::copy(built, &program).map(drop)).unwrap();
    program
}

/// A command of that program, with nothing on `PATH` but this folder.
fn command(home: &Home, program: &Path, path: &Path, args: &[&str]) -> Command {
    let mut command = home.program(program.to_str().unwrap());
    command.args(args).env("PATH", path);
    command
}

#[test]
fn without_the_laboratory_there_is_an_error() {
    let home = Home::new();
    let program = alone(&home);
    for args in [&["lab", "status"][..], &["lab", "--help"], &["help", "lab", "up"]] {
        let output = command(&home, &program, home.dir.path(), args).output().unwrap();
        let printed = text(&output.stderr);
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(1), ""), "{args:?}: {printed}");
        assert!(
            printed.starts_with("error: the laboratory is a program of its own, sallyport-lab, which is neither"),
            "{printed}"
        );
        assert!(printed.contains("\n  `sudo apt install sallyport-lab` installs its package"), "{printed}");
    }
    for args in [["lab", "ls", "-o", "json"], ["-o", "json", "lab", "ls"]] {
        let output = command(&home, &program, home.dir.path(), &args).output().unwrap();
        let error: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
        assert_eq!(error["error"]["kind"], "failed", "{error}");
    }
}

#[test]
fn the_one_on_the_path_gets_every_word_and_its_exit_code_is_that_of_the_command() {
    let home = Home::new();
    let program = alone(&home);
    let folder = home.dir.path().join("bin");
    fs::create_dir(&folder).unwrap();
    let stub = folder.join("sallyport-lab");
    fs::write(&stub, "#!/bin/sh\nfor word; do echo \"<$word>\"; done\nexit 7\n").unwrap();
    fs::set_permissions(&stub, fs::Permissions::from_mode(0o755)).unwrap();
    for (given, got) in [
        ("lab", ""),
        ("lab --help", "--help"),
        ("help lab fault kill", "fault kill --help"),
        ("lab --lab t1 up --regions 2 -o json", "--lab t1 up --regions 2 -o json"),
        ("-o yaml --color never --ca /x lab up", "--ca /x --output yaml --color never up"),
        ("lab -o json exec n -- sh -c a_b --c_d -- e", "--output json exec n -- sh -c a_b --c_d -- e"),
        ("--api https://api.example.com lab down -h", "down -h"),
    ] {
        let given: Vec<_> = given.split(' ').collect();
        let output = command(&home, &program, &folder, &given).output().unwrap();
        let words: Vec<_> = got.split(' ').filter(|word| !word.is_empty()).map(|word| format!("<{word}>\n")).collect();
        assert_eq!(text(&output.stdout), words.concat(), "{given:?}: {}", text(&output.stderr));
        assert_eq!(output.status.code(), Some(7), "{given:?}");
    }
}

#[test]
fn help_and_completion_are_those_of_the_laboratory() {
    let home = Home::new();
    let help = home.run(&["lab", "--help"]);
    let printed = text(&help.stdout);
    assert!(
        help.status.success() && printed.contains("Usage: sallyport lab [OPTIONS] <COMMAND>"),
        "{printed}{}",
        text(&help.stderr)
    );
    assert!(printed.contains("chaos") && !printed.contains("wires"), "{printed}");
    assert_eq!(text(&home.run(&["help", "lab"]).stdout).trim_end(), printed.trim_end());
    assert!(text(&home.run(&["help", "lab", "up"]).stdout).contains("Usage: sallyport lab up [OPTIONS]"));
    assert!(text(&home.run(&["--help"]).stdout).contains("  lab "));
    for (words, wanted) in [
        (&["lab", "cha"][..], "chaos"),
        (&["lab", "fault", "pa"], "partition"),
        (&["-o", "json", "lab", "up", "--no-p"], "--no-postgres"),
        (&["la"], "lab"),
    ] {
        let words = [&["sallyport"][..], words].concat();
        let offered = offered(&home, &words);
        assert!(offered.iter().any(|word| word.trim() == wanted), "{words:?}: {offered:?}");
    }
}
