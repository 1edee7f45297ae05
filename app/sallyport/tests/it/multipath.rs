//! A connector with several links to its edge, in network namespaces.

use std::{
    path::Path,
    process::{Child, Command},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
};

use sallyport_net::{Trust, client_config, connect_tls};
use sallyport_tunnel::carrier::association::ask_for_association;
use sallyport_wire::{ALPN, Associate};
use serde_json::Value;
use tokio::task::JoinSet;

use crate::{
    edge_space::{DOMAIN, EDGE, must, run_within},
    harness::{Home, HttpResponse, Origin, PATIENCE, Program, Up, text, wait_until},
    tcp::free_port,
};

/// The edge's machine in the network of the services, which is no link.
const OFFICE: &str = "10.0.9.1";
/// Bytes by which a link has carried more than probes and acknowledgements.
const REAL_BYTES: u64 = 200_000;

/// The namespace of the connector, which ends with this value.
struct Machine {
    holder: Child,
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

impl Machine {
    /// A machine in the office's network, without links.
    fn new() -> Self {
        let holder = Command::new("unshare").args(["--net", "sleep", "infinity"]).spawn().unwrap();
        let machine = Self { holder };
        let own = std::fs::read_link("/proc/self/ns/net").unwrap();
        let theirs = format!("/proc/{}/ns/net", machine.holder.id());
        wait_until("the namespace", || std::fs::read_link(Path::new(&theirs)).ok().filter(|theirs| *theirs != own));
        machine.must("ip", "link set lo up");
        machine.add(9);
        machine
    }

    #[track_caller]
    fn must(&self, program: &str, words: &str) {
        must("nsenter", &format!("--target {} --net {program} {words}", self.holder.id()));
    }

    /// Adds the pair of link `number` here and its far end at the edge. The office has no way to the edge.
    fn add(&self, number: u32) {
        let target = self.holder.id();
        must("ip", &format!("link add far{number} type veth peer name link{number} netns {target}"));
        must("ip", &format!("addr add 10.0.{number}.1/24 dev far{number}"));
        must("ip", &format!("link set far{number} up"));
        self.must("ip", &format!("addr add 10.0.{number}.2/24 dev link{number}"));
        self.up(number);
    }

    fn up(&self, number: u32) {
        self.must("ip", &format!("link set link{number} up"));
        if number != 9 {
            self.must("ip", &format!("route replace default via 10.0.{number}.1 dev link{number} metric {number}"));
        }
    }

    fn down(&self, number: u32) {
        self.must("ip", &format!("link set link{number} down"));
    }

    /// Loses all that travels by a link, in both directions, without a sign to the senders.
    fn silence(&self, number: u32) {
        let rules = |device: &str, nft: &dyn Fn(&str)| {
            nft("add table inet t");
            nft("add chain inet t i { type filter hook input priority 0 ; }");
            nft(&format!("add rule inet t i iifname {device}{number} drop"));
        };
        rules("far", &|words| must("nft", words));
        rules("link", &|words| self.must("nft", words));
    }

    /// A connector here for the socket, attached.
    fn connector(&self, home: &Home, socket: &str, origin: &Origin, more: &[&str]) -> Program {
        let (target, port) = (self.holder.id().to_string(), origin.address.port().to_string());
        let mut command = home.program("nsenter");
        command.args(["--target", &target, "--net", env!("CARGO_BIN_EXE_sallyport"), "tunnel", "connect"]);
        command.args(["--socket-id", socket, "--host", OFFICE, "--port", &port, "-o", "json"]).args(more);
        let program = Program::start(&mut command);
        program.wait_for("attached");
        program
    }
}

/// The edge of the test, and a socket there.
struct Place {
    home: Home,
    up: Up,
    socket: String,
    host: String,
    origin: Origin,
}

impl Place {
    /// Its origin is in the office's network.
    fn new(_office: &Machine) -> Self {
        let home = Home::new();
        let listen = format!("0.0.0.0:{}", free_port());
        let up = home.up(&["--domain", DOMAIN, "--sign-up", "open", "--listen", &listen]);
        home.account();
        let (socket, host) = home.socket(&[]);
        let [origin] = Origin::start_at_hosts([OFFICE]);
        Self { home, up, socket, host, origin }
    }

    fn get(&self, path: &str) -> HttpResponse {
        let here = format!("{}:{}:{EDGE}", self.host, self.up.port);
        self.up.curl(&self.host, path, &["--resolve", &here])
    }

    /// The value of a metric whose name and labels are these.
    fn counted(&self, series: &str) -> u64 {
        // Metrics are for this machine.
        let here = format!("api.{DOMAIN}:{}:127.0.0.1", self.up.port);
        let metrics = self.up.curl(&format!("api.{DOMAIN}"), "/metrics", &["--resolve", &here]).body;
        metrics.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok()).unwrap_or(0)
    }

