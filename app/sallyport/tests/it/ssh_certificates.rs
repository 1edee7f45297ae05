//! Stock OpenSSH clients that log in with a certificate for one tunnel.

use std::{
    fs,
    process::{Command, Output},
};

use serde_json::{Value, json};

use crate::{
    harness::{Home, Origin, PASSWORD, Program, text, wait_until},
    ssh::{Account, make_key, to},
};

/// A tunnel: its socket, its id, its forward port.
struct Tunnel {
    socket: String,
    host: String,
    id: String,
    port: String,
}

impl Tunnel {
    fn new(account: &Account) -> Self {
        let (socket, host, _) = account.socket("http");
        let made = account.home.json(&["tunnel", "create", "--socket-id", &socket]);
        let id = made["id"].as_str().unwrap_or_else(|| panic!("{made}")).to_owned();
        Self { socket, host, id, port: made["forward_port"].to_string() }
    }

    /// Gets the key in this file signed. Returns the certificate's file.
    fn sign(&self, home: &Home, key: &str) -> String {
        let public = home.dir.path().join(format!("{key}.pub"));
        let arguments = ["tunnel", "sign-key", &self.socket, "--tunnel-id", &self.id, "--public-key"];
        let made = home.run(&[&arguments[..], &[public.to_str().unwrap()]].concat());
        assert!(made.status.success(), "{}", text(&made.stderr));
        let hint = text(&made.stderr);
        assert!(hint.contains("good until") && hint.contains(&format!("-R {}:localhost:PORT", self.port)), "{hint}");
        write(home, &format!("{key}-{}", self.port), &text(&made.stdout))
    }
}

fn write(home: &Home, name: &str, line: &str) -> String {
    let file = home.dir.path().join(name);
    fs::write(&file, line).unwrap();
    file.to_str().unwrap().to_owned()
}

/// `ssh` as this user with this key and a certificate for it.
fn ssh(account: &Account, user: &str, key: &str, certificate: &str, forward: &str) -> Command {
    let option = format!("CertificateFile={certificate}");
    account.ssh_with(user, key, &[&option], &[forward])
}

fn printed(output: &Output) -> String {
    text(&output.stdout) + &text(&output.stderr)
}

/// Asserts that the login is refused.
fn denied(mut ssh: Command, what: &str) {
    let output = ssh.output().unwrap();
    assert_eq!(output.status.code(), Some(255), "{what}: {}", printed(&output));
    assert!(printed(&output).contains("Permission denied"), "{what}: {}", printed(&output));
}

