//! Stock OpenSSH clients as tunnels: logins, forwards, and the live log.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    thread,
    time::Duration,
};

use russh::{
    client,
    keys::{PrivateKey, PrivateKeyWithHashAlg},
};

use crate::{
    harness::{Home, Origin, PATIENCE, Program, Up, fresh_name, text, wait_until},
    protocols::{call, service, tool},
    tcp::free_port,
};

/// A client that trusts every server.
struct Believes;

impl client::Handler for Believes {
    type Error = russh::Error;

    async fn check_server_key(&mut self, _: &russh::keys::PublicKeyOrCertificate) -> Result<bool, Self::Error> {
        Ok(true)
    }
}

/// An account at an `up`, with a key for OpenSSH.
pub(crate) struct Account {
    pub(crate) home: Home,
    pub(crate) up: Up,
    pub(crate) user: String,
    known_hosts: PathBuf,
}

impl Account {
    /// `None` with a message if ssh is missing outside of CI.
    pub(crate) fn new(options: &[&str]) -> Option<Self> {
        Self::at(Home::new(), options)
    }

    /// The same with a clock that the test sets.
    pub(crate) fn with_clock() -> Option<Self> {
        Self::at(Home::with_clock()?, &[])
    }

    fn at(home: Home, options: &[&str]) -> Option<Self> {
        if Command::new("ssh").arg("-V").stderr(Stdio::null()).status().is_err() {
            assert!(std::env::var_os("CI").is_none(), "ssh must be there in CI");
            println!("skipped: there is no ssh here (Debian's package `openssh-client`)");
            return None;
        }
        let up = home.up(options);
        home.account();
        let key = make_key(&home, "key");
        home.json(&["ssh-key", "add", &format!("{key}.pub")]);
        let (socket, _) = home.socket(&[]);
        let ssh = home.json(&["socket", "show", "--socket-id", &socket])["ssh"].clone();
        let lines: Vec<&str> = ssh["known_hosts"].as_array().unwrap().iter().map(|l| l.as_str().unwrap()).collect();
        assert!(home.run(&["socket", "delete", "--socket-id", &socket]).status.success());
        let known_hosts = home.dir.path().join("known_hosts");
        fs::write(&known_hosts, lines.join("\n") + "\n").unwrap();
        Some(Self { user: ssh["user"].as_str().unwrap().to_owned(), home, up, known_hosts })
    }

    /// `ssh` as this user with this key, strict about the server's key; the forwards are `-R` options.
    pub(crate) fn ssh_as(&self, user: &str, key: &str, forwards: &[&str]) -> Command {
        self.ssh_with(user, key, &[], forwards)
    }

    /// The same with these options first, because the first one counts.
    pub(crate) fn ssh_with(&self, user: &str, key: &str, options: &[&str], forwards: &[&str]) -> Command {
        let mut command = Command::new("ssh");
        let port = self.up.port.to_string();
        command.args(["-F", "none", "-p", &port, "-l", user, "-i"]).arg(self.home.dir.path().join(key));
        let known = format!("UserKnownHostsFile={}", self.known_hosts.display());
        let usual = [
            "IdentitiesOnly=yes",
            "StrictHostKeyChecking=yes",
            "GlobalKnownHostsFile=none",
            "ExitOnForwardFailure=yes",
            "ConnectTimeout=30",
            &known,
        ];
        for option in options.iter().chain(&usual) {
            command.args(["-o", option]);
        }
        for forward in forwards {
            command.args(["-R", forward]);
        }
        command.env_remove("SSH_AUTH_SOCK").env("LC_ALL", "C").stdin(Stdio::null()).arg("localhost");
        command
    }

    /// `ssh` with the account's key and these forwards.
    pub(crate) fn ssh(&self, forwards: &[&str]) -> Program {
        let program = Program::start(&mut self.ssh_as(&self.user, "key", forwards));
        program.wait_for("is open");
        program
    }

    /// The output and exit status of a refused `ssh`.
    fn refused(&self, user: &str, key: &str, forwards: &[&str]) -> (Option<i32>, String) {
        let output = self.ssh_as(user, key, forwards).output().unwrap();
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    }

    /// A socket of this type: id, host name, own port.
    pub(crate) fn socket(&self, socket_type: &str) -> (String, String, u16) {
        let socket = self.home.json(&["socket", "create", "--name", &fresh_name(), "--type", socket_type]);
        let port = socket["port"].as_u64().and_then(|port| port.try_into().ok()).unwrap_or(0);
        (socket["id"].as_str().unwrap().to_owned(), socket["dns_name"].as_str().unwrap().to_owned(), port)
    }

