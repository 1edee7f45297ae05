//! Control and edges of one installation over a real NATS, each a process.

use std::{
    net::TcpStream,
    path::PathBuf,
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::{
    harness::{Home, HttpResponse, Origin, Program, curl, text, wait_until},
    tcp::free_port,
};

pub(crate) const DOMAIN: &str = "lab.localhost";

/// A NATS server, in a folder of its home.
pub(crate) struct Bus {
    pub(crate) program: PathBuf,
    pub(crate) dir: PathBuf,
    pub(crate) port: u16,
    pub(crate) running: Option<Program>,
}

impl Bus {
    /// `None` with a message if NATS is missing outside of CI.
    pub(crate) fn start(home: &Home, more: &str) -> Option<Self> {
        let tools = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/tools");
        let found = Command::new(tools).arg("nats-server").stderr(Stdio::inherit()).output().unwrap();
        if !found.status.success() {
            assert!(std::env::var_os("CI").is_none(), "nats-server must be there in CI: scripts/tools nats-server");
            println!("skipped: nats-server cannot be built here (scripts/tools nats-server prints the reason)");
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

    pub(crate) fn resume(&mut self) {
        let mut command = Command::new(&self.program);
        command.arg("-c").arg(self.dir.join("nats.conf"));
        self.running = Some(Program::start(&mut command));
        wait_until("nats-server", || TcpStream::connect(("127.0.0.1", self.port)).ok());
    }

    pub(crate) fn kill(&mut self) {
        self.running = None;
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }
}

/// One control, on fixed ports.
pub(crate) struct ControlHere {
    pub(crate) program: Option<Program>,
    pub(crate) ports: (u16, u16),
    pub(crate) bus: String,
    /// Its further options and environment.
    pub(crate) more: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
}

impl ControlHere {
    pub(crate) fn start(home: &Home, bus: &Bus) -> Self {
        Self::start_with(home, bus, &[])
    }

    pub(crate) fn start_with(home: &Home, bus: &Bus, more: &[&str]) -> Self {
        Self::start_by(home, bus, more, &[])
    }

    /// A control with this environment.
    pub(crate) fn start_by(home: &Home, bus: &Bus, more: &[&str], env: &[(&str, &str)]) -> Self {
        let more = more.iter().map(|word| (*word).to_owned()).collect();
        let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let mut control = Self { program: None, ports: (free_port(), free_port()), bus: bus.url(), more, env };
        control.resume(home);
        control
    }

    pub(crate) fn resume(&mut self, home: &Home) {
        let (listen, edges) = (format!("127.0.0.1:{}", self.ports.0), format!("127.0.0.1:{}", self.ports.1));
        let data = home.data();
        let mut args = vec![
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
        args.extend(self.more.iter().map(String::as_str));
        let mut command = home.command(&args);
        let program = Program::start(command.envs(self.env.iter().map(|(name, value)| (name, value))));
        program.wait_for("ready");
        self.program = Some(program);
    }
}

/// An edge on a fixed port.
pub(crate) struct EdgeHere {
    pub(crate) program: Option<Program>,
    /// Its own address, so that several edges can open the same ports of sockets. Connectors use only 127.0.0.1.
    pub(crate) ip: &'static str,
    pub(crate) port: u16,
    pub(crate) data: PathBuf,
}

impl EdgeHere {
    pub(crate) fn join(home: &Home, name: &str, region: &str) -> Self {
        Self::join_at(home, name, region, "127.0.0.1")
    }

    /// An edge at an address of its own.
    pub(crate) fn join_at(home: &Home, name: &str, region: &str, ip: &'static str) -> Self {
        Self::join_with(home, name, region, ip, &[])
    }

    /// An edge at an address of its own, with more options.
    pub(crate) fn join_with(home: &Home, name: &str, region: &str, ip: &'static str, more: &[&str]) -> Self {
        let token = home.json(&["edge", "token", "create", "--name", name]);
        let token = token["token"].as_str().unwrap().to_owned();
        let mut edge = Self::new(home, name, ip);
        edge.start(home, &[&["--join", &token, "--region", region], more].concat());
        edge
    }

    /// An edge that has not joined yet.
    pub(crate) fn new(home: &Home, name: &str, ip: &'static str) -> Self {
        Self { program: None, ip, port: free_port(), data: home.dir.path().join(name) }
    }

    pub(crate) fn start(&mut self, home: &Home, more: &[&str]) {
        let listen = format!("{}:{}", self.ip, self.port);
        let mut args = vec!["edge", "--listen", &listen, "--data", self.data.to_str().unwrap(), "--drain", "1s"];
        args.extend(more);
        let program = Program::start(&mut home.command(&args));
        program.wait_for("ready");
        self.program = Some(program);
    }

    pub(crate) fn kill(&mut self) {
        // Dropped programs are killed by SIGKILL.
        self.program = None;
    }

    pub(crate) fn api(&self) -> String {
        format!("https://api.{DOMAIN}:{}", self.port)
    }

    pub(crate) fn get(&self, home: &Home, host: &str, path: &str) -> (u16, String) {
        let response = self.curl(home, host, path, &[]);
        (response.status, response.body)
    }

    /// One request by curl to this edge, whatever the name resolves to.
    pub(crate) fn curl(&self, home: &Home, host: &str, path: &str, more: &[&str]) -> HttpResponse {
        let (ip, port) = (self.ip, self.port);
        let to = format!("{host}:{port}:{ip}:{port}");
        let args = [&["--connect-to", &to], more].concat();
        curl(&home.data().join("ca.pem"), &format!("https://{host}:{port}{path}"), &args)
    }

    /// Whether the edge knows the socket; an unknown one is not found. At a known socket, the edge refuses this request
    /// itself: a request for the service would wait for the first tunnel.
    pub(crate) fn knows(&self, home: &Home, host: &str) -> bool {
        self.curl(home, host, "/", &["--request", "OPTIONS", "--header", "Max-Forwards: none"]).status != 404
    }
}

/// A connector of the socket that dials this edge.
pub(crate) fn connect(home: &Home, edge: &EdgeHere, socket: &str, origin: &Origin, more: &[&str]) -> Program {
    connect_to(home, edge, socket, origin.address.port(), more)
}

/// A connector of the socket that dials this edge, for a service on this port.
pub(crate) fn connect_to(home: &Home, edge: &EdgeHere, socket: &str, port: u16, more: &[&str]) -> Program {
    let port = port.to_string();
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

pub(crate) fn edges(home: &Home) -> Vec<Value> {
    home.json(&["edge", "ls"]).as_array().unwrap().clone()
}

/// An API token that works at every edge, because logins are stored by the API's address.
pub(crate) fn token(home: &Home) -> String {
    let made = home.json(&["token", "create", "--name", "edges", "--scope", "tunnels:connect"]);
    made["token"].as_str().unwrap().to_owned()
}
