//! Names that browsers trust: certificates of a real ACME server (Pebble), domains, and the name server
//! of one program.

use std::{
    fs::{self, Permissions},
    io::{Read as _, Write as _},
    net::TcpStream,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
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
const DOMAIN: &str = "names.localhost";

/// The secret of the key of secondaries (TSIG), in base64.
const TSIG_SECRET: &str = "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LTEyMzQ=";

/// A server of these tests: `up` for a Pebble, at the ports where that verifies names.
struct Server {
    program: Program,
    tls: u16,
    http: u16,
    root: PathBuf,
}

impl Server {
    fn start(home: &Home, pebble: &Pebble, domain: &str, more: &[&str]) -> Self {
        let (listen, plain) = (format!("127.0.0.1:{}", pebble.tls), format!("127.0.0.1:{}", pebble.http));
        let data = home.data();
        let mut args = vec!["up", "--domain", domain, "--listen", &listen, "--listen-http", &plain];
        args.extend(["--data", data.to_str().unwrap(), "--sign-up", "open"]);
        let options = pebble.options();
        args.extend(options.iter().map(String::as_str));
        args.extend(more);
        let program = Program::start(&mut home.command(&args));
        program.wait_for("ready");
        Self { program, tls: pebble.tls, http: pebble.http, root: pebble.root() }
    }

    /// The fingerprint of the certificate that a client sees for a name, if the root of the ACME server signs it.
    fn trusted(&self, name: &str) -> Option<String> {
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

    fn get(&self, host: &str) -> (u16, String) {
        let to = format!("{host}:{0}:127.0.0.1:{0}", self.tls);
        let response = curl(&self.root, &format!("https://{host}:{}/", self.tls), &["--connect-to", &to]);
        (response.status, response.body)
    }
}

/// What `doctor` found.
#[derive(Debug)]
struct Checks(Vec<Value>);

impl Checks {
    /// The state of the first check with this name.
    fn state(&self, name: &str) -> &str {
        let found = self.0.iter().find(|check| check["name"] == name);
        found.unwrap_or_else(|| panic!("{name}: {self:?}"))["state"].as_str().unwrap()
    }
}

fn doctor(home: &Home) -> Checks {
    let output = home.run(&["doctor", "-o", "json"]);
    Checks(serde_json::from_slice(&output.stdout).unwrap())
}

#[test]
fn a_domain_has_a_certificate_that_browsers_trust_and_no_other_name_has_one() {
    let home = Home::trusting("pebble/root.pem");
    let Some(pebble) = Pebble::start(&home, None, &[]) else { return };
    let up = Server::start(&home, &pebble, DOMAIN, &["--choose-labels"]);
    for label in ["api", "login", "tunnel"] {
        wait_until("the names of the server", || up.trusted(&format!("{label}.{DOMAIN}")));
    }
    home.account();
    let socket = home.json(&["socket", "create", "--name", "web", "--name-label", "shop"]);
    let (id, host) = (socket["id"].as_str().unwrap(), format!("shop.{DOMAIN}"));
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
    assert_eq!(certificates.as_array().unwrap().len(), 6, "{certificates}");
    assert_eq!(issued, 6, "one order for each name");

    let checks = doctor(&home);
    for (name, state) in [("clock", "ok"), ("authority", "ok"), ("certificates", "ok"), ("trust", "skip")] {
        assert_eq!(checks.state(name), state, "{name}: {checks:?}");
    }

    let own = |path: &str| {
        let (url, to) = (format!("https://api.{DOMAIN}:{}{path}", up.tls), format!("::127.0.0.1:{}", up.tls));
        curl(&up.root, &url, &["--connect-to", &to]).body
    };
    wait_until("the count", || own("/metrics").contains("sallyport_certificates{state=\"valid\"} 6").then_some(()));
    assert_eq!(own("/healthz"), "ok\n");

    // Another one at once, and none when the name has gone.
    home.json(&["cert", "renew", "app.example.org"]);
    wait_until("the renewal", || up.trusted("app.example.org").filter(|now| *now != first));
    assert!(home.run(&["domain", "rm", "app.example.org", "--yes"]).status.success());
    wait_until("the alert", || text(&up.handshake("app.example.org", &[])).contains("unrecognized name").then_some(()));
    assert_eq!(pebble.issued(), 7);
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
    let names = [DOMAIN.to_owned(), format!("api.{DOMAIN}"), format!("login.{DOMAIN}"), format!("tunnel.{DOMAIN}")];
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

/// A Knot that serves the zones of a catalog, which it transfers from the name server at a port.
fn knot(home: &Home, primary: u16, port: u16) -> Option<Program> {
    let Some(knotd) = ["/usr/sbin/knotd", "/usr/bin/knotd"].into_iter().find(|path| Path::new(path).is_file()) else {
        assert!(std::env::var_os("CI").is_none(), "knotd must be there in CI: scripts/need knotd");
        println!("skipped: knotd is not there (Debian's package knot)");
        return None;
    };
    let dir = home.dir.path().join("knot");
    fs::create_dir_all(&dir).unwrap();
    let path = dir.display();
    let config = format!(
        "server:\n  rundir: {path}\n  listen: 127.0.0.1@{port}\ndatabase:\n  storage: {path}\n\
         key:\n  - id: secondary\n    algorithm: hmac-sha256\n    secret: {TSIG_SECRET}\n\
         remote:\n  - id: primary\n    address: 127.0.0.1@{primary}\n    key: secondary\n\
         acl:\n  - id: notices\n    address: 127.0.0.1\n    key: secondary\n    action: notify\n\
         template:\n  - id: default\n    storage: {path}\n\
         \x20 - id: member\n    storage: {path}\n    master: primary\n    acl: notices\n\
         zone:\n  - domain: catalog.invalid\n    master: primary\n    acl: notices\n\
         \x20   catalog-role: interpret\n    catalog-template: member\n",
    );
    fs::write(dir.join("knot.conf"), config).unwrap();
    Some(Program::start(Command::new(knotd).arg("-c").arg(dir.join("knot.conf"))))
}

#[test]
fn a_secondary_follows_the_zones_of_the_catalog() {
    let home = Home::trusting("pebble/root.pem");
    let Some(pebble) = Pebble::start(&home, None, &[]) else { return };
    let (dns, port) = (free_port(), free_port());
    let Some(knot) = knot(&home, dns, port) else { return };
    let keys = home.dir.path().join("tsig.keys");
    fs::write(&keys, format!("secondary hmac-sha256 {TSIG_SECRET}\n")).unwrap();
    fs::set_permissions(&keys, Permissions::from_mode(0o600)).unwrap();
    let (listen, secondary) = (format!("127.0.0.1:{dns}"), format!("127.0.0.1:{port}"));
    let transfer = ["--dns-tsig-file", keys.to_str().unwrap(), "--dns-secondaries", &secondary];
    let more = [&["--listen-dns", &listen, "--dns-catalog", "catalog.invalid"][..], &transfer].concat();
    let up = Server::start(&home, &pebble, DOMAIN, &more);
    home.account();
    home.json(&["domain", "add", "example.net"]);
    prove(&home, &pebble, "example.net");
    assert!(home.run(&["domain", "check", "example.net"]).status.success());
    home.json(&["zone", "create", "example.net"]);
    home.json(&["zone", "record", "add", "example.net", "www", "A", "192.0.2.7"]);
    let ask = |port: u16, words: &[&str]| {
        let mut command = Command::new("dig");
        command.args(["@127.0.0.1", "-p", &port.to_string(), "+norec", "+dnssec", "+time=2", "+tries=1"]).args(words);
        text(&command.output().unwrap().stdout)
    };
    let wait_for = |what: &str, words: &[&str], has: &dyn Fn(&str) -> bool| {
        let last = std::cell::RefCell::new(String::new());
        wait_until(what, || {
            last.replace(ask(port, words));
            if knot.has_ended() {
                panic!("{}", knot.output());
            }
            has(&last.borrow()).then_some(())
        });
    };
    let www = ["www.example.net", "A"];
    wait_for("the zone", &www, &|answer| answer.contains("192.0.2.7") && answer.contains("RRSIG"));
    let added = home.json(&["zone", "record", "add", "example.net", "new", "TXT", "\"hello\""]);
    wait_for("the record by a notice", &["new.example.net", "TXT"], &|answer| answer.contains("hello"));
    home.json(&["zone", "record", "rm", "example.net", added["id"].as_str().unwrap()]);
    let denied = |answer: &str| answer.contains("status: NXDOMAIN") && answer.contains("NSEC");
    wait_for("the record goes", &["new.example.net", "TXT"], &denied);

    // Without the key nothing is transferred, and zones whose answers change are never.
    let key = format!("hmac-sha256:secondary:{TSIG_SECRET}");
    assert!(ask(dns, &["+tcp", "-y", &key, "example.net", "AXFR"]).contains("192.0.2.7"));
    for refused in [&["+tcp", "example.net", "AXFR"][..], &["+tcp", "-y", &key, DOMAIN, "AXFR"]] {
        let answer = ask(dns, refused);
        assert!(answer.contains("Transfer failed"), "{refused:?}: {answer}");
    }
    let wrong = format!("hmac-sha256:secondary:{}", TSIG_SECRET.replace("c2Vj", "AAAA"));
    assert!(!ask(dns, &["+tcp", "-y", &wrong, "example.net", "AXFR"]).contains("192.0.2.7"));

    assert!(home.run(&["zone", "rm", "example.net", "--yes"]).status.success());
    wait_for("the zone goes", &www, &|answer| answer.contains("status: REFUSED"));
    assert!(up.program.stop().success());
}
