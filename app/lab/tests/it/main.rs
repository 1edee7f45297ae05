//! The laboratory as a program, without a network: what stands is tested with the whole of Sallyport, in app/sallyport.
#![allow(missing_docs, clippy::unwrap_used)]

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
