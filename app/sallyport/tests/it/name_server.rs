//! The name server of the program: secondaries that follow it, a successor that takes it over, and HTTPS records.

use std::{
    fs::{self, Permissions},
    net::UdpSocket,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use crate::{
    harness::{Home, Program, text, wait_until},
    pebble::{Pebble, prove},
    public_names::{DOMAIN, Server},
    tcp::free_port,
};

/// The secret of the key of secondaries (TSIG), in base64.
const TSIG_SECRET: &str = "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LTEyMzQ=";

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

    // A zone below it is delegated, with the DS record of its key.
    home.json(&["domain", "add", "kid.example.net"]);
    home.json(&["zone", "create", "kid.example.net"]);
    wait_for("the delegation", &["kid.example.net", "DS"], &|answer| answer.contains("IN\tDS\t"));
    assert!(home.run(&["zone", "rm", "kid.example.net", "--yes"]).status.success());
    wait_for("the delegation goes", &["kid.example.net", "DS"], &|answer| answer.contains("status: NXDOMAIN"));

    assert!(home.run(&["zone", "rm", "example.net", "--yes"]).status.success());
    wait_for("the zone goes", &www, &|answer| answer.contains("status: REFUSED"));
    assert!(up.program.stop().success());
}

/// Asks for the SOA record of `localhost`, one question after the other, until it is stopped.
struct Questions {
    is_stopping: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Questions {
    /// Every question must have its answer, with one record.
    fn start(port: u16) -> Self {
        let (is_stopping, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (stop, count) = (is_stopping.clone(), answered.clone());
        let thread = thread::spawn(move || {
            let mut id = 0_u16;
            while !stop.load(Relaxed) {
                // Each from another port, so that it may come to any socket of any process.
                let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
                socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
                id = id.wrapping_add(1);
                let head = [&id.to_be_bytes()[..], &[0, 0, 0, 1, 0, 0, 0, 0, 0, 0]].concat();
                let query = [&head[..], b"\x09localhost\0\0\x06\0\x01"].concat();
                socket.send_to(&query, ("127.0.0.1", port)).unwrap();
                let mut answer = [0; 512];
                let len = socket.recv(&mut answer).unwrap_or_else(|error| panic!("question {id}: {error}"));
                assert!(len > query.len() && answer[..2] == id.to_be_bytes() && answer[7] == 1, "{:?}", &answer[..len]);
                count.fetch_add(1, Relaxed);
            }
        });
        Self { is_stopping, answered, thread: Some(thread) }
    }

    /// Waits for some hundred more answers.
    fn wait(&self) {
        let before = self.answered.load(Relaxed);
        wait_until("answers", || (self.answered.load(Relaxed) >= before + 300).then_some(()));
    }

    fn stop(mut self) {
        self.is_stopping.store(true, Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

#[test]
fn no_question_is_lost_when_a_successor_takes_over() {
    let home = Home::new();
    let port = free_port();
    let listen = format!("127.0.0.1:{port}");
    let options = ["--listen-dns", &listen, "--dns-rate-limit", "0"];
    let first = home.up(&options);
    let questions = Questions::start(port);
    questions.wait();
    let second = home.up(&[&options[..], &["--takeover"]].concat());
    assert_eq!(first.program.ended().code(), Some(0), "{}", first.program.output());
    questions.wait();
    let third = home.up(&[&options[..], &["--takeover"]].concat());
    assert_eq!(second.program.ended().code(), Some(0), "{}", second.program.output());
    questions.wait();
    questions.stop();
    assert!(third.program.stop().success());
}

#[test]
fn names_have_an_https_record_while_http3_is_reachable() {
    if Command::new("dig").arg("-v").output().is_err() {
        println!("skipped: dig is not there (Debian's package bind9-dnsutils)");
        return;
    }
    let home = Home::new();
    let dns = free_port();
    let dig = |rtype: &str| {
        let mut command = Command::new("dig");
        command.args(["@127.0.0.1", "-p", &dns.to_string(), "+norec", "+dnssec", "+noall", "+answer", "+authority"]);
        let said = text(&command.args(["web.localhost", rtype]).output().unwrap().stdout);
        said.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let listen = format!("127.0.0.1:{dns}");
    let up = home.up(&["--listen-dns", &listen]);
    let record = format!("web.localhost. 30 IN HTTPS 1 . alpn=\"h3,h2\" port={} web.localhost. 30 IN RRSIG", up.port);
    wait_until("the record", || dig("HTTPS").starts_with(&record).then_some(()));
    // The denial of another type names the type too.
    assert!(dig("AAAA").contains("NSEC \\000.web.localhost. A RRSIG NSEC HTTPS"), "{}", dig("AAAA"));
    assert!(up.program.stop().success());

    // HTTP/3 at another port than HTTP/2: a record for each.
    let quic = free_port();
    let up = home.up(&["--listen-dns", &listen, "--listen-quic", &format!("127.0.0.1:{quic}")]);
    let records = [format!("1 . alpn=\"h3\" no-default-alpn port={quic}"), format!("2 . alpn=\"h2\" port={}", up.port)];
    wait_until("both records", || {
        let said = dig("HTTPS");
        records.iter().all(|record| said.contains(record)).then_some(())
    });
    assert!(up.program.stop().success());

    let up = home.up(&["--listen-dns", &listen, "--listen-quic", "--no-http3"]);
    up.program.wait_for("QUIC is served");
    for rtype in ["HTTPS", "AAAA"] {
        let denied = dig(rtype);
        assert!(denied.contains("NSEC \\000.web.localhost. A RRSIG NSEC web.localhost."), "{denied}");
        assert!(!denied.contains("alpn"), "{denied}");
    }
    assert!(up.program.stop().success());
}
