//! Egress addresses that edges share: what real origins see, moves, and leases that end.

use std::{
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use serde_json::{Value, json};

use crate::{
    edge_quic_and_geo::databases,
    fleet::{Bus, ControlHere, EdgeHere},
    harness::{Home, Program, Up, text, wait_until},
    networks::{Sockets, must, run_within},
    tcp::nginx,
};

const SHARED: &str = "198.51.100.7";
const BHUTANESE: &str = "198.51.100.8";
/// An address of a client in Bhutan, by the test database.
const CLIENT_IN_BHUTAN: &str = "67.43.156.9";
const ORIGIN: &str = "10.20.0.1";
/// What an edge needs: the shared addresses, and local ports that contain the slices.
const WIDE: &str = "echo 2048 65535 >/proc/sys/net/ipv4/ip_local_port_range";

/// nginx that answers with the address and the port of its client.
fn origin(dir: &Path) -> Option<(Program, String)> {
    must(&format!("ip addr add {ORIGIN}/32 dev lo"));
    let http = format!("server {{ listen {ORIGIN}:8080; location / {{ return 200 \"$remote_addr $remote_port\"; }} }}");
    let server = nginx(dir, &http)?;
    wait_until("nginx", || std::net::TcpStream::connect((ORIGIN, 8_080)).ok());
    Some((server, format!("{ORIGIN}:8080")))
}

/// The address and the port that the origin has seen.
fn seen(body: &str) -> (String, u16) {
    let (address, port) = body.trim().split_once(' ').unwrap_or_else(|| panic!("{body}"));
    (address.to_owned(), port.parse().unwrap())
}

#[track_caller]
fn assert_from((address, port): (String, u16), shared: &str, slice: u16) {
    assert_eq!((address.as_str(), port / 2_048), (shared, slice), "port {port}");
}

fn slices(home: &Home) -> Vec<Value> {
    home.json(&["egress", "slice", "ls"]).as_array().unwrap().clone()
}

/// Waits until a slice of the list is so.
fn slice_is(home: &Home, id: &str, wanted: &Value) -> Value {
    wait_until("the state of a slice", || {
        let found = slices(home).into_iter().find(|slice| slice["id"] == id)?;
        wanted.as_object().unwrap().iter().all(|(name, value)| found[name] == *value).then_some(found)
    })
}

#[test]
fn origins_see_the_slice_of_the_country_of_the_visitor() {
    run_within(Sockets::Ping, &[], "egress::within_a_network_with_two_addresses");
}

#[test]
#[ignore = "runs within the network of origins_see_the_slice_of_the_country_of_the_visitor"]
fn within_a_network_with_two_addresses() {
    must(&format!("ip addr add {CLIENT_IN_BHUTAN}/32 dev lo"));
    let (home, dir) = (Home::new(), tempfile::tempdir().unwrap());
    let Some((_nginx, address)) = origin(dir.path()) else { return };
    let [country, _] = databases();
    let names = NameService::start();
    let options = ["--direct-origins", "10.0.0.0/8", "--geoip-country", &country, "--resolver", &names.address];
    let up = home.up(&options);
    home.account();
    let (socket, host) = home.socket(&[]);
    home.json(&["socket", "origin", "add", &socket, &address]);
    let ask = |more: &[&str]| up.curl(&host, "/", more);
    let from = |more: &[&str]| {
        let response = ask(more);
        assert_eq!(response.status, 200, "{}", response.body);
        seen(&response.body)
    };
    assert_eq!(from(&[]).0, ORIGIN, "an edge without slices leaves as the kernel chooses");

    home.json(&["egress", "address", "add", SHARED, "--country", "CH", "--subdivision", "CH-ZH", "--city", "Zürich"]);
    home.json(&["egress", "slice", "add", SHARED, "--edge", "edge", "--slice", "3"]);
    cannot_be_used_yet(&home, &up, &host);

    // Both families of visitors have the one address, while there is no other.
    assert_from(from(&[]), SHARED, 3);
    assert_from(from(&["--interface", CLIENT_IN_BHUTAN]), SHARED, 3);
    must(&format!("ip addr add {BHUTANESE}/32 dev lo"));
    home.json(&["egress", "address", "add", BHUTANESE, "--country", "bt"]);
    home.json(&["egress", "slice", "add", BHUTANESE, "--edge", "edge"]);
    slice_is(&home, &format!("{BHUTANESE}-1"), &json!({"is_open": true, "first_port": 2048, "last_port": 4095}));
    for _ in 0..3 {
        // Connections are kept, and not shared across countries.
        assert_from(from(&["--interface", CLIENT_IN_BHUTAN]), BHUTANESE, 1);
        from(&[]);
    }
    let metrics = up.curl("api.localhost", "/metrics", &[]).body;
    for series in [
        format!("sallyport_edge_egress_dials_total{{address=\"{BHUTANESE}\",slice=\"1\"}}"),
        "sallyport_edge_egress_matches_total{why=\"country\"}".to_owned(),
        "sallyport_edge_egress_slices{state=\"open\"} 2".to_owned(),
        "sallyport_edge_egress_refusals_total{reason=\"not-usable\"}".to_owned(),
    ] {
        assert!(metrics.contains(&series), "{series}: {metrics}");
    }
    let asked = names.asked_from(&home, &up);
    assert!([(SHARED.to_owned(), 3), (BHUTANESE.to_owned(), 1)].contains(&asked), "{asked:?}");
    datagrams(&home, &up);
    feed_is_valid(&home, &up);

    // A slice that is taken away: the other one serves, and then the machine's own address.
    home.json(&["egress", "slice", "rm", &format!("{SHARED}-3"), "--within", "1s"]);
    wait_until("another source", || (from(&[]).0 == BHUTANESE).then_some(()));
    wait_until("the slice is free", || (slices(&home).len() == 1).then_some(()));
    home.json(&["egress", "slice", "rm", &format!("{BHUTANESE}-1"), "--is-off"]);
    wait_until("the own address", || (from(&[]).0 == ORIGIN).then_some(()));
    for address in [SHARED, BHUTANESE] {
        home.json(&["egress", "address", "rm", address]);
    }
    bad_input(&home);
}

/// The address is missing at first, and then the ports are not within those of the namespace.
fn cannot_be_used_yet(home: &Home, up: &Up, host: &str) {
    let id = format!("{SHARED}-3");
    let note = |wanted: &str| {
        wait_until("a note", || {
            let slice = slice_is(home, &id, &json!({"is_open": false}));
            slice["notes"].as_array()?.iter().any(|note| note.as_str().unwrap().contains(wanted)).then_some(())
        });
    };
    note("this machine has no address 198.51.100.7: add it with `ip addr add 198.51.100.7/32 dev lo`");
    let refused = up.curl(host, "/", &[]);
    assert_eq!(refused.status, 502, "{}", refused.body);
    let said = text(&home.run(&["egress", "slice", "ls"]).stderr);
    assert!(said.contains("this machine has no address"), "{said}");
    let doctor = text(&home.run(&["doctor"]).stdout);
    assert!(doctor.contains("egress") && doctor.contains("198.51.100.7-3: this machine has no address"), "{doctor}");
    let health = up.curl("api.localhost", "/healthz", &[]).body;
    assert!(health.contains("egress: 1 of 1 slices cannot be used"), "{health}");
    must(&format!("ip addr add {SHARED}/32 dev lo"));
    note("ports 6144-8191 are not within 32768-60999");
    assert_eq!(up.curl(host, "/", &[]).status, 502);
    must(WIDE);
    slice_is(home, &id, &json!({"is_open": true, "state": "held", "edge": "edge"}));
    up.program.wait_for("a slice cannot be used");
    let said = wait_until("an answer", || Some(up.curl(host, "/", &[])).filter(|answer| answer.status == 200)).body;
    assert_from(seen(&said), SHARED, 3);
}

/// A name service that knows one address, and keeps from where it is asked.
struct NameService {
    address: String,
    asked: std::sync::mpsc::Receiver<std::net::SocketAddr>,
}

impl NameService {
    fn start() -> Self {
        let socket = std::net::UdpSocket::bind((ORIGIN, 0)).unwrap();
        let (sender, asked) = std::sync::mpsc::channel();
        let address = socket.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            let mut query = [0; 512];
            while let Ok((length, from)) = socket.recv_from(&mut query) {
                let Some(name) = query[12..length].iter().position(|byte| *byte == 0) else { continue };
                let end = 12 + name + 5;
                let is_a = query[end - 4..end - 2] == [0, 1];
                let mut answer = query[..end].to_vec();
                // A response without an error; a question for an IPv4 address has an answer.
                answer[2..12].copy_from_slice(&[0x81, 0x80, 0, 1, 0, u8::from(is_a), 0, 0, 0, 0]);
                if is_a {
                    answer.extend([0xc0, 0x0c, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4, 10, 20, 0, 1]);
                }
                let _ = socket.send_to(&answer, from);
                if sender.send(from).is_err() {
                    return;
                }
            }
        });
        Self { address, asked }
    }

    /// The address and the slice from which the name of an origin is asked.
    fn asked_from(&self, home: &Home, up: &Up) -> (String, u16) {
        let (socket, host) = home.socket(&[]);
        home.json(&["socket", "origin", "add", &socket, "app.example.net:8080"]);
        wait_until("an answer of the named origin", || (up.curl(&host, "/", &[]).status == 200).then_some(()));
        let from = self.asked.recv_timeout(Duration::from_secs(30)).unwrap();
        (from.ip().to_string(), from.port() / 2_048)
    }
}

