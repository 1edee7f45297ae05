//! A real browser logs in at a real identity provider, and opens sockets with an identity setting.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};

use crate::{
    harness::{Home, Origin, Program, curl, text, wait_until},
    protocols::{client, tool},
    tcp::free_port,
};

/// The hash of `pw`, with few rounds.
const PASSWORD_HASH: &str = "$2b$10$e32Bo9v/ZSBAHQ5uoQPpCepvyn8y3hHu32mtSlaeroS5ignGXPDDu";

pub(crate) fn browser() -> Option<PathBuf> {
    let found = ["/usr/bin/chromium", "/usr/bin/chromium-browser"].into_iter().find(|path| Path::new(path).exists());
    assert!(found.is_some() || std::env::var_os("CI").is_none(), "chromium must be there in CI");
    if found.is_none() {
        println!("skipped: there is no chromium here");
    }
    found.map(PathBuf::from)
}

/// Dex with one user and this redirect URI.
fn dex(program: &Path, home: &Home, port: u16, redirect: &str) -> Program {
    let health = format!("127.0.0.1:{}", free_port());
    let config = json!({
        "issuer": format!("http://127.0.0.1:{port}/dex"),
        "storage": {"type": "memory"},
        "web": {"http": format!("127.0.0.1:{port}")},
        "telemetry": {"http": health},
        "oauth2": {"skipApprovalScreen": true},
        "enablePasswordDB": true,
        "staticPasswords": [{"email": "alice@example.test", "username": "alice", "userID": "u-alice", "groups": ["eng"],
            "emailVerified": true, "hash": PASSWORD_HASH}],
        "staticClients": [{"id": "edge", "name": "edge", "secret": "s3cret", "redirectURIs": [redirect]}],
    });
    let file = home.dir.path().join("dex.json");
    std::fs::write(&file, config.to_string()).unwrap();
    let dex = Program::start(Command::new(program).arg("serve").arg(&file));
    wait_until("dex", || {
        let response = Command::new("curl").args(["-sf", &format!("http://{health}/healthz/ready")]).output().unwrap();
        response.status.success().then_some(())
    });
    dex
}

/// Dex as a provider of the logged-in account's organisation, and its issuer.
pub(crate) fn provider(program: &Path, home: &Home) -> (Program, String) {
    let port = free_port();
    let secret = home.dir.path().join("secret");
    std::fs::write(&secret, "s3cret\n").unwrap();
    let issuer = format!("http://127.0.0.1:{port}/dex");
    let provider = home.json(&[
        "provider",
        "add",
        "dex",
        "--kind",
        "oidc",
        "--issuer",
        &issuer,
        "--client-id",
        "edge",
        "--client-secret-file",
        secret.to_str().unwrap(),
    ]);
    (dex(program, home, port, provider["redirect_uri"].as_str().unwrap()), issuer)
}

