//! A site whose edges share one address, behind a real balancer: control, three edges and a client, each in a network of
//! its own. The balancer's machine is the network in which the test runs; control, the bus and the service are there too.

use std::{
    cell::RefCell,
    fs,
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use serde_json::Value;

use crate::{
    harness::{Home, Program, text, wait_until},
    networks::{Process, Sockets, must, run_within},
    protocols::{client, tool},
};

const DOMAIN: &str = "lab.localhost";
/// The address that the edges share.
const VIRTUAL: &str = "203.0.113.10";
/// The address from which edges dial.
const SHARED: &str = "203.0.113.20";
/// The address of the balancer's machine.
const HUB: &str = "10.9.0.1";
const PORT: &str = "8443";
/// Where direct origins may be.
const ORIGINS: &str = "10.1.0.0/24";
/// An origin that answers with the address and the port of its client.
const NAMES_ITS_CLIENT: &str = "import http.server as h
class Handler(h.BaseHTTPRequestHandler):
    def do_GET(self):
        body = ('%s %d' % self.client_address[:2]).encode()
        self.send_response(200)
        self.send_header('content-length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
h.ThreadingHTTPServer(('10.1.0.2', 8000), Handler).serve_forever()";

/// A machine at the hub. The hub has .1 of its network, the machine .2.
struct Machine {
    holder: Process,
}

impl Machine {
    fn new(device: &str, network: &str) -> Self {
        let holder = Process(Command::new("unshare").args(["--net", "sleep", "900"]).spawn().unwrap());
        let of = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        wait_until("another namespace", || of(&holder.0.id().to_string()).filter(|it| Some(it) != of("self").as_ref()));
        let machine = Self { holder };
        let pid = machine.holder.0.id();
        must(&format!("ip link add {device} type veth peer name e0 netns {pid}"));
        must(&format!("ethtool -K {device} tx off gro on >/dev/null; ip addr add {network}.1/24 dev {device}"));
        // Outer headers need room, which the client's link has not.
        let mtu = if device == "b0" { 1500 } else { 1600 };
        must(&format!("ip link set {device} mtu {mtu} up"));
        machine.run(&format!(
            "set -e; ip link set lo up; ethtool -K e0 tx off gro on >/dev/null; ip link set e0 mtu {mtu} up; \
             sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.e0.rp_filter=0; \
             sysctl -qw net.ipv4.ip_local_port_range='2048 65535'; \
             ip addr add {network}.2/24 dev e0; ip route add default via {network}.1"
        ));
        machine
    }

    /// The command, there.
    fn within(&self, command: &Command) -> Command {
        let mut there = Command::new("nsenter");
        there.arg(format!("--net=/proc/{}/ns/net", self.holder.0.id())).arg(command.get_program());
        there.args(command.get_args()).stdin(Stdio::null());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => there.env(name, value),
                None => there.env_remove(name),
            };
        }
        there
    }

    fn run(&self, line: &str) -> String {
        let output = self.within(Command::new("sh").args(["-c", line])).output().unwrap();
        assert!(output.status.success(), "{line}: {}", text(&output.stderr));
        text(&output.stdout)
    }
}

/// The client, which holds its connections open.
struct Client {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Client {
    fn start(machine: &Machine, home: &Home, host: &str) -> Self {
        let mut python = Command::new("python3");
        python.arg(client("balancer.py")).args([VIRTUAL, PORT, host]).arg(home.data().join("ca.pem"));
        let mut command = machine.within(&python);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut client = Self { child, output };
        assert_eq!(client.hear(), "ready");
        client
    }

    fn hear(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("the client said {line:?}"))
    }

    fn say(&mut self, words: &str) -> Value {
        writeln!(self.child.stdin.as_mut().unwrap(), "{words}").unwrap();
        self.hear()
    }

    /// Opens connections, each with a request. Returns how many were answered.
    fn open(&mut self, count: u64) -> u64 {
        self.say(&format!("open {count}"))["opened"].as_u64().unwrap()
    }