/// Flows of a UDP socket leave from a slice too.
fn datagrams(home: &Home, up: &Up) {
    let echo = std::net::UdpSocket::bind((ORIGIN, 0)).unwrap();
    let address = echo.local_addr().unwrap();
    let made = home.json(&["socket", "create", "--name", "datagrams", "--type", "udp"]);
    let (id, port) = (made["id"].as_str().unwrap(), u16::try_from(made["port"].as_u64().unwrap()).unwrap());
    home.json(&["socket", "origin", "add", id, &address.to_string()]);
    echo.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let client = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    client.connect(("127.0.0.1", port)).unwrap();
    let from = wait_until("a datagram", || {
        let _ = client.send(b"hello");
        let mut buffer = [0; 64];
        echo.recv_from(&mut buffer).ok().map(|(_, from)| from)
    });
    let shared = from.ip().to_string();
    assert!([SHARED, BHUTANESE].contains(&shared.as_str()), "{from}");
    assert!([1, 3].contains(&(from.port() / 2_048)), "{from}");
    assert!(up.program.output().contains("ready") || !up.program.has_ended());
}

/// The geofeed holds the rules of RFC 8805.
fn feed_is_valid(home: &Home, up: &Up) {
    let feed = up.curl("api.localhost", "/geofeed.csv", &[]);
    assert_eq!((feed.status, feed.header("content-type")), (200, Some("text/csv; charset=utf-8")));
    let printed = text(&home.run(&["egress", "geofeed"]).stdout);
    assert_eq!(printed.trim(), feed.body.trim());
    assert_eq!(checked(&feed.body), Ok(json!({"198.51.100.7/32": "CH", "198.51.100.8/32": "BT"})));
    for (from, to) in [("/32,CH", "/24,CH"), (",CH,", ",Swiss,"), ("CH-ZH", "DE-BE"), ("Zürich,", "Zürich,8000")] {
        assert!(checked(&feed.body.replacen(from, to, 1)).is_err(), "the check finds {to}");
    }
}