    /// Downloads a megabyte again and again, until so many more bytes have come to the edge by a link.
    fn load_until_used(&self, number: u32, bytes: u64) {
        let before = received(number);
        wait_until(&format!("{bytes} bytes by link {number}"), || {
            assert_eq!(self.get("/bytes/1000000").body.len(), 1_000_000);
            (received(number) >= before + bytes).then_some(())
        });
    }
}

/// Bytes that have come to the edge by a link.
fn received(number: u32) -> u64 {
    let shown = Command::new("ip").args(["-s", "-j", "link", "show", "dev", &format!("far{number}")]).output().unwrap();
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    shown[0]["stats64"]["rx"]["bytes"].as_u64().unwrap()
}

#[test]
fn requests_travel_by_all_links_and_by_one_that_is_added() {
    run_within("multipath::within_links_that_come");
}

#[test]
#[ignore = "runs within the network of requests_travel_by_all_links_and_by_one_that_is_added"]
fn within_links_that_come() {
    let machine = Machine::new();
    machine.add(1);
    machine.add(2);
    let place = Place::new(&machine);
    let links = ["--link", "link1", "--link", "10.0.2.2", "--link", "link3"];
    let connector = machine.connector(&place.home, &place.socket, &place.origin, &links);
    assert!(connector.output().contains("\"transport\":\"multipath\""), "{}", connector.output());
    let response = place.get("/hello");
    assert!(response.status == 200 && response.body.starts_with("10.0.9.1 GET /hello\n"), "{}", response.body);
    for number in [1, 2] {
        place.load_until_used(number, REAL_BYTES);
    }
    assert_eq!(place.counted("sallyport_edge_multipath_open"), 1);

    machine.add(3);
    place.load_until_used(3, REAL_BYTES);
    assert_eq!(connector.output().matches("\"connected\"").count(), 1, "no reconnect: {}", connector.output());
    assert!(place.counted("sallyport_edge_carriers_total{transport=\"multipath\",kind=\"leg\"}") >= 1);
    assert!(connector.stop().success(), "{}", connector.output());
    wait_until("no association is left", || (place.counted("sallyport_edge_multipath_open") == 0).then_some(()));
}

#[test]
fn a_metered_link_carries_only_what_no_other_can() {
    run_within("multipath::within_a_metered_link");
}

#[test]
#[ignore = "runs within the network of a_metered_link_carries_only_what_no_other_can"]
fn within_a_metered_link() {
    let machine = Machine::new();
    machine.add(1);
    machine.add(2);
    let place = Place::new(&machine);
    let links = ["--transport", "multipath", "--link", "link1", "--link", "link2,metered"];
    let connector = machine.connector(&place.home, &place.socket, &place.origin, &links);
    let free_of_charge = received(2);
    place.load_until_used(1, 5 * REAL_BYTES);
    let charged = received(2) - free_of_charge;
    assert!(charged < REAL_BYTES, "{charged} bytes by the metered link");
    machine.down(1);
    place.load_until_used(2, 5 * REAL_BYTES);
    assert_eq!(connector.output().matches("\"connected\"").count(), 1, "no reconnect: {}", connector.output());
}

#[test]
fn a_link_that_goes_down_or_silent_under_load_loses_no_request() {
    run_within("multipath::within_links_that_fail");
}

#[test]
#[ignore = "runs within the network of a_link_that_goes_down_or_silent_under_load_loses_no_request"]
fn within_links_that_fail() {
    const WORKERS: usize = 3;
    const BYTES: usize = 100_000;
    let machine = Machine::new();
    machine.add(1);
    machine.add(2);
    let place = Place::new(&machine);
    let links = ["--link", "link1", "--link", "link2"];
    let connector = machine.connector(&place.home, &place.socket, &place.origin, &links);
    let (done, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while !is_over.load(Ordering::SeqCst) {
                    let response = place.get(&format!("/bytes/{BYTES}"));
                    if (response.status, response.body.len()) != (200, BYTES) {
                        is_over.store(true, Ordering::SeqCst);
                        panic!("a request is lost: {} after {} bytes", response.status, response.body.len());
                    }
                    done.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        let more_are_done = |what: &str| {
            let before = done.load(Ordering::SeqCst);
            wait_until(what, || {
                let is_enough = done.load(Ordering::SeqCst) >= before + 2 * WORKERS;
                (is_enough || is_over.load(Ordering::SeqCst)).then_some(())
            });
        };
        more_are_done("requests by two links");
        machine.down(1);
        more_are_done("requests by the second link alone");
        machine.up(1);
        let before = received(1);
        wait_until("the first link carries again", || {
            (received(1) > before + REAL_BYTES || is_over.load(Ordering::SeqCst)).then_some(())
        });
        machine.silence(2);
        more_are_done("requests by the first link alone");
        is_over.store(true, Ordering::SeqCst);
    });
    assert_eq!(connector.output().matches("\"connected\"").count(), 1, "no reconnect: {}", connector.output());
}

