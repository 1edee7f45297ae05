//! Programs that cannot log in reach sockets with an identity setting: psql, ssh, any TCP client.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::{Command, Output, Stdio},
    thread,
    time::{SystemTime, UNIX_EPOCH},
};

use sallyport_control::Secrets;
use sallyport_identity::{Purpose, Sealer};
use sallyport_model::{Account, AccountId, LoginSession, LoginSessionId, Person, Scope, ScopeSet, TokenId};
use sallyport_store::{Admission, NewAccount, NewToken, Store, StoredToken};
use serde_json::{Value, json};

use crate::{
    harness::{Home, Program, Up, text, wait_until},
    tcp::{Postgres, installed},
};

const TOKEN: &str = "spt_of-the-owner";

/// An installation whose owner has a `tls` socket for people of example.com, where Ann has logged in with her browser.
struct World {
    owner: Home,
    person: Home,
    up: Up,
    socket: String,
    host: String,
    cookie: String,
    _connector: Program,
}

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs().cast_signed()
}

/// Prepares the store as after a login by browser. Returns the cookie of that browser.
fn prepare(owner: &Home) -> String {
    let data = owner.data();
    fs::create_dir(&data).unwrap();
    fs::set_permissions(&data, fs::Permissions::from_mode(0o700)).unwrap();
    let (organisation, session) = (AccountId::from_random([1; 16]), LoginSessionId::from_random([2; 16]));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Store::open(&data).await.unwrap();
        let email = "owner@example.com".parse().unwrap();
        let account = Account { id: organisation, name: "Owner".to_owned(), email, created_at: now() };
        let password_hash = "$argon2id$none".to_owned();
        store
            .create_account(NewAccount { account, password_hash, ssh_key: None, admission: Admission::OPEN })
            .await
            .unwrap();
        let token = StoredToken {
            id: TokenId::from_random([3; 16]),
            organisation,
            name: "test".parse().unwrap(),
            scopes: ScopeSet::from(vec![Scope::SocketsWrite, Scope::IdentityWrite, Scope::TunnelsConnect]),
            created_at: now(),
            expires_at: None,
        };
        let hash = sha2::Digest::finalize(sha2::Digest::chain_update(<sha2::Sha256 as sha2::Digest>::new(), TOKEN));
        store.create_token(NewToken { account: organisation, token, hash: hash.into() }, None).await.unwrap();
        let person = Person {
            email: "ann@example.com".parse().unwrap(),
            name: None,
            groups: Vec::new(),
            groups_stated: true,
            provider: "dex".parse().unwrap(),
            subject: "1".to_owned(),
        };
        let (authenticated_at, expires_at) = (now() - 60, now() + 3_600);
        let login = LoginSession { id: session, organisation, person, authenticated_at, expires_at };
        store.begin_person_session(&login).await.unwrap();
        store.close().await;
    });
    let sealer = Sealer::new(Secrets::open_or_create(&data).unwrap().derived("seal"));
    let sealed = sealer.seal(Purpose::SignOn, &json!({ "session": session }), [4; 12]).unwrap();
    format!("__Host-sallyport-sso-{}={sealed}", &organisation.uuid().simple().to_string()[..12])
}

impl World {
    fn start(origin: SocketAddr) -> Self {
        let (owner, person) = (Home::new(), Home::new());
        let cookie = prepare(&owner);
        let up = owner.up(&[]);
        let body = json!({"name": "db", "type": "tls", "identity": {"email_domains": ["example.com"]}}).to_string();
        let made = api(&up, "POST", "/v1/sockets", &body);
        let (socket, host) = (made["id"].as_str().unwrap().to_owned(), made["dns_name"].as_str().unwrap().to_owned());
        let connector = owner.connector(&socket, origin, &["--token", TOKEN]);
        // A browser that only records URLs.
        let browser = person.dir.path().join("browser");
        fs::write(&browser, format!("#!/bin/sh\necho \"$1\" >> {}/opened\n", person.dir.path().display())).unwrap();
        fs::set_permissions(&browser, fs::Permissions::from_mode(0o755)).unwrap();
        Self { owner, person, up, socket, host, cookie, _connector: connector }
    }