/// The prefixes of a feed with their countries, as an independent reader sees them.
fn checked(feed: &str) -> Result<Value, String> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/clients/geofeed.py");
    let mut python = Command::new("python3");
    python.arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = python.spawn().unwrap();
    child.stdin.take().unwrap().write_all(feed.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    if !output.status.success() {
        return Err(text(&output.stderr));
    }
    Ok(serde_json::from_slice(&output.stdout).unwrap())
}

fn bad_input(home: &Home) {
    for (args, code, sentence) in [
        (&["address", "add", "nowhere"][..], 5, "is no address"),
        (&["address", "add", "127.0.0.1"], 5, "no address that machines can share"),
        (&["address", "add", "198.51.100.9", "--country", "ZZ"], 5, "is not a country"),
        (&["address", "rm", "198.51.100.9"], 4, "there is no such egress address"),
        (&["slice", "add", "198.51.100.9", "--edge", "edge"], 5, "is no egress address: add it first"),
        (&["slice", "add", "198.51.100.9", "--edge", "edge", "--slice", "0"], 2, "0 is not in 1..=31"),
        (&["slice", "move", "198.51.100.7-3", "--edge", "edge"], 4, "no machine has slice 3 of 198.51.100.7"),
        (&["slice", "rm", "x"], 4, "there is no such slice"),
    ] {
        let output = home.run(&[&["egress"], args].concat());
        let errors = text(&output.stderr);
        let is_said = errors.contains(sentence) && output.status.code() == Some(code);
        assert!(is_said, "{args:?}: {:?} {errors}", output.status);
    }
}

#[test]
fn slices_stay_without_control_and_end_without_the_bus() {
    run_within(Sockets::Ping, &[], "egress::within_a_network_with_two_edges");
}