#[test]
fn an_edge_without_associations_is_reached_by_one_link() {
    let home = Home::new();
    let up = home.up(&["--listen-quic", "none"]);
    home.account();
    let (socket, host) = home.socket(&[]);
    let origin = Origin::start("origin");
    let connector = home.connector(&socket, origin.address, &["--link", "lo"]);
    assert!(connector.output().contains("\"transport\":\"tcp\""), "{}", connector.output());
    assert_eq!(up.curl(&host, "/", &[]).status, 200);
    assert!(connector.stop().success(), "{}", connector.output());

    let port = origin.address.port().to_string();
    let only = ["tunnel", "connect", &socket, "--port", &port, "--transport", "multipath", "--link", "lo"];
    let connector = Program::start(&mut home.command(&only));
    connector.wait_for("this edge takes no tunnels over several paths");
    connector.signal("KILL");
}

#[test]
fn an_association_needs_the_credential_of_a_tunnel() {
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    let (socket, _) = home.socket(&[]);
    let tunnel = home.json(&["tunnel", "create", &socket]);
    let id = tunnel["id"].as_str().unwrap();
    let args = ["--tunnel-id", id, "--tunnel-credential", "wrong", "--port", "1", "--link", "lo"];
    let refused = home.run(&[&["tunnel", "connect", &socket, "--transport", "multipath"], &args[..]].concat());
    assert!(!refused.status.success());
    let shown = text(&refused.stderr) + &text(&refused.stdout);
    assert!(shown.contains("the credential is not that of tunnel"), "{shown}");
    let metrics = up.curl("api.localhost", "/metrics", &[]).body;
    assert!(metrics.contains("sallyport_edge_multipath_refused_total{reason=\"credential\"}"), "{metrics}");
    assert!(metrics.contains("sallyport_edge_multipath_open 0"), "{metrics}");
}

#[test]
fn associations_are_bounded_for_an_address_and_given_up_if_nothing_comes() {
    let home = Home::new();
    let up = home.up(&[]);
    home.account();
    let (socket, _) = home.socket(&[]);
    let tunnel = home.json(&["tunnel", "create", &socket]);
    let of = |key: &str| tunnel[key].as_str().unwrap().to_owned();
    let question = Associate { tunnel: of("id").parse().unwrap(), credential: of("credential") };
    let (tls, port) = (client_config(&Trust::Ca(up.ca.clone()), &[ALPN]).unwrap(), up.port);
    let ask = move || {
        let (question, tls) = (question.clone(), tls.clone());
        async move {
            let stream = connect_tls("127.0.0.1", port, "tunnel.localhost", tls, PATIENCE).await.unwrap();
            ask_for_association(stream, &question).await.map_err(|error| error.to_string())
        }
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let answers = runtime.block_on(async { (0..80).map(|_| ask()).collect::<JoinSet<_>>().join_all().await });
    let refusals: Vec<_> = answers.into_iter().filter_map(Result::err).collect();
    assert!(!refusals.is_empty(), "one address got 80 associations");
    for refusal in refusals {
        assert!(refusal.contains("your address has as many tunnels over several paths"), "{refusal}");
    }
    // A connector that opens no connection does not keep its place.
    wait_until("all are given up", || {
        let metrics = up.curl("api.localhost", "/metrics", &[]).body;
        let unused = "sallyport_edge_multipath_refused_total{reason=\"unused\"}";
        (metrics.contains("sallyport_edge_multipath_open 0") && metrics.contains(unused)).then_some(())
    });
}

#[test]
fn what_names_no_link_is_refused_in_one_sentence() {
    let home = Home::new();
    for (links, words) in [
        (&["--link", ""][..], "no link is named: give a device, an address, or auto"),
        (&["--link", "a/b"], "\"a/b\" is neither a device nor an address"),
        (&["--link", "eth0,cheap"], "\"cheap\" is no property of a link: expected metered, standby or weight=N"),
        (&["--link", "eth0,weight=0"], "\"0\" is no weight: expected a number from 1 to 1000"),
        (&["--link", "auto,metered"], "auto takes every link"),
        (&["--link", "auto", "--link", "eth0"], "--link: auto takes every link"),
        (&["--link", "eth0", "--link", "eth0,standby"], "--link: the link eth0 is named twice"),
        (
            &["--link", "eth0", "--transport", "tcp"],
            "--link is for several links at once, and --transport tcp uses one",
        ),
    ] {
        let refused = home.run(&[&["connect", "8000"][..], links].concat());
        let shown = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{links:?}: {shown}");
        assert!(shown.contains(words), "{links:?}: {shown}");
    }
    let file = home.dir.path().join("services.toml");
    std::fs::write(&file, "link = [\"eth0\", \"eth0\"]\n[[service]]\nport = 8000\n").unwrap();
    let refused = home.run(&["run", file.to_str().unwrap()]);
    let shown = text(&refused.stderr);
    assert!(refused.status.code() == Some(2) && shown.contains("--link: the link eth0 is named twice"), "{shown}");
}