    /// Whether a client that signs with RSA and SHA-1 is admitted, by the key in this file. OpenSSH does not try,
    /// because the server lists its signatures.
    fn is_let_in_with_sha1(&self, file: &Path) -> bool {
        let key = Arc::new(PrivateKey::read_openssh_file(file).unwrap());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut old = client::connect(Arc::default(), ("127.0.0.1", self.up.port), Believes).await.unwrap();
            let asked = old.authenticate_publickey(&self.user, PrivateKeyWithHashAlg::new(key, None));
            tokio::time::timeout(PATIENCE, asked).await.unwrap().unwrap().success()
        })
    }

    /// The number of a metric.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        let shown = self.up.curl("api.localhost", "/metrics", &[]).body;
        let line = shown.lines().find(|line| line.split(' ').next() == Some(name));
        let line = line.unwrap_or_else(|| panic!("no {name} in {shown}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }
}

/// Makes a key in a file with this name. Returns its path.
pub(crate) fn make_key(home: &Home, name: &str) -> String {
    let file = home.dir.path().join(name);
    let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-C", name, "-f"]).arg(&file).status();
    assert!(made.unwrap().success());
    file.to_str().unwrap().to_owned()
}

/// `-R` for a web service at this address.
pub(crate) fn to(bind: &str, origin: SocketAddr) -> String {
    format!("{bind}:{}:{}", origin.ip(), origin.port())
}

/// The host name in a line such as `https://calm-bay-0001.localhost:8443/ is open`.
pub(crate) fn host_in(line: &str) -> String {
    let rest = line.split_once("://").unwrap_or_else(|| panic!("no URL in {line:?}")).1;
    rest.split([':', '/', ' ']).next().unwrap().to_owned()
}

/// A range of one free port.
pub(crate) fn free_range() -> (u16, String) {
    let port = free_port();
    (port, format!("{port}-{port}"))
}

/// The first answer of the service at this port.
pub(crate) fn first_response(port: u16) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"GET /raw HTTP/1.1\r\n\r\n").unwrap();
    let mut bytes = [0; 1_024];
    let count = stream.read(&mut bytes).unwrap();
    text(&bytes[..count])
}

#[test]
fn a_shell_shows_the_address_and_each_request_with_its_outcome_first() {
    let Some(account) = Account::new(&[]) else { return };
    let origin = Origin::start("origin");
    let ssh = account.ssh(&[&to("80", origin.address)]);
    let host = host_in(&ssh.wait_for("is open"));
    assert!(ssh.output().contains("Sallyport: your forwards"), "{}", ssh.output());
    let response = account.up.curl(&host, "/hello?a=b", &[]);
    assert!(response.status == 200 && response.body.starts_with("origin GET /hello?a=b\n"), "{}", response.body);
    let line = ssh.wait_for("/hello?a=b");
    assert!(line.starts_with("200 GET ") && line.contains(" ms  127.0.0.1 "), "{line:?}");
    // Input of visitors cannot control the terminal.
    assert_eq!(account.up.curl(&host, "/x%1b%5b2J", &["-X", "DELETE"]).status, 200);
    let second = ssh.wait_for("/x%1b");
    assert!(second.starts_with("200 DELETE"), "{second:?}");
    assert_eq!(line.find("127.0.0.1"), second.find("127.0.0.1"), "columns:\n{line}\n{second}");
    assert_eq!(account.metric("sallyport_edge_ssh_forwards_open"), 1);
    assert_eq!(account.metric("sallyport_edge_ssh_logins_total"), 1);
    assert!(account.metric("sallyport_edge_ssh_streams_total") >= 1);
    drop(ssh);
    wait_until("the temporary socket to be removed", || (account.up.curl(&host, "/", &[]).status == 404).then_some(()));
    wait_until("the forward to be over", || (account.metric("sallyport_edge_ssh_forwards_open") == 0).then_some(()));
}