    /// Sends a request on each connection. Returns how many are answered, and of how many.
    fn ask(&mut self) -> (u64, u64) {
        let said = self.say("ask");
        (said["answered"].as_u64().unwrap(), said["of"].as_u64().unwrap())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// An edge, and its machine.
struct Edge {
    machine: Machine,
    program: Program,
}

impl Edge {
    fn join(site: &Site, number: usize) -> Self {
        let machine = Machine::new(&format!("b{number}"), &format!("10.2.{number}"));
        let home = &site.home;
        let name = format!("eu-{number}");
        let token = home.json(&["edge", "token", "create", "--name", &name, "--region", "eu"]);
        let (listen, data, pins) = (format!(":{PORT}"), home.dir.path().join(&name), site.pins(&name));
        let mut command = home.command(&["edge", "--listen", &listen, "--behind-balancer", "--drain", "2s"]);
        command.args(["--direct-origins", ORIGINS, "--join", token["token"].as_str().unwrap()]);
        command.arg("--data").arg(data).arg("--balancer-pins").arg(pins);
        let program = Program::start(&mut machine.within(&command));
        program.wait_for("ready");
        Self { machine, program }
    }

    /// The connections to the shared address.
    fn connections(&self) -> u64 {
        let line = format!("ss -Htn state established src {VIRTUAL} sport = :{PORT} | wc -l");
        self.machine.run(&line).trim().parse().unwrap()
    }
}

/// The installation, before its edges.
struct Site {
    home: Home,
    _bus: Program,
    control: RefCell<Option<Program>>,
}

impl Site {
    fn start(nats: &Path) -> Self {
        let home = Home::new();
        must("sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0");
        must(&format!("ip addr add {HUB}/32 dev lo"));
        let folder = home.dir.path().join("bpf");
        must(&format!("mkdir {0} && mount -t bpf bpf {0}", folder.display()));
        let config = home.dir.path().join("nats.conf");
        let store = home.dir.path().join("nats");
        fs::write(&config, format!("listen: {HUB}:4222\njetstream {{ store_dir: {store:?}, max_mem: 64M }}\n"))
            .unwrap();
        let bus = Program::start(Command::new(nats).arg("-c").arg(config));
        bus.wait_for("Server is ready");
        let (url, edges, data) = (format!("nats://{HUB}:4222"), format!("{HUB}:8444"), home.data());
        let mut control = home.command(&["control", "--domain", DOMAIN, "--sign-up", "open", "--bus", &url]);
        control.args(["--listen", "0.0.0.0:8443", "--listen-edges", &edges, "--advertise", &edges]);
        control.args(["--direct-origins", ORIGINS, "--data"]).arg(data);
        let control = Program::start(&mut control);
        control.wait_for("ready");
        home.account();
        Self { home, _bus: bus, control: RefCell::new(Some(control)) }
    }

    fn pins(&self, name: &str) -> PathBuf {
        self.home.dir.path().join("bpf").join(name)
    }

    fn token_file(&self) -> PathBuf {
        let token = self.home.json(&["token", "create", "--name", "balancer", "--scope", "all"]);
        let file = self.home.dir.path().join("token");
        fs::write(&file, token["token"].as_str().unwrap()).unwrap();
        file
    }

    /// `sallyport packet` on the balancer's machine.
    fn packet(&self, words: &[&str]) -> Command {
        let mut command = self.home.command(&["packet"]);
        command.arg("--pins").arg(self.pins("balance")).args(words).env("NO_COLOR", "1");
        command.env("SALLYPORT_CA", self.home.data().join("ca.pem"));
        command
    }

    fn balance(&self, site: &str, token: &Path) -> Command {
        let api = format!("https://api.{DOMAIN}:8443");
        let mut command = self.packet(&["balance", "run", "--dev", "b0,b1,b2,b3", "--interval", "200"]);
        command.args(["--control", &api, "--site", site, "--token-file"]).arg(token);
        command.arg("--state").arg(self.home.dir.path().join("balancer.json"));
        command
    }

    /// The states of edges, as control or the balancer knows them.
    fn states(edges: &Value) -> Vec<String> {
        let edge = |edge: &Value| format!("{} {}", edge["name"].as_str().unwrap(), edge["state"].as_str().unwrap());
        edges.as_array().unwrap().iter().map(edge).collect()
    }

    fn states_at_control(&self) -> Vec<String> {
        Self::states(&self.home.json(&["balancer", "show", "eu"])["edges"])
    }

    fn states_at_balancer(&self) -> Vec<String> {
        let output = self.packet(&["balance", "show", "edges", "-o", "json"]).output().unwrap();
        serde_json::from_slice(&output.stdout).map(|edges| Self::states(&edges)).unwrap_or_default()
    }

    fn wait_for_states(&self, wanted: [&str; 3]) {
        wait_until(&format!("{wanted:?}"), || (self.states_at_balancer() == wanted).then_some(()));
    }
}

/// Clients of HTTP/3 move to another port: their connection ids lead to the edges that have them.
fn quic_stays_with_its_edge(site: &Site, machine: &Machine, host: &str) {
    let mut python = Command::new(tool("aioquic").unwrap());
    python.arg(client("balancer_http3.py")).args([VIRTUAL, PORT, host]).arg(site.home.data().join("ca.pem")).arg("12");
    let output = machine.within(&python).output().unwrap();
    let said: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)));
    println!("QUIC: {said}");
    assert_eq!((&said["answered"], &said["moved"]), (&12.into(), &12.into()));
    let servers = said["servers"].as_array().unwrap();
    assert!(servers.len() > 1 && servers.iter().all(|server| (1..=3).contains(&server.as_i64().unwrap())), "{said}");
}