#[test]
fn a_certificate_serves_its_tunnel_and_opens_nothing_else() {
    let Some(account) = Account::new(&[]) else { return };
    let (home, user) = (&account.home, account.user.as_str());
    make_key(home, "fresh");
    let (one, other) = (Tunnel::new(&account), Tunnel::new(&account));
    let certificate = one.sign(home, "fresh");
    let origin = Origin::start("origin");
    let own = to(&one.port, origin.address);
    let serving = Program::start(&mut ssh(&account, user, "fresh", &certificate, &own));
    serving.wait_for("is open");
    assert!(account.up.curl(&one.host, "/a", &[]).body.starts_with("origin GET /a"));

    // Another tunnel, a new socket, the socket's name: none of them is this tunnel.
    let label = one.host.split('.').next().unwrap();
    for bind in [other.port.as_str(), "80", "0", &format!("{label}:80")] {
        let forward = to(bind, origin.address);
        let output = ssh(&account, user, "fresh", &certificate, &forward).arg("-v").output().unwrap();
        assert_eq!(output.status.code(), Some(255), "{bind}: {}", printed(&output));
        let wanted = format!("one tunnel alone: ask for its forward port, -R {}:", one.port);
        assert!(printed(&output).contains(&wanted), "{bind}: {}", printed(&output));
    }
    assert_eq!(home.json(&["socket", "ls"]).as_array().unwrap().len(), 2, "nothing was made");

    // The bare key, another user, another key, and certificates of others open nothing.
    denied(account.ssh_as(user, "fresh", &[&own]), "the bare key");
    denied(ssh(&account, &"0".repeat(32), "fresh", &certificate, &own), "another user");
    let foreign = make_key(home, "foreign");
    denied(ssh(&account, user, "foreign", &certificate, &own), "another key");
    let id = Command::new("ssh-keygen").args(["-L", "-f", &certificate]).output().unwrap();
    let shown = text(&id.stdout);
    let id = shown.lines().find_map(|line| line.trim().strip_prefix("Key ID: ")).unwrap().trim_matches('"').to_owned();
    let public = home.dir.path().join("foreign.pub");
    let forged = Command::new("ssh-keygen").args(["-q", "-s", &foreign, "-I", &id, "-n", user]).arg(&public).status();
    assert!(forged.unwrap().success());
    let forged = home.dir.path().join("foreign-cert.pub");
    denied(ssh(&account, user, "foreign", forged.to_str().unwrap(), &own), "a foreign authority");
    assert!(account.up.curl(&one.host, "/b", &[]).body.starts_with("origin GET /b"), "the login goes on");

    // A private key is never sent, and an unsupported key is refused with a sentence.
    let sign = ["tunnel", "sign-key", &one.socket, "--tunnel-id", &one.id, "--public-key"];
    let short = home.dir.path().join("short.pub");
    fs::write(&short, "ssh-dss AAAA").unwrap();
    for (file, reason) in [(foreign.as_str(), "private key"), (short.to_str().unwrap(), "type ssh-dss are not taken")] {
        let refused = home.run(&[&sign[..], &[file]].concat());
        assert!(!refused.status.success() && text(&refused.stderr).contains(reason), "{}", text(&refused.stderr));
    }

    // The authority's key is private.
    let mode = fs::metadata(home.data().join("ssh_user_authority_key")).unwrap().permissions();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777, 0o600);
}

#[test]
fn the_original_clients_call_signs_a_key_too() {
    let Some(account) = Account::new(&[]) else { return };
    let (home, user) = (&account.home, account.user.as_str());
    make_key(home, "fresh");
    let (tunnel, origin) = (Tunnel::new(&account), Origin::start("origin"));
    let post = |path: &str, token: &str, body: Value| {
        let (body, token) = (body.to_string(), format!("x-access-token: {token}"));
        let response = account.up.curl(
            "api.localhost",
            path,
            &["--data", &body, "-H", "content-type: application/json", "-H", &token],
        );
        assert_eq!(response.status, 200, "{}", response.body);
        serde_json::from_str::<Value>(&response.body).unwrap()
    };
    let login = post("/login", "", json!({"email": "test@example.com", "password": PASSWORD}));
    let path = format!("/socket/{}/tunnel/{}/signkey", tunnel.socket, tunnel.id);
    let public = fs::read_to_string(home.dir.path().join("fresh.pub")).unwrap();
    let signed = post(&path, login["token"].as_str().unwrap(), json!({"ssh_public_key": public}));
    let certificate = write(home, "fresh-cert.pub", signed["signed_ssh_cert"].as_str().unwrap());
    let serving = Program::start(&mut ssh(&account, user, "fresh", &certificate, &to(&tunnel.port, origin.address)));
    serving.wait_for("is open");
    assert_eq!(account.up.curl(&tunnel.host, "/", &[]).status, 200);
}

#[test]
fn keys_of_every_kind_log_in_by_certificate() {
    let Some(account) = Account::new(&[]) else { return };
    let (home, user) = (&account.home, account.user.as_str());
    let (tunnel, origin) = (Tunnel::new(&account), Origin::start("origin"));
    for kind in ["rsa", "ecdsa", "ed25519"] {
        let file = home.dir.path().join(kind);
        let made = Command::new("ssh-keygen").args(["-q", "-t", kind, "-N", "", "-f"]).arg(&file).status();
        assert!(made.unwrap().success());
        let certificate = tunnel.sign(home, kind);
        // Each login replaces the one before.
        let serving = Program::start(&mut ssh(&account, user, kind, &certificate, &to(&tunnel.port, origin.address)));
        serving.wait_for("is open");
        assert_eq!(account.up.curl(&tunnel.host, "/", &[]).status, 200, "{kind}");
    }
}