    /// A command as Ann.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.person.command(args);
        command.env("BROWSER", self.person.dir.path().join("browser")).env_remove("SALLYPORT_NO_BROWSER");
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        let output = self.command(args).output().unwrap();
        eprintln!("$ sallyport {}\n{}{}", args.join(" "), text(&output.stdout), text(&output.stderr));
        output
    }

    /// The URLs that the browser opened.
    fn opened(&self) -> Vec<String> {
        let text = fs::read_to_string(self.person.dir.path().join("opened")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn page(&self, url: &str, more: &[&str]) -> crate::harness::HttpResponse {
        let cookie = format!("cookie: {}", self.cookie);
        let mut args = vec!["-H", &cookie];
        args.extend(more);
        crate::harness::curl(&self.up.ca, url, &args)
    }

    /// Ann opens the page in her browser, and decides. Returns the response.
    fn decide(&self, url: &str, decision: &str) -> crate::harness::HttpResponse {
        let page = self.page(url, &[]);
        assert_eq!(page.status, 200, "{}", page.body);
        assert!(page.body.contains(&self.host) && page.body.contains("ann@example.com"), "{}", page.body);
        let form = page.body.split("name=\"form\" value=\"").nth(1).unwrap().split('"').next().unwrap();
        let origin = format!("https://login.localhost:{}", self.up.port);
        let (path, _) = url.split_once('?').unwrap();
        let (form, origin) = (format!("form={form}&decision={decision}"), format!("origin: {origin}"));
        self.page(path, &["-H", &origin, "-d", &form])
    }

    /// Ann logs in with the browser that the command opens.
    fn log_in(&self) {
        let before = self.opened().len();
        let api = format!("https://api.localhost:{}", self.up.port);
        let ca = self.up.ca.to_str().unwrap().to_owned();
        let args = ["client", "login", "--host", &self.host, "--api", &api, "--ca", &ca];
        let login = Program::start(&mut self.command(&args));
        let url = wait_until("the browser", || self.opened().get(before).cloned());
        let sent = self.decide(&url, "allow");
        let back = sent.header("location").unwrap_or_else(|| panic!("{}", sent.head)).to_owned();
        assert!(back.starts_with("http://127.0.0.1:"), "{back}");
        let forged = back.replace("state=", "state=x");
        assert_eq!(crate::harness::curl(&self.up.ca, &forged, &[]).status, 404, "another login's code is not taken");
        let landed = crate::harness::curl(&self.up.ca, &back, &[]);
        assert!(landed.body.contains("You are logged in"), "{}", landed.body);
        assert!(login.ended().success());
    }

    /// The socket's name and port, by which Ann's next commands find the installation.
    fn at(&self) -> String {
        format!("{}:{}", self.host, self.up.port)
    }
}

fn api(up: &Up, method: &str, path: &str, body: &str) -> Value {
    let bearer = format!("authorization: Bearer {TOKEN}");
    let args = ["-X", method, "-H", &bearer, "-H", "content-type: application/json", "-d", body];
    let response = up.curl("api.localhost", path, &args);
    assert!(response.status < 300, "{path}: {} {}", response.status, response.body);
    serde_json::from_str(&response.body).unwrap()
}

/// Answers input in capitals until its end.
fn shouter() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let mut printed = Vec::new();
                drop(stream.read_to_end(&mut printed));
                drop(stream.write_all(&printed.to_ascii_uppercase()));
            });
        }
    });
    address
}