/// A service whose origin is at the visitor's machine: packets of the balancer's own machine pass no balancer.
struct Dialed<'a> {
    site: &'a Site,
    visitor: &'a Machine,
    host: String,
    _origin: Process,
}

impl<'a> Dialed<'a> {
    fn start(site: &'a Site, visitor: &'a Machine) -> Self {
        let mut python = Command::new("python3");
        python.args(["-c", NAMES_ITS_CLIENT]).stderr(Stdio::null());
        let origin = Process(visitor.within(&python).spawn().unwrap());
        let (socket, host) = site.home.socket(&[]);
        site.home.json(&["socket", "origin", "add", &socket, "10.1.0.2:8000"]);
        Self { site, visitor, host, _origin: origin }
    }

    /// From now on, the edges dial from one address.
    fn share_an_address(&self) {
        let home = &self.site.home;
        home.json(&["egress", "address", "add", SHARED, "--site", "eu"]);
        for number in 1..=3 {
            let (edge, slice) = (format!("eu-{number}"), number.to_string());
            home.json(&["egress", "slice", "add", SHARED, "--edge", &edge, "--slice", &slice]);
        }
    }

    /// Asks an edge until the origin has seen the edge's slice.
    fn leaves_from_its_slice(&self, number: u16) {
        let Self { host, .. } = self;
        let ca = self.site.home.data().join("ca.pem");
        let line = format!(
            "curl -s -m 5 --cacert {} --resolve {host}:{PORT}:10.2.{number}.2 https://{host}:{PORT}/ || true",
            ca.display()
        );
        wait_until(&format!("a request by slice {number}"), || {
            let answer = self.visitor.run(&line);
            let (address, port) = answer.split_once(' ')?;
            (address == SHARED && port.parse::<u16>().ok()? / 2_048 == number).then_some(())
        });
    }
}

