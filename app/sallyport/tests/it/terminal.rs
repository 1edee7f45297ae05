//! What a person sees on a terminal.

use std::{path::Path, process::Command};

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

/// The file of a new public key, which is called `laptop`.
fn ssh_key(home: &Home) -> String {
    let key = home.dir.path().join("key").display().to_string();
    let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-C", "laptop", "-f", &key]).status();
    assert!(made.unwrap().success());
    format!("{key}.pub")
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
fn an_empty_list_shows_the_next_step_to_people_and_is_empty_for_programs() {
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
    assert!(text(&home.run(&["socket", "ls"]).stdout).starts_with("NAME "), "a table in a pipe");
    assert_eq!(on_a_terminal(&home, &["show"], &["socket", "ls", "-o", "json"]).lines().next(), Some("[]"));
}

#[test]
fn irreversible_commands_prompt_on_a_terminal_and_nowhere_else() {
    let home = Home::new();
    let _up = home.up(&["--direct-origins", "127.0.0.0/8"]);
    home.account();
    home.json(&["socket", "create", "--name", "my blog"]);
    home.json(&["tunnel", "create", "my blog", "--name", "web 1"]);
    let answered = |answer: &str, args: &[&str]| on_a_terminal(&home, &["answer", "[y/N]", answer], args);
    let seen = answered("", &["socket", "delete", "my blog"]);
    assert!(seen.contains("Delete the socket my blog (https://") && seen.contains("with its tunnel?"), "{seen}");
    assert!(seen.contains("nothing was changed") && seen.ends_with("exit 1\n"), "{seen}");
    assert!(answered("n", &["tunnel", "delete", "web 1"]).ends_with("exit 1\n"));
    let seen = answered("y", &["tunnel", "delete", "web 1"]);
    assert!(seen.contains("Delete the tunnel web 1?") && seen.ends_with("deleted web 1\n\nexit 0\n"), "{seen}");
    let seen = on_a_terminal(&home, &["show"], &["socket", "delete", "my blog", "--yes"]);
    assert_eq!(seen, "deleted my blog\n\nexit 0\n", "there was no prompt");

    home.json(&["socket", "create", "--name", "shop"]);
    let public_key = ssh_key(&home);
    let removed: [(&[&str], &[&str]); 4] = [
        (&["policy", "rm", "staff"], &["policy", "create", "staff", "--email-domain", "example.com"]),
        (&["token", "delete", "ci"], &["token", "create", "--name", "ci", "--scope", "sockets:read"]),
        (&["ssh-key", "rm", "laptop"], &["ssh-key", "add", &public_key]),
        (&["socket", "origin", "rm", "shop", "127.0.0.1:9"], &["socket", "origin", "add", "shop", "127.0.0.1:9"]),
    ];
    for (args, make) in removed {
        home.json(make);
        assert!(answered("no", args).ends_with("exit 1\n"), "{args:?}");
        assert!(answered("yes", args).ends_with("exit 0\n"), "{args:?}");
        home.json(make);
        assert!(home.run(args).status.success(), "no prompt on a pipe");
    }
}

#[test]
fn lists_fit_eighty_columns_and_commands_take_what_they_show() {
    let home = Home::new();
    let _up = home.up(&[]);
    home.account();
    let long = "a socket with quite a long name, as people call things";
    home.json(&["socket", "create", "--name", long, "--type", "tcp"]);
    home.json(&["socket", "create", "--name", "blog"]);
    let tunnel = home.json(&["tunnel", "create", "blog"]);
    home.json(&[
        "token",
        "create",
        "--name",
        long,
        "--scope",
        "sockets:read,sockets:write,tunnels:connect,account:read",
    ]);
    home.json(&["service-token", "create", long]);
    home.json(&["policy", "create", "staff", "--email-domain", "example.com"]);
    home.json(&["ssh-key", "add", &ssh_key(&home), "--name", long]);
    let lists: [&[&str]; 12] = [
        &["edge", "ls"],
        &["ssh-key", "ls"],
        &["socket", "ls"],
        &["tunnel", "ls"],
        &["tunnel", "ls", "blog"],
        &["token", "ls"],
        &["service-token", "ls"],
        &["member", "ls"],
        &["organisation", "ls"],
        &["audit"],
        &["policy", "ls"],
        &["login-session", "ls"],
    ];
    for list in lists {
        let seen = on_a_terminal(&home, &["show"], list);
        let wide = seen.lines().filter(|line| line.chars().count() > 80).collect::<Vec<_>>();
        assert!(wide.is_empty() && seen.ends_with("exit 0\n"), "{list:?}: {seen}");
    }
    let id = tunnel["id"].as_str().unwrap();
    let listed = text(&home.run(&["tunnel", "ls"]).stdout);
    assert!(listed.contains(&id[..8]) && !listed.contains(id), "{listed}");
    assert!(text(&home.run(&["tunnel", "ls", "-o", "wide"]).stdout).contains(id));
    let listed = text(&home.run(&["token", "ls"]).stdout);
    let short = listed.lines().nth(1).unwrap().split_whitespace().last().unwrap().to_owned();
    for delete in [&["tunnel", "delete", &id[..8]][..], &["token", "delete", &short]] {
        assert!(home.run(delete).status.success(), "{delete:?}");
    }
    assert!(text(&home.run(&["socket", "ls"]).stdout).contains(long), "a pipe gets names whole");
}