#[test]
fn a_login_in_the_browser_opens_the_socket_to_programs_and_is_used_again() {
    let world = World::start(shouter());
    world.log_in();
    let listed = world.run(&["client", "ls", "-o", "json"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert_eq!((&listed[0]["email"], &listed[0]["host"]), (&json!("ann@example.com"), &json!(world.host)));
    let saved = world.person.dir.path().join("config/sallyport/credentials.json");
    assert_eq!(fs::metadata(saved).unwrap().permissions().mode() & 0o777, 0o600);

    // Twice by the standard input and output, also by the suffix of ssh configurations; no browser opens again.
    for host in [world.at(), format!("{}.mysocket-dummy:{}", world.host, world.up.port)] {
        let mut command = world.command(&["client", "tls", "--host", &host]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"hello through the edge").unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(text(&output.stdout), "HELLO THROUGH THE EDGE", "{}", text(&output.stderr));
        assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
    }
    assert_eq!(world.opened().len(), 1);

    // Certificates as files, for openssl.
    let made = world.run(&["client", "cert", "--host", &world.at(), "-o", "json"]);
    let made: Value = serde_json::from_slice(&made.stdout).unwrap();
    let file = |name: &str| made[name].as_str().unwrap().to_owned();
    assert_eq!(fs::metadata(file("key")).unwrap().permissions().mode() & 0o777, 0o600);
    let verified = Command::new("openssl")
        .args(["verify", "-purpose", "sslclient", "-CAfile", &file("authority"), &file("certificate")])
        .output()
        .unwrap();
    assert!(verified.status.success(), "{verified:?}");

    // A logout ends the login everywhere: the browser opens again for a new one.
    let forgotten = world.run(&["client", "logout"]);
    assert!(text(&forgotten.stdout).contains(&world.host) && forgotten.stderr.is_empty());
    let again = Program::start(&mut world.command(&["client", "tls", "--host", &world.at()]));
    let url = wait_until("the browser", || world.opened().get(1).cloned());
    let page = world.page(&url, &[]);
    assert_eq!(page.status, 303, "{}", page.body);
    assert!(page.header("location").unwrap().starts_with("/sign-on?"), "{}", page.head);
    again.signal("TERM");
    again.ended();
}

#[test]
fn a_denied_person_gets_a_sentence() {
    let world = World::start(shouter());
    world.log_in();
    let body = json!({"identity": {"email_addresses": ["bob@example.com"]}}).to_string();
    api(&world.up, "PATCH", &format!("/v1/sockets/{}", world.socket), &body);
    let refused = world.run(&["client", "tls", "--host", &world.at()]);
    assert_eq!(refused.status.code(), Some(3));
    assert!(text(&refused.stderr).contains("ann@example.com is not admitted"), "{}", text(&refused.stderr));
    for (args, code, says) in [
        (&["client", "tls", "--host", "nonsense"][..], 2, "is no name of a socket"),
        (&["client", "tls", "--host", "a.b", "--listener", "0.0.0.0:1"], 2, "would have your access"),
        (&["client", "tls", "--host", "a.b", "--listener", "x"], 2, "it is no address"),
        (&["client", "ssh", "-x@a.b"], 2, ""),
        (&["client", "ssh-keysign", "--host", "a.b", "--key", "/nowhere/key"], 2, "there is no file"),
    ] {
        let output = world.run(args);
        assert_eq!(output.status.code(), Some(code), "{args:?}");
        assert!(text(&output.stderr).contains(says), "{args:?}: {}", text(&output.stderr));
    }
    let unknown = format!("calm-bay-1000.localhost:{}", world.up.port);
    let output = world.run(&["client", "login", "--no-browser", "--host", &unknown]);
    assert_eq!(output.status.code(), Some(4), "{}", text(&output.stderr));
    // A logout works while the server is away, with a warning.
    assert!(world.up.program.stop().success());
    let away = world.run(&["client", "logout"]);
    assert!(away.status.success() && text(&away.stdout).contains("logged out of"), "{}", text(&away.stderr));
    assert!(text(&away.stderr).contains("could not be ended there"), "{}", text(&away.stderr));
    assert!(!text(&world.run(&["client", "ls"]).stdout).contains(&world.host));
}

#[test]
fn a_code_logs_in_where_there_is_no_browser() {
    let world = World::start(shouter());
    let api = format!("https://api.localhost:{}", world.up.port);
    let ca = world.up.ca.to_str().unwrap().to_owned();
    let login = Program::start(&mut world.command(&[
        "client",
        "login",
        "--no-browser",
        "--host",
        &world.host,
        "--api",
        &api,
        "--ca",
        &ca,
    ]));
    login.wait_for("/device");
    let code = wait_until("the code", || {
        let output = login.output();
        output.lines().nth(1).map(|line| line.trim().to_owned()).filter(|code| code.len() == 9)
    });
    let url = format!("https://login.localhost:{}/device?code={code}", world.up.port);
    assert!(world.decide(&url, "allow").body.contains("is logged in"));
    assert!(login.ended().success(), "{}", login.output());
    assert!(world.opened().is_empty());
}

#[test]
fn psql_enters_through_a_local_listener() {
    let Some(postgres) = Postgres::start() else { return };
    let Some(psql) = installed("psql", "postgresql-client") else { return };
    let world = World::start(postgres.address);
    world.log_in();
    let listener =
        Program::start(&mut world.command(&["client", "tls", "--host", &world.at(), "--listener", "127.0.0.1:0"]));
    let line = listener.wait_for("listening at ");
    let port = line.split("127.0.0.1:").nth(1).unwrap().split(' ').next().unwrap().to_owned();
    assert!(line.contains("ann@example.com"), "{line}");
    let target = format!("host=127.0.0.1 port={port} user=postgres sslmode=disable connect_timeout=30");
    for _ in 0..2 {
        let output = Command::new(&psql).args(["-d", &target, "-At", "-c", "select 6 * 7"]).output().unwrap();
        assert_eq!(text(&output.stdout).trim(), "42", "{}", text(&output.stderr));
    }
    assert_eq!(world.opened().len(), 1);
    // Clients without a certificate are refused.
    assert!(TcpStream::connect(("127.0.0.1", world.up.port)).is_ok());
    let bare = Command::new("openssl")
        .args(["s_client", "-connect", &format!("127.0.0.1:{}", world.up.port), "-servername", &world.host])
        .args(["-CAfile", world.up.ca.to_str().unwrap(), "-quiet"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(text(&bare.stderr).contains("alert"), "{}", text(&bare.stderr));
}

#[test]
fn a_stock_ssh_enters_a_host_behind_a_socket() {
    if !PathBuf::from("/usr/sbin/sshd").exists() {
        assert!(std::env::var_os("CI").is_none(), "sshd must be there in CI");
        println!("skipped: there is no sshd here (Debian's package `openssh-server` is missing)");
        return;
    }
    let port = crate::tcp::free_port();
    let world = World::start(SocketAddr::from(([127, 0, 0, 1], port)));
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().display().to_string();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f", &format!("{at}/host")]).status();
    assert!(made.unwrap().success());
    let owner = |args: &[&str]| {
        let output = world.owner.command(&[args, &["--token", TOKEN]].concat()).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    let shown: Value = serde_json::from_str(&owner(&["ssh-ca", "show", "-o", "json"])).unwrap();
    let authority = shown["public_key"].as_str().unwrap();
    assert!(owner(&["socket", "show", &world.socket]).contains(authority), "the socket shows its authority");
    let host_key = format!("{at}/host.pub");
    let certificate = owner(&["ssh-ca", "sign-host", &world.socket, "--public-key", &host_key]);
    fs::write(format!("{at}/host-cert.pub"), certificate).unwrap();
    fs::write(format!("{at}/ca.pub"), format!("{authority}\n")).unwrap();
    fs::write(format!("{at}/principals"), "ann@example.com\n").unwrap();
    drop(fs::create_dir_all("/run/sshd"));
    let config = format!(
        "Port {port}\nListenAddress 127.0.0.1\nHostKey {at}/host\nHostCertificate {at}/host-cert.pub\nPidFile none\n\
         TrustedUserCAKeys {at}/ca.pub\nAuthorizedPrincipalsFile {at}/principals\nAuthorizedKeysFile none\n\
         PasswordAuthentication no\nKbdInteractiveAuthentication no\nUsePAM no\nStrictModes no\n\
         PermitRootLogin prohibit-password\n"
    );
    fs::write(format!("{at}/sshd_config"), config).unwrap();
    let mut sshd = Command::new("/usr/sbin/sshd");
    let _sshd = Program::start(sshd.args(["-D", "-e", "-f", &format!("{at}/sshd_config")]).stdin(Stdio::null()));
    wait_until("sshd", || TcpStream::connect(("127.0.0.1", port)).ok());
    world.log_in();
    let user = text(&Command::new("id").arg("-un").output().unwrap().stdout).trim().to_owned();
    let destination = format!("{user}@{}", world.at());
    let output = world.run(&[
        "client",
        "ssh",
        &destination,
        "-o",
        "BatchMode=yes",
        "-o",
        "StrictHostKeyChecking=yes",
        "echo",
        "entered",
    ]);
    assert!(output.status.success() && text(&output.stdout).contains("entered"), "{}", text(&output.stderr));

    // By the recipe for ssh's own configuration.
    let ssh_dir = world.person.dir.path().join(".ssh");
    fs::create_dir(&ssh_dir).unwrap();
    let key = ssh_dir.join("id_ed25519");
    let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key).status();
    assert!(made.unwrap().success());
    let recipe = text(&world.run(&["ssh-config", "--key", key.to_str().unwrap()]).stdout);
    // The port of the installation, which ssh does not know.
    let recipe = recipe.replace("--host '%h'", &format!("--host '%h:{}'", world.up.port));
    let file = ssh_dir.join("config");
    fs::write(&file, &recipe).unwrap();
    let mut ssh = world.person.program("ssh");
    ssh.args(["-F", file.to_str().unwrap(), "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes"]);
    let output = ssh.args(["-l", &user, &format!("{}.sallyport", world.host), "echo entered"]).output().unwrap();
    assert!(text(&output.stdout).contains("entered"), "{recipe}{}", text(&output.stderr));
    assert_eq!(world.opened().len(), 1, "one login for all of it");
    let shown =
        Command::new("ssh-keygen").args(["-L", "-f"]).arg(format!("{}-cert.pub", key.display())).output().unwrap();
    assert!(text(&shown.stdout).contains("Key ID: \"ann@example.com\""), "{}", text(&shown.stdout));
}