#[test]
fn one_login_serves_sockets_of_several_kinds_by_name_by_forward_port_and_new_ones() {
    let (port, range) = free_range();
    let Some(account) = Account::new(&["--port-range", &range]) else { return };
    let (web, raw, fresh) = (Origin::start("web"), Origin::start("raw"), Origin::start("fresh"));
    let (socket, host, _) = account.socket("http");
    let (tcp, _, own_port) = account.socket("tcp");
    assert_eq!(own_port, port);
    let tunnel = account.home.json(&["tunnel", "create", "--socket-id", &tcp]);
    let forward_port = tunnel["forward_port"].as_u64().unwrap_or_else(|| panic!("{tunnel}"));
    let label = host.split('.').next().unwrap();
    let forwards =
        [to(&format!("{label}:80"), web.address), to(&forward_port.to_string(), raw.address), to("80", fresh.address)];
    let ssh = account.ssh(&forwards.each_ref().map(String::as_str));
    wait_until("three addresses", || (ssh.output().matches("is open").count() == 3).then_some(()));
    assert!(account.up.curl(&host, "/?page=1", &[]).body.starts_with("web GET /?page=1"));
    assert!(first_response(port).starts_with("HTTP/1.1 200"));
    let shown = ssh.wait_for("/?page=1");
    assert!(shown.contains(label), "with several forwards each line names its socket: {shown:?}");
    assert_eq!(raw.count(), 1);
    let new = ssh.output().lines().filter(|l| l.contains("(-R 80)")).map(host_in).find(|h| *h != host).unwrap();
    assert!(account.up.curl(&new, "/b", &[]).body.starts_with("fresh GET /b"));
    assert_eq!(account.home.json(&["socket", "show", "--socket-id", &socket])["tunnels_up"], 1);
    drop(ssh);
    wait_until("the named socket to be without a tunnel", || {
        (account.home.json(&["socket", "show", "--socket-id", &socket])["tunnels_up"] == 0).then_some(())
    });
    assert_eq!(account.home.json(&["tunnel", "ls", "--socket-id", &tcp]).as_array().unwrap().len(), 1);
}

#[test]
fn a_tcp_flow_is_shown_when_it_is_over() {
    let (port, range) = free_range();
    let Some(account) = Account::new(&["--port-range", &range]) else { return };
    let echo = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = echo.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in echo.incoming().map_while(Result::ok) {
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).unwrap();
            stream.write_all(&bytes).unwrap();
        }
    });
    let ssh = account.ssh(&[&to("0", address)]);
    // OpenSSH prints the assigned port.
    ssh.wait_for(&format!("Allocated port {port} for remote forward"));
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    client.write_all(&[7; 5_000]).unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    let mut back = Vec::new();
    client.read_to_end(&mut back).unwrap();
    assert_eq!(back, [7; 5_000], "the half-closed direction did not end the other");
    let line = ssh.wait_for("tcp 5.0 kB in, 5.0 kB out");
    assert!(line.starts_with("complete "), "{line:?}");
}

#[test]
fn a_service_that_speaks_tls_is_served_by_a_forward_of_443() {
    let Some(account) = Account::new(&[]) else { return };
    let dir = account.home.dir.path();
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=mine"])
        .args(["-days", "2", "-keyout"])
        .arg(dir.join("tls.key"))
        .arg("-out")
        .arg(dir.join("tls.pem"))
        .stderr(Stdio::null())
        .status();
    assert!(made.unwrap().success());
    let port = free_range().0;
    let mut server = Command::new("openssl");
    server.args(["s_server", "-quiet", "-www", "-accept", &format!("127.0.0.1:{port}"), "-cert"]);
    server.arg(dir.join("tls.pem")).arg("-key").arg(dir.join("tls.key")).stdin(Stdio::null());
    let _server = Program::start(&mut server);
    wait_until("the service", || TcpStream::connect(("127.0.0.1", port)).ok());
    let ssh = account.ssh(&[&format!("443:127.0.0.1:{port}")]);
    let response = account.up.curl(&host_in(&ssh.wait_for("is open")), "/", &[]);
    assert!(response.status == 200 && response.body.contains("TLSv1.3"), "{} {}", response.head, response.body);
    // A service without TLS has another error than a missing one.
    let plain = Origin::start("plain");
    let ssh = account.ssh(&[&to("443", plain.address)]);
    let response = account.up.curl(&host_in(&ssh.wait_for("is open")), "/", &[]);
    assert_eq!(response.status, 502, "{}", response.body);
}

