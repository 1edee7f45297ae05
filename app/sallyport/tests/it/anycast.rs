//! Prefixes that an edge announces by BGP: real BIRD on both sides, in networks of the test's own.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::{
    harness::{Home, Program, Up, text, wait_until},
    networks::{FarNetwork, Process, Sockets, must, run_within},
};

const FOUR: &str = "198.51.100.0/24";
const SIX: &str = "2001:db8:5::/48";
const PORT: &str = "8443";

fn bird() -> &'static str {
    if Path::new("/usr/sbin/bird").exists() { "/usr/sbin/bird" } else { "bird" }
}

fn can_run() -> bool {
    let has_bird = Command::new(bird()).arg("--version").output().is_ok();
    if !has_bird {
        assert!(std::env::var_os("CI").is_none(), "BIRD must be there in CI");
        println!("skipped: this test needs Debian's package bird2");
    }
    has_bird
}

/// A router of another network. It installs what it learns, so that its own clients go to the edge.
const ROUTER: &str = r#"
log stderr all;
router id 10.99.0.2;
protocol device { }
protocol kernel { ipv4 { export all; import none; }; }
protocol kernel { ipv6 { export all; import none; }; }
template bgp edge { ttl security on; ipv4 { import all; export none; }; ipv6 { import all; export none; }; }
protocol bgp four from edge { local 10.99.0.2 as 64501; neighbor 10.99.0.1 as 64500; password "hunter2-hunter2"; }
protocol bgp six from edge { local fd99::2 as 64501; neighbor fd99::1 as 64500; }
"#;

/// What BIRD says to a command.
fn birdc(socket: &Path, command: &str) -> String {
    let birdc = if Path::new("/usr/sbin/birdc").exists() { "/usr/sbin/birdc" } else { "birdc" };
    let output = Command::new(birdc).arg("-s").arg(socket).args(command.split(' ')).output().unwrap();
    text(&output.stdout)
}

/// An installation on one machine beside a BIRD, and a router in another network.
struct Site {
    home: Home,
    far: FarNetwork,
    edge: Process,
    _router: Process,
    up: Option<Up>,
}

impl Site {
    fn start() -> Self {
        let (home, far) = (Home::new(), FarNetwork::new());
        let path = |name: &str| home.dir.path().join(name);
        fs::write(path("router.conf"), ROUTER).unwrap();
        fs::write(path("bird.conf"), Self::operator_file(&home)).unwrap();
        fs::write(path("password"), "hunter2-hunter2\n").unwrap();
        fs::write(path("sallyport.conf"), "protocol device sp_device { }\n").unwrap();
        let start = |command: &mut Command, name: &str| {
            command.arg("-f").arg("-c").arg(path(&format!("{name}.conf")));
            command.arg("-s").arg(path(&format!("{name}.ctl"))).stdin(Stdio::null()).stdout(Stdio::null());
            Process(command.spawn().unwrap())
        };
        let [nsenter, net] = far.enter();
        let router = start(Command::new(nsenter).args([&net, bird()]), "router");
        let edge = start(&mut Command::new(bird()), "bird");
        let mut site = Self { home, far, edge, _router: router, up: None };
        wait_until("both BIRDs", || {
            let answer = |name: &str| birdc(&site.path(name), "show status").contains("Daemon is up");
            (answer("bird.ctl") && answer("router.ctl")).then_some(())
        });
        site.start_up();
        let token = fs::read_to_string(site.home.data().join("setup-token")).unwrap();
        let args = ["account", "create", "--name", "Ann", "--email", "ann@example.com", "--setup-token", token.trim()];
        assert!(site.home.run(&args).status.success());
        assert!(site.home.run(&["login", "--email", "ann@example.com"]).status.success());
        site
    }

    fn operator_file(home: &Home) -> String {
        format!("log stderr all;\ninclude \"{}\";\n", home.dir.path().join("sallyport.conf").display())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.dir.path().join(name)
    }

    fn start_up(&mut self) {
        let (socket, file) = (self.path("bird.ctl"), self.path("sallyport.conf"));
        let listen = format!("[::]:{PORT}");
        let args = [
            "--listen",
            &listen,
            "--drain",
            "4s",
            "--bird",
            socket.to_str().unwrap(),
            "--bird-config",
            file.to_str().unwrap(),
            "--anycast-allow",
            &format!("{FOUR},{SIX}"),
            "--anycast-router-id",
            "10.99.0.1",
        ];
        self.up = Some(self.home.up(&args));
    }

    fn program(&self) -> &Program {
        &self.up.as_ref().unwrap().program
    }

    /// Sets up both prefixes and both sessions. With no site to keep, the only one may withdraw.
    fn set_up(&self) {
        for prefix in [FOUR, SIX] {
            self.home.json(&["anycast", "prefix", "add", prefix, "--min-sites", "0"]);
        }
        let password = self.path("password");
        let common = ["--as", "64501", "--local-as", "64500"];
        let four = ["anycast", "peer", "add", "four", "--address", "10.99.0.2", "--password-file"];
        let made = self.home.json(&[&four[..], &[password.to_str().unwrap()], &common].concat());
        assert!(made["has_password"] == true && made["password"].is_null(), "{made}");
        self.home.json(&[&["anycast", "peer", "add", "six", "--address", "fd99::2"][..], &common].concat());
    }

