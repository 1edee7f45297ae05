//! What a person sees on a terminal.

use std::path::Path;

use crate::harness::{Home, text};

/// What `terminal.py` prints of the program with these arguments.
fn on_a_terminal(home: &Home, how: &[&str], args: &[&str]) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/clients/terminal.py");
    let mut python = home.program("python3");
    python.arg(script).args(how).arg(env!("CARGO_BIN_EXE_sallyport")).args(args).env_remove("SALLYPORT_PASSWORD");
    let output = python.output().unwrap();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn ctrl_c_at_the_prompt_for_a_password_leaves_the_terminal_as_it_was() {
    let home = Home::new();
    let _up = home.up(&[]);
    let how = ["interrupt", "assword"];
    for args in [&["login", "--email", "a@example.com"][..], &["account", "create", "--name", "A", "--email", "a@b.cc"]]
    {
        let seen = on_a_terminal(&home, &how, args);
        assert!(seen.contains("\ninterrupted with echo\nexit 130\n"), "{args:?}: {seen}");
    }
}

#[test]
fn an_empty_list_says_what_comes_next_to_people_and_stays_a_list_for_programs() {
    let home = Home::new();
    let _up = home.up(&[]);
    home.account();
    let (socket, host) = home.socket(&[]);
    let name = host.split('.').next().unwrap();
    let tunnels = ["tunnel", "ls", name];
    assert!(on_a_terminal(&home, &["show"], &tunnels).contains(&format!("sallyport tunnel connect {name} PORT")));
    assert!(on_a_terminal(&home, &["show"], &["token", "ls"]).contains("sallyport token create"));
    assert!(home.run(&["socket", "delete", &socket]).status.success());
    let sockets = on_a_terminal(&home, &["show"], &["socket", "ls"]);
    assert!(sockets.contains("sallyport connect PORT") && sockets.ends_with("exit 0\n"), "{sockets}");
    assert_eq!(home.json(&["socket", "ls"]), serde_json::json!([]));
    assert!(text(&home.run(&["socket", "ls"]).stdout).starts_with("SOCKET "), "a table in a pipe");
    assert_eq!(on_a_terminal(&home, &["show"], &["socket", "ls", "-o", "json"]).lines().next(), Some("[]"));
}