#[test]
fn logins_with_a_foreign_key_or_an_unknown_user_are_refused_with_a_hint() {
    let Some(account) = Account::new(&[]) else { return };
    make_key(&account.home, "foreign");
    let stranger = "0".repeat(32);
    for (user, key) in [(account.user.as_str(), "foreign"), (stranger.as_str(), "key"), ("root", "key")] {
        let (status, printed) = account.refused(user, key, &["80:127.0.0.1:1"]);
        assert_eq!(status, Some(255), "{printed}");
        assert!(printed.contains("Permission denied"), "{printed}");
        assert_eq!(printed.matches("sallyport ssh-key add").count(), 1, "the hint, once: {printed}");
    }
    assert!(account.metric("sallyport_edge_ssh_logins_refused_total") >= 3);
    assert_eq!(account.metric("sallyport_edge_ssh_logins_total"), 0);
    let origin = Origin::start("origin");
    let ssh = account.ssh(&[&to("80", origin.address)]);
    assert!(!ssh.output().contains("ssh-key add"), "a client that logs in needs no hint: {}", ssh.output());
}

#[test]
fn the_owner_of_an_rsa_key_learns_why_an_old_client_is_refused() {
    let Some(account) = Account::new(&[]) else { return };
    let file = account.home.dir.path().join("rsa");
    let made = Command::new("ssh-keygen").args(["-q", "-t", "rsa", "-N", "", "-C", "old", "-f"]).arg(&file).status();
    assert!(made.unwrap().success());
    let public = format!("{}.pub", file.display());
    let added = account.home.json(&["ssh-key", "add", &public]);
    let says = "sign with RSA and SHA-1";
    assert!(added["note"].as_str().unwrap().contains(says), "{added}");
    assert!(!account.is_let_in_with_sha1(&file));
    account.up.program.wait_for(says);
    assert_eq!(account.metric("sallyport_edge_ssh_sha1_refused_total"), 1);
    let listed = account.home.run(&["ssh-key", "ls"]);
    assert!((text(&listed.stdout) + &text(&listed.stderr)).contains(says), "{listed:?}");
    let events = text(&account.home.run(&["audit", "--kind", "login", "-o", "json"]).stdout);
    let mut read = events.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let event = read.find(|event| event["login"]["provider"] == "ssh-key");
    let event = event.unwrap_or_else(|| panic!("no event in {events}"));
    assert_eq!(event["login"]["outcome"], "refused");
    assert_eq!(event["login"]["identity"], added["fingerprint"]);
    assert!(event["login"]["reason"].as_str().unwrap().contains(says), "{event}");
}

#[test]
fn forwards_that_cannot_be_had_end_the_client_with_255_and_the_reason() {
    let (port, range) = free_range();
    let Some(account) = Account::new(&["--port-range", &range]) else { return };
    let (_, _, own_port) = account.socket("tcp");
    assert_eq!(own_port, port);
    let taken = port.to_string();
    for (bind, reason) in [
        (taken.as_str(), "belongs to another socket"),
        ("0", "all ports from"),
        ("22", "cannot be forwarded"),
        ("nobody-there-0000:80", "cannot be forwarded"),
    ] {
        let mut ssh = account.ssh_as(&account.user, "key", &[&format!("{bind}:127.0.0.1:1")]);
        let output = ssh.arg("-v").output().unwrap();
        let printed = text(&output.stdout) + &text(&output.stderr);
        assert_eq!(output.status.code(), Some(255), "{bind}: {printed}");
        assert!(printed.contains("remote port forwarding failed"), "{bind}: {printed}");
        assert!(printed.contains(reason), "{bind}: {printed}");
    }
    assert_eq!(account.metric("sallyport_edge_ssh_forwards_refused_total"), 4);
    let sockets = account.home.json(&["socket", "ls"]);
    assert_eq!(sockets.as_array().unwrap().len(), 1, "nothing is left of them: {sockets}");
    // Without ExitOnForwardFailure the possible forward continues, and the shell reports the other.
    let origin = Origin::start("origin");
    let forwards = ["22:127.0.0.1:1", &to("80", origin.address)];
    let both = Program::start(&mut account.ssh_with(&account.user, "key", &["ExitOnForwardFailure=no"], &forwards));
    let host = host_in(&both.wait_for("is open"));
    both.wait_for("cannot be forwarded");
    assert_eq!(account.up.curl(&host, "/", &[]).status, 200);
}

#[test]
fn commands_files_and_the_way_into_the_server_are_refused() {
    let Some(account) = Account::new(&[]) else { return };
    let output = account.ssh_as(&account.user, "key", &[]).arg("id").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("runs no commands"), "{}", text(&output.stderr));
    let through = account.ssh_as(&account.user, "key", &[]).args(["-W", "127.0.0.1:22"]).output().unwrap();
    assert!(!through.status.success(), "{}", text(&through.stderr));
}

