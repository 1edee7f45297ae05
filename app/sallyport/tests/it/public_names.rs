//! Names that browsers trust: certificates of a real ACME server (Pebble), domains, and the name server
//! of one program.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    path::PathBuf,
    process::{Command, Stdio},
    sync::Arc,
};

use serde_json::{Value, json};

use crate::{
    harness::{Home, Origin, Program, curl, text, wait_until},
    pebble::{Pebble, prove, verified_certificate},
    tcp::free_port,
};

/// The domain of most tests: programs take names below localhost for this machine.
pub(crate) const DOMAIN: &str = "names.localhost";

/// A server of these tests: `up` for a Pebble, at the ports where that verifies names.
pub(crate) struct Server {
    pub(crate) program: Program,
    pub(crate) tls: u16,
    http: u16,
    pub(crate) root: PathBuf,
}

impl Server {
    pub(crate) fn start(home: &Home, pebble: &Pebble, domain: &str, more: &[&str]) -> Self {
        let (listen, plain) = (format!("127.0.0.1:{}", pebble.tls), format!("127.0.0.1:{}", pebble.http));
        let data = home.data();
        let mut args = vec!["up", "--domain", domain, "--listen", &listen, "--listen-http", &plain];
        args.extend(["--data", data.to_str().unwrap(), "--sign-up", "closed"]);
        let options = pebble.options();
        args.extend(options.iter().map(String::as_str));
        args.extend(more);
        let program = Program::start(&mut home.command(&args));
        program.wait_for("ready");
        Self { program, tls: pebble.tls, http: pebble.http, root: pebble.root() }
    }

    /// The fingerprint of the certificate that a client sees for a name, if the root of the ACME server signs it.
    pub(crate) fn trusted(&self, name: &str) -> Option<String> {
        let output = self.handshake(name, &["-CAfile", self.root.to_str().unwrap(), "-verify_hostname", name]);
        verified_certificate(&text(&output))
    }

    fn handshake(&self, name: &str, more: &[&str]) -> Vec<u8> {
        let mut command = Command::new("openssl");
        command.args(["s_client", "-connect", &format!("127.0.0.1:{}", self.tls), "-servername", name]).args(more);
        let output = command.stdin(Stdio::null()).output().unwrap();
        [output.stdout, output.stderr].concat()
    }

    /// Asks for so many names that nobody has registered, each on a connection of its own, and expects an alert.
    fn flood(&self, count: u32) {
        let name = |number: u32| format!("n{number:08}.example.org");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.unwrap().with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth();
        let mut client = rustls::ClientConnection::new(Arc::new(config), name(0).try_into().unwrap()).unwrap();
        let mut hello = Vec::new();
        client.write_tls(&mut hello).unwrap();
        // All names have one length, so that the same message serves for each.
        let at = hello.windows(name(0).len()).position(|window| window == name(0).as_bytes()).unwrap();
        for number in 1..=count {
            hello[at..at + name(0).len()].copy_from_slice(name(number).as_bytes());
            let mut stream = TcpStream::connect(("127.0.0.1", self.tls)).unwrap();
            stream.write_all(&hello).unwrap();
            let mut alert = [0; 7];
            stream.read_exact(&mut alert).unwrap();
            assert_eq!(alert, [21, 3, 3, 0, 2, 2, 112], "unrecognized_name for {}", name(number));
        }
    }

    /// What the API answers for a path.
    pub(crate) fn own(&self, path: &str) -> String {
        let (url, to) = (format!("https://api.{DOMAIN}:{}{path}", self.tls), format!("::127.0.0.1:{}", self.tls));
        curl(&self.root, &url, &["--connect-to", &to]).body
    }

    fn get(&self, host: &str) -> (u16, String) {
        let to = format!("{host}:{0}:127.0.0.1:{0}", self.tls);
        let response = curl(&self.root, &format!("https://{host}:{}/", self.tls), &["--connect-to", &to]);
        (response.status, response.body)
    }
}

/// What `doctor` found.
#[derive(Debug)]
pub(crate) struct Checks(pub(crate) Vec<Value>);

impl Checks {
    /// The state of the first check with this name.
    pub(crate) fn state(&self, name: &str) -> &str {
        let found = self.0.iter().find(|check| check["name"] == name);
        found.unwrap_or_else(|| panic!("{name}: {self:?}"))["state"].as_str().unwrap()
    }
}

pub(crate) fn doctor(home: &Home) -> Checks {
    let output = home.run(&["doctor", "-o", "json"]);
    Checks(serde_json::from_slice(&output.stdout).unwrap())
}