    /// What the router has of a prefix.
    fn heard(&self, prefix: &str) -> String {
        let said = birdc(&self.path("router.ctl"), &format!("show route {prefix} all"));
        if said.contains("BGP.as_path") { said } else { String::new() }
    }

    fn wait_heard(&self) {
        wait_until("the router has both prefixes", || {
            (!self.heard(FOUR).is_empty() && !self.heard(SIX).is_empty()).then_some(())
        });
    }

    /// A request of a client behind the router.
    fn far_client(&self, address: &str) -> String {
        let [nsenter, net] = self.far.enter();
        let resolve = format!("api.localhost:{PORT}:{address}");
        let mut curl = Command::new(nsenter);
        curl.args([&net, "curl", "-sS", "--max-time", "10", "--resolve", &resolve, "--cacert"]);
        curl.arg(&self.up.as_ref().unwrap().ca).arg(format!("https://api.localhost:{PORT}/healthz"));
        let output = curl.output().unwrap();
        text(&output.stdout) + &text(&output.stderr)
    }

    fn healthz(&self) -> String {
        self.up.as_ref().unwrap().curl("api.localhost", "/healthz", &[]).body
    }

    fn states(&self) -> Vec<String> {
        let status = self.home.json(&["anycast", "status"]);
        let prefixes = status["edges"][0]["prefixes"].as_array().cloned().unwrap_or_default();
        prefixes.iter().map(|prefix| prefix["state"].as_str().unwrap().to_owned()).collect()
    }

    fn has_addresses(&self) -> bool {
        let output = Command::new("ip").args(["addr", "show", "dev", "lo"]).output().unwrap();
        let shown = text(&output.stdout);
        shown.contains("198.51.100.1/32") || shown.contains("2001:db8:5::1/128")
    }
}

#[test]
fn a_prefix_is_announced_drained_and_announced_no_more() {
    if can_run() {
        run_within(Sockets::Ping, &[], "anycast::within_a_network_that_drains");
    }
}

#[test]
fn a_broken_bird_and_a_killed_edge_change_no_announcement_and_a_stop_withdraws() {
    if can_run() {
        run_within(Sockets::Ping, &[], "anycast::within_a_network_with_faults");
    }
}