#[test]
fn ssh_clients_without_an_account_are_refused_unless_allowed() {
    let Some(account) = Account::new(&[]) else { return };
    make_key(&account.home, "foreign");
    assert_eq!(account.refused("anybody", "foreign", &["80:127.0.0.1:1"]).0, Some(255));
}

#[test]
fn ssh_clients_without_an_account_get_a_temporary_name() {
    let Some(account) = Account::new(&["--ssh-guests"]) else { return };
    make_key(&account.home, "foreign");
    let origin = Origin::start("origin");
    let (socket, host, _) = account.socket("http");
    let forwards = [to("80", origin.address), to("0", origin.address)];
    let guest = Program::start(&mut account.ssh_as("anybody", "foreign", &[&forwards[0], &forwards[1]]));
    let name = host_in(&guest.wait_for("is open"));
    guest.wait_for("is open  (-R 0)");
    assert_eq!(guest.output().matches("guest login").count(), 1, "{}", guest.output());
    assert!(account.up.curl(&name, "/a", &[]).body.starts_with("origin GET /a"));
    // A client without a known key has no account.
    let label = host.split('.').next().unwrap();
    let (status, printed) = account.refused("anybody", "foreign", &[&to(&format!("{label}:80"), origin.address)]);
    assert_eq!(status, Some(255), "{printed}");
    assert_eq!(account.home.json(&["socket", "ls"]).as_array().unwrap().len(), 1, "{socket}");
    // One address has five sockets at a time.
    let three = ["80:127.0.0.1:1", "443:127.0.0.1:1", "0:127.0.0.1:1"];
    let more = Program::start(&mut account.ssh_as("anybody", "foreign", &three));
    more.wait_for("is open  (-R 0)");
    let stays = ["ExitOnForwardFailure=no"];
    let sixth = Program::start(&mut account.ssh_with("anybody", "foreign", &stays, &["80:127.0.0.1:1"]));
    sixth.wait_for("no more than 5 sockets without an account for one address");
    drop((guest, more, sixth));
    wait_until("the name of the client without an account to be removed", || {
        (account.up.curl(&name, "/", &[]).status == 404).then_some(())
    });
    // The account's own key still belongs to the account.
    let own = account.ssh(&[&to(&format!("{label}:80"), origin.address)]);
    assert!(account.up.curl(&host, "/b", &[]).body.starts_with("origin GET /b"));
    assert!(!own.output().contains("guest"), "{}", own.output());
}

#[test]
fn a_websocket_and_large_bodies_pass_while_a_reader_stalls() {
    let Some(python) = tool("python") else { return };
    let Some(account) = Account::new(&["--no-access-log"]) else { return };
    let origin = Origin::start("origin");
    let (_service, echo) = service(&python, "websocket_echo.py");
    let ssh = account.ssh(&[&to("80", origin.address)]);
    let host = host_in(&ssh.wait_for("is open"));
    let chat = account.ssh(&[&to("80", echo)]);
    let chat_host = host_in(&chat.wait_for("is open"));
    // A client that requests much and reads nothing.
    let mut stalled = Command::new("curl");
    stalled.args(["-sS", "--limit-rate", "1", "--cacert"]).arg(&account.up.ca);
    stalled.args(["-o", "/dev/null", &account.up.url(&host, "/bytes/200000000")]);
    let _stalled = Program::start(&mut stalled);
    wait_until("the stalled download to begin", || (origin.count() == 1).then_some(()));
    thread::sleep(Duration::from_millis(500));
    let size = 50_000_000;
    let response =
        account.up.curl(&host, &format!("/bytes/{size}"), &["-o", "/dev/null", "-w", "%{size_download}\n%{http_code}"]);
    assert_eq!((response.status, response.body.trim()), (200, size.to_string().as_str()), "{}", response.head);
    let file = account.home.dir.path().join("large");
    fs::write(&file, vec![b'u'; size]).unwrap();
    let upload = format!("@{}", file.display());
    let more = ["--data-binary", &upload, "-H", "Expect:", "-o", "/dev/null", "-w", "%{size_upload}\n%{http_code}"];
    let response = account.up.curl(&host, "/upload", &more);
    assert_eq!((response.status, response.body.trim()), (200, size.to_string().as_str()), "{}", response.head);
    assert!(call(&python, "websocket_echo.py", "call", &account.up, &chat_host).contains("all messages came back"));
}
