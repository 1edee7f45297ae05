//! Control and two edges over a real NATS, as processes of their own.

use std::{
    net::TcpStream,
    path::PathBuf,
    process::{Command, Stdio},
    time::Instant,
};

use serde_json::Value;

use crate::harness::{Home, Origin, Program, curl, text, wait_until};

const DOMAIN: &str = "lab.localhost";

/// A port that is free now.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A NATS server, in a folder of its home.
struct Bus {
    program: PathBuf,
    dir: PathBuf,
    port: u16,
    running: Option<Program>,
}

impl Bus {
    /// `None`, with the reason printed, where there is none outside of CI.
    fn start(home: &Home, more: &str) -> Option<Self> {
        let tools = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/tools");
        let found = Command::new(tools).arg("nats-server").stderr(Stdio::inherit()).output().unwrap();
        if !found.status.success() {
            assert!(std::env::var_os("CI").is_none(), "nats-server must be there in CI: scripts/tools nats-server");
            println!("skipped: nats-server cannot be built here (scripts/tools nats-server says why)");
            return None;
        }
        let dir = home.dir.path().join("nats");
        std::fs::create_dir_all(&dir).unwrap();
        let port = free_port();
        let config = format!(
            "listen: 127.0.0.1:{port}\njetstream {{ store_dir: {:?}, max_mem: 64M, max_file: 256M }}\n{more}\n",
            dir.join("store")
        );
        std::fs::write(dir.join("nats.conf"), config).unwrap();
        let mut bus = Self { program: text(&found.stdout).trim().into(), dir, port, running: None };
        bus.resume();
        Some(bus)
    }

    fn resume(&mut self) {
        let mut command = Command::new(&self.program);
        command.arg("-c").arg(self.dir.join("nats.conf"));
        self.running = Some(Program::start(&mut command));
        wait_until("nats-server", || TcpStream::connect(("127.0.0.1", self.port)).ok());
    }

    fn kill(&mut self) {
        self.running = None;
    }

    fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }
}

/// One control, on ports that stay the same.
struct ControlHere {
    program: Option<Program>,
    ports: (u16, u16),
    bus: String,
}

impl ControlHere {
    fn start(home: &Home, bus: &Bus) -> Self {
        let mut control = Self { program: None, ports: (free_port(), free_port()), bus: bus.url() };
        control.resume(home);
        control
    }

    fn resume(&mut self, home: &Home) {
        let (listen, edges) = (format!("127.0.0.1:{}", self.ports.0), format!("127.0.0.1:{}", self.ports.1));
        let data = home.data();
        let args = [
            "control",
            "--domain",
            DOMAIN,
            "--bus",
            &self.bus,
            "--listen",
            &listen,
            "--listen-edges",
            &edges,
            "--data",
            data.to_str().unwrap(),
            "--sign-up",
            "open",
        ];
        let program = Program::start(&mut home.command(&args));
        program.wait_for("ready");
        self.program = Some(program);
    }
}

/// An edge, on a port that stays the same.
struct EdgeHere {
    program: Option<Program>,
    port: u16,
    data: PathBuf,
}

impl EdgeHere {
    fn join(home: &Home, name: &str, region: &str) -> Self {
        let token = home.json(&["edge", "token", "create", "--name", name]);
        let token = token["token"].as_str().unwrap().to_owned();
        let mut edge = Self { program: None, port: free_port(), data: home.dir.path().join(name) };
        edge.start(home, &["--join", &token, "--region", region]);
        edge
    }

    fn start(&mut self, home: &Home, more: &[&str]) {
        let listen = format!("127.0.0.1:{}", self.port);
        let mut args = vec!["edge", "--listen", &listen, "--data", self.data.to_str().unwrap(), "--drain", "1s"];
        args.extend(more);
        let program = Program::start(&mut home.command(&args));
        program.wait_for("ready");
        self.program = Some(program);
    }

    fn kill(&mut self) {
        // Dropped programs are killed without a word.
        self.program = None;
    }

    fn api(&self) -> String {
        format!("https://api.{DOMAIN}:{}", self.port)
    }

    fn get(&self, home: &Home, host: &str, path: &str) -> (u16, String) {
        let answer = curl(&home.data().join("ca.pem"), &format!("https://{host}:{}{path}", self.port), &[]);
        (answer.status, answer.body)
    }

    /// Whether the edge knows the socket: one that it does not know is not found.
    fn knows(&self, home: &Home, host: &str) -> bool {
        self.get(home, host, "/").0 != 404
    }
}