#[test]
fn a_domain_has_a_certificate_that_browsers_trust_and_no_other_name_has_one() {
    let home = Home::trusting("pebble/root.pem");
    let Some(pebble) = Pebble::start(&home, None, &[]) else { return };
    let up = Server::start(&home, &pebble, DOMAIN, &["--choose-labels"]);
    for label in ["api", "login", "tunnel", "desk"] {
        wait_until("the names of the server", || up.trusted(&format!("{label}.{DOMAIN}")));
    }
    home.account();
    let socket = home.json(&["socket", "create", "--name", "web", "--name-label", "shop"]);
    let (id, host) = (socket["id"].as_str().unwrap(), format!("shop.{DOMAIN}"));
    assert!(socket["notes"].to_string().contains("its certificate is ordered"), "{socket}");
    assert_eq!(socket["dns_name"], host.as_str());
    wait_until("the name of the socket", || up.trusted(&host));
    let origin = Origin::start("one");
    let _connector = home.connector(id, origin.address, &[]);

    assert_eq!(home.json(&["domain", "add", "App.Example.ORG"])["state"], "pending");
    let early = home.run(&["socket", "edit", "web", "--domain", "app.example.org"]);
    assert_eq!(early.status.code(), Some(5), "{}", text(&early.stderr));
    let check = home.run(&["domain", "check", "app.example.org"]);
    assert_eq!(check.status.code(), Some(1), "{}", text(&check.stderr));
    prove(&home, &pebble, "app.example.org");
    let socket = home.json(&["socket", "edit", "web", "--domain", "app.example.org"]);
    assert_eq!(socket["domains"], json!(["app.example.org"]));
    let first = wait_until("the domain", || up.trusted("app.example.org"));
    let (status, body) = up.get("app.example.org");
    assert_eq!(status, 200, "{body}");
    assert_eq!(up.get(&host).0, 200);
    let plain = format!("http://app.example.org:{}/x", up.http);
    let to = format!("app.example.org:{0}:127.0.0.1:{0}", up.http);
    let moved = curl(&up.root, &plain, &["--connect-to", &to]);
    assert_eq!(moved.status, 308);
    assert_eq!(moved.header("location"), Some(format!("https://app.example.org:{}/x", up.tls).as_str()));

    // Names that nobody has registered: an alert, no order, no certificate.
    let issued = pebble.issued();
    for name in ["nobody.names.localhost", "example.org", "a.app.example.org", "www.example.net"] {
        let said = text(&up.handshake(name, &[]));
        assert!(said.contains("unrecognized name"), "{name}: {said}");
    }
    up.flood(10_000);
    let certificates = home.json(&["cert", "ls"]);
    assert_eq!(certificates.as_array().unwrap().len(), 7, "{certificates}");
    assert_eq!(issued, 7, "one order for each name");

    let checks = doctor(&home);
    for (name, state) in [("clock", "ok"), ("authority", "ok"), ("certificates", "ok"), ("trust", "skip")] {
        assert_eq!(checks.state(name), state, "{name}: {checks:?}");
    }

    wait_until("the count", || up.own("/metrics").contains("sallyport_certificates{state=\"valid\"} 7").then_some(()));
    assert_eq!(up.own("/healthz"), "ok\n");

    // Another one at once, and none when the name has gone.
    home.json(&["cert", "renew", "app.example.org"]);
    wait_until("the renewal", || up.trusted("app.example.org").filter(|now| *now != first));
    assert!(home.run(&["domain", "rm", "app.example.org", "--yes"]).status.success());
    wait_until("the alert", || text(&up.handshake("app.example.org", &[])).contains("unrecognized name").then_some(()));
    assert_eq!(pebble.issued(), 8);
    assert!(up.program.stop().success());
}

#[test]
fn an_order_that_is_killed_is_continued_and_makes_no_second_certificate() {
    let home = Home::new();
    // The server takes its time to verify a name.
    let Some(pebble) = Pebble::start(&home, None, &[("PEBBLE_VA_NOSLEEP", "0"), ("PEBBLE_VA_SLEEPTIME", "3")]) else {
        return;
    };
    let http = ["--acme-challenges", "http-01"];
    let up = Server::start(&home, &pebble, DOMAIN, &http);
    up.program.wait_for("account made");
    std::thread::sleep(std::time::Duration::from_secs(1));
    up.program.signal("KILL");
    up.program.ended();
    let up = Server::start(&home, &pebble, DOMAIN, &http);
    let names = ["", "api.", "login.", "tunnel.", "desk."].map(|label| format!("{label}{DOMAIN}"));
    for name in &names {
        wait_until("the names of the server", || up.trusted(name));
    }
    assert_eq!(pebble.issued(), names.len());
    assert!(!up.program.output().contains("account made"), "the account is kept too");
}

#[test]
fn a_delegated_domain_has_one_wildcard_certificate_by_the_own_name_server() {
    const OWN: &str = "names.example.org";
    let home = Home::new();
    let dns = free_port();
    let Some(pebble) = Pebble::start(&home, Some(dns), &[]) else { return };
    let listen = format!("127.0.0.1:{dns}");
    let up = Server::start(&home, &pebble, OWN, &["--listen-dns", &listen, "--public-address", "127.0.0.1"]);
    for label in ["api", "any", "other"] {
        wait_until("the wildcard", || up.trusted(&format!("{label}.{OWN}")));
    }
    wait_until("the domain", || up.trusted(OWN));
    assert_eq!(pebble.issued(), 1, "one certificate for all names of the installation");
    assert!(text(&up.handshake("a.b.names.example.org", &[])).contains("unrecognized name"));
    let checks = doctor(&home);
    for name in ["clock", "authority", "dns", "ports"] {
        assert_eq!(checks.state(name), "ok", "{name}: {checks:?}");
    }

    let dig = |more: &[&str]| {
        let mut command = Command::new("dig");
        command.args(["@127.0.0.1", "-p", &dns.to_string(), "+norec"]).args(more);
        command.output().ok().map(|output| text(&output.stdout))
    };
    let Some(answer) = dig(&["anything.names.example.org", "A"]) else {
        println!("skipped: dig is not there (Debian's package bind9-dnsutils)");
        return;
    };
    assert!(answer.contains("127.0.0.1") && answer.contains("status: NOERROR") && answer.contains(" aa"), "{answer}");
    let signed = dig(&["+dnssec", OWN, "DNSKEY"]).unwrap();
    assert!(signed.contains("RRSIG") && signed.contains("257 3 13"), "{signed}");
    assert!(dig(&["www.example.com", "A"]).unwrap().contains("status: REFUSED"));
    assert!(dig(&["+tcp", OWN, "SOA"]).unwrap().contains("ns1.names.example.org."));
    assert!(up.program.stop().success());
}