#[test]
#[ignore = "runs within the network of slices_stay_without_control_and_end_without_the_bus"]
fn within_a_network_with_two_edges() {
    must(&format!("{WIDE}; ip addr add {SHARED}/32 dev lo"));
    let (home, dir) = (Home::new(), tempfile::tempdir().unwrap());
    let Some((_nginx, address)) = origin(dir.path()) else { return };
    let Some(mut bus) = Bus::start(&home, "") else { return };
    let options = ["--direct-origins", "10.0.0.0/8"];
    let mut control = ControlHere::start_with(&home, &bus, &[&options[..], &["--egress-lease", "10s"]].concat());
    home.account();
    let mut one = EdgeHere::join_with(&home, "eu-1", "eu", "127.0.0.1", &options);
    let two = EdgeHere::join_with(&home, "eu-2", "eu", "127.0.0.2", &options);
    let (socket, host) = home.socket(&[]);
    home.json(&["socket", "origin", "add", &socket, &address]);
    home.json(&["egress", "address", "add", SHARED, "--site", "eu"]);
    for edge in ["eu-1", "eu-2"] {
        home.json(&["egress", "slice", "add", SHARED, "--edge", edge]);
    }
    let ids = [format!("{SHARED}-1"), format!("{SHARED}-2")];
    for (id, edge) in ids.iter().zip(["eu-1", "eu-2"]) {
        let slice = slice_is(&home, id, &json!({"is_open": true, "edge": edge, "site": "eu", "address_site": "eu"}));
        assert_eq!(slice["edge_addresses"].as_array().unwrap().len(), 1, "{slice}");
    }
    let from = |edge: &EdgeHere| {
        let (status, body) = edge.get(&home, &host, "/");
        (status == 200).then(|| seen(&body))
    };
    let opens = |edge: &EdgeHere, slice: u16| {
        let what = "a connection from the slice";
        wait_until(what, || from(edge).filter(|(address, port)| address == SHARED && port / 2_048 == slice))
    };
    opens(&one, 1);
    opens(&two, 2);
    let taken = home.run(&["egress", "slice", "add", SHARED, "--edge", "eu-2", "--slice", "1"]);
    assert!(text(&taken.stderr).contains("is at the edge eu-1") && taken.status.code() == Some(5), "{taken:?}");

    // Without control, beats go on, and so do slices: past a lease and its grace, and past a restart of the edge.
    control.program = None;
    std::thread::sleep(Duration::from_secs(22));
    one.kill();
    one.start(&home, &options);
    opens(&one, 1);
    opens(&two, 2);
    control.resume(&home);
    slice_is(&home, &ids[0], &json!({"state": "held", "edge": "eu-1"}));

    // Moved while in use: the former edge stops, the next one has the slice when the flows have ended.
    home.json(&["egress", "slice", "move", &ids[0], "--edge", "eu-2", "--within", "2s"]);
    wait_until("no connection from the edge without slices", || {
        from(&one).is_none_or(|(address, _)| address == ORIGIN).then_some(())
    });
    let moved = slice_is(&home, &ids[0], &json!({"state": "held", "edge": "eu-2", "is_open": true}));
    assert!(moved["term"].as_u64() > Some(1), "{moved}");

    // Without the bus, the lease ends. The edge opens nothing from the slice, and says why.
    bus.kill();
    wait_until("the lease has ended", || (two.get(&home, &host, "/").0 == 502).then_some(()));
    let (_, health) = two.get(&home, "api.lab.localhost", "/healthz");
    assert!(health.contains("egress: 2 of 2 slices cannot be used"), "{health}");
    let (_, metrics) = two.get(&home, "api.lab.localhost", "/metrics");
    assert!(metrics.contains("sallyport_edge_egress_refusals_total{reason=\"lost\"}"), "{metrics}");
    bus.resume();
    wait_until("a new lease", || from(&two).filter(|(address, _)| address == SHARED));
}

#[test]
fn the_own_address_is_used_only_where_an_option_says_so() {
    run_within(Sockets::Ping, &[], "egress::within_a_network_without_the_address");
}

#[test]
#[ignore = "runs within the network of the_own_address_is_used_only_where_an_option_says_so"]
fn within_a_network_without_the_address() {
    must(WIDE);
    let (home, dir) = (Home::new(), tempfile::tempdir().unwrap());
    let Some((_nginx, address)) = origin(dir.path()) else { return };
    let up = home.up(&["--direct-origins", "10.0.0.0/8", "--egress-own-address"]);
    home.account();
    let (socket, host) = home.socket(&[]);
    home.json(&["socket", "origin", "add", &socket, &address]);
    home.json(&["egress", "address", "add", SHARED]);
    home.json(&["egress", "slice", "add", SHARED, "--edge", "edge"]);
    slice_is(&home, &format!("{SHARED}-1"), &json!({"is_open": false}));
    let answer = up.curl(&host, "/", &[]);
    assert_eq!((answer.status, seen(&answer.body).0.as_str()), (200, ORIGIN));
    let metrics = up.curl("api.localhost", "/metrics", &[]).body;
    assert!(metrics.contains("sallyport_edge_egress_own_address_dials_total 1"), "{metrics}");
}
