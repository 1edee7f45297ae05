//! Names that browsers trust on several edges, and by several controls.

use std::{
    fmt::Write as _,
    fs,
    io::Write as _,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::json;

use crate::{
    controls::{join_with, log_in, two_controls_with},
    database::createdb,
    fleet::{Bus, ControlHere, DOMAIN, EdgeHere},
    harness::{Home, text, wait_until},
    pebble::{Pebble, prove, verified_certificate},
    postgres,
    tcp::free_port,
};

/// The labels of the names that the server has for itself; the empty one is the domain.
const OWN_LABELS: [&str; 5] = ["api.", "login.", "tunnel.", "desk.", ""];
/// The addresses of three edges, which open the same ports.
const IPS: [&str; 3] = ["127.0.0.1", "127.0.0.2", "127.0.0.3"];

/// How long a silent edge counts as present. Its addresses are gone two seconds later.
const LEASE_TIME: Duration = Duration::from_secs(5);
/// How much later a busy machine may notice.
const BUSY_TIME: Duration = Duration::from_secs(5);
/// How long a thousand orders may take. Generous: a busy machine must not fail a test.
const THOUSAND_ORDERS_TIME: Duration = Duration::from_secs(400);

/// The certificate that a client sees at an edge for a name, if the root of the ACME server signs it.
fn seen(pebble: &Pebble, edge: &EdgeHere, name: &str) -> Option<String> {
    let output = Command::new("openssl")
        .args(["s_client", "-connect", &format!("{}:{}", edge.ip, edge.port), "-servername", name])
        .args(["-verify_hostname", name, "-CAfile"])
        .arg(pebble.root())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    verified_certificate(&text(&output.stdout))
}

/// A control that orders at a Pebble, with these further options, and an account.
fn control(home: &Home, bus: &Bus, pebble: &Pebble, more: &[&str]) -> ControlHere {
    let (options, shared) = (pebble.options(), pebble.tls.to_string());
    let mut all: Vec<&str> = options.iter().map(String::as_str).collect();
    all.extend(["--public-port", &shared]);
    all.extend(more);
    let control = ControlHere::start_with(home, bus, &all);
    home.account();
    control
}

/// Three edges at the ports where the Pebble verifies names, with name servers on this port.
fn three_edges(home: &Home, pebble: &Pebble, dns: u16) -> Vec<EdgeHere> {
    let one = |(ip, name): (&&'static str, &str)| {
        let token = home.json(&["edge", "token", "create", "--name", name]);
        let mut edge = EdgeHere::new(home, name, ip);
        edge.port = pebble.tls;
        let (plain, dns) = (format!("{ip}:{}", pebble.http), format!("{ip}:{dns}"));
        let mut join = vec!["--join", token["token"].as_str().unwrap(), "--region", &name[..2]];
        join.extend(["--listen-http", &plain, "--listen-dns", &dns]);
        edge.start(home, &join);
        edge
    };
    IPS.iter().zip(["eu-1", "eu-2", "us-1"]).map(one).collect()
}

#[test]
fn any_edge_answers_the_challenges_and_all_serve_the_certificate() {
    let home = Home::trusting("pebble/root.pem");
    let Some(bus) = Bus::start(&home, "") else { return };
    let Some(pebble) = Pebble::start(&home, None, &[]) else { return };
    let control = control(&home, &bus, &pebble, &["--name-server"]);
    let (dns, has_dig) = (free_port(), Command::new("dig").arg("-v").output().is_ok());
    if !has_dig {
        println!("skipped: dig is not there (Debian's package bind9-dnsutils)");
    }
    let mut edges = three_edges(&home, &pebble, dns);
    let (_, host) = home.socket(&[]);
    // Each name leads to another edge, and one order is made for each.
    let domains = ["one.example.org", "two.example.org", "three.example.org"];
    for (name, ip) in domains.iter().zip(IPS) {
        pebble.set("add-a", &json!({"host": format!("{name}."), "addresses": [ip]}));
        home.json(&["domain", "add", name]);
        prove(&home, &pebble, name);
    }
    let all = domains.join(",");
    home.json(&["socket", "edit", host.split('.').next().unwrap(), "--domain", &all]);
    for name in domains.iter().copied().chain([host.as_str()]) {
        for edge in &edges {
            wait_until("the certificate at every edge", || seen(&pebble, edge, name));
        }
    }
    for label in OWN_LABELS {
        wait_until("the names of the server", || seen(&pebble, &edges[0], &format!("{label}{}", DOMAIN)));
    }
    assert_eq!(pebble.issued(), domains.len() + 1 + OWN_LABELS.len(), "one order for each name");
    // An edge that restarts without control serves the certificates that it knows.
    drop(control);
    let addresses = || {
        let mut command = Command::new("dig");
        command.args(["@127.0.0.1", "-p", &dns.to_string(), "+short", &format!("api.{}", DOMAIN)]);
        let mut lines: Vec<_> = text(&command.output().unwrap().stdout).lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    if has_dig {
        assert_eq!(addresses(), IPS);
        let https = || {
            let mut command = Command::new("dig");
            command.args(["@127.0.0.1", "-p", &dns.to_string(), "+short", &format!("api.{}", DOMAIN), "HTTPS"]);
            text(&command.output().unwrap().stdout)
        };
        let record = format!("1 . alpn=\"h3,h2\" port={}\n", pebble.tls);
        wait_until("the record of three edges with HTTP/3", || (https() == record).then_some(()));
    }
    edges[1].kill();
    let killed_at = Instant::now();
    if has_dig {
        wait_until("the address of the edge goes", || (addresses() == [IPS[0], IPS[2]]).then_some(()));
        let (time, limit) = (killed_at.elapsed(), LEASE_TIME + Duration::from_secs(2));
        assert!(time < limit + BUSY_TIME, "the address went after {time:?}, and not within {limit:?}");
    }
    edges[1].start(&home, &[]);
    if has_dig {
        wait_until("the address of the edge is back", || (addresses() == IPS).then_some(()));
    }
    wait_until("the certificate without control", || seen(&pebble, &edges[1], domains[0]));
    let state = fs::read_to_string(edges[1].data.join("config.snapshot")).unwrap();
    assert!(!state.contains("PRIVATE KEY"), "keys are sealed on the disk of an edge");
    assert!(!state.contains("acme-account") && !state.contains("my-account"), "an edge has no account");
}

/// Creates so many sockets by one client that keeps its connection.
fn create_sockets(home: &Home, edge: &EdgeHere, pebble: &Pebble, count: usize) {
    let token = home.json(&["token", "create", "--name", "test", "--scope", "sockets:write"]);
    let mut requests = String::new();
    for number in 0..count {
        if number > 0 {
            requests.push_str("next\n");
        }
        let body = json!({"name": format!("site {number}")}).to_string();
        writeln!(requests, "url = \"{}/v1/sockets\"", edge.api()).unwrap();
        writeln!(requests, "json = {body:?}\nfail\nsilent\nshow-error\noutput = /dev/null").unwrap();
        writeln!(requests, "header = \"Authorization: Bearer {}\"", token["token"].as_str().unwrap()).unwrap();
        writeln!(requests, "cacert = {:?}", pebble.root()).unwrap();
    }
    let mut command = Command::new("curl").args(["-K", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    command.stdin.take().unwrap().write_all(requests.as_bytes()).unwrap();
    assert!(command.wait().unwrap().success());
}

#[test]
fn a_thousand_names_on_three_edges_take_a_thousand_orders() {
    const NAMES: usize = 1_000;
    let home = Home::trusting("pebble/root.pem");
    let Some(bus) = Bus::start(&home, "") else { return };
    let Some(pebble) = Pebble::start(&home, None, &[]) else { return };
    let _control = control(&home, &bus, &pebble, &["--acme-rate", "6000"]);
    let edges = three_edges(&home, &pebble, free_port());
    wait_until("the name of the API", || seen(&pebble, &edges[0], &format!("api.{DOMAIN}")));
    create_sockets(&home, &edges[0], &pebble, NAMES - OWN_LABELS.len());
    let started = Instant::now();
    while pebble.issued() < NAMES {
        assert!(started.elapsed() < THOUSAND_ORDERS_TIME, "{} orders so far", pebble.issued());
        std::thread::sleep(Duration::from_millis(200));
    }
    let sockets = home.json(&["socket", "ls"]);
    let hosts = sockets.as_array().unwrap().iter().map(|socket| socket["dns_name"].as_str().unwrap());
    for host in hosts.step_by(NAMES / 10) {
        for edge in &edges {
            wait_until("the certificate at every edge", || seen(&pebble, edge, host));
        }
    }
    assert_eq!(pebble.issued(), NAMES);
}

#[test]
fn an_order_of_a_killed_control_is_finished_by_the_other_and_makes_no_second_certificate() {
    let Some(server) = postgres::server() else { return };
    let home = Home::new();
    let Some(bus) = Bus::start(&home, "") else { return };
    // The ACME server takes its time to verify a name.
    let Some(pebble) = Pebble::start(&home, None, &[("PEBBLE_VA_NOSLEEP", "0"), ("PEBBLE_VA_SLEEPTIME", "6")]) else {
        return;
    };
    let database = createdb(server, "public_names");
    let (options, shared) = (pebble.options(), pebble.tls.to_string());
    let mut more: Vec<&str> = options.iter().map(String::as_str).collect();
    more.extend(["--public-port", &shared, "--acme-challenges", "http-01"]);
    let (mut one, mut two) = two_controls_with(&home, &database, &bus, &more);
    log_in(&home, &one.api(), &one.data.join("ca.pem"));
    let mut edge = EdgeHere::new(&home, "eu-1", "127.0.0.1");
    edge.port = pebble.tls;
    let edge = join_with(&home, &one, edge, "eu-1", &["--listen-http", &format!("127.0.0.1:{}", pebble.http)]);

    // The control that works at an order, by its address.
    let query = "SELECT controls.addresses FROM certificates JOIN controls ON controls.id = certificates.holder
                 WHERE certificates.order_url IS NOT NULL LIMIT 1";
    let holder = wait_until("an order", || {
        let output = Command::new("psql").args([&database, "-qtAc", query]).output().unwrap();
        let found = text(&output.stdout).trim().to_owned();
        (!found.is_empty()).then_some(found)
    });
    let is_one = holder.contains(&format!(":{}", one.ports.1));
    assert!(is_one || holder.contains(&format!(":{}", two.ports.1)), "{holder}");
    let killed_at = Instant::now();
    if is_one {
        one.kill()
    } else {
        two.kill()
    }
    for label in OWN_LABELS {
        wait_until("the names of the server", || seen(&pebble, &edge, &format!("{label}{DOMAIN}")));
    }
    let time = killed_at.elapsed();
    assert!(time < Duration::from_secs(60), "the other control took {time:?}");
    assert_eq!(pebble.issued(), OWN_LABELS.len(), "one certificate for each name");
}
