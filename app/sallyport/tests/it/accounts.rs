//! Commands of account owners and operators: logins, resets, codes, sessions.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    process::{Child, Output, Stdio},
    time::{SystemTime, UNIX_EPOCH},
};

use sallyport_identity::totp;
use serde_json::{Value, json};

use crate::{
    harness::{Home, PASSWORD, Program, curl, text},
    tcp::free_port,
};

const NEXT: &str = "an even odder passphrase";
const EMAIL: &str = "test@example.com";

fn refused(output: &Output, code: i32, expected: &str) {
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{stderr}");
    assert!(stderr.contains(expected), "{expected:?} is not in: {stderr}");
}

/// Runs a command with this standard input.
fn fed(home: &Home, args: &[&str], input: &str) -> Output {
    let mut command = home.command(args);
    command.env_remove("SALLYPORT_PASSWORD").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn log_in(home: &Home, password: &str, more: &[&str]) -> Output {
    let mut command = home.command(&[&["login", "--email", EMAIL][..], more].concat());
    command.env("SALLYPORT_PASSWORD", password).output().unwrap()
}

#[test]
fn the_first_account_of_a_server_that_others_can_reach_is_its_operators() {
    let (home, elsewhere) = (Home::new(), Home::new());
    let (port, data) = (free_port(), home.data());
    let listen = format!("0.0.0.0:{port}");
    let args = ["up", "--listen", &listen, "--listen-http", "none", "--sign-up", "open", "--data"];
    let up = Program::start(&mut home.command(&[&args[..], &[data.to_str().unwrap()]].concat()));
    up.wait_for("setup_token=\"spu_");
    up.wait_for("ready");
    let token = fs::read_to_string(data.join("setup-token")).unwrap();
    assert!(up.output().contains(token.trim()));

    // The first stranger: by the API, the original clients' path and the command line.
    let (api, ca) = (format!("https://api.localhost:{port}"), elsewhere.dir.path().join("root.pem"));
    fs::copy(data.join("ca.pem"), &ca).unwrap();
    let eve = json!({"name": "Eve", "email": "eve@example.com", "password": PASSWORD}).to_string();
    for path in ["/v1/accounts", "/user"] {
        let response = curl(&ca, &format!("{api}{path}"), &["--json", &eve]);
        assert!(
            response.status == 403 && response.body.contains("setup token"),
            "{} {}",
            response.status,
            response.body
        );
    }
    let ca = ca.to_str().unwrap().to_owned();
    let create = |more: &[&'static str]| {
        let create = ["account", "create", "--name", "Eve", "--email", "eve@example.com", "--api", &api, "--ca", &ca];
        elsewhere.run(&[&create[..], more].concat())
    };
    refused(&create(&[]), 3, "--setup-token");
    refused(&create(&["--setup-token", "spu_nonsense"]), 3, "setup token");

    // The operator on the server types nothing more than on a laptop.
    home.account();
    assert!(!data.join("setup-token").exists());
    assert!(create(&[]).status.success(), "sign-up is open from then on");
    assert!(home.json(&["edge", "ls"]).as_array().is_some(), "the first one owns the installation");
}

#[test]
fn on_a_laptop_the_first_account_takes_no_token() {
    let home = Home::new();
    let up = home.up(&[]);
    assert!(!home.data().join("setup-token").exists() && !up.program.output().contains("setup_token"));
    home.account();
}

#[test]
fn a_password_is_changed_and_the_other_sessions_end() {
    let (home, phone) = (Home::new(), Home::new());
    let up = home.up(&[]);
    home.account();
    let (api, ca) = (format!("https://api.localhost:{}", up.port), up.ca.to_str().unwrap().to_owned());
    assert!(log_in(&phone, PASSWORD, &["--api", &api, "--ca", &ca]).status.success());
    let sessions = home.json(&["account", "session", "ls"]);
    let sessions = sessions.as_array().unwrap();
    assert_eq!(sessions.len(), 2, "{sessions:?}");
    assert!(sessions[1]["client"].as_str().unwrap().starts_with("sallyport/"), "{sessions:?}");
    assert_eq!((sessions[0]["current"].as_bool(), sessions[1]["address"].as_str()), (Some(true), Some("127.0.0.1")));
    assert!(text(&home.run(&["account", "session", "ls"]).stdout).contains("now, here"));

    refused(&fed(&home, &["account", "password", "--password-stdin"], "one line\n"), 2, "two lines");
    refused(&fed(&home, &["account", "password", "--password-stdin"], &format!("wrong\n{NEXT}\n")), 3, "is wrong");
    let changed = fed(&home, &["account", "password", "--password-stdin"], &format!("{PASSWORD}\n{NEXT}\n"));
    assert!(changed.status.success(), "{}", text(&changed.stderr));
    assert!(home.run(&["account", "show"]).status.success(), "this session goes on");
    refused(&phone.run(&["account", "show"]), 3, "sallyport login");
    refused(&log_in(&phone, PASSWORD, &[]), 3, "password is wrong");
    assert!(log_in(&phone, NEXT, &[]).status.success());
    refused(&home.run(&["account", "session", "end"]), 2, "--others");
    assert_eq!(home.json(&["account", "session", "end", "--others"])["ended"], 1);
    refused(&phone.run(&["account", "show"]), 3, "sallyport login");
    refused(&home.run(&["account", "session", "end", "0b7e3c1a-5f0e-4c57-9f63-6a1f0f9e2d11"]), 4, "no such session");
    refused(&home.run(&["account", "forgot", "--email", EMAIL]), 1, "sends no messages");
}

/// `account totp enable`, after it has printed its secret.
fn enrolling(home: &Home) -> (Child, BufReader<std::process::ChildStderr>, Vec<u8>) {
    let mut command = home.command(&["account", "totp", "enable", "-o", "json"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut printed = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    let secret = loop {
        line.clear();
        assert!(printed.read_line(&mut line).unwrap() > 0, "there was no secret");
        if let Some((_, secret)) = line.trim().split_once("type the secret: ") {
            break secret.to_owned();
        }
    };
    let (mut bits, mut count, mut bytes) = (0_u32, 0, Vec::new());
    for letter in secret.bytes() {
        let at = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567".iter().position(|known| *known == letter).unwrap();
        bits = bits << 5 | at as u32;
        count += 5;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    (child, printed, bytes)
}

#[test]
fn codes_are_set_up_required_and_reset_by_the_operator() {
    let home = Home::new();
    let _up = home.up(&[]);
    home.account();
    let (mut child, mut printed, secret) = enrolling(&home);
    let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap();
    let code = format!("000000\n{:06}\n", totp(&secret, now / 30));
    child.stdin.take().unwrap().write_all(code.as_bytes()).unwrap();
    let mut rest = String::new();
    printed.read_to_string(&mut rest).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && rest.contains("not the current code"), "{rest}");
    let codes: Value = serde_json::from_slice(&output.stdout).unwrap();
    let codes: Vec<_> = codes["recovery_codes"].as_array().unwrap().iter().map(|code| code.as_str().unwrap()).collect();
    assert_eq!(codes.len(), 10);
    assert!(text(&home.run(&["account", "show"]).stdout).contains("10 recovery codes are left"));

    refused(&log_in(&home, PASSWORD, &[]), 3, "--code");
    refused(&log_in(&home, PASSWORD, &["--code", "000000"]), 3, "the code is wrong");
    assert!(log_in(&home, PASSWORD, &["--code", codes[0]]).status.success());
    let mut by_variable = home.command(&["login", "--email", EMAIL]);
    assert!(by_variable.env("SALLYPORT_CODE", codes[1]).output().unwrap().status.success());
    assert!(!log_in(&home, PASSWORD, &["--code", codes[1]]).status.success(), "each works once");
    let fresh = home.json(&["account", "totp", "codes", "--code", codes[2]]);
    let fresh = fresh["recovery_codes"][0].as_str().unwrap().to_owned();
    refused(&home.run(&["account", "totp", "disable", "--code", codes[3]]), 3, "the code is wrong");

    // The owner has lost phone and password: the operator with the data directory helps, while `up` runs.
    let data = home.data();
    let data = data.to_str().unwrap();
    let nobody = home.run(&["account", "reset", "nobody@example.com", "--data", data]);
    refused(&nobody, 4, "no account nobody@example.com");
    let wrong = home.dir.path().join("config");
    refused(&home.run(&["account", "reset", EMAIL, "--data", wrong.to_str().unwrap()]), 4, "no database");
    let made = home.json(&["account", "reset", EMAIL, "--totp", "--data", data]);
    assert!(made["link"].as_str().unwrap().starts_with("https://login.localhost:"), "{made}");
    refused(&home.run(&["account", "show"]), 3, "sallyport login");
    refused(&log_in(&home, PASSWORD, &["--code", &fresh]), 3, "password is wrong");
    let set =
        |code: &str| fed(&home, &["account", "password", "--code", code, "--password-stdin"], &format!("{NEXT}\n"));
    refused(&set("spp_nonsense"), 4, "sets no password any more");
    let code = made["code"].as_str().unwrap();
    assert!(set(code).status.success());
    refused(&set(code), 4, "sets no password any more");
    assert!(log_in(&home, NEXT, &[]).status.success(), "no code is required");
}

#[test]
fn an_invitation_has_the_commands_for_the_invited_person() {
    let (home, bob) = (Home::new(), Home::new());
    let up = home.up(&["--sign-up", "closed"]);
    home.account();
    let invited = home.run(&["member", "add", "bob@example.com", "--role", "member"]);
    assert!(invited.status.success(), "{}", text(&invited.stderr));
    let printed = text(&invited.stderr);
    let command =
        printed.lines().find(|line| line.trim_start().starts_with("sallyport account create")).unwrap().trim();
    assert!(printed.contains("sallyport invitation accept spi_"), "{printed}");
    let words = command.replace("\"YOUR NAME\"", "Bob");
    let words: Vec<_> = words.split_whitespace().skip(1).collect();
    assert!(words.contains(&"--ca-fingerprint") && words.contains(&"--invitation"), "{command}");
    let other: Vec<_> =
        words.iter().map(|word| if *word == "bob@example.com" { "eve@example.com" } else { word }).collect();
    refused(&bob.run(&other), 3, "no open invitation of this address");
    let made = bob.run(&words);
    assert!(made.status.success(), "{}", text(&made.stderr));
    refused(&bob.run(&words), 3, "no open invitation of this address");
    // The next step is printed too.
    let next = text(&made.stderr);
    let next = next.lines().find_map(|line| line.trim().strip_prefix("next: sallyport ")).unwrap();
    let login = bob.run(&next.split_whitespace().collect::<Vec<_>>());
    assert!(login.status.success(), "{next}: {}", text(&login.stderr));
    let members = home.json(&["member", "ls"]);
    assert!(members.as_array().unwrap().iter().any(|one| one["email"] == "bob@example.com"), "{members}");
    drop(up);
}

#[test]
fn a_mail_hook_that_cannot_be_used_is_refused_before_anything_is_made() {
    let home = Home::new();
    let (secret, data) = (home.dir.path().join("secret"), home.data());
    fs::write(&secret, "0123456789abcdef0123456789abcdef\n").unwrap();
    let up = |hook: &str| {
        let secret = secret.to_str().unwrap();
        let args = ["up", "--listen", "127.0.0.1:0", "--listen-http", "none", "--data", data.to_str().unwrap()];
        home.run(&[&args[..], &["--mail-hook", hook, "--mail-hook-secret-file", secret]].concat())
    };
    refused(&up("https://mail.example.com/"), 1, "chmod 600");
    fs::set_permissions(&secret, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    refused(&up("http://mail.example.com/"), 2, "--mail-hook cannot be used");
    refused(&home.run(&["up", "--mail-hook", "https://mail.example.com/"]), 2, "--mail-hook-secret-file");
}