/// A connector of the socket that comes by this edge.
fn connect(home: &Home, edge: &EdgeHere, socket: &str, origin: &Origin, more: &[&str]) -> Program {
    let port = origin.address.port().to_string();
    let api = edge.api();
    let ca = home.data().join("ca.pem");
    let mut args = vec![
        "tunnel",
        "connect",
        "--socket-id",
        socket,
        "--host",
        "127.0.0.1",
        "--port",
        &port,
        "-o",
        "json",
        "--api",
        &api,
        "--ca",
        ca.to_str().unwrap(),
    ];
    args.extend(more);
    let program = Program::start(&mut home.command(&args));
    program.wait_for("attached");
    program
}

fn edges(home: &Home) -> Vec<Value> {
    home.json(&["edge", "ls"]).as_array().unwrap().clone()
}

/// An API token that works by every edge: logins are kept by the address of the API.
fn token(home: &Home) -> String {
    let made = home.json(&["token", "create", "--name", "edges", "--scope", "tunnels:connect"]);
    made["token"].as_str().unwrap().to_owned()
}

#[test]
fn edges_join_serve_and_go_on_without_bus_and_control() {
    let home = Home::new();
    let Some(mut bus) = Bus::start(&home, "") else { return };
    let mut control = ControlHere::start(&home, &bus);
    home.account();
    let (mut a, b) = (EdgeHere::join(&home, "eu-1", "eu"), EdgeHere::join(&home, "us-1", "us"));
    wait_until("both edges are there", || {
        let edges = edges(&home);
        (edges.len() == 2 && edges.iter().all(|edge| edge["state"] == "up")).then_some(())
    });
    let (socket, host) = home.socket(&[]);
    wait_until("the socket is known at both", || (a.knows(&home, &host) && b.knows(&home, &host)).then_some(()));

    // A tunnel at an edge is served there, and known as its.
    let origin = Origin::start("origin");
    let token = token(&home);
    let _at_a = connect(&home, &a, &socket, &origin, &["--token", &token]);
    let (status, body) = a.get(&home, &host, "/hello");
    assert!(status == 200 && body.starts_with("origin GET /hello"), "{status} {body}");
    let tunnel = wait_until("the tunnel is known at control", || {
        let tunnels = home.json(&["tunnel", "ls", &socket]);
        tunnels.as_array().unwrap().iter().find(|tunnel| tunnel["status"] == "up").cloned()
    });
    assert_eq!((tunnel["edge"].as_str(), tunnel["region"].as_str()), (Some("eu-1"), Some("eu")), "{tunnel}");
    let at_a = edges(&home).into_iter().find(|edge| edge["name"] == "eu-1").unwrap();
    assert_eq!((at_a["tunnels"].as_u64(), at_a["region"].as_str()), (Some(1), Some("eu")), "{at_a}");

    // The bus dies: both serve on, and say so; a socket that is made meanwhile is there when it is back.
    bus.kill();
    wait_until("the loss is told", || {
        let (status, health) = a.get(&home, &format!("api.{DOMAIN}"), "/healthz");
        (status == 200 && health.contains("bus: away")).then_some(())
    });
    assert_eq!(a.get(&home, &host, "/").0, 200);
    let (_, meanwhile) = home.socket(&[]);
    assert!(!b.knows(&home, &meanwhile));
    bus.resume();
    wait_until("what was made meanwhile is known", || {
        (a.knows(&home, &meanwhile) && b.knows(&home, &meanwhile)).then_some(())
    });

    // Control dies: edges serve what they know, and say what does not go.
    control.program = None;
    assert_eq!(a.get(&home, &host, "/").0, 200);
    let (status, said) = a.get(&home, &format!("api.{DOMAIN}"), "/v1/info");
    assert!(status == 503 && said.contains("control cannot be reached"), "{status} {said}");
    // An edge starts from its disk without control and bus, and lets the connector in whose credential it knows.
    bus.kill();
    a.kill();
    a.start(&home, &[]);
    assert!(a.knows(&home, &host), "what was known is on disk");
    wait_until("the connector is let in again", || (a.get(&home, &host, "/").0 == 200).then_some(()));
    bus.resume();
    control.resume(&home);
    wait_until("all is as before", || {
        edges(&home).iter().find(|edge| edge["name"] == "eu-1" && edge["tunnels"] == 1).map(|_| ())
    });

    // An edge is killed: what it held is gone when its lease is over.
    a.kill();
    let killed = Instant::now();
    wait_until("the dead edge is known to be dead", || {
        edges(&home).iter().any(|edge| edge["name"] == "eu-1" && edge["state"] == "down").then_some(())
    });
    println!("a killed edge is down after {:?}", killed.elapsed());
    let tunnels = home.json(&["tunnel", "ls", &socket]);
    assert!(tunnels.as_array().unwrap().iter().all(|tunnel| tunnel["status"] == "down"), "{tunnels}");
}