#[test]
#[ignore = "runs within the network of a_prefix_is_announced_drained_and_announced_no_more"]
fn within_a_network_that_drains() {
    let site = Site::start();
    let (home, errors) = (&site.home, |args: &[&str]| text(&site.home.run(args).stderr));
    // Nothing is there yet, and bad input changes nothing.
    assert!(errors(&["anycast", "status"]).contains("sallyport anycast prefix add"));
    for (args, says) in [
        (&["prefix", "add", "203.0.113.0/24"][..], "not within a prefix of --anycast-allow"),
        (&["prefix", "add", "0.0.0.0/0"], "too short"),
        (&["prefix", "add", "198.51.100.7/24"], "bits after its length"),
        (&["prefix", "add", "x"], "is no prefix"),
        (&["prefix", "rm", "203.0.113.0/24", "--yes"], "there is no prefix"),
        (&["peer", "add", "A", "--address", "10.99.0.2", "--as", "1", "--local-as", "2"], "is no name of a neighbour"),
        (&["peer", "rm", "nobody", "--yes"], "there is no router"),
        (&["drain", "nowhere:x"], "is no place"),
        (&["drain", "edge:mars-1", "--off"], "there is no order to drain edge:mars-1"),
        (&["explain", "203.0.113.0/24"], "is no prefix of this installation"),
    ] {
        let said = errors(&[&["anycast"], args].concat());
        assert!(said.contains(says), "{args:?}: {said}");
    }
    site.set_up();
    assert!(errors(&["anycast", "prefix", "add", FOUR]).contains("already"));

    // Clients behind the router reach the edge at its anycast addresses.
    site.wait_heard();
    assert!(!site.heard(FOUR).contains("65535,0"), "{}", site.heard(FOUR));
    for address in ["198.51.100.1", "[2001:db8:5::1]"] {
        let answer = wait_until("an answer", || {
            let answer = site.far_client(address);
            answer.starts_with("ok\n").then_some(answer)
        });
        assert!(!answer.contains("anycast"), "{answer}");
    }
    let status = wait_until("both sessions in the status", || {
        let status = home.json(&["anycast", "status"]);
        let sent = |at: usize| status["edges"][0]["prefixes"][at]["sent_to"].as_array().is_some_and(|to| to.len() == 1);
        (sent(0) && sent(1)).then_some(status)
    });
    let edge = &status["edges"][0];
    assert_eq!((&edge["edge"], &edge["prefixes"][0]["prefix"]), (&Value::from("edge"), &Value::from(FOUR)), "{status}");
    assert!(edge["bird"].as_str().unwrap().starts_with('2') && edge["peers"][0]["is_up"] == true, "{status}");
    let preview = home.json(&["anycast", "preview"]);
    let next = preview["edges"][0]["next"].as_str().unwrap();
    assert!(next.contains(FOUR) && next.contains("password") && !next.contains("hunter2"), "{next}");
    let metrics = site.up.as_ref().unwrap().curl("api.localhost", "/metrics", &[]).body;
    for line in [
        "sallyport_edge_anycast_prefixes{state=\"announced\"} 2",
        "sallyport_edge_anycast_changes_total{state=\"announced\"} 2",
        "sallyport_edge_anycast_bird_up 1",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    assert!(!site.program().output().contains("sallyport-own-check"), "the edge logs its own requests");

    // A drain leads clients elsewhere first, then withdraws, then removes the addresses.
    let drain = Program::start(&mut home.command(&["anycast", "drain", "everywhere", "--wait", "60s"]));
    wait_until("GRACEFUL_SHUTDOWN", || site.heard(FOUR).contains("(65535,0)").then_some(()));
    assert!(
        site.has_addresses() && site.far_client("198.51.100.1").starts_with("ok\n"),
        "clients are served meanwhile"
    );
    wait_until("the withdrawal", || (site.heard(FOUR) + &site.heard(SIX)).is_empty().then_some(()));
    assert!(drain.ended().success(), "{}", drain.output());
    assert!(!site.has_addresses() && site.states() == ["withdrawn", "withdrawn"]);
    assert!(home.json(&["anycast", "drain", "everywhere", "--off"])["deleted"] == "everywhere");

    // All of it is on record.
    let listed = text(&home.run(&["audit", "--kind", "anycast", "-o", "json"]).stdout);
    let events: Vec<Value> = listed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let states: Vec<_> = events
        .iter()
        .filter(|event| event["anycast"]["prefix"] == FOUR)
        .map(|event| event["anycast"]["state"].as_str().unwrap().to_owned())
        .collect();
    let mut sorted = states.clone();
    sorted.sort();
    assert_eq!(sorted, ["announced", "deprioritised", "withdrawn"], "{events:?}");
    assert!(events.iter().all(|event| event["anycast"]["why"].as_str().is_some_and(|why| !why.is_empty())));
    assert_eq!(events.len(), 6, "{events:?}");
}

#[test]
#[ignore = "runs within the network of a_broken_bird_and_a_killed_edge_change_no_announcement_and_a_stop_withdraws"]
fn within_a_network_with_faults() {
    let mut site = Site::start();
    // An address that somebody else has added is never removed.
    must("ip addr add 198.51.100.200/32 dev lo");
    site.set_up();
    site.wait_heard();

    // Somebody breaks the operator's file, and an order comes: what is announced stays.
    let file = site.path("bird.conf");
    fs::write(&file, Site::operator_file(&site.home) + "protocol nonsense {\n").unwrap();
    site.home.json(&["anycast", "maintain", "everywhere"]);
    wait_until("health with the fault", || site.healthz().contains("BIRD does not take").then_some(()));
    let status = site.home.json(&["anycast", "status"]);
    assert!(status.to_string().contains("nonsense") || status.to_string().contains("syntax"), "{status}");
    assert!(!site.heard(FOUR).is_empty() && !site.heard(FOUR).contains("65535,0"), "{}", site.heard(FOUR));
    site.home.json(&["anycast", "maintain", "everywhere", "--off"]);
    fs::write(&file, Site::operator_file(&site.home)).unwrap();
    wait_until("health without it", || (!site.healthz().contains("anycast")).then_some(()));

    // A BIRD that hangs.
    let pid = site.edge.0.id();
    must(&format!("kill -STOP {pid}"));
    wait_until("health with a hung BIRD", || site.healthz().contains("BIRD does not answer").then_some(()));
    must(&format!("kill -CONT {pid}"));
    wait_until("health with BIRD again", || (!site.healthz().contains("anycast")).then_some(()));
    assert!(!site.heard(FOUR).is_empty());

    // An edge that is killed leaves all as it is, and the next one goes on with it.
    site.program().signal("KILL");
    site.program().ended();
    assert!(!site.heard(FOUR).is_empty() && site.has_addresses());
    site.start_up();
    wait_until("the states of before", || (site.states() == ["announced", "announced"]).then_some(()));
    assert!(site.far_client("198.51.100.1").starts_with("ok\n"));

    // A stop withdraws before the listener is gone.
    assert!(site.program().stop().success(), "{}", site.program().output());
    assert_eq!(site.heard(FOUR) + &site.heard(SIX), "");
    let output = Command::new("ip").args(["addr", "show", "dev", "lo"]).output().unwrap();
    let shown = text(&output.stdout);
    assert!(!site.has_addresses() && shown.contains("198.51.100.200"), "{shown}");
}