#[test]
fn edges_behind_a_balancer_share_an_address_and_flows_outlive_those_that_go() {
    // They are fetched here: within the networks there is no internet.
    let has_client = tool("aioquic").is_some();
    if tool("nats-server").is_some() && has_client {
        run_within(Sockets::Ping, &["unshare", "--mount"], "balancer::within_its_networks");
    }
}

#[test]
#[ignore = "runs within networks of its own"]
fn within_its_networks() {
    let site = Site::start(&tool("nats-server").unwrap());
    let visitor = Machine::new("b0", "10.1.0");
    let edges: Vec<Edge> = (1..=3).map(|number| Edge::join(&site, number)).collect();
    let refused = site.home.run(&["balancer", "set", "mars", "--address", VIRTUAL, "--from", HUB]);
    assert!(text(&refused.stderr).contains("no edge has joined in the region mars"), "{}", text(&refused.stderr));
    // An edge that nobody can use says why.
    let note = edges[0].program.wait_for("has no balancer");
    assert!(note.contains("sallyport balancer set eu"), "{note}");

    let dialed = Dialed::start(&site, &visitor);
    let set = site.home.json(&["balancer", "set", "eu", "--address", VIRTUAL, "--from", HUB]);
    assert_eq!((set["site"].as_str(), set["encapsulation"].as_str()), (Some("eu"), Some("gue")));
    let serving = ["eu-1 serving", "eu-2 serving", "eu-3 serving"];
    wait_until("three edges at control", || (site.states_at_control() == serving).then_some(()));

    let token = site.token_file();
    let unknown = site.balance("us", &token).output().unwrap();
    assert_eq!(unknown.status.code(), Some(4), "{}", text(&unknown.stderr));
    let balancer = Program::start(&mut site.balance("eu", &token));
    balancer.wait_for("keeping the tables in step");
    site.wait_for_states(serving);
    quic_stays_with_its_edge(&site, &visitor, &dialed.host);
    dialed.share_an_address();
    (1..=3).for_each(|number| dialed.leaves_from_its_slice(number));
    let mut client = Client::start(&visitor, &site.home, &dialed.host);
    assert_eq!(client.open(60), 60);
    let shares: Vec<_> = edges.iter().map(Edge::connections).collect();
    println!("connections: {shares:?}");
    assert!(shares.iter().all(|share| *share > 0) && shares.iter().sum::<u64>() == 60, "{shares:?}");

    // A drained edge keeps its flows, until it ends them itself after a response, and gets no new ones.
    site.home.json(&["edge", "drain", "eu-1"]);
    site.wait_for_states(["eu-1 draining", "eu-2 serving", "eu-3 serving"]);
    assert_eq!(client.ask(), (60, 60));
    assert_eq!(client.open(40), 40);
    assert_eq!(edges[0].connections(), 0, "it has no new ones");
    let left = 100 - shares[0];
    assert_eq!(client.ask(), (left, left));

    // A killed edge takes its own flows with it, and no others; new ones go elsewhere.
    let of_two = edges[1].connections();
    edges[1].program.signal("KILL");
    site.wait_for_states(["eu-1 draining", "eu-2 down", "eu-3 serving"]);
    assert_eq!(client.open(20), 20);
    assert_eq!(client.ask(), (left + 20 - of_two, left + 20));
    wait_until("control sees that eu-2 is gone", || {
        site.states_at_control().contains(&"eu-2 down".to_owned()).then_some(())
    });

    // While control is away, the balancer goes on with what it knew, past a start of its own too.
    drop(site.control.take());
    let said = balancer.wait_for("goes on with what it knew");
    assert!(said.contains("control is away"), "{said}");
    drop(balancer);
    let again = Program::start(&mut site.balance("eu", &token));
    again.wait_for("begins with what");
    again.wait_for("keeping the tables in step");
    site.wait_for_states(["eu-1 draining", "eu-2 down", "eu-3 serving"]);
    assert_eq!((client.open(20), client.ask().0), (20, left + 40 - of_two));
    // Slices stay too.
    dialed.leaves_from_its_slice(3);
}