#[test]
fn an_invalid_certificate_gives_no_access_to_the_account() {
    let Some(account) = Account::new(&["--ssh-guests"]) else { return };
    let (home, user) = (&account.home, account.user.as_str());
    make_key(home, "fresh");
    let (tunnel, origin) = (Tunnel::new(&account), Origin::start("origin"));
    let certificate = tunnel.sign(home, "fresh");
    let forward = to(&tunnel.port, origin.address);
    assert!(home.run(&["tunnel", "delete", &tunnel.socket, "--tunnel-id", &tunnel.id]).status.success());
    // At a server that admits clients without an account, the client has no account.
    let output = ssh(&account, user, "fresh", &certificate, &forward).arg("-v").output().unwrap();
    assert_eq!(output.status.code(), Some(255), "{}", printed(&output));
    assert!(printed(&output).contains("without an account, ask for"), "{}", printed(&output));
}

#[test]
fn a_login_by_certificate_ends_with_its_tunnel_and_with_its_account() {
    let Some(account) = Account::new(&[]) else { return };
    let (home, user) = (&account.home, account.user.as_str());
    make_key(home, "fresh");
    let origin = Origin::start("origin");
    let (one, other) = (Tunnel::new(&account), Tunnel::new(&account));
    let login = |tunnel: &Tunnel| {
        let certificate = tunnel.sign(home, "fresh");
        let forward = to(&tunnel.port, origin.address);
        let serving = Program::start(&mut ssh(&account, user, "fresh", &certificate, &forward));
        serving.wait_for("is open");
        // A client without a forward.
        let option = format!("CertificateFile={certificate}");
        let idle = Program::start(&mut account.ssh_with(user, "fresh", &[&option], &[]));
        idle.wait_for("nothing is forwarded yet");
        (certificate, forward, serving, idle)
    };
    let (certificate, forward, serving, idle) = login(&one);
    let (_, _, others, _) = login(&other);
    assert!(home.run(&["ssh-key", "rm", "key"]).status.success(), "the account has no key any more");
    assert_eq!(account.up.curl(&one.host, "/", &[]).status, 200, "the login needs none");
    assert!(home.run(&["tunnel", "delete", &one.socket, "--tunnel-id", &one.id]).status.success());
    for ended in [&serving, &idle] {
        assert!(!ended.ended().success());
    }
    denied(ssh(&account, user, "fresh", &certificate, &forward), "a deleted tunnel");
    assert_eq!(account.up.curl(&other.host, "/", &[]).status, 200, "the other login goes on");
    assert!(home.run(&["socket", "delete", "--socket-id", &other.socket]).status.success());
    assert!(!others.ended().success());

    let last = Tunnel::new(&account);
    let (certificate, forward, serving, idle) = login(&last);
    let token = home.json(&["token", "create", "--name", "t", "--scope", "account:write"]);
    let bearer = format!("Authorization: Bearer {}", token["token"].as_str().unwrap());
    assert_eq!(account.up.curl("api.localhost", "/v1/account", &["-X", "DELETE", "-H", &bearer]).status, 204);
    for ended in [&serving, &idle] {
        assert!(!ended.ended().success());
    }
    denied(ssh(&account, user, "fresh", &certificate, &forward), "a deleted account");
}

#[test]
fn a_certificate_is_valid_for_minutes_and_the_login_stays() {
    let Some(account) = Account::with_clock() else { return };
    let (home, user) = (&account.home, account.user.as_str());
    make_key(home, "fresh");
    let tunnel = Tunnel::new(&account);
    let origin = Origin::start("origin");
    let (certificate, forward) = (tunnel.sign(home, "fresh"), to(&tunnel.port, origin.address));
    let serving = Program::start(&mut ssh(&account, user, "fresh", &certificate, &forward));
    serving.wait_for("is open");
    home.turn_clock("+400");
    wait_until("the certificate to be over", || {
        let output = ssh(&account, user, "fresh", &certificate, &forward).output().unwrap();
        printed(&output).contains("Permission denied").then_some(())
    });
    assert_eq!(account.up.curl(&tunnel.host, "/", &[]).status, 200, "the login goes on");
}