#[test]
fn a_browser_logs_in_once_for_two_sockets_and_out_again() {
    let (Some(chromium), Some(playwright), Some(dex_program)) = (browser(), tool("playwright"), tool("dex")) else {
        return;
    };
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    let (_dex, issuer) = provider(&dex_program, &home);

    let origin = Origin::start("app");
    let token =
        home.json(&["token", "create", "--name", "test", "--scope", "sockets:write", "--scope", "identity:write"]);
    let token = token["token"].as_str().unwrap();
    let mut hosts = Vec::new();
    let mut connectors = Vec::new();
    for _ in 0..2 {
        let (id, host) = home.socket(&[]);
        let asks = json!({"identity": {"email_domains": ["example.test"]}}).to_string();
        let path = format!("/v1/sockets/{id}");
        let bearer = format!("Authorization: Bearer {token}");
        let changed = up.curl(
            "api.localhost",
            &path,
            &["-X", "PATCH", "-H", &bearer, "-H", "Content-Type: application/json", "-d", &asks],
        );
        assert_eq!(changed.status, 200, "{}", changed.body);
        connectors.push(home.connector(&id, origin.address, &[]));
        hosts.push(host);
    }
    let [first, second] = [&hosts[0], &hosts[1]].map(|host| format!("https://{host}:{}", up.port));
    let output = Command::new("node")
        .arg(client("browser.mjs"))
        .args([&playwright, &chromium])
        .args([&first, &second, "alice@example.test", "pw"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}\n{}", text(&output.stderr), up.program.output());
    let seen: Value = serde_json::from_slice(&output.stdout).unwrap();

    assert!(seen["provider"].as_str().unwrap().starts_with(&issuer), "{seen}");
    let headers = seen["first"].as_str().unwrap().to_ascii_lowercase();
    assert!(
        headers.contains("get /deep/page?a=b") && headers.contains("x-auth-email: alice@example.test"),
        "{headers}"
    );
    assert!(headers.contains("x-sallyport-assertion: ey") && !headers.contains("__host-sallyport"), "{headers}");
    let cookies = seen["cookies"].as_array().unwrap();
    let login = cookies.iter().find(|cookie| cookie["name"] == "__Host-sallyport").unwrap();
    assert_eq!((&login["secure"], &login["httpOnly"], &login["sameSite"]), (&true.into(), &true.into(), &"Lax".into()));
    assert_eq!(login["domain"], hosts[0].as_str(), "no other host gets it");
    assert_eq!(seen["secondUrl"], format!("{second}/other"), "one login for both");
    assert!(seen["second"].as_str().unwrap().to_ascii_lowercase().contains("x-auth-email: alice@example.test"));
    assert_eq!(seen["crossOrigin"], "refused");
    assert!(seen["asked"].as_str().unwrap().contains("You have logged out in this browser"), "{seen}");
    assert!(seen["afterLogout"].as_str().unwrap().starts_with(&issuer), "{seen}");

    let stranger = curl(&up.ca, &format!("{first}/"), &["-H", "X-Auth-Email: alice@example.test"]);
    assert_eq!(stranger.status, 401, "{}", stranger.body);
}

#[test]
fn a_browser_logs_in_with_a_password_and_a_code_that_are_kept_here() {
    let (Some(chromium), Some(playwright)) = (browser(), tool("playwright")) else { return };
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    home.json(&["provider", "add", "local", "--require-totp"]);
    let invited = home.json(&["person", "add", "Alice@Example.test", "--group", "eng"]);
    let link = invited["link"].as_str().unwrap();

    let origin = Origin::start("app");
    let (id, host) = home.socket(&["--cloudauth", "--allowed-email-domains", "example.test"]);
    let _connector = home.connector(&id, origin.address, &[]);
    let socket = format!("https://{host}:{}", up.port);
    let output = Command::new("node")
        .arg(client("local_login.mjs"))
        .args([&playwright, &chromium])
        .args([&socket, link, "alice@example.test", "blue bicycle on a hill"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}\n{}", text(&output.stderr), up.program.output());
    let seen: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(seen["refused"], json!([]), "a page of ours tried what its policy forbids");
    assert_eq!(seen["wayOn"], format!("{socket}/"), "{seen}");
    assert_ne!(seen["button"], "rgba(0, 0, 0, 0)", "the style is that of the policy");
    assert!(
        seen["wrongPassword"].as_str().unwrap().contains("is wrong") && seen["kept"] == "alice@example.test",
        "{seen}"
    );
    for headers in ["first", "second"] {
        let headers = seen[headers].as_str().unwrap().to_ascii_lowercase();
        assert!(
            headers.contains("get /deep/page?a=b") && headers.contains("x-auth-email: alice@example.test"),
            "{headers}"
        );
        assert!(headers.contains("x-auth-provider: local") && headers.contains("x-auth-groups: eng"), "{headers}");
    }
    assert_eq!(seen["recovery"], 10, "{seen}");
    assert!(seen["picture"]["width"].as_f64().unwrap() > 100.0, "{seen}");
    assert!(seen["account"].as_str().unwrap().contains("10 recovery codes are left"), "{seen}");
    assert!(seen["wrong"].as_str().unwrap().contains("This code is wrong"), "{seen}");
    let shown = home.json(&["person", "show", "alice@example.test"]);
    assert_eq!((&shown["state"], &shown["recovery_codes"]), (&"active".into(), &9.into()));
    home.json(&["person", "disable", "alice@example.test"]);
    assert_eq!(home.json(&["login-session", "ls"]), json!([]));
}

/// What Chromium shows at this address, in its own home, with certificate checks on.
fn shown_by_chromium(chromium: &Path, home: &Home, address: &str) -> String {
    let mut command = home.program(chromium.to_str().unwrap());
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--dump-dom"]);
    command.args(["--disable-background-networking", "--disable-component-update", "--disable-sync"]);
    command.arg(format!("--user-data-dir={}", home.dir.path().join("profile").display())).arg(address);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn a_browser_believes_the_root_from_when_it_is_installed_until_it_is_removed() {
    let Some(chromium) = browser() else { return };
    if Command::new("certutil").arg("-H").output().is_err() {
        assert!(std::env::var_os("CI").is_none(), "certutil must be there in CI");
        println!("skipped: there is no certutil here (Debian's package `libnss3-tools`)");
        return;
    }
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    let origin = Origin::start("app");
    let (id, host) = home.socket(&[]);
    let _connector = home.connector(&id, origin.address, &[]);
    let address = up.url(&host, "/page");
    // A profile of Firefox, as after a first start.
    let firefox = home.dir.path().join(".mozilla/firefox/abc.default");
    std::fs::create_dir_all(&firefox).unwrap();
    let database = format!("sql:{}", firefox.display());
    assert!(Command::new("certutil").args(["-N", "--empty-password", "-d", &database]).status().unwrap().success());
    let in_firefox = || {
        let listed = Command::new("certutil").args(["-L", "-d", &database]).output().unwrap();
        text(&listed.stdout).lines().any(|line| line.starts_with("sallyport-") && line.trim_end().ends_with("C,,"))
    };

    assert!(!shown_by_chromium(&chromium, &home, &address).contains("app GET /page"), "it believes whatever it sees");
    let installed = home.json(&["trust", "install", "--only-browsers"]);
    let browsers: Vec<_> = installed["browsers"].as_array().unwrap().iter().map(|one| &one["browser"]).collect();
    assert_eq!(browsers, ["chromium", "firefox"], "{installed}");
    assert!(installed["browsers"].as_array().unwrap().iter().all(|one| one["changed"] == true), "{installed}");
    let seen = shown_by_chromium(&chromium, &home, &address);
    assert!(seen.contains("app GET /page"), "{seen}");
    assert!(in_firefox());
    let again = home.json(&["trust", "install", "--only-browsers"]);
    assert!(again["browsers"].as_array().unwrap().iter().all(|one| one["changed"] == false), "{again}");
    let checks = home.json(&["doctor"]);
    let check = checks.as_array().unwrap().iter().find(|check| check["name"] == "browsers").unwrap();
    assert_eq!(check["state"], "ok", "{check}");

    let removed = home.json(&["trust", "remove", "--only-browsers"]);
    assert!(removed["browsers"].as_array().unwrap().iter().all(|one| one["changed"] == true), "{removed}");
    assert!(!in_firefox());
    assert!(!shown_by_chromium(&chromium, &home, &address).contains("app GET /page"));
}