#[test]
fn who_may_not_join_is_told_why() {
    let home = Home::new();
    let Some(bus) = Bus::start(&home, "") else { return };
    let _control = ControlHere::start(&home, &bus);
    home.account();
    let _first = EdgeHere::join(&home, "eu-1", "eu");
    let token = |more: &[&str]| {
        let made = home.json(&[&["edge", "token", "create"], more].concat());
        made["token"].as_str().unwrap().to_owned()
    };
    let data = home.dir.path().join("refused");
    let refused = |token: &str, more: &[&str], code: i32, said: &str| {
        let mut args = vec!["edge", "--join", token, "--data", data.to_str().unwrap(), "--listen", "127.0.0.1:0"];
        args.extend(more);
        let output = home.run(&args);
        let told = text(&output.stderr);
        assert!(output.status.code() == Some(code) && told.contains(said), "{args:?}: {:?} {told}", output.status);
    };
    let good = token(&[]);
    refused(&good, &["--name", "eu-1", "--region", "eu"], 5, "there is an edge called eu-1 already");
    refused(&good, &[], 5, "which region");
    refused(&good, &["--region", "EU"], 2, "is no name of a region");
    // The token is as good as before: those were no use of it.
    let mut second = EdgeHere { program: None, port: free_port(), data: home.dir.path().join("second") };
    second.start(&home, &["--join", &good, "--region", "eu"]);
    refused(&good, &["--region", "eu"], 5, "was used before, by the edge eu-2");
    let stolen = good.replacen("spe_", "spe_A", 1);
    let stolen = format!("{}{}", &stolen[..47], &stolen[48..]);
    refused(&stolen, &["--region", "eu"], 5, "is not known");
    let (front, digits) = good.rsplit_once('#').unwrap();
    let other = format!("{front}#{}", if digits.starts_with('0') { "1" } else { "0" }.to_owned() + &digits[1..]);
    refused(&other, &["--region", "eu"], 6, "not the one that the join token names");
    refused("nonsense", &["--region", "eu"], 2, "this is no join token");
    refused(&token(&["--region", "us"]), &["--region", "eu"], 5, "is for the region us");
    let nobody = format!("{}@127.0.0.1:{}#{digits}", good.split('@').next().unwrap(), free_port());
    refused(&nobody, &["--region", "eu"], 6, "no control answers");

    // One that was removed gets nothing more.
    assert!(home.run(&["edge", "rm", "eu-2"]).status.success());
    assert_eq!(edges(&home).len(), 1);
    let (status, said) = second.get(&home, &format!("api.{DOMAIN}"), "/v1/info");
    assert!(status == 403 && said.contains("this edge was removed"), "{status} {said}");
    // Who joined, and who tried to with a token that was used, is on record.
    let log = text(&home.run(&["audit", "--since", "1h", "-o", "json"]).stdout);
    let joins: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let joins: Vec<_> = joins.iter().filter(|event| event.to_string().contains("edge.join")).collect();
    let has = |outcome: &str| {
        let words = [format!("\"{outcome}\""), "\"eu-2\"".to_owned()];
        joins.iter().any(|event| words.iter().all(|word| event.to_string().contains(word)))
    };
    assert!(has("done") && has("refused"), "{joins:?}");
    // Nobody but the owner of the installation sees edges.
    let output = home.run(&["account", "create", "--name", "Other", "--email", "other@example.com"]);
    assert!(output.status.success());
    assert!(home.run(&["login", "--email", "other@example.com"]).status.success());
    let output = home.run(&["edge", "ls"]);
    assert!(output.status.code() == Some(3) && text(&output.stderr).contains("owns this installation"), "{output:?}");
}

#[test]
fn a_control_that_cannot_start_says_why() {
    let home = Home::new();
    let Some(bus) = Bus::start(&home, "authorization { user: sallyport, password: right }") else { return };
    let data = home.data();
    let url = bus.url();
    let args = |domain: &'static str| {
        vec![
            "control",
            "--domain",
            domain,
            "--data",
            data.to_str().unwrap(),
            "--listen",
            "127.0.0.1:0",
            "--listen-edges",
            "127.0.0.1:0",
            "--bus",
            &url,
        ]
    };
    let output = home.run(&args(DOMAIN));
    assert!(output.status.code() == Some(1) && text(&output.stderr).contains("refuses the credentials"), "{output:?}");
    let mut wrong = home.command(&args(DOMAIN));
    let output = wrong.env("SALLYPORT_BUS_USER", "sallyport").env("SALLYPORT_BUS_PASSWORD", "no").output().unwrap();
    let told = text(&output.stderr);
    assert!(!output.status.success() && told.contains("refuses the credentials") && !told.contains("right"), "{told}");
    let output = home.run(&args("localhost"));
    assert!(output.status.code() == Some(2) && text(&output.stderr).contains("two labels"), "{output:?}");
}
